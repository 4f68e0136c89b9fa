"""A copy of the few files that are changed, and what crashes on it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from wellfed.apply import failpoint
from wellfed.apply.journal import Journal
from wellfed.apply.root import Root
from wellfed.model import Change

SYSCTL = "proc/sys/vm"
THP = "sys/kernel/mm/transparent_hugepage"
FILES = {
    "proc/sys/kernel/random/boot_id": "boot-one",
    f"{SYSCTL}/stat_interval": "1",
    f"{SYSCTL}/swappiness": "60",
    f"{SYSCTL}/dirty_bytes": "0",
    f"{SYSCTL}/dirty_ratio": "20",
    f"{THP}/enabled": "always [madvise] never",
    f"{THP}/khugepaged/scan_sleep_millisecs": "10000",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
}


def make(folder: Path) -> Journal:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")
    return Journal(Root(folder))


def change(kind: str, target: str, new: str) -> Change:
    return Change(code="user", kind=kind, target=target, new=new, restore="")


STAT = change("sysctl", "vm.stat_interval", "7")
THREE = [STAT, change("thp", "enabled", "always"), change("hugepages", "2048kB", "4")]


def text(journal: Journal, name: str) -> str:
    return (Path(journal.root.top) / name).read_text().strip()


def values(journal: Journal) -> dict[str, str]:
    """What the three knobs say, the choice of a bracketed one."""
    root = journal.root
    found = {
        "stat": root.read(f"/{SYSCTL}/stat_interval"),
        "thp": root.read(f"/{THP}/enabled"),
        "huge": root.read("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
    }
    return {k: v.partition("[")[2].partition("]")[0] if "[" in v else v for k, v in found.items()}


OLD = {"stat": "1", "thp": "madvise", "huge": "0"}
NEW = {"stat": "7", "thp": "always", "huge": "4"}


def points(action: Callable[[], object]) -> list[str]:
    """The failpoints that an action passes, in order."""
    passed: list[str] = []
    failpoint.hook = passed.append
    try:
        action()
    finally:
        failpoint.hook = None
    return passed


def killed(action: Callable[[], object], number: int) -> bool:
    """Run an action in a process that ends itself with SIGKILL at failpoint `number`; whether it got there."""
    child = os.fork()
    if child == 0:
        left = [number]

        def kill(_: str) -> None:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1

        failpoint.hook = kill
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def in_mount_namespace(mounts: str, program: str, journal: Path) -> "subprocess.CompletedProcess[str]":
    """A Python program run where `mounts`, a line of shell, changes what is mounted for it alone. Its arguments are this
    folder and the journal's."""
    argv = [sys.executable, "-c", program, str(Path(__file__).parent), str(journal)]
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "-", *argv],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
