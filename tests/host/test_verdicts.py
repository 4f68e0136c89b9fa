"""Every check gives one of three verdicts on every machine there is, and the page shows them."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import boxes
import pytest
from corpus_verdicts import Row, Sight, judged, page, recorded_here, sights

from wellfed.check import INTENTS, host_codes
from wellfed.host import host_of, look
from wellfed.model import Case, decode_case, encode_case

PAGE = Path(__file__).resolve().parents[2] / "docs" / "validation" / "verdicts.md"
KINDS = {"pass", "finding", "not-judged"}
INVENTED = (boxes.numa_server, boxes.old_kernel, boxes.arm_hybrid, boxes.only_proc)


def sound(row: Row) -> None:
    """One verdict a check for each intent, none without a word, and the case survives its file."""
    assert row.verdicts.keys() == set(INTENTS)
    for intent, verdicts in row.verdicts.items():
        assert sorted(one.code for one in verdicts) == sorted(host_codes()), (row.sight.name, intent)
        for one in verdicts:
            at = (row.sight.name, intent, one.code, one.message)
            assert one.verdict in KINDS and one.message, at
            assert (one.reason is not None) == (one.verdict == "not-judged"), at
            # A sentence about a fault that has to say that it does not know is no finding.
            assert one.verdict != "finding" or not re.search(r"(?<!\S)[(]?[?](?!\S)", one.message), at
        case = Case(verdicts=verdicts)
        assert decode_case(encode_case(case)) == case


@pytest.mark.parametrize("sight", recorded_here(), ids=lambda sight: sight.name)
def test_machines_recorded_here(sight: Sight) -> None:
    sound(judged(sight))


@pytest.mark.parametrize("make", INVENTED, ids=lambda make: make.__name__)
def test_invented_machines(make: Callable[[], boxes.Files]) -> None:
    sound(judged(Sight(make.__name__, "whole", lambda: look(host_of(make())))))


@pytest.fixture(scope="module")
def rows(corpus: Path) -> list[Row]:
    return [judged(sight) for sight in sights(corpus)]


def named(rows: Iterable[Row]) -> list[str]:
    return [row.sight.name for row in rows]


@pytest.mark.corpus
def test_every_machine_of_the_corpus(rows: list[Row]) -> None:
    assert len(named(rows)) == len(set(named(rows))) >= 180
    for row in rows:
        sound(row)


@pytest.mark.corpus
def test_the_page_shows_this(rows: list[Row]) -> None:
    assert PAGE.read_text("utf-8") == page(rows), "run tests/host/corpus_verdicts.py"


@pytest.mark.corpus
def test_of_what_one_tool_said_little_is_judged(rows: list[Row]) -> None:
    """Most of the machine is unknown there, and a verdict on what nobody saw would be made up."""
    for row in rows:
        if row.sight.kind == "form":
            assert all(
                one.severity != "error"
                for vs in row.verdicts.values()
                for one in vs
                if one.verdict == "finding"
            )
        if row.sight.kind == "answer":
            for verdicts in row.verdicts.values():
                judged_here = {one.layer for one in verdicts if one.verdict != "not-judged"}
                assert judged_here <= {
                    "gpu",
                    "nvlink",
                    "pcie",
                    "driver",
                    "rdma",
                    "bios",
                    "kernel",
                    "software",
                }, row.sight.name
