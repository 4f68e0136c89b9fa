"""A command that was run and watched: what its ring files and samples say."""

from typing import Any

from wellfed.model.base import Value


class Spread(Value, frozen=True, kw_only=True):
    """Of `n` steps, in ms."""

    n: int
    mean: float
    median: float
    p10: float
    p90: float
    best: float


class SyncSite(Value, frozen=True, kw_only=True):
    """A line that waited for the GPU in the sampled steps: how often, and ms in all."""

    line: str
    count: int
    ms: float


class SlowStep(Value, frozen=True, kw_only=True):
    """A step of 1.5 times the median or more, `at_s` after the rank's start, and what went with it."""

    number: int
    at_s: float
    ms: float
    because: str


class Shift(Value, frozen=True, kw_only=True):
    """From step `number` on the median step was another (Pettitt's test, p below 0.001, and 5 % or more)."""

    number: int
    before_ms: float
    after_ms: float


class HookCost(Value, frozen=True, kw_only=True):
    """What our hooks cost a step, in us: blocks of 20 steps with them less neighbours without, `pairs` of these, with
    the interval at 95 %; None with the reason `why` when there were too few. `own_us` is their median time in a step by their own clock,
    a lower bound that the noise of steps does not reach."""

    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    pairs: int = 0
    why: str | None = None
    own_us: float | None = None


class RankRun(Value, frozen=True, kw_only=True):
    """One process that stepped. `clock` says what a step is; `steps` counts all, `step_ms` those after `warmup`, untraced and still in
    the ring. `wait_ms`, `gc_ms` (means a step) are of steps with hooks. `gpu_ms` is a step on the GPU, `gpu_gap_ms` what the GPU
    had nothing between two; None without. `ended` is False for one that was killed."""

    rank: int | None
    local_rank: int | None
    pid: int
    program: str
    python: str
    torch: str | None
    device: str | None
    loop: str | None
    clock: str
    steps: int
    warmup: int
    step_ms: Spread | None
    wait_ms: float | None
    gc_ms: float | None
    sync_ms: float | None
    gpu_ms: float | None
    gpu_gap_ms: float | None
    batches: int
    skipped_steps: int
    alloc_retries: int
    peak_gpu_bytes: int | None
    syncs: tuple[SyncSite, ...] = ()
    slow: tuple[SlowStep, ...] = ()
    slow_n: int = 0
    shift: Shift | None = None
    hooks: HookCost = HookCost()
    ended: bool = False
    ended_by: str | None = None
    trace: str | None = None
    lost: str | None = None
    wait_elsewhere_ms: float | None = None
    """A step's share of what another thread waited for the loader: `wait_ms` is then not known."""


class RunReport(Value, frozen=True, kw_only=True):
    """`exit` holds code, signal and reason; None when wellfed was killed too. `samples` sums up what was read once a second."""

    command: tuple[str, ...]
    started: str | None
    seconds: float | None
    exit: dict[str, Any] | None
    ranks: tuple[RankRun, ...]
    samples: dict[str, Any] = {}
    processes: int = 0
    unread: int = 0
    """Ring files in which nothing could be read."""
    failures: tuple[str, ...] = ()
