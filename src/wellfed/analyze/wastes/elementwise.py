"""Chains of small-arithmetic kernels over the same elements, where a compiler makes one kernel of each chain."""

import math
import re
from typing import NamedTuple

from wellfed.analyze.op_chain import NO_OP
from wellfed.analyze.replay import Edit
from wellfed.analyze.shapes import Call
from wellfed.analyze.wastes.seen import POINTS, Seen, Waste, dearest
from wellfed.predict.roofline import GOOD_KERNEL, OpCost

LEAST = 3
"""Kernels in a chain that is worth a compiler."""
COMPILED_HOST = {"low": 80_000.0, "expected": 50_000.0, "high": 35_000.0}
"""Host time of a call of a compiled function that launches one kernel (guards, bytecode, wrapper, launch), ns, more than
that of one eager operator: 65 us against 8 to 12 (torch 2.11, Xeon host of an H200, not recorded)."""
TRAINED_HOST = 2.5
"""The same under autograd: its function's forward and backward wrap the call."""
READS = {"low": 2.0, "expected": 1.5, "high": 1.0}
"""Tensors that a chain reads from outside, at most, when its operators' arguments leave room for more."""
_ALWAYS = frozenset(
    (
        "aten::native_layer_norm", "aten::rms_norm", "aten::_fused_rms_norm", "aten::_softmax", "aten::sum", "aten::mean",
        "aten::amax", "aten::amin", "aten::var", "aten::var_mean", "aten::std", "aten::copy_", "aten::clone",
        "aten::native_dropout", "aten::_softmax_backward_data", "aten::_log_softmax",
    )
)  # fmt: skip
_REDUCTIONS = frozenset(
    ("aten::sum", "aten::mean", "aten::amax", "aten::amin", "aten::var", "aten::var_mean", "aten::std")
)
_NEVER = ("embedding", "cat", "fill_", "zero_")
_MATRIX = ("gemm", "conv", "attention", "optimizer", "comm", "copy", "moe", "sort", "pool")
_POINTWISE = re.compile(r"elementwise|softmax|[Ll]ayer_?[Nn]orm|reduce_kernel|reduce_1Block")
"""PyTorch's own kernels that a compiler fuses, where arguments were not recorded."""


class Link(NamedTuple):
    """One kernel of a chain. `elements` of its largest tensor, and `reads` of tensors that large; `read_bytes` and
    `write_bytes` of an element; `reached` is the rate in bytes/s that its own operands went over memory at. Without
    recorded arguments `elements` is 0 and `reached` None."""

    event: int
    label: str
    elements: int
    reads: int
    read_bytes: float
    write_bytes: float
    length: float
    reached: float | None


def unfused_elementwise(seen: Seen) -> list[Waste]:
    """Chains of `LEAST` kernels and more, each made one kernel that reads what comes from outside and writes the end.
    Where a chain repeats itself, each turn is taken as a call of a compiled function."""
    duration: dict[str, dict[int, float]] = {p: {} for p in POINTS}
    gone: set[int] = set()
    host: dict[str, dict[int, float]] = {p: {} for p in POINTS}
    gains: dict[int, tuple[float, str]] = {}
    concerned: set[int] = set()
    dispatch = TRAINED_HOST if seen.trains else 1.0
    for run in runs(seen):
        turn = period([(link.label, link.elements) for link in run])
        for at in range(0, len(run), turn):
            part = run[at : at + turn]
            if len(part) < LEAST:
                continue
            events = [link.event for link in part]
            old = seen.total_ns(events)
            for point in POINTS:
                duration[point][events[0]] = min(fused_ns(part, point, seen.roof.bytes_per_s), old)
                host[point][events[0]] = COMPILED_HOST[point] * dispatch
            concerned |= set(events)
            gone |= set(events[1:])
            names = " ".join(link.label.removeprefix("aten::") for link in part[:8])
            saved = old - duration["expected"][events[0]]
            over = f" over {part[0].elements} elements" if part[0].elements else ""
            gains[events[0]] = (saved, f"{len(part)} kernels{over}: {names}"[:150])
    if not concerned or not seen.at_least(seen.total_ns(concerned)):
        return []
    edits = [
        Edit(
            duration=duration[p], gone=frozenset(gone), host=host[p]
        )  # no Python stays around operators compiled away
        for p in POINTS
    ]
    return [
        Waste(
            name="unfused-elementwise",
            edits=(edits[0], edits[1], edits[2]),
            kernel_ns=seen.total_ns(concerned) / seen.per,
            kernels=len(concerned) / seen.per,
            text=f"{len(concerned) / seen.per:.0f} elementwise kernels a step, in {len(gains) / seen.per:.0f} chains",
            lines=dearest(seen, gains),
        )
    ]


def fused_ns(part: list[Link], point: str, bytes_per_s: float) -> float:
    """How long the one kernel takes, ns: its bytes at the rate that the chain's own kernels reached (those in a cache run
    above the memory's rate, and so will it). Without arguments: as long as a kernel of the chain that reads one tensor and
    writes one, which is what the shorter of its large kernels do."""
    of = GOOD_KERNEL[point]
    if not all(link.elements for link in part):
        return _by_length([link.length for link in part], point) + of.floor_ns / 2
    most = max(link.elements for link in part)
    rates = sorted(link.reached for link in part if link.elements == most and link.reached)
    good = bytes_per_s * of.memory
    if rates:
        seen = rates[int(0.75 * (len(rates) - 1))] * {"low": 0.9, "expected": 1.0, "high": 1.05}[point]
        good = max(seen, good) if point != "low" else max(min(seen, bytes_per_s), good)
    return moved(part, point) / good * 1e9 + of.floor_ns


def _by_length(lengths: list[float], point: str) -> float:
    """A lower quantile of the large kernels of a chain, ns: they are those of a third of the longest and more."""
    large = sorted(x for x in lengths if x >= max(lengths) / 3)
    at = {"low": 0.6, "expected": 0.3, "high": 0.1}[point]
    factor = {"low": 1.2, "expected": 1.1, "high": 0.9}[point]
    return large[int(at * (len(large) - 1))] * factor


def moved(part: list[Link], point: str) -> float:
    """Bytes of the fused kernel. What the chain makes itself it need not read; which reads those are the recording
    does not tell. At most each result is read once and all else comes from outside; at least one tensor does, in the
    type that the first kernel reads. What is written is the last large result, in its type."""
    most = max(link.elements for link in part)
    large = [link for link in part if link.elements == most]
    outside = max(sum(link.reads for link in large) - (len(large) - 1), 1)
    reads = min(float(outside), READS[point])
    return most * (reads * large[0].read_bytes + large[-1].write_bytes)


def runs(seen: Seen) -> list[list[Link]]:
    """Consecutive kernels of one thread, stream, direction and step over equally many elements; smaller ones in between
    (the statistics of rows, a bias) are of the chain."""
    t, work = seen.timeline, seen.work
    found: list[list[Link]] = []
    run: list[Link] = []
    most, place = 0, None
    for event in seen.order:
        link = link_of(seen, event)
        here = (
            int(t.thread[seen.launches.row[event]]),
            int(t.stream[work.rows[event]]),
            bool(seen.in_backward[event]),
            int(seen.step_of[event]),
        )
        if link is None or here != place or not _together(link.elements, most):
            if len(run) >= LEAST:
                found.append(run)
            run, most, place = [], 0, here
        if link is not None:
            run.append(link)
            most = max(most, link.elements)
    if len(run) >= LEAST:
        found.append(run)
    return found


def _together(elements: int, most: int) -> bool:
    """Whether a kernel over so many elements fits a chain over `most`: as many, or a divisor at most an eighth; not
    known (0) fits not known."""
    small, large = sorted((elements, most))
    return small == large or (small > 0 and large % small == 0 and small * 8 <= large)


def link_of(seen: Seen, event: int) -> Link | None:
    """The kernel as a link of a chain; None for what no compiler would fuse, or that nothing is known of."""
    if seen.in_optimizer[event] or event in seen.claimed or seen.family(event) in _MATRIX:
        return None
    label, call, cost = seen.operator(event), seen.call(event), seen.cost(event)
    if not label or any(word in label for word in _NEVER) or _compiled(seen, event):
        return None
    if "norm" in label and label not in _ALWAYS:
        return None
    length = float(seen.length[event])
    if call is None:
        named = not seen.shapes and _POINTWISE.search(seen.name(event)) is not None
        return Link(event, label, 0, 1, 0.0, 0.0, length, None) if named else None
    if cost is None or cost.matrix or not (cost.flops > 0 or label in _ALWAYS):
        return None
    if label in _REDUCTIONS and not _along_rows(call):
        return None
    return _sized(event, call, cost, length)


def _sized(event: int, call: Call, cost: OpCost, length: float) -> Link | None:
    sizes = [(math.prod(s), i) for i in range(len(call.dims)) if (s := call.sized(i)) is not None]
    elements = max((n for n, _ in sizes), default=0)
    if not elements:
        return None
    big = [i for n, i in sizes if n == elements]
    copies = call.name == "aten::copy_"
    source = 1 if copies and call.element_bytes(1) else big[0]
    width = max(call.element_bytes(i) or 4.0 for i in big)
    return Link(
        event=event,
        label=call.name,
        elements=elements,
        reads=1 if copies else len(big),
        read_bytes=call.element_bytes(source) or 4.0,
        write_bytes=(call.element_bytes(0) or 4.0) if copies else width,
        length=length,
        reached=cost.bytes / length * 1e9 if length > 0 else None,
    )


def _along_rows(call: Call) -> bool:
    """Whether a reduction is over the last dimension alone: the kind that is fused with what surrounds it."""
    size, over = call.sized(0), call.integers(1)
    return size is not None and over is not None and len(over) == 1 and over[0] % len(size) == len(size) - 1


def _compiled(seen: Seen, event: int) -> bool:
    t = seen.timeline
    rows = seen.chain.rows[:, event].tolist()
    return any(t.names[t.name[r]].startswith("Torch-Compiled Region") for r in rows if r != NO_OP)


def period(labels: list[tuple[str, int]]) -> int:
    """The length of the shortest part that a sequence repeats three times and more; its whole length without."""
    n = len(labels)
    for p in range(1, n // 3 + 1):
        if all(labels[i] == labels[i + p] for i in range(n - p)):
            return p if p >= LEAST else next((m for m in range(p, n + 1, p) if m >= LEAST), n)
    return n
