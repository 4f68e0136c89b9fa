"""Ceilings by layer, curves as one entry, rooflines and curves drawn."""

import math
from typing import Any

import pytest

from wellfed.model import Case, Ceiling
from wellfed.model.base import replace
from wellfed.report import ceiling_charts, ceilings, gallery, html, markdown, roofline, terminal, words


def ceiling(id: str, best: float, unit: str = "GB/s", layer: str | None = "host", **more: Any) -> Ceiling:
    spread = {"median": best, "p10": best, "p90": best, "n": 5, "cv": 0.01} | more
    return Ceiling(id=id, title=id, method="m", hardware_key="k", unit=unit, best=best, layer=layer, **spread)


LATENCY = [
    ceiling(f"latency-by-size.{size}", best, "ns", size=size, higher_is_better=False)
    for size, best in {
        "4kib": 1.4, "8kib": 1.45, "32kib": 1.5, "48kib": 4.1, "512kib": 4.3, "1536kib": 12.0, "64mib": 150.0, "128mib": 155.0,
    }.items()
]  # fmt: skip
HOST = [
    ceiling("memory-triad.all", 60.0),
    ceiling("memory-copy.all", 50.0),
    ceiling("blas.float32.2048", 180.0, "GFLOP/s"),
    ceiling("blas.float32.512", 90.0, "GFLOP/s"),
    ceiling("blas.float64.2048", 90.0, "GFLOP/s"),
]
GPU = [
    ceiling("hbm-copy", 4.27, "TB/s", "gpu"),
    ceiling("hbm-read", 4.4, "TB/s", "gpu"),
    ceiling("gemm.bf16.8192x8192x8192", 785.0, "TFLOP/s", "gpu"),
    ceiling("gemm.bf16.16x4096x4096", 60.0, "TFLOP/s", "gpu"),
    ceiling("gemm.fp8.8192x8192x8192", 1500.0, "TFLOP/s", "gpu"),
]


# -- by layer ------------------------------------------------------------------------------------------------


def test_layers_come_in_the_order_of_the_machine() -> None:
    mixed = [
        ceiling("a", 1, layer="gpu"),
        ceiling("b", 1, layer=None),
        ceiling("c", 1),
        ceiling("d", 1, layer="new"),
    ]
    assert [title for title, _ in ceilings.by_layer(mixed)] == ["Host", "GPU", ceilings.OTHER]
    assert ceilings.by_layer([ceiling("a", 1, layer=None)])[0][0] is None
    assert ceilings.by_layer([]) == []


def test_a_family_is_one_entry_and_nothing_is_lost() -> None:
    scattered = [
        LATENCY[5],
        ceiling("os-noise", 0.1, "%"),
        *LATENCY[:5],
        *LATENCY[6:],
        ceiling("x.1", 1),
        ceiling("x.2", 2),
    ]
    entries = ceilings.fold(scattered)
    curve = entries[0]
    assert isinstance(curve, ceilings.Curve) and curve.points == tuple(LATENCY)
    assert [e.id for e in entries[1:] if isinstance(e, Ceiling)] == ["os-noise", "x.1", "x.2"]


def test_a_curve_is_told_where_it_changes() -> None:
    curve = ceilings.Curve("latency-by-size", tuple(LATENCY))
    assert ceilings.curve_text(curve) == "4kib 1.40, 48kib 4.10, 1536kib 12, 64mib 150, 128mib 155 ns"
    assert ceilings.curve_verdict(curve) == "ok"
    noisy = replace(LATENCY[0], verdict="noisy", why="w")
    assert ceilings.curve_verdict(ceilings.Curve("f", (noisy, *LATENCY[1:]))) == "ok, 1 not"


@pytest.mark.parametrize(
    ("place", "size"),
    [("32kib", 32768), ("8", 8), ("1gib", 1 << 30), ("2mb", 2e6), ("all", None), ("", None), ("1x2x3", None)],
)
def test_sizes_in_ids(place: str, size: float | None) -> None:
    assert ceilings.size_of(place) == size


def test_each_view_shows_layers_and_curves() -> None:
    case = Case(ceilings=(*HOST, *LATENCY, *GPU))
    text = terminal.render(case, view="measure", width=80).replace(words.NBSP, " ")
    assert "Measured ceilings: Host" in text and "Measured ceilings: GPU" in text
    assert "latency-by-size, 8 points: ok" in text and "1536kib 12" in text
    assert text.index("memory-triad.all") < text.index("hbm-copy")
    made = markdown.render(case)
    assert "**Host**" in made and "latency-by-size, 8 points" in made and "1536kib 12" in made
    page = html.render(case)
    assert "Measured ceilings: GPU" in page and "latency-by-size, 8 points" in page


# -- rooflines -----------------------------------------------------------------------------------------------


def test_a_roof_is_the_best_of_its_format_and_the_knee_is_their_ratio() -> None:
    found = roofline.read_roofline(GPU, roofline.GPU_MEMORY, "gemm")
    assert found is not None
    assert found.bytes_per_s == 4.4e12
    assert found.flops_per_s == {"fp8": 1500e12, "bf16": 785e12}
    assert found.knee("bf16") == pytest.approx(785 / 4.4)
    # A square of N in two-byte numbers: 2 N^3 operations over 6 N^2 bytes.
    assert {rate: at for _, at, rate in found.points}[785e12] == pytest.approx(8192 / 3)


def test_no_roof_without_both_sides_or_from_what_is_implausible() -> None:
    assert roofline.read_roofline(GPU[:2], roofline.GPU_MEMORY, "gemm") is None
    assert roofline.read_roofline(GPU[2:], roofline.GPU_MEMORY, "gemm") is None
    wrong = [replace(GPU[1], best=44.0, verdict="implausible", why="w"), *GPU[:1], *GPU[2:]]
    found = roofline.read_roofline(wrong, roofline.GPU_MEMORY, "gemm")
    assert found is not None and found.bytes_per_s == pytest.approx(4.27e12)


@pytest.mark.parametrize(
    ("best", "unit", "value"),
    [(2.0, "TB/s", 2e12), (3.0, "GFLOP/s", 3e9), (1.0, "TOPS", 1e12), (1.0, "ns", None), (math.nan, "GB/s", None),
     (-1.0, "GB/s", None), (1.0, "GFLOP/s/W", None)],
)  # fmt: skip
def test_units(best: float, unit: str, value: float | None) -> None:
    assert roofline.per_second(ceiling("a", best, unit)) == value


@pytest.mark.parametrize(
    "id", ["gemm.bf16.0", "gemm.bf16.4x4", "gemm.bf16", "gemm..8", "blas.bf16.8", "gemm.bf16.8x8x8.x"]
)
def test_ids_that_are_no_product(id: str) -> None:
    assert roofline.read_roofline([GPU[0], ceiling(id, 1.0, "TFLOP/s")], roofline.GPU_MEMORY, "gemm") is None


def test_the_picture_says_what_it_takes() -> None:
    chart = gallery.CHARTS["roofline"](Case(ceilings=tuple(GPU)))
    assert chart is not None
    assert (
        chart["title"] == "GPU: memory gives 4.40 TB/s, so fp8 needs 341 operations a byte to fill its units"
    )
    lines = chart["data"]["values"]
    for row in lines:
        assert row["rate"] * 1e12 <= min(row["at"] * 4.4e12, 1500e12) * (1 + 1e-9)
    host = gallery.CHARTS["host-roofline"](Case(ceilings=tuple(HOST)))
    assert host is not None and host["title"].startswith(
        "host: memory gives 60 GB/s, so float32 needs 3 operations"
    )
    assert gallery.CHARTS["host-roofline"](Case(ceilings=tuple(GPU))) is None


# -- curves --------------------------------------------------------------------------------------------------


def test_the_latency_curve_names_its_ends_and_labels_its_steps() -> None:
    chart = gallery.CHARTS["latency-by-size"](Case(ceilings=tuple(LATENCY)))
    assert chart is not None
    assert chart["title"] == "a dependent load takes 1.40 ns in 4 KiB and 155 ns in 128 MiB"
    labels = [row["text"] for row in chart["data"]["values"]]
    assert labels == ["1.40", "", "", "4.10", "", "12", "150", "155"]
    assert ceiling_charts.latency_by_size(Case(ceilings=tuple(LATENCY[:3]))) is None


def test_threads_that_are_enough() -> None:
    rates = {1: 20.0, 2: 39.0, 4: 70.0, 8: 95.0, 16: 100.0}
    case = Case(ceilings=tuple(ceiling(f"memory-threads.{n}", rate) for n, rate in rates.items()))
    chart = gallery.CHARTS["memory-by-threads"](case)
    assert chart is not None and chart["title"].startswith("8 of 16 threads reach 90 of 100 GB/s")
    assert ceiling_charts.bandwidth_by_threads(Case(ceilings=case.ceilings[:2])) is None
