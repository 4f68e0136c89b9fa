"""The manual page: one text from an entry or from a docstring."""

import sys
import types

import pytest

from wellfed.check import _rules as rules_of
from wellfed.check import codes, host_codes, manual
from wellfed.check.manual import SECTIONS, Manual, manual_from_text, rule, sections
from wellfed.model import Gain

TEXT = """A sentence that
    goes on.

    What it looks at. One `file`.
    And another.
    Why it costs. It waits.

    How it is judged. Good: Remedy is no heading here.
    Remedy. do that
    Sources. one#1; two: three@4
    """


def test_a_docstring_is_cut_at_its_headings() -> None:
    page = manual_from_text(TEXT, code="X01", name="it-waits", layer="cpu", severity="info")
    assert page.summary == "A sentence that goes on."
    assert page.looks_at == "One `file`. And another."
    assert page.judged == "Good: Remedy is no heading here."
    assert page.sources == ("one#1", "two: three@4")
    assert (page.ignore, page.severity) == ("", "info")


@pytest.mark.parametrize("heading", ["What it looks at", "Why it costs", "How it is judged", "Sources"])
def test_a_docstring_that_lacks_a_part_is_our_mistake(heading: str) -> None:
    with pytest.raises(AssertionError, match="lacks"):
        manual_from_text(TEXT.replace(f"{heading}.", ""), code="X01", name="x", layer="cpu")


def test_a_rule_hangs_its_page_on_the_function() -> None:
    def judge() -> None: ...

    judge.__doc__ = TEXT
    marked = rule("X01", "it-waits", layer="cpu", blocks=("X02",))(judge)
    assert marked is judge
    assert marked.manual.code == "X01" and marked.manual.blocks == ("X02",)  # type: ignore[attr-defined]


def test_rules_are_found_where_they_are_written_not_where_they_are_imported() -> None:
    home, guest = types.ModuleType("home"), types.ModuleType("guest")

    def judge() -> None: ...

    judge.__doc__, judge.__module__ = TEXT, "home"
    home.judge = guest.judge = rule("X01", "it-waits", layer="cpu")(judge)  # type: ignore[attr-defined]
    assert [page.code for page, _ in rules_of(home)] == ["X01"]
    assert rules_of(guest) == []


def test_the_page_has_its_parts_in_order_and_no_empty_ones() -> None:
    headings = [heading for heading, _ in sections(manual("CPU01"))]
    assert headings == list(SECTIONS)
    assert all(text for code in codes() for _, text in sections(manual(code)))


def page(**facts: object) -> Manual:
    return manual_from_text(TEXT, code="X01", name="it-waits", layer="cpu", **facts)


def test_what_is_not_published_is_said() -> None:
    texts = dict(sections(page()))
    assert texts["What is known of the gain"] == "No figure is published."
    gain = Gain(low=1.0, high=1.11, basis="literature", measured_in="job time", source="x#1")
    assert (
        dict(sections(page(gain=gain)))["What is known of the gain"]
        == "1 to 1.11 times in job time (literature: x#1)"
    )


def test_the_remedy_says_what_it_takes() -> None:
    texts = dict(sections(page(risk="reboot", reversible="bios")))
    assert texts["Remedy"] == "do that (risk: reboot; takes a change of firmware settings)"


def test_codes_of_traces_are_explained_as_well() -> None:
    traced = [code for code in codes() if code not in host_codes()]
    assert all(manual(code).layer == "trace" for code in traced)
    assert "wellfed.check.trace" in sys.modules or not traced


def test_explaining_a_trace_code_looks_at_no_machine(run_cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from wellfed import api

    monkeypatch.setattr(api, "inspect", lambda *_: pytest.fail("looked at the machine"))
    for code in [code for code in codes() if code not in host_codes()][:2]:
        result = run_cli("explain", code.lower())
        assert result.code == 0 and result.out.startswith(code) and "This machine" not in result.out
