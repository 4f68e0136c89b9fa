"""What the kernel's log tells, counted by kind. A log that could not be read is a gap, never a zero."""

import re
from collections.abc import Iterable

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

XIDS_KEPT = 50
_XID = re.compile(r"NVRM: Xid|SXid")
_WHICH = re.compile(r"(S?Xid)\s*(\([^)]{0,60}\))?\s*:\s*(\d{1,9})(?:, (?:Non-f|F)atal)?")


def xid_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Errors of GPUs and NVSwitches, oldest first, 50 at most: the last line of each number comes before a second one of any,
    and then of each device. The error that takes a GPU away is logged once; those of the programs that lost it follow by the
    hundred."""
    found = [line.strip() for line in lines if "Xid" in line and _XID.search(line)]
    if len(found) <= XIDS_KEPT:
        return tuple(found)
    kinds = [
        (match[1], match[3], match[2], match[0]) if (match := _WHICH.search(line)) else () for line in found
    ]
    last_of_number = {kind[:2]: at for at, kind in enumerate(kinds)}
    last_of_device = {kind[2:]: at for at, kind in enumerate(kinds)}
    newest_first = (sorted(ats.values(), reverse=True) for ats in (last_of_number, last_of_device))
    wanted = [at for ats in (*newest_first, range(len(found) - 1, -1, -1)) for at in ats]
    return tuple(found[at] for at in sorted(list(dict.fromkeys(wanted))[:XIDS_KEPT]))


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
