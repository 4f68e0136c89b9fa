"""What held the GPU back while it was measured: clocks, power, temperature and throttle reasons, ten times a second.

Read live and not through the Host door: these belong to the very seconds that were measured."""

import ctypes
import threading
from collections import Counter
from types import TracebackType
from typing import Any, Self

_PERIOD_S = 0.1
CLOCK_SM, TEMPERATURE_GPU = 1, 0
REASONS = {
    0x4: "software-power-cap",
    0x8: "hardware-slowdown",
    0x20: "software-thermal",
    0x40: "hardware-thermal",
    0x80: "power-brake",
}
"""Bits of nvmlClocksEventReason* that say that the clock was held down; idle (1), set by the user (2), the display
and the sync group don't."""


class Watch:
    """A context manager. `seen` is empty where NVML is missing or does not tell."""

    def __init__(self, address: str | None, nvml: Any = None) -> None:
        self._address = address
        self._clocks: list[int] = []
        self._watts: list[float] = []
        self._degrees: list[int] = []
        self._reasons: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml = nvml
        self._handle: Any = None

    def __enter__(self) -> Self:
        if self._open():
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0)
            self._nvml.nvmlShutdown()

    def seen(self) -> dict[str, Any]:
        """Median clock, the extremes, and the share of readings with each reason."""
        if not self._clocks:
            return {}
        middle = sorted(self._clocks)[len(self._clocks) // 2]
        n = len(self._clocks)
        return {
            "sm_mhz": middle,
            "sm_mhz_lowest": min(self._clocks),
            "power_w_highest": round(max(self._watts, default=0)),
            "temperature_c_highest": max(self._degrees, default=0),
            "throttled": {reason: round(count / n, 2) for reason, count in self._reasons.items()},
        }

    def _open(self) -> bool:
        self._nvml = self._nvml or load_nvml()
        if self._nvml is None or self._nvml.nvmlInit_v2() != 0:
            return False
        handle = ctypes.c_void_p()
        if self._address is None:
            code = self._nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
        else:
            code = self._nvml.nvmlDeviceGetHandleByPciBusId_v2(self._address.encode(), ctypes.byref(handle))
        self._handle = handle
        if code != 0:
            self._nvml.nvmlShutdown()
        return bool(code == 0)

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            self._read()

    def _read(self) -> None:
        clock = self._number("nvmlDeviceGetClockInfo", CLOCK_SM)
        mask = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong)
        if clock is not None and mask is not None:
            self._clocks.append(clock)
            self._reasons.update(throttled(mask))
        if (milliwatts := self._number("nvmlDeviceGetPowerUsage")) is not None:
            self._watts.append(milliwatts / 1e3)
        if (degrees := self._number("nvmlDeviceGetTemperature", TEMPERATURE_GPU)) is not None:
            self._degrees.append(degrees)

    def _number(self, name: str, *which: int, kind: Any = ctypes.c_uint) -> int | None:
        return read_number(self._nvml, self._handle, name, *which, kind=kind)


def read_number(nvml: Any, handle: Any, name: str, *which: int, kind: Any = ctypes.c_uint) -> int | None:
    """What a call of NVML writes through its last argument; None when it does not tell."""
    value = kind()
    code = getattr(nvml, name)(handle, *which, ctypes.byref(value))
    return int(value.value) if code == 0 else None


def throttled(mask: int) -> list[str]:
    """The names of what holds the clock down."""
    return [name for bit, name in REASONS.items() if mask & bit]


def load_nvml() -> Any:
    """libnvidia-ml by ctypes, which is there wherever the driver is; None without it."""
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
