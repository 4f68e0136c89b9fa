"""Rows of events on their way to a Timeline: names and threads interned, times cleaned, sorted, made relative.

What every reader of whole files shares. A reader adds blocks of rows; `timeline` drops what cannot be (and
counts it), closes what never ended, and builds the columns.
"""

import gc
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from wellfed.model import TraceWarning, WellfedError
from wellfed.model.timeline import I64, Cat, Mask, Timeline

DAY_NS = 24 * 3600 * 10**9
MAX_DEVICE = 2**15 - 1
"""The largest number of a device that its column holds; no machine has so many."""
_FARTHEST = 2**61
"""Times beyond are clipped, so that differences stay within 64 bits; what is clipped is dropped as far off."""
_LARGE_STREAM = 2**31 - 1
_ABSENT = {
    "corr": -1,
    "ext": -1,
    "stream": -1,
    "device": -1,
    "size": -1,
    "wait_corr": -1,
    "shape": -1,
    "comm": -1,
    "owner": 0,
}
"""What a column holds where a reader says nothing."""
_RANK = re.compile(r"rank[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)


class Rows:
    """Growing columns of one file. `owner` numbers the process that a row belongs to, so that one file of
    several processes can become several timelines."""

    def __init__(self) -> None:
        self.warnings: list[TraceWarning] = []
        self._names: dict[str, int] = {}
        self._threads: dict[tuple[str, str], int] = {}
        self._blocks: list[dict[str, I64]] = []

    def warn(self, code: str, sample: str, weakens: str, count: int = 1) -> None:
        self.warnings.append(TraceWarning(code=code, count=count, sample=sample[:300], weakens=weakens))

    def name(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names))

    def names(self, texts: Iterable[str]) -> I64:
        known = self._names
        return np.fromiter((known.setdefault(t, len(known)) for t in texts), np.int64)

    def thread(self, process: str, thread: str) -> int:
        return self._threads.setdefault((process, thread), len(self._threads))

    def add(self, *, cat: Any, ts: I64, end: I64, name: Any, thread: Any, **columns: Any) -> None:
        """A block of rows. `ts` and `end` are int64 ns, a negative length means that the end is unknown;
        anything else is an array of the same length or one value for all."""
        n = len(ts)
        if not n:
            return
        ts, end = np.clip(ts, -_FARTHEST, _FARTHEST), np.clip(end, -_FARTHEST, _FARTHEST)
        block = {"ts": ts, "dur": end - ts, "cat": cat, "name": name, "thread": thread, **_ABSENT, **columns}
        self._blocks.append({k: np.broadcast_to(np.asarray(v, np.int64), n) for k, v in block.items()})

    def __len__(self) -> int:
        return sum(len(block["ts"]) for block in self._blocks)

    def column(self, key: str) -> I64:
        return np.concatenate([b[key] for b in self._blocks]) if self._blocks else np.zeros(0, np.int64)

    def timeline(
        self,
        *,
        source: str,
        kind: str,
        owners: Iterable[int] | None = None,
        epoch_ns: int = 0,
        gpus: Mapping[int, str] | None = None,
        rank: int | None = None,
        world: int | None = None,
        options: Mapping[str, Any] | None = None,
        warnings: Iterable[TraceWarning] = (),
    ) -> Timeline:
        """The rows of `owners` (all of them when None) as a Timeline. `epoch_ns` is the absolute time of 0.
        `gpus` names devices; those without work are left out."""
        column = {k: self.column(k) for k in ("ts", "dur", "cat", "name", "thread", *_ABSENT)}
        if owners is not None:
            mine = np.isin(column["owner"], list(owners))
            column = {k: v[mine] for k, v in column.items()}
        own = Rows()
        column = _clean(column, own)
        base = int(column["ts"][0]) if len(column["ts"]) else 0
        on_gpu = _on_gpu(column["cat"])
        names, name = _used(list(self._names), column["name"])
        threads, thread = _used(list(self._threads), column["thread"])
        device = np.where(on_gpu, np.maximum(column["device"], 0), -1)
        known = gpus or {}
        return Timeline(
            source=source,
            kind=kind,
            rank=rank,
            world=world,
            base_ns=epoch_ns + base,
            ts=column["ts"] - base,
            dur=column["dur"],
            cat=column["cat"].astype(np.uint8),
            name=name.astype(np.int32),
            thread=thread.astype(np.int32),
            corr=column["corr"],
            ext=column["ext"],
            stream=np.where(on_gpu, _dense(np.maximum(column["stream"], 0)), -1).astype(np.int32),
            device=device.astype(np.int16),
            size=column["size"],
            wait_corr=column["wait_corr"],
            shape=column["shape"].astype(np.int32),
            comm=column["comm"].astype(np.int32),
            names=tuple(names),
            threads=tuple(threads),
            gpus={int(d): known.get(int(d), "") for d in np.unique(device) if d >= 0},
            options=dict(options or {}),
            warnings=(*self.warnings, *own.warnings, *warnings),
        )


@contextmanager
def without_gc() -> Iterator[None]:
    """Reading makes millions of objects and no cycles: the collector would double the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def rank_in(filename: str) -> int | None:
    """The rank that a file's name tells (`rank3`, `rank_3`), None without one."""
    found = _RANK.search(filename)
    return int(found.group(1)) if found else None


def join(windows: Iterable[bytes], limit: int, name: str) -> bytes:
    """The whole text of a file that has to be read at once. Raises WellfedError beyond `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    for window in windows:
        size += len(window)
        if size > limit:
            raise WellfedError(
                f"{name} unpacks to more than {limit >> 30} GiB, too much for a file of this kind",
                hint="record a shorter window",
            )
        pieces.append(window)
    return b"".join(pieces)


def distinct(*columns: I64) -> tuple[list[tuple[int, ...]], I64]:
    """The distinct rows of integer columns, and for each row its place among them."""
    rows: list[tuple[int, ...]] = [()]
    which = np.zeros(len(columns[0]), np.int64)
    if not len(which):
        return [], which
    for column in columns:
        if column.min() == column.max():  # a process, a device: usually one, and sorting is dear
            rows = [(*row, int(column[0])) for row in rows]
            continue
        values, place = np.unique(column, return_inverse=True)
        used, which = np.unique(which * len(values) + place.reshape(-1), return_inverse=True)
        which = which.reshape(-1)
        rows = [(*rows[u // len(values)], int(values[u % len(values)])) for u in used.tolist()]
    return rows, which.astype(np.int64)


def integers(values: list[Any]) -> I64:
    """Integers of any spelling (7, "7", "$$7"); -1 where there is none or 64 bits cannot hold it."""
    try:
        return np.array([-1 if v is None else v for v in values], dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(v) for v in values], dtype=np.int64)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or value is None:
        return -1
    if isinstance(value, int | float):
        return int(value) if abs(value) < 2**63 else -1
    digits = str(value).strip().lstrip("$")
    return int(digits) if re.fullmatch(r"-?[0-9]{1,18}", digits) else -1


def _on_gpu(cat: I64) -> Mask:
    return np.asarray((cat >= Cat.KERNEL) & (cat <= Cat.MEMSET))


def _used(all_of: list[Any], index: I64) -> tuple[list[Any], I64]:
    """The entries in use, and the index into them."""
    used, inverse = np.unique(index, return_inverse=True)
    return [all_of[i] for i in used.tolist()], inverse.astype(np.int64)


def _dense(stream: I64) -> I64:
    """Stream numbers as they are; handles that 31 bits cannot hold are renumbered above the small ones."""
    large = np.unique(stream[stream >= _LARGE_STREAM])
    return np.where(stream >= _LARGE_STREAM, 1_000_000 + np.searchsorted(large, stream), stream)


def _clean(column: dict[str, I64], told: Rows) -> dict[str, I64]:
    """Drop what cannot be, close what never ended, sort by start (longest first)."""
    ts, dur = column["ts"], column["dur"]
    if not len(ts):
        return column
    gpu = _on_gpu(column["cat"])
    far = np.abs(ts - int(np.median(ts))) > DAY_NS
    wrong = (dur < 0) | (dur > DAY_NS)
    placeless = gpu & ~far & ~wrong & (column["device"] > MAX_DEVICE)
    for mask, code, text in (
        (far, "clock-trouble", "events more than a day from the rest (a zero or broken clock)"),
        (wrong & gpu & ~far, "bad-duration", "GPU events of negative or giant duration"),
        (placeless, "bad-device", f"GPU events of a device above {MAX_DEVICE}"),
    ):
        if mask.any():
            told.warn(code, f"{int(mask.sum())} {text}, dropped", "busy and idle time", int(mask.sum()))
    keep = ~far & ~(wrong & gpu) & ~placeless
    column = {k: v[keep] for k, v in column.items()}
    ts, dur, wrong = column["ts"], column["dur"], wrong[keep]
    if wrong.any():
        whole = ~wrong
        last = int((ts + dur)[whole].max()) if whole.any() else int(ts.max())
        column["dur"] = np.where(wrong, np.maximum(last - ts, 0), dur)
        count = int(wrong.sum())
        told.warn("unfinished-events", f"{count} host events never ended", "host causes", count)
    order = np.lexsort((-column["dur"], column["ts"]))
    return {k: v[order] for k, v in column.items()}
