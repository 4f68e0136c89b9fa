"""What the kernel's log tells, counted by kind. A log that could not be read is a gap, never a zero."""

import re

from wellfed.host.door import Host, Reading
from wellfed.host.parse import gap, known
from wellfed.model.fact import Fact

KINDS: dict[str, str] = {
    "sxid": r"\bSXid\b",
    "aer": r"\bAER: .*error",
    "edac": r"\bEDAC .*\b[CU]E\b",
    "oom": r"Out of memory: Kill|oom-kill:",
    "hung-task": r"blocked for more than \d+ seconds",
    "soft-lockup": r"soft lockup",
    "tsc-unstable": r"Marking (?:TSC unstable|clocksource '?tsc'? (?:as )?unstable)|clocksource: timekeeping watchdog .*tsc.* unstable",
    "link-flap": r"[Ll]ink (?:is )?[Dd]own|lost carrier",
}
"""Lines that may come at any time."""
BOOT_KINDS: dict[str, str] = {
    "x2apic": r"x2apic: IRQ remapping doesn't support X2APIC|Not enabling x2apic|x2apic disabled",
    "memory-encryption": r"Memory Encryption Features active",
}
"""Lines that come at boot only: that there are none counts only in a log that still holds its beginning."""

_BEGINNING = re.compile(
    r"tsc: (?:Detected|Fast TSC)|clocksource: (?:refined-)?jiffies: mask|Memory Encryption|x2apic"
)


def read_kernel_log(host: Host) -> list[Fact]:
    """Facts `kernel.events[kind]`. `dmesg` needs root on most systems; members of `adm` can read the journal."""
    readings: list[Reading] = []
    for name in ("dmesg", "journal-kernel"):
        readings.append(host.run(name))
        if readings[-1].status == "ok":
            return _events(readings[-1])
    first = readings[0]
    return [gap(_key(kind), first.source, first.status, first.detail) for kind in (*KINDS, *BOOT_KINDS)]


def _events(reading: Reading) -> list[Fact]:
    lines = (reading.text or "").splitlines()
    from_boot = any(map(_BEGINNING.search, lines))
    facts = []
    for kind, pattern in (*KINDS.items(), *BOOT_KINDS.items()):
        found = [line for line in lines if re.search(pattern, line)]
        if not lines or (kind in BOOT_KINDS and not found and not from_boot):
            detail = (
                "the log no longer holds the lines of the boot"
                if lines
                else "nothing in the log could be used"
            )
            facts.append(gap(_key(kind), reading.source, "unsupported", detail))
        else:
            facts.append(known(_key(kind), len(found), reading.source, "\n".join(found[-5:])))
    return facts


def _key(kind: str) -> str:
    return f"kernel.events[{kind}]"
