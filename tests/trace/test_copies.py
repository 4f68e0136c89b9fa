"""Copies of pinned memory that nothing hides: worth what running them beside compute takes off the step."""

from pathlib import Path

import pytest
from trace_builder import simulate, write

from wellfed import api
from wellfed.model import Case, Verdict

MIB = 1 << 20


def judged(tmp_path: Path, **kind: float | bool) -> Case:
    return api.trace(write(tmp_path / "t.json", simulate(steps=5, **kind).events))  # type: ignore[arg-type]


def copies(case: Case) -> Verdict:
    return next(v for v in case.verdicts if v.code == "T190")


@pytest.mark.parametrize("kind", ["pinned_us", "fetch_us"])
@pytest.mark.parametrize("copy_us", [400.0, 1_500.0])
def test_the_gain_is_that_of_the_copy_beside_compute(tmp_path: Path, kind: str, copy_us: float) -> None:
    """20 kernels of 100 us on a busy device, and a copy before or after them on the same stream."""
    found = copies(judged(tmp_path, **{kind: copy_us}))
    assert found.verdict == "finding" and found.severity in ("warning", "error")
    truth = (20 * 101.0 + 1.0 + copy_us) / (20 * 101.0)
    gain = found.gain
    assert gain is not None and gain.low is not None and gain.high is not None
    assert gain.speedup == pytest.approx(truth, rel=0.01)
    assert 1.0 < gain.low <= truth <= gain.high
    assert found.cost is not None and found.cost.value == pytest.approx(copy_us / 1e3, rel=0.02)
    assert found.remedy is not None and ("two pinned buffers" in found.remedy) == (kind == "fetch_us")
    assert "Pinned" in found.evidence[0].text


def test_what_compute_cannot_hide_is_not_promised(tmp_path: Path) -> None:
    """The copy takes four times as long as compute: side by side a step still takes as long as the copy."""
    found = copies(judged(tmp_path, pinned_us=8_000.0))
    truth = (8_001.0 + 2_020.0) / 8_001.0
    assert found.gain is not None and found.gain.speedup == pytest.approx(truth, rel=0.01)
    assert (found.gain.high or 9) <= truth * 1.01 and found.gain.next == "host-link"
    assert "fewer bytes" in (found.remedy or "")
    hardly = copies(judged(tmp_path, pinned_us=200_000.0))
    assert hardly.verdict == "pass"


def test_a_host_that_the_device_waits_for_anyway_is_not_cured_by_it(tmp_path: Path) -> None:
    assert copies(judged(tmp_path, pinned_us=400.0, data_us=40_000.0)).verdict == "pass"


def test_a_copy_on_a_stream_of_its_own_beside_compute_costs_nothing(tmp_path: Path) -> None:
    rows = simulate(steps=5, pinned_us=400.0).events
    for e in rows:
        if e["cat"] == "gpu_memcpy":
            e["args"]["stream"], e["tid"] = 20, 20
            e["ts"] += 420.0  # in the middle of the kernels
    found = copies(api.trace(write(tmp_path / "t.json", rows)))
    assert found.verdict == "pass"


def test_a_result_that_the_host_waits_for_is_sure_of_nothing(tmp_path: Path) -> None:
    """It may be needed at once: the low end is no gain, and so nothing above info is claimed."""
    found = copies(judged(tmp_path, fetch_us=1_500.0, sync=True))
    assert found.verdict == "finding" and found.severity == "info"
    assert found.gain is not None and found.gain.low == 1.0 and (found.gain.high or 0) > 1.3


def test_a_small_result_is_asked_for_and_no_copy(tmp_path: Path) -> None:
    case = api.trace(
        write(tmp_path / "t.json", simulate(steps=5, fetch_us=300.0, sync=True, copy_bytes=MIB // 2).events)
    )
    assert copies(case).verdict == "pass"


@pytest.mark.parametrize("memory", ["Pageable", "Managed"])
def test_other_memory_is_not_its_business(tmp_path: Path, memory: str) -> None:
    rows = simulate(steps=5, pinned_us=1_500.0).events
    for e in rows:
        e["name"] = e["name"].replace("Pinned", memory)
    assert copies(api.trace(write(tmp_path / "t.json", rows))).verdict == "pass"


def test_without_steps_what_was_recorded_is_said_and_what_compute_could_hide(tmp_path: Path) -> None:
    def of(**kind: float) -> Verdict:
        rows = [e for e in simulate(steps=5, **kind).events if not e["name"].startswith("Profiler")]  # type: ignore[arg-type]
        for k, e in enumerate(rows):
            if e["name"] == "gemm":
                e["name"] = f"gemm_{k}"  # nothing recurs
        return copies(api.trace(write(tmp_path / "t.json", rows)))

    found = of(pinned_us=8_000.0)
    assert found.verdict == "finding" and found.severity == "info"
    assert found.gain is not None and found.gain.speedup is None
    assert "40.0 ms of 50" in found.message and "at most 10.0 ms" in found.message
    full = of(pinned_us=200_000.0)
    assert full.verdict == "pass" and "too short to hide" in full.message


def test_pageable_results_are_told_to_be_fetched_not_loaded(tmp_path: Path) -> None:
    rows = simulate(steps=5, pageable_us=20_000.0).events
    loaded = next(v for v in api.trace(write(tmp_path / "a.json", rows)).verdicts if v.code == "T140")
    assert "DataLoader" in (loaded.remedy or "") and "from pageable memory" in loaded.message
    for e in rows:
        e["name"] = e["name"].replace("HtoD (Pageable -> Device)", "DtoH (Device -> Pageable)")
    fetched = next(v for v in api.trace(write(tmp_path / "b.json", rows)).verdicts if v.code == "T140")
    assert fetched.verdict == "finding" and "to pageable memory" in fetched.message
    assert "DataLoader" not in (fetched.remedy or "") and "pinned buffer" in (fetched.remedy or "")


JOINED = ("NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA GB10")


def needless(tmp_path: Path, gpu: str, rows: list[dict[str, object]]) -> Verdict | None:
    path = write(tmp_path / "t.json", rows, deviceProperties=[{"id": 0, "name": gpu}])
    return next((v for v in api.trace(path).verdicts if v.code == "T280"), None)


@pytest.mark.parametrize("gpu", JOINED)
def test_a_gpu_that_could_read_in_place_is_told_so_without_a_promise(tmp_path: Path, gpu: str) -> None:
    found = needless(tmp_path, gpu, simulate(steps=5, pinned_us=1_500.0).events)
    assert found is not None and (found.verdict, found.severity) == ("finding", "info")
    assert found.gain is not None and (found.gain.basis, found.gain.speedup) == ("none", None)
    assert "100.0 MB" in found.message and "1.5 ms" in found.message and "not known" in found.message
    assert found.evidence and all("Pinned -> Device" in one.text for one in found.evidence)


def test_copies_that_hide_are_copies_too(tmp_path: Path) -> None:
    rows = simulate(steps=5, pinned_us=400.0).events
    for e in rows:
        if e["cat"] == "gpu_memcpy":
            e["args"]["stream"], e["tid"] = 20, 20
            e["ts"] += 420.0
    found = needless(tmp_path, JOINED[0], rows)
    assert found is not None and found.verdict == "finding"


@pytest.mark.parametrize(
    "gpu", ["NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "Unheard Of"]
)
def test_behind_pcie_nothing_is_said_of_reading_in_place(tmp_path: Path, gpu: str) -> None:
    assert needless(tmp_path, gpu, simulate(steps=5, pinned_us=1_500.0).events) is None


@pytest.mark.parametrize(
    "kind", [{"fetch_us": 1_500.0}, {"pageable_us": 1_500.0}, {"pinned_us": 20.0}, {}], ids=str
)
def test_other_copies_and_small_ones_are_not_needless(tmp_path: Path, kind: dict[str, float]) -> None:
    found = needless(tmp_path, JOINED[0], simulate(steps=5, **kind).events)  # type: ignore[arg-type]
    assert found is not None and found.verdict == "pass"


def test_without_steps_the_share_is_of_the_trace(tmp_path: Path) -> None:
    rows = [e for e in simulate(steps=5, pinned_us=1_500.0).events if not e["name"].startswith("Profiler")]
    for k, e in enumerate(rows):
        if e["name"] == "gemm":
            e["name"] = f"gemm_{k}"
    found = needless(tmp_path, JOINED[0], rows)
    assert found is not None and found.verdict == "finding" and "7.5 ms of the" in found.message
    assert "500.0 MB" in found.message and "trace;" in found.message
