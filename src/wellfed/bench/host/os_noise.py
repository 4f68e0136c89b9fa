"""How much of a CPU's time goes to others: interrupts, the kernel, the hypervisor, other programs.

One pinned thread reads the clock as fast as it can (`spin`); a gap above 5 us between two readings is time that
somebody else had. Work that waits for its slowest rank pays the largest gap of all of them in each step: what that comes
to for many ranks is worked out from the gaps seen here (`wellfed.predict.os_noise`), and stands beside the result as a
model, not as a measurement.
"""

import time
from collections.abc import Sequence
from typing import Any

from wellfed.bench import noise
from wellfed.bench.host import interrupts, spin
from wellfed.bench.setup import Scale, Setup, allowed_cpus, build_ceiling
from wellfed.bench.team import Team
from wellfed.model import Ceiling, Machine
from wellfed.predict import os_noise as model
from wellfed.predict.statistics import percentile

IDS = ("os-noise", "os-detour")
WEIGHT = 1.5
EFFORT = "quick"
MAX_S = 10.0
_WINDOW_NS = 100_000_000
_WINDOWS = 10
STEP_NS = 10_000_000
RANKS = (8, 64, 512)


def needs(machine: Machine) -> str | None:
    """None: every system has a clock."""
    return None


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Lost time in per cent, and the longest gap, each by windows of a tenth of a second."""
    before = noise.read_counters()
    cpu = allowed_cpus()[-1]
    spinner = spin.best_spinner()
    counts = interrupts.read_counts(cpu)
    spins: list[spin.Spin] = []
    with Team((cpu,)) as team:
        # What compiling took is taken off, but a second says more than a tenth of one.
        left_s = max(budget_s - (time.monotonic() - before.at_s), budget_s / 2)
        team.run(lambda _: spins.append(spinner(int(left_s * 1e9))))
    (seen,) = spins
    caused = interrupts.rates(counts, interrupts.read_counts(cpu), seen.length_ns / 1e9)
    window_ns = min(_WINDOW_NS, max(seen.length_ns // _WINDOWS, 1))
    lost = [100 * part / window_ns for part in model.lost_by_step(seen.gaps, seen.length_ns, window_ns)]
    longest = [gap / 1000 for gap in longest_by_window(seen.gaps, seen.length_ns, window_ns)]
    overall = 100 * sum(length for _, length in seen.gaps) / max(seen.length_ns, 1)
    shared: dict[str, Any] = {
        "tier": "numba" if seen.engine == "numba" else "stdlib",
        "threads": 1,
        "size": f"{len(lost)} windows of {window_ns / 1e6:.0f} ms",
        "method": f"one pinned thread reads the clock each {seen.granularity_ns:.0f} ns; gaps above 5 us are time lost",
    }
    environment = {"cpu": cpu, **describe(seen), "per_second": caused}
    return [
        build_ceiling(
            setup,
            before,
            lost,
            # The bands are those of a quiet host: a timer tick of 5 us at 1000 Hz is 0.5 %.
            Scale(unit="%", higher_is_better=False, band=(0.0, 0.5), band_source=_BAND, max_cv=None),
            id="os-noise",
            title="CPU time lost to others",
            why=_complaint(overall > 0.5, f"{overall:.2g} % of the time went to others"),
            **_low_if(overall > 0.5),
            environment=environment,
            **shared,
        ),
        build_ceiling(
            setup,
            before,
            longest,
            Scale(unit="us", higher_is_better=False, band=(0.0, 1000.0), band_source=_BAND, max_cv=None),
            id="os-detour",
            title="longest gap in a tenth of a second",
            why=_detour_text(max(longest), environment["slowdown_pct_by_ranks"]),
            **_low_if(max(longest) > 1000),
            environment=environment,
            **shared,
        ),
    ]


_BAND = "a host is quiet below 0.5 % and 1 ms (research bands for bulk-synchronous work)"


def longest_by_window(gaps: Sequence[model.Gap], length_ns: int, window_ns: int) -> list[int]:
    """The longest gap that begins in each whole window, ns; the end that is no whole window counts with the last."""
    longest = [0] * max(length_ns // window_ns, 1)
    for start, length in gaps:
        number = min(start // window_ns, len(longest) - 1)
        longest[number] = max(longest[number], length)
    return longest


def describe(seen: spin.Spin) -> dict[str, Any]:
    """The gaps in a few numbers: how many and how long, the tick that they follow, and what the model makes of them."""
    lengths = [length / 1000 for _, length in seen.gaps]
    tick = model.tick_period_ns([start for start, _ in seen.gaps])
    slowdown = {
        str(ranks): round(100 * value, 3)
        for ranks in RANKS
        if (value := model.bulk_synchronous_slowdown(seen.gaps, seen.length_ns, STEP_NS, ranks)) is not None
    }
    found: dict[str, Any] = {
        "granularity_ns": round(seen.granularity_ns, 1),
        "gaps": len(lengths),
        "gaps_per_s": round(len(lengths) / max(seen.length_ns / 1e9, 1e-9), 1),
        "tick_ms": None if tick is None else tick / 1e6,
        "slowdown_pct_by_ranks": slowdown,
        "slowdown_step_ms": STEP_NS / 1e6,
    }
    if lengths:
        found |= {
            "gap_p50_us": percentile(lengths, 50),
            "gap_p99_us": percentile(lengths, 99),
            "gap_max_us": max(lengths),
        }
    return found


def _detour_text(longest_us: float, slowdown: dict[str, float]) -> str | None:
    """What the longest gap was when it is long, and what all of them would cost many ranks when that is much."""
    parts = []
    if longest_us > 1000:
        parts.append(f"the longest gap was {longest_us / 1000:.2g} ms")
    if slowdown and max(slowdown.values()) >= 1:
        told = ", ".join(
            f"{value:.{0 if value >= 10 else 1}f} % with {ranks} ranks" for ranks, value in slowdown.items()
        )
        parts.append(f"modelled: steps of {STEP_NS / 1e6:.0f} ms that wait for all ranks grow by {told}")
    return "; ".join(parts) or None


def _low_if(poor: bool) -> dict[str, str]:
    """The verdict is of the whole time: the best window says nothing about a host's noise."""
    return {"verdict": "low" if poor else "ok"}


def _complaint(poor: bool, text: str) -> str | None:
    return text if poor else None
