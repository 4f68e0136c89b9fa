"""Silence of the launching threads: long stretches in which no operator and no call starts or ends on them."""

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.intervals import EMPTY, Intervals, subtract, union
from wellfed.analyze.launches import Launches
from wellfed.model.timeline import Cat, Mask, Timeline

SILENCE_NS = 2_000_000
"""No event at all on the launching threads for this long is a stall, not dispatch: in the recorded loops of
docs/validation/trace.md the longest stretch of mere dispatch (an optimizer's Python) was 1.3 ms."""
_NESTED = 32
"""Operators looked back over for the one that a silence lies in."""


def silences(timeline: Timeline, host: Mask) -> Intervals:
    """Stretches with no operator or call starting or ending on the launching threads, from the first event
    of any kind on them to the last. Python frames and annotations do not break the silence: they are opened
    by the profiler, not by work. Inside one call the host waits in it: that is not silence. Inside one
    operator that calls nothing it is: the CPU works there, and the device gets nothing to do."""
    if not host.any():
        return EMPTY
    in_call = host & ((timeline.cat == Cat.RUNTIME) | (timeline.cat == Cat.DRIVER))
    working = in_call | (host & (timeline.cat == Cat.OP))
    outer = np.array([timeline.ts[host].min(), timeline.end[host].max()])
    marks = np.sort(np.concatenate([timeline.ts[working], timeline.end[working], outer]))
    wide = np.diff(marks) >= SILENCE_NS
    silent = Intervals(marks[:-1][wide], marks[1:][wide])
    return subtract(silent, union(timeline.ts[in_call], timeline.end[in_call]))


def planned(timeline: Timeline, work: Work, launches: Launches, silent: Intervals) -> Intervals:
    """The silences inside one of the library's own operators that ends in a kernel: before the first kernel of a new
    shape cuDNN and cuBLAS choose, build or load one. Nothing of the loop's Python runs there, and no collector: an
    operator that works on the host launches no kernel, and a copy is not one."""
    ops = np.flatnonzero(launches.host & (timeline.cat == Cat.OP))
    rows = launches.row[launches.first & work.compute & (launches.row >= 0)]
    if not len(silent.start) or not len(ops) or not len(rows):
        return EMPTY
    rows = rows[np.argsort(timeline.ts[rows], kind="stable")]
    ops = ops[np.argsort(timeline.ts[ops], kind="stable")]
    begins, ends = timeline.ts[ops], timeline.end[ops]
    library = timeline.named(lambda name: name.startswith("aten::"))[timeline.name[ops]]
    last = np.searchsorted(begins, silent.start, side="right") - 1
    owner = np.full(len(last), -1)
    for back in range(_NESTED):  # the innermost: the latest to begin that lasts beyond the silence
        at = np.maximum(last - back, 0)
        around = (owner < 0) & (last - back >= 0) & (ends[at] >= silent.end)
        owner[around] = at[around]
    op = np.maximum(owner, 0)
    launched = timeline.ts[rows]
    following = np.minimum(np.searchsorted(launched, silent.end), len(launched) - 1)
    ended = (launched[following] >= silent.end) & (launched[following] <= ends[op])
    ended &= timeline.thread[rows[following]] == timeline.thread[ops[op]]
    found = (owner >= 0) & library[op] & ended
    return Intervals(silent.start[found], silent.end[found])
