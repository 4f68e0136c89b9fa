"""What the catalogue holds, as text and as plain values: each number with its source."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from wellfed import catalog
from wellfed.catalog import GpuSpec, LinkSpec, Number
from wellfed.report import words

UNITS = {
    "gb": "GB",
    "mib": "MiB",
    "mb": "MB",
    "gbs": "GB/s",
    "gts": "GT/s",
    "tflops": "TFLOP/s",
    "tops": "TOP/s",
    "w": "W",
}
"""The last word of a number's name, and how a person writes that unit."""

COLUMNS = (
    ("memory GB", "memory_gb"),
    ("GB/s", "memory_bandwidth_gbs"),
    ("bf16", "bf16_tflops"),
    ("fp8", "fp8_tflops"),
    ("W", "tdp_w"),
)
DROPPED_FIRST = ("fp8", "W", "$/h")
"""Columns that a narrow terminal does without, in this order."""
MARK = "?"
LEGEND = f"{MARK} not verified: from memory, derived, or sources disagree. Tensor rates are dense TFLOP/s."


def render(gpus: Sequence[GpuSpec], links: Sequence[LinkSpec], *, width: int) -> str:
    """One GPU with its sources, or several side by side, and each link with its sources."""
    lines = _show(gpus[0], width) if len(gpus) == 1 and not links else _compare(gpus, width)
    return "".join(f"{line}\n" for line in (*lines, *_show_links(links, width)))


def overview(gpus: Sequence[GpuSpec], links: Sequence[LinkSpec], *, width: int) -> str:
    """The list of all, one line each."""
    return "".join(f"{line}\n" for line in _list_all(gpus, links, width))


def plain(gpus: Sequence[GpuSpec], links: Sequence[LinkSpec]) -> dict[str, Any]:
    """`{"schema": 1, "gpus": [...], "links": [...]}`: each number an object of value, status and source."""

    def entry(spec: GpuSpec | LinkSpec) -> dict[str, Any]:
        known = spec.numbers.known()
        numbers = {
            name: {"value": number.value, "status": number.status, "source": number.source}
            for name, number in known.items()
        }
        fields = {name: getattr(spec, name) for name in spec.__struct_fields__ if name != "numbers"}
        return {**fields, "numbers": numbers}

    found = [{**entry(spec), "price": catalog.price(spec.key)} for spec in gpus]
    plain: dict[str, Any] = msgspec.to_builtins(
        {"schema": 1, "gpus": found, "links": [entry(spec) for spec in links]}
    )
    return plain


def _list_all(gpus: Sequence[GpuSpec], links: Sequence[LinkSpec], width: int) -> Iterable[str]:
    columns = [(title, [_cell(getattr(spec.numbers, field)) for spec in gpus]) for title, field in COLUMNS]
    columns += [("$/h", [_price(spec) for spec in gpus])]
    for title in DROPPED_FIRST:
        if _table_width([("accelerator", [spec.key for spec in gpus]), *columns]) > width:
            columns = [column for column in columns if column[0] != title]
    yield from _table(
        [("accelerator", *(title for title, _ in columns))]
        + [(spec.key, *(cells[row] for _, cells in columns)) for row, spec in enumerate(gpus)]
    )
    yield ""
    rows = [("link, one direction", "GB/s", "achieved")]
    rows += [
        (link.key, _cell(link.numbers.direction_gbs), _cell(link.numbers.achieved_gbs)) for link in links
    ]
    yield from _table(rows)
    yield ""
    yield from words.wrap(LEGEND, width)
    yield from words.wrap(
        "`wellfed catalog NAME` shows the sources, `wellfed catalog NAME NAME` compares.", width
    )


def _table_width(columns: Sequence[tuple[str, Sequence[str]]]) -> int:
    return sum(max(map(len, (title, *cells))) + 2 for title, cells in columns) - 2


def _show(spec: GpuSpec, width: int) -> Iterable[str]:
    sources: list[str] = []
    yield f"{spec.title}  ({spec.key})"
    facts = [spec.vendor, spec.architecture, spec.memory_type, spec.link, spec.status]
    if spec.compute_capability:
        facts.insert(2, f"compute capability {spec.compute_capability}")
    if spec.devices > 1:
        facts.append(f"{spec.devices} devices in one package, whose numbers are these together")
    if spec.gpus:
        facts.append(f"{spec.gpus} GPUs, whose numbers are these together")
    yield from words.wrap(", ".join(fact for fact in facts if fact), width)
    yield ""
    rows = []
    for field, number in spec.numbers.known().items():
        label, unit = _label(field)
        rows.append((label, _cell(number), unit, _reference(number.source, sources)))
    yield from _table(rows, align="lrll")
    price = catalog.price(spec.key)
    if price is not None:
        yield ""
        spread = f"{price.low_usd_gpu_h:.2f} to {price.high_usd_gpu_h:.2f}, {price.date}"
        text = f"price {price.usd_gpu_h:.2f} USD an hour ({spread}) {_reference(price.source, sources)}"
        yield from words.wrap(f"{text}; {price.note}" if price.note else text, width)
    yield ""
    if spec.names or spec.device_ids:
        found = [*(f"`{name}`" for name in spec.names), *spec.device_ids]
        yield from words.wrap("found as " + ", ".join(found), width)
    else:
        yield "never matched to a device: no driver name or device id is known"
    for note in (*([f"vendor prints sparse figures: {spec.sparse}"] if spec.sparse else []), *spec.notes):
        yield from words.wrap(f"- {note}", width, rest="  ")
    others = [key for key in catalog.search_gpus(spec.key.split("-")[0]) if key != spec.key]
    if others:
        yield from words.wrap("see also " + ", ".join(others), width)
    yield ""
    yield from words.wrap(LEGEND, width)
    for place, source in enumerate(sources, 1):
        yield from words.wrap(f"[{place}] {source}", width, rest="    ")


def _compare(gpus: Sequence[GpuSpec], width: int) -> Iterable[str]:
    if not gpus:
        return
    fields = [
        field for field in gpus[0].numbers.__struct_fields__ if any(getattr(g.numbers, field) for g in gpus)
    ]
    label_width = max(len(" ".join(_label(field))) for field in fields)
    each = max(len(spec.key) for spec in gpus) + 2
    per_block = max((width - label_width) // each, 1)
    for start in range(0, len(gpus), per_block):
        block = gpus[start : start + per_block]
        rows = [("", *(spec.key for spec in block))]
        rows += [
            (" ".join(_label(field)), *(_cell(getattr(spec.numbers, field)) for spec in block))
            for field in fields
        ]
        rows.append(("price USD/h", *(_price(spec) for spec in block)))
        yield from _table(rows)
        yield ""
    yield from words.wrap(LEGEND, width)


def _show_links(links: Sequence[LinkSpec], width: int) -> Iterable[str]:
    sources: list[str] = []
    for link in links:
        yield f"{link.title}  ({link.key})"
        rows = []
        for field, number in link.numbers.known().items():
            label, unit = _label(field)
            rows.append((f"  {label}", _cell(number), unit, _reference(number.source, sources)))
        yield from _table(rows, align="lrll")
        for note in link.notes:
            yield from words.wrap(f"  - {note}", width, rest="    ")
        yield ""
    if links:
        yield f"{MARK} not verified: from memory, derived, or sources disagree."
    for place, source in enumerate(sources, 1):
        yield from words.wrap(f"[{place}] {source}", width, rest="    ")


def _label(field: str) -> tuple[str, str]:
    """`memory_bandwidth_gbs` -> (`memory bandwidth`, `GB/s`)."""
    parts = field.split("_")
    unit = UNITS.get(parts[-1], "")
    return " ".join(parts[:-1] if unit else parts), unit


def _cell(number: Number | None) -> str:
    if number is None:
        return "-"
    value = number.value
    text = f"{value:,.0f}" if value == int(value) else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"
    return text + (MARK if number.status == "unverified" else "")


def _price(spec: GpuSpec) -> str:
    price = catalog.price(spec.key)
    return "-" if price is None else f"{price.usd_gpu_h:.2f}"


def _reference(source: str, sources: list[str]) -> str:
    if source not in sources:
        sources.append(source)
    return f"[{sources.index(source) + 1}]"


def _table(rows: Sequence[Sequence[str]], align: str = "l") -> Iterable[str]:
    """Columns two spaces apart: the first to the left, the others to the right unless `align` says."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if (align[column] if column < len(align) else "r") == "l" else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
