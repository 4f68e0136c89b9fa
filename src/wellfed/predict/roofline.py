"""What an operator must do at least, in FLOPs and bytes, and how long a device takes for it.

FLOPs count a multiply-add as two. Bytes are those of each operand once: read each input, write each output. What a
kernel moves again because it does not fit a cache is the kernel's own, not the operator's. The closed forms are those
of torch.utils.flop_counter (GEMM, convolution, attention and its backward of five products); the roofline itself is
Williams, Waterman and Patterson, CACM 52(4), 2009.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple


class OpCost(NamedTuple):
    """FLOPs and bytes of one call. `matrix` says that the products are of the kind that matrix units do."""

    flops: float
    read_bytes: float
    write_bytes: float
    matrix: bool = False

    @property
    def bytes(self) -> float:
        return self.read_bytes + self.write_bytes

    @property
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.bytes if self.bytes else 0.0


class Roof(NamedTuple):
    """The ceilings of one device: FLOP/s by precision (`fp32`, `tf32`, `bf16`, `fp16`, `fp8`, `int8`...) and bytes a
    second. `source` says whether they were measured here or are a catalogue's dense peaks."""

    flops_per_s: dict[str, float]
    bytes_per_s: float
    source: str


class Efficiency(NamedTuple):
    """What share of the peaks a good kernel reaches, and what any kernel takes at least (ns)."""

    compute: float
    memory: float
    floor_ns: float


GOOD_KERNEL = {
    "low": Efficiency(0.60, 0.65, 5_000.0),
    "expected": Efficiency(0.78, 0.78, 3_000.0),
    "high": Efficiency(0.88, 0.88, 2_000.0),
}
"""A library's GEMM or streaming kernel at bf16 on Hopper, read from recordings in which it is already the fast one
(190 GEMM shapes of 1 to 550 GFLOP: 0.66 to 0.92 of the dense peak plus 2 to 5 us, triton and fused-optimizer kernels
0.73 to 0.85 of the memory's). Published: 794.5 of 989 TFLOP/s, 80 % (catalogue, `achieved_bf16_tflops`)."""

GOOD_CONV = {
    "low": Efficiency(0.30, 0.40, 8_000.0),
    "expected": Efficiency(0.50, 0.55, 5_000.0),
    "high": Efficiency(0.75, 0.75, 3_000.0),
}
"""The same for a library's convolution: 35 to 56 % of the bf16 dense peak in NCHW, 69 to 82 % in channels_last (cuDNN of
torch 2.11 on an H200, 3 x 3 with 128 to 512 channels, forward and backward)."""

SIMT_FP32 = 0.72
"""Share of the fp32 peak that a large product without matrix units reaches: 69 to 72 % (cuBLAS of torch 2.11 on an H200,
10 shapes); tf32 as in `GOOD_KERNEL`."""

FLASH = {
    "low": (0.28, 0.20),
    "expected": (0.40, 0.30),
    "high": (0.60, 0.45),
}
"""Share of the bf16 dense peak that fused attention reaches, forward and backward, at lengths of 512 and more and heads
of 64 to 128. FlashAttention-2 on H100: 335 to 370 TFLOP/s forward (34 to 37 %), FlashAttention-3 and cuDNN 9 up to
75 % forward (Shah et al. 2024, arXiv 2407.08608); the backward a fifth to a third less."""


def gemm(
    m: int,
    n: int,
    k: int,
    *,
    batch: int = 1,
    a_bytes: float = 2.0,
    b_bytes: float = 2.0,
    out_bytes: float = 2.0,
    added_bytes: float = 0.0,
) -> OpCost:
    """`batch` products of m x k by k x n; `added_bytes` is what else is read (a bias, an old output)."""
    return OpCost(
        2.0 * batch * m * n * k,
        batch * (m * k * a_bytes + k * n * b_bytes) + added_bytes,
        batch * m * n * out_bytes,
        matrix=True,
    )


def conv_output(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    """The spatial size after a convolution."""
    return tuple(
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, t, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def transposed_output(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> tuple[int, ...]:
    """The spatial size after a transposed convolution."""
    return tuple(
        (s - 1) * t - 2 * p + d * (k - 1) + o + 1
        for s, k, t, p, d, o in zip(size, kernel, stride, padding, dilation, output_padding, strict=True)
    )


def conv(
    given: Sequence[int],
    made: Sequence[int],
    weight: Sequence[int],
    *,
    transposed: bool = False,
    element_bytes: float = 2.0,
    bias: int = 0,
) -> OpCost:
    """A convolution from `given` to `made` ([batch, channels, size...]). `weight` is [out, in/groups, kernel...], or
    [in, out/groups, kernel...] when transposed; each output (transposed: input) position takes one product with the
    whole of it."""
    return OpCost(
        _conv_flops(given, made, weight, transposed),
        (math.prod(given) + math.prod(weight) + bias) * element_bytes,
        math.prod(made) * element_bytes,
        matrix=True,
    )


def conv_backward(
    given: Sequence[int],
    made: Sequence[int],
    weight: Sequence[int],
    *,
    transposed: bool = False,
    element_bytes: float = 2.0,
    wanted: tuple[bool, bool, bool] = (True, True, False),
) -> OpCost:
    """The gradients of a convolution that are `wanted` (input, weight, bias): as many products each as forward."""
    to_input, to_weight, to_bias = wanted
    grad, x, w = math.prod(made), math.prod(given), math.prod(weight)
    channels = made[1] if len(made) > 1 else 0
    read = grad + (w if to_input else 0) + (x if to_weight else 0)
    written = (x if to_input else 0) + (w if to_weight else 0) + (channels if to_bias else 0)
    flops = _conv_flops(given, made, weight, transposed) * (to_input + to_weight) + (grad if to_bias else 0)
    return OpCost(flops, read * element_bytes, written * element_bytes, matrix=True)


def _conv_flops(given: Sequence[int], made: Sequence[int], weight: Sequence[int], transposed: bool) -> float:
    over = given if transposed else made
    return 2.0 * over[0] * math.prod(over[2:]) * math.prod(weight)


def attention(
    batch: int,
    heads: int,
    kv_heads: int,
    queries: int,
    keys: int,
    qk_dim: int,
    v_dim: int,
    *,
    causal: bool = False,
    element_bytes: float = 2.0,
    backward: bool = False,
) -> OpCost:
    """softmax(Q K^T) V, fused: the scores are never written. Backward: scores again, dV, dP, dQ, dK; it reads Q, K, V,
    O, dO and writes dQ, dK, dV. With grouped queries K and V have `kv_heads`. Masked products are not counted."""
    seen = float(visible(queries, keys)) if causal else float(queries) * keys
    per = 3 * qk_dim + 2 * v_dim if backward else qk_dim + v_dim
    q, o = queries * qk_dim * heads, queries * v_dim * heads
    k, v = keys * qk_dim * kv_heads, keys * v_dim * kv_heads
    read = q + k + v + (2 * o if backward else 0)
    written = (q + k + v) if backward else o
    return OpCost(
        2.0 * batch * heads * seen * per,
        batch * read * element_bytes,
        batch * written * element_bytes,
        matrix=True,
    )


def visible(queries: int, keys: int) -> int:
    """Pairs that a causal mask from the top left leaves: query i sees keys 0 to i."""
    full = min(queries, keys)
    return full * (full + 1) // 2 + max(queries - keys, 0) * keys


def streamed(read_bytes: float, write_bytes: float, *, flops: float = 0.0) -> OpCost:
    """An operator that does little arithmetic: elementwise, norm, reduction, copy, look-up."""
    return OpCost(flops, read_bytes, write_bytes)


def roof_ns(cost: OpCost, flops_per_s: float | None, bytes_per_s: float | None) -> float | None:
    """The least time of a call under the roof, ns. None when the ceiling that it needs is not known."""
    if bytes_per_s is None or (cost.matrix and flops_per_s is None):
        return None
    compute = cost.flops / flops_per_s if flops_per_s else 0.0
    return max(compute, cost.bytes / bytes_per_s) * 1e9


def kernel_ns(cost: OpCost, flops_per_s: float, bytes_per_s: float, of: Efficiency) -> float:
    """How long a good kernel takes for it, ns."""
    busy = max(cost.flops / (flops_per_s * of.compute), cost.bytes / (bytes_per_s * of.memory))
    return busy * 1e9 + of.floor_ns
