"""A Case as one HTML file: usable from disk, light and dark, printable, readable without scripts.

The page fetches nothing and runs nothing: its Content-Security-Policy allows the one style sheet by its
digest and no script, so that text which slipped through the escaping could still do no harm. Only
`interactive=True` embeds scripts, by digest, in a sandboxed frame.
"""

import base64
import hashlib
import html
import re
from importlib import resources

from wellfed.model import Case
from wellfed.report import charts, gallery, story, words
from wellfed.report.draw import Pictures
from wellfed.report.markup import Child, Safe, join, prose, tag
from wellfed.report.sections import SECTIONS, command

_SCRIPT = re.compile(r"<script[^>]*>(.*?)</script>", re.DOTALL)
_TITLES = {
    "run": "run", "warnings": "warnings", "step": "step", "ranks": "ranks", "findings": "findings", "memory": "memory", "hang": "flight records", "not-judged": "not judged",
    "ceilings": "ceilings", "kernels": "kernels", "verdicts": "all verdicts", "machine": "machine",
    "ignored": "ignored",
}  # fmt: skip


def render(case: Case, *, interactive: bool = False) -> str:
    """The page. Without vl-convert-python, or when drawing fails, tables stand where charts would, and the
    page says so. `interactive` adds the charts once more, with the scripts to hover and zoom (0.9 MB)."""
    pictures = Pictures()
    blocks = [(name, section(case, pictures)) for name, section in SECTIONS]
    blocks = [(name, block) for name, block in blocks if block]
    frame = _frame(case, pictures) if interactive else None
    style = _style()
    head = story.headline(case)
    page = join(
        (
            _head(head.text, style, frame),
            tag(
                "body",
                tag("header", _header(case), _navigation([name for name, _ in blocks])),
                tag(
                    "main",
                    *(tag("section", block, id=name) for name, block in blocks),
                    _interactive(frame, pictures) if interactive else None,
                    _next(case),
                ),
                tag("footer", _footer(case, pictures)),
            ),
        )
    )
    return f'<!DOCTYPE html>\n<html lang="en">{page}</html>\n'


MADE = "This page is one file: it fetches nothing and has sent nothing."


def document(title: str, *body: Child) -> str:
    """A page of other content in the same clothes: nothing fetched, no script."""
    page = join((_head(title, _style(), None), tag("body", *body)))
    return f'<!DOCTYPE html>\n<html lang="en">{page}</html>\n'


def _style() -> str:
    def theme(colours: dict[str, str]) -> str:
        return "".join(f"--{name}:{value};" for name, value in colours.items())

    sheet = resources.files("wellfed.report").joinpath("page.css").read_text("utf-8")
    return (
        f":root{{{theme(charts.LIGHT)}}}@media (prefers-color-scheme:dark){{:root{{{theme(charts.DARK)}}}}}"
        f"@media print{{:root{{{theme(charts.LIGHT)}}}}}\n{sheet}"
    )


def _digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def _head(title: str, style: str, frame: str | None) -> Safe:
    policy = ["default-src 'none'", f"style-src {_digest(style)}", "base-uri 'none'", "form-action 'none'"]
    if frame is not None:
        # The frame inherits this policy; Vega compiles its expressions and adds styles of its own.
        scripts = " ".join(_digest(body) for body in _SCRIPT.findall(frame) if body.strip())
        policy[1] = "style-src 'unsafe-inline'"
        policy += [f"script-src 'unsafe-eval' {scripts}", "img-src data:"]
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content="; ".join(policy)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", words.shorten(words.clean(title).replace("`", ""), 160) + " · wellfed"),
        Safe(f"<style>{style}</style>"),
    )


def _header(case: Case) -> list[Child]:
    head = story.headline(case)
    made = " · ".join(
        filter(
            None,
            (
                words.shorten(case.made_by, 60),
                words.shorten(case.made_at, 40),
                "redacted" if case.redacted else "",
            ),
        )
    )
    lines: list[Child] = [tag("p", made or "wellfed", class_="made"), tag("h1", prose(head.text))]
    if case.machine is not None:
        lines.append(tag("p", story.machine_phrase(case.machine), class_="under"))
    if case.verdicts:
        lines.append(tag("p", story.counts_phrase(case), class_="under"))
    return lines


def _navigation(names: list[str]) -> Safe:
    links = (tag("li", tag("a", _TITLES[name], href=f"#{name}")) for name in names)
    return tag("nav", tag("ul", *links), aria_label="On this page") if names else Safe("")


def _next(case: Case) -> Safe:
    text = story.next_command(case)
    return tag("section", tag("h2", "Next"), tag("p", command(text)), id="next") if text else Safe("")


def _footer(case: Case, pictures: Pictures) -> list[Child]:
    lines: list[Child] = []
    if pictures.why:
        lines.append(tag("p", f"Charts are left out, tables stand in their place: {pictures.why}."))
    note = "Times are of the unprofiled step where the text says so. Gains are ceilings that compose; they never add."
    return [*lines, tag("p", note), tag("p", MADE)]


def _frame(case: Case, pictures: Pictures) -> str | None:
    drawn = {name: chart for name, make in gallery.CHARTS.items() if (chart := make(case)) is not None}
    return pictures.page(drawn) if drawn else None


def _interactive(frame: str | None, pictures: Pictures) -> Safe:
    if frame is None:
        why = pictures.why or "no chart has data"
        return tag(
            "section", tag("h2", "Interactive charts"), tag("p", f"Left out: {why}."), id="interactive"
        )
    # Escaped by hand: `tag` would clean and shorten what is a whole document.
    box = Safe(
        f'<iframe sandbox="allow-scripts" title="Interactive charts" srcdoc="{html.escape(frame)}"></iframe>'
    )
    return tag("section", tag("h2", "Interactive charts"), box, id="interactive")
