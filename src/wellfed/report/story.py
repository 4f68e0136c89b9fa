"""What a report says, and in which order; how it looks is the renderers' business.

One place decides which rank's step is shown, which parts fold together, how what was not judged is grouped
and what comes next, so that terminal, Markdown, HTML and notebook tell the same story.
"""

import re
from collections import Counter
from collections.abc import Iterable
from statistics import median
from typing import Literal, NamedTuple

from wellfed.model import Case, Ceiling, Headline, Machine, RankTrace, Verdict
from wellfed.model.counting import counted
from wellfed.model.trace import Budget, StepBudget
from wellfed.model.verdict import SEVERITY_ORDER, worth
from wellfed.report import words

View = Literal["doctor", "check", "trace", "measure", "inspect", "run"]
Group = Literal["compute", "comm", "copy", "idle", "overhead", "unknown"]
SMALL_SHARE = 0.01
"""Parts below this share of the step fold into one row, when there are two or more of them."""

PARTS: dict[str, tuple[Group, str]] = {
    "compute": ("compute", "kernels running"),
    "exposed-comm": ("comm", "communication that no compute hides"),
    "exposed-copy": ("copy", "copies that neither compute nor communication hides"),
    "profiler-overhead": ("overhead", "the profiler's own cost"),
    "data-wait": ("idle", "waiting for the data loader"),
    "checkpoint-stall": ("idle", "waiting for a checkpoint"),
    "host-stall": ("idle", "main thread silent: garbage collection or other"),
    "allocator-churn": ("idle", "allocating and freeing device memory"),
    "compile-stall": ("idle", "compiling or loading code"),
    "host-sync": ("idle", "host waited for the GPU, then had to start it again"),
    "pageable-copy": ("idle", "synchronous copy from pageable memory"),
    "launch-bound": ("idle", "host dispatches slower than the GPU computes"),
    "launch-call": ("idle", "inside the launch call"),
    "launch-latency": ("idle", "from launch to start on an empty queue"),
    "dependency-wait": ("idle", "waiting for another stream, or for a collective on the CPU"),
    "queue-wait": ("idle", "launched, yet not started"),
    "orphan": ("unknown", "no launch record"),
    "unattributed": ("unknown", "cause not known"),
    "idle": ("idle", "no kernel, copy or communication"),
}

REASONS: dict[str, str] = {
    "no-fact": "not visible from here",
    "denied": "no permission",
    "unsupported": "device or kernel cannot say",
    "missing": "not there",
    "error": "could not be read",
    "not-applicable": "not applicable here",
    "intent": "not this kind of work",
    "idle": "takes load to see",
    "not-measured": "takes a measurement",
    "noisy": "the measurement was too unsteady",
    "no-gpu-event": "no GPU event in the trace",
    "no-steps": "no steps in the trace",
    "no-host-events": "no launches in the trace",
    "no-replay": "the steps could not be replayed",
    "": "no reason given",
}
RISKS: dict[str, str] = {
    "safe": "safe: live, and undone at once",
    "restart": "restart: the job or a service must restart",
    "reboot": "reboot: takes a reboot or firmware",
    "unsafe": "unsafe: can lose work, isolation or the connection",
}
CODE_RISKS: dict[str, str] = {
    "safe": "safe: a change of your program; nothing on the host changes",
    "restart": "restart: the job or a service must restart",
}
"""What `RISKS` says, where the cure is a change of the user's own program: findings of a trace."""
LIMITS = {"gpu-bound": "the GPU's own work", "host-link": "the link to the host"}
FOLDED_REASONS = ("not-applicable", "intent")


class Part(NamedTuple):
    """One row of the waterfall; `start_ns` is where the row before it ended."""

    name: str
    group: Group
    words: str
    start_ns: int
    ns: int
    share: float


class StepStory(NamedTuple):
    """Where one rank's time goes. `basis` says what the numbers are medians of."""

    rank: RankTrace
    title: str
    basis: str
    span_ns: int
    parts: tuple[Part, ...]
    whole_step: bool


def _parts(budget: Budget | StepBudget, idle: dict[str, int], *, small: float) -> tuple[Part, ...]:
    times = {
        "compute": budget.compute_ns,
        "exposed-comm": budget.exposed_comm_ns,
        "exposed-copy": budget.exposed_copy_ns,
    }
    causes = {name: ns for name, ns in idle.items() if ns > 0} or {"idle": budget.idle_ns}
    times |= dict(sorted(causes.items(), key=lambda item: (-item[1], item[0])))
    times = {name: ns for name, ns in times.items() if ns > 0}
    tiny = [name for name, ns in times.items() if ns < small * budget.span_ns]
    if len(tiny) > 1:
        folded = sum(times.pop(name) for name in tiny)
        times[f"{len(tiny)} smaller"] = folded
    span = max(budget.span_ns, 1)
    rows, at = [], 0
    for name, ns in times.items():
        fallback: tuple[Group, str] = ("unknown", ", ".join(tiny) if name.endswith("smaller") else "")
        group, text = PARTS.get(name, fallback)
        rows.append(Part(name, group, text, at, ns, ns / span))
        at += ns
    return tuple(rows)


def step_story(rank: RankTrace, *, small: float = SMALL_SHARE) -> StepStory | None:
    """The clean step when there is one, else the whole capture; None without a GPU event."""
    name = rank_name(rank)
    if rank.step_budget is not None and rank.step_budget.span_ns > 0:
        step = rank.step_budget
        replayed = not rank.replay or "unprofiled_step_ns" in rank.replay
        cost = "profiler's cost taken off" if replayed else "as recorded: the profiler's cost is still in it"
        mean = "unprofiled_step_ns" in rank.replay
        of = f"mean of {counted(step.n, 'replayed step')}" if mean else f"median of {counted(step.n, 'step')}"
        basis = f"{of}, {cost}"
        if replayed and step.traced_span_ns and step.traced_span_ns != step.span_ns:
            basis += f" (traced: {words.duration(step.traced_span_ns)})"
        parts = _parts(step, rank.step_idle, small=small)
        return StepStory(rank, f"Where the step goes: {name}", basis, step.span_ns, parts, True)
    if rank.budget is not None and rank.budget.span_ns > 0:
        parts = _parts(rank.budget, rank.idle, small=small)
        basis = "whole capture: no whole step was found in it"
        return StepStory(rank, f"Where the capture goes: {name}", basis, rank.budget.span_ns, parts, False)
    return None


def rank_name(rank: RankTrace) -> str:
    """`rank 0, device 1, NVIDIA H200`; the file when nothing else is known."""
    known = [f"{label} {n}" for label, n in (("rank", rank.rank), ("device", rank.device)) if n is not None]
    if rank.gpu:
        known.append(words.clean(rank.gpu))
    return ", ".join(known) or words.clean(rank.source) or "one rank"


def shown_rank(case: Case) -> RankTrace | None:
    """The rank whose step is drawn: the one with the largest share of idle time, then the longest step."""

    def starved(rank: RankTrace) -> tuple[float, int]:
        budget = rank.step_budget or rank.budget
        assert budget is not None
        return (budget.idle_ns / max(budget.span_ns, 1), budget.span_ns)

    timed = [rank for rank in case.ranks if (rank.step_budget or rank.budget) is not None]
    return max(timed, key=starved, default=None)


def kernel_name(name: str) -> str:
    """A kernel's name without the `void` that most of them begin with."""
    return words.clean(name).removeprefix("void ")


def top_cause(rank: RankTrace) -> str:
    """The idle cause that takes most of the step (or of the capture); empty when none takes any."""
    idle = rank.step_idle if rank.step_budget is not None else rank.idle
    name = max(idle, key=lambda name: idle[name], default="")
    return words.clean(name) if idle.get(name, 0) > 0 else ""


def ranks_shown(case: Case, most: int) -> tuple[RankTrace, ...]:
    """The ranks to list, in their order. Of too many those that stand out: who holds the others up, whose step is
    shown, whose files say nothing, then those whose step is divided unlike the median rank's."""
    if len(case.ranks) <= most:
        return case.ranks
    shares = [_shares(rank) for rank in case.ranks]
    usual = [median(values) for values in zip(*(one for one in shares if one is not None), strict=True)]
    slow = case.together.straggler if case.together is not None else None
    shown = shown_rank(case)

    def stands_out(at: int) -> tuple[int, float]:
        rank, mine = case.ranks[at], shares[at]
        if (slow is not None and rank.rank == slow.rank) or rank is shown:
            return 0, 0.0
        if mine is None:
            return 1, 0.0
        return 2, -max(abs(a - b) for a, b in zip(mine, usual, strict=True))

    first = sorted(sorted(range(len(case.ranks)), key=stands_out)[:most])
    return tuple(case.ranks[at] for at in first)


def _shares(rank: RankTrace) -> tuple[float, ...] | None:
    budget = rank.step_budget or rank.budget
    if budget is None:
        return None
    parts = (budget.compute_ns, budget.exposed_comm_ns, budget.exposed_copy_ns, budget.idle_ns)
    return tuple(ns / max(budget.span_ns, 1) for ns in parts)


def together_lines(case: Case) -> list[str]:
    """What the ranks say together, in a few sentences; none where their collectives were not compared."""
    together = case.together
    if together is None:
        return []
    how = {"sequence": "number", "order": "order", "end": "coinciding end"}
    by = ", ".join(f"{n:,} by {how.get(k, k)}" for k, n in together.matched_by.items())
    lines = [
        f"{counted(len(together.ranks), 'rank')}: {together.matched:,} of {together.calls:,} collectives matched"
        + (f" ({by})" if by else "")
    ]
    if together.matched:
        left = max((clock.residual_ns for clock in together.clocks), default=0.0)
        lines.append(
            f"waiting for each other is {words.percent(together.wait_share)} of the communication and "
            f"{words.percent(together.cost_share)} of the time; clocks agree to {words.duration(left)}"
        )
    equal = together.what_if
    if equal.refused is None and equal.calls:
        faster = f"{words.ratio(equal.slowdown)} as fast" if equal.slowdown > 1.0 else "no faster"
        lines.append(f"with equal ranks the run would be {faster}")
    lines += list(together.notes[:3])
    return [words.clean(line) for line in lines]


# --- verdicts ------------------------------------------------------------------------------------------


def by_worth(verdicts: Iterable[Verdict]) -> list[Verdict]:
    return sorted(verdicts, key=worth)


def findings(case: Case) -> list[Verdict]:
    return by_worth(v for v in case.verdicts if v.verdict == "finding")


def counts_phrase(case: Case) -> str:
    """`2 findings (1 error, 1 info), 41 pass, 17 not judged`."""
    counts = case.counts()
    severities = Counter(v.severity for v in case.verdicts if v.verdict == "finding")
    text = counted(counts["finding"], "finding")
    if severities:
        order = sorted(severities, key=lambda name: -SEVERITY_ORDER[name])
        text += f" ({', '.join(f'{severities[name]} {name}' for name in order)})"
    return f"{text}, {counts['pass']:,} pass, {counts['not-judged']:,} not judged"


def risk_phrase(verdict: Verdict) -> str | None:
    """What applying the cure can do, in words; None where it is not said."""
    if verdict.risk is None:
        return None
    said = {**RISKS, **CODE_RISKS} if verdict.layer == "trace" else RISKS
    return said.get(verdict.risk, verdict.risk)


def cost_phrase(verdict: Verdict) -> str | None:
    """What the fault takes now. That of a step without the profiler is said to be so, since the trace shows a longer one."""
    text, cost, gain = words.cost_phrase(verdict.cost), verdict.cost, verdict.gain
    free = gain is not None and gain.measured_in == "time of the unprofiled step"
    if text is None or cost is None or cost.unit != "ms/step" or not free:
        return text
    return text.replace("ms/step", "ms/step without the profiler", 1)


def then_limits(verdict: Verdict) -> str | None:
    """What the step waits for once this is cured; None where it is not known."""
    name = verdict.gain.next if verdict.gain is not None else None
    return words.clean(LIMITS.get(name, name)) if name else None


class Unjudged(NamedTuple):
    """What was not judged for one reason; `groups` joins the verdicts that say the same."""

    reason: str
    words: str
    groups: tuple[tuple[str, tuple[Verdict, ...]], ...]
    total: int


def not_judged(case: Case) -> list[Unjudged]:
    """By reason, the one with most verdicts first; what does not apply comes last."""
    by_reason: dict[str, dict[str, list[Verdict]]] = {}
    for verdict in case.verdicts:
        if verdict.verdict == "not-judged":
            reason = verdict.reason or ""
            by_reason.setdefault(reason, {}).setdefault(verdict.message, []).append(verdict)
    out = []
    for reason, messages in by_reason.items():
        groups = tuple((message, tuple(verdicts)) for message, verdicts in messages.items())
        total = sum(len(verdicts) for _, verdicts in groups)
        out.append(Unjudged(reason, REASONS.get(reason, words.clean(reason)), groups, total))
    return sorted(out, key=lambda item: (item.reason in FOLDED_REASONS, -item.total, item.reason))


_INSTANT = re.compile(r"t=([\d.]+) ms\b")


def instant(verdict: Verdict) -> tuple[str, str] | None:
    """The file and the time since its first event at which a finding shows best; None where none is known."""
    for evidence in verdict.evidence:
        if verdict.layer == "trace" and (at := _INSTANT.match(evidence.at or "")):
            return words.clean(evidence.source), f"{float(at[1]):,.3f}{words.NBSP}ms"
    return None


def code_list(verdicts: Iterable[Verdict], *, limit: int = 12) -> str:
    """`CPU07, GPU24 and 3 more`."""
    codes = list(dict.fromkeys(words.clean(v.code) for v in verdicts))
    more = len(codes) - limit
    return ", ".join(codes[:limit]) + (f" and {more} more" if more > 0 else "")


# --- headline and next step ----------------------------------------------------------------------------


def no_gpu_event(case: Case) -> str:
    """What a trace without one is said to be: cut down to a window, it may hold many outside."""
    outside = any(warning.code == "window" for warning in case.warnings)
    return "No GPU event in the window looked at" if outside else "No GPU event in this trace"


def headline(case: Case, view: View = "doctor") -> Headline:
    """The case's own headline, or the plainest true sentence that can be made of it."""
    if case.headline is not None:
        return case.headline
    if view == "inspect" or (view == "doctor" and not (case.verdicts or case.ranks or case.ceilings)):
        if case.machine is None:
            return Headline(text="nothing was looked at", next_command="wellfed doctor --demo")
        return Headline(text=machine_phrase(case.machine))
    if view == "measure" and case.ceilings:
        odd = Counter(c.verdict for c in case.ceilings if c.verdict != "ok")
        text = f"{counted(len(case.ceilings), 'ceiling')} measured"
        return Headline(text=text + "".join(f", {n} {name}" for name, n in sorted(odd.items())))
    if view == "measure":
        return Headline(text="nothing was measured", next_command="wellfed measure --quick")
    top = findings(case)
    if view != "check" and top and top[0].severity != "info":
        text = top[0].message or f"{top[0].code} {top[0].name}"
        return Headline(text=text[:1].upper() + text[1:])
    if case.ranks and shown_rank(case) is None:
        return Headline(text="the trace holds no GPU event")
    if case.verdicts:
        return Headline(text=counts_phrase(case))
    return Headline(text="nothing was judged", next_command="wellfed doctor --demo")


def next_command(case: Case, view: View = "doctor") -> str | None:
    """What to type now: the headline's own advice, else the proof of the best cure."""
    if (command := headline(case, view).next_command) is not None:
        return command
    if view in ("measure", "inspect"):
        return None
    listed = findings(case)
    if (verify := next((v.verify for v in listed if v.verify), None)) is not None:
        return verify
    return f"wellfed explain {listed[0].code}" if listed else None


# --- machine and ceilings ------------------------------------------------------------------------------


def machine_phrase(machine: Machine) -> str:
    """`8 x NVIDIA H200, 192 CPUs, 2.0 TiB, Linux 6.8`."""
    bits = []
    for name, count in Counter(gpu.name or "unknown GPU" for gpu in machine.gpus).items():
        bits.append(f"{count} x {words.clean(name)}")
    if not bits:
        bits.append("no GPU seen")
    if machine.cpu.logical is not None:
        bits.append(counted(machine.cpu.logical, "CPU"))
    if machine.memory.total_bytes is not None:
        bits.append(words.size(machine.memory.total_bytes))
    if machine.kernel.release:
        bits.append(f"Linux {words.clean(machine.kernel.release)}")
    if "damaged" in (lost := machine.gaps.get("recording", "")):
        bits.append(f"counts may be too low: {words.clean(lost)}")
    return ", ".join(bits)


def machine_lines(machine: Machine) -> list[tuple[str, str]]:
    """The machine in a dozen lines, for people: (label, text). A label without anything known is left out."""
    w, cpu = words, machine.cpu
    lines: list[tuple[str, str]] = []

    def add(label: str, *bits: str | None) -> None:
        if shown := [w.clean(bit) for bit in bits if bit]:
            lines.append((label, ", ".join(shown)))

    def known(template: str, value: object) -> str | None:
        return None if value is None else template.format(value)

    add(
        "cpu", cpu.model_name, _count(cpu.logical, "logical CPU"), _count(cpu.cores, "core"),
        _count(cpu.packages, "package"), _count(cpu.l3_groups, "L3 group"),
        known("boost " + ("on" if cpu.boost else "off"), cpu.boost),
        f"governor {'/'.join(cpu.governors)}" if cpu.governors else None, None if cpu.hypervisor == "none" else known("under {}", cpu.hypervisor),
    )  # fmt: skip
    add("numa", counted(len(machine.numa), "node") if machine.numa else None)
    add(
        "memory", known("{} in all", _size(machine.memory.total_bytes)),
        known("{} available", _size(machine.memory.available_bytes)),
        known("transparent huge pages {}", machine.memory.thp_enabled),
    )  # fmt: skip
    for (name, memory), indexes in _alike((g.name, g.memory_bytes, g.index) for g in machine.gpus).items():
        add(f"gpu {w.id_ranges(indexes)}", name or "unknown", _size(memory))
    add("driver", machine.software.driver, known("up to CUDA {}", machine.software.cuda_driver))
    kinds = Counter(link.kind for link in machine.links)
    add("links", *(f"{count} x {kind}" for kind, count in kinds.most_common(6)))
    add("rdma", *(_rate(f"{p.device}/{p.port}", p.state, p.rate_gbps, "Gbit/s") for p in machine.rdma[:8]))
    nics = [n for n in machine.nics if n.is_physical is not False][:8]
    add("network", *(_rate(n.name, n.state, n.speed_mbps, "Mbit/s") for n in nics))
    add("disks", *(" ".join(filter(None, (d.name, d.model, _size(d.size_bytes)))) for d in machine.disks[:8]))
    box, soft = machine.container, machine.software
    add(
        "container", box.kind, known("cgroup v{}", box.cgroup_version), "no CPU quota" if box.cpu_quota == -1 else known("{} CPUs of quota", box.cpu_quota),
        known("{} of /dev/shm", _size(box.shm_bytes)),
    )  # fmt: skip
    add("kernel", machine.kernel.release, machine.kernel.os_name)
    add(
        "software", known("Python {}", soft.python), known("PyTorch {}", soft.torch),
        known("CUDA {}", soft.torch_cuda), known("NCCL {}", soft.nccl), known("ROCm {}", soft.rocm),
    )  # fmt: skip
    return lines


def _count(count: int | None, noun: str) -> str | None:
    return None if count is None else counted(count, noun)


def _size(count: int | None) -> str | None:
    return None if count is None else words.size(count)


def _rate(name: str, state: str | None, rate: float | None, unit: str) -> str:
    speed = "speed unknown" if rate is None else f"{words.number(rate)} {unit}"
    return " ".join(filter(None, (name, state, speed)))


def _alike(
    gpus: Iterable[tuple[str | None, int | None, int]],
) -> dict[tuple[str | None, int | None], list[int]]:
    groups: dict[tuple[str | None, int | None], list[int]] = {}
    for name, memory, index in gpus:
        groups.setdefault((name, memory), []).append(index)
    return groups


def of_peak(ceiling: Ceiling) -> str | None:
    """`81 % of 4.8 TB/s`; for a latency, where less is better, `1.6x of 120 ns`."""
    if ceiling.ratio is None or ceiling.peak is None:
        return None
    peak = f"{words.number(ceiling.peak)}{words.NBSP}{words.shorten(words.clean(ceiling.unit), 24)}"
    if ceiling.higher_is_better:
        return f"{words.number(ceiling.ratio * 100)}{words.NBSP}% of {peak}"
    return f"{words.number(ceiling.ratio)}x of {peak}"


def spread(ceiling: Ceiling) -> str:
    """`median 3.80, p10 3.71 to p90 3.92, n = 12`."""
    median, low, high = words.alike((ceiling.median, ceiling.p10, ceiling.p90))
    return f"median {median}, p10 {low} to p90 {high}, n{words.NBSP}={words.NBSP}{ceiling.n}"
