"""Every host check finds its fault, passes a sound machine, and judges neither when it cannot see."""

import msgspec
import pytest
from host_cases import CASES, GPU_ON_BUS, H200, PORT, TWO_NODES, ceilings, gpus, machine, ports

from wellfed.check import INTENTS, host_codes, judge_machine, manual
from wellfed.check.evaluate import _steps as steps
from wellfed.check.expression import OPEN_COLLECTIONS
from wellfed.model import Fact, Machine, Verdict


def first_intent(code: str) -> str:
    """Training, or the first intent that the check is for."""
    return (manual(code).intents or INTENTS)[0]


def judge(code: str, layer: dict, intent: str = "") -> Verdict:
    intent = intent or first_intent(code)
    layer = dict(layer)
    measured = ceilings(layer)
    layer.pop("h2d", None)
    gaps = layer.pop("gaps", {})
    one = msgspec.structs.replace(machine(layer), gaps=gaps)
    return next(v for v in judge_machine(one, ceilings=measured, intent=intent) if v.code == code)


def test_every_check_has_its_cases() -> None:
    assert set(CASES) == set(host_codes())


@pytest.mark.parametrize("code", CASES)
def test_the_bad_machine_is_found_out(code: str) -> None:
    verdict = judge(code, CASES[code].bad)
    assert (verdict.verdict, verdict.severity) == ("finding", CASES[code].severity), verdict.message
    assert verdict.evidence and verdict.remedy and verdict.sources and verdict.message
    assert "?" not in verdict.message or code in ("NUMA01", "CPU05"), verdict.message
    assert verdict.risk is not None and verdict.gain is not None


@pytest.mark.parametrize("code", CASES)
def test_the_good_machine_passes(code: str) -> None:
    verdict = judge(code, CASES[code].good)
    assert verdict.verdict == "pass", f"{verdict.reason}: {verdict.message}"
    assert verdict.message and verdict.evidence


@pytest.mark.parametrize("code", CASES)
def test_without_what_it_looks_at_the_good_machine_is_not_judged(code: str) -> None:
    """The facts that carry the pass are taken away; what decides whether the check applies stays."""
    layer = dict(CASES[code].good)
    measured = ceilings(layer)
    layer.pop("h2d", None)
    good = machine(layer)
    intent = first_intent(code)
    before = next(v for v in judge_machine(good, ceilings=measured, intent=intent) if v.code == code)
    blind = msgspec.to_builtins(good)
    for evidence in before.evidence:
        take_away(blind, steps(evidence.at or ""))
    unseen = msgspec.convert(blind, Machine)
    after = next(v for v in judge_machine(unseen, ceilings=measured, intent=intent) if v.code == code)
    assert after.verdict == "not-judged" and after.reason, after.message


def take_away(node: dict, way: list) -> None:
    """Make the value at a path unknown: None, or an empty collection that nobody looked at."""
    *path, last = way
    if way[0] == "environment":
        node["environment"].clear()
        return
    if way[0] == "mounts" and last == "options":
        node["mounts"] = []  # a mount is seen with its options or not at all
        return
    for step in path:
        node = node[step]
    if path[-1:] in (
        ["sysctls"],
        ["tools"],
        ["events"],
        ["config"],
        ["mitigations"],
        ["counters"],
        ["features"],
        ["env_files"],
    ):
        node.pop(last, None)
    elif ".".join(str(step) for step in way) in OPEN_COLLECTIONS:
        node[last] = type(node[last])()
    else:
        node[last] = [] if not path else None  # a collection of the machine


@pytest.mark.parametrize("code", CASES)
def test_of_an_unseen_machine_nothing_is_judged(code: str) -> None:
    verdict = next(v for v in judge_machine(Machine()) if v.code == code)
    assert verdict.verdict == "not-judged"
    assert verdict.reason and verdict.message


# -- where a rule must stay silent, and why it says so -----------------------------------------------------

SILENT: list[tuple[str, dict, str, str]] = [
    ("CPU01", {"cpu": {"hypervisor": "kvm", "governors": ["powersave"]}}, "not-applicable", "hypervisor"),
    ("CPU07", {"cpu": {"idle_driver": "haltpoll", "idle_states": []}}, "not-applicable", "haltpoll"),
    ("CPU16", {"cpu": {"offline": [1], "smt": "off"}}, "not-applicable", "hyper-threads"),
    ("CPU16", {"cpu": {"hypervisor": "kvm", "offline": [1], "smt": "on"}}, "not-applicable", "virtual"),
    ("BIOS01", {"cpu": {"packages": 2, "flags": ["sse2"], "offline": []}, "numa": TWO_NODES[:1]}, "not-applicable", "bus"),
    ("BIOS03", {"gpus": [{"name": "Tesla T4", "bar1_bytes": 1, "virtualization": "none"}]}, "not-applicable", "window"),
    ("BIOS03", {"gpus": gpus({"bar1_bytes": 1, "virtualization": "vgpu"})}, "not-applicable", "virtual GPU"),
    ("NUMA01", {"numa": TWO_NODES[:1], "gpus": gpus({"cpu_affinity": [0]})}, "not-applicable", "one NUMA node"),
    ("KRN01", {"cpu": {"hypervisor": "kvm"}, "kernel": {"iommu_groups": 1}}, "not-applicable", "virtual"),
    ("KRN01", {"kernel": {"iommu_groups": 0, "iommu_types": []}}, "not-applicable", "off"),
    ("PCIE05", {"cpu": {"hypervisor": "kvm"}, "gpus": gpus({}, {})}, "not-applicable", "virtual"),
    ("PCIE01", {"gpus": gpus({"pcie_width": 16, "pcie_width_max": 16, "pcie_gen": 1, "pcie_gen_max": 5, "utilization_pct": 0})}, "idle", "under load"),
    ("GPU01", {"container": {"kind": "docker"}, "pci": [GPU_ON_BUS], "gpus": gpus({})}, "not-applicable", "container"),
    ("GPU02", {"gpus": gpus({"mig": True, "persistence": False})}, "not-applicable", "MIG"),
    ("GPU08", {"gpus": [{"name": "NVIDIA A10G", "ecc": False}]}, "not-applicable", "HBM"),
    ("GPU14", {"gpus": gpus({"mig_capable": False, "mig": None})}, "not-applicable", "MIG"),
    ("GPU24", {"gpus": gpus({})}, "not-measured", "measured"),
    ("NVL01", {"gpus": gpus({"nvlinks_active": 0, "nvlinks_total": 18})}, "not-applicable", "NVLink"),
    ("NVL03", {"gpus": gpus({"fabric_state": "in progress"})}, "not-applicable", "single GPU"),
    ("NVL04", {"pci": [GPU_ON_BUS]}, "not-applicable", "GB200"),
    ("DRV01", {"seen": ("gpus",)}, "not-applicable", "no NVIDIA GPU"),
    ("GPU12", {"seen": ("gpus",), "kernel": {"xids": []}}, "not-applicable", "no GPU"),
    ("STO05", {"cpu": {"hypervisor": "kvm"}, "disks": [{"name": "vda", "is_virtual": False, "rotational": True}]}, "not-applicable", "virtual"),
    ("LIM01", {"seen": ("rdma",), "limits": {"memlock_bytes": {"soft": 65536, "hard": 65536}}}, "not-applicable", "RDMA"),
    ("CON07", {"container": {"shm_bytes": 64 << 20}}, "not-applicable", "half"),
    ("RDMA01", {"seen": ("rdma",)}, "not-applicable", "no RDMA"),
    ("STO12", {"mounts": [{"path": "/boot", "fs": "ext4", "options": ["rw"], "size_bytes": 9, "free_bytes": 0}]}, "not-applicable", "writable"),
    ("NET01", {"nics": [{"name": "lo", "is_physical": False, "state": "unknown", "mtu": 1500}]}, "not-applicable", "physical"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "layer", "reason", "says"), SILENT, ids=[f"{c[0]}-{c[3]}" for c in SILENT])
def test_what_does_not_apply_is_said_not_failed(code: str, layer: dict, reason: str, says: str) -> None:
    verdict = judge(code, layer)
    assert (verdict.verdict, verdict.reason) == ("not-judged", reason), verdict.message
    assert says in verdict.message


@pytest.mark.parametrize(
    ("code", "intent", "state"),
    [
        ("MEM01", "latency", "not-judged"),
        ("MEM01", "throughput", "finding"),
        ("IRQ07", "latency", "not-judged"),
        ("STO03", "latency", "not-judged"),
    ],
)
def test_intents_decide_what_matters(code: str, intent: str, state: str) -> None:
    verdict = judge(code, CASES[code].bad, intent)
    assert verdict.verdict == state
    assert state == "finding" or verdict.reason == "intent"


def test_an_intent_can_have_its_own_limit() -> None:
    idle = {
        "cpu": {
            "idle_driver": "acpi_idle",
            "idle_states": [{"name": "C2", "latency_us": 50, "disabled": False}],
        }
    }
    assert judge("CPU07", idle).verdict == "pass"
    assert judge("CPU07", idle, "latency").verdict == "finding"


def test_severity_follows_what_is_at_stake() -> None:
    small = gpus({"bar1_bytes": 256 << 20, "virtualization": "none"})
    assert judge("BIOS03", {"gpus": small, "seen": ("rdma",)}).severity == "info"
    assert judge("BIOS03", {"gpus": small}).severity == "info"
    assert judge("BIOS03", {"gpus": small, "rdma": [PORT]}).severity == "warning"
    assert judge("GPU10", {"gpus": gpus({"remap_pending": True, "remap_failed": True})}).severity == "error"
    assert judge("MEM02", CASES["MEM02"].bad, "latency").severity == "warning"
    bridged = {"name": "NVIDIA A100-PCIE-40GB", "nvlinks_active": 4, "nvlinks_total": 12}
    assert judge("NVL01", {"gpus": gpus(bridged)}).severity == "info"
    cloud = {"name": "NVIDIA A10G", "pcie_width": 8, "pcie_width_max": 16}
    assert judge("PCIE01", {"gpus": gpus(cloud)}).severity == "info"
    assert judge("PCIE01", {"gpus": gpus({**cloud, "pcie_width": 4})}).severity == "error"
    nvl = {"name": "NVIDIA H100 NVL", "nvlinks_active": 6, "nvlinks_total": 18}
    assert judge("NVL01", {"gpus": gpus(nvl)}).severity == "info"


# -- the checks that think ---------------------------------------------------------------------------------


def test_a_narrow_link_without_nvml_is_seen_on_the_bus() -> None:
    port = {"address": "0000:0e:00.0", "class_code": "0x060400", "width": 8, "width_max": 8}
    device = {**GPU_ON_BUS, "parent": "0000:0e:00.0", "width": 8, "width_max": 16}
    gpu = gpus({"address": "0000:0f:00.0"})
    wired_x8 = judge("PCIE01", {"gpus": gpu, "pci": [port, device]})
    assert (wired_x8.verdict, wired_x8.reason) == ("not-judged", "no-fact"), (
        "the port has 8 lanes; speed unknown"
    )
    lost = judge("PCIE01", {"gpus": gpu, "pci": [{**port, "width_max": 16}, device]})
    assert (lost.verdict, lost.severity) == ("finding", "error")
    assert "x8 of x16" in lost.message and {e.at for e in lost.evidence} >= {
        "pci[1].width",
        "pci[1].width_max",
    }
    unseen_port = judge("PCIE01", {"gpus": gpu, "pci": [device]})
    assert unseen_port.verdict == "not-judged"


def test_a_slow_generation_counts_under_load_only() -> None:
    link = {"pcie_width": 16, "pcie_width_max": 16, "pcie_gen": 3, "pcie_gen_max": 5}
    busy = judge("PCIE01", {"gpus": gpus({**link, "utilization_pct": 97})})
    assert (busy.verdict, busy.severity) == ("finding", "warning") and "Gen3 of Gen5" in busy.message
    assert judge("PCIE01", {"gpus": gpus(link)}).reason == "no-fact"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[10, 20], [21, 10]], "one way"),
        ([[10, 5], [5, 10]], "no distance"),
        ([[11, 20], [20, 10]], "itself"),
        ([[10, 10], [10, 10]], "no distance"),
        ([[10, 21], None], None),
        ([[10, 21, 21], [21, 10, 21]], None),
    ],
)
def test_numa_distances(rows: list, says: str | None) -> None:
    nodes = [{**node, "distances": row} for node, row in zip(TWO_NODES, rows, strict=True)]
    verdict = judge("NUMA07", {"numa": nodes})
    assert verdict.verdict == ("finding" if says else "not-judged")
    assert not says or says in verdict.message


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("NVRM: Xid (PCI:0000:0f:00): 48, pid=7, DBE", "error"),
        ("[  9.1] NVRM: Xid (0000:0f:00): 94, Contained", "warning"),
        ("NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper", "warning"),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal", None),
        ("NVRM: Xid (PCI:0000:48:00): 13, Graphics Exception on 79", None),
    ],
)
def test_xid_lines(line: str, severity: str | None) -> None:
    verdict = judge("GPU12", {"gpus": gpus({}), "kernel": {"xids": [line, line]}})
    assert verdict.verdict == ("finding" if severity else "pass")
    assert severity is None or (verdict.severity == severity and "(2x)" in verdict.message)


def test_copies_are_judged_by_the_link_they_go_over() -> None:
    def said(best: float, **link: object) -> tuple[str, str | None]:
        verdict = judge("GPU24", {"gpus": gpus(link), "h2d": best})
        return verdict.verdict, verdict.reason

    assert said(24.0, pcie_gen_max=4, pcie_width_max=16) == ("pass", None)
    assert said(24.0, pcie_gen_max=5, pcie_width_max=8) == ("pass", None)
    assert said(120.0, c2c=True) == ("finding", None)
    assert said(12.0, pcie_gen_max=3, pcie_width_max=16) == ("not-judged", "no-fact")
    assert said(12.0) == ("not-judged", "no-fact")


@pytest.mark.parametrize(
    ("changes", "severity", "says"),
    [
        (({"state": "INIT"},), "error", "subnet manager"),
        (({"state": "DOWN", "physical_state": "Polling"},), "info", "Polling"),
        (
            ({"state": "ACTIVE", "rate_gbps": 400.0}, {"state": "DOWN", "physical_state": "Disabled"}),
            "warning",
            "DOWN",
        ),
        (
            (
                {"state": "ACTIVE", "rate_gbps": 400.0},
                {"state": "ACTIVE", "rate_gbps": 100.0, "board": "OTHER"},
            ),
            None,
            "active",
        ),
        (({"state": "ACTIVE", "rate_gbps": 400.0}, {"state": "ACTIVE"}), "", "could not see"),
        (({"state": None},), "", "not looked at"),
    ],
)
def test_rdma_ports(changes: tuple, severity: str | None, says: str) -> None:
    verdict = judge("RDMA01", {"rdma": ports(*changes)})
    expected = {None: "pass", "": "not-judged"}.get(severity, "finding")
    assert verdict.verdict == expected, verdict.message
    assert not severity or verdict.severity == severity
    assert says in verdict.message or expected == "not-judged"


def test_a_left_over_nccl_setting_hurts_where_there_is_something_to_hurt() -> None:
    blocked = {"environment": {"NCCL_IB_DISABLE": "1"}}
    assert judge("ENV11", {**blocked, "gpus": gpus({})}).severity == "info"
    assert judge("ENV11", {**blocked, "rdma": [PORT]}).severity == "warning"
    assert judge("ENV11", {"environment": {"NCCL_ALGO": "Ring"}, "gpus": gpus({}, {})}).severity == "info"
    hidden = {"environment": {"NCCL_P2P_DISABLE": "[redacted]"}, "software": {"nccl_config": []}}
    assert judge("ENV11", hidden).verdict == "not-judged"
    named = {"environment": {"RANK": "0"}, "software": {"nccl_config": ["NCCL_P2P_DISABLE"]}}
    assert "/etc/nccl.conf" in judge("ENV11", named).message


def test_no_configuration_file_of_nccl_is_an_answer() -> None:
    one = machine({"environment": {"RANK": "0"}})
    facts = {
        "software.nccl_config": Fact(key="software.nccl_config", source="/etc/nccl.conf", status="missing")
    }
    verdict = next(v for v in judge_machine(msgspec.structs.replace(one, facts=facts)) if v.code == "ENV11")
    assert verdict.verdict == "pass"


NEW = {
    "driver": "580.95.05",
    "nccl": "2.28.3",
    "torch": "2.8.0",
    "torch_cuda": "12.9",
    "cudnn": "9.10.2",
    "packages": [],
}


@pytest.mark.parametrize(
    ("software", "gpu", "state"),
    [
        ({**NEW, "driver": "525.105.17"}, "NVIDIA H200", "pass"),
        ({**NEW, "torch_cuda": "12.1"}, "NVIDIA H200", "finding"),
        ({**NEW, "cudnn": "8.0.5"}, "NVIDIA H200", "finding"),
        ({**NEW, "packages": [{"name": "flash_attn", "version": "2.8.3"}]}, "NVIDIA H200", "finding"),
        ({**NEW, "packages": [{"name": "flash_attn", "version": "2.8.3"}]}, "NVIDIA A100", "pass"),
        ({**NEW, "packages": [{"name": "flash_attn", "version": "2.7.4.post1"}]}, "NVIDIA H200", "pass"),
        ({**NEW, "packages": None}, "NVIDIA H200", "not-judged"),
        ({"driver": "525.60.13"}, "NVIDIA H200", "finding"),
        ({"driver": "580.95.05", "nccl": "2.16.2"}, "NVIDIA A40", "finding"),
        ({**NEW, "nccl": "2.16.2"}, "NVIDIA H200", "pass"),
        ({"driver": "580.95.05", "nccl": "2.16.2"}, None, "not-judged"),
        ({"driver": "580.95.05"}, "NVIDIA H200", "not-judged"),
        ({"driver": "rolling", "nccl": "2.28.9"}, "NVIDIA H200", "not-judged"),
    ],
)
def test_known_bad_versions(software: dict, gpu: str | None, state: str) -> None:
    layer = {"software": software, "gpus": [{**H200, "name": gpu}]}
    assert judge("SW03", layer).verdict == state


def test_a_driver_that_does_not_answer_explains_the_missing_gpus() -> None:
    gap = "error: `NVML` (NVML does not start: DriverNotLoaded)"
    verdict = judge("DRV01", {"pci": [GPU_ON_BUS], "gaps": {"gpus": gap}})
    assert verdict.verdict == "finding" and "not loaded" in verdict.message
    assert judge("DRV01", {"gaps": {"gpus": gap}, "pci": []}).verdict == "not-judged"
    missing = {"gpus": "missing: `NVML` (libnvidia-ml.so.1 is not on this machine)"}
    assert judge("DRV01", {"pci": [GPU_ON_BUS], "gaps": missing}).verdict == "not-judged"
