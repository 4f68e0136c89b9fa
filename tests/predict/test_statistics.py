"""The arithmetic of measuring, on invented samples."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.predict import statistics as stats

SAMPLES = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=200)


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 15.0), (5, 15.0), (30, 20.0), (40, 20.0), (50, 35.0), (100, 50.0)]
)
def test_percentile_is_nearest_rank(percent: float, expected: float) -> None:
    assert stats.percentile([50.0, 15.0, 40.0, 20.0, 35.0], percent) == expected


@given(SAMPLES, st.floats(0.01, 100))
def test_percentile_is_a_sample_with_its_share_below(samples: list[float], percent: float) -> None:
    value = stats.percentile(samples, percent)
    assert value in samples
    at_most = sum(sample <= value for sample in samples)
    assert at_most * 100 >= percent * len(samples) * (1 - 1e-12)


@given(SAMPLES, st.booleans())
def test_summary_is_ordered(samples: list[float], higher: bool) -> None:
    summary = stats.summarize(samples, higher_is_better=higher)
    assert summary.p10 <= summary.median <= summary.p90
    assert summary.best == (max(samples) if higher else min(samples))
    assert summary.n == len(samples)
    assert summary.cv >= 0


@given(SAMPLES, st.floats(0.01, 1000))
def test_spread_does_not_depend_on_the_unit(samples: list[float], factor: float) -> None:
    scaled = stats.coefficient_of_variation([sample * factor for sample in samples])
    assert scaled == pytest.approx(stats.coefficient_of_variation(samples), rel=1e-6, abs=1e-9)


def test_spread_of_known_samples() -> None:
    assert stats.coefficient_of_variation([9.0, 11.0]) == pytest.approx(math.sqrt(2) / 10)
    assert stats.coefficient_of_variation([5.0]) == 0
    assert stats.coefficient_of_variation([0.0, 0.0]) == 0


def test_p99_takes_a_thousand_samples() -> None:
    assert stats.p99([1.0] * 999) is None
    assert stats.p99([float(i) for i in range(1, 1001)]) == 990.0


STEADY = [10.0, 10.1, 9.9, 10.0]


def _judge(samples: list[float], **how: object) -> str:
    options: dict[str, object] = {"higher_is_better": True, "unit": "GB/s", **how}
    summary = stats.summarize(samples, higher_is_better=bool(options["higher_is_better"]))
    verdict, why = stats.judge(summary, **options)  # type: ignore[arg-type]
    assert (why is None) == (verdict == "ok")
    return verdict


def test_steady_and_in_the_band_is_ok() -> None:
    assert _judge(STEADY) == "ok"
    assert _judge(STEADY, band=(5.0, 20.0), peak=12.0) == "ok"
    assert _judge(STEADY, higher_is_better=False, band=(5.0, 20.0), peak=9.0) == "ok"


def test_more_than_the_peak_is_implausible() -> None:
    assert _judge(STEADY, peak=10.0) == "ok", "rounding is allowed"
    assert _judge(STEADY, peak=9.5) == "implausible"
    assert _judge(STEADY, higher_is_better=False, peak=10.5) == "implausible"
    assert _judge([1.0, 30.0, 2.0], peak=9.5) == "implausible", "before noisy: it is wrong however unsteady"


def test_outside_the_band() -> None:
    assert _judge(STEADY, band=(20.0, 40.0)) == "low"
    assert _judge(STEADY, band=(1.0, 5.0)) == "implausible"
    assert _judge(STEADY, higher_is_better=False, band=(1.0, 5.0)) == "low", (
        "a latency is poor when it is high"
    )
    assert _judge(STEADY, higher_is_better=False, band=(20.0, 40.0)) == "implausible"


def test_spread_makes_noisy() -> None:
    assert _judge([10.0, 12.5, 8.0, 10.0]) == "noisy"
    assert _judge([10.0, 12.5, 8.0, 10.0], max_cv=None) == "ok", "there the spread is the result"
    assert _judge([10.0, 10.0]) == "noisy", "two samples have no spread to speak of"
