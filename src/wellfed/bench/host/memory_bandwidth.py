"""Main memory bandwidth, as STREAM counts it: copy moves 16 bytes a double, triad 24; the line fetched before
it is overwritten is not counted.

Arrays are at least four times the last-level cache each, where memory allows. In a virtual machine the L3
shown may be the host's, shared with others. `np.copyto` is as fast as a C loop; numpy has no fused triad, so
ours makes two passes over a block that stays in cache and reaches 0.75 to 0.9 of C: a lower bound.
Each thread has arrays of its own, touched first by itself, so they lie on its NUMA node.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wellfed.bench import noise, statistics
from wellfed.bench.find import Effort
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

IDS = ("memory-copy.1", "memory-copy.all", "memory-triad.1", "memory-triad.all")
WEIGHT = 4.0
EFFORT: Effort = "quick"
BLOCK = 32 << 10
"""Doubles of one triad block: 256 KiB, which stays in any L2 of a server together with its two inputs."""
_MIN_ARRAY = 64 * MIB
_PROBE_DOUBLES = 2 * MIB
_SHARE_OF_BUDGET = 1 / 20
"""An array may be as large as its threads can touch in this share of the budget: touching three takes 3/20, and
about ten passes, several times faster than touching, as much again; the other team needs the other half."""
_MIN_PASS_S = 0.02
_BYTES = {"copy": 16, "triad": 24}

Array = npt.NDArray[np.float64]


class Arrays(NamedTuple):
    """a = b + s*c; copy writes b into a. `scratch` is one block."""

    a: Array
    b: Array
    c: Array
    scratch: Array


class Plan(NamedTuple):
    """`array_bytes` of each of the three arrays, over all threads; `over_cache` how often it holds the last-level
    cache that these threads use, None when its size is unknown."""

    threads: int
    array_bytes: int
    over_cache: float | None
    limit: str | None


def needs(machine: Machine) -> str | None:
    """None: it can run anywhere with a little memory."""
    if available_bytes(machine) < 24 * 3 * MIB:
        return "less than 72 MiB of memory are available"
    return None


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Copy and triad with one thread and with all that may run, in turn on the same arrays."""
    before = noise.read_counters()
    plans: dict[str, Plan] = {}
    runs: dict[str, Run] = {}
    with ExitStack() as stack:
        for which, threads in {"1": 1, "all": usable_threads(setup.machine)}.items():
            if which == "all" and threads == 1:
                continue
            team = stack.enter_context(Team(allowed_cpus()[:threads]))
            plan = plan_arrays(setup.machine, threads, affordable_bytes(team, budget_s))
            plans[which] = plan
            for kernel, run in team_runs(team, plan.array_bytes // 8 // threads).items():
                runs[f"memory-{kernel}.{which}"] = run
        samples = interleave(
            runs, budget_s - (time.monotonic() - before.at_s), at_least=statistics.MIN_SAMPLES
        )
    return [_ceiling(setup, before, key, samples[key], plans[key.rpartition(".")[2]]) for key in runs]


def affordable_bytes(team: Team, budget_s: float) -> int:
    """How large one array of this team may be for the benchmark to keep its budget, from a small trial."""

    def touch(_: int) -> None:
        make_arrays(_PROBE_DOUBLES)

    bytes_per_s = 3 * 8 * _PROBE_DOUBLES * team.size / max(team.run(touch), 1e-6)
    return int(bytes_per_s * budget_s * _SHARE_OF_BUDGET)


def plan_arrays(machine: Machine, threads: int, by_time: int) -> Plan:
    """How large the arrays should be, and what kept them smaller than the rule wants."""
    cache = cache_bytes(3, machine)
    if cache and threads == 1:
        cache //= max(machine.cpu.l3_groups or 1, 1)
    wanted = max(4 * (cache or 0), _MIN_ARRAY)
    # Six arrays (three for one thread, three for all) may take a quarter of what is available.
    by_memory = available_bytes(machine) // 24
    # Below the size of the cache it would be the cache that is measured, so time yields to that.
    size = max(min(wanted, by_memory, max(by_time, cache or 0)), 8 * BLOCK * threads)
    limit = None if size >= wanted else "memory" if by_memory <= by_time else "time"
    return Plan(threads, size, size / cache if cache else None, limit)


def team_runs(team: Team, doubles: int) -> dict[str, Run]:
    """Copy and triad of a team whose members have `doubles` a piece; each run returns GB/s."""
    sets: list[Arrays] = [_EMPTY] * team.size

    def touch(number: int) -> None:
        sets[number] = make_arrays(doubles)

    team.run(touch)

    def repeated(kernel: str) -> Run:
        work = KERNELS[kernel]
        passes = 0

        def job(number: int) -> None:
            for _ in range(passes):
                work(sets[number])

        def run() -> float:
            nonlocal passes
            first, passes = passes == 0, max(passes, 1)
            moved = passes * doubles * team.size * _BYTES[kernel]
            seconds = max(team.run(job), 1e-9)
            if first:  # short passes would measure the start of the threads instead of the memory
                passes = max(1, min(64, round(_MIN_PASS_S / seconds)))
            return moved / seconds / 1e9

        return run

    return {kernel: repeated(kernel) for kernel in KERNELS}


def make_arrays(doubles: int) -> Arrays:
    """Arrays that are written, so that each has pages of its own."""
    return Arrays(np.full(doubles, 0.5), np.full(doubles, 1.0), np.full(doubles, 2.0), np.zeros(BLOCK))


def copy(arrays: Arrays) -> None:
    """a = b"""
    np.copyto(arrays.a, arrays.b)


def triad(arrays: Arrays) -> None:
    """a = b + 3c, in blocks."""
    a, b, c, scratch = arrays
    for start in range(0, len(a), BLOCK):
        part = c[start : start + BLOCK]
        product = scratch[: len(part)]
        np.multiply(part, 3.0, out=product)
        np.add(product, b[start : start + BLOCK], out=a[start : start + BLOCK])


KERNELS: dict[str, Callable[[Arrays], None]] = {"copy": copy, "triad": triad}
_EMPTY = Arrays(*[np.empty(0)] * 4)


def _ceiling(setup: Setup, before: noise.Counters, key: str, samples: list[float], plan: Plan) -> Ceiling:
    kernel, _, which = key.removeprefix("memory-").partition(".")
    method = f"numpy {'np.copyto' if kernel == 'copy' else 'a = b + 3c by blocks of 256 KiB'}, {_BYTES[kernel]} B a double"
    reservations = []
    if kernel == "triad":
        reservations.append("a lower bound: numpy needs two passes, a C triad is up to a third faster")
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
        band=(2.0, 200.0 if which == "1" else 1700.0 * packages),
        band_source="physical limits: one DDR3 channel to "
        + ("what one core's misses in flight carry" if which == "1" else "on-package HBM a socket"),
    )
    return build_ceiling(
        setup,
        before,
        samples,
        scale,
        id=key,
        title=f"memory {kernel}, {'one thread' if which == '1' else 'all threads'}",
        method=method,
        tier="numpy",
        size=f"3 arrays of {size_text(plan.array_bytes)}",
        dtype="float64",
        threads=plan.threads,
        why="; ".join(reservations) or None,
        **verdict,
        environment={"numpy": np.__version__, "array_over_l3": plan.over_cache and round(plan.over_cache, 2)},
    )
