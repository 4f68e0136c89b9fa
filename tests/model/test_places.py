"""Paths, groups, mounts, kernel parameters and programs: what every system has stays, what is the owner's goes."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.model import Case, Fact, Machine
from wellfed.model.base import replace
from wellfed.model.devices import Mount
from wellfed.model.machine import Package, Software
from wellfed.model.places import (
    hide_in_log,
    hide_option,
    hide_parameters,
    hide_path,
    hide_paths,
    hide_release,
    hide_source,
    paths_in,
)
from wellfed.model.redact import Redactor, redact_case

STAYS = [
    "/",
    "/home",
    "/scratch",
    "/mnt",
    "/dev/shm",
    "/dev/nvme0n1p2",
    "/dev/vda1",
    "/run/user/1000",
    "/proc/sys/vm/swappiness",
    "/sys/devices/system/cpu/cpu0/online",
    "/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.3",
    "/usr/local/cuda-13.0/version.json",
    "/opt/torch/.venv/lib/python3.12/site-packages/torch/version.py",
    "/opt/conda/lib/python3.11/site-packages/numpy-2.4.6.dist-info",
    "/boot/vmlinuz-6.8.0-45-generic",
    "/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope/memory.max",
    "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/cpu.max",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us",
    "/system.slice/docker-hex-1.scope",
    "/slurm/uid_1000/job_55/step_0",
    "/dev/cpuset/torque/cpus",
]

GOES = {
    "/wharf": "/dir-1",
    "/data sets": "/dir-1",
    "/mnt/acme-nas/llm": "/mnt/dir-1/dir-2",
    "/mnt/acme/acme": "/mnt/dir-1/dir-1",
    "/home/user-1/acme/.venv/bin/python": "/home/user-1/dir-1/.venv/bin/python",
    "/usr/local/acme/lib": "/usr/local/dir-1/lib",
    "/dev/mapper/vg_acme-data": "/dev/mapper/dir-1",
    "/boot/config-6.1.90-acme-v12": "/boot/config-6.1.90-custom",
    "/sys/fs/cgroup/acme_agent/hex-1/cpu.max": "/sys/fs/cgroup/dir-1/hex-1/cpu.max",
    "/kubepods/besteffort/pod1234abcd-12/trainer": "/kubepods/besteffort/poddir-1/dir-2",
    "/kubepods.slice/kubepods-burstable-pod12345678_12.slice": "/kubepods.slice/kubepods-burstable-poddir-1.slice",
    "/system.slice/docker-acme.scope": "/system.slice/docker-dir-1.scope",
    "/system.slice/acme-agent.service": "/system.slice/dir-1",
    "/podium/machinery/runs": "/dir-1/dir-2/dir-3",
}


@pytest.fixture
def name() -> Callable[[str, str], str]:
    return Redactor().name


@pytest.mark.parametrize("path", STAYS)
def test_paths_that_every_system_has_stay(path: str, name: Callable[[str, str], str]) -> None:
    assert hide_path(path, name) == path


@pytest.mark.parametrize("path", GOES)
def test_the_owners_part_of_a_path_goes(path: str, name: Callable[[str, str], str]) -> None:
    assert hide_path(path, name) == GOES[path]
    assert hide_path(GOES[path], name) == GOES[path], "hiding twice changes nothing"


WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_.:@ ~", min_size=1, max_size=24)


@given(st.lists(WORD, min_size=1, max_size=6))
def test_hiding_twice_changes_nothing(parts: list[str]) -> None:
    hidden = hide_path("/" + "/".join(parts), Redactor().name)
    assert hide_path(hidden, Redactor().name) == hidden
    assert hidden.count("/") == len(parts)


@given(st.lists(st.sampled_from(["kubepods", "docker-", "lib", "x", "mnt", "sys/fs/cgroup"]), max_size=4))
def test_a_strange_name_is_hidden_wherever_it_stands(around: list[str]) -> None:
    for place in range(len(around) + 1):
        path = "/" + "/".join((*around[:place], "zanzibar", *around[place:]))
        assert "zanzibar" not in hide_path(path, Redactor().name)


def test_paths_inside_a_text(name: Callable[[str, str], str]) -> None:
    text = "PATH=/acme/bin:/usr/bin, at /mnt/acme/x. N/A 12/34 KB/s http://x.y/z </tag> ${HOME}/x"
    assert paths_in(text) == ["/acme/bin", "/usr/bin", "/mnt/acme/x."]
    hidden = hide_paths(text, name)
    assert "acme" not in hidden
    assert hidden.endswith("N/A 12/34 KB/s http://x.y/z </tag> ${HOME}/x")


@pytest.mark.parametrize(
    "release",
    [
        "6.8.0-45-generic",
        "5.14.0-427.13.1.el9_4.x86_64",
        "6.1.75+",
        "6.6.87.2-microsoft-standard-WSL2",
        "5.15.0-1053-nvidia",
        "6.1.112-122.189.amzn2023.x86_64",
    ],
)
def test_releases_of_distributions_stay(release: str) -> None:
    assert hide_release(release) == release


@pytest.mark.parametrize("release", ["6.1.90-acme-v12", "6.18.44-fc-v7-acme", "5.10.0acme"])
def test_the_name_of_ones_own_kernel_goes(release: str) -> None:
    hidden = hide_release(release)
    assert re.fullmatch(r"[\d.]+-custom", hidden)
    assert hide_release(hidden) == hidden


def test_kernel_parameters_that_are_not_known_are_hidden_whole(name: Callable[[str, str], str]) -> None:
    text = (
        "BOOT_IMAGE=(hd0,gpt2)/boot/vmlinuz-6.1.2-acme root=/dev/mapper/acme-root ro isolcpus=managed_irq,domain,6-7"
        " iommu=pt nvidia.NVreg_X=1 init=/acme_init rd.lvm.lv=acme/root ip=10.0.0.1 acme.role=gpu root=LABEL=acme"
        " -- --addr acme:2024"
    )
    assert hide_parameters(text, name).split() == [
        "BOOT_IMAGE=(hd0,gpt2)/boot/vmlinuz-6.1.2-custom", "root=/dev/mapper/dir-1", "ro",
        "isolcpus=managed_irq,domain,6-7", "iommu=pt", "nvidia.NVreg_X=1", "init=/dir-2",
        "[redacted]", "[redacted]", "[redacted]", "[redacted]",
    ]  # fmt: skip
    once = hide_parameters(text, name)
    assert hide_parameters(once, name) == once


@pytest.mark.parametrize(
    ("source", "fs", "hidden"),
    [
        ("/dev/vda", "ext4", "/dev/vda"),
        ("tmpfs", "tmpfs", "tmpfs"),
        ("overlay", "overlay", "overlay"),
        ("filer7:/export/acme", "nfs4", "host-1:/dir-1/dir-2"),
        ("//nas.acme.example/llm", "cifs", "//host-1/dir-1"),
        ("mgs@tcp:/acme", "lustre", "host-1:/dir-1"),
        ("tank/acme", "zfs", "dir-1/dir-2"),
        ("acme_volume", "tmpfs", "dir-1"),
    ],
)
def test_what_is_mounted(source: str, fs: str, hidden: str, name: Callable[[str, str], str]) -> None:
    assert hide_source(source, fs, name) == hidden
    assert hide_source(hidden, fs, name) == hidden


@pytest.mark.parametrize(
    ("option", "hidden"),
    [
        ("rw", "rw"),
        ("rsize=1048576", "rsize=1048576"),
        ("errors=remount-ro", "errors=remount-ro"),
        ("size=64k", "size=64k"),
        ("lowerdir=/var/lib/acme", "[redacted]"),
        ("username=alice", "[redacted]"),
        ("acme", "[redacted]"),
        ("data=acme", "data=[redacted]"),
        ("[redacted]", "[redacted]"),
    ],
)
def test_mount_options(option: str, hidden: str) -> None:
    assert hide_option(option) == hidden


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:0f:00): 31, pid=12, name={}, Ch 00000008",
        "Out of memory: Killed process 77 ({}) total-vm:1kB",
        "{} invoked oom-killer: gfp_mask=0x1",
        "oom-kill:constraint=C,task_memcg=/kubepods/besteffort,task={},pid=1,uid=0",
        "INFO: task {}:99 blocked for more than 120 seconds.",
        "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [{}:123]",
    ],
)
def test_programs_that_the_kernel_log_blames(line: str, name: Callable[[str, str], str]) -> None:
    hidden = hide_in_log(line.format("acme_train"), name)
    assert hidden == line.format("process-1")
    assert hide_in_log(hidden, name) == hidden
    assert hide_in_log(line.format("python3"), name) == line.format("python3")


def test_a_saved_case_tells_no_place_of_the_machine() -> None:
    facts = {
        "mounts[0]": Fact(
            key="mounts[0]",
            value={"path": "/acme data/llm", "source": "filer7:/acme", "fs": "nfs4", "options": ["rw", "acme=1"]},
            source="/proc/self/mounts",
        ),
        "container.cpu_quota": Fact(
            key="container.cpu_quota", value=2.0, source="/sys/fs/cgroup/acme_agent/cpu.max", raw="0::/acme_agent/x"
        ),
        "kernel.cmdline": Fact(key="kernel.cmdline", value=["quiet", "acme.role=1"], source="/proc/cmdline", raw="quiet acme.role=1"),
        "kernel.release": Fact(key="kernel.release", value="6.1.90-acme-v12", source="/proc/sys/kernel/osrelease"),
        "software.python_path": Fact(key="software.python_path", value="/srv/acme/bin/python", source="probe python"),
        "kernel.xids": Fact(key="kernel.xids", value=["Xid: 31, pid=1, name=acme_train, Ch"], source="dmesg"),
    }  # fmt: skip
    machine = Machine(
        facts=facts,
        mounts=(Mount(path="/acme data/llm", source="filer7:/acme", fs="nfs4", options=("rw", "acme=1")),),
        software=Software(
            python_path="/srv/acme/bin/python",
            packages=(Package(name="torch", version="2.11.0", path="/srv/acme/lib/torch"),),
        ),
        gaps={"mounts[0].size_bytes": "missing: `statvfs /acme data/llm` (not asked)"},
        hostname="vm",
    )
    machine = replace(
        machine, kernel=replace(machine.kernel, release="6.1.90-acme-v12", sysctls={"vm.swappiness": "60"})
    )
    machine = replace(machine, kernel=replace(machine.kernel, cmdline=("quiet", "acme.role=1")))
    machine = replace(
        machine, facts={**facts, "software.packages": Fact(key="software.packages", value=[{"path": "/srv/acme/lib/torch"}], source="x")}
    )  # fmt: skip
    public = redact_case(Case(machine=machine)).machine
    assert public is not None
    assert "acme" not in repr(public)
    assert "filer7" not in repr(public)
    (mount,) = public.mounts
    assert public.facts["mounts[0]"].value["path"] == mount.path == "/dir-1/dir-2"
    assert mount.path in public.gaps["mounts[0].size_bytes"]
    assert public.kernel.release == "6.1.90-custom"
    assert public.kernel.sysctls == {"vm.swappiness": "60"}, "a host called vm spoils no name of the kernel"
