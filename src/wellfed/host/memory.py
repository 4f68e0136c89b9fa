"""Memory: sizes, swap, huge pages, errors."""

import re
from typing import Any

from wellfed.host.door import Host
from wellfed.host.parse import (
    bracketed,
    colon_fields,
    fact,
    first_ok,
    flag,
    gap,
    integer,
    known,
    numbered,
    size_bytes,
)
from wellfed.model.fact import Fact

THP = "/sys/kernel/mm/transparent_hugepage"
POOLS = "/sys/kernel/mm/hugepages"
NODES = "/sys/devices/system/node"
EDAC = "/sys/devices/system/edac/mc"
DMI = "/sys/class/dmi/id"

_FILES = (
    ("thp_enabled", f"{THP}/enabled", bracketed),
    ("thp_defrag", f"{THP}/defrag", bracketed),
    ("thp_shmem", f"{THP}/shmem_enabled", bracketed),
    ("khugepaged_defrag", f"{THP}/khugepaged/defrag", integer),
    ("khugepaged_scan_sleep_ms", f"{THP}/khugepaged/scan_sleep_millisecs", integer),
    ("khugepaged_pages_to_scan", f"{THP}/khugepaged/pages_to_scan", integer),
    ("ksm_run", "/sys/kernel/mm/ksm/run", integer),
    ("demotion_enabled", "/sys/kernel/mm/numa/demotion_enabled", flag),
    ("auto_online", "/sys/devices/system/memory/auto_online_blocks", str.strip),
)
_HUGE_ORDER = 9
"""A huge page of 2 MiB is 2^9 pages of 4 KiB."""


def read_memory(host: Host) -> list[Fact]:
    """Facts of `Machine.memory`."""
    return [
        *_sizes(host),
        *(fact(f"memory.{name}", host.read(path), parse) for name, path, parse in _FILES),
        _pools(host),
        *_edac(host),
        *_vmstat(host),
        fact("memory.free_huge_blocks", host.read("/proc/buddyinfo"), _huge_blocks),
        _product(host),
    ]


def _sizes(host: Host) -> list[Fact]:
    meminfo = host.read("/proc/meminfo")
    fields = colon_fields(meminfo.text or "")

    def size(name: str) -> Any:
        return lambda _: size_bytes(fields[name]) if name in fields else None

    def swap_used(_: str) -> int | None:
        if "SwapTotal" not in fields or "SwapFree" not in fields:
            return None
        return size_bytes(fields["SwapTotal"]) - size_bytes(fields["SwapFree"])

    return [
        first_ok(
            iter((fact("memory.total_bytes", meminfo, size("MemTotal"), line="MemTotal"), _node_total(host)))
        ),
        fact("memory.available_bytes", meminfo, size("MemAvailable"), line="MemAvailable"),
        fact("memory.mlocked_bytes", meminfo, size("Mlocked"), line="Mlocked"),
        fact("memory.unevictable_bytes", meminfo, size("Unevictable"), line="Unevictable"),
        fact("memory.swap_total_bytes", meminfo, size("SwapTotal"), line="SwapTotal"),
        fact("memory.swap_used_bytes", meminfo, swap_used, line="Swap"),
        fact("memory.swap_devices", host.read("/proc/swaps"), _swap_devices),
    ]


def _node_total(host: Host) -> Fact:
    """The sum over NUMA nodes, for snapshots without `/proc`."""
    total = 0
    for node in numbered(host.listdir(NODES), "node"):
        match = re.search(r"MemTotal:\s*(\d+ kB)", host.read(f"{NODES}/node{node}/meminfo").text or "")
        total += size_bytes(match.group(1)) if match else 0
    source = f"{NODES}/node*/meminfo"
    return known("memory.total_bytes", total, source) if total else gap("memory.total_bytes", source)


def _swap_devices(text: str) -> tuple[str, ...]:
    return tuple(line.split()[0] for line in text.splitlines()[1:] if line.strip())


def _pools(host: Host) -> Fact:
    """Huge page pools by page size; older kernels show the default size in meminfo only."""
    key, rows = "memory.huge_pools", []
    for name in host.listdir(POOLS):
        match = re.fullmatch(r"hugepages-([0-9]{1,10})kB", name)
        total = fact(key, host.read(f"{POOLS}/{name}/nr_hugepages"), integer)
        if match and total.status == "ok":
            free = fact(key, host.read(f"{POOLS}/{name}/free_hugepages"), integer)
            rows.append({"page_bytes": int(match.group(1)) << 10, "total": total.value, "free": free.value})
    if rows:
        return known(key, sorted(rows, key=lambda row: row["page_bytes"]), POOLS)

    def from_meminfo(text: str) -> list[dict[str, int]] | None:
        fields = colon_fields(text)
        if "Hugepagesize" not in fields or "HugePages_Total" not in fields:
            return None
        page, total = size_bytes(fields["Hugepagesize"]), integer(fields["HugePages_Total"])
        return [{"page_bytes": page, "total": total, "free": integer(fields["HugePages_Free"])}]

    return fact(key, host.read("/proc/meminfo"), from_meminfo, line="Huge")


def _edac(host: Host) -> list[Fact]:
    facts = []
    controllers = numbered(host.listdir(EDAC), "mc")
    for name, file in {"edac_uncorrected": "ue_count", "edac_corrected": "ce_count"}.items():
        counts = [fact("", host.read(f"{EDAC}/mc{number}/{file}"), integer) for number in controllers]
        seen = [count.value for count in counts if count.status == "ok"]
        source = f"{EDAC}/mc*/{file}"
        if seen:
            facts.append(known(f"memory.{name}", sum(seen), source))
        else:
            facts.append(gap(f"memory.{name}", source, detail="no memory controller reports errors here"))
    return facts


def _vmstat(host: Host) -> list[Fact]:
    reading = host.read("/proc/vmstat")
    counters = dict(line.split()[:2] for line in (reading.text or "").splitlines() if len(line.split()) >= 2)

    def counter(name: str) -> Any:
        return lambda _: integer(counters[name]) if name in counters else None

    names = ("thp_fault_alloc", "thp_fault_fallback", "compact_stall")
    return [fact(f"memory.{name}", reading, counter(name), line=name) for name in names]


def _huge_blocks(text: str) -> int | None:
    """Free blocks of 2^9 pages or more in all zones (`Node 0, zone Normal 84 52 54...`, one count an order); None for a
    kernel that keeps none so large."""
    rows = [row.partition("zone")[2].split()[1:] for row in text.splitlines() if "zone" in row]
    counts = [integer(count) for row in rows for count in row[_HUGE_ORDER:]]
    return sum(counts) if counts else None


def _product(host: Host) -> Fact:
    vendor, product = host.read(f"{DMI}/sys_vendor"), host.read(f"{DMI}/product_name")
    tree = host.read("/proc/device-tree/model")
    if product.text is None and tree.text:
        return fact("memory.dmi_product", tree)
    return fact("memory.dmi_product", product, lambda text: f"{vendor.text or ''} {text}".strip() or None)
