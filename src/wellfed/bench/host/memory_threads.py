"""Memory bandwidth by the number of threads: how many it takes to fill the memory's channels, so how many cores a data
loader, an offloaded optimizer or a tokenizer can have before they take from each other.

Triad as in `memory_bandwidth`; threads fill the cores of one NUMA node before the next, and second hyperthreads last.
"""

from collections.abc import Sequence

from wellfed.bench import noise
from wellfed.bench.host import memory_bandwidth
from wellfed.bench.setup import Setup, allowed_cpus, usable_threads
from wellfed.model import Ceiling, Machine
from wellfed.model.machine import CpuThread

IDS = ("memory-threads.*",)
WEIGHT = 2.0
EFFORT = "full"
MAX_S = 20.0


def needs(machine: Machine) -> str | None:
    """More than one thread, and memory."""
    if usable_threads(machine) < 2:
        return "one thread is all that may run here; memory-triad.1 is its bandwidth"
    return memory_bandwidth.needs(machine)


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Triad with 1, 2, 4... and all threads, in turn."""
    before = noise.read_counters()
    counts = thread_counts(usable_threads(setup.machine))
    cpus = cpu_order(allowed_cpus(), setup.machine.cpu.threads or ())
    teams = {str(count): count for count in counts}
    found = memory_bandwidth.measure_teams(setup.machine, teams, ("triad",), budget_s, cpus=cpus)
    return [
        memory_bandwidth.ceiling_of(
            setup, before, f"memory-threads.{which}", "triad", which, found["triad", which]
        )
        for which in teams
    ]


def thread_counts(most: int) -> list[int]:
    """1, 2, 4... and `most`, which may be none of them."""
    counts = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return [*counts, most]


def cpu_order(allowed: Sequence[int], threads: Sequence[CpuThread]) -> list[int]:
    """The allowed CPUs, one of each core before the second of any, and node by node within that. CPUs of which nothing
    is known keep their order, last."""
    known = {thread.id: thread for thread in threads}
    seen: dict[object, int] = {}
    keys: dict[int, tuple[int, int, int]] = {}
    for cpu in sorted(allowed):
        thread = known.get(cpu)
        if thread is None or thread.core is None:
            keys[cpu] = (1 << 20, 0, cpu)
            continue
        sibling = seen.get(thread.core, 0)
        seen[thread.core] = sibling + 1
        keys[cpu] = (sibling, thread.node or 0, cpu)
    return sorted(allowed, key=lambda cpu: keys[cpu])
