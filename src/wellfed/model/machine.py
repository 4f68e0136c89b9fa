"""A machine as the readers saw it.

Every field is filled by a `Fact` of the same path (`memory.thp_enabled` fills `Machine.memory.thp_enabled`,
`gpus[0].name` fills `Machine.gpus[0].name`), and None means unknown: `Machine.gaps` then says why.
Units are in the names. Collections are tuples, keyed ones are dicts.
"""

from wellfed.model.base import Value
from wellfed.model.devices import (
    Array,
    Diagnostic,
    Disk,
    Gpu,
    Irq,
    Link,
    Mount,
    Nic,
    PciDevice,
    Process,
    RdmaPort,
)
from wellfed.model.fact import Fact


class CpuThread(Value, frozen=True, kw_only=True):
    """One logical CPU. `core` is unique in the machine; `l3` numbers the L3 group; `capacity` is the
    kernel's relative speed (1024 = fastest); `kind` is `performance` or `efficiency` on hybrid parts."""

    id: int
    core: int | None = None
    package: int | None = None
    node: int | None = None
    l3: int | None = None
    capacity: int | None = None
    kind: str | None = None
    online: bool = True


class IdleState(Value, frozen=True, kw_only=True):
    name: str
    latency_us: int | None = None
    disabled: bool | None = None


class Cpu(Value, frozen=True, kw_only=True):
    """`logical` counts online logical CPUs; `allowed` are those this process may use (affinity and cpuset).
    `rapl_*` are of the first package. `dma_latency_us` is what /dev/cpu_dma_latency asks for, `dma_latency_holders` the
    names of known daemons that hold it open. `resume_latency_us` are the different values of the CPUs' own limits.
    `foreign_pct` is CPU time that others took on the allowed CPUs just now, in percent of one CPU; others are all outside
    our control group."""

    arch: str | None = None
    vendor: str | None = None
    model_name: str | None = None
    family: int | None = None
    model: int | None = None
    microcode: str | None = None
    flags: tuple[str, ...] | None = None
    hypervisor: str | None = None
    logical: int | None = None
    possible: int | None = None
    cores: int | None = None
    packages: int | None = None
    threads_per_core: int | None = None
    l3_groups: int | None = None
    l3_bytes: int | None = None
    offline: tuple[int, ...] | None = None
    allowed: tuple[int, ...] | None = None
    isolated: tuple[int, ...] | None = None
    nohz_full: tuple[int, ...] | None = None
    threads: tuple[CpuThread, ...] | None = None
    smt: str | None = None
    scaling_driver: str | None = None
    governors: tuple[str, ...] | None = None
    energy_preferences: tuple[str, ...] | None = None
    energy_bias: tuple[int, ...] | None = None
    boost: bool | None = None
    capped_policies: int | None = None
    policies: int | None = None
    max_khz: int | None = None
    idle_driver: str | None = None
    idle_states: tuple[IdleState, ...] | None = None
    clocksource: str | None = None
    platform_profile: str | None = None
    page_size_bytes: int | None = None
    steal_pct: float | None = None
    pressure_some_pct: float | None = None
    rapl_limit_w: float | None = None
    rapl_max_w: float | None = None
    core_throttles: int | None = None
    package_throttles: int | None = None
    dma_latency_us: int | None = None
    dma_latency_holders: tuple[str, ...] | None = None
    resume_latency_us: tuple[int, ...] | None = None
    foreign_pct: float | None = None


class NumaNode(Value, frozen=True, kw_only=True):
    """`cpus` is empty for a memory-only node (CXL, GPU memory). `distances` is this node's row, by node order. `hits` are
    pages that were wanted here and came from here since boot, `foreign` those that had to come from another node, `misses`
    those that another node could not give."""

    id: int
    cpus: tuple[int, ...] = ()
    mem_bytes: int | None = None
    mem_free_bytes: int | None = None
    distances: tuple[int, ...] | None = None
    file_bytes: int | None = None
    hits: int | None = None
    misses: int | None = None
    foreign: int | None = None
    interleave_weight: int | None = None


class HugePool(Value, frozen=True, kw_only=True):
    page_bytes: int
    total: int
    free: int | None = None


class Memory(Value, frozen=True, kw_only=True):
    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_devices: tuple[str, ...] | None = None
    thp_enabled: str | None = None
    thp_defrag: str | None = None
    thp_shmem: str | None = None
    khugepaged_defrag: int | None = None
    khugepaged_scan_sleep_ms: int | None = None
    khugepaged_pages_to_scan: int | None = None
    huge_pools: tuple[HugePool, ...] | None = None
    ksm_run: int | None = None
    edac_uncorrected: int | None = None
    edac_corrected: int | None = None
    thp_fault_alloc: int | None = None
    thp_fault_fallback: int | None = None
    compact_stall: int | None = None
    dmi_product: str | None = None
    free_huge_blocks: int | None = None
    mlocked_bytes: int | None = None
    unevictable_bytes: int | None = None
    demotion_enabled: bool | None = None
    auto_online: str | None = None


class SoftNet(Value, frozen=True, kw_only=True):
    """Sums of `/proc/net/softnet_stat` over the CPUs: packets, those dropped for a full backlog, rounds cut short."""

    processed: int
    dropped: int
    squeezed: int


class Unit(Value, frozen=True, kw_only=True):
    """Limits that systemd gives a service; -1 is unlimited."""

    name: str
    memlock_bytes: int | None = None
    open_files: int | None = None
    tasks_max: int | None = None


class Kernel(Value, frozen=True, kw_only=True):
    """`sysctls` holds the watched keys that exist, as text (`vm.swappiness` -> `60`); `sysctl_files` what the
    files of sysctl.d and the active profile of tuned set (`vm.swappiness` -> `10 @ /etc/sysctl.d/90-x.conf`, the last one counts); `config` watched
    options of the kernel's build (`CONFIG_PREEMPT` -> `y`, `n` when it is not set). `events` counts lines of the kernel's log by kind
    (`x2apic`, `memory-encryption`, `sxid`, `aer`, `edac`, `oom`, `hung-task`, `soft-lockup`, `tsc-unstable`,
    `link-flap`): 0 is none in a log that was read. `name_on_loopback`: the host's own name stands at 127.x in /etc/hosts."""

    release: str | None = None
    version: str | None = None
    os_name: str | None = None
    cmdline: tuple[str, ...] | None = None
    sysctls: dict[str, str] = {}
    modules: tuple[str, ...] | None = None
    mitigations: dict[str, str] = {}
    preemption: str | None = None
    iommu_groups: int | None = None
    iommu_types: tuple[str, ...] | None = None
    virtualization: str | None = None
    uptime_s: float | None = None
    active_services: tuple[str, ...] | None = None
    tuned_profile: str | None = None
    xids: tuple[str, ...] | None = None
    config: dict[str, str] = {}
    sysctl_files: dict[str, str] | None = None
    events: dict[str, int] = {}
    aspm_policy: str | None = None
    systemd_numa_policy: str | None = None
    systemd_numa_mask: tuple[int, ...] | None = None
    default_irq_affinity: tuple[int, ...] | None = None
    workqueue_cpumask: tuple[int, ...] | None = None
    softnet: SoftNet | None = None
    arp_entries: int | None = None
    nvme_ps_max_latency_us: int | None = None
    name_on_loopback: bool | None = None
    enabled_services: tuple[str, ...] | None = None
    units: tuple[Unit, ...] | None = None


class Limit(Value, frozen=True, kw_only=True):
    """Soft and hard limit; -1 means unlimited."""

    soft: int
    hard: int


class Limits(Value, frozen=True, kw_only=True):
    memlock_bytes: Limit | None = None
    open_files: Limit | None = None
    processes: Limit | None = None
    stack_bytes: Limit | None = None
    core_bytes: Limit | None = None


class Container(Value, frozen=True, kw_only=True):
    """`kind` is `docker`, `podman`, `kubernetes`, `lxc`... or `none`. Limits are the tightest along the
    cgroup path; None with a fact of status ok does not occur: unlimited memory is -1, an unlimited quota is -1.
    `sees_host_processes`: processes of others are visible at all. `user_namespace`: root here is not root of the host. `numa_calls` says what the kernel answers to memory policies
    (`ok`, `EPERM`, `ENOSYS`)."""

    kind: str | None = None
    cgroup_version: int | None = None
    cpu_quota: float | None = None
    cpuset: tuple[int, ...] | None = None
    cpuset_mems: tuple[int, ...] | None = None
    nr_throttled: int | None = None
    nr_periods: int | None = None
    throttled_us: int | None = None
    memory_limit_bytes: int | None = None
    memory_high_bytes: int | None = None
    memory_used_bytes: int | None = None
    oom_kills: int | None = None
    pids_limit: int | None = None
    pids_used: int | None = None
    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    capabilities: tuple[str, ...] | None = None
    seccomp: int | None = None
    proc_sys_writable: bool | None = None
    sys_writable: bool | None = None
    cpu_weight: int | None = None
    hugetlb_limit_bytes: int | None = None
    rdma_limits: dict[str, str] | None = None
    device_infiniband: bool | None = None
    user_namespace: bool | None = None
    net_sys_writable: bool | None = None
    numa_calls: str | None = None
    sees_host_processes: bool | None = None


class Package(Value, frozen=True, kw_only=True):
    name: str
    version: str
    path: str | None = None


class Software(Value, frozen=True, kw_only=True):
    """Versions found without importing anything. `cuda_driver` is the newest CUDA the driver runs. `driver_params`
    are parameters of the NVIDIA kernel modules, `device_nodes` the NVIDIA device files that exist (`nvidia0`), `env_files` whether a file that a
    variable names is there (by the variable), `kubelet` the watched keys of its configuration."""

    python: str | None = None
    python_path: str | None = None
    gil: bool | None = None
    driver: str | None = None
    driver_open: bool | None = None
    cuda_driver: str | None = None
    cuda_toolkit: str | None = None
    rocm: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None
    nccl: str | None = None
    nccl_libraries: tuple[str, ...] | None = None
    cudnn: str | None = None
    glibc: str | None = None
    packages: tuple[Package, ...] | None = None
    tools: dict[str, bool] = {}
    mps_binaries: bool | None = None
    mps_running: bool | None = None
    persistenced_running: bool | None = None
    fabricmanager_running: bool | None = None
    nccl_config: tuple[str, ...] | None = None
    driver_params: dict[str, str] = {}
    device_nodes: tuple[str, ...] | None = None
    env_files: dict[str, bool] = {}
    imex_running: bool | None = None
    imex_channels: int | None = None
    cdi_driver: str | None = None
    kubelet: dict[str, str] | None = None


class Machine(Value, frozen=True, kw_only=True):
    """What is known of one machine. `facts` is keyed by field path and carries the evidence; `gaps` says
    for each field path that could not be seen why not. `p2p` says of each pair of GPUs whether one may read the
    other's memory, its `kind` as `nvidia-smi topo -p2p r` prints it (`OK`, `CNS`, `GNS`, `TNS`, `NS`, `DR`)."""

    cpu: Cpu = Cpu()
    numa: tuple[NumaNode, ...] = ()
    memory: Memory = Memory()
    kernel: Kernel = Kernel()
    pci: tuple[PciDevice, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    nics: tuple[Nic, ...] = ()
    rdma: tuple[RdmaPort, ...] = ()
    disks: tuple[Disk, ...] = ()
    mounts: tuple[Mount, ...] = ()
    limits: Limits = Limits()
    container: Container = Container()
    environment: dict[str, str] = {}
    software: Software = Software()
    irqs: tuple[Irq, ...] = ()
    arrays: tuple[Array, ...] = ()
    processes: tuple[Process, ...] = ()
    p2p: tuple[Link, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    hostname: str | None = None
    facts: dict[str, Fact] = {}
    gaps: dict[str, str] = {}
