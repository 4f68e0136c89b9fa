"""Reading a file through the page cache: when it is there already, and when it is not, with and without the kernel's read-ahead.

`page-cache-read` is the bound of any loader whose data fits in memory; beside it stands how large a part of a plain copy in memory that is,
taken in turn on as many bytes. Read-ahead: the same file in order by 64 KiB, pages given up before, told to the kernel as nothing, SEQUENTIAL (twice the
window) and RANDOM (none). A large gap between the last two says that readers which seek, or many interleaved files, lose that much.
"""

import os
import time
from collections.abc import Callable, Iterator

import numpy as np

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.repeat import interleave
from wellfed.bench.setup import MIB, Scale, Setup, build_ceiling, size_text
from wellfed.bench.storage.aio import page_buffers
from wellfed.bench.storage.files import Target, describe, drop_pages, file_size, random_file, reservation
from wellfed.model import Ceiling, Machine
from wellfed.predict.statistics import percentile

IDS = ("page-cache-read", "read-ahead.normal", "read-ahead.sequential", "read-ahead.random")
WEIGHT = 2.0
EFFORT: Effort = "full"
_FILE_MOST = 256 * MIB
_CACHED = 64 * MIB
_BLOCK = MIB
_STEP = 64 * 1024
_PASS_MOST = 64 * MIB


def needs(machine: Machine) -> str | None:
    """Positional reads, and a word to the kernel about them."""
    return (
        None if hasattr(os, "preadv") and hasattr(os, "posix_fadvise") else "this system has no posix_fadvise"
    )


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Raises OSError when no file can be written in the folder, when it is memory, or too full."""
    started = time.monotonic()
    with random_file(setup.folder, file_size(setup, _FILE_MOST), started + budget_s * 0.3) as target:
        left = max(budget_s - (time.monotonic() - started), budget_s * 0.5)
        yield _measure_cached(setup, target, left * 0.3)
        yield from _measure_ahead(setup, target, left * 0.7)


def _measure_cached(setup: Setup, target: Target, budget_s: float) -> Ceiling:
    before = noise.read_counters()
    size = min(target.size, _CACHED)
    samples = interleave({"read": _cached_read(target, size), "copy": _copy(size)}, budget_s)
    copied, read = percentile(samples["copy"], 50), percentile(samples["read"], 50)
    return build_ceiling(
        setup,
        before,
        samples["read"],
        Scale(
            unit="GB/s",
            band=(0.3, 200.0),
            band_source="copies of 4 KiB pages by a slow core to a core's memory bandwidth",
        ),
        id="page-cache-read",
        title="page cache, read",
        method="preadv by 1 MiB of a file that is in the page cache, one thread; bytes counted once",
        size=size_text(size),
        threads=1,
        environment={
            **describe(target),
            "copy_in_memory": round(copied, 3),
            "part_of_copy": round(read / copied, 3),
        },
    )


def _cached_read(target: Target, size: int) -> Callable[[], float]:
    buffer = page_buffers(1, _BLOCK, random=False)

    def read() -> float:
        start = time.perf_counter()
        for offset in range(0, size, _BLOCK):
            os.preadv(target.plain, [buffer.data], offset)
        return size / (time.perf_counter() - start) / 1e9

    return read


def _copy(size: int) -> Callable[[], float]:
    """The same traffic without the kernel: from memory beyond the cache into one small buffer."""
    source, target = np.ones(size, dtype=np.uint8), np.zeros(_BLOCK, dtype=np.uint8)

    def copy() -> float:
        start = time.perf_counter()
        for offset in range(0, size, _BLOCK):
            np.copyto(target, source[offset : offset + _BLOCK])
        return size / (time.perf_counter() - start) / 1e9

    return copy


def _measure_ahead(setup: Setup, target: Target, budget_s: float) -> list[Ceiling]:
    before = noise.read_counters()
    advice = {
        "read-ahead.normal": os.POSIX_FADV_NORMAL,
        "read-ahead.sequential": os.POSIX_FADV_SEQUENTIAL,
        "read-ahead.random": os.POSIX_FADV_RANDOM,
    }
    runs = {id: _cold_pass(target, word) for id, word in advice.items()}
    samples = interleave(runs, budget_s)
    normal = percentile(samples["read-ahead.normal"], 50)
    return [
        build_ceiling(
            setup,
            before,
            rates,
            Scale(
                unit="MB/s",
                band=(1.0, 60_000.0),
                band_source="a seek of a hard disk each 64 KiB to four striped PCIe 5.0 drives",
            ),
            id=id,
            title=f"storage, buffered read in order by 64 KiB, advice {id.rpartition('.')[2]}",
            method="pages given up before each pass, posix_fadvise, preadv by 64 KiB, one thread",
            size=size_text(min(target.size, _PASS_MOST)),
            threads=1,
            why=reservation(target),
            environment={**describe(target), "over_normal": round(percentile(rates, 50) / normal, 3)},
        )
        for id, rates in samples.items()
    ]


def _cold_pass(target: Target, word: int) -> Callable[[], float]:
    buffer = page_buffers(1, _STEP, random=False)
    size = min(target.size, _PASS_MOST)

    def read() -> float:
        drop_pages(target.plain)
        os.posix_fadvise(target.plain, 0, 0, word)
        try:
            start = time.perf_counter()
            for offset in range(0, size, _STEP):
                os.preadv(target.plain, [buffer.data], offset)
            return size / (time.perf_counter() - start) / 1e6
        finally:
            os.posix_fadvise(target.plain, 0, 0, os.POSIX_FADV_NORMAL)

    return read
