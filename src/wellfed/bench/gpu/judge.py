"""What a GPU should reach: the peak of its catalogue entry, and the range in which devices like it were measured."""

import csv
import fnmatch
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from wellfed.bench import noise
from wellfed.bench.gpu.engine import Engine, the_gpu
from wellfed.bench.setup import Scale, Setup, build_ceiling
from wellfed.catalog.load import all_links, body, heads
from wellfed.catalog.match import find_gpu
from wellfed.catalog.spec import GpuSpec
from wellfed.model import Ceiling
from wellfed.model.devices import Gpu
from wellfed.predict.statistics import percentile

AGREE = 0.05
"""Two methods that do the same differ by less, or one of them is wrong."""

PEAKS = {
    "hbm-": ("memory_bandwidth_gbs", "GB/s"),
    "gemm.bf16": ("bf16_tflops", "TFLOP/s"),
    "gemm.fp16": ("fp16_tflops", "TFLOP/s"),
    "gemm.tf32": ("tf32_tflops", "TFLOP/s"),
    "gemm.fp32": ("fp32_tflops", "TFLOP/s"),
    "gemm.fp64": ("fp64_tensor_tflops", "TFLOP/s"),
    "gemm.fp8": ("fp8_tflops", "TFLOP/s"),
    "gemm.fp4": ("fp4_tflops", "TFLOP/s"),
    "gemm.int8": ("int8_tops", "TOP/s"),
    "mamf.bf16": ("bf16_tflops", "TFLOP/s"),
    "mamf.fp8": ("fp8_tflops", "TFLOP/s"),
    "moe-gemm": ("bf16_tflops", "TFLOP/s"),
    "attention-prefill": ("bf16_tflops", "TFLOP/s"),
    "attention-decode": ("memory_bandwidth_gbs", "GB/s"),
    "fma.fp32": ("fp32_tflops", "TFLOP/s"),
    "fma.fp64": ("fp64_tflops", "TFLOP/s"),
}
"""Which number of the catalogue bounds which ids (those that begin so). Tensor peaks are dense."""


class Method(NamedTuple):
    """One way to get at a number: `tier` it belongs to, in words, its samples."""

    tier: str
    words: str
    samples: Sequence[float]


class Kind(NamedTuple):
    """What is said of a ceiling besides its samples."""

    id: str
    title: str
    unit: str
    higher_is_better: bool = True
    size: str | None = None
    dtype: str | None = None


def gpu_ceiling(
    setup: Setup,
    engine: Engine,
    before: noise.Counters,
    kind: Kind,
    methods: Sequence[Method],
    *,
    environment: Mapping[str, Any] | None = None,
    why: str | None = None,
) -> Ceiling:
    """A judged Ceiling of the first method; the others stand beside it, and one that differs by more than 5 % is
    said."""
    first, *others = methods
    gpu = the_gpu(setup.machine, engine)
    middle = percentile(first.samples, 50)
    second = {f"{other.tier}: {other.words}": round(percentile(other.samples, 50), 4) for other in others}
    apart = [
        f"{name} gives {value:.4g} {kind.unit}"
        for name, value in second.items()
        if abs(value / middle - 1) > AGREE
    ]
    reservations = [why, *apart]
    return build_ceiling(
        setup,
        before,
        first.samples,
        scale(kind, spec_of(gpu, engine), gpu),
        id=kind.id,
        title=kind.title,
        method=first.words,
        tier=first.tier,
        size=kind.size,
        dtype=kind.dtype,
        why="; ".join(text for text in reservations if text) or None,
        environment={
            "gpu": engine.name,
            "driver": gpu.driver if gpu is not None else None,
            **engine.versions,
            **({"second": second} if second else {}),
            **(environment or {}),
        },
    )


def scale(kind: Kind, spec: GpuSpec | None, gpu: Gpu | None) -> Scale:
    """Unit, peak and range of one ceiling on one device."""
    peak, peak_source = peak_of(kind.id, spec, gpu)
    low, high, band_source = band_of(kind.id, spec, peak)
    return Scale(
        unit=kind.unit,
        higher_is_better=kind.higher_is_better,
        band=None if low is None or high is None else (low, high),
        band_source=band_source,
        peak=peak,
        peak_source=peak_source,
    )


def spec_of(gpu: Gpu | None, engine: Engine) -> GpuSpec | None:
    """The catalogue's entry of the device; None when it is not certain which."""
    if gpu is not None and gpu.catalog in heads():
        return body(gpu.catalog)
    return find_gpu(engine.name, memory_bytes=gpu.memory_bytes if gpu is not None else None)


def peak_of(id: str, spec: GpuSpec | None, gpu: Gpu | None) -> tuple[float | None, str | None]:
    """The published limit of that id and where it is from."""
    if id.startswith(("h2d.", "d2h.")):
        return _pcie_peak(id, gpu)
    names = [name for prefix, (name, _) in PEAKS.items() if id.startswith(prefix)]
    if spec is None or not names:
        return None, None
    number = spec.numbers.known().get(names[0])
    if number is None:
        return None, None
    return number.value / spec.devices, f"catalogue {spec.key}, {names[0]} ({number.source})"


def _pcie_peak(id: str, gpu: Gpu | None) -> tuple[float | None, str | None]:
    """One direction, or two for `bidirectional`, of the link at its best: it runs slower while idle."""
    if gpu is None or gpu.pcie_gen_max is None or gpu.pcie_width_max is None or gpu.c2c:
        return None, None
    for link in all_links():
        if link.key == f"pcie-{gpu.pcie_gen_max}" and link.numbers.lanes is not None:
            one = link.numbers.direction_gbs.value * gpu.pcie_width_max / link.numbers.lanes.value
            return one * (2 if "bidirectional" in id else 1), f"catalogue {link.key}, x{gpu.pcie_width_max}"
    return None, None


def band_of(
    id: str, spec: GpuSpec | None, peak: float | None
) -> tuple[float | None, float | None, str | None]:
    """The range of the first row of bands.csv that is of this id and device."""
    for row in _bands():
        of_device = row["gpu"] == "*" or (spec is not None and fnmatch.fnmatchcase(spec.key, row["gpu"]))
        if not of_device or not fnmatch.fnmatchcase(id, row["id"]):
            continue
        low, high = float(row["low"]), float(row["high"])
        if row["unit"] == "peak":
            if peak is None:
                continue
            low, high = low * peak, high * peak
        return low, high, row["source"]
    return None, None, None


@cache
def _bands() -> list[dict[str, str]]:
    text = files("wellfed.bench.gpu").joinpath("bands.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
