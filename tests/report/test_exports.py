"""What is exported is read again by strict readers: the same knobs, the same values, the same order, and nothing else."""

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import export_readers as read
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wellfed.apply.adapters import GROUPS
from wellfed.apply.kinds import KINDS
from wellfed.apply.knobs import FILE_KINDS, TWINS
from wellfed.model import Change
from wellfed.report import export_parts, exports
from wellfed.report.exports import Export
from wellfed.report.kernel_arguments import CUMULATIVE, arguments_of, asked_for, merged, name_of


def change(kind: str, target: str, new: str, code: str = "MEM04", **more: object) -> Change:
    given_ = {"restore": "", "evidence": "read", **more}
    return Change(code=code, kind=kind, target=target, new=new, **given_)  # type: ignore[arg-type]


SOME = [
    change("service", "irqbalance", "stopped disabled", "IRQ02"),
    change("sysctl", "vm.swappiness", "10", old="60", why="Pages of the job are swapped out."),
    change("sysctl", "net.ipv4.tcp_rmem", "4096\t87380\t16777216", "NET11"),
    change("sysctl", "vm.dirty_bytes", "vm.dirty_ratio=20", "MEM11"),
    change("sysctl", "net/ipv4/conf/eth0.1/rp_filter", "2", "NET09"),
    change("thp", "enabled", "madvise", "MEM01"),
    change("hugepages", "2048kB", "4", "MEM03"),
    change("governor", "policy*", "performance", "CPU01"),
    change("epp", "policy0", "performance", "CPU02"),
    change("sysfs", "/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq", "@cpuinfo_max_freq", "CPU05"),
    change("block", "cciss!c0d0/queue/read_ahead_kb", "512", "STO01"),
    change("block", "nvme*n1/queue/scheduler", "none", "STO02"),
    change("sysfs", "/sys/bus/pci/devices/0000:00:01.0/power/control", "on", "PCI02"),
    change("sysfs", "/sys/class/net/eth0/queues/rx-0/rps_cpus", "ff", "IRQ05"),
    change("sysfs", "/sys/devices/system/cpu/cpu*/online", "1", "CPU13"),
    change("ethtool", "eth0/rings/rx", "4096", "NET02", cuts_network=True),
    change("ethtool", "eth0/rings/tx", "4096", "NET02", cuts_network=True),
    change("ethtool", "*/features/gro", "on", "NET03"),
    change("nvml", "*/persistence_mode", "enabled", "GPU02"),
    change("nvml", "0000:18:00.0/power_limit", "650", "GPU05"),
    change("hold", "cpu_dma_latency", "20", "CPU08"),
    change("mount", "/data sets:atime", "noatime", "STO09"),
    change("dropin", "/etc/security/limits.d/90-wellfed.conf", "* soft memlock unlimited\n", "LIM02"),
    change("dropin", "/etc/systemd/system/slurmd.service.d/90-wellfed.conf", "[Service]\nLimitMEMLOCK=infinity\n", "LIM02"),
    change("irq_affinity", "24", "0-3", "IRQ01"),
    change("cgroup", "/sys/fs/cgroup/a/cpu.weight", "100", "CON04"),
    change("instruction", "iommu-translates", "add `iommu=pt` (Arm: `iommu.passthrough=1`) to the kernel command line and reboot", "KRN01"),
    change("instruction", "numa-off", "in the firmware: NUMA on", "BIO01"),
]  # fmt: skip
"""At least one of each kind."""


def made(form: str, changes: list[Change]) -> Export:
    found = exports.export(
        form, changes, cmdline=("root=/dev/vda1", "quiet"), arch="x86_64", made_by="wellfed test"
    )
    assert found.carried + len(found.left) == len(changes), "nothing is dropped in silence"
    text = found.text
    for one in found.left:
        assert export_parts.comment(f"- {one.what}: {one.reason}")[0] in text.split("\n")
        assert one.reason
    return found


def main(form: str, changes: list[Change]) -> str:
    return made(form, changes).files[0].text


def path(one: Change) -> str:
    """Where the apply room writes."""
    kind = FILE_KINDS[one.kind]
    return kind.path(one.target)  # type: ignore[attr-defined, no-any-return]


# -- all forms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", exports.FORMS)
def test_every_kind_is_carried_or_told_with_its_reason(form: str) -> None:
    assert {one.kind for one in SOME} == {*KINDS, "instruction"}
    made(form, SOME)


@pytest.mark.parametrize("form", ["sysctl", "systemd", "tmpfiles", "udev"])
def test_every_line_has_code_and_evidence_beside_it(form: str) -> None:
    lines = [
        (notes, line)
        for notes, line in read.rows(main(form, SOME))
        if re.match(r"ExecStart|w /|ACTION|.* = ", line)
    ]
    assert lines
    for notes, _ in lines:
        assert any(re.match(r"# [A-Z]{3}\d\d, read: ", note) for note in notes)


def test_every_option_of_a_profile_has_code_and_evidence_beside_it() -> None:
    text = main("tuned", SOME)
    for notes, line in read.rows(text.partition("[service]")[2]):
        if "=" in line and not line.startswith(("type=", "devices=")):
            assert any(re.match(r"# [A-Z]{3}\d\d, read: ", note) for note in notes), line


@pytest.mark.parametrize("form", exports.FORMS)
def test_no_change_makes_a_file_that_still_is_one(form: str) -> None:
    text = main(form, [])
    assert text.startswith("# ")
    if form == "systemd":
        assert read.unit(text)["Service"]["ExecStart"] == ["/bin/true"]
    if form == "ansible":
        assert read.play(text)["tasks"] == []


def test_the_evidence_of_the_users_own_list_is_told_once() -> None:
    assert "# user: sysctl vm.swappiness: 10\n" in main(
        "sysctl", [change("sysctl", "vm.swappiness", "10", "user", evidence="user")]
    )


@pytest.mark.parametrize("form", exports.FORMS)
def test_what_else_is_known_of_a_change_stands_beside_it(form: str) -> None:
    if form == "cmdline":
        return
    own = change("sysctl" if form not in ("tmpfiles", "udev") else "block",
                 "vm.swappiness" if form not in ("tmpfiles", "udev") else "sda/queue/rotational", "1",
                 risk="restart", owner="tuned", cuts_network=True, why="For a reason.")  # fmt: skip
    assert re.search(
        r"For a reason. risk: restart. it may cut the network for a moment. also set by tuned",
        main(form, [own]),
    )


@pytest.mark.parametrize("form", exports.FORMS)
def test_of_two_changes_of_one_knob_the_first_counts_and_the_other_is_told(form: str) -> None:
    pair = [
        change("thp", "enabled", "always"),
        change("sysfs", "/sys/kernel/mm/transparent_hugepage/enabled", "never"),
    ]
    found = made(form, pair)
    if found.carried:
        assert (found.carried, [one.reason for one in found.left]) == (1, ["MEM04 sets the same to always"])


def test_the_first_of_a_pair_of_twins_counts() -> None:
    pair = [change("sysctl", "vm.dirty_ratio", "20"), change("sysctl", "vm.dirty_bytes", "1000000")]
    found = made("sysctl", pair)
    assert read.sysctl_d(found.text) == [("/proc/sys/vm/dirty_ratio", "20")]
    assert len(found.left) == 1


def test_a_twin_is_never_switched_off_by_0() -> None:
    for name in (*TWINS, *TWINS.values()):
        assert made("sysctl", [change("sysctl", name, "0")]).carried == 0


def test_the_kinds_are_those_of_the_apply_room() -> None:
    assert {a.replace(".", "/"): b.replace(".", "/") for a, b in TWINS.items()} == export_parts.TWINS
    assert {name: group.letters[1] for name, group in GROUPS.items()} == export_parts.ETHTOOL
    assert export_parts.SYSFS_KINDS | {"sysctl", "irq_affinity", "cgroup"} == FILE_KINDS.keys()
    for one in SOME:
        if one.kind in export_parts.SYSFS_KINDS:
            assert export_parts.path_of(one) == path(one)


@pytest.mark.parametrize("form", exports.FORMS)
@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("sysctl", "vm.x y"), ("sysctl", "-vm.swappiness"), ("sysctl", "../../etc/passwd"), ("sysctl", "vm..swappiness"),
        ("sysctl", "vm.swappiness\nkernel.x"), ("sysctl", "kernel.modprobe=x"), ("sysctl", "#vm.x"), ("sysctl", "ｖｍ.ｘ"),
        ("sysfs", "/sys/../etc/passwd"), ("sysfs", "/etc/passwd"), ("sysfs", "/sys/a b"), ("sysfs", '/sys/a"b'),
        ("sysfs", "/sys/a%n"), ("sysfs", "/sys/a$b"), ("sysfs", "/sys/a;b"), ("sysfs", "/sys/a\n/sys/b"), ("sysfs", "/sys/a//b"),
        ("thp", "../../x"), ("governor", "policy0;x"), ("block", "sda/../queue/x"), ("block", "sda/queue/é"),
        ("service", "a b"), ("service", "--now"), ("service", "../x"), ("service", "a\nb"),
        ("ethtool", "eth0/rings/rx;reboot"), ("ethtool", "-x y/rings/rx"), ("ethtool", "../rings/rx"),
        ("nvml", "$(reboot)/persistence_mode"), ("nvml", "*/reset"), ("hold", "x"),
        ("mount", "data:atime"), ("mount", "/a/../b:atime"), ("mount", "/a\n:atime"), ("mount", "/a:exec"),
        ("dropin", "/etc/passwd"), ("dropin", "/etc/sysctl.d/../90-wellfed.conf"), ("dropin", "/etc/sysctl.d/90-other.conf"),
        ("nothing", "x"),
    ],
)  # fmt: skip
def test_a_target_that_is_none_is_told_and_not_written(form: str, kind: str, target: str) -> None:
    value = {"service": "stopped", "nvml": "enabled", "mount": "noatime", "ethtool": "on"}.get(kind, "1")
    assert made(form, [change(kind, target, value)]).carried == 0


# -- any values -------------------------------------------------------------------------------------------

NASTY = st.text(st.sampled_from(list("ab1 \t\n\r\0\x1b\"'%$\\-#;=<>{}[]()|&*?~!`:,.@éß漢\u202e\u2028\ud800\U0001f600")), min_size=1, max_size=12) | st.text(min_size=1, max_size=8)  # fmt: skip
KNOB = st.sampled_from(
    [("sysctl", "vm.stat_interval"), ("sysctl", "kernel.numa_balancing"), ("sysctl", "net/ipv4/conf/eth0.1/rp_filter"),
     ("thp", "enabled"), ("thp", "khugepaged/defrag"), ("hugepages", "2048kB"), ("governor", "policy*"), ("epp", "policy0"),
     ("block", "sda/queue/scheduler"), ("block", "nvme*n1/queue/nr_requests"), ("sysfs", "/sys/class/net/eth0/tx_queue_len"),
     ("sysfs", "/sys/bus/pci/devices/0000:00:01.0/power/control")]
)  # fmt: skip
WORDS = st.text(st.characters(blacklist_categories=()), max_size=20) | NASTY
CHANGES = st.lists(
    st.builds(
        lambda knob, new, why, code, old: change(*knob, new, code, why=why, old=old),
        KNOB, NASTY, WORDS, st.sampled_from(["MEM04", "user", "CPU01"]), WORDS | st.none(),
    ),
    max_size=6,
    unique_by=lambda one: (one.kind, one.target),
)  # fmt: skip


def expected(changes: list[Change], found: Export) -> list[tuple[str, str]]:
    """Path and value of those that are carried."""
    left = [one.what for one in found.left]
    return [(path(one), one.new.strip(" \t\r\n")) for one in changes if export_parts.told(one) not in left]


def text_of(found: Export) -> str:
    """As it would be in a file: text that UTF-8 can hold."""
    text = found.files[0].text
    assert text.encode().decode() == text
    return text


def sorted_out(form: str, changes: list[Change]) -> Export:
    found = exports.export(form, changes)
    assert found.carried + len(found.left) == len(changes)
    assert len({export_parts.told(one) for one in changes}) == len(changes)
    return found


def check_sysctl(changes: list[Change]) -> None:
    found = sorted_out("sysctl", changes)
    assert read.sysctl_d(text_of(found)) == expected(changes, found)


def check_tmpfiles(changes: list[Change]) -> None:
    found = sorted_out("tmpfiles", changes)
    got = [(read.glob_free(name), value) for name, value in read.tmpfiles(text_of(found))]
    wanted = expected(changes, found)
    assert sorted(got) == sorted(wanted)
    # Lines without a pattern come first for systemd-tmpfiles; among those that follow a pattern the order is ours.
    first = next((at for at, (name, _) in enumerate(wanted) if "*" in name), len(wanted))
    assert got == wanted[:first] + wanted[first:]


def check_udev(changes: list[Change]) -> None:
    found = sorted_out("udev", changes)
    place = {"block": "/sys/block/{}", "net": "/sys/class/net/{}", "pci": "/sys/bus/pci/devices/{}"}
    got = []
    for rule in read.udev(text_of(found)):
        (attribute,) = (key for key in rule if key.startswith("ATTR"))
        operator, value = rule[attribute]
        assert ("ENV{DEVTYPE}" in rule) == (rule["SUBSYSTEM"][1] == "block"), "no partition is meant"
        assert operator == "=" and {rule[key][0] for key in ("ACTION", "SUBSYSTEM", "KERNEL")} == {"=="}
        folder = place[rule["SUBSYSTEM"][1]].format(rule["KERNEL"][1])
        got.append((f"{folder}/{attribute[5:-1]}", read.substituted(value)))
    assert got == expected(changes, found)


def check_tuned(changes: list[Change]) -> None:
    found = sorted_out("tuned", changes)
    profile = read.tuned(text_of(found))
    sysctls = [(name, value) for name, value in expected(changes, found) if name.startswith("/proc/sys/")]
    files = [(name, value) for name, value in expected(changes, found) if not name.startswith("/proc/sys/")]
    assert read.sysctl_d("\n".join(f"{k}={v}" for k, v in profile.get("sysctl", {}).items())) == sysctls
    assert list(profile.get("sysfs", {}).items()) == files
    assert set(profile) <= {"main", "sysctl", "sysfs"}


def commands(text: str) -> list[list[str]]:
    lines = read.unit(text)["Service"]["ExecStart"]
    return [read.command(line.removeprefix("-")) for line in lines if line != "/bin/true"]


def check_systemd(changes: list[Change]) -> None:
    found = sorted_out("systemd", changes)
    wanted = [(name, value.removeprefix("@")) for name, value in expected(changes, found)]
    assert [(words[-2], words[-1]) for words in commands(text_of(found))] == wanted
    is_beside = [words[2].startswith("for f in $1; do cat ") for words in commands(text_of(found))]
    assert is_beside == [value.startswith("@") for _, value in expected(changes, found)]
    assert {tuple(words[:2]) for words in commands(text_of(found))} <= {("/bin/sh", "-c")}


CHECKS = {
    "sysctl": check_sysctl, "tmpfiles": check_tmpfiles, "udev": check_udev, "tuned": check_tuned, "systemd": check_systemd,
}  # fmt: skip


@pytest.mark.parametrize("form", CHECKS)
@given(changes=CHANGES)
@settings(max_examples=60, deadline=None)
def test_files_say_what_the_changes_say_and_nothing_else(form: str, changes: list[Change]) -> None:
    CHECKS[form](changes)


@pytest.mark.parametrize("form", CHECKS)
@pytest.mark.parametrize("value", [
    "-", "--", "-n", "<5", ">5", "<", ">", '"', '""', '"a"', "'", "'a'", "\\", "a\\", '\\"', '"\\', "\\n", "\\x2d", "%", "%%", "%n", "%k",
    "$", "$$", "$a", "${a}", "$(id)", "`id`", "#", "#a", "a #b", "a ;b", ";", "a;b", "a = b", "=", "=a", "[a]", "a\tb", " a ", "\ta\n",
    "a  b", "*", "?", "{", "{{ a }}", "é", "漢😀", "a\nb", "a\rb", "\0", "\x1b[31m", "\u202e", "\u2028", "\ud800", "@", "@a", "@a b", "", " ", "x" * 5000,
])  # fmt: skip
def test_values_that_a_format_may_take_for_its_own(form: str, value: str) -> None:
    names = ["vm.stat_interval", "kernel.a"], ["sda/queue/scheduler", "nvme*n1/queue/a"]
    CHECKS[form](
        [change("sysctl", name, value) for name in names[0]]
        + [change("block", name, value) for name in names[1]]
    )


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("sysctl", ["a #b", '"a"', "$a %n", "a\\", "<5", "-"]),
        ("tmpfiles", ["a #b", '"a"', "$a %n", "a\\", "<5", "-"]),
        ("udev", ["a #b", '"a"', "$a %n", "a\\b", "<5", "-"]),
        ("tuned", ["a#b", "'a'", "$a %n", "a\\", "-"]),
        ("systemd", ["a #b", '"a"', "$a %n", "a\\", "<5", "-", "@a"]),
    ],
)
def test_what_a_format_can_say_is_carried(form: str, values: list[str]) -> None:
    kind, target = ("sysctl", "vm.x") if form == "sysctl" else ("block", "sda/queue/x")
    assert [value for value in values if made(form, [change(kind, target, value)]).carried == 0] == []


@given(CHANGES, st.lists(st.tuples(st.sampled_from(["/etc/security/limits.d/90-wellfed.conf", "/etc/sysctl.d/91-wellfed-a.conf"]), NASTY), max_size=2, unique_by=lambda one: one[0]))  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_plays_hold_the_other_forms_and_files_letter_by_letter(
    changes: list[Change], files: list[tuple[str, str]]
) -> None:
    drops = [change("dropin", target, text) for target, text in files]
    found = sorted_out("ansible", [*changes, *drops])
    tasks = read.play(text_of(found))["tasks"]
    assert isinstance(tasks, list)
    copied = {
        task["ansible.builtin.copy"]["dest"]: task["ansible.builtin.copy"]["content"]
        for task in tasks
        if "ansible.builtin.copy" in task
    }
    assert all(isinstance(content, read.Unsafe) for content in copied.values()), "no template is filled in"
    left = [one.what for one in found.left]
    for one in drops:
        if export_parts.told(one) not in left:
            assert copied.pop(one.target) == one.new
    kept = [one for one in changes if export_parts.told(one) not in left]
    sysctls = [one for one in kept if one.kind == "sysctl" and not one.new.strip(" \t\r\n").startswith("@")]
    others = [one for one in kept if one not in sysctls]
    assert copied.pop("/etc/sysctl.d/90-wellfed.conf", None) == (
        exports.sysctl_d(sysctls).files[0].text if sysctls else None
    )
    assert copied.pop("/etc/systemd/system/wellfed-tune.service", None) == (
        exports.systemd_units(others).files[0].text if others else None
    )
    assert not copied


# -- what is written in the end ---------------------------------------------------------------------------


def run(words: list[str], folder: Path) -> None:
    """A command of a unit, with /sys and /proc below `folder`."""
    below = [f"{folder}{word}" if word.startswith(("/sys/", "/proc/")) else word for word in words]
    subprocess.run(below, check=True, capture_output=True, timeout=10)


@pytest.mark.parametrize("value", ["10", "a b", "4096\t87380", '"quoted" \'twice\'', "$HOME %n %% $$ ${x} `id`", "back\\slash\\", "-n", "é漢😀", "*"])  # fmt: skip
def test_the_shell_of_a_unit_writes_the_value_and_nothing_else(tmp_path: Path, value: str) -> None:
    names = ["/sys/a/policy0/knob", "/sys/a/policy1/knob"]
    for name in names:
        file = tmp_path / name[1:]
        file.parent.mkdir(parents=True)
        file.write_text("old")
    (words,) = commands(main("systemd", [change("sysfs", "/sys/a/policy*/knob", value)]))
    run(words, tmp_path)
    assert [(tmp_path / name[1:]).read_text() for name in names] == [value, value]
    (words,) = commands(main("systemd", [change("sysfs", "/sys/a/policy1/knob", f"x{value}")]))
    run(words, tmp_path)
    assert [(tmp_path / name[1:]).read_text() for name in names] == [value, f"x{value}"]


def test_the_shell_of_a_unit_reads_the_file_beside_each_knob(tmp_path: Path) -> None:
    for number in (0, 1):
        folder = tmp_path / f"sys/policy{number}"
        folder.mkdir(parents=True)
        (folder / "scaling_max_freq").write_text("1\n")
        (folder / "cpuinfo_max_freq").write_text(f"{number}000\n")
    (words,) = commands(
        main("systemd", [change("sysfs", "/sys/policy*/scaling_max_freq", "@cpuinfo_max_freq")])
    )
    run(words, tmp_path)
    assert [(tmp_path / f"sys/policy{n}/scaling_max_freq").read_text() for n in (0, 1)] == [
        "0000\n",
        "1000\n",
    ]


def test_programs_get_plain_words() -> None:
    found = [words for words in commands(main("systemd", SOME)) if words[0] != "/bin/sh"]
    assert found == [
        ["ethtool", "-G", "eth0", "rx", "4096"],
        ["ethtool", "-G", "eth0", "tx", "4096"],
        ["nvidia-smi", "-pm", "1"],
        ["nvidia-smi", "-i", "0000:18:00.0", "-pl", "650"],
        ["mount", "-o", "remount,noatime", "/data sets"],
    ]


def test_drop_ins_and_holders_of_units_are_files_of_their_own() -> None:
    files = {file.path: file.text for file in made("systemd", SOME).files}
    assert (
        files["/etc/systemd/system/slurmd.service.d/90-wellfed.conf"] == "[Service]\nLimitMEMLOCK=infinity\n"
    )
    hold = read.command(*read.unit(files["/etc/systemd/system/wellfed-hold.service"])["Service"]["ExecStart"])
    assert hold[-1] == "20" and "/dev/cpu_dma_latency" in hold[2]


def test_a_governor_comes_before_the_preference_that_it_locks() -> None:
    both = [change("governor", "policy*", "powersave"), change("epp", "policy0", "performance")]
    names = [name.rpartition("/")[2] for name, _ in read.tmpfiles(main("tmpfiles", both))]
    assert names == ["scaling_governor", "energy_performance_preferenc[e]"]
    assert [words[-2].rpartition("/")[2] for words in commands(main("systemd", both))] == [
        "scaling_governor",
        "energy_performance_preference",
    ]
    assert [key.rpartition("/")[2] for key in read.tuned(main("tuned", both))["sysfs"]] == [
        "scaling_governor",
        "energy_performance_preference",
    ]


def test_settings_of_one_adapter_are_one_section_of_a_profile() -> None:
    profile = read.tuned(main("tuned", SOME))
    assert profile["net_eth0"] == {"type": "net", "devices": "eth0", "ring": "rx 4096 tx 4096"}
    assert profile["net_all"] == {"type": "net", "devices": "*", "features": "gro on"}
    assert profile["service"] == {"service.irqbalance": "stop,disable"}
    assert profile["cpu"] == {"force_latency": "20"}


def test_rules_name_devices_as_udev_does() -> None:
    rules = read.udev(main("udev", SOME))
    names = [(rule["SUBSYSTEM"][1], rule["KERNEL"][1]) for rule in rules]
    assert ("block", "cciss/c0d0") in names and ("block", "nvme*n1") in names and ("cpu", "cpu*") in names
    assert [rule["RUN"] for rule in rules if "RUN" in rule] == [
        ("+=", "/usr/sbin/ethtool -G eth0 rx 4096"),
        ("+=", "/usr/sbin/ethtool -G eth0 tx 4096"),
        ("+=", "/usr/sbin/ethtool -K $name gro on"),
    ]


def test_a_play_tells_handlers_once_and_knows_every_one_it_notifies() -> None:
    found = read.play(main("ansible", SOME))
    tasks, handlers = found["tasks"], found["handlers"]
    assert isinstance(tasks, list) and isinstance(handlers, list)
    names = [handler["name"] for handler in handlers]
    assert len(set(names)) == len(names)
    assert {task["notify"] for task in tasks if "notify" in task} == set(names)
    (service,) = (task["ansible.builtin.systemd"] for task in tasks if "ansible.builtin.systemd" in task)
    assert service == {"name": "irqbalance.service", "state": "stopped", "enabled": False, "masked": False}


def test_templates_in_a_value_stay_text() -> None:
    text = main("ansible", [change("sysctl", "kernel.core_uses_pid", "{{ lookup('pipe', 'id') }}")])
    (task,) = read.play(text)["tasks"]  # type: ignore[misc]
    content = task["ansible.builtin.copy"]["content"]
    assert isinstance(content, read.Unsafe) and "{{ lookup('pipe', 'id') }}" in content
    outside = re.sub(r"content: !unsafe \|\n(?: {10}.*\n|\n)*", "", text)
    assert not re.search(r"^[^#\n]*\{[{%#]", outside, re.MULTILINE)


# -- kernel arguments -------------------------------------------------------------------------------------

ARGUMENT = st.one_of(
    st.sampled_from(["quiet", "ro", "iommu=pt", "iommu=off", "idle=poll", "console=tty0", "console=ttyS0,115200", "nosmt",
                     "intel-iommu=on", "intel_iommu=off", "root=/dev/vda1", "init_on_alloc=0", "transparent_hugepage=madvise"]),
    st.from_regex(r"[a-z][a-z_-]{0,6}(=[a-z0-9,]{0,4})?", fullmatch=True),
)  # fmt: skip
LINE = st.builds(lambda kernel, init: [*kernel, *init], st.lists(ARGUMENT, max_size=10), st.just([]) | st.lists(ARGUMENT, max_size=3).map(lambda more: ["--", *more]))  # fmt: skip
NEW = st.lists(ARGUMENT, max_size=4, unique_by=name_of)


def ends(line: Sequence[str]) -> int:
    """Where the kernel's own arguments end."""
    return list(line).index("--") if "--" in line else len(line)


def in_force(line: Sequence[str]) -> dict[str, str]:
    """Of each name the last one, as for the kernel."""
    return {name_of(one): one.partition("=")[2] for one in line[: ends(line)]}


@given(LINE, NEW, NEW)
@settings(max_examples=150, deadline=None)
def test_merging_puts_in_force_what_is_asked_and_leaves_the_rest_in_its_order(
    line: list[str], add: list[str], drop: list[str]
) -> None:
    drop = [one for one in drop if name_of(one) not in map(name_of, add)]
    found = merged(line, add, drop)
    force = in_force(found.words)
    for one in add:
        assert name_of(one) in CUMULATIVE or force[name_of(one)] == one.partition("=")[2]
    cut, new_cut = ends(line), ends(found.words)
    assert not set(drop) & set(found.words[:new_cut])
    asked = {name_of(one) for one in (*add, *drop)}
    rest = [
        [one for one in part if name_of(one) not in asked] for part in (line[:cut], found.words[:new_cut])
    ]
    assert rest[0] == rest[1]
    assert list(found.words[new_cut:]) == line[cut:]
    assert set(found.added) | set(found.kept) == set(add)


@given(LINE, NEW)
@settings(max_examples=100, deadline=None)
def test_merging_twice_changes_nothing_more(line: list[str], add: list[str]) -> None:
    once = merged(line, add)
    twice = merged(once.words, add)
    assert (twice.words, twice.added, twice.dropped) == (once.words, (), ())


@pytest.mark.parametrize(
    ("line", "add", "drop", "words"),
    [
        ("quiet iommu=off", "iommu=pt", "", "quiet iommu=pt"),
        ("iommu=pt quiet", "iommu=pt", "", "iommu=pt quiet"),
        ("iommu=pt iommu=off", "iommu=pt", "", "iommu=pt"),
        ("iommu=off quiet iommu=pt", "iommu=pt", "", "quiet iommu=pt"),
        ("console=tty0", "console=ttyS0", "", "console=tty0 console=ttyS0"),
        ("console=tty0 quiet", "console=tty0", "", "console=tty0 quiet"),
        ("intel-iommu=on", "intel_iommu=off", "", "intel_iommu=off"),
        ("a -- iommu=off", "iommu=pt", "", "a iommu=pt -- iommu=off"),
        ("idle=poll a idle=poll", "", "idle=poll", "a"),
        ("idle=halt", "", "idle=poll", "idle=halt"),
        ("nosmt=force", "", "nosmt", "nosmt=force"),
    ],
)
def test_merging_by_example(line: str, add: str, drop: str, words: str) -> None:
    assert " ".join(merged(line.split(), add.split(), drop.split()).words) == words


def test_arguments_in_quotes_are_one() -> None:
    assert arguments_of(["a", 'dyndbg="file', "x.c", "+p;", "file", "y", '+p"', "--", "b"]) == [
        "a",
        'dyndbg="file x.c +p; file y +p"',
        "--",
        "b",
    ]
    assert merged(['x="a', "--", 'b"', "c"], ["d"]).words == ('x="a -- b"', "c", "d")


@pytest.mark.parametrize(
    ("text", "arch", "wanted"),
    [
        ("add `iommu=pt` (Arm: `iommu.passthrough=1`) to the kernel command line and reboot", "x86_64", (["iommu=pt"], [])),
        ("add `iommu=pt` (Arm: `iommu.passthrough=1`) to the kernel command line and reboot", "aarch64", (["iommu.passthrough=1"], [])),
        ("add `iommu=pt` (Arm: `iommu.passthrough=1`) to the kernel command line and reboot", None, None),
        ("add `a=1 b` and `c` to the kernel's command line", "x86_64", (["a=1", "b", "c"], [])),
        ("take `idle=poll` off the kernel's command line and restart", "x86_64", ([], ["idle=poll"])),
        ("`setpci`, or `pci=disable_acs_redir=...` on the kernel command line", "x86_64", None),
        ("enable it; on MI300X add `pci=realloc=off` to the kernel's command line", "x86_64", None),
        ("add `pci=realloc=off` to the kernel's command line", "x86_64", (["pci=realloc=off"], [])),
        ("add `isolcpus=LIST` to the kernel command line", "x86_64", None),
        ("add `pci=x=...` to the kernel command line", "x86_64", None),
        ("add `a=$(id)` to the kernel command line", "x86_64", None),
        ('add `a="b` to the kernel command line', "x86_64", None),
        ("add `hugepages=4` to the kernel command line", "x86_64", None),
        ("look for `blacklist x` on the kernel's command line", "x86_64", None),
        ("set `a` in the firmware", "x86_64", None),
    ],
)  # fmt: skip
def test_only_plain_instructions_are_taken(
    text: str, arch: str | None, wanted: tuple[list[str], list[str]] | None
) -> None:
    one = change("instruction", "x", text)
    if wanted is None:
        with pytest.raises(exports.Unfit):
            asked_for(one, arch)
    else:
        assert asked_for(one, arch) == wanted


def test_the_instructions_of_the_checks_that_name_arguments_are_understood() -> None:
    from wellfed.check import host_codes, manual

    named = [
        page.remedy
        for page in map(manual, host_codes())
        if re.search(r"(^|[;,.:] )(add|take) `[^`]+`.* kernel('s)? command line", page.remedy)
    ]
    assert named
    for remedy in named:
        add, drop = asked_for(change("instruction", "x", remedy), "x86_64")
        assert add or drop


def test_two_instructions_that_disagree_are_left_to_people() -> None:
    pair = [
        change("instruction", "x", f"add `iommu={value}` to the kernel command line")
        for value in ("pt", "off")
    ]
    found = made("cmdline", pair)
    assert found.carried == 1 and "has its own value" in found.left[0].reason


def kernel(text: str, line: tuple[str, ...] | None) -> str:
    return exports.export("cmdline", [change("instruction", "x", text)], cmdline=line, arch="x86_64").text


def test_boot_loaders_get_lines_that_read_back() -> None:
    text = kernel(
        "add `iommu=pt` and `a.b=1` to the kernel command line",
        ("BOOT_IMAGE=/vmlinuz", "root=/dev/vda1", "iommu=off"),
    )
    (line,) = (line for _, line in read.rows(text))
    assert shlex.split(line) == ["GRUB_CMDLINE_LINUX_DEFAULT=$GRUB_CMDLINE_LINUX_DEFAULT iommu=pt a.b=1"]
    assert "# sudo grubby --update-kernel=ALL --args='iommu=pt a.b=1'\n" in text
    assert "# root=/dev/vda1 iommu=pt a.b=1\n" in text
    assert (
        "# now: BOOT_IMAGE=/vmlinuz root=/dev/vda1 iommu=off\n# then: BOOT_IMAGE=/vmlinuz root=/dev/vda1 iommu=pt a.b=1\n"
        in text
    )


def test_what_is_there_already_needs_nothing() -> None:
    text = kernel("add `iommu=pt` to the kernel command line", ("iommu=pt",))
    assert "# There already: iommu=pt\n# Nothing to change.\n" in text and "GRUB" not in text


def test_a_line_with_hidden_parts_is_not_given_to_be_pasted() -> None:
    text = kernel("add `iommu=pt` to the kernel command line", ("root=UUID=uuid-1", "x=[redacted]"))
    assert "# not told: the command line that was seen has parts hidden" in text
    assert "\n# root=UUID" not in text


def test_an_unseen_command_line_is_told() -> None:
    text = kernel("add `iommu=pt` to the kernel command line", None)
    assert "was not seen" in text and "the line that is there, and: iommu=pt" in text
