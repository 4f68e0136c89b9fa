"""A machine as the readers saw it.

Every field is filled by a `Fact` of the same path (`memory.thp_enabled` fills `Machine.memory.thp_enabled`,
`gpus[0].name` fills `Machine.gpus[0].name`), and None means unknown: `Machine.gaps` then says why.
Units are in the names. Collections are tuples, keyed ones are dicts.
"""

from wellfed.model.base import Value
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
    """`logical` counts online logical CPUs; `allowed` are those this process may use (affinity and cpuset)."""

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


class NumaNode(Value, frozen=True, kw_only=True):
    """`cpus` is empty for a memory-only node (CXL, GPU memory). `distances` is this node's row, by node order."""

    id: int
    cpus: tuple[int, ...] = ()
    mem_bytes: int | None = None
    mem_free_bytes: int | None = None
    distances: tuple[int, ...] | None = None


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


class Kernel(Value, frozen=True, kw_only=True):
    """`sysctls` holds the watched keys that exist, as text (`vm.swappiness` -> `60`)."""

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


class PciDevice(Value, frozen=True, kw_only=True):
    """Link speeds in GT/s, as sysfs prints them; `acs_redirect` is True when ACS redirects peer traffic."""

    address: str
    vendor: str | None = None
    device: str | None = None
    class_code: str | None = None
    driver: str | None = None
    numa_node: int | None = None
    local_cpus: tuple[int, ...] | None = None
    speed_gts: float | None = None
    speed_max_gts: float | None = None
    width: int | None = None
    width_max: int | None = None
    parent: str | None = None
    power_control: str | None = None
    aer_correctable: int | None = None
    aer_nonfatal: int | None = None
    aer_fatal: int | None = None
    acs_redirect: bool | None = None
    is_virtual: bool | None = None


class GpuProcess(Value, frozen=True, kw_only=True):
    pid: int
    name: str | None = None
    used_bytes: int | None = None


class Gpu(Value, frozen=True, kw_only=True):
    """One physical GPU. Clocks in MHz, power in watts, temperatures in degrees Celsius. `throttle` holds the
    clock-event reasons active now, by name. `bar1_bytes` is the CPU-visible window. `address` is the
    lower-case PCI address with a four-digit domain (`0000:0f:00.0`)."""

    index: int
    vendor: str | None = None
    name: str | None = None
    catalog: str | None = None
    uuid: str | None = None
    serial: str | None = None
    address: str | None = None
    device_id: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    driver: str | None = None
    vbios: str | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    bar1_bytes: int | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_uncorrected: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_pending: bool | None = None
    mig_capable: bool | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    mig_devices: int | None = None
    virtualization: str | None = None
    compute_mode: str | None = None
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    sm_app_mhz: int | None = None
    sm_app_default_mhz: int | None = None
    mem_mhz: int | None = None
    mem_max_mhz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    power_max_w: float | None = None
    temperature_c: int | None = None
    temperature_slowdown_c: int | None = None
    memory_temperature_c: int | None = None
    throttle: tuple[str, ...] | None = None
    utilization_pct: int | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_gen_device_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    numa_node: int | None = None
    cpu_affinity: tuple[int, ...] | None = None
    nvlinks_active: int | None = None
    nvlinks_total: int | None = None
    nvlink_version: int | None = None
    nvlink_errors: int | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    c2c: bool | None = None
    gsp_firmware: str | None = None
    processes: tuple[GpuProcess, ...] | None = None


class Link(Value, frozen=True, kw_only=True):
    """One cell of the topology matrix: `a` and `b` are `gpu0`, `nic3`...; `kind` as `nvidia-smi topo -m`
    prints it (`NV18`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS`, `C2C`)."""

    a: str
    b: str
    kind: str
    lanes: int | None = None


class Nic(Value, frozen=True, kw_only=True):
    """`speed_mbps` is None when the driver does not know (virtio prints -1)."""

    name: str
    driver: str | None = None
    address: str | None = None
    numa_node: int | None = None
    state: str | None = None
    speed_mbps: int | None = None
    mtu: int | None = None
    is_physical: bool | None = None
    is_default_route: bool | None = None
    rx_queues: int | None = None
    tx_queues: int | None = None
    rx_dropped: int | None = None
    carrier_changes: int | None = None


class RdmaPort(Value, frozen=True, kw_only=True):
    """One port of an RDMA device. `rate_gbps` from `rate`; error counters summed over the two counter folders."""

    device: str
    port: int
    state: str | None = None
    physical_state: str | None = None
    link_layer: str | None = None
    rate_gbps: float | None = None
    firmware: str | None = None
    board: str | None = None
    numa_node: int | None = None
    address: str | None = None
    link_downed: int | None = None
    symbol_errors: int | None = None
    counters: dict[str, int] = {}


class Disk(Value, frozen=True, kw_only=True):
    """A block device (partitions left out). `read_ahead_kb` etc. are the queue's knobs."""

    name: str
    model: str | None = None
    size_bytes: int | None = None
    rotational: bool | None = None
    scheduler: str | None = None
    read_ahead_kb: int | None = None
    nr_requests: int | None = None
    rq_affinity: int | None = None
    is_virtual: bool | None = None
    numa_node: int | None = None
    address: str | None = None
    pcie_speed_gts: float | None = None
    pcie_speed_max_gts: float | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None


class Mount(Value, frozen=True, kw_only=True):
    """A mounted file system that can hold data; sizes are None when replayed or not reachable."""

    path: str
    source: str | None = None
    fs: str | None = None
    options: tuple[str, ...] = ()
    size_bytes: int | None = None
    free_bytes: int | None = None
    inodes_free: int | None = None


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
    cgroup path; None with a fact of status ok does not occur: unlimited memory is -1, an unlimited quota is -1."""

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


class Package(Value, frozen=True, kw_only=True):
    name: str
    version: str
    path: str | None = None


class Software(Value, frozen=True, kw_only=True):
    """Versions found without importing anything. `cuda_driver` is the newest CUDA the driver runs."""

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


class Machine(Value, frozen=True, kw_only=True):
    """What is known of one machine. `facts` is keyed by field path and carries the evidence; `gaps` says
    for each field path that could not be seen why not."""

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
    hostname: str | None = None
    facts: dict[str, Fact] = {}
    gaps: dict[str, str] = {}
