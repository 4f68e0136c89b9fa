"""Attention written out: scores of all pairs, softmax and product as kernels of their own, each over memory."""

import math
from typing import NamedTuple

from wellfed.analyze.op_chain import NO_OP
from wellfed.analyze.replay import Edit
from wellfed.analyze.shapes import Call
from wellfed.analyze.wastes.precision import good_ns
from wellfed.analyze.wastes.seen import HOST_STAYS, POINTS, Seen, Waste, dearest
from wellfed.model.counting import counted
from wellfed.predict.roofline import FLASH, GOOD_KERNEL, attention

_SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data", "aten::_safe_softmax")
_PRODUCTS = ("aten::bmm", "aten::baddbmm", "aten::baddbmm_")
FUSED_HOST = {"low": 120_000.0, "expected": 80_000.0, "high": 40_000.0}
"""Host time of one call of fused attention, forward or backward (ns): 145 to 275 us as recorded on an H200's host with
torch 2.11 (cuDNN), of which recording is a third to two thirds."""
HEAD = {"low": 128.0, "expected": 80.0, "high": 64.0}
"""Length of a head where it was not recorded."""
REACH = 24
"""Kernels from a softmax to a product of its own, at most: masks, scaling, dropout, casts, copies."""
_MASKS = ("masked_fill", "where", "add", "tril", "triu")


class Scores(NamedTuple):
    """Scores of `batch` (all heads) times `queries` times `keys`."""

    batch: int
    queries: int
    keys: int

    @property
    def total(self) -> int:
        return self.batch * self.queries * self.keys


def unfused_attention(seen: Seen) -> list[Waste]:
    """Kernels around softmaxes over scores between two batched products, replaced by one fused kernel forward and one
    backward. What else reads the scores cannot be seen: then the cure does not fit."""
    if not seen.shapes:
        return _by_names(seen)
    kinds: dict[Scores, list[int]] = {}
    for events in seen.by_call(seen.order).values():
        call = seen.call(events[0])
        if call is not None and call.name in _SOFTMAX and (found := scores_of(call.sized(0))):
            kinds.setdefault(found, []).append(events[0])
    gone: dict[str, set[int]] = {point: set() for point in POINTS}
    duration: dict[str, dict[int, float]] = {point: {} for point in POINTS}
    gains: dict[int, tuple[float, float, str]] = {}
    concerned: set[int] = set()
    for scores, softmaxes in kinds.items():
        group = _Group(seen, scores)
        if not group.products or group.head is None:
            continue
        concerned |= group.events | group.copies
        for point in POINTS:
            gone[point] |= group.events | (group.copies if point != "low" else set())
            causal = point == "high" or (point == "expected" and group.masked)
            for event in softmaxes:
                backward = "backward" in (seen.call(event) or group.products[0]).name
                cost = attention(
                    scores.batch, 1, 1, scores.queries, scores.keys, group.head, group.head,
                    causal=causal, element_bytes=group.element_bytes, backward=backward,
                )  # fmt: skip
                peak = seen.roof.flops_per_s.get(group.unit)
                if peak is None:
                    return []
                op = "attention_backward" if backward else "attention"
                duration[point][event] = good_ns(cost, op, peak, seen.roof.bytes_per_s, point)
        share = seen.total_ns(group.events) / max(len(softmaxes), 1)
        for event in softmaxes:
            text = f"scores of {scores.batch} x {scores.queries} x {scores.keys} in memory"
            gains[event] = (share, share, text)
    if not concerned or not seen.at_least(seen.total_ns(concerned)):
        return []
    return [_waste(seen, concerned, gone, duration, gains)]


def _waste(
    seen: Seen,
    concerned: set[int],
    gone: dict[str, set[int]],
    duration: dict[str, dict[int, float]],
    gains: dict[int, tuple[float, float, str]],
) -> Waste:
    made = [
        Edit(
            duration=duration[p],
            gone=frozenset(gone[p]) - frozenset(duration[p]),
            host=dict.fromkeys(duration[p], FUSED_HOST[p]),
            stays=HOST_STAYS[p],
        )
        for p in POINTS
    ]
    seen.claimed |= concerned
    return Waste(
        name="unfused-attention",
        edits=(made[0], made[1], made[2]),
        kernel_ns=seen.total_ns(concerned) / seen.per,
        kernels=len(concerned) / seen.per,
        text=f"attention in {counted(len(concerned) / seen.per, 'kernel')} a step, with every score written to memory and read back",
        lines=dearest(seen, gains),
    )


def _by_names(seen: Seen) -> list[Waste]:
    """The same where arguments were not recorded: a softmax with batched products on both sides and nothing between but
    light kernels. The scores are as many as the softmax can have gone over in its time; the length of a head is not
    known: 64 to 128, as is usual."""
    peak = seen.roof.flops_per_s.get("bf16") or seen.roof.flops_per_s.get("fp16")
    if peak is None:
        return []
    order, operators = seen.order, [seen.operator(e) for e in seen.order]
    light = [_is_light(seen, e, op) for e, op in zip(order, operators, strict=True)]
    duration: dict[str, dict[int, float]] = {point: {} for point in POINTS}
    gains: dict[int, tuple[float, float, str]] = {}
    concerned: set[int] = set()
    for at, (event, op) in enumerate(zip(order, operators, strict=True)):
        if op not in _SOFTMAX:
            continue
        backward = "backward" in op
        sides = [_side(operators, light, at, way, 2 if backward else 1) for way in (-1, 1)]
        if not all(sides):
            continue
        mine = [order[i] for side in sides for i in side]
        masked = any(f"::{word}" in operators[i] for side in sides for i in side for word in _MASKS)
        name = seen.name(event)
        half = "BFloat16" in name or "Half" in name
        width = (3.0 if "float" in name else 2.0) if half else 4.0
        moved = seen.length[event] / 1e9 * seen.roof.bytes_per_s * GOOD_KERNEL["expected"].memory
        scores = moved / (width * (3 if backward else 2))
        for point in POINTS:
            causal = point == "high" or (point == "expected" and masked)
            flops = (10.0 if backward else 4.0) * scores * HEAD[point] * (0.5 if causal else 1.0)
            forward_share, backward_share = FLASH[point]
            share = backward_share if backward else forward_share
            duration[point][event] = flops / (peak * share) * 1e9 + GOOD_KERNEL[point].floor_ns
        concerned |= {event, *mine}
        taken = seen.total_ns([event, *mine])
        gains[event] = (taken, taken, "batched products and a softmax between them")
    if not concerned or not seen.at_least(seen.total_ns(concerned)):
        return []
    return [_waste(seen, concerned, dict.fromkeys(POINTS, concerned), duration, gains)]


def _is_light(seen: Seen, event: int, operator: str) -> bool:
    return (
        operator not in _PRODUCTS
        and not seen.in_optimizer[event]
        and seen.family(event) in ("elementwise", "softmax", "reduce", "transpose", "random", "copy", "other")
    )


def _side(operators: list[str], light: list[bool], at: int, way: int, products: int) -> list[int]:
    """Positions from the softmax to the batched product beside it (backward: the two), [] where there is none."""
    found: list[int] = []
    kept, left = 0, products
    for i in range(at + way, at + way * (REACH + 1), way):
        if not 0 <= i < len(operators):
            break
        if operators[i] in _PRODUCTS:
            found.append(i)
            kept, left = len(found), left - 1
            if not left:
                break
        elif light[i] and operators[i] not in _SOFTMAX:
            found.append(i)
        else:
            break
    return found[:kept]


def scores_of(size: tuple[int, ...] | None) -> Scores | None:
    """Scores, if a softmax of this size can be over some: at least three dimensions, both sides longer than one."""
    if size is None or len(size) < 3 or min(size[-2:]) < 2:
        return None
    return Scores(math.prod(size[:-2]), size[-2], size[-1])


class _Group:
    """The events that work on scores of one size."""

    def __init__(self, seen: Seen, scores: Scores) -> None:
        self.events: set[int] = set()
        self.copies: set[int] = set()
        self.products: list[Call] = []
        self.head: int | None = None
        self.masked = False
        self.element_bytes = 2.0
        self.unit = "bf16"
        around: set[int] = set()
        for event in seen.order:
            call = seen.call(event)
            if call is None or seen.in_optimizer[event]:
                continue
            if call.name in _PRODUCTS:
                head = head_of(call, scores)
                if head is not None:
                    self.events.add(event)
                    self.products.append(call)
                    self.head = head
                    at = 1 if "baddbmm" in call.name else 0
                    self.element_bytes = call.element_bytes(at) or 2.0
                    self.unit = seen.unit(event) or "fp32"
                    around |= set(_matmuls(seen, event))
            elif any(_is_scores(call.tensor(i), scores) for i in range(len(call.dims))):
                self.events.add(event)
                self.masked |= any(f"::{word}" in call.name for word in _MASKS) and len(call.dims) > 1
        if around:
            for event in seen.order:
                if event not in self.events and around & set(_matmuls(seen, event)):
                    self.copies.add(event)


def head_of(call: Call, scores: Scores) -> int | None:
    """The length of a head, if this product makes or uses the scores."""
    at = 1 if "baddbmm" in call.name else 0
    left, right = call.sized(at), call.sized(at + 1)
    if left is None or right is None or len(left) != 3 or len(right) != 3 or left[0] != scores.batch:
        return None
    pair = {(scores.queries, scores.keys), (scores.keys, scores.queries)}
    if (left[1], right[2]) in pair:
        return left[2]
    if (left[1], left[2]) in pair:
        return right[2]
    return left[1] if (right[1], right[2]) in pair else None


def _is_scores(size: tuple[int, ...] | None, scores: Scores) -> bool:
    if not size or len(size) < 2 or math.prod(size) != scores.total:
        return False
    return size[-2:] in ((scores.queries, scores.keys), (scores.keys, scores.queries))


def _matmuls(seen: Seen, event: int) -> list[int]:
    """The calls of `aten::matmul` that the event was launched in."""
    t = seen.timeline
    rows = seen.chain.rows[:, event].tolist()
    return [row for row in rows if row != NO_OP and t.names[t.name[row]] == "aten::matmul"]
