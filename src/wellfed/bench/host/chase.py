"""A walk through a random cycle of cache lines, one dependent load a step: by numba a loop of loads, else by numpy.

numpy's walk is `np.take(cycle, path[:-1], out=path[1:], mode="wrap")`: it reads the index that it has just written, so
each load waits for the one before. That numpy does not copy the overlapping arguments first is no promise of numpy's,
so `walks` checks that the path is a path. Its step costs about 2 ns more than a loop's (the index goes through the
store buffer). Checked against a C pointer chase: benchmarks/stream_vs_c.py.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wellfed.bench.host import pages, stream
from wellfed.bench.repeat import Run

LINE = 64
STEPS = 8192
"""Steps a sample: a millisecond from memory, far above what the clock costs."""

Cycle = npt.NDArray[np.uint64]


class Chaser(NamedTuple):
    """`walk(cycle, place, steps)` returns where it ended."""

    name: str
    version: str
    walk: Callable[[Cycle, int, int], int]
    method: str


def make_cycle(size: int, rng: np.random.Generator, *, huge: bool = True) -> Cycle:
    """An array of `size` bytes whose first word of each line holds the index of the next line of one random
    cycle through all of them: no prefetcher guesses it."""
    order = rng.permutation(size // LINE).astype(np.uint64) * np.uint64(LINE // 8)
    cycle = pages.allocate(size // LINE * LINE, huge=huge).view(np.uint64)
    cycle[order] = np.roll(order, -1)
    return cycle


def copy_cycle(cycle: Cycle, *, huge: bool) -> Cycle:
    """The same walk in other pages, much faster made than a new one."""
    other = pages.allocate(cycle.nbytes, huge=huge).view(np.uint64)
    np.copyto(other, cycle)
    return other


def best_chaser() -> Chaser:
    return numba_chaser() or numpy_chaser()


def numba_chaser() -> Chaser | None:
    numba = stream.import_numba()
    if numba is None:
        return None
    # Unsigned: a signed index may be negative, and the test for it would lengthen each step.
    compiled = numba.njit("uint64(uint64[::1], uint64, int64)", nogil=True, error_model="numpy")(_chase)
    return Chaser("numba", numba.__version__, compiled, "a loop of dependent loads compiled by numba")


def _chase(cycle, place, steps):  # type: ignore[no-untyped-def]  # compiled from its source
    for _ in range(steps):
        place = cycle[place]
    return place


def numpy_chaser() -> Chaser:
    path = np.zeros(STEPS + 1, dtype=np.intp)

    def walk(cycle: Cycle, place: int, steps: int) -> int:
        path[0] = place
        signed = cycle.view(np.intp)
        while steps > 0:
            count = min(steps, STEPS)
            take(signed, path[: count + 1])
            path[0] = path[count]
            steps -= count
        return int(path[0])

    return Chaser(
        "numpy",
        np.__version__,
        walk,
        "overlapping np.take, about 2 ns of each step its own",
    )


def take(cycle: npt.NDArray[np.intp], path: npt.NDArray[np.intp]) -> None:
    """Fills path[1:] from path[0]."""
    np.take(cycle, path[:-1], out=path[1:], mode="wrap")


def walks(cycle: Cycle) -> bool:
    """Whether one overlapping take makes a path: each entry the successor of the one before."""
    signed, path = cycle.view(np.intp), np.zeros(65, dtype=np.intp)
    take(signed, path)
    return len(set(path.tolist())) == len(path) and bool(np.array_equal(path[1:], signed[path[:-1]]))


def cannot_walk() -> str | None:
    """Why no walk is possible here; None when one is."""
    if stream.has_numba() or walks(make_cycle(8 << 10, np.random.default_rng(0))):
        return None
    return f"numpy {np.__version__} copies overlapping arguments of np.take, so it can't chase pointers"


def walker(chaser: Chaser, cycle: Cycle, *, warm: bool = True, start_line: int = 0) -> Run:
    """Each run goes on where the last one stopped; nanoseconds a step. `warm`: all lines are read first. Walkers of
    one cycle need starts of their own: one behind another finds its lines in the cache."""
    place = start_line * LINE // 8

    def run() -> float:
        nonlocal place
        if warm:
            place = chaser.walk(cycle, place, len(cycle) * 8 // LINE)
        start = time.perf_counter_ns()
        place = chaser.walk(cycle, place, STEPS)
        return (time.perf_counter_ns() - start) / STEPS

    return run
