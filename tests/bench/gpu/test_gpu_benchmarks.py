"""The GPU benchmarks on an invented device: they find what was planted, judge it, and survive what drivers do."""

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.bench.gpu import fake_cuda
from tests.bench.gpu.fake_cuda import FakeCuda

from wellfed.bench import find
from wellfed.bench.gpu import arithmetic, engine, gemm_fp4, hbm, launch, overlap, peers, transfers
from wellfed.bench.gpu.driver.engine import open_engine
from wellfed.bench.gpu.watch import Watch
from wellfed.bench.setup import Options, Setup
from wellfed.model import Ceiling, Machine, WellfedError
from wellfed.model.devices import Gpu

MIB = 1 << 20
H200 = Gpu(
    index=0,
    vendor="nvidia",
    name="NVIDIA H200",
    catalog="h200-sxm-141",
    address="0000:0f:00.0",
    compute_capability="9.0",
    pcie_gen_max=5,
    pcie_width_max=16,
    driver="580.1",
)
GPU_BENCHMARKS = {name: found for name, found in find.benchmarks().items() if name.startswith("gpu.")}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The driver tier's library, and nothing of torch."""
    cuda = FakeCuda(free_bytes=512 * MIB)
    monkeypatch.setitem(fake_cuda.ATTRIBUTES, 38, 4 * MIB)
    monkeypatch.setattr(engine, "_open_driver", lambda: open_engine(0, cuda.library()))
    monkeypatch.setattr(engine, "_open_torch", _no_torch)
    monkeypatch.setattr(transfers, "_LARGEST", MIB)
    monkeypatch.setattr(overlap, "_SIZE", MIB)
    monkeypatch.setattr(peers, "_SIZE", MIB)
    return cuda


def _no_torch() -> AbstractContextManager[engine.Engine]:
    raise WellfedError("torch cannot be imported: it is not there")


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(machine=Machine(gpus=(H200,)), folder=tmp_path)


def _measure(module: Any, setup: Setup, **more: Any) -> dict[str, Ceiling]:
    return {ceiling.id: ceiling for ceiling in module.measure(setup, 0.05, **more)}


@pytest.mark.parametrize(("d2d_bps", "verdict"), [(2.1e12, "ok"), (2.6e12, "implausible"), (1.0e12, "low")])
def test_memory_is_found_and_judged(fake: FakeCuda, setup: Setup, d2d_bps: float, verdict: str) -> None:
    fake.d2d_bps = d2d_bps
    fake.kernel_s["wf_read"] = 64 * MIB / 4e12
    found = _measure(hbm, setup)
    copy = found["hbm-copy"]
    assert copy.median == pytest.approx(2 * d2d_bps / 1e9, rel=1e-3), "read and write are counted"
    assert (copy.verdict, copy.peak) == (verdict, 4800)
    assert copy.ratio == pytest.approx(2 * d2d_bps / 4800e9, rel=1e-2)
    assert found["hbm-read"].median == pytest.approx(4000, rel=1e-3)
    assert copy.environment["driver"] == "580.1" and copy.tier == "driver"
    assert set(found["l2-read"].environment["median_by_working_set"]) >= {"2 MiB", "16 MiB"}


def test_transfers_are_found(fake: FakeCuda, setup: Setup) -> None:
    found = _measure(transfers, setup)
    assert found["h2d.pinned"].median == pytest.approx(50, rel=1e-3)
    assert found["d2h.pinned"].median == pytest.approx(40, rel=1e-3)
    assert found["h2d.bidirectional"].median == pytest.approx(80, rel=1e-3), "the slower way ends last"
    assert found["h2d.pinned"].peak == pytest.approx(63, rel=0.01)
    assert found["h2d.bidirectional"].peak == pytest.approx(126, rel=0.01)
    assert "64 KiB" in found["d2h.pinned"].environment["median_by_size"]


def test_launches_are_found(fake: FakeCuda, setup: Setup) -> None:
    fake.kernel_s |= {"wf_null": 0.7e-6, "wf_add": 1.2e-6}
    found = _measure(launch, setup)
    assert found["launch.graph-node"].median == pytest.approx(1.2, rel=1e-3)
    assert found["launch.graph-empty"].median == pytest.approx(0.7, rel=1e-3)
    assert found["launch.event"].median == pytest.approx(0.7, rel=1e-3)
    assert "launch.torch-op" not in found
    assert not found["launch.wall"].higher_is_better


def test_arithmetic_is_found(fake: FakeCuda, setup: Setup) -> None:
    flops = 2 * 16 * 64 * 132 * 8 * 256 * 200
    fake.kernel_s["wf_fma32"] = flops / 60e12
    assert _measure(arithmetic, setup)["fma.fp32"].median == pytest.approx(60, rel=1e-3)


def test_arithmetic_runs_on_what_takes_ptx(setup: Setup) -> None:
    assert arithmetic.needs(setup.machine) is None
    assert "PTX" in str(arithmetic.needs(Machine(gpus=(Gpu(index=0, vendor="amd"),))))


def test_overlap_of_lanes_is_whole(fake: FakeCuda, setup: Setup) -> None:
    fake.kernel_s["wf_fma32"] = MIB / 50e9
    assert _measure(overlap, setup)["overlap.h2d"].median == pytest.approx(1, abs=1e-3)
    assert overlap.overlap(2, 1, 3) == 0 and overlap.overlap(2, 1, 2) == 1


def test_pairs_and_the_slow_one(fake: FakeCuda, setup: Setup) -> None:
    fake.devices = 3
    found = _measure(peers, setup, library=fake.library())
    assert found["p2p.write"].median == pytest.approx(fake.d2d_bps / 10 / 1e9, rel=1e-3)
    assert found["p2p.bidirectional"].median == pytest.approx(fake.d2d_bps / 5 / 1e9, rel=1e-3)
    assert len(found["p2p.read"].environment["pairs"]) == 6
    assert fake.leaks() == []
    assert peers.slow_pairs({(0, 1): 400.0, (1, 0): 401.0, (0, 2): 100.0}) == [(0, 2)]


def test_one_gpu_has_no_pair_and_no_fp4(setup: Setup) -> None:
    assert peers.needs(setup.machine) == "there is one GPU, so no pair to copy between"
    assert gemm_fp4.needs(setup.machine) == "fp4 takes compute capability 10.0; this GPU has 9.0"


def test_a_lost_device_ends_the_process(fake: FakeCuda, setup: Setup) -> None:
    fake.fail["cuEventSynchronize"] = (3, 700)
    with pytest.raises(SystemExit, match="illegal memory access"):
        _measure(hbm, setup)


def test_memory_that_is_taken_is_said(fake: FakeCuda, setup: Setup) -> None:
    fake.free_bytes = 100 * MIB
    with pytest.raises(WellfedError, match="only 100 MiB of the GPU's memory are free"):
        _measure(hbm, setup)
    fake.free_bytes = 512 * MIB
    fake.fail["cuMemAlloc_v2"] = (fake.calls["cuMemAlloc_v2"] + 3, 2)
    with pytest.raises(WellfedError, match="out of memory"):
        _measure(hbm, setup)
    assert fake.leaks() == []


def test_without_any_tier_both_reasons_are_said(fake: FakeCuda, setup: Setup) -> None:
    fake.devices = 0
    with pytest.raises(WellfedError) as caught:
        _measure(launch, setup)
    assert "driver tier: cuInit: no CUDA-capable device" in str(caught.value)
    assert "torch tier: torch cannot be imported" in str(caught.value)


def test_torch_is_not_asked_for_when_the_driver_tier_is(setup: Setup) -> None:
    driver = Setup(machine=setup.machine, folder=setup.folder, options=Options(tier="driver"))
    with pytest.raises(WellfedError, match="--tier driver does without"), engine.open_torch(driver):
        pass


def test_a_second_method_that_differs_is_said(fake: FakeCuda, setup: Setup) -> None:
    fake.kernel_s["wf_copy"] = 1.0
    copy = _measure(hbm, setup)["hbm-copy"]
    assert copy.why is not None and "kernel of ours" in copy.why
    assert copy.method.startswith("copy by the driver"), "the better of two ways to copy"


def test_gpu_benchmarks_run_apart_and_need_a_gpu() -> None:
    assert len(GPU_BENCHMARKS) >= 10
    ids = [id for found in GPU_BENCHMARKS.values() for id in found.IDS]
    assert len(ids) == len(set(ids))
    for name, found in GPU_BENCHMARKS.items():
        assert find.is_isolated(found), name
        assert found.needs(Machine()), name


def test_asking_what_can_run_opens_nothing() -> None:
    code = (
        "import sys; from wellfed.bench import find; from wellfed.model import Machine; "
        "[found.needs(Machine()) for found in find.benchmarks().values()]; "
        "assert not {'torch', 'pynvml'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class FakeNvml:
    """Writes through the last argument, as the library does. `denied`: what it does not tell."""

    def __init__(self, denied: str = "") -> None:
        self.denied = denied
        self.down = 0

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetClockInfo": 1500,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
            "nvmlDeviceGetPowerUsage": 699_000,
            "nvmlDeviceGetTemperature": 60,
        }

        def call(*arguments: Any) -> int:
            if name == self.denied:
                return 3
            if name in answers:
                arguments[-1]._obj.value = answers[name]
            self.down += name == "nvmlShutdown"
            return 0

        return call


def test_the_watch_tells_what_held_the_clock() -> None:
    nvml = FakeNvml()
    with Watch("0000:0f:00.0", nvml) as watch:
        watch._read()
    seen = watch.seen()
    assert seen["throttled"] == {"software-power-cap": 1.0}
    assert (seen["sm_mhz"], seen["power_w_highest"], seen["temperature_c_highest"]) == (1500, 699, 60)
    assert nvml.down == 1


@pytest.mark.parametrize(
    "denied", ["nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetClockInfo"]
)
def test_a_watch_that_is_told_nothing_says_nothing(denied: str) -> None:
    with Watch("0000:0f:00.0", FakeNvml(denied)) as watch:
        if denied == "nvmlDeviceGetClockInfo":
            watch._read()
    assert watch.seen() == {}
