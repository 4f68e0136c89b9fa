"""`wellfed run`: a command of the user's, watched from its start to its end."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wellfed.cli.common import Output, emit, note, output_options, width

if TYPE_CHECKING:
    from wellfed.live.run.command import Live


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: wellfed run --trace-slow -o report.html -- torchrun --nproc-per-node 8 train.py",
)
@click.argument("words", nargs=-1, metavar="-- CMD [ARGS]...", type=click.UNPROCESSED)
@click.option(
    "--trace-step",
    type=click.IntRange(min=1),
    metavar="K",
    help="Also trace three to five steps from step K on.",
)
@click.option(
    "--trace-slow", is_flag=True, help="Also trace after the first step that takes 1.5 times the usual."
)
@click.option(
    "--trace-max-mb", type=click.FloatRange(min=0, min_open=True), default=64.0, show_default=True, metavar="MB",
    help="No larger trace; its size is estimated before.",
)  # fmt: skip
@click.option("--step-pattern", metavar="REGEX", help="A line of the output that has this ends a step.")
@click.option("--step-fn", metavar="MODULE:FUNCTION", help="Each call of this function is a step.")
@click.option("--pin", is_flag=True, help="In its right place, as `pin exec` would put it.")
@click.option("--watch", is_flag=True, help="A panel with a line for each rank, instead of one line.")
@click.option("--quiet", is_flag=True, help="Nothing while it runs.")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), metavar="FOLDER",
    help="Keep what was recorded there; ranks started apart share it.",
)  # fmt: skip
@click.option(
    "--read",
    "old",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Run nothing: the report of what is in FOLDER.",
)
@output_options("text", "json", "md", "html")
def command(
    words: tuple[str, ...],
    trace_step: int | None,
    trace_slow: bool,
    trace_max_mb: float,
    step_pattern: str | None,
    step_fn: str | None,
    pin: bool,
    watch: bool,
    quiet: bool,
    folder: Path | None,
    old: Path | None,
    output: Output,
) -> None:
    """Run CMD and watch it: steps, waits for the loader, garbage collection, waits for the GPU with their line, GPU counters, CPU
    by thread, and how it ended. Its code is not changed, its output and exit code are its own.

    What was seen is on disk at every moment: after kill -9 `wellfed run --read FOLDER` still tells it."""
    from wellfed import api
    from wellfed.model import WellfedError

    if (old is None) == (not words):
        raise WellfedError("a command to run, or --read FOLDER", hint="wellfed run -- python train.py")
    if old is not None:
        emit(api.read_run(old), output, kind="run")
        return
    show = None if quiet or not sys.stderr.isatty() else _Shown(panel=watch)
    ended = api.run(
        words, folder=folder, trace_step=trace_step, trace_slow=trace_slow, trace_max_mb=trace_max_mb, step_pattern=step_pattern,
        step_fn=step_fn, pin=pin, tell=show, keep_stdout=output.format != "text", say=None if quiet else note,
    )  # fmt: skip
    if show is not None:
        show.clear()
    traces = sorted(ended.folder.glob("trace-*.json.gz"))
    if folder is not None or traces:
        note(f"wellfed run: {'traces' if traces else 'rings'} are in {ended.folder}")
    try:
        emit(ended.case, output, kind="run", to_stderr=True)
    finally:
        if folder is None and not traces:
            shutil.rmtree(ended.folder, ignore_errors=True)
    click.get_current_context().exit(ended.code)


class _Shown:
    """Lines on stderr that are written over each second, and gone at the end."""

    def __init__(self, *, panel: bool) -> None:
        from wellfed.live.run.status import Status

        self._status, self._panel, self._height = Status(), panel, 0

    def __call__(self, live: "Live") -> None:
        lines = self._status.lines(live)
        self.clear()
        shown = [line[: width() - 1] for line in (lines if self._panel else lines[:1])]
        click.echo("\n".join(shown), err=True, nl=False)
        self._height = len(shown)

    def clear(self) -> None:
        if self._height:
            click.echo("\r\x1b[2K" + "\x1b[1A\x1b[2K" * (self._height - 1), err=True, nl=False)
        self._height = 0
