"""False alarms that users of other tools reported (numbers F1 to F44 of `reported.py`), and the classes of those that
judging the corpus showed: states that are as they should be."""

from typing import Any

import msgspec
import pytest
from host_cases import CASES, GIB, GPU_ON_BUS, NVSWITCH, TWO_NODES, gpus, machine, ports
from test_quiet_machines import CLOUD_VM

from wellfed.check import judge_machine
from wellfed.check.table import tables
from wellfed.host.door import COMMANDS
from wellfed.model import Verdict

BARE = {"hypervisor": "none", "arch": "x86_64"}
KVM = {"hypervisor": "kvm", "arch": "x86_64"}
NIC = {"name": "eth0", "is_physical": True, "state": "up", "mtu": 1500}


def judge(code: str, layer: dict[str, Any], intent: str = "training") -> Verdict:
    return next(v for v in judge_machine(machine(layer), intent=intent) if v.code == code)


def said(code: str, layer: dict[str, Any], intent: str = "training") -> str:
    """`pass`, the severity of a finding, or the reason why it was not judged."""
    verdict = judge(code, layer, intent)
    return verdict.severity if verdict.verdict == "finding" else verdict.reason or verdict.verdict


# -- reported ------------------------------------------------------------------------------------------------


def test_f01_parameters_of_intel_idle_on_amd() -> None:
    states = [{"name": "C1", "latency_us": 1, "disabled": False}]
    cpu = {**BARE, "vendor": "AuthenticAMD", "idle_driver": "acpi_idle", "idle_states": states, "smt": "on"}
    one = {"cpu": cpu, "kernel": {"cmdline": ["intel_idle.max_cstate=9", "processor.max_cstate=9"]}}
    assert (said("CPU07", one), said("CPU10", one)) == ("pass", "pass")


def test_f02_a_virtio_disk_calls_itself_rotating() -> None:
    disk = {"name": "vda", "is_virtual": False, "rotational": True, "size_bytes": 64 * GIB}
    assert said("STO05", {"cpu": KVM, "disks": [disk]}) == "not-applicable"


@pytest.mark.parametrize("code", ["NET01", "NET02", "NET16", "NET10", "NET12"])
def test_f03_an_interface_that_tells_no_speed(code: str) -> None:
    one = {"cpu": KVM, "nics": [{**NIC, "driver": "virtio_net", "duplex": None, "drops": 5}]}
    assert judge(code, one).verdict == "not-judged"


def test_f04_a_latency_held_where_the_host_sleeps() -> None:
    cpu = {**BARE, "idle_driver": "haltpoll", "dma_latency_us": 2_000_000_000, "dma_latency_holders": []}
    assert said("CPU08", {"cpu": cpu}, "latency") == "not-applicable"


@pytest.mark.parametrize("code", ["MEM05", "MEM09", "MEM11", "MEM17", "STO13"])
def test_f05_memory_that_grows_changes_no_verdict(code: str) -> None:
    """A virtual machine brings its memory up while it runs: 16 GB, minutes later 24."""
    memory = {"huge_pools": [], "unevictable_bytes": 1 << 20}
    sysctls = {"vm.dirty_ratio": "20", "vm.dirty_bytes": "0", "vm.min_free_kbytes": "67584"}
    verdicts = [
        judge(
            code,
            {"memory": {**memory, "total_bytes": total}, "kernel": {"sysctls": sysctls}, "gpus": gpus({}), "cpu": KVM,
             "nics": [NIC], "container": {"kind": "none", "shm_bytes": total // 2}},
        ).verdict
        for total in (16 * GIB, 24 * GIB)
    ]  # fmt: skip
    assert verdicts[0] == verdicts[1] != "finding"


@pytest.mark.parametrize("boost", [None, False])
def test_f06_no_switch_for_boost_in_a_guest(boost: bool | None) -> None:
    assert said("CPU04", {"cpu": {**KVM, "boost": boost}}) == "not-applicable"


def _served(cpus: list[int], **irq: Any) -> dict[str, Any]:
    """Two packages of four nodes with two CPUs each, and the interrupts of an adapter on node 1."""
    numa = [
        {"id": n, "cpus": [2 * n, 2 * n + 1], "mem_bytes": GIB,
         "distances": [10 if m == n else 12 if m // 4 == n // 4 else 32 for m in range(8)]} for n in range(8)
    ]  # fmt: skip
    card = {
        "address": "0000:41:00.0",
        "class_code": "0x020000",
        "vendor": "0x15b3",
        "numa_node": 1,
        "local_cpus": [2, 3],
    }
    irqs = [
        {
            "number": 30 + cpu,
            "kind": "nic",
            "address": card["address"],
            "effective": [cpu],
            "count": 10**6,
            **irq,
        }
        for cpu in cpus
    ]
    nic = {
        "name": "eth0",
        "is_physical": True,
        "state": "up",
        "speed_mbps": 100_000,
        "address": card["address"],
        "numa_node": 1,
    }
    cpu = {**BARE, "logical": 16, "packages": 2}
    return {"cpu": cpu, "numa": numa, "pci": [card], "nics": [nic], "irqs": irqs}


def test_f13_nodes_of_one_package_are_near_each_other() -> None:
    assert said("IRQ01", _served([0, 1, 6, 7])) == "pass"
    assert said("IRQ01", _served([8, 9, 14, 15])) == "warning"


def test_f15_interrupts_without_a_device_are_nobodys() -> None:
    assert judge("IRQ01", _served([8, 9, 14, 15], address=None)).verdict == "not-judged"
    far = _served([8, 9, 14, 15])
    blank = {"numa_node": None, "local_cpus": None}
    unknown = {**far, "pci": [{**far["pci"][0], **blank}], "nics": [{**far["nics"][0], "numa_node": None}]}
    assert judge("IRQ01", unknown).verdict == "not-judged"


def test_f16_the_driver_knows_the_node_of_a_coherent_gpu() -> None:
    near = {"c2c": True, "cpu_affinity": [4, 5, 6, 7], "numa_node": 1}
    on_bus = {**GPU_ON_BUS, "local_cpus": list(range(8)), "numa_node": 0}
    assert said("NUMA01", {"numa": TWO_NODES, "gpus": gpus(near), "pci": [on_bus]}) == "pass"


def test_f17_distances_that_are_all_alike() -> None:
    def nodes(far: int) -> list[dict[str, Any]]:
        return [{**TWO_NODES[0], "distances": [10, far]}, {**TWO_NODES[1], "distances": [far, 10]}]

    assert (said("NUMA07", {"numa": nodes(10)}), said("NUMA07", {"numa": nodes(20)})) == ("warning", "pass")


def test_f18_memory_of_gpus_is_no_place_to_count() -> None:
    numa = [*TWO_NODES, *({"id": n, "cpus": [], "mem_bytes": 16 * GIB} for n in (255, 254, 253))]
    verdict = judge("NUMA08", {"numa": numa})
    assert verdict.severity == "info" and "5 NUMA nodes, 2 with CPUs" in verdict.message
    assert (
        said("BIOS01", {"cpu": {**BARE, "packages": 2, "flags": ["avx"], "offline": []}, "numa": numa})
        == "pass"
    )


def test_f19_one_node_with_cpus_among_nine() -> None:
    numa = [
        {"id": 0, "cpus": list(range(72))},
        *({"id": n, "cpus": [], "mem_bytes": 12 * GIB} for n in range(1, 9)),
    ]
    cpu = {"arch": "aarch64", "cores": 72, "allowed": list(range(72))}
    one = {"cpu": cpu, "numa": numa, "gpus": gpus({}), "container": {"cpu_quota": -1}}
    assert said("NUMA12", one) == "pass"
    assert said("NUMA01", {**one, "gpus": gpus({"cpu_affinity": list(range(72))})}) == "not-applicable"


def test_f20_a_container_without_numa_rights_is_a_note() -> None:
    container = {"kind": "docker", "capabilities": ["CAP_CHOWN"], "numa_calls": "EPERM"}
    one = {"numa": TWO_NODES, "container": container}
    assert (said("CON11", one), said("CON12", one)) == ("info", "info")
    assert said("CON12", {"numa": TWO_NODES[:1], "container": container}) == "not-applicable"


def test_f21_a_column_that_is_empty_is_not_every_node() -> None:
    assert judge("NUMA01", {"numa": TWO_NODES, "gpus": gpus({"cpu_affinity": None})}).verdict == "not-judged"


def test_f25_gpu_cpus_outside_the_cpuset_are_told() -> None:
    one = {"numa": TWO_NODES, "gpus": gpus({"cpu_affinity": [4, 5]}), "cpu": {"allowed": [0, 1]}}
    assert said("CON03", one) == "warning"
    assert said("CON03", {**one, "cpu": {"allowed": [1, 4]}}) == "pass"


def test_f27_isolated_cpus_matter_where_they_are_used() -> None:
    assert said("CPU14", {"cpu": {"isolated": [2, 3], "allowed": [0, 1]}}) == "pass"
    assert said("CPU14", {"cpu": {"isolated": [2, 3], "allowed": [1, 2]}}) == "warning"
    assert said("ENV02", {"environment": {"GOMP_CPU_AFFINITY": "0-3"}}) == "info"


def test_f29_memory_that_is_not_allowed_near_the_gpu() -> None:
    container = {"kind": "kubernetes", "cpuset_mems": [0]}
    one = {"numa": TWO_NODES, "container": container, "gpus": gpus({"numa_node": 1})}
    assert (said("NUMA14", one), said("NUMA08", one)) == ("warning", "pass")


def test_f30_nccl_that_changes_the_affinity_is_a_note() -> None:
    assert said("ENV14", {"software": {"nccl": "2.29.3"}}) == "info"
    assert said("ENV14", {"software": {"nccl": "2.30.4"}}) == "pass"


def test_f31_a_mask_that_is_too_small_for_nccl() -> None:
    one = {"cpu": {**BARE, "allowed": [0, 1], "logical": 64}, "gpus": gpus({}, {}), "numa": TWO_NODES}
    assert said("ENV13", {**one, "environment": {"RANK": "0"}}) == "info"
    assert said("ENV13", {**one, "environment": {"NCCL_IGNORE_CPU_AFFINITY": "1"}}) == "pass"


def test_f32_persistence_by_the_daemon_and_by_an_operator() -> None:
    off = gpus({"persistence": False, "processes": []})
    assert said("GPU02", {"gpus": off, "software": {"persistenced_running": True}}) == "pass"
    assert said("GPU02", {"gpus": off, "software": {"persistenced_running": False}}) == "info"


def test_f33_a_fabric_manager_where_there_is_a_switch() -> None:
    gb200 = gpus({"name": "NVIDIA GB200"}, {"name": "NVIDIA GB200"})
    software = {"fabricmanager_running": False}
    assert said("NVL04", {"gpus": gb200, "pci": [GPU_ON_BUS], "software": software}) == "not-applicable"
    assert said("NVL04", {"gpus": gpus({}, {}), "pci": [NVSWITCH], "software": software}) == "error"


def test_f35_lanes_that_a_slot_does_not_have() -> None:
    """DCGM failed GPUs that are wired with 8 lanes by design."""
    assert (
        said("PCIE01", {"gpus": gpus({"name": "NVIDIA A10G", "pcie_width": 8, "pcie_width_max": 16})})
        == "info"
    )
    full = {"pcie_width": 8, "pcie_width_max": 8, "pcie_gen": 4, "pcie_gen_max": 4}
    assert said("PCIE01", {"gpus": gpus({"name": "NVIDIA A2", **full})}) == "pass"


def test_f36_under_mig_utilisation_is_unknown_and_no_fault() -> None:
    one = gpus(
        {
            "mig": True,
            "mig_pending": True,
            "utilization_pct": None,
            "memory_used_bytes": 80 * GIB,
            "processes": [],
        }
    )
    assert said("GPU14", {"gpus": one}) == "pass"
    loud = [v.code for v in judge_machine(machine({"gpus": one})) if v.verdict == "finding"]
    assert loud == []


def test_f38_a_quota_is_what_there_is() -> None:
    one = {
        "cpu": {"cores": 64, "allowed": list(range(64))},
        "container": {"cpu_quota": 4.0},
        "gpus": gpus({}),
    }
    assert "4 usable CPUs" in judge("CON04", {**one, "environment": {"RANK": "0"}}).message
    assert said("CON04", {**one, "environment": {"OMP_NUM_THREADS": "4"}}) == "pass"
    assert said("NUMA12", one) == "pass"


@pytest.mark.parametrize(
    ("driver", "wanted"), [("525.60.13", "warning"), ("580.95.05", "pass"), ("525.147.05", "pass")]
)
def test_f39_a_driver_is_bad_in_the_range_that_was_reported(driver: str, wanted: str) -> None:
    versions = {"nccl": "2.27.5", "torch": "2.8.0", "torch_cuda": "12.8", "cudnn": "9.10.2", "packages": []}
    software = {"driver": driver, **versions}
    assert said("SW03", {"gpus": gpus({}), "software": software}) == wanted


def test_f40_polling_instead_of_idling() -> None:
    def polls(cpu: dict[str, Any]) -> dict[str, Any]:
        return {"cpu": cpu, "kernel": {"cmdline": ["idle=poll"]}}

    assert said("CPU10", polls({**KVM, "smt": "notimplemented"})) == "warning"
    assert said("CPU10", polls({**BARE, "smt": "off"})) == "pass"


def test_f41_the_topology_is_asked_for_as_a_whole() -> None:
    asked = [command.argv for command in COMMANDS.values() if "topo" in command.argv]
    assert asked and not any("-i" in argv for argv in asked)


def test_f42_discard_on_a_virtual_disk() -> None:
    assert said("STO09", {"cpu": KVM, "mounts": CLOUD_VM["mounts"]}) == "not-applicable"


HOSTS = sorted(
    code
    for code, check in tables().items()
    if any(expression == "not vm" for expression, _ in check.entry.applies)
)  # fmt: skip
"""Checks of what belongs to the host of a virtual machine."""


@pytest.mark.parametrize("code", [*HOSTS, "BIOS11", "PCIE05", "PCIE13"])
@pytest.mark.parametrize("hypervisor", ["kvm", "hyperv", "xen", "unnamed"])
def test_f43_a_guest_is_not_judged_by_what_is_its_hosts(code: str, hypervisor: str) -> None:
    bad = CASES[code].bad
    one = {**bad, "cpu": {**bad.get("cpu", {}), "hypervisor": hypervisor}}
    for intent in ("training", "latency", "throughput", "benchmark"):
        assert said(code, one, intent) in ("not-applicable", "intent")


@pytest.mark.parametrize("by", ["passthrough", "vgpu"])
def test_f44_a_gpu_that_was_handed_over(by: str) -> None:
    one = {
        "cpu": KVM, "pci": [GPU_ON_BUS], "software": {"fabricmanager_running": False}, "rdma": [],
        "gpus": gpus({"virtualization": by, "bar1_bytes": 256 << 20 if by == "vgpu" else 256 * GIB, "nvlinks_active": 0,
                      "nvlinks_total": 18, "fabric_state": "not started", "persistence": False, "processes": []}),
    }  # fmt: skip
    for code in ("BIOS03", "NVL01", "NVL03", "NVL04", "PCIE05"):
        assert judge(code, one).verdict != "finding", code


# -- shown by the corpus and by reading every entry with its eyes ---------------------------------------------


@pytest.mark.parametrize("arch", ["ppc64le", "s390x", "ppc64"])
def test_threads_that_are_switched_off_one_by_one(arch: str) -> None:
    cpu = {"hypervisor": "none", "arch": arch, "offline": [1, 2, 3, 5, 6, 7], "smt": "4"}
    assert said("CPU16", {"cpu": cpu}) == "not-applicable"


def test_cores_that_count_as_sockets_are_no_interleaving() -> None:
    """64 packages on 8 nodes: the kernel of a POWER machine numbers cores so (hwloc's 256ppc-8n8s4t)."""
    cpu = {"hypervisor": "none", "arch": "ppc64le", "packages": 64, "offline": []}
    assert said("BIOS01", {"cpu": cpu, "numa": TWO_NODES}) == "not-applicable"


@pytest.mark.parametrize(
    "clock", ["riscv_clocksource", "Constant", "itc", "stick", "tick", "timebase", "tod"]
)
def test_the_only_clock_that_an_architecture_has(clock: str) -> None:
    assert said("CPU12", {"cpu": {"clocksource": clock}}) == "pass"


def test_a_process_that_was_placed_on_one_isolated_cpu() -> None:
    assert said("CPU14", {"cpu": {"isolated": [2, 3], "allowed": [3]}}) == "pass"


def test_nodes_of_which_no_cpu_is_shown_are_not_memory_only() -> None:
    assert said("NUMA08", {"numa": [{"id": 1}, {"id": 2}]}) == "not-applicable"


def test_a_machine_of_which_few_cpus_were_seen_is_not_short_of_cores() -> None:
    assert (
        judge("NUMA12", {"cpu": {"cores": 8, "allowed": None}, "gpus": gpus(*[{}] * 6)}).verdict
        == "not-judged"
    )


def test_distances_that_differ_by_direction_are_allowed() -> None:
    nodes = [{**TWO_NODES[0], "distances": [10, 50]}, {**TWO_NODES[1], "distances": [40, 10]}]
    assert said("NUMA07", {"numa": nodes}) == "info"


@pytest.mark.parametrize(("soft", "wanted"), [(-1, "pass"), (2048 * GIB, "pass"), (8 << 20, "error")])
def test_a_limit_above_all_memory_limits_nothing(soft: int, wanted: str) -> None:
    limits = {"memlock_bytes": {"soft": soft, "hard": soft}}
    assert (
        said("LIM01", {"rdma": ports({}), "memory": {"total_bytes": 1024 * GIB}, "limits": limits}) == wanted
    )


PORT_0, PORT_1 = "0000:80:00.0", "0000:81:00.0"


@pytest.mark.parametrize(
    ("below", "wanted"),
    [
        ({**NVSWITCH, "parent": PORT_1}, "not-applicable"),
        ({"address": "0000:82:00.0", "class_code": "0x030000", "vendor": "0x1a03", "parent": PORT_1}, "not-applicable"),
        ({"address": "0000:82:00.0", "class_code": "0x010601", "vendor": "0x8086", "parent": PORT_1}, "not-applicable"),
        ({**GPU_ON_BUS, "parent": PORT_1}, "warning"),
        ({"address": "0000:82:00.0", "class_code": "0x020700", "vendor": "0x15b3", "parent": PORT_1}, "warning"),
        ({"address": "0000:82:00.0", "class_code": "0x010802", "vendor": "0x144d", "parent": PORT_1}, "warning"),
        ({**GPU_ON_BUS, "vendor": None, "parent": PORT_1}, "no-fact"),
    ],
    ids=["an NVSwitch", "a management display", "a SATA disk", "a GPU", "an adapter", "an NVMe disk", "an unknown display"],
)  # fmt: skip
def test_only_bridges_above_peers_can_redirect_peers(below: dict[str, Any], wanted: str) -> None:
    pci = [
        {"address": PORT_0, "class_code": "0x060400", "vendor": "0x1000", "acs_redirect": True},
        {
            "address": PORT_1,
            "class_code": "0x060400",
            "vendor": "0x1000",
            "acs_redirect": True,
            "parent": PORT_0,
        },
        below,
    ]
    assert said("PCIE05", {"gpus": gpus({}, {}), "pci": pci}) == wanted


@pytest.mark.parametrize(
    ("name", "width", "port", "wanted"),
    [
        ("NVIDIA H200", 8, None, "error"),
        ("NVIDIA H200", 8, 16, "error"),
        ("NVIDIA H200", 8, 8, "info"),
        ("Quadro P2000", 8, None, "warning"),
        ("Quadro P2000", 8, 8, "info"),
        ("NVIDIA RTX A6000", 4, None, "error"),
        ("Tesla T4", 8, None, "info"),
    ],
)
def test_lanes_are_missed_where_there_should_be_some(
    name: str, width: int, port: int | None, wanted: str
) -> None:
    pci = [{**GPU_ON_BUS, "parent": PORT_0}]
    if port:
        pci.append({"address": PORT_0, "class_code": "0x060400", "width_max": port})
    gpu = {"name": name, "address": GPU_ON_BUS["address"], "pcie_width": width, "pcie_width_max": 16}
    assert said("PCIE01", {"gpus": gpus(gpu), "pci": pci}) == wanted


@pytest.mark.parametrize("code", ["PCIE08", "PCIE09", "PCIE12"])
def test_the_display_of_a_management_controller_is_no_gpu(code: str) -> None:
    display = {"address": "0000:04:00.0", "class_code": "0x030000", "vendor": "0x1a03", "is_virtual": False}
    bad = {"aer_fatal": 1, "aer_nonfatal": 0, "aer_correctable": 0, "power_control": "auto", "local_cpus": []}
    one = {"numa": TWO_NODES, "cpu": {**BARE, "logical": 8}, "pci": [{**display, **bad}]}
    assert said(code, one) == "not-applicable"
    assert said(code, {**one, "pci": [{**display, **bad, "vendor": "0x10de"}]}) in ("info", "warning")


def test_virtio_is_near_nothing() -> None:
    virtio = {
        "address": "0000:00:03.0",
        "class_code": "0x020000",
        "vendor": "0x1af4",
        "is_virtual": False,
        "local_cpus": [],
    }
    one = {"numa": TWO_NODES, "cpu": {**KVM, "logical": 8}, "pci": [virtio]}
    assert said("PCIE12", one) == "not-applicable"


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({"RANK": "0"}, "error"), ({"SLURM_JOB_NUM_NODES": "1"}, "not-applicable"), (None, "no-fact")],
)
def test_a_job_that_was_given_some_of_the_gpus(environment: dict[str, str] | None, wanted: str) -> None:
    """Slurm lets a job see only its own GPUs, and the bus shows all."""
    pci = [{**GPU_ON_BUS, "address": f"0000:{n:02x}:00.0"} for n in range(8)]
    one = {"pci": pci, "gpus": gpus({}, {}), **({"environment": environment} if environment else {})}
    assert said("GPU01", one) == wanted


def test_memory_of_a_desktop_and_of_wsl_has_owners_that_are_not_listed() -> None:
    used = {"memory_used_bytes": 20 * GIB, "processes": []}
    assert said("GPU17", {"gpus": gpus(used)}) == "warning"
    assert said("GPU17", {"gpus": gpus({**used, "name": "NVIDIA GeForce RTX 4090"})}) == "not-applicable"
    assert said("GPU17", {"gpus": gpus(used), "cpu": {"hypervisor": "wsl"}}) == "not-applicable"


def test_nouveau_that_holds_nothing() -> None:
    modules = {"kernel": {"modules": ["nouveau", "nvidia"]}}
    assert said("DRV08", {"pci": [GPU_ON_BUS], **modules}) == "pass"
    assert said("DRV08", {"pci": [{**GPU_ON_BUS, "driver": "nouveau"}], **modules}) == "error"


def test_efa_reaches_the_gpu_by_itself() -> None:
    one = {"gpus": gpus({}), "rdma": ports({"device": "rdmap0s6"}), "software": {"driver_open": False}}
    assert said("DRV05", {**one, "kernel": {"modules": ["efa", "nvidia"], "release": "5.10.0"}}) == "pass"
    assert (
        said("DRV05", {**one, "kernel": {"modules": ["mlx5_core", "nvidia"], "release": "5.10.0"}})
        == "warning"
    )
    geforce = gpus({"name": "NVIDIA GeForce RTX 4090"})
    assert (
        said("DRV05", {**one, "gpus": geforce, "kernel": {"modules": [], "release": "5.10.0"}})
        == "not-applicable"
    )


@pytest.mark.parametrize(
    ("nic", "cpu", "wanted"),
    [
        ({"name": "ens1"}, BARE, "info"),
        ({"name": "ib0", "mtu": 2044}, BARE, "not-applicable"),
        ({"name": "eth1"}, {"hypervisor": "hyperv"}, "not-applicable"),
        ({"name": "eth1"}, {"hypervisor": "microsoft"}, "not-applicable"),
    ],
)
def test_small_packets_where_they_can_be_larger(
    nic: dict[str, Any], cpu: dict[str, Any], wanted: str
) -> None:
    assert said("NET01", {"cpu": cpu, "nics": [{**NIC, "speed_mbps": 100_000, **nic}]}) == wanted


def test_the_unit_of_ufw_is_active_on_every_ubuntu() -> None:
    one = {"rdma": ports({}), "environment": {"RANK": "0"}}
    assert said("NET19", {**one, "kernel": {"active_services": ["ufw"]}}) == "pass"
    assert said("NET19", {**one, "kernel": {"active_services": ["firewalld"]}}) == "info"


@pytest.mark.parametrize(("release", "wanted"), [("4.18.0-553.el8", "pass"), ("6.8.0-45-generic", "info")])
def test_connections_that_the_kernel_does_not_know(release: str, wanted: str) -> None:
    mount = {"path": "/data", "fs": "nfs", "options": ["rw", "vers=3", "rsize=1048576", "proto=tcp"]}
    assert said("STO14", {"mounts": [mount], "kernel": {"release": release}}) == wanted


def test_a_disk_of_a_virtual_machine_has_its_hosts_link() -> None:
    disk = {"name": "nvme0n1", "is_virtual": False, "pcie_width": 0, "pcie_width_max": 4}
    assert said("STO06", {"cpu": KVM, "disks": [disk]}) == "not-applicable"


@pytest.mark.parametrize(
    ("value", "architecture", "wanted"),
    [
        ("1", "Hopper", "not-applicable"),
        ("1", "Blackwell", "info"),
        ("2", "Hopper", "info"),
        ("32", "Hopper", "pass"),
    ],
)
def test_one_queue_as_megatron_demands(value: str, architecture: str, wanted: str) -> None:
    one = {
        "gpus": gpus({"architecture": architecture}),
        "environment": {"CUDA_DEVICE_MAX_CONNECTIONS": value},
    }
    assert said("ENV05", one) == wanted


def test_a_roce_port_waits_for_no_subnet_manager() -> None:
    down = {"state": "DOWN", "physical_state": "LinkUp", "link_layer": "Ethernet", "board": "A"}
    verdict = judge("RDMA01", {"rdma": ports(down)})
    assert verdict.severity == "info" and "subnet manager" not in verdict.message
    assert judge("RDMA01", {"rdma": ports({**down, "link_layer": "InfiniBand"})}).severity == "error"


def test_switched_off_multicast_is_a_note() -> None:
    one = {"gpus": gpus({}, {}), "environment": {"NCCL_NVLS_ENABLE": "0"}}
    assert said("ENV11", one) == "info"
    for value in ("1", "2"):
        assert said("ENV11", {**one, "environment": {"NCCL_NVLS_ENABLE": value}}) != "info"


def test_a_name_that_the_kernel_refuses_is_not_in_force() -> None:
    """A role of an image set `brr` for `bbr`: the write failed, and nobody saw it."""
    key = "net.ipv4.tcp_congestion_control"
    files = {key: "brr @ /etc/sysctl.d/90-network.conf"}
    verdict = judge("KRN03", {"kernel": {"sysctls": {key: "cubic"}, "sysctl_files": files}})
    assert verdict.verdict == "finding" and "brr" in verdict.message


@pytest.mark.parametrize(
    ("states", "wanted"), [([1, 10], "not-applicable"), ([1, 170], "info"), ([1, None], "not-applicable")]
)
def test_sleep_that_is_short_need_not_be_kept_off(states: list[int | None], wanted: str) -> None:
    shown = [
        {"name": f"C{n}", "latency_us": us or 900, "disabled": us is None} for n, us in enumerate(states, 1)
    ]
    cpu = {
        **BARE,
        "idle_driver": "intel_idle",
        "idle_states": shown,
        "dma_latency_us": 2_000_000_000,
        "dma_latency_holders": [],
    }
    assert said("CPU08", {"cpu": cpu}, "latency") == wanted


def test_the_order_of_gpus_that_are_named_by_uuid_is_that_of_the_list() -> None:
    mixed = gpus({"name": "NVIDIA A100-SXM4-80GB"}, {"name": "Tesla T4"})
    named = {"CUDA_VISIBLE_DEVICES": "GPU-0a0a0a0a,GPU-0b0b0b0b"}
    assert (
        said("ENV17", {"gpus": mixed, "environment": named})
        == said("CON13", {"gpus": mixed, "environment": named})
        == "pass"
    )
    assert said("ENV17", {"gpus": mixed, "environment": {"CUDA_VISIBLE_DEVICES": "0,1"}}) == "info"


@pytest.mark.parametrize(
    ("devices", "wanted"),
    [(["/dev/zram0"], "not-applicable"), (["/dev/zram0", "/dev/sda2"], "info"), (["/swap.img"], "info")],
)
def test_swap_in_compressed_memory_wants_high_values(devices: list[str], wanted: str) -> None:
    memory = {"swap_total_bytes": 8 * GIB, "swap_devices": devices}
    assert said("MEM07", {"memory": memory, "kernel": {"sysctls": {"vm.swappiness": "100"}}}) == wanted


@pytest.mark.parametrize(
    ("allowed", "wanted"),
    [([0, 1], "pass"), ([0, 2], "info"), ([0, 3], "no-fact"), ([0, 9], "no-fact"), ([2, 3, 0], "info")],
)
def test_a_core_of_unknown_kind_may_be_a_slow_one(allowed: list[int], wanted: str) -> None:
    kinds = ["performance", "performance", "efficiency", None]
    threads = [{"id": cpu, "kind": kind} for cpu, kind in enumerate(kinds)]
    rank = {"pid": 7, "gpus": [0], "allowed": allowed}
    assert (
        said("CPU15", {"cpu": {**BARE, "threads": threads}, "processes": [rank], "gpus": gpus({})}) == wanted
    )


def test_verdicts_of_the_cases_survive_a_file() -> None:
    """What is said of any bad machine goes through JSON unchanged."""
    for code, case in CASES.items():
        layer = {key: value for key, value in case.bad.items() if key not in ("h2d", "gaps")}
        for verdict in judge_machine(machine(layer)):
            assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict, code
