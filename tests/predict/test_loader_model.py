"""The loader's model: closed forms where times do not vary, bounds and monotonicity where they do."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.predict.loader import (
    LoaderCosts,
    candidates,
    choose,
    core_bound,
    gil_share,
    ladder,
    limit_of,
    memory_bytes,
    most_workers,
    predict_rate,
    ratio_of,
    ring_rate,
    sharded_gain,
    thread_rate,
    with_ipc,
)  # fmt: skip

times = st.floats(1e-4, 1e-1)


@given(times, st.integers(1, 16), st.integers(1, 4), times)
def test_even_times_give_the_closed_form(wall: float, workers: int, prefetch: int, main: float) -> None:
    rate = ring_rate([wall], workers, prefetch, main, batches=400)
    assert rate <= min(workers / wall, 1 / main) * 1.05, "the end of the count may cut a turn of the ring"
    if prefetch > 1:
        assert rate == pytest.approx(min(workers / wall, 1 / main), rel=0.03)


@given(st.lists(times, min_size=2, max_size=6), st.integers(1, 8))
def test_no_order_is_never_much_slower(walls: list[float], workers: int) -> None:
    ordered = ring_rate(walls, workers, 2, 1e-6, batches=600)
    free = ring_rate(walls, workers, 2, 1e-6, in_order=False, batches=600)
    assert free >= 0.8 * ordered  # where a count of 600 ends within a turn of the ring makes some per cent
    assert ordered <= workers / min(walls) * 1.01


@given(times, times, st.floats(0.5, 64))
def test_more_cores_are_never_slower_and_bound_all(wall: float, cpu: float, cores: float) -> None:
    few = LoaderCosts((wall,), cpu, wall, 1e-6, cores)
    many = few._replace(cores=2 * cores)
    for workers in (1, 2, 8):
        assert predict_rate(few, workers) <= predict_rate(many, workers) * 1.001
        assert predict_rate(few, workers) <= core_bound(few) * 1.001
    assert predict_rate(few, 0) == pytest.approx(1 / wall)


def test_what_limits_is_named() -> None:
    costs = LoaderCosts((0.1,), 0.01, 0.1, 0.001, 2.0)
    assert limit_of(costs, 0) == "one process" and limit_of(costs, 2) == "workers"
    assert limit_of(costs, 64) == "cores" and limit_of(costs._replace(main_s=0.02), 64) == "receiving"


@given(st.floats(1, 128), st.one_of(st.none(), st.integers(0, 50)))
def test_the_ladder_rises_to_four_a_core(cores: float, most: int | None) -> None:
    steps = ladder(cores, most)
    assert steps[0] == 0 and list(steps) == sorted(set(steps))
    assert steps[-1] <= (4 * cores if most is None else min(most, max(4 * cores, 2)))


def test_threads_pay_for_the_gil() -> None:
    costs = LoaderCosts((0.01,), 0.01, 0.01, 0.0, 8.0)
    assert thread_rate(costs, 8, 0.0) == pytest.approx(800) and thread_rate(costs, 8, 1.0) == pytest.approx(
        100
    )
    assert gil_share(2.0) == 0 and gil_share(1.0) == 1 and gil_share(0.5) == 1 and gil_share(None) is None


def test_budgets_are_kept() -> None:
    assert most_workers(None, 1, 2, 1) is None and most_workers(100, 10, 2, 5) == 5
    assert memory_bytes(7, 2, 10, 2, 5, pinned=False) == 7 + 20 + 20
    assert memory_bytes(7, 2, 10, 2, 5, pinned=True) == 7 + 20 + 40


def test_the_way_through_the_pipe_is_added_once() -> None:
    costs = LoaderCosts((0.01, 0.02), 0.005, 0.01, 0.0, 2.0)
    slower = with_ipc(costs, 0.025, 0.001)
    assert slower.walls == pytest.approx((0.02, 0.03)) and slower.cpu_s == pytest.approx(0.015)
    assert with_ipc(costs, 0.001, 0.001).walls == costs.walls


def test_the_smallest_of_those_that_are_as_good_is_taken() -> None:
    blocks = [{0: 50.0, 1: 52.0}, {0: 98.0, 1: 99.0}, {0: 100.0, 1: 101.0}]
    assert choose(blocks, [0, 2, 8]).place == 1
    assert choose(blocks, [0, 2, 8], enough=45).place == 0, "enough is enough"
    assert ratio_of({0: 50.0}, {0: 100.0}) == 0.5 and ratio_of({1: 50.0}, {0: 100.0}) == 0.5


@given(st.dictionaries(st.integers(0, 64), st.floats(1, 1e6), min_size=1), st.floats(1, 64))
def test_what_is_tried_was_thought_of(rates: dict[int, float], cores: float) -> None:
    wanted = candidates(rates, cores)
    assert wanted and set(wanted) <= rates.keys() and len(wanted) <= 4


def test_shards_never_make_it_slower() -> None:
    assert sharded_gain(1.0, 0.5, 1e6, 1e9) == pytest.approx(1 / (0.5 + 1e-3))
    assert sharded_gain(1.0, 0.5, 1e12, 1e6) == 1.0 and sharded_gain(1.0, 0.5, 1, None) is None
    assert math.isfinite(sharded_gain(1.0, 1.0, 1, 1e12) or 0)
