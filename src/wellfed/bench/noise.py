"""What disturbed a measurement: counters of the kernel, read before and after.

Read live and not through the Host door: these are deltas over the very seconds that were measured.
"""

import os
import resource
import time
from pathlib import Path

import psutil

from wellfed.model import Value

_CPU_STAT = ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat", "/sys/fs/cgroup/cpu,cpuacct/cpu.stat")


class Counters(Value, frozen=True, kw_only=True):
    """Running totals at one moment. None: this system does not tell."""

    at_s: float
    cpu_s: float
    steal_s: float | None
    involuntary: int
    throttled_s: float | None


def read_counters() -> Counters:
    """The totals now."""
    times = psutil.cpu_times()
    return Counters(
        at_s=time.monotonic(),
        cpu_s=sum(times),
        steal_s=getattr(times, "steal", None),
        involuntary=resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
        throttled_s=_throttled_s(),
    )


def disturbance(before: Counters, after: Counters) -> dict[str, float]:
    """What went on between two readings: `load1` (runnable tasks, minute average), `steal_pct` of all CPU
    time, `involuntary_switches_per_s` of this process, `throttled_pct` of the time. Unknown ones are left out."""
    seconds = max(after.at_s - before.at_s, 1e-9)
    found = {
        "load1": round(os.getloadavg()[0], 2),
        "involuntary_switches_per_s": round((after.involuntary - before.involuntary) / seconds, 1),
    }
    if before.steal_s is not None and after.steal_s is not None:
        cpu_s = max(after.cpu_s - before.cpu_s, 1e-9)
        found["steal_pct"] = round(100 * max(after.steal_s - before.steal_s, 0.0) / cpu_s, 2)
    if before.throttled_s is not None and after.throttled_s is not None:
        found["throttled_pct"] = round(100 * (after.throttled_s - before.throttled_s) / seconds, 2)
    return found


def blame(noise: dict[str, float], cpus: int) -> str:
    """The disturbances worth naming beside an unsteady result, as a phrase; empty when none stands out."""
    causes = []
    if noise.get("steal_pct", 0) >= 1:
        causes.append(f"the hypervisor took {noise['steal_pct']:.2g} % of the CPU time")
    if noise.get("throttled_pct", 0) >= 1:
        causes.append(f"the CPU quota stopped the process for {noise['throttled_pct']:.2g} % of the time")
    if noise.get("load1", 0) > cpus:
        causes.append(f"load {noise['load1']:.2g} on {cpus} CPUs")
    elif noise.get("involuntary_switches_per_s", 0) >= 50:
        causes.append(f"{noise['involuntary_switches_per_s']:.0f} involuntary switches a second")
    return ", ".join(causes)


def _throttled_s() -> float | None:
    """Seconds that the CPU quota of this cgroup has stopped its processes."""
    for path in _CPU_STAT:
        try:
            text = Path(path).read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name in ("throttled_usec", "throttled_time") and value.isdigit():
                return int(value) / (1e6 if name == "throttled_usec" else 1e9)
    return None
