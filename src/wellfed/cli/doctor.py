"""`wellfed doctor`: look, read the traces, measure, judge, and write the report and the case."""

import os
from pathlib import Path

import click

from wellfed.cli.common import Output, emit, fail_on_option, host_option, keep_inputs, note, output_options
from wellfed.cli.config import ignores, intent_option, read_config, tell_unused
from wellfed.cli.progress import progress

REPORT, CASE = Path("report.html"), Path("wellfed.case")
MARK_BYTES = 4096
"""Our title stands this near the start of a page that we wrote."""


@click.command("doctor", epilog="Example: wellfed doctor --trace trace.json.gz")
@click.option("--demo", is_flag=True, help="Use the shipped sample: a recorded host and a small real trace.")
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A trace of your work; repeat for each rank.",
)
@host_option
@click.option("--no-measure", is_flag=True, help="Skip the 15 s of measuring.")
@intent_option
@click.option("--price", type=click.FloatRange(min=0), metavar="USD", help="What one GPU costs an hour.")
@click.option(
    "--step-ms",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MS",
    help="Time of a step without the profiler, if you know it.",
)
@click.option("--interactive", is_flag=True, help="Pages can be hovered and zoomed (about 1 MB more).")
@click.option("--no-report", is_flag=True, help="Do not write report.html and wellfed.case.")
@fail_on_option("never")
@output_options("text", "json", "md", "html")
def command(
    demo: bool,
    traces: tuple[Path, ...],
    host: str | None,
    no_measure: bool,
    intent: str,
    price: float | None,
    step_ms: float | None,
    interactive: bool,
    no_report: bool,
    fail_on: str,
    output: Output,
) -> None:
    """What limits this work, where the time goes, what each cure is worth, and what could not be judged.

    Without flags: this machine, with 15 s of measuring. Writes report.html and wellfed.case into the working
    folder, unless --no-report, or another FILE is named, or stdout is not text.
    """
    from wellfed import api

    keep_inputs(output, [*traces, *([host] if host else [])])
    ignore = ignores()
    with progress() as say:
        case = api.doctor(
            host,
            traces=traces,
            demo=demo,
            budget_s=0.0 if no_measure else api.QUICK_S,
            intent=intent,
            price=read_config().price if price is None else price,
            step_ms=step_ms,
            ignore=ignore,
            progress=say,
        )
    tell_unused(case, ignore)
    if output.format == "text" and not no_report:
        output = with_report(output)
    emit(case, output._replace(interactive=interactive), kind="doctor", fail_on=fail_on)


def with_report(output: Output) -> Output:
    """`output` with the report and the case added, as far as the user did not name their own. A file that
    we did not write is left alone: the next free name is taken."""
    if not os.access(".", os.W_OK):
        note("no report written: the working folder is not writable; name one with -o FILE.html")
        return output
    if not any(path.suffix.lower() == ".html" for path in output.files):
        output = output._replace(files=(*output.files, _free(REPORT)))
    return output if output.save else output._replace(save=_free(CASE))


def _free(path: Path) -> Path:
    number = 1
    while path.exists() and not _is_ours(path):
        number += 1
        path = path.with_name(f"{path.stem.split('-')[0]}-{number}{path.suffix}")
    return path


def _is_ours(path: Path) -> bool:
    """Whether wellfed wrote a file: a page with our title, or a case that can be read."""
    if path.suffix == CASE.suffix:
        from wellfed import api
        from wellfed.model import WellfedError

        try:
            return api.load(path).made_by != ""
        except WellfedError:
            return False
    try:
        with path.open("rb") as file:
            return b"wellfed</title>" in file.read(MARK_BYTES)
    except OSError:
        return False
