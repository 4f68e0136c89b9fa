"""The budget of a step: medians as recorded, and the step that nobody recorded."""

import numpy as np

from wellfed.analyze.causes import CAUSES
from wellfed.analyze.replay import Replayed
from wellfed.model.trace import Budget, StepBudget


def budget_parts(budget: Budget) -> dict[str, int]:
    return {
        "compute_ns": budget.compute_ns,
        "exposed_comm_ns": budget.exposed_comm_ns,
        "exposed_copy_ns": budget.exposed_copy_ns,
        "idle_ns": budget.idle_ns,
    }


def clean_medians(
    budgets: list[Budget], charged: list[dict[str, int]]
) -> tuple[StepBudget, dict[str, int]] | None:
    """Medians over the steps as recorded; the first and last are left out when five or more are there."""
    if not budgets:
        return None
    inner = slice(1, -1) if len(budgets) >= 5 else slice(None)
    budgets, charged = budgets[inner], charged[inner]
    parts = {k: median_ns([budget_parts(b)[k] for b in budgets]) for k in budget_parts(budgets[0])}
    idle = {c: median_ns([row[c] for row in charged]) for c in CAUSES}
    idle = scaled(idle, parts["idle_ns"])
    span = sum(parts.values())
    measured = median_ns([b.span_ns for b in budgets])
    return StepBudget(n=len(budgets), span_ns=span, traced_span_ns=measured, **parts), idle


def unprofiled_budget(
    plain: tuple[StepBudget, dict[str, int]] | None,
    free: Replayed,
    steps: int,
    recorded_ns: int,
    *,
    cpu_comm_ns: int = 0,
) -> tuple[StepBudget, dict[str, int]] | None:
    """The step nobody recorded, the mean of the `steps` replayed, which took `recorded_ns` as recorded: the device's
    work as recorded, the idle time as the replay has it. What the replay does not tell apart keeps its recorded proportion. `cpu_comm_ns` of the recorded `dependency-wait` is the
    host's wait for collectives on the CPU, which the replay does tell."""
    if plain is None:
        return None
    budget, recorded = plain
    idle_ns = max(round(free.step_ns - free.busy_ns), 0)
    work = budget.compute_ns + budget.exposed_comm_ns + budget.exposed_copy_ns
    factor = max(free.step_ns - idle_ns, 0.0) / work if work else 0.0
    compute = round(budget.compute_ns * factor)
    comm = round(budget.exposed_comm_ns * factor)
    copy = max(round(free.step_ns) - idle_ns - compute - comm, 0)
    way = ("launch-latency", "dependency-wait", "queue-wait", "pageable-copy")
    recorded = {**recorded, "dependency-wait": max(recorded["dependency-wait"] - cpu_comm_ns, 0)}
    total, rest = sum(recorded[c] for c in way), free.idle["launch-latency"]
    idle: dict[str, float] = {c: free.idle.get(c, 0.0) for c in CAUSES}
    if total:
        for c in way:
            idle[c] = rest * recorded[c] / total
    idle["dependency-wait"] += free.idle["dependency-wait"] if total else 0.0
    span = compute + comm + copy + idle_ns
    return (
        StepBudget(
            n=steps,
            span_ns=span,
            compute_ns=compute,
            exposed_comm_ns=comm,
            exposed_copy_ns=copy,
            idle_ns=idle_ns,
            traced_span_ns=recorded_ns,
        ),
        scaled({c: round(v) for c, v in idle.items()}, idle_ns),
    )


def median_ns(values: list[int]) -> int:
    return round(float(np.median(values))) if values else 0


def scaled(parts: dict[str, int], total: int) -> dict[str, int]:
    """The parts scaled so that they sum to `total` exactly (the largest takes the rounding)."""
    known = sum(parts.values())
    if known == 0:
        return {**parts, "unattributed": total}
    scaled = {k: v * total // known for k, v in parts.items()}
    scaled[max(scaled, key=lambda k: scaled[k])] += total - sum(scaled.values())
    return scaled
