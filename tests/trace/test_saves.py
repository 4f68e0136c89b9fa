"""Checkpoints are seen by what they do; copies of results are not taken for them."""

from pathlib import Path
from typing import Any

import pytest
from trace_builder import Event, event, kernel, write

from wellfed import api
from wellfed.analyze.study import Study, study_device
from wellfed.ingest import read_timeline

STEP_US, KERNEL_US, KERNELS = 40_000.0, 1_000.0, 8


class Loop:
    """Steps of eight kernels of 1 ms each, launched ahead, and what the host does after them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.host = self.device = 1000.0
        self.corr = 0

    def op(self, name: str, us: float) -> None:
        self.events.append(event("cpu_op", name, self.host, us))
        self.host += us + 1.0

    def launch(self) -> None:
        self.corr += 1
        self.events.append(event("cuda_runtime", "cudaLaunchKernel", self.host, 4.0, correlation=self.corr))
        begin = max(self.host + 6.0, self.device + 1.0)
        self.events.append(kernel("gemm", begin, KERNEL_US, corr=self.corr))
        self.host, self.device = self.host + 10.0, begin + KERNEL_US

    def fetch(self, nbytes: int, us: float, *, behind: str) -> None:
        """A copy to the host: of a storage behind `aten::set_`, of a tensor behind `aten::empty_strided`."""
        self.op("aten::empty", 2.0)
        self.op(behind, 2.0)
        self.corr += 1
        begin = max(self.host + 8.0, self.device + 1.0)
        end = begin + us
        self.events.append(event("cpu_op", "aten::copy_", self.host, end + 4.0 - self.host))
        self.events.append(
            event(
                "cuda_runtime",
                "cudaMemcpyAsync",
                self.host + 1.0,
                end + 1.0 - self.host,
                correlation=self.corr,
            )
        )
        done = kernel("Memcpy DtoH (Device -> Pageable)", begin, us, corr=self.corr, cat="gpu_memcpy")
        done["args"]["bytes"] = nbytes
        self.events.append(done)
        self.host, self.device = end + 5.0, end

    def steps(self, after: Any, n: int = 4) -> list[Event]:
        for k in range(n):
            begin = self.host
            self.op("aten::mm", 5.0)
            for _ in range(KERNELS):
                self.launch()
            after(self)
            self.events.append(event("user_annotation", f"ProfilerStep#{k}", begin, self.host - begin))
        return self.events


def studied(tmp_path: Path, after: Any) -> Study:
    return study_device(read_timeline(write(tmp_path / "t.json", Loop().steps(after))), 0)


def saved(loop: Loop) -> None:
    """`torch.save` of four tensors: 3 ms to open, 2 ms to write each."""
    loop.host += 3_000.0
    for _ in range(4):
        loop.fetch(10_000_000, 1_000.0, behind="aten::set_")
        loop.host += 2_000.0
    loop.op("aten::zero_", 3.0)


def test_storages_copied_and_written_are_a_checkpoint(tmp_path: Path) -> None:
    study = studied(tmp_path, saved)
    assert study.rank.step_idle is not None
    # opening overlaps the last kernels; each write leaves the device idle
    assert study.rank.step_idle["checkpoint-stall"] == pytest.approx(8_000_000, rel=0.02)
    assert study.rank.step_idle["host-stall"] == study.rank.step_idle["host-sync"] == 0
    cure = study.cures["checkpoint-stall"]
    assert cure.after[2] == pytest.approx(KERNELS * KERNEL_US * 1e3, rel=0.02)  # nothing of it is left
    staged = KERNELS * KERNEL_US * 1e3 + 4 * 10_000_000 / (63.0 * 0.87)
    assert cure.after[1] == pytest.approx(staged, rel=0.03)  # copied at the link's rate, and not waited for
    assert "pageable-copy" not in study.cures or study.cures["pageable-copy"].after[1] == cure.before[1]


def test_a_state_dictionary_brought_to_the_host_first(tmp_path: Path) -> None:
    def after(loop: Loop) -> None:
        for _ in range(10):
            loop.fetch(4_000_000, 500.0, behind="aten::empty_strided")
        loop.host += 20_000.0
        loop.op("aten::zero_", 3.0)

    idle = studied(tmp_path, after).rank.step_idle
    assert idle is not None and idle["checkpoint-stall"] > 19_000_000 and idle["host-stall"] == 0


@pytest.mark.parametrize(("copies", "nbytes"), [(2, 50_000_000), (40, 4)])
def test_results_and_metrics_are_no_checkpoint(tmp_path: Path, copies: int, nbytes: int) -> None:
    def after(loop: Loop) -> None:
        for _ in range(copies):
            loop.fetch(nbytes, 100.0, behind="aten::empty_strided")
        loop.host += 20_000.0
        loop.op("aten::zero_", 3.0)

    idle = studied(tmp_path, after).rank.step_idle
    assert idle is not None and idle["checkpoint-stall"] == 0 and idle["host-stall"] > 15_000_000


def test_the_verdict_names_it_first(tmp_path: Path) -> None:
    case = api.trace(write(tmp_path / "t.json", Loop().steps(saved)))
    first = case.verdicts[0]
    assert (first.name, first.verdict, first.severity) == ("checkpoint-stall", "finding", "error")


def test_idle_still_sums(tmp_path: Path) -> None:
    rank = studied(tmp_path, saved).rank
    assert rank.budget is not None and sum(rank.idle.values()) == rank.budget.idle_ns


def test_loading_of_code_is_no_overhead_of_the_profiler(tmp_path: Path) -> None:
    def after(loop: Loop) -> None:
        loop.events.append(
            event(
                "cuda_runtime",
                "cudaDeviceSynchronize",
                loop.host,
                loop.device + 2.0 - loop.host,
                correlation=-1,
            )
        )
        loop.host = loop.device + 2.0
        loop.events.append(event("overhead", "Lazy Function Loading", loop.host, 5_000.0))
        loop.host += 5_000.0
        loop.op("aten::zero_", 3.0)

    idle = studied(tmp_path, after).rank.step_idle
    assert idle is not None and idle["profiler-overhead"] == 0
    assert idle["compile-stall"] == pytest.approx(5_000_000, rel=0.02)
