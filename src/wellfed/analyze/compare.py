"""Two recordings of one rank: what each part of a step and each operator took in both, with exact bookkeeping."""

from collections.abc import Callable, Iterable, Sequence
from math import comb, exp, hypot, log
from typing import Any, Literal

from wellfed.analyze.causes import CAUSES
from wellfed.analyze.step_budget import clean_medians
from wellfed.model.comparison import Basis, Delta, Presence, RankComparison, StepTime, WorkDelta
from wellfed.model.trace import Budget, RankTrace, StepBudget, StepWork, WorkRow

COVERAGE = 0.8
"""Of the interval of a median, as gains have it."""
OPERATORS_FROM = 0.5
"""Share of the time that must be under an operator's name before times are told by operator."""
ALIKE_FROM = 0.5
"""Share of the time under names that both have, below which two recordings may not be of one model."""
BUSY_DRIFT, IDLE_DRIFT = 0.007, 0.10
"""What the same loop, not recorded, took more or less a minute later: 0.6 % at most in four of five of 17 loops that the GPU
bounds, 7.6 % in those of 23 that the host bounds and whose GPU idles for about three quarters (labels of the sets
`fresh`, `kind` and `held`, docs/validation/trace.md)."""
FEW_STEPS = 3
WIDE = 1.5
WIDE_NOTE = (
    "what recording cost is known roughly only, which makes the interval wide; a step timed without the profiler "
    "narrows it: `wellfed trace A --step-ms X --save a.case`, the same for B, then compare the cases"
)
KERNELS_SHOWN = 3
REST = "(smaller ones together)"

_PART_NAMES = ("compute", "exposed-comm", "exposed-copy", "idle")

Totals = tuple[Budget | StepBudget, dict[str, int], StepTime]


def compare_ranks(a: RankTrace, b: RankTrace) -> RankComparison | None:
    """The comparison of one rank and device with another; None when one has no GPU event."""
    if a.budget is None or b.budget is None:
        return None
    basis = _basis(a, b)
    totals_a, totals_b = _totals(a, basis), _totals(b, basis)
    step_a, step_b = totals_a[2], totals_b[2]
    identical = same_recording(a, b)
    speedup = low = high = None
    if basis != "capture" and step_a.ns and step_b.ns:
        speedup = 1.0 if identical else step_a.ns / step_b.ns
        low, high = (1.0, 1.0) if identical else _interval(a, b, basis, speedup)
    by = _work_by(a, b)
    per_step = basis != "capture"
    work = _work(a.work, b.work, _key(by), per_step=per_step) if by and a.work and b.work else ()
    kernels = _work(a.work, b.work, _key("kernel"), per_step=per_step) if by and a.work and b.work else ()
    notes = list(_notes(a, b, basis, work))
    if identical:
        notes = ["A and B are one and the same recording"]
    elif basis == "unprofiled" and low is not None and high is not None and high > WIDE * low:
        notes.append(WIDE_NOTE)
    return RankComparison(
        rank=b.rank,
        device=b.device,
        a_gpu=a.gpu,
        b_gpu=b.gpu,
        basis=basis,
        identical=identical,
        a=step_a,
        b=step_b,
        speedup=speedup,
        low=low,
        high=high,
        budget=_deltas(_parts(totals_a[0]), _parts(totals_b[0])),
        idle=_deltas(totals_a[1], totals_b[1]),
        a_launches=_launches(a.work, per_step),
        b_launches=_launches(b.work, per_step),
        work_by=by,
        work=work,
        kernels=kernels,
        notes=tuple(notes),
    )


def same_recording(a: RankTrace, b: RankTrace) -> bool:
    """Whether two are the same file read twice (or copies of it): every event at the same instant."""
    same = ("gpu", "device", "budget", "idle", "gpu_events", "step_parts", "kernels", "comm", "ops", "work")
    if a.budget is None or any(getattr(a, name) != getattr(b, name) for name in same):
        return False
    return [(s.start_ns, s.end_ns) for s in a.steps] == [(s.start_ns, s.end_ns) for s in b.steps]


def _interval(
    a: RankTrace, b: RankTrace, basis: Basis, speedup: float
) -> tuple[float, float] | tuple[None, None]:
    """Of a's step over b's: what recording may have cost, each at its own worst (recordings of one loop with and without
    arguments cost unlike); what the steps of each differ by and what two runs of one loop do, which are independent and
    add in quadrature (of logarithms). Of 63 loops that were recorded twice, once so and once so, 50 have 1 inside."""
    spread = [median_interval([row["span_ns"] for row in _inner(rank.step_parts)]) for rank in (a, b)]
    middle = [sorted(row["span_ns"] for row in _inner(rank.step_parts)) for rank in (a, b)]
    if not all(middle) or not all(s[0] > 0 for s in spread):
        return None, None
    mid_a, mid_b = (m[len(m) // 2] for m in middle)
    again = max(_run_to_run(a), _run_to_run(b))
    down = hypot(log(mid_a / spread[0][0]), log(spread[1][1] / mid_b), again)
    up = hypot(log(spread[0][1] / mid_a), log(mid_b / spread[1][0]), again)
    least = most = speedup
    if basis == "unprofiled":
        of_a, of_b = _unprofiled(a), _unprofiled(b)
        ratios = [x / y for x in of_a.values() for y in of_b.values()]
        least, most = min(*ratios, speedup), max(*ratios, speedup)
    return least * exp(-down), most * exp(up)


def _run_to_run(rank: RankTrace) -> float:
    """How far (as a logarithm) two runs of one loop are apart in four of five cases, by what it waits for."""
    budget = rank.step_budget or rank.budget
    idle = budget.idle_ns / budget.span_ns if budget is not None and budget.span_ns else 0.0
    return BUSY_DRIFT * (1 - idle) + IDLE_DRIFT * idle


def matched(
    a: Sequence[RankTrace], b: Sequence[RankTrace]
) -> tuple[list[tuple[RankTrace, RankTrace]], list[RankTrace], list[RankTrace]]:
    """Pairs of the same rank and device, and those that only one has. One against one is a pair whatever their
    numbers."""
    if len(a) == 1 and len(b) == 1:
        return [(a[0], b[0])], [], []
    of_b = {(r.rank, r.device): r for r in b}
    of_a = {(r.rank, r.device): r for r in a}
    pairs = [(r, of_b[key]) for key, r in of_a.items() if key in of_b]
    return (
        pairs,
        [r for key, r in of_a.items() if key not in of_b],
        [r for key, r in of_b.items() if key not in of_a],
    )


# -- steps ------------------------------------------------------------------------------------------------


def _basis(a: RankTrace, b: RankTrace) -> Basis:
    """What both can be compared by: never the profiled step of one with the unprofiled one of the other."""
    if a.step_budget is None or b.step_budget is None:
        return "capture"
    return "unprofiled" if _unprofiled(a) and _unprofiled(b) else "recorded"


def _unprofiled(rank: RankTrace) -> dict[str, int]:
    found: dict[str, int] = rank.replay.get("unprofiled_step_ns") or {}
    return found


def _totals(rank: RankTrace, basis: Basis) -> Totals:
    assert rank.budget is not None
    if basis == "capture" or rank.step_budget is None:
        return rank.budget, rank.idle, StepTime(ns=rank.budget.span_ns)
    spans = sorted(row["span_ns"] for row in _inner(rank.step_parts))
    if basis == "unprofiled":
        points = _unprofiled(rank)
        low, high = median_interval(spans)
        middle = spans[len(spans) // 2] if spans else 0
        known = StepTime(
            ns=rank.step_budget.span_ns,
            low_ns=round(min(points.values()) * (low / middle if middle else 1)),
            high_ns=round(max(points.values()) * (high / middle if middle else 1)),
            steps=rank.step_budget.n,
        )
        return rank.step_budget, rank.step_idle, known
    found = clean_medians([_budget(row) for row in rank.step_parts], [_idle(row) for row in rank.step_parts])
    budget, idle = found if found is not None else (rank.step_budget, rank.step_idle)
    low, high = median_interval(spans)
    return budget, idle, StepTime(ns=budget.span_ns, low_ns=low or None, high_ns=high or None, steps=budget.n)


def median_interval(values: Sequence[int]) -> tuple[int, int]:
    """Order statistics that hold the median with `COVERAGE` (binomial, no assumption on the distribution); smallest
    and largest where too few values allow no more. (0, 0) without values."""
    ordered = sorted(values)
    n = len(ordered)
    if not n:
        return 0, 0
    if n > 400:  # the binomial as a normal distribution: 1.2816 standard deviations hold 80 %
        drop = int(n / 2 - 1.2816 / 2 * n**0.5)
        return ordered[drop], ordered[n - 1 - drop]
    drop, outside = 0, 1 / 2**n
    while drop + 1 < n - 1 - drop and 2 * (outside + comb(n, drop + 1) / 2**n) <= 1 - COVERAGE:
        drop += 1
        outside += comb(n, drop) / 2**n
    return ordered[drop], ordered[n - 1 - drop]


def _inner(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    return rows[1:-1] if len(rows) >= 5 else rows


def _budget(row: dict[str, Any]) -> Budget:
    return Budget(**{name: row[name] for name in Budget.__struct_fields__})


def _idle(row: dict[str, Any]) -> dict[str, int]:
    return {cause: row.get("idle", {}).get(cause, 0) for cause in CAUSES}


def _parts(budget: Budget | StepBudget) -> dict[str, int]:
    parts = (budget.compute_ns, budget.exposed_comm_ns, budget.exposed_copy_ns, budget.idle_ns)
    return dict(zip(_PART_NAMES, parts, strict=True))


def _deltas(a: dict[str, int], b: dict[str, int]) -> tuple[Delta, ...]:
    order = {name: at for at, name in enumerate((*_PART_NAMES, *CAUSES))}  # a saved case has them by name
    names = sorted({*a, *b}, key=lambda name: (order.get(name, len(order)), name))
    return tuple(
        Delta(name=n, a_ns=a.get(n, 0), b_ns=b.get(n, 0), delta_ns=b.get(n, 0) - a.get(n, 0)) for n in names
    )


# -- work -------------------------------------------------------------------------------------------------


def _work_by(a: RankTrace, b: RankTrace) -> Literal["operator", "kernel", "family"] | None:
    """Operators where both have them; kernels of one GPU have one name, those of two GPUs one family at best."""
    if a.work is None or b.work is None:
        return None
    if min(_operator_share(a.work), _operator_share(b.work)) >= OPERATORS_FROM:
        return "operator"
    return "kernel" if a.gpu == b.gpu else "family"


def _operator_share(work: StepWork) -> float:
    return sum(r.total_ns for r in work.rows if r.op) / max(work.total_ns, 1)


def _key(by: str) -> Callable[[WorkRow], str]:
    keys: dict[str, Callable[[WorkRow], str]] = {
        "operator": lambda row: row.op or f"(no operator) {row.family}",
        "kernel": lambda row: row.kernel,
        "family": lambda row: row.family,
    }
    return keys[by]


def _work(
    a: StepWork, b: StepWork, key: Callable[[WorkRow], str], *, per_step: bool
) -> tuple[WorkDelta, ...]:
    """By name, the largest change first. Each side's times sum to its total of a step exactly."""
    times_a, times_b = _times(a, key, per_step), _times(b, key, per_step)
    counts_a, counts_b = _counts(a, key, per_step), _counts(b, key, per_step)
    kernels_a, kernels_b = _longest(a, key), _longest(b, key)
    complete_a, complete_b = not a.rest_count, not b.rest_count
    rows = []
    for name in dict.fromkeys([*times_a, *times_b]):
        in_a, in_b = name in times_a, name in times_b
        presence: Presence = "both"
        if name != REST and not (in_a and in_b):
            there = "new" if in_b else "gone"
            presence = there if (complete_a if in_b else complete_b) else "unlisted"  # type: ignore[assignment]
        before, after = times_a.get(name, 0), times_b.get(name, 0)
        rows.append(
            WorkDelta(
                name=name,
                a_ns=before,
                b_ns=after,
                delta_ns=after - before,
                a_count=counts_a.get(name, 0.0),
                b_count=counts_b.get(name, 0.0),
                presence=presence,
                a_kernels=kernels_a.get(name, ()),
                b_kernels=kernels_b.get(name, ()),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-abs(row.delta_ns), -row.a_ns, row.name)))


def _grouped(
    work: StepWork, key: Callable[[WorkRow], str], value: Callable[[WorkRow], int]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in work.rows:
        found[key(row)] = found.get(key(row), 0) + value(row)
    return found


def _times(work: StepWork, key: Callable[[WorkRow], str], per_step: bool) -> dict[str, int]:
    totals = _grouped(work, key, lambda row: row.total_ns)
    if work.rest_count:
        totals[REST] = work.rest_ns
    n = work.steps if per_step else 1
    return dict(zip(totals, apportion(list(totals.values()), n), strict=True))


def _counts(work: StepWork, key: Callable[[WorkRow], str], per_step: bool) -> dict[str, float]:
    counts = _grouped(work, key, lambda row: row.count)
    if work.rest_count:
        counts[REST] = work.rest_count
    n = work.steps if per_step else 1
    return {name: count / max(n, 1) for name, count in counts.items()}


def _longest(work: StepWork, key: Callable[[WorkRow], str]) -> dict[str, tuple[str, ...]]:
    """The rows are in order of time."""
    found: dict[str, dict[str, None]] = {}
    for row in work.rows:
        found.setdefault(key(row), {})[row.kernel] = None
    return {name: tuple(kernels)[:KERNELS_SHOWN] for name, kernels in found.items()}


def apportion(totals: Sequence[int], n: int) -> list[int]:
    """Each total over `n`, in whole ns, such that they sum to the rounded whole over `n` (largest remainders)."""
    n = max(n, 1)
    shares = [total // n for total in totals]
    missing = (2 * sum(totals) + n) // (2 * n) - sum(shares)
    by_remainder = sorted(range(len(totals)), key=lambda k: (-(totals[k] % n), k))
    for k in by_remainder[:missing]:
        shares[k] += 1
    return shares


def _launches(work: StepWork | None, per_step: bool) -> float | None:
    return None if work is None else work.launches / (max(work.steps, 1) if per_step else 1)


# -- what weakens it --------------------------------------------------------------------------------------


def _notes(a: RankTrace, b: RankTrace, basis: Basis, work: Sequence[WorkDelta]) -> Iterable[str]:
    if basis == "capture":
        yield "no whole steps in one of the recordings: whole captures are compared, whatever work they hold"
    if basis == "recorded" and (_unprofiled(a) or _unprofiled(b)):
        which = "A" if _unprofiled(b) else "B"
        yield f"the steps of {which} could not be replayed: steps are compared as recorded, the profiler's cost in them"
    elif basis == "recorded":
        yield "no step could be replayed: steps are compared as recorded, the profiler's cost in them"
    few = [name for name, rank in (("A", a), ("B", b)) if rank.step_budget and rank.step_budget.n < FEW_STEPS]
    if few and basis != "capture":
        yield f"fewer than {FEW_STEPS} steps in {' and '.join(few)}: the interval does not hold how much steps differ"
    if a.gpu != b.gpu:
        yield f"different GPUs: {a.gpu or 'unknown'} and {b.gpu or 'unknown'}"
    total = sum(row.a_ns for row in work)
    alike = sum(row.a_ns for row in work if row.presence == "both" and row.name != REST)
    if total and alike < ALIKE_FROM * total:
        yield f"only {100 * alike / total:.0f} % of A's GPU time is under names that B has too: is it the same work?"
