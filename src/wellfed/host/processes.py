"""Processes that hold a GPU: where they may run, where their memory lies, and whether they are somebody else's.

Only those that NVML names are looked at, at most `PROCESSES_MAX`. Their command lines are never opened; names of programs
stay out, but for daemons that everybody has and interpreters; of who owns one only is kept whether it is another user.
Nothing of this gets into a recording (`tape.py`)."""

import re
from collections import Counter
from typing import Any

from wellfed.host.cores import cpu_nodes
from wellfed.host.door import Host, Reading
from wellfed.host.parse import colon_fields, cpu_list, gap, known, plain, size_bytes
from wellfed.host.sysfs import word
from wellfed.model.fact import Fact
from wellfed.model.places import DAEMONS

PROCESSES_MAX = 64
THREADS_MAX = 4096
"""Threads of all these processes together whose mask is read: some 40 us each."""
MAPPED_MAX = 16
"""Processes whose libraries are looked for: a list of mappings has a megabyte or two."""
MAPS_BYTES = 4 << 20
COUNTED_BYTES = 32 << 30
"""Memory of all these processes together whose pages are counted: the kernel needs 10 ms for each GiB of small pages
(measured on 4 GiB), and the process waits for some of its own calls meanwhile."""
PAGE_KB = 4
"""Pages are counted in this unit, whatever their size."""

_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*t?")
_MAPPING = re.compile(r"^[0-9a-f]+ ((?:weighted )?\S+(?: \(many\)\S*)?)(.*)$")
_NODE = re.compile(r" N(\d{1,4})=(\d{1,15})")
_SIZE = re.compile(r" kernelpagesize_kB=(\d{1,9})")
# Plugins such as libnccl-net.so are no second NCCL, and libompi is no OpenMP.
_LIBRARY = re.compile(
    r" (\S+) (\d{1,20}) +/.*/((?:lib(?:gomp|omp)(?:-[0-9a-f]{4,16})?|libiomp5|libnccl|librccl)\.so[\d.]{0,20})$"
)
_HIDDEN = "only processes of this container or this user can be seen"
_KUBELET = "the kubelet sets it, by the class of the pod"


def read_processes(host: Host) -> list[Fact]:
    """The fact `processes`, a gap for what could not be read of each, and whether those of others can be seen at all."""
    visible = _visible(host)
    return [visible, *_processes(host, visible.value is True)]


def _visible(host: Host) -> Fact:
    """The kernel's own second thread is seen only from outside of every container."""
    key, second = "container.sees_host_processes", word(host, "/proc/2/comm")
    if second == "kthreadd":
        return known(key, True, "/proc/2/comm", second)
    if second or any(name.isascii() and name.isdigit() for name in host.listdir("/proc")):
        return known(key, False, "/proc/2/comm", detail="process 2 is not the kernel's, or is hidden")
    return gap(key, "/proc", "missing", "no processes are listed")


def _processes(host: Host, sees_all: bool) -> list[Fact]:
    answer = host.nvml()
    if answer.get("status") != "ok":
        return [gap("processes", "NVML", "missing", str(answer.get("detail")))]
    holders, complete = _holders(answer)
    if not holders and not complete:
        return [gap("processes", "NVML", "unsupported", "NVML does not list the processes of a GPU")]
    if not holders and not sees_all:
        return [gap("processes", "NVML", "denied", _HIDDEN)]
    look = _Look(host, len(holders))
    processes, gaps = [], []
    for index, (pid, gpus) in enumerate(list(holders.items())[:PROCESSES_MAX]):
        process, unseen = look.process(index, pid)
        processes.append({"pid": pid, "gpus": sorted(gpus), **process})
        gaps += unseen
    return [known("processes", processes, "NVML", f"{len(processes)} processes hold a GPU"), *gaps]


def _holders(answer: dict[str, Any]) -> tuple[dict[int, set[int]], bool]:
    """GPUs by process number, and whether every GPU answered."""
    devices = answer.get("devices")
    holders: dict[int, set[int]] = {}
    complete = True
    for index, device in enumerate(devices if isinstance(devices, list) else []):
        listed = device.get("processes") if isinstance(device, dict) else None
        complete = complete and isinstance(listed, list)
        for entry in listed if isinstance(listed, list) else []:
            pid = entry.get("pid") if isinstance(entry, dict) else None
            if isinstance(pid, int) and not isinstance(pid, bool) and 0 < pid < 1 << 31:
                holders.setdefault(pid, set()).add(index)
    return holders, complete


class _Look:
    """One look at all processes, which share what may be spent on it."""

    def __init__(self, host: Host, count: int) -> None:
        self.host = host
        self.far = sum(1 for cpus in cpu_nodes(host).values() if cpus) > 1
        self.threads = THREADS_MAX // max(1, min(count, PROCESSES_MAX))
        self.counted = 0
        self.groups = host.read("/proc/self/cgroup").text
        self.user = _user(host.read("/proc/self/status").text or "")

    def process(self, index: int, pid: int) -> tuple[dict[str, Any], list[Fact]]:
        """The fields that could be seen of one process, and a gap for each of the others."""
        status = self.host.read(f"/proc/{pid}/status", 1 << 16)
        group = self.host.read(f"/proc/{pid}/cgroup", 1 << 16)
        seen: dict[str, Any | Fact] = {
            "name": _name(status),
            "allowed": _allowed(status),
            "is_foreign": self._foreign(status, group),
            "oom_score_adj": self._killed(pid, group),
            "libraries": self._libraries(index, pid),
        }
        if self.far:
            seen["thread_cpus"] = self._threads(pid)
            seen |= self._memory(pid, status)
        fields = {name: value for name, value in seen.items() if not isinstance(value, Fact)}
        key = f"processes[{index}]."
        gaps = [
            gap(key + name, value.source, value.status, value.detail)
            for name, value in seen.items()
            if isinstance(value, Fact)
        ]
        return fields, gaps

    def _foreign(self, status: Reading, group: Reading) -> bool | Fact:
        """Another user's is somebody else's; one of our own control group is ours; between the two nobody knows."""
        user = _user(status.text or "")
        if user is None or self.user is None:
            return _unseen(status)
        if user != self.user:
            return True
        if group.text is None:
            return _unseen(group)
        if group.text == self.groups:
            return False
        return gap("", group.source, "unsupported", "of the same user, in another control group: may be ours")

    def _killed(self, pid: int, group: Reading) -> int | Fact:
        reading = self.host.read(f"/proc/{pid}/oom_score_adj", 64)
        if "kubepods" in (group.text or ""):
            return gap("", group.source, "unsupported", _KUBELET)
        found = re.fullmatch(r"\s*(-?[0-9]{1,4})\s*", reading.text or "")
        return int(found[1]) if found else _unseen(reading)

    def _libraries(self, index: int, pid: int) -> tuple[str, ...] | Fact:
        if index >= MAPPED_MAX:
            return gap(
                "", f"/proc/{pid}/maps", "unsupported", f"looked for in {MAPPED_MAX} processes at most"
            )
        maps = self.host.read(f"/proc/{pid}/maps", MAPS_BYTES)
        return _unseen(maps) if not maps.text or maps.detail else parse_libraries(maps.text)

    def _threads(self, pid: int) -> tuple[int, ...] | Fact:
        """The CPUs that any thread may use."""
        folder = f"/proc/{pid}/task"
        threads = self.host.listdir(folder)
        if not threads or len(threads) > self.threads:
            status, why = ("unsupported", f"{len(threads)} threads") if threads else ("missing", None)
            return gap("", folder, status, why)  # type: ignore[arg-type]
        masks = {_mask(self.host.read(f"{folder}/{thread}/status", 1 << 16).text or "") for thread in threads}
        return tuple(sorted({cpu for mask in masks - {""} for cpu in _list(mask)})) or gap("", folder)

    def _memory(self, pid: int, status: Reading) -> dict[str, Any | Fact]:
        path = f"/proc/{pid}/numa_maps"
        held = _anonymous(status.text or "")
        unseen: Fact | None = None
        if held is None:
            unseen = _unseen(status)
        elif self.counted + held > COUNTED_BYTES:
            unseen = gap("", path, "unsupported", f"counting {held >> 30} GiB takes too long for a look")
        if unseen is None:
            maps = self.host.read(path, MAPS_BYTES)
            self.counted += held or 0
            found = parse_numa_maps(maps.text) if maps.text and not maps.detail else {}
            if found:
                return found
            unseen = _unseen(maps)
        return {"pages": unseen, "policy": unseen}


def _unseen(reading: Reading) -> Fact:
    kind = reading.status if reading.status != "ok" else "unsupported"
    if kind == "missing":
        return gap("", reading.source, kind, "the process has gone, or is of another container")
    return gap("", reading.source, kind, reading.detail)


def _name(status: Reading) -> str | Fact:
    """What everybody's programs are called; `other` for all else."""
    name = colon_fields(status.text or "").get("Name")
    if name is None:
        return _unseen(status)
    return name if name in DAEMONS or _INTERPRETER.fullmatch(name) else "other"


def _user(status: str) -> str | None:
    found = re.search(r"^Uid:\s*([0-9]{1,10})\s", status, re.M)
    return found[1] if found else None


def _mask(status: str) -> str:
    found = re.search(r"^Cpus_allowed_list:\s*(\S{1,4000})$", status, re.M)
    return found[1] if found else ""


def _list(text: str) -> tuple[int, ...]:
    try:
        return cpu_list(text)
    except ValueError:
        return ()


def _allowed(status: Reading) -> tuple[int, ...] | Fact:
    return _list(_mask(status.text or "")) or _unseen(status)


def _anonymous(status: str) -> int | None:
    """Bytes of memory that is no file's on a disk."""
    found = re.findall(r"^Rss(?:Anon|Shmem):\s*([0-9]{1,15} kB)$", status, re.M)
    return sum(map(size_bytes, found)) if found else None


def parse_numa_maps(text: str) -> dict[str, Any]:
    """Pages of 4 KiB by node, and the policy of most of them. Mapped files are left out: libraries and data that all
    processes share lie where the first one read them. `/dev/zero` is none: its pages are the process's own, and pinned
    buffers of CUDA may be such."""
    pages: Counter[str] = Counter()
    policies: Counter[str] = Counter()
    for line in text.splitlines():
        found = _MAPPING.match(line)
        if not found or (" file=" in found[2] and " file=/dev/zero" not in found[2]):
            continue
        size = _SIZE.search(found[2])
        scale = max(1, int(size[1]) // PAGE_KB) if size else 1
        for node, count in _NODE.findall(found[2]):
            pages[f"N{int(node)}"] += int(count) * scale
            policies[found[1]] += int(count) * scale
    if not pages or max(pages.values()) >> 63:
        return {}
    return {"pages": dict(pages), "policy": policies.most_common(1)[0][0][:64]}


def parse_libraries(text: str) -> tuple[str, ...]:
    """Names of the OpenMP and NCCL libraries of `/proc/PID/maps`, one for each file: two files of one name count
    twice. Their folders stay out."""
    files: dict[tuple[str, str], str] = {}
    for line in text.splitlines():
        if ".so" in line and (found := _LIBRARY.search(line)) and plain(found[2]):
            files[found[1], found[2]] = found[3]
    return tuple(sorted(files.values()))
