"""What tuning a data loader found: settings, probes of them, stages of a sample, budgets."""

from typing import Any, Literal

from wellfed.model.base import Value
from wellfed.model.verdict import Verdict

ProbeState = Literal["measured", "rejected", "failed"]


class LoaderSetting(Value, frozen=True, kw_only=True):
    """Arguments of a DataLoader. `prefetch` is None without workers, `context` None for the default of the system."""

    workers: int
    prefetch: int | None = None
    pin_memory: bool = False
    persistent: bool = False
    context: str | None = None
    in_order: bool = True


class LoaderProbe(Value, frozen=True, kw_only=True):
    """Samples a second of one setting: `predicted` by the model before it was measured, `measured` (median of `n` blocks,
    interleaved with the other settings) within [`low`, `high`] at 95 %. `start_s` is the time to the first batch, `wait`
    the share of the time that the consumer waited, `ready` the share of batches that were there when asked for, `sawtooth` the
    autocorrelation of the waits at a lag of one turn of the workers, `turn_s` the wait for the first batch of a later epoch.
    `worker_bytes` is private memory of one worker, `growth_bytes` how much it grows by a sample."""

    setting: LoaderSetting
    state: ProbeState = "measured"
    why: str | None = None
    predicted: float | None = None
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    batches: int = 0
    seconds: float = 0.0
    start_s: float | None = None
    wait: float | None = None
    ready: float | None = None
    sawtooth: float | None = None
    turn_s: float | None = None
    main_cpu_s: float | None = None
    worker_bytes: int | None = None
    growth_bytes: float | None = None


class LoaderStages(Value, frozen=True, kw_only=True):
    """Seconds a batch in one process without workers, with one thread. `fetch_s` is all of reading and transforming the
    samples, `fetch_cpu_s` the CPU time in it; the rest was waiting. `read_s`, `decode_s`, `sleep_s` are C calls in it, from a
    pass with a profiling hook; None when that could not be made. `ipc_s` is what the way through a worker adds, `main_cpu_s`
    the CPU time of the main process to receive. `gil` is the share of a sample's CPU time that holds the GIL."""

    batches: int
    batch_samples: float
    batch_bytes: int
    tensors: int
    pipe_bytes: int
    arrays: int
    fetch_s: float
    fetch_cpu_s: float
    collate_s: float
    sample_p50_s: float | None = None
    sample_p99_s: float | None = None
    read_s: float | None = None
    decode_s: float | None = None
    sleep_s: float | None = None
    transforms: dict[str, float] = {}
    ipc_s: float | None = None
    main_cpu_s: float | None = None
    as_tensors_s: float | None = None
    as_arrays_s: float | None = None
    pin_s: float | None = None
    pageable_s: float | None = None
    pinned_s: float | None = None
    device: str | None = None
    gil: float | None = None
    hidden_cpu: float = 0.0
    threads: int = 1
    reads: float | None = None
    read_bytes: float | None = None
    disk_bytes: float | None = None

    @property
    def wall_s(self) -> float:
        return self.fetch_s + self.collate_s

    @property
    def cpu_s(self) -> float:
        """CPU time of a batch in a worker, hidden pools with it."""
        return self.fetch_cpu_s * (1 + self.hidden_cpu) + self.collate_s


class LoaderBudget(Value, frozen=True, kw_only=True):
    """`cores` are those this rank may use, `measured` how many cores' worth of work were got done on them at once before the
    probes, `measured_after` behind them. Bytes of memory and of `/dev/shm`, and file descriptors, that loading may take; None:
    not known. `ram_peak` and `shm_peak` are the most that the probes took."""

    cores: float
    measured: float | None = None
    measured_after: float | None = None
    local_ranks: int = 1
    ram_bytes: int | None = None
    ram_why: str = ""
    shm_bytes: int | None = None
    descriptors: int | None = None
    ram_peak: int = 0
    shm_peak: int = 0


class LoaderResult(Value, frozen=True, kw_only=True):
    """`rate` and all rates are samples a second. `chosen` are the arguments to use, `current` those the user has (None when
    a dataset was given), `demand` what the accelerator eats, `ceiling` what the model says no number of workers can pass and
    `limit` what sets it. `headspace` is the most that any change of the loader can bring: the rate at which finished batches
    are received (or the demand), by the rate of the current setting."""

    target: str
    dataset: str
    kind: str
    length: int | None
    batch_size: float
    chosen: dict[str, Any]
    rate: float | None
    current: dict[str, Any] | None
    current_rate: float | None
    demand: float | None
    headspace: float | None
    ceiling: float | None
    limit: str
    next: str
    stages: LoaderStages
    budget: LoaderBudget
    probes: tuple[LoaderProbe, ...]
    verdicts: tuple[Verdict, ...] = ()
    confidence: Literal["high", "medium", "low"] = "medium"
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    accuracy: float | None = None
    seconds: float = 0.0
    software: dict[str, str] = {}
