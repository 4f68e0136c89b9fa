"""Calls of a trace beside measured curves: by file, through `trace --ceilings`, and what is not judged."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_builder import event, kernel, write

from wellfed import api
from wellfed.analyze.collectives import Call, series_of
from wellfed.analyze.comm_limits import curves_of, limits_of_series
from wellfed.model import Case, Ceiling, Curve, Verdict, WellfedError

SIZES = [2.0**k for k in range(10, 31, 2)]
ALPHA, BETA = 30e-6, 2e11
HALF = ALPHA * BETA


def curve(**more: Any) -> Curve:
    fields = {"op": "all_reduce", "ranks": 8, "backend": "nccl", "source": "measured here"} | more
    return Curve(sizes=tuple(SIZES), seconds=tuple(ALPHA + s / BETA for s in SIZES), **fields)


def ceiling(one: Curve, **more: Any) -> Ceiling:
    fields: dict[str, Any] = {"best": 1.0, "median": 1.0, "p10": 1.0, "p90": 1.0, "n": 3, "cv": 0.0} | more
    return Ceiling(
        id="all-reduce.nccl.8", title="", method="", hardware_key="", unit="GB/s", curve=one, **fields
    )


def due_us(size: float) -> float:
    return (ALPHA + size / BETA) * 1e6


PLANTED = {
    "latency": lambda k, rng: (HALF * 0.05, 1.0, 0.0, False),
    "bandwidth": lambda k, rng: (HALF * 30, 1.0, 0.0, False),
    "path": lambda k, rng: (HALF * (2, 8, 40)[k % 3], 2.4, 0.0, False),
    "straggler": lambda k, rng: (HALF * (0.2, 2, 20)[k % 3], 1.0, 4000.0, False),
    "contention": lambda k, rng: (HALF * (4, 20)[k % 2], 1.0 if k % 4 < 2 else 2.0, 0.0, k % 4 >= 2),
}


def trace_of(kind: str, steps: int = 6, each: int = 9) -> list[dict[str, Any]]:
    """Steps of compute and of all-reduces, which carry what PyTorch writes on them."""
    rng = np.random.default_rng(1)
    events: list[dict[str, Any]] = []
    at, corr, k = 1000.0, 0, 0
    for step in range(steps):
        begin = at
        for _ in range(each):
            size, factor, wait, hidden = PLANTED[kind](k, rng)
            took = due_us(size) * factor * float(rng.lognormal(0, 0.05)) + wait
            count = int(size) // 4
            corr += 2
            events.append(event("cuda_runtime", "cudaLaunchKernel", at, 3.0, correlation=corr))
            events.append(event("cuda_runtime", "cudaLaunchKernel", at + 3, 3.0, correlation=corr + 1))
            compute = took * 1.1 if hidden else 200.0
            events.append(kernel("gemm", at + 10, compute, corr=corr))
            start = at + 10 if hidden else at + 10 + compute
            done = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, took, corr=corr + 1, stream=20)
            done["args"].update({
                "Collective name": "allreduce", "In msg nelems": count, "Out msg nelems": count, "dtype": "Float",
                "Group size": 8, "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]", "Seq": k,
            })  # fmt: skip
            events.append(done)
            at = start + max(took, compute if hidden else 0.0) + 5
            k += 1
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, at - begin))
    return events


def judged(case: Case) -> Verdict:
    return next(v for v in case.verdicts if v.code == "T290")


@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_a_planted_limit_is_named_from_one_rank(tmp_path: Path, kind: str) -> None:
    path = write(
        tmp_path / "t.json", trace_of(kind), distributedInfo={"backend": "nccl", "rank": 0, "world_size": 8}
    )
    verdict = judged(api.trace(path, ceilings=[ceiling(curve())]))
    assert verdict.verdict == "finding" and verdict.evidence[0].text.startswith(
        f"all_reduce over 8 ranks: {kind};"
    )
    assert "measured here" in verdict.evidence[0].text
    if kind in ("latency", "bandwidth"):
        assert verdict.severity == "info" and verdict.cost is None
    elif kind == "contention":  # computing hides all of it: it costs nothing here
        assert verdict.severity == "info"
    else:
        assert verdict.severity in ("warning", "error") and "of each step" in verdict.message
    assert verdict.remedy and verdict.where["rank"] == 0
    plain = api.trace(path)
    assert not any(v.code == "T290" for v in plain.verdicts)


def test_what_is_above_the_curve_is_told_and_charged_once(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", trace_of("path"), distributedInfo={"rank": 0, "world_size": 8})
    verdict = judged(api.trace(path, ceilings=[ceiling(curve())]))
    told = re.search(r"([\d.]+) ms of each step", verdict.message)
    each = [due_us(HALF * (2, 8, 40)[k % 3]) * 1.4 for k in range(9)]
    assert told is not None and float(told[1]) == pytest.approx(sum(each) / 1e3, rel=0.15)
    assert verdict.cost is not None and verdict.cost.value is None  # exposed-comm has it


def test_one_size_and_a_constant_excess_could_be_either(tmp_path: Path) -> None:
    calls = [
        Call(
            "allreduce",
            k * 10**9,
            k * 10**9 + 10**6,
            "0",
            "[0, 1]",
            2,
            k,
            10**6,
            10**6,
            "Float",
            exposed_ns=10**6,
        )
        for k in range(20)
    ]
    found = limits_of_series(series_of(0, calls), [curve(ranks=2)])
    assert [one.limit.kind for one in found.found] == ["unclear"]
    assert "look alike" in (found.found[0].limit.why or "")


def test_what_has_no_curve_or_size_is_said() -> None:
    told = {"group_name": "0", "group_ranks": "[0, 1, 2, 3]", "group_size": 4}
    calls = [
        Call("allgather", 0, 10**6, **told, in_elements=4, out_elements=16, dtype="Float"),
        Call("allreduce", 0, 10**6, **told),
        Call("barrier", 0, 10**6, **told),
    ]
    found = limits_of_series(series_of(0, calls), [curve(ranks=4)])
    assert not found.found
    assert found.unknown == (
        "all_gather over 4 ranks: no curve was measured", "all_reduce over 4 ranks: the trace does not tell sizes"
    )  # fmt: skip
    assert limits_of_series(series_of(0, []), [curve()]) == ((), ())


def test_curves_are_taken_from_ceilings_that_can_be_trusted() -> None:
    twice = curves_of(
        [
            ceiling(curve(source="old")),
            ceiling(curve(source="new")),
            ceiling(curve(op="all_gather"), verdict="implausible"),
        ]
    )
    assert [c.source for c in twice] == ["new"]
    point = Curve(op="all_reduce", ranks=8, sizes=(1.0,), seconds=(1.0,))
    assert curves_of([ceiling(point)]) == ()


def test_many_ranks_are_judged_beside_the_measured_curve(tmp_path: Path) -> None:
    for rank in range(2):
        events = json.loads(
            json.dumps(trace_of("path"))
            .replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[0, 1]")
            .replace('"Group size": 8', '"Group size": 2')
        )
        write(tmp_path / f"rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    case = api.trace(tmp_path, ceilings=[ceiling(curve(ranks=2))])
    assert case.together is not None and case.together.limits["all_reduce/2"].kind == "path"
    assert case.together.links["all_reduce/2"] == "measured here"
    slow = next(v for v in case.verdicts if v.code == "T230")
    assert slow.verdict == "finding" and "measured here" in slow.message


def test_the_command_takes_a_case_or_another_tools_file(tmp_path: Path, run_cli: Any) -> None:
    path = write(tmp_path / "t.json", trace_of("latency"), distributedInfo={"rank": 0, "world_size": 8})
    api.save(Case(ceilings=(ceiling(curve()),)), tmp_path / "c.case")
    result = run_cli("trace", path, "--ceilings", tmp_path / "c.case", "--format", "json")
    assert result.code == 0 and '"collective-limit"' in result.out
    empty = Case(ceilings=())
    api.save(empty, tmp_path / "e.case")
    result = run_cli("trace", path, "--ceilings", tmp_path / "e.case")
    assert result.code == 2 and "holds no curve" in result.err and "measure --only collectives" in result.err
    with pytest.raises(WellfedError):
        api.trace(path, ceilings=tmp_path / "missing")
