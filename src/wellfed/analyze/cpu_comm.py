"""Collectives that run on the CPU (Gloo, MPI): no kernel of theirs is on the device, only the copies around them.

PyTorch runs them on threads of their own and opens a range there from the moment a thread takes one up to its end
(`gloo:all_reduce`): like a collective's kernel, it holds the waiting for the other ranks and the transfer. The
loop's thread waits for the end of that range in silence, and while it does the device may run dry.
"""

import math
import re

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.collectives import NONE, CollectiveSeries, CommGroup, exposed_parts
from wellfed.analyze.intervals import EMPTY, Intervals, complement, intersect, overlap, subtract, union
from wellfed.analyze.launches import Launches
from wellfed.analyze.shapes import parse
from wellfed.model.timeline import I64, Cat, Mask, Timeline
from wellfed.predict.collective import operation

_RANGE = re.compile(r"^(gloo|mpi):\w", re.ASCII)
_ISSUE = re.compile(r"^c10d::", re.ASCII)
HAND_OVER_NS = 1_000_000
"""Within this long after a collective's end the thread that waited for it goes on: as for a batch from a loader's
thread (`wellfed.analyze.causes`)."""
WAIT_FROM_NS = 50_000
"""A shorter silence is dispatch, whatever ends in it (`wellfed.analyze.replay`)."""


def cpu_calls(timeline: Timeline) -> Mask:
    """The rows that are collectives on the CPU."""
    named = timeline.named(_RANGE.match)
    return np.asarray(named[timeline.name] & ((timeline.cat == Cat.ANNOTATION) | (timeline.cat == Cat.OP)))


def waits_for_cpu(timeline: Timeline, launches: Launches) -> Intervals:
    """Where the launching threads did nothing but wait for a collective on the CPU: the part of a silence, ended by
    the end of one, in which one ran. Where they go on dispatching beside it, nothing waits."""
    rows = np.flatnonzero(cpu_calls(timeline))
    if not len(rows) or not launches.host.any():
        return EMPTY
    host = launches.host
    in_call = host & ((timeline.cat == Cat.RUNTIME) | (timeline.cat == Cat.DRIVER))
    at_work = in_call | (host & (timeline.cat == Cat.OP))
    at_work[rows] = False
    marks = np.unique(np.concatenate([timeline.ts[at_work], timeline.end[at_work]]))
    wide = np.diff(marks) >= WAIT_FROM_NS
    start, end = marks[:-1][wide], marks[1:][wide]
    done = np.sort(timeline.end[rows])
    last = done[np.maximum(np.searchsorted(done, end, side="right") - 1, 0)]
    waited = (last > start) & (last <= end) & (end - last <= HAND_OVER_NS)
    silent = Intervals(start[waited], end[waited])
    silent = subtract(silent, union(timeline.ts[in_call], timeline.end[in_call]))
    return intersect(silent, union(timeline.ts[rows], timeline.end[rows]))


def longest_waits(timeline: Timeline, waits: Intervals, top: int = 3) -> tuple[tuple[int, int, str], ...]:
    """The longest waits of the host: start, length (ns) and which collective ended each."""
    rows = np.flatnonzero(cpu_calls(timeline))
    if not len(rows):
        return ()
    rows = rows[np.argsort(timeline.end[rows], kind="stable")]
    length = waits.end - waits.start
    found = []
    for i in np.argsort(-length, kind="stable")[:top].tolist():
        at = int(np.searchsorted(timeline.end[rows], waits.end[i], side="left"))
        row = int(rows[min(at, len(rows) - 1)])
        size = _bytes(timeline, int(timeline.shape[row]))
        name = timeline.names[int(timeline.name[row])]
        found.append(
            (int(waits.start[i]), int(length[i]), name + (f", {size / 1e6:.1f} MB" if size > 0 else ""))
        )
    return tuple(found)


def issued(timeline: Timeline, rows: I64) -> Mask:
    """Which of these calls lie in an operator that issues a collective (`c10d::allreduce_`): Gloo copies a tensor to
    the host there, and from it."""
    named = timeline.named(_ISSUE.match)
    ops = np.flatnonzero(named[timeline.name] & (timeline.cat == Cat.OP))
    inside = np.zeros(len(rows), bool)
    for thread in np.unique(timeline.thread[ops]).tolist():
        own = ops[timeline.thread[ops] == thread]
        own = own[np.argsort(timeline.ts[own], kind="stable")]
        at = np.searchsorted(timeline.ts[own], timeline.ts[rows], side="right") - 1
        holder = own[np.maximum(at, 0)]
        inside |= (at >= 0) & (timeline.thread[rows] == thread) & (timeline.end[holder] >= timeline.end[rows])
    return inside


def idle_in(waits: Intervals, work: Work, windows: list[tuple[int, int]]) -> list[int]:
    """ns of each window in which the device was idle and the host waited for a collective on the CPU."""
    if not len(waits.start):
        return [0] * len(windows)
    found = []
    for start, end in windows:
        gaps = complement(work.busy(), start, end)
        found.append(int(overlap(waits, gaps.start, gaps.end).sum()))
    return found


def cpu_series(
    timeline: Timeline, computing: Intervals, step: I64, rank: int, base_ns: int
) -> CollectiveSeries:
    """The collectives on the CPU in order of start. They carry neither group nor number: all of one library are one
    group. `step` is the number of the step of each, `computing` when the device computed."""
    rows = np.flatnonzero(cpu_calls(timeline))
    order = np.lexsort((timeline.end[rows], timeline.ts[rows]))
    rows, step = rows[order], step[order]
    start, end = timeline.ts[rows], timeline.end[rows]
    groups: dict[CommGroup, int] = {}
    ops: dict[str, int] = {}
    known: dict[tuple[int, int], tuple[int, int, int]] = {}
    table = np.zeros((len(rows), 3), np.int64)
    for k, key in enumerate(zip(timeline.name[rows].tolist(), timeline.shape[rows].tolist(), strict=True)):
        if key not in known:
            name = timeline.names[key[0]]
            op = operation(name) or ""
            group = CommGroup(kind="cpu", name=name.split(":", 1)[0])
            known[key] = (
                groups.setdefault(group, len(groups)),
                ops.setdefault(op, len(ops)),
                _bytes(timeline, key[1]),
            )
        table[k] = known[key]
    return CollectiveSeries(
        rank=rank,
        world=timeline.world,
        source=timeline.source,
        groups=tuple(groups),
        ops=tuple(ops),
        group=table[:, 0].astype(np.int32),
        op=table[:, 1].astype(np.int16),
        seq=np.full(len(rows), NONE, np.int64),
        start=start + base_ns,
        end=end + base_ns,
        size=table[:, 2].copy(),
        step=step,
        exposed=exposed_parts(computing, start, end),
    )


def _bytes(timeline: Timeline, shape: int) -> int:
    """Bytes of the tensors that a call was given, -1 when not told."""
    told = parse("", timeline.shapes[shape]) if shape >= 0 else None
    if told is None:
        return -1
    sizes = [told.tensor(at) for at in range(len(told.dims))]
    each = [told.element_bytes(at) for at in range(len(told.dims))]
    found = [math.prod(n) * b for n, b in zip(sizes, each, strict=True) if n and b]
    return round(sum(found)) if found else -1
