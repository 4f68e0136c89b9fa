"""The part of docs/validation/host.md on the recorded H200 machine: what its own tools say, what we read, and why each
verdict on it is right. `corpus_machines.py` writes it, `test_h200.py` asserts it, also where no corpus is at hand."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wellfed.check import judge_machine
from wellfed.host import look, open_host
from wellfed.model import Machine

BOX = Path(__file__).resolve().parents[1] / "hosts" / "h200-vm.tar"
GIB = 1 << 30

# What it is about, what the tool printed on that machine, which tool, and what we read. The printed values were written
# down by hand from the output of that tool in that machine, never from our parsers.
PRINTED: tuple[tuple[str, Any, str, Callable[[Machine], Any]], ...] = (
    ("GPUs", 1, "nvidia-smi", lambda m: len(m.gpus)),
    ("name", "NVIDIA H200", "nvidia-smi", lambda m: m.gpus[0].name),
    ("architecture", "Hopper", "nvidia-smi -q -x", lambda m: m.gpus[0].architecture),
    ("driver", "580.159.04", "nvidia-smi", lambda m: m.software.driver),
    ("newest CUDA it runs", "13.0", "nvidia-smi", lambda m: m.software.cuda_driver),
    ("open kernel module", True, "/proc/driver/nvidia/version", lambda m: m.software.driver_open),
    ("PCI address", "0000:00:06.0", "nvidia-smi", lambda m: m.gpus[0].address),
    ("device", "10de:2335", "nvidia-smi -q -x", lambda m: m.gpus[0].device_id),
    ("memory, MiB", 143771, "nvidia-smi", lambda m: (m.gpus[0].memory_bytes or 0) >> 20),
    ("memory in use, MiB", 0, "nvidia-smi", lambda m: m.gpus[0].memory_used_bytes),
    ("BAR1, MiB", 262144, "nvidia-smi -q -x", lambda m: (m.gpus[0].bar1_bytes or 0) >> 20),
    ("link now", (5, 16), "nvidia-smi -q -x", lambda m: (m.gpus[0].pcie_gen, m.gpus[0].pcie_width)),
    ("link at most", (5, 16), "nvidia-smi -q -x", lambda m: (m.gpus[0].pcie_gen_max, m.gpus[0].pcie_width_max)),
    ("SM clock and its maximum, MHz", (345, 1980), "nvidia-smi -q -x", lambda m: (m.gpus[0].sm_mhz, m.gpus[0].sm_max_mhz)),
    ("application clock and default, MHz", (1980, 1980), "nvidia-smi -q -x", lambda m: (m.gpus[0].sm_app_mhz, m.gpus[0].sm_app_default_mhz)),
    ("memory clock and its maximum, MHz", (3201, 3201), "nvidia-smi -q -x", lambda m: (m.gpus[0].mem_mhz, m.gpus[0].mem_max_mhz)),
    ("power limit, default, highest, W", (700, 700, 700), "nvidia-smi -q -x", lambda m: (m.gpus[0].power_limit_w, m.gpus[0].power_default_w, m.gpus[0].power_max_w)),
    ("power drawn idle, W", 78, "nvidia-smi -q -x", lambda m: round(m.gpus[0].power_w or 0)),
    ("temperature, C", 39, "nvidia-smi -q -x", lambda m: m.gpus[0].temperature_c),
    ("persistence", True, "nvidia-smi", lambda m: m.gpus[0].persistence),
    ("ECC now and pending", (True, True), "nvidia-smi -q -x", lambda m: (m.gpus[0].ecc, m.gpus[0].ecc_pending)),
    ("uncorrected ECC errors", (0, 0), "nvidia-smi -q -x", lambda m: (m.gpus[0].ecc_uncorrected, m.gpus[0].ecc_uncorrected_aggregate)),
    ("MIG: can, on, pending", (True, False, False), "nvidia-smi -q -x (Disabled, not N/A)", lambda m: (m.gpus[0].mig_capable, m.gpus[0].mig, m.gpus[0].mig_pending)),
    ("compute mode", "default", "nvidia-smi", lambda m: m.gpus[0].compute_mode),
    ("given to the machine by", "passthrough", "nvidia-smi -q -x", lambda m: m.gpus[0].virtualization),
    ("processes on it", (), "nvidia-smi", lambda m: m.gpus[0].processes),
    ("why clocks are low", ("gpu_idle",), "nvidia-smi -q -x", lambda m: m.gpus[0].throttle),
    ("its CPUs", tuple(range(16)), "nvidia-smi topo -m", lambda m: m.gpus[0].cpu_affinity),
    ("its NUMA node", 0, "nvidia-smi topo -m", lambda m: m.gpus[0].numa_node),
    ("MPS programs installed", True, "ls /usr/bin", lambda m: m.software.mps_binaries),
    ("logical CPUs", 16, "lscpu, nproc", lambda m: m.cpu.logical),
    ("cores, sockets, threads a core", (16, 1, 1), "lscpu", lambda m: (m.cpu.cores, m.cpu.packages, m.cpu.threads_per_core)),
    ("CPU", "Intel(R) Xeon(R) Processor", "lscpu", lambda m: m.cpu.model_name),
    ("family and model", (6, 207), "lscpu", lambda m: (m.cpu.family, m.cpu.model)),
    ("L3, MiB, and groups", (300, 1), "lscpu", lambda m: ((m.cpu.l3_bytes or 0) >> 20, m.cpu.l3_groups)),
    ("hypervisor", "kvm", "lscpu", lambda m: m.cpu.hypervisor),
    ("NUMA nodes and their CPUs", ((0, 16),), "lscpu", lambda m: tuple((node.id, len(node.cpus)) for node in m.numa)),
    ("Spectre v1", True, "lscpu", lambda m: m.kernel.mitigations["spectre_v1"].startswith("Mitigation: usercopy/swapgs")),
)  # fmt: skip

# Fields that could not be seen, and why that is so on this machine.
UNSEEN = {
    "gpus[0].nvlinks_active": "the driver has NVLink switched off for a single GPU (`NvLinkDisable: 1` in its parameters), so NVML answers NotSupported",
    "gpus[0].fabric_state": "a GPU without NVLink is in no fabric; nvidia-smi prints N/A",
    "gpus[0].retired_pending": "Hopper remaps rows instead of retiring pages; nvidia-smi prints N/A, and remapped rows are read",
    "cpu.governors": "the guest has no frequency scaling: its host governs the clock",
    "cpu.idle_states": "idle states are the host's",
    "memory.edac_uncorrected": "no memory controller is shown to the guest",
    "memory.dmi_product": "the guest has no DMI tables",
    "nics[0].speed_mbps": "virtio prints -1",
    "kernel.active_services": "there is no systemd",
    "links": "one GPU and no RDMA adapter: no pair of devices",
    "container.pids_used": "the group of the process has no pids controller",
    "disks[0].model": "virtio disks carry no model",
}

# Why the verdict on this machine is right, by what was seen with other tools or is known of such machines.
ARGUED = {
    "BIOS01": "one node by lscpu; a guest cannot set its host's interleaving",
    "BIOS03": "nvidia-smi: BAR1 262144 MiB over 143771 MiB of memory",
    "ENV25": "one GPU and no RDMA: NCCL has nobody to talk to",
    "CON01": "no quota: `cpu.max` of the group says max, nproc says 16",
    "CON02": "without a quota nothing throttles",
    "CON04": "OMP_NUM_THREADS and its like are not set",
    "CON05": "`oom_kill 0` in memory.events",
    "CON07": "/dev/shm is a tmpfs mounted with size=134217728k",
    "CON11": "memory policy needs a second node",
    "CPU01": "a guest: its clock is its host's, and no cpufreq is shown",
    "CPU04": "a guest: its clock is its host's, and no boost switch is shown",
    "CPU05": "a guest: its clock is its host's, and no cpufreq is shown",
    "CPU07": "a guest: its idle states are its host's, and no cpuidle is shown",
    "CPU12": "clock source is tsc, with constant and nonstop tsc",
    "CPU14": "`isolated` is empty, affinity is all 16",
    "CPU16": "all 16 CPUs are online; a hypervisor may plug fewer than it could",
    "CPU17": "`steal` in /proc/stat is next to nothing",
    "CPU19": "no ACPI platform profile in the guest",
    "CPU20": "no systemd to ask",
    "DRV01": "nvidia-smi lists the GPU, the driver is loaded",
    "DRV05": "no InfiniBand device",
    "DRV08": "modules are nvidia and nvidia_uvm",
    "ENV02": "no OpenMP binding is set",
    "ENV06": "CUDA_LAUNCH_BLOCKING is not set",
    "ENV07": "no debugging variable is set",
    "ENV09": "PYTORCH_NO_CUDA_MEMORY_CACHING is not set",
    "ENV11": "no NCCL switch is set; the version in NCCL_VERSION is none",
    "ENV14": "NCCL 2.28.9 is installed, which honours the mask",
    "ENV20": "PYTHONUNBUFFERED and PYTHONDONTWRITEBYTECODE are no debugging",
    "GPU01": "one GPU was given to it, and one is there; from inside nobody can know of more",
    "GPU02": "nvidia-smi: Persistence-M On",
    "GPU03": "nvidia-smi: only gpu_idle is active",
    "GPU05": "nvidia-smi: 700 W of 700 W default",
    "GPU06": "nvidia-smi: 1980 MHz of 1980 MHz default; 345 MHz is an idle GPU",
    "GPU08": "nvidia-smi: ECC enabled",
    "GPU09": "nvidia-smi: 0 uncorrectable",
    "GPU10": "nvidia-smi: remapping pending No, failure No",
    "GPU11": "Hopper has no page retirement",
    "GPU12": "no Xid in dmesg",
    "GPU14": "nvidia-smi: MIG Disabled, pending Disabled",
    "GPU17": "0 MiB are in use",
    "GPU18": "39 C",
    "GPU24": "nothing was measured for this verdict",
    "IRQ02": "interrupts of a guest are placed by its host",
    "IRQ07": "busy_poll and busy_read are 0",
    "KRN01": "the guest has no IOMMU groups; its host's translate for passthrough, and must",
    "LIM01": "locked memory is unlimited, and no RDMA needs it",
    "LIM02": "right: `ulimit -n` is 20000 soft and hard, below the 65536 that loaders with many workers and shared files want; info only",
    "LIM03": "`ulimit -u` is 515423",
    "MEM01": "`always [madvise] never`",
    "MEM02": "defrag is madvise",
    "MEM05": "no huge pages are reserved",
    "MEM07": "there is no swap",
    "MEM08": "there is no swap",
    "MEM10": "overcommit_memory is 1",
    "MEM18": "no EDAC in the guest",
    "NET01": "virtio tells no speed, so 1400 bytes cannot be called small",
    "NUMA01": "one node: every GPU is near",
    "NUMA05": "one node: nothing to balance",
    "NUMA07": "one node has no distances to others",
    "NUMA08": "the one node has 16 CPUs",
    "NUMA12": "16 cores for one GPU",
    "NUMA14": "one node",
    "NVL01": "NVML does not support the question here; a lone passthrough GPU has no NVLink peer",
    "NVL03": "one GPU needs no fabric",
    "NVL04": "a fabric manager would run on the host",
    "PCIE01": "nvidia-smi: Gen5 x16 now, Gen5 x16 at most, also idle",
    "PCIE05": "one device, and ACS is the host's",
    "RDMA01": "no InfiniBand device",
    "STO03": "read_ahead_kb is 8192",
    "STO05": "virtio says `rotational 1` of a network or flash disk alike",
    "STO06": "virtio disks have no PCIe link of their own",
    "STO12": "a quarter of the root file system is free by statvfs",
    "SW03": "no known fault of driver 580.159.04 or NCCL 2.28.9 is listed",
    "SW08": "one node; numactl is installed besides",
}  # fmt: skip
for _path in sorted((Path(__file__).parent / "h200").glob("[a-z]*.py")):
    _more = importlib.import_module(f"h200.{_path.stem}").ARGUED
    assert not ARGUED.keys() & _more.keys()
    ARGUED |= _more

_HEAD = """## An H200 virtual machine

`tests/hosts/h200-vm.tar`, which `wellfed doctor --demo` replays: a microVM with one H200 passed through, 16 CPUs and
126 GiB, recorded by `wellfed inspect --record box.tar` on 2026-12-02 with driver 580.159.04 and PyTorch 2.11.0+cu130
(CUDA 13.0, NCCL 2.28.9). What was *said there* was written down from the output of `nvidia-smi`, `nvidia-smi -q -x` and
`lscpu` on such a machine that day, and agrees with the `nvidia-smi -q -x` inside the recording; `tests/host/test_h200.py`
asserts all of this. On the machine itself `tests/host/test_live_gpu.py` passed: 17 values of NVML are those that
`nvidia-smi --query-gpu` prints, and the recording is judged as the machine is.

**Seen right: {right} of {asked}.**

| what | said there | by | read |
|---|---|---|---|
"""

_LIVE = """
**Looked at live again** on 3 December 2026 (another virtual machine of the kind, driver 580.159.04, torch 2.11.0, all 237
checks): idle, `wellfed check` for training, latency and benchmark has one note (LIM02), for throughput two (IRQ06: one
receive queue on 16 CPUs, packet steering off, which is so); the same one note while a job multiplied matrices on the GPU.
Five runs took 0.66 to 0.77 s of CPU time, `wellfed tune plan` 0.83 to 0.93 s; it plans no change there.
`vm.stat_interval` was set to 7 from a list of one's own, told by `tune status`, and put back by `tune undo`.
"""
_LIMITS = """
Two things a reader should know. The tools call it a container (`/run/systemd/container` says docker: the image was made for
one) though process 2 is `kthreadd`, so the checks that a container cannot answer stay unjudged. And node 0 shows 4.3 GiB of
the 126 GiB, as its `meminfo` says (probably because this kernel brings memory up when it is first used); the machine's total
comes from `/proc/meminfo`, and no check goes by the node's.
"""


def section() -> str:
    """The text, from the recording."""
    machine = look(open_host(str(BOX)))
    rows = [(what, said, by, read(machine)) for what, said, by, read in PRINTED]
    right = sum(said == seen for _, said, _, seen in rows)
    lines = [f"| {what} | {_cell(said)} | {by} | {_cell(seen)} |" for what, said, by, seen in rows]
    unseen = [f"| `{key}` | {machine.gaps[key].partition(':')[0]} | {why} |" for key, why in UNSEEN.items()]
    more = len(machine.gaps) - len(UNSEEN)
    verdicts = sorted(judge_machine(machine), key=lambda verdict: verdict.code)
    judged = [
        f"| {verdict.code} {verdict.name} | {_verdict(verdict)} | {ARGUED[verdict.code]} |"
        for verdict in verdicts
    ]
    counts = {kind: sum(v.verdict == kind for v in verdicts) for kind in ("finding", "pass", "not-judged")}
    return (
        _HEAD.format(right=right, asked=len(rows))
        + "\n".join(lines)
        + f"\n\n**Not seen: {len(machine.gaps)} fields.** The others of them, {more}, are of the same kinds: knobs of other"
        " kernels, files that this system does not have.\n\n| field | status | why |\n|---|---|---|\n"
        + "\n".join(unseen)
        + f"\n\n**Judged for training: {counts['finding']} finding (info), {counts['pass']} passes, {counts['not-judged']} not"
        " judged. No false alarm: for every intent nothing is above info.**\n\n| check | verdict | why that is right |\n|---|---|---|\n"
        + "\n".join(judged)
        + "\n"
        + _LIVE
        + _LIMITS
    )


def _verdict(verdict: Any) -> str:
    return f"finding ({verdict.severity})" if verdict.verdict == "finding" else verdict.verdict


def _cell(value: Any) -> str:
    if value == tuple(range(16)):
        return "0-15"
    if isinstance(value, tuple):
        return ", ".join(map(_cell, value)) or "none"
    return (
        {True: "yes", False: "no"}.get(value, str(value))
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
