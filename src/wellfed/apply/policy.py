"""Which changes are made without being asked for, and who else sets a knob."""

import os
import re
from typing import NamedTuple

from wellfed.apply import values
from wellfed.apply.engine import Kinds, cuts_network
from wellfed.apply.kinds import KINDS
from wellfed.model import Change, Machine
from wellfed.model.change import Consent

USER = "user"
"""Code of a change that the user's own list gives no code, and `evidence` of all in it: naming it was the consent."""

INSTRUCTION = "instruction"
"""Kind of what people do by hand, as `check.changes` makes it."""

KNOWN = ("read", "measured", "verified")
"""Evidence that lets a change be made: somebody has seen it, here or where the source says."""

CONFIRM = "--confirm-within 120s"


class Options(NamedTuple):
    """What the user agrees to. `only` empty: all codes. `confirm`: what is done is undone unless confirmed."""

    yes: bool = False
    allow: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    confirm: bool = False


def consent_of(change: Change, kinds: Kinds = KINDS) -> Consent:
    """Who has to agree to a change."""
    if change.kind == INSTRUCTION:
        return "instruction"
    if change.evidence == USER:
        return "auto"
    if change.risk == "reboot":
        return "instruction"
    if change.risk == "unsafe" or change.evidence not in KNOWN or _is_the_sites(change):
        return "named"
    if change.risk == "restart" or kinds[change.kind].lasts or cuts_network(change, kinds):
        return "yes"
    return "auto"


def _is_the_sites(change: Change) -> bool:
    """Whether somebody has written down here that the knob is to have the value that it has: a decision, and not for a
    tool to take back unasked. Files below `/usr/lib` came with the system, except the profile that `tuned` follows, which
    would set it again."""
    found = _SITE_FILE.fullmatch(change.owner or "")
    return (
        change.kind == "sysctl"
        and found is not None
        and (change.old is None or values.same("", change.old, found[1]))
    )


_SITE_FILE = re.compile(r"(?:/etc/\S+|\S+/tuned\.conf) sets it to (.+?) at each start(, .*)?")
"""As `owner_of` tells it."""


def missing_flag(change: Change, options: Options, kinds: Kinds = KINDS) -> str | None:
    """What has to be added to the command line for the change to be made; None when nothing has. Naming a code says
    more than `--yes`."""
    flags: list[str] = []
    consent = consent_of(change, kinds)
    if change.code not in options.allow:
        if consent == "named":
            flags.append(f"--allow {change.code}")
        elif consent == "yes" and not options.yes:
            flags.append("--yes")
    if cuts_network(change, kinds) and not options.confirm:
        flags.append(CONFIRM)
    return " ".join(flags) or None


_TUNED = ("sysctl", "thp", "hugepages", "governor", "epp", "block", "sysfs", "irq_affinity", "hold")
"""Kinds that profiles of tuned set. Which knobs one really sets stands in its file; that it may is worth a line."""

_SERVICES = {
    "governor": ("power-profiles-daemon", "tlp", "cpupower"),
    "epp": ("power-profiles-daemon", "tlp"),
    "irq_affinity": ("irqbalance",),
}
_CLUSTER = ("kubelet", "docker", "containerd", "crio", "slurmd")


def owner_of(change: Change, machine: Machine) -> str | None:
    """Who else sets this knob on this machine, and may set it again; None when nobody is known to."""
    kernel = machine.kernel
    active = kernel.active_services or ()
    found: list[str] = []
    if change.kind == "sysctl":
        text = (kernel.sysctl_files or {}).get(change.target.replace("/", "."))
        if text is not None:
            value, _, file = text.rpartition(" @ ")
            found.append(f"{file} sets it to {value} at each start")
    if change.kind in _TUNED and "tuned" in active:
        found.append(f"tuned (profile {kernel.tuned_profile})" if kernel.tuned_profile else "tuned")
    found += [name for name in _SERVICES.get(change.kind, ()) if name in active]
    if change.kind == "nvml" and change.target.endswith("/persistence_mode"):
        found += [name for name in ("nvidia-persistenced",) if name in active]
    if change.kind == "cgroup":
        found += [name for name in _CLUSTER if name in active] or (["systemd"] if active else [])
    return ", ".join(found) or None


def notes_of(machine: Machine, changes: tuple[Change, ...]) -> tuple[str, ...]:
    """What holds for all changes of this machine."""
    notes: list[str] = []
    inside = machine.container.kind not in (None, "none")
    kernel_wide = [
        c
        for c in changes
        if c.kind != INSTRUCTION and not re.match(r"net[./]", c.target) and c.kind != "dropin"
    ]
    if inside and kernel_wide:
        notes.append(
            f"this is a container ({machine.container.kind}): settings of the kernel are those of the whole host, "
            "so each is made only where you name it"
        )
    if inside and len(kernel_wide) < len([c for c in changes if c.kind != INSTRUCTION]):
        notes.append("settings of `net` and files are those of this container only")
    return tuple(notes)


def is_root() -> bool:
    return os.geteuid() == 0
