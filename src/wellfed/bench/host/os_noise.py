"""How much of a CPU's time goes to others: interrupts, the kernel, the hypervisor, other programs.

One pinned thread reads the clock as fast as it can; a gap above 5 us between two readings is time that
somebody else had (the threshold of the kernel's own osnoise tracer; Python's hiccups stay below it). Work that
waits for its slowest rank pays the largest gap of all of them in each step.
"""

import gc
import time
from typing import NamedTuple

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.setup import Scale, Setup, allowed_cpus, build_ceiling
from wellfed.bench.team import Team
from wellfed.model import Ceiling, Machine

IDS = ("os-noise", "os-detour")
WEIGHT = 1.5
EFFORT: Effort = "quick"
THRESHOLD_NS = 5_000
_WINDOW_NS = 100_000_000
_WINDOWS = 10


class Spin(NamedTuple):
    """`windows`: (lost ns, longest gap ns, length ns) of each; `granularity_ns`: the usual distance between
    two readings."""

    windows: list[tuple[int, int, int]]
    granularity_ns: float
    gaps: int


def needs(machine: Machine) -> str | None:
    """None: every system has a clock."""
    return None


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Lost time in per cent, and the longest gap, each by windows of a tenth of a second."""
    before = noise.read_counters()
    window_ns = min(_WINDOW_NS, max(int(budget_s * 1e9 / _WINDOWS), 1_000_000))
    spins: list[Spin] = []
    cpu = allowed_cpus()[-1]
    with Team((cpu,)) as team:
        team.run(lambda _: spins.append(spin(int(budget_s * 1e9), window_ns)))
    (seen,) = spins
    lost = [100 * lost_ns / length_ns for lost_ns, _, length_ns in seen.windows]
    longest = [gap_ns / 1000 for _, gap_ns, _ in seen.windows]
    shared = {
        "tier": "stdlib",
        "threads": 1,
        "size": f"{len(lost)} windows of {window_ns / 1e6:.0f} ms",
        "method": "one pinned thread reads perf_counter_ns; gaps above 5 us are time lost",
        "environment": {"granularity_ns": round(seen.granularity_ns, 1), "gaps": seen.gaps},
    }
    overall = sum(lost_ns for lost_ns, _, _ in seen.windows) / sum(length for *_, length in seen.windows)
    return [
        build_ceiling(
            setup,
            before,
            lost,
            # The bands are those of a quiet host: a timer tick of 5 us at 1000 Hz is 0.5 %.
            Scale(unit="%", higher_is_better=False, band=(0.0, 0.5), band_source=_BAND, max_cv=None),
            id="os-noise",
            title="CPU time lost to others",
            why=_complaint(100 * overall > 0.5, f"{100 * overall:.2g} % of the time went to others"),
            **_low_if(100 * overall > 0.5),
            **shared,
        ),
        build_ceiling(
            setup,
            before,
            longest,
            Scale(unit="us", higher_is_better=False, band=(0.0, 1000.0), band_source=_BAND, max_cv=None),
            id="os-detour",
            title="longest gap in a tenth of a second",
            why=_complaint(max(longest) > 1000, f"the longest gap was {max(longest) / 1000:.2g} ms"),
            **_low_if(max(longest) > 1000),
            **shared,
        ),
    ]


_BAND = "a host is quiet below 0.5 % and 1 ms (research bands for bulk-synchronous work)"


def spin(duration_ns: int, window_ns: int) -> Spin:
    """Read the clock for that long. The garbage collector is off meanwhile."""
    clock = time.perf_counter_ns
    windows: list[tuple[int, int, int]] = []
    reads, gaps, quiet_ns = 0, 0, 0
    collecting = gc.isenabled()
    gc.disable()
    try:
        end = clock() + duration_ns
        while not windows or clock() < end:
            lost = longest = 0
            start = last = clock()
            stop = start + window_ns
            while last < stop:
                now = clock()
                reads += 1
                if now - last > THRESHOLD_NS:
                    gaps += 1
                    lost += now - last
                    longest = max(longest, now - last)
                last = now
            windows.append((lost, longest, last - start))
            quiet_ns += last - start - lost
    finally:
        if collecting:
            gc.enable()
    return Spin(windows, quiet_ns / max(reads - gaps, 1), gaps)


def _low_if(poor: bool) -> dict[str, str]:
    """The verdict is of the whole time: the best window says nothing about a host's noise."""
    return {"verdict": "low" if poor else "ok"}


def _complaint(poor: bool, text: str) -> str | None:
    return text if poor else None
