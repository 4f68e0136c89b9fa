"""What undoes a change that nobody confirms, for whoever made it may be cut off by it.

Two wait for the deadline where systemd runs, a timer of systemd and a process of our own: a timer may be kept from
starting our Python (SELinux), a process may be ended with the session it was started in. Whoever comes second finds
nothing left to do. Should both be gone, the next `wellfed tune` undoes it first.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from wellfed.apply import commands
from wellfed.apply.commands import Run
from wellfed.apply.journal import Journal
from wellfed.apply.root import Root
from wellfed.model import WellfedError

LEAST_S, MOST_S = 10.0, 86_400.0
"""What the command line takes. Less is not enough to log in again and confirm."""

_READY_S = 20.0
_TRIES_S = 600.0
"""How long it waits for another that is at work, which may be the very change, hanging."""


def arm(txid: str, seconds: float, journal: Journal, run: Run = commands.run) -> int:
    """From now on `txid` is undone after so many seconds; by process number so-and-so, or the timer. Raises OSError
    when nobody can be made to wait for that."""
    with contextlib.suppress(OSError):
        if journal.root.is_real and Path("/run/systemd/system").is_dir():
            # The clock of the journal decides; the timer comes a little later, so that it is over by then.
            run(
                "timer-start",
                unit=_unit(txid),
                seconds=f"{seconds + 0.2:.1f}s",
                path=_path(),
                python=sys.executable,
                top=journal.root.top,
                folder=os.path.abspath(journal.folder),  # noqa: PTH100
            )
    return _spawn(seconds, journal)


def disarm(txid: str, run: Run = commands.run) -> None:
    """Nobody has to wait for `txid` any more. They would find that out by themselves: the journal says so."""
    with contextlib.suppress(OSError):
        if Path("/run/systemd/system").is_dir():
            run("timer-stop", unit=_unit(txid))


def wait_and_revert(seconds: float, journal: Journal) -> None:
    """Until the deadline, or until there is nothing to wait for; then undo. Raises WellfedError when somebody else is
    at work for very long."""
    from wellfed.apply import engine

    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 1.0))
        # A journal that can't be read now may be read at the deadline.
        with contextlib.suppress(WellfedError):
            if not engine.waiting(journal):
                return
    last = time.monotonic() + _TRIES_S
    while True:
        try:
            engine.revert_overdue(journal)
            if not engine.waiting(journal):
                return
        except WellfedError:
            if time.monotonic() > last:
                raise
        time.sleep(0.2)


def _spawn(seconds: float, journal: Journal) -> int:
    """Raises OSError unless a process is up and waits."""
    process = subprocess.Popen(
        [
            sys.executable, "-P", "-m", "wellfed.apply.deadman",
            str(seconds), journal.root.top, os.path.abspath(journal.folder),  # noqa: PTH100
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={**os.environ, "PYTHONPATH": _path()},
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout
    with process.stdout:
        ready, _, _ = select.select([process.stdout], [], [], _READY_S)
        if not ready or os.read(process.stdout.fileno(), 6) != b"ready\n":
            process.kill()
            process.wait()
            raise OSError(0, "the process that would undo it could not be started")
    # It outlives us; whether it is our child until then is of no meaning.
    process.returncode = 0
    return process.pid


def _unit(txid: str) -> str:
    return f"wellfed-undo-{txid}"


def _path() -> str:
    """Where this Python finds its modules, for one that is started without our environment."""
    return os.pathsep.join(part for part in sys.path if part.startswith("/") and ":" not in part)


def main(argv: list[str]) -> None:
    """`SECONDS TOP FOLDER`: wait, then undo what is overdue below `TOP` by the journal in `FOLDER`."""
    seconds, top, folder = argv
    journal = Journal(Root(top), Path(folder))
    from wellfed.apply import engine  # noqa: F401 - all that is needed later is loaded before it is called ready

    os.write(1, b"ready\n")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    wait_and_revert(float(seconds), journal)


if __name__ == "__main__":
    main(sys.argv[1:])
