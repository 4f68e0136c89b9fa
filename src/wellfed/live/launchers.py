"""Which rank this process is, by the variables that launchers set, and which of the planned places is its own."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from wellfed.model.base import replace
from wellfed.model.machine import Machine
from wellfed.model.placement import Placement, PlaceRequest, RankPlace
from wellfed.place import plan_placement


class Told(NamedTuple):
    """`rank` among the ranks of this machine, `ranks` how many there are (None when not told), `by` the variable, and whether
    the launcher gives each rank CPUs of its own."""

    rank: int
    ranks: int | None
    by: str
    binds: bool = False


LAUNCHERS: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("LOCAL_RANK", ("LOCAL_WORLD_SIZE",), False),  # torchrun, accelerate, deepspeed
    ("OMPI_COMM_WORLD_LOCAL_RANK", ("OMPI_COMM_WORLD_LOCAL_SIZE",), True),
    ("MPI_LOCALRANKID", ("MPI_LOCALNRANKS",), True),  # Intel MPI, MPICH
    ("MV2_COMM_WORLD_LOCAL_RANK", ("MV2_COMM_WORLD_LOCAL_SIZE",), True),
    ("JSM_NAMESPACE_LOCAL_RANK", ("JSM_NAMESPACE_LOCAL_SIZE",), True),
    ("PALS_LOCAL_RANKID", ("PALS_LOCAL_SIZE",), True),
    ("PMI_LOCAL_RANK", ("PMI_LOCAL_SIZE",), True),
    ("FLUX_TASK_LOCAL_ID", (), True),
    ("SLURM_LOCALID", ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"), True),
)
"""Rank, number of ranks, and whether this launcher binds. The innermost comes first: torchrun runs inside srun."""


def told_rank(environ: Mapping[str, str]) -> Told | None:
    """What the launcher says; None without one."""
    for name, sizes, binds in LAUNCHERS:
        rank = _number(environ.get(name))
        if rank is None:
            continue
        if name == "SLURM_LOCALID" and "SLURM_PROCID" not in environ:
            continue
        number = next((found for size in sizes if (found := _number(environ.get(size))) is not None), None)
        if name == "SLURM_LOCALID":
            number = _slurm_tasks(environ, sizes)
        return Told(rank, number if number is None or number > rank else None, name, binds)
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,6}", text) else None


def _slurm_tasks(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """Tasks of this node out of `4(x2),3`, which counts nodes in their order."""
    node = _number(environ.get("SLURM_NODEID")) or 0
    for name in names:
        counts: list[int] = []
        for count, times in re.findall(r"(\d{1,6})(?:\(x(\d{1,5})\))?", environ.get(name, "")):
            counts += [int(count)] * int(times or 1)
        if counts:
            return counts[node] if node < len(counts) else counts[-1]
    return None


def place_of_rank(
    machine: Machine, request: PlaceRequest, *, rank: int | None, told: Told | None
) -> tuple[RankPlace, tuple[str, ...]]:
    """The place of this process, and warnings. `rank` is what the user said, `told` what the launcher did; with neither it is
    the place of all ranks together, since the process starts them itself.

    A rank that sees one GPU of several has been dealt it by its launcher: that is its own, whatever its number. Where a
    launcher that binds has narrowed the affinity, those CPUs are this rank's alone and are not divided again."""
    mine = rank if rank is not None else told.rank if told else None
    number = request.ranks or (told.ranks if told else None)
    if mine is None:
        placed = plan_placement(machine, request)
        return union_place(placed), placed.warnings
    alone = told is not None and told.binds and is_narrowed(machine)
    dealt = len(request.visible or ()) == 1 and (len(machine.gpus) > 1 or not number)
    if alone and not dealt:
        return _alone(machine, request, mine, number)
    placed = plan_placement(machine, replace(request, ranks=1 if dealt else number, alone=alone))
    if dealt:
        return replace(placed.ranks[0], rank=mine), placed.warnings
    if mine >= len(placed.ranks):
        placed = plan_placement(machine, replace(request, ranks=mine + 1))
    return placed.ranks[mine], placed.warnings


def _alone(
    machine: Machine, request: PlaceRequest, mine: int, number: int | None
) -> tuple[RankPlace, tuple[str, ...]]:
    """The place of a rank that sees all GPUs and has CPUs of its own."""
    whole = plan_placement(machine, replace(request, mode="node", ranks=max(number or 0, mine + 1)))
    gpu = whole.ranks[mine].gpu
    visible = None if gpu is None else (str(gpu),)
    placed = plan_placement(machine, replace(request, ranks=1, visible=visible, alone=True))
    return replace(placed.ranks[0], rank=mine), placed.warnings


def is_narrowed(machine: Machine) -> bool:
    """Whether the affinity is less than the cpuset (or the machine) would allow."""
    allowed = machine.cpu.allowed
    room = machine.container.cpuset or [t.id for t in machine.cpu.threads or () if t.online]
    return allowed is not None and len(set(allowed)) < len(set(room))


def union_place(placement: Placement) -> RankPlace:
    """One place for a process that starts all ranks itself: every CPU of theirs, memory round their nodes only where one
    node serves all."""
    ranks = placement.ranks
    if len(ranks) == 1:
        return ranks[0]
    cpus = tuple(sorted({cpu for rank in ranks for cpu in (*rank.cpus, *rank.other_cpus)}))
    memory = {(rank.memory_policy, rank.memory_nodes) for rank in ranks}
    policy, nodes = memory.pop() if len(memory) == 1 else ("none", ())
    shared = dict(set.intersection(*(set(rank.environment.items()) for rank in ranks)))
    return replace(
        ranks[0],
        gpu=None,
        uuid=None,
        address=None,
        cpus=cpus,
        other_cpus=(),
        nodes=tuple(sorted({node for rank in ranks for node in rank.nodes})),
        memory_policy=policy,
        memory_nodes=nodes,
        nics=(),
        environment=shared,
        reasons={"cpus": f"the places of all {len(ranks)} ranks, which this process starts itself"},
    )
