"""Saving a look: all that the readers saw, and some files that later readers will want, as one tar.

`root/PATH` holds files and links, `commands/NAME.json`, `probes.json`, `nvml.json` and `environ.json` the
answers, `index.json` what a tar cannot say (listings, refusals), `manifest.json` the format and the counts. The
same host gives the same bytes. Replayed, it gives the same Machine."""

import datetime
import fnmatch
import gzip
import io
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from wellfed._version import __version__
from wellfed.host.archive import MAX_MEMBER_BYTES, walk
from wellfed.host.assemble import readers
from wellfed.host.door import COMMANDS, PROBES, READ_LIMIT, Host, Reading
from wellfed.host.environment import watched
from wellfed.host.recorded import FORMAT, Index, Manifest
from wellfed.model.base import Value
from wellfed.model.errors import WellfedError
from wellfed.model.redact import Redactor

MAX_EXTRA_FILES = 30_000
MAX_RECORD_BYTES = 128 << 20

# What facts/host_checks.csv names and no reader reads yet, so that a box recorded today can be judged by the checks of
# tomorrow. One folder level a pattern, never recursive: sysfs links loop.
_EXTRA_TEXT = """
/etc/os-release /etc/tuned/active_profile /etc/default/irqbalance /etc/nvidia-container-runtime/config.toml
/boot/config-* /proc/buddyinfo /proc/cgroups /proc/config.gz /proc/cpuinfo /proc/diskstats /proc/filesystems /proc/interrupts
/proc/irq/default_smp_affinity /proc/irq/*/smp_affinity_list /proc/irq/*/effective_affinity_list
/proc/loadavg /proc/mdstat /proc/meminfo /proc/modules /proc/net/dev /proc/net/softnet_stat /proc/pagetypeinfo
/proc/pressure/* /proc/self/cgroup /proc/self/limits /proc/self/mountinfo /proc/self/mounts /proc/self/numa_maps
/proc/self/status /proc/stat /proc/swaps /proc/sys/kernel/* /proc/sys/vm/* /proc/sys/net/core/* /proc/sys/net/ipv4/tcp_*
/proc/uptime /proc/version /proc/vmstat /proc/zoneinfo
/proc/driver/nvidia/params /proc/driver/nvidia/version /proc/driver/nvidia/gpus/*/information
/proc/driver/nvidia/gpus/*/numa_status /proc/driver/nvidia/gpus/*/power /proc/driver/nvidia-fs/stats
/sys/block/*/queue/* /sys/block/*/size /sys/block/*/device/model /sys/bus/node/devices/*/access0/initiators/*
/sys/class/dmi/id/bios_date /sys/class/dmi/id/bios_version /sys/class/dmi/id/product_name /sys/class/dmi/id/sys_vendor
/sys/class/hwmon/*/name /sys/class/iommu/* /sys/class/net/*/mtu /sys/class/net/*/speed /sys/class/net/*/duplex
/sys/class/net/*/carrier_changes /sys/class/net/*/napi_defer_hard_irqs /sys/class/net/*/gro_flush_timeout
/sys/class/net/*/statistics/* /sys/class/net/*/queues/*/rps_cpus /sys/class/net/*/queues/*/xps_cpus
/sys/class/powercap/*/constraint_0_power_limit_uw /sys/class/nvme/*/numa_node /sys/class/nvme/*/model
/sys/devices/system/clocksource/clocksource0/* /sys/devices/system/cpu/* /sys/devices/system/cpu/cpu*/topology/*
/sys/devices/system/cpu/cpu*/cache/index*/* /sys/devices/system/cpu/cpu*/cpu_capacity
/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us /sys/devices/system/cpu/cpu*/thermal_throttle/*
/sys/devices/system/cpu/cpu*/acpi_cppc/highest_perf
/sys/devices/system/cpu/cpu*/cpuidle/*/name /sys/devices/system/cpu/cpu*/cpuidle/*/latency
/sys/devices/system/cpu/cpu*/cpuidle/*/disable /sys/devices/system/cpu/cpufreq/policy*/*
/sys/devices/system/cpu/intel_pstate/* /sys/devices/system/cpu/smt/* /sys/devices/system/cpu/vulnerabilities/*
/sys/devices/system/edac/mc/mc*/ce_count /sys/devices/system/edac/mc/mc*/ue_count
/sys/devices/system/memory/auto_online_blocks /sys/devices/system/node/* /sys/devices/system/node/node*/*
/sys/devices/system/node/node*/hugepages/*/* /sys/devices/cpu_atom/cpus /sys/devices/cpu_core/cpus
/sys/fs/cgroup/* /sys/firmware/acpi/platform_profile /sys/hypervisor/type
/sys/kernel/debug/sched/* /sys/kernel/iommu_groups/*/type /sys/kernel/mm/hugepages/*/* /sys/kernel/mm/ksm/run
/sys/kernel/mm/lru_gen/enabled /sys/kernel/mm/mempolicy/weighted_interleave/* /sys/kernel/mm/numa/demotion_enabled
/sys/kernel/mm/transparent_hugepage/* /sys/kernel/mm/transparent_hugepage/khugepaged/* /sys/kernel/security/lockdown
/sys/module/intel_idle/parameters/max_cstate /sys/module/nvme/parameters/* /sys/module/nvme_core/parameters/*
/sys/module/nvidia/version /sys/module/amdgpu/version /sys/module/pcie_aspm/parameters/policy
"""
EXTRA = tuple(_EXTRA_TEXT.split())

# Their names say nothing about people, and their form (NAME=value lines) would make redaction empty them.
_PLAIN_COMMANDS = frozenset({"systemctl-services", "nvcc-version", "systemd-detect-virt"})
# Names of processes that readers look for; all others are the user's own business.
_SERVICES_SEEN = re.compile(
    r"nvidia|nv-|dcgm|slurm|tuned|irqbalance|systemd|kubelet|containerd|dockerd|k(?:worker|swapd|compactd)"
)
_VERSION_FILES = ("/osrelease", "/version", "fw_ver", "vbios_version")


class RecordSummary(Value, frozen=True, kw_only=True):
    """What went into a recording. `refused` files are there but could not be read here."""

    path: str
    files: int
    links: int
    commands: int
    probes: int
    refused: int
    bytes: int
    redacted: bool


class RecordingHost:
    """Passes every question on to another host and keeps the answers."""

    def __init__(self, inner: Host) -> None:
        self._inner = inner
        self.recorded = inner.recorded
        self.origin = inner.origin
        self.notes = inner.notes
        self.links: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.readings: dict[str, Reading] = {}
        self.listings: dict[str, tuple[str, ...]] = {}
        self.present: set[str] = set()
        self.commands: dict[str, Reading] = {}
        self.probes: dict[str, Reading] = {}
        self.nvml_answer: dict[str, Any] | None = None
        self.environment: dict[str, str] | None = None
        self._link_of: dict[str, str | None] = {}

    def _link(self, path: str) -> str | None:
        if path in ("/proc/self", "/proc/thread-self"):
            return None  # the number of a process that is gone when this is replayed
        if path not in self._link_of:
            self._link_of[path] = self._inner.link(path)
        return self._link_of[path]

    def _canonical(self, path: str) -> str | None:
        real, met = walk(path, self._link)
        self.links.update(met)
        return real

    def read(self, path: str, limit: int = READ_LIMIT) -> Reading:
        reading = self._inner.read(path, limit)
        real = self._canonical(path)
        if real is None:
            return reading
        if reading.text is None:
            self.readings[real] = reading
        elif len(reading.text) >= len(self.files.get(real, "")):
            self.files[real] = reading.text
        return reading

    def listdir(self, path: str) -> tuple[str, ...]:
        names = self._inner.listdir(path)
        if real := self._canonical(path):
            self.listings[real] = names
            if not names and self._inner.exists(path):
                self.present.add(real)
        return names

    def link(self, path: str) -> str | None:
        parent, _, name = path.rstrip("/").rpartition("/")
        folder = self._canonical(parent or "/")
        target = self._inner.link(path)
        if folder and target is not None:
            self.links[f"{folder.rstrip('/')}/{name}"] = target
        return target

    def real(self, path: str) -> str | None:
        real = self._inner.real(path)
        self._note_present(path, real is not None)
        return real

    def exists(self, path: str) -> bool:
        there = self._inner.exists(path)
        self._note_present(path, there)
        return there

    def _note_present(self, path: str, there: bool) -> None:
        if (real := self._canonical(path)) and there:
            self.present.add(real)

    def run(self, name: str) -> Reading:
        self.commands[name] = self._inner.run(name)
        return self.commands[name]

    def nvml(self) -> dict[str, Any]:
        self.nvml_answer = self._inner.nvml()
        return self.nvml_answer

    def environ(self) -> dict[str, str]:
        self.environment = watched(self._inner.environ())
        return self.environment

    def probe(self, name: str) -> Reading:
        self.probes[name] = self._inner.probe(name)
        return self.probes[name]


def record(
    host: Host, path: str | os.PathLike[str], *, redact: bool = True, now: str | None = None
) -> RecordSummary:
    """Looks at everything and writes `path` (`.tar`, or `.tar.gz` and `.tgz` for a packed one). Redacted unless
    told otherwise. `now` is the ISO time for the manifest. Raises WellfedError when the file cannot be
    written."""
    target = Path(path)
    if not target.name.endswith((".tar", ".tar.gz", ".tgz")):
        raise WellfedError(
            f"`{target}` is no name for a recording", hint=f"wellfed inspect --record {target.stem}.tar"
        )
    tape = RecordingHost(host)
    for reader in readers().values():
        try:
            reader(tape)
        except Exception:  # noqa: BLE001 - as in look(): what one reader breaks on is the very box we want to have
            continue
    for name in COMMANDS:
        tape.run(name)
    for name in PROBES:
        tape.probe(name)
    tape.nvml()
    tape.environ()
    _read_extra(tape)
    saved = _redacted(tape) if redact else tape
    made_at = now or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    members = _members(saved, made_at, redact)
    data = _tar_bytes(members, saved.links)
    if target.name.endswith("gz"):
        data = gzip.compress(data, 6, mtime=0)
    _write(target, data)
    counts = _counts(saved)
    return RecordSummary(path=str(target), bytes=len(data), redacted=redact, **counts)


def _read_extra(tape: RecordingHost) -> None:
    for number, path in enumerate(path for pattern in EXTRA for path in _expand(tape.listdir, pattern)):
        if number >= MAX_EXTRA_FILES:
            return
        if tape.read(path).status == "unsupported":
            tape.readings.pop(path, None)  # a pattern that caught a folder


def _expand(listdir: Callable[[str], tuple[str, ...]], pattern: str) -> Iterable[str]:
    folders = [""]
    for part in pattern.strip("/").split("/"):
        if any(sign in part for sign in "*?["):
            folders = [f"{at}/{name}" for at in folders for name in fnmatch.filter(listdir(at or "/"), part)]
        else:
            folders = [f"{at}/{part}" for at in folders]
    return folders


# -- redaction ---------------------------------------------------------------------------------------------


def _redacted(tape: RecordingHost) -> RecordingHost:
    """The same tape with names, addresses and secrets replaced, the same name by the same pseudonym, also in
    paths: a link to a renamed folder still leads there."""
    redactor = Redactor()
    for name in ("hostname", "nodename"):
        redactor.add_host(tape.files.get(f"/proc/sys/kernel/{name}", "").strip())
    for texts in (tape.files.values(), (reading.text or "" for reading in tape.commands.values())):
        for text in texts:
            redactor.learn(text)
    for name, value in (tape.environment or {}).items():
        redactor.learn_variable(name, value)

    def path(text: str) -> str:
        return "/".join(redactor.text(part, addresses=False) for part in text.split("/"))

    def content(at: str, text: str) -> str:
        if re.fullmatch(r"/proc/\d+/comm", at):
            return text if _SERVICES_SEEN.match(text) else redactor.name("process", text)
        return redactor.text(text, addresses=not at.endswith(_VERSION_FILES))

    def answer(name: str, reading: Reading) -> Reading:
        if name in _PLAIN_COMMANDS:
            return reading
        text = None if reading.text is None else redactor.text(reading.text)
        detail = None if reading.detail is None else redactor.text(reading.detail)
        return msgspec.structs.replace(reading, text=text, detail=detail)

    clean = RecordingHost(tape._inner)
    clean.links = {path(at): path(target) for at, target in tape.links.items()}
    clean.files = {path(at): content(at, text) for at, text in tape.files.items()}
    clean.readings = {path(at): reading for at, reading in tape.readings.items()}
    clean.listings = {path(at): tuple(sorted(map(path, names))) for at, names in tape.listings.items()}
    clean.present = set(map(path, tape.present))
    clean.commands = {name: answer(name, reading) for name, reading in tape.commands.items()}
    clean.probes = {name: answer(name, reading) for name, reading in tape.probes.items()}
    clean.nvml_answer = _redact_tree(redactor, tape.nvml_answer)
    clean.environment = redactor.environment(tape.environment or {})
    return clean


def _redact_tree(redactor: Redactor, value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _redact_tree(redactor, item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_tree(redactor, item, key) for item in value]
    if not isinstance(value, str):
        return value
    if "serial" in key.lower():
        return redactor.text(f"serial: {value}").removeprefix("serial: ")
    return redactor.text(value, addresses="version" not in key.lower())


# -- the tar -----------------------------------------------------------------------------------------------


def _members(tape: RecordingHost, made_at: str, redact: bool) -> dict[str, bytes]:
    """Content by member name. What a folder listing or a link already says is not said twice."""
    index = Index(
        listings=tape.listings,
        readings={at: msgspec.structs.replace(reading, source="") for at, reading in tape.readings.items()},
        present=tuple(sorted(tape.present - tape.files.keys())),
    )
    counts = _counts(tape)
    manifest = Manifest(format=FORMAT, wellfed=__version__, made_at=made_at, redacted=redact, counts=counts)
    members = {
        "manifest.json": _json(manifest),
        "index.json": _json(index),
        "probes.json": _json(tape.probes),
        "nvml.json": _json(tape.nvml_answer or {}),
        "environ.json": _json(tape.environment or {}),
        **{f"commands/{name}.json": _json(reading) for name, reading in tape.commands.items()},
        **{f"root{at}": text.encode("utf-8", "replace") for at, text in tape.files.items()},
    }
    if sum(map(len, members.values())) > MAX_RECORD_BYTES:
        raise WellfedError("this machine shows more than 128 MiB of facts", hint="please report it")
    return {name: data[:MAX_MEMBER_BYTES] for name, data in members.items()}


def _counts(tape: RecordingHost) -> dict[str, int]:
    return {
        "files": len(tape.files),
        "links": len(tape.links),
        "commands": sum(reading.status == "ok" for reading in tape.commands.values()),
        "probes": sum(reading.status == "ok" for reading in tape.probes.values()),
        "refused": sum(reading.status == "denied" for reading in tape.readings.values()),
    }


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _tar_bytes(members: dict[str, bytes], links: dict[str, str]) -> bytes:
    out = io.BytesIO()
    linked = {f"root{at}": target for at, target in links.items()}
    # The manifest comes first, so that a file cut short still says what it is; `root` exists even when empty.
    names = sorted({"root", *members, *linked} - {"manifest.json"})
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("manifest.json", *names):
            info = tarfile.TarInfo(name)
            info.mode = 0o644
            if name in linked:
                info.type, info.linkname = tarfile.SYMTYPE, linked[name]
                tar.addfile(info)
            elif name in members:
                info.size = len(members[name])
                tar.addfile(info, io.BytesIO(members[name]))
            else:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
    return out.getvalue()


def _write(target: Path, data: bytes) -> None:
    """Whole or not at all."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except OSError as error:
        raise WellfedError(
            f"cannot write the recording `{target}`: {error.strerror}", hint=f"ls -ld {target.parent}"
        ) from error
