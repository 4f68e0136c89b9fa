"""No false alarm on machines that are as they should be: what a check says must be worth reading."""

from typing import Any

import msgspec
import pytest
from host_cases import GIB, gpus, machine

from wellfed.check import judge_machine
from wellfed.model import Fact, Machine, Verdict

CLOUD_VM: dict[str, Any] = {
    "cpu": {
        "arch": "x86_64", "vendor": "AuthenticAMD", "hypervisor": "kvm", "flags": ["avx", "hypervisor"], "logical": 16,
        "cores": 8, "packages": 1, "allowed": list(range(16)), "isolated": [], "offline": [], "smt": "notimplemented",
        "clocksource": "kvm-clock", "idle_driver": "haltpoll", "idle_states": [], "steal_pct": 0.02,
        "pressure_some_pct": 3.0,
    },
    "numa": [{"id": 0, "cpus": list(range(16)), "mem_bytes": 128 * GIB, "distances": [10]}],
    "memory": {
        "total_bytes": 128 * GIB, "swap_total_bytes": 0, "swap_used_bytes": 0, "thp_enabled": "madvise",
        "thp_defrag": "madvise", "huge_pools": [{"page_bytes": 2 << 20, "total": 0, "free": 0}],
    },
    "kernel": {
        "release": "6.8.0-45-generic", "cmdline": ["console=ttyS0"], "modules": ["nvidia", "nvidia_uvm"], "xids": [],
        "active_services": ["chrony", "docker", "sshd"],
        "sysctls": {
            "vm.swappiness": "60", "vm.overcommit_memory": "0", "net.core.busy_read": "0", "net.core.busy_poll": "0"
        },
    },
    "pci": [
        {"address": "0000:00:05.0", "vendor": "0x10de", "device": "0x2335", "class_code": "0x030200", "driver": "nvidia"}
    ],
    "gpus": gpus(
        {
            "address": "0000:00:05.0", "driver": "580.95.05", "bar1_bytes": 256 * GIB, "virtualization": "passthrough",
            "persistence": False, "ecc": True, "ecc_pending": True, "ecc_uncorrected": 0, "ecc_uncorrected_aggregate": 0,
            "remap_pending": False, "remap_failed": False, "mig_pending": False, "mig_devices": 0, "throttle": ["gpu_idle"],
            "compute_mode": "default", "sm_app_mhz": 1980, "sm_app_default_mhz": 1980, "power_limit_w": 700.0,
            "power_default_w": 700.0, "power_w": 75.0, "temperature_c": 31, "temperature_slowdown_c": 87, "pcie_gen": 1,
            "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16, "utilization_pct": 0, "memory_used_bytes": 600 << 20,
            "processes": [], "nvlinks_active": 0, "nvlinks_total": 18, "cpu_affinity": list(range(16)), "c2c": False,
        }
    ),
    "nics": [
        {"name": "eth0", "driver": "virtio_net", "is_physical": True, "state": "up", "mtu": 1460},
        {"name": "lo", "is_physical": False, "state": "unknown", "mtu": 65536},
    ],
    "disks": [{"name": "vda", "is_virtual": False, "rotational": True, "read_ahead_kb": 128}],
    "mounts": [
        {"path": "/", "fs": "ext4", "options": ["rw", "relatime", "discard"], "size_bytes": 64 * GIB, "free_bytes": 30 * GIB},
        {"path": "/boot/efi", "fs": "vfat", "options": ["rw"], "size_bytes": 100 << 20, "free_bytes": 90 << 20},
    ],
    "limits": {
        "memlock_bytes": {"soft": 8 << 20, "hard": 8 << 20}, "open_files": {"soft": 1024, "hard": 1048576},
        "processes": {"soft": 513000, "hard": 513000},
    },
    "container": {
        "kind": "none", "cpu_quota": -1, "memory_limit_bytes": -1, "shm_bytes": 64 * GIB, "oom_kills": 0, "nr_throttled": 0,
    },
    "environment": {"CUDA_VISIBLE_DEVICES": "0"},
    "software": {
        "driver": "580.95.05", "driver_open": True, "torch": "2.8.0", "torch_cuda": "12.8", "cudnn": "9.10.2", "packages": [], "nccl": "2.28.9", "nccl_config": [], "persistenced_running": False,
        "tools": {"numactl": False},
    },
    "seen": ("rdma",),
}  # fmt: skip


def alarms(one: Machine) -> list[Verdict]:
    return [v for v in judge_machine(one) if v.verdict == "finding" and v.severity != "info"]


def changed(**layers: Any) -> Machine:
    """The cloud machine with some fields of a layer changed."""
    tree = dict(CLOUD_VM)
    for layer, change in layers.items():
        old = tree[layer]
        tree[layer] = [{**item, **change} for item in old] if isinstance(old, list) else {**old, **change}
    return machine(tree)


def test_a_cloud_machine_with_one_passthrough_h200_is_quiet() -> None:
    assert alarms(machine(CLOUD_VM)) == []


@pytest.mark.parametrize(
    "layers",
    [
        {"gpus": {"persistence": True}},
        {"gpus": {"virtualization": "none"}},
        {"gpus": {"fabric_state": "not started"}},
        {"gpus": {"sm_app_mhz": None, "throttle": None}},
        {"gpus": {"numa_node": 0}},
        {"cpu": {"clocksource": "tsc"}},
        {"cpu": {"hypervisor": "unnamed"}},
        {"container": {"kind": "docker"}},
        {"container": {"kind": "docker", "shm_bytes": 2 << 30}},
        {"limits": {"open_files": {"soft": 20000, "hard": 20000}}},
    ],
    ids=str,
)
def test_it_stays_quiet_however_it_is_set_up(layers: dict) -> None:
    assert alarms(changed(**layers)) == []


def test_a_quiet_machine_is_not_judged_good_where_nobody_could_look() -> None:
    verdicts = {verdict.code: verdict for verdict in judge_machine(machine(CLOUD_VM))}
    assert verdicts["PCIE01"].reason == "idle"
    assert verdicts["NET01"].reason == "no-fact"
    assert verdicts["GPU24"].reason == "not-measured"
    passes = {code for code, verdict in verdicts.items() if verdict.verdict == "pass"}
    assert {
        "GPU05",
        "GPU08",
        "GPU09",
        "GPU10",
        "GPU12",
        "BIOS03",
        "MEM01",
        "CPU14",
        "ENV06",
        "SW03",
    } <= passes


def test_a_machine_without_a_gpu_has_nothing_to_say_of_gpus() -> None:
    tree = {**CLOUD_VM, "gpus": [], "pci": [], "seen": ("rdma", "gpus", "pci", "diagnostics")}
    verdicts = [v for v in judge_machine(machine(tree)) if v.layer in ("gpu", "nvlink", "driver")]
    assert {(v.verdict, v.reason) for v in verdicts if v.reason != "intent"} == {
        ("not-judged", "not-applicable")
    }


def test_a_denied_kernel_log_is_no_clean_log() -> None:
    one = changed(kernel={"xids": None})
    facts = {**one.facts, "kernel.xids": Fact(key="kernel.xids", source="dmesg", status="denied")}
    one = msgspec.structs.replace(one, facts=facts, gaps={"kernel.xids": "denied: `dmesg`"})
    verdict = next(v for v in judge_machine(one) if v.code == "GPU12")
    assert (verdict.verdict, verdict.reason) == ("not-judged", "denied")
