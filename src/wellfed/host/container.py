"""The walls around this process: cgroup limits, /dev/shm, capabilities, what may be written.

A limit anywhere between the process and the root of the hierarchy binds, so each is looked for along the whole
path and the tightest counts. Version 2 has one tree, version 1 one for each controller; some machines have both."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from wellfed.host.door import Host
from wellfed.host.parse import cpu_list, fact, first_ok, gap, integer, json_field, known
from wellfed.model.fact import Fact

UNLIMITED = -1
_V1_UNLIMITED = 1 << 60
"""Version 1 prints "no limit" as the largest multiple of a page that fits in 63 bits."""

# Bit number by position: linux/capability.h.
_CAPABILITY_NAMES = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
"""
CAPABILITIES = tuple(_CAPABILITY_NAMES.split())


class Group(NamedTuple):
    """Where one controller's files are: folders from the process's own group up to the root of the mount."""

    version: int
    folders: tuple[str, ...]


def read_container(host: Host) -> list[Fact]:
    """Facts of `Machine.container`."""
    groups = _groups(host)
    return [
        _kind(host),
        _version(host, groups),
        *_cpu(host, groups),
        *_memory(host, groups),
        *_pids(host, groups),
        _rdma(host, groups),
        _verbs(host),
        *_shm(host),
        *_rights(host),
    ]


# -- finding the groups ------------------------------------------------------------------------------------


def _groups(host: Host) -> dict[str, Group]:
    """The group of each controller; the unified tree under the name ``""``."""
    mounts = list(_cgroup_mounts(host))
    groups: dict[str, Group] = {}
    for line in (host.read("/proc/self/cgroup").text or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            for names, mount, root in mounts:
                if controller in names:
                    groups.setdefault(controller, Group(1 if controller else 2, _upwards(mount, root, path)))
    legacy = host.read("/proc/self/cpuset").text
    for controller, version in {"cpuset": 1, "": 2}.items():
        for names, mount, root in mounts:
            if legacy and controller in names:
                groups.setdefault("cpuset", Group(version, _upwards(mount, root, legacy.strip())))
    return groups


def _cgroup_mounts(host: Host) -> Iterator[tuple[frozenset[str], str, str]]:
    """(controllers, mount point, which folder of the hierarchy is mounted there). mountinfo knows the last;
    without it the root is assumed."""
    info = host.read("/proc/self/mountinfo").text
    if info:
        for line in info.splitlines():
            left, _, right = line.partition(" - ")
            fields, kind = left.split(), right.split()
            if len(fields) >= 5 and len(kind) >= 3:
                yield from _mount(kind[0], fields[4], fields[3], kind[2])
        return
    table = first_ok(fact("", host.read(path)) for path in ("/proc/self/mounts", "/proc/mounts"))
    for line in (table.value or "").splitlines():
        fields = line.split()
        if len(fields) >= 4:
            yield from _mount(fields[2], fields[1], "/", fields[3])


def _mount(kind: str, point: str, root: str, options: str) -> Iterator[tuple[frozenset[str], str, str]]:
    if kind == "cgroup2":
        yield frozenset({""}), point, root
    elif kind == "cgroup":
        yield frozenset(options.split(",")), point, root
    elif kind == "cpuset":
        yield frozenset({"cpuset"}), point, root


def _upwards(mount: str, root: str, path: str) -> tuple[str, ...]:
    """Folders from the group up to the mount. In a container that sees the host's path but only its own part
    of the tree, the mount point itself is the group."""
    root = root.rstrip("/")
    inside = path[len(root) :] if path == root or path.startswith(root + "/") else ""
    parts = [part for part in inside.split("/") if part not in ("", "..", ".")]
    return tuple("/".join((mount.rstrip("/"), *parts[:depth])) for depth in range(len(parts), -1, -1))


def _group(groups: dict[str, Group], controller: str) -> Group | None:
    return groups.get(controller) or groups.get("")


def _version(host: Host, groups: dict[str, Group]) -> Fact:
    source = "/proc/self/cgroup"
    versions = {group.version for group in groups.values()}
    if not versions:
        reading = host.read(source)
        detail = reading.detail if reading.status != "ok" else "no cgroup mount can be seen"
        return gap("container.cgroup_version", source, "missing", detail)
    # A hybrid system keeps the resource controllers in version 1.
    return known("container.cgroup_version", min(versions), source)


# -- limits ------------------------------------------------------------------------------------------------


def _tightest(
    host: Host, key: str, group: Group | None, name: str, parse: Callable[[str], float | int | None]
) -> Fact:
    """The least value of a file along the path; UNLIMITED when every level says so."""
    if group is None:
        return gap(key, "/proc/self/cgroup", detail="the control group of this process cannot be seen")
    found: list[tuple[float | int, str]] = []
    first: Fact | None = None
    for folder in group.folders:
        seen = fact(key, host.read(f"{folder}/{name}"), parse)
        first = first or seen
        if seen.status == "ok":
            found.append((seen.value, seen.source))
    assert first is not None
    limits = [(value, source) for value, source in found if value != UNLIMITED]
    if limits:
        value, source = min(limits)
        return known(key, value, source)
    if found or host.exists(group.folders[-1]):
        # The root group has no limit files at all: being in it is being unlimited.
        detail = None if found else "the root group has no such limit"
        return known(key, UNLIMITED, found[0][1] if found else first.source, detail=detail)
    return first


def _cpu(host: Host, groups: dict[str, Group]) -> list[Fact]:
    group, sets = _group(groups, "cpu"), _group(groups, "cpuset")
    if group and group.version == 1:
        quota = _v1_quota(host, group)
    else:
        quota = _tightest(host, "container.cpu_quota", group, "cpu.max", _cpu_max)
    facts = [quota]
    for key, names in {
        "cpuset": ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus", "cpus"),
        "cpuset_mems": ("cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems", "mems"),
    }.items():
        facts.append(_nearest(host, f"container.{key}", sets, names))
    folder = group.folders[0] if group else "/sys/fs/cgroup"
    stat = host.read(f"{folder}/cpu.stat")
    for key, name in {"nr_periods": "nr_periods", "nr_throttled": "nr_throttled"}.items():
        facts.append(fact(f"container.{key}", stat, _field(name)))
    if group and group.version == 1:
        facts.append(fact("container.throttled_us", stat, _field("throttled_time", 1000)))
    else:
        facts.append(fact("container.throttled_us", stat, _field("throttled_usec")))
    return [*facts, _weight(host, group), _huge_pages(host, _group(groups, "hugetlb"))]


def _weight(host: Host, group: Group | None) -> Fact:
    key = "container.cpu_weight"
    if group is None:
        return gap(key, "/proc/self/cgroup", detail="the control group of this process cannot be seen")
    if group.version == 1:
        return gap(key, group.folders[0], "unsupported", "cgroup version 1 counts in shares")
    return fact(key, host.read(f"{group.folders[0]}/cpu.weight"), integer)


def _huge_pages(host: Host, group: Group | None) -> Fact:
    """The least limit of any page size along the path."""
    key = "container.hugetlb_limit_bytes"
    if group is None:
        return gap(key, "/proc/self/cgroup", detail="the control group of this process cannot be seen")
    if group.version == 1:
        return gap(key, group.folders[0], "unsupported", "not looked at in cgroup version 1")
    own = group.folders[0]
    names = [name for name in host.listdir(own) if re.fullmatch(r"hugetlb\.[0-9]+[KMG]B\.max", name)]
    limits = [_tightest(host, key, group, name, _bytes_or_max) for name in names]
    if not limits:
        return gap(key, f"{own}/hugetlb.*.max")
    unseen = [one for one in limits if one.status != "ok"]
    return unseen[0] if unseen else min(limits, key=lambda one: one.value if one.value >= 0 else float("inf"))


def _cpu_max(text: str) -> float:
    """`50000 100000` is half a CPU; `max 100000` is no limit. The kernel takes no quota of 0 or less."""
    quota, period = text.split()
    if quota == "max":
        return UNLIMITED
    allowed = integer(quota)
    if allowed <= 0:
        raise ValueError("no quota")
    return allowed / integer(period)


def _v1_quota(host: Host, group: Group) -> Fact:
    key = "container.cpu_quota"
    best: Fact | None = None
    for folder in group.folders:
        quota = fact(key, host.read(f"{folder}/cpu.cfs_quota_us"), integer)
        period = fact(key, host.read(f"{folder}/cpu.cfs_period_us"), integer)
        if quota.status != "ok" or not period.value:
            continue
        value = quota.value / period.value if quota.value > 0 else UNLIMITED
        if best is None or (value != UNLIMITED and (best.value == UNLIMITED or value < best.value)):
            best = known(key, value, quota.source, quota.raw)
    return best or gap(key, f"{group.folders[0]}/cpu.cfs_quota_us")


def _nearest(host: Host, key: str, group: Group | None, names: tuple[str, ...]) -> Fact:
    """The set of the nearest group that has one: an empty set means that the parent's counts."""
    if group is None:
        return gap(key, "/proc/self/cgroup", detail="the control group of this process cannot be seen")
    looks = (
        fact(key, host.read(f"{folder}/{name}"), lambda text: cpu_list(text) or None)
        for folder in group.folders
        for name in names
    )
    return first_ok(looks)


def _field(name: str, divide_by: int = 1) -> Callable[[str], int | None]:
    def parse(text: str) -> int | None:
        found = re.search(rf"^{name} ([0-9]+)$", text, re.MULTILINE)
        return integer(found.group(1)) // divide_by if found else None

    return parse


def _bytes_or_max(text: str) -> int:
    if text.strip() == "max":
        return UNLIMITED
    value = integer(text)
    if value < 0:
        raise ValueError("a limit below 0")
    return UNLIMITED if value >= _V1_UNLIMITED else value


def _memory(host: Host, groups: dict[str, Group]) -> list[Fact]:
    group = _group(groups, "memory")
    one = group is not None and group.version == 1
    folder = group.folders[0] if group else "/sys/fs/cgroup"
    limit, used = ("limit_in_bytes", "usage_in_bytes") if one else ("max", "current")
    events = f"{folder}/memory.oom_control" if one else f"{folder}/memory.events"
    high = (
        gap("container.memory_high_bytes", folder, "unsupported", "cgroup version 1 has no such limit")
        if one
        else _tightest(host, "container.memory_high_bytes", group, "memory.high", _bytes_or_max)
    )
    return [
        _tightest(host, "container.memory_limit_bytes", group, f"memory.{limit}", _bytes_or_max),
        high,
        fact("container.memory_used_bytes", host.read(f"{folder}/memory.{used}"), integer),
        fact("container.oom_kills", host.read(events), _field("oom_kill")),
    ]


def _pids(host: Host, groups: dict[str, Group]) -> list[Fact]:
    group = _group(groups, "pids")
    folder = group.folders[0] if group else "/sys/fs/cgroup"
    return [
        _tightest(host, "container.pids_limit", group, "pids.max", _bytes_or_max),
        fact("container.pids_used", host.read(f"{folder}/pids.current"), integer),
    ]


def _rdma(host: Host, groups: dict[str, Group]) -> Fact:
    """`mlx5_0 hca_handle=2 hca_object=max` of each group along the path; of two lines the one with a limit counts."""
    key, group = "container.rdma_limits", _group(groups, "rdma")
    if group is None:
        return gap(key, "/proc/self/cgroup", detail="the control group of this process cannot be seen")
    readings = [host.read(f"{folder}/rdma.max") for folder in group.folders]
    limits: dict[str, str] = {}
    for reading in readings:
        for line in (reading.text or "").splitlines():
            device, _, said = line.strip().partition(" ")
            if said and (device not in limits or re.search(r"=[0-9]", said)):
                limits[device] = said
    seen = [reading for reading in readings if reading.status == "ok"]
    if not seen:
        return gap(key, readings[0].source, readings[0].status, readings[0].detail)
    return known(key, limits, seen[0].source, seen[0].text)


def _verbs(host: Host) -> Fact:
    """Whether RDMA devices can be opened here. Where no device at all is listed nobody looked."""
    key, folder = "container.device_infiniband", "/dev/infiniband"
    names = host.listdir(folder)
    if any(name.startswith("uverbs") for name in names):
        return known(key, True, folder, " ".join(names))
    if not host.listdir("/dev"):
        return gap(key, folder, detail="no device files are listed")
    return known(key, False, folder, detail="no `uverbs` device")


def _shm(host: Host) -> list[Fact]:
    reading = host.probe("shm")
    return [
        fact("container.shm_bytes", reading, json_field("size_bytes")),
        fact("container.shm_free_bytes", reading, json_field("free_bytes")),
    ]


# -- rights and kind ---------------------------------------------------------------------------------------


def _rights(host: Host) -> list[Fact]:
    status = host.read("/proc/self/status")
    writable = host.probe("writable")
    return [
        fact("container.capabilities", status, _capabilities, line="CapEff"),
        fact("container.seccomp", status, _status_number("Seccomp"), line="Seccomp"),
        fact("container.proc_sys_writable", writable, json_field("/proc/sys")),
        fact("container.sys_writable", writable, json_field("/sys")),
        fact("container.net_sys_writable", writable, json_field("/proc/sys/net")),
        fact("container.user_namespace", host.probe("user_namespace"), _answer),
        fact("container.numa_calls", host.probe("numa_calls"), _answer),
    ]


def _answer(text: str) -> bool | str | None:
    """A probe's answer that is one value; what is neither yes or no nor a word is no answer."""
    value = msgspec.json.decode(text)
    return value if isinstance(value, bool | str) else None


def _capabilities(text: str) -> tuple[str, ...] | None:
    """Names of the effective capabilities; bits newer than this list as `CAP_41`."""
    found = re.search(r"^CapEff:\s*([0-9a-fA-F]{1,32})", text, re.MULTILINE)
    if not found:
        return None
    bits = int(found.group(1), 16)
    names = (
        *(f"CAP_{name}" for name in CAPABILITIES),
        *(f"CAP_{bit}" for bit in range(len(CAPABILITIES), 128)),
    )
    return tuple(name for bit, name in enumerate(names) if bits >> bit & 1)


def _status_number(name: str) -> Callable[[str], int | None]:
    def parse(text: str) -> int | None:
        found = re.search(rf"^{name}:\s*([0-9]+)\s*$", text, re.MULTILINE)
        return integer(found.group(1)) if found else None

    return parse


_KINDS = (
    (r"kubepods|/kubelet/", "kubernetes"),
    (r"docker", "docker"),
    (r"libpod|/containers/storage", "podman"),
    (r"lxc|\.lxd", "lxc"),
    (r"crio-|cri-containerd|containerd", "containerd"),
    (r"machine\.slice/machine-", "systemd-nspawn"),
)


def _kind(host: Host) -> Fact:
    """What the signs say, the most telling first; `none` when there are none on a host that could show them."""
    key = "container.kind"
    cgroup = host.read("/proc/self/cgroup")
    mountinfo = host.read("/proc/self/mountinfo")
    if "KUBERNETES_SERVICE_HOST" in host.environ():
        return known(key, "kubernetes", "environment KUBERNETES_SERVICE_HOST")
    if host.exists("/run/secrets/kubernetes.io") or host.exists("/var/run/secrets/kubernetes.io"):
        return known(key, "kubernetes", "/run/secrets/kubernetes.io")
    said = host.read("/run/systemd/container")
    if said.text:
        return known(key, said.text.strip(), said.source, said.text)
    if host.exists("/run/.containerenv"):
        return known(key, "podman", "/run/.containerenv")
    root = next((line for line in (mountinfo.text or "").splitlines() if line.split()[4:5] == ["/"]), "")
    for text, source in ((cgroup.text or "", cgroup.source), (root, mountinfo.source)):
        for pattern, name in _KINDS:
            if re.search(pattern, text):
                return known(key, name, source, text)
    if host.exists("/.dockerenv"):
        return known(key, "docker", "/.dockerenv")
    if host.exists("/.singularity.d"):
        return known(key, "apptainer", "/.singularity.d")
    if cgroup.status != "ok":
        return gap(key, cgroup.source, cgroup.status, cgroup.detail)
    return known(key, "none", cgroup.source, cgroup.text, "no sign of a container")
