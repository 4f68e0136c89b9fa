"""Time that is not idle and yet wasted: communication that nothing hides."""

from collections.abc import Iterable

from wellfed.analyze import Study
from wellfed.analyze.comm_knobs import Knob
from wellfed.check.manual import rule
from wellfed.check.trace.verdicts import HIDDEN_SHARE, ms_text, severity_of, unjudged
from wellfed.model import Cost, Evidence, Gain, Verdict
from wellfed.model.base import replace
from wellfed.model.counting import counted
from wellfed.model.verdict import Alternative
from wellfed.predict.compose import speedup

OVERLAP = "overlap it (bucket sizes, prefetch)"
ON_CPU = "; backend='nccl' where every rank has a GPU of its own"


@rule("T210", "exposed-comm", layer="trace", severity="error", trust="read")
def judge_comm(study: Study) -> Verdict | None:
    """Communication is not hidden behind compute.

    What it looks at. Time in which collective kernels run and no compute does; and of collectives that run on the CPU
    (Gloo, MPI) the idle time of the GPU in which the host waits for their end. That time is idle in the budget
    (`dependency-wait`).

    Why it costs. The GPU's compute units wait for the network or for a slower rank.

    How it is judged. By its share of the step. From one rank alone, waiting for others cannot be told from moving
    bytes: the cost is known, the gain is not. With the traces of several ranks it is split into waiting and transfer,
    and the ranks are replayed with no transfer exposed: a ceiling. Where the waiting has a finding of its own
    (`straggler`, `rank-imbalance`), the cost here is the transfer. Settings of DDP and FSDP are listed with what an
    overlap model says of them, where its bounds reach 2 % of the step.

    Remedy. Overlap (DDP bucket sizes, FSDP prefetch), fewer and larger collectives; NCCL in place of Gloo where every
    rank has a GPU of its own; look at all ranks for a straggler.

    Sources. PyTorch documentation of DDP and FSDP
    """
    budget = study.rank.step_budget
    if study.rank.budget is None:
        return None
    on_cpu = study.rank.step_cpu_comm_ns
    waits = study.evidence.get("exposed-comm", ())
    if not study.rank.comm_ns and not waits:
        return Verdict(code="", name="", verdict="pass", message="no communication in the trace")
    if budget is None:
        return unjudged("no-steps", "no steps: the share of exposed communication in a step is not known")
    exposed = budget.exposed_comm_ns + on_cpu
    part = exposed / budget.span_ns if budget.span_ns else 0.0
    if part < HIDDEN_SHARE:
        return Verdict(
            code="", name="", verdict="pass", message=f"communication is hidden ({part:.1%} of the step)"
        )
    evidence = [
        Evidence(
            source=study.rank.source,
            at=counted(row["count"], "kernel"),
            text=f"{row['name'][:80]}: {row['total_ns'] / 1e6:.1f} ms in the trace",
        )
        for row in study.rank.comm[:3]
    ]
    evidence += [
        Evidence(
            source=study.rank.source,
            at=f"t={start / 1e6:.3f} ms, {length / 1e6:.3f} ms",
            text=f"the host waits for {text}",
        )
        for start, length, text in waits
    ]
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity=severity_of(part),
        message=f"communication that compute does not hide takes {ms_text(exposed)} of each {ms_text(budget.span_ns)} step"
        + _on_cpu(on_cpu, exposed),
        evidence=tuple(evidence),
        cost=Cost(value=round(exposed / 1e6, 3), unit="ms/step"),
        gain=Gain(
            basis="none",
            source=f"one rank does not tell waiting from transfer; all of it hidden would be {1 / max(1 - part, 0.05):.2f} times as fast",
        ),
        remedy=OVERLAP + (", or find the slow rank: give the traces of all ranks" if not on_cpu else ON_CPU),
        risk="safe",
    )


def _on_cpu(on_cpu: int, exposed: int) -> str:
    if not on_cpu:
        return ""
    if on_cpu >= exposed:
        return ", all of it collectives on the CPU"
    return f", {ms_text(on_cpu)} of it collectives on the CPU"


def with_knobs(verdict: Verdict, knobs: Iterable[Knob], step_ns: int) -> Verdict:
    """Exposed communication with the settings of DDP and FSDP that may hide it, the best first."""
    if verdict.code != judge_comm.manual.code or verdict.verdict != "finding":  # type: ignore[attr-defined]
        return verdict
    worth_it = sorted((k for k in knobs if k.high >= HIDDEN_SHARE * step_ns), key=lambda k: -k.expected)
    found = tuple(
        Alternative(
            remedy=f"{knob.remedy}: {knob.text}",
            risk=knob.risk,
            gain=Gain(
                speedup=_times(knob.expected, step_ns),
                low=_times(knob.low, step_ns),
                high=_times(knob.high, step_ns),
                basis="modelled",
                saves_ms=round(knob.expected / 1e6, 3),
                source="overlap model of this rank's calls",
            ),
        )
        for knob in worth_it
    )
    return replace(verdict, alternatives=(*verdict.alternatives, *found))


def _times(saved_ns: float, step_ns: int) -> float:
    return round(speedup(step_ns, min(max(saved_ns, 0.0), 0.95 * step_ns)), 3)
