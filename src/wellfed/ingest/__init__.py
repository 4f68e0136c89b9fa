"""One file per source of events: everything becomes a `Timeline`. Damaged input gives what is left in it."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from wellfed.model import WellfedError
from wellfed.model.timeline import Timeline

SUFFIXES = (".json", ".json.gz", ".json.zst")
MAX_FILES = 10_000

__all__ = ["find_traces", "read_timeline", "read_timelines"]


def find_traces(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The trace files that paths, folders and globs name, in order and once each. Raises WellfedError for a
    path that is not there and for a folder without a trace."""
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        if any(c in str(given) for c in "*?[") and not path.exists():
            hits = sorted(
                Path(path.anchor or ".").glob(str(path.relative_to(path.anchor) if path.anchor else path))
            )
        elif path.is_dir():
            hits = sorted(p for p in path.rglob("*") if p.name.endswith(SUFFIXES) and p.is_file())
        else:
            hits = [path]
        if not hits:
            raise WellfedError(f"no trace (*.json, .gz, .zst) in {path}", hint="name the trace files")
        found.update(dict.fromkeys(hits))
        if len(found) > MAX_FILES:
            raise WellfedError(f"more than {MAX_FILES} files under {path}", hint="name fewer, or use --rank")
    return list(found)


def read_timeline(path: Path) -> Timeline:
    """The timeline of one file, by what is in it. Raises WellfedError when nothing in it can be read."""
    from wellfed.ingest import kineto

    head = _head(path)
    if head.startswith(b"SQLite format 3"):
        raise WellfedError(
            f"{path.name} is an SQLite file; only profiler traces in JSON can be read",
            hint="export the trace with torch.profiler's export_chrome_trace",
        )
    if head and not _packed(head) and not kineto.matches(head, path.name):
        raise WellfedError(
            f"{path.name} is not a profiler trace: it is not JSON",
            hint="export it with torch.profiler's export_chrome_trace",
        )
    return kineto.read(path)


def read_timelines(
    paths: Sequence[str | os.PathLike[str]],
    *,
    ranks: Sequence[int] | None = None,
    unreadable: Callable[[Path, WellfedError], None] | None = None,
) -> Iterator[Timeline]:
    """The timelines of all files, one after the other (so that memory holds one at a time). `ranks` keeps
    those ranks only. A file that cannot be read is told to `unreadable`; without it, or when no file at all
    can be read, WellfedError is raised."""
    files = find_traces(paths)
    failed: list[WellfedError] = []
    for path in files:
        try:
            timeline = read_timeline(path)
        except WellfedError as error:
            failed.append(error)
            if unreadable is None or len(failed) == len(files):
                raise
            unreadable(path, error)
            continue
        if ranks is None or timeline.rank in ranks:
            yield timeline


def _head(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise WellfedError(f"{path} is a folder", hint="name the trace files in it")
        with path.open("rb") as file:
            return file.read(512)
    except FileNotFoundError as error:
        raise WellfedError(f"no such file: {path}", hint="ls -l " + str(path.parent)) from error
    except OSError as error:
        raise WellfedError(f"can't read {path}: {error.strerror}", hint=f"ls -l {path}") from error


def _packed(head: bytes) -> bool:
    return head[:2] == b"\x1f\x8b" or head[:4] == b"\x28\xb5\x2f\xfd"
