"""The nouns in a notebook: small HTML fragments for `_repr_html_`.

A fragment styles itself inline with colours that inherit, since a notebook has its own theme and may strip
style sheets. Nothing is drawn here: a picture for each cell would cost half a second.
"""

from collections.abc import Callable
from typing import Any

from wellfed.model import Budget, Case, Ceiling, Machine, RankTrace, Verdict
from wellfed.model.trace import StepBudget
from wellfed.report import story, words
from wellfed.report.charts import LIGHT
from wellfed.report.markup import Safe, join, prose, tag

_ROW = "color:inherit;padding:1px 12px 1px 0;text-align:left;vertical-align:baseline;background:none"
_NUMBER = _ROW.replace("left", "right") + ";white-space:nowrap;font-variant-numeric:tabular-nums"
MAX_VERDICTS = 20


def case_html(case: Case) -> str:
    """Headline, where the step goes, findings by worth, what was not judged."""
    head = story.headline(case)
    blocks = [tag("div", tag("b", prose(head.text)))]
    if case.machine is not None:
        blocks.append(tag("div", story.machine_phrase(case.machine), style="opacity:.75"))
    for warning in case.warnings[:MAX_VERDICTS]:
        weakens = join((" weakens ", prose(warning.weakens))) if warning.weakens else None
        blocks.append(
            tag(
                "div",
                "! ",
                tag("code", warning.code),
                f" x{warning.count:,}" if warning.count else "",
                weakens,
            )
        )
    rank = story.shown_rank(case)
    if rank is not None:
        blocks.append(_rank(rank))
    listed = story.findings(case)
    blocks += [_verdict(verdict) for verdict in listed[:MAX_VERDICTS]]
    if len(listed) > MAX_VERDICTS:
        blocks.append(tag("div", f"{len(listed) - MAX_VERDICTS} more findings"))
    if case.verdicts:
        blocks.append(tag("div", story.counts_phrase(case), style="opacity:.75"))
    return _box(*blocks)


def budget_html(budget: Budget | StepBudget | RankTrace) -> str:
    """Parts of a budget with their shares; of a RankTrace the clean step when there is one."""
    rank = budget
    if isinstance(budget, Budget):
        rank = RankTrace(budget=budget)
    elif isinstance(budget, StepBudget):
        rank = RankTrace(step_budget=budget)
    assert isinstance(rank, RankTrace)
    return _box(_rank(rank))


def verdict_html(verdict: Verdict) -> str:
    """One verdict: mark, message, cost, gain, remedy, proof."""
    return _box(_verdict(verdict))


def machine_html(machine: Machine) -> str:
    """A dozen lines of the machine, and how much could not be seen."""
    rows = [
        tag("tr", tag("td", name, style=_ROW + ";opacity:.75"), tag("td", text, style=_ROW))
        for name, text in story.machine_lines(machine)
    ]
    gaps = tag("div", f"{len(machine.gaps):,} fields could not be seen: see gaps", style="opacity:.75")
    return _box(
        tag("b", story.machine_phrase(machine)), tag("table", *rows), gaps if machine.gaps else Safe("")
    )


def ceiling_html(ceiling: Ceiling) -> str:
    """One line: best, share of peak, spread, verdict."""
    facts = [story.of_peak(ceiling), story.spread(ceiling), ceiling.verdict, ceiling.why]
    best = f"{words.number(ceiling.best)} {ceiling.unit}"
    return _box(tag("b", f"{ceiling.title or ceiling.id}: {best}"), f"; {'; '.join(filter(None, facts))}")


def _box(*children: Any) -> str:
    return tag("div", *children, style="line-height:1.45;overflow-wrap:anywhere")


def _rank(rank: RankTrace) -> Safe:
    told = story.step_story(rank, small=0.002)
    if told is None:
        return tag("div", f"{story.rank_name(rank)}: no GPU event in the trace")
    factor, unit, decimals = words.column_scale(told.span_ns)
    named = rank.rank is not None or rank.device is not None or rank.gpu or rank.source
    rows = []
    for part in told.parts:
        width = f"width:{min(part.share, 1) * 12:.2f}em;margin-left:{part.start_ns / told.span_ns * 12:.2f}em"
        bar = tag("div", style=f"{width};height:.7em;background:{LIGHT[part.group]}")
        time = f"{part.ns / factor:,.{decimals}f} {unit}"
        cells = [tag("td", tag("code", part.name), style=_ROW), tag("td", time, style=_NUMBER)]
        cells.append(tag("td", words.percent(part.share), style=_NUMBER))
        rows.append(tag("tr", *cells, tag("td", bar, style=_ROW + ";width:12em")))
    title = told.title if named else ("Where the step goes" if told.whole_step else "Where the capture goes")
    note = words.duration(told.span_ns) + (f"; {told.basis}" if named else "")
    return join((tag("div", f"{title} ({note})"), tag("table", *rows)))


def _verdict(verdict: Verdict) -> Safe:
    mark = verdict.severity.upper() if verdict.verdict == "finding" else verdict.verdict
    colour = {"error": "idle", "warning": "comm", "info": "compute"}[verdict.severity]
    style = f"color:{LIGHT[colour]}" if verdict.verdict == "finding" else None
    title = tag("div", tag("b", mark, style=style), " ", tag("code", verdict.code), " ", tag("b", verdict.name), ": ",
                prose(verdict.message))  # fmt: skip
    fields = (
        ("cost", words.cost_phrase(verdict.cost)),
        ("gain", words.gain_phrase(verdict.gain)),
        ("remedy", verdict.remedy),
        ("verify", verdict.verify),
    )
    rows = [
        tag("tr", tag("td", name, style=_ROW + ";opacity:.75"), tag("td", prose(text), style=_ROW))
        for name, text in fields
        if text
    ]
    return join((title, tag("table", *rows) if rows else None))


SHOWN: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (Case, case_html),
    (Budget, budget_html),
    (StepBudget, budget_html),
    (RankTrace, budget_html),
    (Verdict, verdict_html),
    (Machine, machine_html),
    (Ceiling, ceiling_html),
)


def install() -> None:
    """Teaches the nouns to show themselves in a notebook. They can't know how: imports point down. Called
    when `wellfed.api` is imported; calling it again changes nothing."""
    for noun, show in SHOWN:
        noun._repr_html_ = show  # type: ignore[attr-defined]
