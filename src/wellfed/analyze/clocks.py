"""Clocks of many ranks brought into line by what they did together.

A collective that no rank leaves before all have come ends on all of them at nearly the same time. So the
differences between its ends are differences between clocks. Ranks that never meet are aligned through others:
first along the strongest ties, then all at once, alternating between when a call really ended (median over its
ranks) and how far each clock is off (a line through the rest: an offset and a drift).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wellfed.analyze.matching import Matched, resistant_line
from wellfed.model.ranks import Clock
from wellfed.model.timeline import F64, I64
from wellfed.predict.collective import ENDS_TOGETHER

_ROUNDS = 12
_PER_GROUP = 512
"""Calls of a group that are looked at, evenly spread."""


class _Ties(NamedTuple):
    """Ends in ns since `zero`, [call, rank of the group], and which ranks these are."""

    ranks: tuple[int, ...]
    end: F64


def align(matched: Sequence[Matched], ranks: Sequence[int]) -> dict[int, Clock]:
    """The clock of every rank. Groups without a call that ends together serve only where nothing better ties
    a rank to the others."""
    zero = min((int(m.end.min()) for m in matched if len(m.size)), default=0)
    strong = [t for m in matched if (t := _ties(m, zero, strict=True)) is not None]
    weak = [t for m in matched if (t := _ties(m, zero, strict=False)) is not None]
    line: dict[int, tuple[float, float]] = {}
    reference: dict[int, int] = {}
    for rank in sorted(ranks):
        if rank in line:
            continue
        line[rank], reference[rank] = (0.0, 0.0), rank
        for ties in (strong, strong + weak):
            _spread(ties, line, reference, rank)
    used = _used(strong, weak)
    residual = _refine(used, line, reference)
    clocks = {}
    for rank in ranks:
        value, slope = line[rank]
        seen = [t.end[:, t.ranks.index(rank)] for t in used if rank in t.ranks]
        middle = float(np.median(np.concatenate(seen))) if seen else 0.0
        clocks[rank] = Clock(
            rank=rank,
            reference=reference[rank],
            offset_ns=round(value + slope * middle),
            drift_ppm=slope * 1e6,
            at_ns=zero + round(middle),
            residual_ns=residual.get(rank, 0.0),
            calls=sum(len(s) for s in seen),
        )
    return clocks


def on_reference(clock: Clock, times: I64) -> I64:
    """Times of the rank's own clock as the reference's clock would show them."""
    drift = np.rint((times - clock.at_ns).astype(np.float64) * (clock.drift_ppm * 1e-6)).astype(np.int64)
    return np.asarray(times - clock.offset_ns - drift)


def _ties(m: Matched, zero: int, *, strict: bool) -> _Ties | None:
    fit = np.array([op in ENDS_TOGETHER for op in m.op], bool)
    rows = np.flatnonzero(fit if strict else ~fit)
    if not len(rows):
        return None
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _PER_GROUP)).astype(int))]
    return _Ties(m.ranks, (m.end[rows] - zero).astype(np.float64))


def _used(strong: list[_Ties], weak: list[_Ties]) -> list[_Ties]:
    """The strong ties, and those weak ones that hold a rank which no strong one does."""
    held = {r for t in strong for r in t.ranks}
    return strong + [t for t in weak if not set(t.ranks) <= held]


def _spread(
    ties: list[_Ties], line: dict[int, tuple[float, float]], reference: dict[int, int], start: int
) -> None:
    """From the ranks of a reference to all that share a call with them, over the groups with most calls
    first."""
    by_rank: dict[int, list[_Ties]] = {}
    for t in sorted(ties, key=lambda t: -len(t.end)):
        for r in t.ranks:
            by_rank.setdefault(r, []).append(t)
    border = [r for r in line if reference[r] == start]
    while border:
        known = border.pop(0)
        for t in by_rank.get(known, ()):
            here = t.end[:, t.ranks.index(known)]
            value, slope = line[known]
            true_end = here - value - slope * here
            for k, r in enumerate(t.ranks):
                if r not in line:
                    line[r] = resistant_line(t.end[:, k], t.end[:, k] - true_end)
                    reference[r] = start
                    border.append(r)


def _refine(
    ties: list[_Ties], line: dict[int, tuple[float, float]], reference: dict[int, int]
) -> dict[int, float]:
    """Alternates between true ends and clocks; returns the typical distance left of each rank."""
    rest: dict[int, list[F64]] = {}
    for _ in range(_ROUNDS):
        rest = {}
        seen: dict[int, list[F64]] = {}
        for t in ties:
            off = np.array([line[r][0] for r in t.ranks]) + np.array([line[r][1] for r in t.ranks]) * t.end
            right = t.end - off
            left = right - np.median(right, axis=1, keepdims=True)
            for k, r in enumerate(t.ranks):
                rest.setdefault(r, []).append(left[:, k])
                seen.setdefault(r, []).append(t.end[:, k])
        step = {r: resistant_line(np.concatenate(seen[r]), np.concatenate(rest[r])) for r in sorted(rest)}
        fixed = {r: step.get(reference[r], (0.0, 0.0)) for r in line}
        change = {r: (v - fixed[r][0], s - fixed[r][1]) for r, (v, s) in step.items()}
        for r, (v, s) in change.items():
            line[r] = (line[r][0] + v, line[r][1] + s)
        if max((abs(v) for v, _ in change.values()), default=0.0) < 1.0:
            break
    return {r: float(np.median(np.abs(np.concatenate(parts)))) for r, parts in rest.items()}
