"""What is saved of a memory study, and of the allocator's events in a trace: who held how much at the peak."""

from collections.abc import Iterable

import numpy as np

from wellfed.analyze import memory as studied
from wellfed.analyze.memory import MemoryStudy, memory_use
from wellfed.analyze.stacks import short
from wellfed.model.base import replace
from wellfed.model.held import Holder, MemoryHeld, MemoryMoment, OutOfMemory
from wellfed.model.timeline import Cat, Timeline

TOP = 8
MAX_ASKED = 200_000
"""Live allocations whose operator is looked up; of more the largest are."""


def held_of(study: MemoryStudy) -> MemoryHeld:
    """What a snapshot says of one device."""
    churn = study.churn
    return MemoryHeld(
        source=study.source,
        rank=study.rank,
        device=study.device,
        reserved_bytes=study.reserved,
        allocated_bytes=study.allocated,
        pending_bytes=study.pending,
        inactive_bytes=study.inactive,
        broken_bytes=study.broken,
        spare_bytes=study.spare,
        private_bytes=study.private,
        rounding_bytes=study.rounding,
        largest_free_bytes=study.largest_free,
        segments=study.segments,
        expandable=study.expandable,
        events=study.events,
        window_s=study.window_s,
        stacks=study.stacks,
        peak=_moment(study.peak, study),
        now=_moment(study.now, study),
        ooms=tuple(_oom(one, study) for one in study.ooms),
        oom_count=study.oom_count,
        given_back=churn.given if churn else None,
        taken_again=churn.taken_again if churn else None,
        taken_again_bytes=churn.taken_again_bytes if churn else None,
        refused=study.refused,
        faults=study.faults,
    )


def _moment(moment: studied.Moment | None, study: MemoryStudy) -> MemoryMoment | None:
    if moment is None:
        return None
    since = None
    if moment.time_us is not None and study.first_us is not None and moment.event >= 0:
        since = (moment.time_us - study.first_us) / 1e3
    holders = [replace(h, site=None if h.site is None else short(h.site)) for h in moment.holders]
    return _told(since, moment.allocated_bytes, moment.reserved_bytes, holders)


def _told(
    at_ms: float | None, allocated: int, reserved: int | None, holders: Iterable[Holder]
) -> MemoryMoment:
    kept = sorted(holders, key=lambda h: -h.bytes)[:TOP]
    return MemoryMoment(
        at_ms=at_ms,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        holders=tuple(kept),
        rest_bytes=allocated - sum(h.bytes for h in kept),
    )


def _oom(oom: studied.Oom, study: MemoryStudy) -> OutOfMemory:
    room = oom.room
    known = study.refused is None
    return OutOfMemory(
        asked_bytes=oom.asked_bytes,
        device_free_bytes=oom.device_free_bytes,
        site=None if oom.site is None else short(oom.site),
        cause=oom.cause,
        room_bytes=room.usable_bytes if room else None,
        largest_bytes=room.largest_bytes if room else None,
        pieces=room.pieces if room else None,
        elsewhere_bytes=room.elsewhere_bytes if room else None,
        last=oom.last,
        moment=_moment(oom.moment, study) if known else None,
    )


# -- the allocator's events in a trace --------------------------------------------------------------------


def held_in(timeline: Timeline) -> tuple[MemoryHeld, ...]:
    """What the `[memory]` events of a trace say, for each device that has some."""
    return tuple(held for device in sorted(timeline.gpus) if (held := _device(timeline, device)) is not None)


def _device(timeline: Timeline, device: int) -> MemoryHeld | None:
    events = timeline.memory
    use = memory_use(events, device)
    if events is None or use is None:
        return None
    mine = np.flatnonzero((events.device == device) & (events.allocated >= 0))
    peak = int(np.argmax(events.allocated[mine]))
    holders = _holders(timeline, mine[: peak + 1])
    known = sum(h.bytes for h in holders)
    if known > use.peak_bytes:  # releases are missing: who held it is then not known
        holders = []
    elif known < use.peak_bytes:
        holders.append(Holder(bytes=use.peak_bytes - known, count=0, before=True))
    reserved = int(events.reserved[mine[peak]])
    span = int(events.ts[mine[-1]] - events.ts[mine[0]])
    return MemoryHeld(
        source=timeline.source,
        kind="events",
        rank=timeline.rank,
        device=device,
        reserved_bytes=use.reserved_bytes or None,
        events=use.events,
        window_s=span / 1e9,
        stacks=False,
        peak=_told(use.peak_ns / 1e6, use.peak_bytes, reserved if reserved >= 0 else None, holders),
        faults=(f"more is allocated than reserved at {use.above} events",) if use.above else (),
    )


def _holders(timeline: Timeline, rows: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> list[Holder]:
    """Allocations live after `rows` (indices of memory events, in order) by the operator that asked for them. What was
    there before the recording is in no event; a block whose release alone is seen was of those."""
    events = timeline.memory
    assert events is not None
    addresses, sizes = events.address[rows].tolist(), events.bytes[rows].tolist()
    live: dict[int, tuple[int, int]] = {}
    for row, address, size in zip(rows.tolist(), addresses, sizes, strict=True):
        if size > 0:
            live[address] = (row, size)
        else:
            live.pop(address, None)
    largest = sorted(live.values(), key=lambda item: -item[1])[:MAX_ASKED]
    names = _operators(timeline, [int(events.ts[row]) for row, _ in largest])
    sums: dict[str | None, list[int]] = {}
    for (_, size), name in zip(largest, names, strict=True):
        total = sums.setdefault(name, [0, 0])
        total[0] += size
        total[1] += 1
    return [
        Holder(
            site=name,
            phase="backward" if name and "Backward" in name else "optimizer" if name and "Optimizer" in name else "other",
            bytes=total,
            count=count,
        )
        for name, (total, count) in sums.items()
    ]  # fmt: skip


def _operators(timeline: Timeline, instants_ns: list[int]) -> list[str | None]:
    """For each instant the operator or annotation that holds it: the outermost one below the step, which is the part
    of the program that asked. None where none does. Where several
    threads' do, it is the first thread's."""
    rows = np.flatnonzero((timeline.cat == Cat.OP) | (timeline.cat == Cat.ANNOTATION))
    names = timeline.names
    steps = timeline.named(lambda name: name.startswith("ProfilerStep"))
    rows = rows[~steps[timeline.name[rows]]]
    found: list[str | None] = [None] * len(instants_ns)
    for thread in np.unique(timeline.thread[rows]).tolist():
        mine = rows[timeline.thread[rows] == thread]
        start, end = timeline.ts[mine], timeline.ts[mine] + timeline.dur[mine]
        before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]])
        outer = mine[start >= before]
        start, end = timeline.ts[outer], timeline.ts[outer] + timeline.dur[outer]
        if not len(outer):
            continue
        at = np.searchsorted(start, instants_ns, side="right") - 1
        inside = (at >= 0) & (np.asarray(instants_ns) <= end[np.maximum(at, 0)])
        for k in np.flatnonzero(inside).tolist():
            name = names[timeline.name[outer[at[k]]]]
            found[k] = name if found[k] is None else found[k]
    return found
