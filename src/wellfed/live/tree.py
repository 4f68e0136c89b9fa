"""Processes of a command: its descendants, and what their threads have used of the CPUs."""

import contextlib
import os
from collections import defaultdict
from pathlib import Path

import psutil

MOST_PROCESSES, MOST_THREADS = 4096, 20_000
_PROC = Path("/proc")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, as far as they can be seen; none when it is gone."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)][:MOST_PROCESSES]
    except psutil.Error:
        return []


def is_alive(pid: int) -> bool:
    """Neither gone nor a zombie that its parent has not looked after."""
    try:
        return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[
            0
        ] not in "ZX"
    except (OSError, IndexError):
        return False


def thread_seconds(pids: list[int]) -> tuple[dict[str, float], dict[int, float]]:
    """CPU seconds so far, by name of thread (all processes together), and of each process's main thread."""
    names: dict[str, float] = defaultdict(float)
    mains: dict[int, float] = {}
    seen = 0
    for pid in pids:
        try:
            tasks = list((_PROC / str(pid) / "task").iterdir())
        except OSError:
            continue
        for task in tasks:
            seen += 1
            if seen > MOST_THREADS:
                return dict(names), mains
            with contextlib.suppress(OSError, ValueError, IndexError):
                head, _, tail = (task / "stat").read_text(errors="replace").rpartition(")")
                fields = tail.split()
                used = (int(fields[11]) + int(fields[12])) * _TICK_S
                names[head.partition("(")[2]] += used
                if int(task.name) == pid:
                    mains[pid] = used
    return dict(names), mains


def resident_bytes(pids: list[int]) -> int:
    """Pages that they hold, shared ones counted in each."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int((_PROC / str(pid) / "statm").read_text().split()[1]) * page
    return total
