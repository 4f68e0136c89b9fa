"""AMD GPUs: `amd-smi static/metric --json`, else `rocm-smi -a --json`, as answers per GPU.

Both tools have changed their keys several times: a value is a number, a text, or `{"value", "unit"}`; a GPU
list is a list or stands under `gpu_data`; a warning may come before the JSON.
"""

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec

from wellfed.host.nvidia_xml import Seen
from wellfed.host.nvml import program
from wellfed.host.pci import pci_address, pci_id

_GPUS_MAX = 256
_BEGINNINGS_TRIED = 200
"""Lines of warnings that may look like the beginning of a document. Each costs a copy of the text."""
# GT/s of a PCIe generation.
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
# amd-smi's MB is MiB: it calls an MI300X's 192 GiB 196592 MB.
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}

Path = tuple[str, ...]


def json_of(text: str) -> Any:
    """The JSON document in a text that may begin with warnings; None when there is none."""
    text = text.rstrip()
    if not text.endswith(
        ("}", "]")
    ):  # what follows a document spoils it: a log of many brackets is no work then
        return None
    for match in islice(re.finditer(r"^\s*[\[{]", text, re.MULTILINE), _BEGINNINGS_TRIED):
        try:
            return msgspec.json.decode(text[match.start() :])
        except (msgspec.DecodeError, RecursionError, ValueError):
            # ValueError: half of a surrogate pair, which cannot be encoded.
            if match.start() > 1 << 16:
                break
    return None


def entries(document: Any) -> list[dict[str, Any]]:
    """The per-GPU dicts of any amd-smi document."""
    if isinstance(document, dict):
        inner = document.get("gpu_data")
        document = inner if isinstance(inner, list) else [document] if "gpu" in document else []
    items = document if isinstance(document, list) else []
    return [item for item in items[:_GPUS_MAX] if isinstance(item, dict)]


def smi_gpus(static: str, metric: str | None, process: str | None) -> tuple[dict[str, Seen], ...]:
    """Answers of amd-smi, by GPU in the order of its numbers. `metric` and `process` may be None."""
    merged: dict[int, dict[str, Any]] = {}
    for text in (static, metric, process):
        for entry in entries(json_of(text)) if text else ():
            number = entry.get("gpu")
            if isinstance(number, int):
                merged.setdefault(number, {}).update(entry)
    return tuple(_smi_gpu(merged[number]) for number in sorted(merged))


def _smi_gpu(entry: dict[str, Any]) -> dict[str, Seen]:
    seen = {field: _field(entry, paths, read) for field, (paths, read) in SMI_FIELDS.items()}
    seen["processes"] = _processes(entry)
    seen["throttle"] = _throttle(entry)
    return seen


def rocm_gpus(text: str) -> tuple[dict[str, Seen], ...]:
    """Answers of rocm-smi, by card in the order of their numbers."""
    document = json_of(text)
    if not isinstance(document, dict):
        return ()
    system = document.get("system")
    driver = _field({"system": system}, ((("system", "Driver version"),)), _text)
    cards = {
        int(name[4:]): card
        for name, card in document.items()
        if re.fullmatch(r"card\d{1,4}", name) and isinstance(card, dict)
    }
    return tuple(
        {field: _field(cards[number], paths, read) for field, (paths, read) in ROCM_FIELDS.items()}
        | {"driver": driver}
        for number in sorted(cards)
    )


def _field(entry: Any, paths: Iterable[Path], read: Callable[[Any], Any]) -> Seen:
    refused: Seen | None = None
    for path in paths:
        value = _at(entry, path)
        if value is None:
            continue
        raw = str(value)[:200]
        if isinstance(value, str) and (not value.strip() or value.strip().upper().startswith("N/A")):
            refused = refused or Seen(raw=raw, status="unsupported", detail=f"the tool says `{raw}`")
            continue
        try:
            return Seen(read(value), raw)
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            refused = refused or Seen(raw=raw, status="error", detail=f"cannot read `{raw[:80]}`: {error}")
    return refused or Seen(status="missing", detail="the tool does not tell")


def _at(entry: Any, path: Path) -> Any:
    for key in path:
        entry = entry.get(key) if isinstance(entry, dict) else None
    return entry


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value.strip()


def _name(value: Any) -> str:
    """Some versions print an id where the name should be."""
    text = _text(value)
    if re.fullmatch(r"0x[0-9a-fA-F]+", text):
        raise ValueError("an id, no name")
    return text


def _number(value: Any) -> float:
    """A number, its text, or `{"value": number}`. Not finite, negative or a boolean is refused."""
    if isinstance(value, dict):
        value = value["value"]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError("no number")
    match = re.fullmatch(r"\s*\(?(\d{1,18}(?:\.\d{1,9})?)\s*(?:[A-Za-z%/°]*)\)?\s*", str(value))
    if not match:
        raise ValueError("no plain number")
    return float(match.group(1))


def _whole(value: Any) -> int:
    return int(_number(value))


def _positive(value: Any) -> int:
    """amd-smi prints 0 for a clock limit that it does not know."""
    number = _whole(value)
    if number == 0:
        raise ValueError("0 means unknown here")
    return number


def _bytes(value: Any) -> int:
    unit = value.get("unit", "MB") if isinstance(value, dict) else "MB"
    return int(_number(value) * _UNITS[str(unit).upper()])


def _plain_bytes(value: Any) -> int:
    return _whole(value)


def _address(value: Any) -> str:
    return pci_address(_text(value))


def _device_id(value: Any) -> str:
    return pci_id(int(_text(value), 16) << 16 | 0x1002)


def _generation(value: Any) -> int:
    if isinstance(value, str):
        match = re.search(r"gen\s*(\d)\b", value, re.IGNORECASE)
        if match:
            return int(match.group(1))
    return _GENERATIONS[_number(value)]


def _rocm_link(part: int) -> Callable[[Any], Any]:
    """`1 (16.0GT/s x16)`: generation, or width."""

    def read(value: Any) -> int:
        match = re.search(r"\(([\d.]{1,6})GT/s x(\d{1,2})\)", _text(value))
        if not match:
            raise ValueError("no link")
        return int(match.group(2)) if part else _GENERATIONS[float(match.group(1))]

    return read


def _node(value: Any) -> int:
    number = int(value) if isinstance(value, int) else int(_text(value))
    if not 0 <= number < 1 << 31:
        raise ValueError("-1: the firmware names no NUMA node")
    return number


SMI_FIELDS: dict[str, tuple[tuple[Path, ...], Callable[[Any], Any]]] = {
    "name": ((("asic", "market_name"), ("board", "product_name")), _name),
    "device_id": ((("asic", "device_id"),), _device_id),
    "architecture": ((("asic", "target_graphics_version"),), _text),
    "serial": ((("board", "product_serial"), ("asic", "asic_serial")), _text),
    "uuid": ((("uuid",), ("asic", "asic_serial")), _text),
    "address": ((("bus", "bdf"), ("bdf",)), _address),
    "driver": ((("driver", "version"), ("driver", "driver_version")), _text),
    "vbios": ((("ifwi", "part_number"), ("vbios", "part_number"), ("ifwi", "version")), _text),
    "memory_bytes": (
        (("vram", "size"), ("vram", "vram_size"), ("mem_usage", "total_vram"), ("fb_usage", "vram_total")),
        _bytes,
    ),
    "memory_used_bytes": ((("mem_usage", "used_vram"), ("fb_usage", "vram_used")), _bytes),
    "bar1_bytes": ((("mem_usage", "total_visible_vram"),), _bytes),
    "ecc_uncorrected": ((("ecc", "total_uncorrectable_count"),), _whole),
    "sm_mhz": ((("clock", "gfx_0", "clk"), ("clock", "gfx", "cur_clk")), _whole),
    "sm_max_mhz": ((("clock", "gfx_0", "max_clk"), ("clock", "gfx", "max_clk")), _positive),
    "mem_mhz": ((("clock", "mem_0", "clk"), ("clock", "mem", "cur_clk")), _whole),
    "mem_max_mhz": ((("clock", "mem_0", "max_clk"), ("clock", "mem", "max_clk")), _positive),
    "power_w": (
        (("power", "socket_power"), ("power", "current_socket_power"), ("power", "average_socket_power")),
        _number,
    ),
    "power_limit_w": (
        (("limit", "ppt0", "socket_power_limit"), ("limit", "socket_power"), ("limit", "current_power")),
        _number,
    ),
    "power_max_w": ((("limit", "ppt0", "max_power_limit"), ("limit", "max_power")), _number),
    "temperature_c": ((("temperature", "hotspot"), ("temperature", "edge")), _whole),
    "temperature_slowdown_c": ((("limit", "slowdown_hotspot_temperature"),), _whole),
    "memory_temperature_c": ((("temperature", "mem"),), _whole),
    "utilization_pct": ((("usage", "gfx_activity"),), _whole),
    "pcie_gen": ((("pcie", "speed"),), _generation),
    "pcie_gen_device_max": ((("bus", "max_pcie_speed"), ("bus", "pcie_interface_version")), _generation),
    "pcie_width": ((("pcie", "width"),), _whole),
    "pcie_width_max": ((("bus", "max_pcie_width"),), _whole),
    "pcie_replays": ((("pcie", "replay_count"),), _whole),
    "numa_node": ((("numa", "node"),), _node),
}
"""Keys as of ROCm 6.0 to 7.x (amdsmi_cli/amdsmi_commands.py and its changelog)."""

ROCM_FIELDS: dict[str, tuple[tuple[Path, ...], Callable[[Any], Any]]] = {
    "name": ((("Card Series",), ("Card series",), ("Device Name",)), _name),
    "device_id": ((("Device ID",), ("GPU ID",)), _device_id),
    "architecture": ((("GFX Version",),), _text),
    "serial": ((("Serial Number",),), _text),
    "uuid": ((("Unique ID",),), _text),
    "address": ((("PCI Bus",),), _address),
    "vbios": ((("VBIOS version",),), _text),
    "memory_bytes": ((("VRAM Total Memory (B)",),), _plain_bytes),
    "memory_used_bytes": ((("VRAM Total Used Memory (B)",),), _plain_bytes),
    "bar1_bytes": ((("VIS_VRAM Total Memory (B)",),), _plain_bytes),
    "sm_mhz": ((("sclk clock speed:",),), _whole),
    "mem_mhz": ((("mclk clock speed:",),), _whole),
    "power_w": (
        (("Current Socket Graphics Package Power (W)",), ("Average Graphics Package Power (W)",)),
        _number,
    ),
    "power_limit_w": ((("Max Graphics Package Power (W)",),), _number),
    "temperature_c": ((("Temperature (Sensor junction) (C)",), ("Temperature (Sensor edge) (C)",)), _whole),
    "memory_temperature_c": ((("Temperature (Sensor memory) (C)",),), _whole),
    "utilization_pct": ((("GPU use (%)",),), _whole),
    "pcie_gen": ((("pcie clock level",),), _rocm_link(0)),
    "pcie_width": ((("pcie clock level",),), _rocm_link(1)),
    "pcie_replays": ((("PCIe Replay Count",),), _whole),
    "numa_node": ((("(Topology) Numa Affinity",), ("(Topology) Numa Node",)), _node),
}
"""Keys as rocm-smi of ROCm 4.3 to 6.1 prints them."""


def _throttle(entry: dict[str, Any]) -> Seen:
    """What holds the clocks down now, by the names of amd-smi's `throttle` block."""
    block = entry.get("throttle")
    if isinstance(block, dict):
        stem = "_violation_status"
        told = {
            key.removesuffix(stem): str(value).upper()
            for key, value in block.items()
            if key.endswith(stem) and str(value).upper() in ("ACTIVE", "NOT ACTIVE")
        }
        if told:
            active = [name for name, word in told.items() if word == "ACTIVE"]
            return Seen(active, ", ".join(f"{name}: {word}" for name, word in told.items()))
    word = _at(entry, ("power", "throttle_status"))
    if word == "UNTHROTTLED":
        return Seen([], word)
    if word == "THROTTLED":
        return Seen(["throttled"], word)
    return Seen(status="unsupported", detail="the tool does not say what throttles")


def _processes(entry: dict[str, Any]) -> Seen:
    listed = entry.get("process_list")
    if not isinstance(listed, list):
        return Seen(status="missing", detail="`amd-smi process` was not read")
    found = []
    for item in listed[:10000]:
        info = item.get("process_info") if isinstance(item, dict) else None
        pid = info.get("pid") if isinstance(info, dict) else None
        if isinstance(info, dict) and isinstance(pid, int) and not isinstance(pid, bool):
            used = _field(info, (("memory_usage", "vram_mem"), ("vram_mem",)), _bytes)
            name = _field(info, (("name",),), lambda value: program(_text(value)))
            found.append({"pid": pid, "name": name.value, "used_bytes": used.value})
    return Seen(found, f"{len(found)} processes")
