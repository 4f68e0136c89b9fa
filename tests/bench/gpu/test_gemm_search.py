"""Matrix products and the search for the best shape: what can be said without a GPU."""

from hypothesis import given
from hypothesis import strategies as st

from wellfed.bench.gpu import matmul
from wellfed.bench.gpu.judge import PEAKS, _bands, band_of, peak_of
from wellfed.bench.gpu.mamf import GRID, STEP, climb
from wellfed.catalog.load import body, heads
from wellfed.catalog.spec import GpuNumbers

GRID_OF = st.sampled_from(GRID)


@given(st.tuples(*[st.integers(4, 80).map(lambda n: n * STEP)] * 3))
def test_the_climb_finds_the_top_of_a_hill(top: tuple[int, int, int]) -> None:
    calls = 0

    def score(shape: tuple[int, int, int]) -> float:
        nonlocal calls
        calls += 1
        return 1000 - sum(abs(a - b) / STEP for a, b in zip(shape, top, strict=True))

    assert climb(score, GRID) == top
    assert calls < 400


def test_the_climb_ends_on_a_plain_and_at_its_deadline() -> None:
    assert climb(lambda shape: 1.0, GRID) == GRID[0]
    assert climb(lambda shape: float(sum(shape)), GRID, deadline=0.0) == GRID[0]


def test_operations_and_bytes() -> None:
    assert matmul.flops((2, 3, 5)) == 60
    assert matmul.set_bytes("bf16", (2, 3, 5)) == (10 + 15) * 2 + 6 * 2
    assert matmul.set_bytes("fp4", (2, 3, 4)) == (8 + 12) // 2 + 12


@given(GRID_OF, st.integers(0, 256 << 20))
def test_rotating_sets_exceed_the_cache(shape: tuple[int, int, int], l2_bytes: int) -> None:
    sets = matmul.sets_for("bf16", shape, l2_bytes)
    assert sets >= 2
    assert sets * matmul.set_bytes("bf16", shape) >= 3 * l2_bytes


def test_a_small_product_rotates_at_most_64_sets() -> None:
    assert matmul.sets_for("bf16", (1, 16, 16), 60 << 20) == 64


def test_what_a_device_lacks_is_said() -> None:
    assert matmul.cannot("fp8", (9, 0), hip=False) is None
    assert matmul.cannot("fp8", (8, 0), hip=False) == "fp8 takes compute capability 8.9; this GPU has 8.0"
    assert matmul.cannot("fp4", (9, 0), hip=False) is not None
    assert matmul.cannot("fp8", (9, 4), hip=True) is None


def test_bands_are_of_devices_that_the_catalogue_knows() -> None:
    import fnmatch

    for row in _bands():
        assert 0 < float(row["low"]) < float(row["high"]) and row["source"], row
        assert row["gpu"] == "*" or fnmatch.filter(heads(), row["gpu"]), row
        assert row["unit"] in ("peak", "us")
        assert row["unit"] != "peak" or float(row["high"]) <= 1


def test_peaks_are_numbers_of_the_catalogue_and_dense() -> None:
    for name, _ in PEAKS.values():
        assert name in GpuNumbers.__struct_fields__
    spec = body("h200-sxm-141")
    assert peak_of("gemm.fp8-row.8192x8192x8192", spec, None)[0] == 1978.9
    assert peak_of("gemm.bf16.16x16x16", body("mi250x"), None)[0] == body("mi250x").value("bf16_tflops") / 2
    assert peak_of("hbm-read", None, None) == (None, None)


def test_the_band_of_the_device_goes_before_the_general_one() -> None:
    low, high, source = band_of("hbm-copy", body("a100-sxm4-80"), 2039.0)
    assert low is not None and low <= 1371 <= high and source is not None and "729 nodes" in source
    low, high, _ = band_of("gemm.bf16.8192x8192x8192", body("h100-sxm-80"), 989.4)
    assert low is not None and high is not None and low < 794.5 < high
    assert band_of("launch.item", body("h100-sxm-80"), None) == (None, None, None)
