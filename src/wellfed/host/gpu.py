"""GPUs. NVIDIA's by NVML, else `nvidia-smi -q -x`, else the driver's `/proc` folder; AMD's by `amd-smi`, else
`rocm-smi`; when no tool answers, what the PCI bus shows."""

import re
from collections.abc import Callable
from typing import Any

from wellfed.host import amd, nvidia_xml, pci, sysfs, topology
from wellfed.host.door import Host, Reading
from wellfed.host.nvidia_xml import Seen
from wellfed.host.nvml_answers import nvml_device
from wellfed.host.parse import RAW_CHARS, colon_fields, gap, integer, known
from wellfed.host.sysfs import PCI_DEVICES
from wellfed.model.devices import Gpu
from wellfed.model.fact import Fact, Status

PROC = "/proc/driver/nvidia/gpus"
_FIELDS = tuple(field for field in Gpu.__struct_fields__ if field != "index")
_GPUS_MAX = 256
_NODES_MAX = 1 << 12

Device = dict[str, Seen]
Found = tuple[str, list[Device]]
"""Where it was seen (a command, NVML, a folder), and the GPUs in their own order."""


def read_gpu(host: Host) -> list[Fact]:
    """Facts `gpus[0].name` and so on: one for each field of each GPU, a gap where a field is not told."""
    found: list[tuple[str, Device]] = []
    notes: list[Fact] = []
    for vendor, ways in (("nvidia", NVIDIA_WAYS), ("amd", AMD_WAYS)):
        for way in ways:
            source, devices, note = way(host)
            if note:
                notes.append(note)
            if devices:
                found += [(source, _placed(host, vendor, device)) for device in devices[:_GPUS_MAX]]
                break
    if not found:
        source, devices = _from_pci(host)
        found = [(source, device) for device in devices]
    if not found:
        return [_none(host, notes)]
    facts = [fact for i, (source, device) in enumerate(found) for fact in _facts(host, i, source, device)]
    # What was lost of the list as a whole; the GPUs that could be read stay.
    return facts + [note for note in notes if note.status == "error"][:1]


def _facts(host: Host, index: int, source: str, device: Device) -> list[Fact]:
    device = {**device, "catalog": _catalog(device)}
    facts = [known(f"gpus[{index}].index", index, source)]
    for field in _FIELDS:
        seen = device.get(field) or Seen(status="missing", detail=f"{source} does not tell")
        raw = seen.raw[:RAW_CHARS] if seen.raw else None
        value = seen.value if seen.status == "ok" else None
        status: Status = "unsupported" if seen.status == "ok" and value is None else seen.status
        facts.append(
            Fact(
                key=f"gpus[{index}].{field}",
                value=value,
                source=source,
                raw=raw,
                status=status,
                detail=seen.detail,
            )
        )
    return facts


def _none(host: Host, notes: list[Fact]) -> Fact:
    """Why there is no GPU: the bus shows none, or nobody could look."""
    wrong = next((note for note in notes if note.status in ("error", "denied")), None)
    if wrong is None and host.listdir(PCI_DEVICES):
        return known("gpus", [], PCI_DEVICES, detail="no GPU of NVIDIA or AMD on the PCI bus")
    reason = wrong or next(iter(notes), None)
    if reason is None:
        return gap("gpus", PCI_DEVICES, "missing", "no PCI devices are listed")
    return gap("gpus", reason.source, reason.status, reason.detail)


def _catalog(device: Device) -> Seen:
    """The catalogue's key for this GPU, by name, device id and memory."""
    from wellfed.catalog import find_gpu

    name, device_id, memory = (_value(device, field) for field in ("name", "device_id", "memory_bytes"))
    spec = find_gpu(name=name, device_id=device_id, memory_bytes=memory) if name or device_id else None
    inner = re.search(r"\[([^\]]+)\]$", name or "")
    if spec is None and inner:  # rocm-smi: `Arcturus GL-XL [Instinct MI100]`
        spec = find_gpu(name=inner.group(1), memory_bytes=memory)
    if spec is None:
        return Seen(
            status="unsupported", detail=f"the catalogue has no {name or device_id or 'nameless GPU'}"
        )
    return Seen(spec.key, name or device_id)


def _value(device: Device, field: str) -> Any:
    seen = device.get(field)
    return seen.value if seen and seen.status == "ok" else None


def _placed(host: Host, vendor: str, device: Device) -> Device:
    """With vendor, and id, NUMA node and CPUs of sysfs where the tool did not tell them."""
    address = _value(device, "address")
    placed = {**device, "vendor": Seen(vendor)}
    if not isinstance(address, str):
        return placed
    number = (
        sysfs.word(host, f"{PCI_DEVICES}/{address}/device") if _value(device, "device_id") is None else None
    )
    if number:
        placed["device_id"] = _sysfs_id(vendor, number)
    if _value(device, "numa_node") is None:
        node = sysfs.numa_node(host, address)
        if node is not None:
            placed["numa_node"] = Seen(node, f"{PCI_DEVICES}/{address}/numa_node: {node}")
    if _value(device, "cpu_affinity") is None:
        cpus = sysfs.local_cpus(host, address)
        if cpus:
            placed["cpu_affinity"] = Seen(cpus, f"{PCI_DEVICES}/{address}/local_cpulist")
    return placed


def _sysfs_id(vendor: str, number: str) -> Seen:
    own = pci.NVIDIA if vendor == "nvidia" else pci.AMD
    return _convert(number, lambda text: pci.pci_id(int(text, 16) << 16 | int(own, 16)))


Way = Callable[[Host], tuple[str, list[Device], Fact | None]]


def _by_nvml(host: Host) -> tuple[str, list[Device], Fact | None]:
    answer = host.nvml()
    status, detail = answer.get("status"), answer.get("detail")
    if status != "ok":
        kind: Status = "missing" if status == "missing" else "error"
        return "NVML", [], gap("gpus", "NVML", kind, str(detail))
    listed = answer.get("devices")
    system = answer.get("system")
    driver = system.get("driver_version") if isinstance(system, dict) else None
    devices = [
        nvml_device(device, driver)
        for device in (listed if isinstance(listed, list) else [])
        if isinstance(device, dict)
    ]
    return "NVML", devices, None if devices else gap("gpus", "NVML", "missing", "NVML knows no GPU")


def _by_xml(host: Host) -> tuple[str, list[Device], Fact | None]:
    reading = host.run("nvidia-smi-xml")
    if reading.status != "ok" or not reading.text:
        return reading.source, [], gap("gpus", reading.source, reading.status, reading.detail)
    log = nvidia_xml.parse_log(reading.text)
    topo, links = host.run("nvidia-smi-topo"), host.run("nvidia-smi-nvlink")
    speeds = topology.parse_nvlink(links.text) if links.text else {}
    devices = [
        {**gpu, **_near(topo, index), **_links(speeds.get(index))} for index, gpu in enumerate(log.gpus)
    ]
    note = gap("gpus", reading.source, "error", log.note) if log.note else None
    return reading.source, devices, note


def _near(topo: Reading, index: int) -> Device:
    """CPUs and NUMA node near the GPU by `nvidia-smi topo -m`."""
    row = topology.near(topo, index)
    device: Device = {}
    if row and row.cpus:
        device["cpu_affinity"] = Seen(row.cpus, topo.source)
    if row and row.nodes and len(row.nodes) == 1 and row.nodes[0] < _NODES_MAX:
        device["numa_node"] = Seen(row.nodes[0], topo.source)
    return device


def _links(speeds: list[float | None] | None) -> Device:
    if not speeds:
        return {}
    active = sum(speed is not None for speed in speeds)
    raw = f"{active} of {len(speeds)} links have a speed in `nvidia-smi nvlink -s`"
    return {"nvlinks_active": Seen(active, raw), "nvlinks_total": Seen(len(speeds), raw)}


def _by_proc(host: Host) -> tuple[str, list[Device], Fact | None]:
    loaded = host.read("/proc/driver/nvidia/version")
    driver = driver_version(loaded.text or "")
    devices = []
    for folder in host.listdir(PROC)[:_GPUS_MAX]:
        fields = colon_fields(host.read(f"{PROC}/{folder}/information").text or "")
        seen = {
            field: Seen(fields[label], fields[label])
            for field, label in _PROC_FIELDS.items()
            if fields.get(label) and "?" not in fields[label] and fields[label] != "N/A"
        }
        if driver:
            seen["driver"] = Seen(driver, loaded.text)
        try:
            seen["address"] = Seen(pci.pci_address(fields.get("Bus Location", folder)))
        except ValueError:
            continue
        devices.append(seen)
    return PROC, devices, None if devices else gap("gpus", PROC, "missing", "no NVIDIA driver is loaded")


def driver_version(text: str) -> str | None:
    """The driver's version in `/proc/driver/nvidia/version`."""
    match = re.search(r"NVRM version:.*?\s(\d{2,4}\.\d+(?:\.\d+)?)\s", f"{text} ")
    return match.group(1) if match else None


_PROC_FIELDS = {"name": "Model", "uuid": "GPU UUID", "vbios": "Video BIOS", "gsp_firmware": "GPU Firmware"}
"""Labels in `/proc/driver/nvidia/gpus/*/information`; a UUID not yet known is full of question marks."""


def _by_amd_smi(host: Host) -> tuple[str, list[Device], Fact | None]:
    static = host.run("amd-smi-static")
    if static.status != "ok" or not static.text:
        return static.source, [], gap("gpus", static.source, static.status, static.detail)
    metric, process = host.run("amd-smi-metric"), host.run("amd-smi-process")
    devices = list(amd.smi_gpus(static.text, metric.text, process.text))
    note = None if devices else gap("gpus", static.source, "error", "no GPU in its JSON")
    return static.source, devices, note


def _by_rocm_smi(host: Host) -> tuple[str, list[Device], Fact | None]:
    reading = host.run("rocm-smi")
    if reading.status != "ok" or not reading.text:
        return reading.source, [], gap("gpus", reading.source, reading.status, reading.detail)
    devices = list(amd.rocm_gpus(reading.text))
    note = None if devices else gap("gpus", reading.source, "error", "no card in its JSON")
    return reading.source, devices, note


NVIDIA_WAYS: tuple[Way, ...] = (_by_nvml, _by_xml, _by_proc)
AMD_WAYS: tuple[Way, ...] = (_by_amd_smi, _by_rocm_smi)


def _from_pci(host: Host) -> Found:
    """GPUs that the bus shows though no tool knows them: the driver is missing, or broken."""
    source, on_bus = pci.gpus_on_bus(host)
    devices = []
    for address, vendor, number in on_bus[:_GPUS_MAX]:
        base = f"{PCI_DEVICES}/{address}"
        device: Device = {"address": Seen(address, address)}
        if number:
            device["device_id"] = _sysfs_id("nvidia" if vendor == pci.NVIDIA else "amd", number)
        for field, file, read in _SYSFS_FIELDS:
            text = host.read(f"{base}/{file}", 256).text
            if text and text.strip():
                device[field] = _convert(text.strip(), read)
        devices.append(_placed(host, "nvidia" if vendor == pci.NVIDIA else "amd", device))
    return source, devices


# amdgpu tells more in sysfs than other drivers.
_SYSFS_FIELDS: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("name", "product_name", str),
    ("uuid", "unique_id", str),
    ("vbios", "vbios_version", str),
    ("memory_bytes", "mem_info_vram_total", integer),
    ("memory_used_bytes", "mem_info_vram_used", integer),
    ("bar1_bytes", "mem_info_vis_vram_total", integer),
    ("utilization_pct", "gpu_busy_percent", integer),
)


def _convert(text: str, read: Callable[[str], Any]) -> Seen:
    try:
        return Seen(read(text), text)
    except ValueError as error:
        return Seen(raw=text, status="error", detail=str(error))
