"""TCP over loopback: what the kernel's network stack and two processes reach without any network.

No real network is faster for one process pair, so this bounds parameter servers, sockets between ranks of one host, and proxies. The two ends are
processes on two CPUs; several connections have a process each at the far end.
"""

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.network import nest
from wellfed.bench.setup import Scale, Setup, allowed_cpus, build_ceiling
from wellfed.model import Ceiling, Machine
from wellfed.predict.statistics import p99

IDS = ("loopback-bandwidth.1", "loopback-bandwidth.all", "loopback-latency")
WEIGHT = 1.0
EFFORT: Effort = "quick"
_MOST_STREAMS = 8


def needs(machine: Machine) -> str | None:
    """A Linux kernel, and an interpreter to start."""
    return nest.needs()


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """One connection, several, and single bytes to and fro. Raises WellfedError when the other processes could not be started."""
    before = noise.read_counters()
    cpus = list(allowed_cpus())
    count = max(2, min(len(cpus), _MOST_STREAMS))
    found = nest.measure_networks([], budget_s, cpus, count, one_cpu=False)
    rates = Scale(
        unit="GB/s", band=(0.1, 60.0), band_source="a small core that copies twice to many fast ones"
    )
    one = found["loopback"]
    tail = p99(one["rtt_us"])
    return [
        build_ceiling(
            setup, before, one["gb_s"], rates, id="loopback-bandwidth.1", title="TCP over loopback, one connection",
            method="sendall of 128 KiB between two processes on two CPUs, until the other end has answered; bytes counted once",
            size="40 ms of bytes", threads=1, environment={"tcp": found["tcp"].get("loopback")},
        ),
        build_ceiling(
            setup, before, found["many"]["gb_s"], rates, id="loopback-bandwidth.all", title=f"TCP over loopback, {count} connections",
            method="as with one; a thread each here, a process each there, all CPUs", size="40 ms of bytes", threads=count,
        ),
        build_ceiling(
            setup, before, one["rtt_us"],
            Scale(
                unit="us", higher_is_better=False, band=(4.0, 300.0),
                band_source="four system calls and two context switches to wake-ups from deep idle states", max_cv=None,
            ),
            id="loopback-latency", title="TCP over loopback, round trip of one byte",
            method="TCP_NODELAY, between two processes on two CPUs; about 2 us is the two interpreters", size="1 B", threads=1,
            environment={"p99_us": None if tail is None else round(tail, 2)},
        ),
    ]  # fmt: skip
