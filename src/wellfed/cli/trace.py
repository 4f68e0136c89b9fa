"""`wellfed trace`: why the GPUs were idle, and what each cure is worth."""

import click

from wellfed.cli.common import Output, emit, fail_on_option, output_options


@click.command("trace", epilog="Example: wellfed trace trace.json.gz --step-ms 46.4 -o report.html")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--rank", "ranks", type=int, multiple=True, metavar="N", help="Only this rank; repeatable.")
@click.option("--steps", metavar="A:B", help="Only the steps A to B of the trace, counted from 0.")
@click.option(
    "--step-ms",
    type=click.FloatRange(min=0, min_open=True),
    help="Time of a step without the profiler, if known.",
)
@click.option(
    "--price", type=click.FloatRange(min=0), help="USD per GPU and hour, for the cost of a finding."
)
@fail_on_option("never")
@output_options("text", "json", "md", "html")
def command(
    paths: tuple[str, ...],
    ranks: tuple[int, ...],
    steps: str | None,
    step_ms: float | None,
    price: float | None,
    fail_on: str,
    output: Output,
) -> None:
    """Read profiler traces (PyTorch's, .json .gz .zst; files, folders or globs): where each GPU's time went,
    to the nanosecond, why it was idle, and what curing each cause is worth in the step nobody recorded."""
    from wellfed import api

    case = api.trace(list(paths), ranks=ranks or None, steps=_range(steps), step_ms=step_ms, price=price)
    emit(case, output, kind="trace", fail_on=fail_on)


def _range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, _, last = text.partition(":")
    try:
        low, high = int(first or 0), int(last or first) if last or ":" not in text else 1 << 30
    except ValueError:
        raise click.UsageError(f"--steps takes A:B, not {text!r}") from None
    if low < 0 or high < low:
        raise click.UsageError(f"--steps {text}: A must be 0 or more, and B not below A")
    return low, high
