"""A libcuda of Python functions behind C types: the bindings are called as they would call the real one.

Memory is the host's, copies really copy, kernels do nothing. Time is invented: each stream is a clock that work pushes
on at known rates, so what a benchmark finds can be compared with what was planted.
"""

import ctypes
from collections import Counter
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int
from typing import Any

from wellfed.bench.gpu.driver.library import FUNCTIONS, Library, bind

ERRORS = {
    2: (b"CUDA_ERROR_OUT_OF_MEMORY", b"out of memory"),
    100: (b"CUDA_ERROR_NO_DEVICE", b"no CUDA-capable device is detected"),
    700: (b"CUDA_ERROR_ILLEGAL_ADDRESS", b"an illegal memory access was encountered"),
    719: (b"CUDA_ERROR_LAUNCH_FAILED", b"unspecified launch failure"),
}
_COPIED = 1 << 22
"""Larger copies take their time only."""
ATTRIBUTES = {16: 132, 38: 60 << 20, 40: 3, 75: 9, 76: 0}


class FakeCuda:
    """Attributes are functions of C types. `fail`: name of a function -> (which call of it, error). Rates in bytes a
    second of each copy; `kernel_s` of each kernel by name."""

    def __init__(self, devices: int = 1, free_bytes: int = 1 << 30) -> None:
        self.devices, self.free_bytes = devices, free_bytes
        self.fail: dict[str, tuple[int, int]] = {}
        self.calls: Counter[str] = Counter()
        self.d2d_bps, self.h2d_bps, self.d2h_bps = 2e12, 50e9, 40e9
        self.kernel_s: dict[str, float] = {"wf_null": 2e-6}
        self.now: dict[int, float] = {}
        self.events: dict[int, float] = {}
        self.live: dict[int, tuple[str, Any]] = {}
        self.names: dict[int, str] = {}
        self.capturing: list[float] | None = None
        self.dead = 0
        self._next = 0x1000
        self._keep = []
        for name, types in FUNCTIONS.items():
            function = CFUNCTYPE(c_int, *types)(self._guard(name, getattr(self, f"do_{name}")))
            self._keep.append(function)
            setattr(self, name, function)

    def library(self) -> Library:
        return Library(bind(self))

    def leaks(self) -> list[str]:
        return [kind for kind, _ in self.live.values()]

    def _guard(self, name: str, function: Callable[..., int | None]) -> Callable[..., int]:
        def run(*arguments: Any) -> int:
            self.calls[name] += 1
            if self.dead and not name.startswith("cuGetError"):
                return self.dead
            when, code = self.fail.get(name, (0, 0))
            if when == self.calls[name]:
                if code in (700, 719):
                    self.dead = code
                return code
            return function(*arguments) or 0

        return run

    def _take(self, kind: str, thing: Any = None) -> int:
        self._next += 0x1000
        self.live[self._next] = (kind, thing)
        return self._next

    def _give(self, handle: int, kind: str) -> None:
        found, _ = self.live.pop(handle)
        assert found == kind, (found, kind)

    def _spend(self, stream: int | None, seconds: float) -> None:
        if self.capturing is not None:
            self.capturing.append(seconds)
        else:
            self.now[stream or 0] = self.now.get(stream or 0, 0.0) + seconds

    def do_cuInit(self, flags: int) -> int:
        return 0 if self.devices else 100

    def do_cuDriverGetVersion(self, out: Any) -> None:
        out[0] = 13000

    def do_cuDeviceGetCount(self, out: Any) -> None:
        out[0] = self.devices

    def do_cuDeviceGet(self, out: Any, index: int) -> None:
        out[0] = index

    def do_cuDeviceGetName(self, text: int, size: int, device: int) -> None:
        ctypes.memmove(text, b"NVIDIA H200\0", 12)

    def do_cuDeviceGetAttribute(self, out: Any, number: int, device: int) -> None:
        out[0] = ATTRIBUTES[number]

    def do_cuDeviceGetPCIBusId(self, text: int, size: int, device: int) -> None:
        ctypes.memmove(text, b"00000000:0F:00.0\0", 17)

    def do_cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> None:
        out[0] = self._take("context")

    def do_cuDevicePrimaryCtxRelease_v2(self, device: int) -> None:
        for handle, (kind, _) in list(self.live.items()):
            if kind == "context":
                del self.live[handle]
                return

    def do_cuCtxSetCurrent(self, context: int) -> None: ...

    def do_cuCtxSynchronize(self) -> None: ...

    def do_cuCtxEnablePeerAccess(self, context: int, flags: int) -> None: ...

    def do_cuDeviceCanAccessPeer(self, out: Any, one: int, other: int) -> None:
        out[0] = 1

    def do_cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        free[0], total[0] = self.free_bytes, self.free_bytes

    def _memory(self, kind: str, size: int) -> int:
        block = ctypes.create_string_buffer(size)
        address = ctypes.addressof(block)
        self.live[address] = (kind, block)
        return address

    def do_cuMemAlloc_v2(self, out: Any, size: int) -> int:
        if size > self.free_bytes:
            return 2
        out[0] = self._memory("device", size)
        return 0

    def do_cuMemFree_v2(self, pointer: int) -> None:
        self._give(pointer, "device")

    def do_cuMemHostAlloc(self, out: Any, size: int, flags: int) -> None:
        out[0] = self._memory("pinned", size)

    def do_cuMemHostGetDevicePointer_v2(self, out: Any, host: int, flags: int) -> None:
        out[0] = host

    def do_cuMemFreeHost(self, address: int) -> None:
        self._give(address, "pinned")

    def _copy(self, out: int, source: int, size: int, stream: int | None, bps: float) -> None:
        if size <= _COPIED:
            ctypes.memmove(out, source, size)
        self._spend(stream, size / bps)

    def do_cuMemcpyDtoDAsync_v2(self, out: int, source: int, size: int, stream: int | None) -> None:
        self._copy(out, source, size, stream, self.d2d_bps)

    def do_cuMemcpyHtoDAsync_v2(self, out: int, source: int, size: int, stream: int | None) -> None:
        self._copy(out, source, size, stream, self.h2d_bps)

    def do_cuMemcpyDtoHAsync_v2(self, out: int, source: int, size: int, stream: int | None) -> None:
        self._copy(out, source, size, stream, self.d2h_bps)

    def do_cuMemcpyHtoD_v2(self, out: int, source: int, size: int) -> None:
        self._copy(out, source, size, 0, self.h2d_bps)

    def do_cuMemcpyDtoH_v2(self, out: int, source: int, size: int) -> None:
        self._copy(out, source, size, 0, self.d2h_bps)

    def do_cuMemcpyPeerAsync(
        self, out: int, to: int, source: int, of: int, size: int, stream: int | None
    ) -> None:
        self._copy(out, source, size, stream, self.d2d_bps / 10)

    def do_cuStreamCreate(self, out: Any, flags: int) -> None:
        out[0] = self._take("stream")

    def do_cuStreamDestroy_v2(self, stream: int) -> None:
        self._give(stream, "stream")

    def do_cuStreamSynchronize(self, stream: int | None) -> None: ...

    def do_cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        self.now[stream] = max(self.now.get(stream, 0.0), self.events[event])

    def do_cuStreamBeginCapture_v2(self, stream: int, mode: int) -> None:
        self.capturing = []

    def do_cuStreamEndCapture(self, stream: int, out: Any) -> None:
        out[0] = self._take("graph", sum(self.capturing or []))
        self.capturing = None

    def do_cuGraphInstantiateWithFlags(self, out: Any, graph: int, flags: int) -> None:
        out[0] = self._take("executable", self.live[graph][1])

    def do_cuGraphLaunch(self, executable: int, stream: int) -> None:
        self._spend(stream, self.live[executable][1])

    def do_cuGraphExecDestroy(self, executable: int) -> None:
        self._give(executable, "executable")

    def do_cuGraphDestroy(self, graph: int) -> None:
        self._give(graph, "graph")

    def do_cuEventCreate(self, out: Any, flags: int) -> None:
        out[0] = self._take("event")

    def do_cuEventRecord(self, event: int, stream: int | None) -> None:
        self.events[event] = self.now.get(stream or 0, 0.0)

    def do_cuEventSynchronize(self, event: int) -> None: ...

    def do_cuEventElapsedTime(self, out: Any, first: int, last: int) -> None:
        out[0] = (self.events[last] - self.events[first]) * 1e3

    def do_cuEventDestroy_v2(self, event: int) -> None:
        self._give(event, "event")

    def do_cuModuleLoadData(self, out: Any, text: bytes) -> None:
        assert text.startswith(b".version")
        out[0] = self._take("module")

    def do_cuModuleGetFunction(self, out: Any, module: int, name: bytes) -> None:
        self._next += 0x1000
        self.names[self._next] = name.decode()
        out[0] = self._next

    def do_cuModuleUnload(self, module: int) -> None:
        self._give(module, "module")

    def do_cuLaunchKernel(self, function: int, *rest: Any) -> None:
        gx, _, _, bx, _, _, shared, stream, *_ = rest
        assert gx >= 1 and bx >= 1 and shared == 0
        self._spend(stream, self.kernel_s.get(self.names[function], 1e-3))

    def do_cuLaunchKernelEx(self, config: Any, function: int, slots: int, extra: int) -> None:
        found = config.contents
        assert found.grid_x >= 1 and found.block_x >= 1 and found.attribute_count == 0
        self._spend(found.stream, self.kernel_s.get(self.names[function], 1e-3))

    def do_cuGetErrorName(self, code: int, out: Any) -> None:
        out[0] = ERRORS[code][0]

    def do_cuGetErrorString(self, code: int, out: Any) -> None:
        out[0] = ERRORS[code][1]
