"""JAX's profiler traces: small ones made here as XLA lays them out, and damaged ones."""

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
from wellfed.ingest import find_traces, jax, kineto, read_file
from wellfed.model import WellfedError
from wellfed.model.timeline import Cat, Timeline

Event = dict[str, Any]
HOST, DEVICE, PYTHON = 701, 1, 4270766213


def meta(pid: int, name: str, tid: int | None = None) -> list[Event]:
    """What names a process or thread, with the sort index that stands beside it."""
    what = "process" if tid is None else "thread"
    place: Event = {"ph": "M", "pid": pid} if tid is None else {"ph": "M", "pid": pid, "tid": tid}
    return [
        {**place, "name": f"{what}_name", "args": {"name": name}},
        {**place, "name": f"{what}_sort_index", "args": {"sort_index": 1}},
    ]


def span(pid: int, tid: int, name: str, ts: float, dur: float, **args: Any) -> Event:
    event: Event = {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name}
    return {**event, "args": args} if args else event


def heads() -> list[Event]:
    return [
        *meta(DEVICE, "/device:GPU:0"),
        *meta(DEVICE, "Stream #16(Compute)", 16),
        *meta(DEVICE, "Stream #17(MemcpyH2D)", 17),
        *meta(DEVICE, "XLA Ops", 9000),
        *meta(DEVICE, "Steps", 9001),
        *meta(HOST, "/host:CPU"),
        *meta(HOST, "python", PYTHON),
        *meta(HOST, "tf_XLAEigen/12", 55),
    ]


def loop(steps: int = 4) -> list[Event]:
    """Ten kernels of 100 us a step, launched by the python thread, steps marked with StepTraceAnnotation."""
    events, at, corr = heads(), 1000.0, 0
    for step in range(steps):
        begin = at
        for k in range(10):
            corr += 1
            name = "ncclDevKernel_AllReduce_Sum_f32" if k == 9 else "loop_add_fusion_3"
            ids = {"correlation_id": str(corr), "context_id": "$$1"}
            events.append(span(HOST, PYTHON, "cuLaunchKernel", at, 5.0, **ids))
            details = {
                **ids,
                "kernel_details": "regs:16 grid:1,1,1",
                "hlo_op": "add.3",
                "hlo_module": "jit_f",
            }
            events.append(span(DEVICE, 16, name, at + 20.0, 100.0, **details))
            events.append(span(DEVICE, 9000, "add.3", at + 20.0, 100.0, hlo_op="add.3"))
            at += 100.5
        events.append(span(DEVICE, 9001, str(step), begin, at - begin))
        events.append(span(HOST, PYTHON, "train", begin, at - begin, step_num=str(step)))
        events.append(span(HOST, PYTHON, "$train.py:12 step", begin, 3.0))
        events.append(span(HOST, PYTHON, "PjitFunction(f)", begin, 4.0))
        events.append(span(HOST, PYTHON, "load batch", begin, 1.0))
    return events


def text_of(events: list[Event]) -> bytes:
    head = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
    return json.dumps({**head, "traceEvents": [*events, {}]}, separators=(",", ":")).encode()


def write(path: Path, events: list[Event]) -> Path:
    data = text_of(events)
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
    t = one(write(tmp_path / "host.trace.json.gz", loop()))
    assert (t.kind, t.gpus, codes(t)) == ("jax", {0: ""}, [])
    work = Work(t, 0)
    budget = raw_budget(work)
    assert budget is not None and len(work.ts) == 40  # the threads that repeat the streams are left out
    assert budget.span_ns == 40 * 100_500 - 500 and budget.idle_ns == 39 * 500
    assert (budget.compute_ns, budget.exposed_comm_ns) == (36 * 100_000, 4 * 100_000)
    assert set(t.stream[t.is_gpu].tolist()) == {16}
    launches = Launches(t, work)
    assert not launches.orphan.any()
    assert {t.threads[k] for k in launches.threads} == {("/host:CPU", f"python/{PYTHON}")}
    assert find_steps(t).names == [f"step {k} (train)" for k in range(4)]


def test_host_rows_are_told_apart(tmp_path: Path) -> None:
    t = one(write(tmp_path / "t.trace.json", loop(1)))
    assert set(named(t, Cat.PYTHON)) == {"$train.py:12 step"}
    assert set(named(t, Cat.OP)) == {"PjitFunction(f)"}
    assert set(named(t, Cat.ANNOTATION)) == {"step 0 (train)", "load batch"}
    assert set(named(t, Cat.DRIVER)) == {"cuLaunchKernel"}


def test_copies_sets_and_allocations(tmp_path: Path) -> None:
    events = [
        *loop(1),
        span(DEVICE, 17, "MemcpyH2D", 3000.0, 50.0, correlation_id="900",
             memcpy_details="kind_src:pageable kind_dst:device size:4096 dest:0 async:1"),
        span(DEVICE, 17, "MemcpyD2D", 3100.0, 50.0, memcpy_details="kind:Unknown size:8 dest:0 async:1"),
        span(DEVICE, 17, "Memset", 3200.0, 1.0, memset_details="kind:device size:64"),
        span(DEVICE, 17, "MemoryAlloc", 3300.0, 900.0, memalloc_details="num_bytes:64"),
        span(HOST, PYTHON, "MemcpyH2D", 2990.0, 5.0, correlation_id="900", memcpy_details="size:4096"),
    ]  # fmt: skip
    t = one(write(tmp_path / "t.json", events))
    assert named(t, Cat.MEMCPY) == ["Memcpy HtoD (Pageable -> Device)", "Memcpy DtoD"]
    assert t.size[t.cat == Cat.MEMCPY].tolist() == [4096, 8]
    assert named(t, Cat.MEMSET) == ["Memset"] and "MemoryAlloc" not in t.names
    work = Work(t, 0)
    launches = Launches(t, work)
    copy = int(np.flatnonzero(work.copy)[0])
    assert not launches.orphan[copy] and named(t, Cat.RUNTIME) == ["MemcpyH2D"]


def test_picoseconds_leave_no_gap(tmp_path: Path) -> None:
    events, at = heads(), 123456.789123
    for k in range(200):
        events.append(span(DEVICE, 16, "k", at, 3.333333, kernel_details="x", correlation_id=str(k + 1)))
        at = round(at + 3.333333, 6)
    budget = raw_budget(Work(one(write(tmp_path / "t.json", events)), 0))
    assert budget is not None and budget.idle_ns == 0 and abs(budget.span_ns - 666_667) <= 1


def test_several_gpus_are_devices_of_one_rank(tmp_path: Path) -> None:
    events = [*loop(2), *meta(2, "/device:GPU:1"), *meta(2, "Stream #3(Compute)", 3)]
    events.append(span(2, 3, "other", 1500.0, 9.0, kernel_details="x"))
    path = write(tmp_path / "t.json", events)
    assert set(one(path).gpus) == {0, 1} and [r.device for r in api.trace(path).ranks] == [0, 1]


def test_the_copy_for_perfetto_is_read_but_not_twice(tmp_path: Path) -> None:
    write(tmp_path / "box.trace.json.gz", loop())
    other = {"displayTimeUnit": "ns", "traceEvents": loop()}  # written by another writer, with spaces
    (tmp_path / "perfetto_trace.json.gz").write_bytes(gzip.compress(json.dumps(other).encode()))
    assert [p.name for p in find_traces([tmp_path])] == ["box.trace.json.gz"]
    assert len(Work(one(tmp_path / "perfetto_trace.json.gz"), 0).ts) == 40


def test_pytorchs_traces_are_not_taken_for_jaxs() -> None:
    head = b'{"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": [{"name": "/host:CPU"'
    assert not jax.matches(head, "t.json") and kineto.matches(head, "t.json")
    assert not jax.matches(b"", "t.trace.json.gz")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    host_only = [e for e in loop() if e["pid"] == HOST]
    assert codes(one(write(tmp_path / "t.json", host_only))) == ["no-kernels-captured"]
    tpu = [*meta(5, "/device:TPU:0"), *meta(5, "XLA Ops", 1), span(5, 1, "fusion", 1.0, 2.0), *host_only]
    t = one(write(tmp_path / "t.json", tpu))
    assert "TPU" in t.warnings[0].sample and "fusion" not in t.names
    no_calls = [e for e in loop() if e["name"] != "cuLaunchKernel"]
    assert codes(one(write(tmp_path / "t.json", no_calls))) == ["no-runtime-calls"]


def test_a_full_export_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "CAP", 1100)
    assert codes(one(write(tmp_path / "t.json", loop(5)))) == ["capped"]


def test_a_broken_event_costs_itself(tmp_path: Path) -> None:
    data = text_of(loop())
    at = data.index(b'"name":"loop_add_fusion_3"', 3000)
    (tmp_path / "t.json").write_bytes(data[:at] + b'"name":"bro\nken' + data[at + 7 :])
    t = one(tmp_path / "t.json")
    assert len(Work(t, 0).ts) == 39 and [(w.code, w.count) for w in t.warnings] == [("lost-events", 1)]
    (tmp_path / "t.json").write_bytes(data[: len(data) // 2])
    assert 0 < len(Work(one(tmp_path / "t.json"), 0).ts) < 40
    packed = gzip.compress(data)
    (tmp_path / "t.json").write_bytes(packed[:-200])
    assert "truncated-archive" in codes(one(tmp_path / "t.json"))


def test_nothing_in_it_is_an_error(tmp_path: Path) -> None:
    for rest in (b'"traceEvents":[{"x', b'"x":' + b"[" * 200_000):
        (tmp_path / "t.json").write_bytes(b'{"metadata":{"highres-ticks":true},' + rest)
        with pytest.raises(WellfedError) as caught:
            read_file(tmp_path / "t.json")
        assert caught.value.hint


def test_numbers_beyond_all_bounds_are_dropped(tmp_path: Path) -> None:
    events = [*loop(), span(DEVICE, 16, "far", 1e300, 1e300, kernel_details="x")]
    events.append(span(DEVICE, 16, "long", 1.0, 1e308, kernel_details="x"))
    events.append(span(DEVICE, 16, "big id", 1005.0, 1.0, kernel_details="x", correlation_id=10**18))
    t = one(write(tmp_path / "t.json", events))
    assert codes(t) == ["clock-trouble", "bad-duration"] and len(Work(t, 0).ts) == 41


def test_hostile_texts_take_no_longer_than_others(tmp_path: Path) -> None:
    """Each of these took minutes, or ended in a traceback, where strings or ends are searched for again."""
    head = b'{"metadata":{"highres-ticks":true},"traceEvents":['
    n = 20_000
    for body in (
        b'{"ph":"X","name":"' * n,
        b'{"ph":"X","name":"' + b'\\"' * n,
        b'{"ph":"X","name":"' + b'\\"' * n + b"\\",
        b'{"ph":"X","a":' + b'{"a":' * n,
    ):
        (tmp_path / "t.json").write_bytes(head + body)
        with pytest.raises(WellfedError):
            read_file(tmp_path / "t.json")


def test_any_mutation_is_survived(tmp_path: Path) -> None:
    data = text_of(loop(10))
    whole = len(one(write(tmp_path / "t.json", loop(10))))
    dice = random.Random(7)
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
            assert len(t) <= whole + 100 and (t.dur >= 0).all() and (np.diff(t.ts) >= 0).all()
    assert read > 150
