"""The export for Perfetto: nothing lost, nothing crossing, idle exact to the ns, nothing of the owner's in it."""

import functools
import gzip
import json
import tracemalloc
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import event, simulate, write

from wellfed import api
from wellfed.analyze import analyze
from wellfed.analyze.tracks import MAX_LANES, NO_LANE, drawing_order, lanes
from wellfed.ingest import read_timeline
from wellfed.model import Case
from wellfed.model.timeline import Cat, Timeline
from wellfed.report.perfetto import Writer

TRACES = sorted((Path(__file__).resolve().parents[1] / "traces").glob("*.json.gz"))
Slice = tuple[int, int]


@functools.cache
def drawn(path: Path) -> tuple[list[dict[str, Any]], Case]:
    return exported(path)


def exported(path: Path | list[Path], **how: Any) -> tuple[list[dict[str, Any]], Case]:
    """The events of the export, and the case it belongs to."""
    writer, pieces = Writer(), []
    case = api.trace(
        path, each=lambda timeline, studies: pieces.extend(writer.rank(timeline, studies)), **how
    )
    pieces += writer.findings(case.verdicts)
    text = writer.head() + "".join(pieces) + writer.tail()
    return json.loads(text, parse_float=Decimal)["traceEvents"], case


def ns(value: Decimal) -> int:
    assert value * 1000 == int(value * 1000)
    return int(value * 1000)


def crossing(slices: list[Slice]) -> list[tuple[Slice, Slice]]:
    """Pairs of slices of one thread of which neither holds the other, though they overlap."""
    found, stack = [], []
    for start, end in sorted(slices, key=lambda s: (s[0], -s[1])):
        while stack and stack[-1][1] <= start:
            stack.pop()
        if stack and end > stack[-1][1]:
            found.append((stack[-1], (start, end)))
        stack.append((start, end))
    return found


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name)
def test_all_of_a_recording_is_drawn(path: Path) -> None:
    events, case = drawn(path)
    timeline = read_timeline(path)
    slices = [e for e in events if e["ph"] == "X"]
    own = [e for e in slices if e["cat"] in ("idle", "step")]
    assert len(slices) - len(own) == len(timeline)
    assert Counter(ns(e["dur"]) for e in slices if e["cat"] == "kernel") == Counter(
        timeline.dur[timeline.cat == Cat.KERNEL].tolist()
    )
    (rank,) = case.ranks
    idle: Counter[str] = Counter()
    for e in own:
        if e["cat"] == "idle":
            idle[e["name"]] += ns(e["dur"])
    assert idle == {cause: spent for cause, spent in rank.idle.items() if spent}
    assert [e["name"] for e in own if e["cat"] == "step"] == [step.name for step in rank.steps]
    by_thread: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    for e in slices:
        start = ns(e["ts"])
        by_thread[e["pid"], e["tid"]].append((start, start + ns(e["dur"])))
    assert {where: crossing(found) for where, found in by_thread.items() if crossing(found)} == {}
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert by_thread.keys() <= named


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name)
def test_what_is_written_reads_back_to_the_same_budget(path: Path, tmp_path: Path) -> None:
    events, case = drawn(path)
    back = tmp_path / "x.perfetto.json"
    back.write_text(json.dumps({"traceEvents": events}, default=float))
    again = api.trace(back).ranks[0]
    assert again.budget == case.ranks[0].budget
    assert [step.name for step in again.steps] == [step.name for step in case.ranks[0].steps]


@pytest.mark.parametrize("path", TRACES[:4], ids=lambda p: p.name)
def test_arrows_lead_from_launches_to_their_work(path: Path) -> None:
    events, _ = drawn(path)
    begin = {e["id"]: e for e in events if e["ph"] == "s"}
    end = {e["id"]: e for e in events if e["ph"] == "f"}
    assert begin.keys() == end.keys() and len(begin) > 50
    at = {(e["pid"], e["tid"], e["ts"]): e for e in events if e["ph"] == "X" and "correlation" in e["args"]}
    for key, start in begin.items():
        launch = at[start["pid"], start["tid"], start["ts"]]
        work = at[end[key]["pid"], end[key]["tid"], end[key]["ts"]]
        assert launch["args"]["correlation"] == work["args"]["correlation"]
        assert "stream" in work["args"] and "stream" not in launch["args"]


def test_findings_are_instants_where_their_evidence_is(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", simulate(steps=5, data_us=40_000.0).events)
    events, case = exported(path)
    finding = next(v for v in case.verdicts if v.code == "T110")
    instants = [e for e in events if e["ph"] == "i" and e["name"] == "T110 data-wait"]
    assert len(instants) == len(finding.evidence) >= 3
    waits = {e["ts"] for e in events if e["ph"] == "X" and "__next__" in e["name"]}
    assert {e["ts"] for e in instants} <= waits
    assert all(e["args"]["says"] == finding.message and "x" in e["args"]["gain"] for e in instants)


def test_a_launch_bound_loop_is_shown_at_its_longest_gaps(tmp_path: Path) -> None:
    """Nothing on the host names the cause: the gap itself is the evidence."""
    path = write(tmp_path / "t.json", simulate(steps=5, kernel_us=5, dispatch_us=40).events)
    events, case = exported(path)
    finding = next(v for v in case.verdicts if v.code == "T120" and v.verdict == "finding")
    assert all(e.text == "idle, then gemm" for e in finding.evidence)
    instants = {e["ts"] for e in events if e["ph"] == "i" and e["name"].startswith("T120")}
    gaps = {e["ts"] for e in events if e["ph"] == "X" and e["cat"] == "idle" and e["name"] == "launch-bound"}
    assert instants and instants <= gaps


def test_several_ranks_keep_apart(tmp_path: Path) -> None:
    run = simulate(steps=3).events
    paths = [
        write(tmp_path / f"r{r}.json", run, distributedInfo={"rank": r, "world_size": 2}) for r in range(2)
    ]
    events, _ = exported(paths)
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert sorted(names.values()) == sorted(
        f"rank {r}: {what}" for r in range(2) for what in ("GPU 0, NVIDIA H200", "host, process 100")
    )
    assert len({e["id"] for e in events if e["ph"] == "s"}) == sum(e["ph"] == "s" for e in events)


# -- lanes ------------------------------------------------------------------------------------------------


def timeline_of(spans: list[tuple[int, int]], **columns: Any) -> Timeline:
    """A timeline of operators on one thread."""
    spans = sorted(spans)
    n = len(spans)
    ones = np.ones(n, np.int64)
    made = {
        "ts": np.array([s for s, _ in spans], np.int64), "dur": np.array([d for _, d in spans], np.int64),
        "cat": ones.astype(np.uint8), "name": np.zeros(n, np.int32), "thread": np.zeros(n, np.int32), "corr": -ones,
        "ext": -ones, "stream": (-ones).astype(np.int32), "device": (-ones).astype(np.int16), "size": -ones,
        "wait_corr": -ones, "shape": (-ones).astype(np.int32), "comm": (-ones).astype(np.int32),
    }  # fmt: skip
    return Timeline(source="t", kind="kineto", names=("op",), threads=(("1", "1"),), **{**made, **columns})


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)), min_size=1, max_size=60)


@given(spans, st.integers(1, 3))
def test_no_two_slices_of_a_lane_cross(given_spans: list[tuple[int, int]], tracks: int) -> None:
    timeline = timeline_of(given_spans)
    track = np.arange(len(timeline)) % tracks
    lane = lanes(timeline, track, drawing_order(timeline))
    of_lane: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    for row, key in enumerate(zip(track.tolist(), lane.tolist(), strict=True)):
        of_lane[key].append((int(timeline.ts[row]), int(timeline.end[row])))
    assert {key: crossing(found) for key, found in of_lane.items() if crossing(found)} == {}
    for t in range(tracks):
        whole = [s for key, found in of_lane.items() if key[0] == t for s in found]
        if not crossing(whole):
            assert {key[1] for key in of_lane if key[0] == t} <= {0}, "what nests needs no lane"


def test_a_track_beyond_drawing_costs_bounded_time_and_says_what_is_missing() -> None:
    timeline = timeline_of([(k, 10_000) for k in range(600)])
    lane = lanes(timeline, np.zeros(600, np.int64), drawing_order(timeline))
    assert (lane == NO_LANE).sum() == 600 - MAX_LANES
    writer = Writer()
    text = "".join(writer.rank(timeline, analyze([timeline]).studies))
    assert writer.left_out == 600 - MAX_LANES
    assert text.count('"ph":"X"') == MAX_LANES


# -- privacy, size ----------------------------------------------------------------------------------------

TOKEN = "hf_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA"


def test_nothing_of_the_owner_is_copied(run_cli, tmp_path: Path) -> None:
    run = simulate(steps=3, data_us=9000.0).events
    secrets = [
        "/home/amelie/secret_project",
        "amelie",
        TOKEN,
        "node-17.corp.example",
        "s3cr3tpass",
        "10.31.4.7",
    ]
    run += [
        event("python_function", "/home/amelie/secret_project/train.py(12): main", 1000, 50),
        event(
            "user_annotation",
            "env HOSTNAME=node-17.corp.example DB_PASSWORD=s3cr3tpass WANDB_API_KEY=k9x8w7v6u5t4",
            1000,
            9,
        ),
        event("user_annotation", f"upload with {TOKEN} to 10.31.4.7", 1010, 9),
        event("cpu_op", "init on node-17.corp.example", 1020, 9),
    ]
    metadata = {"hostname": "node-17.corp.example", "environ": {"HF_TOKEN": TOKEN, "HOME": "/home/amelie"}}
    write(tmp_path / "t.json", run, **metadata)
    result = run_cli("trace", "t.json", "-o", "x.perfetto.json", "-o", "x.html")
    assert result.code == 0, result.err
    text = (tmp_path / "x.perfetto.json").read_text()
    for secret in [*secrets, "k9x8w7v6u5t4"]:
        assert secret not in text, secret
    assert "train.py(12): main" in text and "gemm" in text and "environ" not in text
    plain = run_cli("trace", "t.json", "--no-redact", "-o", "y.perfetto.json")
    assert plain.code == 0 and TOKEN in (tmp_path / "y.perfetto.json").read_text()


def test_the_verb_writes_the_same_bytes_each_time(run_cli, tmp_path: Path) -> None:
    write(tmp_path / "t.json", simulate(steps=3, data_us=9000.0).events)
    first = run_cli("trace", "t.json", "-o", "a.perfetto.json.gz", "-o", "a.perfetto.json", "-o", "a.json")
    second = run_cli("trace", "t.json", "-o", "b.perfetto.json.gz")
    assert first.code == second.code == 0
    packed = (tmp_path / "a.perfetto.json.gz").read_bytes()
    assert packed == (tmp_path / "b.perfetto.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.perfetto.json").read_bytes()
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == 1
    assert "wrote a.perfetto.json.gz" in first.err


def test_a_run_that_fails_leaves_no_file(run_cli, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("no trace")
    assert run_cli("trace", "t.json", "-o", "a.perfetto.json.gz").code == 2
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]
    other = run_cli("check", "-o", "a.perfetto.json")
    assert other.code == 2 and "only `wellfed trace`" in other.err


def test_memory_grows_with_the_columns_only() -> None:
    """A dictionary an event would be over 500 bytes each, its text 200."""

    def peak(n: int) -> int:
        device, stream = np.zeros(n, np.int16), np.full(n, 7, np.int32)
        cat = np.full(n, Cat.KERNEL, np.uint8)
        timeline = timeline_of([(k * 100, 90) for k in range(n)], cat=cat, device=device, stream=stream)
        studies, writer, written = analyze([timeline]).studies, Writer(), 0
        tracemalloc.start()
        for piece in writer.rank(timeline, studies):
            written += len(piece)
            assert len(piece) < 10_000_000
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert written > 150 * n
        return found

    assert peak(52_000) - peak(20_000) < 250 * 32_000
