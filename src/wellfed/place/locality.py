"""Which CPUs are near a GPU, and which of the GPUs a job sees.

The order of trust: what NVML (or the vendor's tool) says of CPUs, sysfs's `local_cpulist`, the CPUs of `numa_node`. On products
whose CPU and GPU share a package (C2C) the PCI bus says the wrong thing (open-mpi/hwloc#761): there the node told by NVML
comes first, and the bus counts for nothing."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from wellfed.model.devices import Gpu
from wellfed.model.machine import Machine

_C2C = re.compile(r"\bG[HB][123]00\b|\bGB10\b|\bVR200\b|gh200|gb[123]00|gb10|vr200")
_PCI = "/sys/bus/pci"


class Local(NamedTuple):
    """CPUs near a GPU; `cpus` is None when nothing tells, and `reason` then says so."""

    cpus: frozenset[int] | None
    reason: str


def is_c2c(gpu: Gpu) -> bool:
    return bool(gpu.c2c) or bool(_C2C.search(f"{gpu.catalog or ''} {gpu.name or ''}"))


def local_cpus(machine: Machine, gpu: Gpu, nodes: Mapping[int, frozenset[int]]) -> Local:
    """The first of the sources that is consistent: some CPUs, but not those of every node at once, which is how the
    kernel writes "nowhere"."""
    if len(nodes) < 2:
        return Local(frozenset().union(*nodes.values()), "the machine has one node with CPUs")
    pci = next((d for d in machine.pci if d.address == gpu.address), None)
    c2c = is_c2c(gpu)
    affinity = frozenset(gpu.cpu_affinity or ())
    by_bus = _from_bus(machine, gpu, "cpu_affinity")
    node_by_bus = _from_bus(machine, gpu, "numa_node")
    told = (
        affinity,
        "local_cpulist of the PCI device" if by_bus else "CPU affinity told by the driver",
        by_bus,
    )
    listed = (
        frozenset(pci.local_cpus or ()) if pci else frozenset(),
        "local_cpulist of the PCI device",
        True,
    )
    node = gpu.numa_node if gpu.numa_node is not None else pci.numa_node if pci else None
    near = (
        nodes.get(node, frozenset()) if node is not None else frozenset(),
        f"numa_node {node}",
        node_by_bus or gpu.numa_node is None,
    )
    sources = [near, told] if c2c else [told, listed, near]
    for cpus, reason, from_bus in sources:
        if c2c and from_bus:
            continue
        touched = [name for name, members in nodes.items() if members & cpus]
        if touched and len(touched) < len(nodes):
            # The kernel's list is that of whole nodes; the driver's may be cut by a cpuset that is seen nowhere else.
            return Local(frozenset().union(*(nodes[name] for name in touched)) if from_bus else cpus, reason)
    if c2c:
        return Local(
            None, "no locality: the driver names no CPU node, and the PCI bus is wrong on C2C products"
        )
    if node is not None and node not in nodes:
        return Local(None, f"no locality: numa_node {node} has no CPUs")
    return Local(None, "no locality: the firmware names no node (numa_node -1)")


def _from_bus(machine: Machine, gpu: Gpu, field: str) -> bool:
    """Whether a field of the GPU was filled in from the PCI bus."""
    fact = machine.facts.get(f"gpus[{gpu.index}].{field}")
    return fact is not None and (fact.raw or "").startswith(_PCI)


class Visible(NamedTuple):
    gpus: tuple[Gpu, ...]
    warnings: tuple[str, ...]


def visible_gpus(gpus: Iterable[Gpu], names: tuple[str, ...] | None) -> Visible:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order. As CUDA does, an entry that names nothing ends the list.
    An index counts in PCI order; a UUID may be cut short; a MIG device stands for the GPU it is a part of; a PCI address
    is taken too."""
    known = sorted(gpus, key=lambda gpu: gpu.index)
    if names is None:
        return Visible(tuple(known), ())
    found: list[Gpu] = []
    for place, name in enumerate(names):
        gpu, why = _named(known, name.strip())
        if gpu is None:
            left = len(names) - place - 1
            rest = f"; the {left} after it are hidden too, as CUDA does" if left else ""
            return Visible(tuple(found), (f"no GPU is `{name.strip()}`{why}{rest}",))
        found.append(gpu)
    return Visible(tuple(found), ())


def _named(gpus: list[Gpu], name: str) -> tuple[Gpu | None, str]:
    if re.fullmatch(r"\d{1,4}", name):
        return next((gpu for gpu in gpus if gpu.index == int(name)), None), ""
    folded = name.casefold()
    if folded.startswith("mig-") and not folded.startswith("mig-gpu-"):
        parents = [gpu for gpu in gpus if gpu.mig]
        if len(parents) == 1:
            return parents[0], ""
        return None, f" ({len(parents)} GPUs have MIG on: which one it is part of is not told)"
    if folded.startswith("mig-gpu-"):
        folded = folded.removeprefix("mig-").partition("/")[0]
    if re.fullmatch(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?", folded):
        return next((gpu for gpu in gpus if _same_address(gpu.address, folded)), None), ""
    matches = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.casefold().startswith(folded)] if folded else []
    return (matches[0], "") if len(matches) == 1 else (None, f" ({len(matches)} match)" if matches else "")


def _same_address(address: str | None, asked: str) -> bool:
    if not address:
        return False
    asked = asked if "." in asked else f"{asked}.0"
    domain, _, rest = asked.rpartition(":")[0].rpartition(":")
    bus = f"{rest}:{asked.rpartition(':')[2]}"
    own_domain, _, own_rest = address.rpartition(":")[0].rpartition(":")
    own = f"{own_rest}:{address.rpartition(':')[2]}"
    return bus == own and int(domain or "0", 16) == int(own_domain or "0", 16)
