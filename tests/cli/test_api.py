"""The library: one sentence on top, cases saved and loaded, errors in words."""

import importlib
from pathlib import Path

import pytest

import wellfed
from wellfed import api
from wellfed.model import Case, RankTrace, Verdict, WellfedError
from wellfed.model.base import replace

CHECK_ROOM = importlib.import_module("wellfed.check")

DATA_WAIT = Verdict(
    code="T110",
    name="data-wait",
    verdict="finding",
    severity="error",
    message="the loader keeps the GPU waiting",
)
HOST = Verdict(
    code="CPU07", name="governor", verdict="finding", severity="warning", message="the governor saves power"
)
PASS = Verdict(code="CPU08", name="boost", verdict="pass")
BLIND = Verdict(code="GPU24", name="x", verdict="not-judged", reason="no-fact")


def test_check_is_the_function_whatever_was_imported() -> None:
    from wellfed.check import manual

    assert callable(wellfed.check) and wellfed.check is api.check
    assert manual is CHECK_ROOM.manual


def test_a_case_is_saved_redacted_and_loads_again(tmp_path: Path) -> None:
    case = Case(made_by="check 0", verdicts=(replace(HOST, message="see /home/marguerite/x"),))
    public = wellfed.save(case, tmp_path / "x.case")
    assert wellfed.load(tmp_path / "x.case") == public
    assert public.verdicts[0].message == "see /home/user-1/x"
    assert wellfed.save(case, tmp_path / "y.case", redact=False) == case == wellfed.load(tmp_path / "y.case")


@pytest.mark.parametrize(
    ("content", "says"), [(None, "can't read"), (b"", "not a case file"), (b"{", "not a case file")]
)
def test_what_is_no_case_is_refused_in_words(tmp_path: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / "x.case").write_bytes(content)
    with pytest.raises(wellfed.WellfedError, match=says) as error:
        wellfed.load(tmp_path / "x.case")
    assert error.value.hint


def test_this_machine_can_be_looked_at_and_judged() -> None:
    case = wellfed.check()
    assert case.machine is not None and case.machine.cpu.logical
    assert case.made_by.startswith("check ")
    assert sum(case.counts().values()) == len(case.verdicts) > 10


def test_ignored_findings_are_set_aside_with_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CHECK_ROOM, "judge_machine", lambda *_, **__: (HOST, PASS))
    case = wellfed.check(ignore={"CPU07": "agreed"})
    assert case.verdicts == (PASS,)
    assert [(v.code, v.message) for v in case.ignored] == [("CPU07", "agreed")]


def test_an_unknown_intent_names_the_known_ones() -> None:
    with pytest.raises(WellfedError, match="intent"):
        wellfed.check(intent="knitting")


def test_a_host_that_is_not_there_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(WellfedError):
        wellfed.inspect(tmp_path / "none.tar")


def test_the_demo_brings_its_own_host_and_trace() -> None:
    with pytest.raises(WellfedError, match="brings its own"):
        wellfed.doctor(demo=True, host="box.tar")


def test_doctor_puts_all_of_it_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from wellfed import bench

    read = Case(ranks=(RankTrace(rank=0),), verdicts=(DATA_WAIT,))
    said: list[str] = []
    monkeypatch.setattr(api, "trace", lambda paths, **_: read if list(paths) == ["t.json"] else None)
    monkeypatch.setattr(
        bench, "run_benchmarks", lambda machine, **_: bench.Measured(skipped={"x": "no disk"})
    )
    monkeypatch.setattr(CHECK_ROOM, "judge_machine", lambda *_, **__: (HOST, BLIND))
    case = wellfed.doctor(traces=["t.json"], progress=said.append)
    assert [v.code for v in case.verdicts] == ["T110", "CPU07", "GPU24"]
    assert case.ranks == read.ranks
    assert case.machine is not None and case.machine.gaps["ceilings[x]"] == "no disk"
    assert case.headline is not None and case.headline.text.startswith("the loader keeps")
    assert said[0] == "reading traces"


def test_a_recorded_host_is_never_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from wellfed import bench
    from wellfed.host import open_host, record

    record(open_host(None), tmp_path / "box.tar")
    monkeypatch.setattr(bench, "run_benchmarks", lambda *_, **__: pytest.fail("measured"))
    case = wellfed.doctor(tmp_path / "box.tar")
    assert case.ceilings == () and case.made_by.startswith("doctor ")
