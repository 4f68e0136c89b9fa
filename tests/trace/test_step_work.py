"""What a step does, by operator and kernel, complete to the ns; and names without noise."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from test_budget_and_causes import traces
from trace_builder import event, kernel, simulate, write

from wellfed.analyze import step_work as module
from wellfed.analyze.budget import Work
from wellfed.analyze.families import family
from wellfed.analyze.kernel_names import plain_name
from wellfed.analyze.launches import Launches
from wellfed.analyze.steps import HostSteps
from wellfed.analyze.strip import BINS
from wellfed.analyze.study import study_device
from wellfed.ingest import read_timeline
from wellfed.model.trace import StepWork

NO_STEPS = HostSteps([], [], [], None)


def whole(path: Path) -> StepWork:
    timeline = read_timeline(path)
    work = Work(timeline, 0)
    found = module.step_work(timeline, work, Launches(timeline, work), NO_STEPS)
    assert found is not None
    return found


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(traces())
def test_nothing_is_lost(tmp_path: Path, events: list[dict[str, object]]) -> None:
    path = write(tmp_path / "t.json", events)
    found, timeline = whole(path), read_timeline(path)
    assert found.total_ns == int(timeline.dur[timeline.is_gpu].sum())
    assert found.count == int(timeline.is_gpu.sum())
    assert sum(r.total_ns for r in found.rows) + found.rest_ns == found.total_ns
    assert sum(r.count for r in found.rows) + found.rest_count == found.count


def test_what_no_row_has_room_for_is_in_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [kernel(f"kernel_{chr(97 + k)}", 100 * k, k + 1, corr=k + 1) for k in range(9)]
    monkeypatch.setattr(module, "ROWS", 4)
    found = whole(write(tmp_path / "t.json", rows))
    assert [r.total_ns for r in found.rows] == [9000, 8000, 7000, 6000]
    assert (found.rest_ns, found.rest_count, found.total_ns) == (15_000, 5, 45_000)


def test_the_outermost_operator_of_the_launching_thread_has_launched_it(tmp_path: Path) -> None:
    rows = [
        event("cpu_op", "Torch-Compiled Region", 0, 100),
        event("cpu_op", "aten::linear", 10, 40),
        event("cpu_op", "aten::addmm", 12, 30),
        event("cuda_runtime", "cudaLaunchKernel", 20, 4, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 60, 4, correlation=2),
        event("cpu_op", "autograd::engine::evaluate_function: MulBackward0", 0, 90, tid=200),
        event("cuda_runtime", "cudaLaunchKernel", 30, 4, correlation=3, tid=200),
        event("cuda_runtime", "cudaLaunchKernel", 200, 4, correlation=4),
        *(kernel(name, 300 + 20 * k, 10, corr=k + 1) for k, name in enumerate("abcd")),
        kernel("orphan", 500, 10, corr=99),
    ]
    found = whole(write(tmp_path / "t.json", rows))
    assert {r.kernel: r.op for r in found.rows} == {
        "a": "aten::linear", "b": "Torch-Compiled Region", "c": "MulBackward0", "d": "", "orphan": "",
    }  # fmt: skip


def test_steps_have_what_they_launched(tmp_path: Path) -> None:
    """Of a host that runs ahead, whose work runs long after its steps."""
    run = simulate(steps=4, kernels=10, kernel_us=100, dispatch_us=5, orphans=3)
    rank = study_device(read_timeline(write(tmp_path / "t.json", run.events)), 0).rank
    assert rank.work is not None
    assert (rank.work.steps, rank.work.launches, rank.work.count) == (4, 40, 40)
    assert rank.work.total_ns == 4 * 10 * 100_000


def test_the_strip_is_the_typical_step(tmp_path: Path) -> None:
    run = simulate(steps=6, kernels=10, kernel_us=100, data_us=3000.0)
    rank = study_device(read_timeline(write(tmp_path / "t.json", run.events)), 0).rank
    assert rank.strip is not None
    assert {len(lane) for lane in rank.strip.lanes.values()} == {BINS}
    row = next(row for row in rank.step_parts if row["name"] == rank.strip.name)
    for lane, key in (("compute", "compute_ns"), ("idle", "idle_ns")):
        assert np.mean(rank.strip.lanes[lane]) == pytest.approx(100 * row[key] / row["span_ns"], abs=0.5)
    assert rank.strip.lanes["idle"][:10] == (100,) * 10, "the step begins with its wait"


@pytest.mark.parametrize(
    ("name", "plain", "kind"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 3> >(int)", "vectorized_elementwise_kernel[MulFunctor]", "elementwise"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(P)", "cutlass_tensorop_bf16_s16816gemm_bf16_tn", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_32x6_tn_align8>(P)", "cutlass_tensorop_bf16_s16816gemm_bf16_tn", "gemm"),
        ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", "nvjet_tst_v_bz_TNT", "gemm"),
        ("triton_poi_fused_add_relu_3", "triton_poi_fused_add_relu", "elementwise"),
        ("triton_red_fused_mean_12", "triton_red_fused_mean", "reduce"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)", "copy"),
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x64x32_MI16x16x1", "Cijk_Ailk_Bljk_BBS_BH_Bias", "gemm"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(P)", "gemvx::kernel", "gemm"),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int>(int)", "permute_2D_data_kernel", "transpose"),
        ("std::enable_if<vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(P)", "fused_add_rms_norm_kernel", "norm"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "comm"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)", "flash_fwd_kernel", "attention"),
        ("my_own_thing", "my_own_thing", "other"),
        ("<odd", "<odd", "other"),
        ("", "", "other"),
    ],
)  # fmt: skip
def test_names(name: str, plain: str, kind: str) -> None:
    assert plain_name(name) == plain
    assert family(name) == kind
