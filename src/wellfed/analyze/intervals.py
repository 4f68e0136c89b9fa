"""Sets of intervals as two sorted int64 arrays: unions, differences and exact overlaps, all O(n log n)."""

from typing import NamedTuple

import numpy as np

from wellfed.model.timeline import I64, Mask


class Intervals(NamedTuple):
    """Disjoint, sorted, non-empty intervals [start, end) in ns."""

    start: I64
    end: I64

    @property
    def total(self) -> int:
        return int((self.end - self.start).sum())


EMPTY = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))


def union(start: I64, end: I64) -> Intervals:
    """The union of arbitrary intervals (empty ones are dropped)."""
    keep = end > start
    start, end = start[keep], end[keep]
    if not len(start):
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    fresh = np.empty(len(start), bool)
    fresh[0] = True
    fresh[1:] = start[1:] > reach[:-1]
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(start) - 1)
    return Intervals(start[fresh], reach[last])


def covered(of: Intervals, at: I64) -> I64:
    """How many ns of `of` lie before each time in `at` (exact, vectorised)."""
    if not len(of.start):
        return np.zeros(len(at), np.int64)
    length = of.end - of.start
    before = np.concatenate([[0], np.cumsum(length)])
    index = np.searchsorted(of.start, at, side="right") - 1
    inside = np.minimum(at - of.start[np.maximum(index, 0)], length[np.maximum(index, 0)])
    return np.where(index >= 0, before[np.maximum(index, 0)] + inside, 0).astype(np.int64)


def overlap(of: Intervals, start: I64, end: I64) -> I64:
    """ns of `of` inside each query interval; 0 where the query is empty."""
    if not len(start):
        return np.zeros(0, np.int64)
    near = _near(of, int(start.min()), int(end.max()))
    return np.where(end > start, covered(near, end) - covered(near, start), 0).astype(np.int64)


def clip(of: Intervals, start: int, end: int) -> Intervals:
    """The part of `of` inside [start, end)."""
    near = _near(of, start, end)
    low, high = np.maximum(near.start, start), np.minimum(near.end, end)
    keep = high > low
    return Intervals(low[keep], high[keep])


def _near(of: Intervals, start: int, end: int) -> Intervals:
    """Those that touch [start, end), without looking at the others."""
    first, last = np.searchsorted(of.end, start, side="right"), np.searchsorted(of.start, end)
    return Intervals(of.start[first:last], of.end[first:last])


def complement(of: Intervals, start: int, end: int) -> Intervals:
    """The part of [start, end) outside `of`."""
    inside = clip(of, start, end)
    low = np.concatenate([[start], inside.end]).astype(np.int64)
    high = np.concatenate([inside.start, [end]]).astype(np.int64)
    keep = high > low
    return Intervals(low[keep], high[keep])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The part of `a` outside `b`."""
    if not len(a.start) or not len(b.start):
        return a
    return intersect(a, complement(b, int(a.start[0]), int(a.end.max())))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The part that lies in both."""
    if not len(a.start) or not len(b.start):
        return EMPTY
    start, end = max(int(a.start[0]), int(b.start[0])), min(int(a.end[-1]), int(b.end[-1]))
    a, b = _near(a, start, end), _near(b, start, end)
    edges = np.concatenate([a.start, a.end, b.start, b.end])
    edges.sort(kind="stable")  # four runs in order: merged
    low, high = edges[:-1], edges[1:]
    keep = (high > low) & _holds(a, low) & _holds(b, low)
    return union(low[keep], high[keep])


def _holds(of: Intervals, at: I64) -> Mask:
    """Whether each time lies in one of the intervals."""
    begun = np.searchsorted(of.start, at, side="right")
    return np.asarray(begun > np.searchsorted(of.end, at, side="right"))
