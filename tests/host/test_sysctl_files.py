"""What files of sysctl.d and tuned set, in the order in which they count."""

from typing import Any

import pytest

from wellfed.check import judge_machine
from wellfed.host.archive import Link
from wellfed.host.assemble import assemble
from wellfed.host.recorded import host_of
from wellfed.host.sysctl_files import lines, read_sysctl_files, sections
from wellfed.model import Machine, Verdict

LIVE = {"/proc/sys/vm/swappiness": "60\n", "/proc/sys/kernel/sched_rt_runtime_us": "950000\n"}


def look(files: dict[str, Any]) -> Machine:
    return assemble(read_sysctl_files(host_of(files)))


def judge(files: dict[str, Any], kind: str = "none") -> Verdict:
    """The verdict on a whole look, of a host with one more knob."""
    from wellfed.host.assemble import look as look_at
    from wellfed.model.base import replace

    seen = look_at(host_of({**LIVE, **files}), only=("kernel", "sysctl_files"))
    seen = replace(seen, container=replace(seen.container, kind=kind))
    return next(verdict for verdict in judge_machine(seen) if verdict.code == "KRN03")


def test_the_last_name_counts_and_the_first_folder() -> None:
    found = look(
        {
            "/etc/sysctl.d/90-gpu.conf": "vm.swappiness = 10\nvm.dirty_ratio=5\n",
            "/usr/lib/sysctl.d/95-late.conf": "vm.dirty_ratio=9\n",
            "/usr/lib/sysctl.d/90-gpu.conf": "vm.max_map_count=1\n",
            "/run/sysctl.d/10-early.conf": "vm/swappiness=30\nkernel.sched_nr_migrate = 128",
            "/etc/sysctl.d/readme": "vm.swappiness=1",
        }
    )
    assert found.kernel.sysctl_files == {
        "vm.swappiness": "10 @ /etc/sysctl.d/90-gpu.conf",
        "vm.dirty_ratio": "9 @ /usr/lib/sysctl.d/95-late.conf",
        "kernel.sched_nr_migrate": "128 @ /run/sysctl.d/10-early.conf",
    }


def test_the_profile_of_tuned_and_what_it_includes() -> None:
    found = look(
        {
            "/etc/tuned/active_profile": "ours\n",
            "/etc/tuned/ours/tuned.conf": "[main]\ninclude = theirs, ours\n[sysctl]\nvm.swappiness=5\n",
            "/usr/lib/tuned/theirs/tuned.conf": "[sysctl]\nvm.swappiness=7\nvm.dirty_ratio=${x}\n[vm]\nvm.stat_interval=3\n",
            "/usr/lib/tuned/other/tuned.conf": "[sysctl]\nvm.max_map_count=3\n",
            "/etc/sysctl.d/1.conf": "kernel.pid_max=4194304\n",
        }
    )
    assert found.kernel.sysctl_files == {
        "vm.swappiness": "5 @ /etc/tuned/ours/tuned.conf",
        "vm.dirty_ratio": "${x} @ /usr/lib/tuned/theirs/tuned.conf",
        "kernel.pid_max": "4194304 @ /etc/sysctl.d/1.conf",
    }


def test_a_link_to_the_old_place_is_followed() -> None:
    files = {"/etc/sysctl.d/99-sysctl.conf": Link("../sysctl.conf"), "/etc/sysctl.conf": "vm.swappiness=1\n"}
    assert look(files).kernel.sysctl_files == {"vm.swappiness": "1 @ /etc/sysctl.d/99-sysctl.conf"}
    assert look({"/etc/sysctl.conf": "vm.swappiness=1\n"}).kernel.sysctl_files is None


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("vm.swappiness=1", ("vm.swappiness", "1")),
        ("  net.ipv4.tcp_rmem =  4096\t87380   6291456 ", ("net.ipv4.tcp_rmem", "4096 87380 6291456")),
        ("-vm.swappiness=1", ("vm.swappiness", None)),
        ("# vm.swappiness=1", None),
        ("; vm.swappiness=1", None),
        ("net.ipv4.conf.*.rp_filter=1", None),
        ("kernel.hostname=box", None),
        ("kernel.core_pattern=|/opt/x", None),
        ("vm.swappiness=", None),
        ("vm.swappiness", None),
        ("x" * 100_000, None),
    ],
)
def test_lines(line: str, kept: tuple[str, str | None] | None) -> None:
    assert list(lines(line)) == ([kept] if kept else [])


def test_sections() -> None:
    assert sections("a=1\n[main]\nb=2\n[sysctl]\nc=3\n") == {"main": "\nb=2\n", "sysctl": "\nc=3\n"}


def test_no_folder_is_not_an_empty_one() -> None:
    assert look({}).gaps["kernel.sysctl_files"].startswith("missing")
    empty = look({"/etc/sysctl.d": None})
    assert empty.kernel.sysctl_files == {} and "kernel.sysctl_files" not in empty.gaps


@pytest.mark.parametrize(
    ("files", "verdict", "says"),
    [
        ({"/etc/sysctl.d/1.conf": "kernel.sched_latency_ns=1000000\n"}, "finding", "has no kernel.sched_latency_ns"),
        ({"/etc/sysctl.d/1.conf": "kernel.sched_migration_cost_ns=5000\n"}, "finding", "sched_migration_cost_ns"),
        ({"/etc/sysctl.d/1.conf": "-kernel.sched_latency_ns=1000000\n"}, "pass", ""),
        ({"/usr/lib/sysctl.d/1.conf": "kernel.sched_latency_ns=1000000\n"}, "pass", ""),
        ({"/etc/sysctl.d/1.conf": "vm.swappiness=10\n"}, "finding", "vm.swappiness is 60, not 10"),
        ({"/etc/sysctl.d/1.conf": "vm.swappiness = 60\n"}, "pass", ""),
        ({"/etc/sysctl.d/1.conf": "vm.swappiness = 0x3c\n"}, "pass", ""),
        ({"/etc/sysctl.d/1.conf": "vm.swappiness=10\n", "/etc/sysctl.d/2.conf": "vm.swappiness=60\n"}, "pass", ""),
        ({"/etc/tuned/active_profile": "p", "/usr/lib/tuned/p/tuned.conf": "[sysctl]\nvm.swappiness=>10\n"}, "pass", ""),
        ({"/etc/sysctl.d": None}, "pass", ""),
        ({}, "not-judged", "sysctl_files"),
    ],
)  # fmt: skip
def test_dead_knobs_and_those_not_in_force(files: dict[str, Any], verdict: str, says: str) -> None:
    found = judge(files)
    assert found.verdict == verdict, found.message
    assert says in found.message
    assert verdict != "finding" or found.severity == "info"


def test_the_files_of_a_container_are_not_its_hosts() -> None:
    found = judge({"/etc/sysctl.d/1.conf": "vm.swappiness=10\n"}, kind="docker")
    assert (found.verdict, found.reason) == ("not-judged", "not-applicable")
