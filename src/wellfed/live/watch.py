"""Watching a command that was put in its place: threads that left it are put back, and where memory lies is counted.

Threads are known by name: those that launch kernels and move data (the main one, autograd's, NCCL's, the driver's event
handler) have the rank's own cores; loaders, tokenizers and the like have the rest. Late threads, libraries that shrink a mask at
import and libraries that leak theirs are why this is done more than once."""

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from wellfed.live.kernel import set_affinity
from wellfed.model.base import Value
from wellfed.model.placement import RankPlace, cpu_ranges

PERIOD_S = 1.0
LAUNCHING = re.compile(r"pt_autograd|NCCL|nccl|RCCL|cuda-EvtHandlr")
MAX_TASKS = 20_000
_PROC = Path("/proc")


class Seen(Value, frozen=True, kw_only=True):
    """What one look gave: tasks of the command and its children by their mask, how many are inside their place, KiB by node
    and how many lie where they should. `pages` is empty where numa_maps can't be read."""

    masks: dict[str, int] = {}
    tasks: int = 0
    inside: int = 0
    pages: dict[int, int] = {}
    local: int = 0


def watch(
    pid: int, place: RankPlace, *, seconds: float, verify_s: float | None, say: Callable[[str], None]
) -> None:
    """Until `seconds` are over, `verify_s` has been reported, or the command has ended."""
    born, start = _born(pid), time.monotonic()
    reported = verify_s is None
    while _born(pid) == born and born is not None:
        now = time.monotonic() - start
        if now <= seconds:
            settle(pid, place)
        if not reported and verify_s is not None and now >= verify_s:
            say(told(look_at(pid, place), place))
            reported = True
        if reported and now > seconds:
            return
        time.sleep(min(PERIOD_S, 0.2 if not reported else PERIOD_S))
    if not reported:
        say(f"rank {place.rank}: the command ended before it could be verified")


def wanted(tid: int, pid: int, name: str, place: RankPlace, *, child: bool) -> tuple[int, ...]:
    """The CPUs that a task should have."""
    if place.other_cpus and (child or (tid != pid and not LAUNCHING.match(name))):
        return place.other_cpus
    return place.cpus


def settle(pid: int, place: RankPlace) -> int:
    """Put every task back that left its place; how many there were. Those that bound themselves more narrowly within it stay
    so, but for the main thread, whose mask all later threads inherit."""
    moved = 0
    for process, tid, name, is_child in tasks_of(pid):
        cpus = wanted(tid, process, name, place, child=is_child)
        try:
            mask = os.sched_getaffinity(tid)
            narrow = tid == pid and mask != set(cpus)
            if narrow or not mask <= set(cpus):
                set_affinity(cpus, tid)
                moved += 1
        except OSError:
            continue  # it has ended, or is not ours
    return moved


def look_at(pid: int, place: RankPlace) -> Seen:
    masks: Counter[str] = Counter()
    inside = 0
    for process, tid, name, is_child in tasks_of(pid):
        try:
            mask = os.sched_getaffinity(tid)
        except OSError:
            continue
        masks[cpu_ranges(tuple(mask))] += 1
        inside += mask <= set(wanted(tid, process, name, place, child=is_child))
    try:
        pages = pages_by_node((_PROC / str(pid) / "numa_maps").read_text(errors="replace"))
    except OSError:
        pages = {}
    nodes = place.memory_nodes or place.nodes
    local = sum(count for node, count in pages.items() if node in nodes)
    return Seen(masks=dict(masks), tasks=sum(masks.values()), inside=inside, pages=pages, local=local)


def pages_by_node(numa_maps: str) -> dict[int, int]:
    """KiB of memory on each node, of the text of /proc/PID/numa_maps: `N0=12 ... kernelpagesize_kB=4`."""
    found: Counter[int] = Counter()
    for line in numa_maps.splitlines():
        size = re.search(r"kernelpagesize_kB=(\d{1,9})", line)
        for node, count in re.findall(r"\bN(\d{1,5})=(\d{1,15})", line):
            found[int(node)] += int(count) * (int(size.group(1)) if size else 4)
    return dict(sorted(found.items()))


def told(seen: Seen, place: RankPlace) -> str:
    masks = "; ".join(
        f"{count} on {mask}" for mask, count in sorted(seen.masks.items(), key=lambda item: -item[1])[:6]
    )
    text = f"rank {place.rank}: {seen.inside} of {seen.tasks} tasks are in their place ({masks})"
    total = sum(seen.pages.values())
    if not total:
        return f"{text}; where memory lies can't be seen (numa_maps)"
    nodes = cpu_ranges(place.memory_nodes or place.nodes)
    return f"{text}; {seen.local / total:.1%} of {total / 1024:,.0f} MiB lie on node {nodes}"


def tasks_of(pid: int) -> Iterator[tuple[int, int, str, bool]]:
    """(process, task, name, whether of a child) of the command and all that it has started."""
    queue, seen = [pid], 0
    while queue:
        process = queue.pop()
        folder = _PROC / str(process) / "task"
        try:
            tids = sorted(int(task.name) for task in folder.iterdir())
        except OSError:
            continue
        for tid in tids:
            seen += 1
            if seen > MAX_TASKS:
                return
            try:
                name = (folder / str(tid) / "comm").read_text(errors="replace").strip()
                listed = folder / str(tid) / "children"  # not in every kernel
                children = listed.read_text() if listed.exists() else ""
            except OSError:  # it has ended
                continue
            queue += [int(child) for child in children.split()]
            yield process, tid, name, process != pid


def _born(pid: int) -> str | None:
    """When a process started, in ticks; None when it is gone or a zombie. Numbers of processes come round again."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return text[19] if text and text[0] not in "ZX" else None
