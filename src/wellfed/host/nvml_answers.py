"""The answers of an NVML snapshot as fields of a GPU. A recorded snapshot is somebody else's file: an answer of
the wrong shape costs its field."""

from collections.abc import Callable
from typing import Any

from wellfed.host import pci
from wellfed.host.nvidia_xml import Seen
from wellfed.host.parse import RAW_CHARS
from wellfed.model.fact import Status

# What an NVML error says of the field. Anything else is `error`.
_NVML_STATUS: dict[str, Status] = {
    "NotSupported": "unsupported",
    "FunctionNotFound": "unsupported",
    "Deprecated": "unsupported",
    "NoData": "unsupported",
    "NotFound": "unsupported",
    "InvalidArgument": "unsupported",
    "ArgumentVersionMismatch": "unsupported",
    "NoPermission": "denied",
}


def nvml_device(answers: dict[str, Any], driver: Any) -> dict[str, Seen]:
    """The fields of a GPU from its answers in the snapshot."""
    device = {field: _answer(answers, query, read) for field, (query, read) in NVML_FIELDS.items()}
    device["driver"] = _answer({"driver": driver}, "driver", _word)
    if device["mig"].status == "ok":
        device["mig_capable"] = Seen(True)
    elif answers.get("mig") == {"error": "NotSupported"}:
        device["mig_capable"] = Seen(False, device["mig"].detail)
    return device


def _answer(answers: dict[str, Any], query: str, read: Callable[[Any], Any]) -> Seen:
    answer = answers.get(query)
    if answer is None:
        return Seen(status="unsupported", detail=f"NVML gives no {query}")
    if isinstance(answer, dict) and "error" in answer:
        error = str(answer["error"])[:80]
        return Seen(status=_NVML_STATUS.get(error, "error"), detail=f"NVML {query}: {error}")
    try:
        value = read(answer)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
        return Seen(raw=str(answer)[:200], status="error", detail=f"NVML {query} has an unknown shape")
    if value is None:
        return Seen(raw=str(answer)[:200], status="unsupported", detail=f"NVML {query} does not say")
    return Seen(value, f"{answer}{_UNITS.get(query.rpartition('_')[2], '')}"[:RAW_CHARS])


_UNITS = {"mw": " mW", "us": " us"}
"""What NVML counts in, where the field counts in another unit: evidence shows the answer as it came."""


def _word(answer: Any) -> str | None:
    if not isinstance(answer, str):
        raise TypeError
    return answer.strip() or None


def _whole(answer: Any) -> int:
    """NVML counts from 0. The largest number of a type is its way to say that there is no value."""
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < 1 << 63:
        raise TypeError
    return answer


def _watts(answer: Any) -> float:
    return _whole(answer) / 1000


def _yes(answer: Any) -> bool:
    if not isinstance(answer, bool | int):
        raise TypeError
    return bool(answer)


def _part(key: Any, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda answer: read(answer[key])


def _bits(answer: Any) -> tuple[int, ...] | None:
    """Numbers of the set bits of 64-bit words, lowest word first."""
    if not isinstance(answer, list) or len(answer) > 1024:
        raise TypeError
    bits = [
        64 * i + bit for i, word in enumerate(answer) for bit in range(64) if _whole_word(word) >> bit & 1
    ]
    return tuple(bits) or None


def _whole_word(word: Any) -> int:
    if isinstance(word, bool) or not isinstance(word, int) or not 0 <= word < 1 << 64:
        raise TypeError
    return word


def _one_node(answer: Any) -> int | None:
    """The only node near the GPU; near several is near none."""
    nodes = _bits(answer)
    return nodes[0] if nodes and len(nodes) == 1 else None


def _gsp(answer: Any) -> str:
    return (_word(answer["version"]) or "enabled") if _yes(answer["enabled"]) else "disabled"


def _fabric(key: str) -> Callable[[Any], Any]:
    def read(answer: Any) -> str | None:
        """None on GPUs without a fabric."""
        return None if answer["state"] == "not supported" else _word(answer[key])

    return read


def _names(answer: Any) -> list[str]:
    return [str(_word(name)) for name in answer["names"]]


def _processes(answer: Any) -> list[dict[str, Any]]:
    return [
        {
            "pid": _whole(process["pid"]),
            "name": process.get("name"),
            "used_bytes": process.get("used_bytes"),
        }
        for process in answer[:10000]
    ]


def _capability(answer: Any) -> str:
    major, minor = answer
    return f"{_whole(major)}.{_whole(minor)}"


NVML_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "name": ("name", _word),
    "uuid": ("uuid", _word),
    "serial": ("serial", _word),
    "address": ("pci", _part("bus_id", lambda text: pci.pci_address(text))),
    "device_id": ("pci", _part("device_id", lambda number: pci.pci_id(_whole(number)))),
    "architecture": ("architecture", _word),
    "compute_capability": ("compute_capability", _capability),
    "vbios": ("vbios", _word),
    "memory_bytes": ("memory", _part("total", _whole)),
    "memory_used_bytes": ("memory", _part("used", _whole)),
    "bar1_bytes": ("bar1", _part("total", _whole)),
    "persistence": ("persistence", _yes),
    "ecc": ("ecc", _part(0, _yes)),
    "ecc_pending": ("ecc", _part(1, _yes)),
    "ecc_uncorrected": ("ecc_uncorrected_volatile", _whole),
    "ecc_uncorrected_aggregate": ("ecc_uncorrected_aggregate", _whole),
    "remap_pending": ("remapped_rows", _part(2, _yes)),
    "remap_failed": ("remapped_rows", _part(3, _yes)),
    "retired_pending": ("retired_pending", _yes),
    "mig": ("mig", _part(0, _yes)),
    "mig_pending": ("mig", _part(1, _yes)),
    "mig_devices": ("mig_devices", _whole),
    "virtualization": ("virtualization", _word),
    "compute_mode": ("compute_mode", _word),
    "sm_mhz": ("clock_sm", _whole),
    "sm_max_mhz": ("clock_sm_max", _whole),
    "sm_app_mhz": ("clock_sm_app", _whole),
    "sm_app_default_mhz": ("clock_sm_app_default", _whole),
    "mem_mhz": ("clock_mem", _whole),
    "mem_max_mhz": ("clock_mem_max", _whole),
    "power_w": ("power_mw", _watts),
    "power_limit_w": ("power_limit_mw", _watts),
    "power_default_w": ("power_default_mw", _watts),
    "power_max_w": ("power_range_mw", _part(1, _watts)),
    "temperature_c": ("temperature", _whole),
    "temperature_slowdown_c": ("temperature_slowdown", _whole),
    "memory_temperature_c": ("memory_temperature", _whole),
    "throttle": ("throttle", _names),
    "utilization_pct": ("utilization", _whole),
    "pcie_gen": ("pcie_gen", _whole),
    "pcie_gen_max": ("pcie_gen_max", _whole),
    "pcie_gen_device_max": ("pcie_gen_device_max", _whole),
    "pcie_width": ("pcie_width", _whole),
    "pcie_width_max": ("pcie_width_max", _whole),
    "pcie_replays": ("pcie_replays", _whole),
    "numa_node": ("memory_affinity", _one_node),
    "cpu_affinity": ("cpu_affinity", _bits),
    "nvlinks_active": ("nvlink_states", lambda states: sum(map(_yes, states))),
    "nvlinks_total": ("nvlink_states", len),
    "nvlink_version": ("nvlink_version", _whole),
    "nvlink_errors": ("nvlink_errors", lambda counts: sum(map(_whole, counts.values()))),
    "fabric_state": ("fabric", _fabric("state")),
    "fabric_status": ("fabric", _fabric("status")),
    "c2c": ("c2c", _yes),
    "gsp_firmware": ("gsp", _gsp),
    "inforom_valid": ("inforom_valid", _yes),
    "confidential": ("confidential", _yes),
    "power_profiles": ("power_profiles", lambda numbers: [_whole(number) for number in numbers]),
    "processes": ("processes", _processes),
}
"""Field of Gpu: the query of `nvml.py` that answers it, and how its answer is read."""
