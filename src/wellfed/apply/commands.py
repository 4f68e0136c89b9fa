"""The programs that change what is no file: a closed table, and nothing of it goes through a shell."""

import errno
import os
import re
import shutil
import signal
import subprocess
from typing import NamedTuple, Protocol

KEPT: set[int] = set()
"""Descriptors that a command keeps open until it ends: the lock. So when this process is killed while a command runs,
nobody can look at the knob and call it unchanged before the command has come to its end."""

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")
_OUTPUT_LIMIT = 1 << 20


class Run(Protocol):
    """Runs one entry of `COMMANDS` with its blanks filled in. Gives its output; raises OSError."""

    def __call__(self, name: str, /, **blanks: str) -> str: ...


class Command(NamedTuple):
    """`accept` are the exit codes of success."""

    argv: tuple[str, ...]
    timeout_s: float = 30.0
    accept: tuple[int, ...] = (0,)


BLANKS = {
    "unit": r"[\w@:][\w@:.\\-]{0,250}",
    "interface": r"[\w.:][\w.:-]{0,14}",
    "name": r"[a-z][a-z0-9-]{0,40}",
    "value": r"[\w.]{1,40}",
    "address": r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]",
    "seconds": r"\d{1,6}(\.\d+)?s",
    "python": r"/[^\n\0]+",
    "path": r"[^\n\0]*",
    "folder": r"/[^\n\0]*",
    "top": r"/[^\n\0]*",
}
"""What a blank must match, wholly. None of it can be taken for an option, and no shell ever sees it."""

_SYSTEMCTL = ("systemctl", "--no-pager", "--no-ask-password")
_QUERY = "--query-gpu=pci.bus_id,persistence_mode,power.limit,power.min_limit,power.max_limit,compute_mode"
# ethtool says 80 when a value was so already.
_ETHTOOL_OK = (0, 80)

COMMANDS: dict[str, Command] = {
    "unit-state": Command((*_SYSTEMCTL, "show", "--property=LoadState,ActiveState,UnitFileState", "--", "{unit}")),
    # Starting and stopping wait for the unit, which systemd gives up on after 90 s by itself.
    "unit-start": Command((*_SYSTEMCTL, "start", "--", "{unit}"), 120.0),
    "unit-stop": Command((*_SYSTEMCTL, "stop", "--", "{unit}"), 120.0),
    "unit-enable": Command((*_SYSTEMCTL, "enable", "--", "{unit}")),
    "unit-disable": Command((*_SYSTEMCTL, "disable", "--", "{unit}")),
    "unit-mask": Command((*_SYSTEMCTL, "mask", "--", "{unit}")),
    "unit-unmask": Command((*_SYSTEMCTL, "unmask", "--", "{unit}")),
    "units-reload": Command((*_SYSTEMCTL, "daemon-reload")),
    "rings": Command(("ethtool", "-g", "{interface}")),
    "coalesce": Command(("ethtool", "-c", "{interface}")),
    "channels": Command(("ethtool", "-l", "{interface}")),
    "features": Command(("ethtool", "-k", "{interface}")),
    "pause": Command(("ethtool", "-a", "{interface}")),
    "set-rings": Command(("ethtool", "-G", "{interface}", "{name}", "{value}"), accept=_ETHTOOL_OK),
    "set-coalesce": Command(("ethtool", "-C", "{interface}", "{name}", "{value}"), accept=_ETHTOOL_OK),
    "set-channels": Command(("ethtool", "-L", "{interface}", "{name}", "{value}"), accept=_ETHTOOL_OK),
    "set-features": Command(("ethtool", "-K", "{interface}", "{name}", "{value}"), accept=_ETHTOOL_OK),
    "set-pause": Command(("ethtool", "-A", "{interface}", "{name}", "{value}"), accept=_ETHTOOL_OK),
    # 14 is "infoROM corrupted", said after a complete answer. Without persistence each call wakes the driver.
    "gpus": Command(("nvidia-smi", _QUERY, "--format=csv,noheader,nounits"), 60.0, (0, 14)),
    "gpu": Command(("nvidia-smi", "-i", "{address}", _QUERY, "--format=csv,noheader,nounits"), 60.0, (0, 14)),
    "set-persistence": Command(("nvidia-smi", "-i", "{address}", "-pm", "{value}"), 60.0, (0, 14)),
    "set-power": Command(("nvidia-smi", "-i", "{address}", "-pl", "{value}"), 60.0, (0, 14)),
    "set-compute": Command(("nvidia-smi", "-i", "{address}", "-c", "{value}"), 60.0, (0, 14)),
    "timer-start": Command(
        (
            "systemd-run", "--quiet", "--collect", "--unit={unit}", "--on-active={seconds}",
            "--timer-property=AccuracySec=100ms", "--working-directory=/", "--setenv=PYTHONPATH={path}",
            "{python}", "-P", "-m", "wellfed.apply.deadman", "0", "{top}", "{folder}",
        )
    ),
    "timer-stop": Command((*_SYSTEMCTL, "stop", "--", "{unit}.timer")),
}  # fmt: skip
"""Everything that may be run here."""


def filled(name: str, /, **blanks: str) -> tuple[str, ...]:
    """The command line. Raises OSError for a blank that does not fit."""
    for blank, text in blanks.items():
        if not re.fullmatch(BLANKS[blank], text):
            raise OSError(errno.EINVAL, f"`{text}` is no {blank}")
    return tuple(part.format(**blanks) for part in COMMANDS[name].argv)


def run(name: str, /, **blanks: str) -> str:
    """Run one entry of the table and give its output. Raises OSError: ENOENT when the program is not installed,
    ETIMEDOUT, or EIO with what it said."""
    command = COMMANDS[name]
    argv = filled(name, **blanks)
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    program = shutil.which(argv[0], path=os.pathsep.join((*folders, *_SBIN)))
    if program is None:
        raise OSError(errno.ENOENT, f"`{argv[0]}` is not installed")
    process = subprocess.Popen(
        (program, *argv[1:]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
        pass_fds=tuple(KEPT),
    )
    try:
        out, err = process.communicate(timeout=command.timeout_s)
    except subprocess.TimeoutExpired as error:
        _end(process)
        raise OSError(
            errno.ETIMEDOUT, f"`{' '.join(argv)}` gave no answer in {command.timeout_s:.0f} s"
        ) from error
    if process.returncode not in command.accept:
        said = (err.strip() or out.strip() or b"").decode("utf-8", "replace").splitlines()
        why = said[-1].strip()[:300] if said else f"exit code {process.returncode}"
        raise OSError(errno.EIO, f"`{' '.join(argv[:4])}`: {why}")
    return out[:_OUTPUT_LIMIT].decode("utf-8", "replace")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command that hangs. One that the kernel holds stays, and with it the lock."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=2.0)
    except (ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
        pass
