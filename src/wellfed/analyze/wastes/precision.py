"""Products in fp32 or tf32 on a device whose 16-bit units are faster."""

import itertools
import math
import re

from wellfed.analyze.families import is_layout, precision
from wellfed.analyze.op_roofline import shape_text
from wellfed.analyze.replay import Edit
from wellfed.analyze.wastes.seen import POINTS, Seen, Waste, dearest
from wellfed.predict.roofline import FLASH, GOOD_CONV, GOOD_KERNEL, SIMT_FP32, Efficiency, OpCost, kernel_ns

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
CONV_SHARE = {"low": 0.75, "expected": 0.5, "high": 0.4}
"""Of a tf32 convolution's products, in bf16: half the bytes and half the time of the units is a half."""
LAYOUT_SHARE = {"low": 1.0, "expected": 0.85, "high": 0.5}
"""Of the kernels that change a convolution's layout: half the bytes, but stores of two bytes are no wider than a
quarter of what the memory takes at once."""
NATIVE_SHARE = {"low": 0.5, "expected": 0.0, "high": 0.0}
"""The same where the convolution was given NHWC: in bf16 it is taken as it is, but for channels that are padded."""
_FROM_TO = re.compile(r"nchwToNhwc|nhwcToNchw")
NORM_SHARE = {"low": 1.5, "expected": 1.2, "high": 0.6}
"""cuDNN's batch norm does not take bf16 in NCHW; PyTorch's own kernel reads half the bytes at less than half the rate
(torch 2.11: `cudnn_batch_norm` becomes `native_batch_norm`)."""
UNKNOWN = {"low": 2.0, "expected": 1.15, "high": 1.0}
"""Where sizes were not recorded: how much longer than the peaks' ratio says. Twice covers products of a few hundred rows,
which the memory bounds in bf16."""


def slow_precision(seen: Seen) -> list[Waste]:
    """The products, convolutions and attentions in fp32 or tf32, cast to bf16 by autocast (a model that is only used:
    converted, so without casts)."""
    to = next((p for p in ("bf16", "fp16") if p in seen.roof.flops_per_s), None)
    if to is None:
        return []
    new = seen.roof.flops_per_s[to]
    slow = _slow(seen, new)
    if not slow or not seen.at_least(seen.total_ns(list(slow))):
        return []
    gains: dict[int, tuple[float, float, str]] = {}
    edits = [_edit(seen, slow, point, new, gains) for point in POINTS]
    kinds = sorted(set(slow.values()))
    others = {}
    tf32 = seen.roof.flops_per_s.get("tf32")
    if "fp32" in kinds and tf32 is not None:
        gemms = {e: u for e, u in slow.items() if u == "fp32" and seen.family(e) != "attention"}
        others['torch.set_float32_matmul_precision("high"): tf32'] = _triple(
            [_tf32(seen, gemms, point, tf32) for point in POINTS]
        )
    return [
        Waste(
            name="slow-precision",
            edits=_triple(edits),
            kernel_ns=seen.total_ns(list(slow)) / seen.per,
            kernels=len(slow) / seen.per,
            text=f"matrix products in {' and '.join(kinds)}",
            lines=dearest(seen, gains),
            others=others,
            to=to,
        )
    ]


def _slow(seen: Seen, fast: float) -> dict[int, str]:
    """The events of products in a slow unit, and which: by their arguments, else by the names of their kernels."""
    peaks = seen.roof.flops_per_s
    slow: dict[int, str] = {}
    for row, events in seen.by_call(seen.order).items():
        cost = seen.cost(events[0]) if row >= 0 else None
        if cost is not None:
            units = [seen.unit(e) for e in events if seen.family(e) in _MATRIX] if cost.matrix else []
            found = dict.fromkeys(events, next((u for u in units if u is not None), None))
        else:
            whole = row >= 0 and "conv" in seen.operator(
                events[0]
            )  # transforms and sums of a convolution are its own
            mine = [e for e in events if whole or (seen.family(e) in _MATRIX and not seen.in_optimizer[e])]
            found = {e: precision(seen.name(e)) for e in mine if not is_layout(seen.name(e))}
            if row >= 0 and (unit := next((u for u in found.values() if u is not None), None)):
                found.update({e: unit for e in mine if e not in found})
        slow.update({e: u for e, u in found.items() if u in _SLOW and peaks.get(u, fast) < fast})
    return slow


def _triple(edits: list[Edit]) -> tuple[Edit, Edit, Edit]:
    return edits[0], edits[1], edits[2]


def _edit(
    seen: Seen, slow: dict[int, str], point: str, peak: float, gains: dict[int, tuple[float, float, str]]
) -> Edit:
    duration: dict[int, float] = {}
    host: dict[int, float] = {}
    gone: set[int] = set()
    launch = _host_per_launch(seen)
    memory = seen.roof.bytes_per_s * GOOD_KERNEL[point].memory
    for row, events in seen.by_call(list(slow)).items():
        call, cost = seen.call(events[0]), seen.cost(events[0])
        old = seen.total_ns(events)
        if row >= 0 and "conv" in seen.operator(events[0]):
            made, left = _convolution(seen, events, slow, point, peak)
            duration.update(made)
            gone |= left
        elif call is not None and cost is not None:
            least = good_ns(_half(cost), call.name, peak, seen.roof.bytes_per_s, point)
            for event in events:
                duration[event] = float(seen.length[event]) * min(least / old, 1.0) if old else 0.0
        else:
            for event in events:
                duration[event] = _event_ns(seen, event, slow[event], point, peak)
        if point == "expected":
            text = f"{call.name} {shape_text(call)}" if call is not None else seen.operator(events[0])
            now = sum(duration.get(e, 0.0) for e in events)
            gains[events[0]] = (
                old - now,
                old,
                f"{text or seen.name(events[0])[:60]} in {slow[events[0]]}",
            )
        attention = "attention" in seen.operator(events[0]) or seen.family(events[0]) == "attention"
        if seen.trains and row >= 0 and not seen.in_backward[events[0]] and not attention:
            # casts forward and their backward: read and write each argument once at 4 and once at 2 bytes
            sizes = (
                [math.prod(s) for i in range(len(call.dims)) if (s := call.sized(i)) is not None]
                if call is not None
                else []
            )
            cast = sorted(sizes, reverse=True)[: max(int(CASTS[point]), 1)]
            if point == "high" and cast:
                cast = cast[-1:]
            first = next(e for e in events if e not in gone)
            duration[first] += sum(OpCost(0.0, 12.0 * n, 0.0).bytes for n in cast) / memory * 1e9
            host[first] = 2.0 * CASTS[point] * launch
    _followers(seen, slow, point, duration)
    return Edit(duration=duration, gone=frozenset(gone), host=host)


def _half(cost: OpCost) -> OpCost:
    return cost._replace(read_bytes=cost.read_bytes / 2, write_bytes=cost.write_bytes / 2)


def _convolution(
    seen: Seen, events: list[int], slow: dict[int, str], point: str, peak: float
) -> tuple[dict[int, float], set[int]]:
    """How long the kernels of one convolution take in bf16, and those that are launched no more. It becomes one kernel: an
    algorithm of many (FFT by tiles, on streams of their own) is not what the library takes then. Its changes of layout stay
    where it was given NCHW; given NHWC it needs none, which a library without fp32 kernels for NHWC had to make."""
    layouts = [e for e in events if is_layout(seen.name(e))]
    products = [e for e in events if not is_layout(seen.name(e))]
    first = next((seen.name(e) for e in layouts if _FROM_TO.search(seen.name(e))), "")
    share = (NATIVE_SHARE if "nhwcToNchw" in first else LAYOUT_SHARE)[point]
    duration = {e: float(seen.length[e]) * share for e in layouts}
    if not products:
        return duration, set()
    spent = _wall_ns(seen, products)
    call, cost = seen.call(events[0]), seen.cost(events[0])
    unit = slow[max(products, key=lambda e: int(seen.length[e]))]
    slower = seen.roof.flops_per_s[unit]
    near = slower > 0.4 * peak
    if call is not None and cost is not None:
        new = good_ns(_half(cost), call.name, peak, seen.roof.bytes_per_s, point)
    elif near:
        new = GOOD_KERNEL[point].floor_ns
    else:
        new = spent * slower * SIMT_FP32 / (peak * GOOD_CONV["expected"].compute) * UNKNOWN[point]
        new += GOOD_KERNEL[point].floor_ns
    if near:  # how well it runs hangs on channels and layout: no better share than now
        new = max(new, spent * CONV_SHARE[point])
    new = min(new, spent)
    streams = [int(seen.timeline.stream[seen.work.rows[e]]) for e in products]
    if len(set(streams)) > 1:
        home = int(seen.timeline.stream[seen.work.rows[events[0]]])
        kept = products[streams.index(home)] if home in streams else products[0]
        return {**duration, kept: new}, set(products) - {kept}
    of_each = new / spent if spent else 0.0
    return {**duration, **{e: float(seen.length[e]) * of_each for e in products}}, set()


def _wall_ns(seen: Seen, events: list[int]) -> float:
    """How long any of the events runs, ns."""
    busy, until = 0, 0
    for begin, end in sorted((int(seen.work.ts[e]), int(seen.work.end[e])) for e in events):
        busy += max(end - max(begin, until), 0)
        until = max(until, end)
    return float(busy)


def _event_ns(seen: Seen, event: int, unit: str, point: str, peak: float) -> float:
    """How long one kernel takes in bf16 when nothing is known but its name and how long it took: a product by the ratio
    of what the units reach, at best that, and never longer than now."""
    old = float(seen.length[event])
    kind = seen.family(event)
    slower = seen.roof.flops_per_s[unit]
    floor = GOOD_KERNEL[point].floor_ns
    if kind == "conv" and slower > 0.4 * peak:
        return min(old, max(old * CONV_SHARE[point], floor))
    reached = SIMT_FP32 if unit == "fp32" else TF32["expected"].compute
    good = GOOD_KERNEL["expected"].compute
    if kind == "conv":
        good = GOOD_CONV["expected"].compute
    elif (
        kind == "attention"
    ):  # fp32 attention uses tf32 units in part: 25 to 32 of 67 TFLOP/s (fmha_cutlass, H200)
        reached, good = 0.4, FLASH["expected"][1]
    return min(old, old * slower * reached / (peak * good) * UNKNOWN[point] + floor)


def _followers(seen: Seen, slow: dict[int, str], point: str, duration: dict[int, float]) -> None:
    """What stays in the products' type behind them."""
    for event in seen.order:
        operator = seen.operator(event)
        if event in slow or seen.in_optimizer[event] or not any(word in operator for word in _FOLLOWS):
            continue
        call, name = seen.call(event), seen.name(event)
        if call.types[:1] != ("float",) if call is not None else "float" not in name:
            continue
        old = float(seen.length[event])
        if "batch_norm" in operator and "cudnn::" in name and "nhwc" not in name.lower():
            duration[event] = old * NORM_SHARE[point]
        elif point != "low":
            duration[event] = old * (0.6 if point == "expected" else 0.5)


def good_ns(cost: OpCost, op: str, peak: float, memory: float, point: str) -> float:
    """How long a good kernel takes for it at a peak, ns."""
    of = GOOD_CONV[point] if "conv" in op else GOOD_KERNEL[point]
    if "attention" in op or "flash_attn" in op:
        forward, backward = FLASH[point]
        of = of._replace(compute=backward if "backward" in op else forward)
    return kernel_ns(cost, peak, memory, of)


def _tf32(seen: Seen, slow: dict[int, str], point: str, peak: float) -> Edit:
    duration: dict[int, float] = {}
    for events in seen.by_call(list(slow)).values():
        cost = seen.cost(events[0])
        old = seen.total_ns(events)
        if cost is not None:
            new = min(kernel_ns(cost, peak, seen.roof.bytes_per_s, TF32[point]), old)
        else:
            slower = seen.roof.flops_per_s["fp32"] * SIMT_FP32 / (peak * TF32["expected"].compute)
            new = min(old * slower * UNKNOWN[point] + TF32[point].floor_ns * len(events), old)
        for event in events:
            duration[event] = float(seen.length[event]) * new / old if old else 0.0
    return Edit(duration=duration)


def _host_per_launch(seen: Seen) -> float:
    """What the host takes for a small launch of this program, ns: the median distance of launches close together."""
    starts = sorted(int(seen.launches.start[e]) for e in seen.order if seen.launches.first[e])
    steps = [b - a for a, b in itertools.pairwise(starts) if 0 < b - a < 100_000]
    return 0.5 * sorted(steps)[len(steps) // 2] if steps else 6_000.0
