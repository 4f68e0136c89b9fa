"""Platforms that look like a broken H100 server and are not: racks of GB200, slices, guests, sandboxes, workstations.

None of them may get more than a note, and what cannot be judged there says so."""

from typing import Any

import pytest
from host_cases import CASES, GIB, machine
from test_quiet_machines import CLOUD_VM

from wellfed.check import INTENTS, judge_machine
from wellfed.host.door import COMMANDS
from wellfed.model import Machine, Verdict


def changed(**layers: Any) -> dict[str, Any]:
    """The cloud machine with some fields of a layer changed; a list takes the place of the old one."""
    tree = dict(CLOUD_VM)
    for layer, change in layers.items():
        old = tree.get(layer, {})
        tree[layer] = {**old, **change} if isinstance(change, dict) and isinstance(old, dict) else change
    return tree


def verdict(code: str, tree: dict[str, Any], intent: str = "training") -> Verdict:
    return next(v for v in judge_machine(machine(tree), intent=intent) if v.code == code)


H200 = CLOUD_VM["gpus"][0]
METAL = {"hypervisor": "none", "clocksource": "tsc", "flags": ["avx"], "smt": "on"}


def on_bus(number: int, **more: Any) -> dict[str, Any]:
    return {
        "address": f"0000:{number:02x}:00.0", "vendor": "0x10de", "class_code": "0x030200", "driver": "nvidia",
        "is_virtual": False, "parent": None, "local_cpus": list(range(8)), **more,
    }  # fmt: skip


def gb200_tray() -> dict[str, Any]:
    """Two Grace CPUs, four GPUs, their memory as nodes of its own; the fabric manager runs in the switch trays."""
    nodes = [{"id": i, "cpus": list(range(72 * i, 72 * i + 72)), "mem_bytes": 480 * GIB} for i in range(2)]
    nodes += [{"id": 2 + i, "cpus": [], "mem_bytes": 186 * GIB} for i in range(4)]
    distances = [[10, 40, 80, 80, 120, 120], [40, 10, 120, 120, 80, 80]]
    nodes = [
        {**node, "distances": distances[min(node["id"], 1)]} for node in nodes if node["id"] < 2
    ] + nodes[2:]
    four = [
        {
            **H200, "name": "NVIDIA GB200", "memory_bytes": 186 * GIB, "bar1_bytes": 256 * GIB, "virtualization": "none",
            "c2c": True, "fabric_state": "completed", "fabric_status": "success", "nvlinks_active": 18,
            "nvlinks_total": 18, "cpu_affinity": list(range(72 * (i // 2), 72 * (i // 2) + 72)), "numa_node": i // 2,
            "address": f"0000:{i + 8:02x}:00.0", "power_limit_w": 1200.0, "power_default_w": 1200.0, "index": i,
        }
        for i in range(4)
    ]  # fmt: skip
    return changed(
        cpu={
            **METAL, "arch": "aarch64", "vendor": "ARM", "flags": ["fp"], "logical": 144, "cores": 144, "packages": 2,
            "allowed": list(range(144)), "clocksource": "arch_sys_counter", "page_size_bytes": 65536,
            "smt": "notimplemented",
        },
        numa=nodes,
        gpus=four,
        pci=[on_bus(i + 8, aspm="L1", max_payload=128, extended_tags=None) for i in range(4)],
        p2p=[{"a": f"gpu{a}", "b": f"gpu{b}", "kind": "OK"} for a in range(4) for b in range(a + 1, 4)],
        software={"fabricmanager_running": False, "nccl": "2.30.4", "imex_running": True, "imex_channels": 1, "persistenced_running": True},
        kernel={"sysctls": {"kernel.numa_balancing": "0", "vm.swappiness": "10"}},
    )  # fmt: skip


def sliced() -> dict[str, Any]:
    """Two GPUs cut into instances of MIG."""
    two = [
        {**H200, "mig": True, "mig_pending": True, "mig_devices": 7, "utilization_pct": None, "index": i}
        for i in range(2)
    ]
    return changed(gpus=two, p2p=[{"a": "gpu0", "b": "gpu1", "kind": "NS"}])


def virtual_gpu() -> dict[str, Any]:
    """A part of a GPU that the host's driver hands out: no link, no clocks, no ECC, a small window."""
    gone = (
        "pcie_gen",
        "pcie_gen_max",
        "pcie_width",
        "pcie_width_max",
        "ecc",
        "power_limit_w",
        "nvlinks_active",
    )
    one = {
        **H200,
        "name": "GRID A100-20C",
        "virtualization": "vgpu",
        "bar1_bytes": 4 * GIB,
        **dict.fromkeys(gone),
    }
    return changed(gpus=[one, {**one, "index": 1}], p2p=[{"a": "gpu0", "b": "gpu1", "kind": "NS"}])


def passed_through() -> dict[str, Any]:
    """Eight GPUs in a guest that sees neither the switches nor a real tree of bridges."""
    eight = [
        {
            **H200,
            "index": i,
            "address": f"0000:{i + 5:02x}:00.0",
            "fabric_state": "completed",
            "fabric_status": "success",
        }
        for i in range(8)
    ]
    pairs = [{"a": f"gpu{a}", "b": f"gpu{b}", "kind": "CNS"} for a in range(8) for b in range(a + 1, 8)]
    bus = [
        on_bus(i + 5, aspm="L1", max_payload=128, extended_tags=False, max_read_request=128) for i in range(8)
    ]
    return changed(gpus=eight, p2p=pairs, pci=bus, software={"fabricmanager_running": False})


def wsl() -> dict[str, Any]:
    """A gaming GPU below Windows: no PCI device of NVIDIA, no kernel module, no /proc/driver."""
    gone = ("pcie_gen", "pcie_width", "cpu_affinity", "ecc", "ecc_pending", "numa_node", "persistence")
    one = {
        **H200,
        "name": "NVIDIA GeForce RTX 4090",
        "memory_bytes": 24 * GIB,
        "bar1_bytes": 32 * GIB,
        **dict.fromkeys(gone),
    }
    return changed(
        cpu={"hypervisor": "microsoft", "clocksource": "tsc"},
        gpus=[one],
        pci=[],
        seen=("pci", "rdma", "diagnostics"),
        kernel={
            "release": "5.15.153.1-microsoft-standard-WSL2",
            "modules": [],
            "xids": None,
            "active_services": [],
        },
    )


def rootless() -> dict[str, Any]:
    """A container whose root is a user of the host."""
    own = {
        "kind": "podman", "user_namespace": True, "capabilities": ["CAP_CHOWN", "CAP_SETUID"], "numa_calls": "EPERM",
        "proc_sys_writable": False, "sys_writable": False, "device_infiniband": False, "shm_bytes": 4 * GIB,
    }  # fmt: skip
    return changed(
        container=own, kernel={"xids": None}, limits={"memlock_bytes": {"soft": 8 << 20, "hard": 8 << 20}}
    )


def sandboxed() -> dict[str, Any]:
    """gVisor: a kernel of its own, that shows next to nothing of the machine."""
    tree = changed(
        container={"kind": "kubernetes", "shm_bytes": 8 * GIB, "capabilities": ["CAP_CHOWN"], "numa_calls": "ok"},
        kernel={
            "release": "4.4.0", "version": "#1 SMP Sun Jan 10 15:06:54 PST 2016", "modules": None, "xids": None,
            "active_services": None, "virtualization": None, "sysctls": {},
        },
    )  # fmt: skip
    return {**tree, "pci": [], "seen": ("rdma", "diagnostics")}


def workstation() -> dict[str, Any]:
    """Two gaming GPUs whose driver forbids peers, in a desktop that saves power."""
    two = [
        {**H200, "name": "NVIDIA GeForce RTX 4090", "memory_bytes": 24 * GIB, "bar1_bytes": 256 << 20, "mig": None,
         "mig_capable": False, "virtualization": "none", "nvlinks_active": 0, "nvlinks_total": 0, "ecc": False,
         "ecc_pending": False, "index": i, "persistence": True}
        for i in range(2)
    ]  # fmt: skip
    bus = [
        on_bus(
            i + 5,
            aspm="L1",
            power_control="auto",
            max_payload=256,
            max_payload_capable=256,
            extended_tags=True,
        )
        for i in range(2)
    ]
    return changed(cpu=METAL, gpus=two, pci=bus, p2p=[{"a": "gpu0", "b": "gpu1", "kind": "GNS"}])


PLATFORMS = {
    "GB200 tray": gb200_tray,
    "MIG": sliced,
    "vGPU": virtual_gpu,
    "passthrough": passed_through,
    "WSL2": wsl,
    "rootless": rootless,
    "gVisor": sandboxed,
    "workstation": workstation,
}


@pytest.mark.parametrize("intent", INTENTS)
@pytest.mark.parametrize("name", PLATFORMS)
def test_no_more_than_a_note(name: str, intent: str) -> None:
    found = [
        v
        for v in judge_machine(machine(PLATFORMS[name]()), intent=intent)
        if v.verdict == "finding" and v.severity != "info"
    ]
    assert [(v.code, v.severity, v.message) for v in found] == []


@pytest.mark.parametrize(
    ("name", "code", "reason", "says"),
    [
        ("GB200 tray", "NVL04", "not-applicable", "GB200"),
        ("GB200 tray", "NVL05", "not-applicable", "several machines"),
        ("GB200 tray", "PCIE04", "not-applicable", "no GPU hangs"),
        ("GB200 tray", "PCIE02", "not-applicable", "no GPU or fast"),
        ("MIG", "NVL06", "not-applicable", "MIG"),
        ("vGPU", "NVL06", "not-applicable", "host"),
        ("vGPU", "BIOS03", "not-applicable", "virtual GPU"),
        ("passthrough", "NVL04", "not-applicable", "NVSwitch"),
        ("passthrough", "PCIE02", "not-applicable", "host"),
        ("passthrough", "PCIE04", "not-applicable", "host"),
        ("passthrough", "BIOS08", "not-applicable", "host"),
        ("WSL2", "KRN02", "not-applicable", "PCI device"),
        ("rootless", "CON14", "not-applicable", "several machines"),
        ("rootless", "KRN03", "not-applicable", "container"),
        ("gVisor", "CON15", "not-applicable", "container"),
    ],
)
def test_what_cannot_be_judged_there_says_so(name: str, code: str, reason: str, says: str) -> None:
    found = verdict(code, PLATFORMS[name]())
    assert (found.verdict, found.reason) == ("not-judged", reason), found.message
    assert says in found.message


@pytest.mark.parametrize(("name", "code"), [("WSL2", "CON18"), ("rootless", "CON19"), ("gVisor", "CON20")])
def test_the_platform_is_named(name: str, code: str) -> None:
    found = verdict(code, PLATFORMS[name]())
    assert (found.verdict, found.severity) == ("finding", "info")


def test_peers_of_gaming_gpus_and_of_guests_are_a_note() -> None:
    for name in ("workstation", "passthrough"):
        found = verdict("NVL06", PLATFORMS[name]())
        assert (found.verdict, found.severity) == ("finding", "info"), name
    metal = passed_through()
    metal["cpu"] = {**metal["cpu"], **METAL}
    assert verdict("NVL06", metal).severity == "warning"


def test_a_fabric_without_its_manager_is_still_found() -> None:
    """What is left out for GB200 must not hide a board with switches (gpud#1106, #1151)."""
    switches = [on_bus(i, class_code="0x068000") for i in range(4)]
    board = changed(cpu=METAL, pci=[*CLOUD_VM["pci"], *switches], software={"fabricmanager_running": False})
    assert verdict("NVL04", board).severity == "error"


OF_THE_HOST = ("PCIE02", "PCIE03", "PCIE04", "PCIE05", "PCIE09", "BIOS08", "KRN01", "KRN05")


@pytest.mark.parametrize("code", OF_THE_HOST)
@pytest.mark.parametrize("hypervisor", ["kvm", "microsoft", "unnamed"])
def test_a_guest_is_not_blamed_for_its_hosts_bus(code: str, hypervisor: str) -> None:
    bad = CASES[code].bad
    tree = {**bad, "cpu": {**bad.get("cpu", {}), "hypervisor": hypervisor}}
    intents = ["benchmark" if code == "KRN05" else "training"]
    for intent in intents:
        found = verdict(code, tree, intent)
        assert (found.verdict, found.reason) == ("not-judged", "not-applicable"), found.message


def test_a_virtual_function_shows_no_ordering_bit() -> None:
    """In a guest the bit is not there to be seen, so that only the variable counts."""
    bad = CASES["PCIE07"].bad
    guest = {**bad, "cpu": {"hypervisor": "kvm"}}
    assert verdict("PCIE07", guest).verdict == "pass"
    asked = {**guest, "environment": {"NCCL_IB_PCI_RELAXED_ORDERING": "0"}}
    assert verdict("PCIE07", asked).verdict == "finding"
    assert verdict("PCIE07", {**bad, "cpu": {"vendor": "GenuineIntel"}}).reason == "not-applicable"


JOB = {"WORLD_SIZE": "72", "LOCAL_WORLD_SIZE": "4"}


def test_imex_is_asked_of_racks_only() -> None:
    without = {"software": {"imex_running": False, "imex_channels": 0}}
    rack = {**gb200_tray(), "environment": JOB}
    rack["software"] = {**rack["software"], **without["software"]}
    assert verdict("NVL05", rack).severity == "warning"
    # boards whose GPUs have no fabric beyond themselves, and jobs that do without
    apart = {**rack, "gpus": [{**gpu, "fabric_state": "not supported"} for gpu in rack["gpus"]]}
    assert verdict("NVL05", apart).reason == "not-applicable"
    assert (
        verdict("NVL05", {**rack, "environment": {**JOB, "NCCL_MNNVL_ENABLE": "0"}}).reason
        == "not-applicable"
    )
    assert verdict("NVL05", {**passed_through(), "environment": JOB, **without}).reason == "not-applicable"


def test_a_container_of_a_rack_needs_only_the_channel() -> None:
    pod = {**gb200_tray(), "environment": JOB}
    pod["container"] = {**pod["container"], "kind": "kubernetes"}
    pod["software"] = {**pod["software"], "imex_running": None}
    assert verdict("NVL05", pod).verdict == "pass"
    pod["software"] = {**pod["software"], "imex_channels": 0}
    assert verdict("NVL05", pod).verdict == "finding"


def test_a_pod_without_infiniband_is_right_where_it_needs_none() -> None:
    bad = CASES["CON14"].bad
    alone = {**bad, "environment": {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}}
    assert verdict("CON14", alone).reason == "not-applicable"
    assert verdict("CON14", {**bad, "environment": {"RANK": "0"}}).reason == "not-applicable"
    ethernet = {**bad, "pci": [{**bad["pci"][0], "class_code": "0x020000"}]}
    assert verdict("CON14", ethernet).reason == "not-applicable"
    without = {**bad, "environment": {**bad["environment"], "NCCL_IB_DISABLE": "1"}}
    assert verdict("CON14", without).reason == "not-applicable"


def test_profilers_of_root_need_no_permission() -> None:
    bad = CASES["KRN09"].bad
    root = {**bad, "container": {"capabilities": ["CAP_SYS_ADMIN"]}}
    assert verdict("KRN09", root, "benchmark").verdict == "pass"
    assert verdict("KRN09", bad, "training").reason == "intent"


@pytest.mark.parametrize(
    ("own", "port", "able", "says"),
    [
        (256, 256, 512, None),
        (512, 512, 512, None),
        (128, 128, 128, None),
        (128, 128, 256, "can take 256"),
        (128, 256, 256, "its port's are of 256"),
        (512, 256, 512, "its port's are of 256"),
    ],
)
def test_payloads(own: int, port: int, able: int, says: str | None) -> None:
    ends = CASES["PCIE04"].good["pci"]
    bus = [
        {**end, "max_payload": size, "max_payload_capable": able}
        for end, size in zip(ends, (port, own), strict=True)
    ]
    found = verdict("PCIE04", {"pci": bus})
    assert found.verdict == ("finding" if says else "pass"), found.message
    assert not says or says in found.message


def test_a_small_adapter_and_a_bridge_are_not_asked_for_payloads() -> None:
    bus = CASES["PCIE04"].bad["pci"]
    adapter = {
        **bus[1],
        "class_code": "0x020000",
        "vendor": "0x15b3",
        "is_virtual": True,
        "address": "0000:77:00.0",
    }
    found = verdict("PCIE04", {"pci": [bus[0], adapter]})
    assert found.reason == "not-applicable"


def test_tags_that_a_gpu_has_not_got_are_not_missed() -> None:
    """NVIDIA's GPUs are not asked for ten-bit tags: only AMD's guide names them (nvbandwidth#53)."""
    amd = CASES["BIOS08"].good["pci"][0]
    nvidia = {**amd, "vendor": "0x10de", "class_code": "0x030200", "ten_bit_tags": False}
    assert verdict("BIOS08", {"pci": [nvidia]}).verdict == "pass"
    assert verdict("BIOS08", {"pci": [{**amd, "ten_bit_tags": None}]}).verdict == "not-judged"
    assert verdict("BIOS08", {"pci": [{**amd, "speed_max_gts": 8.0, "ten_bit_tags": None}]}).verdict == "pass"


def test_one_matrix_is_asked_of_nvidia_smi_and_no_pair_by_number() -> None:
    """`nvidia-smi topo -m -i N` is refused by many drivers (cfregly#8)."""
    asked = {entry.argv for entry in COMMANDS.values() if "topo" in entry.argv}
    assert asked == {("nvidia-smi", "topo", "-m"), ("nvidia-smi", "topo", "-p2p", "r")}


def test_the_platforms_are_whole_machines() -> None:
    """A machine of which nothing is known would be quiet too."""
    for name, make in PLATFORMS.items():
        one = machine(make())
        assert isinstance(one, Machine) and one.gpus, name
        passes = [v for v in judge_machine(one) if v.verdict == "pass"]
        assert len(passes) >= 15, (name, len(passes))
