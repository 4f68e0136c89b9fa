"""Chains of small-arithmetic kernels over the same elements, where a compiler makes one kernel of each chain."""

import math
from typing import NamedTuple

from wellfed.analyze.op_chain import NO_OP
from wellfed.analyze.replay import Edit
from wellfed.analyze.shapes import Call
from wellfed.analyze.wastes.seen import HOST_STAYS, POINTS, Seen, Waste, dearest
from wellfed.predict.roofline import GOOD_KERNEL

LEAST = 3
"""Kernels in a chain that is worth a compiler."""
COMPILED_HOST = {"low": 90_000.0, "expected": 60_000.0, "high": 40_000.0}
"""Host time of a call of a compiled function that launches one kernel (guards, bytecode, wrapper, launch), ns: 176 us
as recorded on an H200's host with torch 2.11, of which recording is a third to two thirds."""
_OPERATORS = frozenset(
    (
        "aten::native_layer_norm", "aten::rms_norm", "aten::_fused_rms_norm", "aten::_softmax", "aten::sum", "aten::mean",
        "aten::amax", "aten::amin", "aten::var", "aten::var_mean", "aten::std", "aten::copy_", "aten::clone",
        "aten::native_dropout", "aten::_softmax_backward_data",
    )
)  # fmt: skip
_NEVER = ("embedding", "cat", "fill_", "zero_")
_MATRIX = ("gemm", "conv", "attention", "optimizer", "comm", "copy", "moe", "sort", "pool")


class Link(NamedTuple):
    """One kernel of a chain: how many elements, how many reads of tensors that large, and bytes of one element."""

    event: int
    label: str
    elements: int
    reads: int
    element_bytes: float


def unfused_elementwise(seen: Seen) -> list[Waste]:
    """Chains of `LEAST` kernels and more, each made one kernel that reads what comes from outside and writes the end.
    Where a chain repeats itself, each turn is taken as a call of a compiled function."""
    duration: dict[str, dict[int, float]] = {p: {} for p in POINTS}
    gone: set[int] = set()
    host: dict[str, dict[int, float]] = {p: {} for p in POINTS}
    gains: dict[int, tuple[float, str]] = {}
    concerned: set[int] = set()
    for run in runs(seen):
        turn = period([(link.label, link.elements) for link in run])
        for at in range(0, len(run), turn):
            part = run[at : at + turn]
            if len(part) < LEAST:
                continue
            events = [link.event for link in part]
            old = seen.total_ns(events)
            for point in POINTS:
                of = GOOD_KERNEL[point]
                new = moved(part, point) / (seen.roof.bytes_per_s * of.memory) * 1e9 + of.floor_ns
                duration[point][events[0]] = min(new, old)
                host[point][events[0]] = COMPILED_HOST[point]
            concerned |= set(events)
            gone |= set(events[1:])
            names = " ".join(link.label.removeprefix("aten::") for link in part[:8])
            saved = old - duration["expected"][events[0]]
            gains[events[0]] = (saved, f"{len(part)} kernels over {part[0].elements} elements: {names}"[:150])
    if not concerned or not seen.at_least(seen.total_ns(concerned)):
        return []
    edits = [
        Edit(duration=duration[p], gone=frozenset(gone), host=host[p], stays=HOST_STAYS[p]) for p in POINTS
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


def moved(part: list[Link], point: str) -> float:
    """Bytes of the fused kernel. What the chain makes itself it need not read; which reads those are the recording
    does not tell. At most each result is read once and all else comes from outside; at least one tensor does."""
    most = max(link.elements for link in part)
    large = [link for link in part if link.elements == most]
    width = max(link.element_bytes for link in large)
    outside = max(sum(link.reads for link in large) - (len(large) - 1), 1)
    reads = min(float(outside), {"low": 2.5, "expected": 1.5, "high": 1.0}[point])
    return (reads + 1.0) * most * width


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
        fits = link is not None and here == place and _together(link.elements, most)
        if not fits:
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
    """Whether a kernel over so many elements fits a chain over `most`: as many, or a divisor at most an eighth."""
    small, large = sorted((elements, most))
    return small == large or (small > 0 and large % small == 0 and small * 8 <= large)


def link_of(seen: Seen, event: int) -> Link | None:
    """The kernel as a link of a chain; None for what no compiler would fuse, or whose arguments are not known."""
    call, cost = seen.call(event), seen.cost(event)
    if call is None or cost is None or cost.matrix or seen.in_optimizer[event] or event in seen.claimed:
        return None
    if any(word in call.name for word in _NEVER) or seen.family(event) in _MATRIX or _compiled(seen, event):
        return None
    pointwise = cost.flops > 0 or call.name in _OPERATORS
    if not pointwise or ("norm" in call.name and call.name not in _OPERATORS):
        return None
    if call.name in ("aten::sum", "aten::mean", "aten::amax", "aten::amin") and not _along_rows(call):
        return None
    sizes = [(math.prod(s), i) for i in range(len(call.dims)) if (s := call.sized(i)) is not None]
    elements = max((n for n, _ in sizes), default=0)
    if not elements:
        return None
    big = [i for n, i in sizes if n == elements]
    width = max(call.element_bytes(i) or 4.0 for i in big)
    reads = 1 if call.name == "aten::copy_" else len(big)
    return Link(event, call.name, elements, reads, width)


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
