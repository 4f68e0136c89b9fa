"""How long a step takes on the GPU, and how long the GPU has nothing between two steps, by events that are read later.

An event is recorded when the first batch of a step has come, and one when the step's optimizer has been called. Between the
two lies the step; from the end of one to the begin of the next lies what the GPU waited, if the host was late: a host
that runs ahead leaves no gap, however long it waited itself. Nothing blocks: an event that is not done yet is asked again after the
next step. Without a loader one event marks both, and the gap is not known. Nothing is recorded while a graph is captured."""

from __future__ import annotations

from collections import deque
from typing import Any

from . import loader, process, state
from .ring import GPU, bucket

MOST = 32
"""Steps whose events are not done yet; a host that is further ahead has its next steps left out."""


def part(torch: Any, asked: dict[str, str]) -> Any:
    clock = _Clock(torch)
    off = clock.off
    loader.after_batch.append(process.guarded(clock.batch_came, off))
    return process.guarded(clock.step_ended, off)


class _Clock:
    def __init__(self, torch: Any) -> None:
        self.torch, self.cuda = torch, torch.cuda
        self.free: list[Any] = []
        self.pending: deque[tuple[int, Any, Any, Any]] = deque()
        self.start: Any = None
        self.last: Any = None
        self.named = self.stopped = False

    def off(self) -> None:
        self.stopped = True

    def ready(self) -> bool:
        """Whether events can be recorded now."""
        if self.stopped or not state.state.hooked or not self.cuda.is_initialized():
            return False
        return not self.cuda.is_current_stream_capturing()

    def event(self) -> Any:
        one = self.free.pop() if self.free else self.cuda.Event(enable_timing=True)
        one.record()
        return one

    def batch_came(self) -> None:
        if self.start is None and self.last is not None and self.ready():
            self.start = self.event()

    def step_ended(self, seq: int, now: int, length: int) -> None:
        if not self.ready():
            self.last = self.start = None
            return
        self.read()
        if len(self.pending) >= MOST:
            self.last = self.start = None
            return
        end = self.event()
        if self.last is not None:
            self.pending.append((seq, self.last, self.start, end))
        self.last, self.start = end, None
        if not self.named:
            self.name()

    def read(self) -> None:
        """At most two steps at a time: each costs some microseconds."""
        made = state.state.ring
        for _ in range(2):
            if made is None or not self.pending or not self.pending[0][3].query():
                return
            seq, before, start, end = self.pending.popleft()
            begin = start if start is not None else before
            gap = before.elapsed_time(start) if start is not None else 0.0
            busy = begin.elapsed_time(end)
            gap_ns, busy_ns = max(int(gap * 1e6), 0), max(int(busy * 1e6), 0)
            made.write(GPU, 0, wait_ns=gap_ns, gc_ns=busy_ns, ident=int(start is not None), number=seq)
            made.counters[18] += 1
            made.counters[19] += busy_ns
            made.counters[20] += gap_ns
            made.histograms[8][bucket(busy_ns + gap_ns)] += 1
            # `end` is still the next step's `before`
            self.free.append(before)
            if start is not None:
                self.free.append(start)

    def name(self) -> None:
        self.named = True
        made = state.state.ring
        if made is not None:
            device = self.cuda.current_device()
            properties = self.cuda.get_device_properties(device)
            uuid = getattr(properties, "uuid", "")
            made.text("device", f"{device} {uuid or '-'} {properties.name}")
