"""The one sentence on top of a case: what limits this work, and what curing it is worth."""

from wellfed.model import Case, Headline, Verdict
from wellfed.model.verdict import SEVERITY_ORDER


def headline(case: Case) -> Headline:
    """What limits this work, in the user's unit. With a trace: its first finding, in ms a step. Without, or
    when the trace finds nothing: the machine's first finding. Else that nothing was found. How many checks
    could not be judged is always part of the sentence."""
    unjudged = sum(
        v.verdict == "not-judged" and v.reason not in ("not-applicable", "intent") for v in case.verdicts
    )
    caveat = f" ({unjudged} {'check' if unjudged == 1 else 'checks'} could not be judged)" if unjudged else ""
    first = _first_finding(case, from_trace=True) or _first_finding(case, from_trace=False)
    if first is None:
        return Headline(text=f"{_nothing_found(case)}{caveat}")
    cost = first.cost
    return Headline(
        text=f"{first.message or first.name}{_promise(first)}{_all_cured(case)}{caveat}",
        value=cost.value if cost else None,
        unit=cost.unit if cost else None,
        next_command=first.verify or f"wellfed explain {first.code}",
    )


def _nothing_found(case: Case) -> str:
    if case.ranks or case.pipeline:
        several = len({(r.rank, r.device) for r in case.ranks})
        of = f" on any of {several} ranks" if several > 1 else ""
        return f"nothing found that starves this work{of}" + (" or this machine" if case.machine else "")
    if case.hang is not None and not case.hang.stuck:
        return "no recorded collective hangs"
    if case.memory and case.machine is None:
        return "nothing found that memory lacks"
    if case.machine is not None and not case.machine.gpus:
        return "no GPU seen, and nothing found that would starve one"
    return "nothing found that starves this machine"


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
    return f"; cured, a step is {gain.low:.3g} to {gain.high:.3g} times as fast ({gain.basis})"


def _all_cured(case: Case) -> str:
    """What the findings of the trace are worth together, when there are several."""
    if not case.ranks:
        return ""
    from wellfed.check.trace import together

    both = together(case)
    return f"; every finding cured, {both[0]:.2g} to {both[1]:.2g} times" if both else ""
