"""What about a recording weakens its numbers, and which of them.

Each check is a function of the recording that says one thing, or nothing. The counts are exact; what follows from
them is said in words, not taken off any number.
"""

import re
from collections.abc import Iterator

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.intervals import clip, union
from wellfed.analyze.launches import Launches
from wellfed.analyze.recurrence import SOURCE as RECURRING
from wellfed.analyze.steps import HostSteps, unbroken
from wellfed.model.timeline import I64, Cat, Mask, Timeline
from wellfed.model.trace import TraceWarning

_GRAPH = re.compile(r"^(?:cuda|hip|cu)GraphLaunch")
_KERNEL_LAUNCH = re.compile(
    r"^(?:cudaLaunch(?:Cooperative)?Kernel|hip(?:Ext)?(?:Module)?Launch(?:Cooperative)?Kernel|cuLaunch(?:Cooperative)?Kernel)"
)
_CAPTURE_BEGIN = re.compile(r"^(?:cuda|hip|cu)StreamBeginCapture")
_CAPTURE_END = re.compile(r"^(?:cuda|hip|cu)StreamEndCapture")
_LEAST = 0.01
"""Less than this share of the events is no news."""
_STRAY_SHARE, _STRAY_GAP = 0.001, 0.2
"""So few events behind so large a part of the span are strays: they, not the work, set the span."""
_FRAMES_SHARE = 0.3
_OVERHEAD_SHARE = 0.01
_SKEW_NS = 1_000
"""Clocks of host and device are matched to about a microsecond at best."""


def integrity_warnings(
    timeline: Timeline, work: Work, launches: Launches, steps: HostSteps
) -> tuple[TraceWarning, ...]:
    """What about the recording weakens the numbers."""
    return (
        *timeline.warnings,
        *_orphans(launches),
        *_graphs(timeline, work, launches),
        *_dropped(timeline),
        *_host(timeline, work, launches),
        *_strays(work),
        *_clocks(work, launches),
        *_steps(steps),
        *_overhead(timeline, work, launches),
    )


def _orphans(launches: Launches) -> Iterator[TraceWarning]:
    orphan = launches.orphan
    if not orphan.any() or not launches.threads:
        return
    left = int(launches.left_over.sum())
    if left:
        yield TraceWarning(
            code="warm-up-leakage",
            count=left,
            sample=f"{left} GPU events at the start were launched before the recording",
            weakens="the raw budget (steps leave them out)",
        )
    late = int(orphan.sum()) - left
    if late:
        yield TraceWarning(
            code="orphan-events",
            count=late,
            sample=f"{late} GPU events have no launch record",
            weakens="idle causes of the gaps before them",
        )


def _graphs(timeline: Timeline, work: Work, launches: Launches) -> Iterator[TraceWarning]:
    """Replays of one graph launch the same kernels each time. One that shows fewer is recorded in part: the time
    of the rest looks idle. Replays are of one graph when they begin, or else end, with the same kernel."""
    is_graph = timeline.named(_GRAPH.search)
    replays = np.flatnonzero(is_graph[timeline.name] & (timeline.corr >= 0) & (timeline.cat != Cat.OP))
    rows = launches.row
    mine = np.flatnonzero((rows >= 0) & is_graph[timeline.name[np.maximum(rows, 0)]])
    if not len(mine) or timeline.window:
        return
    order = mine[np.argsort(rows[mine], kind="stable")]
    begin = np.flatnonzero(np.append(True, np.diff(rows[order]) != 0))
    count = np.diff(np.append(begin, len(order)))
    first, last = work.name[order[begin]], work.name[order[begin + count - 1]]
    usual = np.zeros(len(count))
    for ends in (last, first):  # what the beginning says counts more
        for name in np.unique(ends):
            alike = ends == name
            if alike.sum() >= 3:
                usual[alike] = np.maximum(usual[alike], np.median(count[alike]))
    short = count < usual
    empty = len(replays) - len(np.unique(timeline.corr[rows[order[begin]]]))
    empty = empty if len(timeline.gpus) == 1 else 0  # another device may have its kernels
    lost = int((usual[short] - count[short]).sum())
    if lost > _LEAST * usual.sum() or empty > _LEAST * len(count):
        least = int(count.min()) if not empty else 0
        yield TraceWarning(
            code="graph-under-recorded",
            count=int(short.sum()) + max(empty, 0),
            sample=f"{int(short.sum()) + max(empty, 0)} of {len(count) + max(empty, 0)} graph launches show fewer kernels"
            f" than other launches of their graph (at least {least}, usually {int(np.median(count))})",
            weakens="idle, which holds the time of kernels that ran and are not in the file, and every gain from it",
        )


def _dropped(timeline: Timeline) -> Iterator[TraceWarning]:
    """Launches whose kernel is not there. Those of a stream that is being captured run nothing; those after a
    thread's last launch with a kernel may not have run before the recording ended."""
    launch = timeline.named(_KERNEL_LAUNCH.search)
    is_call = (timeline.cat == Cat.RUNTIME) | (timeline.cat == Cat.DRIVER)
    rows = np.flatnonzero(is_call & launch[timeline.name] & (timeline.corr >= 0))
    if not len(rows) or timeline.window:
        return
    there = np.unique(timeline.corr[timeline.is_gpu])
    at = np.minimum(np.searchsorted(there, timeline.corr[rows]), len(there) - 1)
    has = there[at] == timeline.corr[rows]
    lost, launched = rows[~has], rows[has]
    last = np.full(int(timeline.thread[rows].max()) + 1, -1, np.int64)
    np.maximum.at(last, timeline.thread[launched], timeline.ts[launched])
    lost = lost[timeline.ts[lost] < last[timeline.thread[lost]]]
    lost = lost[~_captured(timeline, lost)]
    count = len(np.unique(timeline.corr[lost]))
    if count >= max(_LEAST * len(rows), 1):
        yield TraceWarning(
            code="dropped-kernels",
            count=count,
            sample=f"{count} of {len(rows)} kernel launches have no kernel in the file",
            weakens="busy time and kernel tables (too small) and idle (too large)",
        )


def _captured(timeline: Timeline, rows: I64) -> Mask:
    """Which calls lie between the begin and the end of a capture on their thread."""
    inside = np.zeros(len(rows), bool)
    marks = [np.flatnonzero(timeline.named(p.search)[timeline.name]) for p in (_CAPTURE_BEGIN, _CAPTURE_END)]
    for thread in np.unique(timeline.thread[marks[0]]).tolist():
        begins, ends = (np.sort(timeline.ts[m[timeline.thread[m] == thread]]) for m in marks)
        own = timeline.thread[rows] == thread
        at = timeline.ts[rows[own]]
        inside[own] = np.searchsorted(begins, at) > np.searchsorted(ends, at)
    return inside


def _host(timeline: Timeline, work: Work, launches: Launches) -> Iterator[TraceWarning]:
    if not launches.threads:
        yield TraceWarning(
            code="no-host-events",
            count=0,
            sample="no runtime call launches the GPU events of this file",
            weakens="every idle cause",
        )
        return
    # at the beginning that is what was launched before the recording (`_orphans`)
    first, last = int(work.ts.min()), int(work.end.max())
    known = ~launches.orphan
    missing = last - int(work.end[known].max(initial=first))
    alone = (work.ts > int(work.ts[known].max(initial=first))) & ~launches.left_over
    if missing > 0.1 * (last - first) and alone.sum() > max(_STRAY_SHARE * len(work.ts), 9):
        yield TraceWarning(
            code="sliced-file",
            count=int(alone.sum()),
            sample=f"for the last {missing / 1e6:.1f} ms the file holds the GPU's side only",
            weakens="idle causes there",
        )


def _strays(work: Work) -> Iterator[TraceWarning]:
    """A few events far from all others stretch the span, and with it idle."""
    busy = work.all_busy
    if len(busy.start) < 2:
        return
    gaps = busy.start[1:] - busy.end[:-1]
    widest = int(np.argmax(gaps))
    before = int((work.ts <= busy.start[widest]).sum())
    few = min(before, len(work.ts) - before)
    span = int(busy.end[-1] - busy.start[0])
    if (
        gaps[widest] >= _STRAY_GAP * span
        and few <= max(_STRAY_SHARE * len(work.ts), 1)
        and len(work.ts) >= 100
    ):
        yield TraceWarning(
            code="stray-events",
            count=few,
            sample=f"{few} GPU events lie {gaps[widest] / 1e6:.1f} ms from all others: a gap of"
            f" {gaps[widest] / span:.0%} of the span",
            weakens="the raw budget's span and idle (cut them off with --window)",
        )


def _clocks(work: Work, launches: Launches) -> Iterator[TraceWarning]:
    """No kernel starts before the call that launches it."""
    early = ~launches.orphan & (work.ts < launches.start - _SKEW_NS)
    count = int(early.sum())
    if count > _LEAST * len(early):
        by = int((launches.start - work.ts)[early].max())
        yield TraceWarning(
            code="clock-skew",
            count=count,
            sample=f"{count} GPU events start before the call that launches them, by up to {by / 1000:.1f} us:"
            " the clocks of host and device differ",
            weakens="launch latency, and which of the host's work a gap is charged to",
        )


def _steps(steps: HostSteps) -> Iterator[TraceWarning]:
    if not len(steps):
        yield TraceWarning(
            code="no-steps",
            count=0,
            sample="no ProfilerStep and nothing step-like recurs; mark each step, as `wellfed trace --how` shows",
            weakens="per-step numbers and every gain",
        )
    elif steps.source == RECURRING:
        yield TraceWarning(
            code="steps-by-recurrence",
            count=len(steps),
            sample=f"no step is marked: the {len(steps)} steps are the device's work that recurs, and one may be a"
            " layer or several steps of yours; mark each step, as `wellfed trace --how` shows",
            weakens="where a step begins and what counts as one; gains are ratios, and stay",
        )
    lost = len(steps) - len(unbroken(steps))
    if lost:
        yield TraceWarning(
            code="missing-steps",
            count=lost,
            sample=f"ProfilerSteps are missing in between; {lost} beyond the gap are not replayed",
            weakens="the step's time and every gain: fewer steps",
        )


def _overhead(timeline: Timeline, work: Work, launches: Launches) -> Iterator[TraceWarning]:
    frames = int((timeline.cat == Cat.PYTHON).sum())
    told: list[str] = []
    if frames > _FRAMES_SHARE * max(len(timeline), 1) and launches.threads:
        told.append("recorded with_stack: each Python frame slows the host")
    rows = timeline.cat == Cat.OVERHEAD
    if rows.any() and work.span is not None and launches.threads:
        low, high = work.span
        spent = clip(union(timeline.ts[rows], timeline.ts[rows] + timeline.dur[rows]), low, high).total
        if high > low and spent >= _OVERHEAD_SHARE * (high - low):
            told.append(f"the profiler's own work takes {spent / (high - low):.0%} of the recording")
    if told:
        yield TraceWarning(
            code="profiler-overhead",
            count=frames if frames else int(rows.sum()),
            sample="; ".join(told),
            weakens="host-side idle (modelled and taken off)",
        )
