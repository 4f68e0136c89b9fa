"""Cases of the layer software."""

from typing import Any


def _maps(*libraries: str) -> dict[str, Any]:
    return {"processes": [{"pid": 7, "gpus": [0], "libraries": list(libraries)}]}


GPU = {"vendor": "nvidia", "name": "NVIDIA H200"}


def _units(*names: str) -> dict[str, Any]:
    return {"gpus": [GPU], "kernel": {"enabled_services": list(names)}}


CASES: dict[str, Any] = {
    "SW02": (
        {"gpus": [GPU], **_maps("libnccl.so.2.21.5", "libnccl.so.2.28.9")},
        {"gpus": [GPU], **_maps("libnccl.so.2.28.9")},
        "info",
    ),
    "SW10": (_units("apt-daily.timer"), _units("sshd"), "info"),
    "SW07": (_maps("libgomp.so.1", "libiomp5.so"), _maps("libgomp.so.1"), "info"),
    "SW09": (
        {"software": {"cdi_driver": "570.1", "driver": "580.95.05"}},
        {"software": {"cdi_driver": "580.95.05", "driver": "580.95.05"}},
        "warning",
    ),
    "SW12": (
        {"gpus": [GPU], "kernel": {"active_services": ["nvidia-dcgm"]}},
        {"gpus": [GPU], "kernel": {"active_services": ["sshd"]}},
        "info",
    ),
}
WORDS = {
    "enabled_services": ("sshd", "apt-daily.timer"),
    "libraries": ("libgomp.so.1", "libiomp5.so", "libnccl.so.2"),
    "cdi_driver": ("570.1", "580.95.05"),
}
