"""A part of a recording, cut out so that what is said of it is exact: sums of neighbouring windows add up.

The GPU's events are clipped to the window. Host events that reach into it stay whole, since what a call or an
annotation covers does not change by looking at half of it. Beside them stay the calls that launched what runs in
the window, and of each device the next event after it, without length: it says what the last gap waited for.
"""

import numpy as np

from wellfed.analyze.steps import HostSteps
from wellfed.model.base import replace
from wellfed.model.timeline import Cat, Mask, Timeline, Window
from wellfed.model.trace import TraceWarning


def cut(timeline: Timeline, start_ns: int, end_ns: int | None = None) -> Timeline:
    """The timeline from `start_ns` to `end_ns` after its first event (None: to its end), with a warning that says
    so. Nothing is raised for a window outside the recording: then no event is left."""
    if not len(timeline):
        return timeline
    origin, last = int(timeline.ts.min()), int(timeline.end.max())
    low = origin + start_ns
    high = last + 1 if end_ns is None else origin + end_ns
    gpu = timeline.is_gpu
    inside = _overlaps(timeline, low, high)
    following = _following(timeline, gpu, high)
    kept = inside | following
    kept |= _launching(timeline, timeline.corr[gpu & kept], timeline.wait_corr[inside])
    rows = np.flatnonzero(kept)
    clipped = gpu[rows]
    begin = np.where(clipped, np.clip(timeline.ts[rows], low, high), timeline.ts[rows])
    end = np.where(clipped, np.clip(timeline.end[rows], low, high), timeline.end[rows])
    order = np.argsort(begin, kind="stable")
    columns = {
        name: value[rows][order]
        for name in timeline.__struct_fields__
        if isinstance(value := getattr(timeline, name), np.ndarray)
    }
    window = Window(
        start_ns=low,
        end_ns=high,
        done_before_ns=_done_before(timeline, gpu, high),
        spans=_spans(timeline, gpu, low, high),
    )
    return replace(
        timeline,
        **{**columns, "ts": begin[order], "dur": (end - begin)[order]},
        window=window,
        gpus={device: name for device, name in timeline.gpus.items() if device in window.spans},
        warnings=(*timeline.warnings, _said(start_ns, end_ns, int((~inside).sum()), last - origin)),
    )


def whole_steps(steps: HostSteps, window: Window | None) -> HostSteps:
    """Those of the steps that lie in the window, with all the work that they launched. The launches before a step
    are done when it starts on the device, so that work launched early does not count to it."""
    if window is None:
        return steps
    whole = [
        k
        for k, (start, end) in enumerate(zip(steps.start, steps.end, strict=True))
        if start >= window.start_ns and end <= min(window.end_ns, window.done_before_ns)
    ]
    return HostSteps(
        [steps.names[k] for k in whole],
        [steps.start[k] for k in whole],
        [steps.end[k] for k in whole],
        steps.source,
    )


def _overlaps(timeline: Timeline, low: int, high: int) -> Mask:
    """Events with a part in [low, high); one without length counts by its start."""
    begins = (timeline.ts >= low) & (timeline.ts < high)
    return np.asarray(begins | ((timeline.ts < low) & (timeline.end > low)))


def _following(timeline: Timeline, gpu: Mask, high: int) -> Mask:
    """The first event after the window on each device."""
    after = np.flatnonzero(gpu & (timeline.ts >= high))
    _, first = np.unique(timeline.device[after], return_index=True)
    found = np.zeros(len(timeline), bool)
    found[after[first]] = True
    return found


def _calls(timeline: Timeline) -> Mask:
    return np.asarray(((timeline.cat == Cat.RUNTIME) | (timeline.cat == Cat.DRIVER)) & (timeline.corr >= 0))


def _launching(timeline: Timeline, *ids: np.ndarray) -> Mask:
    """The calls whose correlation is among `ids`."""
    return np.asarray(_calls(timeline) & np.isin(timeline.corr, np.unique(np.concatenate(ids))))


def _done_before(timeline: Timeline, gpu: Mask, high: int) -> int:
    """The first launch of work that ends after `high` (its start, for work without a launch)."""
    late = np.flatnonzero(gpu & (timeline.end > high))
    if not len(late):
        return high
    calls = np.flatnonzero(_calls(timeline))
    if not len(calls):
        return min(high, int(timeline.ts[late].min()))
    ids, first = np.unique(timeline.corr[calls], return_index=True)
    at = np.minimum(np.searchsorted(ids, timeline.corr[late]), len(ids) - 1)
    launched = ids[at] == timeline.corr[late]
    started = np.where(launched, timeline.ts[calls[first[at]]], timeline.ts[late])
    return min(high, int(started.min()))


def _spans(timeline: Timeline, gpu: Mask, low: int, high: int) -> dict[int, tuple[int, int]]:
    """For each device the part of the window between its first and its last event of the file."""
    spans: dict[int, tuple[int, int]] = {}
    for device in np.unique(timeline.device[gpu]).tolist():
        mine = gpu & (timeline.device == device)
        start = max(low, int(timeline.ts[mine].min()))
        end = min(high, int(timeline.end[mine].max()))
        if end > start:
            spans[device] = (start, end)
    return spans


def _said(start_ns: int, end_ns: int | None, left_out: int, whole_ns: int) -> TraceWarning:
    end = "its end" if end_ns is None else f"{end_ns / 1e6:g} ms"
    return TraceWarning(
        code="window",
        count=left_out,
        sample=f"only {start_ns / 1e6:g} ms to {end} of {whole_ns / 1e6:.0f} ms looked at; "
        f"{left_out} events lie outside",
        weakens="nothing inside; totals are of the window",
    )
