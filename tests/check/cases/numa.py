"""NUMA: one bad and one good machine a check."""

from typing import Any

NODES = [{"id": 0, "cpus": [0, 1, 2, 3]}, {"id": 1, "cpus": [4, 5, 6, 7]}]

GIB = 1 << 30
GPU = {"vendor": "nvidia", "name": "NVIDIA H200", "cpu_affinity": [4, 5, 6, 7], "numa_node": 1}


def _rank(**fields: Any) -> dict[str, Any]:
    return {"numa": NODES, "gpus": [GPU], "processes": [{"pid": 7, "gpus": [0], "name": "python3", **fields}]}


def _memory(*nodes: tuple[int, int, int]) -> dict[str, Any]:
    """(GiB in all, free, of files) by node."""
    rows = [
        {**NODES[index], "mem_bytes": total * GIB, "mem_free_bytes": free * GIB, "file_bytes": files * GIB}
        for index, (total, free, files) in enumerate(nodes)
    ]
    return {"numa": rows}


def _strict(free: int) -> dict[str, Any]:
    rank = _rank(pages={"N1": 10 * GIB >> 12}, policy="bind:1")
    return {**rank, **_memory((100, 1, 1), (100, free, 2))}


def _counted(foreign: int) -> dict[str, Any]:
    return {
        "numa": [{**node, "mem_bytes": GIB, "hits": 1000, "misses": 7, "foreign": foreign} for node in NODES]
    }


def _systemd(policy: str, *nodes: int) -> dict[str, Any]:
    return {"numa": NODES, "kernel": {"systemd_numa_policy": policy, "systemd_numa_mask": list(nodes)}}


CASES: dict[str, Any] = {
    "NUMA06": (
        {"numa": NODES, "kernel": {"sysctls": {"vm.zone_reclaim_mode": "1"}}},
        {"numa": NODES, "kernel": {"sysctls": {"vm.zone_reclaim_mode": "0"}}},
        "info",
    ),
    "NUMA02": (_rank(allowed=[0, 1], thread_cpus=[0, 1]), _rank(allowed=[4], thread_cpus=[4, 5]), "warning"),
    "NUMA03": (
        _rank(pages={"N0": 2_000_000, "N1": 100}, policy="default"),
        _rank(pages={"N0": 100, "N1": 2_000_000}, policy="default"),
        "warning",
    ),
    "NUMA04": (_strict(3), _strict(30), "info"),
    "NUMA09": (_memory((100, 0, 60), (100, 50, 20)), _memory((100, 0, 60), (100, 0, 70)), "info"),
    "NUMA10": (_counted(100), _counted(10), "info"),
    "NUMA13": (_systemd("bind", 0), _systemd("bind", 0, 1), "info"),
}
WORDS = {
    "policy": ("default", "bind:0", "interleave:0-1"),
    "systemd_numa_policy": ("default", "bind", "preferred"),
}
KEYS = {"sysctls": ("vm.zone_reclaim_mode",), "pages": ("N0", "N1")}
