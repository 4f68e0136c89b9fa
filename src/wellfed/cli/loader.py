"""`wellfed loader`: tune a DataLoader by measuring it."""

import click

from wellfed.cli.common import Output, emit_value, output_options
from wellfed.cli.progress import progress


@click.command("loader", epilog="Example: wellfed loader train.py:make_loader --step-ms 120")
@click.argument("target", metavar="MODULE:FACTORY")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="For a factory that gives a dataset.",
)
@click.option(
    "--step-ms",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MS",
    help="What the accelerator takes for a batch: the loader need be no faster.",
)
@click.option(
    "--target",
    "rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SAMPLES/S",
    help="The same as a rate.",
)
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(min=1),
    default=6.0,
    show_default=True,
    metavar="S",
    help="Seconds of measuring; imports and starts of workers come on top.",
)
@click.option(
    "--ram",
    "ram_gib",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GIB",
    help="Memory that loading may take.  [default: half of what is available]",
)
@output_options()
def command(
    target: str,
    batch_size: int | None,
    step_ms: float | None,
    rate: float | None,
    budget_s: float,
    ram_gib: float | None,
    output: Output,
) -> None:
    """Find the DataLoader arguments that are fast enough and cost least, by measuring your loader.

    FACTORY is a function without arguments, in a module or a file (path/to/train.py:make_loader), that returns a
    DataLoader, a dataset (with --batch-size), or (dataset, dict of DataLoader arguments).
    """
    if step_ms is not None and rate is not None:
        raise click.UsageError("--step-ms and --target say the same: give one")
    from wellfed.live.loader.look import Request
    from wellfed.live.loader.tune import tune
    from wellfed.report import loader as report

    request = Request(
        target=target,
        batch_size=batch_size,
        step_s=None if step_ms is None else step_ms / 1e3,
        rate=rate,
        budget_s=budget_s,
        ram=None if ram_gib is None else int(ram_gib * (1 << 30)),
    )
    with progress() as say:
        result = tune(request, say)
    emit_value(
        report.plain(result),
        output,
        text=lambda width, color: report.render(result, width=width, color=color),
    )
