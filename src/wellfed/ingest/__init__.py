"""One file per source of events: everything becomes a `Timeline`. Damaged input gives what is left in it.

A reader is a module of this folder with `matches(head, name)`, which says whether a file that begins with
`head` (unpacked) is its kind, and `read(path)`, which gives the file's timeline, or a list of them when one
file holds several ranks. Readers are found by folder; there is no list to edit.
"""

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from wellfed.ingest import cache
from wellfed.ingest.source import Source, is_folder, readable_size
from wellfed.model import WellfedError
from wellfed.model.timeline import Timeline

SUFFIXES = (".json", ".json.gz", ".json.zst", ".sqlite", ".nsys-rep")
MAX_FILES = 10_000
HEAD_BYTES = 1 << 16
LAST = "kineto"
"""Asked last: any JSON may be a PyTorch trace, so the readers that know a mark of their own go first."""

__all__ = ["find_traces", "read_file", "read_timeline", "read_timelines"]


def find_traces(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The trace files that paths, folders and globs name, in order and once each. Raises WellfedError for a
    path that is not there and for a folder without a trace."""
    found: dict[tuple[int, int] | Path, Path] = {}
    for given in paths:
        if not os.fspath(given):
            raise WellfedError("a trace without a name", hint="name the trace files")
        path = Path(given)
        hits = _named(path)
        if not hits:
            raise WellfedError(
                f"no trace (*.json, .json.gz, .json.zst, .sqlite) in {path}", hint="name the trace files"
            )
        for hit in hits:
            found.setdefault(_identity(hit), hit)
        if len(found) > MAX_FILES:
            raise WellfedError(f"more than {MAX_FILES} files under {path}", hint="name fewer, or use --rank")
    return list(found.values())


def _named(path: Path) -> list[Path]:
    """The files that one path, folder or glob names. Raises WellfedError for what can be neither."""
    if is_folder(path):
        return _once(sorted(p for p in path.rglob("*") if p.name.endswith(SUFFIXES) and p.is_file()))
    try:
        if path.exists() or not any(c in str(path) for c in "*?["):
            return [path]
        return sorted(
            Path(path.anchor or ".").glob(str(path.relative_to(path.anchor) if path.anchor else path))
        )
    except (OSError, ValueError) as error:  # too long for a name, say
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise WellfedError(f"can't read {str(path)[:80]}: {why}", hint="name the trace files") from error


def _identity(path: Path) -> tuple[int, int] | Path:
    """The same for all names of one file, so that a link to it is no second rank."""
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return path
    return facts.st_dev, facts.st_ino


def _once(paths: list[Path]) -> list[Path]:
    """Without second copies of one recording: a report beside its export, and JAX's copy for Perfetto."""
    there = set(paths)
    traces = {p.parent for p in paths if p.name.endswith(".trace.json.gz")}
    return [
        p
        for p in paths
        if not (p.suffix == ".nsys-rep" and p.with_suffix(".sqlite") in there)
        and not (p.name == "perfetto_trace.json.gz" and p.parent in traces)
    ]


def read_file(path: Path) -> list[Timeline]:
    """The timelines of one file, by what is in it: one, or one for each rank that the file holds. Raises
    WellfedError when nothing in it can be read."""
    readable_size(path)
    kept = cache.load(path)
    if kept is None:
        kept = _read_by_kind(path)
        cache.keep(path, kept)
    return kept


def _read_by_kind(path: Path) -> list[Timeline]:
    head = next(iter(Source(path).windows()), b"")[:HEAD_BYTES]
    for reader in _readers():
        if reader.matches(head, path.name):
            found: Timeline | list[Timeline] = reader.read(path)
            return [found] if isinstance(found, Timeline) else found
    if not head:  # empty, or packed and damaged from the first byte: the reader of most files says which
        found = importlib.import_module(f"{__name__}.{LAST}").read(path)
        return [found] if isinstance(found, Timeline) else found
    raise WellfedError(
        f"{path.name} is not a profiler trace: it is neither JSON nor SQLite",
        hint="export it with torch.profiler's export_chrome_trace",
    )


def read_timeline(path: Path) -> Timeline:
    """The timeline of a file of one rank (of the first rank, where it holds several)."""
    return read_file(path)[0]


def read_timelines(
    paths: Sequence[str | os.PathLike[str]],
    *,
    ranks: Sequence[int] | None = None,
    unreadable: Callable[[Path, WellfedError], None] | None = None,
) -> Iterator[Timeline]:
    """The timelines of all files, one after the other (so that memory holds one file at a time). `ranks`
    keeps those ranks only. A file that cannot be read is told to `unreadable`; without it, or when no file at
    all can be read, WellfedError is raised."""
    files = find_traces(paths)
    failed: list[WellfedError] = []
    for path in files:
        try:
            timelines = read_file(path)
        except WellfedError as error:
            failed.append(error)
            if unreadable is None or len(failed) == len(files):
                raise
            unreadable(path, error)
            continue
        for timeline in timelines:
            if ranks is None or timeline.rank in ranks:
                yield timeline


def _readers() -> list[ModuleType]:
    names = sorted((m.name for m in pkgutil.iter_modules(__path__)), key=lambda name: (name == LAST, name))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return [module for module in modules if hasattr(module, "matches") and hasattr(module, "read")]
