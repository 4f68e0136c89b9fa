"""How long the stepping thread waits in a DataLoader's `__next__`, and the clock of programs that step no optimizer."""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

from . import process, state
from .ring import BATCH
from .state import now

QUIET = 64
"""So many batches without an optimizer's step in between: batches are the clock then (an evaluation, or no training at all)."""


def install(module: Any) -> None:
    base = getattr(module, "_BaseDataLoaderIter", None)
    original = getattr(base, "__next__", None)
    if base is None or original is None:
        process.log("failure", "loader: this torch has no _BaseDataLoaderIter.__next__")
        return
    s = state.state
    ended = process.guarded(_delivered, _off)

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        if s.off or not s.hooked:
            if not s.hooked and not s.off and state.mine():
                s.batches += 1
            return original(self)
        begin = now()
        batch = original(self)
        ended(begin, now())
        return batch

    base.__next__ = __next__
    base.next = __next__


def _delivered(begin: int, end: int) -> None:
    s = state.state
    if s.main and threading.get_ident() != s.main:
        if s.ring is not None:
            s.ring.add("wait_elsewhere_ns", end - begin)
        return
    s.wait_ns += end - begin
    s.batches += 1
    made = s.ring
    if made is not None:
        made.counters[2] += 1
    if s.batches >= QUIET or (made is not None and not made.counters[1]) or (made is None and s.batches > 2):
        _clock(end)
    for part in after_batch:
        part()


after_batch: list[Any] = []
"""What else happens when a batch has come."""


def _clock(end: int) -> None:
    if state.state.forked or _in_worker():
        return
    from . import clock

    clock.record(BATCH, 0, end, 0)


def _in_worker() -> bool:
    worker = sys.modules.get("torch.utils.data._utils.worker")
    told = getattr(worker, "get_worker_info", None)
    return told is not None and told() is not None


def _off() -> None:
    state.state.off = True
