"""NUMA nodes: their CPUs, memory and distances."""

import re
from collections.abc import Callable

from wellfed.host.cores import NODES, cpu_nodes, node_cpus, online_cpus
from wellfed.host.cpuinfo import parse_cpuinfo
from wellfed.host.door import Host
from wellfed.host.parse import cpu_list, fact, gap, integer, known, numbered, size_bytes
from wellfed.model.fact import Fact

WEIGHTS = "/sys/kernel/mm/mempolicy/weighted_interleave"
SYSTEMD = "/run/systemd/system"
"""There as long as systemd is the first process."""


def read_numa(host: Host) -> list[Fact]:
    """Nodes by number. A kernel without NUMA has none, and some firmware puts a CPU in several: then one node
    holds all CPUs, and the fact says that this is how we count, not what the kernel says."""
    nodes = cpu_nodes(host)
    facts = _services(host, tuple(nodes))
    if not nodes:
        shown = numbered(host.listdir(NODES), "node")
        why = f"its {len(shown)} nodes share CPUs" if shown else "the kernel shows no NUMA nodes"
        return [*facts, *_one_node(host, why)]
    for place, (node, cpus) in enumerate(nodes.items()):
        key, folder = f"numa[{place}]", f"{NODES}/node{node}"
        source = node_cpus(host, node)[1]
        meminfo = host.read(f"{folder}/meminfo")
        facts += [
            known(f"{key}.id", node, folder),
            known(f"{key}.cpus", cpus, source),
            fact(f"{key}.mem_bytes", meminfo, _meminfo("MemTotal"), line="MemTotal"),
            fact(f"{key}.mem_free_bytes", meminfo, _meminfo("MemFree"), line="MemFree"),
            fact(f"{key}.file_bytes", meminfo, _meminfo("FilePages"), line="FilePages"),
            *_allocations(host, key, folder),
            fact(f"{key}.interleave_weight", host.read(f"{WEIGHTS}/node{node}"), integer),
            fact(f"{key}.distances", host.read(f"{folder}/distance"), _distances),
        ]
    return facts


def _services(host: Host, nodes: tuple[int, ...]) -> list[Fact]:
    """The memory policy that systemd has for itself and all it starts. Asked only where there is more than one node."""
    keys = ("kernel.systemd_numa_policy", "kernel.systemd_numa_mask")
    if len(nodes) < 2:
        return [gap(key, NODES, "unsupported", "there is one NUMA node") for key in keys]
    if not host.exists(SYSTEMD):
        return [gap(key, SYSTEMD, "unsupported", "systemd does not run here") for key in keys]
    reading = host.run("systemd-config")
    return [
        fact(
            keys[0], reading, lambda text: setting(text, "NUMAPolicy").lower() or "default", line="NUMAPolicy"
        ),
        fact(keys[1], reading, lambda text: mask(setting(text, "NUMAMask"), nodes), line="NUMAMask"),
    ]


def setting(text: str, name: str) -> str:
    """The value of the last line `name=value`; empty when there is none."""
    found = re.findall(rf"^[ \t]*{name}[ \t]*=[ \t]*(.{{0,400}}?)[ \t]*$", text, re.M)
    return str(found[-1]) if found else ""


def mask(text: str, nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Nodes of `0-1,3`, of `0 1 3` or of `all`."""
    return nodes if text == "all" else cpu_list(",".join(text.split()))


def _allocations(host: Host, key: str, folder: str) -> list[Fact]:
    """Pages by where they were wanted and where they came from, since boot."""
    reading = host.read(f"{folder}/numastat")
    return [
        fact(f"{key}.{field}", reading, _counter(name), line=name)
        for field, name in (("hits", "numa_hit"), ("misses", "numa_miss"), ("foreign", "numa_foreign"))
    ]


def _counter(name: str) -> Callable[[str], int | None]:
    def parse(text: str) -> int | None:
        found = re.search(rf"^{name}\s+([0-9]{{1,18}})\s*$", text, re.M)
        return int(found[1]) if found else None

    return parse


def _one_node(host: Host, why: str) -> list[Fact]:
    info = parse_cpuinfo(host.read("/proc/cpuinfo").text or "")
    online, source = online_cpus(host, info)
    if not online:
        return [gap("numa", NODES, detail="neither nodes nor CPUs can be seen")]
    detail = f"{why}: all CPUs are counted as one"
    return [
        known("numa[0].id", 0, source, detail=detail),
        known("numa[0].cpus", online, source, detail=detail),
        gap("numa[0].mem_bytes", NODES, detail=detail),
        gap("numa[0].mem_free_bytes", NODES, detail=detail),
        gap("numa[0].distances", NODES, detail=detail),
    ]


def _meminfo(name: str) -> Callable[[str], int | None]:
    def parse(text: str) -> int | None:
        match = re.search(rf"{name}:\s*(\d+\s*\w*)", text)
        return size_bytes(match.group(1)) if match else None

    return parse


def _distances(text: str) -> tuple[int, ...] | None:
    return tuple(map(integer, text.split())) or None
