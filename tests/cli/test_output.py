"""Where results go: stdout, files by suffix, the saved case; and what is said when they can't."""

import json
import os
import stat
import subprocess
import sys
import types
from pathlib import Path

import click
import pytest

from wellfed.cli import common
from wellfed.cli import main as front
from wellfed.cli.common import Output, emit, emit_value, fail_on_option, host_option, output_options
from wellfed.model import Case, Machine, Verdict, decode_case

CASE = Case(
    made_by="doctor 0",
    machine=Machine(hostname="krypton7"),
    verdicts=(
        Verdict(
            code="CPU01", name="slow-clock", verdict="finding", severity="warning", message="krypton7 is slow"
        ),
        Verdict(
            code="CPU02", name="no-boost", verdict="not-judged", reason="denied", message="no permission"
        ),
    ),
)


@pytest.fixture(autouse=True)
def verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two verbs that only emit: `try` a case, `row` a plain value."""

    @click.command("try")
    @host_option
    @fail_on_option("never")
    @output_options("text", "json", "md", "html")
    def try_(host: str | None, fail_on: str, output: Output) -> None:
        emit(CASE, output, kind="doctor", fail_on=fail_on)

    @click.command("row")
    @click.option("--public", is_flag=True)
    @output_options()
    def row(public: bool, output: Output) -> None:
        emit_value(
            {"path": "/home/marguerite/x"},
            output,
            text=lambda width, colour: f"{width} {colour}",
            public=public,
        )

    for command in (try_, row):
        module = types.ModuleType(f"wellfed.cli.{command.name}")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(front.VERBS, str(command.name), "")


def test_text_is_for_the_person_at_the_machine_and_keeps_names(run_cli) -> None:
    result = run_cli("try")
    assert (result.code, result.err) == (0, "")
    assert "krypton7 is slow" in result.out


def test_json_is_the_same_on_stdout_and_in_a_file_and_redacted(run_cli) -> None:
    result = run_cli("try", "--format", "json", "-o", "x.json")
    assert result.out == Path("x.json").read_text()
    assert json.loads(result.out)["schema"] == 1
    assert "krypton7" not in result.out and "host-1 is slow" in result.out
    assert result.err == "wrote x.json\n"


def test_each_suffix_has_its_format(run_cli) -> None:
    names = ["a.json", "b.md", "c.HTML", "d.txt", "e.case"]
    result = run_cli("try", *(arg for name in names for arg in ("-o", name)), "--save", "kept")
    assert result.code == 0
    heads = [Path(name).read_bytes()[:15] for name in names]
    assert heads[0].startswith(b"{") and heads[1].startswith(b"#") and heads[2] == b"<!DOCTYPE html>"
    assert heads[3].lower().startswith(b"host-1 is slow") and heads[4].startswith(b"\x1f\x8b")
    assert decode_case(Path("kept").read_bytes()).redacted
    for name in (*names, "kept"):
        assert b"krypton7" not in Path(name).read_bytes(), name
    assert "krypton7" not in decode_case(Path("e.case").read_bytes()).__repr__()


def test_names_are_kept_when_asked(run_cli) -> None:
    run_cli("try", "--no-redact", "--save", "x.case", "-o", "x.md")
    assert decode_case(Path("x.case").read_bytes()) == CASE
    assert "krypton7" in Path("x.md").read_text()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["-o", "x.pdf"], "x.pdf: no format for suffix '.pdf'; known: .json .md .html .txt .case"),
        (["-o", "report"], "report: no format for suffix ''"),
        (["-o", "no/where/x.json"], "does not exist"),
        (["-o", "x.json", "-o", "./x.json"], "x.json is named twice as an output"),
        (["-o", "x.case", "--save", "x.case"], "x.case is named twice as an output"),
        (["-o", "folder.md"], "folder.md is a folder; name a file in it"),
        (["--save", "x.json"], "--save writes a case; for x.json use -o"),
        (["--format", "pdf"], "'pdf' is not one of"),
        (["--fail-on", "bad"], "'bad' is not one of"),
    ],
)
def test_a_target_that_cannot_be_is_wrong_usage_and_nothing_is_written(
    run_cli, tmp_path: Path, args: list[str], says: str
) -> None:
    (tmp_path / "folder.md").mkdir()
    result = run_cli("try", *args)
    assert (result.code, result.out) == (2, "")
    assert says in result.err and "hint: wellfed try --help" in result.err
    assert [p.name for p in tmp_path.iterdir()] == ["folder.md"]


def test_a_folder_without_permission_is_wrong_usage(run_cli, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "no permission to write in" in run_cli("try", "-o", "x.json").err


def test_a_disk_that_fills_up_loses_nothing_else(run_cli, monkeypatch) -> None:
    write = common.write_file

    def full(path: Path, data: bytes) -> None:
        if path.suffix == ".md":
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(common, "write_file", full)
    result = run_cli("try", "-o", "x.md", "-o", "x.json")
    assert result.code == 2
    assert "krypton7 is slow" in result.out and Path("x.json").exists()
    assert "error: could not write x.md: No space left on device\nhint: " in result.err


@pytest.mark.parametrize(("level", "code"), [("never", 0), ("error", 0), ("warning", 1), ("info", 1)])
def test_fail_on(run_cli, level: str, code: int) -> None:
    assert run_cli("try", "--fail-on", level).code == code


def test_a_plain_value_is_redacted_unless_public(run_cli) -> None:
    assert json.loads(run_cli("row", "--format", "json").out) == {"path": "/home/user-1/x"}
    assert json.loads(run_cli("row", "--format", "json", "--public").out) == {"path": "/home/marguerite/x"}
    assert run_cli("row").out == "80 False\n"


def test_a_plain_value_has_no_page(run_cli) -> None:
    result = run_cli("row", "-o", "x.html")
    assert result.code == 2 and "no format for suffix '.html'; known: .json .txt" in result.err
    result = run_cli("inspect", "cpu", "-o", "x.html")  # its page is of the whole machine
    assert result.code == 2 and "writes .json and .txt, not x.html" in result.err


@pytest.mark.parametrize(
    ("columns", "width"), [("20", 60), ("60", 60), ("80", 80), ("500", 120), ("none", 80)]
)
def test_the_width_is_that_of_the_terminal_within_reason(
    run_cli, monkeypatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert common.width() == width


@pytest.mark.parametrize(
    ("tty", "env", "wanted"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    monkeypatch, tty: bool, env: dict[str, str], wanted: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty)
    assert common.colour() is wanted


def test_a_terminal_without_unicode_gets_question_marks_not_a_crash() -> None:
    program = "from wellfed.cli import common; common._print('1 \u00b5s')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.stdout == b"1 ?s\n"


# -- files -------------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        common.write_file(tmp_path / "x", b"1")
    finally:
        os.umask(before)
    assert mode(tmp_path / "x") == 0o666 & ~umask


def test_a_file_keeps_its_mode_and_its_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"0")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    common.write_file(tmp_path / "link", b"1")
    assert (tmp_path / "link").is_symlink()
    assert ((tmp_path / "real").read_bytes(), mode(tmp_path / "real")) == (b"1", 0o640)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "x").write_bytes(b"old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "I/O error")))
    with pytest.raises(OSError, match="I/O"):
        common.write_file(tmp_path / "x", b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x", b"old")]


def test_a_device_is_written_in_place() -> None:
    common.check_targets([Path(os.devnull)])
    common.write_file(Path(os.devnull), b"1")
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("verb", ["explain", "catalog"])
def test_a_verb_without_a_case_offers_no_case(run_cli, verb: str) -> None:
    result = run_cli(verb, "cpu07", "--save", "x.case")
    assert result.code == 2 and "--save" in result.err
    assert "Also write FILE, by suffix: .json .txt;" in " ".join(run_cli(verb, "--help").out.split())


@pytest.mark.parametrize(
    ("args", "known"),
    [
        (("trace", "t.json", "-o", "x.pdf"), ".json .md .html .txt .case .perfetto.json.gz"),
        (("compare", "a.case", "b.case", "-o", "x.case"), ".json .md .html .txt"),
        (("catalog", "-o", "x.html"), ".json .txt"),
    ],
)
def test_a_suffix_that_the_verb_cannot_write_is_told_with_those_that_it_can(
    run_cli, tmp_path: Path, args: tuple[str, ...], known: str
) -> None:
    result = run_cli(*args)
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[0].endswith(f"; known: {known}")
    assert list(tmp_path.iterdir()) == []
