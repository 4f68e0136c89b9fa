"""The RDMA devices near a GPU, and the variables of a rank."""

from wellfed.model.devices import Gpu
from wellfed.model.machine import Machine
from wellfed.model.placement import PlaceRequest

_NEAR = ("PIX", "PXB", "PHB", "NODE")
"""Kinds of `nvidia-smi topo -m`, nearest first; SYS crosses the link between sockets."""
_DIRECT = ("PIX", "PXB")
"""Under one PCI switch or a few, so that GPU and NIC reach each other without the CPU."""


def nearest_nics(machine: Machine, gpu: Gpu | None) -> tuple[tuple[str, ...], str]:
    """Names of the active RDMA devices at the least distance from the GPU, and why these; `()` where none is near."""
    active = list(
        dict.fromkeys(
            port.device for port in machine.rdma if port.state is None or "ACTIVE" in port.state.upper()
        )
    )
    if not active:
        return (), "no active RDMA device"
    if gpu is None:
        return (), "no GPU to be near to"
    kinds = _kinds(machine, gpu)
    for kind in _NEAR:
        found = tuple(name for name in active if kinds.get(name) == kind)
        if found:
            return found, f"{kind} from the GPU"
    if kinds:
        return (), "all RDMA devices are across the sockets: left to the library"
    node = {port.device: port.numa_node for port in machine.rdma}
    same = tuple(name for name in active if gpu.numa_node is not None and node[name] == gpu.numa_node)
    return (same, f"on node {gpu.numa_node} too") if same else ((), "no RDMA device is known to be near")


def _kinds(machine: Machine, gpu: Gpu) -> dict[str, str]:
    mine = f"gpu{gpu.index}"
    return {
        (link.b if link.a == mine else link.a): link.kind
        for link in machine.links
        if mine in (link.a, link.b)
    }


def variables(
    machine: Machine, request: PlaceRequest, gpu: Gpu | None, nics: tuple[str, ...], cores: int
) -> dict[str, str]:
    """Variables to set where the user has not: threads for the cores there are, devices by bus order, and the NICs
    only where they hang on the GPU's own switches: of all others the library knows more than we do."""
    threads = max(1, cores // (1 + request.workers))
    found = {"OMP_NUM_THREADS": str(threads)}
    if gpu is not None and gpu.vendor != "amd":
        found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if gpu is not None and gpu.vendor == "amd":
        found["HSA_OVERRIDE_CPU_AFFINITY_DEBUG"] = "0"
    if gpu is not None and nics:
        kinds = _kinds(machine, gpu)
        ports = [
            f"{port.device}:{port.port}"
            for port in machine.rdma
            if port.device in nics and (port.state is None or "ACTIVE" in port.state.upper())
        ]
        if all(kinds.get(name) in _DIRECT for name in nics):
            found["NCCL_IB_HCA"] = "=" + ",".join(ports)
        found["UCX_NET_DEVICES"] = ",".join(ports)
    route = [nic.name for nic in machine.nics if nic.is_default_route]
    if len(route) == 1:
        found["GLOO_SOCKET_IFNAME"] = route[0]
    return found
