"""Cases of the memory's checks: bad machine, good machine, severity of the bad one."""

from typing import Any

_TIB = 1 << 40
_TIERED = [{"id": 0, "cpus": [0, 1]}, {"id": 1, "cpus": []}]


def _memory(**fields: Any) -> dict[str, Any]:
    return {"memory": fields}


def _sysctls(**keys: str) -> dict[str, Any]:
    return {"kernel": {"sysctls": {f"vm.{key}": value for key, value in keys.items()}}}


def _demoting(on: bool) -> dict[str, Any]:
    gpu = {"vendor": "nvidia", "name": "NVIDIA GH200 480GB", "c2c": True}
    return {"numa": _TIERED, "gpus": [gpu], "memory": {"demotion_enabled": on}}


def _coherent(auto_online: str) -> dict[str, Any]:
    return {**_demoting(False), "memory": {"auto_online": auto_online}}


def _zeroing(build: str) -> dict[str, Any]:
    return {"kernel": {"cmdline": ["quiet"], "config": {"CONFIG_INIT_ON_ALLOC_DEFAULT_ON": build}}}


_COLLECTING = {"thp_enabled": "always", "khugepaged_pages_to_scan": 4096}
_ISOLATED = {"cpu": {"isolated": [2, 3]}}


def _weights(*weights: int) -> dict[str, Any]:
    nodes = [{"id": i, "cpus": [] if i else [0], "mem_bytes": 1 << 36} for i in range(len(weights))]
    rows = [{**node, "interleave_weight": weight} for node, weight in zip(nodes, weights, strict=True)]
    return {"numa": rows, "seen": ("gpus",)}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "MEM19": (_weights(1, 1), _weights(5, 2), "info"),
    "MEM03": (
        _memory(**_COLLECTING, khugepaged_scan_sleep_ms=100),
        _memory(**_COLLECTING, khugepaged_scan_sleep_ms=10000),
        "info",
    ),
    "MEM04": (_memory(thp_shmem="deny"), _memory(thp_shmem="never"), "info"),
    "MEM09": (
        {**_sysctls(dirty_bytes="0", dirty_ratio="60"), **_memory(total_bytes=2 * _TIB)},
        {**_sysctls(dirty_bytes="0", dirty_ratio="40"), **_memory(total_bytes=2 * _TIB)},
        "info",
    ),
    "MEM11": (
        {**_sysctls(min_free_kbytes="45056"), **_memory(total_bytes=_TIB)},
        {**_sysctls(min_free_kbytes="135168"), **_memory(total_bytes=_TIB)},
        "info",
    ),
    "MEM12": (_sysctls(max_map_count="65530"), _sysctls(max_map_count="262144"), "info"),
    "MEM13": (_zeroing("y"), _zeroing("n"), "info"),
    "MEM14": (_memory(ksm_run=1), _memory(ksm_run=2), "info"),
    "MEM15": (_sysctls(compaction_proactiveness="60"), _sysctls(compaction_proactiveness="20"), "info"),
    "MEM16": (
        _memory(thp_enabled="madvise", thp_fault_alloc=9000, thp_fault_fallback=1000),
        _memory(thp_enabled="madvise", thp_fault_alloc=90000, thp_fault_fallback=1000),
        "info",
    ),
    "MEM17": (
        _memory(unevictable_bytes=7 * _TIB // 10, total_bytes=_TIB),
        _memory(unevictable_bytes=5 * _TIB // 10, total_bytes=_TIB),
        "info",
    ),
    "MEM20": (_demoting(True), _demoting(False), "warning"),
    "MEM21": (
        {**_sysctls(stat_interval="1"), **_ISOLATED},
        {**_sysctls(stat_interval="10"), **_ISOLATED},
        "info",
    ),
    "MEM22": (_coherent("online"), _coherent("online_movable"), "info"),
}
WORDS = {
    "auto_online": ("offline", "online", "online_movable"),
    "config": ("y", "n"),
    "thp_shmem": ("never", "deny"),
    "thp_enabled": ("always", "madvise", "never"),
}
KEYS = {
    "config": ("CONFIG_INIT_ON_ALLOC_DEFAULT_ON",),
    "sysctls": (
        "vm.dirty_bytes",
        "vm.dirty_ratio",
        "vm.min_free_kbytes",
        "vm.max_map_count",
        "vm.compaction_proactiveness",
        "vm.stat_interval",
    ),
}
