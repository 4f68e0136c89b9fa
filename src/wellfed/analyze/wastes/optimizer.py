"""An optimizer that updates each tensor by operators of its own, where one fused kernel passes over all of them."""

import math
import re

from wellfed.analyze.op_chain import NO_OP
from wellfed.analyze.replay import Edit
from wellfed.analyze.wastes.seen import POINTS, Seen, Waste, dearest
from wellfed.model.counting import counted
from wellfed.predict.roofline import GOOD_KERNEL

STREAMS = {"Adam": 7, "AdamW": 7, "Adagrad": 5, "SGD": 5}
"""Tensors of the size of the parameters that one pass reads and writes: parameter, gradient and states read, parameter
and states written (SGD: with momentum). Those for which PyTorch has `fused=True`."""
FOREACH = {
    "_foreach_lerp_": 3, "_foreach_addcmul_": 3, "_foreach_addcdiv_": 4, "_foreach_sqrt": 2, "_foreach_mul_": 2,
    "_foreach_mul": 2,
}  # fmt: skip
"""The same of the multi-tensor operators whose arguments leave no doubt."""
EACH = {"lerp_": 3, "addcmul_": 3, "addcdiv_": 4, "sqrt": 2}
"""The same of operators called for each tensor (`addcmul_` squares the gradient, which is read once)."""
OF_SGD = {"mul_": 2, "add_": 6}
"""The same of SGD: the momentum is scaled once, and two sums are made."""
LAUNCH_NS = 1_500.0
"""What a kernel over next to nothing takes: not a matter of bytes."""
FUSED_HOST = {"low": (200_000.0, 8_000.0), "expected": (80_000.0, 4_500.0), "high": (40_000.0, 2_500.0)}
"""Host time of a fused step (ns) and more for each tensor, besides the walk over the parameters, which is before the first
launch either way. In all 95 us and 5.7 us a tensor (AdamW of 32, 144 and 288 tensors, torch 2.11, Xeon host of an H200,
not recorded); the for-loop took 119 us a tensor, foreach 18 to 27."""
STAYS = {"low": 0.4, "expected": 0.1, "high": 0.0}
"""Share of the host's time for launches gone that is not spared: recording slows the many small operators of an optimizer
more than the forward pass with its modules."""
_STEP = re.compile(r"^Optimizer\.step#(\w+)\.step")
MANY = 20
"""Launches a step below which nothing is to be had."""


def unfused_optimizer(seen: Seen) -> list[Waste]:
    """The kernels of optimizer steps that are not fused, replaced by one pass."""
    t = seen.timeline
    events = [e for e in seen.order if seen.in_optimizer[e] and not _fused(seen, e)]
    if len(events) < MANY * seen.per:
        return []
    kind = _kind(seen, events)
    if kind not in STREAMS:
        return []
    size = _parameter_bytes(seen, events, kind)
    tensors = _tensors(seen)
    if size is None or not tensors:
        return []
    firsts: dict[int, int] = {}
    for event in events:
        firsts.setdefault(int(seen.step_of[event]), event)
    edits: list[Edit] = []
    gone = frozenset(events) - frozenset(firsts.values())
    old = seen.total_ns(events) / max(len(firsts), 1)
    for point in POINTS:
        of = GOOD_KERNEL[point]
        new = STREAMS[kind] * size / (seen.roof.bytes_per_s * of.memory) * 1e9 + of.floor_ns
        base, each = FUSED_HOST[point]
        edits.append(
            Edit(
                duration={e: min(new, old) for e in firsts.values()},
                gone=gone,
                host=dict.fromkeys(firsts.values(), base + each * tensors),
                stays=STAYS[point],
            )
        )
    names: dict[int, tuple[float, float, str]] = {}
    for event in events:
        row = int(seen.calls.row[event])
        op = t.names[t.name[row]] if row != NO_OP else "kernels"
        length = float(seen.length[event])
        names[event] = (
            length,
            length,
            f"{kind}: {op}, {counted(len(events) / seen.per, 'kernel')} in all",
        )
    return [
        Waste(
            name="unfused-optimizer",
            edits=(edits[0], edits[1], edits[2]),
            kernel_ns=seen.total_ns(events) / seen.per,
            kernels=len(events) / seen.per,
            text=f"{kind} updates {counted(tensors, 'tensor')} by {counted(len(events) / seen.per, 'kernel')} a step",
            lines=dearest(seen, names),
        )
    ]


def _fused(seen: Seen, event: int) -> bool:
    t = seen.timeline
    return any(
        "_fused_" in t.names[t.name[row]] for row in seen.chain.rows[:, event].tolist() if row != NO_OP
    )


def _kind(seen: Seen, events: list[int]) -> str:
    """The class of the optimizer, by the annotation of its step."""
    t = seen.timeline
    for row in seen.chain.rows[:, events[0]].tolist():
        found = _STEP.match(t.names[t.name[row]]) if row != NO_OP else None
        if found:
            return found[1]
    return ""


def _parameter_bytes(seen: Seen, events: list[int], kind: str) -> float | None:
    """Bytes of all parameters: what the operators of the step went over, or how long those took that are known by name."""
    sizes: dict[str, float] = {}
    times: dict[str, list[float]] = {}
    t = seen.timeline
    for row, mine in seen.by_call(events).items():
        call = seen.call(mine[0]) if row != NO_OP else None
        first = call.sized(0) if call is not None else None
        if call is not None and first is not None:
            key = f"{call.name} {len(call.dims)}"
            sizes[key] = sizes.get(key, 0.0) + math.prod(first) * (call.element_bytes(0) or 4.0)
    most = max(sizes.values(), default=0.0)
    # an operator may be called twice for each parameter: the least of those that go over all of them
    alike = [v for v in sizes.values() if v >= 0.4 * most]
    if alike and most > 0:
        return min(alike) / seen.per
    known = {**FOREACH, **(OF_SGD if kind == "SGD" else EACH)}
    for event in events:
        names = [
            t.names[t.name[r]].removeprefix("aten::") for r in seen.chain.rows[:, event].tolist() if r >= 0
        ]
        told = next((n for n in reversed(names) if n in known), None)
        if told is not None:
            times.setdefault(told, []).append(max(float(seen.length[event]) - LAUNCH_NS, 100.0))
    reach = seen.roof.bytes_per_s * GOOD_KERNEL["expected"].memory / 1e9
    # mul_ and the like may run more than once over the parameters: the smallest is taken
    guesses = [sum(v) / seen.per / known[k] * reach for k, v in times.items()]
    return sorted(guesses)[len(guesses) // 2] if guesses else None


def _tensors(seen: Seen) -> float:
    """Parameters that get a gradient in a step: how often autograd accumulates one, else the calls of the operator
    that the optimizer makes least often for each."""
    t = seen.timeline
    rows = [i for i, n in enumerate(t.names) if n == "torch::autograd::AccumulateGrad"]
    count = 0
    if rows:
        starts = t.ts[t.name == rows[0]]
        count = sum(
            int(((starts >= a) & (starts < b)).sum())
            for a, b in zip(seen.steps.start, seen.steps.end, strict=True)
        )
    return count / seen.per or float(
        len({int(seen.calls.row[e]) for e in seen.order if seen.in_optimizer[e]}) / 10 / seen.per
    )
