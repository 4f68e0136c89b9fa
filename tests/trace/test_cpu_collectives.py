"""Collectives that run on the CPU: the recorded pairs of Gloo processes, and what is waiting and what is not."""

import json
import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_builder import event, kernel, write

from wellfed import api
from wellfed.analyze.collectives import Call, CollectiveSeries, exposed_parts, joined, series_of
from wellfed.analyze.intervals import EMPTY, overlap, union
from wellfed.analyze.matching import match_ranks
from wellfed.analyze.rank_replay import normal_score
from wellfed.analyze.ranks import CHANCE, chance_score, study_ranks
from wellfed.model import Case, Verdict

GLOO = Path(__file__).resolve().parents[1] / "traces" / "gloo"
LABELS: dict[str, Any] = json.loads((GLOO / "labels.json").read_text())["cases"]


def pair(name: str) -> Case:
    return api.trace(sorted(GLOO.glob(f"{name}_rank*.json.gz")))


def named(case: Case, name: str) -> Verdict:
    return next(v for v in case.verdicts if v.name == name)


# -- the recorded pairs ----------------------------------------------------------------------------------


def test_the_slow_rank_of_two_gloo_processes_is_named_with_what_curing_it_gave() -> None:
    case = pair("slow")
    found = named(case, "straggler")
    assert found.verdict == "finding"
    assert found.where["rank"] == LABELS["slow"]["slow_rank"]
    assert found.causes == ("T150",)  # what that rank alone has: its sleep
    real = LABELS["slow"]["step_ms"] / LABELS["fair"]["step_ms"]
    for gain in (found.gain, named(case, "host-stall").gain):
        assert gain is not None
        assert gain.low is not None
        assert gain.high is not None
        assert gain.low <= real <= gain.high
        assert gain.high <= 2 * gain.low
    assert named(case, "host-stall").where["ranks"] == [1]
    exposed = named(case, "exposed-comm")
    assert exposed.verdict == "finding"
    assert "on the CPU" in exposed.message
    # waiting and transfer are charged once each: what the slow rank costs, and what it would still take
    assert exposed.cost is not None
    assert exposed.cost.value == pytest.approx(17.5, abs=2.0)
    assert named(case, "checkpoint-stall").verdict == "pass"


def test_a_fair_pair_accuses_nobody_and_its_transfers_are_no_stall() -> None:
    case = pair("fair")
    for name in ("straggler", "rank-imbalance", "host-stall", "checkpoint-stall"):
        assert named(case, name).verdict == "pass", name
    exposed = named(case, "exposed-comm")
    assert exposed.verdict == "finding"
    for rank in case.ranks:
        assert rank.budget is not None
        assert sum(rank.idle.values()) == rank.budget.idle_ns
        assert rank.step_budget is not None
        assert sum(rank.step_idle.values()) == rank.step_budget.idle_ns
        assert rank.step_cpu_comm_ns > 0.5 * rank.step_budget.idle_ns
        assert rank.step_idle["host-stall"] == 0
        assert max(rank.step_idle, key=lambda c: rank.step_idle[c]) == "dependency-wait"


def test_one_file_of_the_pair_says_that_waiting_and_transfer_are_not_told_apart() -> None:
    case = api.trace(GLOO / "slow_rank0.json.gz")
    exposed = named(case, "exposed-comm")
    assert exposed.verdict == "finding"
    assert exposed.gain is not None
    assert exposed.gain.speedup is None
    assert any("gloo:all_reduce, 29.4 MB" in e.text for e in exposed.evidence)


# -- what is waiting ---------------------------------------------------------------------------------------


def loop(
    *, collective: tuple[float, float] | None, ops: bool = False, steps: int = 4
) -> list[dict[str, Any]]:
    """Steps of a kernel, 5 ms in which the loop's thread does nothing (or, with `ops`, goes on dispatching), and
    another kernel; a collective runs on another thread, from and to these ms of the silence."""
    events: list[dict[str, Any]] = []
    for step in range(steps):
        at = 1000.0 + 10_000.0 * step
        events.append(event("user_annotation", f"ProfilerStep#{step}", at, 9_990.0))
        for k, begin in enumerate((at + 10, at + 6_000)):
            corr = 10 * step + k
            events.append(event("cpu_op", "aten::mm", begin - 5, 20.0))
            events.append(event("cuda_runtime", "cudaLaunchKernel", begin, 5.0, correlation=corr))
            events.append(kernel("gemm", begin + 10, 900.0, corr=corr))
        if ops:
            events += [event("cpu_op", "aten::add", at + 950 + 20.0 * k, 10.0) for k in range(252)]
        if collective is not None:
            low, high = (at + 990 + 1000.0 * ms for ms in collective)
            events.append(event("user_annotation", "gloo:all_reduce", low, high - low, tid=200))
    return sorted(events, key=lambda e: float(e["ts"]))


@pytest.mark.parametrize(
    ("collective", "ops", "waits", "stalls"),
    [
        ((0.0, 5.0), False, True, False),  # the silence ends when the collective does
        ((0.0, 2.5), False, False, True),  # it goes on long after that: something else holds the thread
        (None, False, False, True),
        ((0.0, 5.0), True, False, False),  # dispatch goes on beside it: nobody waits
    ],
)
def test_silence_is_a_wait_where_a_collective_ends_it(
    tmp_path: Path, collective: tuple[float, float] | None, ops: bool, waits: bool, stalls: bool
) -> None:
    rank = api.trace(write(tmp_path / "a.json", loop(collective=collective, ops=ops))).ranks[0]
    assert rank.budget is not None
    assert sum(rank.idle.values()) == rank.budget.idle_ns
    assert (rank.idle["dependency-wait"] > 10_000_000) == waits
    assert (rank.step_cpu_comm_ns > 3_000_000) == waits
    assert (rank.idle["host-stall"] > 10_000_000) == stalls


# -- several at a time -------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 80)), max_size=12),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 80)), max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_exposed_parts_sum_to_the_union_that_nothing_hides(
    calls: list[tuple[int, int]], kernels: list[tuple[int, int]]
) -> None:
    start = np.array([a for a, _ in calls], np.int64)
    end = start + np.array([d for _, d in calls], np.int64)
    begin = np.array([a for a, _ in kernels], np.int64)
    busy = union(begin, begin + np.array([d for _, d in kernels], np.int64)) if kernels else EMPTY
    parts = exposed_parts(busy, start, end)
    whole = union(start, end)
    assert (parts >= 0).all()
    assert (parts <= end - start).all()
    assert int(parts.sum()) == whole.total - int(overlap(busy, whole.start, whole.end).sum())


def nested(*, slow: float, steps: int = 6) -> list[CollectiveSeries]:
    """Two ranks that work 4 ms, start a large collective of 12 ms, and 1 ms later a small one that is done long before
    it; rank 1 works `slow` ms more. All wait for the large one."""
    ms = 1_000_000
    rows: dict[int, list[Call]] = {0: [], 1: []}
    now = 0.0
    for step in range(steps):
        come = (now + 4, now + 4 + slow)
        done = max(come) + 12
        small = max(come) + 1 + 2
        for rank, at in enumerate(come):
            for begin, end, n in ((at, done, 1000), (at + 1, small, 10)):
                rows[rank].append(
                    Call(
                        "gloo:all_reduce", round(begin * ms), round(end * ms), group_name="0", group_ranks="[0, 1]",
                        group_size=2, seq=2 * step + (n == 10), in_elements=n, out_elements=n, dtype="Float", step=step,
                    )
                )  # fmt: skip
        now = done
    found = []
    for rank, calls in rows.items():
        one = series_of(rank, calls, world=2)
        found.append(_exposed(one))
    return found


def _exposed(one: CollectiveSeries) -> CollectiveSeries:
    from wellfed.model.base import replace

    return replace(one, exposed=exposed_parts(EMPTY, one.start, one.end))


def test_a_short_call_within_a_long_one_does_not_turn_waiting_into_work() -> None:
    study = study_ranks(match_ranks(nested(slow=8.0)))
    what = study.what_if
    assert study.straggler is not None
    assert study.straggler.rank == 1
    # 4 ms before each large call and 1 ms to the small one, but for what precedes the first call
    assert what.own_ns[0] == pytest.approx((5 * 5 + 1) * 1e6, rel=0.01)
    assert what.own_ns[1] == pytest.approx((5 * 13 + 1) * 1e6, rel=0.01)
    assert study.straggler.speedup == pytest.approx((6 * 24) / (6 * 16), rel=0.05)
    # what waits at the same time is waited for once: 8 ms for the large call, the last 8 of these 9 for the small one
    assert study.cost_share == pytest.approx(6 * 9.0 / ((6 * 24 - 4) + (6 * 24 - 12)), rel=0.01)


def test_equal_ranks_with_nested_calls_gain_nothing() -> None:
    study = study_ranks(match_ranks(nested(slow=0.0)))
    assert study.straggler is None
    assert study.what_if.slowdown == pytest.approx(1.0, abs=1e-6)


def test_two_series_of_a_rank_are_one_in_order() -> None:
    a = series_of(
        0,
        [
            Call("all_reduce", 10, 20, group_name="x", seq=1),
            Call("all_gather", 40, 50, group_name="x", seq=2),
        ],
    )
    b = series_of(0, [Call("barrier", 5, 8, stream=3), Call("all_reduce", 30, 35, group_name="x", seq=3)])
    both = joined(a, b)
    assert both.start.tolist() == [5, 10, 30, 40]
    assert [both.ops[o] for o in both.op.tolist()] == ["barrier", "all_reduce", "all_reduce", "all_gather"]
    assert [both.groups[g].name for g in both.group.tolist()] == ["stream 3", "x", "x", "x"]
    assert len(both.groups) == 2


# -- chance ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("t", "free", "p"),
    [(3.182, 3, 0.025), (10.215, 3, 0.001), (2.764, 10, 0.01), (4.144, 10, 0.001), (3.174, 100, 0.001)],
)
def test_few_degrees_of_freedom_are_worth_less(t: float, free: int, p: float) -> None:
    """One-sided quantiles of Student's distribution, from its tables."""
    score = float(normal_score(np.array([t]), np.array([float(free)]))[0])
    assert score == pytest.approx(NormalDist().inv_cdf(1 - p), rel=0.03)
    assert float(normal_score(np.array([-t]), np.array([float(free)]))[0]) == pytest.approx(-score)


def test_more_ranks_have_to_stand_out_more() -> None:
    scores = [chance_score(n) for n in (1, 2, 8, 64, 1000)]
    assert scores == sorted(scores)
    for n, score in zip((1, 2, 8, 64, 1000), scores, strict=True):
        assert n * math.erfc(score / math.sqrt(2)) / 2 == pytest.approx(CHANCE, rel=1e-3)
