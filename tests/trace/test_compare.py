"""Comparing two recordings: deltas sum exactly, nothing is claimed that the intervals cover, promises are kept account of."""

import itertools
import json
from math import comb
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_budget_and_causes import traces
from trace_builder import event, kernel, simulate, write

from wellfed import api
from wellfed.analyze import step_work
from wellfed.analyze.compare import REST, apportion, compare_ranks, median_interval
from wellfed.analyze.study import study_device
from wellfed.ingest import read_timeline
from wellfed.model import RankTrace
from wellfed.model.comparison import Comparison, RankComparison
from wellfed.report import comparison as shown

TRACES = sorted((Path(__file__).resolve().parents[1] / "traces").glob("*.json.gz"))


def rank_of(path: Path) -> RankTrace:
    return study_device(read_timeline(path), 0).rank


def made(path: Path, **kind: Any) -> Path:
    return write(path, simulate(**{"steps": 5, **kind}).events)


def compared(tmp_path: Path, before: dict[str, Any], after: dict[str, Any]) -> RankComparison:
    return api.compare(made(tmp_path / "a.json", **before), made(tmp_path / "b.json", **after)).ranks[0]


def holds(one: RankComparison) -> None:
    """The bookkeeping."""
    assert sum(part.a_ns for part in one.budget) == one.a.ns
    assert sum(part.b_ns for part in one.budget) == one.b.ns
    assert sum(part.delta_ns for part in one.budget) == one.b.ns - one.a.ns
    idle = next(part for part in one.budget if part.name == "idle")
    assert (sum(p.a_ns for p in one.idle), sum(p.b_ns for p in one.idle)) == (idle.a_ns, idle.b_ns)
    assert sum(p.delta_ns for p in one.idle) == idle.delta_ns
    for rows in (one.work, one.kernels):
        assert all(row.delta_ns == row.b_ns - row.a_ns for row in rows)
    totals = {(sum(r.a_ns for r in rows), sum(r.b_ns for r in rows)) for rows in (one.work, one.kernels)}
    assert len(totals) == 1, "by operator and by kernel it is the same time"


# -- laws -------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(traces(), traces())
def test_deltas_sum_to_the_delta_of_the_whole(tmp_path: Path, a: Any, b: Any) -> None:
    one = compare_ranks(rank_of(write(tmp_path / "a.json", a)), rank_of(write(tmp_path / "b.json", b)))
    assert one is not None
    holds(one)


@pytest.mark.parametrize(("a", "b"), list(itertools.pairwise(TRACES)), ids=lambda p: p.name)
def test_they_do_on_recordings_of_different_work_too(a: Path, b: Path) -> None:
    there, back = compare_ranks(rank_of(a), rank_of(b)), compare_ranks(rank_of(b), rank_of(a))
    assert there is not None and back is not None
    holds(there)
    assert {p.name: p.delta_ns for p in there.idle} == {p.name: -p.delta_ns for p in back.idle}
    if there.speedup is not None and back.speedup is not None:
        assert there.speedup * back.speedup == pytest.approx(1)
        assert there.low is not None and there.high is not None and back.high is not None
        assert there.low <= there.speedup <= there.high
        assert there.low * back.high == pytest.approx(1)


@pytest.mark.parametrize("path", TRACES[:5], ids=lambda p: p.name)
def test_a_recording_does_not_differ_from_itself(path: Path) -> None:
    found = api.compare(path, path)
    (one,) = found.ranks
    assert one.speedup == 1
    assert not any(p.delta_ns for p in (*one.budget, *one.idle, *one.work, *one.kernels))
    assert {row.presence for row in one.kernels} <= {"both"}
    assert one.identical and (one.low, one.high) == (1.0, 1.0)
    assert found.headline.startswith("A and B are one and the same recording")
    assert all(p.state == "found" for p in one.promises)
    text = shown.render_text(found, 80, False)
    assert "faster" not in text and "Predicted against" not in text


def test_another_run_of_the_same_is_no_difference_and_not_the_same_recording(tmp_path: Path) -> None:
    """Each event at another time, each as long as before: the interval is what two runs of one loop do, at least."""
    made = simulate(steps=5, kernel_us=200.0).events
    a = write(tmp_path / "a.json", made)
    b = write(tmp_path / "b.json", [{**e, "ts": e["ts"] + 500.0} for e in made])
    (one,) = api.compare(a, b).ranks
    assert not one.identical and one.speedup == pytest.approx(1.0)
    assert one.low is not None and one.high is not None
    assert one.low == pytest.approx(1 / one.high, rel=1e-6)
    assert 1.005 < one.high < 1.15
    uneven = list(made)
    for e in uneven[len(made) // 2 :]:
        if e["cat"] == "kernel" and e["args"]["correlation"] % 7 == 0:
            uneven[uneven.index(e)] = {**e, "dur": e["dur"] + 0.5}
    (wider,) = api.compare(a, write(tmp_path / "c.json", uneven)).ranks
    assert wider.low is not None and wider.high is not None
    assert wider.high / wider.low >= one.high / one.low * (1 - 1e-9)


def test_recordings_of_hosts_that_wait_differ_more_from_run_to_run(tmp_path: Path) -> None:
    def width(**kind: float) -> float:
        made = simulate(steps=5, **kind).events  # type: ignore[arg-type]
        a = write(tmp_path / "a.json", made)
        b = write(tmp_path / "b.json", [{**e, "ts": e["ts"] + 500.0} for e in made])
        (one,) = api.compare(a, b).ranks
        assert one.low is not None and one.high is not None
        return one.high / one.low

    assert width(kernel_us=200.0) < 1.05 < 1.15 < width(data_us=40_000.0)


@given(st.lists(st.integers(0, 10**12), max_size=30), st.integers(1, 50))
def test_shares_are_whole_and_sum_to_the_rounded_whole(totals: list[int], n: int) -> None:
    shares = apportion(totals, n)
    assert abs(sum(shares) * n - sum(totals)) * 2 <= n
    assert all(abs(share * n - total) < n for share, total in zip(shares, totals, strict=True))


@pytest.mark.parametrize("n", [3, 4, 5, 9, 20, 33, 100, 400])
def test_the_interval_of_a_median_holds_it_as_often_as_it_says(n: int) -> None:
    """The median lies below the k-th of n values exactly when fewer than k of n fair coins fall its way."""
    low, high = median_interval(list(range(n)))
    assert low + high == n - 1
    missed = 2 * sum(comb(n, k) for k in range(low + 1)) / 2**n
    assert missed <= 0.2 or low == 0
    narrower = missed + 2 * comb(n, low + 1) / 2**n
    assert narrower > 0.2 or low + 1 >= high - 1


def test_intervals_at_the_border() -> None:
    assert median_interval([]) == (0, 0)
    assert median_interval([7]) == (7, 7)
    wide, narrow = median_interval(list(range(401))), median_interval(list(range(400)))
    assert abs((wide[1] - wide[0]) - (narrow[1] - narrow[0])) <= 2


# -- what is said -----------------------------------------------------------------------------------------


def test_a_cure_is_held_against_its_promise(tmp_path: Path) -> None:
    one = compared(tmp_path, {"data_us": 40_000.0}, {"data_us": 0.0})
    (promise,) = [p for p in one.promises if p.code == "T110"]
    assert promise.state == "cured" and promise.a_cost == pytest.approx(40, rel=0.1)
    assert one.predicted == (promise.low, promise.high)
    assert one.held == "within" and one.speedup is not None and one.speedup > 5
    moved = min(one.idle, key=lambda part: part.delta_ns)
    assert moved.name == "data-wait" and moved.delta_ns == pytest.approx(-40e6, rel=0.05)


def test_half_a_cure_is_none(tmp_path: Path) -> None:
    one = compared(tmp_path, {"data_us": 40_000.0}, {"data_us": 20_000.0})
    (promise,) = [p for p in one.promises if p.code == "T110"]
    assert (promise.state, one.predicted, one.held) == ("found", None, None)
    assert promise.b_cost == pytest.approx(20, rel=0.1)
    assert one.speedup is not None and 1.5 < one.speedup < 2


def test_two_cures_together_have_bounds(tmp_path: Path) -> None:
    ills = {"data_us": 20_000.0, "pageable_us": 8_000.0, "kernels": 20}
    one = compared(tmp_path, ills, {"kernels": 20})
    cured = [p for p in one.promises if p.state == "cured"]
    assert {"T110", "T140"} <= {p.code for p in cured}
    assert one.predicted is not None
    assert one.predicted[0] >= max(p.low for p in cured) * 0.999
    assert one.predicted[1] <= 1 / max(1 - sum(1 - 1 / p.high for p in cured), 1e-9) * 1.001


def test_slower_is_said_as_slower(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a.json"), made(tmp_path / "b.json", data_us=40_000.0)
    found = api.compare(a, b)
    assert "slower" in found.headline and "data-wait" in found.headline and "more" in found.headline
    assert found.ranks[0].speedup is not None and found.ranks[0].speedup < 0.3


def test_what_cannot_be_compared_is_not(tmp_path: Path) -> None:
    """Without steps there is no speed-up, however different the captures."""
    loose = [e for e in simulate(steps=5).events if "ProfilerStep" not in e["name"]]
    found = api.compare(made(tmp_path / "a.json"), write(tmp_path / "b.json", loose))
    (one,) = found.ranks
    assert (one.basis, one.speedup, one.low) == ("capture", None, None)
    assert any("whole captures" in note for note in one.notes)
    holds(one)


def test_a_step_without_replay_is_compared_as_recorded(tmp_path: Path) -> None:
    deaf = [e for e in simulate(steps=5).events if e["cat"] != "cuda_runtime"]
    two = write(tmp_path / "b.json", deaf)
    one = compare_ranks(rank_of(made(tmp_path / "a.json", data_us=9000.0)), rank_of(two))
    assert one is not None and not rank_of(two).replay.get("unprofiled_step_ns")
    assert one.basis == "recorded" and any("as recorded" in note for note in one.notes)
    holds(one)


def test_kernels_come_and_go_and_a_short_list_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(names: str) -> list[dict[str, Any]]:
        return [kernel(f"fused_{n}", 100 * k, 60 - k, corr=k + 1) for k, n in enumerate(names)]

    a, b = write(tmp_path / "a.json", rows("abc")), write(tmp_path / "b.json", rows("abd"))
    one = compare_ranks(rank_of(a), rank_of(b))
    assert one is not None
    assert {r.name: r.presence for r in one.kernels} == {
        "fused_a": "both", "fused_b": "both", "fused_c": "gone", "fused_d": "new",
    }  # fmt: skip
    monkeypatch.setattr(step_work, "ROWS", 2)
    short = compare_ranks(rank_of(a), rank_of(b))
    assert short is not None
    holds(short)
    assert {r.name: r.presence for r in short.kernels} == {
        "fused_a": "both", "fused_b": "both", REST: "both",
    }  # fmt: skip
    half = compare_ranks(rank_of(a), RankTrace(budget=rank_of(b).budget, work=one and rank_of(a).work))
    assert half is not None


@pytest.mark.parametrize(("gpus", "by"), [(("H200", "H200"), "kernel"), (("H200", "MI300X"), "family")])
def test_without_operators_two_gpus_have_families_in_common(
    tmp_path: Path, gpus: tuple[str, str], by: str
) -> None:
    names = ("nvjet_tst_128x256_64x4_v_bz_TNT", "Cijk_Ailk_Bljk_BBS_BH_MT64")
    paths = [
        write(
            tmp_path / f"{k}.json",
            [kernel(names[k * (by == "family")], 0, 50, corr=1)],
            deviceProperties=[{"id": 0, "name": gpu}],
        )
        for k, gpu in enumerate(gpus)
    ]
    one = compare_ranks(*map(rank_of, paths))
    assert one is not None and one.work_by == by
    assert [row.presence for row in one.work] == ["both"]
    assert any("different GPUs" in note for note in one.notes) == (by == "family")


def test_with_operators_two_gpus_have_those_in_common(tmp_path: Path) -> None:
    def rows(name: str) -> list[dict[str, Any]]:
        return [
            event("cpu_op", "aten::linear", 0, 50),
            event("cuda_runtime", "cudaLaunchKernel", 10, 4, correlation=1),
            kernel(name, 100, 50, corr=1),
        ]

    one = compare_ranks(
        rank_of(write(tmp_path / "a.json", rows("nvjet_x"))),
        rank_of(write(tmp_path / "b.json", rows("Cijk_y"))),
    )
    assert one is not None and one.work_by == "operator"
    (row,) = one.work
    assert (row.name, row.presence, row.a_kernels, row.b_kernels) == (
        "aten::linear", "both", ("nvjet_x",), ("Cijk_y",),
    )  # fmt: skip


# -- the verb ---------------------------------------------------------------------------------------------


def test_cases_and_results_compare_as_their_traces_do(run_cli, tmp_path: Path) -> None:
    made(tmp_path / "a.json", data_us=40_000.0)
    made(tmp_path / "b.json")
    for name in "ab":
        done = run_cli("trace", f"{name}.json", "--save", f"{name}.case", "-o", f"{name}.result.json")
        assert done.code == 0, done.err
    said = [
        json.loads(run_cli("compare", one, two, "--format", "json").out)
        for one, two in (("a.json", "b.json"), ("a.case", "b.case"), ("a.result.json", "b.case"))
    ]
    assert said[0]["ranks"] == said[1]["ranks"] == said[2]["ranks"]
    assert said[0]["schema"] == 1
    assert list(said[0]) == list(Comparison.__struct_fields__)
    assert set(said[0]["ranks"][0]) == set(RankComparison.__struct_fields__)


def test_each_look_says_the_same(run_cli, tmp_path: Path) -> None:
    made(tmp_path / "a.json", data_us=40_000.0)
    made(tmp_path / "b.json")
    result = run_cli(
        "compare", "a.json", "b.json", "-o", "c.html", "-o", "c.md", "-o", "c.txt", "-o", "c.json"
    )
    assert result.code == 0, result.err
    page, text = (tmp_path / "c.html").read_text(), (tmp_path / "c.txt").read_text()
    for look in (result.out, page, (tmp_path / "c.md").read_text(), text):
        assert "data-wait" in look and "as predicted" in look and "T110" in look
    assert "<script" not in page and page.count("<svg") == 1
    assert max(map(len, result.out.splitlines())) <= 80


def test_foreign_names_stay_text(run_cli, tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>|`x`\x1b[31m"
    rows = [kernel(bad, 0, 50, corr=1), kernel("AKIAIOSFODNN7EXAMPLE", 60, 50, corr=2)]
    write(tmp_path / "a.json", rows)
    write(tmp_path / "b.json", [kernel("fine", 0, 90, corr=1)])
    result = run_cli("compare", "a.json", "b.json", "-o", "c.html", "-o", "c.md", "-o", "c.json")
    assert result.code == 0, result.err
    assert "<script" not in (tmp_path / "c.html").read_text()
    assert "\x1b" not in result.out + (tmp_path / "c.md").read_text()
    assert all(
        "AKIAIOSFODNN7EXAMPLE" not in (tmp_path / f"c.{s}").read_text() for s in ("html", "md", "json")
    )


@pytest.mark.parametrize("content", ["", "{}", '{"schema": 1}', '{"schema": 99}', "no json"])
def test_what_is_no_trace_is_said(run_cli, tmp_path: Path, content: str) -> None:
    made(tmp_path / "a.json")
    (tmp_path / "b.json").write_text(content)
    result = run_cli("compare", "a.json", "b.json")
    assert result.code == 2 and result.err.startswith("error:") and "fault of wellfed" not in result.err


def test_ranks_are_matched_by_number(tmp_path: Path) -> None:
    folders = []
    for name, ranks in (("a", (0, 1, 2)), ("b", (1, 2, 3))):
        folder = tmp_path / name
        folder.mkdir()
        folders.append(folder)
        for r in ranks:
            run = simulate(steps=4, data_us=3000.0 * r).events
            write(folder / f"r{r}.json", run, distributedInfo={"rank": r, "world_size": 4})
    found = api.compare(*folders)
    assert [one.rank for one in found.ranks] == [1, 2]
    assert ([name[:6] for name in found.only_a], [name[:6] for name in found.only_b]) == (
        ["rank 0"],
        ["rank 3"],
    )
    one = shown.shown(found.ranks)
    assert one is not None and one.rank == 2, "the slowest one, which the others wait for"


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("a", "b", "low"),
    [
        ("h200/data_starved.json.gz", "h200/data_starved.cured.json.gz", 3.0),
        ("kineto/resnet50_workers0.pt.trace.json.gz", "kineto/resnet50_workers4.pt.trace.json.gz", 1.1),
    ],
)
def test_recorded_cures(corpus: Path, a: str, b: str, low: float) -> None:
    one = api.compare(corpus / "traces" / a, corpus / "traces" / b).ranks[0]
    holds(one)
    assert next(p for p in one.promises if p.code == "T110").state == "cured"
    assert one.speedup is not None and one.speedup > low and one.predicted is not None
    assert one.predicted[0] <= one.speedup <= one.predicted[1]
    assert one.held == ("within" if one.low is not None and one.low > 1 else "open")
