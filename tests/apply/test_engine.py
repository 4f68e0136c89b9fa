"""What goes wrong with knobs, with others, and with the journal."""

import errno
import os
from pathlib import Path

import fake_host as m
import pytest

from wellfed.apply import engine
from wellfed.apply.journal import Journal, Writer
from wellfed.apply.knobs import FILE_KINDS, FileKind, SysctlKind
from wellfed.apply.root import Root
from wellfed.apply.values import same
from wellfed.model import WellfedError


def stat(journal: Journal) -> str:
    return m.text(journal, f"{m.SYSCTL}/stat_interval")


def test_there_and_back(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    done = engine.apply(journal, m.THREE)
    assert [one.outcome for one in done] == ["applied"] * 3
    assert [one.outcome for one in engine.status(journal)] == ["same"] * 3
    assert journal.folder.stat().st_mode & 0o777 == 0o700
    assert journal.path(journal.names()[0]).stat().st_mode & 0o777 == 0o600
    assert [one.target for one in engine.undo(journal)] == ["2048kB", "enabled", "vm.stat_interval"]
    assert m.values(journal) == m.OLD


def test_what_is_so_already_is_not_written(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    assert [one.outcome for one in engine.apply(journal, [m.change("thp", "enabled", "madvise")])] == [
        "already"
    ]
    assert journal.names() == []


class Silent(SysctlKind):
    """Takes every value and keeps none."""

    def write(self, root: Root, target: str, value: str | None) -> None:
        pass


class Half(FileKind):
    """Gives half of the pages asked for, as a fragmented machine does."""

    def write(self, root: Root, target: str, value: str | None) -> None:
        super().write(root, target, str(int(value or 0) // 2))


class Denied(SysctlKind):
    def write(self, root: Root, target: str, value: str | None) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def test_a_write_that_does_not_stick_is_no_success(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    (done,) = engine.apply(journal, [m.STAT], {"sysctl": Silent()})
    assert done.outcome == "failed" and "did not stick" in (done.note or "")
    assert engine.undo(journal) == []


def test_pages_given_in_part_are_given_back(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    kinds = {"hugepages": Half("/sys/kernel/mm/hugepages/hugepages-{}/nr_hugepages")}
    (done,) = engine.apply(journal, [m.change("hugepages", "2048kB", "8")], kinds)
    assert done.outcome == "failed" and m.values(journal) == m.OLD


def test_a_refusal_does_not_stop_the_others(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    kinds = {**FILE_KINDS, "sysctl": Denied()}
    assert [one.outcome for one in engine.apply(journal, m.THREE, kinds)] == ["failed", "applied", "applied"]


@pytest.mark.parametrize(
    "kind,target,new,why",
    [
        ("thp", "enabled", "sometimes", "takes always, madvise, never"),
        ("sysctl", "kernel.sched_latency_ns", "1", "No such file"),
    ],
)
def test_what_can_be_seen_beforehand_is_not_tried(
    kind: str, target: str, new: str, why: str, tmp_path: Path
) -> None:
    (done,) = engine.apply(m.make(tmp_path), [m.change(kind, target, new)])
    assert done.outcome == "failed" and why in (done.note or "")


def test_a_read_only_mount_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = m.make(tmp_path)

    class Mounted:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda _: Mounted())
    (done,) = engine.apply(journal, [m.STAT])
    assert done.outcome == "failed" and "read-only" in (done.note or "") and stat(journal) == "1"


def test_twins_go_back_to_the_one_that_was_in_force(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    root = journal.root

    class Twins(SysctlKind):
        """As the kernel: setting one of the pair makes the other 0, and 0 is refused for bytes."""

        def write(self, root: Root, target: str, value: str | None) -> None:
            assert value != "0"
            super().write(root, target, value)
            name = "vm.dirty_ratio" if "=" in (value or "") or "ratio" in target else "vm.dirty_bytes"
            other = "vm.dirty_bytes" if name == "vm.dirty_ratio" else "vm.dirty_ratio"
            root.write(self.path(other), "0")

    kinds = {"sysctl": Twins()}
    engine.apply(journal, [m.change("sysctl", "vm.dirty_bytes", "1000000")], kinds)
    assert root.read(f"/{m.SYSCTL}/dirty_bytes") == "1000000"
    assert root.read(f"/{m.SYSCTL}/dirty_ratio") == "0"
    engine.undo(journal, kinds=kinds)
    assert root.read(f"/{m.SYSCTL}/dirty_ratio") == "20"
    assert root.read(f"/{m.SYSCTL}/dirty_bytes") == "0"


def test_another_s_value_is_left_alone(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, [m.STAT])
    (tmp_path / m.SYSCTL / "stat_interval").write_text("5\n")
    assert [one.outcome for one in engine.status(journal)] == ["changed"]
    assert [one.outcome for one in engine.undo(journal)] == ["drift"]
    assert stat(journal) == "5"
    assert [one.outcome for one in engine.undo(journal, force=True)] == ["reverted"]
    assert stat(journal) == "1"


def test_after_a_reboot_nothing_is_written(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, [m.STAT])
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-two\n")
    assert [one.outcome for one in engine.status(journal)] == ["void"]
    assert [one.outcome for one in engine.undo(journal)] == ["void"]
    assert stat(journal) == "7" and engine.undo(journal) == []


def test_a_knob_that_is_gone(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, [m.STAT])
    (tmp_path / m.SYSCTL / "stat_interval").unlink()
    assert [one.outcome for one in engine.status(journal)] == ["missing"]
    assert [one.outcome for one in engine.undo(journal)] == ["drift"]


def test_one_at_a_time(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    with journal.locked(), pytest.raises(WellfedError, match="another"):
        engine.apply(Journal(journal.root, tmp_path / "elsewhere"), [m.STAT])
    assert stat(journal) == "1"


def test_one_transaction_of_several(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, [m.STAT])
    engine.apply(journal, [m.change("sysctl", "vm.stat_interval", "9")])
    first, second = journal.names()
    assert [one.outcome for one in engine.undo(journal, first)] == ["drift"]
    engine.undo(journal, second)
    assert stat(journal) == "7"
    engine.undo(journal, first)
    assert stat(journal) == "1"


def test_no_journal_no_change(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(WellfedError, match="journal"):
        engine.apply(Journal(journal.root, tmp_path / "file"), [m.STAT])
    assert stat(journal) == "1"


@pytest.mark.parametrize("room", range(5))
def test_a_full_disk(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever record has no room: nothing is written without its intent, and undo needs no room."""
    journal = m.make(tmp_path)
    left = [room]
    real = Writer.add

    def add(self: Writer, record: object) -> None:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        real(self, record)  # type: ignore[arg-type]

    monkeypatch.setattr(Writer, "add", add)
    if room < 4:
        with pytest.raises(WellfedError, match="No space left"):
            engine.apply(journal, [m.STAT])
    else:
        engine.apply(journal, [m.STAT])
    assert stat(journal) == ("1" if room < 2 else "7")
    engine.undo(journal)
    assert stat(journal) == "1"


def test_a_damaged_middle_is_refused_with_what_is_known(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    engine.apply(journal, m.THREE)
    path = journal.path(journal.names()[0])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"{}\n", *lines[4:]]))
    with pytest.raises(WellfedError, match=r"damaged in line 4.*vm\.stat_interval was 1"):
        engine.undo(journal)
    assert m.values(journal) == m.NEW


@pytest.mark.parametrize(
    "kind,target",
    [
        ("sysctl", "../../etc/passwd"),
        ("sysctl", "..etc.passwd"),
        ("sysctl", "/etc/passwd"),
        ("sysctl", "vm/../../../etc/passwd"),
        ("sysctl", "kernel.core_pattern"),
        ("sysctl", "vm.drop_caches"),
        ("sysfs", "../../etc/passwd"),
        ("sysfs", "/etc/passwd"),
        ("sysfs", "/sys/../etc/passwd"),
        ("sysfs", "/sys/link"),
        ("thp", "../../../../etc/passwd"),
        ("block", "sda/queue/../../x"),
        ("cgroup", "/sys/kernel/mm/ksm/run"),
        ("irq_affinity", "../x"),
        ("cgroup", "/sys/fs/cgroup/x/cgroup.kill"),
        ("cgroup", "/sys/fs/cgroup/x/cgroup.procs"),
        ("sysfs", "/sys/bus/pci/devices/0000:00:01.0/remove"),
        ("sysfs", "/sys/class/net/eth0/device/sriov_numvfs"),
        ("sysfs", "/sys/firmware/efi/efivars/x"),
        ("sysctl", "net.ipv6.conf.all.disable_ipv6"),
        ("sysctl", "net.ipv4.ip_forward"),
        ("hold", "cpu"),
        ("mount", "data:atime"),
        ("nonsense", "x"),
    ],
)
def test_targets_that_are_no_knobs(kind: str, target: str, tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("old")
    (tmp_path / "sys/link").symlink_to(tmp_path / "etc/passwd")
    with pytest.raises(WellfedError):
        engine.apply(journal, [m.STAT, m.change(kind, target, "new")])
    assert (tmp_path / "etc/passwd").read_text() == "old"
    assert stat(journal) == "1", "nothing is written when one of the targets is none"


def test_one_value_in_several_spellings() -> None:
    assert same("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456", "4096 131072 6291456")
    assert same("/proc/irq/1/smp_affinity", "00000000,0000000f", "f")
    assert same("/proc/irq/1/smp_affinity_list", "0-3", "0,1,2,3")
    assert same("/sys/x", "0x10", "16") and not same("/sys/x", "10", "16")
    assert same("/sys/x", "always [madvise] never", "madvise")
    assert not same("/sys/x", None, "0")


def test_a_star_stands_for_several(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    for number in (0, 10, 2):
        place = tmp_path / f"sys/devices/system/cpu/cpufreq/policy{number}"
        place.mkdir(parents=True)
        (place / "scaling_governor").write_text("powersave\n")
        (place / "scaling_available_governors").write_text("performance powersave\n")
    done = engine.apply(journal, [m.change("governor", "policy*", "performance")])
    assert [(one.target, one.outcome) for one in done] == [(f"policy{n}", "applied") for n in (0, 2, 10)]
    assert len(engine.undo(journal)) == 3


def test_two_processes_at_once(tmp_path: Path) -> None:
    """Several start together, each with its own value: one after the other or refused, and the first original counts."""
    journal = m.make(tmp_path)
    children = []
    for number in range(6):
        child = os.fork()
        if child == 0:
            code = 3
            try:
                engine.apply(journal, [m.change("sysctl", "vm.stat_interval", str(10 + number))])
                code = 0
            except WellfedError as error:
                code = 1 if "another" in str(error) else 2
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert set(codes) <= {0, 1} and 0 in codes
    assert len(journal.names()) == codes.count(0)
    assert engine.ops_of(journal.read(journal.names()[-1]))[0].new == stat(journal)
    engine.undo(journal)
    assert stat(journal) == "1"


def test_the_order_of_changes() -> None:
    """Whoever sets knobs by himself is stopped first; a governor before its preference; CPUs and the network last."""
    last_first = [
        m.change("ethtool", "eth1/rings/rx", "1"),
        m.change("sysfs", "/sys/devices/system/cpu/smt/control", "off"),
        m.change("epp", "policy*", "performance"),
        m.change("irq_affinity", "24", "0"),
        m.change("governor", "policy*", "performance"),
        m.change("service", "irqbalance", "stopped"),
    ]
    assert engine.in_order(last_first) == last_first[::-1]


def test_a_preference_that_is_locked_under_some_governors(tmp_path: Path) -> None:
    """As with intel_pstate: under `performance` the preference can't be set. Both are the old ones afterwards."""
    journal = m.make(tmp_path)
    place = tmp_path / "sys/devices/system/cpu/cpufreq/policy0"
    place.mkdir(parents=True)
    (place / "scaling_governor").write_text("performance\n")
    (place / "energy_performance_preference").write_text("default\n")

    class Locked(FileKind):
        def write(self, root: Root, target: str, value: str | None) -> None:
            if (place / "scaling_governor").read_text() == "performance\n":
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            super().write(root, target, value)

    kinds = {**FILE_KINDS, "epp": Locked(FILE_KINDS["epp"].pattern, rank=1)}  # type: ignore[attr-defined]
    changes = [
        m.change("epp", "policy0", "balance_performance"),
        m.change("governor", "policy0", "powersave"),
    ]
    assert [one.outcome for one in engine.apply(journal, changes, kinds)] == ["applied", "applied"]
    engine.undo(journal, kinds=kinds)
    assert (place / "scaling_governor").read_text() == "performance\n"
    assert (place / "energy_performance_preference").read_text() == "default\n"


@pytest.mark.parametrize("restores", [True, False], ids=["the kernel restores it", "it stays"])
def test_a_preference_that_the_governor_performance_fixes(tmp_path: Path, restores: bool) -> None:
    """As intel_pstate and amd_pstate have it: `performance` sets the preference too, and under it others are refused."""
    journal = m.make(tmp_path)
    place = tmp_path / "sys/devices/system/cpu/cpufreq/policy0"
    place.mkdir(parents=True)
    governor, preference = place / "scaling_governor", place / "energy_performance_preference"
    governor.write_text("powersave\n")
    preference.write_text("balance_power\n")

    class Governor(FileKind):
        def write(self, root: Root, target: str, value: str | None) -> None:
            super().write(root, target, value)
            if value == "performance":
                preference.write_text("performance\n")
            elif restores:
                preference.write_text("balance_power\n")

    class Preference(FileKind):
        def write(self, root: Root, target: str, value: str | None) -> None:
            if governor.read_text() == "performance\n" and value != "performance":
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            super().write(root, target, value)

    kinds = {
        **FILE_KINDS,
        "governor": Governor(FILE_KINDS["governor"].pattern),  # type: ignore[attr-defined]
        "epp": Preference(FILE_KINDS["epp"].pattern, rank=1),  # type: ignore[attr-defined]
    }
    changes = [m.change("epp", "policy0", "performance"), m.change("governor", "policy0", "performance")]
    done = engine.apply(journal, changes, kinds)
    assert {one.outcome for one in done} <= {"applied", "already"}
    assert {one.outcome for one in engine.undo(journal, kinds=kinds)} == {"reverted"}
    assert (governor.read_text(), preference.read_text()) == ("powersave\n", "balance_power\n")


def test_what_the_file_beside_the_knob_says(tmp_path: Path) -> None:
    journal = m.make(tmp_path)
    folder = "/sys/devices/system/cpu/cpufreq/policy"
    for number, most in ((0, "3600000"), (1, "2900000")):
        place = tmp_path / f"{folder}{number}".lstrip("/")
        place.mkdir(parents=True)
        (place / "scaling_max_freq").write_text("1000000\n")
        (place / "cpuinfo_max_freq").write_text(f"{most}\n")
    done = engine.apply(journal, [m.change("sysfs", f"{folder}*/scaling_max_freq", "@cpuinfo_max_freq")])
    assert [(one.outcome, one.new) for one in done] == [("applied", "3600000"), ("applied", "2900000")]
    for new in ("@nothing", "@../../x"):
        (done_too,) = engine.apply(journal, [m.change("sysfs", f"{folder}0/scaling_max_freq", new)])
        assert done_too.outcome == "failed" and done_too.note


def test_an_interrupt_that_the_kernel_places_itself(tmp_path: Path) -> None:
    """Managed interrupts answer EIO; that is no fault, and said as what it is."""
    journal = m.make(tmp_path)
    (tmp_path / "proc/irq/24").mkdir(parents=True)
    (tmp_path / "proc/irq/24/smp_affinity_list").write_text("0-3\n")
    root_write = Root.write

    def write(self: Root, name: str, value: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    try:
        Root.write = write  # type: ignore[method-assign]
        (done,) = engine.apply(journal, [m.change("irq_affinity", "24", "1")])
    finally:
        Root.write = root_write  # type: ignore[method-assign]
    assert done.outcome == "failed" and done.note == "the kernel places this interrupt itself"
    (done,) = engine.apply(journal, [m.change("irq_affinity", "24", "0,1,2,3")])
    assert done.outcome == "already"
