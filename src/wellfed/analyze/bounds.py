"""Bounds of what is studied, for recordings that no machine makes: what lies beyond is told, and not judged."""

from collections.abc import Callable

import numpy as np

from wellfed.analyze.steps import HostSteps, cut
from wellfed.model import TraceWarning
from wellfed.model.base import replace
from wellfed.model.timeline import Timeline

MIN_DEVICES, MAX_DEVICES = 16, 64
"""Devices of one process: 16 are in the largest common machine (NVIDIA DGX-2; AWS p2.16xlarge); more than 64 in none."""
DEVICE_ROWS = 16_000_000
"""Each device is looked at beside all events of the host; between the two bounds so many are looked at together."""
MAX_STEPS = 4_000
"""Steps that are taken apart one by one, a few milliseconds each."""

Keep = Callable[[HostSteps], HostSteps]


def bounded(timeline: Timeline) -> Timeline:
    """The timeline with as many devices as can be studied: those with the most events."""
    most = max(MIN_DEVICES, min(MAX_DEVICES, DEVICE_ROWS // max(len(timeline), 1)))
    if len(timeline.gpus) <= most:
        return timeline
    devices, counts = np.unique(timeline.device[timeline.is_gpu], return_counts=True)
    busiest = devices[np.argsort(-counts, kind="stable")][:most].tolist()
    kept = {d: timeline.gpus[d] for d in sorted(busiest) if d in timeline.gpus}
    warning = TraceWarning(
        code="too-many-devices",
        count=len(timeline.gpus) - len(kept),
        sample=f"{len(timeline.gpus)} devices in one file; the {len(kept)} with the most events are studied",
        weakens="everything about the other devices",
    )
    return replace(timeline, gpus=kept, warnings=(*timeline.warnings, warning))


def fewer(keep: Keep) -> tuple[Keep, list[TraceWarning]]:
    """`keep`, and of what it keeps no more steps than MAX_STEPS, from the middle; the list is filled with a warning
    where there were more."""
    told: list[TraceWarning] = []

    def kept(steps: HostSteps) -> HostSteps:
        steps = keep(steps)
        beyond = len(steps) - MAX_STEPS
        if beyond <= 0:
            return steps
        sample = (
            f"{len(steps)} steps; {MAX_STEPS} in the middle, from the {beyond // 2 + 1}th on, are taken apart"
        )
        weakens = "what is particular to the steps before and after"
        told.append(TraceWarning(code="too-many-steps", count=beyond, sample=sample, weakens=weakens))
        return cut(steps, beyond // 2, beyond // 2 + MAX_STEPS)

    return kept, told
