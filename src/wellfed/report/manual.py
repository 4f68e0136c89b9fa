"""The manual page of a check as text, and what one machine shows of it."""

from wellfed.check.manual import Manual, sections
from wellfed.model import Verdict
from wellfed.report import words

INDENT = "  "


def render(page: Manual, verdict: Verdict | None, *, width: int, color: bool) -> str:
    """The page, its paragraphs folded to `width`; at the end `verdict`, what the machine shows, if there is one."""

    def bold(text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if color else text

    lines = [bold(f"{page.code} {page.name}"), *words.wrap(page.summary, width), ""]
    intents = f", for {', '.join(page.intents)}" if page.intents else ""
    lines.append(f"layer {page.layer}, at most {page.severity}{intents}")
    for heading, text in sections(page):
        lines += ["", bold(heading), *_indented(text, width)]
    if verdict is not None:
        lines += ["", bold("This machine"), *_indented(_said(verdict), width)]
        for one in verdict.evidence:
            lines += _indented(f"{one.at or one.source}: {one.text}", width, 2)
            if one.at and one.source != "machine":
                lines += _indented(f"from {one.source}", width, 3)
    return "\n".join(lines) + "\n"


def _said(verdict: Verdict) -> str:
    kind: str = verdict.verdict
    if kind == "finding":
        kind += f" ({verdict.severity})"
    elif kind == "not-judged":
        kind = f"not judged ({verdict.reason})"
    causes = f" Look at {', '.join(verdict.causes)} first." if verdict.causes else ""
    return f"{kind}: {verdict.message}.{causes}"


def _indented(text: str, width: int, depth: int = 1) -> list[str]:
    return words.wrap(text, width, first=INDENT * depth, rest=INDENT * depth)
