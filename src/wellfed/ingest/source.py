"""Opening an event file: sniffed by content, unpacked in bounded windows, damage survived.

A window is a piece of the unpacked file in order. A truncated or corrupt gzip yields what could be unpacked
and leaves a note; a file that unpacks to far more than an event file ever does is refused.
"""

import io
import mmap
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from wellfed.model import WellfedError

WINDOW_BYTES = 8 << 20
BITE_BYTES = 16 << 10
"""Packed bytes unpacked at a time: a damaged bite is lost whole."""
BOMB_RATIO = 300
"""Kineto JSON packs 10:1 to 50:1; past this ratio and BOMB_FLOOR bytes it is not an event file."""
BOMB_FLOOR = 512 << 20


class Source:
    """The unpacked bytes of one file, window by window. `damage` is None, or what went wrong while unpacking."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: str | None = None
        self.unpacked = 0
        self.packed = readable_size(path)

    def windows(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            magic = file.read(4)
            file.seek(0)
            if magic[:2] == b"\x1f\x8b":
                pieces = self._inflate(file, _gzip_stream)
            elif magic == b"\x28\xb5\x2f\xfd":
                pieces = self._inflate(file, _zstd_stream)
            else:
                pieces = self._plain(file)
            for piece in pieces:
                self.unpacked += len(piece)
                if self.unpacked > BOMB_FLOOR and self.unpacked > BOMB_RATIO * max(self.packed, 1):
                    raise WellfedError(
                        f"{self.path.name} unpacks to more than {BOMB_RATIO} times its size: no event file does",
                        hint="unpack it yourself and pass the .json if you trust it",
                    )
                yield piece

    def _plain(self, file: io.BufferedReader) -> Iterator[bytes]:
        if self.packed == 0:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            for start in range(0, len(view), WINDOW_BYTES):
                yield view[start : start + WINDOW_BYTES]

    def _inflate(self, file: io.BufferedReader, opener: Any) -> Iterator[bytes]:
        stream = opener(file)
        while True:
            try:
                piece = stream.read(WINDOW_BYTES)
            except _damage_errors() as error:
                self.damage = str(error) or type(error).__name__
                return
            if not piece:
                if opener is _zstd_stream and _zstd_is_cut(file):
                    self.damage = "the zstd stream ends early"
                return
            yield piece


class _PartialGzip:
    """gzip that hands out everything before the damage: members one after another, a bite of input at a time."""

    def __init__(self, file: io.BufferedReader) -> None:
        from isal import isal_zlib

        self._file: Any = file
        self._new: Any = partial(isal_zlib.decompressobj, wbits=31)
        self._engine = self._new()
        self._error: Exception | None = None
        self._fresh = True

    def read(self, size: int) -> bytes:
        if self._error is not None:
            raise self._error
        out: list[bytes] = []
        room = size
        while room > 0:
            data = self._engine.unconsumed_tail or self._file.read(BITE_BYTES)
            if not data:
                if not self._engine.eof and not self._fresh:
                    self._error = EOFError("the gzip stream ends early")
                    if not out:
                        raise self._error
                break
            self._fresh = False
            try:
                piece = self._engine.decompress(data, room)
            except _damage_errors() as error:
                self._error = OSError(f"corrupt gzip data: {error}")
                if not out:
                    raise self._error from error
                break
            out.append(piece)
            room -= len(piece)
            if self._engine.eof:
                rest = self._engine.unused_data.lstrip(b"\0") or self._file.read(BITE_BYTES)
                self._engine = self._new()
                self._fresh = True
                if not rest:
                    break
                self._file = _Chained(rest, self._file)
        return b"".join(out)


class _Chained:
    """A reader that gives back `head` before the rest of `file`."""

    def __init__(self, head: bytes, file: Any) -> None:
        self._head, self._file = head, file

    def read(self, size: int) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            return head
        data: bytes = self._file.read(size)
        return data


def _gzip_stream(file: io.BufferedReader) -> _PartialGzip:
    return _PartialGzip(file)


def _zstd_stream(file: io.BufferedReader) -> Any:
    import zstandard

    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)


_ZSTD_CHECKSUM_BYTES = 4
_ZSTD_SKIPPED = range(0x184D2A50, 0x184D2A60)


def _zstd_is_cut(file: io.BufferedReader) -> bool:
    """Whether the last frame breaks off: the unpacker takes the end of the file for the end of the stream. Walks the
    headers of the blocks (RFC 8878, 3.1.1: three bytes, the last bit tells the last block)."""
    import zstandard

    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        at, size = 0, len(view)
        while at < size:
            if int.from_bytes(view[at : at + 4], "little") in _ZSTD_SKIPPED:
                at += 8 + int.from_bytes(view[at + 4 : at + 8], "little")
                continue
            try:
                head = view[at : at + 18]
                at += zstandard.frame_header_size(head)
                ends = _ZSTD_CHECKSUM_BYTES if zstandard.get_frame_parameters(head).has_checksum else 0
            except zstandard.ZstdError:
                return True
            last = False
            while not last:
                if at + 3 > size:
                    return True
                block = int.from_bytes(view[at : at + 3], "little")
                last = bool(block & 1)
                at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)  # a run is told by one byte
            at += ends
    return at > size


def checksum(data: bytes | memoryview, start: int) -> int:
    """CRC-32 of bytes that follow others, whose sum is `start`."""
    from isal import isal_zlib

    return int(isal_zlib.crc32(data, start))


def _damage_errors() -> tuple[type[Exception], ...]:
    """What the unpackers raise on damaged input."""
    import zstandard
    from isal import isal_zlib

    errors: Any = (EOFError, OSError, isal_zlib.error, zstandard.ZstdError)
    return errors  # type: ignore[no-any-return]


def readable_size(path: Path) -> int:
    """Bytes of an ordinary file that may be read. Raises WellfedError for anything else: a folder; a pipe or a
    device, which may never end, or never begin."""
    try:
        facts = path.stat()
        if stat.S_ISDIR(facts.st_mode):
            raise WellfedError(f"{path} is a folder", hint="name the trace files in it")
        if not stat.S_ISREG(facts.st_mode):
            raise WellfedError(f"{path} is a pipe or a device, not a file", hint="save it as a file first")
        with path.open("rb"):
            return facts.st_size
    except FileNotFoundError as error:
        raise WellfedError(f"no such file: {path}", hint="ls -l " + str(path.parent)) from error
    except OSError as error:
        raise WellfedError(f"can't read {path}: {error.strerror}", hint=f"ls -l {path}") from error


def is_folder(path: Path) -> bool:
    """Whether a path is a folder; False where that cannot be said (a name that is too long): its reader says why."""
    try:
        return path.is_dir()
    except OSError:
        return False
