"""What the files of sysctl.d and the active profile of tuned set, of the knobs worth watching.

Of files that have one name the first folder's counts, all in order of their names, the last line for a key wins
(`man sysctl.d`). tuned sets its own first and then lets sysctl.d have the last word (`reapply_sysctl`)."""

import re
from collections.abc import Iterator

from wellfed.host.door import Host
from wellfed.host.kernel import SYSCTLS, sysctl_path
from wellfed.host.parse import fact, gap, known
from wellfed.model.fact import Fact

FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")
_PROFILES = ("/etc/tuned", "/etc/tuned/profiles", "/usr/lib/tuned", "/usr/lib/tuned/profiles")
_FILES_MAX = 64
_DEPTH_MAX = 8
_SCHEDULER = re.compile(r"kernel\.sched_[a-z_]{1,40}")
LINE = re.compile(r"\s*(?:-\s*)?([a-z][\w./-]{1,80}?)\s*=\s*(\S.{0,200}?)\s*")
_NOT_KEPT = frozenset({"kernel.core_pattern"})
"""It names a site's own programs."""


def read_sysctl_files(host: Host) -> list[Fact]:
    """The fact `kernel.sysctl_files`, and `kernel.sysctls[KEY]` for knobs of the scheduler that only a file names: many have
    left the kernel, and files go on setting them."""
    set_by: dict[str, tuple[str, str]] = {}
    for path, text in (*_tuned(host), *_files(host)):
        for key, value in lines(text):
            if value is None:
                set_by.pop(key, None)
            else:
                set_by[key] = (value, path)
    if not set_by and not any(map(host.exists, FOLDERS)):
        return [gap("kernel.sysctl_files", FOLDERS[0])]
    said = {key: f"{value} @ {path}" for key, (value, path) in sorted(set_by.items())}
    raw = "\n".join(f"{key} = {value} @ {path}" for key, (value, path) in sorted(set_by.items()))
    return [
        known("kernel.sysctl_files", said, FOLDERS[0], raw),
        *(
            fact(f"kernel.sysctls[{key}]", host.read(sysctl_path(key)), lambda text: " ".join(text.split()))
            for key in said
            if key not in SYSCTLS
        ),
    ]


def lines(text: str) -> Iterator[tuple[str, str | None]]:
    """Watched keys and values of one file. None where the line begins with `-`: it may fail, and its author knows that."""
    for line in text.splitlines():
        found = LINE.fullmatch(line)
        if found and is_watched(key := found[1].replace("/", ".")):
            yield key, None if line.lstrip().startswith("-") else " ".join(found[2].split())


def is_watched(key: str) -> bool:
    return (key in SYSCTLS and key not in _NOT_KEPT) or _SCHEDULER.fullmatch(key) is not None


def _files(host: Host) -> Iterator[tuple[str, str]]:
    places: dict[str, str] = {}
    for folder in FOLDERS:
        for name in host.listdir(folder)[:_FILES_MAX]:
            if name.endswith(".conf"):
                places.setdefault(name, f"{folder}/{name}")
    for _, path in sorted(places.items()):
        text = host.read(path).text
        if text is not None:
            yield path, text


def _tuned(host: Host) -> list[tuple[str, str]]:
    """The `[sysctl]` parts of the active profile, what it includes first."""
    found: list[tuple[str, str]] = []
    met: set[str] = set()

    def add(name: str, depth: int) -> None:
        if name in met or depth > _DEPTH_MAX or not re.fullmatch(r"[\w.-]{1,64}", name):
            return
        met.add(name)
        for folder in _PROFILES:
            path = f"{folder}/{name}/tuned.conf"
            text = host.read(path).text
            if text is not None:
                parts = sections(text)
                for included in re.findall(r"^\s*include\s*=\s*(.+)$", parts.get("main", ""), re.MULTILINE):
                    for other in included.split(","):
                        add(other.strip(), depth + 1)
                found.append((path, parts.get("sysctl", "")))
                return

    for name in (host.read("/etc/tuned/active_profile").text or "").split():
        add(name, 0)
    return found


def sections(text: str) -> dict[str, str]:
    """Text by the `[name]` above it."""
    parts = re.split(r"^\s*\[([\w.-]{1,64})\]\s*$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
