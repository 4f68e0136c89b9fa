"""Short measurements that feel one group of knobs, each in a fresh process: what `tune apply --prove` repeats.

Fresh, because the kernel looks at most knobs when memory is mapped or a process starts. Each gives one cost, lower is
better: a low percentile of many short batches, so that a neighbour's burst costs samples and not the result. CPU time
of the thread where the machine's clock is not what is looked for: time in which the host ran somebody else (steal)
stays out of it as far as the kernel knows of it.

They are about the knob and nothing else, and so show the most that it can do. A job gains less.
"""

import contextlib
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from wellfed.model import WellfedError
from wellfed.model.proof import Meter
from wellfed.predict.statistics import percentile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SECONDS = 0.25
"""Of measuring in one phase; the process around it takes another sixth of a second."""
_QUARTILE = 25.0
_TIMEOUT_S = 60.0
_PAGES = 8192
"""Pages of the chase: beyond the 1024 to 4096 entries of second-level TLBs since 2015, while one line of each (512 KiB)
and their page-table entries (64 KiB) lie in a core's own cache of 1 MiB or more: in the one that cores share, other
guests of a host move the cost by a factor of four."""
_FEW = 32
"""Pages of the walk beside it, every line of each: no level of a TLB misses them, so no knob of huge pages moves it."""
_PMD = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"
_HUGETLB = 0x40000  # MAP_HUGETLB, which Python's mmap has no name for
_STEPS = 2048
_MAPPINGS = 8
"""Where the pages of one mapping lie in memory, and who else is in the caches meanwhile, moves its cost by tenths: of
several, the lower quartile is taken."""
_MIB = 1 << 20
_Sample = TypeVar("_Sample")


class Probe(NamedTuple):
    """`run(seconds)` gives the cost in `unit`, in the process that it is called in."""

    title: str
    unit: str
    run: Callable[[float], float]


def meter(name: str, *, seconds: float = SECONDS) -> Meter:
    """The measurement of that name; each run is a process of its own. Raises WellfedError for an unknown one, and its
    runs do when they fail."""
    if name not in PROBES:
        raise WellfedError(f"no measurement `{name}`", hint=f"one of: {', '.join(PROBES)}")
    return Meter(name, PROBES[name].unit, seconds, lambda: _phase(name, seconds))


def _phase(name: str, seconds: float) -> float:
    # -P: nothing is imported from the folder that root happens to be in.
    program = "from wellfed.bench.proof import main; main()"
    command = [sys.executable, "-P", "-c", program, name, str(seconds)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WellfedError(f"the measurement {name} did not run: {error}") from error
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise WellfedError(f"the measurement {name} failed: {last[0]}")
    return float(json.loads(done.stdout)["cost"])


def main() -> None:
    """The process of one phase."""
    name, seconds = sys.argv[1:]
    json.dump({"cost": PROBES[name].run(float(seconds))}, sys.stdout)


# -- memory -----------------------------------------------------------------------------------------------


def chase(seconds: float, *, flags: int = 0, advised: bool = False) -> float:
    """The cost of a load in a random walk that touches each of `_PAGES` pages once a round, over that of a load in a
    walk through the lines of `_FEW` pages, batch by batch in turn: a slower clock or a busy sibling of the core slows
    both, and only the first misses in TLBs. The memory is asked for plainly, without advice: only then does `always`
    differ from `madvise` and `never`. `advised` asks for huge pages, as allocators do: that tells `never` from the
    others."""
    import numpy as np

    whole = _huge_bytes()
    size = -(-_PAGES * mmap.PAGESIZE // whole) * whole
    rng = np.random.default_rng(7)
    lines = mmap.PAGESIZE // 64
    far = (rng.permutation(_PAGES) * lines + rng.integers(0, lines, _PAGES)) * 8
    near = rng.permutation(_FEW * lines) * 8

    def walks(budget_s: float) -> tuple[float, float]:
        with _mapped(size + whole, flags) as memory, _mapped(_FEW * mmap.PAGESIZE) as few:
            if advised:
                with contextlib.suppress(
                    OSError
                ):  # a kernel without huge pages says EINVAL, and has none to give
                    memory.madvise(mmap.MADV_HUGEPAGE)
            words = np.frombuffer(memory, dtype=np.intp)
            begin = -words.ctypes.data % whole // 8
            through = _walk(words[begin : begin + size // 8], far)
            beside = _walk(np.frombuffer(few, dtype=np.intp), near)
            first, second = zip(*_sampled(lambda: (through(), beside()), budget_s), strict=True)
            return percentile(first, _QUARTILE), percentile(second, _QUARTILE)

    pairs = [walks(seconds / _MAPPINGS) for _ in range(_MAPPINGS)]
    far_ns, near_ns = ([pair[i] for pair in pairs] for i in range(2))
    return percentile(far_ns, _QUARTILE) / percentile(near_ns, _QUARTILE)


def _walk(words: "NDArray[np.intp]", order: "NDArray[np.intp]") -> Callable[[], float]:
    """A function that does the next batch of loads through `words`, which are linked in the given order, and gives
    the nanoseconds of one. One round is done before."""
    import numpy as np

    words[order] = np.roll(order, -1)
    path = np.zeros(_STEPS + 1, dtype=np.intp)
    path[-1] = order[0]

    def batch() -> float:
        path[0] = path[-1]
        start = time.thread_time_ns()
        np.take(words, path[:-1], out=path[1:], mode="wrap")
        return (time.thread_time_ns() - start) / _STEPS

    for _ in range(-(-len(order) // _STEPS)):
        batch()
    if not np.array_equal(path[1:], words[path[:-1]]):
        raise WellfedError(f"numpy {np.__version__} copies overlapping arguments, so it can't chase pointers")
    return batch


def chase_reserved(seconds: float) -> float:
    """The same walk in reserved huge pages when there are enough, as a job that asks for them first would."""
    try:
        return chase(seconds, flags=_HUGETLB)
    except OSError:
        return chase(seconds)


def chase_advised(seconds: float) -> float:
    """The same walk in memory for which huge pages were asked."""
    return chase(seconds, advised=True)


def page_faults(seconds: float) -> float:
    """Nanoseconds of CPU for each page of memory that is used for the first time, huge or not."""
    import numpy as np

    size = 8 * _huge_bytes() if _huge_bytes() <= 4 * _MIB else 64 * _MIB

    def batch() -> float:
        start = time.thread_time_ns()
        with _mapped(size) as memory:
            words = np.frombuffer(memory, dtype=np.uint8)
            words[:: mmap.PAGESIZE] = 1
        return (time.thread_time_ns() - start) / (size / mmap.PAGESIZE)

    batch()
    return _repeated(batch, seconds)


def memory_copy(seconds: float) -> float:
    """Nanoseconds of CPU to copy a MiB between two buffers of 64 MiB."""
    import numpy as np

    source, target = np.ones(8 * _MIB), np.zeros(8 * _MIB)

    def batch() -> float:
        start = time.thread_time_ns()
        np.copyto(target, source)
        return (time.thread_time_ns() - start) / 64

    batch()
    return _repeated(batch, seconds)


class _mapped:
    """Private memory that nobody has touched; given back at the end."""

    def __init__(self, size: int, flags: int = 0) -> None:
        self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)

    def __enter__(self) -> mmap.mmap:
        return self.memory

    def __exit__(self, *_: object) -> None:
        try:
            self.memory.close()
        except BufferError:
            pass  # an array still looks at it; it goes with the process


def _huge_bytes() -> int:
    try:
        with open(_PMD) as file:  # noqa: PTH123 - a phase starts fast
            return int(file.read())
    except (OSError, ValueError):
        return 2 * _MIB


# -- the CPU ----------------------------------------------------------------------------------------------


def cpu_burst(seconds: float) -> float:
    """Microseconds of a short loop after a pause, as a loop that feeds a GPU has them: the clock it then runs at."""

    def batch() -> float:
        time.sleep(0.001)
        start = time.thread_time_ns()
        sum(range(20_000))
        return (time.thread_time_ns() - start) / 1000

    return _repeated(batch, seconds)


def wake_latency(seconds: float) -> float:
    """Microseconds of a round trip to another process, both having slept half a millisecond: the median, since the
    quickest are those whose CPU had not gone idle."""
    from wellfed.bench.host.ping_pong import echo_process
    from wellfed.bench.setup import allowed_cpus, pin

    cpus = allowed_cpus()
    pin(cpus[-1])
    with echo_process(cpus[0]) as (take, give):

        def batch() -> float:
            time.sleep(0.0005)
            start = time.perf_counter_ns()
            os.write(give, b"x")
            if not os.read(take, 1):
                raise BrokenPipeError("the other process ended")
            return (time.perf_counter_ns() - start) / 1000

        for _ in range(50):
            batch()
        return _repeated(batch, seconds, 50.0)


def clock_read(seconds: float) -> float:
    """Nanoseconds to read the clock."""

    def batch() -> float:
        clock = time.perf_counter_ns
        start = time.thread_time_ns()
        for _ in range(1000):
            clock()
        return (time.thread_time_ns() - start) / 1000

    return _repeated(batch, seconds)


def _repeated(batch: Callable[[], float], seconds: float, percent: float = _QUARTILE) -> float:
    return percentile(_sampled(batch, seconds), percent)


def _sampled(batch: Callable[[], _Sample], seconds: float) -> list[_Sample]:
    deadline = time.perf_counter() + seconds
    samples = [batch()]
    while time.perf_counter() < deadline:
        samples.append(batch())
    return samples


PROBES: dict[str, Probe] = {
    "pointer-chase": Probe("a random walk, one line a page, against one within few pages", "x", chase),
    "pointer-chase-reserved": Probe("the same in reserved huge pages", "x", chase_reserved),
    "pointer-chase-advised": Probe("the same where huge pages are asked for", "x", chase_advised),
    "page-faults": Probe("memory used for the first time", "ns a page", page_faults),
    "memory-copy": Probe("copies of 64 MiB", "ns a MiB", memory_copy),
    "cpu-burst": Probe("a short loop after a pause", "us", cpu_burst),
    "wake-latency": Probe("waking another process after a pause", "us", wake_latency),
    "clock-read": Probe("reading the clock", "ns", clock_read),
}
"""By the name that an entry's `proof` gives."""
