"""What was measured before is found again, and damage to it costs a line."""

from pathlib import Path

import pytest

from wellfed.bench import history
from wellfed.model import Ceiling


def _ceiling(id: str, best: float = 1.0, key: str = "abc123") -> Ceiling:
    return Ceiling(
        id=id, title=id, method="m", hardware_key=key, unit="s", best=best, median=best, p10=best, p90=best, n=3, cv=0
    )  # fmt: skip


def test_what_is_remembered_is_recalled_newest_last(tmp_path: Path) -> None:
    history.remember([_ceiling("a"), _ceiling("b")], tmp_path)
    history.remember([_ceiling("a", 2.0), _ceiling("c", key="ffff")], tmp_path)
    kept = history.recall("abc123", tmp_path)
    assert [(k.ceiling.id, k.ceiling.best) for k in kept] == [("a", 1.0), ("b", 1.0), ("a", 2.0)]
    assert {id: k.ceiling.best for id, k in history.latest(kept).items()} == {"a": 2.0, "b": 1.0}
    assert [k.ceiling.id for k in history.recall("ffff", tmp_path)] == ["c"], "another machine has its own"
    assert history.recall("0000", tmp_path) == []
    assert (tmp_path / "abc123.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_damaged_line_is_passed_over(tmp_path: Path) -> None:
    history.remember([_ceiling("a"), _ceiling("b")], tmp_path)
    file = tmp_path / "abc123.jsonl"
    file.write_bytes(b'\xff{"at": 3}\n\n' + file.read_bytes()[:-9])
    assert [k.ceiling.id for k in history.recall("abc123", tmp_path)] == ["a"]
    history.remember([_ceiling("c")], tmp_path)
    assert [k.ceiling.id for k in history.recall("abc123", tmp_path)] == ["a", "c"]


def test_it_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_LINES", 3)
    for best in range(5):
        history.remember([_ceiling("a", float(best))], tmp_path)
    assert [k.ceiling.best for k in history.recall("abc123", tmp_path)] == [2.0, 3.0, 4.0]


def test_what_cannot_be_kept_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    history.remember([_ceiling("a")], blocked)
    assert history.recall("abc123", blocked) == []
    monkeypatch.setenv("WELLFED_HISTORY", "0")
    assert history.folder() is None
    history.remember([_ceiling("a")])
    monkeypatch.setenv("WELLFED_HISTORY", str(tmp_path / "there"))
    history.remember([_ceiling("a")])
    assert history.recall("abc123")
