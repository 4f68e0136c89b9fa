"""Load-to-use latency by level: a walk through a random cycle of cache lines (see `chase`).

Memory twice: in huge pages, and in pages of 4 KiB, where each load also takes a walk through the page tables. What
lies between the two is what huge pages are worth to random access (embedding tables, hash joins, Python objects).
"""

import time
from typing import NamedTuple

import numpy as np

from wellfed.bench import noise
from wellfed.bench.host import chase, pages
from wellfed.bench.host.chase import LINE, STEPS, Chaser, Cycle
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
from wellfed.predict.statistics import percentile

IDS = ("latency-l2", "latency-l3", "latency-memory", "latency-memory-4k")
WEIGHT = 3.0
EFFORT = "quick"
_LOOP_BYTES = 8 << 10
_LINES_PER_BUDGET_S = 1_000_000
"""A shuffled cycle of a million lines takes a sixth of a second to build, and a copy of it a little more."""
_DOMINATED = 0.5

BANDS: dict[str, tuple[float, float]] = {
    "latency-l2": (1.5, 30.0),
    "latency-l3": (5.0, 200.0),
    "latency-memory": (40.0, 600.0),
    "latency-memory-4k": (40.0, 1200.0),
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
    """A little memory, and something that walks."""
    if available_bytes(machine) < GIB // 4:
        return "less than 256 MiB of memory are available"
    return chase.cannot_walk()


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """The latency of each cache level and of memory, on one pinned CPU."""
    before = noise.read_counters()
    chaser = chase.best_chaser()
    levels = choose_levels(setup.machine, budget_s)
    cycles = make_cycles(levels)
    runs: dict[str, Run] = {"loop": chase.walker(chaser, cycles["loop"])}
    runs |= {level.id: chase.walker(chaser, cycles[level.id], warm=level.cached) for level in levels}
    samples: dict[str, list[float]] = {}

    def work(_: int) -> None:
        samples.update(interleave(runs, budget_s - (time.monotonic() - before.at_s)))

    with Team(allowed_cpus()[-1:]) as team:
        team.run(work)
    loop_ns = percentile(samples["loop"], 50)
    return [
        _ceiling(setup, before, level, samples[level.id], loop_ns, chaser, cycles[level.id])
        for level in levels
    ]


def make_cycles(levels: list[Level]) -> dict[str, Cycle]:
    """A cycle for each level, and a small one to know the loop's own time by."""
    rng = np.random.default_rng(20)
    cycles = {"loop": chase.make_cycle(_LOOP_BYTES, rng)}
    for level in levels:
        if level.id == "latency-memory-4k":
            cycles[level.id] = chase.copy_cycle(cycles["latency-memory"], huge=False)
        else:
            cycles[level.id] = chase.make_cycle(level.set_bytes, rng)
    return cycles


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
    over = size / l3 if l3 else None
    levels.append(Level("latency-memory", "memory latency", size, False, over))
    levels.append(Level("latency-memory-4k", "memory latency, 4 KiB pages", size, False, over))
    return levels


def _ceiling(
    setup: Setup,
    before: noise.Counters,
    level: Level,
    samples: list[float],
    loop_ns: float,
    chaser: Chaser,
    cycle: Cycle,
) -> Ceiling:
    fields: dict[str, str] = {}
    if chaser.name == "numpy" and loop_ns > _DOMINATED * percentile(samples, 50):
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
    huge = pages.huge_share(cycle)
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
        method=f"random cycle of 64 B lines, {STEPS} steps a sample: {chaser.method}",
        tier=chaser.name,
        size=size_text(level.set_bytes),
        threads=1,
        environment={
            "version": chaser.version,
            "l1_step_ns": round(loop_ns, 2),
            "huge_page_share": None if huge is None else round(huge, 2),
        },
        **fields,
    )
