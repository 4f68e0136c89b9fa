"""Verdicts of all ranks together: who holds the others up, which link is slow, what is missing.

A rule over all ranks takes `ranks`. Its verdict names ranks in `where`; its cost is a step's, on every GPU.
"""

from collections import Counter

from wellfed.analyze.together import RanksFound
from wellfed.check.manual import rule
from wellfed.check.trace.verdicts import (
    HIDDEN_SHARE,
    MODEL_ERROR,
    WARNING_SHARE,
    ms_text,
    severity_of,
    unjudged,
)
from wellfed.model import Cost, Evidence, Gain, RankTrace, Verdict
from wellfed.model.base import replace
from wellfed.model.counting import counted
from wellfed.model.ranks import Limit, RanksStudy, RankStraggler
from wellfed.model.verdict import Alternative
from wellfed.predict.compose import share

SHOWN = 8
MATCHED_FROM = 0.5
"""Share of the calls that must be matched before nobody is accused."""
OPPORTUNITY = 1.5
"""From which speed-up on what could be better, though nothing is wrong, is more than info (DESIGN)."""


def gain_of_run(
    speedup: float, found: RanksFound, *, low: float | None = None, high: float | None = None
) -> Gain:
    """A gain of the whole run by the ranks' replay, the model's error on either side."""
    widen = 1.0 + MODEL_ERROR * min(share(speedup) / WARNING_SHARE, 1.0)
    return Gain(
        speedup=round(max(speedup, 1.0), 3),
        low=round(max(low if low is not None else speedup / widen, 1.0), 3),
        high=round(max(high if high is not None else speedup * widen, 1.0), 3),
        basis="modelled",
        measured_in="time of the run",
        saves_ms=round(share(speedup) * found.step_ns / 1e6, 3) if found.step_ns else None,
        source="replay of the matched collectives of all ranks",
    )


def cost_of_run(part: float, found: RanksFound) -> Cost:
    """A share of the step, on every GPU."""
    if not found.step_ns:
        return Cost(value=round(part * 100, 2), unit="% of the run", gpus=found.gpus)
    return Cost(value=round(part * found.step_ns / 1e6, 3), unit="ms/step", gpus=found.gpus)


def _finding(**fields: object) -> Verdict:
    return Verdict(code="", name="", verdict="finding", risk="safe", **fields)  # type: ignore[arg-type]


def _passed(message: str) -> Verdict:
    return Verdict(code="", name="", verdict="pass", message=message)


def _no_study(found: RanksFound) -> Verdict | None:
    if not any(len(one) for one in found.series):
        return None
    if found.study is None:
        return unjudged("no-fact", "fewer than two ranks have communication in their traces")
    why = found.study.refused[0].reason if found.study.refused else "no call is on two ranks"
    return unjudged("no-fact", f"no collective could be matched across the ranks: {why}")


# --- stragglers ------------------------------------------------------------------------------------------


@rule("T220", "straggler", layer="trace", severity="error", trust="measured")
def judge_straggler(ranks: RanksFound) -> Verdict | None:
    """One rank holds the others up.

    What it looks at. The same collective on all ranks, matched by its number in the process group (else by order, if the
    order can be proven), with the clocks brought into line by the ends of what they do together. In records of a
    pipeline's operations: the durations of every worker.

    Why it costs. A collective ends when the last rank has come; the others wait inside their kernels, which look busy.

    How it is judged. A rank is named when waiting is 30 % of the communication and it comes last in half of the calls,
    or when the run gains 5 % once it works like its peers and that is half of what unequal ranks cost; and only if its
    own work exceeds its peers' beyond chance. The gain is a replay of all ranks with that rank's work made equal to its
    peers'. Records of a pipeline: the what-if of the OSDI 2025 study; a worker or stage is named when it alone explains
    half of the loss.

    Remedy. What differs on that rank: its clocks and temperature, a neighbour, its NUMA node, its share of the data. A
    spare node tells whether it is the machine or the work.

    When to ignore. Ranks whose part of the model is larger on purpose.

    Sources. Lin et al., Understanding Stragglers in Large Model Training Using What-if Analysis, OSDI 2025; measured: sets
    with a planted slow rank (tests/trace/test_ranks.py)
    """
    study = ranks.study
    if study is None or not study.matched:
        return _no_study(ranks)
    slow = study.straggler
    if slow is None:
        if study.world and len(study.ranks) < study.world:
            return unjudged(
                "missing",
                f"{len(study.ranks)} of {study.world} ranks are here and none of them holds the others up; the one that does may be missing",
            )
        return _too_few(study) or _passed(
            f"no rank of {len(study.ranks)} holds the others up ({_waiting(study)})"
        )
    part = share(slow.speedup) if slow.speedup else slow.cost_share
    why = _differs(ranks, slow.rank)
    excess = f"its own work is {slow.own_excess:.0%} above the mean" if slow.own_excess is not None else ""
    return _finding(
        severity=severity_of(part),
        message=f"rank {slow.rank} holds up the other {slow.of - 1 if slow.of > 2 else 'one'}: it comes last in {slow.last:.0%} of the collectives, where waiting is {slow.wait_share:.0%} of the time"
        + (f"; {why}" if why else ""),
        evidence=_straggler_evidence(ranks, study, slow, excess),
        cost=cost_of_run(part, ranks),
        gain=gain_of_run(slow.speedup, ranks)
        if slow.speedup
        else Gain(basis="none", source=study.what_if.refused),
        remedy=f"look at rank {slow.rank}'s machine (clocks, temperature, neighbours, NUMA) and its share of the work",
        verify=f"wellfed trace --rank {slow.rank} TRACES",
        where={"rank": slow.rank, "ranks": list(study.ranks)},
    )


def _too_few(study: RanksStudy) -> Verdict | None:
    """What stands in place of a pass where most calls have no match: nothing speaks against a slow rank then."""
    thinned = any("is kept" in note for note in study.notes)
    if thinned or study.matched >= MATCHED_FROM * study.calls:
        return None
    return unjudged(
        "no-fact",
        f"only {study.matched:,} of {study.calls:,} collectives are matched on all their ranks: too few to say that ranks keep step",
    )


def _waiting(study: RanksStudy) -> str:
    return f"waiting is {study.wait_share:.0%} of the communication, {study.cost_share:.1%} of the time"


def _straggler_evidence(
    found: RanksFound, study: RanksStudy, slow: RankStraggler, excess: str
) -> tuple[Evidence, ...]:
    source = next((r.source for r in found.ranks if r.rank == slow.rank), f"rank {slow.rank}")
    waits = {w.rank: w for w in study.waits}
    mine = waits[slow.rank]
    others = [w.wait_ns for w in study.waits if w.rank != slow.rank]
    mean = sum(others) / max(len(others), 1)
    found_steps = [s for s in study.steps if s.last_rank == slow.rank]
    rows = [
        Evidence(
            source=source,
            at=f"{mine.calls} collectives",
            text=f"waits {mine.wait_ns / 1e6:.1f} ms in all, the others {mean / 1e6:.1f} ms on average; {excess}".rstrip(
                "; "
            ),
        ),
        Evidence(
            source="all ranks",
            at=counted(len(study.steps), "step"),
            text=f"most of the waiting is for rank {slow.rank} in {len(found_steps)} of {counted(len(study.steps), 'step')}",
        ),
    ]
    worst = max((c.residual_ns for c in study.clocks), default=0.0)
    rows.append(
        Evidence(
            source="clocks",
            at=counted(len(study.clocks), "rank"),
            text=f"brought into line by the collectives' ends; typically {worst / 1e3:.1f} us or less are left",
        )
    )
    return tuple(rows)


def _differs(found: RanksFound, rank: int) -> str:
    """The part of its step that exceeds its peers' (median) most, in words; empty when nothing stands out."""
    mine = next((r for r in found.ranks if r.rank == rank and r.step_budget is not None), None)
    peers = [r for r in found.ranks if r.rank != rank and r.step_budget is not None]
    if mine is None or not peers:
        return ""
    own, others = _parts(mine), [_parts(r) for r in peers]
    more: dict[str, tuple[int, int]] = {}
    for name, ns in own.items():
        usual = sorted(part.get(name, 0) for part in others)[len(others) // 2]
        more[name] = (ns - usual, usual)
    name = max(more, key=lambda n: more[n][0])
    extra, usual = more[name]
    assert mine.step_budget is not None
    if extra < HIDDEN_SHARE * mine.step_budget.span_ns:
        return ""
    ratio = f" (+{extra / usual:.0%})" if usual else ""
    return f"its {name} takes {ms_text(extra)} a step more than its peers'{ratio}"


def _parts(rank: RankTrace) -> dict[str, int]:
    budget = rank.step_budget
    assert budget is not None
    return {"compute": budget.compute_ns, "copies": budget.exposed_copy_ns, **rank.step_idle}


@rule("T250", "rank-imbalance", layer="trace", severity="error", trust="read")
def judge_imbalance(ranks: RanksFound) -> Verdict | None:
    """Ranks wait much for each other, and it is not one rank's fault.

    What it looks at. The waiting of all ranks in matched collectives, step by step, and who came last.

    Why it costs. Each step takes as long as its slowest rank: with work that varies at random, the more ranks the longer.

    How it is judged. When waiting is 30 % of the communication and 2 % of the time, and no single rank is to blame. The
    gain is a replay in which every rank does the mean work of all at the same place of the same step.

    Remedy. Batches of equal work (sort or pack sequences by length), the same share of experts or layers on every rank,
    collections of garbage on all ranks at the same step.

    When to ignore. Pipelines: their bubble is told apart (T240).

    Sources. Lin et al., Understanding Stragglers in Large Model Training Using What-if Analysis, OSDI 2025, section 5
    """
    study = ranks.study
    if study is None or not study.matched:
        return None  # judge_straggler says so
    if study.straggler is not None:
        return _passed("the waiting is one rank's doing")
    if not study.uneven:
        return _too_few(study) or _passed(f"ranks keep step ({_waiting(study)})")
    slowdown = study.what_if.slowdown
    if study.what_if.refused is not None:
        part, gain = study.cost_share, Gain(basis="none", source=study.what_if.refused)
    else:
        part, gain = share(slowdown), gain_of_run(slowdown, ranks)
    if part < HIDDEN_SHARE:
        return _passed(f"equal ranks would gain {part:.1%} ({_waiting(study)})")
    last = Counter(s.last_rank for s in study.steps if s.last_rank is not None).most_common(3)
    named = ", ".join(f"rank {r} in {n}" for r, n in last)
    return _finding(
        severity=severity_of(part),
        message=f"ranks wait for each other {study.wait_share:.0%} of the communication, for another one from step to step",
        evidence=(
            Evidence(
                source="all ranks",
                at=counted(len(study.steps), "step"),
                text=f"caused most of the waiting: {named}" if named else "no steps are told",
            ),
        ),
        cost=cost_of_run(part, ranks),
        gain=gain,
        remedy="give every rank the same work each step: pack or sort by length, balance experts and layers",
        where={"ranks": list(study.ranks)},
    )


# --- links -----------------------------------------------------------------------------------------------


@rule("T230", "slow-link", layer="trace", severity="error", trust="read")
def judge_links(ranks: RanksFound) -> Verdict | None:
    """Collectives move bytes slower than their link should.

    What it looks at. The transfer of each collective (its time without waiting: the shortest of all ranks) by size,
    against what a ring needs over the link that the group crosses: NVLink, xGMI or PCIe of the GPU within a node; between
    nodes the network that you name.

    Why it costs. A link that lost lanes, a NIC behind the wrong switch, GPUDirect that is off: everything works, slowly.

    How it is judged. When at all sizes above half bandwidth the transfers take 1.5 times as long as the link's lower end
    allows, evenly. Groups with missing ranks are not judged, since waiting would count as transfer.

    Remedy. Read `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING`: which path and algorithm; then the link itself
    (`nvidia-smi nvlink -s`, `ibstat`, ACS, GPUDirect).

    When to ignore. Virtual machines that hide the topology.

    Sources. nccl-tests, doc/PERFORMANCE.md; NCCL 2.30.7, src/graph/tuning.cc; stas00/ml-engineering, network/README.md
    """
    study = ranks.study
    if study is None or not study.matched:
        return None
    if not study.limits:
        why = study.links_unknown[0] if study.links_unknown else "no size or group of a collective is told"
        return unjudged("no-fact", f"no link to compare with: {why}")
    slow = {key: limit for key, limit in study.limits.items() if limit.kind == "path"}
    speedup = study.what_if.links
    if not slow:
        return _passed(
            "transfers take what their links need: "
            + "; ".join(_limit(k, x) for k, x in list(study.limits.items())[:3])
        )
    key, limit = max(slow.items(), key=lambda item: item[1].ratio[1] * item[1].n)
    part = share(speedup) if speedup else 0.0
    rows = [r for r in study.sizes if f"{r.op}/{r.ranks}" in slow and r.expected_ns][:SHOWN]
    return _finding(
        severity="info" if part < WARNING_SHARE else severity_of(part),
        message=f"{key.split('/')[0]} over {key.split('/')[1]} ranks takes {limit.ratio[1]:.1f} times what its link needs ({study.links[key]})",
        evidence=tuple(
            Evidence(
                source="all ranks",
                at=f"{counted(r.calls, 'call')} of {r.size:,} bytes",
                text=f"{r.op}/{r.ranks}: {r.median_ns / 1e3:.0f} us, expected {(r.expected_ns or 0) / 1e3:.0f} us at most; busbw {(r.bus_bytes_s or 0) / 1e9:.1f} GB/s",
            )
            for r in rows
        ),
        cost=cost_of_run(part, ranks),
        gain=gain_of_run(speedup, ranks) if speedup else Gain(basis="none"),
        remedy="NCCL_DEBUG=INFO shows path and algorithm; then look at the link (nvidia-smi nvlink -s, ibstat, ACS, GPUDirect)",
        where={"ranks": list(study.ranks)},
    )


def _limit(key: str, limit: Limit) -> str:
    return f"{key} {limit.kind}, {limit.ratio[1]:.2f} times the curve"


def exposed_split(verdict: Verdict, found: RanksFound) -> Verdict:
    """`exposed-comm` of many ranks: its parts, and what hiding the transfers or equal ranks would bring. Its cost is
    the transfer alone where a finding of its own has the waiting."""
    study = found.study
    assert study is not None
    low, middle, high = (sum(w.exposed_wait_ns[k] for w in study.waits) for k in range(3))
    exposed = sum(w.exposed_ns for w in study.waits)
    if not exposed:
        return verdict
    if study.straggler is not None or study.uneven:
        verdict = _transfer_only(verdict, found)
    what = study.what_if
    waits = f"{middle / exposed:.0%} of it is waiting for other ranks ({low / exposed:.0%} to {high / exposed:.0%}), the rest transfer"
    slow = [k for k, x in study.limits.items() if x.kind == "path"]
    if slow:
        waits += f", slower than its link needs ({', '.join(slow[:2])})"
    gain = Gain(basis="none", source=what.refused)
    alternatives: list[Alternative] = []
    if what.refused is None:
        gain = gain_of_run(what.hidden, found, low=1.0, high=what.hidden)
        gain = replace(gain, source="replay of all ranks with no transfer exposed: a ceiling; waiting stays")
        alternatives.append(
            Alternative(
                remedy="ranks of equal speed: no waiting",
                gain=gain_of_run(what.slowdown, found, low=1.0, high=what.slowdown),
            )
        )
        if what.links is not None and slow:
            alternatives.append(
                Alternative(
                    remedy="links as fast as they should be", gain=gain_of_run(what.links, found, low=1.0)
                )
            )
    return replace(
        verdict,
        message=f"{verdict.message}; {waits}",
        gain=gain,
        alternatives=(*verdict.alternatives, *alternatives),
        remedy=verdict.remedy.split(", or find")[0]
        if middle < exposed / 2 and verdict.remedy
        else "make the ranks equal first: most of it is waiting",
    )


def _transfer_only(verdict: Verdict, found: RanksFound) -> Verdict:
    """The verdict with what of its cost is transfer, on the rank that it is of (all ranks' share if that has none)."""
    assert found.study is not None
    cost, step = verdict.cost, found.step_ns
    mine = [w for w in found.study.waits if w.rank == verdict.where.get("rank") and w.exposed_ns]
    waits = mine or list(found.study.waits)
    exposed = sum(w.exposed_ns for w in waits)
    if cost is None or cost.value is None or cost.unit != "ms/step" or not step:
        return verdict
    left = 1.0 - min(sum(w.exposed_wait_ns[1] for w in waits) / max(exposed, 1), 1.0)
    usd = None if cost.usd_per_day is None else round(cost.usd_per_day * left, 2)
    value = round(cost.value * left, 3)
    severity = severity_of(value * 1e6 / step)
    return replace(verdict, severity=severity, cost=replace(cost, value=value, usd_per_day=usd))


# --- pipelines -------------------------------------------------------------------------------------------


@rule("T240", "pipeline-bubble", layer="trace", severity="warning", trust="read")
def judge_bubble(ranks: RanksFound) -> Verdict | None:
    """Pipeline stages wait for each other's activations and gradients.

    What it looks at. Sends and receives between two ranks, matched by both: the time a receive waits for its sender. In
    records of a pipeline's operations: the idle share of the compute streams.

    Why it costs. At the start and end of a step only some stages have work: (p - 1) / m of the time for p stages and m
    micro-batches.

    How it is judged. By its share of the time of the ranks that send and receive. It belongs to the schedule, so it is
    info, and a warning where halving it brings more than 1.5 times the speed. Twice the micro-batches, or an interleaved
    schedule with two pieces a stage, halve it.

    Remedy. More micro-batches a step, an interleaved or zero-bubble schedule, stages of equal work (the last has the
    loss and the vocabulary).

    When to ignore. When memory does not hold more micro-batches.

    Sources. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021,
    section 2.2; Lin et al., OSDI 2025
    """
    study = ranks.study
    if study is None or not study.matched:
        return None
    those = [w for w in study.waits if w.pair_wait_ns]
    total = sum(w.comm_ns for w in those)
    spans = sum((w.own_ns or 0) + w.comm_ns for w in those)
    if not those or not spans or not total:
        return _passed("no rank waits in sends or receives between two ranks")
    part = sum(w.pair_wait_ns for w in those) / spans
    if part < HIDDEN_SHARE:
        return _passed(f"waiting in sends and receives takes {part:.1%} of the time")
    return bubble(
        part,
        found=ranks,
        text=f"{counted(len(those), 'rank')} wait{'s' if len(those) == 1 else ''} for a sender {part:.0%} of the time",
        of=[w.rank for w in those],
    )


def bubble(part: float, *, found: RanksFound, text: str, of: list[int]) -> Verdict:
    """The finding of a bubble that takes a share of the time."""
    half, whole = 1.0 / (1.0 - part / 2), 1.0 / (1.0 - min(part, 0.95))
    return _finding(
        severity="warning" if half > OPPORTUNITY else "info",
        message=text,
        evidence=(
            Evidence(source="all ranks", text="idle in sends and receives: the bubble of the pipeline"),
        ),
        cost=cost_of_run(part, found),
        gain=Gain(
            speedup=round(half, 3),
            low=1.0,
            high=round(whole, 3),
            basis="modelled",
            measured_in="time of the run",
            saves_ms=round(part / 2 * found.step_ns / 1e6, 3) if found.step_ns else None,
            source="twice the micro-batches halve it: (p - 1) / m",
        ),
        remedy="more micro-batches a step, an interleaved schedule, stages of equal work",
        where={"ranks": of} if of else {},
    )


# --- what is not here ------------------------------------------------------------------------------------


@rule("T260", "missing-ranks", layer="trace", severity="info", trust="read")
def judge_missing(ranks: RanksFound) -> Verdict | None:
    """Traces of some ranks are not here.

    What it looks at. The world size that the traces tell, against the ranks that they are of.

    Why it costs. The rank that all others wait for may be one of those missing: then the wait counts as transfer.

    How it is judged. Not judged, with their number; all here is a pass. It is no finding, since nothing is wrong with the
    work.

    Remedy. Record all ranks over the same steps; `on_trace_ready` writes one file a rank.

    When to ignore. One replica of many alike.

    Sources. PyTorch: `distributedInfo` of a trace
    """
    if ranks.world is None or not ranks.series:
        return None
    if not ranks.missing:
        return _passed(f"all {ranks.world} ranks are here")
    few = _listed(ranks.missing)
    return unjudged(
        "missing",
        f"{len(ranks.missing)} of {ranks.world} ranks have no trace here ({few}): waiting for them counts as transfer",
    )


def _listed(ranks: tuple[int, ...]) -> str:
    """`2-63, 70`; of many runs the first."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    said = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:SHOWN]]
    return ", ".join(said) + ("..." if len(runs) > SHOWN else "")


@rule("T270", "unmatched-collectives", layer="trace", severity="info", trust="read")
def judge_unmatched(ranks: RanksFound) -> Verdict | None:
    """Collectives of some groups could not be matched across ranks.

    What it looks at. The groups whose calls are on two ranks or more.

    Why it costs. What is not matched cannot be split into waiting and transfer.

    How it is judged. Calls without numbers are matched by order only if the order can be proven, else by coinciding ends
    if those are far more than chance; what cannot be proven is refused, with the reason, rather than mismatched.

    Remedy. PyTorch 2.5 or later writes `Process Group Name` and `Seq` on every collective.

    Sources. PyTorch, torch/csrc/distributed/c10d/ParamCommsUtils.hpp
    """
    study = ranks.study
    if study is None:
        return None
    if study.matched >= study.calls:
        return _passed(f"all {study.calls:,} collectives are matched")
    if not study.refused:
        why = next((note for note in study.notes if "is kept" in note), "their other side is in no file")
        return unjudged(
            "no-fact",
            f"{study.calls - study.matched:,} of {study.calls:,} collectives are not matched ({why})",
        )
    lost = study.calls - study.matched
    reasons = Counter({r.reason: 0 for r in study.refused})
    for r in study.refused:
        reasons[r.reason] += r.calls
    why = "; ".join(f"{counted(n, 'call')}: {reason}" for reason, n in reasons.most_common(3))
    return unjudged("no-fact", f"{lost:,} of {study.calls:,} collectives are not matched ({why})")
