"""Hostile names, numbers, files and streams: one clear message with a hint and exit code 2, no crash, no waiting."""

import math
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wellfed
from wellfed.cli.config import read_config
from wellfed.cli.main import MAX_COMPLAINT, harmless
from wellfed.model import WellfedError
from wellfed.report import draw

ROOT = Path(__file__).resolve().parents[2]
BOX = ROOT / "tests" / "hosts" / "h200-vm.tar"
TRACE = ROOT / "src" / "wellfed" / "demo" / "trace.json.gz"
LONG = "x" * 5000


def complains(result) -> bool:
    """One message with a hint, and no fault of ours."""
    lines = result.err.splitlines()
    ours = "a fault of wellfed" in result.err or "Traceback" in result.err
    return result.code == 2 and not ours and len(lines) == 2 and lines[1].startswith("hint: ")


# -- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", LONG, "none", "a\nb", "\x1b[31mred", "\u202egnp.rat", "nul\0.tar", "pipe", "loop"]
)
def test_a_host_that_is_none(run_cli, name: str) -> None:
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    result = run_cli("check", "--host", name)
    assert complains(result)
    assert result.err.isprintable() or result.err.replace("\n", "").isprintable()
    assert len(result.err) < 2 * MAX_COMPLAINT


@pytest.mark.parametrize("name", [LONG + ".json", "loop.json", "folder", "none/x.json", "a.json/x.json"])
def test_a_target_that_cannot_be_written_stops_the_verb(run_cli, name: str) -> None:
    Path("folder").mkdir()
    Path("a.json").touch()
    Path("loop.json").symlink_to("loop.json")
    result = run_cli("check", "--host", BOX, "-o", name)
    assert complains(result)
    assert result.out == ""


def test_the_longest_name_can_be_written(run_cli) -> None:
    name = "n" * 250 + ".json"
    assert run_cli("check", "--host", BOX, "--fail-on", "never", "-o", name).code == 0
    assert Path(name).stat().st_size > 1000
    box = "n" * 251 + ".tar"
    assert run_cli("inspect", "--host", BOX, "--record", box).code == 0


@given(st.text(max_size=3 * MAX_COMPLAINT))
def test_an_error_is_one_line_that_steers_no_terminal(text: str) -> None:
    shown = harmless(text)
    assert shown == "" or shown.isprintable()
    assert len(shown) <= 10 * MAX_COMPLAINT
    assert harmless("wellfed check: no file") == "wellfed check: no file"


# -- numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e308])
def test_no_result_is_worked_out_from_nonsense(value: float) -> None:
    for call in (
        lambda: wellfed.trace(TRACE, price=value),
        lambda: wellfed.trace(TRACE, step_ms=value),
        lambda: wellfed.doctor(demo=True, price=value),
        lambda: wellfed.measure(budget_s=value),
        lambda: wellfed.api.compare(TRACE, TRACE, price=value),
    ):
        with pytest.raises(WellfedError, match=r"is none: .* to ") as caught:
            call()
        assert caught.value.hint


@pytest.mark.parametrize("value", ["nan", "inf", "1e400", "-1", "", "2,5"])
def test_an_option_that_is_no_number(run_cli, value: str) -> None:
    assert complains(run_cli("trace", TRACE, "--price", value))
    assert complains(run_cli("trace", TRACE, "--step-ms", value))
    assert complains(run_cli("measure", "--budget", value))


# -- configuration ----------------------------------------------------------------------------------------

BAD_CONFIGS = {
    "cut": "intent = [",
    "not-utf8": b"\xff\xfe",
    "nul": b"a = 1\0",
    "deep-list": "a = " + "[" * 20_000,
    "deep-table": "a = " + "{a = " * 20_000,
    "deep-key": ".".join("a" * 50_000) + " = 1",
    "deep-header": "[" + ".".join("a" * 50_000) + "]",
    "long-number": "price = " + "9" * 5_000,
    "big-number": "price = 1" + "0" * 400,
    "infinite": "price = inf",
    "nan": "price = nan",
    "switch": "price = true",
    "unknown": "prise = 1",
    "escape": '"\\u001b[31m\\n" = 1',
    "huge": "#" + "x" * (300 << 10),
    "no-reason": '[ignore]\nCPU01 = "\\u200b "',
    "number-as-reason": "[ignore]\nCPU01 = 1",
    "list-of-codes": 'ignore = ["CPU01"]',
    "intent": 'intent = ["training"]',
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_configuration_that_is_wrong(run_cli, name: str) -> None:
    data = BAD_CONFIGS[name]
    Path("wellfed.toml").write_bytes(data if isinstance(data, bytes) else data.encode())
    result = run_cli("check", "--host", BOX)
    assert complains(result)
    assert "wellfed.toml" in result.err
    assert len(result.err) < 2 * MAX_COMPLAINT


@pytest.mark.parametrize(
    "data", ["x = [", "a = " + "[" * 20_000, ".".join("a" * 50_000) + " = 1", "#" * (2 << 20)]
)
def test_the_project_file_of_others_is_not_our_business(tmp_path: Path, data: str) -> None:
    (tmp_path / "pyproject.toml").write_text(data)
    assert read_config(tmp_path).source is None


@pytest.mark.parametrize("name", ["wellfed.toml", "pyproject.toml"])
def test_a_configuration_that_is_a_pipe_or_a_folder_is_none(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert read_config(tmp_path).source is None
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    assert read_config(tmp_path).source is None


def test_codes_that_no_check_has_are_told_in_few_lines(run_cli) -> None:
    Path("wellfed.toml").write_text("[ignore]\n" + "".join(f'X{n} = "why"\n' for n in range(5_000)))
    result = run_cli("check", "--host", BOX, "--fail-on", "never")
    assert result.code == 0
    assert len(result.err.splitlines()) < 20


def test_a_working_folder_that_is_gone(run_cli, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert run_cli("check", "--host", BOX, "--fail-on", "never").code == 0
    assert complains(run_cli("check", "--host", BOX, "-o", "x.json"))
    assert run_cli("check", "--host", BOX, "--fail-on", "never", "-o", tmp_path / "x.json").code == 0


# -- cases ------------------------------------------------------------------------------------------------


def test_a_case_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.case")
    for path in (tmp_path / "x.case", tmp_path, tmp_path / "none.case", tmp_path / LONG, "nul\0"):
        with pytest.raises(WellfedError) as caught:
            wellfed.load(path)
        assert caught.value.hint


# -- streams ----------------------------------------------------------------------------------------------


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """A command line of the shell, with `wellfed` for this interpreter's."""
    program = f'wellfed() {{ {shlex.quote(sys.executable)} -m wellfed "$@"; }}; '
    return subprocess.run(["bash", "-c", program + command], capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize(
    "verb", ["--help", "check --help", f"check --host {BOX}", f"check --host {BOX} --format json"]
)
def test_a_full_disk_behind_stdout_is_said(verb: str) -> None:
    done = shell(f"wellfed {verb} >/dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("error: could not write to stdout: ")
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_cost_no_file(tmp_path: Path, closed: str) -> None:
    done = shell(f"cd {tmp_path} && wellfed check --host {BOX} --fail-on never -o x.json {closed}")
    assert done.returncode == 0
    assert (tmp_path / "x.json").read_text().startswith("{")
    assert "Traceback" not in done.stderr and "fault" not in done.stderr
    assert shell(f"wellfed --help {closed}").returncode == 0
    assert shell(f"wellfed check --host none {closed}").returncode == 2


# -- drawing ----------------------------------------------------------------------------------------------


def test_too_few_addresses_cost_the_pictures_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64 << 30, resource.RLIM_INFINITY))
    pictures = draw.Pictures()
    assert pictures.svg({"mark": "point"}, label="x") is None
    assert "ulimit -v" in str(pictures.why)


def test_a_limit_of_addresses_leaves_the_report_whole(tmp_path: Path) -> None:
    done = shell(f"cd {tmp_path} && ulimit -v {16 << 20} && wellfed doctor --demo")
    assert done.returncode == 0, done.stderr
    assert "ulimit -v" in (tmp_path / "report.html").read_text()


def test_a_saved_trace_is_shown_again(run_cli, tmp_path: Path) -> None:
    saved = tmp_path / "my.case"
    first = run_cli("trace", TRACE, "--save", saved)
    assert run_cli("trace", saved).out == first.out
    assert "is shown as it is" in run_cli("trace", saved, "--rank", "0").err


def test_a_window_without_gpu_events_does_not_say_that_there_are_none(run_cli) -> None:
    out = run_cli("trace", TRACE, "--window", "10s:11s").out
    assert out.startswith("no GPU event in the window looked at")
