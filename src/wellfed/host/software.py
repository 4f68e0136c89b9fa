"""Versions of drivers, toolkits and Python packages, and the daemons of the GPU stack, without importing or
starting any of it: package folders are listed, small text files read."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from wellfed.host import nvidia_xml
from wellfed.host.door import Host, Reading
from wellfed.host.fabric_log import read_fabric_log
from wellfed.host.gpu import driver_version
from wellfed.host.libraries import library_facts
from wellfed.host.parse import colon_fields, fact, first_ok, gap, known
from wellfed.host.sysfs import word
from wellfed.model.fact import Fact

_PROCESSES_MAX = 16_384
_CUDA_FOLDERS = ("/usr/local/cuda", "/opt/cuda")


def read_software(host: Host) -> list[Fact]:
    """The facts under `software`."""
    python = _json(host.probe("python"))
    return [
        *_python(host, python),
        *_driver(host),
        first_ok(_cuda_toolkit(host)),
        _rocm(host),
        *library_facts(host, python),
        *_tools(host),
        *_daemons(host),
        _nccl_config(host),
        _driver_params(host),
        _imex_channels(host),
        _device_nodes(host),
        _cdi_driver(host),
        _kubelet(host),
        fact("kernel.enabled_services", host.run("systemctl-services"), _enabled, line="=enabled"),
        *read_fabric_log(host),
    ]


def _json(reading: Reading) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(reading.text or "{}")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _python(host: Host, python: dict[str, Any]) -> list[Fact]:
    reading = host.probe("python")
    facts = []
    for field, key in (("python", "version"), ("python_path", "executable"), ("gil", "gil")):
        value = python.get(key)
        facts.append(
            gap(
                f"software.{field}",
                reading.source,
                reading.status if not python else "unsupported",
                reading.detail,
            )
            if value is None
            else known(f"software.{field}", value, reading.source)
        )
    glibc = python.get("glibc")
    if isinstance(glibc, str) and glibc.split():
        return [*facts, known("software.glibc", glibc.split()[-1], reading.source, glibc)]
    return [*facts, first_ok(_glibc_files(host))]


def _glibc_files(host: Host) -> Iterable[Fact]:
    """Old distributions name the file by version: `libc.so.6 -> libc-2.31.so`."""
    for folder in ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64"):
        path = f"{folder}/libc.so.6"
        match = re.search(r"libc-([\d.]+)\.so", host.link(path) or "")
        if match:
            yield known("software.glibc", match.group(1), path, match.group(0))
    yield gap("software.glibc", "probe python", "missing", "no C library that tells its version")


def _driver(host: Host) -> list[Fact]:
    return [
        first_ok(_driver_version(host)),
        _driver_open(host.read("/proc/driver/nvidia/version")),
        first_ok(_cuda_driver(host)),
    ]


def _driver_version(host: Host) -> Iterable[Fact]:
    key = "software.driver"
    version = _nvml_system(host).get("driver_version")
    if isinstance(version, str) and version:
        yield known(key, version, "NVML")
    reading = host.read("/proc/driver/nvidia/version")
    loaded = driver_version(reading.text or "")
    if loaded:
        yield known(key, loaded, reading.source, reading.text)
    for path in ("/sys/module/nvidia/version", "/sys/module/amdgpu/version"):
        text = word(host, path)
        if text:
            yield known(key, text, path, text)
    yield from _of_xml(host, key, "driver")
    yield gap(key, reading.source, "missing", "no GPU driver is loaded")


def _of_xml(host: Host, key: str, field: str) -> Iterable[Fact]:
    reading = host.run("nvidia-smi-xml")
    version = getattr(nvidia_xml.parse_log(reading.text), field) if reading.text else None
    if version:
        yield known(key, version, reading.source, version)


def _driver_open(reading: Reading) -> Fact:
    """The open kernel modules say so in their version line."""
    key = "software.driver_open"
    if not reading.text:
        return gap(key, reading.source, reading.status, reading.detail)
    if "NVRM version" not in reading.text:
        return gap(key, reading.source, "error", "no line `NVRM version`")
    return known(key, "Open Kernel Module" in reading.text, reading.source, reading.text)


def _cuda_driver(host: Host) -> Iterable[Fact]:
    key = "software.cuda_driver"
    number = _nvml_system(host).get("cuda_driver_version")
    if isinstance(number, int) and 1000 <= number < 1_000_000:
        yield known(key, f"{number // 1000}.{number % 1000 // 10}", "NVML", str(number))
    yield from _of_xml(host, key, "cuda")
    yield gap(key, "NVML", "missing", "neither NVML nor nvidia-smi answers")


def _nvml_system(host: Host) -> dict[str, Any]:
    system = host.nvml().get("system")
    return system if isinstance(system, dict) else {}


def _cuda_toolkit(host: Host) -> Iterable[Fact]:
    key = "software.cuda_toolkit"
    environ = host.environ()
    named = [environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    for folder in [*(path for path in named if path and path.startswith("/")), *_CUDA_FOLDERS]:
        reading = host.read(f"{folder}/version.json")
        match = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)"', reading.text or "")
        if match:
            yield known(key, match.group(1), reading.source, match.group(0))
        reading = host.read(f"{folder}/version.txt")
        match = re.search(r"CUDA Version ([\d.]+)", reading.text or "")
        if match:
            yield known(key, match.group(1), reading.source, reading.text)
    reading = host.run("nvcc-version")
    match = re.search(r"release [\d.]+, V([\d.]+)", reading.text or "")
    if match:
        yield known(key, match.group(1), reading.source, reading.text)
    yield gap(key, f"{_CUDA_FOLDERS[0]}/version.json", "missing", "no CUDA toolkit is installed")


def _rocm(host: Host) -> Fact:
    reading = host.read("/opt/rocm/.info/version")
    match = re.match(r"[\d.]+(?:-\d+)?", (reading.text or "").strip())
    if match:
        return known("software.rocm", match.group(0), reading.source, reading.text)
    return gap(
        "software.rocm", reading.source, reading.status if reading.text is None else "error", reading.detail
    )


def _tools(host: Host) -> list[Fact]:
    reading = host.probe("tools")
    tools = {name: there for name, there in _json(reading).items() if isinstance(there, bool)}
    if not tools:
        return [
            gap(key, reading.source, reading.status if reading.text is None else "error", reading.detail)
            for key in ("software.tools", "software.mps_binaries")
        ]
    mps = tools.get("nvidia-cuda-mps-control")
    return [
        known("software.tools", tools, reading.source),
        gap("software.mps_binaries", reading.source, "missing", "not asked")
        if mps is None
        else known("software.mps_binaries", mps, reading.source),
    ]


# Field, the names of the process (the kernel cuts them at 15 characters), and a socket that a container
# toolkit passes on from a daemon outside.
_DAEMONS: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
    ("mps_running", ("nvidia-cuda-mps",), None),
    ("persistenced_running", ("nvidia-persiste",), "/run/nvidia-persistenced/socket"),
    ("imex_running", ("nvidia-imex",), None),
    ("fabricmanager_running", ("nv-fabricmanage",), "/run/nvidia-fabricmanager/socket"),
)


def _daemons(host: Host) -> list[Fact]:
    """Whether a daemon runs. A container sees its own processes only: there, none found proves nothing."""
    processes = _processes(host)
    names = set(processes.values())
    facts = []
    for field, wanted, socket in _DAEMONS:
        key = f"software.{field}"
        if names & set(wanted):
            facts.append(known(key, True, "/proc/*/comm", wanted[0]))
        elif socket and host.exists(socket):
            facts.append(known(key, True, socket))
        elif not processes:
            facts.append(gap(key, "/proc", "missing", "no processes are listed"))
        elif processes.get(2) != "kthreadd":
            facts.append(gap(key, "/proc/2/comm", "denied", "only this container's processes are visible"))
        else:
            facts.append(known(key, False, "/proc/*/comm", "none of the processes that are visible"))
    return facts


def _processes(host: Host) -> dict[int, str]:
    numbers = [
        int(name) for name in host.listdir("/proc") if name.isascii() and name.isdigit() and len(name) < 10
    ]
    found = {number: word(host, f"/proc/{number}/comm") for number in sorted(numbers)[:_PROCESSES_MAX]}
    return {number: name for number, name in found.items() if name}


def _nccl_config(host: Host) -> Fact:
    """Names only: values are the user's own."""
    reading = host.read("/etc/nccl.conf")
    if reading.text is None:
        return gap("software.nccl_config", reading.source, reading.status, reading.detail)
    names = sorted(set(re.findall(r"^\s*((?:NCCL|RCCL)_[A-Z0-9_]{1,60})\s*=", reading.text, re.M)))
    return known("software.nccl_config", names, reading.source, "\n".join(names))


_PARAMS = "/proc/driver/nvidia/params"
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi", "/run/cdi")


def _imex_channels(host: Host) -> Fact:
    """How many channels for memory of other machines there are; none where the driver has made no device of its own."""
    folder = "/dev/nvidia-caps-imex-channels"
    if not host.exists(folder) and not host.exists("/dev/nvidiactl"):
        return gap("software.imex_channels", folder)
    channels = [name for name in host.listdir(folder) if re.fullmatch(r"channel\d{1,6}", name)]
    return known("software.imex_channels", len(channels), folder)


def _driver_params(host: Host) -> Fact:
    """Parameters of the NVIDIA module, quotes taken off; names of folders are nobody's business."""
    key = "software.driver_params"
    reading = host.read(_PARAMS)
    if reading.text is None:
        return gap(key, reading.source, reading.status, reading.detail)
    told = {
        name: value.strip('"')
        for name, value in colon_fields(reading.text).items()
        if name != "TemporaryFilePath"
    }
    return known(key, told, reading.source) if told else gap(key, reading.source, "error", "no parameters")


def _device_nodes(host: Host) -> Fact:
    """NVIDIA's device files. A recording that has none may not have looked."""
    key = "software.device_nodes"
    nodes = [name for name in host.listdir("/dev") if re.fullmatch(r"nvidia(?:\d+|ctl|-[a-z-]+)", name)]
    if not nodes:
        return gap(key, "/dev", "missing", "no NVIDIA device files are listed")
    return known(key, nodes, "/dev")


def _cdi_driver(host: Host) -> Fact:
    """The newest driver whose libraries a specification names."""
    key = "software.cdi_driver"
    found: set[str] = set()
    for folder in _CDI_FOLDERS:
        for name in host.listdir(folder)[:16]:
            if name.endswith((".yaml", ".json")):
                text = host.read(f"{folder}/{name}").text or ""
                found.update(re.findall(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3}\.\d+(?:\.\d+)?)", text))
    if not found:
        return gap(key, _CDI_FOLDERS[0], "missing", "no CDI specification names a driver")
    return known(key, max(found, key=lambda text: [int(part) for part in text.split(".")]), _CDI_FOLDERS[0])


KUBELET = "/var/lib/kubelet/config.yaml"
_ALIGNS = ("cpuManagerPolicy", "topologyManagerPolicy", "memoryManagerPolicy")


def _kubelet(host: Host) -> Fact:
    """Policies of the kubelet's configuration file, `None` where it names none: that is their default. What stands
    deeper in the file belongs to something else."""

    def parse(text: str) -> dict[str, str]:
        said = re.findall(r"^[\"']?(\w{1,40})[\"']?[ \t]*:[ \t]*[\"']?([\w-]{1,40})", text, re.MULTILINE)
        return dict.fromkeys(_ALIGNS, "None") | {key: value for key, value in said if key in _ALIGNS}

    return fact("software.kubelet", host.read(KUBELET), parse, line="ManagerPolicy")


def _enabled(text: str) -> tuple[str, ...]:
    """Ids of the watched units that start at boot, `.service` left off."""
    blocks = (dict(line.partition("=")[::2] for line in block.splitlines()) for block in text.split("\n\n"))
    units = (block.get("Id", "") for block in blocks if _starts_at_boot(block))
    return tuple(sorted(name.removesuffix(".service") for name in units if name))


def _starts_at_boot(unit: dict[str, str]) -> bool:
    """A `static` unit is started by another unit or by udev, as some packages have it of nvidia-persistenced; of the
    other watched units that are static (apt-daily, packagekit) nobody knows when."""
    state = unit.get("UnitFileState")
    return state == "enabled" or (state == "static" and unit.get("Id") == "nvidia-persistenced.service")
