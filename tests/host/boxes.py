"""Invented machines for tests, written in code: each is a dict of paths for `wellfed.host.host_of`.

They hold the traps of real ones: siblings numbered half a machine apart, memory-only nodes, masks without
lists, cores of two speeds, limits in a parent group, hosts that show only half of themselves."""

from typing import Any

from wellfed.host import host_of
from wellfed.host.archive import Link

Files = dict[str, str | bytes | Link | None]
CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"


def cpu_list(cpus: list[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


def cpu_mask(cpus: list[int]) -> str:
    value = sum(1 << cpu for cpu in cpus)
    return f"{value >> 32:08x},{value & 0xFFFFFFFF:08x}"


def x86_cpuinfo(cpus: int, flags: str = "fpu lm avx2 avx512f") -> str:
    block = "processor\t: {}\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9354\n"
    block += "microcode\t: 0xa101144\nflags\t\t: " + flags + "\n"
    return "\n".join(block.format(cpu) for cpu in range(cpus))


def meminfo(total_kb: int = 263_000_000) -> str:
    return (
        f"MemTotal:       {total_kb} kB\nMemFree:        {total_kb // 2} kB\nMemAvailable:   {total_kb // 4 * 3} kB\n"
        "SwapTotal:       8388604 kB\nSwapFree:        8388600 kB\n"
        "HugePages_Total:       4\nHugePages_Free:        3\nHugepagesize:       2048 kB\n"
    )


def numa_server() -> Files:
    """2 sockets of 4 cores with 2 threads (n and n + 8), one L3 a socket, a node a socket and a node 2 that is
    memory only; cgroup v2 with the limits in the parent group; in a Kubernetes pod."""
    files: Files = {
        "/proc/cpuinfo": x86_cpuinfo(16),
        "/proc/meminfo": meminfo(),
        "/proc/stat": "cpu  1000 0 1000 7800 0 0 0 200 0 0\n",
        "/proc/pressure/cpu": "some avg10=1.25 avg60=0.00 avg300=0.00 total=1\n",
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 isolcpus=managed_irq,domain,6-7 iommu=pt\n",
        "/proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
        "/proc/sys/kernel/version": "#45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024\n",
        "/proc/sys/kernel/hostname": "gpu-node-17\n",
        "/proc/sys/kernel/numa_balancing": "1\n",
        "/proc/sys/vm/swappiness": "60\n",
        "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
        "/proc/uptime": "86400.50 1000000.00\n",
        "/proc/self/status": "Name:\tx\nCapEff:\t0000000000800000\nSeccomp:\t2\nCpus_allowed_list:\t0-3,8-11\n",
        "/proc/self/limits": (
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max stack size            8388608              unlimited            bytes     \n"
            "Max core file size        0                    unlimited            bytes     \n"
            "Max processes             1029000              1029000              processes \n"
            "Max open files            1024                 1048576              files     \n"
            "Max locked memory         65536                65536                bytes     \n"
        ),
        "/proc/self/cgroup": "0::/kubepods.slice/pod1/job\n",
        "/proc/self/mountinfo": "30 20 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n",
        "/proc/self/mounts": (
            "overlay / overlay rw,relatime 0 0\nproc /proc proc rw 0 0\ntmpfs /dev/shm tmpfs rw,size=65536k 0 0\n"
            "/dev/nvme0n1p1 /data\\040sets xfs rw,noatime 0 0\nfiler:/home /home nfs4 rw,vers=4.2 0 0\n"
        ),
        "/sys/fs/cgroup/kubepods.slice/pod1/job/cpu.max": "max 100000\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/job/cpu.stat": "nr_periods 100\nnr_throttled 40\nthrottled_usec 5000\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/job/cpuset.cpus.effective": "0-3,8-11\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/job/cpuset.mems.effective": "0\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/job/memory.max": "max\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/job/memory.high": "max\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/job/memory.current": "1073741824\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/job/memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/job/pids.max": "max\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/job/pids.current": "17\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/cpu.max": "350000 100000\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/memory.max": "68719476736\n",
        "/sys/fs/cgroup/kubepods.slice/pod1/pids.max": "4096\n",
        "/sys/fs/cgroup/kubepods.slice/cpu.max": "1600000 100000\n",
        f"{CPU}/online": "0-15\n",
        f"{CPU}/present": "0-15\n",
        f"{CPU}/possible": "0-31\n",
        f"{CPU}/smt/control": "on\n",
        f"{CPU}/cpuidle/current_driver": "acpi_idle\n",
        f"{CPU}/cpu0/cpuidle/state0/name": "POLL\n",
        f"{CPU}/cpu0/cpuidle/state0/latency": "0\n",
        f"{CPU}/cpu0/cpuidle/state0/disable": "0\n",
        f"{CPU}/cpu0/cpuidle/state2/name": "C2\n",
        f"{CPU}/cpu0/cpuidle/state2/latency": "800\n",
        f"{CPU}/cpu0/cpuidle/state2/disable": "1\n",
        f"{CPU}/cpufreq/boost": "1\n",
        f"{CPU}/vulnerabilities/spectre_v2": "Mitigation: Retpolines\n",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never\n",
        "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "1024\n",
        "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "1000\n",
        "/sys/kernel/iommu_groups/0/type": "identity\n",
        "/sys/kernel/iommu_groups/1/type": "DMA-FQ\n",
        "/sys/devices/system/edac/mc/mc0/ue_count": "0\n",
        "/sys/devices/system/edac/mc/mc0/ce_count": "7\n",
        "/sys/devices/system/edac/mc/mc1/ue_count": "1\n",
        "/sys/devices/system/edac/mc/mc1/ce_count": "0\n",
        "/sys/class/dmi/id/sys_vendor": "Supermicro\n",
        "/sys/class/dmi/id/product_name": "AS-8125GS\n",
        "/sys/block/nvme0n1": Link("../devices/pci0000:60/0000:60:03.1/0000:61:00.0/nvme/nvme0/nvme0n1"),
        "/sys/block/dm-0": Link("../devices/virtual/block/dm-0"),
        "/sys/block/loop0": Link("../devices/virtual/block/loop0"),
        "/sys/devices/virtual/block/dm-0/size": "1000\n",
        "/sys/devices/virtual/block/loop0/size": "0\n",
        **{
            f"/sys/devices/pci0000:60/0000:60:03.1/0000:61:00.0/{name}": text
            for name, text in {
                "nvme/nvme0/nvme0n1/size": "7501476528\n",
                "nvme/nvme0/nvme0n1/device/model": "SAMSUNG MZQL23T8HCLS-00A07\n",
                "nvme/nvme0/nvme0n1/queue/scheduler": "[none] mq-deadline\n",
                "nvme/nvme0/nvme0n1/queue/rotational": "0\n",
                "nvme/nvme0/nvme0n1/queue/read_ahead_kb": "128\n",
                "numa_node": "1\n",
                "current_link_speed": "8.0 GT/s PCIe\n",
                "max_link_speed": "16.0 GT/s PCIe\n",
                "current_link_width": "4\n",
                "max_link_width": "4\n",
                "class": "0x010802\n",
                "vendor": "0x144d\n",
            }.items()
        },
        "/sys/bus/pci/devices/0000:61:00.0": Link("../../../devices/pci0000:60/0000:60:03.1/0000:61:00.0"),
        f"{NODE}/node2/cpulist": "\n",
        f"{NODE}/node2/distance": "17 28 10\n",
        f"{NODE}/node2/meminfo": "Node 2 MemTotal:       131072 kB\nNode 2 MemFree:       131072 kB\n",
    }
    for cpu in range(16):
        core, package = cpu % 8, cpu % 8 // 4
        siblings = [core, core + 8]
        socket = [other for other in range(16) if other % 8 // 4 == package]
        files |= {
            f"{CPU}/cpu{cpu}/topology/physical_package_id": f"{package}\n",
            f"{CPU}/cpu{cpu}/topology/core_id": f"{core % 4}\n",
            f"{CPU}/cpu{cpu}/topology/thread_siblings_list": cpu_list(siblings) + "\n",
            f"{CPU}/cpu{cpu}/cache/index3/level": "3\n",
            f"{CPU}/cpu{cpu}/cache/index3/size": "32768K\n",
            f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_list": cpu_list(socket) + "\n",
            f"{CPU}/cpufreq/policy{cpu}/scaling_driver": "amd-pstate-epp\n",
            f"{CPU}/cpufreq/policy{cpu}/scaling_governor": "powersave\n" if cpu else "performance\n",
            f"{CPU}/cpufreq/policy{cpu}/energy_performance_preference": "balance_performance\n",
            f"{CPU}/cpufreq/policy{cpu}/cpuinfo_max_freq": "3800000\n",
            f"{CPU}/cpufreq/policy{cpu}/scaling_max_freq": "2000000\n" if cpu == 5 else "3800000\n",
            f"{NODE}/node{package}/cpulist": cpu_list(socket) + "\n\0",
            f"{NODE}/node{package}/distance": "10 32 17\n" if package == 0 else "32 10 28\n",
            f"{NODE}/node{package}/meminfo": f"Node {package} MemTotal: 1048576 kB\nNode {package} MemFree: 524288 kB\n",
        }
    return files


def old_kernel() -> Files:
    """Masks only, no NUMA folder, no online list: CPU 3 is off by its own switch; cgroup v1 mounted twice over;
    huge pages only in meminfo."""
    files: Files = {
        "/proc/cpuinfo": x86_cpuinfo(3, "fpu lm hypervisor"),
        "/proc/meminfo": meminfo(4_000_000).replace("MemAvailable", "Buffers"),
        "/proc/version": "Linux version 2.6.32-754.el6.x86_64 (mock@x) (gcc) #1 SMP Tue Jun 19 21:26:04 UTC 2018\n",
        "/proc/mounts": "cgroup /cgroup/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /cgroup/memory cgroup rw,memory 0 0\n",
        "/proc/self/cgroup": "4:memory:/batch/job\n3:cpu,cpuacct:/batch/job\n",
        "/cgroup/cpu/batch/job/cpu.cfs_quota_us": "-1\n",
        "/cgroup/cpu/batch/job/cpu.cfs_period_us": "100000\n",
        "/cgroup/cpu/batch/job/cpu.stat": "nr_periods 10\nnr_throttled 0\nthrottled_time 4000\n",
        "/cgroup/cpu/batch/cpu.cfs_quota_us": "250000\n",
        "/cgroup/cpu/batch/cpu.cfs_period_us": "100000\n",
        "/cgroup/memory/batch/job/memory.limit_in_bytes": "9223372036854771712\n",
        "/cgroup/memory/batch/job/memory.usage_in_bytes": "4096\n",
        f"{CPU}/cpu3/online": "0\n",
    }
    for cpu in range(4):
        files |= {
            f"{CPU}/cpu{cpu}/topology/thread_siblings": cpu_mask([cpu]) + "\n",
            f"{CPU}/cpu{cpu}/topology/core_siblings": cpu_mask([0, 1, 2]) + "\n",
        }
    return files


def arm_hybrid() -> Files:
    """4 fast and 4 slow cores, no package numbers, one node."""
    block = "processor\t: {}\nFeatures\t: fp asimd sve2\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: {}\n"
    files: Files = {
        "/proc/cpuinfo": "\n".join(block.format(cpu, "0xd85" if cpu > 3 else "0xd87") for cpu in range(8)),
        f"{CPU}/online": "0-7\n",
        f"{NODE}/node0/cpulist": "0-7\n",
        f"{NODE}/node0/distance": "10\n",
    }
    for cpu in range(8):
        files |= {
            f"{CPU}/cpu{cpu}/cpu_capacity": "1024\n" if cpu == 7 else "997\n" if cpu > 3 else "718\n",
            f"{CPU}/cpu{cpu}/topology/physical_package_id": "-1\n",
            f"{CPU}/cpu{cpu}/topology/core_cpus_list": f"{cpu}\n",
            f"{CPU}/cpu{cpu}/topology/package_cpus_list": "0-7\n",
        }
    return files


def only_proc() -> Files:
    """A sandbox that hides `/sys`."""
    return {"/proc/cpuinfo": x86_cpuinfo(6), "/proc/meminfo": meminfo(8_000_000)}


SERVER_PROBES: dict[str, Any] = {
    "affinity": [0, 1, 2, 3, 8, 9, 10, 11],
    "page_size": 4096,
    "uname": {"system": "Linux", "release": "6.8.0-45-generic", "version": "#45", "machine": "x86_64"},
    "shm": {"size_bytes": 67108864, "free_bytes": 67000000, "inodes_free": 10, "read_only": False},
    "mounts": {"/data sets": {"size_bytes": 1000, "free_bytes": 400, "inodes_free": 5, "read_only": False}},
    "writable": {"/proc/sys": False, "/sys": False},
    "limits": {},
    "python": {"version": "3.11.9", "executable": "/home/alice/venv/bin/python", "paths": []},
    "tools": {"numactl": False},
}

BOXES = {
    "numa_server": numa_server,
    "old_kernel": old_kernel,
    "arm_hybrid": arm_hybrid,
    "only_proc": only_proc,
}


def box(name: str, **more: Any) -> Any:
    """A host of one of these machines; the server also has answers to the live questions."""
    if name == "numa_server":
        more = {"probes": SERVER_PROBES, "environ": {"OMP_NUM_THREADS": "8", "SECRET_THING": "x"}, **more}
    return host_of(BOXES[name](), **more)
