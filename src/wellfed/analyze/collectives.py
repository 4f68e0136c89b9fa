"""One rank's collectives as columns: what is needed of a trace to compare ranks, and nothing more.

PyTorch writes what a collective was (`Collective name`, `Process Group Ranks`, `Seq`...) on the operator
`record_param_comms` and, since 2.2, on the kernel; kernels of older traces have only their names.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from wellfed.analyze.intervals import Intervals, overlap
from wellfed.model.base import Value, replace
from wellfed.model.timeline import I16, I32, I64
from wellfed.predict.collective import message_bytes, operation

GroupKind = Literal["group", "pair", "stream", "cpu"]
NONE = -1
MAX_SEQUENCE = 1 << 42
"""A larger number is no count of calls: some writers leave rubbish."""
MAX_LISTED = 100_000
_NUMBER = re.compile(r"-?\d+")
_INTEGER = re.compile(r"-?\d{1,18}")


class CommGroup(Value, frozen=True, kw_only=True):
    """Who takes part. Equal groups on two ranks are one and the same: a process group by its name and the text
    of its ranks (two groups may share either), a sender and receiver by both ranks, and, where the trace says
    neither, only a stream; collectives on the CPU have only the library that ran them. `ranks` are the members, empty when not told in full; `size` is -1 when unknown."""

    kind: GroupKind = "group"
    name: str = ""
    text: str = ""
    size: int = -1
    ranks: tuple[int, ...] = ()


class Call(NamedTuple):
    """One call as its kernel ran. Times in ns of the rank's clock. Counts and numbers are -1 when not told;
    `source` and `target` are ranks of a send or receive; `exposed_ns` is the part of it in which the device
    computed nothing; `step` is the number in the step's own name, the same on all ranks."""

    name: str
    start_ns: int
    end_ns: int
    group_name: str = ""
    group_ranks: str = ""
    group_size: int = -1
    seq: int = -1
    in_elements: int = -1
    out_elements: int = -1
    dtype: str = ""
    source: int = -1
    target: int = -1
    stream: int = -1
    step: int = -1
    exposed_ns: int = -1


class CollectiveSeries(Value, frozen=True, kw_only=True):
    """One rank's collectives in order of start. `group` indexes `groups`, `op` indexes `ops` (canonical names,
    "" when unknown); `seq` is -1 where calls are not numbered; `size` is the message in bytes, -1 when
    unknown; `step` is -1 outside steps. Times are ns of the rank's own clock; `exposed` is -1 when unknown."""

    rank: int
    world: int | None = None
    source: str = ""
    groups: tuple[CommGroup, ...]
    ops: tuple[str, ...]
    group: I32
    op: I16
    seq: I64
    start: I64
    end: I64
    size: I64
    step: I64
    exposed: I64

    def __len__(self) -> int:
        return len(self.start)


KINETO_ARGS = {
    "Process Group Name": "group_name",
    "Process Group Ranks": "group_ranks",
    "Group size": "group_size",
    "Seq": "seq",
    "In msg nelems": "in_elements",
    "Out msg nelems": "out_elements",
    "dtype": "dtype",
    "Src Rank": "source",
    "Dst Rank": "target",
    "stream": "stream",
}
"""Arguments of a kernel (or of the `record_param_comms` that launched it) -> fields of a Call. The name of the
collective is under `Collective name`."""


def kineto_call(
    kernel: str, start_ns: int, end_ns: int, args: Mapping[str, Any], *, step: int = -1, exposed_ns: int = -1
) -> Call:
    """A call from a kernel and its arguments as PyTorch writes them; what is not an integer counts as not
    told."""
    told = {field: args[name] for name, field in KINETO_ARGS.items() if args.get(name) is not None}
    for field, value in told.items():
        if field in ("group_name", "group_ranks", "dtype"):
            told[field] = str(value)
        elif not isinstance(value, int):
            text = str(value).strip()
            told[field] = int(text) if _INTEGER.fullmatch(text) else -1
    name = str(args.get("Collective name") or kernel)
    return Call(name, start_ns, end_ns, step=step, exposed_ns=exposed_ns, **told)


def series_of(
    rank: int, calls: Iterable[Call], *, base_ns: int = 0, world: int | None = None, source: str = ""
) -> CollectiveSeries:
    """The columns of a rank's calls; `base_ns` is added to their times. Calls that take no time (a wait on
    the host has none) stay: they too are numbered."""
    groups: dict[CommGroup, int] = {}
    ops: dict[str, int] = {}
    rows = sorted(calls, key=lambda c: (c.start_ns, c.end_ns))
    seen: dict[tuple[str, str, int, int, int, str, int], tuple[int, int, bool]] = {}
    columns: list[tuple[int, int, int, int, int, int, int, int]] = []
    for c in rows:
        key = (c.group_name, c.group_ranks, c.group_size, c.source, c.target, c.name, c.stream)
        known = seen.get(key)
        if known is None:
            op = operation(c.name) or ""
            group = group_of(c, rank, op)
            known = seen[key] = (
                groups.setdefault(group, len(groups)),
                ops.setdefault(op, len(ops)),
                group.kind == "group",
            )
        group_id, op_id, numbered = known
        size = message_bytes(operation(c.name), c.in_elements, c.out_elements, c.dtype)
        seq = c.seq if numbered and 0 <= c.seq < MAX_SEQUENCE else -1
        columns.append((group_id, op_id, seq, c.start_ns, c.end_ns, size, c.step, c.exposed_ns))
    table = np.array(columns, dtype=np.int64).reshape(-1, 8)
    return CollectiveSeries(
        rank=rank,
        world=world,
        source=source,
        groups=tuple(groups),
        ops=tuple(ops),
        group=table[:, 0].astype(np.int32),
        op=table[:, 1].astype(np.int16),
        seq=table[:, 2].copy(),
        start=table[:, 3] + base_ns,
        end=np.maximum(table[:, 3], table[:, 4]) + base_ns,
        size=table[:, 5].copy(),
        step=table[:, 6].copy(),
        exposed=table[:, 7].copy(),
    )


def group_of(call: Call, rank: int, op: str) -> CommGroup:
    """Sends and receives are numbered by each rank for itself, so that they form a group of the two ranks."""
    if op == "send_recv" and (call.source >= 0 or call.target >= 0):
        pair = (
            call.source if call.source >= 0 else rank,
            call.target if call.target >= 0 else rank,
        )
        return CommGroup(kind="pair", name=call.group_name, size=2, ranks=pair)
    if call.group_name or call.group_ranks:
        ranks = parse_ranks(call.group_ranks, call.group_size)
        size = call.group_size if call.group_size > 0 else len(ranks) or -1
        return CommGroup(name=call.group_name, text=call.group_ranks, size=size, ranks=ranks)
    return CommGroup(kind="stream", name=f"stream {call.stream}", size=call.group_size)


def parse_ranks(text: str, size: int) -> tuple[int, ...]:
    """The members from the text of a list. Long lists are written short (`[0, 8, 16, ..., 504]`): filled in
    when they can only be a series of equal steps with `size` members, else empty."""
    listed = [int(n) for n in _NUMBER.findall(text[:1_000_000])]
    if "..." not in text:
        return tuple(listed) if len(listed) <= MAX_LISTED else ()
    if len(listed) < 3 or not 0 < size <= MAX_LISTED:
        return ()
    step = listed[1] - listed[0]
    filled = tuple(range(listed[0], listed[0] + step * size, step)) if step > 0 else ()
    ends_right = bool(filled) and filled[-1] == listed[-1] and filled[: len(listed) - 1] == tuple(listed[:-1])
    return filled if ends_right else ()


def joined(one: CollectiveSeries, other: CollectiveSeries) -> CollectiveSeries:
    """Two series of one rank as one, in order of start. What is exposed in both counts in both."""
    groups = {g: k for k, g in enumerate(dict.fromkeys(one.groups + other.groups))}
    ops = {o: k for k, o in enumerate(dict.fromkeys(one.ops + other.ops))}
    group = np.array([groups[g] for s in (one, other) for g in s.groups], np.int32)
    op = np.array([ops[o] for s in (one, other) for o in s.ops], np.int16)
    columns = {
        name: np.concatenate([getattr(one, name), getattr(other, name)])
        for name in ("seq", "start", "end", "size", "step", "exposed")
    }
    order = np.lexsort((columns["end"], columns["start"]))
    return replace(
        one,
        groups=tuple(groups),
        ops=tuple(ops),
        group=group[np.concatenate([one.group, other.group + len(one.groups)])][order],
        op=op[np.concatenate([one.op, other.op + len(one.ops)])][order],
        **{name: column[order] for name, column in columns.items()},
    )


def exposed_parts(computing: Intervals, start: I64, end: I64) -> I64:
    """The part of each call in which the device computes nothing; where several run, it is the one's that ends last,
    for that is what is waited for. So the parts do not overlap: they sum to the exposed communication of the budget.
    Calls in any order."""
    order = np.lexsort((start, end))
    begin = start[order]
    ahead = np.minimum.accumulate(begin[::-1])[::-1]  # the earliest start of those that end no sooner
    until = np.minimum(end[order], np.append(ahead[1:], np.iinfo(np.int64).max))
    until = np.maximum(until, begin)
    found = np.empty(len(start), np.int64)
    found[order] = until - begin - overlap(computing, begin, until)
    return found
