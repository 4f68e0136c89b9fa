"""Limits that systemd gives the services which start jobs: a job inherits them, not those of limits.d."""

from typing import Any

from wellfed.host.door import Host
from wellfed.host.parse import fact, natural
from wellfed.model.fact import Fact

_INFINITE = 1 << 62
"""systemd prints `infinity`, for some limits as the largest number of 64 bits."""


def read_units(host: Host) -> list[Fact]:
    """Facts of `Machine.kernel.units`."""
    return [fact("kernel.units", host.run("systemctl-limits"), _units, line="Limit")]


def _units(text: str) -> tuple[dict[str, Any], ...]:
    blocks = (dict(line.partition("=")[::2] for line in block.splitlines()) for block in text.split("\n\n"))
    return tuple(
        {
            "name": block["Id"].removesuffix(".service"),
            "memlock_bytes": _limit(block.get("LimitMEMLOCK", "")),
            "open_files": _limit(block.get("LimitNOFILE", "")),
            "tasks_max": _limit(block.get("TasksMax", "")),
        }
        for block in blocks
        if block.get("Id")
    )


def _limit(text: str) -> int | None:
    """-1 is unlimited; None is what systemd did not say (`[not set]`)."""
    if text == "infinity":
        return -1
    if not text.isascii() or not text.isdigit():
        return None
    value = natural(text)
    return -1 if value is not None and value >= _INFINITE else value
