"""Resource limits of this process, which is what a job started from here inherits."""

import re

from wellfed.host.door import Host
from wellfed.host.parse import fact, json_field, natural
from wellfed.model.fact import Fact

NO_LIMIT = 1 << 60
"""An exbibyte, and a million times more files or processes than Linux can count."""

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
    return _pair(*(map(_number, match.groups()))) if match else None


def _number(word: str) -> int | None:
    """-1 for no limit. Numbers that no machine reaches (some tools set 2^64 - 2^10) are none either."""
    number = -1 if word == "unlimited" else natural(word)
    return -1 if number is not None and number >= NO_LIMIT else number


def _pair(soft: int | None, hard: int | None) -> dict[str, int | None]:
    return {"soft": soft, "hard": hard}
