"""Where ranks go, on machines whose right answer is known."""

import os
from pathlib import Path

import machines
import pytest

from wellfed.model.base import replace
from wellfed.model.errors import WellfedError
from wellfed.model.machine import Container, Cpu
from wellfed.model.placement import Placement, PlaceRequest, cpu_ranges
from wellfed.place import plan_placement


def plan(name: str, mode: str, **more: object) -> Placement:
    return plan_placement(machines.SHAPES[name](), PlaceRequest(mode=mode, **more))  # type: ignore[arg-type]


def cpus(placed: Placement) -> list[str]:
    return [cpu_ranges(rank.cpus) for rank in placed.ranks]


def sizes(placed: Placement) -> list[int]:
    return [len(rank.cpus) for rank in placed.ranks]


def test_sockets_of_a_machine_with_gpu_memory_nodes() -> None:
    placed = plan("power9", "socket")
    assert cpus(placed) == ["0-87"] * 3 + ["88-175"] * 3
    assert [rank.memory_nodes for rank in placed.ranks] == [(0,)] * 3 + [(8,)] * 3
    assert {rank.memory_policy for rank in placed.ranks} == {"preferred"}


def test_three_gpus_beside_one_on_interleaved_nodes() -> None:
    placed = plan("server", "exclusive")
    # 14 cores among 3; of the 14 of the single GPU one core is left to the system
    assert sizes(placed) == [10, 10, 8, 26]
    assert cpus(placed)[0] == "0,4,8,12,16,56,60,64,68,72"
    assert placed.reserved == (3, 59)
    assert sizes(plan("server", "exclusive", reserve=False)) == [10, 10, 8, 28]
    assert cpus(plan("server", "socket"))[0] == cpu_ranges(tuple(range(0, 112, 2)))
    assert placed.ranks[0].memory_nodes == (0,) and placed.ranks[3].memory_nodes == (3,)


def test_small_nodes_do_not_lose_half_of_their_cores() -> None:
    """An old server of eight nodes with two cores each: one core is left to the system, not one of every node."""
    nodes = {node: range(2 * node, 2 * node + 2) for node in range(8)}
    placed = plan_placement(machines.machine(nodes), PlaceRequest(mode="exclusive"))
    assert cpus(placed) == ["1-15"] and placed.reserved == (0,)


def test_isolated_cpus_are_left_alone() -> None:
    machine = machines.server()
    machine = replace(machine, cpu=replace(machine.cpu, isolated=(4, 5, 6, 7, 60, 61, 62, 63)))
    placed = plan_placement(machine, PlaceRequest(mode="exclusive"))
    assert sizes(placed) == [10, 8, 8, 24]
    assert not set(placed.allowed) & {4, 5, 6, 7, 60, 61, 62, 63}


def test_fast_cores_are_dealt_out_in_turn() -> None:
    placed = plan("hybrid", "exclusive")
    assert cpus(placed) == ["0-1,4-5,8-9,12,14,16,18", "2-3,6-7,10-11,13,15,17,19"]


def test_sub_numa_nodes_with_uneven_gpus() -> None:
    placed = plan("snc", "exclusive")
    assert sizes(placed) == [16, 16, 16, 46, 24, 22, 24, 22]
    assert [rank.nodes for rank in placed.ranks] == [(0,)] * 3 + [(1,)] + [(2,)] * 2 + [(3,)] * 2
    socket = plan("snc", "socket")
    assert cpus(socket)[3] == "0-47,96-143" and socket.ranks[3].memory_nodes == (1,)


def test_one_cpu_node_among_nine() -> None:
    placed = plan("gh200", "node")
    assert cpus(placed) == ["0-71"]
    assert (
        placed.ranks[0].memory_policy == "none"
    )  # nothing to choose: GPU memory is no place for a process's own


def test_a_numa_node_of_gpu_memory_is_no_place_to_run() -> None:
    machine = machines.power9()
    gpus = tuple(replace(gpu, cpu_affinity=None, numa_node=255) for gpu in machine.gpus)
    placed = plan_placement(replace(machine, gpus=gpus), PlaceRequest(mode="exclusive"))
    assert "numa_node 255 has no CPUs" in placed.ranks[0].reasons["cpus"]
    assert {rank.nodes for rank in placed.ranks} <= {(0,), (8,), (0, 8)}


def test_the_driver_is_believed_where_the_bus_is_wrong() -> None:
    assert cpus(plan("gb200", "node")) == ["0-71"] * 2 + ["72-143"] * 2


def test_interleaved_sockets_told_by_lists() -> None:
    placed = plan("c4140", "node")
    assert placed.ranks[0].cpus == tuple(range(0, 80, 2)) and placed.ranks[3].cpus == tuple(range(1, 80, 2))
    assert "local_cpulist" in placed.ranks[0].reasons["cpus"]


def test_a_cpuset_cuts_and_is_not_left() -> None:
    placed = plan("cut", "node")
    assert cpus(placed) == ["0-55"] * 4 + ["70-99,102-107"] * 4
    exclusive = plan("cut", "exclusive")
    assert sizes(exclusive) == [14, 14, 14, 13, 9, 9, 9, 8] and exclusive.reserved == (0, 70)


def test_an_active_nic_on_the_same_switch_is_the_ranks_own() -> None:
    first, second, *_, fifth = plan("cut", "node").ranks[:5]
    assert first.nics == ("mlx5_0",) and first.environment["NCCL_IB_HCA"] == "=mlx5_0:1"
    assert second.nics == ("mlx5_0",) and "NCCL_IB_HCA" not in second.environment
    assert second.environment["UCX_NET_DEVICES"] == "mlx5_0:1"
    assert fifth.nics == () and "across the sockets" in fifth.reasons["nics"]


def test_minus_one_is_not_node_zero() -> None:
    placed = plan("nowhere", "exclusive")
    assert cpus(placed) == ["0-3", "4-7", "8-11", "12-15"]
    assert all("no locality" in rank.reasons["cpus"] for rank in placed.ranks)
    node = plan("nowhere", "node")
    assert sizes(node) == [16] * 4 and node.ranks[0].memory_policy == "none"


def test_one_lost_gpu_goes_where_there_is_room() -> None:
    found = machines.machine({0: range(8), 1: range(8, 16)}, gpus=machines.gpus_on(0, 0, -1))
    placed = plan_placement(found, PlaceRequest(mode="exclusive"))
    assert cpus(placed) == ["0-3", "4-7", "8-15"] and any("GPU 2" in text for text in placed.warnings)


def test_l3_groups_stay_whole() -> None:
    placed = plan("epyc", "l3", reserve=False)
    assert cpus(placed) == ["0-15,32-47", "16-23,48-55", "24-31,56-63"]
    even = plan("epyc", "exclusive", reserve=False)  # a whole group each, and the fourth divided
    assert cpus(even)[0] == "0-7,24-26,32-39,56-58" and sizes(even) == [22, 22, 20]


def test_fewer_l3_groups_than_gpus() -> None:
    found = machines.machine({0: range(8)}, l3_cores=4, gpus=machines.gpus_on(0, 0, 0))
    placed = plan_placement(found, PlaceRequest(mode="l3"))
    assert sizes(placed) == [3, 3, 2] and placed.mode == "l3"
    assert any("2 L3 groups for 3 GPUs" in text for text in placed.warnings)


def test_no_room_means_node_mode_and_says_so() -> None:
    found = machines.machine({0: range(2)}, gpus=machines.gpus_on(0, 0, 0))
    placed = plan_placement(found, PlaceRequest(mode="exclusive"))
    assert (placed.asked, placed.mode) == ("exclusive", "node") and sizes(placed) == [2, 2, 2]
    assert "2 cores for 3 GPUs" in placed.warnings[0]


def test_gpus_that_are_not_seen_keep_their_share() -> None:
    """Under Ray each worker sees one GPU: the others' shares are not its own."""
    whole = plan("server", "exclusive")
    for gpu in range(4):
        alone = plan("server", "exclusive", visible=(str(gpu),))
        assert [rank.cpus for rank in alone.ranks] == [whole.ranks[gpu].cpus]


def test_what_a_launcher_gave_to_this_rank_alone_is_not_divided() -> None:
    placed = plan("server", "exclusive", visible=("1",), allowed=tuple(range(0, 40, 4)), alone=True)
    assert placed.ranks[0].cpus == (4, 8, 12, 16, 20, 24, 28, 32, 36)  # a core of 10 is the system's


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("2", "0"), [2, 0]),
        (("GPU-00000003",), [3]),
        (("gpu-00000001", "1"), [1, 1]),
        (("0000:12:00.0", "11:00"), [2, 1]),
        (("MIG-GPU-00000002/1/0",), [2]),
        (("1", "-1", "2"), [1]),
        (("7",), [None]),
        ((), [None]),
        (("GPU-0",), [None]),
    ],
)
def test_visible_devices(names: tuple[str, ...], found: list[int | None]) -> None:
    assert [rank.gpu for rank in plan("server", "node", visible=names).ranks] == found


def test_a_mig_device_stands_for_the_only_gpu_that_has_any() -> None:
    machine = machines.server()
    gpus = tuple(replace(gpu, mig=gpu.index == 2) for gpu in machine.gpus)
    request = PlaceRequest(mode="exclusive", visible=("MIG-11", "MIG-22"))
    placed = plan_placement(replace(machine, gpus=gpus), request)
    assert [rank.gpu for rank in placed.ranks] == [2, 2]
    assert not set(placed.ranks[0].cpus) & set(placed.ranks[1].cpus)


def test_more_ranks_than_gpus_divide_the_gpus_share() -> None:
    placed = plan("c4140", "exclusive", ranks=8, reserve=False)
    assert [rank.gpu for rank in placed.ranks] == [0, 1, 2, 3] * 2 and set(sizes(placed)) == {10}


def test_no_gpu_at_all() -> None:
    placed = plan_placement(
        machines.machine({0: range(4), 1: range(4, 8)}), PlaceRequest(mode="exclusive", ranks=4)
    )
    assert cpus(placed) == ["0-1", "2-3", "4-5", "6-7"]


def test_a_gpu_whose_node_is_not_allowed_goes_to_the_nearest() -> None:
    machine = machines.power9()
    machine = replace(machine, container=Container(cpuset=tuple(range(88)), cpuset_mems=(0,)))
    placed = plan_placement(machine, PlaceRequest(mode="exclusive"))
    assert all(set(rank.cpus) <= set(range(88)) for rank in placed.ranks) and len(placed.warnings) == 3
    assert {rank.memory_nodes for rank in placed.ranks} == {(0,)}


def test_loaders_take_their_part_of_the_threads() -> None:
    assert plan("c4140", "exclusive", workers=3, reserve=False).ranks[0].environment["OMP_NUM_THREADS"] == "2"
    assert plan("c4140", "exclusive", workers=99).ranks[0].environment["OMP_NUM_THREADS"] == "1"


def test_threads_are_a_fair_part_of_what_is_shared() -> None:
    assert plan("c4140", "node").ranks[0].environment["OMP_NUM_THREADS"] == "10"  # 20 cores, two GPUs


def test_split_keeps_loaders_off_the_launching_cores() -> None:
    placed = plan("c4140", "split", reserve=False)
    own = [set(rank.cpus) for rank in placed.ranks]
    others = set().union(*(rank.other_cpus for rank in placed.ranks))
    assert not others & set().union(*own) and sizes(placed) == [10] * 4
    assert placed.ranks[0].other_cpus == placed.ranks[1].other_cpus


def test_memory_policies() -> None:
    assert plan("server", "node", memory="bind").ranks[0].memory_policy == "bind"
    spread = plan("server", "spread").ranks[0]
    assert (spread.memory_policy, spread.memory_nodes) == ("interleave", (0, 1, 2, 3))
    assert plan("server", "node", memory="none").ranks[0].memory_nodes == ()
    machine = machines.server()
    numa = tuple(replace(node, mem_free_bytes=4 << 30) for node in machine.numa)
    request = PlaceRequest(memory="bind", pinned_bytes=3 << 30)
    placed = plan_placement(replace(machine, numa=numa), request)
    assert placed.ranks[0].memory_policy == "preferred" and "1.5 times" in placed.warnings[0]


@pytest.mark.parametrize(
    "request_",
    [PlaceRequest(mode="nice"), PlaceRequest(memory="fast"), PlaceRequest(ranks=0), PlaceRequest(workers=-1)],
)
def test_what_is_none_is_refused(request_: PlaceRequest) -> None:
    with pytest.raises(WellfedError) as error:
        plan_placement(machines.server(), request_)
    assert error.value.hint


def test_a_machine_without_cpus_is_refused() -> None:
    with pytest.raises(WellfedError, match="no CPU"):
        plan_placement(replace(machines.server(), cpu=Cpu(), numa=()))


# -- real machines of the corpus ---------------------------------------------------------------------------


@pytest.mark.corpus
def test_the_power9_of_the_corpus(corpus: Path) -> None:
    from wellfed.host import look, open_host

    machine = look(open_host(os.fspath(corpus / "host/hwloc/linux/nvidiagpunumanodes.tar.bz2")))
    placed = plan_placement(machine, PlaceRequest(mode="socket", allowed=tuple(range(176))))
    assert cpus(placed) == ["0-87"] * 3 + ["88-175"] * 3
    inside = plan_placement(machine, PlaceRequest(mode="exclusive"))
    assert {cpu for rank in inside.ranks for cpu in rank.cpus} <= set(range(88))


@pytest.mark.corpus
def test_the_hybrid_of_the_corpus(corpus: Path) -> None:
    from wellfed.host import look, open_host

    name = "host/hwloc/linux/20em64t-hybrid-1p6c2t+2ca4co1t.tar.bz2"
    machine = replace(look(open_host(os.fspath(corpus / name))), gpus=machines.gpus_on(-1, -1))
    placed = plan_placement(machine, PlaceRequest(mode="exclusive"))
    fast = [len(set(rank.cpus) & set(range(12))) for rank in placed.ranks]
    assert fast == [6, 6] and sizes(placed) == [10, 10]
