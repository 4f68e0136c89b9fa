"""Which limit a collective runs into: latency, bandwidth, a late rank, a broken path, computing beside it.

Judged from whatever there is: one rank's calls and the curve of sound ones, the transfers of several ranks, a measured
curve against its link, or the rates of all pairs of GPUs. Where the evidence lets two answers stand, none is given and
`why` says so: a slow path costs in proportion to what a call needs, waiting does not, and that takes calls of different
lengths to see.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wellfed.model.base import replace
from wellfed.model.curve import Curve
from wellfed.model.ranks import Limit, LimitKind
from wellfed.model.timeline import F64, Mask
from wellfed.predict.collective import expected_seconds, half_bandwidth_bytes

PATH_FROM = 1.5
"""Ratio of time to expected time, at all large sizes alike, from which the path is taken to be broken."""
EXCESS_FROM = 0.3
"""Share of the time above the expected from which waiting, not transfer, is the limit."""
SPREAD_FROM = 2.0
"""90th over 10th percentile of that ratio from which it is called uneven."""
IMBALANCE_FROM = 0.5
"""Share of the time that ranks wait in turn from which that, and not the transfer, is what holds them."""
CONTENTION_FROM = 1.3
OFTEN = 0.2
"""Share of calls above what is usual from which it is more than an accident."""
ENOUGH = 3
"""Calls below which nothing is said of a kind of them."""
TELLING_SPAN = 4.0
"""Longest over shortest expected time from which a cost that grows with it differs from one that doesn't."""
GROWS_FROM, FLAT_BELOW = 0.7, 0.3
"""Slope of the excess over the expected time, both as logarithms: 1 is in proportion, 0 is a constant."""
SLOW_PAIR = 0.9
"""Share of the median of all pairs below which one is slow (measure.md 2.5)."""
KINDS_FROM = 0.25
"""Share of slow pairs from which they are another kind of path rather than an exception."""

_WAIT_OR_PATH = "its calls need about the same time, so that waiting and a slow path look alike"


def limit_of(
    sizes: F64, seconds: F64, curve: Curve, *, overlapped: Mask | None = None, waits: bool = False
) -> Limit | None:
    """Which limit calls of one operation run into. None without a call of known size. `waits` says that the times may
    hold waiting for other ranks, as those of one rank do; else they are transfers.

    - contention: those that run beside computing (`overlapped`) take longer, the others do not.
    - path: at all sizes above half bandwidth they take evenly too long (>= 1.5 times the curve); where they may have
      waited, only if the excess grows with what a call needs.
    - straggler: much time above the curve, unevenly, or the same for all sizes: waiting for a late rank.
    - latency, bandwidth: about as the curve says, and most of the time goes to calls below, or above, half bandwidth."""
    sizes, seconds = np.asarray(sizes, float), np.asarray(seconds, float)
    good = (sizes > 0) & (seconds > 0) & np.isfinite(seconds)
    if not good.any():
        return None
    s, t = sizes[good], seconds[good]
    due = expected_seconds(curve, s)
    ratio = t / due
    half = half_bandwidth_bytes(curve)
    low, middle, high = (float(q) for q in np.quantile(ratio, (0.1, 0.5, 0.9)))
    excess = float(np.maximum(t - due, 0.0).sum() / t.sum())
    beside = np.asarray(overlapped, bool)[good] if overlapped is not None else np.zeros(len(s), bool)
    often = float((t >= PATH_FROM * np.maximum(due, _usual_most(curve, s))).mean()) >= OFTEN
    kind, why = _kind(s, t, due, half, beside, (low, middle, high), excess if often else 0.0, waits)
    return Limit(
        kind=kind,
        n=len(s),
        ratio=(low, middle, high),
        excess_share=excess,
        median_bytes=float(np.median(s)),
        half_bytes=half,
        why=why,
    )


def _kind(
    s: F64, t: F64, due: F64, half: float, beside: Mask, spread: tuple[float, float, float], excess: float, waits: bool
) -> tuple[LimitKind, str | None]:  # fmt: skip
    low, middle, high = spread
    ratio = t / due
    both = min(beside.sum(), (~beside).sum()) >= ENOUGH
    if both and _contended(ratio[beside], ratio[~beside]):
        return "contention", None
    growth = _growth(s, t - due, due)
    large = s >= half
    if large.sum() >= ENOUGH and _evenly_slow(s[large], ratio[large]):
        if not waits or (growth is not None and growth >= GROWS_FROM):
            return "path", None
        if growth is None:
            return "unclear", _WAIT_OR_PATH
    if excess >= EXCESS_FROM and len(s) >= ENOUGH:
        uneven = high >= SPREAD_FROM * low and (low < PATH_FROM or high >= SPREAD_FROM**2 * low)
        if uneven or (growth is not None and growth <= FLAT_BELOW):
            return "straggler", None
        return (
            "unclear",
            _WAIT_OR_PATH if growth is None else "slow at all sizes, and neither evenly nor by a constant",
        )
    if middle < PATH_FROM:
        return ("latency" if float(t[~large].sum()) > float(t[large].sum()) else "bandwidth"), None
    return "unclear", f"{len(s)} calls are too few"


def _usual_most(curve: Curve, sizes: F64) -> F64:
    """What nine of ten calls stayed below when the curve was measured; the curve itself where that is not known. On a
    noisy machine sound calls scatter too."""
    if len(curve.p90) != len(curve.sizes):
        return expected_seconds(curve, sizes)
    return expected_seconds(replace(curve, seconds=curve.p90), sizes)


def _growth(sizes: F64, excess: F64, due: F64) -> float | None:
    """How the excess goes with the expected time: the slope of their logarithms, over the medians of each size. None
    where the sizes need about the same time, or hardly any is above the curve."""
    points = np.unique(sizes)
    x = np.array([float(np.median(due[sizes == p])) for p in points])
    y = np.array([float(np.median(excess[sizes == p])) for p in points])
    if len(x) < 2 or x.max() < TELLING_SPAN * x.min():
        return None
    above = y > 0.05 * x
    if above.sum() < 2 or x[above].max() < TELLING_SPAN * x[above].min():
        return None
    a, b = np.log(x[above]), np.log(y[above])
    return float(np.polyfit(a, b, 1)[0])


def _contended(beside: F64, alone: F64) -> bool:
    usual = float(np.median(alone))
    most = float(np.quantile(beside, 0.25)) > usual  # not a few slow ones among them
    return usual < CONTENTION_FROM and float(np.median(beside)) >= CONTENTION_FROM * usual and most


def _evenly_slow(sizes: F64, ratio: F64) -> bool:
    low, high = np.quantile(ratio, (0.1, 0.9))
    by_size = [float(np.median(ratio[sizes == s])) for s in np.unique(sizes)]
    return bool(min(by_size) >= PATH_FROM and low >= PATH_FROM and high < SPREAD_FROM * low)


# --- several ranks ---------------------------------------------------------------------------------------


class RanksLimit(NamedTuple):
    """What the calls of all ranks say: the limit, the rank that the others wait for (its place in the rows; None:
    nobody), how often it comes last, and the share of the time that is waiting."""

    limit: Limit
    last: int | None
    last_share: float
    wait_share: float


def limit_of_ranks(sizes: F64, seconds: F64, curve: Curve, *, overlapped: Mask | None = None) -> RanksLimit | None:  # fmt: skip
    """The limit of calls that all ranks timed: `seconds` has a row a rank and a column a call. The transfer of a call is
    its shortest time, the rest of each rank's is waiting, and the rank that waits least came last (measure.md 7.4): a
    straggler when waiting is above 30 % of the time and the same rank is last in more than half of the calls. None
    without a call of known size, or with one rank."""
    seconds = np.asarray(seconds, float)
    if seconds.ndim != 2 or len(seconds) < 2:
        return None
    good = (np.asarray(sizes, float) > 0) & (seconds > 0).all(axis=0)
    if not good.any():
        return None
    s, table = np.asarray(sizes, float)[good], seconds[:, good]
    beside = None if overlapped is None else np.asarray(overlapped, bool)[good]
    transfer = table.min(axis=0)
    limit = limit_of(s, transfer, curve, overlapped=beside)
    assert limit is not None
    wait = float((table - transfer).sum() / table.sum())
    counts = np.bincount(table.argmin(axis=0), minlength=len(table))
    last, share = int(counts.argmax()), float(counts.max() / table.shape[1])
    # two ranks that keep step come last in half of the calls each
    named = wait > EXCESS_FROM and share > 0.5 + 1.0 / table.shape[1] ** 0.5 and table.shape[1] >= 2 * ENOUGH
    if named:
        limit = replace(limit, kind="straggler", why=None)
    elif limit.kind == "straggler":  # of transfers: no rank is late, they vary
        limit = replace(limit, kind="unclear", why="transfers take unequally long, and no rank comes late")
    if wait > IMBALANCE_FROM and not named:
        limit = replace(limit, kind="unclear", why="ranks wait, for another one from call to call")
    return RanksLimit(limit, last if named else None, share, wait)


# --- measured curves alone -------------------------------------------------------------------------------


def limit_of_curve(curve: Curve, link: Curve) -> Limit | None:
    """What a measured curve says beside the one its link should give at least (`link_curve`): `path` when all large
    sizes take evenly too long, `bandwidth` when they do not. `straggler` where the rank that waits least transfers well
    and the last one does not. None when they are of different operations or groups, or no size is large."""
    if (curve.op, curve.ranks) != (link.op, link.ranks):
        return None
    x = np.asarray(curve.sizes, float)
    large = x >= half_bandwidth_bytes(link)
    if large.sum() < 2:
        return None
    longest = np.asarray(curve.seconds, float)
    transfer = np.asarray(curve.transfer, float) if len(curve.transfer) == len(x) else longest
    repeat = ENOUGH  # a point of a curve stands for many calls
    limit = limit_of(np.repeat(x[large], repeat), np.repeat(transfer[large], repeat), link)
    assert limit is not None
    waiting = float((longest - transfer)[large].sum() / longest[large].sum())
    if limit.kind != "path" and waiting > EXCESS_FROM:
        return replace(limit, kind="straggler", excess_share=waiting)
    return limit


class Pairs(NamedTuple):
    """What the rates of all pairs say. `slow_gpus` are slow to all others, `slow_pairs` between two that are fine to
    others; `kinds` when so many are slow that there are two kinds of path. `why`: not judged."""

    median: float
    slow_gpus: tuple[int, ...] = ()
    slow_pairs: tuple[tuple[int, int, float], ...] = ()
    kinds: bool = False
    why: str | None = None


def slow_pairs(matrix: Sequence[Sequence[float | None]]) -> Pairs:
    """Slow pairs and GPUs in a matrix of rates, row to column, None where nothing was measured."""
    table = np.array([[np.nan if c is None else float(c) for c in row] for row in matrix], float)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) < 3:
        return Pairs(0.0, why="fewer than three GPUs have no others to be compared with")
    np.fill_diagonal(table, np.nan)
    known = table[np.isfinite(table)]
    if len(known) < len(table):
        return Pairs(0.0, why="too few pairs were measured")
    median = float(np.median(known))
    slow = np.isfinite(table) & (table < SLOW_PAIR * median)
    there = np.isfinite(table).sum(axis=0) + np.isfinite(table).sum(axis=1)
    bad = slow.sum(axis=0) + slow.sum(axis=1)
    gpus = tuple(int(k) for k in np.flatnonzero((there > 0) & (bad >= 0.9 * there)))
    rest = slow.copy()
    rest[list(gpus), :] = False
    rest[:, list(gpus)] = False
    if len(gpus) * 2 >= len(table) or rest.sum() > KINDS_FROM * len(known):
        return Pairs(median, kinds=True)
    pairs = tuple((int(i), int(j), float(table[i, j])) for i, j in zip(*np.nonzero(rest), strict=True))
    return Pairs(median, gpus, pairs)
