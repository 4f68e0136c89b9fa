"""What the replay must know of loops that are not one thread and one stream: loaders with a pace of their own,
launches just in time, streams that wait for each other, releases of memory, copies that fetch results."""

from pathlib import Path
from typing import Any

import pytest
from trace_builder import Event, event, kernel, simulate, write

from wellfed import api
from wellfed.analyze import replay
from wellfed.analyze.budget import Work
from wellfed.analyze.causes import Covers
from wellfed.analyze.launches import Launches
from wellfed.analyze.replay import Loop
from wellfed.analyze.steps import find_steps, unbroken
from wellfed.ingest import read_timeline
from wellfed.model import Case, Verdict
from wellfed.model.timeline import Cat
from wellfed.predict.profiler import HostCost

HALF = HostCost(per_event_ns={int(Cat.OP): 0.0}, slowdown=2.0)
"""A recording that made the host's dispatch twice as long."""


def loop_of(tmp_path: Path, events: list[Event], cost: HostCost | None = None) -> Loop:
    t = read_timeline(write(tmp_path / "t.json", events))
    work = Work(t, 0)
    launches = Launches(t, work)
    steps = unbroken(find_steps(t, launches.threads))
    loop = replay.build_loop(t, work, launches, Covers(t, work, launches), steps, cost)
    assert isinstance(loop, Loop), loop
    return loop


def step_us(loop: Loop) -> float:
    return replay.run(loop).step_ns / 1e3


def findings(case: Case) -> dict[str, Verdict]:
    return {v.name: v for v in case.verdicts if v.verdict == "finding"}


def judged(tmp_path: Path, events: list[Event], **extra: Any) -> dict[str, Verdict]:
    return findings(api.trace(write(tmp_path / "j.json", events, **extra)))


# -- loaders ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [True, False], ids=["in the step", "at its end"])
def test_a_loader_with_a_pace_of_its_own_is_not_hurried(tmp_path: Path, inside: bool) -> None:
    """A host twice as fast waits longer: the step stays the loader's 12 ms. Only more workers help."""
    made = simulate(steps=5, kernels=20, kernel_us=50.0, dispatch_us=150.0, pace_us=12_000.0)
    events = made.events
    if not inside:  # the step's mark ends after the batch of the next one was taken
        taken = [e for e in events if "DataLoader" in e["name"]]
        marks = [e for e in events if e["name"].startswith("ProfilerStep")]
        first = {"ts": taken[0]["ts"] + taken[0]["dur"]}
        for mark, batch in zip(marks[:-1], taken[1:], strict=True):
            end = batch["ts"] + batch["dur"]
            mark.update(ts=first["ts"], dur=end - first["ts"])
            first = {"ts": end}
        events = [e for e in events if e is not marks[-1]]
    recorded, faster = loop_of(tmp_path, events), loop_of(tmp_path, events, HALF)
    assert abs(recorded.identity_error) < 0.005
    assert step_us(recorded) == pytest.approx(12_000, rel=0.01)
    assert step_us(faster) == pytest.approx(12_000, rel=0.01)
    assert step_us(replay.as_graph(faster, node_gap_ns=500.0)) == pytest.approx(12_000, rel=0.01)
    assert step_us(replay.without(faster, "data-wait")) < 4_000


def test_a_loader_in_the_process_takes_the_time_it_takes(tmp_path: Path) -> None:
    made = simulate(steps=5, kernels=20, kernel_us=50.0, dispatch_us=150.0, data_us=8_000.0)
    slow, fast = loop_of(tmp_path, made.events), loop_of(tmp_path, made.events, HALF)
    # dispatch of 150 us a launch is no dispatch but Python: only what is short is halved
    assert step_us(fast) < step_us(slow)
    assert step_us(replay.as_graph(slow, node_gap_ns=500.0)) >= 8_000


def test_one_long_wait_tells_no_rate(tmp_path: Path) -> None:
    made = simulate(steps=4, kernels=20, kernel_us=300.0, pace_us=100.0, sync=True)
    taken = [e for e in made.events if "DataLoader" in e["name"]]
    assert loop_of(tmp_path, made.events).paced == {}
    for count, paced in ((1, 0), (2, 2)):
        taken[count].update(ts=taken[count]["ts"] - 2_000, dur=taken[count]["dur"] + 2_000)
        assert len(loop_of(tmp_path, made.events).paced) == paced


# -- launches just in time --------------------------------------------------------------------------------


def test_a_launch_just_in_time_is_no_gap_of_the_device(tmp_path: Path) -> None:
    """Kernels of 12 us launched every 14 us: each starts when its own launch gets there, though the call
    begins before the one before it ends. A host twice as fast is bound by the device: 12 us and its gap."""
    made = simulate(steps=5, kernels=200, kernel_us=12.0, dispatch_us=10.0, call_us=4.0, gap_us=1.0)
    recorded, faster = loop_of(tmp_path, made.events), loop_of(tmp_path, made.events, HALF)
    assert step_us(recorded) == pytest.approx(200 * 14.0, rel=0.01)
    assert step_us(faster) == pytest.approx(200 * 13.0, rel=0.01)


# -- streams ----------------------------------------------------------------------------------------------


def with_comm(*, told: bool, host_us: float, comm_us: float = 400.0, steps: int = 4) -> list[Event]:
    """Steps of ten kernels, a collective of their result, one more kernel of the collective's."""
    events: list[Event] = []
    host, device, comm, corr = 1000.0, 1000.0, 0.0, 0
    for step in range(steps):
        begin = host
        for k in range(12):
            if k in (10, 11) and told:
                events.append(event("cuda_runtime", "cudaStreamWaitEvent", host + 1, 1.0, correlation=-1))
            host += host_us
            corr += 1
            events.append(event("cuda_runtime", "cudaLaunchKernel", host, 4.0, correlation=corr))
            ready = host + 6.0
            if k == 10:
                start = max(ready, device + 1.0)
                comm = start + comm_us
                events.append(kernel("ncclDevKernel_AllReduce", start, comm_us, corr=corr, stream=20))
            else:
                start = max(ready, device + 1.0, comm + 1.0 if k == 11 else 0.0)
                device = start + 20.0
                events.append(kernel("gemm", start, 20.0, corr=corr))
            host += 4.0
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, host - begin))
    return events


def test_a_wait_told_to_a_stream_holds_for_a_faster_host(tmp_path: Path) -> None:
    """The host is so slow that the collective is done before its result is asked for. As one graph the steps
    are still its ten kernels, the collective and the last kernel, one after the other."""
    events = with_comm(told=True, host_us=600.0)
    loop = loop_of(tmp_path, events)
    assert abs(loop.identity_error) < 0.005
    assert step_us(replay.as_graph(loop, node_gap_ns=500.0)) == pytest.approx(11 * 20 + 400 + 8, abs=8)
    free = loop_of(tmp_path, with_comm(told=False, host_us=600.0))
    assert step_us(replay.as_graph(free, node_gap_ns=500.0)) < 420  # nothing says that they wait


def test_waits_that_show_need_no_call(tmp_path: Path) -> None:
    loop = loop_of(tmp_path, with_comm(told=False, host_us=3.0))
    assert abs(loop.identity_error) < 0.005


# -- copies, syncs, releases ------------------------------------------------------------------------------


def fetching(kind: str, *, steps: int = 5) -> list[Event]:
    """Steps that each fetch four bytes in the middle."""
    events: list[Event] = []
    host, device, corr = 1000.0, 1000.0, 0
    for step in range(steps):
        begin = host
        for k in range(40):
            host += 20.0
            corr += 1
            start = max(host + 6.0, device + 1.0)
            if k == 20:
                device = start + 1.0
                back = device + 3.0
                events.append(event("cuda_runtime", "cudaMemcpyAsync", host, back - host, correlation=corr))
                copy = kernel(f"Memcpy DtoH ({kind})", start, 1.0, corr=corr, cat="gpu_memcpy")
                copy["args"]["bytes"] = 4
                events += [copy, event("cuda_runtime", "cudaStreamSynchronize", back + 1, 2.0)]
                host = back + 3.0
            else:
                device = start + 30.0
                events.append(event("cuda_runtime", "cudaLaunchKernel", host, 4.0, correlation=corr))
                events.append(kernel("gemm", start, 30.0, corr=corr))
                host += 4.0
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, host - begin))
    return events


def test_a_result_fetched_to_pageable_memory_is_a_wait_not_a_copy(tmp_path: Path) -> None:
    found = judged(tmp_path, fetching("Device -> Pageable"))
    assert "pageable-copy" not in found
    case = api.trace(write(tmp_path / "t.json", fetching("Device -> Pageable")))
    assert case.ranks[0].idle["pageable-copy"] == 0
    loop = loop_of(tmp_path, fetching("Device -> Pageable"))
    pinned = replay.pinned_copies(loop, bytes_per_s=50e9, overlapped=False)
    assert step_us(pinned) == pytest.approx(step_us(loop), rel=0.002)
    assert step_us(replay.without_syncs(loop)) < step_us(loop)


def test_curing_syncs_keeps_the_copies_to_the_device(tmp_path: Path) -> None:
    made = simulate(steps=5, pageable_us=3_000.0, kernels=10, kernel_us=20.0)
    for e in made.events:  # as HIP does it: the copying call is the wait
        if e["name"] == "cudaMemcpyAsync":
            e["name"] = "hipMemcpyWithStream"
    loop = loop_of(tmp_path, made.events)
    assert step_us(replay.without_syncs(loop)) == pytest.approx(step_us(loop), rel=0.01)


def test_releasing_memory_waits_for_the_device(tmp_path: Path) -> None:
    """The wait is the device's: a faster host only waits longer, and without the release it is gone."""
    events: list[Event] = []
    host, device, corr = 1000.0, 1000.0, 0
    for step in range(5):
        begin = host
        for _ in range(20):
            host += 6.0
            corr += 1
            start = max(host + 6.0, device + 1.0)
            device = start + 40.0
            events.append(event("cuda_runtime", "cudaLaunchKernel", host, 4.0, correlation=corr))
            events.append(kernel("gemm", start, 40.0, corr=corr))
            host += 4.0
        back = device + 300.0
        events.append(event("cuda_runtime", "cudaFree", host + 2, back - host - 2, correlation=0))
        host = back
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, host - begin))
    loop, faster = loop_of(tmp_path, events), loop_of(tmp_path, events, HALF)
    assert abs(loop.identity_error) < 0.005
    assert step_us(faster) == pytest.approx(step_us(loop), rel=0.01)
    assert step_us(replay.without(faster, "allocator-churn")) == pytest.approx(20 * 41.0, rel=0.01)
    top = judged(tmp_path, events)["allocator-churn"]
    assert loop.measured_ns == pytest.approx(1_133_000.0, rel=0.01)
    assert top.gain is not None and (top.gain.low or 9) <= loop.measured_ns / 820e3 <= (top.gain.high or 0)


# -- silence ----------------------------------------------------------------------------------------------


def test_a_silence_at_the_very_start_counts_like_the_others(tmp_path: Path) -> None:
    made = simulate(steps=4, kernels=30, kernel_us=20.0, silence_us=8_000.0)
    parts = api.trace(write(tmp_path / "t.json", made.events)).ranks[0].step_parts
    stalls = [p["idle"]["host-stall"] for p in parts]
    assert len(stalls) == 4 and all(7_700_000 < s < 8_020_000 for s in stalls)


def test_work_of_the_cpu_inside_an_operator_is_no_dispatch(tmp_path: Path) -> None:
    """A graph does not take it away: 4 ms in which one operator computes on the CPU."""
    made = simulate(steps=4, kernels=30, kernel_us=20.0, silence_us=4_000.0)
    at = [e["ts"] for e in made.events if e["name"].startswith("ProfilerStep")]
    rows = [*made.events, *(event("cpu_op", "aten::normal_", t + 1, 3_990.0) for t in at)]
    found = judged(tmp_path, rows)
    assert found["host-stall"].severity == "error"
    assert "aten::normal_" in found["host-stall"].evidence[0].text
    graph = step_us(replay.as_graph(loop_of(tmp_path, rows), node_gap_ns=500.0))
    assert graph > 3_900


# -- steps ------------------------------------------------------------------------------------------------


def test_a_lost_step_does_not_double_the_one_before(tmp_path: Path) -> None:
    made = simulate(steps=6, kernels=30, kernel_us=100.0)
    rows = [e for e in made.events if e["name"] != "ProfilerStep#2"]
    case = api.trace(write(tmp_path / "t.json", rows))
    assert len(case.ranks[0].steps) == 5
    assert [(w.code, w.count) for w in case.warnings] == [("missing-steps", 2)]
    budget = case.ranks[0].step_budget
    assert budget is not None and budget.span_ns / 1e3 == pytest.approx(made.period_us, rel=0.02)


def test_two_loops_in_one_process_have_their_own_steps(tmp_path: Path) -> None:
    fast = simulate(steps=6, kernels=30, kernel_us=100.0)
    slow = simulate(steps=3, kernels=60, kernel_us=200.0)
    for e in slow.events:
        e["args"] = {**e["args"], "correlation": e["args"].get("correlation", 0) + 50_000}
        if e["cat"] == "kernel":
            e["pid"], e["args"]["device"] = 1, 1
        else:
            e["tid"] = 777
    ranks = api.trace(write(tmp_path / "t.json", fast.events + slow.events)).ranks
    assert [(r.device, len(r.steps)) for r in ranks] == [(0, 6), (1, 3)]
    for rank, made in zip(ranks, (fast, slow), strict=True):
        assert rank.step_budget is not None
        assert rank.step_budget.span_ns / 1e3 == pytest.approx(made.period_us, rel=0.02)


def test_work_from_elsewhere_is_not_taken_for_the_warm_up(tmp_path: Path) -> None:
    """Kernels without a launch on a stream of their own, all along: they neither shift the first step nor
    pass for work queued before the recording."""
    made = simulate(steps=5, kernels=40, kernel_us=100.0)
    stray = [kernel("foreign", 1500.0 + 2000.0 * i, 40.0, corr=90_000 + i, stream=99) for i in range(8)]
    case = api.trace(write(tmp_path / "t.json", made.events + stray))
    assert [w.code for w in case.warnings] == ["orphan-events"]
    spans = [p["span_ns"] / 1e3 for p in case.ranks[0].step_parts]
    assert spans[0] == pytest.approx(made.period_us, rel=0.1)


# -- how bad it is ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data_us", "severity"), [(300.0, "info"), (500.0, "warning"), (1200.0, "warning"), (2600.0, "error")]
)
def test_a_defect_is_a_warning_from_five_percent(tmp_path: Path, data_us: float, severity: str) -> None:
    """The loader's wait is not hidden (each step ends with a sync), the device computes 6 ms."""
    made = simulate(steps=5, kernels=20, kernel_us=300.0, data_us=data_us, sync=True, gap_us=0.5)
    assert judged(tmp_path, made.events)["data-wait"].severity == severity


# -- threads that work aside ------------------------------------------------------------------------------


def with_prefetcher(*, load_us: float, silence_us: float) -> list[Event]:
    """A loop whose next batch is loaded and copied (2 ms on a stream of its own) by another thread, which starts
    with the step; the loop's thread is silent for `silence_us` first."""
    made = simulate(steps=6, kernels=20, kernel_us=50.0, dispatch_us=10.0, silence_us=silence_us, sync=True)
    events = list(made.events)
    marks = [e for e in events if e["name"].startswith("ProfilerStep")]
    for i, mark in enumerate(marks):
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        events.append(event("user_annotation", name, mark["ts"] + 1, load_us, tid=200))
        at = mark["ts"] + load_us - 40.0
        events.append(event("cuda_runtime", "cudaMemcpyAsync", at, 5.0, tid=200, correlation=50_000 + i))
        copy = kernel(
            "Memcpy HtoD (Pinned -> Device)",
            at + 6,
            30.0,
            corr=50_000 + i,
            stream=20,
            cat="gpu_memcpy",
        )
        events.append(copy)
    return events


def test_waiting_for_a_batch_that_another_thread_loads_is_data_wait(tmp_path: Path) -> None:
    found = judged(tmp_path, with_prefetcher(load_us=4_900.0, silence_us=5_000.0))
    assert next(iter(found)) == "data-wait"
    assert "host-stall" not in found


def test_a_loader_that_works_ahead_in_its_thread_keeps_nobody_waiting(tmp_path: Path) -> None:
    """It is busy all the time, but the loop never falls silent: there is no wait to charge."""
    assert "data-wait" not in judged(tmp_path, with_prefetcher(load_us=900.0, silence_us=0.0))


def test_copies_of_a_thread_aside_are_no_part_of_the_loops_dispatch(tmp_path: Path) -> None:
    """They take no time of the loop's thread: with and without them the step is the same, identity holds."""
    events = with_prefetcher(load_us=900.0, silence_us=0.0)
    alone = [e for e in events if e["tid"] != 200 and e["args"].get("stream") != 20]
    both, one = loop_of(tmp_path, events), loop_of(tmp_path, alone)
    assert both.side and not one.side
    assert abs(both.identity_error) < 0.005
    assert step_us(both) == pytest.approx(step_us(one), rel=0.01)
