"""What the hooks of one process share: the ring, what has gathered since the last record, whether this block of steps is
hooked, and the time spent in here."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from typing import Any

from . import process
from .ring import Ring

now = time.perf_counter_ns
BLOCK = 20
"""Steps of a block with or without hooks."""
FIRST_BLOCKS, EVERY = 17, 10
"""After the first block (warm-up), so many alternate; later each tenth is without hooks."""
LONGEST_NS = 200_000_000
"""Above this a step is so long that hooks don't matter, and twenty without them would be missed: none is left unhooked."""


class State:
    """Plain attributes, since each costs a step some ns. `main` is the thread that steps."""

    def __init__(self) -> None:
        self.ring: Ring | None = None
        self.off = False
        self.wait_ns = self.gc_ns = self.sync_ns = self.own_ns = 0
        self.batches = self.syncs = 0
        self.steps = 0
        self.hooked = True
        self.unhook = True
        self.traced = False
        self.synced = False
        self.main = 0
        self.last_ns = 0
        self.forked = False


state = State()


def ring() -> Ring | None:
    """This process's ring, made when it is first needed. None when it can't be, and once hooks are off."""
    if state.ring is not None or state.off:
        return state.ring
    folder = os.environ.get(process.FOLDER)
    if not folder:
        state.off = True
        return None
    path = os.path.join(folder, f"{os.getpid()}-{time.monotonic_ns()}.ring")  # noqa: PTH118
    try:
        made = Ring(path, (now(), time.time_ns()), process.ranks())
    except (OSError, ValueError) as error:
        process.failed("ring", error)
        state.off = True
        return None
    state.ring = made
    drained()  # what imports cost is no step's
    made.text("python", ".".join(map(str, sys.version_info[:3])))
    made.text("program", " ".join(getattr(sys, "argv", []) or ["?"]))
    torch = sys.modules.get("torch")
    if torch is not None:
        made.text("torch", str(getattr(torch, "__version__", "?")))
    state.main = threading.get_ident()
    made.text("thread", threading.current_thread().name)
    atexit.register(process.guarded(_end))
    return made


def drained() -> tuple[int, int, int, int, int, int]:
    """What has gathered since the last record: wait, gc, sync, own (ns), batches, syncs; and begin anew."""
    s = state
    found = (s.wait_ns, s.gc_ns, s.sync_ns, s.own_ns, s.batches, s.syncs)
    s.wait_ns = s.gc_ns = s.sync_ns = s.own_ns = 0
    s.batches = s.syncs = 0
    return found


def next_block(steps: int, length_ns: int) -> None:
    """After so many steps: whether the next one is hooked."""
    block, within = divmod(steps, BLOCK)
    if within:
        return
    if length_ns > LONGEST_NS or not state.unhook:
        state.hooked = True
    elif block <= FIRST_BLOCKS:
        state.hooked = block % 2 != 0 or block == 0
    else:
        state.hooked = block % EVERY != 0


def mine() -> bool:
    """Whether the running thread is the one that steps."""
    return state.main == 0 or threading.get_ident() == state.main


def _after_fork() -> None:
    """A forked child starts with nothing. Most are loaders' workers, which never step."""
    fresh: Any = State()
    fresh.forked = True
    fresh.unhook = state.unhook
    state.__dict__.update(fresh.__dict__)


def _end() -> None:
    made = state.ring
    if made is None:
        return
    error = getattr(sys, "last_type", None)
    if error is not None:
        text = str(getattr(sys, "last_value", "")).split("\n")[0]
        made.text("ended_by", f"{error.__name__}: {text}")
    made.end(now())


process.on_fork(_after_fork)
