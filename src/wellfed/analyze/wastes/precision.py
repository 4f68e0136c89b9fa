"""Products in fp32 or tf32 on a device whose 16-bit units are faster."""

import itertools
import math

from wellfed.analyze.op_roofline import shape_text
from wellfed.analyze.replay import Edit
from wellfed.analyze.wastes.seen import POINTS, Seen, Waste, dearest
from wellfed.predict.roofline import FLASH, GOOD_KERNEL, Efficiency, OpCost, kernel_ns

_SLOW = ("fp32", "tf32")
_MATRIX = ("gemm", "conv", "attention")
_FOLLOWS = (
    "gelu",
    "relu",
    "silu",
    "threshold",
    "clamp_min",
    "dropout",
    "batch_norm",
    "max_pool",
    "cat",
    "copy_",
)
"""Operators that autocast leaves in the type that they get: behind a product in bf16 they move half the bytes."""
CASTS = {"low": 3.0, "expected": 2.5, "high": 1.0}
"""Casts that autocast launches for a product forward (weight, bias, input), and as many again backward."""
TF32 = {
    "low": Efficiency(0.45, 0.65, 5_000.0),
    "expected": Efficiency(0.65, 0.78, 3_000.0),
    "high": Efficiency(0.80, 0.88, 2_000.0),
}
"""tf32 products reach less of their peak: 127 of 156 TFLOP/s on A100, CUTLASS (superbench-results, Azure NDmv4)."""


def slow_precision(seen: Seen) -> list[Waste]:
    """The products, convolutions and attentions in fp32 or tf32, cast to bf16 by autocast (a model that is only used:
    converted, so without casts)."""
    to = next((p for p in ("bf16", "fp16") if p in seen.roof.flops_per_s), None)
    if to is None:
        return []
    new, memory = seen.roof.flops_per_s[to], seen.roof.bytes_per_s
    slow: dict[int, str] = {}
    for row, events in seen.by_call(seen.order).items():
        cost = seen.cost(events[0]) if row >= 0 else None
        if cost is None or not cost.matrix:
            continue
        units = [seen.unit(e) for e in events if seen.family(e) in _MATRIX]
        unit = next((u for u in units if u is not None), None)
        if unit in _SLOW and unit in seen.roof.flops_per_s and seen.roof.flops_per_s[unit] < new:
            slow.update(dict.fromkeys(events, unit))
    if not slow or not seen.at_least(seen.total_ns(list(slow))):
        return []
    gains: dict[int, tuple[float, str]] = {}
    edits = tuple(_edit(seen, slow, point, new, memory, to, gains) for point in POINTS)
    kinds = sorted(set(slow.values()))
    others = {}
    tf32 = seen.roof.flops_per_s.get("tf32")
    if "fp32" in kinds and tf32 is not None:
        gemms = {e: u for e, u in slow.items() if u == "fp32" and seen.family(e) != "attention"}
        others['torch.set_float32_matmul_precision("high"): tf32'] = _triple(
            [_tf32(seen, gemms, point, tf32, memory) for point in POINTS]
        )
    return [
        Waste(
            name="slow-precision",
            edits=_triple(list(edits)),
            kernel_ns=seen.total_ns(list(slow)) / seen.per,
            kernels=len(slow) / seen.per,
            text=f"matrix products in {' and '.join(kinds)}",
            lines=dearest(seen, gains),
            others=others,
        )
    ]


def _triple(edits: list[Edit]) -> tuple[Edit, Edit, Edit]:
    return edits[0], edits[1], edits[2]


def _edit(
    seen: Seen,
    slow: dict[int, str],
    point: str,
    peak: float,
    memory: float,
    to: str,
    gains: dict[int, tuple[float, str]],
) -> Edit:
    duration: dict[int, float] = {}
    host: dict[int, float] = {}
    of = GOOD_KERNEL[point]
    launch = _host_per_launch(seen)
    for events in seen.by_call(list(slow)).values():
        cost, call = seen.cost(events[0]), seen.call(events[0])
        assert cost is not None and call is not None
        old = seen.total_ns(events)
        half = cost._replace(read_bytes=cost.read_bytes / 2, write_bytes=cost.write_bytes / 2)
        new = good_ns(half, call.name, peak, memory, point)
        if seen.family(max(events, key=lambda e: int(seen.length[e]))) == "conv":
            # how well a convolution runs hangs on its channels and layout: no better share of the roof than now
            ratio = seen.roof.flops_per_s[slow[events[0]]] / peak
            new = max(new, old * {"low": 0.75, "expected": 0.55, "high": 0.5}[point] if ratio > 0.4 else new)
        new = min(new, old)
        for event in events:
            duration[event] = float(seen.length[event]) * new / old if old else 0.0
        if point == "expected":
            gains[events[0]] = (old - new, f"{call.name} {shape_text(call)} in {slow[events[0]]}")
        if seen.trains and not seen.in_backward[events[0]] and "attention" not in call.name:
            # casts forward and their backward: read and write each argument once at 4 and once at 2 bytes
            arguments = [math.prod(s) for i in range(len(call.dims)) if (s := call.sized(i)) is not None]
            cast = sorted(arguments, reverse=True)[: max(int(CASTS[point]), 1)]
            moved = (
                sum(OpCost(0.0, 12.0 * n, 0.0).bytes for n in cast) if point != "high" else 12.0 * cast[-1]
            )
            duration[events[0]] += moved / (memory * of.memory) * 1e9
            host[events[0]] = 2.0 * CASTS[point] * launch
    if point != "low":
        for event in seen.order:
            call = seen.call(event)
            if event in slow or call is None or seen.in_optimizer[event]:
                continue
            if call.types[:1] == ("float",) and any(word in call.name for word in _FOLLOWS):
                duration[event] = float(seen.length[event]) * (0.6 if point == "expected" else 0.5)
    return Edit(duration=duration, host=host)


def good_ns(cost: OpCost, op: str, peak: float, memory: float, point: str) -> float:
    """How long a good kernel takes for it at a peak, ns."""
    of = GOOD_KERNEL[point]
    if "attention" in op or "flash_attn" in op:
        forward, backward = FLASH[point]
        of = of._replace(compute=backward if "backward" in op else forward)
    return kernel_ns(cost, peak, memory, of)


def _tf32(seen: Seen, slow: dict[int, str], point: str, peak: float, memory: float) -> Edit:
    duration: dict[int, float] = {}
    for events in seen.by_call(list(slow)).values():
        cost = seen.cost(events[0])
        assert cost is not None
        old = seen.total_ns(events)
        new = min(kernel_ns(cost, peak, memory, TF32[point]), old)
        for event in events:
            duration[event] = float(seen.length[event]) * new / old if old else 0.0
    return Edit(duration=duration)


def _host_per_launch(seen: Seen) -> float:
    """What the host takes for a small launch of this program, ns: the median distance of launches close together."""
    starts = sorted(int(seen.launches.start[e]) for e in seen.order if seen.launches.first[e])
    steps = [b - a for a, b in itertools.pairwise(starts) if 0 < b - a < 100_000]
    return 0.5 * sorted(steps)[len(steps) // 2] if steps else 6_000.0
