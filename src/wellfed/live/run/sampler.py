"""Once a second: GPUs by NVML, CPUs by thread, memory and the cgroup's counters, one line of JSON each.

Read live and not through the Host door: these belong to the very seconds of the run."""

import contextlib
import ctypes
import json
import os
import threading
import time
from pathlib import Path
from typing import IO, Any

from wellfed.bench.gpu.watch import CLOCK_SM, TEMPERATURE_GPU, load_nvml, read_number, throttled
from wellfed.live.tree import descendants, resident_bytes, thread_seconds

PERIOD_S, FIRST_S = 1.0, 0.2
MOST_GPUS, MOST_NAMES = 64, 12
_CGROUP = Path("/sys/fs/cgroup")


class Utilization(ctypes.Structure):
    """nvmlUtilization_t."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Sampler:
    """Watches a command from its start until `stop`. `last` is the newest sample."""

    def __init__(self, pid: int, path: Path) -> None:
        self.pid, self.last = pid, dict[str, Any]()
        self._path = path
        self._stop = threading.Event()
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._used: tuple[float, dict[str, float], dict[int, float]] = (0.0, {}, {})
        self._cgroup = _own_cgroup()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        self._open()
        with self._path.open("ab") as file:
            wait_s = FIRST_S
            while not self._stop.wait(wait_s):
                self._one(file)
                wait_s = PERIOD_S
            self._one(file)
        if self._nvml is not None:
            self._nvml.nvmlShutdown()

    def _one(self, file: IO[bytes]) -> None:
        self.last = self.sample()
        with contextlib.suppress(OSError, ValueError):
            file.write(json.dumps(self.last, separators=(",", ":")).encode() + b"\n")
            file.flush()

    def sample(self) -> dict[str, Any]:
        pids = [self.pid, *descendants(self.pid)]
        found: dict[str, Any] = {
            "t": time.monotonic_ns(),
            "load1": os.getloadavg()[0],
            "rss": resident_bytes(pids),
        }
        found["cpu"] = self._cpu(pids)
        if self._cgroup:
            found["cgroup"] = _cgroup_counters(self._cgroup)
        if self._handles:
            found["gpus"] = [self._gpu(index, handle) for index, handle in enumerate(self._handles)]
        return found

    def _cpu(self, pids: list[int]) -> dict[str, Any]:
        now = time.monotonic()
        names, mains = thread_seconds(pids)
        then, old_names, old_mains = self._used
        self._used = (now, names, mains)
        if not then:
            return {}
        span = max(now - then, 1e-6)
        by_name = {name: (used - old_names.get(name, 0.0)) / span for name, used in names.items()}
        busiest = sorted(by_name.items(), key=lambda item: -item[1])[:MOST_NAMES]
        main = max(((used - old_mains.get(pid, 0.0)) / span for pid, used in mains.items()), default=0.0)
        return {
            "busy_cores": round(sum(max(share, 0.0) for share in by_name.values()), 3),
            "main_pct": round(100 * max(main, 0.0), 1),
            "threads": {name: round(100 * share, 1) for name, share in busiest if share > 0.005},
        }

    # -- NVML ----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        nvml = load_nvml()
        if nvml is None or nvml.nvmlInit_v2() != 0:
            return
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        self._nvml = nvml
        for index in range(min(count.value, MOST_GPUS)):
            handle = ctypes.c_void_p()
            if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
                self._handles.append(handle)

    def _gpu(self, index: int, handle: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"index": index}
        load, memory = Utilization(), Memory()
        if self._nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(load)) == 0:
            found["util"] = load.gpu
        if self._nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
            found |= {"mem_used": memory.used, "mem_total": memory.total}
        asked: dict[str, tuple[str, tuple[int, ...]]] = {
            "sm_mhz": ("nvmlDeviceGetClockInfo", (CLOCK_SM,)),
            "temp_c": ("nvmlDeviceGetTemperature", (TEMPERATURE_GPU,)),
            "power_w": ("nvmlDeviceGetPowerUsage", ()),
        }
        for key, (name, which) in asked.items():
            if (value := read_number(self._nvml, handle, name, *which)) is not None:
                found[key] = round(value / 1000, 1) if key == "power_w" else value
        mask = read_number(
            self._nvml, handle, "nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong
        )
        if mask is not None:
            found["throttle"] = throttled(mask)
        return found


# -- cgroup ------------------------------------------------------------------------------------------------


def _own_cgroup() -> Path | None:
    """The cgroup v2 folder of this process, which its command shares."""
    try:
        text = Path("/proc/self/cgroup").read_text()
    except OSError:
        return None
    line = next((line for line in text.splitlines() if line.startswith("0::")), None)
    if line is None:
        return None
    path = _CGROUP / line[3:].lstrip("/")
    return path if path.is_dir() else _CGROUP if _CGROUP.is_dir() else None


def _cgroup_counters(folder: Path) -> dict[str, int]:
    """`throttled_usec`, `memory_current`, `oom_kill`; those that there are."""
    found: dict[str, int] = {}
    for file, names in {"cpu.stat": ("throttled_usec",), "memory.events": ("oom_kill",)}.items():
        with contextlib.suppress(OSError):
            for line in (folder / file).read_text().splitlines():
                name, _, value = line.partition(" ")
                if name in names and value.isdigit():
                    found[name] = int(value)
    with contextlib.suppress(OSError, ValueError):
        found["memory_current"] = int((folder / "memory.current").read_text())
    return found


def oom_kills() -> int | None:
    """How many processes of our cgroup the kernel has killed for want of memory; None when it does not tell."""
    folder = _own_cgroup()
    return None if folder is None else _cgroup_counters(folder).get("oom_kill")
