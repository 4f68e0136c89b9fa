"""A function whose each call is a step: an engine's, or the one that the user names."""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import Any

from . import process, state
from .ring import FUNCTION
from .state import now

POLL_S, GIVE_UP_S = 0.05, 600.0


def begin(name: str, asked: dict[str, str]) -> None:
    """`module:function` or `module:Class.method`. A function of the program's own file is `__main__:function`: it is looked for
    until it is there."""
    module, _, path = name.partition(":")
    from . import collector

    collector.begin(asked)
    if module == "__main__":
        threading.Thread(target=process.guarded(_await_main), args=(path, asked), daemon=True).start()
    else:
        process.when_imported(module, lambda found: _wrap_path(found, path, name, asked))


def _await_main(path: str, asked: dict[str, str]) -> None:
    until = time.monotonic() + GIVE_UP_S
    while time.monotonic() < until:
        module = sys.modules.get("__main__")
        owner: Any = module
        for part in path.split("."):
            owner = getattr(owner, part, None)
        if callable(owner):
            _wrap_path(module, path, f"__main__:{path}", asked)
            return
        time.sleep(POLL_S)


def _wrap_path(module: Any, path: str, name: str, asked: dict[str, str]) -> None:
    *owners, last = path.split(".")
    owner = module
    for part in owners:
        owner = getattr(owner, part)
    if not callable(getattr(owner, last, None)):
        process.log("failure", f"step-fn: {name} is no function")
        return
    wrap(owner, last, name, asked)


def wrap(owner: Any, name: str, told: str, asked: dict[str, str]) -> None:
    """Replace `owner.name` by the same with a clock round it."""
    original = vars(owner).get(name) or getattr(owner, name)
    if isinstance(original, (staticmethod, classmethod)):
        kind, plain = type(original), original.__func__
        setattr(owner, name, kind(_clocked(plain, told)))
    else:
        setattr(owner, name, _clocked(original, told))
    process.log("clock", told)


def _clocked(original: Any, told: str) -> Any:
    ended = process.guarded(_ended, _off)

    @functools.wraps(original)
    def step(*args: Any, **params: Any) -> Any:
        begin = now()
        try:
            return original(*args, **params)
        finally:
            ended(told, begin, now())

    return step


def _ended(told: str, begin: int, end: int) -> None:
    s = state.state
    if s.off:
        return
    fresh = s.ring is None
    made = state.ring()
    if made is None:
        return
    if fresh or not made.counters[3]:
        made.text("function", told)
    made.counters[3] += 1
    from . import clock

    clock.record(FUNCTION, 0, end, 0, other_ns=end - begin)


def _off() -> None:
    state.state.off = True
