"""Reading tables out of an SQLite file that nobody vouches for: read-only, bounded, column by column.

The file is opened immutable (nothing is written beside it, no lock, no journal replayed). Only ordinary
tables and stored columns are read, by full scans without indexes: views, triggers, virtual tables and
generated columns are never run. A damaged table gives the rows before the damage.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import quote

import numpy as np

from wellfed.model import WellfedError
from wellfed.model.timeline import I64

MAGIC = b"SQLite format 3\x00"
TEXT_BYTES = 1 << 20
"""The longest text that SQLite may make of one row."""
KEPT_BYTES = 8 << 10
"""What is kept of a text: no name needs more, and rows of a hostile file can share one long text."""
BATCH = 20_000
IDLE_SECONDS = 20.0
"""A scan that brings no row for so long is given up: no table of an event file needs that."""
NO_TIME, BAD_TIME = -(2**63), -(2**63) + 1
_BROKEN = (sqlite3.Error, OverflowError, UnicodeDecodeError)
"""What a damaged file raises; the last where SQLite's own message quotes bytes that are no text."""
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: TEXT_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 17,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 3,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


class Tables:
    """The ordinary tables of one open file. `damage` holds, for each table that broke off, what SQLite said
    and how many rows came before."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path = path
        self.damage: dict[str, tuple[str, int]] = {}
        self._db = db
        self._size = path.stat().st_size
        self._asked = monotonic()
        self._columns: dict[str, list[tuple[str, str, int]]] = {}
        rows = self._db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' LIMIT 5000")
        self.names = frozenset(
            str(name) for name, sql in rows if isinstance(sql, str) and re.match(r"(?i)create\s+table\b", sql)
        )

    def find(self, name: str) -> str | None:
        """The table of this name, or of its newest version (`name_V3`); None when there is none."""
        versions = [t for t in self.names if re.fullmatch(re.escape(name) + r"(?:_V\d{1,3})?", t)]
        return max(versions, key=lambda t: int(t.rpartition("_V")[2]) if t != name else 0, default=None)

    def columns(self, table: str) -> frozenset[str]:
        """The stored columns of a table."""
        return frozenset(name for name, _, _ in self._described(table))

    def _described(self, table: str) -> list[tuple[str, str, int]]:
        """Name, type and place in the primary key of each column; hidden and generated ones are not told."""
        if table not in self._columns:
            try:
                rows = self._db.execute(f'PRAGMA table_info("{table}")').fetchall()
            except _BROKEN as error:
                self.damage[table] = (_said(error), 0)
                rows = []
            self._columns[table] = [(str(row[1]), str(row[2]).upper(), int(row[5])) for row in rows]
        return self._columns[table]

    def scan(
        self, table: str, columns: Sequence[str], *, text: str | None = None
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Batches of rows, in file order; with `text` a column of texts comes last. Ends early where the file
        is damaged, or holds more rows or text than it has bytes (see `damage`)."""
        wanted = ", ".join(f'"{column}"' for column in (*columns, *([text] if text else [])))
        seen, room = 0, self._size
        try:
            cursor = self._db.execute(f'SELECT {wanted} FROM "{table}" NOT INDEXED')
            while True:
                self._asked = monotonic()
                batch = cursor.fetchmany(BATCH)
                if not batch:
                    return
                seen += len(batch)
                if text:
                    room -= sum(len(row[-1]) for row in batch if isinstance(row[-1], str))
                if seen > self._size or room < 0:  # pages of this file refer to each other
                    self.damage[table] = ("more rows or text than the file has bytes", seen)
                    return
                yield batch
        except _BROKEN as error:
            self.damage[table] = (_said(error), seen)

    def integers(self, table: str, columns: Sequence[str], *, times: Sequence[str] = ()) -> dict[str, I64]:
        """Columns of integers; -1 where the file holds NULL or something else, in those of `times` NO_TIME for NULL
        and BAD_TIME for what is no integer. Of columns that the table does not have there is no entry."""
        there = [column for column in columns if column in self.columns(table)]
        parts: dict[str, list[I64]] = {column: [] for column in there}
        for batch in self.scan(table, there) if there else ():
            for column, values in zip(there, zip(*batch, strict=True), strict=True):
                parts[column].append(as_times(values) if column in times else as_integers(values))
        return {c: np.concatenate(p) if p else np.zeros(0, np.int64) for c, p in parts.items()}

    def texts(
        self, table: str, keys: Iterable[Any], *, key: str = "id", value: str = "value"
    ) -> dict[Any, str]:
        """The texts of these keys. One look-up a key, so that a long text nobody asked for (nsys keeps what the
        program printed among the names) is never read, and a damaged page costs its own texts only."""
        wanted = list(keys)
        if not {key, value} <= self.columns(table):
            return {}
        if not self._is_rowid(table, key):
            return self._scan_texts(table, set(wanted), key, value)
        found: dict[Any, str] = {}
        room = self._size
        question = f'SELECT "{value}" FROM "{table}" WHERE "{key}" = ?'
        for k in wanted:
            self._asked = monotonic()
            try:
                row = self._db.execute(question, (k,)).fetchone()
            except _BROKEN as error:
                self.damage[table] = (_said(error), len(found))
                continue
            if row is not None and isinstance(row[0], str) and (room := room - len(row[0])) >= 0:
                found[k] = row[0]
        if room < 0:
            self.damage[table] = ("more text than the file has bytes", len(found))
        return found

    def _is_rowid(self, table: str, key: str) -> bool:
        return [(name, kind) for name, kind, place in self._described(table) if place] == [(key, "INTEGER")]

    def _scan_texts(self, table: str, wanted: set[Any], key: str, value: str) -> dict[Any, str]:
        return {
            k: text
            for batch in self.scan(table, (key,), text=value)
            for k, text in batch
            if isinstance(text, str) and k in wanted
        }

    def pairs(self, table: str, key: str, value: str) -> list[tuple[Any, str]]:
        """The rows of a small table of keys and texts: its first batch."""
        if not {key, value} <= self.columns(table):
            return []
        batch = next(self.scan(table, (key,), text=value), [])
        return [(k, text) for k, text in batch if isinstance(text, str)]

    def keep_going(self) -> int:
        return int(monotonic() - self._asked > IDLE_SECONDS)


@contextmanager
def open_tables(path: Path) -> Iterator[Tables]:
    """The tables of an SQLite file. Raises WellfedError when it is none, or its table of contents is damaged."""
    try:
        db = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
    except (sqlite3.Error, OSError) as error:
        raise WellfedError(f"can't open {path.name}: {error}", hint=f"ls -l {path}") from error
    try:
        try:
            tables = _prepared(path, db)
        except _BROKEN as error:
            raise WellfedError(
                f"{path.name} is a damaged SQLite file: its list of tables cannot be read ({_said(error)})",
                hint="copy it again, or export it again with nsys export --type sqlite",
            ) from error
        db.set_progress_handler(tables.keep_going, 100_000)
        yield tables
    finally:
        db.close()


def _said(error: Exception) -> str:
    """What SQLite said, fit for one line: it may quote the file."""
    text = "no readable reason" if isinstance(error, UnicodeDecodeError) else str(error)
    return "".join(c if c.isprintable() else "?" for c in text)[:160]


def _prepared(path: Path, db: sqlite3.Connection) -> Tables:
    for category, limit in _LIMITS.items():
        db.setlimit(category, limit)
    db.text_factory = lambda data: data[:KEPT_BYTES].decode("utf-8", "replace")
    for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
        db.execute(f"PRAGMA {pragma}")
    return Tables(path, db)


_WHOLE = {int, type(None)}


def as_integers(values: tuple[Any, ...], *, null: int = -1, other: int = -1) -> I64:
    """Values of one column: `null` where one is NULL, `other` where one is no integer. SQLite keeps text and fractions
    in a column of integers too; neither is read as a number."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return np.fromiter(values, np.int64, len(values))
    if kinds <= _WHOLE:
        return np.fromiter((null if v is None else v for v in values), np.int64, len(values))
    told = (null if v is None else v if type(v) is int else other for v in values)
    return np.fromiter(told, np.int64, len(values))


def as_times(values: tuple[Any, ...]) -> I64:
    """Times of one column; NO_TIME where one is NULL, BAD_TIME where one is no integer."""
    return as_integers(values, null=NO_TIME, other=BAD_TIME)
