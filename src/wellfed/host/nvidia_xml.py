"""`nvidia-smi -q -x` as answers per GPU, for DTD v10 to v13, several GPUs, MIG and output that was cut.

The text may come from somebody else's recording: entity declarations are refused, nothing external is loaded,
and of damaged XML everything before the damage counts.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from wellfed.host.nvml import THROTTLE, program
from wellfed.host.pci import pci_address, pci_id
from wellfed.model.fact import Status

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

LIMIT_CHARS = 4 << 20
"""16 GPUs with every supported clock print about one MiB, in some 30,000 elements."""
_ELEMENTS_MAX = 200_000
_DEPTH_MAX = 64
_GPUS_MAX = 256
_CHUNK = 1 << 16

# What nvidia-smi says in place of a value.
_SAYS: dict[str, Status] = {
    "n/a": "unsupported",
    "not supported": "unsupported",
    "not available": "unsupported",
    "requested functionality has been deprecated": "unsupported",
    "function not found": "unsupported",
    "insufficient permissions": "denied",
    "err!": "error",
    "error": "error",
    "unknown": "unsupported",
    "unknown error": "error",
    "gpu is lost": "error",
    "gpu requires reset": "error",
    "reset required": "error",
    "no data": "unsupported",
    "": "unsupported",
}


class Seen(NamedTuple):
    """One answer about one field. `value` is None exactly when `status` is not `ok`."""

    value: Any = None
    raw: str | None = None
    status: Status = "ok"
    detail: str | None = None


class Log(NamedTuple):
    """`attached` is the number of GPUs that the log announces; `note` says what was lost."""

    driver: str | None
    cuda: str | None
    attached: int | None
    gpus: tuple[dict[str, Seen], ...]
    note: str | None


def parse_log(text: str) -> Log:
    """Everything readable of the XML. Never raises: what is no such log gives no GPUs and a note."""
    root, note = _tree(text)
    if root is None:
        return Log(None, None, None, (), note or "no nvidia-smi log")
    driver, cuda = _top(root, "driver_version"), _top(root, "cuda_version")
    attached = _top(root, "attached_gpus")
    gpus = tuple(_gpu(element, driver) for element in root.findall("gpu")[:_GPUS_MAX])
    count = (
        int(attached)
        if attached and attached.isascii() and attached.isdigit() and len(attached) < 6
        else None
    )
    if count is not None and count != len(gpus):
        # The A100 sample of Telegraf says 4 and holds 1: cut by hand, as a broken pipe would cut it.
        lost = f"the log announces {count} GPUs and holds {len(gpus)}"
        note = f"{note}; {lost}" if note else lost
    return Log(driver, cuda, count, gpus, note)


def said(text: str) -> tuple[Status, str]:
    """Whether a text is a value, or one of nvidia-smi's ways to say that there is none."""
    word = text.strip().strip("[]").strip().lower()
    status = _SAYS.get(word)
    return (status, text.strip() or "empty") if status else ("ok", text.strip())


def _tree(text: str) -> tuple["Element | None", str | None]:
    """The root, grown as far as the text is well-formed, and what is wrong with it."""
    from xml.etree.ElementTree import ParseError, XMLPullParser

    if len(text) > LIMIT_CHARS:
        return None, f"longer than {LIMIT_CHARS} characters"
    if "<!ENTITY" in text or re.search(r"<!DOCTYPE[^>\[]*\[", text):
        return None, "it declares entities, which nvidia-smi never does"
    parser: Any = XMLPullParser(events=("start", "end"))
    body = _without_prolog(text)
    root: Element | None = None
    note: str | None = None
    depth = elements = 0
    # In pieces, so that no text can make us build a huge tree before we look at it.
    for at in range(0, len(body), _CHUNK):
        try:
            parser.feed(body[at : at + _CHUNK])
            for event, element in parser.read_events():
                started = event == "start"
                depth += 1 if started else -1
                elements += started
                root = element if root is None else root
        except (ParseError, ValueError) as error:
            note = f"damaged XML: {error}"
            break
        if depth > _DEPTH_MAX or elements > _ELEMENTS_MAX:
            return None, "more or deeper elements than nvidia-smi prints"
    if root is None or root.tag != "nvidia_smi_log":
        return None, note or "no nvidia-smi log"
    if note is None and depth > 0:
        note = "the XML is cut"
    return root, note


def _without_prolog(text: str) -> str:
    """From the first element on: an encoding or DTD named there is of no use, the text is decoded already."""
    start = text.find("<nvidia_smi_log")
    return text[start:] if start >= 0 else text


def _top(root: "Element", tag: str) -> str | None:
    text = (root.findtext(tag) or "").strip()
    return text if said(text)[0] == "ok" else None


def _gpu(gpu: "Element", driver: str | None) -> dict[str, Seen]:
    seen = {field: _field(gpu, paths, convert) for field, (paths, convert) in FIELDS.items()}
    seen["driver"] = Seen(driver) if driver else Seen(status="missing", detail="no <driver_version>")
    if seen["address"].status == "missing" and gpu.get("id"):
        seen["address"] = _convert(gpu.get("id", ""), pci_address)
    seen["ecc_uncorrected"] = _ecc(gpu, "volatile")
    seen["ecc_uncorrected_aggregate"] = _ecc(gpu, "aggregate")
    seen["throttle"] = _throttle(gpu)
    seen["event_reason_us"] = _event_reasons(gpu)
    seen["mig_capable"] = _mig_capable(gpu)
    if seen["mig"].status == "ok":
        count = len(gpu.findall("mig_devices/mig_device"))
        seen["mig_devices"] = Seen(count, f"{count} <mig_device>")
    seen["processes"] = _processes(gpu)
    if seen["temperature_slowdown_c"].status != "ok":
        seen["temperature_slowdown_c"] = _slowdown(gpu)
    return seen


def _field(gpu: "Element", paths: tuple[str, ...], convert: Callable[[str], Any]) -> Seen:
    """The first path that gives a value, else why the first that is there gives none."""
    refused: Seen | None = None
    for path in paths:
        element = gpu.find(path)
        if element is None:
            continue
        found = _convert(element.text or "", convert)
        if found.status == "ok":
            return found
        refused = refused or found
    return refused or Seen(status="missing", detail=f"no <{paths[0]}> in this log")


def _convert(text: str, convert: Callable[[str], Any]) -> Seen:
    status, word = said(text)
    if status != "ok":
        return Seen(raw=word, status=status, detail=f"nvidia-smi says `{word[:80]}`")
    try:
        return Seen(convert(word), word)
    except (ValueError, LookupError) as error:
        return Seen(raw=word, status="error", detail=f"cannot read `{word[:80]}`: {error}")


def _quantity(word: str, unit: str) -> float:
    match = re.fullmatch(r"(-?\d{1,18}(?:\.\d{1,6})?)\s*" + unit, word)
    if not match:
        raise ValueError(f"no number of {unit}")
    return float(match.group(1))


def _whole(unit: str) -> Callable[[str], int]:
    return lambda word: int(_quantity(word, unit))


def _mib(word: str) -> int:
    return int(_quantity(word, "MiB")) << 20


def _watts(word: str) -> float:
    return _quantity(word, "W")


def _enabled(word: str) -> bool:
    return {"enabled": True, "disabled": False, "yes": True, "no": False}[word.lower()]


def _device_id(word: str) -> str:
    """`20B210DE` is device before vendor: `10de:20b2`. Samples blank it out in ways that are still hex."""
    found = pci_id(int(word, 16))
    if not found.startswith("10de:"):
        raise ValueError("not NVIDIA's vendor id")
    return found


def _virtualization(word: str) -> str:
    """As NVML's enumeration is named in `nvml.py`."""
    return {"pass-through": "passthrough"}.get(word.lower(), word.lower().replace(" ", "_"))


def _fabric_word(word: str) -> str:
    return word.lower()


# Field of Gpu: the places it may stand in (newest name first), and how it is read.
FIELDS: dict[str, tuple[tuple[str, ...], Callable[[str], Any]]] = {
    "name": (("product_name",), str),
    "architecture": (("product_architecture",), str),
    "uuid": (("uuid",), str),
    "serial": (("serial",), str),
    "vbios": (("vbios_version",), str),
    "address": (("pci/pci_bus_id",), pci_address),
    "device_id": (("pci/pci_device_id",), _device_id),
    "memory_bytes": (("fb_memory_usage/total",), _mib),
    "memory_used_bytes": (("fb_memory_usage/used",), _mib),
    "bar1_bytes": (("bar1_memory_usage/total",), _mib),
    "persistence": (("persistence_mode",), _enabled),
    "ecc": (("ecc_mode/current_ecc",), _enabled),
    "ecc_pending": (("ecc_mode/pending_ecc",), _enabled),
    "remap_pending": (("remapped_rows/remapped_row_pending", "remapped_rows"), _enabled),
    "remap_failed": (("remapped_rows/remapped_row_failure", "remapped_rows"), _enabled),
    "retired_pending": (("retired_pages/pending_retirement", "retired_pages/pending_blacklist"), _enabled),
    "mig": (("mig_mode/current_mig",), _enabled),
    "mig_pending": (("mig_mode/pending_mig",), _enabled),
    "virtualization": (("gpu_virtualization_mode/virtualization_mode",), _virtualization),
    "compute_mode": (("compute_mode",), lambda word: word.lower()),
    "sm_mhz": (("clocks/sm_clock",), _whole("MHz")),
    "sm_max_mhz": (("max_clocks/sm_clock",), _whole("MHz")),
    "sm_app_mhz": (("applications_clocks/graphics_clock",), _whole("MHz")),
    "sm_app_default_mhz": (("default_applications_clocks/graphics_clock",), _whole("MHz")),
    "mem_mhz": (("clocks/mem_clock",), _whole("MHz")),
    "mem_max_mhz": (("max_clocks/mem_clock",), _whole("MHz")),
    "power_w": (
        (
            "gpu_power_readings/instant_power_draw",
            "gpu_power_readings/power_draw",
            "gpu_power_readings/average_power_draw",
            "power_readings/power_draw",
        ),
        _watts,
    ),
    "power_limit_w": (
        (
            "gpu_power_readings/current_power_limit",
            "power_readings/enforced_power_limit",
            "power_readings/power_limit",
        ),
        _watts,
    ),
    "power_default_w": (
        ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
        _watts,
    ),
    "power_max_w": (("gpu_power_readings/max_power_limit", "power_readings/max_power_limit"), _watts),
    "temperature_c": (("temperature/gpu_temp",), _whole("C")),
    "temperature_slowdown_c": (("temperature/gpu_temp_slow_threshold",), _whole("C")),
    "memory_temperature_c": (("temperature/memory_temp",), _whole("C")),
    "utilization_pct": (("utilization/gpu_util",), _whole("%")),
    "pcie_gen": (("pci/pci_gpu_link_info/pcie_gen/current_link_gen",), _whole("")),
    "pcie_gen_max": (("pci/pci_gpu_link_info/pcie_gen/max_link_gen",), _whole("")),
    "pcie_gen_device_max": (("pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",), _whole("")),
    "pcie_width": (("pci/pci_gpu_link_info/link_widths/current_link_width",), _whole("x")),
    "pcie_width_max": (("pci/pci_gpu_link_info/link_widths/max_link_width",), _whole("x")),
    "pcie_replays": (("pci/replay_counter",), _whole("")),
    "fabric_state": (("fabric/state",), _fabric_word),
    "fabric_status": (("fabric/status",), _fabric_word),
    "c2c": (("c2c_mode",), _enabled),
    "gsp_firmware": (("gsp_firmware_version",), str),
}


def _ecc(gpu: "Element", kind: str) -> Seen:
    """Uncorrected errors: v11 and later count SRAM and DRAM, v10 has a total of double-bit errors."""
    parts = [
        element
        for element in gpu.findall(f"ecc_errors/{kind}/*")
        if "uncorrectable" in element.tag and not element.tag.startswith("aggregate")
    ] or gpu.findall(f"ecc_errors/{kind}/double_bit/total")
    if not parts:
        return Seen(status="missing", detail=f"no <ecc_errors>/<{kind}> in this log")
    seen = [_convert(part.text or "", _whole("")) for part in parts]
    counted = [one for one in seen if one.status == "ok"]
    if not counted:
        return seen[0]
    raw = ", ".join(f"{part.tag} {(part.text or '').strip()[:40]}" for part in parts)
    return Seen(sum(one.value for one in counted), raw)


def _slowdown(gpu: "Element") -> Seen:
    """Newer logs give margins to a limit in place of temperatures. Temperature plus margin, minus the margin
    at which slowing starts, is that temperature: on an H200 it is to the degree what NVML answers."""
    tags = ("gpu_temp", "gpu_temp_tlimit", "gpu_temp_slow_tlimit_threshold")
    now, margin, slow = (_field(gpu, (f"temperature/{tag}",), _whole("C")) for tag in tags)
    for part in (slow, margin, now):
        if part.status != "ok":
            return part
    raw = f"gpu_temp {now.raw}, gpu_temp_tlimit {margin.raw}, gpu_temp_slow_tlimit_threshold {slow.raw}"
    return Seen(now.value + margin.value - slow.value, raw)


def _throttle(gpu: "Element") -> Seen:
    """`clocks_event_reasons` of v12 and later, `clocks_throttle_reasons` before."""
    for group, stem in (
        ("clocks_event_reasons", "clocks_event_reason_"),
        ("clocks_throttle_reasons", "clocks_throttle_reason_"),
    ):
        element = gpu.find(group)
        if element is None:
            continue
        words = {
            child.tag.removeprefix(stem): (child.text or "").strip().lower()
            for child in element
            if child.tag.startswith(stem)
        }
        told = {name: word for name, word in words.items() if word in ("active", "not active")}
        if not told:
            return Seen(status="unsupported", detail=f"<{group}> names no reason")
        known = [name for _, name in THROTTLE]
        active = [name for name in known if told.get(name) == "active"]
        active += [name for name, word in told.items() if word == "active" and name not in known]
        return Seen(active, ", ".join(f"{name}: {word}" for name, word in told.items()))
    return Seen(status="missing", detail="no <clocks_event_reasons> in this log")


_REASONS = {
    "sw_power_cap": "sw_power_cap",
    "sync_boost": "sync_boost",
    "sw_therm_slowdown": "sw_thermal_slowdown",
    "hw_therm_slowdown": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
}
"""Counters of `clocks_event_reasons_counters`, by the names that the reasons have elsewhere."""


def _event_reasons(gpu: "Element") -> Seen:
    group = gpu.find("clocks_event_reasons_counters")
    if group is None:
        return Seen(status="missing", detail="no <clocks_event_reasons_counters> in this log")
    seen = {
        name: _convert(group.findtext(f"clocks_event_reasons_counters_{tag}") or "", _whole("us"))
        for tag, name in _REASONS.items()
    }
    told = {name: one.value for name, one in seen.items() if one.status == "ok"}
    return Seen(told, str(told)) if told else next(iter(seen.values()))


def _mig_capable(gpu: "Element") -> Seen:
    text = gpu.findtext("mig_mode/current_mig")
    if text is None:
        return Seen(status="missing", detail="no <mig_mode> in this log")
    word = text.strip().lower()
    if word in ("enabled", "disabled"):
        return Seen(True, text.strip())
    # N/A is how nvidia-smi says that the GPU has no MIG.
    return Seen(False, text.strip()) if word == "n/a" else _convert(text, _enabled)


def _processes(gpu: "Element") -> Seen:
    """Compute processes (type C, or C+G); graphics ones hold no compute context."""
    group = gpu.find("processes")
    if group is None:
        return Seen(status="missing", detail="no <processes> in this log")
    status, word = said(group.text or "None")
    if not len(group) and status != "ok" and word != "empty":
        return Seen(raw=word, status=status, detail=f"nvidia-smi says `{word[:80]}`")
    found = []
    for info in group.findall("process_info"):
        pid = (info.findtext("pid") or "").strip()
        if "C" not in (info.findtext("type") or "C") or not re.fullmatch(r"\d{1,10}", pid):
            continue
        used = _convert(info.findtext("used_memory") or "", _mib)
        name = _convert(info.findtext("process_name") or "", program)
        found.append({"pid": int(pid), "name": name.value, "used_bytes": used.value})
    return Seen(found, f"{len(found)} compute processes")
