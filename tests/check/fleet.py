"""Machines as people run them, in working order, with the settings that their vendors ship: nothing on them is worth an alarm."""

from typing import Any

from host_cases import GIB, NVSWITCH

NODE = {
    "mem_free_bytes": 900 * GIB,
    "file_bytes": 60 * GIB,
    "hits": 10**9,
    "misses": 10**5,
    "foreign": 10**5,
    "interleave_weight": 1,
}
TWO_SOCKETS = [
    {"id": 0, "cpus": [*range(48), *range(96, 144)], "mem_bytes": 1024 * GIB, "distances": [10, 21], **NODE},
    {
        "id": 1,
        "cpus": [*range(48, 96), *range(144, 192)],
        "mem_bytes": 1024 * GIB,
        "distances": [21, 10],
        **NODE,
    },
]
SYSCTLS = {
    "kernel.numa_balancing": "0", "vm.swappiness": "10", "vm.overcommit_memory": "0", "vm.zone_reclaim_mode": "0",
    "vm.max_map_count": "262144", "vm.stat_interval": "1", "vm.min_free_kbytes": "135168", "vm.dirty_ratio": "10",
    "vm.dirty_bytes": "0", "vm.compaction_proactiveness": "20", "kernel.pid_max": "4194304", "kernel.nmi_watchdog": "1",
    "kernel.softlockup_panic": "0", "kernel.hung_task_panic": "0", "kernel.sched_rt_runtime_us": "950000", "kernel.perf_event_paranoid": "4",
    "kernel.timer_migration": "1", "kernel.yama.ptrace_scope": "1", "kernel.core_pattern": "|/usr/share/apport/apport -p%p",
    "fs.aio-max-nr": "1048576", "fs.inotify.max_user_watches": "1048576", "fs.inotify.max_user_instances": "8192",
    "net.core.busy_read": "0", "net.core.busy_poll": "0", "net.core.somaxconn": "4096", "net.core.netdev_max_backlog": "250000",
    "net.ipv4.tcp_rmem": "4096 131072 536870912", "net.ipv4.tcp_wmem": "4096 16384 536870912", "net.ipv4.tcp_sack": "1",
    "net.ipv4.tcp_timestamps": "1", "net.ipv4.tcp_max_syn_backlog": "4096", "net.ipv4.tcp_congestion_control": "cubic",
    "net.ipv4.tcp_slow_start_after_idle": "1", "net.ipv4.neigh.default.gc_thresh3": "8192",
    "net.ipv4.conf.all.arp_ignore": "1", "net.ipv4.conf.all.arp_announce": "2",
}  # fmt: skip
MEMORY: dict[str, Any] = {
    "total_bytes": 2048 * GIB, "available_bytes": 1900 * GIB, "swap_total_bytes": 0, "swap_used_bytes": 0, "swap_devices": [],
    "thp_enabled": "madvise", "thp_defrag": "madvise", "thp_shmem": "never", "khugepaged_scan_sleep_ms": 10000,
    "khugepaged_pages_to_scan": 4096, "huge_pools": [{"page_bytes": 2 << 20, "total": 0, "free": 0}], "ksm_run": 0,
    "edac_uncorrected": 0, "edac_corrected": 2, "thp_fault_alloc": 10_000, "thp_fault_fallback": 12,
    "dmi_product": "DGXH100", "unevictable_bytes": 4 << 20, "mlocked_bytes": 4 << 20, "demotion_enabled": False,
    "auto_online": "online",
}  # fmt: skip
LIMITS = {
    "memlock_bytes": {"soft": -1, "hard": -1}, "open_files": {"soft": 1048576, "hard": 1048576},
    "processes": {"soft": 8252000, "hard": 8252000}, "stack_bytes": {"soft": 8 << 20, "hard": -1},
    "core_bytes": {"soft": 0, "hard": -1},
}  # fmt: skip
NO_CONTAINER: dict[str, Any] = {
    "kind": "none", "cgroup_version": 2, "cpu_quota": -1, "memory_limit_bytes": -1, "nr_throttled": 0, "nr_periods": 0,
    "oom_kills": 0, "pids_limit": 2_400_000, "pids_used": 40, "shm_bytes": 1024 * GIB, "cpu_weight": 100,
    "user_namespace": False, "numa_calls": "ok", "capabilities": [], "device_infiniband": True, "sees_host_processes": True,
}  # fmt: skip
LOG = {
    "x2apic": 0,
    "memory-encryption": 0,
    "sxid": 0,
    "aer": 0,
    "edac": 0,
    "oom": 0,
    "hung-task": 0,
    "soft-lockup": 0,
    "tsc-unstable": 0,
    "link-flap": 0,
}
SOFTWARE: dict[str, Any] = {
    "driver": "580.95.05", "driver_open": True, "cuda_driver": "13.0", "torch": "2.8.0+cu128", "torch_cuda": "12.8",
    "nccl": "2.27.3", "nccl_config": [], "persistenced_running": True, "fabricmanager_running": True, "mps_running": False,
    "tools": {"numactl": True, "ethtool": True}, "device_nodes": ["nvidia0", "nvidia-uvm"], "env_files": {}, "packages": [],
    "cudnn": "9.10.2", "driver_params": {"RmProfilingAdminOnly": "1", "RegistryDwords": "", "EnableMSI": "1", "NvLinkDisable": "0"},
}  # fmt: skip


def gpu(index: int, **changes: Any) -> dict[str, Any]:
    """An H100 of an HGX board, idle."""
    node = index // 4
    return {
        "vendor": "nvidia", "name": "NVIDIA H100 80GB HBM3", "architecture": "Hopper", "compute_capability": "9.0",
        "address": f"0000:{16 * index + 27:02x}:00.0", "driver": "580.95.05", "vbios": "96.00.A5.00.01",
        "memory_bytes": 80 * GIB, "memory_used_bytes": 500 << 20, "bar1_bytes": 128 * GIB, "persistence": True, "ecc": True,
        "ecc_pending": True, "ecc_uncorrected": 0, "ecc_uncorrected_aggregate": 1, "remap_pending": False,
        "remap_failed": False, "mig_capable": True, "mig": False, "mig_pending": False, "mig_devices": 0,
        "virtualization": "none", "compute_mode": "default", "sm_app_mhz": 1980, "sm_app_default_mhz": 1980, "sm_mhz": 345,
        "sm_max_mhz": 1980, "power_w": 71.0, "power_limit_w": 700.0, "power_default_w": 700.0, "temperature_c": 31,
        "temperature_slowdown_c": 87, "throttle": ["gpu_idle"], "utilization_pct": 0, "pcie_gen": 5, "pcie_gen_max": 5,
        "pcie_width": 16, "pcie_width_max": 16, "numa_node": node, "cpu_affinity": TWO_SOCKETS[node]["cpus"],
        "nvlinks_active": 18, "nvlinks_total": 18, "nvlink_errors": 0, "fabric_state": "completed",
        "fabric_status": "success", "c2c": False, "gsp_firmware": "580.95.05", "processes": [],
        "inforom_valid": True, "confidential": False, "power_profiles": [], "runtime_d3": "Disabled by default",
        "event_reason_us": {"hw_thermal_slowdown": 0, "sw_thermal_slowdown": 0, "hw_power_brake_slowdown": 0}, **changes,
    }  # fmt: skip


def _port(index: int) -> dict[str, Any]:
    return {
        "device": f"mlx5_{index}", "port": 1, "state": "ACTIVE", "physical_state": "LinkUp", "link_layer": "InfiniBand",
        "rate_gbps": 400.0, "firmware": "28.41.1000", "board": "MT_0000000838", "numa_node": index // 4, "link_downed": 0,
        "counters": {"symbol_error": 0, "port_rcv_errors": 0, "port_rcv_packets": 10**10, "link_downed": 0},
        "active_mtu": 4096, "busy_gbps": 0.0, "netdev": f"ib{index}", "address": f"0000:{16 * index + 24:02x}:00.0",
    }  # fmt: skip


def _adapter(index: int) -> dict[str, Any]:
    """The InfiniBand adapter beside GPU `index`, below a port of its own."""
    return {
        "address": f"0000:{16 * index + 24:02x}:00.0", "vendor": "0x15b3", "device": "0x1021", "class_code": "0x020700", "driver": "mlx5_core",
        "numa_node": index // 4, "local_cpus": TWO_SOCKETS[index // 4]["cpus"], "speed_gts": 32.0, "speed_max_gts": 32.0, "width": 16,
        "width_max": 16, "power_control": "on", "aer_correctable": 0, "aer_nonfatal": 0, "aer_fatal": 0, "is_virtual": False,
        "max_payload": 256, "max_payload_capable": 512, "max_read_request": 4096, "extended_tags": True, "aspm": "disabled",
        "relaxed_ordering": True,
    }  # fmt: skip


def _bus(gpus: list[dict[str, Any]], *, behind: bool) -> list[dict[str, Any]]:
    """The GPUs on the bus, each below a port of a switch of its own."""
    found: list[dict[str, Any]] = []
    for index, one in enumerate(gpus):
        port = f"0000:{16 * index + 22:02x}:00.0"
        if behind:
            found.append(
                {"address": port, "vendor": "0x1000", "class_code": "0x060400", "acs_redirect": False, "speed_gts": 32.0,
                 "speed_max_gts": 32.0, "width": 16, "width_max": 16, "driver": "pcieport", "power_control": "on",
                 "max_payload": 256, "max_payload_capable": 512}
            )  # fmt: skip
        found.append(
            {"address": one["address"], "vendor": "0x10de", "device": "0x2330", "class_code": "0x030200", "driver": "nvidia",
             "numa_node": one["numa_node"], "local_cpus": one["cpu_affinity"], "speed_gts": 32.0, "speed_max_gts": 32.0,
             "width": 16, "width_max": 16, "parent": port if behind else None, "power_control": "on", "aer_correctable": 3,
             "aer_nonfatal": 0, "aer_fatal": 0, "is_virtual": False, "max_payload": 256, "max_payload_capable": 256,
             "max_read_request": 512, "extended_tags": True, "ten_bit_tags": None, "aspm": "disabled", "bars_unplaced": 0}
        )  # fmt: skip
    return found


def hgx() -> dict[str, Any]:
    """Eight H100 and eight InfiniBand ports on bare metal, set up by its vendor's image."""
    gpus = [gpu(index) for index in range(8)]
    everything = list(range(192))
    display = {"address": "0000:04:00.0", "vendor": "0x1a03", "class_code": "0x030000", "driver": "ast", "power_control": "auto", "bars_unplaced": 0, "extended_tags": None, "aspm": "disabled",
               "local_cpus": everything, "is_virtual": False, "aer_correctable": 9000, "aer_nonfatal": 0, "aer_fatal": 0}  # fmt: skip
    fast = {
        "is_physical": True,
        "state": "up",
        "duplex": "full",
        "carrier_changes": 2,
        "busy_mbps": 1.0,
        "drops": 0,
        "rx_packets": 10**9,
    }
    return {
        "cpu": {
            "arch": "x86_64", "vendor": "GenuineIntel", "hypervisor": "none", "flags": ["avx", "avx512f"], "logical": 192,
            "possible": 192, "cores": 96, "packages": 2, "threads_per_core": 2, "offline": [], "allowed": everything,
            "isolated": [], "nohz_full": [], "smt": "on", "scaling_driver": "intel_pstate", "governors": ["performance"],
            "energy_preferences": ["performance"], "energy_bias": [0], "boost": True, "capped_policies": 0, "policies": 192,
            "idle_driver": "intel_idle", "idle_states": [{"name": "C1", "latency_us": 1, "disabled": False}],
            "clocksource": "tsc", "page_size_bytes": 4096, "steal_pct": 0.0, "rapl_limit_w": 350.0, "rapl_max_w": 350.0,
            "core_throttles": 0, "package_throttles": 0, "dma_latency_us": 2_000_000_000, "dma_latency_holders": [],
            "resume_latency_us": [0], "foreign_pct": 3.0,
        },
        "numa": TWO_SOCKETS, "memory": MEMORY, "limits": LIMITS, "container": NO_CONTAINER, "software": SOFTWARE,
        "kernel": {
            "release": "6.8.0-45-generic", "version": "#45-Ubuntu SMP PREEMPT_DYNAMIC", "cmdline": ["quiet", "iommu=pt", "init_on_alloc=0"],
            "sysctls": SYSCTLS, "modules": ["nvidia", "nvidia_uvm", "nvidia_peermem", "mlx5_core"], "xids": [], "events": LOG,
            "mitigations": {"meltdown": "Not affected"}, "preemption": "voluntary", "iommu_groups": 210, "iommu_types": ["identity"],
            "uptime_s": 2_000_000.0, "softnet": {"processed": 10**9, "dropped": 0, "squeezed": 5}, "arp_entries": 60,
            "nvme_ps_max_latency_us": 100_000, "name_on_loopback": True, "config": {"CONFIG_INIT_ON_ALLOC_DEFAULT_ON": "y"},
            "active_services": ["chrony", "containerd", "irqbalance", "nvidia-fabricmanager", "nvidia-persistenced", "sshd", "ufw"],
            "enabled_services": ["chrony", "irqbalance", "nvidia-persistenced"],
            "sysctl_files": {"vm.swappiness": "10 @ /etc/sysctl.d/90-hpc.conf"}, "systemd_numa_policy": "default", "systemd_numa_mask": [],
            "default_irq_affinity": everything, "workqueue_cpumask": everything,
            "units": [{"name": "containerd", "memlock_bytes": -1, "open_files": -1, "tasks_max": -1}],
        },
        "gpus": gpus,
        "pci": [*_bus(gpus, behind=True), *map(_adapter, range(8)), display, *({**NVSWITCH, "address": f"0000:8{n}:00.0"} for n in range(4))],
        "links": [
            *({"a": f"gpu{a}", "b": f"gpu{b}", "kind": "NV18"} for a in range(8) for b in range(8) if a != b),
            *({"a": f"gpu{a}", "b": f"nic{a}", "kind": "PIX"} for a in range(8)),
        ],
        "rdma": [_port(index) for index in range(8)],
        "nics": [
            {"name": "eno1", "driver": "igb", "speed_mbps": 1000, "speed_max_mbps": 1000, "mtu": 1500, **fast},
            {"name": "ens1f0np0", "driver": "mlx5_core", "speed_mbps": 100_000, "speed_max_mbps": 100_000, "mtu": 9000,
             "ring_rx": 1024, "ring_rx_max": 8192, "rx_usecs": 8, "adaptive_rx": True, "channels": 63, "channels_max": 63,
             "features": {"generic-receive-offload": True, "tcp-segmentation-offload": True, "tx-nocache-copy": False}, **fast},
            *({"name": f"ib{n}", "driver": "mlx5_core", "speed_mbps": 400_000, "speed_max_mbps": 400_000, "mtu": 2044, **fast} for n in range(8)),
            {"name": "lo", "is_physical": False, "state": "unknown", "mtu": 65536},
        ],
        "disks": [
            {"name": f"nvme{n}n1", "is_virtual": False, "rotational": False, "scheduler": "none", "read_ahead_kb": 128,
             "rq_affinity": 1, "nomerges": 0, "pcie_width": 4, "pcie_width_max": 4, "pcie_speed_gts": 16.0, "size_bytes": 3840 * GIB,
             "smart_warning": 0, "smart_used_pct": 3, "smart_media_errors": 0} for n in range(8)
        ],
        "mounts": [
            {"path": "/", "fs": "ext4", "options": ["rw", "relatime"], "size_bytes": 1750 * GIB, "free_bytes": 1500 * GIB},
            {"path": "/raid", "fs": "xfs", "options": ["rw", "relatime"], "size_bytes": 28_000 * GIB, "free_bytes": 20_000 * GIB},
            {"path": "/lustre", "fs": "lustre", "options": ["rw", "flock"], "size_bytes": 10**15, "free_bytes": 10**14},
        ],
        "arrays": [{"name": "md1", "level": "raid0"}],
        "environment": {"HOME": "/root"},
        "p2p": [{"a": f"gpu{a}", "b": f"gpu{b}", "kind": "OK"} for a in range(8) for b in range(8) if a != b],
        "irqs": [
            {"number": 100 + n, "kind": "nic", "address": "0000:18:00.0", "effective": [n], "count": 10**6, "busiest": n, "max_share": 0.6}
            for n in range(16)
        ],
        "seen": ("processes", "diagnostics"),
    }  # fmt: skip


def busy() -> dict[str, Any]:
    """The same at work: eight ranks, each on the socket of its GPU with its memory there, all rails and GPUs in use."""
    one = hgx()
    gpus = [
        {**each, "utilization_pct": 98, "power_w": 690.0, "temperature_c": 66, "throttle": ["sw_power_cap"], "memory_used_bytes": 70 * GIB,
         "processes": [{"pid": 4000 + n, "name": "python"}]} for n, each in enumerate(one["gpus"])
    ]  # fmt: skip
    ranks = [
        {"pid": 4000 + n, "name": "python", "gpus": [n], "allowed": TWO_SOCKETS[n // 4]["cpus"], "thread_cpus": TWO_SOCKETS[n // 4]["cpus"],
         "pages": {f"N{n // 4}": 8_000_000, f"N{1 - n // 4}": 90_000}, "policy": "default", "oom_score_adj": 0, "libraries": ["libgomp.so.1", "libnccl.so.2"],
         "is_foreign": False} for n in range(8)
    ]  # fmt: skip
    environment = {
        "OMP_NUM_THREADS": "8",
        "WORLD_SIZE": "16",
        "LOCAL_WORLD_SIZE": "8",
        "RANK": "3",
        "NCCL_DEBUG": "WARN",
        "GLOO_SOCKET_IFNAME": "ens1f0np0",
    }
    return {**one, "gpus": gpus, "processes": ranks, "environment": environment, "seen": ("diagnostics",)}


def slurm() -> dict[str, Any]:
    """A job with two of the eight GPUs and a quarter of the CPUs of that machine."""
    one = hgx()
    mask = [*range(24), *range(96, 120)]
    return {
        **one, "cpu": {**one["cpu"], "allowed": mask}, "gpus": one["gpus"][:2],
        "p2p": [pair for pair in one["p2p"] if pair["a"] in ("gpu0", "gpu1") and pair["b"] in ("gpu0", "gpu1")],
        "links": [link for link in one["links"] if link["a"] in ("gpu0", "gpu1") and link["b"] in ("gpu0", "gpu1", "nic0", "nic1")],
        "container": {**one["container"], "cpuset": mask, "cpuset_mems": [0, 1], "memory_limit_bytes": 500 * GIB},
        "environment": {"SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "2", "CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "12"},
    }  # fmt: skip


def pod() -> dict[str, Any]:
    """A pod with all eight GPUs on a cloud's virtual machine: links, firmware and clocks are the host's."""
    one = hgx()
    gpus = [{**each, "virtualization": "passthrough"} for each in one["gpus"]]
    cpu = {
        **{key: one["cpu"][key] for key in ("arch", "vendor", "flags", "logical", "cores", "packages", "offline", "allowed", "isolated")},
        "hypervisor": "kvm", "smt": "on", "clocksource": "kvm-clock", "idle_driver": "haltpoll", "idle_states": [], "steal_pct": 0.01,
        "possible": 192, "nohz_full": [], "page_size_bytes": 4096,
    }  # fmt: skip
    return {
        **one, "cpu": cpu, "gpus": gpus, "pci": _bus(gpus, behind=False), "links": [], "rdma": [], "p2p": [], "irqs": [],
        "container": {
            **NO_CONTAINER, "kind": "kubernetes", "sees_host_processes": False, "shm_bytes": 64 * GIB, "memory_limit_bytes": 1800 * GIB, "memory_used_bytes": GIB,
            "cpuset_mems": [0, 1], "capabilities": ["CAP_CHOWN", "CAP_SYS_NICE"], "pids_limit": 10_000,
        },
        "kernel": {**one["kernel"], "sysctl_files": {}, "active_services": None, "enabled_services": None, "xids": None, "events": {}, "iommu_groups": 0, "iommu_types": []},
        "software": {**SOFTWARE, "persistenced_running": False, "fabricmanager_running": False},
        "nics": [{"name": "eth0", "driver": "veth", "is_physical": False, "state": "up", "mtu": 8896}],
        "disks": [], "mounts": [{"path": "/etc/hosts", "fs": "ext4", "options": ["rw", "relatime", "discard"]}],
        "environment": {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "KUBERNETES_PORT": "x"},
        "seen": ("rdma", "links", "disks", "processes", "diagnostics", "irqs", "arrays", "p2p"),
    }  # fmt: skip


def grace() -> dict[str, Any]:
    """A tray of a GB200 rack: two Grace, four Blackwell, GPU memory as nodes of its own, the fabric managed from elsewhere."""
    one = hgx()
    numa = [
        {"id": 0, "cpus": list(range(72)), **NODE, "mem_bytes": 480 * GIB, "mem_free_bytes": 300 * GIB, "distances": [10, 40, *[80] * 4]},
        {"id": 1, "cpus": list(range(72, 144)), **NODE, "mem_bytes": 480 * GIB, "mem_free_bytes": 300 * GIB, "distances": [40, 10, *[80] * 4]},
        *(
            {"id": n, "cpus": [], "mem_bytes": 186 * GIB, "distances": [80, 80, *[10 if m == n else 255 for m in range(2, 6)]]}
            for n in range(2, 6)
        ),
    ]  # fmt: skip
    gpus = [
        gpu(
            index, name="NVIDIA GB200", architecture="Blackwell", compute_capability="10.0", memory_bytes=186 * GIB, bar1_bytes=256 * GIB,
            c2c=True, numa_node=index // 2, cpu_affinity=numa[index // 2]["cpus"], power_limit_w=1200.0, power_default_w=1200.0,
            persistence=False, sm_app_mhz=None, sm_app_default_mhz=None, temperature_slowdown_c=None,
        )
        for index in range(4)
    ]  # fmt: skip
    cpu = {
        "arch": "aarch64", "vendor": "ARM", "hypervisor": "none", "logical": 144, "possible": 144, "cores": 144, "packages": 2,
        "offline": [], "allowed": list(range(144)), "isolated": [], "nohz_full": [], "smt": "notimplemented",
        "scaling_driver": "cppc_cpufreq", "governors": ["performance"], "boost": None, "capped_policies": 0, "policies": 144,
        "idle_driver": "acpi_idle", "idle_states": [{"name": "LPI-0", "latency_us": 1, "disabled": False}],
        "clocksource": "arch_sys_counter", "page_size_bytes": 65536, "steal_pct": 0.0, "resume_latency_us": [0],
    }  # fmt: skip
    return {
        **one, "cpu": cpu, "numa": numa, "gpus": gpus, "pci": _bus(gpus, behind=True), "rdma": one["rdma"][:4],
        "memory": {**MEMORY, "total_bytes": 960 * GIB, "dmi_product": "GB200 NVL"},
        "links": [{"a": f"gpu{a}", "b": f"gpu{b}", "kind": "NV18"} for a in range(4) for b in range(4) if a != b],
        "p2p": [{"a": f"gpu{a}", "b": f"gpu{b}", "kind": "OK"} for a in range(4) for b in range(4) if a != b], "irqs": [],
        "software": {**SOFTWARE, "fabricmanager_running": False, "imex_running": True, "persistenced_running": True},
        "kernel": {**one["kernel"], "cmdline": ["iommu.passthrough=1", "init_on_alloc=0"]},
    }  # fmt: skip


def desk() -> dict[str, Any]:
    """A workstation with a display on its GPU and the defaults of a desktop."""
    one = hgx()
    card = gpu(
        0, name="NVIDIA GeForce RTX 4090", architecture="Ada Lovelace", compute_capability="8.9", memory_bytes=24 * GIB, ecc=False,
        ecc_pending=False, bar1_bytes=256 << 20, memory_used_bytes=2 * GIB, mig_capable=False, mig=None, mig_pending=None, persistence=False,
        nvlinks_active=None, nvlinks_total=None, nvlink_errors=None, fabric_state=None, fabric_status=None, pcie_gen=1, pcie_gen_max=4,
        power_limit_w=450.0, power_default_w=450.0, remap_pending=None, remap_failed=None, runtime_d3="Disabled by default",
        ecc_uncorrected=None, cpu_affinity=list(range(32)), numa_node=None, sm_app_mhz=None, sm_app_default_mhz=None,
    )  # fmt: skip
    cpu = {
        **one["cpu"], "vendor": "AuthenticAMD", "logical": 32, "possible": 32, "cores": 16, "packages": 1, "allowed": list(range(32)),
        "scaling_driver": "amd-pstate-epp", "governors": ["powersave"], "energy_preferences": ["balance_performance"], "energy_bias": None,
        "idle_driver": "acpi_idle", "idle_states": [{"name": "C3", "latency_us": 350, "disabled": False}], "rapl_limit_w": None,
        "rapl_max_w": None, "core_throttles": None, "package_throttles": None, "platform_profile": None,
    }  # fmt: skip
    sysctls = {
        **SYSCTLS,
        "vm.swappiness": "60",
        "vm.max_map_count": "1048576",
        "kernel.numa_balancing": "0",
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
    }
    return {
        **one, "cpu": cpu, "numa": [{"id": 0, "cpus": list(range(32)), "mem_bytes": 64 * GIB, "distances": [10]}], "gpus": [card],
        "memory": {**MEMORY, "total_bytes": 64 * GIB, "swap_total_bytes": 8 * GIB, "swap_devices": ["/dev/zram0"], "dmi_product": "MS-7D67"},
        "limits": {**LIMITS, "memlock_bytes": {"soft": 8 << 20, "hard": 8 << 20}, "open_files": {"soft": 1024, "hard": 524288}},
        "container": {**NO_CONTAINER, "shm_bytes": 32 * GIB}, "rdma": [], "links": [], "pci": _bus([card], behind=True),
        "nics": one["nics"][:1], "p2p": [], "irqs": [], "software": {**SOFTWARE, "persistenced_running": False, "fabricmanager_running": False},
        "kernel": {**one["kernel"], "sysctls": sysctls, "sysctl_files": {}, "cmdline": ["quiet", "splash"], "iommu_types": ["DMA-FQ"], "modules": ["nvidia", "nvidia_uvm"]},
        "environment": {"DISPLAY": ":0"}, "seen": ("rdma", "links", "processes", "diagnostics", "irqs", "arrays", "p2p"),
    }  # fmt: skip


FLEET = (hgx, busy, slurm, pod, grace, desk)
