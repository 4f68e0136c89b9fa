"""Steps that nobody marked, marks that are early, and steps that are not whole: against loops whose truth is known."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_builder import Event, event, kernel, simulate, write

from wellfed.analyze.recurrence import SOURCE, period_of
from wellfed.analyze.study import Study, study_device
from wellfed.ingest import read_timeline

TRACES = Path(__file__).parents[1] / "traces"
quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
Names = Callable[[int], str]


def study(tmp_path: Path, events: list[Event]) -> Study:
    return study_device(read_timeline(write(tmp_path / "t.json", events)), 0)


def unmarked(events: list[Event]) -> list[Event]:
    return [e for e in events if not str(e["name"]).startswith("ProfilerStep")]


def named(events: list[Event], names: Names) -> list[Event]:
    """The kernels named by their place in the whole sequence."""
    order = sorted((e for e in events if e["cat"] == "kernel"), key=lambda e: float(e["ts"]))
    for k, found in enumerate(order):
        found["name"] = names(k)
    return events


def layered(layers: int, kinds: int = 10, head: int = 5) -> list[str]:
    return [f"head_{k}" for k in range(head)] + [f"layer_{k}" for _ in range(layers) for k in range(kinds)]


def ids(*parts: list[str]) -> np.ndarray:
    return np.unique([name for part in parts for name in part], return_inverse=True)[1]


# -- nothing that is taken off makes a step longer ----------------------------------------------------------


def holds(found: Study, slack: float = 1.02) -> None:
    for point in found.rank.replay.get("unprofiled_step_ns", {}).values() if not found.refused else ():
        assert point <= found.rank.replay["recorded_step_ns"] * slack
    step = found.rank.step_budget
    assert step is None or step.traced_span_ns is None or step.span_ns <= step.traced_span_ns + 1


@quick
@given(
    st.fixed_dictionaries(
        {
            "steps": st.integers(2, 7),
            "kernels": st.integers(3, 25),
            "kernel_us": st.sampled_from([3.0, 20.0, 150.0]),
            "dispatch_us": st.sampled_from([2.0, 9.0, 40.0]),
            "data_us": st.sampled_from([0.0, 300.0, 9000.0]),
            "pace_us": st.sampled_from([0.0, 0.0, 700.0, 20000.0]),
            "sync": st.booleans(),
            "pageable_us": st.sampled_from([0.0, 900.0]),
            "orphans": st.sampled_from([0, 12]),
        }
    ),
    st.booleans(),
)
def test_the_free_step_is_not_longer_than_the_recorded(
    tmp_path: Path, kind: dict[str, float], marks: bool
) -> None:
    events = simulate(**kind).events  # type: ignore[arg-type]
    found = study(tmp_path, events if marks else unmarked(events))
    assert found.refused is None or not marks or "would take" not in found.refused
    holds(found)


@pytest.mark.parametrize(
    "path", sorted(TRACES.glob("*.json.gz"), key=lambda p: p.stat().st_size)[:14], ids=lambda p: p.name
)
def test_nor_in_recorded_loops(path: Path) -> None:
    found = study_device(read_timeline(path), 0)
    assert found.refused is None
    holds(found)


def test_steps_that_do_not_fit_the_work_give_no_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wellfed.analyze.study.recorded_step_ns", lambda steps, windows: 1e5)
    found = study(tmp_path, simulate().events)
    assert found.refused is not None and "would take" in found.refused
    assert not found.cures and not found.unprofiled


# -- a first step that is start-up, last ones that are not whole ---------------------------------------------


def slow_first(events: list[Event], by_us: float) -> list[Event]:
    """The host takes that much longer before the second launch of the first step."""
    first = min(e["ts"] + e["dur"] for e in events if e["cat"] == "cuda_runtime")
    return [
        {**e, "dur": e["dur"] + by_us}
        if e["ts"] < first < e["ts"] + e["dur"] and e["cat"] == "user_annotation"
        else {**e, "ts": e["ts"] + (by_us if e["ts"] >= first else 0.0)}
        for e in events
    ]


def test_a_cold_first_step_is_not_the_loop(tmp_path: Path) -> None:
    made = simulate(steps=5, kernels=6, kernel_us=10.0, dispatch_us=30.0)
    warm = study(tmp_path, made.events)
    cold = study(tmp_path, slow_first(made.events, 1500.0))
    assert len(cold.rank.steps) == 5 and cold.rank.step_budget is not None
    assert cold.rank.step_budget.n == 4
    assert cold.unprofiled[1].step_ns == pytest.approx(warm.unprofiled[1].step_ns, rel=0.02)
    for name, cure in warm.cures.items():
        assert cold.cures[name].after == pytest.approx(cure.after, rel=0.02)


def test_a_first_step_that_waits_for_data_is(tmp_path: Path) -> None:
    events = simulate(steps=4, data_us=200.0).events
    loader = next(e for e in events if "DataLoader" in str(e["name"]))
    begin, more = loader["ts"], 9_000.0
    events = [{**e, "ts": e["ts"] + (more if e["ts"] > begin else 0.0)} for e in events]
    for e in events:
        if e["ts"] == begin:
            e["dur"] += more
    found = study(tmp_path, events)
    assert found.rank.step_budget is not None and found.rank.step_budget.n == 4
    host_us = 200.0 + 20 * (10.0 + 4.0) + more / 4  # the loop now waits for the host
    assert found.unprofiled[1].step_ns == pytest.approx(host_us * 1e3, rel=0.02)


@pytest.mark.parametrize("marks", [True, False])
def test_steps_whose_work_the_recording_lacks_are_left_out(tmp_path: Path, marks: bool) -> None:
    """The host is ahead of the device by steps when the recording ends."""
    names = layered(2, 8, 4)
    made = simulate(steps=12, kernels=20, kernel_us=100.0, dispatch_us=10.0)
    events = named(made.events, lambda k: names[k % 20])
    if not marks:
        events = unmarked(events)
    stop = 1000.0 + 8.5 * made.period_us
    kept = [e for e in events if e["cat"] != "kernel" or e["ts"] + e["dur"] <= stop]
    found = study(tmp_path, kept)
    assert found.refused is None and len(found.rank.steps) in (7, 8)
    assert found.unprofiled[1].step_ns == pytest.approx(made.period_us * 1e3, rel=0.01)
    assert ("unfinished-steps" in {w.code for w in found.warnings}) is marks
    holds(found)
    whole = study(tmp_path, events)
    assert len(whole.rank.steps) == (12 if marks else 11)  # the host's begin of the first is not recorded
    assert "unfinished-steps" not in {w.code for w in whole.warnings}


# -- marks on a thread that only hands its work over ---------------------------------------------------------


def handed_over(*, waits: bool) -> tuple[list[Event], float]:
    """Steps are marked where Python runs; another thread launches their work. Python waits for it, or goes on."""
    names = layered(3, 6, 2)
    made = simulate(steps=6, kernels=20, kernel_us=80.0, dispatch_us=8.0, sync=True)
    events = named(made.events, lambda k: names[k % 20])
    for k, mark in enumerate(e for e in events if str(e["name"]).startswith("ProfilerStep")):
        mark["tid"], mark["name"] = 99, f"train step {k}"
        if not waits:
            mark["ts"], mark["dur"] = 900.0 + 20.0 * k, 15.0
    return events, made.period_us * 1e3


def test_early_marks_are_not_the_steps(tmp_path: Path) -> None:
    events, truth = handed_over(waits=False)
    found = study(tmp_path, events)
    assert found.rank.step_source == SOURCE and found.refused is None
    assert found.unprofiled[0].step_ns == pytest.approx(truth, rel=0.02)
    holds(found)
    for e in events:  # and where nothing recurs there are none
        if e["cat"] == "kernel":
            e["name"] = f"{e['name']}_{e['args']['correlation']}"
    found = study(tmp_path, events)
    assert found.refused is not None and not found.rank.steps


def test_marks_that_wait_are(tmp_path: Path) -> None:
    events, truth = handed_over(waits=True)
    found = study(tmp_path, events)
    assert found.rank.step_source == "train step #" and len(found.rank.steps) == 6
    assert found.unprofiled[0].step_ns == pytest.approx(truth, rel=0.02)


# -- the period of a sequence ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [12, 96, 126, 400])
@pytest.mark.parametrize("head", [1, 5, 10, 37])
def test_layers_are_not_the_step(layers: int, head: int) -> None:
    step = layered(layers, 10, head)
    assert period_of(ids(*[step] * 4)) == len(step)
    assert period_of(ids(step[-17:], *[step] * 3, step[:9])) == len(step)
    assert period_of(ids(*[step] * 2)) is None


@quick
@given(st.integers(4, 60), st.integers(3, 9), st.integers(2, 12), st.randoms(use_true_random=False))
def test_the_period_of_what_recurs(length: int, times: int, kinds: int, random: object) -> None:
    one = [str(random.randrange(kinds)) for _ in range(length)]  # type: ignore[attr-defined]
    found = period_of(ids(*[one] * times))
    if found is not None:  # it may be that one step is itself several of something
        assert found >= 4 and length % found == 0
        sequence = ids(*[one] * times)
        assert (sequence[:-found] == sequence[found:]).all()
    elif len(set(one)) == length:
        raise AssertionError("what happens once a step shows its period")


@quick
@given(st.integers(20, 400), st.integers(2, 30), st.randoms(use_true_random=False))
def test_what_does_not_recur_has_no_period(length: int, kinds: int, random: object) -> None:
    assert period_of(ids([str(random.randrange(kinds)) for _ in range(length)])) is None  # type: ignore[attr-defined]


def test_calls_in_a_row_are_no_steps() -> None:
    for loop in (["a"], ["a", "b"], ["a", "b", "c"]):
        assert period_of(ids(loop * 100)) is None


def test_two_kinds_of_step_in_turn_are_one_period() -> None:
    generator, critic = layered(4, 7, 3), [f"critic_{k}" for k in range(11)]
    assert period_of(ids(*[generator, critic] * 4)) == len(generator) + len(critic)
    assert period_of(ids(generator, critic, generator, generator, critic, critic, generator)) is None


def test_steps_of_different_lengths_have_no_period() -> None:
    assert period_of(ids(*[layered(k, 10, 5) for k in (12, 9, 14, 12, 11, 8)])) is None


def test_a_few_other_kernels_do_no_harm_and_more_do() -> None:
    step = layered(12, 10, 5)
    sequence = ids(*[step] * 8)
    odd = sequence.copy()
    odd[[77, 500]] = 999
    assert period_of(odd) == len(step)
    lost = np.delete(sequence, [130, 400, 700])
    assert period_of(lost) is None


# -- unmarked loops against marked ones -----------------------------------------------------------------------


@settings(quick, max_examples=12)
@given(
    st.fixed_dictionaries(
        {
            "steps": st.integers(5, 8),
            "kernel_us": st.sampled_from([3.0, 30.0, 150.0]),
            "dispatch_us": st.sampled_from([4.0, 20.0]),
            "data_us": st.sampled_from([0.0, 900.0, 9000.0]),
            "sync": st.booleans(),
            "pageable_us": st.sampled_from([0.0, 900.0]),
            "silence_us": st.sampled_from([0.0, 5000.0]),
        }
    ),
    st.sampled_from([layered(1, 9, 4), layered(4, 5, 3), layered(12, 4, 2)]),
)
def test_unmarked_it_says_the_same(tmp_path: Path, kind: dict[str, float], step: list[str]) -> None:
    made = simulate(kernels=len(step), **kind)  # type: ignore[arg-type]
    events = named(made.events, lambda k: step[k % len(step)])
    marked, bare = study(tmp_path, events), study(tmp_path, unmarked(events))
    assert bare.rank.step_source == SOURCE and bare.refused is None
    assert {w.code for w in bare.warnings} >= {"steps-by-recurrence"}
    assert "no-steps" not in {w.code for w in bare.warnings}
    assert bare.unprofiled[1].step_ns == pytest.approx(marked.unprofiled[1].step_ns, rel=0.03, abs=2000)
    for name, cure in marked.cures.items():
        if cure.before[1] - cure.after[1] > 0.05 * cure.before[1]:
            assert bare.cures[name].after[1] == pytest.approx(cure.after[1], rel=0.05, abs=12_000)


def test_loading_belongs_to_the_step_that_follows(tmp_path: Path) -> None:
    step = layered(3, 5, 3)
    made = simulate(steps=5, kernels=len(step), data_us=5000.0)
    loads = [(e["ts"], e["ts"] + e["dur"]) for e in made.events if "DataLoader" in str(e["name"])]
    events = unmarked(named(made.events, lambda k: step[k % len(step)]))
    timeline = read_timeline(write(tmp_path / "t.json", events))
    found = study_device(timeline, 0).rank.steps
    assert len(found) == 5
    for (low, high), one in list(zip(loads, found, strict=True))[1:]:
        assert one.start_ns <= low * 1e3 and high * 1e3 <= one.end_ns
    assert all(a.end_ns == b.start_ns for a, b in pairwise(found))


def test_graphs_recur_by_their_kernels(tmp_path: Path) -> None:
    """One launch a step runs twenty kernels: a step begins at a launch, not within."""
    events: list[Event] = []
    at = 1000.0
    for step in range(6):
        events.append(event("cuda_runtime", "cudaGraphLaunch", at, 12.0, correlation=step + 1))
        for k in range(20):
            name = f"node_{k % 4}" if k else "first"
            events.append(kernel(name, at + 20.0 + 30.0 * k, 29.0, corr=step + 1))
        back = at + 20.0 + 600.0 + 5.0
        events.append(event("cuda_runtime", "cudaStreamSynchronize", at + 15.0, back - at - 15.0))
        at = back + 40.0
    found = study(tmp_path, events)
    assert found.rank.step_source == SOURCE and found.refused is None and len(found.rank.steps) == 5
    assert found.unprofiled[0].step_ns == pytest.approx(665_000, rel=0.02)


@pytest.mark.parametrize(("size", "saves"), [(67_000_000, False), (64, True)])
def test_a_large_fetch_to_pageable_memory_is_cured_by_pinning(tmp_path: Path, size: int, saves: bool) -> None:
    """Data that the host fetches each step is wanted, and a number it looks at could be looked at less often."""
    made = simulate(steps=5, kernels=20, kernel_us=50.0, pageable_us=900.0, copy_bytes=size, sync=True)
    for e in made.events:
        if e["cat"] == "gpu_memcpy":
            e["name"] = "Memcpy DtoH (Device -> Pageable)"
    found = [e for e in made.events if e["name"] != "cudaStreamSynchronize"]
    waits = [  # the fetch is followed by the wait that belongs to it
        event("cuda_runtime", "cudaStreamSynchronize", e["ts"] + e["dur"] + 0.5, 1.0, correlation=-1)
        for e in found
        if e["name"] == "cudaMemcpyAsync"
    ]
    cure = study(tmp_path, [*found, *waits]).cures["host-sync"]
    assert (cure.after[1] < 0.7 * cure.before[1]) is saves


def test_damage_invents_no_steps(tmp_path: Path) -> None:
    step = layered(6, 5, 3)
    made = simulate(steps=6, kernels=len(step))
    events = unmarked(named(made.events, lambda k: step[k % len(step)]))
    kernels = [e for e in events if e["cat"] == "kernel"]
    for lost in (kernels[17::41], kernels[30:50], kernels[5::7]):
        found = study(tmp_path, [e for e in events if e not in lost])
        assert not found.rank.steps and found.refused is not None
        assert "no-steps" in {w.code for w in found.warnings}
