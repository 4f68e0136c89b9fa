"""Making a change only where it pays: measured without it and with it, A B B A, and kept when it is better.

Each switch goes through the journal like any other write, all of one proof in one transaction: killed anywhere, the
knob is old or new, and undo finds the value before the first switch. The lock is held throughout, so that no other
`wellfed tune` is at work meanwhile; a daemon that changes the knob under way is seen, and ends the proof.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median

from wellfed.apply import failpoint
from wellfed.apply.engine import (
    Kinds,
    cuts_network,
    none_waits,
    prepared,
    put_back,
    reading,
    settle,
    write_one,
)
from wellfed.apply.journal import Journal, ops_of
from wellfed.apply.kinds import KINDS
from wellfed.model import Change, WellfedError
from wellfed.model.base import replace
from wellfed.model.change import Record
from wellfed.model.proof import Effect, Meter, Proof, ProofOutcome
from wellfed.predict import ab
from wellfed.report.proof import effect_text, proof_text

BUDGET_S = 120.0
"""No new quadruple is begun for a change after this, once the first look has been had."""

Measure = Callable[[Change], Meter | None]
Told = Callable[[str], None]


def prove(
    journal: Journal,
    changes: Sequence[Change],
    *,
    measure: Measure,
    kinds: Kinds = KINDS,
    looks: Sequence[int] = ab.LOOKS,
    budget_s: float = BUDGET_S,
    told: Told | None = None,
) -> tuple[Proof, ...]:
    """Measure each change by itself, one after the other, and keep those that are better than before; all else reads
    afterwards what it did. `measure` gives the measurement for a change, None when there is none: such a change is
    left alone. `told` hears a line of progress after each quadruple.

    Raises WellfedError before anything is written for a target that is none, when the journal can't be written, and
    when another is at work; whatever is raised under way, by a measurement or by Ctrl-C, the knobs are put back
    before. A change that fails does not stop the others."""
    for change in changes:
        if change.kind not in kinds:
            raise WellfedError(f"no kind `{change.kind}`", hint=f"one of: {', '.join(kinds)}")
        kinds[change.kind].expand(journal.root, change.target)
    found: list[Proof] = []
    with journal.locked():
        settle(journal, kinds)
        none_waits(journal)
        for change in changes:
            meter = measure(change)
            if meter is None or (why := _unfit(change, kinds)) is not None:
                note = "no measurement is linked to this change" if meter is None else why
                found.append(_proof(change, "unmeasured", note=note))
                continue
            found.append(_proved(journal, change, meter, kinds, looks, budget_s, told))
    return tuple(found)


def _unfit(change: Change, kinds: Kinds) -> str | None:
    """Why a change is not switched on and off a dozen times to see what it does."""
    if cuts_network(change, kinds):
        return "it may cut the network, so it is not switched to and fro"
    if kinds[change.kind].lasts:
        return "it outlives a reboot, so it is not switched to and fro"
    return None


class _Stopped(Exception):
    """The proof of this change can't go on; the words are for people."""


class _Trial:
    """The knobs of one change, switched on and off again in one transaction."""

    def __init__(self, journal: Journal, todo: Sequence[Change], kinds: Kinds, title: str) -> None:
        self.journal, self.todo, self.kinds, self.title = journal, todo, kinds, title
        self.txid = ""
        self._number = 0

    def on(self) -> None:
        """Write the new values. Raises _Stopped when one is refused, and OSError when the journal takes no more."""
        with self.journal.open(self.txid) if self.txid else self.journal.create() as writer:
            if not self.txid:
                self.txid = writer.txid
                writer.add(Record(type="begin", note=self.title))
            for change in self.todo:
                number, self._number = self._number, self._number + 1
                done = write_one(self.journal, writer, number, change, self.kinds[change.kind])
                if done.outcome != "applied":
                    raise _Stopped(f"{change.target}: {done.note}")

    def off(self) -> None:
        """Put the old values back, the last first. Raises _Stopped for a knob that is not back."""
        if not self.txid:
            return
        # A knob may be locked while another is in force; those get a second try.
        for again in (True, False):
            stuck: list[str] = []
            for op in reversed(ops_of(self.journal.read(self.txid))):
                if op.state not in ("intended", "applied", "reverting"):
                    continue
                done = put_back(self.journal, op, op.old, op, False, self.kinds[op.kind])
                if done.outcome != "reverted":
                    stuck.append(f"{op.target}: {done.note}")
            if not stuck:
                return
            if not again:
                raise _Stopped("; ".join(stuck))

    def held(self, *, new: bool) -> None:
        """Raises _Stopped unless each knob still reads what it should: then nothing measured would be of it."""
        for change in self.todo:
            kind, should = self.kinds[change.kind], change.new if new else change.old
            now = reading(self.journal, kind, change.target)
            if not kind.same(change.target, now, should):
                raise _Stopped(
                    f"{change.target} read {now}, not {should}, after a measurement: somebody else sets it too"
                )

    def close(self, *records: Record) -> None:
        """Last words. Raises OSError when the journal takes no more."""
        if self.txid:
            with self.journal.open(self.txid) as writer:
                for record in records:
                    writer.add(record)


def _proved(
    journal: Journal,
    change: Change,
    meter: Meter,
    kinds: Kinds,
    looks: Sequence[int],
    budget_s: float,
    told: Told | None,
) -> Proof:
    began = time.monotonic()
    todo, done = prepared(journal, [change], kinds)
    proof = _proof(change, "already", measured_by=meter.id, unit=meter.unit)
    olds = [one.old for one in todo] + [one.old for one in done]
    proof = replace(proof, old=", ".join(dict.fromkeys(old for old in olds if old is not None)) or None)
    if refused := [f"{one.target}: {one.note}" for one in done if one.outcome == "failed"]:
        return replace(proof, outcome="failed", note="; ".join(refused))
    if not todo:
        return proof
    title = f"proof of {change.code} by {meter.id}"
    trial = _Trial(journal, todo, kinds, title)
    try:
        try:
            proof = _measured(trial, proof, meter, looks, began + budget_s, told)
            proof = _kept_or_not(trial, proof, change)
        except BaseException:
            trial.off()
            raise
    except (_Stopped, WellfedError) as error:
        proof = replace(proof, outcome="failed", note=str(error))
        _close(trial, Record(type="end", code=change.code, note=f"not proved: {error}"))
    except OSError as error:
        raise WellfedError(
            f"the journal in {journal.folder} takes no more ({error.strerror}); the old values are back",
            hint="make room, then go on: wellfed tune apply --prove",
        ) from error
    return replace(proof, txid=trial.txid, seconds=round(time.monotonic() - began, 2))


def _measured(
    trial: _Trial, proof: Proof, meter: Meter, looks: Sequence[int], until: float, told: Told | None
) -> Proof:
    """Quadruples until it is decided, or the looks or the time are used up. All is off afterwards."""
    meter.run()  # the first run pays for what is not yet in memory
    a: list[float] = []
    b: list[float] = []
    effect: Effect | None = None
    for n in range(1, max(looks) + 1):
        a.append(_phase(trial, meter, new=False))
        trial.on()
        b += [_phase(trial, meter, new=True), _phase(trial, meter, new=True)]
        trial.off()
        a.append(_phase(trial, meter, new=False))
        if told is not None:
            told(f"{meter.id}, {n} of {looks[0] if n <= looks[0] else max(looks)} quadruples")
        late = time.monotonic() > until and n >= looks[0]
        if n in looks or late:
            effect = ab.decide(a, b)
            if effect.verdict != "noisy" or late:
                break
    assert effect is not None, "the last look is a look"
    return replace(proof, before=median(a), after=median(b), effect=effect)


def _phase(trial: _Trial, meter: Meter, *, new: bool) -> float:
    cost = meter.run()
    failpoint.reached("measured")
    trial.held(new=new)
    return cost


def _kept_or_not(trial: _Trial, proof: Proof, change: Change) -> Proof:
    effect = proof.effect
    assert effect is not None
    better = effect.verdict == "better"
    if better:
        trial.on()
    proof = replace(proof, outcome="kept" if better else "put-back")
    word = Record(
        type="verified", code=change.code, kind=change.kind, target=change.target, note=proof_text(proof)
    )
    # Without `op`: it tells of the change, and moves no knob's state.
    trial.close(word, Record(type="commit" if better else "end", note=effect_text(effect)))
    return proof


def _close(trial: _Trial, record: Record) -> None:
    """The knobs are back; a full disk does not make that untrue."""
    try:
        trial.close(record)
    except OSError:
        pass


def _proof(
    change: Change,
    outcome: ProofOutcome,
    *,
    measured_by: str | None = None,
    unit: str | None = None,
    note: str | None = None,
) -> Proof:
    return Proof(
        code=change.code,
        kind=change.kind,
        target=change.target,
        new=change.new,
        outcome=outcome,
        measured_by=measured_by,
        unit=unit,
        note=note,
    )
