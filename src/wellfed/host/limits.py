"""Resource limits of this process, which is what a job started from here inherits."""

import re

from wellfed.host.door import Host
from wellfed.host.parse import fact, json_field, natural
from wellfed.model.fact import Fact

_ROWS = {
    "memlock_bytes": "Max locked memory",
    "open_files": "Max open files",
    "processes": "Max processes",
    "stack_bytes": "Max stack size",
    "core_bytes": "Max core file size",
}


def read_limits(host: Host) -> list[Fact]:
    """Facts of `Machine.limits`, from `/proc/self/limits`, elsewhere than on Linux from getrlimit."""
    return [_limit(host, name, title) for name, title in _ROWS.items()]


def _limit(host: Host, name: str, title: str) -> Fact:
    key = f"limits.{name}"
    from_proc = fact(key, host.read("/proc/self/limits"), lambda text: _row(text, title), line=title)
    if from_proc.status == "ok":
        return from_proc
    asked = fact(key, host.probe("limits"), lambda text: _pair(*json_field(name)(text)))
    return asked if asked.status == "ok" else from_proc


def _row(text: str, title: str) -> dict[str, int | None] | None:
    match = re.search(rf"^{title}\s+(\S+)\s+(\S+)", text, re.MULTILINE)
    return (
        _pair(*(-1 if word == "unlimited" else natural(word) for word in match.groups())) if match else None
    )


def _pair(soft: int | None, hard: int | None) -> dict[str, int | None]:
    return {"soft": soft, "hard": hard}
