"""The four kernels of STREAM (McCalpin 1995) by whatever compiles or vectorises them here, on given arrays.

    copy  a = b      scale  a = 3 b      add  a = b + c      triad  a = b + 3 c

numba compiles the loops, as C has them and with stores past the cache; the GIL is free while they run. torch adds and
multiplies in one pass. numpy copies as memcpy does; its triad needs two passes over blocks, so it is a lower bound.
"""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Kernel = Callable[[Array, Array, Array], Any]

BYTES: Mapping[str, int] = {"copy": 16, "scale": 16, "add": 24, "triad": 24}
"""Bytes a double that STREAM counts: what the loop names, not the line fetched before it is overwritten."""
KERNELS = tuple(BYTES)
BLOCK = 32 << 10
"""Doubles of one numpy block: 256 KiB, which stays in any L2 of a server together with its inputs."""
SCALAR = 3.0


class Engine(NamedTuple):
    """`how` tells the method of a kernel. `lower_bounds`: kernels that a C loop is expected to beat."""

    name: str
    version: str
    kernels: Mapping[str, Kernel]
    how: Mapping[str, str]
    lower_bounds: frozenset[str] = frozenset()


def has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def numpy_engine() -> Engine:
    """Always there. Scale is one pass, but through the cache."""
    return Engine(
        "numpy",
        np.__version__,
        {"copy": _np_copy, "scale": _np_scale, "add": _np_add, "triad": _np_triad},
        {
            "copy": "np.copyto",
            "scale": "np.multiply",
            "add": "np.add",
            "triad": "np.multiply and np.add by blocks of 256 KiB",
        },
        frozenset({"scale", "add", "triad"}),
    )


def _np_copy(a: Array, b: Array, c: Array) -> None:
    np.copyto(a, b)


def _np_scale(a: Array, b: Array, c: Array) -> None:
    np.multiply(b, SCALAR, out=a)


def _np_add(a: Array, b: Array, c: Array) -> None:
    np.add(b, c, out=a)


def _np_triad(a: Array, b: Array, c: Array) -> None:
    scratch = np.empty(min(BLOCK, len(a)))
    for start in range(0, len(a), BLOCK):
        part = c[start : start + BLOCK]
        product = scratch[: len(part)]
        np.multiply(part, SCALAR, out=product)
        np.add(product, b[start : start + BLOCK], out=a[start : start + BLOCK])


def numba_engine(kernels: Sequence[str] = KERNELS) -> Engine | None:
    """The loops as C would have them: what STREAM compiled by gcc says. None without numba. Compiling costs about half
    a second and a tenth for each kernel more. Nothing is kept on disk: a cache of code is not worth a second."""
    numba = import_numba()
    if numba is None:
        return None
    signature = "void(float64[::1], float64[::1], float64[::1])"
    compiled = {
        name: numba.njit(signature, nogil=True, fastmath=True, error_model="numpy")(_LOOPS[name])
        for name in kernels
    }
    how = {name: f"{_TEXT[name]} as a loop compiled by numba" for name in kernels}
    return Engine("numba", numba.__version__, compiled, how)


def past_cache_engine(kernels: Sequence[str] = KERNELS) -> Engine | None:
    """The same with stores past the cache, usually the most that the memory gives; None where numba can't."""
    numba = import_numba()
    if numba is None:
        return None
    try:
        from wellfed.bench.host import vectors

        compiled = {name: vectors.compile_kernel(name) for name in kernels}
    except (ImportError, numba.core.errors.NumbaError):  # an llvmlite of another time
        return None
    how = {name: f"{_TEXT[name]} compiled by numba, stores past the cache" for name in kernels}
    return Engine("numba, stores past the cache", numba.__version__, compiled, how)


def import_numba() -> Any:
    """numba, or None where there is none or one that does not suit this numpy."""
    if not has_numba():
        return None
    try:
        import numba
    except ImportError:
        return None
    return numba


def _copy(a, b, c):  # type: ignore[no-untyped-def]  # compiled from its source; annotations are the signature's
    for i in range(a.shape[0]):
        a[i] = b[i]


def _scale(a, b, c):  # type: ignore[no-untyped-def]
    for i in range(a.shape[0]):
        a[i] = 3.0 * b[i]


def _add(a, b, c):  # type: ignore[no-untyped-def]
    for i in range(a.shape[0]):
        a[i] = b[i] + c[i]


def _triad(a, b, c):  # type: ignore[no-untyped-def]
    for i in range(a.shape[0]):
        a[i] = b[i] + 3.0 * c[i]


_LOOPS = {"copy": _copy, "scale": _scale, "add": _add, "triad": _triad}
_TEXT = {"copy": "a = b", "scale": "a = 3b", "add": "a = b + c", "triad": "a = b + 3c"}


def torch_engine() -> Engine | None:
    """None without torch. Each thread that runs a kernel uses one torch thread, so a team decides where they run.
    Importing torch takes seconds: only for a process of its own."""
    if not has_torch():
        return None
    import torch

    def one_pass(work: Callable[[Any, Any, Any], Any]) -> Kernel:
        def kernel(a: Array, b: Array, c: Array) -> None:
            torch.set_num_threads(1)  # of this thread: OpenMP keeps the number by thread
            work(torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy(c))

        return kernel

    return Engine(
        "torch",
        str(torch.__version__),
        {
            "copy": one_pass(lambda a, b, c: a.copy_(b)),
            "scale": one_pass(lambda a, b, c: torch.mul(b, SCALAR, out=a)),
            "add": one_pass(lambda a, b, c: torch.add(b, c, out=a)),
            "triad": one_pass(lambda a, b, c: torch.add(b, c, alpha=SCALAR, out=a)),
        },
        {
            "copy": "torch.Tensor.copy_",
            "scale": "torch.mul(out=)",
            "add": "torch.add(out=)",
            "triad": "torch.add(alpha=3, out=)",
        },
    )
