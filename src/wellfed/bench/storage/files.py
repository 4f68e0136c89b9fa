"""The file that storage is measured with: of random data, without a name, and open past the page cache where that is possible.

Compressing and deduplicating devices lie about zeros. A file without a name (O_TMPFILE, or one that lost its name as soon as it
was open) leaves nothing behind, however the run ends. Files only: never a device path.
"""

import errno
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from wellfed.bench.setup import MIB, Setup, available_bytes

CHUNK = 8 * MIB
FILE_MAX = 1024 * MIB
FILE_MIN = 16 * MIB
MEMORY_FS = ("tmpfs", "ramfs", "devtmpfs")
NETWORK_FS = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "lustre",
    "beegfs",
    "ceph",
    "gpfs",
    "9p",
    "virtiofs",
    "wekafs",
    "fuse",
)
_FREE_KEPT = 4
"""The file takes at most a quarter of what is free."""
_TRIED = 4096
_REFUSED = (errno.EINVAL, errno.ENOTSUP)


class Target(NamedTuple):
    """An open file of `size` bytes of random data; `direct` says whether `fd` bypasses the page cache. `plain` is the same file
    through the page cache."""

    fd: int
    plain: int
    size: int
    direct: bool
    fs: str | None


def file_size(setup: Setup, most: int | None = None) -> int:
    """Bytes of the file: at most 1 GiB (or `most`), a quarter of what is free. Raises OSError with the reason when that leaves too
    little, or when the folder is memory."""
    fs = file_system(setup.folder)
    if fs in MEMORY_FS:
        raise OSError(errno.ENOTSUP, f"{fs} is memory, not storage", str(setup.folder))
    free = os.statvfs(setup.folder)
    usable = min(free.f_bavail * free.f_frsize, available_bytes(setup.machine) * 4)
    size = min(FILE_MAX if most is None else most, usable // _FREE_KEPT // CHUNK * CHUNK)
    if size < FILE_MIN:
        raise OSError(errno.ENOSPC, "less than 64 MiB are free", str(setup.folder))
    return size


def file_system(folder: Path) -> str | None:
    """The type of the file system that holds the folder, None when the system does not tell."""
    real = Path(os.path.realpath(folder))
    best: tuple[int, str | None] = (-1, None)
    for mount in psutil.disk_partitions(all=True):
        if real.is_relative_to(mount.mountpoint) and len(mount.mountpoint) >= best[0]:
            best = (len(mount.mountpoint), mount.fstype or None)
    return best[1]


def reservation(target: Target) -> str | None:
    """What the place of the file takes from the result."""
    if target.fs is not None and target.fs.split(".")[0] in NETWORK_FS:
        return f"{target.fs} is a network or a host's file system: a cache at its other end may have answered"
    return None


def describe(target: Target) -> dict[str, Any]:
    """For `environment`."""
    return {"file_system": target.fs, "direct": target.direct}


@contextmanager
def nameless_file(folder: Path) -> Iterator[int]:
    """A descriptor to read and write a new file in the folder that has no name any more."""
    fd = _open_nameless(folder)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def random_file(folder: Path, size: int, deadline: float) -> Iterator[Target]:
    """A nameless file of as much random data as could be written before the deadline (a chunk at least), flushed to the device."""
    with nameless_file(folder) as plain:
        written = fill(plain, size, deadline)
        direct = open_direct(plain)
        try:
            yield Target(
                plain if direct is None else direct, plain, written, direct is not None, file_system(folder)
            )
        finally:
            if direct is not None:
                os.close(direct)


def _open_nameless(folder: Path) -> int:
    flag = getattr(os, "O_TMPFILE", 0)
    if flag:
        try:
            return os.open(folder, flag | os.O_RDWR, 0o600)
        except OSError as error:  # EISDIR: a kernel or a file system that does not know it
            if error.errno not in (*_REFUSED, errno.EISDIR, errno.ENOENT):
                raise
    fd, name = tempfile.mkstemp(prefix=".wellfed-", dir=folder)
    Path(name).unlink()
    return fd


def open_direct(fd: int) -> int | None:
    """Another descriptor of an open file that is not empty, past the page cache; None where that is refused. Some file systems take the
    flag and refuse the first read, so one is tried."""
    flag = getattr(os, "O_DIRECT", 0)
    if not flag:
        return None
    try:
        direct = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | flag)
    except OSError as error:
        if error.errno in (*_REFUSED, errno.ENOENT, errno.EACCES, errno.ENXIO):
            return None
        raise
    try:
        os.preadv(direct, [memoryview(mmap.mmap(-1, _TRIED))], 0)
    except OSError as error:
        os.close(direct)
        if error.errno in _REFUSED:
            return None
        raise
    return direct


def fill(fd: int, size: int, deadline: float) -> int:
    """Bytes of random data written from the start of the file, whole chunks, at least one, all on the device."""
    rng = np.random.default_rng(time.time_ns())
    written = 0
    while written < size and (written == 0 or time.monotonic() < deadline):
        view = memoryview(rng.bytes(CHUNK))
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)  # each time: else a slow device takes its time after the deadline
        written += CHUNK
    return written


def drop_pages(fd: int, offset: int = 0, length: int = 0) -> None:
    """Take the file out of the page cache, as far as its pages are clean and nobody maps them. Length 0: to its end."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)
