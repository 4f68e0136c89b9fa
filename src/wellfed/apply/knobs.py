"""The kinds of knobs: how each is read, written, compared and written down as a shell line.

A kind is a value with a few functions. Most are files of the kernel and differ in where a target lies; others
(services, adapters, drivers, a held file) are in modules of their own.
"""

import errno
import os
import re
import shlex
from collections.abc import Iterator
from typing import Protocol

from wellfed.apply import values
from wellfed.apply.root import Root
from wellfed.model import WellfedError


class Refused(OSError):
    """A knob that can't be changed by nature; nothing is wrong."""


class Kind(Protocol):
    """How one kind of knob is handled. `lasts` says whether a value outlives a reboot."""

    @property
    def lasts(self) -> bool: ...

    def key(self, target: str) -> str:
        """The same for two targets that are one knob."""
        ...

    def expand(self, root: Root, target: str) -> list[str]:
        """The single knobs that a target stands for. Raises WellfedError for a target that is none."""
        ...

    def read(self, root: Root, target: str) -> str | None:
        """The value now; None when nothing is set. Raises OSError."""
        ...

    def write(self, root: Root, target: str, value: str | None) -> None:
        """Set it; None takes the setting away. Raises OSError."""
        ...

    def same(self, target: str, a: str | None, b: str | None) -> bool: ...

    def obstacle(self, root: Root, target: str, new: str) -> str | None:
        """Why it can't be set, as far as can be seen without trying."""
        ...

    def shell(self, target: str, value: str | None) -> str:
        """The line that does the same by hand."""
        ...

    def resolve(self, root: Root, target: str, new: str) -> str:
        """The value that `new` stands for: `@name` is what the file `name` beside the knob says. Raises OSError."""
        ...

    def order(self, target: str) -> int:
        """When it is written: the lowest first, and in reverse when it is undone."""
        ...

    def cuts_network(self, target: str) -> bool:
        """Whether it may cut the connection it is set over."""
        ...

    def between(self, target: str, now: str | None, old: str | None, new: str) -> bool:
        """Whether `now` is what a write from `old` to `new` leaves when it is cut off half-way."""
        ...

    def tidy(self, root: Root, target: str) -> None:
        """Take away what a write that was cut off has left lying about."""
        ...


FIRST, EARLY, LATE, BARRIER, NETWORK = -10, -1, 1, 8, 9
"""Orders: services that set knobs themselves come first; what changes which CPUs there are, and what may cut the
network, comes last. 0 is all else."""


class Plain:
    """What most kinds do not need."""

    def resolve(self, root: Root, target: str, new: str) -> str:
        if new.startswith("@"):
            raise Refused(errno.EINVAL, f"`{new}` means a file beside the knob, and this knob is none")
        return new

    def order(self, target: str) -> int:
        return 0

    def cuts_network(self, target: str) -> bool:
        return False

    def between(self, target: str, now: str | None, old: str | None, new: str) -> bool:
        return False

    def tidy(self, root: Root, target: str) -> None:
        pass


ONE_WAY = {
    "/proc/sys/kernel/core_pattern": "it names a program that the kernel starts",
    "/proc/sys/kernel/modprobe": "it names a program that the kernel starts",
    "/proc/sys/kernel/hotplug": "it names a program that the kernel starts",
    "/proc/sys/kernel/poweroff_cmd": "it names a program that the kernel starts",
    "/proc/sys/kernel/modules_disabled": "it can't be switched back",
    "/proc/sys/kernel/kexec_load_disabled": "it can't be switched back",
    "/proc/sys/kernel/unprivileged_bpf_disabled": "it can't be switched back",
    "/proc/sys/kernel/yama/ptrace_scope": "it can't be switched back from 3",
    "/proc/sys/kernel/tainted": "it can't be switched back",
    "/proc/sys/kernel/ns_last_pid": "it is an order, not a setting",
    "/sys/kernel/kexec_crash_size": "it can only be made smaller",
    "/sys/kernel/uevent_helper": "it names a program that the kernel starts",
    "/sys/module/firmware_class/parameters/path": "it names files that the kernel loads",
    "/proc/sys/vm/drop_caches": "it is an order, not a setting",
    "/proc/sys/vm/compact_memory": "it is an order, not a setting",
    "/proc/sys/kernel/sysrq": "it guards orders to the kernel",
    "/proc/sys/vm/stat_refresh": "it is an order, not a setting",
    "/proc/sys/net/ipv4/route/flush": "it is an order, not a setting",
    "/proc/sys/net/ipv6/route/flush": "it is an order, not a setting",
    "/proc/sys/net/ipv4/ip_forward": "the kernel sets other knobs of the network back when it changes",
}
"""Knobs that have no way back, or that are none, and why."""

_ONE_WAY_FORMS = tuple(
    (re.compile(form), why)
    for form, why in (
        (r"/proc/sys/fs/binfmt_misc/.*", "it names a program that the kernel starts"),
        (r"/proc/sys/kernel/usermodehelper/.*", "it can't be switched back"),
        (
            r"/proc/sys/net/ipv[46]/conf/(all|default)/forwarding",
            "the kernel sets other knobs of the network back when it changes",
        ),
        (r"/proc/sys/net/ipv6/conf/.*/disable_ipv6", "addresses are lost when it is switched"),
        (
            r"/sys/(firmware/efi|kernel/(config|debug|livepatch|security|tracing)|fs/(selinux|bpf|pstore|smackfs))/.*",
            "it is no setting",
        ),
        (
            r"/sys/.*/(remove|scan|rescan\w*|reset\w*|bind|unbind|(un)?export|new_id|remove_id|drivers_probe|driver_override"
            r"|delete\w*|uevent|compact|flush|crash|release_agent|new_device|probe|autoprobe|hot_(add|remove)|create|destroy"
            r"|eject|demote|(hard|soft)_offline_page|trigger\w*|wakealarm|sync_action|array_state|disksize|backing_dev"
            r"|suspended|bonding_masters|inject\w*|clear_\w+)",
            "it is an order, not a setting",
        ),
        (
            r"/sys/(power/(state|disk|resume\w*|wake_(un)?lock|pm_test)|devices/system/cpu/(release|microcode/.*)"
            r"|.*/memory[\d*]+/.*|bus/pci/slots/.*)",
            "it is an order, not a setting",
        ),
        (r"/sys/.*/(config|rom|vpd|resource\d*(_[wu]c)?)", "these are registers of a device"),
        (r"/sys/.*/[\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.[0-7]/enable", "it counts, and is no setting"),
        (r"/sys/.*/sriov_numvfs", "devices are lost when it is switched"),
    )
)


def no_way_back(path: str) -> str | None:
    """Why the knob at `path` is never changed here; None when it may be."""
    if path in ONE_WAY:
        return ONE_WAY[path]
    if path.startswith("/sys/fs/cgroup/") and not _GROUP_KNOBS.fullmatch(path):
        return "it is no limit or weight of a control group"
    return next((why for form, why in _ONE_WAY_FORMS if form.fullmatch(path)), None)


BESIDE = {
    "scaling_governor": "scaling_available_governors",
    "energy_performance_preference": "energy_performance_available_preferences",
    "current_clocksource": "available_clocksource",
    "platform_profile": "platform_profile_choices",
}
"""Knob -> the file beside it that lists what it takes."""


_BARRIERS = re.compile(r"/sys/devices/system/cpu/(smt/control|cpu[\d*]+/online)")
_NETWORK = re.compile(
    r"/sys/(.*/)?net/[^/]+/(?!(queues|statistics)/).+|/proc/sys/net/ipv[46]/((conf|neigh)/.*|(tcp|udp)_mem)"
)


class FileKind(Plain):
    """A file of the kernel. `pattern` says where target `{}` lies; without it a target is a path beneath `under`.
    `rank` is its order unless the path itself tells otherwise."""

    lasts = False

    def __init__(
        self,
        pattern: str = "{}",
        under: tuple[str, ...] = ("/sys/",),
        form: str = r"[\w.:,@*+/-]+",
        rank: int = 0,
    ) -> None:
        self.pattern, self.under, self.form, self.rank = pattern, under, re.compile(form), rank

    def path(self, target: str) -> str:
        """Raises WellfedError for a target that is none of this kind."""
        path = self.pattern.format(target)
        ok = self.form.fullmatch(target) and os.path.normpath(path) == path and path.startswith(self.under)
        if not ok:
            raise WellfedError(
                f"`{target}` is no target of this kind", hint=f"it lies beneath {' or '.join(self.under)}"
            )
        if (why := no_way_back(path)) is not None:
            raise WellfedError(f"`{target}` is not changed: {why}", hint="take it off the list")
        return path

    def key(self, target: str) -> str:
        return self.path(target)

    def expand(self, root: Root, target: str) -> list[str]:
        path = self.path(target)
        if "*" not in path:
            root.knob(path)
            return [target]
        before, _, after = self.pattern.partition("{}")
        return [found.removeprefix(before).removesuffix(after) for found in _matching(root, path)]

    def order(self, target: str) -> int:
        if self.cuts_network(target):
            return NETWORK
        return BARRIER if _BARRIERS.fullmatch(self.path(target)) else self.rank

    def cuts_network(self, target: str) -> bool:
        return _NETWORK.fullmatch(self.path(target)) is not None

    def resolve(self, root: Root, target: str, new: str) -> str:
        if not new.startswith("@"):
            return new
        if not re.fullmatch(r"@\w+", new):
            raise Refused(errno.EINVAL, f"`{new}` names no file beside the knob")
        folder = self.path(target).rpartition("/")[0]
        return values.chosen(root.read(f"{folder}/{new[1:]}"))

    def read(self, root: Root, target: str) -> str | None:
        return values.chosen(root.read(self.path(target)))

    def write(self, root: Root, target: str, value: str | None) -> None:
        if value is None:
            raise Refused(errno.EINVAL, "a knob of the kernel always has a value")
        root.write(self.path(target), value)

    def same(self, target: str, a: str | None, b: str | None) -> bool:
        return values.same(self.path(target), a, b)

    def obstacle(self, root: Root, target: str, new: str) -> str | None:
        path = self.path(target)
        # Most of /sys has several names.
        if (why := no_way_back(root.knob(path).removeprefix(root.top.rstrip("/")))) is not None:
            return f"{path} is not changed: {why}"
        try:
            text = root.read(path)
        except OSError as error:
            return f"{path}: {'is not there' if error.errno == errno.ENOENT else error.strerror}"
        if (why := root.writable(path)) is not None:
            return why
        if (why := _more_pages_than_fit(root, path, text, new)) is not None:
            return why
        allowed = values.choices(text) or _beside(root, path)
        if allowed and new not in allowed:
            return f"{path} takes {', '.join(allowed)}, not {new}"
        return None

    def shell(self, target: str, value: str | None) -> str:
        return f"echo {shlex.quote(value or '')} | sudo tee {shlex.quote(self.path(target))}"


_HUGE_PAGES = re.compile(
    r"/proc/sys/vm/nr_hugepages(_mempolicy)?|/sys/.*/hugepages-(?P<kib>\d+)kB/nr_hugepages(_mempolicy)?"
)
_MEMINFO = re.compile(r"(MemAvailable|Hugepagesize):\s+(\d+) kB")


def _more_pages_than_fit(root: Root, path: str, now: str, new: str) -> str | None:
    """The kernel makes as many huge pages as it can, and ends programs for them, before it says that there are fewer."""
    match = _HUGE_PAGES.fullmatch(path)
    if match is None or not (now.strip().isdigit() and new.isdigit()):
        return None
    try:
        told = dict(_MEMINFO.findall(root.outside("/proc/meminfo").read_text()))
    except OSError:
        return None
    size_kib, free_kib = (
        int(match["kib"] or told.get("Hugepagesize", 0)),
        int(told.get("MemAvailable", 1 << 60)),
    )
    more_kib = (int(new) - int(now)) * size_kib
    if more_kib <= free_kib:
        return None
    return f"{new} huge pages take {more_kib >> 20} GiB more, and {free_kib >> 20} GiB are available: programs would be ended"


TWINS = {
    "vm.dirty_bytes": "vm.dirty_ratio",
    "vm.dirty_background_bytes": "vm.dirty_background_ratio",
    "vm.overcommit_kbytes": "vm.overcommit_ratio",
}
"""Of each pair only one is in force; the other reads 0, and writing that 0 is refused or means something else."""
_TWIN_OF = {**TWINS, **{ratio: in_bytes for in_bytes, ratio in TWINS.items()}}


class SysctlKind(FileKind):
    """`vm.swappiness`, or `net/ipv4/conf/eth0.1/rp_filter` where a name holds a dot. The value of a twin that is not
    in force is `vm.dirty_ratio=20`: which of the pair is, and its value."""

    def path(self, target: str) -> str:
        dotted = target if "/" in target else target.replace(".", "/")
        path = f"/proc/sys/{dotted}"
        if not re.fullmatch(r"[\w.:@+/-]+", target) or os.path.normpath(path) != path or ".." in target:
            raise WellfedError(f"`{target}` is no sysctl", hint='target = "vm.swappiness"')
        if (why := no_way_back(path)) is not None:
            raise WellfedError(f"`{target}` is not changed: {why}", hint="take it off the list")
        return path

    def key(self, target: str) -> str:
        path = self.path(target)
        for in_bytes, ratio in TWINS.items():
            if path == self.path(ratio):
                return self.path(in_bytes)
        return path

    def read(self, root: Root, target: str) -> str | None:
        value = super().read(root, target)
        twin = _TWIN_OF.get(target.replace("/", "."))
        if twin is None or value != "0":
            return value
        other = super().read(root, twin)
        return f"{twin}={other}" if other != "0" else "0"

    def write(self, root: Root, target: str, value: str | None) -> None:
        if value is not None and target.replace("/", ".") in _TWIN_OF:
            name, equals, number = value.rpartition("=")
            if equals:
                target, value = name, number
            if value == "0":
                raise Refused(errno.EINVAL, f"{target} is switched off by setting its twin")
        super().write(root, target, value)

    def shell(self, target: str, value: str | None) -> str:
        name, equals, number = (value or "").rpartition("=")
        setting = f"{name}={number}" if equals else f"{target}={value}"
        return f"sudo sysctl -w {shlex.quote(setting)}"


_GROUP_KNOBS = re.compile(
    r"(.*/)?(cpu\.(weight(\.nice)?|max(\.burst)?|idle|shares|cfs_(quota|period|burst)_us)|cpuset\.(cpus|mems)"
    r"|memory\.(min|low|high|max|swap\.(high|max)|zswap\.max|limit_in_bytes|soft_limit_in_bytes|swappiness)"
    r"|io\.(bfq\.)?weight|blkio\.(bfq\.)?weight|pids\.max|hugetlb\.\w+\.(max|limit_in_bytes))"
)


class GroupKind(FileKind):
    """A limit or weight of a control group. Files that move or end processes are none."""

    def path(self, target: str) -> str:
        path = super().path(target)
        if not _GROUP_KNOBS.fullmatch(path):
            raise WellfedError(
                f"`{target}` is no limit or weight of a control group", hint="take it off the list"
            )
        return path

    def same(self, target: str, a: str | None, b: str | None) -> bool:
        # `cpu.max` takes `max` and reads `max 100000`.
        if target.endswith("/cpu.max") and a is not None and b is not None:
            short = min(len(a.split()), len(b.split()))
            a, b = " ".join(a.split()[:short]), " ".join(b.split()[:short])
        return super().same(target, a, b)


class IrqKind(FileKind):
    """Which CPUs serve an interrupt: `24` and a list of CPUs. Interrupts that the kernel manages refuse with EIO."""

    def write(self, root: Root, target: str, value: str | None) -> None:
        try:
            super().write(root, target, value)
        except OSError as error:
            if error.errno == errno.EIO:
                raise Refused(errno.EIO, "the kernel places this interrupt itself") from error
            raise


def _matching(root: Root, path: str) -> Iterator[str]:
    """Paths that a pattern with `*` in its parts leads to, in natural order."""
    head, star, tail = path.partition("*")
    if not star:
        if os.path.exists(os.path.join(root.top, path.lstrip("/"))):  # noqa: PTH110, PTH118
            yield path
        return
    folder, _, begin = head.rpartition("/")
    end, slash, rest = tail.partition("/")
    try:
        names = os.listdir(os.path.join(root.top, folder.lstrip("/")))  # noqa: PTH118, PTH208
    except OSError:
        return
    for name in sorted(names, key=lambda n: [int(w) if w.isdigit() else w for w in re.split(r"(\d+)", n)]):
        if len(name) >= len(begin) + len(end) and name.startswith(begin) and name.endswith(end):
            yield from _matching(root, f"{folder}/{name}{slash}{rest}")


def _beside(root: Root, path: str) -> tuple[str, ...]:
    folder, _, leaf = path.rpartition("/")
    if leaf not in BESIDE:
        return ()
    try:
        return tuple(root.read(f"{folder}/{BESIDE[leaf]}").split())
    except OSError:
        return ()


_CPUFREQ = "/sys/devices/system/cpu/cpufreq/{}"
FILE_KINDS: dict[str, Kind] = {
    "sysctl": SysctlKind(),
    "sysfs": FileKind(),
    "thp": FileKind("/sys/kernel/mm/transparent_hugepage/{}", form=r"[\w/-]+"),
    "hugepages": FileKind("/sys/kernel/mm/hugepages/hugepages-{}/nr_hugepages", form=r"\d+kB"),
    "governor": FileKind(f"{_CPUFREQ}/scaling_governor", form=r"policy(\d+|\*)", rank=EARLY),
    "epp": FileKind(f"{_CPUFREQ}/energy_performance_preference", form=r"policy(\d+|\*)", rank=LATE),
    "block": FileKind("/sys/block/{}", form=r"[\w!.*-]+/queue/\w+"),
    "irq_affinity": IrqKind("/proc/irq/{}/smp_affinity_list", ("/proc/irq/",), r"\d+"),
    "cgroup": GroupKind(under=("/sys/fs/cgroup/",)),
}
