"""The journal as a page: each transaction with what it changed, what became of it, what was measured, and whether its
chain of checksums holds."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from wellfed.model.change import Done, Logged, Record, TuneLog, TuneStatus
from wellfed.model.counting import counted
from wellfed.model.redact import redact_tree
from wellfed.report import html, markdown, markup, words
from wellfed.report import lines as layout
from wellfed.report.lines import Line, Span
from wellfed.report.markup import Child, tag

SCHEMA = 1
_LONG = 160
_VERSION = 1
_FIRST = "0" * 64


class Row(NamedTuple):
    """One knob of a transaction. `switched` is how often it was written: a proof switches to and fro."""

    code: str
    kind: str
    target: str
    old: str | None
    new: str
    became: str
    is_bad: bool = False
    switched: int = 1


class Chain(NamedTuple):
    """`head` is the checksum that the next record would carry: whoever has noted it can tell that nothing before was
    changed. `broken` says what does not fit; None when all does."""

    records: int
    head: str | None
    broken: str | None = None


class Told(NamedTuple):
    """A transaction, told."""

    txid: str
    state: str
    facts: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    proofs: tuple[str, ...]
    chain: Chain
    records: tuple[Record, ...] = ()


def journal_page(
    log: TuneLog,
    form: str = "text",
    *,
    status: TuneStatus | None = None,
    redact: bool = True,
    width: int = 80,
    color: bool = False,
    ascii_only: bool = False,
) -> str:
    """The log as `html`, `md`, `json` or `text`. `status` is what its knobs read now, for drift. Checksums are checked
    before anything is hidden; text is for the person at the machine and hides nothing."""
    chains = [chain_of(one) for one in log.transactions]
    if redact and form != "text":
        log = msgspec.convert(redact_tree(msgspec.to_builtins(log)), TuneLog)
        if status is not None:
            status = msgspec.convert(redact_tree(msgspec.to_builtins(status)), TuneStatus)
    told = [tell(one, chain, status) for one, chain in zip(log.transactions, chains, strict=True)]
    if form == "html":
        return _html(log, told)
    if form == "md":
        return _markdown(log, told)
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(_plain(log, told)), indent=2).decode() + "\n"
    return _text(log, told, width, color, ascii_only)


# -- the chain --------------------------------------------------------------------------------------------


def digest(record: Record) -> str:
    """The checksum of a record's line as the apply room seals it, which the next line carries."""
    body = msgspec.json.encode(record)[:-1]
    return hashlib.sha256(
        body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'
    ).hexdigest()


def chain_of(logged: Logged) -> Chain:
    """Whether each record follows from the one before."""
    if logged.damaged is not None:
        return Chain(len(logged.records), None, logged.damaged)
    previous = _FIRST
    for at, record in enumerate(logged.records):
        if record.v != _VERSION:
            return Chain(
                len(logged.records), None, f"record {at} is of version {record.v}, which is not checked here"
            )
        if record.seq != at or record.sha256_of_previous != previous or record.txid != logged.txid:
            return Chain(len(logged.records), None, f"record {at} does not follow from the one before it")
        previous = digest(record)
    return Chain(len(logged.records), previous if logged.records else None)


# -- a transaction ----------------------------------------------------------------------------------------

_STATES = {
    "open": "not undone",
    "waiting": "waits to be confirmed",
    "undone": "nothing of it is in force",
    "damaged": "damaged, not readable",
}
_HELD = {
    "same": "",
    "changed": "drift: somebody else has set it since, it reads {now} now",
    "missing": "drift: it is not there any more",
    "void": "gone with the boot",
}


def tell(logged: Logged, chain: Chain, status: TuneStatus | None = None) -> Told:
    """What there is to say of a transaction."""
    now: dict[tuple[str, str], Done] = {}
    for holding in status.transactions if status is not None else ():
        if holding.txid == logged.txid:
            now = {(one.kind, one.target): one for one in holding.changes}
    records = logged.records
    proofs = [
        record.note for record in records if record.type == "verified" and record.op is None and record.note
    ]
    return Told(
        logged.txid,
        _STATES[logged.state],
        tuple(_facts(records)),
        tuple(_rows(records, now)),
        tuple(proofs),
        chain,
        records,
    )


def _facts(records: Sequence[Record]) -> Iterable[tuple[str, str]]:
    if not records:
        return
    first = records[0]
    yield "began", _when(first)
    if first.note and not re.fullmatch(r"[\d,]+ knobs?", first.note):
        yield "what", first.note
    boots = list(dict.fromkeys(record.boot_id for record in records if record.boot_id))
    yield "boot", ", then ".join(boots) if boots else "not told"
    if first.confirm_within_s is not None:
        asked = f"within {first.confirm_within_s:g} s"
        done = next((record for record in records if record.type in ("confirmed", "expired")), None)
        if done is None:
            yield "confirmed", f"asked for {asked}, no word of it yet"
        elif done.type == "confirmed":
            by = f": {done.note}" if done.note else ", by whoever ran `wellfed tune confirm`"
            yield "confirmed", f"{_when(done)}, asked for {asked}{by}"
        else:
            yield "confirmed", f"by nobody {asked}: undone, {_when(done)}"
    else:
        yield "confirmed", "not asked for"
    last = records[-1]
    yield (
        "last record",
        f"{last.type}, {_when(last)}" + (f": {last.note}" if last.note and last is not first else ""),
    )


def _when(record: Record) -> str:
    return record.ts.replace("T", " ").replace("+00:00", " UTC") or "no time"


def _rows(records: Sequence[Record], now: dict[tuple[str, str], Done]) -> Iterable[Row]:
    """A row for each knob, in the order in which they were first written."""
    ops: dict[int, list[Record]] = {}
    for record in records:
        if record.op is not None:
            ops.setdefault(record.op, []).append(record)
    knobs: dict[tuple[str, str], list[list[Record]]] = {}
    for told in ops.values():
        first = told[0]
        if first.type == "intent" and first.kind is not None and first.target is not None:
            knobs.setdefault((first.kind, first.target), []).append(told)
    for (kind, target), switches in knobs.items():
        first, last = switches[0][0], switches[-1]
        became, is_bad = _became(last, now.get((kind, target)))
        yield Row(first.code or "", kind, target, first.old, last[0].new or "", became, is_bad, len(switches))


def _became(told: Sequence[Record], now: Done | None) -> tuple[str, bool]:
    """What became of a knob, and whether that is to be looked at."""
    last = told[-1]
    note = f": {last.note}" if last.note else ""
    undoing = any(record.type == "revert_intent" for record in told)
    if last.type == "intent":
        return "cut off, and not settled yet", True
    if last.type == "failed":
        return (f"not put back{note}", True) if undoing else (f"not made{note}", True)
    if last.type == "reverted":
        return f"put back{note}", False
    if last.type == "revert_intent":
        return "being put back when it was cut off", True
    if last.type == "void":
        return "gone with the boot", False
    if last.type == "skipped_drift":
        return f"left alone by undo{note}", True
    reads = f", read back as {_value(last.read_back)}" if last.read_back not in (None, told[0].new) else ""
    drift = _HELD.get(now.outcome, "").format(now=_value(now.now)) if now is not None else ""
    if drift:
        return drift, now is not None and now.outcome != "void"
    return f"in force{reads}{note}", False


def _value(text: str | None) -> str:
    if text is None:
        return "not set"
    return words.shorten(words.clean(text), _LONG) if text else "empty"


def _chain(chain: Chain) -> str:
    if chain.broken is not None:
        return f"broken: {chain.broken}"
    if chain.head is None:
        return "no record"
    return f"{counted(chain.records, 'record')}, each follows from the one before; {chain.head[:16]} is the last checksum"


def _headline(log: TuneLog, told: Sequence[Told]) -> str:
    if not told:
        return "Nothing was ever changed"
    knobs = {(row.kind, row.target) for one in told for row in one.rows}
    parts = [counted(len(told), "transaction"), counted(len(knobs), "setting")]
    if bad := sum(row.is_bad for one in told for row in one.rows):
        parts.append(f"{bad} to look at")
    broken = sum(one.chain.broken is not None for one in told)
    parts.append(f"{counted(broken, 'chain')} broken" if broken else "every chain is whole")
    return ", ".join(parts)


_HEADER = ("check", "kind", "setting", "old", "new", "what became of it")


def _cells(row: Row) -> tuple[str, ...]:
    times = f" (switched {row.switched} times)" if row.switched > 1 else ""
    return row.code, row.kind, words.clean(row.target), _value(row.old), _value(row.new), row.became + times


def _cells_of_record(record: Record) -> tuple[str, ...]:
    values = (
        f"{_value(record.old)} -> {_value(record.new)}" if record.type in ("intent", "revert_intent") else ""
    )
    if record.read_back is not None:
        values = f"reads {_value(record.read_back)}"
    number = "" if record.op is None else str(record.op)
    return str(record.seq), _when(record), record.type, number, values, record.note or ""


_RECORD_HEADER = ("record", "time", "type", "op", "values", "note")


# -- forms ------------------------------------------------------------------------------------------------


def _plain(log: TuneLog, told: Sequence[Told]) -> dict[str, Any]:
    """`{"schema", "folder", "transactions": [{"txid", "state", "began"..., "changes", "proofs", "chain", "records"}]}`."""
    return {
        "schema": SCHEMA,
        "folder": log.folder,
        "transactions": [
            {
                "txid": one.txid,
                "state": one.state,
                "facts": dict(one.facts),
                "changes": [row._asdict() for row in one.rows],
                "proofs": list(one.proofs),
                "chain": one.chain._asdict(),
                "records": msgspec.to_builtins(one.records),
            }
            for one in told
        ],
    }


def _html(log: TuneLog, told: Sequence[Told]) -> str:
    title = _headline(log, told)
    head = tag(
        "header",
        tag("p", "wellfed tune log", class_="made"),
        tag("h1", markup.prose(title)),
        tag("p", "journal in ", tag("code", log.folder), class_="under"),
    )
    foot = tag("footer", tag("p", html.MADE))
    return html.document(title, head, tag("main", *(_section(one) for one in told)), foot)


def _section(one: Told) -> Child:
    facts = [(name, markup.prose(text)) for name, text in one.facts]
    facts.append(
        (
            "chain",
            tag("span", _chain(one.chain), class_="loud")
            if one.chain.broken
            else markup.prose(_chain(one.chain)),
        )
    )
    rows: list[tuple[Child, ...]] = []
    for row in one.rows:
        code, kind, target, old, new, became = _cells(row)
        shown = tag("span", became, class_="loud") if row.is_bad else markup.prose(became)
        rows.append((code, kind, *(tag("code", cell) for cell in (target, old, new)), shown))
    return tag(
        "section",
        tag("h2", tag("code", one.txid), f": {one.state}"),
        tag("dl", *(join for name, text in facts for join in (tag("dt", name), tag("dd", text)))),
        markup.table(_HEADER, rows, align="llllll", label=f"Settings of {one.txid}") if rows else None,
        tag("h3", "Measured") if one.proofs else None,
        tag("ul", *(tag("li", markup.prose(text)) for text in one.proofs), class_="plain")
        if one.proofs
        else None,
        markup.details(
            f"Every record: {len(one.records)}",
            markup.table(
                _RECORD_HEADER,
                map(_cells_of_record, one.records),
                align="rllrll",
                label=f"Records of {one.txid}",
            ),
        )
        if one.records
        else None,
    )


def _markdown(log: TuneLog, told: Sequence[Told]) -> str:
    lines = [f"### {markdown.text(_headline(log, told))}", "", f"Journal in {markdown.code(log.folder)}", ""]
    for one in told:
        lines += [f"**{markdown.code(one.txid)}: {markdown.text(one.state)}**", ""]
        lines += [
            f"- {name}: {markdown.text(text)}" for name, text in (*one.facts, ("chain", _chain(one.chain)))
        ]
        lines.append("")
        if one.rows:
            cells = [
                (
                    markdown.text(code),
                    markdown.text(kind),
                    *map(markdown.code, (target, old, new)),
                    markdown.text(became),
                )
                for code, kind, target, old, new, became in map(_cells, one.rows)
            ]
            lines += [*markdown.table_lines(_HEADER, cells, "llllll"), ""]
        if one.proofs:
            lines += ["Measured:", "", *(f"- {markdown.text(text)}" for text in one.proofs), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _text(log: TuneLog, told: Sequence[Told], width: int, color: bool, ascii_only: bool) -> str:
    out: list[Line] = layout.flow(layout.prose(_headline(log, told), "head"), width)
    out += layout.flow(layout.prose(f"journal in {log.folder}", "dim"), width, whole=True)
    for one in told:
        out += [[], [(f"{words.clean(one.txid)}: {one.state}", "head")]]
        for name, text in (*one.facts, ("chain", _chain(one.chain))):
            style = "error" if name == "chain" and one.chain.broken else ""
            out += layout.flow(
                layout.prose(text, style), width, first=[(f"  {name} ", "dim")], rest=4, whole=True
            )
        for row in one.rows:
            code, kind, target, old, new, became = _cells(row)
            spans: list[Span] = layout.prose(f"{code} {kind} {target}: {old} -> {new}")
            out += layout.flow(spans, width, first=[("  ", "")], rest=4, whole=True)
            out += layout.flow(
                layout.prose(became, "warning" if row.is_bad else ""),
                width,
                first=[("    ", "")],
                rest=4,
                whole=True,
            )
        for text in one.proofs:
            out += layout.flow(layout.prose(text), width, first=[("  measured ", "dim")], rest=4, whole=True)
    return layout.paint(out, width=width, color=color, ascii_only=ascii_only)
