"""Whether a change has an effect, from costs measured in the order A B B A, A B B A, ...

Each quadruple gives one number, the mean log cost of its two B less that of its two A: what drifts evenly in time
cancels in it, and what is slow (a neighbour who works for a minute) hits both. Over the quadruples stand the
Hodges-Lehmann estimate and the exact interval of Wilcoxon's signed ranks (Hollander, Wolfe, Chicken, *Nonparametric
Statistical Methods*, 3.1-3.3): they need no normal distribution, only that noise has no preferred sign, and a few
wild quadruples widen them rather than move them.

Measuring goes on until it is decided, so the error is shared out: with looks after 8, 12, 16 and 24 quadruples at
99 % each, a difference is seen where there is none in at most 4 of 100 proofs (Bonferroni), a wrong direction in 2.
"""

import math
from collections.abc import Sequence
from statistics import median

from wellfed.model.proof import Effect, EffectVerdict

LOOKS = (8, 12, 16, 24)
"""Numbers of quadruples after which it is looked whether it is decided. Fewer than 8 can't reach 99 %: their signs
agree by chance in 2 of 2^n."""
CONFIDENCE = 0.99
EQUIVALENCE = 0.95
"""Confidence of the interval that must lie within RESOLUTION for `none`: two one-sided tests at 2.5 % each (Schuirmann
1987); the wider interval must lie within twice that. An effect of just RESOLUTION is called none in at most 10 of 100 proofs of four looks, a greater one less often."""
LEAST = 0.03
"""Less is not called an effect: the measurements do nothing but what the knob is about, so 3 % of one is not felt in
a job."""
RESOLUTION = 0.10
"""`none` is only said when a greater effect than this is ruled out."""


def decide(
    a: Sequence[float],
    b: Sequence[float],
    *,
    confidence: float = CONFIDENCE,
    least: float = LEAST,
    resolution: float = RESOLUTION,
) -> Effect:
    """The effect of B over A on a cost. `a` and `b` hold the phases in the order of time: a[0] b[0] b[1] a[1],
    a[2] b[2] b[3] a[3], ... Raises ValueError unless both have the same even number of positive costs."""
    if len(a) != len(b) or len(a) % 2 or not a:
        raise ValueError("quadruples have two phases of each")
    if not all(math.isfinite(cost) and cost > 0 for cost in (*a, *b)):
        raise ValueError("a cost is positive")
    effects, drifts = _contrasts([math.log(x) for x in a], [math.log(x) for x in b])
    middle, low, high = signed_rank_interval(effects, confidence)
    _, near, far = signed_rank_interval(effects, min(confidence, EQUIVALENCE))
    # What the machine does by itself from phase to phase; a change that does no more than that shows nothing.
    band = max(math.log1p(least), abs(median(drifts)))
    return Effect(
        ratio=math.exp(middle),
        low=None if low is None else math.exp(low),
        high=None if high is None else math.exp(high),
        verdict=_verdict(middle, (low, high), (near, far), band, math.log1p(least), math.log1p(resolution)),
        n=len(effects),
        dead_band=math.exp(band),
        confidence=confidence,
    )


def signed_rank_interval(
    values: Sequence[float], confidence: float
) -> tuple[float, float | None, float | None]:
    """The median of the means of all pairs (each value with itself too), and the interval around it that holds the
    centre of a symmetric distribution with at least `confidence`; None, None when there are too few values."""
    n = len(values)
    means = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    ways, total, cut = rank_sum_ways(n), 0, 0
    while cut < len(means) and 2 * (total + ways[cut]) <= (1 - confidence) * 2**n + 1e-9:
        total += ways[cut]
        cut += 1
    if cut == 0:
        return median(means), None, None
    return median(means), means[cut - 1], means[len(means) - cut]


def rank_sum_ways(n: int) -> list[int]:
    """In how many of the 2^n ways of giving signs to the ranks 1..n the positive ones add to 0, 1, 2, ..."""
    ways = [1]
    for rank in range(1, n + 1):
        longer = ways + [0] * rank
        for total, count in enumerate(ways):
            longer[total + rank] += count
        ways = longer
    return ways


def _contrasts(a: Sequence[float], b: Sequence[float]) -> tuple[list[float], list[float]]:
    """Of each quadruple: what the change does, and what the same setting differs by between its two phases."""
    firsts = range(0, len(a), 2)
    effects = [(b[i] + b[i + 1] - a[i] - a[i + 1]) / 2 for i in firsts]
    drifts = [(a[i + 1] - a[i] + b[i + 1] - b[i]) / 2 for i in firsts]
    return effects, drifts


def _verdict(
    middle: float,
    seen: tuple[float | None, float | None],
    ruled_out: tuple[float | None, float | None],
    band: float,
    least: float,
    resolution: float,
) -> EffectVerdict:
    """`seen` is the interval that must leave zero out for an effect, `ruled_out` the one that must be near it for none."""
    (low, high), (near, far) = seen, ruled_out
    if low is None or high is None or near is None or far is None:
        return "noisy"
    if abs(middle) >= least:
        away = low > 0 or high < 0
        return ("better" if middle < 0 else "worse") if away and abs(middle) >= band else "noisy"
    close = max(abs(near), abs(far)) <= resolution and max(abs(low), abs(high)) <= 2 * resolution
    return "none" if close else "noisy"
