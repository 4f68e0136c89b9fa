"""What about a recording weakens its numbers."""

from wellfed.analyze.budget import Work
from wellfed.analyze.launches import Launches
from wellfed.analyze.steps import HostSteps, unbroken
from wellfed.model.timeline import Cat, Timeline
from wellfed.model.trace import TraceWarning


def integrity_warnings(
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
