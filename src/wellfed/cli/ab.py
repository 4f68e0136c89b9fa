"""`wellfed ab`: do two commands differ, and by how much."""

import click

from wellfed.cli.common import Output, emit_value, output_options
from wellfed.cli.progress import progress


@click.command("ab", epilog="Example: wellfed ab 'python train.py' 'python train.py --compile' --metric step")
@click.argument("a", metavar="'CMD A'")
@click.argument("b", metavar="'CMD B'")
@click.option(
    "--metric",
    default="wall",
    show_default=True,
    metavar="METRIC",
    help="wall; step (by `wellfed run`); regex:PATTERN with one group, or json:PATH, of the output.",
)
@click.option("--higher-is-better", is_flag=True, help="The metric is a rate.")
@click.option(
    "--runs",
    type=click.IntRange(min=2, max=10_000),
    metavar="N",
    default=120,
    show_default=True,
    help="At most so many of both together.",
)
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Stop after so many seconds.",
)
@click.option(
    "--least",
    type=click.FloatRange(min=0.01, max=100),
    default=5.0,
    show_default=True,
    metavar="PCT",
    help="The difference that matters: `no difference` rules it out.",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=0, max=100),
    metavar="N",
    default=1,
    show_default=True,
    help="Runs of each that do not count.",
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), metavar="S", help="For one run."
)
@click.option("--prepare", metavar="CMD", help="Run before each run, not timed.")
@click.option("--shell", is_flag=True, help="Commands go through sh.")
@click.option("--anyway", is_flag=True, help="Also on a machine that is too noisy to compare on.")
@output_options()
def command(
    a: str,
    b: str,
    metric: str,
    higher_is_better: bool,
    runs: int,
    budget_s: float | None,
    least: float,
    warmup: int,
    timeout_s: float | None,
    prepare: str | None,
    shell: bool,
    anyway: bool,
    output: Output,
) -> None:
    """Run two commands in turn (A B, B A, ...) and say whether B differs: by how much, within which interval, or that a
    difference that matters is ruled out.

    It stops as soon as that is decided. The interval holds the true ratio in 99 of 100 comparisons, all looks on the way
    counted."""
    from wellfed import api
    from wellfed.report import ab as report

    with progress() as say:
        result = api.ab(
            a, b, metric=metric, higher_is_better=higher_is_better, runs=runs, budget_s=budget_s, least=least / 100,
            warmup=warmup, timeout_s=timeout_s, prepare=prepare, shell=shell, anyway=anyway, progress=say,
        )  # fmt: skip
    emit_value({"schema": 1, "ab": result}, output, text=lambda width, colour: report.render(result))
