"""The columns of a large trace, kept in the user's cache folder: a second look takes a fraction of a second.

One file for each trace that was read, found by path, size, time of change, inode and version of the readers. It
holds what a `Timeline` holds and nothing else of the trace: no metadata beyond the few switches of the profiler that
a timeline names, so no environment and no command line. Folder and files are the user's alone (0700, 0600); a file is
written beside its place and renamed, is checked by a checksum, and what does not fit is read anew. The oldest go
when all of them together are too large. `WELLFED_CACHE=0` turns it off; another value is the folder to use.
"""

import contextlib
import hashlib
import mmap
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from wellfed._version import __version__
from wellfed.ingest.source import checksum
from wellfed.model import TraceWarning
from wellfed.model.folders import user_folder
from wellfed.model.timeline import CommArgs, MemoryEvents, Shape, Timeline

READER_VERSION = 3
"""Raised whenever a reader makes other rows of the same file."""
WORTH_BYTES = 4 << 20
"""Smaller files (packed or not) are read as fast as a cache is opened."""
MOST_BYTES = 2 << 30
SUFFIX = ".timeline"
_MAGIC = b"wellfed\n"
_ALIGNED = 64
_COLUMNS = {
    **dict.fromkeys(("ts", "dur", "corr", "ext", "size", "wait_corr"), "<i8"),
    **dict.fromkeys(("name", "thread", "stream", "shape", "comm"), "<i4"),
    "cat": "|u1",
    "device": "<i2",
}
_MEMORY = {**dict.fromkeys(("ts", "address", "bytes", "allocated", "reserved"), "<i8"), "device": "<i2"}
_INDEXES = {"name": "names", "thread": "threads", "shape": "shapes", "comm": "comms"}


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """What stands before the columns of a timeline. A column is [offset, 0] or, when all rows are alike, [value, 1]."""

    source: str
    kind: str
    rank: int | None
    world: int | None
    base_ns: str
    rows: int
    columns: dict[str, tuple[int, int]]
    memory_rows: int
    memory: dict[str, tuple[int, int]]
    names: list[str]
    threads: list[tuple[str, str]]
    shapes: list[Shape]
    comms: list[CommArgs]
    gpus: dict[int, str]
    options: dict[str, int | float | str]
    warnings: list[TraceWarning]


_DECODE = msgspec.msgpack.Decoder(list[_Head])


def load(path: Path) -> list[Timeline] | None:
    """The timelines of a trace as they were kept, None if they were not or the file has changed since."""
    place = _place(path)
    if place is None:
        return None
    try:
        with os.fdopen(
            os.open(place, os.O_RDONLY | os.O_NONBLOCK), "rb"
        ) as file:  # a pipe would be waited for
            facts = os.fstat(file.fileno())
            if facts.st_uid != os.geteuid() or not stat.S_ISREG(facts.st_mode):
                return None
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        os.utime(place)  # the least recently used goes first
        return _unpacked(data)
    except (OSError, ValueError, msgspec.MsgspecError, KeyError):
        return None


def keep(path: Path, timelines: list[Timeline]) -> None:
    """Keep them for the next time. Where the folder can't be written nothing is kept and nothing said."""
    place = _place(path)
    if place is None or any(t.window is not None for t in timelines):
        return
    try:
        head, blocks = _packed(timelines)
        size = sum(block.nbytes + _ALIGNED for block in blocks) + len(head)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if size > MOST_BYTES // 2 or shutil.disk_usage(place.parent).free < 4 * size:
            return
        _write(place, head, blocks)
        _forget(place.parent)
    except (OSError, OverflowError, msgspec.MsgspecError):
        return


def folder() -> Path | None:
    """Where timelines are kept; None when that is turned off or there is no home."""
    return user_folder(
        os.environ, sys.platform, switch="WELLFED_CACHE", variable="XDG_CACHE_HOME", home=".cache", mac_home="Library/Caches", leaf="traces",
    )  # fmt: skip


def _place(path: Path) -> Path | None:
    where = folder()
    try:
        facts = path.stat()
        real = path.resolve()
    except OSError:
        return None
    if where is None or facts.st_size < WORTH_BYTES:
        return None
    key = (
        str(real),
        facts.st_size,
        facts.st_mtime_ns,
        facts.st_ino,
        READER_VERSION,
        __version__,
        np.__version__,
    )
    return where / (hashlib.sha256(repr(key).encode()).hexdigest()[:40] + SUFFIX)


def _packed(timelines: list[Timeline]) -> tuple[bytes, list[np.ndarray[Any, Any]]]:
    """The heads, and the columns that follow them one after the other."""
    heads: list[_Head] = []
    blocks: list[np.ndarray[Any, Any]] = []
    at = 0

    def put(column: np.ndarray[Any, Any], kind: str) -> tuple[int, int]:
        nonlocal at
        if not len(column) or (column == column[0]).all():
            return int(column[0]) if len(column) else 0, 1
        offset = at
        block = np.ascontiguousarray(column, dtype=kind)
        blocks.append(block)
        at += -(-block.nbytes // _ALIGNED) * _ALIGNED
        return offset, 0

    for t in timelines:
        memory = t.memory
        heads.append(
            _Head(
                source=t.source,
                kind=t.kind,
                rank=t.rank,
                world=t.world,
                base_ns=str(t.base_ns),
                rows=len(t),
                columns={name: put(getattr(t, name), kind) for name, kind in _COLUMNS.items()},
                memory_rows=0 if memory is None else len(memory.ts),
                memory={} if memory is None else {n: put(getattr(memory, n), k) for n, k in _MEMORY.items()},
                names=list(t.names),
                threads=list(t.threads),
                shapes=list(t.shapes),
                comms=list(t.comms),
                gpus=t.gpus,
                options=t.options,
                warnings=list(t.warnings),
            )
        )
    return msgspec.msgpack.encode(heads), blocks


def _write(place: Path, head: bytes, blocks: list[np.ndarray[Any, Any]]) -> None:
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=".", suffix=".part")  # mode 0600
    total = 0
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + bytes(8))
            parts: list[bytes | memoryview] = [len(head).to_bytes(8, "little") + head]
            parts += [memoryview(block.data).cast("B") for block in blocks]
            for part in parts:
                for data in (part, bytes(-(file.tell() + len(part)) % _ALIGNED)):
                    total = checksum(data, total)
                    file.write(data)
            file.seek(len(_MAGIC))
            file.write(total.to_bytes(8, "little"))
        Path(name).replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _unpacked(data: mmap.mmap) -> list[Timeline]:
    """The timelines of a kept file. Raises ValueError, KeyError or a msgspec error when it is not whole."""
    if data[: len(_MAGIC)] != _MAGIC or len(data) < 24:
        raise ValueError("not a kept timeline")
    view = memoryview(data)
    if checksum(view[16:], 0) != int.from_bytes(data[8:16], "little"):
        raise ValueError("damaged")
    end = 24 + int.from_bytes(data[16:24], "little")
    start = -(-end // _ALIGNED) * _ALIGNED

    def get(place: tuple[int, int], rows: int, kind: str) -> np.ndarray[Any, Any]:
        value, alike = place
        return np.full(rows, value, kind) if alike else np.frombuffer(view, kind, rows, start + value)

    return [_timeline(head, get) for head in _DECODE.decode(data[24:end])]


def _timeline(head: _Head, get: Any) -> Timeline:
    memory = None
    if head.memory:
        memory = MemoryEvents(**{n: get(head.memory[n], head.memory_rows, k) for n, k in _MEMORY.items()})
    columns = {name: get(head.columns[name], head.rows, kind) for name, kind in _COLUMNS.items()}
    for name, table in _INDEXES.items():
        if head.rows and int(columns[name].max()) >= len(getattr(head, table)):
            raise ValueError(f"{name} points nowhere")
    return Timeline(
        source=head.source,
        kind=head.kind,
        rank=head.rank,
        world=head.world,
        base_ns=int(head.base_ns),
        **columns,
        names=tuple(head.names),
        threads=tuple(head.threads),
        shapes=tuple(head.shapes),
        comms=tuple(head.comms),
        gpus=head.gpus,
        memory=memory,
        options=dict(head.options),
        warnings=tuple(head.warnings),
    )


def _forget(where: Path) -> None:
    """Delete the least recently used until the rest is small enough, and what a crash left half written."""
    found: list[tuple[float, int, Path]] = []
    for path, facts in _files(where):
        if path.suffix == SUFFIX:
            found.append((facts.st_mtime, facts.st_size, path))
    total = sum(size for _, size, _ in found)
    newest = max((when for when, _, _ in found), default=0.0)
    for path, facts in _files(where):
        if path.name.startswith(".") and path.suffix == ".part" and facts.st_mtime < newest - 3600:
            path.unlink(missing_ok=True)
    for _, size, path in sorted(found):
        if total <= MOST_BYTES:
            break
        path.unlink(missing_ok=True)
        total -= size


def _files(where: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in where.iterdir():
        with contextlib.suppress(OSError):
            yield path, path.lstat()
