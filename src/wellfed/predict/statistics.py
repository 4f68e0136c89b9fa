"""From samples to a judged number. Pure arithmetic on lists; nothing here measures.

Percentiles are nearest rank: each is a sample that occurred. Rates are better when higher, latencies when
lower; `best` follows. A percentile beyond what n samples can carry (p99 of 100 is the maximum) is not given.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from wellfed.model.ceiling import CeilingVerdict

NOISY_CV = 0.10
"""Relative spread from which on a repeated measurement says more about the neighbours than the machine."""
MIN_SAMPLES = 3
"""Two samples agree or not by chance."""
OVER_PEAK = 1.02
"""Clocks and published peaks are rounded; more than 2 % above a peak is a mistake in one of the two."""
_P99_SAMPLES = 1000


class Summary(NamedTuple):
    """`cv` is the sample standard deviation over the mean; 0 for a single sample."""

    best: float
    median: float
    p10: float
    p90: float
    n: int
    cv: float


def percentile(samples: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile, 0 < percent <= 100, of at least one sample."""
    assert samples and 0 < percent <= 100
    return sorted(samples)[math.ceil(percent / 100 * len(samples)) - 1]


def p99(samples: Sequence[float]) -> float | None:
    """None below 1000 samples: it would be little else than the maximum."""
    return percentile(samples, 99) if len(samples) >= _P99_SAMPLES else None


def summarize(samples: Sequence[float], *, higher_is_better: bool) -> Summary:
    """The spread of at least one sample."""
    return Summary(
        best=max(samples) if higher_is_better else min(samples),
        median=percentile(samples, 50),
        p10=percentile(samples, 10),
        p90=percentile(samples, 90),
        n=len(samples),
        cv=coefficient_of_variation(samples),
    )


def coefficient_of_variation(samples: Sequence[float]) -> float:
    """Sample standard deviation over the mean; 0 when there is one sample or the mean is 0."""
    mean = math.fsum(samples) / len(samples)
    if len(samples) < 2 or mean == 0:
        return 0.0
    variance = math.fsum((sample - mean) ** 2 for sample in samples) / (len(samples) - 1)
    return math.sqrt(variance) / abs(mean)


def judge(
    summary: Summary,
    *,
    higher_is_better: bool,
    unit: str,
    band: tuple[float, float] | None = None,
    peak: float | None = None,
    max_cv: float | None = NOISY_CV,
) -> tuple[CeilingVerdict, str | None]:
    """The verdict and, unless it is `ok`, why. What can't be comes before what is poor, and that before what
    is unsteady: a number above the peak is wrong however steady it is. `max_cv` None: the spread is what was
    measured, not a fault of the measurement."""
    best = summary.best
    if peak is not None and (best > OVER_PEAK * peak if higher_is_better else best < peak / OVER_PEAK):
        return "implausible", f"{best:.4g} {unit} is better than the peak of {peak:.4g} {unit}"
    if band is not None:
        low, high = band
        if best > high if higher_is_better else best < low:
            return (
                "implausible",
                f"{best:.4g} {unit} is better than anything known ({high if higher_is_better else low:.4g})",
            )
        if best < low if higher_is_better else best > high:
            return "low", f"{best:.4g} {unit} is outside the usual {low:.4g} to {high:.4g} {unit}"
    if summary.n < MIN_SAMPLES:
        return "noisy", f"only {summary.n} of the {MIN_SAMPLES} samples that a spread takes"
    if max_cv is not None and summary.cv > max_cv:
        return "noisy", f"the {summary.n} samples vary by {summary.cv:.0%} (standard deviation over mean)"
    return "ok", None
