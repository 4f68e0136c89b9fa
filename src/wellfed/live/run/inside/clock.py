"""The step clock: optimizers that have stepped.

Each call of an optimizer's step is a record with the optimizer's number, in the order in which they were first seen. What is
one step of several optimizers is decided when the ring is read. Only the first few optimizers have records: a program that
steps one for each parameter has hundreds, and one of them is clock enough."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

from . import process, state
from .ring import SKIPPED, STEP, SYNCED, TRACED, UNHOOKED, bucket
from .state import drained, now

MOST, WITH_HISTOGRAM = 8, 4
_known: dict[int, int] = {}
_alive: dict[int, Any] = {}
_last: dict[int, int] = {}
LOOPS = (
    ("transformers.trainer", "Trainer of transformers"), ("trl.", "TRL"), ("lightning.pytorch", "Lightning"),
    ("pytorch_lightning", "Lightning"), ("lightning.fabric", "Lightning Fabric"), ("deepspeed.", "DeepSpeed"),
    ("accelerate.optimizer", "Accelerate"), ("torchtitan.", "torchtitan"), ("megatron.", "Megatron"),
    ("composer.", "Composer"), ("fairseq", "fairseq"), ("ultralytics.", "Ultralytics"), ("nemo.", "NeMo"), ("fastai.", "fastai"),
)  # fmt: skip
_parts: list[Any] = []
"""What else happens at the end of a step: functions of (the number of the record, flags, now)."""


def install(torch: Any, asked: dict[str, str]) -> None:
    """Hook all optimizers. The hook says nothing to Dynamo: a compiled optimizer is traced without it."""
    from torch.optim import optimizer

    register = getattr(optimizer, "register_optimizer_step_post_hook", None)
    if register is None:
        process.log(
            "failure", f"clock: torch {torch.__version__} has no hook for all optimizers (2.0 and later)"
        )
        return
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    step = process.guarded(_stepped, _off)

    def wellfed_step_hook(one: Any, args: Any, kwargs: Any) -> None:
        if is_compiling is not None and is_compiling():
            return
        step(one)

    register(wellfed_step_hook)
    process.on_fork(_after_fork)
    _install_scaler(torch)
    from . import extras

    extras.install(torch, asked, _parts)


def _stepped(one: Any) -> None:
    begin = now()
    s = state.state
    if s.off:
        return
    ident = _known.get(id(one))
    if ident is None:
        ident = _first_seen(one)
    if ident >= MOST:
        return
    record(STEP, ident, begin, 0)


def record(kind: int, ident: int, begin: int, flags: int, other_ns: int = 0) -> None:
    """The end of a step by whichever clock. Its own time counts for the next one."""
    s = state.state
    made = s.ring or state.ring()
    if made is None:
        return
    if not s.hooked:
        flags |= UNHOOKED
    if s.traced:
        flags |= TRACED
    if s.synced:
        flags |= SYNCED
    wait, gc, sync, own, batches, syncs = drained()
    seq = made.write(kind, begin, wait, gc, other_ns or sync, own, flags, ident, batches, syncs)
    key = kind << 8 | ident
    before = _last.get(key, 0)
    _last[key] = begin
    length = begin - before if before else 0
    counters = made.counters
    if kind == STEP:
        counters[1] += 1
        if length and ident < WITH_HISTOGRAM and not flags & TRACED:
            made.histograms[ident][bucket(length)] += 1
    elif length and not flags & TRACED:
        made.histograms[kind + 2][bucket(length)] += 1  # batch 4, function 5
    if s.hooked:
        counters[21] += 1
        counters[4] += wait
        made.histograms[6][bucket(wait)] += 1
        counters[7] += gc
    else:
        counters[22] += 1
    counters[10] += own
    counters[11] += 1
    if ident == 0:
        s.steps += 1
        for part in _parts:
            part(seq, begin, length)
        state.next_block(s.steps, length)
    if s.hooked:
        s.own_ns += now() - begin


def _first_seen(one: Any) -> int:
    """The number of a new optimizer: the least that no living one has, so that the tenth training of a program has a clock too."""
    s = state.state
    if len(_known) >= 4096:
        return MOST
    taken = set(_known.values())
    ident = next(number for number in range(len(taken) + 1) if number not in taken)
    key = id(one)
    _known[key] = ident
    _alive[key] = weakref.ref(one, lambda _: _gone(key, ident))
    made = state.ring()
    if made is None:
        return MOST
    s.main = threading.get_ident()
    made.text("thread", threading.current_thread().name)
    made.counters[made.at["optimizers"]] = max(len(_known), made.counters[made.at["optimizers"]])
    if ident < MOST and len(made.names) <= ident:
        made.names.append(type(one).__name__)
        made.text("optimizers", ", ".join(made.names))
    if ident == 0:
        made.text("loop", _loop())
    return ident


def _gone(key: int, ident: int) -> None:
    _known.pop(key, None)
    _alive.pop(key, None)
    _last.pop(STEP << 8 | ident, None)


def _loop() -> str:
    """The framework whose loop this is, by the modules on the stack; the innermost one that we know."""
    frame: Any = sys._getframe(2)
    found = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        for prefix, name in LOOPS:
            if module.startswith(prefix):
                found = name  # the outermost is the one that the user calls
                break
        frame = frame.f_back
    return found


def _install_scaler(torch: Any) -> None:
    """A step that the gradient scaler leaves out, since a gradient was not finite, has no optimizer's step."""
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None)
    original = vars(scaler).get("step") if scaler is not None else None
    if original is None:
        return

    def step(self: Any, optimizer: Any, *args: Any, **params: Any) -> Any:
        before = _events()
        found = original(self, optimizer, *args, **params)
        if _events() == before:
            skipped(optimizer)
        return found

    step.__name__, step.__doc__ = "step", original.__doc__
    step.__wrapped__ = original  # type: ignore[attr-defined]
    assert scaler is not None
    scaler.step = step


def _events() -> int:
    made = state.state.ring
    return made.events if made is not None else 0


def _skip(optimizer: Any) -> None:
    one = getattr(optimizer, "optimizer", optimizer)  # Accelerate wraps it
    ident = _known.get(id(one))
    if ident is not None and ident < MOST and not state.state.off and state.state.ring is not None:
        state.state.ring.add("skipped_steps")
        record(STEP, ident, now(), SKIPPED)


skipped = process.guarded(_skip)


def _off() -> None:
    made = state.state.ring
    if made is not None:
        made.add("failures")
    state.state.off = True


def _after_fork() -> None:
    _known.clear()
    _alive.clear()
    _last.clear()
