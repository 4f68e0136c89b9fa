"""Two settings of a mounted file system that can be switched while it is in use: how reads are noted in it
(`/data:atime`), and how much a tmpfs may hold (`/dev/shm:size`, bytes).

By the system call, not by mount(8), which would also set what `/etc/fstab` says of the mount today.
"""

import ctypes
import errno
import os
import re
import shlex

from wellfed.apply.knobs import Plain, Refused
from wellfed.apply.root import Root
from wellfed.model import WellfedError

_ATIME = ("relatime", "noatime", "strictatime")
_REMOUNT = 32
_BIND = 4096
_FLAGS = {
    "ro": 1,
    "nosuid": 2,
    "nodev": 4,
    "noexec": 8,
    "nosymfollow": 256,
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
    "strictatime": 1 << 24,
}
"""Of mount(2). What is left out of a remount is switched off, so all that is on is said again."""

_TARGET = re.compile(r"(/[^\0\n]*):(atime|size)")


class MountKind(Plain):
    """`/data:atime` or `/dev/shm:size`."""

    lasts = False

    def parts(self, target: str) -> tuple[str, str]:
        match = _TARGET.fullmatch(target)
        if match is None or os.path.normpath(match[1]) != match[1]:
            raise WellfedError(f"`{target}` is no setting of a mount", hint='target = "/dev/shm:size"')
        return match[1], match[2]

    def key(self, target: str) -> str:
        return target

    def expand(self, root: Root, target: str) -> list[str]:
        self.parts(target)
        return [target]

    def read(self, root: Root, target: str) -> str | None:
        place, what = self.parts(target)
        options, kind = _mounted(root, place)
        if what == "atime":
            return next((word for word in ("noatime", "relatime") if word in options), "strictatime")
        if kind != "tmpfs":
            raise OSError(errno.EOPNOTSUPP, f"{place} is {kind}, whose size is not set by mounting")
        room = os.statvfs(place)
        return str(room.f_blocks * room.f_frsize)

    def write(self, root: Root, target: str, value: str | None) -> None:
        if value is None:
            raise Refused(errno.EINVAL, "a mount always has a value")
        place, what = self.parts(target)
        options, _ = _mounted(root, place)
        words = [word for word in options if word in _FLAGS]
        if what == "atime":
            words = [word for word in words if word not in _ATIME] + [value]
            _mount(place, words, _REMOUNT | _BIND, None)
        else:
            if not {"noatime", "relatime"} & set(words):
                words.append("strictatime")
            _mount(place, words, _REMOUNT, f"size={value}")

    def same(self, target: str, a: str | None, b: str | None) -> bool:
        if a is None or b is None or target.endswith(":atime"):
            return a == b
        page = os.sysconf("SC_PAGE_SIZE")
        return a == b or (a.isdigit() and b.isdigit() and -(-int(a) // page) == -(-int(b) // page))

    def obstacle(self, root: Root, target: str, new: str) -> str | None:
        place, what = self.parts(target)
        if what == "atime":
            return None if new in _ATIME else f"it is {', '.join(_ATIME)}, not {new}"
        if not new.isdigit() or int(new) == 0:
            return f"`{new}` is no number of bytes"
        room = os.statvfs(place)
        used = (room.f_blocks - room.f_bfree) * room.f_frsize
        return f"{used} bytes are used in {place}, more than {new}" if used > int(new) else None

    def shell(self, target: str, value: str | None) -> str:
        place, what = self.parts(target)
        option = value if what == "atime" else f"size={value}"
        return f"sudo mount -o {shlex.quote(f'remount,{option}')} {shlex.quote(place)}"


def _mounted(root: Root, place: str) -> tuple[tuple[str, ...], str]:
    """Options of the mount that is seen at `place`, and the kind of its file system. Raises OSError."""
    if not root.is_real:
        raise OSError(errno.EOPNOTSUPP, "mounts are of this machine only")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:  # noqa: PTH123
        for line in reversed(lines.readlines()):
            words = line.split()
            if re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), words[4]) == place:
                after = words[words.index("-") + 1 :]
                if "ro" in after[2].split(","):
                    raise OSError(errno.EROFS, f"{place} is mounted read-only")
                return tuple(words[5].split(",")), after[0]
    raise OSError(errno.ENOENT, f"nothing is mounted at {place}")


def _mount(place: str, words: list[str], flags: int, data: str | None) -> None:
    for word in words:
        flags |= _FLAGS[word]
    libc = ctypes.CDLL(None, use_errno=True)
    told = data.encode() if data is not None else None
    if libc.mount(b"none", os.fsencode(place), None, ctypes.c_ulong(flags), told) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
