"""The room there was for a request: the free pieces inside the segments of one moment of the past."""

from dataclasses import dataclass

import numpy as np

from wellfed.analyze.memory_replay import History
from wellfed.model.memory import Action, DeviceMemory

ROUND_BYTES = 512
SMALL_REQUEST_BYTES = 1 << 20
SMALL_SEGMENT_BYTES = 2 << 20
"""c10/cuda/CUDACachingAllocator: blocks are multiples of 512 bytes; requests up to 1 MiB come from segments of 2 MiB."""
_MAPPED = (Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)


@dataclass(frozen=True, kw_only=True)
class Room:
    """Free bytes inside reserved memory: `usable_bytes` in `pieces` that the request could be served from (its
    stream, the common pool, segments of its size class), `largest_bytes` the largest of them; `elsewhere_bytes` in
    other streams, pools of graphs, or the other size class."""

    usable_bytes: int
    largest_bytes: int
    pieces: int
    elsewhere_bytes: int


@dataclass(frozen=True)
class _Range:
    start: int
    end: int
    stream: int
    large: bool
    private: bool
    expandable: bool


def room_at(memory: DeviceMemory, history: History, event: int, *, stream: int, asked: int) -> Room:
    """The room for `asked` bytes on `stream` after `event`. Free pieces are at most as large as said: an
    allocation takes its size rounded up to 512 bytes, now and then a little more."""
    held = history.occupied(event)
    start = history.address[held]
    order = np.argsort(start, kind="stable")
    start = start[order]
    size = history.size[held][order]
    end = start + -(-size // ROUND_BYTES) * ROUND_BYTES
    usable: list[int] = []
    elsewhere = 0
    for one in _merged(_ranges_at(memory, event)):
        first, last = np.searchsorted(start, (one.start, one.end))
        edges_from = np.concatenate([[one.start], np.minimum(end[first:last], one.end)])
        edges_to = np.concatenate([start[first:last], [one.end]])
        gaps = edges_to - edges_from
        gaps = gaps[gaps > 0]
        if one.stream == stream and not one.private and one.large == (asked > SMALL_REQUEST_BYTES):
            usable += gaps.tolist()
        else:
            elsewhere += int(gaps.sum())
    return Room(
        usable_bytes=sum(usable),
        largest_bytes=max(usable, default=0),
        pieces=len(usable),
        elsewhere_bytes=elsewhere,
    )


def _ranges_at(memory: DeviceMemory, event: int) -> list[_Range]:
    """The segments after `event`: the snapshot's, with what came later taken back."""
    segments = memory.segments
    columns = (segments.address, segments.size, segments.stream, segments.large, segments.private)
    ranges = {
        a: _Range(a, a + n, stream, bool(large), bool(private), bool(expandable))
        for a, n, stream, large, private, expandable in zip(
            *(c.tolist() for c in (*columns, segments.expandable)), strict=True
        )
    }
    events = memory.events
    later = np.flatnonzero(np.isin(events.action, [a for a in Action if a.name.startswith("SEGMENT")]))
    for index in later[later > event][::-1].tolist():
        action, address, size = int(events.action[index]), int(events.address[index]), int(events.size[index])
        if action in (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP):
            _take(ranges, address, address + size)
        else:
            ranges[address] = _Range(
                address, address + size, int(events.stream[index]), size > SMALL_SEGMENT_BYTES, False, action in _MAPPED
            )  # fmt: skip
    return sorted(ranges.values(), key=lambda r: r.start)


def _take(ranges: dict[int, _Range], start: int, end: int) -> None:
    """Take [start, end) out of the ranges."""
    exact = ranges.get(start)
    touched = (
        [exact] if exact is not None and exact.end == end
        else [r for r in ranges.values() if r.start < end and start < r.end]
    )  # fmt: skip
    for one in touched:
        del ranges[one.start]
        for low, high in ((one.start, min(one.end, start)), (max(one.start, end), one.end)):
            if low < high:
                ranges[low] = _Range(low, high, one.stream, one.large, one.private, one.expandable)


def _merged(ranges: list[_Range]) -> list[_Range]:
    """Parts of one expandable segment joined; memory of two calls to the driver never is."""
    out: list[_Range] = []
    for one in ranges:
        before = out[-1] if out else None
        if (
            before is not None
            and one.expandable
            and before.expandable
            and one.start == before.end
            and one.stream == before.stream
        ):
            out[-1] = _Range(
                before.start,
                one.end,
                one.stream,
                one.large or before.large,
                one.private or before.private,
                True,
            )
        else:
            out.append(one)
    return out
