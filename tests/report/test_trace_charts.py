"""Charts of traces show the numbers they are given, all of them, and say the take-away."""

import itertools
import json
from typing import Any

import pytest
import report_cases as cases
from hypothesis import given
from hypothesis import strategies as st

from wellfed.model import Case, RankTrace
from wellfed.model.comparison import Delta, RankComparison, StepTime
from wellfed.report import trace_charts as t
from wellfed.report import words
from wellfed.report.charts import LIGHT, Chart
from wellfed.report.draw import Pictures


def values(chart: Chart | None) -> list[dict[str, Any]]:
    assert chart is not None
    return chart["data"]["values"]


def title(chart: Chart | None) -> str:
    assert chart is not None
    return str(chart["title"]).replace(words.NBSP, " ")


def case_of(*steps: dict[str, int]) -> Case:
    parts = tuple(
        {"name": f"s{k}", "span_ns": 10**9, "compute_ns": 1, "idle_ns": sum(idle.values()), "idle": idle}
        for k, idle in enumerate(steps)
    )
    budget = cases.rank().budget
    return Case(ranks=(RankTrace(budget=budget, step_parts=parts),))


CAUSES = ["data-wait", "launch-bound", "host-sync", "host-stall", "launch-call", "queue-wait", "orphan"]
idles = st.dictionaries(st.sampled_from(CAUSES), st.integers(0, 10**9), max_size=7)


@given(st.lists(idles, min_size=2, max_size=8))
def test_idle_is_stacked_without_gap_and_whole(steps: list[dict[str, int]]) -> None:
    chart = t.idle_over_steps(case_of(*steps))
    if not any(v for step in steps for v in step.values()):
        assert chart is None
        return
    rows = values(chart)
    highest = max(sum(step.values()) for step in steps)
    factor, _, _ = words.column_scale(highest)
    for k, step in enumerate(steps):
        bars = [row for row in rows if row["step"] == k]
        assert bars[0]["low"] == 0
        assert all(a["high"] == pytest.approx(b["low"]) for a, b in itertools.pairwise(bars))
        assert bars[-1]["high"] * factor == pytest.approx(sum(step.values()), abs=1e-3)
    assert chart is not None
    places = [mark["at"] for mark in chart["layer"][1]["data"]["values"]]
    gap = t.LABEL_GAP / t.HEIGHT * highest / factor
    assert all(b - a >= gap * 0.999 for a, b in itertools.pairwise(places)), "no label on another"
    assert max(places) <= highest / factor * 1.001


def test_many_steps_are_means_of_groups() -> None:
    chart = t.idle_over_steps(case_of(*({"data-wait": 10**6 * (k % 2)} for k in range(240))))
    rows = values(chart)
    assert len({row["step"] for row in rows}) == t.MAX_STEPS
    assert [row["high"] for row in rows] == [pytest.approx(500)] * t.MAX_STEPS
    assert chart is not None
    assert "means of 4 steps" in chart["layer"][0]["encoding"]["x"]["axis"]["title"]


def test_the_largest_cause_is_named_with_how_often_it_led() -> None:
    chart = t.idle_over_steps(
        case_of({"data-wait": 90}, {"data-wait": 0, "host-sync": 10}, {"data-wait": 50})
    )
    assert title(chart) == "data-wait is 93.3 % of the idle time, the largest cause in 2 of 3 steps"


def test_the_strip_shows_every_moment_of_every_lane() -> None:
    strip = cases.rank().strip
    assert strip is not None
    chart = t.overlap_strip(Case(ranks=(cases.rank(),)))
    factor, _, _ = words.column_scale(strip.span_ns)
    for lane, bins in strip.lanes.items():
        shown = sum(
            (row["end"] - row["start"]) * row["opacity"] for row in values(chart) if row["label"] == lane
        )
        truth = sum(round(b / 10) / 10 for b in bins) / len(bins) * strip.span_ns / factor
        assert shown == pytest.approx(truth)
    assert title(chart).startswith("ProfilerStep#1, a typical one of 162 ms: idle 74.5 %")
    assert t.overlap_strip(Case(ranks=(RankTrace(),))) is None


def comparison(a: int, b: int, **deltas: int) -> RankComparison:
    rest = b - a - sum(deltas.values())
    parts = {"compute": rest, **{name.replace("_", "-"): d for name, d in deltas.items()}}
    rows = tuple(Delta(name=n, a_ns=0, b_ns=d, delta_ns=d) for n, d in parts.items())
    return RankComparison(
        basis="unprofiled", a=StepTime(ns=a), b=StepTime(ns=b), budget=rows[:1], idle=rows[1:]
    )


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(-(10**9), 10**9))
def test_changes_lead_from_a_to_b(a: int, b: int, wait: int) -> None:
    rows = values(t.change_waterfall(comparison(a, b, data_wait=wait, host_sync=3)))
    factor, _, _ = words.column_scale(max(a, b))
    assert (rows[0]["label"], rows[-1]["label"]) == ("A", "B")
    assert rows[0]["end"] * factor == pytest.approx(a) and rows[-1]["end"] * factor == pytest.approx(b)
    level = float(a)
    for row in rows[1:-1]:
        low, high = row["start"] * factor, row["end"] * factor
        assert level == pytest.approx(low, abs=1e-3) or level == pytest.approx(high, abs=1e-3)
        level = low + high - level
    assert level == pytest.approx(b, abs=1e-3)


def test_waits_of_ranks_are_cells_and_missing_ones_stay_empty() -> None:
    chart = t.wait_heat([0, 1, 2], [10, 11], [[4_000_000, 0, -1], [2_000_000, None, 1_000_000]])
    cells = {(row["label"], row["step"]): row["opacity"] for row in values(chart)}
    assert cells.keys() == {("rank 0", 10), ("rank 1", 10), ("rank 0", 11), ("rank 2", 11)}
    assert cells["rank 0", 10] == max(cells.values()) and cells["rank 1", 10] == min(cells.values())
    assert title(chart) == "rank 1 waits least, 0 ns a step, rank 0 most, 3 ms; the strongest cell is 4 ms"
    assert t.wait_heat([0], [1], [[5]]) is None and t.wait_heat([0, 1], [1], [[0, 0]]) is None


def test_one_slow_rank_is_not_lost_among_a_thousand() -> None:
    waits = [[0 if rank == 777 else 5_000_000 for rank in range(1024)] for _ in range(300)]
    chart = t.wait_heat(range(1024), range(300), waits)
    by_row: dict[str, set[float]] = {}
    for row in values(chart):
        by_row.setdefault(row["label"], set()).add(row["opacity"])
    assert len(by_row) <= t.MAX_HEAT_RANKS and len(values(chart)) <= t.MAX_HEAT_RANKS * t.MAX_HEAT_STEPS
    pale = [name for name, seen in by_row.items() if max(seen) < 0.1]
    assert len(pale) == 1
    low, high = (int(word) for word in pale[0].split() if word.isdigit())
    assert low <= 777 <= high
    assert "rank 777 waits least" in title(chart)


POINTS = [
    t.RoofPoint("aten::linear", 180, 600e12, 860e12, 40),
    t.RoofPoint("aten::add", 0.17, 0.2e12, 0.8e12, 6),
    t.RoofPoint("zero", 0, 1, 1, 99),
    t.RoofPoint("nan", float("nan"), 1, 1, 99),
]


def test_a_roofline_shows_what_is_achieved_below_its_roof() -> None:
    chart = t.roofline(POINTS, [t.Roof("bf16", 989e12, 4.8e12)])
    rows = values(chart)
    assert [(row["achieved"], row["roof"]) for row in rows] == [(600, 860), (0.2, pytest.approx(0.8))]
    assert [row["colour"] for row in rows] == [LIGHT["compute"], LIGHT["idle"]]
    assert (
        title(chart)
        == "aten::linear takes most time, at 69.8 % of its roof; 87.0 % of the time is above half of it"
    )
    assert chart is not None
    line = chart["layer"][0]["data"]["values"]
    assert max(corner["achieved"] for corner in line) == pytest.approx(989)
    ridge = line[1]
    assert ridge["intensity"] == pytest.approx(989 / 4.8) and ridge["achieved"] == pytest.approx(989)
    assert t.roofline(POINTS[2:]) is None


@pytest.mark.parametrize(
    "chart",
    [
        t.idle_over_steps(case_of({"data-wait": 5, "host-sync": 3}, {"data-wait": 50})),
        t.overlap_strip(Case(ranks=(cases.rank(),))),
        t.change_waterfall(comparison(100, 60, data_wait=-50)),
        t.wait_heat([0, 1], [1, 2], [[5, 0], [3, 9]]),
        t.roofline(POINTS, [t.Roof("bf16", 989e12, 4.8e12)]),
    ],
    ids=["idle", "strip", "change", "heat", "roof"],
)
def test_each_draws_in_the_page_colours(chart: Chart) -> None:
    pytest.importorskip("vl_convert")
    json.dumps(chart, allow_nan=False)
    drawer = Pictures()
    svg = drawer.svg(chart, label="x")
    assert svg is not None, drawer.why
    assert '"#' not in svg and svg.count("<text") > 2
