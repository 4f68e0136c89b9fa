"""RDMA ports (InfiniBand, RoCE, EFA) by sysfs."""

import re
from typing import Any

from wellfed.host import busy
from wellfed.host.door import Host
from wellfed.host.parse import gap, known, numbered
from wellfed.host.sysfs import numa_node, number, pci_path, word
from wellfed.model.fact import Fact

FOLDER = "/sys/class/infiniband"
_COUNTER_FOLDERS = ("counters", "hw_counters")
_DEVICES_MAX = 256
_PORTS_MAX = 16
_COUNTERS_MAX = 256
_GIDS_MAX = 32
"""Entries of a port's table of addresses that are looked at: drivers fill it from the front."""


def read_rdma(host: Host) -> list[Fact]:
    """The fact `rdma`, one entry for each port."""
    devices = host.listdir(FOLDER)[:_DEVICES_MAX]
    if not devices:
        # The folder itself is there once the RDMA core is loaded.
        if host.exists(FOLDER):
            return [known("rdma", [], FOLDER, detail="no RDMA device")]
        return [gap("rdma", FOLDER, "missing", "the kernel has no RDMA devices, or hides them here")]
    ports = [port for device in devices for port in _ports(host, device)]
    said = host.run("ibv-devinfo")
    mtus = active_mtus(said.text or "")
    rates = busy.device_rates(host, "ports", "gbps")
    gaps = []
    for index, port in enumerate(ports):
        port["busy_gbps"] = rates.get(f"{port['device']}/{port['port']}")
        if port["busy_gbps"] is None:
            gaps.append(busy.rate_gap(host, f"rdma[{index}].busy_gbps"))
        port["active_mtu"] = mtus.get((port["device"], port["port"]))
        if port["active_mtu"] is None:
            status = said.status if said.status != "ok" else "unsupported"
            gaps.append(gap(f"rdma[{index}].active_mtu", said.source, status, said.detail))
        if port["link_layer"] == "Ethernet" and port["netdev"] is None:
            gaps.append(
                gap(
                    f"rdma[{index}].netdev",
                    f"{FOLDER}/{port['device']}/ports/{port['port']}/gid_attrs/ndevs/0",
                )
            )
    raw = "\n".join(
        f"{port['device']} port {port['port']}: {port['state']}, {port['physical_state']}, "
        f"{port['link_layer']}, {port['rate_gbps']} Gb/s"
        for port in ports
    )
    return [known("rdma", ports, FOLDER, raw), *gaps]


def _ports(host: Host, device: str) -> list[dict[str, Any]]:
    base = f"{FOLDER}/{device}"
    path = pci_path(host, f"{base}/device")
    address = path[-1] if path else None
    shared = {
        "device": device,
        "firmware": word(host, f"{base}/fw_ver"),
        "board": word(host, f"{base}/board_id"),
        "numa_node": numa_node(host, address) if address else number(host, f"{base}/device/numa_node"),
        "address": address,
    }
    found = host.listdir(f"{base}/ports")
    return [
        shared | _port(host, f"{base}/ports/{port}") | {"port": port}
        for port in numbered(found, "")[:_PORTS_MAX]
    ]


def _port(host: Host, base: str) -> dict[str, Any]:
    counters = _counters(host, base)
    link_layer = word(host, f"{base}/link_layer")
    is_roce = link_layer == "Ethernet"
    return {
        "state": _state(word(host, f"{base}/state")),
        "physical_state": _state(word(host, f"{base}/phys_state")),
        "link_layer": link_layer,
        "gids": _gids(host, base) if is_roce else None,
        "netdev": word(host, f"{base}/gid_attrs/ndevs/0") if is_roce else None,
        "rate_gbps": _rate(word(host, f"{base}/rate")),
        "link_downed": counters.get("link_downed"),
        "symbol_errors": counters.get("symbol_error"),
        "counters": counters,
    }


def _counters(host: Host, base: str) -> dict[str, int]:
    """By name over both folders; a name in both is added up. `lifespan` is a setting, no counter."""
    found: dict[str, int] = {}
    for folder in _COUNTER_FOLDERS:
        for name in host.listdir(f"{base}/{folder}")[:_COUNTERS_MAX]:
            text = host.read(f"{base}/{folder}/{name}", 64).text
            if name != "lifespan" and text and text.strip().isascii() and text.strip().isdigit():
                found[name] = found.get(name, 0) + min(int(text.strip()[:20]), (1 << 63) - 1)
    return {name: min(count, (1 << 63) - 1) for name, count in found.items()}


def _gids(host: Host, base: str) -> list[dict[str, Any]]:
    """The entries that are in use. Of the address only its family is kept; in a recording even that is hidden."""
    found = []
    for index in numbered(host.listdir(f"{base}/gids"), "")[:_GIDS_MAX]:
        address = word(host, f"{base}/gids/{index}")
        if address is None or not address.strip("0:"):
            continue
        kind = word(host, f"{base}/gid_attrs/types/{index}")
        found.append({"index": index, "kind": kind, "family": _family(address)})
    return found


def _family(address: str) -> str | None:
    """Of eight groups of four digits."""
    if not re.fullmatch(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}", address):
        return None
    if address.startswith("0000:0000:0000:0000:0000:ffff:"):
        return "ipv4"
    return "link-local" if address.startswith("fe80:") else "ipv6"


def active_mtus(text: str) -> dict[tuple[str, int], int]:
    """What `ibv_devinfo` prints as `active_mtu: 4096 (5)`, by device and port."""
    found: dict[tuple[str, int], int] = {}
    device, port = "", 0
    for line in text.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        digits = re.match(r"[0-9]{1,6}\b", value)
        if name == "hca_id":
            device, port = value, 0
        elif name == "port" and digits:
            port = int(digits.group())
        elif name == "active_mtu" and digits and device and port:
            found[device, port] = int(digits.group())
    return found


def _state(text: str | None) -> str | None:
    """`ACTIVE` of `4: ACTIVE`."""
    return text.split(":", 1)[-1].strip() or None if text else None


def _rate(text: str | None) -> float | None:
    """`400 Gb/sec (4X NDR)`."""
    match = re.match(r"(\d{1,6}(?:\.\d{1,3})?)\s*Gb/sec", text or "")
    return float(match.group(1)) if match else None
