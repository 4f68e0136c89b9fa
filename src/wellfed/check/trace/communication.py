"""Time that is not idle and yet wasted: communication that nothing hides."""

from wellfed.analyze import Study
from wellfed.check.manual import rule
from wellfed.check.trace.verdicts import HIDDEN_SHARE, ms_text, severity_of, unjudged
from wellfed.model import Cost, Evidence, Gain, Verdict


@rule("T210", "exposed-comm", layer="trace", severity="error", trust="read")
def judge_comm(study: Study) -> Verdict | None:
    """Communication is not hidden behind compute.

    What it looks at. Time in which collective kernels run and no compute does.

    Why it costs. The GPU's compute units wait for the network or for a slower rank.

    How it is judged. By its share of the step. From one rank alone, waiting for others cannot be told from moving
    bytes: the cost is known, the gain is not.

    Remedy. Overlap (DDP bucket sizes, FSDP prefetch), fewer and larger collectives; look at all ranks for a straggler.

    Sources. PyTorch documentation of DDP and FSDP
    """
    budget = study.rank.step_budget
    if study.rank.budget is None:
        return None
    if not study.rank.comm_ns:
        return Verdict(code="", name="", verdict="pass", message="no communication in the trace")
    if budget is None:
        return unjudged("no-steps", "no steps: the share of exposed communication in a step is not known")
    part = budget.exposed_comm_ns / budget.span_ns if budget.span_ns else 0.0
    if part < HIDDEN_SHARE:
        return Verdict(
            code="", name="", verdict="pass", message=f"communication is hidden ({part:.1%} of the step)"
        )
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity=severity_of(part),
        message=f"communication that compute does not hide takes {ms_text(budget.exposed_comm_ns)} of each {ms_text(budget.span_ns)} step",
        evidence=tuple(
            Evidence(
                source=study.rank.source,
                at=f"{row['count']} kernels",
                text=f"{row['name'][:80]}: {row['total_ns'] / 1e6:.1f} ms in the trace",
            )
            for row in study.rank.comm[:3]
        ),
        cost=Cost(value=round(budget.exposed_comm_ns / 1e6, 3), unit="ms/step"),
        gain=Gain(basis="none", source="one rank does not tell waiting from transfer"),
        remedy="overlap it (bucket sizes, prefetch), or find the slow rank: give the traces of all ranks",
        risk="safe",
    )
