"""The events of a Kineto trace as growing columns: whole pieces at a time where the text is plain, else one by one.

Of a scanned piece (`wellfed.ingest.scan`) every wanted number is read at once. An event that has anything unusual
about it (a time in exponent form, a stream that is an address, a key twice, an object where none belongs) is decoded
by itself and put back in its place, so that both ways give the same rows.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from wellfed.ingest.kineto_event import (
    CATEGORIES,
    NO_ARGS,
    NO_TIME,
    Args,
    Event,
    as_small_int,
    category,
    decode_list,
    decode_one,
    decode_text,
    digits_ns,
    length_ns,
    mend,
)
from wellfed.ingest.pieces import object_end
from wellfed.ingest.scan import I64, Keys, Mask, Scan, Text, integers, microseconds
from wellfed.model import TraceWarning
from wellfed.model.timeline import CommArgs, Shape

COLUMNS: dict[str, Any] = {
    "ts": np.int64,
    "dur": np.int64,
    "cat": np.uint8,
    "name": np.int32,
    "thread": np.int32,
    "corr": np.int64,
    "ext": np.int64,
    "stream": np.int64,
    "device": np.int32,
    "size": np.int64,
    "wait_corr": np.int64,
    "shape": np.int32,
    "comm": np.int32,
}
MEMORY = ("ts", "kind", "device", "address", "bytes", "allocated", "reserved")
"""Columns of the allocator's instants (`[memory]`)."""

START = re.compile(rb'(?:^|(?<=[,\[}]))\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args)"\s*:')
"""Where an event can begin in a text that is broken."""

_TOP = (b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"args")
_NUMBERS = {
    b"correlation": "corr",
    b"External id": "ext",
    b"external id": "ext",
    b"stream": "stream",
    b"device": "device",
    b"bytes": "size",
    b"wait_on_cuda_event_record_corr_id": "wait_corr",
}
_SHAPES = (b"Input Dims", b"Input dims", b"Input type", b"Concrete Inputs", b"Input Strides")
_COMMS = (b"Collective name", b"Process Group Name")
_MEMORY_KEYS = {
    b"Device Type": "kind",
    b"Device Id": "device",
    b"Addr": "address",
    b"Bytes": "bytes",
    b"Total Allocated": "allocated",
    b"Total Reserved": "reserved",
}
_NAMES = [*_TOP, *_NUMBERS, *_SHAPES, *_COMMS, *_MEMORY_KEYS]
_KEYS = Keys(_NAMES)
_DEPTH = np.array([1 if name in _TOP else 2 for name in _NAMES] + [0], np.int8)
INSTANT = "cpu_instant_event"
_ARROWS = (b"ac2g", b"fwdbwd", b"async_cpu_to_gpu", INSTANT.encode())
_CATS = [name.encode() for name in CATEGORIES]
_CATS = [
    *_CATS,
    *(n + b"_" + f for n in (b"xpu", b"mtia", b"privateuse1") for f in (b"runtime", b"driver")),
    *_ARROWS,
]
_MARKS = Keys(_CATS)
_CODES = np.array([category(name.decode()) for name in _CATS] + [-2], np.int16)
_X, _I = b"Xi"


_NONE = -(1 << 62)
_WORDS = 1 << 62
"""Process and thread where they are missing; where they are texts, numbers from here on."""
_ODD = np.int64(0x1E3779B97F4A7C15)


class Columns:
    """Growing columns, and what was lost or mended on the way."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self.memory: list[dict[str, I64]] = []
        self.names: dict[str, int] = {}
        self.threads: dict[tuple[str, str], int] = {}
        self.shapes: dict[Shape, int] = {}
        self.comms: dict[CommArgs, int] = {}
        self.seen_events = 0
        self.mended = 0
        self.lost_at: list[int] = []
        self.mended_at = -1
        self.warnings: list[TraceWarning] = []
        self._raw_names: dict[bytes, int] = {}
        self._raw_shapes: dict[bytes, int] = {}
        self._raw_words: dict[bytes, int] = {}
        self._words: list[str] = []
        self._pairs: dict[tuple[int, int], int] = {}
        self._pair_marks = self._pair_pid = self._pair_tid = np.full(1, _NONE - 1)
        self._pair_number = np.zeros(1, np.int32)

    def warn(self, code: str, sample: str, weakens: str, count: int = 1) -> None:
        self.warnings.append(TraceWarning(code=code, count=count, sample=sample[:300], weakens=weakens))

    # -- pieces whose structure is sound ------------------------------------------------------------------

    def add_scanned(self, text: Text, found: Scan, offset: int) -> None:
        """The objects of a scanned text, whose first byte is at `offset` of the file."""
        count = len(found.begin)
        self.seen_events += count
        if not count:
            return
        number = _KEYS.find(text, found.key, found.size)
        number[_DEPTH[number] != found.depth] = -1
        order = np.argsort(number, kind="stable")
        bounds = np.searchsorted(number[order], np.arange(len(_NAMES) + 1))
        rows = {name: order[bounds[i] : bounds[i + 1]] for i, name in enumerate(_NAMES)}
        odd = np.zeros(count, bool)
        same, of = number[order], found.of[order]
        odd[of[1:][(same[1:] == same[:-1]) & (of[1:] == of[:-1]) & (same[1:] >= 0)]] = True  # a key twice
        objects = rows[b"args"][text.byte[found.value[rows[b"args"]]] == 123]
        odd |= np.bincount(found.of[objects], minlength=count) != found.inner
        wanted, code, instant = self._wanted(text, found, rows, odd)
        self._memory_of(text, found, rows, instant)
        take = np.flatnonzero(wanted)
        if not len(take):
            return
        column = self._read_columns(text, found, rows, wanted, odd)
        column["cat"] = code
        strange = np.flatnonzero(odd & wanted)
        plain = take[~odd[take]]
        part = {k: column[k][plain].astype(kind, copy=False) for k, kind in COLUMNS.items()}
        if len(strange):
            where, events = self._one_by_one(text.raw, found.begin[strange], found.end[strange], offset)
            extra, rank = self._rows(events)
            at = np.concatenate([plain, strange[where[rank]]])
            back = np.argsort(at, kind="stable")
            part = {k: np.concatenate([part[k], extra[k]])[back] for k in COLUMNS}
        self.parts.append(part)

    def _wanted(
        self, text: Text, found: Scan, rows: dict[bytes, I64], odd: Mask
    ) -> tuple[Mask, npt.NDArray[np.int16], Mask]:
        """Which events make a row (strange ones among them: their own text says), their category, and which
        are instants of the allocator."""
        count = len(found.begin)
        code = np.full(count, -1, np.int16)
        kind = np.zeros(count, np.uint8)
        which = rows[b"ph"]
        value = found.value[which]
        short = found.letters[which] == 1
        kind[found.of[which]] = np.where(short, text.byte[value + 1], 0)
        which = rows[b"cat"]
        letters = found.letters[which]
        mark = _MARKS.find(text, found.value[which] + 1, np.maximum(letters, 0))
        codes = _CODES[mark]
        for i in np.flatnonzero((mark < 0) & (letters >= 0)).tolist():
            begin = int(found.value[which[i]]) + 1
            codes[i] = category(text.raw[begin : begin + int(letters[i])].decode("utf-8", "replace"))
        code[found.of[which]] = codes
        instant = np.zeros(count, bool)
        instant[found.of[which[mark == len(_CATS) - 1]]] = True
        return ((kind == _X) & (code >= 0)) | odd, code, instant & (kind == _I) & ~odd

    def _read_columns(
        self, text: Text, found: Scan, rows: dict[bytes, I64], wanted: Mask, odd: Mask
    ) -> dict[str, Any]:
        count = len(found.begin)
        column: dict[str, Any] = {
            "ts": np.full(count, NO_TIME),
            "dur": np.zeros(count, np.int64),
            **{k: np.full(count, -1, np.int64) for k in set(_NUMBERS.values())},
            "shape": np.full(count, -1, np.int32),
            "comm": np.full(count, -1, np.int32),
        }
        self._numbers(text, found, rows, wanted, odd, {b"ts": "ts", b"dur": "dur"}, column, microseconds)
        self._numbers(text, found, rows, wanted, odd, _NUMBERS, column, integers)
        column["device"] = np.minimum(column["device"], 2**31 - 1)
        column["name"] = self._names_of(text, found, rows[b"name"], wanted, odd)
        column["thread"] = self._threads_of(text, found, rows, wanted, odd)
        self._shapes_of(text, found, rows, wanted, odd, column["shape"])
        for of in np.unique(np.concatenate([found.of[rows[key]] for key in _COMMS])).tolist():
            event = decode_one(text.raw[found.begin[of] : found.end[of]])[0] if wanted[of] else None
            if event is not None and event.args is not None:
                column["comm"][of] = self.comm_of(event.args)
        return column

    def _numbers(
        self,
        text: Text,
        found: Scan,
        rows: dict[bytes, I64],
        wanted: Mask,
        odd: Mask,
        keys: dict[bytes, str],
        column: dict[str, I64],
        read: Callable[[Text, I64], tuple[I64, Mask]],
    ) -> None:
        """The values of several keys into their columns. Read in one go: a call costs as much as 1000 numbers."""
        which = np.concatenate([rows[key] for key in keys])
        of = found.of[which]
        some = wanted[of]
        ends = np.cumsum([0, *(len(rows[key]) for key in keys)])
        bounds = np.append(0, np.cumsum(some))[ends]
        of = of[some]
        value, good = read(text, found.value[which[some]])
        odd[of[~good]] = True
        for name, a, b in zip(keys.values(), bounds[:-1], bounds[1:], strict=True):
            column[name][of[a:b]] = value[a:b]

    def _names_of(
        self, text: Text, found: Scan, which: I64, wanted: Mask, odd: Mask
    ) -> npt.NDArray[np.int32]:
        name = np.full(len(wanted), -1, np.int32)
        which = which[wanted[found.of[which]]]
        begin = found.value[which] + 1
        end = begin + found.letters[which]
        raw, get, new = text.raw, self._raw_names.get, self._new_name
        code = [get(raw[a:b]) or new(raw[a:b]) for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
        codes = np.array(code, np.int32)
        odd[found.of[which[(codes < 0) | (end < begin)]]] = True
        name[found.of[which]] = codes - 1
        nameless = (name < 0) & wanted
        if nameless.any():
            name[nameless] = self.names.setdefault("", len(self.names))
        return name

    def _new_name(self, raw: bytes) -> int:
        """The number of a name plus one; -1 for one that is no strict JSON."""
        name = decode_text(raw)
        code = -1 if name is None else self.names.setdefault(name, len(self.names)) + 1
        self._raw_names[raw] = code
        return code

    def _threads_of(
        self, text: Text, found: Scan, rows: dict[bytes, I64], wanted: Mask, odd: Mask
    ) -> npt.NDArray[np.int32]:
        """Process and thread of each event: numbers as they are, texts as numbers beyond all of those."""
        code = {key.decode(): np.full(len(wanted), _NONE) for key in (b"pid", b"tid")}
        plain = {}
        for key in (b"pid", b"tid"):
            which = rows[key]
            named = found.letters[which] >= 0
            plain[key] = which[~named]
            which = which[named & wanted[found.of[which]]]
            if len(which):
                begin, size = (found.value[which] + 1).tolist(), found.letters[which].tolist()
                words = np.array([self._word(text.raw[a : a + n]) for a, n in zip(begin, size, strict=True)])
                code[key.decode()][found.of[which]] = words
                odd[found.of[which[words < 0]]] = True
        self._numbers(text, found, plain, wanted, odd, {b"pid": "pid", b"tid": "tid"}, code, integers)
        thread = np.full(len(wanted), -1, np.int32)
        take = np.flatnonzero(wanted)
        pid, tid = code["pid"][take], code["tid"][take]
        thread[take] = self._pair_numbers(pid, tid)
        return thread

    def _pair_numbers(self, pid: I64, tid: I64) -> npt.NDArray[np.int32]:
        """The number of each pair of process and thread: nearly all were seen before."""
        mark = pid * _ODD + tid
        place = np.minimum(np.searchsorted(self._pair_marks, mark), len(self._pair_marks) - 1)
        known = (self._pair_pid[place] == pid) & (self._pair_tid[place] == tid)
        number = self._pair_number[place]
        fresh = np.flatnonzero(~known)
        if len(fresh):
            pairs = zip(pid[fresh].tolist(), tid[fresh].tolist(), strict=True)
            number[fresh] = [n if (n := self._pairs.get(p)) is not None else self._new_pair(p) for p in pairs]
            keys = np.array(list(self._pairs), np.int64)
            marks = keys[:, 0] * _ODD + keys[:, 1]
            order = np.argsort(marks, kind="stable")
            self._pair_marks, self._pair_pid, self._pair_tid = marks[order], keys[order, 0], keys[order, 1]
            self._pair_number = np.array(list(self._pairs.values()), np.int32)[order]
        return number

    def _word(self, raw: bytes) -> int:
        code = self._raw_words.get(raw)
        if code is None:
            word = decode_text(raw)
            code = -1 if word is None else _WORDS + len(self._words)
            self._words.append(word or "")
            self._raw_words[raw] = code
        return code

    def _new_pair(self, pair: tuple[int, int]) -> int:
        told = ["None" if v == _NONE else self._words[v - _WORDS] if v >= _WORDS else str(v) for v in pair]
        code = self.threads.setdefault((told[0], told[1]), len(self.threads))
        self._pairs[pair] = code
        return code

    def _shapes_of(
        self,
        text: Text,
        found: Scan,
        rows: dict[bytes, I64],
        wanted: Mask,
        odd: Mask,
        shape: npt.NDArray[np.int32],
    ) -> None:
        """Equal stretches of text from the first to the last of an event's shape keys are read once."""
        dims = np.concatenate([rows[b"Input Dims"], rows[b"Input dims"]])
        dims = dims[wanted[found.of[dims]]]
        if not len(dims):
            return
        count = len(found.begin)
        first, last = np.full(count, len(found.key)), np.full(count, -1)
        for key in _SHAPES:
            of = found.of[rows[key]]
            first[of] = np.minimum(first[of], rows[key])
            last[of] = np.maximum(last[of], rows[key])
        of = found.of[dims]
        begin = found.key[first[of]]
        following = np.minimum(last[of] + 1, len(found.key) - 1)
        same = (found.of[following] == of) & (following > last[of])
        end = np.where(same, found.key[following] - 1, found.end[of])
        get, raw = self._raw_shapes.get, text.raw
        for i, a, b in zip(of.tolist(), begin.tolist(), end.tolist(), strict=True):
            known = get(raw[a:b])
            if known is None:
                event, _ = decode_one(raw[found.begin[i] : found.end[i]])
                if event is None or event.args is None:
                    odd[i] = True
                    continue
                known = self._raw_shapes[raw[a:b]] = self._shape(event.args)
            shape[i] = known

    def _memory_of(self, text: Text, found: Scan, rows: dict[bytes, I64], instant: Mask) -> None:
        at = np.flatnonzero(instant)
        if not len(at):
            return
        column = {name: np.full(len(instant), -1, np.int64) for name in MEMORY}
        which = rows[b"ts"][instant[found.of[rows[b"ts"]]]]
        value, good = microseconds(text, found.value[which])
        column["ts"][found.of[which]] = np.where(good, value, -1)
        for key, name in _MEMORY_KEYS.items():
            which = rows[key][instant[found.of[rows[key]]]]
            value, good = integers(text, found.value[which])
            column[name][found.of[which]] = np.where(good, value, -1)
        at = at[(column["ts"][at] >= 0) & (column["kind"][at] >= 0)]
        self.memory.append({k: v[at] for k, v in column.items()})

    # -- pieces that are broken, or written in a way that the scan does not know ----------------------------

    def add_broken(self, piece: bytes, offset: int, *, last: bool = False) -> int | None:
        """The events of a text, one by one if need be. With `last` the file ends here: the offset of an event
        that is cut is returned (it is not mended: its last number may be cut as well)."""
        events = decode_list(piece)
        if events is None:
            starts = [m.end() - len(m.group().lstrip()) for m in START.finditer(piece)] or [0]
            if piece[: starts[0]].strip(b", \t\r\n"):
                starts.insert(0, 0)
            cut = None
            if last:
                cut = starts[-1] if object_end(piece, starts[-1], len(piece) + 1) > len(piece) else None
                starts = starts if cut is None else starts[:-1]
            begin = np.array(starts, np.int64)
            end = np.append(begin[1:], len(piece) if cut is None else cut)[: len(begin)]
            _, events = self._one_by_one(piece, begin, end, offset)
            if cut is not None:
                self._keep(events)
                return offset + cut
        self._keep(events)
        return None

    def _keep(self, events: list[Event]) -> None:
        self.seen_events += len(events)
        part, _ = self._rows(events)
        if len(part["ts"]):
            self.parts.append(part)

    def _one_by_one(self, piece: bytes, begin: I64, end: I64, offset: int) -> tuple[I64, list[Event]]:
        """What can be read of the texts between offsets, and which those are. A text that holds the beginnings of
        more events (the first lacks a brace) is taken apart."""
        events: list[Event] = []
        where: list[int] = []
        for i, (a, b) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
            event, length = decode_one(piece[a:b])
            if event is not None:
                events.append(event)
                where.append(i)
                rest = piece[a + length : b]
                if b"{" in rest:  # what follows begins as no event does
                    self.lost_at += [offset + a + length] * max(1, rest.count(b'"ts"'))
                continue
            cuts = [a, *(m.end() - len(m.group().lstrip()) for m in START.finditer(piece, a + 1, b)), b]
            for c, d in pairwise(cuts):
                event = decode_one(piece[c:d])[0] if len(cuts) > 2 else None
                if event is None:
                    event = mend(piece[c:d])
                    if event is None:
                        self.lost_at.append(offset + c)
                        continue
                    self.mended_at = min(self.mended_at, offset + c) if self.mended else offset + c
                    self.mended += 1
                events.append(event)
                where.append(i)
        return np.array(where, np.int64), events

    def _rows(self, events: list[Event]) -> tuple[dict[str, Any], I64]:
        """The columns of those that make a row, and which do."""
        rank = [i for i, e in enumerate(events) if e.ph == "X" and category(e.cat) >= 0]
        kept = [events[i] for i in rank]
        args = [e.args or NO_ARGS for e in kept]
        names, threads = self.names, self.threads
        told: dict[str, list[int]] = {
            "ts": [digits_ns(e.ts) for e in kept],
            "dur": [length_ns(e.dur) for e in kept],
            "cat": [category(e.cat) for e in kept],
            "name": [names.setdefault(str(e.name), len(names)) for e in kept],
            "thread": [threads.setdefault((str(e.pid), str(e.tid)), len(threads)) for e in kept],
            "corr": [as_small_int(a.correlation) for a in args],
            "ext": [as_small_int(a.ext if a.ext is not None else a.ext_old) for a in args],
            "stream": [as_small_int(a.stream) for a in args],
            "device": [min(as_small_int(a.device), 2**31 - 1) for a in args],
            "size": [as_small_int(a.size) for a in args],
            "wait_corr": [as_small_int(a.wait_on_cuda_event_record_corr_id) for a in args],
            "shape": [self._shape(a) for a in args],
            "comm": [self.comm_of(a) for a in args],
        }
        return {k: np.array(told[k], kind) for k, kind in COLUMNS.items()}, np.array(rank, np.int64)

    def _shape(self, args: Args) -> int:
        dims = bytes(args.dims) or bytes(args.dims_old)
        if not dims:
            return -1
        shape = Shape(
            *(bytes(v).decode("utf-8", "replace") for v in (dims, args.types, args.concrete, args.strides))
        )
        return self.shapes.setdefault(shape, len(self.shapes))

    def comm_of(self, args: Args) -> int:
        """The number of what an event says of its collective; -1 where it says nothing."""
        if args.coll is None and args.group_name is None:
            return -1
        comm = CommArgs(
            name=_told(args.coll),
            group_name=_told(args.group_name),
            group_ranks=_told(args.group_ranks),
            group_size=as_small_int(args.group_size),
            seq=as_small_int(args.comm_seq),
            in_elements=as_small_int(args.coll_in),
            out_elements=as_small_int(args.coll_out),
            dtype=_told(args.comm_type),
            source=as_small_int(args.source),
            target=as_small_int(args.target),
        )
        return self.comms.setdefault(comm, len(self.comms))


def _told(value: Any) -> str:
    return "" if value is None else str(value)
