"""Matrix products by torch on the CPU in the formats that numpy has no library for: bf16, fp16 and int8. They show
whether AMX or AVX-512 BF16 and VNNI are there and used: with AMX, bf16 runs at several times float32; where it runs no
faster, or slower, bf16 on this CPU is emulated. float32 beside them, so that the ratio is of one library.
"""

import importlib.util
import time
from collections.abc import Iterator, Mapping
from typing import Any

from wellfed.bench import noise
from wellfed.bench.host import blas
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import MIB, Scale, Setup, available_bytes, build_ceiling
from wellfed.model import Ceiling, Machine

IDS = ("blas.bf16.*", "blas.fp16.*", "blas.int8.*", "blas.fp32-torch.*")
WEIGHT = 1.5
EFFORT = "full"
ISOLATE = True
MAX_S = 20.0


def needs(machine: Machine) -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: pip install 'wellfed[torch]'"
    return "less than 512 MiB of memory are available" if available_bytes(machine) < 512 * MIB else None


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Each format at the largest square that its share of the time has room for, and at the user's shapes."""
    import torch

    formats = {"fp32-torch": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8}
    for name, dtype in formats.items():
        yield from _format(setup, name, dtype, budget_s / len(formats))


def _format(setup: Setup, name: str, dtype: Any, budget_s: float) -> Iterator[Ceiling]:
    import torch

    before = noise.read_counters()
    try:
        trial = product_run(dtype, (256,) * 3)
        rate = max(trial() for _ in range(4)) * 1e9
        shapes = blas.shapes_for(setup, rate, budget_s)
        runs = {blas.shape_text(shape): product_run(dtype, shape) for shape in shapes}
        with blas.cpu_watch(torch.get_num_threads()) as crowded:
            samples = interleave(runs, budget_s - (time.monotonic() - before.at_s))
    except (RuntimeError, NotImplementedError):  # this torch has no such product for CPUs
        return
    for shape in shapes:
        yield _ceiling(setup, before, name, shape, samples[blas.shape_text(shape)], crowded)


def product_run(dtype: Any, shape: blas.Shape) -> Run:
    """C = A B^T; GFLOP/s, for int8 with int32 sums."""
    import torch

    m, n, k = shape
    generator = torch.Generator().manual_seed(11)
    if dtype is torch.int8:
        a = torch.randint(-127, 127, (m, k), generator=generator, dtype=dtype)
        b = torch.randint(-127, 127, (n, k), generator=generator, dtype=dtype)
    else:
        a = torch.randn(m, k, generator=generator).to(dtype)
        b = torch.randn(n, k, generator=generator).to(dtype)
    work = torch._int_mm if dtype is torch.int8 else torch.matmul

    def run() -> float:
        start = time.perf_counter()
        work(a, b.t())
        return 2 * m * n * k / (time.perf_counter() - start) / 1e9

    return run


def _ceiling(
    setup: Setup,
    before: noise.Counters,
    name: str,
    shape: blas.Shape,
    samples: list[float],
    crowded: Mapping[str, str],
) -> Ceiling:
    import torch

    unit = "GOP/s" if name == "int8" else "GFLOP/s"
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(unit=unit, band=(0.05, blas.BAND[1]), band_source=blas.BAND_SOURCE),
        id=f"blas.{name}.{blas.shape_text(shape)}",
        title=f"matrix product by torch, {name.removesuffix('-torch')}, {blas.shape_text(shape)}",
        method="torch._int_mm, int32 sums"
        if name == "int8"
        else "torch.matmul of random normal matrices, the second stored (N, K)",
        tier="torch",
        size="x".join(map(str, shape)),
        dtype=name.removesuffix("-torch"),
        threads=torch.get_num_threads(),
        **crowded,
        environment={
            "version": str(torch.__version__),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "mkldnn": torch.backends.mkldnn.is_available(),
        },
    )
