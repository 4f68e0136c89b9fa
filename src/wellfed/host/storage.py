"""Block devices and the file systems that can hold data."""

import json
import re
from collections.abc import Callable
from typing import Any

from wellfed.host.door import Host
from wellfed.host.parse import bracketed, decimal, fact, first_ok, flag, gap, integer, known, natural
from wellfed.model.fact import Fact

BLOCK = "/sys/block"
MAX_DISKS = 256
MAX_MOUNTS = 100
MAX_ASKED = 16
"""NVMe controllers whose health is asked for: each question starts a process."""

_NO_DATA = re.compile(r"(?:loop|ram|zram|sr|fd|nbd)\d*")
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LOCAL_TEXT = """
bcachefs btrfs exfat ext2 ext3 ext4 f2fs fuseblk hugetlbfs jfs ntfs ntfs3 overlay reiserfs tmpfs ufs virtiofs xfs zfs
"""
_NETWORK_TEXT = "9p beegfs ceph cifs daos glusterfs gpfs lustre nfs nfs4 orangefs panfs smb3 wekafs"
_NETWORK = frozenset(_NETWORK_TEXT.split())
_FILE_SYSTEMS = _NETWORK | frozenset(_LOCAL_TEXT.split())
_NOT_FOR_DATA = re.compile(
    r"/(?:proc|sys|run|snap|boot)(?:/|$)|/dev(?!/shm$|/hugepages)|/etc/|/var/lib/(?:kubelet|docker|containerd|containers)/"
)


def read_storage(host: Host) -> list[Fact]:
    """Facts of `Machine.disks` and `Machine.mounts`, and how long an NVMe disk may take to wake."""
    wake = host.read("/sys/module/nvme_core/parameters/default_ps_max_latency_us")
    return [*_disks(host), *_mounts(host), fact("kernel.nvme_ps_max_latency_us", wake, natural)]


def _disks(host: Host) -> list[Fact]:
    names = [name for name in host.listdir(BLOCK) if not _NO_DATA.fullmatch(name)]
    if not names:
        return [gap("disks", BLOCK, detail="no block device is shown")]
    facts: list[Fact] = []
    for place, name in enumerate(names[:MAX_DISKS]):
        facts += _disk(host, f"disks[{place}]", name)
    virtual = {one.key for one in facts if one.key.endswith(".is_virtual") and one.value}
    asked = [
        (f"disks[{place}]", found.group())
        for place, name in enumerate(names[:MAX_DISKS])
        if (found := re.match(r"nvme[0-9]{1,4}(?=n)", name)) and f"disks[{place}].is_virtual" not in virtual
    ]
    for key, controller in asked[:MAX_ASKED]:
        facts += _health(host, key, controller)
    return facts


def _health(host: Host, key: str, controller: str) -> list[Fact]:
    """What the controller says of itself; root only, and only where nvme-cli is installed."""
    said = host.run("nvme-smart", controller)
    return [
        fact(f"{key}.{field}", said, _member(*names), line=names[0])
        for field, names in {
            "smart_warning": ("critical_warning",),
            "smart_used_pct": ("percent_used", "percentage_used"),
            "smart_media_errors": ("media_errors",),
        }.items()
    ]


def _member(*names: str) -> Callable[[str], int | None]:
    """A number of a JSON object under the first of these names; some versions print it as text or in an object."""

    def parse(text: str) -> int | None:
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise ValueError("not an object")
        value = next((answer[name] for name in names if name in answer), None)
        if isinstance(value, dict):
            value = value.get("value")
        return None if value is None or isinstance(value, bool) else natural(str(value))

    return parse


def _disk(host: Host, key: str, name: str) -> list[Fact]:
    folder = f"{BLOCK}/{name}"
    real = host.real(folder) or ""
    virtual = "/devices/virtual/" in real and "nvme-subsystem" not in real
    facts = [
        known(f"{key}.name", name, folder),
        # `size` counts 512-byte sectors whatever the device's own block size is.
        fact(f"{key}.size_bytes", host.read(f"{folder}/size"), lambda text: integer(text) * 512),
        fact(f"{key}.rotational", host.read(f"{folder}/queue/rotational"), flag),
        fact(f"{key}.scheduler", host.read(f"{folder}/queue/scheduler"), bracketed),
        fact(f"{key}.read_ahead_kb", host.read(f"{folder}/queue/read_ahead_kb"), integer),
        fact(f"{key}.nr_requests", host.read(f"{folder}/queue/nr_requests"), integer),
        fact(f"{key}.rq_affinity", host.read(f"{folder}/queue/rq_affinity"), integer),
        fact(f"{key}.nomerges", host.read(f"{folder}/queue/nomerges"), integer),
    ]
    if real:
        facts.append(known(f"{key}.is_virtual", virtual, real))
    if virtual:
        return facts
    return [*facts, fact(f"{key}.model", host.read(f"{folder}/device/model")), *_link(host, key, name, real)]


def _link(host: Host, key: str, name: str, real: str) -> list[Fact]:
    """The PCI function that the disk hangs on, and its link. Multipath NVMe disks sit under a virtual
    subsystem: their controller of the same number knows the address."""
    addresses = _ADDRESS.findall(real)
    source = real or f"{BLOCK}/{name}"
    controller = re.match(r"nvme\d+", name)
    if not addresses and controller:
        source = f"/sys/class/nvme/{controller.group()}/address"
        addresses = _ADDRESS.findall(host.read(source).text or "")
    if not addresses:
        return [gap(f"{key}.address", source, detail="not on PCI, or its path is not in the recording")]
    pci = f"/sys/bus/pci/devices/{addresses[-1]}"
    facts = [
        known(f"{key}.address", addresses[-1], source),
        fact(f"{key}.numa_node", host.read(f"{pci}/numa_node"), natural),
    ]
    if not name.startswith("nvme"):
        return facts  # the link of a SATA or virtio controller says nothing of one disk
    return [
        *facts,
        fact(f"{key}.pcie_speed_gts", host.read(f"{pci}/current_link_speed"), _gts),
        fact(f"{key}.pcie_speed_max_gts", host.read(f"{pci}/max_link_speed"), _gts),
        fact(f"{key}.pcie_width", host.read(f"{pci}/current_link_width"), _width),
        fact(f"{key}.pcie_width_max", host.read(f"{pci}/max_link_width"), _width),
    ]


def _gts(text: str) -> float | None:
    found = re.match(r"\s*([0-9.]+)\s*GT/s", text)
    return decimal(found.group(1)) if found else None


def _width(text: str) -> int | None:
    """Lanes; None for the 0 or 255 of a link that does not say."""
    return lanes if 0 < (lanes := integer(text)) < 255 else None


def data_mounts(text: str) -> list[dict[str, Any]]:
    """Rows of `/proc/mounts` for file systems that can hold data: path, source, fs, options, is_network. Of
    two on one path the later covers the other."""
    rows: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 4:
            continue
        source, path, fs, options = (unescape(word) for word in words[:4])
        if fs not in _FILE_SYSTEMS and not fs.startswith("fuse."):
            continue
        if _NOT_FOR_DATA.match(path) or len(rows) >= MAX_MOUNTS:
            continue
        network = fs in _NETWORK or fs.startswith("fuse.")
        rows[path] = {
            "path": path,
            "source": source,
            "fs": fs,
            "options": tuple(options.split(",")),
            "is_network": network,
        }
    return list(rows.values())


def unescape(word: str) -> str:
    """The kernel writes blanks as `\\040`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), word)


def _mounts(host: Host) -> list[Fact]:
    paths = ("/proc/self/mounts", "/proc/mounts", "/etc/mtab")
    table = first_ok(fact("mounts", host.read(path), data_mounts, line="/ ") for path in paths)
    if table.status != "ok":
        return [table]
    spaces = fact("", host.probe("mounts"), json.loads)
    facts = [] if table.value else [known("mounts", [], table.source)]
    for place, row in enumerate(table.value):
        key = f"mounts[{place}]"
        said = {name: value for name, value in row.items() if name != "is_network"}
        facts.append(known(key, said, table.source))
        space = spaces.value.get(row["path"]) if isinstance(spaces.value, dict) else None
        for name in ("size_bytes", "free_bytes", "inodes_free"):
            if space and space.get(name) is not None:
                facts.append(known(f"{key}.{name}", space[name], f"statvfs {row['path']}"))
            else:
                why = "not asked: a network file system can block" if row["is_network"] else spaces.detail
                facts.append(gap(f"{key}.{name}", f"statvfs {row['path']}", detail=why))
    return facts
