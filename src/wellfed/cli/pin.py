"""`wellfed pin plan` and `wellfed pin exec`: where the ranks of a job go, and going there."""

import click

from wellfed.cli.common import Output, emit_value, host_option, note, output_options

_MODE = click.option(
    "--mode",
    default="node",
    show_default=True,
    metavar="MODE",
    help="node, exclusive, l3, socket, spread or split; see below.",
)
_MEMORY = click.option(
    "--memory",
    metavar="POLICY",
    help="preferred, bind, interleave or none; preferred unless the mode is spread.",
)
_WORKERS = click.option(
    "--workers", type=int, default=0, metavar="N", help="Loader processes of each rank, for OMP_NUM_THREADS."
)


@click.group("pin", epilog="Example: wellfed pin plan --mode exclusive")
def command() -> None:
    """Put processes, their memory and NICs in the right place.

    `plan` shows where each rank of a job would go, and why. `exec` puts this process there and becomes the
    command. Nothing else is changed, and nothing is kept.
    """


@command.command(
    "plan",
    short_help="Where each rank would go, and why.",
    epilog="Example: wellfed pin plan --host box.tar --mode exclusive --ranks 8",
)
@host_option
@_MODE
@click.option(
    "--ranks", type=int, metavar="N", help="Processes on this machine; one a visible GPU if not given."
)
@click.option(
    "--gpus", metavar="LIST", help="What they see, as CUDA_VISIBLE_DEVICES has it: indexes, UUIDs, addresses."
)
@click.option(
    "--cpus", metavar="LIST", help="CPUs to use (0-87,96) in place of the affinity and cpuset seen."
)
@_WORKERS
@_MEMORY
@output_options("text", "json")
def plan(
    host: str | None,
    mode: str,
    ranks: int | None,
    gpus: str | None,
    cpus: str | None,
    workers: int,
    memory: str | None,
    output: Output,
) -> None:
    """Show rank, GPU, node, cores, memory policy and NICs, the reasons, and the same for other launchers.

    \b
    node       all CPUs near the GPU, shared by the ranks of one node
    exclusive  cores of its own, an even share among all GPUs of the node
    l3         whole L3 groups of its own
    socket     all CPUs of the GPU's socket
    spread     every allowed CPU, memory interleaved
    split      cores of its own for launching threads, the rest for loaders
    """
    from wellfed import api
    from wellfed.report import placement as report

    placed = api.pin_plan(
        host,
        mode=mode,
        ranks=ranks,
        gpus=None if gpus is None else [part for part in gpus.split(",") if part.strip()],
        cpus=None if cpus is None else _cpus(cpus),
        workers=workers,
        memory=memory,
    )
    emit_value(
        report.plain(placed),
        output,
        text=lambda width, color: report.render(placed, width=width, color=color),
    )


def _cpus(text: str) -> list[int]:
    """The CPUs of `0-3,8`. Raises WellfedError for anything else."""
    from wellfed.host.parse import cpu_list
    from wellfed.model import WellfedError

    try:
        return list(cpu_list(text))
    except ValueError as error:
        raise WellfedError(f"`{text}` is no list of CPUs", hint="--cpus 0-87,96") from error


@command.command(
    "exec",
    short_help="Put this process in its place, and become CMD.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: torchrun --nproc-per-node 8 --no-python wellfed pin exec --mode exclusive -- python train.py",
)
@click.argument("words", nargs=-1, required=True, metavar="-- CMD [ARGS]...", type=click.UNPROCESSED)
@_MODE
@click.option("--rank", type=int, metavar="N", help="Rank on this machine; the launcher's if not given.")
@click.option("--ranks", type=int, metavar="N", help="Ranks on this machine; the launcher's if not given.")
@_WORKERS
@_MEMORY
@click.option("--watch", is_flag=True, help="For 60 s, put threads back that left their place.")
@click.option(
    "--verify", type=float, metavar="SECONDS", help="Then say which threads and pages are in their place."
)
def execute(
    words: tuple[str, ...],
    mode: str,
    rank: int | None,
    ranks: int | None,
    workers: int,
    memory: str | None,
    watch: bool,
    verify: float | None,
) -> None:
    """Put this process in its rank's place, and become CMD: no process is left in between.

    The rank is what torchrun, Slurm, Open MPI, Intel MPI, MPICH, Cray or Flux say; without a launcher CMD gets the
    places of all ranks together. CPUs are only ever taken away from what the launcher gave. Variables that are
    set stay as they are.
    """
    from wellfed import api
    from wellfed.model import WellfedError

    if rank is not None and rank < 0:
        raise WellfedError(f"{rank} is no rank", hint="wellfed pin exec --rank 0 -- CMD")
    api.pin_exec(
        words,
        rank=rank,
        ranks=ranks,
        mode=mode,
        memory=memory,
        workers=workers,
        watch_s=WATCH_S if watch else 0.0,
        verify_s=verify,
        say=lambda text: note(f"wellfed pin: {text}"),
    )


WATCH_S = 60.0
