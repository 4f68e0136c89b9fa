"""What a recording says of a device's memory: the saved, serialisable side of a memory snapshot, or of the allocator's
events in a trace. All sizes are bytes."""

from typing import Literal

from wellfed.model.base import Value

OomCause = Literal["fragmentation", "elsewhere", "limit", "full", "unknown"]


class Holder(Value, frozen=True, kw_only=True):
    """Allocations made at one line of code (of a trace: by one operator). `site` is None when none was recorded;
    `before`: they are older than the history. `phase` is backward, optimizer or other, as far as the stack tells."""

    site: str | None = None
    phase: str = "other"
    bytes: int
    count: int
    before: bool = False


class MemoryMoment(Value, frozen=True, kw_only=True):
    """Who held how much at one moment: `holders`, the largest first, and `rest_bytes` sum to `allocated_bytes` exactly.
    Sizes are those that the program asked for. `at_ms` is since the first event of the recording, None when not told;
    `reserved_bytes` None when the recording does not tell."""

    at_ms: float | None = None
    allocated_bytes: int
    reserved_bytes: int | None = None
    holders: tuple[Holder, ...] = ()
    rest_bytes: int = 0


class OutOfMemory(Value, frozen=True, kw_only=True):
    """An out-of-memory error. `room_bytes` were free in `pieces` that the request could have used, the largest of them
    `largest_bytes`; `elsewhere_bytes` in other streams, graphs' pools or the other size class; None when the segments
    of that time are not known. `last`: nothing was allocated afterwards."""

    asked_bytes: int
    device_free_bytes: int
    site: str | None = None
    cause: OomCause = "unknown"
    room_bytes: int | None = None
    largest_bytes: int | None = None
    pieces: int | None = None
    elsewhere_bytes: int | None = None
    last: bool = False
    moment: MemoryMoment | None = None


class MemoryHeld(Value, frozen=True, kw_only=True):
    """One device's memory. Of a snapshot: reserved = allocated + pending + inactive, and inactive = broken + spare,
    unless `faults` say otherwise. `allocated` is in use, rounding included; `pending` freed, but used by a stream;
    `broken` the free part of segments that are partly used, `spare` segments that are wholly free; `private` what
    pools of CUDA graphs or of the user reserve. `events` are the recorded changes, over `window_s`. `refused` says why
    nothing is said of the past. `given_back` segments went to the driver, `taken_again` came from it afterwards. Of a
    trace only `peak`, `reserved_bytes` (the most there was) and `events` are known; the rest is None."""

    source: str
    kind: Literal["snapshot", "events"] = "snapshot"
    rank: int | None = None
    device: int | None = None
    reserved_bytes: int | None = None
    allocated_bytes: int | None = None
    pending_bytes: int | None = None
    inactive_bytes: int | None = None
    broken_bytes: int | None = None
    spare_bytes: int | None = None
    private_bytes: int | None = None
    rounding_bytes: int | None = None
    largest_free_bytes: int | None = None
    segments: int | None = None
    expandable: bool | None = None
    events: int = 0
    window_s: float | None = None
    stacks: bool = False
    peak: MemoryMoment | None = None
    now: MemoryMoment | None = None
    ooms: tuple[OutOfMemory, ...] = ()
    oom_count: int = 0
    given_back: int | None = None
    taken_again: int | None = None
    taken_again_bytes: int | None = None
    refused: str | None = None
    faults: tuple[str, ...] = ()
