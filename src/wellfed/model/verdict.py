"""What a check says: pass, finding or not judged, with evidence, cost, gain and remedy."""

from typing import Any, Literal

from wellfed.model.base import Value
from wellfed.model.change import Risk

Severity = Literal["info", "warning", "error"]
Basis = Literal["measured", "modelled", "literature", "none"]
SEVERITY_ORDER: dict[str, int] = {"info": 0, "warning": 1, "error": 2}
RATIO_PROMISE = 20.0
"""Above this a speed-up is no promise; the time saved is (DESIGN)."""


class Evidence(Value, frozen=True, kw_only=True):
    """Followable home: `source` is a file, command or catalogue row; `at` the place in it (a time, a line,
    a fact key); `text` what stands there."""

    source: str
    at: str | None = None
    text: str = ""


class Cost(Value, frozen=True, kw_only=True):
    """What the fault takes now. `usd_per_day` is None when no price is known; `why` then says so."""

    value: float | None = None
    unit: str = ""
    usd_per_day: float | None = None
    price_usd_gpu_h: float | None = None
    gpus: int = 1
    why: str | None = None


class Gain(Value, frozen=True, kw_only=True):
    """A ceiling on what the cure brings: `speedup` = old time / new time of the *unprofiled* step, within
    [`low`, `high`] at 80 %. Gains compose (`predict.compose`), they never add. `next` names what limits once
    this is cured. Above `RATIO_PROMISE` the ratio is no promise: `saves_ms` per step is. None fields: not known."""

    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    basis: Basis = "none"
    measured_in: str = "step time"
    saves_ms: float | None = None
    next: str | None = None
    source: str | None = None


class Alternative(Value, frozen=True, kw_only=True):
    """Another cure of the same cause."""

    remedy: str
    gain: Gain | None = None
    risk: Risk = "safe"


class Verdict(Value, frozen=True, kw_only=True):
    """`message` is one sentence for a person. For `not-judged`, `reason` is a slug (`no-fact`, `denied`,
    `not-applicable`, `intent`, `no-gpu-event`...) and `message` says why in words. `where` holds rank,
    device, gpu, nic... as far as they apply. `causes` are codes of findings that this one is a symptom of."""

    code: str
    name: str
    verdict: Literal["pass", "finding", "not-judged"]
    severity: Severity = "info"
    message: str = ""
    reason: str | None = None
    layer: str = ""
    where: dict[str, Any] = {}
    evidence: tuple[Evidence, ...] = ()
    cost: Cost | None = None
    gain: Gain | None = None
    remedy: str | None = None
    risk: Risk | None = None
    verify: str | None = None
    restore: str | None = None
    alternatives: tuple[Alternative, ...] = ()
    causes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def worth(verdict: Verdict) -> tuple[float, float, float, float]:
    """Sort key, best first: findings before what was not judged before passes; then severity (which for a
    trace finding follows from the share of the step it costs), then what its cure gives back of what it costs of
    each step, then the expected share of time saved. A cure may save more than its problem costs, by what it spares
    others: that is not the problem's; and communication costs more than hiding it gives back."""
    kind = {"finding": 0, "not-judged": 1, "pass": 2}[verdict.verdict]
    speedup = verdict.gain.speedup if verdict.gain and verdict.gain.speedup else 1.0
    per_step = verdict.cost is not None and verdict.cost.unit == "ms/step"
    cost = (verdict.cost.value or 0.0) if verdict.cost is not None and per_step else 0.0
    saves = verdict.gain.saves_ms if verdict.gain else None
    returned = cost if saves is None else min(cost, saves)
    return (kind, -SEVERITY_ORDER[verdict.severity], -returned, 1.0 / max(speedup, 1.0))
