"""What the readers of processor, memory and kernel log make of files that the machines at hand do not have."""

from typing import Any

import pytest

from wellfed.host import look
from wellfed.host.recorded import host_of

CPU = "/sys/devices/system/cpu"
RAPL = "/sys/class/powercap/intel-rapl:0"
BOOT = "[    0.000010] tsc: Detected 2100.000 MHz processor\n"


def seen(files: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """Value of every fact, `status: why` where there is none."""
    machine = look(host_of(files or {}, **more), only=("cpu", "memory", "kernel_log", "kernel_config"))
    return {key: fact.value if fact.status == "ok" else fact.status for key, fact in machine.facts.items()}


def test_power_limits_are_watts_and_zero_is_not_known() -> None:
    told = seen(
        {f"{RAPL}/constraint_0_power_limit_uw": "250000000", f"{RAPL}/constraint_0_max_power_uw": "350000000"}
    )
    assert (told["cpu.rapl_limit_w"], told["cpu.rapl_max_w"]) == (250.0, 350.0)
    assert seen({f"{RAPL}/constraint_0_max_power_uw": "0"})["cpu.rapl_max_w"] == "unsupported"
    assert seen()["cpu.rapl_max_w"] == "missing"


def test_one_event_that_many_cpus_count_is_one_event() -> None:
    files = {f"{CPU}/cpu{cpu}/thermal_throttle/package_throttle_count": "3" for cpu in range(4)}
    files[f"{CPU}/cpu1/thermal_throttle/core_throttle_count"] = "7"
    told = seen(files)
    assert (told["cpu.package_throttles"], told["cpu.core_throttles"]) == (3, 7)
    assert seen()["cpu.package_throttles"] == "missing"


def test_a_cpu_that_may_not_sleep_differs_from_one_without_limit() -> None:
    path = "power/pm_qos_resume_latency_us"
    assert seen({f"{CPU}/cpu0/{path}": "n/a", f"{CPU}/cpu1/{path}": "0"})["cpu.resume_latency_us"] == (-1, 0)


@pytest.mark.parametrize(
    ("answer", "value", "holders"),
    [
        ({"value_us": 99, "holders": ["tuned"]}, 99, ["tuned"]),
        (None, "unsupported", "unsupported"),
        ([], "error", "error"),
    ],
)
def test_who_holds_the_latency_device(answer: Any, value: Any, holders: Any) -> None:
    told = seen(probes={"dma_latency": answer})
    assert (told["cpu.dma_latency_us"], told["cpu.dma_latency_holders"]) == (value, holders)


def test_free_blocks_of_huge_pages_are_summed_over_zones() -> None:
    counts = " ".join(["5"] * 9)
    text = f"Node 0, zone   DMA32 {counts} 2 752\nNode 0, zone   Normal {counts} 9 13\n"
    assert seen({"/proc/buddyinfo": text})["memory.free_huge_blocks"] == 2 + 752 + 9 + 13
    assert seen({"/proc/buddyinfo": "Node 0, zone Normal 1 2 3"})["memory.free_huge_blocks"] == "unsupported"


def test_locked_memory_and_tiers() -> None:
    told = seen(
        {
            "/proc/meminfo": "MemTotal: 100 kB\nUnevictable: 10 kB\nMlocked: 4 kB\n",
            "/sys/kernel/mm/numa/demotion_enabled": "true",
            "/sys/devices/system/memory/auto_online_blocks": "online_movable",
        }
    )
    assert (told["memory.unevictable_bytes"], told["memory.mlocked_bytes"]) == (10 << 10, 4 << 10)
    assert (told["memory.demotion_enabled"], told["memory.auto_online"]) == (True, "online_movable")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30", "sxid"),
        ("pcieport 0000:00:01.0: AER: Corrected error message received from 0000:01:00.0", "aer"),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0", "edac"),
        ("Out of memory: Killed process 7 (python)", "oom"),
        ("INFO: task python:7 blocked for more than 120 seconds.", "hung-task"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s!", "soft-lockup"),
        ("tsc: Marking TSC unstable due to clocksource watchdog", "tsc-unstable"),
        ("mlx5_core 0000:3b:00.0 eth0: Link down", "link-flap"),
        ("x2apic: IRQ remapping doesn't support X2APIC mode", "x2apic"),
        ("AMD Memory Encryption Features active: SME", "memory-encryption"),
        ("Memory Encryption Features active: AMD SME", "memory-encryption"),
    ],
)
def test_a_line_of_the_log_is_counted_as_its_kind_and_no_other(line: str, kind: str) -> None:
    told = seen(commands={"dmesg": f"{BOOT}[   10.000000] {line}\n"})
    events = {key: value for key, value in told.items() if key.startswith("kernel.events")}
    assert {key for key, value in events.items() if value} == {f"kernel.events[{kind}]"}
    assert set(events.values()) == {0, 1}


def test_a_log_that_lost_its_beginning_says_nothing_of_the_boot() -> None:
    told = seen(commands={"dmesg": "[99999.0] mlx5_core 0000:3b:00.0 eth0: Link up\n"})
    assert told["kernel.events[memory-encryption]"] == told["kernel.events[x2apic]"] == "unsupported"
    assert told["kernel.events[oom]"] == 0


@pytest.mark.parametrize("commands", [{}, {"dmesg": ""}])
def test_a_log_that_cannot_be_read_is_never_none(commands: dict[str, str]) -> None:
    told = seen(commands=commands)
    assert not [key for key, value in told.items() if key.startswith("kernel.events") and value == 0]


def test_the_journal_answers_where_dmesg_is_denied() -> None:
    assert seen(commands={"journal-kernel": BOOT})["kernel.events[oom]"] == 0


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y", "y"),
        ("# CONFIG_INIT_ON_ALLOC_DEFAULT_ON is not set", "n"),
        ("CONFIG_INIT_ON_FREE_DEFAULT_ON=y", "unsupported"),
    ],
)
def test_the_build_of_the_running_kernel(line: str, value: str) -> None:
    key = "kernel.config[CONFIG_INIT_ON_ALLOC_DEFAULT_ON]"
    files = {
        "/proc/sys/kernel/osrelease": "6.8.0-60-generic",
        "/boot/config-6.8.0-60-generic": f"CONFIG_SMP=y\n{line}\nCONFIG_NUMA=y\n",
        "/boot/config-6.5.0": "CONFIG_INIT_ON_ALLOC_DEFAULT_ON=m",
    }
    assert seen(files)[key] == value
    assert seen({"/proc/sys/kernel/osrelease": "../../etc/shadow"})[key] == "missing"
