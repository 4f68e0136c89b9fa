"""What PyTorch's caching allocator holds of a device's memory, and the events that led there: the columns of a
memory snapshot. Not part of a saved Case: what the snapshot *says* is in verdicts."""

from enum import IntEnum
from typing import Any

from wellfed.model.base import Value
from wellfed.model.timeline import I32, I64, U8
from wellfed.model.trace import TraceWarning


class Action(IntEnum):
    """What the allocator did. A free is requested by the program and completed when the streams that use the block
    are past it; segments are what the driver gave (map and unmap: parts of expandable ones)."""

    OTHER = 0
    ALLOC = 1
    FREE_REQUESTED = 2
    FREE_COMPLETED = 3
    SEGMENT_ALLOC = 4
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6
    SEGMENT_UNMAP = 7
    OOM = 8
    SNAPSHOT = 9


class BlockState(IntEnum):
    """A block's state: in use, freed by the program but still used by a stream, free, or as no version writes it."""

    ALLOCATED = 0
    PENDING = 1
    INACTIVE = 2
    OTHER = 3


class Segments(Value, frozen=True, kw_only=True):
    """Memory from the driver, by address. `large` is 1 for the pool of requests above 1 MiB; `private` is 1 for
    the pool of a CUDA graph or of the user. `allocated` and `active` are the sums the snapshot itself gives (-1:
    none). `stack` indexes the snapshot's stacks, -1 when none was recorded."""

    address: I64
    size: I64
    allocated: I64
    active: I64
    stream: I64
    large: U8
    private: U8
    expandable: U8
    stack: I32


class Blocks(Value, frozen=True, kw_only=True):
    """Pieces of segments, in order. `requested` is what the program asked for (-1: not told); the rest of `size`
    is rounding. `segment` indexes Segments."""

    address: I64
    size: I64
    requested: I64
    state: U8
    segment: I32
    stack: I32


class Events(Value, frozen=True, kw_only=True):
    """The allocator's history, in order. `size` is what was asked for (of an out-of-memory error: rounded),
    `address` is, for an out-of-memory error, the bytes the device had free. `time_us` is us since 1970, -1 when
    not told."""

    action: U8
    address: I64
    size: I64
    stream: I64
    time_us: I64
    stack: I32


class DeviceMemory(Value, frozen=True, kw_only=True):
    """One device. `events` is empty when no history was recorded."""

    device: int
    segments: Segments
    blocks: Blocks
    events: Events


class MemorySnapshot(Value, frozen=True, kw_only=True):
    """One file. `stacks` are tuples of `function at file:line`, the innermost first. `settings` are the allocator's
    own, as written. `rank` is None when the file's name does not tell it."""

    source: str
    rank: int | None = None
    devices: tuple[DeviceMemory, ...] = ()
    stacks: tuple[tuple[str, ...], ...] = ()
    settings: dict[str, Any] = {}
    warnings: tuple[TraceWarning, ...] = ()
