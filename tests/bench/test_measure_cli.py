"""`wellfed measure` as a user sees it, with next to no time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wellfed.model import Ceiling, decode_case

RunCli = Callable[..., Any]
SHORT = ("--only", "pipe-same-cpu", "--budget", "0.05")


def test_json_has_the_promised_keys(run_cli: RunCli) -> None:
    result = run_cli("measure", "--quick", *SHORT, "--format", "json")
    assert result.code == 0 and result.err == "", "no progress where nobody watches"
    said = json.loads(result.out)
    assert set(said) == {"schema", "ceilings"} and said["schema"] == 1
    (ceiling,) = said["ceilings"]
    assert set(ceiling) == set(Ceiling.__struct_fields__)
    assert ceiling["id"] == "pipe-same-cpu" and ceiling["unit"] == "us" and ceiling["n"] > 0


def test_text_says_what_was_measured(run_cli: RunCli) -> None:
    result = run_cli("measure", *SHORT)
    assert result.code == 0
    assert "1 ceiling measured" in result.out
    assert "pipe round trip, one CPU" in result.out and " us" in result.out


def test_the_case_keeps_why_something_was_not_measured(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wellfed.bench.storage import files as storage

    monkeypatch.setattr(storage, "file_system", lambda _: "tmpfs")
    saved = tmp_path / "my.case"
    result = run_cli("measure", *SHORT, "--only", "storage-read-seq", "--dir", tmp_path, "--save", saved)
    assert result.code == 0
    assert "not measured: storage-read-seq: tmpfs is memory, not storage" in result.err
    case = decode_case(saved.read_bytes())
    assert [ceiling.id for ceiling in case.ceilings] == ["pipe-same-cpu"]
    assert case.machine is not None
    assert "tmpfs is memory" in case.machine.gaps["ceilings[storage-read-seq]"]


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("--only", "nope"), "no ceiling 'nope'"),
        (("--budget", "0"), "0"),
        (("--budget", "much"), "much"),
        (("--dir", "missing"), "missing is no folder"),
        (("--dir", "/dev/null"), "/dev/null is no folder"),
    ],
)
def test_bad_usage(run_cli: RunCli, args: tuple[str, ...], complaint: str) -> None:
    result = run_cli("measure", *args)
    assert result.code == 2 and result.out == ""
    assert complaint in result.err and "hint:" in result.err


def test_nothing_measured_is_an_error(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    from wellfed.bench.host import ping_pong

    monkeypatch.setattr(ping_pong, "needs", lambda _: "not here")
    result = run_cli("measure", *SHORT)
    assert result.code == 2
    assert "not measured: pipe-same-cpu: not here" in result.err
    assert "nothing could be measured" in result.err


def test_the_history_is_shown_and_compared(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WELLFED_HISTORY", str(tmp_path))
    assert run_cli("measure", "--last").code == 2, "nothing yet"
    assert run_cli("measure", *SHORT).code == 0
    (file,) = tmp_path.iterdir()
    long_ago = file.read_text().replace('"at":"2', '"at":"1')
    for field in ("best", "median", "p10", "p90"):
        long_ago = long_ago.replace(f'"{field}":', f'"{field}":9000')
    file.write_text(long_ago)
    again = run_cli("measure", *SHORT)
    assert "pipe-same-cpu: median -" in again.err and "no sample range in common" in again.err
    last = run_cli("measure", "--last", "--format", "json")
    assert [c["id"] for c in json.loads(last.out)["ceilings"]] == ["pipe-same-cpu"]


@pytest.mark.parametrize("shape", ["1,2", "0,1,1", "a,b,c", "1,2,3,4", "9999999,1,1"])
def test_a_shape_that_is_none_is_refused(run_cli: RunCli, shape: str) -> None:
    result = run_cli("measure", *SHORT, "--shape", shape)
    assert result.code == 2 and "M,N,K" in result.err
