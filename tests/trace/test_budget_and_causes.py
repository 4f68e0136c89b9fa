"""Budgets and idle causes: identities that hold to the nanosecond, whatever the trace."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_builder import event, kernel, simulate, text_of

from wellfed.analyze.budget import Work, budget_in, comm_totals, raw_budget
from wellfed.analyze.causes import CAUSES, Covers, charge, idle_intervals
from wellfed.analyze.intervals import Intervals, complement, covered, intersect, overlap, subtract, union
from wellfed.analyze.launches import Launches
from wellfed.analyze.steps import device_windows, find_steps
from wellfed.ingest import read_timeline
from wellfed.model.timeline import Timeline

pairs = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60)), max_size=25)


def as_set(of: Intervals) -> set[int]:
    return {x for a, b in zip(of.start.tolist(), of.end.tolist(), strict=True) for x in range(a, b)}


def made(spans: list[tuple[int, int]]) -> Intervals:
    a = np.array([s for s, _ in spans], np.int64)
    return union(a, a + np.array([d for _, d in spans], np.int64))


@settings(max_examples=150, deadline=None)
@given(pairs, pairs, st.integers(0, 300), st.integers(0, 120))
def test_interval_algebra_agrees_with_sets(
    first: list[tuple[int, int]], second: list[tuple[int, int]], low: int, more: int
) -> None:
    a, b, high = made(first), made(second), low + more
    window = set(range(low, high))
    assert as_set(a) == {x for s, d in first for x in range(s, s + d)}
    assert as_set(subtract(a, b)) == as_set(a) - as_set(b)
    assert as_set(intersect(a, b)) == as_set(a) & as_set(b)
    assert as_set(complement(a, low, high)) == window - as_set(a)
    assert int(overlap(a, np.array([low]), np.array([high]))[0]) == len(as_set(a) & window)
    assert int(covered(a, np.array([high]))[0]) == len([x for x in as_set(a) if x < high])
    assert all(s < e for s, e in zip(a.start.tolist(), a.end.tolist(), strict=True))


def parts(tmp_path: Path, events: list[dict[str, object]]) -> tuple[Timeline, Work, Launches, Covers]:
    path = tmp_path / "t.json"
    path.write_text(text_of(events))
    t = read_timeline(path)
    work = Work(t, 0)
    launches = Launches(t, work)
    return t, work, launches, Covers(t, work, launches)


@st.composite
def traces(draw: st.DrawFn) -> list[dict[str, object]]:
    """Anything: overlapping streams, missing launches, nested host events, copies, communication."""
    events: list[dict[str, object]] = []
    names = ["gemm", "ncclDevKernel_AllReduce", "Memcpy HtoD (Pageable -> Device)", "Memset (Device)"]
    for corr in range(draw(st.integers(1, 14))):
        which = draw(st.integers(0, 3))
        cat = ("kernel", "kernel", "gpu_memcpy", "gpu_memset")[which]
        at, length = draw(st.integers(0, 400)), draw(st.integers(0, 60))
        events.append(kernel(names[which], at, length, corr=corr, stream=draw(st.integers(7, 9)), cat=cat))
        if draw(st.booleans()):
            call = draw(
                st.sampled_from(
                    ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaFree", "cuModuleLoadData", "cudaGraphLaunch"]
                )
            )
            events.append(
                event(
                    "cuda_runtime",
                    call,
                    max(0, at - draw(st.integers(0, 80))),
                    draw(st.integers(0, 30)),
                    correlation=draw(st.sampled_from([corr, 0])),
                )
            )
    marks = ["enumerate(DataLoader)#_X.__next__", "ProfilerStep#1", "ProfilerStep#2", "torch.save"]
    events += [
        event("user_annotation", name, draw(st.integers(0, 300)), draw(st.integers(1, 150)))
        for name in draw(st.lists(st.sampled_from(marks), max_size=4))
    ]
    events += [
        event("cuda_runtime", "cudaStreamSynchronize", at, draw(st.integers(0, 60)), correlation=-1)
        for at in draw(st.lists(st.integers(0, 400), max_size=3))
    ]
    if draw(st.booleans()):
        events.append(
            event("overhead", "Activity Buffer Request", draw(st.integers(0, 300)), draw(st.integers(1, 100)))
        )
    return events


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(traces())
def test_everything_sums_exactly(tmp_path: Path, events: list[dict[str, object]]) -> None:
    t, work, launches, covers = parts(tmp_path, events)
    raw = raw_budget(work)
    assert raw is not None
    assert raw.span_ns == raw.compute_ns + raw.exposed_comm_ns + raw.exposed_copy_ns + raw.idle_ns
    comm, hidden = comm_totals(work)
    assert comm - hidden == raw.exposed_comm_ns
    start, end = int(work.ts.min()), int(work.end.max())
    windows = [(start, end), *device_windows(find_steps(t), work, launches)]
    for (low, high), idle in zip(windows, charge(t, work, launches, covers, windows), strict=True):
        assert set(idle) == set(CAUSES)
        assert min(idle.values()) >= 0
        assert sum(idle.values()) == budget_in(work, low, high).idle_ns
        where = idle_intervals(t, work, launches, covers, low, high)
        assert {cause: found.total for cause, found in where.items()} == idle
        start_of = np.concatenate([found.start for found in where.values()])
        end_of = np.concatenate([found.end for found in where.values()])
        gaps = complement(work.busy(), low, high)
        assert intersect(union(start_of, end_of), gaps).total == sum(idle.values()), "no ns has two causes"


def idle_of(tmp_path: Path, events: list[dict[str, object]]) -> dict[str, float]:
    t, work, launches, covers = parts(tmp_path, events)
    window = (int(work.ts.min()), int(work.end.max()))
    return {k: v / 1e3 for k, v in charge(t, work, launches, covers, [window])[0].items() if v}


def test_each_part_of_a_gap_goes_to_its_cause(tmp_path: Path) -> None:
    """One gap of 100 us: 30 of loader, 10 of dispatch, 4 of the call, then 56 on the way."""
    rows = [
        kernel("a", 100, 50, corr=1),
        event("cuda_runtime", "cudaLaunchKernel", 90, 4, correlation=1),
        event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 140, 40),
        event("cuda_runtime", "cudaLaunchKernel", 190, 4, correlation=2),
        kernel("b", 250, 10, corr=2),
    ]
    assert idle_of(tmp_path, rows) == {
        "data-wait": 30,
        "launch-bound": 10,
        "launch-call": 4,
        "launch-latency": 56,
    }


def test_the_order_of_charging(tmp_path: Path) -> None:
    """Profiler overhead before the loader, the loader before allocation."""
    rows = [
        kernel("a", 0, 10, corr=1),
        event("cuda_runtime", "cudaLaunchKernel", 0, 4, correlation=1),
        event("overhead", "Activity Buffer Request", 20, 20),
        event("user_annotation", "enumerate(DataLoader)#_X.__next__", 10, 50),
        event("cuda_runtime", "cudaMalloc", 50, 30, correlation=7),
        event("cuda_runtime", "cudaLaunchKernel", 90, 4, correlation=2),
        kernel("b", 100, 10, corr=2),
    ]
    assert idle_of(tmp_path, rows) == {
        "profiler-overhead": 20, "data-wait": 30, "allocator-churn": 20, "launch-bound": 10, "launch-call": 4, "launch-latency": 6,
    }  # fmt: skip


def test_a_sync_is_charged_for_what_running_ahead_would_have_hidden(tmp_path: Path) -> None:
    """The host waited 30 us for a busy device; of the 50 us idle after it, 30 are the sync's."""
    rows = [
        event("cuda_runtime", "cudaLaunchKernel", 0, 4, correlation=1),
        kernel("a", 6, 44, corr=1),
        event("cuda_runtime", "cudaStreamSynchronize", 20, 32, correlation=-1),
        event("cuda_runtime", "cudaLaunchKernel", 100, 4, correlation=2),
        kernel("b", 106, 10, corr=2),
    ]
    assert idle_of(tmp_path, rows) == {
        "host-sync": 30,
        "launch-bound": 20,
        "launch-call": 4,
        "launch-latency": 2,
    }


def test_waiting_for_another_stream_and_for_the_turn(tmp_path: Path) -> None:
    rows = [
        event("cuda_runtime", "cudaLaunchKernel", 0, 4, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 5, 4, correlation=2),
        event("cuda_runtime", "cudaLaunchKernel", 10, 4, correlation=3),
        kernel("a", 20, 20, corr=1, stream=7),
        kernel("b", 100, 20, corr=2, stream=8),
        kernel("c", 200, 20, corr=3, stream=8),
    ]
    assert idle_of(tmp_path, rows) == {"dependency-wait": 60, "queue-wait": 80}


def test_orphans_and_graphs(tmp_path: Path) -> None:
    rows = [
        event("cuda_runtime", "cudaGraphLaunch", 0, 5, correlation=1),
        kernel("n1", 10, 10, corr=1),
        kernel("n2", 22, 10, corr=1),
        kernel("n3", 33, 10, corr=1),
        kernel("orphan", 100, 10, corr=99),
    ]
    assert idle_of(tmp_path, rows) == {"launch-latency": 3, "orphan": 57}


def test_steps_of_a_host_that_runs_ahead_are_the_devices(tmp_path: Path) -> None:
    """The host is done long before: windows follow the work, and each holds one step's kernels."""
    t, work, launches, _ = parts(tmp_path, simulate(steps=4, kernels=10, kernel_us=100, dispatch_us=3).events)
    windows = device_windows(find_steps(t), work, launches)
    spans = [b - a for a, b in windows]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(windows))
    assert spans[1:] == pytest.approx([1_010_000] * 3, abs=10_000)


def test_left_overs_of_the_warm_up_stay_outside_the_steps(tmp_path: Path) -> None:
    made_trace = simulate(steps=3, kernels=10, kernel_us=100, dispatch_us=3, orphans=40)
    t, work, launches, _ = parts(tmp_path, made_trace.events)
    assert int(launches.left_over.sum()) == 40
    windows = device_windows(find_steps(t), work, launches)
    assert windows[0][0] >= int(work.end[launches.left_over].max())
    raw = raw_budget(work)
    assert raw is not None and raw.span_ns > windows[-1][1] - windows[0][0]


def test_steps_by_other_marks(tmp_path: Path) -> None:
    """Recurring annotations and optimizer steps stand in for ProfilerStep."""
    base = [e for e in simulate(steps=5).events if not str(e["name"]).startswith("ProfilerStep")]
    marked = [e for e in simulate(steps=5).events if str(e["name"]).startswith("ProfilerStep")]
    named = [{**e, "name": f"train_step {i}"} for i, e in enumerate(marked)]
    optim = [event("user_annotation", "Optimizer.step#AdamW.step", e["ts"] + e["dur"] - 5, 4) for e in marked]
    for extra, count, source in ((named, 5, "train_step #"), (optim, 4, "Optimizer.step"), ([], 0, None)):
        t, *_ = parts(tmp_path, base + extra)
        steps = find_steps(t)
        assert (len(steps), steps.source) == (count, source)
