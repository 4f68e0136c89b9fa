"""Cases of the firmware's checks: bad machine, good machine, severity of the bad one."""

from typing import Any

_MI300X = {"gpus": [{"vendor": "amd", "name": "AMD Instinct MI300X"}]}
_BIG = {"possible": 384, "smt": "on"}
_ON_BUS = {
    "address": "0000:0f:00.0", "vendor": "0x1002", "class_code": "0x120000", "is_virtual": False, "speed_max_gts": 32.0,
    "extended_tags": True,
}  # fmt: skip

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "BIOS02": ({**_MI300X, "cpu": {"smt": "on"}}, {**_MI300X, "cpu": {"smt": "off"}}, "info"),
    "BIOS04": (
        {"cpu": {"rapl_limit_w": 250.0, "rapl_max_w": 350.0}},
        {"cpu": {"rapl_limit_w": 350.0, "rapl_max_w": 350.0}},
        "info",
    ),
    "BIOS07": (
        {"cpu": {**_BIG, "logical": 255, "offline": [255]}, "kernel": {"iommu_groups": 0}},
        {"cpu": {**_BIG, "logical": 192, "offline": []}, "kernel": {"iommu_groups": 0}},
        "warning",
    ),
    "BIOS08": (
        {"pci": [{**_ON_BUS, "ten_bit_tags": False}]},
        {"pci": [{**_ON_BUS, "ten_bit_tags": True}]},
        "info",
    ),
    "BIOS09": (
        {"kernel": {"events": {"memory-encryption": 1}}},
        {"kernel": {"events": {"memory-encryption": 0}}},
        "info",
    ),
    "BIOS11": (
        {"kernel": {"mitigations": {"srbds": "Vulnerable: No microcode", "meltdown": "Not affected"}}},
        {"kernel": {"mitigations": {"srbds": "Mitigation: Microcode", "meltdown": "Not affected"}}},
        "info",
    ),
}
WORDS = {"smt": ("on", "off", "forceoff", "notsupported"), "name": ("AMD Instinct MI300X",)}
KEYS = {"events": ("memory-encryption",)}
