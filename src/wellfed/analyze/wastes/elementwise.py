"""Chains of small-arithmetic kernels over the same elements, where a compiler makes one kernel of each chain."""

import math
import re
from typing import NamedTuple

from wellfed.analyze.op_chain import NO_OP
from wellfed.analyze.replay import Edit
from wellfed.analyze.shapes import Call
from wellfed.analyze.wastes.seen import POINTS, Seen, Waste, dearest
from wellfed.model.counting import counted
from wellfed.predict.roofline import GOOD_KERNEL, OpCost

LEAST = 3
"""Kernels in a chain that is worth a compiler."""
MOST = 64
"""Kernels that a compiler makes one of at most (`max_fusion_size` of torch._inductor.config)."""
MAIN = 0.2
"""Share of the saving that a kind of chain gives when it is what a user would compile first."""
COMPILED_HOST = {"low": 75_000.0, "expected": 45_000.0, "high": 30_000.0}
"""Host time of a call of a compiled function that launches one kernel (guards, bytecode, wrapper, launch), ns, more than
that of one eager operator: 57 to 65 us against 8 to 12 (torch 2.11, Xeon host of an H200, not recorded)."""
TRAINED_HOST = 2.5
"""The same under autograd: its function's forward and backward wrap the call."""
READS = {"low": 2.0, "expected": 1.5, "high": 1.0}
"""Tensors that a chain reads from outside, at most, when its operators' arguments leave room for more."""
BACKWARD_READS = {"low": 3.0, "expected": 2.0, "high": 1.5}
"""The same of a chain of autograd: a gradient, and what was saved for it."""
ROWS_AGAIN = {"low": 1.0, "expected": 0.5, "high": 0.0}
"""Readings more of a chain that reduces rows on its way: a row that does not fit the registers is read again."""
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
_NEVER = ("embedding", "fill_", "zero_")
_JOINS = "aten::cat"
MOST_JOINED = 8
"""Tensors that a compiler joins within a kernel at most (`max_pointwise_cat_inputs` of torch._inductor.config)."""
_MATRIX = ("gemm", "conv", "attention", "optimizer", "comm", "copy", "moe", "sort", "pool")
_POINTWISE = re.compile(
    r"elementwise|softmax|[Ll]ayer_?[Nn]orm|reduce_kernel|reduce_1Block|CatArrayBatchedCopy"
)
"""PyTorch's own kernels that a compiler fuses, where arguments were not recorded."""
_OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")


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
    backward: bool = False
    parent: int = 0
    """Elements of the tensor that an operand is a part of (a half, every second), 0 where none is."""


def unfused_elementwise(seen: Seen) -> list[Waste]:
    """Chains of `LEAST` kernels and more, each made one kernel that reads what comes from outside and writes the end.
    Where a chain repeats itself, each turn is taken as a call of a compiled function."""
    parts = [
        part
        for run in runs(seen)
        for part in turns(run, min(period([(link.label, link.elements) for link in run]), MOST))
        if len(part) >= LEAST
    ]
    concerned = {link.event for part in parts for link in part}
    if not concerned or not seen.at_least(seen.total_ns(concerned)):
        return []
    dispatch = TRAINED_HOST if seen.trains else 1.0
    made: list[Edit] = []
    for point in POINTS:
        # `stays` is none: there is no Python left around operators that are compiled away
        duration: dict[int, float] = {}
        host: dict[int, float] = {}
        gone: set[int] = set()
        for part in _main(parts, seen.roof.bytes_per_s) if point == "low" else parts:
            first, *others = (link.event for link in part)
            duration[first] = _fused(part, point, seen.roof.bytes_per_s)
            host[first] = COMPILED_HOST[point] * dispatch
            gone |= set(others)
        made.append(Edit(duration=duration, gone=frozenset(gone), host=host))
    gains: dict[int, tuple[float, float, str]] = {}
    for part in parts:
        names = " ".join(link.label.removeprefix("aten::") for link in part[:8])
        over = f" over {part[0].elements} elements" if part[0].elements else ""
        saved = _saved(part, seen.roof.bytes_per_s)
        taken = sum(link.length for link in part)
        gains[part[0].event] = (saved, taken, f"{len(part)} kernels{over}: {names}"[:150])
    return [
        Waste(
            name="unfused-elementwise",
            edits=(made[0], made[1], made[2]),
            kernel_ns=seen.total_ns(concerned) / seen.per,
            kernels=len(concerned) / seen.per,
            text=f"{counted(len(concerned) / seen.per, 'elementwise kernel')} a step, in {counted(max(len(gains) / seen.per, 1), 'chain')}",
            lines=dearest(seen, gains),
        )
    ]


def _fused(part: list[Link], point: str, bytes_per_s: float) -> float:
    return min(fused_ns(part, point, bytes_per_s), sum(link.length for link in part))


def _saved(part: list[Link], bytes_per_s: float) -> float:
    return sum(link.length for link in part) - _fused(part, "expected", bytes_per_s)


def _main(parts: list[list[Link]], bytes_per_s: float) -> list[list[Link]]:
    """The chains of the kinds that give `MAIN` of the saving: whoever compiles the function that they are in may leave
    the rest (a loss, sums of gradients) as it is."""
    kinds: dict[tuple[bool, tuple[str, ...]], float] = {}
    for part in parts:
        kinds[_kind(part)] = kinds.get(_kind(part), 0.0) + _saved(part, bytes_per_s)
    most = MAIN * sum(kinds.values())
    main = [part for part in parts if kinds[_kind(part)] >= most]
    return main or parts


def _kind(part: list[Link]) -> tuple[bool, tuple[str, ...]]:
    return part[0].backward, tuple(link.label for link in part)


def turns(run: list[Link], length: int) -> list[list[Link]]:
    """The run in parts of a length."""
    return [run[at : at + length] for at in range(0, len(run), length)]


def fused_ns(part: list[Link], point: str, bytes_per_s: float) -> float:
    """How long the one kernel takes, ns: its bytes at the rate that the chain's own kernels reached (those in a cache run
    above the memory's rate, and so will it). Without arguments: as long as a kernel of the chain that reads one tensor and
    writes one, which is what the shorter of its large kernels do."""
    of = GOOD_KERNEL[point]
    if not all(link.elements for link in part):
        again = ROWS_AGAIN[point] / 2 if any(link.label in _REDUCTIONS for link in part[:-1]) else 0.0
        more = (0.5 if part[0].backward else 0.0) + again
        return _by_length([link.length for link in part], point) * (1.0 + more) + of.floor_ns / 2
    most = max(link.elements for link in part)
    rates = sorted(link.reached for link in part if link.elements == most and link.reached)
    good = bytes_per_s * of.memory
    if rates:
        seen = rates[int(0.75 * (len(rates) - 1))] * {"low": 0.9, "expected": 1.0, "high": 1.05}[point]
        good = max(seen, good) if point != "low" else max(min(seen, bytes_per_s), good)
    return moved(part, point) / good * 1e9 + of.floor_ns


def _by_length(lengths: list[float], point: str) -> float:
    """A lower quantile of the large kernels of a chain, ns: they are those of a third of the longest and more."""
    least = max(lengths) / 3
    large = sorted(x for x in lengths if x >= least)
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
    reads = min(float(outside), (BACKWARD_READS if part[0].backward else READS)[point])
    if any(link.label in _REDUCTIONS for link in part[:-1]):
        reads += ROWS_AGAIN[point]
    return most * (reads * large[0].read_bytes + large[-1].write_bytes)


def runs(seen: Seen) -> list[list[Link]]:
    """Consecutive kernels of one thread, stream, direction and step over equally many elements; smaller ones in between
    (the statistics of rows, a bias) are of the chain."""
    t, work = seen.timeline, seen.work
    found: list[list[Link]] = []
    run: list[Link] = []
    most: set[int] = set()
    place = None
    for event in seen.order:
        link = link_of(seen, event)
        here = (
            int(t.thread[seen.launches.row[event]]),
            int(t.stream[work.rows[event]]),
            bool(seen.in_backward[event]),
            int(seen.step_of[event]),
        )
        sizes = {link.elements, link.parent or link.elements} if link is not None else set()
        if (
            link is None
            or here != place
            or not (not most or any(_together(n, m) for n in sizes for m in most))
        ):
            if len(run) >= LEAST:
                found.append(run)
            run, most, place = [], set(), here
        if link is not None:
            run.append(link)
            # the largest result so far, and the largest tensor that parts were taken of
            most = {max(r.elements for r in run), max({*most, *sizes})}
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
    kind = seen.family(event)
    if seen.in_optimizer[event] or event in seen.claimed or (kind in _MATRIX and not _inside(seen, event)):
        return None
    label, call, cost = seen.operator(event), seen.call(event), seen.cost(event)
    if not label or any(word in label for word in _NEVER) or _compiled(seen, event):
        return None
    if "norm" in label and label not in _ALWAYS:
        return None
    length = float(seen.length[event])
    if call is None:
        named = _POINTWISE.search(seen.name(event)) is not None or _inside(seen, event)
        back = bool(seen.in_backward[event])
        return Link(event, label, 0, 1, 0.0, 0.0, length, None, back) if named and not seen.shapes else None
    if call.name == _JOINS:
        return _joined(seen, event, call, length)
    if cost is None or cost.matrix or not (cost.flops > 0 or label in _ALWAYS):
        return None
    if label in _REDUCTIONS and not _along_rows(call):
        return None
    return _sized(event, call, cost, length, bool(seen.in_backward[event]))


def _sized(event: int, call: Call, cost: OpCost, length: float, backward: bool) -> Link | None:
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
        backward=backward,
        parent=_parent(call, elements),
    )


def _joined(seen: Seen, event: int, call: Call, length: float) -> Link | None:
    """A `cat` as a link; None where it is of more tensors than a compiler joins on the way. How wide an element is, only
    the kernel's name says: the arguments are a list."""
    parts = call.dims[0] if call.dims else ()
    if not 2 <= len(parts) <= MOST_JOINED or not all(isinstance(p, tuple) for p in parts):
        return None
    elements = sum(math.prod(p) for p in parts)
    told = _OPAQUE.search(seen.name(event))
    width = float(told[1]) if told else 4.0
    back = bool(seen.in_backward[event])
    reached = 2.0 * elements * width / length * 1e9 if length > 0 else None
    return Link(event, call.name, elements, 1, width, width, length, reached, back) if elements else None


def _parent(call: Call, elements: int) -> int:
    """Elements of the tensor that the largest operand is a part of, by its strides; 0 where it is no part."""
    found = 0
    for i, steps in enumerate(call.strides):
        size = call.sized(i)
        if size is not None and math.prod(size) == elements and len(steps) == len(size):
            found = max(found, *(n * step for n, step in zip(size, steps, strict=True)))
    return found if found > elements else 0


def _inside(seen: Seen, event: int) -> bool:
    """Whether the event is a copy within the device, as `clone` makes of what is contiguous."""
    return seen.name(event).startswith(("Memcpy DtoD", "CopyDeviceToDevice"))


def _along_rows(call: Call) -> bool:
    """Whether a reduction is over the last dimension alone: the kind that is fused with what surrounds it."""
    size, over = call.sized(0), call.integers(1)
    return size is not None and over is not None and len(over) == 1 and over[0] % len(size) == len(size) - 1


def _compiled(seen: Seen, event: int) -> bool:
    t = seen.timeline
    rows = seen.chain.rows[:, event].tolist()
    return any(t.names[t.name[r]].startswith("Torch-Compiled Region") for r in rows if r != NO_OP)


def period(labels: list[tuple[str, int]]) -> int:
    """The length of the shortest part that a sequence repeats, three times and more or, where the part is a chain itself,
    exactly twice (the same done to queries and keys); its whole length without."""
    n = len(labels)
    for p in range(1, n // 2 + 1):
        if all(labels[i] == labels[i + p] for i in range(n - p)) and (
            3 * p <= n or (2 * p == n and p >= LEAST)
        ):
            return p if p >= LEAST else next((m for m in range(p, n + 1, p) if m >= LEAST), n)
    return n
