"""The part of the file system in which knobs live, below one prefix so that tests can stand on a copy."""

import errno
import os
import shlex
import stat
import sys
from pathlib import Path

from wellfed.model import WellfedError

KNOBS = ("/proc/sys/", "/proc/irq/", "/sys/")
"""Where a knob may be. Nothing else is ever written through here."""

_LIMIT = 1 << 16


class Root:
    """`top` is `/`, or the folder that stands for it."""

    def __init__(self, top: str | Path = "/") -> None:
        self.top = os.path.realpath(top)

    @property
    def is_real(self) -> bool:
        return self.top == "/"

    def outside(self, name: str) -> Path:
        """Where a path of the machine is, for our own files (journal, drop-ins). Unchecked."""
        return Path(self.top) / name.lstrip("/")

    def knob(self, name: str) -> str:
        """Where a knob is, all links resolved. Raises WellfedError for a path that leaves the places of knobs,
        directly or through a link."""
        if "\0" in name or os.path.normpath(name) != name or not name.startswith(KNOBS):
            raise WellfedError(
                f"`{name}` is no knob", hint="targets lie beneath /proc/sys, /proc/irq or /sys"
            )
        real = os.path.realpath(os.path.join(self.top, name.lstrip("/")))  # noqa: PTH118 - text stays text
        within = real if self.is_real else real.removeprefix(self.top)
        if (not self.is_real and within == real) or not within.startswith(KNOBS):
            raise WellfedError(f"`{name}` leads out of the places of knobs", hint=f"readlink -f {name}")
        return real

    def read(self, name: str) -> str:
        """The text of a knob without trailing newlines and NUL bytes. Raises OSError."""
        fd = os.open(self.knob(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "no regular file", name)
            data = os.read(fd, _LIMIT)
        finally:
            os.close(fd)
        return data.decode("utf-8", "backslashreplace").rstrip("\n\0 ")

    def write(self, name: str, value: str) -> None:
        """Write a knob with one system call, as the kernel wants it. Never makes a file. Raises OSError."""
        fd = os.open(self.knob(name), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW)
        data = f"{value}\n".encode()
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "no regular file", name)
            if os.write(fd, data) != len(data):
                raise OSError(errno.EIO, "written in part", name)
        finally:
            os.close(fd)

    def boot_id(self) -> str:
        """The kernel's name of this boot; empty where it has none."""
        try:
            return self.read("/proc/sys/kernel/random/boot_id")
        except OSError:
            return ""

    def writable(self, name: str) -> str | None:
        """Why the knob can't be written, as far as can be seen without writing; None when it probably can."""
        real = self.knob(name)
        try:
            mode = os.stat(real).st_mode  # noqa: PTH116
            read_only = os.statvfs(real).f_flag & os.ST_RDONLY
        except OSError as error:
            return f"{name}: {error.strerror}"
        if read_only:
            return f"{name} lies on a file system that is mounted read-only"
        if not mode & 0o222:
            return f"{name} is read-only: the kernel takes no value here"
        if not os.access(real, os.W_OK):
            return f"no permission to write {name}; run as root"
        return None


def with_sudo(words: str) -> str:
    """The line that runs wellfed as root: by its path in a virtual environment, which sudo does not look into."""
    if sys.prefix == sys.base_prefix:
        return f"sudo wellfed {words}"
    return f"sudo {shlex.quote(str(Path(sys.prefix, 'bin', 'wellfed')))} {words}"
