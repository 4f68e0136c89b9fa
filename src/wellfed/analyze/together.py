"""The ranks of one look: which rank each file is, and what they say together.

A rank's timeline is studied and let go; what stays are its summary and the columns of its collectives, so that
memory holds one timeline a process however many ranks there are.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wellfed.analyze.collectives import CollectiveSeries, joined
from wellfed.analyze.comm_calls import collectives_of, comm_devices, cpu_collectives_of, step_numbers
from wellfed.analyze.cpu_comm import cpu_calls
from wellfed.analyze.links import LinkCurves, link_curves
from wellfed.analyze.matching import match_ranks
from wellfed.analyze.ranks import study_ranks
from wellfed.model import Curve
from wellfed.model.base import replace
from wellfed.model.ranks import RanksStudy
from wellfed.model.timeline import Timeline
from wellfed.model.trace import RankTrace, TraceWarning

BY_ORDER = "ranks-by-order"
MAX_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class RanksFound:
    """All ranks of a look: their summaries, in the order of the ranks, and what their collectives say together (None:
    fewer than two ranks have any). `missing` are ranks of the world that no file is of. `steps` is how many whole
    steps a rank has (median over ranks, 0: none), `step_ns` what one takes without the profiler (the longest rank's,
    None: not known)."""

    ranks: tuple[RankTrace, ...]
    study: RanksStudy | None = None
    world: int | None = None
    missing: tuple[int, ...] = ()
    steps: int = 0
    step_ns: int | None = None
    series: tuple[CollectiveSeries, ...] = field(default=(), repr=False)

    @property
    def gpus(self) -> int:
        """Devices with work."""
        return sum(rank.budget is not None for rank in self.ranks)


def series_of_timeline(timeline: Timeline) -> tuple[CollectiveSeries, ...]:
    """The collectives of a timeline, one series for each device that has any. Where several devices have (one
    process drives them all), each counts as a rank of its own, numbered by device."""
    devices = comm_devices(timeline)
    if len(devices) < 2:
        return tuple(collectives_of(timeline, device) for device in devices)
    return tuple(collectives_of(timeline, device, rank=device) for device in devices)


def with_cpu_calls(series: Sequence[CollectiveSeries], timeline: Timeline) -> tuple[CollectiveSeries, ...]:
    """The series of a timeline with its collectives on the CPU (Gloo, MPI) among them. Where one process drives
    several devices it is not known which of them those are of: they are left out."""
    device = next(iter(comm_devices(timeline)), next(iter(sorted(timeline.gpus)), 0))
    if len(series) > 1 or not cpu_calls(timeline).any():
        return tuple(series)
    found = cpu_collectives_of(timeline, device)
    return (joined(series[0], found) if series else found,)


def of_steps(series: CollectiveSeries, ranks: Sequence[RankTrace]) -> CollectiveSeries:
    """Those calls that belong to the steps that the ranks kept."""
    names = [step.name for rank in ranks for step in rank.steps]
    keep = np.isin(series.step, step_numbers(names))
    columns = ("group", "op", "seq", "start", "end", "size", "step", "exposed")
    return replace(series, **{name: getattr(series, name)[keep] for name in columns})


def fold_warnings(of_ranks: Sequence[tuple[TraceWarning, ...]]) -> tuple[TraceWarning, ...]:
    """Each kind of warning once, its counts added up; the sample is the first rank's."""
    if len(of_ranks) < 2:
        return tuple(w for one in of_ranks for w in one)
    kinds: dict[tuple[str, str], list[TraceWarning]] = {}
    for one in of_ranks:
        for w in one:
            kinds.setdefault((w.code, w.weakens), []).append(w)
    return tuple(
        replace(
            same[0],
            count=sum(w.count for w in same),
            sample=same[0].sample + (f" (and on {len(same) - 1} more ranks)" if len(same) > 1 else ""),
        )
        for same in kinds.values()
    )


def rank_told(timeline: Timeline) -> int | None:
    """The rank that the file itself tells, by content or name; None where a reader only counted processes."""
    return None if any(w.code == BY_ORDER for w in timeline.warnings) else timeline.rank


def mark_of(timeline: Timeline) -> tuple[int, ...]:
    """The same for two copies of one recording, and for no two recordings: absolute time and all times in ns."""
    times = zlib.crc32(np.ascontiguousarray(timeline.ts).data)
    return len(timeline), timeline.base_ns, times, zlib.crc32(np.ascontiguousarray(timeline.dur).data, times)


def once(
    marks: Sequence[tuple[int | None, tuple[int, ...]]], sources: Sequence[str]
) -> tuple[list[int], tuple[TraceWarning, ...]]:
    """Which timelines to keep: of each rank told and mark the first. A copy is no second rank; it is told."""
    first: dict[tuple[int | None, tuple[int, ...]], int] = {}
    kept: list[int] = []
    copies: list[str] = []
    for k, mark in enumerate(marks):
        events = mark[1][0]
        before = first.setdefault(mark, k)
        if before == k or not events:
            kept.append(k)
        else:
            copies.append(f"{sources[k]} is a copy of {sources[before]}")
    if not copies:
        return kept, ()
    warning = TraceWarning(
        code="same-recording",
        count=len(copies),
        sample="; ".join(copies[:MAX_NAMED]) + ": counted once",
        weakens="how many ranks there are",
    )
    return kept, (warning,)


def rank_numbers(
    told: Sequence[int | None], sources: Sequence[str]
) -> tuple[list[int | None], tuple[TraceWarning, ...]]:
    """The rank of each timeline. One alone stays as it is. Of several, those that tell none get the lowest numbers
    left, in order; a doubt is a warning, and so are two timelines of one rank."""
    found = list(told)
    warnings: list[TraceWarning] = []
    if len(found) < 2:
        return found, ()
    taken = {r for r in found if r is not None}
    untold = [k for k, r in enumerate(found) if r is None]
    free = (n for n in range(len(found) + len(taken) + 1) if n not in taken)
    for k in untold:
        found[k] = next(free)
    if untold:
        few = ", ".join(f"{sources[k]} as {found[k]}" for k in untold[:MAX_NAMED])
        warnings.append(
            TraceWarning(
                code=BY_ORDER,
                count=len(untold),
                sample=f"neither content nor name tells the rank: counted in the order of the files ({few})",
                weakens="which rank is which",
            )
        )
    seen: dict[int | None, list[str]] = {}
    for rank, source in zip(found, sources, strict=True):
        seen.setdefault(rank, []).append(source)
    twice = {rank: names for rank, names in seen.items() if len(names) > 1}
    if twice:
        rank, names = next(iter(twice.items()))
        warnings.append(
            TraceWarning(
                code="duplicate-ranks",
                count=sum(len(names) - 1 for names in twice.values()),
                sample=f"rank {rank}: {', '.join(names[:MAX_NAMED])}",
                weakens="what ranks say together: of each rank the first file is compared",
            )
        )
    return found, tuple(warnings)


def ranks_found(
    ranks: Sequence[RankTrace],
    series: Sequence[CollectiveSeries],
    *,
    saves: Mapping[str, Mapping[int, float]] | None = None,
    network: str | None = None,
    curves: Sequence[Curve] = (),
) -> RanksFound:
    """What the ranks say together. `saves` are cures to replay over all ranks: by code, which share of its own work
    each rank is spared. `network` is the link between nodes, as the catalogue names it; `curves` were
    measured, and go before what the catalogue says of links."""
    told = [s.world for s in series if s.world]
    world = max(told, default=None)
    here = {r.rank for r in ranks if r.rank is not None} | {s.rank for s in series}
    missing = tuple(sorted(set(range(world)) - here)) if world and world <= 1_000_000 else ()
    counts = sorted(len(r.steps) for r in ranks if r.budget is not None)
    spans = [r.step_budget.span_ns for r in ranks if r.step_budget is not None]
    study = None
    if len({s.rank for s in series if len(s)}) > 1:
        matching = match_ranks(series)
        devices = {r.rank: r.device for r in ranks if r.rank is not None and r.device is not None}
        links: LinkCurves = link_curves(
            matching.matched, devices, {r.rank: r.gpu for r in ranks if r.rank is not None}, network=network
        )
        study = study_ranks(
            matching, curves=(*links.curves, *curves), links_unknown=links.unknown, saves=saves
        )
        study = replace(study, world=world)
    return RanksFound(
        ranks=tuple(ranks),
        study=study,
        world=world,
        missing=missing,
        steps=counts[len(counts) // 2] if counts else 0,
        step_ns=max(spans, default=None),
        series=tuple(series),
    )
