"""`wellfed explain CODE`: the manual page of a check, and what this machine shows of it."""

from typing import TYPE_CHECKING

import click

from wellfed.cli.common import Output, emit_value, host_option, output_options
from wellfed.cli.config import intent_option

if TYPE_CHECKING:
    from wellfed.model import Verdict


@click.command("explain", epilog="Example: wellfed explain NUMA05")
@click.argument("code")
@host_option
@intent_option
@output_options("text", "json")
def command(code: str, host: str | None, intent: str, output: Output) -> None:
    """The manual page of a check, with this machine's evidence.

    CODE is one that a finding shows (T110), or the name beside it (data-wait).

    What it looks at, why it costs, how it is judged, the remedy and the way back, when to ignore it. Checks of
    traces (codes T...) have the page only: `wellfed trace` shows their evidence.
    """
    from wellfed.check import host_codes
    from wellfed.check import manual as page_of
    from wellfed.report import manual

    name = _code(code)
    page = page_of(name)
    plain, public = _here(name, host, intent, output) if name in host_codes() else (None, None)
    # A file gets what may be passed on, the person at the machine sees all.
    seen = public if output.files else plain
    emit_value(
        {"schema": 1, "manual": page, "verdict": public},
        output,
        text=lambda width, colour: manual.render(page, seen, width=width, color=colour),
    )


def _code(text: str) -> str:
    """The code that the text is, however it is spelled, or whose check has this name. Raises WellfedError with the
    nearest codes when there is none."""
    from wellfed.check import codes, host_codes, require_code
    from wellfed.check import manual as page_of

    plain = text.upper().replace("-", "")
    if plain in host_codes() or plain in codes():  # the first of them asks for no trace checks
        return plain
    return require_code(next((code for code in codes() if page_of(code).name == text.lower()), text))


def _here(code: str, host: str | None, intent: str, output: Output) -> "tuple[Verdict, Verdict]":
    """The verdict of one check as it is, and as it may be passed on."""
    from wellfed import api
    from wellfed.model.redact import redact_case

    case = api.check(host, intent=intent)
    public = redact_case(case) if output.redact else case
    place = next(index for index, verdict in enumerate(case.verdicts) if verdict.code == code)
    return case.verdicts[place], public.verdicts[place]
