"""What a trace says of one rank and device: the saved, serialisable side of a Timeline.

All times are integer nanoseconds. `Budget` and `idle` reconcile exactly: span = compute + exposed comm +
exposed copy + idle, and the idle causes sum to idle.
"""

from typing import Any

from wellfed.model.base import Value


class Budget(Value, frozen=True, kw_only=True):
    """Where a device's time went. Unions over all streams of the device; `exposed_comm_ns` is
    communication outside compute, `exposed_copy_ns` memcpy and memset outside compute and communication."""

    span_ns: int
    compute_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int


class StepBudget(Value, frozen=True, kw_only=True):
    """Medians over `n` whole steps, the profiler's own cost taken off. Medians are taken of each part, then
    scaled so that the parts sum to the span."""

    n: int
    span_ns: int
    compute_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int
    traced_span_ns: int | None = None


class Step(Value, frozen=True, kw_only=True):
    """One step as the host annotated it (or as it recurs on the GPU), absolute trace time."""

    name: str
    start_ns: int
    end_ns: int


class TraceWarning(Value, frozen=True, kw_only=True):
    """Something about the file that weakens numbers: `weakens` names them."""

    code: str
    count: int
    sample: str = ""
    weakens: str = ""


class KernelRow(Value, frozen=True, kw_only=True):
    name: str
    kind: str
    count: int
    total_ns: int
    median_ns: int


class WorkRow(Value, frozen=True, kw_only=True):
    """GPU events launched by operators of one name (`op` is "" when none is known) under one plain kernel name;
    `kind` is kernel, memcpy or memset."""

    op: str
    kernel: str
    family: str
    kind: str
    count: int
    total_ns: int


class StepWork(Value, frozen=True, kw_only=True):
    """All that `steps` steps launched on the device (0: no steps, the whole capture). Durations are added up, also
    where streams overlap. The rows and the rest sum to `count` and `total_ns` exactly."""

    steps: int
    launches: int
    count: int
    total_ns: int
    rows: tuple[WorkRow, ...] = ()
    rest_count: int = 0
    rest_ns: int = 0


class Strip(Value, frozen=True, kw_only=True):
    """One typical step in `bins` of equal length: for each lane (compute, comm, copy, idle) the per cent of each bin
    that it takes. `start_ns` is since the file's first event."""

    name: str
    start_ns: int
    span_ns: int
    lanes: dict[str, tuple[int, ...]]


class OpRoof(Value, frozen=True, kw_only=True):
    """Calls of one operator with the same arguments, under the roof: what they must do at least (per call), how fast
    their kernels did it, and what the device could. Times in ns; of a step where there are steps, else of the whole
    capture. `flops_per_call` is 0 where only bytes move. `roof_flops_per_s` and `of_roof_pct` are None when no ceiling
    is known for the `precision`. `bound` is compute, memory, or latency (a kernel too short to be either).
    `above_roof_ns` is the time that the roof would not need."""

    op: str
    shapes: str
    family: str
    precision: str | None = None
    calls: float
    kernel_ns: float
    flops_per_call: float
    bytes_per_call: float
    flops_per_byte: float
    achieved_flops_per_s: float
    achieved_bytes_per_s: float
    roof_flops_per_s: float | None = None
    roof_ns: float | None = None
    of_roof_pct: float | None = None
    bound: str | None = None
    above_roof_ns: float | None = None


class Roofline(Value, frozen=True, kw_only=True):
    """The operators of a rank under its roofs. `flops_per_s` by precision and `bytes_per_s` are the ceilings,
    `source` where they are from; None: the GPU is not known. `covered_ns` of `kernel_ns` is the kernel time that has a
    formula: the rest has no number. `rows` by time above the roof."""

    flops_per_s: dict[str, float] = {}
    bytes_per_s: float | None = None
    source: str = ""
    kernel_ns: float = 0.0
    covered_ns: float = 0.0
    rows: tuple[OpRoof, ...] = ()


class RankTrace(Value, frozen=True, kw_only=True):
    """One rank and device. `budget` is None when the file holds no GPU event. `step_idle` has the causes of
    `step_budget.idle_ns`; `step_cpu_comm_ns` of its `dependency-wait` is waiting for collectives that run on the CPU
    (Gloo, MPI). `step_parts` has one row a step for pictures: name, span and parts in ns; `strip` is one of them in time.
    `work` is what the steps had the device do, `roofline` how near its operators are to what the device can (None: no
    shapes were recorded)."""

    rank: int | None = None
    device: int | None = None
    gpu: str | None = None
    source: str = ""
    steps: tuple[Step, ...] = ()
    step_source: str | None = None
    budget: Budget | None = None
    idle: dict[str, int] = {}
    step_budget: StepBudget | None = None
    step_idle: dict[str, int] = {}
    step_parts: tuple[dict[str, Any], ...] = ()
    gpu_events: int = 0
    comm_ns: int = 0
    comm_overlapped_ns: int = 0
    step_cpu_comm_ns: int = 0
    kernels: tuple[KernelRow, ...] = ()
    comm: tuple[dict[str, Any], ...] = ()
    ops: tuple[dict[str, Any], ...] = ()
    replay: dict[str, Any] = {}
    work: StepWork | None = None
    strip: Strip | None = None
    roofline: Roofline | None = None
