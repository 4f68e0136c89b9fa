"""The machine we stand on."""

import errno
import json
import os
import re
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from wellfed.host import busy
from wellfed.host.door import COMMANDS, PROBES, READ_LIMIT, TOOLS, Command, Reading
from wellfed.host.storage import data_mounts
from wellfed.model.fact import Status
from wellfed.model.places import DAEMONS

_PROCESSES_ASKED = 4096
OUTPUT_LIMIT = 4 << 20
"""Bytes of a command's output that are kept."""

_STATUS: dict[int, Status] = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.ENODEV: "missing",
    errno.ENXIO: "missing",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EOPNOTSUPP: "unsupported",
    errno.ENOSYS: "unsupported",
}
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/opt/rocm/bin", "/usr/local/cuda/bin", "/usr/lib/wsl/lib")


class LiveHost:
    """Reads never follow into pipes or devices, commands end at their time limit, and no shell is involved."""

    recorded = False
    origin = "this machine"
    notes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._ran: dict[tuple[str, str], Reading] = {}
        self._nvml: dict[str, Any] | None = None
        self._busy: Reading | None = None

    def read(self, path: str, limit: int = READ_LIMIT) -> Reading:
        try:
            data, cut = read_regular(path, limit)
        except OSError as error:
            return Reading(source=path, status=_STATUS.get(error.errno or 0, "error"), detail=error.strerror)
        return Reading(source=path, text=as_text(data), detail=f"cut at {limit} bytes" if cut else None)

    def listdir(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(path)))  # noqa: PTH208 - names, not Paths, and half the time
        except OSError:
            return ()

    def link(self, path: str) -> str | None:
        try:
            return os.readlink(path)  # noqa: PTH115 - the text as it stands; Path would tidy it
        except OSError:
            return None

    def real(self, path: str) -> str | None:
        try:
            return str(Path(path).resolve(strict=True))
        except (OSError, RuntimeError):
            return None

    def exists(self, path: str) -> bool:
        return os.path.exists(path)  # noqa: PTH110 - on the hot path

    def run(self, name: str, item: str = "") -> Reading:
        """Each command runs once in the life of a host: two readers that ask get the same answer."""
        if (name, item) not in self._ran:
            self._ran[name, item] = run_command(COMMANDS[name].on(item))
        return self._ran[name, item]

    def nvml(self) -> dict[str, Any]:
        if self._nvml is None:
            from wellfed.host import nvml  # the one module that loads pynvml

            self._nvml = nvml.snapshot()
        return self._nvml

    def environ(self) -> dict[str, str]:
        return dict(os.environ)

    def probe(self, name: str) -> Reading:
        assert name in PROBES, name
        if name != busy.PROBE:
            return self._ask(name)
        if self._busy is None:  # takes a tenth of a second, and two readers ask
            self._busy = self._ask(name)
        return self._busy

    def _ask(self, name: str) -> Reading:
        try:
            answer = _ANSWERS[name]()
        except (OSError, AttributeError, ImportError, ValueError) as error:
            # AttributeError, ImportError: a call that this operating system does not have.
            status: Status = "error" if isinstance(error, OSError) else "unsupported"
            return Reading(source=f"probe {name}", status=status, detail=str(error))
        return Reading(source=f"probe {name}", text=json.dumps(answer, sort_keys=True))


def read_regular(path: str, limit: int, extra_flags: int = 0) -> tuple[bytes, bool]:
    """At most `limit` bytes of a regular file, and whether there was more. Raises OSError, also for what is
    no regular file: opening without blocking and looking before reading keeps pipes and devices out."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | extra_flags)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EOPNOTSUPP, "not a regular file")
        chunks, size = [], 0
        while size <= limit:
            chunk = os.read(fd, min(limit + 1 - size, 1 << 16))
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
    finally:
        os.close(fd)
    data = b"".join(chunks)
    return data[:limit], len(data) > limit


def as_text(data: bytes) -> str:
    """Kernel text without its last newline; some lists end in NUL bytes."""
    return data.decode("utf-8", "replace").rstrip("\n\0")


def find_program(name: str) -> str | None:
    """Absolute path of a program. Relative PATH entries don't count: the folder we happen to stand in may
    hold somebody else's files."""
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    return shutil.which(name, path=os.pathsep.join((*folders, *_SBIN)))


def run_command(command: Command) -> Reading:
    """Runs one entry of `COMMANDS`."""
    source = str(command)
    program = find_program(command.argv[0])
    if program is None:
        return Reading(source=source, status="missing", detail=f"`{command.argv[0]}` is not installed")
    try:
        code, out, err = _run_limited((program, *command.argv[1:]), command.timeout_s)
    except OSError as error:
        return Reading(
            source=source,
            status=_STATUS.get(error.errno or 0, "error"),
            detail=f"{program}: {error.strerror}",
        )
    if code is None:
        return Reading(source=source, status="error", detail=f"no answer in {command.timeout_s:.0f} s")
    if code not in command.accept:
        return Reading(
            source=source, status=_why(err or out), detail=_last_line(err or out) or f"exit code {code}"
        )
    if command.keep:
        keep = re.compile(command.keep)
        out = "\n".join(line for line in out.splitlines() if keep.search(line))
    return Reading(source=source, text=out)


def _run_limited(argv: tuple[str, ...], timeout_s: float) -> tuple[int | None, str, str]:
    """(exit code or None when time ran out, stdout, stderr), both capped."""
    deadline = time.monotonic() + timeout_s
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
    )
    assert process.stdout and process.stderr
    texts = {process.stdout: b"", process.stderr: b""}
    with selectors.DefaultSelector() as selector:
        for stream in texts:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fileobj)
                # What is over the cap is read and dropped, so that the command can end.
                stream = next(s for s in texts if s is key.fileobj)
                texts[stream] = (texts[stream] + chunk)[:OUTPUT_LIMIT]
    code = _reap(process, deadline)
    for stream in texts:
        stream.close()
    out, err = (text.decode("utf-8", "replace") for text in texts.values())
    return code, out, err


def _reap(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """The exit code; None when the process had to be killed. A process that the kernel holds (a hung GPU
    driver does that to nvidia-smi) is left behind rather than waited for."""
    try:
        return process.wait(max(0.05, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(1.0)
    except (ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
        pass
    return None


def _why(text: str) -> Status:
    if re.search(r"permission denied|not permitted|must be root|superuser", text, re.IGNORECASE):
        return "denied"
    if re.search(r"not been booted with systemd|not supported|no devices were found", text, re.IGNORECASE):
        return "unsupported"
    return "error"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip()[:300] if lines else ""


def _limits() -> dict[str, tuple[int, int]]:
    import resource

    names = {
        "memlock_bytes": resource.RLIMIT_MEMLOCK,
        "open_files": resource.RLIMIT_NOFILE,
        "processes": resource.RLIMIT_NPROC,
        "stack_bytes": resource.RLIMIT_STACK,
        "core_bytes": resource.RLIMIT_CORE,
    }
    unlimited = resource.RLIM_INFINITY
    pairs = {name: resource.getrlimit(number) for name, number in names.items()}
    return {
        name: (-1 if soft == unlimited else soft, -1 if hard == unlimited else hard)
        for name, (soft, hard) in pairs.items()
    }


def _space(path: str) -> dict[str, Any]:
    found = os.statvfs(path)
    return {
        "size_bytes": found.f_blocks * found.f_frsize,
        "free_bytes": found.f_bavail * found.f_frsize,
        "inodes_free": found.f_favail if found.f_files else None,
        "read_only": bool(found.f_flag & os.ST_RDONLY),
    }


def _mounts() -> dict[str, dict[str, Any]]:
    text = Path("/proc/self/mounts").read_text("utf-8", "replace")
    spaces: dict[str, dict[str, Any]] = {}
    for mount in data_mounts(text):
        if mount["is_network"]:
            continue  # statvfs of a dead server blocks for minutes
        try:
            spaces[mount["path"]] = _space(mount["path"])
        except OSError:
            continue
    return spaces


def _python() -> dict[str, Any]:
    import platform
    import sysconfig

    enabled: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)
    glibc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None
    return {
        "version": platform.python_version(),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "implementation": sys.implementation.name,
        "gil": enabled() if enabled else True,
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "glibc": glibc,
        "paths": [path for path in sys.path if path.startswith("/")],
    }


def _uname() -> dict[str, str]:
    name = os.uname()
    return {"system": name.sysname, "release": name.release, "version": name.version, "machine": name.machine}


def _dma_latency() -> dict[str, Any] | None:
    """The device gives the value in force as four bytes; opening it to read asks for nothing. Needs root."""
    try:
        fd = os.open("/dev/cpu_dma_latency", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        value = int.from_bytes(os.read(fd, 4), sys.byteorder, signed=True)
        device = os.fstat(fd).st_rdev
    finally:
        os.close(fd)
    return {"value_us": value, "holders": _holders(device)}


def _holders(device: int) -> list[str]:
    """Known daemons that hold the device open; all others are `other`."""
    names: set[str] = set()
    for process in islice(
        (path for path in Path("/proc").iterdir() if path.name.isdigit()), _PROCESSES_ASKED
    ):
        try:
            held = any(_is_device(entry, device) for entry in (process / "fd").iterdir())
            if held and int(process.name) != os.getpid():
                name = (process / "comm").read_text().strip()
                names.add(name if name in DAEMONS else "other")
        except OSError:
            continue
    return sorted(names)


def _is_device(path: Path, device: int) -> bool:
    try:
        return str(path.readlink()) == "/dev/cpu_dma_latency" and path.stat().st_rdev == device
    except OSError:
        return False


def _numa_calls() -> str:
    """Memory policy is asked for and the default one set, which is what a process has anyway."""
    import ctypes

    numbers = {"x86_64": (239, 238), "aarch64": (236, 237), "ppc64le": (260, 261)}
    machine = os.uname().machine
    if machine not in numbers:
        raise ValueError(f"the number of get_mempolicy on {machine} is not known here")
    call = ctypes.CDLL(None, use_errno=True).syscall
    get, put = numbers[machine]
    mode = ctypes.c_int(-1)
    if call(get, ctypes.byref(mode), None, ctypes.c_ulong(0), None, ctypes.c_ulong(0)) != 0:
        return errno.errorcode.get(ctypes.get_errno(), "error")
    if mode.value == 0 and call(put, 0, None, ctypes.c_ulong(0)) != 0:
        return errno.errorcode.get(ctypes.get_errno(), "error")
    return "ok"


def _own_name() -> dict[str, bool]:
    name = os.uname().nodename
    lines = [line.partition("#")[0].split() for line in Path("/etc/hosts").read_text().splitlines()]
    return {
        "on_loopback": any(words and words[0].startswith("127.") and name in words[1:] for words in lines)
    }


def _writable() -> dict[str, bool]:
    """Folders of `/proc/sys` are writable for nobody: there a file that is always there tells."""
    asked = {
        "/proc/sys": "/proc/sys/vm/swappiness",
        "/proc/sys/net": "/proc/sys/net/core/somaxconn",
        "/sys": "/sys",
        "/sys/fs/cgroup": "/sys/fs/cgroup",
    }
    return {
        path: os.access(one, os.W_OK) and not _space(path)["read_only"]
        for path, one in asked.items()
        if Path(path).is_dir()
    }


_ANSWERS: dict[str, Callable[[], Any]] = {
    "affinity": lambda: sorted(os.sched_getaffinity(0)),
    "page_size": lambda: os.sysconf("SC_PAGE_SIZE"),
    "uname": _uname,
    "shm": lambda: _space("/dev/shm"),
    "mounts": _mounts,
    "writable": _writable,
    "limits": _limits,
    "python": _python,
    "dma_latency": _dma_latency,
    "numa_calls": _numa_calls,
    "own_name": _own_name,
    "user_namespace": lambda: Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"],
    "busy": busy.measure,
    "tools": lambda: {name: find_program(name) is not None for name in TOOLS},
}
assert _ANSWERS.keys() == PROBES.keys()
