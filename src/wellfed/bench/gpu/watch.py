"""What held the GPU back while it was measured: clocks, power, temperature and throttle reasons, ten times a second.

Read live and not through the Host door: these belong to the very seconds that were measured."""

import threading
from collections import Counter
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

_PERIOD_S = 0.1
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

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._clocks: list[int] = []
        self._watts: list[float] = []
        self._degrees: list[int] = []
        self._reasons: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml: Any = None
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
            with suppress(self._nvml.NVMLError):
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
        try:
            import pynvml
        except ImportError:
            return False
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            if self._address is None:
                self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            else:
                self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(self._address.encode())
        except pynvml.NVMLError:
            return False
        return True

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            self._read()

    def _read(self) -> None:
        nvml, handle = self._nvml, self._handle
        with suppress(nvml.NVMLError):
            clock = int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
            mask = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
            self._clocks.append(clock)
            self._reasons.update(name for bit, name in REASONS.items() if mask & bit)
        with suppress(nvml.NVMLError):
            self._watts.append(nvml.nvmlDeviceGetPowerUsage(handle) / 1e3)
        with suppress(nvml.NVMLError):
            self._degrees.append(int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)))
