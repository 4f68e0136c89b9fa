"""Rooflines from measured ceilings: what a device computes by number format at each arithmetic intensity, bounded by its
memory on the left and by its arithmetic on the right (Williams, Waterman and Patterson, CACM 52(4), 2009).

GPU: `hbm-*` and `gemm.<dtype>.*`; host: `memory-triad.all` and `blas.<dtype>.*`. Only what was measured here is drawn.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from wellfed.model import Case, Ceiling
from wellfed.report import words
from wellfed.report.charts import COLOUR, LIGHT, WIDTH, Chart, chart, label_of

HEIGHT = 260
_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_RATE = re.compile(r"([KMGTP]?)(FLOPS?|FLOP/s|OPS?|OP/s|B/s)")
_SHAPE = re.compile(r"(\d{1,9})(?:x(\d{1,9})x(\d{1,9}))?")
_DTYPE_BYTES = {
    "float64": 8, "fp64": 8, "float32": 4, "fp32": 4, "fp32-torch": 4, "tf32": 4, "bf16": 2, "fp16": 2,
    "float16": 2, "fp8": 1, "int8": 1, "fp4": 0.5,
}  # fmt: skip
_SHADES = ("compute", "good", "comm", "copy", "overhead", "idle", "unknown")
_MOST_ROOFS = 7


class Roofline(NamedTuple):
    """Bytes a second of the memory and FLOP/s of each format; `points` are the products behind them: (format, FLOPs a
    byte, FLOP/s)."""

    bytes_per_s: float
    flops_per_s: dict[str, float]
    points: list[tuple[str, float, float]]

    def knee(self, dtype: str) -> float:
        """FLOPs a byte from which on the format is bounded by arithmetic."""
        return self.flops_per_s[dtype] / self.bytes_per_s


def read_roofline(ceilings: Sequence[Ceiling], memory: Sequence[str], products: str) -> Roofline | None:
    """The best of the memory ceilings named and of the families `<products>.<dtype>.*`. None without one of either.
    What was judged implausible is no roof."""
    sound = [c for c in ceilings if c.verdict != "implausible"]
    rates = [rate for c in sound if c.id in memory and (rate := per_second(c)) is not None]
    points = [point for c in sound if (point := _product(c, products)) is not None]
    if not rates or not points:
        return None
    roofs: dict[str, float] = {}
    for dtype, _, rate in points:
        roofs[dtype] = max(roofs.get(dtype, 0.0), rate)
    kept = dict(sorted(roofs.items(), key=lambda pair: -pair[1])[:_MOST_ROOFS])
    return Roofline(max(rates), kept, [point for point in points if point[0] in kept])


def per_second(ceiling: Ceiling) -> float | None:
    """`best` in FLOP/s, OP/s or bytes a second; None for another unit, or a number that is none."""
    match = _RATE.fullmatch(ceiling.unit.strip())
    if match is None or not math.isfinite(ceiling.best) or ceiling.best <= 0:
        return None
    return ceiling.best * _PREFIX[match[1]]


def _product(ceiling: Ceiling, family: str) -> tuple[str, float, float] | None:
    """(format, FLOPs a byte of operands read and result written once, FLOP/s) of a matrix product's ceiling."""
    start, _, rest = ceiling.id.partition(".")
    dtype, _, shape = rest.partition(".")
    match, rate = _SHAPE.fullmatch(shape), per_second(ceiling)
    if start != family or match is None or rate is None or not dtype:
        return None
    m = int(match[1])
    n, k = (int(match[2]), int(match[3])) if match[2] else (m, m)
    size = _DTYPE_BYTES.get(dtype.partition("-")[0], 2)
    moved = size * (m * k + n * k) + max(size, 2) * m * n
    return (dtype, 2 * m * n * k / moved, rate) if m and n and k else None


GPU_MEMORY = ("hbm-read", "hbm-copy", "hbm-triad")
HOST_MEMORY = ("memory-copy.all", "memory-triad.all", "memory-copy.1", "memory-triad.1")


def gpu_roofline(case: Case) -> Chart | None:
    """None without measured HBM and matrix products."""
    return _chart("GPU", read_roofline(case.ceilings, GPU_MEMORY, "gemm"))


def host_roofline(case: Case) -> Chart | None:
    """None without measured memory and BLAS."""
    return _chart("host", read_roofline(case.ceilings, HOST_MEMORY, "blas"))


def _chart(device: str, roofline: Roofline | None) -> Chart | None:
    """Log against log. Formats share the memory's slope and are named at their roofs."""
    if roofline is None:
        return None
    factor, unit = _unit(max(roofline.flops_per_s.values()))
    knees = {dtype: roofline.knee(dtype) for dtype in roofline.flops_per_s}
    lowest = min(0.25, min(knees.values()) / 8)
    highest = max(max(knees.values()) * 8, max(intensity for _, intensity, _ in roofline.points) * 1.5)
    values: list[dict[str, Any]] = []
    marks: list[dict[str, Any]] = []
    for shade, (dtype, peak) in zip(_SHADES, roofline.flops_per_s.items(), strict=False):
        for at in (lowest, knees[dtype], highest):
            height = min(at * roofline.bytes_per_s, peak) / factor
            values.append({"format": label_of(dtype, 16), "at": at, "rate": height, "colour": LIGHT[shade]})
        text = f"{label_of(dtype, 16)} {words.number(peak / factor)}"
        marks.append({"at": highest, "rate": peak / factor, "text": text, "colour": LIGHT[shade]})
    shades = {dtype: LIGHT[shade] for shade, dtype in zip(_SHADES, roofline.flops_per_s, strict=False)}
    dots = [
        {"at": intensity, "rate": rate / factor, "colour": shades[dtype]}
        for dtype, intensity, rate in roofline.points
    ]
    return _drawn(_title(device, roofline), values, _apart(marks), dots, unit, (lowest, highest))


def _title(device: str, roofline: Roofline) -> str:
    top = next(iter(roofline.flops_per_s))
    factor, unit = _unit(roofline.bytes_per_s, "B/s")
    return (
        f"{device}: memory gives {words.number(roofline.bytes_per_s / factor)} {unit}, so {label_of(top, 16)} needs "
        f"{words.number(roofline.knee(top))} operations a byte to fill its units"
    )


def _unit(value: float, of: str = "FLOP/s") -> tuple[float, str]:
    prefix = "T" if value >= 1e12 else "G"
    return _PREFIX[prefix], prefix + of


def _apart(marks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Labels of roofs that lie close, moved apart: on a log axis by a factor."""
    out: list[dict[str, Any]] = []
    for mark in sorted(marks, key=lambda row: -row["rate"]):
        highest = out[-1]["rate"] / 1.35 if out else math.inf
        out.append({**mark, "rate": min(mark["rate"], highest)})
    return out


def _drawn(
    title: str,
    values: list[dict[str, Any]],
    marks: list[dict[str, Any]],
    dots: list[dict[str, Any]],
    unit: str,
    domain: tuple[float, float],
) -> Chart:
    low = min(row["rate"] for row in [*values, *dots]) * 0.8
    high = max(row["rate"] for row in values) * 1.6
    x = {
        "field": "at", "type": "quantitative", "title": "operations a byte of memory traffic, log",
        "scale": {"type": "log", "domain": list(domain), "nice": False},
    }  # fmt: skip
    y = {
        "field": "rate", "type": "quantitative", "title": f"{unit}, log",
        "scale": {"type": "log", "domain": [min(low, marks[-1]["rate"] * 0.8), high], "nice": False},
    }  # fmt: skip
    lines = {
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {"x": x, "y": y, "color": COLOUR, "detail": {"field": "format"}},
    }
    points = {
        "data": {"values": dots},
        "mark": {"type": "point", "filled": True, "size": 40, "opacity": 0.9},
        "encoding": {"x": x, "y": y, "color": COLOUR},
    }
    names = {
        "data": {"values": marks},
        "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 6},
        "encoding": {"x": x, "y": y, "text": {"field": "text"}},
    }
    return chart(title, values, [lines, points, names], width=WIDTH - 120, height=HEIGHT)
