"""Checkpoints seen by what they do: state copied to the host and written, also where no frame or range names it.

Writing leaves no event of its own, only silence; what comes before it does. `torch.save` copies *storages*, as
bytes: `aten::copy_` directly behind `aten::set_`, which nothing else in a loop does. A state dictionary brought
to the host first is a run of copies to the host with no kernel between them, and of a size that no metric has.
"""

from typing import NamedTuple

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.cpu_comm import issued
from wellfed.analyze.intervals import EMPTY, Intervals, union
from wellfed.analyze.launches import Launches
from wellfed.model.timeline import I64, Cat, Mask, Timeline

RUN_COPIES, RUN_BYTES = 8, 8 << 20
"""Copies to the host one after the other are state when there are at least so many, of so many bytes together:
metrics are read as a few bytes each, results as one tensor or two."""

_MAKING = 8
"""Operators at most that make the two storages of a copy."""


class Saves(NamedTuple):
    """The calls that copy state to the host (rows of the timeline), and the stretches of the launching threads in
    which it is copied and written: each to the next operator or call."""

    calls: I64
    stretches: Intervals


NO_SAVES = Saves(np.zeros(0, np.int64), EMPTY)


def find_saves(timeline: Timeline, work: Work, launches: Launches, to_host: Mask) -> Saves:
    """The saves of a recording. `to_host` says by name whether an event so called is a copy to the host."""
    fetches = work.copy & to_host[work.name] & (launches.row >= 0)
    if fetches.any():  # Gloo sends tensors over the host: state it is not
        fetches[fetches] = ~issued(timeline, launches.row[fetches])
    if not fetches.any():
        return NO_SAVES
    calls: list[int] = []
    start: list[int] = []
    end: list[int] = []
    for thread in sorted(set(timeline.thread[launches.row[fetches]].tolist()) - launches.side):
        mine = launches.host & (timeline.thread == thread)
        found = _on_thread(timeline, work, launches, fetches, mine)
        for first, last, rows in found:
            calls += rows
            start.append(first)
            end.append(last)
    if not calls:
        return NO_SAVES
    return Saves(np.array(sorted(calls), np.int64), union(np.array(start, np.int64), np.array(end, np.int64)))


def _on_thread(
    timeline: Timeline, work: Work, launches: Launches, fetches: Mask, mine: Mask
) -> list[tuple[int, int, list[int]]]:
    """The saves of one thread: begin and end in ns, and their calls."""
    own = (launches.row >= 0) & mine[np.maximum(launches.row, 0)]
    launch, first = np.unique(launches.row[own], return_index=True)
    order = np.argsort(timeline.ts[launch], kind="stable")
    launch, first = launch[order], first[order]
    fetch = fetches[own][first]
    size = np.maximum(timeline.size[work.rows[own][first]], 0)
    ops = np.flatnonzero(mine & (timeline.cat == Cat.OP))
    ops = ops[np.argsort(timeline.ts[ops], kind="stable")]
    begin, finish, storage = _copies(timeline, ops, launch, fetch)
    working = mine & np.isin(timeline.cat, (Cat.OP, Cat.RUNTIME, Cat.DRIVER))
    marks, ends = np.sort(timeline.ts[working]), np.sort(timeline.end[working])
    out: list[tuple[int, int, list[int]]] = []
    for low, high in _runs(fetch):
        run = np.arange(low, high)
        if not (high - low >= RUN_COPIES and size[run].sum() >= RUN_BYTES):
            run = run[storage[run]]
        if not len(run):
            continue
        stop = int(finish[run].max())
        after = int(np.searchsorted(marks, stop))
        written = int(marks[after]) if after < len(marks) else stop
        opened = int(begin[run].min())
        if storage[run[0]]:  # the file was opened and the names were written before
            before = int(np.searchsorted(ends, opened, side="right")) - 1
            opened = int(ends[before]) if before >= 0 else opened
        out.append((opened, written, launch[run].tolist()))
    return out


def _copies(timeline: Timeline, ops: I64, launch: I64, fetch: Mask) -> tuple[I64, I64, Mask]:
    """Of each launch that is a copy to the host: begin and end of the operator it lies in (its own without one),
    and whether that copies a storage: then the storages are made first, and it begins with that."""
    begin, finish = timeline.ts[launch].copy(), timeline.end[launch].copy()
    storage = np.zeros(len(launch), bool)
    if not len(ops):
        return begin, finish, storage
    at = np.searchsorted(timeline.ts[ops], begin, side="right") - 1
    inside = fetch & (at >= 0) & (timeline.end[ops[np.maximum(at, 0)]] >= finish)
    copy = ops[np.maximum(at, 0)]
    before = ops[np.maximum(at - 1, 0)]
    is_copy = timeline.named("aten::copy_".__eq__)
    is_set = timeline.named("aten::set_".__eq__)
    storage = inside & (at >= 1) & is_copy[timeline.name[copy]] & is_set[timeline.name[before]]
    storage &= timeline.end[before] <= timeline.ts[copy]
    begin[inside], finish[inside] = timeline.ts[copy[inside]], timeline.end[copy[inside]]
    makes = is_set | timeline.named("aten::empty".__eq__)
    for i in np.flatnonzero(storage).tolist():
        k = int(at[i]) - 1
        while k >= 0 and makes[timeline.name[ops[k]]] and int(at[i]) - k <= _MAKING:
            begin[i] = timeline.ts[ops[k]]
            k -= 1
    return begin, finish, storage


def _runs(flag: Mask) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flag, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
