"""`wellfed measure`: the real ceilings of this machine."""

from pathlib import Path

import click

from wellfed.cli.common import Output, emit, note, output_options
from wellfed.cli.progress import progress


@click.command("measure", epilog="Example: wellfed measure --dir /data")
@click.option(
    "--quick", is_flag=True, help="Seconds, without a GPU; the only tier so far, so also the default."
)
@click.option(
    "--only",
    multiple=True,
    metavar="ID",
    help="Measure this ceiling alone (memory-copy.all, os-noise...); repeatable.",
)
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(min=0, min_open=True),
    default=15.0,
    show_default=True,
    metavar="S",
    help="Seconds to spend on all of it.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where storage is measured: in a temporary file of at most 1 GiB.  [default: /var/tmp]",
)
@output_options("text", "json", "md", "html")
def command(quick: bool, only: tuple[str, ...], budget_s: float, folder: Path | None, output: Output) -> None:
    """Measure memory bandwidth and latency, storage, shared memory, and what the system takes away.

    Each ceiling comes with its spread, the number of samples, what disturbed it, and a verdict: ok, low (worse
    than such machines usually are), implausible (better than they can be) or noisy.
    """
    from wellfed import api
    from wellfed.model import WellfedError

    with progress() as say:
        case = api.measure(budget_s=budget_s, only=only, folder=folder, progress=say)
    assert case.machine is not None
    for key, reason in case.machine.gaps.items():
        if key.startswith("ceilings["):
            note(f"not measured: {key[9:-1]}: {reason}")
    if not case.ceilings:
        raise WellfedError("nothing could be measured", hint="wellfed measure --dir FOLDER --budget 15")
    emit(case, output, kind="measure")
