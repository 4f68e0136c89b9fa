"""Which catalogue entry a device is. Exact names and ids only: a wrong entry is worse than none."""

import re

from wellfed.catalog.load import Head, body, heads
from wellfed.catalog.spec import GpuSpec

# What drivers report of the memory on the box: GDDR with ECC gives a sixteenth to the check bits (A10: 0.937),
# B300 keeps up to 7 % back; HBM parts report 0.995 to 1.0.
_REPORTED_LOW, _REPORTED_HIGH = 0.90, 1.02
_VENDOR_WORD = re.compile(r"^(nvidia|amd)\s+")
_SLICE = re.compile(r"\bmig\b|^grid\b|\bvgpu\b", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s_/]+")


def find_gpu(
    name: str | None = None, device_id: str | int | None = None, memory_bytes: int | None = None
) -> GpuSpec | None:
    """The entry of a device, or None when it is not known or not certain.

    `name` as the driver prints it (`NVIDIA A100-SXM4-80GB`; the leading `NVIDIA` or `AMD` may be missing, as
    with old drivers). `device_id` as `10de:2335`, or the combined number of NVML (0x233510de). `memory_bytes`
    is the total the driver reports, of one device. When name and id are both known they must agree; an id
    alone is enough, also under a name not seen before. A slice of a GPU (MIG, vGPU) is not that GPU."""
    if name is not None and _SLICE.search(name):
        return None
    named = _by_name(name) if name else frozenset()
    identified = _by_device_id(device_id) if device_id is not None else frozenset()
    keys = named & identified if named and identified else named or identified
    specs = [body(key) for key in sorted(keys)]
    if memory_bytes is not None:
        specs = [spec for spec in specs if _memory_fits(spec, memory_bytes)]
    return specs[0] if len(specs) == 1 else None


def gpu(key: str) -> GpuSpec | None:
    """The entry with that key or alias (`h100`, `H100-SXM-80GB`, `h200_sxm`), however it is spelt."""
    found = [head.key for head in heads().values() if slug(key) in (head.key, *head.aliases)]
    return body(found[0]) if len(found) == 1 else None


def gpus() -> tuple[GpuSpec, ...]:
    """All entries, by key."""
    return tuple(body(key) for key in heads())


def search_gpus(text: str) -> tuple[str, ...]:
    """Keys whose key, alias or driver name contains the text: for showing a person, not for deciding."""
    wanted = slug(text)
    return tuple(key for key, head in heads().items() if any(wanted in slug(word) for word in _words(head)))


def slug(text: str) -> str:
    """Lower case, separators as one hyphen."""
    return _SEPARATORS.sub("-", text.strip().casefold())


def normal_device_id(device_id: str | int) -> str | None:
    """`vendor:device` in lower-case hex, or None when it is neither that nor NVML's combined number."""
    if isinstance(device_id, str):
        text = device_id.strip().casefold()
        if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{4}", text):
            return text
        if not re.fullmatch(r"(0x)?[0-9a-f]{8}", text):
            return None
        device_id = int(text, 16)
    return f"{device_id & 0xFFFF:04x}:{device_id >> 16 & 0xFFFF:04x}"


def _by_name(name: str) -> frozenset[str]:
    wanted = _normal_name(name)
    return frozenset(
        key
        for key, head in heads().items()
        if wanted and wanted in {_normal_name(known) for known in head.names}
    )


def _by_device_id(device_id: str | int) -> frozenset[str]:
    wanted = normal_device_id(device_id)
    return frozenset(key for key, head in heads().items() if wanted in head.device_ids)


def _normal_name(name: str) -> str:
    return _VENDOR_WORD.sub("", " ".join(name.casefold().split()))


def _memory_fits(spec: GpuSpec, memory_bytes: int) -> bool:
    nominal = spec.numbers.memory_gb.value * 2**30 / spec.devices
    return _REPORTED_LOW * nominal <= memory_bytes <= _REPORTED_HIGH * nominal


def _words(head: Head) -> tuple[str, ...]:
    return (head.key, *head.aliases, *head.names)
