"""`wellfed catalog`: what is known of GPUs and links, each number with its source."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from wellfed.cli.common import Output, emit_value, output_options

if TYPE_CHECKING:
    from wellfed.catalog import GpuSpec, LinkSpec, Number

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


@click.command("catalog", epilog="Example: wellfed catalog h200 b200")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_options("text", "json")
def command(names: tuple[str, ...], output: Output) -> None:
    """List what is known, show one GPU or link with its sources, or compare several.

    NAME is a key (h200-sxm-141), what people write (h200, H100-SXM-80GB), a part of a name (h100: shows all of
    them), a link (pcie-5) or a family of links (nvlink).
    """
    from wellfed import catalog

    if names:
        gpus, links = _find(names)
    else:
        gpus, links = list(catalog.gpus()), list(catalog.links())

    def text(width: int, _: bool) -> str:
        if not names:
            lines = _list(gpus, links, width)
        elif len(gpus) == 1 and not links:
            lines = _show(gpus[0], width)
        else:
            lines = [*_compare(gpus, width), *_show_links(links, width)]
        return "\n".join(lines) + "\n"

    emit_value(_plain(gpus, links), output, text=text, public=True)


def _find(names: Sequence[str]) -> tuple[list["GpuSpec"], list["LinkSpec"]]:
    """What the names mean, each once and in their order. Raises WellfedError for one that means nothing."""
    from wellfed import catalog

    gpus: dict[str, GpuSpec] = {}
    links: dict[str, LinkSpec] = {}
    for name in names:
        exact = catalog.gpu(name)
        keys = [exact.key] if exact else catalog.search_gpus(name) if len(name) > 1 else []
        found = [spec for key in keys if (spec := catalog.gpu(key)) is not None]
        wires = [spec for spec in catalog.links() if name.casefold() in (spec.key, spec.family)]
        if not found and not wires:
            raise _unknown(name)
        gpus |= {spec.key: spec for spec in ([] if wires else found)}
        links |= {spec.key: spec for spec in wires}
    return list(gpus.values()), list(links.values())


def _unknown(name: str) -> Exception:
    import difflib

    from wellfed import catalog
    from wellfed.model import WellfedError

    known = [word for spec in catalog.gpus() for word in (spec.key, *spec.aliases)]
    known += [spec.key for spec in catalog.links()]
    near = difflib.get_close_matches(name.casefold(), known, n=1)
    return WellfedError(
        f"nothing is known of {name!r}", hint=f"wellfed catalog {near[0]}" if near else "wellfed catalog"
    )


# -- text --------------------------------------------------------------------------------------------------


def _list(gpus: Sequence["GpuSpec"], links: Sequence["LinkSpec"], width: int) -> Iterable[str]:
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
    yield from _fold(LEGEND, width)
    yield from _fold("`wellfed catalog NAME` shows the sources, `wellfed catalog NAME NAME` compares.", width)


def _table_width(columns: Sequence[tuple[str, Sequence[str]]]) -> int:
    return sum(max(map(len, (title, *cells))) + 2 for title, cells in columns) - 2


def _show(spec: "GpuSpec", width: int) -> Iterable[str]:
    from wellfed import catalog

    sources: list[str] = []
    yield f"{spec.title}  ({spec.key})"
    facts = [spec.vendor, spec.architecture, spec.memory_type, spec.link, spec.status]
    if spec.compute_capability:
        facts.insert(2, f"compute capability {spec.compute_capability}")
    if spec.devices > 1:
        facts.append(f"{spec.devices} devices in one package, whose numbers are these together")
    if spec.gpus:
        facts.append(f"{spec.gpus} GPUs, whose numbers are these together")
    yield from _fold(", ".join(fact for fact in facts if fact), width)
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
        yield from _fold(f"{text}; {price.note}" if price.note else text, width)
    yield ""
    if spec.names or spec.device_ids:
        found = [*(f"`{name}`" for name in spec.names), *spec.device_ids]
        yield from _fold("found as " + ", ".join(found), width)
    else:
        yield "never matched to a device: no driver name or device id is known"
    for note in (*([f"vendor prints sparse figures: {spec.sparse}"] if spec.sparse else []), *spec.notes):
        yield from _fold(f"- {note}", width, indent=2)
    others = [key for key in catalog.search_gpus(spec.key.split("-")[0]) if key != spec.key]
    if others:
        yield from _fold("see also " + ", ".join(others), width)
    yield ""
    yield from _fold(LEGEND, width)
    for place, source in enumerate(sources, 1):
        yield from _fold(f"[{place}] {source}", width, indent=4)


def _compare(gpus: Sequence["GpuSpec"], width: int) -> Iterable[str]:
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
    yield from _fold(LEGEND, width)


def _show_links(links: Sequence["LinkSpec"], width: int) -> Iterable[str]:
    sources: list[str] = []
    for link in links:
        yield f"{link.title}  ({link.key})"
        rows = []
        for field, number in link.numbers.known().items():
            label, unit = _label(field)
            rows.append((f"  {label}", _cell(number), unit, _reference(number.source, sources)))
        yield from _table(rows, align="lrll")
        for note in link.notes:
            yield from _fold(f"  - {note}", width, indent=4)
        yield ""
    if links:
        yield f"{MARK} not verified: from memory, derived, or sources disagree."
    for place, source in enumerate(sources, 1):
        yield from _fold(f"[{place}] {source}", width, indent=4)


def _label(field: str) -> tuple[str, str]:
    """`memory_bandwidth_gbs` -> (`memory bandwidth`, `GB/s`)."""
    words = field.split("_")
    unit = UNITS.get(words[-1], "")
    return " ".join(words[:-1] if unit else words), unit


def _cell(number: "Number | None") -> str:
    if number is None:
        return "-"
    value = number.value
    text = f"{value:,.0f}" if value == int(value) else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"
    return text + (MARK if number.status == "unverified" else "")


def _price(spec: "GpuSpec") -> str:
    from wellfed import catalog

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


def _fold(text: str, width: int, indent: int = 0) -> Iterable[str]:
    import textwrap

    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


# -- JSON --------------------------------------------------------------------------------------------------


def _plain(gpus: Sequence["GpuSpec"], links: Sequence["LinkSpec"]) -> dict[str, Any]:
    """`{"schema": 1, "gpus": [...], "links": [...]}`: each number an object of value, status and source."""
    import msgspec

    from wellfed import catalog

    def entry(spec: "GpuSpec | LinkSpec") -> dict[str, Any]:
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
