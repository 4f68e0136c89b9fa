"""`wellfed tune` from the command line: on a copy of the files, and on one knob of this kernel."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "apply"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "check"))

import fake_host as m
from host_cases import CASES, machine

from wellfed import api
from wellfed.apply import deadman
from wellfed.apply.journal import Journal, boot_seconds
from wellfed.apply.root import Root, with_sudo
from wellfed.check import judge_machine
from wellfed.model import Case
from wellfed.model.proof import Meter

SRC = Path(__file__).resolve().parents[2] / "src"
STAT = '[[change]]\nkind = "sysctl"\ntarget = "vm.stat_interval"\nnew = "{}"\n'
THREE = (
    STAT.format(7)
    + '[[change]]\nkind = "thp"\ntarget = "enabled"\nnew = "always"\ncode = "T-1"\nwhy = "ticket 1"\n'
    + '[[change]]\nkind = "hugepages"\ntarget = "2048kB"\nnew = "4"\n'
)
SICK = {
    "kernel": {"sysctls": {"vm.swappiness": "60", "vm.overcommit_memory": "2"}},
    "memory": {**CASES["MEM07"].bad["memory"], **CASES["MEM01"].bad["memory"]},
    "environment": CASES["ENV06"].bad["environment"],
}
"""Swappiness and huge pages can be set at once, overcommitting needs a new job, a variable is for people."""


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files in place of this machine, and a list of three changes, `three.toml`."""
    root = tmp_path / "root"
    m.make(root)
    (root / m.SYSCTL / "overcommit_memory").write_text("2\n")
    monkeypatch.setattr(
        api,
        "_journal",
        lambda folder: Journal(Root(root), None if folder is None else Path(folder).absolute()),
    )
    (tmp_path / "three.toml").write_text(THREE)
    return root


@pytest.fixture
def sick(top: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with findings."""
    seen = machine(SICK)
    monkeypatch.setattr(api, "check", lambda *_, **__: Case(machine=seen, verdicts=judge_machine(seen)))
    return top


def told(result: Any, code: int = 0) -> dict[str, Any]:
    assert result.code == code, result.err
    found: dict[str, Any] = json.loads(result.out)
    assert found["schema"] == 1
    return found


def rows(found: dict[str, Any], *keys: str, of: str = "changes") -> list[tuple[Any, ...]]:
    return [tuple(one[key] for key in keys) for one in found[of]]


# -- plan -------------------------------------------------------------------------------------------------


def test_the_plan_of_what_the_checks_find(run_cli, sick: Path) -> None:
    found = told(run_cli("tune", "plan", "--format", "json"))
    assert list(found) == ["schema", "changes", "instructions", "skipped", "origin", "intent", "notes"]
    assert sorted(rows(found, "code", "target", "old", "new", "state", "chosen", "flag")) == [
        ("MEM01", "enabled", "madvise", "madvise", "already", True, None),
        ("MEM07", "vm.swappiness", "60", "10", "change", True, None),
        ("MEM10", "vm.overcommit_memory", "2", "0", "change", False, "--allow MEM10"),
    ]
    assert [one["code"] for one in found["instructions"]] == ["ENV06"]
    assert m.text(Journal(Root(sick)), f"{m.SYSCTL}/swappiness") == "60"
    assert not (sick / "var").exists() and not (sick / "run").exists()


def test_keys_of_a_change_are_a_promise(run_cli, sick: Path) -> None:
    found = told(run_cli("tune", "plan", "--format", "json", "--only", "MEM07"))
    assert list(found["changes"][0]) == [
        "code", "kind", "target", "old", "new", "restore", "verify", "risk", "evidence", "why", "owner",
        "cuts_network", "proof", "asked", "state", "consent", "chosen", "flag", "reason", "write", "undo", "privilege",
    ]  # fmt: skip
    assert found["instructions"] == [] and list(told(run_cli("tune", "plan", "--format", "json"))["instructions"][0]) == [
        "code", "name", "text", "why", "restore", "risk", "evidence",
    ]  # fmt: skip


def test_the_plan_as_text_has_lines_to_paste(run_cli, sick: Path) -> None:
    result = run_cli("tune", "plan")
    assert result.code == 0 and max(map(len, result.out.splitlines())) <= 80
    for line in (
        "  MEM07 sysctl vm.swappiness: 60 -> 10",
        "    write sudo sysctl -w vm.swappiness=10",
        "    undo  sudo sysctl -w vm.swappiness=60",
        "    flag  wellfed tune apply --allow MEM10",
    ):
        assert line in result.out.splitlines()
    assert " ".join(result.out.split()).startswith(
        "Dry run, nothing is written: 1 setting would be changed, 1 only if asked for, 1 is so already, 1 instruction"
    )


def test_several_knobs_are_one_line_to_paste(run_cli, sick: Path, tmp_path: Path) -> None:
    for number in range(3):
        place = sick / f"sys/devices/system/cpu/cpufreq/policy{number}"
        place.mkdir(parents=True)
        (place / "scaling_governor").write_text("powersave\n")
    text = '[[change]]\nkind = "governor"\ntarget = "policy*"\nnew = "performance"\n'
    (tmp_path / "x.toml").write_text(text)
    out = run_cli("tune", "plan", "--changes", "x.toml").out
    assert "user governor policy* (3 knobs)" in out and "policy2: powersave -> performance" in out
    paths = " ".join(f"/sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor" for n in range(3))
    flat = " ".join(out.replace("\\\n", " ").split())
    assert f"write echo performance | sudo tee {paths} undo echo powersave | sudo tee {paths} needs" in flat
    done = told(run_cli("tune", "apply", "--changes", "x.toml", "--format", "json"))
    assert rows(done, "target") == [(f"policy{n}",) for n in range(3)]


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_no_line_is_too_long_and_no_number_is_cut(
    columns: str, run_cli, sick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sick / m.SYSCTL / "swappiness").write_text("\x1b[2J60\n")
    for args in (("plan",), ("apply", "--yes"), ("status",), ("log",), ("undo",)):
        monkeypatch.setenv("COLUMNS", columns)
        out = run_cli("tune", *args).out
        assert max(map(len, out.splitlines())) <= int(columns) and "\x1b" not in out and "\u2026" not in out


def test_only_and_what_passes(run_cli, sick: Path) -> None:
    found = told(run_cli("tune", "plan", "--only", "MEM07", "--only", "LIM01", "--format", "json"))
    assert rows(found, "code") == [("MEM07",)]
    assert [(one["code"], one["reason"].partition(":")[0]) for one in found["skipped"]] == [
        ("LIM01", "not judged")
    ]


def test_the_plan_of_a_recorded_machine_asks_no_knob(run_cli, tmp_path: Path) -> None:
    box = tmp_path / "box" / "proc" / "sys" / "vm"
    box.mkdir(parents=True)
    (box / "swappiness").write_text("60\n")
    (tmp_path / "x.toml").write_text(STAT.format(7))
    words = ("tune", "plan", "--host", tmp_path / "box", "--changes", "x.toml")
    found = told(run_cli(*words, "--format", "json"))
    assert rows(found, "state", "old") == [("unseen", None)]
    last = run_cli(*words).out.splitlines()[-1]
    assert last == "Next, on that machine: wellfed tune apply, with the same options but --host"


def test_text_is_the_same_in_a_file(run_cli, sick: Path, tmp_path: Path) -> None:
    assert run_cli("tune", "plan", "-o", "plan.txt", "-o", "plan.json").code == 0
    assert "MEM07 sysctl vm.swappiness: 60 -> 10" in (tmp_path / "plan.txt").read_text()
    assert json.loads((tmp_path / "plan.json").read_text())["schema"] == 1


# -- apply, status, undo, log -----------------------------------------------------------------------------


def test_there_and_back(run_cli, top: Path) -> None:
    journal = Journal(Root(top))
    done = told(run_cli("tune", "apply", "--changes", "three.toml", "--format", "json"))
    assert list(done) == [
        "schema", "txid", "changes", "proofs", "confirm_within_s", "late", "not_applied", "instructions", "skipped",
    ]  # fmt: skip
    assert set(rows(done, "outcome")) == {("applied",)} and m.values(journal) == m.NEW
    assert ("T-1", "enabled", "madvise", "always") in rows(done, "code", "target", "old", "new")
    again = told(run_cli("tune", "apply", "--changes", "three.toml", "--format", "json"))
    assert set(rows(again, "outcome")) == {("already",)} and again["txid"] is None
    found = told(run_cli("tune", "status", "--format", "json"))
    assert list(found) == ["schema", "transactions", "drift"] and found["drift"] == 0
    assert rows(found, "txid", "state", of="transactions") == [(done["txid"], "held")]
    back = told(run_cli("tune", "undo", "--format", "json"))
    assert set(rows(back, "outcome")) == {("reverted",)} and m.values(journal) == m.OLD
    assert told(run_cli("tune", "status", "--format", "json"))["transactions"] == []
    assert run_cli("tune", "undo").out == "Nothing to undo\n"


def test_what_is_made_without_more_options_and_with(run_cli, sick: Path) -> None:
    done = told(run_cli("tune", "apply", "--format", "json"))
    assert sorted(rows(done, "code", "outcome")) == [("MEM01", "already"), ("MEM07", "applied")]
    assert rows(done, "code", "flag", of="not_applied") == [("MEM10", "--allow MEM10")]
    assert rows(told(run_cli("tune", "apply", "--yes", "--format", "json")), "code", of="not_applied") == [
        ("MEM10",)
    ]
    done = told(run_cli("tune", "apply", "--allow", "MEM10", "--format", "json"))
    assert ("MEM10", "applied") in rows(done, "code", "outcome") and done["not_applied"] == []
    journal = Journal(Root(sick))
    assert m.text(journal, f"{m.SYSCTL}/overcommit_memory") == "0"
    assert run_cli("tune", "undo").code == 0
    assert m.text(journal, f"{m.SYSCTL}/overcommit_memory") == "2"
    assert m.text(journal, f"{m.SYSCTL}/swappiness") == "60"


def test_as_text(run_cli, sick: Path) -> None:
    out = run_cli("tune", "apply", "--journal", "j j").out
    assert (
        "1 setting changed, 1 so already" in out and "changed    MEM07 sysctl vm.swappiness: 60 -> 10" in out
    )
    assert (
        "`" not in out
        and "wellfed tune apply --allow MEM10" in out
        and "--journal 'j j'" in " ".join(out.split())
    )
    assert "1 setting held, no drift" in run_cli("tune", "status", "--journal", "j j").out
    assert "put back   MEM07 sysctl vm.swappiness: 60" in run_cli("tune", "undo", "--journal", "j j").out
    log = run_cli("tune", "log", "--journal", "j j").out
    for word in ("begin", "intent", "applied", "commit", "revert_intent", "reverted", "end"):
        assert any(word in line.split() for line in log.splitlines()), word
    assert "reverted      #0 MEM07 sysctl vm.swappiness reads 60" in log


def test_drift_is_exit_code_1_and_another_s_value_stays(run_cli, top: Path) -> None:
    run_cli("tune", "apply", "--changes", "three.toml")
    (top / m.SYSCTL / "stat_interval").write_text("5\n")
    found = told(run_cli("tune", "status", "--format", "json"), 1)
    assert found["drift"] == 1
    result = run_cli("tune", "status")
    assert result.code == 1 and "drifted    user sysctl vm.stat_interval: reads 5, 7 was set" in result.out
    result = run_cli("tune", "undo")
    assert result.code == 1 and "undo --force" in result.out
    assert m.text(Journal(Root(top)), f"{m.SYSCTL}/stat_interval") == "5"
    assert run_cli("tune", "undo", "--force").code == 0
    assert m.values(Journal(Root(top))) == m.OLD


def test_after_a_reboot(run_cli, top: Path) -> None:
    run_cli("tune", "apply", "--changes", "three.toml")
    (top / "proc/sys/kernel/random/boot_id").write_text("boot-two\n")
    result = run_cli("tune", "status")
    assert result.code == 0 and "3 gone with the reboot" in result.out
    assert run_cli("tune", "undo").code == 0
    assert m.values(Journal(Root(top))) == m.NEW, "nothing is written"


def test_one_transaction(run_cli, top: Path, tmp_path: Path) -> None:
    for number in (7, 9):
        (tmp_path / "x.toml").write_text(STAT.format(number))
        run_cli("tune", "apply", "--changes", "x.toml")
    first, second = Journal(Root(top)).names()
    result = run_cli("tune", "undo", first)
    assert result.code == 1 and f"changed again by {second}" in " ".join(result.out.split())
    assert run_cli("tune", "undo", second).code == 0
    assert m.text(Journal(Root(top)), f"{m.SYSCTL}/stat_interval") == "7"
    result = run_cli("tune", "undo", "00009-20260101T000000")
    assert result.code == 2 and result.err.endswith("hint: wellfed tune log\n")


def test_some_fail(run_cli, top: Path, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(
        STAT.format(7) + '[[change]]\nkind = "thp"\ntarget = "enabled"\nnew = "no"\n'
    )
    result = run_cli("tune", "apply", "--changes", "x.toml")
    assert result.code == 1 and "1 setting changed, 1 failed, and is as before" in result.out
    assert "takes always, madvise, never, not no" in " ".join(result.out.split())


def test_the_log_is_for_audits(run_cli, top: Path) -> None:
    run_cli("tune", "apply", "--changes", "three.toml")
    run_cli("tune", "undo")
    found = told(run_cli("tune", "log", "--format", "json", "--no-redact"))
    (one,) = found["transactions"]
    records = one["records"]
    assert one["state"] == "undone" and [record["seq"] for record in records] == list(range(len(records)))
    assert len({record["sha256_of_previous"] for record in records}) == len(records)
    path = Journal(Root(top)).path(one["txid"])
    path.write_bytes(path.read_bytes().replace(b'"intent"', b'"intend"', 1))
    result = run_cli("tune", "log")
    assert result.code == 1 and "damaged in line 2" in " ".join(result.out.split())
    result = run_cli("tune", "undo")
    assert result.code == 2 and "damaged" in result.err


@pytest.mark.parametrize("form", ["text", "json", "md", "html"])
def test_the_log_keeps_secrets_in_every_form(form: str, run_cli, top: Path, tmp_path: Path) -> None:
    (top / "etc").mkdir()
    text = "[Service]\\nEnvironment=HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123\\n"
    target = "/etc/systemd/system/x.service.d/90-wellfed.conf"
    (tmp_path / "x.toml").write_text(
        f'[[change]]\nkind = "dropin"\ntarget = "{target}"\nnew = "{text}"\n' + STAT.format(7)
    )
    assert run_cli("tune", "apply", "--changes", "x.toml").code == 0
    result = run_cli("tune", "log", "--format", form)
    assert result.code == 0 and "hf_abcd" not in result.out and "stat_interval" in result.out
    assert "hf_abcd" in run_cli("tune", "log", "--format", form, "--no-redact").out


def test_a_journal_without_a_name(run_cli) -> None:
    result = run_cli("tune", "undo", "--journal", "")
    assert result.code == 2 and "the name of the journal is empty" in result.err


def test_a_user_of_sudo_that_is_none(run_cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "nobody")
    assert run_cli("tune", "status", "--journal", str(tmp_path)).code == 0


# -- confirming -------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds to go forward; and nobody but the next call undoes anything."""
    ahead = [0.0]
    monkeypatch.setattr("wellfed.apply.journal.boot_seconds", lambda: boot_seconds() + ahead[0])
    monkeypatch.setattr(deadman, "arm", lambda *_: 0)
    monkeypatch.setattr(deadman, "disarm", lambda *_: None)
    return ahead


def test_confirmed(run_cli, top: Path, clock: list[float]) -> None:
    result = run_cli("tune", "apply", "--changes", "three.toml", "--confirm-within", "2min")
    assert "undone in 120 s unless you say: wellfed tune confirm" in " ".join(result.out.split())
    assert "waiting" in run_cli("tune", "status", "--format", "json").out
    result = run_cli("tune", "apply", "--changes", "three.toml")
    assert result.code == 2 and "waits to be confirmed" in result.err
    assert told(run_cli("tune", "confirm", "--format", "json"))["confirmed"] == Journal(Root(top)).names()
    clock[0] = 1000.0
    assert run_cli("tune", "status").code == 0 and m.values(Journal(Root(top))) == m.NEW
    result = run_cli("tune", "confirm")
    assert result.code == 2 and "nothing waits to be confirmed" in result.err


@pytest.mark.parametrize("verb", ["apply", "undo", "confirm"])
def test_not_confirmed(verb: str, run_cli, top: Path, tmp_path: Path, clock: list[float]) -> None:
    run_cli("tune", "apply", "--changes", "three.toml", "--confirm-within", "120s")
    clock[0] = 121.0
    assert "nobody confirmed it in time" in run_cli("tune", "status").out
    assert m.values(Journal(Root(top))) == m.NEW, "status writes nothing"
    (tmp_path / "x.toml").write_text(STAT.format(9))
    result = run_cli("tune", verb, *(["--changes", "x.toml"] if verb == "apply" else []))
    expected = {**m.OLD, "stat": "9"} if verb == "apply" else m.OLD
    assert m.values(Journal(Root(top))) == expected
    if verb == "confirm":
        assert result.code == 2 and "too late" in result.err and "too late" in run_cli("tune", "confirm").err
    else:
        assert result.code == 0
    if verb == "apply":
        assert "Undone first, since nobody confirmed it in time" in result.out


@pytest.mark.parametrize("text", ["soon", "1d", "-5s", "5", "1000h", "nan", "1e3s"])
def test_times_that_are_none(text: str, run_cli, top: Path) -> None:
    result = run_cli("tune", "apply", "--changes", "three.toml", f"--confirm-within={text}")
    assert result.code == 2 and m.values(Journal(Root(top))) == m.OLD


def test_what_cuts_the_network_is_not_made_without_a_time(run_cli, top: Path, tmp_path: Path) -> None:
    place = top / "proc/sys/net/ipv4/conf/all"
    place.mkdir(parents=True)
    (place / "rp_filter").write_text("1\n")
    text = STAT.format(7) + '[[change]]\nkind = "sysctl"\ntarget = "net.ipv4.conf.all.rp_filter"\nnew = "0"\n'
    (tmp_path / "x.toml").write_text(text)
    done = told(run_cli("tune", "apply", "--changes", "x.toml", "--format", "json"))
    assert rows(done, "target") == [("vm.stat_interval",)]
    assert rows(done, "target", "flag", of="not_applied") == [
        ("net.ipv4.conf.all.rp_filter", "--confirm-within 120s")
    ]
    assert (place / "rp_filter").read_text() == "1\n"


# -- what stops it ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text,words",
    [
        (STAT.format(7) + 'x = "1"\n', "change 1: no key `x`"),
        (STAT.format(7).replace('"7"', "7"), "`new` is no text"),
        (STAT.format(7) + STAT.format(9).replace("sysctl", "shell"), "change 2: no kind `shell`"),
        (STAT.format(7) + STAT.format(9), "are one knob"),
        (STAT.format(7) + STAT.format(9).replace("vm.stat_interval", "../../etc/passwd"), "is no sysctl"),
        (
            STAT.format(7) + STAT.format(9).replace("vm.stat_interval", "kernel.core_pattern"),
            "is not changed",
        ),
    ],
)
def test_a_hostile_list_changes_nothing(text: str, words: str, run_cli, top: Path, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(text)
    for verb in ("plan", "apply"):
        result = run_cli("tune", verb, "--changes", "x.toml")
        assert result.code == 2 and words in result.err and len(result.err.splitlines()) == 2
    assert m.values(Journal(Root(top))) == m.OLD and not (top / "var").exists()


@pytest.mark.parametrize(
    "args,words",
    [
        (("--only", "MEM99"), "no check `MEM99`"),
        (("--allow", "nothing"), "no check `nothing`"),
        (("--changes", "three.toml", "--only", "MEM01"), "no change with the code `MEM01`"),
        (("--changes", "none.toml"), "No such file"),
        (("--changes", "three.toml", "--journal", "three.toml"), "the journal in"),
        (("--prove", "--confirm-within", "120s"), "is not to be confirmed"),
    ],
)
def test_errors_are_two_lines(args: tuple[str, ...], words: str, run_cli, sick: Path) -> None:
    result = run_cli("tune", "apply", *args)
    assert result.code == 2 and words in result.err and len(result.err.splitlines()) == 2, result.err
    assert m.values(Journal(Root(sick))) == m.OLD


def test_a_journal_that_others_may_write(run_cli, tmp_path: Path) -> None:
    """Whoever can write it says what undo writes, as root."""
    (tmp_path / "j").mkdir()
    (tmp_path / "j").chmod(0o777)
    (tmp_path / "x.toml").write_text(STAT.format(7))
    for args in (("apply", "--changes", "x.toml"), ("undo",), ("status",), ("confirm",), ("log",)):
        result = run_cli("tune", *args, "--journal", "j")
        assert result.code == 2 and "others may write" in result.err
    assert list((tmp_path / "j").iterdir()) == []


def test_interrupted(run_cli, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(name: str) -> None:
        if name == "write:1":
            raise KeyboardInterrupt

    monkeypatch.setattr("wellfed.apply.failpoint.hook", interrupt)
    result = run_cli("tune", "apply", "--changes", "three.toml", "--journal", "j")
    assert result.code == 130 and "stays: wellfed tune status --journal j" in result.err
    monkeypatch.setattr("wellfed.apply.failpoint.hook", None)
    assert m.values(Journal(Root(top))) != m.OLD
    assert run_cli("tune", "undo", "--journal", "j").code == 0 and m.values(Journal(Root(top))) == m.OLD


@pytest.mark.parametrize(
    ("prefix", "line"),
    [
        ("/usr", "sudo wellfed tune apply"),
        ("/home/x y/.venv", "sudo '/home/x y/.venv/bin/wellfed' tune apply"),
    ],
)
def test_sudo_finds_what_it_is_told_to_run(prefix: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own PATH has no virtual environment: there the program is named by its path."""
    monkeypatch.setattr("wellfed.apply.root.sys.prefix", prefix)
    monkeypatch.setattr("wellfed.apply.root.sys.base_prefix", "/usr")
    assert with_sudo("tune apply") == line


def test_not_root(run_cli, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("policy", "dry_run"):
        monkeypatch.setattr(f"wellfed.apply.{module}.is_root", lambda: False)
    monkeypatch.setattr("wellfed.apply.root.os.access", lambda *_: False)
    assert run_cli("tune", "plan", "--changes", "three.toml").code == 0
    result = run_cli("tune", "apply", "--changes", "three.toml")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: only root may change these")
    assert f"hint: {with_sudo('tune apply')}\n" in result.err
    assert m.values(Journal(Root(top))) == m.OLD and not (top / "var").exists()


def test_nothing_can_be_written(run_cli, top: Path) -> None:
    """As where /proc/sys and /sys are mounted read-only."""
    for name in m.FILES:
        (top / name).chmod(0o444)
    result = run_cli("tune", "apply", "--changes", "three.toml")
    assert result.code == 2 and "nothing is changed: " in result.err and "read-only" in result.err
    assert not (top / "var").exists()


def test_another_is_at_work(run_cli, top: Path) -> None:
    with Journal(Root(top)).locked():
        for args in (("apply", "--changes", "three.toml"), ("undo",), ("confirm",)):
            result = run_cli("tune", *args)
            assert result.code == 2 and "another `wellfed tune` is at work here" in result.err
        assert run_cli("tune", "status").code == 0
    assert m.values(Journal(Root(top))) == m.OLD


# -- proofs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cost,outcome,value",
    [(0.5, "kept", "madvise"), (1.0, "put-back", "never"), (2.0, "put-back", "never")],
)
def test_proved(
    cost: float, outcome: str, value: str, run_cli, sick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    (sick / m.THP / "enabled").write_text("always madvise [never]\n")
    asked: list[str] = []
    journal = Journal(Root(sick))

    def meter(name: str) -> Meter:
        asked.append(name)
        return Meter(name, "ns", 0.0, lambda: cost if m.values(journal)["thp"] == "madvise" else 1.0)

    monkeypatch.setattr("wellfed.bench.proof.meter", meter)
    done = told(run_cli("tune", "apply", "--prove", "--format", "json"))
    assert asked == ["pointer-chase-advised"]
    found = {one["code"]: one for one in done["proofs"]}
    assert found["MEM01"]["outcome"] == outcome and found["MEM07"]["outcome"] == "unmeasured"
    assert found["MEM07"]["note"] == "no measurement is linked to this change"
    assert m.values(journal)["thp"] == value
    assert m.text(journal, f"{m.SYSCTL}/swappiness") == "60", "what is not proved is not made"
    log = run_cli("tune", "log").out
    words = {0.5: "better", 1.0: "no effect here", 2.0: "harmful here"}[cost]
    assert words in " ".join(log.split())
    assert run_cli("tune", "undo").code == 0 and m.values(journal)["thp"] == "never"


def test_a_proof_as_text(run_cli, top: Path) -> None:
    result = run_cli("tune", "apply", "--prove", "--changes", "three.toml")
    assert result.code == 0 and "3 changes tried, 0 kept" in result.out
    assert "no measurement is linked to this change: not proved" in " ".join(result.out.split())
    assert m.values(Journal(Root(top))) == m.OLD


# -- killed, and two at once ------------------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from pathlib import Path
from wellfed import api
from wellfed.apply import failpoint
from wellfed.apply.journal import Journal
from wellfed.apply.root import Root
from wellfed.cli.main import run

top, number = sys.argv[1], int(sys.argv[2])
if top != "/":
    api._journal = lambda folder: Journal(Root(top), None if folder is None else Path(folder).absolute())
left = [number]

def kill(_):
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1

failpoint.hook = kill
sys.exit(run(sys.argv[3:]))
"""


def start(top: Path | str, number: int, *args: str, cwd: Path) -> "subprocess.Popen[str]":
    """The command line in a process that ends itself with SIGKILL at step `number`; never for -1."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_KILLED), str(top), str(number), *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [0, 3, 5, 9])
def test_killed_in_the_middle(number: int, run_cli, top: Path, tmp_path: Path) -> None:
    process = start(top, number, "tune", "apply", "--changes", "three.toml", cwd=tmp_path)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    now = m.values(Journal(Root(top)))
    assert all(now[knob] in (m.OLD[knob], m.NEW[knob]) for knob in now) and (number < 5 or now != m.OLD)
    assert run_cli("tune", "log").code == 0 and run_cli("tune", "status").code == 0
    assert run_cli("tune", "undo").code == 0
    assert m.values(Journal(Root(top))) == m.OLD
    assert run_cli("tune", "apply", "--changes", "three.toml").code == 0


def test_two_at_once(run_cli, top: Path, tmp_path: Path) -> None:
    """Each with its own value: one after the other or refused, and the first original comes back."""
    for number in range(4):
        (tmp_path / f"{number}.toml").write_text(STAT.format(10 + number))
    processes = [
        start(top, -1, "tune", "apply", "--changes", f"{number}.toml", cwd=tmp_path) for number in range(4)
    ]
    said = [process.communicate(timeout=60)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert set(codes) <= {0, 2} and 0 in codes
    assert all("another" in text for text, code in zip(said, codes, strict=True) if code == 2), said
    assert run_cli("tune", "undo").code == 0
    assert m.values(Journal(Root(top))) == m.OLD


# -- this kernel ------------------------------------------------------------------------------------------

KNOB = Path("/proc/sys/vm/stat_interval")


@pytest.fixture
def knob(tmp_path: Path) -> Iterator[str]:
    """A list of one change of this machine; afterwards it is as it was, or the test has failed and says so."""
    if not os.access(KNOB, os.W_OK) or os.statvfs(KNOB).f_flag & os.ST_RDONLY:
        pytest.skip(f"{KNOB} can't be written here")
    old = KNOB.read_text()
    (tmp_path / "x.toml").write_text(STAT.format(8 if old.strip() == "7" else 7))
    yield old
    if KNOB.read_text() != old:
        KNOB.write_text(old)
        pytest.fail(f"{KNOB} was not as before")


@pytest.mark.root
@pytest.mark.xdist_group("knobs")
def test_there_and_back_on_this_kernel(run_cli, knob: str, tmp_path: Path) -> None:
    done = told(run_cli("tune", "apply", "--changes", "x.toml", "--journal", "j", "--format", "json"))
    ((outcome, old, now),) = rows(done, "outcome", "old", "now")
    assert (outcome, old) == ("applied", knob.strip()) and KNOB.read_text().strip() == now != old
    assert run_cli("tune", "status", "--journal", "j").code == 0
    KNOB.write_text("77\n")
    assert run_cli("tune", "status", "--journal", "j").code == 1
    assert run_cli("tune", "undo", "--journal", "j").code == 1 and KNOB.read_text() == "77\n"
    assert run_cli("tune", "undo", "--journal", "j", "--force").code == 0
    assert KNOB.read_text() == knob


@pytest.mark.root
@pytest.mark.xdist_group("knobs")
@pytest.mark.parametrize("number", range(6))
def test_killed_at_each_step_on_this_kernel(number: int, run_cli, knob: str, tmp_path: Path) -> None:
    process = start("/", number, "tune", "apply", "--changes", "x.toml", "--journal", "j", cwd=tmp_path)
    process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if number < 5 else 0)
    assert run_cli("tune", "undo", "--journal", "j").code == 0
    assert KNOB.read_text() == knob


@pytest.mark.root
@pytest.mark.xdist_group("knobs")
def test_where_this_kernel_s_settings_are_mounted_read_only(knob: str, tmp_path: Path) -> None:
    """As in containers, privileged ones too: told beforehand, exit code 2, and nothing is left behind."""
    mount = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys"
    line = [sys.executable, "-m", "wellfed", "tune", "apply", "--changes", "x.toml", "--journal", "j"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "-", *line],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )
    if "error: " not in done.stderr and done.returncode:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert done.returncode == 2 and done.stdout == ""
    assert "nothing is changed: " in done.stderr and "mounted read-only" in done.stderr
    assert KNOB.read_text() == knob and not (tmp_path / "j").exists()
