"""Copies between host and device that could run beside compute: which they are, what of a step they hold up, and the
step with them on streams of their own.

Pageable memory is another cure's: the driver stages it, and nothing overlaps until it is pinned. Managed memory moves by
itself when it is touched.
"""

import dataclasses
import re
from dataclasses import dataclass

import numpy as np

from wellfed.analyze import replay
from wellfed.analyze.budget import Work
from wellfed.analyze.causes import TO_HOST, Covers
from wellfed.analyze.cures import WANTED_BYTES, Cured, launching, limit
from wellfed.analyze.intervals import Intervals, clip, subtract
from wellfed.analyze.recording import POINTS
from wellfed.analyze.replay import Loop, Replayed
from wellfed.model.timeline import Cat, Mask, Timeline

EXPOSED = "exposed-copy"
LINK = "host-link"
LINK_BOUND = 0.95
"""From this share of the cured step on, it is the copies themselves that fill it."""
_BETWEEN = re.compile(r"HtoD|DtoH|(?i:host_?to_?device|device_?to_?host)")
_NOT_OURS = re.compile(r"(?i)pageable|managed|unified")
_PINNED = re.compile(r"(?i)pinned")
_UP, _DOWN = -2, -3  # no stream of a file is negative; a link carries both ways at once


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Copies that are not of pageable memory. `events` are their indices in the `Work`. Times in ns of a step (of all
    that was recorded, where there are no steps): `exposed_ns` in which the device does nothing but them, of that
    `to_host_ns` of copies to the host; `fetched_ns` of copies to pageable memory. `pinned` says that the recording
    names the memory. `lines` are the longest: (ns of the timeline, ns, text). `pinned_up_ns` is the time of all copies from
    pinned memory to the device, hidden or not, `pinned_up_bytes` what they carry (0: not recorded), `pinned_up_lines` the
    longest of them."""

    events: frozenset[int] = frozenset()
    exposed_ns: int = 0
    to_host_ns: int = 0
    fetched_ns: int = 0
    gbs: float | None = None
    pinned: bool = False
    lines: tuple[tuple[int, int, str], ...] = ()
    pinned_up_ns: int = 0
    pinned_up_bytes: int = 0
    pinned_up_lines: tuple[tuple[int, int, str], ...] = ()


def copies_of(timeline: Timeline, work: Work, covers: Covers, windows: list[tuple[int, int]]) -> Copies:
    """The copies of a device that a stream of their own would take out of the way."""
    is_copy = work.copy & (timeline.cat[work.rows] == Cat.MEMCPY)
    ours = is_copy & (timeline.named(_BETWEEN.search) & ~timeline.named(_NOT_OURS.search))[work.name]
    to_host = ours & timeline.named(TO_HOST.search)[work.name]
    fetched = is_copy & (covers.pageable_name & covers.to_host_name)[work.name]

    def alone(mask: Mask) -> int:
        left = subtract(work.busy(mask), work.busy((work.compute | work.comm | work.copy) & ~ours))
        return _of_a_step(left, windows)

    rows = work.rows[ours]
    known = rows[(timeline.size[rows] > 0) & (timeline.dur[rows] > 0)]
    pinned = timeline.named(_PINNED.search)
    up = ours & ~to_host & pinned[work.name]
    sizes = timeline.size[work.rows[up & _within(work, windows)]]

    def longest(mask: Mask) -> tuple[tuple[int, int, str], ...]:
        found = np.flatnonzero(mask)
        found = found[np.argsort(-(work.end - work.ts)[found], kind="stable")][:3]
        return tuple(
            (int(work.ts[i]), int(work.end[i] - work.ts[i]), _text(timeline, int(work.rows[i])))
            for i in found.tolist()
        )

    return Copies(
        events=frozenset(np.flatnonzero(ours).tolist()),
        exposed_ns=alone(ours),
        to_host_ns=alone(to_host),
        fetched_ns=_of_a_step(work.busy(fetched), windows),
        gbs=float(timeline.size[known].sum() / timeline.dur[known].sum()) if len(known) else None,
        pinned=bool(len(rows)) and bool(pinned[timeline.name[rows]].all()),
        lines=longest(ours),
        pinned_up_ns=_of_a_step(work.busy(up), windows),
        pinned_up_bytes=round(int(sizes[sizes > 0].sum()) / max(len(windows), 1)),
        pinned_up_lines=longest(up),
    )


def _within(work: Work, windows: list[tuple[int, int]]) -> Mask:
    """Events that begin in the recorded steps; all of them where there are none."""
    if not windows:
        return np.ones(len(work.ts), dtype=bool)
    return (work.ts >= windows[0][0]) & (work.ts < windows[-1][1])


def _of_a_step(busy: Intervals, windows: list[tuple[int, int]]) -> int:
    if not windows:
        return busy.total
    return round(clip(busy, windows[0][0], windows[-1][1]).total / len(windows))


def _text(timeline: Timeline, row: int) -> str:
    size = int(timeline.size[row])
    return timeline.names[int(timeline.name[row])] + (f", {size / 1e6:.1f} MB" if size > 0 else "")


def copy_cures(loops: list[Loop], free: tuple[Replayed, ...], copies: Copies) -> dict[str, Cured]:
    """The cure of copies that nothing hides, replayed: empty where there are none to move."""
    made = [beside(loop, copies.events, point) for loop, point in zip(loops, POINTS, strict=True)]
    if made[1] is loops[1]:
        return {}
    after = [replay.run(loop) for loop in made]
    step = after[1].step_ns
    full = max(_carried(made[1], stream) for stream in (_UP, _DOWN)) >= LINK_BOUND * step
    cured = Cured(
        name=EXPOSED,
        before=(free[0].step_ns, free[1].step_ns, free[2].step_ns),
        after=(after[0].step_ns, step, after[2].step_ns),
        next=LINK if full else limit(after[1], made[1], EXPOSED),
        launching=launching(after[1]),
        floor=min(one.busy_ns for one in after),
        idle_only=False,
    )
    return {EXPOSED: cured}


def _carried(loop: Loop, stream: int) -> float:
    of = (d for d, q in zip(loop.duration, loop.stream, strict=True) if q == stream)
    return sum(of) / len(loop.tail)


def beside(loop: Loop, events: frozenset[int], point: str) -> Loop:
    """The loop with its copies on streams of their own: those to the device a batch ahead, so that nobody waits for
    them; those to the host behind what was launched before them, read a step later. The same loop where none is moved.

    At the `low` point what may not be possible is not done: a copy to the device that follows a result which the host
    waited for in the same step may be of data that depends on it, and a result that the host waits for may be needed at
    once. A small result is asked for, not copied: that is `host-sync`. A copy among other events of one call is part
    of a graph and stays."""
    sure = point == "low"
    count = [0] * len(loop.free)
    for action in loop.action_of_event:
        count[action] += 1
    asked: dict[int, list[int]] = {}
    for i, target in enumerate(loop.waits):
        asked.setdefault(target, []).append(i)
    depends = _after_results(loop) if sure else set()
    stream, needs, lag, waits, call = (
        list(loop.stream), list(loop.needs), list(loop.lag), list(loop.waits), list(loop.call)
    )  # fmt: skip
    usual = float(np.median(loop.call)) if loop.call else 0.0
    before: dict[int, int] = {}
    moved: set[int] = set()
    for j, event in enumerate(loop.event):
        action, own = loop.action_of_event[j], loop.stream[j]
        previous, before[own] = before.get(own, -1), j
        if event not in events or count[action] > 1 or action in loop.saving:
            continue
        if loop.fetch[action]:
            waiting = asked.get(j, [])
            if waiting and (sure or loop.bytes[j] < WANTED_BYTES):
                continue
            stream[j] = _DOWN
            if needs[j] < 0:
                needs[j], lag[j] = previous, max(loop.gap[j], 0.0)
        elif action in depends:
            continue
        else:
            waiting = [i for i in asked.get(j, []) if i in (action, action + 1)]
            stream[j], needs[j] = _UP, -1
        for i in waiting:
            waits[i] = -1
            call[i] = min(call[i], usual)
        moved.add(j)
    if not moved:
        return loop
    needs = [-1 if need in moved and j not in moved else need for j, need in enumerate(needs)]
    return dataclasses.replace(loop, stream=stream, needs=needs, lag=lag, waits=waits, call=call)


def _after_results(loop: Loop) -> set[int]:
    """Actions that come after a wait for a result in the same step."""
    found: set[int] = set()
    fetches = {j for j, action in enumerate(loop.action_of_event) if loop.fetch[action]}
    for k in range(len(loop.tail)):
        asked = False
        for i in range(loop.step_at[k], loop.step_at[k + 1]):
            if asked:
                found.add(i)
            asked |= loop.waits[i] in fetches
    return found
