"""The functions of libcuda that we call: their types, how they fail, and which failures leave the process useless."""

import ctypes
import sys
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from functools import cache
from typing import Any

from wellfed.model import WellfedError

NAMES = ("libcuda.so.1", "libcuda.so") if sys.platform == "linux" else ()
_OUT = POINTER(c_void_p)
_DEVICE_POINTER = c_ulonglong


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = [
        *(
            (name, c_uint)
            for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")
        ),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    ]


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_void_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceGetPCIBusId": (c_void_p, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_OUT, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuCtxEnablePeerAccess": (c_void_p, c_uint),
    "cuDeviceCanAccessPeer": (POINTER(c_int), c_int, c_int),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(_DEVICE_POINTER), c_size_t),
    "cuMemFree_v2": (_DEVICE_POINTER,),
    "cuMemHostAlloc": (_OUT, c_size_t, c_uint),
    "cuMemHostGetDevicePointer_v2": (POINTER(_DEVICE_POINTER), c_void_p, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyDtoDAsync_v2": (_DEVICE_POINTER, _DEVICE_POINTER, c_size_t, c_void_p),
    "cuMemcpyHtoDAsync_v2": (_DEVICE_POINTER, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, _DEVICE_POINTER, c_size_t, c_void_p),
    "cuMemcpyHtoD_v2": (_DEVICE_POINTER, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, _DEVICE_POINTER, c_size_t),
    "cuMemcpyPeerAsync": (_DEVICE_POINTER, c_void_p, _DEVICE_POINTER, c_void_p, c_size_t, c_void_p),
    "cuStreamCreate": (_OUT, c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, _OUT),
    "cuGraphInstantiateWithFlags": (_OUT, c_void_p, c_ulonglong),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphDestroy": (c_void_p,),
    "cuEventCreate": (_OUT, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuModuleLoadData": (_OUT, c_char_p),
    "cuModuleGetFunction": (_OUT, c_void_p, c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, _OUT, _OUT),
    "cuLaunchKernelEx": (POINTER(LaunchConfig), c_void_p, c_void_p, c_void_p),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}
"""cuda.h's own symbols (those that its macros mean), in the drivers of CUDA 11.4 and later, but for cuLaunchKernelEx (11.8)."""

OUT_OF_MEMORY = 2
NO_DEVICE = (100, 101)
PEER_ALREADY = 704
NOT_PERMITTED_IN_CAPTURE = range(900, 911)
LOST = frozenset({46, 214, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720, 721, 999})
"""After these (device unavailable, uncorrectable ECC or NVLink error, illegal address, launch timeout, assert, hardware
stack error, illegal instruction, misaligned or invalid address, launch failed, unknown) every further call of the
process fails: cuda.h says of each that the context is to be destroyed and the process relaunched."""

_HINTS = {
    "OUT_OF_MEMORY": "nvidia-smi",
    "NO_DEVICE": "nvidia-smi -L",
    "SYSTEM_NOT_READY": "systemctl status nvidia-fabricmanager",
}


class DriverError(WellfedError):
    """What a call of libcuda said, by its name in cuda.h and its number."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        self.code, self.name = code, name
        short = name.removeprefix("CUDA_ERROR_")
        super().__init__(f"{call}: {text} ({name}, {code})", hint=_HINTS.get(short))

    @property
    def lost(self) -> bool:
        """Whether nothing more can be done with the device in this process."""
        return self.code in LOST


class Library:
    """Calls functions of libcuda by name and raises DriverError for whatever is no success."""

    def __init__(self, functions: Mapping[str, Callable[..., int]]) -> None:
        self.functions = functions

    def __call__(self, name: str, *arguments: Any) -> None:
        if name not in self.functions:
            raise WellfedError(f"this driver has no {name}: it is older than CUDA 11.4", hint="nvidia-smi")
        self.check(name, self.functions[name](*arguments))

    def check(self, name: str, code: int) -> None:
        """Raise what a call that was made elsewhere returned."""
        if code != 0:
            raise DriverError(name, code, *self._describe(code))

    def out(self, name: str, kind: Any, *arguments: Any) -> Any:
        """The value that a function writes through its first argument, of a type of ctypes."""
        value = kind()
        self(name, ctypes.byref(value), *arguments)
        return value.value

    def out_last(self, name: str, kind: Any, *arguments: Any) -> Any:
        """The value that a function writes through its last argument."""
        value = kind()
        self(name, *arguments, ctypes.byref(value))
        return value.value

    def _describe(self, code: int) -> tuple[str, str]:
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            known = name in self.functions and self.functions[name](code, ctypes.byref(text)) == 0
            texts.append(text.value.decode() if known and text.value else f"error {code}")
        return texts[0], texts[1]


@cache
def load() -> Library:
    """The library of this machine. Raises WellfedError when there is none."""
    for name in NAMES:
        try:
            return Library(bind(ctypes.CDLL(name)))
        except OSError:
            continue
    raise WellfedError(
        "there is no libcuda.so.1 here: no NVIDIA driver, or a container without it", hint="nvidia-smi"
    )


def bind(library: Any) -> dict[str, Callable[..., int]]:
    """The functions that the library has, with their types set."""
    found = {}
    for name, types in FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is not None:
            function.argtypes, function.restype = types, c_int
            found[name] = function
    return found
