"""PCI devices that matter to a GPU's feed: GPUs, NICs, NVMe disks, NVSwitches, and the bridges above them.

From sysfs; access control (ACS) only from `lspci -vvv`, which root sees in full. Without sysfs `lspci`
serves for the rest too.
"""

import re
from collections.abc import Iterator
from typing import Any

from wellfed.host.door import Host, Reading
from wellfed.host.parse import bracketed, fact, gap, known
from wellfed.host.sysfs import PCI_DEVICES, last_word, local_cpus, numa_node, number, pci_path, word
from wellfed.model.fact import Fact

NVIDIA = "0x10de"
AMD = "0x1002"
_VIRTIO = "0x1af4"
_NVSWITCH_CLASS = "0x0680"
# Display controllers, and processing accelerators (MI300X and others).
_GPU_CLASSES = ("0x03", "0x12")
_NIC_CLASS = "0x02"
_NVME_CLASS = "0x0108"
_BRIDGE_CLASS = "0x0604"
_ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_DEVICES_MAX = 4096

# `19:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330] (rev a1)`; -nn and -D are optional.
_LSPCI_HEAD = re.compile(
    r"^((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:\[]+?)(?: \[([0-9a-f]{4})\])?: (.*)$"
)
_LSPCI_IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\](?!.*\[[0-9a-f]{4}:[0-9a-f]{4}\])")
_LSPCI_LINK = re.compile(r"Speed ([\d.]{1,5})GT/s.*?Width x(\d{1,2})")
_LSPCI_BUS = re.compile(r"Bus: primary=\w+, secondary=([0-9a-f]{2})")
_LSPCI_CLASSES = {
    "VGA compatible controller": "0x0300",
    "3D controller": "0x0302",
    "Display controller": "0x0380",
    "Processing accelerators": "0x1200",
    "Ethernet controller": "0x0200",
    "Infiniband controller": "0x0207",
    "Network controller": "0x0280",
    "Non-Volatile memory controller": "0x0108",
    "PCI bridge": "0x0604",
    "Bridge": "0x0680",
}
_LSPCI_VENDORS = {"NVIDIA": NVIDIA, "Advanced Micro Devices": AMD, "Mellanox": "0x15b3", "Red Hat": _VIRTIO}
_TOLD = (
    "acs_redirect",
    "max_payload",
    "max_payload_capable",
    "max_read_request",
    "relaxed_ordering",
    "extended_tags",
    "ten_bit_tags",
    "ats_enabled",
    "aspm",
)
"""Fields that only `lspci -vvv` tells, of root's."""
_LSPCI_ASPM = re.compile(r"ASPM (Disabled|L0s L1|L0s|L1)(?: Enabled)?;")
_LSPCI_SIZES = re.compile(r"MaxPayload (\d{2,4}) bytes, MaxReadReq (\d{2,4}) bytes")
_LSPCI_FLAGS = re.compile(r"RlxdOrd([+-]) ExtTag([+-])")
_LSPCI_CAN_TAG = re.compile(r"ExtTag([+-]) ")
_LSPCI_TEN_BIT = re.compile(r"10BitTagReq([+-])")
_LSPCI_PARTS = ("DevCap", "DevCtl", "DevCap2", "DevCtl2")
_UNSET = 0x20000000
_MEMORY = 0x200
"""Bits of a window in sysfs `resource`: it has no address, it is memory (`include/linux/ioport.h`)."""
_REDIRECTS = ("ReqRedir+", "CmpltRedir+", "UpstreamFwd+")
"""ACS controls that send peer-to-peer traffic up to the root complex."""


def pci_address(text: str) -> str:
    """`00000000:0F:00.0` or `0f:00.0` as sysfs writes it: `0000:0f:00.0`. Raises ValueError."""
    match = re.fullmatch(
        r"\s*(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])\s*", text, re.IGNORECASE
    )
    if not match:
        raise ValueError("no PCI address")
    domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def pci_id(number: int) -> str:
    """NVIDIA's combined number, the device in the upper half, as `vendor:device`: `10de:2335`. Raises
    ValueError."""
    if not 0 < number < 1 << 32:
        raise ValueError("no PCI id")
    return f"{number & 0xFFFF:04x}:{number >> 16:04x}"


def read_pci(host: Host) -> list[Fact]:
    """The fact `pci`, a gap for each device that was not seen whole, and the policy for sleeping links."""
    policy = fact("kernel.aspm_policy", host.read("/sys/module/pcie_aspm/parameters/policy"), bracketed)
    return [policy, *_devices(host)]


def _devices(host: Host) -> list[Fact]:
    names = host.listdir(PCI_DEVICES)[:_DEVICES_MAX]
    if not names:
        return _from_lspci(host.run("lspci"))
    devices = [_device(host, address, klass) for address, klass in _wanted(host, names)]
    counted = list(_error_gaps(host, devices))
    if not any(is_gpu(device) for device in devices):
        return [known("pci", devices, PCI_DEVICES, _summary(devices)), *counted]
    reading = host.run("lspci")
    listed = parse_lspci(reading.text) if reading.status == "ok" and reading.text else {}
    gaps = counted
    for index, device in enumerate(devices):
        told = listed.get(device["address"], {})
        device.update((field, told.get(field)) for field in _TOLD)
        if _is_bridge(device):
            if device["acs_redirect"] is None:
                gaps.append(
                    _told_gap(f"pci[{index}].acs_redirect", reading, told, "no ACS capability is listed")
                )
        elif not device["is_virtual"]:
            gaps += [
                _told_gap(f"pci[{index}].{field}", reading, told, "it has no such capability")
                for field in _asked(device)
                if device[field] is None
            ]
        if is_gpu(device):
            windows = host.read(f"{PCI_DEVICES}/{device['address']}/resource")
            device["bars_unplaced"] = _unplaced(windows.text)
            if windows.text is None:
                key = f"pci[{index}].bars_unplaced"
                gaps.append(gap(key, windows.source, windows.status, windows.detail))
    return [known("pci", devices, PCI_DEVICES, _summary(devices)), *gaps]


def _asked(device: dict[str, Any]) -> tuple[str, ...]:
    """What of the control registers matters on this device."""
    klass = device["class_code"] or ""
    if is_gpu(device):
        return (
            "max_payload",
            "extended_tags",
            "aspm",
            *(("ten_bit_tags",) if device["vendor"] == AMD else ()),
        )
    if klass.startswith(_NIC_CLASS):
        return ("max_payload", "max_read_request", "relaxed_ordering", "extended_tags", "aspm", "ats_enabled")
    return ()


def _unplaced(text: str | None) -> int | None:
    """Memory windows without an address, of the first six lines `start end flags`: those of the device itself. None when
    they say nothing. A window for ports may be left out without harm."""
    if text is None:
        return None
    found = [
        re.fullmatch(r"0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16})", line.strip())
        for line in text.splitlines()[:6]
    ]
    windows = [(int(line[1], 16), int(line[2], 16), int(line[3], 16)) for line in found if line]
    if len(windows) < 6:
        return None
    return sum(
        bool(flags & _MEMORY) and (bool(flags & _UNSET) or start == 0 < end) for start, end, flags in windows
    )


def gpus_on_bus(host: Host) -> tuple[str, list[tuple[str, str, str | None]]]:
    """Where it was looked, and (address, vendor, device) of the GPUs on the bus, ids as `0x10de`."""
    names = host.listdir(PCI_DEVICES)[:_DEVICES_MAX]
    found = []
    for address in names:
        base = f"{PCI_DEVICES}/{address}"
        if (word(host, f"{base}/class") or "").startswith(_GPU_CLASSES):
            vendor = word(host, f"{base}/vendor")
            if vendor in (NVIDIA, AMD):
                found.append((address, vendor, word(host, f"{base}/device")))
    if names:
        return PCI_DEVICES, found
    reading = host.run("lspci")
    listed = parse_lspci(reading.text or "") if reading.status == "ok" else {}
    return reading.source, [
        (at, told["vendor"], told["device"]) for at, told in listed.items() if is_gpu(told)
    ]


def is_gpu(device: dict[str, Any]) -> bool:
    """Whether a device of the list is a GPU of NVIDIA or AMD."""
    return (device["class_code"] or "").startswith(_GPU_CLASSES) and device["vendor"] in (NVIDIA, AMD)


def _is_bridge(device: dict[str, Any]) -> bool:
    return (device["class_code"] or "").startswith(_BRIDGE_CLASS)


def _wanted(host: Host, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(address, class) of the devices to read, bridges above them included, in bus order."""
    classes = {
        name: (host.read(f"{PCI_DEVICES}/{name}/class", 64).text or "").strip().lower()
        for name in names
        if _ADDRESS.match(name)
    }
    chosen = {name for name, klass in classes.items() if _matters(host, name, klass)}
    for name in tuple(chosen):
        chosen.update(bridge for bridge in pci_path(host, f"{PCI_DEVICES}/{name}") if bridge in classes)
    yield from ((name, classes[name]) for name in sorted(chosen))


def _matters(host: Host, name: str, klass: str) -> bool:
    if klass.startswith((_NIC_CLASS, _NVME_CLASS)):
        return True
    if klass.startswith((*_GPU_CLASSES, _NVSWITCH_CLASS)):
        vendor = word(host, f"{PCI_DEVICES}/{name}/vendor")
        return vendor == NVIDIA or (vendor == AMD and klass.startswith(_GPU_CLASSES))
    return False


def _device(host: Host, address: str, klass: str) -> dict[str, Any]:
    base = f"{PCI_DEVICES}/{address}"
    path = pci_path(host, base)
    vendor = word(host, f"{base}/vendor")
    return {
        "address": address,
        "vendor": vendor,
        "device": word(host, f"{base}/device"),
        "class_code": klass or None,
        "driver": last_word(host.link(f"{base}/driver")),
        "numa_node": numa_node(host, address),
        "local_cpus": local_cpus(host, address),
        "speed_gts": _speed(word(host, f"{base}/current_link_speed")),
        "speed_max_gts": _speed(word(host, f"{base}/max_link_speed")),
        "width": _lanes(number(host, f"{base}/current_link_width")),
        "width_max": _lanes(number(host, f"{base}/max_link_width")),
        "parent": path[-2] if len(path) > 1 else None,
        "power_control": word(host, f"{base}/power/control"),
        **{name: _aer(host.read(f"{base}/{file}"), total) for name, (file, total) in _ERRORS.items()},
        **dict.fromkeys(_TOLD),
        "is_virtual": vendor == _VIRTIO or host.link(f"{base}/physfn") is not None,
    }


def _speed(text: str | None) -> float | None:
    """`32.0 GT/s PCIe`; None for `Unknown`."""
    match = re.match(r"(\d{1,3}(?:\.\d)?)\s*GT/s", text or "")
    return float(match.group(1)) if match else None


def _lanes(count: int | None) -> int | None:
    """0 is a link that is down, 63 and 255 are registers of a device that does not answer."""
    return count if count in (1, 2, 4, 8, 12, 16, 32) else None


def _error_gaps(host: Host, devices: list[dict[str, Any]]) -> Iterator[Fact]:
    """Why the errors of a device's link are not known: mostly the firmware keeps the counts, or a guest is shown none."""
    for index, device in enumerate(devices):
        if _is_bridge(device) or device["is_virtual"]:
            continue
        for name, (file, _) in _ERRORS.items():
            if device[name] is None:
                reading = host.read(f"{PCI_DEVICES}/{device['address']}/{file}")
                status = "error" if reading.status == "ok" else reading.status
                yield gap(f"pci[{index}].{name}", reading.source, status, reading.detail)


_ERRORS = {
    "aer_correctable": ("aer_dev_correctable", "TOTAL_ERR_COR"),
    "aer_nonfatal": ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL"),
    "aer_fatal": ("aer_dev_fatal", "TOTAL_ERR_FATAL"),
}
"""File and line of each count of errors of a link."""


def _aer(reading: Reading, total: str) -> int | None:
    for line in (reading.text or "").splitlines():
        key, _, count = line.strip().rpartition(" ")
        if key == total and count.isascii() and count.isdigit():
            return int(count[:18])
    return None


def _told_gap(key: str, reading: Reading, told: dict[str, Any], otherwise: str) -> Fact:
    if reading.status != "ok":
        return gap(key, reading.source, reading.status, reading.detail)
    if told.get("denied"):
        return gap(key, reading.source, "denied", "capabilities are shown to root only")
    return gap(key, reading.source, "unsupported", otherwise)


def _summary(devices: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{device['address']} {device['vendor']}:{device['device']} class {device['class_code']} "
        f"{device['driver'] or 'no driver'} under {device['parent'] or 'root'}"
        for device in devices
    )


def _from_lspci(reading: Reading) -> list[Fact]:
    if reading.status != "ok" or not reading.text:
        return [
            gap(
                "pci",
                PCI_DEVICES,
                "missing",
                f"no devices are listed, and `{reading.source}`: {reading.detail}",
            )
        ]
    listed = parse_lspci(reading.text)
    buses = {told["secondary"]: address for address, told in listed.items() if told["secondary"]}
    chosen: set[str] = set()
    for address, told in listed.items():
        if _lspci_matters(told):
            chosen.update(_lspci_path(address, buses))
    devices = [
        {"address": address, "parent": buses.get(address[:-5]), "local_cpus": None}
        | {
            field: value
            for field, value in listed[address].items()
            if field not in ("secondary", "denied", "part", "can")
        }
        for address in sorted(chosen)
        if address in listed
    ]
    return [known("pci", devices, reading.source, _summary(devices))]


def _lspci_matters(told: dict[str, Any]) -> bool:
    klass, vendor = str(told["class_code"]), told["vendor"]
    if klass.startswith((_NIC_CLASS, _NVME_CLASS)):
        return True
    is_gpu_class = klass.startswith(_GPU_CLASSES)
    return (vendor == NVIDIA and klass.startswith(_NVSWITCH_CLASS)) or (
        is_gpu_class and vendor in (NVIDIA, AMD)
    )


def _lspci_path(address: str, buses: dict[str, str]) -> list[str]:
    path = [address]
    while len(path) < 32:
        above = buses.get(path[-1][:-5])
        if above is None or above in path:
            break
        path.append(above)
    return path


def parse_lspci(text: str) -> dict[str, dict[str, Any]]:
    """Devices of `lspci -vvv` by address. `secondary` is the bus behind a bridge (`0000:19`), `denied` says
    that the capabilities were hidden."""
    devices: dict[str, dict[str, Any]] = {}
    current: dict[str, Any] | None = None
    address = ""
    for line in text.splitlines():
        head = _LSPCI_HEAD.match(line)
        if head and len(devices) < _DEVICES_MAX:
            address = pci_address(head.group(1))
            current = devices.setdefault(address, _lspci_device(head))
        elif current is not None:
            _lspci_line(current, address, line.strip())
    return devices


def _lspci_device(head: re.Match[str]) -> dict[str, Any]:
    ids = _LSPCI_IDS.search(head.group(4))
    klass = f"0x{head.group(3)}" if head.group(3) else _LSPCI_CLASSES.get(head.group(2))
    vendor = f"0x{ids.group(1)}" if ids else None
    for name, code in _LSPCI_VENDORS.items():
        vendor = vendor or (code if head.group(4).startswith(name) else None)
    device = ids.group(2) if ids else None
    if device is None:
        bare = re.search(r"Device ([0-9a-f]{4})\b", head.group(4))
        device = bare.group(1) if bare else None
    return {
        "vendor": vendor,
        "device": f"0x{device}" if device else None,
        "class_code": klass,
        "driver": None,
        "numa_node": None,
        "speed_gts": None,
        "speed_max_gts": None,
        "width": None,
        "width_max": None,
        **dict.fromkeys(_TOLD),
        "is_virtual": vendor == _VIRTIO or "Virtual Function" in head.group(4),
        "bars_unplaced": None,
        "secondary": None,
        "denied": False,
        "part": "",
        "can": set(),
    }


def _lspci_line(device: dict[str, Any], address: str, line: str) -> None:
    label, _, rest = line.partition(":")
    if label in _LSPCI_PARTS:
        device["part"] = label
    if device["part"]:
        _lspci_control(device, line, device["part"])
    link = _LSPCI_LINK.search(rest) if label in ("LnkSta", "LnkCap") else None
    if link:
        tail = "" if label == "LnkSta" else "_max"
        device[f"speed{tail}_gts"] = float(link.group(1).strip(".") or 0) or None
        device[f"width{tail}"] = _lanes(int(link.group(2)))
    elif label == "LnkCtl" and (aspm := _LSPCI_ASPM.search(rest)):
        device["aspm"] = "disabled" if aspm[1] == "Disabled" else aspm[1]
    elif label == "ATSCtl":
        device["ats_enabled"] = "Enable+" in rest
    elif label == "ACSCtl":
        device["acs_redirect"] = any(word in rest.split() for word in _REDIRECTS)
    elif label == "NUMA node":
        node = rest.strip()
        device["numa_node"] = int(node) if node.isascii() and node.isdigit() and len(node) < 9 else None
    elif label == "Kernel driver in use":
        device["driver"] = rest.strip() or None
    elif label == "Bus":
        bus = _LSPCI_BUS.match(line)
        device["secondary"] = f"{address.split(':')[0]}:{bus.group(1)}" if bus else None
    elif label == "Capabilities" and "access denied" in rest:
        device["denied"] = True
    elif re.fullmatch(r"Region [0-5]", label) and is_gpu(device):
        device["bars_unplaced"] = (device["bars_unplaced"] or 0) + ("Memory at <unassigned>" in rest)


def _lspci_control(device: dict[str, Any], line: str, part: str) -> None:
    """The control registers: `DevCap` and `DevCap2` say what the device can, `DevCtl` and `DevCtl2` what is on. What it
    cannot is not off, but None."""
    if part == "DevCap":
        if most := re.search(r"MaxPayload (\d{2,4}) bytes", line):
            device["max_payload_capable"] = int(most[1])
        elif (tags := _LSPCI_CAN_TAG.match(line)) and tags[1] == "+":
            device["can"].add("extended_tags")
    elif part == "DevCtl":
        if sizes := _LSPCI_SIZES.match(line):
            device["max_payload"], device["max_read_request"] = int(sizes[1]), int(sizes[2])
        elif flags := _LSPCI_FLAGS.match(line):
            device["relaxed_ordering"] = flags[1] == "+"
            if "extended_tags" in device["can"]:
                device["extended_tags"] = flags[2] == "+"
    elif ten_bit := _LSPCI_TEN_BIT.search(line):
        if part == "DevCap2" and ten_bit[1] == "+":
            device["can"].add("ten_bit_tags")
        elif part == "DevCtl2" and "ten_bit_tags" in device["can"]:
            device["ten_bit_tags"] = ten_bit[1] == "+"
