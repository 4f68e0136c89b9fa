"""Verdicts of traces: why the GPUs were idle, and what each cure is worth.

Each rule is a function, its docstring the manual page; the modules of this folder hold them by topic. A rule over
one rank and device takes its `study`, a rule over all of them `ranks`. A cause is a finding when its cure, replayed on the step nobody recorded,
saves time; what costs nothing is a pass.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from wellfed.analyze import Found, Study
from wellfed.analyze.cures_together import joint_of
from wellfed.analyze.together import RanksFound
from wellfed.check.manual import Manual
from wellfed.check.trace.communication import with_knobs
from wellfed.check.trace.fold import fold_ranks, saves_of, with_causes, with_split
from wellfed.check.trace.presence import unreadable
from wellfed.check.trace.verdicts import gain_of, placed, priced_run
from wellfed.model import Case, Verdict
from wellfed.model.base import replace
from wellfed.model.verdict import worth
from wellfed.predict.compose import compose, share

__all__ = [
    "judge_ranks",
    "judge_study",
    "judge_trace",
    "pages",
    "rules",
    "saves_of",
    "together",
    "unreadable",
    "with_knobs",
]

FASTER_KERNELS = ("T310", "T320", "T330", "T340")
"""Findings whose cure makes the device compute less: its busy time is no bound for them."""
Rule = Callable[[Study], Verdict | None]
RanksRule = Callable[[RanksFound], Verdict | None]


def judge_trace(found: Found, *, price: float | None = None) -> tuple[Verdict, ...]:
    """A verdict of every trace rule for every rank and device, by worth. `price` is USD per GPU and hour; the
    catalogue's dated price when None."""
    verdicts = [v for study in found.studies for v in judge_study(study, price=price)]
    return tuple(sorted(verdicts, key=worth))


def judge_study(study: Study, *, price: float | None = None) -> tuple[Verdict, ...]:
    """The verdicts of one rank and device."""
    said = ((page, function(study)) for page, function in rules())
    return tuple(placed(verdict, page, study, price) for page, verdict in said if verdict is not None)


def judge_ranks(
    verdicts: Iterable[Verdict], found: RanksFound, *, price: float | None = None
) -> tuple[Verdict, ...]:
    """The verdicts of all ranks together, by worth: each rank's own folded where they say the same, and those of the
    rules over all ranks."""
    folded = [with_split(verdict, found) for verdict in fold_ranks(verdicts, found)]
    for page, function in ranks_rules():
        verdict = function(found)
        if verdict is not None:
            sources = page.sources if verdict.verdict == "finding" else ()
            verdict = replace(verdict, code=page.code, name=page.name, layer="trace", sources=sources)
            folded.append(priced_run(verdict, found, price))
    return tuple(sorted(with_causes(folded), key=worth))


@cache
def rules() -> tuple[tuple[Manual, Rule], ...]:
    """The rules over a study, by code."""
    return tuple((page, f) for page, f in _all() if next(iter(inspect.signature(f).parameters)) == "study")


@cache
def ranks_rules() -> tuple[tuple[Manual, RanksRule], ...]:
    """The rules over all ranks, by code."""
    return tuple((page, f) for page, f in _all() if next(iter(inspect.signature(f).parameters)) == "ranks")


def pages() -> tuple[Manual, ...]:
    """The manual pages of all rules of this folder, by code."""
    return tuple(page for page, _ in _all())


@cache
def _all() -> tuple[tuple[Manual, Any], ...]:
    modules = [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
    found = {
        value.manual.code: (value.manual, value)
        for module in modules
        for value in vars(module).values()
        if isinstance(getattr(value, "manual", None), Manual)
    }
    return tuple(found[code] for code in sorted(found))


def together(case: Case) -> tuple[float, float] | None:
    """What curing every finding above info of the worst rank is worth, as (low, high) speed-ups of its step. None with
    fewer than two such findings.

    The joint cure as replayed, where these are what was replayed together. Else the bounds that hold: at least the best
    alone, at most all savings added up, each at its own end of its interval, and never below the time the device computes
    (where none of them makes it compute less). A joint cure does no less than each of its parts: never below the interval of one alone, at either end."""
    mine = [
        v
        for v in case.rank_verdicts or case.verdicts
        if v.verdict == "finding" and v.layer == "trace" and v.severity != "info" and "device" in v.where
    ]
    mine = [v for v in mine if v.gain is not None and v.gain.saves_ms and v.where == mine[0].where]
    if len(mine) < 2:
        return None
    where = mine[0].where
    rank = next((r for r in case.ranks if r.device == where["device"] and r.rank == where.get("rank")), None)
    if rank is None or rank.step_budget is None:
        return None
    gains = [v.gain for v in mine if v.gain is not None]
    low, high = max(gain.low or 1.0 for gain in gains), max(gain.high or 1.0 for gain in gains)
    kept, here = rank.replay.get("together"), {v.name for v in mine}
    if kept and here <= set(kept["cures"]):
        joint = gain_of(joint_of(kept))
        if here == set(kept["cures"]):
            low = max(low, joint.low or 1.0)
        return low, max(high, joint.high or 1.0)  # more cures than these do no less than these
    step, floor = float(rank.step_budget.span_ns), float(rank.step_budget.compute_ns)
    if any(v.code in FASTER_KERNELS for v in mine):
        floor = 0.0
    _, most = compose(step, [share(gain.high or 1.0) * step for gain in gains], floor=floor, disjoint=False)
    return low, max(high, most)
