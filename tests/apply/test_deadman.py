"""What nobody confirms is undone: by the process that waits, or by the next call when that one is gone."""

import os
import signal
import time
from pathlib import Path

import fake_host as m
import pytest

from wellfed.apply import commands, deadman, engine
from wellfed.apply.journal import Journal
from wellfed.model import WellfedError


def stat(journal: Journal) -> str:
    return m.text(journal, f"{m.SYSCTL}/stat_interval")


def becomes(journal: Journal, value: str) -> bool:
    """Within a time that is generous on a busy machine."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if stat(journal) == value and not engine.waiting(journal):
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that wait, as they are started."""
    found: list[int] = []
    real = deadman.arm
    monkeypatch.setattr(deadman, "arm", lambda *args: found.append(real(*args)))
    return found


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for anything."""
    monkeypatch.setattr(deadman, "arm", lambda *_: 0)


def gone(pid: int) -> bool:
    """Whether a child of ours has ended; it is reaped then."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return True
        time.sleep(0.02)
    return False


def test_undone_when_nobody_confirms(tmp_path: Path, pids: list[int]) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, m.THREE, confirm_within_s=0.3)
    assert gone(*pids) and m.values(journal) == m.OLD
    assert [record.type for record in journal.read(journal.names()[0])][-2:] == ["end", "expired"]


def test_kept_when_somebody_does(tmp_path: Path, pids: list[int]) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, m.THREE, confirm_within_s=60)
    assert 0 < engine.waiting(journal)[journal.names()[0]] <= 60
    assert engine.confirm(journal) == journal.names()
    assert engine.waiting(journal) == {} and gone(*pids)
    assert m.values(journal) == m.NEW
    engine.undo(journal)
    assert m.values(journal) == m.OLD


def test_the_one_who_changes_it_dies_under_way(tmp_path: Path) -> None:
    """Cut off by its own change: whatever was reached is undone."""
    for step in (3, 6, 9):
        journal = m.make(tmp_path / str(step))
        assert m.killed(lambda j=journal: engine.apply(j, m.THREE, confirm_within_s=0.3), step)
        assert becomes(journal, "1") and m.values(journal) == m.OLD


def test_the_one_who_waits_is_killed(tmp_path: Path, pids: list[int]) -> None:
    """The next call undoes it first, whatever it was called for."""
    for name in ("apply", "revert", "confirm"):
        journal = m.make(tmp_path / name)
        engine.apply(journal, [m.STAT], confirm_within_s=0.4)
        os.kill(pids[-1], signal.SIGKILL)
        assert gone(pids[-1]) and stat(journal) == "7"
        while engine.waiting(journal)[journal.names()[0]] > 0:
            time.sleep(0.02)
        if name == "apply":
            engine.apply(journal, [m.change("thp", "enabled", "always")])
        elif name == "revert":
            assert [one.outcome for one in engine.revert_overdue(journal)] == ["reverted"]
        else:
            with pytest.raises(WellfedError, match="too late"):
                engine.confirm(journal)
        assert stat(journal) == "1"


@pytest.mark.usefixtures("alone")
def test_killed_at_every_step_of_the_revert(tmp_path: Path) -> None:
    journal = m.make(tmp_path / "all")
    engine.apply(journal, m.THREE, confirm_within_s=0.0001)
    steps = m.points(lambda: engine.revert_overdue(journal))
    assert len(steps) == 3 * 3 + 2
    for number in range(len(steps)):
        journal = m.make(tmp_path / str(number))
        engine.apply(journal, m.THREE, confirm_within_s=0.0001)
        assert m.killed(lambda j=journal: engine.revert_overdue(j), number)
        engine.revert_overdue(journal)
        assert m.values(journal) == m.OLD and engine.waiting(journal) == {}


@pytest.mark.usefixtures("alone")
def test_another_s_value_is_left_alone_and_said_once(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, [m.STAT], confirm_within_s=0.0001)
    (tmp_path / m.SYSCTL / "stat_interval").write_text("5\n")
    assert [one.outcome for one in engine.revert_overdue(journal)] == ["drift"]
    assert engine.revert_overdue(journal) == [] and stat(journal) == "5"


@pytest.mark.usefixtures("alone")
def test_rebooted_before_it_was_confirmed(tmp_path: Path) -> None:
    """What lasts is undone, what does not is void; long before the time is up."""
    journal = m.make(tmp_path)
    (tmp_path / "etc").mkdir()
    path = "/etc/sysctl.d/90-wellfed.conf"
    engine.apply(journal, [m.STAT, m.change("dropin", path, "vm.stat_interval = 7\n")], confirm_within_s=600)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-two\n")
    (tmp_path / m.SYSCTL / "stat_interval").write_text("7\n")
    assert [one.outcome for one in engine.revert_overdue(journal)] == ["reverted", "void"]
    assert not (tmp_path / path.lstrip("/")).exists() and stat(journal) == "7"


@pytest.mark.usefixtures("alone")
def test_nothing_else_is_changed_meanwhile(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, [m.STAT], confirm_within_s=600)
    with pytest.raises(WellfedError, match="waits to be confirmed"):
        engine.apply(journal, [m.change("thp", "enabled", "always")])
    with pytest.raises(WellfedError, match=r"does not wait|no transaction"):
        engine.confirm(journal, "00009-20260101T000000")
    engine.undo(journal)
    assert engine.waiting(journal) == {} and stat(journal) == "1"
    with pytest.raises(WellfedError, match="does not wait"):
        engine.confirm(journal, journal.names()[0])


@pytest.mark.parametrize(
    "kind,target",
    [
        ("ethtool", "eth0/rings/rx"),
        ("service", "sshd"),
        ("sysfs", "/sys/class/net/eth0/mtu"),
        ("sysctl", "net.ipv4.conf.eth0.rp_filter"),
    ],
)
def test_what_may_cut_the_network_is_never_done_without(kind: str, target: str, tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    with pytest.raises(WellfedError, match="may cut the network"):
        engine.apply(journal, [m.STAT, m.change(kind, target, "1")])
    assert stat(journal) == "1" and journal.names() == []


def test_nobody_can_be_made_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = m.make(tmp_path)
    monkeypatch.setattr(deadman.sys, "executable", "/nowhere/python")
    with pytest.raises(WellfedError, match="nothing is changed"):
        engine.apply(journal, [m.STAT], confirm_within_s=60)
    assert stat(journal) == "1" and engine.waiting(journal) == {}


def test_the_timer_of_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where systemd runs it waits as well; that it can't be asked is no reason not to wait by ourselves."""
    asked: list[tuple[str, ...]] = []

    def run(name: str, /, **blanks: str) -> str:
        asked.append(commands.filled(name, **blanks))
        raise OSError(1, "no")

    monkeypatch.setattr(Path, "is_dir", lambda _: True)
    monkeypatch.setattr(deadman, "_spawn", lambda *_: 1)
    assert deadman.arm("00001-20260101T000000", 60, Journal(m.Root("/"), tmp_path), run) == 1
    deadman.disarm("00001-20260101T000000", run)
    start, stop = asked
    assert start[:1] == ("systemd-run",) and "--on-active=60.2s" in start
    assert start[-5:] == ("-m", "wellfed.apply.deadman", "0", "/", str(tmp_path))
    assert stop[-1] == "wellfed-undo-00001-20260101T000000.timer"
