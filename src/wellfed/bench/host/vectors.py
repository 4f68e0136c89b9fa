"""STREAM's kernels by explicit vectors for numba, with stores that go past the cache: a compiler does not choose
those by itself. A line is then not fetched before it is overwritten, which saves a third of a copy's traffic and a
quarter of a triad's.

Written in LLVM's own instructions (`!nontemporal`: movnt on x86-64, stnp on arm64). numba is imported when a kernel is
compiled and not before: this module is found, and imported, with all benchmarks.
"""

from collections.abc import Callable
from typing import Any

WIDTH = 4
"""Doubles a step. Wider ones are no faster, measured on Zen 4 with AVX-512."""


def compile_kernel(name: str) -> Callable[..., Any]:
    """`kernel(a, b, c)` over whole vectors: the arrays begin at a border of 64 bytes and hold a multiple of 8 doubles.
    Raises ImportError and numba's NumbaError."""
    import numba

    step = _step(name)

    def kernel(a, b, c):  # type: ignore[no-untyped-def]
        for i in range(0, a.shape[0], WIDTH):
            step(a, b, c, i)

    signature = "void(float64[::1], float64[::1], float64[::1])"
    compiled: Callable[..., Any] = numba.njit(signature, nogil=True, error_model="numpy")(kernel)
    return compiled


def _step(name: str) -> Any:
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    vector = ir.VectorType(ir.DoubleType(), WIDTH)
    three = ir.Constant(vector, [3.0] * WIDTH)

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def line(number: int) -> Any:
            array = context.make_array(signature.args[number])(context, builder, args[number])
            return builder.bitcast(builder.gep(array.data, [args[3]]), vector.as_pointer())

        def load(number: int) -> Any:
            return builder.load(line(number), align=8 * WIDTH)

        store = builder.store(_VALUES[name](builder, load, three), line(0), align=8 * WIDTH)
        flag = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        store.set_metadata("nontemporal", flag)
        return context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def step(typing, a, b, c, at):  # type: ignore[no-untyped-def]
        return types.void(a, b, c, at), lower

    return step


_VALUES: dict[str, Callable[[Any, Callable[[int], Any], Any], Any]] = {
    "copy": lambda builder, load, three: load(1),
    "scale": lambda builder, load, three: builder.fmul(three, load(1)),
    "add": lambda builder, load, three: builder.fadd(load(1), load(2)),
    "triad": lambda builder, load, three: builder.fadd(load(1), builder.fmul(three, load(2))),
}
