"""What memory costs to take: of the device, from torch's cache, and pinned on the host."""

import time
from collections.abc import Callable, Iterator
from ctypes import c_ulonglong, c_void_p
from typing import Any

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.gpu.engine import Engine, has_gpu, open_engines
from wellfed.bench.gpu.judge import Kind, Method, gpu_ceiling
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import MIB, Setup, size_text
from wellfed.model import Ceiling, Machine
from wellfed.predict.statistics import percentile

IDS = ("alloc.device", "alloc.cached", "alloc.pinned")
WEIGHT = 0.5
EFFORT: Effort = "full"
ISOLATE = True
MAX_S = 10.0
_SIZE = 64 * MIB
_SIZES = (2 * MIB, 64 * MIB, 1024 * MIB)
_PINNED = 256 * MIB
KINDS = {
    "alloc.device": Kind(
        id="alloc.device", title="take and free GPU memory", unit="us", higher_is_better=False, size="64 MiB"
    ),
    "alloc.cached": Kind(
        id="alloc.cached",
        title="take and free in torch's cache",
        unit="us",
        higher_is_better=False,
        size="64 MiB",
    ),
    "alloc.pinned": Kind(
        id="alloc.pinned", title="pin host memory", unit="us/MiB", higher_is_better=False, size="256 MiB"
    ),
}
WORDS = {
    "alloc.device": "cuMemAlloc and cuMemFree, host clock, median of 10",
    "alloc.cached": "torch.empty and its release, host clock, mean of 100",
    "alloc.pinned": "cuMemHostAlloc and cuMemFreeHost, host clock",
}


def needs(machine: Machine) -> str | None:
    """A GPU."""
    return has_gpu(machine)


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Device and pinned memory by the driver, the cache by torch, in turn."""
    before = noise.read_counters()
    with open_engines(setup) as engines:
        runs: dict[str, Run] = {}
        for engine in engines.values():
            runs |= _runs(engine)
        samples = interleave(runs, budget_s, at_least=5)
    engine = next(iter(engines.values()))
    for id, kind in KINDS.items():
        if id not in samples:
            continue
        by_size = {
            size_text(size): round(percentile(samples[f"{id} {size}"], 50), 1)
            for size in _SIZES
            if f"{id} {size}" in samples
        }
        tier = "torch" if id == "alloc.cached" else "driver"
        environment = {"median_by_size": by_size} if by_size else None
        yield gpu_ceiling(
            setup, engine, before, kind, [Method(tier, WORDS[id], samples[id])], environment=environment
        )


def _runs(engine: Engine) -> dict[str, Run]:
    if (torch := getattr(engine, "torch", None)) is not None:
        return {
            "alloc.cached": lambda: _clock_us(
                lambda: torch.empty(_SIZE, dtype=torch.uint8, device="cuda"), 100
            )
        }
    call = engine.device.call  # type: ignore[attr-defined]

    def device(size: int) -> Callable[[], None]:
        return lambda: call("cuMemFree_v2", call.out("cuMemAlloc_v2", c_ulonglong, size))

    def pin() -> None:
        call("cuMemFreeHost", call.out("cuMemHostAlloc", c_void_p, _PINNED, 0))

    runs: dict[str, Run] = {
        "alloc.device": lambda: percentile([_clock_us(device(_SIZE)) for _ in range(10)], 50),
        "alloc.pinned": lambda: _clock_us(pin) / (_PINNED / MIB),
    }
    for size in _SIZES:
        if size <= engine.free_bytes() // 4:
            runs[f"alloc.device {size}"] = lambda size=size: _clock_us(device(size))  # type: ignore[misc]
    return runs


def _clock_us(work: Callable[[], Any], times: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times * 1e6
