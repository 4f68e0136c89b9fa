"""A short trace by torch's profiler, at a step or after a slow one.

One step is traced first, to tell how large a trace will be; then as many as fit, three to five. CPU and GPU activities only:
shapes, stacks and memory cost more and make a step look different."""

from __future__ import annotations

import atexit
import os
from collections import deque
from typing import Any

from . import process, state
from .ring import TRACE
from .state import now

STEPS, LEAST = 5, 1
EVENT_BYTES = 250
WARM, SLOW, LATELY = 20, 1.5, 31


def part(torch: Any, asked: dict[str, str]) -> Any:
    """None when no trace is asked for."""
    if "trace_step" not in asked and "trace_slow" not in asked:
        return None
    window = _Window(torch, asked)
    atexit.register(process.guarded(window.at_exit))
    process.on_fork(window.off)
    return process.guarded(window.step_ended, window.off)


class _Window:
    """`stage`: wait, probe, trace, done."""

    def __init__(self, torch: Any, asked: dict[str, str]) -> None:
        self.torch = torch
        self.at = int(asked["trace_step"]) if "trace_step" in asked else None
        self.max_bytes = float(asked.get("trace_max_mb", "64")) * 1e6
        self.lately: deque[int] = deque(maxlen=LATELY)
        self.stage, self.left, self.profile = "wait", 0, None
        self.kept: list[Any] = []
        """Profiles that have ended. One that is freed while another runs takes the process with it (torch 2.13)."""

    def off(self) -> None:
        self.stage, self.profile = "done", None
        state.state.traced = False

    def step_ended(self, seq: int, at: int, length: int) -> None:
        if self.stage == "wait":
            if self.is_time(length):
                self.begin("probe")
        elif self.stage == "probe":
            self.probed()
        elif self.stage == "trace":
            self.left -= 1
            if self.left > 0:
                self.profile.step()  # type: ignore[attr-defined]
            else:
                self.finish()

    def is_time(self, length: int) -> bool:
        steps = state.state.steps
        if self.at is not None:
            return steps >= self.at
        slow = False
        if len(self.lately) == LATELY and steps > WARM:
            slow = length > SLOW * sorted(self.lately)[LATELY // 2]
        if length:
            self.lately.append(length)
        return slow

    def begin(self, stage: str) -> None:
        enabled = getattr(self.torch.autograd, "_profiler_enabled", None)
        if enabled is not None and enabled():
            self.tell("not traced: the program's own profiler was running")
            self.off()
            return
        profiler = self.torch.profiler
        kinds = [profiler.ProfilerActivity.CPU]
        if self.torch.cuda.is_initialized():
            kinds.append(profiler.ProfilerActivity.CUDA)
        self.profile = profiler.profile(activities=kinds)
        self.kept.append(self.profile)
        self.profile.start()  # type: ignore[attr-defined]
        self.stage = stage
        state.state.traced = True
        if state.state.ring is not None:
            state.state.ring.write(TRACE, now())

    def probed(self) -> None:
        """Stop the step that was tried, and trace as many as its size allows."""
        profile: Any = self.profile
        profile.stop()
        results = getattr(getattr(profile, "profiler", None), "kineto_results", None)
        events = len(results.events()) if results is not None else 0
        expected = max(events, 1) * EVENT_BYTES
        steps = min(STEPS, int(self.max_bytes / expected))
        self.profile = None
        if steps < LEAST:
            self.tell(f"not traced: one step has {events} events, about {expected / 1e6:.0f} MB")
            self.off()
            return
        self.left = steps
        self.expected = f"{steps} steps of {events} events, about {steps * expected / 1e6:.1f} MB expected"
        self.begin("trace")

    def finish(self) -> None:
        profile: Any = self.profile
        profile.stop()
        made, folder = state.state.ring, os.environ.get(process.FOLDER, "")
        rank = process.told(process.RANK_NAMES)
        name = f"trace-{os.getpid()}.json.gz" if rank < 0 else f"trace-rank{rank}-{os.getpid()}.json.gz"
        path = os.path.join(folder, name)  # noqa: PTH118
        profile.export_chrome_trace(path)
        if made is not None:
            made.write(TRACE, now(), flags=1)
        self.tell(f"{name}: {self.expected}, {os.path.getsize(path) / 1e6:.1f} MB packed")  # noqa: PTH202
        self.off()

    def tell(self, text: str) -> None:
        if state.state.ring is not None:
            state.state.ring.text("trace", text)

    def at_exit(self) -> None:
        if self.stage == "trace":
            self.finish()
        elif self.stage == "probe":
            self.profile.stop()  # type: ignore[attr-defined]
            self.tell("not traced: the program ended before the window")
        elif self.stage == "wait":
            self.tell("not traced: the step never came")
