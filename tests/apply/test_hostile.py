"""Journals that somebody has been at, and targets that are no settings."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_host as m
import pytest

from wellfed.apply import deadman, engine
from wellfed.apply.journal import Journal
from wellfed.model import WellfedError


def _resealed(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """A journal that somebody has rewritten, with sums that are right again."""
    told = [json.loads(line) for line in path.read_text().splitlines()]
    previous, lines = "0" * 64, b""
    for seq, record in enumerate(change(told)):
        record = {**record, "seq": seq, "sha256_of_previous": previous}
        del record["sha256"]
        body = json.dumps(record, separators=(",", ":")).encode()[:-1]
        line = body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'
        lines, previous = lines + line, hashlib.sha256(line).hexdigest()
    path.write_bytes(lines)


@pytest.mark.parametrize(
    "change",
    [
        lambda told: [{k: v for k, v in one.items() if k != "new"} for one in told],
        lambda told: [{k: v for k, v in one.items() if k != "target"} for one in told],
        lambda told: [{**one, "txid": "00009-20200101T000000"} for one in told],
        lambda told: [*told[:-1], {**told[-1], "type": "paused"}],  # of a later version
    ],
)
def test_a_journal_that_was_rewritten_is_refused_and_left_as_it_is(change: Any, tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, [m.change("sysctl", "vm.stat_interval", "7")])
    (name,) = journal.names()
    _resealed(journal.path(name), change)
    was = journal.path(name).read_bytes()
    for attempt in (engine.undo, engine.status, lambda j: engine.apply(j, m.THREE)):
        with pytest.raises(WellfedError, match="is damaged in line"):
            attempt(journal)
    assert journal.path(name).read_bytes() == was and m.values(journal)["stat"] == "7"


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_line_that_is_gone_is_seen_also_near_the_end(lost: int, tmp_path: Path) -> None:
    """Only a line whose writing was cut off is dropped; the last one, whole, does not follow when one before it is gone."""
    journal = m.make(tmp_path)
    engine.apply(journal, [m.change("sysctl", "vm.stat_interval", "7")])
    (name,) = journal.names()
    lines = journal.path(name).read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    journal.path(name).write_bytes(b"".join(lines[: lost - 1] + lines[lost:]))
    with pytest.raises(WellfedError, match=f"is damaged in line {lost}"):
        engine.undo(journal)


def test_journals_that_have_changed_places(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    for name, value in (("vm.stat_interval", "7"), ("vm.stat_interval", "9")):
        engine.apply(journal, [m.change("sysctl", name, value)])
    a, b = map(journal.path, journal.names())
    one, other = a.read_bytes(), b.read_bytes()
    a.write_bytes(other)
    b.write_bytes(one)
    with pytest.raises(WellfedError, match="is damaged in line 1"):
        engine.undo(journal)


def test_a_damaged_transaction_does_not_keep_an_overdue_one_from_being_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made it may be cut off until it is."""
    monkeypatch.setattr(deadman, "arm", lambda *_: 0)
    journal = m.make(tmp_path)
    engine.apply(journal, [m.change("thp", "enabled", "always")])
    engine.apply(journal, [m.change("sysctl", "vm.stat_interval", "7")], confirm_within_s=0.0)
    damaged = journal.path(journal.names()[0])
    damaged.write_bytes(damaged.read_bytes().replace(b"madvise", b"xxxxxxx"))
    (done,) = engine.revert_overdue(journal)
    assert (done.target, done.outcome) == ("vm.stat_interval", "reverted")
    assert (m.values(journal)["stat"], m.values(journal)["thp"]) == ("1", "always")
    with pytest.raises(WellfedError, match="is damaged in line"):
        engine.undo(journal)


def test_a_pipe_among_the_journals_is_not_waited_for(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    journal.folder.mkdir(parents=True)
    os.mkfifo(journal.folder / "00001-20300101T000000.jsonl")
    for attempt in (engine.status, engine.undo):
        with pytest.raises(WellfedError, match="no regular file"):
            attempt(journal)


ORDERS = """/sys/fs/cgroup/x.slice/cgroup.kill /sys/fs/cgroup/x.slice/cgroup.procs /sys/fs/cgroup/x.slice/cgroup.freeze
/sys/bus/pci/devices/0000:00:00.0/config /sys/bus/pci/devices/*/rom /sys/bus/pci/devices/0000:00:00.0/resource0
/sys/bus/pci/devices/0000:00:00.0/enable /sys/devices/pci0000:00/0000:00:01.0/reset_subordinate /sys/bus/pci/slots/1/power
/sys/class/nvme/nvme0/reset_controller /sys/class/nvme/nvme0/delete_controller /sys/class/scsi_host/host0/scan
/sys/fs/ext4/sda1/trigger_fs_error /sys/devices/system/memory/memory1/state /sys/bus/memory/devices/memory*/online
/sys/devices/system/memory/hard_offline_page /sys/kernel/kexec_crash_size /sys/kernel/uevent_helper /sys/power/resume
/sys/module/firmware_class/parameters/path /sys/kernel/livepatch/x/enabled /sys/block/md0/md/array_state
/sys/block/zram0/disksize /sys/class/net/bonding_masters /sys/kernel/mm/hugepages/hugepages-2048kB/demote
/proc/sys/kernel/usermodehelper/bset /proc/sys/kernel/tainted /proc/sys/net/ipv4/conf/all/forwarding
/proc/sys/net/ipv6/conf/all/forwarding""".split()  # noqa: SIM905


@pytest.mark.parametrize("path", ORDERS)
def test_what_has_no_way_back_is_not_written(path: str, tmp_path: Path) -> None:
    kind, target = ("sysctl", path[10:].replace("/", ".")) if path.startswith("/proc") else ("sysfs", path)
    with pytest.raises(WellfedError, match="is not changed"):
        engine.apply(m.make(tmp_path), [m.change(kind, target, "1")])


def test_an_order_is_none_by_another_name_either(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    folder = journal.root.outside("/sys/devices/x")
    folder.mkdir(parents=True)
    (folder / "reset").write_text("0\n")
    (folder / "alias").symlink_to("reset")
    (done,) = engine.apply(journal, [m.change("sysfs", "/sys/devices/x/alias", "1")])
    assert done.outcome == "failed" and "an order, not a setting" in (done.note or "")
    assert (folder / "reset").read_text() == "0\n"


@pytest.mark.parametrize(
    "kind,target,cuts",
    [
        ("sysfs", "/sys/class/net/eth0/mtu", True),
        ("sysfs", "/sys/bus/virtio/devices/virtio0/net/eth0/mtu", True),
        ("sysfs", "/sys/class/net/bond0/bonding/active_slave", True),
        ("sysfs", "/sys/class/net/br0/brif/eth0/state", True),
        ("sysctl", "net.ipv4.tcp_mem", True),
        ("sysfs", "/sys/class/net/eth0/queues/rx-0/rps_cpus", False),
        ("sysctl", "net.core.somaxconn", False),
        ("service", "frr", True),
        ("service", "multipathd", True),
        ("service", "open-iscsi", True),
        ("service", "ifup@eth0", True),
        ("service", "irqbalance", False),
    ],
)
def test_what_may_cut_the_network_by_any_name(kind: str, target: str, cuts: bool) -> None:
    assert engine.cuts_network(m.change(kind, target, "1")) == cuts


@pytest.mark.parametrize("new,is_refused", [("600", True), ("400", False), ("0", False)])
def test_more_huge_pages_than_there_is_memory_are_not_asked_for(
    new: str, is_refused: bool, tmp_path: Path
) -> None:
    """The kernel would end programs for them first, and then say that there are fewer."""
    journal = m.make(tmp_path)
    journal.root.outside("/proc/meminfo").write_text("MemAvailable: 1048576 kB\nHugepagesize: 2048 kB\n")
    pool = journal.root.outside("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    pool.write_text("10\n")
    (done,) = engine.apply(journal, [m.change("hugepages", "2048kB", new)])
    assert (done.outcome == "failed") == is_refused and pool.read_text() == (
        "10\n" if is_refused else f"{new}\n"
    )
    assert not is_refused or "programs would be ended" in (done.note or "")


def test_the_hint_of_an_error_names_the_same_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the line that is told finds nothing to undo, and says so."""
    monkeypatch.setattr(deadman, "arm", lambda *_: 0)
    journal = Journal(m.make(tmp_path).root, tmp_path / "my journal")
    engine.apply(journal, m.THREE, confirm_within_s=60.0)
    with pytest.raises(WellfedError) as caught:
        engine.apply(journal, m.THREE)
    assert str(caught.value.hint).count(f"--journal '{tmp_path}/my journal'") == 2
    assert m.make(tmp_path / "other").option == ""
