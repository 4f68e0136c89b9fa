"""Repeating: warm up, then in turn, until the time is spent."""

import time
from collections.abc import Callable, Mapping

Run = Callable[[], float]
"""One run of a benchmark; returns one sample."""


def interleave(runs: Mapping[str, Run], budget_s: float, *, at_least: int = 3) -> dict[str, list[float]]:
    """Samples of each run, taken in turn so that a change of the weather hits all alike, forwards and
    backwards in alternation. The first sample of each is thrown away. At least `at_least` rounds, then more
    until the budget is spent."""
    deadline = time.monotonic() + budget_s
    for run in runs.values():
        run()
    samples: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    while len(samples[names[0]]) < at_least or time.monotonic() < deadline:
        for name in names:
            samples[name].append(runs[name]())
        names.reverse()
    return samples
