"""PCIe: one bad and one good machine a check."""

from typing import Any

NODES = [{"id": 0, "cpus": [0, 1, 2, 3]}, {"id": 1, "cpus": [4, 5, 6, 7]}]
GPU: dict[str, Any] = {
    "address": "0000:0f:00.0", "vendor": "0x10de", "class_code": "0x030200", "driver": "nvidia", "is_virtual": False,
    "width_max": 16, "speed_max_gts": 32.0, "parent": "0000:0e:00.0",
}  # fmt: skip
PORT: dict[str, Any] = {
    "address": "0000:0e:00.0",
    "vendor": "0x1000",
    "class_code": "0x060400",
    "width_max": 16,
}
RDMA = [{"device": "mlx5_0", "port": 1}, {"device": "mlx5_1", "port": 1}]
TWO = [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}]
GUEST = {"cpu": {"hypervisor": "kvm"}, "gpus": TWO, "rdma": RDMA}


def links(*kinds: str) -> list[dict[str, Any]]:
    """gpu0 to both adapters, then gpu1."""
    return [{"a": f"gpu{i // 2}", "b": f"mlx5_{i % 2}", "kind": kind} for i, kind in enumerate(kinds)]


def tree(gpus: int, gts: float) -> list[dict[str, Any]]:
    return [
        {**PORT, "speed_max_gts": gts},
        *({**GPU, "address": f"0000:1{i}:00.0"} for i in range(gpus)),
    ]


AMD = {"cpu": {"vendor": "AuthenticAMD"}}


def _adapter(**fields: Any) -> dict[str, Any]:
    """A GPU, and an adapter of 400 Gb/s."""
    nic = {
        "address": "0000:2a:00.0", "vendor": "0x15b3", "class_code": "0x020700", "driver": "mlx5_core", "is_virtual": False,
        "width_max": 16, "speed_max_gts": 32.0, **fields,
    }  # fmt: skip
    return {
        "pci": [GPU, nic],
        "rdma": [{"device": "mlx5_0", "port": 1, "address": nic["address"], "rate_gbps": 400.0}],
    }


def _path(own: int, port: int, able: int) -> dict[str, Any]:
    ends = [{**PORT, "max_payload": port}, {**GPU, "max_payload": own}]
    return {"pci": [{**end, "max_payload_capable": able} for end in ends]}


CASES: dict[str, Any] = {
    "PCIE08": (
        {"pci": [{**GPU, "aer_fatal": 0, "aer_nonfatal": 2, "aer_correctable": 9}]},
        {"pci": [{**GPU, "aer_fatal": 0, "aer_nonfatal": 0, "aer_correctable": 9}]},
        "warning",
    ),
    "PCIE09": ({"pci": [{**GPU, "power_control": "auto"}]}, {"pci": [{**GPU, "power_control": "on"}]}, "info"),
    "PCIE10": (
        {"gpus": TWO, "rdma": RDMA, "links": links("PIX", "SYS", "SYS", "NODE")},
        {"gpus": TWO, "rdma": RDMA, "links": links("PIX", "SYS", "SYS", "PXB")},
        "info",
    ),
    "PCIE11": (
        {**GUEST, "environment": {"RANK": "0"}, "links": links("PHB", "PHB", "PHB", "PHB")},
        {**GUEST, "environment": {"RANK": "0"}, "links": links("PIX", "PHB", "PHB", "PIX")},
        "info",
    ),
    "PCIE12": (
        {"numa": NODES, "cpu": {"logical": 8}, "pci": [{**GPU, "local_cpus": list(range(8))}]},
        {"numa": NODES, "cpu": {"logical": 8}, "pci": [{**GPU, "local_cpus": [4, 5, 6, 7]}]},
        "info",
    ),
    "PCIE13": ({"pci": tree(4, 32.0)}, {"pci": tree(2, 32.0)}, "info"),
    "PCIE02": (
        {"pci": [{**GPU, "aspm": "L1"}], "kernel": {"aspm_policy": "default"}},
        {"pci": [{**GPU, "aspm": "disabled"}], "kernel": {"aspm_policy": "default"}},
        "info",
    ),
    "PCIE03": (_adapter(max_read_request=512), _adapter(max_read_request=4096), "info"),
    "PCIE04": (_path(128, 128, 256), _path(256, 256, 256), "info"),
    "PCIE06": (
        {**_adapter(ats_enabled=False), "cpu": {"hypervisor": "kvm"}},
        {**_adapter(ats_enabled=True), "cpu": {"hypervisor": "kvm"}},
        "info",
    ),
    "PCIE07": (
        {**_adapter(relaxed_ordering=False), **AMD, "environment": {"RANK": "0"}},
        {**_adapter(relaxed_ordering=True), **AMD, "environment": {"RANK": "0"}},
        "info",
    ),
    "PCIE14": ({"pci": [{**GPU, "driver": "vfio-pci"}]}, {"pci": [GPU]}, "info"),
}  # fmt: skip
KEYS = {"environment": ("NCCL_TOPO_FILE", "NCCL_IB_PCI_RELAXED_ORDERING")}
WORDS = {
    "power_control": ("on", "auto"),
    "driver": ("vfio-pci", "mlx5_core"),
    "aspm": ("disabled", "L1"),
    "vendor": ("AuthenticAMD",),
}
