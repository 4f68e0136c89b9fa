"""Who takes CPU time and network now: counters read twice, a tenth of a second apart, while this process sleeps.

What this process and its control group took is not counted. Whose the rest is, nobody says: a control group of its own
(a session, a job, a container) is what tells ours from theirs."""

import json
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from wellfed.host.door import Host, Reading
from wellfed.host.parse import gap, known
from wellfed.model.fact import Fact

WINDOW_S = 0.1
"""Ten ticks of the kernel's count of CPU time: good to about a tenth of a CPU."""
PROBE = "busy"
_DEVICES_MAX = 64
_GROUPS = Path("/sys/fs/cgroup")
_HIGHEST = 1e12

Counts = dict[str, int]


def measure() -> dict[str, Any]:
    """The answer to the probe: `{window_s, cpu_pct, why, nics: [{name, mbps}], ports: [{name, gbps}]}`. `cpu_pct` is
    None where it cannot be told, and `why` says so then."""
    cpus = os.sched_getaffinity(0)
    usage = own_usage(_text("/proc/self/cgroup"))
    before, start = _look(cpus, usage), time.monotonic()
    time.sleep(WINDOW_S)
    after, seconds = _look(cpus, usage), time.monotonic() - start
    percent, why = foreign_pct(before[0], after[0], seconds, os.sysconf("SC_CLK_TCK"))
    if usage is None:
        percent, why = (
            None,
            "this process has no control group of its own: nothing tells its work from others'",
        )
    if any(line.split()[1:2] == ["/proc/stat"] for line in _text("/proc/self/mounts").splitlines()):
        percent, why = None, "a file system of the container stands in for /proc/stat"
    bits, ports = rates(before[1], after[1], seconds), rates(before[2], after[2], seconds)
    return {
        "window_s": round(seconds, 4),
        "cpu_pct": percent,
        "why": why,
        "nics": [{"name": name, "mbps": round(rate * 8 / 1e6, 1)} for name, rate in bits.items()],
        "ports": [{"name": name, "gbps": round(rate * 32 / 1e9, 2)} for name, rate in ports.items()],
    }


def _look(
    cpus: Iterable[int], usage: Callable[[], float | None] | None
) -> tuple[tuple[int, int, float] | None, Counts, Counts]:
    """CPU ticks with our group's seconds, bytes by interface and 4-byte words by RDMA port, each way on its own."""
    own = usage() if usage is not None else None
    ticks = cpu_ticks(_text("/proc/stat"), cpus)
    nics, ports = _interface_counts(), _port_counts()
    return ((*ticks, own) if ticks and own is not None else None), nics, ports


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def cpu_ticks(text: str, cpus: Iterable[int]) -> tuple[int, int] | None:
    """Busy ticks and all ticks of these CPUs in `/proc/stat`; None when a CPU is not there. Waiting for a disk is no
    work, and what the hypervisor took is not done here."""
    wanted = {f"cpu{cpu}" for cpu in cpus}
    busy = total = 0
    for line in text.splitlines():
        name, *words = line.split()[:9] or [""]
        if name in wanted and len(words) >= 4 and all(re.fullmatch(r"[0-9]{1,18}", word) for word in words):
            user, nice, system, idle, *more = map(int, words)
            waiting, irq, softirq, stolen = (*more, 0, 0, 0, 0)[:4]
            busy += user + nice + system + irq + softirq
            total += user + nice + system + irq + softirq + idle + waiting + stolen
            wanted.discard(name)
    return None if wanted else (busy, total)


def foreign_pct(
    before: tuple[int, int, float] | None, after: tuple[int, int, float] | None, seconds: float, hertz: int
) -> tuple[float | None, str | None]:
    """CPU time that others took, in percent of one CPU, or why it cannot be told."""
    if before is None or after is None:
        return None, "the CPUs of this process are not in /proc/stat"
    if after[1] <= before[1]:
        return None, "the counts of /proc/stat stand still"
    theirs = (after[0] - before[0]) / hertz - max(0.0, after[2] - before[2])
    return round(max(0.0, theirs / seconds * 100), 1), None


def own_usage(groups: str) -> Callable[[], float | None] | None:
    """What tells the CPU seconds of our own control group. None in the root group, which holds everybody, and without
    version 2 of control groups."""
    found = re.search(r"^0::(/.*)$", groups, re.M)
    folder = _GROUPS / found[1].strip("/") if found else None
    if folder is None or not (folder / "cgroup.type").exists() or ".." in folder.parts:
        return None

    def usage() -> float | None:
        told = re.search(r"^usage_usec ([0-9]{1,18})$", _text(folder / "cpu.stat"), re.M)
        return int(told[1]) / 1e6 if told else None

    return usage


def _interface_counts() -> Counts:
    found: Counts = {}
    base = Path("/sys/class/net")
    for name in sorted(os.listdir(base))[:_DEVICES_MAX] if base.is_dir() else ():  # noqa: PTH208 - names, not Paths
        if (base / name / "device").exists():
            _add(found, name, base / name / "statistics", ("rx_bytes", "tx_bytes"))
    return found


def _port_counts() -> Counts:
    found: Counts = {}
    for port in sorted(Path("/sys/class/infiniband").glob("*/ports/*"))[:_DEVICES_MAX]:
        _add(found, f"{port.parts[-3]}/{port.name}", port / "counters", ("port_rcv_data", "port_xmit_data"))
    return found


def _add(found: Counts, name: str, folder: Path, files: tuple[str, ...]) -> None:
    for file in files:
        text = _text(folder / file).strip()
        if re.fullmatch(r"[0-9]{1,20}", text):
            found[f"{name} {file}"] = int(text)


def rates(before: Counts, after: Counts, seconds: float) -> dict[str, float]:
    """Counts a second by device, of its two ways the busier one. A count that went back tells nothing."""
    found: dict[str, float] = {}
    for key, count in after.items():
        if key in before and count >= before[key] and seconds > 0:
            name = key.rpartition(" ")[0]
            found[name] = max(found.get(name, 0.0), (count - before[key]) / seconds)
    return found


# -- what readers make of it ---------------------------------------------------------------------------------


def foreign_fact(host: Host) -> Fact:
    """`cpu.foreign_pct`."""
    key, reading = "cpu.foreign_pct", host.probe(PROBE)
    answer = _answer(reading)
    if answer is None:
        return _unseen(key, reading)
    percent = _number(answer.get("cpu_pct"))
    if percent is None:
        return gap(key, reading.source, "unsupported", str(answer.get("why") or "it does not say")[:200])
    return known(key, percent, reading.source, f"{percent} % of one CPU in {answer.get('window_s')} s")


def device_rates(host: Host, kind: str, unit: str) -> dict[str, float]:
    """`mbps` of `nics` or `gbps` of `ports`, by name; empty when nobody measured."""
    answer = _answer(host.probe(PROBE)) or {}
    rows = answer.get(kind)
    found: dict[str, float] = {}
    for row in rows if isinstance(rows, list) else []:
        rate = _number(row.get(unit)) if isinstance(row, dict) else None
        if rate is not None and isinstance(row.get("name"), str):
            found[row["name"]] = rate
    return found


def rate_gap(host: Host, key: str) -> Fact:
    """Why the rate of a device is not known."""
    return _unseen(key, host.probe(PROBE))


def _unseen(key: str, reading: Reading) -> Fact:
    status = reading.status if reading.status != "ok" else "unsupported"
    return gap(key, reading.source, status, reading.detail or "it has no such count")


def _answer(reading: Reading) -> dict[str, Any] | None:
    try:
        answer = json.loads(reading.text or "")
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _number(value: Any) -> float | None:
    """A recording may hold anything, `NaN` among it."""
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _HIGHEST
        else None
    )
