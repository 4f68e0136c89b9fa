"""The journal as a page: of journals that were really written, and of any text that could be in one."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_html import check_harmless

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "apply"))

import fake_host as m

from wellfed import api
from wellfed.apply import engine
from wellfed.apply.journal import Journal
from wellfed.model.base import replace
from wellfed.model.change import Done, Holding, Logged, Record, RecordType, TuneLog, TuneStatus
from wellfed.report.journal_page import chain_of, digest, journal_page, tell

FORMS = ("html", "md", "json", "text")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return m.make(tmp_path / "root")


@pytest.fixture
def log(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Callable[[], TuneLog]:
    monkeypatch.setattr(api, "_journal", lambda folder: Journal(journal.root, None))
    return api.tune_log


def told(log: TuneLog, status: TuneStatus | None = None) -> list[tuple[str, str]]:
    """Setting and what became of it, of all transactions."""
    rows = [row for one in log.transactions for row in tell(one, chain_of(one), status).rows]
    return [(row.target, row.became) for row in rows]


def set_to(journal: Journal, text: str) -> None:
    (Path(journal.root.top) / m.SYSCTL / "stat_interval").write_text(f"{text}\n")


# -- chains -----------------------------------------------------------------------------------------------


def test_the_chain_of_a_journal_that_was_written_is_whole(
    journal: Journal, log: Callable[[], TuneLog]
) -> None:
    engine.apply(journal, m.THREE)
    engine.undo(journal)
    (one,) = log().transactions
    chain = chain_of(one)
    assert chain.broken is None and chain.records == len(one.records) > 6
    with journal.open(one.txid) as writer:
        assert writer._previous == chain.head, "the checksum that the next record would carry"


def test_any_altered_record_breaks_the_chain(journal: Journal, log: Callable[[], TuneLog]) -> None:
    engine.apply(journal, m.THREE)
    (one,) = log().transactions
    for at, record in enumerate(one.records[:-1]):
        for change in ({"ts": "x"}, {"note": "other"}, {"seq": 99}, {"txid": "x"}, {"boot_id": "x"}):
            records = (*one.records[:at], replace(record, **change), *one.records[at + 1 :])
            assert chain_of(replace(one, records=records)).broken is not None
        assert chain_of(replace(one, records=(*one.records[:at], *one.records[at + 1 :]))).broken is not None
    last = chain_of(replace(one, records=one.records[:-1]))
    assert last.broken is None and last.head != chain_of(one).head, "a shorter chain has another end"


def test_a_damaged_journal_is_told_in_every_form(journal: Journal, log: Callable[[], TuneLog]) -> None:
    engine.apply(journal, m.THREE)
    path = journal.path(journal.names()[0])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b"stat", b"stet"), *lines[2:]]))
    for form in FORMS:
        assert re.search(r"(?i)broken", journal_page(log(), form)), form
        assert "line 2" in journal_page(log(), form, redact=False).replace("\u00a0", " ").replace(
            "\n    ", " "
        ), form


def test_records_of_another_version_are_not_called_whole() -> None:
    one = Logged(txid="00001-20260101T000000", state="open", records=(Record(v=2, seq=0, type="begin"),))
    assert "version 2" in (chain_of(one).broken or "")


# -- what became of it ------------------------------------------------------------------------------------


def test_applied_and_undone(journal: Journal, log: Callable[[], TuneLog]) -> None:
    engine.apply(journal, m.THREE)
    assert [became for _, became in told(log())] == ["in force"] * 3
    engine.undo(journal)
    assert [became for _, became in told(log())] == ["put back"] * 3


def test_drift_is_told_by_what_the_knob_reads_now_and_by_undo(
    journal: Journal, log: Callable[[], TuneLog]
) -> None:
    engine.apply(journal, [m.STAT])
    set_to(journal, "77")
    assert told(log(), api.tune_status()) == [
        ("vm.stat_interval", "drift: somebody else has set it since, it reads 77 now")
    ]
    engine.undo(journal)
    assert told(log()) == [("vm.stat_interval", "left alone by undo: somebody else has set it to 77")]


def test_refused_gone_with_the_boot_and_cut_off(journal: Journal, log: Callable[[], TuneLog]) -> None:
    engine.apply(journal, [m.STAT])
    (one,) = log().transactions
    intent = next(record for record in one.records if record.type == "intent")

    def ends(*records: Record) -> str:
        logged = replace(one, records=(one.records[0], intent, *(replace(each, op=0) for each in records)))
        return tell(logged, chain_of(logged)).rows[0].became

    assert ends() == "cut off, and not settled yet"
    assert ends(Record(type="failed", note="7 was refused: no")) == "not made: 7 was refused: no"
    assert ends(Record(type="applied", read_back="8")) == "in force, read back as 8"
    assert ends(Record(type="void")) == "gone with the boot"
    assert ends(Record(type="applied"), Record(type="revert_intent")) == "being put back when it was cut off"
    assert (
        ends(Record(type="applied"), Record(type="revert_intent"), Record(type="failed", note="no"))
        == "not put back: no"
    )


def test_a_new_boot_is_told(journal: Journal, log: Callable[[], TuneLog]) -> None:
    engine.apply(journal, [m.STAT])
    (Path(journal.root.top) / "proc/sys/kernel/random/boot_id").write_text("boot-two\n")
    engine.undo(journal)
    assert told(log()) == [("vm.stat_interval", "gone with the boot")]
    assert "boot boot-one, then boot-two" in journal_page(log())


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (None, "asked for within 60 s, no word of it yet"),
        (Record(type="confirmed", ts="2026-01-01T00:00:07+00:00"), "2026-01-01 00:00:07 UTC, asked for within 60 s, by whoever ran"),
        (Record(type="confirmed", ts="x", note="by root over ssh"), "asked for within 60 s: by root over ssh"),
        (Record(type="expired", ts="2026-01-01T00:01:00+00:00"), "by nobody within 60 s: undone, 2026-01-01 00:01:00 UTC"),
    ],
)  # fmt: skip
def test_who_confirmed_it_and_when(record: Record | None, words: str) -> None:
    records = [Record(type="begin", confirm_within_s=60.0), *([record] if record else [])]
    one = Logged(txid="x", state="waiting", records=tuple(records))
    assert words in dict(tell(one, chain_of(one)).facts)["confirmed"]


def test_what_was_measured_is_told_and_switches_of_a_proof_are_one_row() -> None:
    records = [Record(type="begin", note="proof of MEM01 by memory.chase_huge")]
    for op in range(4):
        records += [
            Record(
                type="intent", op=op, code="MEM01", kind="thp", target="enabled", old="madvise", new="always"
            )
        ]
        records += [
            Record(type="applied", op=op, read_back="always"),
            Record(type="revert_intent", op=op),
            Record(type="reverted", op=op),
        ]
    records.append(
        Record(type="verified", code="MEM01", note="no effect here: x1.00 (x0.99 to x1.01, 8 quadruples)")
    )
    log = TuneLog(folder="/x", transactions=(Logged(txid="x", state="undone", records=tuple(records)),))
    for form in FORMS:
        text = journal_page(log, form).replace("\u00a0", " ").replace("\n    ", " ").replace("\n  ", " ")
        assert "no effect here: x1.00" in text.replace("\\u00a0", " ")
    rows = tell(log.transactions[0], chain_of(log.transactions[0])).rows
    assert [(row.old, row.new, row.switched) for row in rows] == [("madvise", "always", 4)]
    assert "(switched 4 times)" in journal_page(log, "md")


# -- forms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_each_form_has_all_settings_with_code_and_values(
    journal: Journal, log: Callable[[], TuneLog], form: str
) -> None:
    engine.apply(journal, m.THREE)
    text = journal_page(log(), form, redact=False, width=300)
    for word in (
        "user",
        "vm.stat_interval",
        "enabled",
        "2048kB",
        "madvise",
        "always",
        log().folder,
        log().transactions[0].txid,
    ):
        assert word in text
    if form == "json":
        (one,) = json.loads(text)["transactions"]
        assert [(row["old"], row["new"], row["became"]) for row in one["changes"]] == [
            ("1", "7", "in force"),
            ("madvise", "always", "in force"),
            ("0", "4", "in force"),
        ]
        assert one["chain"]["broken"] is None and len(one["records"]) == one["chain"]["records"]


def test_an_empty_journal_says_so() -> None:
    for form in FORMS:
        assert form == "json" or "Nothing was ever changed" in journal_page(TuneLog(folder="/x"), form)


def test_names_are_hidden_in_files_and_the_chain_is_checked_before() -> None:
    secret = "GPU-12345678-1234-1234-1234-123456789abc"
    first = Record(v=1, seq=0, txid="x", type="begin", note=secret, sha256_of_previous="0" * 64)
    second = Record(v=1, seq=1, txid="x", type="commit", sha256_of_previous=digest(first))
    log = TuneLog(folder="/x", transactions=(Logged(txid="x", state="undone", records=(first, second)),))
    for form in ("html", "md", "json"):
        assert secret not in journal_page(log, form) and secret in journal_page(log, form, redact=False)
        assert "broken: " not in journal_page(log, form)
    assert secret in journal_page(log, "text")


TEXT = st.text(max_size=30) | st.sampled_from(["<img src=x onerror=alert(1)>", "</script>", "`a` | b", "\x1b]0;x\x07", "a\nb", "\u202e", "\ud800"])  # fmt: skip
RECORD = st.builds(
    Record, type=st.sampled_from(get_args(RecordType)),
    ts=TEXT, txid=TEXT, boot_id=TEXT, op=st.none() | st.integers(0, 2), code=st.none() | TEXT, kind=st.none() | TEXT, target=st.none() | TEXT,
    old=st.none() | TEXT, new=st.none() | TEXT, read_back=st.none() | TEXT, note=st.none() | TEXT,
    confirm_within_s=st.none() | st.floats(0, 1e6),
)  # fmt: skip
LOG = st.builds(
    lambda folder, txid, state, records: TuneLog(folder=folder, transactions=(Logged(txid=txid, state=state, records=tuple(records)),)),
    TEXT, TEXT, st.sampled_from(["open", "waiting", "undone"]), st.lists(RECORD, max_size=8),
)  # fmt: skip


@given(LOG)
@settings(max_examples=60, deadline=None)
def test_any_text_in_a_journal_is_harmless(log: TuneLog) -> None:
    check_harmless(journal_page(log, "html", redact=False))
    for form in ("text", "md"):
        shown = journal_page(log, form, redact=False, width=60)
        assert not set(shown) & set("\x1b\x07\u202e\r")
    rows = re.findall(r"^\| .*$", journal_page(log, "md", redact=False), re.MULTILINE)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows), "no cell ends a row"


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_text_keeps_to_the_width(journal: Journal, log: Callable[[], TuneLog], columns: int) -> None:
    engine.apply(journal, m.THREE)
    assert all(len(line) <= columns for line in journal_page(log(), width=columns).split("\n"))


def test_status_of_other_transactions_is_not_mixed_in() -> None:
    intent = Record(type="intent", op=0, code="user", kind="sysctl", target="vm.x", old="1", new="2")
    one = Logged(txid="a", state="open", records=(intent, Record(type="applied", op=0, read_back="2")))
    done = Done(txid="b", code="user", kind="sysctl", target="vm.x", outcome="changed", now="3")
    status = TuneStatus(transactions=(Holding(txid="b", began="", state="held", changes=(done,)),))
    assert tell(one, chain_of(one), status).rows[0].became == "in force"


def test_the_plain_form_is_json_of_plain_values(journal: Journal, log: Callable[[], TuneLog]) -> None:
    engine.apply(journal, m.THREE)
    tree = json.loads(journal_page(log(), "json"))
    assert list(tree) == ["schema", "folder", "transactions"]
    assert msgspec.convert(tree["transactions"][0]["records"], tuple[Record, ...])
