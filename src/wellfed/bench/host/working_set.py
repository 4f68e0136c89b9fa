"""Latency and read bandwidth by working set, from what fits in L1 to several times the last cache: the steps are the
caches, and where they lie says which blocks, tables and batches still fit. One thread, huge pages.

Powers of two and what is half again as large: a step shows where it is, and not only that it is."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from wellfed.bench import noise
from wellfed.bench.host import chase, pages, stream
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import (
    GIB,
    MIB,
    Scale,
    Setup,
    allowed_cpus,
    available_bytes,
    build_ceiling,
    cache_bytes,
    size_text,
)
from wellfed.bench.team import Team
from wellfed.model import Ceiling, Machine
from wellfed.predict import statistics

IDS = ("latency-by-size.*", "read-by-size.*")
WEIGHT = 2.0
EFFORT = "full"
MAX_S = 20.0
_SMALLEST = 4 << 10
_LARGEST = 1 * GIB
_MANY = 200
_SAMPLE_BYTES = 8 * MIB
"""A read sample is repeated passes of at least so many bytes: a tenth of a millisecond from L1."""


def needs(machine: Machine) -> str | None:
    """numba: numpy's own step hides the small caches, and none of its functions reads at the speed of L1."""
    if not stream.has_numba():
        return "the small caches need compiled loops: pip install 'wellfed[sim]'"
    if available_bytes(machine) < GIB:
        return "less than 1 GiB of memory is available"
    return None


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Both curves, size by size from the smallest, so that what is cut short is the large end."""
    numba, chaser = stream.import_numba(), chase.numba_chaser()
    if numba is None or chaser is None:
        raise OSError("numba can't be imported with this numpy")
    total = numba.njit("float64(float64[::1], int64)", nogil=True, fastmath=True)(_total)
    sizes = working_sets(setup.machine, budget_s)
    for number, size in enumerate(sizes):
        yield from _at_size(setup, size, chaser, total, budget_s / (len(sizes) - number + len(sizes)))


def working_sets(machine: Machine, budget_s: float) -> list[int]:
    """4 KiB to four times the last cache (of one group)."""
    l3 = cache_bytes(3, machine)
    group = l3 // max(machine.cpu.l3_groups or 1, 1) if l3 else 64 * MIB
    by_time = int(budget_s * 16 * MIB)
    largest = min(4 * group, _LARGEST, available_bytes(machine) // 8, max(by_time, _SMALLEST))
    powers = [_SMALLEST << step for step in range(40)]
    return sorted(size for power in powers for size in (power, power * 3 // 2) if size <= largest)


def size_name(size: int) -> str:
    """`1536kib`: the largest unit of which it is a whole number, as a dot would begin another part of the id."""
    return f"{size // MIB}mib" if size % MIB == 0 else f"{size // 1024}kib"


def _at_size(
    setup: Setup, size: int, chaser: chase.Chaser, total: Callable[..., float], budget_s: float
) -> Iterator[Ceiling]:
    before = noise.read_counters()
    cycle = chase.make_cycle(size, np.random.default_rng(7))
    numbers = pages.allocate(size, huge=True).view(np.float64)
    numbers.fill(1.0)
    l3 = cache_bytes(3, setup.machine)
    runs: dict[str, Run] = {
        "latency": chase.walker(chaser, cycle, warm=size <= (l3 or 32 * MIB)),
        "read": _reader(total, numbers),
    }
    samples: dict[str, list[float]] = {}
    with Team(allowed_cpus()[-1:]) as team:
        team.run(lambda _: samples.update(interleave(runs, budget_s, at_least=5)))
    environment = {
        "bytes": size,
        "huge_page_share": pages.huge_share(numbers) if size >= pages.HUGE else None,
        "version": chaser.version,
    }
    shared: dict[str, Any] = {
        "size": size_text(size), "threads": 1, "tier": "numba", "environment": environment,
    }  # fmt: skip
    name = size_name(size)
    # Hundreds of samples of a few microseconds have outliers by nature; best and median stand all the same.
    max_cv = None if len(samples["read"]) >= _MANY else statistics.NOISY_CV
    latency = Scale(
        unit="ns", higher_is_better=False, max_cv=max_cv,
        band=(0.5, 600.0), band_source="L1 to memory of server CPUs",
    )  # fmt: skip
    read = Scale(
        unit="GB/s", max_cv=max_cv, band=(1.0, 1000.0), band_source="memory to two vectors a cycle from L1"
    )
    yield build_ceiling(
        setup, before, samples["latency"], latency, id=f"latency-by-size.{name}",
        title=f"dependent load in {size_text(size)}", method=f"random cycle of 64 B lines: {chaser.method}", **shared,
    )  # fmt: skip
    yield build_ceiling(
        setup, before, samples["read"], read, id=f"read-by-size.{name}",
        title=f"read in {size_text(size)}", method="sum of doubles compiled by numba", dtype="float64", **shared,
    )  # fmt: skip


def _reader(total: Callable[..., float], numbers: stream.Array) -> Run:
    passes = max(1, _SAMPLE_BYTES // numbers.nbytes)

    def run() -> float:
        start = time.perf_counter()
        total(numbers, passes)
        return passes * numbers.nbytes / (time.perf_counter() - start) / 1e9

    return run


def _total(numbers, passes):  # type: ignore[no-untyped-def]  # compiled from its source
    result = 0.0
    for _ in range(passes):
        part = 0.0
        for i in range(numbers.shape[0]):
            part += numbers[i]
        result += part * result  # what each pass gives matters to the next: none is left out
    return result
