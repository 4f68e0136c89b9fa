"""What the rules over traces share: the verdict of a cure that was replayed, its severity, gain and evidence."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from wellfed import catalog
from wellfed.analyze import Study
from wellfed.analyze.cures import Cured
from wellfed.analyze.together import RanksFound
from wellfed.check.manual import Manual
from wellfed.model import Cost, Evidence, Gain, Verdict
from wellfed.model.base import replace
from wellfed.model.verdict import RATIO_PROMISE, Severity
from wellfed.predict.compose import share

WARNING_SHARE, ERROR_SHARE = 0.05, 0.20
"""Share of the step that a defect takes: a warning, an error (DESIGN)."""
HIDDEN_SHARE = 0.02
MODEL_ERROR = 0.15
"""What the interval is widened by on either side for the replay itself: unprofiled rounds of one loop differ
by 3 to 20 % on the machine the model was made on, and the medians before and after recording by up to 20 %."""
UNPROFILED = "time of the unprofiled step"
REPLAYED = "replay of the recorded steps, the profiler's cost taken off"
BUSY_TIME = "the GPU's busy time"
UNTOUCHED = "the GPU's time for what the cure leaves as it is"
ALSO_SPARES = 1.1
"""From this on a cure's gain is said to be more than its cause's cost."""


def idle_finding(
    study: Study,
    cause: str,
    *,
    says: Callable[[str, str], str],
    fine: str,
    remedy: str,
    verify: str,
    risk: Any = "safe",
    also: Sequence[str] = (),
    own_ns: float | None = None,
) -> Verdict | None:
    """The verdict of a cause whose cure was replayed (or could not be)."""
    if study.rank.budget is None:
        return None
    if not study.has_host_events:
        return unjudged(
            "no-host-events", "no runtime call launches the GPU events: the host's part is not in the trace"
        )
    cure = study.cures.get(cause)
    if cure is None:
        if study.refused is not None:
            idle = study.rank.step_idle or study.rank.idle
            return unpredicted(study, cause, sum(idle.get(c, 0) for c in (cause, *also)))
        return Verdict(code="", name="", verdict="pass", message=fine)
    return cure_finding(
        study,
        cause,
        cure,
        says=says,
        fine=fine,
        remedy=remedy,
        verify=verify,
        risk=risk,
        also=also,
        own_ns=own_ns,
    )


def cure_finding(
    study: Study,
    cause: str,
    cure: Cured,
    *,
    says: Callable[[str, str], str],
    fine: str,
    remedy: str,
    verify: str,
    risk: Any = "safe",
    also: Sequence[str] = (),
    own_ns: float | None = None,
) -> Verdict:
    """The finding of a replayed cure. `also` are the causes that the cure removes too; `own_ns` says how much of a
    step is the cause's own where a more particular cure would take a part of it."""
    step, after = cure.before[1], cure.after[1]
    saved = max(step - after, 0.0)
    if also:
        # A faster host reaches whatever it waits for sooner, so this cure can save more than was its own
        # fault; it is charged with its own part only.
        idle = study.unprofiled[1].idle
        saved = min(saved, sum(idle.get(c, 0.0) for c in (cause, *also)))
    if own_ns is not None:
        saved = min(saved, own_ns)
    gain = gain_of(cure)
    part = saved / step if step else 0.0
    # certain only as far as what recording cost is: it must save something at each of the three points
    sure = share(min(b / a if a > 0 else 1.0 for b, a in zip(cure.before, cure.after, strict=True)))
    if part < HIDDEN_SHARE:
        return Verdict(
            code="",
            name="",
            verdict="pass",
            message=f"{fine} (curing it would save {max(part, 0.0):.1%} of the step)",
        )
    severity = severity_of(part) if sure >= HIDDEN_SHARE else "info"
    if severity == "error" and sure < WARNING_SHARE:
        severity = "warning"
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity=severity,
        message=says(ms_text(saved), ms_text(step)) + _in_all(saved, step - after) + beyond(gain),
        evidence=cited(study, cause),
        cost=Cost(value=round(saved / 1e6, 3), unit="ms/step"),
        gain=gain,
        remedy=remedy,
        risk=risk,
        verify=verify,
    )


def gain_of(cure: Cured) -> Gain:
    """The speed-up of a cure: likely by the middle point, low and high by the outer points, what few steps tell of
    the mean, and the error of the model itself. Never below 1, and never above what the recorded step over the device's
    own time allows: recording makes no step shorter, and no cure of an idle cause makes the device work faster. A mean
    of few steps is known only to its standard error, which that bound gives way by."""
    ratios = [b / a if a > 0 else 1.0 for b, a in zip(cure.before, cure.after, strict=True)]
    expected = max(ratios[1], 1.0)
    # the error of the model is of what it changes: a cure that saves nothing is known to save nothing
    widen = 1.0 + MODEL_ERROR * min(share(expected) / WARNING_SHARE, 1.0)
    sampled = cure.sampling / cure.after[1] if cure.after[1] > 0 else 0.0
    down = math.hypot(expected - min(*ratios, expected) / widen, sampled)
    up = math.hypot(max(*ratios, expected) * widen - expected, sampled)
    high, source = expected + up, REPLAYED
    longest = max(*cure.before, cure.longest) + cure.sampling
    if cure.floor > 0 and high > (most := max(longest / cure.floor, expected)):
        high = most
        source += f"; at most the recorded step over {BUSY_TIME if cure.idle_only else UNTOUCHED}"
    return Gain(
        speedup=round(expected, 3),
        low=round(max(expected - down, 1.0), 3),
        high=round(high, 3),
        basis="modelled",
        measured_in=UNPROFILED,
        saves_ms=round(max(cure.before[1] - cure.after[1], 0.0) / 1e6, 3),
        next=cure.next,
        source=source,
    )


def _in_all(own_ns: float, saved_ns: float) -> str:
    """Why the gain is of more than the cost, where it is."""
    if saved_ns < ALSO_SPARES * own_ns:
        return ""
    return f"; the cure would save {ms_text(saved_ns)}, more than that, since it also shortens what other causes cost"


def beyond(gain: Gain) -> str:
    if (gain.speedup or 0.0) <= RATIO_PROMISE:
        return ""
    return f"; above {RATIO_PROMISE:.0f}x the ratio is no promise, {gain.saves_ms:.1f} ms a step is"


def severity_of(part: float) -> Severity:
    if part >= ERROR_SHARE:
        return "error"
    return "warning" if part >= WARNING_SHARE else "info"


def ms_text(ns: float) -> str:
    ms = ns / 1e6
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 1 else f"{ms:.2f} ms"


def cited(study: Study, cause: str) -> tuple[Evidence, ...]:
    cited = [
        Evidence(
            source=study.rank.source, at=f"t={start / 1e6:.3f} ms, {length / 1e6:.3f} ms", text=text[:160]
        )
        for start, length, text in study.evidence.get(cause, ())
    ]
    if not cited and study.rank.step_idle:
        parts = ", ".join(
            f"{name} {ns / 1e6:.2f} ms"
            for name, ns in sorted(study.rank.step_idle.items(), key=lambda item: -item[1])
            if ns > 0
        )
        cited = [Evidence(source=study.rank.source, at="median step, unprofiled", text=f"idle: {parts}")]
    return tuple(cited)


def unpredicted(study: Study, cause: str, spent: int) -> Verdict:
    """Seen, but not replayed: the cost is what the recording shows, the profiler's part included, so that no
    severity above info is claimed."""
    span = (
        study.rank.step_budget.span_ns
        if study.rank.step_budget
        else study.rank.budget.span_ns
        if study.rank.budget
        else 0
    )
    unit = "ms/step" if study.rank.step_budget else "ms of the trace"
    if not span or spent < HIDDEN_SHARE * span:
        return Verdict(
            code="",
            name="",
            verdict="pass",
            message=f"takes less than 2 % of the {'step' if study.rank.step_budget else 'trace'} as recorded",
        )
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity="info",
        message=f"{cause} takes {ms_text(spent)} of {ms_text(span)} as recorded; how much of it is the profiler's own is not known ({study.refused})",
        evidence=cited(study, cause),
        cost=Cost(value=round(spent / 1e6, 3), unit=unit),
        gain=Gain(basis="none", source=study.refused),
    )


def unjudged(reason: str, message: str) -> Verdict:
    return Verdict(code="", name="", verdict="not-judged", reason=reason, message=message)


def placed(verdict: Verdict, page: Manual, study: Study, price: float | None) -> Verdict:
    """The verdict with its code, place, sources and price."""
    where: dict[str, Any] = {"device": study.rank.device}
    if study.rank.rank is not None:
        where = {"rank": study.rank.rank, **where}
    return replace(
        verdict,
        code=page.code,
        name=page.name,
        layer="trace",
        where=where,
        cost=priced(verdict, study, price),
        sources=page.sources if verdict.verdict == "finding" else (),
    )


def priced_run(verdict: Verdict, found: RanksFound, price: float | None) -> Verdict:
    """The verdict of a rule over all ranks, its cost in money on every GPU."""
    cost = verdict.cost
    if cost is None or cost.value is None:
        return verdict
    rate, why = _rate(next((r.gpu for r in found.ranks if r.gpu), None), price)
    if rate is None or not found.step_ns or cost.unit != "ms/step":
        why = why if rate is None else "no step time to put it in relation to"
        return replace(verdict, cost=replace(cost, why=why))
    usd = round(cost.value * 1e6 / found.step_ns * rate * 24 * cost.gpus, 2)
    return replace(verdict, cost=replace(cost, usd_per_day=usd, price_usd_gpu_h=rate, why=why))


def _rate(gpu: str | None, price: float | None) -> tuple[float | None, str | None]:
    """USD per GPU and hour, and where it is from or why there is none."""
    if price is not None:
        return price, None
    spec = catalog.find_gpu(name=gpu) if gpu else None
    known = catalog.price(spec.key) if spec is not None else None
    if known is None:
        return None, "no price known for this GPU: give one with --price"
    return known.usd_gpu_h, f"catalogue price of {known.date}"


def priced(verdict: Verdict, study: Study, price: float | None) -> Cost | None:
    cost = verdict.cost
    if cost is None or cost.value is None:
        return cost
    rate, why = _rate(study.rank.gpu, price)
    budget = study.rank.step_budget
    if rate is None or budget is None or not budget.span_ns or cost.unit != "ms/step":
        return replace(cost, why=why if rate is None else "no step time to put it in relation to")
    step_ms = (study.unprofiled[1].step_ns if study.unprofiled else budget.span_ns) / 1e6
    return replace(
        cost, usd_per_day=round(cost.value / step_ms * rate * 24, 2), price_usd_gpu_h=rate, gpus=1, why=why
    )
