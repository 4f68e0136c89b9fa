"""Settings of network adapters, through ethtool: read with the small letter, written with the capital one.

A target is `eth0/rings/rx`: the adapter, what of it, and which. Rings, channels and pause take the link down for a
moment, so they are never set on an adapter that carries the default route or the session they are set from.
"""

import errno
import os
import re
import shlex
from typing import NamedTuple

from wellfed.apply import commands
from wellfed.apply.commands import Run
from wellfed.apply.knobs import NETWORK, Plain, Refused
from wellfed.apply.root import Root
from wellfed.apply.services import real
from wellfed.model import WellfedError


class Group(NamedTuple):
    """`names` is our name -> the name in the answer of ethtool; empty when they are one."""

    letters: tuple[str, str]
    names: dict[str, str]
    bounces: bool


GROUPS = {
    "rings": Group(
        ("-g", "-G"), {"rx": "RX", "rx-mini": "RX Mini", "rx-jumbo": "RX Jumbo", "tx": "TX"}, True
    ),
    "coalesce": Group(("-c", "-C"), {}, False),
    "channels": Group(("-l", "-L"), {"rx": "RX", "tx": "TX", "other": "Other", "combined": "Combined"}, True),
    "features": Group(
        ("-k", "-K"),
        {
            "rx": "rx-checksumming",
            "tx": "tx-checksumming",
            "sg": "scatter-gather",
            "tso": "tcp-segmentation-offload",
            "gso": "generic-segmentation-offload",
            "gro": "generic-receive-offload",
            "lro": "large-receive-offload",
            "rxvlan": "rx-vlan-offload",
            "txvlan": "tx-vlan-offload",
            "ntuple": "ntuple-filters",
            "rxhash": "receive-hashing",
        },
        False,
    ),
    "pause": Group(("-a", "-A"), {"autoneg": "Autonegotiate", "rx": "RX", "tx": "TX"}, True),
}
"""Names as in ethtool(8)."""

_TARGET = re.compile(r"([\w.:][\w.:-]{0,14}|\*)/(" + "|".join(GROUPS) + r")/([a-z][a-z0-9-]*)")
_ADAPTIVE = re.compile(r"Adaptive RX:\s*(\S+)\s+TX:\s*(\S+)")


class EthtoolKind(Plain):
    """`eth0/rings/rx`, or `*/coalesce/rx-usecs` for every adapter that is a device."""

    lasts = False

    def __init__(self, run: Run = commands.run) -> None:
        self.run = run

    def parts(self, target: str) -> tuple[str, str, str]:
        """Adapter, group and name. Raises WellfedError."""
        match = _TARGET.fullmatch(target)
        if match is None or match[1] in (".", ".."):
            raise WellfedError(f"`{target}` is no setting of an adapter", hint='target = "eth0/rings/rx"')
        names = GROUPS[match[2]].names
        ours = next((short for short, long in names.items() if match[3] == long), match[3])
        if names and match[2] != "features" and ours not in names:
            raise WellfedError(
                f"`{target}`: {match[2]} are {', '.join(names)}", hint='target = "eth0/rings/rx"'
            )
        return match[1], match[2], ours

    def key(self, target: str) -> str:
        return "/".join(self.parts(target))

    def expand(self, root: Root, target: str) -> list[str]:
        adapter, group, name = self.parts(target)
        if adapter != "*":
            return [target]
        net = root.outside("/sys/class/net")
        found = (
            sorted(entry.name for entry in net.iterdir() if (entry / "device").exists())
            if net.is_dir()
            else []
        )
        return [f"{one}/{group}/{name}" for one in found]

    def order(self, target: str) -> int:
        return NETWORK

    def cuts_network(self, target: str) -> bool:
        self.parts(target)
        return True

    def read(self, root: Root, target: str) -> str | None:
        value = self._all(root, target).get(self.parts(target)[2])
        if value is None or value.startswith("n/a"):
            raise OSError(errno.EOPNOTSUPP, f"this adapter does not tell {target}")
        return value.split()[0]

    def write(self, root: Root, target: str, value: str | None) -> None:
        if value is None:
            raise Refused(errno.EINVAL, "an adapter's setting always has a value")
        adapter, group, name = self.parts(target)
        real(root, self.run)
        self.run(f"set-{group}", interface=adapter, name=name, value=value)

    def same(self, target: str, a: str | None, b: str | None) -> bool:
        return a == b if a is None or b is None else a.strip().lower() == b.strip().lower()

    def obstacle(self, root: Root, target: str, new: str) -> str | None:
        adapter, group, name = self.parts(target)
        text = self._all(root, target).get(name, "")
        if "[fixed]" in text:
            return f"the driver of {adapter} has {name} fixed"
        if GROUPS[group].bounces and (why := carries(root, adapter)) is not None:
            return f"setting {group} takes the link of {adapter} down for a moment, and {why}"
        limit = self._all(root, target, limits=True).get(name, "") if group in ("rings", "channels") else ""
        if limit.isdigit() and new.isdigit() and int(new) > int(limit):
            return f"{adapter} takes at most {limit}, not {new}"
        return None

    def shell(self, target: str, value: str | None) -> str:
        adapter, group, name = self.parts(target)
        return f"sudo ethtool {GROUPS[group].letters[1]} {shlex.quote(adapter)} {name} {shlex.quote(value or '')}"

    def _all(self, root: Root, target: str, *, limits: bool = False) -> dict[str, str]:
        adapter, group, _ = self.parts(target)
        real(root, self.run)
        return settings(group, self.run(group, interface=adapter), limits=limits)


def settings(group: str, text: str, *, limits: bool = False) -> dict[str, str]:
    """What ethtool says, by our names: what is set, or how far it can be (rings and channels)."""
    short = {long: name for name, long in GROUPS[group].names.items()}
    found: dict[str, str] = {}
    inside = group not in ("rings", "channels")
    for line in text.splitlines():
        if line.startswith(("Pre-set maximums", "Current hardware settings")):
            inside = line.startswith("Pre-set maximums") == limits
            continue
        if (adaptive := _ADAPTIVE.match(line)) is not None:
            found["adaptive-rx"], found["adaptive-tx"] = adaptive.groups()
            continue
        long, colon, value = line.strip().partition(":")
        if colon and inside and value.strip():
            found.setdefault(short.get(long, long), value.strip())
    return found


def carries(root: Root, adapter: str) -> str | None:
    """Why the link of an adapter must not go down even for a moment; None when nothing speaks against it."""
    for carrier in _default_routes(root):
        if adapter in _below(root, carrier, 0):
            return f"the default route is over {carrier}"
    return None


def _default_routes(root: Root) -> set[str]:
    """Adapters that the default routes of IPv4 and IPv6 go over."""
    found: set[str] = set()
    for words in _lines(root, "/proc/net/route"):
        if len(words) > 7 and words[1] == words[7] == "00000000":
            found.add(words[0])
    for words in _lines(root, "/proc/net/ipv6_route"):
        if len(words) > 9 and set(words[0]) == {"0"} and words[1] == "00":
            found.add(words[-1])
    return found - {"lo"}


def _lines(root: Root, name: str) -> list[list[str]]:
    try:
        return [line.split() for line in root.outside(name).read_text().splitlines()]
    except OSError:
        return []


def _below(root: Root, adapter: str, depth: int) -> set[str]:
    """An adapter and those it stands on: of a bond, a bridge or a VLAN."""
    found = {adapter}
    try:
        names = os.listdir(root.outside(f"/sys/class/net/{adapter}"))  # noqa: PTH208
    except OSError:
        return found
    for name in names:
        if name.startswith("lower_") and depth < 8:
            found |= _below(root, name.removeprefix("lower_"), depth + 1)
    return found
