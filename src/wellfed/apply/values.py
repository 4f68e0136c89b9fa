"""What a knob says, and whether two spellings are the same value."""

import re

_CHOICE = re.compile(r"\[([^\]\s]+)\]")
_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_MASK_FILES = ("smp_affinity", "rps_cpus", "xps_cpus", "cpumask", "default_smp_affinity")
_LIST_FILES = ("smp_affinity_list", "cpuset.cpus", "cpuset.mems", "cpulist")


def chosen(text: str) -> str:
    """`always [madvise] never` -> `madvise`; other text stays."""
    found = _CHOICE.findall(text)
    return found[0] if len(found) == 1 and len(text.split()) > 1 else text.strip()


def choices(text: str) -> tuple[str, ...]:
    """The words a knob with a bracketed choice takes; `()` when it is none."""
    if len(_CHOICE.findall(text)) != 1 or len(text.split()) < 2:
        return ()
    return tuple(word.strip("[]") for word in text.split())


def same(name: str, a: str | None, b: str | None) -> bool:
    """Whether two texts mean the same for the knob at path `name`: numbers in any base and spacing, CPU masks and
    lists in any spelling."""
    if a is None or b is None:
        return a is b
    return _plain(name, a) == _plain(name, b)


def _plain(name: str, text: str) -> object:
    words = chosen(text).split()
    leaf = name.rpartition("/")[2]
    if leaf in _MASK_FILES and len(words) == 1:
        return _mask(words[0])
    if leaf in _LIST_FILES:
        return frozenset(_cpus(words[0])) if words and _LIST.fullmatch(words[0]) else tuple(words)
    return tuple(_number(word) for word in words)


def _number(word: str) -> object:
    try:
        return int(word, 16) if word.lower().startswith("0x") else int(word)
    except ValueError:
        return word


def _mask(word: str) -> object:
    try:
        return int(word.replace(",", ""), 16)
    except ValueError:
        return word


def _cpus(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        if int(high or low) - int(low) < 1 << 16:
            found.update(range(int(low), int(high or low) + 1))
    return found
