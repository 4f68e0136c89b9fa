"""Pauses of Python's garbage collector, by its own callbacks."""

from __future__ import annotations

import gc

from . import process, state
from .ring import bucket
from .state import now

_since = 0
_on = False


def begin(asked: dict[str, str]) -> None:
    global _on
    if not _on:
        _on = True
        gc.callbacks.append(_called)


def _called(phase: str, info: dict[str, int]) -> None:
    global _since
    try:
        s = state.state
        if s.off or not s.hooked:
            _since = 0
            return
        if phase == "start":
            _since = now()
            return
        if not _since:
            return
        took = now() - _since
        _since = 0
        s.gc_ns += took
        made = s.ring
        if made is None:
            return
        made.counters[6] += 1
        made.histograms[7][bucket(took)] += 1
        if info.get("generation") == 2:
            made.counters[8] += 1
            made.counters[9] += took
    except Exception as error:  # noqa: BLE001 - a callback that raises is printed by Python at each collection
        gc.callbacks.remove(_called)
        process.failed("gc", error)
