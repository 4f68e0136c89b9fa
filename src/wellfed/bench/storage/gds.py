"""From storage to GPU memory by cuFile (GPUDirect Storage), by its C library alone: and whether the direct path was taken at all.

Where it can't go directly, cuFile reads through a buffer of the host without a word ("compat mode"). The proof of the direct path is the kernel
module's own counter of reads (`/proc/driver/nvidia-fs/stats`), before and after: only when it moves is the result called direct.
"""

import ctypes
import ctypes.util
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.setup import MIB, Scale, Setup, build_ceiling, size_text
from wellfed.bench.storage.files import Target, describe, file_size, random_file
from wellfed.model import Ceiling, Machine, WellfedError

IDS = ("gds-read",)
WEIGHT = 1.5
EFFORT: Effort = "full"
ISOLATE = True
STATS = Path("/proc/driver/nvidia-fs/stats")
_BLOCK = 16 * MIB
_PASS = 256 * MIB
_OPAQUE_FD = 1
_ALLOW_COMPAT = 1 << 1
"""CU_FILE_ALLOW_COMPAT_MODE of cufile.h, a bit of nvfs.dcontrolflags."""


class Error(ctypes.Structure):
    """CUfileError_t."""

    _fields_ = (("err", ctypes.c_int), ("cu_err", ctypes.c_int))


class Descriptor(ctypes.Structure):
    """CUfileDescr_t."""

    _fields_ = (("type", ctypes.c_int), ("fd", ctypes.c_int64), ("fs_ops", ctypes.c_void_p))


class Properties(ctypes.Structure):
    """The head of CUfileDrvProps_t; the rest is room for what later versions add."""

    _fields_ = (
        ("major_version", ctypes.c_uint),
        ("minor_version", ctypes.c_uint),
        ("poll_thresh_size", ctypes.c_size_t),
        ("max_direct_io_size", ctypes.c_size_t),
        ("dstatusflags", ctypes.c_uint),
        ("dcontrolflags", ctypes.c_uint),
        ("rest", ctypes.c_char * 1024),
    )


def needs(machine: Machine) -> str | None:
    """The driver of a GPU and the cuFile library."""
    if not Path("/dev/nvidiactl").exists():
        return "no NVIDIA GPU here"
    if library_path() is None:
        return "no libcufile.so: it comes with CUDA's GPUDirect Storage, or `pip install nvidia-cufile`"
    return None


def library_path() -> str | None:
    """Where cuFile is: with the system, a toolkit, or a Python package."""
    found = ctypes.util.find_library("cufile")
    if found:
        return found
    folders = [Path(folder, "nvidia") for folder in sys.path if folder]
    places = [path for folder in folders for path in sorted(folder.glob("*/lib/libcufile.so*"))]
    places += sorted(Path("/usr/local").glob("cuda*/lib64/libcufile.so*"))
    return str(places[0]) if places else None


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """Reads of a file in `setup.folder` into the first GPU. Raises OSError, or WellfedError with what cuFile or CUDA says."""
    started = time.monotonic()
    with random_file(setup.folder, file_size(setup), started + budget_s * 0.4) as target:
        if not target.direct:
            raise WellfedError("the file system refuses O_DIRECT, which cuFile needs for the direct path")
        before, moved = noise.read_counters(), reads_by_module()
        with gpu_buffer(_BLOCK) as pointer, cufile() as library:
            compat = compat_allowed(library)
            samples = _read(
                library, target, pointer, max(budget_s - (time.monotonic() - started), budget_s * 0.3)
            )
        yield _ceiling(setup, before, target, samples, path_taken(moved, reads_by_module()), compat)


def _ceiling(
    setup: Setup, before: noise.Counters, target: Target, samples: list[float], path: str, compat: bool | None
) -> Ceiling:
    direct = path == "direct"
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(unit="GB/s", band=(0.05, 60.0), band_source="half a hard disk to a PCIe 5.0 x16 link"),
        id="gds-read",
        title="storage to GPU by cuFile",
        method=f"cuFileRead by {size_text(_BLOCK)} in order, one thread, registered buffer; path: {path}",
        tier="driver",
        size=size_text(min(target.size, _PASS)),
        threads=1,
        why=None
        if direct
        else "not GPUDirect Storage: no read of the nvidia-fs module was seen, so the data went through the host's memory or another path",
        environment={
            **describe(target),
            "path": path,
            "allow_compat_mode": compat,
            "nvidia_fs": STATS.exists(),
        },
    )


def path_taken(before: int | None, after: int | None) -> str:
    """`direct` when the module's count of reads has moved; `compat` when it has not, or there is no module."""
    return "direct" if before is not None and after is not None and after > before else "compat"


def reads_by_module(text: str | None = None) -> int | None:
    """The count of reads that nvidia-fs has done (`Reads : n=12 ok=12 ...`); None without the module, or when it keeps none."""
    if text is None:
        try:
            text = STATS.read_text(errors="replace")
        except OSError:
            return None
    found = re.search(r"^Reads\s*:\s*n=(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def compat_allowed(library: Any) -> bool | None:
    """Whether cuFile may take the path through the host (`properties.allow_compat_mode`); None when it does not tell."""
    properties = Properties()
    library.cuFileDriverGetProperties.restype = Error
    if library.cuFileDriverGetProperties(ctypes.byref(properties)).err:
        return None
    return bool(properties.dcontrolflags & _ALLOW_COMPAT)


def _read(library: Any, target: Target, pointer: int, budget_s: float) -> list[float]:
    """GB/s of each pass over the file; the first is thrown away."""
    handle = ctypes.c_void_p()
    descriptor = Descriptor(type=_OPAQUE_FD, fd=target.fd, fs_ops=None)
    library.cuFileHandleRegister.restype = Error
    check(
        library.cuFileHandleRegister(ctypes.byref(handle), ctypes.byref(descriptor)), "cuFileHandleRegister"
    )
    read = library.cuFileRead
    read.restype = ctypes.c_ssize_t
    read.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64)
    size, samples = min(target.size, _PASS) // _BLOCK * _BLOCK, list[float]()
    deadline = time.monotonic() + budget_s
    try:
        while len(samples) < 4 or time.monotonic() < deadline:
            start = time.perf_counter()
            for offset in range(0, size, _BLOCK):
                if read(handle, pointer, _BLOCK, offset, 0) != _BLOCK:
                    raise WellfedError(f"cuFileRead failed at {offset}")
            samples.append(size / (time.perf_counter() - start) / 1e9)
    finally:
        library.cuFileHandleDeregister(handle)
    return samples[1:]


@contextmanager
def cufile() -> Iterator[Any]:
    """The library, its driver open."""
    path = library_path()
    assert path is not None
    library = ctypes.CDLL(path)
    library.cuFileDriverOpen.restype = Error
    check(library.cuFileDriverOpen(), "cuFileDriverOpen")
    try:
        yield library
    finally:
        library.cuFileDriverClose()


def check(error: Error, call: str) -> None:
    """Raises WellfedError when a call of cuFile failed."""
    if error.err:
        raise WellfedError(f"{call} failed with error {error.err} (CUDA {error.cu_err})")


@contextmanager
def gpu_buffer(size: int) -> Iterator[int]:
    """The address of memory of the first GPU, its primary context current. Raises WellfedError."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()

    def call(name: str, *args: Any) -> None:
        code = getattr(cuda, name)(*args)
        if code:
            raise WellfedError(f"{name} failed with CUDA error {code}")

    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        call("cuCtxSetCurrent", context)
        call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        try:
            yield pointer.value
        finally:
            cuda.cuMemFree_v2(pointer)
    finally:
        cuda.cuDevicePrimaryCtxRelease_v2(device)
