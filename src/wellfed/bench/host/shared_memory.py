"""How fast a batch moves through /dev/shm, as from a data loader's worker to the trainer.

`shm-write` fills fresh pages, as each batch of PyTorch's loader does: page faults included. `shm-read` copies
a batch out again. One thread; bytes are counted once. The file is at most a quarter of what /dev/shm has left
(64 MiB in a container by default).
"""

import mmap
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.repeat import interleave
from wellfed.bench.setup import MIB, Scale, Setup, available_bytes, build_ceiling, size_text
from wellfed.model import Ceiling, Machine

IDS = ("shm-write", "shm-read")
WEIGHT = 1.0
EFFORT: Effort = "quick"
SHM = Path("/dev/shm")
_BATCH_MAX = 128 * MIB
_BATCH_MIN = MIB


def needs(machine: Machine) -> str | None:
    """A /dev/shm that can be written and has room for a batch."""
    if not SHM.is_dir() or not os.access(SHM, os.W_OK):
        return "there is no writable /dev/shm"
    if batch_bytes(machine) < _BATCH_MIN:
        return "/dev/shm has less than 4 MiB free"
    return None


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Writing fresh pages and reading them, in turn."""
    before = noise.read_counters()
    size = min(batch_bytes(setup.machine), max(int(budget_s * 256 * MIB), _BATCH_MIN))
    fd, name = tempfile.mkstemp(prefix="wellfed-", dir=SHM)
    try:
        Path(name).unlink()
        samples = _copies(fd, size, budget_s)
    finally:
        os.close(fd)
    titles = {"shm-write": "shared memory, write fresh pages", "shm-read": "shared memory, read"}
    return [
        build_ceiling(
            setup,
            before,
            samples[id],
            Scale(
                unit="GB/s",
                band=(0.2, 200.0),
                band_source="page faults of 4 KiB to a core's memory bandwidth",
            ),
            id=id,
            title=titles[id],
            method="np.copyto to and from a mapped file in /dev/shm, bytes counted once",
            tier="numpy",
            size=size_text(size),
            dtype="uint8",
            threads=1,
            environment={"thp_shmem": setup.machine.memory.thp_shmem},
        )
        for id in IDS
    ]


def _copies(fd: int, size: int, budget_s: float) -> dict[str, list[float]]:
    batch = np.random.default_rng(3).integers(0, 255, size, dtype=np.uint8)
    copied = np.zeros_like(batch)
    os.ftruncate(fd, size)
    # Never closed by hand: that fails while an array looks into it, and hides what went wrong.
    window = np.frombuffer(mmap.mmap(fd, size), dtype=np.uint8)

    def write() -> float:
        # Giving the pages back makes the next write fault them in again, like a new segment.
        os.ftruncate(fd, 0)
        start = time.perf_counter()
        # Asked for beforehand: a full /dev/shm is then an error here and not a SIGBUS in the copy.
        os.posix_fallocate(fd, 0, size)
        np.copyto(window, batch)
        return size / (time.perf_counter() - start) / 1e9

    def read() -> float:
        start = time.perf_counter()
        np.copyto(copied, window)
        return size / (time.perf_counter() - start) / 1e9

    return interleave({"shm-write": write, "shm-read": read}, budget_s)


def batch_bytes(machine: Machine) -> int:
    """A quarter of what /dev/shm has left, an eighth of the memory, at most 128 MiB; whole pages."""
    room = os.statvfs(SHM)
    size = min(room.f_bavail * room.f_frsize // 4, available_bytes(machine) // 8, _BATCH_MAX)
    return size // mmap.PAGESIZE * mmap.PAGESIZE
