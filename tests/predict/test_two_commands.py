"""Whether two commands differ: laws of the rule, and its errors on noise of a known kind."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.predict.two_commands import CONFIDENCE, decide, least_pairs, looks, spent, with_bootstrap

PAIRS = 60


@given(st.integers(2, 500))
def test_no_more_error_is_spent_than_allowed(pairs: int) -> None:
    assert looks(pairs)[-1] == pairs and list(looks(pairs)) == sorted(set(looks(pairs)))
    assert math.isclose(sum(spent(look, pairs) for look in looks(pairs)), 1 - CONFIDENCE)


def test_fewer_pairs_than_can_tell_are_undecided_whatever_they_say() -> None:
    few = least_pairs() - 1
    assert decide([1.0] * few, [2.0] * few, pairs=few).verdict == "undecided"
    assert decide([1.0] * (few + 1), [2.0] * (few + 1), pairs=few + 1).verdict == "worse"


@given(st.lists(st.floats(0.5, 2.0), min_size=20, max_size=30), st.floats(0.3, 3.0))
def test_scaling_and_exchanging_do_what_they_should(values: list[float], factor: float) -> None:
    a, b = values, [value * factor for value in reversed(values)]
    there, back = decide(a, b, pairs=PAIRS), decide(b, a, pairs=PAIRS)
    assert math.isclose(there.ratio * back.ratio, 1, rel_tol=1e-9)
    if there.low is not None and there.high is not None and back.low is not None:
        assert there.low <= there.ratio * (1 + 1e-9) and there.ratio <= there.high * (1 + 1e-9)
        assert math.isclose(there.high * back.low, 1, rel_tol=1e-9)
    scaled = decide([7 * x for x in a], [7 * x for x in b], pairs=PAIRS)
    assert math.isclose(scaled.ratio, there.ratio, rel_tol=1e-9)
    rate = decide(a, b, pairs=PAIRS, higher_is_better=True)
    assert {there.verdict, rate.verdict} in (
        {"better", "worse"}, {"no difference"}, {"undecided"},
    )  # fmt: skip


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_has_no_log_is_refused(bad: float) -> None:
    with pytest.raises(ValueError):
        decide([1.0, bad], [1.0, 1.0], pairs=PAIRS)
    with pytest.raises(ValueError):
        decide([1.0], [1.0, 1.0], pairs=PAIRS)


def test_equal_numbers_are_no_difference_and_a_tiny_steady_one_is_none_that_matters() -> None:
    assert decide([2.0] * 12, [2.0] * 12, pairs=PAIRS).verdict == "no difference"
    assert decide([2.0] * 20, [2.002] * 20, pairs=PAIRS).verdict == "no difference"
    assert decide([2.0] * 20, [2.1] * 20, pairs=PAIRS).verdict == "worse"


def test_a_lone_wild_pair_moves_little() -> None:
    rng = np.random.default_rng(1)
    a, b = np.exp(rng.normal(0, 0.02, 40)), np.exp(rng.normal(0, 0.02, 40))
    calm = decide(list(a), list(b), pairs=PAIRS)
    b[7] *= 50
    wild = decide(list(a), list(b), pairs=PAIRS)
    assert abs(wild.ratio - calm.ratio) < 0.005 and wild.verdict == calm.verdict


def test_the_bootstrap_agrees_with_the_exact_interval() -> None:
    rng = np.random.default_rng(2)
    a, b = list(np.exp(rng.normal(0, 0.05, 60))), list(np.exp(rng.normal(0.1, 0.05, 60)))
    found = with_bootstrap(decide(a, b, pairs=60), a, b)
    assert found.bootstrap is not None and found.low is not None and found.high is not None
    assert found.bootstrap[0] < found.ratio < found.bootstrap[1]
    assert 0.5 < math.log(found.bootstrap[1] / found.bootstrap[0]) / math.log(found.high / found.low) < 1.3
    assert with_bootstrap(found, a, b) == found, "the same runs, the same interval"


@pytest.mark.parametrize(("effect", "verdict", "at_least"), [(0.0, "no difference", 95), (0.05, "worse", 90)])
def test_it_is_right_as_often_as_promised(effect: float, verdict: str, at_least: int) -> None:
    """Log-normal noise of 5 %, 2 % of the runs wild, 120 runs at most; 200 comparisons, so that chance decides little."""
    rng, right = np.random.default_rng(5), 0
    for _ in range(200):
        x = rng.normal(0, 0.05, (2, PAIRS))
        x += np.where(rng.random((2, PAIRS)) < 0.02, np.log(rng.uniform(1.2, 3, (2, PAIRS))), 0)
        a, b = np.exp(x[0]), np.exp(x[1]) * (1 + effect)
        for n in looks(PAIRS):
            found = decide(list(a[:n]), list(b[:n]), pairs=PAIRS)
            if found.verdict != "undecided":
                break
        right += found.verdict == verdict
    assert right >= 2 * at_least
