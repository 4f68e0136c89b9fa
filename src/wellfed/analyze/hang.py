"""Which collective hangs, and which rank keeps the others waiting: flight records of all ranks laid side by side.

For each group, the ranks' calls are lined up by their sequence number (PyTorch counts the collectives of a group
on every rank alike). The first number that some rank has queued and that is not done everywhere is where the
group stands. A rank that has not queued it keeps the others waiting; one that queued another operation, or other
sizes, makes a mismatch; when all queued the same and none is done, the cause lies below (the network, or a stream
that is held). A group that waits for a rank which itself waits in another group is a victim: the root is the
group whose late rank waits nowhere else, and a circle of groups is two orders of the same calls.

Nothing is concluded from what a dump does not hold: members whose dump is missing are named as unknown, entries
that fell out of the ring are not called absent, and a library that records no start (NCCL without
`TORCH_NCCL_ENABLE_TIMING`, Gloo) never has a rank called "not started".
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wellfed.analyze.hang_calls import COALESCED, Kinds, RankAt, Stuck, elements, is_done
from wellfed.analyze.hang_pairs import stuck_pairs
from wellfed.model.flight import Collective, FlightDump, GroupStatus, HangTold, StuckCall

MAX_STUCK = 500
"""More groups than this are not compared with one another: those with the most waiting ranks are."""


@dataclass(frozen=True, kw_only=True)
class Hang:
    """What the dumps say together. `missing` are ranks of a group whose dump is not there; `unnamed` dumps whose rank the file's name does not tell; `doubled` ranks with several
    dumps, of which the one that got furthest is used."""

    ranks: tuple[int, ...]
    missing: tuple[int, ...] = ()
    unnamed: tuple[str, ...] = ()
    doubled: tuple[int, ...] = ()
    entries: int = 0
    groups: int = 0
    stuck: tuple[Stuck, ...] = ()
    sources: dict[int, str] = field(default_factory=dict)
    versions: tuple[str, ...] = ()

    def told(self) -> HangTold:
        """What is saved of it."""
        return HangTold(
            ranks=self.ranks,
            missing=self.missing,
            unnamed=self.unnamed,
            doubled=self.doubled,
            calls=self.entries,
            groups=self.groups,
            versions=self.versions,
            stuck=tuple(
                StuckCall(
                    group=one.group,
                    desc=one.desc,
                    seq=one.seq,
                    op=one.op,
                    is_p2p=one.is_p2p,
                    waiting=one.ranks("waiting"),
                    absent=one.absent,
                    unlike=one.unlike,
                    differs=one.differs,
                    no_dump=one.no_dump,
                    unknown=one.ranks("unknown"),
                    not_started=one.not_started,
                    waits_for=one.waits_for,
                    root=one.is_root,
                )
                for one in self.stuck
            ),
        )


@dataclass(frozen=True, kw_only=True)
class _Lane:
    """One rank's calls in one group: by number, what is known to be done, and what fell out of the ring."""

    calls: dict[int, list[Collective]]
    status: GroupStatus

    @property
    def enqueued(self) -> int:
        return max(max(self.calls, default=0), self.status.enqueued or 0)

    def is_done(self, seq: int) -> bool:
        if self.status.completed is not None and seq <= self.status.completed:
            return True
        # what fell out of the ring is older than the oldest kept, and calls of a group end in order
        calls = self.calls.get(seq)
        if calls is None:
            return seq < min(self.calls, default=0)
        return is_done(calls)

    def first_open(self) -> int:
        """The first number queued and not done; one past the last queued when all are done."""
        open_calls = [seq for seq in self.calls if not self.is_done(seq)]
        return min(open_calls, default=self.enqueued + 1)


def study_hang(dumps: Sequence[FlightDump]) -> Hang:
    """What the dumps of one job say. Dumps without a rank are counted and left out."""
    chosen: dict[int, FlightDump] = {}
    doubled = set()
    for dump in dumps:
        if dump.rank is None:
            continue
        if dump.rank in chosen:
            doubled.add(dump.rank)
            if _reached(dump) <= _reached(chosen[dump.rank]):
                continue
        chosen[dump.rank] = dump
    members = _members(chosen)
    lanes: dict[tuple[str, str], dict[int, _Lane]] = {}
    for rank, dump in chosen.items():
        for key, lane in _lanes(dump).items():
            lanes.setdefault(key, {})[rank] = lane
    whole = {rank for ranks in members.values() for rank in ranks} | chosen.keys()
    stuck = [
        found
        for key, by_rank in sorted(lanes.items())
        if (found := _stuck(key, by_rank, members.get(key[0]), chosen)) is not None
    ]
    stuck += stuck_pairs(chosen, members)
    stuck = sorted(stuck, key=lambda s: -len(s.ranks("waiting")))[:MAX_STUCK]
    return Hang(
        ranks=tuple(sorted(chosen)),
        missing=tuple(sorted(whole - chosen.keys())),
        unnamed=tuple(dump.source for dump in dumps if dump.rank is None),
        doubled=tuple(sorted(doubled)),
        entries=sum(len(dump.entries) for dump in chosen.values()),
        groups=len(lanes),
        stuck=tuple(_with_roots(stuck, chosen)),
        sources={rank: dump.source for rank, dump in chosen.items()},
        versions=tuple(sorted({dump.version for dump in dumps if dump.version})),
    )


def _reached(dump: FlightDump) -> tuple[int, int]:
    return (
        max((e.record for e in dump.entries), default=-1),
        max((e.completed_ns or 0 for e in dump.entries), default=0),
    )


def _members(dumps: dict[int, FlightDump]) -> dict[str, tuple[int, ...]]:
    """Members by group, where the dumps agree. A name that means different ranks in different processes (each
    counts the groups it makes) is told apart no further: then the members are not known."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for rank, dump in dumps.items():
        for name, ranks in dump.members.items():
            if rank in ranks:
                found.setdefault(name, set()).add(ranks)
    return {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1}


def _lanes(dump: FlightDump) -> dict[tuple[str, str], _Lane]:
    calls: dict[tuple[str, str], dict[int, list[Collective]]] = {}
    numbers: dict[tuple[str, str], int] = {}
    for entry in dump.entries:
        key = (entry.group, entry.desc)
        numbers[key] = entry.pg
        group = calls.setdefault(key, {})
        if not entry.is_p2p:
            group.setdefault(entry.seq, []).append(entry)
    return {
        key: _Lane(calls=group, status=dump.status.get(numbers[key], GroupStatus()))
        for key, group in calls.items()
    }


def _stuck(
    key: tuple[str, str],
    by_rank: dict[int, _Lane],
    members: tuple[int, ...] | None,
    dumps: dict[int, FlightDump],
) -> Stuck | None:
    """Where the group stands, None when nothing that was queued is open."""
    expected = members if members is not None else tuple(sorted(by_rank))
    if key[1] == "default_pg" and members is None:  # everybody is in it, though some dumps do not say so
        expected = tuple(sorted(dumps))
    open_at = {rank: lane.first_open() for rank, lane in by_rank.items()}
    waiting = [rank for rank, seq in open_at.items() if seq in by_rank[rank].calls]
    if not waiting:
        return None
    seq = min(open_at[rank] for rank in waiting)
    at, calls = [], {}
    for rank in expected:
        if rank not in dumps:
            continue
        lane = by_rank.get(rank)
        entries = dumps[rank].entries
        last = entries[-1] if entries else None
        here = lane.calls.get(seq) if lane is not None else None
        if lane is None:
            # nothing of this group in its ring: it never called, unless that fell out
            kept = min((e.record for e in entries), default=0) == 0
            state, call = ("absent" if kept else "unknown"), None
        elif here:
            call = next((c for c in here if c.op.endswith(COALESCED)), here[0])
            state = "done" if lane.is_done(seq) else "waiting"
            calls[rank] = call
        else:
            call = None
            state = "done" if lane.is_done(seq) else "absent" if lane.enqueued < seq else "unknown"
        at.append(RankAt(rank=rank, state=state, call=call, last=last))
    unlike, differs, kinds = _unlike(calls)
    common = Counter(call.op for call in calls.values()).most_common(1)[0][0]
    starters = {r for r, c in calls.items() if c.started_ns is not None or c.state == "started"}
    able = {r for r in calls if any(e.started_ns is not None for e in dumps[r].entries)}
    not_started = tuple(sorted(r for r in calls if r in able and r not in starters)) if starters else ()
    return Stuck(
        group=key[0],
        desc=key[1],
        seq=seq,
        op=common,
        members=members,
        at=tuple(at),
        unlike=unlike,
        differs=differs,
        kinds=kinds,
        no_dump=tuple(r for r in expected if r not in dumps),
        not_started=tuple(r for r in not_started if not by_rank[r].is_done(seq)),
    )


def _unlike(calls: dict[int, Collective]) -> tuple[tuple[int, ...], str, Kinds]:
    """Ranks whose call differs from that of most, in what, and the ranks of each kind. All of them when no kind is
    the larger; nothing when all are alike."""
    for what, kind in (("operation", _op), ("data type", _dtypes), ("size", _sizes)):
        kinds: dict[str, list[int]] = {}
        for rank, call in sorted(calls.items()):
            if (one := kind(call)) is not None:
                kinds.setdefault(one, []).append(rank)
        ordered = sorted(kinds.items(), key=lambda item: -len(item[1]))
        if len(ordered) > 1:
            tie = len(ordered[0][1]) == len(ordered[1][1])
            odd = [rank for _, ranks in ordered[0 if tie else 1 :] for rank in ranks]
            return tuple(sorted(odd)), what, tuple((tuple(ranks), one) for one, ranks in ordered)
    return (), "", ()


def _op(call: Collective) -> str | None:
    return call.op


def _dtypes(call: Collective) -> str | None:
    return "/".join(dict.fromkeys(call.dtypes)) or None


def _sizes(call: Collective) -> str | None:
    """The size that must agree on all ranks. None for calls whose sizes may differ (all-to-all) or whose inner
    calls hold them; of gathers and scatters, the side that every rank has."""
    op = call.op.lower()
    if op.startswith(("all_to_all", "alltoall")) or op.endswith(COALESCED):
        return None
    if op == "scatter" or op.startswith(("all_gather", "_all_gather", "allgather")):
        return f"{sum(map(elements, call.outputs))} elements out"
    return f"{sum(map(elements, call.inputs))} elements"


# -- roots ------------------------------------------------------------------------------------------------


def _with_roots(stuck: list[Stuck], dumps: dict[int, FlightDump]) -> list[Stuck]:
    """Each with the groups that its late ranks wait in; roots first, then by how many ranks wait."""
    names = [f"{s.group}{' ' + s.op if s.is_p2p else ''}" for s in stuck]
    edges: dict[int, list[int]] = {}
    for i, one in enumerate(stuck):
        late = set(one.absent) | set(one.not_started)
        edges[i] = [j for j, other in enumerate(stuck) if j != i and late & set(other.ranks("waiting"))]
    marked = [
        replace(
            one,
            waits_for=tuple(names[j] for j in edges[i]),
            circle=tuple(names[j] for j in sorted(_circle(i, edges))),
        )
        for i, one in enumerate(stuck)
    ]
    return sorted(
        marked, key=lambda s: (not s.is_root, not s.unlike, -len(s.ranks("waiting")), s.group, s.seq)
    )


def _circle(start: int, edges: dict[int, list[int]]) -> set[int]:
    """The stuck calls that wait for `start` and that it waits for: its circle, empty when it is in none."""
    after = _reach(start, edges)
    if start not in after:
        return set()
    return {node for node in after if start in _reach(node, edges)}


def _reach(start: int, edges: dict[int, list[int]]) -> set[int]:
    seen: set[int] = set()
    ahead = list(edges[start])
    while ahead:
        node = ahead.pop()
        if node not in seen:
            seen.add(node)
            ahead += edges[node]
    return seen
