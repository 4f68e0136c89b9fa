"""Which node a rank's memory comes from. Policies are those of set_mempolicy(2)."""

from typing import NamedTuple

from wellfed.model.machine import Machine
from wellfed.model.placement import PlaceRequest, cpu_ranges
from wellfed.place.usable import Usable

BIND_ROOM = 1.5
"""Free memory that a bound node needs, as a multiple of what is to be pinned: a bound process that finds no free page on its
node is killed, not served from another."""


class MemoryPlace(NamedTuple):
    policy: str
    nodes: tuple[int, ...]
    reason: str
    warning: str | None = None


def memory_place(
    machine: Machine,
    request: PlaceRequest,
    mode: str,
    usable: Usable,
    cpus: frozenset[int],
    *,
    near: frozenset[int] | None,
) -> MemoryPlace:
    """`near` are the usable CPUs near the GPU, None when nothing is known of where it is. Memory-only nodes are never
    used: their memory is a GPU's, or slower."""
    policy = request.memory or ("interleave" if mode == "spread" else "preferred")
    # Who names the CPUs plans for another process than the one that looked.
    mems = None if request.allowed is not None else machine.container.cpuset_mems
    own = {core.node for core in usable.cores if cpus & set(core.cpus)}
    nodes = tuple(sorted(node for node in own if not mems or node in mems))
    if policy == "none":
        return MemoryPlace("none", (), "left to first touch, as asked")
    if len(usable.nodes) < 2:
        return MemoryPlace("none", (), "one node with CPUs: nothing to choose")
    if not nodes:
        text = (
            f"memory of nodes {cpu_ranges(tuple(own))} is outside the cpuset's nodes {cpu_ranges(mems or ())}"
        )
        return MemoryPlace("none", (), text, text)
    if policy == "interleave":
        return MemoryPlace("interleave", nodes, f"pages go round nodes {cpu_ranges(nodes)}")
    if policy == "bind":
        return _bound(machine, request, nodes)
    home = sorted(node for node in nodes if near and usable.nodes[node] & near)
    if len(home) == 1:
        return MemoryPlace("preferred", (home[0],), f"node {home[0]} first, others when it is full")
    if len(nodes) == 1:
        return MemoryPlace("preferred", nodes, f"node {nodes[0]} first, others when it is full")
    return MemoryPlace("none", (), f"CPUs of nodes {cpu_ranges(nodes)}: first touch serves each thread best")


def _bound(machine: Machine, request: PlaceRequest, nodes: tuple[int, ...]) -> MemoryPlace:
    free = [node.mem_free_bytes for node in machine.numa if node.id in nodes]
    need = request.pinned_bytes
    known = [count for count in free if count is not None]
    if need is not None and known and sum(known) < BIND_ROOM * need:
        text = (
            f"nodes {cpu_ranges(nodes)} have {sum(known) / 2**30:.1f} GiB free, less than {BIND_ROOM:g} times "
            f"the {need / 2**30:.1f} GiB to pin: preferred instead of bind"
        )
        return MemoryPlace("preferred", nodes[:1], text, text)
    return MemoryPlace("bind", nodes, f"only nodes {cpu_ranges(nodes)}, as asked")
