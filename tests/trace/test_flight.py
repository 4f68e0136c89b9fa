"""Flight-recorder dumps: which rank hangs where, whatever the others do; forms and versions; hostile pickles."""

import gzip
import json
import os
import pickle
import pickletools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed import api
from wellfed.analyze.hang import Hang, study_hang
from wellfed.check.trace.hang import judge_hang, ranks_text
from wellfed.ingest import dumps, pickles
from wellfed.ingest.dumps import read_dump, sort_out
from wellfed.ingest.flight import is_flight, read_flight
from wellfed.model import Case, Verdict, WellfedError
from wellfed.model.flight import FlightDump

RECORDED = Path(__file__).parent.parent / "traces" / "flight"
Entry = dict[str, Any]


class Rank:
    """One rank's recorder, as PyTorch keeps it: a ring of entries, numbers counted by group."""

    def __init__(self, rank: int, groups: dict[str, Sequence[int]], *, version: str = "2.10") -> None:
        self.rank, self.groups, self.version = rank, groups, version
        self.entries: list[Entry] = []
        self.seq: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.records = 0

    def call(
        self,
        op: str = "all_reduce",
        *,
        group: str = "0",
        size: int = 8,
        dtype: str = "Float",
        state: str = "completed",
        line: int = 10,
        started: bool = False,
    ) -> None:
        self.seq[group] = self.seq.get(group, 0) + 1
        self._add(op, group, size, dtype, state, line, started, is_p2p=False)

    def pair(
        self, op: str, *, group: str = "0", size: int = 8, state: str = "completed", number: int = 1
    ) -> None:
        """`send 0->1`, `recv 1<-0`: ranks of the group."""
        self._add(op, group, size, "Float", state, 20, False, is_p2p=True, p2p=number)

    def _add(
        self, op: str, group: str, size: int, dtype: str, state: str, line: int, started: bool, *, is_p2p: bool, p2p: int = 0
    ) -> None:  # fmt: skip
        when = 1_796_210_886_000_000_000 + self.records * 1_000_000
        is_done = state == "completed"
        if is_done and not is_p2p:
            self.done[group] = self.seq[group]
        self.entries.append(
            {
                "record_id": self.records,
                "pg_id": list(self.groups).index(group),
                "process_group": (group, "default_pg" if group == "0" else f"mesh_{group}"),
                "collective_seq_id": self.seq.get(group, 0),
                "p2p_seq_id": p2p,
                "op_id": self.records + 1,
                "profiling_name": f"nccl:{op}",
                "time_created_ns": when,
                "input_sizes": [[size]],
                "input_dtypes": [dtype],
                "output_sizes": [[size]],
                "output_dtypes": [dtype],
                "state": state,
                "time_discovered_started_ns": when + 1000 if is_done or started else None,
                "time_discovered_completed_ns": when + 2000 if is_done else None,
                "retired": is_done,
                "timeout_ms": 600_000,
                "is_p2p": is_p2p,
                "frames": [{"name": "step", "filename": "/home/me/train.py", "line": line}],
            }
        )
        self.records += 1

    def dump(self, *, ring: int | None = None) -> dict[str, Any]:
        config = {
            group: {"name": group, "desc": "", "ranks": json.dumps(list(ranks))}
            for group, ranks in self.groups.items()
        }
        status = {
            number: {
                "last_enqueued_collective": self.seq.get(group, 0),
                "last_started_collective": -1,
                "last_completed_collective": self.done.get(group, 0),
            }
            for number, group in enumerate(self.groups)
        }
        kept = self.entries if ring is None else self.entries[-ring:]
        return {"version": self.version, "pg_config": config, "pg_status": status, "entries": kept}


def ranks(n: int, groups: dict[str, Sequence[int]] | None = None, *, before: int = 3) -> list[Rank]:
    """`n` ranks of one job, each in the groups that hold it, after `before` calls that went well."""
    every = {"0": range(n), **(groups or {})}
    made = [Rank(r, {g: m for g, m in every.items() if r in m}) for r in range(n)]
    for one in made:
        for _ in range(before):
            one.call()
    return made


def hang(made: Sequence[Rank], **more: Any) -> Hang:
    return study_hang([read_flight(one.dump(**more), f"nccl_trace_rank_{one.rank}") for one in made])


def finding(found: Hang) -> Verdict:
    (one,) = (v for v in judge_hang(found) if v.verdict == "finding")
    return one


# -- which rank, which call -------------------------------------------------------------------------------


def test_a_rank_that_does_not_come_is_named_with_its_last_line() -> None:
    made = ranks(4)
    for one in made:
        if one.rank != 2:
            one.call(state="scheduled", line=41)
    said = finding(hang(made))
    assert (
        said.message == "rank 2 did not enter all_reduce 4 of group 0 (default_pg): ranks 0-1, 3 wait for it"
    )
    assert said.where["rank"] == 2 and said.severity == "error" and said.code == "T510"
    assert "did not call it; its last call: all_reduce 3" in said.evidence[0].text
    assert "me/train.py:10" in said.evidence[0].text and "train.py:41" in said.evidence[1].text


def test_another_operation_data_type_or_size_is_told_apart() -> None:
    kinds: list[tuple[dict[str, Any], str]] = [
        ({"op": "broadcast"}, "operation"),
        ({"dtype": "BFloat16"}, "data type"),
        ({"size": 16}, "size"),
    ]
    for other, what in kinds:
        made = ranks(4)
        for one in made:
            one.call(**{"op": "all_reduce", **(other if one.rank == 3 else {})}, state="scheduled")
        found = hang(made)
        said = finding(found)
        assert said.code == "T520" and f"differs in {what}" in said.message, said.message
        assert found.stuck[0].unlike == (3,) and said.where["rank"] == 3


def test_with_two_sides_of_one_size_none_is_blamed() -> None:
    made = ranks(2)
    made[0].call(size=8, state="scheduled")
    made[1].call(size=9, state="scheduled")
    found = hang(made)
    assert found.stuck[0].unlike == (0, 1) and "rank" not in finding(found).where


def test_all_to_all_may_be_uneven_and_gathers_only_on_the_way_in() -> None:
    for op in ("all_to_all", "alltoall_base"):
        made = ranks(2)
        for one in made:
            one.call(op, size=8 + one.rank, state="scheduled")
        assert hang(made).stuck[0].unlike == ()


def test_a_rank_ahead_waits_where_the_others_have_not_come() -> None:
    made = ranks(3)
    for one in made:
        one.call()
    made[1].call(state="scheduled")
    stuck = hang(made).stuck[0]
    assert (stuck.seq, stuck.absent, stuck.ranks("waiting")) == (5, (0, 2), (1,))


def test_two_orders_of_the_same_calls_are_a_circle() -> None:
    made = ranks(2, {"1": (0, 1)})
    made[0].call(group="0", state="scheduled")
    made[1].call(group="1", state="scheduled")
    found = hang(made)
    assert all(set(one.circle) == {"0", "1"} and one.is_root for one in found.stuck)
    said = [v.message for v in judge_hang(found) if v.verdict == "finding"]
    assert len(said) == 2 and all("wait in a circle" in m for m in said)


def test_a_group_that_waits_for_a_victim_is_no_root() -> None:
    """Rank 3 does not come to its group with 2; so 2 is late for its group with 1, which is no cause."""
    made = ranks(4, {"a": (0, 1), "b": (1, 2), "c": (2, 3)})
    made[0].call(group="a", state="scheduled")
    made[1].call(group="b", state="scheduled")
    made[2].call(group="c", state="scheduled")
    found = hang(made)
    assert [one.group for one in found.stuck if one.is_root] == ["c"]
    first, *others = (v for v in judge_hang(found) if v.verdict == "finding")
    assert first.message.startswith("rank 3 did not enter") and first.severity == "error"
    assert len(others) == 2 and all(v.severity == "info" for v in others)


def test_sub_groups_that_are_done_are_not_named() -> None:
    made = ranks(4, {"tp0": (0, 1), "tp1": (2, 3)})
    for one in made:
        one.call(group="tp0" if one.rank < 2 else "tp1")
        one.call(state="scheduled")
    found = hang(made)
    assert [one.group for one in found.stuck] == ["0"]
    assert "all of ranks 0-3 entered" in finding(found).message and finding(found).severity == "warning"


def test_a_queued_call_that_the_gpu_did_not_reach_is_told_where_starts_are_recorded() -> None:
    made = ranks(2)
    made[0].call(state="started", started=True)
    made[1].call(state="scheduled")
    assert hang(made).stuck[0].not_started == (1,)
    assert "the GPU did not reach it" in finding(hang(made)).message


def test_a_send_without_its_receive() -> None:
    made = ranks(2)
    made[0].pair("send 0->1", state="scheduled")
    said = finding(hang(made))
    assert "rank 1 did not enter send from rank 0 to rank 1" in said.message
    made[1].pair("recv 1<-0", size=4, state="scheduled")
    said = finding(hang(made))
    assert said.code == "T520" and "rank 0: sends 8 elements; rank 1: receives 4 elements" in said.message


def test_pairs_of_a_sub_group_are_ranks_of_the_job() -> None:
    made = ranks(6, {"pp": (3, 5)})
    made[3].pair("send 0->1", group="pp", state="scheduled")
    assert "rank 5 did not enter send from rank 3 to rank 5" in finding(hang(made)).message


# -- what is not there ------------------------------------------------------------------------------------


def test_a_missing_dump_is_unknown_and_not_innocent() -> None:
    made = ranks(4)
    for one in made[:3]:
        one.call(state="scheduled")
    found = hang(made[:3])
    assert found.missing == (3,) and found.stuck[0].no_dump == (3,)
    assert "rank 3 left no dump: dead, or the one that is late" in finding(found).message


def test_all_done_but_a_rank_missing_is_not_judged() -> None:
    (verdict, _) = judge_hang(hang(ranks(4)[:3]))
    assert verdict.verdict == "not-judged" and "rank 3 left no dump" in verdict.message
    assert [v.verdict for v in judge_hang(hang(ranks(4)))] == ["pass", "pass"]


def test_what_fell_out_of_the_ring_is_not_called_absent() -> None:
    """One rank is far ahead, so that its ring no longer holds the call that the others wait in."""
    made = ranks(3, {"1": (0,)})
    for one in made:
        one.call(state="scheduled")
    for _ in range(50):
        made[0].call(group="1")
    found = hang(made, ring=10)
    stuck = next(one for one in found.stuck if one.group == "0")
    assert stuck.seq == 4 and 0 not in stuck.absent and stuck.ranks("unknown") == (0,)


@given(st.integers(1, 30), st.integers(0, 3), st.integers(4, 40))
def test_a_wrapped_ring_names_the_same_rank(before: int, late: int, ring: int) -> None:
    made = ranks(4, before=before)
    for one in made:
        if one.rank != late:
            one.call(state="scheduled")
    assert hang(made, ring=ring).stuck[0].absent == (late,)
    assert hang(made, ring=ring).stuck[0].seq == before + 1


def test_a_damaged_file_among_others_is_a_finding_and_its_rank_is_missing(tmp_path: Path) -> None:
    made = ranks(3)
    for one in made:
        one.call(state="scheduled")
        (tmp_path / f"nccl_trace_rank_{one.rank}").write_bytes(pickle.dumps(one.dump(), 4))
    whole = (tmp_path / "nccl_trace_rank_1").read_bytes()
    (tmp_path / "nccl_trace_rank_1").write_bytes(whole[: len(whole) // 2])
    case = api.trace(tmp_path)
    codes = {v.code: v for v in case.verdicts if v.verdict == "finding"}
    assert "damaged pickle: it ends early" in codes["T003"].message
    assert "rank 1 left no dump" in codes["T510"].message
    assert case.hang is not None and case.hang.missing == (1,)


def test_two_dumps_of_one_rank_count_as_the_later() -> None:
    early, late = ranks(2)[0], ranks(2)[0]
    late.call(state="scheduled")
    both = [read_flight(one.dump(), "nccl_trace_rank_0") for one in (late, early)]
    found = study_hang([*both, read_flight(ranks(2)[1].dump(), "nccl_trace_rank_1")])
    assert found.doubled == (0,) and found.stuck[0].absent == (1,)


def test_names_without_a_rank_are_told() -> None:
    (verdict,) = (
        v for v in judge_hang(study_hang([read_flight(ranks(1)[0].dump(), "dump")])) if v.code == "T510"
    )
    assert verdict.verdict == "not-judged" and "name the files nccl_trace_rank_0" in verdict.message


# -- forms, versions, recordings --------------------------------------------------------------------------


def as_version(tree: dict[str, Any], version: str) -> dict[str, Any]:
    """The same dump as older versions write it."""
    tree = json.loads(json.dumps({**tree, "version": version}))
    if version < "2":
        for entry in tree["entries"]:
            entry["seq_id"] = entry.pop("collective_seq_id")
            for key in ("p2p_seq_id", "is_p2p", "timeout_ms", "input_dtypes", "output_dtypes"):
                del entry[key]
        del tree["pg_status"]
    return tree


@pytest.mark.parametrize("version", ["1.5", "2.0", "2.1", "2.4", "2.9", "2.10"])
@pytest.mark.parametrize("write", [pickle.dumps, lambda tree: json.dumps(tree).encode()])
def test_versions_and_forms_say_the_same(version: str, write: Callable[[Any], bytes], tmp_path: Path) -> None:
    made = ranks(3)
    for one in made:
        if one.rank:
            one.call(state="scheduled")
        (tmp_path / f"nccl_trace_rank_{one.rank}").write_bytes(write(as_version(one.dump(), version)))
    case = api.trace(tmp_path)
    assert case.hang is not None and case.hang.versions == (version,)
    assert case.hang.stuck[0].absent == (0,) and case.hang.stuck[0].waiting == (1, 2)
    assert case.headline is not None and case.headline.text.startswith("rank 0 did not enter all_reduce 4")


@pytest.mark.parametrize(("kind", "code"), [("missing", "T510"), ("op", "T520")])
def test_recorded_hangs(kind: str, code: str) -> None:
    """Gloo groups of PyTorch 2.13: rank 2 never calls, or rank 1 calls another operation."""
    case = api.trace(sorted(RECORDED.glob(f"gloo_{kind}_rank_*.json")))
    (found,) = (v for v in case.verdicts if v.verdict == "finding")
    assert found.code == code and found.where["rank"] == {"missing": 2, "op": 1}[kind]


def test_members_that_no_dump_names_are_not_taken_to_be_all_here() -> None:
    """Gloo names no members: of one dump alone nobody knows who is late."""
    said = finding(study_hang([read_dump(RECORDED / "gloo_op_rank_0.json")]))  # type: ignore[list-item]
    assert "who else belongs to the group is not in the dumps" in said.message and said.severity == "warning"


def test_dumps_beside_traces_are_both_read(tmp_path: Path) -> None:
    from trace_builder import simulate, write

    write(tmp_path / "trace_rank0.json", simulate().events)
    for one in ranks(2):
        (tmp_path / f"nccl_trace_rank_{one.rank}").write_bytes(pickle.dumps(one.dump()))
    (tmp_path / "weights.pkl").write_bytes(pickle.dumps(object))  # somebody's data, not a dump
    case = api.trace(tmp_path)
    assert len(case.ranks) == 1 and case.hang is not None and case.hang.ranks == (0, 1)
    assert not [v for v in case.verdicts if v.code == "T003"]


def test_ranks_are_folded() -> None:
    assert ranks_text([3]) == "rank 3" and ranks_text([0, 1, 2, 5]) == "ranks 0-2, 5"
    assert ranks_text(range(0, 100, 2)) == "ranks 0, 2, 4, 6, 8, 10 and 44 more"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["entries", "pg_config", "pg_status", "record_id", "collective_seq_id", "profiling_name", "process_group", "input_sizes", "state", "ranks", "name", "frames", "0"]),
        inner, max_size=6,
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(JUNK, max_size=4), JUNK, JUNK)
def test_nonsense_raises_nothing(entries: list[Any], config: Any, status: Any) -> None:
    tree = {"version": "2.10", "entries": entries, "pg_config": config, "pg_status": status}
    assert is_flight(tree)
    judge_hang(study_hang([read_flight(tree, "rank_0"), read_flight(ranks(2)[1].dump(), "rank_1")]))


@given(st.data())
def test_a_broken_entry_costs_itself(data: st.DataObject) -> None:
    tree = json.loads(json.dumps(ranks(2)[0].dump()))
    at = data.draw(st.integers(0, len(tree["entries"]) - 1))
    tree["entries"][at] = data.draw(JUNK)
    dump: FlightDump = read_flight(tree, "rank_0")
    assert len(dump.entries) == len(tree["entries"]) - 1
    assert [(w.code, w.count) for w in dump.warnings] == [("bad-entry", 1)]


# -- hostile pickles --------------------------------------------------------------------------------------


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


P4 = b"\x80\x04"
HOSTILE = {
    "GLOBAL": (b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.", "`os.system`"),
    "STACK_GLOBAL": (P4 + b"\x8c\x05posix\x8c\x06system\x93\x8c\x02ls\x85R.", "`posix.system`"),
    "REDUCE": (P4 + b"NNR.", "REDUCE"),
    "BUILD": (P4 + b"}}b.", "BUILD"),
    "INST": (P4 + b"(ios\nsystem\n.", "`os.system`"),
    "OBJ": (P4 + b"(No.", "OBJ"),
    "NEWOBJ": (P4 + b"N)\x81.", "NEWOBJ"),
    "EXT1": (P4 + b"\x82\x01.", "EXT1"),
    "EXT4": (P4 + b"\x84\x01\x00\x00\x00.", "EXT4"),
    "PERSID": (P4 + b"Px\n.", "PERSID"),
    "BINPERSID": (P4 + b"NQ.", "BINPERSID"),
    "BUFFER": (b"\x80\x05\x97.", "NEXT_BUFFER"),
    "DUP": (P4 + b"N2.", "DUP"),
    "LONG4": (P4 + b"\x8b\xff\xff\xff\x7f" + b"1" * 100, "LONG4"),
    "unknown opcode": (P4 + b"\xff.", "0xff"),
    "huge text": (P4 + b"\x8d" + b"\xff" * 8 + b"x.", "ends early"),
    "huge bytes": (P4 + b"B\xff\xff\xff\x7fx.", "ends early"),
    "huge frame": (P4 + b"\x95" + b"\xff" * 8 + b"N.", "ends early"),
    "huge integer": (P4 + b"\x8a\xff" + b"\x01" * 255 + b".", "integer of 255 bytes"),
    "memo of nothing": (P4 + b"j\xff\xff\xff\xff.", "not there"),
    "memo far away": (P4 + b"Nr\xff\xff\xff\xff.", "neither"),
    "empty": (P4, "ends early"),
    "no stop": (P4 + b"}", "ends early"),
    "stack": (P4 + b"NN.", "middle of a value"),
    "append to nothing": (P4 + b"NNa.", "no list"),
    "set on a list": (P4 + b"]NNs.", "no dictionary"),
    "tuple as key": (P4 + b"}))s.", "key of type tuple"),
    "marks": (P4 + b"(" * 20_000 + b".", "more values"),
    "lists without end": (P4 + b"]" * 20_000, "more values"),
    "tuples without end": (P4 + b"N" + b"\x85" * 20_000, "more values"),
    "memo without end": (P4 + b"N" + b"\x94" * 20_000, "more values"),
    "deep": (P4 + b"]" * 9_000 + b"a" * 8_999 + b".", "neither"),
    "shared a billion times": (P4 + b"]" + b"".join(b"(" + b"\x94h\x00" * 9 + b"t" for _ in range(3)) + b".", ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_pickles_end_in_one_line(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        pickles, "MAX_CONTAINERS", 10_000
    )  # the limits are in the millions: too slow for a test
    monkeypatch.setattr(pickles, "MAX_MEMO", 10_000)
    data, said = HOSTILE[kind]
    path = tmp_path / "memory.pickle"
    path.write_bytes(data)
    with pytest.raises(WellfedError) as caught:
        api.trace(path)
    assert (
        said in caught.value.message and "\n" not in caught.value.message and len(caught.value.message) < 300
    )


def test_code_in_a_pickle_does_not_run(tmp_path: Path) -> None:
    made = tmp_path / "made"
    for protocol in (2, 3, 4, 5):
        path = tmp_path / f"memory{protocol}.pickle"
        path.write_bytes(pickle.dumps({"segments": [Runs(made)], "device_traces": []}, protocol))
        with pytest.raises(WellfedError, match="mkdir"):
            read_dump(path)
    assert not made.exists()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5) | st.tuples(inner, inner) | st.tuples(inner, inner, inner, inner),
    max_leaves=30,
)  # fmt: skip


@given(PLAIN, st.integers(2, 5))
def test_plain_values_come_back(value: Any, protocol: int) -> None:
    assert pickles.loads(pickle.dumps(value, protocol)) == value
    assert pickles.loads(pickletools.optimize(pickle.dumps(value, protocol))) == value


@given(PLAIN, st.data())
def test_a_pickle_changed_or_cut_raises_nothing_else(value: Any, data: st.DataObject) -> None:
    raw = bytearray(pickle.dumps(value, 4))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(2, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        pickles.loads(bytes(raw[: data.draw(st.integers(2, len(raw)))]))
    except WellfedError:
        pass


def test_json_of_too_many_values_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "MAX_JSON_VALUES", 12_000)
    path = tmp_path / "rank_0.json.gz"
    path.write_bytes(gzip.compress(b'{"version":"2.10","entries":[' + b"[]," * 6_500 + b"[]]}", 1))
    with pytest.raises(WellfedError, match="more than 12,000 values"):
        api.trace(path)


def test_only_dumps_are_taken_out(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(ranks(1)[0].dump()))
    found = sort_out([tmp_path])
    assert len(found.flights) == 1 and [Path(p).name for p in found.rest] == ["other.json"]
    assert sort_out([tmp_path / "nothing_here.json"]).rest == (tmp_path / "nothing_here.json",)


def test_the_case_keeps_it(tmp_path: Path) -> None:
    made = ranks(2)
    made[0].call(state="scheduled")
    for one in made:
        (tmp_path / f"nccl_trace_rank_{one.rank}").write_bytes(pickle.dumps(one.dump()))
    case = api.trace(tmp_path)
    api.save(case, tmp_path / "x.case")
    again: Case = api.load(tmp_path / "x.case")
    assert again.hang == case.hang
