"""One Python process of the command: what it was asked for, which imports it waits for, and what happens when it forks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

FOLDER, ASKED = "WELLFED_RUN", "WELLFED_RUN_ASKED"
LOG = "processes.log"
RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK", "PALS_RANKID", "FLUX_TASK_RANK")  # fmt: skip
LOCAL_NAMES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "JSM_NAMESPACE_LOCAL_RANK", "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK", "FLUX_TASK_LOCAL_ID")  # fmt: skip
WORLD_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "JSM_NAMESPACE_SIZE", "PALS_SIZE", "FLUX_JOB_SIZE")  # fmt: skip
LOCAL_WORLD_NAMES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE")  # fmt: skip
_forked: list[Callable[[], None]] = []
_waiting: dict[str, Callable[[Any], None]] = {}


def asked() -> dict[str, str]:
    """`a=1;b=2` of the environment, in which `%3B` and `%25` stand for `;` and `%`."""
    found: dict[str, str] = {}
    for part in os.environ.get(ASKED, "").split(";"):
        name, _, value = part.partition("=")
        if name:
            found[name] = value.replace("%3B", ";").replace("%25", "%")
    return found


def begin() -> None:
    log("python", f"{os.getppid()} {sys.version_info[0]}.{sys.version_info[1]}")
    from . import hooks

    hooks.begin(asked())
    sys.meta_path.insert(0, _Watcher())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


def log(what: str, text: str = "") -> None:
    """One line in the log that all processes share. Appending so little is one write, which no other can part."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    line = f"{what} {os.getpid()} {time.monotonic_ns()} {text}".replace("\n", " ")[:400] + "\n"
    try:
        handle = os.open(
            os.path.join(folder, LOG),  # noqa: PTH118 - pathlib takes 5 ms to load
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
            0o600,
        )
        try:
            os.write(handle, line.encode("utf-8", "replace"))
        finally:
            os.close(handle)
    except OSError:
        pass  # the folder is gone or full


def told(names: tuple[str, ...]) -> int:
    """The first of these variables that holds a number; -1 for none."""
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit() and len(text) < 9:
            return int(text)
    return -1


def ranks() -> tuple[int, int, int, int]:
    """Rank, local rank, world size, local world size, as the launcher says."""
    return told(RANK_NAMES), told(LOCAL_NAMES), told(WORLD_NAMES), told(LOCAL_WORLD_NAMES)


def guarded(function: Callable[..., Any], switch_off: Callable[[], None] | None = None) -> Callable[..., Any]:
    """The same function; what it raises is logged, and after that `switch_off` is called."""

    def call(*args: Any, **params: Any) -> Any:
        try:
            return function(*args, **params)
        except Exception as error:  # noqa: BLE001 - never into the user's program
            failed(getattr(function, "__name__", "hook"), error)
            if switch_off is not None:
                switch_off()
            return None

    return call


def failed(name: str, error: BaseException) -> None:
    log("failure", f"{name}: {type(error).__name__}: {error}")


def on_fork(function: Callable[[], None]) -> None:
    _forked.append(function)


def _after_fork() -> None:
    for function in _forked:
        guarded(function)()


def when_imported(name: str, function: Callable[[Any], None]) -> None:
    """Call `function` with the module once it is imported; now, if it is already."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        guarded(function)(module)
    else:
        _waiting[name] = function


class _Watcher:
    """A finder that finds nothing itself. For a name that is waited for it takes the spec that the others find, and has its
    loader call us when the module has run; the loader stays the one that it is."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _waiting:
            return None
        function = _waiting.pop(name)
        try:
            return self._spec(name, path, target, function)
        except Exception as error:  # noqa: BLE001
            failed("import of " + name, error)
            return None

    def _spec(self, name: str, path: Any, target: Any, function: Callable[[Any], None]) -> Any:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                break
        else:
            _waiting[name] = function  # not there (yet): it may be installed or put on the path later
            return None
        loader = spec.loader
        run = getattr(loader, "exec_module", None)
        if run is None:
            return spec

        def exec_module(module: Any) -> None:
            try:
                del loader.exec_module
            except AttributeError:
                pass
            run(module)
            guarded(function)(module)

        loader.exec_module = exec_module
        return spec
