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
from wellfed.model.timeline import I32, I64, Cat, Ints, Timeline
from wellfed.model.trace import RankTrace

CHUNK = 1 << 14
MAX_LANES = 256
"""More lanes than that and a track is no picture; events beyond are left out and counted."""
NO_LANE = -1
FIRST_STREAM, LANE_ROOM = 10, 1000
"""Thread numbers of a process begin here; each track has room for its lanes."""
OFF = -(1 << 40)
"""For a device or stream: none. (-1 is a device that the file does not name.)"""


class DeviceTracks(NamedTuple):
    """One device: `idle` by cause sums to the raw budget's idle; `steps` are (name, start, end) on the device, ns of
    the timeline; `rows` are its GPU events whose launch is in the file, `launched_by` the rows of those calls."""

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
    return DeviceTracks(device, idle, steps, work.rows[launches.row >= 0], launches.row[launches.row >= 0])


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


class Track(NamedTuple):
    """One lane. `device` and `stream` are None for a thread of the host, which `thread` (an index of the timeline's)
    then names; `about` marks what is written about a stream."""

    pid: int
    tid: int
    lane: int
    device: int | None
    stream: int | None
    about: bool
    thread: int


class Layout:
    """Where each event is drawn: process and thread numbers, lane by lane. GPU events by device and stream, with what
    is written about the stream (annotations, waits) beside them; all else by the process and thread that the file
    names."""

    def __init__(self, timeline: Timeline, first_pid: int) -> None:
        self._timeline = timeline
        self._device, self._stream, self._about = _placed(timeline)
        on_gpu = self._device != OFF
        devices = sorted({*timeline.gpus, *np.unique(self._device[on_gpu]).tolist()} or {0})
        self.gpus = {int(device): first_pid + 1 + at for at, device in enumerate(devices)}
        host_threads = np.unique(timeline.thread[~on_gpu]).tolist()
        names = sorted({timeline.threads[t][0] for t in host_threads})
        first_host = first_pid + 1 + len(self.gpus)
        self.processes = {name: first_host + at for at, name in enumerate(names)}
        self.last_pid = first_pid + len(self.gpus) + len(self.processes)
        parts = np.stack([np.where(on_gpu, OFF, timeline.thread), self._device, self._stream, self._about])
        _, self._first, inverse = np.unique(parts, axis=1, return_index=True, return_inverse=True)
        inverse = inverse.reshape(-1)
        self.order: I64 = drawing_order(timeline)
        self.lane: I32 = lanes(timeline, inverse, self.order)
        self.left_out = int((self.lane == NO_LANE).sum())
        self._most = np.zeros(len(self._first), np.int64)
        np.maximum.at(self._most, inverse, self.lane)
        self._pid, self._tid = self._numbers()
        self.pid: I64 = self._pid[inverse]
        self.tid: I64 = self._tid[inverse] + np.maximum(self.lane, 0)

    def _numbers(self) -> tuple[I64, I64]:
        """Process and first thread number of each track; each has room for its lanes."""
        pids = np.zeros(len(self._first), np.int64)
        tids = np.zeros(len(self._first), np.int64)
        following: dict[int, int] = {}
        for at, row in enumerate(self._first.tolist()):
            device = int(self._device[row])
            host = self._timeline.threads[int(self._timeline.thread[row])][0]
            pid = self.gpus[device] if device != OFF else self.processes[host]
            pids[at], tids[at] = pid, following.get(pid, FIRST_STREAM)
            following[pid] = int(tids[at]) + LANE_ROOM
        return pids, tids

    def tracks(self) -> Iterator[Track]:
        """Each lane in use."""
        for at, row in enumerate(self._first.tolist()):
            device = int(self._device[row])
            for lane in range(int(self._most[at]) + 1):
                yield Track(
                    pid=int(self._pid[at]),
                    tid=int(self._tid[at]) + lane,
                    lane=lane,
                    device=None if device == OFF else device,
                    stream=None if device == OFF else int(self._stream[row]),
                    about=bool(self._about[row]),
                    thread=int(self._timeline.thread[row]),
                )


def _placed(timeline: Timeline) -> tuple[I64, I64, I64]:
    """For each event its device and stream (OFF for one of the host), and 1 for what is only about the stream:
    annotations and waits, which say where they belong by their thread."""
    gpu = timeline.is_gpu
    about = ((timeline.cat == Cat.GPU_ANNOTATION) | (timeline.cat == Cat.SYNC)) & ~gpu
    found = []
    for column in (timeline.device, timeline.stream):
        of_thread = np.full(len(timeline.threads) + 1, OFF, np.int64)
        of_thread[timeline.thread[gpu]] = column[gpu]
        placed = np.where(about, of_thread[timeline.thread], OFF)
        found.append(np.where(gpu, column.astype(np.int64), placed))
    return found[0], found[1], (about & (found[0] != OFF)).astype(np.int64)
