"""`wellfed attach`: a trace of a running PyTorch job, without restarting it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wellfed.cli.common import Output, emit, fail_on_option, note, output_options
from wellfed.cli.progress import progress

if TYPE_CHECKING:
    from wellfed.live.attach import Target
    from wellfed.live.stacks import Stacks


@click.command("attach", epilog="Example: wellfed attach 4711 --seconds 2 --keep traces")
@click.argument("pids", nargs=-1, required=True, type=click.IntRange(min=1), metavar="PID...")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.01, max=600),
    default=1.0,
    show_default=True,
    metavar="S",
    help="How long to record: some steps are enough, and a second of a busy job is 50 MB.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Keep the traces there; else they are gone when they have been read.",
)
@click.option("--stacks", is_flag=True, help="Also Python's stacks at 20 Hz, by py-spy.")
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="USD per GPU and hour, for the cost of a finding.",
)
@fail_on_option("never")
@output_options("text", "json", "md", "html")
def command(
    pids: tuple[int, ...],
    seconds: float,
    keep: Path | None,
    stacks: bool,
    price: float | None,
    fail_on: str,
    output: Output,
) -> None:
    """Ask running PyTorch jobs for a trace and say what starves them, as `trace` does. PID is a process, or a launcher: then all
    its processes that use PyTorch are recorded in step.

    The job must have been started with KINETO_USE_DAEMON=1 (`wellfed run` sets it); nothing in it is changed, and it
    pays for the profiler only while it records."""
    from wellfed import api

    with _kept(keep) as folder:
        with progress() as say:
            targets = _find(pids)
            seen = _stacks(targets[0].pid, seconds, say) if stacks else None
            files = _ask(targets, pids, seconds, folder, say)
            say("reading the trace")
            case = api.trace(files, price=price)
        for line in _stack_lines(seen):
            note(line)
        emit(case, output, kind="trace", fail_on=fail_on)


@contextmanager
def _kept(keep: Path | None) -> Iterator[Path]:
    import tempfile

    if keep is not None:
        yield keep
        return
    folder = Path(tempfile.mkdtemp(prefix="wellfed-trace-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find(pids: tuple[int, ...]) -> "list[Target]":
    from wellfed.live.attach import find_targets
    from wellfed.model import WellfedError

    found: dict[int, Target] = {}
    for pid in dict.fromkeys(pids):
        targets, reason = find_targets(pid)
        if reason is not None:
            hint = "wellfed run -- COMMAND" if "KINETO_USE_DAEMON" in reason else "pgrep -a python"
            raise WellfedError(f"process {pid} can't be asked: {reason}", hint=hint)
        found |= {target.pid: target for target in targets}
    return list(found.values())


def _ask(
    targets: "list[Target]", pids: tuple[int, ...], seconds: float, folder: Path, say: Callable[[str], None]
) -> list[Path]:
    from wellfed.live.attach import ask
    from wellfed.model import WellfedError

    traced = ask(targets, seconds, folder, say, explicit=pids)
    for pid, reason in traced.reasons.items():
        note(f"process {pid}: no trace: {reason}")
    if not traced.files:
        reason = next(iter(traced.reasons.values()), "none of them asked")
        raise WellfedError(f"no trace was written: {reason}", hint="wellfed trace --how")
    return list(traced.files.values())


def _stacks(pid: int, seconds: float, say: Callable[[str], None]) -> "Stacks":
    from wellfed.live.stacks import sample_stacks

    say("sampling Python's stacks")
    return sample_stacks(pid, max(seconds, 2.0))


def _stack_lines(seen: "Stacks | None") -> Iterator[str]:
    if seen is None:
        return
    yield f"Python's stacks, {seen.samples} samples at 20 Hz:"
    for line, share in list(seen.lines.items())[:5]:
        yield f"  {share:4.0%} {line}"
