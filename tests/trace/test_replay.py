"""The replay against a simulation whose truth is known: unchanged it gives the recording back, and with one
thing changed it gives what the simulation gives with that thing changed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_builder import Event, Simulated, event, kernel, simulate, write

from wellfed.analyze import replay
from wellfed.analyze.budget import Work
from wellfed.analyze.causes import Covers
from wellfed.analyze.launches import Launches
from wellfed.analyze.loader import Batches, pace_of, slowest_pace
from wellfed.analyze.replay import Loop
from wellfed.analyze.steps import find_steps
from wellfed.analyze.study import study_device
from wellfed.ingest import read_timeline
from wellfed.predict.compose import compose, share, speedup
from wellfed.predict.profiler import host_cost, host_cost_for


def loop_of(tmp_path: Path, made: Simulated) -> Loop:
    t = read_timeline(write(tmp_path / "t.json", made.events))
    work = Work(t, 0)
    launches = Launches(t, work)
    loop = replay.build_loop(t, work, launches, Covers(t, work, launches), find_steps(t), None)
    assert isinstance(loop, Loop), loop
    return loop


def step_us(loop: Loop) -> float:
    return replay.run(loop).step_ns / 1e3


def steady_us(**kind: float) -> float:
    """The simulated step once the start (left-overs, an empty queue) no longer shows."""
    return simulate(steps=60, **{**kind, "orphans": 0}).period_us  # type: ignore[arg-type]


kinds = st.fixed_dictionaries(
    {
        "kernels": st.integers(3, 25),
        "kernel_us": st.sampled_from([3.0, 20.0, 150.0]),
        "dispatch_us": st.sampled_from([2.0, 9.0, 40.0]),
        "data_us": st.sampled_from([0.0, 300.0, 9000.0]),
        "sync": st.booleans(),
        "pageable_us": st.sampled_from([0.0, 900.0]),
        "orphans": st.sampled_from([0, 12]),
    }
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds)
def test_unchanged_it_gives_the_recording_back(tmp_path: Path, kind: dict[str, float]) -> None:
    loop = loop_of(tmp_path, simulate(steps=5, **kind))  # type: ignore[arg-type]
    assert abs(loop.identity_error) < 0.005
    assert step_us(loop) == pytest.approx(steady_us(**kind), rel=0.01, abs=2.0)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds)
def test_cures_give_what_the_simulation_gives(tmp_path: Path, kind: dict[str, float]) -> None:
    loop = loop_of(tmp_path, simulate(steps=5, **kind))  # type: ignore[arg-type]
    truth = {
        "data-wait": steady_us(**{**kind, "data_us": 0.0}),
        "host-sync": steady_us(**{**kind, "sync": False}),
    }
    assert step_us(replay.without(loop, "data-wait")) == pytest.approx(truth["data-wait"], rel=0.02, abs=4.0)
    # the simulation without a sync also saves its dispatch: so does the replay
    assert step_us(replay.without_syncs(loop)) == pytest.approx(truth["host-sync"], rel=0.02, abs=14.0)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds)
def test_cures_never_cost_and_never_beat_the_device(tmp_path: Path, kind: dict[str, float]) -> None:
    loop = loop_of(tmp_path, simulate(steps=4, **kind))  # type: ignore[arg-type]
    base = replay.run(loop)
    for cured in (
        replay.without(loop, "data-wait"),
        replay.without_syncs(loop),
        replay.as_graph(loop, node_gap_ns=500.0),
        replay.pinned_copies(loop, bytes_per_s=50e9, overlapped=False),
    ):
        found = replay.run(cured)
        kernels = sum(d for d, k in zip(cured.duration, cured.is_kernel, strict=True) if k) / 4
        assert found.step_ns <= base.step_ns * 1.001 + 100
        assert found.step_ns >= kernels * 0.999
        assert found.busy_ns + sum(found.idle.values()) == pytest.approx(found.step_ns, rel=0.02, abs=3000)


def test_a_longer_residual_saves_less(tmp_path: Path) -> None:
    loop = loop_of(tmp_path, simulate(data_us=5000.0))
    times = [step_us(replay.without(loop, "data-wait", residual_ns=r)) for r in (0.0, 1e6, 3e6, 9e6)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(step_us(loop))


def test_faster_links_and_overlap_save_more(tmp_path: Path) -> None:
    loop = loop_of(tmp_path, simulate(pageable_us=9000.0, copy_bytes=100_000_000, kernels=30))
    times = [
        step_us(replay.pinned_copies(loop, bytes_per_s=r, overlapped=False)) for r in (12e9, 25e9, 55e9, 1e15)
    ]
    assert times == sorted(times, reverse=True)
    beside = step_us(replay.pinned_copies(loop, bytes_per_s=25e9, overlapped=True))
    assert 30 * 100.0 <= beside <= times[1]


def test_why_there_is_no_replay(tmp_path: Path) -> None:
    made = simulate()
    cases = {
        "no steps": [e for e in made.events if not str(e["name"]).startswith("Profiler")],
        "no launch records": [e for e in made.events if e["cat"] != "cuda_runtime"],
    }
    for why, events in cases.items():
        t = read_timeline(write(tmp_path / "t.json", events))
        work = Work(t, 0)
        launches = Launches(t, work)
        found = replay.build_loop(t, work, launches, Covers(t, work, launches), find_steps(t), None)
        assert isinstance(found, str) and why in found


# -- the profiler's cost, and composing -------------------------------------------------------------------


def test_the_cost_points_are_in_order_and_scale() -> None:
    points = [
        host_cost(p, launch_call_ns=8000.0, record_shapes=True, current_host=True)
        for p in ("low", "expected", "high")
    ]
    assert [p.slowdown for p in points] == sorted(p.slowdown for p in points)
    per = [next(iter(p.per_event_ns.values())) for p in points]
    assert per == sorted(per)
    older = host_cost("expected", launch_call_ns=8000.0, record_shapes=True, current_host=False)
    assert 1.0 < older.slowdown < points[1].slowdown
    others = [
        host_cost(p, launch_call_ns=8000.0, record_shapes=True, current_host=True, calibrated=False)
        for p in ("low", "high")
    ]
    assert set(others[0].per_event_ns.values()) <= {0.0, 200.0} and others[0].slowdown == 1.0
    assert (
        1.0
        < others[1].slowdown
        <= host_cost("high", launch_call_ns=8000.0, record_shapes=True, current_host=True).slowdown
    )
    quiet = host_cost("high", launch_call_ns=None, record_shapes=False, current_host=True)
    assert quiet.slowdown == 1.0
    none = host_cost_for(0.0, points[2])
    assert none.slowdown == 1.0 and not any(none.per_event_ns.values())


def test_composing_closed_forms() -> None:
    assert speedup(100.0, 50.0) == 2.0
    assert compose(100.0, [50.0, 25.0], disjoint=True) == (4.0, 4.0)
    assert compose(100.0, [50.0, 25.0], disjoint=False) == (2.0, 4.0)
    assert compose(100.0, [], disjoint=False) == (1.0, 1.0)
    assert share(4.0) == 0.75 and share(0.5) == 0.0
    with pytest.raises(ValueError, match="cannot take"):
        speedup(10.0, 10.0)


@settings(max_examples=100, deadline=None)
@given(st.floats(1, 1e6), st.lists(st.floats(0, 1e6), max_size=5), st.floats(0.001, 1.0), st.booleans())
def test_composed_gains_never_add_up_to_more_than_the_step(
    step: float, saved: list[float], part: float, disjoint: bool
) -> None:
    low, high = compose(step, saved, floor=part * step, disjoint=disjoint)
    assert 1.0 <= low <= high * (1 + 1e-9)
    assert high <= 1.0 / part * (1 + 1e-6)
    assert compose(step, saved, floor=0.0, disjoint=disjoint)[1] >= high * (1 - 1e-9)


def test_one_wait_for_a_batch_bounds_the_pace() -> None:
    taken = np.array([0, 40, 75, 120], np.int64) * 1_000_000
    once = Batches(taken - 1_000_000, taken, np.array([True, False, False, False]))
    assert slowest_pace(once) == pytest.approx(37.5e6) and not len(pace_of(once).arrival)
    assert slowest_pace(Batches(taken - 1_000_000, taken, np.array([False] * 4))) is None
    assert (
        slowest_pace(Batches(taken - 1_000_000, taken, np.array([False] * 3 + [True]))) is None
    )  # nothing after it
    assert (
        slowest_pace(Batches(taken - 1_000_000, taken, np.array([True, True, False, False]))) is None
    )  # a pace was seen


def test_a_loader_that_kept_up_with_slow_steps_only_is_found(tmp_path: Path) -> None:
    """Three recorded steps of 30 ms; workers make a batch in 25 ms, and were behind at the first. Unrecorded, the
    host's part would be shorter than that: the loader then holds it up."""
    events: list[Event] = []
    at, corr = 0.0, 0
    for step, wait in enumerate((5_000.0, 80.0, 80.0)):
        begin = at
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        events.append(event("user_annotation", name, at, wait))
        at += wait
        for _ in range(300):
            corr += 1
            events.append(event("cpu_op", "aten::mul", at, 80.0))
            events.append(event("cuda_runtime", "cudaLaunchKernel", at + 60.0, 9.0, correlation=corr))
            events.append(kernel("small", at + 66.0, 5.0, corr=corr))
            at += 100.0
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, at - begin))
    study = study_device(read_timeline(write(tmp_path / "t.json", events)), 0)
    cure = study.cures["data-wait"]
    free = [b - a for b, a in zip(cure.before, cure.after, strict=True)]
    assert min(free) > 0.0
    assert cure.before[0] == pytest.approx(30_080_000, rel=0.01) and cure.before[1] < cure.before[0]


def test_a_wait_for_the_first_batch_tells_of_the_pace_too() -> None:
    asked = np.array([0, 95, 145], np.int64) * 1_000_000
    taken = np.array([85, 135, 185], np.int64) * 1_000_000
    waited = np.array([True] * 3)
    steady = pace_of(Batches(asked, taken, waited, steady=True))
    assert steady.since.sum() == pytest.approx(95e6 + 50e6 + 50e6)
    starting = pace_of(Batches(asked, taken, waited))  # it may be the workers' start: not counted
    assert starting.since.sum() == pytest.approx(150e6)
    late = asked.copy()
    late[0] = -10_000_000_000
    assert pace_of(Batches(late, taken, waited, steady=True)).since.sum() == pytest.approx(250e6)
