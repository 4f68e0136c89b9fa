"""Files that somebody made to mislead, to stop or to exhaust the reader: refused in a line, or read as far as they go."""

import gzip
import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from trace_builder import event, kernel, simulate, text_of, write

from wellfed import api
from wellfed.analyze import bounds
from wellfed.analyze.groups import by_value
from wellfed.ingest import cache, find_traces, read_file, read_timeline
from wellfed.ingest.sqlite import BAD_TIME, NO_TIME, as_integers, as_times
from wellfed.model import WellfedError
from wellfed.model.timeline import Timeline


def codes(timeline: Timeline) -> Counter[str]:
    return Counter({w.code: w.count for w in timeline.warnings})


# -- what is no file --------------------------------------------------------------------------------------


def test_pipes_devices_and_names_that_cannot_be_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "t.json")
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    for given in (pipe, "/dev/zero", tmp_path / "*.json", loop, "", "a" * 5000, tmp_path / ("a" * 300)):
        with pytest.raises(WellfedError) as refused:
            api.trace(given)
        assert refused.value.hint and len(refused.value.message) < 500
        with pytest.raises(WellfedError):
            api.compare(given, given)
    write(tmp_path / "good.json", simulate().events)
    (seen,) = [v for v in api.trace([tmp_path / "good.json", pipe]).verdicts if "pipe" in v.message]
    assert seen.verdict == "finding"


def test_a_link_is_no_second_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", simulate().events)
    (tmp_path / "soft.json").symlink_to(path)
    (tmp_path / "hard.json").hardlink_to(path)
    (tmp_path / "round").symlink_to(tmp_path, target_is_directory=True)
    assert find_traces([path, path, tmp_path / "soft.json", tmp_path / "hard.json", tmp_path]) == [path]


def test_a_copy_is_no_second_rank(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", simulate().events)
    shutil.copy(path, tmp_path / "b.json")
    case = api.trace([path, tmp_path / "b.json"])
    assert len(case.ranks) == 1 and case.together is None
    (told,) = [w for w in case.warnings if w.code == "same-recording"]
    assert told.count == 1 and "b.json is a copy of a.json" in told.sample
    write(tmp_path / "b.json", simulate(kernels=41).events)
    assert len(api.trace([path, tmp_path / "b.json"]).ranks) == 2


@pytest.mark.parametrize("how", ["same", "link", "hard", "folder"])
@pytest.mark.parametrize("verb", ["trace", "compare"])
def test_an_output_never_replaces_what_is_read(
    tmp_path: Path, run_cli: Callable[..., Any], how: str, verb: str
) -> None:
    path = write(tmp_path / "a.json", simulate().events)
    before = path.read_bytes()
    target = path if how in ("same", "folder") else tmp_path / "out.json"
    if how == "link":
        target.symlink_to(path)
    if how == "hard":
        target.hardlink_to(path)
    given = str(tmp_path if how == "folder" else path)
    done = run_cli(verb, *([given] * (1 + (verb == "compare"))), "-o", str(target))
    assert done.code == 2 and "one of the files to read" in done.err
    assert path.read_bytes() == before


# -- cut files --------------------------------------------------------------------------------------------


def test_a_list_that_does_not_end_is_told(tmp_path: Path) -> None:
    rows = [kernel(f"k{i}", i, 1, corr=i) for i in range(1, 9)]
    text = text_of(rows)
    for cut in (text.index('{"ph"', text.index("k5")), text.rindex("]")):
        (tmp_path / "t.json").write_text(text[:cut])
        assert codes(read_timeline(tmp_path / "t.json"))["truncated-file"] == 1
    (tmp_path / "t.json").write_text(text)
    assert not codes(read_timeline(tmp_path / "t.json"))


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("checksum", [False, True])
def test_a_cut_zstd_stream_is_told_and_a_whole_one_is_not(
    tmp_path: Path, frames: int, checksum: bool
) -> None:
    text = text_of(simulate(steps=2, kernels=20).events).encode()
    packer = zstandard.ZstdCompressor(write_checksum=checksum)
    part = -(-len(text) // frames)
    packed = b"".join(packer.compress(text[i : i + part]) for i in range(0, len(text), part))
    path = tmp_path / "t.json.zst"
    skipped = (0x184D2A51).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    for whole in (packed, packed + skipped):
        path.write_bytes(whole)
        assert not codes(read_timeline(path))["truncated-archive"]
    told = 0
    for cut in range(len(packed) // 3, len(packed), 7):
        path.write_bytes(packed[:cut])
        try:
            told += codes(read_timeline(path))["truncated-archive"]
        except WellfedError:
            told += 1
    # a cut just between two frames leaves a whole stream
    assert told >= len(range(len(packed) // 3, len(packed), 7)) - frames + 1


def test_a_gzip_of_nothing_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b'{"traceEvents":[')
        for _ in range(9):
            file.write(b" " * (1 << 20))
    try:
        assert not len(read_timeline(path))
    except WellfedError as error:
        assert error.hint


# -- numbers that are none --------------------------------------------------------------------------------


def test_only_integers_are_integers() -> None:
    values = (1, None, "abc", "12", 1.5, b"12", -(2**63), 2**63 - 1)
    assert as_integers(values).tolist() == [1, -1, -1, -1, -1, -1, -(2**63), 2**63 - 1]
    assert as_times(values[:6]).tolist() == [1, NO_TIME, BAD_TIME, BAD_TIME, BAD_TIME, BAD_TIME]
    assert as_integers((3, None)).tolist() == [3, -1]


def test_rows_of_nsys_without_a_readable_time_are_dropped_and_counted(tmp_path: Path) -> None:
    db = sqlite3.connect(path := tmp_path / "t.sqlite")
    db.executescript(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); INSERT INTO StringIds VALUES (1, 'gemm');"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
        " correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER, text TEXT);"
        "CREATE VIEW CUPTI_ACTIVITY_KIND_RUNTIME AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c)"
        " SELECT x AS start, x AS end, x AS globalTid, x AS correlationId, x AS nameId FROM c;"
    )
    times = [(10**9 + 1000 * i, 10**9 + 1000 * i + 500) for i in range(20)]
    bad = [("abc", 10**9), (10**9, "xyz"), (1.5, 2.5), (None, 10**9), (b"7", 10**9)]
    db.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, 1, 1, 1, 1)",
        [*times, *bad, (10**9, None)],
    )
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000000000, 1000000001, 40000, 7, 1, 1, 1, 1)")
    ranges = [(10**9, 10**9 + 9), (10**9 + 5, None), ("abc", 10**9)]
    db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, 1, 'step 1')", ranges)
    db.commit()
    db.close()
    timeline = read_timeline(path)
    found = codes(timeline)
    no_time = sum(w.count for w in timeline.warnings if w.code == "no-time")
    assert (int(timeline.is_gpu.sum()), no_time, found["bad-duration"], found["bad-device"]) == (20, 6, 1, 1)
    assert int(timeline.dur[timeline.is_gpu].sum()) == 20 * 500 and found["unfinished-events"] == 1
    assert len(timeline) == 22  # two ranges, of which one never ended


def test_a_device_that_cannot_be_is_not_counted_to_another(tmp_path: Path) -> None:
    rows = [kernel("k", 10 * i, 5, corr=i) for i in range(1, 6)]
    odd = [
        event("kernel", "k", 100 + i, 5, correlation=50 + i, stream=7, device=40_000 + i) for i in range(3)
    ]
    timeline = read_timeline(write(tmp_path / "t.json", [*rows, *odd]))
    assert codes(timeline)["bad-device"] == 3 and list(timeline.gpus) == [0] and len(timeline) == 5


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e300", "9" * 30, '"abc"', "[1]"])
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_times_that_are_none_cost_their_own_event(tmp_path: Path, key: str, value: str) -> None:
    text = text_of([kernel(f"k{i}", 10 * i, 5, corr=i) for i in range(1, 40)])
    old = '"ts": 200,' if key == "ts" else '"dur": 5,'
    at = text.index(old, text.index('"k20"') - 200 if key == "ts" else text.index('"k20"'))
    (tmp_path / "t.json").write_text(text[:at] + f'"{key}": {value},' + text[at + len(old) :])
    timeline = read_timeline(tmp_path / "t.json")
    assert len(timeline) == 38 and sum(w.count for w in timeline.warnings) == 1


# -- a hundred thousand of each ---------------------------------------------------------------------------


def test_rows_by_value_are_each_once_and_in_order() -> None:
    column = np.array([3, 1, 3, 2, 1, 3])
    assert {k: v.tolist() for k, v in by_value(column).items()} == {1: [1, 4], 2: [3], 3: [0, 2, 5]}
    assert {k: v.tolist() for k, v in by_value(column, column > 1).items()} == {2: [3], 3: [0, 2, 5]}
    assert by_value(column, column > 9) == {} == by_value(column[:0])


def many(count: int, *, device: int = 1, thread: int = 1, stream: int = 1, step: int = 0) -> str:
    rows = []
    for i in range(count):
        t = 10.0 * i
        if step and i % step == 0:
            rows.append(
                event("user_annotation", f"ProfilerStep#{i // step}", t, 10 * step - 1, tid=i % thread)
            )
        rows.append(event("cpu_op", "aten::mm", t + 0.5, 5, tid=i % thread))
        rows.append(event("cuda_runtime", "cudaLaunchKernel", t + 1, 2, tid=i % thread, correlation=i + 1))
        place = {"stream": i % stream, "device": i % device}
        rows.append(event("kernel", f"k{i % 50}", t + 5, 8, tid=i % stream, correlation=i + 1, **place))
    return json.dumps({"schemaVersion": 1, "traceEvents": rows})


@pytest.mark.parametrize("what", ["thread", "stream"])
def test_thousands_of_threads_and_streams_are_studied(tmp_path: Path, what: str) -> None:
    (tmp_path / "t.json").write_text(many(4000, **{what: 4000}))
    (rank,) = api.trace(tmp_path / "t.json").ranks
    assert rank.budget is not None and sum(rank.idle.values()) == rank.budget.idle_ns
    assert rank.gpu_events == 4000


def test_more_devices_than_a_machine_has_are_bounded_and_told(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(many(1500, device=700))
    case = api.trace(tmp_path / "t.json")
    assert len(case.ranks) == bounds.MAX_DEVICES
    (told,) = {w.count for w in case.warnings if w.code == "too-many-devices"}
    assert told == 700 - bounds.MAX_DEVICES
    assert all(rank.gpu_events == 3 for rank in case.ranks)  # the busiest: 1500 = 2 * 700 + 100


def test_more_steps_than_can_be_taken_apart_are_bounded_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_STEPS", 50)
    (tmp_path / "t.json").write_text(many(1200, step=10))
    case = api.trace(tmp_path / "t.json")
    (told,) = [w for w in case.warnings if w.code == "too-many-steps"]
    (rank,) = case.ranks
    assert len(rank.steps) == 50 and told.count >= 69
    assert rank.budget is not None and sum(rank.idle.values()) == rank.budget.idle_ns  # of the whole file


# -- the cache --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["bit", "cut", "empty", "folder", "pipe", "other"])
def test_a_spoilt_cache_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setenv("WELLFED_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(cache, "WORTH_BYTES", 1)
    path = write(tmp_path / "t.json", simulate().events)
    (good,) = read_file(path)
    (kept,) = (tmp_path / "kept").iterdir()
    data = bytearray(kept.read_bytes())
    kept.unlink()
    if how == "folder":
        kept.mkdir()
    elif how == "pipe":
        os.mkfifo(kept)
    else:
        data[len(data) // 2] ^= 255
        spoilt = {
            "bit": bytes(data),
            "cut": bytes(data[:300]),
            "empty": b"",
            "other": b"SQLite format 3\0" * 9,
        }
        kept.write_bytes(spoilt[how])
    (again,) = read_file(path)
    assert np.array_equal(again.ts, good.ts) and again.names == good.names and again.warnings == good.warnings
