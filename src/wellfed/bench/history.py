"""What was measured on this machine before, in the user's own folder: one JSON line for each ceiling, the newest last.

One file for each hardware key. Ceilings hold no name, path or serial of the machine. The file is the user's alone (0600) and keeps
the newest MOST_LINES lines; a damaged line is passed over. `WELLFED_HISTORY=0` turns it off; another value is the folder."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from wellfed.model import Ceiling, Value
from wellfed.model.folders import user_folder

MOST_LINES = 5000
_MAX_BYTES = 64 << 20
_KEY_LETTERS = frozenset("0123456789abcdef")


class Kept(Value, frozen=True, kw_only=True):
    """One ceiling and when it was measured (ISO 8601, UTC)."""

    at: str
    ceiling: Ceiling


def folder() -> Path | None:
    """Where results are kept; None when that is turned off or there is no home."""
    return user_folder(
        os.environ, sys.platform, switch="WELLFED_HISTORY", variable="XDG_STATE_HOME", home=".local/state", mac_home="Library/Application Support", leaf="ceilings",
    )  # fmt: skip


def remember(ceilings: Sequence[Ceiling], where: Path | None = None) -> None:
    """Add to the history. What can't be written is not kept: a measurement does not fail for that."""
    where = where or folder()
    if where is None or not ceilings:
        return
    at = datetime.now(UTC).isoformat(timespec="seconds")
    for key in sorted({ceiling.hardware_key for ceiling in ceilings}):
        new = [Kept(at=at, ceiling=ceiling) for ceiling in ceilings if ceiling.hardware_key == key]
        with contextlib.suppress(OSError):
            _write(_file(where, key), [*recall(key, where), *new][-MOST_LINES:])


def recall(key: str, where: Path | None = None) -> list[Kept]:
    """All that is known of machines of this key, oldest first; [] when nothing can be read."""
    where = where or folder()
    if where is None:
        return []
    try:
        path = _file(where, key)
        if path.stat().st_size > _MAX_BYTES:
            return []
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError):
            found.append(msgspec.json.decode(line, type=Kept))
    return found


def latest(kept: Sequence[Kept]) -> dict[str, Kept]:
    """The newest of each id, by id; of several sizes or formats under one id the last one."""
    return {one.ceiling.id: one for one in kept}


def _file(where: Path, key: str) -> Path:
    assert key and set(key) <= _KEY_LETTERS, "hardware keys are hexadecimal"
    return where / f"{key}.jsonl"


def _write(path: Path, lines: Sequence[Kept]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
