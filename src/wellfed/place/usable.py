"""The cores that a job may use, and which node, L3 group and socket each is in."""

from collections.abc import Iterable
from typing import NamedTuple

from wellfed.model.machine import Machine
from wellfed.model.placement import DISJOINT, PlaceRequest


class Core(NamedTuple):
    """One physical core: its usable threads. `l3` is -1 when unknown. Cores sort by node, L3 group and number."""

    node: int
    l3: int
    number: int
    cpus: tuple[int, ...]
    efficient: bool = False


class Usable(NamedTuple):
    """`nodes` are the online CPUs of each node that has any, usable or not; `packages` the sockets of each node's CPUs."""

    cores: tuple[Core, ...]
    nodes: dict[int, frozenset[int]]
    packages: dict[int, frozenset[int]]
    warnings: tuple[str, ...]

    @property
    def cpus(self) -> frozenset[int]:
        return frozenset(cpu for core in self.cores for cpu in core.cpus)


def usable_cores(machine: Machine, request: PlaceRequest) -> Usable:
    """Online, allowed (affinity and cpuset, or what the request says), not isolated."""
    threads = {thread.id: thread for thread in machine.cpu.threads or ()}
    off = {thread.id for thread in threads.values() if not thread.online}
    # Memory-only nodes (GPU memory, CXL, persistent memory) run nothing.
    nodes = {node.id: frozenset(node.cpus) - off for node in machine.numa if node.cpus}
    # A node's list holds online CPUs only, and may know some that the recording's folders do not.
    online = frozenset(threads.keys() - off).union(*nodes.values())
    allowed, warnings = _allowed(machine, request, online)
    if request.mode in DISJOINT and any(cpu not in threads or threads[cpu].core is None for cpu in allowed):
        warnings.append("which CPUs share a core is not told: two ranks may get threads of one core")
    home = {cpu: node for node, cpus in nodes.items() for cpu in cpus}
    first = min(nodes, default=0)
    groups: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(allowed):
        core = threads[cpu].core if cpu in threads else None
        groups.setdefault((0, core) if core is not None else (1, cpu), []).append(cpu)
    cores = []
    for cpus in groups.values():
        thread = threads.get(cpus[0])
        node = home.get(cpus[0])
        if node is None:
            node = thread.node if thread and thread.node is not None else first
        l3 = thread.l3 if thread and thread.l3 is not None else -1
        efficient = thread is not None and thread.kind == "efficiency"
        cores.append(Core(node, l3, cpus[0], tuple(cpus), efficient))
    for found in cores:  # CPUs outside all nodes, or a kernel that shows none
        nodes[found.node] = nodes.get(found.node, frozenset()) | frozenset(found.cpus)
    sockets = {cpu: thread.package for cpu, thread in threads.items() if thread.package is not None}
    packages = {
        node: frozenset(sockets[cpu] for cpu in cpus if cpu in sockets) for node, cpus in nodes.items()
    }
    return Usable(tuple(sorted(cores)), nodes, packages, tuple(warnings))


def _allowed(
    machine: Machine, request: PlaceRequest, online: frozenset[int]
) -> tuple[frozenset[int], list[str]]:
    warnings: list[str] = []
    if request.allowed is not None:
        asked = frozenset(request.allowed)
        if asked - online and online:
            warnings.append(f"{len(asked - online)} of the CPUs asked for are not online")
        return asked & online, warnings
    allowed = online
    for cpus in (machine.cpu.allowed, machine.container.cpuset):
        if cpus:
            allowed &= frozenset(cpus)
    isolated = allowed & frozenset(machine.cpu.isolated or ())
    if isolated == allowed and isolated:
        warnings.append("all allowed CPUs are isolated from the scheduler: used as they are")
    else:
        allowed -= isolated
    return allowed, warnings


_FEW = 8


def reserve(cores: Iterable[Core], claims: int) -> tuple[Core, ...]:
    """The first core of each node, for interrupts and daemons, where there are more than 8 cores a claim; else none. Of
    nodes that have no more than 8 cores themselves (old servers have 2) one core of all is enough."""
    cores = tuple(cores)
    if not claims or len(cores) / claims <= _FEW:
        return ()
    nodes: dict[int, list[Core]] = {}
    for core in cores:
        nodes.setdefault(core.node, []).append(core)
    return tuple(found[0] for found in nodes.values() if len(found) > _FEW) or cores[:1]
