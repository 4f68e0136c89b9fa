"""A machine that was recorded: by `wellfed inspect --record`, or any tar or folder that holds a `sys` or
`proc` tree (hwloc, lscpu, ghw and sosreport make such)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from wellfed.host.archive import FolderTree, Link, MemoryTree, Node, open_tree, walk
from wellfed.host.door import COMMANDS, ITEM, PROBES, READ_LIMIT, Reading
from wellfed.model.base import Value
from wellfed.model.errors import WellfedError
from wellfed.model.fact import Status

if TYPE_CHECKING:
    from wellfed.host.stated import StatedHost

FORMAT = 1
_ROOT_DEPTH = 3
_FOLDERS_SEARCHED = 500
_NOT_RECORDED = "not in the recording"
_T = TypeVar("_T")


class Manifest(Value, frozen=True, kw_only=True):
    """`manifest.json` of a recording. `counts` is for people."""

    format: int
    wellfed: str = ""
    made_at: str = ""
    redacted: bool = False
    counts: dict[str, int] = {}


class Index(Value, frozen=True, kw_only=True):
    """`index.json`: what a tar cannot say. `listings` are the names in the folders that were listed (most of
    those files were never read); `readings` are the reads that gave no text, by path; `present` are paths that
    were only asked whether they exist."""

    listings: dict[str, tuple[str, ...]] = {}
    readings: dict[str, Reading] = {}
    present: tuple[str, ...] = ()


def saved_as(name: str, item: str) -> str:
    """Under which name a command's answer is kept: `ethtool@eth0` for one about a device."""
    return f"{name}@{item}" if item else name


class RecordedHost:
    """Answers from a tree and from the saved answers of commands, probes and NVML."""

    recorded = True

    def __init__(
        self,
        tree: MemoryTree | FolderTree,
        *,
        origin: str,
        notes: tuple[str, ...] = (),
        index: Index = Index(),  # noqa: B008 - frozen
        commands: Mapping[str, Reading] | None = None,
        probes: Mapping[str, Reading] | None = None,
        nvml: dict[str, Any] | None = None,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.origin = origin
        self.notes = (*tree.notes, *notes)
        self._tree = tree
        self._index = index
        self._commands = commands or {}
        self._probes = probes or {}
        self._nvml = nvml or {"status": "missing", "detail": _NOT_RECORDED, "system": {}, "devices": []}
        self._environ = environ or {}
        self._walked: dict[str, str | None] = {}

    def _canonical(self, path: str) -> str | None:
        if path not in self._walked:
            self._walked[path] = walk(path, self._tree.link)[0]
        return self._walked[path]

    def read(self, path: str, limit: int = READ_LIMIT) -> Reading:
        real = self._canonical(path)
        if real is None:
            return Reading(source=path, status="error", detail="too many links")
        known = self._index.readings.get(real)
        if known is not None:
            return Reading(source=path, status=known.status, detail=known.detail)
        try:
            data = self._tree.data(real, limit)
        except OSError as error:
            status: Status = "missing" if isinstance(error, FileNotFoundError) else "unsupported"
            return Reading(source=path, status=status, detail=error.strerror)
        text = data[:limit].decode("utf-8", "replace").rstrip("\n\0")
        return Reading(source=path, text=text, detail=f"cut at {limit} bytes" if len(data) > limit else None)

    def listdir(self, path: str) -> tuple[str, ...]:
        real = self._canonical(path)
        if real is None:
            return ()
        if real in self._index.listings:
            return self._index.listings[real]
        return self._tree.names(real)

    def link(self, path: str) -> str | None:
        parent, _, name = path.rstrip("/").rpartition("/")
        folder = self._canonical(parent or "/")
        return self._tree.link(f"{folder.rstrip('/')}/{name}") if folder else None

    def real(self, path: str) -> str | None:
        real = self._canonical(path)
        return real if real and self._there(real) else None

    def exists(self, path: str) -> bool:
        return self.real(path) is not None

    def _there(self, real: str) -> bool:
        parent, _, name = real.rpartition("/")
        listed = name in self._index.listings.get(parent or "/", ())
        return listed or real in self._index.present or self._tree.has(real)

    def run(self, name: str, item: str = "") -> Reading:
        source = str(COMMANDS[name].on(item))
        return self._commands.get(saved_as(name, item)) or Reading(
            source=source, status="missing", detail=_NOT_RECORDED
        )

    def nvml(self) -> dict[str, Any]:
        return self._nvml

    def environ(self) -> dict[str, str]:
        return dict(self._environ)

    def probe(self, name: str) -> Reading:
        assert name in PROBES, name
        default = Reading(source=f"probe {name}", status="missing", detail=_NOT_RECORDED)
        return self._probes.get(name) or default


def host_of(
    files: Mapping[str, str | bytes | Link | None],
    *,
    commands: Mapping[str, str] | None = None,
    probes: Mapping[str, Any] | None = None,
    nvml: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
    origin: str = "invented host",
) -> RecordedHost:
    """A host from a dict of paths (None is an empty folder), command outputs and probe answers: for tests."""
    nodes: dict[str, Node] = {
        path: content.encode() if isinstance(content, str) else content for path, content in files.items()
    }
    return RecordedHost(
        MemoryTree(nodes),
        origin=origin,
        commands={
            name: Reading(source=str(COMMANDS[name.partition("@")[0]].on(name.partition("@")[2])), text=text)
            for name, text in (commands or {}).items()
        },
        probes={
            name: Reading(source=f"probe {name}", text=msgspec.json.encode(answer).decode())
            for name, answer in (probes or {}).items()
        },
        nvml=nvml,
        environ=environ,
    )


def open_recorded(spec: str) -> "RecordedHost | StatedHost":
    """The host in a file or folder, or of a dump of CPUID in one. `FILE::sub/folder` picks one of several machines in one
    archive."""
    name, _, inner = spec.partition("::")
    if not name:
        raise WellfedError("the host has no name", hint="wellfed inspect --record box.tar")
    tree = open_tree(Path(name))
    if inner:
        tree = _below(tree, inner)
    if tree.has("/manifest.json") and tree.has("/root"):
        return _ours(tree, spec)
    roots = _find_roots(tree)
    if not roots:
        from wellfed.host.forms.cpuid import open_cpuid

        dump = open_cpuid(tree, spec)
        if dump is not None:
            return dump
    return RecordedHost(_rooted(tree, roots, spec), origin=spec)


def _below(tree: MemoryTree | FolderTree, prefix: str) -> MemoryTree | FolderTree:
    """The tree of an inner folder. Its links are resolved first: a folder on disk must not lead elsewhere."""
    return tree.below(walk(prefix, tree.link)[0] or "/")


def _rooted(tree: MemoryTree | FolderTree, roots: list[str], spec: str) -> MemoryTree | FolderTree:
    if not roots:
        raise WellfedError(
            f"`{spec}` holds no `sys` or `proc` folder, so it is no recorded host"
            + "".join(f"; {note}" for note in tree.notes),
            hint="wellfed inspect --record box.tar, then --host box.tar",
        )
    if len(roots) > 1:
        listed = ", ".join(root.strip("/") for root in roots[:8])
        raise WellfedError(
            f"`{spec}` holds {len(roots)} machines: {listed}",
            hint=f"wellfed inspect --host '{spec}::{roots[0].strip('/')}'",
        )
    return tree if roots[0] == "/" else _below(tree, roots[0])


def _find_roots(tree: MemoryTree | FolderTree) -> list[str]:
    """Folders with a `sys` or `proc` in them, at most three levels down and not below one another."""
    roots: list[str] = []
    level, seen = ["/"], 0
    for _ in range(_ROOT_DEPTH + 1):
        below: list[str] = []
        for folder in level:
            base = folder.rstrip("/")
            seen += 1
            if folder != "/" and tree.link(folder) is not None:
                continue
            if any(
                tree.link(f"{base}/{name}") is None and tree.names(f"{base}/{name}")
                for name in ("sys", "proc")
            ):
                roots.append(folder)
            elif seen < _FOLDERS_SEARCHED:
                below += [f"{base}/{name}" for name in tree.names(folder)]
        level = below
    return roots


def _ours(tree: MemoryTree | FolderTree, spec: str) -> RecordedHost:
    manifest = _json(tree, "/manifest.json", Manifest, None)
    if manifest is None or manifest.format != FORMAT:
        raise WellfedError(
            f"`{spec}` was recorded in a format that this version does not know",
            hint="read it with the version of wellfed that wrote it",
        )
    damaged: list[str] = []
    commands = {name: _json(tree, f"/commands/{name}.json", Reading, damaged) for name in _answers(tree)}
    probes = _json(tree, "/probes.json", dict[str, Reading], damaged) or {}
    index = _json(tree, "/index.json", Index, damaged) or Index()
    nvml = _json(tree, "/nvml.json", dict[str, Any], damaged)
    environ = _json(tree, "/environ.json", dict[str, str], damaged)
    return RecordedHost(
        _below(tree, "/root"),
        origin=spec,
        notes=(f"unreadable parts of the recording: {', '.join(damaged)}",) if damaged else (),
        index=index,
        commands={name: _sound(answer) for name, answer in commands.items() if answer},
        probes={name: _sound(answer) for name, answer in probes.items()},
        nvml=nvml,
        environ=environ,
    )


def _answers(tree: MemoryTree | FolderTree) -> list[str]:
    """The saved answers to commands that we know, about devices with a possible name."""
    names = [name.removesuffix(".json") for name in tree.names("/commands") if name.endswith(".json")]
    asked = [(name, *name.partition("@")) for name in names]
    return [
        name
        for name, command, at, item in asked
        if command in COMMANDS and (bool(at) == bool(item)) and (not item or ITEM.fullmatch(item))
    ]


def _json(tree: MemoryTree | FolderTree, path: str, kind: type[_T], damaged: list[str] | None) -> _T | None:
    """A saved answer; None, and its name in `damaged`, when it is not what we write."""
    try:
        real = walk(path, tree.link)[0] or path
        return msgspec.json.decode(tree.data(real, READ_LIMIT << 2), type=kind)
    except FileNotFoundError:
        pass
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if damaged is not None:
            damaged.append(path.lstrip("/"))
    return None


def _sound(answer: Reading) -> Reading:
    """Status `ok` and a text go together."""
    if (answer.status == "ok") == (answer.text is not None):
        return answer
    return Reading(source=answer.source, status="error", detail="damaged answer in the recording")
