"""Load-to-use latency by working set: a walk through a random cycle of cache lines, one dependent load a step.

The walk runs at C speed inside numpy: `np.take(cycle, path[:-1], out=path[1:], mode="wrap")` reads the index
that it has just written, so each load waits for the one before. That numpy does not copy the overlapping
arguments first is no promise of numpy's, so each run checks that the path is a path, and refuses otherwise.
The step costs about 2 ns more than a C loop's (the index goes through the store buffer); the same walk in a
set that fits in L1, taken in turn, is given as `loop_ns` for comparison. Checked against a C pointer chase:
benchmarks/stream_vs_c.py.
"""

import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wellfed.bench import noise
from wellfed.bench.find import Effort
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
from wellfed.bench.statistics import percentile
from wellfed.bench.team import Team
from wellfed.model import Ceiling, Machine

IDS = ("latency-l2", "latency-l3", "latency-memory")
WEIGHT = 3.0
EFFORT: Effort = "quick"
LINE = 64
_STEPS = 8192
_LOOP_BYTES = 8 << 10
_LINES_PER_BUDGET_S = 1_500_000
"""A shuffled cycle of a million lines takes a sixth of a second to build."""
_DOMINATED = 0.5

Cycle = npt.NDArray[np.intp]

BANDS: dict[str, tuple[float, float]] = {
    "latency-l2": (1.5, 30.0),
    "latency-l3": (5.0, 200.0),
    "latency-memory": (40.0, 600.0),
}


class Level(NamedTuple):
    """`cached`: the set lies in a cache, so it is walked once before each sample, since the other sets have
    thrown it out. `over_cache` for memory: how often the set holds the L3; None when that is unknown."""

    id: str
    title: str
    set_bytes: int
    cached: bool = True
    over_cache: float | None = None


def needs(machine: Machine) -> str | None:
    """A little memory, and a numpy that walks."""
    if available_bytes(machine) < GIB // 4:
        return "less than 256 MiB of memory are available"
    if not walks(make_cycle(_LOOP_BYTES, np.random.default_rng(0))):
        return f"numpy {np.__version__} copies overlapping arguments of np.take, so it can't chase pointers"
    return None


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """The latency of each cache level and of memory, on one pinned CPU."""
    before = noise.read_counters()
    rng = np.random.default_rng(20)
    levels = choose_levels(setup.machine, budget_s)
    runs: dict[str, Run] = {"loop": walker(make_cycle(_LOOP_BYTES, rng))}
    samples: dict[str, list[float]] = {}

    def work(_: int) -> None:
        runs.update(
            {level.id: walker(make_cycle(level.set_bytes, rng), warm=level.cached) for level in levels}
        )
        samples.update(interleave(runs, budget_s - (time.monotonic() - before.at_s)))

    with Team(allowed_cpus()[-1:]) as team:
        team.run(work)
    loop_ns = percentile(samples["loop"], 50)
    return [_ceiling(setup, before, level, samples[level.id], loop_ns) for level in levels]


def choose_levels(machine: Machine, budget_s: float) -> list[Level]:
    """Sets that lie well inside each cache, and one beyond the last that time and memory allow."""
    l2, l3 = cache_bytes(2), cache_bytes(3, machine)
    if l3:
        l3 //= max(machine.cpu.l3_groups or 1, 1)
    levels = []
    if l2:
        levels.append(Level("latency-l2", "L2 cache latency", l2 // 2))
    if l2 and l3 and l3 >= 4 * l2:
        levels.append(Level("latency-l3", "L3 cache latency", min(l3 // 4, 8 * l2)))
    wanted = max(4 * (l3 or 0), 256 * MIB)
    by_time = int(budget_s * _LINES_PER_BUDGET_S * LINE)
    size = max(min(wanted, max(by_time, l3 or 0), available_bytes(machine) // 8), MIB)
    levels.append(Level("latency-memory", "memory latency", size, False, size / l3 if l3 else None))
    return levels


def make_cycle(size: int, rng: np.random.Generator) -> Cycle:
    """An array of `size` bytes whose first word of each line holds the index of the next line of one random
    cycle through all of them: no prefetcher guesses it."""
    order = rng.permutation(size // LINE).astype(np.intp) * (LINE // 8)
    # np.empty, unlike np.zeros, asks for huge pages; every line is written below.
    cycle = np.empty(size // 8, dtype=np.intp)
    cycle[order] = np.roll(order, -1)
    return cycle


def walks(cycle: Cycle) -> bool:
    """Whether one overlapping take makes a path: each entry the successor of the one before."""
    path = _walk(cycle, np.zeros(65, dtype=np.intp))
    return len(set(path.tolist())) == len(path) and bool(np.array_equal(path[1:], cycle[path[:-1]]))


def walker(cycle: Cycle, *, warm: bool = True) -> Run:
    """Each run goes on where the last one stopped; nanoseconds a step. `warm`: all lines are read first."""
    path = np.zeros(_STEPS + 1, dtype=np.intp)

    def run() -> float:
        if warm:
            for _ in range(-(-len(cycle) * 8 // LINE // _STEPS)):
                path[0] = path[-1]
                _walk(cycle, path)
        path[0] = path[-1]
        start = time.perf_counter_ns()
        _walk(cycle, path)
        return (time.perf_counter_ns() - start) / _STEPS

    return run


def _walk(cycle: Cycle, path: Cycle) -> Cycle:
    np.take(cycle, path[:-1], out=path[1:], mode="wrap")
    return path


def _ceiling(
    setup: Setup, before: noise.Counters, level: Level, samples: list[float], loop_ns: float
) -> Ceiling:
    fields: dict[str, str] = {}
    if loop_ns > _DOMINATED * percentile(samples, 50):
        fields = {
            "verdict": "noisy",
            "why": f"more than half of it is the loop itself ({loop_ns:.2g} ns a step)",
        }
    elif level.over_cache is not None and level.over_cache < 1:
        fields = {"verdict": "implausible", "why": "the set fits into the L3 that this machine shows"}
    elif level.over_cache is not None and level.over_cache < 4:
        fields = {
            "why": f"the set is {level.over_cache:.2g} times the L3, not 4: some loads may hit the cache"
        }
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(
            unit="ns",
            higher_is_better=False,
            band=BANDS[level.id],
            band_source="published latencies of server CPUs since 2015, wide",
        ),
        id=level.id,
        title=level.title,
        method=f"random cycle of 64 B lines walked by overlapping np.take, {_STEPS} steps a sample; "
        "includes about 2 ns of the loop's own and, with small pages, TLB misses",
        tier="numpy",
        size=size_text(level.set_bytes),
        threads=1,
        environment={"numpy": np.__version__, "loop_ns": round(loop_ns, 2)},
        **fields,
    )
