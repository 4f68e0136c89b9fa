"""What memory costs when it is new: the kernel zeroes each page at its first touch, and takes the mapping apart at the
end. Allocators give large blocks back to the kernel, so a loop that makes a batch or a tensor anew each step pays this
each step; keeping buffers, or huge pages, is the cure. By pages of 4 KiB, by transparent huge pages, and by reserved
ones (hugetlb) where some are free.
"""

import mmap
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wellfed.bench import noise
from wellfed.bench.host import pages
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import (
    MIB,
    Scale,
    Setup,
    allowed_cpus,
    available_bytes,
    build_ceiling,
    size_text,
)
from wellfed.bench.team import Team
from wellfed.model import Ceiling, Machine
from wellfed.predict.statistics import percentile

IDS = ("first-touch.4k", "first-touch.thp", "first-touch.hugetlb", "unmap.4k")
WEIGHT = 0.7
EFFORT = "quick"
MAX_S = 2.0
_SIZE = 32 * MIB
_MAP_HUGETLB = 0x40000
"""Of Linux on x86-64 and arm64; Python has no name for it."""
_SMALL = 4096


class Kind(NamedTuple):
    """One way to get pages: `make` gives untouched bytes that go back to the kernel with the last reference."""

    title: str
    page_bytes: int
    make: Callable[[], pages.Bytes]


def needs(machine: Machine) -> str | None:
    return "less than 256 MiB of memory are available" if available_bytes(machine) < 8 * _SIZE else None


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Microseconds a MiB of first touch, by kind of page, and of giving 4 KiB pages back."""
    before = noise.read_counters()
    kinds = choose_kinds(setup.machine)
    samples: dict[str, list[float]] = {}
    unmaps: list[float] = []
    runs = {
        f"first-touch.{name}": _toucher(kind, unmaps if name == "4k" else []) for name, kind in kinds.items()
    }
    with Team(allowed_cpus()[-1:]) as team:
        team.run(lambda _: samples.update(interleave(runs, budget_s)))
    found = [
        _ceiling(setup, before, id, f"first touch, {kinds[id.partition('.')[2]].title}", row, kinds)
        for id, row in samples.items()
    ]
    return [*found, _ceiling(setup, before, "unmap.4k", "giving 4 KiB pages back", unmaps[1:], kinds)]


def choose_kinds(machine: Machine) -> dict[str, Kind]:
    """Those that this machine has: huge pages may be switched off, and reserved ones are seldom there."""
    kinds = {"4k": Kind("4 KiB pages", _SMALL, lambda: pages.allocate(_SIZE, huge=False))}
    if hasattr(mmap, "MADV_HUGEPAGE") and huge_pages_work():
        kinds["thp"] = Kind("transparent huge pages", pages.HUGE, lambda: pages.allocate(_SIZE, huge=True))
    if any(
        pool.page_bytes == pages.HUGE and (pool.free or 0) * pages.HUGE >= _SIZE
        for pool in machine.memory.huge_pools or ()
    ):
        kinds["hugetlb"] = Kind("reserved huge pages", pages.HUGE, _reserved)
    return kinds


def huge_pages_work() -> bool:
    """Whether a touched range that asked for huge pages got some."""
    probe = pages.allocate(2 * pages.HUGE, huge=True)
    probe[::_SMALL] = 1
    share = pages.huge_share(probe)
    return share is not None and share > 0.5


def _reserved() -> pages.Bytes:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_HUGETLB
    return np.frombuffer(mmap.mmap(-1, _SIZE, flags=flags), dtype=np.uint8)


def _toucher(kind: Kind, unmaps: list[float]) -> Run:
    """One store a page of fresh memory; us a MiB. What giving it back takes is noted in `unmaps`."""

    def run() -> float:
        fresh = kind.make()
        start = time.perf_counter()
        fresh[:: kind.page_bytes] = 1
        touched = time.perf_counter()
        del fresh
        unmaps.append((time.perf_counter() - touched) * 1e6 / (_SIZE / MIB))
        return (touched - start) * 1e6 / (_SIZE / MIB)

    return run


def _ceiling(
    setup: Setup, before: noise.Counters, id: str, title: str, samples: list[float], kinds: dict[str, Kind]
) -> Ceiling:
    page = kinds.get(id.partition(".")[2], kinds["4k"]).page_bytes
    a_second = 1e6 / (percentile(samples, 50) * page / MIB)
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(
            unit="us/MiB",
            higher_is_better=False,
            band=(0.5, 2000.0),
            band_source="zeroing at 2 TB/s to a page fault of 8 us under a hypervisor",
            max_cv=0.25,
        ),
        id=id,
        title=title,
        method=(
            "munmap of touched memory"
            if id.startswith("unmap")
            else f"one store to each {size_text(page)} of a fresh anonymous mapping"
        ),
        size=size_text(_SIZE),
        threads=1,
        tier="numpy",
        environment={"pages_per_s": round(a_second), "page_bytes": page},
    )
