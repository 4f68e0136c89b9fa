"""What would cure the findings: settings from the `change` rows of the checks, and instructions where there is none."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from wellfed.check.evaluate import identity
from wellfed.check.expression import Scope, Unknown, evaluate, judge
from wellfed.check.manual import ChangeRow, Manual
from wellfed.check.table import tables, terms
from wellfed.model import Change, Machine, Verdict

KINDS = (
    "sysctl",
    "sysfs",
    "thp",
    "hugepages",
    "governor",
    "epp",
    "block",
    "irq_affinity",
    "cgroup",
    "service",
    "ethtool",
    "nvml",
    "dropin",
    "hold",
    "mount",
)
"""Kinds that a `change` row may name: those of the apply room, which says what each makes of a target."""

INSTRUCTION = "instruction"
"""Kind of a change that people make by hand: `new` is then what they are told."""

_EXPRESSION = re.compile(r"\{([^{}]+)\}")


def changes_of(
    machine: Machine, verdicts: Iterable[Verdict], intent: str, pages: dict[str, Manual]
) -> tuple[Change, ...]:
    """A change for each row and item of every finding, in the order of the verdicts, and an instruction for each
    finding that has no row, or none that holds here. Targets with `*` stay so. `pages` are the manual pages by
    code."""
    found: list[Change] = []
    for verdict in verdicts:
        page = pages.get(verdict.code)
        if verdict.verdict != "finding" or page is None:
            continue
        made = list(_of(page, verdict, machine, intent))
        found += made or _instruction(page, verdict)
    return tuple({(c.kind, c.target): c for c in reversed(found)}.values())[::-1]


def _of(page: Manual, verdict: Verdict, machine: Machine, intent: str) -> Iterator[Change]:
    for scope in _scopes(verdict, machine, intent):
        for row in page.change:
            if row.when is not None and judge(row.when, scope) is not True:
                continue
            target, new = _filled(row.target, scope), _filled(row.new, scope)
            if target is not None and new is not None:
                yield _change(page, row, verdict, target, new)


def _scopes(verdict: Verdict, machine: Machine, intent: str) -> Iterator[Scope]:
    """A scope for every item the verdict names, or one for the machine."""
    whole = Scope(machine, terms=terms(), intent=intent)
    if not verdict.where:
        yield whole
        return
    for collection, named in verdict.where.items():
        for index, item in enumerate(getattr(machine, collection, ())):
            if identity(machine, (collection, index)) in named:
                yield whole.inside("it", item, f"{collection}[{index}]")


def _filled(template: str, scope: Scope) -> str | None:
    """The text with each `{expression}` replaced by its exact value; None when one is unknown."""
    values = [evaluate(expression, scope) for expression in _EXPRESSION.findall(template)]
    if any(isinstance(value, Unknown) or value is None for value in values):
        return None
    told = iter(values)
    return _EXPRESSION.sub(lambda _: exact(next(told)), template)


def exact(value: Any) -> str:
    """A value as a knob takes it: no rounding, 1 and 0 for true and false."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _change(page: Manual, row: ChangeRow, verdict: Verdict, target: str, new: str) -> Change:
    check = tables().get(page.code)
    return Change(
        code=page.code,
        kind=row.kind,
        target=target,
        new=new,
        restore=page.restore,
        verify=verdict.verify,
        risk=row.risk or page.risk,
        evidence=page.trust,
        why=verdict.message,
        proof=check.entry.proof if check is not None else None,
    )


def _instruction(page: Manual, verdict: Verdict) -> list[Change]:
    if not verdict.remedy:
        return []
    return [
        Change(
            code=page.code,
            kind=INSTRUCTION,
            target=page.name,
            new=verdict.remedy,
            restore=page.restore,
            verify=verdict.verify,
            risk=page.risk,
            evidence=page.trust,
            why=verdict.message,
        )
    ]
