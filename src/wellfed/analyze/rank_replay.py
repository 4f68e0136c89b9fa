"""What if all ranks were equally fast: the matched collectives replayed with other work between them.

A rank is a row of calls. Between the end of what calls block and the next call lies its *own* work; a call
ends, for each rank, its transfer after the last rank has come. So from own work and transfers the whole run
follows, and from it, in the manner of the OSDI 2025 study of stragglers (`wellfed.analyze.straggler`), the
slowdown `S = T / T_equal`, each rank's part of it, and what is left without one rank's excess. Equal means: the
mean own work of all ranks at the same place of the same step, among ranks with the same row of calls. Unlike
in that study steps are not averaged: what makes a step long on all ranks is no straggler. What of a call was
hidden under computing stays able to hide as much. Transfers stay as measured, but for `transfers`.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wellfed.analyze.matching import Matched, Times
from wellfed.model.curve import Curve
from wellfed.model.ranks import RanksWhatIf
from wellfed.model.timeline import F64, I64, Mask
from wellfed.predict.collective import expected_seconds

MAX_ROWS = 30_000
"""Calls (each on all its ranks) that are replayed; of more, the first in time."""
MAX_RANKS_ALONE = 64
MAX_RANKS_CURED = 16
OUT_OF_ORDER_LIMIT = 0.05
MIN_FREE = 2
"""Degrees of freedom from which the scatter of a place over the steps is known."""

Shares = npt.NDArray[np.float64]


class _Items(NamedTuple):
    """One row for each call and rank, by rank and order; `at` finds them from a matched group: [call, rank].
    Sending and receiving are different operations here. `done` is from when on a rank goes on: the end of what it is
    blocked for, or the call's start where it begins the next one before that (`open`: of several at a time, in streams
    or threads, the last to end is what it waits for). `fixed` work has no like: before a rank's first call,
    and across a gap."""

    rank: npt.NDArray[np.intp]
    start: F64
    own: F64
    blocked: F64
    done: F64
    open: Mask
    duration: F64
    first: Mask
    fixed: Mask
    step: I64
    op: I64
    size: I64
    members: I64
    at: list[npt.NDArray[np.intp]]


def what_if(
    matched: Sequence[Matched],
    starts: Sequence[Times],
    ranks: Sequence[int],
    *,
    thinned: int = 1,
    saves: Mapping[str, Mapping[int, float]] | None = None,
    curves: Mapping[tuple[str, int], Curve] | None = None,
) -> RanksWhatIf:
    """The what-if over matched calls; `starts` are their starts on the reference's clock. Where calls were
    thinned out, the work across a gap stays as measured. `saves` are cures: which share of its own work each rank
    would be spared. `curves` say by operation and size of the group how long a transfer should take."""
    calls = [(m, s) for m, s in zip(matched, starts, strict=True) if m.by != "end" and len(m.size)]
    if not calls:
        return RanksWhatIf(refused="no call is matched on all its ranks")
    calls = _first(calls)
    items = _items(calls, {r: k for k, r in enumerate(ranks)}, gaps=thinned > 1)
    equal, others, compared, place = _equal_work(items)
    own = np.bincount(items.rank, items.own * ~items.first, len(ranks))
    excess, score, has_peers = _excess(items, equal, others, compared, place, len(ranks))

    order = sorted(
        ((int(s[row].max()), n, row) for n, (m, s) in enumerate(calls) for row in range(len(m.size))),
    )
    late = _out_of_order(items, order)
    if late > OUT_OF_ORDER_LIMIT * len(items.rank):
        return RanksWhatIf(refused="ranks run the same calls in different order")
    here = np.unique(items.rank)
    by_excess = here[np.argsort(-excess[here], kind="stable")]
    alone = here if len(here) <= MAX_RANKS_ALONE else by_excess[:MAX_RANKS_CURED]
    cured = by_excess[:MAX_RANKS_CURED]
    n_alone, n_cured = len(alone), len(cured)
    saves = saves or {}
    last = 3 + n_alone + n_cured
    scenarios = last + len(saves) + 2
    drop, peers, less = (np.zeros((scenarios, len(ranks))) for _ in range(3))
    medians, due, gone = np.zeros(scenarios), np.zeros(scenarios), np.zeros(scenarios)
    for k, cure in enumerate(saves.values()):
        less[last + k] = [min(max(cure.get(r, 0.0), 0.0), 1.0) for r in ranks]
    gone[-2], due[-1] = 1.0, 1.0
    expected = _due(items, calls, curves or {})
    drop[1 : 3 + n_alone] = 1.0
    drop[3 + np.arange(n_alone), alone] = 0.0
    medians[2] = 1.0
    peers[3 + n_alone + np.arange(n_cured), cured] = 1.0
    changes = [
        (equal - items.own, drop),
        (others - items.own, peers),
        (-np.where(items.fixed, 0.0, np.maximum(items.own, 0.0)), less),
    ]
    end, early = _replay(items, order, changes, medians, expected, due, gone)
    loops = (
        end - early
    )  # a cure shows from the second step on: the work before a rank's first call is not here
    total, same = float(end[0]), float(end[1])
    loss = total - same
    left = dict(zip((ranks[r] for r in cured.tolist()), end[3 + n_alone : last].tolist(), strict=True))
    return RanksWhatIf(
        calls=len(order),
        measured_ns=round(total),
        equal_ns=round(same),
        slowdown=total / same,
        transfers=same / float(end[2]),
        alone={ranks[r]: float(end[3 + k]) / same for k, r in enumerate(alone.tolist())},
        without={r: (total - t) / loss for r, t in left.items()} if loss > 1e-9 * same else {},
        gain={r: total / t for r, t in left.items()},
        own_ns={ranks[r]: round(float(own[r])) for r in here.tolist()},
        own_excess={ranks[r]: float(excess[r]) for r in here.tolist() if has_peers[r]},
        own_score={ranks[r]: float(score[r]) for r in here.tolist() if has_peers[r]},
        cures={name: float(loops[0] / max(loops[last + k], 1.0)) for k, name in enumerate(saves)},
        hidden=total / float(end[-2]),
        links=total / float(end[-1]) if np.isfinite(expected).any() else None,
    )


def _first(calls: list[tuple[Matched, Times]]) -> list[tuple[Matched, Times]]:
    """Of too many calls the first in time."""
    latest = np.concatenate([s.max(axis=1) for _, s in calls])
    if len(latest) <= MAX_ROWS:
        return calls
    until = np.partition(latest, MAX_ROWS)[MAX_ROWS]
    cut = []
    for m, s in calls:
        rows = s.max(axis=1) < until
        if rows.any():
            kept = {f: getattr(m, f)[rows] for f in ("size", "step", "start", "end", "blocked", "place")}
            names = [o for o, k in zip(m.op, rows.tolist(), strict=True) if k]
            cut.append((m._replace(op=names, **kept), s[rows]))
    return cut


def _items(calls: list[tuple[Matched, Times]], index: dict[int, int], *, gaps: bool) -> _Items:
    origin = min(int(s.min()) for _, s in calls)
    ops: dict[str, int] = {}
    columns: dict[str, list[npt.NDArray[np.int64]]] = {}
    for m, s in calls:
        n, r = s.shape
        sends = [m.group.kind == "pair" and x == m.group.ranks[0] for x in m.ranks]
        op = np.array([ops.setdefault(o, len(ops)) for o in m.op])[:, None] * 2 + np.array(sends)
        for name, values in {
            "rank": np.broadcast_to([index[x] for x in m.ranks], (n, r)),
            "place": m.place,
            "start": s - origin,
            "duration": m.end - m.start,
            "blocked": m.blocked,
            "step": np.broadcast_to(m.step[:, None], (n, r)),
            "op": op,
            "size": np.broadcast_to(m.size[:, None], (n, r)),
            "members": np.full((n, r), r),
        }.items():
            columns.setdefault(name, []).append(np.ascontiguousarray(values).ravel())
    flat = {name: np.concatenate(parts) for name, parts in columns.items()}
    order = np.lexsort((flat["place"], flat["rank"]))
    flat = {name: values[order] for name, values in flat.items()}
    where = np.empty(len(order), np.intp)
    where[order] = np.arange(len(order))
    at, used = [], 0
    for _, s in calls:
        at.append(where[used : used + s.size].reshape(s.shape))
        used += s.size
    rank, start = flat["rank"], flat["start"].astype(np.float64)
    first = np.append(True, rank[1:] != rank[:-1])
    last = np.append(first[1:], True)
    blocked = np.maximum(flat["blocked"].astype(np.float64), 0.0)
    reach = start + blocked
    for low, high in pairwise([*np.flatnonzero(first).tolist(), len(first)]):
        reach[low:high] = np.maximum.accumulate(reach[low:high])
    open_ = (reach > np.append(start[1:], np.inf)) & ~last
    done = np.where(open_, start, reach)
    before = np.append(0.0, done[:-1])
    own = np.where(first, start, start - before)
    return _Items(
        rank=rank.astype(np.intp),
        start=start,
        own=own,
        blocked=blocked,
        done=done,
        open=open_,
        duration=flat["duration"].astype(np.float64),
        first=first,
        fixed=first | (gaps & np.append(True, np.diff(flat["place"]) != 1)),
        step=flat["step"],
        op=flat["op"],
        size=flat["size"],
        members=flat["members"],
        at=at,
    )


def _equal_work(items: _Items) -> tuple[F64, F64, Mask, npt.NDArray[np.intp]]:
    """For each piece of own work the mean of those alike, the mean of the others alike, whether there are any,
    and its place. Alike are the pieces at the same place of the same step, of ranks with the same row of calls in it;
    the place is the same in every step with that row."""
    n = len(items.rank)
    fresh = items.first | np.append(True, items.step[1:] != items.step[:-1])
    turn = np.cumsum(fresh) - 1
    begin = np.maximum.accumulate(np.where(fresh, np.arange(n), 0))
    position = np.arange(n) - begin
    mixed = (
        items.op.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        + items.members.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
        + np.uint64(1)
    ) * (position.astype(np.uint64) * np.uint64(0x165667B19E3779F9) + np.uint64(0x27D4EB2F165667C5))
    row = np.zeros(int(turn[-1]) + 1, np.uint64)
    np.add.at(row, turn, mixed ^ (mixed >> np.uint64(29)))
    _, row_id = np.unique(np.stack([row, items.step[fresh].astype(np.uint64)]), axis=1, return_inverse=True)
    key = np.where(items.fixed, -1, row_id.ravel()[turn] * (int(position.max()) + 1) + position)
    _, kind = np.unique(key, return_inverse=True)
    total, count = np.bincount(kind, items.own)[kind], np.bincount(kind)[kind]
    others = np.where(count > 1, (total - items.own) / np.maximum(count - 1, 1), items.own)
    stays = items.fixed & ~items.first
    equal = np.where(stays, items.own, total / count)
    _, pattern = np.unique(row, return_inverse=True)
    place = np.unique(pattern.ravel()[turn] * (int(position.max()) + 1) + position, return_inverse=True)[1]
    return equal, np.where(stays, items.own, others), (count > 1) & ~items.fixed, place.ravel()


def _excess(
    items: _Items, equal: F64, others: F64, compared: Mask, place: npt.NDArray[np.intp], n: int
) -> tuple[F64, F64, Mask]:
    """Of each rank: own work over the mean less 1, by how many standard errors it exceeds that of the others, and
    whether at least half of its pieces have others to compare with. What differs from place to place in a step (all
    of a rank's excess may lie before one call) is no error where steps repeat: scatter is that of one place over the
    steps. Few of those are worth less: as a normal score of the same probability."""
    who, own = items.rank[compared], items.own[compared]
    count = np.maximum(np.bincount(who, minlength=n), 1)
    fair = np.bincount(who, equal[compared], n)
    excess = np.where(fair > 0, np.bincount(who, own, n) / np.maximum(fair, 1.0) - 1.0, 0.0)
    more = own - others[compared]
    mean = np.bincount(who, more, n) / count
    cell_of, cell = np.unique(who * (int(place.max(initial=0)) + 1) + place[compared], return_inverse=True)
    cell = cell.ravel()
    within = np.bincount(cell, more) / np.bincount(cell)
    cells = np.bincount(cell_of // (int(place.max(initial=0)) + 1), minlength=n)
    free = count - cells
    repeats = free >= MIN_FREE
    centre = np.where(repeats[who], within[cell], mean[who])
    free = np.where(repeats, free, np.maximum(count - 1, 1))
    spread = np.bincount(who, (more - centre) ** 2, n) / free
    score = normal_score(mean / np.sqrt(np.maximum(spread, 1.0) / count), free.astype(np.float64))
    return excess, score, 2 * np.bincount(who, minlength=n) >= np.bincount(items.rank, minlength=n)


def normal_score(t: F64, free: F64) -> F64:
    """The standard normal score of about the same probability as Student's `t` with `free` degrees of freedom:
    sqrt(f ln(1 + t^2 / f)) (8 f + 1) / (8 f + 3) (Wallace, Annals of Mathematical Statistics 30, 1959)."""
    size = np.sqrt(free * np.log1p(t * t / free)) * (8.0 * free + 1.0) / (8.0 * free + 3.0)
    return np.asarray(np.copysign(size, t))


def _equal_transfer(items: _Items, transfer: F64) -> F64:
    label = np.unique(np.stack([items.op, items.size, items.members], axis=1), axis=0, return_inverse=True)[1]
    label = label.ravel()
    order = np.lexsort((transfer, label))
    edges = np.flatnonzero(np.append(True, np.diff(label[order]) != 0))
    medians = np.array([np.median(part) for part in np.split(transfer[order], edges[1:])])
    return np.asarray(medians[label])


def _due(items: _Items, calls: list[tuple[Matched, Times]], curves: Mapping[tuple[str, int], Curve]) -> F64:
    """How long each transfer should take, ns; infinite where no curve says."""
    due = np.full(len(items.rank), np.inf)
    for (m, _), at in zip(calls, items.at, strict=True):
        whole = max(m.group.size, len(m.group.ranks), len(m.ranks))
        names = np.array(m.op)
        for op in set(m.op):
            curve = curves.get((op, whole))
            rows = (names == op) & (m.size > 0)
            if curve is not None and rows.any():
                due[at[rows]] = expected_seconds(curve, m.size[rows].astype(np.float64))[:, None] * 1e9
    return due


def _out_of_order(items: _Items, order: list[tuple[int, int, int]]) -> int:
    """How many calls come after a later one of the same rank when replayed in order of their last start."""
    turn = np.empty(len(items.rank), np.int64)
    for k, (_, n, row) in enumerate(order):
        turn[items.at[n][row]] = k
    back = turn[1:] < turn[:-1]
    return int((back & (items.rank[1:] == items.rank[:-1])).sum())


def _replay(
    items: _Items,
    order: list[tuple[int, int, int]],
    changes: list[tuple[F64, Shares]],
    medians: F64,
    expected: F64,
    due: F64,
    gone: F64,
) -> tuple[F64, F64]:
    """When the last call ends in each scenario, and when the last of the first step does (0 where there is but one
    step), ns since the first began. `changes` are changes of own work,
    and how much of each a scenario makes [scenario, rank]; `medians` how much of the change of transfers to the median
    of those alike, `due` to what is `expected` of them, `gone` to nothing. A rank carries how far it is ahead of or behind the measured
    run."""
    latest = np.empty(len(items.rank))
    for _, n, row in order:
        at = items.at[n][row]
        latest[at] = items.start[at].max()
    transfer = np.clip(items.start + items.duration - latest, 0.0, items.duration)
    changed_transfer = _equal_transfer(items, transfer) - transfer
    too_long = np.minimum(expected - transfer, 0.0)
    hidden = items.duration - items.blocked
    shift = np.zeros(changes[0][1].shape)
    held = np.full(changes[0][1].shape, -np.inf)  # until when calls still open hold the rank
    end, early = np.zeros(len(medians)), np.zeros(len(medians))
    told = np.unique(items.step[items.step >= 0])
    opening = int(told[0]) if len(told) > 1 else None
    for _, n, row in order:
        at = items.at[n][row]
        who = items.rank[at]
        come = items.start[at] + shift[:, who]
        for change, share in changes:
            come += change[at] * share[:, who]
        over = come.max(axis=1, keepdims=True) + transfer[at] + changed_transfer[at] * medians[:, None]
        over += too_long[at] * due[:, None] - transfer[at] * gone[:, None]
        released = np.maximum(held[:, who], over - hidden[at])
        goes_on = np.where(items.open[at], come, np.maximum(come, released))
        held[:, who] = np.where(items.open[at], released, -np.inf)
        shift[:, who] = goes_on - items.done[at]
        end = np.maximum(end, over.max(axis=1))
        if opening is not None and items.step[at[0]] == opening:
            early = end.copy()
    return end, early
