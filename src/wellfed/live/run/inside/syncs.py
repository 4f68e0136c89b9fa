"""Which lines wait for the GPU, in a few steps of each hundred; and what the allocator says, each fifty steps.

In a sampled step the calls that fetch a value from the GPU are timed and their caller's line is kept; afterwards they are what
they were. Not seen: `nonzero`, indexing by a mask, and copies that block."""

from __future__ import annotations

import sys
from typing import Any

from . import process, state
from .ring import MEMORY
from .state import now

EACH, LONG, FIRST, MEMORY_EACH = 100, 5, 45, 50
"""LONG sampled steps of EACH, the first after FIRST: past the warm-up, in a block with hooks."""
METHODS = ("item", "cpu", "tolist", "__bool__", "__float__", "__int__", "__index__")
INSIDE = ("torch.", "torch", "_wellfed_run", "accelerate.", "lightning.", "pytorch_lightning.")


def part(torch: Any, asked: dict[str, str]) -> Any:
    sampler = _Sampler(torch, everything="sync_cpu" in asked)
    process.on_fork(sampler.restore)
    return process.guarded(sampler.step_ended, sampler.off)


class _Sampler:
    def __init__(self, torch: Any, *, everything: bool) -> None:
        self.torch, self.everything = torch, everything
        self.patched: list[tuple[Any, str, Any]] = []
        self.stopped = False

    def off(self) -> None:
        self.stopped = True
        self.restore()

    def step_ended(self, seq: int, at: int, length: int) -> None:
        steps = state.state.steps
        if steps % MEMORY_EACH == 0:
            self.memory()
        if self.stopped:
            return
        within = (steps - FIRST) % EACH
        if self.patched:
            if state.state.ring is not None:
                state.state.ring.counters[14] += 1
            if within >= LONG or steps < FIRST:
                self.restore()
        elif (
            steps >= FIRST
            and within == 0
            and state.state.hooked
            and (self.everything or self.torch.cuda.is_initialized())
        ):
            self.patch()

    def patch(self) -> None:
        tensor, cuda = self.torch.Tensor, self.torch.cuda
        for name in METHODS:
            self.replace(tensor, name, self.of_tensor)
        self.replace(cuda, "synchronize", self.of_device)
        for cls in (cuda.Stream, cuda.Event):
            self.replace(cls, "synchronize", self.of_device)
        state.state.synced = True

    def replace(self, owner: Any, name: str, by: Any) -> None:
        original = getattr(owner, name, None)
        if original is not None:
            self.patched.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, by(original, name))

    def restore(self) -> None:
        """What the class had itself comes back; what it inherited is inherited again."""
        state.state.synced = False
        while self.patched:
            owner, name, original = self.patched.pop()
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    def of_tensor(self, original: Any, name: str) -> Any:
        everything = self.everything

        def call(self: Any, *args: Any, **params: Any) -> Any:
            if not (everything or self.is_cuda):
                return original(self, *args, **params)
            begin = now()
            try:
                return original(self, *args, **params)
            finally:
                seen(now() - begin, name)

        call.__name__ = name
        return call

    def of_device(self, original: Any, name: str) -> Any:
        def call(*args: Any, **params: Any) -> Any:
            begin = now()
            try:
                return original(*args, **params)
            finally:
                seen(now() - begin, name)

        call.__name__ = name
        return call

    def memory(self) -> None:
        """The allocator's counters, by the call that doesn't flatten them all."""
        cuda, made = self.torch.cuda, state.state.ring
        if made is None or not cuda.is_initialized() or not state.state.hooked:
            return
        told = cuda.memory_stats_as_nested_dict()
        bytes_of = {name: told[name]["all"] for name in ("reserved_bytes", "allocated_bytes")}
        made.write(
            MEMORY,
            now(),
            wait_ns=bytes_of["reserved_bytes"]["current"],
            gc_ns=bytes_of["allocated_bytes"]["current"],
            other_ns=told.get("num_alloc_retries", 0),
            own_ns=bytes_of["reserved_bytes"]["peak"],
            number=told.get("num_ooms", 0),
        )


def _seen(took: int, name: str) -> None:
    s = state.state
    if not state.mine() or s.ring is None:
        return
    s.sync_ns += took
    s.syncs += 1
    s.ring.counters[15] += 1
    s.ring.counters[16] += took
    s.ring.site(f"{_caller()} {name}", took)


seen = process.guarded(_seen)


def _caller() -> str:
    """file:line of the first frame that is the user's; of the innermost one where all are libraries'."""
    frame: Any = sys._getframe(4)
    first = frame
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith(INSIDE):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return f"{first.f_code.co_filename}:{first.f_lineno}" if first is not None else "?"
