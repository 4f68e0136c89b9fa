"""The nouns in a notebook: attached from above, escaped, complete."""

import re

import pytest
import report_cases as cases
from page_reader import Page

from wellfed.model import Budget, Case, Machine, RankTrace, Verdict
from wellfed.report import notebook, words

TAGS = {"div", "b", "code", "table", "tr", "td"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed for one test only: the nouns are shared by all."""
    for noun, _ in notebook.SHOWN:
        monkeypatch.setattr(noun, "_repr_html_", None, raising=False)
    notebook.install()


@pytest.mark.usefixtures("installed")
def test_nouns_show_themselves() -> None:
    case = cases.starved()
    shown = case._repr_html_().replace(words.NBSP, " ")  # type: ignore[attr-defined]
    for text in (
        "71.5 % of each 162 ms step",
        "116.0 ms",
        "data-wait",
        "3.4x (2.9 to 3.8), modelled",
        "not judged",
    ):
        assert text in shown
    assert "orphan-events" in shown
    for noun in (Case, Budget, RankTrace, Verdict, Machine):
        assert callable(noun._repr_html_)  # type: ignore[attr-defined]
    assert "112.5" not in shown


def test_install_twice_changes_nothing(installed: None) -> None:
    before = Case._repr_html_  # type: ignore[attr-defined]
    notebook.install()
    assert Case._repr_html_ is before  # type: ignore[attr-defined]


def test_a_budget_shows_parts_that_sum_to_its_span() -> None:
    budget = Budget(
        span_ns=100_000_000,
        compute_ns=60_000_000,
        exposed_comm_ns=0,
        exposed_copy_ns=10_000_000,
        idle_ns=30_000_000,
    )
    shown = notebook.budget_html(budget).replace(words.NBSP, " ")
    assert re.findall(r"([\d.]+) ms<", shown) == ["60.0", "10.0", "30.0"]
    assert "no GPU event" in notebook.budget_html(RankTrace(rank=1))


def test_verdict_kinds_are_named() -> None:
    assert "ERROR" in notebook.verdict_html(cases.data_wait())
    passed, unjudged = (
        next(v for v in cases.host_verdicts() if v.verdict == kind) for kind in ("pass", "not-judged")
    )
    assert "<b>pass</b>" in notebook.verdict_html(passed)
    assert "<b>not-judged</b>" in notebook.verdict_html(unjudged)


@pytest.mark.parametrize("name", cases.CASES)
def test_fragments_hold_no_foreign_markup(name: str) -> None:
    case = cases.CASES[name]()
    made = [
        notebook.case_html(case),
        *map(notebook.verdict_html, case.verdicts),
        *map(notebook.budget_html, case.ranks),
    ]
    made += [*map(notebook.ceiling_html, case.ceilings)]
    if case.machine is not None:
        made.append(notebook.machine_html(case.machine))
    for text in made:
        page = Page(text)
        assert not page.misnested
        assert page.tags <= TAGS
        assert page.attributes <= {"style"}
        assert all(re.fullmatch(r"[a-z0-9:;.,#% -]+", style) for style in page.all("style"))
