"""What `tune` says, as text."""

import shlex
from collections.abc import Iterable, Sequence

from wellfed.model.change import Applied, Change, Done, Plan, Planned, Record, TuneLog, TuneStatus
from wellfed.model.counting import counted
from wellfed.report import lines as layout
from wellfed.report.lines import Line
from wellfed.report.proof import proof_text

_SHOWN = 4
"""Knobs of one change that are told one by one; the JSON has all."""
_JOINED = 8
_LONGEST = 120


# -- plan -------------------------------------------------------------------------------------------------


def plan(plan: Plan, *, width: int, color: bool = False, ascii_only: bool = False) -> str:
    """Exact writes and the way back, by what has to be said for each."""
    made = [one for one in plan.changes if one.chosen and one.state in ("change", "unseen")]
    more = [one for one in plan.changes if not one.chosen and one.state in ("change", "unseen")]
    already = [one for one in plan.changes if one.state == "already"]
    cannot = [one for one in plan.changes if one.state in ("missing", "read-only", "refused")]
    counts = [
        f"{counted(len(made), 'setting')} would be changed",
        f"{len(more)} only if asked for" if more else "",
        f"{counted(len(already), 'is', 'are')} so already" if already else "",
        f"{len(cannot)} can't be set" if cannot else "",
        counted(len(plan.instructions), "instruction") if plan.instructions else "",
    ]
    out = _head("Dry run, nothing is written: " + ", ".join(filter(None, counts)), width)
    for note in plan.notes:
        out += layout.flow(layout.prose(note), width, first=[("note: ", "dim")], rest=6)
    out += _part("Made by `wellfed tune apply`", _changes(made, width))
    out += _part("Made only with more on the command line", _changes(more, width))
    out += _part("Can't be set here", _changes(cannot, width))
    out += _part("So already", _changes(already, width))
    out += _by_hand(plan.instructions, width)
    out += _skipped(plan, width)
    if made:
        here = plan.origin.startswith("this machine")
        where, options = (
            ("Next: ", "the same options")
            if here
            else ("Next, on that machine: ", "the same options but --host")
        )
        out += [[], [(where, "dim"), ("wellfed tune apply", "code"), (f", with {options}", "")]]
    return layout.paint(out, width=width, color=color, ascii_only=ascii_only)


def _head(text: str, width: int) -> list[Line]:
    return layout.flow(layout.prose(text, "head"), width)


def _part(title: str, lines: Sequence[Line]) -> list[Line]:
    return [[], [*layout.prose(title, "head")], *lines] if lines else []


def _changes(planned: Iterable[Planned], width: int) -> list[Line]:
    groups: dict[tuple[str, ...], list[Planned]] = {}
    for one in planned:
        groups.setdefault((one.change.code, one.change.kind, one.asked, one.state), []).append(one)
    out: list[Line] = []
    for ones in groups.values():
        group = _group(ones, width)
        out += [[], *group] if out and len(group) > 1 else group
    return out


def _group(ones: Sequence[Planned], width: int) -> list[Line]:
    """One change: what it is of, the values of each knob, why, by hand, and what it needs."""
    one, change = ones[0], ones[0].change
    head = f"{change.code} {change.kind} "
    several = len(ones) > 1 or one.asked != change.target
    if several:
        title = f"{one.asked} ({counted(len(ones), 'knob')})"
        out = layout.flow(layout.prose(title), width, first=[(f"  {head}", "head")], rest=4, whole=True)
        for each in ones[:_SHOWN]:
            text = f"{each.change.target}: {_values(each.change, one.state)}"
            out += layout.flow(layout.prose(text), width, first=[("    ", "")], rest=6, whole=True)
        out += _more(len(ones), "    ")
    else:
        text = f"{change.target}: {_values(change, one.state)}"
        out = layout.flow(layout.prose(text), width, first=[(f"  {head}", "head")], rest=4, whole=True)
    if one.state == "already":
        return out
    if one.reason:
        out += _labelled("state", f"{one.state}: {one.reason}", width)
    if change.why:
        out += _labelled("why", change.why, width)
    for label, texts in (("write", [x.write for x in ones]), ("undo", [x.undo for x in ones])):
        lines = _joined([text for text in texts if text])
        for text in lines[:_SHOWN]:
            out += layout.command(_one_line(text), width, first=[(f"    {label:<6}", "dim")], rest=10)
        out += _more(len(lines), "          ")
    if change.owner:
        out += _labelled("owner", f"also set by {change.owner}", width)
    if one.state in ("change", "unseen"):
        out += _labelled("needs", _needs(one), width)
    if one.flag:
        out += _labelled("flag", f"`wellfed tune apply {one.flag}`", width)
    return out


def _joined(texts: Sequence[str]) -> list[str]:
    """Lines that write one value to several files are one line: `tee` takes several."""
    files: dict[str, list[str]] = {}
    for text in texts:
        before, tee, path = text.rpartition(" | sudo tee ")
        key, value = (before + tee, path) if tee and len(shlex.split(path)) == 1 else (text, "")
        files.setdefault(key, []).append(value)
    out: list[str] = []
    for key, paths in files.items():
        out += [key + " ".join(paths[at : at + _JOINED]) for at in range(0, len(paths), _JOINED)]
    return out


def _needs(one: Planned) -> str:
    change = one.change
    word = (
        "named by you"
        if change.evidence == "user"
        else f"risk: {change.risk}, effect known: {change.evidence}"
    )
    parts = ["root" if one.privilege == "root" else "no root", word]
    if change.cuts_network:
        parts.append("may cut the network")
    if change.proof:
        parts.append(f"`--prove` measures {change.proof}")
    return "; ".join(parts)


def _more(count: int, indent: str) -> list[Line]:
    return [[(f"{indent}... {count - _SHOWN} more; --format json has all", "dim")]] if count > _SHOWN else []


def _values(change: Change, state: str = "change") -> str:
    if state == "already":
        return _short(change.old)
    if state in ("missing", "unseen"):
        return f"{_short(change.new)} is wanted"
    return f"{_short(change.old)} -> {_short(change.new)}"


def _by_hand(instructions: Sequence[Change], width: int) -> list[Line]:
    out: list[Line] = []
    for change in instructions:
        text = change.new if change.kind == "instruction" else f"{change.kind} {change.target} = {change.new}"
        out += layout.flow(
            layout.prose(text), width, first=[(f"  {change.code} ", "head")], rest=4, whole=True
        )
        if change.why:
            out += _labelled("why", change.why, width)
        if change.risk not in ("safe",):
            out += _labelled("risk", change.risk, width)
    return _part("By hand", out)


def _skipped(plan: Plan, width: int) -> list[Line]:
    out: list[Line] = []
    for one in plan.skipped:
        out += layout.flow(layout.prose(one.reason), width, first=[(f"  {one.code} ", "head")], rest=4)
    return _part("Skipped", out)


# -- apply ------------------------------------------------------------------------------------------------


def applied(
    result: Applied, *, where: str = "", width: int, color: bool = False, ascii_only: bool = False
) -> str:
    """What became of each knob, and what would be needed for the others. `where` are the options that name the journal."""
    out: list[Line] = _late(result.late, width)
    if result.proofs is not None:
        kept = sum(proof.outcome == "kept" for proof in result.proofs)
        out += _head(f"{counted(len(result.proofs), 'change')} tried, {kept} kept", width)
        for proof in result.proofs:
            title = f"{proof.code} {proof.kind} {proof.target}: {_short(proof.old)} -> {_short(proof.new)}"
            out += layout.flow(layout.prose(title), width, first=[("  ", "")], rest=4, whole=True)
            out += _labelled(_PROOFS[proof.outcome], _proof(proof_text(proof), proof.outcome), width, 10)
    else:
        out += _head(_counts(result.done), width)
        out += _done(result.done, width)
    left = [one for one in result.plan.changes if not one.chosen and one.state in ("change", "unseen")]
    lines: list[Line] = []
    for (code, kind, asked, flag), values in _flags(left).items():
        lines += layout.flow(
            layout.prose(f"{asked}: {values}"),
            width,
            first=[(f"  {code} {kind} ", "head")],
            rest=4,
            whole=True,
        )
        lines += _labelled("flag", f"`wellfed tune apply {flag}`", width)
    out += _part("Not made; this would", lines)
    out += _by_hand(result.plan.instructions, width)
    out += _skipped(result.plan, width)
    kept_some = result.txid or any(proof.outcome == "kept" for proof in result.proofs or ())
    if result.confirm_within_s is not None and result.txid:
        text = f"undone in {result.confirm_within_s:g} s unless you say: `wellfed tune confirm{where}`"
        out += [[], *layout.flow(layout.prose(text, "warning"), width)]
    if kept_some:
        text = f"Undo: `wellfed tune undo{where}`; how it stands: `wellfed tune status{where}`"
        out += [[], *layout.flow(layout.prose(text), width)]
    return layout.paint(out, width=width, color=color, ascii_only=ascii_only)


_PROOFS = {
    "kept": "kept",
    "put-back": "put back",
    "already": "already",
    "failed": "failed",
    "unmeasured": "not made",
}


def _proof(text: str, outcome: str) -> str:
    return f"{text}: not proved; without `--prove` it is made unmeasured" if outcome == "unmeasured" else text


def _flags(left: Sequence[Planned]) -> dict[tuple[str, str, str, str], str]:
    found: dict[tuple[str, str, str, str], list[Planned]] = {}
    for one in left:
        found.setdefault((one.change.code, one.change.kind, one.asked, one.flag or ""), []).append(one)
    return {
        key: _values(ones[0].change)
        if len(ones) == 1
        else f"{len(ones)} knobs -> {_short(ones[0].change.new)}"
        for key, ones in found.items()
    }


def _counts(done: Sequence[Done]) -> str:
    made = sum(one.outcome == "applied" for one in done)
    already = sum(one.outcome == "already" for one in done)
    failed = sum(one.outcome == "failed" for one in done)
    parts = [f"{counted(made, 'setting')} changed" if made else "nothing is changed"]
    if already:
        parts.append(f"{already} so already")
    if failed:
        parts.append(f"{failed} failed, and {'is' if failed == 1 else 'are'} as before")
    return ", ".join(parts)


_STYLES = {
    "failed": "error",
    "drift": "warning",
    "changed": "warning",
    "missing": "warning",
    "applied": "good",
}
_WORDS = {
    "applied": "changed",
    "already": "so already",
    "failed": "failed",
    "reverted": "put back",
    "drift": "left alone",
    "void": "gone with the reboot",
    "same": "as set",
    "changed": "drifted",
    "missing": "missing",
}


def _done(done: Sequence[Done], width: int) -> list[Line]:
    out: list[Line] = []
    groups: dict[tuple[str, ...], list[Done]] = {}
    for one in done:
        key = (one.code, one.kind, one.outcome, str(one.old), str(one.new), str(one.now), one.note or "")
        groups.setdefault(key, []).append(one)
    for ones in groups.values():
        one = ones[0]
        names = ", ".join(each.target for each in ones[:_SHOWN])
        if len(ones) > _SHOWN:
            names += f" and {len(ones) - _SHOWN} more"
        text = f"{one.code} {one.kind} {names}: {_told(one)}"
        note = f" ({one.note})" if one.note else ""
        first = [(f"  {_WORDS[one.outcome]:<11}", _STYLES.get(one.outcome, ""))]
        out += layout.flow(layout.prose(text + note), width, first=first, rest=13, whole=True)
    return out


def _told(one: Done) -> str:
    if one.outcome == "applied":
        return f"{_short(one.old)} -> {_short(one.now)}"
    if one.outcome in ("already", "same", "reverted"):
        return _short(one.now)
    if one.outcome == "void":
        return f"was {_short(one.new)}"
    if one.outcome in ("changed", "drift"):
        return f"reads {_short(one.now)}, {_short(one.new)} was set"
    return f"{_short(one.new)} was {'set' if one.outcome == 'missing' else 'wanted'}"


# -- the rest ---------------------------------------------------------------------------------------------


def status(
    found: TuneStatus, *, where: str = "", width: int, color: bool = False, ascii_only: bool = False
) -> str:
    changes = [one for held in found.transactions for one in held.changes]
    if not found.transactions:
        return layout.paint(
            [[("Nothing of this machine is changed by wellfed", "head")]], width=width, color=color
        )
    gone = sum(one.outcome == "void" for one in changes)
    held_still = len(changes) - gone - found.drift
    head = [
        f"{counted(held_still, 'setting')} held",
        f"{found.drift} drifted" if found.drift else "no drift",
    ]
    if gone:
        head.append(f"{gone} gone with the reboot")
    out = _head(", ".join(head), width)
    for held in found.transactions:
        out += [[], [(f"{held.txid}, {held.began}", "dim")]]
        if held.state == "waiting":
            text = f"undone in {held.left_s or 0:.0f} s unless you say: `wellfed tune confirm{where}`"
            out += layout.flow(layout.prose(text, "warning"), width, first=[("  ", "")], rest=4)
        elif held.state == "overdue":
            text = "nobody confirmed it in time: the next `tune` that may write undoes it first"
            out += layout.flow(layout.prose(text, "warning"), width, first=[("  ", "")], rest=4)
        out += _done(held.changes, width)
    force = "; what drifted it leaves alone without `--force`" if found.drift else ""
    out += [[], *layout.flow(layout.prose(f"Undo: `wellfed tune undo{where}`{force}"), width)]
    return layout.paint(out, width=width, color=color, ascii_only=ascii_only)


def undone(
    done: Sequence[Done], *, where: str = "", width: int, color: bool = False, ascii_only: bool = False
) -> str:
    if not done:
        return layout.paint([[("Nothing to undo", "head")]], width=width, color=color)
    back = sum(one.outcome == "reverted" for one in done)
    parts = [f"{counted(back, 'setting')} put back" if back else "nothing is put back"]
    for outcome, words in (("drift", "left alone"), ("failed", "failed"), ("void", "gone with the reboot")):
        if count := sum(one.outcome == outcome for one in done):
            parts.append(f"{count} {words}")
    out = [*_head(", ".join(parts), width), *_done(done, width)]
    if any(one.outcome == "drift" for one in done):
        text = f"Over what others have set: `wellfed tune undo --force{where}`"
        out += [[], *layout.flow(layout.prose(text), width)]
    return layout.paint(out, width=width, color=color, ascii_only=ascii_only)


def confirmed(txids: Sequence[str], *, width: int, color: bool = False) -> str:
    return layout.paint([[(f"{', '.join(txids)}: kept until you undo it", "head")]], width=width, color=color)


def log(found: TuneLog, *, width: int, color: bool = False, ascii_only: bool = False) -> str:
    """A line for each record, the oldest first."""
    title = f"{counted(len(found.transactions), 'transaction')} in {found.folder}"
    out = layout.flow(layout.prose(title, "head"), width, whole=True)
    for one in found.transactions:
        out += [[], [(f"{one.txid}: {one.state}", "head")]]
        if one.damaged:
            out += layout.flow(layout.prose(one.damaged, "error"), width, first=[("  ", "")], rest=4)
        named = {record.op: record for record in one.records if record.type == "intent"}
        for record in one.records:
            text = " ".join(part for part in _record(record, named.get(record.op, record)) if part)
            first = [(f"  {record.ts[:23]} ", "dim"), (f"{record.type:<13} ", "")]
            out += layout.flow(layout.prose(text), width, first=first, rest=4, whole=True)
    return layout.paint(out, width=width, color=color, ascii_only=ascii_only)


def _record(record: Record, named: Record) -> list[str]:
    """`named` is the record that says of which knob it is."""
    values = ""
    if record.type in ("intent", "revert_intent"):
        values = f"{_short(record.old)} -> {_short(record.new)}"
    elif record.op is not None and record.type in ("applied", "reverted", "failed", "skipped_drift"):
        values = f"reads {_short(record.read_back)}"
    within = f"to be confirmed within {record.confirm_within_s:g} s" if record.confirm_within_s else ""
    number = f"#{record.op}" if record.op is not None else ""
    return [
        number,
        named.code or "",
        named.kind or "",
        named.target or "",
        values,
        record.note or "",
        within,
    ]


def _late(late: Sequence[Done], width: int) -> list[Line]:
    if not late:
        return []
    return [[("Undone first, since nobody confirmed it in time", "warning")], *_done(late, width), []]


def _labelled(label: str, text: str, width: int, wide: int = 6) -> list[Line]:
    return layout.flow(
        layout.prose(text), width, first=[(f"    {label:<{wide}}", "dim")], rest=4 + wide, whole=True
    )


def _short(text: str | None) -> str:
    """A value on one line; whole files (drop-ins) are told by their beginning."""
    if text is None:
        return "not set"
    if text == "":
        return "empty"
    line = _one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 20]}... ({len(text)} characters)"


def _one_line(text: str) -> str:
    return text.rstrip("\n").replace("\n", "\\n")
