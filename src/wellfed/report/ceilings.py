"""Measured ceilings as people read them: by layer, and a curve as one entry instead of thirty."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from wellfed.model import Ceiling
from wellfed.report import words

LAYERS = {
    "host": "Host",
    "storage": "Storage",
    "network": "Network",
    "gpu": "GPU",
    "comm": "Collectives",
}
OTHER = "Read from other tools"
_CURVE = 6
"""Members of one family from which on they are a curve."""
_ALIKE = 0.12
"""Points of a curve that differ by less from the last one shown are left out."""
_BYTES = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 1000, "mb": 10**6, "gb": 10**9}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(b|[kmg]i?b)?")


class Curve(NamedTuple):
    """Ceilings of one family (`latency-by-size.*`) with one unit, in the order of their last part."""

    family: str
    points: tuple[Ceiling, ...]


Entry = Ceiling | Curve


def by_layer(ceilings: Sequence[Ceiling]) -> list[tuple[str | None, list[Entry]]]:
    """(title of the layer, its entries). One untitled group when no ceiling names its layer."""
    if not any(ceiling.layer for ceiling in ceilings):
        return [(None, fold(ceilings))] if ceilings else []
    groups: dict[str, list[Ceiling]] = {}
    for ceiling in ceilings:
        groups.setdefault(LAYERS.get(ceiling.layer or "", OTHER), []).append(ceiling)
    order = [*LAYERS.values(), OTHER]
    return [(title, fold(groups[title])) for title in order if title in groups]


def fold(ceilings: Iterable[Ceiling]) -> list[Entry]:
    """Entries in order, a curve where its first member stood."""
    families: dict[tuple[str, str], list[Ceiling]] = {}
    entries: list[tuple[str, str] | Ceiling] = []
    for ceiling in ceilings:
        family, _, place = ceiling.id.rpartition(".")
        if not family or size_of(place) is None:
            entries.append(ceiling)
            continue
        key = (family, ceiling.unit)
        if key not in families:
            entries.append(key)
        families.setdefault(key, []).append(ceiling)
    out: list[Entry] = []
    for entry in entries:
        if isinstance(entry, Ceiling):
            out.append(entry)
        elif len(families[entry]) < _CURVE:
            out.extend(families[entry])
        else:
            points = sorted(families[entry], key=lambda c: size_of(c.id.rpartition(".")[2]) or 0.0)
            out.append(Curve(entry[0], tuple(points)))
    return out


def size_of(place: str) -> float | None:
    """The last part of an id as a number: `32kib` is 32768, `8` is 8; None for what is none."""
    match = _SIZE.fullmatch(place.lower())
    if match is None:
        return None
    value = float(match[1]) * _BYTES.get(match[2] or "b", 1)
    return value if math.isfinite(value) else None


def curves(ceilings: Sequence[Ceiling], family: str) -> list[tuple[float, Ceiling]]:
    """(size, ceiling) of one family in rising order, those with a finite best alone."""
    found = []
    for ceiling in ceilings:
        start, _, place = ceiling.id.rpartition(".")
        size = size_of(place) if start == family else None
        if size and math.isfinite(ceiling.best) and ceiling.best > 0:
            found.append((size, ceiling))
    return sorted(found, key=lambda pair: pair[0])


def curve_title(curve: Curve) -> str:
    """`latency-by-size, 29 points`"""
    return f"{words.clean(curve.family)}, {len(curve.points)} points"


def curve_text(curve: Curve) -> str:
    """Where the curve changes: `4 KiB 1.38, 48 KiB 4.13, ... 128 MiB 162 ns`."""
    shown: list[Ceiling] = []
    for number, point in enumerate(curve.points):
        last = number == len(curve.points) - 1
        if not shown or last or _differs(shown[-1].best, point.best):
            shown.append(point)
    texts = [f"{_place(point)} {words.number(point.best)}" for point in shown]
    return ", ".join(texts) + f" {words.clean(curve.points[0].unit)}"


def curve_verdict(curve: Curve) -> str:
    """The verdict of most points, and how many have another."""
    verdicts = [point.verdict for point in curve.points]
    most = max(sorted(set(verdicts)), key=verdicts.count)
    others = len(verdicts) - verdicts.count(most)
    return f"{most}, {others} not" if others else most


def _differs(before: float, now: float) -> bool:
    if not (math.isfinite(before) and math.isfinite(now)):
        return True
    return abs(now - before) > _ALIKE * max(abs(before), 1e-12)


def _place(point: Ceiling) -> str:
    text = point.size if point.size and len(point.size) <= 12 else point.id.rpartition(".")[2]
    return words.clean(text)
