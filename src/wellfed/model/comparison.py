"""Two recordings of one kind of work side by side. Times are integer ns of one step (of the whole capture where a
recording has no steps), and each list of deltas sums to the delta of its total exactly."""

from typing import Literal

from wellfed.model.base import Value

Basis = Literal["unprofiled", "recorded", "capture"]
Presence = Literal["both", "new", "gone", "unlisted"]


class StepTime(Value, frozen=True, kw_only=True):
    """Time of a step: the one nobody recorded, as the replay has it (`unprofiled`), or the median as `recorded`.
    The interval is the replay's, widened by what steps of one recording differ; None where nothing tells it. For a
    whole `capture` the length of that."""

    ns: int
    low_ns: int | None = None
    high_ns: int | None = None
    steps: int = 0


class Delta(Value, frozen=True, kw_only=True):
    """One part in both: `delta_ns` is b less a."""

    name: str
    a_ns: int
    b_ns: int
    delta_ns: int


class WorkDelta(Value, frozen=True, kw_only=True):
    """GPU events of one operator, kernel or family: counts a step, added-up durations. `presence` is `unlisted` where
    one recording's list is too short to say that it has none. `kernels` are the longest that ran under the name."""

    name: str
    a_ns: int
    b_ns: int
    delta_ns: int
    a_count: float
    b_count: float
    presence: Presence = "both"
    a_kernels: tuple[str, ...] = ()
    b_kernels: tuple[str, ...] = ()


class Promise(Value, frozen=True, kw_only=True):
    """A finding of A with a predicted gain, and what B says of it. Costs in `cost_unit`, None when not known."""

    code: str
    name: str
    state: Literal["cured", "found", "not-judged"]
    speedup: float
    low: float
    high: float
    cost_unit: str = ""
    a_cost: float | None = None
    b_cost: float | None = None


class RankComparison(Value, frozen=True, kw_only=True):
    """One rank and device in both. `speedup` is a's step over b's, None where steps can't be compared; its interval
    is of what recording may have cost each, of what their steps differ by, and of what two runs of one loop do.
    `identical`: both are one and the same recording. `idle` sums to the budget's idle. `predicted` (low, high) is what
    curing all that was cured was to bring; `held` says where the achieved speed-up lies by that, `open` where its own
    interval does not tell it from no change."""

    rank: int | None = None
    device: int | None = None
    a_gpu: str | None = None
    b_gpu: str | None = None
    basis: Basis
    identical: bool = False
    a: StepTime
    b: StepTime
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    budget: tuple[Delta, ...] = ()
    idle: tuple[Delta, ...] = ()
    a_launches: float | None = None
    b_launches: float | None = None
    work_by: Literal["operator", "kernel", "family"] | None = None
    work: tuple[WorkDelta, ...] = ()
    kernels: tuple[WorkDelta, ...] = ()
    promises: tuple[Promise, ...] = ()
    predicted: tuple[float, float] | None = None
    held: Literal["within", "less", "more", "open"] | None = None
    notes: tuple[str, ...] = ()


class Comparison(Value, frozen=True, kw_only=True):
    """`a` and `b` name what was compared. `only_a` and `only_b` are ranks that the other does not have."""

    schema: int = 1
    made_by: str = ""
    a: str
    b: str
    headline: str = ""
    ranks: tuple[RankComparison, ...] = ()
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
