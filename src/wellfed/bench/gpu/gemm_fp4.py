"""Matrix products in fp4 (NVFP4), which GPUs from compute capability 10.0 on have."""

from collections.abc import Iterator

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.gpu.engine import has_gpu, open_torch
from wellfed.bench.gpu.gemm import product_run
from wellfed.bench.gpu.judge import Kind, Method, gpu_ceiling
from wellfed.bench.gpu.matmul import DTYPES
from wellfed.bench.repeat import interleave
from wellfed.bench.setup import Setup
from wellfed.model import Ceiling, Machine

IDS = ("gemm.fp4.8192x8192x8192",)
WEIGHT = 1.0
EFFORT: Effort = "quick"
ISOLATE = True
MAX_S = 10.0
_SHAPE = (8192, 8192, 8192)


def needs(machine: Machine) -> str | None:
    """A GPU that has it."""
    found = [gpu.compute_capability for gpu in machine.gpus if gpu.compute_capability]
    if found and all(int(text.partition(".")[0]) < 10 for text in found):
        return f"fp4 takes compute capability 10.0; this GPU has {found[0]}"
    return has_gpu(machine) or (None if found else "fp4 has no path for this GPU here")


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """One large square."""
    before = noise.read_counters()
    with open_torch(setup) as engine, engine.scope():
        samples = interleave({"fp4": product_run(engine, "fp4", _SHAPE)}, budget_s, at_least=5)["fp4"]
        yield gpu_ceiling(
            setup,
            engine,
            before,
            Kind(
                id=IDS[0],
                title=f"matrix product, {DTYPES['fp4'].title}",
                unit="TFLOP/s",
                size="8192x8192x8192",
                dtype="fp4",
            ),
            [Method("torch", "torch._scaled_mm, random data, scales of 1, rotating buffers", samples)],
        )
