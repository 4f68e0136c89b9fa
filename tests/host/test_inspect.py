"""`wellfed inspect`: what it shows, what it saves, and what it says when it cannot."""

import json
from pathlib import Path
from typing import Any

import pytest
from boxes import box

from wellfed.host import record


@pytest.fixture
def server(tmp_path: Path) -> Path:
    record(box("numa_server"), tmp_path / "server.tar", redact=False)
    return tmp_path / "server.tar"


def test_the_machine_on_one_screen(run_cli: Any, server: Path) -> None:
    result = run_cli("inspect", "--host", server)
    assert result.code == 0
    for text in ("AMD EPYC 9354", "16 logical CPUs", "8 cores", "3 nodes", "kubernetes", "Could not see"):
        assert text in result.out
    assert result.err == ""


def test_single_facts_with_their_source(run_cli: Any, server: Path) -> None:
    result = run_cli("inspect", "--host", server, "memory.thp_enabled", "numa[2]", "cpu.boost", "cpu.smt")
    assert result.out.splitlines()[:4] == [
        "cpu.smt = on", "  from /sys/devices/system/cpu/smt/control",
        "cpu.boost = true", "  from /sys/devices/system/cpu/cpufreq/boost",
    ]  # fmt: skip
    assert "memory.thp_enabled = madvise" in result.out
    assert "numa[2].cpus = []" in result.out
    assert "numa[1]" not in result.out


def test_facts_that_were_not_seen_are_told_apart(run_cli: Any, server: Path) -> None:
    result = run_cli("inspect", "--host", server, "memory.ksm_run", "gpus")
    assert "Could not see" in result.out
    assert "memory.ksm_run" in result.out


def test_json_has_every_key_and_the_raw_text_of_chosen_facts(run_cli: Any, server: Path) -> None:
    whole = json.loads(run_cli("inspect", "--host", server, "--format", "json").out)
    assert whole["machine"]["cpu"]["logical"] == 16
    assert whole["machine"]["gaps"]["memory.ksm_run"].startswith("missing: ")
    chosen = json.loads(run_cli("inspect", "--host", server, "limits", "--format", "json").out)
    assert chosen["limits.open_files"]["value"] == {"soft": 1024, "hard": 1048576}
    assert chosen["limits.open_files"]["raw"].startswith("Max open files")


@pytest.mark.parametrize("width", ["60", "80", "120"])
def test_no_line_is_wider_than_the_terminal(
    run_cli: Any, server: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    for words in ((), ("cpu", "kernel", "container", "mounts")):
        out = run_cli("inspect", "--host", server, *words).out
        # A path or a value that has no blank is left whole.
        assert [line for line in out.splitlines() if len(line) > int(width) and " " in line.strip()] == []


def test_recording_says_what_it_saved(run_cli: Any, tmp_path: Path, server: Path) -> None:
    result = run_cli("inspect", "--host", server, "--record", "again.tar")
    assert result.code == 0
    assert "recorded again.tar" in result.err
    assert "names and secrets taken out" in result.err
    assert b"gpu-node-17" not in (tmp_path / "again.tar").read_bytes()
    result = run_cli("inspect", "--host", server, "--record", "plain.tar", "--no-redact")
    assert "NOT redacted" in result.err
    assert b"gpu-node-17" in (tmp_path / "plain.tar").read_bytes()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--host", "none.tar"), "there is no host"),
        (("--host", "."), "no `sys` or `proc`"),
        (("--record", "box.zip"), "no name for a recording"),
        (("--record", "no/folder/box.tar"), "cannot write"),
        (("nonsense",), "no fact `nonsense`"),
    ],
)
def test_errors_are_one_line_and_a_hint(run_cli: Any, words: tuple[str, ...], says: str) -> None:
    result = run_cli("inspect", *words)
    assert (result.code, result.out) == (2, "")
    error, hint = result.err.splitlines()
    assert says in error
    assert hint.startswith("hint: ")


def test_an_empty_file_and_a_text_are_no_hosts(run_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.tar").write_bytes(b"")
    (tmp_path / "notes.tar").write_text("meeting at ten\n" * 100)
    for name in ("empty.tar", "notes.tar"):
        result = run_cli("inspect", "--host", name)
        assert result.code == 2
        assert len(result.err.splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("dmesg.txt", b"[    1.5] NVRM: Xid (PCI:0000:3b:00): 79\n" * 20, "check --evidence"),
        ("box.case", b"\x1f\x8b\x08\x00" + bytes(40), "wellfed.load"),
        ("noise.tar", bytes(range(256)) * 20, "hint: wellfed inspect --record box.tar"),
    ],
)
def test_a_file_of_another_kind_is_told_where_it_belongs(
    run_cli: Any, tmp_path: Path, name: str, content: bytes, hint: str
) -> None:
    (tmp_path / name).write_bytes(content)
    result = run_cli("check", "--host", name)
    assert result.code == 2 and "is not a tar of a host" in result.err and hint in result.err
