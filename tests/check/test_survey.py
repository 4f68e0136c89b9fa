"""Every row of the first survey is a check or has a reason, and no more than one of the two."""

import re
from pathlib import Path

from survey import BEYOND, DROPPED, ELSEWHERE, own_codes, page, rows

from wellfed.check import host_codes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "decisions" / "0014-rows-of-the-first-survey.md"


def test_no_row_is_forgotten_or_stands_twice() -> None:
    assert len(rows()) == len(set(rows())) == 265
    assert not DROPPED.keys() & ELSEWHERE.keys()
    assert DROPPED.keys() | ELSEWHERE.keys() | own_codes().keys() == set(rows())


def test_every_row_is_a_check_or_has_a_reason() -> None:
    asked = {*own_codes().values(), *(code for code, _ in ELSEWHERE.values())}
    assert asked - set(host_codes()) == set()
    for why in DROPPED.values():
        assert len(why) > 30 and not why.endswith("."), why


def test_no_dropped_row_is_a_check_all_the_same() -> None:
    gone = {row.replace("-", "") for row in (*DROPPED, *ELSEWHERE)}
    assert gone & set(host_codes()) == set()


def test_checks_that_no_row_asked_for_are_named() -> None:
    assert set(host_codes()) - set(own_codes().values()) == BEYOND.keys()


def test_the_page_shows_this() -> None:
    text = PAGE.read_text("utf-8")
    assert text == page(), "run tests/check/survey.py"
    named = set(re.findall(r"\b(?:[A-Z]{2,4}|IRQ)\d{2}\b", text))
    assert named - set(host_codes()) == set(), "a code on the page is dead"
