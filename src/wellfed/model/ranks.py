"""What many ranks say together: the saved side of their matched collectives, and of a pipeline's records.

All times are integer nanoseconds unless a name says otherwise. Clocks differ from rank to rank: what is compared
across ranks is on the reference's clock.
"""

from typing import Literal

from wellfed.model.base import Value

LimitKind = Literal["latency", "bandwidth", "straggler", "path", "contention", "unclear"]


class Refusal(Value, frozen=True, kw_only=True):
    """Calls that could not be matched: `calls` of all ranks together, and why."""

    group: str
    calls: int
    reason: str


class Clock(Value, frozen=True, kw_only=True):
    """How far a rank's clock is ahead of the reference's: `offset_ns` at `at_ns` (the rank's own time, middle
    of what was compared), growing by `drift_ppm` millionths. `residual_ns` is the typical distance that is
    left (median), over `calls` calls. `reference` is the rank that counts as right; itself when it could be
    compared with nobody, and then `calls` is 0."""

    rank: int
    reference: int
    offset_ns: int
    drift_ppm: float
    at_ns: int
    residual_ns: float
    calls: int


class RanksWhatIf(Value, frozen=True, kw_only=True):
    """`measured_ns` is the time from the first call to the end of the last, `equal_ns` what it would be with
    equal ranks; `slowdown` their ratio. `alone` is the slowdown that one rank's own work makes (1.0: none),
    `transfers` the one that transfers make which take longer than the median of those alike. `without` is the
    share of the loss that goes when one rank works like its peers, `gain` the speed-up of the run then.
    `own_excess` is a rank's own work over the mean of it and its peers, less 1, and `own_score` by how many
    standard errors it exceeds the others' (both without ranks that have no peers). `cures` is the speed-up of the run
    when ranks spend less on their own work, by the code of the finding that says so; `links` the one when transfers
    take no longer than their links need (None: no curve is known), `hidden` the one when no transfer is exposed
    (waiting stays). `calls` were replayed. All empty, with `refused`
    saying why, when the calls don't make a replay."""

    calls: int = 0
    measured_ns: int = 0
    equal_ns: int = 0
    slowdown: float = 1.0
    transfers: float = 1.0
    alone: dict[int, float] = {}
    without: dict[int, float] = {}
    gain: dict[int, float] = {}
    own_ns: dict[int, int] = {}
    own_excess: dict[int, float] = {}
    own_score: dict[int, float] = {}
    cures: dict[str, float] = {}
    links: float | None = None
    hidden: float = 1.0
    refused: str | None = None


class Limit(Value, frozen=True, kw_only=True):
    """Which limit `n` calls run into, and the figures that say so: the ratio of time to expected time (10th,
    50th, 90th percentile), the share of the time above the expected, the median size and the half-bandwidth
    size in bytes. `why` says what it is that keeps an unclear one so."""

    kind: LimitKind
    n: int
    ratio: tuple[float, float, float]
    excess_share: float
    median_bytes: float
    half_bytes: float
    why: str | None = None


class RankWait(Value, frozen=True, kw_only=True):
    """One rank's matched calls: time in them, of which waiting and transfer (sum exactly), the waiting that
    durations alone prove, and waiting that nothing hid (low, expected, high). `last` is the share of the calls
    with a real wait in which this rank came last; `caused_ns` what the others waited for it then. `pair_wait_ns`
    is the waiting in sends and receives: the bubble of a pipeline, as far as it lies in their kernels. `own_ns`
    and `own_excess` are its work between calls and how much that is above its peers' (None: not known)."""

    rank: int
    calls: int
    comm_ns: int
    wait_ns: int
    transfer_ns: int
    clock_free_wait_ns: int
    exposed_ns: int
    exposed_wait_ns: tuple[int, int, int]
    last: float
    caused_ns: int
    pair_wait_ns: int = 0
    own_ns: int | None = None
    own_excess: float | None = None


class StepWait(Value, frozen=True, kw_only=True):
    """One step: mean, largest and least waiting of a rank in it, and who caused most of it (None: nobody).
    `by_rank` has each rank's, in the order of the study's ranks, -1 for one without a call; empty where that
    would be too much for a picture."""

    step: int
    mean_wait_ns: int
    max_wait_ns: int
    min_wait_ns: int
    last_rank: int | None
    by_rank: tuple[int, ...] = ()


class SizeRow(Value, frozen=True, kw_only=True):
    """Calls of one operation, group size and message size. The time of a call is the shortest of its ranks,
    which is its transfer; with `seen` ranks fewer than `ranks` it may still hold a wait. Bandwidths in bytes/s
    from the median; `expected_ns` from a curve, None without one."""

    op: str
    ranks: int
    seen: int
    size: int
    calls: int
    median_ns: int
    p10_ns: int
    p90_ns: int
    alg_bytes_s: float | None
    bus_bytes_s: float | None
    expected_ns: int | None = None


class RankStraggler(Value, frozen=True, kw_only=True):
    """The rank that holds up the others, among the `of` ranks at hand. `by` says what named it. `speedup` is what the run gains when its
    work is like its peers' (None: no replay)."""

    rank: int
    of: int
    by: Literal["waiting", "replay"]
    last: float
    wait_share: float
    cost_share: float
    caused_ns: int
    own_excess: float | None
    speedup: float | None


class RanksStudy(Value, frozen=True, kw_only=True):
    """What the ranks say together. `wait_share` is the waiting in all communication, `cost_share` the waiting
    in the whole time of all ranks. `uneven` says that ranks wait much for each other without one to blame. `links` are
    the links that `limits` compares with, by the same `operation/ranks`; `links_unknown` says why others have none."""

    ranks: tuple[int, ...]
    world: int | None
    calls: int
    matched: int
    matched_by: dict[str, int]
    refused: tuple[Refusal, ...]
    clocks: tuple[Clock, ...]
    waits: tuple[RankWait, ...]
    steps: tuple[StepWait, ...]
    sizes: tuple[SizeRow, ...]
    limits: dict[str, Limit]
    links: dict[str, str] = {}
    links_unknown: tuple[str, ...] = ()
    wait_share: float
    cost_share: float
    straggler: RankStraggler | None
    uneven: bool
    what_if: RanksWhatIf
    notes: tuple[str, ...]


class Worker(Value, frozen=True, kw_only=True):
    """One worker, and the slowdown that its own durations alone make (1.0: none)."""

    replica: int
    stage: int
    rank: int
    slowdown: float


class Stragglers(Value, frozen=True, kw_only=True):
    """What stragglers cost. Times are seconds a step, means over `steps` steps. `slowdown` is S (Eq. 1);
    `by_kind`, `by_stage`, `by_replica` are Eq. 2 with those parts; `workers` come slowest first. Then
    what making a part equal gives back, as a share of the loss (above 1 where it also repairs the schedule):
    `worker_share` is M_W, `slowest_share` the slowest worker alone, `stage_share` each stage; None or empty
    where nothing is lost. `error` is the measured step over the replayed one, less 1: what the dependencies
    leave out. `bubble` is the idle share of the compute streams, `bubble_ideal` what equal work would leave
    of it. `culprit` is None where neither one worker nor one stage explains half of the loss, or where there
    is little of it."""

    steps: int
    replicas: int
    stages: int
    records: int
    left_out: int
    measured_s: float
    replayed_s: float
    ideal_s: float
    slowdown: float
    error: float
    by_kind: dict[str, float]
    by_stage: dict[int, float]
    by_replica: dict[int, float]
    workers: tuple[Worker, ...]
    worker_share: float | None
    slowest_share: float | None
    stage_share: dict[int, float]
    by_step: dict[int, float]
    bubble: float
    bubble_ideal: float
    straggling: bool
    culprit: dict[str, int] | None
    notes: tuple[str, ...] = ()

    @property
    def last_stage_share(self) -> float | None:
        """M_S: None where nothing is lost."""
        return self.stage_share.get(self.stages - 1)
