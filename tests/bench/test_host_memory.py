"""Memory benchmarks: what their kernels compute, how their arrays are planned and placed. Never a speed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.bench.host import (
    blas_torch,
    chase,
    memory_bandwidth,
    memory_latency,
    memory_threads,
    memory_torch,
    numa_matrix,
    page_faults,
    pages,
    stream,
    working_set,
)
from wellfed.bench.setup import MIB, Setup, allowed_cpus
from wellfed.model import Machine
from wellfed.model.base import replace
from wellfed.model.machine import Cpu, CpuThread, HugePool, Memory, NumaNode

MACHINE = Machine(cpu=Cpu(l3_bytes=1 << 20, l3_groups=1))


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(machine=MACHINE, folder=tmp_path)


# -- STREAM --------------------------------------------------------------------------------------------------


def test_each_engine_computes_what_it_claims() -> None:
    """a = f(b, c) in whole lines, and nothing beyond."""
    _check_engines(memory_bandwidth.engines_for(stream.KERNELS))


@pytest.mark.torch
def test_torch_computes_what_it_claims() -> None:
    pytest.importorskip("torch")
    engine = stream.torch_engine()
    assert engine is not None and not engine.lower_bounds
    _check_engines([engine])


@pytest.mark.torch
def test_torch_is_the_second_method(setup: Setup) -> None:
    pytest.importorskip("torch")
    found = {ceiling.id: ceiling for ceiling in memory_torch.measure(setup, 0.02)}
    assert set(found) == set(memory_torch.IDS)
    assert all(c.tier == "torch" and "lower bound" not in (c.why or "") for c in found.values())


@pytest.mark.torch
def test_formats_that_numpy_has_not(setup: Setup) -> None:
    pytest.importorskip("torch")
    found = [ceiling.id for ceiling in blas_torch.measure(setup, 0.05)]
    assert "blas.bf16.512" in found and all(id.startswith("blas.") for id in found)


def _check_engines(engines: list[stream.Engine]) -> None:
    want = {"copy": 1.0, "scale": 3.0, "add": 3.0, "triad": 7.0}
    size = 2 * stream.BLOCK + 8
    whole = [pages.allocate(8 * (size + 8), huge=False).view(np.float64) for _ in range(3)]
    for engine in engines:
        for kernel, work in engine.kernels.items():
            for array, value in zip(whole, (0.0, 1.0, 2.0), strict=True):
                array.fill(value)
            work(*(array[:size] for array in whole))
            assert np.all(whole[0][:size] == want[kernel]), (engine.name, kernel)
            assert np.all(whole[0][size:] == 0.0), (engine.name, kernel)


def test_without_numba_a_triad_is_a_lower_bound(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "has_numba", lambda: False)
    found = {ceiling.id: ceiling for ceiling in memory_bandwidth.measure(setup, 0.01)}
    assert "lower bound" in (found["memory-triad.1"].why or "")
    assert "pip install 'wellfed[sim]'" in (found["memory-triad.1"].why or "")
    assert "lower bound" not in (found["memory-copy.1"].why or "")
    assert found["memory-triad.1"].tier == "numpy"


def test_the_best_engine_is_the_ceiling_and_the_others_stand_beside_it(setup: Setup) -> None:
    names = ("slow", "fast")
    engines = {name: stream.Engine(name, "1", {}, {"copy": name}) for name in names}
    plan = memory_bandwidth.Plan(1, 64 * MIB, 64.0, None)
    samples = {"slow": [10.0, 11.0, 10.5], "fast": [20.0, 21.0, 20.5]}
    found = memory_bandwidth.Found(plan, samples, engines, 0.5)
    before = memory_bandwidth.noise.read_counters()
    ceiling = memory_bandwidth.ceiling_of(setup, before, "memory-copy.1", "copy", "1", found)
    assert (ceiling.best, ceiling.median, ceiling.tier) == (21.0, 20.5, "fast")
    assert ceiling.environment["engines"]["slow"]["best"] == 11.0
    assert ceiling.environment["huge_page_share"] == 0.5


@pytest.mark.parametrize(
    ("effort", "only", "kernels"),
    [
        ("quick", (), ["copy", "triad"]),
        ("full", (), list(stream.KERNELS)),
        ("quick", ("memory_bandwidth",), ["copy", "triad"]),
        ("quick", ("memory-scale.1",), ["scale"]),
        ("full", ("memory-*.all",), list(stream.KERNELS)),
    ],
)
def test_kernels_by_effort_and_name(
    setup: Setup, effort: str, only: tuple[str, ...], kernels: list[str]
) -> None:
    assert memory_bandwidth.wanted_kernels(replace(setup, effort=effort, only=only)) == kernels


def test_arrays_are_four_times_the_cache_or_say_why_not() -> None:
    cache = 8 << 20
    machine = Machine(cpu=Cpu(l3_bytes=cache, l3_groups=2))
    plan = memory_bandwidth.plan_arrays(machine, 4, 1 << 40)
    assert plan.limit is None and plan.array_bytes >= 4 * cache
    alone = memory_bandwidth.plan_arrays(machine, 1, 1 << 40)
    assert alone.over_cache is not None and plan.over_cache is not None
    assert alone.over_cache == pytest.approx(2 * plan.over_cache), "one thread has one of the two L3"
    short = memory_bandwidth.plan_arrays(machine, 4, 1)
    assert short.limit == "time" and short.array_bytes >= cache, (
        "never smaller than the cache for want of time"
    )
    huge = memory_bandwidth.plan_arrays(Machine(cpu=Cpu(l3_bytes=1 << 60)), 4, 1 << 62)
    assert huge.limit == "memory" and huge.over_cache is not None and huge.over_cache < 1


@given(threads=st.integers(1, 300), by_time=st.integers(1, 1 << 36))
def test_parts_are_whole_huge_pages(threads: int, by_time: int) -> None:
    plan = memory_bandwidth.plan_arrays(MACHINE, threads, by_time)
    assert plan.array_bytes % (threads * pages.HUGE) == 0


@given(st.integers(1, 5000))
def test_thread_counts_end_with_all(most: int) -> None:
    counts = memory_threads.thread_counts(most)
    assert counts[0] == 1 and counts[-1] == most and counts == sorted(set(counts))


def test_threads_fill_cores_of_a_node_before_the_next_and_siblings_last() -> None:
    # Two nodes of two cores with two threads each, numbered as Linux does: siblings are 4 apart.
    threads = [CpuThread(id=cpu, core=cpu % 4, node=cpu % 4 // 2) for cpu in range(8)]
    assert memory_threads.cpu_order(range(8), threads) == [0, 1, 2, 3, 4, 5, 6, 7]
    # Siblings side by side, as some machines number them.
    beside = [CpuThread(id=cpu, core=cpu // 2, node=cpu // 4) for cpu in range(8)]
    assert memory_threads.cpu_order(range(8), beside) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert memory_threads.cpu_order([5, 1, 9], beside) == [1, 5, 9], "an unknown CPU comes last"


# -- pages ---------------------------------------------------------------------------------------------------


def test_pages_begin_at_a_huge_border() -> None:
    for size in (1, 4096, 3 * MIB + 5):
        array = pages.allocate(size, huge=True)
        assert len(array) == size and array.ctypes.data % pages.HUGE == 0
        array.fill(7)
    with pytest.raises(MemoryError):
        pages.allocate(1 << 60, huge=True)


def test_huge_share_counts_the_mapping_of_the_array() -> None:
    array = pages.allocate(4096, huge=False)
    start = array.ctypes.data
    smaps = (
        f"{start - 8192:x}-{start - 4096:x} rw-p 00000000 00:00 0\nRss:  100 kB\nAnonHugePages: 100 kB\n"
        f"{start:x}-{start + 65536:x} rw-p 00000000 00:00 0 [anon: x]\nRss:  400 kB\nAnonHugePages: 100 kB\n"
    )
    assert pages.huge_share(array, smaps) == 0.25
    assert pages.huge_share(array, "") is None
    assert pages.huge_share(array, "nonsense\nRss:\n") is None


def test_pages_by_node() -> None:
    array = pages.allocate(4096, huge=False)
    maps = f"7f0000000000 default\n{array.ctypes.data - 4096:x} bind:1 anon=40 dirty=40 N0=10 N1=30 kernelpagesize_kB=4\n"
    assert pages.nodes_of(array, maps) == {0: 10, 1: 30}
    assert pages.nodes_of(array, "") is None
    assert pages.nodes_of(array, "not hexadecimal at all\n") is None


# -- latency -------------------------------------------------------------------------------------------------


def chasers() -> Iterator[chase.Chaser]:
    yield chase.numpy_chaser()
    if (compiled := chase.numba_chaser()) is not None:
        yield compiled


def test_the_walk_visits_every_line_once() -> None:
    size = 64 * chase.LINE
    cycle = chase.make_cycle(size, np.random.default_rng(1))
    place, seen = 0, []
    for _ in range(64):
        seen.append(place)
        place = int(cycle[place])
    assert place == 0 and sorted(seen) == list(range(0, size // 8, 8))
    assert chase.walks(chase.make_cycle(1 << 16, np.random.default_rng(1)))


def test_all_walkers_end_at_the_same_place() -> None:
    cycle = chase.make_cycle(1 << 20, np.random.default_rng(1))
    for steps in (0, 1, chase.STEPS, 3 * chase.STEPS + 17):
        place = 0
        for _ in range(steps):
            place = int(cycle[place])
        assert {chaser.name: chaser.walk(cycle, 0, steps) for chaser in chasers()} == {
            chaser.name: place for chaser in chasers()
        }


def test_the_same_walk_in_other_pages() -> None:
    cycle = chase.make_cycle(1 << 16, np.random.default_rng(1))
    other = chase.copy_cycle(cycle, huge=False)
    assert other.ctypes.data != cycle.ctypes.data
    assert np.array_equal(cycle[:: chase.LINE // 8], other[:: chase.LINE // 8])


def test_a_numpy_that_copies_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def polite(cycle: np.ndarray, path: np.ndarray) -> None:
        path[1:] = np.take(cycle, path[:-1].copy(), mode="wrap")

    monkeypatch.setattr(chase, "take", polite)
    monkeypatch.setattr(stream, "has_numba", lambda: False)
    reason = memory_latency.needs(MACHINE)
    assert reason is not None and "can't chase pointers" in reason


@given(l3=st.integers(1 << 20, 1 << 31), budget_s=st.floats(0.05, 60))
def test_working_sets_grow_without_repetition(l3: int, budget_s: float) -> None:
    sizes = working_set.working_sets(Machine(cpu=Cpu(l3_bytes=l3)), budget_s)
    assert sizes[0] == 4096 and sizes == sorted(set(sizes))
    assert all(size % 2048 == 0 for size in sizes) and sizes[-1] <= max(4 * l3, 4096)


# -- NUMA: planted machines ----------------------------------------------------------------------------------

ONE = allowed_cpus()[0]
TWO_NODES = replace(
    MACHINE,
    numa=(
        NumaNode(id=0, cpus=(ONE,), mem_bytes=1 << 34, distances=(10, 21)),
        NumaNode(id=1, cpus=(), mem_bytes=1 << 34, distances=(21, 10)),
    ),
)


def test_the_matrix_has_a_row_for_each_node_with_cpus_of_ours() -> None:
    machine = replace(
        MACHINE,
        numa=(
            NumaNode(id=0, cpus=(0, 1), mem_bytes=1),
            NumaNode(id=1, cpus=(2, 3), mem_bytes=1),
            NumaNode(id=2, cpus=(), mem_bytes=1),  # CXL
            NumaNode(id=3, cpus=(9,), mem_bytes=0),  # CPUs without memory
        ),
    )
    cells = numa_matrix.cells(machine, (1, 2, 3))
    assert [(cell.cpu_node, cell.memory_node) for cell in cells] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
    ]
    assert cells[0].cpus == (1,) and cells[1].memory_cpus == (2, 3) and cells[2].memory_cpus == ()
    assert (
        numa_matrix.needs(replace(machine, numa=machine.numa[:1]))
        == "there is one NUMA node: all memory is as near"
    )
    assert numa_matrix.needs(Machine()) is not None


def test_memory_that_is_elsewhere_is_implausible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second node that this machine does not have: the pages lie on node 0, and the cell says so."""
    monkeypatch.setattr(pages, "nodes_of", lambda array: {0: 1000})
    setup = Setup(machine=TWO_NODES, folder=tmp_path)
    found = {ceiling.id: ceiling for ceiling in numa_matrix.measure(setup, 0.02)}
    assert set(found) == {"numa-triad.0.0", "numa-triad.0.1", "numa-latency.0.0", "numa-latency.0.1"}
    for kind in ("triad", "latency"):
        near, far = found[f"numa-{kind}.0.0"], found[f"numa-{kind}.0.1"]
        assert near.verdict != "implausible" and near.environment["distance"] == 10
        assert far.verdict == "implausible" and "100% of the memory is not on node 1" in (far.why or "")
        assert far.environment["distance"] == 21 and far.environment["on_node_share"] == 0


def test_where_pages_lie_may_be_unknown() -> None:
    assert numa_matrix.home_share([{0: 90, 1: 10}, {0: 100}], 0) == 0.9
    assert numa_matrix.home_share([{0: 90}, None], 0) is None
    assert numa_matrix.home_share([{0: 90}], 1) == 0.0


def test_binding_to_a_node_that_is_not_there_says_no() -> None:
    assert numa_matrix.bind_memory(1000) is False
    numa_matrix.bind_memory(None)


# -- page faults ---------------------------------------------------------------------------------------------


def test_kinds_of_pages_are_those_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_faults, "huge_pages_work", lambda: False)
    assert list(page_faults.choose_kinds(MACHINE)) == ["4k"]
    pool = HugePool(page_bytes=2 << 20, total=64, free=64)
    rich = replace(MACHINE, memory=Memory(huge_pools=(pool,)))
    assert list(page_faults.choose_kinds(rich)) == ["4k", "hugetlb"]
    used = replace(MACHINE, memory=Memory(huge_pools=(replace(pool, free=1),)))
    assert list(page_faults.choose_kinds(used)) == ["4k"]


def test_all_is_found_and_degrades_without_numba() -> None:
    """In a process of its own, where importing numba fails: nothing may need it to be found."""
    program = (
        "import sys; sys.modules['numba'] = sys.modules['torch'] = None\n"
        "from wellfed.bench import find\n"
        "from wellfed.bench.host import memory_latency, stream, spin, working_set\n"
        "from wellfed.model import Machine\n"
        "assert len(find.benchmarks()) > 10\n"
        "assert stream.numba_engine() is None and stream.past_cache_engine() is None and spin.numba_spinner() is None\n"
        "assert stream.torch_engine() is None and memory_latency.needs(Machine()) is None\n"
        "print(working_set.needs(Machine()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "the small caches need compiled loops: pip install 'wellfed[sim]'"
