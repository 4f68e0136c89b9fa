"""Every row of the first survey is a check or has a reason, and no more than one of the two."""

import re
from pathlib import Path

from survey import BEYOND, DROPPED, ELSEWHERE, own_codes, page, rows

from wellfed.check import host_codes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "decisions" / "0014-rows-of-the-first-survey.md"
BEING_BUILT: frozenset[str] = frozenset(
    [
        "BIOS08",
        "NUMA02",
        "NUMA03",
        "NUMA04",
        "NUMA09",
        "NUMA10",
        "NUMA13",
        "MEM19",
        "KRN02",
        "KRN03",
        "KRN09",
        "IRQ01",
        "IRQ03",
        "IRQ04",
        "IRQ05",
        "IRQ06",
        "PCIE02",
        "PCIE03",
        "PCIE04",
        "PCIE06",
        "PCIE07",
        "NVL05",
        "NVL06",
        "RDMA10",
        "LIM08",
        "CON14",
        "CON15",
        "ENV08",
        "ENV13",
        "ENV17",
    ]
)
"""Rows whose check is under way; empty when all is done."""


def test_no_row_is_forgotten_or_stands_twice() -> None:
    assert len(rows()) == len(set(rows())) == 265
    assert not DROPPED.keys() & ELSEWHERE.keys()
    assert DROPPED.keys() | ELSEWHERE.keys() | own_codes().keys() == set(rows())


def test_every_row_is_a_check_or_has_a_reason() -> None:
    asked = {*own_codes().values(), *(code for code, _ in ELSEWHERE.values())}
    assert asked - set(host_codes()) - BEING_BUILT == set()
    for why in DROPPED.values():
        assert len(why) > 30 and not why.endswith("."), why


def test_no_dropped_row_is_a_check_all_the_same() -> None:
    gone = {row.replace("-", "") for row in (*DROPPED, *ELSEWHERE)}
    assert gone & set(host_codes()) == set()


def test_checks_that_no_row_asked_for_are_named() -> None:
    assert set(host_codes()) - set(own_codes().values()) - BEYOND.keys() == set()


def test_the_page_shows_this() -> None:
    text = PAGE.read_text("utf-8")
    assert text == page(), "run tests/check/survey.py"
    named = set(re.findall(r"\b(?:[A-Z]{2,4}|IRQ)\d{2}\b", text))
    assert named - set(host_codes()) - BEING_BUILT == set(), "a code on the page is dead"
