"""What it costs to start work: forking a process by its size, starting an interpreter, importing what a worker imports.

A data loader that forks copies the page tables of its parent for each worker; one that spawns starts interpreters that
import everything again. Elastic restarts and launchers pay the same per rank. Each sample is a process of its own; files
are in the page cache from the first on, whose time stands apart as `first_ms`.
"""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from wellfed.bench import noise
from wellfed.bench.setup import MIB, Scale, Setup, available_bytes, build_ceiling, size_text
from wellfed.model import Ceiling, Machine

IDS = ("fork.64mib", "fork.1gib", "start-python", "import-numpy", "import-torch")
WEIGHT = 1.5
EFFORT = "full"
MAX_S = 20.0
_FORKS = {"fork.64mib": 64 * MIB, "fork.1gib": 1024 * MIB}
_LONGEST_S = 60.0
"""An import that takes longer than this from a cold network disk is left out."""

_FORK = """
import mmap, os, sys, time
size, seconds = int(sys.argv[1]), float(sys.argv[2])
room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, size, 4096):
    room[at] = 1
times, end = [], time.monotonic() + seconds
while len(times) < 4 or time.monotonic() < end:
    start = time.perf_counter_ns()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    times.append(time.perf_counter_ns() - start)
    os.waitpid(pid, 0)
print(*times[1:])
"""
_PROGRAMS = {
    "start-python": ("pass", "starting Python", (2.0, 2000.0)),
    "import-numpy": ("import numpy", "starting Python and importing numpy", (20.0, 10_000.0)),
    "import-torch": ("import torch", "starting Python and importing torch", (300.0, 60_000.0)),
}


def needs(machine: Machine) -> str | None:
    """An interpreter to start: an embedded Python may not know its own."""
    if not hasattr(os, "fork"):
        return "this system does not fork"
    return None if sys.executable else "this Python does not know its own program, so it can't start another"


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Milliseconds of each; what there is no memory for, or no module, is left out."""
    forks = {id: size for id, size in _FORKS.items() if size < available_bytes(setup.machine) // 4}
    programs = {id for id in _PROGRAMS if id != "import-torch" or importlib.util.find_spec("torch")}
    share_s = budget_s / (len(forks) + len(programs))
    for id, size in forks.items():
        yield _fork(setup, id, size, share_s)
    for id in _PROGRAMS:
        if id in programs:
            yield _start(setup, id, share_s)


def _fork(setup: Setup, id: str, size: int, seconds: float) -> Ceiling:
    before = noise.read_counters()
    return build_ceiling(
        setup,
        before,
        fork_ms(size, seconds / 2),
        Scale(unit="ms", higher_is_better=False, band=(0.02, 200.0), band_source="page tables of 1 GiB at 10 GB/s to a slow hypervisor", max_cv=None),
        id=id,
        title=f"fork of a process of {size_text(size)}",
        method="time until os.fork returns to the parent, memory in 4 KiB pages unless THP is `always`",
        size=size_text(size),
        tier="stdlib",
    )  # fmt: skip


def fork_ms(size: int, seconds: float) -> list[float]:
    """Samples from a fresh interpreter that holds so much memory. Raises OSError when it fails."""
    command = [sys.executable, "-I", "-S", "-c", _FORK, str(size), str(seconds)]
    return [int(text) / 1e6 for text in _output(command).split()]


def _start(setup: Setup, id: str, seconds: float) -> Ceiling:
    program, title, band = _PROGRAMS[id]
    flags = ["-I", "-S"] if id == "start-python" else []
    before = noise.read_counters()
    first_ms = run_ms([sys.executable, *flags, "-c", program])
    samples: list[float] = []
    end = time.monotonic() + seconds - first_ms / 1000
    while len(samples) < 3 or time.monotonic() < end:
        samples.append(run_ms([sys.executable, *flags, "-c", program]))
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(unit="ms", higher_is_better=False, band=band, band_source="a warm local disk to a cold network one", max_cv=0.25),
        id=id,
        title=title,
        method=f"`{program}` in a fresh interpreter, files in the page cache",
        size="1 process",
        tier="stdlib",
        environment={"first_ms": round(first_ms, 1)},
    )  # fmt: skip


def run_ms(command: list[str]) -> float:
    """Milliseconds from start to end of a program. Raises OSError when it fails."""
    start = time.perf_counter()
    _output(command)
    return (time.perf_counter() - start) * 1000


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_S, stdin=subprocess.DEVNULL, check=True
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"a fresh Python took more than {_LONGEST_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:]
        raise OSError(f"a fresh Python failed: {' '.join(last) or error.returncode}") from error
    return done.stdout
