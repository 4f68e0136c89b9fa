"""Opening, reading and closing many small files, as a data set of single images or texts is read: cold and warm.

Files of 4 KiB to 256 KiB with random data, spread over folders of 256. Cold: the pages of each file were given up just before
(`posix_fadvise`), but directory entries and inodes are still known to the kernel, so a first epoch after a boot is slower still. Warm: from
the page cache, which is the price of the calls alone. One thread, as one worker of a loader; the cold pass is also taken by several.
"""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.repeat import interleave
from wellfed.bench.setup import Scale, Setup, build_ceiling, size_text
from wellfed.bench.storage.files import drop_pages, file_size, file_system
from wellfed.model import Ceiling, Machine
from wellfed.predict.statistics import percentile

IDS = ("small-files-cold", "small-files-cold.8", "small-files-warm")
WEIGHT = 1.5
EFFORT: Effort = "quick"
SIZES = (4096, 16384, 65536, 262144)
_THREADS = 8
_MOST_FILES = 4096
_FOLDER_FILES = 256
_BATCH = 64
"""Files of one sample; a whole number of each size."""
_WRITE_SHARE = 0.35
_REMOVE = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"


def needs(machine: Machine) -> str | None:
    """A way to give up pages: else cold is warm. And an interpreter to start."""
    if not sys.executable:
        return "this Python does not know its own program, so it can't start another"
    return (
        None
        if hasattr(os, "posix_fadvise")
        else "this system has no posix_fadvise, so nothing can be read cold"
    )


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Files a second, of the same files in turn. Raises OSError when they can't be written, the folder is memory, or it is too full."""
    most = file_size(setup) // 4
    before = noise.read_counters()
    with small_files(setup.folder, most, time.monotonic() + budget_s * _WRITE_SHARE) as names:
        size_bytes = sum(Path(name).stat().st_size for name in names)
        by_size: dict[int, list[float]] = {size: [] for size in SIZES}
        samples = _passes(names, budget_s * (1 - _WRITE_SHARE), by_size)
    mean = size_bytes / len(names)
    titles = {
        "small-files-cold": "small files, open + read + close, cold, one thread",
        "small-files-cold.8": f"small files, open + read + close, cold, {_THREADS} threads",
        "small-files-warm": "small files, open + read + close, from the page cache, one thread",
    }
    fs = file_system(setup.folder)
    return [
        build_ceiling(
            setup,
            before,
            samples[id],
            Scale(
                unit="files/s",
                band=(20.0, 3_000_000.0 if id == "small-files-cold.8" else 1_000_000.0),
                band_source="two seeks of a hard disk a file to three system calls of a third of a microsecond",
            ),
            id=id,
            title=titles[id],
            method="os.open, read whole, close; random order; "
            + (
                "pages kept"
                if "warm" in id
                else "pages of each file given up before the pass; inodes stay known"
            ),
            size=f"{len(names)} files of {size_text(SIZES[0])} to {size_text(SIZES[-1])}, {size_text(round(mean))} on average",
            threads=_THREADS if id.endswith(".8") else 1,
            environment={
                "file_system": fs,
                "mean_bytes": round(mean),
                "files": len(names),
                "median_by_size": {
                    str(size): round(percentile(rates, 50), 1) for size, rates in by_size.items()
                }
                if id == "small-files-cold"
                else None,
            },
        )
        for id in IDS
    ]


@contextmanager
def small_files(folder: Path, most_bytes: int, deadline: float) -> Iterator[list[str]]:
    """Names of files of all sizes in turn, as many as could be written before the deadline, a batch at least; gone afterwards.

    Files need names to be opened, so a process of its own removes them should this one be killed."""
    top = tempfile.mkdtemp(prefix=".wellfed-files-", dir=folder)
    try:
        with _remover(top):
            yield _write_files(top, most_bytes, deadline)
    finally:
        shutil.rmtree(top, ignore_errors=True)


@contextmanager
def _remover(top: str) -> Iterator[None]:
    """A small Python that removes the folder when its input ends, which it does when we end, however."""
    command = [sys.executable, "-I", "-S", "-c", _REMOVE, top]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
    ) as process:
        try:
            yield
        finally:
            process.kill()


def _write_files(top: str, most_bytes: int, deadline: float) -> list[str]:
    rng = np.random.default_rng(time.time_ns())
    names: list[str] = []
    inner = Path(top)
    written = 0
    while len(names) < _BATCH or (
        len(names) < _MOST_FILES and written < most_bytes and time.monotonic() < deadline
    ):
        if len(names) % _FOLDER_FILES == 0:
            inner = Path(top, f"{len(names) // _FOLDER_FILES:03d}")
            inner.mkdir()
        for _ in range(_BATCH):
            size = SIZES[len(names) % len(SIZES)]
            name = f"{inner}/{len(names):06d}"
            _write_file(name, rng.bytes(size))
            names.append(name)
            written += size
    return names


def _write_file(name: str, data: bytes) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        os.fdatasync(fd)  # dirty pages can't be given up
        drop_pages(fd)
    finally:
        os.close(fd)


def _passes(names: Sequence[str], budget_s: float, by_size: dict[int, list[float]]) -> dict[str, list[float]]:
    """Files a second; each sample another batch in random order, with all sizes in equal parts. `by_size` gets the cold ones of each."""
    rng = np.random.default_rng(11)

    def batch() -> list[str]:
        chosen = rng.permutation(len(names) // len(SIZES))[: _BATCH // len(SIZES)] * len(SIZES)
        return [names[first + size] for first in chosen.tolist() for size in range(len(SIZES))]

    def cold() -> float:
        chosen = batch()
        give_up(chosen)
        seconds = 0.0
        for number in range(len(SIZES)):
            some = chosen[number :: len(SIZES)]
            rate = _rate(some, read_files)
            by_size[SIZES[number]].append(rate)
            seconds += len(some) / rate
        return len(chosen) / seconds

    def warm() -> float:
        chosen = batch()
        read_files(chosen)
        return _rate(chosen, read_files)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(time.sleep, [0.001] * _THREADS))  # all of them started

        def many() -> float:
            chosen = batch()
            give_up(chosen)
            return _rate(
                chosen, lambda some: list(pool.map(read_files, [some[n::_THREADS] for n in range(_THREADS)]))
            )

        return interleave(dict(zip(IDS, (cold, many, warm), strict=True)), budget_s, at_least=5)


def _rate(names: list[str], read: Callable[[list[str]], object]) -> float:
    start = time.perf_counter()
    read(names)
    return len(names) / (time.perf_counter() - start)


def read_files(names: Sequence[str]) -> None:
    """Each whole, as `open(name, 'rb').read()` does, without the objects."""
    for name in names:
        fd = os.open(name, os.O_RDONLY)
        try:
            os.read(fd, SIZES[-1])
        finally:
            os.close(fd)


def give_up(names: Sequence[str]) -> None:
    """Take the pages of these files out of the page cache."""
    for name in names:
        fd = os.open(name, os.O_RDONLY)
        try:
            drop_pages(fd)
        finally:
            os.close(fd)
