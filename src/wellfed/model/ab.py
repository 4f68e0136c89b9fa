"""Two commands, run in turn, and whether the second differs."""

from typing import Literal

from wellfed.model.base import Value

AbVerdict = Literal["better", "worse", "no difference", "undecided"]


class Run(Value, frozen=True, kw_only=True):
    """One run: `which` (`A` or `B`), its `value` of the metric, wall `seconds`, and when it began, in s since the first."""

    which: Literal["A", "B"]
    value: float
    seconds: float
    at_s: float


class Decision(Value, frozen=True, kw_only=True):
    """`ratio` is B over A of the metric, with the interval `low` to `high` that holds the true one with `confidence`, however
    often it was looked before (None: too few pairs for that), and `bootstrap` beside it. `within` is the interval that must lie
    within what matters for `no difference` to be said, of `within_confidence` at this look alone. `n` counts pairs. `ruled_out` is
    the difference (as a fraction) that `no difference` rules out."""

    ratio: float
    low: float | None
    high: float | None
    bootstrap: tuple[float, float] | None
    verdict: AbVerdict
    n: int
    confidence: float
    ruled_out: float
    within: tuple[float, float] | None = None
    within_confidence: float = 0.98


class AbResult(Value, frozen=True, kw_only=True):
    """`warmup` holds the runs that do not count. `noise` is what disturbed the whole, `spread_pct` the middle 80 % of A's and of
    B's runs, over their median."""

    a: str
    b: str
    metric: str
    unit: str
    higher_is_better: bool
    decision: Decision
    median_a: float
    median_b: float
    spread_pct: tuple[float, float]
    runs: tuple[Run, ...]
    warmup: tuple[Run, ...] = ()
    noise: dict[str, float] = {}
    seconds: float = 0.0
    stopped: str = ""
