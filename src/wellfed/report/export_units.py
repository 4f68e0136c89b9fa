"""Changes as units of systemd, which can set every kind of knob while the machine starts, and as a play of Ansible, which
brings those files and the states of services to many machines."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from wellfed.model import Change
from wellfed.report.export_files import SYSCTL_FILE, sysctl_d
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
    comment,
    gpu_words,
    header,
    joined,
    latency_of,
    mount_words,
    not_here,
    path_of,
    sort_out,
    sysctl_of,
    unit_of,
    unit_words,
    value_of,
)

UNIT_FILE = "/etc/systemd/system/wellfed-tune.service"
HOLD_FILE = "/etc/systemd/system/wellfed-hold.service"

_DROPIN = re.compile(
    r"/etc/(security/limits\.d|sysctl\.d|tmpfiles\.d|udev/rules\.d|modprobe\.d|systemd/(system|user)\.conf\.d"
    r"|systemd/system/[\w@:][\w@:.-]*\.(service|slice|scope|socket|timer)\.d)/\d\d-wellfed[\w-]*\.(conf|rules)",
    re.ASCII,
)

# -- systemd ----------------------------------------------------------------------------------------------

_ONE = """'printf %%s "$$2" >"$$1"'"""
_MANY = """'for f in $$1; do printf %%s "$$2" >"$$f"; done'"""
_BESIDE = """'for f in $$1; do cat "$${f%%/*}/$$2" >"$$f"; done'"""
_ADAPTERS = (
    """'for d in /sys/class/net/*/device; do d=$${d%%/device}; ethtool "$$1" "$${d##*/}" "$$2" "$$3"; done'"""
)
_HOLD = """'exec 3>/dev/cpu_dma_latency; printf 0x%%08x "$$1" >&3; exec sleep infinity'"""
"""What a shell does with its arguments; as a unit writes it, `$$` is a dollar and `%%` a per cent."""


class _Part(NamedTuple):
    """Of a change: a command line, or a file of its own."""

    line: str | None = None
    file: File | None = None


def systemd_units(changes: Sequence[Change], *, left: Sequence[Left] = (), made_by: str = "") -> Export:
    """A oneshot unit with a command for each knob, in order; one that fails stops none. A held latency gets a unit that
    stays, drop-ins of units are files of their own."""
    carried, more = sort_out(changes, _part)
    lines = header(
        "A unit that sets knobs once while the machine starts.",
        f"sudo install -m 644 FILE {UNIT_FILE} && sudo systemctl daemon-reload && sudo systemctl enable --now wellfed-tune.service",
        f"sudo systemctl disable wellfed-tune.service && sudo rm {UNIT_FILE}; values stay until they are written or the machine restarts",
        made_by,
    )
    lines += [
        "[Unit]",
        "Description=Settings that wellfed proposes",
        "After=systemd-sysctl.service systemd-tmpfiles-setup.service network.target nvidia-persistenced.service tuned.service",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
    ]
    files: list[File] = []
    for change, part in carried:
        if part.file is not None:
            files.append(part.file)
            lines += ["", *beside(change), *comment(f"It is the file {part.file.path} beside this one.")]
        else:
            lines += ["", *beside(change), f"ExecStart=-{part.line}"]
    if not any(part.line for _, part in carried):
        # A oneshot unit without a command is none.
        lines += ["", "ExecStart=/bin/true"]
    lines += ["", "[Install]", "WantedBy=multi-user.target"]
    both = [*more, *left]
    main = File(UNIT_FILE, joined([*lines, *not_here(both)]))
    return Export("systemd", (main, *files), len(carried), tuple(both))


def _part(change: Change) -> _Part:
    if change.kind == "service":
        raise Unfit(f"whether a unit runs, systemd keeps by itself: {by_hand(change)}")
    if change.kind == "dropin":
        file = dropin(change)
        if not file.path.startswith("/etc/systemd/"):
            raise Unfit("a file that is none of systemd's; the form ansible carries it")
        return _Part(file=file)
    if change.kind == "hold":
        return _Part(file=File(HOLD_FILE, _holding(change)))
    return _Part(line=_command(change))


def _command(change: Change) -> str:
    """Raises Unfit."""
    if change.kind == "sysctl" or change.kind in SYSFS_KINDS:
        if change.kind == "sysctl":
            name, value = sysctl_of(change)
            path = f"/proc/sys/{name}"
        else:
            path, value = path_of(change), value_of(change)
        if value.startswith("@"):
            if not re.fullmatch(r"@\w+", value, re.ASCII):
                raise Unfit(f"`{value}` names no file beside it")
            return _shell(_BESIDE, path, value[1:])
        return _shell(_MANY if "*" in path else _ONE, path, value)
    if change.kind == "ethtool":
        adapter, group, name, value = adapter_of(change)
        if adapter == "*":
            return _shell(_ADAPTERS, ETHTOOL[group], name, value)
        return " ".join(("ethtool", *map(quoted, (ETHTOOL[group], adapter, name, value))))
    if change.kind == "nvml":
        return " ".join(("nvidia-smi", *map(quoted, gpu_words(change))))
    if change.kind == "mount":
        return " ".join(("mount", *map(quoted, mount_words(change))))
    raise Unfit("a kind that no unit can set")


def _shell(script: str, *words: str) -> str:
    return " ".join(("/bin/sh", "-c", script, "sh", *map(quoted, words)))


def quoted(word: str) -> str:
    """A word of a command line in a unit, as systemd.service(5) reads it: escapes in quotes, then `%`, then `$`."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return '"' + word.replace("%", "%%").replace("$", "$$") + '"'


def _holding(change: Change) -> str:
    lines = [
        *header(
            "A unit that holds the longest time CPUs may take to wake up, for as long as it runs.",
            f"sudo install -m 644 FILE {HOLD_FILE} && sudo systemctl daemon-reload && sudo systemctl enable --now wellfed-hold.service",
            f"sudo systemctl disable --now wellfed-hold.service && sudo rm {HOLD_FILE}",
            "",
        ),
        *beside(change),
        "[Unit]",
        "Description=Wake-up latency of CPUs that wellfed proposes",
        "",
        "[Service]",
        f"ExecStart={_shell(_HOLD, latency_of(change))}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return joined(lines)


def dropin(change: Change) -> File:
    """The file that a drop-in is. Raises Unfit for one that is not ours by its name, or no text."""
    if not _DROPIN.fullmatch(change.target) or ".." in change.target:
        raise Unfit("no file that is named after us")
    if not all(char.isprintable() or char in "\n\t" for char in change.new):
        raise Unfit("its text holds a character that can't be seen")
    return File(change.target, change.new)


# -- Ansible ----------------------------------------------------------------------------------------------


def ansible(changes: Sequence[Change], *, left: Sequence[Left] = (), made_by: str = "") -> Export:
    """A play: drop-ins as they are, sysctls in a file of sysctl.d, the rest in units, states of services by the module for
    them. Only modules that come with Ansible itself; texts are marked so that no template in them is filled in."""
    carried, more = sort_out(changes, _task_kind)
    of = {
        kind: [change for change, told in carried if told == kind]
        for kind in ("sysctl", "service", "dropin", "unit")
    }
    lines = header(
        "A play of Ansible.",
        "ansible-playbook -i INVENTORY FILE --check --diff, then without --check; it runs on the group `wellfed`, which you fill",
        f"remove {SYSCTL_FILE}, {UNIT_FILE} and the files named below, and enable the services again; values stay until the machine restarts",
        made_by,
    )
    lines += [
        "---",
        "- name: Settings that wellfed proposes",
        "  hosts: wellfed",
        "  become: true",
        "  tasks:",
    ]
    handlers: dict[str, tuple[str, ...]] = {}
    for change in of["service"]:
        lines += _service(change)
    if of["sysctl"]:
        lines += _copy("sysctls", sysctl_d(of["sysctl"], made_by=made_by).files[0], "Load sysctls")
        handlers["Load sysctls"] = (f'ansible.builtin.command: "sysctl -e --load={SYSCTL_FILE}"',)
    if of["unit"]:
        for file in systemd_units(of["unit"], made_by=made_by).files:
            unit = file.path.rpartition("/")[2]
            lines += _copy(unit, file, f"Start {unit}")
            handlers[f"Start {unit}"] = _started(unit)
    for change in of["dropin"]:
        lines += _dropin_tasks(change)
        if change.target.startswith("/etc/systemd/"):
            handlers["Reload systemd"] = ("ansible.builtin.systemd:", "  daemon_reload: true")
    if not carried:
        lines[-1] += " []"
    if handlers:
        lines.append("  handlers:")
        for name, told in handlers.items():
            lines += [f"    - name: {text(name)}", *(f"      {line}" for line in told)]
    both = [*more, *left]
    path = "wellfed.yml"
    return Export("ansible", (File(path, joined([*lines, *not_here(both)])),), len(carried), tuple(both))


def _task_kind(change: Change) -> str:
    """Which task a change goes to. Raises Unfit."""
    if change.kind == "sysctl" and not sysctl_of(change)[1].startswith("@"):
        return "sysctl"
    if change.kind == "service":
        unit_of(change)
        unit_words(change)
        return "service"
    if change.kind == "dropin":
        dropin(change)
        return "dropin"
    _part(change)
    return "unit"


def _service(change: Change) -> list[str]:
    states = unit_words(change)
    unit = unit_of(change)
    lines = [
        *_indented(beside(change)),
        f"    - name: {text('Unit ' + unit)}",
        "      ansible.builtin.systemd:",
    ]
    lines.append(f"        name: {text(unit)}")
    for word in states:
        if word in ("started", "stopped"):
            lines.append(f"        state: {word}")
        elif word == "masked":
            lines.append("        masked: true")
        else:
            lines += [f"        enabled: {'true' if word == 'enabled' else 'false'}", "        masked: false"]
    return lines


def _copy(name: str, file: File, notify: str | None) -> list[str]:
    lines = [
        f"    - name: {text('File of ' + name)}",
        "      ansible.builtin.copy:",
        f"        dest: {text(file.path)}",
        '        owner: "root"',
        '        group: "root"',
        '        mode: "0644"',
        *_content(file.text),
    ]
    return [*lines, f"      notify: {text(notify)}"] if notify else lines


def _content(content: str) -> list[str]:
    """As a block where it is plain lines, else as one quoted text."""
    rows = content.split("\n")
    plain = content.isascii() and all(char.isprintable() or char == "\n" for char in content)
    if (
        plain
        and len(rows) > 1
        and rows[-1] == ""
        and rows[-2]
        and not rows[0].startswith((" ", "#!"))
        and rows[0]
    ):
        return ["        content: !unsafe |", *(f"          {row}" if row else "" for row in rows[:-1])]
    return [f"        content: !unsafe {text(content)}"]


def _dropin_tasks(change: Change) -> list[str]:
    file = dropin(change)
    folder = file.path.rpartition("/")[0]
    notify = "Reload systemd" if folder.startswith("/etc/systemd/") else None
    made = [
        f"    - name: {text('Folder of ' + file.path)}",
        "      ansible.builtin.file:",
        f"        path: {text(folder)}",
        '        state: "directory"',
    ]
    return [*_indented(beside(change)), *made, *_copy(file.path, file, notify)]


def _started(unit: str) -> tuple[str, ...]:
    return (
        "ansible.builtin.systemd:",
        f"  name: {text(unit)}",
        "  daemon_reload: true",
        "  enabled: true",
        "  state: restarted",
    )


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def text(value: str) -> str:
    """A quoted text of YAML: all that is not plain ASCII as an escape."""
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char == "\n":
        return "\\n"
    if " " <= char <= "~":
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
