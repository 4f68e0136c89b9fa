"""What a change of the machine was worth here: measured with it and without, in turn."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from wellfed.model.base import Value

EffectVerdict = Literal["better", "worse", "none", "noisy"]
"""none: no effect that matters was seen, and one is ruled out beyond `low` and `high`. noisy: the machine varies too
much by itself to tell."""


class Effect(Value, frozen=True, kw_only=True):
    """`ratio` is the cost with the change over the cost without it, so below 1 is better; `low` and `high` hold it
    with `confidence`, None when there are too few quadruples. `n` quadruples were measured; `dead_band` is the
    ratio, above 1, that was needed to be called an effect."""

    ratio: float
    low: float | None
    high: float | None
    verdict: EffectVerdict
    n: int
    dead_band: float
    confidence: float


ProofOutcome = Literal["kept", "put-back", "already", "failed", "unmeasured"]
"""put-back: measured, not better. failed: the knob refused, the measurement did, or somebody else changed the knob
meanwhile. unmeasured: no measurement is linked to it; untouched."""


class Proof(Value, frozen=True, kw_only=True):
    """What became of one change that was to be proved. `before` and `after` are the medians of the cost in `unit`
    (lower is better) without the change and with it; `measured_by` names the measurement. `note` says why, where
    there is something to say. `target` is as it was asked for: it may stand for several knobs."""

    code: str
    kind: str
    target: str
    new: str
    old: str | None = None
    outcome: ProofOutcome
    measured_by: str | None = None
    unit: str | None = None
    before: float | None = None
    after: float | None = None
    effect: Effect | None = None
    seconds: float = 0.0
    note: str | None = None
    txid: str = ""


class Meter(NamedTuple):
    """A measurement of one phase: `run` takes about `seconds` and returns a cost in `unit`, lower is better. It must
    start afresh each time: what a process has already mapped does not feel the change."""

    id: str
    unit: str
    seconds: float
    run: Callable[[], float]
