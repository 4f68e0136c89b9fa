"""Interrupts of devices, as kernels of several ages print them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.host import host_of
from wellfed.host.assemble import assemble
from wellfed.host.interrupts import PLACED_MAX, parse_interrupts, read_interrupts
from wellfed.host.numa import mask, read_numa, setting
from wellfed.model import Machine

PCI = "/sys/bus/pci/devices"
NEW = """\
           CPU0       CPU1       CPU3
  8:          1          0          0   IO-APIC   8-edge      rtc0
 28:          0        900        100 PCI-MSIX-0000:1a:00.0   0-edge      mlx5_comp0
 29:          5          0          0 PCI-MSIX-0000:61:00.0   1-edge      nvme0q1
 30:          0          0          0 PCI-MSIX-0000:0f:00.0   0-edge      nvidia
NMI:          7          7          7   Non-maskable interrupts
ERR:          0
"""
OLD = """\
           CPU0       CPU1
 28:          3          9   PCI-MSI 13631488-edge      mlx5_comp0@pci:0000:1a:00.0
 29:          4          4   ITS-MSI 524288 Edge      nvme0q0
"""
CLASSES = {
    f"{PCI}/0000:1a:00.0/class": "0x020000\n",
    f"{PCI}/0000:61:00.0/class": "0x010802\n",
    f"{PCI}/0000:0f:00.0/class": "0x030200\n",
    f"{PCI}/0000:00:1f.0/class": "0x060100\n",
}


def seen(text: str, **more: str) -> Machine:
    files: dict[str, Any] = {"/proc/interrupts": text, **CLASSES, **more}
    return assemble(read_interrupts(host_of(files)))


def test_a_line_that_names_its_device() -> None:
    irqs = {irq.number: irq for irq in seen(NEW, **{"/proc/irq/28/effective_affinity_list": "1\n"}).irqs}
    assert irqs.keys() == {28, 29, 30}
    nic = irqs[28]
    assert (nic.kind, nic.address, nic.count, nic.busiest, nic.max_share) == (
        "nic",
        "0000:1a:00.0",
        1000,
        1,
        0.9,
    )
    assert nic.effective == (1,)
    assert (irqs[29].kind, irqs[29].effective) == ("nvme", None), (
        "the kernel manages those of disks: nobody asks"
    )
    assert (irqs[30].kind, irqs[30].busiest, irqs[30].max_share) == ("gpu", None, None)


def test_columns_are_named_where_cpus_are_off() -> None:
    assert (
        parse_interrupts(NEW.replace("        900        100", "          0        900"))[28]["busiest"] == 3
    )


def test_older_kernels_need_sysfs() -> None:
    owners = {f"{PCI}/0000:1a:00.0/msi_irqs/28": "msix\n", f"{PCI}/0000:61:00.0/msi_irqs/29": "msix\n"}
    irqs = seen(OLD, **owners, **{"/proc/irq/28/smp_affinity_list": "0-1\n"}).irqs
    assert [(irq.number, irq.address, irq.effective) for irq in irqs] == [
        (28, "0000:1a:00.0", (0, 1)), (29, "0000:61:00.0", None),
    ]  # fmt: skip


def test_only_the_busiest_are_asked_for_their_cpu() -> None:
    lines = [f"{n}: {n} PCI-MSIX-0000:1a:00.0 0-edge x" for n in range(1, PLACED_MAX + 100)]
    places = {f"/proc/irq/{n}/effective_affinity_list": "0\n" for n in range(1, PLACED_MAX + 100)}
    placed = [irq.number for irq in seen("  CPU0\n" + "\n".join(lines), **places).irqs if irq.effective]
    assert placed == list(range(100, PLACED_MAX + 100))


def test_masks_of_what_has_no_place() -> None:
    masks = {
        "/proc/irq/default_smp_affinity": "00000000,0000000c\n",
        "/sys/devices/virtual/workqueue/cpumask": "3\n",
    }
    kernel = seen(NEW, **masks).kernel
    assert (kernel.default_irq_affinity, kernel.workqueue_cpumask) == ((2, 3), (0, 1))
    assert "irqs" in assemble(read_interrupts(host_of({}))).gaps


COUNTS = st.lists(st.integers(0, 1 << 32), min_size=3, max_size=3)


@given(st.dictionaries(st.integers(0, 5000), COUNTS, max_size=6))
def test_counts_add_up(rows: dict[int, list[int]]) -> None:
    text = "  CPU0 CPU1 CPU2\n" + "\n".join(
        f" {number}: {' '.join(map(str, row))}  PCI-MSIX-0000:1a:00.0 0-edge x"
        for number, row in rows.items()
    )
    found = parse_interrupts(text)
    assert {number: line["count"] for number, line in found.items()} == {
        n: sum(row) for n, row in rows.items()
    }
    for number, line in found.items():
        if line["count"]:
            assert rows[number][line["busiest"]] == max(rows[number])
            assert 1 / 3 <= line["max_share"] <= 1


@given(st.text(max_size=200))
def test_no_text_breaks_it(text: str) -> None:
    parse_interrupts(text)
    parse_interrupts("  CPU0 CPU1\n 28: " + text + " PCI-MSI")
    parse_interrupts("  CPU0 CPU1\n" + text)


# -- nodes -------------------------------------------------------------------------------------------------

NODE = "/sys/devices/system/node"
STAT = "numa_hit 1000\nnuma_miss 7\nnuma_foreign 60\ninterleave_hit 3\nlocal_node 1000\nother_node 7\n"
TWO: dict[str, Any] = {
    f"{NODE}/node0/cpulist": "0-3\n",
    f"{NODE}/node0/numastat": STAT,
    f"{NODE}/node0/meminfo": "Node 0 MemTotal: 100 kB\nNode 0 MemFree: 10 kB\nNode 0 FilePages: 50 kB\n",
    f"{NODE}/node1/cpulist": "4-7\n",
    "/sys/kernel/mm/mempolicy/weighted_interleave/node0": "5\n",
    "/run/systemd/system": None,
}


def nodes(config: str | None, **changes: Any) -> Machine:
    commands = {} if config is None else {"systemd-config": config}
    return assemble(read_numa(host_of({**TWO, **changes}, commands=commands)))


def test_counts_of_a_node() -> None:
    first, second = nodes("").numa
    assert (first.hits, first.misses, first.foreign, first.interleave_weight) == (1000, 7, 60, 5)
    assert first.file_bytes == 50 << 10
    machine = nodes("")
    for field in ("hits", "misses", "foreign", "interleave_weight", "file_bytes"):
        assert getattr(second, field) is None and f"numa[1].{field}" in machine.gaps, field


@pytest.mark.parametrize(
    ("config", "policy", "bound"),
    [
        ("", "default", ()),
        ("NUMAPolicy=bind\nNUMAMask=0-1", "bind", (0, 1)),
        ("NUMAPolicy=bind\nNUMAPolicy=\nNUMAMask=", "default", ()),
        (" NUMAPolicy = Interleave\nNUMAMask=all", "interleave", (0, 1)),
        ("NUMAPolicy=bind\nNUMAMask=0 1", "bind", (0, 1)),
    ],
)
def test_the_policy_of_systemd(config: str, policy: str, bound: tuple[int, ...]) -> None:
    kernel = nodes(config).kernel
    assert (kernel.systemd_numa_policy, kernel.systemd_numa_mask) == (policy, bound)


def test_a_policy_that_systemd_cannot_read_is_none_of_ours() -> None:
    machine = nodes("NUMAPolicy=bind\nNUMAMask=zero")
    assert machine.facts["kernel.systemd_numa_mask"].status == "error"


def test_without_systemd_nobody_is_asked() -> None:
    files = {path: text for path, text in TWO.items() if not path.startswith("/run")}
    host = host_of(files, commands={"systemd-config": "NUMAPolicy=bind"})
    assert "does not run" in assemble(read_numa(host)).gaps["kernel.systemd_numa_policy"]


@given(st.text(max_size=60), st.sets(st.integers(0, 40), max_size=5))
def test_settings_are_found_in_any_text(text: str, numbers: set[int]) -> None:
    setting(text, "NUMAMask")
    listed = " ".join(map(str, numbers))
    assert mask(setting(f"{text}\nNUMAMask={listed}", "NUMAMask"), ()) == tuple(sorted(numbers))
