"""Where in the trace a cause shows: its longest stretches, with what the host was in."""

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.causes import Covers, idle_intervals
from wellfed.analyze.intervals import Intervals
from wellfed.analyze.kernel_names import plain_name
from wellfed.analyze.launches import Launches
from wellfed.model.timeline import Cat, Timeline


def evidence_of(
    timeline: Timeline, work: Work, launches: Launches, covers: Covers, top: int = 3
) -> dict[str, tuple[tuple[int, int, str], ...]]:
    """The longest stretches of each cover that have a name, and the pageable copies themselves."""
    found: dict[str, tuple[tuple[int, int, str], ...]] = {}
    for cause, cover in covers.disjoint.items():
        length = cover.end - cover.start
        longest = np.argsort(-length)[:top].tolist()
        if longest:
            found[cause] = tuple(
                (int(cover.start[i]), int(length[i]), _owner(timeline, launches, int(cover.start[i])))
                for i in longest
            )
    copies = np.flatnonzero(work.copy & covers.pageable_name[work.name])
    copies = copies[np.argsort(-(work.end - work.ts)[copies])][:top]
    if len(copies):
        found["pageable-copy"] = tuple(
            (int(work.ts[i]), int(work.end[i] - work.ts[i]), _copy_text(timeline, int(work.rows[i])))
            for i in copies.tolist()
        )
    rows = np.flatnonzero(covers.sync)
    rows = rows[np.argsort(-timeline.dur[rows])][:top]
    if len(rows):
        found["host-sync"] = tuple(
            (int(timeline.ts[r]), int(timeline.dur[r]), _under(timeline, launches, int(r)))
            for r in rows.tolist()
        )
    for cause, where in _waits(timeline, work, launches, covers).items():
        length = where.end - where.start
        longest = np.argsort(-length, kind="stable")[:top].tolist()
        if longest:
            found[cause] = tuple(
                (int(where.start[i]), int(length[i]), _before(timeline, work, int(where.end[i])))
                for i in longest
            )
    return found


def _waits(timeline: Timeline, work: Work, launches: Launches, covers: Covers) -> dict[str, Intervals]:
    """Idle whose cause is no event that could be named: it is the gap itself that shows."""
    if work.span is None:
        return {}
    idle = idle_intervals(timeline, work, launches, covers, *work.span)
    return {cause: idle[cause] for cause in ("launch-bound", "dependency-wait", "queue-wait")}


def _before(timeline: Timeline, work: Work, at: int) -> str:
    """What the device does next."""
    following = int(np.searchsorted(work.ts, at))
    if following >= len(work.ts):
        return "idle"
    return f"idle, then {plain_name(_name(timeline, int(work.rows[following])))}"


def _copy_text(timeline: Timeline, row: int) -> str:
    size = int(timeline.size[row])
    return _name(timeline, row) + (f", {size / 1e6:.1f} MB" if size > 0 else "")


def _owner(timeline: Timeline, launches: Launches, at: int) -> str:
    """The event of the launching threads that begins at a time."""
    low, high = np.searchsorted(timeline.ts, [at, at + 1])
    rows = [r for r in range(int(low), int(high)) if launches.host[r] or timeline.cat[r] == Cat.OVERHEAD]
    return _name(timeline, rows[0]) if rows else "no event on the launching threads"


def _under(timeline: Timeline, launches: Launches, row: int) -> str:
    """A call and the operator it lies in."""
    at, thread = int(timeline.ts[row]), timeline.thread[row]
    call = _name(timeline, row)
    first = int(np.searchsorted(timeline.ts, at - 50_000_000))
    inside = np.flatnonzero(
        (timeline.thread[first:row] == thread)
        & (timeline.cat[first:row] == Cat.OP)
        & (timeline.end[first:row] >= timeline.end[row])
    )
    if not len(inside):
        return call
    return f"{call} in {_name(timeline, first + int(inside[0]))}"


def _name(timeline: Timeline, row: int) -> str:
    return timeline.names[int(timeline.name[row])]
