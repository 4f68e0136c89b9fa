"""Storage with next to no time: what can go wrong there, and that nothing is left behind. Never a speed."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from wellfed.bench import run_benchmarks
from wellfed.bench.setup import Setup
from wellfed.bench.storage import aio, files, gds, page_cache, reads, small_files, swarm, with_fio, writes
from wellfed.model import Machine, WellfedError

TINY_S = 0.05
BLOCK = 4096

linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux's kernel")


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    monkeypatch.setattr(files, "MEMORY_FS", ())
    monkeypatch.setattr(files, "FILE_MAX", files.FILE_MIN)
    return Setup(machine=Machine(), folder=tmp_path)


@pytest.fixture
def target(setup: Setup) -> Iterator[files.Target]:
    with files.random_file(setup.folder, files.FILE_MIN, time.monotonic()) as found:
        yield found


@pytest.fixture
def queued(target: files.Target) -> files.Target:
    if not target.direct or aio.unavailable():
        pytest.skip(f"no asynchronous O_DIRECT here: {aio.unavailable() or target.fs}")
    return target


# -- asynchronous I/O ------------------------------------------------------------------------------------------


def test_structures_are_those_of_the_kernel() -> None:
    assert aio.IOCB.itemsize == 64 and aio.EVENT.itemsize == 32
    assert [
        aio.IOCB.fields[name][1] for name in ("opcode", "fildes", "buf", "nbytes", "offset", "resfd")
    ] == [16, 20, 24, 32, 40, 60]


@pytest.mark.parametrize("depth", [1, 3, 64])
def test_every_transfer_ends_once_and_after_it_began(queued: files.Target, depth: int) -> None:
    offsets = np.arange(queued.size // BLOCK) * BLOCK
    spans = aio.transfer(queued.fd, offsets, BLOCK, depth, 10.0, most=500)
    assert len(spans.begin_ns) == len(spans.end_ns) == 500
    assert (spans.end_ns > spans.begin_ns).all() and (np.diff(spans.end_ns) >= 0).all()


def test_what_is_asked_is_what_is_written(queued: files.Target) -> None:
    """Writes change the blocks that they name and no other."""
    before = os.pread(queued.plain, 8 * BLOCK, 0)
    aio.transfer(queued.fd, np.array([2 * BLOCK, 5 * BLOCK]), BLOCK, 2, 10.0, write=True, most=2)
    after = os.pread(queued.plain, 8 * BLOCK, 0)
    changed = [
        n for n in range(8) if before[n * BLOCK : (n + 1) * BLOCK] != after[n * BLOCK : (n + 1) * BLOCK]
    ]
    assert changed == [2, 5]


def test_more_answers_than_are_kept_at_once(queued: files.Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "_EVENTS", 64)
    spans = aio.transfer(queued.fd, np.zeros(7, dtype=np.int64), BLOCK, 16, 10.0, most=1000)
    assert len(spans.end_ns) == 1000 and (spans.end_ns > spans.begin_ns).all()


def test_a_read_past_the_end_is_an_error_and_no_rate(queued: files.Target) -> None:
    with pytest.raises(OSError) as caught:
        aio.transfer(queued.fd, np.array([queued.size]), BLOCK, 1, TINY_S)
    assert caught.value.errno == errno.EIO
    with pytest.raises(OSError) as caught:
        aio.transfer(queued.fd, np.array([17]), BLOCK, 1, TINY_S)
    assert caught.value.errno == errno.EINVAL


def test_a_sandbox_without_asynchronous_calls_means_threads(
    queued: files.Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int, *_: int) -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    aio.unavailable.cache_clear()
    monkeypatch.setattr(aio, "_call", refuse)
    try:
        reason = aio.unavailable()
        assert reason is not None and "Operation not permitted" in reason
        assert reads.read_blocks(queued, reads.RANDOM, TINY_S).how == "preadv by 16 threads"
        assert "one at a time" in writes.write_blocks(queued, writes.RANDOM, TINY_S)[1]
    finally:
        aio.unavailable.cache_clear()


def test_several_processes_bring_one_list(queued: files.Target) -> None:
    spans = swarm.transfer_by(3, queued.fd, queued.size // BLOCK, BLOCK, 4, TINY_S)
    assert len(spans.begin_ns) == len(spans.end_ns) >= 4
    assert (spans.end_ns > spans.begin_ns).all()


def test_a_process_that_fails_is_an_error(queued: files.Target) -> None:
    with pytest.raises(OSError, match="ended early"):
        swarm.transfer_by(2, queued.fd, 1 << 40, BLOCK, 2, TINY_S)


# -- the file --------------------------------------------------------------------------------------------------


def test_the_file_has_no_name_and_random_data(setup: Setup, target: files.Target) -> None:
    assert not list(setup.folder.iterdir())
    assert os.fstat(target.plain).st_nlink == 0
    data = np.frombuffer(os.pread(target.plain, 1 << 20, 0), dtype=np.uint8)
    assert np.bincount(data, minlength=256).min() > 3000, "no zeros for a device to compress"


def test_a_file_system_without_nameless_files(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: object, flags: int, *more: object, **others: object) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(path, flags, *more, **others)

    monkeypatch.setattr(files.os, "open", refuse)
    with files.nameless_file(setup.folder) as fd:
        assert not list(setup.folder.iterdir()) and os.fstat(fd).st_nlink == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("name", ["reads", "depths", "small_files", "writes", "page_cache"])
def test_a_disk_that_fills_up_costs_one_line(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    wrote = []
    real = os.write

    def full(fd: int, data: bytes) -> int:
        wrote.append(fd)
        if len(wrote) > 1 or name == "storage.writes":  # a slow disk writes only once in the time there is
            raise OSError(code, os.strerror(code))
        return real(fd, data)

    monkeypatch.setattr(files.os, "write", full)
    measured = run_benchmarks(Machine(), budget_s=0.2, only=[name], folder=setup.folder, effort="full")
    assert not measured.ceilings
    assert all(os.strerror(code) in reason for reason in measured.skipped.values()) and measured.skipped
    assert not list(setup.folder.iterdir())


@linux
def test_a_read_only_folder_is_named(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(setup.folder))

    monkeypatch.setattr(files.os, "open", refuse)
    monkeypatch.setattr(files.tempfile, "mkstemp", refuse)
    measured = run_benchmarks(Machine(), budget_s=0.1, only=["storage.reads"], folder=setup.folder)
    assert all("Read-only file system" in reason for reason in measured.skipped.values())


@pytest.mark.parametrize(
    ("fs", "named"),
    [("nfs4", True), ("fuse.sshfs", True), ("overlay", False), ("ext4", False), (None, False)],
)
def test_a_network_file_system_is_a_reservation(fs: str | None, named: bool) -> None:
    found = files.reservation(files.Target(0, 0, 1, True, fs))
    assert (found is not None and str(fs) in found) == named


# -- small files, writes, caches -------------------------------------------------------------------------------


def test_small_files_have_all_sizes_and_go(setup: Setup) -> None:
    with small_files.small_files(setup.folder, 1, time.monotonic()) as names:
        sizes = [Path(name).stat().st_size for name in names]
        assert sizes == list(small_files.SIZES) * (len(names) // len(small_files.SIZES))
    assert not list(setup.folder.iterdir())


@linux
def test_small_files_go_when_we_are_killed(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from wellfed.bench.storage.small_files import small_files\n"
        "with small_files(Path(sys.argv[1]), 1, time.monotonic()) as names:\n"
        "    print(len(names), flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline().strip().isdigit()
        assert list(tmp_path.iterdir())
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not list(tmp_path.iterdir())


def test_bytes_written_are_bounded(target: files.Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "_MOST_BYTES", 40 * BLOCK)
    spans, _ = writes.write_blocks(target, writes.RANDOM, 10.0)
    assert len(spans.end_ns) == 40
    monkeypatch.setattr(writes, "_MOST_BYTES", 3 * files.CHUNK)
    assert len(writes.checkpoint_rates(Path(target_folder(target)), files.CHUNK, 10.0)) == 3


def target_folder(target: files.Target) -> str:
    return os.path.dirname(os.readlink(f"/proc/self/fd/{target.plain}"))  # noqa: PTH120, PTH115 - the file has no name


def test_fsync_gives_each_time(target: files.Target) -> None:
    samples = writes.fsync_times(target, TINY_S)
    assert len(samples) >= 3 and min(samples) > 0


def test_advice_to_the_kernel_is_taken_back(target: files.Target, monkeypatch: pytest.MonkeyPatch) -> None:
    if page_cache.needs(Machine()):
        pytest.skip("no posix_fadvise")
    said: list[int] = []
    monkeypatch.setattr(page_cache.os, "posix_fadvise", lambda fd, offset, length, word: said.append(word))
    monkeypatch.setattr(page_cache, "_PASS_MOST", 1 << 20)
    page_cache._cold_pass(target, os.POSIX_FADV_RANDOM)()
    assert said[-2:] == [os.POSIX_FADV_RANDOM, os.POSIX_FADV_NORMAL]


# -- others' words ---------------------------------------------------------------------------------------------


def test_fio_output_is_read_or_left() -> None:
    said = 'fio: a note\n{"jobs": [{"read": {"iops": 51234.5, "clat_ns": {"percentile": {"50.000000": 250000}}}}]}'
    assert with_fio.read_output(said) == (51234.5, 250.0)
    assert with_fio.read_output('{"jobs": [{"read": {"iops": 10.0, "clat_ns": {}}}]}') == (10.0, None)
    for broken in (
        "",
        "fio: error",
        "{",
        "[]",
        '{"jobs": []}',
        '{"jobs": [{"read": {"iops": 0}}]}',
        '{"jobs": [{"read": null}]}',
    ):
        assert with_fio.read_output(broken) is None


def test_the_gds_path_is_direct_only_when_the_module_counts() -> None:
    stats = "GDS Version: 1.7.0\nActive Shadow-Buffer (MiB): 0\nReads\t\t\t\t: n=12 ok=12 err=0 readMiB=3\nWrites : n=99 ok=99\n"
    assert gds.reads_by_module(stats) == 12
    assert gds.reads_by_module("NVFS statistics(ver:4.0): disabled\n") is None
    assert gds.path_taken(12, 13) == "direct"
    assert gds.path_taken(12, 12) == gds.path_taken(None, None) == gds.path_taken(None, 4) == "compat"


def test_gds_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gds.Path, "exists", lambda self: True)
    monkeypatch.setattr(gds, "library_path", lambda: None)
    reason = gds.needs(Machine())
    assert reason is not None and "libcufile" in reason
    with pytest.raises(WellfedError, match=r"cuFileDriverOpen failed with error 5001 \(CUDA 3\)"):
        gds.check(gds.Error(5001, 3), "cuFileDriverOpen")
    assert gds.ctypes.sizeof(gds.Descriptor) == 24
