"""What holds of every plan, on machines of every shape."""

import machines
from hypothesis import given
from hypothesis import strategies as st

from wellfed.model.errors import WellfedError
from wellfed.model.placement import DISJOINT, MODES, Placement, PlaceRequest
from wellfed.place import plan_placement

seeds = st.integers(0, 50_000)


def planned(seed: int, **more: object) -> Placement | None:
    try:
        return plan_placement(machines.random_machine(seed), PlaceRequest(**more))  # type: ignore[arg-type]
    except WellfedError as error:
        assert "no CPU is left" in error.message
        return None


@given(seeds, st.sampled_from(sorted(MODES)), st.one_of(st.none(), st.integers(1, 9)))
def test_every_rank_has_cpus_that_are_allowed(seed: int, mode: str, ranks: int | None) -> None:
    placed = planned(seed, mode=mode, ranks=ranks)
    if placed is None:
        return
    machine = machines.random_machine(seed)
    online = {t.id for t in machine.cpu.threads or () if t.online}
    allowed = online & set(machine.cpu.allowed) if machine.cpu.allowed else online
    assert set(placed.allowed) <= allowed
    for rank in placed.ranks:
        assert rank.cpus and set(rank.cpus) | set(rank.other_cpus) <= set(placed.allowed)
        nodes = {node.id for node in machine.numa if node.cpus} or {t.node for t in machine.cpu.threads or ()}
        assert set(rank.memory_nodes) <= nodes
        assert (rank.memory_policy == "none") == (not rank.memory_nodes)
        assert all(rank.reasons.values())


@given(seeds, st.sampled_from(DISJOINT), st.one_of(st.none(), st.integers(1, 9)))
def test_no_two_ranks_share_a_cpu_or_a_core(seed: int, mode: str, ranks: int | None) -> None:
    placed = planned(seed, mode=mode, ranks=ranks)
    if placed is None or placed.mode != mode:
        assert placed is None or placed.warnings
        return
    taken = [cpu for rank in placed.ranks for cpu in rank.cpus]
    assert len(taken) == len(set(taken))
    assert not set(taken) & set(placed.reserved)
    cores: dict[int, set[int]] = {}
    for thread in machines.random_machine(seed).cpu.threads or ():
        if thread.core is not None and thread.id in placed.allowed:
            cores.setdefault(thread.core, set()).add(thread.id)
    for rank in placed.ranks:
        for siblings in cores.values():
            assert siblings <= set(rank.cpus) or not siblings & set(rank.cpus)


@given(seeds, st.sampled_from(DISJOINT), st.randoms())
def test_jobs_that_see_different_gpus_stay_out_of_each_others_way(seed: int, mode: str, dice: object) -> None:
    machine = machines.random_machine(seed)
    if not machine.gpus:
        return
    order = [str(gpu.index) for gpu in machine.gpus]
    dice.shuffle(order)  # type: ignore[attr-defined]
    half = len(order) // 2
    jobs = [planned(seed, mode=mode, visible=tuple(part)) for part in (order[:half], order[half:]) if part]
    if any(job is None or job.mode != mode for job in jobs):
        return
    taken = [cpu for job in jobs if job for rank in job.ranks for cpu in rank.cpus]
    assert len(taken) == len(set(taken))


@given(seeds, st.sampled_from(sorted(MODES)), st.randoms())
def test_the_order_of_the_visible_gpus_is_the_order_of_the_ranks(seed: int, mode: str, dice: object) -> None:
    machine = machines.random_machine(seed)
    order = [str(gpu.index) for gpu in machine.gpus]
    plain = planned(seed, mode=mode, visible=tuple(order))
    dice.shuffle(order)  # type: ignore[attr-defined]
    mixed = planned(seed, mode=mode, visible=tuple(order))
    if plain is None or mixed is None or not order:
        return
    of_gpu = {rank.gpu: rank.cpus for rank in plain.ranks}
    assert [rank.gpu for rank in mixed.ranks] == [int(name) for name in order]
    assert {rank.gpu: rank.cpus for rank in mixed.ranks} == of_gpu


@given(seeds, st.sampled_from(sorted(MODES)))
def test_the_same_question_has_the_same_answer(seed: int, mode: str) -> None:
    assert planned(seed, mode=mode) == planned(seed, mode=mode)


@given(seeds)
def test_shares_of_one_pool_are_even(seed: int) -> None:
    """Without hybrids: GPUs at home on exactly the same nodes differ by one core at most."""
    machine = machines.random_machine(seed)
    placed = planned(seed, mode="exclusive")
    if placed is None or placed.mode != "exclusive" or any(t.kind for t in machine.cpu.threads or ()):
        return
    core = {t.id: t.core if t.core is not None else -t.id - 1 for t in machine.cpu.threads or ()}
    counts: dict[tuple[int, ...], list[int]] = {}
    for rank in placed.ranks:
        if len(rank.nodes) == 1:
            counts.setdefault(rank.nodes, []).append(len({core[cpu] for cpu in rank.cpus}))
    assert all(max(found) - min(found) <= 1 for found in counts.values())
