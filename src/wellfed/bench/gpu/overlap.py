"""Whether copies hide behind arithmetic: (time of both one after the other - time side by side) / the shorter of them.

1: the shorter one costs nothing. 0: they wait for each other. Pinned memory, a stream each.
"""

from collections.abc import Iterator

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.gpu.engine import Engine, Work, has_gpu, near, open_engines, the_gpu
from wellfed.bench.gpu.judge import Kind, Method, gpu_ceiling
from wellfed.bench.repeat import interleave
from wellfed.bench.setup import MIB, Setup
from wellfed.model import Ceiling, Machine

IDS = ("overlap.h2d", "overlap.d2h")
WEIGHT = 0.7
EFFORT: Effort = "full"
ISOLATE = True
MAX_S = 10.0
_SIZE = 128 * MIB


def needs(machine: Machine) -> str | None:
    """A GPU."""
    return has_gpu(machine)


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Each direction beside arithmetic that takes as long."""
    with open_engines(setup) as engines:
        engine = next(iter(engines.values()))
        with near(the_gpu(setup.machine, engine)), engine.scope():
            device, host = engine.buffer(_SIZE), engine.host(_SIZE, pinned=True)
            copies = {
                "overlap.h2d": engine.h2d(device, host, _SIZE, lane=1),
                "overlap.d2h": engine.d2h(host, device, _SIZE, lane=1),
            }
            for id, copy in copies.items():
                yield _one(setup, engine, id, copy, budget_s / len(copies))


def _one(setup: Setup, engine: Engine, id: str, copy: Work, budget_s: float) -> Ceiling:
    before = noise.read_counters()
    copy_s = min(engine.held_s([[], [copy]]) for _ in range(3))
    compute, words = _compute(engine, copy_s)

    def run() -> float:
        alone_s = (engine.held_s([[compute]]), engine.held_s([[], [copy]]))
        return overlap(*alone_s, engine.held_s([[compute], [copy]]))

    samples = interleave({id: run}, budget_s, at_least=5)[id]
    way = "host to GPU" if id.endswith("h2d") else "GPU to host"
    return gpu_ceiling(
        setup,
        engine,
        before,
        Kind(id=id, title=f"copy {way} beside arithmetic, share hidden", unit="ratio", size="128 MiB"),
        [Method(engine.tier, f"{words} and a pinned copy on two streams", samples)],
    )


def overlap(one_s: float, other_s: float, both_s: float) -> float:
    """The share of the shorter that is hidden behind the longer."""
    return (one_s + other_s - both_s) / min(one_s, other_s)


def _compute(engine: Engine, seconds: float) -> tuple[Work, str]:
    """Arithmetic that takes about as long."""
    if (fma := getattr(engine, "fma", None)) is not None:
        trial_s = min(engine.held_s([[fma("f32", 100)[0]]]) for _ in range(3))
        turns = max(int(100 * seconds / trial_s), 1)
        return fma("f32", turns)[0], "chains of fused multiply-adds"
    torch = engine.torch  # type: ignore[attr-defined]
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    trial_s = min(engine.held_s([[lambda: torch.mm(a, a)]]) for _ in range(3))
    times = max(round(seconds / trial_s), 1)

    def products() -> None:
        for _ in range(times):
            torch.mm(a, a)

    return products, "matrix products"
