"""Why the device was idle: every gap charged to causes, mutually exclusive, summing exactly to idle.

A gap [a, b) is ended by GPU event X, which host call L = [l0, l1) launched. Up to l0 the host was doing
something else: that part is charged by what covers it, in a fixed order. [l0, l1) is the launch call, the rest
the way to the device. Where L came before the gap, X waited for other work or for its turn.
"""

import re

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.intervals import EMPTY, Intervals, complement, intersect, overlap, subtract, union
from wellfed.analyze.launches import Launches
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

SILENCE_NS = 2_000_000
"""No event at all on the launching threads for this long is a stall, not dispatch: in the recorded loops of
docs/validation/trace.md the longest stretch of mere dispatch (an optimizer's Python) was 1.3 ms."""
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
    r"^(?:cuModuleLoad|cuLibraryLoad|cuModuleGetFunction|cuLibraryGetKernel|cuLinkComplete|hipModuleLoad|nvrtc|hiprtc)"
    r"|torch/_inductor/(?:compile_fx|codecache|async_compile).*|torch/_dynamo/convert_frame\.py.*|triton/compiler/compiler\.py.*: compile"
    r"|^(?:TorchDynamo|Inductor|_compile\.compile_inner|compile_fx|backend_compile)"
)
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
        ranges: dict[str, Intervals] = {}
        host = launches.host
        call = host & ((timeline.cat == Cat.RUNTIME) | (timeline.cat == Cat.DRIVER))
        # before PyTorch 1.11 annotations were written as operators
        note = host & (
            (timeline.cat == Cat.ANNOTATION) | (timeline.cat == Cat.PYTHON) | (timeline.cat == Cat.OP)
        )
        ranges["profiler-overhead"] = _of(timeline, timeline.cat == Cat.OVERHEAD)
        silent = _silence(timeline, host & ~(timeline.cat == Cat.OVERHEAD))
        loads = _named(timeline, _DATA)
        ranges["data-wait"] = _both(
            _of(timeline, note & loads), _fetched_elsewhere(timeline, loads & ~host, silent)
        )
        ranges["checkpoint-stall"] = _of(timeline, note & _named(timeline, _CHECKPOINT))
        ranges["host-stall"] = silent
        ranges["allocator-churn"] = _of(
            timeline, call & _named(timeline, _ALLOC) & ~_named(timeline, _NOT_ALLOC)
        )
        ranges["compile-stall"] = _of(timeline, (call | note) & _named(timeline, _COMPILE))
        self.sync = call & _named(timeline, SYNC_CALL)
        self.release = call & _named(timeline, _RELEASE)
        self.staged_name = np.array(
            [PAGEABLE.search(n) is not None and TO_HOST.search(n) is None for n in timeline.names] or [False]
        )
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
    hit = np.array([pattern.search(n) is not None for n in timeline.names] or [False])
    found: Mask = hit[timeline.name]
    return found


def _of(timeline: Timeline, mask: Mask) -> Intervals:
    return union(timeline.ts[mask], timeline.end[mask])


def _silence(timeline: Timeline, host: Mask) -> Intervals:
    """Stretches with no operator or call starting or ending on the launching threads, from the first event
    of any kind on them to the last. Python frames and annotations do not break the silence: they are opened
    by the profiler, not by work. Inside one call the host waits in it: that is not silence. Inside one
    operator that calls nothing it is: the CPU works there, and the device gets nothing to do."""
    if not host.any():
        return EMPTY
    in_call = host & ((timeline.cat == Cat.RUNTIME) | (timeline.cat == Cat.DRIVER))
    working = in_call | (host & (timeline.cat == Cat.OP))
    outer = np.array([timeline.ts[host].min(), timeline.end[host].max()])
    marks = np.sort(np.concatenate([timeline.ts[working], timeline.end[working], outer]))
    wide = np.diff(marks) >= SILENCE_NS
    silent = Intervals(marks[:-1][wide], marks[1:][wide])
    return subtract(silent, union(timeline.ts[in_call], timeline.end[in_call]))


def _staging_calls(timeline: Timeline, work: Work, launches: Launches, staged_name: Mask) -> Intervals:
    """Host calls that staged a copy from pageable memory."""
    rows = launches.row[work.copy & staged_name[work.name] & (launches.row >= 0)]
    return union(timeline.ts[rows], timeline.end[rows])


def charge(
    timeline: Timeline, work: Work, launches: Launches, covers: Covers, windows: list[tuple[int, int]]
) -> list[dict[str, int]]:
    """Idle by cause in each window; each dict sums exactly to the window's idle."""
    return [_charge_window(timeline, work, launches, covers, start, end) for start, end in windows]


def _charge_window(
    timeline: Timeline, work: Work, launches: Launches, covers: Covers, start: int, end: int
) -> dict[str, int]:
    gaps = complement(work.busy(), start, end)
    totals = dict.fromkeys(CAUSES, 0)
    if not len(gaps.start):
        return totals
    a, b = gaps.start, gaps.end
    x = np.searchsorted(work.ts, b, side="left")  # the event that ends the gap: the first to start at its end
    x = np.where(x < len(work.ts), x, len(work.ts) - 1)
    ended = work.ts[x] >= b
    orphan = launches.orphan[x] | ~ended
    l0 = np.where(orphan, a, launches.start[x])
    l1 = np.where(orphan, a, launches.end[x])
    late = ~orphan & (launches.start[x] > a) & launches.first[x]
    host_end = np.where(late, np.minimum(l0, b), a)
    left = host_end - a
    for cause, cover in covers.disjoint.items():
        part = overlap(cover, a, host_end)
        totals[cause] += int(part.sum())
        left = left - part
    synced = _charge_syncs(timeline, work, launches, covers, a, host_end, left)
    totals["host-sync"] += int(synced.sum())
    totals["launch-bound"] += int((left - synced).sum())
    call_end = np.where(~orphan & launches.first[x], np.clip(l1, host_end, b), host_end)
    in_call = call_end - host_end
    pageable = covers.staged_name[work.name[x]] & ~orphan
    totals["pageable-copy"] += int(in_call[pageable].sum())
    totals["launch-call"] += int(in_call[~pageable].sum())
    rest = b - call_end
    early = ~orphan & (l1 <= a) | (~orphan & ~launches.first[x])
    waits = early & (rest > QUEUED_GAP_NS)
    other = waits & _other_stream_ended(timeline, work, x, a)
    totals["dependency-wait"] += int(rest[other].sum())
    totals["queue-wait"] += int(rest[waits & ~other].sum())
    totals["launch-latency"] += int(rest[~orphan & ~waits].sum())
    trailing = ~ended
    totals["orphan"] += int(rest[orphan & ~trailing].sum())
    if trailing.any():  # after the last event of the file nothing ends the gap
        tail_a, tail_b = a[trailing], b[trailing]
        remaining = rest[trailing]
        for cause, cover in covers.disjoint.items():
            part = np.minimum(overlap(cover, tail_a, tail_b), remaining)
            totals[cause] += int(part.sum())
            remaining = remaining - part
        totals["unattributed"] += int(remaining.sum())
    return totals


def _other_stream_ended(timeline: Timeline, work: Work, x: I64, a: I64) -> Mask:
    """Whether the busy time before the gap was another stream's: then X waited for that work."""
    stream = timeline.stream[work.rows]
    order = np.argsort(work.end, kind="stable")
    before = np.searchsorted(work.end[order], a, side="right") - 1
    last = order[np.maximum(before, 0)]
    return np.asarray((before >= 0) & (stream[last] != stream[x]))


def _charge_syncs(
    timeline: Timeline, work: Work, launches: Launches, covers: Covers, a: I64, host_end: I64, left: I64
) -> I64:
    """Idle that a wait of the host for the device brought about. While the host waited w ns for a busy device
    it could have run w ns ahead: the idle that follows, up to w, would not have been. Credit is used up gap by
    gap and ends with the next sync."""
    synced = np.zeros(len(a), np.int64)
    rows = np.flatnonzero(covers.sync)
    if not len(rows) or not len(a):
        return synced
    s0, s1 = timeline.ts[rows], timeline.end[rows]
    busy = work.busy()
    waited = overlap(busy, s0, s1)
    # a sync inside a longer one (a copy that synchronises) is counted once
    outer = np.maximum.accumulate(s1)
    inner = np.concatenate([[False], s1[1:] <= outer[:-1]])
    order = np.flatnonzero(~inner & (waited > 0))
    starts, credits = s1[order], waited[order]
    first = np.searchsorted(host_end, starts, side="right")
    for k, gap in enumerate(first.tolist()):
        credit = int(credits[k])
        limit = int(starts[k + 1]) if k + 1 < len(starts) else np.iinfo(np.int64).max
        while credit > 0 and gap < len(a) and a[gap] < limit:
            take = min(credit, int(left[gap] - synced[gap]))
            synced[gap] += take
            credit -= take
            gap += 1
    return synced
