"""What to take off for the profiler: the three points of its cost, or the cost that gives a known step."""

import re

import numpy as np

from wellfed import catalog
from wellfed.analyze import replay
from wellfed.analyze.budget import Work
from wellfed.analyze.causes import Covers
from wellfed.analyze.launches import Launches
from wellfed.analyze.replay import Loop
from wellfed.analyze.steps import HostSteps
from wellfed.model.timeline import Timeline
from wellfed.predict.profiler import HostCost, host_cost, host_cost_for

POINTS = ("low", "expected", "high")
"""How much recording is taken to have cost: least, likely, most."""
_PLAIN_LAUNCH = re.compile(r"^(?:cuda|cu|hip|hipExt(?:Module)?)(?:Module)?LaunchKernel(?:Ex|ExC)?$")


def recording_costs(
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
    # without them PyTorch writes no such option; a damaged head may have lost it
    shapes = bool(timeline.shapes) or bool(timeline.options.get("record_shapes", False))
    launch = _launch_call(timeline, launches)
    spec = catalog.find_gpu(name=timeline.gpus.get(work.device) or None)
    current = (
        spec is not None and spec.compute_capability is not None and _major(spec.compute_capability) >= 9
    )
    points = [
        host_cost(
            p,
            launch_call_ns=launch,
            record_shapes=shapes,
            current_host=current,
            calibrated=timeline.kind == "kineto",
        )
        for p in POINTS
    ]
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
    plain = timeline.named(_PLAIN_LAUNCH.match)
    rows = rows[plain[timeline.name[rows]]]
    return float(np.median(timeline.dur[rows])) if len(rows) >= 10 else None
