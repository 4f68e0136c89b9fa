"""Why the device was idle: every gap charged to causes, mutually exclusive, summing exactly to idle.

A gap [a, b) is ended by GPU event X, which host call L = [l0, l1) launched. Up to l0 the host was doing
something else: that part is charged by what covers it, in a fixed order. [l0, l1) is the launch call, the rest
the way to the device. Where L came before the gap, X waited for other work or for its turn.
"""

import re
from typing import NamedTuple

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.cpu_comm import waits_for_cpu
from wellfed.analyze.intervals import (
    EMPTY,
    Intervals,
    clip,
    complement,
    covered,
    intersect,
    overlap,
    subtract,
    union,
)
from wellfed.analyze.launches import Launches
from wellfed.analyze.saves import find_saves
from wellfed.analyze.silence import SILENCE_NS, planned, silences
from wellfed.model.timeline import I64, Cat, Mask, Timeline

CAUSES = (
    "profiler-overhead",
    "data-wait",
    "checkpoint-stall",
    "host-stall",
    "allocator-churn",
    "compile-stall",
    "host-sync",
    "pageable-copy",
    "launch-bound",
    "launch-call",
    "launch-latency",
    "dependency-wait",
    "queue-wait",
    "orphan",
    "unattributed",
)
"""In the order of charging."""

HAND_OVER_NS = 1_000_000
"""Within this long after another thread has a batch, the thread that waited for it goes on."""
QUEUED_GAP_NS = 20_000
"""A gap this short before a queued kernel is the way from one kernel to the next, not a wait."""

_DATA = re.compile(
    r"enumerate\(DataLoader\)#.*__next__|torch/utils/data/dataloader\.py.*: (?:__next__|_next_data|_get_data|_try_get_data)"
    r"|^(?:\[pl\]\[profile\])?.*(?:train_dataloader_next|\[_TrainingEpochLoop\]\.train_dataloader_next)|^ffcv\b.*next|dali.*(?:run|next)$",
)
_CHECKPOINT = re.compile(
    r"torch/serialization\.py.*: (?:save|_save)\b|torch/distributed/checkpoint/.*: (?:save|_save)|^(?:torch\.save|checkpoint_save|save_checkpoint)\b"
    r"|safetensors.*save"
)
_ALLOC = re.compile(
    r"^(?:cuda|hip)(?:Malloc|Free|HostAlloc|MallocHost|FreeHost|HostRegister|HostUnregister|HostMalloc|MallocManaged)"
    r"|^cu(?:MemAlloc|MemFree|MemCreate|MemMap|MemUnmap|MemRelease|MemAddressReserve|MemSetAccess|MemHostAlloc)"
)
_NOT_ALLOC = re.compile(r"Async|FromPool")
_RELEASE = re.compile(
    r"^(?:cudaFree(?:Host)?|hipFree|hipHostFree|cuMemFree(?:_v2)?|cuMemUnmap|cuMemRelease)$"
)
"""Releases of memory wait for the device to be done with it."""
_COMPILE = re.compile(
    r"^(?:cuModuleLoad|cuLibraryLoad|cuModuleGetFunction|cuLibraryGetKernel|cuLink|cudaLibraryLoad|hipModuleLoad|nvrtc|hiprtc)"
    r"|\(dynamo_timed\)$|^(?:jit_)?(?:backend_compile|XlaCompile|XlaModule.*compile)"
    r"|torch/_inductor/(?:compile_fx|codecache|async_compile).*|torch/_dynamo/convert_frame\.py.*|triton/compiler/compiler\.py.*: compile"
    r"|^(?:Inductor|_compile\.compile_inner|compile_fx|entire_frame_compile|compile_attempt_\d+|bytecode_tracing|build_guards|dynamo$)"
)
_LOADING = re.compile(r"(?i)lazy function loading|module loading")
"""What the recorder calls overhead, and is the driver's loading of code."""
_QUEUE_FULL = re.compile(r"(?i)command buffer full")
"""Called overhead too: the host waits for room in a queue that the device has not emptied. Nothing of the profiler's."""
SYNC_CALL = re.compile(
    r"^(?:cuda|hip)(?:StreamSynchronize|DeviceSynchronize|EventSynchronize|MemcpyWithStream|Memcpy|MemcpyDtoH|Memset)$"
    r"|^cu(?:StreamSynchronize|CtxSynchronize|EventSynchronize)$|^hipMemcpy(?:WithStream)?$|^cu[dD]aMemcpy$"
)
PAGEABLE = re.compile(r"(?i)pageable")
"""Copies from and to pageable memory. Those to the host are how a result is fetched: a wait, whatever the
memory; pinning the source cures only those to the device."""
TO_HOST = re.compile(r"DtoH|-> (?:Pageable|Pinned|Host)\b|(?i:device_?to_?host)")


class Covers:
    """What the launching threads were doing, as disjoint interval sets by cause, ready to be charged."""

    def __init__(self, timeline: Timeline, work: Work, launches: Launches) -> None:
        self._waits: tuple[I64, I64] | None = None
        ranges: dict[str, Intervals] = {}
        host = launches.host
        call = host & ((timeline.cat == Cat.RUNTIME) | (timeline.cat == Cat.DRIVER))
        # before PyTorch 1.11 annotations were written as operators
        note = host & (
            (timeline.cat == Cat.ANNOTATION) | (timeline.cat == Cat.PYTHON) | (timeline.cat == Cat.OP)
        )
        overhead = timeline.cat == Cat.OVERHEAD
        loading = overhead & _named(timeline, _LOADING)
        ranges["profiler-overhead"] = _of(timeline, overhead & ~loading & ~_named(timeline, _QUEUE_FULL))
        compiling = _of(timeline, (call | note) & _named(timeline, _COMPILE) | loading)
        # a silence that says what it is needs no other name
        silent = subtract(silences(timeline, host & ~overhead), compiling)
        planning = planned(timeline, work, launches, silent)
        silent, compiling = subtract(silent, planning), _both(compiling, planning)
        loads = _named(timeline, _DATA)
        ranges["data-wait"] = _both(
            _of(timeline, note & loads), _fetched_elsewhere(timeline, loads & ~host, silent)
        )
        self.to_host_name = timeline.named(TO_HOST.search)
        self.pageable_name = timeline.named(PAGEABLE.search)
        """By name: whether a copy so called goes to the host, and whether one from or to pageable memory."""
        self.saves = find_saves(timeline, work, launches, self.to_host_name)
        ranges["checkpoint-stall"] = _both(
            _of(timeline, note & _named(timeline, _CHECKPOINT)), self.saves.stretches
        )
        ranges["dependency-wait"] = waits_for_cpu(timeline, launches)
        ranges["host-stall"] = silent
        ranges["allocator-churn"] = _of(
            timeline, call & _named(timeline, _ALLOC) & ~_named(timeline, _NOT_ALLOC)
        )
        ranges["compile-stall"] = compiling
        self.sync = call & _named(timeline, SYNC_CALL)
        self.release = call & _named(timeline, _RELEASE)
        self.staged_name = self.pageable_name & ~self.to_host_name
        """By name: whether an event so called is a copy from pageable memory to the device."""
        ranges["host-sync"] = EMPTY  # charged with credit, see `_charge_syncs`
        ranges["pageable-copy"] = _staging_calls(timeline, work, launches, self.staged_name)
        taken = EMPTY
        self.disjoint: dict[str, Intervals] = {}
        for cause, found in ranges.items():
            self.disjoint[cause] = subtract(found, taken)
            if cause == "host-stall":  # the few us of Python around a wait are no stall of their own
                left = self.disjoint[cause]
                long = left.end - left.start >= SILENCE_NS
                self.disjoint[cause] = Intervals(left.start[long], left.end[long])
            taken = _both(taken, found)
        if (
            timeline.window
        ):  # calls before it are there for what they launched only: what lies between is not known
            low, high = timeline.window.start_ns, timeline.window.end_ns
            self.disjoint = {cause: clip(found, low, high) for cause, found in self.disjoint.items()}

    def saving(self, timeline: Timeline, rows: I64) -> Mask:
        """Which calls lie in a save."""
        found = self.saves.stretches
        inside = covered(found, timeline.end[rows]) - covered(found, timeline.ts[rows])
        return np.asarray(inside >= np.maximum(timeline.dur[rows], 1))

    def waits(self, timeline: Timeline, work: Work) -> tuple[I64, I64]:
        """When each wait of the host for a busy device ended, in order, and for how long it was. A wait inside
        a longer one (a copy that synchronises) is counted once."""
        if self._waits is None:
            rows = np.flatnonzero(self.sync)
            rows = rows[~self.saving(timeline, rows)]
            s0, s1 = timeline.ts[rows], timeline.ts[rows] + timeline.dur[rows]
            waited = overlap(work.busy(), s0, s1)
            outer = np.maximum.accumulate(s1)
            inner = np.concatenate([[False], s1[1:] <= outer[:-1]])[: len(s1)]
            order = np.flatnonzero(~inner & (waited > 0))
            self._waits = s1[order], waited[order]
        return self._waits


def _both(a: Intervals, b: Intervals) -> Intervals:
    return union(np.concatenate([a.start, b.start]), np.concatenate([a.end, b.end]))


def _fetched_elsewhere(timeline: Timeline, loads: Mask, silent: Intervals) -> Intervals:
    """The part of silences that another thread spent in the loader, and that ended when it had the batch. A
    loader that works ahead in its thread keeps nobody waiting."""
    loads &= (timeline.cat == Cat.ANNOTATION) | (timeline.cat == Cat.PYTHON) | (timeline.cat == Cat.OP)
    done = np.sort(timeline.end[loads])
    if not len(done) or not len(silent.start):
        return EMPTY
    last = done[np.maximum(np.searchsorted(done, silent.end, side="right") - 1, 0)]
    waited = (last > silent.start) & (last <= silent.end) & (silent.end - last <= HAND_OVER_NS)
    return intersect(Intervals(silent.start[waited], silent.end[waited]), _of(timeline, loads))


def _named(timeline: Timeline, pattern: re.Pattern[str]) -> Mask:
    return np.asarray(timeline.named(pattern.search)[timeline.name])


def _of(timeline: Timeline, mask: Mask) -> Intervals:
    start = timeline.ts[mask]
    return union(start, start + timeline.dur[mask])


def _staging_calls(timeline: Timeline, work: Work, launches: Launches, staged_name: Mask) -> Intervals:
    """Host calls that staged a copy from pageable memory."""
    rows = launches.row[work.copy & staged_name[work.name] & (launches.row >= 0)]
    return union(timeline.ts[rows], timeline.end[rows])


def charge(
    timeline: Timeline, work: Work, launches: Launches, covers: Covers, windows: list[tuple[int, int]]
) -> list[dict[str, int]]:
    """Idle by cause in each window; each dict sums exactly to the window's idle."""
    return [_charge_window(timeline, work, launches, covers, start, end) for start, end in windows]


class _Gaps(NamedTuple):
    """The idle gaps [a, b) of a window, in order, each cut in three: up to `host_end` the host was not yet
    launching, up to `call_end` it was in the launch call, the rest is the way to the device or a wait. `synced`
    is what of the first part is owed to waits of the host. The masks say what the call was and what the rest is;
    a `trailing` gap is ended by nothing."""

    a: I64
    b: I64
    host_end: I64
    call_end: I64
    synced: I64
    pageable: Mask
    dependency: Mask
    queue: Mask
    latency: Mask
    orphan: Mask
    trailing: Mask

    @property
    def dispatch(self) -> Intervals:
        return _pieces(self.a, self.host_end)

    def call(self, mask: Mask) -> Intervals:
        return _pieces(self.host_end[mask], self.call_end[mask])

    def rest(self, mask: Mask) -> Intervals:
        return _pieces(self.call_end[mask], self.b[mask])


def _pieces(start: I64, end: I64) -> Intervals:
    keep = end > start
    return Intervals(start[keep], end[keep])


def _gaps_in(
    timeline: Timeline, work: Work, launches: Launches, covers: Covers, start: int, end: int
) -> _Gaps | None:
    """None when the device was busy all the time."""
    gaps = complement(work.busy(), start, end)
    if not len(gaps.start):
        return None
    a, b = gaps.start, gaps.end
    x = np.searchsorted(work.ts, b, side="left")  # the event that ends the gap: the first to start at its end
    x = np.where(x < len(work.ts), x, len(work.ts) - 1)
    ended = work.ts[x] >= b
    orphan = (launches.row[x] < 0) | ~ended
    l0 = np.where(orphan, a, launches.start[x])
    l1 = np.where(orphan, a, launches.end[x])
    late = ~orphan & (launches.start[x] > a) & launches.first[x]
    host_end = np.where(late, np.minimum(l0, b), a)
    left = host_end - a
    for cover in covers.disjoint.values():
        left = left - overlap(cover, a, host_end)
    call_end = np.where(~orphan & launches.first[x], np.clip(l1, host_end, b), host_end)
    early = ~orphan & (l1 <= a) | (~orphan & ~launches.first[x])
    waits = early & (b - call_end > QUEUED_GAP_NS)
    other = waits & _other_stream_ended(timeline, work, x, a)
    return _Gaps(
        a=a,
        b=b,
        host_end=host_end,
        call_end=call_end,
        synced=_charge_syncs(timeline, work, launches, covers, a, host_end, left),
        pageable=covers.staged_name[work.name[x]] & ~orphan,
        dependency=other,
        queue=waits & ~other,
        latency=~orphan & ~waits,
        orphan=orphan & ended,
        trailing=~ended,
    )


def _charge_window(
    timeline: Timeline, work: Work, launches: Launches, covers: Covers, start: int, end: int
) -> dict[str, int]:
    totals = dict.fromkeys(CAUSES, 0)
    gaps = _gaps_in(timeline, work, launches, covers, start, end)
    if gaps is None:
        return totals
    left = gaps.host_end - gaps.a
    for cause, cover in covers.disjoint.items():
        part = overlap(cover, gaps.a, gaps.host_end)
        totals[cause] += int(part.sum())
        left = left - part
    totals["host-sync"] += int(gaps.synced.sum())
    totals["launch-bound"] += int((left - gaps.synced).sum())
    totals["pageable-copy"] += gaps.call(gaps.pageable).total
    totals["launch-call"] += gaps.call(~gaps.pageable).total
    for cause, mask in _rests(gaps):
        totals[cause] += gaps.rest(mask).total
    tail = gaps.rest(gaps.trailing)  # after the last event of the file nothing ends the gap
    remaining = tail.total
    if remaining:
        for cause, cover in covers.disjoint.items():
            spent = int(overlap(cover, tail.start, tail.end).sum())
            totals[cause] += spent
            remaining -= spent
        totals["unattributed"] += remaining
    return totals


def _rests(gaps: _Gaps) -> tuple[tuple[str, Mask], ...]:
    return (
        ("launch-latency", gaps.latency),
        ("dependency-wait", gaps.dependency),
        ("queue-wait", gaps.queue),
        ("orphan", gaps.orphan),
    )


def idle_intervals(
    timeline: Timeline, work: Work, launches: Launches, covers: Covers, start: int, end: int
) -> dict[str, Intervals]:
    """The idle of the window [start, end) as intervals by cause: mutually exclusive, together all of it, and
    each cause's total is what `charge` says. What a wait of the host is charged with is the first of the
    dispatch that follows it: that much the host could have been ahead."""
    found: dict[str, list[Intervals]] = {cause: [] for cause in CAUSES}
    gaps = _gaps_in(timeline, work, launches, covers, start, end)
    if gaps is None:
        return dict.fromkeys(CAUSES, EMPTY)
    dispatch, tail = gaps.dispatch, gaps.rest(gaps.trailing)
    for cause, cover in covers.disjoint.items():
        near = clip(cover, start, end)
        found[cause] += [intersect(near, dispatch), intersect(near, tail)]
        dispatch, tail = subtract(dispatch, near), subtract(tail, near)
    cut = dispatch.start + _synced_of(gaps, dispatch)
    found["host-sync"].append(_pieces(dispatch.start, cut))
    found["launch-bound"].append(_pieces(cut, dispatch.end))
    found["pageable-copy"].append(gaps.call(gaps.pageable))
    found["launch-call"].append(gaps.call(~gaps.pageable))
    for cause, mask in _rests(gaps):
        found[cause].append(gaps.rest(mask))
    found["unattributed"].append(tail)
    return {
        cause: union(np.concatenate([p.start for p in parts]), np.concatenate([p.end for p in parts]))
        if parts
        else EMPTY
        for cause, parts in found.items()
    }


def _synced_of(gaps: _Gaps, dispatch: Intervals) -> I64:
    """How much of the start of each piece of dispatch is charged to a wait: a gap's share is used up piece by
    piece."""
    if not len(dispatch.start):
        return np.zeros(0, np.int64)
    gap = np.searchsorted(gaps.a, dispatch.start, side="right") - 1
    before = covered(dispatch, dispatch.start) - covered(dispatch, gaps.a[gap])
    return np.clip(gaps.synced[gap] - before, 0, dispatch.end - dispatch.start)


def _other_stream_ended(timeline: Timeline, work: Work, x: I64, a: I64) -> Mask:
    """Whether the busy time before the gap was another stream's: then X waited for that work."""
    before = np.searchsorted(work.ends, a, side="right") - 1
    last = work.by_end[np.maximum(before, 0)]
    stream = timeline.stream
    return np.asarray((before >= 0) & (stream[work.rows[last]] != stream[work.rows[x]]))


def _charge_syncs(
    timeline: Timeline, work: Work, launches: Launches, covers: Covers, a: I64, host_end: I64, left: I64
) -> I64:
    """Idle that a wait of the host for the device brought about. While the host waited w ns for a busy device
    it could have run w ns ahead: the idle that follows, up to w, would not have been. Credit is used up gap by
    gap and ends with the next sync."""
    synced = np.zeros(len(a), np.int64)
    if not len(a):
        return synced
    starts, credits = covers.waits(timeline, work)
    # a wait before the window may still have credit in it, one after its last gap has none
    begin = max(int(np.searchsorted(starts, a[0], side="right")) - 1, 0)
    stop = int(np.searchsorted(starts, host_end[-1]))
    first = np.searchsorted(host_end, starts[begin:stop], side="right")
    for k, gap in enumerate(first.tolist(), begin):
        credit = int(credits[k])
        limit = int(starts[k + 1]) if k + 1 < len(starts) else np.iinfo(np.int64).max
        while credit > 0 and gap < len(a) and a[gap] < limit:
            take = min(credit, int(left[gap] - synced[gap]))
            synced[gap] += take
            credit -= take
            gap += 1
    return synced
