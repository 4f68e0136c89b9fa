"""NVLink and its like: one bad and one good machine a check."""

from typing import Any

LINKED: dict[str, Any] = {"name": "NVIDIA H200", "nvlinks_active": 18, "nvlinks_total": 18}
AMD = {"vendor": "amd", "name": "AMD Instinct MI300X"}
PEER = {"name": "NVIDIA H200", "mig_capable": True, "mig": False, "virtualization": "none"}
TRAY = {"name": "NVIDIA GB200", "fabric_state": "completed", "fabric_status": "success"}
JOB: dict[str, Any] = {"gpus": [TRAY] * 4, "environment": {"WORLD_SIZE": "72", "LOCAL_WORLD_SIZE": "4"}}

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
    "NVL05": (
        {**JOB, "software": {"imex_running": False, "imex_channels": 0}},
        {**JOB, "software": {"imex_running": True, "imex_channels": 1}},
        "warning",
    ),
    "NVL06": (
        {"gpus": [PEER, PEER], "p2p": [{"a": "gpu0", "b": "gpu1", "kind": "CNS"}]},
        {"gpus": [PEER, PEER], "p2p": [{"a": "gpu0", "b": "gpu1", "kind": "OK"}]},
        "warning",
    ),
    "NVL09": (
        {"gpus": [AMD, AMD], "links": [{"a": "gpu0", "b": "gpu1", "kind": "PCIE"}]},
        {"gpus": [AMD, AMD], "links": [{"a": "gpu0", "b": "gpu1", "kind": "XGMI"}]},
        "warning",
    ),
}
WORDS = {"name": ("NVIDIA GH200 480GB", "AMD Instinct MI300X", "NVIDIA GB200"), "kind": ("OK", "CNS")}
KEYS = {"environment": ("NCCL_MNNVL_ENABLE", "WORLD_SIZE")}
