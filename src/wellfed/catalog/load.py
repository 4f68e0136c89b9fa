"""Reads the catalogue's files, once, and only as much of them as was asked for.

A GPU file has a head (who it is: keys above the first table) and a body (what it can do). Finding a GPU
needs all heads and one body; parsing a head costs a quarter of parsing the file.
"""

import csv
import math
import tomllib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import msgspec

from wellfed.catalog.spec import GpuSpec, LinkSpec, Price
from wellfed.model import Value


class Head(Value, frozen=True, kw_only=True):
    """What a GPU is found by; the text is the whole file, parsed when it is wanted."""

    key: str
    names: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    text: str


@cache
def heads() -> dict[str, Head]:
    """The heads of all GPU files by key, in the order of the keys."""
    found = {}
    for text in _texts("gpu", ".toml"):
        head = tomllib.loads(text.partition("\n[")[0])
        found[head["key"]] = msgspec.convert({**head, "text": text}, Head, strict=False)
    return dict(sorted(found.items()))


@cache
def body(key: str) -> GpuSpec:
    """The whole entry of one key of `heads`."""
    raw = tomllib.loads(heads()[key].text)
    sources = raw.pop("sources")
    raw["numbers"] = _with_sources(raw["numbers"], sources)
    if "device_ids_source" in raw:
        raw["device_ids_source"] = sources[raw["device_ids_source"]]
    return msgspec.convert(raw, GpuSpec)


@cache
def all_links() -> tuple[LinkSpec, ...]:
    """All kinds of link, by family and then as the file orders them."""
    found = []
    for text in _texts("link", ".toml"):
        raw = tomllib.loads(text)
        for link in raw["link"]:
            numbers = _with_sources(link["numbers"], raw["sources"])
            found.append({**link, "family": raw["family"], "numbers": numbers})
    return msgspec.convert(found, tuple[LinkSpec, ...])


@cache
def all_prices() -> dict[str, Price]:
    """The newest price of each key."""
    newest: dict[str, Price] = {}
    for text in _texts("price", ".csv"):
        for row in csv.DictReader(text.splitlines()):
            low, high = float(row["low_usd_gpu_h"]), float(row["high_usd_gpu_h"])
            row["usd_gpu_h"] = str(round(math.sqrt(low * high), 2))
            price = msgspec.convert(row, Price, strict=False)
            if price.key not in newest or newest[price.key].date < price.date:
                newest[price.key] = price
    return newest


def _texts(folder: str, suffix: str) -> list[str]:
    entries: list[Traversable] = sorted(
        files("wellfed.catalog").joinpath(folder).iterdir(), key=lambda e: e.name
    )
    return [entry.read_text(encoding="utf-8") for entry in entries if entry.name.endswith(suffix)]


def _with_sources(numbers: dict[str, Any], sources: dict[str, str]) -> dict[str, Any]:
    """A file names its sources once and refers to them by a short name; values carry the full text."""
    return {name: [value, status, sources[short]] for name, (value, status, short) in numbers.items()}
