"""Nsight Systems exports: small ones made here with the tables that nsys writes, and damaged ones."""

import json
import random
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wellfed import api
from wellfed.analyze.budget import Work, raw_budget
from wellfed.analyze.launches import Launches
from wellfed.analyze.steps import find_steps
from wellfed.ingest import find_traces, read_file, read_timelines, sqlite
from wellfed.model import WellfedError
from wellfed.model.timeline import Cat, Timeline

GPU = "CUPTI_ACTIVITY_KIND_"
COMMON = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
COLUMNS = {
    GPU + "KERNEL": (*COMMON, "demangledName", "shortName", "graphNodeId"),
    GPU + "MEMCPY": (*COMMON, "bytes", "copyKind", "srcKind", "dstKind"),
    GPU + "MEMSET": (*COMMON, "bytes", "memKind"),
    GPU + "GRAPH_TRACE": (*COMMON, "graphId", "graphExecId"),
    GPU + "RUNTIME": ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"),
    GPU + "SYNCHRONIZATION": (*COMMON, "syncType", "eventId", "eventSyncId"),
    GPU + "CUDA_EVENT": ("timestamp", "correlationId", "globalPid", "eventId", "eventSyncId"),
    GPU + "OVERHEAD": ("start", "end", "globalTid", "correlationId", "nameId", "overheadType"),
    "NVTX_EVENTS": ("start", "end", "eventType", "rangeId", "text", "globalTid", "textId", "domainId"),
    "TARGET_INFO_GPU": ("id", "name", "smCount"),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid"),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", "utcTime"),
    "DIAGNOSTIC_EVENT": ("timestamp", "severity", "text"),
    "META_DATA_EXPORT": ("name", "value"),
    "StringIds": ("id", "value"),
}
TEXT = {"text", "value", "name", "utcTime"}
VM = 1 << 48


def pid(number: int) -> int:
    return VM | number << 24


def tid(number: int, thread: int = 7) -> int:
    return pid(number) | thread


class Export:
    """An export in the making: `add` takes a table and its values by column."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.strings: dict[str, int] = {}
        self.dropped: set[tuple[str, str]] = set()
        self.renamed: dict[str, str] = {}
        self.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2026.2.1.210")
        self.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.25.0")

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    def add(self, table: str, **values: Any) -> "Export":
        self.rows.setdefault(table, []).append(values)
        return self

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        corr: int,
        *,
        process: int = 10,
        device: int = 0,
        stream: int = 7,
        **more: Any,
    ) -> "Export":
        return self.add(
            GPU + "KERNEL",
            start=start,
            end=end,
            deviceId=device,
            streamId=stream,
            correlationId=corr,
            globalPid=pid(process),
            demangledName=self.string(name),
            shortName=self.string(name.partition("<")[0]),
            **more,
        )

    def copy(
        self, start: int, end: int, corr: int, *, kind: int, source: int, target: int, size: int
    ) -> "Export":
        return self.add(
            GPU + "MEMCPY",
            start=start,
            end=end,
            deviceId=0,
            streamId=7,
            correlationId=corr,
            globalPid=pid(10),
            bytes=size,
            copyKind=kind,
            srcKind=source,
            dstKind=target,
        )

    def call(self, name: str, start: int, end: int, corr: int, *, process: int = 10) -> "Export":
        return self.add(
            GPU + "RUNTIME",
            start=start,
            end=end,
            eventClass=0,
            globalTid=tid(process),
            correlationId=corr,
            nameId=self.string(name),
            returnValue=0,
        )

    def range(
        self, text: str | None, start: int, end: int | None, *, process: int = 10, **more: Any
    ) -> "Export":
        values = {"eventType": 59, "globalTid": tid(process), "domainId": 0, **more}
        return self.add("NVTX_EVENTS", text=text, start=start, end=end, **values)

    def write(self, path: Path, *, more: Iterable[str] = ()) -> Path:
        path.unlink(missing_ok=True)
        db = sqlite3.connect(path)
        rows = {**self.rows, "StringIds": [{"id": i, "value": t} for t, i in self.strings.items()]}
        for table, values in rows.items():
            columns = [c for c in COLUMNS[table] if (table, c) not in self.dropped]
            typed = ", ".join(
                f'"{c}" {"TEXT" if c in TEXT else "INTEGER"}'
                + (" PRIMARY KEY" if (table, c) == ("StringIds", "id") else "")
                for c in columns
            )
            name = self.renamed.get(table, table)
            db.execute(f'CREATE TABLE "{name}" ({typed})')
            marks = ", ".join("?" * len(columns))
            db.executemany(
                f'INSERT INTO "{name}" VALUES ({marks})', [[row.get(c) for c in columns] for row in values]
            )
        for statement in more:
            db.execute(statement)
        db.commit()
        db.close()
        return path


def loop(steps: int = 4, *, process: int = 10, device: int = 0) -> Export:
    """A training loop: 10 kernels of 100 us a step, each launched ahead, with NVTX steps."""
    export = Export()
    export.add("TARGET_INFO_GPU", id=0, name="NVIDIA H200", smCount=132)
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000 * 10**9)
    add_loop(export, steps, process=process, device=device)
    return export


def add_loop(export: Export, steps: int, *, process: int, device: int, at: int = 1_000_000) -> None:
    corr, gpu = 0, at + 20_000
    for step in range(steps):
        begin = at
        for k in range(10):
            corr += 1
            export.call("cudaLaunchKernel_v7000", at, at + 5_000, corr, process=process)
            name = "ncclDevKernel_AllReduce_Sum_bf16(args)" if k == 9 else "gemm<float>(float*)"
            export.kernel(name, gpu, gpu + 100_000, corr, process=process, device=device)
            at, gpu = at + 100_500, gpu + 100_500
        export.range(f"step {step}", begin, at, process=process)


def one(path: Path) -> Timeline:
    (timeline,) = read_file(path)
    return timeline


def codes(timeline: Timeline) -> list[str]:
    return [w.code for w in timeline.warnings]


def named(timeline: Timeline, cat: Cat) -> list[str]:
    return [timeline.names[n] for n in timeline.name[timeline.cat == cat].tolist()]


# -- what is read -----------------------------------------------------------------------------------------


def test_a_loop_is_read_whole(tmp_path: Path) -> None:
    t = one(loop().write(tmp_path / "report_rank3.sqlite"))
    assert (t.kind, t.rank, t.gpus, codes(t)) == ("nsys", 3, {0: "NVIDIA H200"}, [])
    assert t.base_ns == 1_700_000_000 * 10**9 + 1_000_000 and int(t.ts[0]) == 0
    assert t.options["EXPORT_SCHEMA_VERSION"] == "3.25.0"
    assert set(named(t, Cat.KERNEL)) == {
        "gemm<float>(float*)",
        "ncclDevKernel_AllReduce_Sum_bf16(args)",
    }
    assert set(named(t, Cat.RUNTIME)) == {"cudaLaunchKernel"}
    budget = raw_budget(Work(t, 0))
    assert budget is not None
    assert budget.span_ns == 40 * 100_500 - 500 and budget.idle_ns == 39 * 500
    assert (budget.compute_ns, budget.exposed_comm_ns) == (36 * 100_000, 4 * 100_000)
    assert not Launches(t, Work(t, 0)).orphan.any()
    steps = find_steps(t)
    assert steps.names == [f"step {k}" for k in range(4)] and steps.source == "step #"


def test_the_whole_of_a_trace_is_judged(tmp_path: Path) -> None:
    case = api.trace(loop(8).write(tmp_path / "t.sqlite"))
    (rank,) = case.ranks
    assert len(rank.steps) == 8 and rank.step_budget is not None
    assert rank.step_budget.span_ns == pytest.approx(1_005_000, rel=0.02)
    loud = {v.name for v in case.verdicts if v.verdict == "finding" and v.severity != "info"}
    assert loud == {"exposed-comm"}  # a tenth of the step, and nothing else


def test_copies_are_named_as_the_causes_know_them(tmp_path: Path) -> None:
    export = loop()
    export.copy(10_000_000, 12_000_000, 901, kind=1, source=0, target=2, size=1 << 20)
    export.copy(12_000_000, 13_000_000, 902, kind=2, source=2, target=1, size=4)
    export.copy(13_000_000, 14_000_000, 903, kind=8, source=2, target=2, size=8)
    export.add(
        GPU + "MEMSET",
        start=14_000_000,
        end=14_001_000,
        deviceId=0,
        streamId=7,
        correlationId=904,
        globalPid=pid(10),
        bytes=64,
        memKind=2,
    )
    t = one(export.write(tmp_path / "t.sqlite"))
    assert named(t, Cat.MEMCPY) == [
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy DtoH (Device -> Pinned)",
        "Memcpy DtoD (Device -> Device)",
    ]
    assert named(t, Cat.MEMSET) == ["Memset (Device)"]
    assert t.size[t.cat == Cat.MEMCPY].tolist() == [1 << 20, 4, 8]


def test_pageable_copies_are_a_finding(tmp_path: Path) -> None:
    export = Export().add("TARGET_INFO_GPU", id=0, name="NVIDIA H200", smCount=132)
    at = 1_000_000
    for step in range(6):
        export.range(f"step {step}", at, at + 9_900_000)
        export.call("cudaMemcpyAsync_v3020", at + 10_000, at + 8_010_000, 2 * step + 1)
        export.copy(at + 20_000, at + 8_000_000, 2 * step + 1, kind=1, source=0, target=2, size=50_000_000)
        export.call("cudaLaunchKernel_v7000", at + 8_020_000, at + 8_025_000, 2 * step + 2)
        export.kernel("gemm", at + 8_030_000, at + 9_900_000, 2 * step + 2)
        at += 9_900_000
    case = api.trace(export.write(tmp_path / "t.sqlite"))
    top = next(v for v in case.verdicts if v.verdict == "finding")
    assert (top.name, top.severity) == ("pageable-copy", "error")


def test_graphs_count_once_by_node_or_as_a_whole(tmp_path: Path) -> None:
    export = loop()
    export.call("cudaGraphLaunch_v10000", 9_000_000, 9_010_000, 500)
    for k in range(3):
        export.kernel("node", 9_020_000 + k * 1000, 9_020_900 + k * 1000, 500, graphNodeId=k)
    row = {"deviceId": 0, "streamId": 7, "globalPid": pid(10), "graphId": 4}
    export.add(GPU + "GRAPH_TRACE", start=9_020_000, end=9_022_900, correlationId=500, **row)
    export.call("cudaGraphLaunch_v10000", 9_100_000, 9_110_000, 501)
    export.add(GPU + "GRAPH_TRACE", start=9_120_000, end=9_190_000, correlationId=501, **row)
    t = one(export.write(tmp_path / "t.sqlite"))
    assert [n for n in named(t, Cat.KERNEL) if "graph" in n] == ["CUDA graph 4"]
    warning = next(w for w in t.warnings if w.code == "graph-as-one")
    assert warning.count == 1 and "--cuda-graph-trace=node" in warning.sample
    launches = Launches(t, Work(t, 0))
    assert not launches.orphan.any() and launches.size.max() == 3


def test_waits_know_the_record_they_wait_for(tmp_path: Path) -> None:
    export = loop()
    wait = {"deviceId": 0, "streamId": 7, "globalPid": pid(10), "start": 2_000_000, "end": 2_001_000}
    export.add(GPU + "SYNCHRONIZATION", **wait, correlationId=70, syncType=2, eventId=3, eventSyncId=12)
    export.add(GPU + "SYNCHRONIZATION", **wait, correlationId=71, syncType=3, eventSyncId=2**32 - 1)
    event = {"timestamp": 0, "globalPid": pid(10), "eventId": 3}
    export.add(GPU + "CUDA_EVENT", **event, correlationId=60, eventSyncId=11)
    export.add(GPU + "CUDA_EVENT", **event, correlationId=61, eventSyncId=12)
    t = one(export.write(tmp_path / "t.sqlite"))
    sync = t.cat == Cat.SYNC
    assert sorted(named(t, Cat.SYNC)) == ["Stream Sync", "Stream Wait Event"]
    assert dict(zip(t.corr[sync].tolist(), t.wait_corr[sync].tolist(), strict=True)) == {70: 61, 71: -1}


def test_only_the_profilers_own_cost_is_overhead(tmp_path: Path) -> None:
    export = loop()
    for kind in (3, 6, 8):
        row = {"globalTid": tid(10), "nameId": export.string("x"), "overheadType": kind}
        export.add(GPU + "OVERHEAD", start=kind * 100_000, end=kind * 100_000 + 500, **row)
    t = one(export.write(tmp_path / "t.sqlite"))
    assert named(t, Cat.OVERHEAD) == ["Buffer flush (Profiler)"]
    assert {"Runtime module loading (CUDA)", "Command buffer full (CUDA)"} <= set(named(t, Cat.ANNOTATION))


def test_ranges_by_text_by_number_and_of_emit_nvtx(tmp_path: Path) -> None:
    export = loop()
    export.range(None, 100, 200, textId=export.string("registered"))
    export.range(None, 300, 400, textId=999_999)
    export.range("a mark", 500, 500, eventType=34)
    export.range("start/end", 600, 700, eventType=60)
    export.range("aten::mm, seq = 12, op_id = 88, sizes = [[2, 3], [3, 4]]", 800, 900)
    export.range("AddmmBackward0, op_id = 89", 900, 950)
    export.range("iteration 3, op_id = 90", 960, 970)
    export.range("unclosed", 980, None)
    t = one(export.write(tmp_path / "t.sqlite"))
    notes = set(named(t, Cat.ANNOTATION))
    assert {"registered", "start/end", "iteration 3", "unclosed"} <= notes and "a mark" not in notes
    assert named(t, Cat.OP) == ["aten::mm", "AddmmBackward0"]
    assert codes(t) == ["unnamed-ranges", "unfinished-events"]
    assert int(t.dur[t.name == t.names.index("unclosed")][0]) > 3_000_000


def test_steps_called_iteration_are_steps(tmp_path: Path) -> None:
    export = Export()
    for k in range(5):
        export.range("iteration", k * 1000, k * 1000 + 990)
        export.kernel("gemm", k * 1000 + 10, k * 1000 + 900, k + 1)
    assert len(find_steps(one(export.write(tmp_path / "t.sqlite")))) == 5


# -- several processes and devices --------------------------------------------------------------------------


def test_each_process_with_its_own_gpu_is_a_rank(tmp_path: Path) -> None:
    export = loop(3, process=20, device=1)
    add_loop(export, 3, process=21, device=0)
    export.range("of a process without a GPU", 5, 900_000_000, process=30)
    path = export.write(tmp_path / "t.sqlite")
    zero, first = read_file(path)
    assert (zero.rank, first.rank) == (0, 1) and (set(zero.gpus), set(first.gpus)) == ({0}, {1})
    assert "ranks-by-order" in codes(zero)
    for timeline, device in ((zero, 0), (first, 1)):
        work = Work(timeline, device)
        assert len(work.ts) == 30 and not Launches(timeline, work).orphan.any()
        assert len(find_steps(timeline)) == 3
        assert "of a process without a GPU" not in timeline.names
    assert [t.rank for t in read_timelines([path], ranks=[1])] == [1]


def test_what_a_process_calls_its_device_is_looked_up(tmp_path: Path) -> None:
    export = loop(3, process=20)
    add_loop(export, 3, process=21, device=0)
    for gpu, process in ((5, 20), (2, 21)):
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=process)
        export.add("TARGET_INFO_GPU", id=gpu, name=f"GPU {gpu}", smCount=1)
    found = read_file(export.write(tmp_path / "t.sqlite"))
    assert [t.gpus for t in found] == [{2: "GPU 2"}, {5: "GPU 5"}]


def test_processes_that_share_a_device_stay_together(tmp_path: Path) -> None:
    export = loop(3, process=20)
    add_loop(export, 3, process=21, device=0, at=1_050_000)
    t = one(export.write(tmp_path / "t.sqlite"))
    work = Work(t, 0)
    assert len(work.ts) == 60 and not Launches(t, work).orphan.any()
    assert "shared-device" in codes(t)


def test_one_process_with_two_devices_is_one_rank(tmp_path: Path) -> None:
    export = loop(3)
    export.kernel("other", 2_000_000, 3_000_000, 800, device=1)
    t = one(export.write(tmp_path / "t.sqlite"))
    assert set(t.gpus) == {0, 1} and len(api.trace(tmp_path / "t.sqlite").ranks) == 2


# -- what is missing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("without", "code"),
    [
        (GPU + "RUNTIME", "no-runtime-calls"),
        ("NVTX_EVENTS", "no-nvtx"),
        ("TARGET_INFO_GPU", "no-gpu-names"),
        ("TARGET_INFO_SESSION_START_TIME", None),
    ],
)
def test_missing_tables_degrade(tmp_path: Path, without: str, code: str | None) -> None:
    export = loop()
    del export.rows[without]
    t = one(export.write(tmp_path / "t.sqlite"))
    assert codes(t) == ([code] if code else [])
    assert len(Work(t, 0).ts) == 40


def test_missing_columns_degrade_and_are_named(tmp_path: Path) -> None:
    export = loop()
    export.dropped = {
        (GPU + "KERNEL", c) for c in ("globalPid", "demangledName", "streamId", "contextId", "graphNodeId")
    }
    t = one(export.write(tmp_path / "t.sqlite"))
    (warning,) = t.warnings
    assert (warning.code, warning.count) == ("missing-columns", 3)
    assert "streamId, globalPid, demangledName" in warning.sample
    assert "gemm" in named(t, Cat.KERNEL) and not Launches(t, Work(t, 0)).orphan.any()


def test_a_table_without_times_is_left_out(tmp_path: Path) -> None:
    export = loop()
    export.dropped = {(GPU + "KERNEL", "end")}
    t = one(export.write(tmp_path / "t.sqlite"))
    assert codes(t) == ["missing-columns", "no-kernels-captured"] and not t.is_gpu.any()


def test_newer_versions_of_tables_are_taken(tmp_path: Path) -> None:
    export = loop()
    export.renamed = {GPU + "KERNEL": GPU + "KERNEL_V3", "NVTX_EVENTS": "NVTX_EVENTS_V2"}
    t = one(export.write(tmp_path / "t.sqlite", more=[f"CREATE TABLE {GPU}KERNEL (start INTEGER)"]))
    assert codes(t) == [] and len(Work(t, 0).ts) == 40 and len(find_steps(t)) == 4


def test_calls_without_kernels_name_the_cure(tmp_path: Path) -> None:
    export = loop()
    del export.rows[GPU + "KERNEL"]
    t = one(export.write(tmp_path / "t.sqlite"))
    (warning,) = t.warnings
    assert warning.code == "no-kernels-captured" and "CuptiUseRawGpuTimestamps=false" in warning.sample
    assert t.gpus == {}


def test_an_unknown_schema_is_said_and_read(tmp_path: Path) -> None:
    export = loop()
    export.rows["META_DATA_EXPORT"][1]["value"] = "4.0.1"
    assert codes(one(export.write(tmp_path / "t.sqlite"))) == ["unknown-schema"]
    del export.rows["META_DATA_EXPORT"]
    assert codes(one(export.write(tmp_path / "t.sqlite"))) == ["unknown-schema"]


def test_times_that_cannot_be_are_dropped_and_counted(tmp_path: Path) -> None:
    export = loop()
    export.kernel("untimed", 0, 0, 901).kernel("backwards", 2_000_000, 1_000_000, 902)
    export.kernel("far", 9 * 10**18, 9 * 10**18 + 5, 903)
    t = one(export.write(tmp_path / "t.sqlite"))
    assert codes(t) == ["no-time", "clock-trouble", "bad-duration"] and len(Work(t, 0).ts) == 40


def test_what_nsys_said_of_lost_events_is_passed_on(tmp_path: Path) -> None:
    export = loop()
    for severity, text in (
        (1, "all fine"),
        (2, "cannot trace memory"),
        (2, "Not all CUDA events were collected"),
    ):
        export.add("DIAGNOSTIC_EVENT", timestamp=0, severity=severity, text=text)
    t = one(export.write(tmp_path / "t.sqlite"))
    assert [w.sample for w in t.warnings] == ["Not all CUDA events were collected"]


# -- what is refused ----------------------------------------------------------------------------------------


def refused(path: Path) -> WellfedError:
    with pytest.raises(WellfedError) as caught:
        read_file(path)
    assert "\n" not in caught.value.message and caught.value.hint
    return caught.value


def test_reports_are_exported_where_nsys_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop().write(tmp_path / "made.sqlite")
    tools = tmp_path / "tools"
    tools.mkdir()
    nsys = tools / "nsys"
    nsys.write_text(
        "#!/bin/sh\n"
        'case "$6" in *broken*) echo "Importer error: bad magic" >&2; exit 3;; esac\n'
        f'[ "$1 $2 $3 $4" = "export --type sqlite --output" ] && cat "{tmp_path}/made.sqlite" > "$5"\n'
    )
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    report = tmp_path / "-o rank_3.nsys-rep"
    report.write_bytes(b"\x00binary")
    (found,) = read_file(report)
    (expected,) = read_file(tmp_path / "made.sqlite")
    assert (found.source, found.rank) == (report.name, 3) and (found.ts == expected.ts).all()
    (tmp_path / "broken.nsys-rep").write_bytes(b"x")
    assert "bad magic" in refused(tmp_path / "broken.nsys-rep").message
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "-o rank_3.nsys-rep", "broken.nsys-rep", "made.sqlite", "tools",
    ]  # fmt: skip


def test_reports_name_the_command_that_exports_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "my run.nsys-rep").write_bytes(b"\x00binary")
    (tmp_path / "x.qdstrm").write_bytes(b"\x00binary")
    error = refused(tmp_path / "my run.nsys-rep")
    assert f"nsys export --type sqlite -o '{tmp_path}/my run.sqlite'" in (error.hint or "")
    assert "QdstrmImporter" in (refused(tmp_path / "x.qdstrm").hint or "")


def test_other_sqlite_files_are_told_apart(tmp_path: Path) -> None:
    for name, table, says in (
        ("a", "history (url TEXT)", "no export of Nsight Systems"),
        ("b", "rocpd_kernel_dispatch_1 (id INTEGER)", "rocpd"),
    ):
        db = sqlite3.connect(tmp_path / name)
        db.execute(f"CREATE TABLE {table}")
        db.commit()
        db.close()
        assert says in refused(tmp_path / name).message
    (tmp_path / "c").write_bytes(sqlite.MAGIC + bytes(200))
    assert "damaged SQLite file" in refused(tmp_path / "c").message


def test_views_triggers_and_computed_columns_are_never_run(tmp_path: Path) -> None:
    export = loop()
    kernels = export.rows.pop(GPU + "KERNEL")
    endless = (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS start, n AS stop FROM r"
    )
    path = export.write(
        tmp_path / "t.sqlite",
        more=[
            f"CREATE VIEW {GPU}KERNEL AS {endless}",
            f'CREATE TABLE {GPU}MEMSET (start INTEGER, "end" INTEGER GENERATED ALWAYS AS (start + 1) VIRTUAL)',
            f"INSERT INTO {GPU}MEMSET (start) VALUES (1)",
            "CREATE TRIGGER boom AFTER INSERT ON StringIds BEGIN DELETE FROM StringIds; END",
        ],
    )
    before = path.read_bytes()
    t = one(path)
    assert kernels and not t.is_gpu.any() and codes(t) == ["missing-columns", "no-kernels-captured"]
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["t.sqlite"]


def test_giant_texts_nobody_asked_for_are_not_read(tmp_path: Path) -> None:
    export = loop()
    export.string("x" * (3 << 20))  # what the program printed: nsys keeps it among the names
    assert codes(one(export.write(tmp_path / "t.sqlite"))) == []


def test_a_giant_name_costs_itself(tmp_path: Path) -> None:
    export = loop()
    export.kernel("y" * (3 << 20), 9_000_000, 9_100_000, 950)
    t = one(export.write(tmp_path / "t.sqlite"))
    assert "damaged-table" in codes(t) and max(map(len, t.names)) < 1000 and len(Work(t, 0).ts) == 41


def test_more_than_a_file_can_hold_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = loop(40).write(tmp_path / "t.sqlite")
    with sqlite.open_tables(path) as tables:
        monkeypatch.setattr(tables, "_size", 100)
        assert len(tables.integers(GPU + "KERNEL", ["start"])["start"]) == 0
        assert list(tables.scan("NVTX_EVENTS", ["start"], text="text")) == []
        assert tables.texts("StringIds", range(1, 50)) != {}
    assert {why for why, _ in tables.damage.values()} == {"more rows or text than the file has bytes"}


def test_an_endless_scan_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "IDLE_SECONDS", -1.0)
    t = one(loop(3000).write(tmp_path / "t.sqlite"))
    assert "damaged-table" in codes(t) and "interrupted" in str(t.warnings)


def test_a_truncated_export_gives_what_is_left(tmp_path: Path) -> None:
    path = loop(400).write(tmp_path / "t.sqlite")
    data = path.read_bytes()
    counts = []
    for share in (0.9, 0.6, 0.3, 0.001):
        path.write_bytes(data[: int(len(data) * share)])
        try:
            counts.append(sum(int(t.is_gpu.sum()) for t in read_file(path)))
        except WellfedError:
            counts.append(-1)
    assert counts[-1] == -1 and max(counts) <= 4000


def test_any_mutation_is_survived(tmp_path: Path) -> None:
    path = loop(20).write(tmp_path / "t.sqlite")
    data = path.read_bytes()
    whole = len(one(path))
    dice = random.Random(3)
    read = 0
    for _ in range(200):
        bad = bytearray(data)
        for _ in range(dice.choice((1, 1, 4, 40))):
            # half of the flips hit the page headers and the schema, where they do most
            at = (
                dice.randrange(len(bad))
                if dice.random() < 0.5
                else dice.randrange(8) + 4096 * dice.randrange(len(bad) // 4096)
            )
            bad[at] ^= 1 << dice.randrange(8)
        path.write_bytes(bad)
        try:
            timelines = read_file(path)
        except WellfedError:
            continue
        read += 1
        for t in timelines:
            assert len(t) <= 10 * whole and (t.dur >= 0).all() and (np.diff(t.ts) >= 0).all()
    assert read > 50


def test_folders_take_exports_and_leave_their_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    loop().write(tmp_path / "a.sqlite")
    (tmp_path / "a.nsys-rep").write_bytes(b"x")
    (tmp_path / "b.nsys-rep").write_bytes(b"x")
    assert [p.name for p in find_traces([tmp_path])] == ["a.sqlite", "b.nsys-rep"]
    failed: list[str] = []
    found = list(read_timelines([tmp_path], unreadable=lambda p, e: failed.append(p.name)))
    assert len(found) == 1 and failed == ["b.nsys-rep"]


# -- public exports -----------------------------------------------------------------------------------------


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["h100_2gpu_1s", "mock", "healthy_1pct"])
def test_public_exports_come_out_exactly(corpus: Path, name: str) -> None:
    facts = json.loads((corpus / "traces" / "expected.json").read_text())[f"nsys/{name}.sqlite"]
    case = api.trace(corpus / "traces" / "nsys" / f"{name}.sqlite")
    devices = facts.get("devices") or {facts["device_ids"][0]: facts}
    assert [str(r.device) for r in case.ranks] == list(devices)
    for rank in case.ranks:
        told = devices[str(rank.device)]
        assert rank.budget is not None and rank.gpu_events == told["gpu_events"]
        assert rank.budget.span_ns == told["span_ns"] and rank.budget.idle_ns == told["idle_ns"]
        assert rank.budget.compute_ns == told["compute_ns"] and rank.comm_ns == told["comm_ns"]
        assert rank.budget.exposed_copy_ns == told["exposed_memcpy_ns"] + told["exposed_memset_ns"]
        assert sum(rank.idle.values()) == rank.budget.idle_ns
        assert [rank.gpu] == (facts.get("device_names") or [None])
    if name == "healthy_1pct":
        assert all(v.severity == "info" for v in case.verdicts if v.verdict == "finding")
