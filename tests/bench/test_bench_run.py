"""The benchmarks themselves, with next to no time: invariants of what they return, never a speed."""

import errno
import fnmatch
import os
import re
import threading
from pathlib import Path

import pytest

from wellfed.bench import find, measure_quick, noise, repeat, run, run_benchmarks
from wellfed.bench.host import (
    ping_pong,
    shared_memory,
)
from wellfed.bench.setup import Setup, allowed_cpus, hardware_key, size_text, usable_threads
from wellfed.bench.storage import files
from wellfed.bench.storage import reads as storage
from wellfed.bench.team import Team
from wellfed.model import Ceiling, Machine, WellfedError
from wellfed.model.base import replace
from wellfed.model.devices import Gpu
from wellfed.model.machine import Container, Cpu, Kernel, Memory

TINY_S = 0.05
MACHINE = Machine(cpu=Cpu(l3_bytes=1 << 20, l3_groups=1, model_name="An Invented CPU", cores=2))


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """A small file, and no refusal of a temporary folder that is memory."""
    monkeypatch.setattr(files, "FILE_MAX", files.FILE_MIN)
    monkeypatch.setattr(files, "MEMORY_FS", ())
    return Setup(machine=MACHINE, folder=tmp_path)


def _hold(ceiling: Ceiling) -> None:
    assert ceiling.n > 0 and ceiling.cv >= 0 and ceiling.seconds > 0
    assert 0 <= ceiling.p10 <= ceiling.median <= ceiling.p90
    assert ceiling.best >= ceiling.p90 if ceiling.higher_is_better else ceiling.best <= ceiling.p10
    assert ceiling.higher_is_better == (
        ceiling.unit.endswith("/s") or ceiling.unit in ("IOPS", "of loopback")
    )
    assert ceiling.hardware_key == hardware_key(MACHINE)
    assert ceiling.band and ceiling.band[0] < ceiling.band[1] and ceiling.band_source
    assert ceiling.method and ceiling.title and ceiling.size
    assert ceiling.verdict == "ok" or ceiling.why
    assert "load1" in ceiling.noise
    assert ceiling.peak is None and ceiling.ratio is None, "nobody told us the speed of the DIMMs"


@pytest.mark.parametrize("name", sorted(n for n, b in find.benchmarks().items() if not find.is_isolated(b)))
def test_each_benchmark_keeps_its_promises(name: str, setup: Setup) -> None:
    benchmark = find.benchmarks()[name]
    reason = benchmark.needs(setup.machine)
    if reason is not None:
        pytest.skip(reason)
    if name == "network.pair":
        pytest.skip("another end must serve: test_bench_network.py")
    threads = threading.active_count()
    ceilings = list(benchmark.measure(setup, TINY_S))
    assert ceilings
    for ceiling in ceilings:
        assert any(fnmatch.fnmatchcase(ceiling.id, id) for id in benchmark.IDS), ceiling.id
        _hold(ceiling)
    assert threading.active_count() == threads, "no thread is left behind"
    assert not list(setup.folder.iterdir()), "no file is left behind"


def test_every_ceiling_has_one_id() -> None:
    ids = [id for benchmark in find.benchmarks().values() for id in benchmark.IDS]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)*(\.\*)?", id) for id in ids)


# -- running them ------------------------------------------------------------------------------------------


class Fake:
    IDS = ("fake-a", "fake-b")
    WEIGHT = 1.0
    EFFORT = "quick"

    def __init__(self, needs: str | None = None, error: Exception | None = None) -> None:
        self.reason, self.error, self.budgets = needs, error, list[float]()

    def needs(self, machine: Machine) -> str | None:
        return self.reason

    def measure(self, setup: Setup, budget_s: float) -> list[Ceiling]:
        self.budgets.append(budget_s)
        if self.error is not None:
            raise self.error
        return [_ceiling("fake-a"), _ceiling("fake-b")]


def _ceiling(id: str) -> Ceiling:
    return Ceiling(
        id=id, title=id, method="", hardware_key="", unit="s", best=1, median=1, p10=1, p90=1, n=3, cv=0
    )


def _use(monkeypatch: pytest.MonkeyPatch, **fakes: Fake) -> None:
    monkeypatch.setattr(run, "benchmarks", lambda: fakes)


def test_the_budget_is_shared_by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Fake(), Fake()
    two.WEIGHT = 3.0
    _use(monkeypatch, **{"host.one": one, "host.two": two})
    heard: list[str] = []
    measured = run_benchmarks(MACHINE, budget_s=4.0, progress=heard.append)
    assert len(measured.ceilings) == 4 and not measured.skipped
    assert one.budgets[0] == pytest.approx(1.0, abs=0.2)
    assert two.budgets[0] == pytest.approx(4.0, abs=0.2), "what the first did not use"
    assert [text.split(" (")[0] for text in heard] == ["measuring one", "measuring two"]


def test_one_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(
        monkeypatch,
        a=Fake(error=OSError(errno.EACCES, "Permission denied", "/somewhere")),
        b=Fake(needs="no such thing here"),
        c=Fake(error=MemoryError()),
    )
    measured = run_benchmarks(MACHINE, budget_s=1.0)
    assert measured.ceilings == ()
    assert measured.skipped == {
        "fake-a": "there was not enough memory",
        "fake-b": "there was not enough memory",
    }
    _use(monkeypatch, a=Fake(error=OSError(errno.EACCES, "Permission denied", "/somewhere")))
    assert "Permission denied (/somewhere)" in run_benchmarks(MACHINE, budget_s=1.0).skipped.values()
    _use(monkeypatch, a=Fake(needs="no such thing here"))
    assert set(run_benchmarks(MACHINE, budget_s=1.0).skipped.values()) == {"no such thing here"}


def test_only_takes_ids_and_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Fake()
    other.IDS = ("other",)
    _use(monkeypatch, **{"host.one": Fake(), "host.two": other})
    assert [c.id for c in run_benchmarks(MACHINE, budget_s=1.0, only=["fake-b"]).ceilings] == ["fake-b"]
    assert [c.id for c in run_benchmarks(MACHINE, budget_s=1.0, only=["one"]).ceilings] == [
        "fake-a",
        "fake-b",
    ]
    assert other.budgets == []
    with pytest.raises(WellfedError, match="no ceiling 'nope'; there are fake-a fake-b other"):
        run_benchmarks(MACHINE, budget_s=1.0, only=["nope"])


@pytest.mark.parametrize("budget_s", [0.0, -1.0, float("nan")])
def test_no_budget_is_refused(budget_s: float) -> None:
    with pytest.raises(WellfedError, match="measures nothing"):
        run_benchmarks(MACHINE, budget_s=budget_s)


def test_the_folder_must_be_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (file, tmp_path / "missing", Path("/dev/null")):
        with pytest.raises(WellfedError, match="is no folder"):
            run_benchmarks(MACHINE, budget_s=1.0, folder=folder)


def test_measure_quick_returns_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, one=Fake(), two=Fake(needs="not here"))
    assert [c.id for c in measure_quick(MACHINE, budget_s=1.0)] == ["fake-a", "fake-b"]


# -- parts ---------------------------------------------------------------------------------------------------


def test_interleave_alternates_and_drops_the_first() -> None:
    order: list[str] = []

    def runs(name: str) -> repeat.Run:
        return lambda: order.append(name) or float(len(order))

    samples = repeat.interleave({"a": runs("a"), "b": runs("b")}, 0.0, at_least=3)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert samples == {"a": [3.0, 6.0, 7.0], "b": [4.0, 5.0, 8.0]}


def test_a_team_works_at_once_and_reports_errors() -> None:
    cpus = allowed_cpus()[:1] * 3
    met = threading.Barrier(3)
    with Team(cpus) as team:
        assert team.run(lambda _: met.wait(5) and None) > 0, "all three must be there at the same time"
        seen: list[int] = []
        team.run(seen.append)
        assert sorted(seen) == [0, 1, 2]

    def fail(number: int) -> None:
        if number == 1:
            raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"), Team(cpus) as team:
        team.run(fail)
    assert all(thread.daemon is False or not thread.is_alive() for thread in threading.enumerate()[1:])


def test_the_other_process_ends_with_the_pipe() -> None:
    with ping_pong.echo_process(allowed_cpus()[0]) as (take, give):
        assert len(ping_pong.round_trips(take, give, 0.0)) > 0
    with pytest.raises(OSError):
        os.fstat(take)


def test_a_dead_partner_is_an_error() -> None:
    with ping_pong.echo_process(allowed_cpus()[0]) as (take, give):
        reader, writer = os.pipe()
        os.close(writer)
        with pytest.raises(BrokenPipeError):
            ping_pong.round_trips(reader, give, 0.0)
        os.close(reader)
        assert take >= 0


def test_disturbance_is_a_difference() -> None:
    before = noise.Counters(at_s=10.0, cpu_s=100.0, steal_s=1.0, involuntary=5, throttled_s=None)
    after = noise.Counters(at_s=12.0, cpu_s=104.0, steal_s=1.2, involuntary=105, throttled_s=None)
    found = noise.disturbance(before, after)
    assert found["steal_pct"] == 5.0
    assert found["involuntary_switches_per_s"] == 50.0
    assert "throttled_pct" not in found
    assert noise.blame({"steal_pct": 5.0, "load1": 9.0}, 4) == (
        "the hypervisor took 5 % of the CPU time, load 9 on 4 CPUs"
    )
    assert noise.blame({"load1": 1.0, "involuntary_switches_per_s": 3.0}, 4) == ""


def test_hardware_key_names_the_make_and_not_the_machine() -> None:
    first = Machine(
        cpu=Cpu(model_name="CPU", cores=8, logical=16, packages=1),
        memory=Memory(total_bytes=64 << 30),
        kernel=Kernel(release="6.8.0-45-generic"),
        gpus=(Gpu(index=0, name="NVIDIA H200", serial="1", uuid="GPU-1"),),
        hostname="a",
    )
    twin = replace(
        first,
        hostname="b",
        memory=Memory(total_bytes=(64 << 30) - (100 << 20)),
        kernel=Kernel(release="6.11.3"),
        gpus=(Gpu(index=0, name="NVIDIA H200", serial="2", uuid="GPU-2"),),
    )
    assert hardware_key(first) == hardware_key(twin)
    others = [
        replace(first, cpu=Cpu(model_name="CPU", cores=16, logical=16, packages=1)),
        replace(first, memory=Memory(total_bytes=128 << 30)),
        replace(first, gpus=()),
        replace(first, kernel=Kernel(release="5.15.0")),
    ]
    assert len({hardware_key(machine) for machine in (first, *others)}) == 5
    assert hardware_key(Machine()), "also when nothing is known"


def test_threads_follow_the_quota() -> None:
    allowed = len(allowed_cpus())
    assert usable_threads(Machine()) == allowed
    assert usable_threads(Machine(container=Container(cpu_quota=-1.0))) == allowed
    assert usable_threads(Machine(container=Container(cpu_quota=0.5))) == 1
    assert usable_threads(Machine(container=Container(cpu_quota=1e6))) == allowed


def test_sizes_are_readable() -> None:
    assert [size_text(size) for size in (64, 4096, 3 << 20, 1 << 30)] == ["64 B", "4 KiB", "3 MiB", "1 GiB"]


# -- files -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no O_DIRECT to refuse")
def test_storage_without_direct_reads_says_so(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, flags: int, mode: int = 0o777, **more: object) -> int:
        if flags & os.O_DIRECT == os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(name, flags, mode, **more)

    real = os.open
    monkeypatch.setattr(files.os, "open", refuse)
    for ceiling in storage.measure(setup, TINY_S):
        assert "no O_DIRECT here" in ceiling.method
        assert ceiling.why is not None and "page cache" in ceiling.why
        assert ceiling.environment["direct"] is False
    assert not list(setup.folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_storage_leaves_nothing_behind(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    opened = _open_files()
    for module, stage in ((files, "open_direct"), (files, "fill"), (storage, "read_blocks")):
        with monkeypatch.context() as patch:
            patch.setattr(module, stage, fail)
            with pytest.raises(type(error)):
                storage.measure(setup, TINY_S)
        assert not list(setup.folder.iterdir()), stage
    assert _open_files() == opened


def _open_files() -> int:
    """Descriptors of this process; 0 where the system does not tell."""
    folder = Path("/proc/self/fd")
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def test_storage_refuses_memory_and_full_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(machine=MACHINE, folder=tmp_path)
    monkeypatch.setattr(files, "file_system", lambda _: "tmpfs")
    with pytest.raises(OSError, match="tmpfs is memory, not storage"):
        files.file_size(setup)
    monkeypatch.setattr(files, "file_system", lambda _: "ext4")
    room = os.statvfs(tmp_path)
    full = os.statvfs_result((room.f_bsize, 4096, 10**6, 10, 10, *tuple(room)[5:]))
    monkeypatch.setattr(files.os, "statvfs", lambda _: full)
    with pytest.raises(OSError, match="less than 64 MiB are free"):
        files.file_size(setup)


def test_the_file_system_of_a_folder_is_that_of_its_mount() -> None:
    if Path("/proc/mounts").exists():
        assert files.file_system(Path("/proc/self")) == "proc"


def test_rates_come_from_full_windows() -> None:
    # One read each millisecond for two seconds: a thousand a second in all windows between first and last.
    reads = [(i * 1_000_000, (i + 1) * 1_000_000) for i in range(2000)]
    rates = storage.rates_by_window(storage.spans_of(reads))
    assert len(rates) == 18
    assert all(rate == pytest.approx(1000, rel=0.02) for rate in rates)
    few = [(0, 10**9), (10**9, 2 * 10**9)]
    assert storage.rates_by_window(storage.spans_of(few)) == [pytest.approx(1.0)]


def test_shared_memory_is_left_empty(setup: Setup) -> None:
    if shared_memory.needs(setup.machine) is not None:
        pytest.skip("no /dev/shm to write to")
    before = set(shared_memory.SHM.glob("wellfed-*"))
    shared_memory.measure(setup, TINY_S)
    assert set(shared_memory.SHM.glob("wellfed-*")) <= before
