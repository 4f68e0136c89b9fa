"""The tape of a recording: every answer that a host gave, and some files that later readers will want.

What is nobody's business never gets onto it, redacted or not: arguments that the kernel passes on to the first
program, names of processes that no reader looks for, lines of the kernel log that no reader reads."""

import fnmatch
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from wellfed.host.archive import walk
from wellfed.host.door import COMMANDS, READ_LIMIT, Host, Reading
from wellfed.host.environment import watched
from wellfed.host.libraries import is_watched_entry
from wellfed.host.parse import kernel_arguments
from wellfed.host.recorded import saved_as
from wellfed.host.software import KUBELET
from wellfed.host.sysctl_files import lines, sections
from wellfed.model.places import DAEMONS

MAX_EXTRA_FILES = 30_000

# What facts/host_checks.csv names and no reader reads yet, so that a box recorded today can be judged by the checks of
# tomorrow. One folder level a pattern, never recursive: sysfs links loop. Never a whole folder in which the kernel or a
# patch of it may show serial numbers (`topology/ppin`) or a site's own knobs.
_EXTRA_TEXT = """
/etc/os-release /etc/tuned/active_profile /etc/default/irqbalance /etc/nvidia-container-runtime/config.toml
/boot/config-* /proc/buddyinfo /proc/cgroups /proc/cpuinfo /proc/diskstats /proc/filesystems /proc/interrupts
/proc/irq/default_smp_affinity /proc/irq/*/smp_affinity_list /proc/irq/*/effective_affinity_list /proc/loadavg
/proc/mdstat /proc/meminfo /proc/modules /proc/net/dev /proc/net/softnet_stat /proc/pagetypeinfo /proc/pressure/*
/proc/self/cgroup /proc/self/limits /proc/self/mountinfo /proc/self/mounts /proc/self/status /proc/stat /proc/swaps
/proc/sys/kernel/sched_* /proc/sys/kernel/numa_* /proc/sys/kernel/perf_* /proc/sys/kernel/*watchdog*
/proc/sys/kernel/*lockup* /proc/sys/kernel/hung_task_* /proc/sys/kernel/split_lock_mitigate /proc/sys/kernel/shm*
/proc/sys/kernel/threads-max /proc/sys/vm/* /proc/sys/net/core/* /proc/sys/net/ipv4/tcp_* /proc/uptime /proc/version
/proc/vmstat /proc/zoneinfo /proc/driver/nvidia/params /proc/driver/nvidia/version
/proc/driver/nvidia/gpus/*/information /proc/driver/nvidia/gpus/*/numa_status /proc/driver/nvidia/gpus/*/power
/proc/driver/nvidia-fs/stats /sys/block/[!lrz]*/queue/* /sys/block/rbd*/queue/* /sys/block/*/size
/sys/block/*/device/model /sys/bus/node/devices/*/access0/initiators/* /sys/class/dmi/id/bios_date
/sys/class/dmi/id/bios_version /sys/class/dmi/id/product_name /sys/class/dmi/id/sys_vendor /sys/class/hwmon/*/name
/sys/class/iommu/* /sys/class/net/*/mtu /sys/class/net/*/speed /sys/class/net/*/duplex
/sys/class/net/*/carrier_changes /sys/class/net/*/napi_defer_hard_irqs /sys/class/net/*/gro_flush_timeout
/sys/class/net/*/statistics/* /sys/class/net/*/queues/*/rps_cpus /sys/class/net/*/queues/*/xps_cpus
/sys/class/powercap/*/constraint_0_power_limit_uw /sys/class/nvme/*/numa_node /sys/class/nvme/*/model
/sys/devices/system/clocksource/clocksource0/*_clocksource /sys/devices/system/cpu/*
/sys/devices/system/cpu/cpu*/topology/*_id /sys/devices/system/cpu/cpu*/topology/*_list
/sys/devices/system/cpu/cpu*/cache/index*/level /sys/devices/system/cpu/cpu*/cache/index*/size
/sys/devices/system/cpu/cpu*/cache/index*/type /sys/devices/system/cpu/cpu*/cache/index*/id
/sys/devices/system/cpu/cpu*/cache/index*/shared_cpu_list /sys/devices/system/cpu/cpu*/cpu_capacity
/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us /sys/devices/system/cpu/cpu*/thermal_throttle/*
/sys/devices/system/cpu/cpu*/acpi_cppc/highest_perf /sys/devices/system/cpu/cpu*/cpuidle/*/name
/sys/devices/system/cpu/cpu*/cpuidle/*/latency /sys/devices/system/cpu/cpu*/cpuidle/*/disable
/sys/devices/system/cpu/cpufreq/policy*/* /sys/devices/system/cpu/intel_pstate/* /sys/devices/system/cpu/smt/*
/sys/devices/system/cpu/vulnerabilities/* /sys/devices/system/edac/mc/mc*/ce_count
/sys/devices/system/edac/mc/mc*/ue_count /sys/devices/system/memory/auto_online_blocks /sys/devices/system/node/*
/sys/devices/system/node/node*/*stat /sys/devices/system/node/node*/hugepages/*/* /sys/devices/cpu_atom/cpus
/sys/devices/cpu_core/cpus /sys/fs/cgroup/cgroup.*controllers /sys/fs/cgroup/cpu.* /sys/fs/cgroup/cpuset.*
/sys/fs/cgroup/memory.* /sys/fs/cgroup/io.* /sys/firmware/acpi/platform_profile /sys/hypervisor/type
/sys/kernel/debug/sched/preempt /sys/kernel/iommu_groups/*/type /sys/kernel/mm/hugepages/*/* /sys/kernel/mm/ksm/run
/sys/kernel/mm/lru_gen/enabled /sys/kernel/mm/mempolicy/weighted_interleave/node* /sys/kernel/mm/numa/demotion_enabled
/sys/kernel/mm/transparent_hugepage/*enabled /sys/kernel/mm/transparent_hugepage/defrag
/sys/kernel/mm/transparent_hugepage/khugepaged/* /sys/kernel/security/lockdown
/sys/module/intel_idle/parameters/max_cstate /sys/module/nvme/parameters/* /sys/module/nvme_core/parameters/*
/sys/module/nvidia/version /sys/module/amdgpu/version /sys/module/pcie_aspm/parameters/policy
"""
EXTRA = tuple(_EXTRA_TEXT.split())

# Of these folders only the names are kept that lead to something recorded, or that a reader goes by: the others
# are a site's own programs, packages and groups.
_NARROW = re.compile(
    r"/proc|/boot|/etc|/proc/sys(?:/.*)?|/sys/fs/cgroup(?:/.*)?|/sys/devices/system/node/node\d+|.*/(?:site|dist)-packages"
    r"|/sys/kernel/mm/.*"
)
_COMM = re.compile(r"/proc/(\d+)/comm")
_OF_PROCESS = re.compile(r"/proc/\d+/(?!comm$).*")
"""What a process is called, whose it is and which files it has mapped is never kept."""
_KEY = re.compile(r"_key$|_secret$|/ppin$")
"""Keys of the network stack and the serial number of a CPU stand among the knobs."""


class RecordingHost:
    """Passes every question on to another host and keeps the answers."""

    def __init__(self, inner: Host) -> None:
        self.inner = inner
        self.recorded = inner.recorded
        self.origin = inner.origin
        self.notes = inner.notes
        self.links: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.readings: dict[str, Reading] = {}
        self.listings: dict[str, tuple[str, ...]] = {}
        self.present: set[str] = set()
        self.commands: dict[str, Reading] = {}
        self.probes: dict[str, Reading] = {}
        self.nvml_answer: dict[str, Any] | None = None
        self.environment: dict[str, str] | None = None
        self._link_of: dict[str, str | None] = {}

    def _link(self, path: str) -> str | None:
        if path in ("/proc/self", "/proc/thread-self"):
            return None  # the number of a process that is gone when this is replayed
        if path not in self._link_of:
            self._link_of[path] = self.inner.link(path)
        return self._link_of[path]

    def _canonical(self, path: str) -> str | None:
        real, met = walk(path, self._link)
        self.links.update(met)
        return real

    def read(self, path: str, limit: int = READ_LIMIT) -> Reading:
        reading = self.inner.read(path, limit)
        real = self._canonical(path)
        if real is None or not self._wanted(real, reading):
            return reading
        if reading.text is None:
            self.readings[real] = reading
        elif len(reading.text) >= len(self.files.get(real, "")):
            self.files[real] = _kept(real, reading.text)
        return reading

    def _wanted(self, real: str, reading: Reading) -> bool:
        """Of processes only the daemons, the first, and number 2, which says whether this is a container."""
        if _KEY.search(real) or _OF_PROCESS.fullmatch(real):
            return False
        process = _COMM.fullmatch(real)
        if not process:
            return True
        kept = real in self.files or process[1] in ("1", "2") or not any(map(_COMM.fullmatch, self.files))
        return reading.text is not None and (kept or reading.text.strip() in DAEMONS)

    def forget(self, path: str) -> None:
        """Takes a reading that gave nothing off the tape."""
        if real := self._canonical(path):
            self.readings.pop(real, None)

    def narrow(self) -> None:
        """Takes names off the listings of folders that hold what is the owner's own, once all was read."""
        led: set[str] = set()
        for path in (*self.files, *self.links, *self.readings, *self.present):
            while path and path not in led:
                led.add(path)
                path = path.rpartition("/")[0]
        for folder, names in self.listings.items():
            if _NARROW.fullmatch(folder):
                packages = folder.endswith("-packages")
                self.listings[folder] = tuple(
                    name
                    for name in names
                    if f"{folder}/{name}" in led or (packages and is_watched_entry(name))
                )

    def listdir(self, path: str) -> tuple[str, ...]:
        names = self.inner.listdir(path)
        if real := self._canonical(path):
            self.listings[real] = names
            if not names and self.inner.exists(path):
                self.present.add(real)
        return names

    def link(self, path: str) -> str | None:
        parent, _, name = path.rstrip("/").rpartition("/")
        folder = self._canonical(parent or "/")
        target = self.inner.link(path)
        if folder and target is not None:
            self.links[f"{folder.rstrip('/')}/{name}"] = target
        return target

    def real(self, path: str) -> str | None:
        real = self.inner.real(path)
        self._note_present(path, real is not None)
        return real

    def exists(self, path: str) -> bool:
        there = self.inner.exists(path)
        self._note_present(path, there)
        return there

    def _note_present(self, path: str, there: bool) -> None:
        if (real := self._canonical(path)) and there:
            self.present.add(real)

    def run(self, name: str, item: str = "") -> Reading:
        reading = self.inner.run(name, item)
        if reading.text is not None and (keep := COMMANDS[name].keep):
            lines = filter(re.compile(keep).search, reading.text.splitlines())  # a tar may hold more
            reading = msgspec.structs.replace(reading, text="\n".join(lines))
        self.commands[saved_as(name, item)] = reading
        return reading

    def nvml(self) -> dict[str, Any]:
        self.nvml_answer = self.inner.nvml()
        return self.nvml_answer

    def environ(self) -> dict[str, str]:
        self.environment = watched(self.inner.environ())
        return self.environment

    def probe(self, name: str) -> Reading:
        self.probes[name] = self.inner.probe(name)
        return self.probes[name]


def _watched_lines(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if any(lines(line)))


def _profile(text: str) -> str:
    """Of a profile what it includes and the knobs that it sets; of other parts not even what they are called."""
    parts = {name: part for name, part in sections(text).items() if name in ("main", "sysctl")}
    included = "\n".join(re.findall(r"^\s*include\s*=.+$", parts.get("main", ""), re.MULTILINE))
    return f"[main]\n{included}\n[sysctl]\n{_watched_lines(parts.get('sysctl', ''))}\n"


_KEPT: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = (
    (re.compile(r"/proc/cmdline"), kernel_arguments),
    (re.compile(r"/(?:etc|run|(?:usr/)?(?:local/)?lib)/sysctl\.(?:d/.*|conf)"), _watched_lines),
    (re.compile(r"/(?:etc|usr/lib)/tuned/.*/tuned\.conf"), _profile),
    (
        re.compile(re.escape(KUBELET)),
        lambda text: "\n".join(re.findall(r"^\w+ManagerPolicy\b.*$", text, re.MULTILINE)),
    ),
)
"""Files of which only what readers go by is kept: the rest is a site's own."""


def _kept(path: str, text: str) -> str:
    return next((kept(text) for form, kept in _KEPT if form.fullmatch(path)), text)


def read_extra(tape: RecordingHost) -> None:
    """Reads the files that no reader asks for yet."""
    for number, path in enumerate(path for pattern in EXTRA for path in _expand(tape.listdir, pattern)):
        if number >= MAX_EXTRA_FILES:
            return
        if tape.read(path).status == "unsupported":
            tape.forget(path)  # a pattern that caught a folder


def _expand(listdir: Callable[[str], tuple[str, ...]], pattern: str) -> Iterable[str]:
    folders = [""]
    for part in pattern.strip("/").split("/"):
        if any(sign in part for sign in "*?["):
            folders = [f"{at}/{name}" for at in folders for name in fnmatch.filter(listdir(at or "/"), part)]
        else:
            folders = [f"{at}/{part}" for at in folders]
    return folders
