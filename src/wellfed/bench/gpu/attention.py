"""Attention: prefill as arithmetic, decode as reading the cache; and the grouped product of a mixture of experts.

Prefill is causal, so half of the square: 2 B H L^2 D operations for scores and values together. Decode reads keys and
values once: their bytes over the time. Each backend of scaled_dot_product_attention is tried; the best one is the
ceiling, and what torch picks by itself stands beside it.
"""

from collections.abc import Callable, Iterator
from typing import Any

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.gpu.engine import Engine, has_gpu, is_lost, open_torch, seconds_each
from wellfed.bench.gpu.judge import Kind, Method, gpu_ceiling
from wellfed.bench.gpu.watch import Watch
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import GIB, Setup
from wellfed.model import Ceiling, Machine, WellfedError
from wellfed.predict.statistics import percentile

IDS = ("attention-prefill", "attention-decode", "moe-gemm")
WEIGHT = 2.0
EFFORT: Effort = "full"
ISOLATE = True
MAX_S = 30.0
_BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
_HEADS, _KV_HEADS, _WIDTH = 32, 8, 128
_PREFILL = (2, 8192)
_DECODE = (64, 8192)
_EXPERTS, _TOKENS, _OUT, _IN = 8, 16384, 4096, 4096
_FREE_NEEDED = 8 * GIB


def needs(machine: Machine) -> str | None:
    """A GPU."""
    return has_gpu(machine)


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Prefill and decode by each backend in turn, then the grouped product."""
    with open_torch(setup) as engine:
        if engine.free_bytes() < _FREE_NEEDED:
            raise WellfedError("less than 8 GiB of the GPU's memory are free", hint="nvidia-smi")
        yield _attention(setup, engine, budget_s * 0.4, prefill=True)
        yield _attention(setup, engine, budget_s * 0.4, prefill=False)
        yield _experts(setup, engine, budget_s * 0.2)


def _attention(setup: Setup, engine: Engine, budget_s: float, *, prefill: bool) -> Ceiling:
    before = noise.read_counters()
    torch = engine.torch  # type: ignore[attr-defined]
    batch, length = _PREFILL if prefill else _DECODE
    with engine.scope(), Watch(engine.address) as watch:
        call, amount = _call(torch, batch, length, prefill=prefill)
        runs: dict[str, Run] = {"torch's choice": _rate(engine, call, amount)}
        for name in _BACKENDS:
            attempt = _with_backend(torch, name, call)
            if attempt is not None:
                runs[name.lower()] = _rate(engine, attempt, amount)
        samples = interleave(runs, budget_s, at_least=5)
        del call, runs
    order = sorted(samples, key=lambda name: -percentile(samples[name], 50))
    what = "prefill" if prefill else "decode"
    return gpu_ceiling(
        setup,
        engine,
        before,
        Kind(
            id=f"attention-{what}",
            title=f"attention, {what}",
            unit="TFLOP/s" if prefill else "GB/s",
            size=f"batch {batch}, length {length}, {_HEADS if prefill else _KV_HEADS} heads of {_WIDTH}",
            dtype="bf16",
        ),
        [
            Method(
                "torch",
                f"scaled_dot_product_attention, {order[0]}, events on a held stream",
                samples[order[0]],
            )
        ],
        environment={
            "median_by_backend": {name: round(percentile(samples[name], 50), 1) for name in order},
            **watch.seen(),
        },
    )


def _call(torch: Any, batch: int, length: int, *, prefill: bool) -> tuple[Callable[[], Any], float]:
    """The call, and the operations or bytes of it in units of 1e12 or 1e9."""
    attend = torch.nn.functional.scaled_dot_product_attention

    def random(heads: int, rows: int) -> Any:
        return torch.randn(batch, heads, rows, _WIDTH, device="cuda", dtype=torch.bfloat16)

    if prefill:
        q, k, v = (random(_HEADS, length) for _ in range(3))
        flops = 2 * batch * _HEADS * length * length * _WIDTH
        return (lambda: attend(q, k, v, is_causal=True)), flops / 1e12
    q, k, v = random(_HEADS, 1), random(_KV_HEADS, length), random(_KV_HEADS, length)
    return (lambda: attend(q, k, v, enable_gqa=True)), 2 * k.numel() * 2 / 1e9


def _with_backend(torch: Any, name: str, call: Callable[[], Any]) -> Callable[[], Any] | None:
    """The call by that backend alone; None when it does not take it."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, name, None)
    if backend is None:
        return None

    def run() -> Any:
        with sdpa_kernel(backend):
            return call()

    try:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
    except RuntimeError as error:
        if is_lost(error):
            raise
        return None
    return run


def _rate(engine: Engine, call: Callable[[], Any], amount: float, launches: int = 5) -> Run:
    return lambda: amount / seconds_each(engine, [call], launches)


def _experts(setup: Setup, engine: Engine, budget_s: float) -> Ceiling:
    """Tokens spread evenly over the experts; the products of all of them in one call, or one after the other."""
    before = noise.read_counters()
    torch = engine.torch  # type: ignore[attr-defined]
    with engine.scope(), Watch(engine.address) as watch:
        x = torch.randn(_TOKENS, _IN, device="cuda", dtype=torch.bfloat16)
        weights = torch.randn(_EXPERTS, _OUT, _IN, device="cuda", dtype=torch.bfloat16).transpose(-2, -1)
        ends = torch.arange(1, _EXPERTS + 1, device="cuda", dtype=torch.int32) * (_TOKENS // _EXPERTS)

        def loop() -> None:
            for part, weight in zip(x.split(_TOKENS // _EXPERTS), weights, strict=True):
                torch.mm(part, weight)

        calls: dict[str, Callable[[], Any]] = {"a loop of torch.mm": loop}
        if hasattr(torch, "_grouped_mm"):
            calls = {"torch._grouped_mm": lambda: torch._grouped_mm(x, weights, offs=ends), **calls}
        amount = 2 * _TOKENS * _OUT * _IN / 1e12
        samples = interleave(
            {name: _rate(engine, call, amount) for name, call in calls.items()}, budget_s, at_least=5
        )
    first, *others = calls
    return gpu_ceiling(
        setup,
        engine,
        before,
        Kind(
            id="moe-gemm",
            title="grouped matrix product of experts, bfloat16",
            unit="TFLOP/s",
            size=f"{_EXPERTS} experts, {_TOKENS} tokens evenly, {_OUT}x{_IN}",
            dtype="bf16",
        ),
        [Method("torch", first, samples[first])],
        environment={**{name: round(percentile(samples[name], 50), 1) for name in others}, **watch.seen()},
    )
