"""Fused multiply-adds without tensor cores, in fp32 and fp64, by a kernel of ours: registers only, no memory.

It needs no library, so it is the second opinion on the device's clock and its count of multiprocessors.
"""

from collections.abc import Iterator

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.gpu.engine import has_gpu, open_engines, seconds_each
from wellfed.bench.gpu.judge import Kind, Method, gpu_ceiling
from wellfed.bench.gpu.watch import Watch
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import Setup
from wellfed.model import Ceiling, Machine, WellfedError

IDS = ("fma.fp32", "fma.fp64")
WEIGHT = 0.5
EFFORT: Effort = "quick"
ISOLATE = True
MAX_S = 5.0
_TURNS = {"f32": 200, "f64": 100}


def needs(machine: Machine) -> str | None:
    """A GPU of NVIDIA: the kernel is PTX."""
    if machine.gpus and all(gpu.vendor not in (None, "nvidia") for gpu in machine.gpus):
        return "the kernel is PTX, which NVIDIA's driver alone takes"
    return has_gpu(machine)


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Both in turn."""
    before = noise.read_counters()
    with open_engines(setup) as engines:
        engine = engines.get("driver")
        if engine is None:
            raise WellfedError("this takes the driver tier", hint="wellfed measure --tier driver")
        with engine.scope(), Watch(engine.address) as watch:
            runs: dict[str, Run] = {}
            for kind, turns in _TURNS.items():
                work, flops = engine.fma(kind, turns)  # type: ignore[attr-defined]
                runs[f"fma.fp{kind[1:]}"] = lambda work=work, flops=flops: (  # type: ignore[misc]
                    flops / seconds_each(engine, [work], 4) / 1e12
                )
            samples = interleave(runs, budget_s, at_least=5)
    for id, found in samples.items():
        yield gpu_ceiling(
            setup,
            engine,
            before,
            Kind(id=id, title=f"multiply-adds without tensor cores, {id[4:]}", unit="TFLOP/s", dtype=id[4:]),
            [Method("driver", "16 chains a thread, 2048 threads a multiprocessor, kernel of ours", found)],
            environment=watch.seen(),
        )
