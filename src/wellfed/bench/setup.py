"""What every benchmark is given, and how a set of samples becomes a Ceiling."""

import hashlib
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import psutil

from wellfed.bench import noise
from wellfed.model import Ceiling, Machine, Value
from wellfed.predict import statistics

MIB = 1 << 20
GIB = 1 << 30

_SC_CACHE_SIZE = {1: 188, 2: 191, 3: 194}
"""_SC_LEVEL1_DCACHE_SIZE and so on of glibc, which Python has no names for. Other C libraries refuse them."""


class Options(Value, frozen=True, kw_only=True):
    """What only the user can tell: `shapes` of the GEMMs of a model (M, N, K), `peers` to measure a network with
    (HOST:PORT:TOKEN), `tier` to do without the better one (`driver`: no torch)."""

    shapes: tuple[tuple[int, int, int], ...] = ()
    peers: tuple[str, ...] = ()
    tier: str | None = None


class Setup(Value, frozen=True, kw_only=True):
    """`machine` tells sizes and counts; None in it is asked of the C library or of psutil instead. `folder`
    is where storage is measured. `only` are the ids, patterns, modules and groups that were asked for, () for all."""

    machine: Machine
    folder: Path
    effort: Literal["quick", "full"] = "quick"
    only: tuple[str, ...] = ()
    options: Options = Options()


class Scale(Value, frozen=True, kw_only=True):
    """How the numbers of one ceiling are to be read; see `Ceiling` for the fields."""

    unit: str
    higher_is_better: bool = True
    band: tuple[float, float] | None = None
    band_source: str | None = None
    peak: float | None = None
    peak_source: str | None = None
    max_cv: float | None = statistics.NOISY_CV


def build_ceiling(
    setup: Setup, before: noise.Counters, samples: Sequence[float], scale: Scale, **fields: Any
) -> Ceiling:
    """A judged Ceiling from samples. `before` was read when the measurement began. `fields` are those of
    `Ceiling`; a `why` among them is a reservation that stands beside whatever is found, while a `verdict` with
    its `why` replaces what would be found, and a `peak` with its `ratio` is shown without being judged by (a switch that reduces
    carries more than its links)."""
    after = noise.read_counters()
    summary = statistics.summarize(samples, higher_is_better=scale.higher_is_better)
    verdict, why = statistics.judge(
        summary,
        higher_is_better=scale.higher_is_better,
        unit=scale.unit,
        band=scale.band,
        peak=scale.peak,
        max_cv=scale.max_cv,
    )
    disturbed = noise.disturbance(before, after)
    reservations = [fields.pop("why", None)]
    if "verdict" in fields:
        verdict, why = fields.pop("verdict"), None
    if verdict in ("noisy", "low"):
        why = ": ".join(text for text in (why, noise.blame(disturbed, len(allowed_cpus()))) if text)
    reservations.append(why)
    environment = {**describe_environment(setup), **fields.pop("environment", {})}
    shown = {"peak": scale.peak, "peak_source": scale.peak_source, "ratio": _ratio(summary.best, scale)}
    return Ceiling(
        hardware_key=hardware_key(setup.machine),
        unit=scale.unit,
        higher_is_better=scale.higher_is_better,
        band=scale.band,
        band_source=scale.band_source,
        verdict=verdict,
        why="; ".join(text for text in reservations if text) or None,
        noise=disturbed,
        environment=environment,
        seconds=round(after.at_s - before.at_s, 3),
        **summary._asdict(),
        **{**shown, **fields},
    )


def _ratio(best: float, scale: Scale) -> float | None:
    """How near to the peak it came: at most about 1, for rates and latencies alike."""
    if not scale.peak or not best:
        return None
    return round(best / scale.peak if scale.higher_is_better else scale.peak / best, 4)


def hardware_key(machine: Machine) -> str:
    """The same for machines of the same make: CPU model and counts, memory in GiB, GPU names and the kernel's
    major version. Nothing in it names one machine."""
    cpu, memory = machine.cpu, machine.memory.total_bytes
    parts = (
        cpu.model_name,
        cpu.packages,
        cpu.cores,
        cpu.logical,
        None if memory is None else round(memory / GIB),
        sorted(gpu.name or "" for gpu in machine.gpus),
        (machine.kernel.release or "").partition(".")[0],
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def describe_environment(setup: Setup) -> dict[str, Any]:
    """What the result depends on besides the hardware."""
    machine = setup.machine
    return {
        "thp": machine.memory.thp_enabled,
        "governors": list(machine.cpu.governors or ()) or None,
        "virtualization": machine.kernel.virtualization or machine.cpu.hypervisor,
        "python": platform.python_version(),
    }


def allowed_cpus() -> tuple[int, ...]:
    """CPUs this process may run on; all of them where the system has no affinity (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def usable_threads(machine: Machine) -> int:
    """Threads that can run at once: allowed CPUs, cut to the container's quota."""
    quota = machine.container.cpu_quota
    allowed = len(allowed_cpus())
    return allowed if quota is None or quota <= 0 else max(1, min(allowed, round(quota)))


def pin(cpu: int) -> None:
    """Keep the calling thread on one CPU, where the system can; it goes on unpinned where it may not."""
    if hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(0, {cpu})
        except OSError:
            pass  # the CPU went away, or a sandbox forbids it


def available_bytes(machine: Machine) -> int:
    """Memory that may be taken without harm: what the kernel calls available, cut to the container's limit."""
    available = int(psutil.virtual_memory().available)
    box = machine.container
    if box.memory_limit_bytes is not None and box.memory_limit_bytes > 0:
        available = min(available, box.memory_limit_bytes - (box.memory_used_bytes or 0))
    return max(available, 0)


def cache_bytes(level: int, machine: Machine | None = None) -> int | None:
    """Bytes of one L1 data or L2 cache, or of all L3 caches together; None when nobody tells."""
    if level == 3 and machine is not None and machine.cpu.l3_bytes:
        return machine.cpu.l3_bytes
    if platform.system() != "Linux":
        return None
    try:
        size = os.sysconf(_SC_CACHE_SIZE[level])
    except (OSError, ValueError):
        return None
    return size if size > 0 else None


def size_text(size: int) -> str:
    """Bytes for a person: `256 MiB`."""
    for name, unit in (("GiB", GIB), ("MiB", MIB), ("KiB", 1 << 10)):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} B"
