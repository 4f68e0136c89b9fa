"""The longest time the CPUs may take to wake up: held by a small process, and given up by ending it.

Each holder has a file below `/run/wellfed`, locked while it lives, which says what it holds and which process it is.
The lock is taken before the process is started and handed down to it, so there is no moment in which a holder is
there and can't be seen, whoever is killed when.
"""

import contextlib
import errno
import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from wellfed.apply import failpoint
from wellfed.apply.knobs import Plain
from wellfed.apply.root import Root
from wellfed.model import WellfedError

TARGET = "cpu_dma_latency"
_HELD = re.compile(r"(\d+)(?: \(process (\d+), started (\d+)\))?")
_FILE = re.compile(r"hold-(\d+)")
_WAIT_S = 5.0


class HoldKind(Plain):
    """`cpu_dma_latency`, in microseconds; None when we hold nothing."""

    lasts = False

    def key(self, target: str) -> str:
        return target

    def expand(self, root: Root, target: str) -> list[str]:
        if target != TARGET:
            raise WellfedError(f"`{target}` can't be held", hint=f'target = "{TARGET}"')
        return [target]

    def read(self, root: Root, target: str) -> str | None:
        held = [text for _, text, locked in _files(root) if locked]
        return held[-1] if held else None

    def write(self, root: Root, target: str, value: str | None) -> None:
        """The new holder is there before the old ones are ended: never is there none in between."""
        olds = [path for path, _, _ in _files(root)]
        if value is not None:
            match = _HELD.match(value)
            if match is None or int(match[1]) >= 1 << 31:
                raise OSError(errno.EINVAL, f"`{value}` is no number of microseconds")
            _start(root, match[1])
            failpoint.reached("holder-started")
        for path in olds:
            _end(path)

    def same(self, target: str, a: str | None, b: str | None) -> bool:
        if a is None or b is None:
            return a is b
        one, other = _HELD.match(a), _HELD.match(b)
        return one is not None and other is not None and int(one[1]) == int(other[1])

    def obstacle(self, root: Root, target: str, new: str) -> str | None:
        device = root.outside(f"/dev/{TARGET}")
        if not device.exists():
            return f"/dev/{TARGET} is not there"
        if not re.fullmatch(r"\d{1,9}", new):
            return f"`{new}` is no number of microseconds"
        return None if os.access(device, os.W_OK) else f"no permission to open /dev/{TARGET}; run as root"

    def shell(self, target: str, value: str | None) -> str:
        if value is None:
            return "sudo wellfed tune undo"
        match = _HELD.match(value)
        return f"sudo sh -c 'exec 3>/dev/{TARGET}; printf 0x%08x {match[1] if match else value} >&3; sleep infinity'"


def _folder(root: Root) -> Path:
    return root.outside("/run/wellfed")


def _files(root: Root) -> list[tuple[Path, str, bool]]:
    """Files of holders, the oldest first, what each says, and whether its holder lives."""
    found: list[tuple[int, Path]] = []
    with contextlib.suppress(OSError):
        found = [
            (int(m[1]), path)
            for path in _folder(root).iterdir()
            if (m := _FILE.fullmatch(path.name)) is not None
        ]
    told: list[tuple[Path, str, bool]] = []
    for _, path in sorted(found):
        with contextlib.suppress(FileNotFoundError), _opened(path) as fd:
            told.append((path, os.pread(fd, 256, 0).decode("ascii", "replace").strip(), not _free(fd)))
    return told


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield fd
    finally:
        os.close(fd)


def _free(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def _start(root: Root, value: str) -> None:
    """Raises OSError when there is no holder afterwards."""
    folder = _folder(root)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = _files(root)
    number = int(files[-1][0].name.removeprefix("hold-")) + 1 if files else 1
    path = folder / f"hold-{number:05d}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.pwrite(fd, f"{value}\n".encode(), 0)
        holder = Path(__file__).with_name("holder.py")
        device = str(root.outside(f"/dev/{TARGET}"))
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(holder), str(fd), device, value],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
            pass_fds=(fd,),
        )
        assert process.stdout and process.stderr
        with process.stdout, process.stderr:
            ready, _, _ = select.select([process.stdout], [], [], _WAIT_S)
            if not ready or os.read(process.stdout.fileno(), 5) != b"held\n":
                process.kill()
                process.wait()
                said = process.stderr.read(4000).decode("utf-8", "replace").strip().splitlines()
                path.unlink()
                raise OSError(errno.EIO, said[-1] if said else f"/dev/{TARGET} could not be held")
        # It goes on without us; that it is our child until we end is of no meaning.
        process.returncode = 0
    finally:
        os.close(fd)


def _end(path: Path) -> None:
    """End the holder of a file, if it lives, and wait until it has. Raises OSError when it does not end."""
    until = time.monotonic() + _WAIT_S
    with contextlib.suppress(FileNotFoundError), _opened(path) as fd:
        while not _free(fd):
            match = _HELD.match(os.pread(fd, 256, 0).decode("ascii", "replace"))
            # One that is just being started does not say yet which process it is.
            if match is not None and match[2] is not None:
                _signal(int(match[2]), match[3])
            if time.monotonic() > until:
                raise OSError(errno.EBUSY, f"the process that holds /dev/{TARGET} does not end")
            time.sleep(0.01)
        path.unlink()


def _signal(pid: int, start: str) -> None:
    """Ask a process to end, if it is still that one: numbers of processes are used again."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        fd = os.pidfd_open(pid)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
            if stat.rpartition(")")[2].split()[19] == start:
                signal.pidfd_send_signal(fd, signal.SIGTERM)
        finally:
            os.close(fd)
