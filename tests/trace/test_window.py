"""A window of a recording: sums of neighbours add up, causes stay what they are, steps are whole or left out."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_budget_and_causes import traces
from trace_builder import simulate, write

from wellfed.analyze import analyze
from wellfed.analyze.budget import Work
from wellfed.analyze.causes import Covers, charge
from wellfed.analyze.launches import Launches
from wellfed.analyze.study import study_device
from wellfed.analyze.window import cut
from wellfed.ingest import read_timeline
from wellfed.model.timeline import Timeline

TRACES = sorted((Path(__file__).resolve().parents[1] / "traces").glob("*.json.gz"))


def budgets(timeline: Timeline, edges: list[int]) -> list[dict[str, int]]:
    """Parts of the budget, events and communication of the windows between `edges`."""
    found = []
    for low, high in itertools.pairwise(edges):
        study = study_device(cut(timeline, low, high), 0)
        b = study.rank.budget
        if b is not None:
            parts = {f: getattr(b, f) for f in b.__struct_fields__}
            assert sum(study.rank.idle.values()) == b.idle_ns
            found.append({**parts, "comm": study.rank.comm_ns, "hidden": study.rank.comm_overlapped_ns})
    return found


def added(rows: list[dict[str, int]]) -> dict[str, int]:
    return {key: sum(row[key] for row in rows) for key in rows[0]} if rows else {}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(traces(), st.lists(st.integers(1, 499_999), max_size=4, unique=True))
def test_neighbouring_windows_add_up(
    tmp_path: Path, events: list[dict[str, object]], marks: list[int]
) -> None:
    timeline = read_timeline(write(tmp_path / "t.json", events))
    end = int(timeline.end.max() - timeline.ts.min()) + 1
    edges = [0, *sorted(m for m in marks if m < end), end]
    assert added(budgets(timeline, edges)) == added(budgets(timeline, [0, end]))


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name)
def test_idle_in_a_window_has_the_causes_that_the_whole_gives_it(path: Path) -> None:
    """Exact but for credit of host syncs, which a wait before the window may have earned."""
    timeline = read_timeline(path)
    length = int(timeline.end.max() - timeline.ts.min())
    work = Work(timeline, 0)
    launches = Launches(timeline, work)
    covers = Covers(timeline, work, launches)
    for low, high in ((0.2, 0.5), (0.41, 0.83)):
        part = cut(timeline, round(low * length), round(high * length))
        assert part.window is not None
        truth = charge(timeline, work, launches, covers, [part.window.spans[0]])[0]
        said = study_device(part, 0).rank.idle
        moved = sum(abs(truth[cause] - said[cause]) for cause in truth) / 2
        assert moved <= 0.02 * sum(truth.values()), {
            c: (truth[c], said[c]) for c in truth if truth[c] != said[c]
        }


def test_steps_are_whole_or_left_out(tmp_path: Path) -> None:
    """Of a host that runs ahead: the device is still at step 3 when the host has ended step 5."""
    run = simulate(steps=8, kernels=10, kernel_us=100, dispatch_us=5)
    timeline = read_timeline(write(tmp_path / "t.json", run.events))
    whole = study_device(timeline, 0).rank
    spans = {row["name"]: row["span_ns"] for row in whole.step_parts}
    seen: set[str] = set()
    for end_us in range(200, 9000, 333):
        rank = study_device(cut(timeline, 0, end_us * 1000), 0).rank
        for row in rank.step_parts:
            assert row["span_ns"] == spans[row["name"]], "a step that is shown has its own length"
        seen |= {row["name"] for row in rank.step_parts}
    assert seen == set(spans)
    assert [s.name for s in study_device(cut(timeline, 0, 3_000_000), 0).rank.steps] == [
        "ProfilerStep#0",
        "ProfilerStep#1",
    ]


def test_what_is_launched_before_the_window_is_no_orphan(tmp_path: Path) -> None:
    run = simulate(steps=4, kernels=10, kernel_us=100, dispatch_us=5)
    part = cut(read_timeline(write(tmp_path / "t.json", run.events)), 2_000_000)
    study = study_device(part, 0)
    assert {w.code for w in study.warnings} == {"window", "no-steps"}
    assert not Launches(part, Work(part, 0)).orphan.any()
    assert np.all(np.diff(part.ts) >= 0)


def test_a_window_with_only_idle_and_one_past_the_end(tmp_path: Path) -> None:
    run = simulate(steps=4, kernels=3, kernel_us=10, data_us=5000)
    timeline = read_timeline(write(tmp_path / "t.json", run.events))
    busy = Work(timeline, 0)
    low = int(busy.end[2]) + 100_000 - int(timeline.ts.min())
    found = analyze([cut(timeline, low, low + 1_000_000)])
    rank = found.ranks[0]
    assert rank.budget is not None
    assert rank.budget.idle_ns == rank.budget.span_ns == 1_000_000
    assert rank.idle["data-wait"] == 1_000_000 and rank.gpu_events == 0
    assert "window" in {w.code for w in found.warnings}
    after = analyze([cut(timeline, 60_000_000_000)])
    assert after.ranks[0].budget is None
    assert after.studies[0].refused == "no GPU event in the window"


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("2s:3.5s", (2 * 10**9, 3_500_000_000)),
        ("2:3.5s", (2 * 10**9, 3_500_000_000)),
        ("500ms:", (500_000_000, None)),
        (":0.123456789s", (0, 123_456_789)),
        ("0:800ms", (0, 800_000_000)),
        ("900ms:1s", (900_000_000, 10**9)),
    ],
)
def test_the_option_is_exact(text: str, window: tuple[int, int | None]) -> None:
    from wellfed.cli.trace import _window

    assert _window(text) == window


@pytest.mark.parametrize("text", ["", ":", "2:3", "3s", "3s:2s", "2s:2s", "-1s:2s", "1s:2x", "1s:2s:3s"])
def test_a_window_that_says_nothing_is_wrong_usage(run_cli, tmp_path: Path, text: str) -> None:
    write(tmp_path / "t.json", simulate(steps=2).events)
    result = run_cli("trace", "t.json", "--window", text)
    assert result.code == 2 and "--window" in result.err


def test_the_verb_says_what_it_looked_at(run_cli, tmp_path: Path) -> None:
    timeline = read_timeline(write(tmp_path / "t.json", simulate(steps=8, data_us=9000.0).events))
    result = run_cli("trace", "t.json", "--window", "20ms:60ms", "--format", "json")
    said = json.loads(result.out)
    rank = said["ranks"][0]
    assert [w["sample"].split(";")[0] for w in said["warnings"] if w["code"] == "window"] == [
        f"only 20 ms to 60 ms of {timeline.end.max() / 1e6:.0f} ms looked at"
    ]
    assert 0 < rank["budget"]["span_ns"] <= 40_000_000
    names = [step["name"] for step in rank["steps"]]
    inner = run_cli("trace", "t.json", "--window", "20ms:60ms", "--steps", "1:1", "--format", "json")
    assert [step["name"] for step in json.loads(inner.out)["ranks"][0]["steps"]] == names[1:2] != []
