"""Laws of gains: no cure of an idle cause makes the device work faster, intervals hold what they are of, and an
unprofiled step that cannot be is not taken in silence."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import simulate, write

from wellfed import api
from wellfed.analyze.cures import Cured
from wellfed.check.trace.verdicts import gain_of
from wellfed.model import Case, Verdict

TRACES = Path(__file__).resolve().parent.parent / "traces"
IDLE = ("T110", "T120", "T150", "T170", "T180")


def promised(case: Case) -> list[Verdict]:
    return [v for v in case.verdicts if v.verdict == "finding" and v.gain is not None and v.gain.speedup]


def off(case: Case) -> list[str]:
    return [w.sample for w in case.warnings if w.code == "step-ms"]


# -- the busy device --------------------------------------------------------------------------------------

times = st.floats(1e3, 1e9)


@given(st.tuples(times, times, times), st.tuples(times, times, times), times, times, st.floats(0, 1e8))
def test_low_expected_and_high_stand_in_order_whatever_the_replay_says(
    before: tuple[float, float, float],
    after: tuple[float, float, float],
    floor: float,
    longest: float,
    sampling: float,
) -> None:
    gain = gain_of(
        Cured(
            name="data-wait",
            before=before,
            after=after,
            next="gpu-bound",
            floor=floor,
            longest=longest,
            sampling=sampling,
        )
    )
    assert gain.low is not None and gain.speedup is not None and gain.high is not None
    assert 1.0 <= gain.low <= gain.speedup <= gain.high
    most = max((max(*before, longest) + sampling) / floor, before[1] / after[1], 1.0)
    assert gain.high <= most * (1 + 1e-3) + 1e-3


@pytest.mark.parametrize("kind", [{"data_us": 4_000.0}, {"silence_us": 6_000.0}, {"kernel_us": 60.0}])
def test_a_cure_of_idle_time_leaves_the_devices_own_work(tmp_path: Path, kind: dict[str, float]) -> None:
    """The model's own error once widened the interval beyond a device that is never idle."""
    path = write(tmp_path / "t.json", simulate(steps=5, kernels=40, dispatch_us=70.0, **kind).events)  # type: ignore[arg-type]
    case = api.trace(path)
    rank = case.ranks[0]
    assert rank.budget is not None and rank.step_budget is not None
    busy_ns = (rank.budget.span_ns - rank.budget.idle_ns) / 5
    bounded = False
    for verdict in promised(case):
        if verdict.code not in IDLE or verdict.gain is None:
            continue
        most = rank.replay["measured_ns"] / busy_ns
        assert (verdict.gain.high or 0.0) <= most * 1.01
        bounded |= "the GPU's busy time" in (verdict.gain.source or "")
    assert bounded


@pytest.mark.parametrize("name", ["two_ills", "fresh_sleep", "later_stall_queue.plain"])
def test_recorded_loops_keep_to_it_too(name: str) -> None:
    case = api.trace(TRACES / f"{name}.json.gz")
    rank = case.ranks[0]
    assert rank.step_budget is not None
    for verdict in promised(case):
        gain = verdict.gain
        assert gain is not None and (gain.low or 0) <= (gain.speedup or 0) <= (gain.high or 0)
        # the mean of a loader's waits over three steps has an error of its own
        if verdict.code in IDLE and verdict.code != "T110":
            busy = rank.step_budget.span_ns - rank.step_budget.idle_ns
            assert (gain.high or 0) <= rank.replay["measured_ns"] / busy * 1.15


def test_a_gain_of_more_than_the_cost_says_why() -> None:
    case = api.trace(TRACES / "fresh_sleep.json.gz")
    found = next(v for v in promised(case) if v.code == "T120")
    assert found.cost is not None and found.gain is not None
    assert (found.gain.saves_ms or 0) > 2 * (found.cost.value or 0)
    assert f"would save {found.gain.saves_ms:.1f} ms" in found.message and "other causes" in found.message
    alone = next(v for v in promised(case) if v.code == "T150")
    assert alone.cost is not None and alone.gain is not None
    assert alone.gain.saves_ms == pytest.approx(alone.cost.value) and "would save" not in alone.message


# -- the unprofiled step that the user knows --------------------------------------------------------------


def test_a_known_step_that_the_recording_explains_is_taken_in_silence() -> None:
    assert off(api.trace(TRACES / "vit_small_batch.json.gz", step_ms=20.0)) == []


@pytest.mark.parametrize(("step_ms", "why"), [(0.01, "the GPU alone works"), (1000.0, "cost included")])
def test_a_known_step_that_cannot_be_is_left_aside_and_said_to_be(step_ms: float, why: str) -> None:
    path = TRACES / "vit_small_batch.json.gz"
    case = api.trace(path, step_ms=step_ms)
    assert len(off(case)) == 1 and why in off(case)[0] and "left aside" in off(case)[0]
    assert case.ranks[0].replay == api.trace(path).ranks[0].replay


def test_a_known_step_that_no_cost_of_recording_explains_leaves_no_gain() -> None:
    """Above the device's busy time, far below what is left when all that recording can have cost is taken off."""
    case = api.trace(TRACES / "vit_small_batch.json.gz", step_ms=5.0)
    assert len(off(case)) == 1 and promised(case) == []
    assert any(v.code == "T002" and "--step-ms 5" in v.message for v in case.verdicts)


def test_a_known_step_without_steps_to_use_it_on_is_said_to_be_unused(tmp_path: Path) -> None:
    rows = [e for e in simulate(data_us=40_000.0).events if not e["name"].startswith("Profiler")]
    case = api.trace(write(tmp_path / "t.json", rows), step_ms=20.0)
    assert len(off(case)) == 1 and "not used" in off(case)[0]
