"""A timeline for ui.perfetto.dev (Chrome's JSON format), with what we found drawn beside it.

Per device: why it was idle, its steps, the findings as instants, then its streams. Per thread of the host: its
events. Slices that cross are spread over lanes, since viewers show one of two crossing slices only. Arrows lead from
each launch to its work. Times are those of the recording, to the nanosecond; of the file's own metadata nothing is
copied. Text comes in pieces, so that a large trace is never held as text.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from wellfed.analyze import Study
from wellfed.analyze.tracks import NO_LANE, DeviceTracks, chunks, device_tracks, drawing_order, lanes
from wellfed.model import Verdict
from wellfed.model.redact import Redactor
from wellfed.model.timeline import I32, I64, Cat, Timeline
from wellfed.report import words

HEAD = '{"displayTimeUnit": "ns", "traceEvents": ['
TAIL = "\n]}\n"

CATEGORIES: dict[Cat, str] = {
    Cat.OTHER: "other", Cat.OP: "cpu_op", Cat.ANNOTATION: "user_annotation", Cat.RUNTIME: "cuda_runtime",
    Cat.DRIVER: "cuda_driver", Cat.PYTHON: "python_function", Cat.OVERHEAD: "overhead", Cat.KERNEL: "kernel",
    Cat.MEMCPY: "gpu_memcpy", Cat.MEMSET: "gpu_memset", Cat.GPU_ANNOTATION: "gpu_user_annotation", Cat.SYNC: "cuda_sync",
}  # fmt: skip
"""The names that PyTorch gives them, so that what reads its traces reads these."""

IDLE, STEPS, FINDINGS, FIRST_STREAM = 1, 2, 3, 10
"""Threads of a device's process."""
LANE_ROOM = 1000
OFF = -(1 << 40)
"""For a device or stream: none. (-1 is a device that the file does not name.)"""
_AT = re.compile(r"t=([\d.]+) ms, ([\d.]+) ms")


class Place(NamedTuple):
    """Where a device's findings go."""

    pid: int
    base_ns: int


class Writer:
    """Writes ranks one after the other; `left_out` counts events that no lane had room for. Names are redacted
    unless `redact` is False."""

    def __init__(self, *, redact: bool = True) -> None:
        self.left_out = 0
        self._redactor = Redactor() if redact else None
        self._begun = False
        self._pid = 0
        self._flow = 0
        self._places: dict[tuple[str, int | None, int | None], Place] = {}

    def head(self) -> str:
        return HEAD

    def tail(self) -> str:
        return TAIL

    def rank(self, timeline: Timeline, studies: Sequence[Study]) -> Iterator[str]:
        """The pieces of one rank."""
        return self._joined(self._rank(timeline, studies))

    def findings(self, verdicts: Iterable[Verdict]) -> Iterator[str]:
        """The instants of all findings, once every rank is written."""
        return self._joined(self._findings(verdicts))

    def _joined(self, pieces: Iterator[str]) -> Iterator[str]:
        """Each event begins with a comma, but for the very first."""
        for piece in pieces:
            if piece:
                yield piece if self._begun else piece[1:]
                self._begun = True

    def _rank(self, timeline: Timeline, studies: Sequence[Study]) -> Iterator[str]:
        names = self._names(timeline)
        tracks = [device_tracks(timeline, study.rank) for study in studies]
        layout = _Layout(timeline, self._pid)
        self.left_out += layout.left_out
        self._pid = layout.last_pid
        yield self._metadata(timeline, layout)
        for study, found in zip(studies, tracks, strict=True):
            pid = layout.gpus[found.device]
            key = (study.rank.source, study.rank.rank, study.rank.device)
            self._places[key] = Place(pid, timeline.base_ns)
            yield from self._own(found, timeline.base_ns, pid)
        yield from self._events(timeline, layout, names)
        for found in tracks:
            yield from self._flows(timeline, layout, found)

    def _findings(self, verdicts: Iterable[Verdict]) -> Iterator[str]:
        for verdict in verdicts:
            if verdict.verdict != "finding":
                continue
            for evidence in verdict.evidence:
                key = (evidence.source, verdict.where.get("rank"), verdict.where.get("device"))
                place, at = self._places.get(key), _AT.match(evidence.at or "")
                if place is None or at is None:
                    continue
                ns = place.base_ns + int(Decimal(at[1]) * 1_000_000)
                args = {
                    "says": verdict.message,
                    "here": evidence.text,
                    "length": f"{at[2]} ms",
                    "gain": (words.gain_phrase(verdict.gain) or "not known").replace(words.NBSP, " "),
                    "explain": f"wellfed explain {verdict.code}",
                }
                shown = {key: self._text(value) for key, value in args.items()}
                yield (
                    f',\n{{"ph":"i","s":"t","pid":{place.pid},"tid":{FINDINGS},"ts":{_us(ns)},"cat":"finding",'
                    f'"name":{json.dumps(f"{verdict.code} {verdict.name}")},"args":{json.dumps(shown)}}}'
                )

    # -- names --

    def _names(self, timeline: Timeline) -> list[str]:
        """Each name of the timeline as JSON, redacted once: kernels' and calls' as code, what a user wrote as text."""
        redactor = self._redactor
        if redactor is None:
            return [json.dumps(name) for name in timeline.names]
        for name in timeline.names:
            redactor.learn(name)
        code = np.zeros(len(timeline.names), bool)
        code[timeline.name[timeline.is_gpu]] = True
        return [
            json.dumps(redactor.code(name) if is_code else redactor.text(name))
            for name, is_code in zip(timeline.names, code.tolist(), strict=True)
        ]

    def _text(self, text: str) -> str:
        return self._redactor.text(text, prose=True) if self._redactor else text

    # -- pieces --

    def _metadata(self, timeline: Timeline, layout: "_Layout") -> str:
        rank = f"rank {timeline.rank}: " if timeline.rank is not None else ""
        lines: list[str] = []
        for device, pid in layout.gpus.items():
            title = ", ".join(filter(None, (f"{rank}GPU {device}", timeline.gpus.get(device))))
            lines += _process(pid, self._text(title), pid)
            for tid, name in ((IDLE, "why idle"), (STEPS, "steps"), (FINDINGS, "findings")):
                lines += _thread(pid, tid, name, tid)
        for process, pid in layout.processes.items():
            lines += _process(pid, self._text(f"{rank}host, process {process}"), pid)
        for pid, tid, name in layout.threads():
            lines += _thread(pid, tid, self._text(name), tid)
        return "".join(lines)

    def _own(self, found: DeviceTracks, base: int, pid: int) -> Iterator[str]:
        """The tracks that are ours: idle by cause, and steps."""
        for cause, where in found.idle.items():
            for at in range(0, len(where.start), 4096):
                pairs = zip(
                    where.start[at : at + 4096].tolist(), where.end[at : at + 4096].tolist(), strict=True
                )
                yield "".join(
                    _slice(pid, IDLE, base + start, end - start, "idle", f'"{cause}"') for start, end in pairs
                )
        for name, start, end in found.steps:
            yield _slice(pid, STEPS, base + start, end - start, "step", json.dumps(self._text(name)))

    def _events(self, timeline: Timeline, layout: "_Layout", names: list[str]) -> Iterator[str]:
        category = [json.dumps(CATEGORIES[Cat(n)]) for n in range(len(Cat))]
        base, gpu = timeline.base_ns, timeline.is_gpu
        for rows in chunks(layout.order):
            columns = (
                timeline.ts, timeline.dur, timeline.cat, timeline.name, layout.pid, layout.tid, layout.lane,
                timeline.corr, gpu, timeline.device, timeline.stream, timeline.size, timeline.wait_corr,
            )  # fmt: skip
            pieces = []
            for ts, dur, cat, name, pid, tid, lane, corr, is_gpu, device, stream, size, wait in zip(
                *(column[rows].tolist() for column in columns), strict=True
            ):
                if lane == NO_LANE:
                    continue
                args = [f'"correlation":{corr}'] if corr >= 0 else []
                if is_gpu:
                    args.append(f'"device":{device},"stream":{stream}')
                if size >= 0:
                    args.append(f'"bytes":{size}')
                if wait >= 0:
                    args.append(f'"wait_on_cuda_event_record_corr_id":{wait}')
                pieces.append(
                    f',\n{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_us(base + ts)},"dur":{_us(dur)},'
                    f'"cat":{category[cat]},"name":{names[name]},"args":{{{",".join(args)}}}}}'
                )
            yield "".join(pieces)

    def _flows(self, timeline: Timeline, layout: "_Layout", found: DeviceTracks) -> Iterator[str]:
        """An arrow from each launch to each of its GPU events."""
        base = timeline.base_ns
        known = np.flatnonzero(found.launched_by >= 0)
        for part in chunks(known):
            there, call = found.rows[part], found.launched_by[part]
            shown = (layout.lane[there] != NO_LANE) & (layout.lane[call] != NO_LANE)
            there, call = there[shown], call[shown]
            columns = (
                layout.pid[call], layout.tid[call], timeline.ts[call],
                layout.pid[there], layout.tid[there], timeline.ts[there],
            )  # fmt: skip
            pieces = []
            for pid, tid, ts, gpu_pid, gpu_tid, gpu_ts in zip(*(c.tolist() for c in columns), strict=True):
                self._flow += 1
                common = f'"cat":"launch","name":"launch","id":{self._flow}'
                pieces.append(
                    f',\n{{"ph":"s","pid":{pid},"tid":{tid},"ts":{_us(base + ts)},{common}}}'
                    f',\n{{"ph":"f","bp":"e","pid":{gpu_pid},"tid":{gpu_tid},"ts":{_us(base + gpu_ts)},{common}}}'
                )
            yield "".join(pieces)


class _Layout:
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

    def threads(self) -> Iterator[tuple[int, int, str]]:
        """(process, thread, name) of each lane in use."""
        for at, row in enumerate(self._first.tolist()):
            if self._device[row] != OFF:
                name = f"{'about ' if self._about[row] else ''}stream {int(self._stream[row])}"
            else:
                name = f"thread {self._timeline.threads[int(self._timeline.thread[row])][1]}"
            for lane in range(int(self._most[at]) + 1):
                lane_name = name if lane == 0 else f"{name}, lane {lane + 1}"
                yield int(self._pid[at]), int(self._tid[at]) + lane, lane_name


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


def _us(ns: int) -> str:
    """Nanoseconds as microseconds with all three decimals, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}" if ns >= 0 else f"-{_us(-ns)}"


def _slice(pid: int, tid: int, ts: int, dur: int, category: str, name: str) -> str:
    return (
        f',\n{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_us(ts)},"dur":{_us(dur)},'
        f'"cat":"{category}","name":{name},"args":{{}}}}'
    )


def _process(pid: int, name: str, sort: int) -> list[str]:
    return [
        f',\n{{"ph":"M","name":"process_name","pid":{pid},"args":{{"name":{json.dumps(name)}}}}}',
        f',\n{{"ph":"M","name":"process_sort_index","pid":{pid},"args":{{"sort_index":{sort}}}}}',
    ]


def _thread(pid: int, tid: int, name: str, sort: int) -> list[str]:
    return [
        f',\n{{"ph":"M","name":"thread_name","pid":{pid},"tid":{tid},"args":{{"name":{json.dumps(name)}}}}}',
        f',\n{{"ph":"M","name":"thread_sort_index","pid":{pid},"tid":{tid},"args":{{"sort_index":{sort}}}}}',
    ]
