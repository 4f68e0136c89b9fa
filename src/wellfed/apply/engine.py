"""Applying and undoing through the journal, so that either can be cut off anywhere.

For each knob: `intent` on disk, the write, read back, `applied` or `failed` on disk. After a crash the knob itself
tells what happened: it reads the old value (nothing was done), the new one (it was), or something else (somebody
was here in between). Undo goes backwards and puts an old value back only where the knob still reads what we left.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping, Sequence

from wellfed.apply import deadman, failpoint
from wellfed.apply.journal import FULL, Journal, Whole, Writer, boot_seconds, is_open, ops_of, seconds_left
from wellfed.apply.kinds import KINDS
from wellfed.apply.knobs import Kind, Refused
from wellfed.model import Change, WellfedError
from wellfed.model.base import replace
from wellfed.model.change import Done, Op, Outcome, Record
from wellfed.model.counting import counted

Kinds = Mapping[str, Kind]


def kind_named(kinds: Kinds, name: str) -> Kind:
    """Raises WellfedError for a kind that is none."""
    if name not in kinds:
        raise WellfedError(f"no kind `{name}`", hint=f"one of: {', '.join(kinds)}")
    return kinds[name]


def apply(
    journal: Journal,
    changes: Sequence[Change],
    kinds: Kinds = KINDS,
    *,
    confirm_within_s: float | None = None,
) -> list[Done]:
    """Make the changes, one after the other, and say what became of each. A knob that refuses is put back and
    does not stop the others. With `confirm_within_s` all is undone by itself unless `confirm` is called in time;
    changes that may cut the network are made only so. Raises WellfedError before anything is written when a target
    is none, when the journal can't be written, another is at work, or a transaction waits to be confirmed."""
    changes = in_order(changes, kinds)
    for change in changes:
        kind_named(kinds, change.kind).expand(journal.root, change.target)
        if confirm_within_s is None and cuts_network(change, kinds):
            raise WellfedError(
                f"{change.kind} {change.target} may cut the network: it is made only with a time after which it is undone",
                hint="wellfed tune apply --confirm-within 120s",
            )
    with journal.locked():
        settle(journal, kinds)
        _expire(journal, kinds)
        none_waits(journal)
        todo, done = prepared(journal, changes, kinds)
        if todo:
            with journal.create() as writer:
                done += _transaction(journal, writer, todo, kinds, confirm_within_s)
    return done


def in_order(changes: Sequence[Change], kinds: Kinds = KINDS) -> list[Change]:
    """The order in which changes are made: services that set knobs themselves first, a governor before the preference
    that is locked under some governors, what changes the list of CPUs and what may cut the network last. Raises
    WellfedError."""
    return sorted(changes, key=lambda change: kind_named(kinds, change.kind).order(change.target))


def cuts_network(change: Change, kinds: Kinds = KINDS) -> bool:
    """Whether a change may cut the connection it is made over. Raises WellfedError for a target that is none."""
    return change.cuts_network or kind_named(kinds, change.kind).cuts_network(change.target)


def waiting(journal: Journal) -> dict[str, float]:
    """Transactions that nobody has confirmed yet, and the seconds left; below 0 when overdue. Writes nothing."""
    boot = journal.root.boot_id()
    left = {name: seconds_left(journal.read(name), boot) for name in journal.names()}
    return {name: seconds for name, seconds in left.items() if seconds is not None}


def none_waits(journal: Journal) -> None:
    """Raises WellfedError when a transaction waits to be confirmed: what is changed now would be undone with it."""
    if waits := waiting(journal):
        raise WellfedError(
            f"{', '.join(waits)} waits to be confirmed",
            hint=f"wellfed tune confirm{journal.option}, or: wellfed tune undo {next(iter(waits))}{journal.option}",
        )


def confirm(journal: Journal, txid: str | None = None, kinds: Kinds = KINDS) -> list[str]:
    """Keep what waits to be confirmed, and say which transactions those were. Raises WellfedError when it is too late:
    the old values are then back."""
    with journal.locked():
        settle(journal, kinds)
        if late := _expire(journal, kinds):
            raise WellfedError(
                f"too late: {late[0].txid} has been undone, since nobody confirmed it in time",
                hint=f"wellfed tune log{journal.option}",
            )
        kept = [name for name in waiting(journal) if txid in (None, name)]
        if txid is not None and txid not in kept:
            journal.path(txid)
            raise WellfedError(
                f"`{txid}` does not wait to be confirmed", hint=f"wellfed tune status{journal.option}"
            )
        for name in kept:
            with _writing(journal, name) as writer:
                try:
                    writer.add(Record(type="confirmed"))
                except OSError as error:
                    raise WellfedError(
                        f"the journal in {journal.folder} takes no more ({error.strerror}): {name} will be undone",
                        hint=f"make room, then: wellfed tune confirm{journal.option}",
                    ) from error
    for name in kept:
        deadman.disarm(name)
    return kept


def revert_overdue(journal: Journal, kinds: Kinds = KINDS) -> list[Done]:
    """Undo what nobody confirmed in time. To be called before anything else is looked at or changed. A damaged transaction
    does not keep the others from being undone: somebody may be cut off until they are."""
    journal = Whole(journal.root, journal.folder)
    if all(seconds > 0 for seconds in waiting(journal).values()):
        return []
    with journal.locked():
        settle(journal, kinds)
        return _expire(journal, kinds)


def _expire(journal: Journal, kinds: Kinds) -> list[Done]:
    """Only under the lock, all settled."""
    done: list[Done] = []
    for name in [name for name, seconds in waiting(journal).items() if seconds <= 0][::-1]:
        told = {other: ops_of(journal.read(other)) for other in journal.names()}
        done += _undone(journal, told, name, False, kinds)
        with contextlib.suppress(_DiskFull), _writing(journal, name) as writer:
            _add(writer, Record(type="expired", note="nobody confirmed it in time"))
    return done


def undo(
    journal: Journal, txid: str | None = None, *, force: bool = False, kinds: Kinds = KINDS
) -> list[Done]:
    """Put back what transactions have changed, the last first; all of them, or `txid` alone. Where several have
    changed one knob, undoing all goes to the value before the first of them. `force` also overwrites what
    somebody else has set since. Raises WellfedError for a damaged journal."""
    with journal.locked():
        settle(journal, kinds)
        told = {name: ops_of(journal.read(name)) for name in journal.names()}
        if txid is not None and txid not in told:
            raise WellfedError(
                f"no transaction `{txid}` in {journal.folder}", hint=f"wellfed tune log{journal.option}"
            )
        return _undone(journal, told, txid, force, kinds)


def settle(journal: Journal, kinds: Kinds = KINDS) -> None:
    """Finish the records of transactions that were cut off, by what the knobs read now. Only under the lock."""
    for name in journal.names():
        if journal.forget_empty(name):
            continue
        records = journal.read(name)
        unsure = [op for op in ops_of(records) if op.state == "intended"]
        if not unsure and any(record.type in ("commit", "end") for record in records):
            continue
        with contextlib.suppress(_DiskFull), _writing(journal, name) as writer:
            for op in unsure:
                _add(writer, _settled(journal, op, kinds))
            _add(writer, Record(type="commit", note="settled after it was cut off"))


def status(journal: Journal, kinds: Kinds = KINDS) -> list[Done]:
    """What each knob that is still ours reads now: `same`, `changed`, `missing` or `void` (rebooted since). Where
    several transactions hold one knob the last one counts. Writes nothing."""
    found: dict[tuple[str, str], Done] = {}
    for name in journal.names():
        for op in ops_of(journal.read(name)):
            if op.state not in ("applied", "reverting", "intended"):
                continue
            kind = kind_named(kinds, op.kind)
            found[op.kind, kind.key(op.target)] = _seen(journal, op, kind)
    return list(found.values())


# -- applying ---------------------------------------------------------------------------------------------


def prepared(journal: Journal, changes: Sequence[Change], kinds: Kinds) -> tuple[list[Change], list[Done]]:
    """Single knobs with the values they have now, all read before the first is written: one may move another."""
    todo: list[Change] = []
    done: list[Done] = []
    for change in changes:
        kind = kind_named(kinds, change.kind)
        for target in kind.expand(journal.root, change.target):
            one = replace(change, target=target)
            try:
                one = replace(one, new=kind.resolve(journal.root, target, change.new))
                old = kind.read(journal.root, target)
                one = replace(one, old=old)
                why = kind.obstacle(journal.root, target, one.new)
            except OSError as error:
                done.append(_told(one, "failed", note=_said(error)))
                continue
            if kind.same(target, old, one.new):
                done.append(_told(one, "already", now=old))
            elif why is not None:
                done.append(_told(one, "failed", now=old, note=why))
            else:
                todo.append(one)
    return todo, done


def _transaction(
    journal: Journal, writer: Writer, todo: Sequence[Change], kinds: Kinds, confirm_within_s: float | None
) -> list[Done]:
    done: list[Done] = []
    begin = Record(type="begin", note=counted(len(todo), "knob"))
    if confirm_within_s is not None:
        begin = replace(begin, confirm_within_s=confirm_within_s, boot_s=boot_seconds())
    try:
        writer.add(begin)
        if confirm_within_s is not None:
            try:
                deadman.arm(writer.txid, confirm_within_s, journal)
            except OSError as error:
                writer.add(Record(type="end", note="nobody could be made to wait for the confirmation"))
                raise WellfedError(
                    f"nothing is changed: nobody can be made to undo it in time ({_said(error)})",
                    hint="without --confirm-within, for what can't cut the network",
                ) from error
            failpoint.reached("armed")
        for number, change in enumerate(todo):
            done.append(write_one(journal, writer, number, change, kinds[change.kind]))
        writer.add(Record(type="commit"))
    except OSError as error:
        made = sum(one.outcome == "applied" for one in done)
        raise WellfedError(
            f"the journal in {journal.folder} takes no more ({error.strerror}); {made} of {len(todo)} changes are made",
            hint=f"wellfed tune undo{journal.option}",
        ) from error
    return done


def write_one(journal: Journal, writer: Writer, number: int, change: Change, kind: Kind) -> Done:
    root, target, old, new = journal.root, change.target, change.old, change.new
    record = Record(
        type="intent", op=number, code=change.code, kind=change.kind, target=target, old=old, new=new
    )
    writer.add(record)
    refusal: OSError | None = None
    try:
        kind.write(root, target, new)
    except OSError as error:
        refusal = error
    failpoint.reached(f"write:{number}")
    now = reading(journal, kind, target)
    if refusal is None and kind.same(target, now, new):
        writer.add(replace(record, type="applied", read_back=now))
        return _told(change, "applied", txid=writer.txid, now=now)
    note = _why(refusal, now, new)
    if not kind.same(target, now, old):
        with contextlib.suppress(OSError):
            kind.write(root, target, old)
        failpoint.reached(f"put-back:{number}")
        now = reading(journal, kind, target)
    number_of = refusal.errno if refusal else None
    writer.add(
        Record(
            type="failed",
            op=number,
            read_back=old if kind.same(target, now, old) else now,
            errno=number_of,
            note=note,
        )
    )
    return _told(change, "failed", txid=writer.txid, now=now, note=note)


def _why(refusal: OSError | None, now: str | None, new: str) -> str:
    if refusal is None:
        return f"it did not stick: {new} was written, it reads {now}"
    if isinstance(refusal, Refused):
        return str(refusal.args[1])
    return f"{new} was refused: {_said(refusal)}"


def _said(error: OSError) -> str:
    return error.strerror or str(error)


def _settled(journal: Journal, op: Op, kinds: Kinds) -> Record:
    kind = kind_named(kinds, op.kind)
    if op.boot_id != journal.root.boot_id() and not kind.lasts:
        return Record(type="void", op=op.number, note="rebooted since")
    kind.tidy(journal.root, op.target)
    now = reading(journal, kind, op.target)
    if kind.same(op.target, now, op.new):
        return Record(type="applied", op=op.number, read_back=now, note="settled after it was cut off")
    if kind.same(op.target, now, op.old):
        return Record(type="failed", op=op.number, read_back=op.old, note="cut off before it was written")
    if kind.between(op.target, now, op.old, op.new):
        return Record(type="applied", op=op.number, read_back=now, note="cut off half-way")
    # Half-done or somebody else: undo compares with what we wrote, and leaves another's value alone.
    return Record(type="applied", op=op.number, read_back=op.new, note=f"cut off; it read {now}")


# -- undoing ----------------------------------------------------------------------------------------------


def _undone(
    journal: Journal, told: Mapping[str, list[Op]], txid: str | None, force: bool, kinds: Kinds
) -> list[Done]:
    # `intended` is left only where a full disk kept `settle` from writing; the knob itself says what happened.
    live = [op for ops in told.values() for op in ops if op.state in ("intended", "applied", "reverting")]
    first: dict[tuple[str, str], str | None] = {}
    last: dict[tuple[str, str], Op] = {}
    boot = journal.root.boot_id()
    for op in live:
        if op.boot_id == boot or kinds[op.kind].lasts:
            first.setdefault(_key(op, kinds), op.old)
            last[_key(op, kinds)] = op
    done: list[Done] = []
    # A knob may be locked while another is in force (a preference under a fixed governor): those get a second try.
    waiting = [op for op in reversed(live) if txid in (None, op.txid)]
    for again in (True, False):
        later: list[Op] = []
        for op in waiting:
            key = _key(op, kinds)
            newest = last.get(key, op)
            goal = first.get(key, op.old) if txid is None else op.old
            if txid is not None and newest is not op:
                done.append(_of(op, "drift", note=f"changed again by {newest.txid}; undo that first"))
                continue
            result = put_back(journal, op, goal, newest, force, kinds[op.kind])
            if again and result.outcome == "failed":
                later.append(op)
            else:
                done.append(result)
        waiting = later
    for name in dict.fromkeys(op.txid for op in live):
        records = journal.read(name)
        if not is_open(records) and not any(record.type == "end" for record in records):
            with contextlib.suppress(_DiskFull), _writing(journal, name) as writer:
                _add(writer, Record(type="end"))
    return done


def put_back(journal: Journal, op: Op, goal: str | None, newest: Op, force: bool, kind: Kind) -> Done:
    """Put one knob back. A full disk does not stop it: the knob itself says afterwards that it is back."""
    if op.boot_id != journal.root.boot_id() and not kind.lasts:
        return _noted(journal, op, Record(type="void", op=op.number, note="rebooted since"), "void")
    now = reading(journal, kind, op.target)
    if kind.same(op.target, now, goal):
        return _noted(journal, op, Record(type="reverted", op=op.number, read_back=now), "reverted", now)
    ours = [newest.held if newest.held is not None else newest.new, op.held, op.new]
    # An undo of this transaction alone was cut off after its write: that value is ours too.
    ours += [one.goal for one in (newest, op) if one.state == "reverting"]
    if not force and not any(kind.same(op.target, now, one) for one in ours):
        note = f"somebody else has set it to {now}" if now is not None else "it is not there"
        return _noted(
            journal, op, Record(type="skipped_drift", op=op.number, read_back=now, note=note), "drift", now
        )
    with _writing(journal, op.txid) as writer:
        with contextlib.suppress(_DiskFull):
            _add(writer, Record(type="revert_intent", op=op.number, old=now, new=goal))
        refusal: OSError | None = None
        try:
            kind.write(journal.root, op.target, goal)
        except OSError as error:
            refusal = error
        failpoint.reached(f"revert:{op.number}")
        now = reading(journal, kind, op.target)
        back = kind.same(op.target, now, goal)
        why = None if back else _why(refusal, now, str(goal))
        record = Record(
            type="reverted" if back else "failed",
            op=op.number,
            read_back=now,
            errno=refusal.errno if refusal else None,
            note=why,
        )
        with contextlib.suppress(_DiskFull):
            _add(writer, record)
    return _of(op, "reverted" if back else "failed", now=now, note=why)


def _noted(journal: Journal, op: Op, record: Record, outcome: Outcome, now: str | None = None) -> Done:
    with contextlib.suppress(_DiskFull), _writing(journal, op.txid) as writer:
        _add(writer, record)
    return _of(op, outcome, now=now, note=record.note)


# -- small things -----------------------------------------------------------------------------------------


class _DiskFull(Exception):
    """The journal takes no more. Going back must not wait for that."""


def _add(writer: Writer, record: Record) -> None:
    try:
        writer.add(record)
    except OSError as error:
        if error.errno in FULL:
            raise _DiskFull from error
        raise


@contextlib.contextmanager
def _writing(journal: Journal, txid: str) -> Iterator[Writer]:
    with journal.open(txid) as writer:
        yield writer


def reading(journal: Journal, kind: Kind, target: str) -> str | None:
    try:
        return kind.read(journal.root, target)
    except OSError:
        return None


def _seen(journal: Journal, op: Op, kind: Kind) -> Done:
    if op.boot_id != journal.root.boot_id() and not kind.lasts:
        return _of(op, "void", note="rebooted since")
    try:
        now = kind.read(journal.root, op.target)
    except OSError as error:
        gone = error.errno in (errno.ENOENT, errno.ENODEV)
        return _of(op, "missing", note="it is gone" if gone else os.strerror(error.errno or 0))
    ours = op.held if op.held is not None else op.new
    return _of(op, "same" if kind.same(op.target, now, ours) else "changed", now=now)


def _key(op: Op, kinds: Kinds) -> tuple[str, str]:
    return op.kind, kind_named(kinds, op.kind).key(op.target)


def _told(
    change: Change, outcome: Outcome, *, txid: str = "", now: str | None = None, note: str | None = None
) -> Done:
    return Done(
        txid=txid,
        code=change.code,
        kind=change.kind,
        target=change.target,
        outcome=outcome,
        old=change.old,
        new=change.new,
        now=now,
        note=note,
    )


def _of(op: Op, outcome: Outcome, *, now: str | None = None, note: str | None = None) -> Done:
    return Done(
        txid=op.txid,
        code=op.code,
        kind=op.kind,
        target=op.target,
        outcome=outcome,
        old=op.old,
        new=op.new,
        now=now,
        note=note,
    )
