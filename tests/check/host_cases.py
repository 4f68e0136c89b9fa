"""One bad and one good machine for every host check, as small as they can be.

Each is laid over BASE: a physical two-socket machine of which little is known. A list stands for the items of a
collection; `seen` names collections that were looked at and are empty.
"""

import importlib
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from wellfed.model import Ceiling, Fact, Machine

BASE: dict[str, Any] = {"cpu": {"hypervisor": "none", "arch": "x86_64"}, "container": {"kind": "none"}}
GIB = 1 << 30
TWO_NODES = [{"id": 0, "cpus": [0, 1, 2, 3]}, {"id": 1, "cpus": [4, 5, 6, 7]}]
H200 = {
    "vendor": "nvidia",
    "name": "NVIDIA H200",
    "memory_bytes": 141 * GIB,
    "mig_capable": True,
    "mig": False,
}
GPU_ON_BUS = {"address": "0000:0f:00.0", "vendor": "0x10de", "class_code": "0x030200", "driver": "nvidia"}
NVSWITCH = {"address": "0000:05:00.0", "vendor": "0x10de", "class_code": "0x068000", "driver": "nvidia"}
BRIDGE = {"address": "0000:01:00.0", "vendor": "0x1000", "class_code": "0x060400"}
PORT = {
    "device": "mlx5_0",
    "port": 1,
    "link_layer": "InfiniBand",
    "board": "MT_0838",
    "physical_state": "LinkUp",
}


class Case(NamedTuple):
    """`severity` is what the bad machine gets."""

    bad: dict[str, Any]
    good: dict[str, Any]
    severity: str


def gpus(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**H200, **change} for change in changes]


def ports(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**PORT, "device": f"mlx5_{i}", **change} for i, change in enumerate(changes)]


def env(**variables: str) -> dict[str, Any]:
    return {"environment": variables or {"RANK": "0"}}


def sysctl(key: str, value: str, **more: Any) -> dict[str, Any]:
    return {"kernel": {"sysctls": {key: value}}, **more}


def machine(layer: dict[str, Any]) -> Machine:
    """The machine of a case."""
    layer = dict(layer)
    seen = layer.pop("seen", ())
    tree = {key: dict(value) if isinstance(value, dict) else value for key, value in BASE.items()}
    for key, value in layer.items():
        tree[key] = {**tree.get(key, {}), **value} if isinstance(value, dict) else value
    tree["gpus"] = [{"index": i, **gpu} for i, gpu in enumerate(tree.get("gpus", []))]
    facts = {name: Fact(key=name, value=[], source="/sys") for name in seen}
    return msgspec.structs.replace(msgspec.convert(tree, Machine), facts=facts)


TWO_RATES = ports({"state": "ACTIVE", "rate_gbps": 400.0}, {"state": "ACTIVE", "rate_gbps": 100.0})

CASES: dict[str, Case] = {
    "BIOS01": Case(
        {"cpu": {"packages": 2, "flags": ["avx"], "offline": []}, "numa": [{"id": 0, "cpus": [0]}]},
        {"cpu": {"packages": 2, "flags": ["avx"], "offline": []}, "numa": TWO_NODES},
        "warning",
    ),
    "BIOS03": Case(
        {"gpus": gpus({"bar1_bytes": 256 << 20, "virtualization": "none"}), "rdma": [PORT]},
        {"gpus": gpus({"bar1_bytes": 256 * GIB, "virtualization": "passthrough"})},
        "warning",
    ),
    "CPU01": Case(
        {"cpu": {"governors": ["powersave"], "scaling_driver": "acpi-cpufreq", "energy_preferences": []}},
        {"cpu": {"governors": ["powersave"], "scaling_driver": "intel_pstate", "energy_preferences": ["performance"]}},
        "warning",
    ),
    "CPU04": Case({"cpu": {"boost": False}}, {"cpu": {"boost": True}}, "warning"),
    "CPU05": Case({"cpu": {"capped_policies": 3, "policies": 8}}, {"cpu": {"capped_policies": 0}}, "warning"),
    "CPU07": Case(
        {"cpu": {"idle_driver": "intel_idle", "idle_states": [{"name": "C6", "latency_us": 170, "disabled": False}]}},
        {
            "cpu": {
                "idle_driver": "intel_idle",
                "idle_states": [
                    {"name": "C1", "latency_us": 2, "disabled": False},
                    {"name": "C6", "latency_us": 170, "disabled": True},
                ],
            }
        },
        "info",
    ),
    "CPU12": Case({"cpu": {"clocksource": "hpet"}}, {"cpu": {"clocksource": "tsc"}}, "warning"),
    "CPU14": Case(
        {"cpu": {"isolated": [2, 3], "allowed": [0, 1, 2]}}, {"cpu": {"isolated": [2, 3], "allowed": [0, 1]}}, "warning"
    ),
    "CPU16": Case({"cpu": {"offline": [3], "smt": "on"}}, {"cpu": {"offline": [], "smt": "on"}}, "warning"),
    "CPU17": Case({"cpu": {"steal_pct": 7.5}}, {"cpu": {"steal_pct": 0.2}}, "warning"),
    "CPU19": Case({"cpu": {"platform_profile": "quiet"}}, {"cpu": {"platform_profile": "performance"}}, "warning"),
    "CPU20": Case(
        {"kernel": {"active_services": ["power-profiles-daemon", "sshd", "tuned"]}},
        {"kernel": {"active_services": ["sshd", "tuned"]}},
        "warning",
    ),
    "NUMA01": Case(
        {"numa": TWO_NODES, "gpus": gpus({"cpu_affinity": [0, 1, 2, 3, 4, 5, 6, 7]})},
        {"numa": TWO_NODES, "gpus": gpus({"cpu_affinity": [4, 5, 6, 7], "numa_node": 1})},
        "warning",
    ),
    "NUMA05": Case(
        sysctl("kernel.numa_balancing", "1", numa=TWO_NODES, gpus=gpus({})),
        sysctl("kernel.numa_balancing", "0", numa=TWO_NODES),
        "warning",
    ),
    "NUMA07": Case(
        {"numa": [{**TWO_NODES[0], "distances": [10, 10]}, {**TWO_NODES[1], "distances": [10, 10]}]},
        {"numa": [{**TWO_NODES[0], "distances": [10, 21]}, {**TWO_NODES[1], "distances": [21, 10]}]},
        "warning",
    ),
    "NUMA08": Case({"numa": [*TWO_NODES, {"id": 2}]}, {"numa": TWO_NODES}, "info"),
    "NUMA12": Case(
        {"cpu": {"cores": 8, "allowed": list(range(16))}, "container": {"cpu_quota": 2.0}, "gpus": gpus({}, {})},
        {"cpu": {"cores": 32, "allowed": list(range(64))}, "container": {"cpu_quota": -1}, "gpus": gpus({}, {})},
        "warning",
    ),
    "NUMA14": Case(
        {"numa": TWO_NODES, "container": {"kind": "docker", "cpuset_mems": [0]}, "gpus": gpus({"numa_node": 1})},
        {"numa": TWO_NODES, "container": {"kind": "docker", "cpuset_mems": [0, 1]}, "gpus": gpus({"numa_node": 1})},
        "warning",
    ),
    "MEM01": Case({"memory": {"thp_enabled": "never"}}, {"memory": {"thp_enabled": "madvise"}}, "info"),
    "MEM02": Case(
        {"memory": {"thp_enabled": "always", "thp_defrag": "always"}},
        {"memory": {"thp_enabled": "always", "thp_defrag": "madvise"}},
        "info",
    ),
    "MEM05": Case(
        {"memory": {"total_bytes": 64 * GIB, "huge_pools": [{"page_bytes": 2 << 20, "total": 8192, "free": 8192}]}},
        {"memory": {"total_bytes": 64 * GIB, "huge_pools": [{"page_bytes": 2 << 20, "total": 8192, "free": 0}]}},
        "warning",
    ),
    "MEM07": Case(
        sysctl("vm.swappiness", "60", memory={"swap_total_bytes": 2 * GIB, "swap_devices": ["/dev/sda2"]}),
        sysctl("vm.swappiness", "10", memory={"swap_total_bytes": 2 * GIB, "swap_devices": ["/dev/sda2"]}),
        "info",
    ),
    "MEM08": Case(
        {"memory": {"swap_total_bytes": 8 * GIB, "swap_used_bytes": 4 * GIB, "total_bytes": 32 * GIB}},
        {"memory": {"swap_total_bytes": 8 * GIB, "swap_used_bytes": 4096, "total_bytes": 32 * GIB}},
        "warning",
    ),
    "MEM10": Case(sysctl("vm.overcommit_memory", "2"), sysctl("vm.overcommit_memory", "0"), "warning"),
    "MEM18": Case({"memory": {"edac_uncorrected": 1, "edac_corrected": 7}}, {"memory": {"edac_uncorrected": 0}}, "error"),
    "KRN01": Case(
        {"kernel": {"iommu_groups": 40, "iommu_types": ["DMA-FQ"], "cmdline": ["quiet"]}, "gpus": gpus({}, {})},
        {"kernel": {"iommu_groups": 40, "iommu_types": ["DMA-FQ", "identity"], "cmdline": ["iommu=pt"]}},
        "warning",
    ),
    "IRQ02": Case(
        {"numa": TWO_NODES, "kernel": {"active_services": ["sshd"]}},
        {"numa": TWO_NODES, "kernel": {"active_services": ["irqbalance", "sshd"]}},
        "info",
    ),
    "IRQ07": Case(
        {"kernel": {"sysctls": {"net.core.busy_read": "50", "net.core.busy_poll": "0"}}},
        {"kernel": {"sysctls": {"net.core.busy_read": "0", "net.core.busy_poll": "0"}}},
        "info",
    ),
    "PCIE01": Case(
        {"gpus": gpus({"pcie_width": 8, "pcie_width_max": 16})},
        {"gpus": gpus({"pcie_width": 16, "pcie_width_max": 16, "pcie_gen": 5, "pcie_gen_max": 5})},
        "error",
    ),
    "PCIE05": Case(
        {"gpus": gpus({}, {}), "pci": [{**BRIDGE, "acs_redirect": True}, {**GPU_ON_BUS, "parent": BRIDGE["address"]}]},
        {"gpus": gpus({}, {}), "pci": [{**BRIDGE, "acs_redirect": False}, {**GPU_ON_BUS, "parent": BRIDGE["address"]}]},
        "warning",
    ),
    "GPU01": Case(
        {"pci": [GPU_ON_BUS, {**GPU_ON_BUS, "address": "0000:1f:00.0"}], "gpus": gpus({}), **env()},
        {"pci": [GPU_ON_BUS], "gpus": gpus({})},
        "error",
    ),
    "GPU02": Case(
        {"gpus": gpus({"persistence": False, "processes": []}), "software": {"persistenced_running": False}},
        {"gpus": gpus({"persistence": False, "processes": []}), "software": {"persistenced_running": True}},
        "info",
    ),
    "GPU03": Case(
        {"gpus": gpus({"throttle": ["sw_power_cap", "hw_thermal_slowdown"], "temperature_c": 91})},
        {"gpus": gpus({"throttle": ["gpu_idle", "sw_power_cap", "applications_clocks_setting"]})},
        "error",
    ),
    "GPU05": Case(
        {"gpus": gpus({"power_limit_w": 450.0, "power_default_w": 700.0})},
        {"gpus": gpus({"power_limit_w": 700.0, "power_default_w": 700.0})},
        "warning",
    ),
    "GPU06": Case(
        {"gpus": gpus({"sm_app_mhz": 1200, "sm_app_default_mhz": 1980})},
        {"gpus": gpus({"sm_app_mhz": 1980, "sm_app_default_mhz": 1980})},
        "warning",
    ),
    "GPU08": Case(
        {"gpus": gpus({"ecc": True, "ecc_pending": False})}, {"gpus": gpus({"ecc": True, "ecc_pending": True})}, "warning"
    ),
    "GPU09": Case({"gpus": gpus({"ecc_uncorrected": 2, "ecc_uncorrected_aggregate": 5})}, {"gpus": gpus({"ecc_uncorrected": 0})}, "error"),
    "GPU10": Case(
        {"gpus": gpus({"remap_pending": True, "remap_failed": False})},
        {"gpus": gpus({"remap_pending": False, "remap_failed": False})},
        "warning",
    ),
    "GPU11": Case({"gpus": gpus({"compute_capability": "7.0", "retired_pending": True})}, {"gpus": gpus({"compute_capability": "7.0", "retired_pending": False})}, "warning"),
    "GPU12": Case(
        {"kernel": {"xids": ["[12.5] NVRM: Xid (PCI:0000:0f:00): 79, pid=1, GPU has fallen off the bus."]}},
        {"gpus": gpus({}), "kernel": {"xids": ["NVRM: Xid (PCI:0000:0f:00): 31, pid=48, name=python, MMU Fault"]}},
        "error",
    ),
    "GPU14": Case({"gpus": gpus({"mig_pending": True})}, {"gpus": gpus({"mig_pending": False})}, "warning"),
    "GPU17": Case(
        {"gpus": gpus({"memory_used_bytes": 60 * GIB, "processes": []})},
        {"gpus": gpus({"memory_used_bytes": 1 * GIB, "processes": []})},
        "warning",
    ),
    "GPU18": Case(
        {"gpus": gpus({"temperature_c": 86, "temperature_slowdown_c": 90})},
        {"gpus": gpus({"temperature_c": 60, "temperature_slowdown_c": 90})},
        "warning",
    ),
    "GPU24": Case(
        {"gpus": gpus({"pcie_gen_max": 5, "pcie_width_max": 16, "c2c": False}), "h2d": 23.0},
        {"gpus": gpus({"pcie_gen_max": 5, "pcie_width_max": 16, "c2c": False}), "h2d": 53.0},
        "warning",
    ),
    "NVL01": Case(
        {"gpus": gpus({"nvlinks_active": 17, "nvlinks_total": 18})},
        {"gpus": gpus({"nvlinks_active": 18, "nvlinks_total": 18})},
        "error",
    ),
    "NVL03": Case(
        {"gpus": gpus(*[{"fabric_state": "in progress", "fabric_status": "success"}] * 2)},
        {"gpus": gpus(*[{"fabric_state": "completed", "fabric_status": "success"}] * 2)},
        "error",
    ),
    "NVL04": Case(
        {"pci": [NVSWITCH], "software": {"fabricmanager_running": False}},
        {"pci": [NVSWITCH], "software": {"fabricmanager_running": True}},
        "error",
    ),
    "DRV01": Case(
        {"pci": [GPU_ON_BUS], "gaps": {"gpus": "error: `NVML` (NVML does not start: LibRmVersionMismatch)"}},
        {"pci": [GPU_ON_BUS], "gpus": gpus({"driver": "580.95.05"})},
        "error",
    ),
    "DRV05": Case(
        {
            "gpus": gpus({}), "rdma": [PORT], "software": {"driver_open": False},
            "kernel": {"modules": ["nvidia"], "release": "6.8.0-45-generic"},
        },
        {
            "gpus": gpus({}), "rdma": [PORT], "software": {"driver_open": True},
            "kernel": {"modules": ["nvidia"], "release": "6.8.0-45-generic"},
        },
        "warning",
    ),
    "DRV08": Case(
        {"pci": [{**GPU_ON_BUS, "driver": "nouveau"}], "kernel": {"modules": ["nouveau"]}},
        {"pci": [GPU_ON_BUS], "kernel": {"modules": ["nvidia"]}},
        "error",
    ),
    "RDMA01": Case(
        {"rdma": ports({"state": "ACTIVE", "rate_gbps": 400.0}, {"state": "ACTIVE", "rate_gbps": 200.0})},
        {"rdma": ports({"state": "ACTIVE", "rate_gbps": 400.0}, {"state": "ACTIVE", "rate_gbps": 400.0})},
        "warning",
    ),
    "NET01": Case(
        {"nics": [{"name": "ens1", "is_physical": True, "state": "up", "speed_mbps": 100000, "mtu": 1500}]},
        {"nics": [{"name": "ens1", "is_physical": True, "state": "up", "speed_mbps": 100000, "mtu": 9000}]},
        "info",
    ),
    "STO03": Case(
        {"disks": [{"name": "nvme0n1", "read_ahead_kb": 0}]}, {"disks": [{"name": "nvme0n1", "read_ahead_kb": 128}]}, "info"
    ),
    "STO05": Case(
        {"disks": [{"name": "sda", "is_virtual": False, "rotational": True, "size_bytes": 4 << 40}]},
        {"disks": [{"name": "sda", "is_virtual": False, "rotational": False}]},
        "info",
    ),
    "STO06": Case(
        {"disks": [{"name": "nvme0n1", "is_virtual": False, "pcie_width": 2, "pcie_width_max": 4}]},
        {"disks": [{"name": "nvme0n1", "is_virtual": False, "pcie_width": 4, "pcie_width_max": 4}]},
        "warning",
    ),
    "STO12": Case(
        {"mounts": [{"path": "/", "fs": "ext4", "options": ["rw"], "size_bytes": 100 * GIB, "free_bytes": 2 * GIB}]},
        {"mounts": [{"path": "/", "fs": "ext4", "options": ["rw"], "size_bytes": 100 * GIB, "free_bytes": 40 * GIB}]},
        "warning",
    ),
    "LIM01": Case(
        {"rdma": [PORT], "memory": {"total_bytes": GIB}, "limits": {"memlock_bytes": {"soft": 8 << 20, "hard": 8 << 20}}},
        {"rdma": [PORT], "limits": {"memlock_bytes": {"soft": -1, "hard": -1}}},
        "error",
    ),
    "LIM02": Case(
        {"limits": {"open_files": {"soft": 1024, "hard": 1048576}}},
        {"limits": {"open_files": {"soft": 65536, "hard": 1048576}}},
        "info",
    ),
    "LIM03": Case(
        {"limits": {"processes": {"soft": 1024, "hard": 1024}}}, {"limits": {"processes": {"soft": -1, "hard": -1}}}, "warning"
    ),
    "CON01": Case(
        {"cpu": {"allowed": list(range(64))}, "container": {"kind": "docker", "cpu_quota": 4.0, "nr_throttled": 9}},
        {"cpu": {"allowed": list(range(64))}, "container": {"kind": "docker", "cpu_quota": -1}},
        "warning",
    ),
    "CON02": Case(
        {"container": {"kind": "docker", "cpu_quota": 4.0, "nr_throttled": 900, "nr_periods": 1000}},
        {"container": {"kind": "docker", "cpu_quota": 4.0, "nr_throttled": 0, "nr_periods": 1000}},
        "warning",
    ),
    "CON04": Case(
        {**env(OMP_NUM_THREADS="64"), "cpu": {"allowed": list(range(64))}, "container": {"cpu_quota": 4.0}},
        {**env(OMP_NUM_THREADS="4"), "cpu": {"allowed": list(range(64))}, "container": {"cpu_quota": 4.0}},
        "warning",
    ),
    "CON05": Case(
        {"container": {"kind": "kubernetes", "memory_limit_bytes": 8 * GIB, "oom_kills": 2}},
        {"container": {"kind": "kubernetes", "memory_limit_bytes": 8 * GIB, "oom_kills": 0}},
        "warning",
    ),
    "CON07": Case(
        {"container": {"kind": "docker", "shm_bytes": 64 << 20}, "gpus": gpus({})},
        {"container": {"kind": "docker", "shm_bytes": 16 * GIB}, "gpus": gpus({})},
        "warning",
    ),
    "CON11": Case(
        {"numa": TWO_NODES, "container": {"kind": "docker", "capabilities": ["CAP_CHOWN"]}},
        {"numa": TWO_NODES, "container": {"kind": "docker", "capabilities": ["CAP_SYS_NICE"]}},
        "info",
    ),
    "ENV02": Case(env(GOMP_CPU_AFFINITY="0-7"), env(KMP_AFFINITY="disabled", OMP_PROC_BIND="false"), "info"),
    "ENV06": Case(env(CUDA_LAUNCH_BLOCKING="1"), env(CUDA_LAUNCH_BLOCKING="0"), "warning"),
    "ENV07": Case(env(TORCH_DISTRIBUTED_DEBUG="DETAIL"), env(TORCH_DISTRIBUTED_DEBUG="INFO"), "warning"),
    "ENV09": Case(env(PYTORCH_NO_CUDA_MEMORY_CACHING="1"), env(), "warning"),
    "ENV11": Case(
        {**env(NCCL_P2P_DISABLE="1"), "gpus": gpus({}, {})}, {**env(NCCL_P2P_DISABLE="0"), "software": {"nccl_config": []}},
        "warning",
    ),
    "ENV25": Case(
        {**env(), "gpus": gpus({}, {}), "rdma": TWO_RATES, "seen": ("kernel.virtualization",)},
        {**env(NCCL_IB_HCA="=mlx5_0:1"), "gpus": gpus({}, {}), "rdma": TWO_RATES, "seen": ("kernel.virtualization",)},
        "info",
    ),
    "ENV14": Case({"software": {"nccl": "2.29.3"}}, {"software": {"nccl": "2.28.9"}}, "info"),
    "ENV20": Case(env(PYTHONDEVMODE="1"), env(PYTHONMALLOC="pymalloc"), "warning"),
    "SW03": Case(
        {"software": {"driver": "525.85.12"}}, {"software": {"driver": "580.95.05", "nccl": "2.28.3", "torch": "2.8.0", "torch_cuda": "12.9", "cudnn": "9.10.2", "packages": []}}, "warning"
    ),
    "SW08": Case(
        {"numa": TWO_NODES, "software": {"tools": {"numactl": False}}},
        {"numa": TWO_NODES, "software": {"tools": {"numactl": True}}},
        "info",
    ),
}  # fmt: skip


def _more(name: str) -> dict[str, Any]:
    """What the modules of `cases/`, one a layer, hold under a name. Words and keys of several layers add up."""
    found: dict[str, Any] = {}
    for path in sorted((Path(__file__).parent / "cases").glob("[a-z]*.py")):
        for key, value in getattr(importlib.import_module(f"cases.{path.stem}"), name, {}).items():
            assert key not in found or name != "CASES", f"{key} stands twice"
            found[key] = (*found.get(key, ()), *value) if name != "CASES" else value
    return found


def ceilings(layer: dict[str, Any]) -> tuple[Ceiling, ...]:
    """What was measured in a case: `h2d` in GB/s."""
    if "h2d" not in layer:
        return ()
    best = layer["h2d"]
    return (
        Ceiling(
            id="gpu.h2d.pinned", title="host to GPU, pinned", method="cudaMemcpyAsync", hardware_key="h200",
            unit="GB/s", best=best, median=best, p10=best, p90=best, n=9, cv=0.01,
        ),
    )  # fmt: skip


CASES.update({code: Case(*case) for code, case in _more("CASES").items()})
WORDS: dict[str, tuple[str, ...]] = _more("WORDS")
"""Field -> words that random machines may have there, besides those of `random_machines.py`."""
KEYS: dict[str, tuple[str, ...]] = _more("KEYS")
"""Field that is a dict -> its keys on random machines."""
