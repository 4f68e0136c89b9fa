"""What the exports share: which file a knob is, what may stand in a line, and the comment beside each."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from wellfed.model import Change
from wellfed.report import words

INSTRUCTION = "instruction"
T = TypeVar("T")


class Unfit(Exception):
    """A change that this form can't carry; the words say why."""


class Left(NamedTuple):
    """What is not in the files, and why."""

    what: str
    reason: str


class File(NamedTuple):
    """`path` is where it belongs on the machine."""

    path: str
    text: str


class Export(NamedTuple):
    """The first file is the one that the form is about."""

    form: str
    files: tuple[File, ...]
    carried: int
    left: tuple[Left, ...] = ()

    @property
    def text(self) -> str:
        """All files as one text, each under its name where there are several."""
        if len(self.files) == 1:
            return self.files[0].text
        return "\n".join(f"# ---- {file.path}\n{file.text}" for file in self.files)


# -- knobs ------------------------------------------------------------------------------------------------

_CPUFREQ = "/sys/devices/system/cpu/cpufreq/{}"
_FILES = {
    "sysfs": ("{}", r"/sys/[\w.:,@*+!/-]+"),
    "thp": ("/sys/kernel/mm/transparent_hugepage/{}", r"[\w/-]+"),
    "hugepages": ("/sys/kernel/mm/hugepages/hugepages-{}/nr_hugepages", r"\d+kB"),
    "governor": (f"{_CPUFREQ}/scaling_governor", r"policy(\d+|\*)"),
    "epp": (f"{_CPUFREQ}/energy_performance_preference", r"policy(\d+|\*)"),
    "block": ("/sys/block/{}", r"[\w!.*-]+/queue/\w+"),
}
"""Kind -> where target `{}` lies, and what a target looks like: those of the apply room, ASCII only. A test compares
them."""

SYSFS_KINDS = frozenset(_FILES)
TWINS = {
    "vm/dirty_bytes": "vm/dirty_ratio",
    "vm/dirty_background_bytes": "vm/dirty_background_ratio",
    "vm/overcommit_kbytes": "vm/overcommit_ratio",
}
"""Of each pair only the one that was written last is in force, and it reads 0 then in the other."""
_TWIN_OF = {**TWINS, **{ratio: in_bytes for in_bytes, ratio in TWINS.items()}}
_SYSCTL = re.compile(r"[\w@+][\w.:@+/-]*", re.ASCII)
_UNIT = re.compile(r"[\w@:][\w@:.-]*", re.ASCII)
_UNIT_TYPES = (".service", ".timer", ".socket", ".path")
_ADAPTER = re.compile(
    r"([\w.:][\w.:-]{0,14}|\*)/(rings|coalesce|channels|features|pause)/([a-z][a-z0-9-]*)", re.ASCII
)
ETHTOOL = {"rings": "-G", "coalesce": "-C", "channels": "-L", "features": "-K", "pause": "-A"}
_GPU = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]|\*)/(\w+)", re.ASCII)
_GPU_OPTION = {"persistence_mode": "-pm", "power_limit": "-pl", "compute_mode": "-c"}
_GPU_WORDS = {
    "persistence_mode": {"disabled": "0", "enabled": "1"},
    "compute_mode": {"default": "0", "prohibited": "2", "exclusive_process": "3"},
}
_MOUNT = re.compile(r"(/[^\0\n]*):(atime|size)")
_LONGEST = 4000
"""Bytes of a value: the kernel takes a page, 4096."""


def path_of(change: Change) -> str:
    """The file below /sys that a change writes; it may hold `*`. Raises Unfit."""
    pattern, form = _FILES[change.kind]
    path = pattern.format(change.target)
    if not re.fullmatch(form, change.target, re.ASCII) or {"", ".", ".."} & set(path.split("/")[1:]):
        raise Unfit(f"`{change.target}` is no target of kind {change.kind}")
    return path


def sysctl_of(change: Change) -> tuple[str, str]:
    """The parts of a sysctl's name joined by `/`, and its value; a twin's value may name the other of the pair.
    Raises Unfit."""
    name, value = change.target, value_of(change)
    if not _SYSCTL.fullmatch(name):
        raise Unfit(f"`{name}` is no sysctl")
    name = name if "/" in name else name.replace(".", "/")
    parts = name.split("/")
    if {"", ".", ".."} & set(parts) or "." in parts[0] or len(parts) < 2:
        raise Unfit(f"`{change.target}` is no sysctl")
    if name in _TWIN_OF:
        other, equals, number = value.rpartition("=")
        if equals:
            other = other.replace(".", "/")
            if other not in (name, _TWIN_OF[name]):
                raise Unfit(f"`{change.target}` and `{other}` are no pair")
            name, value = other, number
        if value == "0":
            raise Unfit(f"`{change.target}` is switched off by setting its twin, not by 0")
    return name, value


def sysctl_name(parts: str) -> str:
    """`vm.swappiness`; with slashes where a part holds a dot. Both sysctl(8) and systemd take both."""
    return parts if "." in parts else parts.replace("/", ".")


def value_of(change: Change) -> str:
    """The value, without blanks at its ends. Raises Unfit for one that no line can hold."""
    value = change.new.strip(" \t\r\n")
    if not value:
        raise Unfit("its value is empty")
    if not all(char.isprintable() or char == "\t" for char in value):
        raise Unfit("its value holds a line break or a character that can't be seen")
    if len(value.encode()) > _LONGEST:
        raise Unfit(f"its value is longer than {_LONGEST} bytes")
    return value


def plain_value(change: Change) -> str:
    """A value that is written as it stands. Raises Unfit for `@name`, which is read from another file then."""
    value = value_of(change)
    if value.startswith("@"):
        raise Unfit(
            f"its value is what the file `{value[1:]}` beside it says then; the form systemd carries it"
        )
    return value


def unit_of(change: Change) -> str:
    """Raises Unfit for what is no unit."""
    name = change.target if change.target.endswith(_UNIT_TYPES) else f"{change.target}.service"
    if not _UNIT.fullmatch(name) or ".." in name:
        raise Unfit(f"`{change.target}` is no unit of systemd")
    return name


def unit_words(change: Change) -> list[str]:
    """`stopped`, `disabled`... Raises Unfit."""
    found = change.new.split()
    if not found or not set(found) <= {"started", "stopped", "enabled", "disabled", "masked"}:
        raise Unfit(f"`{words.clean(change.new)}` is no state of a unit")
    return found


def by_hand(change: Change) -> str:
    """The line that sets the state of a unit for good."""
    verbs = {
        "started": "start",
        "stopped": "stop",
        "enabled": "enable",
        "disabled": "disable",
        "masked": "mask",
    }
    unit = unit_of(change)
    return " && ".join(f"sudo systemctl {verbs[word]} {unit}" for word in unit_words(change))


def adapter_of(change: Change) -> tuple[str, str, str, str]:
    """Adapter or `*`, what of it, which, and the value. Raises Unfit."""
    match, value = _ADAPTER.fullmatch(change.target), value_of(change)
    if match is None or match[1] in (".", ".."):
        raise Unfit(f"`{change.target}` is no setting of an adapter")
    if not re.fullmatch(r"[\w.]{1,40}", value, re.ASCII):
        raise Unfit(f"`{value}` is no value that ethtool takes")
    return match[1], match[2], match[3], value


def gpu_words(change: Change) -> list[str]:
    """The arguments of nvidia-smi. Raises Unfit."""
    match, value = _GPU.fullmatch(change.target), value_of(change)
    if match is None or match[2] not in _GPU_OPTION:
        raise Unfit(f"`{change.target}` is no setting of a GPU")
    known = _GPU_WORDS.get(match[2])
    if known is not None:
        value = known.get(value.lower(), value)
        if value not in known.values():
            raise Unfit(f"`{value}` is no {match[2]}")
    elif not re.fullmatch(r"\d{1,5}(\.\d{1,3})?", value, re.ASCII):
        raise Unfit(f"`{value}` is no number of watts")
    which = [] if match[1] == "*" else ["-i", match[1]]
    return [*which, _GPU_OPTION[match[2]], value]


def mount_words(change: Change) -> list[str]:
    """The arguments of mount(8). Raises Unfit."""
    match, value = _MOUNT.fullmatch(change.target), value_of(change)
    if match is None or not match[1].isprintable() or {".", ".."} & set(match[1].split("/")):
        raise Unfit(f"`{words.clean(change.target)}` is no setting of a mount")
    good = (
        value in ("relatime", "noatime", "strictatime")
        if match[2] == "atime"
        else value.isascii() and value.isdigit()
    )
    if not good:
        raise Unfit(f"`{value}` is no value of it")
    return ["-o", f"remount,{value if match[2] == 'atime' else f'size={value}'}", match[1]]


def latency_of(change: Change) -> str:
    """Microseconds. Raises Unfit."""
    value = value_of(change)
    if change.target != "cpu_dma_latency" or not re.fullmatch(r"\d{1,9}", value, re.ASCII):
        raise Unfit(f"`{words.clean(change.target)}` = `{value}` can't be held")
    return value


# -- sorting out ------------------------------------------------------------------------------------------

_NOWHERE = {
    INSTRUCTION: "it is done by hand",
    "irq_affinity": "the number of an interrupt is another one after the next boot",
    "cgroup": "whoever made the control group writes it again: `systemctl set-property`, or the limits of the pod",
}
"""Kinds that no file can carry."""


def _key(change: Change) -> tuple[str, str]:
    """The same for two changes of one knob."""
    try:
        if change.kind in SYSFS_KINDS:
            return "", path_of(change)
        if change.kind == "sysctl":
            name = sysctl_of(change)[0]
            return "sysctl", TWINS.get(name, name)
        if change.kind == "service":
            return change.kind, unit_of(change)
    except Unfit:
        pass
    return change.kind, change.target


def sort_out(
    changes: Iterable[Change], make: Callable[[Change], T]
) -> tuple[list[tuple[Change, T]], list[Left]]:
    """What `make` gives for each change, in their order, and the changes for which it raises Unfit. Of two changes of
    one knob the first counts."""
    carried: list[tuple[Change, T]] = []
    left: list[Left] = []
    seen: dict[tuple[str, str], Change] = {}
    for change in changes:
        try:
            if (why := _NOWHERE.get(change.kind)) is not None:
                raise Unfit(why)
            first = seen.setdefault(_key(change), change)
            if first is not change:
                raise Unfit(f"{first.code} sets the same to {first.new}")
            carried.append((change, make(change)))
        except Unfit as error:
            left.append(Left(told(change), str(error)))
    return carried, left


# -- comments ---------------------------------------------------------------------------------------------


def told(change: Change) -> str:
    """`MEM04, read: sysctl vm.swappiness: 60 -> 10`."""
    old = f"{words.shorten(change.old, 80)} -> " if change.old is not None else ""
    what = f"{change.kind} {words.shorten(change.target, 200)}: {old}{words.shorten(change.new, 200)}"
    if change.kind == INSTRUCTION:
        what = words.shorten(change.new, 400)
    known = "" if change.evidence == change.code else f", {change.evidence}"
    return f"{change.code}{known}: {what}"


def comment(*texts: str) -> list[str]:
    """Comment lines, one a text. Nothing in them can end the line or join it to the next."""
    return [f"# {words.shorten(words.clean(text), 900)}".rstrip("\\ ") for text in texts if text]


def beside(change: Change) -> list[str]:
    """The comment beside a line: code, evidence, values, reason, and what has to be known of it."""
    notes = [change.why]
    if change.risk != "safe":
        notes.append(f"risk: {change.risk}")
    if change.cuts_network:
        notes.append("it may cut the network for a moment")
    if change.owner:
        notes.append(f"also set by {change.owner}")
    return comment(". ".join([told(change), *(note.rstrip(". ") for note in notes if note)]))


def header(title: str, place: str, back: str, made_by: str) -> list[str]:
    return comment(f"{title} Made by {made_by or 'wellfed'}.", f"Use: {place}", f"Back: {back}")


def not_here(left: Sequence[Left]) -> list[str]:
    """What the file lacks, as comments at its end."""
    if not left:
        return []
    return ["", *comment("Not in this file:", *(f"- {one.what}: {one.reason}" for one in left))]


def joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
