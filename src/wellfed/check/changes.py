"""What would cure the findings: settings from the `change` rows of the checks, and instructions where there is none."""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from wellfed.check.evaluate import identity
from wellfed.check.expression import Scope, Unknown, evaluate, judge
from wellfed.check.manual import ChangeRow, Manual
from wellfed.check.table import tables, terms
from wellfed.model import Change, Machine, Verdict
from wellfed.model.base import replace
from wellfed.model.change import Risk

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

_NAME = re.compile(r"(?!\.+$)[\w.:!+,@-]+")
_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[^/*\0\n]+)+|/")
"""What may stand in a target for a device, or for a mount. Names come from the machine, and a recorded one may say
anything."""

_SYS = ("sysfs", "thp", "hugepages", "governor", "epp", "block", "cgroup")
_RIGHTS = {
    "nvml": "CAP_SYS_ADMIN",
    "mount": "CAP_SYS_ADMIN",
    "hold": "CAP_SYS_ADMIN",
    "ethtool": "CAP_NET_ADMIN",
}


Cure = Callable[[Machine, str], Iterable[ChangeRow]]


@cache
def cures() -> dict[str, Cure]:
    """Functions that work out rows for this very machine, by the code of their check."""
    package = importlib.import_module("wellfed.check.host")
    modules = [
        importlib.import_module(f"wellfed.check.host.{one.name}")
        for one in pkgutil.iter_modules(package.__path__)
    ]
    return {
        value.cures: value for module in modules for value in vars(module).values() if hasattr(value, "cures")
    }


def changes_of(
    machine: Machine, verdicts: Iterable[Verdict], intent: str, pages: dict[str, Manual]
) -> tuple[Change, ...]:
    """A change for each row and item of every finding, in the order of the verdicts, and an instruction for each
    finding that has no row, or an item for which none holds. Targets with `*` stay so. `pages` are the manual pages
    by code."""
    found: list[Change] = []
    for verdict in verdicts:
        page = pages.get(verdict.code)
        if verdict.verdict != "finding" or page is None:
            continue
        if verdict.code in cures():
            page = replace(page, change=(*page.change, *cures()[verdict.code](machine, intent)))
        by_item = [list(_of(page, verdict, scope)) for scope in _scopes(verdict, machine, intent)]
        found += [change for made in by_item for change in made]
        if not all(by_item) or not by_item:
            found += _instruction(page, verdict)
    return tuple({(c.kind, c.target): c for c in reversed(found)}.values())[::-1]


def _of(page: Manual, verdict: Verdict, scope: Scope) -> Iterator[Change]:
    for row in page.change:
        if row.when is not None and judge(row.when, scope) is not True:
            continue
        form = _PATH if row.kind == "mount" else _NAME
        target, new = _filled(row.target, scope, form), _filled(row.new, scope)
        if target is not None and new is not None and _within_reach(row.kind, target, scope.machine):
            risk = "unsafe" if _is_the_hosts(row.kind, target, scope.machine) else row.risk or page.risk
            yield _change(page, row, verdict, target, new, risk)


def _within_reach(kind: str, target: str, machine: Machine) -> bool:
    """Whether it can be set from here: most of a container's `/proc/sys` and `/sys` is the host's, and read-only."""
    box = machine.container
    if box.kind in (None, "none"):
        return True
    if kind in _RIGHTS:
        return _RIGHTS[kind] in (box.capabilities or ())
    if kind == "sysctl" and re.match(r"net[./]", target):
        return box.net_sys_writable is True or box.proc_sys_writable is True
    if kind in ("sysctl", "irq_affinity"):
        return box.proc_sys_writable is True
    return kind not in _SYS or box.sys_writable is True


def _is_the_hosts(kind: str, target: str, machine: Machine) -> bool:
    """Whether it is a setting of the whole host, made from inside a container: others feel it, and where the container
    is thrown away the journal is gone with it. A container that may write all of `/proc/sys` may share the network too."""
    box = machine.container
    if box.kind in (None, "none") or kind not in (*_SYS, "sysctl", "irq_affinity", "nvml", "hold"):
        return False
    return box.proc_sys_writable is True or kind != "sysctl" or not re.match(r"net[./]", target)


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


def _filled(template: str, scope: Scope, form: re.Pattern[str] | None = None) -> str | None:
    """The text with each `{expression}` replaced by its exact value; None when one is unknown, or has not the form."""
    values = [evaluate(expression, scope) for expression in _EXPRESSION.findall(template)]
    if any(isinstance(value, Unknown) or value is None for value in values):
        return None
    if form is not None and not all(form.fullmatch(exact(value)) for value in values):
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


def _change(page: Manual, row: ChangeRow, verdict: Verdict, target: str, new: str, risk: Risk) -> Change:
    check = tables().get(page.code)
    return Change(
        code=page.code,
        kind=row.kind,
        target=target,
        new=new,
        restore=page.restore,
        verify=verdict.verify,
        risk=risk,
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
