"""Numbers and foreign text at the edge: formats by table, harmlessness by property."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from wellfed.model import Cost, Gain
from wellfed.model.counting import counted
from wellfed.report import words


def plain(text: str | None) -> str | None:
    return None if text is None else text.replace(words.NBSP, " ")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"), (4021.3, "4,021"), (116.0, "116"), (46.35, "46.4"), (8.134, "8.13"), (0.4213, "0.421"),
        (0.0312, "0.0312"), (99.96, "100"), (29.0, "29"), (-12.34, "-12.3"), (1e12, "1e+12"), (1e-7, "1e-07"),
        (float("nan"), "unknown"), (float("inf"), "unknown"),
    ],
)  # fmt: skip
def test_number_has_three_digits_and_keeps_the_whole_part(value: float, shown: str) -> None:
    assert words.number(value) == shown


@given(st.floats(1e-3, 1e8))
@settings(max_examples=200, deadline=None)
def test_number_is_within_half_a_per_cent_of_the_value(value: float) -> None:
    assert float(words.number(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (850, "850 ns"),
        (8_300, "8.30 µs"),
        (162_300_000, "162 ms"),
        (1_733_000_000, "1.73 s"),
        (7.2e12, "2 h"),
    ],
)
def test_duration_picks_the_unit(ns: float, shown: str) -> None:
    assert plain(words.duration(ns)) == shown


def test_small_formats() -> None:
    assert plain(words.size(150_754_820_096)) == "140 GiB"
    assert plain(words.size(0)) == "0 B"
    assert plain(words.percent(0.7151)) == "71.5 %"
    assert plain(words.percent(0.0003)) == "<0.1 %"
    assert plain(words.percent(0.0)) == "0.0 %"
    assert [words.dollars(usd) for usd in (43.0, 1204.4, 0.8)] == ["$43", "$1,204", "$0.80"]
    assert [words.ratio(x) for x in (1.08, 3.4, 24.2)] == ["1.08x", "3.4x", "24x"]
    assert words.id_ranges([0, 1, 2, 3, 8, 10, 11]) == "0-3,8,10-11"
    assert words.alike((0.7, 1.2, 12.0)) == ["0.7", "1.2", "12.0"]


def test_a_gain_is_a_ceiling_with_interval_and_basis() -> None:
    gain = Gain(speedup=3.4, low=2.9, high=3.8, basis="modelled")
    assert words.gain_phrase(gain) == "3.4x (2.9 to 3.8), modelled"
    small = Gain(speedup=1.08, low=1.0, high=1.15, basis="literature", source="a guide", measured_in="copies")
    assert words.gain_phrase(small) == "1.08x (1.00 to 1.15) in copies, literature (a guide)"


def test_a_ceiling_without_an_interval_is_said_to_be_one() -> None:
    assert words.gain_phrase(Gain(speedup=3.4, basis="modelled")) == "up to 3.4x, modelled"
    known = words.gain_phrase(Gain(saves_ms=7.0, low=1.0, high=2.0, basis="modelled"))
    assert plain(known) == "saves 7 ms/step, modelled"


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1 launch"), (1.2, "1 launch"), (0, "0 launches"), (1516, "1,516 launches")]
)
def test_one_is_no_plural(count: float, text: str) -> None:
    assert counted(count, "launch", "launches") == text


def test_above_20x_the_time_saved_counts_and_the_ratio_is_no_promise() -> None:
    text = plain(words.gain_phrase(Gain(speedup=99.0, basis="modelled", saves_ms=7.25)))
    assert text == "saves up to 7.25 ms/step; more than 20x, a ratio that is no promise, modelled"


def test_an_unknown_gain_is_said_to_be_unknown() -> None:
    assert words.gain_phrase(Gain()) == "not known"
    assert words.gain_phrase(Gain(speedup=float("nan"))) == "not known"
    assert words.gain_phrase(None) is None


def test_cost_names_its_price_or_says_why_there_is_none() -> None:
    priced = Cost(value=116.0, unit="ms/step", usd_per_day=43.0, price_usd_gpu_h=2.5, gpus=8)
    assert plain(words.cost_phrase(priced)) == "116 ms/step, $43/day (8 GPUs at $2.50/h)"
    assert plain(words.cost_phrase(Cost(value=3.0, unit="ms/step", why="no price of this GPU"))) == (
        "3 ms/step; no $/day: no price of this GPU"
    )
    assert words.cost_phrase(Cost()) is None


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("mem_bytes", 1 << 30, "1 GiB"), ("gpus[0].power_w", 350.5, "350 W"), ("x.start_ns", 1500, "1.50 µs"),
        ("memory_limit_bytes", -1, "unlimited"), ("pid", 12345, "12345"), ("smt", True, "yes"), ("a", None, "unknown"),
        ("cpus", (0, 1, 2, 3, 4, 9), "0-4,9"), ("flags", (), "none"), ("a", {"b_ms": 2}, "b_ms=2 ms"),
    ],
)  # fmt: skip
def test_value_of_reads_the_unit_from_the_name(key: str, value: object, shown: str) -> None:
    assert plain(words.value_of(key, value)) == shown


def test_value_of_is_bounded_for_deep_and_long_values() -> None:
    deep: object = "x"
    for _ in range(900):
        deep = [deep]
    assert len(words.value_of("a", deep)) < 20
    assert len(words.value_of("a", ["y" * 50] * 1000)) <= words.LONGEST_VALUE


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_clean_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = words.clean(text)
    bad = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert not [char for char in shown if unicodedata.category(char) in bad and char != "\u200d"]
    assert words.clean(shown) == shown


@given(st.text(), st.integers(1, 60))
@settings(max_examples=300, deadline=None)
def test_cells_are_never_fewer_than_a_terminal_uses_and_folding_fits(text: str, width: int) -> None:
    shown = words.clean(text)
    assert words.cells(shown) >= cell_len(shown)
    assert words.cells(words.fold(shown, width)) <= width
    assert words.cells(words.take(shown, width)) <= width
    assert words.cells(words.take_end(shown, width)) <= width


def test_every_character_is_counted_as_wide_as_a_terminal_shows_it() -> None:
    """One plane and the emoji: all that a name is likely to hold."""
    for code in (*range(0x20, 0xD800), *range(0xE000, 0x10000), *range(0x1D000, 0x1FB00)):
        shown = words.clean(chr(code))
        assert words.cells(shown) >= cell_len(shown), hex(code)


def test_folding_keeps_file_names_and_numbers() -> None:
    path = "/data/runs/2026-07-28/gpt-small/profile/trace.json.gz"
    assert words.fold_path(path, 30) == "…/profile/trace.json.gz"
    assert words.fold_token("1234567890123456789", 8) is None
    assert words.fold_token("$1,204,221,333.25/day", 8) is None
    assert words.fold_token("vectorized_elementwise_kernel", 11) == "vecto…ernel"


def test_units_stay_with_their_numbers() -> None:
    assert words.keep_units("116 ms of each 162 ms step, 71.5 % idle") == (
        f"116{words.NBSP}ms of each 162{words.NBSP}ms step, 71.5{words.NBSP}% idle"
    )


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("set `a` to `b`", [(False, "set "), (True, "a"), (False, " to "), (True, "b")]),
        ("one ` tick", [(False, "one ` tick")]),
        ("a `b` c `d", [(False, "a "), (True, "b"), (False, " c `d")]),
        ("", []),
    ],
)
def test_code_spans(text: str, spans: list[tuple[bool, str]]) -> None:
    assert words.code_spans(text) == spans
