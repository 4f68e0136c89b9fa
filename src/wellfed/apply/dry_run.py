"""What would be written, without writing: each knob that a change stands for, as it is now."""

import errno
import re
from collections.abc import Sequence

from wellfed.apply.engine import Kinds, kind_named
from wellfed.apply.kinds import KINDS
from wellfed.apply.knobs import Kind
from wellfed.apply.policy import USER, Options, consent_of, is_root, missing_flag, owner_of
from wellfed.apply.root import Root
from wellfed.model import Change, Machine, WellfedError
from wellfed.model.base import replace
from wellfed.model.change import Planned, PlanState, Skipped

_READ_ONLY = re.compile(r"read-only|no permission")
_STATES: dict[int | None, PlanState] = {
    errno.ENOENT: "missing",
    errno.ENODEV: "missing",
    errno.EROFS: "read-only",
    errno.EACCES: "read-only",
    errno.EPERM: "read-only",
}


def dry_run(
    root: Root | None, changes: Sequence[Change], machine: Machine, options: Options, kinds: Kinds = KINDS
) -> tuple[list[Planned], list[Skipped]]:
    """The knobs in the order of the changes, and changes that are none here with the reason. `root` None: of a recorded
    machine, whose knobs can't be asked. Of two changes of one knob the first counts. Raises WellfedError for a change of
    the user's own list that is none, before anything else is done."""
    for change in changes:
        if change.evidence == USER:
            kind = kind_named(kinds, change.kind)
            kind.key(change.target) if root is None else kind.expand(root, change.target)
    plan: list[Planned] = []
    skipped: list[Skipped] = []
    seen: dict[tuple[str, str], Change] = {}
    nowhere: dict[str, list[str]] = {}
    for change in changes:
        kind = kind_named(kinds, change.kind)
        try:
            targets = [change.target] if root is None else kind.expand(root, change.target)
        except WellfedError as error:
            skipped.append(Skipped(code=change.code, reason=error.message))
            continue
        if not targets:
            nowhere.setdefault(change.code, []).append(f"{change.kind} {change.target}")
        for target in targets:
            one = replace(change, target=target)
            key = _key(kind, target)
            first = seen.setdefault(key, one)
            if first is not one:
                skipped.append(_twice(first, one))
                continue
            plan.append(_planned(root, kind, one, change.target, machine, options, kinds))
    # A cure may name what only some machines have; that is worth a line where nothing is left of it.
    there = {one.change.code for one in plan}
    skipped += [
        Skipped(code=code, reason=f"nothing here is {' or '.join(names)}")
        for code, names in nowhere.items()
        if code not in there
    ]
    return plan, skipped


def _key(kind: Kind, target: str) -> tuple[str, str]:
    """The same for one knob, by whatever kind it is named: those that are files have their path."""
    key = kind.key(target)
    return ("", key) if key.startswith(("/proc/", "/sys/")) else (type(kind).__name__, key)


def _twice(first: Change, second: Change) -> Skipped:
    if second.evidence == USER:
        raise WellfedError(
            f"{first.kind} {first.target} and {second.kind} {second.target} are one knob",
            hint="take one of them off the list",
        )
    same = "so too" if first.new == second.new else f"to {first.new}"
    return Skipped(code=second.code, reason=f"{first.code} sets {first.kind} {first.target} {same}")


def _planned(
    root: Root | None,
    kind: Kind,
    change: Change,
    asked: str,
    machine: Machine,
    options: Options,
    kinds: Kinds,
) -> Planned:
    change = replace(
        change,
        owner=owner_of(change, machine),
        cuts_network=change.cuts_network or kind.cuts_network(change.target),
    )
    state, reason, change = (
        ("unseen", "its value is read on the machine itself", change)
        if root is None
        else _seen(root, kind, change)
    )
    flag = missing_flag(change, options, kinds)
    ready = state in ("change", "unseen") and "*" not in change.target and not change.new.startswith("@")
    return Planned(
        change=change,
        asked=asked,
        state=state,
        consent=consent_of(change, kinds),
        chosen=flag is None,
        flag=flag,
        reason=reason,
        write=kind.shell(change.target, change.new) if ready else None,
        undo=kind.shell(change.target, change.old) if state == "change" else None,
        privilege="none" if root is not None and state == "change" and _may(root, kind, change) else "root",
    )


_ROOT_ONLY = ("service", "ethtool", "nvml", "mount")
"""Kinds that no permission of a file tells anything of."""


def _may(root: Root, kind: Kind, change: Change) -> bool:
    """Whether somebody who is not root may set it: files may have been given to them."""
    if is_root() or change.kind in _ROOT_ONLY:
        return False
    try:
        return kind.obstacle(root, change.target, change.new) is None
    except OSError:
        return False


def _seen(root: Root, kind: Kind, change: Change) -> tuple[PlanState, str | None, Change]:
    """How the knob stands, why it can't be set, and the change with the values that are meant."""
    try:
        change = replace(change, new=kind.resolve(root, change.target, change.new))
        change = replace(change, old=kind.read(root, change.target))
        why = kind.obstacle(root, change.target, change.new)
    except OSError as error:
        told = error.strerror or str(error)
        if error.errno in (errno.EACCES, errno.EPERM) and not is_root():
            return "unseen", "only root may read it", change
        return _STATES.get(error.errno, "refused"), told, change
    if kind.same(change.target, change.old, change.new):
        return "already", None, change
    if why is None:
        return "change", None, change
    if "no permission" in why and not is_root():
        # A dry run needs no root; what root would do is what it tells.
        return "change", None, change
    return ("read-only" if _READ_ONLY.search(why) else "refused"), why, change
