"""Small files of our own that make a setting last: limits, sysctls, units of systemd, udev rules, tmpfiles.

Only files that are named after us are written or removed, always whole: a new file is complete beside the old one and
on disk before it takes its place, so after a crash there is the old one or the new one.
"""

import contextlib
import errno
import os
import re
import shlex
import stat

from wellfed.apply import commands
from wellfed.apply.commands import Run
from wellfed.apply.knobs import Plain
from wellfed.apply.root import Root
from wellfed.model import WellfedError

_UNIT = r"[\w@:][\w@:.-]*\.(service|slice|scope|socket|timer)\.d"
_TARGET = re.compile(
    r"/etc/(security/limits\.d|sysctl\.d|tmpfiles\.d|udev/rules\.d|modprobe\.d"
    rf"|systemd/(system|user)\.conf\.d|systemd/system/{_UNIT})/\d\d-wellfed[\w-]*\.(conf|rules)"
)
_LIMIT = 1 << 16
_BESIDE = ".wellfed-new"


class DropinKind(Plain):
    """`/etc/security/limits.d/90-wellfed.conf`; the value is the text of the file, None that there is none."""

    lasts = True

    def __init__(self, run: Run = commands.run) -> None:
        self.run = run

    def path(self, target: str) -> str:
        if not _TARGET.fullmatch(target) or ".." in target:
            raise WellfedError(
                f"`{target}` is no file of our own", hint='target = "/etc/security/limits.d/90-wellfed.conf"'
            )
        return target

    def key(self, target: str) -> str:
        return self.path(target)

    def expand(self, root: Root, target: str) -> list[str]:
        self.path(target)
        return [target]

    def read(self, root: Root, target: str) -> str | None:
        try:
            with _Folder(root, target) as folder:
                return _text(folder.fd, folder.leaf)
        except FileNotFoundError:
            return None

    def write(self, root: Root, target: str, value: str | None) -> None:
        if value is None:
            self._remove(root, target)
        else:
            data = value.encode()
            if len(data) > _LIMIT:
                raise OSError(errno.EFBIG, "too long for a drop-in")
            with _Folder(root, target, make=True) as folder:
                _put(folder.fd, folder.leaf, data)
        if target.startswith("/etc/systemd/system/") and (root.is_real or self.run is not commands.run):
            # Where systemd does not run there is nothing that would have to hear of it.
            with contextlib.suppress(OSError):
                self.run("units-reload")

    def same(self, target: str, a: str | None, b: str | None) -> bool:
        return a == b

    def obstacle(self, root: Root, target: str, new: str) -> str | None:
        folder = os.path.dirname(self.path(target))  # noqa: PTH120 - of a path of the machine, which is text
        while folder != "/" and not root.outside(folder).exists():
            folder = os.path.dirname(folder)  # noqa: PTH120
        there = root.outside(folder)
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            return f"{folder} lies on a file system that is mounted read-only"
        return None if os.access(there, os.W_OK) else f"no permission to write {folder}; run as root"

    def shell(self, target: str, value: str | None) -> str:
        path = shlex.quote(self.path(target))
        if value is None:
            return f"sudo rm {path}"
        return f"printf %s {shlex.quote(value)} | sudo install -D -m 644 /dev/stdin {path}"

    def tidy(self, root: Root, target: str) -> None:
        with contextlib.suppress(OSError), _Folder(root, target) as folder:
            os.unlink(f"{folder.leaf}{_BESIDE}", dir_fd=folder.fd)

    def _remove(self, root: Root, target: str) -> None:
        try:
            with _Folder(root, target) as folder:
                os.unlink(folder.leaf, dir_fd=folder.fd)
                os.fsync(folder.fd)
        except FileNotFoundError:
            return
        if target.startswith("/etc/systemd/system/"):
            # The folder of a unit's drop-ins was made with the first of them; one that holds others stays.
            with contextlib.suppress(OSError):
                os.rmdir(root.outside(os.path.dirname(target)))  # noqa: PTH106, PTH120


class _Folder:
    """The folder of a target, held open, so that what is done in it is done in that one. Links on the way are refused:
    they lead to files that are not ours."""

    def __init__(self, root: Root, target: str, *, make: bool = False) -> None:
        self.root, self.make = root, make
        self.parts = target.strip("/").split("/")
        self.leaf = self.parts.pop()
        self.fd = -1

    def __enter__(self) -> "_Folder":
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        fd = os.open(self.root.top, flags)
        try:
            for part in self.parts:
                if self.make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=fd)
                        os.fsync(fd)
                below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = below
        except OSError:
            os.close(fd)
            raise
        self.fd = fd
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def _text(folder: int, leaf: str) -> str:
    fd = os.open(leaf, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LIMIT:
            raise OSError(errno.EINVAL, "no small regular file")
        data = b""
        while chunk := os.read(fd, _LIMIT):
            data += chunk
    finally:
        os.close(fd)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, "no text: it can't be ours") from error


def _put(folder: int, leaf: str, data: bytes) -> None:
    """Replace a file as a whole. Raises OSError, and then the old one is there untouched."""
    beside = f"{leaf}{_BESIDE}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(beside, flags, 0o644, dir_fd=folder)
    try:
        try:
            os.fchmod(fd, 0o644)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(beside, leaf, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
