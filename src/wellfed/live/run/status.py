"""What is shown while a command runs: one line, or a small panel with a line for each rank."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from wellfed.live.run.command import Live
from wellfed.live.run.inside.ring import COUNTERS, COUNTERS_AT, FIXED, MAGIC

MOST_RANKS = 16


class Counted(NamedTuple):
    """Running totals of one ring."""

    rank: int
    steps: int
    wait_ns: int
    gc_ns: int
    pid: int


class Status:
    """Remembers the totals of the second before, so that a line tells rates."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, Counted]] = {}

    def lines(self, live: Live) -> list[str]:
        """The summary, then the ranks where there are several."""
        ranks = [self._rank(live.seconds, counted) for counted in counters(live.folder)]
        parts = [f"{live.seconds:.0f} s"]
        if len(ranks) == 1:
            parts.append(ranks[0])
        elif ranks:
            parts.append(f"{len(ranks)} ranks")
        parts += _machine(live.sample)
        return [", ".join(parts), *(ranks if len(ranks) > 1 else [])]

    def _rank(self, seconds: float, now: Counted) -> str:
        then_s, then = self._before.get(now.pid, (0.0, now._replace(steps=0, wait_ns=0, gc_ns=0)))
        self._before[now.pid] = (seconds, now)
        span = max(seconds - then_s, 1e-6)
        wait = (now.wait_ns - then.wait_ns) / 1e9 / span
        name = f"rank {now.rank}: " if now.rank >= 0 else ""
        return (
            f"{name}step {now.steps:,}, {(now.steps - then.steps) / span:.3g} steps/s, loader wait {wait:.0%}"
        )


def _machine(sample: Any) -> Iterator[str]:
    for gpu in sample.get("gpus", [])[:4]:
        used, total = gpu.get("mem_used"), gpu.get("mem_total")
        memory = f" {used / 2**30:.0f}/{total / 2**30:.0f} GiB" if used is not None and total else ""
        throttled = f" ({', '.join(gpu['throttle'])})" if gpu.get("throttle") else ""
        yield f"GPU {gpu['index']} {gpu.get('util', '?')} %{memory}{throttled}"
    busy = sample.get("cpu", {}).get("busy_cores")
    if busy is not None:
        yield f"{busy:.1f} cores"


def counters(folder: Path) -> list[Counted]:
    """Of each ring that says anything, in the order of ranks. Read while it is written: totals may be a step apart."""
    found = []
    for path in sorted(folder.glob("*.ring"))[: 4 * MOST_RANKS]:
        try:
            with path.open("rb") as file:
                head = file.read(COUNTERS_AT + 8 * len(COUNTERS))
        except OSError:
            continue
        if len(head) < COUNTERS_AT + 8 * len(COUNTERS) or not head.startswith(MAGIC):
            continue
        fixed = FIXED.unpack_from(head)
        values = dict(zip(COUNTERS, struct.unpack_from(f"<{len(COUNTERS)}Q", head, COUNTERS_AT), strict=True))
        steps = values["optimizer_steps"] or values["functions"] or values["batches"] or values["events"]
        found.append(Counted(fixed[10], steps, values["wait_ns"], values["gc_ns"], fixed[5]))
    return sorted(found)[:MOST_RANKS]
