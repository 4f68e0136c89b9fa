"""One rank's events as columns. Not part of a saved Case: what a trace *says* is (`wellfed.model.trace`)."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wellfed.model.base import Value
from wellfed.model.trace import TraceWarning

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
I16 = npt.NDArray[np.int16]
F64 = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer[Any]]
U8 = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


class Cat(IntEnum):
    """What an event is, whatever its writer called it. The GPU's own work is KERNEL, MEMCPY, MEMSET."""

    OTHER = 0
    OP = 1
    ANNOTATION = 2
    RUNTIME = 3
    DRIVER = 4
    PYTHON = 5
    OVERHEAD = 6
    KERNEL = 7
    MEMCPY = 8
    MEMSET = 9
    GPU_ANNOTATION = 10
    SYNC = 11


class Shape(NamedTuple):
    """The arguments of an operator, as the JSON text its writer recorded (`[[64, 4096], [4096, 4096]]`): parsed
    when needed, equal ones kept once. "" where absent. `concrete` holds the scalar arguments."""

    dims: str = ""
    types: str = ""
    concrete: str = ""
    strides: str = ""


class CommArgs(NamedTuple):
    """What PyTorch wrote about a collective, on `record_param_comms` or on the kernel itself. Counts and numbers
    are -1, names "" when not told; `source` and `target` are the ranks of a send or receive."""

    name: str = ""
    group_name: str = ""
    group_ranks: str = ""
    group_size: int = -1
    seq: int = -1
    in_elements: int = -1
    out_elements: int = -1
    dtype: str = ""
    source: int = -1
    target: int = -1


class MemoryEvents(Value, frozen=True, kw_only=True):
    """What PyTorch's allocator handed out and took back, one entry an instant, by time (ns since `base_ns` of the
    timeline). `device` is -1 for the host. `bytes` is negative for a release; `allocated` and `reserved` are the
    device's totals after it, in bytes; `address` and they are -1 when not told."""

    ts: I64
    device: I16
    address: I64
    bytes: I64
    allocated: I64
    reserved: I64


class Window(Value, frozen=True, kw_only=True):
    """What part of a recording a timeline was cut to, ns of the timeline. Work launched before `done_before_ns` is
    done in it. `spans` is, for each device, the part of the window between its first and last event of the file."""

    start_ns: int
    end_ns: int
    done_before_ns: int
    spans: dict[int, tuple[int, int]]


class Timeline(Value, frozen=True, kw_only=True):
    """All complete events of one file, sorted by start. Times are int64 ns since `base_ns` (an absolute
    Python int, so that nothing is rounded). `name` indexes `names`, `thread` indexes `threads` (process and
    thread as the file wrote them). `corr` and `ext` are -1 when absent; `stream` is -1 off the GPU; `device`
    is -1 off the GPU; `size` is bytes moved, -1 when unknown. `wait_corr` is, for a stream-wait, the
    correlation of the event record waited for (-1 otherwise). `shape` indexes `shapes`, `comm` indexes `comms`
    (-1: not told). `gpus` names the devices that did work, `options` holds what the writer said of itself
    (`record_shapes`, versions...). `memory` is None when the allocator was not recorded, `window` None for the
    whole of a recording."""

    source: str
    kind: str
    rank: int | None = None
    world: int | None = None
    base_ns: int = 0
    ts: I64
    dur: I64
    cat: U8
    name: I32
    thread: I32
    corr: I64
    ext: I64
    stream: I32
    device: I16
    size: I64
    wait_corr: I64
    shape: I32
    comm: I32
    names: tuple[str, ...]
    threads: tuple[tuple[str, str], ...]
    shapes: tuple[Shape, ...] = ()
    comms: tuple[CommArgs, ...] = ()
    gpus: dict[int, str] = {}
    memory: MemoryEvents | None = None
    options: dict[str, Any] = {}
    warnings: tuple[TraceWarning, ...] = ()
    window: Window | None = None

    @property
    def end(self) -> I64:
        return self.ts + self.dur

    @property
    def is_gpu(self) -> Mask:
        """Kernels, copies and sets: by category, never by a stream number."""
        return np.asarray((self.cat >= Cat.KERNEL) & (self.cat <= Cat.MEMSET))

    def named(self, test: Callable[[str], object]) -> Mask:
        """Whether `test` holds, for each of `names`: indexed by `name`, it says so of the events. One entry (False)
        where there is no name."""
        return np.array([bool(test(name)) for name in self.names] or [False])

    def __len__(self) -> int:
        return len(self.ts)
