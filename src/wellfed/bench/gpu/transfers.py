"""Copies between host and GPU: pinned, pageable and both ways at once, by size.

Host buffers lie in the memory beside the GPU where the process may run there, and every page has been written. Pinned
copies are timed by events on a held stream; pageable ones, which the driver stages through buffers of its own, by the
host's clock.
"""

import time
from collections.abc import Iterator, Mapping, Sequence

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.gpu.engine import Engine, Work, has_gpu, near, open_engines, scopes, the_gpu
from wellfed.bench.gpu.judge import Kind, Method, gpu_ceiling
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import MIB, Setup, available_bytes, size_text
from wellfed.model import Ceiling, Machine
from wellfed.predict.statistics import percentile

IDS = ("h2d.pinned", "d2h.pinned", "h2d.bidirectional", "h2d.pageable", "d2h.pageable")
WEIGHT = 2.0
EFFORT: Effort = "quick"
ISOLATE = True
MAX_S = 30.0
_LARGEST = 256 * MIB
_CURVE = tuple(4096 << (2 * step) for step in range(8))
"""4 KiB to 64 MiB; the largest size is the headline."""
_BYTES_A_SAMPLE = 512 * MIB
_PAGEABLE_BYTES_A_SAMPLE = 128 * MIB
TITLES = {
    "h2d.pinned": "host to GPU, pinned",
    "d2h.pinned": "GPU to host, pinned",
    "h2d.bidirectional": "host to GPU and back at once, pinned, both together",
    "h2d.pageable": "host to GPU, pageable",
    "d2h.pageable": "GPU to host, pageable",
}
WORDS = {
    "pinned": "pinned buffer, events on a held stream",
    "bidirectional": "pinned buffers, a stream each way, events on held streams",
    "pageable": "pageable buffer, host clock",
}


def needs(machine: Machine) -> str | None:
    """A GPU."""
    return has_gpu(machine)


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """The headline sizes by each tier in turn, then the curve of each by the first tier."""
    before = noise.read_counters()
    with open_engines(setup) as engines, near(the_gpu(setup.machine, next(iter(engines.values())))) as local:
        engine = next(iter(engines.values()))
        size = min(_LARGEST, available_bytes(setup.machine) // 16 // MIB * MIB)
        with scopes(engines):
            runs = {
                f"{tier} {id}": run
                for tier, one in engines.items()
                for id, run in transfer_runs(one, size).items()
            }
            samples = interleave(runs, budget_s * 0.6, at_least=5)
        with engine.scope():
            curves = _curves(engine, size, budget_s * 0.4)
        for id, title in TITLES.items():
            yield gpu_ceiling(
                setup,
                engine,
                before,
                Kind(id=id, title=title, unit="GB/s", size=size_text(size)),
                [Method(tier, WORDS[id.partition(".")[2]], samples[f"{tier} {id}"]) for tier in engines],
                environment={"beside_the_gpu": local, "median_by_size": curves[id]},
            )


def transfer_runs(engine: Engine, size: int) -> dict[str, Run]:
    """Each gives GB/s; both directions together for `bidirectional`."""
    device = [engine.buffer(size) for _ in range(2)]
    pinned = [engine.host(size, pinned=True) for _ in range(2)]
    return _runs(engine, size, device, pinned, engine.host(size, pinned=False))


def _runs(
    engine: Engine, size: int, device: Sequence[object], pinned: Sequence[object], pageable: object
) -> dict[str, Run]:
    times = max(1, min(_BYTES_A_SAMPLE // size, 50))
    up, down = engine.h2d(device[0], pinned[0], size), engine.d2h(pinned[0], device[0], size)
    back = engine.d2h(pinned[1], device[1], size, lane=1)

    def held(*lanes: Work) -> Run:
        moved = len(lanes) * times * size
        return lambda: moved / engine.held_s([[work] * times for work in lanes]) / 1e9

    slow_times = max(1, min(_PAGEABLE_BYTES_A_SAMPLE // size, 50))

    def clocked(work: Work) -> Run:
        def run() -> float:
            engine.synchronize()
            start = time.perf_counter()
            for _ in range(slow_times):
                work()
            engine.synchronize()
            return slow_times * size / (time.perf_counter() - start) / 1e9

        return run

    return {
        "h2d.pinned": held(up),
        "d2h.pinned": held(down),
        "h2d.bidirectional": held(up, back),
        "h2d.pageable": clocked(engine.h2d(device[0], pageable, size)),
        "d2h.pageable": clocked(engine.d2h(pageable, device[0], size)),
    }


def _curves(engine: Engine, largest: int, budget_s: float) -> Mapping[str, dict[str, float]]:
    """Median GB/s by size, of each kind."""
    device = [engine.buffer(largest) for _ in range(2)]
    pinned = [engine.host(largest, pinned=True) for _ in range(2)]
    pageable = engine.host(largest, pinned=False)
    curves: dict[str, dict[str, float]] = {id: {} for id in TITLES}
    sizes = [size for size in _CURVE if size < largest]
    for size in sizes:
        found = interleave(_runs(engine, size, device, pinned, pageable), budget_s / len(sizes))
        for id, samples in found.items():
            curves[id][size_text(size)] = round(percentile(samples, 50), 3)
    return curves
