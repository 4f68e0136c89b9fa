"""FLOPs and bytes of operators against closed forms, and what is said of them under a roof."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_loops import BF16, F32, H200, Op, mm, pointwise, study

from wellfed.analyze.op_costs import FORMULAS, cost_of
from wellfed.analyze.op_roofline import roof_of
from wellfed.analyze.shapes import parse
from wellfed.model.timeline import Shape
from wellfed.predict.roofline import GOOD_KERNEL, OpCost, conv, gemm, kernel_ns, roof_ns, visible

FP8, LONG, INT = "c10::Float8_e4m3fn", "long int", "int"
small = st.integers(1, 64)


def cost(name: str, dims: list[Any], types: list[str], concrete: list[str] | None = None) -> OpCost | None:
    told = concrete or [""] * len(dims)
    call = parse(name, Shape(json.dumps(dims), json.dumps(types), json.dumps(told), ""))
    assert call is not None
    return cost_of(call)


def known(name: str, dims: list[Any], types: list[str], concrete: list[str] | None = None) -> OpCost:
    found = cost(name, dims, types, concrete)
    assert found is not None
    return found


# -- products ---------------------------------------------------------------------------------------------


@given(m=small, n=small, k=small)
def test_mm(m: int, n: int, k: int) -> None:
    found = known("aten::mm", [[m, k], [k, n]], [BF16, BF16])
    assert found.flops == 2 * m * n * k and found.matrix
    assert found.bytes == 2 * (m * k + k * n + m * n)


@given(m=small, n=small, k=small, b=small)
def test_bmm_is_so_many_mm(m: int, n: int, k: int, b: int) -> None:
    one = known("aten::mm", [[m, k], [k, n]], [F32, F32])
    all_ = known("aten::bmm", [[b, m, k], [b, k, n]], [F32, F32])
    assert all_.flops == b * one.flops and all_.bytes == b * one.bytes


def test_addmm_reads_the_bias_too() -> None:
    found = known("aten::addmm", [[30], [10, 20], [20, 30], [], []], [F32, F32, F32, "Scalar", "Scalar"])
    assert found.flops == 2 * 10 * 20 * 30
    assert found.bytes == 4 * (30 + 10 * 20 + 20 * 30 + 10 * 30)


def test_baddbmm_and_linear_and_matmul_agree_with_mm() -> None:
    assert known("aten::linear", [[4, 5, 20], [30, 20], [30]], [BF16] * 3).flops == 2 * 20 * 20 * 30
    assert known("aten::matmul", [[4, 5, 20], [20, 30]], [BF16] * 2).flops == 2 * 20 * 20 * 30
    assert known("aten::matmul", [[20], [20, 30]], [BF16] * 2).flops == 2 * 20 * 30
    baddbmm = known("aten::baddbmm", [[2, 5, 7], [2, 5, 3], [2, 3, 7]], [F32] * 3)
    assert baddbmm.flops == 2 * 2 * 5 * 7 * 3
    assert baddbmm.bytes == 4 * 2 * (5 * 7 + 5 * 3 + 3 * 7 + 5 * 7)


def test_scaled_mm_writes_two_bytes() -> None:
    found = known("aten::_scaled_mm", [[64, 32], [32, 16], [], []], [FP8, FP8, F32, F32])
    assert found.flops == 2 * 64 * 32 * 16
    assert found.bytes == 64 * 32 + 32 * 16 + 2 * 64 * 16


def test_sizes_that_do_not_fit_have_no_cost() -> None:
    assert cost("aten::mm", [[8, 7], [9, 8]], [F32, F32]) is None
    assert cost("aten::mm", [[8, 7]], [F32]) is None
    assert cost("aten::matmul", [[3, 8, 7], [2, 7, 8]], [F32, F32]) is None


def test_grouped_products_of_experts() -> None:
    """Tokens sorted by expert: each row meets one expert's matrix; all experts' weights are read."""
    found = known("aten::_grouped_mm", [[512, 64], [8, 64, 128], [8]], [BF16, BF16, INT])
    assert found.flops == 2 * 512 * 64 * 128
    assert found.bytes == 2 * (512 * 64 + 8 * 64 * 128 + 512 * 128)
    # the gradient of the weights: rows are summed over in groups, one result each
    weights = known("aten::_grouped_mm", [[64, 512], [512, 128], [8]], [BF16, BF16, INT])
    assert weights.flops == 2 * 512 * 64 * 128
    assert weights.write_bytes == 2 * 8 * 64 * 128


# -- convolutions -----------------------------------------------------------------------------------------


def conv_call(
    x: list[int], w: list[int], *, stride: str = "[1, 1]", padding: str = "[0, 0]", dilation: str = "[1, 1]",
    transposed: str = "False", extra: str = "[0, 0]", groups: str = "1",
) -> OpCost:  # fmt: skip
    return known(
        "aten::convolution",
        [x, w, [], [], [], [], [], [], []],
        [F32, F32, "", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar"],
        ["", "", "", stride, padding, dilation, transposed, extra, groups],
    )


def by_counting(x: list[int], w: list[int], stride: int, padding: int, dilation: int, groups: int) -> int:
    """Multiply-adds of a convolution that walks over every output, padding included; times two."""
    n = 0
    sizes = [
        (s + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for s, k in zip(x[2:], w[2:], strict=True)
    ]
    for _ in itertools.product(range(x[0]), range(w[0]), *(range(s) for s in sizes)):
        n += (x[1] // groups) * w[2] * w[3]
    return 2 * n


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (2, 1, 1, 4)]
)
def test_convolution_is_what_counting_gives(stride: int, padding: int, dilation: int, groups: int) -> None:
    x, w = [2, 8, 12, 10], [16, 8 // groups, 3, 3]
    found = conv_call(
        x,
        w,
        stride=f"[{stride}, {stride}]",
        padding=f"[{padding}]",
        dilation=f"[{dilation}]",
        groups=str(groups),
    )
    assert found.flops == by_counting(x, w, stride, padding, dilation, groups)


def test_a_one_by_one_convolution_is_a_product() -> None:
    found = conv_call([4, 32, 10, 10], [64, 32, 1, 1])
    assert found.flops == gemm(4 * 100, 64, 32).flops
    assert found.bytes == 4 * (4 * 32 * 100 + 64 * 32 + 4 * 64 * 100)


def test_transposed_is_the_gradient_of_the_forward() -> None:
    """It takes as many products as the convolution whose input it makes, where that leaves no rest."""
    forward = conv_call([2, 8, 16, 16], [12, 8, 4, 4], stride="[2, 2]", padding="[1, 1]")
    back = conv_call([2, 12, 8, 8], [12, 8, 4, 4], stride="[2, 2]", padding="[1, 1]", transposed="True")
    assert back.flops == forward.flops
    assert back.write_bytes == 4 * 2 * 8 * 16 * 16


def test_backward_is_one_forward_for_each_gradient() -> None:
    def backward(mask: str) -> OpCost:
        return known(
            "aten::convolution_backward",
            [[2, 16, 10, 10], [2, 8, 12, 12], [16, 8, 3, 3], [], [], [], [], [], [], [], []],
            [F32, F32, F32, *["ScalarList"] * 4, "Scalar", "ScalarList", "Scalar", ""],
            ["", "", "", "[16]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", mask],
        )

    forward = conv_call([2, 8, 12, 12], [16, 8, 3, 3])
    both, one = backward("[True, True, False]"), backward("[False, True, False]")
    assert both.flops == 2 * forward.flops and one.flops == forward.flops
    assert one.write_bytes == 4 * 16 * 8 * 9


def test_conv_in_one_and_three_dimensions() -> None:
    assert conv([2, 3, 50], [2, 7, 48], [7, 3, 3]).flops == 2 * 2 * 48 * 7 * 9
    assert conv([1, 2, 5, 5, 5], [1, 4, 3, 3, 3], [4, 2, 3, 3, 3]).flops == 2 * 27 * 4 * 2 * 27


# -- attention --------------------------------------------------------------------------------------------


def sdpa(q: list[int], k: list[int], causal: str) -> OpCost:
    types = [BF16] * 3 + ["Scalar"] * 3
    return known(
        "aten::_scaled_dot_product_flash_attention",
        [q, k, k, [], [], []],
        types,
        ["", "", "", "0.", causal, "False"],
    )


def test_attention_is_its_two_products() -> None:
    found = sdpa([2, 8, 128, 64], [2, 8, 256, 64], "False")
    scores = gemm(128, 256, 64, batch=16).flops
    assert found.flops == 2 * scores
    assert found.bytes == 2 * (2 * 2 * 8 * 128 * 64 + 2 * 2 * 8 * 256 * 64)


def test_grouped_queries_read_fewer_keys_for_as_many_products() -> None:
    many, few = (
        sdpa([2, 8, 128, 64], [2, 8, 128, 64], "False"),
        sdpa([2, 8, 128, 64], [2, 2, 128, 64], "False"),
    )
    assert many.flops == few.flops and few.read_bytes < many.read_bytes


@given(q=st.integers(1, 20), k=st.integers(1, 20))
def test_visible_pairs_of_a_causal_mask(q: int, k: int) -> None:
    assert visible(q, k) == sum(1 for i in range(q) for j in range(k) if j <= i)


def test_causal_is_about_half_and_backward_two_and_a_half_times() -> None:
    full, half = (
        sdpa([1, 4, 512, 64], [1, 4, 512, 64], "False"),
        sdpa([1, 4, 512, 64], [1, 4, 512, 64], "True"),
    )
    assert half.flops == full.flops * visible(512, 512) / 512**2
    size = [1, 4, 512, 64]
    back = known(
        "aten::_scaled_dot_product_flash_attention_backward",
        [size] * 6 + [[]] * 9,
        [BF16] * 5 + [F32] + [""] * 9,
        [""] * 10 + ["0.", "False", "", "", ""],
    )
    assert back.flops == 2.5 * full.flops
    assert back.write_bytes == 2 * 3 * math.prod(size)


# -- what streams -----------------------------------------------------------------------------------------


@given(rows=small, width=small)
def test_elementwise_reads_each_and_writes_one(rows: int, width: int) -> None:
    found = known("aten::add", [[rows, width], [rows, width], []], [F32, F32, "Scalar"])
    assert found.bytes == 3 * 4 * rows * width and not found.matrix
    wide = known("aten::mul", [[rows, width], [1, width]], [BF16, BF16])
    assert wide.bytes == 2 * (2 * rows * width + width)
    assert known("aten::mul_", [[rows, width], [1, width]], [BF16, BF16]).bytes == wide.bytes


def test_mixed_types_count_their_own_bytes() -> None:
    found = known("aten::copy_", [[100], [100], []], [BF16, F32, "Scalar"])
    assert (found.read_bytes, found.write_bytes) == (400, 200)
    assert known("aten::gt", [[100], []], [F32, "Scalar"]).write_bytes == 100


def test_expanded_tensors_are_read_once() -> None:
    call = parse(
        "aten::add",
        Shape(
            "[[64, 32], [64, 32], []]",
            '["float", "float", "Scalar"]',
            '["", "", "1"]',
            "[[32, 1], [0, 1], []]",
        ),
    )
    assert call is not None
    found = cost_of(call)
    assert found is not None and found.read_bytes == 4 * (64 * 32 + 32)


def test_norms_and_softmax_and_reductions() -> None:
    norm = known(
        "aten::native_layer_norm", [[64, 256], [], [256], [256], []], [F32, "ScalarList", F32, F32, "Scalar"]
    )
    assert norm.bytes == 4 * (2 * 64 * 256 + 2 * 256)
    assert known("aten::_softmax", [[64, 256], [], []], [BF16, "Scalar", "Scalar"]).bytes == 2 * 2 * 64 * 256
    mean = known(
        "aten::mean", [[64, 256], [], [], []], [F32, "ScalarList", "Scalar", ""], ["", "[-1]", "True", ""]
    )
    assert mean.write_bytes == 4 * 64
    var = known(
        "aten::var",
        [[64, 256], [], [], []],
        [F32, "ScalarList", "Scalar", "Scalar"],
        ["", "[1]", "0", "True"],
    )
    assert var.bytes == 4 * (64 * 256 + 64)
    assert known("aten::sum", [[64, 256]], [F32]).write_bytes == 4


def test_embedding_moves_the_rows_that_are_asked_for() -> None:
    found = known(
        "aten::embedding", [[50_000, 64], [8, 16], [], [], []], [F32, LONG, "Scalar", "Scalar", "Scalar"]
    )
    assert found.bytes == 2 * 8 * 16 * 64 * 4 + 8 * 16 * 8 and found.flops == 0
    back = known(
        "aten::embedding_dense_backward",
        [[8, 16, 64], [8, 16], [], [], []],
        [F32, LONG, "Scalar", "Scalar", "Scalar"],
        ["", "", "50000", "-1", "False"],
    )
    assert back.write_bytes == 50_000 * 64 * 4


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_nothing_known_is_no_number(name: str) -> None:
    for dims, types in (([], []), ([[]], [""]), ([[], []], ["Scalar", ""]), ([[[4, 4]]], ["TensorList"])):
        assert cost(name, dims, types) is None


# -- under the roof ---------------------------------------------------------------------------------------


@given(flops=st.floats(1, 1e15), bytes_=st.floats(1, 1e12))
def test_no_good_kernel_is_under_the_roof(flops: float, bytes_: float) -> None:
    one = OpCost(flops, bytes_, 0.0, matrix=True)
    least = roof_ns(one, H200["bf16"], H200["memory"])
    assert least is not None
    times = [
        kernel_ns(one, H200["bf16"], H200["memory"], GOOD_KERNEL[p]) for p in ("low", "expected", "high")
    ]
    assert times[0] >= times[1] >= times[2] >= least


def test_roof_of_a_measured_machine_and_of_none() -> None:
    known_gpu = roof_of("NVIDIA H200")
    assert known_gpu is not None and known_gpu.bytes_per_s == H200["memory"]
    assert known_gpu.flops_per_s["bf16"] == pytest.approx(H200["bf16"], rel=0.01)
    measured = roof_of("NVIDIA H200", {"memory_bandwidth_gbs": 4000.0})
    assert measured is not None and measured.bytes_per_s == 4e12 and "measured" in measured.source
    assert roof_of("No such GPU") is None and roof_of(None) is None


def test_rows_say_their_share_of_the_roof(tmp_path: Path) -> None:
    """A product at half of the bf16 peak, a sum at 80 % of the memory's rate."""
    half = 2 * 4096**3 / H200["bf16"] * 2 * 1e6
    n = 1 << 26
    sum_us = 3 * 4 * n / H200["memory"] / 0.8 * 1e6
    ops = [
        mm(4096, 4096, 4096, half, kernel_name="nvjet_sm90_tst_128x256", of=BF16),
        pointwise("aten::add", [n], sum_us, tensors=2),
    ]
    roof = study(tmp_path, ops).ranks[0].roofline
    assert roof is not None
    rows = {row.op: row for row in roof.rows}
    assert rows["aten::mm"].of_roof_pct == pytest.approx(50, rel=0.01)
    assert rows["aten::mm"].bound == "compute" and rows["aten::mm"].precision == "bf16"
    assert (
        rows["aten::add"].of_roof_pct == pytest.approx(80, rel=0.01) and rows["aten::add"].bound == "memory"
    )
    assert roof.covered_ns == pytest.approx(roof.kernel_ns)


def test_no_arguments_no_roofline(tmp_path: Path) -> None:
    assert study(tmp_path, [mm(64, 64, 64, 50.0)], shapes=False).ranks[0].roofline is None


def test_tf32_counts_against_its_own_peak(tmp_path: Path) -> None:
    us = 2 * 4096**3 / H200["tf32"] * 1e6 / 0.7
    ops = [mm(4096, 4096, 4096, us, kernel_name="sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128")]
    roof = study(tmp_path, ops).ranks[0].roofline
    assert roof is not None and roof.rows[0].precision == "tf32"
    assert roof.rows[0].of_roof_pct == pytest.approx(70, rel=0.02)


def test_a_kernel_of_a_convolution_that_moves_is_not_its_precision(tmp_path: Path) -> None:
    """The longest kernel is a change of layout in fp32, the product is tf32."""
    op = Op(
        "aten::cudnn_convolution",
        "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true>",
        300.0,
        [[64, 128, 56, 56], [128, 128, 3, 3], [], [], [], [], [], [], []],
        [F32, F32, *["ScalarList"] * 3, *["Scalar"] * 4],
        ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"],
        extra=[("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32", 200.0)],
    )
    roof = study(tmp_path, [op]).ranks[0].roofline
    assert roof is not None and roof.rows[0].precision == "tf32"
