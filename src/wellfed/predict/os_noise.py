"""What the gaps that an operating system leaves in a CPU's time cost work that waits for its slowest rank.

Pure arithmetic on the gaps of one CPU: (start, length) in ns within an observed time. The model takes the ranks as
independent and alike; daemons that wake everywhere at once make it pessimistic, one bad CPU among good ones optimistic.
"""

import math
from collections.abc import Iterable, Sequence

Gap = tuple[int, int]
"""Start and length in ns."""

TICKS_NS = (1_000_000, 2_500_000, 3_333_333, 4_000_000, 10_000_000)
"""Kernel ticks of 1000, 400, 300, 250 and 100 Hz."""
_CONCENTRATED = 0.5
_FEWEST = 12


def lost_by_step(gaps: Iterable[Gap], duration_ns: int, step_ns: int) -> list[int]:
    """Time lost in each whole step of the observed time, ns. A gap across a border is split at it."""
    steps = duration_ns // step_ns
    lost = [0] * steps
    for start, length in gaps:
        at, end = start, min(start + length, steps * step_ns)
        while at < end:
            number = at // step_ns
            border = min((number + 1) * step_ns, end)
            lost[number] += border - at
            at = border
    return lost


def expected_max(samples: Sequence[float], draws: int) -> float:
    """E[max of `draws` independent draws from the samples]: sum over the sorted samples x_i of
    x_i ((i/n)^draws - ((i-1)/n)^draws). Never above the largest sample, so with more draws than samples it is a bound
    from below."""
    n = len(samples)
    if n == 0:
        return 0.0
    powers = [(i / n) ** draws for i in range(n + 1)]
    return math.fsum(x * (powers[i + 1] - powers[i]) for i, x in enumerate(sorted(samples)))


def bulk_synchronous_slowdown(
    gaps: Iterable[Gap], duration_ns: int, step_ns: int, ranks: int
) -> float | None:
    """By how much a step of `step_ns` grows when `ranks` ranks wait for each other at its end: E[max over ranks of the
    time lost in it] / step. None when fewer than ten steps were observed."""
    lost = lost_by_step(gaps, duration_ns, step_ns)
    return expected_max(lost, ranks) / step_ns if len(lost) >= 10 else None


def tick_period_ns(starts: Sequence[int]) -> int | None:
    """The kernel tick that the gaps follow, None when they follow none: the longest period of `TICKS_NS` around whose
    phase the starts gather (mean resultant length of the phases above a half; Mardia and Jupp, Directional Statistics,
    2000). A tick also fits its own fractions, so the longest that fits is the one."""
    if len(starts) < _FEWEST:
        return None
    for period in reversed(TICKS_NS):
        angles = [2 * math.pi * (start % period) / period for start in starts]
        if math.hypot(
            math.fsum(map(math.cos, angles)), math.fsum(map(math.sin, angles))
        ) > _CONCENTRATED * len(starts):
            return period
    return None
