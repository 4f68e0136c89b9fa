"""`wellfed inspect`: the facts of a machine, and saving them for somebody else."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wellfed.cli.common import Output, emit, emit_value, host_option, note, output_options

if TYPE_CHECKING:
    from wellfed.model import Fact, Machine


@click.command("inspect", epilog="Example: wellfed inspect --record box.tar")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@host_option
@click.option(
    "--record",
    "recording",
    type=click.Path(path_type=Path),
    metavar="BOX.tar",
    help="Save what was seen, for `--host` elsewhere; .tar or .tar.gz.",
)
@output_options("text", "json", "md", "html")
def command(keys: tuple[str, ...], host: str | None, recording: Path | None, output: Output) -> None:
    """Show the facts of this machine or of a recorded one, unjudged, and what could not be seen.

    KEY shows single facts with where each was seen: a part of the machine (cpu, numa, memory, kernel, gpus,
    container, environment, software...) or a path in it (memory.thp_enabled, 'gpus[0]').
    """
    from wellfed import api
    from wellfed.host import open_host, record

    if recording is not None:
        summary = record(open_host(host), recording, redact=output.redact)
        names = "names and secrets taken out" if summary.redacted else "NOT redacted"
        note(f"recorded {summary.path}: {summary.files:,} files, {summary.commands} commands, {names}")
        if summary.refused:
            hint = "" if host or os.geteuid() == 0 else "; run as root to have them too"
            note(f"{summary.refused} files were denied{hint}")
    case = api.inspect(host)
    assert case.machine is not None
    if not keys:
        emit(case, output, kind="inspect")
        return
    from wellfed.report import facts

    chosen = _chosen(case.machine, keys)
    emit_value(chosen, output, text=lambda width, _: facts.render(chosen, width=width))


def _chosen(machine: "Machine", keys: Sequence[str]) -> "dict[str, Fact]":
    """The facts under any of the keys, in the order of the readers. Raises WellfedError for a key without."""
    from wellfed.model import WellfedError

    for key in keys:
        if not any(_under(name, key) for name in machine.facts):
            rooms = sorted({re.split(r"[.\[]", name)[0] for name in machine.facts})
            raise WellfedError(
                f"no fact `{key}`; there are {', '.join(rooms)}", hint="wellfed inspect cpu memory"
            )
    return {name: fact for name, fact in machine.facts.items() if any(_under(name, key) for key in keys)}


def _under(name: str, key: str) -> bool:
    return name == key or name.startswith((f"{key}.", f"{key}["))
