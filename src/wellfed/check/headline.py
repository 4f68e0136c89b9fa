"""The one sentence on top of a case: what limits this work, and what curing it is worth."""

from wellfed.model import Case, Headline, RankTrace, Verdict
from wellfed.model.counting import counted
from wellfed.model.verdict import RATIO_PROMISE, SEVERITY_ORDER

MOST_UNEXPLAINED = 0.20
"""With more than this share of the time outside compute it is not said that nothing was found: a defect of that size
would be an error (DESIGN)."""


def headline(case: Case) -> Headline:
    """What limits this work, in the user's unit. With a trace: its first finding, in ms a step. Without, or
    when the trace finds nothing: the machine's first finding. Else that nothing was found. How many checks
    could not be judged is always part of the sentence."""
    unjudged = _unjudged(case)
    caveat = f" ({unjudged} {'check' if unjudged == 1 else 'checks'} could not be judged)" if unjudged else ""
    first = _first_finding(case, from_trace=True) or _first_finding(case, from_trace=False)
    if first is None:
        return Headline(text=f"{_nothing_found(case)}{caveat}")
    cost = first.cost
    return Headline(
        text=f"{first.message or first.name}{_promise(first)}{_all_cured(case, first)}{caveat}",
        value=cost.value if cost else None,
        unit=cost.unit if cost else None,
        next_command=first.verify or f"wellfed explain {first.code}",
    )


def _nothing_found(case: Case) -> str:
    if case.ranks and not case.pipeline and all(rank.budget is None for rank in case.ranks):
        outside = any(warning.code == "window" for warning in case.warnings)
        lack = "no GPU event in the window looked at" if outside else "no GPU event was recorded"
        return f"{lack}: what starves this work is not known"
    starved = max(case.ranks, key=_beside_compute, default=None)
    if starved is not None and _beside_compute(starved) > MOST_UNEXPLAINED:
        return _unexplained(starved, alone=len(case.ranks) == 1)
    if case.ranks or case.pipeline:
        several = len({(r.rank, r.device) for r in case.ranks})
        of = f" on any of {several} ranks" if several > 1 else ""
        return f"nothing found that starves this work{of}" + (" or this machine" if case.machine else "")
    if case.hang is not None and not case.hang.stuck:
        return "no recorded collective hangs"
    if not (case.memory or case.machine or case.ceilings or case.verdicts):
        return "nothing was read that could be judged"
    if case.memory and case.machine is None:
        return "nothing found that memory lacks"
    no_gpu = case.machine is not None and not case.machine.gpus
    judged = sum(v.verdict != "not-judged" for v in case.verdicts)
    if judged < _unjudged(case):  # a file that tells little: silence of checks that saw nothing is no praise
        little = f"nothing found by the {counted(judged, 'check')} that could be judged"
        little = little if judged else "not one check could be judged"
        return f"no GPU seen, and {little}" if no_gpu else little
    return (
        "no GPU seen, and nothing found that would starve one"
        if no_gpu
        else "nothing found that starves this machine"
    )


def _unjudged(case: Case) -> int:
    """Checks that apply here and could not look."""
    return sum(
        v.verdict == "not-judged" and v.reason not in ("not-applicable", "intent") for v in case.verdicts
    )


def _parts(rank: RankTrace) -> dict[str, int]:
    """What is not compute, in ns by name: of the clean step, or of all that was recorded when there is none."""
    budget, idle = (
        (rank.step_budget, rank.step_idle) if rank.step_budget is not None else (rank.budget, rank.idle)
    )
    if budget is None:
        return {}
    return {
        "copies": budget.exposed_copy_ns,
        "communication": budget.exposed_comm_ns,
        **{f"idle ({cause})": ns for cause, ns in idle.items()},
    }


def _beside_compute(rank: RankTrace) -> float:
    """Share of its time that the device does not compute; 0 when nothing is known of it."""
    budget = rank.step_budget if rank.step_budget is not None else rank.budget
    return 1.0 - budget.compute_ns / budget.span_ns if budget is not None and budget.span_ns else 0.0


def _unexplained(rank: RankTrace, *, alone: bool) -> str:
    """Much of the time is no compute and yet no finding says what curing it is worth."""
    parts = _parts(rank)
    largest = max(parts, key=lambda name: parts[name])
    budget = rank.step_budget if rank.step_budget is not None else rank.budget
    assert budget is not None
    where = "the GPU" if alone or rank.rank is None else f"the GPU of rank {rank.rank}"
    what = "a step" if rank.step_budget is not None else "the recording"
    return (
        f"{where} computes {budget.compute_ns / budget.span_ns:.0%} of {what}, "
        f"{largest} take{'' if largest == 'copies' else 's'} {parts[largest] / budget.span_ns:.0%}; "
        "what a cure of that is worth is not known"
    )


def _first_finding(case: Case, *, from_trace: bool) -> Verdict | None:
    """The first finding above `info`, of the trace (codes T...) or of the machine."""
    for verdict in case.verdicts:
        is_trace = verdict.code.startswith("T") and verdict.code[1:].isdigit()
        if verdict.verdict == "finding" and SEVERITY_ORDER[verdict.severity] > 0 and is_trace == from_trace:
            return verdict
    return None


def _promise(verdict: Verdict) -> str:
    gain = verdict.gain
    if gain is None or gain.low is None or gain.high is None:
        return ""
    if (gain.speedup or 0.0) > RATIO_PROMISE and gain.saves_ms:
        return f"; cured, a step takes {gain.saves_ms:.3g} ms less ({gain.basis})"
    return f"; cured, a step is {_ratio(gain.low)} to {_ratio(gain.high)} times as fast ({gain.basis})"


def _all_cured(case: Case, first: Verdict) -> str:
    """What the findings of the trace are worth together, when there are several: never less than the first alone,
    which may be of all ranks while these are of one."""
    if not case.ranks:
        return ""
    from wellfed.check.trace import together

    both, alone = together(case), first.gain
    if both is None or alone is None or both[1] > RATIO_PROMISE:
        return ""
    if (alone.low or 1.0) > both[0] or (alone.high or 1.0) > both[1]:
        return ""
    return f"; every finding cured, {_ratio(both[0])} to {_ratio(both[1])} times"


def _ratio(value: float) -> str:
    """With as many digits as the findings below show."""
    return f"{value:.2f}" if value < 2 else f"{value:.1f}" if value < RATIO_PROMISE else f"{value:,.0f}"
