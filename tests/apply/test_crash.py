"""Killed at every step and cut at every byte, each knob is old or new, and undo gives the very first original."""

import os
import shutil
from pathlib import Path

import fake_host as m
import pytest

from wellfed.apply import engine
from wellfed.apply.journal import Journal


def check(journal: Journal) -> None:
    now = m.values(journal)
    assert all(now[knob] in (m.OLD[knob], m.NEW[knob]) for knob in now), now
    engine.undo(journal)
    assert m.values(journal) == m.OLD
    assert engine.status(journal) == []
    assert engine.undo(journal) == []


def test_killed_at_every_step_of_apply(tmp_path: Path) -> None:
    steps = m.points(lambda: engine.apply(m.make(tmp_path / "all"), m.THREE))
    assert len(steps) == 2 + 3 * 3
    for number in range(len(steps)):
        journal = m.make(tmp_path / str(number))
        assert m.killed(lambda j=journal: engine.apply(j, m.THREE), number), steps[number]
        check(journal)


def test_killed_at_every_step_of_undo(tmp_path: Path) -> None:
    journal = m.make(tmp_path / "all")
    engine.apply(journal, m.THREE)
    steps = m.points(lambda: engine.undo(journal))
    assert len(steps) == 3 * 3 + 1
    for number in range(len(steps)):
        journal = m.make(tmp_path / str(number))
        engine.apply(journal, m.THREE)
        assert m.values(journal) == m.NEW
        assert m.killed(lambda j=journal: engine.undo(j), number), steps[number]
        check(journal)


def test_killed_again_while_it_recovers(tmp_path: Path) -> None:
    """The second process finds the first one's left-overs, and dies over them."""
    for first in range(11):
        for second in (0, 1, 3):
            journal = m.make(tmp_path / f"{first}-{second}")
            m.killed(lambda j=journal: engine.apply(j, m.THREE), first)
            m.killed(lambda j=journal: engine.undo(j), second)
            check(journal)


def test_killed_between_two_transactions_over_one_knob(tmp_path: Path) -> None:
    """The value of the first transaction is never taken for an original."""
    again = [m.change("sysctl", "vm.stat_interval", "9")]
    for number in range(5):
        journal = m.make(tmp_path / str(number))
        engine.apply(journal, [m.STAT])
        m.killed(lambda j=journal: engine.apply(j, again), number)
        engine.undo(journal)
        assert m.values(journal) == m.OLD
    for number in range(4):
        journal = m.make(tmp_path / f"undo-{number}")
        engine.apply(journal, [m.STAT])
        engine.apply(journal, again)
        assert m.killed(lambda j=journal: engine.undo(j), number)
        engine.undo(journal)
        assert m.values(journal) == m.OLD


def test_killed_while_the_later_of_two_transactions_is_undone_alone(tmp_path: Path) -> None:
    again = [m.change("sysctl", "vm.stat_interval", "9")]
    for number in range(4):
        journal = m.make(tmp_path / str(number))
        engine.apply(journal, [m.STAT])
        engine.apply(journal, again)
        assert m.killed(lambda j=journal: engine.undo(j, j.names()[1]), number)
        assert m.values(journal)["stat"] in ("9", "7")
        engine.undo(journal)
        assert m.values(journal) == m.OLD and engine.status(journal) == [] and engine.undo(journal) == []


def test_the_last_record_cut_at_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that was never wholly on disk, of every type, over the state the machine has then."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    cuts = 0
    for undoing in (False, True):
        whole = m.make(tmp_path / "whole")
        if undoing:
            engine.apply(whole, [m.STAT])
        act = engine.undo if undoing else lambda j: engine.apply(j, [m.STAT])
        steps = m.points(lambda a=act, j=whole: a(j))
        shutil.rmtree(tmp_path / "whole")
        for number, step in enumerate(steps):
            if not step.endswith("on-disk"):
                continue
            state = m.make(tmp_path / "state")
            if undoing:
                engine.apply(state, [m.STAT])
            assert m.killed(lambda a=act, j=state: a(j), number)
            path = state.path(state.names()[-1])
            data, value = path.read_bytes(), m.text(state, f"{m.SYSCTL}/stat_interval")
            start = data.rstrip(b"\n").rfind(b"\n") + 1
            for at in range(start, len(data)):
                path.write_bytes(data[:at])
                (Path(state.root.top) / m.SYSCTL / "stat_interval").write_text(f"{value}\n")
                engine.undo(state)
                assert m.values(state) == m.OLD, (step, at)
                cuts += 1
            shutil.rmtree(tmp_path / "state")
    assert cuts >= 1000


def test_a_flipped_bit_in_the_last_record_is_seen(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, [m.STAT])
    path = journal.path(journal.names()[0])
    data = path.read_bytes()
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    for at in range(start, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert len(journal.read(journal.names()[0])) == 3
    path.write_bytes(data[:start] + b"\xff" * 40)
    engine.undo(journal)
    assert m.values(journal) == m.OLD
