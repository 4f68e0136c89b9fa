"""OS noise and what it costs, on planted gaps; small costs of the system and of processes."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.bench.host import blas, interrupts, os_noise, processes, spin, system_calls
from wellfed.bench.setup import MIB, Options, Setup
from wellfed.model import Machine
from wellfed.predict import os_noise as model

MS = 1_000_000


# -- spinning ------------------------------------------------------------------------------------------------


def test_spin_finds_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    # 100 ns between readings, except one of 7 us.
    times = iter([0, 100, 200, 7200, *range(7300, 30_000, 100)])
    monkeypatch.setattr(spin.time, "perf_counter_ns", lambda: next(times))
    seen = spin.spin(10_000)
    assert seen.gaps == [(200, 7000)]
    assert seen.length_ns == 10_000 and seen.granularity_ns == pytest.approx(100)


def test_the_compiled_spin_is_finer_and_keeps_its_time() -> None:
    spinner = spin.numba_spinner()
    if spinner is None:
        pytest.skip("no numba here")
    seen = spinner(2 * MS)
    assert seen.engine == "numba" and seen.length_ns >= 2 * MS
    assert 0 < seen.granularity_ns < 5000
    assert all(length > spin.THRESHOLD_NS and 0 <= start < seen.length_ns for start, length in seen.gaps)


def test_a_quiet_cpu_and_a_poor_one() -> None:
    quiet = os_noise.describe(spin.Spin([], 1000 * MS, 25.0, "numba"))
    assert quiet["gaps"] == 0 and quiet["tick_ms"] is None and "gap_max_us" not in quiet
    assert set(quiet["slowdown_pct_by_ranks"].values()) == {0.0}
    ticks = [(at * 4 * MS, 20_000) for at in range(250)]
    seen = os_noise.describe(spin.Spin(ticks, 1000 * MS, 25.0, "numba"))
    assert seen["tick_ms"] == 4.0 and seen["gaps_per_s"] == 250 and seen["gap_max_us"] == 20.0
    # Two or three ticks of 20 us in each step of 10 ms: with many ranks always three.
    assert seen["slowdown_pct_by_ranks"]["512"] == pytest.approx(0.6, abs=0.01)


def test_longest_gaps_by_window() -> None:
    gaps = [(0, 10), (5, 30), (120, 7), (299, 50)]
    assert os_noise.longest_by_window(gaps, 300, 100) == [30, 7, 50]
    assert os_noise.longest_by_window([], 50, 100) == [0]
    assert os_noise.longest_by_window([(330, 9)], 350, 100) == [0, 0, 9]


# -- the model -----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(1, 40)), max_size=20), st.integers(1, 300))
def test_time_is_neither_made_nor_lost(gaps: list[tuple[int, int]], step: int) -> None:
    whole = 1000 // step * step
    inside = sum(max(0, min(start + length, whole) - min(start, whole)) for start, length in gaps)
    assert sum(model.lost_by_step(gaps, 1000, step)) == inside


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(1, 2000))
def test_the_expected_maximum_lies_between_mean_and_maximum(samples: list[float], draws: int) -> None:
    value = model.expected_max(samples, draws)
    mean = math.fsum(samples) / len(samples)
    assert mean * (1 - 1e-9) <= value <= max(samples) * (1 + 1e-9)
    assert model.expected_max(samples, draws + 1) >= value * (1 - 1e-9)
    assert model.expected_max(samples, 1) == pytest.approx(mean)


def test_the_expected_maximum_agrees_with_drawing() -> None:
    rng = random.Random(3)
    samples = [rng.expovariate(1.0) for _ in range(40)]
    drawn = [max(rng.choices(samples, k=8)) for _ in range(20_000)]
    assert model.expected_max(samples, 8) == pytest.approx(sum(drawn) / len(drawn), rel=0.02)
    pairs = [max(pair) for pair in itertools.product(samples, repeat=2)]
    assert model.expected_max(samples, 2) == pytest.approx(sum(pairs) / len(pairs))


def test_too_few_steps_predict_nothing() -> None:
    assert model.bulk_synchronous_slowdown([(0, 5)], 9 * 10 * MS, 10 * MS, 8) is None
    assert model.bulk_synchronous_slowdown([], 100 * MS, 10 * MS, 8) == 0.0


@pytest.mark.parametrize("period", model.TICKS_NS)
def test_a_tick_is_found_and_not_its_fraction(period: int) -> None:
    rng = random.Random(1)
    starts = [at * period + rng.randrange(period // 20) for at in range(200)]
    others = [rng.randrange(200 * period) for _ in range(40)]
    assert model.tick_period_ns(sorted(starts + others)) == period


def test_random_gaps_follow_no_tick() -> None:
    rng = random.Random(2)
    assert model.tick_period_ns([rng.randrange(10**9) for _ in range(500)]) is None
    assert model.tick_period_ns([0, 10 * MS]) is None


# -- interrupts ----------------------------------------------------------------------------------------------

BEFORE = """           CPU0       CPU2
 30:        100          5   PCI-MSI 1-edge      nvme0q1
LOC:       1000       2000   Local timer interrupts
ERR:          7
"""
AFTER = BEFORE.replace("2000", "2500").replace("  5 ", " 45 ")
SOFT = "                    CPU0       CPU2\n          HI:          0          1\n       TIMER:         10         20\n"


def test_interrupts_of_one_cpu() -> None:
    before = interrupts.read_counts(2, BEFORE, SOFT)
    assert before["LOC Local timer interrupts"] == 2000 and before["softirq TIMER"] == 20
    assert "ERR" not in before, "a row without a column for this CPU"
    after = interrupts.read_counts(2, AFTER, SOFT)
    assert interrupts.rates(before, after, 2.0) == {
        "LOC Local timer interrupts": 250.0,
        "30 PCI-MSI 1-edge nvme0q1": 20.0,
    }
    assert interrupts.read_counts(1, BEFORE, SOFT) == {}, "an offline CPU has no column"
    assert interrupts.read_counts(0, "", "") == {}


# -- small costs -----------------------------------------------------------------------------------------------


def test_a_call_takes_time() -> None:
    assert system_calls.each_ns(int, 100) > 0
    assert system_calls.start_threads_us() > 0


def test_forks_of_a_fresh_interpreter_are_timed() -> None:
    assert len(processes.fork_ms(MIB, 0.0)) >= 3


def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(OSError, match="a fresh Python failed: ModuleNotFoundError"):
        processes.run_ms([processes.sys.executable, "-I", "-S", "-c", "import no_such_module_here"])


# -- BLAS ------------------------------------------------------------------------------------------------------


def test_shapes_fit_the_time(tmp_path: object) -> None:
    quick = Setup(machine=Machine(), folder=tmp_path)  # type: ignore[arg-type]
    assert blas.shapes_for(quick, 100e9, 1.0) == [(1024, 1024, 1024)]
    assert blas.shapes_for(quick, 1e6, 1.0) == [(512, 512, 512)], "the smallest, however slow"
    user = (7, 4096, 1024)
    full = Setup(machine=Machine(), folder=tmp_path, effort="full", options=Options(shapes=(user, user)))  # type: ignore[arg-type]
    shapes = blas.shapes_for(full, 1e12, 20.0)
    assert shapes[0] == (512, 512, 512) and shapes.count(user) == 1
    assert [blas.shape_text(shape) for shape in (shapes[0], user)] == ["512", "7x4096x1024"]


def test_threads_of_the_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    assert blas.blas_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert blas.blas_threads() >= 1


def test_threads_without_their_cpus_are_noisy_however_steady() -> None:
    assert blas.judge_cpus(1.9, 2, 8.0, 2) == {}
    assert blas.judge_cpus(1.1, 2, 1.5, 2) == {}, "a thin product that nobody disturbs"
    crowded = blas.judge_cpus(1.1, 2, 8.0, 2)
    assert crowded["verdict"] == "noisy" and "its 2 threads had 1.1 CPUs" in crowded["why"]
    with blas.cpu_watch(1) as verdict:
        assert verdict == {}
