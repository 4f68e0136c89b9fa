"""Verdicts of a pipeline's operation records: what stragglers cost, which worker or stage, and the bubble.

The codes and pages are those of the rules over ranks (`straggler`, `pipeline-bubble`), whose texts say both.
"""

from wellfed.analyze.together import RanksFound
from wellfed.check.manual import Manual
from wellfed.check.trace.ranks import bubble, judge_bubble, judge_straggler
from wellfed.check.trace.verdicts import HIDDEN_SHARE, MODEL_ERROR, severity_of, unjudged
from wellfed.model import Cost, Evidence, Gain, Verdict
from wellfed.model.base import replace
from wellfed.model.counting import counted
from wellfed.model.ranks import Stragglers
from wellfed.predict.compose import share

IDENTITY_LIMIT = 0.05
"""How far the replayed step may be from the recorded one, launch delays being left out, before nothing is said: the
authors leave out jobs above 5 % (OSDI 2025, section 3.3)."""
SHOWN = 4


def judge_records(found: Stragglers, *, source: str, price: float | None = None) -> tuple[Verdict, ...]:
    """The verdicts of one job's records. `price` is USD per GPU and hour; None: no price, since records name no GPU."""
    if abs(found.error) > IDENTITY_LIMIT:
        said = f"the replay is {found.error:+.1%} off the recorded steps (limit {IDENTITY_LIMIT:.0%})"
        return tuple(
            _named(page, replace(unjudged("no-replay", said), where={"file": source}), found, None)
            for page in map(_page, (judge_straggler, judge_bubble))
        )
    verdicts = ((_page(judge_straggler), _straggler(found, source)), (_page(judge_bubble), _bubble(found)))
    return tuple(_named(page, verdict, found, price) for page, verdict in verdicts)


def _page(function: object) -> Manual:
    page: Manual = function.manual  # type: ignore[attr-defined]
    return page


def _named(page: Manual, verdict: Verdict, found: Stragglers, price: float | None) -> Verdict:
    cost = verdict.cost
    if cost is not None and cost.value is not None:
        gpus = found.replicas * found.stages
        usd = None
        if price is not None and found.measured_s > 0:
            usd = round(cost.value / (found.measured_s * 1e3) * price * 24 * gpus, 2)
        why = None if price is not None else "the records name no GPU: give a price with --price"
        cost = replace(cost, gpus=gpus, usd_per_day=usd, price_usd_gpu_h=price, why=why)
    sources = page.sources if verdict.verdict == "finding" else ()
    return replace(verdict, code=page.code, name=page.name, layer="trace", cost=cost, sources=sources)


def _straggler(found: Stragglers, source: str) -> Verdict:
    shape = f"{counted(found.replicas, 'replica')} of {counted(found.stages, 'stage')}, {counted(found.steps, 'step')}"
    if not found.straggling:
        said = f"equal workers would be {found.slowdown:.3f} times as fast ({shape})"
        return Verdict(code="", name="", verdict="pass", message=said, where={"file": source})
    part = share(found.slowdown)
    lost = found.replayed_s - found.ideal_s
    culprit = found.culprit
    gain = _gain(found.slowdown, high=found.slowdown, found=found, of="all workers equal")
    if culprit is None:
        who = "no single worker or stage explains half of it"
        remedy = "make the work of the ranks equal: sort or pack sequences, balance the stages"
    elif "rank" in culprit:
        who = f"rank {culprit['rank']} (replica {culprit['replica']}, stage {culprit['stage']}) alone explains {_part(found.slowest_share or 0.0)} of it"
        remedy = f"look at the machine of rank {culprit['rank']}; move its work to a spare node"
        gain = _cured(found, found.slowest_share or 0.0, lost, f"rank {culprit['rank']} like its peers")
    else:
        stage = culprit["stage"]
        who = f"stage {stage} explains {_part(found.stage_share.get(stage, 0.0))} of it"
        remedy = f"give stage {stage} fewer layers" + (
            " (the last stage also has the loss and the vocabulary)" if stage == found.stages - 1 else ""
        )
        gain = _cured(found, found.stage_share.get(stage, 0.0), lost, f"stage {stage} like the others")
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity=severity_of(part),
        message=f"unequal workers make a step {found.slowdown:.3f} times as long as equal ones would; {who}",
        where={"file": source, **(culprit or {})},
        evidence=(
            Evidence(source=source, at=shape, text=f"T {found.replayed_s:.3f} s, T_ideal {found.ideal_s:.3f} s, recorded {found.measured_s:.3f} s"),
            Evidence(source=source, at="slowdown by a worker alone", text=", ".join(f"rank {w.rank} {w.slowdown:.3f}" for w in found.workers[:SHOWN])),
            Evidence(source=source, at="by a stage alone", text=", ".join(f"stage {p} {s:.3f}" for p, s in sorted(found.by_stage.items(), key=lambda kv: -kv[1])[:SHOWN])),
            Evidence(source=source, at="by a type of operation alone", text=", ".join(f"{k} {s:.3f}" for k, s in list(found.by_kind.items())[:SHOWN])),
        ),
        cost=Cost(value=round(lost * 1e3, 3), unit="ms/step"),
        gain=gain,
        remedy=remedy,
        risk="restart",
    )  # fmt: skip


def _part(of_loss: float) -> str:
    """A share of the loss. Where making a part equal repairs the schedule too, it gives back more than the loss."""
    return "all" if of_loss >= 0.995 else f"{of_loss:.0%}"


def _cured(found: Stragglers, of_loss: float, lost: float, of: str) -> Gain:
    left = max(found.replayed_s - of_loss * lost, found.ideal_s)
    return _gain(found.replayed_s / left, high=found.slowdown, found=found, of=of)


def _gain(speedup: float, *, high: float, found: Stragglers, of: str) -> Gain:
    widen = 1.0 + MODEL_ERROR * min(share(speedup) / 0.05, 1.0)
    return Gain(
        speedup=round(speedup, 3),
        low=round(max(speedup / widen, 1.0), 3),
        high=round(max(high, speedup), 3),
        basis="modelled",
        measured_in="time of a step",
        saves_ms=round(share(speedup) * found.replayed_s * 1e3, 3),
        source=f"what-if of the OSDI 2025 study: {of}",
    )


def _bubble(found: Stragglers) -> Verdict:
    if found.stages < 2:
        return Verdict(code="", name="", verdict="pass", message="one stage: no pipeline")
    if found.bubble < HIDDEN_SHARE:
        return Verdict(
            code="", name="", verdict="pass", message=f"the stages are idle {found.bubble:.1%} of the time"
        )
    step_ns = round(found.replayed_s * 1e9)
    text = f"the stages compute nothing {found.bubble:.0%} of the time; with equal work it would be {found.bubble_ideal:.0%}"
    # only what equal work would leave is the schedule's; the rest is the stragglers'
    return bubble(found.bubble_ideal, found=RanksFound(ranks=(), step_ns=step_ns), text=text, of=[])
