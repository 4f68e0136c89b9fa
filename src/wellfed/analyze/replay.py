"""The loop run again on paper: host and device as one event graph, replayed in time order.

What is replayed is whole steps: the host's calls in their order, each GPU event behind its launch, its stream
and what it waited for, and the host behind each wait for the device. Replaying unchanged must give the
measured steps back (`identity_error`); then one thing at a time is changed and the time of a step read off.

The first change is always the profiler's own cost, taken off the host: the step nobody recorded. Every cure is
replayed on that one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.causes import SYNC_CALL, Covers
from wellfed.analyze.groups import by_value
from wellfed.analyze.intervals import Intervals, covered, union
from wellfed.analyze.launches import Launches
from wellfed.analyze.loader import Pace, batches_of, pace_of, slowest_pace
from wellfed.analyze.steps import HostSteps
from wellfed.model.timeline import F64, I64, Cat, Ints, Mask, Timeline
from wellfed.predict.profiler import HostCost

BLOCKED_NS = 20_000
"""A call this much longer than its kind's median, with device work ending inside it, waited for that work."""
DISPATCH_NS = 50_000
"""Host time between two events longer than this is not dispatch: the profiler has no part in it."""
QUEUE_DEPTH = 256
"""A plain launch is held up by a full queue only when at least this many launches are outstanding."""
HOST_CAUSES = (
    "data-wait",
    "checkpoint-stall",
    "dependency-wait",
    "host-stall",
    "allocator-churn",
    "compile-stall",
)
"""What the host can spend its time in besides dispatch, in the order of charging. `dependency-wait` of the host is a
wait for a collective on the CPU."""
MAX_EVENTS = 120_000
_WAIT_CALL = re.compile(r"^(?:cuda|hip|cu)StreamWaitEvent")


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Whole steps as plain lists, times in ns from the first step's start. One *action* is one host call that
    launches or waits; `free` is the host time from the previous action's end to this one's start, `call` its
    own duration. `waits` is the index of the GPU event the call waits for (-1: none) and `back` the time from
    that event's end to the call's return. Events lie in launch order, `of` being their action; `gap` is the
    distance kept behind the stream's previous event when queued, `delay` the way from launch to start,
    `needs` an event of another stream that must end `lag` before. `step_at[k]` is the first action of step k."""

    free: list[float]
    call: list[float]
    waits: list[int]
    back: list[float]
    is_sync: list[bool]
    action_of_event: list[int]
    duration: list[float]
    stream: list[int]
    gap: list[float]
    queued: list[bool]
    """Whether `gap` was seen (the event stood in the queue); else it is the usual one."""
    delay: list[float]
    needs: list[int]
    lag: list[float]
    step_at: list[int]
    tail: list[float]
    """Host time from each step's last action to the step's end."""
    pageable: list[bool]
    bytes: list[int]
    is_kernel: list[bool]
    event: list[int] = field(default_factory=list)
    """Which event of the `Work` each one is."""
    spent: dict[str, list[float]] = field(default_factory=dict)
    """By cause, the part of each `free` that the host spent in it (the loader, a stall, ...)."""
    spent_tail: dict[str, list[float]] = field(default_factory=dict)
    """The same of each `tail`."""
    fetch: list[bool] = field(default_factory=list)
    """Actions that copy a result to the host."""
    side: set[int] = field(default_factory=set)
    """Launches of another thread: they take no time of the host, and their `free` is counted from the start of
    the host's action before them."""
    release: set[int] = field(default_factory=set)
    """Actions that give memory back, and wait for the device if it is not done."""
    saving: set[int] = field(default_factory=set)
    """Actions that copy state to the host for a checkpoint, or wait for that."""
    paced: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Actions before which the host took a batch from a loader that has a pace of its own: the time since the
    batch before, and the host time from this batch to the action. `paced_tail` is the same of a step's tail."""
    paced_tail: dict[int, tuple[float, float]] = field(default_factory=dict)
    batches: tuple[dict[int, tuple[float, float]], dict[int, tuple[float, float]]] = ({}, {})
    """As `paced` and `paced_tail`, all batches of a loader whose pace is not known: only that a batch came every
    `slowest_pace` ns at least. Given a pace by `at_pace`."""
    slowest_pace: float | None = None
    measured_ns: float = 0.0
    """Measured time of a step as recorded; `identity_error` is how far off the unchanged replay is, a fraction."""
    identity_error: float = 0.0
    events_per_step: float = 0.0
    launches_per_step: float = 0.0
    recorded_per_step: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Host:
    """The host's side of a Loop, before the device's is added."""

    free: list[float]
    call: list[float]
    waits: list[int]
    back: list[float]
    is_sync: list[bool]
    spent: dict[str, list[float]]
    spent_tail: dict[str, list[float]]
    paced: dict[int, tuple[float, float]]
    paced_tail: dict[int, tuple[float, float]]
    batches: tuple[dict[int, tuple[float, float]], dict[int, tuple[float, float]]]
    slowest_pace: float | None
    step_at: list[int]
    tail: list[float]
    recorded: float


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """Times in ns: mean step of the last cycle, busy time of the device in it, its idle time by cause."""

    step_ns: float
    busy_ns: float
    idle: dict[str, float]


def build_loop(
    timeline: Timeline,
    work: Work,
    launches: Launches,
    covers: Covers,
    steps: HostSteps,
    cost: HostCost | None,
) -> Loop | str:
    """The replayable loop of a timeline, with the profiler's cost taken off by `cost` (None: as recorded).
    A string says why there is none."""
    if not len(steps):
        return "no steps to replay: nothing recurs in the trace"
    begin, end = steps.start[0], steps.end[-1]
    own = ~launches.orphan & (launches.start >= begin) & (launches.start < end)
    if own.sum() < 2:
        return "no launch records to replay"
    late = launches.orphan & ~launches.left_over & (work.ts >= begin) & (work.ts < end)
    if late.sum() > 0.05 * own.sum():
        return "more than 5 % of the device work has no launch record"
    if own.sum() > MAX_EVENTS:
        return f"more than {MAX_EVENTS} device events in the steps: cut them with --steps"
    return _Builder(timeline, work, launches, covers, steps, cost, own).loop()


class _Builder:
    def __init__(
        self,
        timeline: Timeline,
        work: Work,
        launches: Launches,
        covers: Covers,
        steps: HostSteps,
        cost: HostCost | None,
        own: Mask,
    ) -> None:
        self.t, self.work, self.launches, self.covers, self.steps, self.cost = (
            timeline,
            work,
            launches,
            covers,
            steps,
            cost,
        )
        order = np.lexsort((work.ts, launches.start))
        self.events = order[own[order]]  # indices into work, in launch order

    def loop(self) -> Loop:
        t, begin, end = self.t, self.steps.start[0], self.steps.end[-1]
        rows = self._action_rows(begin, end)
        s0, s1 = t.ts[rows], t.end[rows]
        waits, back, is_sync, full = self._waits(rows, s0, s1)
        host_time, recorded = self._host_clock(begin, end)
        boundaries = np.array([*self.steps.start, end], np.int64)
        step_at = np.searchsorted(s0, boundaries)
        side = np.isin(t.thread[rows], list(self.launches.side))
        # host time between actions, on the clock without the profiler; calls overlapping their predecessor
        # (another thread) keep their order and start where it ends
        edge = np.maximum.accumulate(np.concatenate([[begin], np.where(side, begin, s1)]))
        begin_of = np.where(side, s0, np.maximum(s0, edge[:-1]))
        finish = np.where(side, s0, np.maximum(s1, begin_of))
        since = np.where(side, _before(np.where(side, begin, begin_of), begin), edge[:-1])
        free = host_time(begin_of) - host_time(since)
        call = host_time(finish) - host_time(begin_of)
        waits, is_sync = np.where(side, -1, waits), is_sync & ~side
        blocked = (waits >= 0) | (full & ~side)
        typical = _typical(self.t.name[rows], (s1 - s0).astype(float), ~blocked)
        call = np.where(blocked | is_sync, np.minimum(call, typical), call)
        clocked = {c: _on_clock(self.covers.disjoint[c], host_time) for c in HOST_CAUSES}
        spent = {
            c: _inside(found, host_time(since), host_time(begin_of)).tolist() for c, found in clocked.items()
        }
        spent_tail: dict[str, list[float]] = {c: [] for c in HOST_CAUSES}
        tail: list[float] = []
        free_list = free.tolist()
        own = np.flatnonzero(~side)
        for k in range(len(self.steps)):
            low, high = int(step_at[k]), int(step_at[k + 1])
            last = int(edge[high]) if high > low else int(boundaries[k])
            last = max(last, int(boundaries[k]))
            stop = int(boundaries[k + 1])
            t_last, t_stop = (float(v) for v in host_time(np.array([last, max(stop, last)])))
            tail.append(t_stop - t_last)
            for c, found in clocked.items():
                spent_tail[c].append(float(_inside(found, np.array([t_last]), np.array([t_stop]))[0]))
            first = int(np.searchsorted(own, low))
            if first < len(own) and own[first] < high and edge[own[first]] < boundaries[k]:
                # what lies before the boundary is the tail of the step before
                low = int(own[first])
                t_start, t_at = (float(v) for v in host_time(np.array([boundaries[k], begin_of[low]])))
                free_list[low] = max(t_at - t_start, 0.0)
                for c, found in clocked.items():
                    spent[c][low] = float(_inside(found, np.array([t_start]), np.array([t_at]))[0])
        batches = batches_of(t, self.launches, self.steps)
        pace = pace_of(batches)
        slowest = slowest_pace(batches)
        if slowest is not None:  # each batch, at a pace that is set later (`at_pace`)
            pace = Pace(batches.taken, np.zeros(len(batches.taken)))
        paced, paced_tail = self._paced(pace, own, begin_of, step_at, boundaries, host_time)
        host = _Host(
            free=free_list,
            call=call.tolist(),
            waits=waits.tolist(),
            back=back.tolist(),
            is_sync=is_sync.tolist(),
            spent=spent,
            spent_tail=spent_tail,
            paced=paced if slowest is None else {},
            paced_tail=paced_tail if slowest is None else {},
            batches=(paced, paced_tail) if slowest is not None else ({}, {}),
            slowest_pace=slowest,
            step_at=step_at.tolist(),
            tail=tail,
            recorded=recorded,
        )
        return self._with_events(rows, host)

    def _paced(
        self,
        pace: Pace,
        own: Ints,
        begin_of: I64,
        step_at: Ints,
        boundaries: I64,
        host_time: Callable[[I64], F64],
    ) -> tuple[dict[int, tuple[float, float]], dict[int, tuple[float, float]]]:
        """Where in the sequence batches of a paced loader were taken: before which action, or in which tail."""
        paced: dict[int, tuple[float, float]] = {}
        tails: dict[int, tuple[float, float]] = {}
        for at, since in zip(pace.arrival.tolist(), pace.since.tolist(), strict=True):
            after = int(np.searchsorted(begin_of[own], at))
            i = int(own[after]) if after < len(own) else len(begin_of)
            k = int(np.searchsorted(boundaries, at)) - 1
            into, where, stop = (
                (paced, i, int(begin_of[i]))
                if i < int(step_at[k + 1])
                else (tails, k, int(boundaries[k + 1]))
            )
            earlier = into[where][0] if where in into else 0.0
            t_at, t_stop = (float(v) for v in host_time(np.array([at, stop])))
            into[where] = (earlier + since, t_stop - t_at)
        return paced, tails

    def _action_rows(self, begin: int, end: int) -> I64:
        t = self.t
        launching = np.unique(self.launches.row[self.events])
        sync = np.flatnonzero(self.covers.sync & (t.ts >= begin) & (t.ts < end))
        rows = np.union1d(launching, np.union1d(sync, np.flatnonzero(self.covers.release)))
        rows = rows[(t.ts[rows] >= begin) & (t.ts[rows] < end)]
        # a call inside another (a driver call under its runtime call) is the same action
        order = np.lexsort((-t.dur[rows], t.ts[rows]))
        rows = rows[order]
        reach = np.maximum.accumulate(t.end[rows])
        nested = np.concatenate([[False], t.end[rows][1:] <= reach[:-1]]) & ~np.isin(rows, launching)
        return np.asarray(rows[~nested])

    def _waits(self, rows: I64, s0: I64, s1: I64) -> tuple[I64, F64, Mask, Mask]:
        """For each action the position (in launch order) of the event it waits for, and its way back; whether it
        synchronises; and whether it is a launch held up by a queue full of work that the recording lacks the end of."""
        t, work, events = self.t, self.work, self.events
        launch_start = self.launches.start[events]
        ends = work.end[events]
        names = [t.names[i] for i in t.name[rows].tolist()]
        is_sync = t.named(SYNC_CALL.search)[t.name[rows]]
        by_end = np.argsort(ends, kind="stable")
        sorted_ends = ends[by_end]
        kinds = t.name[rows]
        plain = np.zeros(len(rows))
        for kind in np.unique(kinds):
            plain[kinds == kind] = np.median((s1 - s0)[kinds == kind])
        waits = np.full(len(rows), -1, np.int64)
        back = np.zeros(len(rows))
        full = np.zeros(len(rows), bool)
        done = np.searchsorted(sorted_ends, s0, side="right")
        slack = 2_000  # a kernel's end and the host's clock agree to about a microsecond
        before = np.searchsorted(launch_start, s0)
        page = self.covers.pageable_name[work.name[events]]
        holding = np.unique(self.launches.row[events[page]])
        may_hold = is_sync | np.isin(rows, holding) | self._named_alloc(rows)
        position = np.searchsorted(sorted_ends, s1 + slack, side="right") - 1
        long = is_sync | (s1 - s0 > np.minimum(plain, 30_000) + BLOCKED_NS)
        # a thread synchronises with its own streams: what another thread launches aside is not among them
        aside = np.isin(t.thread[self.launches.row[events]], list(self.launches.side))
        for i in np.flatnonzero(long).tolist():
            at = int(position[i])
            # the last event to end before the return, among those launched before the call returned
            while at >= 0 and (launch_start[by_end[at]] > s0[i] or aside[by_end[at]]):
                at -= 1
            if at >= 0 and sorted_ends[at] > s0[i]:
                if not (may_hold[i] or before[i] - by_end[at] >= QUEUE_DEPTH):
                    continue  # a slow call beside which some work happened to end
                waits[i] = by_end[at]
                back[i] = max(float(s1[i] - sorted_ends[at]), 0.0)
            elif not is_sync[i] and before[i] - done[i] >= QUEUE_DEPTH:
                full[i] = True  # no recorded work ended meanwhile: the place came free by work of before
        unblocked = is_sync & (waits < 0)
        known = back[is_sync & (waits >= 0)]
        usual = float(np.median(known)) if len(known) else 5_000.0
        for i in np.flatnonzero(unblocked).tolist():
            # it found the device done; a faster host may not: it waits for the last work launched before it
            at = int(np.searchsorted(launch_start, s0[i])) - 1
            while at >= 0 and aside[at]:
                at -= 1
            if at >= 0 and "Event" not in names[i]:
                waits[i] = at
                back[i] = min(usual, float(s1[i] - s0[i]))
        return waits, back, is_sync, full

    def _named_alloc(self, rows: I64) -> Mask:
        """Allocation and release calls: the release of device memory waits for the device."""
        inside = self.covers.disjoint["allocator-churn"]
        return np.asarray(covered(inside, self.t.end[rows]) > covered(inside, self.t.ts[rows]))

    def _host_clock(self, begin: int, end: int) -> tuple[Callable[[I64], F64], float]:
        """A map from recorded host time to host time without the profiler, and the events recorded a step."""
        t, host = self.t, self.launches.host
        working = host & (t.ts >= begin) & (t.ts < end) & (t.cat != Cat.OVERHEAD) & (t.cat != Cat.SYNC)
        rows = np.flatnonzero(working)
        recorded = len(rows) / max(len(self.steps), 1)
        if self.cost is None:
            return (lambda at: at.astype(np.float64)), recorded
        weight = np.zeros(len(rows))
        cat = t.cat[rows]
        for kind, ns in self.cost.per_event_ns.items():
            weight[cat == kind] = ns
        marks = np.concatenate([t.ts[rows], t.end[rows]])
        weights = np.concatenate([weight, weight]) / 2.0
        order = np.argsort(marks, kind="stable")
        marks, weights = marks[order], weights[order]
        edges, first = np.unique(marks, return_index=True)
        if len(edges) < 2:
            return (lambda at: at.astype(np.float64)), recorded
        load = np.add.reduceat(weights, first)
        length = np.diff(edges).astype(np.float64)
        waiting = self._not_dispatch(edges)
        lean = np.maximum(length / self.cost.slowdown - load[1:], 0.2 * length)
        lean = np.where((length > DISPATCH_NS) | waiting, np.maximum(length - load[1:], 0.2 * length), lean)
        total = np.concatenate([[0.0], np.cumsum(lean)])

        def clock(at: I64) -> F64:
            before = np.minimum(at - edges[0], 0)
            after = np.maximum(at - edges[-1], 0)
            return np.asarray(np.interp(at, edges, total) + before + after)

        return clock, recorded

    def _not_dispatch(self, edges: I64) -> Mask:
        """Segments inside the loader, a stall or a blocking call: their length is not the profiler's doing."""
        t = self.t
        parts = [self.covers.disjoint[c] for c in HOST_CAUSES]
        rows = np.flatnonzero(self.covers.sync)
        whole = union(
            np.concatenate([p.start for p in parts] + [t.ts[rows]]),
            np.concatenate([p.end for p in parts] + [t.end[rows]]),
        )
        inside = covered(whole, edges[1:]) - covered(whole, edges[:-1])
        return np.asarray(inside * 2 > np.diff(edges))

    def _with_events(self, rows: I64, host: "_Host") -> Loop:
        t, work, launches, events = self.t, self.work, self.launches, self.events
        action_of_row = {int(r): i for i, r in enumerate(rows.tolist())}
        stream = t.stream[work.rows[events]]
        ts, end = work.ts[events], work.end[events]
        l0, l1 = launches.start[events], launches.end[events]
        n = len(events)
        previous_end = np.full(n, np.iinfo(np.int64).min // 2, np.int64)
        last: dict[int, int] = {}
        in_stream = np.argsort(ts, kind="stable").tolist()
        for j in in_stream:
            q = int(stream[j])
            if q in last:
                previous_end[j] = end[last[q]]
            last[q] = j
        first = launches.first[events]
        fresh = (l0 >= previous_end) & (ts - l0 < 200_000)
        waited = fresh & first
        delays = (ts - l0)[waited]
        delay_usual = float(np.median(delays)) if len(delays) > 3 else 6_000.0
        # launched so shortly before its predecessor ended that its own way to the device explains its start:
        # what then lies between the two is no gap of the device
        on_its_way = first & (ts - l0 <= (float(np.percentile(delays, 90)) if len(delays) > 3 else 6_000.0))
        behind = ts - previous_end
        behind_others = (l0 < previous_end) & (behind < 20_000)
        if (behind_others & ~on_its_way).sum() < 0.2 * behind_others.sum():
            on_its_way |= behind_others & first  # not more than the slowest tenth of launches: none queued
        gaps = behind[behind_others & ~on_its_way]
        gap_usual = float(np.median(gaps)) if len(gaps) > 10 else 1_000.0
        queued = behind_others & (~on_its_way | (behind <= gap_usual))
        gap = np.where(queued, behind, gap_usual)
        delay = np.where(
            waited | on_its_way, ts - l0, np.minimum(delay_usual, np.maximum(ts - l0, 0))
        ).astype(float)
        delay = np.where(first, delay, 0.0)
        needs, lag = self._needs(ts, end, stream, previous_end, l1)
        page = self.covers.pageable_name[work.name[events]]
        cat = t.cat[work.rows[events]]
        to_host = self.covers.to_host_name[work.name[events]]
        to_host &= cat == Cat.MEMCPY
        saving = set(np.flatnonzero(self.covers.saving(t, rows)).tolist())
        fetching = set(launches.row[events[to_host]].tolist()) - set(rows[list(saving)].tolist())
        page &= ~np.isin(launches.row[events], rows[list(saving)])
        loop = Loop(
            free=host.free,
            call=host.call,
            waits=host.waits,
            back=host.back,
            is_sync=host.is_sync,
            spent=host.spent,
            spent_tail=host.spent_tail,
            side=set(np.flatnonzero(np.isin(t.thread[rows], list(launches.side))).tolist()),
            release=set(np.flatnonzero(self.covers.release[rows]).tolist()),
            saving=saving,
            paced=host.paced,
            paced_tail=host.paced_tail,
            batches=host.batches,
            slowest_pace=host.slowest_pace,
            step_at=host.step_at,
            tail=host.tail,
            fetch=[int(r) in fetching for r in rows.tolist()],
            action_of_event=[action_of_row[int(r)] for r in launches.row[events].tolist()],
            duration=(end - ts).astype(float).tolist(),
            stream=stream.tolist(),
            gap=gap.astype(float).tolist(),
            queued=queued.tolist(),
            delay=delay.tolist(),
            needs=needs,
            lag=lag,
            pageable=(page & (cat == Cat.MEMCPY)).tolist(),
            bytes=t.size[work.rows[events]].tolist(),
            is_kernel=(cat == Cat.KERNEL).tolist(),
            event=events.tolist(),
            events_per_step=n / len(self.steps),
            launches_per_step=len(np.unique(launches.row[events])) / len(self.steps),
            recorded_per_step=host.recorded,
        )
        if self.cost is not None:
            return loop
        finished = _run(loop, 1, self._left_over())[0][-1]
        measured = max(int(end.max()), self.steps.end[-1]) - self.steps.start[0]
        return replace(
            loop, measured_ns=measured / len(self.steps), identity_error=(finished - measured) / measured
        )

    def _left_over(self) -> dict[int, float]:
        """How long after the first step's start each stream is still busy with earlier work (ns)."""
        begin = self.steps.start[0]
        older = np.ones(len(self.work.ts), bool)
        older[self.events] = False
        older &= self.launches.left_over | (~self.launches.orphan & (self.launches.start < begin))
        stream = self.t.stream[self.work.rows]
        end = self.work.end
        return {q: max(float(end[rows].max() - begin), 0.0) for q, rows in by_value(stream, older).items()}

    def _needs(
        self, ts: I64, end: I64, stream: Ints, previous_end: I64, l1: I64
    ) -> tuple[list[int], list[float]]:
        """Events that wait for another stream's work. Seen: one that started later than launch and stream
        explain waited for the one that ended last before. Told by a call (`StreamWaitEvent` between its launch
        and the launch before): it waits for the last work launched on another stream, also where a slow host
        never let it come to a wait. Both: late without anything that ended just before it, and its thread told a
        stream to wait since its own stream's launch before: streams that work together, and the device was full of
        the other's kernels. It keeps its distance behind what ended last, of its own stream or another."""
        n = len(ts)
        needs, lag = [-1] * n, [0.0] * n
        if len(np.unique(stream)) < 2:
            return needs, lag
        ready = np.maximum(previous_end, l1)
        unexplained = np.flatnonzero(ts - ready > 10_000)
        by_end = np.argsort(end, kind="stable")
        sorted_end = end[by_end]
        for j in unexplained.tolist():
            at = int(np.searchsorted(sorted_end, ts[j], side="right")) - 1
            while at >= 0 and stream[by_end[at]] == stream[j]:
                at -= 1
            if at >= 0 and by_end[at] < j and ts[j] - sorted_end[at] < 20_000:
                needs[j] = int(by_end[at])
                lag[j] = float(ts[j] - sorted_end[at])
        seen = [x for x, need in zip(lag, needs, strict=True) if need >= 0]
        usual = float(np.median(seen)) if seen else 1_000.0
        newest: dict[int, int] = {}
        told, ordered = self._wait_calls()
        late = set(unexplained.tolist())
        told_on: dict[tuple[int, int], int] = {}
        thread = self.t.thread[self.launches.row[self.events]].tolist()
        for j in range(n):
            own = (thread[j], int(stream[j]))
            held = j in late and told[j] > told_on.get(own, 0)
            if needs[j] < 0 and (ordered[j] or held):
                done = [i for q, i in newest.items() if (held or q != stream[j]) and end[i] <= ts[j]]
                if done:
                    needs[j] = max(done, key=lambda i: int(end[i]))
                    behind = float(ts[j] - end[needs[j]])
                    lag[j] = behind if held else min(usual, behind)
            newest[int(stream[j])] = j
            told_on[own] = max(int(told[j]), told_on.get(own, 0))
        return needs, lag

    def _wait_calls(self) -> tuple[I64, Mask]:
        """Of the events in launch order: how often their thread has told a stream to wait, and whether it did since its
        launch before."""
        t, rows = self.t, self.launches.row[self.events]
        named = t.named(_WAIT_CALL.search)
        count, ordered = np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
        waits = by_value(t.thread, (t.cat == Cat.RUNTIME) & named[t.name])
        launched = by_value(t.thread[rows], self.launches.first[self.events])
        for thread in self.launches.threads & waits.keys() & launched.keys():
            mine = launched[thread]
            told = np.searchsorted(t.ts[waits[thread]], t.ts[rows[mine]])
            count[mine], ordered[mine] = told, np.diff(told, prepend=0) > 0
        return count, ordered


def _typical(
    kind: Ints,
    length: F64,
    usable: Mask,
) -> F64:
    """Median length of unblocked calls of the same name; 5 us where there is none."""
    out = np.full(len(kind), 5_000.0)
    same = by_value(kind)
    for name, rows in by_value(kind, usable).items():
        out[same[name]] = float(np.median(length[rows]))
    return out


def _before(at: I64, begin: int) -> I64:
    """For each action the latest of the times `at` of those before it; `begin` for the first."""
    return np.asarray(np.maximum.accumulate(np.concatenate([[begin], at]))[:-1])


def _inside(of: Intervals, start: F64, end: F64) -> F64:
    low, high = np.rint(start).astype(np.int64), np.rint(end).astype(np.int64)
    return np.asarray(np.maximum(covered(of, high) - covered(of, low), 0), dtype=np.float64)


def _on_clock(of: Intervals, clock: Callable[[I64], F64]) -> Intervals:
    """Intervals of recorded time on the clock without the profiler, rounded to ns."""
    if not len(of.start):
        return of
    return union(np.rint(clock(of.start)).astype(np.int64), np.rint(clock(of.end)).astype(np.int64))


def _run(
    loop: Loop, cycles: int, busy_until: dict[int, float] | None = None
) -> tuple[list[float], float, dict[str, float]]:
    """Replay `cycles` times over; returns the end of each cycle (host and device done with its work), and of
    the last one the device's busy time and its idle time by cause."""
    by_action: list[list[int]] = [[] for _ in loop.free]
    for j, action in enumerate(loop.action_of_event):
        by_action[action].append(j)
    host = 0.0
    finish: dict[int, float] = {**dict.fromkeys(set(loop.stream), 0.0), **(busy_until or {})}
    device_done = max(finish.values(), default=0.0)
    ends = [0.0] * len(loop.duration)
    cycle_ends: list[float] = []
    idle = dict.fromkeys((*HOST_CAUSES, "host-sync", "launch-bound", "launch-call", "launch-latency"), 0.0)
    since = dict.fromkeys((*HOST_CAUSES, "host-sync"), 0.0)
    seen = [(c, parts) for c, parts in loop.spent.items() if any(parts)]
    seen_tail = [(c, parts) for c, parts in loop.spent_tail.items() if any(parts)]
    arrived: float | None = None
    busy = 0.0
    for cycle in range(cycles):
        counting = cycle == cycles - 1
        anchor = host
        for k in range(len(loop.tail)):
            for i in range(loop.step_at[k], loop.step_at[k + 1]):
                aside = i in loop.side
                if not aside:
                    host += loop.free[i]
                    for cause, parts in seen:
                        since[cause] += parts[i]
                if i in loop.paced:
                    more = _later(loop.paced[i], loop.spent["data-wait"][i], host, arrived)
                    host += more
                    since["data-wait"] += more
                    arrived = host - loop.paced[i][1]
                if not aside:
                    anchor = host
                start = anchor + loop.free[i] if aside else host
                host += loop.call[i]
                for j in by_action[i]:
                    q = loop.stream[j]
                    chained = finish[q] + loop.gap[j]
                    ready = start + loop.delay[j]
                    begin = chained if chained > ready else ready
                    need = loop.needs[j]
                    if need >= 0 and ends[need] + loop.lag[j] > begin:
                        begin = ends[need] + loop.lag[j]
                    end = begin + loop.duration[j]
                    if begin > device_done:
                        if counting:
                            spent = _meanwhile(loop, i, since) if aside else since
                            _charge(idle, device_done, begin, start, max(start, host), spent)
                            busy += loop.duration[j]
                    elif end > device_done and counting:
                        busy += end - device_done
                    if not aside:
                        for cause in since:
                            since[cause] = 0.0
                    finish[q] = end
                    ends[j] = end
                    if end > device_done:
                        device_done = end
                target = loop.waits[i]
                if target >= 0:
                    back = ends[target] + loop.back[i]
                    if back > host:
                        waited = (
                            "allocator-churn"
                            if i in loop.release
                            else "checkpoint-stall"
                            if i in loop.saving
                            else "host-sync"
                        )
                        since[waited] += back - host
                        host = back
                if i in loop.release:
                    since["allocator-churn"] += loop.call[i]
            host += loop.tail[k]
            for cause, parts in seen_tail:
                since[cause] += parts[k]
            if k in loop.paced_tail:
                more = _later(loop.paced_tail[k], loop.spent_tail["data-wait"][k], host, arrived)
                host += more
                since["data-wait"] += more
                arrived = host - loop.paced_tail[k][1]
        cycle_ends.append(max(host, device_done))
    return cycle_ends, busy, idle


def _meanwhile(loop: Loop, i: int, since: dict[str, float]) -> dict[str, float]:
    """What the host has been in when another thread launches: it is in the middle of its way to its next
    action, of which `since` knows nothing yet."""
    return {c: max(v, loop.spent[c][i]) if c in loop.spent else v for c, v in since.items()}


def _later(paced: tuple[float, float], waited: float, host: float, arrived: float | None) -> float:
    """How much longer (or shorter: negative) than recorded the host waits for a batch of a paced loader."""
    if arrived is None:  # the first batch: when the one before it came is not known
        return 0.0
    since, after = paced
    return max(arrived + since + after - host, -waited)


def _charge(
    idle: dict[str, float], done: float, begin: float, start: float, returned: float, since: dict[str, float]
) -> None:
    """Charge one idle stretch [done, begin) ended by an event launched in [start, returned): what the host
    did since the last launch, then dispatch, the call, and the way to the device."""
    host_end = min(max(start, done), begin)
    call_end = min(max(returned, host_end), begin)
    idle["launch-call"] += call_end - host_end
    idle["launch-latency"] += begin - call_end
    left = host_end - done
    for cause, spent in since.items():
        part = spent if spent < left else left
        idle[cause] += part
        left -= part
    idle["launch-bound"] += left


def run(loop: Loop, *, cycles: int = 4) -> Replayed:
    """The steady state: the same steps over and over, the last cycle read off."""
    ends, busy, idle = _run(loop, cycles)
    steps = len(loop.tail)
    return Replayed(
        step_ns=(ends[-1] - ends[-2]) / steps,
        busy_ns=busy / steps,
        idle={k: v / steps for k, v in idle.items()},
    )


def without(loop: Loop, cause: str, *, residual_ns: float = 0.0) -> Loop:
    """The host no longer spends time in `cause`; each stay shrinks to at most `residual_ns`."""
    spent, spent_tail = loop.spent[cause], loop.spent_tail[cause]
    keep = [min(s, residual_ns) for s in spent]
    keep_tail = [min(s, residual_ns) for s in spent_tail]
    gone = loop.release if cause == "allocator-churn" else set()
    if cause == "checkpoint-stall":
        gone = {i for i in loop.saving if loop.is_sync[i]}
    return replace(
        loop,
        free=[f - s + k for f, s, k in zip(loop.free, spent, keep, strict=True)],
        tail=[f - s + k for f, s, k in zip(loop.tail, spent_tail, keep_tail, strict=True)],
        call=[0.0 if i in gone else c for i, c in enumerate(loop.call)],
        waits=[-1 if i in gone else w for i, w in enumerate(loop.waits)],
        spent={**loop.spent, cause: keep},
        spent_tail={**loop.spent_tail, cause: keep_tail},
        paced={} if cause == "data-wait" else loop.paced,
        paced_tail={} if cause == "data-wait" else loop.paced_tail,
    )


def saved_aside(loop: Loop, *, bytes_per_s: float) -> Loop:
    """Checkpoints written by another thread: what is left is a copy of the state to pinned memory, at `bytes_per_s`,
    that the host does not wait for. `inf`: no checkpoint."""
    cured = without(loop, "checkpoint-stall")
    duration = list(cured.duration)
    for j, action in enumerate(cured.action_of_event):
        if action in cured.saving and not cured.is_kernel[j]:
            duration[j] = min(duration[j], max(cured.bytes[j], 0) / bytes_per_s * 1e9)
    return replace(
        cured,
        duration=duration,
        waits=[-1 if i in cured.saving else w for i, w in enumerate(cured.waits)],
    )


def without_syncs(loop: Loop) -> Loop:
    """The host never asks for a result: neither the wait nor the copy that fetches it is there. Copies to the
    device stay, and so does the wait that belongs to one from pageable memory: pinning it is another cure."""
    n = len(loop.free)
    staging = {a for a, p in zip(loop.action_of_event, loop.pageable, strict=True) if p and not loop.fetch[a]}
    kept = staging | loop.saving
    asks = [loop.is_sync[i] and not (i in kept or i - 1 in staging) for i in range(n)]
    gone = [asks[i] or (loop.fetch[i] and i + 1 < n and asks[i + 1]) for i in range(n)]
    of_gone = [gone[a] and loop.fetch[a] for a in loop.action_of_event]
    return replace(
        loop,
        waits=[-1 if g else w for w, g in zip(loop.waits, gone, strict=True)],
        call=[0.0 if g else c for c, g in zip(loop.call, gone, strict=True)],
        free=[_kept(loop, i) if gone[i] and loop.is_sync[i] else f for i, f in enumerate(loop.free)],
        duration=[0.0 if g else d for d, g in zip(loop.duration, of_gone, strict=True)],
        delay=[0.0 if g else d for d, g in zip(loop.delay, of_gone, strict=True)],
        gap=[0.0 if g else x for x, g in zip(loop.gap, of_gone, strict=True)],
    )


def _kept(loop: Loop, i: int) -> float:
    """The part of an action's host time that is not dispatch: the loader, stalls and the like."""
    return sum(parts[i] for parts in loop.spent.values())


def as_graph(loop: Loop, *, node_gap_ns: float) -> Loop:
    """Launches of a step as one graph: no dispatch between them, the device steps from node to node."""
    gap = [
        (min(g, node_gap_ns) if q else node_gap_ns) if kernel else max(g, 0.0)
        for g, q, kernel in zip(loop.gap, loop.queued, loop.is_kernel, strict=True)
    ]
    return replace(
        loop,
        free=[_kept(loop, i) for i in range(len(loop.free))],
        tail=[sum(parts[k] for parts in loop.spent_tail.values()) for k in range(len(loop.tail))],
        call=[0.0] * len(loop.call),
        gap=gap,
        delay=[0.0] * len(loop.delay),
        paced={i: (since, 0.0) for i, (since, _) in loop.paced.items()},
        paced_tail={k: (since, 0.0) for k, (since, _) in loop.paced_tail.items()},
    )


def at_pace(loop: Loop, since: float) -> Loop:
    """The loop with a loader that delivers a batch every `since` ns."""
    before, tails = ({i: (since, after) for i, (_, after) in found.items()} for found in loop.batches)
    return replace(loop, paced=before, paced_tail=tails)


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What a cure makes of GPU events (by their index in the `Work`): other durations, events that are launched no
    more, and host time more than before ahead of a launch. All in ns. `stays` is the share of the host's dispatch of
    the launches gone that is not spared."""

    duration: dict[int, float] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()
    host: dict[int, float] = field(default_factory=dict)
    stays: float = 0.0


def edited(loop: Loop, edit: Edit) -> Loop:
    """The loop with the edit made. A launch of which nothing is left takes no time of the host, and neither does the
    dispatch before it (but for what `stays`); what the host spends there in a cause (the loader, a stall) stays."""
    left = [0] * len(loop.free)
    for event, action in zip(loop.event, loop.action_of_event, strict=True):
        left[action] += event not in edit.gone
    launches = set(loop.action_of_event)
    idle = {a for a in launches if not left[a] and not loop.is_sync[a] and loop.waits[a] < 0}
    free = [
        (kept := _kept(loop, i)) + edit.stays * max(f - kept, 0.0) if i in idle else f
        for i, f in enumerate(loop.free)
    ]
    for event, action in zip(loop.event, loop.action_of_event, strict=True):
        if event in edit.host:
            free[action] += edit.host[event]
    gone = [event in edit.gone for event in loop.event]
    return replace(
        loop,
        free=free,
        call=[edit.stays * c if i in idle else c for i, c in enumerate(loop.call)],
        duration=[
            0.0 if g else edit.duration.get(event, d)
            for event, d, g in zip(loop.event, loop.duration, gone, strict=True)
        ],
        gap=[0.0 if g else x for x, g in zip(loop.gap, gone, strict=True)],
        delay=[0.0 if g else d for d, g in zip(loop.delay, gone, strict=True)],
        lag=[0.0 if g else x for x, g in zip(loop.lag, gone, strict=True)],
    )


def pinned_copies(loop: Loop, *, bytes_per_s: float, overlapped: bool) -> Loop:
    """Pageable copies from pinned memory instead: at the link's rate and, to the device, without holding the
    host (a result that is fetched is waited for, whatever the memory); `overlapped` on a stream of their own,
    a batch ahead."""
    copies = -2  # no stream of a file is negative
    duration, stream = list(loop.duration), list(loop.stream)
    held: set[int] = set()
    for j, pageable in enumerate(loop.pageable):
        if pageable and loop.bytes[j] > 0:
            duration[j] = min(duration[j], loop.bytes[j] / bytes_per_s * 1e9)
            if loop.fetch[loop.action_of_event[j]]:
                continue
            held.add(loop.action_of_event[j])
            if overlapped:
                stream[j] = copies
    usual = float(np.median([c for i, c in enumerate(loop.call) if i not in held] or [5_000.0]))
    freed = {i for i in range(len(loop.waits)) if i in held or (loop.is_sync[i] and i - 1 in held)}
    return replace(
        loop,
        duration=duration,
        stream=stream,
        waits=[-1 if i in freed else w for i, w in enumerate(loop.waits)],
        call=[min(c, usual) if i in held else c for i, c in enumerate(loop.call)],
    )
