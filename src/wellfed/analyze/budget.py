"""Where a device's time went: span = compute + exposed communication + exposed copy + idle, to the ns."""

from functools import cached_property

import numpy as np

from wellfed.analyze.families import COMM_KERNEL
from wellfed.analyze.intervals import Intervals, clip, union
from wellfed.model.timeline import I64, Cat, Mask, Timeline
from wellfed.model.trace import Budget


class Work:
    """One device's GPU events of a timeline, sorted by start, with their class. `rows` index the timeline. `span`
    is what the budget is of: first to last event, or the window's part of that; None without an event. The event
    that follows a window has no class."""

    def __init__(self, timeline: Timeline, device: int) -> None:
        self.device = device
        self.rows = np.flatnonzero(timeline.is_gpu & (timeline.device == device))
        self.ts = timeline.ts[self.rows]
        self.end = timeline.end[self.rows]
        self.name = timeline.name[self.rows]
        cat = timeline.cat[self.rows]
        is_comm_name = timeline.named(COMM_KERNEL.search)
        kernel = cat == Cat.KERNEL
        window = timeline.window
        inside = self.ts < window.end_ns if window else np.ones(len(cat), bool)
        self.comm: Mask = inside & kernel & is_comm_name[self.name]
        self.compute: Mask = inside & kernel & ~self.comm
        self.copy: Mask = inside & ~kernel
        self.span: tuple[int, int] | None = None
        if len(self.ts):
            self.span = window.spans.get(device) if window else (int(self.ts.min()), int(self.end.max()))

    def busy(self, mask: Mask | None = None) -> Intervals:
        if mask is None:
            return self.all_busy
        return union(self.ts[mask], self.end[mask])

    @cached_property
    def all_busy(self) -> Intervals:
        return union(self.ts, self.end)

    @cached_property
    def computing(self) -> Intervals:
        return self.busy(self.compute)

    @cached_property
    def computing_or_comm(self) -> Intervals:
        return self.busy(self.compute | self.comm)

    @cached_property
    def by_end(self) -> I64:
        """The order of the events by their end."""
        return np.argsort(self.end, kind="stable")

    @cached_property
    def ends(self) -> I64:
        """The ends in that order."""
        return self.end[self.by_end]


def budget_in(work: Work, start: int, end: int) -> Budget:
    """The budget of the window [start, end), ns of the timeline."""
    compute = clip(work.computing, start, end).total
    with_comm = clip(work.computing_or_comm, start, end).total
    busy = clip(work.all_busy, start, end).total
    return Budget(
        span_ns=end - start,
        compute_ns=compute,
        exposed_comm_ns=with_comm - compute,
        exposed_copy_ns=busy - with_comm,
        idle_ns=end - start - busy,
    )


def raw_budget(work: Work) -> Budget | None:
    """Every GPU event, first to last (or in the window), nothing trimmed; None without one."""
    return None if work.span is None else budget_in(work, *work.span)


def comm_totals(work: Work) -> tuple[int, int]:
    """Union of communication, and the part of it hidden under compute (ns)."""
    comm = work.busy(work.comm).total
    exposed = work.computing_or_comm.total - work.computing.total
    return comm, comm - exposed
