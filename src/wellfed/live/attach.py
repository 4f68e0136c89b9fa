"""Asking running jobs for a trace: which processes can be asked, the asking, and waiting for their files.

The trace is written by the job itself, into a folder that is the job's user's alone. A job that can't be asked is left as it
is, with the reason in words."""

import contextlib
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from wellfed.live.kineto import Answering, Asked, Window
from wellfed.live.launchers import Told, told_rank
from wellfed.live.run.inside.process import RANK_NAMES
from wellfed.live.tree import descendants, is_alive
from wellfed.model import WellfedError

Say = Callable[[str], None]
POLL_S = 5.0
"""How often a job asks, unless its KINETO_CONFIG says otherwise."""
WARMUP_S = 1
AHEAD_S = POLL_S + WARMUP_S + 4
"""How far ahead a common start of several lies: each has asked once by then, and warms up (Kineto refuses a start that comes too
early for its warm-up, and looks once a second)."""
_ASK_S = 3 * POLL_S
_WRITE_S_PER_S, _WRITE_S = 60.0, 30.0
"""The file of 0.5 s came 3 to 8 s later; a job with much to write takes longer, and is waited for."""
_PROC = Path("/proc")


class Target(NamedTuple):
    """A process that may be asked. `inner` is its number as it sees itself, `folder` its KINETO_IPC_SOCKET_DIR, `root` the way into
    its file system from ours (empty when it is the same), `rank` what its launcher says: among all ranks of the job."""

    pid: int
    inner: int
    uid: int
    folder: str | None
    root: str
    rank: int | None = None


class Traced(NamedTuple):
    """What came of it: a file for each process that wrote one, and for each that did not, why."""

    files: dict[int, Path]
    reasons: dict[int, str]


def find_targets(pid: int) -> tuple[list[Target], str | None]:
    """The processes to ask: `pid` itself, or the ranks below it when a launcher was named (see `_jobs`). With none of them, the
    reason."""
    if not (_PROC / str(pid)).is_dir():
        return [], "there is no such process"
    tree = _jobs(pid)
    if not tree:
        denied = not os.access(_PROC / str(pid) / "environ", os.R_OK)
        if denied:
            return [], "it is another user's: ask as that user or as root"
        return [], "PyTorch is not loaded in it or its children"
    found, reasons = [], []
    for one in tree:
        target, reason = _look_at(one)
        if target is not None:
            found.append(target)
        elif reason is not None:
            reasons.append(reason)
    return found, None if found else reasons[0]


def ask(
    targets: Sequence[Target], seconds: float, keep: Path | None, say: Say, *, explicit: Sequence[int] = ()
) -> Traced:
    """One window of all targets, in step when there are several. `explicit` are those the user named, whose silence is a
    reason; a child that never asks is a loader's worker or the like. Files are moved to `keep`."""
    files: dict[int, Path] = {}
    reasons: dict[int, str] = {}
    for folder in sorted({target.folder for target in targets}, key=str):
        group = [target for target in targets if target.folder == folder]
        with _places(group) as places, Answering(folder) as door:
            told = _tell(door, group, places, seconds, say)
            for target in group:
                if target.pid in told:
                    continue
                if target.pid in explicit or not told:
                    reasons[target.pid] = _why_silent(target)
            _collect(door, [t for t in group if t.pid in told], places, seconds, keep, files, reasons, say)
    return Traced(files, reasons)


# -- who ---------------------------------------------------------------------------------------------------


def _look_at(pid: int) -> tuple[Target | None, str | None]:
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
        status = (_PROC / str(pid) / "status").read_text()
        apart = not (_PROC / str(pid) / "ns" / "mnt").samefile("/proc/self/ns/mnt")
        uid = (_PROC / str(pid)).stat().st_uid
    except PermissionError:
        return None, "it is another user's: ask as that user or as root"
    except OSError:
        return None, "it has ended"
    variables = _variables(environ)
    if variables.get("KINETO_USE_DAEMON", "0") in ("", "0"):
        return None, (
            "it was started without KINETO_USE_DAEMON=1, so nothing in it listens; jobs under `wellfed run` have it, others "
            "take it when they are started"
        )
    inner = next((line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:")), str(pid))
    folder = variables.get("KINETO_IPC_SOCKET_DIR") or None
    root = f"/proc/{pid}/root" if apart else ""
    refused = _unreachable(pid, folder, root)
    return (
        (None, refused)
        if refused
        else (Target(pid, int(inner), uid, folder, root, _global_rank(variables)), None)
    )


def _unreachable(pid: int, folder: str | None, root: str) -> str | None:
    """Why a job in a container can't be asked from here. The name of our socket must be the one that the job expects: answered
    from another it would end itself."""
    if folder is None:
        try:
            same = (_PROC / str(pid) / "ns" / "net").samefile("/proc/self/ns/net")
        except OSError:
            same = False
        return (
            None
            if same
            else "it is in another network namespace (a container): set KINETO_IPC_SOCKET_DIR to a folder mounted in both"
        )
    if not root:
        return None
    with contextlib.suppress(OSError):
        if Path(folder).samefile(f"{root}{folder}"):
            return None
    return f"it is in a container whose KINETO_IPC_SOCKET_DIR, {folder}, is not the same folder here: mount it in both under one name"


def _has_torch(pid: int) -> bool:
    try:
        with (_PROC / str(pid) / "maps").open(errors="replace") as maps:
            return any("libtorch_cpu" in line or "libtorch.so" in line for line in maps)
    except OSError:
        return False


def _jobs(pid: int) -> list[int]:
    """The processes at or below `pid` that do the work. torchrun has PyTorch loaded itself, and so have a rank's loader workers:
    of those that have it, one with the same rank as one above it is a worker, and one that has others below it, of ranks of
    their own, is a launcher."""
    holders = {one: _rank(one) for one in (pid, *descendants(pid)) if _has_torch(one)}
    above = {one: [parent for parent in _ancestors(one) if parent in holders] for one in holders}
    tops = [one for one in holders if all(holders[parent] != holders[one] for parent in above[one])]
    launchers = {parent for one in tops for parent in above[one]}
    return [one for one in tops if one not in launchers]


def _rank(pid: int) -> Told | None:
    try:
        return told_rank(_variables((_PROC / str(pid) / "environ").read_bytes()))
    except OSError:
        return None


def _global_rank(variables: Mapping[str, str]) -> int | None:
    found = (variables.get(name, "") for name in RANK_NAMES)
    return next((int(text) for text in found if text.isascii() and text.isdigit() and len(text) < 8), None)


def _variables(environ: bytes) -> dict[str, str]:
    entries = environ.decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _ancestors(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 1:
            stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
            pid = int(stat.rpartition(")")[2].split()[1])
            yield pid


# -- asking ------------------------------------------------------------------------------------------------


def _tell(
    door: Answering, group: Sequence[Target], places: dict[int, str], seconds: float, say: Say
) -> set[int]:
    """Answer each target once with its window, everybody else with nothing."""
    told: set[int] = set()
    deadline = time.monotonic() + _ASK_S
    start_ms = None if len(group) == 1 else int((time.time() + AHEAD_S) * 1000)
    say("waiting for the job to ask (it does every 5 s)")
    while time.monotonic() < deadline and len(told) < len(group):
        if start_ms is not None and time.time() * 1000 > start_ms - (WARMUP_S + 2) * 1000:
            break  # too late to warm up for the common start
        asked = door.wait(0.25)
        if asked is None:
            continue
        target = _who(asked, group)
        if target is None or target.pid in told or asked.kind != "req":
            door.answer(asked)
            continue
        window = Window(places[target.pid], max(int(seconds * 1000), 1), WARMUP_S, start_ms)
        if door.answer(asked, window.text()):
            told.add(target.pid)
    return told


def _who(asked: Asked, group: Sequence[Target]) -> Target | None:
    """The target that this is from: by the kernel's word where it gives one, else by what it says of itself."""
    for target in group:
        if asked.peer == target.pid:
            return target
    if asked.peer is not None:
        return None
    return next((target for target in group if asked.pids[:1] == (target.inner,)), None)


def _why_silent(target: Target) -> str:
    if not is_alive(target.pid):
        return "it ended before it asked"
    return (
        f"it did not ask within {_ASK_S:.0f} s: it hangs before its first operator, its PyTorch is built without on-demand "
        "profiling (GPU builds have it from 2.7 on), or it is a forked worker"
    )


# -- its files ---------------------------------------------------------------------------------------------


@contextmanager
def _places(group: Sequence[Target]) -> Iterator[dict[int, str]]:
    """For each target a file name in a folder that is its user's alone, as the target sees it."""
    folders: dict[tuple[str, int], Path] = {}
    try:
        for target in group:
            key = (target.root, target.uid)
            if key not in folders:
                base = f"{target.root}/tmp" if target.root else tempfile.gettempdir()
                folders[key] = Path(tempfile.mkdtemp(prefix="wellfed-attach-", dir=base))
                if target.uid != os.getuid():
                    os.chown(folders[key], target.uid, -1)
        yield {
            target.pid: str(folders[target.root, target.uid] / "trace.json").removeprefix(target.root)
            for target in group
        }
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def _collect(
    door: Answering,
    told: Sequence[Target],
    places: dict[int, str],
    seconds: float,
    keep: Path | None,
    files: dict[int, Path],
    reasons: dict[int, str],
    say: Say,
) -> None:
    """Wait until each has written its file, and move it; ask nothing more meanwhile."""
    ahead_s = AHEAD_S if len(told) > 1 else WARMUP_S
    deadline = time.monotonic() + ahead_s + seconds + _WRITE_S + _WRITE_S_PER_S * seconds
    left = {target.pid: target for target in told}
    if left:
        say(f"recording {seconds:g} s of {len(left)} process{'es' if len(left) > 1 else ''}")
    while left and time.monotonic() < deadline:
        asked = door.wait(0.25)
        if asked is not None:
            door.answer(asked)
        for pid, target in list(left.items()):
            written = _written(target, places[pid])
            alive = is_alive(pid)
            if written is not None and _is_empty(written):
                reasons[pid] = _why_empty(target)
            elif written is not None:
                files[pid] = _take(written, target, keep)
            elif not alive:
                reasons[pid] = "it ended before the trace was written"
            else:
                continue
            del left[pid]
    for pid in left:
        reasons[pid] = "it has not written its trace in time: see its own log for why Kineto refused"


def _written(target: Target, place: str) -> Path | None:
    """The whole file: while it is written it has another name."""
    stem, suffix = place.rsplit(".", 1)
    path = Path(f"{target.root}{stem}_{target.inner}.{suffix}")
    return path if path.is_file() and not path.is_symlink() else None


def _is_empty(written: Path) -> bool:
    """Whether no event with a duration is in it: names of processes and the end of the window always are."""
    if not written.stat().st_size:
        return True
    with written.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(b'"ph": "X"') < 0


def _why_empty(target: Target) -> str:
    others = [str(one) for one in descendants(target.pid) if _has_torch(one)][:8]
    reason = "its trace is empty: it ran no operator in the window"
    return (
        reason
        if not others
        else f"{reason}. PyTorch is also in its children: wellfed attach {' '.join(others)}"
    )


def _take(written: Path, target: Target, keep: Path | None) -> Path:
    """Copied where it stays, under the number that we know it by and its rank, which the trace of a job on CPUs does not tell."""
    folder = keep if keep is not None else Path(tempfile.mkdtemp(prefix="wellfed-trace-"))
    folder.mkdir(parents=True, exist_ok=True)
    named = str(target.pid) if target.rank is None else f"rank{target.rank}_{target.pid}"
    goal = folder / f"trace_{named}.json"
    try:
        shutil.copyfile(written, goal)
    except OSError as error:
        raise WellfedError(
            f"can't keep the trace in {folder}: {error.strerror}", hint="wellfed attach PID --keep FOLDER"
        ) from error
    return goal
