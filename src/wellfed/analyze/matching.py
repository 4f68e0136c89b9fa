"""Which collective of one rank is which of another: matched by number, by order, or by when they end.

Calls of a process group are numbered (`Seq`), and equal numbers are the same call. Without numbers the k-th
call of a group is the k-th on every rank, if the file holds all of them: so only when the counts agree, each
pair has the same operation and size, and the ends keep step with each other. Where that fails the files may
be samples; then calls that end together are paired, if far more do than chance would have it. Whatever is
not proven is refused, with the reason, rather than mismatched.

Memory is bounded: of each rank only these columns are kept, and beyond a limit only every other run of calls,
the same on all ranks.
"""

import math
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wellfed.analyze.collectives import CollectiveSeries, CommGroup
from wellfed.analyze.turns import turns
from wellfed.model.ranks import Refusal
from wellfed.model.timeline import F64, I16, I64, Mask
from wellfed.predict.collective import ENDS_TOGETHER

MAX_CALLS = 4_000_000
"""Calls kept of all ranks together, about 64 bytes each."""
BLOCK = 64
"""Calls of a group, one after the other, that are kept or dropped together."""
END_TOLERANCE_NS = 500_000
"""How far apart the ends of one call may lie when calls are paired by their ends: clocks of a cluster that NTP
keeps, within a trace of seconds."""
MIN_PAIRS = 3
"""Fewer calls prove neither an order nor that ends coincide."""
MISMATCH_LIMIT = 0.01
"""Share of calls with another operation or size under the same number from which a group is refused."""
STRAY_LIMIT = 0.03
"""Share of calls whose ends may be out of step (and are left out) when calls are matched by order."""
_MAX_COMPARED = 600
_TURNS = 1 << 16
_VARIABLE = frozenset({"all_to_all", "send_recv", ""})
"""Operations whose sizes may differ from rank to rank."""

Times = npt.NDArray[np.int64]


class Matched(NamedTuple):
    """Calls of one group, matched: arrays over (call, rank). `start` and `end` are ns of each rank's own
    clock, `blocked` the part in which the device computed nothing (the whole call when unknown), `place` the
    number of the call among all calls of its rank. `size` is in bytes (-1 unknown). `by` says how."""

    group: CommGroup
    ranks: tuple[int, ...]
    by: str
    op: list[str]
    size: I64
    step: I64
    start: Times
    end: Times
    blocked: Times
    place: Times


class Matching(NamedTuple):
    """All that could be matched of a set of ranks. `calls` counts all calls seen of each rank; `thinned` is 1
    when all steps were kept, k when only each k-th."""

    ranks: tuple[int, ...]
    world: int | None
    matched: tuple[Matched, ...]
    refused: tuple[Refusal, ...]
    calls: dict[int, int]
    thinned: int
    notes: tuple[str, ...] = ()


class _Kept(NamedTuple):
    """What is kept of one rank: columns, by start."""

    group: I64
    op: I16
    seq: I64
    order: I64
    block: I64
    start: I64
    end: I64
    size: I64
    step: I64
    blocked: I64
    place: I64


def match_ranks(series: Iterable[CollectiveSeries], *, max_calls: int = MAX_CALLS) -> Matching:
    """Matches the ranks' collectives, reading one rank's series after the other. A rank that comes twice is
    left out the second time, with a note."""
    store = _Store(max_calls)
    for one in series:
        store.add(one)
    return store.matching()


class _Store:
    def __init__(self, max_calls: int) -> None:
        self.max_calls = max_calls
        self.groups: dict[CommGroup, int] = {}
        self.ops: dict[str, int] = {}
        self.kept: dict[int, _Kept] = {}
        self.calls: dict[int, int] = {}
        self.shape: dict[tuple[int, int], tuple[int, int]] = {}
        """(group, rank) -> how many calls, and a checksum of their operations and sizes."""
        self.world: int | None = None
        self.thinned = 1
        self.notes: list[str] = []

    def add(self, series: CollectiveSeries) -> None:
        if series.rank in self.kept:
            self.notes.append(f"rank {series.rank} comes twice; {series.source or 'the second'} is left out")
            return
        self.world = series.world if self.world is None else self.world
        group_id = np.array([self.groups.setdefault(g, len(self.groups)) for g in series.groups] or [0])
        op_id = np.array([self.ops.setdefault(o, len(self.ops)) for o in series.ops] or [0], np.int16)
        group, op = group_id[series.group].astype(np.int64), op_id[series.op]
        order, seq = np.zeros(len(series), np.int64), np.full(len(series), -1, np.int64)
        for g in np.unique(group).tolist():
            rows = np.flatnonzero(group == g)
            order[rows] = np.arange(len(rows))
            self.shape[g, series.rank] = (len(rows), _checksum(series, rows))
            if (series.seq[rows] >= 0).all():
                seq[rows] = series.seq[rows] * _TURNS + np.minimum(turns(series.seq[rows]), _TURNS - 1)
        count = np.where(seq >= 0, seq // _TURNS, order)
        duration = series.end - series.start
        later = np.append(series.start[1:], np.iinfo(np.int64).max)
        blocked = np.where(
            series.exposed >= 0,
            np.minimum(series.exposed, duration),
            np.minimum(duration, later - series.start),
        )
        self.calls[series.rank] = len(series)
        self.kept[series.rank] = _Kept(
            group=group,
            op=op,
            seq=seq,
            order=order,
            block=count // BLOCK,
            start=series.start,
            end=series.end,
            size=series.size,
            step=series.step,
            blocked=blocked,
            place=np.arange(len(series)),
        )
        self._thin([series.rank])
        while sum(len(k.start) for k in self.kept.values()) > self.max_calls and self.thinned < 1 << 20:
            self.thinned *= 2
            self._thin(self.kept)

    def _thin(self, ranks: Iterable[int]) -> None:
        if self.thinned > 1:
            for rank in list(ranks):
                keep = self.kept[rank].block % self.thinned == 0
                self.kept[rank] = _Kept(*(column[keep] for column in self.kept[rank]))

    def matching(self) -> Matching:
        matched: list[Matched] = []
        refused: list[Refusal] = []
        loose: dict[int, str] = {}
        if self.thinned > 1:
            self.notes.append(
                f"one of {self.thinned} runs of {BLOCK} calls is kept (there are too many for all): gains are lower bounds"
            )
        for group, g in self.groups.items():
            present = sorted(rank for gg, rank in self.shape if gg == g)
            if len(present) < 2:
                refused.append(self._refusal(g, group, "only one rank of the group is here"))
                continue
            if 0 < group.size < len(present):
                refused.append(self._refusal(g, group, "more ranks call it than it has members"))
                continue
            if group.ranks and not set(present) <= set(group.ranks):
                self.notes.append(f"the files' ranks are not the members of {label(group)}")
            found = self._by_number(g, group, present)
            if isinstance(found, Matched):
                matched.append(found)
            elif group.kind == "group" and found.startswith("other"):
                refused.append(self._refusal(g, group, found))
            else:
                loose[g] = found
        matched += self._by_end(loose, refused)
        return Matching(
            ranks=tuple(sorted(self.kept)),
            world=self.world,
            matched=tuple(m for m in matched if len(m.size)),
            refused=tuple(refused),
            calls=dict(sorted(self.calls.items())),
            thinned=self.thinned,
            notes=tuple(self.notes),
        )

    def _refusal(self, g: int, group: CommGroup, reason: str) -> Refusal:
        calls = sum(n for (gg, _), (n, _) in self.shape.items() if gg == g)
        return Refusal(group=label(group), calls=calls, reason=reason)

    def _rows(self, g: int, rank: int) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.kept[rank].group == g)

    def _by_number(self, g: int, group: CommGroup, present: list[int]) -> Matched | str:
        """By sequence number where all calls have one, else by order; text says why not."""
        rows = {r: self._rows(g, r) for r in present}
        if all((self.kept[r].seq[rows[r]] >= 0).all() for r in present) and group.kind == "group":
            key, by = {r: self.kept[r].seq[rows[r]] for r in present}, "sequence"
        else:
            if group.kind == "stream":
                return "the trace does not tell the group"
            if len({self.shape[g, r][0] for r in present}) > 1:
                return "calls are not numbered, and ranks have different counts of them"
            if len({self.shape[g, r][1] for r in present}) > 1:
                return "calls are not numbered, and their operations or sizes differ in order"
            key, by = {r: self.kept[r].order[rows[r]] for r in present}, "order"
        common = key[present[0]]
        for r in present[1:]:
            common = np.intersect1d(common, key[r], assume_unique=True)
        common = np.unique(common)
        if not len(common):
            return "no call is on all ranks"
        picked = {}
        for r in present:
            sort = np.argsort(key[r], kind="stable")
            picked[r] = rows[r][sort[np.searchsorted(key[r], common, sorter=sort)]]
        found = self._take(group, present, picked, by)
        same = self._same(present, picked)
        if (~same).mean() > MISMATCH_LIMIT:
            return "other operations or sizes under the same number"
        found = _only(found, same)
        if by == "order":
            if len(found.size) < MIN_PAIRS and group.kind != "pair":
                return "calls are not numbered, and too few to prove their order"
            good = in_step(found)
            if (~good).mean() > STRAY_LIMIT or not _same_steps(self, present, picked):
                return "calls are not numbered, and their ends do not keep step: not the same calls"
            found = _only(found, good)
        return found

    def _take(
        self, group: CommGroup, ranks: list[int], picked: dict[int, npt.NDArray[np.intp]], by: str
    ) -> Matched:
        names = list(self.ops)

        def stack(column: str) -> Times:
            return np.stack([getattr(self.kept[r], column)[picked[r]] for r in ranks], axis=1)

        first = self.kept[ranks[0]]
        sizes = stack("size")
        return Matched(
            group=group,
            ranks=tuple(ranks),
            by=by,
            op=[names[o] for o in first.op[picked[ranks[0]]].tolist()],
            size=sizes.max(axis=1),
            step=first.step[picked[ranks[0]]],
            start=stack("start"),
            end=stack("end"),
            blocked=stack("blocked"),
            place=stack("place"),
        )

    def _same(self, ranks: list[int], picked: dict[int, npt.NDArray[np.intp]]) -> Mask:
        """Whether operation and size agree on all ranks (unknown agrees with all)."""
        op = np.stack([self.kept[r].op[picked[r]] for r in ranks], axis=1)
        size = np.stack([self.kept[r].size[picked[r]] for r in ranks], axis=1)
        variable = np.array([name in _VARIABLE for name in self.ops])[op[:, 0]]
        known = np.where(size < 0, size.max(axis=1, keepdims=True), size)
        return np.asarray((op == op[:, :1]).all(axis=1) & (variable | (known == known[:, :1]).all(axis=1)))

    def _by_end(self, loose: dict[int, str], refused: list[Refusal]) -> list[Matched]:
        """Pairs of two ranks by coinciding ends. Of more than two ranks each is paired with the lowest."""
        groups = list(self.groups)
        ranks = sorted({r for g, r in self.shape if g in loose})
        found: list[Matched] = []
        done: set[int] = set()
        for rank in ranks[1:]:
            shared = [g for g in loose if (g, ranks[0]) in self.shape and (g, rank) in self.shape]
            offset = self._end_offset(shared, ranks[0], rank)
            if offset is None:
                continue
            for g in shared:
                a, b = self._rows(g, ranks[0]), self._rows(g, rank)
                first, second = self.kept[ranks[0]], self.kept[rank]
                left, right = _nearest(first.end[a], second.end[b] - offset)
                good = first.op[a[left]] == second.op[b[right]]
                picked = {ranks[0]: a[left[good]], rank: b[right[good]]}
                if good.any():
                    found.append(self._take(groups[g], [ranks[0], rank], picked, "end"))
                    done.add(g)
        refused += [self._refusal(g, groups[g], why) for g, why in loose.items() if g not in done]
        return found

    def _end_offset(self, shared: list[int], one: int, other: int) -> int | None:
        """How far the other clock is ahead, if so many more ends coincide then than by chance (Poisson, all
        offsets tried) that it can only be that one."""
        differences = [
            (self.kept[other].end[b][None, :] - self.kept[one].end[a][:, None]).ravel()
            for g in shared
            if len(a := self._rows(g, one)[:_MAX_COMPARED]) and len(b := self._rows(g, other)[:_MAX_COMPARED])
        ]
        if not differences:
            return None
        d = np.sort(np.concatenate(differences))
        width = 2 * END_TOLERANCE_NS
        inside = np.searchsorted(d, d + width, side="right") - np.arange(len(d))
        best = int(inside.argmax())
        count = int(inside[best])
        away = np.abs(d - d[best]) > 2 * width
        second = int(inside[away].max(initial=0))
        windows = max((float(d[-1]) - float(d[0])) / width, 1.0)
        chance = windows * _poisson_tail(len(d) / windows, count)
        if count < MIN_PAIRS or second > 0.7 * count or chance > 0.01:
            return None
        return int(np.median(d[best : best + count]))


def label(group: CommGroup) -> str:
    """A group in words."""
    if group.kind == "pair":
        return f"rank {group.ranks[0]} to rank {group.ranks[1]}"
    if group.kind in ("stream", "cpu"):
        return f"unnamed group on {group.name}"
    members = group.text if len(group.text) <= 60 else group.text[:57] + "..."
    return f"group {group.name or '?'} {members}".rstrip()


def resistant_line(x: F64, y: F64) -> tuple[float, float]:
    """A straight line through the medians of the first and the last third (Tukey): (value at x = 0, slope).
    The slope is 0 when there are fewer than nine points, or no more of it than the scatter explains."""
    third = len(x) // 3
    if third < 3:
        return float(np.median(y)), 0.0
    order = np.argsort(x, kind="stable")
    low, high = order[:third], order[-third:]
    run = float(np.median(x[high]) - np.median(x[low]))
    slope = float(np.median(y[high]) - np.median(y[low])) / run if run > 0 else 0.0
    rest = y - slope * x
    scatter = 1.4826 * float(np.median(np.abs(rest - np.median(rest))))
    if abs(slope) * run <= 3.0 * scatter / math.sqrt(third):
        return float(np.median(y)), 0.0
    return float(np.median(rest)), slope


def in_step(found: Matched) -> Mask:
    """Which calls keep step: where calls end together, the ends of all ranks differ from the first rank's by a
    constant (drift taken out), give or take a quarter of what a call takes."""
    good = np.ones(len(found.size), bool)
    rows = np.array([op in ENDS_TOGETHER for op in found.op])
    if not rows.any():
        return good
    end, base = found.end[rows], int(found.end[rows].min())
    x = (end[:, 0] - base).astype(np.float64)
    allowed = max(20_000.0, 0.25 * float(np.median((end - found.start[rows]).min(axis=1))))
    for k in range(1, end.shape[1]):
        y = (end[:, k] - end[:, 0]).astype(np.float64)
        value, slope = resistant_line(x, y - y[0])
        good[rows] &= np.abs(y - y[0] - value - slope * x) <= allowed
    return good


def _same_steps(store: _Store, ranks: list[int], picked: dict[int, npt.NDArray[np.intp]]) -> bool:
    """Whether most matched calls lie in the same step on all ranks, where steps are told."""
    step = np.stack([store.kept[r].step[picked[r]] for r in ranks], axis=1)
    told = (step >= 0).all(axis=1)
    return not told.any() or float((step[told] == step[told][:, :1]).all(axis=1).mean()) >= 0.5


def _only(found: Matched, keep: Mask) -> Matched:
    return found._replace(
        op=[o for o, k in zip(found.op, keep.tolist(), strict=True) if k],
        size=found.size[keep],
        step=found.step[keep],
        start=found.start[keep],
        end=found.end[keep],
        blocked=found.blocked[keep],
        place=found.place[keep],
    )


def _checksum(series: CollectiveSeries, rows: npt.NDArray[np.intp]) -> int:
    names = [series.ops[o] for o in series.op[rows].tolist()]
    sizes = [
        -1 if name in _VARIABLE else size
        for name, size in zip(names, series.size[rows].tolist(), strict=True)
    ]
    return zlib.crc32(repr((names, sizes)).encode())


def _nearest(a: I64, b: I64) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices of those that are each other's nearest, within the tolerance. Both are sorted by start, so
    nearly by end."""
    if not len(a) or not len(b):
        return np.zeros(0, np.intp), np.zeros(0, np.intp)

    def nearest(of: I64, to: I64) -> npt.NDArray[np.intp]:
        order = np.argsort(to, kind="stable")
        ranked = to[order]
        at = np.clip(np.searchsorted(ranked, of), 1, max(len(to) - 1, 1))
        left, right = ranked[at - 1], ranked[np.minimum(at, len(to) - 1)]
        return np.asarray(order[np.where(of - left <= right - of, at - 1, np.minimum(at, len(to) - 1))])

    there, back = nearest(a, b), nearest(b, a)
    mine = np.arange(len(a))
    good = (back[there] == mine) & (np.abs(a - b[there]) <= END_TOLERANCE_NS)
    return mine[good], there[good]


def _poisson_tail(mean: float, count: int) -> float:
    """P(X >= count) of a Poisson variable."""
    if count <= mean:
        return 1.0
    term = math.exp(-mean + count * math.log(max(mean, 1e-300)) - math.lgamma(count + 1))
    total, k = 0.0, count
    while term > 1e-18 * total and k < count + 10_000:
        total += term
        k += 1
        term *= mean / k
    return min(total, 1.0)
