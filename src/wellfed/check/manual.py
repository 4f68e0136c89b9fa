"""The manual page of a check: one text for `wellfed explain`, the docs and the editor.

It comes from an entry of a table, or from the docstring of a function:

    @rule("GPU24", "copy-below-link", layer="gpu")
    def judge_copies(machine, ceilings, intent):
        '''Copies to the GPU are slower than its link allows.

        What it looks at. ...
        Why it costs. ...
        How it is judged. ...
        Remedy. ...
        Restore. ...
        When to ignore. ...
        Sources. one; another
        '''

Each heading starts a line; headings that do not apply are left out.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from wellfed.model import Gain, Value
from wellfed.model.change import Risk
from wellfed.model.verdict import Severity

Trust = Literal["read", "measured", "verified", "unverified"]
"""How the rule is known. read: in the source named (code, issue, vendor page). measured: by us.
verified: first from memory, then looked up in the source named. unverified: from memory, and no document was found that
says it: such a rule is a note at most, says so, promises no gain and changes nothing."""


class ChangeRow(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting that cures the finding, as `table.py` tells. `risk` None: that of the check."""

    kind: str
    target: str
    new: str
    when: str | None = None
    risk: Risk | None = None


class Manual(Value, frozen=True, kw_only=True):
    """`reversible` says how the remedy comes off (`live`, `live-nextproc`, `reboot`, `bios`...; `none`: nothing
    to undo). `severity` is the highest that the check gives. `blocks` are codes whose findings this one
    explains. `intents` empty: for every intent. `effect` is what is published of the gain, in words,
    `change` what `wellfed tune` would set."""

    code: str
    name: str
    layer: str
    summary: str
    looks_at: str
    why: str
    judged: str
    effect: str = ""
    remedy: str = ""
    restore: str = ""
    ignore: str = ""
    sources: tuple[str, ...] = ()
    severity: Severity = "warning"
    risk: Risk = "safe"
    reversible: str = "none"
    trust: Trust = "read"
    intents: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    gain: Gain | None = None
    change: tuple[ChangeRow, ...] = ()


SECTIONS: dict[str, str] = {
    "What it looks at": "looks_at",
    "Why it costs": "why",
    "How it is judged": "judged",
    "What is known of the gain": "effect",
    "Remedy": "remedy",
    "Restore": "restore",
    "When to ignore": "ignore",
    "Sources": "sources",
}
"""Heading of a manual page and the field of Manual that it fills, in the order of the page."""

_REQUIRED = ("looks_at", "why", "judged", "sources")
_HEADING = re.compile(rf"^({'|'.join(SECTIONS)})\.\s", re.MULTILINE)
F = TypeVar("F", bound=Callable[..., Any])


def rule(code: str, name: str, *, layer: str, **facts: Any) -> Callable[[F], F]:
    """Marks a function as the check `code` and hangs its Manual on it as `function.manual`. `facts` are the
    fields of Manual that are no prose: severity, risk, reversible, trust, intents, blocks, gain."""

    def decorate(function: F) -> F:
        manual = manual_from_text(function.__doc__ or "", code=code, name=name, layer=layer, **facts)
        function.manual = manual  # type: ignore[attr-defined]
        return function

    return decorate


def cure(code: str) -> Callable[[F], F]:
    """Marks a function as the one that works out the `change` rows of the check `code`, where they can't be written
    down beforehand: `function(machine, intent)` gives them for this machine, and none where people must choose."""

    def decorate(function: F) -> F:
        function.cures = code  # type: ignore[attr-defined]
        return function

    return decorate


def manual_from_text(text: str, *, code: str, name: str, layer: str, **facts: Any) -> Manual:
    """A Manual from prose with headings. A missing required heading is our mistake and asserts."""
    summary, *parts = _HEADING.split(inspect.cleandoc(text))
    prose: dict[str, Any] = {
        SECTIONS[heading]: " ".join(body.split())
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }
    missing = [field for field in _REQUIRED if not prose.get(field)]
    assert not missing, f"{code}: the docstring lacks {missing}"
    sources = tuple(source.strip() for source in str(prose.pop("sources")).split(";"))
    return Manual(
        code=code,
        name=name,
        layer=layer,
        summary=" ".join(summary.split()),
        sources=sources,
        **prose,
        **facts,
    )


def sections(manual: Manual) -> list[tuple[str, str]]:
    """Heading and text of each part of the page that has one, in order."""
    texts = {heading: getattr(manual, field) for heading, field in SECTIONS.items()}
    texts["What is known of the gain"] = _gain_text(manual)
    texts["Remedy"] = f"{manual.remedy} ({_cost_of_cure(manual)})" if manual.remedy else ""
    texts["Sources"] = "; ".join(manual.sources)
    return [(heading, text) for heading, text in texts.items() if text]


_REVERSIBLE: dict[str, str] = {
    "none": "nothing to undo",
    "live": "undone at once",
    "live-nextproc": "counts for processes started later",
    "reboot": "takes a reboot",
    "bios": "takes a change of firmware settings",
    "driver-reload": "takes a reload of the driver",
    "gpu-reset": "takes a reset of the GPU",
}


def _cost_of_cure(manual: Manual) -> str:
    return f"risk: {manual.risk}; {_REVERSIBLE[manual.reversible]}"


def _gain_text(manual: Manual) -> str:
    gain = manual.gain
    if gain is None:
        return manual.effect or "No figure is published."
    span = f"{gain.low:g} to {gain.high:g} times" if gain.low and gain.high else "no ratio"
    figure = f"{span} in {gain.measured_in} ({gain.basis}: {gain.source})"
    return f"{manual.effect} {figure}".strip()
