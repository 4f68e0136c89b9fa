"""Lists of JSON objects inside a text that may be damaged: decoded whole, or object by object what is left."""

import re
from typing import Any

import msgspec

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}]', re.DOTALL)
"""Strings (one that does not close reaches to the end, so that nothing is scanned twice) and braces."""
BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding a broken (or hostile: endlessly nested) text raises."""
LONGEST = 16 << 20
"""An object longer than this is no event and no head: the search for its end stops there."""


def salvage(
    text: bytes, begin: int, end: int, start: re.Pattern[bytes], decoder: Any
) -> tuple[list[Any], list[int]]:
    """The objects between two offsets that can still be decoded, and the offsets of those that cannot. Objects
    begin as `start` says (a brace and the keys that come first), so that a broken one costs itself only."""
    found: list[Any] = []
    lost: list[int] = []
    at = begin
    match = start.search(text, begin, end)
    while match:
        if text[at : match.start()].strip(b", \t\r\n"):
            lost.append(at)  # something stands before it that does not begin as an object should
        following = start.search(text, match.end(), end)
        at = object_end(text, match.start(), following.start() if following else end)
        try:
            found.append(decoder.decode(text[match.start() : at]))
        except BROKEN:
            lost.append(match.start())
            at = following.start() if following else end
        match = following
    return found, lost


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
