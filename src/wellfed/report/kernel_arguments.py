"""Kernel arguments that instructions ask for, merged with the command line of the running kernel, as text for GRUB and
systemd-boot.

Only instructions whose words leave no doubt are taken: `add X to the kernel command line`, `take X off the kernel's
command line`. All else is told at the end, to be done by hand.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from wellfed.model import Change
from wellfed.model.environment import PSEUDONYM
from wellfed.report import words
from wellfed.report.export_parts import (
    INSTRUCTION,
    Export,
    File,
    Left,
    Unfit,
    beside,
    comment,
    header,
    joined,
    not_here,
    told,
)

GRUB_FILE = "/etc/default/grub.d/90-wellfed.cfg"
BOOT_FILE = "/etc/kernel/cmdline"

_LINE = r"the kernel(?:'s)? command line"
_SPANS = r"`[^`]+`(?:(?:, | and )`[^`]+`)*"
_CLAUSE = r"(?:^|[;,.:] )"
"""A condition in front, as in `on MI300X add`, is for people."""
_ADD = re.compile(rf"{_CLAUSE}add ({_SPANS})(?: \((Arm|Arm64): ({_SPANS})\))? to {_LINE}\b", re.I)
_DROP = re.compile(rf"{_CLAUSE}(?:take|remove) ({_SPANS}) (?:off|from|out of) {_LINE}\b", re.I)
_ARGUMENT = re.compile(r"[a-z0-9][\w.-]*(=[\w.,:/@+*%=-]+)?", re.ASCII | re.I)
_BLANK = re.compile(r"\.\.\.|=[A-Z_]+$")
"""A value that people have to fill in."""
_ARM = ("aarch64", "arm64")

CUMULATIVE = frozenset({"console", "earlycon", "earlyprintk", "pci", "blacklist", "module_blacklist", "initcall_blacklist",
                        "modprobe.blacklist", "rd.driver.blacklist", "dyndbg", "acpi_osi", "memmap", "memblock",
                        "systemd.setenv", "root", "ip", "video", "usbcore.quirks"})  # fmt: skip
"""Of these each stands for itself: another one with another value is not overruled by it (Linux:
Documentation/admin-guide/kernel-parameters.txt)."""
POSITIONAL = frozenset({"hugepages", "hugepagesz", "default_hugepagesz"})
"""What they mean depends on those beside them."""
_LOADERS = re.compile(r"(BOOT_IMAGE|initrd|boot_image)=")
"""Put there by the boot loader itself."""


class Merged(NamedTuple):
    """A command line with what was `added` to it and `dropped` from it; `kept` was so already."""

    words: tuple[str, ...]
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def arguments_of(line: Iterable[str]) -> list[str]:
    """The arguments of a command line that was split at blanks: those in double quotes are one again, as the kernel
    reads them."""
    found: list[str] = []
    is_open = False
    for word in line:
        if is_open:
            found[-1] += f" {word}"
        else:
            found.append(word)
        is_open ^= word.count('"') % 2 == 1
    return found


def name_of(argument: str) -> str:
    """The name of an argument; to the kernel `-` and `_` in it are one."""
    return argument.partition("=")[0].strip('"').replace("-", "_")


def merged(line: Iterable[str], add: Sequence[str], drop: Sequence[str] = ()) -> Merged:
    """The command line with `add` in force and without `drop`. The rest keeps its order; what follows `--` is for init
    and stays. Of most arguments the last one counts, so older ones of the same name go."""
    arguments = arguments_of(line)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    kernel, init = arguments[:cut], arguments[cut:]
    dropped = [one for one in kernel if any(_same(one, other) for other in drop)]
    kernel = [one for one in kernel if one not in dropped]
    added: list[str] = []
    kept: list[str] = []
    for new in dict.fromkeys(add):
        others = [one for one in kernel if name_of(one) == name_of(new)]
        is_there = any(_same(one, new) for one in others)
        if name_of(new) in CUMULATIVE:
            rest = []
        elif is_there and _same(others[-1], new):
            rest = others[:-1]
        else:
            rest, is_there = others, False
        # The last of them is the one in force, so older ones go and it stays where it is.
        for one in rest:
            kernel.remove(one)
            if not _same(one, new):
                dropped.append(one)
        if is_there:
            kept.append(new)
        else:
            kernel.append(new)
            added.append(new)
    return Merged((*kernel, *init), tuple(added), tuple(dict.fromkeys(dropped)), tuple(kept))


def _same(one: str, other: str) -> bool:
    return name_of(one) == name_of(other) and one.partition("=")[1:] == other.partition("=")[1:]


def asked_for(change: Change, arch: str | None) -> tuple[list[str], list[str]]:
    """The arguments to add and to take off that an instruction names. Raises Unfit when it is not plain which."""
    if change.kind != INSTRUCTION:
        raise Unfit("no kernel argument; the other forms carry it")
    if not re.search(_LINE, change.new):
        raise Unfit("not about the kernel's command line: by hand")
    add: list[str] = []
    for match in _ADD.finditer(change.new):
        if match[3] is not None and arch is None:
            raise Unfit("it depends on the processor, which was not seen: by hand")
        add += _arguments(match[3] if match[3] is not None and arch in _ARM else match[1])
    drop = [one for match in _DROP.finditer(change.new) for one in _arguments(match[1])]
    if not add and not drop:
        raise Unfit("its words leave open which arguments: by hand")
    return add, drop


def _arguments(spans: str) -> list[str]:
    found = [word for span in re.findall("`([^`]+)`", spans) for word in span.split()]
    for one in found:
        if _BLANK.search(one):
            raise Unfit(f"`{one}` has a blank to fill in: by hand")
        if not _ARGUMENT.fullmatch(one):
            raise Unfit(f"`{one}` is no plain argument: by hand")
        if name_of(one) in POSITIONAL:
            raise Unfit(f"what `{one}` means depends on those beside it: by hand")
    return found


def kernel_arguments(
    changes: Sequence[Change],
    cmdline: Sequence[str] | None,
    *,
    arch: str | None = None,
    left: Sequence[Left] = (),
    made_by: str = "",
) -> Export:
    """The arguments as text: what the command line is and would be, and what to write for GRUB, grubby and
    systemd-boot."""
    carried: list[Change] = []
    rest: list[Left] = []
    add: dict[str, str] = {}
    drop: list[str] = []
    for change in changes:
        try:
            mine, off = asked_for(change, arch)
            clash = [one for one in mine if _clashes(one, [*add])] + [one for one in off if one in add]
            if clash:
                raise Unfit(f"another instruction has its own value for `{name_of(clash[0])}`: by hand")
        except Unfit as error:
            rest.append(Left(told(change), str(error)))
            continue
        carried.append(change)
        add |= dict.fromkeys(mine, change.code)
        drop += off
    found = merged(cmdline or (), [*add], drop)
    rest += left
    lines = header(
        "Kernel arguments, as text: nothing boots with them until you put them there.",
        "one of the ways below, then restart, then look at /proc/cmdline",
        "take them out again the same way and restart; keep a boot entry without them",
        made_by,
    )
    for change in carried:
        lines += ["", *beside(change)]
    return Export(
        "cmdline",
        (File(GRUB_FILE, joined([*lines, "", *_ways(found, cmdline), *not_here(rest)])),),
        len(carried),
        tuple(rest),
    )


def _clashes(new: str, others: Iterable[str]) -> bool:
    return name_of(new) not in CUMULATIVE and any(
        name_of(one) == name_of(new) and not _same(one, new) for one in others
    )


def _ways(found: Merged, cmdline: Sequence[str] | None) -> list[str]:
    if cmdline is None:
        lines = comment("The command line of the running kernel was not seen: what follows adds to any.")
    else:
        lines = [f"# {label}: {' '.join(map(words.clean, shown))}".rstrip("\\ ") for label, shown in
                 (("now", cmdline), ("then", found.words))]  # fmt: skip
    if found.kept:
        lines += comment(f"There already: {' '.join(found.kept)}")
    if not found.added and not found.dropped:
        return [*lines, *comment("Nothing to change.")]
    grubby = [f"--args={' '.join(found.added)!r}"] if found.added else []
    gone = [one for one in found.dropped if not any(name_of(one) == name_of(new) for new in found.added)]
    lines += ["", *comment(f"GRUB of Debian and Ubuntu: {GRUB_FILE}, then: sudo update-grub")]
    if found.added:
        # After GRUB_CMDLINE_LINUX, so that it is the last word; entries for recovery boot without it.
        lines.append(f'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {" ".join(found.added)}"')
    if gone:
        lines += comment(f"To be taken out of /etc/default/grub by hand: {' '.join(gone)}")
        if all(_ARGUMENT.fullmatch(one) for one in gone):
            grubby.append(f"--remove-args={' '.join(gone)!r}")
    lines += ["", *comment("GRUB of Red Hat, Fedora and SUSE, where grubby is:")]
    if grubby:
        lines += comment(f"sudo grubby --update-kernel=ALL {' '.join(grubby)}")
    lines += [
        "",
        *comment(
            f"systemd-boot: the one line of {BOOT_FILE}, then: sudo kernel-install add-all (or reinstall the kernel)"
        ),
    ]
    whole = [one for one in found.words if not _LOADERS.match(one)]
    if cmdline is None:
        lines += comment(f"the line that is there, and: {' '.join(found.added)}")
    elif any(PSEUDONYM.search(one) or not one.isprintable() for one in whole):
        lines += comment(
            "not told: the command line that was seen has parts hidden; change the line that is there as above"
        )
    else:
        lines += [f"# {' '.join(whole)}".rstrip("\\ ")]
    return lines
