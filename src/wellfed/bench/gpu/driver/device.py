"""One CUDA device through libcuda: memory, streams, events, kernels, graphs. The primary context is used, the one that
torch uses in the same process."""

import ctypes
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any, NamedTuple

from wellfed.bench.gpu.driver import ptx
from wellfed.bench.gpu.driver.library import PEER_ALREADY, DriverError, LaunchConfig, Library, load

_MULTIPROCESSORS, _L2_BYTES, _MAJOR, _MINOR, _COPY_ENGINES = 16, 38, 75, 76, 40
_NON_BLOCKING = 1
_PORTABLE_MAPPED = 1 | 2
_CAPTURE_THREAD_LOCAL = 1
_BLOCKS_PER_SM = 8

Work = Callable[[], object]
"""Puts one piece of work on a stream and returns at once."""


class DeviceBuffer(NamedTuple):
    pointer: int
    size: int


class HostBuffer(NamedTuple):
    """`address` is mapped and written. `keep` holds the memory when it is not the driver's."""

    address: int
    size: int
    pinned: bool
    keep: Any = None


class Graph(NamedTuple):
    executable: int
    graph: int


class Device:
    """A context manager: what was taken is given back at its end, also after an error."""

    def __init__(self, index: int = 0, library: Library | None = None) -> None:
        self.call = library or load()
        self.call("cuInit", 0)
        self.count = int(self.call.out("cuDeviceGetCount", c_int))
        if index >= self.count:
            raise DriverError("cuDeviceGet", 100, "CUDA_ERROR_NO_DEVICE", f"there is no device {index}")
        self.device = int(self.call.out("cuDeviceGet", c_int, index))
        self.context = self.call.out("cuDevicePrimaryCtxRetain", c_void_p, self.device)
        self._undo: list[tuple[str, tuple[Any, ...]]] = [("cuDevicePrimaryCtxRelease_v2", (self.device,))]
        try:
            self.call("cuCtxSetCurrent", self.context)
            self.stream = self.make_stream()
            self.module = self.call.out("cuModuleLoadData", c_void_p, ptx.module().encode())
            self._undo.append(("cuModuleUnload", (self.module,)))
        except BaseException:
            self.close()
            raise
        self.multiprocessors = self.attribute(_MULTIPROCESSORS)
        self.l2_bytes = self.attribute(_L2_BYTES)
        self.capability = (self.attribute(_MAJOR), self.attribute(_MINOR))
        self._functions: dict[str, int] = {}

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back everything, last taken first. A lost device answers each of these with the error that is known."""
        while self._undo:
            name, arguments = self._undo.pop()
            try:
                self.call(name, *arguments)
            except DriverError:
                continue

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is taken inside is given back at its end."""
        kept, self._undo = self._undo, []
        try:
            yield
        finally:
            self.close()
            self._undo = kept

    @property
    def name(self) -> str:
        text = ctypes.create_string_buffer(128)
        self.call("cuDeviceGetName", text, 128, self.device)
        return text.value.decode(errors="replace")

    @property
    def address(self) -> str:
        """The PCI address: `0000:0f:00.0`, in lower case, with a four-digit domain."""
        text = ctypes.create_string_buffer(32)
        self.call("cuDeviceGetPCIBusId", text, 32, self.device)
        return text.value.decode().lower()[-12:]

    def attribute(self, number: int) -> int:
        return int(self.call.out("cuDeviceGetAttribute", c_int, number, self.device))

    def free_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def make_stream(self) -> int:
        stream = self.call.out("cuStreamCreate", c_void_p, _NON_BLOCKING)
        self._undo.append(("cuStreamDestroy_v2", (stream,)))
        return int(stream)

    def allocate(self, size: int) -> DeviceBuffer:
        """Device memory, not written."""
        pointer = int(self.call.out("cuMemAlloc_v2", c_ulonglong, size))
        self._undo.append(("cuMemFree_v2", (pointer,)))
        return DeviceBuffer(pointer, size)

    def host(self, size: int, *, pinned: bool) -> HostBuffer:
        """Host memory, each page written: pages that were never touched are all the same page of zeros."""
        if not pinned:
            # Private, as malloc's: shared memory is copied by another path.
            pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            _dirty(ctypes.addressof(ctypes.c_char.from_buffer(pages)), size)
            return HostBuffer(ctypes.addressof(ctypes.c_char.from_buffer(pages)), size, False, pages)
        address = int(self.call.out("cuMemHostAlloc", c_void_p, size, _PORTABLE_MAPPED))
        self._undo.append(("cuMemFreeHost", (address,)))
        _dirty(address, size)
        return HostBuffer(address, size, True)

    def launcher(
        self, kernel: str, blocks: int, threads: int, arguments: Sequence[Any], stream: int | None = None
    ) -> Work:
        """Launches the kernel each time it is called. All of the call is prepared here, so that as little Python as
        possible runs between two launches."""
        if kernel not in self._functions:
            self._functions[kernel] = self.call.out(
                "cuModuleGetFunction", c_void_p, self.module, kernel.encode()
            )
        slots = (c_void_p * max(len(arguments), 1))()
        for number, argument in enumerate(arguments):
            slots[number] = ctypes.addressof(argument)
        function = c_void_p(self._functions[kernel])
        where = self.stream if stream is None else stream
        if (short := self.call.functions.get("cuLaunchKernelEx")) is not None:
            config = LaunchConfig(blocks, 1, 1, threads, 1, 1, 0, where, None, 0)
            ready: tuple[Any, ...] = (ctypes.pointer(config), function, slots, None)
            return self._prepared("cuLaunchKernelEx", short, ready, arguments)
        whole = self.call.functions["cuLaunchKernel"]
        shape = [c_uint(number) for number in (blocks, 1, 1, threads, 1, 1, 0)]
        ready = (function, *shape, c_void_p(where), slots, None)
        return self._prepared("cuLaunchKernel", whole, ready, arguments)

    def _prepared(
        self, name: str, function: Callable[..., int], ready: tuple[Any, ...], keep: Sequence[Any]
    ) -> Work:
        """Eleven arguments cost ctypes 0.6 us more than four."""
        check = self.call.check

        def run(keep: Any = keep) -> None:
            if code := function(*ready):
                check(name, code)

        return run

    @property
    def full_grid(self) -> int:
        return self.multiprocessors * _BLOCKS_PER_SM

    def fill(self, buffer: DeviceBuffer, seed: int = 1) -> None:
        """Random floats, finished when this returns."""
        arguments = [c_ulonglong(buffer.pointer), c_ulonglong(buffer.size // 4), c_uint(seed)]
        self.launcher("wf_fill", self.full_grid, ptx.THREADS, arguments)()
        self.synchronize()

    def capture(self, work: Work) -> Graph:
        """What `work` puts on our stream, as a graph that is ready to launch."""
        self.call("cuStreamBeginCapture_v2", self.stream, _CAPTURE_THREAD_LOCAL)
        try:
            work()
        finally:
            graph = int(self.call.out_last("cuStreamEndCapture", c_void_p, self.stream))
        executable = int(self.call.out("cuGraphInstantiateWithFlags", c_void_p, graph, 0))
        self._undo.append(("cuGraphDestroy", (graph,)))
        self._undo.append(("cuGraphExecDestroy", (executable,)))
        return Graph(executable, graph)

    def event(self) -> int:
        event = int(self.call.out("cuEventCreate", c_void_p, 0))
        self._undo.append(("cuEventDestroy_v2", (event,)))
        return event

    def record(self, event: int, stream: int | None = None) -> None:
        self.call("cuEventRecord", event, self.stream if stream is None else stream)

    def elapsed_s(self, first: int, last: int) -> float:
        self.call("cuEventSynchronize", last)
        return float(self.call.out("cuEventElapsedTime", c_float, first, last)) / 1e3

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    def enable_peer(self, other: "Device") -> bool:
        """Whether this device may reach the other's memory directly; it may from now on."""
        if not self.call.out("cuDeviceCanAccessPeer", c_int, self.device, other.device):
            return False
        self.call("cuCtxSetCurrent", self.context)
        try:
            self.call("cuCtxEnablePeerAccess", other.context, 0)
        except DriverError as error:
            if error.code != PEER_ALREADY:
                raise
        return True


def _dirty(address: int, size: int) -> None:
    """Write random bytes over all of it, a block repeated."""
    import numpy as np

    block = np.random.default_rng(1).bytes(1 << 20)
    for offset in range(0, size, len(block)):
        ctypes.memmove(address + offset, block, min(len(block), size - offset))
