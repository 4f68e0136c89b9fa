"""How much a loader may take here: cores, memory, shared memory, descriptors."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import psutil

from wellfed.live.launchers import told_rank
from wellfed.model.loader import LoaderBudget

RAM_SHARE, SHM_SHARE = 0.5, 0.8
SPIN_S = 0.35
_SPARE_DESCRIPTORS = 128
"""What Python, torch and the user's code hold open besides."""


def read_budget(ram: int | None) -> LoaderBudget:
    """The budgets of one rank of this machine, nothing measured yet. `ram` replaces half of what is available."""
    ranks = local_ranks()
    available, why = available_memory()
    return LoaderBudget(
        cores=max(usable_cores() / ranks, 0.1),
        local_ranks=ranks,
        ram_bytes=ram if ram is not None else int(available * RAM_SHARE / ranks),
        ram_why="as given"
        if ram is not None
        else f"half of {why}" + (f", of {ranks} ranks" if ranks > 1 else ""),
        shm_bytes=_shm(ranks),
        descriptors=_descriptors(),
    )


def local_ranks() -> int:
    """Ranks that share this machine, where the launcher says so."""
    told = told_rank(os.environ)
    return (told.ranks if told else None) or 1


def usable_cores() -> float:
    """CPUs of the affinity, or the quota of the control group where that is less."""
    allowed = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quota = _container().get("container.cpu_quota")
    return min(allowed, quota) if isinstance(quota, int | float) and quota > 0 else allowed


def available_memory() -> tuple[int, str]:
    """Bytes that could still be taken, and whose they are."""
    free = int(psutil.virtual_memory().available)
    limit = _container().get("container.memory_limit_bytes")
    used = _container().get("container.memory_used_bytes")
    if isinstance(limit, int) and limit > 0 and isinstance(used, int) and limit - used < free:
        return max(limit - used, 0), "what the control group has left"
    return free, "the memory available"


def _container() -> dict[str, object]:
    if not _CONTAINER and sys.platform == "linux":
        from wellfed.host import open_host
        from wellfed.host.container import read_container

        _CONTAINER.update({fact.key: fact.value for fact in read_container(open_host(None))})
        _CONTAINER.setdefault("read", True)
    return _CONTAINER


_CONTAINER: dict[str, object] = {}


def _shm(ranks: int) -> int | None:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    return int(found.f_bavail * found.f_frsize * SHM_SHARE / ranks)


def _descriptors() -> int | None:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else max(soft - _SPARE_DESCRIPTORS, 0)


def measure_cores(cores: float) -> float | None:
    """Cores' worth of work done at once by as many processes; None where that can't be measured."""
    count = max(round(cores), 1)
    command = [sys.executable, "-m", "wellfed.live.loader.spin", str(count), str(SPIN_S)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SPIN_S + 15, check=False)
        return float(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def shm_used() -> int:
    """Bytes in `/dev/shm` now, whosever."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def private_bytes(pid: int) -> int | None:
    """Memory that is a process's alone; None when it is gone or not ours to see."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    return 1024 * sum(
        int(line.split()[1])
        for line in text.splitlines()
        if line.startswith(("Private_Dirty:", "Private_Clean:"))
    )


def anonymous_bytes(pid: int) -> int:
    """Resident memory that is no file's: cheap to read, and an upper bound of what is private. 0 when gone."""
    try:
        _, resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
