"""Steps of a loop that nobody marked: what the device runs comes again and again.

The names of the device's events in launch order are a text; a loop makes it periodic. The period is read off the
distances of names that are rare (what a step does once), and holds only where nearly the whole text agrees with
itself one period on, and each period with the next: layers within a step recur too, but the rest of the step stands
between them. A text that does not agree has no steps: none are invented.
"""

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.launches import Launches
from wellfed.analyze.steps import HostSteps, find_steps
from wellfed.model.timeline import I64, Ints, Mask, Timeline

SOURCE = "recurring kernels"
SHORTEST = 4
"""Events of a period at least: what recurs faster is a kernel called in a loop, not a step."""
PERIODS = 3
AGREES = 0.99
"""Share of events that are the same one period on."""
EACH_AGREES = 0.9
"""And of each single period, with the next: equal layers break here where the step ends."""
_ALIKE, _ODD = 3, 2
"""A shorter period is as good as a longer one when at most so many times as many events differ, and two."""
_RARE, _LAGS, _EACH, _CANDIDATES = 24, 512, 16, 64
"""Names looked at, distances of one, regular ones kept of one, and of all."""
_LOOKS = 2_000_000
"""Distances looked at for one name."""
_REGULAR = 0.9
_UNEVEN, _UNEVEN_SHARE = 0.1, 0.2


def steps_of(timeline: Timeline, work: Work, launches: Launches, sync: Mask) -> HostSteps:
    """The marked steps, where the marks hold what they launch; else those found by recurrence, else none."""
    marked = find_steps(timeline, launches.threads)
    if len(marked) and not ran_ahead(marked, launches):
        return marked
    return recurring_steps(timeline, work, launches, sync)


def ran_ahead(steps: HostSteps, launches: Launches) -> bool:
    """Whether the steps were marked on a thread that only hands its work to the one that launches it, and did not
    wait: then the marks are early, and the work launched within one is not that of the step."""
    if steps.thread is None or not launches.threads or steps.thread in launches.threads:
        return False
    order = np.sort(launches.start[~launches.orphan])
    edges = np.searchsorted(order, np.array([*steps.start, steps.end[-1]], np.int64))
    count = np.diff(edges)
    usual = float(np.median(count))
    uneven = np.abs(count - usual) > _UNEVEN * usual
    return usual == 0 or float(uneven.mean()) > _UNEVEN_SHARE


def recurring_steps(timeline: Timeline, work: Work, launches: Launches, sync: Mask) -> HostSteps:
    """The whole periods of what the launching threads launched on the device, from the end of the last launch (or
    wait, `sync` marks those) of the period before to that of their own: what the host does before it launches, such
    as loading, belongs to the step that follows. Empty when nothing recurs."""
    rows = np.maximum(launches.row, 0)
    aside = np.isin(timeline.thread[rows], list(launches.side)) if len(timeline) else launches.orphan
    own = np.flatnonzero(~launches.orphan & ~aside)
    order = own[np.lexsort((work.ts[own], launches.start[own]))]
    period = period_of(work.name[order])
    if period is None:
        return HostSteps([], [], [], None)
    start, end = launches.start[order], np.maximum.accumulate(launches.end[order])
    before = np.concatenate([[start[0]], end[:-1]])
    gap = np.where(launches.first[order], start - before, -1)
    phase, usual = _phase(gap, period)
    waits = np.flatnonzero(sync)
    waits = waits[np.argsort(timeline.ts[waits], kind="stable")]
    begin_of, end_of = timeline.ts[waits], timeline.end[waits]
    first = np.arange(phase, len(order) + 1, period)
    edges: list[int] = []
    for at in first.tolist():
        if at == 0:
            # where the recording does not reach back to what the host did before, that period is not whole
            reach = int(timeline.ts[launches.host].min())
            if int(start[0]) - usual >= reach:
                edges.append(int(start[0]) - usual)
            continue
        low = int(end[at - 1])
        high = int(start[at]) if at < len(order) else low + usual + 1
        inside = slice(*np.searchsorted(begin_of, (low, high)).tolist())
        edges.append(int(end_of[inside].max(initial=low)))
    names = [f"recurrence {k}" for k in range(len(edges) - 1)]
    return HostSteps(names, edges[:-1], edges[1:], SOURCE)


def period_of(names: Ints) -> int | None:
    """The number of events after which the sequence repeats itself; None when it does not, or too fast."""
    n = len(names)
    if n < PERIODS * SHORTEST or any(_differ(names, p) <= (1 - AGREES) * (n - p) for p in range(1, SHORTEST)):
        return None
    tried = [p for p in _candidates(names) if SHORTEST <= p <= n // PERIODS]
    differ = {p: d for p in tried if (d := _differ(names, p)) <= (1 - AGREES) * (n - p)}
    least = min(differ.values(), default=0)
    broken: list[int] = []
    for p, d in differ.items():  # the shortest first
        if not _each_agrees(names, p):
            broken.append(d)  # layers: what breaks them breaks several of them taken together as often
        elif d <= _ALIKE * least + _ODD and all(_ALIKE * d <= other for other in broken):
            return _smallest(names, p, d)
    return None


def _differ(names: Ints, p: int) -> int:
    """How many events are not what they were a period before."""
    return int((names[:-p] != names[p:]).sum())


def _each_agrees(names: Ints, p: int) -> bool:
    whole = len(names) // p
    each = names[: whole * p].reshape(whole, p)
    return bool((each[:-1] == each[1:]).mean(axis=1).min() >= EACH_AGREES)


def _smallest(names: Ints, p: int, differ: int) -> int:
    """The smallest part of a period that recurs as well as the whole."""
    factor = 2
    while factor <= p // SHORTEST:
        part = p // factor
        if p % factor == 0 and _differ(names, part) <= _ALIKE * differ + _ODD and _each_agrees(names, part):
            p = part
        else:
            factor += 1
    return p


def _candidates(names: Ints) -> list[int]:
    """Regular distances of rare names, from one occurrence to the k-th after it, in order."""
    found: set[int] = set()
    kinds, count = np.unique(names, return_counts=True)
    often = count >= PERIODS
    rare = kinds[often][np.argsort(count[often], kind="stable")][:_RARE]
    for kind in rare.tolist():
        at = np.flatnonzero(names == kind)
        here = 0
        for k in range(1, min(len(at) // PERIODS, _LAGS, max(_LOOKS // len(at), 1)) + 1):
            distance = at[k:] - at[:-k]
            middle = int(np.partition(distance, len(distance) // 2)[len(distance) // 2])
            if middle >= SHORTEST and float((distance == middle).mean()) >= _REGULAR:
                found.add(middle)
                here += 1
            if here >= _EACH:
                break
        if len(found) >= _CANDIDATES:
            break
    return sorted(found)


def _phase(gap: I64, period: int) -> tuple[int, int]:
    """Which event of the period the host takes longest to come to, by the median over the periods, and that time
    (ns). The first event's own gap is not known."""
    whole = len(gap) // period
    each = gap[: whole * period].reshape(whole, period).astype(np.float64)
    each[0, 0] = np.nan
    usual = np.nanmedian(each, axis=0)
    phase = int(np.argmax(usual))
    return phase, max(int(usual[phase]), 0)
