"""`wellfed trace`: why the GPUs were idle, and what each cure is worth."""

import re
from decimal import Decimal

import click

from wellfed.cli.common import Output, emit, fail_on_option, keep_inputs, output_options
from wellfed.cli.events import exporting


def _show_recipe(context: click.Context, _: click.Parameter, how: str | None) -> None:
    """Prints before the other arguments are asked for, as `--help` does."""
    if how is None or context.resilient_parsing:
        return
    from wellfed.report.recipes import recipe

    click.echo(recipe(how), nl=False)
    context.exit()


@click.command("trace", epilog="Example: wellfed trace trace.json.gz --step-ms 46.4 -o report.html")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--rank", "ranks", type=int, multiple=True, metavar="N", help="Only this rank; repeatable.")
@click.option("--steps", metavar="A:B", help="Only the steps A to B, counted from 0 (in the window).")
@click.option(
    "--window",
    metavar="START:END",
    help="Only this part, since the first event of each file: 2s:3.5s, 500ms:, :800ms.",
)
@click.option(
    "--step-ms",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MS",
    help="Time of a step without the profiler, if known.",
)
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="USD per GPU and hour, for the cost of a finding.",
)
@click.option("--network", metavar="NAME", help="Link between nodes, to judge its speed: ib-ndr, eth-400...")
@click.option(
    "--ceilings",
    metavar="FILE",
    help="Judge collectives beside these measured curves: a case of `measure`, a result of nccl-tests.",
)
@click.option("--ray", metavar="ADDRESS", help="Read the files on this Ray cluster, one task each.")
@click.option(
    "--how",
    type=click.Choice(["torch", "nsys", "jax", "memory", "hang"]),
    is_eager=True,
    expose_value=False,
    callback=_show_recipe,
    help="Print the lines that record a good trace, and exit.",
)
@fail_on_option("never")
@output_options("text", "json", "md", "html", perfetto=True)
def command(
    paths: tuple[str, ...],
    ranks: tuple[int, ...],
    steps: str | None,
    window: str | None,
    step_ms: float | None,
    price: float | None,
    network: str | None,
    ceilings: str | None,
    ray: str | None,
    fail_on: str,
    output: Output,
) -> None:
    """Read recordings of GPU work: where each GPU's time went, to the nanosecond, why it was idle, and what curing each
    cause is worth in the step nobody recorded. Of several ranks: who holds the others up.

    PATH is a file, a folder or a glob. Read are traces of PyTorch's profiler (.json .gz .zst), of Nsight Systems
    (.sqlite, from `nsys export`), of rocprofv3 (JSON) and of JAX (.trace.json.gz); PyTorch's memory
    snapshots (.pickle) and flight-recorder dumps (nccl_trace_rank_N); Parquet files of a pipeline's operation
    records; a saved .case is shown again. --how shows how to record them."""
    from wellfed import api
    from wellfed.ingest.workers import ray_executor

    if ray and any(
        path.name.lower().endswith((".perfetto.json", ".perfetto.json.gz")) for path in output.files
    ):
        raise click.UsageError("--ray and an export for Perfetto don't go together")
    keep_inputs(output, (*paths, ceilings) if ceilings else paths)
    if len(paths) == 1 and paths[0].lower().endswith(".case"):
        if ranks or steps or window or step_ms or price or network or ceilings or ray:
            raise click.UsageError(f"{paths[0]} was judged already: it is shown as it is, without options")
        emit(api.load(paths[0]), output, kind="trace", fail_on=fail_on)
        return
    with exporting(output) as export:
        case = api.trace(
            list(paths),
            ranks=ranks or None,
            steps=_range(steps),
            window=_window(window),
            step_ms=step_ms,
            price=price,
            network=network,
            ceilings=ceilings or (),
            executor=ray_executor(ray) if ray else None,
            each=export.each if export else None,
        )
        if export:
            export.finish(case)
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


_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(s|ms|us)?")
_NS = {"s": 10**9, "ms": 10**6, "us": 10**3}


def _window(text: str | None) -> tuple[int, int | None] | None:
    """Start and end in ns, exactly; an end left out is None. A time without unit has that of the other."""
    if text is None:
        return None
    first, colon, last = (part.strip() for part in text.partition(":"))
    found = [_TIME.fullmatch(part or "0") for part in (first, last)]
    units = [match[2] for match in found if match is not None and match[2]]
    if not colon or not (first or last) or None in found or not units:
        raise click.UsageError(
            f"--window takes START:END with units, such as 2s:3.5s or 500ms:, not {text!r}"
        )
    start, end = (int(Decimal(match[1]) * _NS[match[2] or units[0]]) for match in found if match is not None)
    if last and end <= start:
        raise click.UsageError(f"--window {text}: END must be after START")
    return start, end if last else None
