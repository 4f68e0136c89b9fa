"""Gains are ceilings that compose; they never add.

Removing one thing from a step reveals what it hid, so the gain of two cures is not the sum of their gains.
Where a replay is at hand the joint cure is replayed. Where there are only numbers, these bounds hold.
"""

from collections.abc import Sequence


def speedup(step: float, saved: float) -> float:
    """T / (T - R): the speed-up of taking `saved` off a step (same unit). Raises ValueError unless
    0 <= saved < step."""
    if not 0 <= saved < step:
        raise ValueError(f"cannot take {saved} off a step of {step}")
    return step / (step - saved)


def compose(
    step: float, saved: Sequence[float], *, floor: float = 0.0, disjoint: bool
) -> tuple[float, float]:
    """The speed-up of several cures together as (low, high), given what each saves alone of `step`.

    Together they save at least as much as the best one alone and at most the sum. `disjoint` says that the
    savings are of different parts of the step, one after the other: then the sum is what they save (Amdahl).
    `floor` is time that no cure removes (the device's busy time, say): no step gets below it."""
    if step <= 0:
        raise ValueError("a step takes time")
    room = max(step - floor, 0.0)
    best = min(max(saved, default=0.0), room)
    total = min(sum(saved), room)
    ceiling = step * (1 - 1e-12)
    high = speedup(step, min(total, ceiling))
    return (high if disjoint else speedup(step, min(best, ceiling))), high


def share(speedup_value: float) -> float:
    """The share of the step that a speed-up takes off: 1 - 1/s; 0 for no speed-up."""
    return 1.0 - 1.0 / speedup_value if speedup_value > 1.0 else 0.0
