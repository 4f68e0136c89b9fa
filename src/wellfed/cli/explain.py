"""`wellfed explain CODE`: the manual page of a check, and what this machine shows of it."""

import textwrap
from typing import TYPE_CHECKING

import click

from wellfed.cli.common import Output, emit_value, host_option, output_options
from wellfed.cli.config import intent_option

if TYPE_CHECKING:
    from wellfed.check import Manual
    from wellfed.model import Verdict

INDENT = "  "


@click.command("explain", epilog="Example: wellfed explain NUMA05")
@click.argument("code")
@host_option
@intent_option
@output_options("text", "json")
def command(code: str, host: str | None, intent: str, output: Output) -> None:
    """The manual page of a check, with this machine's evidence.

    What it looks at, why it costs, how it is judged, the remedy and the way back, when to ignore it. Checks of
    traces (codes T...) have the page only: `wellfed trace` shows their evidence.
    """
    from wellfed.check import host_codes, require_code
    from wellfed.check import manual as page_of

    name = require_code(code if code in host_codes() else code.upper().replace("-", ""))
    page = page_of(name)
    plain, public = _here(name, host, intent, output) if name in host_codes() else (None, None)
    # A file gets what may be passed on, the person at the machine sees all.
    seen = public if output.files else plain
    emit_value(
        {"schema": 1, "manual": page, "verdict": public},
        output,
        text=lambda width, colour: render(page, seen, width, colour),
    )


def _here(code: str, host: str | None, intent: str, output: Output) -> "tuple[Verdict, Verdict]":
    """The verdict of one check as it is, and as it may be passed on."""
    from wellfed import api
    from wellfed.model.redact import redact_case

    case = api.check(host, intent=intent)
    public = redact_case(case) if output.redact else case
    place = next(index for index, verdict in enumerate(case.verdicts) if verdict.code == code)
    return case.verdicts[place], public.verdicts[place]


def render(page: "Manual", verdict: "Verdict | None", width: int, colour: bool) -> str:
    """The page as text, its paragraphs folded to `width`, with the machine's evidence at the end."""
    from wellfed.check.manual import sections

    def bold(text: str) -> str:
        return click.style(text, bold=True) if colour else text

    lines = [bold(f"{page.code} {page.name}"), *_fold(page.summary, width, ""), ""]
    lines.append(f"layer {page.layer}, at most {page.severity}{_intents(page)}")
    for heading, text in sections(page):
        lines += ["", bold(heading), *_fold(text, width)]
    if verdict is not None:
        lines += ["", bold("This machine"), *_fold(_said(verdict), width)]
        for one in verdict.evidence:
            lines += _fold(f"{one.at or one.source}: {one.text}", width, INDENT * 2)
            if one.at and one.source != "machine":
                lines += _fold(f"from {one.source}", width, INDENT * 3)
    return "\n".join(lines) + "\n"


def _said(verdict: "Verdict") -> str:
    kind: str = verdict.verdict
    if kind == "finding":
        kind += f" ({verdict.severity})"
    elif kind == "not-judged":
        kind = f"not judged ({verdict.reason})"
    causes = f" Look at {', '.join(verdict.causes)} first." if verdict.causes else ""
    return f"{kind}: {verdict.message}.{causes}"


def _intents(page: "Manual") -> str:
    return f", for {', '.join(page.intents)}" if page.intents else ""


def _fold(text: str, width: int, indent: str = INDENT) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
