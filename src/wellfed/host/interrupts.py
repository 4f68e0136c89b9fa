"""Interrupts of GPUs, network adapters and disks: how many there were, and which CPU takes them."""

import re
from typing import Any

from wellfed.host.door import Host
from wellfed.host.parse import cpu_list, cpu_mask, fact, gap, known
from wellfed.host.sysfs import PCI_DEVICES, word
from wellfed.model.fact import Fact

INTERRUPTS = "/proc/interrupts"
READ_BYTES = 8 << 20
IRQS_MAX = 4096
PLACED_MAX = 512
"""Interrupts whose CPU is asked for, the busiest first: one small file each."""

_KINDS = {"0x0207": "rdma", "0x02": "nic", "0x0108": "nvme", "0x03": "gpu", "0x12": "gpu"}
# `PCI-MSIX-0000:00:05.0` names its device since Linux 6.2; before, it is `PCI-MSI 524288-edge`.
_MESSAGE = re.compile(r"MSI|-msi")
_DEVICE = re.compile(r"\bPCI-MSI\S*?-([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b")


def read_interrupts(host: Host) -> list[Fact]:
    """The fact `irqs`, and where interrupts and work without a place of their own go."""
    return [
        fact("kernel.default_irq_affinity", host.read("/proc/irq/default_smp_affinity"), cpu_mask),
        fact("kernel.workqueue_cpumask", host.read("/sys/devices/virtual/workqueue/cpumask"), cpu_mask),
        _irqs(host),
    ]


def _irqs(host: Host) -> Fact:
    reading = host.read(INTERRUPTS, READ_BYTES)
    if reading.text is None:
        return gap("irqs", INTERRUPTS, reading.status, reading.detail)
    lines = parse_interrupts(reading.text)
    if any(line["msi"] and not line["address"] for line in lines.values()):
        owners = _owners(host)
        for number, line in lines.items():
            line["address"] = line["address"] or owners.get(number)
    kinds = {
        address: _kind(host, address) for address in {line["address"] for line in lines.values()} if address
    }
    irqs = []
    for number, line in lines.items():
        kind = kinds.get(line["address"] or "")
        if kind is not None:
            row: dict[str, Any] = {"number": number, "kind": kind, **line}
            del row["msi"]
            irqs.append(row)
    placed = [row for row in irqs if row["kind"] in ("nic", "rdma") and row["count"]]
    for row in sorted(placed, key=lambda row: -row["count"])[:PLACED_MAX]:
        row["effective"] = _cpus(host, row["number"])
    return known("irqs", irqs, INTERRUPTS, f"{len(irqs)} interrupts of GPUs, network adapters and disks")


def parse_interrupts(text: str) -> dict[int, dict[str, Any]]:
    """Numbered message-signalled interrupts with their count, the CPU that took most of it and its part, and the device if
    the line names it. All others, on a large machine most of the text, are passed over."""
    first, _, rest = text.partition("\n")
    numbers = [int(word[3:]) for word in first.split() if re.fullmatch(r"CPU[0-9]{1,4}", word)]
    cpus = len(numbers)
    found: dict[int, dict[str, Any]] = {}
    for line in rest.splitlines() if cpus else ():
        if not _MESSAGE.search(line):
            continue
        label, colon, tail = line.partition(":")
        label = label.strip()
        if (
            not colon
            or not (label.isascii() and label.isdigit() and len(label) < 10)
            or len(found) >= IRQS_MAX
        ):
            continue
        words = tail.split(None, cpus)
        counts = [
            int(count) for count in words[:cpus] if count.isascii() and count.isdigit() and len(count) < 19
        ]
        if len(counts) < cpus or not counts:
            continue
        total = sum(counts)
        what = words[cpus] if len(words) > cpus else ""
        device = _DEVICE.search(what)
        found[int(label)] = {
            "address": device[1] if device else None,
            "count": total,
            "busiest": numbers[counts.index(max(counts))] if total else None,
            "max_share": max(counts) / total if total else None,
            "msi": True,
        }
    return found


def _owners(host: Host) -> dict[int, str]:
    """Device of each message-signalled interrupt, as sysfs lists them."""
    owners: dict[int, str] = {}
    for address in host.listdir(PCI_DEVICES)[:IRQS_MAX]:
        if _kind(host, address):
            for name in host.listdir(f"{PCI_DEVICES}/{address}/msi_irqs")[:IRQS_MAX]:
                if name.isascii() and name.isdigit() and len(name) < 10:
                    owners[int(name)] = address
    return owners


def _kind(host: Host, address: str) -> str | None:
    klass = word(host, f"{PCI_DEVICES}/{address}/class") or ""
    return next((kind for prefix, kind in _KINDS.items() if klass.startswith(prefix)), None)


def _cpus(host: Host, number: int) -> tuple[int, ...] | None:
    """The CPUs that an interrupt goes to; before Linux 4.15 only those that it may go to are told."""
    for name in ("effective_affinity_list", "smp_affinity_list"):
        text = host.read(f"/proc/irq/{number}/{name}", 4096).text
        try:
            if text is not None:
                return cpu_list(text) or None
        except ValueError:
            continue
    return None
