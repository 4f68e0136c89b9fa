"""Reading trees of dictionaries and lists from strangers: each helper gives a value of the type asked for, or
nothing. What is not there, or of another type, is None; nothing raises."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")

I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1
_RANK = re.compile(r"rank[_.-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_LAST_DIGITS = re.compile(r"(\d{1,7})(?:\.\w+)*$")
_TEXT_LIMIT = 400


class Shared(Generic[T]):
    """Reads each object of a tree once, however often the tree refers to it: PyTorch writes a stack once and refers
    to it a thousand times, and a hostile file could refer to a list of lists of lists as often. The tree must
    outlive it."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read, self._seen = read, dict[int, T]()

    def __call__(self, value: Any) -> T:
        key = id(value)
        if key not in self._seen:
            self._seen[key] = self._read(value)
        return self._seen[key]


def integer(value: Any) -> int | None:
    """A whole number that 64 bits hold, also as text (PyTorch's JSON writes some so)."""
    if isinstance(value, str) and len(value) <= 20 and value.lstrip("-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not I64_MIN <= value <= I64_MAX:
        return None
    return value


def within(value: Any, limit: int) -> int | None:
    """A whole number from 0 to `limit`."""
    number = integer(value)
    return number if number is not None and 0 <= number <= limit else None


def text(value: Any) -> str:
    return value[:_TEXT_LIMIT] if isinstance(value, str) else ""


def mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def frames(value: Any) -> tuple[str, ...]:
    """A stack as `function at file:line`, in the order written (PyTorch: the innermost first)."""
    return tuple(_frames(value))


def _frames(value: Any) -> Iterator[str]:
    for frame in items(value)[:200]:
        row = mapping(frame)
        if row:
            line = integer(row.get("line"))
            yield f"{text(row.get('name')) or '?'} at {text(row.get('filename')) or '?'}:{'?' if line is None else line}"


def rank_of(name: str, *, bare: bool = False) -> int | None:
    """The rank that a file's name tells: `rank0`, `nccl_trace_rank_12`. With `bare`, also the last digits of the
    name without the word."""
    found = _RANK.findall(name)
    if found:
        return int(found[-1])
    last = _LAST_DIGITS.search(name) if bare else None
    return int(last[1]) if last else None
