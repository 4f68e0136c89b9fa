"""One rank and device studied: its budget, its idle causes, the step nobody recorded, and what cures are worth."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from wellfed.analyze import replay
from wellfed.analyze.budget import Work, budget_in, comm_totals, raw_budget
from wellfed.analyze.causes import Covers, charge
from wellfed.analyze.copies import Copies, copies_of, copy_cures
from wellfed.analyze.cpu_comm import idle_in, longest_waits
from wellfed.analyze.cures import Cured, cures_of, cures_of_wastes, host_link, pageable_rate, staged_ns
from wellfed.analyze.cures_together import cured_together, told, worth_asking
from wellfed.analyze.evidence import evidence_of
from wellfed.analyze.integrity import integrity_warnings
from wellfed.analyze.launches import Launches
from wellfed.analyze.op_chain import OpChain
from wellfed.analyze.op_roofline import op_calls, op_roofline, roof_of
from wellfed.analyze.recording import POINTS, recording_costs
from wellfed.analyze.recurrence import steps_of
from wellfed.analyze.replay import Loop, Replayed
from wellfed.analyze.step_budget import budget_parts, clean_medians, median_ns, unprofiled_budget
from wellfed.analyze.step_work import in_steps, step_work
from wellfed.analyze.steps import (
    HostSteps,
    device_windows,
    finished,
    middle,
    recorded_step_ns,
    unbroken,
    warmed_up,
)
from wellfed.analyze.strip import overlap_strip
from wellfed.analyze.tables import kernel_table, launches_per_step, op_table
from wellfed.analyze.wastes import Seen, Waste, find_wastes, look
from wellfed.analyze.window import whole_steps
from wellfed.model.base import replace
from wellfed.model.counting import counted
from wellfed.model.timeline import Timeline
from wellfed.model.trace import Budget, RankTrace, Step, StepBudget, TraceWarning
from wellfed.predict.profiler import HostCost

IDENTITY_LIMIT = 0.02
"""How far the replay of the unchanged steps may be off what was recorded, either way."""
LONGER_LIMIT = 0.05
"""How far the step without the profiler's cost may lie above the recorded mean. Nothing that is taken off makes a step
longer; but the replay goes round until the loop is steady, and a few recorded steps have a first and a last one."""
KNOWN_LIMIT = 0.05
"""How far the unprofiled step that the user knows may be off what some cost of recording explains: clocks and
neighbours change a loop by as much from run to run."""
NEAREST_LIMIT = 0.15
"""Up to here the nearest explained step stands for the known one: as much as the replay itself may be off."""
START_UP = (
    "profiler-overhead",
    "compile-stall",
    "allocator-churn",
    "launch-bound",
    "launch-call",
    "launch-latency",
)
"""Idle causes of a first step that need not come again."""
PACE_MATTERS = 1.1
BETWEEN = {"low": 1.0, "expected": 0.5, "high": 0.25}
"""Where between the free step and the slowest pace that was seen the pace of a loader is taken to lie."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is known of one rank and device. `refused` says why there are no predictions. `cures` by name:
    a cause, or `pageable-copy/overlapped`. `evidence` by cause: (ns since the file's first event, length in
    ns, text), the longest first."""

    rank: RankTrace
    warnings: tuple[TraceWarning, ...] = ()
    refused: str | None = None
    unprofiled: tuple[Replayed, ...] = ()
    cures: dict[str, Cured] = field(default_factory=dict)
    evidence: dict[str, tuple[tuple[int, int, str], ...]] = field(default_factory=dict)
    launches_per_step: float = 0.0
    median_kernel_ns: float = 0.0
    staged_ns: int = 0
    """Time of copies from pageable memory to the device: of a step where there are steps, else of the file."""
    copy_gbs: float | None = None
    link_gbs: float | None = None
    link_source: str = ""
    copies: Copies = field(default_factory=Copies)
    """Copies between host and device that are not of pageable memory."""
    wastes: dict[str, Waste] = field(default_factory=dict)
    """What is wasted though the device is busy, by name; what the cures are worth stands in `cures`."""
    shapes_known: bool = False
    roof_known: bool = False
    has_host_events: bool = True
    step_known: bool = False


def study_device(
    timeline: Timeline,
    device: int,
    *,
    step_ms: float | None = None,
    keep: Callable[[HostSteps], HostSteps] | None = None,
    replay_events: int | None = None,
) -> Study:
    """Study one device of a timeline. `step_ms` is the unprofiled step when the user knows it; `keep` narrows
    the steps; of those, the middle ones that have `replay_events` device events are replayed (None: all)."""
    work = Work(timeline, device)
    raw = raw_budget(work)
    name = timeline.gpus.get(device) or None
    rank = RankTrace(rank=timeline.rank, device=device, gpu=name, source=timeline.source)
    if raw is None or work.span is None:
        where = "window" if timeline.window else "file"
        return Study(rank=rank, refused=f"no GPU event in the {where}", warnings=timeline.warnings)
    launches = Launches(timeline, work)
    covers = Covers(timeline, work, launches)
    marked = whole_steps(steps_of(timeline, work, launches, covers.sync), timeline.window)
    whole = steps = finished(marked, timeline, work, launches)
    if keep is not None:
        steps = keep(steps)
    base = timeline.base_ns
    comm, hidden = comm_totals(work)
    windows = device_windows(steps, work, launches)
    charged = charge(timeline, work, launches, covers, windows)
    budgets = [budget_in(work, low, high) for low, high in windows]
    rank = replace(
        rank,
        steps=tuple(
            Step(name=n, start_ns=base + a, end_ns=base + b)
            for n, a, b in zip(steps.names, steps.start, steps.end, strict=True)
        ),
        step_source=steps.source,
        budget=raw,
        idle=charge(timeline, work, launches, covers, [work.span])[0],
        step_parts=tuple(
            {"name": n, "span_ns": b.span_ns, **budget_parts(b), "idle": {k: v for k, v in idle.items() if v}}
            for n, b, idle in zip(steps.names, budgets, charged, strict=True)
        ),
        gpu_events=int((work.compute | work.comm | work.copy).sum()),
        comm_ns=comm,
        comm_overlapped_ns=hidden,
        kernels=kernel_table(timeline, work, work.compute | work.copy),
        comm=tuple(
            {"name": r.name, "count": r.count, "total_ns": r.total_ns, "median_ns": r.median_ns}
            for r in kernel_table(timeline, work, work.comm)
        ),
        ops=op_table(timeline, launches),
        work=step_work(timeline, work, launches, steps),
        strip=overlap_strip(work, steps.names, windows),
    )
    start_up = [sum(row[cause] for cause in START_UP) for row in charged]
    replayed = warmed_up(steps, [b.span_ns for b in budgets], start_up)
    replayed = middle(unbroken(replayed), launches, replay_events)
    chain = OpChain(timeline, work, launches)
    calls = op_calls(timeline, chain)
    roof = roof_of(name)
    if calls.call:
        inside = in_steps(work, launches, steps)
        rank = replace(rank, roofline=op_roofline(timeline, work, launches, steps, calls, roof, inside))
    seen = look(timeline, work, launches, replayed, chain, calls, roof)
    found = Study(
        rank=rank,
        shapes_known=bool(calls.call),
        roof_known=roof is not None,
        warnings=(
            *integrity_warnings(timeline, work, launches, steps),
            *_unfinished(len(marked) - len(whole)),
        ),
        evidence={
            **evidence_of(timeline, work, launches, covers),
            "exposed-comm": longest_waits(timeline, covers.disjoint["dependency-wait"]),
        },
        launches_per_step=launches_per_step(launches, steps),
        median_kernel_ns=float(np.median((work.end - work.ts)[work.compute])) if work.compute.any() else 0.0,
        has_host_events=bool(launches.threads),
        staged_ns=staged_ns(covers, work, windows),
        copies=copies_of(timeline, work, covers, windows),
        step_known=step_ms is not None,
    )
    return _with_replay(found, timeline, work, launches, covers, replayed, budgets, charged, step_ms, seen)


def _with_replay(
    found: Study,
    timeline: Timeline,
    work: Work,
    launches: Launches,
    covers: Covers,
    steps: HostSteps,
    budgets: list[Budget],
    charged: list[dict[str, int]],
    step_ms: float | None,
    seen: Seen | None,
) -> Study:
    plain = clean_medians(budgets, charged)
    windows = device_windows(steps, work, launches)
    on_cpu = median_ns(idle_in(covers.disjoint["dependency-wait"], work, windows))
    as_recorded = replay.build_loop(timeline, work, launches, covers, steps, None)
    if isinstance(as_recorded, str):
        return _finish(found, plain, refused=as_recorded, on_cpu_ns=on_cpu)
    info: dict[str, Any] = {
        "measured_ns": round(as_recorded.measured_ns),
        "identity_error_pct": round(as_recorded.identity_error * 100, 3),
        "recorded_events_per_step": round(as_recorded.recorded_per_step, 1),
    }
    found = _replace(found, rank=replace(found.rank, replay=info))
    if abs(as_recorded.identity_error) > IDENTITY_LIMIT:
        off = f"the replay is {as_recorded.identity_error * 100:+.1f} % off the recorded steps (limit 2 %)"
        return _finish(found, plain, refused=off, on_cpu_ns=on_cpu)

    def without_recorder(step_ms: float | None) -> tuple[list[HostCost], list[Loop], tuple[Replayed, ...]]:
        costs = recording_costs(timeline, work, launches, step_ms, as_recorded, covers, steps)
        made = [replay.build_loop(timeline, work, launches, covers, steps, cost) for cost in costs]
        loops = [loop for loop in made if isinstance(loop, Loop)]
        return costs, loops, tuple(replay.run(loop) for loop in loops)

    costs, loops, free = without_recorder(step_ms)
    if step_ms is not None:
        what, why = _known(step_ms, free[1])
        if what == "refused":
            return _finish(found, plain, refused=why, on_cpu_ns=on_cpu)
        if why:
            found = _replace(found, warnings=(*found.warnings, _off(why)), step_known=what == "taken")
        if what == "left":
            costs, loops, free = without_recorder(None)
    recorded_ns = recorded_step_ns(steps, windows)
    loops, free = _paced(loops, free, recorded_ns)
    slowest = max(run.step_ns for run in free)
    if slowest > recorded_ns * (1 + LONGER_LIMIT):
        longer = (
            f"without the profiler's cost a step would take {slowest / 1e6:.3g} ms, recorded it took"
            f" {recorded_ns / 1e6:.3g} ms: the steps' begin and end do not fit the work"
        )
        return _finish(found, plain, refused=longer, on_cpu_ns=on_cpu)
    info = {
        **info,
        "recorded_step_ns": round(recorded_ns),
        "unprofiled_step_ns": {p: round(r.step_ns) for p, r in zip(POINTS, free, strict=True)},
        "host_slowdown": {p: round(c.slowdown, 3) for p, c in zip(POINTS, costs, strict=True)},
    }
    rank = replace(found.rank, replay=info)
    link, source = host_link(found.rank.gpu)
    found = _replace(found, rank=rank, unprofiled=free, link_gbs=link, link_source=source)
    wastes = find_wastes(seen) if seen is not None else {}
    longest = max(float(recorded_ns), as_recorded.measured_ns, slowest)
    cures = {
        name: dataclasses.replace(cure, longest=longest)
        for name, cure in (
            cures_of(loops, free, link)
            | copy_cures(loops, free, found.copies)
            | cures_of_wastes(loops, free, wastes)
        ).items()
    }
    several = worth_asking(cures, free[1])
    if len(several) > 1:
        joint = cured_together(
            several, loops, free, link_gbs=link, copies=found.copies, wastes=wastes, cures=cures
        )
        kept = told(several, dataclasses.replace(joint, longest=longest))
        found = _replace(found, rank=replace(rank, replay={**info, "together": kept}))
    found = _replace(found, cures=cures, wastes=wastes, copy_gbs=pageable_rate(timeline, covers, work))
    budget = unprofiled_budget(
        plain, free[1], len(steps), round(max(recorded_ns, free[1].step_ns)), cpu_comm_ns=on_cpu
    )
    return _finish(found, budget, refused=None, on_cpu_ns=round(free[1].idle["dependency-wait"]))


def _known(step_ms: float, nearest: Replayed) -> tuple[Literal["taken", "left", "refused"], str]:
    """What becomes of the unprofiled step that the user gave, and what is wrong with it, if anything is. `nearest` is the
    step closest to it that some cost of recording explains. What cannot be is left aside; what could be, but not by what
    is known of recording, leaves no ground for gains."""
    asked, got, given = step_ms * 1e6, nearest.step_ns, f"--step-ms {step_ms:g}"
    if abs(asked - got) <= KNOWN_LIMIT * got:
        return "taken", ""
    if asked > got:
        return (
            "left",
            f"{given}: what recording cost included, a step takes {got / 1e6:.3g} ms: it is left aside",
        )
    if asked < (1 - KNOWN_LIMIT) * nearest.busy_ns:
        return "left", (
            f"{given}: the GPU alone works {nearest.busy_ns / 1e6:.3g} ms of a step, as recorded: it is left aside"
        )
    least = f"{given}: however much recording cost, {got / 1e6:.3g} ms is the least that explains what was recorded"
    if asked >= (1 - NEAREST_LIMIT) * got:
        return "taken", f"{least}: that is taken"
    return "refused", f"{least}; without --step-ms gains are modelled"


def _off(why: str) -> TraceWarning:
    return TraceWarning(code="step-ms", count=1, sample=why, weakens="every gain, and costs a step")


def _unfinished(count: int) -> Iterator[TraceWarning]:
    if count:
        yield TraceWarning(
            code="unfinished-steps",
            count=count,
            sample=f"the recording ended before the device had done the last {counted(count, 'step')} that the host launched,"
            " left out here; synchronise before it stops",
            weakens="the raw budget's end; steps leave them out",
        )


def _paced(
    loops: list[Loop], free: tuple[Replayed, ...], recorded_ns: float
) -> tuple[list[Loop], tuple[Replayed, ...]]:
    """Workers that once kept the host waiting, and kept up with the recorded steps after that, are slower than the
    free step and not slower than those: somewhere between."""
    slowest = min(loops[1].slowest_pace or 0.0, recorded_ns)
    if slowest < PACE_MATTERS * free[1].step_ns:
        return loops, free
    paced = [
        replay.at_pace(loop, run.step_ns + BETWEEN[point] * max(slowest - run.step_ns, 0.0))
        for loop, run, point in zip(loops, free, POINTS, strict=True)
    ]
    return paced, tuple(replay.run(loop) for loop in paced)


def _finish(
    found: Study,
    budget: tuple[StepBudget, dict[str, int]] | None,
    *,
    refused: str | None,
    on_cpu_ns: int = 0,
) -> Study:
    rank = found.rank
    if refused is not None and found.step_known:
        why = refused if refused.startswith("--step-ms") else f"--step-ms is not used: {refused}"
        found = _replace(found, warnings=(*found.warnings, _off(why)), step_known=False)
    if budget is not None:
        on_cpu_ns = min(on_cpu_ns, budget[1]["dependency-wait"])
        rank = replace(rank, step_budget=budget[0], step_idle=budget[1], step_cpu_comm_ns=on_cpu_ns)
    return _replace(found, rank=rank, refused=refused)


def _replace(found: Study, **changes: Any) -> Study:
    return dataclasses.replace(found, **changes)
