"""Collectives as numbers: bandwidth as nccl-tests counts it, and time by size.

`n` ranks, `S` bytes, `t` seconds. `algbw = S / t`; `busbw = algbw x f` with `f` of the table below: the rate on
the busiest link of a ring, comparable across operations and group sizes (nccl-tests, doc/PERFORMANCE.md). What
`S` counts is part of the definition: `message_bytes`. Where a switch reduces (NVLS), `busbw` may exceed a link.

Time by size is `t(S) = alpha + S / beta` only roughly: a measured curve is kept and interpolated between its
points in log-log; alpha and beta serve to go beyond its ends.
"""

import re
from collections.abc import Sequence

import numpy as np

from wellfed.model.base import Value
from wellfed.model.curve import Curve
from wellfed.model.timeline import F64

_TOKENS = (
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("allreduce", "all_reduce"),
    ("crossdevicereduce", "all_reduce"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("sendrecv", "send_recv"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send_recv"),
    ("recv", "send_recv"),
)
_LETTERS = re.compile(r"[^a-z]+")
_UNNAMED = "(anonymous namespace)::"
ENDS_TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""Operations in which no rank can end before all have begun, and all end at about the same time. In the others
the root, or the sender of a small message, may go ahead."""

DTYPE_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16", "UInt16"), 2),
    **dict.fromkeys(("Int", "Float", "ComplexHalf", "UInt32", "QInt32"), 4),
    **dict.fromkeys(("Long", "Double", "ComplexFloat", "UInt64"), 8),
    "ComplexDouble": 16,
}
"""PyTorch's names of its types (c10::ScalarType); every `Float8...` has one byte."""


def operation(name: str) -> str | None:
    """The operation that a collective's or kernel's name says (`_allgather_base`,
    `ncclDevKernel_AllReduce_Sum_bf16_RING_LL`...); None when it doesn't say."""
    letters = _LETTERS.sub("", name.lower().replace(_UNNAMED, "").split("(", 1)[0])
    return next((op for token, op in _TOKENS if token in letters), None)


def dtype_bytes(dtype: str) -> int | None:
    """Bytes of one element of a type as PyTorch names it; None when unknown."""
    if dtype.startswith("Float8"):
        return 1
    return DTYPE_BYTES.get(dtype)


def message_bytes(op: str | None, in_elements: int, out_elements: int, dtype: str) -> int:
    """`S` of one call, from the elements of one rank's input and output: the whole gathered array for
    all_gather, the whole array before reduction for reduce_scatter, else the larger side. -1 when unknown."""
    size = dtype_bytes(dtype)
    if size is None or max(in_elements, out_elements) < 0:
        return -1
    if op in ("all_gather", "gather"):
        elements = out_elements if out_elements >= 0 else in_elements
    elif op in ("reduce_scatter", "all_to_all", "scatter"):
        elements = in_elements if in_elements >= 0 else out_elements
    else:
        elements = max(in_elements, out_elements)
    return elements * size


def bus_factor(op: str | None, n: int) -> float | None:
    """`f` for `n` ranks; None for an unknown operation, fewer than two ranks, or one that moves nothing."""
    if n < 2:
        return None
    if op == "all_reduce":
        return 2.0 * (n - 1) / n
    if op in ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"):
        return (n - 1) / n
    return 1.0 if op in ("broadcast", "reduce", "send_recv") else None


def bus_bandwidth(op: str | None, n: int, size_bytes: float, seconds: float) -> float | None:
    """`busbw` in bytes/s; None where it is not defined."""
    factor = bus_factor(op, n)
    return size_bytes / seconds * factor if factor is not None and seconds > 0 and size_bytes > 0 else None


def nic_bandwidth(bus_bytes_s: float, ranks: int, nodes: int) -> float:
    """What each GPU's share of the network carries under a hierarchical all_reduce over `nodes` nodes:
    `busbw x (nodes - 1) / (ranks - 1)`."""
    return bus_bytes_s * (nodes - 1) / (ranks - 1) if ranks > 1 else 0.0


def ring_seconds(op: str, n: int, size_bytes: float, *, hop_s: float, link_bytes_s: float) -> float:
    """Closed form of a ring: 2(n-1) steps for all_reduce, n-1 for the others, each of a hop's latency and of
    `S / n` bytes (broadcast and reduce: pipelined, `S` in all). 0 for one rank."""
    if n < 2:
        return 0.0
    factor = bus_factor(op, n)
    if factor is None:
        raise ValueError(f"no ring for {op}")
    steps = 1 if op == "send_recv" else 2 * (n - 1) if op == "all_reduce" else n - 1
    return steps * hop_s + factor * size_bytes / link_bytes_s


class AlphaBeta(Value, frozen=True, kw_only=True):
    """`t(S) = alpha_s + S / beta_bytes_s`, fitted to `n` points."""

    alpha_s: float
    beta_bytes_s: float
    n: int

    @property
    def half_bytes(self) -> float:
        """The size at which half of the bandwidth is reached: alpha x beta."""
        return self.alpha_s * self.beta_bytes_s

    def seconds(self, size_bytes: F64) -> F64:
        return np.asarray(self.alpha_s + np.asarray(size_bytes) / self.beta_bytes_s)


def fit_alpha_beta(sizes: F64, seconds: F64) -> AlphaBeta | None:
    """Least squares of the *relative* error (weight 1 / t^2), so that small sizes count as much as large ones.
    alpha is never below 0. None when the points have one size only, or time does not grow with size."""
    sizes, seconds = np.asarray(sizes, float), np.asarray(seconds, float)
    good = (seconds > 0) & (sizes >= 0) & np.isfinite(seconds) & np.isfinite(sizes)
    s, t = sizes[good], seconds[good]
    if len(np.unique(s)) < 2:
        return None
    w = 1.0 / t**2
    mean_s, mean_t = np.average(s, weights=w), np.average(t, weights=w)
    slope = float(np.sum(w * (s - mean_s) * (t - mean_t)) / np.sum(w * (s - mean_s) ** 2))
    alpha = float(mean_t - slope * mean_s)
    if alpha < 0:
        alpha, slope = 0.0, float(np.sum(w * s * t) / np.sum(w * s * s))
    if slope <= 0:
        return None
    return AlphaBeta(alpha_s=alpha, beta_bytes_s=1.0 / slope, n=len(s))


def curve_of(
    op: str, ranks: int, sizes: F64, seconds: F64, *, quantile: float = 0.1, source: str = ""
) -> Curve | None:
    """A curve from calls of all sizes: at each size a low quantile, since waiting only ever adds. None
    without a call of known size."""
    sizes, seconds = np.asarray(sizes, float), np.asarray(seconds, float)
    good = (sizes > 0) & (seconds > 0)
    points = np.unique(sizes[good])
    if not len(points):
        return None
    low = [float(np.quantile(seconds[good & (sizes == s)], quantile)) for s in points]
    return Curve(op=op, ranks=ranks, sizes=tuple(points.tolist()), seconds=tuple(low), source=source)


def expected_seconds(curve: Curve, sizes: F64 | Sequence[float]) -> F64:
    """Between points log-log interpolation. Beyond the ends the course of the fitted alpha and beta, joined to
    the curve; of a curve with one point, flat below and proportional above."""
    x, y = np.asarray(curve.sizes, float), np.asarray(curve.seconds, float)
    s = np.maximum(np.asarray(sizes, float), 1.0)
    inside = np.exp(np.interp(np.log(s), np.log(x), np.log(y)))
    fit = fit_alpha_beta(x, y)
    if fit is None:
        return np.asarray(np.where(s > x[-1], y[-1] * s / x[-1], inside))
    ends = fit.seconds(x[[0, -1]])
    course = fit.seconds(s)
    return np.asarray(
        np.where(s < x[0], y[0] * course / ends[0], np.where(s > x[-1], y[-1] * course / ends[1], inside))
    )


def half_bandwidth_bytes(curve: Curve) -> float:
    """The size from which at least half of the curve's best bandwidth is reached (interpolated in log-log)."""
    x = np.asarray(curve.sizes, float)
    rate = np.log(x / np.asarray(curve.seconds, float))
    target = rate.max() - np.log(2.0)
    below = np.flatnonzero(rate[: int(rate.argmax()) + 1] < target)
    if not len(below):
        return float(x[0])
    k = int(below[-1])
    part = (target - rate[k]) / (rate[k + 1] - rate[k])
    return float(np.exp(np.log(x[k]) + part * (np.log(x[k + 1]) - np.log(x[k]))))


RING_BASE_S = 8.4e-6
RING_HOP_S = {"nvlink": 3.4e-6, "pcie": 5.7e-6, "network": 14e-6}
"""What a ring costs however small the message, and each of its steps (NCCL 2.30.7, src/graph/tuning.cc, Simple)."""
LINK_SHARE = {"nvlink": 0.75, "pcie": 0.38, "network": 0.64}
"""Share of a link's one-way rate that a sound ring reaches at least. NVLink: 0.76 (8 x B200), 0.78 (A100), 0.81
(H200), stas00/ml-engineering@744d01e network/README.md. PCIe: 6 of 15.75 GB/s over the CPU, 12 through a switch,
NVIDIA/nccl#766. Network: 0.64 with a NIC at the CPU, 0.96 with GPUDirect on HDR (NVIDIA/nccl#412), 0.74 on EFA."""


def link_curve(op: str, n: int, kind: str, link_bytes_s: float, source: str) -> Curve | None:
    """The time by size that a sound ring of `n` ranks takes at most over links of a rate (bytes/s, one way) and a
    `kind` of `RING_HOP_S`; None for an operation without a ring. A switch that reduces is faster than this."""
    if bus_factor(op, n) is None:
        return None
    rate = link_bytes_s * LINK_SHARE[kind]
    sizes = [float(1 << k) for k in range(10, 37, 2)]
    times = [
        RING_BASE_S + ring_seconds(op, n, size, hop_s=RING_HOP_S[kind], link_bytes_s=rate) for size in sizes
    ]
    return Curve(op=op, ranks=n, sizes=tuple(sizes), seconds=tuple(times), source=source)
