"""`/proc/cpuinfo`, which every architecture prints differently."""

import re

from wellfed.host.parse import MAX_CPUS, plain
from wellfed.model.base import Value

# Implementer and part numbers: Linux, arch/arm64/include/asm/cputype.h.
ARM_IMPLEMENTERS = {
    0x41: "ARM",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "APM",
    0x51: "Qualcomm",
    0x61: "Apple",
    0x6D: "Microsoft",
    0xC0: "Ampere",
}
ARM_PARTS = {
    0xD07: "Cortex-A57",
    0xD08: "Cortex-A72",
    0xD0C: "Neoverse-N1",
    0xD40: "Neoverse-V1",
    0xD42: "Cortex-A78AE",
    0xD46: "Cortex-A510",
    0xD47: "Cortex-A710",
    0xD49: "Neoverse-N2",
    0xD4D: "Cortex-A715",
    0xD4E: "Cortex-X3",
    0xD4F: "Neoverse-V2",
    0xD81: "Cortex-A720",
    0xD82: "Cortex-X4",
    0xD83: "Neoverse-V3AE",
    0xD84: "Neoverse-V3",
    0xD85: "Cortex-X925",
    0xD87: "Cortex-A725",
    0xD8E: "Neoverse-N3",
}


class CpuInfo(Value, frozen=True, kw_only=True):
    """`ids` are the online CPUs; `rows` are the lines of each; `rest` are lines of no particular CPU."""

    ids: tuple[int, ...] = ()
    rows: dict[int, dict[str, str]] = {}
    rest: dict[str, str] = {}

    def first(self, *names: str) -> str | None:
        """The first of these fields that any CPU or the rest has, in this order of names."""
        for name in names:
            for row in (*self.rows.values(), self.rest):
                if row.get(name):
                    return row[name]
        return None


def parse_cpuinfo(text: str) -> CpuInfo:
    """One row a CPU. A field that stands before the first `processor` line, or after a blank line without
    one (POWER prints the machine there), belongs to the rest."""
    rows: dict[int, dict[str, str]] = {}
    rest: dict[str, str] = {}
    row = rest
    for line in text.replace("\0", "").splitlines():
        if not line.strip():
            row = rest
            continue
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        number = re.fullmatch(r"processor\s+(\d+)", key)  # s390: `processor 3: version = FF`
        if number and len(rows) < MAX_CPUS:
            row = rows.setdefault(int(number.group(1)), {})
            row.update(re.findall(r"(\w+)\s*=\s*(\w+)", value))
            row = rest
        elif (
            key in ("processor", "cpu number") and len(rows) < MAX_CPUS and (cpu := plain(value)) is not None
        ):
            row = rows.setdefault(cpu, {})
        elif colon:
            row.setdefault(key, value)
    return CpuInfo(ids=tuple(sorted(rows)), rows=rows, rest=rest)


def architecture(info: CpuInfo) -> str | None:
    """The machine name as `uname -m` has it, from the shape of cpuinfo; None when no shape fits."""
    flags = (info.first("flags") or "").split()
    if flags:
        return "x86_64" if "lm" in flags else "i686"
    if info.first("CPU implementer"):
        return "aarch64" if "asimd" in (info.first("Features") or "") else "armv7l"
    if info.first("vendor_id") == "IBM/S390":
        return "s390x"
    if (info.first("isa") or "").startswith("rv"):
        return "riscv" + (info.first("isa") or "")[2:4]
    if "loongson" in (info.first("Model Name", "model name") or "").lower():
        return "loongarch64"
    if info.first("arch") == "IA-64":
        return "ia64"
    if re.match(r"POWER|PPC|Cell", info.first("cpu") or ""):
        return "ppc64"
    if (info.first("type") or "").startswith("sun4"):
        return "sparc64"
    return None


def vendor(info: CpuInfo) -> str | None:
    """As cpuinfo has it, or the Arm implementer's name."""
    said = info.first("vendor_id", "vendor")
    implementer = info.first("CPU implementer")
    if said or not implementer:
        return said or ("IBM" if re.match(r"POWER", info.first("cpu") or "") else None)
    return ARM_IMPLEMENTERS.get(_hex(implementer))


def model_name(info: CpuInfo) -> str | None:
    """As cpuinfo has it; on Arm the names of the parts, largest first in number (`Cortex-X925 + Cortex-A725`)."""
    said = info.first("model name", "Model Name", "cpu model", "cpu", "uarch", "family")
    if said and not info.first("CPU part"):
        return said
    parts: dict[str, int] = {}
    for row in info.rows.values():
        if row.get("CPU implementer", "").lower() == "0x41" and _hex(row.get("CPU part", "")) in ARM_PARTS:
            name = ARM_PARTS[_hex(row["CPU part"])]
            parts[name] = parts.get(name, 0) + 1
    named = " + ".join(sorted(parts, key=lambda name: (-parts[name], name)))
    return named or said or info.first("Processor")


def flags(info: CpuInfo) -> tuple[str, ...] | None:
    """Instruction set extensions, sorted; what all CPUs of the machine have is what the first one has on every
    machine that runs one kernel image."""
    said = info.first("flags", "Features", "features", "isa")
    return tuple(sorted(set(said.split()))) if said else None


def _hex(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return -1
