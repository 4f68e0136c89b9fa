"""Which limit a collective runs into: planted ones are named, and where two answers fit none is."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.model import Curve
from wellfed.predict.collective import expected_seconds, half_bandwidth_bytes, link_curve
from wellfed.predict.comm_limit import limit_of, limit_of_curve, limit_of_ranks, slow_pairs

SIZES = np.array([2.0**k for k in range(10, 31, 2)])


def curve(alpha: float = 30e-6, beta: float = 2e11, op: str = "all_reduce", ranks: int = 8) -> Curve:
    seconds = tuple((alpha + SIZES / beta).tolist())
    return Curve(op=op, ranks=ranks, sizes=tuple(SIZES.tolist()), seconds=seconds)


alphas, betas = st.floats(3e-6, 1e-3), st.floats(1e9, 1e12)
noises, seeds = st.floats(0.0, 0.12), st.integers(0, 1000)


def planted(alpha: float, beta: float, noise: float, seed: int, sizes: Any) -> tuple[Curve, Any, Any]:
    known = curve(alpha, beta)
    rng = np.random.default_rng(seed)
    due = expected_seconds(known, sizes)
    return known, due * rng.lognormal(0.0, noise, len(sizes)), rng


@given(alphas, betas, noises, seeds)
def test_calls_as_the_curve_says_are_bound_by_latency_or_bandwidth(
    a: float, b: float, noise: float, seed: int
) -> None:
    half = half_bandwidth_bytes(curve(a, b))
    for factor, kind in ((0.05, "latency"), (30.0, "bandwidth")):
        sizes = np.full(60, half * factor)
        known, times, _ = planted(a, b, noise, seed, sizes)
        for waits in (False, True):
            found = limit_of(sizes, times, known, waits=waits)
            assert found is not None and found.kind == kind, (found, factor)


@given(alphas, betas, noises, seeds, st.floats(2.0, 4.0))
def test_a_broken_path_costs_in_proportion(
    a: float, b: float, noise: float, seed: int, factor: float
) -> None:
    half = half_bandwidth_bytes(curve(a, b))
    sizes = np.tile(half * np.array([2.0, 8.0, 32.0, 128.0]), 15)
    known, times, _ = planted(a, b, noise, seed, sizes)
    for waits in (False, True):
        found = limit_of(sizes, times * factor, known, waits=waits)
        assert found is not None and found.kind == "path"
    one_size = np.full(60, half * 8)
    known, times, _ = planted(a, b, noise, seed, one_size)
    found = limit_of(one_size, times * factor, known, waits=True)
    assert found is not None and found.kind == "unclear" and "look alike" in (found.why or "")


@given(alphas, betas, noises, seeds, st.floats(3.0, 50.0))
def test_a_rank_that_is_always_late_costs_all_sizes_the_same(
    a: float, b: float, noise: float, seed: int, waits: float
) -> None:
    half = half_bandwidth_bytes(curve(a, b))
    sizes = np.tile(half * np.array([0.1, 1.0, 4.0, 16.0]), 15)
    known, times, rng = planted(a, b, noise, seed, sizes)
    late = waits * a * 20 * rng.lognormal(0.0, noise, len(sizes))
    found = limit_of(sizes, times + late, known, waits=True)
    assert found is not None and found.kind == "straggler", found


@given(alphas, betas, noises, seeds)
def test_a_rank_that_is_late_now_and_then(a: float, b: float, noise: float, seed: int) -> None:
    sizes = np.full(60, half_bandwidth_bytes(curve(a, b)) * 4)
    known, times, rng = planted(a, b, noise, seed, sizes)
    late = np.where(rng.random(60) < 0.4, 6.0 * times, 0.0)
    found = limit_of(sizes, times + late, known, waits=True)
    assert found is not None and found.kind == "straggler"


@given(alphas, betas, noises, seeds, st.floats(1.6, 3.0))
def test_contention_shows_only_beside_computing(
    a: float, b: float, noise: float, seed: int, factor: float
) -> None:
    sizes = np.tile(half_bandwidth_bytes(curve(a, b)) * np.array([2.0, 16.0]), 30)
    known, times, _ = planted(a, b, noise, seed, sizes)
    beside = np.arange(60) % 3 == 0
    found = limit_of(sizes, np.where(beside, times * factor, times), known, overlapped=beside, waits=True)
    assert found is not None and found.kind == "contention"


@given(alphas, betas, noises, seeds)
def test_noise_alone_accuses_nobody(a: float, b: float, noise: float, seed: int) -> None:
    sizes = np.tile(SIZES, 6)
    known, times, rng = planted(a, b, noise, seed, sizes)
    beside = rng.random(len(sizes)) < 0.5
    found = limit_of(sizes, times, known, overlapped=beside, waits=True)
    assert found is not None and found.kind in ("latency", "bandwidth")


def test_few_calls_and_none() -> None:
    assert limit_of(np.array([-1.0]), np.array([1.0]), curve()) is None
    found = limit_of(np.array([1e6]), np.array([1.0]), curve(), waits=True)
    assert found is not None and found.kind == "unclear" and found.why


# --- several ranks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 4, 8])
def test_the_rank_that_waits_least_is_named(n: int) -> None:
    rng = np.random.default_rng(n)
    sizes = np.tile(SIZES[3:8], 12)
    due = expected_seconds(curve(), sizes)
    times = due * rng.lognormal(0, 0.05, (n, len(sizes)))
    late = times + np.where(np.arange(n)[:, None] == 1, 0.0, 5e-3)
    found = limit_of_ranks(sizes, late, curve())
    assert (
        found is not None and found.limit.kind == "straggler" and found.last == 1 and found.last_share > 0.9
    )
    calm = limit_of_ranks(sizes, times, curve())
    assert calm is not None and calm.last is None and calm.limit.kind in ("latency", "bandwidth")
    slow = limit_of_ranks(sizes, np.where(sizes > 4e6, 2.5, 1.0) * times, curve())
    assert slow is not None and slow.last is None and slow.limit.kind != "straggler"


def test_ranks_that_wait_in_turn_are_nobodys_fault() -> None:
    rng = np.random.default_rng(0)
    sizes = np.full(64, 1e6)
    times = expected_seconds(curve(), sizes) * np.ones((4, 64)) + 5e-3
    times[rng.integers(0, 4, 64), np.arange(64)] -= 5e-3
    found = limit_of_ranks(sizes, times, curve())
    assert found is not None and found.last is None and found.limit.kind == "unclear"
    assert limit_of_ranks(sizes, times[:1], curve()) is None
    assert limit_of_ranks(np.full(64, -1.0), times, curve()) is None


# --- curves and matrices ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "kind"), [(1.0, "bandwidth"), (0.8, "bandwidth"), (2.2, "path"), (8.0, "path")]
)
def test_a_measured_curve_beside_its_link(factor: float, kind: str) -> None:
    link = link_curve("all_reduce", 8, "nvlink", 4.5e11, "catalogue")
    assert link is not None
    seconds = tuple((expected_seconds(link, SIZES) * factor).tolist())
    mine = Curve(op="all_reduce", ranks=8, sizes=tuple(SIZES.tolist()), seconds=seconds)
    found = limit_of_curve(mine, link)
    assert found is not None and found.kind == kind
    other = link_curve("all_gather", 8, "nvlink", 4.5e11, "catalogue")
    assert other is not None and limit_of_curve(mine, other) is None
    small = Curve(op="all_reduce", ranks=8, sizes=(1024.0,), seconds=(1e-5,))
    assert limit_of_curve(small, link) is None


def test_a_measured_curve_with_a_late_rank() -> None:
    link = link_curve("all_reduce", 8, "nvlink", 4.5e11, "catalogue")
    assert link is not None
    transfer = expected_seconds(link, SIZES)
    mine = Curve(
        op="all_reduce", ranks=8, sizes=tuple(SIZES.tolist()), seconds=tuple((transfer + 0.05).tolist()), transfer=tuple(transfer.tolist())
    )  # fmt: skip
    found = limit_of_curve(mine, link)
    assert found is not None and found.kind == "straggler"


def matrix(n: int, **slow: float) -> list[list[float | None]]:
    rng = np.random.default_rng(n)
    table: list[list[float | None]] = [
        [None if i == j else float(390 + rng.uniform(-3, 3)) for j in range(n)] for i in range(n)
    ]
    for name, rate in slow.items():
        i, j = (int(k) for k in name[1:].split("_"))
        table[i][j] = rate
    return table


def test_slow_pairs_and_slow_gpus() -> None:
    fine = slow_pairs(matrix(8))
    assert not fine.slow_gpus and not fine.slow_pairs and fine.why is None and not fine.kinds
    one = slow_pairs(matrix(8, p2_5=200.0))
    assert one.slow_pairs == ((2, 5, 200.0),) and not one.slow_gpus
    bad = matrix(8)
    for k in range(8):
        if k != 3:
            bad[3][k] = bad[k][3] = 190.0
    found = slow_pairs(bad)
    assert found.slow_gpus == (3,) and not found.slow_pairs
    two = [[None if i == j else 24.0 if i // 4 == j // 4 else 12.0 for j in range(8)] for i in range(8)]
    assert slow_pairs(two).kinds or not slow_pairs(two).slow_gpus
    assert slow_pairs([[None, 1.0], [1.0, None]]).why
    assert slow_pairs([]).why and slow_pairs([[None] * 3] * 3).why


@given(st.lists(st.lists(st.one_of(st.none(), st.floats(0.1, 1e3)), min_size=1, max_size=5), max_size=5))
def test_any_matrix_is_taken(table: list[list[float | None]]) -> None:
    if len({len(row) for row in table}) <= 1:
        slow_pairs(table)


PUBLISHED = {
    # stas00/ml-engineering@744d01e: network/README.md, all_reduce, busbw in GB/s by size in MiB
    "8 x H200": (
        8,
        "nvlink",
        450.0,
        {16: 219.89, 64: 346.51, 256: 436.15, 1024: 463.58, 4096: 473.10, 16384: 482.26},
    ),
    "8 x A100": (
        8,
        "nvlink",
        300.0,
        {16: 106.16, 64: 171.54, 256: 194.07, 1024: 229.04, 4096: 233.88, 16384: 234.89},
    ),
    "8 x B200": (
        8,
        "nvlink",
        900.0,
        {16: 254.96, 64: 400.60, 256: 646.11, 1024: 723.34, 4096: 740.64, 16384: 845.67},
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sound_machines_are_bound_by_their_bandwidth(name: str) -> None:
    n, kind, link_gbs, busbw = PUBLISHED[name]
    sizes = [mib * 2.0**20 for mib in busbw]
    seconds = [
        size * 2 * (n - 1) / n / (rate * 1e9) for size, rate in zip(sizes, busbw.values(), strict=True)
    ]
    link = link_curve("all_reduce", n, kind, link_gbs * 1e9, "catalogue")
    assert link is not None
    for factor, says in ((1.0, "bandwidth"), (3.0, "path")):
        mine = Curve(op="all_reduce", ranks=n, sizes=tuple(sizes), seconds=tuple(t * factor for t in seconds))
        found = limit_of_curve(mine, link)
        assert found is not None and found.kind == says, (name, factor, found)
