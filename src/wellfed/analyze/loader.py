"""Loader workers that cannot keep up deliver at their own rate, whatever the loop does.

A wait for such a loader is not time that the host spends: it ends when the batch is there. A host that is
faster, because nobody records it or because something else was cured, only waits longer.
"""

import re
from typing import NamedTuple

import numpy as np

from wellfed.analyze.launches import Launches
from wellfed.analyze.steps import HostSteps
from wellfed.model.timeline import F64, I64, Cat, Mask, Timeline

_WORKERS = re.compile(r"enumerate\(DataLoader\)#_MultiProcessing.*__next__")
WAIT_NS = 1_000_000
WAIT_SHARE = 0.05
"""Taking a batch that is ready took 0.05 to 0.3 ms on the hosts of docs/validation/trace.md. Longer than
1 ms and 5 % of the step, the host waited for a worker."""
_IN_PROPORTION = 3.0
"""As many times the mean of the other times between batches as the first may count."""


class Pace(NamedTuple):
    """Batches that the host waited for: `arrival` (ns, the end of `__next__`) and `since`, the time from the
    arrival of the one before it. For the first, `since` is what the mean rate makes it in a loop over and over."""

    arrival: I64
    since: F64


NO_PACE = Pace(np.zeros(0, np.int64), np.zeros(0))


class Batches(NamedTuple):
    """The batches taken from worker processes in the steps: when the host `asked` and when it had each (`taken`: the
    begin and the end of `__next__`, ns), and whether it waited. `steady`: steps went before, so that the workers
    were not just starting."""

    asked: I64
    taken: I64
    waited: Mask
    steady: bool = False


def batches_of(timeline: Timeline, launches: Launches, steps: HostSteps) -> Batches:
    """The batches of worker processes that the launching threads took in the steps."""
    named = timeline.named(_WORKERS.search)
    begin, end = steps.start[0], steps.end[-1]
    # before PyTorch 1.11 annotations were written as operators
    note = launches.host & ((timeline.cat == Cat.ANNOTATION) | (timeline.cat == Cat.OP))
    rows = np.flatnonzero(note & named[timeline.name] & (timeline.ts >= begin) & (timeline.end <= end))
    limit = max(float(WAIT_NS), WAIT_SHARE * (end - begin) / len(steps))
    number = re.search(r"\d+", steps.names[0]) if steps.source == "ProfilerStep" else None
    steady = number is not None and int(number.group()) > 0
    return Batches(timeline.ts[rows], timeline.end[rows], timeline.dur[rows] >= limit, steady)


def pace_of(batches: Batches) -> Pace:
    """The pace of worker processes that the host waited for at least twice in the steps. A single wait tells
    no rate: see `slowest_pace`."""
    waited = np.flatnonzero(batches.waited)
    if len(waited) < 2:
        return NO_PACE
    arrival = batches.taken[waited]
    since = np.diff(arrival, prepend=arrival[0]).astype(np.float64)
    spent, made = float(arrival[-1] - arrival[0]), float(waited[-1] - waited[0])
    if waited[0] == 0 and batches.steady:
        # the first batch kept the host waiting too: it came that long after the one before, and the time that the
        # host took to use that one; a wait out of all proportion is something else
        used = np.median(batches.asked[1:] - batches.taken[:-1])
        first = float(batches.taken[0] - batches.asked[0]) + float(used)
        spent, made = spent + min(first, _IN_PROPORTION * spent / made), made + 1.0
    total = spent / made * len(batches.taken)
    since[0] = max(total - float(arrival[-1] - arrival[0]), 0.0)
    return Pace(arrival, since)


def slowest_pace(batches: Batches) -> float | None:
    """Where the host waited for one batch only, and took others after it that were ready: the time between batches
    (ns) that the workers kept to at least, on the mean. The recorded loop was slow enough for them; a free one may
    not be. None where no such thing was seen."""
    waited = np.flatnonzero(batches.waited)
    if len(waited) != 1 or waited[0] + 1 >= len(batches.taken):
        return None
    first = int(waited[0])
    after = (batches.taken[first + 1 :] - batches.taken[first]) / np.arange(1, len(batches.taken) - first)
    return float(after.min())
