"""What a step has the device do, by operator and kernel: complete and exact, so that two recordings can be compared."""

import re

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.families import family
from wellfed.analyze.groups import by_value
from wellfed.analyze.kernel_names import plain_name
from wellfed.analyze.launches import Launches
from wellfed.analyze.steps import HostSteps
from wellfed.model.timeline import I32, Cat, Mask, Timeline
from wellfed.model.trace import StepWork, WorkRow

ROWS = 100
"""The rest is summed in one row, so that nothing is lost."""
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function: ")
_OPERATOR = re.compile(r"::|Backward\d*$")
NO_OP = -1


def step_work(timeline: Timeline, work: Work, launches: Launches, steps: HostSteps) -> StepWork | None:
    """GPU events that the steps launched (without steps: all of the capture), and how long they ran, streams
    added up. None without an event."""
    mask = work.compute | work.comm | work.copy
    if not mask.any():
        return None
    inside = mask & in_steps(work, launches, steps)
    operator = _operators(timeline, launches)
    length = work.end - work.ts
    kind = timeline.cat[work.rows]
    many = np.int64(len(timeline.names) + 1)
    key = (kind[inside].astype(np.int64) * many + operator[inside] + 1) * many + work.name[inside]
    found, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    totals = np.zeros(len(found), np.int64)
    np.add.at(totals, inverse, length[inside])
    rows: dict[tuple[str, str, str, str], list[int]] = {}
    for at, count, total in zip(found.tolist(), counts.tolist(), totals.tolist(), strict=True):
        (cat, op), name = divmod(at // int(many), int(many)), at % int(many)
        op -= 1
        kernel = timeline.names[name]
        what = {Cat.MEMCPY: "memcpy", Cat.MEMSET: "memset"}.get(Cat(cat), "kernel")
        said = _BACKWARD.sub("", timeline.names[op]) if op != NO_OP else ""
        row = rows.setdefault((said, plain_name(kernel), family(kernel, what), what), [0, 0])
        row[0] += count
        row[1] += total
    ordered = sorted(rows.items(), key=lambda item: (-item[1][1], item[0]))
    rest = ordered[ROWS:]
    launched = inside & launches.first
    return StepWork(
        steps=len(steps),
        launches=int(launched.sum()),
        count=int(counts.sum()),
        total_ns=int(totals.sum()),
        rows=tuple(
            WorkRow(op=op, kernel=kernel, family=label, kind=what, count=count, total_ns=total)
            for (op, kernel, label, what), (count, total) in ordered[:ROWS]
        ),
        rest_count=sum(row[0] for _, row in rest),
        rest_ns=sum(row[1] for _, row in rest),
    )


def in_steps(work: Work, launches: Launches, steps: HostSteps) -> Mask:
    """Events launched while the host was in one of the steps; all when there is no step."""
    if not len(steps):
        return np.ones(len(work.ts), bool)
    start, end = np.array(steps.start, np.int64), np.array(steps.end, np.int64)
    at = np.where(launches.orphan, work.ts, launches.start)
    step = np.searchsorted(start, at, side="right") - 1
    return np.asarray((step >= 0) & (at < end[np.maximum(step, 0)]) & ~launches.left_over)


def _operators(timeline: Timeline, launches: Launches) -> I32:
    """For each GPU event the name of the operator that launched it: the outermost with a name of an operator
    (`aten::linear`, a backward node) on the thread of the launch, else the outermost of any name; NO_OP without."""
    known = timeline.named(_OPERATOR.search)
    is_op = timeline.cat == Cat.OP
    found = np.full(len(launches.row), NO_OP, np.int32)
    has_call = launches.row >= 0
    of_call = np.where(has_call, timeline.thread[np.maximum(launches.row, 0)], -1)
    end = timeline.end
    calls, ops = by_value(of_call), by_value(timeline.thread, is_op)
    for thread in sorted(launches.threads & calls.keys() & ops.keys()):
        mine, all_of = calls[thread], ops[thread]
        for rows in (all_of, all_of[known[timeline.name[all_of]]]):  # the better one overwrites
            if not len(rows):
                continue
            order = np.lexsort((-timeline.dur[rows], timeline.ts[rows]))
            rows = rows[order]
            reach = np.maximum.accumulate(end[rows])
            outer = rows[np.concatenate([[True], timeline.ts[rows][1:] >= reach[:-1]])]
            at = np.searchsorted(timeline.ts[outer], launches.start[mine], side="right") - 1
            holder = outer[np.maximum(at, 0)]
            inside = (at >= 0) & (launches.start[mine] < end[holder])
            found[mine[inside]] = timeline.name[holder[inside]]
    return found
