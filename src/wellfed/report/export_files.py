"""Changes as one file of lines: for sysctl.d, tmpfiles.d, udev and tuned."""

import re
from collections.abc import Sequence

from wellfed.model import Change
from wellfed.report.export_parts import (
    ETHTOOL,
    SYSFS_KINDS,
    Export,
    File,
    Left,
    Unfit,
    adapter_of,
    beside,
    by_hand,
    header,
    joined,
    latency_of,
    not_here,
    path_of,
    plain_value,
    sort_out,
    sysctl_name,
    sysctl_of,
    unit_of,
    unit_words,
)

SYSCTL_FILE = "/etc/sysctl.d/90-wellfed.conf"
TMPFILES_FILE = "/etc/tmpfiles.d/90-wellfed.conf"
UDEV_FILE = "/etc/udev/rules.d/90-wellfed.rules"
TUNED_FILE = "/etc/tuned/wellfed/tuned.conf"

_ELSEWHERE = {
    "sysctl": "a sysctl; the form sysctl carries it",
    "service": "whether a unit runs, systemd keeps by itself",
    "dropin": "a file of its own; the form ansible carries it",
    "ethtool": "set by a program; the form systemd carries it",
    "nvml": "set by a program; the form systemd carries it",
    "hold": "held by a process; the form systemd carries it",
    "mount": "an option of a mount; the form systemd carries it, or `/etc/fstab`",
}


def _elsewhere(change: Change) -> Unfit:
    reason = _ELSEWHERE.get(change.kind, "the form systemd carries it")
    if change.kind == "service":
        reason += f": {by_hand(change)}"
    return Unfit(reason)


# -- sysctl.d ---------------------------------------------------------------------------------------------


def sysctl_d(changes: Sequence[Change], *, left: Sequence[Left] = (), made_by: str = "") -> Export:
    """A file of sysctl.d(5), for systemd-sysctl and sysctl(8)."""

    def line(change: Change) -> str:
        if change.kind != "sysctl":
            raise Unfit(
                "no sysctl; the form systemd carries it"
                if change.kind in SYSFS_KINDS
                else str(_elsewhere(change))
            )
        plain_value(change)
        name, value = sysctl_of(change)
        return f"{sysctl_name(name)} = {value}"

    carried, more = sort_out(changes, line)
    lines = header(
        "Sysctls.",
        f"sudo install -m 644 FILE {SYSCTL_FILE} && sudo sysctl --load={SYSCTL_FILE}; files that sort later and /etc/sysctl.conf win",
        f"sudo rm {SYSCTL_FILE}; values stay until they are written or the machine restarts",
        made_by,
    )
    return _one_line_each("sysctl", SYSCTL_FILE, lines, carried, [*more, *left])


# -- tmpfiles.d -------------------------------------------------------------------------------------------


def tmpfiles(changes: Sequence[Change], *, left: Sequence[Left] = (), made_by: str = "") -> Export:
    """`w` lines of tmpfiles.d(5): written once while the machine starts, to files that are there by then."""

    def parts(change: Change) -> tuple[str, str]:
        if change.kind not in SYSFS_KINDS:
            raise _elsewhere(change)
        return path_of(change), _tmpfiles_value(plain_value(change))

    carried, more = sort_out(changes, parts)
    lines = header(
        "Files below /sys.",
        f"sudo install -m 644 FILE {TMPFILES_FILE} && sudo systemd-tmpfiles --create {TMPFILES_FILE}; devices that come later are not met: the form udev",
        f"sudo rm {TMPFILES_FILE}; values stay until they are written or the machine restarts",
        made_by,
    )
    has_glob = False
    written: list[tuple[Change, str]] = []
    for change, (path, value) in carried:
        if has_glob and not _is_glob(path):
            # Lines with a pattern are done after all others, in their order. This one must not overtake them.
            path = f"{path[:-1]}[{path[-1]}]"
        has_glob = has_glob or _is_glob(path)
        written.append((change, f"w {path} - - - - {value}"))
    return _one_line_each("tmpfiles", TMPFILES_FILE, lines, written, [*more, *left])


def _is_glob(path: str) -> bool:
    return "*" in path or "[" in path


def _tmpfiles_value(value: str) -> str:
    """C escapes are taken out first, then `%` specifiers are filled in; a lone `-` would mean nothing at all."""
    escaped = value.replace("\\", "\\\\").replace("\t", "\\t").replace("%", "%%")
    return "\\x2d" if escaped == "-" else escaped


# -- udev -------------------------------------------------------------------------------------------------

_DEVICES = (
    (re.compile(r"/sys/(?:class/)?block/([^/]+)/(.+)"), "block", "add|change"),
    (re.compile(r"/sys/class/net/([^/]+)/(.+)"), "net", "add|change|move"),
    (re.compile(r"/sys/bus/pci/devices/([^/]+)/(.+)"), "pci", "add|change"),
    (re.compile(r"/sys/devices/system/cpu/(cpu[\d*]+)/(online)"), "cpu", "add|change"),
)
"""Path of a file of a device, its subsystem, and the events at which it is there. `move`: an adapter got its name."""


def udev(changes: Sequence[Change], *, left: Sequence[Left] = (), made_by: str = "") -> Export:
    """Rules of udev(7): files of devices and settings of adapters, also of those that come later."""

    def rule(change: Change) -> str:
        if change.kind == "ethtool":
            adapter, group, name, value = adapter_of(change)
            which = 'KERNEL=="*", DRIVERS=="?*"' if adapter == "*" else f'KERNEL=="{adapter}"'
            shown = "$name" if adapter == "*" else adapter
            run = f"/usr/sbin/ethtool {ETHTOOL[group]} {shown} {name} {value}"
            return f'ACTION=="add|move", SUBSYSTEM=="net", {which}, RUN+="{run}"'
        if change.kind not in SYSFS_KINDS:
            raise _elsewhere(change)
        path = path_of(change)
        found = [(match, *row[1:]) for row in _DEVICES if (match := row[0].fullmatch(path)) is not None]
        if not found:
            raise Unfit("no file of a device that udev tells of; the form tmpfiles carries it")
        match, subsystem, events = found[0]
        if "*" in match[2]:
            raise Unfit("a pattern below the device, which udev has none for; the form tmpfiles carries it")
        # udev writes `/` where sysfs has `!`.
        device, value = match[1].replace("!", "/"), _udev_value(plain_value(change))
        # A pattern for disks would match their partitions too, which have none of these files.
        disk = 'ENV{DEVTYPE}=="disk", ' if subsystem == "block" else ""
        where = f'SUBSYSTEM=="{subsystem}", {disk}KERNEL=="{device}"'
        return f'ACTION=="{events}", {where}, ATTR{{{match[2]}}}="{value}"'

    carried, more = sort_out(changes, rule)
    lines = header(
        "Rules for devices.",
        f"sudo install -m 644 FILE {UDEV_FILE} && sudo udevadm control --reload && sudo udevadm trigger --action=change; names of disks may change with a boot",
        f"sudo rm {UDEV_FILE} && sudo udevadm control --reload; values stay until they are written or the machine restarts",
        made_by,
    )
    return _one_line_each("udev", UDEV_FILE, lines, carried, [*more, *left])


def _udev_value(value: str) -> str:
    if value.endswith("\\"):
        raise Unfit("its value ends in a backslash, which a rule can't say; the form tmpfiles carries it")
    return value.replace("%", "%%").replace("$", "$$").replace('"', '\\"')


# -- tuned ------------------------------------------------------------------------------------------------

_TUNED_GROUP = {
    "rings": "ring",
    "coalesce": "coalesce",
    "channels": "channels",
    "features": "features",
    "pause": "pause",
}
_TUNED_UNIT = {"started": "start", "stopped": "stop", "enabled": "enable", "disabled": "disable"}


def tuned_profile(changes: Sequence[Change], *, left: Sequence[Left] = (), made_by: str = "") -> Export:
    """A profile of tuned: sysctls, files below /sys, adapters, services, and the latency of CPUs."""

    def option(change: Change) -> tuple[str, str, str]:
        if change.kind == "sysctl":
            plain_value(change)
            name, value = sysctl_of(change)
            return "sysctl", sysctl_name(name), _tuned_value(value)
        if change.kind in SYSFS_KINDS:
            return "sysfs", path_of(change), _tuned_value(plain_value(change))
        if change.kind == "hold":
            return "cpu", "force_latency", latency_of(change)
        if change.kind == "service":
            unit, states = unit_of(change).removesuffix(".service"), unit_words(change)
            if "masked" in states:
                raise Unfit(f"tuned masks no unit: {by_hand(change)}")
            return "service", f"service.{unit}", ",".join(_TUNED_UNIT[word] for word in states)
        if change.kind == "ethtool":
            adapter, group, name, value = adapter_of(change)
            return f"net {adapter}", _TUNED_GROUP[group], f"{name} {value}"
        raise _elsewhere(change)

    carried, more = sort_out(changes, option)
    sections: dict[str, dict[str, tuple[list[str], str]]] = {}
    for change, (section, key, value) in carried:
        options = sections.setdefault(section, {})
        notes, before = options.pop(key, ([], "")) if section.startswith("net ") else ([], "")
        options[key] = ([*notes, *beside(change)], f"{before} {value}".strip())
    lines = header(
        "A profile of tuned.",
        f"sudo install -D -m 644 FILE {TUNED_FILE} (tuned 2.23 and later: /etc/tuned/profiles/wellfed/tuned.conf) && sudo tuned-adm profile wellfed",
        "sudo tuned-adm profile NAME with the profile from before; tuned puts none of the values of this boot back after it was killed",
        made_by,
    )
    lines += ["", "[main]", "summary=Settings that wellfed proposes", "# include=the profile you have now"]
    for section, options in sections.items():
        lines += ["", *_tuned_section(section)]
        for key, (notes, value) in options.items():
            lines += [*notes, f"{key}={value}"]
    return _export("tuned", TUNED_FILE, lines, len(carried), [*more, *left])


def _tuned_section(section: str) -> list[str]:
    kind, _, adapter = section.partition(" ")
    if kind != "net":
        return [f"[{kind}]"]
    return [f"[net_{'all' if adapter == '*' else adapter}]", "type=net", f"devices={adapter}"]


def _tuned_value(value: str) -> str:
    """tuned has no escape for any of these."""
    if value[0] in "<>" and len(value) > 1:
        raise Unfit("its value begins with < or >, by which tuned means a comparison")
    if value[0] == value[-1] == '"':
        raise Unfit("tuned takes off the quotes around it")
    if "${" in value or re.search(r"(^|\s)[#;]", value):
        raise Unfit("its value holds what tuned takes for a variable or a comment")
    return value


def _one_line_each(
    form: str, path: str, head: Sequence[str], carried: Sequence[tuple[Change, str]], left: Sequence[Left]
) -> Export:
    lines = [*head]
    for change, text in carried:
        lines += ["", *beside(change), text]
    return _export(form, path, lines, len(carried), left)


def _export(form: str, path: str, lines: list[str], carried: int, left: Sequence[Left]) -> Export:
    return Export(form, (File(path, joined([*lines, *not_here(left)])),), carried, tuple(left))
