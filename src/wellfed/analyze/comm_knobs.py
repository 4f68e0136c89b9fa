"""What the settings of DDP and FSDP would save of a step, from the calls that one rank made.

Each is an overlap model with its bounds, not a promise:

- Larger buckets (`bucket_cap_mb`): the all-reduces of a step run one after the other as soon as their bucket is ready;
  k of them joined are ready with the last one and spare the start-up of the others, as fitted to the calls at hand
  (`t = alpha + S / beta`). A bucket is ready when it is launched and what was computing before that is done: so NCCL's
  stream waits. At most it saves every start-up but one, at least half of what is likely. The model must first give the
  recorded end back within 2 % of the step.
- `gradient_as_bucket_view`: the kernels under `copy_bucket_to_grad` go.
- `static_graph`: `search_unused_parameters` goes, which is host time: at most that.
- FSDP prefetch: an all-gather that starts one unit earlier hides behind the computing since the one before it.
- FSDP without resharding after forward: the second gathering of the same parameters goes, for their memory.
"""

import re
from typing import NamedTuple

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.collectives import CollectiveSeries
from wellfed.analyze.launches import Launches
from wellfed.analyze.turns import turns
from wellfed.model.change import Risk
from wellfed.model.timeline import I64, Cat, Mask, Timeline
from wellfed.predict.collective import curve_of, fit_alpha_beta

IDENTITY_LIMIT = 0.02
MIN_CALLS = 3
_VIEW = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
_SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"
_DDP = re.compile(r"DistributedDataParallel\.forward|distributed(?:\.ddp\.|::)reducer::")
_FSDP = re.compile(r"FSDP|FullyShardedDataParallel|fully_shard")


class Knob(NamedTuple):
    """A setting and what it saves of a step, ns: at least, likely, at most. `text` says of what."""

    name: str
    remedy: str
    low: float
    expected: float
    high: float
    risk: Risk
    text: str


def comm_knobs(timeline: Timeline, device: int, series: CollectiveSeries, step_ns: int) -> tuple[Knob, ...]:
    """The settings that would save something, for a rank that uses DDP or FSDP; empty for another, without steps, or
    where the model does not give the recorded calls back. `step_ns` is the recorded step."""
    if not len(series) or step_ns <= 0 or not (series.step >= 0).any():
        return ()
    knobs: list[Knob | None] = []
    if any(_DDP.search(n) for n in timeline.names):
        work = Work(timeline, device)
        launches = Launches(timeline, work)
        ready = _ready(timeline, series, work, launches)
        knobs += [_buckets(series, ready, step_ns), *_reducer(timeline, series, work, launches)]
    if any(_FSDP.search(n) for n in timeline.names):
        knobs += [_prefetch(series), _reshard(series)]
    return tuple(k for k in knobs if k is not None and k.high > 0)


def _steps(series: CollectiveSeries, op: str) -> list[I64]:
    """The rows of each step's calls of one operation, whole steps with enough of them."""
    wanted = np.array([o == op for o in series.ops] or [False])[series.op] & (series.size > 0)
    found = [np.flatnonzero(wanted & (series.step == n)) for n in np.unique(series.step[series.step >= 0])]
    return [rows for rows in found if len(rows) >= MIN_CALLS]


def _ready(timeline: Timeline, series: CollectiveSeries, work: Work, launches: Launches) -> I64:
    """When each call could have started: launched, and what was computing before its launch is done. Its start where
    the launch is not known. On the clock of the series."""
    base = int(series.start[0]) - int(work.ts[work.comm].min()) if len(series) else 0
    at = np.flatnonzero(work.comm)
    at = at[np.searchsorted(work.ts[at], series.start - base)]
    known = work.compute & ~launches.orphan
    order = np.argsort(launches.start[known], kind="stable")
    begun, done = launches.start[known][order], np.maximum.accumulate(work.end[known][order])
    before = np.searchsorted(begun, launches.start[at])
    computed = np.append(np.iinfo(np.int64).min, done)[before]
    ready = np.where(launches.orphan[at], work.ts[at], np.maximum(launches.start[at], computed))
    return np.minimum(ready, work.ts[at]) + base


def _buckets(series: CollectiveSeries, ready: I64, step_ns: int) -> Knob | None:
    steps = _steps(series, "all_reduce")
    if not steps:
        return None
    every = np.concatenate(steps)
    if len(np.unique(series.group[every])) > 1:
        return None
    took = (series.end - series.start)[every] * 1e-9
    curve = curve_of("all_reduce", 2, series.size[every].astype(np.float64), took.astype(np.float64))
    fit = fit_alpha_beta(np.array(curve.sizes), np.array(curve.seconds)) if curve is not None else None
    if fit is None or fit.alpha_s <= 0:
        return None
    base = [_end(series, ready, rows, 1, fit.alpha_s) for rows in steps]
    off = [abs(one - series.end[rows].max()) / step_ns for one, rows in zip(base, steps, strict=True)]
    if float(np.median(off)) > IDENTITY_LIMIT:
        return None
    best, saved = 1, 0.0
    for k in (2, 4, 8, 16):
        ends = [_end(series, ready, rows, k, fit.alpha_s) for rows in steps]
        gains = [b - e for b, e in zip(base, ends, strict=True)]
        if (gain := float(np.median(gains))) > saved:
            best, saved = k, gain
    if best == 1:
        return None
    exposed = float(np.median([series.exposed[rows].sum() for rows in steps]))
    calls = float(np.median([len(rows) for rows in steps]))
    most = min((calls - 1) * fit.alpha_s * 1e9, exposed)
    saved = min(saved, exposed)
    usual = float(np.median(series.size[every]))
    cap = max(round(best * usual / (1 << 20)), 1)
    return Knob(
        "bucket-size", f"bucket_cap_mb={cap}", 0.5 * saved, saved, max(most, saved), "restart",
        f"{calls:.0f} all-reduces a step of {usual / 1e6:.1f} MB, each {fit.alpha_s * 1e6:.0f} us to start",
    )  # fmt: skip


def _end(series: CollectiveSeries, ready: I64, rows: I64, joined: int, alpha_s: float) -> float:
    """When the last of a step's calls ends if so many are joined to one: each is ready with its last part, and spares
    the start-up of the others."""
    begin, took = ready[rows].astype(np.float64), (series.end - series.start)[rows].astype(np.float64)
    at = -np.inf
    for k in range(0, len(rows), joined):
        part = slice(k, k + joined)
        spared = (len(begin[part]) - 1) * alpha_s * 1e9
        at = max(at, float(begin[part][-1])) + max(float(took[part].sum()) - spared, alpha_s * 1e9)
    return at


def _reducer(timeline: Timeline, series: CollectiveSeries, work: Work, launches: Launches) -> list[Knob]:
    """What DDP's reducer does besides communicating, a step."""
    steps = max(len(np.unique(series.step[series.step >= 0])), 1)
    found: list[Knob] = []
    name = timeline.named(_VIEW.__eq__)
    ops = np.flatnonzero(name[timeline.name] & (timeline.cat == Cat.OP))
    if len(ops):
        inside = _launched_in(timeline, ops, launches)
        spent = float((work.end - work.ts)[inside].sum()) / steps
        found.append(
            Knob(
                "bucket-view", "gradient_as_bucket_view=True", 0.0, spent, spent, "restart",
                f"{len(ops) / steps:.0f} gradients a step are copied out of their bucket",
            )
        )  # fmt: skip
    name = timeline.named(_SEARCH.__eq__)
    rows = np.flatnonzero(name[timeline.name])
    if len(rows):
        spent = float(timeline.dur[rows].sum()) / steps
        found.append(
            Knob(
                "static-graph", "static_graph=True (or find_unused_parameters=False)", 0.0, 0.0, spent, "restart",
                "the graph is searched for unused parameters each step, on the host",
            )
        )  # fmt: skip
    return found


def _launched_in(timeline: Timeline, ops: I64, launches: Launches) -> Mask:
    """Which GPU events were launched within one of these operators (of one kind, so not within each other)."""
    row = np.maximum(launches.row, 0)
    inside = np.zeros(len(row), bool)
    for thread in np.unique(timeline.thread[ops]).tolist():
        own = ops[timeline.thread[ops] == thread]
        place = np.searchsorted(timeline.ts[own], launches.start, side="right") - 1
        holder = own[np.maximum(place, 0)]
        hit = (place >= 0) & (launches.row >= 0) & (timeline.thread[row] == thread)
        inside |= hit & (timeline.end[holder] >= launches.start)
    return inside


def _prefetch(series: CollectiveSeries) -> Knob | None:
    steps = _steps(series, "all_gather")
    if not steps:
        return None
    likely, most = [], []
    for rows in steps:
        exposed = series.exposed[rows].astype(np.float64)
        room = np.append(0.0, np.maximum(series.start[rows][1:] - series.end[rows][:-1], 0))
        likely.append(float(np.minimum(exposed, room).sum()))
        most.append(float(exposed.sum()))
    return Knob(
        "fsdp-prefetch", "prefetch the next unit (forward_prefetch=True, set_modules_to_forward_prefetch)",
        0.0, float(np.median(likely)), float(np.median(most)), "restart",
        f"{np.median([len(r) for r in steps]):.0f} all-gathers a step",
    )  # fmt: skip


def _reshard(series: CollectiveSeries) -> Knob | None:
    """Parameters that are gathered twice a step, for forward and for backward: the second time."""
    steps = _steps(series, "all_gather")
    saved: list[float] = []
    held: list[float] = []
    for rows in steps:
        sizes = series.size[rows]
        _, inverse, count = np.unique(sizes, return_inverse=True, return_counts=True)
        if (count % 2).any():
            return None  # not each twice: sizes don't tell which is which
        seen = turns(inverse.ravel())
        again = seen >= count[inverse.ravel()] // 2
        saved.append(float(series.exposed[rows][again].sum()))
        held.append(float(sizes[~again].sum()))
    if not saved:
        return None
    spent = float(np.median(saved))
    return Knob(
        "fsdp-reshard", "reshard_after_forward=False", 0.0, spent, spent, "restart",
        f"parameters are gathered again for backward; keeping them takes {np.median(held) / 1e9:.1f} GB more",
    )  # fmt: skip
