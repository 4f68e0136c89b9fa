"""The ring file of one process: a header with sums and histograms, and 64-byte records that wrap.

It is mapped into memory, so what was stored stays when the process is killed: the kernel owns the pages. Each record ends
with the CRC of the rest: one that was torn by SIGKILL is known. Sums and histograms are never wrapped, so a long run loses the
single steps of its beginning but no count.

All integers are little-endian. Times are CLOCK_MONOTONIC in ns, which all processes of a machine share."""

from __future__ import annotations

import binascii
import mmap
import os
import struct

MAGIC = b"WFRING01"
VERSION = 1
RECORD = struct.Struct("<QqQQQQBBHIII")
"""seq, end_ns, wait_ns, gc_ns, other_ns, own_ns, kind, flags, ident, batches, number, crc of the 60 bytes before."""
BODY = struct.Struct("<QqQQQQBBHII")
SIZE = RECORD.size
CAPACITY = 1 << 16
FIXED = struct.Struct("<8sIIIIqqqqqqqqq")
"""magic, version, offset of the records, capacity, size of a record, pid, ppid, start (monotonic), start (wall), end
(monotonic; 0: not ended by itself), rank, local rank, world size, local world size (-1: not told)."""
ENDED_AT = 56
COUNTERS_AT = 128
COUNTERS = (
    "events", "optimizer_steps", "batches", "functions", "wait_ns", "wait_elsewhere_ns", "gc_n", "gc_ns", "gc_full_n",
    "gc_full_ns", "own_ns", "own_n", "failures", "skipped_steps", "sync_steps", "sync_n", "sync_ns", "optimizers",
    "gpu_n", "gpu_busy_ns", "gpu_gap_ns", "hooked", "unhooked", "stages",
)  # fmt: skip
TEXTS_AT = 1024
TEXTS = (
    ("python", 32), ("torch", 64), ("loop", 96), ("device", 96), ("program", 512), ("ended_by", 160), ("failure", 256),
    ("optimizers", 256), ("trace", 768), ("function", 160), ("thread", 64),
)  # fmt: skip
SITES_AT, SITES, SITE = 4096, 64, struct.Struct("<QQ176s")
"""Lines that waited for the GPU: count, ns, file:line."""
HISTOGRAMS_AT = SITES_AT + SITES * SITE.size
HISTOGRAMS = (
    "optimizer0",
    "optimizer1",
    "optimizer2",
    "optimizer3",
    "batch",
    "function",
    "wait",
    "gc",
    "gpu",
)
BUCKETS = 1024
RECORDS_AT = HISTOGRAMS_AT + len(HISTOGRAMS) * BUCKETS * 8
FILE_BYTES = RECORDS_AT + CAPACITY * SIZE

STEP, BATCH, FUNCTION, GPU, MEMORY, TRACE, PATTERN = 1, 2, 3, 4, 5, 6, 7
"""Kinds. STEP: an optimizer's step ended. BATCH: a loader delivered. FUNCTION: an engine step or the user's function ended
(other_ns: how long it took). GPU: of the STEP or BATCH whose event has this `number`: wait_ns is how long the GPU had nothing
between the steps, gc_ns how long the step took on it. MEMORY: wait_ns reserved, gc_ns allocated, other_ns retries, own_ns peak,
number OOMs. TRACE: a window began (flags 0) or ended (1). PATTERN: a line of the output matched."""
UNHOOKED, TRACED, SKIPPED, SYNCED = 1, 2, 4, 8


def bucket(ns: int) -> int:
    """Buckets are 1/32 of a power of two wide (3 %); below 8 us they are 256 ns wide."""
    value = ns >> 8
    if value < 32:
        return value if value > 0 else 0
    shift = value.bit_length() - 6
    index = (shift + 1) * 32 + (value >> shift) - 32
    return index if index < BUCKETS else BUCKETS - 1


def bucket_bounds(index: int) -> tuple[int, int]:
    """The ns that a bucket holds: from, to."""
    if index < 32:
        return index << 8, (index + 1) << 8
    shift = index // 32 - 1
    low = (index % 32 + 32) << shift
    return low << 8, (low + (1 << shift)) << 8


def text_place(name: str) -> tuple[int, int]:
    """Where a text lies in the header, and its size."""
    at = TEXTS_AT
    for known, size in TEXTS:
        if known == name:
            return at, size
        at += size
    raise KeyError(name)


class Ring:
    """One process writes it; `events` is the number of records written."""

    def __init__(
        self, path: str, times: tuple[int, int], ranks: tuple[int, int, int, int], capacity: int = CAPACITY
    ) -> None:
        size = RECORDS_AT + capacity * SIZE
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(handle, size)
            self.map = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        self.path, self.capacity, self.events = path, capacity, 0
        self.bytes = memoryview(self.map)
        self.counters = self.bytes[COUNTERS_AT : COUNTERS_AT + 8 * len(COUNTERS)].cast("Q")
        self.at = {name: index for index, name in enumerate(COUNTERS)}
        self.histograms = [
            self.bytes[start : start + 8 * BUCKETS].cast("Q")
            for start in range(HISTOGRAMS_AT, RECORDS_AT, 8 * BUCKETS)
        ]
        self.sites: dict[str, int] = {}
        self.names: list[str] = []
        FIXED.pack_into(
            self.map,
            0,
            MAGIC,
            VERSION,
            RECORDS_AT,
            capacity,
            SIZE,
            os.getpid(),
            os.getppid(),
            *times,
            0,
            *ranks,
        )

    def write(
        self,
        kind: int,
        end_ns: int,
        wait_ns: int = 0,
        gc_ns: int = 0,
        other_ns: int = 0,
        own_ns: int = 0,
        flags: int = 0,
        ident: int = 0,
        batches: int = 0,
        number: int = 0,
    ) -> int:
        """Add a record; returns its number, counted from 1."""
        self.events = seq = self.events + 1
        body = BODY.pack(
            seq, end_ns, wait_ns, gc_ns, other_ns, own_ns, kind, flags, ident, batches, number & 0xFFFFFFFF
        )
        at = RECORDS_AT + (seq - 1) % self.capacity * SIZE
        self.bytes[at : at + SIZE] = body + binascii.crc32(body).to_bytes(4, "little")
        self.counters[0] = seq
        return seq

    def add(self, name: str, value: int = 1) -> None:
        self.counters[self.at[name]] += value

    def text(self, name: str, value: str) -> None:
        at, size = text_place(name)
        data = value.encode("utf-8", "replace")[: size - 1]
        self.bytes[at : at + size] = data + bytes(size - len(data))

    def site(self, where: str, ns: int) -> None:
        """One wait at a line of the program; the last slot is for all lines beyond the others."""
        index = self.sites.setdefault(where, min(len(self.sites), SITES - 1))
        at = SITES_AT + index * SITE.size
        count, total, text = SITE.unpack_from(self.map, at)
        name = where if index < SITES - 1 else "(other lines)"
        if not count:
            text = name.encode("utf-8", "replace")[-175:]
        SITE.pack_into(self.map, at, count + 1, total + ns, text)

    def end(self, now_ns: int) -> None:
        struct.pack_into("<q", self.map, ENDED_AT, now_ns)
