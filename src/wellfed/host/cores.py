"""Which logical CPUs share a core, a package, a NUMA node and an L3 cache.

Old kernels print masks, new ones lists; some numbers are sparse, some machines have no ids at all. Groups are
therefore made from sibling sets where they exist, and numbered by their lowest CPU."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from wellfed.host.cpuinfo import CpuInfo
from wellfed.host.door import Host
from wellfed.host.parse import (
    MAX_CPUS,
    MAX_NODES,
    cpu_list,
    cpu_mask,
    integer,
    numbered,
    plain,
    size_bytes,
)

CPU = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"
_DEEPEST = 4
"""Levels of nodes inside one another that are believed."""
EFFICIENCY_BELOW = 0.85
"""Share of the best `cpu_capacity` under which a core counts as an efficiency core: DynamIQ performance cores
of one machine differ by 3 % (GB10: 997 to 1024), its efficiency cores stand at 71 %."""


def present_cpus(host: Host, info: CpuInfo) -> tuple[tuple[int, ...], str]:
    """CPUs that are plugged in, online or not, and the source."""
    said = host.read(f"{CPU}/present")
    folders = numbered(host.listdir(CPU), "cpu")
    if said.text is not None:
        try:
            return cpu_list(said.text), said.source
        except ValueError:
            pass
    if folders:
        return folders, f"{CPU}/cpu*"
    return info.ids, "/proc/cpuinfo"


def online_cpus(host: Host, info: CpuInfo) -> tuple[tuple[int, ...], str]:
    """CPUs that run, and the source: the list, else the switch of each CPU (CPU 0 has none where it cannot be
    switched off), else cpuinfo, which shows only online ones, else the lines of `/proc/stat`."""
    said = host.read(f"{CPU}/online")
    if said.text is not None:
        try:
            return cpu_list(said.text), said.source
        except ValueError:
            pass
    folders = numbered(host.listdir(CPU), "cpu")
    if folders and any(host.exists(f"{CPU}/cpu{cpu}/topology") for cpu in folders):
        on = tuple(cpu for cpu in folders if (host.read(f"{CPU}/cpu{cpu}/online").text or "1").strip() != "0")
        return on, f"{CPU}/cpu*/online"
    if info.ids:
        return info.ids, "/proc/cpuinfo"
    lines = (host.read("/proc/stat").text or "").splitlines()
    listed = numbered((line.split()[0] for line in lines if line.strip()), "cpu")
    return (listed, "/proc/stat") if listed else (folders, f"{CPU}/cpu*")


def read_threads(
    host: Host, info: CpuInfo, online: tuple[int, ...], present: tuple[int, ...]
) -> tuple[list[dict[str, Any]], int | None]:
    """Rows for `CpuThread` by CPU number, and the bytes of all L3 caches together (None when none is shown)."""
    rows: dict[int, dict[str, Any]] = {cpu: {"id": cpu} for cpu in present}
    rows.update({cpu: {"id": cpu, "online": False} for cpu in present if cpu not in set(online)})
    rows.update({cpu: {"id": cpu, "online": True} for cpu in online})
    _put(rows, "core", _cores(host, info, online))
    _put(rows, "package", _packages(host, info, online))
    groups, l3_bytes = _l3_groups(host, online)
    _put(rows, "l3", _number(groups))
    # Largest first: of nodes inside one another the smallest is the nearest.
    by_size = sorted(cpu_nodes(host).items(), key=lambda item: -len(item[1]))
    _put(rows, "node", {cpu: node for node, cpus in by_size for cpu in cpus})
    capacities = _capacities(host, online)
    _put(rows, "capacity", capacities)
    _put(rows, "kind", _kinds(host, online, capacities))
    return [rows[cpu] for cpu in sorted(rows)], l3_bytes or None


def cpu_nodes(host: Host) -> dict[int, tuple[int, ...]]:
    """CPUs by node number; empty for a memory-only node, no entry where the kernel shows no nodes. Nothing at
    all where nodes overlap other than one inside another: firmware tables that wrong tell nothing."""
    nodes: dict[int, tuple[int, ...]] = {}
    total = 0
    for node in numbered(host.listdir(NODES), "node")[:MAX_NODES]:
        nodes[node] = node_cpus(host, node)[0]
        total += len(nodes[node])
        if total > _DEEPEST * MAX_CPUS:
            return {}
    sets = [set(cpus) for cpus in nodes.values() if cpus]
    nested = all(not a & b or a < b or b < a for a, b in itertools.combinations(sets, 2))
    return nodes if nested else {}


def node_cpus(host: Host, node: int) -> tuple[tuple[int, ...], str]:
    """CPUs of one node, and the source; `()` for a memory-only node."""
    listed = host.read(f"{NODES}/node{node}/cpulist")
    if listed.text is not None:
        try:
            return cpu_list(listed.text), listed.source
        except ValueError:
            pass
    mask = host.read(f"{NODES}/node{node}/cpumap")
    try:
        return cpu_mask(mask.text or "0"), mask.source
    except ValueError:
        return (), mask.source


def _put(rows: dict[int, dict[str, Any]], field: str, values: dict[int, Any]) -> None:
    for cpu, value in values.items():
        if cpu in rows:
            rows[cpu][field] = value


def _set(host: Host, cpu: int, folder: str, *names: str) -> tuple[int, ...]:
    """The first CPU set of these files that holds `cpu` itself, which not every kernel gets right; `_list`
    names hold lists, others masks."""
    for name in names:
        text = host.read(f"{folder}/{name}").text
        if text is None:
            continue
        try:
            found = cpu_list(text) if name.endswith("_list") else cpu_mask(text)
        except ValueError:
            continue
        if cpu in found:
            return found
    return ()


def _groups(cpus: Iterable[int], members: Callable[[int], tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Disjoint groups; `members` is asked once a group. What it says of CPUs already placed is ignored."""
    left = dict.fromkeys(cpus)
    groups = []
    while left:
        cpu = next(iter(left))
        group = tuple(other for other in members(cpu) if other in left)
        if not group:
            del left[cpu]
            continue
        groups.append(tuple(sorted(group)))
        for other in group:
            del left[other]
    return groups


def _number(groups: list[tuple[int, ...]]) -> dict[int, int]:
    return {cpu: number for number, group in enumerate(sorted(groups)) for cpu in group}


def _cores(host: Host, info: CpuInfo, online: tuple[int, ...]) -> dict[int, int]:
    names = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
    groups = _groups(online, lambda cpu: _set(host, cpu, f"{CPU}/cpu{cpu}/topology", *names))
    return _number(groups or _by_cpuinfo(info, "physical id", "core id"))


def _packages(host: Host, info: CpuInfo, online: tuple[int, ...]) -> dict[int, int]:
    """By id where the kernel gives one (with book and drawer, s390 numbers sockets within them); else by the
    set of siblings."""
    ids = {cpu: _package_id(host, cpu) for cpu in online}
    known = {cpu: key for cpu, key in ids.items() if key is not None}
    if known:
        firsts = {key[-1]: key for key in known.values()}
        if len(firsts) == len(set(known.values())):
            return {cpu: key[-1] for cpu, key in known.items()}
        order = sorted(set(known.values()))
        return {cpu: order.index(key) for cpu, key in known.items()}
    names = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
    groups = _groups(online, lambda cpu: _set(host, cpu, f"{CPU}/cpu{cpu}/topology", *names))
    return _number(groups or _by_cpuinfo(info, "physical id"))


def _package_id(host: Host, cpu: int) -> tuple[int, ...] | None:
    """(drawer, book, package) or (package,); None when unknown, which the kernel prints as -1."""
    folder = f"{CPU}/cpu{cpu}/topology"
    text = host.read(f"{folder}/physical_package_id").text
    try:
        package = integer(text or "")
    except ValueError:
        return None
    if package < 0:
        return None
    outer = (host.read(f"{folder}/{name}").text for name in ("drawer_id", "book_id"))
    return (*(number for number in map(plain, outer) if number is not None), package)


def _by_cpuinfo(info: CpuInfo, *fields: str) -> list[tuple[int, ...]]:
    groups: dict[tuple[str, ...], list[int]] = {}
    for cpu, row in info.rows.items():
        if all(field in row for field in fields):
            groups.setdefault(tuple(row[field] for field in fields), []).append(cpu)
    return [tuple(sorted(group)) for group in groups.values()]


def _l3_groups(host: Host, online: tuple[int, ...]) -> tuple[list[tuple[int, ...]], int]:
    """The groups and the bytes of all of them."""
    total = 0

    def members(cpu: int) -> tuple[int, ...]:
        nonlocal total
        folder = f"{CPU}/cpu{cpu}/cache"
        for index in reversed(host.listdir(folder)):
            if (
                not index.startswith("index")
                or (host.read(f"{folder}/{index}/level").text or "").strip() != "3"
            ):
                continue
            try:
                total += size_bytes(host.read(f"{folder}/{index}/size").text or "0")
            except ValueError:
                pass
            return _set(host, cpu, f"{folder}/{index}", "shared_cpu_list", "shared_cpu_map") or (cpu,)
        return ()

    return _groups(online, members), total


def _capacities(host: Host, online: tuple[int, ...]) -> dict[int, int]:
    if not online or not host.exists(f"{CPU}/cpu{online[-1]}/cpu_capacity"):
        return {}
    texts = {cpu: host.read(f"{CPU}/cpu{cpu}/cpu_capacity").text for cpu in online}
    return {cpu: number for cpu, text in texts.items() if (number := plain(text)) is not None}


def _kinds(host: Host, online: tuple[int, ...], capacities: dict[int, int]) -> dict[int, str]:
    """Intel hybrids have a perf event device a kind; older kernels a `types` folder; Arm has capacities."""
    kinds: dict[int, str] = {}
    for kind, folders in {
        "performance": ("/sys/devices/cpu_core/cpus", f"{CPU}/types/intel_core_0/cpulist"),
        "efficiency": ("/sys/devices/cpu_atom/cpus", f"{CPU}/types/intel_atom_0/cpulist"),
    }.items():
        for path in folders:
            text = host.read(path).text
            try:
                kinds.update(dict.fromkeys(cpu_list(text or ""), kind))
            except ValueError:
                continue
    if len(set(kinds.values())) > 1:
        return kinds
    if not capacities:
        return _kinds_by_clock(host, online)
    best = max(capacities.values(), default=0)
    kinds = {
        cpu: "efficiency" if capacity < EFFICIENCY_BELOW * best else "performance"
        for cpu, capacity in capacities.items()
    }
    return kinds if len(set(kinds.values())) > 1 else {}


def _kinds_by_clock(host: Host, online: tuple[int, ...]) -> dict[int, str]:
    """For Intel hybrids under kernels that know no kinds. Base and top clock must both be lower: favoured cores
    of one kind differ in the top clock only, prioritised cores (SST-BF) in the base clock only."""

    def clocks(cpu: int) -> tuple[int, int]:
        folder = f"{CPU}/cpu{cpu}/cpufreq"
        base, top = (
            plain(host.read(f"{folder}/{name}").text) for name in ("base_frequency", "cpuinfo_max_freq")
        )
        return (base, top) if base and top else (0, 0)

    # Hybrids number their efficiency cores last: equal ends spare hundreds of reads.
    if not online or clocks(online[0]) == clocks(online[-1]):
        return {}
    found = {cpu: clocks(cpu) for cpu in online}
    base, top = (max(pair[place] for pair in found.values()) for place in (0, 1))
    kinds = {
        cpu: "efficiency"
        if pair[0] < EFFICIENCY_BELOW * base and pair[1] < EFFICIENCY_BELOW * top
        else "performance"
        for cpu, pair in found.items()
        if pair != (0, 0)
    }
    return kinds if len(set(kinds.values())) > 1 else {}
