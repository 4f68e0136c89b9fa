"""A Case as GitHub-flavoured Markdown, for an issue or a pull request.

Foreign text is either in a code span that it can't close, or escaped: no table row, link, mention or tag of
its own making.
"""

import re
from collections.abc import Iterable, Sequence

from wellfed.model import Case, Ceiling, Verdict
from wellfed.report import ceilings as measured
from wellfed.report import memory, run, story, words

MAX_FINDINGS, MAX_TEXT, MAX_DEVICES = 50, 600, 8
_SPECIAL = re.compile(r"[\\*\[\]#|~^]|(?<![^\W_])_|_(?![^\W_])")
_LINE_START = re.compile(r"^(\d*)([.)+=-])(?=\s|$)|^()([-+=]{2,})")


def render(case: Case) -> str:
    """The Markdown text."""
    head = story.headline(case)
    lines = [f"### {text(head.text)}", ""]
    if case.machine is not None:
        lines += [text(story.machine_phrase(case.machine)), ""]
    if case.verdicts:
        lines += [text(story.counts_phrase(case)), ""]
    for section in (_run, _warnings, _step, _findings, _memory, _hang, _not_judged, _ceilings, _ignored):
        lines += section(case)
    if (command := story.next_command(case)) is not None:
        lines += ["**Next**", "", *_fenced(command), ""]
    made = " ".join(filter(None, (case.made_by, case.made_at)))
    if made:
        lines += [f"<sub>{text(made)}{', redacted' if case.redacted else ''}</sub>", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def text(foreign: str) -> str:
    """One line of foreign text: `code` between backticks stays code, all else is escaped."""
    shown = words.shorten(words.clean(foreign), MAX_TEXT).replace(words.NBSP, " ")
    out = "".join(code(piece) if is_code else _escape(piece) for is_code, piece in words.code_spans(shown))
    return _LINE_START.sub(lambda m: f"{m[1] or ''}\\{m[2] or m[4]}", out)


def _escape(piece: str) -> str:
    piece = _SPECIAL.sub(lambda match: "\\" + match.group(), piece)
    piece = piece.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "\\`")
    # A zero-width space keeps GitHub from paging people and from linking what a stranger's file says.
    return re.sub(r"@(?=\w)|(?<=://)|(?<=www)(?=\.)", lambda match: match.group() + "&#8203;", piece)


def code(foreign: str) -> str:
    """A code span that its content can't close; safe in a table cell."""
    shown = words.shorten(words.clean(foreign), MAX_TEXT).replace(words.NBSP, " ").strip()
    if not shown:
        return ""
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    pad = " " if "`" in (shown[0], shown[-1]) else ""
    return f"{fence}{pad}{shown}{pad}{fence}".replace("|", "\\|")


def _fenced(command: str) -> list[str]:
    shown = words.clean(command).replace(words.NBSP, " ")
    fence = "`" * max(3, max(map(len, re.findall("`+", shown)), default=0) + 1)
    return [f"{fence}sh", shown, fence]


def table_lines(header: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> list[str]:
    rule = ["---:" if side == "r" else "---" for side in align]
    return ["| " + " | ".join(row) + " |" for row in (header, rule, *rows)]


def _warnings(case: Case) -> list[str]:
    if not case.warnings:
        return []
    lines = ["**Trace warnings**", ""]
    for warning in case.warnings:
        line = f"- {code(warning.code)}" + (f" x{warning.count:,}" if warning.count else "")
        line += f" weakens {text(warning.weakens)}" if warning.weakens else ""
        lines.append(line + (f" (such as {code(warning.sample)})" if warning.sample else ""))
    return [*lines, ""]


def _run(case: Case) -> list[str]:
    if case.run is None:
        return []
    return [
        "**What was seen**",
        "",
        *(f"- {text(subject)}: {text(line)}" for subject, line in run.told(case.run)),
        "",
    ]


def _step(case: Case) -> list[str]:
    rank = story.shown_rank(case)
    told = story.step_story(rank) if rank is not None else None
    if told is None:
        return [f"{story.no_gpu_event(case)}.", ""] if case.ranks else []
    factor, unit, decimals = words.column_scale(told.span_ns)
    rows = [
        (
            code(part.name),
            f"{part.ns / factor:,.{decimals}f} {unit}",
            words.percent(part.share),
            text(part.words),
        )
        for part in told.parts
    ]
    rows.append(("**all**", f"{told.span_ns / factor:,.{decimals}f} {unit}", "100.0 %", text(told.basis)))
    listing = table_lines(("part", "time", "share", ""), rows, "lrrl")
    return [f"**{text(told.title)}**", "", *(row.replace(words.NBSP, " ") for row in listing), ""]


def _findings(case: Case) -> list[str]:
    listed = story.findings(case)
    if not listed:
        return []
    lines = ["**Findings, by worth**", ""]
    for at, verdict in enumerate(listed[:MAX_FINDINGS], 1):
        lines += _finding(at, verdict)
    if len(listed) > MAX_FINDINGS:
        lines.append(f"{len(listed) - MAX_FINDINGS} more in the JSON.")
    return [*lines, ""]


def _finding(at: int, verdict: Verdict) -> list[str]:
    place = words.where_phrase(verdict.where)
    title = f"{at}. **{verdict.severity.upper()} {text(verdict.code)} {text(verdict.name)}**"
    lines = [title + (f" ({text(place)})" if place else "") + f": {text(verdict.message)}"]
    gain = words.gain_phrase(verdict.gain)
    if gain and (then := story.then_limits(verdict)):
        gain += f"; then {then} limits"
    fields = (("cost", story.cost_phrase(verdict)), ("gain", gain), ("remedy", verdict.remedy))
    lines += [f"   - {name}: {text(value)}" for name, value in fields if value]
    if risk := story.risk_phrase(verdict):
        lines.append(f"   - risk: {text(risk)}")
    for evidence in verdict.evidence[:3]:
        bits = (code(evidence.source), text(evidence.at or ""), code(evidence.text))
        lines.append("   - evidence: " + " ".join(filter(None, bits)))
    if verdict.restore:
        lines.append(f"   - undo: {text(verdict.restore)}")
    if verdict.verify:
        lines.append(f"   - verify: {code(verdict.verify)}")
    for other in verdict.alternatives:
        gain = words.gain_phrase(other.gain)
        lines.append(
            f"   - or: {text(other.remedy)}" + (f": {text(gain)}" if gain else "") + f"; {other.risk}"
        )
    return lines


def _memory(case: Case) -> list[str]:
    lines: list[str] = []
    for block in memory.memory_blocks(case)[:MAX_DEVICES]:
        lines += [f"**Memory: {text(block.title)}**", "", *(f"- {text(line)}" for line in block.lines), ""]
        if block.holders:
            rows = ((text(size), text(share), code(what)) for size, share, what in block.holders)
            lines += [*table_lines((f"held {block.moment}", "share", "allocated at"), rows, "rrl"), ""]
    return lines


def _hang(case: Case) -> list[str]:
    said = memory.hang_lines(case)
    if not said:
        return []
    lines = ["**Flight records**", "", *(f"- {text(line)}" for line in said), ""]
    rows = [tuple(text(cell) for cell in row) for row in memory.stuck_rows(case)[:MAX_FINDINGS]]
    return [
        *lines,
        *(table_lines(memory.STUCK_HEADER, rows, "llllll") if rows else ()),
        *([""] if rows else ()),
    ]


def _not_judged(case: Case) -> list[str]:
    groups = story.not_judged(case)
    if not groups:
        return []
    lines = [f"<details><summary>Not judged: {sum(group.total for group in groups):,}</summary>", ""]
    for group in groups:
        if group.reason in story.FOLDED_REASONS:
            codes = story.code_list(v for _, verdicts in group.groups for v in verdicts)
            lines.append(f"- {text(group.words)}: {group.total:,} ({text(codes)})")
            continue
        for message, verdicts in group.groups[:20]:
            says = f": {text(message)}" if message else ""
            lines.append(f"- {text(group.words)}: {text(story.code_list(verdicts))}{says}")
    return [*lines, "", "</details>", ""]


def _ceilings(case: Case) -> list[str]:
    if not case.ceilings:
        return []
    rows: list[tuple[str, ...]] = []
    for layer, entries in measured.by_layer(case.ceilings):
        rows += [(f"**{layer}**", "", "", "", "")] if layer else []
        rows += [_curve(e) if isinstance(e, measured.Curve) else _ceiling(e) for e in entries]
    listing = table_lines(("measured ceiling", "best", "of peak", "spread", "verdict"), rows, "lrlll")
    return [*(row.replace(words.NBSP, " ") for row in listing), ""]


def _ceiling(c: Ceiling) -> tuple[str, ...]:
    return (
        text(c.title or c.id), f"{words.number(c.best)} {text(c.unit)}", text(story.of_peak(c) or ""),
        text(story.spread(c)), c.verdict + (f": {text(c.why)}" if c.why else ""),
    )  # fmt: skip


def _curve(curve: measured.Curve) -> tuple[str, ...]:
    return (
        text(measured.curve_title(curve)),
        text(measured.curve_text(curve)),
        "",
        "",
        measured.curve_verdict(curve),
    )


def _ignored(case: Case) -> list[str]:
    if not case.ignored:
        return []
    lines = [f"**Ignored: {len(case.ignored)}**", ""]
    lines += [f"- {text(v.code)} {text(v.name)}: {text(v.message)}" for v in case.ignored]
    return [*lines, ""]
