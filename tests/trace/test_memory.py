"""Memory snapshots: read as written, laws of the allocator, what an out-of-memory error met, verdicts."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from allocator import MIB, Allocator, OutOfMemory, frames
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import event, kernel, write

from wellfed import api
from wellfed.analyze.memory import MemoryStudy, study_memory
from wellfed.analyze.memory_replay import replay
from wellfed.analyze.memory_told import held_of
from wellfed.check.trace.memory import judge_memory
from wellfed.ingest.memory import is_memory, read_memory
from wellfed.model import Case

TRAIN, LOAD = "step /home/me/train.py:41", "load /home/me/data.py:7"
INSIDE = "forward /usr/lib/python3.12/site-packages/torch/nn/modules/linear.py:116"

Op = tuple[str, int, int]
OPS = st.lists(
    st.tuples(st.sampled_from(["alloc", "alloc", "free", "later", "complete", "empty"]), st.integers(1, 30 * MIB), st.integers(0, 1)),
    min_size=1, max_size=40,
)  # fmt: skip


def played(ops: list[Op], limit: int = 1 << 40) -> tuple[Allocator, int]:
    """An allocator after `ops`, and how many of them met no memory."""
    allocator, live, pending, failed = Allocator(limit=limit), [], [], 0
    for what, size, stream in ops:
        if what == "alloc":
            try:
                live.append(allocator.alloc(size, INSIDE, TRAIN, stream=stream))
            except OutOfMemory:
                failed += 1
        elif what in ("free", "later") and live:
            address = live.pop(size % len(live))
            allocator.free(address, complete=what == "free")
            if what == "later":
                pending.append(address)
        elif what == "complete" and pending:
            allocator.complete(pending.pop())
        elif what == "empty":
            allocator.empty_cache()
    return allocator, failed


def study(tree: Any) -> MemoryStudy:
    (one,) = study_memory(read_memory(tree, "rank3_snapshot.pickle"))
    return one


@given(OPS)
def test_a_whole_history_gives_the_truth_back(ops: list[Op]) -> None:
    """The peak, the sums, and the laws: allocated within reserved, blocks add up, the replay meets the snapshot."""
    allocator, _ = played(ops)
    if not allocator.trace:
        return
    found = study(allocator.snapshot())
    assert (found.faults == () and found.refused is None) or not allocator.segments
    assert found.reserved == allocator.reserved
    assert found.reserved == found.allocated + found.pending + found.inactive
    assert found.broken + found.spare == found.inactive
    if found.peak is not None:
        assert found.peak.allocated_bytes == allocator.peak
        assert found.now is not None and found.now.allocated_bytes == allocator.requested
        assert sum(h.bytes for h in found.peak.holders) == allocator.peak


@given(OPS, st.integers(1, 30))
def test_a_ring_that_forgot_its_beginning_says_no_more_than_it_knows(ops: list[Op], ring: int) -> None:
    """The end is right, and the peak is that of the part that is kept."""
    allocator, _ = played(ops)
    if not allocator.segments or not allocator.trace:
        return
    (memory,) = read_memory(allocator.snapshot(ring=ring), "x").devices
    (whole,) = read_memory(allocator.snapshot(), "x").devices
    part, full = replay(memory), replay(whole)
    kept = len(memory.events.action)
    assert part.wrong == 0 and full.wrong == 0
    assert part.allocated.tolist() == full.allocated[-(kept + 1) :].tolist()
    assert part.reserved.tolist() == full.reserved[-(kept + 1) :].tolist()
    assert (part.allocated <= part.reserved).all()


@given(OPS)
def test_the_room_at_an_error_is_the_allocators_own(ops: list[Op]) -> None:
    """Free pieces at the error, from the history alone, against the blocks of the allocator at that instant."""
    allocator, failed = played(ops, limit=80 * MIB)
    try:
        for _ in range(100):
            allocator.alloc(5 * MIB, TRAIN)
    except OutOfMemory:
        pass
    oom = study(allocator.snapshot()).ooms[-1]
    assert oom.room is not None and oom.last
    free = [
        b["size"]
        for s in allocator.segments.values()
        if s["segment_type"] == "large" and s["stream"] == 0
        for b in s["blocks"]
        if b["state"] == "inactive"
    ]
    slack = (
        2 * MIB * sum(b["state"] != "inactive" for b in allocator.blocks())
    )  # rests too small to split off
    assert sum(free) <= oom.room.usable_bytes <= sum(free) + slack
    assert oom.room.largest_bytes >= max(free, default=0)
    assert oom.asked_bytes == 5 * MIB and oom.device_free_bytes == allocator.limit - allocator.reserved
    assert study(allocator.snapshot()).oom_count == failed + 1


def pieces(allocator: Allocator) -> list[int]:
    """Ten segments of 40 MiB, each with 14 MiB free between its first 12 MiB and its last 14 MiB."""
    kept, between = [], []
    for _ in range(10):
        allocator.free(allocator.alloc(40 * MIB, INSIDE, TRAIN))  # takes a segment
        a, b, c = (allocator.alloc(n * MIB, INSIDE, LOAD) for n in (12, 14, 14))
        between.append(b)
        kept += [a, c]
    for b in between:
        allocator.free(b)
    return kept


def failed(allocator: Allocator, size: int, **more: Any) -> MemoryStudy:
    with pytest.raises(OutOfMemory):
        allocator.alloc(size, INSIDE, TRAIN, **more)
    return study(allocator.snapshot())


def test_pieces_that_would_do_together_are_fragmentation() -> None:
    allocator = Allocator(limit=404 * MIB)
    pieces(allocator)
    oom = failed(allocator, 100 * MIB).ooms[-1]
    assert oom.cause == "fragmentation" and oom.room is not None
    assert oom.room.usable_bytes == 140 * MIB and oom.room.largest_bytes == 14 * MIB and oom.room.pieces == 10
    assert oom.site == "step at /home/me/train.py:41"
    assert oom.moment.holders[0].site == "load at /home/me/data.py:7"
    assert oom.moment.holders[0].bytes == 260 * MIB == oom.moment.allocated_bytes


def test_what_is_simply_too_much_is_not_called_fragmentation() -> None:
    allocator = Allocator(limit=404 * MIB)
    pieces(allocator)
    assert failed(allocator, 300 * MIB).ooms[-1].cause == "full"


def test_free_memory_of_another_stream_or_of_a_graph_is_named() -> None:
    for where in ({"stream": 7}, {"private": True}):
        allocator = Allocator(limit=200 * MIB)
        kept = [allocator.alloc(60 * MIB, TRAIN, **where), allocator.alloc(100 * MIB, TRAIN)]
        small = allocator.alloc(12 * MIB, TRAIN, **where)
        allocator.free(kept[0])
        again = allocator.alloc(20 * MIB, TRAIN, **where)  # keeps the segment from being given back
        oom = failed(allocator, 50 * MIB).ooms[-1]
        assert oom.cause == "elsewhere" and oom.room is not None
        assert oom.room.usable_bytes == 0 and oom.room.elsewhere_bytes == 40 * MIB
        assert small and again


def test_a_limit_below_the_device_is_named() -> None:
    allocator = Allocator(limit=100 * MIB, device_free_lies=1 << 36)
    allocator.alloc(90 * MIB, TRAIN)
    assert failed(allocator, 50 * MIB).ooms[-1].cause == "limit"


def test_segments_given_back_and_taken_again_are_churn() -> None:
    allocator = Allocator()
    for _ in range(5):
        allocator.free(allocator.alloc(50 * MIB, TRAIN))
        allocator.empty_cache()
    churn = study(allocator.snapshot()).churn
    assert churn is not None and (churn.taken_again, churn.given) == (4, 5)
    assert churn.taken_again_bytes == 200 * MIB
    assert churn.calls_per_s == pytest.approx(9 / ((len(allocator.trace) - 1) * 1e-3))
    steady = Allocator()
    for _ in range(5):
        steady.free(steady.alloc(50 * MIB, TRAIN))
    churn = study(steady.snapshot()).churn
    assert churn is not None and churn.taken_again == 0


def test_rounding_is_what_was_not_asked_for() -> None:
    allocator = Allocator()
    for _ in range(3):
        allocator.alloc(100, TRAIN)
    found = study(allocator.snapshot())
    assert found.rounding == 3 * 412 and found.allocated == 3 * 512


def test_phases_come_from_the_stack() -> None:
    allocator = Allocator()
    allocator.alloc(MIB, "step /x/site-packages/torch/optim/adamw.py:9", TRAIN)
    allocator.alloc(2 * MIB, "backward /x/site-packages/torch/_tensor.py:500", TRAIN)
    allocator.alloc(3 * MIB, INSIDE, TRAIN)
    found = study(allocator.snapshot())
    assert found.now is not None
    assert [(h.phase, h.bytes) for h in found.now.holders] == [
        ("other", 3 * MIB), ("backward", 2 * MIB), ("optimizer", MIB),
    ]  # fmt: skip


def test_a_history_that_does_not_meet_the_snapshot_is_refused() -> None:
    allocator = Allocator()
    kept = [allocator.alloc(30 * MIB, TRAIN) for _ in range(4)]
    tree = allocator.snapshot()
    tree["device_traces"][0].append(
        {**tree["device_traces"][0][-1], "action": "free_completed", "addr": kept[0]}
    )
    found = study(tree)
    assert found.refused is not None and found.peak is None and "off what the snapshot holds" in found.refused
    assert found.reserved == allocator.reserved


def test_blocks_that_do_not_add_up_are_said() -> None:
    allocator = Allocator()
    allocator.alloc(30 * MIB, TRAIN)
    tree = allocator.snapshot()
    tree["segments"][0]["total_size"] += 512
    assert any("do not add up" in fault for fault in study(tree).faults)


def test_expandable_segments_grow_and_shrink() -> None:
    """Mapped in steps of one range: joined for the largest piece, and taken apart again for the past."""
    base, unit = 0x7000_0000_0000, 20 * MIB
    trace: list[dict[str, Any]] = []

    def event(action: str, address: int, size: int) -> None:
        trace.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": len(trace)})

    event("segment_map", base, 2 * unit)
    event("alloc", base, unit)
    event("segment_map", base + 2 * unit, unit)
    event("alloc", base + 2 * unit, unit // 2)
    trace.append({"action": "oom", "device_free": 0, "size": 3 * unit, "stream": 0, "time_us": 9})
    event("free_requested", base + 2 * unit, unit // 2)
    event("free_completed", base + 2 * unit, unit // 2)
    event("segment_unmap", base + unit, 2 * unit)
    tree = {
        "segments": [
            {"device": 0, "address": base, "total_size": unit, "stream": 0, "segment_type": "large", "is_expandable": True,
             "blocks": [{"size": unit, "requested_size": unit, "state": "active_allocated", "frames": []}]},
        ],
        "device_traces": [trace],
    }  # fmt: skip
    found = study(tree)
    assert found.expandable and found.refused is None and found.faults == ()
    (oom,) = found.ooms
    assert oom.room is not None and (oom.room.usable_bytes, oom.room.pieces) == (unit + unit // 2, 2)
    assert oom.moment.reserved_bytes == 3 * unit and oom.cause == "full"


# -- forms of the file ------------------------------------------------------------------------------------


def small() -> Allocator:
    allocator = Allocator()
    allocator.free(allocator.alloc(3 * MIB, INSIDE, TRAIN))
    allocator.alloc(100, INSIDE, LOAD)
    return allocator


def test_pickle_json_and_the_bare_list_say_the_same(tmp_path: Path) -> None:
    from wellfed.ingest.dumps import read_dump

    tree = small().snapshot()
    (tmp_path / "rank1.pickle").write_bytes(pickle.dumps(tree))
    (tmp_path / "rank1.json").write_text(json.dumps(tree))
    (tmp_path / "list.json").write_text(json.dumps(tree["segments"]))
    one, two, three = (
        study_memory(read_dump(tmp_path / n))[0] for n in ("rank1.pickle", "rank1.json", "list.json")
    )  # type: ignore[arg-type]
    assert one.rank == two.rank == 1 and three.rank is None
    assert (one.peak, one.now, one.allocated) == (two.peak, two.now, two.allocated)
    assert three.peak is None and three.refused == "no history was recorded"
    assert three.now is not None and three.allocated == one.allocated


def test_blocks_of_pytorch_1_have_their_history() -> None:
    tree = [
        {
            "device": 0, "address": 4096, "total_size": 2048, "stream": 0, "segment_type": "small",
            "blocks": [
                {"size": 1024, "state": "active_allocated", "history": [{"addr": 4096, "real_size": 1000, "frames": frames(TRAIN)}]},
                {"size": 1024, "state": "inactive"},
            ],
        }
    ]  # fmt: skip
    assert is_memory(tree)
    found = study(tree)
    assert found.rounding == 24 and found.now is not None
    assert [(h.site, h.bytes) for h in found.now.holders] == [("step at /home/me/train.py:41", 1000)]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["segments", "blocks", "size", "state", "address", "total_size", "device", "frames", "action", "addr", "line", "time_us", "stream"]),
        inner, max_size=6,
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(JUNK, max_size=4), st.lists(st.lists(JUNK, max_size=4), max_size=2))
def test_nonsense_is_counted_and_raises_nothing(segments: list[Any], traces: list[Any]) -> None:
    snapshot = read_memory({"segments": segments, "device_traces": traces}, "x")
    study_memory(snapshot)


@given(OPS, st.data())
def test_a_broken_row_costs_itself(ops: list[Op], data: st.DataObject) -> None:
    allocator, _ = played(ops)
    trace = allocator.snapshot()["device_traces"][0]
    if not trace:
        return
    at = data.draw(st.integers(0, len(trace) - 1))
    broken = [*trace[:at], {**trace[at], "size": "lots"}, *trace[at + 1 :]]
    snapshot = read_memory({**allocator.snapshot(), "device_traces": [broken]}, "x")
    assert [(w.code, w.count) for w in snapshot.warnings] == [("bad-row", 1)]
    study_memory(snapshot)


def test_a_list_that_is_referred_to_a_thousand_times_is_read_once() -> None:
    block = {"size": 512, "requested_size": 1, "state": "active_allocated", "frames": []}
    blocks = [block] * 1000
    segment = {"device": 0, "address": 0, "total_size": 512_000, "blocks": blocks}
    snapshot = read_memory({"segments": [segment] * 1000}, "x")
    assert len(snapshot.devices[0].blocks.size) == 1000
    assert snapshot.warnings[0].count == 999


# -- the verb ---------------------------------------------------------------------------------------------

RECORDED = Path(__file__).parent.parent / "traces" / "memory_oom_rank0.pickle.gz"


def dumped(allocator: Allocator, path: Path) -> Case:
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    return api.trace(path)


def test_a_recorded_error_gives_its_known_truth() -> None:
    """PyTorch 2.11 on an H200, recorded with the lines of `--how memory`: eight fp32 Linear(2048, 2048), AdamW, four
    tensors of 12 MiB, then a request for 300 GiB, which no such GPU holds."""
    case = api.trace(RECORDED)
    (held,) = case.memory
    (oom,) = held.ooms
    assert (held.rank, held.device, held.oom_count, oom.asked_bytes) == (0, 0, 1, 300 << 30)
    assert oom.site == "train at train/loop.py:11" and oom.cause == "full" and oom.last
    weights = 8 * (2048 * 2048 + 2048) * 4
    assert oom.moment is not None
    states, before, tensors, *_ = oom.moment.holders
    assert (states.bytes, states.count, states.phase) == (2 * weights, 32, "optimizer")
    assert (before.bytes, before.before) == (weights, True)
    assert (tensors.bytes, tensors.count, tensors.site) == (48 * MIB, 4, "train at train/loop.py:10")
    assert sum(h.bytes for h in oom.moment.holders) + oom.moment.rest_bytes == oom.moment.allocated_bytes
    (said,) = (v for v in case.verdicts if v.code == "T410")
    assert said.verdict == "finding" and "more than the 139 GiB there would be" in said.message


@given(OPS)
def test_what_is_saved_sums_to_the_byte(ops: list[Op]) -> None:
    allocator, _ = played(ops, limit=60 * MIB)
    for one in map(held_of, study_memory(read_memory(allocator.snapshot(), "x"))):
        assert (
            one.allocated_bytes is not None
            and one.pending_bytes is not None
            and one.inactive_bytes is not None
        )
        assert one.reserved_bytes == one.allocated_bytes + one.pending_bytes + one.inactive_bytes
        for moment in (one.peak, one.now, *(oom.moment for oom in one.ooms)):
            if moment is not None:
                assert sum(h.bytes for h in moment.holders) + moment.rest_bytes == moment.allocated_bytes
                assert moment.rest_bytes >= 0
        judge_memory([one])


def test_each_cause_has_its_words_and_its_cure(tmp_path: Path) -> None:
    allocator = Allocator(limit=404 * MIB)
    pieces(allocator)
    with pytest.raises(OutOfMemory):
        allocator.alloc(100 * MIB, INSIDE, TRAIN)
    case = dumped(allocator, tmp_path / "rank0.pickle")
    said = case.verdicts[0]
    assert "140 MiB were free in 10 pieces, the largest 14 MiB" in said.message and said.severity == "error"
    assert said.remedy is not None and "expandable_segments:True" in said.remedy
    assert case.headline is not None and case.headline.text.startswith(
        "a request for 100 MiB at step at me/train.py:41"
    )

    allocator = Allocator(limit=100 * MIB, device_free_lies=1 << 36)
    allocator.alloc(90 * MIB, TRAIN)
    with pytest.raises(OutOfMemory):
        allocator.alloc(50 * MIB, TRAIN)
    said = dumped(allocator, tmp_path / "rank1.pickle").verdicts[0]
    assert "a limit of its own" in said.message and "set_per_process_memory_fraction" in (said.remedy or "")


def test_a_quiet_history_passes_and_none_is_not_judged(tmp_path: Path) -> None:
    quiet = dumped(small(), tmp_path / "rank0.pickle")
    assert {v.code: v.verdict for v in quiet.verdicts} == {"T410": "pass", "T420": "pass", "T430": "pass"}
    assert quiet.headline is not None and "machine" not in quiet.headline.text
    (tmp_path / "rank0.json").write_text(json.dumps(small().snapshot()["segments"]))
    bare = api.trace(tmp_path / "rank0.json")
    assert {v.code: v.verdict for v in bare.verdicts} == {
        "T410": "not-judged",
        "T420": "pass",
        "T430": "not-judged",
    }


def test_pieces_and_churn_are_info(tmp_path: Path) -> None:
    allocator = Allocator()
    between = []
    for _ in range(30):  # 40 MiB each, whose middle is let go
        allocator.free(allocator.alloc(40 * MIB, TRAIN))
        between.append([allocator.alloc(n * MIB, TRAIN) for n in (12, 14, 14)][1])
    for address in between:
        allocator.free(address)
    for _ in range(12):
        allocator.free(allocator.alloc(50 * MIB, TRAIN))
        allocator.empty_cache()
    found = {v.code: v for v in dumped(allocator, tmp_path / "x.pickle").verdicts if v.verdict == "finding"}
    assert set(found) == {"T420", "T430"} and {v.severity for v in found.values()} == {"info"}
    assert "420 MiB of 1.17 GiB reserved (35%)" in found["T420"].message
    assert found["T430"].message.startswith("11 segments (550 MiB) were taken")


def test_many_ranks_are_one_finding(tmp_path: Path) -> None:
    for rank in range(4):
        allocator = Allocator(limit=(100 if rank else 400) * MIB)
        try:
            for _ in range(3):
                allocator.alloc(50 * MIB, TRAIN)
        except OutOfMemory:
            pass
        (tmp_path / f"memory_rank{rank}.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
    case = api.trace(tmp_path)
    (found,) = (v for v in case.verdicts if v.code == "T410" and v.verdict == "finding")
    assert "(3 of 4 snapshots)" in found.message and found.where["ranks"] == [1, 2, 3]
    assert len(case.memory) == 4 and len(api.trace(tmp_path, ranks=[2]).memory) == 1


def test_the_allocators_events_of_a_trace_tell_the_peak(tmp_path: Path) -> None:
    """Three blocks that were there, then two operators that ask, one release, and one more."""

    def told(ts: float, size: int, total: int, address: int) -> dict[str, Any]:
        args = {
            "Device Type": 1,
            "Device Id": 0,
            "Addr": address,
            "Bytes": size,
            "Total Allocated": total,
            "Total Reserved": 64 * MIB,
        }
        return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100, "tid": 100, "ts": ts, "args": args}  # fmt: skip

    rows: list[dict[str, Any]] = [
        event("cpu_op", "aten::linear", 1000.0, 50.0), event("cpu_op", "aten::empty", 1010.0, 5.0),
        event("cpu_op", "aten::relu", 1100.0, 50.0),
        told(1012.0, 10 * MIB, 30 * MIB, 1), told(1110.0, 4 * MIB, 34 * MIB, 2), told(1200.0, -10 * MIB, 24 * MIB, 1),
        event("cuda_runtime", "cudaLaunchKernel", 1020.0, 4.0, correlation=1), kernel("k", 1030.0, 50.0, corr=1),
    ]  # fmt: skip
    (held,) = api.trace(write(tmp_path / "t.json", rows)).memory
    assert held.kind == "events" and held.peak is not None and held.peak.allocated_bytes == 34 * MIB
    assert held.peak.reserved_bytes == 64 * MIB and held.peak.at_ms == pytest.approx(0.110)
    assert [(h.site, h.bytes, h.before) for h in held.peak.holders] == [
        (None, 20 * MIB, True), ("aten::linear", 10 * MIB, False), ("aten::relu", 4 * MIB, False),
    ]  # fmt: skip
