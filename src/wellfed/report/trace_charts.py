"""Charts of traces: idle by cause over steps, what overlaps in a step, from one recording to another, ranks that wait,
and operators under their roof. As all charts: pure functions, titles that say the take-away."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from wellfed.model import Case, RankTrace
from wellfed.model.comparison import RankComparison
from wellfed.model.counting import counted
from wellfed.report import story, words
from wellfed.report.charts import COLOUR, LIGHT, WIDTH, Chart, chart, label_of, rows_axis, text_layers

SHADES = ("idle", "comm", "copy", "compute", "overhead")
"""Of the causes, the largest first. Each is named where it is drawn: here a colour only keeps neighbours apart."""
MAX_STEPS, HEIGHT, LABEL_GAP = 60, 190, 15
LANES = {"compute": "compute", "comm": "comm", "copy": "copy", "idle": "idle"}
MAX_HEAT_RANKS, MAX_HEAT_STEPS = 48, 80
SMALL_CHANGE = 0.01
"""Of the longer step: parts that change by less fold into one row."""


# -- idle over steps --------------------------------------------------------------------------------------


def idle_over_steps(case: Case) -> Chart | None:
    """Idle time of each step of the shown rank, stacked by cause. None below two steps or without idle time. Many
    steps are averaged in groups of equal size."""
    rank = story.shown_rank(case)
    rows = _idle_rows(rank) if rank is not None else []
    totals: dict[str, float] = {}
    for row in rows:
        for cause, ns in row.items():
            totals[cause] = totals.get(cause, 0) + ns
    causes = sorted((c for c in totals if totals[c] > 0), key=lambda c: (-totals[c], c))
    if len(rows) < 2 or not causes:
        return None
    kept, folded = causes[: len(SHADES)], causes[len(SHADES) :]
    size = -(-len(rows) // MAX_STEPS)
    groups = [rows[at : at + size] for at in range(0, len(rows), size)]
    means = [{c: sum(row.get(c, 0) for row in group) / len(group) for c in causes} for group in groups]
    highest = max(sum(mean.values()) for mean in means)
    factor, unit, _ = words.column_scale(highest)
    bands = [*kept, *([f"{len(folded)} smaller"] if folded else [])]
    values: list[dict[str, Any]] = []
    tops: list[float] = []
    for at, mean in enumerate(means):
        level = 0.0
        for band in bands:
            height = mean[band] if band in mean else sum(mean[c] for c in folded)
            colour = SHADES[kept.index(band)] if band in kept else "unknown"
            values.append(
                {
                    "step": at * size,
                    "low": level / factor,
                    "high": (level + height) / factor,
                    "colour": LIGHT[colour],
                }
            )
            level += height
            if at == len(means) - 1:
                tops.append(level - height / 2)
    shares = {band: totals.get(band, sum(totals[c] for c in folded)) for band in bands}
    whole = sum(totals.values())
    marks = [
        {
            "step": (len(means) - 1) * size, "at": place / factor,
            "text": f"{label_of(band, 22)} {words.percent(shares[band] / whole)}",
        }
        for band, place in zip(bands, _apart(tops, highest), strict=True)
    ]  # fmt: skip
    return _idle_chart(_idle_title(rows, causes, totals), values, marks, unit, size, highest / factor)


def _idle_chart(
    title: str,
    values: list[dict[str, Any]],
    marks: list[dict[str, Any]],
    unit: str,
    size: int,
    highest: float,
) -> Chart:
    steps = len({row["step"] for row in values})
    per = f", means of {size} steps" if size > 1 else ""
    x = {
        "field": "step", "type": "ordinal", "scale": {"paddingInner": 0.12, "paddingOuter": 0.06},
        "axis": {"title": f"step{per}", "labelAngle": 0, "ticks": False, "labelOverlap": True, "grid": False},
    }  # fmt: skip
    y = {
        "field": "low", "type": "quantitative", "title": f"idle in a step, {unit}",
        "scale": {"domain": [0, highest * 1.02], "nice": False},
    }  # fmt: skip
    width = min(WIDTH - 130, max(steps * 44, 160))
    bars = {
        "mark": {"type": "bar", "fillOpacity": 0.8},
        "encoding": {"x": x, "y": y, "y2": {"field": "high"}, "color": COLOUR},
    }
    names = {
        "data": {"values": marks},
        "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": width / steps / 2 + 6},
        "encoding": {
            "x": {"field": "step", "type": "ordinal"},
            "y": {"field": "at", "type": "quantitative"},
            "text": {"field": "text"},
        },
    }
    return chart(title, values, [bars, names], width=width, height=HEIGHT)


def _idle_rows(rank: RankTrace) -> list[dict[str, int]]:
    return [
        {str(cause): ns for cause, ns in row["idle"].items() if ns > 0}
        for row in rank.step_parts
        if isinstance(row.get("idle"), dict)
    ]


def _apart(places: Sequence[float], highest: float) -> list[float]:
    """The same places moved as little as it takes to keep `LABEL_GAP` pixels between texts, within the chart."""
    gap = LABEL_GAP / HEIGHT * highest
    out: list[float] = []
    for place in places:
        out.append(max(place, out[-1] + gap) if out else max(place, gap / 2))
    ceiling = highest
    for at in range(len(out) - 1, -1, -1):
        out[at] = min(out[at], ceiling)
        ceiling = out[at] - gap
    return out


def _idle_title(rows: list[dict[str, int]], causes: list[str], totals: dict[str, float]) -> str:
    """`data-wait is 97.8 % of the idle time, the largest cause in 3 of 3 steps`."""
    top, whole = causes[0], sum(totals.values())
    led = sum(max(row, key=lambda c: row[c]) == top for row in rows if row)
    return (
        f"{label_of(top)} is {words.percent(totals[top] / whole)} of the idle time, "
        f"the largest cause in {led:,} of {counted(len(rows), 'step')}"
    )


# -- one step over time -----------------------------------------------------------------------------------


def overlap_strip(case: Case) -> Chart | None:
    """A typical step of the shown rank in time: when it computed, communicated, copied and was idle. Lanes that are
    on at once lie below each other; how dark a moment is says how much of it was taken. None without steps."""
    rank = story.shown_rank(case)
    strip = rank.strip if rank is not None else None
    if strip is None or rank is None or not strip.lanes or strip.span_ns <= 0:
        return None
    factor, unit, _ = words.column_scale(strip.span_ns)
    values: list[dict[str, Any]] = []
    for lane in LANES:
        bins = strip.lanes.get(lane, ())
        width = strip.span_ns / factor / max(len(bins), 1)
        for first, last, tenth in _runs([round(share / 10) for share in bins]):
            if tenth:
                values.append(
                    {
                        "label": lane, "start": first * width, "end": last * width,
                        "colour": LIGHT[LANES[lane]], "opacity": tenth / 10,
                    }
                )  # fmt: skip
    y = rows_axis()
    y["sort"] = [lane for lane in LANES if lane in strip.lanes]
    x = {
        "field": "start", "type": "quantitative", "title": f"{unit} into the step",
        "scale": {"domain": [0, strip.span_ns / factor], "nice": False},
    }  # fmt: skip
    opacity = {"field": "opacity", "type": "quantitative", "scale": None}
    bars = {
        "mark": {"type": "bar", "height": {"band": 0.74}},
        "encoding": {"y": y, "x": x, "x2": {"field": "end"}, "color": COLOUR, "fillOpacity": opacity},
    }
    return chart(_strip_title(rank), values, [bars])


def _runs(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first, end, value) of runs of equal values."""
    runs: list[tuple[int, int, int]] = []
    for at, value in enumerate(values):
        if runs and runs[-1][2] == value:
            runs[-1] = (runs[-1][0], at + 1, value)
        else:
            runs.append((at, at + 1, value))
    return runs


def _strip_title(rank: RankTrace) -> str:
    strip = rank.strip
    assert strip is not None
    idle = sum(strip.lanes.get("idle", ())) / 100 / max(len(strip.lanes.get("idle", ())), 1)
    text = f"{label_of(strip.name, 30)}, a typical one of {words.duration(strip.span_ns)}: idle {words.percent(idle)}"
    if rank.comm_ns:
        text += f"; {words.percent(rank.comm_overlapped_ns / rank.comm_ns)} of the communication lies under compute"
    return text + ", as recorded"


# -- two recordings ---------------------------------------------------------------------------------------


def change_waterfall(one: RankComparison) -> Chart | None:
    """From the step of A to that of B: each part that changed begins where the one before it ended, idle by its
    causes. None without time."""
    longest = max(one.a.ns, one.b.ns)
    if longest <= 0:
        return None
    factor, unit, digits = words.column_scale(longest)
    parts = [part for part in one.budget if part.name != "idle"] + list(one.idle)
    large = sorted((p for p in parts if abs(p.delta_ns) >= SMALL_CHANGE * longest), key=lambda p: p.delta_ns)
    rest = one.b.ns - one.a.ns - sum(p.delta_ns for p in large)
    moves = [(p.name, p.delta_ns, story.PARTS.get(p.name, ("unknown", ""))[0]) for p in large]
    if rest:
        moves.append(("smaller changes", rest, "unknown"))
    rows: list[tuple[str, float, float, str, str]] = [
        ("A", 0, one.a.ns, "overhead", f"{one.a.ns / factor:,.{digits}f} {unit}")
    ]
    level = one.a.ns
    for name, delta, group in moves:
        low, high = sorted((level, level + delta))
        rows.append((name, low, high, group, f"{delta / factor:+,.{digits}f} {unit}"))
        level += delta
    rows.append(("B", 0, one.b.ns, "overhead", f"{one.b.ns / factor:,.{digits}f} {unit}"))
    reach = max(high for _, _, high, _, _ in rows)
    values = [
        {
            "label": label_of(name, 30), "start": low / factor, "end": high / factor, "colour": LIGHT[group],
            "text": text, "side": "after" if high <= 0.73 * reach else "before" if low >= 0.3 * reach else "inside",
        }
        for name, low, high, group, text in rows
    ]  # fmt: skip
    y = rows_axis()
    x = {
        "field": "start", "type": "quantitative", "title": unit,
        "scale": {"domain": [0, reach / factor], "nice": False},
    }  # fmt: skip
    bars = {
        "mark": {"type": "bar", "height": {"band": 0.72}, "minBandSize": 2},
        "encoding": {"y": y, "x": x, "x2": {"field": "end"}, "color": COLOUR},
    }
    return chart(_change_title(one), values, [bars, *text_layers(y, after="end", before="start")])


def _change_title(one: RankComparison) -> str:
    what = "capture" if one.basis == "capture" else "step"
    parts = [part for part in one.budget if part.name != "idle"] + list(one.idle)
    most = max(parts, key=lambda part: abs(part.delta_ns), default=None)
    text = f"{words.duration(one.a.ns)} to {words.duration(one.b.ns)} a {what}"
    if most is None or not most.delta_ns:
        return text
    return f"{text}: {most.name} changed most, by {'+' if most.delta_ns > 0 else '-'}{words.duration(abs(most.delta_ns))}"


# -- ranks, roofs: pictures of data that others make ------------------------------------------------------


def wait_heat(
    ranks: Sequence[int],
    steps: Sequence[int],
    waits_ns: Sequence[Sequence[int | None]],
    *,
    title: str | None = None,
) -> Chart | None:
    """Ranks (rows) against steps (columns): `waits_ns[step][rank]`, the order of `StepWait.by_rank`; None or a
    negative value is a rank without a call in that step, and stays empty. The stronger, the longer it waited for
    others: a rank that all wait for is the pale row. Of many steps neighbours are averaged, of many ranks the one
    that waited least stands for its neighbours, so that it is not lost among them. None below two ranks, or when
    nobody waited."""
    known = [[v for v in row if v is not None and v >= 0] for row in waits_ns]
    longest = max((v for row in known for v in row), default=0)
    if len(ranks) < 2 or not steps or longest <= 0:
        return None
    tall, wide = -(-len(ranks) // MAX_HEAT_RANKS), -(-len(steps) // MAX_HEAT_STEPS)
    cells: list[tuple[str, int, float]] = []
    for top in range(0, len(ranks), tall):
        group = range(top, min(top + tall, len(ranks)))
        name = f"rank {ranks[top]}" if tall == 1 else f"ranks {ranks[group[0]]} to {ranks[group[-1]]}"
        for left in range(0, len(steps), wide):
            block = waits_ns[left : left + wide]
            means = [
                mean for k in group if (mean := _mean(row[k] for row in block if k < len(row))) is not None
            ]
            if means:
                cells.append((name, steps[left], min(means)))
    darkest = max(mean for _, _, mean in cells)
    values = [
        {
            "label": name,
            "step": step,
            "colour": LIGHT["idle"],
            "opacity": round(0.03 + 0.87 * mean / darkest, 3),
        }
        for name, step, mean in cells
    ]
    y = {**rows_axis(), "axis": {**rows_axis()["axis"], "labelOverlap": True}}
    per = f", means of {wide}" if wide > 1 else ""
    x = {
        "field": "step", "type": "ordinal", "scale": {"paddingInner": 0.04},
        "axis": {"title": f"step{per}", "labelAngle": 0, "ticks": False, "domain": False, "labelOverlap": True},
    }  # fmt: skip
    opacity = {"field": "opacity", "type": "quantitative", "scale": None}
    cell = {
        "mark": {"type": "rect"},
        "encoding": {"y": y, "x": x, "color": COLOUR, "fillOpacity": opacity},
    }
    rows = len({name for name, _, _ in cells})
    return chart(
        title or _wait_title(ranks, waits_ns, darkest),
        values,
        [cell],
        height={"step": 18 if rows > 16 else 24},
    )


def waits_of_ranks(case: Case) -> Chart | None:
    """The waiting of the case's ranks in its steps. None where ranks or steps are few, or too many were seen."""
    together = case.together
    if together is None:
        return None
    told = [step for step in together.steps if step.by_rank]
    if len(told) < 2:
        return None
    return wait_heat(together.ranks, [step.step for step in told], [step.by_rank for step in told])


def _mean(waits: Iterable[int | None]) -> float | None:
    """Of those that are there."""
    found = [wait for wait in waits if wait is not None and wait >= 0]
    return sum(found) / len(found) if found else None


def _wait_title(ranks: Sequence[int], waits_ns: Sequence[Sequence[int | None]], darkest: float) -> str:
    means = []
    for k, rank in enumerate(ranks):
        mean = _mean(row[k] for row in waits_ns if k < len(row))
        if mean is not None:
            means.append((mean, rank))
    least, most = min(means), max(means)
    return (
        f"rank {least[1]} waits least, {words.duration(least[0])} a step, rank {most[1]} most, "
        f"{words.duration(most[0])}; the strongest cell is {words.duration(darkest)}"
    )


class RoofPoint(NamedTuple):
    """One operator or kernel: FLOP per byte, FLOP/s achieved, FLOP/s that the roof allows at that intensity, and its
    time (any unit; it sizes the mark)."""

    name: str
    intensity: float
    achieved: float
    roof: float
    time: float = 1.0


class Roof(NamedTuple):
    """One roof to draw: what the units do at most (FLOP/s), and what memory feeds them (bytes/s)."""

    name: str
    flops_s: float
    bytes_s: float


MAX_POINTS, MAX_NAMED = 40, 8


def roofline(
    points: Sequence[RoofPoint], roofs: Sequence[Roof] = (), *, title: str | None = None
) -> Chart | None:
    """Achieved FLOP/s over FLOP per byte, both on log axes; from each point a line leads up to its roof. The points
    that take most time are named. Points without a positive finite value are left out; None when none is left."""
    good = [p for p in points if all(math.isfinite(v) and v > 0 for v in (p.intensity, p.achieved, p.roof))]
    good = sorted(good, key=lambda p: (-p.time, p.name))[:MAX_POINTS]
    if not good:
        return None
    scale, unit = _flops_unit(max(p.roof for p in good))
    longest = max(p.time for p in good) or 1.0
    values = [
        {
            "intensity": p.intensity, "achieved": p.achieved / scale, "roof": p.roof / scale,
            "size": 40 + 260 * max(p.time, 0) / longest, "colour": LIGHT["compute" if p.achieved >= 0.5 * p.roof else "idle"],
            "text": f"{label_of(p.name, 26)} {words.percent(p.achieved / p.roof)}" if at < MAX_NAMED else "",
        }
        for at, p in enumerate(good)
    ]  # fmt: skip
    low_x, high_x = min(p.intensity for p in good) / 2, max(p.intensity for p in good) * 4
    low_y, high_y = min(p.achieved for p in good) / scale / 2, max(p.roof for p in good) / scale * 1.6
    for roof in roofs:
        high_y = max(high_y, min(roof.flops_s, roof.bytes_s * high_x) / scale * 1.3)
    x = {
        "field": "intensity", "type": "quantitative", "title": "FLOP per byte, log",
        "scale": {"type": "log", "domain": [low_x, high_x], "nice": False}, "axis": {"tickCount": 5, "format": "~g", "grid": False},
    }  # fmt: skip
    y = {
        "field": "achieved", "type": "quantitative", "title": f"{unit}, log",
        "scale": {"type": "log", "domain": [low_y, high_y], "nice": False}, "axis": {"tickCount": 5, "format": "~g", "grid": False},
    }  # fmt: skip
    size = {"field": "size", "type": "quantitative", "scale": None}
    layers: list[Chart] = [_roof_line(roof, low_x, high_x, scale) for roof in roofs]
    layers += [
        {
            "mark": {"type": "rule", "strokeDash": [2, 3], "opacity": 0.7},
            "encoding": {"x": x, "y": y, "y2": {"field": "roof"}},
        },
        {
            "mark": {"type": "point", "filled": True, "opacity": 0.9},
            "encoding": {"x": x, "y": y, "size": size, "color": COLOUR},
        },
        {
            "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 9, "dy": 8, "fontSize": 11},
            "encoding": {"x": x, "y": y, "text": {"field": "text"}},
        },
    ]
    return chart(title or _roof_title(good), values, layers, height=300)


def _roof_line(roof: Roof, low_x: float, high_x: float, scale: float) -> Chart:
    """Slanted where memory limits, flat where the units do."""
    ridge = roof.flops_s / roof.bytes_s if roof.bytes_s > 0 else low_x
    corners = sorted({low_x, min(max(ridge, low_x), high_x), high_x})
    line = [
        {"intensity": at, "achieved": min(roof.flops_s, roof.bytes_s * at) / scale, "text": ""}
        for at in corners
    ]
    line[-1]["text"] = label_of(roof.name, 24)
    return {
        "data": {"values": line},
        "layer": [
            {
                "mark": {"type": "line", "color": LIGHT["muted"], "strokeWidth": 1.5},
                "encoding": {
                    "x": {"field": "intensity", "type": "quantitative"},
                    "y": {"field": "achieved", "type": "quantitative"},
                },
            },
            {
                "mark": {"type": "text", "align": "right", "baseline": "bottom", "dy": -3, "color": LIGHT["muted"], "fontSize": 11},
                "encoding": {
                    "x": {"field": "intensity", "type": "quantitative"},
                    "y": {"field": "achieved", "type": "quantitative"},
                    "text": {"field": "text"},
                },
            },
        ],
    }  # fmt: skip


def _flops_unit(highest: float) -> tuple[float, str]:
    for scale, unit in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")):
        if highest >= scale:
            return scale, unit
    return 1.0, "FLOP/s"


def _roof_title(points: Sequence[RoofPoint]) -> str:
    top = points[0]
    share = sum(p.time for p in points if p.achieved >= 0.5 * p.roof) / max(
        sum(p.time for p in points), 1e-300
    )
    return (
        f"{label_of(top.name, 36)} takes most time, at {words.percent(top.achieved / top.roof)} of its roof; "
        f"{words.percent(share)} of the time is above half of it"
    )
