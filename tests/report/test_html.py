"""The HTML report: one harmless, self-contained file, with or without pictures."""

import base64
import hashlib
import itertools
import re
import sys

import pytest
import report_cases as cases
from hypothesis import given, settings
from hypothesis import strategies as st
from page_reader import Page

from wellfed.model import Case
from wellfed.report import html, sections, words
from wellfed.report.draw import Pictures
from wellfed.report.markup import tag

TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "footer", "article", "figure",
    "figcaption", "h1", "h2", "h3", "p", "a", "b", "code", "span", "div", "ul", "li", "dl", "dt", "dd", "details", "summary",
    "table", "thead", "tbody", "tr", "th", "td", "svg", "g", "path", "text", "line", "rect",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "id", "role", "aria-label", "aria-hidden", "tabindex",
    "scope", "href", "rel", "open", "viewbox", "width", "height", "fill", "stroke", "stroke-width", "stroke-dasharray",
    "stroke-miterlimit", "opacity", "fill-opacity", "stroke-opacity", "transform", "d", "x2", "y2", "text-anchor",
    "font-size", "font-weight", "pointer-events", "display", "aria-roledescription",
    "x", "y", "rx",
}  # fmt: skip


@pytest.fixture
def no_drawer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)


def check_harmless(text: str) -> Page:
    page = Page(text)
    assert not page.misnested
    assert page.open == []
    assert page.tags <= TAGS
    assert page.attributes <= ATTRIBUTES
    assert all(re.fullmatch(r"#[a-z-]+|https://\S+", address) for address in page.all("href"))
    return page


@pytest.mark.parametrize("name", cases.CASES)
def test_page_with_pictures_is_harmless(name: str) -> None:
    pytest.importorskip("vl_convert")
    check_harmless(html.render(cases.CASES[name]()))


@pytest.mark.usefixtures("no_drawer")
@given(st.lists(st.text(max_size=40), min_size=2, max_size=7))
@settings(max_examples=30, deadline=None)
def test_any_text_is_harmless(strings: list[str]) -> None:
    check_harmless(html.render(cases.hostile(tuple(strings))))


@pytest.mark.usefixtures("no_drawer")
def test_hostile_text_arrives_as_text() -> None:
    text = " ".join(check_harmless(html.render(cases.hostile())).text)
    for string in ("<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "javascript:alert(1)",
                   r"\x1b[31mred", r"\u202egnp.exe"):  # fmt: skip
        assert string in text


def test_the_policy_allows_this_style_sheet_and_nothing_else() -> None:
    text = html.render(cases.host_only())
    (policy,) = (attrs["content"] for name, attrs in Page(text).elements if attrs.get("http-equiv"))
    (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not re.search(r"url\(|@import|@font-face", style)


def test_the_page_has_a_title_landmarks_and_ordered_headings() -> None:
    page = Page(html.render(cases.starved()))
    assert {"header", "nav", "main", "footer"} <= page.tags
    assert [t for t, _ in page.elements].count("h1") == 1
    levels = [int(t[1]) for t, _ in page.elements if re.fullmatch("h[1-6]", t)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    title = re.findall("<title>(.*?)</title>", html.render(cases.starved()))[0]
    assert title.startswith("The GPU waits for data 71.5 %")
    targets = {address[1:] for address in page.all("href") if address.startswith("#")}
    assert targets <= set(page.all("id"))
    assert len(page.all("id")) == len(set(page.all("id")))


def test_warnings_stand_before_the_numbers_they_weaken() -> None:
    ids = Page(html.render(cases.starved())).all("id")
    assert ids.index("warnings") < ids.index("step") < ids.index("findings") < ids.index("not-judged")


@pytest.mark.usefixtures("no_drawer")
def test_without_the_drawing_library_tables_open_and_the_page_says_why() -> None:
    text = html.render(cases.starved())
    assert "vl-convert-python is not installed" in text
    assert text.count("<svg") == 1  # the topology, which needs no library
    assert '<details open=""><summary>The same as a table, with nothing folded' in text
    assert "116.0" in text


def test_a_drawing_that_fails_costs_the_picture_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        @staticmethod
        def vegalite_to_svg(*_: object, **__: object) -> str:
            raise ValueError("no such mark\nsecond line")

    monkeypatch.setitem(sys.modules, "vl_convert", Broken)
    text = html.render(cases.starved())
    assert "drawing failed: no such mark." in text
    assert "116.0" in text


def test_the_same_numbers_stand_in_chart_table_and_json() -> None:
    text = html.render(cases.starved()).replace(words.NBSP, " ")
    assert "116.0 ms, 71.5 %" in text  # on the mark
    assert ">116.0<" in text  # in the table
    budget = cases.rank().budget
    assert budget is not None
    assert f"{budget.span_ns:,}" in text  # the raw budget, to the nanosecond


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "http://a.example", "https://a.example/ b", "data:text/html,x", "//a"]
)
def test_only_plain_https_becomes_a_link(address: str) -> None:
    assert "<a" not in sections.source(address)
    assert '<a href="https://a.example/x?y=1&amp;z"' in sections.source("https://a.example/x?y=1&z")


def test_tag_escapes_children_and_attributes() -> None:
    made = tag("p", "<b>", tag("b", "&"), None, title='"><script>', open=None)
    assert made == '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;<b>&amp;</b></p>'


def test_pictures_use_the_page_colours_and_stay_small() -> None:
    pytest.importorskip("vl_convert")
    page = html.render(cases.hostile())
    drawn = re.findall("<svg.*?</svg>", page, re.DOTALL)
    assert len(drawn) == 8
    for svg in drawn:
        assert "style=" not in svg
        assert not re.search(r'"#[0-9a-f]{3,6}"', svg)  # each colour is a variable with a fallback
        assert "font-family" not in svg
        width, height = (int(x) for x in re.findall(r'^<svg[^>]* width="(\d+)" height="(\d+)"', svg)[0])
        assert width <= 1100
        assert height <= 1000


def test_long_lists_are_cut_with_a_count() -> None:
    many = tuple(cases.Verdict(code=f"X{n:03}", name="x", verdict="finding") for n in range(400))
    assert f"{400 - sections.MAX_FINDINGS} more in the JSON." in html.render(Case(verdicts=many))


def test_interactive_page_runs_only_its_own_scripts_in_a_sandbox() -> None:
    pytest.importorskip("vl_convert")
    text = html.render(cases.hostile(), interactive=True)
    page = Page(text)
    assert "script" not in page.tags  # they are inside the frame's document, which is one attribute
    frame = next(attrs for name, attrs in page.elements if name == "iframe")
    assert frame["sandbox"] == "allow-scripts"
    inner = Page(frame["srcdoc"] or "")
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", frame["srcdoc"] or "", re.DOTALL)
    assert [name for name, _ in inner.elements].count("script") == len(scripts) == 2
    assert not inner.all("src")
    (policy,) = (attrs["content"] or "" for _, attrs in page.elements if attrs.get("http-equiv"))
    for script in scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    assert "alert(1)<" not in scripts[1]


def test_interactive_without_the_library_says_so(no_drawer: None) -> None:
    text = html.render(cases.starved(), interactive=True)
    assert "Left out: vl-convert-python is not installed." in text
    assert "<iframe" not in text


def test_a_drawer_that_failed_once_does_not_try_again(no_drawer: None) -> None:
    pictures = Pictures()
    assert pictures.svg({"mark": "bar"}, label="x") is None
    assert pictures.why == "vl-convert-python is not installed"
    assert pictures.page({"a": {"$schema": "x"}}) is None
