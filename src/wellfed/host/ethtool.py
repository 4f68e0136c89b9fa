"""What `ethtool` says of one interface: rings, moderation, queues, offloads, and the fastest speed it can do.

Each question starts a process, so they are asked of few interfaces; `network.py` says of which."""

import re
from collections.abc import Callable
from typing import Any

from wellfed.host.door import ITEM, Host
from wellfed.host.parse import colon_fields, fact, gap, plain
from wellfed.model.fact import Fact

FEATURES = (
    "generic-receive-offload",
    "large-receive-offload",
    "tcp-segmentation-offload",
    "tx-nocache-copy",
)
"""The offloads that a check looks at, of some sixty."""


def fastest(host: Host, key: str, name: str) -> list[Fact]:
    """The fact `speed_max_mbps`."""
    return _asked(host, "ethtool", name, {f"{key}.speed_max_mbps": _speed_max})


def settings(host: Host, key: str, name: str) -> list[Fact]:
    """Facts of rings, moderation, queues and offloads."""
    return [
        *_asked(
            host,
            "ethtool-rings",
            name,
            {
                f"{key}.ring_rx": lambda text: _now(text, "RX"),
                f"{key}.ring_rx_max": lambda text: _most(text, "RX"),
                f"{key}.ring_tx": lambda text: _now(text, "TX"),
                f"{key}.ring_tx_max": lambda text: _most(text, "TX"),
            },
        ),
        *_asked(
            host, "ethtool-coalesce", name, {f"{key}.adaptive_rx": _adaptive, f"{key}.rx_usecs": _rx_usecs}
        ),
        *_asked(
            host,
            "ethtool-channels",
            name,
            {
                f"{key}.channels": lambda text: _channels(text, _now),
                f"{key}.channels_max": lambda text: _channels(text, _most),
            },
        ),
        *_asked(host, "ethtool-features", name, {f"{key}.features": _features}),
    ]


def _asked(host: Host, command: str, name: str, parsers: dict[str, Callable[[str], Any]]) -> list[Fact]:
    if not ITEM.fullmatch(name):
        return [gap(key, command, "unsupported", "no name that can be asked about") for key in parsers]
    reading = host.run(command, name)
    return [fact(key, reading, parse, line=":") for key, parse in parsers.items()]


def _speed_max(text: str) -> int | None:
    """Of `Supported link modes:` the largest number in front of `base`, in Mb/s."""
    block = re.search(r"Supported link modes:((?:.*\n?)(?:[ \t]+[0-9]+base\S+.*\n?)*)", text)
    speeds = [int(found) for found in re.findall(r"\b([0-9]{2,7})base", block.group(1))] if block else []
    return max(speeds, default=None)


def _halves(text: str) -> tuple[str, str]:
    """What `-g` and `-l` print as the most that is possible, and as it is now."""
    most, _, now = text.partition("Current hardware settings:")
    return most, now


def _now(text: str, field: str) -> int | None:
    return plain(colon_fields(_halves(text)[1]).get(field))


def _most(text: str, field: str) -> int | None:
    return plain(colon_fields(_halves(text)[0]).get(field))


def _channels(text: str, half: Callable[[str, str], int | None]) -> int | None:
    """Pairs for both directions, or receive queues where a driver keeps them apart."""
    return half(text, "Combined") or half(text, "RX") or None


def _adaptive(text: str) -> bool | None:
    found = re.search(r"^Adaptive RX:\s*(on|off)\b", text, re.MULTILINE)
    return found.group(1) == "on" if found else None


def _rx_usecs(text: str) -> int | None:
    return plain(colon_fields(text).get("rx-usecs"))


def _features(text: str) -> dict[str, bool] | None:
    """`off [fixed]` is off; `off [requested on]` is off as well."""
    said = {name: (value.split() or [""])[0] for name, value in colon_fields(text).items()}
    return {name: said[name] == "on" for name in FEATURES if said.get(name) in ("on", "off")} or None
