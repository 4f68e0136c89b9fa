"""A proof on a copy of the files, with a measurement that reads them; the clock plays no part."""

import errno
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import fake_host as m
import pytest

from wellfed.apply import engine, prove
from wellfed.apply.journal import Journal, Writer, ops_of
from wellfed.apply.knobs import FILE_KINDS, FileKind
from wellfed.model import Change, WellfedError
from wellfed.model.base import replace
from wellfed.model.change import Record
from wellfed.model.proof import Meter, Proof
from wellfed.predict import ab

ALWAYS = m.change("thp", "enabled", "always")


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of switches; whether records reach the disk is the engine's tests' business."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def by_thp(journal: Journal, always: float) -> Callable[[Change], Meter]:
    """1 a phase, `always` where huge pages are on."""

    def run() -> float:
        return always if m.values(journal)["thp"] == "always" else 1.0

    return lambda _: Meter("invented", "s", 0.0, run)


def one(journal: Journal, change: Change, always: float, looks: tuple[int, ...] = ab.LOOKS) -> Proof:
    (found,) = prove.prove(journal, [change], measure=by_thp(journal, always), looks=looks)
    return found


def state(journal: Journal) -> set[str]:
    return {op.state for name in journal.names() for op in ops_of(journal.read(name))}


def test_what_is_better_stays_and_can_be_undone(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    found = one(journal, ALWAYS, 0.8)
    assert found.outcome == "kept" and found.effect is not None and found.effect.verdict == "better"
    assert (found.before, found.after, found.old) == (1.0, 0.8, "madvise")
    assert m.values(journal) == {**m.OLD, "thp": "always"}
    assert [done.outcome for done in engine.status(journal)] == ["same"]
    engine.undo(journal)
    assert m.values(journal) == m.OLD


@pytest.mark.parametrize(("always", "verdict"), [(1.3, "worse"), (1.0, "none"), (0.99, "none")])
def test_what_is_not_better_is_put_back_and_the_journal_says_why(
    tmp_path: Path, always: float, verdict: str
) -> None:
    journal = m.make(tmp_path)
    found = one(journal, ALWAYS, always)
    assert found.outcome == "put-back" and found.effect is not None and found.effect.verdict == verdict
    assert m.values(journal) == m.OLD and engine.status(journal) == [] and state(journal) == {"reverted"}
    records = journal.read(found.txid)
    (word,) = [record for record in records if record.type == "verified"]
    assert word.note is not None and ("no effect here" if verdict == "none" else "harmful here") in word.note
    assert records[-1].type == "end" and engine.undo(journal) == []


def test_a_proof_is_one_transaction_and_measures_in_order(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    seen = []

    def run() -> float:
        seen.append(m.values(journal)["thp"])
        return 1.0

    told: list[str] = []
    prove.prove(journal, [ALWAYS], measure=lambda _: Meter("invented", "s", 0.0, run), told=told.append)
    assert len(journal.names()) == 1 and len(told) == 8
    assert seen == ["madvise"] + ["madvise", "always", "always", "madvise"] * 8


def test_noise_looks_again_and_then_gives_up(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    costs = iter([1.0, *([1.0, 2.0, 2.0, 1.0, 2.0, 1.0, 1.0, 2.0] * 12)])
    (found,) = prove.prove(
        journal, [ALWAYS], measure=lambda _: Meter("invented", "s", 0.0, lambda: next(costs))
    )
    assert found.effect is not None and (found.effect.verdict, found.effect.n) == ("noisy", 24)
    assert found.outcome == "put-back" and m.values(journal) == m.OLD


def test_the_budget_ends_it_after_the_first_look(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    costs = iter([1.0, *([1.0, 2.0, 2.0, 1.0, 2.0, 1.0, 1.0, 2.0] * 8)])
    meter = Meter("invented", "s", 0.0, lambda: next(costs))
    (found,) = prove.prove(journal, [ALWAYS], measure=lambda _: meter, budget_s=0.0)
    assert found.effect is not None and (found.effect.verdict, found.effect.n) == ("noisy", 8)


def test_nothing_is_touched_without_a_measurement_or_a_need(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    (found,) = prove.prove(journal, [ALWAYS], measure=lambda _: None)
    assert found.outcome == "unmeasured"
    same = one(journal, m.change("thp", "enabled", "madvise"), 0.5)
    bad = one(journal, m.change("thp", "enabled", "sometimes"), 0.5)
    assert (same.outcome, bad.outcome) == ("already", "failed") and bad.note is not None
    assert journal.names() == [] and m.values(journal) == m.OLD


def test_what_should_not_be_switched_to_and_fro_is_left_alone(tmp_path: Path) -> None:
    class Lasting(FileKind):
        lasts = True

    journal = m.make(tmp_path)
    kinds = {**FILE_KINDS, "lasting": Lasting("/sys/kernel/mm/transparent_hugepage/{}")}
    changes = [replace(ALWAYS, cuts_network=True), m.change("lasting", "enabled", "always")]
    found = prove.prove(journal, changes, measure=by_thp(journal, 0.5), kinds=kinds)
    assert [proof.outcome for proof in found] == ["unmeasured", "unmeasured"]
    assert all("to and fro" in str(proof.note) for proof in found)
    assert journal.names() == [] and m.values(journal) == m.OLD


def test_a_wrong_target_stops_all_before_anything_is_written(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    for wrong in (m.change("sysctl", "../etc/passwd", "1"), m.change("nonsense", "x", "1")):
        with pytest.raises(WellfedError):
            prove.prove(journal, [ALWAYS, wrong], measure=by_thp(journal, 0.5))
    assert journal.names() == [] and m.values(journal) == m.OLD


@pytest.mark.parametrize("error", [WellfedError("it broke", hint="mend it"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 6, 18])
def test_a_measurement_that_ends_early_leaves_the_old_value(
    tmp_path: Path, at: int, error: BaseException
) -> None:
    journal = m.make(tmp_path)
    calls = iter(range(100))

    def run() -> float:
        if next(calls) == at:
            raise error
        return 1.0

    try:
        (found,) = prove.prove(journal, [ALWAYS], measure=lambda _: Meter("invented", "s", 0.0, run))
        assert found.outcome == "failed" and found.note == "it broke"
    except KeyboardInterrupt:
        assert isinstance(error, KeyboardInterrupt)
    assert m.values(journal) == m.OLD and engine.status(journal) == [] and state(journal) <= {"reverted"}


@pytest.mark.parametrize("at", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("other", ["never", "madvise", "always"])
def test_somebody_else_at_the_knob_ends_the_proof_and_keeps_what_he_set(
    tmp_path: Path, at: int, other: str
) -> None:
    journal = m.make(tmp_path)
    file = tmp_path / m.THP / "enabled"
    calls = iter(range(100))

    def run() -> float:
        if next(calls) == at:
            file.write_text(f"{other}\n")
        return 0.5 if "always" in file.read_text() else 1.0

    (found,) = prove.prove(journal, [ALWAYS], measure=lambda _: Meter("invented", "s", 0.0, run))
    now = file.read_text().strip()
    if found.outcome == "failed":
        assert found.note is not None and "somebody else" in found.note
        # What he set to the value that we had written can't be told from ours, and goes back with it.
        assert now == other or (other == "always" and now == "madvise")
    else:  # he set what was there already
        assert found.outcome == "kept" and now == "always"


def test_others_wait_and_later_changes_are_still_proved(tmp_path: Path) -> None:
    journal = m.make(tmp_path)

    def run() -> float:
        with pytest.raises(WellfedError, match="another"):
            engine.undo(journal)
        return 1.0

    found = prove.prove(
        journal,
        [m.change("hugepages", "2048kB", "lots"), ALWAYS],
        measure=lambda _: Meter("invented", "s", 0.0, run),
    )
    assert [proof.outcome for proof in found][1] == "put-back"


def test_an_earlier_change_stays_the_first_original(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, [m.change("thp", "enabled", "never")])
    found = one(journal, ALWAYS, 0.5)
    assert found.old == "never" and m.values(journal)["thp"] == "always"
    engine.undo(journal)
    assert m.values(journal) == m.OLD


def test_killed_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Knobs are old or new, and undo finds the first original; kept and put back, and over an earlier change."""
    monkeypatch.setattr(ab, "decide", functools.partial(ab.decide, confidence=0.75))
    short = functools.partial(one, looks=(3,))
    points = 0
    for name, always, before in (("kept", 0.5, False), ("put-back", 1.0, False), ("earlier", 0.5, True)):

        def fresh(folder: Path, before: bool = before) -> Journal:
            journal = m.make(folder)
            if before:
                engine.apply(journal, [m.change("thp", "enabled", "never")])
            return journal

        whole = fresh(tmp_path / name)
        steps = m.points(lambda j=whole, v=always: short(j, ALWAYS, v))
        assert len(steps) > 30
        for number in range(len(steps)):
            folder = tmp_path / f"{name}-{number}"
            journal = fresh(folder)
            assert m.killed(lambda j=journal, v=always: short(j, ALWAYS, v), number), steps[number]
            now = m.values(journal)
            assert now["thp"] in ("always", "never" if before else "madvise"), steps[number]
            assert {**now, "thp": ""} == {**m.OLD, "thp": ""}
            engine.undo(journal)
            assert m.values(journal) == m.OLD and engine.status(journal) == [], steps[number]
            assert engine.undo(journal) == []
            points += 1
            shutil.rmtree(folder)
    assert points >= 100


def test_a_full_disk_puts_the_old_value_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Writer.add
    for limit in (0, 1, 2, 3, 4, 5, 6, 20, 33, 34, 35, 36):
        journal = m.make(tmp_path / str(limit))
        left = [limit]

        def add(self: Writer, record: Record, left: list[int] = left) -> None:
            if left[0] == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            left[0] -= 1
            real(self, record)

        monkeypatch.setattr(Writer, "add", add)
        with pytest.raises(WellfedError, match="takes no more"):
            one(journal, ALWAYS, 0.5)
        monkeypatch.setattr(Writer, "add", real)
        assert m.values(journal) == m.OLD, limit
        engine.undo(journal)
        assert m.values(journal) == m.OLD and engine.status(journal) == [], limit
