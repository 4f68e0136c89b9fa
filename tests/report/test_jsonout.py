"""JSON output: keys are a promise, order is fixed, nothing is invalid."""

import json
from typing import Any, get_args

import msgspec
import pytest
import report_cases as cases

from wellfed.model import Case
from wellfed.report import jsonout

KINDS = get_args(jsonout.Kind)


def keys(value: Any) -> Any:
    """The shape of a value: keys of its objects, of lists the first element's."""
    if isinstance(value, dict):
        return {key: keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [keys(value[0])] if value else []
    return type(value).__name__ if isinstance(value, bool) else "value"


def strict(data: bytes) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(data.decode("utf-8"), parse_constant=refuse)


@pytest.mark.parametrize("kind", ["trace", "measure"])
def test_keys_snapshot(kind: jsonout.Kind, snapshot: Any) -> None:
    assert json.dumps(keys(strict(jsonout.render(cases.starved(), kind=kind))), indent=1) == snapshot


@pytest.mark.parametrize("kind", KINDS)
def test_top_level_keys_come_in_their_order(kind: jsonout.Kind) -> None:
    assert tuple(strict(jsonout.render(cases.starved(), kind=kind))) == jsonout.KEYS[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", cases.CASES)
def test_every_case_is_valid_json_without_nan(name: str, kind: jsonout.Kind) -> None:
    data = jsonout.render(cases.CASES[name](), kind=kind)
    assert b"\n" not in data
    assert strict(data)["schema"] == 1
    assert data == jsonout.render(cases.CASES[name](), kind=kind)


def test_verdicts_stand_by_worth_and_are_counted() -> None:
    out = strict(jsonout.render(cases.starved(), kind="check"))
    assert [v["code"] for v in out["verdicts"]][:3] == ["T110", "CPU07", "T401"]
    assert out["counts"] == {"pass": 2, "finding": 3, "not-judged": 5}


def test_unknown_and_infinite_numbers_are_null() -> None:
    ceiling = strict(jsonout.render(cases.hostile(), kind="measure"))["ceilings"][0]
    assert ceiling["best"] is None
    assert ceiling["p10"] is None
    assert ceiling["p90"] is None
    assert ceiling["median"] == 2.0


def test_raw_fact_text_only_when_asked_for() -> None:
    fact = strict(jsonout.render(cases.starved(), kind="inspect"))["machine"]["facts"]["memory.thp_enabled"]
    assert fact["value"] == "madvise"
    assert "raw" not in fact
    asked = strict(jsonout.render(cases.starved(), kind="inspect", raw=True))
    assert asked["machine"]["facts"]["memory.thp_enabled"]["raw"] == "always [madvise] never"


def test_numbers_of_the_trace_are_the_integers_of_the_case() -> None:
    case = cases.starved()
    rank = strict(jsonout.render(case, kind="trace"))["ranks"][0]
    assert rank["budget"] == msgspec.to_builtins(case.ranks[0].budget)
    assert rank["idle"] == case.ranks[0].idle
    assert sum(rank["idle"].values()) == rank["budget"]["idle_ns"]


def test_an_empty_case_has_all_keys() -> None:
    out = strict(jsonout.render(Case(), kind="doctor"))
    assert out["verdicts"] == []
    assert out["headline"] is None
    assert out["machine"] is None
