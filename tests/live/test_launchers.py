"""Which rank a process is, and which place is its own."""

import sys
from pathlib import Path

import pytest

from wellfed.live.launchers import Told, place_of_rank, told_rank
from wellfed.model.base import replace
from wellfed.model.machine import Container
from wellfed.model.placement import PlaceRequest

sys.path.insert(0, str(Path(__file__).parents[1] / "place"))
import machines


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, None),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}, (3, 8)),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "SLURM_LOCALID": "0", "SLURM_PROCID": "0"}, (1, 2)),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, (2, 4)),
        ({"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "4"}, (0, 4)),
        ({"SLURM_LOCALID": "5", "SLURM_PROCID": "13", "SLURM_STEP_TASKS_PER_NODE": "8(x2),3"}, (5, 8)),
        (
            {
                "SLURM_LOCALID": "1",
                "SLURM_PROCID": "17",
                "SLURM_STEP_TASKS_PER_NODE": "8(x2),3",
                "SLURM_NODEID": "2",
            },
            (1, 3),
        ),
        ({"SLURM_LOCALID": "0"}, None),  # a batch script without a step
        ({"LOCAL_RANK": "x"}, None),
        ({"LOCAL_RANK": "4", "LOCAL_WORLD_SIZE": "2"}, (4, None)),
    ],
)
def test_the_innermost_launcher_says_who_we_are(
    environ: dict[str, str], told: tuple[int, int] | None
) -> None:
    found = told_rank(environ)
    assert (found and (found.rank, found.ranks)) == told


def place(
    machine: machines.Machine, rank: int | None, told: Told | None = None, **more: object
) -> tuple[int, ...]:
    request = PlaceRequest(mode="exclusive", reserve=False, **more)  # type: ignore[arg-type]
    return place_of_rank(machine, request, rank=rank, told=told)[0].cpus


def test_a_rank_takes_its_place() -> None:
    told = Told(2, 4, "LOCAL_RANK")
    assert place(machines.c4140(), None, told) == place(machines.c4140(), 2)


def test_without_a_rank_the_places_of_all() -> None:
    assert len(place(machines.c4140(), None)) == 80
    found = place_of_rank(machines.c4140(), PlaceRequest(visible=("0", "1")), rank=None, told=None)[0]
    assert found.cpus == tuple(range(0, 80, 2)) and found.memory_nodes == (0,)


def test_a_gpu_that_was_dealt_is_ones_own_whatever_the_rank() -> None:
    for gpu in range(4):
        told = Told(gpu, 4, "LOCAL_RANK")
        assert place(machines.c4140(), None, told, visible=(str(gpu),)) == place(machines.c4140(), gpu)


def test_ranks_that_share_the_only_gpu_divide_it() -> None:
    parts = [place(machines.gh200(), None, Told(r, 4, "LOCAL_RANK"), visible=("0",)) for r in range(4)]
    assert len({cpu for part in parts for cpu in part}) == 72 == sum(map(len, parts))


def test_what_slurm_bound_is_not_divided_again() -> None:
    machine = machines.c4140()
    machine = replace(machine, cpu=replace(machine.cpu, allowed=tuple(range(1, 21, 2))))
    assert place(machine, None, Told(3, 4, "SLURM_LOCALID", True)) == tuple(range(1, 21, 2))
    shared = [place(machine, None, Told(r, 4, "LOCAL_RANK")) for r in (2, 3)]
    assert not set(shared[0]) & set(shared[1])


def test_a_cpuset_is_no_binding() -> None:
    machine = machines.c4140()
    allowed = tuple(range(20))
    cut = replace(machine, cpu=replace(machine.cpu, allowed=allowed), container=Container(cpuset=allowed))
    parts = [place(cut, None, Told(r, 4, "SLURM_LOCALID", True)) for r in range(4)]
    assert sum(map(len, parts)) == len({cpu for part in parts for cpu in part}) == 20


def test_a_rank_beyond_the_gpus() -> None:
    assert place(machines.machine({0: range(4)}), 1) == (2, 3)
