"""Files among the traces that hold no timeline: PyTorch's memory snapshots and flight-recorder dumps.

They are known by what is in them, a pickle's magic or the first key of the JSON, and taken out of the list before
the timelines are read. Only `sort_out` opens files here; what a file means is `memory` and `flight`.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from wellfed.ingest import SUFFIXES, find_traces, pickles
from wellfed.ingest.flight import is_flight, read_flight
from wellfed.ingest.memory import is_memory, read_memory
from wellfed.ingest.source import Source, is_folder
from wellfed.model import WellfedError
from wellfed.model.flight import FlightDump
from wellfed.model.memory import MemorySnapshot

PICKLE_SUFFIXES = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz", ".pickle.zst")
_FIRST_KEY = re.compile(rb'\s*\{\s*"(\w+)"')
_FIRST_KEYS = {
    b"version", b"entries", b"pg_config", b"pg_status", b"nccl_comm_state", b"comm_lib_version", b"nccl_version",
    b"segments", b"device_traces", b"allocator_settings", b"external_annotations",
}  # fmt: skip
_SEGMENT_LIST = re.compile(rb'\s*\[\s*\{[^{}\[\]]{0,400}"(?:segment_type|total_size)"')
_DUMP_NAME = re.compile(r"rank[_.-]?\d+$")
HEAD_BYTES = 4096
PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
MAX_JSON_BYTES, MAX_JSON_VALUES = 256 << 20, 12_000_000
"""Untyped JSON takes up to twenty times its size, some 60 bytes a value."""
_LIKELY = re.compile(r"mem|snapshot|nccl|trace|flight|rank|dump|oom|alloc", re.IGNORECASE)
"""What is in the names of dumps: other pickles of a folder are somebody's data."""

Unreadable = Callable[[Path, WellfedError], None]
PathLike = str | os.PathLike[str]


class Sorted(NamedTuple):
    """What was found: dumps of either kind, and the paths that are left for the readers of timelines."""

    memory: tuple[MemorySnapshot, ...]
    flights: tuple[FlightDump, ...]
    rest: tuple[PathLike, ...]


def sort_out(paths: Sequence[PathLike], *, unreadable: Unreadable | None = None) -> Sorted:
    """Read the dumps that `paths` (files, folders, globs) hold. A folder or glob with dumps in it leaves the other
    traces in it; one without is left as it is. A dump that cannot be read is told to `unreadable`, or raised."""
    memory: list[MemorySnapshot] = []
    flights: list[FlightDump] = []
    rest: list[PathLike] = []
    for given in paths:
        files = _files(given)
        dumps = [path for path in files if _is_dump(path)]
        for path in dumps:
            try:
                found = read_dump(path)
            except WellfedError as error:
                if unreadable is None:
                    raise
                unreadable(path, error)
                continue
            if isinstance(found, MemorySnapshot):
                memory.append(found)
            else:
                flights.append(found)
        if not dumps:
            rest.append(given)
        else:
            rest += _others(given, set(dumps))
    return Sorted(tuple(memory), tuple(flights), tuple(rest))


def read_dump(path: Path) -> MemorySnapshot | FlightDump:
    """The snapshot or flight record in one file. Raises WellfedError when it is neither, or damaged."""
    source = Source(path)
    pieces, size, limit = [], 0, 0
    for piece in source.windows():
        limit = limit or (pickles.MAX_BYTES if pickles.matches(piece) else MAX_JSON_BYTES)
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise WellfedError(
                f"{path.name} is larger than {limit >> 20} MiB unpacked",
                hint="record fewer events: torch.cuda.memory._record_memory_history(max_entries=100_000)",
            )
    data = b"".join(pieces)
    tree = pickles.loads(data, path.name) if pickles.matches(data) else _json(data, path.name)
    if is_memory(tree):
        return read_memory(tree, path.name)
    if is_flight(tree):
        return read_flight(tree, path.name)
    raise WellfedError(
        f"{path.name} is neither a memory snapshot nor a flight-recorder dump",
        hint="wellfed trace --how memory",
    )


def _json(data: bytes, name: str) -> Any:
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_JSON_VALUES:
        raise WellfedError(
            f"{name} holds more than {MAX_JSON_VALUES:,} values", hint="dump it as a pickle, or fewer events"
        )
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WellfedError(
            f"{name} is damaged JSON: {str(error)[:120]}", hint="copy or dump it again"
        ) from error


def _is_dump(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if head.startswith(PACKED):
            head = next(iter(Source(path).windows()), b"")[:HEAD_BYTES]
    except (OSError, ValueError, WellfedError):
        return False  # whoever reads it says what is wrong
    if pickles.matches(head):
        return True
    first = _FIRST_KEY.match(head.removeprefix(b"\xef\xbb\xbf"))
    if first is not None:
        return first[1] in _FIRST_KEYS
    return _SEGMENT_LIST.match(head) is not None


def _files(given: PathLike) -> list[Path]:
    """The files to look into; of a folder, those whose names dumps have."""
    path = Path(given)
    if is_folder(path) and os.fspath(given):
        return sorted(p for p in path.rglob("*") if _may_be(p.name) and p.is_file())
    try:
        return [path] if path.is_file() else [p for p in find_traces([given]) if p.is_file()]
    except (OSError, WellfedError):
        return []


def _may_be(name: str) -> bool:
    if name.endswith(PICKLE_SUFFIXES):
        return bool(_LIKELY.search(name))
    return name.endswith((".json", ".json.gz", ".json.zst")) or bool(_DUMP_NAME.search(name))


def _others(given: PathLike, dumps: set[Path]) -> list[PathLike]:
    """The traces beside the dumps of a folder or glob."""
    path = Path(given)
    if path.is_file():
        return []
    if path.is_dir():
        named = any(p.name.endswith(SUFFIXES) and p not in dumps for p in path.rglob("*") if p.is_file())
        if not named:
            return []
    return [p for p in find_traces([given]) if p not in dumps]
