"""The core readers on invented machines, and the parsers under them."""

import json
import os
from pathlib import Path

import pytest
from boxes import BOXES, CPU, NODE, box, x86_cpuinfo
from hypothesis import given
from hypothesis import strategies as st

from wellfed.host import Reading, host_of, look
from wellfed.host.container import CAPABILITIES
from wellfed.host.cpuinfo import architecture, model_name, parse_cpuinfo
from wellfed.host.environment import is_watched
from wellfed.host.live import LiveHost
from wellfed.host.parse import bracketed, cpu_list, cpu_mask, fact, flag, natural, size_bytes
from wellfed.host.storage import data_mounts
from wellfed.model.machine import HugePool, IdleState, Limit

# -- parsers -----------------------------------------------------------------------------------------------

CPUS = st.sets(st.integers(0, 600), max_size=40)


@given(CPUS)
def test_lists_and_masks_say_the_same(cpus: set[int]) -> None:
    value = sum(1 << cpu for cpu in cpus)
    words = [f"{value >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(19))]
    assert cpu_mask(",".join(words)) == cpu_list(",".join(map(str, cpus))) == tuple(sorted(cpus))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=6))
def test_ranges(spans: list[tuple[int, int]]) -> None:
    text = ",".join(f"{low}-{low + more}" for low, more in spans)
    assert set(cpu_list(text)) == {cpu for low, more in spans for cpu in range(low, low + more + 1)}


def test_odd_lists() -> None:
    assert cpu_list("") == cpu_list("\n") == cpu_list("(null)") == ()
    assert cpu_list("0-7:2,9\n\0") == (0, 2, 4, 6, 9)
    for hostile in ("0-99999999999", "5-1", "-1", "a", "1-"):
        with pytest.raises(ValueError):
            cpu_list(hostile)
    with pytest.raises(ValueError):
        cpu_mask(",".join(["ffffffff"] * 5000))


def test_sizes_words_and_switches() -> None:
    assert (size_bytes("32K"), size_bytes("16384 kB"), size_bytes("2 MB"), size_bytes("512")) == (
        32768, 16777216, 2097152, 512,
    )  # fmt: skip
    assert bracketed("always [madvise] never") == "madvise"
    assert bracketed("none") == "none"
    assert (flag("Y"), flag("0"), natural("-1"), natural("4")) == (True, False, None, 4)
    with pytest.raises(ValueError):
        bracketed("always madvise")
    with pytest.raises(ValueError):
        flag("maybe")


@given(
    st.text(max_size=80),
    st.sampled_from([cpu_list, cpu_mask, size_bytes, bracketed, flag, natural, int, data_mounts]),
)
def test_a_fact_of_any_text_is_ok_or_says_why(text: str, parse: object) -> None:
    made = fact("x", Reading(source="/f", text=text), parse)  # type: ignore[arg-type]
    assert (made.value is not None) == (made.status == "ok")
    assert made.status == "ok" or made.detail


# -- cpuinfo of other machines -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ids", "arch", "model"),
    [
        (x86_cpuinfo(2), (0, 1), "x86_64", "AMD EPYC 9354"),
        (x86_cpuinfo(1, "fpu sse"), (0,), "i686", "AMD EPYC 9354"),
        (
            "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n"
            "processor\t: 7\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n",
            (0, 7), "aarch64", "Neoverse-V2",
        ),
        (
            "Processor\t: ARMv7 Processor rev 4 (v7l)\nprocessor\t: 0\n\nprocessor\t: 1\n\n"
            "Features\t: swp half\nCPU implementer\t: 0x41\nCPU part\t: 0xc0f\n",
            (0, 1), "armv7l", "ARMv7 Processor rev 4 (v7l)",
        ),
        (
            "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n\nprocessor\t: 4\ncpu\t\t: POWER9, altivec supported\n\n"
            "platform\t: PowerNV\nmachine\t\t: PowerNV 8335-GTW\n",
            (0, 4), "ppc64", "POWER9, altivec supported",
        ),
        (
            "vendor_id       : IBM/S390\n# processors    : 2\nfeatures\t: esan3 zarch\n"
            "processor 0: version = FF,  identification = 1,  machine = 2964\n"
            "processor 1: version = FF,  identification = 1,  machine = 2964\n",
            (0, 1), "s390x", None,
        ),
        ("processor\t: 0\nhart\t\t: 2\nisa\t\t: rv64imafdc\nuarch\t\t: sifive,u74-mc\n", (0,), "riscv64", "sifive,u74-mc"),
        ("processor : 0\nvendor : GenuineIntel\narch : IA-64\nfamily : Itanium 2\n", (0,), "ia64", "Itanium 2"),
        ("", (), None, None),
    ],
)  # fmt: skip
def test_cpuinfo_formats(text: str, ids: tuple[int, ...], arch: str | None, model: str | None) -> None:
    info = parse_cpuinfo(text)
    assert (info.ids, architecture(info), model_name(info)) == (ids, arch, model)


@given(st.text(max_size=300))
def test_any_cpuinfo_is_read(text: str) -> None:
    info = parse_cpuinfo("processor\t: 0\n" + text)
    assert 0 in info.ids
    architecture(info)
    model_name(info)


# -- the server --------------------------------------------------------------------------------------------


def test_topology_of_a_server() -> None:
    cpu = look(box("numa_server")).cpu
    assert (cpu.logical, cpu.possible, cpu.cores, cpu.packages, cpu.threads_per_core) == (16, 32, 8, 2, 2)
    assert (cpu.l3_groups, cpu.l3_bytes) == (2, 64 << 20)
    assert cpu.threads is not None
    assert [thread.core for thread in cpu.threads] == [0, 1, 2, 3, 4, 5, 6, 7] * 2
    assert [thread.node for thread in cpu.threads] == [0, 0, 0, 0, 1, 1, 1, 1] * 2
    assert cpu.offline == ()
    assert cpu.allowed == (0, 1, 2, 3, 8, 9, 10, 11)
    assert cpu.isolated == (6, 7)
    assert (cpu.arch, cpu.family, cpu.model, cpu.microcode) == ("x86_64", 25, 17, "0xa101144")
    assert cpu.hypervisor == "none"


def test_clocks_and_idle_of_a_server() -> None:
    cpu = look(box("numa_server")).cpu
    assert cpu.governors == ("performance", "powersave")
    assert cpu.energy_preferences == ("balance_performance",)
    assert (cpu.policies, cpu.capped_policies, cpu.max_khz, cpu.boost) == (16, 1, 3_800_000, True)
    assert cpu.idle_states == (
        IdleState(name="POLL", latency_us=0, disabled=False),
        IdleState(name="C2", latency_us=800, disabled=True),
    )
    assert (cpu.steal_pct, cpu.pressure_some_pct, cpu.clocksource) == (2.0, 1.25, "tsc")


def test_intel_boost_is_told_the_other_way_round() -> None:
    host = host_of({f"{CPU}/intel_pstate/no_turbo": "1\n", "/proc/cpuinfo": x86_cpuinfo(1)})
    assert look(host).cpu.boost is False


def test_nodes_of_a_server() -> None:
    nodes = look(box("numa_server")).numa
    assert [node.id for node in nodes] == [0, 1, 2]
    assert nodes[1].cpus == (4, 5, 6, 7, 12, 13, 14, 15)
    assert nodes[2].cpus == ()
    assert nodes[0].distances == (10, 32, 17)
    assert (nodes[2].mem_bytes, nodes[0].mem_free_bytes) == (128 << 20, 512 << 20)


def test_memory_of_a_server() -> None:
    memory = look(box("numa_server")).memory
    assert memory.total_bytes == 263_000_000 << 10
    assert memory.swap_used_bytes == 4096
    assert (memory.thp_enabled, memory.thp_defrag) == ("madvise", "madvise")
    assert memory.huge_pools == (HugePool(page_bytes=2 << 20, total=1024, free=1000),)
    assert (memory.edac_uncorrected, memory.edac_corrected) == (1, 7)
    assert memory.dmi_product == "Supermicro AS-8125GS"


def test_kernel_of_a_server() -> None:
    machine = look(
        box(
            "numa_server",
            commands={
                "systemctl-services": "Id=tuned.service\nActiveState=active\n\nId=tlp.service\nActiveState=failed\n",
                "dmesg": "[1] NVRM: Xid (PCI:0000:0f:00): 79, pid=1\n[2] nvidia: loaded\n",
            },
        )
    )
    kernel = machine.kernel
    assert (kernel.release, kernel.preemption, kernel.virtualization) == (
        "6.8.0-45-generic",
        "dynamic",
        "none",
    )
    assert kernel.sysctls["net.ipv4.tcp_rmem"] == "4096 131072 6291456"
    assert kernel.cmdline is not None
    assert "iommu=pt" in kernel.cmdline
    assert (kernel.iommu_groups, kernel.iommu_types) == (2, ("DMA-FQ", "identity"))
    assert kernel.mitigations == {"spectre_v2": "Mitigation: Retpolines"}
    assert kernel.active_services == ("tuned",)
    assert kernel.xids == ("[1] NVRM: Xid (PCI:0000:0f:00): 79, pid=1",)
    assert kernel.uptime_s == 86400.5
    assert machine.hostname == "gpu-node-17"
    assert "kernel.sysctls[kernel.sched_latency_ns]" in machine.gaps


def test_limits_of_a_server() -> None:
    limits = look(box("numa_server")).limits
    assert limits.memlock_bytes == Limit(soft=65536, hard=65536)
    assert limits.open_files == Limit(soft=1024, hard=1048576)
    assert limits.stack_bytes == Limit(soft=8388608, hard=-1)


def test_walls_of_a_pod() -> None:
    container = look(box("numa_server")).container
    assert (container.kind, container.cgroup_version) == ("kubernetes", 2)
    # The tightest limit stands in the parent group, the loosest above that.
    assert (container.cpu_quota, container.memory_limit_bytes, container.pids_limit) == (3.5, 64 << 30, 4096)
    assert container.memory_high_bytes == -1
    assert (container.cpuset, container.cpuset_mems) == ((0, 1, 2, 3, 8, 9, 10, 11), (0,))
    assert (container.nr_periods, container.nr_throttled, container.throttled_us) == (100, 40, 5000)
    assert (container.memory_used_bytes, container.oom_kills, container.pids_used) == (1 << 30, 1, 17)
    assert (container.shm_bytes, container.capabilities, container.seccomp) == (
        64 << 20,
        ("CAP_SYS_NICE",),
        2,
    )
    assert container.proc_sys_writable is False
    facts = look(box("numa_server")).facts
    assert facts["container.cpu_quota"].source == "/sys/fs/cgroup/kubepods.slice/pod1/cpu.max"


def test_disks_and_mounts_of_a_server() -> None:
    machine = look(box("numa_server"))
    dm, nvme = machine.disks
    assert (dm.name, dm.is_virtual, dm.size_bytes) == ("dm-0", True, 512_000)
    assert (nvme.name, nvme.address, nvme.numa_node, nvme.is_virtual) == ("nvme0n1", "0000:61:00.0", 1, False)
    assert (nvme.pcie_speed_gts, nvme.pcie_speed_max_gts, nvme.pcie_width) == (8.0, 16.0, 4)
    assert (nvme.scheduler, nvme.rotational, nvme.size_bytes) == ("none", False, 7501476528 * 512)
    paths = {mount.path: mount for mount in machine.mounts}
    assert list(paths) == ["/", "/dev/shm", "/data sets", "/home"]
    assert (paths["/data sets"].free_bytes, paths["/data sets"].options) == (400, ("rw", "noatime"))
    assert paths["/home"].free_bytes is None
    assert "can block" in machine.gaps["mounts[3].free_bytes"]


def test_environment_keeps_to_what_matters() -> None:
    machine = look(box("numa_server", environ={"OMP_NUM_THREADS": "8", "HOME": "/x", "NCCL_API_KEY": "s"}))
    assert machine.environment == {"OMP_NUM_THREADS": "8"}
    assert is_watched("TOKENIZERS_PARALLELISM")
    assert is_watched("PYTORCH_CUDA_ALLOC_CONF")
    for name in ("HF_TOKEN", "CUDA_SECRET", "PATH", "TF_CLI_CONFIG_FILE", "TORCH_AUTH", "VLLM_API_KEY"):
        assert not is_watched(name)
    proxy = look(box("numa_server", environ={"HTTP_PROXY": "http://user:pass@proxy:80"})).environment
    assert proxy == {"HTTP_PROXY": "http://proxy:80"}


# -- the others --------------------------------------------------------------------------------------------


def test_an_old_kernel() -> None:
    machine = look(box("old_kernel"))
    cpu = machine.cpu
    assert (cpu.logical, cpu.offline, cpu.cores, cpu.packages) == (3, (3,), 3, 1)
    assert cpu.threads is not None
    assert [thread.online for thread in cpu.threads] == [True, True, True, False]
    assert (machine.numa[0].cpus, len(machine.numa)) == ((0, 1, 2), 1)
    assert "all CPUs are counted as one" in (machine.facts["numa[0].cpus"].detail or "")
    assert "numa[0].distances" in machine.gaps
    assert machine.memory.available_bytes is None
    assert machine.memory.huge_pools == (HugePool(page_bytes=2 << 20, total=4, free=3),)
    assert machine.kernel.release == "2.6.32-754.el6.x86_64"
    assert cpu.hypervisor == "unnamed"
    container = machine.container
    assert (container.cgroup_version, container.cpu_quota, container.memory_limit_bytes) == (1, 2.5, -1)
    assert (container.throttled_us, container.memory_used_bytes) == (4, 4096)


def test_cores_of_two_speeds() -> None:
    cpu = look(box("arm_hybrid")).cpu
    assert cpu.threads is not None
    assert [thread.kind for thread in cpu.threads] == ["efficiency"] * 4 + ["performance"] * 4
    assert (cpu.cores, cpu.packages, cpu.arch) == (8, 1, "aarch64")
    assert cpu.model_name == "Cortex-A725 + Cortex-X925"


def test_cores_of_one_speed_have_no_kind() -> None:
    files = BOXES["arm_hybrid"]()
    files |= {f"{CPU}/cpu{cpu}/cpu_capacity": "1024\n" for cpu in range(4)}
    threads = look(host_of(files)).cpu.threads
    assert threads is not None
    assert {thread.kind for thread in threads} == {None}


def test_intel_hybrid() -> None:
    files = {
        **BOXES["only_proc"](),
        "/sys/devices/cpu_core/cpus": "0-3\n",
        "/sys/devices/cpu_atom/cpus": "4-5\n",
    }
    threads = look(host_of(files)).cpu.threads
    assert threads is not None
    assert [thread.kind for thread in threads] == ["performance"] * 4 + ["efficiency"] * 2


def test_hybrid_by_clocks_alone() -> None:
    def box_with(clocks: list[tuple[int, int]]) -> list[str | None]:
        files = {**BOXES["only_proc"]()}
        for cpu, (base, top) in enumerate(clocks):
            files[f"{CPU}/cpu{cpu}/cpufreq/base_frequency"] = f"{base}\n"
            files[f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = f"{top}\n"
        return [thread.kind for thread in look(host_of(files)).cpu.threads or ()]

    performance, efficiency = (1_900_000, 5_000_000), (1_400_000, 3_900_000)
    assert box_with([performance] * 4 + [efficiency] * 2) == ["performance"] * 4 + ["efficiency"] * 2
    favoured, prioritised = (1_900_000, 4_000_000), (1_400_000, 5_000_000)
    assert set(box_with([performance] * 4 + [favoured] * 2)) == {None}
    assert set(box_with([performance] * 4 + [prioritised] * 2)) == {None}


def test_a_host_without_sys() -> None:
    machine = look(box("only_proc"))
    assert machine.cpu.logical == 6
    assert machine.cpu.cores is None
    assert machine.cpu.offline is None
    assert machine.numa[0].cpus == (0, 1, 2, 3, 4, 5)
    assert machine.container.kind is None
    assert machine.environment == {}
    assert "environment" in machine.gaps


def test_nodes_that_share_cpus_count_as_one() -> None:
    files = {**BOXES["only_proc"](), f"{NODE}/node0/cpulist": "0-5\n", f"{NODE}/node1/cpumap": "3f\n"}
    machine = look(host_of(files))
    assert [node.cpus for node in machine.numa] == [(0, 1, 2, 3, 4, 5)]
    assert {thread.node for thread in machine.cpu.threads or ()} == {None}
    assert "its 2 nodes share CPUs" in (machine.facts["numa[0].cpus"].detail or "")


def test_a_node_inside_another_is_the_nearer_one() -> None:
    files = {**BOXES["only_proc"](), f"{NODE}/node0/cpulist": "0-1\n", f"{NODE}/node1/cpulist": "0-5\n"}
    machine = look(host_of(files))
    assert [thread.node for thread in machine.cpu.threads or ()] == [0, 0, 1, 1, 1, 1]
    assert len(machine.numa) == 2


def test_a_sibling_list_without_the_cpu_itself_is_not_believed() -> None:
    """Seen in snapshots: every CPU shows the list of CPU 0, only the masks are its own."""
    files = {f"{CPU}/online": "0-3\n"}
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = "0-1\n"
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings"] = "3\n" if cpu < 2 else "c\n"
    assert look(host_of(files)).cpu.cores == 2


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"/sys/class/dmi/id/sys_vendor": "QEMU\n"}, "qemu"),
        ({"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "/sys/class/dmi/id/product_name": "p5.48xlarge\n"}, "kvm"),
        ({"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "/sys/class/dmi/id/product_name": "c5.metal\n"}, "none"),
        ({"/sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
          "/sys/class/dmi/id/product_name": "Virtual Machine\n"}, "hyperv"),
        ({"/sys/hypervisor/type": "xen\n"}, "xen"),
        ({"/proc/sysinfo": "LPAR Number: 1\nVM00 Control Program: z/VM    6.1.0\n"}, "zvm"),
        ({"/proc/bus/pci/devices": "0010\t80eebeef\t0\n"}, "virtualbox"),
        ({}, "none"),
    ],
)  # fmt: skip
def test_hypervisors(files: dict[str, str], name: str) -> None:
    assert look(host_of({"/proc/cpuinfo": x86_cpuinfo(1), **files})).cpu.hypervisor == name


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"/.dockerenv": "", "/proc/self/cgroup": "0::/\n"}, "docker"),
        ({"/run/.containerenv": "", "/proc/self/cgroup": "0::/\n"}, "podman"),
        ({"/run/systemd/container": "lxc\n"}, "lxc"),
        ({"/proc/self/cgroup": "12:cpu:/docker/0123\n"}, "docker"),
        ({"/var/run/secrets/kubernetes.io/x": ""}, "kubernetes"),
        ({"/proc/self/cgroup": "0::/user.slice\n"}, "none"),
        ({"/proc/self/mountinfo": "1 0 0:1 / / rw - overlay overlay rw,lowerdir=/var/lib/containers/storage/x\n"}, "podman"),
    ],
)  # fmt: skip
def test_kinds_of_container(files: dict[str, str], kind: str) -> None:
    assert look(host_of(files)).container.kind == kind


def test_a_container_that_sees_the_path_of_its_host() -> None:
    """Without a cgroup namespace the path is the host's, but the mount shows only our own part of it."""
    files = {
        "/proc/self/cgroup": "0::/docker/0123/job\n",
        "/proc/self/mountinfo": "30 20 0:26 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup ro\n",
        "/sys/fs/cgroup/cpu.max": "200000 100000\n",
        "/sys/fs/cgroup/job/cpu.max": "max 100000\n",
    }
    assert look(host_of(files)).container.cpu_quota == 2.0


def test_the_root_group_is_unlimited() -> None:
    files = {
        "/proc/self/cgroup": "0::/\n",
        "/proc/self/mountinfo": "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
        "/sys/fs/cgroup/cpuset.cpus.effective": "0-3\n",
    }
    container = look(host_of(files)).container
    assert (container.cpu_quota, container.memory_limit_bytes, container.cpuset) == (-1, -1, (0, 1, 2, 3))


@given(st.sets(st.integers(0, 60)))
def test_capabilities_are_named_by_their_bit(bits: set[int]) -> None:
    text = f"CapEff:\t{sum(1 << bit for bit in bits):016x}\n"
    names = look(host_of({"/proc/self/status": text})).container.capabilities
    expected = [
        f"CAP_{CAPABILITIES[bit]}" if bit < len(CAPABILITIES) else f"CAP_{bit}" for bit in sorted(bits)
    ]
    assert names == tuple(expected)
    assert (CAPABILITIES[23], CAPABILITIES[14], CAPABILITIES[21], CAPABILITIES[38]) == (
        "SYS_NICE", "IPC_LOCK", "SYS_ADMIN", "PERFMON",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("files", "can"),
    [
        ({"/dev/infiniband/uverbs0": "", "/dev/null": ""}, True),
        ({"/dev/infiniband/rdma_cm": "", "/dev/null": ""}, False),
        ({"/dev/null": ""}, False),
        ({"/proc/stat": ""}, None),
    ],
)
def test_whether_rdma_can_be_opened(files: dict[str, str], can: bool | None) -> None:
    container = look(host_of(files)).container
    assert container.device_infiniband is can


def test_what_may_be_written_is_asked_of_files() -> None:
    """Root may write every sysctl though the mode of their folder says that nobody may."""
    told = json.loads(LiveHost().probe("writable").text or "{}")
    for folder, file in {"/proc/sys": "vm/stat_interval", "/proc/sys/net": "core/rmem_max"}.items():
        if Path(folder, file).exists():
            assert told[folder] == os.access(f"{folder}/{file}", os.W_OK)
