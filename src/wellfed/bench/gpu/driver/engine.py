"""The driver tier as an Engine."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from ctypes import c_uint, c_ulonglong
from typing import Any

from wellfed.bench.gpu.driver import ptx
from wellfed.bench.gpu.driver.device import Device, DeviceBuffer, HostBuffer, Work
from wellfed.bench.gpu.driver.library import Library
from wellfed.bench.gpu.engine import NODE_WORDS

_ADD_THREADS = 128
HOLD_LIMIT_NS = 2_000_000_000
"""The holding kernel gives up after two seconds: a host that died or a queue that is full must not hang the device."""


class DriverEngine:
    """See `Engine`."""

    tier: str = "driver"

    def __init__(self, device: Device) -> None:
        self.device = device
        self.name = device.name
        self.address: str | None = device.address
        self.capability, self.l2_bytes = device.capability, device.l2_bytes
        version = int(device.call.out("cuDriverGetVersion", ctypes.c_int))
        self.versions: dict[str, Any] = {"cuda_driver": f"{version // 1000}.{version % 1000 // 10}"}
        self.streams = (device.stream, device.make_stream())
        self._events = [device.event() for _ in range(3)]
        self._flag = device.host(4096, pinned=True)
        flag = device.call.out("cuMemHostGetDevicePointer_v2", c_ulonglong, self._flag.address, 0)
        arguments = [c_ulonglong(flag), c_ulonglong(HOLD_LIMIT_NS)]
        self._hold = device.launcher("wf_spin", 1, 1, arguments)
        self._word = c_uint.from_address(self._flag.address)
        self._sink = device.allocate(4096)

    def scope(self) -> AbstractContextManager[None]:
        return self.device.scope()

    def free_bytes(self) -> int:
        return self.device.free_bytes()

    def buffer(self, size: int) -> DeviceBuffer:
        buffer = self.device.allocate(size)
        self.device.fill(buffer)
        return buffer

    def host(self, size: int, *, pinned: bool) -> HostBuffer:
        return self.device.host(size, pinned=pinned)

    def copy(self, out: DeviceBuffer, source: DeviceBuffer) -> Work:
        """By the driver's own copy; `copy_kernel` is ours."""
        return self._call("cuMemcpyDtoDAsync_v2", out.pointer, source.pointer, source.size, self.streams[0])

    def copy_kernel(self, out: DeviceBuffer, source: DeviceBuffer) -> Work:
        return self._walk("wf_copy", source.size, out, source)

    def read(self, source: DeviceBuffer) -> Work:
        return self._walk("wf_read", source.size, source, self._sink)

    def again(self, source: DeviceBuffer, turns: int) -> Work:
        """Reads all of it `turns` times, each time past L1."""
        blocks = min(self.device.full_grid, ptx.chunks(source.size))
        numbers = (source.pointer, self._sink.pointer, source.size // 16)
        arguments = [*(c_ulonglong(number) for number in numbers), c_uint(turns)]
        return self.device.launcher("wf_again", blocks, ptx.THREADS, arguments)

    def triad(self, out: DeviceBuffer, left: DeviceBuffer, right: DeviceBuffer) -> Work:
        return self._walk("wf_triad", out.size, out, left, right)

    def h2d(self, device: DeviceBuffer, host: HostBuffer, size: int, *, lane: int = 0) -> Work:
        """From memory that is not pinned it returns when the source may be used again: the driver stages it."""
        return self._call(
            "cuMemcpyHtoDAsync_v2", device.pointer, host.address, size, self.streams[lane], keep=host
        )

    def d2h(self, host: HostBuffer, device: DeviceBuffer, size: int, *, lane: int = 0) -> Work:
        return self._call(
            "cuMemcpyDtoHAsync_v2", host.address, device.pointer, size, self.streams[lane], keep=host
        )

    def null(self) -> Work:
        return self.device.launcher("wf_null", 1, 1, [])

    def add(self) -> Work:
        """One more in each word, as torch's tier does it."""
        buffer = self.device.allocate(4 * NODE_WORDS)
        self.device.fill(buffer)
        blocks = NODE_WORDS // (4 * _ADD_THREADS)
        return self.device.launcher("wf_add", blocks, _ADD_THREADS, [c_ulonglong(buffer.pointer)])

    def fma(self, kind: str, turns: int) -> tuple[Work, int]:
        """A launch of chains of fused multiply-adds in `f32` or `f64`, and its operations."""
        blocks = self.device.full_grid
        arguments = [c_ulonglong(self._sink.pointer), c_uint(turns)]
        work = self.device.launcher(f"wf_fma{kind[1:]}", blocks, ptx.THREADS, arguments)
        return work, ptx.fma_flops(blocks * ptx.THREADS, turns)

    def graph(self, work: Work, times: int) -> Work:
        def record() -> None:
            for _ in range(times):
                work()

        graph = self.device.capture(record)
        return self._call("cuGraphLaunch", graph.executable, self.streams[0])

    def held_s(self, lanes: Sequence[Sequence[Work]]) -> float:
        device, start, ends = self.device, self._events[0], self._events[1:]
        self._word.value = 0
        try:
            self._hold()
            device.record(start)
            for lane, end, works in zip(range(len(lanes)), ends, lanes, strict=False):
                if lane:
                    device.call("cuStreamWaitEvent", self.streams[lane], start, 0)
                for work in works:
                    work()
                device.record(end, self.streams[lane])
        finally:
            self._word.value = 1
        return max(device.elapsed_s(start, end) for end in ends[: len(lanes)])

    def event_s(self, work: Work) -> float:
        start, end = self._events[:2]
        self.device.record(start)
        work()
        self.device.record(end)
        return self.device.elapsed_s(start, end)

    def synchronize(self) -> None:
        self.device.call("cuStreamSynchronize", self.streams[0])

    def _walk(self, kernel: str, size: int, *buffers: DeviceBuffer) -> Work:
        arguments = [c_ulonglong(buffer.pointer) for buffer in buffers] + [c_ulonglong(size // 16)]
        return self.device.launcher(kernel, ptx.chunks(size), ptx.THREADS, arguments)

    def _call(self, name: str, *arguments: Any, keep: Any = None) -> Work:
        """Arguments are made C values once, not at each call. `keep` lives as long as the work."""
        types = self.device.call.functions[name].argtypes  # type: ignore[attr-defined]
        ready = [kind(value) for kind, value in zip(types, arguments, strict=True)]
        function = self.device.call.functions[name]

        def run(keep: Any = keep) -> None:
            if code := function(*ready):
                self.device.call.check(name, code)

        return run


@contextmanager
def open_engine(index: int = 0, library: Library | None = None) -> Iterator[DriverEngine]:
    """The device of that number. Raises WellfedError when there is no driver or no device."""
    with Device(index, library) as device:
        yield DriverEngine(device)
