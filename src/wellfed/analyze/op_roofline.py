"""How near the kernels of each operator are to what the device can do: achieved FLOP/s and bytes/s under the roof."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from wellfed import catalog
from wellfed.analyze.budget import Work
from wellfed.analyze.families import family, is_layout, precision
from wellfed.analyze.launches import Launches
from wellfed.analyze.op_chain import NO_OP, OpChain
from wellfed.analyze.op_costs import FORMULAS, cost_of
from wellfed.analyze.shapes import PRECISION, Call, parse
from wellfed.analyze.steps import HostSteps
from wellfed.model.base import replace
from wellfed.model.timeline import I64, Cat, Mask, Timeline
from wellfed.model.trace import OpRoof, Roofline
from wellfed.predict.roofline import GOOD_KERNEL, OpCost, Roof, roof_ns

ROWS = 40
_PEAKS = {
    "fp32": "fp32_tflops", "tf32": "tf32_tflops", "bf16": "bf16_tflops", "fp16": "fp16_tflops", "fp8": "fp8_tflops",
    "fp4": "fp4_tflops", "int8": "int8_tops", "fp64": "fp64_tflops",
}  # fmt: skip
_MATRIX_FAMILIES = ("gemm", "conv", "attention", "moe")


class OpCalls(NamedTuple):
    """GPU events and the operator calls that they are of. `row` is, for each event of the work, the timeline's row of
    the innermost operator that has a formula (NO_OP: none); `call` and `cost` are by (name id, shape id)."""

    row: I64
    call: dict[tuple[int, int], Call]
    cost: dict[tuple[int, int], OpCost]

    def key(self, timeline: Timeline, event: int) -> tuple[int, int] | None:
        row = int(self.row[event])
        return (int(timeline.name[row]), int(timeline.shape[row])) if row >= 0 else None


def op_calls(timeline: Timeline, chain: OpChain) -> OpCalls:
    """The calls that have FLOPs and bytes, and which events are theirs."""
    named = timeline.named(lambda n: n in FORMULAS or n.removesuffix("_") in FORMULAS)
    row = chain.innermost(named)
    calls: dict[tuple[int, int], Call] = {}
    costs: dict[tuple[int, int], OpCost] = {}
    used = np.unique(row[row >= 0])
    pairs = (
        np.unique(np.stack([timeline.name[used], timeline.shape[used]], axis=1), axis=0) if len(used) else ()
    )
    for name, shape in ((int(n), int(s)) for n, s in pairs):
        call = parse(timeline.names[name], timeline.shapes[shape]) if shape >= 0 else None
        if call is not None:
            calls[(name, shape)] = call
            cost = cost_of(call)
            if cost is not None:
                costs[(name, shape)] = cost
    return OpCalls(row, calls, costs)


def roof_of(gpu: str | None, measured: Mapping[str, float] | None = None) -> Roof | None:
    """The ceilings of a device: what was measured here (by the names of the catalogue: `bf16_tflops`,
    `memory_bandwidth_gbs`), else the catalogue's dense peaks; None when neither knows the memory's rate."""
    measured = measured or {}
    spec = catalog.find_gpu(name=gpu) if gpu else None
    share = 1.0 / spec.devices if spec is not None else 1.0

    def value(name: str) -> float | None:
        if name in measured:
            return measured[name]
        found = spec.value(name) if spec is not None else None
        return None if found is None else found * share

    memory = value("memory_bandwidth_gbs")
    if memory is None:
        return None
    peaks = {p: v * 1e12 for p, name in _PEAKS.items() if (v := value(name)) is not None}
    title = spec.title if spec is not None else "this machine"
    source = "measured" if measured else f"catalogue: {title}, dense peaks"
    return Roof(peaks, memory * 1e9, source)


def unit_of(call: Call, cost: OpCost, kernels: Mapping[str, int]) -> str | None:
    """What the call computed in: what its arguments are; where they are fp32, which matrix units may take as tf32, what
    the kernel that took longest says (None: it does not)."""
    typed = PRECISION.get(next((t for t in call.types if t in PRECISION), ""))
    if typed != "fp32" or not cost.matrix:
        return typed
    for name, _ in sorted(kernels.items(), key=lambda item: -item[1]):
        if family(name) in _MATRIX_FAMILIES and not is_layout(name) and (told := precision(name)) is not None:
            return told
    return None


def op_roofline(
    timeline: Timeline,
    work: Work,
    launches: Launches,
    steps: HostSteps,
    calls: OpCalls,
    roof: Roof | None,
    inside: Mask,
) -> Roofline | None:
    """Operators under the roof, of the events `inside`; None when no argument was recorded."""
    if not calls.call:
        return None
    per = float(max(len(steps), 1))
    length = work.end - work.ts
    kernel = (timeline.cat[work.rows] == Cat.KERNEL) & inside & ~work.comm
    mine = np.flatnonzero(kernel & (calls.row != NO_OP))
    many = np.int64(len(timeline.shapes) + 2)
    of_name = timeline.name[calls.row[mine]].astype(np.int64)
    keys = of_name * many + timeline.shape[calls.row[mine]] + 1
    found_keys, at = np.unique(keys, return_inverse=True)
    totals = np.zeros(len(found_keys), np.int64)
    np.add.at(totals, at, length[mine])
    distinct = np.unique(np.stack([at, calls.row[mine]], axis=1), axis=0)[:, 0] if len(mine) else at
    counts = np.bincount(distinct, minlength=len(found_keys))
    names = _by_kernel(timeline, work, mine, at, length)
    time = {
        (int(k // many), int(k % many) - 1): (i, int(totals[i])) for i, k in enumerate(found_keys.tolist())
    }
    time = {key: value for key, value in time.items() if key in calls.cost}
    found = [
        _row(calls.call[key], calls.cost[key], names[i], int(counts[i]) / per, total / per, roof)
        for key, (i, total) in time.items()
    ]
    found.sort(key=lambda r: (-(r.above_roof_ns if r.above_roof_ns is not None else 0.0), -r.kernel_ns))
    return Roofline(
        flops_per_s=dict(roof.flops_per_s) if roof else {},
        bytes_per_s=roof.bytes_per_s if roof else None,
        source=roof.source if roof else "the GPU is not in the catalogue: no ceiling known",
        kernel_ns=round(float(length[kernel].sum()) / per, 1),
        covered_ns=round(sum(total for _, total in time.values()) / per, 1),
        rows=tuple(found[:ROWS]),
    )


def _by_kernel(timeline: Timeline, work: Work, mine: I64, at: I64, length: I64) -> dict[int, dict[str, int]]:
    """For each group the time of its kernels by name, ns."""
    many = np.int64(len(timeline.names) + 1)
    pairs, inverse = np.unique(at.astype(np.int64) * many + work.name[mine], return_inverse=True)
    totals = np.zeros(len(pairs), np.int64)
    np.add.at(totals, inverse, length[mine])
    out: dict[int, dict[str, int]] = {}
    for pair, total in zip(pairs.tolist(), totals.tolist(), strict=True):
        out.setdefault(int(pair // many), {})[timeline.names[int(pair % many)]] = int(total)
    return out


def _row(
    call: Call, cost: OpCost, kernels: Mapping[str, int], count: float, total_ns: float, roof: Roof | None
) -> OpRoof:
    unit = unit_of(call, cost, kernels)
    seconds = total_ns / 1e9
    longest = max(kernels, key=lambda name: kernels[name])
    row = OpRoof(
        op=call.name,
        shapes=shape_text(call),
        family=family(longest, operator=call.name),
        precision=unit,
        calls=round(count, 3),
        kernel_ns=round(total_ns, 1),
        flops_per_call=cost.flops,
        bytes_per_call=cost.bytes,
        flops_per_byte=round(cost.intensity, 3),
        achieved_flops_per_s=round(cost.flops * count / seconds, 1) if seconds else 0.0,
        achieved_bytes_per_s=round(cost.bytes * count / seconds, 1) if seconds else 0.0,
    )
    peak = roof.flops_per_s.get(unit) if roof is not None and unit is not None else None
    least = roof_ns(cost, peak if cost.matrix else None, roof.bytes_per_s) if roof is not None else None
    if least is None or roof is None or total_ns <= 0:
        return row
    each = total_ns / count
    compute = cost.flops / peak * 1e9 if cost.matrix and peak else 0.0
    bound = "compute" if compute >= least else "memory"
    if each < 2 * GOOD_KERNEL["expected"].floor_ns and least < each / 2:
        bound = "latency"
    return replace(
        row,
        roof_ns=round(least * count, 1),
        roof_flops_per_s=round(cost.flops / least * 1e9, 1),
        of_roof_pct=round(100.0 * least / each, 2),
        bound=bound,
        above_roof_ns=round(max(total_ns - least * count, 0.0), 1),
    )


def shape_text(call: Call) -> str:
    """The sizes of the tensors, short: `64x4096, 4096x4096`."""
    parts = ["x".join(map(str, size)) for i in range(len(call.dims)) if (size := call.sized(i)) is not None]
    return ", ".join(parts[:4])[:100]
