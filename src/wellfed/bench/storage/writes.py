"""Writing to storage: in order, at random, what `fsync` costs, and a checkpoint (one large write, then `fsync`).

Past the page cache (O_DIRECT) where that is possible, into a file that is already there, so that growing it is not measured; the file has no name.
At most so many bytes are written: devices wear. A drive's own cache may take the first of them faster than it can go on: no
pre-conditioning is done, so this is what a burst gets, not a day of writing. `fsync` answers when the device says that the data is safe; a device
that lies is quick.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.setup import MIB, Scale, Setup, build_ceiling, size_text
from wellfed.bench.storage import aio
from wellfed.bench.storage.aio import Spans
from wellfed.bench.storage.files import Target, describe, file_size, nameless_file, random_file, reservation
from wellfed.bench.storage.reads import Pattern, rates_by_window, spans_of
from wellfed.model import Ceiling, Machine
from wellfed.predict.statistics import p99, percentile

IDS = ("storage-write-seq", "storage-write-rand", "storage-fsync", "storage-checkpoint")
WEIGHT = 3.0
EFFORT: Effort = "full"
SEQUENTIAL = Pattern("storage-write-seq", "storage, sequential write", MIB, 4, False)
RANDOM = Pattern("storage-write-rand", "storage, random write", 4096, 16, True)
_MOST_BYTES = 4096 * MIB
"""Of each pattern: a minute's share of a fast drive is a hundred times that."""
_FILE_MOST = 256 * MIB
_CHECKPOINT_MOST = 256 * MIB
_FSYNC_MOST = 2000


def needs(machine: Machine) -> str | None:
    """Positional writes."""
    return None if hasattr(os, "pwritev") else "this system has no pwritev"


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Raises OSError when nothing can be written in the folder, when it is memory, or too full."""
    size = file_size(setup, _FILE_MOST)
    started = time.monotonic()
    with random_file(setup.folder, size, started + budget_s * 0.15) as target:
        share_s = max(budget_s - (time.monotonic() - started), budget_s * 0.5) / len(IDS)
        for pattern in (SEQUENTIAL, RANDOM):
            yield _measure_pattern(setup, target, pattern, share_s)
        yield _measure_fsync(setup, target, share_s)
    yield _measure_checkpoint(setup, min(size, _CHECKPOINT_MOST), share_s)


def _measure_pattern(setup: Setup, target: Target, pattern: Pattern, budget_s: float) -> Ceiling:
    before = noise.read_counters()
    spans, how = write_blocks(target, pattern, budget_s)
    rates = rates_by_window(spans)
    latencies_us = ((spans.end_ns - spans.begin_ns) / 1000).tolist()
    tail = p99(latencies_us)
    reservations = [
        reservation(target),
        None if target.direct else "each write is followed by fdatasync: no O_DIRECT here",
    ]
    return build_ceiling(
        setup,
        before,
        rates if pattern.random else [rate * pattern.block / 1e6 for rate in rates],
        Scale(
            unit="IOPS" if pattern.random else "MB/s",
            band=(20.0, 3_000_000.0) if pattern.random else (20.0, 60_000.0),
            band_source="half a hard disk, or small writes of one, to four striped PCIe 5.0 drives",
        ),
        id=pattern.id,
        title=pattern.title,
        method=f"{how}, {size_text(pattern.block)} blocks over a file that is there, random data, a burst",
        size=f"file of {size_text(target.size)}",
        threads=pattern.depth if target.direct else 1,
        why="; ".join(text for text in reservations if text) or None,
        environment={
            **describe(target),
            "written_bytes": len(latencies_us) * pattern.block,
            "latency_p50_us": round(percentile(latencies_us, 50), 1),
            "latency_p99_us": None if tail is None else round(tail, 1),
        },
    )


def write_blocks(target: Target, pattern: Pattern, budget_s: float) -> tuple[Spans, str]:
    """Writes until the budget or the bytes are spent, and how they were done."""
    blocks = max(target.size // pattern.block, 1)
    order = np.random.default_rng(6).integers(0, blocks, 1 << 15) if pattern.random else np.arange(blocks)
    offsets = order * pattern.block
    if target.direct and aio.unavailable() is None:
        spans = aio.transfer(
            target.fd,
            offsets,
            pattern.block,
            pattern.depth,
            budget_s,
            write=True,
            most=_MOST_BYTES // pattern.block,
        )
        return spans, f"O_DIRECT, asynchronous, {pattern.depth} in flight"
    return _write_one_by_one(target, offsets.tolist(), pattern.block, budget_s), "pwrite, one at a time"


def _write_one_by_one(target: Target, offsets: list[int], block: int, budget_s: float) -> Spans:
    data = aio.page_buffers(1, block, random=True)[:block].data
    clock = time.perf_counter_ns
    deadline = clock() + int(budget_s * 1e9)
    pairs: list[tuple[int, int]] = []
    while not pairs or (clock() < deadline and len(pairs) * block < _MOST_BYTES):
        start = clock()
        os.pwrite(target.fd, data, offsets[len(pairs) % len(offsets)])
        if not target.direct:
            os.fdatasync(target.fd)
        pairs.append((start, clock()))
    return spans_of(pairs)


def _measure_fsync(setup: Setup, target: Target, budget_s: float) -> Ceiling:
    before = noise.read_counters()
    samples = fsync_times(target, budget_s)
    tail = p99(samples)
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(
            unit="us",
            higher_is_better=False,
            band=(2.0, 100_000.0),
            band_source="a drive with power-loss protection behind a cheap controller to a few turns of a hard disk; less is no flush at all",
            max_cv=None,  # a journal commit now and then is part of it; p90 and p99 tell it
        ),
        id="storage-fsync",
        title="storage, write of one page and fsync",
        method="pwrite of 4 KiB at random into a file that is there, then os.fsync; one thread",
        size="4 KiB",
        threads=1,
        why=reservation(target),
        environment={
            **describe(target),
            "latency_p50_us": round(percentile(samples, 50), 1),
            "latency_p99_us": None if tail is None else round(tail, 1),
        },
    )


def fsync_times(target: Target, budget_s: float) -> list[float]:
    """Microseconds of each write and fsync; the first is thrown away."""
    pages = np.random.default_rng(8).integers(0, target.size // 4096, _FSYNC_MOST + 1).tolist()
    data = os.urandom(4096)
    clock = time.perf_counter_ns
    deadline = clock() + int(budget_s * 1e9)
    samples: list[float] = []
    for page in pages:
        start = clock()
        os.pwrite(target.plain, data, page * 4096)
        os.fsync(target.plain)
        samples.append((clock() - start) / 1000)
        if clock() >= deadline and len(samples) > 3:
            break
    return samples[1:]


def _measure_checkpoint(setup: Setup, size: int, budget_s: float) -> Ceiling:
    before = noise.read_counters()
    samples = checkpoint_rates(setup.folder, size, budget_s)
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(
            unit="MB/s",
            band=(20.0, 60_000.0),
            band_source="half a hard disk to four striped PCIe 5.0 drives",
        ),
        id="storage-checkpoint",
        title="storage, checkpoint: new file, buffered write, fsync",
        method="a new nameless file, os.write by 8 MiB of random data, one fsync at the end; bytes over all of the time",
        size=size_text(size),
        threads=1,
        environment={"seconds_median": round(size / 1e6 / percentile(samples, 50), 4)},
    )


def checkpoint_rates(folder: Path, size: int, budget_s: float) -> list[float]:
    """MB/s of each checkpoint of `size` bytes; at least three."""
    data = memoryview(np.random.default_rng(time.time_ns()).bytes(8 * MIB))
    deadline = time.monotonic() + budget_s
    rates: list[float] = []
    while len(rates) < 3 or (time.monotonic() < deadline and len(rates) * size < _MOST_BYTES):
        with nameless_file(folder) as fd:
            start = time.perf_counter()
            left = size
            while left:
                left -= os.write(fd, data[: min(left, len(data))])
            os.fsync(fd)
            rates.append(size / (time.perf_counter() - start) / 1e6)
    return rates
