"""A hanging call and where each rank stands at it; when a recorded call is done."""

from collections.abc import Sequence
from dataclasses import dataclass

from wellfed.model.flight import Collective

Kinds = tuple[tuple[tuple[int, ...], str], ...]
"""Ranks, and what they called."""
COALESCED = "coalesced"
RETIRED_IS_DONE = ("gloo",)
"""Libraries that say how a call ended only by `retired` (seen in PyTorch 2.13); with NCCL that alone means it
timed out."""


@dataclass(frozen=True, kw_only=True)
class RankAt:
    """Where one rank stands at the hanging call: `call` is what it queued there (None: nothing), `last` the last
    call that it recorded in any group. `state` is `absent` (did not call), `waiting` (called, not done), `done`,
    `unknown` (its ring no longer holds it, and nothing else tells)."""

    rank: int
    state: str
    call: Collective | None = None
    last: Collective | None = None


@dataclass(frozen=True, kw_only=True)
class Stuck:
    """A call that hangs. `seq` is its number in the group (of the pair of ranks, for a send or receive). `absent`
    ranks did not call it; `unlike` ones called something else than most (all when no side is larger): they differ
    in `differs` (operation, data type, size), and `kinds` are the ranks of each kind. `no_dump` members left none.
    `not_started` ranks queued it, and their stream did not reach it while it ran on others. `waits_for` are other
    stuck groups in which the late ranks wait; `is_root` when there are none or they run in a circle. `members` is
    None when the dumps do not tell who belongs to the group."""

    group: str
    desc: str
    seq: int
    op: str
    is_p2p: bool = False
    members: tuple[int, ...] | None = None
    at: tuple[RankAt, ...] = ()
    unlike: tuple[int, ...] = ()
    differs: str = ""
    kinds: Kinds = ()
    no_dump: tuple[int, ...] = ()
    not_started: tuple[int, ...] = ()
    waits_for: tuple[str, ...] = ()
    circle: tuple[str, ...] = ()

    def ranks(self, state: str) -> tuple[int, ...]:
        return tuple(at.rank for at in self.at if at.state == state)

    @property
    def absent(self) -> tuple[int, ...]:
        return self.ranks("absent")

    @property
    def is_root(self) -> bool:
        return not self.waits_for or bool(self.circle)


def is_done(calls: Sequence[Collective]) -> bool:
    """Whether a number is done. Calls inside a coalesced one are never marked themselves: the whole speaks."""
    whole = [c for c in calls if c.op.endswith(COALESCED)] or list(calls)
    return any(
        c.state == "completed" or c.completed_ns is not None or (c.retired and c.library in RETIRED_IS_DONE)
        for c in whole
    )


def elements(sizes: Sequence[int]) -> int:
    n = 1
    for size in sizes:
        n *= size
    return n
