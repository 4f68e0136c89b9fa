"""Cases of the layer driver."""

from typing import Any

NVIDIA = {
    "vendor": "nvidia",
    "name": "NVIDIA B200",
    "architecture": "Blackwell",
    "compute_capability": "10.0",
}
PORT = {"device": "mlx5_0", "port": 1}
AMD = {"address": "0000:05:00.0", "vendor": "0x1002", "class_code": "0x120000"}


def _params(dwords: str) -> dict[str, Any]:
    told = {"RegistryDwords": dwords, "EnableMSI": "1", "NvLinkDisable": "0"}
    return {"gpus": [NVIDIA], "software": {"driver_params": told}}


def _box(*nodes: str) -> dict[str, Any]:
    return {"gpus": [NVIDIA], "container": {"kind": "docker"}, "software": {"device_nodes": list(nodes)}}


CASES: dict[str, Any] = {
    "DRV03": (
        {"gpus": [{**NVIDIA, "gsp_firmware": "disabled"}]},
        {"gpus": [{**NVIDIA, "gsp_firmware": "580.1"}]},
        "info",
    ),
    "DRV04": (
        {"gpus": [NVIDIA], "software": {"driver_open": False}},
        {"gpus": [NVIDIA], "software": {"driver_open": True}},
        "warning",
    ),
    "DRV06": (
        {"gpus": [NVIDIA], "rdma": [PORT], "kernel": {"modules": ["nv_peer_mem", "nvidia_peermem"]}},
        {"gpus": [NVIDIA], "rdma": [PORT], "kernel": {"modules": ["nvidia_peermem"]}},
        "warning",
    ),
    "DRV09": (_box("nvidia0"), _box("nvidia0", "nvidia-uvm"), "warning"),
    "DRV10": (_params("RMDebug=1"), _params(""), "info"),
    "DRV13": (
        {"pci": [{**AMD, "driver": "none"}], "kernel": {"modules": ["ast"]}},
        {"pci": [{**AMD, "driver": "none"}], "kernel": {"modules": ["amdgpu"]}},
        "warning",
    ),
}
KEYS = {"driver_params": ("RegistryDwords", "EnableMSI", "NvLinkDisable")}
