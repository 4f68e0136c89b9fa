"""Which limit a rank's collectives run into, where curves were measured."""

from wellfed.analyze.comm_limits import CallsLimit, CallsLimits
from wellfed.check.manual import rule
from wellfed.check.trace.verdicts import WARNING_SHARE, ms_text, severity_of, unjudged
from wellfed.model import Cost, Evidence, Gain, Verdict

SAYS = {
    "latency": "bound by latency: most of their time is start-up",
    "bandwidth": "bound by bandwidth: they take what their bytes need",
    "straggler": "waiting for a late rank",
    "path": "slowed by their path, at all large sizes alike",
    "contention": "slowed by computing beside them",
    "unclear": "not told apart",
}
CURES = {
    "latency": "fewer and larger calls (bucket_cap_mb, coalescing), CUDA graphs, one-shot kernels of symmetric memory",
    "bandwidth": "less volume (sharding, lower precision, hierarchy), or overlap it",
    "straggler": "give the traces of all ranks: they name the late one",
    "path": "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING shows path and algorithm; then GPUDirect, ACS, link width, NVLS",
    "contention": "fewer channels for NCCL (NCCL_MAX_CTAS 8 to 16), or a place in the step with less computing",
}
DEFECTS = ("straggler", "path", "contention")


@rule("T290", "collective-limit", layer="trace", severity="error", trust="measured")
def judge_limits(limits: CallsLimits, *, source: str, step_ns: int) -> Verdict | None:
    """What holds this rank's collectives back.

    What it looks at. The time of each call by its size beside a measured curve of the same operation and number of ranks
    (`--ceilings`: a case of `measure --only collectives`, or a result of nccl-tests).

    Why it costs. Each limit has its own cure: buckets for latency, less volume for bandwidth, another machine for a
    late rank, a cable or a switch for a path, fewer channels for contention. The wrong one changes nothing.

    How it is judged. As the curve says, and mostly below or above half bandwidth: latency or bandwidth, which are no
    defects. Above it by 1.5 times in proportion to what a call needs: its path. By a constant, or now and then: a late
    rank. Only beside computing: contention. From one rank a constant wait and a slow path look alike where all calls
    need about the same time: not judged then. What is above the curve and hidden by
    nothing is told in ms a step; it is a part of what exposed-comm costs.

    Remedy. latency: fewer and larger calls; bandwidth: less volume, overlap; late rank: `wellfed trace` over all ranks;
    path: NCCL's own log, then the link; contention: fewer channels, another place in the step.

    When to ignore. When the curve is of another machine, network or version of NCCL.

    Sources. measured: planted limits (tests/predict/test_comm_limit.py, benchmarks/comm_limit.py); nccl-tests,
    doc/PERFORMANCE.md
    """
    if not limits.found:
        return unjudged("no-fact", limits.unknown[0]) if limits.unknown else None
    bad = [one for one in limits.found if one.limit.kind in DEFECTS]
    clear = [one for one in limits.found if one.limit.kind != "unclear"]
    evidence = tuple(_evidence(one, source) for one in limits.found[:6]) + tuple(
        Evidence(source=source, at="not judged", text=why) for why in limits.unknown[:3]
    )
    if not clear:
        return unjudged("no-fact", "; ".join(f"{_name(one)}: {one.limit.why}" for one in limits.found[:3]))
    if not bad:
        said = "; ".join(f"{_name(one)} {SAYS[one.limit.kind]}" for one in clear[:3])
        cures = "; ".join(dict.fromkeys(CURES[one.limit.kind] for one in clear[:3]))
        return Verdict(
            code="", name="", verdict="finding", severity="info", message=said, evidence=evidence,
            gain=Gain(basis="none", source="no defect: what these calls cost is told by exposed-comm"), remedy=cures, risk="safe",
        )  # fmt: skip
    worst = max(bad, key=lambda one: one.exposed_excess_ns)
    part = worst.exposed_excess_ns / step_ns if step_ns else 0.0
    cost = Cost(value=None, unit="ms/step", why="a part of what exposed-comm costs")  # charged once
    open_part = f", {ms_text(worst.exposed_excess_ns)} of each step" if worst.exposed_excess_ns else ""
    return Verdict(
        code="", name="", verdict="finding", severity="info" if part < WARNING_SHARE else severity_of(part),
        message=f"{_name(worst)} {SAYS[worst.limit.kind]} ({worst.limit.ratio[1]:.2g} times the measured curve{open_part})",
        evidence=evidence, cost=cost,
        gain=Gain(basis="none", source="one rank does not tell what the others would do with the time"),
        remedy=CURES[worst.limit.kind], risk="safe",
    )  # fmt: skip


def _name(one: CallsLimit) -> str:
    return f"{one.op} over {one.ranks} ranks"


def _evidence(one: CallsLimit, source: str) -> Evidence:
    low, middle, high = one.limit.ratio
    return Evidence(
        source=source,
        at=f"{one.limit.n} calls of {one.limit.median_bytes:,.0f} bytes (median)",
        text=f"{_name(one)}: {one.limit.kind}; {middle:.2f} times the curve ({low:.2f} to {high:.2f}), {one.limit.excess_share:.0%} of the time above it, half bandwidth at {one.limit.half_bytes:,.0f} bytes; {one.source}"
        + (f"; {one.limit.why}" if one.limit.why else ""),
    )
