"""Sets of intervals as two sorted int64 arrays: unions, differences and exact overlaps, all O(n log n)."""

from typing import NamedTuple

import numpy as np

from wellfed.model.timeline import I64


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
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
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
    return np.where(end > start, covered(of, end) - covered(of, start), 0).astype(np.int64)


def clip(of: Intervals, start: int, end: int) -> Intervals:
    """The part of `of` inside [start, end)."""
    low, high = np.maximum(of.start, start), np.minimum(of.end, end)
    keep = high > low
    return Intervals(low[keep], high[keep])


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
    edges = np.unique(np.concatenate([a.start, a.end, b.start, b.end]))
    low, high = edges[:-1], edges[1:]
    keep = (overlap(a, low, high) > 0) & (overlap(b, low, high) > 0)
    return union(low[keep], high[keep])
