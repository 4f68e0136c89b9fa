"""What settings of DDP and FSDP would save, on steps whose answer is arithmetic."""

from pathlib import Path
from typing import Any

import pytest
from trace_builder import Event, event, kernel, write

from wellfed import api
from wellfed.analyze.comm_calls import collectives_of
from wellfed.analyze.comm_knobs import Knob, comm_knobs
from wellfed.ingest import read_file

ALPHA_US, MB_US = 200.0, 50.0
STEP_US = 10_000.0


def told(op: str, size: int, n: int, seq: int) -> dict[str, Any]:
    return {
        "Collective name": op, "In msg nelems": size // (4 * n if op == "_allgather_base" else 4),
        "Out msg nelems": size // 4, "Group size": n, "dtype": "Float", "Process Group Name": "0",
        "Process Group Ranks": str(list(range(n))), "Seq": seq,
    }  # fmt: skip


def ddp(*, calls: int = 8, steps: int = 4, alpha_us: float = ALPHA_US, view_us: float = 0.0) -> list[Event]:
    """Backward of 4 ms whose gradients are all ready at its end, then the all-reduces, one after the other."""
    events: list[Event] = []
    corr = 0
    for step in range(steps):
        at = 1000.0 + STEP_US * step
        events.append(event("user_annotation", f"ProfilerStep#{step}", at, STEP_US - 1))
        events.append(event("cpu_op", "DistributedDataParallel.forward", at + 1, 2))

        def launch(name: str, when: float, start: float, dur: float, stream: int, **args: Any) -> None:
            nonlocal corr
            corr += 1
            events.append(event("cuda_runtime", "cudaLaunchKernel", when, 2, correlation=corr))
            one = kernel(name, start, dur, corr=corr, stream=stream)
            one["args"] |= args
            events.append(one)

        launch("gemm", at + 10, at + 20, 4000.0, 7)
        now = at + 4020.0
        for k in range(calls):
            size = (1 + k % 2) << 20
            took = alpha_us + MB_US * (1 + k % 2)
            args = told("allreduce", size, 2, step * calls + k)
            launch("ncclDevKernel_AllReduce_Sum_f32", at + 20 + k, now, took, 20, **args)
            now += took
        if view_us:
            events.append(event("cpu_op", "torch.distributed.ddp.reducer::copy_bucket_to_grad", at + 100, 20))
            launch("copy", at + 105, now, view_us, 7)
            now += view_us
        launch("optimizer", at + 200, now, 500.0, 7)
    return events


def knobs(tmp_path: Path, events: list[Event]) -> dict[str, Knob]:
    timeline = read_file(write(tmp_path / "a.json", events))[0]
    series = collectives_of(timeline)
    return {k.name: k for k in comm_knobs(timeline, 0, series, int(STEP_US * 1e3))}


def test_joined_buckets_spare_every_start_up_but_one(tmp_path: Path) -> None:
    found = knobs(tmp_path, ddp())["bucket-size"]
    assert found.expected == pytest.approx(7 * ALPHA_US * 1e3, rel=0.01)
    assert found.low <= found.expected <= found.high
    assert found.remedy.startswith("bucket_cap_mb=")


def test_buckets_without_a_start_up_of_their_own_are_left_alone(tmp_path: Path) -> None:
    assert "bucket-size" not in knobs(tmp_path, ddp(alpha_us=0.0))


def test_joining_does_not_pay_where_it_delays_what_overlaps(tmp_path: Path) -> None:
    """Buckets far apart under backward: joined, they would all wait for the last."""
    events: list[Event] = []
    corr = 0
    for step in range(4):
        at = 1000.0 + STEP_US * step
        events.append(event("user_annotation", f"ProfilerStep#{step}", at, STEP_US - 1))
        events.append(event("cpu_op", "DistributedDataParallel.forward", at + 1, 2))
        for k in range(8):
            for name, start, dur, stream in (
                ("gemm", at + 20 + 900 * k, 900.0, 7),
                ("ncclDevKernel_AllReduce", at + 920 + 900 * k, 300.0 + 100 * (k % 2), 20),
            ):
                corr += 1
                events.append(
                    event("cuda_runtime", "cudaLaunchKernel", at + 10 + 2 * corr % 100, 1, correlation=corr)
                )
                one = kernel(name, start, dur, corr=corr, stream=stream)
                if stream == 20:
                    one["args"] |= told("allreduce", (1 + k % 2) << 21, 2, step * 8 + k)
                events.append(one)
    assert "bucket-size" not in knobs(tmp_path, events)


def test_copies_out_of_the_bucket_are_what_a_view_spares(tmp_path: Path) -> None:
    found = knobs(tmp_path, ddp(view_us=700.0))["bucket-view"]
    assert found.expected == pytest.approx(700e3)
    assert found.low == 0
    assert "bucket-view" not in knobs(tmp_path, ddp())


def fsdp(steps: int = 4, units: int = 4) -> list[Event]:
    """Each unit is gathered before its forward and again before its backward, all in line: nothing overlaps."""
    events: list[Event] = []
    corr, seq = 0, 0
    for step in range(steps):
        at = 1000.0 + STEP_US * step
        events.append(event("user_annotation", f"ProfilerStep#{step}", at, STEP_US - 1))
        events.append(event("user_annotation", "FSDP::pre_forward", at + 1, 2))
        now = at + 20
        for size in [*range(units), *reversed(range(units))]:
            for name, dur, stream in (("ncclDevKernel_AllGather", 300.0, 20), ("gemm", 200.0, 7)):
                corr += 1
                one = kernel(name, now, dur, corr=corr, stream=stream)
                if stream == 20:
                    seq += 1
                    one["args"] |= told("_allgather_base", (size + 1) << 20, 2, seq)
                events.append(one)
                now += dur
    return events


def test_gathering_ahead_hides_as_much_as_there_is_computing_before_it(tmp_path: Path) -> None:
    found = knobs(tmp_path, fsdp())
    assert found["fsdp-prefetch"].expected == pytest.approx(7 * 200e3), "the first has nothing to hide behind"
    assert found["fsdp-prefetch"].high == pytest.approx(8 * 300e3)
    assert found["fsdp-reshard"].expected == pytest.approx(4 * 300e3), "each is gathered twice"


def test_other_programs_get_no_advice_on_ddp(tmp_path: Path) -> None:
    plain = [e for e in ddp(view_us=700.0) if "Distributed" not in e["name"] and "reducer" not in e["name"]]
    assert knobs(tmp_path, plain) == {}


def test_settings_are_listed_with_the_finding(tmp_path: Path) -> None:
    case = api.trace(write(tmp_path / "a.json", ddp(view_us=700.0)))
    found = next(v for v in case.verdicts if v.name == "exposed-comm")
    assert found.verdict == "finding"
    said = " ".join(a.remedy for a in found.alternatives)
    assert "bucket_cap_mb" in said
    assert "gradient_as_bucket_view" in said
    assert found.gain is not None
    assert found.gain.speedup is None, "one rank does not tell waiting from transfer"
