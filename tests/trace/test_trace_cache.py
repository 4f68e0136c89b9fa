"""Columns of large traces are kept in the user's cache: the same rows, nothing of the surroundings, never trusted."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from trace_builder import event, kernel, simulate, write

from wellfed.ingest import cache, read_file
from wellfed.model.timeline import Timeline

SECRET = "hunter2-in-the-environment"


@pytest.fixture(autouse=True)
def small_files_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "WORTH_BYTES", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("WELLFED_CACHE", raising=False)
    return tmp_path / "cache" / "wellfed" / "traces"


def trace(tmp_path: Path) -> Path:
    rows = [
        *simulate(steps=3, kernels=20).events,
        event("cpu_op", "aten::mm", 1, 2, **{"Input Dims": [[2, 3]], "External id": 4}),
        {**event("cpu_instant_event", "[memory]", 5, 0), "ph": "i"},
    ]
    rows[-1]["args"] = {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 512, "Total Allocated": 512}
    return write(tmp_path / "t.json", rows, record_shapes=1, environment={"TOKEN": SECRET}, trace_id=SECRET)


def same(a: Timeline, b: Timeline) -> bool:
    arrays = [f for f in Timeline.__struct_fields__ if isinstance(getattr(a, f), np.ndarray)]
    others = [f for f in Timeline.__struct_fields__ if f not in (*arrays, "memory")]
    told = all(
        (getattr(a, f) == getattr(b, f)).all() and getattr(a, f).dtype == getattr(b, f).dtype for f in arrays
    )
    assert a.memory is not None and b.memory is not None
    return (
        told
        and all(getattr(a, f) == getattr(b, f) for f in others)
        and a.memory.ts.tolist() == b.memory.ts.tolist()
    )


def test_a_second_look_reads_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = trace(tmp_path)
    (first,) = read_file(path)
    monkeypatch.setattr("wellfed.ingest.kineto.read", lambda path: pytest.fail("read again"))
    (second,) = read_file(path)
    assert same(first, second)


def test_only_the_user_can_read_it_and_no_environment_is_in_it(
    tmp_path: Path, small_files_count: Path
) -> None:
    read_file(trace(tmp_path))
    (kept,) = small_files_count.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(small_files_count.stat().st_mode) == 0o700
    assert SECRET.encode() not in kept.read_bytes()
    assert str(tmp_path).encode() not in kept.read_bytes()


def test_a_changed_trace_is_read_anew(tmp_path: Path) -> None:
    path = trace(tmp_path)
    before = len(read_file(path)[0])
    write(path, [kernel("one", 1, 1, corr=1)])
    assert len(read_file(path)[0]) == 1 < before


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "other"])
def test_a_damaged_one_is_ignored_and_written_anew(
    tmp_path: Path, small_files_count: Path, damage: str
) -> None:
    path = trace(tmp_path)
    (first,) = read_file(path)
    (kept,) = small_files_count.iterdir()
    whole = kept.read_bytes()
    places = range(0, len(whole), 37) if damage == "flipped" else [0]
    for at in places:
        broken = bytearray(whole)
        broken[at] ^= 0x41
        data = {"cut": whole[: len(whole) // 2], "empty": b"", "other": b"x" * 5000, "flipped": bytes(broken)}
        kept.write_bytes(data[damage])
        assert cache.load(path) is None, at
    assert same(read_file(path)[0], first)
    assert kept.read_bytes() == whole


def test_it_can_be_turned_off_and_put_elsewhere(
    tmp_path: Path, small_files_count: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = trace(tmp_path)
    monkeypatch.setenv("WELLFED_CACHE", "0")
    read_file(path)
    assert not small_files_count.exists()
    monkeypatch.setenv("WELLFED_CACHE", str(tmp_path / "elsewhere"))
    read_file(path)
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_a_folder_that_cannot_be_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WELLFED_CACHE", str(tmp_path / "file" / "below"))
    assert len(read_file(trace(tmp_path))[0])


def test_the_oldest_go_when_there_are_too_many(
    tmp_path: Path, small_files_count: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []
    for k in range(4):
        path = write(tmp_path / f"{k}.json", simulate(steps=2, kernels=10 + k).events)
        read_file(path)
        paths.append(path)
        for kept in small_files_count.iterdir():
            os.utime(kept, ns=(0, kept.stat().st_mtime_ns - 10**9))
    size = max(kept.stat().st_size for kept in small_files_count.iterdir())
    monkeypatch.setattr(cache, "MOST_BYTES", int(size * 2.5))
    (small_files_count / ".left.part").write_bytes(b"half")
    os.utime(small_files_count / ".left.part", (0, 0))
    assert cache.load(paths[1]) is not None  # used just now
    read_file(write(tmp_path / "new.json", simulate(steps=2, kernels=9).events))
    assert cache.load(paths[1]) is not None and cache.load(paths[0]) is None
    assert sum(kept.stat().st_size for kept in small_files_count.iterdir()) <= cache.MOST_BYTES
