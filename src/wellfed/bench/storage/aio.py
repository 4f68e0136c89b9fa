"""Many reads or writes in flight from one thread: the kernel's asynchronous I/O, by plain system calls.

All requests are laid out beforehand in one array, so that the loop only makes system calls: one Python process then does more than a
hundred thousand a second, where threads of `preadv` stop at some fifty thousand because they hand the interpreter around twice for each read. Only O_DIRECT files: others would block in the submission.
"""

import ctypes
import errno
import functools
import mmap
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

CALLS = {
    "x86_64": {"setup": 206, "destroy": 207, "getevents": 208, "submit": 209},
    "aarch64": {"setup": 0, "destroy": 1, "getevents": 4, "submit": 2},
}
"""Numbers of the system calls: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux."""

IOCB = np.dtype(
    [
        ("data", "<u8"),
        ("key", "<u4"),
        ("rw_flags", "<u4"),
        ("opcode", "<u2"),
        ("reqprio", "<i2"),
        ("fildes", "<u4"),
        ("buf", "<u8"),
        ("nbytes", "<u8"),
        ("offset", "<i8"),
        ("reserved2", "<u8"),
        ("flags", "<u4"),
        ("resfd", "<u4"),
    ]
)
EVENT = np.dtype([("data", "<u8"), ("obj", "<u8"), ("res", "<i8"), ("res2", "<i8")])
"""struct iocb and struct io_event of include/uapi/linux/aio_abi.h."""

_READ, _WRITE = 0, 1
AT_ONCE = 2
"""Requests a submission: from three on the kernel holds them back until the last is built (AIO_PLUG_THRESHOLD of fs/aio.c). That cost a
quiet machine 12 % of the rate at depth 16, but takes two thirds of the CPU time, which a loaded machine lacks."""
_EVENTS = 8192
"""Answers kept before they are booked. Requests are four times as many, so none is asked anew before its answer is booked."""


class Spans(NamedTuple):
    """When each transfer was handed over and when its end was seen, in ns, in the order of the ends."""

    begin_ns: Int64s
    end_ns: Int64s


@functools.cache
def unavailable() -> str | None:
    """Why there is no asynchronous I/O here; None when there is."""
    if sys.platform != "linux" or platform.machine() not in CALLS:
        return f"no numbers of its system calls for {sys.platform} on {platform.machine()}"
    try:
        with _context(1):
            return None
    except OSError as error:  # a sandbox, or aio-max-nr used up
        return f"io_setup: {error.strerror}"


def transfer(
    fd: int,
    offsets: Int64s,
    block: int,
    depth: int,
    budget_s: float,
    *,
    write: bool = False,
    most: int = 1 << 62,
    at_once: int = AT_ONCE,
) -> Spans:
    """`depth` transfers in flight over the offsets, again from their first when they end, until the budget or `most` of them
    are spent. Writes are of random data. Raises OSError for the first that fails, or is short (EIO)."""
    count = -(-4 * _EVENTS // len(offsets)) * len(offsets)
    assert 0 < depth <= _EVENTS // 4
    buffers = page_buffers(depth, block, random=write)
    requests = _requests(fd, np.resize(offsets, count), block, depth, buffers, write)
    pointers = requests.ctypes.data + np.arange(count, dtype=np.uint64) * IOCB.itemsize
    with _context(depth) as context:
        spans = _loop(context, pointers, block, depth, budget_s, most, at_once)
    del requests, buffers  # the kernel writes into them until the context is gone
    return spans


def page_buffers(depth: int, block: int, *, random: bool) -> npt.NDArray[np.uint8]:
    """`depth` blocks of whole pages, touched: else the first transfers pay for page faults."""
    memory = np.frombuffer(mmap.mmap(-1, depth * max(block, mmap.PAGESIZE)), dtype=np.uint8)
    memory[:] = np.random.default_rng(depth).integers(0, 256, len(memory), dtype=np.uint8) if random else 1
    return memory


def _requests(
    fd: int, offsets: Int64s, block: int, depth: int, buffers: npt.NDArray[np.uint8], write: bool
) -> npt.NDArray[np.void]:
    requests = np.zeros(len(offsets), dtype=IOCB)
    number = np.arange(len(offsets), dtype=np.uint64)
    requests["data"] = number
    requests["opcode"] = _WRITE if write else _READ
    requests["fildes"] = fd
    # Two reads in flight may share a buffer; what they read is thrown away.
    requests["buf"] = buffers.ctypes.data + number % depth * max(block, mmap.PAGESIZE)
    requests["nbytes"] = block
    requests["offset"] = offsets
    return requests


def _loop(
    context: int,
    pointers: npt.NDArray[np.uint64],
    block: int,
    depth: int,
    budget_s: float,
    most: int,
    at_once: int,
) -> Spans:
    submit, getevents = _number("submit"), _number("getevents")
    events = np.zeros(_EVENTS, dtype=EVENT)
    first_pointer, first_event = pointers.ctypes.data, events.ctypes.data
    count = len(pointers)
    begun = np.zeros(count, dtype=np.int64)
    ends: list[tuple[int, int]] = []
    booked: list[Spans] = []
    clock = time.perf_counter_ns
    deadline = clock() + int(budget_s * 1e9)
    place, seen, flying, free, left, now = 0, 0, 0, depth, most, clock()
    call = _syscall()
    while True:
        while free and left and now < deadline:
            wanted = min(at_once, free, left, count - place)
            begun[place : place + wanted] = clock()
            taken = call(submit, context, wanted, first_pointer + 8 * place, 0, 0)
            if taken < 0:
                if _is_full(flying):  # of what is flying something must land first
                    break
                continue
            place = (place + taken) % count
            flying, free, left = flying + taken, free - taken, left - taken
        if not flying:
            break
        if seen > _EVENTS - depth:
            booked.append(_book(events[:seen], ends, begun, block))
            seen, ends = 0, []
        got = call(getevents, context, 1, flying, first_event + EVENT.itemsize * seen, 0)
        if got < 0:
            _is_full(0)
            continue
        now = clock()
        ends.append((now, got))
        seen, flying, free = seen + got, flying - got, free + got
    booked.append(_book(events[:seen], ends, begun, block))
    return Spans(np.concatenate([s.begin_ns for s in booked]), np.concatenate([s.end_ns for s in booked]))


def _is_full(flying: int) -> bool:
    """After a call that failed: whether there is no room for more now, while some are `flying`. False when a signal came in between;
    raises OSError otherwise."""
    code = ctypes.get_errno()
    if code == errno.EINTR:
        return False
    if code == errno.EAGAIN and flying:
        return True
    raise OSError(code, os.strerror(code))


def _book(events: npt.NDArray[np.void], ends: list[tuple[int, int]], begun: Int64s, block: int) -> Spans:
    results = events["res"]
    bad = results[results != block]
    if len(bad):
        code = int(-bad[0]) if bad[0] < 0 else errno.EIO
        raise OSError(code, os.strerror(code))
    times = np.array(ends, dtype=np.int64).reshape(-1, 2)
    return Spans(begun[events["data"].astype(np.int64)], np.repeat(times[:, 0], times[:, 1]))


@contextmanager
def _context(depth: int) -> Iterator[int]:
    """A queue of the kernel's; leaving waits for all that is in flight."""
    handle = ctypes.c_ulong(0)
    # Room is kept by CPU, and what lies with another CPU than the present one does not count: so, several times what is needed.
    _call(_number("setup"), 4 * depth, ctypes.addressof(handle))
    try:
        yield handle.value
    finally:
        _call(_number("destroy"), handle.value)


def _number(name: str) -> int:
    return CALLS[platform.machine()][name]


@functools.cache
def _syscall() -> "ctypes._NamedFuncPointer":
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    function.argtypes = [ctypes.c_long] * 6
    return function


def _call(number: int, *args: int) -> int:
    """A system call by number; again when a signal came in between. Raises OSError."""
    function = _syscall()
    while True:
        result = int(function(number, *args, *(0,) * (5 - len(args))))
        if result >= 0:
            return result
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
