"""hwloc's XML (`lstopo topo.xml`), of versions 1, 2 and 3: CPUs, nodes, caches, PCI devices and what the system calls them.

Version 1 has sockets, caches by depth and nodes around their CPUs; since version 2 nodes stand beside, each with the CPUs
it is near to. Counts are of what the file shows: offline CPUs, and those that a cpuset hides, are not in it unless
lstopo was asked for them."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from wellfed.host.cores import EFFICIENCY_BELOW
from wellfed.host.forms.markup import Node, mask, members
from wellfed.host.parse import MAX_CPUS, MAX_NODES, gap, known, plain
from wellfed.host.pci import AMD, NVIDIA, is_gpu, pci_address, pci_id
from wellfed.host.stated import gpu_facts, numbered_groups, thread_facts
from wellfed.model.fact import Fact

FORM = "an lstopo XML"
_IO = ("Bridge", "PCIDev", "OSDev", "Misc")
_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]")
_NVML = re.compile(r"(?:nvml|rsmi)(\d{1,3})")
_DISK = re.compile(r"(?:nvme\d+n\d+|[sv]d[a-z]+)")
_MATTER = ("0x02", "0x0108")
_NVSWITCH = "0x0680"
_PORT_STATES = {"1": "DOWN", "2": "INIT", "3": "ARMED", "4": "ACTIVE"}
"""InfiniBand's numbers for the state of a port (ibv_port_state)."""
_BEFORE_3 = {"0": "storage", "1": "gpu", "2": "network", "3": "fabric", "4": "dma", "5": "gpu", "6": "memory"}
"""`osdev_type` was a number up to version 2 (5 is a coprocessor: CUDA and OpenCL before there was a GPU kind)."""
_SINCE_3 = ((32, "fabric"), (16, "network"), (4, "gpu"), (8, "gpu"), (1, "storage"))
"""Since then it is a set of bits. An RDMA device has the network's too."""
_DEEPEST = 4
"""Levels of nodes inside one another that are believed."""
_PCI_MAX = 4096
_LOCAL_MAX = 1 << 20
"""CPUs that may stand in the rows of all PCI devices together."""
_LATENCY = 4
"""Bit of `kind`: distances are latencies. Bit 1 says that they come from the system, not from a user."""
_SAID = {
    "CPUVendor": "vendor",
    "CPUModel": "model_name",
    "CPUFamilyNumber": "family",
    "CPUModelNumber": "model",
}


class Place(NamedTuple):
    """Where in the tree we are: numbers of the objects around us, and the CPUs (a mask) of the nearest that has any."""

    core: int | None = None
    package: int | None = None
    l3: int | None = None
    cpus: int = 0
    device: dict[str, Any] | None = None


class Seen:
    """What the walk gathers."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.count = 0
        self.pus: dict[int, Place] = {}
        self.packages: dict[int, int | None] = {}
        self.l3_bytes: list[int | None] = []
        self.nodes: list[tuple[int, int, Node]] = []
        self.pci: list[dict[str, Any]] = []
        self.systems: list[tuple[Node, Place]] = []
        self.info: dict[str, str] = {}

    @property
    def shown(self) -> int:
        """The CPUs of the file, as a mask."""
        return sum(1 << cpu for cpu in self.pus)


def read_lstopo(root: Node) -> list[Fact]:
    """Facts of a topology. Raises ValueError for one that contradicts itself."""
    machine = next(root.below("object"), None)
    if machine is None:
        raise ValueError("it has no object")
    seen = Seen(root.attrs.get("version", "1"))
    _note(seen, root)
    _walk(seen, machine, Place())
    if not seen.pus:
        raise ValueError("it shows no CPU")
    near = _nearest(seen)
    return [
        *_cpu(seen, root, machine, near),
        *_cpusets(machine),
        *_numa(seen, root, machine, near),
        *_devices(seen, near),
    ]


def _walk(seen: Seen, node: Node, place: Place) -> None:
    kind = node.attrs.get("type", "")
    seen.count += 1
    _note(seen, node)
    cpus = place.cpus
    if "cpuset" in node.attrs and kind not in _IO:
        cpus = mask(node.attrs["cpuset"])
    place = place._replace(cpus=cpus)
    if kind == "PU":
        number = _index(node, "PU", MAX_CPUS)
        if number in seen.pus:
            raise ValueError(f"CPU {number} is there twice")
        seen.pus[number] = place
    elif kind == "Core":
        place = place._replace(core=seen.count)
    elif kind in ("Package", "Socket"):
        seen.packages[seen.count] = node.number("os_index")
        place = place._replace(package=seen.count)
    elif kind == "L3Cache" or (kind == "Cache" and node.attrs.get("depth") == "3"):
        seen.l3_bytes.append(node.number("cache_size"))
        place = place._replace(l3=seen.count)
    elif kind == "NUMANode":
        seen.nodes.append((_index(node, "NUMANode", 1 << 31), cpus, node))
    elif kind in ("PCIDev", "Bridge"):
        place = place._replace(device=_pci(seen, node, place) or place.device)
    elif kind == "OSDev":
        seen.systems.append((node, place))
    for child in node.below("object"):
        _walk(seen, child, place)


def _note(seen: Seen, node: Node) -> None:
    for info in node.below("info"):
        seen.info.setdefault(info.attrs.get("name", ""), info.attrs.get("value", ""))


def _index(node: Node, kind: str, below: int) -> int:
    number = node.number("os_index")
    if number is None or number >= below:
        raise ValueError(f"a {kind} has the number `{node.attrs.get('os_index', '')[:20]}`")
    return number


# -- processors --------------------------------------------------------------------------------------------


def _cpu(seen: Seen, root: Node, machine: Node, near: dict[int, int]) -> list[Fact]:
    groups = {
        field: numbered_groups(
            {cpu: getattr(at, field) for cpu, at in seen.pus.items() if getattr(at, field) is not None}
        )
        for field in ("core", "l3")
    }
    online = _mask_of(machine, "online_cpuset")
    off = () if online is None else tuple(sorted(cpu for cpu in seen.pus if not online >> cpu & 1))
    capacities, kinds = _kinds(root)
    packages = _packages(seen)
    rows = [
        {
            "id": cpu,
            "core": groups["core"].get(cpu),
            "package": packages.get(cpu),
            "node": near.get(cpu),
            "l3": groups["l3"].get(cpu),
            "capacity": capacities.get(cpu),
            "kind": kinds.get(cpu),
            "online": cpu not in off,
        }
        for cpu in sorted(seen.pus)
    ]
    shown = {"packages": len(seen.packages), "l3_groups": len(seen.l3_bytes)}
    facts = thread_facts(rows, "lstopo: PU, Core, Package, L3Cache", FORM, shown)
    sizes = [size for size in seen.l3_bytes if size]
    if sizes and len(sizes) == len(seen.l3_bytes):
        facts.append(known("cpu.l3_bytes", sum(sizes), "lstopo: cache_size"))
    else:
        facts.append(gap("cpu.l3_bytes", "lstopo: cache_size", "unsupported", f"{FORM} does not tell"))
    hidden = ((_mask_of(machine, "complete_cpuset") or 0) & ~seen.shown).bit_count()
    if hidden:
        why = f"{hidden} CPUs are not shown: offline, or not allowed to the user of lstopo"
        facts.append(gap("cpu.offline", "lstopo: complete_cpuset", "unsupported", why))
    else:
        facts.append(known("cpu.offline", off, "lstopo: complete_cpuset"))
    return [*facts, *_said(seen)]


def _packages(seen: Seen) -> dict[int, int]:
    """By the system's number where each package has one of its own, else counted."""
    of = {cpu: at.package for cpu, at in seen.pus.items() if at.package is not None}
    numbers = {package: seen.packages[package] for package in set(of.values())}
    if None in numbers.values() or len(set(numbers.values())) < len(numbers):
        return numbered_groups(of)
    return {cpu: number for cpu, package in of.items() if (number := numbers[package]) is not None}


def _said(seen: Seen) -> list[Fact]:
    facts = []
    for name, field in _SAID.items():
        text = seen.info.get(name, "").strip()
        value: Any = plain(text) if field in ("family", "model") else text[:100]
        if value not in (None, ""):
            facts.append(known(f"cpu.{field}", value, f"lstopo: info {name}", text[:100]))
    for name, key in {
        "Architecture": "cpu.arch",
        "OSRelease": "kernel.release",
        "OSVersion": "kernel.version",
        "DMIProductName": "memory.dmi_product",
    }.items():
        if seen.info.get(name, "").strip():
            facts.append(known(key, seen.info[name].strip()[:200], f"lstopo: info {name}"))
    return facts


def _kinds(root: Node) -> tuple[dict[int, int], dict[int, str]]:
    """Relative speed and kind by CPU. Only what the kernel or the processor says: a user may name kinds at will."""
    capacities: dict[int, int] = {}
    kinds: dict[int, str] = {}
    for kind in root.below("cpukind"):
        cpus = members(_mask_of(kind, "cpuset") or 0)
        infos = {info.attrs.get("name"): info.attrs.get("value", "") for info in kind.below("info")}
        capacity = plain(infos.get("LinuxCapacity"))
        if capacity:
            capacities.update(dict.fromkeys(cpus, capacity))
        name = {"IntelCore": "performance", "IntelAtom": "efficiency"}.get(infos.get("CoreType", ""))
        if name:
            kinds.update(dict.fromkeys(cpus, name))
    if not kinds and capacities:
        best = max(capacities.values())
        kinds = {
            cpu: "efficiency" if one < EFFICIENCY_BELOW * best else "performance"
            for cpu, one in capacities.items()
        }
    return capacities, kinds if len(set(kinds.values())) > 1 else {}


def _mask_of(node: Node, name: str) -> int | None:
    """None when it is missing or endless."""
    text = node.attrs.get(name)
    return mask(text) if text and "..." not in text else None


def _cpusets(machine: Node) -> list[Fact]:
    """What the cgroup of lstopo's user allows; the affinity of that process is not told."""
    facts = []
    for key, name in {"cpuset": "allowed_cpuset", "cpuset_mems": "allowed_nodeset"}.items():
        allowed = _mask_of(machine, name)
        if allowed:
            facts.append(known(f"container.{key}", members(allowed), f"lstopo: {name}"))
    return facts


# -- memory ------------------------------------------------------------------------------------------------


def _nearest(seen: Seen) -> dict[int, int]:
    """The node of each CPU: of those that hold it the smallest; of equals plain memory before other kinds, then the lowest
    number, since systems number nodes with CPUs first."""

    def rank(entry: tuple[int, int, Node]) -> tuple[int, bool, int]:
        number, cpus, node = entry
        return cpus.bit_count(), node.attrs.get("subtype", "DRAM") != "DRAM", number

    near: dict[int, int] = {}
    left = seen.shown
    for number, cpus, _ in sorted(seen.nodes, key=rank):
        near.update(dict.fromkeys(members(cpus & left), number))
        left &= ~cpus
    return near


def _numa(seen: Seen, root: Node, machine: Node, near: dict[int, int]) -> list[Fact]:
    nodes = sorted(seen.nodes, key=lambda entry: entry[0])
    if len({number for number, _, _ in nodes}) < len(nodes) or len(nodes) > MAX_NODES:
        raise ValueError("two NUMA nodes have one number, or there are more than a kernel can have")
    distances = _distances(root, machine, [number for number, _, _ in seen.nodes])
    holders = set(near.values())
    facts: list[Fact] = []
    total = count = 0
    for at, (number, local, node) in enumerate(nodes):
        key, source = f"numa[{at}]", f"lstopo: NUMANode {number}"
        cpus, detail = _node_cpus(seen, number in holders, local, node)
        count += len(cpus)
        if count > _DEEPEST * MAX_CPUS:
            raise ValueError("its NUMA nodes overlap")
        facts += [
            known(f"{key}.id", number, source),
            known(f"{key}.cpus", cpus, source, node.attrs.get("cpuset"), detail),
        ]
        size = node.number("local_memory")
        total += size or 0
        if size is None:
            facts.append(gap(f"{key}.mem_bytes", source, "unsupported", f"{FORM} does not tell"))
        else:
            facts.append(known(f"{key}.mem_bytes", size, source))
        if distances:
            index, values = distances
            row = index[number] * len(nodes)
            facts.append(
                known(
                    f"{key}.distances",
                    tuple(values[row + index[other]] for other, _, _ in nodes),
                    "lstopo: distances",
                )
            )
        else:
            facts.append(gap(f"{key}.distances", source, "unsupported", f"{FORM} does not tell"))
    if total:
        facts.append(known("memory.total_bytes", total, "lstopo: local_memory"))
    return facts


def _node_cpus(seen: Seen, holds: bool, local: int, node: Node) -> tuple[tuple[int, ...], str | None]:
    """CPUs of a node, and what to know of them. One that no CPU is nearest to has memory only; one whose CPUs are all hidden
    has those."""
    if holds:
        return members(local & seen.shown), None
    if local & seen.shown:
        return (), "hwloc says near to CPUs that another node holds: memory only"
    hidden = _mask_of(node, "complete_cpuset") or 0
    return members(hidden), "none of them is shown: offline, or not allowed" if hidden else None


def _distances(root: Node, machine: Node, numbers: list[int]) -> tuple[dict[int, int], list[int]] | None:
    """Latency from node to node where a matrix of all nodes is there: the place of each node, and the rows."""
    for matrix in root.below("distances2"):
        kind = matrix.number("kind") or 0
        if matrix.attrs.get("type") != "NUMANode" or not kind & _LATENCY or not kind & 1:
            continue
        if matrix.attrs.get("indexing") == "os":
            found = _square(_words(matrix, "indexes"), _words(matrix, "u64values"), numbers)
            if found:
                return found
    for matrix in machine.below("distances"):
        try:
            base = float(matrix.attrs.get("latency_base", "10"))
            values = [float(one.attrs.get("value", "")) * base for one in matrix.below("latency")]
        except ValueError:
            continue
        if all(0 < value < 1 << 16 for value in values):
            found = _square(numbers, [round(value) for value in values], numbers)
            if found:
                return found
    return None


def _words(matrix: Node, tag: str) -> list[int]:
    words = [word for part in matrix.below(tag) for word in "".join(part.text).split()]
    return [number for word in words if (number := plain(word)) is not None]


def _square(
    order: list[int], values: list[int], wanted: list[int]
) -> tuple[dict[int, int], list[int]] | None:
    if not order or sorted(order) != sorted(wanted) or len(values) != len(order) ** 2:
        return None
    return {number: at for at, number in enumerate(order)}, values


# -- devices -----------------------------------------------------------------------------------------------


def _pci(seen: Seen, node: Node, place: Place) -> dict[str, Any] | None:
    """A row of `pci`, and None for what has no address (a host bridge, or a domain that is none)."""
    try:
        address = pci_address(node.attrs.get("pci_busid", ""))
    except ValueError:
        return None
    told = _PCI_TYPE.match(node.attrs.get("pci_type", ""))
    kind, vendor, device = told.groups() if told else ("0000",) * 3
    row = {
        "address": address,
        "class_code": None if kind == "0000" else f"0x{kind}",
        "vendor": None if vendor == "0000" else f"0x{vendor}",
        "device": None if vendor == "0000" else f"0x{device}",
        "parent": place.device["address"] if place.device else None,
        "local_cpus": place.cpus,
    }
    if node.attrs.get("subtype") == "NVSwitch":
        row |= {"class_code": _NVSWITCH, "vendor": NVIDIA}
    seen.pci.append(row)
    return row


def _devices(seen: Seen, near: dict[int, int]) -> list[Fact]:
    with_cpus: dict[int, int] = {}
    for cpu, node in near.items():
        with_cpus[node] = with_cpus.get(node, 0) | 1 << cpu
    shown = seen.shown
    if len(seen.pci) > _PCI_MAX or len(seen.systems) > _PCI_MAX:
        raise ValueError(f"it has more than {_PCI_MAX:,} devices")

    def node_of(cpus: int) -> int | None:
        around = [node for node, held in with_cpus.items() if held & cpus]
        return around[0] if len(around) == 1 else None

    bulky = sum((row["local_cpus"] & shown).bit_count() for row in seen.pci) > _LOCAL_MAX
    for row in seen.pci:
        cpus = row["local_cpus"] & shown
        row |= {"local_cpus": members(cpus) if cpus and not bulky else None, "numa_node": node_of(cpus)}
    wanted = {row["address"] for row in seen.pci if _matters(row)}
    parents = {row["address"]: row["parent"] for row in seen.pci}
    for address in tuple(wanted):
        above = parents[address]
        while above is not None and above not in wanted:
            wanted.add(above)
            above = parents[above]
    rows = sorted((row for row in seen.pci if row["address"] in wanted), key=lambda row: row["address"])
    if not seen.pci:
        return [_unseen(key) for key in ("pci", "gpus", "nics", "rdma", "disks")]
    return [
        known("pci", rows, "lstopo: PCIDev, Bridge"),
        *_gpus(seen, [row for row in rows if is_gpu(row)]),
        *_listed(seen, node_of),
    ]


def _unseen(key: str) -> Fact:
    return gap(
        key, "lstopo: PCIDev", "unsupported", "the file shows no PCI device: lstopo was built or run without"
    )


def _matters(row: dict[str, Any]) -> bool:
    kind = row["class_code"] or ""
    return is_gpu(row) or kind.startswith(_MATTER) or (kind == _NVSWITCH and row["vendor"] == NVIDIA)


def _kind(seen: Seen, node: Node) -> str:
    said = node.attrs.get("osdev_type", "")
    if not seen.version.startswith(("1", "2")):
        bits = node.number("osdev_type") or 0
        return next((name for bit, name in _SINCE_3 if bits & bit), "other")
    return _BEFORE_3.get(said, "other")


def _gpus(seen: Seen, rows: list[dict[str, Any]]) -> list[Fact]:
    """In NVML's order where it was asked, else in that of the bus, which NVML's is."""
    told: dict[str, dict[str, str]] = {}
    for node, place in seen.systems:
        if place.device is not None and _kind(seen, node) == "gpu":
            infos = {info.attrs.get("name", ""): info.attrs.get("value", "") for info in node.below("info")}
            mine = told.setdefault(place.device["address"], {})
            mine |= {key: value for key, value in infos.items() if value}
            number = _NVML.fullmatch(node.attrs.get("name", ""))
            if number:
                mine["order"] = number[1]
    rows = [
        row for vendor in (NVIDIA, AMD) for row in _ordered([r for r in rows if r["vendor"] == vendor], told)
    ]
    if not rows:
        return [known("gpus", [], "lstopo: PCIDev", detail="no GPU of NVIDIA or AMD is shown")]
    facts: list[Fact] = []
    for index, row in enumerate(rows):
        infos = told.get(row["address"], {})
        # hwloc reads locality off the bus too: whoever mistrusts the bus must be able to tell.
        bus = f"/sys/bus/pci/devices/{row['address']}/local_cpus, as hwloc read it"
        facts += gpu_facts(
            index,
            {
                "vendor": "nvidia" if row["vendor"] == NVIDIA else "amd",
                "name": infos.get("GPUModel"),
                "uuid": infos.get("NVIDIAUUID"),
                "address": row["address"],
                "device_id": pci_id(int(row["device"], 16) << 16 | int(row["vendor"], 16)),
                "memory_bytes": _kibibytes(infos.get("CUDAGlobalMemorySize")),
                "numa_node": row["numa_node"],
            },
            f"lstopo: PCIDev {row['address']}",
            FORM,
            {"numa_node": bus},
        )
    return facts


def _ordered(rows: list[dict[str, Any]], told: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    """GPUs of one vendor. Where NVML or ROCm numbered some, the others are displays that no driver computes on."""
    orders = {row["address"]: told.get(row["address"], {}).get("order") for row in rows}
    numbered = [row for row in rows if orders[row["address"]] is not None]
    return sorted(numbered, key=lambda row: int(orders[row["address"]] or 0)) or rows


def _kibibytes(text: str | None) -> int | None:
    """`16671616KiB`, and without the unit before version 3."""
    number = plain((text or "").removesuffix("KiB"))
    return number << 10 if number is not None and number < 1 << 40 else None


def _listed(seen: Seen, node_of: Callable[[int], int | None]) -> list[Fact]:
    nics: list[dict[str, Any]] = []
    ports: list[dict[str, Any]] = []
    disks: list[dict[str, Any]] = []
    for node, place in seen.systems:
        name, kind = node.attrs.get("name", "")[:32], _kind(seen, node)
        infos = {info.attrs.get("name", ""): info.attrs.get("value", "") for info in node.below("info")}
        at = {
            "address": place.device["address"] if place.device else None,
            "numa_node": node_of(place.cpus) if place.device else None,
        }
        if kind == "network" and name:
            nics.append({"name": name, "is_physical": True if place.device else None, **at})
        elif kind == "fabric" and name:
            for key, state in infos.items():
                port = re.fullmatch(r"Port(\d{1,3})State", key)
                if port:
                    ports.append(
                        {"device": name, "port": int(port[1]), "state": _PORT_STATES.get(state), **at}
                    )
        elif kind == "storage" and _DISK.fullmatch(name):
            model = infos.get("Model")
            disks.append({"name": name, "model": model, "size_bytes": _kibibytes(infos.get("Size")), **at})
    rows = {"nics": nics, "rdma": ports, "disks": disks}
    return [known(key, found, "lstopo: OSDev") for key, found in rows.items() if found]
