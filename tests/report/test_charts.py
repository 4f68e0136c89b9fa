"""Charts: they show the case's numbers, say the take-away, and can be told apart in both themes."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import report_cases as cases

from wellfed.model import Case
from wellfed.report import charts, gallery, words


def values(chart: charts.Chart | None) -> list[dict[str, Any]]:
    assert chart is not None
    return chart["data"]["values"]


def test_waterfall_bars_follow_each_other_and_fill_the_step() -> None:
    rows = values(charts.step_waterfall(cases.starved()))
    assert rows[0]["start"] == 0
    for one, following in itertools.pairwise(rows):
        assert following["start"] == pytest.approx(one["end"])
    budget = cases.rank().step_budget
    assert budget is not None
    assert rows[-1]["end"] * 1e6 == pytest.approx(budget.span_ns)


def test_each_step_is_filled_by_its_parts() -> None:
    by_step = itertools.groupby(values(charts.step_causes(cases.starved())), key=lambda row: row["label"])
    spans = [row["span_ns"] for row in cases.rank().step_parts]
    ends = [max(row["end"] for row in rows) for _, rows in by_step]
    assert [end * 1e6 for end in ends] == pytest.approx(spans)


@pytest.mark.parametrize(
    "row",
    [
        {"name": "s", "span_ns": 100, "compute_ns": 60, "idle_ns": 40, "idle": {"data-wait": 40}},
        {"name": "s", "span_ns": 100, "parts": {"compute": 60, "data-wait": 40}},
        {"name": "s", "start_ns": 7, "end_ns": 107, "compute_ns": 60, "data-wait": 40},
    ],
)
def test_step_parts_may_be_flat_or_nested(row: dict[str, Any]) -> None:
    (read,) = charts.step_rows(cases.RankTrace(step_parts=(row,)))
    assert (read["span"], [(name, ns) for name, _, ns in read["parts"]]) == (
        100,
        [("compute", 60), ("data-wait", 40)],
    )


def test_ceilings_stand_left_of_their_peak_on_a_log_axis() -> None:
    chart = charts.ceilings_of_peak(cases.host_only())
    shares = {row["label"]: row["share"] for row in values(chart)}
    assert shares == pytest.approx(
        {"host memory copy, all threads": 0.288, "GPU memory copy": 0.8375, "pointer chase": 1 / 1.344}
    )
    assert chart is not None
    assert chart["layer"][1]["encoding"]["x"]["scale"]["type"] == "log"


def test_heat_map_has_a_cell_for_each_rank_and_part() -> None:
    chart = charts.rank_heat(cases.eight_ranks())
    cells = {(row["label"], row["part"]): row["share"] for row in values(chart)}
    assert len({label for label, _ in cells}) == 8
    assert len(cells) == 8 * len({part for _, part in cells})
    assert cells["rank 5", "data-wait"] == max(
        share for (_, part), share in cells.items() if part == "data-wait"
    )


def test_a_thousand_ranks_leave_the_calm_ones_out_and_say_so() -> None:
    ranks = (
        *tuple(cases.rank(n, wait=(5 if n == 777 else 2) * cases.MS) for n in range(200)),
        cases.rank(777, wait=90 * cases.MS),
    )
    chart = charts.rank_heat(Case(ranks=ranks))
    assert len({row["label"] for row in values(chart)}) == charts.MAX_ROWS
    assert "rank 777" in {row["label"] for row in values(chart)}
    assert chart is not None
    assert "169 that stand out less are left out" in chart["title"]


@pytest.mark.parametrize(
    ("name", "chart", "title"),
    [
        ("starved", "step", "data-wait takes 71.5 % of each 162 ms step, compute 22.2 %"),
        ("healthy", "step", "compute fills 81.3 % of each 55.3 ms step"),
        ("eight_ranks", "ranks", "data-wait differs most: 2.5 % to 38.6 %, highest on rank 5"),
        (
            "host_only",
            "ceilings",
            "host memory copy, all threads is furthest from its peak: 28.8 % of 307 GB/s, low",
        ),
        ("host_only", "layers", "errors or warnings in cpu"),
        ("starved", "layers", "errors or warnings in trace, cpu"),
    ],
)
def test_titles_say_the_take_away(name: str, chart: str, title: str) -> None:
    made = gallery.CHARTS[chart](cases.CASES[name]())
    assert made is not None
    assert made["title"].replace(words.NBSP, " ") == title


@pytest.mark.parametrize("name", cases.CASES)
def test_charts_are_plain_data_that_fetch_nothing(name: str) -> None:
    for make in gallery.CHARTS.values():
        chart = make(cases.CASES[name]())
        if chart is None:
            continue
        json.dumps(chart, allow_nan=False)
        assert chart["title"]
        assert not {"url", "href", "expr", "signal"} & set(keys(chart))
        assert {name for row in values(chart) for name in row if not name.isidentifier()} == set()


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def test_an_empty_case_draws_nothing() -> None:
    assert [make(Case()) for make in gallery.CHARTS.values()] == [None] * len(gallery.CHARTS)


# --- colours -------------------------------------------------------------------------------------------


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio."""
    low, high = sorted(
        sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(x), strict=True)) for x in (one, other)
    )
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [charts.LIGHT, charts.DARK], ids=["light", "dark"])
def test_text_and_marks_stand_out_from_the_page(theme: dict[str, str]) -> None:
    assert contrast(theme["ink"], theme["page"]) >= 7
    assert contrast(theme["muted"], theme["page"]) >= 4.5
    for name in ("compute", "comm", "copy", "idle", "good", "noisy"):
        assert contrast(theme[name], theme["page"]) >= 4.5, name  # they colour words as well
    for name in ("overhead", "unknown"):
        assert contrast(theme[name], theme["page"]) >= 3, name


# Machado, Oliveira and Fernandes 2009, severity 1.0, in linear RGB.
DEFICIENCIES = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
}  # fmt: skip


def oklab(rgb: list[float]) -> list[float]:
    r, g, b = (max(c, 0.0) for c in rgb)
    lms = (
        0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b,
        0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b,
        0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b,
    )
    x, y, z = (c ** (1 / 3) for c in lms)
    return [
        0.2104542553 * x + 0.793617785 * y - 0.0040720468 * z,
        1.9779984951 * x - 2.428592205 * y + 0.4505937099 * z,
        0.0259040371 * x + 0.7827717662 * y - 0.808675766 * z,
    ]


@pytest.mark.parametrize("theme", [charts.LIGHT, charts.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("deficiency", [None, *DEFICIENCIES])
def test_parts_can_be_told_apart(theme: dict[str, str], deficiency: str | None) -> None:
    """The four groups keep a distance in OKLab with full and with colour-deficient sight."""

    def seen(name: str) -> list[float]:
        rgb = linear(theme[name])
        if deficiency is not None:
            rgb = [sum(w * c for w, c in zip(row, rgb, strict=True)) for row in DEFICIENCIES[deficiency]]
        return oklab(rgb)

    for one, other in itertools.combinations(("compute", "comm", "copy", "idle"), 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen(one), seen(other), strict=True)) ** 0.5
        assert distance >= 0.065, (one, other, distance)


def test_every_colour_of_a_chart_has_a_variable() -> None:
    used = {
        value
        for make in gallery.CHARTS.values()
        for value in json.dumps(make(cases.starved()) or {}).split('"')
        if value.startswith("#") and len(value) == 7
    }
    assert used
    assert used <= set(charts.LIGHT.values())
    assert set(charts.LIGHT) == set(charts.DARK)
    assert len(set(charts.LIGHT.values())) == len(charts.LIGHT)  # or the swap would be ambiguous
