"""Pieces of a Kineto trace that are strict JSON, decoded whole: the quickest way, and the one of nearly every piece.

A piece is cut behind the last event that it holds whole. Where the cut is right, the text before it is a list of
objects, and the decoder says so: a cut at a wrong place (inside `args`, inside a text) leaves something open. What
the decoder does not take, for whatever reason, is left to the scan (`wellfed.ingest.scan`) as if nobody had tried.
Of an event only the keys in these structs become Python objects, and no event outlives its piece.
"""

import re
from array import array
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from wellfed.ingest.kineto_columns import COLUMNS, INSTANT, Columns
from wellfed.ingest.kineto_event import (
    ARG_NAMES,
    NO_ARGS,
    NO_TIME,
    Args,
    Loose,
    as_small_int,
    category,
    digits_ns,
    length_ns,
)
from wellfed.ingest.pieces import BROKEN
from wellfed.ingest.scan import I64, microseconds, text_of
from wellfed.model.timeline import Shape

_NONE = msgspec.Raw(b"")
_BETWEEN = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args)"\s*:')
_TRIES = 256
"""Closing braces looked at from the end of a piece: more than any event holds."""
_PATIENCE = 32
"""After so many pieces in a row that are not strict only one in so many is tried."""


class PlainArgs(msgspec.Struct, gc=False, rename=ARG_NAMES):
    """The arguments that many events have. They are few on purpose: each unknown key is compared with all."""

    correlation: Loose = -1
    ext: Loose = -1
    ext_old: Loose = -1
    stream: Loose = -1
    device: Loose = -1
    size: Loose = -1
    wait_on_cuda_event_record_corr_id: Loose = -1
    dims: msgspec.Raw = _NONE
    dims_old: msgspec.Raw = _NONE
    types: msgspec.Raw = _NONE
    concrete: msgspec.Raw = _NONE
    strides: msgspec.Raw = _NONE
    coll: msgspec.Raw = _NONE
    group_name: msgspec.Raw = _NONE


class PlainEvent(msgspec.Struct, gc=False):
    """An event as nearly all are written; one of other types (a thread that is a fraction) is not taken."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: msgspec.Raw = _NONE
    dur: msgspec.Raw = _NONE
    args: PlainArgs | None = None


class _WithAllArgs(msgspec.Struct, gc=False):
    args: Args | None = None


_MEMORY_NAMES = {
    "kind": "Device Type",
    "device": "Device Id",
    "address": "Addr",
    "bytes": "Bytes",
    "allocated": "Total Allocated",
    "reserved": "Total Reserved",
}


class _MemoryArgs(msgspec.Struct, gc=False, rename=_MEMORY_NAMES):
    kind: int = -1
    device: int = -1
    address: int = -1
    bytes: int = -1
    allocated: int = -1
    reserved: int = -1


class _Instant(msgspec.Struct, gc=False):
    args: _MemoryArgs | None = None


_EVENTS = msgspec.json.Decoder(list[PlainEvent])
_ALL_ARGS = msgspec.json.Decoder(list[_WithAllArgs])
_INSTANTS = msgspec.json.Decoder(list[_Instant])
_INTEGERS = msgspec.json.Decoder(list[int])
_FAR_US = 9_000_000_000_000_000
"""Times beyond this may not fit 64 bits as ns: they are read one by one."""
_NO_ARGS = PlainArgs()
_MEMORY = -2
"""In place of a category: an instant of the allocator, which makes no row."""


class PlainReader:
    """Reads strict pieces into columns."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._categories = _Categories()
        self._threads = _Threads(columns.threads)
        self._shapes = _Shapes(columns.shapes)
        self._refused = 0

    def read(self, carry: bytes, piece: memoryview) -> tuple[int, bytes] | None:
        """Read the complete events of a text in two parts, which begins between two events of a list: how many bytes
        that were, and what is left. None, and nothing read, where other means are needed."""
        if self._refused > _PATIENCE and self._refused % _PATIENCE:  # pieces of a file are mostly alike
            self._refused += 1
            return None
        head = carry.lstrip(b", \t\r\n")
        text = bytearray(b"[")
        text += head
        text += piece
        end = _last_end(text)
        rest = bytes(memoryview(text)[end + 1 :])
        if end < 0 or not self._add(text, end):
            self._refused += 1
            return None
        self._refused = 0
        return len(carry) - len(head) + end, rest

    def _add(self, text: bytearray, end: int) -> bool:
        text[end + 1] = ord("]")
        whole = memoryview(text)[: end + 2]
        known = self._categories
        try:
            events = _EVENTS.decode(whole)
            code = np.array(
                [
                    known[e.cat] if e.ph == "X" else _MEMORY if e.ph == "i" and e.cat == INSTANT else -1
                    for e in events
                ],
                np.int16,
            )
            at = np.flatnonzero(code >= 0)
            rows = [events[i] for i in at.tolist()]
            args = [e.args or _NO_ARGS for e in rows]
            called = [i for i, a in enumerate(args) if a.coll is not _NONE or a.group_name is not _NONE]
            told = _ALL_ARGS.decode(whole) if called else []
            instants = np.flatnonzero(code == _MEMORY).tolist()
            memory = _INSTANTS.decode(whole) if instants else []
        except BROKEN:
            return False
        columns = self._columns
        columns.seen_events += len(events)
        if instants:
            kept = [memory[i].args or _MemoryArgs() for i in instants]
            columns.memory.append(_memory([events[i].ts for i in instants], kept))
        if rows:
            part = self._rows(rows, args)
            part["cat"] = code[at]
            part["comm"] = comm = np.full(len(rows), -1, np.int32)
            for i in called:
                comm[i] = columns.comm_of(told[at[i]].args or NO_ARGS)
            columns.parts.append({k: part[k].astype(kind, copy=False) for k, kind in COLUMNS.items()})
        return True

    def _rows(self, events: list[PlainEvent], args: list[PlainArgs]) -> dict[str, npt.NDArray[Any]]:
        names, threads, shapes, join = self._columns.names, self._threads, self._shapes, b"\0".join
        ext = _integers([a.ext for a in args])
        times = _nanoseconds([e.ts for e in events] + [e.dur for e in events])
        ts, dur = times[: len(events)], times[len(events) :].copy()
        for i in np.flatnonzero(dur == NO_TIME).tolist():
            dur[i] = length_ns(events[i].dur)
        return {
            "ts": ts,
            "dur": dur,
            "name": np.array([names.setdefault(e.name, len(names)) for e in events], np.int32),
            "thread": np.array([threads[e.pid, e.tid] for e in events], np.int32),
            "corr": _integers([a.correlation for a in args]),
            "ext": np.where(ext >= 0, ext, _integers([a.ext_old for a in args])),
            "stream": _integers([a.stream for a in args]),
            "device": np.minimum(_integers([a.device for a in args]), 2**31 - 1),
            "size": _integers([a.size for a in args]),
            "wait_corr": _integers([a.wait_on_cuda_event_record_corr_id for a in args]),
            "shape": np.array(
                [
                    shapes[join((dims, a.types, a.concrete, a.strides))]
                    if (dims := a.dims_old if a.dims is _NONE else a.dims) is not _NONE
                    else -1
                    for a in args
                ],
                np.int32,
            ),
        }


def _last_end(text: bytearray) -> int:
    """Where the last brace before another event is; -1 for none."""
    end = len(text)
    for _ in range(_TRIES):
        end = text.rfind(b"}", 0, end)
        if end < 0 or _BETWEEN.match(text, end):
            return end
    return -1


def _integers(values: list[Any]) -> I64:
    """Integers of any spelling as a column; -1 where there is none or 64 bits cannot hold it."""
    try:
        return np.frombuffer(array("q", values), np.int64)
    except (TypeError, OverflowError):
        return np.array([as_small_int(v) for v in values], np.int64)


def _nanoseconds(values: list[msgspec.Raw]) -> I64:
    """Decimal microseconds as exact integer ns; NO_TIME where there are none."""
    joined = b",".join((*values, b""))
    try:
        whole = np.frombuffer(array("q", _INTEGERS.decode(b"[" + joined[:-1] + b"]")), np.int64)
        if whole.min(initial=0) > -_FAR_US and whole.max(initial=0) < _FAR_US:
            return whole * 1000
    except (*BROKEN, OverflowError):  # fractions
        pass
    text = text_of(joined)
    size = np.fromiter(map(len, values), np.int64, len(values))
    value, good = microseconds(text, np.cumsum(size + 1) - size - 1)
    for i in np.flatnonzero(~good).tolist():
        value[i] = digits_ns(values[i])
    return value


def _memory(times: list[msgspec.Raw], args: list[_MemoryArgs]) -> dict[str, I64]:
    column = {name: _integers([getattr(a, name) for a in args]) for name in _MEMORY_NAMES}
    column["ts"] = _nanoseconds(times)
    take = (column["ts"] >= 0) & (column["kind"] >= 0)
    return {k: v[take] for k, v in column.items()}


class _Categories(dict[str, int]):
    """The category of each name, asked once."""

    def __missing__(self, name: str) -> int:
        self[name] = code = category(name)
        return code


class _Threads(dict[tuple[int | str | None, int | str | None], int]):
    """The number of each pair of process and thread."""

    def __init__(self, numbers: dict[tuple[str, str], int]) -> None:
        self._numbers = numbers

    def __missing__(self, pair: tuple[int | str | None, int | str | None]) -> int:
        numbers = self._numbers
        self[pair] = number = numbers.setdefault((str(pair[0]), str(pair[1])), len(numbers))
        return number


class _Shapes(dict[bytes, int]):
    """The number of each text of shapes: dims, types, values and strides with a zero byte (which JSON never holds)
    between them."""

    def __init__(self, numbers: dict[Shape, int]) -> None:
        self._numbers = numbers

    def __missing__(self, text: bytes) -> int:
        numbers = self._numbers
        shape = Shape(*(part.decode("utf-8", "replace") for part in text.split(b"\0")))
        self[text] = number = numbers.setdefault(shape, len(numbers))
        return number
