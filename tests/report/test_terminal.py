"""Terminal text: what stands where, at every width, whatever the strings are."""

import re
import subprocess
import sys
from typing import Any, get_args

import pytest
import report_cases as cases
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from wellfed.model import Case
from wellfed.report import story, terminal, words
from wellfed.report.story import View

ANSI = re.compile(r"\x1b\[[0-9;]*m")
VIEWS = get_args(View)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_doctor_snapshot(width: int, snapshot: Any) -> None:
    assert terminal.render(cases.starved(), width=width, color=False) == snapshot


@pytest.mark.parametrize("name", ["healthy", "no_gpu_events", "empty"])
def test_quiet_cases_snapshot(name: str, snapshot: Any) -> None:
    assert terminal.render(cases.CASES[name](), width=60, color=False) == snapshot


def test_other_views_snapshot(snapshot: Any) -> None:
    assert terminal.render(cases.eight_ranks(), width=80, view="trace") == snapshot
    assert terminal.render(cases.host_only(), width=80, view="inspect") == snapshot


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", cases.CASES)
def test_no_line_exceeds_the_width(name: str, view: View) -> None:
    case = cases.CASES[name]()
    for width in (40, 43, 59, 60, 77, 80, 120, 200):
        for color in (False, True):
            text = terminal.render(case, width=width, color=color, view=view)
            assert max(cell_len(line) for line in ANSI.sub("", text).split("\n")) <= width


HOSTILE_TEXT = st.one_of(
    st.text(max_size=30),
    st.sampled_from(cases.HOSTILE),
    st.text(
        alphabet="\x00\x1b\x9b[]31m;\u202e\u2066\ufeff\u200d\ufe0f\U0001f525核é\u0301 /`'\"", max_size=60
    ),
)


@given(st.lists(HOSTILE_TEXT, min_size=3, max_size=9), st.integers(40, 200), st.sampled_from(VIEWS))
@settings(max_examples=40, deadline=None)
def test_hostile_strings_neither_widen_nor_command(strings: list[str], width: int, view: View) -> None:
    text = terminal.render(cases.hostile(tuple(strings)), width=width, color=False, view=view)
    assert all(cell_len(line) <= width for line in text.split("\n"))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]", text)


def test_colour_repeats_what_words_say() -> None:
    case = cases.starved()
    plain, painted = (terminal.render(case, width=80, color=color) for color in (False, True))
    assert "\x1b" not in plain
    assert painted != plain
    assert ANSI.sub("", painted) == plain
    assert "ERROR T110" in plain
    assert "WARNING CPU07" in plain


def test_ascii_only_output_is_ascii_and_as_narrow() -> None:
    for name, make in cases.CASES.items():
        text = terminal.render(make(), width=60, color=False, ascii_only=True)
        assert text.isascii(), name
        assert max(map(len, text.split("\n"))) <= 60
    assert "####" in terminal.render(cases.starved(), width=60, ascii_only=True)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_numbers_are_never_folded(width: int) -> None:
    text = " ".join(terminal.render(cases.starved(), width=width).split())
    for number in ("162.3 ms", "116.0 ms", "71.5 %", "3.4x (2.9 to 3.8)", "$43/day", "88.4 GB/s", "28.8 % of 307 GB/s",
                   "84.9 to p90 88.0", "n = 14", "679,002"):  # fmt: skip
        assert number in text


def test_a_number_longer_than_the_line_is_broken_not_shortened() -> None:
    digits = "9876543210" * 8
    case = Case(headline=cases.Headline(text=f"seen {digits} times"))
    assert digits in terminal.render(case, width=40).replace("\n", "")


def test_order_of_the_sections() -> None:
    text = terminal.render(cases.starved(), width=80)
    marks = ["The GPU waits", "Trace warnings", "Where the step goes", "Findings", "ERROR T110", "WARNING CPU07",
             "INFO T401", "Not judged: 5", "Measured ceilings", "Ignored: 1", "\nNext"]  # fmt: skip
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_what_does_not_apply_is_one_line() -> None:
    lines = [
        line for line in terminal.render(cases.starved(), width=80).split("\n") if "not applicable" in line
    ]
    assert lines == ["  not applicable here: 2 (RDMA01, NIC04)"]


def test_bars_of_the_waterfall_do_not_overlap_and_fill_the_step() -> None:
    text = terminal.render(cases.eight_ranks(), width=120, view="trace")
    bars = re.findall(r"%  ( *)([▐█▌]+)$", text, re.MULTILINE)
    assert len(bars) == 6
    starts = [len(blank) for blank, _ in bars]
    assert starts == sorted(starts)
    assert starts[0] == 0
    for (blank, drawn), following in zip(bars, starts[1:], strict=False):
        assert abs(len(blank) + len(drawn) - following) <= 1


def test_commands_stay_pasteable_over_lines() -> None:
    case = Case(
        headline=cases.Headline(
            text="x", next_command="wellfed ab 'python a.py --w 0' 'python a.py --w 12' --n 7"
        )
    )
    text = terminal.render(case, width=40)
    pasted = text.split("Next\n")[1].replace("\\\n", " ")
    assert pasted.split() == case.headline.next_command.split()  # type: ignore[union-attr]
    assert "'python a.py --w 0'" in pasted  # never broken inside quotes


def test_rendering_loads_no_heavy_library() -> None:
    code = (
        "import sys; from wellfed.model import Case; from wellfed.report import terminal, jsonout, markdown, html;"
        "terminal.render(Case()); jsonout.render(Case()); markdown.render(Case());"
        "print([m for m in ('rich', 'vl_convert', 'numpy', 'pygments') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_long_lists_are_cut_with_a_count() -> None:
    many = tuple(
        cases.Verdict(code=f"X{n:03}", name="x", verdict="finding", severity="warning") for n in range(200)
    )
    text = terminal.render(Case(verdicts=many), width=80)
    assert f"{200 - terminal.MAX_FULL - terminal.MAX_BRIEF} more in the JSON" in text
    assert words.cells(max(text.split("\n"), key=words.cells)) <= 80


def test_of_many_ranks_those_that_stand_out_are_listed() -> None:
    ranks = (
        *tuple(cases.rank(n, wait=2 * cases.MS) for n in range(200)),
        cases.rank(777, wait=90 * cases.MS),
    )
    case = Case(ranks=ranks)
    shown = story.ranks_shown(case, 16)
    assert len(shown) == 16
    assert shown[-1].rank == 777
    assert [r.rank for r in shown] == sorted(r.rank for r in shown if r.rank is not None)
    assert shown[:-1] == ranks[:15]
    text = terminal.render(case, width=100, view="trace", color=False)
    assert "those that stand out, 185 more in the JSON" in text
    assert "777/" in text
    assert len(text.splitlines()) < 120
    assert story.ranks_shown(Case(ranks=ranks[:3]), 16) == ranks[:3]
