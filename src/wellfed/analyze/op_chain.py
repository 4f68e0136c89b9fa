"""Which operators the host was in when it launched each GPU event: outermost to innermost."""

import numpy as np
import numpy.typing as npt

from wellfed.analyze.budget import Work
from wellfed.analyze.groups import by_value
from wellfed.analyze.launches import Launches
from wellfed.model.timeline import I64, Cat, Mask, Timeline

NO_OP = -1
DEEPEST = 64


class OpChain:
    """`rows[d, e]` is the timeline's row of the operator or annotation open at depth d of the launching thread when
    event e of `work` was launched (NO_OP: none), outermost first; the deepest few are kept where nesting goes
    further than `DEEPEST`."""

    def __init__(self, timeline: Timeline, work: Work, launches: Launches) -> None:
        self.timeline = timeline
        has = launches.row >= 0
        of_call = np.where(has, timeline.thread[np.maximum(launches.row, 0)], -1)
        is_range = ((timeline.cat == Cat.OP) | (timeline.cat == Cat.ANNOTATION)) & (timeline.dur > 0)
        found: list[tuple[I64, npt.NDArray[np.int64]]] = []
        depth = 0
        calls, ranges, end = by_value(of_call), by_value(timeline.thread, is_range), timeline.end
        for thread in sorted(launches.threads & calls.keys() & ranges.keys()):
            mine, rows = calls[thread], ranges[thread]
            chain = _open_at(timeline.ts[rows], end[rows], launches.start[mine])
            found.append((mine, np.where(chain >= 0, rows[chain], NO_OP)))
            depth = max(depth, len(chain))
        self.rows = np.full((depth, len(work.ts)), NO_OP, np.int64)
        for mine, chain in found:
            self.rows[: len(chain), mine] = chain

    def innermost(self, wanted: Mask) -> I64:
        """For each event the innermost row among those whose name is `wanted` (by name id); NO_OP without one."""
        return self._last(self.rows, wanted)

    def outermost(self, wanted: Mask) -> I64:
        """As `innermost`, the outermost one."""
        return self._last(self.rows[::-1], wanted)

    def _last(self, levels: npt.NDArray[np.int64], wanted: Mask) -> I64:
        """For each event the last of the levels' rows whose name is `wanted`."""
        out = np.full(levels.shape[1], NO_OP, np.int64)
        for rows in levels:
            hit = (rows >= 0) & wanted[self.timeline.name[np.maximum(rows, 0)]]
            out[hit] = rows[hit]
        return out


def _open_at(start: I64, end: I64, at: I64) -> npt.NDArray[np.int64]:
    """For each time the intervals open at it, [depth, time], as positions (-1: none). Intervals nest; those that
    cross by a rounded microsecond are taken as nested."""
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    ends = np.sort(end)
    depth = np.arange(len(start)) - np.searchsorted(ends, start, side="right")
    np.maximum(depth, 0, out=depth)
    begun = np.searchsorted(start, at, side="right")
    deepest = min(int(depth.max()) + 1, DEEPEST)
    chain = np.full((deepest, len(at)), -1, np.int64)
    for level in range(deepest):
        here = np.flatnonzero(depth == level)
        last = np.searchsorted(here, begun) - 1
        candidate = here[np.maximum(last, 0)]
        open_ = (last >= 0) & (end[candidate] > at)
        chain[level, open_] = order[candidate[open_]]
    return chain
