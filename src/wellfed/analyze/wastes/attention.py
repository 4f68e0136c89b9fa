"""Attention written out: scores of all pairs, softmax and product as kernels of their own, each over memory."""

import math
from typing import NamedTuple

from wellfed.analyze.op_chain import NO_OP
from wellfed.analyze.replay import Edit
from wellfed.analyze.shapes import Call
from wellfed.analyze.wastes.precision import good_ns
from wellfed.analyze.wastes.seen import HOST_STAYS, POINTS, Seen, Waste, dearest
from wellfed.predict.roofline import attention

_SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data", "aten::_safe_softmax")
_PRODUCTS = ("aten::bmm", "aten::baddbmm", "aten::baddbmm_")
FUSED_HOST = {"low": 120_000.0, "expected": 80_000.0, "high": 40_000.0}
"""Host time of one call of fused attention, forward or backward (ns): 145 to 275 us as recorded on an H200's host with
torch 2.11 (cuDNN), of which recording is a third to two thirds."""
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
    kinds: dict[Scores, list[int]] = {}
    for events in seen.by_call(seen.order).values():
        call = seen.call(events[0])
        if call is not None and call.name in _SOFTMAX and (found := scores_of(call.sized(0))):
            kinds.setdefault(found, []).append(events[0])
    gone: dict[str, set[int]] = {point: set() for point in POINTS}
    duration: dict[str, dict[int, float]] = {point: {} for point in POINTS}
    gains: dict[int, tuple[float, str]] = {}
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
            gains[event] = (share, text)
    if not concerned or not seen.at_least(seen.total_ns(concerned)):
        return []
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
    return [
        Waste(
            name="unfused-attention",
            edits=(made[0], made[1], made[2]),
            kernel_ns=seen.total_ns(concerned) / seen.per,
            kernels=len(concerned) / seen.per,
            text=f"attention in {len(concerned) / seen.per:.0f} kernels a step that write and read every score",
            lines=dearest(seen, gains),
        )
    ]


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
