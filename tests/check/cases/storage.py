"""Bad and good machines for checks of storage."""

from typing import Any

GIB = 1 << 30
NVME = {"name": "nvme0n1", "is_virtual": False}
H200 = {"vendor": "nvidia", "name": "NVIDIA H200", "index": 0}


def _mount(fs: str, *options: str) -> dict[str, Any]:
    return {"mounts": [{"path": "/data", "source": "dev-1", "fs": fs, "options": ["rw", *options]}]}


def _shm(size_bytes: int) -> dict[str, Any]:
    return {"gpus": [H200], "memory": {"total_bytes": 512 * GIB}, "container": {"shm_bytes": size_bytes}}


def _smart(warning: int) -> dict[str, Any]:
    return {"disks": [{**NVME, "smart_warning": warning, "smart_media_errors": 0, "smart_used_pct": 3}]}


def _array(degraded: int) -> dict[str, Any]:
    return {"arrays": [{"name": "md6", "level": "raid1", "degraded": degraded}]}


CASES: dict[str, Any] = {
    "STO04": (
        {"disks": [{**NVME, "nomerges": 2, "rq_affinity": 1}]},
        {"disks": [{**NVME, "nomerges": 0, "rq_affinity": 1}]},
        "info",
    ),
    "STO07": (_smart(2), _smart(0), "warning"),
    "STO08": (
        {"disks": [NVME], "kernel": {"nvme_ps_max_latency_us": 100_000}},
        {"disks": [NVME], "kernel": {"nvme_ps_max_latency_us": 0}},
        "info",
    ),
    "STO11": (_array(1), _array(0), "warning"),
    "STO01": (
        {"disks": [{**NVME, "scheduler": "mq-deadline"}]},
        {"disks": [{**NVME, "scheduler": "none"}]},
        "info",
    ),
    "STO09": (_mount("ext4", "relatime", "discard"), _mount("ext4", "relatime"), "info"),
    "STO13": (_shm(32 * GIB), _shm(256 * GIB), "info"),
    "STO14": (
        _mount("nfs4", "vers=4.1", "rsize=262144", "proto=tcp"),
        _mount("nfs4", "vers=4.1", "rsize=1048576", "proto=tcp", "nconnect=16"),
        "info",
    ),
}
WORDS = {
    "level": ("raid0", "raid1"),
    "fs": ("ext4", "nfs4", "xfs"),
    "options": ("rw", "relatime", "discard", "nconnect=8", "rsize=1048576"),
    "scheduler": ("none", "mq-deadline"),
}
