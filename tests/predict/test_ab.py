"""The statistics of a proof: exact where there is a closed form, simulated where there is none."""

import math
import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.model.proof import Effect
from wellfed.predict import ab


def test_rank_sums_are_those_of_all_signs() -> None:
    for n in range(1, 9):
        counted = Counter(
            sum(r for r, on in zip(range(1, n + 1), signs, strict=True) if on)
            for signs in product((0, 1), repeat=n)
        )
        assert ab.rank_sum_ways(n) == [counted[total] for total in range(n * (n + 1) // 2 + 1)]


@pytest.mark.parametrize(("n", "critical"), [(8, 0), (9, 1), (10, 3), (12, 7), (16, 19), (20, 37)])
def test_the_interval_ends_at_the_tabled_critical_value(n: int, critical: int) -> None:
    """Two-sided 1 % of Wilcoxon's signed ranks, as printed in tables: that many means are cut off on each side."""
    values = [2.0**i for i in range(n)]
    means = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    _, low, high = ab.signed_rank_interval(values, 0.99)
    assert (low, high) == (means[critical], means[-1 - critical])


def test_too_few_have_no_interval() -> None:
    assert ab.signed_rank_interval([0.1] * 7, 0.99)[1:] == (None, None)
    effect = ab.decide([1.0] * 14, [0.5] * 14)
    assert effect.verdict == "noisy" and effect.low is None and effect.ratio == pytest.approx(0.5)


def test_the_interval_holds_the_middle_as_often_as_it_says() -> None:
    rng = random.Random(1)
    for n in (8, 12):
        held = 0
        for _ in range(2000):
            _, low, high = ab.signed_rank_interval([rng.gauss(0, 1) for _ in range(n)], 0.9)
            assert low is not None and high is not None
            held += low <= 0 <= high
        assert 0.88 <= held / 2000 <= 0.96


def test_of_constant_costs() -> None:
    effect = ab.decide([2.0] * 16, [1.0] * 16)
    assert (effect.verdict, effect.n) == ("better", 8)
    assert (effect.ratio, effect.low, effect.high) == pytest.approx((0.5, 0.5, 0.5))
    assert ab.decide([1.0] * 16, [1.0] * 16).verdict == "none"
    assert ab.decide([1.0] * 16, [1.02] * 16).verdict == "none"
    assert ab.decide([1.0] * 16, [1.04] * 16).verdict == "worse"


@given(
    st.lists(st.tuples(*[st.floats(0.1, 10.0)] * 4), min_size=8, max_size=16),
    st.floats(0.01, 100.0),
    st.floats(-0.05, 0.05),
)
def test_units_and_even_drift_change_nothing_and_swapping_turns_it_round(
    quads: list[tuple[float, float, float, float]], unit: float, drift: float
) -> None:
    a = [cost for q in quads for cost in (q[0], q[3])]
    b = [cost for q in quads for cost in (q[1], q[2])]
    plain, scaled = ab.decide(a, b), ab.decide([unit * x for x in a], [unit * x for x in b])
    assert plain.low is not None and plain.high is not None and plain.low <= plain.ratio <= plain.high
    assert (scaled.ratio, scaled.low) == pytest.approx((plain.ratio, plain.low))
    times = range(4 * len(quads))
    drifting = [
        cost * math.exp(drift * t) for cost, t in zip((c for q in quads for c in q), times, strict=True)
    ]
    moved = ab.decide(
        [x for i in range(0, len(drifting), 4) for x in (drifting[i], drifting[i + 3])],
        [x for i in range(0, len(drifting), 4) for x in (drifting[i + 1], drifting[i + 2])],
    )
    assert (moved.ratio, moved.low, moved.high) == pytest.approx((plain.ratio, plain.low, plain.high))
    turned = ab.decide(
        [x for i in range(0, len(b), 2) for x in (b[i], b[i + 1])],
        a,
    )
    assert turned.ratio == pytest.approx(1 / plain.ratio)


@pytest.mark.parametrize(
    ("a", "b"),
    [([1.0], [1.0]), ([], []), ([1.0, 1.0], [1.0]), ([1.0, 0.0], [1.0, 1.0]), ([1.0, math.inf], [1.0, 1.0])],
)
def test_what_is_no_quadruple_is_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError):
        ab.decide(a, b)


# -- simulated machines -----------------------------------------------------------------------------------


def proof_of(
    seed: int,
    *,
    effect: float = 1.0,
    noise: float = 0.02,
    drift: float = 0.0,
    wild: float = 0.0,
    walk: float = 0.0,
) -> Effect:
    """One proof with its looks. `noise` is of each phase, `drift` grows by the phase, `walk` is a random walk, and
    `wild` the share of phases that a neighbour makes up to several times as long."""
    rng = random.Random(seed)
    a: list[float] = []
    b: list[float] = []
    level = 0.0
    for n in range(1, max(ab.LOOKS) + 1):
        phases = []
        for cost in (1.0, effect, effect, 1.0):
            level += drift + rng.gauss(0, walk)
            hit = abs(rng.gauss(0, 0.8)) if rng.random() < wild else 0.0
            phases.append(50 * cost * math.exp(level + rng.gauss(0, noise) + hit))
        a += [phases[0], phases[3]]
        b += [phases[1], phases[2]]
        if n in ab.LOOKS and (found := ab.decide(a, b)).verdict != "noisy":
            break
    return found


def verdicts(runs: int = 400, **machine: float) -> Counter[str]:
    return Counter(proof_of(seed, **machine).verdict for seed in range(runs))


def test_no_effect_is_none() -> None:
    for noise in (0.01, 0.02, 0.04):
        assert verdicts(noise=noise)["none"] >= 0.95 * 400


def test_an_effect_of_a_tenth_is_hardly_ever_called_none() -> None:
    """At most 10 of 100 at just the resolution, by the bound of four looks; next to never at half as much again."""
    for noise in (0.02, 0.05, 0.1):
        assert verdicts(noise=noise, effect=1 / 1.1)["none"] <= 0.10 * 400
        assert verdicts(noise=noise, effect=1.16)["none"] <= 0.02 * 400


def test_a_fifth_is_seen_whichever_way() -> None:
    for noise in (0.01, 0.03, 0.06):
        assert verdicts(noise=noise, effect=0.8)["better"] >= 0.99 * 400
        assert verdicts(noise=noise, effect=1.25)["worse"] >= 0.99 * 400


def test_drift_and_a_wandering_machine_are_no_effect() -> None:
    assert verdicts(drift=0.01)["none"] >= 0.95 * 400
    assert verdicts(drift=-0.05)["none"] >= 0.95 * 400
    assert verdicts(noise=0.01, walk=0.02)["none"] >= 0.95 * 400
    assert verdicts(drift=0.01, effect=0.8)["better"] >= 0.99 * 400


def test_a_wild_machine_is_noisy_and_the_direction_never_wrong() -> None:
    for machine in ({"noise": 0.3}, {"wild": 0.3}):
        assert verdicts(**machine)["noisy"] >= 0.95 * 400
        assert verdicts(**machine, effect=0.8)["worse"] == 0
        assert verdicts(**machine, effect=1.25)["better"] == 0


def test_one_wild_quadruple_in_sixteen_moves_nothing() -> None:
    a, b = [1.0 + 0.001 * (i % 3) for i in range(32)], [0.8 + 0.001 * (i % 2) for i in range(32)]
    b[4] = 100.0
    found = ab.decide(a, b)
    assert found.verdict == "better" and found.high is not None and found.high < 1
    assert found.ratio == pytest.approx(0.8, rel=0.01)


def test_no_more_than_the_machine_moves_by_itself_is_not_called_an_effect() -> None:
    a = [x for _ in range(8) for x in (1.0, 1.3)]
    b = [x for _ in range(8) for x in (1.1 * 0.95, 1.2 * 0.95)]
    found = ab.decide(a, b)
    assert found.dead_band > 1.15 and found.verdict == "noisy"
