"""Whether one command differs from another, from pairs of runs next to each other, A B, B A, A B, ...

Of each pair counts the difference of the logs of its two; what drifts evenly has opposite signs in neighbouring pairs. Over the
pairs stand the Hodges-Lehmann estimate and the exact interval of Wilcoxon's signed ranks (`predict.ab`): no normal
distribution is assumed, and a few wild runs widen it instead of moving it.

It is looked several times, and stopped when it is decided. The error allowed (1 - confidence) is spent over the looks as
the square of the share of the runs that are in (Lan and DeMets, Biometrika 70, 1983; the power family with exponent 2), and
the parts are added (Bonferroni), so that a difference is seen where there is none in at most 1 - confidence of the
comparisons, however many looks there were. How often it is right on noise of several kinds: `benchmarks/ab_simulated.py`."""

import math
from collections.abc import Sequence

import numpy as np

from wellfed.model.ab import AbVerdict, Decision
from wellfed.model.base import replace
from wellfed.predict.ab import signed_rank_interval

CONFIDENCE = 0.99
EQUIVALENCE = 0.98
"""Confidence of the interval that must lie within the difference that matters for `no difference` to be said."""
LEAST = 0.05
"""The difference that matters, unless the user says otherwise."""
_STEPS = (0.2, 1 / 3, 0.5, 2 / 3, 5 / 6, 1.0)
_RESAMPLES = 1000


def looks(pairs: int) -> tuple[int, ...]:
    """After how many of at most so many pairs it is looked."""
    return tuple(dict.fromkeys(max(round(step * pairs), 1) for step in _STEPS))


def spent(look: int, pairs: int, confidence: float = CONFIDENCE) -> float:
    """The part of the allowed error that the look after `look` of `pairs` pairs may use."""
    before = max((one for one in looks(pairs) if one < look), default=0)
    return (1 - confidence) * ((look / pairs) ** 2 - (before / pairs) ** 2)


def least_pairs(confidence: float = CONFIDENCE) -> int:
    """Fewer can't show a difference at that confidence: their signs agree by chance too often."""
    pairs = 1
    while 2 / 2**pairs > spent(pairs, pairs, confidence):
        pairs += 1
    return pairs


def decide(
    a: Sequence[float],
    b: Sequence[float],
    *,
    pairs: int,
    higher_is_better: bool = False,
    confidence: float = CONFIDENCE,
    least: float = LEAST,
) -> Decision:
    """What the pairs say so far; `pairs` is how many there may be in all. Raises ValueError for values that have no log."""
    if len(a) != len(b) or not a:
        raise ValueError("a pair has one of each")
    if not all(math.isfinite(value) and value > 0 for value in (*a, *b)):
        raise ValueError("a metric is positive")
    differences = [math.log(y) - math.log(x) for x, y in zip(a, b, strict=True)]
    n = len(differences)
    error = spent(n, pairs, confidence) if n in looks(pairs) else spent(looks(pairs)[0], pairs, confidence)
    middle, low, high = signed_rank_interval(differences, 1 - error)
    _, near, far = signed_rank_interval(differences, EQUIVALENCE)
    return Decision(
        ratio=math.exp(middle),
        low=None if low is None else math.exp(low),
        high=None if high is None else math.exp(high),
        bootstrap=None,
        verdict=_verdict((low, high), (near, far), math.log1p(least), higher_is_better),
        n=n,
        confidence=confidence,
        ruled_out=least,
        within=None if near is None or far is None else (math.exp(near), math.exp(far)),
        within_confidence=EQUIVALENCE,
    )


def with_bootstrap(decision: Decision, a: Sequence[float], b: Sequence[float]) -> Decision:
    """The same, with the bootstrap's interval beside it. A look does without: it takes a tenth of a second."""
    if decision.n < 3:
        return decision
    differences = [math.log(y) - math.log(x) for x, y in zip(a, b, strict=True)]
    return replace(decision, bootstrap=bootstrap_interval(differences, decision.confidence))


def _verdict(
    seen: tuple[float | None, float | None],
    ruled_out: tuple[float | None, float | None],
    least: float,
    higher_is_better: bool,
) -> AbVerdict:
    (low, high), (near, far) = seen, ruled_out
    if low is not None and high is not None and (low > 0 or high < 0):
        if max(abs(low), abs(high)) <= least / 5:
            return "no difference"  # seen, and a fifth of what matters at most
        return "better" if (low > 0) == higher_is_better else "worse"
    if near is not None and far is not None and near > -least and far < least:
        return "no difference"
    return "undecided"


def bootstrap_interval(differences: Sequence[float], confidence: float) -> tuple[float, float]:
    """The percentile interval of the Hodges-Lehmann estimate over resampled pairs, as ratios. The seed is the number of pairs:
    the same runs give the same interval."""
    n = len(differences)
    draw = np.random.default_rng(n)
    rows, columns = np.triu_indices(n)
    values = np.asarray(differences)
    found = np.empty(_RESAMPLES)
    for at in range(_RESAMPLES):
        sample = values[draw.integers(0, n, n)]
        found[at] = np.median(sample[rows] + sample[columns]) / 2
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return math.exp(low), math.exp(high)
