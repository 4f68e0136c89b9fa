"""A recorded machine as a tree in memory, from a tar, a procfs text archive or (lazily) a folder.

Nothing is ever unpacked to disk, links are only followed by `walk` and only inside the tree, and every size
is capped: an archive comes from somebody else."""

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from wellfed.model.errors import WellfedError

MAX_MEMBER_BYTES = 4 << 20
MAX_MEMBERS = 100_000
"""Of some hundred real ones the largest has 64,266; a member takes about 60 us to read."""
MAX_FOLDERS = 200_000
"""Implied by names of members: a name of 60 levels stands for 60 folders."""
MAX_HEADER_BYTES = 64 << 10
"""Of an extended header, which says the name of one member: two paths of 4096 characters, and some numbers."""
MAX_HEADERS = 8
"""Extended headers of one member, one after the other."""
MAX_TOTAL_BYTES = 256 << 20
MAX_RATIO = 2000
"""Unpacked over packed, judged from 32 MiB on. sysfs snapshots reach about 250: each tiny file takes a
kilobyte of tar."""
MAX_LINKS = 40
MAX_DEPTH = 64

MAX_READS_BEYOND = 64

_HEADER = tarfile.HeaderError
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError)
_HINT = "wellfed inspect --record box.tar"
_TEXT = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]+")
"""No archive begins with printable bytes only: a tar's name is filled up with zeros, the others have their marks."""


class Link(NamedTuple):
    target: str


Node = bytes | Link | None
"""File content, link, or None for a folder."""


class Tree(Protocol):
    """What `recorded.py` needs of a tree. Paths are canonical: absolute, no link on the way."""

    notes: tuple[str, ...]

    def link(self, path: str) -> str | None: ...
    def data(self, path: str, limit: int) -> bytes:
        """At most `limit` + 1 bytes of a file. Raises OSError."""
        ...

    def names(self, path: str) -> tuple[str, ...]: ...
    def has(self, path: str) -> bool: ...


class MemoryTree:
    """Folders are implied by what lies in them. Raises WellfedError when there are more than MAX_FOLDERS."""

    def __init__(self, nodes: dict[str, Node], notes: tuple[str, ...] = ()) -> None:
        self.nodes = nodes
        self.notes = notes
        self.children: dict[str, set[str]] = {"/": set()}
        for path in nodes:
            while path != "/":
                parent, _, name = path.rpartition("/")
                parent = parent or "/"
                names = self.children.setdefault(parent, set())
                if name in names:
                    break
                names.add(name)
                path = parent
            if len(self.children) > MAX_FOLDERS:
                raise WellfedError(f"the host has more than {MAX_FOLDERS:,} folders", hint=_HINT)

    def link(self, path: str) -> str | None:
        node = self.nodes.get(path)
        return node.target if isinstance(node, Link) else None

    def data(self, path: str, limit: int) -> bytes:
        node = self.nodes.get(path)
        if isinstance(node, bytes):
            return node[: limit + 1]
        if self.has(path):
            raise IsADirectoryError(21, "is a folder")
        raise FileNotFoundError(2, "not in the recording")

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self.children.get(path, ())))

    def has(self, path: str) -> bool:
        return path in self.nodes or path in self.children

    def below(self, prefix: str) -> "MemoryTree":
        """The tree whose root is the folder `prefix`."""
        if prefix == "/":
            return self
        start = prefix.rstrip("/") + "/"
        inside = {path[len(start) - 1 :]: node for path, node in self.nodes.items() if path.startswith(start)}
        return MemoryTree(inside, self.notes)


class FolderTree:
    """A folder on disk, read when asked. `walk` resolves links component by component before any path
    comes here, and the last step does not follow one, so nothing outside the folder is opened."""

    notes: tuple[str, ...] = ()

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")

    def link(self, path: str) -> str | None:
        try:
            return os.readlink(self.root + path)  # noqa: PTH115 - the text as it stands
        except OSError:
            return None

    def data(self, path: str, limit: int) -> bytes:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self.root + path, flags)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(95, "not a regular file")
            return file.read(min(limit, MAX_MEMBER_BYTES) + 1)

    def names(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(self.root + path)))  # noqa: PTH208 - names, not Paths
        except OSError:
            return ()

    def has(self, path: str) -> bool:
        return os.path.lexists(self.root + path)

    def below(self, prefix: str) -> "FolderTree":
        return FolderTree(self.root + prefix.rstrip("/"))


def walk(path: str, link: Callable[[str], str | None]) -> tuple[str | None, dict[str, str]]:
    """The canonical path and the links met on the way, as in a chroot: `..` stops at the root. None for a
    loop or a path that is too deep."""
    todo = [part for part in reversed(path.split("/")) if part]
    done: list[str] = []
    met: dict[str, str] = {}
    hops = 0
    while todo:
        part = todo.pop()
        if part == ".":
            continue
        if part == "..":
            del done[-1:]
            continue
        here = "/" + "/".join((*done, part))
        target = link(here)
        if target is None:
            done.append(part)
            if len(done) + len(todo) > MAX_DEPTH:
                return None, met
            continue
        hops += 1
        if hops > MAX_LINKS:
            return None, met
        met[here] = target
        if target.startswith("/"):
            done = []
        todo.extend(part for part in reversed(target.split("/")) if part)
    return "/" + "/".join(done), met


def open_tree(path: Path) -> MemoryTree | FolderTree:
    """The tree of a file or folder, its root where the archive has it. Raises WellfedError."""
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            return FolderTree(str(path))
        if not stat.S_ISREG(kind):  # opening a pipe would wait for a writer that may never come
            raise WellfedError(f"`{path}` is neither a file nor a folder", hint=_HINT)
        with path.open("rb") as file:
            head = file.read(262)
            size = os.fstat(file.fileno()).st_size
            file.seek(0)
            if not head:
                raise WellfedError(f"`{path}` is an empty file, not a recorded host", hint=_HINT)
            if head.startswith((b"# Archive created by ttar", b"Directory: ", b"Path: ")):
                return _ttar(file.read(MAX_TOTAL_BYTES))
            return _tar(file, head, size, str(path))
    except FileNotFoundError as error:
        raise WellfedError(f"there is no host `{path}`", hint=_HINT) from error
    except (OSError, ValueError) as error:  # ValueError: a name that holds a NUL
        why = getattr(error, "strerror", None) or error
        raise WellfedError(f"cannot read host `{path}`: {why}", hint=_HINT) from error


class _Counted(io.RawIOBase):
    """A stream that raises once more was unpacked than anybody's recording needs."""

    def __init__(self, stream: Any, packed_bytes: int, name: str) -> None:
        self.stream, self.packed, self.name = stream, max(packed_bytes, 1), name
        self.count = 0
        self.beyond = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self.stream.read(size)
        self.count += len(data)
        self.beyond = 0 if data or not size else self.beyond + 1
        if (
            self.beyond > MAX_READS_BEYOND
        ):  # tarfile would go on, block by block, for as long as a member claims
            raise EOFError("a member claims to be longer than the archive")
        bomb = self.count > 32 << 20 and self.count > MAX_RATIO * self.packed
        if self.count > MAX_TOTAL_BYTES or bomb:
            raise WellfedError(
                f"`{self.name}` unpacks to more than {self.count >> 20} MiB from {self.packed} bytes: "
                "not a recorded host",
                hint=_HINT,
            )
        return data


def _unpacked(file: IO[bytes], head: bytes) -> Any:
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if head.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if head.startswith(b"\xfd7zXZ"):
        return lzma.LZMAFile(file)
    return file


def _tar(file: IO[bytes], head: bytes, size: int, name: str) -> MemoryTree:
    stream = _Counted(_unpacked(file, head), size, name)
    nodes: dict[str, Node] = {}
    skipped: Counter[str] = Counter()
    damage: str | None = None
    try:
        with tarfile.open(fileobj=stream, mode="r|", errorlevel=1, tarinfo=_Member) as tar:
            for path, node in _members(tar, nodes, skipped, name):
                nodes[path] = node  # noqa: PERF403 - hard links look up what came before
            damage = _cut_short(tar)
    except _DAMAGE as error:
        damage = str(error) or type(error).__name__
    notes = []
    if damage:
        notes.append(f"the archive is damaged after {len(nodes):,} members ({damage}); the rest is lost")
    if skipped:
        parts = ", ".join(f"{count} {what}" for what, count in sorted(skipped.items()))
        notes.append(f"{sum(skipped.values())} members skipped: {parts}")
    if not nodes:
        why = damage or "; ".join(notes) or "it has no members"
        raise WellfedError(f"`{name}` is not a tar of a host: {why}", hint=_instead(name, head))
    return MemoryTree(nodes, tuple(notes))


def _cut_short(tar: tarfile.TarFile) -> str | None:
    """Why the archive is not whole. `tarfile` takes a header that is cut, garbled or missing for the end, and says
    nothing: what a copy that broke off still holds would pass for the whole machine."""
    end = type(getattr(tar, "ended_by", tarfile.TarError())).__name__
    if end not in ("EmptyHeaderError", "TruncatedHeaderError", "InvalidHeaderError"):
        return None
    if end == "InvalidHeaderError":
        return "then comes what is no member"
    return "it ends without the mark of its end"


def _instead(name: str, head: bytes) -> str:
    """What a file that is no archive may be good for."""
    if name.lower().endswith(".case"):
        return "a case holds what was found, not the machine: wellfed.load(FILE) in Python, or a recording: inspect --record"
    if _TEXT.fullmatch(head):
        return "what a tool printed goes in with `wellfed check --evidence FILE`; a machine: wellfed inspect --record box.tar"
    return _HINT


class _Member(tarfile.TarInfo):
    """Remembers how the archive ended. A member whose extended headers are capped in length and number: `tarfile` reads each whole, and calls itself
    for the next. `_proc_member` is the place that the standard library keeps for subclasses."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> "_Member":  # the name is the base class's
        try:
            return super().fromtarfile(tarfile)
        except _HEADER as error:
            tarfile.ended_by = error  # type: ignore[attr-defined]
            raise

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in _EXTENDED:
            return super()._proc_member(tar)  # type: ignore[misc, no-any-return]
        depth = getattr(tar, "extended_headers", 0)
        if self.size > MAX_HEADER_BYTES or depth >= MAX_HEADERS:
            raise tarfile.ReadError("a header that is too long, or too many of them")
        tar.extended_headers = depth + 1  # type: ignore[attr-defined]
        try:
            return super()._proc_member(tar)  # type: ignore[misc, no-any-return]
        finally:
            tar.extended_headers = depth  # type: ignore[attr-defined]


_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def _members(
    tar: tarfile.TarFile, nodes: dict[str, Node], skipped: Counter[str], name: str
) -> Iterator[tuple[str, Node]]:
    number = 0
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined] # a list of all would be most of the memory
        number += 1
        if number > MAX_MEMBERS:
            raise WellfedError(f"`{name}` has more than {MAX_MEMBERS:,} members", hint=_HINT)
        path = _inside(member.name)
        if path is None:
            skipped["outside the root or too deep"] += 1
        elif member.isdir():
            yield path, None
        elif member.issym():
            yield path, Link(member.linkname[:4096])
        elif member.islnk():
            target = nodes.get(_inside(member.linkname) or "")
            if isinstance(target, bytes):
                yield path, target
            else:
                skipped["hard links to nothing inside"] += 1
        elif not member.isreg():
            skipped["devices or pipes"] += 1
        elif member.size > MAX_MEMBER_BYTES:
            skipped["files over 4 MiB"] += 1
        else:
            content = tar.extractfile(member)
            assert content is not None
            yield path, content.read(MAX_MEMBER_BYTES)


def _inside(name: str) -> str | None:
    """The member's path under the root; None when it would leave it. An absolute name counts from the root."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(parts) > MAX_DEPTH or len(name) > 4096 or "\0" in name:
        return None
    return "/" + "/".join(parts)


def _ttar(data: bytes) -> MemoryTree:
    """The text archive of prometheus/procfs: `Path:`, then `Lines:` n with n lines, or `SymlinkTo:`, or
    `Directory:`. Its escapes: `NULLBYTE` is NUL, `EOF` on the last line says that no newline follows."""
    nodes: dict[str, Node] = {}
    lines = data.split(b"\n")
    path: str | None = None
    at = 0
    while at < len(lines) and len(nodes) < MAX_MEMBERS:
        key, _, value = lines[at].partition(b": ")
        at += 1
        if key == b"Directory":
            folder = _inside(value.decode("utf-8", "replace"))
            if folder and folder != "/":
                nodes[folder] = None
        elif key == b"Path":
            path = _inside(value.decode("utf-8", "replace"))
        elif key == b"SymlinkTo" and path:
            nodes[path] = Link(value.decode("utf-8", "replace"))
        elif key == b"Lines" and value.isdigit():
            count = min(int(value), len(lines) - at)
            text = b"\n".join(lines[at : at + count]).replace(b"NULLBYTE", b"\0")
            if path:
                nodes[path] = text.removesuffix(b"EOF")[:MAX_MEMBER_BYTES]
            at += count
    return MemoryTree(nodes)
