"""The largest matrix product rate of any shape: a coarse grid, then an ascent along one dimension at a time.

The best shape of a device is rarely a square: tiles that divide the multiprocessors evenly win. A search in place of
the days that a full scan of the shapes takes.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import product

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.gpu import matmul
from wellfed.bench.gpu.engine import has_gpu, open_torch
from wellfed.bench.gpu.gemm import product_run
from wellfed.bench.gpu.judge import Kind, Method, gpu_ceiling
from wellfed.bench.gpu.matmul import Shape
from wellfed.bench.repeat import interleave
from wellfed.bench.setup import Setup
from wellfed.model import Ceiling, Machine
from wellfed.predict.statistics import percentile

IDS = ("mamf.bf16", "mamf.fp8")
WEIGHT = 5.0
EFFORT: Effort = "full"
ISOLATE = True
MAX_S = 120.0
GRID = tuple(product((2048, 4096, 8192, 12288), (4096, 8192, 16384), (4096, 8192)))
"""24 shapes."""
STEP = 256
GAIN = 0.005
ROUNDS = 3


def needs(machine: Machine) -> str | None:
    """A GPU."""
    return has_gpu(machine)


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """The best shape of bf16 and of fp8, measured again at the end: the best of many noisy numbers is too good."""
    with open_torch(setup) as engine:
        hip = bool(engine.torch.version.hip)
        dtypes = [name for name in ("bf16", "fp8") if matmul.cannot(name, engine.capability, hip=hip) is None]
        for dtype in dtypes:
            before = noise.read_counters()
            tried: dict[Shape, float] = {}

            def score(shape: Shape, dtype: str = dtype, tried: dict[Shape, float] = tried) -> float:
                if shape not in tried:
                    with engine.scope():
                        run = product_run(engine, dtype, shape, sample_s=0.005)
                        tried[shape] = max(run() for _ in range(3))
                        del run
                return tried[shape]

            deadline = time.monotonic() + budget_s / len(dtypes) * 0.8
            best = climb(score, GRID, deadline=deadline)
            with engine.scope():
                run = product_run(engine, dtype, best)
                samples = interleave({dtype: run}, budget_s / len(dtypes) * 0.15, at_least=10)[dtype]
                del run
            yield gpu_ceiling(
                setup,
                engine,
                before,
                Kind(
                    id=f"mamf.{dtype}",
                    title=f"best matrix product of any shape, {matmul.DTYPES[dtype].title}",
                    unit="TFLOP/s",
                    size="x".join(map(str, best)),
                    dtype=dtype,
                ),
                [Method("torch", "24 shapes, then steps of 256 along one dimension at a time", samples)],
                environment={
                    "shapes_tried": len(tried),
                    "grid_median": round(percentile(list(tried.values()), 50), 1),
                },
            )


def climb(
    score: Callable[[Shape], float], starts: Iterable[Shape], *, deadline: float = float("inf")
) -> Shape:
    """The best shape found: from the best of `starts`, one dimension after the other is moved as long as it helps, until
    three rounds over all of them gain less than 0.5 %, or the deadline (of time.monotonic)."""
    best, value = (0, 0, 0), 0.0
    for shape in starts:
        if value and time.monotonic() >= deadline:
            return best
        if (found := score(shape)) > value:
            best, value = shape, found
    flat = 0
    while flat < ROUNDS and time.monotonic() < deadline:
        begin, start = value, best
        for axis, step in product(range(3), (STEP, -STEP)):
            while time.monotonic() < deadline:
                moved = list(best)
                moved[axis] += step
                if moved[axis] < STEP or (found := score((moved[0], moved[1], moved[2]))) <= value:
                    break
                best, value = (moved[0], moved[1], moved[2]), found
        if best == start:
            break
        flat = flat + 1 if value < begin * (1 + GAIN) else 0
    return best
