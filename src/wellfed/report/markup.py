"""Building HTML so that forgetting to escape is not possible: text is escaped unless it came out of `tag`."""

import html
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from wellfed.report import words

MAX_TEXT = 2000


class Safe(str):
    """Markup that `tag` made, or that we wrote ourselves."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"


def tag(name: str, /, *children: Child, **attributes: str | None) -> Safe:
    """An element. Children are escaped unless Safe; None is nothing. `class_` and `data_x` as usual; an
    attribute of None is left out."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(words.clean(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in ("br", "meta", "col"):
        return Safe(f"<{name}{shown}>")
    return Safe(f"<{name}{shown}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Safe:
    return Safe("".join(map(_child, children)))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Safe):
        return child
    if isinstance(child, str):
        return html.escape(words.shorten(words.clean(child), MAX_TEXT))
    return join(child)


def prose(text: str | None) -> Safe:
    """A foreign sentence: escaped, `code` between backticks marked, numbers kept with their units."""
    if not text:
        return Safe("")
    shown = words.keep_units(words.shorten(words.clean(text), MAX_TEXT))
    return join(tag("code", piece) if is_code else piece for is_code, piece in words.code_spans(shown))


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Child]],
    *,
    align: str,
    label: str,
    class_: str | None = None,
) -> Safe:
    """A table that scrolls sideways by itself. `align` has `l` (text), `r` (number) or `c` (code, breaks
    anywhere) for each column."""
    classes = {"r": "n", "c": "k"}
    head = tag(
        "tr",
        (
            tag("th", name, scope="col", class_=classes.get(side))
            for name, side in zip(header, align, strict=True)
        ),
    )
    body = (
        tag("tr", (tag("td", cell, class_=classes.get(side)) for cell, side in zip(row, align, strict=True)))
        for row in rows
    )
    inner = tag("table", tag("thead", head), tag("tbody", *body), class_=class_)
    return tag("div", inner, class_="scroll", role="region", aria_label=label, tabindex="0")


def details(summary: Child, *children: Child, opened: bool = False) -> Safe:
    return tag("details", tag("summary", summary), *children, **({"open": ""} if opened else {}))
