"""The kernel: version, command line, the sysctls worth watching, modules, mitigations, log, services."""

import re
from collections.abc import Callable
from typing import Any

from wellfed.host.cpuinfo import parse_cpuinfo
from wellfed.host.door import Host
from wellfed.host.kernel_log import xid_lines
from wellfed.host.parse import bracketed, decimal, fact, first_ok, gap, json_field, kernel_arguments, known
from wellfed.host.virtual import hypervisor
from wellfed.model.base import replace
from wellfed.model.fact import Fact

_WATCHED = """
fs.aio-max-nr fs.file-max fs.inotify.max_user_instances fs.inotify.max_user_watches fs.nr_open
kernel.apparmor_restrict_unprivileged_userns kernel.core_pattern kernel.hung_task_panic kernel.hung_task_timeout_secs
kernel.io_uring_disabled kernel.kptr_restrict kernel.nmi_watchdog kernel.numa_balancing
kernel.perf_event_paranoid kernel.pid_max kernel.randomize_va_space kernel.sched_autogroup_enabled
kernel.sched_latency_ns kernel.sched_min_granularity_ns kernel.sched_rt_runtime_us
kernel.sched_wakeup_granularity_ns kernel.softlockup_panic kernel.threads-max kernel.timer_migration
kernel.unprivileged_userns_clone kernel.yama.ptrace_scope
net.core.busy_poll net.core.busy_read net.core.default_qdisc net.core.netdev_budget net.core.netdev_max_backlog
net.core.optmem_max net.core.rmem_default net.core.rmem_max net.core.somaxconn net.core.wmem_default
net.core.wmem_max
net.ipv4.conf.all.arp_announce net.ipv4.conf.all.arp_ignore net.ipv4.conf.all.rp_filter
net.ipv4.neigh.default.gc_thresh1 net.ipv4.neigh.default.gc_thresh2 net.ipv4.neigh.default.gc_thresh3
net.ipv4.tcp_available_congestion_control net.ipv4.tcp_congestion_control net.ipv4.tcp_max_syn_backlog
net.ipv4.tcp_mtu_probing net.ipv4.tcp_rmem net.ipv4.tcp_sack net.ipv4.tcp_slow_start_after_idle
net.ipv4.tcp_timestamps net.ipv4.tcp_wmem net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max
sunrpc.tcp_max_slot_table_entries sunrpc.tcp_slot_table_entries
vm.compaction_proactiveness vm.dirty_background_bytes vm.dirty_background_ratio vm.dirty_bytes vm.dirty_ratio
vm.max_map_count vm.min_free_kbytes vm.nr_hugepages vm.overcommit_memory vm.overcommit_ratio vm.stat_interval
vm.swappiness vm.vfs_cache_pressure vm.watermark_scale_factor vm.zone_reclaim_mode
"""
SYSCTLS = tuple(_WATCHED.split())
"""The keys that facts/host_checks.csv judges. Some left the kernel long ago (`kernel.sched_*_ns` in 5.13):
that they are missing is itself worth knowing, tuning guides still set them."""


def read_kernel(host: Host) -> list[Fact]:
    """Facts of `Machine.kernel`, and the hostname."""
    return [
        _named(host, "release", "osrelease", "release", r"Linux version (\S+)"),
        _named(host, "version", "version", "version", r"(#\d.*)$"),
        _os_name(host),
        _cmdline(host),
        *(fact(f"kernel.sysctls[{key}]", host.read(sysctl_path(key)), _blanks_to_one) for key in SYSCTLS),
        fact("kernel.modules", host.read("/proc/modules"), _first_words, line="nvidia"),
        *_mitigations(host),
        _preemption(host),
        *_iommu(host),
        hypervisor(
            host, parse_cpuinfo(host.read("/proc/cpuinfo", 8 << 20).text or ""), "kernel.virtualization"
        ),
        fact("kernel.uptime_s", host.read("/proc/uptime"), lambda text: decimal(text.split()[0])),
        fact("kernel.active_services", host.run("systemctl-services"), _active, line="=active"),
        first_ok(
            fact("kernel.tuned_profile", host.read(path))
            for path in ("/etc/tuned/active_profile", "/var/lib/tuned/active_profile")
        ),
        _xids(host),
        fact("hostname", host.read("/proc/sys/kernel/hostname")),
    ]


def _cmdline(host: Host) -> Fact:
    reading = host.read("/proc/cmdline")
    if reading.text is not None:
        reading = replace(reading, text=kernel_arguments(reading.text))
    return fact("kernel.cmdline", reading, lambda text: tuple(text.split()))


def sysctl_path(key: str) -> str:
    """`vm.swappiness` is `/proc/sys/vm/swappiness`."""
    return "/proc/sys/" + key.replace(".", "/")


def _blanks_to_one(text: str) -> str:
    return " ".join(text.split())


def _first_words(text: str) -> tuple[str, ...]:
    return tuple(sorted(line.split()[0] for line in text.splitlines() if line.strip()))


def _named(host: Host, name: str, file: str, uname: str, pattern: str) -> Fact:
    """A part of `uname`, in the three places where it may be recorded."""

    def match(text: str) -> str | None:
        found = re.search(pattern, text)
        return found.group(1).strip() if found else None

    key = f"kernel.{name}"
    looks: tuple[tuple[str, Callable[[str], Any]], ...] = (
        (f"/proc/sys/kernel/{file}", str.strip),
        ("/proc/version", match),
    )
    asked = fact(key, host.probe("uname"), json_field(uname))
    return first_ok(iter((*(fact(key, host.read(path), parse) for path, parse in looks), asked)))


def _os_name(host: Host) -> Fact:
    def pretty(text: str) -> str | None:
        found = re.search(r'^PRETTY_NAME="?([^"\n]+)', text, re.MULTILINE)
        return found.group(1).strip() if found else None

    paths = ("/etc/os-release", "/usr/lib/os-release")
    return first_ok(fact("kernel.os_name", host.read(path), pretty, line="PRETTY_NAME") for path in paths)


def _mitigations(host: Host) -> list[Fact]:
    folder = "/sys/devices/system/cpu/vulnerabilities"
    names = host.listdir(folder)
    if not names:
        return [gap("kernel.mitigations", folder, detail="the kernel lists no vulnerabilities")]
    return [fact(f"kernel.mitigations[{name}]", host.read(f"{folder}/{name}")) for name in names]


def _preemption(host: Host) -> Fact:
    """The mode chosen at run time where root can see it, else what the kernel was built with."""

    def from_version(text: str) -> str | None:
        found = re.search(r"PREEMPT(?:_RT|_DYNAMIC|_LAZY)?", text)
        return {
            "PREEMPT_RT": "rt",
            "PREEMPT_DYNAMIC": "dynamic",
            "PREEMPT_LAZY": "lazy",
            "PREEMPT": "full",
            "": "none or voluntary",
        }[found.group() if found else ""]

    def from_uname(text: str) -> str | None:
        return from_version(str(json_field("version")(text)))

    key = "kernel.preemption"
    return first_ok(
        iter(
            (
                fact(key, host.read("/sys/kernel/debug/sched/preempt"), _preempt_word),
                fact(key, host.read("/proc/sys/kernel/version"), from_version),
                fact(key, host.probe("uname"), from_uname),
            )
        )
    )


def _preempt_word(text: str) -> str | None:
    """`none voluntary (full) lazy`: this file uses round brackets."""
    return bracketed(text.replace("(", "[").replace(")", "]"))


def _iommu(host: Host) -> list[Fact]:
    folder = "/sys/kernel/iommu_groups"
    groups = host.listdir(folder)
    if not groups and not host.exists(folder):
        return [gap(f"kernel.iommu_{name}", folder) for name in ("groups", "types")]
    types = {host.read(f"{folder}/{group}/type").text for group in groups}
    said = tuple(sorted(word.strip() for word in types if word))
    return [
        known("kernel.iommu_groups", len(groups), folder),
        known("kernel.iommu_types", said, f"{folder}/*/type")
        if said or not groups
        else gap("kernel.iommu_types", f"{folder}/*/type"),
    ]


def _active(text: str) -> tuple[str, ...]:
    """Ids of the watched units that are active, `.service` left off."""
    blocks = (dict(line.partition("=")[::2] for line in block.splitlines()) for block in text.split("\n\n"))
    active = (block.get("Id", "") for block in blocks if block.get("ActiveState") == "active")
    return tuple(sorted(name.removesuffix(".service") for name in active if name))


def _xids(host: Host) -> Fact:
    """The GPU and NVSwitch errors in the kernel log, oldest first. `dmesg` needs root on most systems;
    members of `adm` or `systemd-journal` can read the journal."""

    def lines(text: str) -> tuple[str, ...]:
        return xid_lines(text.splitlines())

    return first_ok(
        fact("kernel.xids", host.run(name), lines, line="Xid") for name in ("dmesg", "journal-kernel")
    )
