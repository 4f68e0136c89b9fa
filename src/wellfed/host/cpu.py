"""The processors: who they are, how they hang together, how they are governed."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from wellfed.host import cpuinfo
from wellfed.host.busy import foreign_fact
from wellfed.host.cores import CPU, online_cpus, present_cpus, read_threads
from wellfed.host.cpuinfo import CpuInfo, parse_cpuinfo
from wellfed.host.door import Host, Reading
from wellfed.host.parse import (
    cpu_list,
    decimal,
    fact,
    first_ok,
    flag,
    gap,
    integer,
    json_field,
    known,
    natural,
    numbered,
    plain,
)
from wellfed.host.virtual import hypervisor
from wellfed.model.fact import Fact

RAPL = "/sys/class/powercap/intel-rapl:0"
"""The first package. Its constraint 0 is the long-term one; AMD's parts show energy here and no limits."""
NEVER = -1
"""`n/a` of pm_qos_resume_latency_us: this CPU may not sleep at all (0 is no limit)."""
CPUINFO_LIMIT = 8 << 20
"""A machine with 1000 CPUs prints about 1.5 MB of cpuinfo."""


def read_cpu(host: Host) -> list[Fact]:
    """Facts of `Machine.cpu`."""
    reading = host.read("/proc/cpuinfo", CPUINFO_LIMIT)
    info = parse_cpuinfo(reading.text or "")
    return [
        *_identity(host, info, reading),
        *_topology(host, info),
        *_clocks(host),
        *_idle(host),
        *_load(host),
        *_power(host),
        *_throttles(host),
        *_latency_limits(host),
        foreign_fact(host),
    ]


def _identity(host: Host, info: CpuInfo, reading: Reading) -> list[Fact]:
    def said(key: str, value: Any) -> Fact:
        if value is not None:
            return known(f"cpu.{key}", value, reading.source)
        missing = reading.status != "ok"
        status = reading.status if missing else "unsupported"
        return gap(f"cpu.{key}", reading.source, status, reading.detail if missing else "it does not say")

    return [
        first_ok(
            (
                fact("cpu.arch", host.probe("uname"), json_field("machine")),
                fact("cpu.arch", host.read("/proc/sys/kernel/arch")),
                said("arch", cpuinfo.architecture(info)),
            )
        ),
        said("vendor", cpuinfo.vendor(info)),
        said("model_name", cpuinfo.model_name(info)),
        said("family", plain(info.first("cpu family", "CPU Family"))),
        said("model", plain(info.first("model"))),
        said("microcode", info.first("microcode")),
        said("flags", cpuinfo.flags(info)),
        hypervisor(host, info, "cpu.hypervisor"),
        fact("cpu.page_size_bytes", host.probe("page_size"), integer),
    ]


def _topology(host: Host, info: CpuInfo) -> list[Fact]:
    online, source = online_cpus(host, info)
    present, present_source = present_cpus(host, info)
    if not online:
        names = ("logical", "cores", "packages", "threads_per_core", "l3_groups", "l3_bytes", "threads")
        return [
            gap(f"cpu.{name}", source, detail="no CPU can be seen") for name in (*names, "offline", "allowed")
        ]
    rows, l3_bytes = read_threads(host, info, online, present)
    running = [row for row in rows if row["online"]]
    facts = [
        known("cpu.logical", len(online), source),
        known("cpu.threads", rows, f"{CPU}/cpu*/topology"),
        _offline(host, online, present, present_source),
        first_ok((fact("cpu.possible", host.read(f"{CPU}/possible"), lambda text: len(cpu_list(text))),)),
        _allowed(host),
        *_kernel_set(host, "isolated", "isolcpus"),
        *_kernel_set(host, "nohz_full", "nohz_full"),
        fact("cpu.smt", host.read(f"{CPU}/smt/control")),
    ]
    for key, field in {"cores": "core", "packages": "package", "l3_groups": "l3"}.items():
        seen = [row[field] for row in running if field in row]
        facts.append(_count(f"cpu.{key}", seen, len(set(seen)), len(running)))
        if key == "cores":
            most = max((seen.count(core) for core in set(seen)), default=0)
            facts.append(_count("cpu.threads_per_core", seen, most, len(running)))
    if l3_bytes:
        facts.append(known("cpu.l3_bytes", l3_bytes, f"{CPU}/cpu*/cache"))
    else:
        facts.append(gap("cpu.l3_bytes", f"{CPU}/cpu*/cache", detail="no level 3 cache is shown"))
    return facts


def _count(key: str, seen: list[int], count: int, running: int) -> Fact:
    """Of a recording that was cut short, or a snapshot that kept some CPUs, no number of cores is told: it would be
    too low."""
    source = f"{CPU}/cpu*/cache" if key == "cpu.l3_groups" else f"{CPU}/cpu*/topology"
    if not seen:
        return gap(key, source, detail="the kernel does not show it")
    if len(seen) < running:
        return gap(key, source, detail=f"only {len(seen)} of {running} CPUs show it")
    return known(key, count, source)


def _offline(host: Host, online: tuple[int, ...], present: tuple[int, ...], source: str) -> Fact:
    if source == "/proc/cpuinfo":
        return gap("cpu.offline", source, "unsupported", "it lists online CPUs only")
    return known("cpu.offline", tuple(sorted(set(present) - set(online))), source)


def _allowed(host: Host) -> Fact:
    status = host.read("/proc/self/status")
    return first_ok(
        (
            fact("cpu.allowed", host.probe("affinity"), json.loads),
            fact("cpu.allowed", status, _allowed_list, line="Cpus_allowed_list"),
        )
    )


def _allowed_list(text: str) -> tuple[int, ...] | None:
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", text, re.MULTILINE)
    return cpu_list(match.group(1)) if match else None


def _kernel_set(host: Host, name: str, parameter: str) -> list[Fact]:
    """A list in sysfs; on older kernels what the command line asked for."""

    def from_cmdline(text: str) -> tuple[int, ...]:
        match = re.search(rf"(?:^|\s){parameter}=([\w,-]*,)?([\d,-]+)", text)
        return cpu_list(match.group(2)) if match else ()

    in_sysfs = fact(f"cpu.{name}", host.read(f"{CPU}/{name}"), cpu_list)
    return [
        first_ok(
            iter((in_sysfs, fact(f"cpu.{name}", host.read("/proc/cmdline"), from_cmdline, line=parameter)))
        )
    ]


def _policies(host: Host) -> list[str]:
    """Folders of the frequency policies. Old kernels have one in each CPU's folder."""
    new = numbered(host.listdir(f"{CPU}/cpufreq"), "policy")
    if new:
        return [f"{CPU}/cpufreq/policy{number}" for number in new]
    cpus = numbered(host.listdir(CPU), "cpu")
    return [
        f"{CPU}/cpu{cpu}/cpufreq" for cpu in cpus if host.exists(f"{CPU}/cpu{cpu}/cpufreq/scaling_governor")
    ]


def _clocks(host: Host) -> list[Fact]:
    policies = _policies(host)
    facts = [
        _boost(host, policies),
        fact(
            "cpu.clocksource", host.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        ),
        fact("cpu.platform_profile", host.read("/sys/firmware/acpi/platform_profile")),
        _distinct(host, "cpu.energy_bias", _bias_files(host), integer),
    ]
    if not policies:
        names = (
            "scaling_driver",
            "governors",
            "energy_preferences",
            "capped_policies",
            "policies",
            "max_khz",
        )
        detail = "no frequency scaling is shown (usual in virtual machines)"
        return [*facts, *(gap(f"cpu.{name}", f"{CPU}/cpufreq", detail=detail) for name in names)]
    files = {
        name: [host.read(f"{policy}/{name}") for policy in policies]
        for name in (
            "scaling_governor",
            "energy_performance_preference",
            "cpuinfo_max_freq",
            "scaling_max_freq",
        )
    }
    both = zip(files["scaling_max_freq"], files["cpuinfo_max_freq"], strict=True)
    numbers = [(plain(limit.text), plain(best.text)) for limit, best in both]
    pairs = [(limit, best) for limit, best in numbers if limit and best]
    return [
        *facts,
        fact("cpu.scaling_driver", host.read(f"{policies[0]}/scaling_driver")),
        _distinct_readings("cpu.governors", files["scaling_governor"], str.strip),
        _distinct_readings("cpu.energy_preferences", files["energy_performance_preference"], str.strip),
        known("cpu.policies", len(policies), f"{CPU}/cpufreq"),
        known(
            "cpu.capped_policies",
            sum(limit < best for limit, best in pairs),
            f"{CPU}/cpufreq/*/scaling_max_freq",
        )
        if pairs
        else gap("cpu.capped_policies", f"{policies[0]}/scaling_max_freq"),
        known("cpu.max_khz", max(best for _, best in pairs), f"{CPU}/cpufreq/*/cpuinfo_max_freq")
        if pairs
        else gap("cpu.max_khz", f"{policies[0]}/cpuinfo_max_freq"),
    ]


def _boost(host: Host, policies: list[str]) -> Fact:
    def inverted(text: str) -> bool:
        return not flag(text)

    return first_ok(
        fact("cpu.boost", host.read(path), parse)
        for path, parse in (
            (f"{CPU}/intel_pstate/no_turbo", inverted),
            (f"{CPU}/cpufreq/boost", flag),
            (f"{policies[0]}/boost" if policies else f"{CPU}/cpufreq/policy0/boost", flag),
        )
    )


def _bias_files(host: Host) -> list[str]:
    cpus = numbered(host.listdir(CPU), "cpu")
    if not any(host.exists(f"{CPU}/cpu{cpu}/power/energy_perf_bias") for cpu in cpus[:1]):
        return []
    return [f"{CPU}/cpu{cpu}/power/energy_perf_bias" for cpu in cpus]


def _distinct(host: Host, key: str, paths: list[str], parse: Callable[[str], Any]) -> Fact:
    return _distinct_readings(key, [host.read(path) for path in paths], parse)


def _distinct_readings(key: str, readings: Iterable[Reading], parse: Callable[[str], Any]) -> Fact:
    """The different values that the files hold, sorted; a gap when none holds any."""
    facts = [fact(key, reading, parse) for reading in readings]
    values = sorted({found.value for found in facts if found.status == "ok" and found.value != ""})
    if values:
        source = re.sub(r"\d+(?=/(?:cpufreq/|power/)?[a-z_]+$)", "*", facts[0].source)
        return known(key, tuple(values), source, ", ".join(map(str, values)))
    if any(found.status == "ok" for found in facts):
        return gap(key, facts[0].source, "unsupported", "the file is empty")
    return first_ok(facts) if facts else gap(key, f"{CPU}/cpu*/power", detail="not shown on this machine")


def _idle(host: Host) -> list[Fact]:
    """Idle states as CPU 0 (or the first that has them) shows them."""
    facts = [fact("cpu.idle_driver", host.read(f"{CPU}/cpuidle/current_driver"))]
    for cpu in numbered(host.listdir(CPU), "cpu"):
        folder = f"{CPU}/cpu{cpu}/cpuidle"
        states = numbered(host.listdir(folder), "state")
        if states:
            rows = [_idle_state(host, f"{folder}/state{state}") for state in states]
            return [*facts, known("cpu.idle_states", rows, folder)]
    return [*facts, gap("cpu.idle_states", f"{CPU}/cpu*/cpuidle", detail="no idle states are shown")]


def _idle_state(host: Host, folder: str) -> dict[str, Any]:
    latency = fact("", host.read(f"{folder}/latency"), natural)
    disabled = fact("", host.read(f"{folder}/disable"), flag)
    name = host.read(f"{folder}/name").text or folder.rpartition("/")[2]
    return {"name": name.strip(), "latency_us": latency.value, "disabled": disabled.value}


def _load(host: Host) -> list[Fact]:
    return [
        fact("cpu.steal_pct", host.read("/proc/stat"), _steal, line="cpu "),
        fact("cpu.pressure_some_pct", host.read("/proc/pressure/cpu"), _pressure),
    ]


def _steal(text: str) -> float | None:
    """Share of all CPU time since boot that the hypervisor gave to others (proc(5): user nice system idle
    iowait irq softirq steal; guest time is inside user time)."""
    match = re.search(r"^cpu\s+([0-9 ]+)$", text, re.MULTILINE)
    ticks = [integer(word) for word in match.group(1).split()[:8]] if match else []
    if len(ticks) < 8 or not sum(ticks):
        return None
    return round(100.0 * ticks[7] / sum(ticks), 3)


def _pressure(text: str) -> float | None:
    match = re.search(r"^some avg10=(\S+)", text, re.MULTILINE)
    return decimal(match.group(1)) if match else None


def _power(host: Host) -> list[Fact]:
    """What the first package may draw for long, and the most that the part is made for (0 in it means unknown)."""
    return [
        fact("cpu.rapl_limit_w", host.read(f"{RAPL}/constraint_0_power_limit_uw"), _watts),
        fact("cpu.rapl_max_w", host.read(f"{RAPL}/constraint_0_max_power_uw"), _watts),
    ]


def _watts(text: str) -> float | None:
    microwatts = integer(text)
    return microwatts / 1e6 if microwatts > 0 else None


def _throttles(host: Host) -> list[Fact]:
    """How often heat slowed a core or a package since boot. Each CPU counts what it was told of, so one event is in many
    counters: the largest is a lower bound of the events, the sum would be many times too high."""
    cpus = numbered(host.listdir(CPU), "cpu")
    shown = [cpu for cpu in cpus if host.exists(f"{CPU}/cpu{cpu}/thermal_throttle")]
    facts = []
    for name in ("core", "package"):
        key, file = f"cpu.{name}_throttles", f"{name}_throttle_count"
        counts = [fact(key, host.read(f"{CPU}/cpu{cpu}/thermal_throttle/{file}"), natural) for cpu in shown]
        seen = [count.value for count in counts if count.status == "ok"]
        source = f"{CPU}/cpu*/thermal_throttle/{file}"
        if seen:
            facts.append(known(key, max(seen), source))
        else:
            facts.append(
                first_ok(counts) if counts else gap(key, source, detail="no such counters are shown")
            )
    return facts


def _latency_limits(host: Host) -> list[Fact]:
    asked = host.probe("dma_latency")
    cpus = numbered(host.listdir(CPU), "cpu")
    files = [f"{CPU}/cpu{cpu}/power/pm_qos_resume_latency_us" for cpu in cpus]

    def said(name: str) -> Callable[[str], Any]:
        def parse(text: str) -> Any:
            return None if text.strip() == "null" else json_field(name)(text)

        return parse

    return [
        fact("cpu.dma_latency_us", asked, said("value_us")),
        fact("cpu.dma_latency_holders", asked, said("holders")),
        _distinct(host, "cpu.resume_latency_us", files, _resume_latency),
    ]


def _resume_latency(text: str) -> int:
    return NEVER if text.strip() == "n/a" else integer(text)
