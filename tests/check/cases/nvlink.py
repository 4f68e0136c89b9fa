"""NVLink and its like: one bad and one good machine a check."""

from typing import Any

LINKED: dict[str, Any] = {"name": "NVIDIA H200", "nvlinks_active": 18, "nvlinks_total": 18}
AMD = {"vendor": "amd", "name": "AMD Instinct MI300X"}

CASES: dict[str, Any] = {
    "NVL02": (
        {"gpus": [{**LINKED, "nvlink_errors": 5000}]},
        {"gpus": [{**LINKED, "nvlink_errors": 0}]},
        "warning",
    ),
    "NVL08": (
        {"gpus": [{"name": "NVIDIA GH200 480GB", "c2c": False}]},
        {"gpus": [{"name": "NVIDIA GH200 480GB", "c2c": True}]},
        "warning",
    ),
    "NVL09": (
        {"gpus": [AMD, AMD], "links": [{"a": "gpu0", "b": "gpu1", "kind": "PCIE"}]},
        {"gpus": [AMD, AMD], "links": [{"a": "gpu0", "b": "gpu1", "kind": "XGMI"}]},
        "warning",
    ),
}
WORDS = {"name": ("NVIDIA GH200 480GB", "AMD Instinct MI300X")}
