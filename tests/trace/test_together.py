"""Several findings cured at once: the interval of the joint replay, never inside that of a single finding."""

from pathlib import Path

import pytest
from trace_builder import simulate, write

from wellfed import api
from wellfed.check.trace import together
from wellfed.model import Case, Gain
from wellfed.model.base import replace

TRACES = Path(__file__).resolve().parent.parent / "traces"
SEVERAL = ["two_ills", "later_two_float_emptied", "sync_decode", "fresh_sleep", "last_pageable_columns"]


def loud(case: Case) -> list[Gain]:
    return [
        v.gain
        for v in case.verdicts
        if v.verdict == "finding" and v.severity != "info" and v.gain is not None and v.gain.speedup
    ]


def without_joint(case: Case) -> Case:
    ranks = [replace(r, replay={k: v for k, v in r.replay.items() if k != "together"}) for r in case.ranks]
    return replace(case, ranks=tuple(ranks))


@pytest.mark.parametrize("name", SEVERAL)
def test_a_joint_cure_is_worth_no_less_than_each_of_its_parts(name: str) -> None:
    """By the joint replay, and where a case has none by the bounds: these once took the expected values only."""
    case = api.trace(TRACES / f"{name}.json.gz")
    gains = loud(case)
    assert len(gains) > 1
    for one in (case, without_joint(case)):
        both = together(one)
        assert both is not None
        assert both[0] >= max(g.low or 0.0 for g in gains)
        assert both[1] >= max(g.high or 0.0 for g in gains)
    kept = case.ranks[0].replay["together"]
    both = together(case)
    assert both is not None
    assert both[0] <= kept["before_ns"][1] / kept["after_ns"][1] <= both[1]


def test_the_joint_replay_is_that_of_the_loop_with_both_ills_gone(tmp_path: Path) -> None:
    """What is left: 20 kernels of 100 us a step, and 100 MB at 75 to 93 % of 63 GB/s, before them or beside them."""
    case = api.trace(
        write(tmp_path / "t.json", simulate(steps=5, data_us=40_000.0, pageable_us=20_000.0).events)
    )
    assert len(loud(case)) == 2
    kept = case.ranks[0].replay["together"]
    assert kept["cures"] == ["data-wait", "pageable-copy"]
    low, expected, high = (t / 1e3 for t in kept["after_ns"])
    copies = [100e6 / (63.0e9 * share) * 1e6 for share in (0.75, 0.87, 0.93)]
    assert expected == pytest.approx(2_020.0 + copies[1], rel=0.1)
    assert low == pytest.approx(2_020.0 + copies[0], rel=0.15) and high == pytest.approx(2_020.0, rel=0.1)
    both = together(case)
    assert both is not None and both[0] < 62_100.0 / expected < both[1]
    assert both[0] > 5.0  # far more than each alone


def test_one_finding_has_nothing_to_be_composed_with(tmp_path: Path) -> None:
    case = api.trace(write(tmp_path / "t.json", simulate(steps=5, data_us=40_000.0).events))
    assert together(case) is None and "together" not in case.ranks[0].replay
