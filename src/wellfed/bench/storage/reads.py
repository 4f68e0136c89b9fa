"""Reading from storage, past the page cache: 1 MiB blocks in order and 4 KiB blocks at random.

A temporary file of random data (compressing and deduplicating devices lie about zeros) is written in a folder
that the user may choose; it loses its name at once, so that nothing stays behind, however the run ends. Files
only: never a device path. Reads are O_DIRECT by several threads, each a queue slot. Where the file system
refuses O_DIRECT, pages are dropped before each pass instead, and the method says so: weaker, because the
kernel may read ahead.
"""

import errno
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.setup import MIB, Scale, Setup, available_bytes, build_ceiling, size_text
from wellfed.bench.statistics import p99, percentile
from wellfed.model import Ceiling, Machine

IDS = ("storage-read-seq", "storage-read-rand")
WEIGHT = 3.5
EFFORT: Effort = "quick"
_CHUNK = 8 * MIB
_FILE_MAX = 1024 * MIB
_FILE_MIN = 16 * MIB
_FREE_KEPT = 4
"""The file takes at most a quarter of what is free."""
_PYTHON_IOPS = 50_000
_WINDOW_NS = 100_000_000
_READS_PER_WINDOW = 20
_READ_SHARE = 0.25
"""Of the budget, for each pattern at least, however long the writing took."""
_MEMORY_FS = ("tmpfs", "ramfs", "devtmpfs")


Span = tuple[int, int]
"""Begin and end of one read in nanoseconds."""


class Pattern(NamedTuple):
    """`threads` read at once, which is the queue depth."""

    id: str
    title: str
    block: int
    threads: int
    random: bool


SEQUENTIAL = Pattern("storage-read-seq", "storage, sequential read", MIB, 4, False)
RANDOM = Pattern("storage-read-rand", "storage, random read", 4096, 16, True)


class Target(NamedTuple):
    """An open file of `size` bytes of random data; `direct` says whether reads bypass the page cache."""

    fd: int
    size: int
    direct: bool
    fs: str | None


def needs(machine: Machine) -> str | None:
    """Positional reads into a buffer."""
    return None if hasattr(os, "preadv") else "this system has no preadv"


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Sequential and random reads of a file in `setup.folder`. Raises OSError when none can be written there,
    BlockingIOError (an OSError) when it is memory or too full."""
    started = time.monotonic()
    with random_file(setup.folder, file_size(setup), started + budget_s * 0.4) as target:
        ceilings = []
        for pattern, share in ((SEQUENTIAL, 0.5), (RANDOM, 1.0)):
            before = noise.read_counters()
            left = max((budget_s - (time.monotonic() - started)) * share, budget_s * _READ_SHARE)
            ceilings.append(_measure(setup, before, target, pattern, left))
    return ceilings


def file_size(setup: Setup) -> int:
    """Bytes of the file: at most 1 GiB, a quarter of what is free, and of memory on a file system that lies
    in it. Raises OSError with the reason when that leaves too little, or when the folder is memory."""
    fs = file_system(setup.folder)
    if fs in _MEMORY_FS:
        raise OSError(errno.ENOTSUP, f"{fs} is memory, not storage", str(setup.folder))
    free = os.statvfs(setup.folder)
    usable = min(free.f_bavail * free.f_frsize, available_bytes(setup.machine) * 4)
    size = min(_FILE_MAX, usable // _FREE_KEPT // _CHUNK * _CHUNK)
    if size < _FILE_MIN:
        raise OSError(errno.ENOSPC, "less than 64 MiB are free", str(setup.folder))
    return size


def file_system(folder: Path) -> str | None:
    """The type of the file system that holds the folder, None when the system does not tell."""
    real = Path(os.path.realpath(folder))
    best: tuple[int, str | None] = (-1, None)
    for mount in psutil.disk_partitions(all=True):
        if real.is_relative_to(mount.mountpoint) and len(mount.mountpoint) >= best[0]:
            best = (len(mount.mountpoint), mount.fstype or None)
    return best[1]


@contextmanager
def random_file(folder: Path, size: int, deadline: float) -> Iterator[Target]:
    """A file without a name in the folder, of as much random data as could be written before the deadline (a
    chunk at least), flushed to the device."""
    writer, name = tempfile.mkstemp(prefix=".wellfed-", dir=folder)
    reader, direct = writer, False
    try:
        try:
            reader, direct = _open_direct(name)
        finally:
            Path(name).unlink()
        written = _fill(writer, size, deadline)
        if not direct:
            reader = writer
        yield Target(reader, written, direct, file_system(folder))
    finally:
        if reader != writer:
            os.close(reader)
        os.close(writer)


def _open_direct(name: str) -> tuple[int, bool]:
    """A descriptor that bypasses the page cache, or (-1, False) where that is refused. Some file systems take
    the flag and refuse the first read; `_measure` would meet that, so it is tried here."""
    flag = getattr(os, "O_DIRECT", 0)
    if not flag:
        return -1, False
    try:
        return os.open(name, os.O_RDONLY | flag), True
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOTSUP):
            return -1, False
        raise


def _fill(fd: int, size: int, deadline: float) -> int:
    rng = np.random.default_rng(int(time.time_ns()))
    written = 0
    while written < size and (written == 0 or time.monotonic() < deadline):
        view = memoryview(rng.bytes(_CHUNK))
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)  # each time: else a slow device takes its time after the deadline
        written += _CHUNK
    return written


def _measure(
    setup: Setup, before: noise.Counters, target: Target, pattern: Pattern, budget_s: float
) -> Ceiling:
    reads = read_blocks(target, pattern, budget_s)
    rates = rates_by_window(reads)
    samples = rates if pattern.random else [rate * pattern.block / 1e6 for rate in rates]
    latencies_us = [(end - start) / 1000 for start, end in reads]
    tail = p99(latencies_us)
    reservations = []
    if not target.direct:
        reservations.append("part of it may come from the page cache")
    if percentile(rates, 50) > _PYTHON_IOPS:
        reservations.append("above 50,000 reads a second one Python process may be the limit")
    how = "O_DIRECT" if target.direct else "buffered, pages dropped before each pass (no O_DIRECT here)"
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(
            unit="IOPS" if pattern.random else "MB/s",
            band=(50.0, 3_000_000.0) if pattern.random else (50.0, 60_000.0),
            band_source="half a hard disk to four striped PCIe 5.0 drives",
        ),
        id=pattern.id,
        title=pattern.title,
        method=f"{pattern.threads} threads of preadv, {size_text(pattern.block)} blocks, {how}, random data",
        tier="stdlib",
        size=f"file of {size_text(target.size)}",
        threads=pattern.threads,
        why="; ".join(reservations) or None,
        environment={
            "file_system": target.fs,
            "direct": target.direct,
            "reads": len(reads),
            "latency_p50_us": round(percentile(latencies_us, 50), 1),
            "latency_p99_us": None if tail is None else round(tail, 1),
        },
    )


def read_blocks(target: Target, pattern: Pattern, budget_s: float) -> list[Span]:
    """When each read began and ended, by the pattern's threads until the budget is spent; at least one read a
    thread. In order: each thread its own stripe, over and over."""
    blocks = target.size // pattern.block
    stripe = max(blocks // pattern.threads, 1)
    spans: list[list[Span]] = [[] for _ in range(pattern.threads)]
    errors: list[OSError] = []
    stop = threading.Event()
    deadline = time.perf_counter_ns() + int(budget_s * 1e9)

    def work(number: int) -> None:
        first = number * stripe % blocks
        order = (
            np.random.default_rng(number).integers(0, blocks, 4096)
            if pattern.random
            else first + np.arange(stripe)
        )
        clock, note = time.perf_counter_ns, spans[number].append
        view = memoryview(mmap.mmap(-1, max(pattern.block, mmap.PAGESIZE)))[: pattern.block]
        while True:
            if not target.direct:
                _drop_pages(target, first * pattern.block, stripe * pattern.block)
            for block in order.tolist():
                start = clock()
                os.preadv(target.fd, [view], block * pattern.block)
                end = clock()
                note((start, end))
                if end >= deadline or stop.is_set():
                    return

    def guarded(number: int) -> None:
        try:
            work(number)
        except OSError as error:
            errors.append(error)

    members = [
        threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(pattern.threads)
    ]
    for member in members:
        member.start()
    try:
        for member in members:
            member.join()
    finally:
        stop.set()
    if errors:
        raise errors[0]
    return [span for one in spans for span in one]


def rates_by_window(reads: list[Span]) -> list[float]:
    """Reads finished a second, by windows of a tenth of a second (a tenth of the whole when that is shorter)
    with 20 reads each on average. The first window is left out as the warm-up, the last because threads stop
    in it. One rate over all when there are too few reads for that."""
    begin, end = min(start for start, _ in reads), max(end for _, end in reads)
    span_ns = max(end - begin, 1)
    windows = min(max(span_ns // _WINDOW_NS, 10), len(reads) // _READS_PER_WINDOW)
    if windows < 4:
        return [len(reads) / span_ns * 1e9]
    counts = [0] * windows
    for _, finished in reads:
        counts[min((finished - begin) * windows // span_ns, windows - 1)] += 1
    return [count * windows / span_ns * 1e9 for count in counts[1:-1]]


def _drop_pages(target: Target, offset: int, length: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(target.fd, offset, length, os.POSIX_FADV_DONTNEED)
