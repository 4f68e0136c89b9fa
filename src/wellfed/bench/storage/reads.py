"""Reading from storage, past the page cache: 1 MiB blocks in order and 4 KiB blocks at random.

Reads are O_DIRECT from one thread with the kernel's asynchronous I/O (see `aio`), so that the queue depth is exact and the interpreter is
not in the way; by several processes when one is the limit. Where a sandbox forbids that, several threads of `preadv`, each a queue
slot. Where the file system refuses O_DIRECT, pages are dropped before each pass instead, and the method says so: weaker,
because the kernel may read ahead.
"""

import mmap
import os
import threading
import time
from typing import NamedTuple

import numpy as np

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.setup import MIB, Scale, Setup, build_ceiling, size_text, usable_threads
from wellfed.bench.storage import aio, swarm, with_fio
from wellfed.bench.storage.aio import Int64s, Spans
from wellfed.bench.storage.files import Target, describe, drop_pages, file_size, random_file, reservation
from wellfed.model import Ceiling, Machine
from wellfed.predict.statistics import p99, percentile

IDS = ("storage-read-seq", "storage-read-rand")
WEIGHT = 3.5
EFFORT: Effort = "quick"
_PYTHON_IOPS = 50_000
"""Of one process with threads: measured equal to fio until about here."""
_BUSY = 0.85
"""CPU seconds a second from which on our own loop is the limit and not the device."""
_MOST_PROCESSES = 16
_TRY_SHARE = 0.3
_TRY_FROM_S = 0.4
_START_S = 0.3
"""What starting those costs."""
_WINDOW_NS = 100_000_000
_READS_PER_WINDOW = 20
_READ_SHARE = 0.25
"""Of the budget, for each pattern at least, however long the writing took."""
_ORDER = 1 << 15
_CHECK_FROM_S = 2.5


class Pattern(NamedTuple):
    """`depth` reads are in flight at once."""

    id: str
    title: str
    block: int
    depth: int
    random: bool


class Reading(NamedTuple):
    """What was seen, and with what."""

    spans: Spans
    how: str
    processes: int
    why: str | None


SEQUENTIAL = Pattern("storage-read-seq", "storage, sequential read", MIB, 4, False)
RANDOM = Pattern("storage-read-rand", "storage, random read", 4096, 16, True)


def needs(machine: Machine) -> str | None:
    """Positional reads into a buffer."""
    return None if hasattr(os, "preadv") else "this system has no preadv"


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Sequential and random reads of a file in `setup.folder`. Raises OSError when none can be written there,
    or when it is memory or too full."""
    started = time.monotonic()
    with random_file(setup.folder, file_size(setup), started + budget_s * 0.4) as target:
        ceilings = []
        for pattern, share in ((SEQUENTIAL, 0.5), (RANDOM, 1.0)):
            left = max((budget_s - (time.monotonic() - started)) * share, budget_s * _READ_SHARE)
            ceilings.append(measure_pattern(setup, target, pattern, left, check=setup.effort == "full"))
    return ceilings


def measure_pattern(
    setup: Setup, target: Target, pattern: Pattern, budget_s: float, *, check: bool = False
) -> Ceiling:
    """One pattern of reads of a file that is there, for as long as the budget says. `check`: also by fio, where it is, for a second."""
    before = noise.read_counters()
    other = None
    if check and budget_s > _CHECK_FROM_S and with_fio.available():
        other = with_fio.read_by_fio(target, pattern.block, pattern.depth, pattern.random)
        budget_s -= with_fio.RUN_S
    reading = read_blocks(target, pattern, budget_s, usable_threads(setup.machine))
    rates = rates_by_window(reading.spans)
    latencies_us = sorted(((reading.spans.end_ns - reading.spans.begin_ns) / 1000).tolist())
    tail = p99(latencies_us)
    against = other and {
        "iops": round(other.iops, 1),
        "p50_us": other.p50_us,
        "ours_over_fio": round(percentile(rates, 50) / other.iops, 3),
    }
    reservations = [reading.why, reservation(target)]
    if not target.direct:
        reservations.append("part of it may come from the page cache")
    return build_ceiling(
        setup,
        before,
        rates if pattern.random else [rate * pattern.block / 1e6 for rate in rates],
        Scale(
            unit="IOPS" if pattern.random else "MB/s",
            band=(50.0, 3_000_000.0) if pattern.random else (50.0, 60_000.0),
            band_source="half a hard disk to four striped PCIe 5.0 drives",
        ),
        id=pattern.id,
        title=pattern.title,
        method=f"{reading.how}, {pattern.depth} in flight, {size_text(pattern.block)} blocks, {_path(target)}, random data",
        tier="stdlib",
        size=f"file of {size_text(target.size)}",
        threads=pattern.depth,
        why="; ".join(text for text in reservations if text) or None,
        environment={
            **describe(target),
            "processes": reading.processes,
            "reads": len(latencies_us),
            "latency_p50_us": round(percentile(latencies_us, 50), 1),
            "latency_p99_us": None if tail is None else round(tail, 1),
            "fio": against,
        },
    )


def _path(target: Target) -> str:
    return "O_DIRECT" if target.direct else "buffered, pages dropped before each pass (no O_DIRECT here)"


def read_blocks(target: Target, pattern: Pattern, budget_s: float, cpus: int = 1) -> Reading:
    """Reads by the best means that this system has."""
    reason = aio.unavailable() if target.direct else "no O_DIRECT"
    # One at a time needs no queue, and a call that waits for the answer is the shorter way to it.
    if reason is None and pattern.depth > 1:
        return _read_queued(target, pattern, budget_s, cpus)
    spans = read_by_threads(target, pattern, budget_s)
    rate = len(spans.end_ns) / max(int(spans.end_ns.max() - spans.begin_ns.min()), 1) * 1e9
    why = "above 50,000 reads a second one Python process with threads may be the limit"
    return Reading(spans, f"preadv by {pattern.depth} threads", 1, why if rate > _PYTHON_IOPS else None)


def _read_queued(target: Target, pattern: Pattern, budget_s: float, cpus: int) -> Reading:
    """Random reads first try what serves better here, requests handed over by two or all that are free, and whether one process is enough."""
    blocks = max(target.size // pattern.block, 1)
    order = np.random.default_rng(5).integers(0, blocks, _ORDER) if pattern.random else np.arange(blocks)

    def run(seconds: float, at_once: int) -> Spans:
        return aio.transfer(
            target.fd, order * pattern.block, pattern.block, pattern.depth, seconds, at_once=at_once
        )

    if not pattern.random or budget_s < _TRY_FROM_S:
        return Reading(run(budget_s, aio.AT_ONCE), "asynchronous reads by one process", 1, None)
    slice_s = budget_s * _TRY_SHARE / 4
    before, started = time.process_time(), time.perf_counter()
    counts = {aio.AT_ONCE: 0, pattern.depth: 0}
    for at_once in (*counts, *reversed(counts)):
        counts[at_once] += len(run(slice_s, at_once).end_ns)
    busy = (time.process_time() - before) / (time.perf_counter() - started)
    left_s = budget_s * (1 - _TRY_SHARE)
    many = min(cpus, pattern.depth, _MOST_PROCESSES)
    if busy >= _BUSY and many > 1 and left_s > 2 * _START_S:
        spans = swarm.transfer_by(many, target.fd, blocks, pattern.block, pattern.depth, left_s - _START_S)
        return Reading(spans, f"asynchronous reads by {many} processes", many, None)
    best = max(counts, key=lambda at_once: counts[at_once])
    how = f"asynchronous reads by one process, {'all free' if best > aio.AT_ONCE else f'up to {best}'} a submission"
    limit = "one process of ours was busy all the time: the device may be faster" if busy >= _BUSY else None
    return Reading(run(left_s, best), how, 1, limit)


def read_by_threads(target: Target, pattern: Pattern, budget_s: float) -> Spans:
    """As many threads as the depth, each with one read at a time, until the budget is spent; at least one read a
    thread. In order: each thread its own stripe, over and over."""
    blocks = max(target.size // pattern.block, 1)
    stripe = max(blocks // pattern.depth, 1)
    noted: list[list[tuple[int, int]]] = [[] for _ in range(pattern.depth)]
    errors: list[OSError] = []
    stop = threading.Event()
    deadline = time.perf_counter_ns() + int(budget_s * 1e9)

    def work(number: int) -> None:
        first = number * stripe % blocks
        rng = np.random.default_rng(number)
        order = rng.integers(0, blocks, 4096) if pattern.random else first + np.arange(stripe)
        clock, note = time.perf_counter_ns, noted[number].append
        view = memoryview(mmap.mmap(-1, max(pattern.block, mmap.PAGESIZE)))[: pattern.block]
        while True:
            if not target.direct:
                drop_pages(target.fd, first * pattern.block, stripe * pattern.block)
            for block in order.tolist():
                start = clock()
                os.preadv(target.fd, [view], block * pattern.block)
                end = clock()
                note((start, end))
                if end >= deadline or stop.is_set():
                    return

    def guarded(number: int) -> None:
        try:
            work(number)
        except OSError as error:
            errors.append(error)

    members = [
        threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(pattern.depth)
    ]
    for member in members:
        member.start()
    try:
        for member in members:
            member.join()
    finally:
        stop.set()
    if errors:
        raise errors[0]
    return spans_of([span for one in noted for span in one])


def spans_of(pairs: list[tuple[int, int]]) -> Spans:
    """Spans from (begin, end) in ns."""
    table = np.array(sorted(pairs, key=lambda pair: pair[1]), dtype=np.int64).reshape(-1, 2)
    return Spans(table[:, 0], table[:, 1])


def rates_by_window(spans: Spans) -> list[float]:
    """Transfers finished a second, by windows of a tenth of a second (a tenth of the whole when that is shorter)
    with 20 each on average. The first window is left out as the warm-up, the last because the queue runs empty
    in it. One rate over all when there are too few for that."""
    begin, end = int(spans.begin_ns.min()), int(spans.end_ns.max())
    span_ns = max(end - begin, 1)
    count = len(spans.end_ns)
    windows = min(max(span_ns // _WINDOW_NS, 10), count // _READS_PER_WINDOW)
    if windows < 4:
        return [count / span_ns * 1e9]
    number: Int64s = np.minimum((spans.end_ns - begin) * windows // span_ns, windows - 1)
    counts = np.bincount(number, minlength=windows)
    return [float(n) * windows / span_ns * 1e9 for n in counts[1:-1]]
