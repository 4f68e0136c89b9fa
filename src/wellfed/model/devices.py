"""What hangs on a machine: PCI devices, GPUs, links, interfaces, disks, their interrupts, and who uses them now.

See `machine.py` for how fields are filled.
"""

from wellfed.model.base import Value


class PciDevice(Value, frozen=True, kw_only=True):
    """Link speeds in GT/s, as sysfs prints them; `acs_redirect` is True when ACS redirects peer traffic.
    `max_payload` and `max_read_request` in bytes. `aspm` is what is on now (`disabled`, `L0s`, `L1`, `L0s L1`).
    `extended_tags` and `ten_bit_tags` are None where the device cannot use them. `bars_unplaced` counts the memory windows
    of a GPU that the firmware and the kernel gave no address."""

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
    max_payload: int | None = None
    max_payload_capable: int | None = None
    max_read_request: int | None = None
    relaxed_ordering: bool | None = None
    extended_tags: bool | None = None
    ten_bit_tags: bool | None = None
    ats_enabled: bool | None = None
    aspm: str | None = None
    bars_unplaced: int | None = None


class GpuProcess(Value, frozen=True, kw_only=True):
    pid: int
    name: str | None = None
    used_bytes: int | None = None


class Gpu(Value, frozen=True, kw_only=True):
    """One physical GPU. Clocks in MHz, power in watts, temperatures in degrees Celsius. `throttle` holds the
    clock-event reasons active now, by name. `bar1_bytes` is the CPU-visible window. `address` is the
    lower-case PCI address with a four-digit domain (`0000:0f:00.0`). `event_reason_us` counts the
    microseconds spent under each clock-event reason since the driver was loaded; `power_profiles` are the workload
    profiles asked for."""

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
    event_reason_us: dict[str, int] | None = None
    inforom_valid: bool | None = None
    confidential: bool | None = None
    power_profiles: tuple[int, ...] | None = None
    runtime_d3: str | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None


class Link(Value, frozen=True, kw_only=True):
    """One cell of the topology matrix: `a` and `b` are `gpu0`, `nic3`...; `kind` as `nvidia-smi topo -m`
    prints it (`NV18`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS`, `C2C`)."""

    a: str
    b: str
    kind: str
    lanes: int | None = None


class Nic(Value, frozen=True, kw_only=True):
    """`speed_mbps` is None when the driver does not know (virtio prints -1). `busy_mbps` is what goes over it now, in the
    busier direction. `rx_usecs` is interrupt
    coalescing, `rps_cpus` how many CPUs receive packet steering names, `drops` the sum of the driver's own counters of
    packets dropped for want of buffers, `features` the offloads by the name that `ethtool -k` gives them."""

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
    duplex: str | None = None
    speed_max_mbps: int | None = None
    ring_rx: int | None = None
    ring_rx_max: int | None = None
    ring_tx: int | None = None
    ring_tx_max: int | None = None
    rx_usecs: int | None = None
    adaptive_rx: bool | None = None
    channels: int | None = None
    channels_max: int | None = None
    rps_cpus: int | None = None
    rx_packets: int | None = None
    drops: int | None = None
    ecn_np: bool | None = None
    ecn_rp: bool | None = None
    features: dict[str, bool] | None = None
    busy_mbps: float | None = None


class Gid(Value, frozen=True, kw_only=True):
    """One entry of a port's table of addresses; the address itself is not kept. `kind` as sysfs says (`RoCE v2`,
    `IB/RoCE v1`), `family` is `ipv4`, `ipv6` or `link-local`."""

    index: int
    kind: str | None = None
    family: str | None = None


class RdmaPort(Value, frozen=True, kw_only=True):
    """One port of an RDMA device. `rate_gbps` from `rate`; error counters summed over the two counter folders.
    `busy_gbps` is what goes over it now, in the busier direction."""

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
    gids: tuple[Gid, ...] | None = None
    active_mtu: int | None = None
    netdev: str | None = None
    busy_gbps: float | None = None


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
    nomerges: int | None = None
    smart_warning: int | None = None
    smart_used_pct: int | None = None
    smart_media_errors: int | None = None


class Mount(Value, frozen=True, kw_only=True):
    """A mounted file system that can hold data; sizes are None when replayed or not reachable."""

    path: str
    source: str | None = None
    fs: str | None = None
    options: tuple[str, ...] = ()
    size_bytes: int | None = None
    free_bytes: int | None = None
    inodes_free: int | None = None


class Array(Value, frozen=True, kw_only=True):
    """A software RAID of `/proc/mdstat`; `degraded` counts the members that are missing."""

    name: str
    level: str | None = None
    degraded: int | None = None
    chunk_kb: int | None = None


class Irq(Value, frozen=True, kw_only=True):
    """One interrupt of a device. `kind` is `gpu`, `nic`, `rdma` or `nvme`, by the device's class; `effective` are the
    CPUs that it goes to; `count` since boot, `busiest` the CPU that took most of them and `max_share` its part."""

    number: int
    kind: str | None = None
    address: str | None = None
    effective: tuple[int, ...] | None = None
    count: int | None = None
    busiest: int | None = None
    max_share: float | None = None


class Process(Value, frozen=True, kw_only=True):
    """A process that holds a GPU. `name` is a known daemon's or an interpreter's, else `other`. `gpus` are indexes;
    `allowed` is where its first thread may run, `thread_cpus` where any of its threads may; `pages` are pages of 4 KiB by
    NUMA node (`N0` -> 1000), `policy` the memory policy of most of them; `libraries` the OpenMP and NCCL libraries that it
    has mapped. `is_foreign`: of another user; None when of ours, but outside our control group."""

    pid: int
    name: str | None = None
    gpus: tuple[int, ...] = ()
    allowed: tuple[int, ...] | None = None
    thread_cpus: tuple[int, ...] | None = None
    pages: dict[str, int] | None = None
    policy: str | None = None
    oom_score_adj: int | None = None
    libraries: tuple[str, ...] | None = None
    is_foreign: bool | None = None


class Diagnostic(Value, frozen=True, kw_only=True):
    """One result of a health tool that somebody else ran (DCGM's diagnostics): `result` as the tool says it."""

    tool: str
    test: str
    gpu: int | None = None
    result: str | None = None
    detail: str | None = None
