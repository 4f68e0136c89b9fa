"""What a viewer of timelines shows beside the events: idle by cause and steps on the device, the call that launched
each GPU event, and lanes for events that cross."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.causes import Covers, idle_intervals
from wellfed.analyze.intervals import Intervals
from wellfed.analyze.launches import Launches
from wellfed.analyze.steps import HostSteps, device_windows
from wellfed.model.timeline import I32, I64, Ints, Timeline
from wellfed.model.trace import RankTrace

CHUNK = 1 << 14
MAX_LANES = 256
"""More lanes than that and a track is no picture; events beyond are left out and counted."""
NO_LANE = -1


class DeviceTracks(NamedTuple):
    """One device: `idle` by cause sums to the raw budget's idle; `steps` are (name, start, end) on the device, ns of
    the timeline; `rows` of its GPU events and for each the row of the launching call (-1: not in the file)."""

    device: int
    idle: dict[str, Intervals]
    steps: tuple[tuple[str, int, int], ...]
    rows: I64
    launched_by: I64


def device_tracks(timeline: Timeline, rank: RankTrace) -> DeviceTracks:
    """The tracks of the device that `rank` is of."""
    device = rank.device or 0
    work = Work(timeline, device)
    launches = Launches(timeline, work)
    idle: dict[str, Intervals] = {}
    steps: tuple[tuple[str, int, int], ...] = ()
    if work.span is not None:
        covers = Covers(timeline, work, launches)
        idle = idle_intervals(timeline, work, launches, covers, *work.span)
        base = timeline.base_ns
        host = HostSteps(
            [s.name for s in rank.steps],
            [s.start_ns - base for s in rank.steps],
            [s.end_ns - base for s in rank.steps],
            rank.step_source,
        )
        windows = device_windows(host, work, launches)
        steps = tuple((n, a, b) for n, (a, b) in zip(host.names, windows, strict=True) if b > a)
    return DeviceTracks(device, idle, steps, work.rows.astype(np.int64), launches.row)


def drawing_order(timeline: Timeline) -> I64:
    """Rows by start, the longer first, so that what holds others comes before them."""
    return np.lexsort((-timeline.dur, timeline.ts)).astype(np.int64)


def lanes(timeline: Timeline, track: Ints, order: I64) -> I32:
    """For each row a lane of its track such that no two events of a lane cross: each lies in the other, or they are
    apart. The first lane with room takes an event, so that what nests stays in lane 0. NO_LANE where `MAX_LANES`
    have no room."""
    lane = np.zeros(len(timeline), np.int32)
    open_ends: dict[int, list[list[int]]] = {}
    for part in chunks(order):
        found: list[int] = []
        starts, ends = timeline.ts[part].tolist(), timeline.end[part].tolist()
        for key, start, end in zip(track[part].tolist(), starts, ends, strict=True):
            stacks = open_ends.setdefault(key, [[]])
            at = 0
            for stack in stacks:
                while stack and stack[-1] <= start:
                    stack.pop()
                if not stack or stack[-1] >= end:
                    stack.append(end)
                    break
                at += 1
            else:
                if at < MAX_LANES:
                    stacks.append([end])
                else:
                    at = NO_LANE
            found.append(at)
        lane[part] = found
    return lane


def chunks(order: I64) -> Iterator[I64]:
    """Rows in pieces, so that lists of Python numbers stay short."""
    for at in range(0, len(order), CHUNK):
        yield order[at : at + CHUNK]
