"""From an entry or a function to one Verdict.

Both give outcomes, one per item judged (a GPU, a disk) or a single one for the machine; `fold` makes the
Verdict of them: a finding when any item is bad, a pass only when every item is known to be good, and
not judged, with the reason, in all other cases.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from wellfed.check.expression import (
    OPEN_COLLECTIONS,
    ExpressionError,
    Scope,
    Unknown,
    fill,
    judge,
    show,
    was_seen,
)
from wellfed.check.manual import Manual
from wellfed.check.table import Entry, TableCheck, good_for, severities, terms
from wellfed.model import Evidence, Gain, Machine, Value, Verdict
from wellfed.model.verdict import SEVERITY_ORDER, Severity

MAX_EVIDENCE = 12
MAX_NAMED = 4
MAX_TEXT = 160

THINGS: dict[str, tuple[str, str, str]] = {
    "gpus": ("GPU {index}", "GPUs", "no GPU was found on this machine"),
    "nics": ("{name}", "interfaces", "no network interface was found on this machine"),
    "disks": ("{name}", "disks", "no disk was found on this machine"),
    "rdma": ("{device}/{port}", "RDMA ports", "no RDMA port was found on this machine"),
    "pci": ("{address}", "PCI devices", "no PCI device is visible here"),
    "mounts": ("{path}", "file systems", "no file system that holds data was found"),
    "numa": ("node {id}", "NUMA nodes", "no NUMA node was found"),
    "irqs": ("IRQ {number}", "interrupts", "no interrupt of a device was found"),
    "arrays": ("{name}", "arrays", "there is no software RAID"),
    "processes": ("process {pid}", "processes", "no process holds a GPU"),
    "diagnostics": ("{tool} {test}", "results", "no diagnostics were handed over"),
}
"""Collection -> what an item is called, what several are, and what is said when there is none."""

_NUMBERED = {"gpus": "index", "numa": "id", "irqs": "number", "processes": "pid"}
"""Collections whose items stand in `where` as numbers; the others stand there by their name."""

State = Literal["pass", "finding", "unknown", "not-applicable", "intent"]


class Outcome(Value, frozen=True, kw_only=True):
    """What was found of one item. `item` is `(collection, index)` or None for the machine. `paths` are the
    fields that carry the evidence; for `unknown`, `lacking` are those that could not be seen, or `reason`
    (a slug) and `message` say what else stands in the way."""

    state: State
    message: str = ""
    reason: str | None = None
    item: tuple[str, int] | None = None
    severity: Severity = "info"
    paths: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()


def judge_entry(check: TableCheck, machine: Machine, intent: str) -> Verdict:
    """The verdict of one table entry."""
    try:
        outcomes = list(outcomes_of(check.entry, machine, intent))
    except ExpressionError as error:
        raise AssertionError(f"{check.manual.code}: {error}") from error
    return fold(check.manual, machine, outcomes)


def outcomes_of(entry: Entry, machine: Machine, intent: str) -> Iterable[Outcome]:
    """The outcomes of one entry, before they are folded."""
    if entry.intent and intent not in entry.intent:
        wanted = " or ".join(entry.intent)
        return [Outcome(state="intent", message=f"matters for {wanted}; this machine is judged for {intent}")]
    scope = Scope(machine, terms=terms(), intent=intent)
    closed = _closed(entry, scope)
    if closed is not None:
        return [closed]
    if entry.each is None:
        return [_judge_item(entry, scope, intent, None)]
    nothing = no_items(machine, entry.each)
    if nothing:
        return nothing
    judged = _judge_items(entry, scope, intent, getattr(machine, entry.each))
    return judged or [Outcome(state="not-applicable", message=entry.nothing or THINGS[entry.each][2])]


def no_items(machine: Machine, collection: str) -> list[Outcome]:
    """The one outcome of a collection that holds nothing: nothing is there, or nobody could look. `[]` when
    there is something to judge."""
    if getattr(machine, collection):
        return []
    if was_seen(machine, collection):
        return [Outcome(state="not-applicable", message=THINGS[collection][2])]
    return [Outcome(state="unknown", lacking=(collection,))]


def is_absent(machine: Machine, path: str) -> bool:
    """Whether somebody looked for the field and what it describes is not there at all."""
    fact = machine.facts.get(path)
    return fact is not None and fact.status == "missing"


def _closed(entry: Entry, scope: Scope) -> Outcome | None:
    """Why the entry does not apply to this machine at all, or None when it does."""
    lacking: list[str] = []
    for expression, otherwise in entry.applies:
        truth = judge(expression, scope)
        if truth is False:
            return Outcome(state="not-applicable", message=fill(otherwise, scope))
        if isinstance(truth, Unknown):
            lacking += truth.paths or ("",)
    return Outcome(state="unknown", lacking=tuple(dict.fromkeys(lacking))) if lacking else None


def _judge_items(entry: Entry, scope: Scope, intent: str, items: Sequence[Any]) -> list[Outcome]:
    outcomes = []
    assert entry.each is not None
    for index, item in enumerate(items):
        inner = scope.inside("it", item, f"{entry.each}[{index}]")
        inner.looked_at = {}
        belongs = judge(entry.where, inner) if entry.where else True
        if isinstance(belongs, Unknown):
            outcomes.append(Outcome(state="unknown", item=(entry.each, index), lacking=belongs.paths))
        elif belongs:
            outcomes.append(_judge_item(entry, inner, intent, (entry.each, index)))
    return outcomes


def _judge_item(entry: Entry, scope: Scope, intent: str, item: tuple[str, int] | None) -> Outcome:
    scope.looked_at = {}
    truth = judge(good_for(entry, intent), scope)
    paths = _reads(entry, item) or tuple(scope.looked_at)
    if isinstance(truth, Unknown):
        if entry.absent and truth.paths and all(is_absent(scope.machine, path) for path in truth.paths):
            return Outcome(state="not-applicable", item=item, paths=paths, message=entry.absent)
        return Outcome(state="unknown", item=item, paths=paths, lacking=truth.paths)
    if truth:
        return Outcome(state="pass", item=item, paths=paths, message=fill(entry.passed, scope))
    severity = next(
        (s for s, when in severities(entry) if judge(when, scope) is True), severities(entry)[-1][0]
    )
    return Outcome(
        state="finding", item=item, paths=paths, severity=severity, message=fill(entry.finding, scope)
    )


def _reads(entry: Entry, item: tuple[str, int] | None) -> tuple[str, ...]:
    place = f"{item[0]}[{item[1]}]" if item else ""
    return tuple(
        path.replace("it.", f"{place}.", 1) if path.startswith("it.") else path for path in entry.reads
    )


# -- outcomes to a verdict --------------------------------------------------------------------------------


def fold(manual: Manual, machine: Machine, outcomes: Sequence[Outcome]) -> Verdict:
    """One verdict of all outcomes of a check. No outcome at all is an error of the check."""
    assert outcomes, f"{manual.code} gave no outcome"
    bad = [one for one in outcomes if one.state == "finding"]
    unknown = [one for one in outcomes if one.state == "unknown"]
    good = [one for one in outcomes if one.state == "pass"]
    if bad:
        return _finding(manual, machine, bad, unknown)
    if unknown:
        return _not_seen(manual, machine, unknown, good)
    if good:
        return _verdict(manual, machine, "pass", _sentence(machine, good), good)
    first = outcomes[0]
    return _verdict(manual, machine, "not-judged", _sentence(machine, outcomes), outcomes, reason=first.state)


def _finding(manual: Manual, machine: Machine, bad: Sequence[Outcome], unknown: Sequence[Outcome]) -> Verdict:
    message = _sentence(machine, bad)
    if unknown:
        message += f" ({len(unknown)} more could not be judged)"
    severity = max((one.severity for one in bad), key=SEVERITY_ORDER.__getitem__)
    return msgspec.structs.replace(
        _verdict(manual, machine, "finding", message, bad),
        severity=severity,
        gain=manual.gain or Gain(),
        remedy=manual.remedy or None,
        risk=manual.risk if manual.remedy else None,
        restore=manual.restore or None,
        verify=f"wellfed explain {manual.code}",
    )


def _not_seen(
    manual: Manual, machine: Machine, unknown: Sequence[Outcome], good: Sequence[Outcome]
) -> Verdict:
    told = [one for one in unknown if one.message]
    if len(told) == len(unknown):
        reason, message = told[0].reason or "no-fact", _sentence(machine, told)
    else:
        lacking = dict.fromkeys(path for one in unknown for path in one.lacking if path)
        reason, message = _gap(machine, tuple(lacking))
    if good and len(unknown) + len(good) > 1:
        message += f" ({len(unknown)} of {len(unknown) + len(good)} not judged, the others pass)"
    return _verdict(manual, machine, "not-judged", message, [*unknown, *good], reason=reason)


def _gap(machine: Machine, lacking: Sequence[str]) -> tuple[str, str]:
    """Reason slug and sentence for the first of the fields that says why it could not be seen."""
    told = [(path, gap) for path in lacking if (gap := gap_of(machine, path))]
    if not told:
        what = f"`{lacking[0]}`" if lacking else "what is needed"
        return "no-fact", f"{what} was not looked at"
    path, gap = told[0]
    slug = gap.partition(":")[0]
    known = ("missing", "denied", "unsupported", "error")
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return (slug if slug in known else "no-fact"), f"could not see `{path}`{more}: {gap}"


def gap_of(machine: Machine, path: str) -> str | None:
    """Why a field, or what holds it, could not be seen."""
    while path:
        if path in machine.gaps:
            return machine.gaps[path]
        path = _parent(path)
    return None


def _parent(path: str) -> str:
    cut = path.rfind("[") if path.endswith("]") else path.rfind(".")
    return path[:cut] if cut > 0 else ""


def _verdict(
    manual: Manual,
    machine: Machine,
    verdict: Literal["pass", "finding", "not-judged"],
    message: str,
    outcomes: Sequence[Outcome],
    reason: str | None = None,
) -> Verdict:
    return Verdict(
        code=manual.code,
        name=manual.name,
        layer=manual.layer,
        verdict=verdict,
        message=message,
        reason=reason,
        where=_where(machine, outcomes),
        evidence=_evidence(machine, outcomes),
        sources=manual.sources,
    )


def _where(machine: Machine, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """`{"gpus": [0, 3]}`: the items concerned, by the name people know them by."""
    where: dict[str, Any] = {}
    for one in outcomes:
        if one.item is not None:
            where.setdefault(one.item[0], []).append(identity(machine, one.item))
    return where


def identity(machine: Machine, item: tuple[str, int]) -> int | str:
    """What stands in `where` for an item."""
    collection, index = item
    if collection in _NUMBERED:
        number: int = getattr(getattr(machine, collection)[index], _NUMBERED[collection])
        return number
    return _label(machine, item)


def _label(machine: Machine, item: tuple[str, int]) -> str:
    thing = getattr(machine, item[0])[item[1]]
    fields = {field: getattr(thing, field) for field in thing.__struct_fields__}
    return THINGS[item[0]][0].format_map(fields)


def _sentence(machine: Machine, outcomes: Sequence[Outcome]) -> str:
    """The messages of all items in one line: items that say the same are named together."""
    groups: dict[str, list[tuple[str, int]]] = {}
    for one in outcomes:
        groups.setdefault(one.message, [])
        if one.item is not None:
            groups[one.message].append(one.item)
    parts = [_together(machine, message, items) for message, items in list(groups.items())[:MAX_NAMED]]
    if len(groups) > MAX_NAMED:
        parts.append(f"and {len(groups) - MAX_NAMED} more")
    return "; ".join(parts)


def _together(machine: Machine, message: str, items: Sequence[tuple[str, int]]) -> str:
    if not items:
        return message
    if len(items) > MAX_NAMED:
        return f"{len(items)} {THINGS[items[0][0]][1]}: {message}"
    return f"{', '.join(_label(machine, item) for item in items)}: {message}"


# -- evidence ---------------------------------------------------------------------------------------------


def _evidence(machine: Machine, outcomes: Sequence[Outcome]) -> tuple[Evidence, ...]:
    paths = list(dict.fromkeys(path for one in outcomes for path in (*one.paths, *one.lacking) if path))
    shown = [evidence_of(machine, path) for path in paths[:MAX_EVIDENCE]]
    if len(paths) > MAX_EVIDENCE:
        shown.append(Evidence(source="machine", text=f"and {len(paths) - MAX_EVIDENCE} more facts"))
    return tuple(shown)


def evidence_of(machine: Machine, path: str) -> Evidence:
    """What is known of a field, with the file or command that it is from."""
    fact = machine.facts.get(path)
    if fact is not None and fact.status != "ok":
        return Evidence(source=fact.source or "machine", at=path, text=gap_of(machine, path) or fact.status)
    if fact is not None and fact.raw and "\n" not in fact.raw and len(fact.raw) <= MAX_TEXT:
        return Evidence(source=fact.source, at=path, text=" ".join(fact.raw.split()))
    source = fact.source if fact else _source_above(machine, path)
    value = value_at(machine, path)
    if value is None or (value in ((), {}) and path in OPEN_COLLECTIONS and not was_seen(machine, path)):
        return Evidence(source=source, at=path, text=gap_of(machine, path) or "not seen")
    return Evidence(source=source, at=path, text=show(value)[:MAX_TEXT])


def _source_above(machine: Machine, path: str) -> str:
    while path := _parent(path):
        if path in machine.facts:
            return machine.facts[path].source
    return "machine"


def value_at(machine: Machine, path: str) -> Any:
    """The value at a field path such as `gpus[0].name` or `kernel.sysctls[vm.swappiness]`; None when it
    is not there."""
    node: Any = machine
    for step in _steps(path):
        if isinstance(node, dict):
            node = node.get(str(step))
        elif isinstance(node, tuple):
            node = node[step] if isinstance(step, int) and step < len(node) else None
        else:
            node = getattr(node, str(step), None)
        if node is None:
            return None
    return node


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    for part in path.replace("[", "\0[").split("\0"):
        if part.startswith("["):
            inner, _, rest = part[1:].partition("]")
            steps.append(int(inner) if inner.isdigit() else inner)
            part = rest.removeprefix(".")
        steps += [word for word in part.split(".") if word]
    return steps
