"""Where the processes of one job go on a machine: CPUs, memory, NICs and variables of each rank, and why."""

from wellfed.model.base import Value

MODES: dict[str, str] = {
    "node": "all CPUs near the GPU; ranks of one node share them",
    "exclusive": "cores of its own, near the GPU, an even share",
    "l3": "whole L3 groups of its own, near the GPU",
    "socket": "all CPUs of the GPU's socket",
    "spread": "every allowed CPU, memory interleaved: for I/O pools and servers of shared caches",
    "split": "cores of its own for the launching threads, the rest of the node for loaders and helpers",
}
DISJOINT = ("exclusive", "l3", "split")
"""Modes in which no two ranks share a CPU."""
POLICIES = ("preferred", "bind", "interleave", "none")


class PlaceRequest(Value, frozen=True, kw_only=True):
    """What is to be placed. `ranks` is the number of processes of the job on this machine (None: one a visible GPU),
    `visible` the GPUs they see in their order, as CUDA_VISIBLE_DEVICES writes them (None: all). `allowed` replaces what
    was seen of affinity and cpuset. `workers` is how many loader processes each rank starts. With `alone` a launcher has
    given the allowed CPUs to these ranks and to nobody else, so that other GPUs' shares are not kept free. `memory`
    None takes the mode's own. `reserve` leaves a core of each node to the system where cores are plenty. `pinned_bytes` is
    how much memory a rank expects to pin, None when unknown."""

    mode: str = "node"
    ranks: int | None = None
    visible: tuple[str, ...] | None = None
    allowed: tuple[int, ...] | None = None
    workers: int = 0
    memory: str | None = None
    alone: bool = False
    reserve: bool = True
    pinned_bytes: int | None = None


class RankPlace(Value, frozen=True, kw_only=True):
    """The place of one rank. `gpu` is the physical index (None: no GPU), `nodes` the NUMA nodes of `cpus`. `other_cpus` are for
    its loaders and helper threads in mode `split`, empty in the others. `memory_nodes` is empty for policy `none`.
    `environment` holds variables to set where they are not set yet; `reasons` says why, by `gpu`, `cpus`, `memory`, `nics`."""

    rank: int
    gpu: int | None = None
    uuid: str | None = None
    address: str | None = None
    cpus: tuple[int, ...] = ()
    other_cpus: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    memory_policy: str = "none"
    memory_nodes: tuple[int, ...] = ()
    nics: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    reasons: dict[str, str] = {}


class Placement(Value, frozen=True, kw_only=True):
    """`asked` is the mode asked for, `mode` the one used; they differ when the machine has no room, and a warning says so.
    `gpus` counts the physical GPUs, `allowed` are the CPUs that may be used, `reserved` those left to the system."""

    asked: str
    mode: str
    gpus: int = 0
    allowed: tuple[int, ...] = ()
    reserved: tuple[int, ...] = ()
    ranks: tuple[RankPlace, ...] = ()
    warnings: tuple[str, ...] = ()


def cpu_ranges(cpus: tuple[int, ...]) -> str:
    """`0-3,8` of (0, 1, 2, 3, 8): as the kernel writes lists."""
    out: list[str] = []
    run: list[int] = []
    for cpu in (*sorted(cpus), -1):
        if run and cpu != run[-1] + 1:
            out.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
            run = []
        run.append(cpu)
    return ",".join(out)
