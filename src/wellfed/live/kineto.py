"""PyTorch's on-demand profiling: a job started with KINETO_USE_DAEMON=1 asks a UNIX socket every few seconds whether
anybody wants a trace. Here is the side that answers, for one trace.

A datagram is a size (u64), a type (32 bytes, padded with NUL) and a body. The job sends `req`: kind, n, job id (i32, i32, i64)
and n process ids, its own first; the answer is `req` and lines of KEY=VALUE, or nothing. `ctxt` (GPU builds, once) is answered with a
count. Seen on torch 2.13; kineto `libkineto/src/IpcFabricConfigClient.cpp`, dynolog `dynolog/src/ipcfabric`.

Two ways to harm a job are kept out: it ends itself when it is answered from a socket by another name than it expects,
so nobody is answered whose folder is not ours; and it never ends a trace for which it had too little time to warm up,
so a start that is set lies far enough ahead."""

import contextlib
import errno
import os
import socket
import stat
import struct
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from wellfed.model import WellfedError

HEAD = struct.Struct("<Q32s")
REQUEST = struct.Struct("<iiq")
MAX_DATAGRAM = 1 << 16
MAX_PIDS = 64
_CREDENTIALS = struct.Struct("3i")
_PASS_CREDENTIALS, _SCM_CREDENTIALS = 16, 2
"""SO_PASSCRED and SCM_CREDENTIALS of Linux, which Python does not name everywhere."""
ABSTRACT = b"\0dynolog\0"
"""The name that a job without KINETO_IPC_SOCKET_DIR looks for; the NUL at its end belongs to it."""
_MAX_PATH = 107


class Asked(NamedTuple):
    """What one datagram said: `kind` `req` or `ctxt`; `pids` as the job sees them, its own first, then its ancestors; `peer` the
    sender's process in our namespace, by the kernel's word."""

    kind: str
    pids: tuple[int, ...]
    peer: int | None
    address: "bytes | str"


class Window(NamedTuple):
    """What to record: into `path` (the job adds `_PID` before its suffix), for `duration_ms` after `warmup_s` seconds; from
    `start_ms` (since 1970) on, None: at once."""

    path: str
    duration_ms: int
    warmup_s: int = 1
    start_ms: int | None = None

    def text(self) -> str:
        assert "\n" not in self.path
        lines = [
            f"ACTIVITIES_LOG_FILE={self.path}",
            f"ACTIVITIES_DURATION_MSECS={self.duration_ms}",
            f"ACTIVITIES_WARMUP_PERIOD_SECS={self.warmup_s}",
        ]
        if self.start_ms is not None:
            lines.append(f"PROFILE_START_TIME={self.start_ms}")
        return "\n".join(lines) + "\n"


def pack(kind: str, body: bytes) -> bytes:
    """One datagram."""
    return HEAD.pack(len(body), kind.encode()) + body


def parse(data: bytes) -> tuple[str, tuple[int, ...]] | None:
    """Type and process ids of a datagram; None for anything else than the two that jobs send, and for sizes that do not agree."""
    if len(data) < HEAD.size:
        return None
    size, name = HEAD.unpack_from(data)
    body = data[HEAD.size :]
    kind = name.rstrip(b"\0")
    if kind == b"ctxt":
        return "ctxt", ()
    if kind != b"req" or size != len(body) or len(body) < REQUEST.size:
        return None
    _, count, _ = REQUEST.unpack_from(body)
    if not 0 <= count <= MAX_PIDS or len(body) < REQUEST.size + 4 * count:
        return None
    return "req", struct.unpack_from(f"<{count}i", body, REQUEST.size)


class Answering:
    """A context manager: the socket that the jobs of `folder` (KINETO_IPC_SOCKET_DIR; None: those without) ask.

    Raises WellfedError when somebody else answers there, or when it can't be opened."""

    def __init__(self, folder: str | None) -> None:
        self._folder = None if folder is None else folder.rstrip("/") or "/"
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        if self._folder is not None:
            _check_folder(self._folder)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _PASS_CREDENTIALS, 1)
            self._bind()
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._socket is not None
        self._socket.close()
        if self._folder is not None:
            with contextlib.suppress(OSError):
                Path(self._name()).unlink()

    def wait(self, timeout_s: float) -> Asked | None:
        """The next thing asked; None when nothing was in that time, or nothing that makes sense."""
        assert self._socket is not None
        self._socket.settimeout(max(timeout_s, 0.001))
        try:
            data, extra, _, address = self._socket.recvmsg(MAX_DATAGRAM, 256)
        except TimeoutError:
            return None
        said = parse(data)
        if said is None or not address or not self._is_ours(address):
            return None
        peer = next((pid for level, type_, cred in extra if (pid := _peer(level, type_, cred))), None)
        return Asked(said[0], said[1], peer, address)

    def answer(self, asked: Asked, text: str = "") -> bool:
        """Tell the one who asked; whether it was there to hear it."""
        assert self._socket is not None
        body = struct.pack("<i", 1) if asked.kind == "ctxt" else text.encode()
        try:
            self._socket.sendto(pack(asked.kind, body), asked.address)
        except OSError:
            return False
        return True

    def _name(self) -> str:
        assert self._folder is not None
        return f"{self._folder}/dynolog"

    def _bind(self) -> None:
        assert self._socket is not None
        where = ABSTRACT if self._folder is None else self._name()
        try:
            self._socket.bind(where)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise WellfedError(
                    f"can't listen where the job asks ({self._where()}): {error.strerror}",
                    hint=f"ls -ld {self._folder or '/proc/net/unix'}",
                ) from error
            if self._folder is None or not self._clear():
                raise WellfedError(
                    f"somebody answers already where the job asks ({self._where()}): dynolog, or another attach",
                    hint="pgrep -a 'dynolog|wellfed'",
                ) from error
            self._socket.bind(where)

    def _clear(self) -> bool:
        """Take away a name that one who died has left; False when somebody listens."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial:
            try:
                trial.connect(self._name())
            except ConnectionRefusedError:
                Path(self._name()).unlink(missing_ok=True)
                return True
            except OSError:
                return False
        return False

    def _is_ours(self, address: "bytes | str") -> bool:
        """Whether the sender expects an answer by our name: its own socket lies where ours does, by the same spelling."""
        if self._folder is None:
            return isinstance(address, bytes) and address.startswith(b"\0")
        return isinstance(address, str) and address.rpartition("/")[0] == self._folder

    def _where(self) -> str:
        return "the abstract socket `dynolog`" if self._folder is None else self._name()


def _check_folder(folder: str) -> None:
    """Whoever can write in it can have the job write files: it must be its owner's alone."""
    hint = "a private folder: export KINETO_IPC_SOCKET_DIR=$(mktemp -d), and start the job again"
    if len(f"{folder}/dynolog") > _MAX_PATH:
        raise WellfedError(f"{folder} is too long a name for a socket (107 bytes)", hint=hint)
    try:
        mode = Path(folder).stat()
    except OSError as error:
        raise WellfedError(
            f"the job's KINETO_IPC_SOCKET_DIR, {folder}: {error.strerror}", hint=hint
        ) from error
    if not stat.S_ISDIR(mode.st_mode):
        raise WellfedError(f"the job's KINETO_IPC_SOCKET_DIR, {folder}, is no folder", hint=hint)
    if mode.st_mode & 0o022:
        raise WellfedError(
            f"the job's KINETO_IPC_SOCKET_DIR, {folder}, can be written by others, who could have the job write files",
            hint=f"chmod go-w {folder}",
        )
    if mode.st_uid not in (os.getuid(), 0) and os.getuid() != 0:
        raise WellfedError(f"the job's KINETO_IPC_SOCKET_DIR, {folder}, is another user's", hint=hint)


def _peer(level: int, type_: int, data: bytes) -> int | None:
    if level != socket.SOL_SOCKET or type_ != _SCM_CREDENTIALS or len(data) < _CREDENTIALS.size:
        return None
    pid: int = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
    return pid or None
