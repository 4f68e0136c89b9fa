"""Curves of measured ceilings: latency and read bandwidth by working set, memory bandwidth by threads."""

import math
from typing import Any

from wellfed.model import Case
from wellfed.report import ceilings as told
from wellfed.report import words
from wellfed.report.charts import COLOUR, LIGHT, WIDTH, Chart, chart

HEIGHT = 200
_STEP = 1.6
"""A latency that grows by more than this from one level to the next has left a cache."""


def latency_by_size(case: Case) -> Chart | None:
    """What a dependent load takes by working set; None below four sizes."""
    points = told.curves(case.ceilings, "latency-by-size")
    if len(points) < 4:
        return None
    first, last = points[0][1].best, points[-1][1].best
    title = (
        f"a dependent load takes {words.number(first)} ns in {size_text(points[0][0])} and {words.number(last)} ns in "
        f"{size_text(points[-1][0])}"
    )
    return _by_size(title, [(size, ceiling.best) for size, ceiling in points], "ns, log", "comm")


def read_by_size(case: Case) -> Chart | None:
    """What one thread reads a second by working set; None below four sizes."""
    points = told.curves(case.ceilings, "read-by-size")
    if len(points) < 4:
        return None
    first, last = points[0][1].best, points[-1][1].best
    title = f"one thread reads {words.number(first)} GB/s from its nearest cache and {words.number(last)} from {size_text(points[-1][0])}"
    return _by_size(title, [(size, ceiling.best) for size, ceiling in points], "GB/s, log", "compute")


def bandwidth_by_threads(case: Case) -> Chart | None:
    """Triad by number of threads; None below three counts: two points say no more than their numbers."""
    points = [(int(count), c.best) for count, c in told.curves(case.ceilings, "memory-threads")]
    if len(points) < 3:
        return None
    top = max(rate for _, rate in points)
    enough = next(count for count, rate in points if rate >= 0.9 * top)
    title = f"{enough} of {points[-1][0]} threads reach {words.number(0.9 * top)} of {words.number(top)} GB/s, nine tenths of what memory gives"
    values = [
        {"at": count, "value": rate, "text": words.number(rate), "colour": LIGHT["compute"]}
        for count, rate in points
    ]
    x = {
        "field": "at", "type": "quantitative", "title": "threads, log",
        "scale": {"type": "log", "base": 2, "nice": False}, "axis": {"values": [count for count, _ in points]},
    }  # fmt: skip
    y = {"field": "value", "type": "quantitative", "title": "GB/s", "scale": {"domain": [0, top * 1.15]}}
    return _line(title, values, x, y)


def _by_size(title: str, points: list[tuple[float, float]], unit: str, shade: str) -> Chart:
    """Log against log, labelled where a step begins."""
    values: list[dict[str, Any]] = []
    named = 0.0
    for number, (size, value) in enumerate(points):
        ratio = value / named if named else math.inf
        say = number == len(points) - 1 or ratio > _STEP or ratio < 1 / _STEP
        named = value if say else named
        values.append(
            {
                "at": size / 1024,
                "value": value,
                "text": words.number(value) if say else "",
                "colour": LIGHT[shade],
            }
        )
    ticks = [size / 1024 for size, _ in points if math.log2(size) % 2 == 0]
    domain = [points[0][0] / 1024 / 1.4, points[-1][0] / 1024 * 1.4]
    x = {
        "field": "at", "type": "quantitative", "title": "working set, KiB, log",
        "scale": {"type": "log", "base": 2, "domain": domain, "nice": False},
        "axis": {"values": ticks, "format": ",d"},
    }  # fmt: skip
    low, high = min(v for _, v in points), max(v for _, v in points)
    y = {
        "field": "value", "type": "quantitative", "title": unit,
        "scale": {"type": "log", "domain": [low * 0.7, high * 1.6], "nice": False},
    }  # fmt: skip
    return _line(title, values, x, y)


def _line(title: str, values: list[dict[str, Any]], x: Chart, y: Chart) -> Chart:
    line = {
        "mark": {"type": "line", "point": {"filled": True, "size": 26}, "strokeWidth": 2},
        "encoding": {"x": x, "y": y, "color": COLOUR},
    }
    text = {
        "mark": {"type": "text", "dy": -11, "align": "center"},
        "encoding": {"x": x, "y": y, "text": {"field": "text"}},
    }
    return chart(title, values, [line, text], width=WIDTH - 40, height=HEIGHT)


def size_text(size: float) -> str:
    """`32 KiB`"""
    for name, unit in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= unit:
            return f"{words.number(size / unit)} {name}"
    return f"{size:.0f} B"
