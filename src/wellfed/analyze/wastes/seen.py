"""What the finders of wastes look at, and what they say.

Where the arguments of operators were not recorded (`shapes` is False), names of kernels and operators and how long
kernels took are what there is.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.families import family
from wellfed.analyze.launches import Launches
from wellfed.analyze.op_chain import NO_OP, OpChain
from wellfed.analyze.op_roofline import OpCalls, unit_of
from wellfed.analyze.recording import POINTS
from wellfed.analyze.replay import Edit
from wellfed.analyze.shapes import Call
from wellfed.analyze.steps import HostSteps
from wellfed.model.timeline import I64, Cat, Timeline
from wellfed.predict.roofline import OpCost, Roof

HOST_STAYS = {"low": 0.25, "expected": 0.0, "high": 0.0}
"""Share of the host's time for launches gone that is not spared: Python around them stays in part, and the recording
slows small operators more than it slows the rest."""
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
_OPTIMIZER = re.compile(r"^Optimizer\.step#")


@dataclass(frozen=True, kw_only=True)
class Waste:
    """One waste and its cure: an edit for each of `POINTS`, in their order. `kernel_ns` is what the kernels concerned
    take of a step now, `kernels` how many they are. `lines` are for a person: where, how much, what instead. `edits` of
    other cures of the same waste stand under `others`, by what to do."""

    name: str
    edits: tuple[Edit, Edit, Edit]
    kernel_ns: float
    kernels: float
    text: str
    lines: tuple[tuple[int, str], ...] = ()
    """(ns of the timeline, text), the dearest first."""
    others: dict[str, tuple[Edit, Edit, Edit]] = field(default_factory=dict)
    to: str = ""
    """The precision that the cure goes to, where it is one."""


class Seen:
    """One device's events with the operators and arguments they are of. `order` are the kernels, and the copies within
    the device, that the steps launched, in the order of their launch."""

    def __init__(
        self,
        timeline: Timeline,
        work: Work,
        launches: Launches,
        steps: HostSteps,
        chain: OpChain,
        calls: OpCalls,
        roof: Roof,
    ) -> None:
        self.timeline, self.work, self.launches, self.steps = timeline, work, launches, steps
        self.chain, self.calls, self.roof = chain, calls, roof
        start, end = np.array(steps.start, np.int64), np.array(steps.end, np.int64)
        step = np.searchsorted(start, launches.start, side="right") - 1
        own = ~launches.orphan & (step >= 0) & (launches.start < end[np.maximum(step, 0)])
        inside = timeline.named(lambda name: name.startswith(("Memcpy DtoD", "CopyDeviceToDevice")))
        kernel = own & ((timeline.cat[work.rows] == Cat.KERNEL) | inside[work.name]) & ~work.comm
        order = np.lexsort((work.ts, launches.start))
        self.order: list[int] = order[kernel[order]].tolist()
        self.step_of = step
        self.length: I64 = work.end - work.ts
        self.claimed: set[int] = set()
        """Events that a cure found before takes away: no other cure counts them again."""

    @property
    def per(self) -> float:
        return float(max(len(self.steps), 1))

    @cached_property
    def in_backward(self) -> np.ndarray:
        """Whether autograd's engine launched the event."""
        return self._within(_BACKWARD)

    @cached_property
    def in_optimizer(self) -> np.ndarray:
        return self._within(_OPTIMIZER)

    @cached_property
    def trains(self) -> bool:
        return bool(self.in_backward[self.order].any()) if self.order else False

    def _within(self, pattern: re.Pattern[str]) -> np.ndarray:
        named = self.timeline.named(pattern.search)
        return np.asarray(self.chain.innermost(named) != NO_OP)

    @property
    def shapes(self) -> bool:
        """Whether arguments of operators were recorded."""
        return bool(self.calls.call)

    def operator(self, event: int) -> str:
        """The innermost operator that has a formula, "" without one."""
        row = int(self.calls.row[event])
        return self.timeline.names[int(self.timeline.name[row])] if row >= 0 else ""

    def call(self, event: int) -> Call | None:
        key = self.calls.key(self.timeline, event)
        return None if key is None else self.calls.call.get(key)

    def cost(self, event: int) -> OpCost | None:
        key = self.calls.key(self.timeline, event)
        return None if key is None else self.calls.cost.get(key)

    def name(self, event: int) -> str:
        return self.timeline.names[int(self.work.name[event])]

    def family(self, event: int) -> str:
        return family(self.name(event))

    def unit(self, event: int) -> str | None:
        """What the event's call computed in."""
        call, cost = self.call(event), self.cost(event)
        if call is None or cost is None:
            return None
        return unit_of(call, cost, {self.name(event): int(self.length[event])})

    def by_call(self, events: list[int]) -> dict[int, list[int]]:
        """The events by the row of the operator call that they are of, in the order of their launch."""
        out: dict[int, list[int]] = {}
        for event in events:
            out.setdefault(int(self.calls.row[event]), []).append(event)
        return out

    def total_ns(self, events: "list[int] | set[int]") -> float:
        return float(self.length[list(events)].sum()) if events else 0.0

    def at_least(self, ns: float) -> bool:
        """Whether kernels that take this long in all can matter: 2 % of the busy time of the steps."""
        return ns >= 0.02 * float(self.length[self.order].sum())


def look(
    timeline: Timeline,
    work: Work,
    launches: Launches,
    steps: HostSteps,
    chain: OpChain,
    calls: OpCalls,
    roof: Roof | None,
) -> Seen | None:
    """What the finders need; None without steps or a known roof."""
    if roof is None or not len(steps):
        return None
    return Seen(timeline, work, launches, steps, chain, calls, roof)


def dearest(
    seen: Seen, gains: dict[int, tuple[float, float, str]], top: int = 3
) -> tuple[tuple[int, str], ...]:
    """The operators (by event: ns saved, ns that they take, text) that a cure helps most: (ns of the timeline, text),
    equal texts once."""
    sums: dict[str, list[float]] = {}
    for event, (saved, taken, text) in gains.items():
        row = sums.setdefault(text, [0.0, float(event), 0.0])
        row[0] += saved
        row[2] += taken
    best = sorted(sums.items(), key=lambda item: -item[1][0])[:top]
    return tuple(
        (int(seen.work.ts[int(row[1])]), f"{text}: {row[2] / seen.per / 1e6:.2f} ms a step")
        for text, row in best
    )


__all__ = ["POINTS", "Seen", "Waste", "dearest", "look"]
