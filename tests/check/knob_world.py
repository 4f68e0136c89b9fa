"""A small world in which changes are tried out: files of the kernel made from a machine, which answer a write as the
kernel does, and for settings that are no files the machine with the setting in it."""

import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from wellfed.apply import values
from wellfed.apply.kinds import KINDS
from wellfed.apply.knobs import FILE_KINDS, FileKind, SysctlKind
from wellfed.apply.root import Root
from wellfed.host import memory as memory_reader
from wellfed.host.assemble import assemble, readers
from wellfed.host.parse import bracketed, flag
from wellfed.host.recorded import open_recorded
from wellfed.model import Change, Fact, Machine
from wellfed.model.base import replace

CPU = "/sys/devices/system/cpu"
NET = "/sys/class/net"
PCI = "/sys/bus/pci/devices"
READERS = ("cpu", "kernel", "memory", "storage", "network", "pci", "interrupts")
CHOICES = {
    "enabled": ("always", "madvise", "never"),
    "defrag": ("always", "defer", "defer+madvise", "madvise", "never"),
    "shmem_enabled": ("always", "within_size", "advise", "never", "deny", "force"),
    "policy": ("default", "performance", "powersave", "powersupersave"),
    "scheduler": ("none", "mq-deadline", "kyber", "bfq"),
}
"""Knobs that show all that they take, the chosen one in brackets."""
LISTS = {
    "scaling_available_governors": "performance powersave",
    "energy_performance_available_preferences": "default performance balance_performance balance_power power",
    "available_clocksource": "tsc hpet acpi_pm",
    "platform_profile_choices": "quiet balanced performance",
}
TWINS = (("vm/dirty_bytes", "vm/dirty_ratio"), ("vm/dirty_background_bytes", "vm/dirty_background_ratio"))


class Kernel(Root):
    """A root whose knobs do what the kernel's do: brackets move, twins exclude each other, CPUs come and go, pages are
    taken from those that are free."""

    def write(self, name: str, value: str) -> None:
        text = Path(self.knob(name)).read_text()
        allowed = values.choices(text.strip())
        if allowed:
            assert value in allowed, f"{name} takes {allowed}, not {value}"
            super().write(name, _brackets(allowed, value))
            return
        super().write(name, value)
        for pair in TWINS:
            for one, other in (pair, pair[::-1]):
                if name == f"/proc/sys/{one}" and self.outside(f"/proc/sys/{other}").exists():
                    assert value != "0", f"{name} refuses 0"
                    super().write(f"/proc/sys/{other}", "0")
        if (cpu := re.fullmatch(rf"{CPU}/cpu(\d+)/online", name)) is not None:
            on = values._cpus(self.read(f"{CPU}/online")) - {int(cpu[1])}
            on |= {int(cpu[1])} if value == "1" else set()
            super().write(f"{CPU}/online", _listed(on))
        if name.endswith("/smp_affinity_list"):
            super().write(f"{name.removesuffix('smp_affinity_list')}effective_affinity_list", value)
        if name.endswith("/nr_hugepages"):
            free = f"{name.removesuffix('nr_hugepages')}free_hugepages"
            super().write(free, str(int(self.read(free)) + int(value) - int(text)))


def _brackets(words: tuple[str, ...], chosen: str) -> str:
    return " ".join(f"[{word}]" if word == chosen else word for word in words)


def _listed(cpus: Any) -> str:
    return ",".join(str(cpu) for cpu in sorted(cpus))


def made(folder: Path, machine: Machine) -> tuple[Kernel, frozenset[str]]:
    """The files of a machine, and the fields that are in them."""
    fields = set()
    for field, path, text in _files(machine):
        (folder / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (folder / path.lstrip("/")).write_text(f"{text}\n")
        fields.add(field)
        for leaf, beside in {
            "scaling_governor": "scaling_available_governors",
            "energy_performance_preference": "energy_performance_available_preferences",
            "current_clocksource": "available_clocksource",
            "platform_profile": "platform_profile_choices",
        }.items():
            if path.endswith(f"/{leaf}"):
                (folder / path.lstrip("/")).with_name(beside).write_text(f"{LISTS[beside]}\n")
    (folder / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
    (folder / "proc/sys/kernel/random/boot_id").write_text("boot-one\n")
    (folder / "sys").mkdir(exist_ok=True)
    return Kernel(folder), frozenset(fields - {""})


def _files(machine: Machine) -> Iterator[tuple[str, str, str]]:
    """Field, file, text. A file without a field is one that makes another one readable."""
    for key, value in machine.kernel.sysctls.items():
        yield f"kernel.sysctls[{key}]", f"/proc/sys/{key.replace('.', '/')}", value
    for name, path, parse in memory_reader._FILES:
        value = getattr(machine.memory, name)
        if value is None:
            continue
        text = str(value)
        if parse is bracketed:
            text = _brackets(CHOICES[path.rpartition("/")[2]], text)
        elif parse is flag:
            text = str(value).lower()
        yield f"memory.{name}", path, text
    for pool in machine.memory.huge_pools or ():
        folder = f"{memory_reader.POOLS}/hugepages-{pool.page_bytes >> 10}kB"
        yield "memory.huge_pools", f"{folder}/nr_hugepages", str(pool.total)
        yield "memory.huge_pools", f"{folder}/free_hugepages", str(pool.free)
    if machine.kernel.aspm_policy is not None:
        text = _brackets(CHOICES["policy"], machine.kernel.aspm_policy)
        yield "kernel.aspm_policy", "/sys/module/pcie_aspm/parameters/policy", text
    yield from _cpu_files(machine)
    for index, disk in enumerate(machine.disks):
        for name in ("scheduler", "read_ahead_kb", "nr_requests", "rq_affinity", "nomerges"):
            value = getattr(disk, name)
            if value is not None:
                text = _brackets(CHOICES[name], value) if name in CHOICES else str(value)
                yield f"disks[{index}].{name}", f"/sys/block/{disk.name}/queue/{name}", text
    for index, nic in enumerate(machine.nics):
        if nic.mtu is not None:
            yield f"nics[{index}].mtu", f"{NET}/{nic.name}/mtu", str(nic.mtu)
            yield "", f"{NET}/{nic.name}/device/uevent", ""
    for index, device in enumerate(machine.pci):
        if device.power_control is not None:
            folder = f"{PCI}/{device.address}"
            yield f"pci[{index}].power_control", f"{folder}/power/control", device.power_control
            yield "", f"{folder}/class", device.class_code or ""
            yield "", f"{folder}/vendor", device.vendor or ""

    if machine.kernel.aspm_policy is not None:
        path = "/sys/module/pcie_aspm/parameters/policy"
        yield "kernel.aspm_policy", path, _brackets(CHOICES["policy"], machine.kernel.aspm_policy)
    yield from _irq_files(machine)


def _irq_files(machine: Machine) -> Iterator[tuple[str, str, str]]:
    for name, path in (
        ("default_irq_affinity", "/proc/irq/default_smp_affinity"),
        ("workqueue_cpumask", "/sys/devices/virtual/workqueue/cpumask"),
    ):
        cpus = getattr(machine.kernel, name)
        if cpus is not None:
            yield f"kernel.{name}", path, f"{sum(1 << cpu for cpu in cpus):08x}"
    placed = [irq for irq in machine.irqs if irq.effective and irq.address]
    if not placed:
        return
    cpus = sorted({cpu for node in machine.numa for cpu in node.cpus})
    lines = ["".join(f"  CPU{cpu}" for cpu in cpus)]
    for index, irq in enumerate(placed):
        counts = " ".join(str(irq.count if cpu in irq.effective[:1] else 0) for cpu in cpus)  # type: ignore[index]
        lines.append(f"{irq.number}: {counts} PCI-MSIX-{irq.address} {index}-edge queue")
        for file in ("smp_affinity_list", "effective_affinity_list"):
            yield f"irqs[{index}].effective", f"/proc/irq/{irq.number}/{file}", _listed(irq.effective)
        yield "", f"{PCI}/{irq.address}/class", "0x020000"
    yield "", "/proc/interrupts", "\n".join(lines)


def _cpu_files(machine: Machine) -> Iterator[tuple[str, str, str]]:
    cpu = machine.cpu
    policies = max(len(cpu.governors or ()), len(cpu.energy_preferences or ()), cpu.policies or 0)
    for number in range(policies):
        folder = f"{CPU}/cpufreq/policy{number}"
        for name, file, several in (
            ("governors", "scaling_governor", cpu.governors),
            ("energy_preferences", "energy_performance_preference", cpu.energy_preferences),
        ):
            if several:
                yield f"cpu.{name}", f"{folder}/{file}", several[number % len(several)]
        if cpu.scaling_driver is not None:
            yield "cpu.scaling_driver", f"{folder}/scaling_driver", cpu.scaling_driver
        if cpu.capped_policies is not None:
            capped = number < cpu.capped_policies
            yield "cpu.capped_policies", f"{folder}/scaling_max_freq", "2000000" if capped else "3600000"
            yield "cpu.policies", f"{folder}/cpuinfo_max_freq", "3600000"
    for name, file, numbers in (
        ("energy_bias", "energy_perf_bias", cpu.energy_bias),
        ("resume_latency_us", "pm_qos_resume_latency_us", cpu.resume_latency_us),
    ):
        for number, value in enumerate(numbers or ()):
            yield f"cpu.{name}", f"{CPU}/cpu{number}/power/{file}", "n/a" if value == -1 else str(value)
    if cpu.boost is not None:
        intel = (cpu.scaling_driver or "").startswith("intel_")
        file = "intel_pstate/no_turbo" if intel else "cpufreq/boost"
        yield "cpu.boost", f"{CPU}/{file}", str(int(cpu.boost is not intel))
    for name, path in (
        ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        ("platform_profile", "/sys/firmware/acpi/platform_profile"),
        ("idle_driver", f"{CPU}/cpuidle/current_driver"),
        ("smt", f"{CPU}/smt/control"),
    ):
        if getattr(cpu, name) is not None:
            yield f"cpu.{name}", path, getattr(cpu, name)
    for number, state in enumerate(cpu.idle_states or ()):
        for cpu_number in (0, 1):
            folder = f"{CPU}/cpu{cpu_number}/cpuidle/state{number}"
            yield "cpu.idle_states", f"{folder}/name", state.name
            yield "cpu.idle_states", f"{folder}/latency", str(state.latency_us)
            yield "cpu.idle_states", f"{folder}/disable", str(int(state.disabled or False))
    if cpu.smt is not None and not cpu.offline:
        yield "", f"{CPU}/online", "0,1"  # without it nothing is said of the CPUs
    if cpu.offline:
        everyone = range(max(cpu.offline) + 2)
        yield "cpu.offline", f"{CPU}/present", _listed(everyone)
        yield "cpu.offline", f"{CPU}/online", _listed(set(everyone) - set(cpu.offline))
        for number in everyone[1:]:
            yield "", f"{CPU}/cpu{number}/online", str(int(number not in cpu.offline))


def seen(root: Root, machine: Machine, fields: frozenset[str]) -> Machine:
    """The machine as the readers see it now: of `fields` only what the files say, all else as it was told."""
    host = open_recorded(root.top)
    looked = [fact for name in READERS for fact in readers()[name](host)]
    told = [fact for fact in _facts(msgspec.to_builtins(machine), "") if fact.key not in fields]
    return assemble([*_only(looked, fields), *told])


def _only(facts: list[Fact], fields: frozenset[str]) -> Iterator[Fact]:
    for fact in facts:
        if fact.key in fields:
            yield fact
        # Some readers give a collection as a whole.
        for field in fields:
            collection, _, rest = field.partition("[")
            index, _, name = rest.partition("].")
            if fact.key == collection and index.isdigit() and fact.status == "ok":
                yield replace(fact, key=field, value=fact.value[int(index)][name])


def _facts(node: Any, path: str) -> Iterator[Fact]:
    """A fact for each field that is known."""
    for name, value in node.items():
        key = f"{path}.{name}".lstrip(".")
        if key in ("facts", "gaps") or value is None:
            continue
        if isinstance(value, dict) and key in ("kernel.sysctls",):
            yield from (Fact(key=f"{key}[{k}]", value=v, source="told") for k, v in value.items())
        elif isinstance(value, dict) and value and not path and key != "environment":
            yield from _facts(value, key)
        elif isinstance(value, list | tuple) and value and isinstance(value[0], dict) and not path:
            for index, item in enumerate(value):
                yield from _facts(item, f"{key}[{index}]")
        elif value not in ({}, (), []) or path:
            yield Fact(key=key, value=value, source="told")


def followed(machine: Machine) -> Machine:
    """The machine with what devices do by themselves after a change: a RoCE port uses the largest MTU of InfiniBand
    that fits its interface's frames (with 64 bytes for headers), and no link sleeps under a policy for performance."""
    frames = {nic.name: nic.mtu for nic in machine.nics if nic.mtu is not None}
    ports = tuple(
        replace(
            port,
            active_mtu=max(size for size in (256, 512, 1024, 2048, 4096) if size + 64 <= frames[port.netdev]),
        )
        if port.netdev in frames and port.link_layer == "Ethernet"
        else port
        for port in machine.rdma
    )
    pci = machine.pci
    if machine.kernel.aspm_policy == "performance":
        pci = tuple(replace(device, aspm=device.aspm and "disabled") for device in pci)
    return replace(machine, rdma=ports, pci=pci)


# -- settings that are no files -----------------------------------------------------------------------------


def with_setting(machine: Machine, change: Change) -> Machine:
    """The machine after a change of a kind that is not made through files of the kernel."""
    return {
        "service": _service,
        "nvml": _nvml,
        "ethtool": _ethtool,
        "mount": _mount,
        "hold": _hold,
        "dropin": _dropin,
    }[change.kind](machine, change)


def _service(machine: Machine, change: Change) -> Machine:
    kernel, name = machine.kernel, change.target.removesuffix(".service")
    words = change.new.split()
    for word, field in {
        "started": "active_services",
        "stopped": "active_services",
        "enabled": "enabled_services",
        "disabled": "enabled_services",
    }.items():
        if word in words:
            others = tuple(s for s in getattr(kernel, field) or () if s.removesuffix(".service") != name)
            on = word in ("started", "enabled")
            kernel = replace(kernel, **{field: (*others, name) if on else others})
    software = machine.software
    if name == "nvidia-fabricmanager" and "started" in words:
        software = replace(software, fabricmanager_running=True)
    return replace(machine, kernel=kernel, software=software)


def _nvml(machine: Machine, change: Change) -> Machine:
    address, _, name = change.target.partition("/")
    fields: dict[str, Any] = {
        "persistence_mode": {"persistence": change.new == "enabled"},
        "compute_mode": {"compute_mode": change.new},
    }.get(name) or {"power_limit_w": float(change.new)}
    return replace(
        machine, gpus=tuple(replace(g, **fields) if g.address == address else g for g in machine.gpus)
    )


def _ethtool(machine: Machine, change: Change) -> Machine:
    name, group, what = change.target.split("/")

    def after(nic: Any) -> Any:
        if group == "features":
            long = KINDS["ethtool"].parts(change.target)[2]  # type: ignore[attr-defined]
            from wellfed.apply.adapters import GROUPS

            long = GROUPS["features"].names.get(long, long)
            return replace(nic, features={**nic.features, long: change.new == "on"})
        field = {"rings/rx": "ring_rx", "coalesce/rx-usecs": "rx_usecs", "channels/combined": "channels"}.get(
            f"{group}/{what}"
        )
        if field is not None:
            return replace(nic, **{field: int(change.new)})
        assert (group, what) == ("coalesce", "adaptive-rx")
        return replace(nic, adaptive_rx=change.new == "on")

    return replace(machine, nics=tuple(after(nic) if nic.name == name else nic for nic in machine.nics))


def _mount(machine: Machine, change: Change) -> Machine:
    path, _, what = change.target.rpartition(":")
    if what == "size":
        assert path == "/dev/shm"
        return replace(machine, container=replace(machine.container, shm_bytes=int(change.new)))
    atime = ("noatime", "relatime", "strictatime")
    return replace(
        machine,
        mounts=tuple(
            replace(m, options=(*(o for o in m.options if o not in atime), change.new))
            if m.path == path
            else m
            for m in machine.mounts
        ),
    )


def _hold(machine: Machine, change: Change) -> Machine:
    lowest = min(machine.cpu.dma_latency_us or 0, int(change.new))
    return replace(machine, cpu=replace(machine.cpu, dma_latency_us=lowest))


_LIMITS = {"memlock": "memlock_bytes", "nofile": "open_files", "nproc": "processes"}


def _dropin(machine: Machine, change: Change) -> Machine:
    """limits.d as in limits.conf(5): domain, type, item, value; a unit's file as in systemd.exec(5)."""
    if "/limits.d/" in change.target:
        limits = machine.limits
        assert {line.split()[0] for line in change.new.splitlines()} == {"*", "root"}  # `*` is not root
        for line in change.new.splitlines():
            domain, kind, item, value = line.split()
            assert domain in ("*", "root") and kind == "-"
            number = -1 if value == "unlimited" else int(value)
            field = _LIMITS[item]
            both = msgspec.convert({"soft": number, "hard": number}, type(getattr(limits, field)))
            limits = replace(limits, **{field: both})
        return replace(machine, limits=limits)
    unit = change.target.split("/")[4].removesuffix(".service.d")
    head, setting = change.new.splitlines()
    name, _, value = setting.partition("=")
    assert (head, name) == ("[Service]", "LimitNOFILE")
    units = tuple(
        replace(one, open_files=int(value)) if one.name == unit else one for one in machine.kernel.units or ()
    )
    return replace(machine, kernel=replace(machine.kernel, units=units))


# -- one knob under two names -------------------------------------------------------------------------------


def knob_of(change: Change) -> str:
    """The knob that a change means, the same for two kinds that reach one file. Raises WellfedError."""
    kind = KINDS[change.kind]
    key = kind.key(change.target)
    return key if isinstance(kind, FileKind | SysctlKind) else f"{change.kind}:{key}"


def is_one_knob(a: str, b: str) -> bool:
    return a == b or fnmatch.fnmatchcase(a, b) or fnmatch.fnmatchcase(b, a)


def is_file(change: Change) -> bool:
    return change.kind in FILE_KINDS
