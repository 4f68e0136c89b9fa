"""Network interfaces by sysfs, and what the network stack counts. Virtual ones (veth, bridges, tunnels) are listed with the little that they
have; an interface is physical when a device stands behind it, also a paravirtual one."""

import re
from collections.abc import Callable
from typing import Any

from wellfed.host import busy, ethtool
from wellfed.host.door import Host
from wellfed.host.parse import cpu_mask, fact, gap, json_field, known, plain
from wellfed.host.sysfs import last_word, numa_node, number, pci_path, word
from wellfed.model.fact import Fact

FOLDER = "/sys/class/net"
_VIRTUAL_MAX = 64
"""A Kubernetes node has a veth per pod; more than these are counted, not listed."""
_PHYSICAL_MAX = 256
_ASKED_MAX = 16
"""Of more interfaces `ethtool` is not asked: each question starts a process."""
_FAST_MBPS = 25_000
"""What rings, queues and offloads are judged from; slower interfaces keep up without."""


def read_network(host: Host) -> list[Fact]:
    """The fact `nics`, what `ethtool` adds, a gap for what a driver does not know, and counts of the stack."""
    return [*_interfaces(host), *_stack(host)]


def _interfaces(host: Host) -> list[Fact]:
    names = [name for name in host.listdir(FOLDER) if name != "bonding_masters"]
    if not names:
        return [gap("nics", FOLDER, "missing", "no network interfaces are listed")]
    default = default_route(host)
    physical = [name for name in names if host.exists(f"{FOLDER}/{name}/device")][:_PHYSICAL_MAX]
    virtual = [name for name in names if name not in set(physical)]
    nics = [_physical(host, name) for name in physical]
    nics += [_virtual(host, name) for name in virtual[:_VIRTUAL_MAX]]
    rates = busy.device_rates(host, "nics", "mbps")
    for nic in nics:
        nic["busy_mbps"] = rates.get(nic["name"])
        nic["is_default_route"] = None if default is None else nic["name"] in default
    left_out = len(names) - len(nics)
    detail = f"{left_out} more interfaces are not listed" if left_out else None
    raw = "\n".join(
        f"{nic['name']} {nic['driver'] or 'virtual'} {nic['state']} mtu {nic['mtu']}" for nic in nics
    )
    return [known("nics", nics, FOLDER, raw, detail), *_gaps(host, nics), *_asked(host, nics)]


def _asked(host: Host, nics: list[dict[str, Any]]) -> list[Fact]:
    """What `ethtool` says of physical interfaces that are up and know their speed."""
    facts: list[Fact] = []
    known_speed = [
        (f"nics[{index}]", nic)
        for index, nic in enumerate(nics)
        if nic["is_physical"] and nic["state"] == "up" and nic["speed_mbps"] is not None
    ]
    for key, nic in known_speed[:_ASKED_MAX]:
        facts += ethtool.fastest(host, key, nic["name"])
        if nic["speed_mbps"] >= _FAST_MBPS:
            facts += ethtool.settings(host, key, nic["name"])
    return facts


def default_route(host: Host) -> frozenset[str] | None:
    """Interfaces of the IPv4 default route with the lowest metric, else of the IPv6 one; None when no routing
    table could be read."""
    v4, v6 = host.read("/proc/net/route"), host.read("/proc/net/ipv6_route")
    if v4.text is None and v6.text is None:
        return None
    routes = _routes_v4(v4.text or "") or _routes_v6(v6.text or "")
    best = min((metric for metric, _ in routes), default=0)
    return frozenset(name for metric, name in routes if metric == best)


def _routes_v4(text: str) -> list[tuple[int, str]]:
    """`Iface Destination Gateway Flags RefCnt Use Metric Mask ...`, numbers in hex but for the metric."""
    routes = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if (
            len(words) > 7
            and words[1] == "00000000"
            and words[7] == "00000000"
            and plain(words[6]) is not None
        ):
            routes.append((plain(words[6]) or 0, words[0]))
    return routes


def _routes_v6(text: str) -> list[tuple[int, str]]:
    """`destination prefix source prefix gateway metric refcnt use flags iface`, all in hex. `lo` carries the
    reject route of hosts without IPv6."""
    routes = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 9 and words[0] == "0" * 32 and words[1] == "00" and words[9] != "lo":
            try:
                routes.append((int(words[5], 16), words[9]))
            except ValueError:
                continue
    return routes


def _physical(host: Host, name: str) -> dict[str, Any]:
    base = f"{FOLDER}/{name}"
    # A virtio interface sits below its PCI device: the last address on the way counts.
    path = pci_path(host, f"{base}/device")
    own_node = number(host, f"{base}/device/numa_node")
    queues = host.listdir(f"{base}/queues")
    return {
        **_common(host, name),
        "driver": last_word(host.link(f"{base}/device/driver")),
        "address": path[-1] if path else None,
        "numa_node": numa_node(host, path[-1]) if own_node is None and path else own_node,
        "is_physical": True,
        "rps_cpus": _steered(host, [f"{base}/queues/{queue}" for queue in queues if queue.startswith("rx-")]),
        "rx_queues": sum(queue.startswith("rx-") for queue in queues) or None,
        "tx_queues": sum(queue.startswith("tx-") for queue in queues) or None,
        **{name: parse(host, f"{base}/{path}") for name, (path, parse) in _SEEN.items()},
    }


def _ecn(host: Host, folder: str) -> bool | None:
    """Whether congestion is marked for any of the eight priorities; None where the driver has no such switches."""
    said = [word(host, f"{folder}/{priority}") for priority in host.listdir(folder)]
    return "1" in said if said else None


def _duplex(host: Host, path: str) -> str | None:
    """`full` or `half`."""
    said = word(host, path)
    return said if said in ("full", "half") else None


_SEEN: dict[str, tuple[str, Callable[[Host, str], Any]]] = {
    "duplex": ("duplex", _duplex),
    "rx_packets": ("statistics/rx_packets", number),
    # Packets that came while no buffer was free. `rx_dropped` also counts what nobody on this machine listens to.
    "drops": ("statistics/rx_missed_errors", number),
    "ecn_np": ("ecn/roce_np/enable", _ecn),
    "ecn_rp": ("ecn/roce_rp/enable", _ecn),
}
"""Field -> file or folder below the interface, and how it is read."""


def _steered(host: Host, queues: list[str]) -> int | None:
    """How many CPUs receive packet steering names, over all queues; None when no queue says."""
    named: set[int] = set()
    seen = False
    for queue in queues[:64]:
        text = host.read(f"{queue}/rps_cpus", 4096).text
        try:
            named.update(cpu_mask(text or "no mask"))
            seen = True
        except ValueError:
            continue
    return len(named) if seen else None


def _virtual(host: Host, name: str) -> dict[str, Any]:
    absent = dict.fromkeys(("rps_cpus", "driver", "address", "numa_node", "rx_queues", "tx_queues", *_SEEN))
    return {**_common(host, name), **absent, "is_physical": False}


def _common(host: Host, name: str) -> dict[str, Any]:
    base = f"{FOLDER}/{name}"
    return {
        "name": name,
        "state": word(host, f"{base}/operstate"),
        "speed_mbps": number(host, f"{base}/speed", lowest=1),
        "mtu": number(host, f"{base}/mtu", lowest=1),
        "rx_dropped": number(host, f"{base}/statistics/rx_dropped"),
        "carrier_changes": number(host, f"{base}/carrier_changes"),
    }


def _gaps(host: Host, nics: list[dict[str, Any]]) -> list[Fact]:
    """Why a field of a physical interface is not known."""
    gaps = []
    for index, nic in enumerate(nics):
        if not nic["is_physical"]:
            continue
        base, key = f"{FOLDER}/{nic['name']}", f"nics[{index}]"
        if nic["speed_mbps"] is None:
            said = host.read(f"{base}/speed", 64)
            text = (said.text or "").strip()[:20]
            detail = said.detail if said.text is None else f"the driver says {text or 'nothing'}"
            gaps.append(gap(f"{key}.speed_mbps", f"{base}/speed", "unsupported", detail))
        if nic["busy_mbps"] is None:
            gaps.append(busy.rate_gap(host, f"{key}.busy_mbps"))
        for name, (path, _) in _SEEN.items():
            if nic[name] is None:
                gaps.append(gap(f"{key}.{name}", f"{base}/{path}"))
    return gaps


# -- the stack ---------------------------------------------------------------------------------------------


def _stack(host: Host) -> list[Fact]:
    """Counts of the whole machine, and whether its name leads to itself only."""
    neighbours = host.read("/proc/net/stat/arp_cache", 1 << 16)
    return [
        fact("kernel.softnet", host.read("/proc/net/softnet_stat"), softnet, line=""),
        fact("kernel.arp_entries", neighbours, _entries, line="entries"),
        fact("kernel.name_on_loopback", host.probe("own_name"), json_field("on_loopback")),
    ]


def softnet(text: str) -> dict[str, int] | None:
    """A row per CPU, numbers in hex: packets processed, dropped for a full queue, rounds cut short. None when there
    is no row."""
    rows = [[_hex(word) for word in line.split()[:3]] for line in text.splitlines() if line.strip()]
    if not rows or any(len(row) < 3 for row in rows):
        return None
    sums = [min(sum(column), (1 << 63) - 1) for column in zip(*rows, strict=True)]
    return dict(zip(("processed", "dropped", "squeezed"), sums, strict=True))


def _entries(text: str) -> int | None:
    """The table's entries stand in every CPU's row, in hex. Unlike `/proc/net/arp` this tells nobody's address."""
    lines = text.splitlines()
    if len(lines) < 2 or lines[0].split()[:1] != ["entries"]:
        return None
    value = _hex(lines[1].split()[0])
    return value if value < 1 << 31 else None


def _hex(word: str) -> int:
    """`int` alone would take a sign, underscores and any length."""
    if not re.fullmatch(r"[0-9a-fA-F]{1,16}", word):
        raise ValueError("no hexadecimal number")
    return int(word, 16)
