"""The main job: one command, a headline, a report and a case in the working folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import wellfed

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "src" / "wellfed" / "demo" / "trace.json.gz"


def listing() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


@pytest.fixture
def doctor(run_cli):
    """`wellfed doctor` on the shipped trace, without measuring."""
    return lambda *args: run_cli("doctor", "--no-measure", "--trace", TRACE, *args)


def test_the_report_and_the_case_are_written_and_named(doctor) -> None:
    result = doctor()
    assert result.code == 0
    assert result.err == "wrote report.html\nwrote wellfed.case\n"
    case = wellfed.load("wellfed.case")
    assert case.redacted and case.headline is not None
    assert case.ranks and case.machine is not None and case.verdicts
    assert case.headline.text.split()[0] in Path("report.html").read_text()


def test_a_report_of_ours_is_written_anew(doctor) -> None:
    doctor()
    doctor()
    assert listing() == ["report.html", "wellfed.case"]


def test_files_that_are_not_ours_are_left_alone(doctor) -> None:
    Path("report.html").write_text("<title>Annual report</title>")
    Path("wellfed.case").write_text("a case of wine")
    assert doctor().err == "wrote report-2.html\nwrote wellfed-2.case\n"
    doctor()
    assert listing() == ["report-2.html", "report.html", "wellfed-2.case", "wellfed.case"]
    assert Path("report.html").read_text() == "<title>Annual report</title>"
    assert Path("wellfed.case").read_text() == "a case of wine"


@pytest.mark.parametrize(
    ("args", "files"),
    [
        (["--no-report"], []),
        (["--format", "json"], []),
        (["--format", "md"], []),
        (["-o", "mine.html"], ["mine.html", "wellfed.case"]),
        (["-o", "mine.md"], ["mine.md", "report.html", "wellfed.case"]),
        (["--save", "mine.case"], ["mine.case", "report.html"]),
    ],
)
def test_what_the_user_names_takes_the_place_of_ours(doctor, args: list[str], files: list[str]) -> None:
    assert doctor(*args).code == 0
    assert listing() == files


def test_a_folder_that_cannot_be_written_costs_one_line(doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: False if path == "." else access(path, mode))
    result = doctor()
    assert result.code == 0 and result.out
    assert result.err.startswith("no report written: the working folder is not writable")
    assert listing() == []


def test_json_has_all_parts(doctor) -> None:
    document = json.loads(doctor("--format", "json").out)
    assert document["schema"] == 1
    assert {"headline", "machine", "ranks", "verdicts", "counts", "ceilings"} <= document.keys()
    assert document["headline"]["unit"] == "ms/step"
    assert any(verdict["code"].startswith("T") for verdict in document["verdicts"])
    assert any(not verdict["code"].startswith("T") for verdict in document["verdicts"])


def test_a_price_is_the_users_own(doctor) -> None:
    verdicts = json.loads(doctor("--format", "json", "--price", "1000").out)["verdicts"]
    costs = [v["cost"]["price_usd_gpu_h"] for v in verdicts if v.get("cost") and v["code"].startswith("T1")]
    assert costs and set(costs) == {1000.0}


def test_a_price_may_stand_in_the_configuration(doctor) -> None:
    Path("wellfed.toml").write_text("price = 500\n")
    verdicts = json.loads(doctor("--format", "json").out)["verdicts"]
    assert {v["cost"]["price_usd_gpu_h"] for v in verdicts if v["code"] == "T110"} == {500.0}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--demo", "--host", "box.tar"], "the demo brings its own host and trace"),
        (["--trace", "none.json"], "no such file: none.json"),
        (["--host", "none.tar"], "none.tar"),
        (["--step-ms", "0"], "--step-ms"),
        (["--price", "-1"], "--price"),
        (["--price", "much"], "not a valid float"),
    ],
)
def test_what_cannot_be_is_said_before_any_work(run_cli, args: list[str], says: str) -> None:
    result = run_cli("doctor", *args)
    assert (result.code, result.out) == (2, "")
    assert says in result.err and "hint: " in result.err
    assert listing() == []


def test_the_demo_is_the_whole_thing(run_cli) -> None:
    result = run_cli("doctor", "--demo")
    assert result.code == 0
    case = wellfed.load("wellfed.case")
    assert case.machine is not None and case.machine.gpus, "the sample machine has a GPU"
    assert case.ranks and case.headline is not None and case.headline.unit == "ms/step"
    assert case.ceilings == (), "what this machine can do says nothing of the recorded one"
    assert Path("report.html").stat().st_size > 10_000


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(doctor, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = doctor("--no-report").out.splitlines()
    assert max(map(len, lines)) <= max(columns, 60)
    assert len(lines) > 20


def test_nobody_listening_costs_no_file(tmp_path: Path) -> None:
    """`wellfed doctor 2>&1 | head`: the reader of both streams goes away, the files are written all the same."""
    command = [sys.executable, "-m", "wellfed", "doctor", "--demo", "--no-measure"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.wait(60)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "wellfed.case"]
