"""Root causes before symptoms.

A check names in `blocks` the codes that it explains: a link that lost lanes explains slow copies. When both
are found, the symptom carries the root's code in `causes` and stands after it, so that nobody cures the
symptom first.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from wellfed.model import Verdict
from wellfed.model.verdict import worth


def link(verdicts: Iterable[Verdict], blocks: Mapping[str, Sequence[str]]) -> list[Verdict]:
    """The verdicts with `causes` filled in. `blocks` maps a code to the codes that it explains."""
    verdicts = list(verdicts)
    found = {verdict.code: verdict for verdict in verdicts if verdict.verdict == "finding"}
    causes: dict[str, list[str]] = {}
    for root, symptoms in blocks.items():
        for symptom in symptoms:
            if root in found and symptom in found and _meet(found[root], found[symptom]):
                causes.setdefault(symptom, []).append(root)
    return [
        msgspec.structs.replace(
            verdict, causes=tuple(dict.fromkeys((*verdict.causes, *causes[verdict.code])))
        )
        if verdict.verdict == "finding" and verdict.code in causes
        else verdict
        for verdict in verdicts
    ]


def order(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Best worth first, but each finding after its root causes. Stable: equal ones keep their order."""
    ranked = sorted(verdicts, key=worth)
    findings = {verdict.code: verdict for verdict in reversed(ranked) if verdict.verdict == "finding"}
    out: list[Verdict] = []
    done: set[int] = set()

    def emit(verdict: Verdict, above: frozenset[str]) -> None:
        if id(verdict) in done:
            return
        if verdict.verdict == "finding":
            for code in verdict.causes:
                if code in findings and code not in above:
                    emit(findings[code], above | {verdict.code})
        if id(verdict) not in done:
            done.add(id(verdict))
            out.append(verdict)

    for verdict in ranked:
        emit(verdict, frozenset({verdict.code}))
    return out


def _meet(root: Verdict, symptom: Verdict) -> bool:
    """Whether the two can concern the same thing: a bad link of GPU 3 does not explain slow copies of GPU 0."""
    shared = root.where.keys() & symptom.where.keys()
    return all(
        not set(root.where[key]).isdisjoint(symptom.where[key])
        for key in shared
        if _lists(root, symptom, key)
    )


def _lists(root: Verdict, symptom: Verdict, key: str) -> bool:
    return isinstance(root.where[key], list) and isinstance(symptom.where[key], list)
