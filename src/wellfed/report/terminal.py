"""A Case as terminal text: headline, where the time goes, findings by worth, what was not judged, what next.

Plain string building rather than rich: a typical case takes a few milliseconds where importing rich alone
takes more than a hundred, and the width, the folding and the harmlessness of foreign text are then ours to
test. Colour repeats what words say and never says anything alone.
"""

from collections.abc import Callable, Iterable

from wellfed.model import Case, Ceiling, Verdict
from wellfed.model.counting import counted
from wellfed.model.verdict import Alternative
from wellfed.report import ceilings as measured
from wellfed.report import memory, run, story, topology, words
from wellfed.report.lines import Line, Span, bar, cells, columns, command, flow, paint, prose
from wellfed.report.story import View

NARROWEST, WIDEST = 40, 120
LABEL = 9
GAP: Span = (words.NBSP + " ", "")
MAX_FULL, MAX_BRIEF, MAX_EVIDENCE, MAX_RANKS, MAX_KERNELS = 20, 30, 3, 16, 8
MAX_DEVICES, MAX_STUCK, MAX_HOLDERS = 3, 8, 6
MAX_TEXT = 1000


def render(
    case: Case, *, width: int = 80, color: bool = False, view: View = "doctor", ascii_only: bool = False
) -> str:
    """The text for a terminal `width` cells wide (40 and up; beyond 120 the room stays empty, for reading).
    The caller decides on `color` (NO_COLOR, pipes) and on `ascii_only` (an output that is not Unicode)."""
    width = min(max(width, NARROWEST), WIDEST)
    lines: list[Line] = _headline(case, view, width)
    for section in SECTIONS[view]:
        if block := section(case, width):
            lines += [[], *block]
    if (next_ := story.next_command(case, view)) is not None:
        lines += [[], [("Next", "head")], *command(next_, width, first=[("  ", "")], rest=4)]
    return paint(lines, width=width, color=color, ascii_only=ascii_only)


def _headline(case: Case, view: View, width: int) -> list[Line]:
    head = story.headline(case, view)
    lines = flow(prose(head.text, "head"), width)
    under = []
    if case.machine is not None and (machine := story.machine_phrase(case.machine)) != head.text:
        under.append(machine)
    if view != "inspect" and case.verdicts and (counts := story.counts_phrase(case)) != head.text:
        under.append(counts)
    for text in under:
        lines += flow(prose(text, "dim"), width)
    return lines


def _heading(title: str, note: str, width: int) -> list[Line]:
    """The note beside the title when both fit one line, else below it."""
    head, under = prose(title, "head"), prose(note, "dim")
    if cells([*head, GAP, *under]) <= width:
        return [[*head, GAP, *under]]
    return [*flow(head, width, rest=2), *flow(under, width, first=_pad(2), rest=2)]


# --- run ----------------------------------------------------------------------------------------------


def _run(case: Case, width: int) -> list[Line]:
    if case.run is None:
        return []
    lines = _heading("What was seen", " ".join(case.run.command)[:200], width)
    for subject, text in run.told(case.run):
        lines += flow(prose(text), width, first=[("  ", ""), (f"{subject:<10} ", "dim")], rest=13)
    return lines


# --- trace ---------------------------------------------------------------------------------------------


def _warnings(case: Case, width: int) -> list[Line]:
    if not case.warnings:
        return []
    lines = _heading("Trace warnings", "what the file lacks, and what that weakens", width)
    for warning in case.warnings:
        spans = [*prose(warning.code, "warning"), *prose(f" x{warning.count:,}" if warning.count else "")]
        if warning.weakens:
            spans += [*prose(" weakens ", "dim"), *prose(warning.weakens)]
        if warning.sample:
            spans += prose(f" (such as {words.shorten(warning.sample, 160)})", "dim")
        lines += flow(spans, width, first=[("  ! ", "warning")], rest=4)
    return lines


def _step(case: Case, width: int) -> list[Line]:
    rank = story.shown_rank(case)
    if rank is None:
        if not case.ranks:
            return []
        return flow(prose(f"{story.no_gpu_event(case)}, so there is no step to take apart."), width)
    told = story.step_story(rank)
    if told is None:
        return []
    note = told.basis
    if len(case.ranks) > 1:
        note += f"; of {len(case.ranks)} ranks and devices the one with most idle time"
    factor, unit, decimals = words.column_scale(told.span_ns)

    def row(name: str, ns: int, share: float, drawn: str, style: str, group: str) -> list[Span]:
        time = f"{ns / factor:,.{decimals}f}{words.NBSP}{unit}"
        return [(words.clean(name), style), (time, style), (words.percent(share), style), (drawn, group)]

    taken = 2 + 18 + 2 + max(len(f"{told.span_ns / factor:,.{decimals}f} {unit}"), 6) + 2 + 7 + 2
    room = max(width - taken, 0)
    room = room if room >= 8 else 0
    whole = max(told.span_ns, sum(part.ns for part in told.parts))
    rows = []
    for part in told.parts:
        drawn = bar(part.start_ns / whole, (part.start_ns + part.ns) / whole, room) if room else ""
        rows.append(row(part.name, part.ns, part.share, drawn, "", part.group))
    rows.append(row("step" if told.whole_step else "capture", told.span_ns, 1.0, "", "head", ""))
    return [*_heading(told.title, note, width), *columns(rows, width, align="lrrl")]


def _ranks(case: Case, width: int) -> list[Line]:
    if len(case.ranks) < 2:
        return []
    header = ("rank", "step", "compute", "comm", "copy", "idle", "top cause of idle")
    rows: list[list[Span]] = [[(name, "dim") for name in header]]
    for rank in story.ranks_shown(case, MAX_RANKS):
        name = "/".join(str(n) for n in (rank.rank, rank.device) if n is not None) or "?"
        budget = rank.step_budget or rank.budget
        if budget is None:
            rows.append([(name, ""), *[("", "")] * 5, ("no GPU event", "dim")])
            continue
        times = (budget.compute_ns, budget.exposed_comm_ns, budget.exposed_copy_ns, budget.idle_ns)
        shares = [words.percent(ns / max(budget.span_ns, 1)) for ns in times]
        rows.append(
            [(text, "") for text in (name, words.duration(budget.span_ns), *shares, story.top_cause(rank))]
        )
    keep = range(7) if width >= 76 else (0, 1, 2, 5, 6) if width >= 60 else (0, 1, 2, 5)
    rows = [[row[at] for at in keep] for row in rows]
    align = "".join("lrrrrrl"[at] for at in keep)
    more = len(case.ranks) - MAX_RANKS
    note = "rank/device, shares of its step" + (
        f"; those that stand out, {more:,} more in the JSON" if more > 0 else ""
    )
    lines = [*_heading("Ranks", note, width), *columns(rows, width, align=align, flexible=len(keep) - 1)]
    for line in story.together_lines(case):
        lines += flow(prose(line), width, first=_pad(2), rest=4)
    return lines


def _memory(case: Case, width: int) -> list[Line]:
    blocks = memory.memory_blocks(case)
    lines: list[Line] = []
    for block in blocks[:MAX_DEVICES]:
        lines += [*([[]] if lines else []), *_heading("Memory", block.title, width)]
        for line in block.lines:
            lines += flow(prose(line), width, first=_pad(2), rest=4)
        if block.holders:
            lines += flow(prose(f"held {block.moment} by", "dim"), width, first=_pad(2), rest=4)
            rows: list[list[Span]] = [
                [(text, "") for text in row]
                for row in (*block.holders[:MAX_HOLDERS], *block.holders[MAX_HOLDERS:][-1:])
            ]
            lines += columns(rows, width, align="rrl", flexible=2)
    if (more := len(blocks) - MAX_DEVICES) > 0:
        lines += flow(prose(f"{more} more devices in the JSON", "dim"), width, first=_pad(2))
    return lines


def _hang(case: Case, width: int) -> list[Line]:
    said = memory.hang_lines(case)
    if not said:
        return []
    lines = _heading("Flight records", "calls of all ranks, laid side by side", width)
    for line in said:
        lines += flow(prose(line), width, first=_pad(2), rest=4)
    stuck = memory.stuck_rows(case)
    if not stuck:
        return lines
    used = [at for at in range(len(memory.STUCK_HEADER)) if at < 3 or any(row[at] for row in stuck)]
    rows: list[list[Span]] = [[(memory.STUCK_HEADER[at], "dim") for at in used]]
    rows += [[(row[at], "") for at in used] for row in stuck[:MAX_STUCK]]
    lines += columns(rows, width, align="l" * len(used), flexible=0)
    if (more := len(stuck) - MAX_STUCK) > 0:
        lines += flow(prose(f"{more} more in the JSON", "dim"), width, first=_pad(2))
    return lines


def _kernels(case: Case, width: int) -> list[Line]:
    rank = story.shown_rank(case)
    if rank is None or not rank.kernels:
        return []
    shown = sorted(rank.kernels, key=lambda row: -row.total_ns)[:MAX_KERNELS]
    factor, unit, decimals = words.column_scale(shown[0].total_ns)
    rows: list[list[Span]] = [[(text, "dim") for text in ("kernel", "total", "count", "median")]]
    for kernel in shown:
        total = f"{kernel.total_ns / factor:,.{decimals}f}{words.NBSP}{unit}"
        text = (story.kernel_name(kernel.name), total, f"{kernel.count:,}", words.duration(kernel.median_ns))
        rows.append([(piece, "") for piece in text])
    if width < 60:
        rows = [row[:3] for row in rows]
    note = f"{story.rank_name(rank)}, whole capture"
    return [*_heading("Longest kernels", note, width), *columns(rows, width, align="lrrr"[: len(rows[0])])]


# --- verdicts ------------------------------------------------------------------------------------------


def _findings(case: Case, width: int) -> list[Line]:
    listed = story.findings(case)
    if not listed:
        if not case.counts()["pass"]:
            return []
        return [[("Findings", "head")], *flow(prose("none among what could be judged"), width, first=_pad(2))]
    loud = [v for v in listed if v.severity != "info"]
    quiet = [v for v in listed if v.severity == "info"]
    full, brief = loud[:MAX_FULL], loud[MAX_FULL:] + quiet
    if not loud:
        full, brief = quiet[:3], quiet[3:]
    lines = _heading("Findings", "by worth", width)
    for at, verdict in enumerate(full):
        lines += [*([[]] if at else []), *_finding(verdict, width)]
    if brief:
        lines += [[], *_heading("Also", "opportunities and small things", width)]
        for verdict in brief[:MAX_BRIEF]:
            lines += _brief(verdict, width)
        if len(brief) > MAX_BRIEF:
            lines += flow(prose(f"{len(brief) - MAX_BRIEF} more in the JSON", "dim"), width, first=_pad(2))
    return lines


def _title(verdict: Verdict) -> list[Span]:
    mark = verdict.severity.upper()
    spans = [(mark, verdict.severity), (" ", ""), *prose(f"{verdict.code} {verdict.name}", "head")]
    if verdict.where and (place := words.where_phrase(verdict.where)):
        spans += [GAP, *prose(place, "dim")]
    return spans


def _finding(verdict: Verdict, width: int) -> list[Line]:
    lines = flow(_title(verdict), width, first=_pad(2), rest=4)
    lines += flow(prose(verdict.message), width, first=_pad(4), rest=4)
    lines += _field("cost", story.cost_phrase(verdict), width)
    gain = words.gain_phrase(verdict.gain)
    if gain and (then := story.then_limits(verdict)):
        gain += f"; then {then} limits"
    lines += _field("gain", gain, width, style="good")
    lines += _field("remedy", verdict.remedy, width, whole=True)
    lines += _field("risk", story.risk_phrase(verdict), width)
    lines += _field("undo", verdict.restore, width, whole=True)
    if verdict.causes:
        lines += _field("cause", "a symptom of " + ", ".join(verdict.causes), width)
    for evidence in verdict.evidence[:MAX_EVIDENCE]:
        lines += _evidence(evidence.source, evidence.at, evidence.text, width)
    if (more := len(verdict.evidence) - MAX_EVIDENCE) > 0:
        lines += _field("", f"{more} more in the JSON", width, style="dim")
    if verdict.verify:
        lines += command(verdict.verify, width, first=_label("verify"), rest=4 + LABEL)
    for other in verdict.alternatives:
        lines += _field("or", _alternative(other), width, whole=True)
    return lines


def _alternative(other: Alternative) -> str:
    gain = words.gain_phrase(other.gain)
    return f"{other.remedy}: {gain + '; ' if gain else ''}{other.risk}"


def _pad(count: int) -> list[Span]:
    return [(" " * count, "")]


def _label(name: str) -> list[Span]:
    return [(f"    {name:<{LABEL}}", "dim")]


def _field(name: str, text: str | None, width: int, *, style: str = "", whole: bool = False) -> list[Line]:
    if not text:
        return []
    spans = prose(words.shorten(text, MAX_TEXT), style)
    return flow(spans, width, first=_label(name), rest=4 + LABEL, whole=whole)


def _evidence(source: str, at: str | None, text: str, width: int) -> list[Line]:
    room = width - 4 - LABEL
    spans: list[Span] = [(words.fold_path(words.clean(source), max(room * 2 // 3, 12)), "")]
    if at:
        spans += [GAP, *prose(at, "code")]
    if text:
        spans += [GAP, *prose(words.shorten(text, 240), "dim")]
    return flow(spans, width, first=_label("evidence"), rest=4 + LABEL)


def _brief(verdict: Verdict, width: int) -> list[Line]:
    lines = flow([*_title(verdict), (": ", ""), *prose(verdict.message)], width, first=_pad(2), rest=4)
    tail = [text for text in (words.gain_phrase(verdict.gain), verdict.remedy) if text]
    return lines + (
        flow(prose("; ".join(tail), "dim"), width, first=_pad(4), rest=4, whole=True) if tail else []
    )


def _not_judged(case: Case, width: int) -> list[Line]:
    groups = story.not_judged(case)
    if not groups:
        return []
    total = sum(group.total for group in groups)
    lines = _heading(f"Not judged: {total:,}", "not being able to look is never a pass", width)
    for group in groups:
        title: list[Span] = [(words.clean(group.words), "head"), (f": {group.total:,}", "")]
        if group.reason in story.FOLDED_REASONS:
            codes = story.code_list(v for _, verdicts in group.groups for v in verdicts)
            lines += flow([*title, *prose(f" ({codes})", "dim")], width, first=_pad(2), rest=4)
            continue
        lines += flow(title, width, first=_pad(2), rest=4)
        for message, verdicts in group.groups[:12]:
            spans = [(story.code_list(verdicts), "code"), GAP, *prose(message, "dim")]
            lines += flow(spans, width, first=_pad(4), rest=6)
        if len(group.groups) > 12:
            lines += flow(prose(f"{len(group.groups) - 12} more in the JSON", "dim"), width, first=_pad(4))
    return lines


def _ignored(case: Case, width: int) -> list[Line]:
    if not case.ignored:
        return []
    lines = _heading(f"Ignored: {len(case.ignored)}", "set aside by `wellfed.toml`", width)
    for verdict in case.ignored:
        spans = [*prose(f"{verdict.code} {verdict.name}", "code"), *prose(f": {verdict.message}", "dim")]
        lines += flow(spans, width, first=_pad(2), rest=4)
    return lines


# --- machine -------------------------------------------------------------------------------------------


def _ceilings(case: Case, width: int) -> list[Line]:
    if not case.ceilings:
        return []
    lines: list[Line] = []
    for layer, entries in measured.by_layer(case.ceilings):
        title = f"Measured ceilings: {layer}" if layer else "Measured ceilings"
        lines += _heading(title, "" if lines else "best of each run; peak is the published limit", width)
        for entry in entries:
            lines += _curve(entry, width) if isinstance(entry, measured.Curve) else _ceiling(entry, width)
    return lines


def _curve(curve: measured.Curve, width: int) -> list[Line]:
    """A family as two lines: how many points, and where they change."""
    style = "good" if measured.curve_verdict(curve) == "ok" else "warning"
    spans: Line = [(f"{measured.curve_title(curve)}: ", ""), (measured.curve_verdict(curve), style)]
    lines = flow(spans, width, first=_pad(2), rest=4)
    return [*lines, *flow(prose(measured.curve_text(curve), "dim"), width, first=_pad(4), rest=4)]


def _ceiling(ceiling: Ceiling, width: int) -> list[Line]:
    best = f"{words.number(ceiling.best)}{words.NBSP}{words.clean(ceiling.unit)}"
    style = "good" if ceiling.verdict == "ok" else "warning"
    title = words.clean(ceiling.title or ceiling.id)
    left: Line = [("  ", ""), (words.fold(title, max(width - 26, 12)), "")]
    right: Line = [
        (best, "head"),
        ("  ", ""),
        (ceiling.verdict, style),
        (" " * (11 - len(ceiling.verdict)), ""),
    ]
    pad = max(width - cells(left) - cells(right), 2)
    lines = [[*left, (" " * pad, ""), *right]]
    if cells(lines[0]) > width:
        lines = [left, [("    ", ""), *right]]
    facts = [text for text in (story.of_peak(ceiling), story.spread(ceiling)) if text]
    if ceiling.size:
        facts.append(f"size {ceiling.size}")
    if ceiling.threads is not None:
        facts.append(counted(ceiling.threads, "thread"))
    lines += flow(prose("; ".join(facts), "dim"), width, first=_pad(4), rest=4)
    if ceiling.why:
        lines += flow(prose(ceiling.why), width, first=_pad(4), rest=4)
    return lines


def _machine(case: Case, width: int) -> list[Line]:
    if case.machine is None:
        return []
    lines: list[Line] = [[("Machine", "head")]]
    for name, text in story.machine_lines(case.machine):
        label = f"  {words.fold(name, 11):<11} "
        lines += flow(prose(text), width, first=[(label, "dim")], rest=14)
    return lines


def _topology(case: Case, width: int) -> list[Line]:
    """Sockets, nodes and what hangs on them, indented."""
    tree = topology.tree(case.machine) if case.machine is not None else []
    lines: list[Line] = [[("Topology", "head")]] if tree else []
    for text in tree:
        indent = len(text) - len(text.lstrip()) + 2
        lines += flow(prose(text.strip()), width, first=_pad(indent), rest=indent + 2)
    return lines


def _gaps(case: Case, width: int) -> list[Line]:
    if case.machine is None or not case.machine.gaps:
        return []
    by_reason: dict[str, list[str]] = {}
    for field, why in case.machine.gaps.items():
        by_reason.setdefault(why, []).append(field)
    lines = _heading(f"Could not see: {len(case.machine.gaps):,}", "fields left unknown", width)
    for why, fields in sorted(by_reason.items(), key=lambda item: -len(item[1]))[:MAX_BRIEF]:
        more = f" and {len(fields) - 4} more" if len(fields) > 4 else ""
        spans = [*prose(why), *prose(": " + ", ".join(fields[:4]) + more, "dim")]
        lines += flow(spans, width, first=_pad(2), rest=4)
    return lines


Section = Callable[[Case, int], list[Line]]
SECTIONS: dict[View, Iterable[Section]] = {
    "doctor": (_warnings, _step, _ranks, _findings, _memory, _hang, _not_judged, _ceilings, _ignored),
    "trace": (_warnings, _step, _ranks, _findings, _memory, _hang, _kernels, _not_judged, _ignored),
    "check": (_findings, _not_judged, _ignored),
    "measure": (_ceilings,),
    "inspect": (_machine, _topology, _gaps),
    "run": (_run, _warnings, _step, _findings, _not_judged, _ignored),
}
