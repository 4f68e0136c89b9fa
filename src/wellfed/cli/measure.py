"""`wellfed measure`: the real ceilings of this machine."""

from pathlib import Path

import click

from wellfed.cli.common import Output, emit, note, output_options
from wellfed.cli.progress import progress


@click.command("measure", epilog="Example: wellfed measure --quick --dir /data")
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
    from wellfed import __version__
    from wellfed.bench import run_benchmarks
    from wellfed.host import look, open_host
    from wellfed.model import Case, WellfedError
    from wellfed.model.base import replace

    with progress() as say:
        say("looking at the machine")
        machine = look(open_host(None))
        measured = run_benchmarks(machine, budget_s=budget_s, only=only, folder=folder, progress=say)
    for id, reason in measured.skipped.items():
        note(f"not measured: {id}: {reason}")
    if not measured.ceilings:
        raise WellfedError("nothing could be measured", hint="wellfed measure --dir FOLDER --budget 15")
    gaps = {f"ceilings[{id}]": reason for id, reason in measured.skipped.items()}
    case = Case(
        made_by=f"measure {__version__}",
        machine=replace(machine, gaps={**machine.gaps, **gaps}),
        ceilings=measured.ceilings,
    )
    emit(case, output, kind="measure")
