"""What the smallest requests to the kernel cost: reading the clock, a system call, starting a thread.

A clock that is no register (hpet, xen, acpi_pm) makes each timestamp of a profiler, a logger or a CUDA event wait cost a
microsecond instead of 25 ns. A slow system call means a sandbox (gVisor), an auditing rule or costly CPU mitigations:
small-file reads, sockets and launches that enter the kernel all pay it.
"""

import os
import threading
import time
from collections.abc import Callable
from itertools import repeat

from wellfed.bench import noise
from wellfed.bench.repeat import interleave
from wellfed.bench.setup import Scale, Setup, allowed_cpus, build_ceiling
from wellfed.bench.team import Team
from wellfed.model import Ceiling, Machine

IDS = ("clock-read", "syscall", "thread-start")
WEIGHT = 0.3
EFFORT = "quick"
MAX_S = 1.0
_CALLS = 5000
_STARTS = 20


def needs(machine: Machine) -> str | None:
    """None: there is no system without these."""
    return None


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """All in turn, on one CPU."""
    before = noise.read_counters()
    samples: dict[str, list[float]] = {}
    runs = {
        "clock-read": lambda: each_ns(time.monotonic_ns),
        "syscall": lambda: each_ns(os.getppid),  # the C library keeps no copy of the parent's number
        "thread-start": start_threads_us,
    }
    with Team(allowed_cpus()[-1:]) as team:
        team.run(lambda _: samples.update(interleave(runs, budget_s)))
    return [_ceiling(setup, before, id, row) for id, row in samples.items()]


def each_ns(call: Callable[[], object], calls: int = _CALLS) -> float:
    """ns a call; about 20 of them are the interpreter's."""
    start = time.perf_counter_ns()
    for _ in repeat(None, calls):
        call()
    return (time.perf_counter_ns() - start) / calls


def start_threads_us() -> float:
    """us to start a thread that does nothing, and to join it."""
    start = time.perf_counter_ns()
    for _ in repeat(None, _STARTS):
        thread = threading.Thread(target=_nothing)
        thread.start()
        thread.join()
    return (time.perf_counter_ns() - start) / _STARTS / 1000


def _nothing() -> None:
    pass


_KINDS: dict[str, tuple[str, str, tuple[float, float], str, str]] = {
    "clock-read": (
        "reading the clock",
        "ns",
        (5.0, 300.0),
        "a register by vDSO; hpet and xen take 500 to 2000 ns",
        "time.monotonic_ns",
    ),
    "syscall": (
        "system call",
        "ns",
        (30.0, 1500.0),
        "no mitigations to costly ones; gVisor takes 2000 ns",
        "getppid",
    ),
    "thread-start": (
        "starting and joining a thread",
        "us",
        (3.0, 500.0),
        "pthread_create to a wake-up from a deep idle state",
        "threading.Thread that does nothing, on the same CPU",
    ),
}


def _ceiling(setup: Setup, before: noise.Counters, id: str, samples: list[float]) -> Ceiling:
    title, unit, band, source, method = _KINDS[id]
    calls = _STARTS if id == "thread-start" else _CALLS
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(unit=unit, higher_is_better=False, band=band, band_source=source, max_cv=None),
        id=id,
        title=title,
        method=f"{method}; about 20 ns of a call are the interpreter" if unit == "ns" else method,
        size=f"{calls} a sample",
        threads=1,
        tier="stdlib",
        environment={"clocksource": setup.machine.cpu.clocksource},
    )
