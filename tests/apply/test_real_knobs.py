"""The same on knobs of the very kernel that runs this: killed at every step, cut at every byte, and back to the first
original, byte by byte. Root only."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import fake_host as m
import pytest

from wellfed.apply import engine
from wellfed.apply.journal import Journal
from wellfed.apply.kinds import KINDS
from wellfed.apply.root import Root
from wellfed.model import Change

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("knobs")]

VM = "/proc/sys/vm"
HUGE = "/sys/kernel/mm/transparent_hugepage"
FILES = {
    f"{VM}/stat_interval": ("sysctl", "vm.stat_interval", "7", "8"),
    f"{HUGE}/khugepaged/scan_sleep_millisecs": ("thp", "khugepaged/scan_sleep_millisecs", "12345", "12346"),
    f"{HUGE}/enabled": ("thp", "enabled", "always", "never"),
    f"{VM}/dirty_background_bytes": ("sysctl", "vm.dirty_background_bytes", "67108864", "67112960"),
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": ("hugepages", "2048kB", "4", "5"),
}
TWINS = [f"{VM}/{name}" for name in ("dirty_background_ratio", "dirty_bytes", "dirty_ratio")]
ROOT = Root("/")


def texts() -> dict[str, str]:
    return {name: Path(name).read_text() for name in (*FILES, *TWINS)}


@pytest.fixture
def changes() -> Iterator[list[Change]]:
    """A change for each knob; afterwards the machine is as it was, or the test has failed and says so."""
    try:
        first = texts()
    except OSError as error:
        pytest.skip(f"{error.filename}: {error.strerror}")
    made = []
    for name, (kind, target, new, other) in FILES.items():
        old = KINDS[kind].read(ROOT, target)
        made.append(m.change(kind, target, other if old == new else new))
        if (why := KINDS[kind].obstacle(ROOT, target, made[-1].new)) is not None:
            pytest.skip(f"{name}: {why}")
    olds = {(one.kind, one.target): KINDS[one.kind].read(ROOT, one.target) for one in made}
    yield made
    if texts() != first:
        for (kind, target), old in olds.items():
            KINDS[kind].write(ROOT, target, old)
        pytest.fail(f"the machine was not as before: {first} became {texts()}")


def old_or_new(made: list[Change], olds: dict[str, str | None]) -> None:
    for one in made:
        now = KINDS[one.kind].read(ROOT, one.target)
        assert now in (olds[one.target], one.new), (one.target, now)


def test_killed_at_every_step_and_at_every_step_of_the_recovery(
    changes: list[Change], tmp_path: Path
) -> None:
    first = texts()
    olds = {one.target: KINDS[one.kind].read(ROOT, one.target) for one in changes}
    made = Journal(ROOT, tmp_path / "all")
    applying = m.points(lambda: engine.apply(made, changes))
    undoing = m.points(lambda: engine.undo(made))
    assert (len(applying), len(undoing)) == (2 + 3 * len(FILES), 1 + 3 * len(FILES))
    kills = 0
    for step in range(len(applying)):
        # The second process may die too: at every second of its steps, odd or even in turn.
        for second in (None, *range(step % 2, len(undoing), 2)):
            journal = Journal(ROOT, tmp_path / f"{step}-{second}")
            assert m.killed(lambda j=journal: engine.apply(j, changes), step), applying[step]
            kills += 1
            old_or_new(changes, olds)
            if second is not None:
                kills += m.killed(lambda j=journal: engine.undo(j), second)
                old_or_new(changes, olds)
            engine.undo(journal)
            assert texts() == first, (applying[step], second)
    for step in range(len(undoing)):
        for second in (None, step % 3, 3 + step % 5):
            journal = Journal(ROOT, tmp_path / f"undo-{step}-{second}")
            engine.apply(journal, changes)
            assert m.killed(lambda j=journal: engine.undo(j), step), undoing[step]
            kills += 1
            old_or_new(changes, olds)
            if second is not None:
                kills += m.killed(lambda j=journal: engine.undo(j), second)
                old_or_new(changes, olds)
            engine.undo(journal)
            assert texts() == first, (undoing[step], second)
    assert kills >= 200


def test_the_last_record_cut_at_every_byte(
    changes: list[Change], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the choice of THP: whatever is left of the last record, the first original comes back."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    first, change = texts(), changes[2]
    kind = KINDS[change.kind]
    whole = Journal(ROOT, tmp_path / "whole")
    steps = m.points(lambda: engine.apply(whole, [change]))
    engine.undo(whole)
    cuts = 0
    for number, step in enumerate(steps):
        if not step.endswith("on-disk"):
            continue
        journal = Journal(ROOT, tmp_path / str(number))
        assert m.killed(lambda j=journal: engine.apply(j, [change]), number)
        path = journal.path(journal.names()[0])
        data, value = path.read_bytes(), kind.read(ROOT, change.target)
        for at in range(data.rstrip(b"\n").rfind(b"\n") + 1, len(data)):
            path.write_bytes(data[:at])
            if kind.read(ROOT, change.target) != value:
                kind.write(ROOT, change.target, value)
            engine.undo(journal)
            assert texts() == first, (step, at)
            cuts += 1
    assert cuts >= 1000


def test_a_third_transaction_after_two_that_were_killed(changes: list[Change], tmp_path: Path) -> None:
    first = texts()
    journal = Journal(ROOT, tmp_path)
    for steps, value in ((4, "7"), (3, "9"), (99, "11")):
        m.killed(lambda v=value: engine.apply(journal, [m.change("sysctl", "vm.stat_interval", v)]), steps)
    assert Path(f"{VM}/stat_interval").read_text() == "11\n"
    engine.undo(journal)
    assert texts() == first


@pytest.mark.parametrize(
    "kind,target,new",
    [
        ("sysctl", "vm.stat_interval", "often"),
        ("sysctl", "vm.dirty_bytes", "1"),
        ("thp", "khugepaged/max_ptes_none", "99999"),
    ],
)
def test_a_value_that_the_kernel_refuses(
    kind: str, target: str, new: str, changes: list[Change], tmp_path: Path
) -> None:
    first = texts()
    (done,) = engine.apply(Journal(ROOT, tmp_path), [m.change(kind, target, new)])
    assert done.outcome == "failed" and "refused: Invalid argument" in (done.note or "")
    assert texts() == first and engine.undo(Journal(ROOT, tmp_path)) == []


def test_a_value_that_the_kernel_rounds_in_silence(tmp_path: Path) -> None:
    """Readahead is kept in pages: 5 KiB are taken without a word and become 4."""
    files = sorted(Path("/sys/block").glob("*/queue/read_ahead_kb"))
    if not files:
        pytest.skip("no block device")
    old = files[0].read_text()
    (done,) = engine.apply(
        Journal(ROOT, tmp_path), [m.change("block", f"{files[0].parts[3]}/queue/read_ahead_kb", "5")]
    )
    assert done.outcome == "failed" and done.note == "it did not stick: 5 was written, it reads 4"
    assert files[0].read_text() == old


def test_twins_of_the_kernel(changes: list[Change], tmp_path: Path) -> None:
    """Both directions: bytes where a ratio is in force, and that ratio again over bytes of somebody else."""
    first = texts()
    journal = Journal(ROOT, tmp_path)
    engine.apply(journal, [m.change("sysctl", "vm.dirty_bytes", "268435456")])
    assert Path(f"{VM}/dirty_ratio").read_text() == "0\n"
    engine.apply(journal, [m.change("sysctl", "vm.dirty_ratio", "33")])
    assert Path(f"{VM}/dirty_bytes").read_text() == "0\n"
    engine.undo(journal, journal.names()[-1])
    assert Path(f"{VM}/dirty_bytes").read_text() == "268435456\n"
    engine.undo(journal)
    assert texts() == first


def test_set_by_somebody_else_in_between(changes: list[Change], tmp_path: Path) -> None:
    journal = Journal(ROOT, tmp_path)
    file = Path(f"{VM}/stat_interval")
    old = file.read_text()
    try:
        engine.apply(journal, changes)
        file.write_text("77\n")
        done = {one.target: one.outcome for one in engine.undo(journal)}
        assert done.pop("vm.stat_interval") == "drift" and set(done.values()) == {"reverted"}
        assert file.read_text() == "77\n"
    finally:
        file.write_text(old)


_IN_NAMESPACE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import fake_host as m
from wellfed.apply import engine
from wellfed.apply.journal import Journal
from wellfed.apply.kinds import KINDS
from wellfed.apply.root import Root
root = Root("/")
try:
    KINDS["sysctl"].write(root, "vm.stat_interval", "7")
    number = 0
except OSError as error:
    number = error.errno
(done,) = engine.apply(Journal(root, Path(sys.argv[2])), [m.change("sysctl", "vm.stat_interval", "7")])
print(json.dumps([number, done.outcome, done.note]))
"""


def test_proc_sys_that_is_mounted_read_only(changes: list[Change], tmp_path: Path) -> None:
    """As in containers, privileged ones too: seen beforehand, and nothing is tried."""
    mount = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys"
    done = m.in_mount_namespace(mount, _IN_NAMESPACE, tmp_path / "journal")
    if done.returncode != 0 and "Error" not in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    number, outcome, note = json.loads(done.stdout)
    assert (number, outcome) == (30, "failed") and "mounted read-only" in note
    assert not (tmp_path / "journal").exists() or Journal(ROOT, tmp_path / "journal").names() == []


def test_a_latency_held_on_this_machine(tmp_path: Path) -> None:
    root, journal = ROOT, Journal(ROOT, tmp_path)
    kind = KINDS["hold"]
    if (why := kind.obstacle(root, "cpu_dma_latency", "3")) is not None:
        pytest.skip(why)
    if kind.read(root, "cpu_dma_latency") is not None:
        pytest.skip("somebody holds a latency here")
    before = Path("/dev/cpu_dma_latency").read_bytes()
    (done,) = engine.apply(journal, [m.change("hold", "cpu_dma_latency", "3")])
    assert done.outcome == "applied", done.note
    assert int.from_bytes(Path("/dev/cpu_dma_latency").read_bytes(), "little") <= 3
    assert [one.outcome for one in engine.undo(journal)] == ["reverted"]
    assert Path("/dev/cpu_dma_latency").read_bytes() == before
