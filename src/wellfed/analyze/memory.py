"""A memory snapshot studied: how much is reserved and allocated, when it peaked and who held it then, how the free
part lies in pieces, what an out-of-memory error met, and whether memory goes back to the driver and forth."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wellfed.analyze.memory_replay import History, replay
from wellfed.analyze.memory_room import Room, room_at
from wellfed.analyze.stacks import outside_torch
from wellfed.model.held import Holder, OomCause
from wellfed.model.memory import Action, BlockState, DeviceMemory, MemorySnapshot
from wellfed.model.timeline import I64, MemoryEvents

REPLAY_LIMIT = 0.02
"""Share of the peak that history and snapshot may disagree on (other threads allocate while it is dumped)."""
MAX_OOMS = 8
TOP = 8
_OPERATOR = re.compile(r"\bat::_ops::(\w+)::(?:call|redispatch)\b")


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The state after one event. `event` is -1 before the first; `time_us` None when not told."""

    event: int
    time_us: int | None
    allocated_bytes: int
    reserved_bytes: int | None
    holders: tuple[Holder, ...]


@dataclass(frozen=True, kw_only=True)
class Oom:
    """An out-of-memory error: `asked_bytes` by `site`, `device_free_bytes` free on the device then. `room` is None
    when the segments of that time are not known. `last` is True when nothing was allocated afterwards."""

    moment: Moment
    asked_bytes: int
    device_free_bytes: int
    site: str | None
    room: Room | None
    cause: OomCause
    last: bool


@dataclass(frozen=True, kw_only=True)
class Churn:
    """Segments taken from the driver after some had been given back: calls and bytes, and calls (taking and giving)
    a second over the history; None without times."""

    taken_again: int
    taken_again_bytes: int
    given: int
    calls_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class MemoryStudy:
    """One device. Sums are of the snapshot, in bytes: `allocated` in use (rounding included), `pending` freed but
    used by a stream, `inactive` free; `broken` is the free part of segments that are partly used, `spare` that of
    segments that are wholly free, `private` what pools of CUDA graphs or of the user reserve. `rounding` is None
    when the snapshot does not tell what was asked for. `first_us` is the time of the first event, `stacks` whether any
    was recorded. `faults` are laws that the file breaks."""

    source: str
    rank: int | None
    device: int
    reserved: int
    allocated: int
    pending: int
    inactive: int
    broken: int
    spare: int
    private: int
    rounding: int | None
    largest_free: int
    segments: int
    expandable: bool
    events: int
    window_s: float | None
    first_us: int | None
    stacks: bool
    faults: tuple[str, ...]
    refused: str | None
    peak: Moment | None
    now: Moment | None
    ooms: tuple[Oom, ...]
    oom_count: int
    churn: Churn | None


def study_memory(snapshot: MemorySnapshot) -> tuple[MemoryStudy, ...]:
    """A study of every device of the snapshot."""
    return tuple(_device(snapshot, memory) for memory in snapshot.devices)


def _device(snapshot: MemorySnapshot, memory: DeviceMemory) -> MemoryStudy:
    segments, blocks = memory.segments, memory.blocks
    state, size = blocks.state, blocks.size
    inactive = state == BlockState.INACTIVE
    used = np.bincount(blocks.segment[~inactive], minlength=len(segments.size)) > 0
    in_used = used[blocks.segment] if len(size) else np.zeros(0, bool)
    told = (state == BlockState.ALLOCATED) & (blocks.requested >= 0)
    events = len(memory.events.action)
    history = replay(memory) if events else None
    refused = _refusal(history, memory)
    trusted = history if refused is None else None
    seen = memory.events.time_us[memory.events.time_us >= 0]
    return MemoryStudy(
        source=snapshot.source,
        rank=snapshot.rank,
        device=memory.device,
        reserved=int(segments.size.sum()),
        allocated=int(size[state == BlockState.ALLOCATED].sum()),
        pending=int(size[state == BlockState.PENDING].sum()),
        inactive=int(size[inactive].sum()),
        broken=int(size[inactive & in_used].sum()),
        spare=int(segments.size[~used].sum()),
        private=int(segments.size[segments.private == 1].sum()),
        rounding=int((size - blocks.requested)[told].sum()) if told.any() else None,
        largest_free=int(size[inactive].max(initial=0)),
        segments=len(segments.size),
        expandable=bool(segments.expandable.any()),
        events=events,
        window_s=float(seen.max() - seen.min()) / 1e6 if len(seen) > 1 else None,
        first_us=int(seen.min()) if len(seen) else None,
        stacks=bool((memory.events.stack >= 0).any() or (blocks.stack >= 0).any()),
        faults=tuple(_faults(memory, history)),
        refused=refused,
        peak=_moment(snapshot, memory, trusted, int(np.argmax(trusted.allocated)) - 1) if trusted else None,
        now=_moment(snapshot, memory, trusted, events - 1) if trusted else _standing(snapshot, memory),
        ooms=_ooms(snapshot, memory, trusted),
        oom_count=int((memory.events.action == Action.OOM).sum()),
        churn=_churn(memory) if events else None,
    )


def _refusal(history: History | None, memory: DeviceMemory) -> str | None:
    """Why the history says nothing of the past; None when it does."""
    if history is None:
        return "no history was recorded"
    if not len(memory.segments.size):
        return "the snapshot holds no segments, so that what was there before the history is not known"
    peak = int(history.allocated.max(initial=0))
    if history.wrong_bytes > REPLAY_LIMIT * max(peak, 1):
        return f"the history ends {history.wrong_bytes / max(peak, 1):.0%} of the peak off what the snapshot holds"
    return None


def _faults(memory: DeviceMemory, history: History | None) -> list[str]:
    segments, blocks = memory.segments, memory.blocks
    sums = np.bincount(blocks.segment, weights=blocks.size, minlength=len(segments.size))
    faults = []
    if len(blocks.size) and (odd := int((sums.astype(np.int64) != segments.size).sum())):
        faults.append(f"the blocks of {odd} segments do not add up to the segment")
    mine = blocks.state == BlockState.ALLOCATED
    allocated = np.bincount(blocks.segment[mine], weights=blocks.size[mine], minlength=len(segments.size))
    told = segments.allocated >= 0
    if len(blocks.size) and (
        odd := int((allocated.astype(np.int64)[told] != segments.allocated[told]).sum())
    ):
        faults.append(f"the allocated blocks of {odd} segments do not add up to what the segment says")
    if history is not None and history.reserved_known:
        above = int((history.allocated > history.reserved).sum())
        if above:
            faults.append(f"more is allocated than reserved after {above} events")
    return faults


# -- moments and holders ----------------------------------------------------------------------------------


def _moment(snapshot: MemorySnapshot, memory: DeviceMemory, history: History, event: int) -> Moment:
    held = history.held(event)
    time = int(memory.events.time_us[max(event, 0)]) if len(memory.events.time_us) else -1
    return Moment(
        event=event,
        time_us=time if time >= 0 else None,
        allocated_bytes=int(history.allocated[event + 1]),
        reserved_bytes=int(history.reserved[event + 1]) if history.reserved_known else None,
        holders=_holders(snapshot, history.stack[held], history.size[held], history.start[held]),
    )


def _standing(snapshot: MemorySnapshot, memory: DeviceMemory) -> Moment | None:
    """The snapshot's own state, without a history."""
    blocks = memory.blocks
    if not len(blocks.size):
        return None
    mine = blocks.state == BlockState.ALLOCATED
    size = np.where(blocks.requested >= 0, blocks.requested, blocks.size)[mine]
    return Moment(
        event=-1,
        time_us=None,
        allocated_bytes=int(size.sum()),
        reserved_bytes=int(memory.segments.size.sum()),
        holders=_holders(snapshot, blocks.stack[mine], size, np.zeros(len(size), np.int64)),
    )


def _holders(
    snapshot: MemorySnapshot, stack: "np.ndarray[tuple[int], np.dtype[np.int32]]", size: I64, start: I64
) -> tuple[Holder, ...]:
    """By line of the user's code and phase, the largest first; all of them."""
    sums: dict[tuple[str | None, str, bool], list[int]] = {}
    before = (stack < 0) & (start < 0)
    kinds, at = np.unique(np.where(before, -2, stack), return_inverse=True)
    weights = np.bincount(at, weights=size, minlength=len(kinds)).astype(np.int64)
    counts = np.bincount(at, minlength=len(kinds))
    for kind, weight, count in zip(kinds.tolist(), weights.tolist(), counts.tolist(), strict=True):
        frames = snapshot.stacks[kind] if kind >= 0 else ()
        total = sums.setdefault((site_of(frames), phase_of(frames), kind == -2), [0, 0])
        total[0] += weight
        total[1] += count
    rows = [
        Holder(site=site, phase=phase, bytes=total, count=count, before=was)
        for (site, phase, was), (total, count) in sums.items()
    ]
    return tuple(sorted(rows, key=lambda h: (-h.bytes, h.site or "")))


def site_of(frames: Sequence[str]) -> str | None:
    """Whose line asked for the memory. A thread of the autograd engine has no line of Python: then the operator that
    asked, and whether it is cuBLAS's workspace."""
    if not frames or any(".py:" in frame for frame in frames):
        return outside_torch(frames)
    operator = next((found[1] for f in frames if (found := _OPERATOR.search(f))), None)
    if any("setWorkspaceForHandle" in frame for frame in frames):
        return f"cuBLAS workspace of aten::{operator}" if operator else "cuBLAS workspace"
    return f"aten::{operator}" if operator else outside_torch(frames)


def phase_of(frames: Sequence[str]) -> str:
    """What the program was doing, as far as the stack tells. An autograd engine's own thread has no Python stack
    above it, so that `backward` is a lower bound."""
    for frame in frames:
        if "/torch/optim/" in frame or "/deepspeed/ops/adam/" in frame:
            return "optimizer"
        if "/torch/autograd/" in frame or "Engine::evaluate_function" in frame or "/_tensor.py:" in frame:
            return "backward"
    return "other"


# -- out of memory ----------------------------------------------------------------------------------------


def _ooms(snapshot: MemorySnapshot, memory: DeviceMemory, history: History | None) -> tuple[Oom, ...]:
    """The last of them, in order."""
    events = memory.events
    at = np.flatnonzero(events.action == Action.OOM)[-MAX_OOMS:].tolist()
    allocations = np.flatnonzero(events.action == Action.ALLOC)
    final = int(allocations[-1]) if len(allocations) else -1
    found = []
    for index in at:
        asked, free = int(events.size[index]), int(events.address[index])
        room = None
        if history is not None and history.reserved_known:
            room = room_at(memory, history, index, stream=int(events.stream[index]), asked=asked)
        stack = int(events.stack[index])
        time = int(events.time_us[index])
        nothing = Moment(
            event=index,
            time_us=time if time >= 0 else None,
            allocated_bytes=0,
            reserved_bytes=None,
            holders=(),
        )
        found.append(
            Oom(
                moment=_moment(snapshot, memory, history, index) if history is not None else nothing,
                asked_bytes=asked,
                device_free_bytes=free,
                site=site_of(snapshot.stacks[stack]) if stack >= 0 else None,
                room=room,
                cause=_cause(asked, free, room),
                last=final < index,
            )
        )
    return tuple(found)


def _cause(asked: int, device_free: int, room: Room | None) -> OomCause:
    """Why the request failed. The device had room itself: a limit was set. The pieces that the request could have
    used would do together: fragmentation. Those of other streams and pools would: elsewhere."""
    if device_free >= asked:
        return "limit"
    if room is None:
        return "unknown"
    if room.usable_bytes + device_free >= asked:
        return "fragmentation"
    if room.usable_bytes + room.elsewhere_bytes + device_free >= asked:
        return "elsewhere"
    return "full"


# -- churn ------------------------------------------------------------------------------------------------


def _churn(memory: DeviceMemory) -> Churn:
    events = memory.events
    takes = np.isin(events.action, (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP))
    gives = np.isin(events.action, (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP))
    first = int(np.argmax(gives)) if gives.any() else len(gives)
    again = takes & (np.arange(len(takes)) > first)
    seen = events.time_us[events.time_us >= 0]
    span_s = float(seen.max() - seen.min()) / 1e6 if len(seen) > 1 else 0.0
    calls = int(gives.sum()) + int(again.sum())
    return Churn(
        taken_again=int(again.sum()),
        taken_again_bytes=int(events.size[again].sum()),
        given=int(gives.sum()),
        calls_per_s=calls / span_s if span_s > 0 else None,
    )


# -- the allocator's events in a trace --------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """What the `[memory]` events of a trace say of one device: bytes at the peak and when (ns of the timeline), the
    most reserved, how often the reserve grew or shrank, events that say more is allocated than reserved."""

    events: int
    peak_bytes: int
    peak_ns: int
    reserved_bytes: int
    reserve_changes: int
    above: int


def memory_use(events: MemoryEvents | None, device: int) -> MemoryUse | None:
    """Of one device; None when its allocator was not recorded, or told no totals."""
    if events is None:
        return None
    mine = (events.device == device) & (events.allocated >= 0)
    if not mine.any():
        return None
    allocated, reserved, ts = events.allocated[mine], events.reserved[mine], events.ts[mine]
    at = int(np.argmax(allocated))
    told = reserved[reserved >= 0]
    return MemoryUse(
        events=int(mine.sum()),
        peak_bytes=int(allocated[at]),
        peak_ns=int(ts[at]),
        reserved_bytes=int(told.max(initial=0)),
        reserve_changes=int((np.diff(told) != 0).sum()),
        above=int(((allocated > reserved) & (reserved >= 0)).sum()),
    )


def allocated_at(events: MemoryEvents, device: int, instants_ns: Sequence[int]) -> tuple[int, ...]:
    """Bytes allocated on the device at each instant (ns of the timeline); the first event's value before it."""
    mine = (events.device == device) & (events.allocated >= 0)
    ts, allocated = events.ts[mine], events.allocated[mine]
    if not len(ts):
        return ()
    at = np.searchsorted(ts, np.asarray(instants_ns, np.int64), side="right") - 1
    return tuple(int(n) for n in allocated[np.maximum(at, 0)])
