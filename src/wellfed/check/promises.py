"""Predicted against achieved: which findings of one case a later one has cured, and whether they brought what was said."""

from collections.abc import Sequence
from typing import Literal

from wellfed.model import Case, RankTrace, Verdict
from wellfed.model.base import replace
from wellfed.model.comparison import Promise, RankComparison
from wellfed.predict.compose import compose, share

WORTH = 1.02
"""Predictions below this are not asked for: steps of one recording differ by more."""


def with_promises(
    compared: RankComparison, a: tuple[Case, RankTrace], b: tuple[Case, RankTrace]
) -> RankComparison:
    """The comparison with what A's findings promised. Several cures together bring at least what the best alone
    does and at most the sum (`predict.compose`), each at the ends of its interval."""
    later = {verdict.code: verdict for verdict in _of(*b)}
    kept = [
        _promise(verdict, later.get(verdict.code))
        for verdict in _of(*a)
        if verdict.verdict == "finding" and verdict.gain is not None and (verdict.gain.speedup or 0) >= WORTH
    ]
    promises = tuple(p for p in kept if p is not None)
    cured = [p for p in promises if p.state == "cured"]
    predicted = _together(cured, a[1]) if compared.basis != "capture" else None
    held: Literal["within", "less", "more", "open"] | None = None
    if predicted is not None and compared.speedup is not None:
        low, high = predicted
        if compared.low is None or compared.high is None or compared.low <= 1 <= compared.high:
            held = "open"
        else:
            held = "less" if compared.speedup < low else "more" if compared.speedup > high else "within"
    return replace(compared, promises=promises, predicted=predicted, held=held)


def _of(case: Case, rank: RankTrace) -> list[Verdict]:
    return [
        verdict
        for verdict in (case.rank_verdicts or case.verdicts)
        if verdict.layer == "trace"
        and verdict.where.get("rank") == rank.rank
        and verdict.where.get("device") == rank.device
    ]


def _promise(verdict: Verdict, later: Verdict | None) -> Promise | None:
    gain = verdict.gain
    if gain is None or gain.speedup is None or gain.low is None or gain.high is None:
        return None
    if later is None or later.verdict == "not-judged":
        state = "not-judged"
    else:
        state = "cured" if later.verdict == "pass" else "found"
    return Promise(
        code=verdict.code,
        name=verdict.name,
        state=state,  # type: ignore[arg-type]
        speedup=gain.speedup,
        low=gain.low,
        high=gain.high,
        cost_unit=verdict.cost.unit if verdict.cost else "",
        a_cost=verdict.cost.value if verdict.cost else None,
        b_cost=later.cost.value if later is not None and later.cost and state == "found" else None,
    )


def _together(cured: Sequence[Promise], rank: RankTrace) -> tuple[float, float] | None:
    if not cured:
        return None
    if len(cured) == 1:
        return cured[0].low, cured[0].high
    if rank.step_budget is None:
        return None
    step, floor = float(rank.step_budget.span_ns), float(rank.step_budget.compute_ns)
    least = compose(step, [share(p.low) * step for p in cured], floor=floor, disjoint=False)[0]
    most = compose(step, [share(p.high) * step for p in cured], floor=floor, disjoint=False)[1]
    return least, max(most, least)
