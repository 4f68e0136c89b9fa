"""Bandwidth and latency from the CPUs of each NUMA node to the memory of each: what it costs to be on the wrong side.

Memory is bound to its node while it is first touched (set_mempolicy), by threads of that node where it has CPUs; where
a sandbox forbids the binding, the first touch alone decides. Where the pages then are is read back from
/proc/self/numa_maps: a cell whose pages lie elsewhere is implausible, and says where they are.
"""

import ctypes
import os
import platform
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from wellfed.bench import noise
from wellfed.bench.host import chase, memory_bandwidth, pages, stream
from wellfed.bench.host.memory_bandwidth import Arrays
from wellfed.bench.repeat import interleave
from wellfed.bench.setup import MIB, Scale, Setup, allowed_cpus, available_bytes, build_ceiling, size_text
from wellfed.bench.team import Team
from wellfed.model import Ceiling, Machine
from wellfed.model.machine import NumaNode

IDS = ("numa-triad.*", "numa-latency.*")
WEIGHT = 4.0
EFFORT = "full"
MAX_S = 60.0
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_MPOL_DEFAULT, _MPOL_BIND = 0, 2
_HOME = 0.95
"""So much of the memory must lie where it was asked for."""
_CHASE_BYTES = 256 * MIB


class Cell(NamedTuple):
    """CPUs of node `cpu_node` use memory of node `memory_node`."""

    cpu_node: int
    memory_node: int
    cpus: tuple[int, ...]
    memory_cpus: tuple[int, ...]


def needs(machine: Machine) -> str | None:
    """Two nodes with memory, and CPUs of one."""
    if len(memory_nodes(machine)) < 2:
        return "there is one NUMA node: all memory is as near"
    if not cells(machine, allowed_cpus()):
        return "no CPU that this process may use belongs to a known NUMA node"
    if available_bytes(machine) < 1024 * MIB:
        return "less than 1 GiB of memory is available"
    return None


def memory_nodes(machine: Machine) -> list[NumaNode]:
    """Nodes with memory; a node that does not say is taken to have some."""
    return [node for node in machine.numa if node.mem_bytes is None or node.mem_bytes > 0]


def cells(machine: Machine, allowed: Sequence[int]) -> list[Cell]:
    """The matrix, row by row; a node without CPUs of ours (CXL memory, or outside our cpuset) has no row."""
    ours = {node.id: tuple(cpu for cpu in node.cpus if cpu in set(allowed)) for node in machine.numa}
    return [
        Cell(cpu_node, memory.id, cpus, ours[memory.id])
        for cpu_node, cpus in ours.items()
        if cpus
        for memory in memory_nodes(machine)
    ]


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Triad by all CPUs of a node, and a dependent load by one, cell by cell; those of one memory node one after
    another, so that they share the arrays' size and the weather."""
    matrix = cells(setup.machine, allowed_cpus())
    chaser = chase.best_chaser()
    engine = memory_bandwidth.suited(memory_bandwidth.engines_for(("triad",)), "triad")[0]
    for cell in matrix:
        yield from _measure_cell(setup, cell, chaser, engine, budget_s / len(matrix))


def _measure_cell(
    setup: Setup, cell: Cell, chaser: chase.Chaser, engine: stream.Engine, budget_s: float
) -> Iterator[Ceiling]:
    before = noise.read_counters()
    touchers = cell.memory_cpus or cell.cpus[:1]
    by_time = int(budget_s * 256 * MIB)
    size = memory_bandwidth.plan_arrays(setup.machine, len(cell.cpus), by_time, 4).array_bytes
    arrays = Arrays(*(pages.allocate(size, huge=True).view(np.float64) for _ in range(3)))
    long = pages.allocate(min(_CHASE_BYTES, max(by_time // 4, 8 * MIB)), huge=True).view(np.uint64)
    bound: list[bool] = []

    def place(number: int) -> None:
        bound.append(bind_memory(cell.memory_node))
        try:
            for array in (*arrays.part(number, len(touchers)), *([long] if number == 0 else [])):
                array.fill(1)
        finally:
            bind_memory(None)

    with Team(touchers) as team:
        team.run(place)
    # Made in any memory, then copied: the pages of `long` are already where they belong.
    cycle = chase.make_cycle(long.nbytes, np.random.default_rng(1))
    np.copyto(long, cycle)
    del cycle
    fields = _fields(setup, cell, size, [pages.nodes_of(arrays.a), pages.nodes_of(long)], all(bound))
    with Team(cell.cpus) as team:
        runs = {"triad": memory_bandwidth.team_run(team, arrays, engine, "triad")}
        left_s = max(budget_s - (time.monotonic() - before.at_s), 0.0)
        rates = interleave(runs, left_s * 0.6)["triad"]
    yield build_ceiling(
        setup, before, rates, _RATE,
        id=f"numa-triad.{cell.cpu_node}.{cell.memory_node}",
        title=f"triad, CPUs of node {cell.cpu_node}, memory of node {cell.memory_node}",
        method=f"{engine.how['triad']}, 24 B a double", tier=engine.name.partition(",")[0],
        size=f"3 arrays of {size_text(size)}", dtype="float64", threads=len(cell.cpus), **fields,
    )  # fmt: skip
    steps: dict[str, list[float]] = {}
    with Team(cell.cpus[-1:]) as team:
        walk = chase.walker(chaser, long, warm=False)
        team.run(lambda _: steps.update(interleave({"latency": walk}, left_s * 0.3)))
    yield build_ceiling(
        setup, before, steps["latency"], _LATENCY,
        id=f"numa-latency.{cell.cpu_node}.{cell.memory_node}",
        title=f"dependent load, CPU of node {cell.cpu_node}, memory of node {cell.memory_node}",
        method=f"random cycle of 64 B lines: {chaser.method}", tier=chaser.name,
        size=size_text(long.nbytes), threads=1, **fields,
    )  # fmt: skip


_RATE = Scale(unit="GB/s", band=(1.0, 1700.0), band_source="one far channel to on-package HBM")
_LATENCY = Scale(
    unit="ns",
    higher_is_better=False,
    band=(40.0, 1000.0),
    band_source="near DRAM to far CXL memory",
)


def _fields(
    setup: Setup, cell: Cell, size: int, placed: list[dict[int, int] | None], bound: bool
) -> dict[str, Any]:
    """What both ceilings of a cell say of where the memory is."""
    home = home_share(placed, cell.memory_node)
    distance = distance_of(setup.machine, cell)
    fields: dict[str, Any] = {
        "environment": {
            "distance": distance,
            "on_node_share": None if home is None else round(home, 3),
            "binding": "set_mempolicy" if bound else "first touch",
        }
    }
    if home is None:
        fields["why"] = "where the pages lie could not be read back"
    elif home < _HOME:
        fields["verdict"] = "implausible"
        fields["why"] = f"{1 - home:.0%} of the memory is not on node {cell.memory_node}"
    return fields


def home_share(placed: Sequence[dict[int, int] | None], node: int) -> float | None:
    """The smallest share of pages on `node` over several mappings; None when one of them is not known."""
    shares = []
    for by_node in placed:
        if by_node is None:
            return None
        shares.append(by_node.get(node, 0) / max(sum(by_node.values()), 1))
    return min(shares, default=None)


def distance_of(machine: Machine, cell: Cell) -> int | None:
    """What the firmware says of this cell (10 is local)."""
    nodes = machine.numa
    order = [node.id for node in nodes]
    row = next((node.distances for node in nodes if node.id == cell.cpu_node), None)
    at = order.index(cell.memory_node)
    return row[at] if row is not None and at < len(row) else None


def bind_memory(node: int | None) -> bool:
    """Let new pages of this thread come from `node` alone, or from anywhere again. False where that can't be done: an
    unknown machine, a sandbox without the call, a node outside our cpuset."""
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None or platform.system() != "Linux" or not hasattr(os, "sched_setaffinity"):
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    if node is None:
        return bool(call(number, _MPOL_DEFAULT, None, ctypes.c_ulong(0)) == 0)
    words = (ctypes.c_ulong * 16)()
    words[node // 64] = 1 << node % 64
    return bool(call(number, _MPOL_BIND, words, ctypes.c_ulong(64 * 16 + 1)) == 0)
