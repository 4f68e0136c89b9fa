"""One-value files of sysfs, where a value that is missing or makes no sense is None."""

import re

from wellfed.host.door import Host
from wellfed.host.parse import cpu_list, cpu_mask, integer

PCI_DEVICES = "/sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def word(host: Host, path: str) -> str | None:
    """The text of a file without space around it; None when there is none."""
    text = host.read(path, 256).text
    return text.strip() or None if text is not None else None


def number(host: Host, path: str, lowest: int = 0) -> int | None:
    """A number of at least `lowest`; below stands for unknown (-1)."""
    text = word(host, path)
    try:
        value = integer(text) if text else lowest - 1
    except ValueError:
        return None
    # 4294967295 is a -1 that a driver kept unsigned.
    return value if lowest <= value < 1 << 63 and value != 0xFFFFFFFF else None


def last_word(link: str | None) -> str | None:
    """The name that a link leads to: of `.../drivers/nvidia` the driver."""
    return link.rstrip("/").rsplit("/", 1)[-1] or None if link else None


def pci_path(host: Host, path: str) -> list[str]:
    """PCI addresses on the way from the root to a device, the nearest last."""
    parts = (host.real(path) or "").split("/")
    return [part for part in parts if _ADDRESS.fullmatch(part)]


def numa_node(host: Host, address: str) -> int | None:
    """The PCI device's NUMA node; None when the firmware names none (-1)."""
    node = number(host, f"{PCI_DEVICES}/{address}/numa_node")
    return node if node is not None and node < 1 << 31 else None


def local_cpus(host: Host, address: str) -> tuple[int, ...] | None:
    """CPUs near the PCI device; None when sysfs does not list them."""
    for name, parse in (("local_cpulist", cpu_list), ("local_cpus", cpu_mask)):
        text = host.read(f"{PCI_DEVICES}/{address}/{name}").text
        try:
            if text is not None:
                return parse(text)
        except ValueError:
            continue
    return None
