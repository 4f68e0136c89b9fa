"""Matrix products of a GPU, by dtype and shape: what the best library that is here reaches.

Inputs are random (zeros draw less power and score higher), B is transposed as weights are, sets of buffers rotate so
that no input is in cache, and FLOP are 2MNK. A sample is some ten milliseconds of products back to back with a rest
after it, so the clock is at its height: the ceiling. What is left of it when the work goes on, and power or heat pull
the clock down, is `gemm-sustained`.
"""

import time
from collections.abc import Iterator

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.gpu import matmul
from wellfed.bench.gpu.engine import Engine, has_gpu, is_lost, open_torch, seconds_each
from wellfed.bench.gpu.judge import Kind, Method, gpu_ceiling
from wellfed.bench.gpu.matmul import DTYPES, Shape
from wellfed.bench.gpu.watch import Watch
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import Setup
from wellfed.model import Ceiling, Machine, WellfedError

IDS = ("gemm.*", "gemm-sustained.bf16", "gemm-sustained.fp8")
WEIGHT = 5.0
EFFORT: Effort = "quick"
ISOLATE = True
MAX_S = 60.0
SQUARES = {"quick": (8192,), "full": (4096, 8192, 16384)}
_QUICK = ("bf16", "fp16", "tf32", "int8", "fp8")
_OWN_SHAPES = ("bf16", "fp8")
_SAMPLE_S = 0.012
_REST = 4
"""Times the sample's length: at a fifth of its full load no GPU is held back by power."""
_SUSTAINED_S = {"quick": 2.0, "full": 10.0}
_SUSTAINED_SAMPLE_S = 0.05
_SHARE_OF_FREE = 0.4


def needs(machine: Machine) -> str | None:
    """A GPU."""
    return has_gpu(machine)


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Squares and the user's shapes by dtype, then two dtypes without rest. Raises WellfedError at the end for what this
    device or this torch does not have."""
    with open_torch(setup) as engine:
        reasons: list[str] = []
        jobs = _jobs(setup, engine, reasons)
        sustained_s = min(_SUSTAINED_S[setup.effort], budget_s / 8)
        left_s = budget_s - 2 * sustained_s
        for shape, dtypes in jobs:
            yield from _one_shape(setup, engine, shape, dtypes, left_s / len(jobs), reasons)
        for dtype in ("bf16", "fp8"):
            if matmul.cannot(dtype, engine.capability, hip=_hip(engine)) is None:
                yield _sustained(setup, engine, dtype, sustained_s)
        if reasons:
            raise WellfedError("; ".join(dict.fromkeys(reasons)))


def _jobs(setup: Setup, engine: Engine, reasons: list[str]) -> list[tuple[Shape, list[str]]]:
    """Shapes, each with the dtypes that can be measured at it."""
    quick = setup.effort == "quick"
    wanted: list[tuple[Shape, tuple[str, ...]]] = [
        ((n, n, n), _QUICK if quick else tuple(name for name in DTYPES if name != "fp4"))
        for n in SQUARES[setup.effort]
    ]
    wanted += [(shape, _OWN_SHAPES) for shape in setup.options.shapes]
    jobs = []
    for shape, names in wanted:
        able = []
        for dtype in names:
            reason = matmul.cannot(dtype, engine.capability, hip=_hip(engine))
            if reason is None and matmul.set_bytes(dtype, shape) * 4 > engine.free_bytes() * _SHARE_OF_FREE:
                reason = f"{dtype} at {_text(shape)} takes more memory than is free on the GPU"
            if reason is None:
                able.append(dtype)
            else:
                reasons.append(reason)
        jobs.append((shape, able))
    return jobs


def _one_shape(
    setup: Setup, engine: Engine, shape: Shape, dtypes: list[str], budget_s: float, reasons: list[str]
) -> Iterator[Ceiling]:
    """All dtypes in turn: what the one heats, the next does not pay for."""
    before = noise.read_counters()
    runs: dict[str, Run] = {}
    with engine.scope(), Watch(engine.address) as watch:
        for dtype in dtypes:
            try:
                runs[dtype] = product_run(engine, dtype, shape)
            except (WellfedError, RuntimeError) as error:
                if is_lost(error):
                    raise
                reasons.append(f"{dtype} at {_text(shape)}: {str(error).partition(chr(10))[0]}")
        samples = interleave(runs, budget_s, at_least=5) if runs else {}
        runs.clear()
    for dtype, found in samples.items():
        kind = DTYPES[dtype]
        yield gpu_ceiling(
            setup,
            engine,
            before,
            Kind(
                id=f"gemm.{dtype}.{_text(shape)}",
                title=f"matrix product, {kind.title}",
                unit=kind.unit,
                size=_text(shape),
                dtype=dtype,
            ),
            [Method("torch", _words(dtype), found)],
            environment=watch.seen(),
        )


def product_run(
    engine: Engine, dtype: str, shape: Shape, *, rest: float = _REST, sample_s: float = _SAMPLE_S
) -> Run:
    """Gives TFLOP/s (TOP/s) of some ten milliseconds of products, and rests after them."""
    torch = engine.torch  # type: ignore[attr-defined]
    sets = matmul.sets_for(dtype, shape, engine.l2_bytes)
    works = matmul.works(torch, dtype, shape, sets)
    _precision(torch, dtype)
    seconds_each(engine, works)
    once_s = seconds_each(engine, works) * len(works)
    times = max(round(sample_s / once_s), 1)

    def run() -> float:
        _precision(torch, dtype)
        seconds = seconds_each(engine, works, times)
        time.sleep(seconds * len(works) * times * rest)
        return matmul.flops(shape) / seconds / 1e12

    return run


def _precision(torch: object, dtype: str) -> None:
    if (precision := DTYPES[dtype].precision) is not None:
        torch.set_float32_matmul_precision(precision)  # type: ignore[attr-defined]


def _sustained(setup: Setup, engine: Engine, dtype: str, seconds: float) -> Ceiling:
    """The same without rest, for long enough that power and heat have their say; the first half is the warm-up."""
    before = noise.read_counters()
    shape = (8192, 8192, 8192)
    with engine.scope():
        run = product_run(engine, dtype, shape, rest=0.0, sample_s=_SUSTAINED_SAMPLE_S)
        interleave({dtype: run}, seconds / 2)
        with Watch(engine.address) as watch:
            samples = interleave({dtype: run}, seconds / 2)[dtype]
        del run
    seen = watch.seen()
    held = ", ".join(seen.get("throttled", {}))
    return gpu_ceiling(
        setup,
        engine,
        before,
        Kind(
            id=f"gemm-sustained.{dtype}",
            title=f"matrix product without rest, {DTYPES[dtype].title}",
            unit=DTYPES[dtype].unit,
            size=_text(shape),
            dtype=dtype,
        ),
        [Method("torch", f"{_words(dtype)}, no rest, after {seconds / 2:.1f} s of it", samples)],
        environment=seen,
        why=f"the clock was held down: {held}" if held else None,
    )


def _words(dtype: str) -> str:
    call = {
        "int8": "torch._int_mm",
        "fp8": "torch._scaled_mm",
        "fp8-row": "torch._scaled_mm",
        "fp4": "torch._scaled_mm",
    }
    return f"{call.get(dtype, 'torch.mm')}, random data, rotating buffers, events on a held stream"


def _text(shape: Shape) -> str:
    return "x".join(str(number) for number in shape)


def _hip(engine: Engine) -> bool:
    return bool(engine.torch.version.hip)  # type: ignore[attr-defined]
