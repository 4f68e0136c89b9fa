"""A Timeline in: budget, idle causes, event graph, what-if. Pure numpy, integer nanoseconds."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from wellfed.analyze.study import Study, study_device
from wellfed.model.timeline import Timeline
from wellfed.model.trace import RankTrace, TraceWarning

__all__ = ["Found", "Study", "analyze", "study_device"]


class Found:
    """The studies of all ranks and devices of one look, and what they say together."""

    def __init__(self, studies: list[Study]) -> None:
        self.studies = studies

    @property
    def ranks(self) -> tuple[RankTrace, ...]:
        return tuple(s.rank for s in self.studies)

    @property
    def warnings(self) -> tuple[TraceWarning, ...]:
        """Each warning once for each rank it came from."""
        return tuple(w for s in self.studies for w in s.warnings)


Each = Callable[[Timeline, Sequence[Study]], None]


def analyze(
    timelines: Iterable[Timeline],
    *,
    step_ms: float | None = None,
    steps: tuple[int, int] | None = None,
    each: Each | None = None,
    replay_events: int | None = None,
) -> Found:
    """Study every device of every timeline. `step_ms` is the unprofiled step in milliseconds when known;
    `steps` keeps the steps first to last (counted from 0, both included; of a timeline that was cut, those that
    lie in the window), `replay_events` bounds how many device events of a rank are replayed. `each` is told every timeline with the studies of its devices, once they are done."""
    from wellfed.analyze.bounds import bounded, fewer
    from wellfed.analyze.steps import HostSteps

    def keep(all_steps: HostSteps) -> HostSteps:
        if steps is None:
            return all_steps
        cut = slice(steps[0], steps[1] + 1)
        return HostSteps(all_steps.names[cut], all_steps.start[cut], all_steps.end[cut], all_steps.source)

    studies: list[Study] = []
    for timeline in timelines:
        timeline = bounded(timeline)
        found: list[Study] = []
        for device in sorted(timeline.gpus) or [0]:
            kept, told = fewer(keep)
            study = study_device(timeline, device, step_ms=step_ms, keep=kept, replay_events=replay_events)
            found.append(dataclasses.replace(study, warnings=(*study.warnings, *told)) if told else study)
        if each is not None:
            each(timeline, found)
        studies += found
    return Found(studies)
