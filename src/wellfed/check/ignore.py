"""Findings that the user has set aside, each with a reason."""

from collections.abc import Iterable, Mapping

import msgspec

from wellfed.model import Verdict


def set_aside(
    verdicts: Iterable[Verdict], reasons: Mapping[str, str]
) -> tuple[tuple[Verdict, ...], tuple[Verdict, ...], tuple[str, ...]]:
    """`(kept, ignored, unused)`: findings whose code has a reason go to `ignored`, with that reason as their
    message; `unused` are the codes of reasons that no finding needed."""
    verdicts = tuple(verdicts)
    ignored = tuple(
        msgspec.structs.replace(verdict, message=reasons[verdict.code])
        for verdict in verdicts
        if verdict.verdict == "finding" and verdict.code in reasons
    )
    gone = {verdict.code for verdict in ignored}
    kept = tuple(v for v in verdicts if not (v.verdict == "finding" and v.code in gone))
    return kept, ignored, tuple(code for code in reasons if code not in gone)
