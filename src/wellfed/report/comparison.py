"""A comparison as text, Markdown and HTML: one list of blocks, three looks."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from wellfed.model import RankTrace
from wellfed.model.comparison import Comparison, Delta, RankComparison, StepTime, WorkDelta
from wellfed.model.counting import counted
from wellfed.report import html, markdown, words
from wellfed.report.draw import Pictures
from wellfed.report.lines import Line, Span, columns, flow, paint, prose
from wellfed.report.markup import Child, join, table, tag
from wellfed.report.markup import prose as rich
from wellfed.report.sections import picture
from wellfed.report.trace_charts import change_waterfall

MAX_WORK, MAX_KERNELS, MAX_RANKS = 12, 10, 16
SMALL_SHARE = 0.001
"""Parts that change by less of the step are left to the JSON, as long as they are less than that themselves."""
BASES = {
    "unprofiled": "unprofiled, by replay",
    "recorded": "as recorded",
    "capture": "whole captures",
}
_HELD = {
    "within": "as predicted",
    "less": "less than predicted",
    "more": "more than predicted",
    "open": "not decided, since the achieved may be no change",
}


class Block(NamedTuple):
    """A table with its title, or sentences where `rows` is empty."""

    title: str
    note: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    align: str = ""
    sentences: tuple[str, ...] = ()


def headline(ranks: Sequence[RankComparison]) -> str:
    """One sentence: by how much B differs, or that it does not beyond what the intervals cover."""
    one = shown(ranks)
    if one is None:
        return "no rank with GPU events is in both"
    before, after = words.duration(one.a.ns), words.duration(one.b.ns)
    if all(each.identical for each in ranks):
        return f"A and B are one and the same recording, of {before} a {'step' if one.speedup else 'capture'}"
    if one.speedup is None:
        return f"the captures are {before} and {after} long, without steps to compare"
    if one.low is not None and one.high is not None and one.low <= 1 <= one.high:
        return f"no difference beyond the intervals: {before} and {after} a step, {_speed(one)}"
    faster = one.speedup >= 1
    moved = sorted(_moves(one), key=lambda part: part.delta_ns if faster else -part.delta_ns)
    text = f"B takes {after} a step where A takes {before}: {_speed(one)}"
    if moved and (moved[0].delta_ns < 0) == faster and moved[0].delta_ns:
        more = "less" if faster else "more"
        text += f", {moved[0].name} {words.duration(abs(moved[0].delta_ns))} {more}"
    return text


def label(name: str, ranks: Sequence[RankTrace]) -> str:
    """What was compared, in a few words: the file, its GPUs and ranks."""
    gpus = Counter(rank.gpu or "unknown GPU" for rank in ranks)
    named = ", ".join(
        f"{count} x {words.clean(gpu)}" if count > 1 else words.clean(gpu) for gpu, count in gpus.items()
    )
    return f"{words.clean(name)} ({named})"


def shown(ranks: Sequence[RankComparison]) -> RankComparison | None:
    """The rank that is slowest in B: the others wait for it."""
    return max(ranks, key=lambda one: one.b.ns, default=None)


def render_text(comparison: Comparison, width: int, color: bool, *, ascii_only: bool = False) -> str:
    lines: list[Line] = [*flow(prose(_capital(comparison.headline), "head"), width)]
    for name, what in (("A", comparison.a), ("B", comparison.b)):
        lines += flow(prose(what, "dim"), width, first=[(f"{name} ", "head")], rest=2)
    for block in blocks(comparison):
        lines += [[], [(words.clean(block.title), "head")]]
        if block.note:
            lines += flow(prose(block.note, "dim"), width, first=[("  ", "")], rest=2)
        if block.rows:
            cells: list[list[Span]] = [[(name, "dim") for name in block.header]]
            cells += [[(words.clean(cell), "") for cell in row] for row in block.rows]
            lines += columns(cells, width, align=block.align)
        for sentence in block.sentences:
            lines += flow(prose(sentence), width, first=[("  ", "")], rest=4)
    return paint(lines, width=width, color=color, ascii_only=ascii_only)


def render_markdown(comparison: Comparison) -> str:
    lines = [f"### {markdown.text(_capital(comparison.headline))}", ""]
    lines += [f"- A: {markdown.code(comparison.a)}", f"- B: {markdown.code(comparison.b)}", ""]
    for block in blocks(comparison):
        note = f": {markdown.text(block.note)}" if block.note else ""
        lines += [f"**{markdown.text(block.title)}**{note}", ""]
        if block.rows:
            rows = [[markdown.text(cell) for cell in row] for row in block.rows]
            lines += [*markdown.table_lines(block.header, rows, block.align), ""]
        if block.sentences:
            lines += [*(f"- {markdown.text(sentence)}" for sentence in block.sentences), ""]
    if comparison.made_by:
        lines.append(f"<sub>{markdown.text(comparison.made_by)}</sub>")
    return "\n".join(lines).rstrip("\n") + "\n"


def render_html(comparison: Comparison) -> str:
    pictures = Pictures()
    one = shown(comparison.ranks)
    chart = change_waterfall(one) if one is not None else None
    drawn = picture(chart, pictures) if chart is not None else None
    head = tag(
        "header",
        tag("p", comparison.made_by or "wellfed", class_="made"),
        tag("h1", rich(_capital(comparison.headline))),
        tag("p", "A: ", tag("code", comparison.a), class_="under"),
        tag("p", "B: ", tag("code", comparison.b), class_="under"),
    )
    sections: list[Child] = [_section(block) for block in blocks(comparison)]
    if drawn:
        sections.insert(0, tag("section", tag("h2", "From A to B"), drawn))
    why = f"Charts are left out: {pictures.why}." if pictures.why else None
    foot = tag("footer", tag("p", why) if why else None, tag("p", html.MADE))
    return html.document(comparison.headline, head, tag("main", *sections), foot)


def _section(block: Block) -> Child:
    listing: Child = None
    if block.rows:
        listing = table(block.header, block.rows, align=block.align, label=block.title)
    return tag(
        "section",
        tag("h2", rich(block.title)),
        tag("p", rich(block.note), class_="note") if block.note else None,
        listing,
        join(tag("p", rich(sentence)) for sentence in block.sentences),
    )


# -- the blocks -------------------------------------------------------------------------------------------


def blocks(comparison: Comparison) -> list[Block]:
    """What there is to say, in order."""
    one = shown(comparison.ranks)
    out: list[Block] = []
    if one is None:
        return out
    if one.notes:
        out.append(Block("Mind", sentences=one.notes))
    out += [_promises(one)] if one.promises and not one.identical else []
    out.append(_budget(one))
    if all(each.identical for each in comparison.ranks):
        return out
    if len(comparison.ranks) > 1 or comparison.only_a or comparison.only_b:
        out.append(_ranks(comparison))
    if one.work:
        out.append(_work(one, one.work, f"By {one.work_by}", MAX_WORK))
    changed = [row for row in one.kernels if row.presence in ("new", "gone")]
    if changed:
        out.append(_kernels(one, changed))
    return out


def _budget(one: RankComparison) -> Block:
    factor, unit, digits = words.column_scale(max(one.a.ns, one.b.ns))

    def row(name: str, a: int, b: int) -> tuple[str, ...]:
        return (
            name,
            f"{a / factor:,.{digits}f}",
            f"{b / factor:,.{digits}f}",
            _signed((b - a) / factor, digits),
        )

    whole = max(one.a.ns, one.b.ns, 1)
    rows = [row(part.name, part.a_ns, part.b_ns) for part in one.budget if part.a_ns or part.b_ns]
    small = [part for part in one.idle if max(part.a_ns, part.b_ns) < SMALL_SHARE * whole]
    rows += [
        row(f"idle: {part.name}", part.a_ns, part.b_ns)
        for part in sorted(one.idle, key=lambda part: (-abs(part.delta_ns), part.name))
        if part not in small
    ]
    if any(part.a_ns or part.b_ns for part in small):
        rows.append(row("idle: smaller causes", sum(p.a_ns for p in small), sum(p.b_ns for p in small)))
    total = "capture" if one.basis == "capture" else "step"
    rows.append(row(total, one.a.ns, one.b.ns))
    if one.a_launches is not None and one.b_launches is not None and one.basis != "capture":
        rows.append(
            (
                "launches",
                f"{one.a_launches:,.0f}",
                f"{one.b_launches:,.0f}",
                _signed(one.b_launches - one.a_launches, 0),
            )
        )
    note = f"{_place(one)}, {BASES[one.basis]}"
    if one.basis != "capture":
        note += f"; A {_interval(one.a)}, B {_interval(one.b)}"
    return Block(
        "Where the difference is", note, ("part", f"A, {unit}", f"B, {unit}", "change"), tuple(rows), "lrrr"
    )


def _work(one: RankComparison, rows: Sequence[WorkDelta], title: str, limit: int) -> Block:
    largest = max(max(row.a_ns, row.b_ns) for row in rows)
    factor, unit, digits = words.column_scale(largest)
    listed = tuple(
        (
            row.name + ("" if row.presence == "both" else f" ({row.presence})"),
            f"{row.a_ns / factor:,.{digits}f}", f"{row.b_ns / factor:,.{digits}f}", _signed(row.delta_ns / factor, digits),
            _count(row.a_count), _count(row.b_count),
        )
        for row in rows[:limit]
    )  # fmt: skip
    change = sum(row.delta_ns for row in rows)
    per = "in the capture" if one.basis == "capture" else "a step"
    note = f"GPU time {per}, streams added up, as recorded; all together {_signed(change / factor, digits)} {unit}"
    if len(rows) > limit:
        note += f"; {len(rows) - limit} more in the JSON"
    header = (one.work_by or "", f"A, {unit}", f"B, {unit}", "change", "A, calls", "B, calls")
    return Block(title, note, header, listed, "lrrrrr")


def _kernels(one: RankComparison, rows: Sequence[WorkDelta]) -> Block:
    counts = {what: sum(row.presence == what for row in rows) for what in ("new", "gone")}
    block = _work(one, rows, "Kernels that only one has", MAX_KERNELS)
    note = f"{counts['new']} new, {counts['gone']} gone, by name without types and tile sizes"
    return block._replace(note=note, header=("kernel", *block.header[1:]))


def _ranks(comparison: Comparison) -> Block:
    rows = []
    for one in comparison.ranks[:MAX_RANKS]:
        speed = words.ratio(one.speedup) if one.speedup else ""
        rows.append((_place(one, gpu=False), words.duration(one.a.ns), words.duration(one.b.ns), speed))
    sentences = [
        f"only in {side}: {', '.join(names[:MAX_RANKS])}"
        for side, names in (("A", comparison.only_a), ("B", comparison.only_b))
        if names
    ]
    more = len(comparison.ranks) - MAX_RANKS
    note = f"{more} more in the JSON" if more > 0 else ""
    return Block("Ranks", note, ("rank", "A", "B", "speed-up"), tuple(rows), "lrrr", tuple(sentences))


def _promises(one: RankComparison) -> Block:
    words_of = {"cured": "cured", "found": "still found", "not-judged": "not judged in B"}
    sentences = []
    for promise in one.promises:
        text = f"`{promise.code}` {promise.name}: {words_of[promise.state]}; its cure was to bring "
        text += f"{words.ratio(promise.speedup)} ({words.ratio(promise.low)} to {words.ratio(promise.high)})"
        if promise.state == "found" and promise.b_cost is not None and promise.a_cost is not None:
            text += f"; it costs {words.number(promise.b_cost)} {promise.cost_unit}, before {words.number(promise.a_cost)}"
        sentences.append(text)
    if one.predicted is not None and one.speedup is not None and one.held is not None:
        low, high = one.predicted
        cured = sum(p.state == "cured" for p in one.promises)
        what = "predicted" if cured == 1 else f"predicted for the {cured} cured together"
        sentences.append(
            f"{_HELD[one.held]}: {what} {words.ratio(low)} to {words.ratio(high)}, achieved {_ratio(one)}; "
            "the achieved holds everything else that changed too"
        )
    return Block("Predicted against achieved", "", sentences=tuple(sentences))


# -- words ------------------------------------------------------------------------------------------------


def _moves(one: RankComparison) -> list[Delta]:
    """Parts of the step with idle by its causes."""
    return [part for part in one.budget if part.name != "idle"] + list(one.idle)


def _ratio(one: RankComparison) -> str:
    assert one.speedup is not None
    text = words.ratio(one.speedup)
    if one.low is not None and one.high is not None:
        text += f" ({words.ratio(one.low)} to {words.ratio(one.high)})"
    return text


def _speed(one: RankComparison) -> str:
    """`3.4x faster (3.1x to 3.9x)`; for slower the ratio the other way round."""
    assert one.speedup is not None
    if one.speedup >= 1:
        middle, low, high, word = one.speedup, one.low, one.high, "faster"
    else:
        middle, word = 1 / one.speedup, "slower"
        low = 1 / one.high if one.high else None
        high = 1 / one.low if one.low else None
    if words.ratio(middle) == "1.00x":
        word = "as fast"
    text = f"{words.ratio(middle)} {word}"
    return text + (f" ({words.ratio(low)} to {words.ratio(high)})" if low and high else "")


def _interval(step: StepTime) -> str:
    if step.low_ns is None or step.high_ns is None:
        return f"{counted(step.steps, 'step')}"
    return f"{words.duration(step.low_ns)} to {words.duration(step.high_ns)} ({counted(step.steps, 'step')})"


def _place(one: RankComparison, *, gpu: bool = True) -> str:
    known = [f"{label} {n}" for label, n in (("rank", one.rank), ("device", one.device)) if n is not None]
    if gpu and one.a_gpu and one.a_gpu == one.b_gpu:
        known.append(words.clean(one.a_gpu))
    return ", ".join(known) or "one rank"


def _signed(value: float, digits: int) -> str:
    """With its sign, unless it rounds to nothing."""
    text = f"{value:+,.{digits}f}"
    return text if text.strip("+-0.,") else text[1:]


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.1f}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
