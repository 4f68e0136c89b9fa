"""One rank and device studied: its budget, its idle causes, the step nobody recorded, and what cures are worth."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wellfed import catalog
from wellfed.analyze import replay
from wellfed.analyze.budget import Work, budget_in, comm_totals, raw_budget
from wellfed.analyze.causes import CAUSES, PAGEABLE, Covers, charge
from wellfed.analyze.intervals import clip
from wellfed.analyze.launches import Launches
from wellfed.analyze.replay import HOST_CAUSES, Loop, Replayed
from wellfed.analyze.steps import HostSteps, device_windows, find_steps, unbroken
from wellfed.model.base import replace
from wellfed.model.timeline import Cat, Timeline
from wellfed.model.trace import Budget, KernelRow, RankTrace, Step, StepBudget, TraceWarning
from wellfed.predict.profiler import HostCost, host_cost, host_cost_for

IDENTITY_LIMIT = 0.02
POINTS = ("low", "expected", "high")
"""How much recording is taken to have cost: least, likely, most."""
LOADER_RESIDUAL_NS = {"low": 300_000.0, "expected": 150_000.0, "high": 50_000.0}
"""What taking a ready batch costs: a healthy loader's `__next__` took 60 to 300 us (H200 host, pinned)."""
NODE_GAP_NS = {"low": 1_000.0, "expected": 500.0, "high": 200.0}
"""From one node of a graph to the next; 0.1 to 0.6 us between replayed kernels on an H200."""
LINK_SHARE = {"low": 0.75, "expected": 0.87, "high": 0.93}
"""Share of the PCIe payload rate that pinned copies reach (25.9 of 31.5 GB/s on Gen4, 55 of 63 on Gen5)."""
DEFAULT_LINK_GBS = 25.0
_PLAIN_LAUNCH = re.compile(r"^(?:cuda|cu|hip|hipExt(?:Module)?)(?:Module)?LaunchKernel(?:Ex|ExC)?$")


@dataclass(frozen=True, kw_only=True)
class Cured:
    """One cure replayed at the three points: step times in ns before and after, and what then limits."""

    name: str
    before: tuple[float, float, float]
    after: tuple[float, float, float]
    next: str


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
    has_host_events: bool = True
    step_known: bool = False


def study_device(
    timeline: Timeline,
    device: int,
    *,
    step_ms: float | None = None,
    keep: Callable[[HostSteps], HostSteps] | None = None,
) -> Study:
    """Study one device of a timeline. `step_ms` is the unprofiled step when the user knows it; `keep` narrows
    the steps."""
    work = Work(timeline, device)
    raw = raw_budget(work)
    name = timeline.gpus.get(device) or None
    rank = RankTrace(rank=timeline.rank, device=device, gpu=name, source=timeline.source)
    if raw is None:
        return Study(rank=rank, refused="no GPU event in the file")
    launches = Launches(timeline, work)
    covers = Covers(timeline, work, launches)
    steps = find_steps(timeline, launches.threads)
    if keep is not None:
        steps = keep(steps)
    base = timeline.base_ns
    start, end = int(work.ts.min()), int(work.end.max())
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
        idle=charge(timeline, work, launches, covers, [(start, end)])[0],
        step_parts=tuple(
            {"name": n, "span_ns": b.span_ns, **_parts(b), "idle": {k: v for k, v in idle.items() if v}}
            for n, b, idle in zip(steps.names, budgets, charged, strict=True)
        ),
        gpu_events=len(work.ts),
        comm_ns=comm,
        comm_overlapped_ns=hidden,
        kernels=_kernels(timeline, work, work.compute | work.copy),
        comm=tuple(
            {"name": r.name, "count": r.count, "total_ns": r.total_ns, "median_ns": r.median_ns}
            for r in _kernels(timeline, work, work.comm)
        ),
        ops=_ops(timeline, launches),
    )
    found = Study(
        rank=rank,
        warnings=_integrity(timeline, work, launches, steps),
        evidence=_evidence(timeline, work, launches, covers),
        launches_per_step=_per_step(launches, steps),
        median_kernel_ns=float(np.median((work.end - work.ts)[work.compute])) if work.compute.any() else 0.0,
        has_host_events=bool(launches.threads),
        staged_ns=_staged(covers, work, windows),
        step_known=step_ms is not None,
    )
    return _with_replay(found, timeline, work, launches, covers, unbroken(steps), budgets, charged, step_ms)


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
) -> Study:
    plain = _clean_medians(budgets, charged)
    as_recorded = replay.build_loop(timeline, work, launches, covers, steps, None)
    if isinstance(as_recorded, str):
        return _finish(found, plain, refused=as_recorded)
    info: dict[str, Any] = {
        "measured_ns": round(as_recorded.measured_ns),
        "identity_error_pct": round(as_recorded.identity_error * 100, 3),
        "recorded_events_per_step": round(as_recorded.recorded_per_step, 1),
    }
    found = _replace(found, rank=replace(found.rank, replay=info))
    if abs(as_recorded.identity_error) > IDENTITY_LIMIT:
        off = f"the replay is {as_recorded.identity_error * 100:+.1f} % off the recorded steps (limit 2 %)"
        return _finish(found, plain, refused=off)
    costs = _costs(timeline, work, launches, step_ms, as_recorded, covers, steps)
    loops: list[Loop] = []
    for cost in costs:
        loop = replay.build_loop(timeline, work, launches, covers, steps, cost)
        assert isinstance(loop, Loop)
        loops.append(loop)
    free = tuple(replay.run(loop) for loop in loops)
    info = {
        **info,
        "unprofiled_step_ns": {p: round(r.step_ns) for p, r in zip(POINTS, free, strict=True)},
        "host_slowdown": {p: round(c.slowdown, 3) for p, c in zip(POINTS, costs, strict=True)},
    }
    rank = replace(found.rank, replay=info)
    link, source = _link(found.rank.gpu)
    found = _replace(found, rank=rank, unprofiled=free, link_gbs=link, link_source=source)
    found = _replace(found, cures=_cures(loops, free, link), copy_gbs=_pageable_rate(timeline, work))
    return _finish(found, _unprofiled_budget(plain, free[1], len(budgets)), refused=None)


def _finish(found: Study, budget: tuple[StepBudget, dict[str, int]] | None, *, refused: str | None) -> Study:
    rank = found.rank
    if budget is not None:
        rank = replace(rank, step_budget=budget[0], step_idle=budget[1])
    return _replace(found, rank=rank, refused=refused)


def _replace(found: Study, **changes: Any) -> Study:
    import dataclasses

    return dataclasses.replace(found, **changes)


# -- the cost of recording --------------------------------------------------------------------------------


def _costs(
    timeline: Timeline,
    work: Work,
    launches: Launches,
    step_ms: float | None,
    as_recorded: Loop,
    covers: Covers,
    steps: HostSteps,
) -> list[HostCost]:
    """What to take off for the profiler at the three points, or, when the user gave the unprofiled step, what
    makes the replay take that long."""
    shapes = bool(timeline.options.get("record_shapes", True))
    launch = _launch_call(timeline, launches)
    spec = catalog.find_gpu(name=timeline.gpus.get(work.device) or None)
    current = (
        spec is not None and spec.compute_capability is not None and _major(spec.compute_capability) >= 9
    )
    points = [host_cost(p, launch_call_ns=launch, record_shapes=shapes, current_host=current) for p in POINTS]
    if step_ms is None:
        return points
    low, high = 0.0, 1.0
    for _ in range(9):
        middle = (low + high) / 2
        loop = replay.build_loop(timeline, work, launches, covers, steps, host_cost_for(middle, points[2]))
        assert isinstance(loop, Loop)
        if replay.run(loop, cycles=3).step_ns > step_ms * 1e6:
            low = middle
        else:
            high = middle
    return [host_cost_for((low + high) / 2, points[2])] * 3


def _major(capability: str) -> int:
    digits = re.match(r"\d+", capability)
    return int(digits.group()) if digits else 0


def _launch_call(timeline: Timeline, launches: Launches) -> float | None:
    """Median recorded kernel launch call, graph launches apart; None when there are fewer than ten."""
    rows = launches.row[launches.first]
    plain = np.array([_PLAIN_LAUNCH.match(n) is not None for n in timeline.names] or [False])
    rows = rows[plain[timeline.name[rows]]]
    return float(np.median(timeline.dur[rows])) if len(rows) >= 10 else None


# -- cures ------------------------------------------------------------------------------------------------


def _cures(loops: list[Loop], free: tuple[Replayed, ...], link_gbs: float) -> dict[str, Cured]:
    edits: dict[str, Callable[[Loop, str], Loop]] = {
        "data-wait": lambda x, p: replay.without(x, "data-wait", residual_ns=LOADER_RESIDUAL_NS[p]),
        "host-sync": lambda x, _: replay.without_syncs(x),
        "launch-bound": lambda x, p: replay.as_graph(x, node_gap_ns=NODE_GAP_NS[p]),
        "pageable-copy": lambda x, p: replay.pinned_copies(
            x, bytes_per_s=link_gbs * 1e9 * LINK_SHARE[p], overlapped=False
        ),
        "pageable-copy/overlapped": lambda x, p: replay.pinned_copies(
            x, bytes_per_s=link_gbs * 1e9 * LINK_SHARE[p], overlapped=True
        ),
    }
    for cause in HOST_CAUSES[1:]:
        edits[cause] = lambda x, _, cause=cause: replay.without(x, cause)  # type: ignore[misc]
    cures: dict[str, Cured] = {}
    middle = loops[1]
    for name, edit in edits.items():
        if not _there(middle, name):
            continue
        after = [replay.run(edit(loop, point)) for loop, point in zip(loops, POINTS, strict=True)]
        cures[name] = Cured(
            name=name,
            before=(free[0].step_ns, free[1].step_ns, free[2].step_ns),
            after=(after[0].step_ns, after[1].step_ns, after[2].step_ns),
            next=_limit(after[1], edit(middle, "expected"), name),
        )
    return cures


def _there(loop: Loop, name: str) -> bool:
    if name in HOST_CAUSES:
        releases = name == "allocator-churn" and bool(loop.release)
        return releases or any(loop.spent[name]) or any(loop.spent_tail[name])
    if name == "host-sync":
        return any(loop.is_sync)
    if name.startswith("pageable-copy"):
        return any(loop.pageable)
    return True


def _limit(after: Replayed, loop: Loop, cured: str) -> str:
    """What the step waits for most once cured: a cause with 5 % of it or more, else the device itself."""
    parts = {k: v for k, v in after.idle.items() if k not in ("launch-call", "launch-latency")}
    parts["launch-bound"] += after.idle["launch-call"] + after.idle["launch-latency"]
    if any(loop.pageable) and not cured.startswith("pageable-copy"):
        held = sum(d for d, p in zip(loop.duration, loop.pageable, strict=True) if p) / len(loop.tail)
        parts["pageable-copy"] = held
    if cured == "launch-bound":
        parts["launch-bound"] = 0.0  # what is left of it is the way from node to node
    name, most = max(parts.items(), key=lambda item: item[1])
    return name if most >= 0.05 * after.step_ns else "gpu-bound"


def _link(gpu: str | None) -> tuple[float, str]:
    """One-way payload rate of the host link in GB/s, and where it is from."""
    spec = catalog.find_gpu(name=gpu) if gpu else None
    if spec is not None and spec.numbers.pcie_gen is not None and spec.numbers.pcie_lanes is not None:
        gen, lanes = int(spec.numbers.pcie_gen.value), int(spec.numbers.pcie_lanes.value)
        rate = catalog.pcie_gbs(gen, lanes)
        if rate is not None:
            return rate, f"catalogue: {spec.title}, PCIe Gen{gen} x{lanes}"
    return DEFAULT_LINK_GBS, "assumed: PCIe Gen4 x16, the GPU is not in the catalogue"


def _staged(covers: Covers, work: Work, windows: list[tuple[int, int]]) -> int:
    """Time that copies from pageable memory to the device take, a step or (without steps) in all."""
    copies = work.copy & covers.staged_name[work.name]
    busy = work.busy(copies)
    if not windows:
        return busy.total
    return round(clip(busy, windows[0][0], windows[-1][1]).total / len(windows))


def _pageable_rate(timeline: Timeline, work: Work) -> float | None:
    """Achieved rate of the pageable copies in GB/s, None without sizes."""
    page = np.array([PAGEABLE.search(n) is not None for n in timeline.names] or [False])
    rows = work.rows[work.copy & page[work.name]]
    rows = rows[(timeline.size[rows] > 0) & (timeline.dur[rows] > 0)]
    if not len(rows):
        return None
    return float(timeline.size[rows].sum() / timeline.dur[rows].sum())


# -- budgets of a step ------------------------------------------------------------------------------------


def _parts(budget: Budget) -> dict[str, int]:
    return {
        "compute_ns": budget.compute_ns,
        "exposed_comm_ns": budget.exposed_comm_ns,
        "exposed_copy_ns": budget.exposed_copy_ns,
        "idle_ns": budget.idle_ns,
    }


def _clean_medians(
    budgets: list[Budget], charged: list[dict[str, int]]
) -> tuple[StepBudget, dict[str, int]] | None:
    """Medians over the steps as recorded; the first and last are left out when five or more are there."""
    if not budgets:
        return None
    inner = slice(1, -1) if len(budgets) >= 5 else slice(None)
    budgets, charged = budgets[inner], charged[inner]
    parts = {k: _median([_parts(b)[k] for b in budgets]) for k in _parts(budgets[0])}
    idle = {c: _median([row[c] for row in charged]) for c in CAUSES}
    idle = _scaled(idle, parts["idle_ns"])
    span = sum(parts.values())
    measured = _median([b.span_ns for b in budgets])
    return StepBudget(n=len(budgets), span_ns=span, traced_span_ns=measured, **parts), idle


def _unprofiled_budget(
    plain: tuple[StepBudget, dict[str, int]] | None, free: Replayed, steps: int
) -> tuple[StepBudget, dict[str, int]] | None:
    """The step nobody recorded: the device's work as recorded, the idle time as the replay has it. What the
    replay does not tell apart keeps its recorded proportion."""
    if plain is None:
        return None
    budget, recorded = plain
    idle_ns = max(round(free.step_ns - free.busy_ns), 0)
    work = budget.compute_ns + budget.exposed_comm_ns + budget.exposed_copy_ns
    factor = max(free.step_ns - idle_ns, 0.0) / work if work else 0.0
    compute = round(budget.compute_ns * factor)
    comm = round(budget.exposed_comm_ns * factor)
    copy = max(round(free.step_ns) - idle_ns - compute - comm, 0)
    way = ("launch-latency", "dependency-wait", "queue-wait", "pageable-copy")
    total = sum(recorded[c] for c in way)
    idle: dict[str, float] = {c: free.idle.get(c, 0.0) for c in CAUSES}
    if total:
        for c in way:
            idle[c] = free.idle["launch-latency"] * recorded[c] / total
    span = compute + comm + copy + idle_ns
    return (
        StepBudget(
            n=steps,
            span_ns=span,
            compute_ns=compute,
            exposed_comm_ns=comm,
            exposed_copy_ns=copy,
            idle_ns=idle_ns,
            traced_span_ns=budget.traced_span_ns,
        ),
        _scaled({c: round(v) for c, v in idle.items()}, idle_ns),
    )


def _median(values: list[int]) -> int:
    return round(float(np.median(values))) if values else 0


def _scaled(parts: dict[str, int], total: int) -> dict[str, int]:
    """The parts scaled so that they sum to `total` exactly (the largest takes the rounding)."""
    known = sum(parts.values())
    if known == 0:
        return {**parts, "unattributed": total}
    scaled = {k: v * total // known for k, v in parts.items()}
    scaled[max(scaled, key=lambda k: scaled[k])] += total - sum(scaled.values())
    return scaled


# -- tables -----------------------------------------------------------------------------------------------


def _per_step(launches: Launches, steps: HostSteps) -> float:
    if not len(steps):
        return 0.0
    inside = launches.first & (launches.start >= steps.start[0]) & (launches.start < steps.end[-1])
    return float(inside.sum()) / len(steps)


def _kernels(timeline: Timeline, work: Work, mask: Any, top: int = 15) -> tuple[KernelRow, ...]:
    if not mask.any():
        return ()
    name, length = work.name[mask], (work.end - work.ts)[mask]
    cat = timeline.cat[work.rows[mask]]
    rows: list[KernelRow] = []
    total = np.bincount(name, weights=length.astype(np.float64))
    for n in np.argsort(-total)[:top].tolist():
        if total[n] <= 0:
            break
        same = name == n
        kind = {Cat.MEMCPY: "memcpy", Cat.MEMSET: "memset"}.get(Cat(int(cat[same][0])), "kernel")
        rows.append(
            KernelRow(
                name=timeline.names[n],
                kind=kind,
                count=int(same.sum()),
                total_ns=int(length[same].sum()),
                median_ns=_median(length[same].tolist()),
            )
        )
    return tuple(rows)


def _ops(timeline: Timeline, launches: Launches, top: int = 10) -> tuple[dict[str, Any], ...]:
    """Host operators of the launching threads, by total time (a parent contains its children)."""
    mask = launches.host & (timeline.cat == Cat.OP)
    if not mask.any():
        return ()
    name, length = timeline.name[mask], timeline.dur[mask]
    total = np.bincount(name, weights=length.astype(np.float64))
    count = np.bincount(name, minlength=len(total))
    return tuple(
        {"name": timeline.names[n], "count": int(count[n]), "total_ns": int(total[n])}
        for n in np.argsort(-total)[:top].tolist()
        if total[n] > 0
    )


def _evidence(
    timeline: Timeline, work: Work, launches: Launches, covers: Covers, top: int = 3
) -> dict[str, tuple[tuple[int, int, str], ...]]:
    """The longest stretches of each cover that have a name, and the pageable copies themselves."""
    found: dict[str, tuple[tuple[int, int, str], ...]] = {}
    for cause, cover in covers.disjoint.items():
        length = cover.end - cover.start
        longest = np.argsort(-length)[:top].tolist()
        if longest:
            found[cause] = tuple(
                (int(cover.start[i]), int(length[i]), _owner(timeline, launches, int(cover.start[i])))
                for i in longest
            )
    page = np.array([PAGEABLE.search(n) is not None for n in timeline.names] or [False])
    copies = np.flatnonzero(work.copy & page[work.name])
    copies = copies[np.argsort(-(work.end - work.ts)[copies])][:top]
    if len(copies):
        found["pageable-copy"] = tuple(
            (int(work.ts[i]), int(work.end[i] - work.ts[i]), _copy_text(timeline, int(work.rows[i])))
            for i in copies.tolist()
        )
    rows = np.flatnonzero(covers.sync)
    rows = rows[np.argsort(-timeline.dur[rows])][:top]
    if len(rows):
        found["host-sync"] = tuple(
            (int(timeline.ts[r]), int(timeline.dur[r]), _under(timeline, launches, int(r)))
            for r in rows.tolist()
        )
    return found


def _copy_text(timeline: Timeline, row: int) -> str:
    size = int(timeline.size[row])
    return _name(timeline, row) + (f", {size / 1e6:.1f} MB" if size > 0 else "")


def _owner(timeline: Timeline, launches: Launches, at: int) -> str:
    """The event of the launching threads that begins at a time."""
    low, high = np.searchsorted(timeline.ts, [at, at + 1])
    rows = [r for r in range(int(low), int(high)) if launches.host[r] or timeline.cat[r] == Cat.OVERHEAD]
    return _name(timeline, rows[0]) if rows else "no event on the launching threads"


def _under(timeline: Timeline, launches: Launches, row: int) -> str:
    """A call and the operator it lies in."""
    at, thread = int(timeline.ts[row]), timeline.thread[row]
    call = _name(timeline, row)
    first = int(np.searchsorted(timeline.ts, at - 50_000_000))
    inside = np.flatnonzero(
        (timeline.thread[first:row] == thread)
        & (timeline.cat[first:row] == Cat.OP)
        & (timeline.end[first:row] >= timeline.end[row])
    )
    if not len(inside):
        return call
    return f"{call} in {_name(timeline, first + int(inside[0]))}"


def _name(timeline: Timeline, row: int) -> str:
    return timeline.names[int(timeline.name[row])]


def _integrity(
    timeline: Timeline, work: Work, launches: Launches, steps: HostSteps
) -> tuple[TraceWarning, ...]:
    """What about the recording weakens the numbers."""
    found = list(timeline.warnings)
    orphan = launches.orphan
    if orphan.any() and launches.threads:
        left = launches.left_over
        if left.any():
            found.append(
                TraceWarning(
                    code="warm-up-leakage",
                    count=int(left.sum()),
                    sample=f"{int(left.sum())} GPU events at the start were launched before the recording",
                    weakens="the raw budget (steps leave them out)",
                )
            )
        late = int(orphan.sum()) - int(left.sum())
        if late:
            found.append(
                TraceWarning(
                    code="orphan-events",
                    count=late,
                    sample=f"{late} GPU events have no launch record",
                    weakens="idle causes of the gaps before them",
                )
            )
    if not launches.threads:
        found.append(
            TraceWarning(
                code="no-host-events",
                count=0,
                sample="no runtime call launches the GPU events of this file",
                weakens="every idle cause",
            )
        )
    if not len(steps):
        found.append(
            TraceWarning(
                code="no-steps",
                count=0,
                sample="no ProfilerStep and nothing step-like recurs; call profiler.step() each step",
                weakens="per-step numbers and every gain",
            )
        )
    lost = len(steps) - len(unbroken(steps))
    if lost:
        found.append(
            TraceWarning(
                code="missing-steps",
                count=lost,
                sample=f"ProfilerSteps are missing in between; {lost} beyond the gap are not replayed",
                weakens="the step's time and every gain: fewer steps",
            )
        )
    frames = int((timeline.cat == Cat.PYTHON).sum())
    if frames > 0.3 * max(len(timeline), 1) and launches.threads:
        found.append(
            TraceWarning(
                code="profiler-overhead",
                count=frames,
                sample="recorded with_stack: each Python frame slows the host",
                weakens="host-side idle (modelled and taken off)",
            )
        )
    return tuple(found)
