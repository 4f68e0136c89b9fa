"""NVML through a stand-in for pynvml: every question answered, each way to fail, old and new versions."""

import ctypes
import json
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from wellfed.host import nvml

CODES = {
    "InvalidArgument": 2,
    "NotSupported": 3,
    "NoPermission": 4,
    "NotFound": 6,
    "DriverNotLoaded": 9,
    "LibraryNotFound": 12,
    "FunctionNotFound": 13,
    "GpuIsLost": 15,
    "CorruptedInforom": 14,
    "LibRmVersionMismatch": 18,
    "Unknown": 999,
}


class NVMLError(Exception):
    def __new__(cls, value: int) -> "NVMLError":
        if cls is NVMLError:
            names = {code: name for name, code in CODES.items()}
            cls = type(f"NVMLError_{names[value]}", (NVMLError,), {}) if value in names else NVMLError
        error = Exception.__new__(cls)
        error.value = value  # type: ignore[attr-defined]
        return error


def failure(name: str) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise NVMLError(CODES[name])

    return fail


def struct(**fields: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**fields)


def fabric_info() -> Any:
    class Info(ctypes.Structure):
        _fields_ = [
            ("status", ctypes.c_uint),
            ("cliqueId", ctypes.c_uint),
            ("state", ctypes.c_ubyte),
            ("healthMask", ctypes.c_uint),
        ]

    return Info()


def fill_fabric(_: Any, reference: Any) -> None:
    reference._obj.state, reference._obj.healthMask = 3, 2


def profiles_info() -> Any:
    class Mask(ctypes.Structure):
        _fields_ = [("mask", ctypes.c_uint * 8)]

    class Info(ctypes.Structure):
        _fields_ = [("requestedProfilesMask", Mask)]

    return Info()


def fill_profiles(_: Any, reference: Any) -> None:
    reference._obj.requestedProfilesMask.mask[0] = 0b10
    reference._obj.requestedProfilesMask.mask[1] = 1


def link_state(_: Any, link: int) -> int:
    if link >= 18:
        raise NVMLError(CODES["InvalidArgument"])
    return int(link != 5)


def mig_handle(_: Any, index: int) -> str:
    if index != 1:
        raise NVMLError(CODES["NotFound"])
    return "mig"


def fake(**changes: Any) -> types.ModuleType:
    """A pynvml for one H200 with one MIG device, one link down and one process; `changes` replace calls, None
    removes one as an older pynvml lacks it."""
    calls: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "570.124.06",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
        "nvmlSystemGetNVMLVersion": lambda: b"12.570.124.06",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda h: b"NVIDIA H200",
        "nvmlDeviceGetUUID": lambda h: "GPU-0",
        "nvmlDeviceGetSerial": lambda h: "1234",
        "nvmlDeviceGetVbiosVersion": lambda h: "96.00.BC.00.01",
        "nvmlDeviceGetMinorNumber": lambda h: 0,
        "nvmlDeviceGetPciInfo": lambda h: struct(
            busId=b"00000000:0F:00.0", pciDeviceId=0x233510DE, pciSubSystemId=0x18BE10DE
        ),
        "nvmlDeviceGetArchitecture": lambda h: 9,
        "nvmlDeviceGetCudaComputeCapability": lambda h: (9, 0),
        "nvmlMemory_v2": 0x02000028,
        "nvmlDeviceGetMemoryInfo": lambda h, version=None: struct(
            total=150754820096, used=500, free=150754819596, **({"reserved": 7} if version else {})
        ),
        "nvmlDeviceGetBAR1MemoryInfo": lambda h: struct(bar1Total=1 << 38, bar1Used=5),
        "nvmlDeviceGetPersistenceMode": lambda h: 1,
        "nvmlDeviceGetEccMode": lambda h: [1, 0],
        "nvmlDeviceGetTotalEccErrors": lambda h, kind, counter: 10 * kind + counter,
        "nvmlDeviceGetRemappedRows": lambda h: (0, 1, 0, 0),
        "nvmlDeviceGetRetiredPagesPendingStatus": lambda h: 0,
        "nvmlDeviceGetMigMode": lambda h: [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": lambda h: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": mig_handle,
        "nvmlDeviceGetVirtualizationMode": lambda h: 1,
        "nvmlDeviceGetComputeMode": lambda h: 3,
        "nvmlDeviceGetClockInfo": lambda h, kind: {1: 345, 2: 3201}[kind],
        "nvmlDeviceGetMaxClockInfo": lambda h, kind: {1: 1980, 2: 3201}[kind],
        "nvmlDeviceGetApplicationsClock": lambda h, kind: 1500,
        "nvmlDeviceGetDefaultApplicationsClock": lambda h, kind: 1980,
        "nvmlDeviceGetPowerUsage": lambda h: 76543,
        "nvmlDeviceGetEnforcedPowerLimit": lambda h: 700000,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda h: 700000,
        "nvmlDeviceGetPowerManagementLimitConstraints": lambda h: [200000, 700000],
        "nvmlDeviceGetTemperatureV": lambda h, sensor: 30,
        "nvmlDeviceGetTemperatureThreshold": lambda h, kind: 87,
        "NVML_FI_DEV_MEMORY_TEMP": 82,
        "nvmlDeviceGetFieldValues": lambda h, ids: [
            struct(nvmlReturn=0, valueType=1, value=struct(uiVal=41, dVal=0.5))
        ],
        "nvmlDeviceGetCurrentClocksEventReasons": lambda h: 0x44,
        "nvmlDeviceGetUtilizationRates": lambda h: struct(gpu=12, memory=3),
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda h: 1,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda h: 5,
        "nvmlDeviceGetGpuMaxPcieLinkGeneration": lambda h: 5,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda h: 16,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda h: 16,
        "nvmlDeviceGetPcieReplayCounter": lambda h: 0,
        "nvmlDeviceGetNumaNodeId": failure("NotSupported"),
        "nvmlDeviceGetMemoryAffinity": lambda h, size, scope: [2] + [0] * (size - 1),
        "nvmlDeviceGetCpuAffinityWithinScope": lambda h, size, scope: [0xFF, 1 << 63] + [0] * (size - 2),
        "nvmlDeviceGetNvLinkState": link_state,
        "nvmlDeviceGetNvLinkVersion": lambda h, link: 6,
        "nvmlDeviceGetNvLinkErrorCounter": lambda h, link, counter: counter,
        "c_nvmlGpuFabricInfo_v2_t": fabric_info,
        "nvmlDeviceGetGpuFabricInfoV": fill_fabric,
        "nvmlDeviceGetC2cModeInfoV": lambda h: struct(isC2cEnabled=0),
        "nvmlDeviceGetGspFirmwareMode": lambda h: [1, 1],
        "nvmlDeviceGetGspFirmwareVersion": lambda h: b"570.124.06",
        "nvmlDeviceGetComputeRunningProcesses": lambda h: [struct(pid=7, usedGpuMemory=None)],
        "nvmlSystemGetProcessName": lambda pid: b"/opt/env/bin/python3 train.py --token=secret",
        "nvmlDeviceValidateInforom": lambda h: None,
        "nvmlSystemGetConfComputeState": lambda: struct(ccFeature=0),
        "c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t": profiles_info,
        "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles": fill_profiles,
        "nvmlDeviceGetP2PStatus": lambda a, b, cap: 0 if cap == 0 else 5,
    }
    module = types.ModuleType("pynvml")
    for name, call in (calls | changes).items():
        if call is not None:
            setattr(module, name, call)
    return module


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    def run(budget_s: float = 30.0, **changes: Any) -> dict[str, Any]:
        monkeypatch.setattr(nvml, "library", lambda: True)
        monkeypatch.setitem(sys.modules, "pynvml", fake(**changes))
        found = nvml.snapshot(budget_s)
        assert json.loads(json.dumps(found)) == found, "the snapshot is plain JSON"
        return found

    return run


Look = Callable[..., dict[str, Any]]


def test_answers(look: Look) -> None:
    found = look()
    assert found["status"] == "ok"
    assert found["system"] == {
        "driver_version": "570.124.06",
        "cuda_driver_version": 12080,
        "nvml_version": "12.570.124.06",
    }
    (gpu,) = found["devices"]
    assert set(gpu) == {*nvml.QUERIES, "p2p"}
    assert gpu["name"] == "NVIDIA H200"
    assert gpu["pci"] == {"bus_id": "00000000:0F:00.0", "device_id": 0x233510DE, "subsystem_id": 0x18BE10DE}
    assert gpu["memory"] == {"total": 150754820096, "used": 500, "free": 150754819596, "reserved": 7}
    assert (gpu["ecc"], gpu["mig"], gpu["mig_devices"]) == ([True, False], [True, True], 1)
    assert (gpu["ecc_uncorrected_volatile"], gpu["ecc_uncorrected_aggregate"]) == (10, 11)
    assert (gpu["virtualization"], gpu["compute_mode"], gpu["architecture"]) == (
        "passthrough",
        "exclusive_process",
        "Hopper",
    )
    assert gpu["memory_temperature"] == 41
    assert (gpu["inforom_valid"], gpu["confidential"], gpu["power_profiles"]) == (True, False, [1, 32])
    assert gpu["throttle"] == {"mask": 0x44, "names": ["sw_power_cap", "hw_thermal_slowdown"]}
    assert gpu["gpu_numa_id"] == {"error": "NotSupported"}
    assert (gpu["memory_affinity"], gpu["cpu_affinity"]) == ([2], [0xFF, 1 << 63])
    assert (len(gpu["nvlink_states"]), sum(gpu["nvlink_states"])) == (18, 17)
    assert gpu["nvlink_version"] == 4
    assert gpu["nvlink_errors"] == {"replay": 0, "recovery": 17, "crc_flit": 34, "crc_data": 51}
    assert gpu["fabric"] == {"state": "completed", "status": "success", "clique": 0, "health_mask": 2}
    assert gpu["gsp"] == {"enabled": True, "version": "570.124.06"}
    assert gpu["p2p"] == {}


def test_a_process_shows_its_program_only(look: Look) -> None:
    (gpu,) = look()["devices"]
    assert gpu["processes"] == [{"pid": 7, "name": "python3", "used_bytes": None}]


@pytest.mark.parametrize("error", ["NotSupported", "NoPermission", "FunctionNotFound", "Unknown"])
def test_a_failing_question_costs_its_own_answer(look: Look, error: str) -> None:
    whole = look()["devices"][0]
    (gpu,) = look(nvmlDeviceGetPowerUsage=failure(error))["devices"]
    assert gpu.pop("power_mw") == {"error": error}
    whole.pop("power_mw")
    assert gpu == whole


@pytest.mark.parametrize("query", sorted(nvml.QUERIES))
def test_each_question_is_wrapped(look: Look, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(nvml.QUERIES, query, failure("Unknown"))
    (gpu,) = look()["devices"]
    assert gpu[query] == {"error": "Unknown"}
    failed = [name for name, answer in gpu.items() if isinstance(answer, dict) and "error" in answer]
    assert set(failed) == {query, "gpu_numa_id"}


def test_an_older_pynvml(look: Look) -> None:
    (gpu,) = look(
        nvmlMemory_v2=None,
        nvmlDeviceGetTemperatureV=None,
        nvmlDeviceGetTemperature=lambda h, sensor: 33,
        nvmlDeviceGetCurrentClocksEventReasons=None,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda h: 1,
        nvmlDeviceGetCpuAffinityWithinScope=None,
        nvmlDeviceGetCpuAffinity=lambda h, size: [3] + [0] * (size - 1),
        c_nvmlGpuFabricInfo_v2_t=None,
        c_nvmlGpuFabricInfo_t=fabric_info,
        nvmlDeviceGetGpuFabricInfo=lambda h, reference: None,
        nvmlDeviceGetC2cModeInfoV=None,
        nvmlDeviceGetEnforcedPowerLimit=None,
        nvmlDeviceGetPowerManagementLimit=lambda h: 650000,
    )["devices"]
    assert gpu["memory"] == {"total": 150754820096, "used": 500, "free": 150754819596}
    assert gpu["temperature"] == 33
    assert gpu["throttle"]["names"] == ["gpu_idle"]
    assert gpu["cpu_affinity"] == [3]
    assert gpu["fabric"] == {"state": "not supported", "status": "success", "clique": 0}
    assert gpu["power_limit_mw"] == 650000
    assert gpu["c2c"] == {"error": "FunctionNotFound"}


def test_a_struct_without_the_field(look: Look) -> None:
    (gpu,) = look(nvmlDeviceGetBAR1MemoryInfo=lambda h: struct(total=1))["devices"]
    assert gpu["bar1"] == {"error": "FunctionNotFound"}


def test_an_odd_answer(look: Look) -> None:
    (gpu,) = look(nvmlDeviceGetEccMode=lambda h: None, nvmlDeviceGetPcieReplayCounter=lambda h: "x")[
        "devices"
    ]
    assert gpu["ecc"] == {"error": "TypeError"}
    assert gpu["pcie_replays"] == {"error": "ValueError"}


def test_a_code_without_a_name(look: Look) -> None:
    def fail(_: Any) -> Any:
        raise NVMLError(4711)

    (gpu,) = look(nvmlDeviceGetPowerUsage=fail)["devices"]
    assert gpu["power_mw"] == {"error": "Code4711"}


def test_fields_that_the_gpu_refuses(look: Look) -> None:
    (gpu,) = look(nvmlDeviceGetFieldValues=lambda h, ids: [struct(nvmlReturn=3)])["devices"]
    assert gpu["memory_temperature"] == {"error": "NotSupported"}


def test_no_nvlink(look: Look) -> None:
    (gpu,) = look(nvmlDeviceGetNvLinkState=failure("NotSupported"))["devices"]
    assert gpu["nvlink_states"] == gpu["nvlink_errors"] == {"error": "NotSupported"}


def test_all_links_down(look: Look) -> None:
    def down(h: Any, link: int) -> int:
        if link >= 4:
            raise NVMLError(CODES["InvalidArgument"])
        return 0

    (gpu,) = look(nvmlDeviceGetNvLinkState=down)["devices"]
    assert gpu["nvlink_states"] == [False] * 4
    assert gpu["nvlink_version"] is None


def test_a_gpu_lost_before(look: Look) -> None:
    def handle(index: int) -> int:
        if index == 1:
            raise NVMLError(CODES["GpuIsLost"])
        return index

    found = look(nvmlDeviceGetCount=lambda: 3, nvmlDeviceGetHandleByIndex=handle)
    first, lost, last = found["devices"]
    assert first["name"] == last["name"] == "NVIDIA H200"
    assert {key: value for key, value in lost.items() if key != "p2p"} == {
        query: {"error": "GpuIsLost"} for query in nvml.QUERIES
    }
    assert first["p2p"] == {
        "1": {"error": "GpuIsLost"},
        "2": {"read": "ok", "nvlink": "not supported", "atomics": "not supported"},
    }


def test_a_gpu_lost_in_the_middle(look: Look) -> None:
    asked: list[str] = []
    (gpu,) = look(
        nvmlDeviceGetPersistenceMode=failure("GpuIsLost"),
        nvmlDeviceGetEccMode=lambda h: asked.append("ecc"),
    )["devices"]
    assert gpu["name"] == "NVIDIA H200"
    assert gpu["persistence"] == gpu["ecc"] == gpu["processes"] == {"error": "GpuIsLost"}
    assert asked == [], "a lost GPU is not asked again"


def test_a_driver_in_distress_is_not_waited_for(look: Look) -> None:
    (gpu,) = look(budget_s=-1.0)["devices"]
    assert gpu["name"] == {"error": "Skipped"}


@pytest.mark.parametrize(
    ("error", "status"),
    [("DriverNotLoaded", "error"), ("LibRmVersionMismatch", "error"), ("LibraryNotFound", "missing")],
)
def test_init_fails(look: Look, error: str, status: str) -> None:
    found = look(nvmlInit=failure(error))
    assert (found["status"], found["devices"]) == (status, [])
    assert error in found["detail"]


def test_no_count(look: Look) -> None:
    assert look(nvmlDeviceGetCount=failure("Unknown"))["devices"] == []


def test_shutdown_may_fail(look: Look) -> None:
    assert look(nvmlShutdown=failure("Unknown"))["status"] == "ok"


def test_pynvml_is_not_loaded_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "library", lambda: False)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it would raise
    found = nvml.snapshot()
    assert (found["status"], found["devices"]) == ("missing", [])


def test_pynvml_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "library", lambda: True)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = nvml.snapshot()
    assert found["status"] == "missing"
    assert "pynvml" in found["detail"]


def test_a_library_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert not nvml.library()


def test_the_real_pynvml_knows_our_names() -> None:
    """Every attribute that the fake has, so that a typing error in the table cannot hide behind it."""
    pynvml = pytest.importorskip("pynvml")
    missing = [name for name in vars(fake()) if not name.startswith("__") and not hasattr(pynvml, name)]
    assert missing == []


@pytest.mark.parametrize(
    ("command", "name"),
    [("/usr/bin/python3\0-m\0x", "python3"), ("python", "python"), ("", ""), ("/a b/c", "a")],
)
def test_program(command: str, name: str) -> None:
    assert nvml.program(command) == name


def test_a_corrupted_inforom_is_an_answer(look: Look) -> None:
    (gpu,) = look(nvmlDeviceValidateInforom=failure("CorruptedInforom"))["devices"]
    assert gpu["inforom_valid"] is False
    (gpu,) = look(nvmlDeviceValidateInforom=failure("NotSupported"))["devices"]
    assert gpu["inforom_valid"] == {"error": "NotSupported"}
