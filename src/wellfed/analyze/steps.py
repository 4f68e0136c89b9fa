"""Steps: as the host annotated them, and the windows on the device in which their work was done."""

import re
from collections import Counter
from collections.abc import Collection

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.launches import Launches
from wellfed.model.timeline import Cat, Timeline

_PROFILER_STEP = re.compile(r"ProfilerStep#?\s*\*?\d*")
_STEP_LIKE = re.compile(
    r"(?i)^(?:epoch[ _-]?#[ _:/-]*)?(?:(?:global|train(?:ing)?|eval|inference)[ _-]?)?"
    r"(?:step|iteration|iter|batch|decode|forward_step|execute_model|run_batch)(?:\b|_?#)"
)
"""Of a label whose numbers are written `#`: `step_#`, `iter #`, `epoch#_step#`; not `batch_norm`."""
_MAY_MARK = re.compile(r"^(?:ProfilerStep|Optimizer\.step)")
_NUMBER = re.compile(r"\d+")
_MISSING = 0.01
"""More than this share of a step's launches without their work, or of its work: the step is not whole."""
_FEW = 2
_COLD, _COLD_SHARE = 2.0, 0.1
"""A first step is start-up when its dispatch and loading keep the device idle this many times as long as in any other
step, and by this share of a step longer."""


class HostSteps:
    """Step names and host intervals (ns), in order and not overlapping; `source` says what they are from:
    `ProfilerStep`, an annotation's name, `Optimizer.step`, `recurring kernels`, or None when nothing recurs.
    `thread` is the one they were marked on, where they were."""

    def __init__(
        self,
        names: list[str],
        start: list[int],
        end: list[int],
        source: str | None,
        thread: int | None = None,
    ) -> None:
        self.names, self.start, self.end, self.source, self.thread = names, start, end, source, thread

    def __len__(self) -> int:
        return len(self.names)


def find_steps(timeline: Timeline, threads: Collection[int] = ()) -> HostSteps:
    """ProfilerStep annotations, else a recurring step-like annotation, else the ends of optimizer steps.
    Where several loops run in one process, those marked on one of `threads` count."""
    marked = timeline.named(_MAY_MARK.search)
    # before PyTorch 1.11 annotations were written as operators
    rows = np.flatnonzero(
        (timeline.cat == Cat.ANNOTATION) | ((timeline.cat == Cat.OP) & marked[timeline.name])
    )
    names = [timeline.names[i] for i in timeline.name[rows].tolist()]
    profiler = [r for r, n in zip(rows.tolist(), names, strict=True) if _PROFILER_STEP.fullmatch(n)]
    if profiler:
        return _from_rows(timeline, profiler, "ProfilerStep", threads)
    by_label: dict[str, list[int]] = {}
    for row, name in zip(rows.tolist(), names, strict=True):
        by_label.setdefault(_NUMBER.sub("#", name), []).append(row)
    for label, found in by_label.items():
        if len(found) >= 3 and _STEP_LIKE.match(label):
            return _from_rows(timeline, found, label, threads)
    for label, found in by_label.items():
        if len(found) >= 3 and label.startswith("Optimizer.step"):
            ends = sorted((timeline.ts[found] + timeline.dur[found]).tolist())
            return HostSteps(
                [f"between {label} {k} and {k + 1}" for k in range(len(ends) - 1)],
                ends[:-1],
                ends[1:],
                "Optimizer.step",
            )
    return HostSteps([], [], [], None)


def unbroken(steps: HostSteps) -> HostSteps:
    """The longest run of ProfilerSteps with consecutive numbers: where one is lost (a damaged file), its
    work would be counted to the step before."""
    if steps.source != "ProfilerStep" or len(steps) < 2:
        return steps
    found = [_NUMBER.search(name) for name in steps.names]
    numbers = [int(m.group()) if m else None for m in found]
    best, begin = (0, 1), 0
    for k in range(1, len(steps) + 1):
        before, now = numbers[k - 1], numbers[k] if k < len(steps) else None
        if k == len(steps) or (before is not None and now is not None and now > before + 1):
            best = max(best, (begin, k), key=lambda run: run[1] - run[0])
            begin = k
    return cut(steps, *best)


def cut(steps: HostSteps, first: int, last: int) -> HostSteps:
    """The steps from `first` to before `last`."""
    part = slice(first, last)
    return HostSteps(steps.names[part], steps.start[part], steps.end[part], steps.source, steps.thread)


def finished(steps: HostSteps, timeline: Timeline, work: Work, launches: Launches) -> HostSteps:
    """Without the last steps of which the recording lacks work that was launched: it ended before the device had
    done it, because the host was far ahead. At most half of the steps: with more missing it is no end."""
    known = np.flatnonzero(~launches.orphan)
    if len(steps) < 2 or not len(known):
        return steps
    launching = np.zeros(max(len(timeline.names), 1), bool)
    launching[timeline.name[launches.row[known]]] = True
    is_call = ((timeline.cat == Cat.RUNTIME) | (timeline.cat == Cat.DRIVER)) & (timeline.corr >= 0)
    threads = np.isin(timeline.thread, list(launches.threads))
    calls = np.flatnonzero(is_call & threads & launching[timeline.name])
    without = calls[~np.isin(timeline.corr[calls], timeline.corr[timeline.is_gpu])]
    edges = np.array([*steps.start, steps.end[-1]], np.int64)
    all_calls, lost, events = (
        np.diff(np.searchsorted(np.sort(at), edges))
        for at in (timeline.ts[calls], timeline.ts[without], launches.start[known])
    )
    # what some steps' calls do not launch (a copy of nothing) is missing from all of them
    beyond = lost - np.median(lost)
    few = (events < (1 - _MISSING) * np.median(events)) & (all_calls >= (1 - _MISSING) * np.median(all_calls))
    open_ended = (beyond > _MISSING * np.maximum(all_calls, 1)) | few
    last = len(steps)
    while last > (len(steps) + 1) // 2 and open_ended[last - 1]:
        last -= 1
    return cut(steps, 0, last)


def warmed_up(steps: HostSteps, spans: Collection[int], start_up: Collection[int]) -> HostSteps:
    """Without a first step in which the host was slow in a way that none of the others was: loading, the recorder's
    own start. `start_up` is what each step on the device (`spans`) had of idle by dispatch and such (ns). One that
    waits for data or is stalled stays: that comes again."""
    if len(steps) <= _FEW:
        return steps
    first, *others = start_up
    usual = float(np.median(list(spans)[1:]))
    cold = first > _COLD * max(others) and first - max(others) > _COLD_SHARE * usual
    return cut(steps, 1, len(steps)) if cold else steps


def recorded_step_ns(steps: HostSteps, windows: list[tuple[int, int]]) -> float:
    """What a step took as recorded, on the mean: on the device, or the host's pace where that is slower (the device
    then still had work of before)."""
    on_device = float(np.mean([end - start for start, end in windows]))
    return max(on_device, (steps.end[-1] - steps.start[0]) / len(steps))


def middle(steps: HostSteps, launches: Launches, most: int | None) -> HostSteps:
    """As many steps from the middle as launched `most` device events together, at least two. All when None."""
    if most is None or len(steps) <= 2:
        return steps
    order = np.sort(launches.start[~launches.orphan])
    edges = np.searchsorted(order, np.array([*steps.start, steps.end[-1]], np.int64))
    first, last = (len(steps) - 1) // 2, (len(steps) - 1) // 2 + 2
    while last - first < len(steps):
        wider = (first - 1, last) if first and (len(steps) - last < first) else (first, last + 1)
        low, high = max(wider[0], 0), min(wider[1], len(steps))
        if edges[high] - edges[low] > most or (low, high) == (first, last):
            break
        first, last = low, high
    return cut(steps, first, last)


def _from_rows(timeline: Timeline, rows: list[int], source: str, threads: Collection[int]) -> HostSteps:
    """Intervals in order, of the thread that marks most of them; one that lies within its predecessor is left
    out."""
    of = timeline.thread[rows].tolist()
    count = Counter(of)
    most = max(sorted(count), key=lambda thread: (thread in threads, count[thread]))
    rows = [r for r, thread in zip(rows, of, strict=True) if thread == most]
    names: list[str] = []
    start: list[int] = []
    end: list[int] = []
    for row in sorted(rows, key=lambda r: int(timeline.ts[r])):
        low = int(timeline.ts[row])
        high = low + int(timeline.dur[row])
        if high <= low or (end and low < end[-1] - 1000):
            continue
        names.append(timeline.names[timeline.name[row]])
        start.append(low)
        end.append(high)
    return HostSteps(names, start, end, source, most)


def device_windows(steps: HostSteps, work: Work, launches: Launches) -> list[tuple[int, int]]:
    """For each step the window on the device, back to back. A step begins on the device when the host begins
    it or when the work launched before it is done, whichever is later: so a step that the host is late for
    starts with its wait, and a step queued behind others starts when its turn comes. The last one ends when
    its own work is done."""
    if not len(steps) or not len(work.ts):
        return []
    launched = ~launches.orphan
    start = np.where(launched, launches.start, work.ts)
    order = np.argsort(start, kind="stable")
    start_sorted = start[order]
    done = np.maximum.accumulate(work.end[order])
    edges: list[int] = []
    for host in [*steps.start, steps.end[-1]]:
        before = int(np.searchsorted(start_sorted, host))
        edges.append(max(host, int(done[before - 1]) if before else host))
    if launched.any() and launches.left_over.any():
        edges[0] = max(edges[0], int(work.end[launches.left_over].max()))
    for k in range(1, len(edges)):
        edges[k] = max(edges[k], edges[k - 1])
    gaps_ok = [
        k + 1 == len(steps)
        or steps.start[k + 1] - steps.end[k] < 0.05 * (steps.end[k] - steps.start[k]) + 1e6
        for k in range(len(steps))
    ]
    return [
        (edges[k], edges[k + 1] if gaps_ok[k] else max(edges[k], steps.end[k])) for k in range(len(steps))
    ]
