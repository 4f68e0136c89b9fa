"""GPUs from NVML answers, nvidia-smi XML, the driver's folder, AMD's tools and the bare PCI bus."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from wellfed.host import amd, nvidia_xml
from wellfed.host.assemble import assemble
from wellfed.host.gpu import read_gpu
from wellfed.host.nvml import QUERIES
from wellfed.host.nvml_answers import NVML_FIELDS
from wellfed.host.recorded import RecordedHost, host_of
from wellfed.model import Machine
from wellfed.model.devices import Gpu, GpuProcess

PCI = "/sys/bus/pci/devices"


def machine(host: RecordedHost) -> Machine:
    return assemble(read_gpu(host))


# --- NVML


def answers(**changes: Any) -> dict[str, Any]:
    """One H200's answers; a change replaces one."""
    return {
        "name": "NVIDIA H200",
        "uuid": "GPU-0",
        "serial": "123",
        "vbios": "96.00",
        "pci": {"bus_id": "00000000:0F:00.0", "device_id": 0x233510DE},
        "architecture": "Hopper",
        "compute_capability": [9, 0],
        "memory": {"total": 150754820096, "used": 1 << 20},
        "bar1": {"total": 1 << 38, "used": 0},
        "persistence": True,
        "ecc": [True, False],
        "ecc_uncorrected_volatile": 0,
        "ecc_uncorrected_aggregate": 2,
        "remapped_rows": [1, 2, 1, 0],
        "retired_pending": {"error": "NotSupported"},
        "mig": [False, True],
        "mig_devices": 0,
        "virtualization": "none",
        "compute_mode": "default",
        "clock_sm": 345,
        "clock_sm_max": 1980,
        "clock_sm_app": {"error": "Deprecated"},
        "clock_sm_app_default": 1980,
        "clock_mem": 3201,
        "clock_mem_max": 3201,
        "power_mw": 76543,
        "power_limit_mw": 600000,
        "power_default_mw": 700000,
        "power_range_mw": [200000, 700000],
        "temperature": 30,
        "temperature_slowdown": 87,
        "memory_temperature": {"error": "NoPermission"},
        "throttle": {"mask": 4, "names": ["sw_power_cap"]},
        "utilization": 0,
        "pcie_gen": 1,
        "pcie_gen_max": 5,
        "pcie_gen_device_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_replays": 0,
        "memory_affinity": [2],
        "cpu_affinity": [0b1010, 1],
        "nvlink_states": [True] * 17 + [False],
        "nvlink_version": 4,
        "nvlink_errors": {"replay": 1, "crc_data": 2},
        "fabric": {"state": "completed", "status": "success", "clique": 0},
        "c2c": False,
        "gsp": {"enabled": True, "version": "570.124.06"},
        "processes": [{"pid": 7, "name": "python3", "used_bytes": None}],
        **changes,
    }


def snapshot(*devices: dict[str, Any]) -> dict[str, Any]:
    system = {"driver_version": "570.124.06", "cuda_driver_version": 12080}
    return {"status": "ok", "detail": None, "system": system, "devices": list(devices)}


def test_every_field_has_a_question() -> None:
    assert {query for query, _ in NVML_FIELDS.values()} <= set(QUERIES)
    told_elsewhere = {"index", "vendor", "catalog", "driver", "mig_capable", "runtime_d3", "event_reason_us"}
    told_elsewhere |= {"compute_partition", "memory_partition"}
    assert set(NVML_FIELDS) | told_elsewhere == set(Gpu.__struct_fields__)


def test_nvml() -> None:
    found = machine(host_of({}, nvml=snapshot(answers())))
    assert found.gpus == (
        Gpu(
            index=0,
            vendor="nvidia",
            name="NVIDIA H200",
            catalog="h200-sxm-141",
            uuid="GPU-0",
            serial="123",
            address="0000:0f:00.0",
            device_id="10de:2335",
            architecture="Hopper",
            compute_capability="9.0",
            driver="570.124.06",
            vbios="96.00",
            memory_bytes=150754820096,
            memory_used_bytes=1 << 20,
            bar1_bytes=1 << 38,
            persistence=True,
            ecc=True,
            ecc_pending=False,
            ecc_uncorrected=0,
            ecc_uncorrected_aggregate=2,
            remap_pending=True,
            remap_failed=False,
            retired_pending=None,
            mig_capable=True,
            mig=False,
            mig_pending=True,
            mig_devices=0,
            virtualization="none",
            compute_mode="default",
            sm_mhz=345,
            sm_max_mhz=1980,
            sm_app_mhz=None,
            sm_app_default_mhz=1980,
            mem_mhz=3201,
            mem_max_mhz=3201,
            power_w=76.543,
            power_limit_w=600.0,
            power_default_w=700.0,
            power_max_w=700.0,
            temperature_c=30,
            temperature_slowdown_c=87,
            memory_temperature_c=None,
            throttle=("sw_power_cap",),
            utilization_pct=0,
            pcie_gen=1,
            pcie_gen_max=5,
            pcie_gen_device_max=5,
            pcie_width=16,
            pcie_width_max=16,
            pcie_replays=0,
            numa_node=1,
            cpu_affinity=(1, 3, 64),
            nvlinks_active=17,
            nvlinks_total=18,
            nvlink_version=4,
            nvlink_errors=3,
            fabric_state="completed",
            fabric_status="success",
            c2c=False,
            gsp_firmware="570.124.06",
            processes=found.gpus[0].processes,
        ),
    )
    assert found.gaps["gpus[0].retired_pending"].startswith("unsupported")
    assert found.gaps["gpus[0].sm_app_mhz"].startswith("unsupported")
    assert found.gaps["gpus[0].memory_temperature_c"].startswith("denied")
    assert found.gpus[0].processes == (GpuProcess(pid=7, name="python3"),)


def test_nvml_without_mig_or_fabric() -> None:
    changed = answers(mig={"error": "NotSupported"}, fabric={"state": "not supported", "status": "success"})
    (gpu,) = machine(host_of({}, nvml=snapshot(changed))).gpus
    assert (gpu.mig_capable, gpu.mig, gpu.fabric_state) == (False, None, None)


def test_a_driver_without_the_question_does_not_deny_mig() -> None:
    (gpu,) = machine(host_of({}, nvml=snapshot(answers(mig={"error": "FunctionNotFound"})))).gpus
    assert gpu.mig_capable is None


def test_a_lost_gpu_keeps_its_place() -> None:
    lost = dict.fromkeys(QUERIES, {"error": "GpuIsLost"})  # noqa: RUF024 - never changed
    found = machine(host_of({}, nvml=snapshot(answers(), lost, answers(uuid="GPU-2"))))
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-0", None, "GPU-2"]
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2]
    assert found.gaps["gpus[1].name"].startswith("error")


def test_locality_of_sysfs_where_nvml_has_none() -> None:
    files = {f"{PCI}/0000:0f:00.0/numa_node": "3", f"{PCI}/0000:0f:00.0/local_cpulist": "8-9"}
    changed = answers(memory_affinity={"error": "NotSupported"}, cpu_affinity={"error": "NotSupported"})
    (gpu,) = machine(host_of(files, nvml=snapshot(changed))).gpus
    assert (gpu.numa_node, gpu.cpu_affinity) == (3, (8, 9))


def test_no_node_is_not_node_0() -> None:
    files = {f"{PCI}/0000:0f:00.0/numa_node": "-1"}
    several = answers(memory_affinity=[0b11])
    found = machine(host_of(files, nvml=snapshot(several)))
    assert found.gpus[0].numa_node is None
    assert "gpus[0].numa_node" in found.gaps


@pytest.mark.parametrize(
    "odd",
    [
        {"name": 5},
        {"memory": []},
        {"memory": {"total": -1}},
        {"memory": {"total": 1 << 70}},
        {"cpu_affinity": [1 << 64]},
        {"cpu_affinity": "x"},
        {"cpu_affinity": [0] * 5000},
        {"pci": {"bus_id": "../../etc", "device_id": 0}},
        {"throttle": {"names": [1]}},
        {"processes": [{}]},
        {"nvlink_states": 5},
        {"nvlink_errors": [1]},
        {"power_mw": True},
        {"gsp": None},
        {"fabric": {"state": 7}},
        {"compute_capability": [9]},
    ],
)
def test_a_recorded_snapshot_is_not_trusted(odd: dict[str, Any]) -> None:
    found = machine(host_of({}, nvml=snapshot(answers(**odd))))
    assert len(found.gpus) == 1
    assert found.gpus[0].uuid == "GPU-0"


def test_a_process_of_the_wrong_type_costs_the_processes() -> None:
    changed = answers(processes=[{"pid": 1, "name": 5, "used_bytes": "x"}])
    found = machine(host_of({}, nvml=snapshot(changed)))
    assert found.gpus[0].processes is None
    assert found.gpus[0].name == "NVIDIA H200"


def test_a_broken_driver_is_told() -> None:
    broken = {"status": "error", "detail": "NVML does not start: LibRmVersionMismatch"}
    found = machine(host_of({}, nvml=broken))
    assert found.gpus == ()
    assert "LibRmVersionMismatch" in found.gaps["gpus"]


# --- nvidia-smi XML


def xml(*gpus: str, attached: int | None = None) -> str:
    count = len(gpus) if attached is None else attached
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        "<driver_version>535.54.03</driver_version>\n<cuda_version>12.2</cuda_version>\n"
        f"<attached_gpus>{count}</attached_gpus>\n{''.join(gpus)}</nvidia_smi_log>\n"
    )


def gpu_xml(name: str = "NVIDIA A100-SXM4-80GB", more: str = "") -> str:
    return (
        f'<gpu id="00000000:01:00.0">\n<product_name>{name}</product_name>\n'
        "<pci><pci_device_id>20B210DE</pci_device_id><pci_bus_id>00000000:01:00.0</pci_bus_id></pci>\n"
        f"<fb_memory_usage><total>81920 MiB</total><used>50 MiB</used></fb_memory_usage>\n{more}</gpu>\n"
    )


def of_xml(text: str, **commands: str) -> Machine:
    return machine(host_of({}, commands={"nvidia-smi-xml": text, **commands}))


def test_xml() -> None:
    found = of_xml(xml(gpu_xml(), gpu_xml("Never Heard Of 9000")))
    first, second = found.gpus
    assert (first.name, first.catalog, first.driver) == (
        "NVIDIA A100-SXM4-80GB",
        "a100-sxm4-80",
        "535.54.03",
    )
    assert (first.address, first.device_id) == ("0000:01:00.0", "10de:20b2")
    assert (first.memory_bytes, first.memory_used_bytes) == (81920 << 20, 50 << 20)
    assert second.name == "Never Heard Of 9000"
    assert first.numa_node is None
    assert found.gaps["gpus[0].numa_node"].startswith("missing")


def test_an_unknown_gpu_has_no_catalogue_entry() -> None:
    text = xml(gpu_xml("NVIDIA X9000").replace("20B210DE", "FFFF10DE"))
    found = of_xml(text)
    assert (found.gpus[0].name, found.gpus[0].catalog) == ("NVIDIA X9000", None)
    assert "NVIDIA X9000" in found.gaps["gpus[0].catalog"]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("N/A", "unsupported"),
        ("[N/A]", "unsupported"),
        ("[Not Supported]", "unsupported"),
        ("Requested functionality has been deprecated", "unsupported"),
        ("ERR!", "error"),
        ("[Unknown Error]", "error"),
        ("[GPU is lost]", "error"),
        ("[Insufficient Permissions]", "denied"),
        ("", "unsupported"),
        ("about 20 C", "error"),
    ],
)
def test_words_in_place_of_a_value(said: str, status: str) -> None:
    found = of_xml(xml(gpu_xml(more=f"<temperature><gpu_temp>{said}</gpu_temp></temperature>")))
    assert found.gpus[0].temperature_c is None
    assert found.facts["gpus[0].temperature_c"].status == status


@pytest.mark.parametrize(
    ("block", "field", "value"),
    [
        ("<power_readings><power_draw>30.5 W</power_draw></power_readings>", "power_w", 30.5),
        (
            "<gpu_power_readings><average_power_draw>8 W</average_power_draw>"
            "<instant_power_draw>9 W</instant_power_draw></gpu_power_readings>",
            "power_w",
            9.0,
        ),
        (
            "<power_readings><enforced_power_limit>60 W</enforced_power_limit></power_readings>",
            "power_limit_w",
            60.0,
        ),
        (
            "<clocks_throttle_reasons><clocks_throttle_reason_hw_slowdown>Active"
            "</clocks_throttle_reason_hw_slowdown></clocks_throttle_reasons>",
            "throttle",
            ("hw_slowdown",),
        ),
        (
            "<clocks_event_reasons><clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>"
            "<clocks_event_reason_new>Active</clocks_event_reason_new></clocks_event_reasons>",
            "throttle",
            ("new",),
        ),
        (
            "<ecc_errors><volatile><double_bit><total>3</total></double_bit></volatile></ecc_errors>",
            "ecc_uncorrected",
            3,
        ),
        (
            "<ecc_errors><aggregate><sram_uncorrectable_parity>1</sram_uncorrectable_parity>"
            "<sram_uncorrectable_secded>2</sram_uncorrectable_secded>"
            "<dram_uncorrectable>4</dram_uncorrectable><dram_correctable>8</dram_correctable>"
            "</aggregate></ecc_errors>",
            "ecc_uncorrected_aggregate",
            7,
        ),
        ("<mig_mode><current_mig>N/A</current_mig></mig_mode>", "mig_capable", False),
        ("<mig_mode><current_mig>Disabled</current_mig></mig_mode>", "mig_capable", True),
        (
            "<mig_mode><current_mig>Enabled</current_mig></mig_mode>"
            "<mig_devices><mig_device/><mig_device/></mig_devices>",
            "mig_devices",
            2,
        ),
        (
            "<gpu_virtualization_mode><virtualization_mode>Pass-Through</virtualization_mode>"
            "</gpu_virtualization_mode>",
            "virtualization",
            "passthrough",
        ),
        ("<compute_mode>Exclusive_Process</compute_mode>", "compute_mode", "exclusive_process"),
        (
            "<remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>",
            "remap_pending",
            True,
        ),
        ("<fabric><state>In Progress</state></fabric>", "fabric_state", "in progress"),
        (
            "<temperature><gpu_temp>42 C</gpu_temp><gpu_temp_tlimit>45 C</gpu_temp_tlimit>"
            "<gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold></temperature>",
            "temperature_slowdown_c",
            89,
        ),
        (
            "<temperature><gpu_temp>42 C</gpu_temp><gpu_temp_tlimit>N/A</gpu_temp_tlimit>"
            "<gpu_temp_slow_threshold>95 C</gpu_temp_slow_threshold></temperature>",
            "temperature_slowdown_c",
            95,
        ),
        (
            "<temperature><gpu_temp>42 C</gpu_temp><gpu_temp_tlimit>N/A</gpu_temp_tlimit>"
            "<gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold></temperature>",
            "temperature_slowdown_c",
            None,
        ),
        ("<c2c_mode>Enabled</c2c_mode>", "c2c", True),
    ],
)
def test_shapes_of_each_version(block: str, field: str, value: Any) -> None:
    assert getattr(of_xml(xml(gpu_xml(more=block))).gpus[0], field) == value


def test_compute_processes_only() -> None:
    def process(pid: int, kind: str, name: str, used: str) -> str:
        return (
            f"<process_info><pid>{pid}</pid><type>{kind}</type><process_name>{name}</process_name>"
            f"<used_memory>{used}</used_memory></process_info>"
        )

    block = "".join(
        (
            process(1, "G", "Xorg", "5 MiB"),
            process(2, "C", "/opt/x/python train.py", "160 MiB"),
            process(3, "C+G", "game", "N/A"),
        )
    )
    (gpu,) = of_xml(xml(gpu_xml(more=f"<processes>{block}</processes>"))).gpus
    assert gpu.processes is not None
    assert [(p.pid, p.name, p.used_bytes) for p in gpu.processes] == [
        (2, "python", 160 << 20),
        (3, "game", None),
    ]


def test_truncated_xml_gives_what_is_left() -> None:
    text = xml(*(gpu_xml(f"GPU {i}") for i in range(8)))
    cut = text[: text.index("GPU 5") + 40]
    found = of_xml(cut)
    assert [gpu.name for gpu in found.gpus] == [f"GPU {i}" for i in range(6)]
    assert "8 GPUs and holds 6" in found.gaps["gpus"]


def test_damage_in_the_middle_keeps_what_is_before() -> None:
    found = of_xml(xml(gpu_xml("A"), "<gpu></oops>", gpu_xml("B")))
    assert found.gpus[0].name == "A"
    assert "damaged XML" in found.gaps["gpus"]


BOMB = '<!DOCTYPE l [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><nvidia_smi_log>&b;</nvidia_smi_log>'


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        BOMB.replace("<nvidia", "<!-- --><nvidia"),
        "<nvidia_smi_log>" + "<a>" * 100_000,
        "<nvidia_smi_log>" + "<a/>" * 250_000 + "</nvidia_smi_log>",
        "<other_log><gpu><product_name>X</product_name></gpu></other_log>",
        "",
        "\0\0\0",
        "\ud800<nvidia_smi_log>",
        "not XML at all",
        "x" * (nvidia_xml.LIMIT_CHARS + 1),
    ],
    ids=["bomb", "comment", "deep", "wide", "other", "empty", "nul", "surrogate", "text", "long"],
)
def test_hostile_xml_is_refused(text: str) -> None:
    log = nvidia_xml.parse_log(text)
    assert log.gpus == ()
    assert log.note


def test_no_external_entity_is_loaded(tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    text = f'<!DOCTYPE nvidia_smi_log SYSTEM "file://{secret}">' + xml(gpu_xml("&x;"))
    assert "SECRET" not in repr(nvidia_xml.parse_log(text))


def test_matrix_and_links_complete_the_xml() -> None:
    topo = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-3\t1\t\tN/A\n"
    nvlink = "GPU 0: A (UUID: GPU-0)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n\t Link 2: <inactive>\n"
    (gpu,) = of_xml(xml(gpu_xml()), **{"nvidia-smi-topo": topo, "nvidia-smi-nvlink": nvlink}).gpus
    assert (gpu.cpu_affinity, gpu.numa_node) == ((0, 1, 2, 3), 1)
    assert (gpu.nvlinks_active, gpu.nvlinks_total) == (2, 3)


# --- the driver's folder, and the bare bus


def test_the_drivers_folder() -> None:
    information = (
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 301\nGPU UUID: \t GPU-????????-????\n"
        "Video BIOS: \t 96.00.30\nBus Location: \t 0000:19:00.0\nGPU Firmware: \t 535.104.05\n"
    )
    files = {
        "/proc/driver/nvidia/gpus/0000:19:00.0/information": information,
        "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19",
        f"{PCI}/0000:19:00.0/numa_node": "0",
        f"{PCI}/0000:19:00.0/device": "0x2330",
    }
    (gpu,) = machine(host_of(files)).gpus
    assert (gpu.name, gpu.uuid, gpu.vbios) == ("NVIDIA H100 80GB HBM3", None, "96.00.30")
    assert (gpu.address, gpu.numa_node, gpu.gsp_firmware) == ("0000:19:00.0", 0, "535.104.05")
    assert (gpu.catalog, gpu.device_id, gpu.driver) == ("h100-sxm-80", "10de:2330", "535.104.05")


def bus(*devices: tuple[str, str, str, str]) -> dict[str, str]:
    return {
        f"{PCI}/{address}/{name}": value
        for address, klass, vendor, device in devices
        for name, value in (("class", klass), ("vendor", vendor), ("device", device))
    }


def test_the_bus_counts_nameless_gpus() -> None:
    files = bus(
        ("0000:01:00.0", "0x030200", "0x10de", "0x2335"),
        ("0000:02:00.0", "0x120000", "0x1002", "0x74a1"),
        ("0000:03:00.0", "0x030000", "0x1a03", "0x2000"),
        ("0000:04:00.0", "0x020000", "0x15b3", "0x1021"),
        ("0000:05:00.1", "0x040300", "0x10de", "0x22ba"),
    )
    files |= {f"{PCI}/0000:02:00.0/mem_info_vram_total": str(192 << 30)}
    found = machine(host_of(files))
    assert [(gpu.vendor, gpu.name, gpu.device_id) for gpu in found.gpus] == [
        ("nvidia", None, "10de:2335"),
        ("amd", None, "1002:74a1"),
    ]
    assert found.gpus[0].catalog == "h200-sxm-141"
    assert found.gpus[1].memory_bytes == 192 << 30
    assert "gpus[0].name" in found.gaps


def test_no_gpu_is_known_only_with_a_bus() -> None:
    seen = machine(host_of(bus(("0000:04:00.0", "0x020000", "0x15b3", "0x1021"))))
    assert (seen.gpus, "gpus" in seen.gaps) == ((), False)
    blind = machine(host_of({}))
    assert (blind.gpus, "gpus" in blind.gaps) == ((), True)


# --- AMD


STATIC: dict[str, Any] = {
    "gpu": 0,
    "asic": {"market_name": "AMD Instinct MI300X", "device_id": "0x74a1", "asic_serial": "0xAB"},
    "bus": {
        "bdf": "0000:0C:00.0",
        "max_pcie_width": 16,
        "max_pcie_speed": {"value": 32, "unit": "GT/s"},
        "pcie_interface_version": "Gen 5",
    },
    "driver": {"name": "amdgpu", "version": "6.12.12"},
    "limit": {
        "ppt0": {
            "max_power_limit": {"value": 750, "unit": "W"},
            "socket_power_limit": {"value": 700, "unit": "W"},
        },
        "ppt1": "N/A",
        "slowdown_hotspot_temperature": {"value": 100, "unit": "C"},
    },
    "vram": {"type": "HBM3", "size": {"value": 196592, "unit": "MB"}},
    "numa": {"node": 1, "affinity": 0},
}
METRIC: dict[str, Any] = {
    "gpu": 0,
    "usage": {"gfx_activity": {"value": 42, "unit": "%"}},
    "power": {"socket_power": {"value": 141, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
    "clock": {
        "gfx_0": {"clk": {"value": 132, "unit": "MHz"}, "max_clk": {"value": 2100, "unit": "MHz"}},
        "mem_0": {"clk": {"value": 900, "unit": "MHz"}, "max_clk": {"value": 0, "unit": "MHz"}},
    },
    "temperature": {"edge": "N/A", "hotspot": {"value": 38, "unit": "C"}, "mem": {"value": 30, "unit": "C"}},
    "pcie": {"width": 16, "speed": {"value": 32, "unit": "GT/s"}, "replay_count": 0},
    "ecc": {"total_uncorrectable_count": 0},
    "mem_usage": {"used_vram": {"value": 285, "unit": "MB"}},
}
PROCESS: dict[str, Any] = {
    "gpu": 0,
    "process_list": [
        {
            "process_info": {
                "name": "python3",
                "pid": 42,
                "memory_usage": {"vram_mem": {"value": 9, "unit": "B"}},
            }
        },
        {"process_info": "No running processes detected"},
    ],
}


def of_amd(static: Any, metric: Any = None, process: Any = None) -> Machine:
    texts = {"amd-smi-static": static, "amd-smi-metric": metric, "amd-smi-process": process}
    commands = {
        name: document if isinstance(document, str) else json.dumps(document)
        for name, document in texts.items()
        if document is not None
    }
    return machine(host_of({}, commands=commands))


@pytest.mark.parametrize(
    "wrap", [lambda gpus: gpus, lambda gpus: {"gpu_data": gpus}], ids=["list", "gpu_data"]
)
def test_amd_smi(wrap: Callable[[list[Any]], Any]) -> None:
    text = "WARNING: user is not in the render group\n" + json.dumps(wrap([STATIC]))
    (gpu,) = of_amd(text, wrap([METRIC]), wrap([PROCESS])).gpus
    assert (gpu.vendor, gpu.name, gpu.catalog) == ("amd", "AMD Instinct MI300X", "mi300x")
    assert (gpu.address, gpu.device_id, gpu.driver) == ("0000:0c:00.0", "1002:74a1", "6.12.12")
    assert (gpu.memory_bytes, gpu.memory_used_bytes) == (196592 << 20, 285 << 20)
    assert (gpu.power_w, gpu.power_limit_w, gpu.power_max_w) == (141.0, 700.0, 750.0)
    assert (gpu.sm_mhz, gpu.sm_max_mhz, gpu.mem_mhz, gpu.mem_max_mhz) == (132, 2100, 900, None)
    assert (gpu.temperature_c, gpu.memory_temperature_c, gpu.temperature_slowdown_c) == (38, 30, 100)
    assert (gpu.pcie_gen, gpu.pcie_gen_device_max, gpu.pcie_width, gpu.pcie_width_max) == (5, 5, 16, 16)
    assert (gpu.numa_node, gpu.utilization_pct, gpu.ecc_uncorrected, gpu.throttle) == (1, 42, 0, ())
    assert gpu.processes is not None
    assert [(p.pid, p.name, p.used_bytes) for p in gpu.processes] == [(42, "python3", 9)]


def test_older_amd_smi() -> None:
    old = {
        "gpu": 1,
        "asic": {"market_name": "0x740c", "device_id": "0x740c"},
        "board": {"product_name": "Instinct MI210"},
        "bus": {"bdf": "0000:29:00.0", "pcie_interface_version": "Gen 4"},
        "limit": {"max_power": {"value": 300, "unit": "W"}, "current_power": {"value": 290, "unit": "W"}},
        "driver": {"driver_version": "6.1.5"},
        "vram": {"vram_size": 65520},
    }
    (gpu,) = of_amd([old]).gpus
    assert (gpu.name, gpu.driver, gpu.memory_bytes) == ("Instinct MI210", "6.1.5", 65520 << 20)
    assert (gpu.power_limit_w, gpu.power_max_w, gpu.pcie_gen_device_max) == (290.0, 300.0, 4)
    assert gpu.temperature_c is None


def test_amd_throttle_by_name() -> None:
    told = {"throttle": {"ppt_violation_status": "ACTIVE", "hbm_thermal_violation_status": "NOT ACTIVE"}}
    (gpu,) = of_amd([STATIC], [METRIC | told]).gpus
    assert gpu.throttle == ("ppt",)


def test_rocm_smi() -> None:
    card = {
        "Card series": "Arcturus GL-XL [Instinct MI100]",
        "Device ID": "0x738c",
        "PCI Bus": "0000:A3:00.0",
        "VRAM Total Memory (B)": "34342961152",
        "Average Graphics Package Power (W)": "36.0",
        "Max Graphics Package Power (W)": "290.0",
        "pcie clock level": "0 (16.0GT/s x16)",
        "sclk clock speed:": "(300Mhz)",
        "(Topology) Numa Affinity": "4294967295",
        "Serial Number": "N/A",
    }
    document = {
        "card10": card | {"Card series": "Last"},
        "card2": card,
        "system": {"Driver version": "6.3.6"},
    }
    found = machine(host_of({}, commands={"rocm-smi": json.dumps(document)}))
    first, last = found.gpus
    assert (first.name, last.name) == ("Arcturus GL-XL [Instinct MI100]", "Last")
    assert (first.address, first.device_id, first.driver) == ("0000:a3:00.0", "1002:738c", "6.3.6")
    assert (first.power_w, first.power_limit_w, first.sm_mhz) == (36.0, 290.0, 300)
    assert (first.pcie_gen, first.pcie_width, first.numa_node, first.serial) == (4, 16, None, None)


@pytest.mark.parametrize(
    "text", ["", "[", "[" * 100_000, "{}", "[1, 2]", '{"gpu_data": 5}', '[{"gpu": "x"}]', "No GPU", "\ud800["]
)
def test_amd_json_that_is_none(text: str) -> None:
    assert amd.smi_gpus(text, text, text) == ()
    assert amd.rocm_gpus(text) == ()
    assert machine(host_of({}, commands={"amd-smi-static": text, "rocm-smi": text})).gpus == ()


# --- damage


def mutated(text: str, seed: int) -> str:
    """One to three cuts, swaps, doublings or foreign characters."""
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 3)):
        at, size = rng.randrange(len(text) + 1), rng.choice((1, 2, 8, 64, 512))
        piece = text[at : at + size]
        text = rng.choice(
            (
                text[:at] + text[at + size :],
                text[:at] + piece * 3 + text[at + size :],
                text[:at],
                text[at:],
                text[:at]
                + rng.choice(("<", ">", "&", "\0", "\ud83d", "9" * 40, '"', "]", "-1", "é"))
                + text[at:],
                text[:at] + piece[::-1] + text[at + size :],
            )
        )
        text = text or "x"
    return text


FULL_XML = xml(
    gpu_xml(
        more="<clocks><sm_clock>210 MHz</sm_clock></clocks><mig_mode><current_mig>N/A</current_mig></mig_mode>"
    ),
    gpu_xml("B", more="<processes><process_info><pid>3</pid><type>C</type></process_info></processes>"),
)


@pytest.mark.parametrize("seed", range(200))
def test_mutated_xml_never_raises(seed: int) -> None:
    found = of_xml(mutated(FULL_XML, seed))
    assert all(gpu.vendor == "nvidia" for gpu in found.gpus)


@pytest.mark.parametrize("seed", range(200))
def test_mutated_amd_json_never_raises(seed: int) -> None:
    texts = [json.dumps([STATIC, STATIC | {"gpu": 1}]), json.dumps([METRIC]), json.dumps([PROCESS])]
    texts[seed % 3] = mutated(texts[seed % 3], seed)
    found = of_amd(*texts)
    assert all(gpu.vendor == "amd" for gpu in found.gpus)


@pytest.mark.parametrize("seed", range(200))
def test_mutated_rocm_json_never_raises(seed: int) -> None:
    card = {
        "Card series": "X [Instinct MI100]",
        "PCI Bus": "0000:A3:00.0",
        "pcie clock level": "0 (16.0GT/s x16)",
    }
    text = json.dumps({"card0": card, "card1": card, "system": {"Driver version": "6"}})
    machine(host_of({}, commands={"rocm-smi": mutated(text, seed)}))
