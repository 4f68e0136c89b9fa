"""Why the firmware's verdicts on the recorded H200 machine are right."""

_GUEST = "a guest: this is its host's"
ARGUED = {
    "BIOS02": _GUEST,
    "BIOS04": _GUEST,
    "BIOS07": _GUEST,
    "BIOS08": _GUEST,
    "BIOS09": _GUEST,
    "BIOS11": _GUEST,
}
