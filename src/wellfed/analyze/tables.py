"""Top lists of a trace: kernels and operators, and launches a step."""

from typing import Any

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.launches import Launches
from wellfed.analyze.step_budget import median_ns
from wellfed.analyze.steps import HostSteps
from wellfed.model.timeline import Cat, Timeline
from wellfed.model.trace import KernelRow


def launches_per_step(launches: Launches, steps: HostSteps) -> float:
    if not len(steps):
        return 0.0
    inside = launches.first & (launches.start >= steps.start[0]) & (launches.start < steps.end[-1])
    return float(inside.sum()) / len(steps)


def kernel_table(timeline: Timeline, work: Work, mask: Any, top: int = 15) -> tuple[KernelRow, ...]:
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
                median_ns=median_ns(length[same].tolist()),
            )
        )
    return tuple(rows)


def op_table(timeline: Timeline, launches: Launches, top: int = 10) -> tuple[dict[str, Any], ...]:
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
