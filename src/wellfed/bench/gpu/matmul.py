"""Matrix products by torch, by name of dtype: how the inputs are made and what is called."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from wellfed.model import WellfedError

Shape = tuple[int, int, int]
"""(M, N, K): an M x K by a K x N matrix."""
Work = Callable[[], object]
_ROTATE_OVER_L2 = 3
_SETS_MAX = 64
_ROUND = 16


class Dtype(NamedTuple):
    """`bytes` of an element of the inputs and of the result; `oldest` compute capability of NVIDIA that has it."""

    title: str
    bytes: float
    out_bytes: int
    unit: str = "TFLOP/s"
    oldest: tuple[int, int] = (0, 0)
    precision: str | None = None


DTYPES = {
    "bf16": Dtype("bfloat16", 2, 2, oldest=(8, 0)),
    "fp16": Dtype("float16", 2, 2, oldest=(7, 0)),
    "tf32": Dtype("float32 on tensor cores", 4, 4, oldest=(8, 0), precision="high"),
    "fp32": Dtype("float32", 4, 4, precision="highest"),
    "fp64": Dtype("float64", 8, 8),
    "int8": Dtype("int8, 32-bit sums", 1, 4, "TOP/s", (7, 5)),
    "fp8": Dtype("fp8 e4m3, one scale a tensor", 1, 2, oldest=(8, 9)),
    "fp8-row": Dtype("fp8 e4m3, a scale a row", 1, 2, oldest=(9, 0)),
    "fp4": Dtype("fp4 e2m1, a scale for 16", 0.5, 2, oldest=(10, 0)),
}


def flops(shape: Shape) -> int:
    """Multiplications and additions of one product."""
    m, n, k = shape
    return 2 * m * n * k


def set_bytes(dtype: str, shape: Shape) -> int:
    """Of one set of inputs and result."""
    (m, n, k), kind = shape, DTYPES[dtype]
    return int((m * k + n * k) * kind.bytes) + m * n * kind.out_bytes


def sets_for(dtype: str, shape: Shape, l2_bytes: int) -> int:
    """How many sets are gone through in turn: together three times the L2 cache, and two at least."""
    return min(max(-(-_ROTATE_OVER_L2 * l2_bytes // set_bytes(dtype, shape)), 2), _SETS_MAX)


def cannot(dtype: str, capability: tuple[int, int], *, hip: bool) -> str | None:
    """Why this device has no such product."""
    oldest = DTYPES[dtype].oldest
    if not hip and capability < oldest:
        return (
            f"{dtype} takes compute capability {oldest[0]}.{oldest[1]}; "
            f"this GPU has {capability[0]}.{capability[1]}"
        )
    if hip and dtype == "fp4":
        return "fp4 has no path for AMD here"
    return None


def works(torch: Any, dtype: str, shape: Shape, sets: int) -> Sequence[Work]:
    """One product for each set of inputs: random normal data, B stored as (N, K) and transposed, as weights are. Raises
    WellfedError for a shape that the kernels don't take."""
    m, n, k = shape
    if dtype in ("int8", "fp8", "fp8-row", "fp4") and (m % _ROUND or n % _ROUND or k % _ROUND or m <= _ROUND):
        raise WellfedError(f"{dtype} takes sizes that are multiples of 16, and M above 16", hint=None)
    return [_work(torch, dtype, shape) for _ in range(sets)]


def _work(torch: Any, dtype: str, shape: Shape) -> Work:
    m, n, k = shape
    a = torch.randn(m, k, device="cuda", dtype=torch.float32)
    b = torch.randn(n, k, device="cuda", dtype=torch.float32)
    if dtype in ("bf16", "fp16", "tf32", "fp32", "fp64"):
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}.get(
            dtype, torch.float32
        )
        left, right = a.to(kind), b.to(kind).t()
        out = torch.empty(m, n, device="cuda", dtype=kind)
        return lambda: torch.mm(left, right, out=out)
    if dtype == "int8":
        # Of the spread that quantized activations have: the largest of a row near 127.
        left, right = ((x * 32).clamp(-127, 127).to(torch.int8) for x in (a, b))
        sums = torch.empty(m, n, device="cuda", dtype=torch.int32)
        return lambda: torch._int_mm(left, right.t(), out=sums)
    if dtype == "fp4":
        return _fp4(torch, shape)
    return _fp8(torch, a, b, rows=dtype == "fp8-row")


def _fp8(torch: Any, a: Any, b: Any, *, rows: bool) -> Work:
    name = "float8_e4m3fnuz" if _old_amd(torch) else "float8_e4m3fn"
    left, right = (x.to(getattr(torch, name)) for x in (a, b))
    one = torch.ones((), device="cuda")
    scale_a = torch.ones(len(a), 1, device="cuda") if rows else one
    scale_b = torch.ones(1, len(b), device="cuda") if rows else one
    return lambda: torch._scaled_mm(
        left,
        right.t(),
        scale_a=scale_a,
        scale_b=scale_b,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


def _fp4(torch: Any, shape: Shape) -> Work:
    """NVFP4: two numbers a byte, a scale in e4m3 for 16 of them, in blocks of 128 by 4 scales."""
    m, n, k = shape
    kind = torch.float4_e2m1fn_x2

    def packed(rows: int) -> Any:
        return torch.randint(0, 256, (rows, k // 2), device="cuda", dtype=torch.uint8).view(kind)

    def scales(rows: int) -> Any:
        count = -(-rows // 128) * 128 * (-(-k // 64) * 4)
        return torch.ones(count, device="cuda").to(torch.float8_e4m3fn)

    left, right, scale_a, scale_b = packed(m), packed(n), scales(m), scales(n)
    return lambda: torch._scaled_mm(
        left, right.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16
    )


def _old_amd(torch: Any) -> bool:
    """MI300 has the fnuz kind of fp8, its successors the common one."""
    if not torch.version.hip:
        return False
    return "gfx94" in str(getattr(torch.cuda.get_device_properties(0), "gcnArchName", ""))
