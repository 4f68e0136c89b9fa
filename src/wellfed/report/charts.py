"""Charts as Vega-Lite dictionaries: pure functions of a Case, so that a test can compare them and a notebook
can show them. Drawing them is `draw.py`'s business.

Marks carry their own labels; colour groups and never tells alone; titles say the take-away. Colours are
those of LIGHT, and `draw.py` swaps each for a CSS variable, so one picture serves both themes. They keep
apart in lightness as well as in hue, for red-green blindness, and stand out from the page in both themes; a
test computes both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from wellfed.model import Case, Ceiling, RankTrace, Verdict
from wellfed.model.counting import counted
from wellfed.report import story, words

Chart = dict[str, Any]

LIGHT: dict[str, str] = {
    "ink": "#1b1f24", "muted": "#57606a", "rule": "#d0d7de", "page": "#ffffff",
    "compute": "#0a72b8", "comm": "#a86100", "copy": "#9a4a86", "idle": "#a11a10",
    "overhead": "#7c8693", "unknown": "#868e99", "good": "#14795c", "noisy": "#a86200",
}  # fmt: skip
DARK: dict[str, str] = {
    "ink": "#e6e9ed", "muted": "#9aa4af", "rule": "#373e47", "page": "#14171b",
    "compute": "#58b1ea", "comm": "#f0b95a", "copy": "#d68fc0", "idle": "#f2754a",
    "overhead": "#7f8a97", "unknown": "#8a949f", "good": "#4fbf98", "noisy": "#f0b95b",
}  # fmt: skip

WIDTH = 520
ROW = 24
LETTER = 6.4
"""Pixels that a letter takes on average."""
MAX_ROWS = 32
LABEL_LIMIT = 300
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"

CONFIG: Chart = {
    "background": None,
    "font": "Helvetica, Arial, sans-serif",
    "view": {"stroke": None},
    "title": {
        "anchor": "start", "color": LIGHT["ink"], "subtitleColor": LIGHT["muted"], "fontSize": 14, "offset": 10,
    },
    "axis": {
        "labelColor": LIGHT["ink"], "titleColor": LIGHT["muted"], "gridColor": LIGHT["rule"],
        "domainColor": LIGHT["rule"], "tickColor": LIGHT["rule"], "labelFontSize": 12, "titleFontSize": 11,
        "titleFontWeight": "normal", "labelLimit": LABEL_LIMIT, "tickCount": 6, "gridOpacity": 0.7,
    },
    "text": {"color": LIGHT["ink"], "fontSize": 12},
    "rule": {"color": LIGHT["muted"]},
}  # fmt: skip


def chart(title: str, values: Sequence[Mapping[str, Any]], layers: list[Chart], **more: Any) -> Chart:
    """A layered chart over inline values."""
    return {
        "$schema": SCHEMA,
        "title": title,
        "width": WIDTH,
        "height": {"step": ROW},
        "data": {"values": list(values)},
        "layer": layers,
        "config": CONFIG,
        **more,
    }


def label_of(text: str, limit: int = 44) -> str:
    return words.fold(words.clean(text), limit)


def rows_axis() -> Chart:
    """The axis of names: as given, without title, ticks or line."""
    return {
        "field": "label", "type": "nominal", "sort": None,
        "axis": {"title": None, "ticks": False, "domain": False, "labelPadding": 8},
    }  # fmt: skip


COLOUR: Chart = {"field": "colour", "type": "nominal", "scale": None}
TEXT_ROOM = 0.27
"""Share of the chart's width that a mark's text may take (about 24 characters)."""


def side_of(start: float, end: float) -> str:
    """Where a bar from `start` to `end` (shares of the width) has room for its text: after it, before it, or
    inside."""
    return "after" if 1 - end >= TEXT_ROOM else "before" if start >= TEXT_ROOM else "inside"


def text_layers(y: Chart, *, after: str, before: str, gap: int = 6) -> list[Chart]:
    """Text layers for `_side`: fields `side` and `text`, at the bar's `after` or `before` end."""
    places = (
        ("after", after, {"align": "left", "dx": gap}),
        ("before", before, {"align": "right", "dx": -gap}),
        ("inside", before, {"align": "left", "dx": gap, "color": LIGHT["page"]}),
    )
    return [
        {
            "transform": [{"filter": f"datum.side == '{side}'"}],
            "mark": {"type": "text", "baseline": "middle", **mark},
            "encoding": {"y": y, "x": {"field": field, "type": "quantitative"}, "text": {"field": "text"}},
        }
        for side, field, mark in places
    ]


def step_waterfall(case: Case) -> Chart | None:
    """Where the time of the shown rank's step goes, each part starting where the one before it ends."""
    rank = story.shown_rank(case)
    told = story.step_story(rank) if rank is not None else None
    if told is None:
        return None
    factor, unit, decimals = words.column_scale(told.span_ns)
    values = [
        {
            "label": label_of(part.name),
            "start": part.start_ns / factor,
            "end": (part.start_ns + part.ns) / factor,
            "colour": LIGHT[part.group],
            "text": f"{part.ns / factor:,.{decimals}f} {unit}, {words.percent(part.share)}",
            "side": side_of(part.start_ns / told.span_ns, (part.start_ns + part.ns) / told.span_ns),
        }
        for part in told.parts
    ]
    y, span = rows_axis(), told.span_ns / factor
    x = {
        "field": "start",
        "type": "quantitative",
        "title": unit,
        "scale": {"domain": [0, span], "nice": False},
    }
    bars = {
        "mark": {"type": "bar", "height": {"band": 0.72}, "minBandSize": 2},
        "encoding": {"y": y, "x": x, "x2": {"field": "end"}, "color": COLOUR},
    }
    return chart(waterfall_title(told), values, [bars, *text_layers(y, after="end", before="start")])


def waterfall_title(told: story.StepStory) -> str:
    """`data-wait takes 71.5 % of each 162 ms step, compute 22.2 %`: the largest part that is not compute,
    unless compute fills most of the step."""
    parts = {part.name: part for part in told.parts}
    compute = parts.pop("compute").share if "compute" in parts else 0.0
    whole = f"{'each' if told.whole_step else 'the'} {words.duration(told.span_ns)} "
    whole += "step" if told.whole_step else "capture"
    if compute >= 0.8 or not parts:
        return f"compute fills {words.percent(compute)} of {whole}"
    top = max(parts.values(), key=lambda part: part.ns)
    return (
        f"{label_of(top.name)} takes {words.percent(top.share)} of {whole}, compute {words.percent(compute)}"
    )


def step_causes(case: Case) -> Chart | None:
    """One stacked bar a step: compute, communication, copies and idle, so that a step unlike the others shows.
    None below two steps."""
    rank = story.shown_rank(case)
    rows = step_rows(rank) if rank is not None else []
    if len(rows) < 2:
        return None
    widest = max(row["span"] for row in rows)
    factor, unit, _ = words.column_scale(widest)
    values: list[dict[str, Any]] = []
    for row in rows[:MAX_ROWS]:
        at = 0.0
        for name, group, ns in row["parts"]:
            text = f"{label_of(name, 16)} {words.percent(ns / row['span'])}"
            fits = len(text) * LETTER + 8 < ns / widest * WIDTH
            values.append(
                {
                    "label": row["label"], "start": at / factor, "end": (at + ns) / factor,
                    "middle": (at + ns / 2) / factor, "colour": LIGHT[group], "text": text if fits else "",
                }
            )  # fmt: skip
            at += ns
    spans = [row["span"] for row in rows]
    title = f"{counted(len(rows), 'step')} of {words.duration(min(spans))} to {words.duration(max(spans))}, as traced"
    y = rows_axis()
    x = {"field": "start", "type": "quantitative", "title": unit, "scale": {"nice": False}}
    middle = {"field": "middle", "type": "quantitative"}
    return chart(
        title,
        values,
        [
            {
                "mark": {"type": "bar", "height": {"band": 0.72}, "fillOpacity": 0.35},
                "encoding": {"y": y, "x": x, "x2": {"field": "end"}, "color": COLOUR},
            },
            {
                "mark": {"type": "text", "baseline": "middle"},
                "encoding": {"y": y, "x": middle, "text": {"field": "text"}},
            },
        ],
    )


def step_rows(rank: RankTrace) -> list[dict[str, Any]]:
    """`step_parts` as rows for pictures: label, span and (part, group, ns), largest parts first within idle.
    A row holds parts by name in ns, either beside `name` and `span_ns` or under `idle` and `parts`."""
    out: list[dict[str, Any]] = []
    for row in rank.step_parts:
        flat: dict[str, float] = {}
        for key, value in row.items():
            nested = value if isinstance(value, Mapping) else {key: value}
            flat |= {str(k): v for k, v in nested.items() if isinstance(v, int | float) and v > 0}
        for key in ("start_ns", "end_ns", "traced_span_ns"):
            flat.pop(key, None)
        span = flat.pop("span_ns", 0)
        named = {key.removesuffix("_ns").replace("_", "-"): ns for key, ns in flat.items()}
        if len(named) > len({"compute", "exposed-comm", "exposed-copy", "idle"} & set(named)):
            named.pop("idle", None)  # its causes are there
        busy = {
            name: named.pop(name) for name in ("compute", "exposed-comm", "exposed-copy") if name in named
        }
        ordered = busy | dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))
        parts = [(name, story.PARTS.get(name, ("unknown", ""))[0], ns) for name, ns in ordered.items()]
        span = span or sum(ns for _, _, ns in parts)
        if span > 0:
            out.append({"label": label_of(str(row.get("name", len(out))), 24), "span": span, "parts": parts})
    return out


def ceilings_of_peak(case: Case) -> Chart | None:
    """Each measured ceiling against its published peak, on a log axis, with the plausible band where known."""
    rated = [c for c in case.ceilings if c.ratio is not None and c.peak and 0 < c.ratio < 1e6]
    if not rated:
        return None
    values: list[dict[str, Any]] = []
    for ceiling in rated[:MAX_ROWS]:
        assert ceiling.ratio is not None and ceiling.peak is not None
        # A latency above its reference is as far from it as a rate below: draw both to the left of 1.
        share = ceiling.ratio if ceiling.higher_is_better else 1 / ceiling.ratio
        values.append(
            {
                "label": label_of(ceiling.title or ceiling.id, 36), "share": share,
                "colour": LIGHT[_ceiling_colour(ceiling)],
                "text": f"{words.number(ceiling.best)} {label_of(ceiling.unit, 12)}, {story.of_peak(ceiling)}"
                + ("" if ceiling.verdict == "ok" else f", {ceiling.verdict}"),
                "side": "before" if share > 0.3 else "after",
            }
        )  # fmt: skip
    lowest = min(value["share"] for value in values)
    domain = [min(0.1, lowest * 0.7), max(1.0, max(value["share"] for value in values)) * 1.05]
    worst = min(values, key=lambda value: value["share"])
    title = f"{worst['label']} is furthest from its peak: {worst['text'].split(', ', 1)[1]}"
    y = rows_axis()
    x = {
        "field": "share", "type": "quantitative", "scale": {"type": "log", "domain": domain, "nice": False},
        "title": "share of the published peak, log", "axis": {"format": "~%", "tickCount": 4, "grid": True},
    }  # fmt: skip
    roof = {"mark": {"type": "rule", "strokeDash": [3, 3]}, "encoding": {"x": {"datum": 1}}}
    points = {
        "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
        "encoding": {"y": y, "x": x, "color": COLOUR},
    }
    return chart(title, values, [roof, points, *text_layers(y, after="share", before="share", gap=10)])


def _ceiling_colour(ceiling: Ceiling) -> str:
    return {"ok": "good", "low": "idle", "implausible": "copy", "noisy": "noisy"}[ceiling.verdict]


def verdicts_by_layer(case: Case) -> Chart | None:
    """Layers against kinds of verdict: how many checks of each layer found something, passed, or could not be
    judged. None below two layers."""
    layers = layer_counts(case.verdicts)
    if len(layers) < 2:
        return None
    most = max(count for counts in layers.values() for count in counts.values())
    values = [
        {
            "label": label_of(layer, 24), "part": kind, "colour": LIGHT[colour],
            "opacity": round(0.12 + 0.48 * counts[kind] / most, 3) if counts.get(kind) else 0.03,
            "text": f"{counts[kind]}" if counts.get(kind) else "",
        }
        for layer, counts in list(layers.items())[:MAX_ROWS]
        for kind, colour in LAYER_COLOURS.items()
    ]  # fmt: skip
    loud = {name: (counts.get("error", 0), counts.get("warning", 0)) for name, counts in layers.items()}
    worst = sorted((name for name in loud if any(loud[name])), key=lambda name: loud[name], reverse=True)
    named = ", ".join(label_of(name, 24) for name in worst[:4]) + (" and others" if len(worst) > 4 else "")
    title = f"errors or warnings in {named}" if worst else "neither error nor warning in any layer"
    return _heat(title, values, columns=len(LAYER_COLOURS))


def _heat(title: str, values: list[dict[str, Any]], *, columns: int) -> Chart:
    """Rows against parts. Strength is opacity over the page, so both themes work; each cell has its text."""
    y = rows_axis()
    x = {
        "field": "part", "type": "nominal", "sort": None,
        "axis": {"title": None, "orient": "top", "labelAngle": 0, "ticks": False, "domain": False, "labelLimit": 110},
    }  # fmt: skip
    opacity = {"field": "opacity", "type": "quantitative", "scale": None}
    cell = {
        "mark": {"type": "rect"},
        "encoding": {"y": y, "x": x, "color": COLOUR, "fillOpacity": opacity},
    }
    text = {"mark": {"type": "text"}, "encoding": {"y": y, "x": x, "text": {"field": "text"}}}
    return chart(title, values, [cell, text], width={"step": min(max(WIDTH // max(columns, 1), 88), 112)})


LAYER_COLOURS: dict[str, str] = {
    "error": "idle",
    "warning": "comm",
    "info": "compute",
    "pass": "good",
    "not judged": "overhead",
}


def layer_counts(verdicts: Sequence[Verdict]) -> dict[str, dict[str, int]]:
    """layer -> {`error` | `warning` | `info` | `pass` | `not judged`: count}, in order of appearance of the
    layers' names; what does not apply is left out, as it says nothing of the machine."""
    layers: dict[str, dict[str, int]] = {}
    for verdict in verdicts:
        if verdict.reason in story.FOLDED_REASONS:
            continue
        kind = {"finding": verdict.severity, "pass": "pass", "not-judged": "not judged"}[verdict.verdict]
        counts = layers.setdefault(verdict.layer or "other", {})
        counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(layers.items()))


def kernel_list(case: Case, *, limit: int = 12) -> Chart | None:
    """The kernels that take most time in the capture of the shown rank."""
    rank = story.shown_rank(case)
    if rank is None or not rank.kernels:
        return None
    shown = sorted(rank.kernels, key=lambda row: -row.total_ns)[:limit]
    factor, unit, decimals = words.column_scale(shown[0].total_ns)
    values = [
        {
            "label": f"{at}  {label_of(story.kernel_name(kernel.name), 44)}",
            "total": kernel.total_ns / factor,
            "text": f"{kernel.total_ns / factor:,.{decimals}f} {unit}, {kernel.count:,} x {words.duration(kernel.median_ns)}",
            "side": "before" if kernel.total_ns > 0.6 * shown[0].total_ns else "after",
        }
        for at, kernel in enumerate(shown, 1)
    ]
    title = f"{label_of(story.kernel_name(shown[0].name), 48)} takes most: {words.duration(shown[0].total_ns)} of the capture"
    y = rows_axis()
    x = {"field": "total", "type": "quantitative", "title": f"total {unit}, count x median"}
    bars = {
        "mark": {"type": "bar", "height": {"band": 0.72}, "color": LIGHT["compute"], "fillOpacity": 0.35},
        "encoding": {"y": y, "x": x},
    }
    return chart(title, values, [bars, *text_layers(y, after="total", before="total")])


def rank_heat(case: Case) -> Chart | None:
    """Ranks against parts of the step; None below two ranks. Strength is opacity, so both themes work."""
    listed = story.ranks_shown(case, MAX_ROWS)
    rows = [(rank, shares) for rank in listed if (shares := rank_shares(rank))]
    if len(rows) < 2:
        return None
    left_out = len(case.ranks) - len(listed)
    names = sorted({name for _, shares in rows for name in shares}, key=_part_order)
    names = [name for name in names if any(shares.get(name, 0) >= 0.005 for _, shares in rows)][:10]
    values = [
        {
            "label": short_rank(rank, at),
            "part": label_of(name, 18),
            "share": round(shares.get(name, 0), 4),
            "colour": LIGHT[group_of(name)],
            "opacity": round(0.04 + 0.56 * min(shares.get(name, 0), 1), 3),
            "text": words.percent(shares.get(name, 0)),
        }
        for at, (rank, shares) in enumerate(rows)
        for name in names
    ]
    title = heat_title(rows) + (f" ({left_out} that stand out less are left out)" if left_out > 0 else "")
    return _heat(title, values, columns=len(names))


def rank_shares(rank: RankTrace) -> dict[str, float]:
    """part -> share of the step (of the capture without steps); empty without a GPU event."""
    told = story.step_story(rank, small=0.0)
    return {} if told is None else {part.name: part.share for part in told.parts}


def heat_title(rows: Sequence[tuple[RankTrace, Mapping[str, float]]]) -> str:
    """Which part differs most between ranks, and who stands out."""
    names = {name for _, shares in rows for name in shares}
    reach = {name: [shares.get(name, 0.0) for _, shares in rows] for name in names}
    name = max(sorted(names), key=lambda n: max(reach[n]) - min(reach[n]) - (group_of(n) != "idle") * 1e-3)
    low, high = min(reach[name]), max(reach[name])
    if high - low < 0.02:
        return "all ranks spend their step alike"
    at = reach[name].index(high)
    return f"{label_of(name)} differs most: {words.percent(low)} to {words.percent(high)}, highest on {short_rank(rows[at][0], at)}"


def short_rank(rank: RankTrace, at: int) -> str:
    """`rank 3`, with the device where it says more."""
    if rank.rank is None:
        return f"device {rank.device}" if rank.device is not None else f"no. {at + 1}"
    return (
        f"rank {rank.rank}" if rank.device in (None, rank.rank) else f"rank {rank.rank}, device {rank.device}"
    )


def group_of(name: str) -> story.Group:
    return story.PARTS.get(name, ("unknown", ""))[0]


def _part_order(name: str) -> tuple[int, str]:
    order = list(story.PARTS)
    return (order.index(name) if name in order else len(order), name)
