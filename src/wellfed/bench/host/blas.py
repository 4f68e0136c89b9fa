"""Matrix products by the BLAS that numpy is linked with: what the CPUs can compute, by number format.

FLOPs count a multiply-add as two, 2 N^3 for a square. Half precision and integers are torch's: see `blas_torch`. Says
whether work that was left on the CPU (data augmentation, an offloaded optimizer, embeddings) has the library, the vector
units and the threads it needs.
"""

import contextlib
import io
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from wellfed.bench import noise
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import MIB, Scale, Setup, allowed_cpus, available_bytes, build_ceiling
from wellfed.model import Ceiling, Machine

IDS = ("blas.float32.*", "blas.float64.*")
WEIGHT = 1.0
EFFORT = "quick"
MAX_S = 20.0
DTYPES: dict[str, Any] = {"float32": np.float32, "float64": np.float64}
SIZES = (512, 1024, 2048, 4096, 8192)
_QUICK_S = 0.08
"""A product should take about so long in the quick effort: long enough for all threads to be awake."""
_LEAST = 1024
"""Below this a product is soon over, and threads that are late decide."""
_MIN_SAMPLE_S = 0.01
_CPU_SHARE = 0.85
BAND = (0.5, 300_000.0)
BAND_SOURCE = "one core without vectors to two sockets with matrix units"
Shape = tuple[int, int, int]


def needs(machine: Machine) -> str | None:
    return "less than 256 MiB of memory are available" if available_bytes(machine) < 256 * MIB else None


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """GFLOP/s by format: one square in the quick effort; all squares that the time has room for, and the shapes of the
    user's model, in the full one."""
    before = noise.read_counters()
    rate = {name: _trial(dtype) for name, dtype in DTYPES.items()}
    runs: dict[str, Run] = {}
    shapes: dict[str, tuple[str, Shape]] = {}
    for name, dtype in DTYPES.items():
        for shape in shapes_for(setup, rate[name], budget_s / len(DTYPES)):
            id = f"blas.{name}.{shape_text(shape)}"
            shapes[id] = (name, shape)
            runs[id] = product_run(dtype, shape)
    with cpu_watch(blas_threads()) as crowded:
        samples = interleave(runs, budget_s - (time.monotonic() - before.at_s))
    return [_ceiling(setup, before, id, *shapes[id], samples[id], crowded) for id in runs]


@contextlib.contextmanager
def cpu_watch(threads: int) -> Iterator[dict[str, str]]:
    """Fills what it gives with a verdict and why, when the threads did not have their CPUs. A product's threads wait for
    each other, so on a crowded machine each sample takes a time slice of the scheduler's: the same wrong number again
    and again, which no spread betrays."""
    verdict: dict[str, str] = {}
    wall, cpu = time.monotonic(), time.process_time()
    yield verdict
    had = (time.process_time() - cpu) / max(time.monotonic() - wall, 1e-9)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    verdict.update(judge_cpus(had, threads, load, len(allowed_cpus())))


def judge_cpus(had: float, threads: int, load: float, cpus: int) -> dict[str, str]:
    """`had`: CPUs that the process really had. Fewer than it has threads is a fault only where others want them too: a
    thin product uses fewer by itself."""
    if had >= _CPU_SHARE * threads or load <= cpus:
        return {}
    return {"verdict": "noisy", "why": f"its {threads} threads had {had:.1f} CPUs: a bound from below"}


def shapes_for(setup: Setup, flops_per_s: float, budget_s: float) -> list[Shape]:
    """Which products one format has room for: each takes five runs."""

    def fits(shape: Shape, budget: float) -> bool:
        m, n, k = shape
        room = (m * k + n * k + m * n) * 8 < available_bytes(setup.machine) // 4
        return room and 5 * 2 * m * n * k / flops_per_s < budget

    if setup.effort != "full":
        good = [n for n in SIZES if fits((n, n, n), budget_s) and 2 * n**3 / flops_per_s <= _QUICK_S]
        least = _LEAST if fits((_LEAST,) * 3, budget_s) else SIZES[0]
        side = max(good[-1] if good else SIZES[0], least)
        return [(side, side, side)]
    wanted = [*((n, n, n) for n in SIZES), *setup.options.shapes]
    share = budget_s / len(wanted)
    found = [shape for shape in dict.fromkeys(wanted) if fits(shape, max(share, budget_s / 3))]
    return found or [(SIZES[0],) * 3]


def shape_text(shape: Shape) -> str:
    """`4096` for a square, else `MxNxK`."""
    m, n, k = shape
    return str(m) if m == n == k else f"{m}x{n}x{k}"


def product_run(dtype: Any, shape: Shape) -> Run:
    """C = A B with A (M, K) by rows and B stored (N, K), as weights are; GFLOP/s."""
    m, n, k = shape
    rng = np.random.default_rng(11)
    a = rng.standard_normal((m, k)).astype(dtype)
    b = rng.standard_normal((n, k)).astype(dtype)
    out = np.empty((m, n), dtype)
    passes = 0

    def run() -> float:
        nonlocal passes
        first, passes = passes == 0, max(passes, 1)
        start = time.perf_counter()
        for _ in range(passes):
            np.matmul(a, b.T, out=out)
        seconds = max(time.perf_counter() - start, 1e-9)
        rate = passes * 2 * m * n * k / seconds / 1e9
        if first:
            passes = max(1, min(1000, round(_MIN_SAMPLE_S / seconds)))
        return rate

    return run


def _trial(dtype: Any) -> float:
    """FLOP/s of a small product, to plan by: the best of a few, since the first ones wake the threads."""
    run = product_run(dtype, (SIZES[0],) * 3)
    return max(run() for _ in range(4)) * 1e9


def _ceiling(
    setup: Setup,
    before: noise.Counters,
    id: str,
    dtype: str,
    shape: Shape,
    samples: list[float],
    crowded: Mapping[str, str],
) -> Ceiling:
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(unit="GFLOP/s", band=BAND, band_source=BAND_SOURCE),
        id=id,
        title=f"matrix product, {dtype}, {shape_text(shape)}",
        method="np.matmul of random normal matrices, the second stored (N, K); 2MNK FLOPs",
        tier="numpy",
        size="x".join(map(str, shape)),
        dtype=dtype,
        threads=blas_threads(),
        **crowded,
        environment={
            "blas": blas_name(),
            "version": np.__version__,
            "flops": 2 * shape[0] * shape[1] * shape[2],
        },
    )


def blas_threads() -> int:
    """Threads that the BLAS was told to use, else one a CPU that may be used."""
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "").strip()
        if value.isdigit() and int(value) > 0:
            return int(value)
    return len(allowed_cpus())


def blas_name() -> str | None:
    """`openblas 0.3.30` as numpy was built; None where it does not say."""
    with contextlib.redirect_stdout(io.StringIO()):
        config = np.show_config(mode="dicts")
    try:
        blas = config["Build Dependencies"]["blas"]
        return f"{blas['name']} {blas['version']}"
    except (KeyError, TypeError):
        return None
