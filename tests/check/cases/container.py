"""Bad and good machines for checks of containers."""

from typing import Any

_NODES = [{"id": 0, "cpus": [0, 1, 2, 3]}, {"id": 1, "cpus": [4, 5, 6, 7]}]
_GPU = {"vendor": "nvidia", "name": "NVIDIA H200", "cpu_affinity": [4, 5, 6, 7]}
_OTHER = {"vendor": "nvidia", "name": "NVIDIA A40"}
_POOL: dict[str, Any] = {"memory": {"huge_pools": [{"page_bytes": 2 << 20, "total": 512, "free": 512}]}}


def _job(has_verbs: bool) -> dict[str, Any]:
    """A pod of a job on two machines, on a machine with InfiniBand."""
    return {
        "container": {"kind": "kubernetes", "device_infiniband": has_verbs},
        "environment": {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"},
        "gpus": [_OTHER] * 8,
        "pci": [{"address": "0000:2a:00.0", "vendor": "0x15b3", "class_code": "0x020700"}],
    }


def _node(cpu: str, topology: str) -> dict[str, Any]:
    return {
        "numa": _NODES,
        "gpus": [_GPU],
        "kernel": {"active_services": ["kubelet"]},
        "software": {"kubelet": {"cpuManagerPolicy": cpu, "topologyManagerPolicy": topology}},
    }


CASES: dict[str, Any] = {
    "CON03": (
        {"numa": _NODES, "gpus": [_GPU], "cpu": {"allowed": [0, 1]}},
        {"numa": _NODES, "gpus": [_GPU], "cpu": {"allowed": [3, 4]}},
        "warning",
    ),
    "CON06": (
        {"container": {"pids_limit": 1000, "pids_used": 500}},
        {"container": {"pids_limit": 1000, "pids_used": 499}},
        "info",
    ),
    "CON08": (
        {**_POOL, "container": {"hugetlb_limit_bytes": 1 << 30}},
        {**_POOL, "container": {"hugetlb_limit_bytes": -1}},
        "info",
    ),
    "CON12": (
        {"numa": _NODES, "container": {"numa_calls": "EPERM"}},
        {"numa": _NODES, "container": {"numa_calls": "ok"}},
        "info",
    ),
    "CON13": (
        {"gpus": [_GPU, _OTHER], "environment": {"RANK": "0"}},
        {"gpus": [_GPU, _OTHER], "environment": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}},
        "info",
    ),
    "CON14": (_job(False), _job(True), "warning"),
    "CON15": (_node("none", "none"), _node("static", "best-effort"), "info"),
    "CON18": (
        {"kernel": {"release": "5.15.153.1-microsoft-standard-WSL2"}},
        {"kernel": {"release": "6.8.0-45-generic"}},
        "info",
    ),
    "CON19": ({"container": {"user_namespace": True}}, {"container": {"user_namespace": False}}, "info"),
    "CON20": (
        {"kernel": {"version": "#1 SMP Sun Jan 10 15:06:54 PST 2016"}},
        {"kernel": {"version": "#45-Ubuntu SMP PREEMPT_DYNAMIC"}},
        "info",
    ),
}
WORDS = {
    "numa_calls": ("ok", "EPERM"),
    "active_services": ("kubelet",),
    "kubelet": ("static", "none", "best-effort"),
    "class_code": ("0x020700",),
}
KEYS = {"kubelet": ("cpuManagerPolicy", "topologyManagerPolicy"), "environment": ("NCCL_IB_DISABLE",)}
