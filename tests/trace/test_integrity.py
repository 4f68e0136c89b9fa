"""What weakens a recording is said, with the right count, and nothing is said of a good one."""

from pathlib import Path

import pytest
from trace_builder import Event, event, kernel, simulate, write

from wellfed.analyze.study import study_device
from wellfed.ingest import read_timeline


def told(tmp_path: Path, events: list[Event]) -> dict[str, int]:
    study = study_device(read_timeline(write(tmp_path / "t.json", events)), 0)
    assert all(w.weakens and w.sample for w in study.warnings)
    return {w.code: w.count for w in study.warnings}


GOOD = simulate(steps=5, kernels=60).events


def replays(sizes: list[int], *, name: str = "cudaGraphLaunch", lost: str = "tail") -> list[Event]:
    events: list[Event] = []
    for k, size in enumerate(sizes, 1):
        begin = 1000.0 * k
        events.append(event("user_annotation", f"ProfilerStep#{k}", begin, 999.0))
        events.append(event("cuda_runtime", name, begin, 10, correlation=k))
        kinds = [f"kernel_{i}" for i in range(50)]
        kinds = kinds[:size] if lost == "tail" else kinds[50 - size :]
        events += [kernel(n, begin + 20 + 15 * i, 14, corr=k) for i, n in enumerate(kinds)]
    return events


def test_a_good_recording_is_not_spoken_ill_of(tmp_path: Path) -> None:
    assert told(tmp_path, GOOD) == {}
    assert told(tmp_path, replays([50] * 8)) == {}


@pytest.mark.parametrize("lost", ["tail", "head"])
def test_replays_with_fewer_kernels_than_others_of_their_graph(tmp_path: Path, lost: str) -> None:
    assert told(tmp_path, replays([50, 50, 20, 50, 49, 50, 50], lost=lost)) == {"graph-under-recorded": 2}
    assert told(tmp_path, replays([50, 50, 0, 50, 50, 50], name="hipGraphLaunch")) == {
        "graph-under-recorded": 1
    }


def test_two_graphs_of_different_size_are_no_fault(tmp_path: Path) -> None:
    small = [
        {**e, "name": "s" + e["name"] if e["cat"] == "kernel" else e["name"]}
        for e in replays([10] * 6)
    ]  # fmt: skip
    shifted = [{**e, "ts": e["ts"] + 20_000} for e in small]
    for e in shifted:
        if "correlation" in e["args"]:
            e["args"] = {**e["args"], "correlation": e["args"]["correlation"] + 100}
        e["name"] = f"ProfilerStep#{int(e['name'].split('#')[1]) + 6}" if "#" in e["name"] else e["name"]
    assert "graph-under-recorded" not in told(tmp_path, replays([50] * 6) + shifted)


def test_launches_without_a_kernel(tmp_path: Path) -> None:
    kernels = [e for e in GOOD if e["cat"] == "kernel"]
    gone = kernels[40:52]
    found = told(tmp_path, [e for e in GOOD if e not in gone])
    assert found == {"dropped-kernels": 12}


def test_launches_into_a_capture_run_nothing(tmp_path: Path) -> None:
    capture = [event("cuda_runtime", "cudaStreamBeginCapture", 1.0, 1)]
    capture += [
        event("cuda_runtime", "cudaLaunchKernel", 3.0 + k, 0.5, correlation=7000 + k) for k in range(30)
    ]
    capture += [event("cuda_runtime", "cudaStreamEndCapture", 40.0, 1)]
    assert told(tmp_path, capture + GOOD) == {}
    assert told(tmp_path, capture[1:-1] + GOOD) == {"dropped-kernels": 30}


def test_strays_that_stretch_the_span(tmp_path: Path) -> None:
    end = max(e["ts"] + e["dur"] for e in GOOD)
    far = [
        event("cuda_runtime", "cudaLaunchKernel", 4 * end, 4, correlation=9999),
        kernel("late", 4 * end + 10, 5, corr=9999),
    ]
    assert told(tmp_path, GOOD + far) == {"stray-events": 1}


def test_a_host_side_that_ends_early(tmp_path: Path) -> None:
    middle = sorted(e["ts"] for e in GOOD)[len(GOOD) // 2]
    sliced = [e for e in GOOD if e["cat"] == "kernel" or e["ts"] < middle]
    found = told(tmp_path, sliced)
    assert found["sliced-file"] == found["orphan-events"] > 30


def test_clocks_that_differ(tmp_path: Path) -> None:
    skewed = [
        {**e, "ts": e["ts"] - 50.0} if e["cat"] == "kernel" else e
        for e in simulate(steps=5, kernel_us=2.0).events
    ]
    assert told(tmp_path, skewed).get("clock-skew") == 100
    assert "clock-skew" not in told(tmp_path, simulate(steps=5, kernel_us=2.0).events)


def test_what_the_profiler_itself_takes(tmp_path: Path) -> None:
    end = max(e["ts"] + e["dur"] for e in GOOD)
    flush = event("overhead", "Activity Buffer Request", 2000.0, 0.05 * end, tid=999)
    assert told(tmp_path, [*GOOD, flush]) == {"profiler-overhead": 1}


def test_the_start_of_a_recording_may_hold_what_was_launched_before(tmp_path: Path) -> None:
    assert told(tmp_path, simulate(steps=5, kernels=60, orphans=9).events) == {"warm-up-leakage": 9}


def test_a_recording_without_extent_is_no_division_by_zero(tmp_path: Path) -> None:
    events = [
        event("cuda_runtime", "cudaLaunchKernel", 0.0, 1.0, correlation=1),
        kernel("gemm", 0.0, 0.0, corr=1),
        event("overhead", "Activity Buffer Request", 0.0, 1.0),
    ]
    assert "profiler-overhead" not in told(tmp_path, events)
