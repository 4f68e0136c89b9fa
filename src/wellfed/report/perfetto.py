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

from wellfed.analyze import Study
from wellfed.analyze.tracks import NO_LANE, DeviceTracks, Layout, Track, chunks, device_tracks
from wellfed.model import Verdict
from wellfed.model.redact import Redactor
from wellfed.model.timeline import Cat, Timeline
from wellfed.report import words

HEAD = '{"displayTimeUnit": "ns", "traceEvents": ['
TAIL = "\n]}\n"

CATEGORIES: dict[Cat, str] = {
    Cat.OTHER: "other", Cat.OP: "cpu_op", Cat.ANNOTATION: "user_annotation", Cat.RUNTIME: "cuda_runtime",
    Cat.DRIVER: "cuda_driver", Cat.PYTHON: "python_function", Cat.OVERHEAD: "overhead", Cat.KERNEL: "kernel",
    Cat.MEMCPY: "gpu_memcpy", Cat.MEMSET: "gpu_memset", Cat.GPU_ANNOTATION: "gpu_user_annotation", Cat.SYNC: "cuda_sync",
}  # fmt: skip
"""The names that PyTorch gives them, so that what reads its traces reads these."""

IDLE, STEPS, FINDINGS = 1, 2, 3
"""Threads of a device's process, before its streams."""
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
        layout = Layout(timeline, self._pid)
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
        code = set(timeline.name[timeline.is_gpu].tolist())
        return [
            json.dumps(redactor.code(name) if at in code else redactor.text(name))
            for at, name in enumerate(timeline.names)
        ]

    def _text(self, text: str) -> str:
        return self._redactor.text(text, prose=True) if self._redactor else text

    # -- pieces --

    def _metadata(self, timeline: Timeline, layout: Layout) -> str:
        rank = f"rank {timeline.rank}: " if timeline.rank is not None else ""
        lines: list[str] = []
        for device, pid in layout.gpus.items():
            title = ", ".join(filter(None, (f"{rank}GPU {device}", timeline.gpus.get(device))))
            lines += _process(pid, self._text(title), pid)
            for tid, name in ((IDLE, "why idle"), (STEPS, "steps"), (FINDINGS, "findings")):
                lines += _thread(pid, tid, name, tid)
        for process, pid in layout.processes.items():
            lines += _process(pid, self._text(f"{rank}host, process {process}"), pid)
        for track in layout.tracks():
            lines += _thread(track.pid, track.tid, self._text(_track_name(timeline, track)), track.tid)
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

    def _events(self, timeline: Timeline, layout: Layout, names: list[str]) -> Iterator[str]:
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

    def _flows(self, timeline: Timeline, layout: Layout, found: DeviceTracks) -> Iterator[str]:
        """An arrow from each launch to each of its GPU events."""
        base = timeline.base_ns
        for there, call in zip(chunks(found.rows), chunks(found.launched_by), strict=True):
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


def _track_name(timeline: Timeline, track: Track) -> str:
    if track.device is None:
        name = f"thread {timeline.threads[track.thread][1]}"
    else:
        name = f"{'about ' if track.about else ''}stream {track.stream}"
    return name if track.lane == 0 else f"{name}, lane {track.lane + 1}"


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
