"""`wellfed measure`: the real ceilings of this machine."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wellfed.cli.common import Output, emit, note, output_options
from wellfed.cli.progress import progress

if TYPE_CHECKING:
    from wellfed.model import Case

_MOST_DIMENSION = 1 << 20
_MOST_NAMED = 4
_WORTH_TELLING = 0.05


@click.command("measure", epilog="Example: wellfed measure --full --dir /data --shape 4096,14336,4096")
@click.option("--quick/--full", default=True, help="Half a minute, or everything in ten.  [default: quick]")
@click.option(
    "--only",
    multiple=True,
    metavar="ID",
    help="This alone: an id (memory-copy.all), a pattern ('h2d.*'), a group (host, storage, network, gpu, comm); repeatable.",
)
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(min=0, min_open=True),
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
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="M,N,K",
    help="Also a matrix product of your model: (M, K) by (K, N); repeatable.",
)
@click.option("--tier", type=click.Choice(["driver", "torch"]), help="GPUs by this tier alone.")
@click.option(
    "--with",
    "peers",
    multiple=True,
    metavar="HOST:PORT:TOKEN",
    help="The network to a host that serves; repeatable.",
)
@click.option("--serve", metavar="PORT", help="Be that host: listen on PORT or ADDRESS:PORT for one session.")
@click.option(
    "--read",
    "results",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measure nothing: show results of nvbandwidth, nccl-tests, fio, perftest, MLC, SuperBench, TransferBench.",
)
@click.option("--last", is_flag=True, help="Measure nothing: show what was measured on this machine before.")
@output_options("text", "json", "md", "html")
def command(
    quick: bool,
    only: tuple[str, ...],
    budget_s: float | None,
    folder: Path | None,
    shapes: tuple[str, ...],
    tier: str | None,
    peers: tuple[str, ...],
    serve: str | None,
    results: tuple[Path, ...],
    last: bool,
    output: Output,
) -> None:
    """Measure what this machine can really do: memory, processors, storage, network, GPUs, collectives.

    Each ceiling comes with its spread, the number of samples, what disturbed it, and a verdict: ok, low (worse
    than such machines usually are), implausible (better than they can be) or noisy.
    """
    from wellfed import api

    if serve is not None:
        _serve(serve, budget_s)
        return
    if last:
        _show_last(output)
        return
    if results:
        _show_results(results, output)
        return
    wanted = tuple(_shape(text) for text in shapes)
    with progress() as say:
        case = api.measure(
            budget_s=budget_s,
            only=only,
            full=not quick,
            folder=folder,
            shapes=wanted,
            peers=peers,
            tier=tier,
            progress=say,
        )
    _check_found(case)
    _tell_changes(case)
    emit(case, output, kind="measure")


def _serve(where: str, seconds: float | None) -> None:
    from wellfed.bench.network import pair

    served = pair.serve(where, say=note, seconds=pair.MOST_SECONDS if seconds is None else seconds)
    refused = f", {served.refused} refused" if served.refused else ""
    note(f"{served.connections} connections served{refused}; {served.why}")


def _check_found(case: "Case") -> None:
    from wellfed.model import WellfedError

    assert case.machine is not None
    by_reason: dict[str, list[str]] = {}
    for key, reason in case.machine.gaps.items():
        if key.startswith("ceilings["):
            by_reason.setdefault(reason, []).append(key[9:-1])
    for reason, ids in by_reason.items():
        more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
        note(f"not measured: {', '.join(ids[:_MOST_NAMED])}{more}: {reason}")
    if not case.ceilings:
        raise WellfedError("nothing could be measured", hint="wellfed measure --dir FOLDER --budget 15")


def _show_results(results: tuple[Path, ...], output: Output) -> None:
    from wellfed import api
    from wellfed.model import Case

    found = tuple(ceiling for path in results for ceiling in api.read_ceilings(path))
    emit(Case(made_by="measure", ceilings=found), output, kind="measure")


def _show_last(output: Output) -> None:
    from wellfed import api
    from wellfed.model import WellfedError

    case, times = api.measured_before()
    if not case.ceilings:
        raise WellfedError("nothing has been measured on a machine like this", hint="wellfed measure --quick")
    note(f"measured {min(times.values())} to {max(times.values())}")
    emit(case, output, kind="measure")


def _tell_changes(case: "Case") -> None:
    """What is not what it was by 5 % or more: the middle 80 % of the samples of then and now have nothing in common, and neither
    was noisy."""
    from wellfed import api

    before, times = api.measured_before(case)
    old = {ceiling.id: ceiling for ceiling in before.ceilings}
    for now in case.ceilings:
        then = old.get(now.id)
        if then is None or (then.size, then.dtype, then.method) != (now.size, now.dtype, now.method):
            continue
        change = now.median / then.median - 1 if then.median else 0.0
        apart = now.p10 > then.p90 or now.p90 < then.p10
        if apart and abs(change) >= _WORTH_TELLING and "noisy" not in (now.verdict, then.verdict):
            note(
                f"{now.id}: median {change:+.0%} against {times[now.id][:10]}, and no sample range in common"
            )


def _shape(text: str) -> tuple[int, int, int]:
    parts = text.replace("x", ",").split(",")
    numbers = [int(part) for part in parts if part.strip().isdigit()]
    if len(parts) != 3 or len(numbers) != 3 or not all(0 < n <= _MOST_DIMENSION for n in numbers):
        raise click.UsageError(
            f"--shape {text}: a matrix product is M,N,K, each 1 to {_MOST_DIMENSION:,}; for example --shape 4096,14336,4096"
        )
    return numbers[0], numbers[1], numbers[2]
