"""Processes that hold a GPU: where they may run and where their memory lies.

Only those that NVML names are looked at, at most `PROCESSES_MAX`; names of programs stay out, but for daemons that
everybody has and interpreters."""

import re
from collections import Counter
from typing import Any

from wellfed.host.cores import cpu_nodes
from wellfed.host.door import Host, Reading
from wellfed.host.parse import colon_fields, cpu_list, gap, known
from wellfed.host.sysfs import word
from wellfed.model.fact import Fact
from wellfed.model.places import DAEMONS

PROCESSES_MAX = 64
MAPS_BYTES = 4 << 20
PAGE_KB = 4
"""Pages are counted in this unit, whatever their size."""

_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*t?")
_MAPPING = re.compile(r"^\S+ (\S+(?: \(many\))?\S*)(.*)$")
_NODE = re.compile(r" N(\d{1,4})=(\d{1,15})")
_SIZE = re.compile(r" kernelpagesize_kB=(\d{1,9})")


def read_processes(host: Host) -> list[Fact]:
    """The fact `processes`, and a gap for what could not be read of each."""
    answer = host.nvml()
    if answer.get("status") != "ok":
        return [gap("processes", "NVML", "missing", str(answer.get("detail")))]
    holders, complete = _holders(answer)
    if not complete and not holders:
        return [gap("processes", "NVML", "unsupported", "NVML does not list the processes of a GPU")]
    far = sum(1 for cpus in cpu_nodes(host).values() if cpus) > 1 if holders else False
    processes: list[dict[str, Any]] = []
    gaps: list[Fact] = []
    for index, (pid, gpus) in enumerate(list(holders.items())[:PROCESSES_MAX]):
        status = host.read(f"/proc/{pid}/status", 1 << 16)
        process = {"pid": pid, "gpus": sorted(gpus), "name": _name(host, pid), **_allowed(status)}
        if process["allowed"] is None:
            gaps.append(_gap(f"processes[{index}].allowed", status))
        if far:
            maps = host.read(f"/proc/{pid}/numa_maps", MAPS_BYTES)
            if maps.text:
                process.update(parse_numa_maps(maps.text))
            else:
                gaps.append(_gap(f"processes[{index}].pages", maps))
        processes.append(process)
    return [known("processes", processes, "NVML", f"{len(processes)} processes hold a GPU"), *gaps]


def _gap(key: str, reading: Reading) -> Fact:
    kind = reading.status if reading.status != "ok" else "unsupported"
    return gap(
        key, reading.source, kind, reading.detail or "the process has gone, or is of another container"
    )


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


def _name(host: Host, pid: int) -> str | None:
    name = word(host, f"/proc/{pid}/comm")
    if name is None:
        return None
    return name if name in DAEMONS or _INTERPRETER.fullmatch(name) else "other"


def _allowed(status: Reading) -> dict[str, Any]:
    said = colon_fields(status.text or "").get("Cpus_allowed_list")
    try:
        return {"allowed": cpu_list(said) or None if said else None}
    except ValueError:
        return {"allowed": None}


def parse_numa_maps(text: str) -> dict[str, Any]:
    """Pages of 4 KiB by node, and the policy of most of them. Mapped files are left out: libraries and data that all
    processes share lie where the first one read them."""
    pages: Counter[str] = Counter()
    policies: Counter[str] = Counter()
    for line in text.splitlines():
        found = _MAPPING.match(line)
        if not found or " file=" in found[2]:
            continue
        size = _SIZE.search(found[2])
        scale = max(1, int(size[1]) // PAGE_KB) if size else 1
        for node, count in _NODE.findall(found[2]):
            pages[f"N{int(node)}"] += int(count) * scale
            policies[found[1]] += int(count) * scale
    if not pages:
        return {}
    return {"pages": dict(pages), "policy": policies.most_common(1)[0][0][:64]}
