"""Many ranks through `wellfed trace`: from files to the finding that names the slow one, and what is said when it can't be."""

import json
import multiprocessing
import pickle
import re
import sys
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_ranks import maker, recorded
from trace_builder import event, kernel, simulate, text_of, write

from wellfed import api
from wellfed.analyze.budget import Work, raw_budget
from wellfed.analyze.comm_calls import collectives_of, comm_devices
from wellfed.analyze.together import rank_numbers
from wellfed.ingest import read_file, workers
from wellfed.model import Case, Verdict, WellfedError
from wellfed.model.case import decode_case, encode_case
from wellfed.predict.collective import expected_seconds, link_curve
from wellfed.report import jsonout, story

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def job(folder: Path, **plan: Any) -> Path:
    """Files of a job made from one rank's trace, steps and all."""
    make = maker()
    chosen = make.Plan(**plan)
    base = make.base_of(recorded(steps=plan.pop("steps", 4) if "steps" in plan else 4))
    truth = make.run(base, chosen)
    for rank, pieces in make.files(base, chosen, truth):
        (folder / f"trace_{rank}.json").write_bytes(b"".join(pieces))
    return folder


def named(case: Case, name: str) -> Verdict:
    return next(v for v in case.verdicts if v.name == name)


# -- a rank's collectives ---------------------------------------------------------------------------------


def comm_events(*, on_kernel: bool, by: str = "id") -> list[dict[str, Any]]:
    """Two steps of a gemm and an all-reduce that half overlaps the next gemm."""
    told = {
        "Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 2,
        "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    events: list[dict[str, Any]] = []
    for step in range(2):
        at = 1000.0 + 1000.0 * step
        events.append(event("user_annotation", f"ProfilerStep#{step + 7}", at, 990.0))
        events += [event("cuda_runtime", "cudaLaunchKernel", at + 10, 5, correlation=10 * step + 1)]
        events.append(kernel("gemm", at + 20, 200.0, corr=10 * step + 1))
        op = event("cpu_op", "record_param_comms", at + 30, 40, **told, Seq=step + 3)
        call = event("cuda_runtime", "cudaLaunchKernel", at + 40, 5, correlation=10 * step + 2)
        comm = kernel(ALL_REDUCE, at + 220, 300.0, corr=10 * step + 2, stream=20)
        if by == "id":
            op["args"]["External id"] = comm["args"]["External id"] = 100 + step
        if on_kernel:
            comm["args"] |= {**told, "Seq": step + 3}
        events += [op, call, comm]
        events.append(event("cuda_runtime", "cudaLaunchKernel", at + 80, 5, correlation=10 * step + 3))
        events.append(kernel("gemm", at + 400, 250.0, corr=10 * step + 3))
    return events


@pytest.mark.parametrize(("on_kernel", "by"), [(True, "id"), (False, "id"), (False, "launch")])
def test_a_collective_is_known_from_its_kernel_its_operator_s_id_or_what_encloses_its_launch(
    tmp_path: Path, on_kernel: bool, by: str
) -> None:
    timeline = read_file(write(tmp_path / "a.json", comm_events(on_kernel=on_kernel, by=by)))[0]
    found = collectives_of(timeline)
    assert found.ops == ("all_reduce",)
    assert [g.ranks for g in found.groups] == [(0, 1)]
    assert found.seq.tolist() == [3, 4]
    assert found.size.tolist() == [4096, 4096]
    assert found.step.tolist() == [7, 8]
    assert found.exposed.tolist() == [180_000, 180_000], "the rest lies under the second gemm"
    assert (found.end - found.start).tolist() == [300_000, 300_000]


def test_a_kernel_that_does_not_say_what_it_does_is_named_by_nccl_s_range(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "ncclReduceScatter", 10, 30),
        event("cuda_runtime", "cudaLaunchKernel", 20, 5, correlation=1),
        kernel("ncclDevKernel_Generic", 40, 10.0, corr=1),
    ]
    found = collectives_of(read_file(write(tmp_path / "a.json", events))[0])
    assert found.ops == ("reduce_scatter",)
    assert found.groups[0].kind == "stream"
    assert found.seq.tolist() == found.size.tolist() == [-1]


@pytest.mark.parametrize("seed", range(5))
def test_exposed_parts_sum_to_the_budget_whatever_overlaps(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    events = [
        kernel(
            ALL_REDUCE if rng.random() < 0.5 else "gemm", int(rng.integers(0, 2000)), int(rng.integers(1, 200)),
            corr=k, stream=int(rng.integers(1, 5)),
        )
        for k in range(80)
    ]  # fmt: skip
    timeline = read_file(write(tmp_path / "a.json", events))[0]
    budget = raw_budget(Work(timeline, 0))
    assert budget is not None
    assert int(collectives_of(timeline).exposed.sum()) == budget.exposed_comm_ns


def test_devices_of_one_process_count_as_ranks(tmp_path: Path) -> None:
    for_both = [
        kernel(ALL_REDUCE, 100.0 * k + (0 if device else 50), 100.0 - (0 if device else 50), corr=2 * k + device, device=device)
        for k in range(20)
        for device in (0, 1)
    ]  # fmt: skip
    path = write(
        tmp_path / "a.json", for_both, deviceProperties=[{"id": 0, "name": "A"}, {"id": 1, "name": "A"}]
    )
    assert comm_devices(read_file(path)[0]) == [0, 1]
    case = api.trace(path)
    assert case.together is not None
    assert case.together.ranks == (0, 1)


# -- which rank a file is ---------------------------------------------------------------------------------


def test_ranks_are_told_counted_or_doubted() -> None:
    assert rank_numbers([None], ["a"]) == ([None], ())
    assert rank_numbers([3, 1], ["a", "b"]) == ([3, 1], ())
    numbers, (doubt,) = rank_numbers([None, 0, None], ["a", "b", "c"])
    assert numbers == [1, 0, 2]
    assert (doubt.code, doubt.count) == ("ranks-by-order", 2)
    numbers, (twice,) = rank_numbers([0, 0, 1], ["a", "b", "c"])
    assert (twice.code, twice.count) == ("duplicate-ranks", 1)
    assert "a, b" in twice.sample


def test_files_without_a_rank_are_counted_and_can_be_asked_for(tmp_path: Path) -> None:
    for name, kernels in (("a", 40), ("b", 41)):
        write(tmp_path / f"{name}.json", simulate(kernels=kernels).events)
    case = api.trace(tmp_path)
    assert [r.rank for r in case.ranks] == [0, 1]
    assert [w.code for w in case.warnings if w.code == "ranks-by-order"] == ["ranks-by-order"]
    assert [r.source for r in api.trace(tmp_path, ranks=[1]).ranks] == ["b.json"]


# -- all together -----------------------------------------------------------------------------------------


def test_the_slow_rank_is_named_with_what_it_costs_and_what_curing_it_brings(tmp_path: Path) -> None:
    case = api.trace(job(tmp_path, ranks=8, slow=5, factor=1.5))
    found = named(case, "straggler")
    assert found.verdict == "finding"
    assert found.severity == "error"
    assert found.where["rank"] == 5
    assert found.gain is not None
    assert found.gain.speedup is not None
    sound = maker().run(maker().base_of(recorded()), maker().Plan(ranks=8))
    sick = maker().run(maker().base_of(recorded()), maker().Plan(ranks=8, slow=5, factor=1.5))
    real = (sick.end.max() - sick.start.min()) / (sound.end.max() - sound.start.min())
    assert found.gain.speedup == pytest.approx(real, rel=0.02)
    assert found.gain.low is not None
    assert found.gain.high is not None
    assert found.gain.low <= real <= found.gain.high
    assert found.cost is not None
    assert found.cost.gpus == 8
    assert "8 ranks" in story.together_lines(case)[0]
    assert case.together is not None
    assert case.together.straggler is not None
    assert case.headline is not None
    assert "rank 5 holds up the other 7" in case.headline.text
    for name in ("rank-imbalance", "missing-ranks", "unmatched-collectives"):
        assert named(case, name).verdict == "pass", name
    exposed = named(case, "exposed-comm")
    assert re.search(r"\d+% of it is waiting", exposed.message)
    again = decode_case(encode_case(case))
    assert again == case
    keys = json.loads(jsonout.render(case, kind="trace"))
    assert keys["together"]["straggler"]["rank"] == 5
    assert [s["by_rank"][5] for s in keys["together"]["steps"]] == [0, 0, 0, 0]


def test_a_healthy_set_names_nobody(tmp_path: Path) -> None:
    case = api.trace(job(tmp_path, ranks=8, jitter=0.02))
    for name in ("straggler", "rank-imbalance", "slow-link"):
        assert named(case, name).verdict != "finding", name


def test_missing_ranks_and_samples_are_not_judged_with_the_reason(tmp_path: Path) -> None:
    job(tmp_path, ranks=8, numbered=False, kept=0.6)
    for rank in (2, 3, 4, 6):
        (tmp_path / f"trace_{rank}.json").unlink()
    case = api.trace(tmp_path)
    missing = named(case, "missing-ranks")
    assert (missing.verdict, missing.reason) == ("not-judged", "missing")
    assert "4 of 8" in missing.message
    assert "2-4, 6" in missing.message
    lost = named(case, "unmatched-collectives")
    assert lost.verdict == "not-judged"
    assert "counts" in lost.message
    assert named(case, "straggler").verdict == "not-judged"


def test_one_problem_on_all_ranks_is_one_finding_and_every_rank_s_own_is_kept(tmp_path: Path) -> None:
    for rank in range(4):
        loop = simulate(data_us=2_000.0 + 500.0 * rank, kernels=10)
        write(tmp_path / f"rank{rank}.json", loop.events, distributedInfo={"rank": rank, "world_size": 4})
    write(tmp_path / "rank4.json", simulate().events, distributedInfo={"rank": 4, "world_size": 5})
    case = api.trace(tmp_path)
    waits = [v for v in case.verdicts if v.name == "data-wait"]
    assert [v.verdict for v in waits] == ["finding", "pass"]
    found, fine = waits
    assert found.where == {"rank": 3, "device": 0, "ranks": [0, 1, 2, 3]}
    assert "4 of 5 ranks, rank 3 most" in found.message
    assert fine.where["ranks"] == [4]
    own = [v for v in case.rank_verdicts if v.name == "data-wait" and v.verdict == "finding"]
    assert sorted(v.where["rank"] for v in own) == [0, 1, 2, 3]
    worst = next(v for v in own if v.where["rank"] == 3)
    assert found.message.startswith(worst.message)
    assert (found.severity, found.cost and found.cost.value) == (
        worst.severity,
        worst.cost and worst.cost.value,
    )
    assert found.cost is not None
    assert found.cost.gpus == 4
    assert max((v.severity for v in own), key=["info", "warning", "error"].index) == found.severity


def test_a_cure_of_a_rank_that_others_are_slower_than_gains_the_run_nothing(tmp_path: Path) -> None:
    """Rank 0 loses a part of each step to its loader, yet rank 1 computes longer: curing the loader brings nothing."""
    from test_ranks import call

    from wellfed.analyze.collectives import series_of
    from wellfed.analyze.matching import match_ranks
    from wellfed.analyze.ranks import study_ranks

    quick = [call(1000 * k + 600, 1000 * k + 1000, seq=k) for k in range(30)]
    slow = [call(1000 * k + 900, 1000 * k + 1000, seq=k) for k in range(30)]
    matching = match_ranks([series_of(0, quick), series_of(1, slow)])
    what = study_ranks(matching, saves={"one": {0: 0.5}, "both": {0: 0.5, 1: 0.5}, "none": {}}).what_if
    assert what.cures["none"] == pytest.approx(1.0)
    assert what.cures["one"] == pytest.approx(1.0, abs=1e-3)
    assert what.cures["both"] == pytest.approx(1000 / 550, rel=0.05)
    assert what.hidden == pytest.approx(1000 / 900, rel=0.02)


# -- processes and clusters -------------------------------------------------------------------------------


def test_files_in_processes_give_what_one_process_gives(tmp_path: Path) -> None:
    job(tmp_path, ranks=3, slow=1, factor=1.5)
    (tmp_path / "broken.json").write_text("{")
    alone, spread = (api.trace(tmp_path, processes=n) for n in (1, 2))
    assert alone.ranks == spread.ranks
    assert alone.verdicts == spread.verdicts
    assert alone.together == spread.together


class Cluster:
    """What a cluster's client looks like: `submit` gives something with `result`."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def submit(self, function: Any, /, *arguments: Any) -> "Future[Any]":
        self.tasks.append(arguments[0])
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future


def test_a_cluster_gets_one_task_a_file_through_the_same_function(tmp_path: Path) -> None:
    job(tmp_path, ranks=3, slow=1, factor=1.5)
    cluster = Cluster()
    case = api.trace(tmp_path, executor=cluster)
    assert [p.name for p in cluster.tasks] == ["trace_0.json", "trace_1.json", "trace_2.json"]
    assert case.together == api.trace(tmp_path).together


class FakeRay:
    """Ray's client as the executor uses it: what goes to a task and comes back is pickled, as between machines."""

    def __init__(self) -> None:
        self.started: dict[str, Any] = {}
        self.calls = 0

    def init(self, **options: Any) -> None:
        self.started = options

    def remote(self, **options: Any) -> Any:
        def task(function: Any) -> Any:
            def submit(*arguments: Any) -> bytes:
                self.calls += 1
                there, given = pickle.loads(pickle.dumps((function, arguments)))
                return pickle.dumps(there(*given))

            return SimpleNamespace(remote=submit)

        return task

    def get(self, reference: bytes) -> Any:
        return pickle.loads(reference)


def test_ray_gets_one_task_a_file_and_all_that_crosses_can_be_pickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(tmp_path, ranks=3, slow=1, factor=1.5)
    (tmp_path / "trace_9.json").write_text("no trace")
    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    case = api.trace(tmp_path, executor=workers.ray_executor("ray://head:10001"))
    assert ray.started["address"] == "ray://head:10001"
    assert ray.calls == 4
    assert case.together == api.trace(tmp_path).together
    assert any("trace_9.json" in str(v.where) or "trace_9.json" in v.message for v in case.verdicts)


def test_processes_of_the_standard_library_do_as_a_cluster(tmp_path: Path) -> None:
    job(tmp_path, ranks=2, slow=1, factor=1.5)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert api.trace(tmp_path, executor=pool).together == api.trace(tmp_path).together


def test_a_cluster_that_is_not_there_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(WellfedError) as error:
        workers.ray_executor("auto")
    assert error.value.hint


def test_a_worker_s_error_comes_back_and_a_dead_worker_is_told() -> None:
    assert list(workers.map_files(abs, [-3, 2, -1], processes=2)) == [3, 2, 1]
    with pytest.raises(TypeError):
        list(workers.map_files(abs, ["x"], processes=2))
    with pytest.raises(WellfedError) as error:
        list(workers.map_files(__import__("os")._exit, [3], processes=2))
    assert "code 3" in error.value.message


def test_where_few_calls_are_on_all_ranks_nobody_is_acquitted(tmp_path: Path) -> None:
    case = api.trace(job(tmp_path, ranks=16, slow=5, factor=1.3, kept=0.8))
    assert case.together is not None
    assert 0 < case.together.matched < 0.2 * case.together.calls
    for name in ("straggler", "rank-imbalance", "unmatched-collectives"):
        assert named(case, name).verdict == "not-judged", name


# -- links ------------------------------------------------------------------------------------------------

MEASURED = [
    # stas00/ml-engineering@744d01e, network/README.md: all_reduce, GPUs, bytes, busbw GB/s, one way of the link GB/s
    ("8 x H200", 8, 32 << 20, 275.84, 450), ("8 x H200", 8, 1 << 30, 463.58, 450),
    ("8 x B200", 8, 32 << 20, 325.97, 900), ("8 x B200", 8, 1 << 30, 723.34, 900),
    ("8 x A100", 8, 1 << 30, 229.04, 300), ("8 x A100", 8, 16 << 30, 234.89, 300),
    ("4 x H200", 4, 8 << 30, 363.3, 450), ("4 x B200, no NVLS", 4, 8 << 30, 673.8, 900),
]  # fmt: skip


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: f"{row[0]} {row[2]}")
def test_sound_links_as_published_are_not_called_slow(row: tuple[str, int, int, float, float]) -> None:
    _, n, size, bus, link = row
    curve = link_curve("all_reduce", n, "nvlink", link * 1e9, "test")
    assert curve is not None
    took = size * 2 * (n - 1) / n / (bus * 1e9)
    assert took < 1.5 * float(expected_seconds(curve, [size])[0])


def nvlink_job(folder: Path, *, times: float) -> Path:
    """Eight H200 of one node; each all-reduce takes so many times what its link needs."""
    curve = link_curve("all_reduce", 8, "nvlink", 450e9, "")
    assert curve is not None
    for rank in range(8):
        events, at = [], 1000.0
        for step in range(4):
            begin = at
            for k in range(6):
                size = (32 << 20) << (k % 3)
                took = float(expected_seconds(curve, [size])[0]) * times * 1e6
                told = {
                    "Collective name": "allreduce", "In msg nelems": size // 4, "Out msg nelems": size // 4,
                    "Group size": 8, "dtype": "Float", "Process Group Name": "0",
                    "Process Group Ranks": str(list(range(8))), "Seq": 6 * step + k,
                }  # fmt: skip
                corr = len(events)
                events.append(kernel("gemm", at, 2000.0, corr=corr, device=rank))
                at += 2000.0
                comm = kernel(ALL_REDUCE, at, round(took, 3), corr=corr + 1, stream=20, device=rank)
                comm["args"] |= told
                events.append(comm)
                at = round(at + took, 3)
            events.append(event("user_annotation", f"ProfilerStep#{step}", begin, at - begin))
        (folder / f"rank{rank}.json").write_text(
            text_of(
                events,
                deviceProperties=[{"id": d, "name": "NVIDIA H200"} for d in range(8)],
                distributedInfo={"rank": rank, "world_size": 8},
            )
        )
    return folder


def test_a_link_far_below_its_curve_is_found_and_a_sound_one_is_not(tmp_path: Path) -> None:
    for name in ("slow", "sound"):
        (tmp_path / name).mkdir()
    slow = named(api.trace(nvlink_job(tmp_path / "slow", times=3.0)), "slow-link")
    assert slow.verdict == "finding"
    assert "3.0 times" in slow.message
    assert slow.gain is not None
    assert slow.gain.speedup is not None
    curve = link_curve("all_reduce", 8, "nvlink", 450e9, "")
    assert curve is not None
    needed = sum(float(t) for t in expected_seconds(curve, [(32 << 20) << (k % 3) for k in range(6)]))
    assert slow.gain.speedup == pytest.approx((12e-3 + 3 * needed) / (12e-3 + needed), rel=0.02)
    assert named(api.trace(nvlink_job(tmp_path / "sound", times=1.0)), "slow-link").verdict == "pass"


def test_a_network_must_be_in_the_catalogue(tmp_path: Path) -> None:
    with pytest.raises(WellfedError) as error:
        api.trace(write(tmp_path / "a.json", simulate().events), network="string")
    assert "ib-ndr" in (error.value.hint or "")


# -- the corpus -------------------------------------------------------------------------------------------


@pytest.mark.corpus
def test_the_facts_of_two_sampled_ranks_come_out(corpus: Path) -> None:
    """2 of 128 ranks, sampled, unnumbered: matched by end, waits and transfers as the file of facts has them."""
    told = json.loads((corpus / "traces" / "groups.json").read_text())["trace_filter_two_ranks"]
    case = api.trace([corpus / "traces" / name for name in told["files"]])
    together = case.together
    assert together is not None
    pairs = told["matched_by_end_within_500us_same_stream"]
    assert together.matched_by == {"end": 2 * len(pairs)}
    assert together.world == told["world_size"]
    assert together.calls == sum(told["comm_events"])
    for k, row in enumerate(together.waits):
        assert row.wait_ns == sum(p["wait_ns"][k] for p in pairs)
        assert row.comm_ns == sum(p["dur_ns"][k] for p in pairs)
    assert named(case, "missing-ranks").reason == "missing"
    assert named(case, "straggler").verdict == "not-judged"
    # ten of twenty: not all, though no group is refused
    assert named(case, "unmatched-collectives").verdict == "not-judged"
    assert "10 of 20" in named(case, "unmatched-collectives").message


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["kineto_resnet50_dataloader", "h200_data_starved"])
def test_before_and_after_pairs_have_their_steps_and_the_loader_s_idle(corpus: Path, name: str) -> None:
    told = json.loads((corpus / "traces" / "groups.json").read_text())[name]
    before, after = (api.trace(corpus / "traces" / file) for file in told["files"])
    for case, key in ((before, "before_step_ns"), (after, "after_step_ns")):
        steps = case.ranks[0].steps
        assert [s.end_ns - s.start_ns for s in steps] == told[key]
    assert named(before, "data-wait").severity == "error"
    assert named(after, "data-wait").verdict == "pass"


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["hardware_falconsai_vit", "hardware_bert_small"])
def test_one_model_on_two_gpus_has_its_events_span_and_idle(corpus: Path, name: str) -> None:
    told = json.loads((corpus / "traces" / "groups.json").read_text())[name]
    for k, file in enumerate(told["files"]):
        rank = api.trace(corpus / "traces" / file).ranks[0]
        assert rank.budget is not None
        assert rank.gpu_events == told["gpu_events"][k]
        assert (rank.budget.span_ns, rank.budget.idle_ns) == (told["span_ns"][k], told["idle_ns"][k])
        assert rank.budget.span_ns - rank.budget.idle_ns == told["busy_ns"][k]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "slowdown", "where"),
    [("ST", 1.1787, {"stage": 3}), ("AR", 1.9730, {"replica": 0, "stage": 0, "rank": 0})],
)
def test_records_of_a_pipeline_name_the_worker_or_the_stage(
    corpus: Path, name: str, slowdown: float, where: dict[str, int]
) -> None:
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    case = api.trace(corpus / "traces" / "straggler" / f"trace-{name}.parquet")
    assert case.pipeline is not None
    assert case.pipeline.slowdown == pytest.approx(slowdown, rel=0.02)
    found = named(case, "straggler")
    assert found.verdict == "finding"
    assert {k: v for k, v in found.where.items() if k != "file"} == where
    assert case.headline is not None
    assert found.message in case.headline.text
    assert decode_case(encode_case(case)) == case
