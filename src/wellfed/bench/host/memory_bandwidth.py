"""Main memory bandwidth, as STREAM counts it: copy and scale move 16 bytes a double, add and triad 24; the line fetched
before it is overwritten is not counted.

Each kernel is run by several engines in turn on the same arrays (`stream`), and the best is the ceiling; the next best
stands beside it. Arrays are at least four times the last-level cache each, where memory allows. In a virtual machine
the L3 shown may be the host's, shared with others. Each thread touches its part first, so it lies on its NUMA node.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from wellfed.bench import noise
from wellfed.bench.find import meets
from wellfed.bench.host import pages, stream
from wellfed.bench.host.stream import Array, Engine
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import (
    MIB,
    Scale,
    Setup,
    allowed_cpus,
    available_bytes,
    build_ceiling,
    cache_bytes,
    size_text,
    usable_threads,
)
from wellfed.bench.team import Team
from wellfed.model import Ceiling, Machine
from wellfed.predict import statistics

IDS = tuple(f"memory-{kernel}.{which}" for kernel in stream.KERNELS for which in ("1", "all"))
WEIGHT = 4.0
EFFORT = "quick"
QUICK_KERNELS = ("copy", "triad")
_MIN_ARRAY = 64 * MIB
_PROBE_BYTES = 16 * MIB
_PART = pages.HUGE
"""Parts of threads are whole huge pages: one that two threads share would lie on the node of the first."""
_SHARE_OF_BUDGET = 1 / 12
"""An array may be as large as its threads can touch in this share of the budget: touching three takes a quarter.
Passes are several times faster than touching, which faults pages in."""
_MIN_PASS_S = 0.02


class Arrays(NamedTuple):
    """One array each of all threads together; a thread works on its part."""

    a: Array
    b: Array
    c: Array

    def part(self, number: int, of: int) -> "Arrays":
        share = len(self.a) // of
        return Arrays(*(array[number * share : (number + 1) * share] for array in self))


class Plan(NamedTuple):
    """`array_bytes` of each of the three arrays, over all threads; `over_cache` how often it holds the last-level
    cache that these threads use, None when its size is unknown."""

    threads: int
    array_bytes: int
    over_cache: float | None
    limit: str | None


class Found(NamedTuple):
    """What one kernel gave with one team: samples by engine, and how much of the arrays lay in huge pages."""

    plan: Plan
    samples: dict[str, list[float]]
    engines: dict[str, Engine]
    huge: float | None


def needs(machine: Machine) -> str | None:
    """None: it can run anywhere with a little memory."""
    if available_bytes(machine) < 24 * 3 * MIB:
        return "less than 72 MiB of memory are available"
    return None


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """The kernels with one thread and with all that may run, in turn."""
    before = noise.read_counters()
    kernels = wanted_kernels(setup)
    teams = {"1": 1, "all": usable_threads(setup.machine)}
    if teams["all"] == 1:
        del teams["all"]
    # A plain loop of copy has np.copyto for company already; in the quick effort its compilation is too dear.
    loops = [kernel for kernel in kernels if setup.effort == "full" or kernel != "copy"]
    engines = engines_for(kernels, loops)
    left_s = budget_s - (time.monotonic() - before.at_s)
    found = measure_teams(setup.machine, teams, kernels, left_s, engines)
    return [
        ceiling_of(setup, before, f"memory-{kernel}.{which}", kernel, which, found[kernel, which])
        for kernel in kernels
        for which in teams
    ]


def wanted_kernels(setup: Setup) -> list[str]:
    """Copy and triad in the quick effort, all four in the full one; those of the ids that were asked for by name."""
    usual = stream.KERNELS if setup.effort == "full" else QUICK_KERNELS
    named = [
        kernel
        for kernel in stream.KERNELS
        if any(meets(wanted, f"memory-{kernel}.{n}") for wanted in setup.only for n in ("1", "all"))
    ]
    return named or list(usual)


def engines_for(kernels: Sequence[str], loops: Sequence[str] | None = None) -> list[Engine]:
    """All that can be had in this process, which torch is not imported into. `loops` are the kernels that are compiled as
    plain loops too; None for all."""
    compiled = (
        stream.past_cache_engine(kernels),
        stream.numba_engine(kernels if loops is None else loops),
    )
    return [*(engine for engine in compiled if engine), stream.numpy_engine()]


def measure_teams(
    machine: Machine,
    teams: dict[str, int],
    kernels: Sequence[str],
    budget_s: float,
    engines: Sequence[Engine] | None = None,
    cpus: Sequence[int] | None = None,
) -> dict[tuple[str, str], Found]:
    """Samples in GB/s of each kernel and team, all in turn. One set of arrays serves all teams of one size of array."""
    began = time.monotonic()
    engines = engines_for(kernels) if engines is None else engines
    cpus = allowed_cpus() if cpus is None else cpus
    runs: dict[tuple[str, str, str], Run] = {}
    plans: dict[str, Plan] = {}
    huge: dict[str, float | None] = {}
    with ExitStack() as stack:
        for which, threads in teams.items():
            team = stack.enter_context(Team(cpus[:threads]))
            left_s = max(budget_s - (time.monotonic() - began), budget_s / 3, 0.01)
            plan = plans[which] = plan_arrays(
                machine, threads, affordable_bytes(team, left_s) * 2 // len(teams), len(teams)
            )
            arrays = make_arrays(team, plan.array_bytes)
            huge[which] = pages.huge_share(arrays.a)
            for kernel in kernels:
                for engine in suited(engines, kernel):
                    runs[kernel, which, engine.name] = team_run(team, arrays, engine, kernel)
        left_s = budget_s - (time.monotonic() - began)
        named = {"/".join(key): run for key, run in runs.items()}
        samples = interleave(named, left_s, at_least=statistics.MIN_SAMPLES)
    by_name = {engine.name: engine for engine in engines}
    return {
        (kernel, which): Found(
            plans[which],
            {e.name: samples[f"{kernel}/{which}/{e.name}"] for e in suited(engines, kernel)},
            by_name,
            huge[which],
        )
        for kernel in kernels
        for which in teams
    }


def suited(engines: Sequence[Engine], kernel: str) -> list[Engine]:
    """Those that do the kernel in one pass; a lower bound only where there is nothing better."""
    able = [engine for engine in engines if kernel in engine.kernels]
    return [engine for engine in able if kernel not in engine.lower_bounds] or able


def affordable_bytes(team: Team, budget_s: float) -> int:
    """How large one array of this team may be for the benchmark to keep its budget, from a small trial."""

    def touch(_: int) -> None:
        for _ in range(3):
            pages.allocate(_PROBE_BYTES, huge=True).fill(1)

    bytes_per_s = 3 * _PROBE_BYTES * team.size / max(team.run(touch), 1e-6)
    return int(bytes_per_s * budget_s * _SHARE_OF_BUDGET)


def plan_arrays(machine: Machine, threads: int, by_time: int, sets: int = 2) -> Plan:
    """How large the arrays should be, and what kept them smaller than the rule wants."""
    cache = cache_bytes(3, machine)
    if cache and threads == 1:
        cache //= max(machine.cpu.l3_groups or 1, 1)
    wanted = max(4 * (cache or 0), _MIN_ARRAY)
    # All sets of three arrays may take a quarter of what is available.
    by_memory = available_bytes(machine) // (12 * sets)
    # Below the size of the cache it would be the cache that is measured, so time yields to that.
    size = max(min(wanted, by_memory, max(by_time, cache or 0)), 1)
    size = -(-size // (_PART * threads)) * _PART * threads
    limit = None if size >= wanted else "memory" if by_memory <= by_time else "time"
    return Plan(threads, size, size / cache if cache else None, limit)


def make_arrays(team: Team, array_bytes: int) -> Arrays:
    """Arrays in huge pages where the system gives them, each part written by the thread that will use it."""
    arrays = Arrays(*(pages.allocate(array_bytes, huge=True).view(np.float64) for _ in range(3)))

    def touch(number: int) -> None:
        for value, part in zip((0.5, 1.0, 2.0), arrays.part(number, team.size), strict=True):
            part.fill(value)

    team.run(touch)
    return arrays


def team_run(team: Team, arrays: Arrays, engine: Engine, kernel: str) -> Run:
    """One kernel by a whole team; each run returns GB/s."""
    work = engine.kernels[kernel]
    parts = [arrays.part(number, team.size) for number in range(team.size)]
    passes = 0

    def job(number: int) -> None:
        for _ in range(passes):
            work(*parts[number])

    def run() -> float:
        nonlocal passes
        first, passes = passes == 0, max(passes, 1)
        moved = passes * len(arrays.a) * stream.BYTES[kernel]
        seconds = max(team.run(job), 1e-9)
        if first:  # short passes would measure the start of the threads instead of the memory
            passes = max(1, min(64, round(_MIN_PASS_S / seconds)))
        return moved / seconds / 1e9

    return run


def ceiling_of(
    setup: Setup, before: noise.Counters, id: str, kernel: str, which: str, found: Found
) -> Ceiling:
    """The best engine's samples, judged; the next best stands in the environment."""
    plan, samples = found.plan, found.samples
    ranked = sorted(samples, key=lambda name: max(samples[name]), reverse=True)
    engine = found.engines[ranked[0]]
    reservations = []
    if kernel in engine.lower_bounds:
        reservations.append(f"a lower bound: numpy's {kernel} takes more passes than C's; {NUMBA_HINT}")
    if plan.limit and plan.over_cache is not None and plan.over_cache >= 1:
        reservations.append(
            f"the arrays are {plan.over_cache:.2g} times the L3, not 4 ({plan.limit}): some traffic may stay in cache"
        )
    verdict: dict[str, str] = {}
    if plan.over_cache is not None and plan.over_cache < 1:
        verdict["verdict"] = "implausible"
        reservations.append("the arrays fit into the L3 that this machine shows: this may be the cache")
    packages = setup.machine.cpu.packages or 1
    scale = Scale(
        unit="GB/s",
        band=(2.0, 200.0 if plan.threads == 1 else 1700.0 * packages),
        band_source="physical limits: one DDR3 channel to "
        + ("what one core's misses in flight carry" if plan.threads == 1 else "on-package HBM a socket"),
    )
    return build_ceiling(
        setup,
        before,
        samples[ranked[0]],
        scale,
        id=id,
        title=f"memory {kernel}, {_threads_text(which, plan.threads)}",
        method=f"{engine.how[kernel]}, {stream.BYTES[kernel]} B a double, best of {len(ranked)} engines in turn",
        tier=engine.name.partition(",")[0],
        size=f"3 arrays of {size_text(plan.array_bytes)}",
        dtype="float64",
        threads=plan.threads,
        why="; ".join(reservations) or None,
        **verdict,
        environment=_environment(found, ranked, kernel),
    )


NUMBA_HINT = "`pip install 'wellfed[sim]'` for numba's"


def _threads_text(which: str, threads: int) -> str:
    if which == "all":
        return "all threads"
    return "one thread" if threads == 1 else f"{threads} threads"


def _environment(found: Found, ranked: Sequence[str], kernel: str) -> dict[str, Any]:
    engines = {
        found.engines[name].how[kernel]: {
            "best": round(max(found.samples[name]), 2),
            "median": round(statistics.percentile(found.samples[name], 50), 2),
            "version": found.engines[name].version,
        }
        for name in ranked
    }
    return {
        "engines": engines,
        "array_over_l3": found.plan.over_cache and round(found.plan.over_cache, 2),
        "huge_page_share": None if found.huge is None else round(found.huge, 2),
    }
