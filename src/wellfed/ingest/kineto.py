"""PyTorch profiler traces (Kineto JSON, Chrome trace format) into a Timeline.

Speed: the text is cut into pieces at event starts (Kineto writes `"ph"` first) and each piece is decoded by
one typed msgspec call that skips every argument nobody asks for. Safety: a piece that does not decode is
taken apart event by event, each is mended if it can be, and what cannot is counted with its byte offset.
Times come from the decimal text exactly: 1 us of text is 1000 ns, also where a double cannot hold it.
"""

import gc
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from wellfed.ingest.source import Source
from wellfed.model import TraceWarning, WellfedError
from wellfed.model.timeline import Cat, CommArgs, Shape, Timeline

Loose = int | float | str | None

CATEGORIES: dict[str, Cat] = {
    "cpu_op": Cat.OP,
    "Operator": Cat.OP,
    "user_annotation": Cat.ANNOTATION,
    "cuda_runtime": Cat.RUNTIME,
    "Runtime": Cat.RUNTIME,
    "xpu_runtime": Cat.RUNTIME,
    "mtia_runtime": Cat.RUNTIME,
    "privateuse1_runtime": Cat.RUNTIME,
    "cuda_driver": Cat.DRIVER,
    "xpu_driver": Cat.DRIVER,
    "privateuse1_driver": Cat.DRIVER,
    "python_function": Cat.PYTHON,
    "overhead": Cat.OVERHEAD,
    "kernel": Cat.KERNEL,
    "Kernel": Cat.KERNEL,
    "gpu_memcpy": Cat.MEMCPY,
    "Memcpy": Cat.MEMCPY,
    "gpu_memset": Cat.MEMSET,
    "Memset": Cat.MEMSET,
    "gpu_user_annotation": Cat.GPU_ANNOTATION,
    "cuda_sync": Cat.SYNC,
    "xpu_sync": Cat.SYNC,
}

_EXACT_LIMIT_US = 2.0**43
"""Below 2^43 us a double still tells ns apart (its half step is 0.49 ns); above, the digits are read."""
_START = re.compile(rb'\{\s*"ph"\s*:')
_START_ANY = re.compile(rb'(?:^|(?<=[,\[]))\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args)"\s*:')
_MORE = re.compile(rb"\s*,\s*\{")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_CARRY_LIMIT = 64 << 20


_ARG_NAMES = {
    "ext": "External id",
    "ext_old": "external id",
    "size": "bytes",
    "dims": "Input Dims",
    "dims_old": "Input dims",
    "types": "Input type",
    "concrete": "Concrete Inputs",
    "strides": "Input Strides",
    "coll": "Collective name",
    "coll_in": "In msg nelems",
    "coll_out": "Out msg nelems",
    "group_size": "Group size",
    "group_name": "Process Group Name",
    "group_ranks": "Process Group Ranks",
    "comm_seq": "Seq",
    "comm_type": "dtype",
    "source": "Src Rank",
    "target": "Dst Rank",
}


class Args(msgspec.Struct, gc=False, rename=_ARG_NAMES):
    """The arguments that the columns hold. Unknown ones are skipped by the decoder for free."""

    correlation: Loose = None
    ext: Loose = None
    ext_old: Loose = None
    stream: Loose = None
    device: Loose = None
    size: Loose = None
    wait_on_cuda_event_record_corr_id: Loose = None
    dims: msgspec.Raw = msgspec.Raw(b"")
    dims_old: msgspec.Raw = msgspec.Raw(b"")
    types: msgspec.Raw = msgspec.Raw(b"")
    concrete: msgspec.Raw = msgspec.Raw(b"")
    strides: msgspec.Raw = msgspec.Raw(b"")
    coll: Any = None
    coll_in: Loose = None
    coll_out: Loose = None
    group_size: Loose = None
    group_name: Loose = None
    group_ranks: Any = None
    comm_seq: Loose = None
    comm_type: Any = None
    source: Loose = None
    target: Loose = None


class Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: Any = ""
    pid: Loose = None
    tid: Loose = None
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    args: Args | None = None


class ExactEvent(msgspec.Struct, gc=False):
    """The same with the digits of the times kept, for absolute times with decimals."""

    ph: str = ""
    cat: str = ""
    name: Any = ""
    pid: Loose = None
    tid: Loose = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: Args | None = None


_DECODE = msgspec.json.Decoder(list[Event])
_DECODE_EXACT = msgspec.json.Decoder(list[ExactEvent])
_DECODE_ONE = msgspec.json.Decoder(Event)
_DECODE_ONE_EXACT = msgspec.json.Decoder(ExactEvent)


def matches(head: bytes, name: str) -> bool:
    """Whether a file with this beginning can be a Kineto or Chrome trace."""
    head = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return head[:1] in (b"{", b"[")


def read(path: Path) -> Timeline:
    """The timeline of one trace file. Raises WellfedError when nothing in it can be read."""
    source = Source(path)
    was_on = gc.isenabled()
    gc.disable()  # decoding makes millions of objects and no cycles: the collector would double the time
    try:
        return _read(source)
    finally:
        if was_on:
            gc.enable()


def _read(source: Source) -> Timeline:
    columns = _Columns()
    splitter = _Splitter()
    for piece, offset in splitter.pieces(source.windows()):
        columns.add_piece(piece, offset)
    if splitter.generic is not None:
        columns.add_generic(splitter.generic, splitter)
    if splitter.saw_bytes == 0:
        raise WellfedError(f"{source.path.name} is empty", hint="record the trace again")
    if source.damage:
        columns.warn("truncated-archive", source.damage, "everything after the damage")
    if splitter.cut_offset is not None:
        columns.warn(
            "truncated-file", f"the last event, at byte {splitter.cut_offset}, is cut", "the end of the trace"
        )
        columns.lost += 1
    if not columns.seen_events and not splitter.found_array:
        raise WellfedError(
            f"{source.path.name} is not a profiler trace: no `traceEvents` in it",
            hint="export it with torch.profiler's export_chrome_trace",
        )
    meta = _metadata(splitter.header, splitter.tail)
    return columns.timeline(source.path, meta)


class _Splitter:
    """Cuts the byte stream into pieces of whole events. `header` and `tail` are the text around the array."""

    def __init__(self) -> None:
        self.header = b""
        self.tail = b""
        self.saw_bytes = 0
        self.found_array = False
        self.cut_offset: int | None = None
        self.generic: bytes | None = None
        """The whole text, when events do not start with `"ph"`."""

    def pieces(self, windows: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
        carry = b""
        offset = 0
        stream = iter(windows)
        for window in stream:
            self.saw_bytes += len(window)
            carry += window
            if not self.found_array:
                start = self._array_start(carry)
                if start is None:
                    if len(carry) > _CARRY_LIMIT:
                        return
                    continue
                self.found_array = True
                self.header, carry, offset = carry[:start], carry[start:], start
            cut = _last_start(carry)
            if cut is None:
                first = carry.lstrip()[:1]
                if (len(carry) > (1 << 20) or first not in (b"", b"{")) and first != b"]":
                    self.generic = carry + b"".join(stream)
                    self.saw_bytes += len(self.generic) - len(carry)
                    return
                continue
            if cut:
                yield carry[:cut], offset
                offset += cut
                carry = carry[cut:]
            if len(carry) > _CARRY_LIMIT:
                self.cut_offset = offset
                return
        if self.found_array:
            yield from self._last(carry, offset)

    def _array_start(self, text: bytes) -> int | None:
        found = _ARRAY.search(text)
        if found:
            return found.end()
        stripped = text.lstrip(b"\xef\xbb\xbf \t\r\n")
        if stripped[:1] == b"[":
            return len(text) - len(stripped) + 1
        return None

    def _last(self, carry: bytes, offset: int) -> Iterator[tuple[bytes, int]]:
        """The end of the array: the last event is found by its braces, the rest is the tail."""
        cut = _last_start(carry)
        if cut is None:
            if carry.lstrip()[:1] == b"{":
                self.generic = carry
            else:
                self.tail = carry.lstrip().removeprefix(b"]")
            return
        end = _object_end(carry, cut)
        if end is None:
            self.cut_offset = offset + cut
            if cut:
                yield carry[:cut], offset
            return
        while (more := _MORE.match(carry, end)) is not None:  # events of another key order at the end
            next_end = _object_end(carry, more.end() - 1)
            if next_end is None:
                self.cut_offset = offset + more.end() - 1
                break
            end = next_end
        self.tail = carry[end:].lstrip().removeprefix(b",").lstrip().removeprefix(b"]")
        yield carry[:end], offset


def _last_start(text: bytes) -> int | None:
    """Offset of the last `{ "ph":` in the text that stands where an event can start."""
    at = len(text)
    while True:
        at = text.rfind(b'"ph"', 0, at)
        if at < 0:
            return None
        brace = len(text[max(0, at - 64) : at].rstrip()) + max(0, at - 64) - 1
        if brace >= 0 and text[brace : brace + 1] == b"{" and _START.match(text, brace):
            return brace


def _object_end(text: bytes, start: int) -> int | None:
    """Offset just past the object that starts at `start`, minding strings; None when it is not closed."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        mark = token.group()
        if mark == b"{":
            depth += 1
        elif mark == b"}":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


class _Columns:
    """Growing columns, and what was lost or mended on the way."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self.names: dict[str, int] = {}
        self.threads: dict[tuple[str, str], int] = {}
        self.shapes: dict[Shape, int] = {}
        self.comms: dict[CommArgs, int] = {}
        self.seen_events = 0
        self.lost = 0
        self.mended = 0
        self.lost_at: list[int] = []
        self.warnings: list[TraceWarning] = []
        self.bad_times = 0

    def warn(self, code: str, sample: str, weakens: str, count: int = 1) -> None:
        self.warnings.append(TraceWarning(code=code, count=count, sample=sample[:300], weakens=weakens))

    def add_piece(self, piece: bytes, offset: int) -> None:
        body = piece.strip().rstrip(b",")
        if not body:
            return
        text = b"[" + body + b"]"
        try:
            events: list[Any] = _DECODE.decode(text)
            if _needs_digits(events):
                events = _DECODE_EXACT.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            events = self._one_by_one(piece, offset)
        self._append(events)

    def _one_by_one(self, piece: bytes, offset: int) -> list[Any]:
        starts = [m.end() - len(m.group().lstrip()) for m in _START_ANY.finditer(piece)] or [0]
        events: list[Any] = []
        for begin, end in zip(starts, [*starts[1:], len(piece)], strict=True):
            event = _decode_one(piece[begin:end])
            if event is None:
                event = _mend(piece[begin:end])
                if event is None:
                    self.lost += 1
                    self.lost_at.append(offset + begin)
                    continue
                self.mended += 1
            events.append(event)
        if _needs_digits(events):
            exact = [
                _decode_one(piece[b:e], exact=True)
                for b, e in zip(starts, [*starts[1:], len(piece)], strict=True)
            ]
            events = [e for e in exact if e is not None] + [e for e in events if isinstance(e.ts, str)]
        return events

    def add_generic(self, text: bytes, splitter: "_Splitter") -> None:
        """Files whose events do not begin with `"ph"`: object by object."""
        depth_zero: list[bytes] = []
        at = 0
        while True:
            start = text.find(b"{", at)
            stop = text.find(b"]", at)
            if start < 0 or (0 <= stop < start):
                splitter.tail = text[stop + 1 :] if stop >= 0 else b""
                break
            end = _object_end(text, start)
            if end is None:
                splitter.cut_offset = start
                break
            depth_zero.append(text[start:end])
            at = end
            if len(depth_zero) >= 20000:
                self.add_piece(b",".join(depth_zero), start)
                depth_zero = []
        self.add_piece(b",".join(depth_zero), 0)

    def _append(self, events: list[Any]) -> None:
        self.seen_events += len(events)
        kept = [e for e in events if e.ph == "X" and e.cat in CATEGORIES]
        if not kept:
            return
        ts, dur = _times_ns([e.ts for e in kept]), _times_ns([e.dur for e in kept], default=0)
        names, threads = self.names, self.threads
        args = [e.args or _NO_ARGS for e in kept]
        self.parts.append(
            {
                "ts": ts,
                "dur": dur,
                "cat": np.array([CATEGORIES[e.cat] for e in kept], dtype=np.uint8),
                "name": np.array(
                    [names.setdefault(n if type(n := e.name) is str else str(n), len(names)) for e in kept],
                    dtype=np.int32,
                ),
                "thread": np.array(
                    [threads.setdefault((str(e.pid), str(e.tid)), len(threads)) for e in kept], dtype=np.int32
                ),
                "corr": _ints([a.correlation for a in args]),
                "ext": _ints([a.ext if a.ext is not None else a.ext_old for a in args]),
                "stream": _ints([a.stream for a in args]),
                "device": _ints([a.device for a in args]),
                "size": _ints([a.size for a in args]),
                "wait_corr": _ints([a.wait_on_cuda_event_record_corr_id for a in args]),
                "shape": _ints([self._shape(a) for a in args]),
                "comm": _ints([self._comm(a) for a in args]),
            }
        )

    def _shape(self, args: Args) -> int:
        dims = bytes(args.dims) or bytes(args.dims_old)
        if not dims:
            return -1
        shape = Shape(_text(dims), _text(args.types), _text(args.concrete), _text(args.strides))
        return self.shapes.setdefault(shape, len(self.shapes))

    def _comm(self, args: Args) -> int:
        if args.coll is None and args.group_name is None:
            return -1
        comm = CommArgs(
            name=_word(args.coll),
            group_name=_word(args.group_name),
            group_ranks=_word(args.group_ranks),
            group_size=_as_small_int(args.group_size),
            seq=_as_small_int(args.comm_seq),
            in_elements=_as_small_int(args.coll_in),
            out_elements=_as_small_int(args.coll_out),
            dtype=_word(args.comm_type),
            source=_as_small_int(args.source),
            target=_as_small_int(args.target),
        )
        return self.comms.setdefault(comm, len(self.comms))

    def timeline(self, path: Path, meta: dict[str, Any]) -> Timeline:
        keys = (
            *("ts", "dur", "cat", "name", "thread", "corr", "ext", "stream", "device", "size", "wait_corr"),
            *("shape", "comm"),
        )
        column: dict[str, Any] = {
            k: np.concatenate([p[k] for p in self.parts]) if self.parts else np.zeros(0, np.int64)
            for k in keys
        }
        column, base = self._clean(column)
        if self.mended:
            self.warn("mended-events", f"{self.mended} events had broken text", "their names", self.mended)
        if self.lost:
            at = f"first at byte {self.lost_at[0]}" if self.lost_at else "at the end"
            self.warn(
                "lost-events",
                f"{self.lost} events could not be read, {at}",
                "all sums over events",
                self.lost,
            )
        threads = tuple(self.threads)
        on_gpu = (column["cat"] >= Cat.KERNEL) & (column["cat"] <= Cat.MEMSET)
        device = np.where(on_gpu, _fill_device(column, threads), -1).astype(np.int16)
        stream = np.where(on_gpu, _fill_stream(column, threads), -1).astype(np.int32)
        distributed = meta.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        return Timeline(
            source=path.name,
            kind="kineto",
            rank=_rank(distributed, path.name),
            world=_as_int(distributed.get("world_size")),
            base_ns=base,
            ts=column["ts"],
            dur=column["dur"],
            cat=column["cat"].astype(np.uint8),
            name=column["name"].astype(np.int32),
            thread=column["thread"].astype(np.int32),
            corr=column["corr"],
            ext=column["ext"],
            stream=stream,
            device=device,
            size=column["size"],
            wait_corr=column["wait_corr"],
            shape=column["shape"].astype(np.int32),
            comm=column["comm"].astype(np.int32),
            names=tuple(self.names),
            threads=threads,
            shapes=tuple(self.shapes),
            comms=tuple(self.comms),
            gpus=_gpu_names(meta, device),
            options=_options(meta),
            warnings=tuple(self.warnings),
        )

    def _clean(self, column: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Drop events whose times cannot be, close unfinished host events, sort, and make times relative."""
        ts, dur = column["ts"], column["dur"]
        if not len(ts):
            return column, 0
        on_gpu = (column["cat"] >= Cat.KERNEL) & (column["cat"] <= Cat.MEMSET)
        timed = ts != _NO_TIME
        if np.any(timed & (ts > 0)):
            middle = int(np.median(ts[timed & (ts > 0)]))
            far = timed & (np.abs(ts - middle) > 24 * 3600 * 10**9)
        else:
            far = np.zeros(len(ts), bool)
        negative = timed & (dur < 0)
        giant = timed & (dur > 24 * 3600 * 10**9)
        for mask, code, text in (
            (~timed, "no-time", "events without a readable start"),
            (far, "clock-trouble", "events more than a day from the rest (a zero or broken clock)"),
            ((negative | giant) & on_gpu & ~far, "bad-duration", "GPU events of negative or giant duration"),
        ):
            if mask.any():
                self.warn(code, f"{int(mask.sum())} {text}, dropped", "busy and idle time", int(mask.sum()))
        keep = timed & ~far & ~((negative | giant) & on_gpu)
        unfinished = keep & (negative | giant)
        column = {k: v[keep] for k, v in column.items()}
        ts, dur = column["ts"], column["dur"]
        if not len(ts):
            return column, 0
        unfinished = unfinished[keep]
        if unfinished.any():
            whole = ~unfinished
            last = int((ts + dur)[whole].max()) if whole.any() else int(ts.max())
            column["dur"] = np.where(unfinished, np.maximum(last - ts, 0), dur)
            self.warn(
                "unfinished-events",
                f"{int(unfinished.sum())} host events never ended",
                "host causes",
                int(unfinished.sum()),
            )
        order = np.lexsort((-column["dur"], ts))
        column = {k: v[order] for k, v in column.items()}
        base = int(column["ts"][0])
        column["ts"] = column["ts"] - base
        return column, base


_NO_ARGS = Args()
_NO_TIME = np.iinfo(np.int64).min


def _needs_digits(events: list[Any]) -> bool:
    """Whether some start is so large that a double has lost its ns (absolute microseconds with decimals)."""
    for event in events:
        ts = event.ts
        if isinstance(ts, float):
            return abs(ts) >= _EXACT_LIMIT_US
        if isinstance(ts, int):
            continue
    return False


def _decode_one(text: bytes, *, exact: bool = False) -> Any:
    decode = _DECODE_ONE_EXACT.decode if exact else _DECODE_ONE.decode
    body = text.strip().rstrip(b",").rstrip()
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    end = _object_end(body, 0)  # the last event of a list may drag the list's end along
    if end is None or end == len(body):
        return None
    try:
        return decode(body[:end])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


_FIELD = {
    key: re.compile(rb'"' + key.encode() + rb'"\s*:\s*("?)([^",}\n]*)\1')
    for key in ("ph", "cat", "pid", "tid", "ts", "dur", "correlation", "stream", "device", "bytes")
}
_NAME = re.compile(rb'"name"\s*:\s*"(.*?)"\s*,\s*"(?:pid|tid|ts|cat|ph|dur|args|s|id)"\s*:', re.DOTALL)


def _mend(text: bytes) -> Event | None:
    """An event whose text is not JSON (bare quotes, control characters, bad UTF-8, NaN): its fields are
    picked out one by one. None when it has no readable start, so that nothing is made up."""
    found = {
        key: m.group(2).decode("utf-8", "replace").strip()
        for key, r in _FIELD.items()
        if (m := r.search(text))
    }
    if found.get("ph") != "X":
        return Event(ph=found["ph"]) if found.get("ph") else None
    if not _NUMBER.fullmatch(found.get("ts", "")) or not _NUMBER.fullmatch(found.get("dur", "0")):
        return None
    name = _NAME.search(text)
    label = name.group(1).decode("utf-8", "replace") if name else "unreadable"
    label = "".join(c if c.isprintable() else "?" for c in label)
    return Event(
        ph="X",
        cat=found.get("cat", ""),
        name=label,
        pid=found.get("pid"),
        tid=found.get("tid"),
        ts=found["ts"],
        dur=found.get("dur"),
        args=Args(
            correlation=found.get("correlation"),
            stream=found.get("stream"),
            device=found.get("device"),
            size=found.get("bytes"),
        ),
    )


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def _times_ns(values: list[Any], default: int | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Microseconds as the file wrote them (int, float, text or raw digits) as exact integer ns. Missing or
    unreadable ones become `default`, or the mark `_NO_TIME`."""
    missing = _NO_TIME if default is None else default
    if any(isinstance(v, msgspec.Raw) for v in values):
        return np.array([_digits_ns(v, missing) for v in values], dtype=np.int64)
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_digits_ns(v, missing) for v in values], dtype=np.int64)
    if not np.isfinite(array).all() or np.abs(array).max(initial=0.0) > 9.0e15:
        return np.array([_digits_ns(v, missing) for v in values], dtype=np.int64)
    whole = np.floor(array)
    return whole.astype(np.int64) * 1000 + np.rint((array - whole) * 1000.0).astype(np.int64)


def _digits_ns(value: Any, missing: int) -> int:
    text = bytes(value).decode() if isinstance(value, msgspec.Raw) else str(value)
    text = text.strip().strip('"')
    if not _NUMBER.fullmatch(text):
        return missing
    if "e" in text or "E" in text:
        number = float(text) * 1000.0
        return round(number) if abs(number) < 9.2e18 else missing
    whole, _, fraction = text.partition(".")
    sign = -1 if whole.startswith("-") else 1
    ns = abs(int(whole)) * 1000 + round(int((fraction + "000000")[:6]) / 1000)
    return sign * ns if ns < 9_200_000_000_000_000_000 else missing


def _ints(values: list[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Integers of any spelling; -1 where absent or not one, and where 64 bits cannot hold it."""
    try:
        return np.array([-1 if v is None else v for v in values], dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_as_small_int(v) for v in values], dtype=np.int64)


def _text(raw: bytes | msgspec.Raw) -> str:
    return bytes(raw).decode("utf-8", "replace")


def _word(value: Any) -> str:
    return "" if value is None else str(value)


def _as_small_int(value: Any) -> int:
    number = _as_int(value)
    return number if number is not None and -(2**63) <= number < 2**63 else -1


def _as_int(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if abs(value) < 2**63 else None
    text = str(value).strip()
    if text.lstrip("-").isdigit() and len(text) < 20:
        return int(text)
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,15}", text) else None


def _fill_device(column: dict[str, Any], threads: tuple[tuple[str, str], ...]) -> Any:
    """The device of a GPU row: its argument, else its process number (Kineto's convention), else 0."""
    from_pid = np.array(
        [max(_as_small_int(pid), 0) if _as_small_int(pid) < 256 else 0 for pid, _ in threads] or [0]
    )
    found = np.where(column["device"] >= 0, column["device"], from_pid[column["thread"]])
    return np.where(found < 2**15, found, 0)


def _fill_stream(column: dict[str, Any], threads: tuple[tuple[str, str], ...]) -> Any:
    """The stream of a GPU row: its argument, else the number in its thread name (`stream 7`), else 0. Large
    handles are renumbered densely above the small ones."""
    from_tid = np.array([_stream_of(tid) for _, tid in threads] or [0])
    found = np.where(column["stream"] >= 0, column["stream"], from_tid[column["thread"]])
    large = np.unique(found[found >= 2**31 - 1])
    if len(large):
        position = np.searchsorted(large, found)
        found = np.where(found >= 2**31 - 1, 1_000_000 + position, found)
    return found


def _stream_of(tid: str) -> int:
    digits = re.search(r"\d+", tid)
    return int(digits.group()) if digits and len(digits.group()) < 18 else 0


def _rank(distributed: dict[str, Any], filename: str) -> int | None:
    rank = _as_int(distributed.get("rank"))
    if rank is not None:
        return rank
    named = re.search(r"rank[-_.]?(\d{1,6})(?!\d)", filename, re.IGNORECASE)
    return int(named.group(1)) if named else None


def _metadata(header: bytes, tail: bytes) -> dict[str, Any]:
    """The keys around the event array. A damaged part is left out rather than guessed."""
    merged: dict[str, Any] = {}
    before = header.rstrip()
    before = _ARRAY.sub(b'"traceEvents": null', before) if _ARRAY.search(header) else b""
    for text in (
        before + b"}" if before else b"",
        b"{" + tail.strip().lstrip(b",").rstrip(b" \r\n\t") if tail.strip() else b"",
    ):
        for attempt in (
            text,
            text + b"}",
            re.sub(rb",\s*}\s*$", b"}", text),
            re.sub(rb"[\x00-\x1f]", b" ", text),
        ):
            try:
                decoded = msgspec.json.decode(attempt)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if isinstance(decoded, dict):
                merged.update(decoded)
            break
    return merged


def _gpu_names(meta: dict[str, Any], device: Any) -> dict[int, str]:
    """Name of each device that did work, from `deviceProperties`; "" when the file does not say."""
    rows = meta.get("deviceProperties")
    rows = [r for r in rows if isinstance(r, dict)] if isinstance(rows, list) else []
    by_id = {_as_int(r.get("id", i)): str(r.get("name") or "") for i, r in enumerate(rows)}
    used = [int(d) for d in np.unique(device) if d >= 0]
    if len(rows) == 1 and len(used) == 1:  # one device listed, one used: numbering may be of the whole box
        return {used[0]: str(rows[0].get("name") or "")}
    return {d: by_id.get(d, "") for d in used}


def _options(meta: dict[str, Any]) -> dict[str, Any]:
    """What the writer said of itself: profiler switches and versions, plain values only."""
    wanted = (
        "schemaVersion",
        "record_shapes",
        "with_stack",
        "profile_memory",
        "with_flops",
        "with_modules",
        "cuda_runtime_version",
        "cuda_driver_version",
        "cupti_version",
        "hip_runtime_version",
        "hip_driver_version",
        "roctracer_version",
        "baseTimeNanoseconds",
        "displayTimeUnit",
    )
    return {k: meta[k] for k in wanted if isinstance(meta.get(k), int | float | str)}
