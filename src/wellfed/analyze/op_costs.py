"""FLOPs and bytes of an operator from its recorded arguments. What has no formula here has no number.

Positions of arguments are those of PyTorch's schemas (native_functions.yaml); names ending in `_` work in place and
cost what their twins cost. Composite operators (`aten::linear`, `aten::matmul`) have a formula too, for recordings in
which what they call is not there.
"""

import math
from collections.abc import Callable, Iterable

from wellfed.analyze.shapes import Call, Dims
from wellfed.predict import roofline
from wellfed.predict.roofline import OpCost

Formula = Callable[[Call], OpCost | None]


def cost_of(call: Call) -> OpCost | None:
    """FLOPs and bytes of one call; None where there is no formula, or the arguments do not tell."""
    formula = FORMULAS.get(call.name) or FORMULAS.get(call.name.removesuffix("_"))
    if formula is None:
        return None
    found = formula(call)
    return found if found is not None and found.bytes > 0 else None


def _gemm(a: int, b: int, added: int | None = None) -> Formula:
    """A product of the matrices at `a` and `b`, with one leading dimension each or none."""

    def cost(call: Call) -> OpCost | None:
        left, right = call.sized(a), call.sized(b)
        if left is None or right is None or len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
            return None
        each = call.element_bytes(a) or 2.0
        return roofline.gemm(
            left[-2],
            right[-1],
            left[-1],
            batch=math.prod(left[:-2]),
            a_bytes=each,
            b_bytes=call.element_bytes(b) or each,
            out_bytes=max(each, 2.0) if call.name.startswith("aten::_scaled") else each,
            added_bytes=call.nbytes(added) if added is not None else 0.0,
        )

    return cost


def _linear(call: Call) -> OpCost | None:
    x, w = call.sized(0), call.sized(1)
    if x is None or w is None or len(w) != 2 or x[-1] != w[1]:
        return None
    each = call.element_bytes(0) or 2.0
    return roofline.gemm(
        math.prod(x[:-1]), w[0], w[1], a_bytes=each, b_bytes=each, out_bytes=each, added_bytes=call.nbytes(2)
    )


def _matmul(call: Call) -> OpCost | None:
    left, right = call.sized(0), call.sized(1)
    if left is None or right is None:
        return None
    left = left if len(left) > 1 else (1, *left)
    right = right if len(right) > 1 else (*right, 1)
    if left[-1] != right[-2]:
        return None
    batch = broadcast((left[:-2], right[:-2]))
    if batch is None:
        return None
    each = call.element_bytes(0) or 2.0
    product = roofline.gemm(left[-2], right[-1], left[-1], batch=math.prod(batch), out_bytes=each)
    return product._replace(read_bytes=call.nbytes(0) + call.nbytes(1))


def _grouped(call: Call) -> OpCost | None:
    """Grouped GEMM over offsets: each row of the two-dimensional side meets one group."""
    left, right = call.sized(0), call.sized(1)
    if left is None or right is None or left[-1] != right[-2]:
        return None
    each = call.element_bytes(0) or 2.0
    m, n, k = left[-2], right[-1], left[-1]
    batch = left[0] if len(left) == 3 and len(right) == 3 else 1
    groups = 1
    if len(left) == 2 and len(right) == 2:  # the rows that are summed over are in groups: one result each
        offsets = next((call.sized(i) for i in range(2, len(call.dims)) if "int" in call.types[i]), None)
        if offsets is None:
            return None
        groups = offsets[0]
    flops = 2.0 * batch * m * n * k
    return OpCost(
        flops, call.nbytes(0) + call.nbytes(1), batch * groups * m * n * max(each, 2.0), matrix=True
    )


def _conv(
    stride: int, padding: int, dilation: int, *, transposed: int | None = None, extra: int | None = None
) -> Formula:
    """A forward convolution: input, weight at 0 and 1, the others where told."""

    def cost(call: Call) -> OpCost | None:
        x, w = call.sized(0), call.sized(1)
        if x is None or w is None or len(x) != len(w) or len(x) < 3:
            return None
        n = len(x) - 2
        steps, pads, holes = (_spread(call.integers(at), n) for at in (stride, padding, dilation))
        if steps is None or pads is None or holes is None:
            return None
        turned = call.flag(transposed) if transposed is not None else False
        if turned is None:
            return None
        each = call.element_bytes(0) or 2.0
        if turned:
            more = _spread(call.integers(extra), n) if extra is not None else None
            groups = call.integer(extra + 1) if extra is not None else None
            if more is None or groups is None:
                return None
            spatial = roofline.transposed_output(x[2:], w[2:], steps, pads, holes, more)
            channels = w[1] * groups
        else:
            spatial = roofline.conv_output(x[2:], w[2:], steps, pads, holes)
            channels = w[0]
        if min(spatial) <= 0:
            return None
        bias = call.sized(2)
        return roofline.conv(
            x,
            (x[0], channels, *spatial),
            w,
            transposed=turned,
            element_bytes=each,
            bias=math.prod(bias) if bias is not None and len(bias) == 1 else 0,
        )

    return cost


def _conv_backward(call: Call) -> OpCost | None:
    """grad, input, weight, bias sizes, stride, padding, dilation, transposed, output padding, groups, mask."""
    grad, x, w = call.sized(0), call.sized(1), call.sized(2)
    if grad is None or x is None or w is None or not len(grad) == len(x) == len(w) > 2:
        return None
    turned, wanted = call.flag(7), call.flags(10)
    if turned is None or wanted is None or len(wanted) != 3:
        return None
    return roofline.conv_backward(
        x,
        grad,
        w,
        transposed=turned,
        element_bytes=call.element_bytes(0) or 2.0,
        wanted=(wanted[0], wanted[1], wanted[2]),
    )


def _attention(causal: int, *, heads_first: bool = True, at: int = 0, backward: bool = False) -> Formula:
    """Q, K, V from position `at`; the flag of the mask at `causal` (a number there: 0 no mask, else causal)."""

    def cost(call: Call) -> OpCost | None:
        q, k, v = (call.sized(at + i) for i in range(3))
        if q is None or k is None or v is None or not len(q) == len(k) == len(v) == 4:
            return None  # packed sequences: their lengths are not in the arguments
        masked = call.flag(causal)
        if masked is None:
            kind = call.integer(causal)
            if kind is None:
                return None
            masked = kind != 0
        if not heads_first:
            q, k, v = ((s[0], s[2], s[1], s[3]) for s in (q, k, v))
        return roofline.attention(
            q[0],
            q[1],
            k[1],
            q[2],
            k[2],
            q[3],
            v[3],
            causal=masked,
            element_bytes=call.element_bytes(at) or 2.0,
            backward=backward,
        )

    return cost


def _elementwise(call: Call) -> OpCost | None:
    """Reads every tensor, writes one of the broadcast size (in place: over the first)."""
    sizes = [size for i in range(len(call.dims)) if (size := call.tensor(i)) is not None]
    sizes = [size for size in sizes if 0 not in size]  # an empty `out` is given its size by the operator
    if not any(sizes):
        return None
    size = call.sized(0) if call.name.endswith("_") else broadcast(sizes)
    if size is None:
        return None
    each = call.element_bytes(0) if call.name.endswith("_") else _result_bytes(call)
    n = math.prod(size)
    return roofline.streamed(_read(call), n * (each or 4.0), flops=float(n))


def _copy(call: Call) -> OpCost | None:
    to, source = call.sized(0), call.tensor(1)
    if to is None or source is None:
        return None
    return roofline.streamed(call.nbytes(1), math.prod(to) * (call.element_bytes(0) or 4.0))


def _fill(call: Call) -> OpCost | None:
    to = call.sized(0)
    return roofline.streamed(0.0, math.prod(to) * (call.element_bytes(0) or 4.0)) if to else None


def _clone(call: Call) -> OpCost | None:
    size = call.sized(0)
    return (
        roofline.streamed(call.nbytes(0), math.prod(size) * (call.element_bytes(0) or 4.0)) if size else None
    )


def _comparison(call: Call) -> OpCost | None:
    sizes = [size for i in range(len(call.dims)) if (size := call.tensor(i)) is not None]
    size = broadcast(sizes) if any(sizes) else None
    n = math.prod(size) if size else 0
    return roofline.streamed(_read(call), float(n), flops=float(n)) if size else None


def _dropout(call: Call) -> OpCost | None:
    size = call.sized(0)
    if size is None:
        return None
    n = math.prod(size)
    return roofline.streamed(call.nbytes(0), n * ((call.element_bytes(0) or 4.0) + 1), flops=2.0 * n)


def _row_wise(flops: float, *, reads: Iterable[int], writes: int = 1, of: int = 0) -> Formula:
    """Norms and softmax: `flops` an element, the tensors at `reads`, and `writes` results of the size of `of`."""
    positions = tuple(reads)

    def cost(call: Call) -> OpCost | None:
        size = call.sized(of)
        if size is None or any(call.sized(i) is None for i in positions[:1]):
            return None
        n = math.prod(size)
        read = sum(call.nbytes(i) for i in positions)
        return roofline.streamed(read, writes * n * (call.element_bytes(of) or 4.0), flops=flops * n)

    return cost


def _reduction(dim: int) -> Formula:
    """A sum, mean, maximum... over the dimensions listed at `dim` (none: over all)."""

    def cost(call: Call) -> OpCost | None:
        size = call.sized(0)
        if size is None:
            return None
        over: Dims | None = ()
        if len(call.dims) > 1:
            over = call.integers(dim)
            if over is None:
                return None
        gone = {d % len(size) for d in over or range(len(size))}
        left = math.prod(n for i, n in enumerate(size) if i not in gone)
        n = math.prod(size)
        return roofline.streamed(call.nbytes(0), left * (call.element_bytes(0) or 4.0), flops=float(n))

    return cost


def _embedding(call: Call) -> OpCost | None:
    weight, index = call.sized(0), call.sized(1)
    if weight is None or index is None or len(weight) != 2:
        return None
    rows = math.prod(index) * weight[1] * (call.element_bytes(0) or 4.0)
    return roofline.streamed(rows + call.nbytes(1), rows)


def _embedding_backward(call: Call) -> OpCost | None:
    grad, rows = call.sized(0), call.integer(2)
    if grad is None or rows is None:
        return None
    table = rows * grad[-1] * (call.element_bytes(0) or 4.0)
    return roofline.streamed(call.nbytes(0) + call.nbytes(1), table, flops=float(math.prod(grad)))


def _cat(call: Call) -> OpCost | None:
    parts = call.dims[0] if call.dims else ()
    if not parts or not all(isinstance(p, tuple) and all(isinstance(n, int) for n in p) for p in parts):
        return None
    n = sum(math.prod(p) for p in parts)
    return roofline.streamed(n * 4.0, n * 4.0) if call.types[:1] == ("float",) else None


def _spread(given: Dims | None, n: int) -> Dims | None:
    """One number for all dimensions, or one each; None when not told."""
    if given is None or len(given) not in (1, n):
        return None
    return given * n if len(given) == 1 else given


def broadcast(sizes: Iterable[Dims]) -> Dims | None:
    """The common size, or None when they do not fit."""
    out: list[int] = []
    for size in sizes:
        out = [1] * (len(size) - len(out)) + out
        for i in range(1, len(size) + 1):
            if size[-i] != 1:
                if out[-i] not in (1, size[-i]):
                    return None
                out[-i] = size[-i]
    return tuple(out)


def _read(call: Call) -> float:
    return sum(call.nbytes(i) for i in range(len(call.dims)) if call.sized(i) is not None)


def _result_bytes(call: Call) -> float:
    """Bytes of an element of the result: the widest of the tensors that are not scalars."""
    return max(
        (call.element_bytes(i) or 0.0 for i in range(len(call.dims)) if call.sized(i) is not None),
        default=4.0,
    )


_UNARY = [
    "abs",
    "neg",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sigmoid",
    "tanh",
    "relu",
    "gelu",
    "silu",
    "mish",
    "elu",
    "selu",
    "celu",
    "hardtanh",
    "hardswish",
    "hardsigmoid",
    "leaky_relu",
    "softplus",
    "sin",
    "cos",
    "erf",
    "floor",
    "ceil",
    "round",
    "sign",
    "clamp",
    "clamp_min",
    "clamp_max",
    "square",
    "pow",
    "threshold",
    "logit",
    "bitwise_not",
    "trunc",
    "nan_to_num",
]
_BINARY = [
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "true_divide",
    "remainder",
    "fmod",
    "maximum",
    "minimum",
    "lerp",
    "addcmul",
    "addcdiv",
    "where",
    "masked_fill",
    "atan2",
    "gelu_backward",
    "silu_backward",
    "sigmoid_backward",
    "tanh_backward",
    "threshold_backward",
    "relu_backward",
    "elu_backward",
    "hardtanh_backward",
    "hardswish_backward",
    "leaky_relu_backward",
    "softplus_backward",
    "mish_backward",
    "bitwise_and",
    "bitwise_or",
]

FORMULAS: dict[str, Formula] = {
    "aten::mm": _gemm(0, 1),
    "aten::bmm": _gemm(0, 1),
    "aten::addmm": _gemm(1, 2, 0),
    "aten::_addmm_activation": _gemm(1, 2, 0),
    "aten::baddbmm": _gemm(1, 2, 0),
    "aten::addbmm": _gemm(1, 2, 0),
    "aten::_scaled_mm": _gemm(0, 1),
    "aten::_int_mm": _gemm(0, 1),
    "aten::_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm": _grouped,
    "aten::linear": _linear,
    "aten::matmul": _matmul,
    "aten::convolution": _conv(3, 4, 5, transposed=6, extra=7),
    "aten::_convolution": _conv(3, 4, 5, transposed=6, extra=7),
    "aten::conv1d": _conv(3, 4, 5),
    "aten::conv2d": _conv(3, 4, 5),
    "aten::conv3d": _conv(3, 4, 5),
    "aten::cudnn_convolution": _conv(3, 2, 4),
    "aten::miopen_convolution": _conv(4, 3, 5),
    "aten::convolution_backward": _conv_backward,
    "aten::_scaled_dot_product_flash_attention": _attention(4),
    "aten::_scaled_dot_product_efficient_attention": _attention(6),
    "aten::_scaled_dot_product_cudnn_attention": _attention(6),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(11, at=1, backward=True),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(11, at=1, backward=True),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(14, at=1, backward=True),
    "aten::scaled_dot_product_attention": _attention(5),
    "flash_attn::_flash_attn_forward": _attention(5, heads_first=False),
    "flash_attn::_flash_attn_backward": _attention(11, heads_first=False, at=1, backward=True),
    "aten::native_layer_norm": _row_wise(7, reads=(0, 2, 3)),
    "aten::native_layer_norm_backward": _row_wise(12, reads=(0, 1, 5), of=1),
    "aten::rms_norm": _row_wise(4, reads=(0, 2)),
    "aten::_fused_rms_norm": _row_wise(4, reads=(0, 2)),
    "aten::_fused_rms_norm_backward": _row_wise(8, reads=(0, 1, 4), of=1),
    "aten::native_group_norm": _row_wise(7, reads=(0, 1, 2)),
    "aten::native_group_norm_backward": _row_wise(12, reads=(0, 1), of=1),
    "aten::native_batch_norm": _row_wise(7, reads=(0, 1, 2)),
    "aten::cudnn_batch_norm": _row_wise(7, reads=(0, 1, 2)),
    "aten::miopen_batch_norm": _row_wise(7, reads=(0, 1, 2)),
    "aten::native_batch_norm_backward": _row_wise(12, reads=(0, 1, 2), of=1),
    "aten::cudnn_batch_norm_backward": _row_wise(12, reads=(0, 1, 2)),
    "aten::miopen_batch_norm_backward": _row_wise(12, reads=(0, 1, 2)),
    "aten::_softmax": _row_wise(5, reads=(0,)),
    "aten::_log_softmax": _row_wise(5, reads=(0,)),
    "aten::_softmax_backward_data": _row_wise(4, reads=(0, 1)),
    "aten::_log_softmax_backward_data": _row_wise(4, reads=(0, 1)),
    "aten::sum": _reduction(1),
    "aten::mean": _reduction(1),
    "aten::amax": _reduction(1),
    "aten::amin": _reduction(1),
    "aten::var": _reduction(1),
    "aten::std": _reduction(1),
    "aten::var_mean": _reduction(1),
    "aten::logsumexp": _reduction(1),
    "aten::embedding": _embedding,
    "aten::embedding_dense_backward": _embedding_backward,
    "aten::cat": _cat,
    "aten::copy_": _copy,
    "aten::clone": _clone,
    "aten::contiguous": _clone,
    "aten::fill_": _fill,
    "aten::zero_": _fill,
    "aten::native_dropout": _dropout,
    **{f"aten::{name}": _elementwise for name in (*_UNARY, *_BINARY)},
    **{f"aten::{name}": _comparison for name in ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "logical_not")},
}
