"""Asking a job for a trace: the protocol against a job of ours that speaks it, and all the ways in which it can't be asked."""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.live import attach, kineto
from wellfed.live.kineto import Answering, Window, pack, parse
from wellfed.live.stacks import count_stacks
from wellfed.model import WellfedError

TRACE = '{"traceEvents": [{"ph": "X", "name": "aten::add", "ts": 1, "dur": 1}], "traceName": "x"}'


@given(st.binary(max_size=200))
def test_no_datagram_breaks_the_parser(data: bytes) -> None:
    found = parse(data)
    assert found is None or found[0] in ("ctxt", "req")


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=kineto.MAX_PIDS))
def test_a_request_is_read_as_it_was_written(pids: list[int]) -> None:
    body = struct.pack(f"<iiq{len(pids)}i", 3, len(pids), 0, *pids)
    assert parse(pack("req", body)) == ("req", tuple(pids))
    assert parse(pack("req", body)[:-1]) is None, "cut short"
    assert parse(pack("req", body + b"x")[:-1]) is None, "its size does not agree"


def test_a_count_that_is_not_there_is_refused() -> None:
    assert parse(pack("req", struct.pack("<iiq", 3, 1000, 0))) is None
    assert parse(pack("req", struct.pack("<iiqi", 3, -1, 0, 5))) is None
    assert parse(pack("ctxt", b"")) == ("ctxt", ())


def test_a_window_is_lines_of_settings() -> None:
    assert Window("/x/t.json", 500).text().splitlines() == [
        "ACTIVITIES_LOG_FILE=/x/t.json", "ACTIVITIES_DURATION_MSECS=500", "ACTIVITIES_WARMUP_PERIOD_SECS=1",
    ]  # fmt: skip
    assert Window("/x/t.json", 500, 2, 99).text().endswith("PROFILE_START_TIME=99\n")


JOB = """
import json, os, pathlib, socket, struct, sys, time
folder, how = sys.argv[1:3]
mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
mine.bind(f"{folder}/client{os.getpid()}")
mine.settimeout(0.1)
def send(kind, body):
    try:
        mine.sendto(struct.pack("<Q32s", len(body), kind) + body, f"{folder}/dynolog")
    except OSError:
        pass
while True:
    mine.sendto(b"junk", f"{folder}/client{os.getpid()}")
    send(b"ctxt", struct.pack("<iiq", 0, os.getpid(), 0))
    send(b"nonsense", b"x" * 100)
    send(b"req", struct.pack("<iiq2i", 3, 2, 0, os.getpid(), os.getppid()))
    end = time.time() + 0.2
    while time.time() < end:
        try:
            data, by = mine.recvfrom(65536)
        except TimeoutError:
            continue
        if by != f"{folder}/dynolog" or not data[8:40].startswith(b"req") or len(data) == 40:
            continue
        told = dict(line.split("=", 1) for line in data[40:].decode().split())
        stem, suffix = told["ACTIVITIES_LOG_FILE"].rsplit(".", 1)
        goal = f"{stem}_{os.getpid()}.{suffix}"
        if how == "die":
            pathlib.Path(goal + ".tmp").touch()
            os.kill(os.getpid(), 9)
        event = {"ph": "X", "name": "aten::add", "ts": 1, "dur": 1}
        events = [event] if how == "good" else []
        pathlib.Path(goal + ".tmp").write_text(json.dumps({"traceEvents": events, "traceName": "x"}))
        time.sleep(0.2)
        os.rename(goal + ".tmp", goal)
"""


@contextlib.contextmanager
def job(folder: Path, how: str = "good") -> Iterator[attach.Target]:
    """A process that asks like Kineto, five times a second."""
    process = subprocess.Popen([sys.executable, "-c", JOB, str(folder), how])
    try:
        yield attach.Target(process.pid, process.pid, os.getuid(), str(folder), "")
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("s")
    made.chmod(0o700)
    return made


def _silent(_: str) -> None:
    pass


def test_a_job_that_asks_is_traced(folder: Path, tmp_path: Path) -> None:
    with job(folder) as target:
        done = attach.ask([target], 0.1, tmp_path / "kept", _silent, explicit=[target.pid])
    assert done.reasons == {}
    assert done.files == {target.pid: tmp_path / "kept" / f"trace_{target.pid}.json"}
    assert done.files[target.pid].read_text() == TRACE
    assert not (folder / "dynolog").exists(), "the name is gone with us"


def test_a_file_has_the_rank_in_its_name(folder: Path, tmp_path: Path) -> None:
    with job(folder) as target:
        done = attach.ask([target._replace(rank=13)], 0.1, tmp_path, _silent)
    assert [path.name for path in done.files.values()] == [f"trace_rank13_{target.pid}.json"]


def test_several_are_traced_and_the_silent_one_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach, "_ASK_S", 1.5)
    with job(folder) as one, job(folder) as two:
        silent = one._replace(pid=os.getpid(), inner=os.getpid())
        done = attach.ask([one, two, silent], 0.1, tmp_path, _silent, explicit=[silent.pid])
    assert set(done.files) == {one.pid, two.pid}
    assert "did not ask within" in done.reasons[silent.pid]


def test_a_job_that_dies_in_its_window_is_a_reason(folder: Path, tmp_path: Path) -> None:
    with job(folder, "die") as target:
        done = attach.ask([target], 0.1, tmp_path, _silent, explicit=[target.pid])
    assert done.files == {} and done.reasons == {target.pid: "it ended before the trace was written"}


def test_a_trace_of_nothing_is_a_reason(folder: Path, tmp_path: Path) -> None:
    with job(folder, "idle") as target:
        done = attach.ask([target], 0.1, tmp_path, _silent, explicit=[target.pid])
    assert done.files == {} and "its trace is empty" in done.reasons[target.pid]


LAUNCHER = """
import os, subprocess, sys, time
code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
for rank in "01":
    subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "LOCAL_RANK": rank})
time.sleep(60)
"""


def test_of_a_launcher_the_ranks_are_asked_and_not_their_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun loads PyTorch too. Here each rank has a worker, and all five processes have it."""
    environ = {name: value for name, value in os.environ.items() if "RANK" not in name}
    monkeypatch.setattr(attach, "_has_torch", lambda pid: True)
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], env=environ, start_new_session=True)
    try:
        until = time.monotonic() + 20
        while len(attach.descendants(launcher.pid)) < 4 and time.monotonic() < until:
            time.sleep(0.05)
        below = attach.descendants(launcher.pid)
        ranks = [pid for pid in below if next(attach._ancestors(pid)) == launcher.pid]
        assert len(below) == 4 and len(ranks) == 2
        assert sorted(attach._jobs(launcher.pid)) == sorted(ranks)
        assert attach._jobs(ranks[0]) == [ranks[0]], "a rank that is named is itself, without its worker"
    finally:
        os.killpg(launcher.pid, 9)
        launcher.wait()


def test_a_stranger_in_the_folder_is_told_nothing(folder: Path) -> None:
    with Answering(str(folder)) as door, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.bind(str(folder / "stranger"))
        stranger.settimeout(0.2)
        stranger.sendto(pack("req", struct.pack("<iiqi", 3, 1, 0, 4711)), str(folder / "dynolog"))
        asked = door.wait(1.0)
        assert asked is not None and asked.peer == os.getpid()
        target = attach.Target(4711, 4711, os.getuid(), str(folder), "")
        assert attach._who(asked, [target]) is None, "it says that it is 4711, the kernel says who it is"


def test_one_whose_folder_is_spelled_otherwise_is_not_answered(folder: Path) -> None:
    """It would end itself."""
    with Answering(str(folder)) as door, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(f"{folder}/../{folder.name}/x")
        other.sendto(pack("req", struct.pack("<iiqi", 3, 1, 0, 1)), str(folder / "dynolog"))
        assert door.wait(0.5) is None


def test_two_cannot_answer_at_once_and_the_dead_are_cleared_away(folder: Path) -> None:
    with Answering(str(folder)), pytest.raises(WellfedError, match="somebody answers already"):
        Answering(str(folder)).__enter__()
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.bind(str(folder / "dynolog"))
    left.close()
    with Answering(str(folder)) as door:
        assert door.wait(0.0) is None


def test_folders_that_others_can_write_are_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(WellfedError, match="can be written by others"):
        Answering(str(folder)).__enter__()
    for bad, says in {str(folder / "missing"): "No such file", f"{folder}/{'x' * 100}": "too long"}.items():
        with pytest.raises(WellfedError, match=says):
            Answering(bad).__enter__()


def test_processes_that_cannot_be_asked_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attach.find_targets(2**22 + 1) == ([], "there is no such process")
    found, reason = attach.find_targets(os.getpid())
    assert found == [] and reason is not None and "PyTorch is not loaded" in reason
    monkeypatch.setattr(attach, "_has_torch", lambda pid: pid == os.getpid())
    found, reason = attach.find_targets(os.getpid())
    assert found == [] and reason is not None and "without KINETO_USE_DAEMON=1" in reason


def test_the_verb_says_what_to_do(run_cli) -> None:
    result = run_cli("attach", str(os.getpid()))
    assert result.code == 2 and f"process {os.getpid()} can't be asked: PyTorch is not loaded" in result.err
    assert run_cli("attach", "0").code == 2 and run_cli("attach", "x").code == 2


def test_stacks_are_counted() -> None:
    text = "main (a.py:1);step (a.py:5) 3\nmain (a.py:1);load (a.py:9) 1\nbroken line\n\nno count here x\n"
    seen = count_stacks(text)
    assert seen.samples == 4 and seen.lines == {"step (a.py:5)": 0.75, "load (a.py:9)": 0.25}
    assert seen.holding["main (a.py"] == 1.0
    assert count_stacks("").samples == 0


LOOP = """
import sys, time, torch
model, x = torch.nn.Linear(256, 256), torch.randn(32, 256)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
print("ready", flush=True)
end = time.time() + 60
while time.time() < end:
    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step(); time.sleep(0.01)
"""


@pytest.mark.torch
def test_an_unmodified_loop_gives_its_trace(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config = tmp_path / "kineto.conf"
    config.write_text("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
    environ = {
        **os.environ,
        "KINETO_USE_DAEMON": "1",
        "KINETO_IPC_SOCKET_DIR": str(folder),
        "KINETO_CONFIG": str(config),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP], env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(0.5)
        targets, reason = attach.find_targets(process.pid)
        assert reason is None
        done = attach.ask(targets, 0.3, tmp_path / "kept", _silent, explicit=[process.pid])
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    text = done.files[process.pid].read_text()
    assert '"Optimizer.step#SGD.step"' in text and "aten::linear" in text
