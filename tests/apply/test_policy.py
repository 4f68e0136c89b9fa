"""Who has to agree to what, who else sets a knob, and what a dry run says of each."""

import errno
import itertools
import os
from pathlib import Path
from typing import get_args

import fake_host as m
import pytest

from wellfed.apply import policy
from wellfed.apply.dry_run import dry_run
from wellfed.apply.kinds import KINDS
from wellfed.apply.knobs import FileKind
from wellfed.apply.policy import Options, consent_of, missing_flag, notes_of, owner_of
from wellfed.apply.root import Root
from wellfed.check import changes
from wellfed.check.manual import Trust
from wellfed.model import Change, Machine, WellfedError
from wellfed.model.base import replace
from wellfed.model.change import Planned, Risk
from wellfed.model.machine import Container, Kernel

NOTHING, ALL = Options(), Options(yes=True, allow=frozenset({"X01"}), confirm=True)


def cure(kind: str = "sysctl", target: str = "vm.stat_interval", new: str = "7", **more: object) -> Change:
    known = {"risk": "safe", "evidence": "read", **more}
    return Change(code="X01", kind=kind, target=target, new=new, restore="", **known)  # type: ignore[arg-type]


def test_there_is_one_list_of_kinds() -> None:
    assert set(changes.KINDS) == set(KINDS) and policy.INSTRUCTION == changes.INSTRUCTION
    assert policy.INSTRUCTION not in KINDS and set(policy.KNOWN) < set(get_args(Trust))


# -- consent ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "risk,evidence", list(itertools.product(get_args(Risk), (*get_args(Trust), "memory", "none")))
)
def test_only_what_is_safe_and_known_is_made_unasked(risk: str, evidence: str) -> None:
    change = cure(risk=risk, evidence=evidence)
    unasked = missing_flag(change, NOTHING) is None and consent_of(change) != "instruction"
    assert unasked == (risk == "safe" and evidence in ("read", "measured", "verified"))
    assert (consent_of(change) == "instruction") == (risk == "reboot")
    if evidence in ("unverified", "memory", "none") and risk != "reboot":
        assert consent_of(change) == "named", "nobody has seen that it helps"


@pytest.mark.parametrize("risk,flag", [("safe", None), ("restart", "--yes"), ("unsafe", "--allow X01")])
def test_the_flag_that_is_told_is_the_one_that_does_it(risk: str, flag: str | None) -> None:
    change = cure(risk=risk)
    assert missing_flag(change, NOTHING) == flag
    assert missing_flag(change, ALL) is None
    # Agreeing to restarts is no naming, and naming is more.
    assert missing_flag(change, Options(yes=True)) == (flag if risk == "unsafe" else None)
    assert missing_flag(change, Options(allow=frozenset({"X01"}))) is None
    assert missing_flag(change, Options(allow=frozenset({"X02"}))) == flag


def test_what_outlives_the_boot_is_asked_for() -> None:
    assert consent_of(cure("dropin", "/etc/sysctl.d/90-wellfed.conf", "a = 1\n")) == "yes"
    assert consent_of(cure("service", "irqbalance", "stopped")) == "yes"


@pytest.mark.parametrize(
    "change",
    [
        cure("ethtool", "eth0/rings/rx", "4096"),
        cure("sysctl", "net.ipv4.conf.all.rp_filter", "0"),
        cure(cuts_network=True),
        cure("ethtool", "eth0/rings/rx", "4096", evidence=policy.USER),
    ],
)
def test_what_may_cut_the_network_needs_a_time_limit_whoever_names_it(change: Change) -> None:
    named = Options(yes=True, allow=frozenset({"X01"}))
    assert missing_flag(change, named) == policy.CONFIRM
    assert missing_flag(change, named._replace(confirm=True)) is None


@pytest.mark.parametrize("risk", get_args(Risk))
def test_the_user_s_own_list_is_named_by_the_user(risk: str) -> None:
    change = cure(risk=risk, evidence=policy.USER)
    assert missing_flag(change, NOTHING) is None and consent_of(change) == "auto"


# -- owners -----------------------------------------------------------------------------------------------


def machine(**kernel: object) -> Machine:
    return Machine(kernel=Kernel(**kernel))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change,seen,owner",
    [
        (cure(), machine(), None),
        (cure(), machine(active_services=("irqbalance",)), None),
        (
            cure("sysctl", "vm.swappiness", "10"),
            machine(sysctl_files={"vm.swappiness": "60 @ /etc/sysctl.d/90-x.conf"}),
            "/etc/sysctl.d/90-x.conf sets it to 60 at each start",
        ),
        (cure(), machine(active_services=("tuned",), tuned_profile="hpc"), "tuned (profile hpc)"),
        (cure(), machine(tuned_profile="hpc", active_services=("sshd",)), None),
        (cure("irq_affinity", "24", "0"), machine(active_services=("irqbalance",)), "irqbalance"),
        (
            cure("governor", "policy0", "performance"),
            machine(active_services=("power-profiles-daemon", "tlp", "tuned")),
            "tuned, power-profiles-daemon, tlp",
        ),
        (
            cure("nvml", "0000:18:00.0/persistence_mode", "1"),
            machine(active_services=("nvidia-persistenced",)),
            "nvidia-persistenced",
        ),
        (
            cure("nvml", "0000:18:00.0/power_limit", "500"),
            machine(active_services=("nvidia-persistenced",)),
            None,
        ),
        (cure("cgroup", "/sys/fs/cgroup/x/cpu.max", "max"), machine(active_services=("kubelet",)), "kubelet"),
        (cure("dropin", "/etc/sysctl.d/90-wellfed.conf", "x"), machine(active_services=("tuned",)), None),
    ],
)
def test_who_else_sets_it(change: Change, seen: Machine, owner: str | None) -> None:
    assert owner_of(change, seen) == owner


@pytest.mark.parametrize(
    "file,value,consent",
    [
        ("/etc/sysctl.d/99-site.conf", "60", "named"),
        ("/etc/sysctl.conf", "60", "named"),
        ("/usr/lib/tuned/hpc-compute/tuned.conf", "60", "named"),
        ("/usr/lib/sysctl.d/50-default.conf", "60", "auto"),  # came with the system
        ("/etc/sysctl.d/99-site.conf", "30", "auto"),  # it is not in force
    ],
)
def test_what_the_site_has_written_down_is_not_taken_back_unasked(
    file: str, value: str, consent: str
) -> None:
    seen = machine(sysctl_files={"vm.swappiness": f"{value} @ {file}"}, active_services=("tuned",))
    change = cure("sysctl", "vm.swappiness", "10", old="60")
    change = replace(change, owner=owner_of(change, seen))
    assert consent_of(change) == consent
    assert consent_of(replace(change, evidence=policy.USER)) == "auto"


def test_a_container_is_told_whose_settings_these_are() -> None:
    inside = Machine(container=Container(kind="docker"))
    (note,) = notes_of(inside, (cure(),))
    assert "whole host" in note
    (note,) = notes_of(inside, (cure("sysctl", "net.core.somaxconn", "4096"),))
    assert "this container only" in note
    assert notes_of(Machine(), (cure(),)) == notes_of(inside, ()) == ()


# -- dry run ----------------------------------------------------------------------------------------------


def run(top: Path, *given: Change, options: Options = NOTHING) -> list[Planned]:
    found, skipped = dry_run(Root(top), given, Machine(), options)
    assert skipped == []
    return found


def test_exact_values_and_the_way_back(tmp_path: Path) -> None:
    m.make(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (one,) = run(tmp_path, cure())
    assert (one.state, one.change.old, one.change.new, one.chosen) == ("change", "1", "7", True)
    assert one.write == "sudo sysctl -w vm.stat_interval=7"
    assert one.undo == "sudo sysctl -w vm.stat_interval=1"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_star_becomes_knobs_and_a_name_becomes_its_value(tmp_path: Path) -> None:
    m.make(tmp_path)
    for number, most in ((10, "30"), (2, "20"), (0, "10")):
        place = tmp_path / f"sys/devices/system/cpu/cpufreq/policy{number}"
        place.mkdir(parents=True)
        (place / "scaling_max_freq").write_text("10\n")
        (place / "cpuinfo_max_freq").write_text(f"{most}\n")
    asked = "/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq"
    found = run(tmp_path, cure("sysfs", asked, "@cpuinfo_max_freq"))
    assert [(one.change.new, one.state, one.asked) for one in found] == [
        ("10", "already", asked),
        ("20", "change", asked),
        ("30", "change", asked),
    ]
    assert "policy2/" in (found[1].write or "") and found[0].write is None


@pytest.mark.parametrize(
    "change,state,reason",
    [
        (cure(new="1"), "already", None),
        (cure("sysctl", "vm.nothing", "1"), "missing", "No such file"),
        (cure("thp", "enabled", "sometimes"), "refused", "takes always, madvise, never"),
        (cure("service", "irqbalance", "stopped"), "refused", "act on this machine only"),
    ],
)
def test_states(change: Change, state: str, reason: str | None, tmp_path: Path) -> None:
    m.make(tmp_path)
    (one,) = run(tmp_path, change)
    assert one.state == state and (reason or "") in (one.reason or "")
    assert one.undo is None


def test_a_knob_that_the_kernel_only_shows_is_read_only(tmp_path: Path) -> None:
    m.make(tmp_path)
    (tmp_path / m.SYSCTL / "stat_interval").chmod(0o444)
    (one,) = run(tmp_path, cure())
    assert one.state == "read-only" and "takes no value" in (one.reason or "")


@pytest.mark.parametrize(
    "number,state", [(errno.EROFS, "read-only"), (errno.ENODEV, "missing"), (5, "refused")]
)
def test_what_a_read_answers(
    number: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m.make(tmp_path)

    def read(*_: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(FileKind, "read", read)
    (one,) = run(tmp_path, cure())
    assert (one.state, one.reason) == (state, os.strerror(number))


def test_somebody_who_is_not_root_sees_what_root_would_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m.make(tmp_path)
    monkeypatch.setattr("wellfed.apply.dry_run.is_root", lambda: False)
    (mine,) = run(tmp_path, cure())
    assert (mine.state, mine.privilege) == ("change", "none"), "files may have been given to somebody"
    monkeypatch.setattr(os, "access", lambda *_: False)
    (one,) = run(tmp_path, cure())
    assert (one.state, one.privilege, one.undo) == ("change", "root", "sudo sysctl -w vm.stat_interval=1")


def test_of_two_cures_of_one_knob_the_first_counts(tmp_path: Path) -> None:
    m.make(tmp_path)
    other = replace(cure("sysfs", f"/{m.THP}/enabled", "never"), code="X02")
    found, skipped = dry_run(Root(tmp_path), [cure("thp", "enabled", "always"), other], Machine(), NOTHING)
    assert [one.change.code for one in found] == ["X01"]
    assert [(one.code, one.reason) for one in skipped] == [("X02", "X01 sets thp enabled to always")]
    twins = [cure("sysctl", "vm.dirty_bytes", "1000000"), cure("sysctl", "vm.dirty_ratio", "30")]
    assert len(dry_run(Root(tmp_path), twins, Machine(), NOTHING)[0]) == 1


def test_the_user_may_not_say_two_things_of_one_knob(tmp_path: Path) -> None:
    m.make(tmp_path)
    twins = [
        cure("sysctl", name, "30", evidence=policy.USER) for name in ("vm.dirty_bytes", "vm.dirty_ratio")
    ]
    with pytest.raises(WellfedError, match="one knob"):
        dry_run(Root(tmp_path), twins, Machine(), NOTHING)


def test_what_is_no_knob_is_skipped_for_a_check_and_refused_to_the_user(tmp_path: Path) -> None:
    m.make(tmp_path)
    order = cure("sysctl", "vm.drop_caches", "3")
    found, skipped = dry_run(Root(tmp_path), [order, cure()], Machine(), NOTHING)
    assert len(found) == 1 and "it is an order" in skipped[0].reason
    with pytest.raises(WellfedError, match="it is an order"):
        dry_run(Root(tmp_path), [cure(), replace(order, evidence=policy.USER)], Machine(), NOTHING)
    _, skipped = dry_run(Root(tmp_path), [cure("governor", "policy*", "performance")], Machine(), NOTHING)
    assert skipped[0].reason == "nothing here is governor policy*"
    found, skipped = dry_run(
        Root(tmp_path), [cure("governor", "policy*", "performance"), cure()], Machine(), NOTHING
    )
    assert len(found) == 1 and skipped == [], "of a cure of several rows only some need be here"


def test_a_recorded_machine_has_no_knobs_to_ask(tmp_path: Path) -> None:
    found, _ = dry_run(None, [cure(), cure("governor", "policy*", "performance")], Machine(), NOTHING)
    assert [one.state for one in found] == ["unseen", "unseen"]
    assert [one.write for one in found] == ["sudo sysctl -w vm.stat_interval=7", None]
    assert all(one.undo is None and one.change.old is None for one in found)
