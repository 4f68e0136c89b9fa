"""The one door to a machine: read a file, run a known command, ask NVML or one small live question.

A `Host` is live (`live.py`), recorded (`recorded.py`) or recording (`recorder.py`); readers cannot tell
which. What may be run is the closed table `COMMANDS`, what may be asked is the closed table `PROBES`, so a
recording can hold the answers to all of it. Nothing here ever changes the machine or uses a network.
"""

import re
from typing import Any, NamedTuple, Protocol

from wellfed.model.base import Value
from wellfed.model.fact import Status

READ_LIMIT = 1 << 20
"""Bytes read of one file unless the reader asks for more."""


class Reading(Value, frozen=True, kw_only=True):
    """What one look gave. `text` is None exactly when `status` is not `ok`; trailing newlines and NUL bytes
    are off. `source` is the path or the command line. `detail` says why not, or that text was cut."""

    source: str
    text: str | None = None
    status: Status = "ok"
    detail: str | None = None


class Host(Protocol):
    """The surface that every reader sees. Paths are absolute paths of the machine looked at.

    `origin` names the host for people (`this machine`, or the file it was recorded in)."""

    @property
    def recorded(self) -> bool: ...

    @property
    def origin(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a recording has lost (skipped or damaged members), one sentence each; `()` for a live host."""
        ...

    def read(self, path: str, limit: int = READ_LIMIT) -> Reading:
        """The text of a regular file, UTF-8 with replacement characters, at most `limit` bytes of it."""
        ...

    def listdir(self, path: str) -> tuple[str, ...]:
        """Sorted names in a folder; `()` when it is missing or unreadable."""
        ...

    def link(self, path: str) -> str | None:
        """What the symbolic link says, unresolved; None when it is no link."""
        ...

    def real(self, path: str) -> str | None:
        """The path with all links resolved, never above the root; None when nothing is there."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the path leads to a file, folder or device."""
        ...

    def run(self, name: str, item: str = "") -> Reading:
        """Standard output of `COMMANDS[name]`; status `ok` only for an accepted exit code. `item` names the device
        for commands that ask about one; an AssertionError when the command asks about none, or the name is no name."""
        ...

    def nvml(self) -> dict[str, Any]:
        """The NVML snapshot of `host/nvml.py`: `{"status", "detail", "system": {...}, "devices": [...]}`."""
        ...

    def environ(self) -> dict[str, str]:
        """Environment of the process that looked."""
        ...

    def probe(self, name: str) -> Reading:
        """JSON text that answers `PROBES[name]`."""
        ...


ITEM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,31}")
"""What a device may be called that a command is asked about: no option, no path."""


class Command(NamedTuple):
    """`argv[0]` is looked up in PATH (and the sbin folders). `accept` are the exit codes whose output counts.
    `keep`, when set, is a regular expression: only matching lines pass the door (kernel logs hold much that is
    nobody's business). `{item}` among the words stands for a device that the caller names."""

    argv: tuple[str, ...]
    timeout_s: float = 10.0
    accept: tuple[int, ...] = (0,)
    keep: str | None = None

    def on(self, item: str) -> "Command":
        """The command about one device."""
        assert bool(item) == ("{item}" in " ".join(self.argv)), f"{self.argv}: {item!r}"
        assert not item or ITEM.fullmatch(item), item
        return self._replace(argv=tuple(word.replace("{item}", item) for word in self.argv))

    def __str__(self) -> str:
        """The command line for people, a long one cut at a word."""
        words = list(self.argv)
        while len(" ".join(words)) > 80:
            words = [*words[:-2], "..."] if words[-1] == "..." else [*words[:-1], "..."]
        return " ".join(words)


SERVICES = (
    "amd-smi-exporter",
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "chrony",
    "chronyd",
    "containerd",
    "cpupower",
    "crio",
    "cron",
    "dnf-automatic.timer",
    "docker",
    "firewalld",
    "irqbalance",
    "kubelet",
    "ntpsec",
    "nvidia-dcgm",
    "nvidia-fabricmanager",
    "nvidia-imex",
    "nvidia-mps",
    "nvidia-persistenced",
    "packagekit",
    "power-profiles-daemon",
    "ptp4l",
    "ray",
    "slurmd",
    "sshd",
    "systemd-oomd",
    "systemd-timesyncd",
    "thermald",
    "tlp",
    "tuned",
    "ufw",
    "unattended-upgrades",
)
"""Units whose state bears on performance or on who owns a knob."""

LIMITED = ("containerd", "crio", "docker", "kubelet", "ray", "slurmd", "sshd")
"""Units whose limits jobs inherit."""

FABRIC_LOG = "/var/log/fabricmanager.log"
KERNEL_LOG = (
    r"^(?!.*[Cc]ommand line).*(?:"  # which holds what a site tells its first program
    r"Xid|SXid|NVRM|nvidia|nvswitch|amdgpu|mlx5_core|AER:|pcieport|EDAC|Hardware Error|mce:|x2apic|"
    r"Memory Encryption|clocksource|tsc:|TSC|Out of memory|oom-kill|hung_task|blocked for more than|"
    r"soft lockup|DMAR|AMD-Vi|iommu|perf: interrupt took too long|throttl|"
    r"link is not ready|[Ll]ink (?:down|is down|is up)|Link (?:Down|Up)|lost carrier)"
)

# nvidia-smi answers in well under a second with persistence on, but takes seconds per GPU without.
_SLOW_S = 30.0
# 14 is "infoROM corrupted", said after a complete answer.
_SMI_OK = (0, 14)

COMMANDS: dict[str, Command] = {
    "nvidia-smi-xml": Command(("nvidia-smi", "-q", "-x"), timeout_s=_SLOW_S, accept=_SMI_OK),
    "nvidia-smi-topo": Command(("nvidia-smi", "topo", "-m"), timeout_s=_SLOW_S, accept=_SMI_OK),
    "nvidia-smi-p2p": Command(("nvidia-smi", "topo", "-p2p", "r"), timeout_s=_SLOW_S, accept=_SMI_OK),
    "nvidia-smi-nvlink": Command(("nvidia-smi", "nvlink", "-s"), timeout_s=_SLOW_S, accept=_SMI_OK),
    "amd-smi-static": Command(("amd-smi", "static", "--json"), timeout_s=_SLOW_S),
    "amd-smi-metric": Command(("amd-smi", "metric", "--json"), timeout_s=_SLOW_S),
    "amd-smi-topology": Command(("amd-smi", "topology", "--json"), timeout_s=_SLOW_S),
    "amd-smi-process": Command(("amd-smi", "process", "--json"), timeout_s=_SLOW_S),
    "rocm-smi": Command(("rocm-smi", "-a", "--json"), timeout_s=_SLOW_S),
    "lspci": Command(("lspci", "-D", "-nn", "-vvv"), timeout_s=10.0),
    "systemctl-services": Command(
        # Exit codes speak of the units; the state of each is in the text.
        ("systemctl", "show", "--no-pager", "--property=Id,ActiveState,UnitFileState", *SERVICES),
        timeout_s=5.0,
    ),
    "systemd-detect-virt": Command(("systemd-detect-virt", "--vm"), timeout_s=5.0, accept=(0, 1)),
    "dmesg": Command(("dmesg", "--color=never"), timeout_s=5.0, keep=KERNEL_LOG),
    "journal-kernel": Command(
        ("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", "--lines=20000"),
        timeout_s=10.0,
        keep=KERNEL_LOG,
    ),
    "ldconfig": Command(
        ("ldconfig", "-p"),
        timeout_s=5.0,
        keep=r"lib(cuda|nccl|rccl|cudnn|nvidia|amdhip|hsa|fabric|ibverbs|ucp|tcmalloc|jemalloc|mimalloc|gdrapi|iomp|gomp|mkl)",
    ),
    "nvcc-version": Command(("nvcc", "--version"), timeout_s=5.0),
    "ibv-devinfo": Command(("ibv_devinfo",), timeout_s=10.0),
    "ethtool": Command(("ethtool", "{item}"), timeout_s=2.0),
    "ethtool-rings": Command(("ethtool", "-g", "{item}"), timeout_s=2.0),
    "ethtool-coalesce": Command(("ethtool", "-c", "{item}"), timeout_s=2.0),
    "ethtool-channels": Command(("ethtool", "-l", "{item}"), timeout_s=2.0),
    "ethtool-features": Command(("ethtool", "-k", "{item}"), timeout_s=2.0),
    "nvme-smart": Command(("nvme", "smart-log", "-o", "json", "/dev/{item}"), timeout_s=2.0),
    "systemctl-limits": Command(
        ("systemctl", "show", "--no-pager", "--property=Id,LimitMEMLOCK,LimitNOFILE,TasksMax", *LIMITED),
        timeout_s=5.0,
    ),
    "systemd-config": Command(
        # The manager tells nobody over D-Bus; its file may hold environment variables, so two keys pass.
        ("systemd-analyze", "cat-config", "systemd/system.conf"),
        timeout_s=5.0,
        keep=r"^\s*NUMA(?:Policy|Mask)\s*=",
    ),
    "fabricmanager-log": Command(
        ("tail", "-n", "4000", FABRIC_LOG),
        timeout_s=5.0,
        keep=r"\[(?:ERROR|CRITICAL|FATAL)\] \[tid |NVSwitch (?:fatal|non-fatal) error",
    ),
}
"""Everything that may be run. Each entry with `{item}` is asked about devices that a reader found. Read-only questions, each with its own time limit in seconds."""

PROBES: dict[str, str] = {
    "affinity": "CPU numbers this process may run on: [int]",
    "page_size": "bytes of a memory page: int",
    "uname": "{system, release, version, machine}",
    "shm": "statvfs of /dev/shm: {size_bytes, free_bytes} or null",
    "mounts": "statvfs by mount point, network file systems left out: {path: {size_bytes, free_bytes, inodes_free, read_only}}",
    "writable": "W_OK by path: {'/proc/sys': bool, '/proc/sys/net': bool, '/sys': bool, '/sys/fs/cgroup': bool}",
    "limits": "resource limits of this process, -1 is unlimited: {memlock_bytes: [soft, hard], open_files: ..., processes, stack_bytes, core_bytes}",
    "python": "{version, executable, prefix, implementation, gil: bool | null, free_threaded: bool, glibc: str | null, paths: [sys.path folders]}",
    "dma_latency": "what /dev/cpu_dma_latency asks for and which known daemons hold it: {value_us: int, holders: [str]} or null",
    "numa_calls": "what the kernel says to get_mempolicy and set_mempolicy(DEFAULT): 'ok', 'EPERM' or 'ENOSYS'",
    "own_name": "{on_loopback: bool}: whether /etc/hosts has the host's own name at 127.x",
    "user_namespace": "whether ids here are mapped to others of the host: bool",
    "busy": "{window_s, cpu_pct: CPU time that others took on our CPUs within that time, percent of one CPU, or null, why: str | null, nics: [{name, mbps}], ports: [{name, gbps}]}",
    "tools": "which programs are in PATH: {name: bool}",
}
"""Small live questions that are not files, with the shape of their JSON answer."""

TOOLS = (
    "amd-smi",
    "chronyc",
    "cpupower",
    "dcgmi",
    "ethtool",
    "fi_info",
    "gdscheck",
    "ibstat",
    "ibv_devinfo",
    "lspci",
    "lstopo",
    "mlxconfig",
    "ncu",
    "nsys",
    "numactl",
    "nvbandwidth",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-ctk",
    "nvidia-fabricmanager",
    "nvidia-persistenced",
    "nvidia-smi",
    "nv-fabricmanager",
    "nvcc",
    "perf",
    "py-spy",
    "rocm-smi",
    "rocprofv3",
    "setpci",
    "systemctl",
    "taskset",
    "tuned-adm",
)
"""Programs whose presence the probe `tools` reports."""
