"""The cures, replayed: how long a step takes when one cause of its idle time is gone."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wellfed import catalog
from wellfed.analyze import replay
from wellfed.analyze.budget import Work
from wellfed.analyze.causes import Covers
from wellfed.analyze.intervals import clip
from wellfed.analyze.recording import POINTS
from wellfed.analyze.replay import HOST_CAUSES, Edit, Loop, Replayed
from wellfed.analyze.wastes import Waste
from wellfed.model.timeline import Timeline

LOADER_RESIDUAL_NS = {"low": 300_000.0, "expected": 150_000.0, "high": 50_000.0}
"""What taking a ready batch costs: a healthy loader's `__next__` took 60 to 300 us (H200 host, pinned)."""
NODE_GAP_NS = {"low": 1_000.0, "expected": 500.0, "high": 200.0}
"""From one node of a graph to the next; 0.1 to 0.6 us between replayed kernels on an H200."""
LINK_SHARE = {"low": 0.75, "expected": 0.87, "high": 0.93}
"""Share of the PCIe payload rate that pinned copies reach (25.9 of 31.5 GB/s on Gen4, 55 of 63 on Gen5)."""
DEFAULT_LINK_GBS = 25.0
CHANGES_WORK = ("pageable-copy", "pageable-copy/overlapped", "checkpoint-stall", "host-sync")
"""Cures that make copies shorter or spare them."""
WANTED_BYTES = 1 << 20
"""A fetch of this much or more is data, not a number to look at: at the 1 to 15 GB/s of pageable memory its bytes, not
the 10 to 20 us of asking, set how long it takes."""


@dataclass(frozen=True, kw_only=True)
class Cured:
    """One cure replayed at the three points: step times in ns before and after, and what then limits. `launching` is
    the idle time of a step (ns) that is then still owed to dispatch, launch calls and the way to the device."""

    name: str
    before: tuple[float, float, float]
    after: tuple[float, float, float]
    next: str
    launching: float = 0.0
    floor: float = 0.0
    """Time of a step, in ns, that the cure cannot touch: what the device is busy with in the cured step, or, where the
    cure changes kernels or copies, with all the others. No cured step is shorter."""
    longest: float = 0.0
    """The longest a step can take without the recorder, in ns: as recorded."""
    idle_only: bool = True
    """Whether the cure leaves the device's work as it is and takes only idle time away."""
    sampling: float = 0.0
    """Standard error of what the cure saves a step, in ns, for its changing from step to step: few steps of something
    that comes now and then tell its mean badly."""


def edits_of(link_gbs: float) -> dict[str, Callable[[Loop, str], Loop]]:
    """What each cure makes of a loop at a point, by the cause that it removes."""
    edits: dict[str, Callable[[Loop, str], Loop]] = {
        "data-wait": lambda x, p: replay.without(x, "data-wait", residual_ns=LOADER_RESIDUAL_NS[p]),
        "host-sync": lambda x, _: _asked_less(x),
        "launch-bound": lambda x, p: replay.as_graph(x, node_gap_ns=NODE_GAP_NS[p]),
        "pageable-copy": lambda x, p: replay.pinned_copies(
            x, bytes_per_s=link_gbs * 1e9 * LINK_SHARE[p], overlapped=False
        ),
        "pageable-copy/overlapped": lambda x, p: replay.pinned_copies(
            x, bytes_per_s=link_gbs * 1e9 * LINK_SHARE[p], overlapped=True
        ),
    }
    for cause in HOST_CAUSES[1:]:
        if cause == "checkpoint-stall":
            edits[cause] = lambda x, p: replay.saved_aside(
                x, bytes_per_s=link_gbs * 1e9 * LINK_SHARE[p] if p != "high" else float("inf")
            )
            continue
        edits[cause] = lambda x, _, cause=cause: replay.without(x, cause)  # type: ignore[misc]
    return edits


def cures_of(loops: list[Loop], free: tuple[Replayed, ...], link_gbs: float) -> dict[str, Cured]:
    """The cures of what is there, replayed, by the cause that they remove."""
    cures: dict[str, Cured] = {}
    middle = loops[1]
    for name, edit in edits_of(link_gbs).items():
        if not _there(middle, name):
            continue
        after = [replay.run(edit(loop, point)) for loop, point in zip(loops, POINTS, strict=True)]
        cures[name] = Cured(
            name=name,
            before=(free[0].step_ns, free[1].step_ns, free[2].step_ns),
            after=(after[0].step_ns, after[1].step_ns, after[2].step_ns),
            next=limit(after[1], edit(middle, "expected"), name),
            launching=launching(after[1]),
            floor=min(one.busy_ns for one in after),
            idle_only=name not in CHANGES_WORK,
            sampling=_sampling(middle, name, free[1].step_ns - after[1].step_ns),
        )
    return cures


def _asked_less(loop: Loop) -> Loop:
    """The host waits for no result; but what it fetches much of, it wants: such copies to pageable memory, and the wait
    each brings, stay. Pinning is their cure."""
    wanted = {
        action
        for action, pageable, size in zip(loop.action_of_event, loop.pageable, loop.bytes, strict=True)
        if pageable and size >= WANTED_BYTES and loop.fetch[action]
    }
    held = wanted | {action + 1 for action in wanted}
    kept = replay.without_syncs(dataclasses.replace(loop, saving=loop.saving | held))
    return dataclasses.replace(kept, saving=loop.saving)


def _sampling(loop: Loop, cause: str, saved: float) -> float:
    """The standard error of the mean over the steps of what the host spent in a cause, as far as that is saved."""
    if cause not in HOST_CAUSES or len(loop.tail) < 2:
        return 0.0
    spent = np.array(
        [
            sum(loop.spent[cause][loop.step_at[k] : loop.step_at[k + 1]]) + loop.spent_tail[cause][k]
            for k in range(len(loop.tail))
        ]
    )
    mean = float(spent.mean())
    if mean <= 0.0 or saved <= 0.0:
        return 0.0
    return float(spent.std(ddof=1)) / math.sqrt(len(spent)) * min(saved / mean, 1.0)


def cures_of_wastes(
    loops: list[Loop], free: tuple[Replayed, ...], wastes: dict[str, Waste]
) -> dict[str, Cured]:
    """The cures of wastes, replayed: by the name of the waste, and `name/what to do` for its other cures."""
    edits = {name: waste.edits for name, waste in wastes.items()}
    for name, waste in wastes.items():
        edits.update({f"{name}/{what}": other for what, other in waste.others.items()})
    return {name: _edited(name, loops, free, three) for name, three in edits.items()}


def _edited(
    name: str, loops: list[Loop], free: tuple[Replayed, ...], edits: tuple[Edit, Edit, Edit]
) -> Cured:
    loop = [replay.edited(one, edit) for one, edit in zip(loops, edits, strict=True)]
    after = [replay.run(one) for one in loop]
    untouched = replay.run(replay.edited(loops[1], _spent(edits[1])), cycles=2)
    return Cured(
        name=name,
        before=(free[0].step_ns, free[1].step_ns, free[2].step_ns),
        after=(after[0].step_ns, after[1].step_ns, after[2].step_ns),
        next=limit(after[1], loop[1], name),
        launching=launching(after[1]),
        floor=min(untouched.busy_ns, *(one.busy_ns for one in after)),
        idle_only=False,
    )


def _spent(edit: Edit) -> Edit:
    """The edit with whatever it changes taking no time at all."""
    return dataclasses.replace(edit, duration=dict.fromkeys(edit.duration, 0.0), host={})


def launching(replayed: Replayed) -> float:
    """Idle time of a step, in ns, in which the host was launching, or a launch was on its way."""
    return sum(replayed.idle[c] for c in ("launch-bound", "launch-call", "launch-latency"))


def _there(loop: Loop, name: str) -> bool:
    if name in HOST_CAUSES:
        releases = name == "allocator-churn" and bool(loop.release)
        saves = name == "checkpoint-stall" and bool(loop.saving)
        return releases or saves or any(loop.spent[name]) or any(loop.spent_tail[name])
    if name == "host-sync":
        return any(loop.is_sync)
    if name.startswith("pageable-copy"):
        return any(loop.pageable)
    return True


def limit(after: Replayed, loop: Loop, cured: str) -> str:
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


def host_link(gpu: str | None) -> tuple[float, str]:
    """One-way payload rate of the host link in GB/s, and where it is from."""
    spec = catalog.find_gpu(name=gpu) if gpu else None
    if spec is not None and spec.numbers.pcie_gen is not None and spec.numbers.pcie_lanes is not None:
        gen, lanes = int(spec.numbers.pcie_gen.value), int(spec.numbers.pcie_lanes.value)
        rate = catalog.pcie_gbs(gen, lanes)
        if rate is not None:
            return rate, f"catalogue: {spec.title}, PCIe Gen{gen} x{lanes}"
    return DEFAULT_LINK_GBS, "assumed: PCIe Gen4 x16, the GPU is not in the catalogue"


def staged_ns(covers: Covers, work: Work, windows: list[tuple[int, int]]) -> int:
    """Time that copies from pageable memory to the device take, a step or (without steps) in all."""
    copies = work.copy & covers.staged_name[work.name]
    busy = work.busy(copies)
    if not windows:
        return busy.total
    return round(clip(busy, windows[0][0], windows[-1][1]).total / len(windows))


def pageable_rate(timeline: Timeline, covers: Covers, work: Work) -> float | None:
    """Achieved rate of the pageable copies in GB/s, None without sizes."""
    rows = work.rows[work.copy & covers.pageable_name[work.name]]
    rows = rows[(timeline.size[rows] > 0) & (timeline.dur[rows] > 0)]
    if not len(rows):
        return None
    return float(timeline.size[rows].sum() / timeline.dur[rows].sum())
