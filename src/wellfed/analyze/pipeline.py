"""One step of a pipeline-parallel job as a graph of operations, and its replay with other durations.

All replicas and steps run the same operations with the same dependencies, so that one pipeline is modelled and
each of its operations is an array over (step, replica). The graph is that of Megatron's 1F1B schedule, plain or
interleaved, as operations are recorded in *Understanding Stragglers in Large Model Training Using What-if
Analysis* (J. Lin et al., OSDI 2025): computing in the recorded order; a stream each for sends and receives of
a direction; parameters gathered before the first forward of their piece; after the last computing the
gradients, the clipping that all workers do together, and the optimizer.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wellfed.analyze.turns import turns
from wellfed.model.base import Value
from wellfed.model.errors import WellfedError
from wellfed.model.timeline import F64, I16, I32, I64, Mask

F64s = npt.NDArray[np.float64]

FORWARD, BACKWARD = "forward-compute", "backward-compute"
POINT_TO_POINT = {
    "forward-send": ("forward-recv", 1),
    "forward-recv": ("forward-send", -1),
    "backward-send": ("backward-recv", -1),
    "backward-recv": ("backward-send", 1),
}
"""Type -> (the peer's type, which stage the peer is: the next or the one before)."""
GATHER, SCATTER, LATE_GRADS = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
NORM_GRADS, EMBEDDING_GRADS = "layernorm-grads-all-reduce", "embedding-grads-all-reduce"
CLIP, OPTIMIZER, COLLECT = "optimizer-clip-main-grad", "optimizer", "gc"
ACROSS_REPLICAS = frozenset({GATHER, SCATTER, LATE_GRADS, CLIP})
COMMUNICATION = frozenset({*POINT_TO_POINT, *ACROSS_REPLICAS, NORM_GRADS, EMBEDDING_GRADS})
"""Types made equal by their median."""
TAIL = (COLLECT, NORM_GRADS, EMBEDDING_GRADS, SCATTER, LATE_GRADS, CLIP, OPTIMIZER)
"""What follows a stage's last computing, in this order."""
KNOWN = frozenset({FORWARD, BACKWARD, GATHER, *POINT_TO_POINT, *TAIL})

_CELLS = 4_000_000
"""Durations replayed at once: what bounds the memory (three arrays of 8 bytes each)."""


class OpRecords(Value, frozen=True, kw_only=True):
    """Operations of one job as columns of equal length. `kind` indexes `kinds`; `start_s` and `end_s` are
    seconds since any instant common to a step; `chunk` is the piece of the model in the order of the pipeline
    (0 to stages x pieces a stage - 1), -1 when not told."""

    step: I64
    replica: I32
    stage: I32
    rank: I32
    kind: I16
    kinds: tuple[str, ...]
    start_s: F64
    end_s: F64
    chunk: I32
    source: str = ""

    def __len__(self) -> int:
        return len(self.step)


class Grid(NamedTuple):
    """The records as arrays [operation of one pipeline, step, replica]. An operation (slot) is a type, its
    number in the step by start, and a stage."""

    kind_of: list[str]
    number_of: I64
    stage_of: I64
    chunk_of: I64
    start: F64s
    end: F64s
    steps: I64
    measured: F64
    replicas: int
    stages: int
    rank_of: I64
    used: int
    notes: tuple[str, ...]


def grid_of(records: OpRecords) -> Grid:
    """Whole steps only: a step whose operations differ from the usual ones is left out, with a note. Raises
    WellfedError when nothing whole is left."""
    notes: list[str] = []
    unknown = np.array([k not in KNOWN for k in records.kinds] or [False])
    foreign = np.unique(records.kind[unknown[records.kind]])
    keep = ~unknown[records.kind] & np.isfinite(records.start_s) & np.isfinite(records.end_s)
    keep &= (records.end_s >= records.start_s) & (records.replica >= 0) & (records.stage >= 0)
    if len(foreign):
        names = ", ".join(records.kinds[k] for k in foreign.tolist())
        notes.append(f"operations of unknown type are left out: {names}")
    if not keep.any():
        raise WellfedError(
            f"{records.source or 'the records'}: no operation of a known type",
            hint="the types are those of a 1F1B pipeline: " + ", ".join(sorted(KNOWN)[:4]) + "...",
        )
    steps, step = np.unique(records.step[keep], return_inverse=True)
    replica, stage = records.replica[keep].astype(np.int64), records.stage[keep].astype(np.int64)
    replicas, stages = int(replica.max()) + 1, int(stage.max()) + 1
    if len(steps) * replicas * stages > len(step):
        raise WellfedError(
            f"{records.source or 'the records'}: {len(step)} operations can't be {len(steps)} steps of "
            f"{replicas} replicas of {stages} stages",
            hint="number replicas and stages from 0, and record whole steps of each",
        )
    kind, start, end = records.kind[keep].astype(np.int64), records.start_s[keep], records.end_s[keep]
    chunk, rank = records.chunk[keep].astype(np.int64), records.rank[keep].astype(np.int64)
    worker = replica * stages + stage
    rank_of = np.full(replicas * stages, np.iinfo(np.int64).max)
    np.minimum.at(rank_of, worker, rank)
    first = rank == rank_of[worker]
    if not first.all():
        notes.append("of ranks that share a stage and a replica (tensor parallel) the first stands for all")
        step, replica, stage, kind = step[first], replica[first], stage[first], kind[first]
        start, end, chunk, worker = start[first], end[first], chunk[first], worker[first]

    cell = step * replicas + replica
    lane = (cell * stages + stage) * len(records.kinds) + kind
    by_start = np.argsort(start, kind="stable")
    number = np.empty(len(lane), np.int64)
    number[by_start] = turns(lane[by_start])
    label = (kind * stages + stage) * (int(number.max()) + 1) + number
    labels, slot = np.unique(label, return_inverse=True)
    cells = len(steps) * replicas
    usual = np.bincount(slot) > cells / 2
    has, odd = (np.bincount(cell[m], minlength=cells) for m in (usual[slot], ~usual[slot]))
    whole = ((has == usual.sum()) & (odd == 0)).reshape(len(steps), replicas).all(axis=1)
    if not whole.any():
        raise WellfedError(
            f"{records.source or 'the records'}: no step has the same operations in all {replicas} replicas",
            hint="record whole steps of every replica and stage",
        )
    if not whole.all():
        notes.append(f"{int((~whole).sum())} of {len(steps)} steps are left out: their operations differ")
    index = np.flatnonzero(usual)
    position = np.full(len(labels), -1)
    position[index] = np.arange(len(index))
    good = whole[step] & usual[slot]
    at = position[slot[good]], np.cumsum(whole)[step[good]] - 1, replica[good]
    shape = (len(index), int(whole.sum()), replicas)
    starts, ends = np.zeros(shape), np.zeros(shape)
    starts[at], ends[at] = start[good], end[good]
    one = np.zeros(len(labels), np.int64)
    one[slot] = np.arange(len(slot))  # any record of the slot tells its type, stage and piece
    one = one[index]
    return Grid(
        kind_of=[records.kinds[k] for k in kind[one].tolist()],
        number_of=number[one],
        stage_of=stage[one],
        chunk_of=chunk[one],
        start=starts,
        end=ends,
        steps=steps[whole],
        measured=ends.max(axis=(0, 2)) - starts.min(axis=(0, 2)),
        replicas=replicas,
        stages=stages,
        rank_of=rank_of.reshape(replicas, stages),
        used=int(good.sum()),
        notes=tuple(notes),
    )


class Item(NamedTuple):
    """Operations that end together (one, if it is computing), what each waits for, and whether all replicas
    take part."""

    members: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    across: bool


def plan_of(grid: Grid) -> list[Item]:
    """The dependencies of one pipeline, in an order in which they can be replayed."""
    slot = {
        (k, int(p), int(i)): s
        for s, (k, p, i) in enumerate(zip(grid.kind_of, grid.stage_of, grid.number_of, strict=True))
    }
    count: dict[tuple[str, int], int] = {}
    for k, p, i in slot:
        count[k, p] = max(count.get((k, p), 0), i + 1)
    when = np.median((grid.start - grid.start.min(axis=(0, 2), keepdims=True)).reshape(len(slot), -1), axis=1)
    after: list[set[int]] = [set() for _ in slot]
    together: list[tuple[int, ...]] = []

    def chain(ops: Sequence[int]) -> None:
        for before, op in itertools.pairwise(ops):
            after[op].add(before)

    def of(kind: str, stage: int) -> list[int]:
        return [slot[kind, stage, i] for i in range(count.get((kind, stage), 0))]

    def own_piece(s: int, kind: str, stage: int) -> list[int]:
        computing = of(kind, stage)
        return [c for c in computing if grid.chunk_of[c] == grid.chunk_of[s]] or computing

    for p in range(grid.stages):
        compute = sorted([*of(FORWARD, p), *of(BACKWARD, p)], key=lambda s: (when[s], s))
        chain(compute)
        gathers, scatters = of(GATHER, p), of(SCATTER, p)
        chain(gathers)
        overlapped = bool(of(LATE_GRADS, p))
        tail = [s for kind in TAIL for s in of(kind, p) if not (overlapped and kind == SCATTER)]
        chain([*compute[-1:], *tail])
        if overlapped:  # a piece's gradients are reduced as soon as its last backward is done
            chain([*gathers, *scatters])
            for s in scatters:
                after[s].update(own_piece(s, BACKWARD, p)[-1:])
            norm = of(NORM_GRADS, p)[:1] or tail[:1]
            if scatters and norm:
                after[norm[0]].add(scatters[-1])
        for s in gathers:
            for first in own_piece(s, FORWARD, p)[:1]:
                after[first].add(s)
        for kind in POINT_TO_POINT:
            chain(of(kind, p))
    together += _point_to_point(grid, slot, count, after)
    for name in (EMBEDDING_GRADS, CLIP):  # first and last stage, and all stages, end these together
        for i in range(max((n for (k, _), n in count.items() if k == name), default=0)):
            together.append(tuple(slot[name, q, i] for q in range(grid.stages) if (name, q, i) in slot))
    return _ordered(grid, after, together)


def _point_to_point(
    grid: Grid,
    slot: Mapping[tuple[str, int, int], int],
    count: Mapping[tuple[str, int], int],
    after: list[set[int]],
) -> list[tuple[int, ...]]:
    """Ties sends and receives to what they carry, and pairs them. The k-th send of a direction follows the
    k-th computing of it that has a next piece; the k-th receive comes before the k-th that has a piece before,
    and is posted once the computing before that one is done. Profilers also record sends and receives that
    were never launched: surplus sends are taken to be the first, surplus receives the last."""
    pieces = grid.stages * max(
        (int(grid.chunk_of[s]) // grid.stages + 1 for s in slot.values() if grid.chunk_of[s] >= 0), default=1
    )
    real: dict[tuple[str, int], list[int]] = {}
    for (kind, p), n in count.items():
        if kind not in POINT_TO_POINT:
            continue
        ops = [slot[kind, p, i] for i in range(n)]
        ahead = POINT_TO_POINT[kind][1]
        computing = FORWARD if kind.startswith("forward") else BACKWARD
        compute = [slot[computing, p, i] for i in range(count.get((computing, p), 0))]
        chunk = [int(grid.chunk_of[s]) if grid.chunk_of[s] >= 0 else p for s in compute]
        carried = [s for s, g in zip(compute, chunk, strict=True) if 0 <= g + ahead < pieces]
        surplus = max(len(ops) - len(carried), 0)
        ops = ops[surplus:] if kind.endswith("send") else ops[: len(ops) - surplus]
        if len(ops) < len(carried):
            raise WellfedError(
                f"stage {p} has {len(ops)} {kind} for {len(carried)} that its computing needs",
                hint="record whole steps of every stage",
            )
        for op, s in zip(ops, carried, strict=True):
            if kind.endswith("send"):
                after[op].add(s)
            else:
                after[s].add(op)
                place = compute.index(s)
                if place:
                    after[op].add(compute[place - 1])
        real[kind, p] = ops
    pairs: list[tuple[int, ...]] = []
    for (kind, p), ops in real.items():
        if not kind.endswith("send"):
            continue
        peer_kind, step = POINT_TO_POINT[kind]
        peers = real.get((peer_kind, (p + step) % grid.stages), [])
        if len(peers) != len(ops):
            raise WellfedError(
                f"stage {p} has {len(ops)} {kind}, its peer {len(peers)} {peer_kind}",
                hint="record whole steps of every stage",
            )
        pairs += list(zip(ops, peers, strict=True))
    return pairs


def _ordered(grid: Grid, after: list[set[int]], together: list[tuple[int, ...]]) -> list[Item]:
    """Kahn's order over operations joined by what ends together. Raises WellfedError on a cycle."""
    group = {s: g for g in together for s in g}
    items = [*together, *[(s,) for s in range(len(after)) if s not in group]]
    item_of = {s: n for n, members in enumerate(items) for s in members}
    waits = [{item_of[b] for s in members for b in after[s]} for members in items]
    follow: list[list[int]] = [[] for _ in items]
    for n, before in enumerate(waits):
        for b in before:
            follow[b].append(n)
    left = [len(w) for w in waits]
    ready = [n for n, w in enumerate(left) if not w]
    plan: list[Item] = []
    while ready:
        n = ready.pop()
        members = items[n]
        across = grid.kind_of[members[0]] in ACROSS_REPLICAS
        plan.append(Item(members, tuple(tuple(sorted(after[s])) for s in members), across))
        for f in follow[n]:
            left[f] -= 1
            if not left[f]:
                ready.append(f)
    if len(plan) < len(items):
        stuck = next(n for n, w in enumerate(left) if w)
        s = items[stuck][0]
        raise WellfedError(
            f"the order of the records contradicts itself at {grid.kind_of[s]} "
            f"{int(grid.number_of[s])} of stage {int(grid.stage_of[s])}",
            hint="the model is a 1F1B pipeline; other schedules can't be replayed",
        )
    return plan


def durations(grid: Grid, plan: Iterable[Item]) -> F64s:
    """Of computing end - start; of communication end - latest start among peers, never below 0."""
    length = grid.end - grid.start
    for item in plan:
        if len(item.members) > 1 or item.across:
            rows = list(item.members)
            latest = grid.start[rows].max(axis=0)
            if item.across:
                latest = np.broadcast_to(latest.max(axis=-1, keepdims=True), latest.shape)
            length[rows] = np.maximum(grid.end[rows] - latest, 0.0)
    return length


def equalised(grid: Grid, real: F64s) -> F64:
    """One duration for each operation: mean (computing) or median (communication) of its type."""
    ideal = np.zeros(len(grid.kind_of))
    kind = np.array(grid.kind_of)
    for name in set(grid.kind_of):
        rows = kind == name
        ideal[rows] = np.median(real[rows]) if name in COMMUNICATION else real[rows].mean()
    return ideal


class Scenarios:
    """Which durations stay as recorded: masks [operation, replica]."""

    def __init__(self, grid: Grid) -> None:
        self.shape = (len(grid.kind_of), grid.replicas)
        self.stage_of = grid.stage_of

    def all(self) -> Mask:
        return np.ones(self.shape, bool)

    def none(self) -> Mask:
        return np.zeros(self.shape, bool)

    def slots(self, which: Mask) -> Mask:
        return np.repeat(which[:, None], self.shape[1], axis=1)

    def replica(self, d: int) -> Mask:
        mask = self.none()
        mask[:, d] = True
        return mask

    def workers(self, which: Iterable[tuple[int, int]]) -> Mask:
        mask = self.none()
        for d, p in which:
            mask[self.stage_of == p, d] = True
        return mask


class Replay:
    """Replays the plan for many scenarios at once, arrays [scenario, step, replica] an operation."""

    def __init__(self, grid: Grid, plan: list[Item], real: F64s, ideal: F64) -> None:
        self.plan, self.ideal = plan, ideal
        self.over = real - ideal[:, None, None]
        self.last = [s for s, k in enumerate(grid.kind_of) if k == OPTIMIZER] or list(range(len(ideal)))
        self.used: dict[int, int] = {}
        for item in plan:
            for before in item.after:
                for s in before:
                    self.used[s] = self.used.get(s, 0) + 1

    def step_times(self, masks: Sequence[Mask]) -> F64s:
        """Step times in seconds, [scenario, step]."""
        slots, steps, replicas = self.over.shape
        at_once = max(1, _CELLS // max(slots * steps * replicas, 1))
        parts = [
            self._run(np.array(masks[n : n + at_once]), steps, replicas)
            for n in range(0, len(masks), at_once)
        ]
        return np.concatenate(parts)

    def _run(self, keep: Mask, steps: int, replicas: int) -> F64s:
        shape = (len(keep), steps, replicas)
        end: dict[int, F64s] = {}
        waiting = dict(self.used)
        done = np.zeros(shape)
        last = set(self.last)
        zero = np.zeros(shape)
        for item in self.plan:
            start = zero
            for before in item.after:
                for s in before:
                    start = np.maximum(start, end[s])
            if item.across:
                start = np.broadcast_to(start.max(axis=-1, keepdims=True), shape)
            for s in item.members:
                kept = keep[:, s, None, :]
                end[s] = start + self.ideal[s] + kept * self.over[s][None]
                if s in last:
                    done = np.maximum(done, end[s])
            for before in item.after:
                for s in before:
                    waiting[s] -= 1
                    if not waiting[s]:
                        del end[s]
        return np.asarray(done.max(axis=-1))
