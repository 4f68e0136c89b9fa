"""The tables are right before any machine is judged by them."""

import re

import pytest
from table_types import ANY, NUMBER, ROOTS, TEXT, TRUTH, TUPLE, check

from wellfed.check import codes, host_codes, manual
from wellfed.check.evaluate import THINGS
from wellfed.check.table import INTENTS, LAYERS, rows, table_check, tables, terms
from wellfed.model.verdict import SEVERITY_ORDER

ENTRIES = {code: found.entry for code, found in tables().items()}


@pytest.mark.parametrize("code", ENTRIES)
def test_every_expression_is_of_the_right_kind_and_every_path_exists(code: str) -> None:
    entry = ENTRIES[code]
    known = terms()
    for expression, said in entry.applies:
        assert check(expression, terms=known).name == TRUTH
        fillings(said, None)
    if entry.where:
        assert entry.each, "`where` needs `each`"
        assert check(entry.where, terms=known, each=entry.each).name == TRUTH
    goods = [entry.good] if isinstance(entry.good, str) else list(entry.good.values())
    conditions = [] if isinstance(entry.severity, str) else list(entry.severity.values())
    for expression in (*goods, *conditions):
        assert check(expression, terms=known, each=entry.each).name == TRUTH, expression
    fillings(entry.finding, entry.each)
    fillings(entry.passed, entry.each)
    for path in entry.reads:
        written = re.sub(r"\[([^\]]+)\]", r"['\1']", path)
        if path not in ROOTS:
            check(written, terms={}, each=entry.each)


def fillings(sentence: str, each: str | None) -> None:
    """Every brace of a sentence holds an expression that can be shown."""
    for expression in re.findall(r"\{([^{}]+)\}", sentence):
        assert check(expression, terms=terms(), each=each).name in (TEXT, NUMBER, TRUTH, TUPLE), expression
    assert "{" not in re.sub(r"\{[^{}]+\}", "", sentence)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("gpus.name == 'x'", "not struct"),
        ("memory.thp == 'x'", "no field"),
        ("memory.total_bytes > 'x'", "total_bytes > 'x'"),
        ("len(memory.total_bytes) > 1", "not tuple"),
        ("any(g.name for g in gpus)", "not truth"),
        ("nothing == 1", "no name"),
    ],
)
def test_the_type_checker_itself_finds_faults(wrong: str, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check(wrong, terms={})


def test_terms_hide_no_field_and_need_each_other_in_no_circle() -> None:
    assert not terms().keys() & ROOTS.keys()
    for name, text in terms().items():
        each = "gpus" if re.search(r"\bit\.", text) else None
        assert check(text, terms=terms(), each=each).name in (TRUTH, NUMBER), name


def test_every_layer_has_a_check_and_no_code_is_used_twice() -> None:
    assert {manual(code).layer for code in host_codes()} == set(LAYERS)
    assert len(set(codes())) == len(codes()) >= 40


@pytest.mark.parametrize("code", host_codes())
def test_every_page_is_whole(code: str) -> None:
    page = manual(code)
    assert re.fullmatch(r"[A-Z]{2,4}\d{2}", code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", page.name)
    for text in (page.summary, page.looks_at, page.why, page.judged, page.remedy, page.ignore):
        assert text.strip(), f"{code} lacks a part of its page"
    for text in (page.summary, page.looks_at, page.why, page.judged, page.ignore):
        assert text.endswith("."), text
    assert page.sources and all(page.sources)
    assert set(page.blocks) <= set(host_codes()) - {code}
    assert set(page.intents) <= set(INTENTS)
    assert page.severity in SEVERITY_ORDER


def test_names_say_the_problem_and_are_unique() -> None:
    names = [manual(code).name for code in host_codes()]
    assert len(set(names)) == len(names)


def test_a_gain_with_a_number_has_a_source() -> None:
    for code in host_codes():
        gain = manual(code).gain
        if gain is not None:
            assert gain.source and gain.basis != "none", code
            assert gain.low is not None and gain.high is not None and gain.low <= gain.high, code


def test_a_setting_without_a_number_is_at_most_a_warning() -> None:
    """Errors are for things that do not work: lost hardware, errors of memory, no driver, no fabric."""
    errors = {code for code in host_codes() if manual(code).severity == "error"}
    assert errors == {
        "DRV01", "DRV08", "GPU01", "GPU03", "GPU09", "GPU10", "GPU12", "GPU13", "LIM01", "MEM18", "NVL01", "NVL03", "NVL04",
        "PCIE01", "RDMA01",
    }  # fmt: skip


def test_a_broken_entry_is_named() -> None:
    with pytest.raises(AssertionError, match=r"cpu\.toml, CPU99: .*unknown field"):
        table_check("CPU99", "cpu", {"name": "x", "colour": "red"})


def test_every_collection_has_words() -> None:
    assert set(THINGS) <= ROOTS.keys()
    assert ANY not in {kind.name for kind in ROOTS.values()}


def test_known_bad_versions_are_dated_and_sourced() -> None:
    for row in rows("known_bad.toml").values():
        assert ("field" in row) != ("package" in row)
        check(row.get("field", "software.packages"), terms={})
        assert re.fullmatch(r"20\d\d-\d\d", row["seen"])
        assert "#" in row["source"] and row["what"]
        assert row["severity"] in ("info", "warning")
        re.compile(row.get("gpu", ""))


def test_xids_have_meaning_and_severity() -> None:
    for number, row in rows("xids.toml").items():
        assert number.isdigit() and row["what"]
        assert row["severity"] in ("warning", "error")
