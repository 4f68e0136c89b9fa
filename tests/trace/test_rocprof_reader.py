"""rocprofv3's JSON: small files made here as the tool lays them out, and damaged ones."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wellfed import api
from wellfed.analyze.budget import Work, raw_budget
from wellfed.analyze.launches import Launches
from wellfed.analyze.steps import find_steps
from wellfed.ingest import read_file
from wellfed.model import WellfedError
from wellfed.model.timeline import Cat, Timeline

KINDS = {
    "NONE": [],
    "HIP_RUNTIME_API": ["hipApiName", "hipLaunchKernel", "hipMemcpyAsync", "hipGraphLaunch"],
    "MEMORY_COPY": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_HOST", "MEMORY_COPY_HOST_TO_DEVICE"],
    "KERNEL_DISPATCH": ["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_ENQUEUE", "KERNEL_DISPATCH_COMPLETE"],
    "MARKER_CORE_API": ["roctxMarkA", "roctxRangePushA", "roctxRangePop"],
    "RCCL_API": ["ncclAllGather", "ncclAllReduce"],
}
BASE = 63_000_000_000_000
CPU, GPU_A, GPU_B = 900, 901, 902


class Run:
    """One process of a file in the making; times in ns after BASE."""

    def __init__(self, pid: int = 77) -> None:
        self.pid = pid
        self.buffers: dict[str, list[dict[str, Any]]] = {
            k: [] for k in ("kernel_dispatch", "hip_api", "hsa_api", "marker_api", "rccl_api", "memory_copy")
        }
        self.messages: list[dict[str, Any]] = []

    def _record(
        self, buffer: str, kind: str, operation: int, start: int, end: int, corr: int, **more: Any
    ) -> "Run":
        self.buffers[buffer].append(
            {
                "size": 184,
                "kind": list(KINDS).index(kind),
                "operation": operation,
                "thread_id": self.pid,
                "correlation_id": {"internal": corr, "external": 0},
                "start_timestamp": BASE + start,
                "end_timestamp": BASE + end,
                **more,
            }
        )
        return self

    def kernel(
        self, number: int, start: int, end: int, corr: int, *, agent: int = GPU_A, stream: int = 3
    ) -> "Run":
        info = {"size": 72, "agent_id": {"handle": agent}, "queue_id": {"handle": 16}, "kernel_id": number}
        more = {"dispatch_info": info, "stream_id": {"handle": stream}}
        return self._record("kernel_dispatch", "KERNEL_DISPATCH", 2, start, end, corr, **more)

    def call(self, operation: int, start: int, end: int, corr: int) -> "Run":
        return self._record("hip_api", "HIP_RUNTIME_API", operation, start, end, corr)

    def copy(self, start: int, end: int, corr: int, *, source: int, target: int, size: int) -> "Run":
        agents = {"src_agent_id": {"handle": source}, "dst_agent_id": {"handle": target}, "bytes": size}
        operation = 2 if target != CPU else 1
        return self._record("memory_copy", "MEMORY_COPY", operation, start, end, corr, **agents)

    def range(self, message: str, start: int, end: int, corr: int) -> "Run":
        self.messages.append({"key": corr, "value": message})
        return self._record("marker_api", "MARKER_CORE_API", 1, start, end, corr)

    def told(self) -> dict[str, Any]:
        gpus = [
            {
                "size": 312,
                "id": {"handle": h},
                "type": 2,
                "name": "gfx942",
                "product_name": "AMD Instinct MI300X",
                "node_id": h - CPU,
                "logical_node_type_id": h - GPU_A,
            }
            for h in (GPU_A, GPU_B)
        ]
        cpu = {"size": 312, "id": {"handle": CPU}, "type": 1, "name": "CPU", "product_name": "CPU"}
        names = ["", "Cijk_gemm", "ncclDevKernel_Generic_4", "__amd_rocclr_fillBufferAligned"]
        return {
            "metadata": {"node": {"id": 0, "hostname": "box"}, "pid": self.pid, "init_time": 1},
            "agents": [cpu, *gpus],
            "strings": {
                "buffer_records": [{"kind": k, "operations": o} for k, o in KINDS.items()],
                "marker_api": self.messages,
            },
            "code_objects": [{"size": 88, "code_object_id": 1}],
            "kernel_symbols": [
                {"size": 88, "kernel_id": i, "kernel_name": n + ".kd", "formatted_kernel_name": n}
                for i, n in enumerate(names)
            ],
            "callback_records": {"counter_collection": []},
            "buffer_records": self.buffers,
        }  # fmt: skip


def loop(steps: int = 4, *, pid: int = 77, agent: int = GPU_A) -> Run:
    run, at, corr = Run(pid), 1_000_000, 0
    for step in range(steps):
        begin = at
        for k in range(10):
            corr += 1
            run.call(1, at, at + 5_000, corr)
            run.kernel(2 if k == 9 else 1, at + 20_000, at + 120_000, corr, agent=agent)
            at += 100_500
        run.range(f"step {step}", begin, at, 10_000 + step)
    return run


def text_of(*runs: Run) -> bytes:
    return json.dumps({"rocprofiler-sdk-tool": [run.told() for run in runs]}, separators=(",", ":")).encode()


def write(path: Path, *runs: Run) -> Path:
    data = text_of(*runs)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def one(path: Path) -> Timeline:
    (timeline,) = read_file(path)
    return timeline


def codes(timeline: Timeline) -> list[str]:
    return [w.code for w in timeline.warnings]


def named(timeline: Timeline, cat: Cat) -> list[str]:
    return [timeline.names[n] for n in timeline.name[timeline.cat == cat].tolist()]


def test_a_loop_is_read_whole(tmp_path: Path) -> None:
    t = one(write(tmp_path / "run_rank2_results.json.gz", loop()))
    assert (t.kind, t.rank, t.gpus, codes(t)) == ("rocprof", 2, {0: "AMD Instinct MI300X"}, [])
    assert t.base_ns == BASE + 1_000_000
    budget = raw_budget(Work(t, 0))
    assert budget is not None and budget.span_ns == 40 * 100_500 - 500 and budget.idle_ns == 39 * 500
    assert (budget.compute_ns, budget.exposed_comm_ns) == (36 * 100_000, 4 * 100_000)
    assert set(named(t, Cat.RUNTIME)) == {"hipLaunchKernel"}
    assert not Launches(t, Work(t, 0)).orphan.any()
    assert find_steps(t).names == ["step 0", "step 1", "step 2", "step 3"]


def test_copies_have_direction_bytes_and_device(tmp_path: Path) -> None:
    run = loop().copy(7_000_000, 7_100_000, 500, source=CPU, target=GPU_B, size=4096)
    run.copy(8_000_000, 8_100_000, 501, source=CPU, target=CPU, size=10)
    t = one(write(tmp_path / "t.json", run))
    row = int(np.flatnonzero(t.cat == Cat.MEMCPY)[0])
    assert named(t, Cat.MEMCPY) == ["Memcpy HtoD"]
    assert (t.size[row], t.device[row], set(t.gpus)) == (4096, 1, {0, 1})


def test_a_graph_launch_is_one_call_of_many_kernels(tmp_path: Path) -> None:
    run = loop().call(3, 7_000_000, 7_010_000, 900)
    for k in range(4):
        run.kernel(1, 7_020_000 + 1000 * k, 7_020_900 + 1000 * k, 900)
    launches = Launches(t := one(write(tmp_path / "t.json", run)), Work(t, 0))
    assert launches.size.max() == 4 and not launches.orphan.any()


def test_several_processes_are_ranks(tmp_path: Path) -> None:
    zero, first = read_file(write(tmp_path / "t.json", loop(pid=5), loop(pid=6, agent=GPU_B)))
    assert [(t.rank, set(t.gpus)) for t in (zero, first)] == [(0, {0}), (1, {1})]
    assert "ranks-by-order" in codes(zero)
    assert not any(Launches(t, Work(t, d)).orphan.any() for t, d in ((zero, 0), (first, 1)))


def test_a_file_of_one_process_need_not_be_a_list(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": loop().told()}))
    assert len(Work(one(path), 0).ts) == 40


def test_what_was_not_recorded_is_said(tmp_path: Path) -> None:
    run = loop()
    run.buffers["hip_api"] = []
    assert codes(one(write(tmp_path / "t.json", run))) == ["no-runtime-calls"]
    run.buffers["kernel_dispatch"] = []
    assert codes(one(write(tmp_path / "t.json", run))) == ["no-kernels-captured"]


def test_kernels_without_a_time_or_a_name_are_survived(tmp_path: Path) -> None:
    run = loop().kernel(99, 7_000_000, 7_000_500, 800).kernel(1, -BASE, -BASE, 801)
    t = one(write(tmp_path / "t.json", run))
    assert codes(t) == ["clock-trouble"] and "kernel 99" in t.names and len(Work(t, 0).ts) == 41


def test_a_broken_record_costs_itself(tmp_path: Path) -> None:
    data = text_of(loop())
    at = data.index(b'"kernel_dispatch":[') + 2000
    at = data.index(b'"start_timestamp"', at)
    path = tmp_path / "t.json"
    path.write_bytes(data[:at] + b'"start_timestamp":!' + data[at:])
    t = one(path)
    assert len(Work(t, 0).ts) == 39 and named(t, Cat.RUNTIME) == ["hipLaunchKernel"] * 40
    (warning,) = [w for w in t.warnings if w.code == "lost-events"]
    assert warning.count == 1 and "first at byte" in warning.sample
    assert t.gpus == {0: "AMD Instinct MI300X"} and len(find_steps(t)) == 4


def test_a_truncated_file_gives_what_is_left(tmp_path: Path) -> None:
    data = text_of(loop(40))
    path = tmp_path / "t.json"
    path.write_bytes(data[: data.index(b'"hip_api"') - 3000])
    t = one(path)
    assert 360 < len(Work(t, 0).ts) < 400 and "lost-events" in codes(t)
    packed = gzip.compress(data)
    path.write_bytes(packed[: len(packed) // 3])
    assert "truncated-archive" in codes(one(path))


@pytest.mark.parametrize("data", [b'{"rocprofiler-sdk-tool":[]}', b'{"rocprofiler-sdk-tool":[{"metadata":{'])
def test_nothing_in_it_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.json").write_bytes(data)
    with pytest.raises(WellfedError) as caught:
        read_file(tmp_path / "t.json")
    assert caught.value.hint


def test_endless_nesting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b'{"rocprofiler-sdk-tool":[{"x":' + b"[" * 200_000)
    with pytest.raises(WellfedError):
        read_file(tmp_path / "t.json")


def test_hostile_texts_take_no_longer_than_others(tmp_path: Path) -> None:
    """Each of these took minutes where strings or ends are searched for again."""
    for piece in (b'{"size":1,"kind":', b'"kernel_dispatch":[', b'"strings":{', b'"agents":[{"size":"\\"'):
        (tmp_path / "t.json").write_bytes(b'{"rocprofiler-sdk-tool":[{' + piece * 20_000)
        with pytest.raises(WellfedError):
            read_file(tmp_path / "t.json")


def test_any_mutation_is_survived(tmp_path: Path) -> None:
    data = text_of(loop(20))
    dice = random.Random(5)
    path, read = tmp_path / "t.json", 0
    for _ in range(200):
        bad = bytearray(data)
        for _ in range(dice.choice((1, 1, 4, 40))):
            bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        path.write_bytes(bad)
        try:
            timelines = read_file(path)
        except WellfedError:
            continue
        read += 1
        for t in timelines:
            assert len(t) <= 420 and (t.dur >= 0).all() and (np.diff(t.ts) >= 0).all()
            if bytes(bad).count(b'"size":184') > 380:
                assert len(t) >= 300
    assert read > 150


@pytest.mark.corpus
def test_a_public_run_comes_out_exactly(corpus: Path) -> None:
    name = "tracelens/rocprofv3_908_results.json.gz"
    told = json.loads((corpus / "traces" / "expected.json").read_text())[name]
    (rank,) = api.trace(corpus / "traces" / name).ranks
    assert rank.budget is not None and rank.gpu == told["device_names"][0]
    found = (rank.budget.span_ns, rank.budget.idle_ns, rank.budget.compute_ns, rank.budget.exposed_comm_ns)
    assert found == tuple(told[k] for k in ("span_ns", "idle_ns", "compute_ns", "exposed_comm_ns"))
    assert (rank.comm_ns, rank.comm_overlapped_ns) == (told["comm_ns"], told["comm_overlapped_ns"])
    assert rank.budget.exposed_copy_ns == told["exposed_memcpy_ns"] + told["exposed_memset_ns"] == 0
    assert rank.gpu_events == told["gpu_events"] and sum(rank.idle.values()) == rank.budget.idle_ns
