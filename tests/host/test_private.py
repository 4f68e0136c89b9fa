"""A recording tells how a machine is built and set, not whose it is: an invented machine whose owner left a name in
every place where one can stand."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from boxes import BOXES, SERVER_PROBES

from wellfed.host import host_of, look, open_host, record
from wellfed.host.archive import Link
from wellfed.model import Machine

OWNER = "zanzibar"
ARGUMENTS = f" -- --addr 0.0.0.0:20247 --{OWNER}-flag"
WHEN = "2026-01-02T03:04:05+00:00"


def owned_server() -> dict[str, Any]:
    """The server of `boxes.py` with its owner's name in paths, groups, mounts, programs, packages and knobs."""
    files = {
        path.replace("/kubepods.slice/pod1/job", f"/kubepods.slice/{OWNER}-pod/{OWNER}_agent")
        .replace("/kubepods.slice/pod1", f"/kubepods.slice/{OWNER}-pod"): content
        for path, content in BOXES["numa_server"]().items()
    }  # fmt: skip
    site = f"/opt/{OWNER}/lib/python3.11/site-packages"
    files |= {
        "/proc/self/cgroup": f"0::/kubepods.slice/{OWNER}-pod/{OWNER}_agent\n",
        "/proc/cmdline": f"quiet isolcpus=6-7 init=/{OWNER}_init {OWNER}.role=gpu iommu=pt{ARGUMENTS}\n",
        "/proc/version": f"Linux version 6.8.0-{OWNER}-v12 (builder@{OWNER}) (gcc 15) #1 SMP PREEMPT_DYNAMIC\n",
        "/proc/sys/kernel/osrelease": f"6.8.0-{OWNER}-v12\n",
        f"/proc/sys/kernel/{OWNER}_port": "2024\n",
        "/proc/sys/kernel/core_pattern": f"|/opt/{OWNER}/crash %p\n",
        "/proc/sys/net/ipv4/tcp_fastopen_key": f"{OWNER}-key\n",
        "/proc/self/mounts": (
            f"overlay / overlay rw,lowerdir=/var/lib/{OWNER} 0 0\n/dev/nvme0n1p1 /data\\040sets/{OWNER} xfs rw,noatime 0 0\n"
            f"{OWNER}-filer:/export/{OWNER} /mnt/{OWNER} nfs4 rw,vers=4.2,username={OWNER} 0 0\n{OWNER}_none /{OWNER} tmpfs ro 0 0\n"
        ),
        "/proc/self/mountinfo": (
            "30 20 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"
            f"31 20 8:1 /{OWNER}/x /mnt/{OWNER} rw - ext4 /dev/mapper/{OWNER} rw,{OWNER}=1\n"
        ),
        "/proc/net/route": (
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
            "eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\neth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
        ),
        "/proc/modules": "nvidia 14299136 8 - Live 0xffffffffc0400000 (O)\n",
        "/proc/1/comm": f"{OWNER}-init\n",
        "/proc/2/comm": "kthreadd\n",
        "/proc/77/comm": f"{OWNER}-train\n",
        "/proc/78/comm": "nvidia-cuda-mps\n",
        "/boot/config-6.8.0": f'CONFIG_HZ=250\nCONFIG_PREEMPT=y\nCONFIG_DEFAULT_HOSTNAME="{OWNER}"\n',
        f"/sys/class/net/{OWNER}0": Link(f"../../devices/virtual/net/{OWNER}0"),
        f"/sys/devices/virtual/net/{OWNER}0/mtu": "1500\n",
        "/sys/devices/system/cpu/cpu0/topology/ppin": "0x1234567890abcdef\n",
        f"/etc/sysctl.d/90-{OWNER}.conf": f"# {OWNER}\nvm.swappiness = 10\nkernel.domainname = {OWNER}\nnet.ipv4.conf.{OWNER}0.rp_filter = 1\n",
        "/etc/tuned/active_profile": f"{OWNER}-profile\n",
        f"/etc/tuned/{OWNER}-profile/tuned.conf": f"[main]\nsummary={OWNER}\ninclude={OWNER}-base\n[sysctl]\nvm.dirty_ratio=5\n[script]\nscript={OWNER}.sh\n",
        "/var/lib/kubelet/config.yaml": f"cpuManagerPolicy: static\nclusterDomain: {OWNER}.local\nclusterDNS:\n- 10.9.8.7\n",
        f"{site}/torch/version.py": "__version__ = '2.11.0+cu130'\ncuda = '13.0'\n",
        f"{site}/torch-2.11.0.dist-info/RECORD": "",
        f"{site}/{OWNER}_lib-1.0.dist-info/RECORD": "",
        f"{site}/_{OWNER}_ca.pth": "",
        f"/opt/{OWNER}/lib/libnccl.so.2": "",
    }
    return files


def owned_host() -> Any:
    python = {
        "version": "3.11.9",
        "executable": f"/opt/{OWNER}/bin/python",
        "paths": [f"/{OWNER}/repository", f"/opt/{OWNER}/lib/python3.11/site-packages"],
    }
    space = {"size_bytes": 1000, "free_bytes": 400, "inodes_free": 5, "read_only": False}
    release = {"system": "Linux", "release": f"6.8.0-{OWNER}-v12", "version": "#1", "machine": "x86_64"}
    return host_of(
        owned_server(),
        probes={
            **SERVER_PROBES,
            "python": python,
            "uname": release,
            "mounts": {f"/data sets/{OWNER}": space},
            "busy": {
                "window_s": 0.1,
                "cpu_pct": 3.0,
                "why": None,
                "nics": [{"name": f"{OWNER}0", "mbps": 5.0}],
                "ports": [],
            },
        },
        commands={
            "dmesg": (
                f"[0.0] Command line: quiet iommu=pt{ARGUMENTS}\n[1.0] iommu: Default domain type: Translated\n"
                f"[2.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04  Release Build  (me@{OWNER})\n"
                f"[9.0] NVRM: Xid (PCI:0000:0f:00): 31, pid=77, name={OWNER}-train, Ch 00000008\n"
            ),
            "ldconfig": f"\tlibnccl.so.2 (libc6,x86-64) => /opt/{OWNER}/lib/libnccl.so.2\n",
            "nvidia-smi-xml": (
                "<nvidia_smi_log><gpu id='00000000:0F:00.0'><product_name>NVIDIA H200</product_name><processes>"
                f"<process_info><pid>77</pid><type>C</type><process_name>/opt/{OWNER}/bin/{OWNER}-train --{OWNER}"
                "</process_name></process_info></processes></gpu></nvidia_smi_log>"
            ),
        },
        nvml={
            "status": "ok",
            "detail": None,
            "system": {},
            "devices": [
                {"name": "NVIDIA H200", "processes": [{"pid": 77, "name": f"{OWNER}-train", "used_bytes": 1}]}
            ],
        },
    )


@pytest.fixture(scope="module")
def plain() -> Machine:
    return look(owned_host())


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("box") / "box.tar"
    record(owned_host(), path, now=WHEN)
    return path


def test_the_invented_machine_gives_its_owner_away(plain: Machine) -> None:
    for room in (plain.kernel, plain.mounts, plain.software, plain.gpus, plain.nics):
        assert OWNER in repr(room)


@pytest.mark.parametrize(
    "trace",
    [OWNER, "20247", "0100A8C0", "ffffffffc0400000", "1234567890abcdef", "fastopen_key", "builder@", "me@"],
)
def test_no_byte_of_a_recording_names_the_owner(tar: Path, trace: str) -> None:
    assert trace.encode() not in tar.read_bytes()


def test_the_machine_is_the_same_up_to_names(tar: Path, plain: Machine) -> None:
    again = look(open_host(str(tar)))
    assert again.facts.keys() == plain.facts.keys()
    for key, fact in plain.facts.items():
        assert again.facts[key].status == fact.status, key
    for room in ("cpu", "numa", "memory", "container", "limits", "disks", "pci"):
        assert getattr(again, room) == getattr(plain, room), room
    assert again.kernel.sysctls.keys() == plain.kernel.sysctls.keys()
    assert [said.split(" @ ")[0] for said in (again.kernel.sysctl_files or {}).values()] == ["5", "10"]
    assert again.software.kubelet == plain.software.kubelet
    assert [mount.size_bytes for mount in again.mounts] == [mount.size_bytes for mount in plain.mounts]
    assert [(m.fs, m.options) for m in again.mounts][1:3] == [
        ("xfs", ("rw", "noatime")),
        ("nfs4", ("rw", "vers=4.2", "[redacted]")),
    ]
    assert again.software.torch == "2.11.0+cu130"
    assert again.software.nccl_libraries == ("/opt/dir-1/lib/libnccl.so.2",)
    assert [package.name for package in again.software.packages or ()] == ["torch"]
    assert len(again.nics) == len(plain.nics)


def test_traffic_stays_with_its_interface_under_another_name(tar: Path, plain: Machine) -> None:
    again = look(open_host(str(tar)))
    for machine in (plain, again):
        assert [nic.busy_mbps for nic in machine.nics if nic.busy_mbps is not None] == [5.0]


def test_the_same_place_has_the_same_name_everywhere(tar: Path) -> None:
    again = look(open_host(str(tar)))
    python = str(again.software.python_path)
    packages = again.software.packages or ()
    assert python.removesuffix("/bin/python") == str(packages[0].path).partition("/lib/")[0]
    core = again.kernel.sysctls["kernel.core_pattern"]
    assert core.startswith(f"|{python.removesuffix('/bin/python')}/")


def test_what_judges_the_kernel_stays(tar: Path) -> None:
    again = look(open_host(str(tar))).kernel
    assert again.release == "6.8.0-custom"
    assert again.cmdline is not None
    assert {"quiet", "isolcpus=6-7", "iommu=pt", "[redacted]"} < set(again.cmdline)
    assert again.xids is not None
    assert "name=process-" in again.xids[0]


def test_daemons_are_seen_and_other_programs_are_not_kept(tar: Path, plain: Machine) -> None:
    with tarfile.open(tar) as archive:
        programs = {name for name in archive.getnames() if name.endswith("/comm")}
    assert programs == {f"root/proc/{number}/comm" for number in (1, 2, 78)}
    again = look(open_host(str(tar))).software
    assert (again.mps_running, again.fabricmanager_running) == (True, False)
    assert again.mps_running == plain.software.mps_running


def test_a_container_still_shows_that_it_sees_only_itself(tmp_path: Path) -> None:
    files = {**BOXES["only_proc"](), "/proc/31/comm": f"{OWNER}\n", "/proc/32/comm": "sh\n"}
    host = host_of(files)
    record(host, tmp_path / "box.tar", now=WHEN)
    again = look(open_host(str(tmp_path / "box.tar")))
    assert again.gaps["software.mps_running"] == look(host).gaps["software.mps_running"]
    assert "only this container" in again.gaps["software.mps_running"]


def test_arguments_of_the_first_program_are_never_recorded(tmp_path: Path) -> None:
    record(owned_host(), tmp_path / "box.tar", redact=False, now=WHEN)
    data = (tmp_path / "box.tar").read_bytes()
    assert OWNER.encode() in data
    assert b"20247" not in data
    assert b"--addr" not in data
    assert look(owned_host()).kernel.cmdline == (
        "quiet", "isolcpus=6-7", f"init=/{OWNER}_init", f"{OWNER}.role=gpu", "iommu=pt",
    )  # fmt: skip


def test_an_old_recording_loses_what_is_no_longer_kept(tmp_path: Path, tar: Path) -> None:
    """Recording a recording of an earlier version takes out what that version left in."""
    record(open_host(str(tar)), tmp_path / "again.tar", now=WHEN)
    with tarfile.open(tar) as first, tarfile.open(tmp_path / "again.tar") as second:
        assert first.getnames() == second.getnames()
        for name in ("probes.json", "root/proc/self/mounts", "root/proc/cmdline", "commands/dmesg.json"):
            texts = [archive.extractfile(name).read() for archive in (first, second)]  # type: ignore[union-attr]
            assert texts[0] == texts[1], name
    assert json.loads(texts[0])["status"] == "ok"
