"""One verdict for all ranks that say the same: a problem is one finding, however many GPUs have it.

Verdicts of one code and kind, from different ranks and devices, become one. It is the worst rank's (by worth, then by
cost), says how many ranks it is of and names the worst; every rank's own verdict stays in the case beside it.

What curing it is worth to the *run* is not what it is worth to one rank: ranks wait for each other, and a rank that
others are slower than gains the run nothing. Where the ranks' collectives are matched, all ranks are cured at once in
their replay and that speed-up is stated; else the worst rank's own, said to be that.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from wellfed.analyze.together import RanksFound
from wellfed.check.trace.ranks import exposed_split
from wellfed.check.trace.verdicts import HIDDEN_SHARE, severity_of
from wellfed.model import Cost, Gain, RankTrace, Verdict
from wellfed.model.base import replace
from wellfed.model.verdict import worth
from wellfed.predict.compose import share

MAX_EVIDENCE = 6
WORKS_LESS = frozenset({"T110", "T120", "T130", "T140", "T150", "T160", "T170", "T180"})
"""Codes whose cure shortens a rank's own work, so that the ranks' replay can tell what it is worth."""
ABOUT_LINKS = "T210"
STRAGGLER = "T220"


def fold_ranks(verdicts: Iterable[Verdict], found: RanksFound) -> tuple[Verdict, ...]:
    """The verdicts with those of several ranks folded. Verdicts that name no device stay as they are, and so do all
    where only one rank and device is here."""
    places = len({_place(v) for v in verdicts if "device" in v.where})
    if places < 2:
        return tuple(verdicts)
    groups: dict[tuple[str, str, str | None], list[Verdict]] = {}
    out: list[Verdict] = []
    for verdict in verdicts:
        if "device" in verdict.where:
            groups.setdefault((verdict.code, verdict.verdict, verdict.reason), []).append(verdict)
        else:
            out.append(verdict)
    out += [_folded(group, places, found) for group in groups.values()]
    return tuple(sorted(out, key=worth))


def saves_of(verdicts: Iterable[Verdict], ranks: Sequence[RankTrace]) -> dict[str, dict[int, float]]:
    """For each code that has a cure of a rank's own work: which share of it each rank would be spared."""
    own: dict[tuple[Any, Any], int] = {
        (r.rank, r.device): r.step_budget.span_ns - r.step_budget.exposed_comm_ns - r.step_cpu_comm_ns
        for r in ranks
        if r.rank is not None and r.step_budget is not None
    }
    saves: dict[str, dict[int, float]] = {}
    for v in verdicts:
        work = own.get((v.where.get("rank"), v.where.get("device")), 0)
        if (
            v.code in WORKS_LESS
            and v.verdict == "finding"
            and v.cost is not None
            and v.cost.value
            and work > 0
        ):
            if v.cost.unit != "ms/step" or v.gain is None or v.gain.speedup is None:
                continue
            part = min(v.cost.value * 1e6 / work, 1.0)
            mine = saves.setdefault(v.code, {})
            mine[v.where["rank"]] = max(mine.get(v.where["rank"], 0.0), part)
    return saves


def _place(verdict: Verdict) -> tuple[Any, Any]:
    return verdict.where.get("rank"), verdict.where.get("device")


def _weight(verdict: Verdict) -> tuple[tuple[float, ...], float]:
    return worth(verdict), -(verdict.cost.value or 0.0) if verdict.cost else 0.0


def _folded(group: list[Verdict], places: int, found: RanksFound) -> Verdict:
    worst = min(group, key=_weight)
    here = list(dict.fromkeys(map(_place, group)))
    many = len(here)
    noun, key = ("device", "devices") if len({r for r, _ in here}) < many else ("rank", "ranks")
    numbers = sorted({p[noun == "device"] for p in here if p[noun == "device"] is not None})
    where = {**worst.where, key: numbers}
    if worst.verdict != "finding":
        said = worst.message if many == places else f"{worst.message} ({many} of {places} {noun}s)"
        return replace(worst, message=said, where=where)
    name = worst.where.get(noun)
    all_of = f"all {places} {noun}s" if many == places else f"{many} of {places} {noun}s"
    said = f"{worst.message} ({all_of}" + (f", {noun} {name} most)" if many > 1 else f": {noun} {name})")
    evidence = list(worst.evidence)
    evidence += [e for v in sorted(group, key=_weight)[1:] for e in v.evidence[:1]]
    folded = replace(
        worst, message=said, where=where, evidence=tuple(evidence[:MAX_EVIDENCE]), cost=_cost(worst, group)
    )
    return _of_the_run(folded, found)


def _cost(worst: Verdict, group: list[Verdict]) -> Cost | None:
    """The worst rank's time, everybody's money."""
    cost = worst.cost
    if cost is None:
        return None
    told = [v.cost.usd_per_day for v in group if v.cost is not None and v.cost.usd_per_day is not None]
    return replace(cost, usd_per_day=round(sum(told), 2) if told else None, gpus=len(group))


def _of_the_run(verdict: Verdict, found: RanksFound) -> Verdict:
    """With the gain of the run in place of the worst rank's."""
    gain = verdict.gain
    if gain is None or gain.speedup is None or verdict.code not in WORKS_LESS:
        return verdict
    study = found.study
    if study is None or study.what_if.refused is not None or verdict.code not in study.what_if.cures:
        of = f"rank {verdict.where['rank']}" if verdict.where.get("rank") is not None else "one device"
        return replace(verdict, gain=replace(gain, source=f"{gain.source}; of {of} alone"))
    part = share(study.what_if.cures[verdict.code])
    own = share(gain.speedup)
    factor = part / own if own > 0 else 0.0
    severity = verdict.severity
    said = verdict.message
    if part < HIDDEN_SHARE:
        severity = "info"
        said += "; the run gains next to nothing, since other ranks are slower"
    elif severity != "info":
        severity = severity_of(part)
    return replace(verdict, message=said, severity=severity, gain=_scaled(gain, part, factor, found.step_ns))


def _scaled(gain: Gain, part: float, factor: float, step_ns: int | None) -> Gain:
    def by(one: float | None) -> float | None:
        return None if one is None else round(1.0 / (1.0 - min(share(one) * factor, 0.95)), 3)

    speedup = round(1.0 / (1.0 - min(part, 0.95)), 3)
    low, high = by(gain.low), by(gain.high)
    return replace(
        gain,
        speedup=speedup,
        low=None if low is None else min(low, speedup),
        high=None if high is None else max(high, speedup),
        measured_in="time of the run",
        saves_ms=round(part * step_ns / 1e6, 3) if step_ns else None,
        source="replay of all ranks with each one cured",
    )


def with_split(verdict: Verdict, found: RanksFound) -> Verdict:
    """Exposed communication of many ranks: what of it is waiting, what transfer, and what hiding brings."""
    study = found.study
    if verdict.code != ABOUT_LINKS or verdict.verdict != "finding" or study is None or not study.matched:
        return verdict
    return exposed_split(verdict, found)


def with_causes(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The straggler as a symptom of what only its own rank has."""
    found = list(verdicts)
    for at, verdict in enumerate(found):
        if verdict.code == STRAGGLER and verdict.verdict == "finding":
            own = [verdict.where.get("rank")]
            codes = [
                v.code
                for v in found
                if v.verdict == "finding" and v.code in WORKS_LESS and v.where.get("ranks") == own
            ]
            found[at] = replace(verdict, causes=tuple(codes))
    return found
