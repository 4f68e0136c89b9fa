"""The journal: what was about to be written, on disk before it is written.

One file a transaction, one JSON object a line, only ever appended to. Each line holds the SHA-256 of the line
before it and of itself, so that a torn or damaged end is seen and dropped, and a damaged middle is refused: what
follows it can't be trusted to be whole. Design: write-ahead logging, as in databases.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shlex
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from wellfed.apply import commands, failpoint
from wellfed.apply.root import Root, with_sudo
from wellfed.model import WellfedError
from wellfed.model.base import replace
from wellfed.model.change import Op, OpState, Record

DEFAULT = "/var/lib/wellfed/journal"
VERSION = 1
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of a disk that takes no more."""

_SEAL = b',"sha256":"'
_SEALED = len(_SEAL) + 64 + len(b'"}')
_NAME = re.compile(r"(\d{5,})-\d{8}T\d{6}\.jsonl")
_FIRST = "0" * 64


class Journal:
    """The folder of journals of one machine. `root` says where knobs and the boot's name are."""

    def __init__(self, root: Root, folder: Path | None = None) -> None:
        self.root = root
        self.folder = folder if folder is not None else root.outside(DEFAULT)

    @property
    def option(self) -> str:
        """What a command line needs to name this journal again."""
        return (
            "" if self.folder == self.root.outside(DEFAULT) else f" --journal {shlex.quote(str(self.folder))}"
        )

    def guard(self) -> None:
        """Raises WellfedError for a folder that somebody else may write: what stands in a journal is what undo writes."""
        try:
            status = self.folder.stat()
        except OSError:
            return  # not there yet, or told by whoever opens it
        sudo = os.environ.get("SUDO_UID", "")
        owners = {0, os.geteuid(), int(sudo) if sudo.isascii() and sudo.isdigit() else 0}
        if stat.S_ISDIR(status.st_mode) and (status.st_uid not in owners or status.st_mode & 0o022):
            raise WellfedError(
                f"others may write in {self.folder}, so a journal there could tell undo anything",
                hint=f"chown root {self.folder} && chmod 700 {self.folder}",
            )

    def names(self) -> list[str]:
        """The transactions on disk, the oldest first. Raises WellfedError when the folder can't be read."""
        try:
            found = [match for name in os.listdir(self.folder) if (match := _NAME.fullmatch(name))]  # noqa: PTH208
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._refused("read", error) from error
        return [m[0].removesuffix(".jsonl") for m in sorted(found, key=lambda m: int(m[1]))]

    def read(self, txid: str) -> list[Record]:
        """The records of a transaction that are whole. Raises WellfedError for a missing or damaged one."""
        return self._whole(txid)[0]

    def open(self, txid: str) -> "Writer":
        """A writer that appends to a transaction, its torn end cut off first. Raises WellfedError."""
        records, kept, last = self._whole(txid)
        try:
            fd = os.open(self.path(txid), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
            if os.fstat(fd).st_size != kept:
                os.ftruncate(fd, kept)
                os.fsync(fd)
        except OSError as error:
            raise self._refused("write", error) from error
        return Writer(fd, self.folder, txid, self.root.boot_id(), len(records), last)

    def create(self) -> "Writer":
        """A new transaction. Raises WellfedError when the folder can't be made or written."""
        names = self.names()
        number = int(names[-1].partition("-")[0]) + 1 if names else 1
        txid = f"{number:05d}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self.path(txid), flags, 0o600)
        except OSError as error:
            raise self._refused("write", error) from error
        return Writer(fd, self.folder, txid, self.root.boot_id(), 0, _FIRST)

    def path(self, txid: str) -> Path:
        """The file of a transaction."""
        if not _NAME.fullmatch(f"{txid}.jsonl"):
            raise WellfedError(f"`{txid}` names no transaction", hint=f"wellfed tune log{self.option}")
        return self.folder / f"{txid}.jsonl"

    def forget_empty(self, txid: str) -> bool:
        """Remove a transaction in which nothing was ever begun; whether it was one. Only under the lock."""
        if self.read(txid):
            return False
        with contextlib.suppress(OSError):
            self.path(txid).unlink()
        return True

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """The one lock of this machine, whichever folder a journal is in. Raises WellfedError when it is taken or
        nobody may write."""
        last: OSError | None = None
        for folder in (self.root.outside("/run/wellfed"), self.folder):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                fd = os.open(
                    folder / "tune.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
                )
            except OSError as error:
                last = error
                continue
            break
        else:
            assert last is not None
            raise self._refused("write", last)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise WellfedError(
                    "another `wellfed tune` is at work here",
                    hint=f"wait for it: wellfed tune log{self.option}",
                ) from error
            commands.KEPT.add(fd)
            yield
        finally:
            commands.KEPT.discard(fd)
            os.close(fd)

    def _refused(self, what: str, error: OSError) -> WellfedError:
        hint = (
            with_sudo(f"tune {'status' if what == 'read' else 'apply'}")
            if error.errno in (errno.EACCES, errno.EPERM)
            else "wellfed tune apply --journal DIR"
        )
        return WellfedError(f"can't {what} the journal in {self.folder}: {error.strerror}", hint=hint)

    def _whole(self, txid: str) -> tuple[list[Record], int, str]:
        """Records, the bytes that hold them, and the digest that the next line carries."""
        try:
            data = _content(self.path(txid))
        except FileNotFoundError as error:
            raise WellfedError(
                f"no transaction `{txid}` in {self.folder}", hint=f"wellfed tune log{self.option}"
            ) from error
        except OSError as error:
            raise self._refused("read", error) from error
        records: list[Record] = []
        previous, kept = _FIRST, 0
        lines = data.splitlines(keepends=True)
        for index, line in enumerate(lines):
            record = _opened(line, previous, len(records))
            if record is None or record.txid != txid:
                # Only a line whose writing was cut off is dropped: one that is sealed has been whole, and belongs elsewhere.
                if any(map(_is_sealed, lines[index:])):
                    raise WellfedError(
                        f"{self.path(txid)} is damaged in line {index + 1}; {_known(records)}",
                        hint=f"look with `cat {self.path(txid)}`, put the old values back by hand, move the file away",
                        exit_code=2,
                    )
                break
            records.append(record)
            previous = hashlib.sha256(line).hexdigest()
            kept += len(line)
        return records, kept, previous


class Whole(Journal):
    """The same without the transactions that can't be read."""

    def names(self) -> list[str]:
        return [name for name in super().names() if self._is_whole(name)]

    def create(self) -> "Writer":
        raise AssertionError("numbers of the others would be used again")

    def _is_whole(self, txid: str) -> bool:
        try:
            self.read(txid)
        except WellfedError:
            return False
        return True


class Writer:
    """Appends sealed records to one transaction; each is on disk when `add` returns."""

    def __init__(self, fd: int, folder: Path, txid: str, boot_id: str, seq: int, previous: str) -> None:
        self._fd, self._folder, self.txid, self._boot = fd, folder, txid, boot_id
        self._seq, self._previous = seq, previous
        self._named = seq > 0

    def add(self, record: Record) -> None:
        """Append and sync. Raises OSError; what was written of the line is then taken back."""
        line = _sealed(
            replace(
                record,
                v=VERSION,
                seq=self._seq,
                txid=self.txid,
                ts=datetime.now(UTC).isoformat(timespec="milliseconds"),
                boot_id=self._boot,
                sha256_of_previous=self._previous,
            )
        )
        size = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, size)
            raise
        if not self._named:
            _sync_folder(self._folder)
            self._named = True
        self._seq += 1
        self._previous = hashlib.sha256(line).hexdigest()
        failpoint.reached(f"{record.type}:{'' if record.op is None else record.op}:on-disk")

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ops_of(records: list[Record]) -> list[Op]:
    """What has become of each knob, in the order in which they were written."""
    ops: dict[int, Op] = {}
    for record in records:
        if record.op is None:
            continue
        if record.type == "intent":
            assert record.kind is not None and record.target is not None and record.new is not None
            ops[record.op] = Op(
                txid=record.txid,
                number=record.op,
                code=record.code or "",
                kind=record.kind,
                target=record.target,
                old=record.old,
                new=record.new,
                state="intended",
                boot_id=record.boot_id,
            )
        elif record.op in ops:
            ops[record.op] = _after(ops[record.op], record)
    return list(ops.values())


def is_open(records: list[Record]) -> bool:
    """Whether there is something left that could be undone."""
    return any(op.state in ("intended", "applied", "reverting") for op in ops_of(records))


def boot_seconds() -> float:
    """Seconds since the machine was started, sleep included. Nobody can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def seconds_left(records: list[Record], boot_id: str) -> float | None:
    """How long a transaction still waits for its confirmation: not above 0 when it is overdue, None when it waits for
    none. One that was begun before a reboot is overdue: nobody can have confirmed it in the boot it was made for."""
    if not records or records[0].confirm_within_s is None or records[0].boot_s is None:
        return None
    if any(record.type in ("confirmed", "expired", "end") for record in records) or not is_open(records):
        return None
    if records[0].boot_id != boot_id:
        return 0.0
    return records[0].boot_s + records[0].confirm_within_s - boot_seconds()


def _after(op: Op, record: Record) -> Op:
    state: OpState = op.state
    if record.type == "failed" and op.state == "reverting":
        state = "applied"
    elif record.type == "failed":
        # What a refused write has left half-done is ours to put back.
        state = "failed" if record.read_back in (None, op.old) else "applied"
    elif record.type == "skipped_drift":
        state = "applied"
    else:
        known: dict[str, OpState] = {
            "applied": "applied",
            "verified": "applied",
            "revert_intent": "reverting",
            "reverted": "reverted",
            "void": "void",
        }
        state = known.get(record.type, op.state)
    held = op.held
    if record.type in ("applied", "verified") or (state == "applied" and op.state == "intended"):
        held = record.read_back
    return replace(
        op,
        state=state,
        held=held,
        goal=record.new if record.type == "revert_intent" else op.goal,
        note=record.note or op.note,
    )


def _sealed(record: Record) -> bytes:
    body = msgspec.json.encode(record)[:-1]
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def _is_sealed(line: bytes) -> bool:
    if not line.endswith(b'"}\n') or len(line) <= _SEALED + 1:
        return False
    body, seal = line[: -_SEALED - 1], line[-_SEALED - 1 : -1]
    return seal == _SEAL + hashlib.sha256(body).hexdigest().encode() + b'"}'


def _opened(line: bytes, previous: str, seq: int) -> Record | None:
    """The record of a line when its seal is whole, it follows `previous` and says all that its type has to."""
    if not _is_sealed(line):
        return None
    try:
        record = msgspec.json.decode(line[: -_SEALED - 1] + b"}", type=Record)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    if (record.sha256_of_previous, record.seq) != (previous, seq):
        return None
    if record.type == "intent" and None in (record.op, record.kind, record.target, record.new):
        return None
    return record


def _content(path: Path) -> bytes:
    """Raises OSError; also for what is no file, such as a pipe, which would be waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, f"{path.name} is no regular file")
        return file.read()


def _known(records: list[Record]) -> str:
    ops = [op for op in ops_of(records) if op.state in ("intended", "applied", "reverting")]
    told = ", ".join(f"{op.kind} {op.target} was {op.old}" for op in ops)
    return f"before that: {told}" if told else "nothing is known to have been changed before that"


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
