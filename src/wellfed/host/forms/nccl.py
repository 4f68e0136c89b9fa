"""NCCL's topology (`NCCL_TOPO_DUMP_FILE`, and the files of clouds for `NCCL_TOPO_FILE`): nodes with their CPUs, PCI switches,
GPUs with their NVLinks, NICs.

Link speeds and widths of bridges and NICs are the most that device and slot can do, not what runs now: NCCL reads
`max_link_speed`. Of GPUs newer releases write what runs now, as NVML tells it, and nothing in the file says which: they are left
unknown. Files of clouds are written by hand and leave out what NCCL finds itself, often the GPUs' own lines; GPUs then go by their class and
are counted in the order of the bus."""

import re
from collections import Counter
from itertools import combinations
from typing import Any, NamedTuple

from wellfed.host.forms.markup import Node
from wellfed.host.parse import MAX_CPUS, MAX_NODES, cpu_mask, gap, integer, known
from wellfed.host.pci import NVIDIA, pci_address, pci_id
from wellfed.host.stated import gpu_facts
from wellfed.model.fact import Fact

FORM = "an NCCL topology"
NOTE = (
    "an NCCL topology shows GPUs and NICs that one job could use, and what is near them: other devices, cores and caches "
    "are not in it, and a cloud's file says what NCCL is to believe"
)
_GPU_CLASSES = ("0x03", "0x12")
_NVSWITCH_CLASS = "0x0680"
_NIC_CLASS = "0x02"
_DEVICES_MAX = 128
"""GPUs, and NICs, of one host. Links go by the square of it."""
_PCI_MAX = 4096
_SPEED = re.compile(r"(\d{1,3}(?:\.\d{1,2})?) GT/s")
_LANES = (1, 2, 4, 8, 12, 16, 32)


class End(NamedTuple):
    """A GPU or NIC: its name in `links`, the `<cpu>` it hangs on, and the PCI switches above it, outermost first."""

    name: str
    cpu: int
    switches: tuple[str, ...]


class Seen:
    """What the walk gathers. `nics` are those with a name; `net_ends` count them all."""

    def __init__(self) -> None:
        self.nodes: dict[int, tuple[int, ...] | None] = {}
        self.pci: list[dict[str, Any]] = []
        self.gpus: list[dict[str, Any]] = []
        self.nets: list[tuple[Node, dict[str, Any]]] = []
        self.ends: list[End] = []


def read_nccl(root: Node) -> list[Fact]:
    """Facts of a topology. Raises ValueError for one that contradicts itself, or holds several hosts."""
    hosts = {cpu.attrs["host_hash"] for cpu in root.below("cpu") if "host_hash" in cpu.attrs}
    if len(hosts) > 1:
        raise ValueError(f"it holds {len(hosts)} hosts (their host_hash differs); give the file of one")
    seen = Seen()
    cpus = list(root.below("cpu"))
    if not 0 < len(cpus) <= MAX_NODES:
        raise ValueError(f"it has {len(cpus)} <cpu> elements")
    for at, cpu in enumerate(cpus):
        node = _signed(cpu, "numaid")
        if node is not None and 0 <= node < 1 << 31:
            seen.nodes[node] = _union(seen.nodes.get(node, ()), cpu)
            if sum(len(held or ()) for held in seen.nodes.values()) > MAX_CPUS:
                raise ValueError("its nodes share CPUs")
        for child in cpu.children:
            _walk(seen, child, at, node if node in seen.nodes else None, ())
    of = [cpu for held in seen.nodes.values() for cpu in held or ()]
    if len(set(of)) < len(of):
        raise ValueError("its nodes share CPUs")
    _order(seen.gpus)
    return [*_cpu(seen, cpus[0]), *_numa(seen), *_devices(seen), *_links(seen)]


def _union(held: tuple[int, ...] | None, cpu: Node) -> tuple[int, ...] | None:
    """CPUs of a node that stands in several elements; None when one of them does not say."""
    text = cpu.attrs.get("affinity", "")
    if held is None or not text.strip():
        return None
    return tuple(sorted({*held, *cpu_mask(text)}))


def _signed(node: Node, name: str) -> int | None:
    try:
        return integer(node.attrs.get(name, ""))
    except ValueError:
        return None


def _walk(seen: Seen, node: Node, cpu: int, numa: int | None, switches: tuple[str, ...]) -> None:
    if node.tag == "nic":
        # Without a PCI device it is an interface of the system; NCCL hangs it on the first node there is.
        _nic(seen, node, cpu, None, None, switches)
    if max(len(seen.gpus), len(seen.nets), len(seen.ends)) > _DEVICES_MAX:
        raise ValueError(f"it has more than {_DEVICES_MAX} GPUs or NICs")
    if node.tag != "pci":
        return
    row = _row(node, numa, switches[-1] if switches else None)
    seen.pci.append(row)
    if len(seen.pci) > _PCI_MAX:
        raise ValueError(f"it has more than {_PCI_MAX:,} PCI devices")
    below = list(node.below("pci"))
    for child in below:
        _walk(seen, child, cpu, numa, (*switches, row["address"]))
    gpu = next(node.below("gpu"), None)
    kind = row["class_code"] or ""
    if gpu is not None or (kind.startswith(_GPU_CLASSES) and not below):
        row |= {"speed_max_gts": None, "width_max": None}
        seen.gpus.append(
            {"row": row, "told": gpu, "place": (cpu, switches), "dev": gpu.number("dev") if gpu else None}
        )
    nics = list(node.below("nic"))
    for nic in nics:
        # NICs that NCCL made one of several stand at the switch above them all.
        _nic(seen, nic, cpu, numa, row, (*switches, row["address"]) if below else switches)
    if not nics and not below and kind.startswith(_NIC_CLASS):
        seen.ends.append(End(f"nic{_nics(seen)}", cpu, switches))


def _nic(
    seen: Seen, nic: Node, cpu: int, numa: int | None, row: dict[str, Any] | None, switches: tuple[str, ...]
) -> None:
    names = []
    for net in nic.below("net"):
        seen.nets.append((net, {"numa_node": numa, "address": row["address"] if row else None}))
        names.append(net.attrs.get("name", "")[:64])
    if row is not None:
        for name in dict.fromkeys(names) or [""]:
            seen.ends.append(End(name or f"nic{_nics(seen)}", cpu, switches))


def _nics(seen: Seen) -> int:
    return sum(not end.name.startswith("gpu") for end in seen.ends)


def _row(node: Node, numa: int | None, parent: str | None) -> dict[str, Any]:
    try:
        address = pci_address(node.attrs.get("busid", ""))
    except ValueError as error:
        raise ValueError(f"a PCI device has the address `{node.attrs.get('busid', '')[:20]}`") from error
    speed = _SPEED.match(node.attrs.get("link_speed", ""))
    width = node.number("link_width")
    kind = node.attrs.get("class", "")
    return {
        "address": address,
        "class_code": kind if re.fullmatch(r"0x[0-9a-f]{2,6}", kind) else None,
        "vendor": _id(node, "vendor"),
        "device": _id(node, "device"),
        "numa_node": numa,
        "speed_max_gts": float(speed[1]) if speed else None,
        "width_max": width if width in _LANES else None,
        "parent": parent,
    }


def _id(node: Node, name: str) -> str | None:
    """Clouds write 0x0000 and 0xffff where they do not say."""
    text = node.attrs.get(name, "")
    return text if re.fullmatch(r"0x[0-9a-f]{4}", text) and text not in ("0x0000", "0xffff") else None


def _order(gpus: list[dict[str, Any]]) -> None:
    """By NCCL's own number where each has one, else by the bus, which NVML's order is."""
    numbers = [gpu["dev"] for gpu in gpus]
    if None in numbers or len(set(numbers)) < len(numbers) or max(numbers, default=0) >= _DEVICES_MAX:
        gpus.sort(key=lambda gpu: gpu["row"]["address"])
        for index, gpu in enumerate(gpus):
            gpu["dev"] = index
    else:
        gpus.sort(key=lambda gpu: gpu["dev"])


# -- facts -------------------------------------------------------------------------------------------------


def _cpu(seen: Seen, first: Node) -> list[Fact]:
    """CPUs of the nodes that are shown. How many the machine has is not known: NCCL leaves out nodes that no used GPU or NIC
    hangs on."""
    source = "NCCL: cpu affinity"
    of = {cpu: node for node, cpus in sorted(seen.nodes.items()) for cpu in cpus or ()}
    why = "nodes that no used GPU or NIC hangs on are not in the file"
    facts = [gap(f"cpu.{name}", source, "unsupported", why) for name in ("logical", "offline", "possible")]
    if None in seen.nodes.values() or not of:
        facts.append(gap("cpu.threads", source, "unsupported", "the file does not give every node its CPUs"))
    else:
        facts.append(known("cpu.threads", [{"id": cpu, "node": of[cpu]} for cpu in sorted(of)], source))
    arch = first.attrs.get("arch", "")[:20]
    if arch:
        facts.append(known("cpu.arch", {"arm64": "aarch64"}.get(arch, arch), "NCCL: cpu arch", arch))
    if first.attrs.get("vendor"):
        facts.append(known("cpu.vendor", first.attrs["vendor"][:40], "NCCL: cpu vendor"))
    family, model = first.number("familyid"), first.number("modelid")
    if family is not None and arch == "x86_64":
        facts.append(known("cpu.family", _family(family), "NCCL: cpu familyid", str(family)))
        if model is not None:
            facts.append(known("cpu.model", model, "NCCL: cpu modelid"))
    return facts


def _family(number: int) -> int:
    """NCCL puts CPUID's extended family above the base family's four bits, where the sum of both is the family: its
    0xaf is family 25. The extended part counts for base 15 only; other numbers were written by hand, and are the family."""
    return 15 + (number >> 4) if number & 15 == 15 else number


def _numa(seen: Seen) -> list[Fact]:
    if not seen.nodes:
        return [gap("numa", "NCCL: cpu numaid", "unsupported", "the kernel named no node (numaid -1)")]
    facts = []
    for at, (node, cpus) in enumerate(sorted(seen.nodes.items())):
        key, source = f"numa[{at}]", f"NCCL: cpu numaid {node}"
        facts.append(known(f"{key}.id", node, source))
        if cpus is None:
            facts.append(gap(f"{key}.cpus", source, "unsupported", "it has no affinity"))
        else:
            facts.append(known(f"{key}.cpus", cpus, source))
        facts += [
            gap(f"{key}.{field}", source, "unsupported", f"{FORM} does not tell")
            for field in ("mem_bytes", "mem_free_bytes", "distances")
        ]
    return facts


def _devices(seen: Seen) -> list[Fact]:
    rows = sorted(seen.pci, key=lambda row: row["address"])
    if len({row["address"] for row in rows}) < len(rows):
        raise ValueError("two PCI devices have one address")
    facts = [known("pci", rows, "NCCL: pci")]
    gpus = {gpu["row"]["address"] for gpu in seen.gpus}
    for place, row in enumerate(rows):
        if row["address"] in gpus:
            why = "older NCCL writes the most that a GPU can do here, newer what runs now"
            facts += [
                gap(f"pci[{place}].{field}", "NCCL: pci link_speed", "unsupported", why)
                for field in ("speed_gts", "speed_max_gts", "width", "width_max")
            ]
    for index, gpu in enumerate(seen.gpus):
        facts += _gpu(index, gpu)
    if not seen.gpus:
        facts.append(
            gap("gpus", "NCCL: gpu", "unsupported", "the file names no GPU, nor the class of a device")
        )
    nics: list[dict[str, Any]] = []
    ports: list[dict[str, Any]] = []
    for net, at in seen.nets:
        name, port, speed = net.attrs.get("name", "")[:64], net.number("port"), net.number("speed")
        if not name:
            continue
        # Sockets have port 0 and no GUID; an RDMA device has both.
        if port and net.attrs.get("guid", "0x0") != "0x0":
            ports.append({"device": name, "port": port, "rate_gbps": speed / 1000 if speed else None, **at})
        else:
            nics.append({"name": name, "speed_mbps": speed or None, **at})
    for key, found in (("nics", nics), ("rdma", ports)):
        if found:
            facts.append(known(key, found, "NCCL: net"))
    return facts


def _gpu(index: int, gpu: dict[str, Any]) -> list[Fact]:
    row, told = gpu["row"], gpu["told"]
    gpu["index"] = index
    seen: dict[str, Any] = {"address": row["address"], "numa_node": row["numa_node"]}
    if row["vendor"] and row["device"]:
        seen["device_id"] = pci_id(int(row["device"], 16) << 16 | int(row["vendor"], 16))
    if row["vendor"] == NVIDIA or (told is not None and "sm" in told.attrs):
        seen["vendor"] = "nvidia"
    elif told is not None and "gcn" in told.attrs:
        seen["vendor"] = "amd"
    if told is not None:
        number = told.number("sm")
        if number is not None and 10 <= number < 1000:
            seen["compute_capability"] = f"{number // 10}.{number % 10}"
        links = [link.number("count") or 0 for link in told.below("nvlink")]
        if links:
            seen["nvlinks_active"] = min(sum(links), 1 << 16)
        if next(told.below("c2c"), None) is not None:
            seen["c2c"] = True
    # NCCL reads the node off the bus: whoever mistrusts the bus must be able to tell.
    bus = f"/sys/bus/pci/devices/{row['address']}/numa_node, as NCCL read it"
    return gpu_facts(index, seen, f"NCCL: pci {row['address']}", FORM, {"numa_node": bus})


def _links(seen: Seen) -> list[Fact]:
    """Each pair once. Within one `<cpu>` a pair may cross host bridges or not (PHB or NODE), which NCCL does not tell
    apart: it stands as PHB, as NCCL itself says. Across them it is SYS. Two GPUs of which the file does not say how they
    are wired are left out: most that share no wire in it have NVLink in truth."""
    ends = [End(f"gpu{at}", *gpu["place"]) for at, gpu in enumerate(seen.gpus)] + seen.ends
    wires, unclear = _nvlinks(seen)
    links = []
    for a, b in combinations(ends, 2):
        lanes = wires.get((a.name, b.name))
        if lanes is None and {a.name, b.name} & unclear and b.name.startswith("gpu"):
            continue
        links.append(
            {"a": a.name, "b": b.name, "kind": f"NV{lanes}" if lanes else _kind(a, b), "lanes": lanes}
        )
    if not links:
        return [
            gap("links", "NCCL: pci", "unsupported", "the file does not say how any two devices are wired")
        ]
    return [known("links", links, "NCCL: pci, nvlink")]


def _kind(a: End, b: End) -> str:
    if a.cpu != b.cpu:
        return "SYS"
    shared = sum(1 for one, other in zip(a.switches, b.switches, strict=False) if one == other)
    if not shared:
        return "PHB"
    return "PIX" if shared == len(a.switches) == len(b.switches) else "PXB"


def _nvlinks(seen: Seen) -> tuple[dict[tuple[str, str], int], set[str]]:
    """Links of pairs of GPUs: direct ones, else those that both have into the switches; and the GPUs of which not all
    links are told. A target that is the GPU itself, as some virtual machines show, says nothing of pairs."""
    named = {gpu["row"]["address"]: f"gpu{at}" for at, gpu in enumerate(seen.gpus)}
    direct: Counter[tuple[str, str]] = Counter()
    switched: Counter[str] = Counter()
    unclear = set()
    for at, gpu in enumerate(seen.gpus):
        name = f"gpu{at}"
        if gpu["told"] is None:
            unclear.add(name)
            continue
        for link in gpu["told"].below("nvlink"):
            count = min(link.number("count") or 0, 1 << 10)
            try:
                target = named.get(pci_address(link.attrs.get("target", "")))
            except (
                ValueError
            ):  # `fffffff:ffff:ff` where a virtual machine hides it: NCCL takes that for a switch
                unclear.add(name)
                continue
            if target is not None and target != name:
                direct[name, target] += count
            elif link.attrs.get("tclass", "").startswith(_NVSWITCH_CLASS):
                switched[name] += count
            elif target == name:
                unclear.add(name)
    pairs = {}
    for a, b in combinations(named.values(), 2):
        lanes = max(direct[a, b], direct[b, a]) or min(switched[a], switched[b])
        if lanes:
            pairs[a, b] = lanes
    return pairs, unclear
