"""Which limit each kind of one rank's collectives runs into, beside curves that were measured."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from wellfed.analyze.collectives import CollectiveSeries, CommGroup
from wellfed.model import Ceiling, Curve
from wellfed.model.ranks import Limit
from wellfed.model.timeline import I64
from wellfed.predict.collective import expected_seconds
from wellfed.predict.comm_limit import limit_of

CPU_SIZED = frozenset({"all_reduce", "broadcast", "reduce"})
"""Operations on the CPU whose size is that of the tensors they were given."""
HIDDEN_BELOW = 0.5
"""Share of a call that is exposed below which it counts as running beside computing."""


class CallsLimit(NamedTuple):
    """The calls of one operation and group size on one rank: `exposed_excess_ns` of them is above what their sizes
    need and hidden by nothing, in a median step (0: no steps)."""

    op: str
    ranks: int
    source: str
    limit: Limit
    exposed_excess_ns: int


class CallsLimits(NamedTuple):
    found: tuple[CallsLimit, ...]
    unknown: tuple[str, ...]


def curves_of(ceilings: Iterable[Ceiling]) -> tuple[Curve, ...]:
    """The curves among ceilings that can be trusted, the last of each kind."""
    found: dict[tuple[str, int, bool], Curve] = {}
    for one in ceilings:
        curve = one.curve
        if curve is not None and len(curve.sizes) == len(curve.seconds) > 1 and one.verdict != "implausible":
            found[curve.op, curve.ranks, _on_cpu(curve)] = curve
    return tuple(found.values())


def _on_cpu(curve: Curve) -> bool:
    return curve.backend in ("gloo", "mpi")


def limits_of_series(series: CollectiveSeries, curves: Sequence[Curve]) -> CallsLimits:
    """Limits by operation and group size, the longest first; and why other calls have none. The calls of one rank may
    hold waiting for the others."""
    known = {(c.op, c.ranks, _on_cpu(c)): c for c in curves}
    found: list[tuple[int, CallsLimit]] = []
    unknown: dict[str, None] = {}
    for (op, n, on_cpu), rows in _kinds(series).items():
        name = f"{op or 'a collective'} over {n if n > 1 else 'an unknown number of'} ranks"
        curve = known.get((op, n, on_cpu))
        sized = rows[series.size[rows] > 0]
        if curve is None:
            unknown[f"{name}: no curve was measured"] = None
        elif not len(sized) or (on_cpu and op not in CPU_SIZED):
            unknown[f"{name}: the trace does not tell sizes"] = None
        else:
            found.append((int((series.end - series.start)[sized].sum()), _limit(series, sized, curve)))
    found.sort(key=lambda one: -one[0])
    return CallsLimits(tuple(one for _, one in found), tuple(unknown))


def _kinds(series: CollectiveSeries) -> dict[tuple[str, int, bool], I64]:
    """Rows by operation, group size and whether on the CPU. Sends and receives, and barriers, have no curve."""
    sizes = np.array([_members(group, series.world) for group in series.groups] or [0], np.int64)
    cpu = np.array([group.kind == "cpu" for group in series.groups] or [False])
    found: dict[tuple[str, int, bool], I64] = {}
    if not len(series):
        return found
    keys = np.stack(
        [series.op.astype(np.int64), sizes[series.group], cpu[series.group].astype(np.int64)], axis=1
    )
    kinds, place = np.unique(keys, axis=0, return_inverse=True)
    for k, (op, n, on_cpu) in enumerate(kinds.tolist()):
        if series.ops[op] not in ("send_recv", "barrier"):
            found[series.ops[op], n, bool(on_cpu)] = np.flatnonzero(place.ravel() == k)
    return found


def _members(group: CommGroup, world: int | None) -> int:
    """How many ranks take part; on the CPU the trace tells no group, and all ranks are taken to."""
    told = max(group.size, len(group.ranks))
    return told if told > 0 else (world or 0) if group.kind == "cpu" else 0


def _limit(series: CollectiveSeries, rows: I64, curve: Curve) -> CallsLimit:
    took = (series.end - series.start)[rows]
    size, seconds = series.size[rows].astype(np.float64), np.asarray(took * 1e-9, np.float64)
    exposed = series.exposed[rows]
    beside = (exposed < HIDDEN_BELOW * took) if (exposed >= 0).all() else None
    limit = limit_of(size, seconds, curve, overlapped=beside, waits=True)
    assert limit is not None
    excess = np.maximum(seconds - expected_seconds(curve, size), 0.0) * 1e9
    open_excess = np.minimum(excess, np.maximum(exposed, 0))
    steps = series.step[rows]
    numbers = np.unique(steps[steps >= 0])
    by_step = [float(open_excess[steps == n].sum()) for n in numbers]
    return CallsLimit(
        curve.op, curve.ranks, curve.source, limit, round(float(np.median(by_step))) if by_step else 0
    )
