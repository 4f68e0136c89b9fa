"""Memory bandwidth of a GPU: copy (read and write counted), read alone, triad; and the L2 cache by working set.

Arrays are of 1 GiB and more each, many times any L2, so that nothing of one pass is left for the next. A copy of n
bytes moves 2n, a triad of three arrays 3n: compare with tools that count a copy once only after doubling theirs.
"""

from collections.abc import Callable, Iterator, Mapping

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.gpu.engine import Engine, Work, has_gpu, open_engines, scopes, seconds_each
from wellfed.bench.gpu.judge import Kind, Method, gpu_ceiling
from wellfed.bench.gpu.watch import Watch
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import GIB, MIB, Setup, size_text
from wellfed.model import Ceiling, Machine, WellfedError
from wellfed.predict.statistics import percentile

IDS = ("hbm-copy", "hbm-read", "hbm-triad", "l2-read")
WEIGHT = 2.0
EFFORT: Effort = "quick"
ISOLATE = True
MAX_S = 20.0
_ARRAY_MAX = 2 * GIB
_ARRAY_MIN = 64 * MIB
_SHARE_OF_FREE = 8
"""Each tier takes three arrays: less than half of the memory that is free, together."""
_LAUNCHES = 8
_OVER_L2 = 4
_L2_SETS = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
"""Working sets of the sweep, as shares of the L2 cache that the driver tells."""
_L2_BYTES_A_LAUNCH = 4 * GIB
TITLES = {
    "hbm-copy": "GPU memory, copy (read and write)",
    "hbm-read": "GPU memory, read",
    "hbm-triad": "GPU memory, triad",
}


def needs(machine: Machine) -> str | None:
    """A GPU."""
    return has_gpu(machine)


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Copy, read and triad by each tier in turn, then the sweep of the L2 cache."""
    with open_engines(setup) as engines:
        yield from _memory(setup, engines, budget_s * 0.7)
        engine = next(iter(engines.values()))
        if engine.l2_bytes:
            yield _l2(setup, engine, budget_s * 0.3)


def _memory(setup: Setup, engines: Mapping[str, Engine], budget_s: float) -> Iterator[Ceiling]:
    before = noise.read_counters()
    engine = next(iter(engines.values()))
    size = array_bytes(engine)
    runs: dict[str, Run] = {}
    words: dict[str, str] = {}
    with scopes(engines), Watch(engine.address) as watch:
        for tier, one in engines.items():
            for name, (work, moved, said) in _works(one, size).items():
                runs[f"{tier} {name}"] = _rate(one, work, moved)
                words[f"{tier} {name}"] = said
        samples = interleave(runs, budget_s, at_least=5)
    for id, title in TITLES.items():
        methods = [
            Method(name.partition(" ")[0], words[name], samples[name])
            for name in runs
            if name.partition(" ")[2].startswith(id)
        ]
        # More than one way to copy belongs to the driver tier: the better of them is what the memory can do.
        methods.sort(key=lambda m: (m.tier != "driver", -percentile(m.samples, 50)))
        yield gpu_ceiling(
            setup,
            engine,
            before,
            Kind(id=id, title=title, unit="GB/s", size=f"arrays of {size_text(size)}"),
            methods,
            environment=watch.seen(),
        )


def _works(engine: Engine, size: int) -> dict[str, tuple[Work, int, str]]:
    """What is run, the bytes it moves, and in words how."""
    a, b, c = (engine.buffer(size) for _ in range(3))
    kernel = "kernel of ours, 16-byte accesses" if engine.tier == "driver" else "torch"
    works = {
        "hbm-copy": (engine.copy(a, b), 2 * size, "copy by the driver, events around 8 on a held stream"),
        "hbm-read": (engine.read(b), size, f"read-only sum, {kernel}, events around 8 on a held stream"),
        "hbm-triad": (
            engine.triad(a, b, c),
            3 * size,
            f"a = b + 3c, {kernel}, events around 8 on a held stream",
        ),
    }
    if (copy_kernel := getattr(engine, "copy_kernel", None)) is not None:
        works["hbm-copy kernel"] = (
            copy_kernel(a, b),
            2 * size,
            f"copy, {kernel}, events around 8 on a held stream",
        )
    return works


def _rate(engine: Engine, work: Work, moved: int, launches: int = _LAUNCHES) -> Callable[[], float]:
    """GB/s."""
    return lambda: moved / seconds_each(engine, [work], launches) / 1e9


def array_bytes(engine: Engine) -> int:
    """Of each array. Raises WellfedError when too little of the device's memory is free."""
    free = engine.free_bytes()
    size = min(_ARRAY_MAX, free // _SHARE_OF_FREE) // MIB * MIB
    if size < max(_ARRAY_MIN, _OVER_L2 * engine.l2_bytes):
        raise WellfedError(
            f"only {size_text(free)} of the GPU's memory are free: other programs hold the rest",
            hint="nvidia-smi",
        )
    return size


def _l2(setup: Setup, engine: Engine, budget_s: float) -> Ceiling:
    """Reads of working sets around the size of the cache; the headline is the best of those that fit into half of
    it."""
    before = noise.read_counters()
    again = getattr(engine, "again", None)
    with engine.scope():
        runs = {}
        for share in _L2_SETS:
            size = max(int(engine.l2_bytes * share) // MIB, 1) * MIB
            buffer, turns = engine.buffer(size), max(_L2_BYTES_A_LAUNCH // size, 2)
            if again is not None:
                runs[str(size)] = _rate(engine, again(buffer, turns), size * turns, 1)
            else:
                runs[str(size)] = _rate(engine, engine.read(buffer), size, min(turns, 200))
        samples = interleave(runs, budget_s, at_least=5)
    inside = [size for size in runs if int(size) <= engine.l2_bytes // 2]
    best = max(inside, key=lambda size: percentile(samples[size], 50))
    curve = {size_text(int(size)): round(percentile(found, 50), 1) for size, found in samples.items()}
    words = "one kernel that reads the working set over and over, past L1"
    lower = "each pass is a launch of its own, a few microseconds: a lower bound"
    return gpu_ceiling(
        setup,
        engine,
        before,
        Kind(id="l2-read", title="GPU L2 cache, read", unit="GB/s", size=size_text(int(best))),
        [Method(engine.tier, words if again is not None else "one read-only sum a pass", samples[best])],
        environment={"l2_bytes": engine.l2_bytes, "median_by_working_set": curve},
        why=None if again is not None else lower,
    )
