"""The command: started with our hooks, watched until it ends, its exit code told as a shell would."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from wellfed._version import __version__
from wellfed.bench.setup import allowed_cpus
from wellfed.live.pin import find_command
from wellfed.live.run.inside.process import ASKED, FOLDER
from wellfed.live.run.inside.ring import PATTERN, Ring, bucket
from wellfed.live.run.sampler import Sampler, oom_kills
from wellfed.model import WellfedError

HOOKS = Path(__file__).with_name("hooks")
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT")
_MAX_LINE = 1 << 20
_KINETO = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n"
MANIFEST, SAMPLES = "run.json", "samples.jsonl"


class Watching(NamedTuple):
    """What is asked of a run. `folder`: where rings and samples go; None: a temporary one."""

    folder: Path | None = None
    trace_step: int | None = None
    trace_slow: bool = False
    trace_max_mb: float = 64.0
    step_fn: str | None = None
    step_pattern: str | None = None
    pin: bool = False
    keep_stdout: bool = False
    """Ours stays free: what the command writes to its own goes to stderr."""


class Ended(NamedTuple):
    """`code` as a shell has it: 128 + n for signal n."""

    folder: Path
    code: int


Tell = Callable[["Live"], None]


class Live(NamedTuple):
    """What is known in the middle of a run: seconds since its start, where its files are, the newest sample."""

    seconds: float
    folder: Path
    sample: Mapping[str, Any]


def run_command(
    words: Sequence[str], watching: Watching, tell: Tell | None, say: Callable[[str], None] | None = None
) -> Ended:
    """Run it to its end. `tell` is called once a second, `say` with what the user should know. Raises WellfedError when it can't
    be started."""
    check_watching(watching)
    find_command(words, os.environ)
    folder = _folder(watching.folder)
    if say is not None:
        say(f"wellfed run: watched in {folder}; if we are killed: wellfed run --read {folder}")
    manifest: dict[str, Any] = {
        "command": list(words), "started": _now(), "ended": None, "seconds": None, "exit": None, "version": __version__,
        "cpus": len(allowed_cpus()), "pinned": "pin exec" if watching.pin else None,
    }  # fmt: skip
    _write(folder, manifest)
    argv = [sys.executable, "-m", "wellfed", "pin", "exec", "--", *words] if watching.pin else list(words)
    killed_before, began = oom_kills(), time.monotonic()
    with _socket_folder() as socket, _ignored(signal.SIGINT):
        pipe = subprocess.PIPE if watching.step_pattern else None
        stdout = pipe or (sys.stderr.fileno() if watching.keep_stdout else None)
        process = subprocess.Popen(
            argv, env=environment(os.environ, folder, socket, watching), stdout=stdout, stderr=pipe, preexec_fn=_default_signals
        )  # fmt: skip
        with _forwarding(process):
            copies = (
                _copy_output(process, folder, watching.step_pattern, watching.keep_stdout)
                if watching.step_pattern
                else []
            )
            sampler = Sampler(process.pid, folder / SAMPLES)
            sampler.start()
            status = _wait(process, began, folder, sampler, tell)
            sampler.stop()
            for copy in copies:
                copy.join(5.0)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
    killed_now = oom_kills()
    killed = (killed_now or 0) - (killed_before or 0) if killed_now is not None else 0
    manifest |= {
        "ended": _now(),
        "seconds": round(time.monotonic() - began, 3),
        "exit": exit_of(status, killed),
    }
    _write(folder, manifest)
    return Ended(folder, 128 - status if status < 0 else status)


def check_watching(watching: Watching) -> None:
    """Raises WellfedError for what can't be watched."""
    if watching.step_pattern is not None:
        try:
            re.compile(watching.step_pattern)
        except re.error as error:
            raise WellfedError(
                f"--step-pattern {watching.step_pattern}: {error}", hint=r"--step-pattern '^step \d+'"
            ) from error
    if watching.step_fn is not None and not re.fullmatch(r"[\w.]+:[\w.]+", watching.step_fn):
        raise WellfedError(f"--step-fn {watching.step_fn} is no function", hint="--step-fn train:train_step")


def exit_of(status: int, killed: int) -> dict[str, Any]:
    """How it ended: exit code or signal, and the reason in words where there is one."""
    if status >= 0:
        reason = "it ended well" if status == 0 else f"exit code {status}"
        if killed:
            reason += f"; the kernel killed {killed} of its processes for want of memory"
        return {"code": status, "signal": None, "reason": reason}
    name = (
        signal.Signals(-status).name if -status in {s.value for s in signal.Signals} else f"signal {-status}"
    )
    if -status == signal.SIGKILL and killed:
        reason = "killed by the kernel for want of memory (memory.events of its cgroup)"
    elif -status == signal.SIGKILL:
        reason = "killed by SIGKILL: somebody's kill -9, a scheduler, or the kernel for want of memory of the whole machine (dmesg tells)"
    elif -status == signal.SIGBUS:
        reason = "killed by SIGBUS: often /dev/shm is full (df -h /dev/shm)"
    else:
        reason = f"killed by {name}"
    return {"code": None, "signal": -status, "reason": reason}


def environment(
    environ: Mapping[str, str], folder: Path, socket: str | None, watching: Watching
) -> dict[str, str]:
    """The command's: our hooks before its own PYTHONPATH, and profiling on demand for `wellfed attach`, where the user has
    not set it himself; as long as nobody answers, Kineto would say so on stderr every second, so its log is silenced."""
    asked = {
        "trace_step": watching.trace_step, "trace_slow": 1 if watching.trace_slow else None,
        "trace_max_mb": watching.trace_max_mb if watching.trace_step is not None or watching.trace_slow else None,
        "step_fn": watching.step_fn,
    }  # fmt: skip
    words = [
        f"{name}={str(value).replace('%', '%25').replace(';', '%3B')}"
        for name, value in asked.items()
        if value is not None
    ]
    path = [str(HOOKS), *([environ["PYTHONPATH"]] if environ.get("PYTHONPATH") else [])]
    ours = {FOLDER: str(folder), ASKED: ";".join(words), "PYTHONPATH": os.pathsep.join(path)}
    if socket is not None and "KINETO_USE_DAEMON" not in environ:
        ours |= {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": socket}
        if "KINETO_CONFIG" not in environ:
            ours["KINETO_CONFIG"] = f"{socket}/kineto.conf"
        ours["KINETO_LOG_LEVEL"] = environ.get("KINETO_LOG_LEVEL", "5")
    return {**environ, **ours}


# -- its start and its end ---------------------------------------------------------------------------------


def _folder(told: Path | None) -> Path:
    """Several `run` of one job (one a rank) may share a folder that the user names."""
    if told is None:
        return Path(tempfile.mkdtemp(prefix="wellfed-run-"))
    try:
        told.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise WellfedError(
            f"can't make {told}: {error.strerror}", hint="wellfed run --dir FOLDER -- CMD"
        ) from error
    if not os.access(told, os.W_OK):
        raise WellfedError(f"no permission to write in {told}", hint="wellfed run --dir FOLDER -- CMD")
    return told.resolve()


@contextmanager
def _socket_folder() -> Iterator[str | None]:
    """A folder that is ours alone, with a name short enough for a socket. None where there is none to be had."""
    try:
        folder = tempfile.mkdtemp(prefix="wellfed-", dir="/tmp")
    except OSError:
        yield None
        return
    try:
        Path(folder, "kineto.conf").write_text(_KINETO)
        yield folder
    finally:
        for entry in Path(folder).iterdir():
            with suppress(OSError):
                entry.unlink()
        with suppress(OSError):
            Path(folder).rmdir()


@contextmanager
def _ignored(number: signal.Signals) -> Iterator[None]:
    """Ctrl-C reaches the command by the terminal; what it makes of that is its business, and we report it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def _default_signals() -> None:
    """In the child, before it is the command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def _forwarding(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """What is sent to us goes on to the command."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def forward(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(number)

    numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(
    process: subprocess.Popen[bytes], began: float, folder: Path, sampler: Sampler, tell: Tell | None
) -> int:
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1.0)
        if tell is not None:
            tell(Live(time.monotonic() - began, folder, sampler.last))


def _write(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Whole or not at all. Of several that share a folder the first that began stays."""
    path = folder / MANIFEST
    if path.exists():
        with suppress(OSError, ValueError):
            known = json.loads(path.read_bytes())
            if known.get("started") != manifest["started"] and known.get("ended") is None:
                return
    handle, name = tempfile.mkstemp(prefix=".run-", dir=folder)
    with os.fdopen(handle, "wb") as stream:
        stream.write(json.dumps(manifest).encode())
    Path(name).replace(path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


# -- steps by lines of the output --------------------------------------------------------------------------


def _copy_output(
    process: subprocess.Popen[bytes], folder: Path, pattern: str, keep_stdout: bool
) -> list[threading.Thread]:
    """Both streams go on to ours as they come; lines that the pattern finds are steps, in a ring of our own."""
    ring = Ring(
        str(folder / f"{process.pid}-pattern.ring"), (time.monotonic_ns(), time.time_ns()), (-1, -1, -1, -1)
    )
    ring.text("program", "lines of the output")
    find, lock, last = re.compile(pattern.encode()), threading.Lock(), [0]

    def line_ended(line: bytes) -> None:
        if find.search(line):
            with lock:
                now = time.monotonic_ns()
                ring.write(PATTERN, now)
                if last[0]:
                    ring.histograms[5][bucket(now - last[0])] += 1
                last[0] = now

    def copy(source: IO[bytes], target: IO[bytes]) -> None:
        rest = b""
        while data := os.read(source.fileno(), 1 << 16):
            with suppress(OSError, ValueError):
                target.write(data)
                target.flush()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                line_ended(line[:_MAX_LINE])
            rest = rest[-_MAX_LINE:]

    assert process.stdout is not None and process.stderr is not None
    out = sys.stderr if keep_stdout else sys.stdout
    pairs = ((process.stdout, out.buffer), (process.stderr, sys.stderr.buffer))
    threads = [threading.Thread(target=copy, args=pair, daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    return threads
