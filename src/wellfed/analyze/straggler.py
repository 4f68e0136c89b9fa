"""What stragglers cost a pipeline: replay a step with some operations made equal, and compare.

The definitions are those of *Understanding Stragglers in Large Model Training Using What-if Analysis*
(J. Lin et al., OSDI 2025). A job of `D` data-parallel replicas of `P` pipeline stages runs the same
operations each step; one operation is (type t, number in the step, stage p, replica d, step n).

- duration of an operation: of computing, end - start. Of communication, only the *transfer*: end - (latest
  start among its peers), so that waiting for a peer is never counted as work.
- `T`: mean step time when the recorded durations are replayed through the dependencies, launch delays left out.
- `T_ideal`: the same with every duration made equal for its type: the mean of a type of computing, the median
  of a type of communication (whose slow tail is network trouble, not work).
- Eq. 1: `S = T / T_ideal`, the slowdown.
- Eq. 2: `S_t = T_ideal^(-t) / T_ideal`, where `T_ideal^(-t)` keeps the recorded durations of type t alone. The
  same with one stage, one replica or one worker `w = (d, p)` in place of the type (Eq. 4 bounds `S_w` by the
  smaller of its replica's and its stage's; here it is replayed as long as there are few enough workers).
- Eq. 5: `M_W = (T - T^W) / (T - T_ideal)`: the share of the loss that goes when only the slowest 3 % of the
  workers (at least one) are made equal. `M_S`: the same with the last stage.
"""

from collections.abc import Sequence

import numpy as np

from wellfed.analyze.pipeline import (
    BACKWARD,
    FORWARD,
    POINT_TO_POINT,
    F64s,
    Grid,
    OpRecords,
    Replay,
    Scenarios,
    durations,
    equalised,
    grid_of,
    plan_of,
)
from wellfed.model.ranks import Stragglers, Worker
from wellfed.model.timeline import F64

SLOWEST_PERCENT = 3
"""Eq. 5: how many of the workers M_W makes equal, in percent, rounded up."""
NAMED_FROM = 0.5
"""One worker or one stage is named when it alone explains this share of the loss (the paper's reading of
M_W and M_S)."""
STRAGGLING_FROM = 1.1
"""From this slowdown on the paper calls a job straggling."""
MAX_WORKERS_REPLAYED = 256


def study_stragglers(records: OpRecords) -> Stragglers:
    """The what-if of the paper over these records. Raises WellfedError when they hold no whole step or their
    order contradicts a pipeline's."""
    grid = grid_of(records)
    plan = plan_of(grid)
    real = durations(grid, plan)
    ideal = equalised(grid, real)
    scenarios = Scenarios(grid)
    replay = Replay(grid, plan, real, ideal)

    kinds = sorted({_merged(k) for k in grid.kind_of})
    merged = np.array([_merged(k) for k in grid.kind_of])
    stages, replicas = range(grid.stages), range(grid.replicas)
    masks = [scenarios.all(), scenarios.none()]
    masks += [scenarios.slots(merged == k) for k in kinds]
    masks += [scenarios.slots(grid.stage_of == p) for p in stages]
    masks += [scenarios.replica(d) for d in replicas]
    times = replay.step_times(masks)
    t, t_ideal = times[0].mean(), times[1].mean()
    slow = times[2:].mean(axis=1) / t_ideal
    by_kind = dict(zip(kinds, slow[: len(kinds)].tolist(), strict=True))
    by_stage = dict(zip(stages, slow[len(kinds) : len(kinds) + grid.stages].tolist(), strict=True))
    by_replica = dict(zip(replicas, slow[len(kinds) + grid.stages :].tolist(), strict=True))

    pairs = [(d, p) for d in replicas for p in stages]
    bound = {(d, p): min(by_replica[d], by_stage[p]) for d, p in pairs}
    if len(pairs) <= MAX_WORKERS_REPLAYED:
        alone = replay.step_times([scenarios.workers([w]) for w in pairs]).mean(axis=1) / t_ideal
        scores = dict(zip(pairs, alone.tolist(), strict=True))
    else:
        scores = bound
    order = sorted(pairs, key=lambda w: (-bound[w], w))
    slowest = order[: -(-len(pairs) * SLOWEST_PERCENT // 100)]
    cured = replay.step_times(
        [
            scenarios.all() & ~scenarios.workers(slowest),
            scenarios.all() & ~scenarios.workers(slowest[:1]),
            *[scenarios.all() & ~scenarios.slots(grid.stage_of == p) for p in stages],
        ]
    ).mean(axis=1)
    loss = t - t_ideal
    shares = ((t - cured) / loss).tolist() if loss > 1e-9 * t_ideal else []
    stage_share = dict(zip(stages, shares[2:], strict=True)) if shares else {}

    slowdown = float(t / t_ideal)
    straggling = slowdown >= STRAGGLING_FROM
    return Stragglers(
        steps=len(grid.steps),
        replicas=grid.replicas,
        stages=grid.stages,
        records=grid.used,
        left_out=len(records) - grid.used,
        measured_s=float(grid.measured.mean()),
        replayed_s=float(t),
        ideal_s=float(t_ideal),
        slowdown=slowdown,
        error=float(grid.measured.mean() / t - 1.0),
        by_kind=_falling(by_kind),
        by_stage=by_stage,
        by_replica=by_replica,
        workers=tuple(
            Worker(replica=d, stage=p, rank=int(grid.rank_of[d, p]), slowdown=scores[d, p])
            for d, p in sorted(pairs, key=lambda w: (-scores[w], w))
        ),
        worker_share=shares[0] if shares else None,
        slowest_share=shares[1] if shares else None,
        stage_share=stage_share,
        by_step=dict(zip(grid.steps.tolist(), (times[0] / times[1]).tolist(), strict=True)),
        bubble=_bubble(grid, real, times[0]),
        bubble_ideal=_bubble(grid, ideal, times[1]),
        straggling=straggling,
        culprit=_culprit(slowest[0], shares, grid) if straggling and shares else None,
        notes=grid.notes,
    )


def _merged(kind: str) -> str:
    """Send and receive are two sides of one transfer."""
    if kind in POINT_TO_POINT:
        return "forward-pp-comm" if kind.startswith("forward") else "backward-pp-comm"
    return kind


def _falling(table: dict[str, float]) -> dict[str, float]:
    return dict(sorted(table.items(), key=lambda kv: (-kv[1], kv[0])))


def _bubble(grid: Grid, lengths: F64s, step_times: F64) -> float:
    """The share of the compute streams' time in which they compute nothing."""
    rows = np.array([k in (FORWARD, BACKWARD) for k in grid.kind_of])
    if lengths.ndim == 1:
        busy = float(lengths[rows].sum()) * len(grid.steps)
    else:
        busy = float(lengths[rows].sum()) / grid.replicas
    return 1.0 - busy / (float(step_times.sum()) * grid.stages)


def _culprit(slowest: tuple[int, int], shares: Sequence[float], grid: Grid) -> dict[str, int] | None:
    """The one worker, else the one stage, that explains half of the loss. `shares`: of the slowest workers
    (M_W), of the slowest alone, of each stage. With a single replica a worker can't be told from its stage,
    and the stage is named."""
    by_stage = shares[2:]
    if shares[1] >= NAMED_FROM and (grid.replicas > 1 or grid.stages == 1):
        d, p = slowest
        return {"replica": d, "stage": p, "rank": int(grid.rank_of[d, p])}
    stage = int(np.argmax(by_stage))
    return {"stage": stage} if by_stage[stage] >= NAMED_FROM else None
