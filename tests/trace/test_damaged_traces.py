"""Damaged traces: every event that nothing happened to is read exactly, and what was lost is counted."""

import gzip
import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import event, kernel, simulate, text_of
from trace_mutator import EVENT_KINDS, mutate, told

from wellfed.analyze.budget import Work, raw_budget
from wellfed.analyze.study import study_device
from wellfed.ingest import kineto, kineto_columns, read_timeline
from wellfed.ingest.kineto_columns import Columns
from wellfed.ingest.kineto_plain import PlainReader
from wellfed.ingest.scan import integers, microseconds, scan
from wellfed.ingest.scan import text_of as scannable
from wellfed.model import WellfedError
from wellfed.model.timeline import Timeline

SEEDS = 230
LOSING = ("lost-events", "bad-duration", "no-time", "clock-trouble", "truncated-file")


def read(tmp_path: Path, data: bytes, suffix: str = ".json") -> Timeline:
    path = tmp_path / f"t{suffix}"
    path.write_bytes(data)
    return read_timeline(path)


@pytest.mark.parametrize("part", range(10))
def test_what_nothing_happened_to_is_read_exactly(tmp_path: Path, part: int) -> None:
    for seed in range(part, SEEDS, 10):
        case = mutate(seed)
        begin = time.monotonic()
        timeline = read(tmp_path, case.data, case.suffix)
        found, whole = Counter(told(timeline)), Counter(case.whole)
        assert not whole - found, (seed, case.kinds, whole - found, timeline.warnings)
        extra = (found - whole).total()
        assert extra <= case.hit, (seed, case.kinds, found - whole)
        counted = sum(w.count for w in timeline.warnings if w.code in LOSING)
        assert extra + counted >= case.hit - case.plain, (
            seed,
            case.kinds,
            extra,
            case.hit,
            timeline.warnings,
        )
        lost = [w for w in timeline.warnings if w.code in ("lost-events", "mended-events")]
        assert all("at byte" in w.sample for w in lost)
        assert ("duplicate" in case.kinds) == ("duplicate-events" in {w.code for w in timeline.warnings}), (
            seed
        )
        work = Work(timeline, 0)
        budget = raw_budget(work)
        assert budget is not None and budget.idle_ns == budget.span_ns - _busy(found)
        if seed % 23 == part:
            idle = study_device(timeline, 0).rank.idle
            assert sum(idle.values()) == budget.idle_ns
        assert time.monotonic() - begin < 20, (seed, case.kinds)  # a hang, not a speed
    assert {mutate(seed).kinds[0] for seed in range(SEEDS)} == set(EVENT_KINDS)


def _busy(rows: Counter[tuple[str, str, int, int, int]]) -> int:
    """The union of the GPU's events, by hand."""
    total, reach = 0, -(10**30)
    for _, _, start, length, _ in sorted(
        (r for r in rows if r[0] in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda r: r[2]
    ):
        end = start + length
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return total


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_cut_anywhere_keeps_what_comes_before(tmp_path: Path, packed: bool) -> None:
    events = simulate(steps=3, kernels=40).events
    text = text_of(events).encode()
    ends = [text.index(one) + len(one) for one in (json.dumps(e).encode() for e in events)]
    data = gzip.compress(text, mtime=0) if packed else text
    rng = random.Random(5)
    for cut in sorted(rng.sample(range(len(data) // 2, len(data)), 40)):
        timeline = read(tmp_path, data[:cut], ".json.gz" if packed else ".json")
        codes = {w.code for w in timeline.warnings}
        if packed:
            assert "truncated-archive" in codes and len(timeline) < len(events)
        else:
            assert len(timeline) in (sum(end <= cut for end in ends), sum(end <= cut for end in ends) + 1)


def test_hostile_text_costs_no_more_than_its_length(tmp_path: Path) -> None:
    first = text_of([kernel("k", 1, 1, corr=1)]).encode()
    at = first.index(b'{"ph"')
    for middle in (
        b'{"ph": "X", "name":"' + b'\\"' * 500_000,
        b'{"ph": "X", "cat": "kernel", "ts": 1x, ' + b'"name": "' * 100_000,
        b"[" * 1_000_000,
        b'{"ph":' * 300_000,
        b"{" * 1_000_000,
        b'"' * 1_000_001,
        b"\\" * 1_000_000,
        b'{"ph": "X", "args": ' + b'{"a":' * 200_000 + b"1" + b"}" * 200_001 + b",",
        b", " * 500_000,
        b'{"ph": "X", "dur": ' + b"1" * 1_000_000 + b"},",
    ):
        begin = time.monotonic()
        try:
            timeline = read(tmp_path, first[:at] + middle + first[at:])
            assert len(timeline) <= 2
        except WellfedError:
            pass
        assert time.monotonic() - begin < 20, middle[:40]


def test_ends_of_a_list_in_the_middle_are_told(tmp_path: Path) -> None:
    text = text_of([kernel(f"k{i}", i, 1, corr=i) for i in range(1, 9)])
    broken = text.replace('"name": "k5"', '"name": "k5"', 1).replace("}},\n", "}}],\n", 1)
    timeline = read(tmp_path, broken.encode())
    (warning,) = [w for w in timeline.warnings if w.code == "text-after-events"]
    assert len(timeline) == 1 and warning.count == 7


# -- both ways of reading give the same -------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(46))
def test_decoded_whole_scanned_and_one_by_one_are_the_same(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = mutate(seed)
    monkeypatch.setattr(kineto, "PIECE_BYTES", 4096)  # so that a short file has pieces to decode whole
    decoded = read(tmp_path, case.data, case.suffix)

    def refuse(self: PlainReader, carry: bytes, piece: memoryview) -> None:
        del self, carry, piece

    monkeypatch.setattr(PlainReader, "read", refuse)
    scanned = read(tmp_path, case.data, case.suffix)
    assert Counter(told(scanned)) == Counter(told(decoded)), case.kinds

    def broken(self: Columns, text: object, found: object, offset: int) -> None:
        del self, text, found, offset

    def take(carry: bytes, piece: memoryview, offset: int, columns: Columns) -> tuple[int, bool, bytes]:
        text = scannable(carry, piece)
        found = scan(text)
        for begin, end in zip(found.begin.tolist(), found.end.tolist(), strict=True):
            columns.add_broken(text.raw[begin:end], offset + begin)
        with monkeypatch.context() as patch:
            patch.setattr(Columns, "add_scanned", broken)
            used, closed, rest = original(carry, piece, offset, columns)
        return used, closed, rest

    original = kineto._take
    monkeypatch.setattr(kineto, "_take", take)
    singly = read(tmp_path, case.data, case.suffix)
    assert Counter(told(singly)) == Counter(told(scanned)), case.kinds


def test_strict_pieces_are_decoded_whole_wherever_they_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts and arguments that look like the place between two events, collectives, instants, other spellings."""
    trap = '}, {"ph": "X", '
    list_of = [{"ph": "X", "name": "inner", "ts": 1}, {"ph": "X", "name": "inner", "ts": 2}]
    rows: list[dict[str, object]] = []
    for k in range(1, 60):
        rows.append(kernel(f"k{k % 7} {trap}", k * 100, 5.5, corr=k))
        rows.append(
            event("cpu_op", trap, f"{k * 100}.25", None, tid="7", extra=list_of, **{"External id": str(k)})
        )
        rows.append(event("cpu_op", "op", k * 100 + 0.125, 2, tid=7, **{"Input Dims": [[k % 5, 2], []]}))
        comm = {"Collective name": "allreduce", "In msg nelems": k % 3, "dtype": "Float"}
        rows.append(event("kernel", "nccl", k * 100 + 20, 7, stream="0x1f", device=0, **comm))
        told_of = {
            "Device Type": 1,
            "Device Id": 0,
            "Addr": k << 20,
            "Bytes": 512,
            "Total Allocated": k * 512,
        }
        rows.append({**event("cpu_instant_event", "[memory]", k * 100 + 30, 0, **told_of), "ph": "i"})
        rows.append({"ph": "s", "cat": "ac2g", "id": k, "pid": 1, "tid": 1, "ts": k})
    data = text_of(rows).encode()
    whole = PlainReader.read
    taken: list[bool] = []

    def watch(self: PlainReader, carry: bytes, piece: memoryview) -> tuple[int, bytes] | None:
        taken.append((found := whole(self, carry, piece)) is not None)
        return found

    def refuse(self: PlainReader, carry: bytes, piece: memoryview) -> None:
        del self, carry, piece

    read_by = []
    for size, reader in ((2048, watch), (2111, watch), (9000, watch), (2048, refuse)):
        monkeypatch.setattr(kineto, "PIECE_BYTES", size)
        monkeypatch.setattr(PlainReader, "read", reader)
        timeline = read(tmp_path, data, f"{size}{reader.__name__}.json")
        assert len(timeline) == 59 * 4 and timeline.memory is not None
        memory = [getattr(timeline.memory, name).tolist() for name in ("ts", "address", "bytes", "allocated")]
        comms = [timeline.comms[i] if i >= 0 else None for i in timeline.comm.tolist()]
        shapes = [timeline.shapes[i] if i >= 0 else None for i in timeline.shape.tolist()]
        read_by.append((Counter(told(timeline)), memory, comms, shapes, timeline.stream.tolist()))
    assert all(one == read_by[0] for one in read_by[1:])
    assert sum(taken) > 20


@pytest.mark.parametrize(
    "ts", ["5", "5.125", "-7", "1e3", '"12"', "null", "true", str(-(2**63)), "9" * 19, "9" * 30]
)
def test_times_of_any_spelling_are_the_same_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ts: str
) -> None:
    rows = [kernel(f"k{i}", i, 1, corr=i) for i in range(40)]
    data = text_of(rows).replace('"ts": 3,', f'"ts": {ts},').encode()
    monkeypatch.setattr(kineto, "PIECE_BYTES", 1500)
    decoded = read(tmp_path, data)

    def refuse(self: PlainReader, carry: bytes, piece: memoryview) -> None:
        del self, carry, piece

    monkeypatch.setattr(PlainReader, "read", refuse)
    scanned = read(tmp_path, data)
    assert told(decoded) == told(scanned) and decoded.warnings == scanned.warnings


# -- numbers ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(10**18) + 1, 10**18 - 1), min_size=1, max_size=50))
def test_integers_are_read_exactly(values: list[int]) -> None:
    texts = [str(v) for v in values]
    text = scannable((",".join(texts) + ",").encode())
    at = kineto_columns.np.cumsum([0, *(len(t) + 1 for t in texts[:-1])])
    found, good = integers(text, at)
    assert good.all() and found.tolist() == values


@given(
    st.lists(st.tuples(st.integers(0, 10**15), st.integers(0, 999), st.booleans()), min_size=1, max_size=50)
)
def test_times_are_read_exactly(values: list[tuple[int, int, bool]]) -> None:
    texts = [("-" if minus else "") + f"{whole}.{part:03d}" for whole, part, minus in values]
    text = scannable(("}".join(texts) + "}").encode())
    at = kineto_columns.np.cumsum([0, *(len(t) + 1 for t in texts[:-1])])
    found, good = microseconds(text, at)
    assert good.all()
    assert found.tolist() == [(-1 if minus else 1) * (whole * 1000 + part) for whole, part, minus in values]


@given(st.lists(st.sampled_from(["1x", "", "-", "1.", ".5", "1e5", "1.2.3", "9" * 19, "null", "0x1", '"5'])))
def test_what_is_no_plain_number_is_not_read(values: list[str]) -> None:
    text = scannable((",".join(values) + ",").encode())
    at = kineto_columns.np.cumsum([0, *(len(t) + 1 for t in values)])[:-1].astype("int64")
    for reader in (integers, microseconds):
        _, good = reader(text, at)
        assert not good.any()


# -- what a file says twice, and old names ----------------------------------------------------------------


def test_duplicates_with_an_id_are_dropped_and_others_stay(tmp_path: Path) -> None:
    twice = [kernel("k", 1, 5, corr=1), kernel("k", 1, 5, corr=1)]
    frames = [event("python_function", "f", 1, 5), event("python_function", "f", 1, 5)]
    timeline = read(tmp_path, text_of([*twice, *frames]).encode())
    assert len(timeline) == 3 and [(w.code, w.count) for w in timeline.warnings] == [("duplicate-events", 1)]


def test_copies_of_old_rocm_recordings_are_copies(tmp_path: Path) -> None:
    names = [
        "MEMORY_COPY_HOST_TO_DEVICE",
        "__amd_rocclr_copyBufferAligned",
        "__amd_rocclr_fillBufferAligned",
        "gemm",
    ]
    timeline = read(tmp_path, text_of([kernel(n, i, 1, corr=i) for i, n in enumerate(names, 1)]).encode())
    assert timeline.cat.tolist() == [8, 8, 9, 7]


@pytest.mark.parametrize(
    ("category", "cat"),
    [("xpu_runtime", 3), ("glow_runtime", 3), ("runtime", 3), ("driver", 4), ("privateuse1_driver", 4),
     ("hpu_op", 3), ("mtia_ccp_events", 0), ("xpu_sync", 11)],
)  # fmt: skip
def test_categories_of_other_devices(tmp_path: Path, category: str, cat: int) -> None:
    timeline = read(tmp_path, text_of([kernel("k", 1, 1, corr=1), event(category, "x", 2, 1)]).encode())
    assert timeline.cat.tolist() == [7, cat]
    assert len(read(tmp_path, text_of([kernel("k", 1, 1, corr=1), event("ac2g", "x", 2, 1)]).encode())) == 1


def test_the_allocators_instants_are_kept(tmp_path: Path) -> None:
    rows = [kernel("k", 10, 1, corr=1)]
    for k, (kind, size) in enumerate([(1, 512), (1, -512), (0, 64)]):
        told_of = {
            "Device Type": kind,
            "Device Id": 0,
            "Addr": 2**47,
            "Bytes": size,
            "Total Allocated": 5,
            "Total Reserved": 9,
        }
        rows.append({**event("cpu_instant_event", "[memory]", 20 + k, 0, **told_of), "ph": "i"})
        del rows[-1]["dur"]
    memory = read(tmp_path, text_of(rows).encode()).memory
    assert memory is not None
    assert memory.ts.tolist() == [10_000, 11_000, 12_000] and memory.device.tolist() == [0, 0, -1]
    assert memory.bytes.tolist() == [512, -512, 64] and memory.reserved.tolist() == [9, 9, 9]
    assert memory.address.tolist() == [2**47] * 3 and memory.allocated.tolist() == [5, 5, 5]
