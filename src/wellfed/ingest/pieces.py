"""Lists of JSON objects inside a text that may be damaged: decoded whole, or object by object what is left."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)
BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding a broken (or hostile: endlessly nested) text raises."""
LONGEST = 16 << 20
"""An object longer than this is no event and no head: the search for its end stops there."""


def salvage(text: bytes, begin: int, end: int, first_key: bytes, decoder: Any) -> tuple[list[Any], list[int]]:
    """The objects between two offsets that can still be decoded, and the offsets of those that cannot.
    Objects begin with `first_key`, so that a broken one costs itself only."""
    found: list[Any] = []
    lost: list[int] = []
    for start, stop in _starts(text, begin, end, first_key):
        try:
            found.append(decoder.decode(text[start : object_end(text, start, stop)]))
        except BROKEN:
            lost.append(start)
    return found, lost


def _starts(text: bytes, begin: int, end: int, first_key: bytes) -> Iterator[tuple[int, int]]:
    mark = re.compile(rb'\{\s*"' + re.escape(first_key) + rb'"\s*:')
    previous: int | None = None
    for match in mark.finditer(text, begin, end):
        if previous is not None:
            yield previous, match.start()
        previous = match.start()
    if previous is not None:
        yield previous, end


def object_end(text: bytes, start: int, stop: int) -> int:
    """Offset just past the object that starts at `start`, minding strings; `stop` where it does not close."""
    depth = 0
    for token in _TOKEN.finditer(text, start, min(stop, start + LONGEST)):
        mark = token.group()
        if mark == b"{":
            depth += 1
        elif mark == b"}":
            depth -= 1
            if depth == 0:
                return token.end()
    return min(stop, start + LONGEST)
