"""`wellfed tune export` from the command line: of the user's own list, of a recorded machine, into files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "apply"))

import fake_host as m

from wellfed import api
from wellfed.apply.journal import Journal
from wellfed.apply.root import Root
from wellfed.cli import tune_export
from wellfed.cli.main import run
from wellfed.model import Change, WellfedError
from wellfed.model.change import Plan, Planned, Skipped
from wellfed.report import exports

LIST = """
[[change]]
kind = "thp"
target = "enabled"
new = "always"
code = "T-1"
why = "ticket 1"
[[change]]
kind = "sysctl"
target = "vm.swappiness"
new = "10"
[[change]]
kind = "dropin"
target = "/etc/systemd/system/slurmd.service.d/90-wellfed.conf"
new = "[Service]\\nLimitMEMLOCK=infinity\\n"
[[change]]
kind = "sysctl"
target = "vm.nothing"
new = "1"
"""


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files in place of this machine, in a folder with `list.toml`."""
    root = tmp_path / "root"
    m.make(root)
    (root / "etc").mkdir()
    monkeypatch.setattr(api, "_journal", lambda folder: Journal(Root(root), folder))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.toml").write_text(LIST)
    return root


def shot(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_forms_are_those_of_the_exports() -> None:
    assert tune_export.FORMS == exports.FORMS
    for form in tune_export.FORMS:
        assert f"\n    {form} " in (
            tune_export.command.__doc__ or tune_export.command.help or ""
        ) or form in (tune_export.command.help or "")


@pytest.mark.parametrize("form", tune_export.FORMS)
def test_a_list_is_exported_and_nothing_is_changed(
    top: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = shot(top)
    assert run(["tune", "export", form, "--changes", "list.toml"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(("# ", "# ---- ")) and "told in comments" in err
    assert "vm.nothing: 1: " in out, "what is not there is told"
    assert shot(top) == before


def test_sysctls_go_into_a_file(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "export", "sysctl", "--changes", "list.toml", "-o", "90-wellfed.conf"]) == 0
    text = Path("90-wellfed.conf").read_text()
    assert "\n# user: sysctl vm.swappiness: 60 -> 10\nvm.swappiness = 10\n" in text
    assert "# - T-1, user: thp enabled: madvise -> always: " in text
    assert capsys.readouterr().out == ""


def test_several_files_need_a_folder(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "export", "systemd", "--changes", "list.toml", "-o", "x.service"]) == 2
    assert "-o ." in capsys.readouterr().err and not Path("x.service").exists()
    Path("out").mkdir()
    assert run(["tune", "export", "systemd", "--changes", "list.toml", "-o", "out"]) == 0
    assert [str(path.relative_to("out")) for path in sorted(Path("out").rglob("*.*")) if path.is_file()] == [
        "etc/systemd/system/slurmd.service.d/90-wellfed.conf",
        "etc/systemd/system/wellfed-tune.service",
    ]


def test_errors_are_those_of_the_plan(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "export", "sysctl", "--changes", "gone.toml"]) == 2
    assert run(["tune", "export", "nothing"]) == 2
    assert run(["tune", "export", "sysctl", "--changes", "list.toml", "-o", "no/such/file"]) == 2
    assert capsys.readouterr().out == ""
    with pytest.raises(WellfedError, match="no form"):
        api.tune_export("nothing")


def test_a_recorded_machine_gets_kernel_arguments_of_its_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    box = Path(__file__).resolve().parents[1] / "hosts" / "h200-vm.tar"
    assert run(["tune", "export", "cmdline", "--host", str(box)]) == 0
    line = api.inspect(box).machine.kernel.cmdline  # type: ignore[union-attr]
    assert line is not None
    assert f"# now: {' '.join(line)}" in capsys.readouterr().out


def one(
    target: str, new: str, *, state: str = "change", chosen: bool = True, asked: str = "policy*"
) -> Planned:
    change = Change(code="CPU01", kind="governor", target=target, old="powersave", new=new, restore="")
    return Planned(
        change=change,
        asked=asked,
        state=state,
        consent="auto",
        chosen=chosen,
        flag=None if chosen else "--allow CPU01",
    )  # type: ignore[arg-type]


def kept(*ones: Planned) -> tuple[list[tuple[str, str]], list[str]]:
    changes, left = exports.of_plan(Plan(changes=ones, skipped=(Skipped(code="X01", reason="passes here"),)))
    assert left.pop() == ("X01", "passes here")
    return [(change.target, change.new) for change in changes], [each.reason for each in left]


def test_a_pattern_stays_one_where_all_it_stands_for_gets_one_value() -> None:
    assert kept(one("policy0", "a"), one("policy1", "a")) == ([("policy*", "a")], [])
    assert kept(one("policy0", "a"), one("policy1", "a", state="already")) == ([("policy*", "a")], [])
    assert kept(one("policy0", "a"), one("policy1", "b")) == ([("policy0", "a"), ("policy1", "b")], [])


def test_what_is_not_there_or_not_agreed_to_is_left_with_the_reason() -> None:
    assert kept(one("policy0", "a"), one("policy1", "a", state="missing")) == (
        [("policy0", "a")],
        ["it is missing here"],
    )
    targets, reasons = kept(one("policy0", "a", chosen=False))
    assert targets == [] and reasons[0].endswith("--allow CPU01")


def test_help_is_quick() -> None:
    code = "import sys; from wellfed.cli import tune_export; sys.exit('wellfed.report' in sys.modules or 'msgspec' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)


def test_the_log_is_a_page_too(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "apply", "--only", "T-1", "--changes", "list.toml"]) in (0, 1)
    (top / m.THP / "enabled").write_text("always madvise [never]\n")
    capsys.readouterr()
    for form in ("md", "html"):
        assert run(["tune", "log", "--format", form]) == 0
        out = capsys.readouterr().out
        assert "it reads never now" in out and "T-1" in out and "every chain is whole" in out
    assert run(["tune", "log", "--format", "json", "-o", "page.html", "-o", "page.md"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["schema", "folder", "transactions"]
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>") and Path(
        "page.md"
    ).read_text().startswith("### ")


def test_a_damaged_log_is_a_page_and_exit_code_1(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["tune", "apply", "--only", "T-1", "--changes", "list.toml"])
    (path,) = (top / "var/lib/wellfed/journal").glob("*.jsonl")
    first, second, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, second.replace(b"enabled", b"defrag_"), *rest]))
    capsys.readouterr()
    assert run(["tune", "log", "--format", "html"]) == 1
    assert "1 chain broken" in capsys.readouterr().out
