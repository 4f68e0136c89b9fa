"""The fabric manager's log: the errors of NVSwitches by number, the others only counted. No names, no addresses.

What it wrote before the machine started is left out where the machine tells when that was: those errors are of hardware that
has been reset since. Its clock is the machine's own, of which the zone is not known: lines up to 14 hours older stay.
"""

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from wellfed.host.door import FABRIC_LOG, Host
from wellfed.host.parse import known
from wellfed.model.fact import Fact

RESULTS_MAX = 4096
_LINE = re.compile(r"^\[([^\]]{6,40})\] \[(\w+)\] \[tid \d+\] (.*)$", re.MULTILINE)
_SWITCH = re.compile(r"NVSwitch (fatal|non-fatal) error (\d{1,8})", re.IGNORECASE)
_ZONES_S = 14 * 3600
_BOOT = re.compile(r"^btime (\d{1,12})$", re.MULTILINE)


def results_of(text: str) -> list[dict[str, Any]]:
    """One result for each kind of error, one that passed when there is none; empty for what is no such log."""
    lines = _LINE.findall(text)
    return _results(lines, f"{len(lines)} lines") if lines else []


def read_fabric_log(host: Host) -> list[Fact]:
    """`diagnostics` of this machine's own log; none where there is no log, or where it may not be read."""
    if not host.exists(FABRIC_LOG):
        return [known("diagnostics", [], "none was handed over")]
    reading = host.run("fabricmanager-log")
    if reading.status != "ok":
        return [known("diagnostics", [], f"{FABRIC_LOG}: {reading.detail or reading.status}")]
    boot = _BOOT.search(host.read("/proc/stat").text or "")
    lines = _LINE.findall(reading.text or "")
    since_s = float(boot[1]) if boot else None
    return [known("diagnostics", _results(lines, "its last 4000 lines", since_s), reading.source)]


def _results(
    lines: Iterable[tuple[str, str, str]], read: str, since_s: float | None = None
) -> list[dict[str, Any]]:
    """`read` says how much of the log it is; lines before `since_s`, in seconds since 1970, are left out."""
    errors: Counter[tuple[str, str]] = Counter()
    for at, level, message in lines:
        if since_s is not None and _seconds(at, since_s) < since_s - _ZONES_S:
            continue
        if switch := _SWITCH.search(message):
            errors[f"NVSwitch error {switch[2]}", switch[1].lower()] += 1
        elif level in ("ERROR", "CRITICAL", "FATAL"):
            errors["other errors", "error"] += 1
    found = [
        {"tool": "fabricmanager", "test": test, "result": result, "detail": f"{count} lines"}
        for (test, result), count in errors.items()
    ]
    quiet = {"tool": "fabricmanager", "test": "log", "result": "Pass", "detail": read}
    return found[:RESULTS_MAX] or [quiet]


def _seconds(at: str, otherwise: float) -> float:
    try:
        return datetime.strptime(at, "%b %d %Y %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return otherwise
