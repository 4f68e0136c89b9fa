"""Verdicts of memory snapshots: what an out-of-memory error met and who held the memory, pieces that nobody can use,
memory that goes to the driver and comes back."""

from collections.abc import Iterable, Sequence

from wellfed.check.manual import Manual, rule
from wellfed.model import Evidence, Gain, Verdict
from wellfed.model.base import replace
from wellfed.model.counting import counted
from wellfed.model.held import Holder, MemoryHeld, OutOfMemory
from wellfed.model.verdict import worth

BROKEN_SHARE, BROKEN_BYTES = 0.10, 256 << 20
"""Free pieces below these, of what is reserved, are no news: the allocator's own rounding makes some."""
CHURN_CALLS = 10
SHOWN_HOLDERS = 4
_NO_TIME = Gain(basis="none", source="a snapshot holds no step time")


def judge_memory(devices: Iterable[MemoryHeld]) -> tuple[Verdict, ...]:
    """The verdicts of all snapshots, one for what several devices share. Traces say nothing here: they hold no
    out-of-memory error and no pieces."""
    snapshots = [one for one in devices if one.kind == "snapshot"]
    out: list[Verdict] = []
    for function in (judge_oom, judge_pieces, judge_churn):
        page: Manual = function.manual  # type: ignore[attr-defined]
        told = [
            replace(
                verdict,
                code=page.code,
                name=page.name,
                layer="trace",
                where=_where(memory),
                sources=page.sources if verdict.verdict == "finding" else (),
            )
            for memory in snapshots
            for verdict in (function(memory),)
        ]
        kinds = ([v for v in told if v.verdict == kind] for kind in ("finding", "not-judged", "pass"))
        out += [_folded(alike, len(told)) for alike in kinds if alike]
    return tuple(sorted(out, key=worth))


def _where(memory: MemoryHeld) -> dict[str, int | str]:
    place: dict[str, int | str] = {} if memory.rank is None else {"rank": memory.rank}
    return {**place, "device": memory.device or 0}


def _folded(alike: Sequence[Verdict], total: int) -> Verdict:
    """One verdict for all devices that say the same kind of thing: the worst speaks."""
    worst = min(alike, key=worth)
    if len(alike) == 1:
        return worst if total == 1 else replace(worst, message=f"{worst.message} (1 of {total} snapshots)")
    evidence = worst.evidence + tuple(e for v in alike if v is not worst for e in v.evidence[:1])
    message = f"{worst.message} ({len(alike)} of {total} snapshots)"
    ranks = sorted({v.where["rank"] for v in alike if "rank" in v.where})
    return replace(
        worst,
        message=message,
        evidence=evidence[:8],
        where={**worst.where, **({"ranks": ranks} if len(ranks) > 1 else {})},
    )


@rule("T410", "out-of-memory", layer="trace", severity="error", trust="measured")
def judge_oom(memory: MemoryHeld) -> Verdict:
    """A request met no memory.

    What it looks at. The out-of-memory errors in the history of a memory snapshot
    (`torch.cuda.memory._dump_snapshot`), and the segments and allocations of that instant, played back.

    Why it costs. The job ends, or loses the step.

    How it is judged. By what was free then. Pieces that the request could have used and that would do together:
    fragmentation. Enough only with those of other streams, pools of CUDA graphs or the other size class: elsewhere. The
    device itself had enough: a limit was set. Otherwise there is too little. Who held the memory is told by the line
    that allocated it, and must sum to all that was allocated; a history that does not end at what the snapshot holds
    (within 2 % of the peak) says nothing of the past.

    Remedy. Fragmentation: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` (PyTorch 2.0 and later). Too little: a
    smaller batch, activation checkpointing, sharded optimizer state, or let go of what the largest holder keeps.

    When to ignore. Errors that the program provokes to find its batch size.

    Sources. measured: a snapshot with a provoked error, PyTorch 2.11 on an H200, and an allocator with known truth
    (tests/trace/test_memory.py); PyTorch, c10/cuda/CUDACachingAllocator.cpp and torch/cuda/memory.py
    """
    if not memory.events:
        return _unjudged(
            "no history: call `torch.cuda.memory._record_memory_history(max_entries=100_000)` before the part to look at"
        )
    if not memory.ooms:
        return _pass(
            f"no out-of-memory error among {counted(memory.events, 'event')}{_over(memory.window_s)}"
        )
    # several errors are usually one request tried again: the last one that a cause is known for speaks
    oom = next((o for o in reversed(memory.ooms) if o.cause != "unknown"), memory.ooms[-1])
    cause, remedy = _explained(oom, memory)
    times = f" ({memory.oom_count} times)" if memory.oom_count > 1 else ""
    at = f" at {oom.site}" if oom.site else ""
    lines = []
    if oom.moment is not None:
        lines = [
            Evidence(source=memory.source, at=f"{size(h.bytes)} held", text=holder_text(h))
            for h in oom.moment.holders[:SHOWN_HOLDERS]
        ]
    elif memory.refused:
        lines = [Evidence(source=memory.source, text=f"who held it is not told: {memory.refused}")]
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity="error",
        message=f"a request for {size(oom.asked_bytes)}{at} met no memory{times}: {cause}",
        evidence=tuple(lines),
        gain=_NO_TIME,
        remedy=remedy,
        risk="restart",
    )


def _explained(oom: OutOfMemory, memory: MemoryHeld) -> tuple[str, str]:
    """The cause in words, and what helps."""
    if oom.cause == "fragmentation":
        pieces = f"{oom.pieces} pieces" if oom.pieces != 1 else "one piece"
        said = (
            f"{size(oom.room_bytes or 0)} were free in {pieces}, the largest {size(oom.largest_bytes or 0)}, "
            f"and {size(oom.device_free_bytes)} on the device"
        )
        return said, (
            "let the loop's sizes repeat (pad or bucket them)"
            if memory.expandable
            else "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`"
        )
    if oom.cause == "elsewhere":
        said = f"{size(oom.elsewhere_bytes or 0)} were free, but in other streams, pools of graphs or small blocks"
        return said, "allocate on one stream; let go of graphs that are not replayed any more"
    if oom.cause == "limit":
        said = f"the device had {size(oom.device_free_bytes)} free: the process has a limit of its own"
        return said, "raise `torch.cuda.memory.set_per_process_memory_fraction`"
    reserved = oom.moment.reserved_bytes if oom.moment else None
    if oom.cause == "full" and reserved is not None and oom.asked_bytes > reserved + oom.device_free_bytes:
        said = f"more than the {size(reserved + oom.device_free_bytes)} there would be if this process held nothing else"
        return said, "make this request smaller: cut the batch or the tensor in pieces"
    if oom.cause == "full":
        held = oom.moment.allocated_bytes if oom.moment else 0
        said = f"{size(held)} were allocated, and all that was free ({size((oom.room_bytes or 0) + oom.device_free_bytes)}) is less"
        top = oom.moment.holders[0] if oom.moment and oom.moment.holders else None
        if top is not None and top.site:
            return said, f"look first at what {top.site} keeps: {size(top.bytes)} in {top.count} allocations"
        return said, "a smaller batch, activation checkpointing, or sharded states"
    return f"the device had {size(oom.device_free_bytes)} free; what lay in the segments is not known", (
        "record more of the history: a larger `max_entries`"
    )


@rule("T420", "memory-in-pieces", layer="trace", severity="info", trust="read")
def judge_pieces(memory: MemoryHeld) -> Verdict:
    """Much of the reserved memory is free in pieces of segments that are partly used.

    What it looks at. The free blocks of a snapshot: those in segments that hold something else cannot go back to the
    driver, and serve only requests that fit one of them.

    Why it costs. A request larger than the largest piece takes new memory from the device while this lies idle. It costs
    nothing until memory is short.

    How it is judged. From 10 % of what is reserved and 256 MiB on: info. What it did to a request that failed is told by
    `out-of-memory`.

    Remedy. `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; sizes that repeat.

    Sources. PyTorch, c10/cuda/CUDACachingAllocator.cpp; PyTorch documentation, CUDA semantics, memory management
    """
    reserved, broken = memory.reserved_bytes or 0, memory.broken_bytes or 0
    if not memory.segments:
        return _unjudged("the snapshot holds no segments")
    part = broken / reserved if reserved else 0.0
    said = (
        f"{size(broken)} of {size(reserved)} reserved ({part:.0%}) are free in pieces of partly used segments"
    )
    if part < BROKEN_SHARE or broken < BROKEN_BYTES:
        return _pass(said)
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity="info",
        message=f"{said}, the largest {size(memory.largest_free_bytes or 0)}",
        evidence=(
            Evidence(
                source=memory.source,
                at=f"{memory.segments} segments",
                text=f"{size(memory.spare_bytes or 0)} more are free in whole segments, {size(memory.private_bytes or 0)} belong to private pools",
            ),
        ),
        gain=_NO_TIME,
        remedy="sizes that repeat"
        if memory.expandable
        else "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`",
        risk="restart",
    )


@rule("T430", "memory-taken-again", layer="trace", severity="info", trust="read")
def judge_churn(memory: MemoryHeld) -> Verdict:
    """Memory is given back to the driver and taken from it again.

    What it looks at. Segments freed and allocated (of expandable segments: unmapped and mapped) in the history of a
    snapshot.

    Why it costs. cudaFree waits for the device, cudaMalloc takes from tens of microseconds to milliseconds.

    How it is judged. Ten segments or more that are taken after others were given back. A snapshot does not tell what it
    costs: info. In a trace the same shows as `allocator-churn` with its time.

    Remedy. Remove `torch.cuda.empty_cache()` from the loop; leave the allocator some room, so that it need not give back
    to serve a request.

    Sources. PyTorch, c10/cuda/CUDACachingAllocator.cpp (release_cached_blocks before an error, empty_cache)
    """
    if not memory.events or memory.taken_again is None:
        return _unjudged("no history was recorded")
    if memory.taken_again < CHURN_CALLS:
        return _pass(
            f"{memory.taken_again} segments were taken from the driver after others went back{_over(memory.window_s)}"
        )
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity="info",
        message=f"{memory.taken_again} segments ({size(memory.taken_again_bytes or 0)}) were taken from the driver after {memory.given_back} had been given back{_over(memory.window_s)}",
        evidence=(Evidence(source=memory.source, at=counted(memory.events, "event")),),
        gain=_NO_TIME,
        remedy="no `empty_cache()` in the loop",
        risk="safe",
        verify="record a trace: `wellfed trace --how torch`",
    )


def holder_text(holder: Holder) -> str:
    if holder.before:
        return "allocated before the recording began"
    n = f"{holder.count:,} allocation{'s' if holder.count != 1 else ''}"
    phase = f", {holder.phase}" if holder.phase != "other" else ""
    return f"{holder.site or 'no stack recorded'}: {n}{phase}"


def size(count: int) -> str:
    """`1.55 GiB`, `512 B`."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 1000 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:.3g} {units[0]}" if units[0] != "B" else f"{count} B"


def _over(window_s: float | None) -> str:
    return f" in {window_s:.3g} s" if window_s else ""


def _unjudged(message: str) -> Verdict:
    return Verdict(code="", name="", verdict="not-judged", reason="not-recorded", message=message)


def _pass(message: str) -> Verdict:
    return Verdict(code="", name="", verdict="pass", message=message)
