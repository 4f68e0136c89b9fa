"""Which host call launched which GPU event, and who the launching threads are."""

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.model.timeline import I64, Cat, Ints, Mask, Timeline

NONE = -1
SIDE_SHARE = 0.05
"""A thread that launches less than this of the kernels (a prefetcher's copies, a metric now and then) goes its
own way: what it does is not what the loop's own threads are doing."""


class Launches:
    """For each GPU event of `work`: `row` of its launching call in the timeline (NONE for an orphan), the
    call's `start` and `end`, `left_over` for orphans that precede all launched work of their stream (queued
    before the recording began), `first` where it is the first event of its launch (a graph launch has many),
    and `size` of its launch. `threads` launch anything, `side` of them hardly any kernel; `host` marks the
    timeline rows of the others: the threads whose program the device follows."""

    def __init__(self, timeline: Timeline, work: Work) -> None:
        call = np.flatnonzero(
            ((timeline.cat == Cat.RUNTIME) | (timeline.cat == Cat.DRIVER)) & (timeline.corr >= 0)
        )
        corr = timeline.corr[work.rows]
        self.row = np.full(len(corr), NONE, np.int64)
        if len(call):
            # a runtime call and the driver call under it share an id: the outermost (first) one counts
            ids, first = np.unique(timeline.corr[call], return_index=True)
            at = np.minimum(np.searchsorted(ids, corr), len(ids) - 1)
            hit = (ids[at] == corr) & (corr >= 0)
            self.row[hit] = call[first[at[hit]]]
        found = self.row >= 0
        safe = np.maximum(self.row, 0)
        has_calls = bool(len(timeline.ts))
        self.start: I64 = np.where(found, timeline.ts[safe] if has_calls else 0, 0)
        self.end: I64 = np.where(found, timeline.end[safe] if has_calls else 0, 0)
        self.first = np.zeros(len(corr), bool)
        self.size = np.ones(len(corr), np.int64)
        if found.any():
            _, first_of, inverse, count = np.unique(
                self.row[found], return_index=True, return_inverse=True, return_counts=True
            )
            position = np.flatnonzero(found)
            self.first[position[first_of]] = True
            self.size[position] = count[inverse]
        self.threads: set[int] = (
            set(np.unique(timeline.thread[self.row[found]]).tolist()) if found.any() else set()
        )
        self.left_over = _left_over(timeline.stream[work.rows], work.ts, found)
        self.side = _side(timeline.thread[self.row[found & ~work.copy]], self.threads)
        self.host: Mask = np.isin(timeline.thread, list(self.threads - self.side)) & (
            timeline.cat < Cat.KERNEL
        )

    @property
    def orphan(self) -> Mask:
        return np.asarray(self.row < 0)


def _side(of_kernel: Ints, threads: set[int]) -> set[int]:
    """Threads with less than `SIDE_SHARE` of the kernels; none when no thread launches any."""
    if not len(of_kernel):
        return set()
    found, count = np.unique(of_kernel, return_counts=True)
    return threads - set(found[count >= SIDE_SHARE * count.sum()].tolist())


def _left_over(stream: Ints, ts: I64, found: Mask) -> Mask:
    """Orphans before all launched work of their stream. On a stream without any, those before the first
    launched work of the device: the rest come from somewhere that the file does not show."""
    never = np.iinfo(np.int64).max
    streams, which = np.unique(stream, return_inverse=True)
    first = np.full(len(streams), never, np.int64)
    np.minimum.at(first, which[found], ts[found])
    first[first == never] = first.min(initial=never)
    return np.asarray(~found & (ts < first[which]))
