"""Becoming a user's command, in its place.

The plan is applied to this process, which then becomes the command: no process stands between the launcher and it, so
signals and the exit code are its own. A watcher, where one is asked for, is a grandchild that looks at the command from
beside it."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from wellfed.live.kernel import set_affinity, set_memory_policy
from wellfed.live.watch import watch
from wellfed.model.errors import WellfedError
from wellfed.model.placement import RankPlace, cpu_ranges

NOT_FOUND = 127
Say = Callable[[str], None]


class Watching(NamedTuple):
    """`seconds` to keep threads in their place (0: not at all), and after how many to report (None: never)."""

    seconds: float = 0.0
    verify_s: float | None = None


def find_command(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """The path of the program. Raises WellfedError with exit code 127, as a shell has it, when there is none."""
    found = shutil.which(command[0], path=environ.get("PATH", os.defpath))
    if found is None:
        raise WellfedError(f"no command `{command[0]}`", exit_code=NOT_FOUND)
    return found


def apply_place(place: RankPlace, say: Say) -> None:
    """Affinity and memory policy of this process. What the kernel refuses costs a line, not the command."""
    here = os.sched_getaffinity(0)
    cpus = [cpu for cpu in place.cpus if cpu in here] or list(
        place.cpus
    )  # only ever narrower than what we were given
    try:
        set_affinity(cpus)
    except OSError as error:
        say(f"CPUs {cpu_ranges(place.cpus)} were refused ({error.strerror}): affinity is left as it was")
    if place.memory_policy == "none":
        return
    try:
        set_memory_policy(place.memory_policy, place.memory_nodes)
    except OSError as error:
        nodes = cpu_ranges(place.memory_nodes)
        say(
            f"memory policy {place.memory_policy} of node {nodes} was refused ({error.strerror}): CPU affinity only"
        )


def become(
    command: Sequence[str],
    place: RankPlace,
    environ: Mapping[str, str],
    watching: Watching,
    say: Say,
) -> NoReturn:
    """Apply the place and become the command. Variables that are set already stay as they are."""
    program = find_command(command, environ)
    apply_place(place, say)
    if watching.seconds > 0 or watching.verify_s is not None:
        _start_watcher(os.getpid(), place, watching, say)
    try:
        os.execve(program, list(command), {**place.environment, **environ})
    except OSError as error:
        raise WellfedError(f"can't run `{command[0]}`: {error.strerror}", exit_code=126) from error


def _start_watcher(pid: int, place: RankPlace, watching: Watching, say: Say) -> None:
    """Forked twice: the command has no child that it did not start itself."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            watch(pid, place, seconds=watching.seconds, verify_s=watching.verify_s, say=say)
    finally:
        os._exit(0)
