"""Cases of the layer software."""

from typing import Any


def _maps(*libraries: str) -> dict[str, Any]:
    return {"processes": [{"pid": 7, "gpus": [0], "libraries": list(libraries)}]}


GPU = {"vendor": "nvidia", "name": "NVIDIA H200"}
CASES: dict[str, Any] = {
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
WORDS = {"libraries": ("libgomp.so.1", "libiomp5.so"), "cdi_driver": ("570.1", "580.95.05")}
