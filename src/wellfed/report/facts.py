"""Single facts as text: each with where it was seen, then those that could not be."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from wellfed.model import Fact
from wellfed.report import words


def render(facts: Mapping[str, Fact], *, width: int) -> str:
    """Seen facts first, each with its source below; then the gaps, those of one reason together. Long values
    are cut, with their length."""
    return "".join(f"{line}\n" for line in _lines(facts, width))


def _lines(facts: Mapping[str, Fact], width: int) -> Iterable[str]:
    gaps: dict[str, list[str]] = {}
    for name, fact in facts.items():
        if fact.status != "ok":
            reason = fact.status + (f" ({fact.detail})" if fact.detail else "")
            gaps.setdefault(reason, []).append(name)
            continue
        yield from words.wrap(f"{name} = {_shown(fact.value)}", width, rest="    ", cut=True)
        where = f"from {fact.source}" + (f"; {fact.detail}" if fact.detail else "")
        yield from words.wrap(where, width - 2, first="  ", rest="  ", cut=True)
    if gaps:
        yield ""
        yield f"Could not see {sum(map(len, gaps.values()))}:"
        for reason, names in gaps.items():
            yield from words.wrap(
                f"{reason}: {', '.join(names)}", width - 2, first="  ", rest="    ", cut=True
            )


def _shown(value: Any) -> str:
    text = words.clean(value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value)))
    if len(text) <= words.LONGEST_VALUE:
        return text
    return f"{text[: words.LONGEST_VALUE]}... ({len(text):,} characters)"
