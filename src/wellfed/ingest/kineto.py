"""PyTorch profiler traces (Kineto JSON, Chrome trace format) into a Timeline.

Speed: the structure of the text is found with array operations and its numbers are read many at a time
(`wellfed.ingest.scan`), so that no Python object is made for an event. Safety: what does not look like strict JSON
is taken apart event by event, each is mended if it can be, and what cannot is counted with its byte offset. The
order of the keys and white space do not matter, and memory holds the columns and a few windows of text.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from wellfed.ingest.kineto_columns import COLUMNS, START, Columns
from wellfed.ingest.kineto_event import NO_TIME, as_int, as_small_int
from wellfed.ingest.kineto_plain import PlainReader
from wellfed.ingest.pieces import BROKEN
from wellfed.ingest.rows import MAX_DEVICE, rank_in, without_gc
from wellfed.ingest.scan import scan, text_of
from wellfed.ingest.source import Source
from wellfed.model import WellfedError
from wellfed.model.counting import counted
from wellfed.model.timeline import Cat, MemoryEvents, Timeline

PIECE_BYTES = 1 << 20
"""Text scanned at a time: its arrays stay in the processor's cache."""
STUCK_BYTES = 256 << 10
"""An event longer than this is looked into: it may be many, the first of which does not close."""
DAY_NS = 24 * 3600 * 10**9
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_CARRY_LIMIT = 64 << 20


def matches(head: bytes, name: str) -> bool:
    """Whether a file with this beginning can be a Kineto or Chrome trace."""
    head = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return head[:1] in (b"{", b"[")


def read(path: Path) -> Timeline:
    """The timeline of one trace file. Raises WellfedError when nothing in it can be read."""
    source = Source(path)
    with without_gc():
        return _read(source)


def _read(source: Source) -> Timeline:
    columns, text = Columns(), _Around()
    text.read(_pieces(source), columns)
    if text.saw_bytes == 0:
        raise WellfedError(f"{source.path.name} is empty", hint="record the trace again")
    if source.damage:
        columns.warn("truncated-archive", source.damage, "everything after the damage")
    if text.cut_at is not None:
        columns.warn(
            "truncated-file", f"the last event, at byte {text.cut_at}, is cut", "the end of the trace"
        )
        columns.lost_at.append(text.cut_at)
    elif text.found_array and not text.closed and not source.damage:
        columns.warn(
            "truncated-file",
            f"the list of events does not end: the file is cut at byte {text.saw_bytes}",
            "the end of the trace",
        )
    if not columns.seen_events and not text.found_array:
        raise WellfedError(
            f"{source.path.name} is not a profiler trace: no `traceEvents` in it",
            hint="export it with torch.profiler's export_chrome_trace",
        )
    tail = text.tail.lstrip(b", \t\r\n").removeprefix(b"]")
    behind = (
        len(START.findall(tail)) if b'"ph"' in tail and not _is_object(b"{" + tail.lstrip(b", \t\r\n")) else 0
    )
    if behind:
        at = text.saw_bytes - len(tail)
        columns.warn(
            "text-after-events",
            f"the list of events ends at byte {at}, but {behind} more seem to follow; they are not read",
            "everything after that",
            behind,
        )
    return _timeline(columns, source.path, _metadata(text.header, tail))


def _pieces(source: Source) -> Iterator[memoryview]:
    for window in source.windows():
        view = memoryview(window)
        for at in range(0, len(window), PIECE_BYTES):
            yield view[at : at + PIECE_BYTES]


class _Around:
    """What stands around the events: `header` and `tail`. `cut_at` is the offset of an event that the file's end
    cuts, None where it ends well."""

    def __init__(self) -> None:
        self.header = b""
        self.tail = b""
        self.saw_bytes = 0
        self.found_array = False
        self.cut_at: int | None = None
        self.closed = False

    def read(self, pieces: Iterator[memoryview], columns: Columns) -> None:
        """All events of the text into the columns."""
        carry, offset, enough, plain = b"", 0, 0, PlainReader(columns)
        for piece in pieces:
            self.saw_bytes += len(piece)
            if len(carry) + len(piece) < enough:
                carry += piece
                continue
            if not self.found_array:
                carry += piece
                piece = memoryview(b"")
                begin = _array_begin(carry)
                if begin is None:
                    if len(carry) > _CARRY_LIMIT:
                        return
                    enough = 2 * len(carry)
                    continue
                self.found_array = True
                self.header, carry, offset = carry[:begin], carry[begin:], begin
            if done := plain.read(carry, piece):
                offset, carry, enough = offset + done[0], done[1], 0
                continue
            used, closed, carry = _take(carry, piece, offset, columns)
            offset += used
            if closed:
                self.closed = True
                self.tail = _bounded(carry, pieces)
                self.saw_bytes += len(self.tail) - len(carry)
                return
            if len(carry) > _CARRY_LIMIT:
                self.cut_at = offset
                return
            enough = (
                0 if used else 2 * len(carry)
            )  # an event longer than a piece: no second look at each piece
        if not self.found_array and (begin := _array_begin(carry)) is not None:
            self.found_array = True
            self.header, carry, offset = carry[:begin], carry[begin:], begin
        if self.found_array:
            used, closed, rest = _take(carry, memoryview(b""), offset, columns)
            self.closed = closed
            if closed:
                self.tail = rest
            elif rest.strip(b", \t\r\n"):
                self.cut_at = columns.add_broken(rest, offset + used, last=True)


def _take(carry: bytes, piece: memoryview, offset: int, columns: Columns) -> tuple[int, bool, bytes]:
    """Read the complete events that a text in two parts begins with: how many bytes that were, whether the list
    ends there, and what is left."""
    text = text_of(carry, piece)
    found = scan(text)
    columns.add_scanned(text, found, offset)
    used, last = found.used, found.used
    if not found.closed and (not found.sound or text.size - used > STUCK_BYTES):
        starts = [start.start() for start in START.finditer(text.raw, used, text.size)]
        if not found.sound or len(starts) > 2:  # many beginnings and no end: a brace is missing
            last = max(starts, default=used)
        if last > used:
            columns.add_broken(text.raw[used:last], offset + used)
    return last, found.closed, text.raw[last : text.size]


def _array_begin(text: bytes) -> int | None:
    """Offset of the first event, None if the list has not begun."""
    found = _ARRAY.search(text)
    if found:
        return found.end()
    stripped = text.lstrip(b"\xef\xbb\xbf \t\r\n")
    if stripped[:1] == b"[":
        return len(text) - len(stripped) + 1
    return None


def _bounded(begin: bytes, pieces: Iterator[memoryview]) -> bytes:
    """The text behind the events, as much of it as metadata may take."""
    parts: list[bytes | memoryview] = [begin]
    size = len(begin)
    for piece in pieces:
        size += len(piece)
        if size > _CARRY_LIMIT:
            break
        parts.append(piece)
    return b"".join(parts)


def _timeline(columns: Columns, path: Path, meta: dict[str, Any]) -> Timeline:
    column: dict[str, Any] = {}
    for key, kind in COLUMNS.items():
        column[key] = np.concatenate([np.zeros(0, kind), *(part.pop(key) for part in columns.parts)])
    column, base = _clean(column, columns)
    if columns.mended:
        told = f"{counted(columns.mended, 'event')} had broken text, the first at byte {columns.mended_at}"
        columns.warn("mended-events", told, "their names", columns.mended)
    if columns.lost_at:
        told = f"{counted(len(columns.lost_at), 'event')} could not be read, the first at byte {min(columns.lost_at)}"
        columns.warn("lost-events", told, "all sums over events", len(columns.lost_at))
    threads = tuple(columns.threads)
    names = tuple(columns.names)
    cat = _legacy_copies(column["cat"], column["name"], names)
    on_gpu = (cat >= Cat.KERNEL) & (cat <= Cat.MEMSET)
    device = np.where(on_gpu, _fill_device(column, threads), -1).astype(np.int16)
    stream = np.where(on_gpu, _fill_stream(column, threads), -1).astype(np.int32)
    distributed = meta.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    return Timeline(
        source=path.name,
        kind="kineto",
        rank=_rank(distributed, path.name),
        world=as_int(distributed.get("world_size")),
        base_ns=base,
        ts=column["ts"],
        dur=column["dur"],
        cat=cat,
        name=column["name"],
        thread=column["thread"],
        corr=column["corr"],
        ext=column["ext"],
        stream=stream,
        device=device,
        size=column["size"],
        wait_corr=column["wait_corr"],
        shape=column["shape"],
        comm=column["comm"],
        names=names,
        threads=threads,
        shapes=tuple(columns.shapes),
        comms=tuple(columns.comms),
        gpus=_gpu_names(meta, device),
        memory=_memory(columns, base),
        options=_options(meta),
        warnings=tuple(columns.warnings),
    )


def _clean(column: dict[str, Any], told: Columns) -> tuple[dict[str, Any], int]:
    """Drop events whose times cannot be, close unfinished host events, sort, drop second copies, and make times
    relative."""
    ts, dur = column["ts"], column["dur"]
    if not len(ts):
        return column, 0
    on_gpu = (column["cat"] >= Cat.KERNEL) & (column["cat"] <= Cat.MEMSET)
    timed = ts != NO_TIME
    some = ts[timed & (ts > 0)]
    far = timed & (np.abs(ts - int(np.median(some))) > DAY_NS) if len(some) else np.zeros(len(ts), bool)
    wrong = timed & ((dur < 0) | (dur > DAY_NS))
    placeless = timed & ~far & ~wrong & (column["device"] > MAX_DEVICE)
    for mask, code, text in (
        (~timed, "no-time", "events without a readable start"),
        (far, "clock-trouble", "events more than a day from the rest (a zero or broken clock)"),
        (wrong & on_gpu & ~far, "bad-duration", "GPU events of negative or giant duration"),
        (placeless & on_gpu, "bad-device", f"GPU events of a device above {MAX_DEVICE}"),
    ):
        if mask.any():
            told.warn(code, f"{int(mask.sum())} {text}, dropped", "busy and idle time", int(mask.sum()))
    keep = timed & ~far & ~((wrong | placeless) & on_gpu)
    if not keep.all():
        column = {k: v[keep] for k, v in column.items()}
        wrong = wrong[keep]
    ts, dur = column["ts"], column["dur"]
    if not len(ts):
        return column, 0
    if wrong.any():
        whole = ~wrong
        last = int((ts + dur)[whole].max()) if whole.any() else int(ts.max())
        column["dur"] = np.where(wrong, np.maximum(last - ts, 0), dur)
        count = int(wrong.sum())
        told.warn("unfinished-events", f"{count} host events never ended", "host causes", count)
    order = _by_start(column["ts"], column["dur"])
    for key in COLUMNS:
        column[key] = column[key][order]
    again = _second_copies(column)
    if again.any():
        count = int(again.sum())
        told.warn("duplicate-events", f"{count} events stand in the file twice, dropped", "counts", count)
        column = {k: v[~again] for k, v in column.items()}
    base = int(column["ts"][0])
    column["ts"] -= base
    return column, base


def _by_start(ts: Any, dur: Any) -> Any:
    """The order by start, longest first, as written among equals. Traces are nearly in order, and few starts are
    equal: so sort by start alone, then put equal ones right."""
    order = np.argsort(ts, kind="stable")
    ts, dur = ts[order], dur[order]
    same = ts[1:] == ts[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if len(tied):
        order[tied] = order[tied[np.lexsort((-dur[tied], ts[tied]))]]
    return order


def _second_copies(column: dict[str, Any]) -> Any:
    """Rows equal in every column to one before. Only events with an id of their own: Python frames and short
    operators of an unnumbered trace may be alike and still be two."""
    ts, dur = column["ts"], column["dur"]
    close = np.append((ts[1:] == ts[:-1]) & (dur[1:] == dur[:-1]), False)
    close |= np.append(False, close[:-1])
    rows = np.flatnonzero(close & (dur > 0) & ((column["corr"] >= 0) | (column["ext"] >= 0)))
    again = np.zeros(len(ts), bool)
    if len(rows):
        keys = [column[k][rows] for k in COLUMNS]
        order = np.lexsort(keys)  # equal rows become neighbours, the first of them stays first
        same = np.logical_and.reduce([k[order][1:] == k[order][:-1] for k in keys])
        again[rows[order[1:][same]]] = True
    return again


_COPY = re.compile(r"MEMORY_COPY_|__amd_rocclr_copyBuffer")
_SET = re.compile(r"__amd_rocclr_fillBuffer")


def _legacy_copies(cat: Any, name: Any, names: tuple[str, ...]) -> Any:
    """ROCm's copies and sets that old recordings hold as kernels."""
    for pattern, right in ((_COPY, Cat.MEMCPY), (_SET, Cat.MEMSET)):
        known = [i for i, n in enumerate(names) if pattern.match(n)]
        if known:
            cat = np.where((cat == Cat.KERNEL) & np.isin(name, known), np.uint8(right), cat)
    return cat


def _memory(columns: Columns, base: int) -> MemoryEvents | None:
    if not columns.memory:
        return None
    column = {k: np.concatenate([part[k] for part in columns.memory]) for k in columns.memory[0]}
    order = np.argsort(column["ts"], kind="stable")
    column = {k: v[order] for k, v in column.items()}
    return MemoryEvents(
        ts=column["ts"] - base,
        device=np.where(column["kind"] == 0, -1, np.clip(column["device"], 0, 2**15 - 1)).astype(np.int16),
        address=column["address"],
        bytes=column["bytes"],
        allocated=column["allocated"],
        reserved=column["reserved"],
    )


def _fill_device(column: dict[str, Any], threads: tuple[tuple[str, str], ...]) -> Any:
    """The device of a GPU row: its argument, else its process number (Kineto's convention), else 0."""
    from_pid = np.array(
        [max(as_small_int(pid), 0) if as_small_int(pid) < 256 else 0 for pid, _ in threads] or [0]
    )
    return np.where(column["device"] >= 0, column["device"], from_pid[column["thread"]])


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
    rank = as_int(distributed.get("rank"))
    if rank is not None:
        return rank
    return rank_in(filename)


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
            except BROKEN:
                continue
            if isinstance(decoded, dict):
                merged.update(decoded)
            break
    return merged


def _is_object(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except BROKEN:
        return False
    return True


def _gpu_names(meta: dict[str, Any], device: Any) -> dict[int, str]:
    """Name of each device that did work, from `deviceProperties`; "" when the file does not say."""
    rows = meta.get("deviceProperties")
    rows = [r for r in rows if isinstance(r, dict)] if isinstance(rows, list) else []
    by_id = {as_int(r.get("id", i)): str(r.get("name") or "") for i, r in enumerate(rows)}
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
