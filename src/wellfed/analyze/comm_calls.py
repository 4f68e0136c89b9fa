"""From a Timeline to a rank's collectives: what each communication kernel was, when, in which step, how exposed.

Newer PyTorch writes on the kernel itself what it was. Else the operator `record_param_comms` that launched it knows:
found by the id that both carry, by the launching call's, or because it encloses that call on its thread. Where neither
is there (older traces, Nsight Systems) the kernel's name tells the operation, and if it does not, the NVTX range or
annotation of NCCL around the launch (`ncclAllReduce`, `nccl:all_reduce`).
"""

import re
from collections.abc import Sequence

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.collectives import (
    MAX_SEQUENCE,
    NONE,
    Call,
    CollectiveSeries,
    CommGroup,
    exposed_parts,
    group_of,
)
from wellfed.analyze.cpu_comm import cpu_calls, cpu_series
from wellfed.analyze.launches import Launches
from wellfed.analyze.steps import HostSteps, find_steps
from wellfed.model.timeline import I64, Cat, Ints, Mask, Timeline
from wellfed.predict.collective import message_bytes, operation

MAX_BASE_NS = 1 << 62
_RANGE = re.compile(r"^(?:pg)?(?:nccl|rccl)(?:[A-Z:]|Group)", re.ASCII)
_NUMBER = re.compile(r"\d{1,12}")


def comm_devices(timeline: Timeline) -> list[int]:
    """The devices on which communication kernels ran."""
    return [device for device in sorted(timeline.gpus) if Work(timeline, device).comm.any()]


def collectives_of(
    timeline: Timeline, device: int | None = None, *, rank: int | None = None, steps: HostSteps | None = None
) -> CollectiveSeries:
    """The collectives of one device of a timeline (the first that has any when None), in order of start, linear in
    the number of events. `rank` is who it counts as (the timeline's own when None, 0 where that tells none). The
    exposed parts do not overlap: they sum to the exposed communication of the budget."""
    if device is None:
        device = next(iter(comm_devices(timeline)), 0)
    who = rank if rank is not None else timeline.rank or 0
    work = Work(timeline, device)
    at = np.flatnonzero(work.comm)
    at = at[np.lexsort((work.end[at], work.ts[at]))]
    if not len(at):
        return _series(timeline, who, work, at, _Labels((), (), at, at, at, at), at, at)
    launches = Launches(timeline, work)
    rows, call = work.rows[at], launches.row[at]
    comm = timeline.comm[rows].astype(np.int64)
    name = timeline.name[rows].astype(np.int64)
    _join(timeline, rows, call, comm)
    _name_by_range(timeline, call, comm, name)
    labels = _labels(timeline, who, comm, name, timeline.stream[rows].astype(np.int64))
    if steps is None:
        steps = find_steps(timeline, launches.threads)
    step = _step(steps, np.where(call >= 0, launches.start[at], work.ts[at]))
    return _series(
        timeline, who, work, at, labels, step, exposed_parts(work.computing, work.ts[at], work.end[at])
    )


def cpu_collectives_of(timeline: Timeline, device: int, *, rank: int | None = None) -> CollectiveSeries:
    """The collectives of a timeline that ran on the CPU (Gloo, MPI), in order of start; a device's computing is what
    hides them."""
    work = Work(timeline, device)
    steps = find_steps(timeline, Launches(timeline, work).threads)
    at = timeline.ts[cpu_calls(timeline)]
    who = rank if rank is not None else timeline.rank or 0
    # a collective's thread is the library's: the loop's step is the one in which it began
    return cpu_series(timeline, work.computing, _step(steps, at), who, _base_ns(timeline))


def _base_ns(timeline: Timeline) -> int:
    """What makes the timeline's times absolute; 0 where they would not fit 64 bits."""
    return timeline.base_ns if abs(timeline.base_ns) < MAX_BASE_NS else 0


class _Labels:
    """What the calls were: indices into `groups` and `ops`, numbers and sizes."""

    def __init__(
        self, groups: tuple[CommGroup, ...], ops: tuple[str, ...], group: I64, op: I64, seq: I64, size: I64
    ) -> None:
        self.groups, self.ops, self.group, self.op, self.seq, self.size = groups, ops, group, op, seq, size


def _series(
    timeline: Timeline, rank: int, work: Work, at: Ints, labels: _Labels, step: Ints, exposed: Ints
) -> CollectiveSeries:
    base = _base_ns(timeline)
    return CollectiveSeries(
        rank=rank,
        world=timeline.world,
        source=timeline.source,
        groups=labels.groups,
        ops=labels.ops,
        group=labels.group.astype(np.int32),
        op=labels.op.astype(np.int16),
        seq=labels.seq.astype(np.int64),
        start=work.ts[at] + base,
        end=work.end[at] + base,
        size=labels.size.astype(np.int64),
        step=step.astype(np.int64),
        exposed=exposed.astype(np.int64),
    )


def _join(timeline: Timeline, rows: Ints, call: Ints, comm: I64) -> None:
    """Fill in `comm` where the kernel does not tell it, from the operator that launched it."""
    told = np.flatnonzero((timeline.comm >= 0) & ~timeline.is_gpu)
    if not len(told) or (comm >= 0).all():
        return
    ids, first = np.unique(timeline.ext[told], return_index=True)
    by_call = np.where(call >= 0, timeline.ext[np.maximum(call, 0)], NONE)
    for ext in (timeline.ext[rows], by_call):
        place = np.minimum(np.searchsorted(ids, ext), len(ids) - 1)
        hit = (comm < 0) & (ext >= 0) & (ids[place] == ext)
        comm[hit] = timeline.comm[told[first[place[hit]]]]
    found = _enclosing(timeline, told, call, comm < 0)
    hit = found >= 0
    comm[hit] = timeline.comm[found[hit]]


def _name_by_range(timeline: Timeline, call: Ints, comm: I64, name: I64) -> None:
    """Put the name of NCCL's range in place of a kernel's name that does not tell the operation."""
    silent = timeline.named(lambda n: operation(n) is None)
    wanted = (comm < 0) & silent[name] & (call >= 0)
    if not wanted.any():
        return
    telling = timeline.named(lambda n: _RANGE.match(n) and operation(n) is not None)
    ranges = np.flatnonzero(
        telling[timeline.name] & ((timeline.cat == Cat.ANNOTATION) | (timeline.cat == Cat.OP))
    )
    found = _enclosing(timeline, ranges, call, wanted)
    hit = found >= 0
    name[hit] = timeline.name[found[hit]]


def _enclosing(timeline: Timeline, outer: Ints, call: Ints, wanted: Mask) -> I64:
    """For each wanted launching call the row of `outer` that begins last before it on its thread, if it encloses
    it; NONE else. What NCCL's operators hold are launches, not each other, so the last one is the one."""
    found = np.full(len(call), NONE, np.int64)
    wanted = wanted & (call >= 0)
    for thread in np.unique(timeline.thread[call[wanted]]).tolist():
        own = outer[timeline.thread[outer] == thread]
        mine = np.flatnonzero(wanted & (timeline.thread[np.maximum(call, 0)] == thread))
        if not len(own):
            continue
        begin, end = timeline.ts[call[mine]], timeline.end[call[mine]]
        place = np.searchsorted(timeline.ts[own], begin, side="right") - 1
        holder = own[np.maximum(place, 0)]
        inside = (place >= 0) & (timeline.end[holder] >= end)
        found[mine[inside]] = holder[inside]
    return found


def _labels(timeline: Timeline, rank: int, comm: I64, name: I64, stream: I64) -> _Labels:
    """Equal descriptions are looked at once; the rest is array work."""
    many = len(timeline.names) + 1
    slot, stream_of = np.unique(stream, return_inverse=True)
    key = ((comm + 1) * many + name) * len(slot) + stream_of.ravel()
    distinct, inverse = np.unique(key, return_inverse=True)
    groups: dict[CommGroup, int] = {}
    ops: dict[str, int] = {}
    known: dict[tuple[object, ...], tuple[int, int, bool, str | None]] = {}
    rows: list[tuple[int, int, int, int]] = []
    for one in distinct.tolist():
        rest, s = divmod(one, len(slot))
        c, n = divmod(rest, many)
        call = _call(timeline, c - 1, n, int(slot[s]))
        about = (call.name, *call[3:6], call.source, call.target, call.stream)
        if about not in known:
            op = operation(call.name) or operation(timeline.names[n])
            group = group_of(call, rank, op or "")
            known[about] = (
                groups.setdefault(group, len(groups)),
                ops.setdefault(op or "", len(ops)),
                group.kind == "group",
                op,
            )
        g, o, numbered, op = known[about]
        seq = call.seq if numbered and 0 <= call.seq < MAX_SEQUENCE else NONE
        rows.append((g, o, seq, message_bytes(op, call.in_elements, call.out_elements, call.dtype)))
    table = np.array(rows, np.int64).reshape(-1, 4)[inverse.ravel()]
    return _Labels(tuple(groups), tuple(ops), table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def _call(timeline: Timeline, comm: int, name: int, stream: int) -> Call:
    if comm < 0:
        return Call(timeline.names[name], 0, 0, stream=stream)
    told = timeline.comms[comm]
    return Call(
        told.name or timeline.names[name],
        0,
        0,
        group_name=told.group_name,
        group_ranks=told.group_ranks,
        group_size=told.group_size,
        seq=told.seq,
        in_elements=told.in_elements,
        out_elements=told.out_elements,
        dtype=told.dtype,
        source=told.source,
        target=told.target,
        stream=stream,
    )


def step_numbers(names: Sequence[str]) -> I64:
    """The number in each step's name; its place where a name has none."""
    found = [_NUMBER.search(name) for name in names]
    return np.array([int(m.group()) if m else k for k, m in enumerate(found)], np.int64)


def _step(steps: HostSteps, at: I64) -> I64:
    """The number of the step that the host was in at each time; NONE outside."""
    if not len(steps):
        return np.full(len(at), NONE, np.int64)
    start, end = np.array(steps.start, np.int64), np.array(steps.end, np.int64)
    place = np.searchsorted(start, at, side="right") - 1
    inside = (place >= 0) & (at < end[np.maximum(place, 0)])
    return np.where(inside, step_numbers(steps.names)[np.maximum(place, 0)], NONE)
