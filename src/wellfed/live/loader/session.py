"""The children of the tuner: a server that forks probes, and each probe with its socket, its deadline and its memory."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

from wellfed.live.loader import limits
from wellfed.live.loader.wire import receive, send
from wellfed.live.tree import descendants, is_alive
from wellfed.model import WellfedError

_POLL_S = 0.05
_START_S = 600.0
"""A module may take this long to import, and a factory to build its dataset."""
_LOG_LINES = 12


class Lost(Exception):
    """A probe that did not answer: it ended, took too long, or took too much memory (`over` then says how much)."""

    def __init__(self, why: str, *, over: bool = False) -> None:
        super().__init__(why)
        self.why, self.over = why, over


class Probe:
    """A forked child. `base` is its anonymous memory at birth, most of it shared with the server. `ask` may raise Lost."""

    def __init__(self, session: "Session", pid: int, connection: Connection) -> None:
        self.session, self.pid, self.connection = session, pid, connection
        self.base = limits.anonymous_bytes(pid)
        self.alive = True

    def send(self, message: dict[str, Any]) -> None:
        try:
            send(self.connection, message)
        except OSError as error:
            self.kill()
            raise Lost(self.session.why_ended(self.pid)) from error

    def reply(
        self, timeout_s: float, *, after_s: float | None = None, call: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """The answer to the last request; the memory of all probes is watched meanwhile. `call` is called once when there is
        none after `after_s`."""
        now = time.monotonic()
        end, late = now + timeout_s, now + (after_s if after_s is not None else timeout_s)
        while not wait([self.connection], _POLL_S):
            self.session.guard()
            if call is not None and time.monotonic() > late:
                call()
                call = None
            if not self.alive:
                raise Lost("it took more memory than the budget allows", over=True)
            if time.monotonic() > end:
                self.kill()
                raise Lost(f"no answer within {timeout_s:.0f} s")
        try:
            return receive(self.connection)
        except (EOFError, OSError) as error:
            self.kill()
            raise Lost(self.session.why_ended(self.pid)) from error

    def ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        self.send(message)
        return self.reply(timeout_s)

    def kill(self) -> None:
        """With everything it started."""
        if not self.alive:
            return
        self.alive = False
        family = [self.pid, *descendants(self.pid)]
        for pid in family[1:]:  # a worker may have left the group
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        self.connection.close()
        self.session.gone.update(family)


class Session:
    """`with Session(ram) as session`: a private folder, a server, probes. Everything ends with the block."""

    def __init__(self, ram_bytes: int | None, shm_bytes: int | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wellfed-loader-"))
        self.token = secrets.token_hex(16)
        self.listener = Listener(str(self.folder / "socket"), family="AF_UNIX", backlog=64)
        self.probes: list[Probe] = []
        self.ram_bytes, self.shm_bytes = ram_bytes, shm_bytes
        self.shm_before = limits.shm_used()
        self.ram_peak = self.shm_peak = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.server: Connection | None = None
        self.count = 0
        self.gone: set[int] = set()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self, target: str, batch_size: int | None) -> dict[str, Any]:
        """Start the server and let it build; its answer. Raises WellfedError when it can't."""
        environment = {**os.environ, "WELLFED_LOADER_TOKEN": self.token}
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [*_source(), os.environ.get("PYTHONPATH", "")])
        )
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "wellfed.live.loader.server", str(self.folder / "socket")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        _, self.server = self._accept(30.0, lambda: self.process is not None and self.process.poll() is None)
        send(self.server, {"target": target, "batch_size": batch_size})
        if not self.server.poll(_START_S):
            raise WellfedError(
                f"{target} was not built within {_START_S:.0f} s",
                hint="build it from a smaller part of the data",
            )
        try:
            return receive(self.server)
        except (EOFError, OSError) as error:
            raise WellfedError(
                f"{target}: its process ended while building: {self.tail()}",
                hint=f"python -X faulthandler -c 'import torch' && wellfed loader {target}",
            ) from error

    def _accept(self, seconds: float, alive: Callable[[], bool]) -> tuple[dict[str, Any], Connection]:
        end = time.monotonic() + seconds
        socket = self.listener._listener._socket  # type: ignore[attr-defined]  # the only way to wait with a limit
        socket.settimeout(0.2)
        while time.monotonic() < end:
            try:
                connection = self.listener.accept()
            except TimeoutError:
                if not alive():
                    break
                continue
            hello = receive(connection)
            if hello.get("token") == self.token:
                return hello, connection
            connection.close()
        raise WellfedError(
            f"the loader's process did not start: {self.tail()}", hint="python -c 'import torch.utils.data'"
        )

    def fork(self) -> Probe:
        """A new probe, idle."""
        assert self.server is not None
        self.count += 1
        try:
            send(self.server, {"number": self.count})
            pid = int(receive(self.server)["pid"])
        except (EOFError, OSError) as error:
            raise WellfedError(
                f"the loader's process ended: {self.tail()}", hint="free memory, or try a smaller dataset"
            ) from error
        hello, connection = self._accept(30.0, lambda: _exists(pid))
        assert hello["pid"] == pid
        probe = Probe(self, pid, connection)
        self.probes.append(probe)
        return probe

    def guard(self) -> None:
        """Note how much the probes take, and end the largest when it is more than nine tenths of the budget."""
        sizes = {probe: self._taken(probe) for probe in self.probes if probe.alive}
        shm = max(limits.shm_used() - self.shm_before, 0)
        ram = sum(sizes.values()) + shm
        self.ram_peak, self.shm_peak = max(self.ram_peak, ram), max(self.shm_peak, shm)
        over = self.ram_bytes is not None and ram > 0.9 * self.ram_bytes
        over = over or (self.shm_bytes is not None and shm > self.shm_bytes)
        if over and sizes:
            max(sizes, key=lambda probe: sizes[probe]).kill()

    def _taken(self, probe: Probe) -> int:
        """Anonymous memory that its processes have beyond what each was born with."""
        grown = (limits.anonymous_bytes(pid) - probe.base for pid in (probe.pid, *descendants(probe.pid)))
        return sum(max(one, 0) for one in grown)

    def why_ended(self, pid: int) -> str:
        return f"its process ended: {self.tail()}"

    def tail(self) -> str:
        """The end of what the user's code wrote."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return " | ".join(line.strip() for line in lines[-_LOG_LINES:])[-600:] or "it said nothing"

    def close(self) -> None:
        for probe in self.probes:
            probe.kill()
        if self.server is not None:
            self.server.close()
        if self.process is not None:
            self._end_server(self.process)
        self._forget_shared()
        self.listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _forget_shared(self) -> None:
        """Shared memory that killed processes had made and not yet unlinked: torch puts the maker's pid into the name."""
        end = time.monotonic() + 0.5
        while any(map(is_alive, self.gone)) and time.monotonic() < end:
            time.sleep(0.01)
        for path in Path("/dev/shm").glob("torch_*_*"):
            pid = path.name.split("_")[1]
            if pid.isdecimal() and int(pid) in self.gone and not is_alive(int(pid)):
                with contextlib.suppress(OSError):
                    path.unlink()

    @staticmethod
    def _end_server(process: "subprocess.Popen[bytes]") -> None:
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _source() -> list[str]:
    """The folder that this package was imported from where that is no installation: the child must find the same one. (An
    installation's folder ahead of the standard library could hide parts of it.)"""
    home = Path(__file__).resolve().parents[3]
    return [] if home.name in ("site-packages", "dist-packages") else [str(home)]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
