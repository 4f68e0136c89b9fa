"""Markdown for issues: the words arrive, and foreign text makes no markup of its own."""

import re
from typing import Any

import pytest
import report_cases as cases
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from wellfed.report import markdown

OURS = {"details", "summary", "sub"}


def parsed(text: str) -> list[Any]:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)


def inline(tokens: list[Any]) -> list[Any]:
    return [child for token in tokens for child in token.children or []]


def foreign_tags(text: str) -> set[str]:
    tokens = parsed(text)
    raw = [t.content for t in (*tokens, *inline(tokens)) if t.type in ("html_block", "html_inline")]
    return {name.lower() for html in raw for name in re.findall(r"<\s*/?\s*([a-zA-Z!?][\w-]*)", html)} - OURS


def test_snapshot(snapshot: Any) -> None:
    assert markdown.render(cases.starved()) == snapshot


@pytest.mark.parametrize("name", cases.CASES)
def test_no_foreign_tag_link_image_or_heading(name: str) -> None:
    text = markdown.render(cases.CASES[name]())
    assert foreign_tags(text) == set()
    tokens = parsed(text)
    assert not {t.type for t in inline(tokens)} & {"link_open", "image", "s_open"}
    assert sum(t.type == "heading_open" for t in tokens) == 1


@given(st.lists(st.text(max_size=40), min_size=3, max_size=8))
@settings(max_examples=40, deadline=None)
def test_any_text_leaves_the_structure_alone(strings: list[str]) -> None:
    text = markdown.render(cases.hostile(tuple(strings)))
    assert foreign_tags(text) == set()
    tokens = parsed(text)
    assert not {t.type for t in inline(tokens)} & {"link_open", "image"}
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    assert sum(t.type == "tr_open" for t in tokens) == len(rows) - 2  # two tables, each with its rule


@given(st.text(min_size=1, max_size=60))
@settings(max_examples=150, deadline=None)
def test_a_code_span_gives_back_its_text(text: str) -> None:
    from wellfed.report import words

    shown = words.clean(text).replace(words.NBSP, " ").strip()
    span = markdown.code(text)
    if not shown or "|" in shown:
        return
    children = inline(parsed("x " + span + " y"))
    assert [c.content for c in children if c.type == "code_inline"] == [shown]


def test_nobody_is_paged_and_no_issue_is_linked() -> None:
    assert "@team" not in markdown.text("ask @team about #12").replace("`", "")
    assert r"\#12" in markdown.text("ask @team about #12")


@pytest.mark.parametrize("text", ["28.8 % of 307", "1.34x", "-5", "+3 more"])
def test_plain_numbers_stay_plain(text: str) -> None:
    assert markdown.text(text) == text


@pytest.mark.parametrize("text", ["1. one", "- a", "+ b", "=== x", "--- y", "> q", "# h"])
def test_no_block_starts_from_foreign_text(text: str) -> None:
    types = {t.type for t in parsed(markdown.text(text))}
    assert types <= {"paragraph_open", "inline", "paragraph_close"}
