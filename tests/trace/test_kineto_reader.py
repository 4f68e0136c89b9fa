"""The Kineto reader: exact times, every spelling of the format, and what is left of damaged files."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_builder import event, kernel, simulate, text_of, write

from wellfed.ingest import find_traces, kineto, read_timeline, read_timelines, source
from wellfed.model import WellfedError
from wellfed.model.timeline import Cat, Timeline


def read(tmp_path: Path, text: str | bytes, name: str = "t.json") -> Timeline:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_timeline(path)


def codes(timeline: Timeline) -> dict[str, int]:
    return {w.code: w.count for w in timeline.warnings}


BASIC = simulate(steps=2, kernels=5).events


# -- exactness --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [0, 5_328_304_107_620, 1_712_345_678_901_234])
def test_times_are_the_decimal_text(tmp_path: Path, base: int) -> None:
    """Also where a double has lost the nanoseconds (absolute microseconds with decimals)."""
    texts = [(f"{base + i}.{(i * 37) % 1000:03d}", f"{i}.{(i * 91) % 1000:03d}") for i in range(1, 200)]
    rows = ",".join(
        '{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {}, "dur": {}, "args": {{"device": 0, "stream": 7}}}}'.format(
            *t
        )
        for t in texts
    )
    t = read(tmp_path, '{"traceEvents": [' + rows + "]}")
    exact = [int(a.replace(".", "")) for a, _ in texts]
    assert (t.ts + t.base_ns).tolist() == exact
    assert t.dur.tolist() == [int(d.replace(".", "")) for _, d in texts]


def test_integer_and_text_times(tmp_path: Path) -> None:
    rows = [
        event("kernel", "k", 10, 5, device=0),
        event("kernel", "k", "20.5", "1.25", device=0),
        event("kernel", "k", 3e1, 1e0),
    ]
    t = read(tmp_path, text_of(rows))
    assert (t.ts + t.base_ns).tolist() == [10_000, 20_500, 30_000]
    assert t.dur.tolist() == [5_000, 1_250, 1_000]


# -- spellings --------------------------------------------------------------------------------------------


def test_gzip_zstd_plain_and_bom_are_the_same(tmp_path: Path) -> None:
    text = text_of(BASIC).encode()
    plain = read(tmp_path, text, "a.json")
    for name, data in {
        "b.json.gz": gzip.compress(text),
        "c.json.zst": zstandard.compress(text),
        "d.json": b"\xef\xbb\xbf" + text,
        "two-members.json.gz": gzip.compress(text[:777]) + gzip.compress(text[777:]),
    }.items():
        other = read(tmp_path, data, name)
        assert other.ts.tolist() == plain.ts.tolist(), name
        assert other.warnings == ()


@pytest.mark.parametrize(
    "shape", ["compact", "indented", "bare list", "name first", "metadata last", "extra keys", "mixed tail"]
)
def test_layouts_of_the_same_events(tmp_path: Path, shape: str) -> None:
    reordered = [{k: e[k] for k in ("name", "cat", "ph", "args", "ts", "dur", "pid", "tid")} for e in BASIC]
    properties = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}
    text = {
        "compact": json.dumps({**properties, "traceEvents": BASIC}, separators=(",", ":")),
        "indented": json.dumps({**properties, "traceEvents": BASIC}, indent=4),
        "bare list": json.dumps(BASIC),
        "name first": json.dumps({**properties, "traceEvents": reordered}, indent=1),
        "metadata last": json.dumps(
            {"traceEvents": BASIC, **properties, "distributedInfo": {"rank": 3, "world_size": 8}}
        ),
        "extra keys": json.dumps(
            {"metadata": {"a": [{"b": "traceEvent"}]}, **properties, "traceEvents": BASIC, "x": {"y": []}}
        ),
        "mixed tail": json.dumps({"traceEvents": [*BASIC[:-2], *reordered[-2:]], **properties}),
    }[shape]
    t = read(tmp_path, text)
    assert len(t) == len(BASIC) and t.warnings == ()
    if shape != "bare list":
        assert t.gpus == {0: "NVIDIA H200"}
    if shape == "metadata last":
        assert (t.rank, t.world) == (3, 8)


def test_legacy_categories_and_thread_names(tmp_path: Path) -> None:
    rows = [
        event("Operator", "aten::mm", 1, 10, tid=5),
        event("Runtime", "cudaLaunchKernel", 2, 3, tid=5, correlation=9),
        event("Kernel", "gemm", 4, 5, pid=0, tid="stream 13", device=0, correlation=9),
        event("Memcpy", "Memcpy HtoD", 10, 2, pid=0, tid="stream 13", device=0, correlation=10),
        event("Memset", "Memset", 13, 1, pid=0, tid="stream 20", device=0, correlation=11),
    ]
    t = read(tmp_path, text_of(rows))
    assert t.cat.tolist() == [Cat.OP, Cat.RUNTIME, Cat.KERNEL, Cat.MEMCPY, Cat.MEMSET]
    assert t.stream[t.is_gpu].tolist() == [13, 13, 20]


def test_a_stream_argument_does_not_make_a_gpu_event(tmp_path: Path) -> None:
    t = read(tmp_path, text_of([event("cpu_op", "triton_poi", 1, 2, stream=7), kernel("k", 2, 1, corr=1)]))
    assert t.is_gpu.tolist() == [False, True]


def test_windows_cut_anywhere_give_the_same_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.json.gz", BASIC)
    whole = read_timeline(path)
    for size in (64, 301, 1000, 4096):
        monkeypatch.setattr(source, "WINDOW_BYTES", size)
        pieces = read_timeline(path)
        assert pieces.ts.tolist() == whole.ts.tolist() and pieces.names == whole.names, size


def test_big_numbers_and_strange_types(tmp_path: Path) -> None:
    rows = [
        {
            **kernel("k", 1, 1, corr=1),
            "args": {"correlation": 2**70, "stream": "0x7f00aa00", "device": "0", "bytes": "4096"},
        },
        {
            **kernel("k", 3, 1, corr=1),
            "args": {"correlation": "12", "stream": 2**40, "device": 0, "Comms Id": 10**30},
        },
        {**kernel("k", 5, 1, corr=1), "args": None},
        {**kernel("k", 7, 1, corr=1), "name": None, "pid": "Spans", "tid": None},
    ]
    t = read(tmp_path, text_of(rows))
    assert len(t) == 4
    assert t.corr.tolist()[:2] == [-1, 12] and t.size.tolist()[0] == 4096
    assert len(set(t.stream.tolist())) >= 2


# -- damage -----------------------------------------------------------------------------------------------

DAMAGE = {
    "control character": ('"name": "gemm"', '"name": "ge\x01mm"'),
    "bare quote": ('"name": "gemm"', '"name": "ge"mm"'),
    "newline in a name": ('"name": "gemm"', '"name": "ge\nmm"'),
    "backslash": ('"name": "gemm"', '"name": "C:\\Users\\x"'),
    "NaN argument": ('"stream": 7', '"stream": NaN'),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_broken_event_is_mended_and_counted(tmp_path: Path, kind: str) -> None:
    old, new = DAMAGE[kind]
    text = text_of(BASIC)
    assert old in text
    t = read(tmp_path, text.replace(old, new, 1))
    assert len(t) == len(BASIC)
    assert codes(t).get("mended-events") == 1 and "lost-events" not in codes(t)
    assert (t.ts + t.base_ns).tolist() == sorted(round(e["ts"] * 1000) for e in BASIC)


def test_bad_utf8_is_mended(tmp_path: Path) -> None:
    data = text_of(BASIC).encode().replace(b'"name": "gemm"', b'"name": "g\xff\xfem"', 1)
    t = read(tmp_path, data)
    assert len(t) == len(BASIC) and codes(t) == {"mended-events": 1}


def test_an_event_without_a_readable_start_is_lost_and_counted(tmp_path: Path) -> None:
    rows = [*BASIC[:6], {**BASIC[6], "ts": None}, *BASIC[7:]]
    text = text_of(rows).replace('"ts": null', '"ts": 1x2')
    t = read(tmp_path, text)
    assert len(t) == len(BASIC) - 1
    assert codes(t) == {"lost-events": 1}


def test_truncation_keeps_every_whole_event(tmp_path: Path) -> None:
    text = text_of(BASIC)
    first = text.index('{"ph"')
    for cut in range(first + 1, len(text), 97):
        whole = text[:cut].count('"args": {')
        t = read(tmp_path, text[:cut])
        assert whole - 1 <= len(t) <= whole, cut
        if len(t) < len(BASIC) and not text[:cut].rstrip(" ,\n").endswith("}}"):
            assert "truncated-file" in codes(t), cut


def test_truncated_gzip_keeps_what_unpacks(tmp_path: Path) -> None:
    rows = simulate(steps=10, kernels=60).events
    data = gzip.compress(text_of(rows).encode())
    for part in (0.3, 0.7, 0.95):
        t = read(tmp_path, data[: int(len(data) * part)], "t.json.gz")
        assert 0 < len(t) < len(rows)
        assert "truncated-archive" in codes(t)


def test_corrupt_gzip_keeps_what_comes_before(tmp_path: Path) -> None:
    rows = simulate(steps=30, kernels=80).events
    data = bytearray(gzip.compress(text_of(rows).encode()))
    at = len(data) // 2
    data[at : at + 64] = bytes(64)
    t = read(tmp_path, bytes(data), "t.json.gz")
    assert len(t) > 0
    assert codes(t)


def test_bad_durations_and_clocks(tmp_path: Path) -> None:
    rows = [
        *BASIC,
        kernel("negative", 1500, -5, corr=1),
        kernel("giant", 1600, 9e14, corr=1),
        kernel("zero clock", 0, 0, corr=1),
        event("cpu_op", "unfinished", 1100, -1),
        event("cuda_runtime", "no time", None, 1),
    ]
    shifted = [{**e, "ts": e["ts"] + 4e12 if e["ts"] else e["ts"]} for e in rows]
    t = read(tmp_path, text_of(shifted))
    assert codes(t) == {"bad-duration": 2, "clock-trouble": 1, "no-time": 1, "unfinished-events": 1}
    assert int(t.dur.min()) >= 0
    assert int(t.is_gpu.sum()) == sum(e["cat"] == "kernel" for e in BASIC)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=0, max_size=6)), min_size=1, max_size=8))
def test_any_mutation_is_survived(tmp_path: Path, edits: list[tuple[int, bytes]]) -> None:
    """No exception but our own, no time lost, and never more events than were written."""
    data = bytearray(text_of(BASIC).encode())
    for at, new in edits:
        at %= len(data)
        data[at : at + len(new) + 1] = new
    try:
        t = read(tmp_path, bytes(data))
    except WellfedError:
        return
    assert len(t) <= len(BASIC) + len(edits)
    assert not len(t) or (t.ts.dtype == np.int64 and bool((np.diff(t.ts) >= 0).all()))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_garbage_is_refused_in_one_sentence(tmp_path: Path, data: bytes) -> None:
    try:
        read(tmp_path, data)
    except WellfedError as error:
        assert error.message and error.hint


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"hello", "not a profiler trace"),
        (b"{}", "no `traceEvents`"),
        (b'{"schemaVersion": 1}', "no `traceEvents`"),
        (b"SQLite format 3\0" + bytes(100), "SQLite"),
        (b"\x1f\x8b\x08\x00garbage", "empty"),
    ],
)
def test_files_that_are_no_traces(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(WellfedError, match=says):
        read(tmp_path, data)


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BOMB_FLOOR", 1 << 20)
    bomb = gzip.compress(b'{"traceEvents": [' + b" " * (32 << 20))
    with pytest.raises(WellfedError, match="times its size"):
        read(tmp_path, bomb, "t.json.gz")


def test_an_endless_event_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "_CARRY_LIMIT", 1 << 20)
    monkeypatch.setattr(source, "WINDOW_BYTES", 1 << 18)
    text = '{"traceEvents": [' + json.dumps(BASIC[0]) + ', {"ph": "X", "name": "' + "x" * (8 << 20)
    t = read(tmp_path, text)
    assert len(t) == 1 and "truncated-file" in codes(t)


def test_missing_and_folders(tmp_path: Path) -> None:
    with pytest.raises(WellfedError, match="no such file"):
        read_timeline(tmp_path / "nothing.json")
    with pytest.raises(WellfedError, match="folder"):
        read_timeline(tmp_path)
    with pytest.raises(WellfedError, match="no trace"):
        find_traces([tmp_path])


def test_folders_globs_and_unreadable_files(tmp_path: Path) -> None:
    write(tmp_path / "rank_0.json", BASIC, distributedInfo={"rank": 0})
    write(tmp_path / "rank_1.json.gz", BASIC)
    (tmp_path / "broken.json").write_text("no")
    (tmp_path / "notes.txt").write_text("x")
    failed: list[str] = []
    read_ones = list(read_timelines([tmp_path], unreadable=lambda p, e: failed.append(p.name)))
    assert sorted(t.rank or 0 for t in read_ones) == [0, 1] and failed == ["broken.json"]
    assert [t.rank for t in read_timelines([tmp_path / "rank_*"], ranks=[1])] == [1]
    with pytest.raises(WellfedError):
        list(read_timelines([tmp_path / "broken.json"], unreadable=lambda p, e: None))


def test_shapes_and_collectives_are_kept_and_cost_no_event(tmp_path: Path) -> None:
    dims = {"Input Dims": [[2, 3], [3, 4], []], "Input type": ["float", "float", "Scalar"]}
    told = {
        "Collective name": "allreduce",
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
        "Group size": 2,
        "Seq": 7,
        "In msg nelems": 100,
        "Out msg nelems": 100,
        "dtype": "BFloat16",
    }
    op = event("cpu_op", "aten::addmm", 1, 2, **dims)
    nccl = kernel("ncclDevKernel_AllReduce", 5, 2, corr=1)
    nccl["args"].update(told)
    t = read_timeline(write(tmp_path / "t.json", [op, {**op, "ts": 3}, nccl]))
    assert t.warnings == ()
    assert [t.shapes[i].dims if i >= 0 else None for i in t.shape] == ["[[2, 3], [3, 4], []]"] * 2 + [None]
    assert t.shapes[0].types == '["float", "float", "Scalar"]'
    comm = t.comms[t.comm[2]]
    assert (comm.name, comm.group_ranks, comm.group_size, comm.seq) == ("allreduce", "[0, 1]", 2, 7)
    assert (comm.in_elements, comm.dtype, comm.source) == (100, "BFloat16", -1)
