"""A case is saved and read back as the same case; what is no case is refused in words."""

import gzip

import pytest
from hypothesis import given, settings
from nouns import structs_of

from wellfed.model import Case, Verdict, WellfedError, decode_case, encode_case
from wellfed.model import case as case_module
from wellfed.model.base import replace

CASES = structs_of(Case).map(lambda case: replace(case, schema=1))


@given(CASES)
@settings(max_examples=40)
def test_a_saved_case_comes_back_equal(case: Case) -> None:
    assert decode_case(encode_case(case)) == case


@given(CASES)
@settings(max_examples=15)
def test_the_same_case_gives_the_same_bytes(case: Case) -> None:
    assert encode_case(case) == encode_case(decode_case(encode_case(case)))


def test_a_case_may_be_plain_json() -> None:
    assert decode_case(b'{"schema": 1, "made_by": "doctor 0.1.0"}').made_by == "doctor 0.1.0"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a case file"),
        (b"[]", "not a case file"),
        (b'{"schema": "one"}', "not a case file"),
        (b'{"made_by": "\xff"}', "not a case file"),
        (b'{"schema": 2}', "case schema 2 is not 1"),
        (gzip.compress(b"{}", mtime=0)[:-9], "damaged case file"),
        (b"\x1f\x8b nonsense", "damaged case file"),
    ],
)
def test_what_is_no_case_is_refused_with_a_hint(data: bytes, says: str) -> None:
    with pytest.raises(WellfedError, match=says) as error:
        decode_case(data)
    assert error.value.hint


def test_a_gzip_bomb_stops_at_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_module, "MAX_CASE_BYTES", 1000)
    with pytest.raises(WellfedError, match="unpacks to more than"):
        decode_case(gzip.compress(b" " * 5000))


def test_counts_name_all_three_verdicts() -> None:
    finding = Verdict(code="X1", name="x", verdict="finding")
    assert Case(verdicts=(finding, finding)).counts() == {"pass": 0, "finding": 2, "not-judged": 0}
