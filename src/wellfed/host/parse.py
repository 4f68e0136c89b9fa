"""Small parsers for what the kernel prints, and the one way to make a Fact from a Reading."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from wellfed.host.door import Reading
from wellfed.model.fact import Fact, Status

RAW_CHARS = 4096
MAX_CPUS = 8192
"""The most that a kernel can be built for (`NR_CPUS`, arch/x86/Kconfig): a hostile `0-4000000000` must not fill the
memory."""
MAX_NODES = 1024
"""As many NUMA nodes as a kernel can be built for (`NODES_SHIFT` is at most 10)."""


def fact(
    key: str, reading: Reading, parse: Callable[[str], Any] = str.strip, *, line: str | None = None
) -> Fact:
    """The fact that `parse` makes of a reading. What `parse` raises for a text it cannot read becomes
    status `error`; None and an empty word from it become `unsupported` (the source is there but does not say). Of a long text
    `line` picks the lines that are kept as evidence: those that hold this word."""
    if reading.status != "ok" or reading.text is None:
        return gap(key, reading.source, reading.status, reading.detail)
    raw = reading.text
    if line is not None:
        raw = "\n".join(row for row in raw.splitlines() if line in row)
    raw = raw[:RAW_CHARS]
    try:
        value = parse(reading.text)
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        detail = f"cannot read {reading.text[:40]!r}: {error}"
        return Fact(key=key, source=reading.source, raw=raw, status="error", detail=detail)
    if value is None or value == "":
        detail = "it does not say" if raw.strip() else "it is empty"
        return Fact(key=key, source=reading.source, raw=raw, status="unsupported", detail=detail)
    return Fact(key=key, value=value, source=reading.source, raw=raw, detail=reading.detail)


def known(key: str, value: Any, source: str, raw: str | None = None, detail: str | None = None) -> Fact:
    """A fact worked out from several readings."""
    return Fact(key=key, value=value, source=source, raw=raw[:RAW_CHARS] if raw else raw, detail=detail)


def gap(key: str, source: str, status: Status = "missing", detail: str | None = None) -> Fact:
    """A fact that could not be seen."""
    return Fact(key=key, source=source, status=status, detail=detail)


def kernel_arguments(text: str) -> str:
    """The part of a kernel command line that the kernel reads. What follows ` -- ` goes to the first program:
    its addresses, ports and switches say much of a site and nothing of a machine's speed."""
    return re.split(r"(?:^|\s)--(?:\s|$)", text, maxsplit=1)[0].rstrip()


def first_ok(facts: Iterable[Fact]) -> Fact:
    """The first fact that was seen, else the first of all. Stops looking once one is found."""
    first: Fact | None = None
    for candidate in facts:
        if candidate.status == "ok":
            return candidate
        first = first or candidate
    assert first is not None, "first_ok needs at least one fact"
    return first


def integer(text: str) -> int:
    """A decimal or 0x number of at most 64 bits, which is all that a kernel prints."""
    match = _INTEGER.fullmatch(text)
    if not match:
        raise ValueError("no whole number")
    value = int(match[1], 16) if match[1] else int(match[2])
    if abs(value) >> 64:
        raise ValueError("more than 64 bits")
    return value


_INTEGER = re.compile(r"\s*(?:0[xX]([0-9a-fA-F]{1,20})|(-?[0-9]{1,24}))\s*")
"""Narrower than `int()`, which also takes `1_000`, `+1` and the digits of every script."""


def decimal(text: str) -> float:
    """A number in plain ASCII digits, with a point or without: `float()` also takes `nan`, `inf` and `1_000.0`."""
    match = re.fullmatch(r"\s*(-?[0-9]{1,18}(?:\.[0-9]{0,18})?)\s*", text)
    if not match:
        raise ValueError("no plain number")
    return float(match[1])


def plain(text: str | None) -> int | None:
    """A number in ASCII digits that fits 63 bits; None for any other text, and for none."""
    words = (text or "").strip()
    return int(words) if words.isascii() and words.isdigit() and len(words) <= 18 else None


def natural(text: str) -> int | None:
    """A number that is not negative; None for the kernel's -1, which means that it does not know."""
    value = integer(text)
    return value if value >= 0 else None


def flag(text: str) -> bool:
    """0/1, N/Y, off/on."""
    word = text.strip().lower()
    if word in ("1", "y", "yes", "on", "enabled", "true"):
        return True
    if word in ("0", "n", "no", "off", "disabled", "false"):
        return False
    raise ValueError("neither on nor off")


def bracketed(text: str) -> str:
    """The chosen word of `always [madvise] never`; the only word when there is no choice."""
    match = re.search(r"\[([^\]]*)\]", text)
    if match:
        return match.group(1)
    if len(text.split()) == 1:
        return text.strip()
    raise ValueError("no word in brackets")


def cpu_list(text: str) -> tuple[int, ...]:
    """`0-3,8,10-14:2` as sorted numbers; empty text is the empty list."""
    numbers: set[int] = set()
    for part in text.replace("\0", "").strip().split(","):
        part = part.strip()
        if not part or part == "(null)":
            continue
        span, _, stride = part.partition(":")
        low, dash, high = span.partition("-")
        first, last = integer(low), integer(high) if dash else integer(low)
        if first < 0 or last < first or last >= MAX_CPUS:
            raise ValueError(f"range {part[:40]} is not believable")
        numbers.update(range(first, last + 1, integer(stride.split("/")[-1]) if stride else 1))
    return tuple(sorted(numbers))


def cpu_mask(text: str) -> tuple[int, ...]:
    """`00000000,0000000f` (32-bit words, highest first) as sorted numbers."""
    words = text.replace("\0", "").strip().split(",")
    if len(words) * 32 > MAX_CPUS:
        raise ValueError("mask is not believably long")
    numbers: list[int] = []
    for position, word in enumerate(reversed(words)):
        if not re.fullmatch(r"\s*[0-9a-fA-F]*\s*", word):
            raise ValueError("no mask")
        bits = int(word, 16) if word.strip() else 0
        if bits >> 64:
            raise ValueError("a mask word has more than 64 bits")
        numbers.extend(position * 32 + bit for bit in range(bits.bit_length()) if bits >> bit & 1)
    return tuple(sorted(numbers))


def size_bytes(text: str) -> int:
    """`32K`, `16384 kB`, `8 MB`, `1 GiB`, `512` as bytes; the kernel's K and kB are 1024."""
    match = re.fullmatch(r"\s*([0-9]{1,18})\s*([kKMGT]?)(?:i?[bB])?\s*", text)
    if not match:
        raise ValueError("not a size")
    return int(match.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match.group(2).upper()]


def colon_fields(text: str) -> dict[str, str]:
    """`Key: value` lines; of a key that comes twice the first counts."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip():
            fields.setdefault(key.strip(), value.strip())
    return fields


def json_field(name: str) -> Callable[[str], Any]:
    """Reads one field of a probe's JSON answer. A recording may hold any JSON, so the form is checked."""

    def parse(text: str) -> Any:
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise ValueError("not an object")
        return answer[name]

    return parse


def numbered(names: Iterable[str], prefix: str) -> tuple[int, ...]:
    """Numbers n of the names `prefix` + n, sorted, each once; none beyond what a kernel can number."""
    tails = (name[len(prefix) :] for name in names if name.startswith(prefix))
    found = {int(tail) for tail in tails if tail.isascii() and tail.isdigit() and len(tail) < 10}
    return tuple(sorted(number for number in found if number < MAX_CPUS))
