"""Memory bandwidth by torch's own kernels: the second method beside numba's, and what tensors on the CPU really get.

torch.add and copy_ on threads that start together and stay on their CPUs, as in `memory_bandwidth`, on arrays of the same
kind. Where numba is missing, this is the triad in one pass that numpy does not have.
"""

from wellfed.bench import noise
from wellfed.bench.host import memory_bandwidth, stream
from wellfed.bench.setup import Setup, usable_threads
from wellfed.model import Ceiling, Machine, WellfedError

IDS = ("memory-copy.torch", "memory-triad.torch")
WEIGHT = 1.0
EFFORT = "full"
ISOLATE = True
MAX_S = 10.0
_KERNELS = ("copy", "triad")


def needs(machine: Machine) -> str | None:
    if not stream.has_torch():
        return "torch is not installed: pip install 'wellfed[torch]'"
    return memory_bandwidth.needs(machine)


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Copy and triad with all threads."""
    engine = stream.torch_engine()
    if engine is None:
        raise WellfedError("torch is not installed", hint="pip install 'wellfed[torch]'")
    before = noise.read_counters()
    teams = {"all": usable_threads(setup.machine)}
    found = memory_bandwidth.measure_teams(setup.machine, teams, _KERNELS, budget_s, [engine])
    return [
        memory_bandwidth.ceiling_of(
            setup, before, f"memory-{kernel}.torch", kernel, "all", found[kernel, "all"]
        )
        for kernel in _KERNELS
    ]
