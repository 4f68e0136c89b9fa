"""How long it takes to wake another process: one byte through a pipe and back.

Twice: both processes on one CPU (a context switch each way) and on two (a wake-up across cores, idle states
and all). Data loaders, launchers and proxies do this all day. The other end is a fresh Python without
site-packages; the two interpreters cost about a microsecond of each round trip.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.setup import Scale, Setup, allowed_cpus, build_ceiling
from wellfed.bench.team import Team
from wellfed.model import Ceiling, Machine
from wellfed.predict.statistics import p99

IDS = ("pipe-same-cpu", "pipe-cross-cpu")
WEIGHT = 1.0
EFFORT: Effort = "quick"
_WARMUP = 50
_BATCH = 20

_ECHO = """
import os, sys
take, give, cpu = map(int, sys.argv[1:])
try:
    os.sched_setaffinity(0, {cpu})
except (AttributeError, OSError):
    pass
while byte := os.read(take, 1):
    os.write(give, byte)
"""


def needs(machine: Machine) -> str | None:
    """An interpreter to start: an embedded Python may not know its own."""
    return None if sys.executable else "this Python does not know its own program, so it can't start another"


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Round trips on one CPU and, when two are allowed, across two."""
    cpus = allowed_cpus()
    here = cpus[-1]
    pairs = [("pipe-same-cpu", "pipe round trip, one CPU", here)]
    if len(cpus) > 1:
        pairs.append(("pipe-cross-cpu", "pipe round trip, two CPUs", cpus[-2]))
    return [_pair(setup, budget_s / len(pairs), id, title, here, there) for id, title, there in pairs]


def _pair(setup: Setup, budget_s: float, id: str, title: str, here: int, there: int) -> Ceiling:
    before = noise.read_counters()
    samples: list[float] = []
    with echo_process(there) as (take, give), Team((here,)) as team:
        team.run(lambda _: samples.extend(round_trips(take, give, budget_s)))
    tail = p99(samples)
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(
            unit="us",
            higher_is_better=False,
            band=(1.0, 100.0),
            band_source="two context switches and four system calls to a wake-up from a deep idle state",
            max_cv=None,  # wake-ups have a long tail by nature; p90 and p99 tell it
        ),
        id=id,
        title=title,
        method="one byte to another pinned process and back; about 1 us is the two interpreters",
        tier="stdlib",
        size="1 B",
        environment={"p99_us": None if tail is None else round(tail, 2), "cpus": [here, there]},
    )


@contextmanager
def echo_process(cpu: int) -> Iterator[tuple[int, int]]:
    """A process on that CPU that sends each byte back: the ends to read from and to write to. It ends with
    the pipe, and is killed if it does not."""
    to_child, from_parent = os.pipe()
    to_parent, from_child = os.pipe()
    try:
        command = [sys.executable, "-I", "-S", "-c", _ECHO, str(to_child), str(from_child), str(cpu)]
        child = subprocess.Popen(command, pass_fds=(to_child, from_child), stdin=subprocess.DEVNULL)
    except OSError:
        for end in (to_child, from_parent, to_parent, from_child):
            os.close(end)
        raise
    os.close(to_child)
    os.close(from_child)
    try:
        yield to_parent, from_parent
    finally:
        os.close(from_parent)
        os.close(to_parent)
        try:
            child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def round_trips(take: int, give: int, budget_s: float) -> list[float]:
    """Microseconds of each round trip, after a few to wake both ends. Raises OSError when the other end died."""
    clock = time.perf_counter_ns
    samples: list[float] = []
    for _ in range(_WARMUP):
        _round_trip(take, give)
    deadline = clock() + int(budget_s * 1e9)
    while not samples or clock() < deadline:
        for _ in range(_BATCH):
            start = clock()
            _round_trip(take, give)
            samples.append((clock() - start) / 1000)
    return samples


def _round_trip(take: int, give: int) -> None:
    os.write(give, b"x")
    if not os.read(take, 1):
        raise BrokenPipeError("the other process ended")
