"""Many ranks together: who waits for whom, how fast the links are, and which rank holds the others up.

A collective's kernel starts when its rank comes and ends after the last one has come. With clocks in line, the
*wait* of a rank is the latest start less its own, and the rest of the kernel is *transfer*; the two sum to its
duration exactly. Without clocks, the wait is at least the duration less the shortest one. The rank that all
wait for waits least itself. It is named when waiting is much of the communication, when the same rank comes
last time and again, far more than chance has it, and when that costs a part of the run worth naming.
"""

import math
from collections.abc import Iterable, Mapping
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from wellfed.analyze.clocks import align, on_reference
from wellfed.analyze.intervals import union
from wellfed.analyze.matching import Matched, Matching, Times, label
from wellfed.analyze.rank_replay import what_if
from wellfed.model.curve import Curve
from wellfed.model.ranks import (
    Clock,
    Limit,
    RanksStudy,
    RankStraggler,
    RanksWhatIf,
    RankWait,
    Refusal,
    SizeRow,
    StepWait,
)
from wellfed.predict.collective import (
    ENDS_TOGETHER,
    bus_bandwidth,
    expected_seconds,
)
from wellfed.predict.comm_limit import limit_of

WAIT_FROM = 0.30
"""Share of the communication that waiting must be (research: 30 %), before a rank is named."""
LAST_FROM = 0.50
"""Share of the calls in which the named rank must come last."""
COST_FROM = 0.02
"""Share of the run that the waiting must cost: below 2 % nothing is reported."""
CHANCE = 1e-3
"""Healthy sets of which at most so many get there by chance: as for how often the named rank comes last, so for how
far its own work exceeds its peers'. Shared among the ranks of the set, each of which might be the one; the limits on
what it must cost come on top."""
REPLAY_FROM = (1.05, 0.5)
"""By replay a rank is named when the run gains this much once it works like its peers, and that is this share
of what unequal ranks cost: 5 % of the time is a warning, half of the loss is how the OSDI 2025 study reads M_W."""
BROKEN_ORDER_FROM = 0.02
"""Share of calls in which a rank would have ended before another began, from which a match is refused."""
MAX_STEPS = 2_000
MAX_SIZES = 200
MAX_CELLS = 50_000


class Split(NamedTuple):
    """One matched group on the reference's clock, [call, rank]: starts, and duration = wait + transfer."""

    matched: Matched
    start: Times
    wait: Times
    transfer: Times


def study_ranks(
    matching: Matching,
    *,
    curves: Iterable[Curve] = (),
    links_unknown: tuple[str, ...] = (),
    saves: Mapping[str, Mapping[int, float]] | None = None,
) -> RanksStudy:
    """The study of matched ranks. `curves` are measured or catalogue times by size, for what transfers should
    take (`links_unknown`: why some have none). `saves` are cures to replay over all ranks: by name, which share of
    its own work each rank is spared."""
    splits, clocks, refused = split(matching)
    ranks = matching.ranks
    known = {(c.op, c.ranks): c for c in curves}
    sums = _Sums(ranks)
    for part in splits:
        sums.add(part, clocks)
    replay = what_if(
        [s.matched for s in splits],
        [s.start for s in splits],
        ranks,
        thinned=matching.thinned,
        saves=saves,
        curves=known,
    )
    wait_share = float(sums.wait.sum()) / max(float(sums.comm.sum()), 1.0)
    cost_share = float(sums.waiting(splits).sum()) * matching.thinned / max(float(sums.span().sum()), 1.0)
    straggler = _straggler(sums, replay, matching.thinned)
    return RanksStudy(
        ranks=ranks,
        world=matching.world,
        calls=sum(matching.calls.values()),
        matched=sum(s.start.size for s in splits),
        matched_by=_by(splits),
        refused=refused,
        clocks=tuple(clocks[r] for r in ranks),
        waits=sums.waits(replay),
        steps=sums.step_waits(),
        sizes=_sizes(splits, known),
        limits=(limits := _limits(splits, known)),
        links={f"{op}/{n}": c.source for (op, n), c in known.items() if f"{op}/{n}" in limits},
        links_unknown=links_unknown,
        wait_share=wait_share,
        cost_share=cost_share,
        straggler=straggler,
        uneven=straggler is None and wait_share >= WAIT_FROM and cost_share >= COST_FROM,
        what_if=replay,
        notes=matching.notes + _partial(splits),
    )


def split(matching: Matching) -> tuple[list[Split], dict[int, Clock], tuple[Refusal, ...]]:
    """Clocks, and each matched call's waits and transfers. Groups whose calls contradict each other once the
    clocks are in line are refused."""
    matched, refused = list(matching.matched), list(matching.refused)
    clocks = align(matched, matching.ranks)
    sound = [m for m in matched if _possible(m, clocks)]
    if len(sound) < len(matched):
        refused += [
            Refusal(
                group=label(m.group),
                calls=m.start.size,
                reason="a rank would have ended before another began: not the same calls",
            )
            for m in matched
            if not any(m is s for s in sound)
        ]
        clocks = align(sound, matching.ranks)
    return [_split(m, clocks) for m in sound], clocks, tuple(refused)


def _split(m: Matched, clocks: dict[int, Clock]) -> Split:
    start = np.stack([on_reference(clocks[r], m.start[:, k]) for k, r in enumerate(m.ranks)], axis=1)
    duration = m.end - m.start
    wait = np.minimum(start.max(axis=1, keepdims=True) - start, duration)
    return Split(m, start, wait, duration - wait)


def _possible(m: Matched, clocks: dict[int, Clock]) -> bool:
    """Whether, where calls end together, nobody ends before all have begun (but for the clocks' residual)."""
    rows = np.array([op in ENDS_TOGETHER for op in m.op], bool)
    if m.by == "end" or not rows.any():
        return True
    start = np.stack([on_reference(clocks[r], m.start[rows, k]) for k, r in enumerate(m.ranks)], axis=1)
    end = np.stack([on_reference(clocks[r], m.end[rows, k]) for k, r in enumerate(m.ranks)], axis=1)
    slack = 5_000 + 3 * max(clocks[r].residual_ns for r in m.ranks)
    return float((start.max(axis=1) > end.min(axis=1) + slack).mean()) <= BROKEN_ORDER_FROM


class _Sums:
    """Sums over all matched calls, one number a rank."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        n = len(ranks)
        self.ranks = ranks
        self.index = {r: k for k, r in enumerate(ranks)}
        self.calls, self.comm, self.wait, self.clock_free, self.exposed, self.caused, self.pair_wait = (
            np.zeros(n, np.int64) for _ in range(7)
        )
        self.exposed_wait = np.zeros((3, n))
        self.begin, self.end = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
        self.together_wait, self.together_comm = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.seen, self.last, self.spread = np.zeros(n), np.zeros(n), np.zeros(n)
        self.by_chance = np.zeros(n)
        self.steps: dict[int, tuple[Times, Times]] = {}

    def add(self, part: Split, clocks: dict[int, Clock]) -> None:
        m, start, wait, transfer = part
        who = np.array([self.index[r] for r in m.ranks])
        duration = m.end - m.start
        self.calls[who] += len(m.size)
        self.comm[who] += duration.sum(axis=0)
        self.wait[who] += wait.sum(axis=0)
        self.clock_free[who] += (duration - duration.min(axis=1, keepdims=True)).sum(axis=0)
        self.exposed[who] += m.blocked.sum(axis=0)
        self.begin[who] = np.minimum(self.begin[who], m.start.min(axis=0))
        self.end[who] = np.maximum(self.end[who], m.end.max(axis=0))
        if m.group.kind == "pair":
            self.pair_wait[who] += wait.sum(axis=0)
        share = wait / np.maximum(duration, 1)
        self.exposed_wait[:, who] += np.stack(
            [
                np.maximum(m.blocked - transfer, 0).sum(axis=0),
                (m.blocked * share).sum(axis=0),
                np.minimum(m.blocked, wait).sum(axis=0),
            ]
        )
        slack = max(1_000.0, 3.0 * max(clocks[r].residual_ns for r in m.ranks))
        real = wait.max(axis=1) > slack
        last = start.argmax(axis=1)
        np.add.at(self.caused, who[last[real]], wait[real].sum(axis=1))
        together = np.array([op in ENDS_TOGETHER for op in m.op], bool) & (m.by != "end")
        self.together_wait[who] += wait[together].sum(axis=0)
        self.together_comm[who] += duration[together].sum(axis=0)
        counted = real & together
        n, each = int(counted.sum()), 1.0 / len(m.ranks)
        np.add.at(self.last, who[last[counted]], 1.0)
        self.seen[who] += n
        self.by_chance[who] += n * each
        self.spread[who] += n * each * (1.0 - each)
        for step in np.unique(m.step[m.step >= 0]).tolist():
            rows = m.step == step
            waited, caused = self.steps.setdefault(
                step, (np.full(len(self.ranks), -1, np.int64), np.zeros(len(self.ranks), np.int64))
            )
            waited[who] = np.maximum(waited[who], 0) + wait[rows].sum(axis=0)
            np.add.at(caused, who[last[rows & real]], wait[rows & real].sum(axis=1))

    def waiting(self, splits: Iterable[Split]) -> Times:
        """How long each rank waits at all: what waits at the same time (collectives of several streams or threads)
        counts once."""
        begin: dict[int, list[Times]] = {}
        wait: dict[int, list[Times]] = {}
        for part in splits:
            for k, r in enumerate(part.matched.ranks):
                begin.setdefault(r, []).append(part.start[:, k])
                wait.setdefault(r, []).append(part.wait[:, k])
        found = np.zeros(len(self.ranks), np.int64)
        for r, starts in begin.items():
            start = np.concatenate(starts)
            found[self.index[r]] = union(start, start + np.concatenate(wait[r])).total
        return found

    def span(self) -> Times:
        """From a rank's first matched call to the end of its last."""
        return np.where(self.calls > 0, self.end - self.begin, 0)

    def last_share(self, k: int) -> float:
        return float(self.last[k] / self.seen[k]) if self.seen[k] else 0.0

    def waits(self, replay: RanksWhatIf) -> tuple[RankWait, ...]:
        low, middle, high = np.rint(self.exposed_wait).astype(np.int64)
        return tuple(
            RankWait(
                rank=r,
                calls=int(self.calls[k]),
                comm_ns=int(self.comm[k]),
                wait_ns=int(self.wait[k]),
                transfer_ns=int(self.comm[k] - self.wait[k]),
                clock_free_wait_ns=int(self.clock_free[k]),
                exposed_ns=int(self.exposed[k]),
                exposed_wait_ns=(int(low[k]), int(middle[k]), int(high[k])),
                last=self.last_share(k),
                caused_ns=int(self.caused[k]),
                pair_wait_ns=int(self.pair_wait[k]),
                own_ns=replay.own_ns.get(r),
                own_excess=replay.own_excess.get(r),
            )
            for k, r in enumerate(self.ranks)
        )

    def step_waits(self) -> tuple[StepWait, ...]:
        rows = []
        picture = len(self.steps) * len(self.ranks) <= MAX_CELLS
        for step, (waited, caused) in sorted(self.steps.items())[:MAX_STEPS]:
            here = waited[waited >= 0]
            rows.append(
                StepWait(
                    step=step,
                    mean_wait_ns=round(float(here.mean())),
                    max_wait_ns=int(here.max()),
                    min_wait_ns=int(here.min()),
                    last_rank=self.ranks[int(caused.argmax())] if caused.any() else None,
                    by_rank=tuple(waited.tolist()) if picture else (),
                )
            )
        return tuple(rows)


def _straggler(sums: _Sums, replay: RanksWhatIf, thinned: int) -> RankStraggler | None:
    share = float(sums.together_wait.sum()) / max(float(sums.together_comm.sum()), 1.0)
    cost = float(sums.together_wait.sum()) * thinned / max(float(sums.span().sum()), 1.0)
    if share >= WAIT_FROM and cost >= COST_FROM:
        busy = sums.together_comm > 0
        least = np.where(busy, sums.together_wait / np.maximum(sums.together_comm, 1), np.inf)
        k = int(least.argmin())
        score = (sums.last[k] - sums.by_chance[k]) / math.sqrt(max(sums.spread[k], 1e-9))
        if (
            sums.last_share(k) >= LAST_FROM
            and score >= chance_score(len(sums.ranks))
            and _works_more(sums.ranks[k], replay)
        ):
            return _named(sums, replay, k, "waiting", share, cost)
    slowest = max(replay.without, key=lambda r: replay.without[r], default=None)
    if (
        slowest is not None
        and replay.gain[slowest] >= REPLAY_FROM[0]
        and replay.without[slowest] >= REPLAY_FROM[1]
        and _works_more(slowest, replay)
    ):
        return _named(sums, replay, sums.index[slowest], "replay", share, cost)
    return None


def _works_more(rank: int, replay: RanksWhatIf) -> bool:
    """Whether the rank works longer between its calls than its peers, beyond chance. A rank without peers may
    come last by the order of a pipeline: it is not named. Without a replay nothing speaks against it."""
    if replay.refused is not None:
        return True
    least = chance_score(len(replay.own_ns))
    return replay.own_excess.get(rank, 0.0) >= COST_FROM and replay.own_score.get(rank, 0.0) >= least


def chance_score(ranks: int) -> float:
    """The standard normal score that one of so many healthy ranks reaches by chance in `CHANCE` of all sets."""
    return NormalDist().inv_cdf(1.0 - CHANCE / max(ranks, 1))


def _named(
    sums: _Sums, replay: RanksWhatIf, k: int, by: Literal["waiting", "replay"], share: float, cost: float
) -> RankStraggler:
    rank = sums.ranks[k]
    return RankStraggler(
        rank=rank,
        of=len(sums.ranks),
        by=by,
        last=sums.last_share(k),
        wait_share=share,
        cost_share=cost,
        caused_ns=int(sums.caused[k]),
        own_excess=replay.own_excess.get(rank),
        speedup=replay.gain.get(rank),
    )


def _partial(splits: list[Split]) -> tuple[str, ...]:
    """Says where ranks of a group are missing."""
    short = [(len(s.matched.ranks), s.matched.group.size) for s in splits if s.matched.group.kind != "stream"]
    short = [(seen, size) for seen, size in short if size > seen]
    if not short:
        return ()
    seen, size = min(short, key=lambda pair: pair[0] / pair[1])
    return (
        f"only {seen} of {size} ranks of a group are here: waiting for the others can't be told from transfer",
    )


def _by(splits: list[Split]) -> dict[str, int]:
    found: dict[str, int] = {}
    for s in splits:
        found[s.matched.by] = found.get(s.matched.by, 0) + s.start.size
    return found


def _alike(splits: list[Split]) -> dict[tuple[str, int, int], tuple[npt.NDArray[np.int64], Times]]:
    """(operation, ranks of the group, ranks seen) -> sizes and transfer times (shortest of the ranks)."""
    parts: dict[tuple[str, int, int], list[tuple[Times, Times]]] = {}
    for s in splits:
        m = s.matched
        seen = len(m.ranks)
        whole = max(m.group.size, len(m.group.ranks), seen)
        shortest = (m.end - m.start).min(axis=1)
        ops = np.array(m.op)
        for op in set(m.op):
            rows = ops == op
            parts.setdefault((op, whole, seen), []).append((m.size[rows], shortest[rows]))
    return {
        key: (np.concatenate([p[0] for p in found]), np.concatenate([p[1] for p in found]))
        for key, found in parts.items()
    }


def _sizes(splits: list[Split], curves: dict[tuple[str, int], Curve]) -> tuple[SizeRow, ...]:
    """The sizes that take most time, longest first."""
    rows: list[tuple[int, SizeRow]] = []
    for (op, ranks, seen), (sizes, times) in _alike(splits).items():
        curve = curves.get((op, ranks))
        order = np.lexsort((times, sizes))
        edges = np.flatnonzero(np.append(True, np.diff(sizes[order]) != 0))
        for part in np.split(order, edges[1:]):
            size, took = int(sizes[part[0]]), times[part]
            p10, median, p90 = (float(q) for q in np.quantile(took, (0.1, 0.5, 0.9)))
            known = size > 0 and median > 0
            due = round(float(expected_seconds(curve, [size])[0]) * 1e9) if curve and size > 0 else None
            row = SizeRow(
                op=op,
                ranks=ranks,
                seen=seen,
                size=size,
                calls=len(part),
                median_ns=round(median),
                p10_ns=round(p10),
                p90_ns=round(p90),
                alg_bytes_s=size / median * 1e9 if known else None,
                bus_bytes_s=bus_bandwidth(op, ranks, size, median * 1e-9) if known else None,
                expected_ns=due,
            )
            rows.append((int(took.sum()), row))
    return tuple(row for _, row in sorted(rows, key=lambda r: -r[0])[:MAX_SIZES])


def _limits(splits: list[Split], curves: dict[tuple[str, int], Curve]) -> dict[str, Limit]:
    """For operations with a curve: which limit their transfers run into, by `operation/ranks`."""
    found: dict[str, Limit] = {}
    for (op, ranks, _), (sizes, times) in _alike(splits).items():
        curve = curves.get((op, ranks))
        if curve is None:
            continue
        limit = limit_of(sizes.astype(np.float64), times.astype(np.float64) * 1e-9, curve)
        if limit is not None:
            found[f"{op}/{ranks}"] = limit
    return found
