"""The sections of the HTML report: each is a function of the case and its pictures, empty when it has nothing."""

from collections.abc import Callable, Iterable
from typing import Any

from wellfed.model import Case, Ceiling, Machine, RankTrace, Verdict
from wellfed.model.counting import counted
from wellfed.report import ceilings as measured
from wellfed.report import charts, gallery, run, story, topology, words
from wellfed.report import memory as told
from wellfed.report.draw import Pictures
from wellfed.report.markup import Child, Safe, details, join, prose, table, tag

MAX_FINDINGS, MAX_ROWS, MAX_EVIDENCE, MAX_DEVICES = 200, 500, 8, 64
NOTHING = Safe("")


def figure(case: Case, pictures: Pictures, name: str) -> Safe:
    """The chart of that name with its take-away as caption; empty without data or without a drawer."""
    chart = gallery.CHARTS[name](case)
    return NOTHING if chart is None else picture(chart, pictures)


def picture(chart: charts.Chart, pictures: Pictures) -> Safe:
    """A chart with its take-away as caption; empty without a drawer."""
    if (svg := pictures.svg(chart, label=words.clean(chart["title"]))) is None:
        return NOTHING
    caption = tag("figcaption", prose(chart["title"]))
    drawing = tag("div", Safe(svg), class_="scroll", role="region", aria_label=chart["title"], tabindex="0")
    return tag("figure", caption, drawing)


def warnings(case: Case, pictures: Pictures) -> Safe:
    if not case.warnings:
        return NOTHING
    items = (
        tag(
            "li",
            tag("code", w.code, class_="loud"),
            f" x{w.count:,}" if w.count else "",
            join((" weakens ", prose(w.weakens))) if w.weakens else None,
            join((" (such as ", tag("code", w.sample), ")")) if w.sample else None,
        )
        for w in case.warnings[:MAX_ROWS]
    )
    note = tag("p", "What the file lacks, and what that weakens.", class_="note")
    return join((tag("h2", "Trace warnings"), note, tag("ul", *items, class_="plain")))


def step(case: Case, pictures: Pictures) -> Safe:
    rank = story.shown_rank(case)
    told = story.step_story(rank, small=0.0) if rank is not None else None
    if rank is None or told is None:
        if not case.ranks:
            return NOTHING
        lack = f"{story.no_gpu_event(case)}, so there is no step to take apart."
        return join((tag("h2", "Where the step goes"), tag("p", lack)))
    note = told.basis
    if len(case.ranks) > 1:
        note += f"; of {len(case.ranks)} ranks and devices the one with most idle time"
    picture = figure(case, pictures, "step")
    budget = _budget_table(told)
    return join(
        (
            tag("h2", prose(told.title)),
            tag("p", prose(note), class_="note"),
            picture,
            details("The same as a table, with nothing folded", budget, opened=not picture),
            figure(case, pictures, "steps"),
            figure(case, pictures, "idle"),
            _steps_table(rank),
            figure(case, pictures, "strip"),
            _raw(rank),
            _records("How well a replay reproduces the recorded step", (rank.replay,) if rank.replay else ()),
        )
    )


def _budget_table(told: story.StepStory) -> Safe:
    factor, unit, decimals = words.column_scale(told.span_ns)
    rows: list[tuple[Child, ...]] = [
        (tag("code", part.name), part.words, f"{part.ns / factor:,.{decimals}f}", words.percent(part.share))
        for part in told.parts
    ]
    whole = "step" if told.whole_step else "capture"
    total = f"{told.span_ns / factor:,.{decimals}f}"
    rows.append((tag("b", whole), told.basis, tag("b", total), tag("b", words.percent(1.0))))
    return table(("part", "", unit, "share"), rows, align="llrr", label="Parts of the step")


def _steps_table(rank: RankTrace) -> Safe:
    steps = charts.step_rows(rank)
    if len(steps) < 2:
        return NOTHING
    names = list(dict.fromkeys(name for row in steps for name, _, _ in row["parts"]))[:16]
    factor, unit, decimals = words.column_scale(max(row["span"] for row in steps))
    rows: list[tuple[Child, ...]] = []
    for row in steps[:MAX_ROWS]:
        times = {name: f"{ns / factor:,.{decimals}f}" for name, _, ns in row["parts"]}
        rows.append(
            (row["label"], f"{row['span'] / factor:,.{decimals}f}", *(times.get(name, "") for name in names))
        )
    listing = table(("step", unit, *names), rows, align="lr" + "r" * len(names), label="Steps")
    return details("The steps as a table", listing)


def _raw(rank: RankTrace) -> Safe:
    """The exact budget of the file, to the nanosecond."""
    if rank.budget is None:
        return NOTHING
    b = rank.budget
    rows: list[tuple[Child, ...]] = [
        ("span", f"{b.span_ns:,}"), ("compute", f"{b.compute_ns:,}"), ("exposed comm", f"{b.exposed_comm_ns:,}"),
        ("exposed copy", f"{b.exposed_copy_ns:,}"), ("idle", f"{b.idle_ns:,}"),
    ]  # fmt: skip
    causes = sorted(rank.idle.items(), key=lambda item: (-item[1], item[0]))
    rows += [(join(("idle: ", tag("code", name))), f"{ns:,}") for name, ns in causes if ns]
    inner = table(("part", "ns"), rows, align="lr", label="Raw budget")
    note = f"Everything the file holds, first GPU event to last ({counted(rank.gpu_events, 'event')}), nothing trimmed."
    return details("The raw budget of the capture, in ns", tag("p", note, class_="note"), inner)


def ranks(case: Case, pictures: Pictures) -> Safe:
    if len(case.ranks) < 2:
        return NOTHING
    rows: list[tuple[Child, ...]] = []
    for at, rank in enumerate(story.ranks_shown(case, MAX_ROWS)):
        budget = rank.step_budget or rank.budget
        if budget is None:
            rows.append((charts.short_rank(rank, at), "no GPU event", "", "", "", "", ""))
            continue
        times = (budget.compute_ns, budget.exposed_comm_ns, budget.exposed_copy_ns, budget.idle_ns)
        shares = (words.percent(ns / max(budget.span_ns, 1)) for ns in times)
        cause = story.top_cause(rank)
        name = charts.short_rank(rank, at)
        rows.append((name, words.duration(budget.span_ns), *shares, tag("code", cause) if cause else ""))
    header = ("rank", "step", "compute", "comm", "copy", "idle", "top cause of idle")
    picture = figure(case, pictures, "ranks")
    listing = details(
        "The same as a table", table(header, rows, align="lrrrrrl", label="Ranks"), opened=not picture
    )
    lines = tag("ul", *(tag("li", prose(line)) for line in story.together_lines(case)))
    return join((tag("h2", "Ranks"), picture, listing, lines, figure(case, pictures, "waits"), _waits(case)))


def _waits(case: Case) -> Safe:
    """How long each rank waits in collectives, and what for."""
    together = case.together
    if together is None or not together.matched:
        return NOTHING
    longest = max((w.comm_ns for w in together.waits), default=0)
    factor, unit, digits = words.column_scale(max(longest, 1))
    rows: list[tuple[Child, ...]] = [
        (
            str(w.rank), f"{w.comm_ns / factor:,.{digits}f}", f"{w.wait_ns / factor:,.{digits}f}",
            f"{w.transfer_ns / factor:,.{digits}f}", words.percent(w.last),
            "" if w.own_excess is None else f"{w.own_excess:+.1%}",
        )
        for w in together.waits[:MAX_ROWS]
    ]  # fmt: skip
    header = (
        "rank",
        f"in collectives, {unit}",
        "waiting",
        "transfer",
        "came last",
        "own work above the mean",
    )
    return details("Waiting of each rank", table(header, rows, align="rrrrrr", label="Waiting of ranks"))


# --- findings ------------------------------------------------------------------------------------------


def findings(case: Case, pictures: Pictures) -> Safe:
    listed = story.findings(case)
    if not listed:
        if not case.counts()["pass"]:
            return NOTHING
        return join((tag("h2", "Findings"), tag("p", "None among what could be judged.")))
    shown = [finding(verdict, level="h3") for verdict in listed[:MAX_FINDINGS]]
    more = len(listed) - MAX_FINDINGS
    rest = tag("p", f"{more} more in the JSON.", class_="note") if more > 0 else None
    return join((tag("h2", "Findings, by worth"), *shown, rest))


def finding(verdict: Verdict, *, level: str) -> Safe:
    """One finding as an article."""
    place = words.where_phrase(verdict.where)
    title = tag(
        level,
        tag("span", verdict.severity.upper(), class_=f"mark {verdict.severity}"),
        " ", tag("code", verdict.code), " ", verdict.name,
        tag("span", f" {place}", class_="place") if place else None,
    )  # fmt: skip
    gain: Child = words.gain_phrase(verdict.gain)
    if gain and verdict.gain is not None and verdict.gain.basis != "none":
        then = story.then_limits(verdict)
        named: Child = tag("code", then) if then == verdict.gain.next else then
        gain = join((tag("b", gain), join(("; then ", named, " limits")) if then else None))
    fields: list[tuple[str, Child]] = [
        ("cost", story.cost_phrase(verdict)),
        ("gain", gain),
        ("remedy", prose(verdict.remedy)),
        ("risk", story.risk_phrase(verdict)),
        ("undo", prose(verdict.restore)),
        ("symptom of", ", ".join(verdict.causes)),
        ("evidence", _evidence(verdict)),
        ("see it", _instant(verdict)),
        ("verify", command(verdict.verify)),
        ("or", _alternatives(verdict)),
        ("sources", join(_with_commas(source(text) for text in verdict.sources[:20]))),
    ]
    listed = [(tag("dt", name), tag("dd", value)) for name, value in fields if value]
    body = tag("dl", *(piece for pair in listed for piece in pair))
    return tag(
        "article", title, tag("p", prose(verdict.message), class_="says"), body, class_=verdict.severity
    )


def command(text: str | None) -> Safe:
    return tag("code", text, class_="cmd") if text else NOTHING


def source(text: str) -> Safe:
    """A link only for plain https addresses; nothing is fetched until somebody follows it."""
    if text.startswith("https://") and text.isascii() and text.isprintable() and " " not in text:
        return tag("a", text, href=text, rel="noopener noreferrer nofollow")
    return tag("span", text)


def _with_commas(pieces: Iterable[Safe]) -> list[Child]:
    out: list[Child] = []
    for piece in pieces:
        out += [", ", piece] if out else [piece]
    return out


def _evidence(verdict: Verdict) -> Safe:
    if not verdict.evidence:
        return NOTHING
    rows = [
        tag("li", tag("code", e.source), " " if e.at else None, tag("span", e.at, class_="at") if e.at else None,
            " " if e.text else None, tag("code", e.text, class_="quote") if e.text else None)
        for e in verdict.evidence[:MAX_EVIDENCE]
    ]  # fmt: skip
    more = len(verdict.evidence) - MAX_EVIDENCE
    return tag("ul", *rows, tag("li", f"{more} more in the JSON") if more > 0 else None)


def _instant(verdict: Verdict) -> Safe:
    """Where to look in a viewer of timelines, which counts from the first event as we do."""
    found = story.instant(verdict)
    if found is None:
        return NOTHING
    file, at = found
    return join(("at ", tag("b", at), " of ", tag("code", file), " in ui.perfetto.dev"))


def _alternatives(verdict: Verdict) -> Safe:
    items = []
    for other in verdict.alternatives:
        gain = words.gain_phrase(other.gain)
        items.append(tag("li", prose(other.remedy), f": {gain}" if gain else None, f"; {other.risk}"))
    return tag("ul", *items) if items else NOTHING


def not_judged(case: Case, pictures: Pictures) -> Safe:
    groups = story.not_judged(case)
    if not groups:
        return NOTHING
    total = sum(group.total for group in groups)
    parts = []
    for group in groups:
        rows = (
            (tag("code", story.code_list(found)), prose(message))
            for message, found in group.groups[:MAX_ROWS]
        )
        listing = table(("checks", "why"), rows, align="ll", label=group.words)
        opened = group.reason not in story.FOLDED_REASONS and group.total <= 12
        parts.append(details(join((tag("b", group.words), f": {group.total:,}")), listing, opened=opened))
    note = tag("p", "Not being able to look is never a pass.", class_="note")
    return join((tag("h2", f"Not judged: {total:,}"), note, *parts))


def layers(case: Case, pictures: Pictures) -> Safe:
    if not case.verdicts:
        return NOTHING
    counts = charts.layer_counts(case.verdicts)
    kinds = list(charts.LAYER_COLOURS)
    rows: list[tuple[Child, ...]] = [
        (layer, *(str(found[kind]) if found.get(kind) else "" for kind in kinds))
        for layer, found in counts.items()
    ]
    picture = figure(case, pictures, "layers")
    listing = table(("layer", *kinds), rows, align="l" + "r" * len(kinds), label="Verdicts by layer")
    passes = [v for v in case.verdicts if v.verdict == "pass"]
    listed = ((tag("code", v.code), v.name, v.layer, prose(v.message)) for v in passes[:MAX_ROWS])
    passed = table(("check", "", "layer", ""), listed, align="llll", label="Passed")
    return join(
        (
            tag("h2", "All verdicts"),
            picture,
            details("The same as a table", listing, opened=not picture) if rows else None,
            details(f"Passed: {len(passes):,}", passed) if passes else None,
        )
    )


def ignored(case: Case, pictures: Pictures) -> Safe:
    if not case.ignored:
        return NOTHING
    rows = ((tag("code", v.code), v.name, prose(v.message)) for v in case.ignored[:MAX_ROWS])
    listing = table(("check", "", "reason"), rows, align="lll", label="Ignored")
    return join((tag("h2", f"Ignored: {len(case.ignored)}"), listing))


# --- measured and seen ---------------------------------------------------------------------------------


def ceilings(case: Case, pictures: Pictures) -> Safe:
    if not case.ceilings:
        return NOTHING
    header = ("ceiling", "best", "", "of peak", "median", "p10 to p90", "n", "verdict", "how")
    parts: list[Child] = [
        tag("h2", "Measured ceilings"),
        tag("p", "Best of each run, with its spread. Peak is the published limit.", class_="note"),
        *(figure(case, pictures, name) for name in CEILING_CHARTS),
    ]
    for layer, entries in measured.by_layer(case.ceilings):
        rows = [
            _curve(entry) if isinstance(entry, measured.Curve) else _ceiling(entry)
            for entry in entries[:MAX_ROWS]
        ]
        label = f"Measured ceilings: {layer}" if layer else "Measured ceilings"
        parts.append(tag("h3", layer) if layer else None)
        parts.append(table(header, rows, align="lrllrrrll", label=label))
    return join(parts)


CEILING_CHARTS = (
    "ceilings",
    "roofline",
    "host-roofline",
    "latency-by-size",
    "read-by-size",
    "memory-by-threads",
)


def _curve(curve: measured.Curve) -> tuple[Child, ...]:
    """A family as one row: its points stand where the reader looks for how."""
    lowest, highest = (f(c.best for c in curve.points) for f in (min, max))
    return (
        tag("b", measured.curve_title(curve)), tag("b", f"{words.number(lowest)} to {words.number(highest)}"),
        curve.points[0].unit, "", "", "", f"{min(c.n for c in curve.points)}",
        tag("span", measured.curve_verdict(curve)), tag("span", measured.curve_text(curve), class_="note"),
    )  # fmt: skip


def _ceiling(c: Ceiling) -> tuple[Child, ...]:
    median, low, high = words.alike((c.median, c.p10, c.p90))
    how = [
        c.method,
        f"size {c.size}" if c.size else "",
        counted(c.threads, "thread") if c.threads else "",
    ]
    how += [f"peak: {c.peak_source}" if c.peak_source else ""]
    verdict = tag("span", c.verdict, class_=f"mark {c.verdict}")
    return (
        tag("b", c.title or c.id), tag("b", words.number(c.best)), c.unit, story.of_peak(c) or "no peak known",
        median, f"{low} to {high}", str(c.n), join((verdict, f" {c.why}" if c.why else None)),
        tag("span", "; ".join(filter(None, how)), class_="note"),
    )  # fmt: skip


def memory(case: Case, pictures: Pictures) -> Safe:
    blocks = told.memory_blocks(case)
    if not blocks:
        return NOTHING
    parts: list[Child] = []
    for block in blocks[:MAX_DEVICES]:
        parts += [tag("h3", block.title), tag("ul", *(tag("li", prose(line)) for line in block.lines))]
        if block.holders:
            rows = ((size, share, tag("code", text)) for size, share, text in block.holders)
            title = f"Who held it {block.moment}"
            parts.append(
                details(
                    title,
                    table(("size", "share", "allocated at"), rows, align="rrl", label=title),
                    opened=True,
                )
            )
    if (more := len(blocks) - MAX_DEVICES) > 0:
        parts.append(tag("p", f"{more} more devices in the JSON.", class_="note"))
    note = "Sizes that the program asked for; rounding comes on top."
    return join((tag("h2", "Memory"), tag("p", note, class_="note"), *parts))


def hang(case: Case, pictures: Pictures) -> Safe:
    lines = told.hang_lines(case)
    if not lines:
        return NOTHING
    stuck = told.stuck_rows(case)
    listing = table(told.STUCK_HEADER, stuck[:MAX_ROWS], align="llllll", label="Calls that hang")
    items = tag("ul", *(tag("li", prose(line)) for line in lines))
    calm = tag("p", "No recorded call is open.")
    return join((tag("h2", "Flight records"), items, listing if stuck else calm))


def kernels(case: Case, pictures: Pictures) -> Safe:
    rank = story.shown_rank(case)
    if rank is None or not (rank.kernels or rank.comm or rank.ops):
        return NOTHING
    shown = sorted(rank.kernels, key=lambda row: -row.total_ns)[:MAX_ROWS]
    rows = (
        (tag("code", k.name), k.kind, f"{k.total_ns / 1e6:,.3f}", f"{k.count:,}", words.duration(k.median_ns))
        for k in shown
    )
    listing = table(("kernel", "kind", "total ms", "count", "median"), rows, align="klrrr", label="Kernels")
    picture = figure(case, pictures, "kernels")
    return join(
        (
            tag("h2", "Kernels and operators"),
            tag("p", f"{story.rank_name(rank)}, whole capture.", class_="note"),
            picture,
            details(f"Kernels: {len(rank.kernels):,}", listing, opened=not picture) if shown else None,
            _records(f"Communication: {len(rank.comm):,}", rank.comm),
            _records(f"Operators: {len(rank.ops):,}", rank.ops),
        )
    )


def _records(title: str, records: tuple[dict[str, Any], ...]) -> Safe:
    """A table of records whose keys name their units."""
    if not records:
        return NOTHING
    keys = list(dict.fromkeys(key for record in records[:MAX_ROWS] for key in record))[:12]
    rows = (
        [words.value_of(key, record[key]) if key in record else "" for key in keys]
        for record in records[:MAX_ROWS]
    )
    first = records[0]
    align = "".join("r" if isinstance(first.get(key), int | float) else "k" for key in keys)
    return details(title, table(keys, rows, align=align, label=title))


def machine(case: Case, pictures: Pictures) -> Safe:
    if case.machine is None:
        return NOTHING
    lines = [(tag("dt", name), tag("dd", prose(text))) for name, text in story.machine_lines(case.machine)]
    facts = list(case.machine.facts.items())[:MAX_ROWS]
    rows = (
        (tag("code", key), words.value_of(key, f.value) if f.status == "ok" else f"{f.status}: {f.detail or ''}", tag("code", f.source))
        for key, f in facts
    )  # fmt: skip
    gaps = ((tag("code", key), prose(why)) for key, why in list(case.machine.gaps.items())[:MAX_ROWS])
    fact_table = table(("field", "value", "seen in"), rows, align="kkk", label="Facts")
    gap_table = table(("field", "why not"), gaps, align="kl", label="Could not see")
    return join(
        (
            tag("h2", "Machine"),
            _topology(case.machine),
            tag("dl", *(piece for pair in lines for piece in pair), class_="machine"),
            details(f"Facts: {len(case.machine.facts):,}", fact_table) if facts else None,
            details(f"Could not see: {len(case.machine.gaps):,}", gap_table) if case.machine.gaps else None,
        )
    )


def _topology(machine: Machine) -> Safe:
    """The picture of the machine, with the tree for those who can't see it."""
    drawing = topology.svg(machine)
    if drawing is None:
        return NOTHING
    title = topology.title(machine)
    box = tag("div", Safe(drawing), class_="scroll", role="region", aria_label=title, tabindex="0")
    note = tag(
        "p",
        "A square is a core, small where it is an efficiency core, hollow where this process may not use it; frames are L3 groups.",
        class_="note",
    )
    lines = tag("ul", *(tag("li", line.strip()) for line in topology.tree(machine)))
    return join(
        (tag("figure", tag("figcaption", prose(title)), box), note, details("The same as a list", lines))
    )


def watched(case: Case, pictures: Pictures) -> Safe:
    if case.run is None:
        return NOTHING
    lines = [(tag("dt", subject), tag("dd", prose(line))) for subject, line in run.told(case.run)]
    return join(
        (
            tag("h2", "What was seen"),
            tag("dl", *(piece for pair in lines for piece in pair), class_="machine"),
        )
    )


Section = Callable[[Case, Pictures], Safe]
SECTIONS: tuple[tuple[str, Section], ...] = (
    ("run", watched),
    ("warnings", warnings),
    ("step", step),
    ("ranks", ranks),
    ("findings", findings),
    ("memory", memory),
    ("hang", hang),
    ("not-judged", not_judged),
    ("ceilings", ceilings),
    ("kernels", kernels),
    ("verdicts", layers),
    ("machine", machine),
    ("ignored", ignored),
)
