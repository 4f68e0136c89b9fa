"""Collectives: what is planned, what the ranks' times make, and short real runs with gloo."""

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wellfed.bench import noise
from wellfed.bench.comm import collectives as c
from wellfed.bench.comm.rank import GroupPlan, Plan, Times
from wellfed.bench.find import is_wanted
from wellfed.bench.setup import Setup
from wellfed.model import Ceiling, Curve, Machine, WellfedError
from wellfed.model.devices import Gpu
from wellfed.predict.comm_limit import limit_of

H200 = "NVIDIA H200"


def setup(*only: str, gpus: int = 0, name: str = H200, vendor: str = "nvidia") -> Setup:
    machine = Machine(
        gpus=tuple(Gpu(index=k, name=name, vendor=vendor, memory_bytes=140 << 30) for k in range(gpus))
    )
    return Setup(machine=machine, folder=Path(), effort="full", only=only)


# --- plans -----------------------------------------------------------------------------------------------


def test_without_gpus_gloo_is_measured_and_with_two_nccl() -> None:
    assert c.gpu_plan(setup(), 10) is None
    assert c.gpu_plan(setup(gpus=1), 10) is None
    plan = c.cpu_plan(setup(gpus=1), 10)
    assert plan is not None and plan.backend == "gloo" and plan.groups[0].n == 2
    assert c.cpu_plan(setup(gpus=8), 10) is None
    plan = c.gpu_plan(setup(gpus=8), 10)
    assert plan is not None
    assert (plan.backend, plan.device, plan.world) == ("nccl", "cuda", 8)
    assert [group.n for group in plan.groups] == [2, 4, 8]
    assert "send_recv" in plan.groups[0].ops and "send_recv" not in plan.groups[1].ops
    amd = c.gpu_plan(setup(gpus=4, vendor="amd"), 10)
    assert amd is not None and amd.backend == "rccl"


def test_sizes_are_log_spaced_and_bounded_by_memory() -> None:
    assert c.sizes(1 << 16) == (1 << 10, 1 << 12, 1 << 14, 1 << 16)
    small = c.gpu_plan(setup(gpus=2), 10)
    large = c.gpu_plan(setup(gpus=2), 60)
    assert small is not None and large is not None
    assert small.groups[0].sizes[-1] == 1 << 30 and large.groups[0].sizes[-1] == 4 << 30


def test_what_is_named_alone_is_planned() -> None:
    plan = c.gpu_plan(setup("all-reduce.nccl.5", gpus=8), 10)
    assert plan is not None
    assert [(g.n, g.ops) for g in plan.groups] == [(5, ("all_reduce",))]
    assert not plan.overlap and plan.world == 5
    assert c.cpu_plan(setup("all-reduce.gloo.3", gpus=8), 10) is not None
    assert c.gpu_plan(setup("all-reduce.gloo.3", gpus=8), 10) is None
    overlap = c.cpu_plan(setup("comm-overlap.*"), 10)
    assert overlap is not None and overlap.overlap and all(not g.ops for g in overlap.groups)


def test_every_id_is_of_a_family_that_the_module_names() -> None:
    for op in c.OPS:
        for latency in (False, True):
            id = c._id(op, "nccl", 8, latency)
            assert any(is_wanted(id, c.NAME, [family]) for family in c.IDS), id


# --- times of ranks --------------------------------------------------------------------------------------

PLAN = Plan(
    backend="gloo", device="cpu", world=2, budget_s=1.0,
    groups=(GroupPlan(n=2, ops=("all_reduce", "barrier"), sizes=(1 << 10, 1 << 20)),),
)  # fmt: skip


def told(op: str, size: int, *by_rank: tuple[float, ...]) -> list[list[Times]]:
    return [[Times(n=2, op=op, size=size, times=times)] for times in by_rank]


def test_a_call_takes_as_long_as_its_last_rank_and_transfers_as_long_as_the_one_that_waited_least() -> None:
    swept = c.over_ranks(told("all_reduce", 1024, (1.0, 5.0, 2.0), (3.0, 1.0, 2.0)), "all_reduce", 2)
    assert swept.longest == {1024: [3.0, 5.0, 2.0]}
    assert swept.least == {1024: [1.0, 1.0, 2.0]}


def test_a_rank_that_died_takes_the_calls_it_did_not_time() -> None:
    swept = c.over_ranks(told("all_reduce", 1024, (1.0, 5.0, 2.0), (3.0,)), "all_reduce", 2)
    assert swept.longest == {1024: [3.0]}
    assert c.over_ranks([[], []], "all_reduce", 2).longest == {}
    assert c.over_ranks([[]], "all_reduce", 2).longest == {}


def ceilings(ranks: list[list[Times]], ended: str | None = None, **of: Any) -> dict[str, Ceiling]:
    found = c.ceilings_of(
        of.pop("setup", setup()), noise.read_counters(), of.pop("plan", PLAN), c.Told(ranks, ended)
    )
    return {ceiling.id: ceiling for ceiling in found}


def test_bandwidths_count_as_nccl_tests_does() -> None:
    ranks = [
        [Times(n=2, op="all_reduce", size=1 << 10, times=(1e-4,) * 5), Times(n=2, op="all_reduce", size=10**9, times=(0.5,) * 5)],
        [Times(n=2, op="all_reduce", size=1 << 10, times=(9e-5,) * 5), Times(n=2, op="all_reduce", size=10**9, times=(0.4,) * 5)],
    ]  # fmt: skip
    found = ceilings(ranks)
    rate, latency = found["all-reduce.gloo.2"], found["all-reduce-latency.gloo.2"]
    assert rate.best == pytest.approx(2.0) and rate.unit == "GB/s"  # algbw 2, factor 2 (n - 1) / n = 1
    assert latency.best == pytest.approx(100.0) and latency.unit == "us" and not latency.higher_is_better
    assert rate.curve is not None and latency.curve is None
    assert rate.curve.sizes == (1024.0, 1e9) and rate.curve.seconds == (1e-4, 0.5)
    assert rate.curve.transfer == (9e-5, 0.4) and rate.curve.counts == (5, 5)
    again = msgspec.json.decode(msgspec.json.encode(rate), type=Ceiling)
    assert again == rate


def test_nvlink_is_the_peak_and_a_switch_that_reduces_may_exceed_it() -> None:
    plan = msgspec.structs.replace(PLAN, backend="nccl", device="cuda", world=8)
    of_eight = msgspec.structs.replace(plan, groups=(GroupPlan(n=8, ops=("all_reduce",), sizes=(1 << 30,)),))

    def at(busbw: float) -> Ceiling:
        times = (1e9 * 1.75 / busbw / 1e9,) * 5
        ranks = [[Times(n=8, op="all_reduce", size=10**9, times=times)] for _ in range(8)]
        return ceilings(ranks, setup=setup(gpus=8), plan=of_eight)["all-reduce.nccl.8"]

    assert at(482.0).verdict == "ok" and at(482.0).peak == pytest.approx(450.0)
    assert at(482.0).ratio == pytest.approx(1.071, abs=0.001)
    assert at(366.0).verdict == "ok"
    assert at(180.0).verdict == "low"
    assert at(700.0).verdict == "implausible"


def test_what_was_refused_or_wrong_is_said_with_the_others() -> None:
    ranks = told("all_reduce", 1024, (1e-4,) * 5, (1e-4,) * 5)
    ranks[0] += [Times(n=2, op="reduce_scatter", said="gloo has none"), Times(n=2, op="gather", wrong=True)]
    found = ceilings(ranks)["all-reduce.gloo.2"]
    assert found.environment["not_measured"] == {
        "reduce-scatter.gloo.2": "gloo has none", "gather.gloo.2": "the data were wrong"
    }  # fmt: skip


def test_nothing_measured_says_why() -> None:
    with pytest.raises(WellfedError, match="rank 1 was ended by signal 9"):
        ceilings([[], []], ended="rank 1 was ended by signal 9")
    with pytest.raises(WellfedError, match="gloo has none"):
        ceilings([[Times(n=2, op="all_reduce", said="gloo has none")], []])


def test_the_last_line_of_a_killed_rank_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.jsonl"
    good = msgspec.json.encode(Times(n=2, op="barrier", times=(1.0,)))
    path.write_bytes(good + b"\n" + good[:20])
    assert len(c._read(path)) == 1
    assert c._read(tmp_path / "none") == []


# --- real processes --------------------------------------------------------------------------------------

SMALL = (1 << 10, 1 << 16, 1 << 20)


def short(n: int, *ops: str, sizes: tuple[int, ...] = SMALL, **more: Any) -> Plan:
    return Plan(
        backend="gloo", device="cpu", world=n, groups=(GroupPlan(n=n, ops=ops, sizes=sizes),), passes=1,
        started=time.time(), **{"budget_s": 1.0, **more},
    )  # fmt: skip


@pytest.mark.torch
def test_all_collectives_of_gloo_move_the_right_bytes() -> None:
    pytest.importorskip("torch")
    plan = short(2, *c.OPS, overlap=True, budget_s=2.0)
    told = c.run_plan(plan)
    assert told.ended is None
    assert [one for rank in told.ranks for one in rank if one.wrong] == []
    found = {x.id: x for x in c.ceilings_of(setup(), noise.read_counters(), plan, told)}
    refused = found["barrier.gloo.2"].environment["not_measured"]
    for op in c.MOVING:
        id = c._id(op, "gloo", 2)
        assert id in refused or ((curve := found[id].curve) is not None and curve.sizes[0] == 1024.0)
    assert found["all-reduce.gloo.2"].best > 0
    assert {"comm-overlap.gloo.2.comm", "comm-overlap.gloo.2.gemm"} <= set(found)


@pytest.mark.torch
def test_a_late_rank_shows_in_the_waiting_and_not_in_the_transfer() -> None:
    pytest.importorskip("torch")
    swept = {
        late: c.over_ranks(c.run_plan(short(2, "all_reduce", late_s=late)).ranks, "all_reduce", 2) for late in (0.0, 0.02)
    }  # fmt: skip
    late = swept[0.02]
    assert min(late.longest[1 << 16]) >= 0.015
    assert sorted(late.least[1 << 16])[len(late.least[1 << 16]) // 2] < 0.01
    curve = c.curve_of_sweep(swept[0.0], "all_reduce", short(2, "all_reduce"), 2, "here")
    calls = [(size, t) for size, times in late.longest.items() for t in times]
    import numpy as np

    sizes, times = (np.array(x, float) for x in zip(*calls, strict=True))
    limit = limit_of(sizes, times, curve)
    assert limit is not None and limit.excess_share > 0.3
    assert isinstance(curve, Curve)


@pytest.mark.torch
def test_a_rank_that_cannot_start_ends_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    plan = short(2, "all_reduce")
    start = time.monotonic()
    told = c.run_plan(msgspec.structs.replace(plan, backend="no-such-backend"))
    assert told.ended is not None and "ended with exit code" in told.ended
    assert time.monotonic() - start < 60
    assert json.dumps([len(rank) for rank in told.ranks]) == "[0, 0]"
