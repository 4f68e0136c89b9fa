"""Reading the clock as fast as it can be read, and noting each gap that is longer than a threshold. By numba at the
speed of C (about 26 ns a reading), else by Python (about 100 to 200)."""

import ctypes
import gc
import platform
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wellfed.bench.host import stream

THRESHOLD_NS = 5_000
"""The threshold of the kernel's own osnoise tracer; Python's hiccups stay below it."""
_ROOM = 200_000
"""Gaps that can be noted; at 5 us each they would be a whole second."""
_MONOTONIC = 1


class Spin(NamedTuple):
    """`gaps`: (start, length) in ns from the first reading on. `granularity_ns`: the usual distance of two readings."""

    gaps: list[tuple[int, int]]
    length_ns: int
    granularity_ns: float
    engine: str


Spinner = Callable[[int], Spin]
"""Given a duration in ns."""


def best_spinner() -> Spinner:
    return numba_spinner() or spin


def spin(duration_ns: int) -> Spin:
    """In Python. The garbage collector is off meanwhile."""
    clock = time.perf_counter_ns
    gaps: list[tuple[int, int]] = []
    reads = 0
    collecting = gc.isenabled()
    gc.disable()
    try:
        start = last = clock()
        stop = start + duration_ns
        while last < stop:
            now = clock()
            reads += 1
            if now - last > THRESHOLD_NS:
                gaps.append((last - start, now - last))
            last = now
    finally:
        if collecting:
            gc.enable()
    return _spin(gaps, last - start, reads, "python")


def numba_spinner() -> Spinner | None:
    """None without numba, and off Linux, where the clock's number and layout would be others."""
    numba = stream.import_numba()
    if numba is None or platform.system() != "Linux" or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    read = ctypes.CDLL(None).clock_gettime
    read.argtypes = [ctypes.c_int, ctypes.c_void_p]
    read.restype = ctypes.c_int

    def loop(duration_ns, threshold_ns, clock, starts, lengths):  # type: ignore[no-untyped-def]
        read(_MONOTONIC, clock.ctypes)
        start = clock[0] * 1_000_000_000 + clock[1]
        last, stop, reads, found = start, start + duration_ns, 0, 0
        while last < stop and found < len(starts):
            read(_MONOTONIC, clock.ctypes)
            now = clock[0] * 1_000_000_000 + clock[1]
            reads += 1
            if now - last > threshold_ns:
                starts[found], lengths[found] = last - start, now - last
                found += 1
            last = now
        return last - start, reads, found

    signature = "Tuple((int64, int64, int64))(int64, int64, int64[::1], int64[::1], int64[::1])"
    compiled: Any = numba.njit(signature, nogil=True)(loop)

    def spinner(duration_ns: int) -> Spin:
        starts, lengths = np.zeros(_ROOM, np.int64), np.zeros(_ROOM, np.int64)
        length, reads, found = compiled(duration_ns, THRESHOLD_NS, np.zeros(2, np.int64), starts, lengths)
        gaps = list(zip(starts[:found].tolist(), lengths[:found].tolist(), strict=True))
        return _spin(gaps, int(length), int(reads), "numba")

    return spinner


def _spin(gaps: list[tuple[int, int]], length_ns: int, reads: int, engine: str) -> Spin:
    lost = sum(length for _, length in gaps)
    return Spin(gaps, length_ns, (length_ns - lost) / max(reads - len(gaps), 1), engine)
