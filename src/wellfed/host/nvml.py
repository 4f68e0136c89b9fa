"""The one module that imports pynvml: everything NVML says of the NVIDIA GPUs, as plain JSON.

`snapshot` asks each question of the table `QUERIES` on its own, so one that fails costs one answer:
`{"error": "NotSupported"}` stands in its place. Nothing is interpreted here beyond names for enumerations;
`gpu.py` turns the answers, live or recorded, into facts.
"""

import ctypes
import time
from collections.abc import Callable
from typing import Any

Nvml = Any
Handle = Any
Query = Callable[[Nvml, Handle], Any]

BUDGET_S = 30.0
"""A driver in distress answers each question only after seconds; what is not asked in time says `Skipped`."""

_FATAL = ("GpuIsLost", "ResetRequired")
"""Errors after which asking the same GPU again is pointless."""

_AFFINITY_WORDS = 64
"""64-bit words of a CPU or node set: room for 4096 CPUs."""
_SCOPE_NODE = 0
_MAX_LINKS = 36
_MAX_MIG = 16

THROTTLE = (
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
    (0x100, "display_clocks_setting"),
)
"""Bits of the clock-event mask (nvml.h, nvmlClocksEventReason*), named as `nvidia-smi -q -x` names them."""

ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
P2P_STATES = {
    0: "ok",
    1: "chipset not supported",
    2: "gpu not supported",
    3: "topology not supported",
    4: "disabled by regkey",
    5: "not supported",
}
# pynvml's NVML_P2P_CAPS_INDEX_READ is the tuple (0,) through a stray comma, hence numbers.
_P2P_CAPS = (("read", 0), ("nvlink", 2), ("atomics", 3))
NVLINK_VERSIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""nvml.h enumeration to generation: 2.2 counts as 2, 3.1 as 3."""


def library() -> bool:
    """Whether the driver's library can be loaded. Costs well under a millisecond when it is not there,
    against some 60 ms for importing pynvml."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def snapshot(budget_s: float = BUDGET_S) -> dict[str, Any]:
    """`{"status": "ok"|"missing"|"error", "detail", "system": {...}, "devices": [{query: answer}]}`.

    Never raises; `status` is `ok` as soon as NVML could be initialised."""
    if not library():
        return _failed("missing", "libnvidia-ml.so.1 is not on this machine")
    try:
        import pynvml
    except (ImportError, OSError, ValueError) as error:
        return _failed("missing", f"pynvml cannot be imported: {error}")
    errors = _errors(pynvml)
    try:
        pynvml.nvmlInit()
    except errors as error:
        name = _name(error)
        return _failed("missing" if name == "LibraryNotFound" else "error", f"NVML does not start: {name}")
    try:
        return {
            "status": "ok",
            "detail": None,
            "system": {query: _ask(errors, ask, pynvml) for query, ask in SYSTEM.items()},
            "devices": _devices(pynvml, errors, time.monotonic() + budget_s),
        }
    finally:
        _ask(errors, lambda nv: nv.nvmlShutdown(), pynvml)


def _devices(nv: Nvml, errors: tuple[type[BaseException], ...], deadline: float) -> list[dict[str, Any]]:
    count = _ask(errors, lambda nv: int(nv.nvmlDeviceGetCount()), nv)
    if not isinstance(count, int):
        return []
    handles = [_ask(errors, lambda nv, i=i: nv.nvmlDeviceGetHandleByIndex(i), nv) for i in range(count)]
    devices = [_device(nv, errors, handle, deadline) for handle in handles]
    for index, device in enumerate(devices):
        device["p2p"] = {
            str(other): _peer(nv, errors, handles[index], handles[other])
            for other in range(count)
            if other != index and time.monotonic() < deadline
        }
    return devices


def _device(
    nv: Nvml, errors: tuple[type[BaseException], ...], handle: Handle, deadline: float
) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    # An error instead of a handle: the GPU is there, but nothing can be asked of it.
    stop = handle["error"] if isinstance(handle, dict) else None
    for query, ask in QUERIES.items():
        if stop is None and time.monotonic() > deadline:
            stop = "Skipped"
        answers[query] = {"error": stop} if stop else _ask(errors, ask, nv, handle)
        if isinstance(answers[query], dict) and answers[query].get("error") in _FATAL:
            stop = answers[query]["error"]
    return answers


def _peer(nv: Nvml, errors: tuple[type[BaseException], ...], a: Handle, b: Handle) -> dict[str, Any]:
    if isinstance(a, dict) or isinstance(b, dict):
        return {"error": (a if isinstance(a, dict) else b)["error"]}
    return {
        name: _ask(errors, lambda nv, cap=cap: P2P_STATES.get(int(nv.nvmlDeviceGetP2PStatus(a, b, cap))), nv)
        for name, cap in _P2P_CAPS
    }


def _failed(status: str, detail: str) -> dict[str, Any]:
    return {"status": status, "detail": detail, "system": {}, "devices": []}


def _errors(nv: Nvml) -> tuple[type[BaseException], ...]:
    """What a question may raise: NVML's own errors, and those of a pynvml that is older or newer than the
    one this was written for (a missing function or field, other arguments, bytes that are no UTF-8)."""
    own = getattr(nv, "NVMLError", None)
    general = (AttributeError, TypeError, ValueError, LookupError, OSError, ctypes.ArgumentError)
    return (own, *general) if isinstance(own, type) and issubclass(own, BaseException) else general


def _name(error: BaseException) -> str:
    """`NotSupported` of `NVMLError_NotSupported`; codes without a class of their own read `Code27`."""
    name = type(error).__name__
    if name.startswith("NVMLError_"):
        return name.removeprefix("NVMLError_")
    if name == "NVMLError":
        return f"Code{getattr(error, 'value', '')}"
    # No such function or field in this pynvml: to the reader the same as in this driver.
    return "FunctionNotFound" if isinstance(error, AttributeError) else name


def _ask(errors: tuple[type[BaseException], ...], ask: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return ask(*arguments)
    except errors as error:
        return {"error": _name(error)}


def _text(value: Any) -> str:
    """Old pynvml returns bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _first(*asks: Query) -> Query:
    """The answer of the first question that this driver and this pynvml know."""

    def ask(nv: Nvml, handle: Handle) -> Any:
        for attempt in asks[:-1]:
            try:
                return attempt(nv, handle)
            except _errors(nv) as error:
                if _name(error) not in ("FunctionNotFound", "NotSupported", "ArgumentVersionMismatch"):
                    raise
        return asks[-1](nv, handle)

    return ask


def _pci(nv: Nvml, handle: Handle) -> dict[str, Any]:
    info = nv.nvmlDeviceGetPciInfo(handle)
    return {
        "bus_id": _text(info.busId),
        "device_id": int(info.pciDeviceId),
        "subsystem_id": int(info.pciSubSystemId),
    }


def _memory_v2(nv: Nvml, handle: Handle) -> dict[str, int]:
    info = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
    return {
        "total": int(info.total),
        "used": int(info.used),
        "free": int(info.free),
        "reserved": int(info.reserved),
    }


def _memory_v1(nv: Nvml, handle: Handle) -> dict[str, int]:
    """Here `used` holds what the driver reserves."""
    info = nv.nvmlDeviceGetMemoryInfo(handle)
    return {"total": int(info.total), "used": int(info.used), "free": int(info.free)}


def _bar1(nv: Nvml, handle: Handle) -> dict[str, int]:
    info = nv.nvmlDeviceGetBAR1MemoryInfo(handle)
    return {"total": int(info.bar1Total), "used": int(info.bar1Used)}


def _mig_devices(nv: Nvml, handle: Handle) -> int:
    found = 0
    for index in range(min(int(nv.nvmlDeviceGetMaxMigDeviceCount(handle)), _MAX_MIG)):
        try:
            nv.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except _errors(nv) as error:
            # An empty slot is "not found"; anything else is a failure to look.
            if _name(error) not in ("NotFound", "InvalidArgument"):
                raise
        else:
            found += 1
    return found


def _field(nv: Nvml, handle: Handle, field_id: int) -> int | float:
    value = nv.nvmlDeviceGetFieldValues(handle, [field_id])[0]
    if int(value.nvmlReturn) != 0:
        raise nv.NVMLError(int(value.nvmlReturn))
    member = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    number: int | float = getattr(value.value, member[int(value.valueType)])
    return number


def _throttle(read: Callable[[Nvml, Handle], Any]) -> Query:
    def ask(nv: Nvml, handle: Handle) -> dict[str, Any]:
        mask = int(read(nv, handle))
        return {"mask": mask, "names": [name for bit, name in THROTTLE if mask & bit]}

    return ask


def _words(values: Any) -> list[int]:
    """A bit set as 64-bit words, lowest first, without the empty ones at the end."""
    words = [int(word) for word in values]
    while words and not words[-1]:
        words.pop()
    return words


def _link_states(nv: Nvml, handle: Handle) -> list[bool]:
    states: list[bool] = []
    for link in range(_MAX_LINKS):
        try:
            states.append(bool(nv.nvmlDeviceGetNvLinkState(handle, link)))
        except _errors(nv) as error:
            if states and _name(error) in ("InvalidArgument", "NotSupported"):
                break
            raise
    return states


def _link_errors(nv: Nvml, handle: Handle) -> dict[str, int]:
    """Counters summed over the active links."""
    active = [link for link, up in enumerate(_link_states(nv, handle)) if up]
    names = ("replay", "recovery", "crc_flit", "crc_data")
    return {
        name: sum(int(nv.nvmlDeviceGetNvLinkErrorCounter(handle, link, counter)) for link in active)
        for counter, name in enumerate(names)
    }


def _link_version(nv: Nvml, handle: Handle) -> int | None:
    active = [link for link, up in enumerate(_link_states(nv, handle)) if up]
    return NVLINK_VERSIONS.get(int(nv.nvmlDeviceGetNvLinkVersion(handle, active[0]))) if active else None


def _fabric(nv: Nvml, handle: Handle) -> dict[str, Any]:
    info = nv.c_nvmlGpuFabricInfo_v2_t()
    nv.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return _fabric_answer(nv, info) | {"health_mask": int(info.healthMask)}


def _fabric_v1(nv: Nvml, handle: Handle) -> dict[str, Any]:
    info = nv.c_nvmlGpuFabricInfo_t()
    nv.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
    return _fabric_answer(nv, info)


def _fabric_answer(nv: Nvml, info: Any) -> dict[str, Any]:
    status = int(info.status)
    return {
        "state": FABRIC_STATES.get(int(info.state), str(int(info.state))),
        "status": "success" if status == 0 else _name(nv.NVMLError(status)),
        "clique": int(info.cliqueId),
    }


def _inforom(nv: Nvml, handle: Handle) -> bool:
    try:
        nv.nvmlDeviceValidateInforom(handle)
    except _errors(nv) as error:
        if _name(error) != "CorruptedInforom":
            raise
        return False
    return True


def _power_profiles(nv: Nvml, handle: Handle) -> list[int]:
    """Numbers of the profiles that are requested."""
    told = nv.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
    nv.nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(handle, ctypes.byref(told))
    words = told.requestedProfilesMask.mask
    return [32 * i + bit for i, word in enumerate(words) for bit in range(32) if int(word) >> bit & 1]


def _gsp(nv: Nvml, handle: Handle) -> dict[str, Any]:
    enabled = bool(nv.nvmlDeviceGetGspFirmwareMode(handle)[0])
    version = _text(nv.nvmlDeviceGetGspFirmwareVersion(handle)) if enabled else None
    return {"enabled": enabled, "version": version}


def _processes(nv: Nvml, running: Any) -> list[dict[str, Any]]:
    found = []
    for process in running:
        used = getattr(process, "usedGpuMemory", None)
        try:
            name: str | None = program(_text(nv.nvmlSystemGetProcessName(process.pid)))
        except _errors(nv):
            name = None
        found.append(
            {"pid": int(process.pid), "name": name, "used_bytes": None if used is None else int(used)}
        )
    return found


def program(command: str) -> str:
    """The program of a command line, without its folder and its arguments: those may hold secrets."""
    words = command.replace("\0", " ").split()
    return words[0].rsplit("/", 1)[-1] if words else command


SYSTEM: dict[str, Callable[[Nvml], Any]] = {
    "driver_version": lambda nv: _text(nv.nvmlSystemGetDriverVersion()),
    "cuda_driver_version": lambda nv: int(nv.nvmlSystemGetCudaDriverVersion_v2()),
    "nvml_version": lambda nv: _text(nv.nvmlSystemGetNVMLVersion()),
}
"""`cuda_driver_version` is 1000 major + 10 minor."""

QUERIES: dict[str, Query] = {
    "name": lambda nv, h: _text(nv.nvmlDeviceGetName(h)),
    "uuid": lambda nv, h: _text(nv.nvmlDeviceGetUUID(h)),
    "serial": lambda nv, h: _text(nv.nvmlDeviceGetSerial(h)),
    "vbios": lambda nv, h: _text(nv.nvmlDeviceGetVbiosVersion(h)),
    "minor": lambda nv, h: int(nv.nvmlDeviceGetMinorNumber(h)),
    "pci": _pci,
    "architecture": lambda nv, h: ARCHITECTURES.get(int(nv.nvmlDeviceGetArchitecture(h))),
    "compute_capability": lambda nv, h: list(map(int, nv.nvmlDeviceGetCudaComputeCapability(h))),
    "memory": _first(_memory_v2, _memory_v1),
    "bar1": _bar1,
    "persistence": lambda nv, h: bool(nv.nvmlDeviceGetPersistenceMode(h)),
    "ecc": lambda nv, h: list(map(bool, nv.nvmlDeviceGetEccMode(h))),
    # Error type 1 is uncorrected; counter 0 since the driver loaded, 1 over the card's life.
    "ecc_uncorrected_volatile": lambda nv, h: int(nv.nvmlDeviceGetTotalEccErrors(h, 1, 0)),
    "ecc_uncorrected_aggregate": lambda nv, h: int(nv.nvmlDeviceGetTotalEccErrors(h, 1, 1)),
    "remapped_rows": lambda nv, h: list(map(int, nv.nvmlDeviceGetRemappedRows(h))),
    "retired_pending": lambda nv, h: bool(nv.nvmlDeviceGetRetiredPagesPendingStatus(h)),
    "mig": lambda nv, h: list(map(bool, nv.nvmlDeviceGetMigMode(h))),
    "mig_devices": _mig_devices,
    "virtualization": lambda nv, h: VIRTUALIZATION.get(int(nv.nvmlDeviceGetVirtualizationMode(h))),
    "compute_mode": lambda nv, h: COMPUTE_MODES.get(int(nv.nvmlDeviceGetComputeMode(h))),
    # Clock domain 0 is graphics, 1 SM, 2 memory.
    "clock_sm": lambda nv, h: int(nv.nvmlDeviceGetClockInfo(h, 1)),
    "clock_sm_max": lambda nv, h: int(nv.nvmlDeviceGetMaxClockInfo(h, 1)),
    "clock_sm_app": lambda nv, h: int(nv.nvmlDeviceGetApplicationsClock(h, 0)),
    "clock_sm_app_default": lambda nv, h: int(nv.nvmlDeviceGetDefaultApplicationsClock(h, 0)),
    "clock_mem": lambda nv, h: int(nv.nvmlDeviceGetClockInfo(h, 2)),
    "clock_mem_max": lambda nv, h: int(nv.nvmlDeviceGetMaxClockInfo(h, 2)),
    "power_mw": lambda nv, h: int(nv.nvmlDeviceGetPowerUsage(h)),
    "power_limit_mw": _first(
        lambda nv, h: int(nv.nvmlDeviceGetEnforcedPowerLimit(h)),
        lambda nv, h: int(nv.nvmlDeviceGetPowerManagementLimit(h)),
    ),
    "power_default_mw": lambda nv, h: int(nv.nvmlDeviceGetPowerManagementDefaultLimit(h)),
    "power_range_mw": lambda nv, h: list(map(int, nv.nvmlDeviceGetPowerManagementLimitConstraints(h))),
    "temperature": _first(
        lambda nv, h: int(nv.nvmlDeviceGetTemperatureV(h, 0)),
        lambda nv, h: int(nv.nvmlDeviceGetTemperature(h, 0)),
    ),
    "temperature_slowdown": lambda nv, h: int(nv.nvmlDeviceGetTemperatureThreshold(h, 1)),
    "memory_temperature": lambda nv, h: int(_field(nv, h, nv.NVML_FI_DEV_MEMORY_TEMP)),
    "throttle": _first(
        _throttle(lambda nv, h: nv.nvmlDeviceGetCurrentClocksEventReasons(h)),
        _throttle(lambda nv, h: nv.nvmlDeviceGetCurrentClocksThrottleReasons(h)),
    ),
    "utilization": lambda nv, h: int(nv.nvmlDeviceGetUtilizationRates(h).gpu),
    "pcie_gen": lambda nv, h: int(nv.nvmlDeviceGetCurrPcieLinkGeneration(h)),
    "pcie_gen_max": lambda nv, h: int(nv.nvmlDeviceGetMaxPcieLinkGeneration(h)),
    "pcie_gen_device_max": lambda nv, h: int(nv.nvmlDeviceGetGpuMaxPcieLinkGeneration(h)),
    "pcie_width": lambda nv, h: int(nv.nvmlDeviceGetCurrPcieLinkWidth(h)),
    "pcie_width_max": lambda nv, h: int(nv.nvmlDeviceGetMaxPcieLinkWidth(h)),
    "pcie_replays": lambda nv, h: int(nv.nvmlDeviceGetPcieReplayCounter(h)),
    # The node that the GPU's own memory forms (Grace, POWER9); the CPU side is `memory_affinity`.
    "gpu_numa_id": lambda nv, h: int(nv.nvmlDeviceGetNumaNodeId(h)),
    "memory_affinity": lambda nv, h: _words(nv.nvmlDeviceGetMemoryAffinity(h, _AFFINITY_WORDS, _SCOPE_NODE)),
    "cpu_affinity": _first(
        lambda nv, h: _words(nv.nvmlDeviceGetCpuAffinityWithinScope(h, _AFFINITY_WORDS, _SCOPE_NODE)),
        lambda nv, h: _words(nv.nvmlDeviceGetCpuAffinity(h, _AFFINITY_WORDS)),
    ),
    "nvlink_states": _link_states,
    "nvlink_version": _link_version,
    "nvlink_errors": _link_errors,
    "fabric": _first(_fabric, _fabric_v1),
    "c2c": lambda nv, h: bool(nv.nvmlDeviceGetC2cModeInfoV(h).isC2cEnabled),
    "gsp": _gsp,
    "inforom_valid": _inforom,
    "confidential": lambda nv, h: bool(nv.nvmlSystemGetConfComputeState().ccFeature),
    "power_profiles": _power_profiles,
    "processes": _first(
        lambda nv, h: _processes(nv, nv.nvmlDeviceGetComputeRunningProcesses(h)),
        lambda nv, h: _processes(nv, nv.nvmlDeviceGetComputeRunningProcesses_v2(h)),
    ),
}
"""One entry per question that can fail on its own."""
