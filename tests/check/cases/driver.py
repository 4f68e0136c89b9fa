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


def _cuda(build: str) -> dict[str, Any]:
    return {"gpus": [NVIDIA], "software": {"torch_cuda": build, "cuda_driver": "12.8"}}


def _gdr(*modules: str) -> dict[str, Any]:
    ucx = {"environment": {"UCX_TLS": "rc"}}
    return {"gpus": [NVIDIA], "rdma": [PORT], **ucx, "kernel": {"modules": list(modules)}}


def _boot(*units: str) -> dict[str, Any]:
    kernel = {"enabled_services": list(units), "active_services": ["sshd"]}
    return {"gpus": [NVIDIA], "software": {"persistenced_running": True}, "kernel": kernel}


CASES: dict[str, Any] = {
    "DRV02": (_cuda("13.0"), _cuda("12.9"), "warning"),
    "DRV07": (_gdr("nvidia"), _gdr("nvidia", "gdrdrv"), "info"),
    "DRV11": (_boot("sshd"), _boot("nvidia-persistenced"), "info"),
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
WORDS = {"torch_cuda": ("12.4", "13.0", "rocm6.2"), "cuda_driver": ("12.8", "13.0")}
