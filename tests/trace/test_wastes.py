"""Wastes that are not idle: found with and without recorded arguments, worth what the arithmetic says, else silent."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from operator_loops import BF16, F32, H200, Op, gain, mm, pointwise, study, verdict
from trace_builder import event, kernel, write

from wellfed import api
from wellfed.analyze.shapes import Call
from wellfed.analyze.wastes.attention import Scores, head_of, scores_of
from wellfed.analyze.wastes.elementwise import Link, fused_ns, moved, period
from wellfed.model import Case

WASTES = ("slow-precision", "unfused-optimizer", "unfused-attention", "unfused-elementwise")
BOTH = pytest.mark.parametrize("shapes", [True, False])
SIMT = "cutlass_80_simt_sgemm_128x256_8x4_nt_align1"
TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_tensor16x8x8"
NVJET = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN"


def product(unit: str, share: float, *, m: int = 4096, n: int = 4096, k: int = 4096) -> Op:
    """A product that reaches a share of the unit's peak."""
    name, of = {"fp32": (SIMT, F32), "tf32": (TF32, F32), "bf16": (NVJET, BF16)}[unit]
    return mm(m, k, n, 2 * m * n * k / (H200[unit] * share) * 1e6, kernel_name=name, of=of)


def stream_us(n_bytes: float, share: float = 0.85) -> float:
    return n_bytes / (H200["memory"] * share) * 1e6


def found(case: Case) -> list[str]:
    return [v.name for v in case.verdicts if v.name in WASTES and v.verdict == "finding"]


# -- precision --------------------------------------------------------------------------------------------


@BOTH
def test_fp32_products_gain_what_the_units_give(tmp_path: Path, shapes: bool) -> None:
    """70 % of 67 TFLOP/s now, 60 to 88 % of 989 then: 12.6 to 18.6 times the rate."""
    case = study(tmp_path, [product("fp32", 0.70)] * 10, shapes=shapes)
    expected, low, high = gain(case, "slow-precision")
    real = H200["bf16"] * 0.75 / (H200["fp32"] * 0.70)
    assert low <= real <= high and expected == pytest.approx(real, rel=0.25)
    assert verdict(case, "slow-precision").severity == "error"


@BOTH
def test_tf32_products_gain_at_most_about_twice(tmp_path: Path, shapes: bool) -> None:
    expected, low, high = gain(study(tmp_path, [product("tf32", 0.75)] * 10, shapes=shapes), "slow-precision")
    assert 1.5 < expected < 2.3 and low <= 2.0 <= high


def test_what_the_memory_bounds_gains_what_half_the_bytes_give(tmp_path: Path) -> None:
    """One row: the weights are read, 4 bytes each now and 2 then."""
    us = stream_us(4 * 8192 * 8192)
    expected, _, high = gain(study(tmp_path, [mm(1, 8192, 8192, us)] * 10), "slow-precision")
    assert 1.3 < expected <= 2.1 and high < 2.6


@BOTH
@pytest.mark.parametrize("gpu", ["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"])
def test_bf16_products_are_left_alone(tmp_path: Path, shapes: bool, gpu: str) -> None:
    assert found(study(tmp_path, [product("bf16", 0.3)] * 10, shapes=shapes, gpu=gpu)) == []


@pytest.mark.parametrize(
    ("gpu", "to", "other"),
    [("Tesla V100-SXM2-32GB", "float16", "bfloat16"), ("NVIDIA A100-SXM4-80GB", "bfloat16", "torch.float16")],
)
def test_the_cure_is_a_precision_that_the_gpu_has(tmp_path: Path, gpu: str, to: str, other: str) -> None:
    found = verdict(study(tmp_path, [product("fp32", 0.1)] * 10, gpu=gpu), "slow-precision")
    said = f"{found.message} {found.remedy}"
    assert f"torch.{to}" in said and other not in said
    assert ("in bf16" in said) == (to == "bfloat16") and ("GradScaler" in said) == (to == "float16")


def test_a_gpu_nobody_knows_is_not_judged(tmp_path: Path) -> None:
    case = study(tmp_path, [product("fp32", 0.7)] * 10, gpu="Nobody's GPU")
    assert verdict(case, "slow-precision").verdict == "not-judged"
    assert verdict(case, "slow-precision").reason == "unknown-gpu"


@BOTH
def test_faster_kernels_do_not_help_a_step_that_waits_for_its_host(tmp_path: Path, shapes: bool) -> None:
    """Small products, 200 us of host time for each 20 us kernel."""
    case = study(tmp_path, [mm(512, 512, 512, 20.0)] * 40, shapes=shapes, host_us=200.0)
    assert verdict(case, "slow-precision").verdict == "pass"


@BOTH
def test_a_convolution_keeps_its_changes_of_layout(tmp_path: Path, shapes: bool) -> None:
    """tf32, half of it layout: the products halve at best, the rest hardly changes. Not 2 but about 1.4."""
    layout = "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true>"
    op = Op(
        "aten::cudnn_convolution",
        "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32",
        1000.0,
        [[128, 256, 56, 56], [256, 256, 3, 3], [], [], [], [], [], [], []],
        [F32, F32, *["ScalarList"] * 3, *["Scalar"] * 4],
        ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"],
        extra=[(layout, 1000.0)],
    )
    expected, low, high = gain(study(tmp_path, [op] * 6, shapes=shapes), "slow-precision")
    assert low <= 1.4 <= high and expected < 1.7


@BOTH
def test_a_convolution_by_tiles_on_two_streams_becomes_one_kernel(tmp_path: Path, shapes: bool) -> None:
    """cuDNN's FFT for fp32: tiles in turns on two streams, each pair one after the other because either fills the device;
    transforms from and to NHWC, that bf16 needs none of. 2 x 16 tiles of 100 us and 200 us of transforms, 0.2 to 0.4 ms
    in bf16."""
    args = {
        "Input Dims": [[176, 96, 64, 64], [96, 96, 3, 3], [], [], [], [], [], [], []],
        "Input type": [F32, F32, *["ScalarList"] * 3, *["Scalar"] * 4],
        "Concrete Inputs": ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"],
    }
    events, host, device, corr = [], 1000.0, 1000.0, 0
    layout = "void cudnn::engines_precompiled::{}Kernel<float, float, float, true, false>"
    tile = "sm80_xmma_gemm_cf32cf32_f32f32_cf32_nt_n_tilesize64x32x8_stage3_ffma"
    for step in range(3):
        begin = host
        for _ in range(6):
            start = host
            parts = [(7, layout.format("nhwcToNchw"), 100.0), (7, "void fft2d_r2c_32x32<float>", 20.0)]
            parts += [(29 + i % 2, tile, 100.0) for i in range(32)]
            parts += [(7, layout.format("nchwToNhwc"), 100.0)]
            for i, (stream, name, us) in enumerate(parts):
                if stream != 7 or i == len(parts) - 1:
                    events.append(event("cuda_runtime", "cudaStreamWaitEvent", host, 0.5))
                corr += 1
                events.append(event("cuda_runtime", "cudaLaunchKernel", host + 1.0, 4.0, correlation=corr))
                at = max(
                    host + 6.0, device + (2.0 if stream == 7 else -15.0)
                )  # as the other's last blocks end
                events.append(kernel(name, at, us, corr=corr, stream=stream))
                device, host = at + us, host + 7.0
            more = args if shapes else {}
            events.append(event("cpu_op", "aten::cudnn_convolution", start - 0.5, host - start + 0.2, **more))
            host += 5.0
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, host - begin))
        host += 1.0
    write(tmp_path / "tiles.json", events, record_shapes=int(shapes))
    expected, low, high = gain(api.trace(tmp_path / "tiles.json"), "slow-precision")
    flops = 2 * 176 * 96 * 96 * 9 * 64 * 64
    real = 2960 / (flops / (H200["bf16"] * 0.5) * 1e6 + 10.0)
    assert low <= real <= high and expected == pytest.approx(real, rel=0.5)


def test_a_queue_full_of_unrecorded_work_is_no_work_of_the_host(tmp_path: Path) -> None:
    """From the second step on each launch is held until a kernel of before the recording is done. The host could go ten
    times as fast, and so can the step."""
    us, count = 2 * 4096**3 / (H200["fp32"] * 0.7) * 1e6, 280
    events, host, corr = [], 1000.0, 0
    launched: list[int] = []
    for step in range(3):
        begin = host
        for _ in range(count):
            host += 20.0
            call = 5.0 if step == 0 else us - 20.0
            corr += 1
            launched.append(corr)
            args = {"Input Dims": [[4096, 4096]] * 2, "Input type": [F32] * 2, "Concrete Inputs": ["", ""]}
            events.append(event("cpu_op", "aten::mm", host - 10.0, call + 11.0, **args))
            events.append(event("cuda_runtime", "cudaLaunchKernel", host, call, correlation=corr))
            host += call + 2.0
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, host - begin))
    events.append(kernel("earlier", 1000.0, host - 1000.0, corr=999_999))
    for i, number in enumerate(launched):
        events.append(kernel(SIMT, host + i * (us + 1.0), us, corr=number))
    write(tmp_path / "full.json", events)
    expected, low, _ = gain(api.trace(tmp_path / "full.json"), "slow-precision")
    assert expected > 6 and low > 4


# -- chains -----------------------------------------------------------------------------------------------

N = 1 << 26


def chain(
    names: list[str], *, size: tuple[int, ...] = (N // 1024, 1024), inside: tuple[str, ...] = ()
) -> list[Op]:
    """Unary operators, each over memory at 85 % of its rate."""
    us = stream_us(2 * 4 * float(np.prod(size)))
    return [pointwise(f"aten::{name}", size, us, inside=inside) for name in names]


@BOTH
def test_a_chain_becomes_one_kernel(tmp_path: Path, shapes: bool) -> None:
    """Eight passes over memory, of which one is left when nothing else is read: 8; 5.3 when one more tensor is."""
    ops = [*chain(["mul", "add", "sigmoid", "tanh", "exp", "abs", "neg", "sqrt"]), product("bf16", 0.75)] * 4
    rest = 4 * ops[8].us
    expected, low, high = gain(study(tmp_path, ops, shapes=shapes), "unfused-elementwise")
    whole = sum(op.us for op in ops)
    one, two = (whole / (rest + 4 * passes * ops[0].us) for passes in (1.0, 1.5))
    assert low <= two <= high and low <= one <= high
    assert 0.85 * two <= expected <= 1.05 * one


@BOTH
def test_two_kernels_are_no_chain(tmp_path: Path, shapes: bool) -> None:
    ops = [*chain(["mul", "add"]), product("bf16", 0.75)] * 6
    assert "unfused-elementwise" not in found(study(tmp_path, ops, shapes=shapes))


def test_what_is_compiled_already_is_left_alone(tmp_path: Path) -> None:
    names = ["mul", "add", "sigmoid", "tanh", "exp"]
    ops = chain(names, inside=("Torch-Compiled Region: 0/0",)) * 4
    assert "unfused-elementwise" not in found(study(tmp_path, ops))


def test_other_sizes_end_a_chain(tmp_path: Path) -> None:
    """As many kernels, but each over other elements than the one before."""
    ops = [
        op
        for name in ("mul", "add", "exp", "neg")
        for op in (*chain([name], size=(N // 1000, 1000)), *chain([name], size=(N // 768, 768)))
    ]
    assert "unfused-elementwise" not in found(study(tmp_path, ops * 3))


def test_statistics_of_rows_do_not_end_one(tmp_path: Path) -> None:
    """A norm written out: mean and variance along the last dimension, small kernels on them, large ones again."""
    rows, width = 65536, 1024
    large, small = stream_us(2 * 4 * rows * width), 2.0
    mean = Op(
        "aten::mean", "void at::native::reduce_kernel<512, 1, MeanOps<float>>", large / 2,
        [[rows, width], [], [], []], [F32, "ScalarList", "Scalar", ""], ["", "[-1]", "True", ""],
    )  # fmt: skip
    var = mean._replace(
        name="aten::var", types=[F32, "ScalarList", "Scalar", "Scalar"], concrete=["", "[-1]", "0", "True"]
    )
    whole = (rows, width)
    ops = [
        pointwise("aten::mul", whole, large), mean, pointwise("aten::sub", whole, large), var,
        pointwise("aten::add", (rows, 1), small), pointwise("aten::rsqrt", (rows, 1), small),
        pointwise("aten::mul", whole, large), pointwise("aten::sigmoid", whole, large),
    ]  # fmt: skip
    case = study(tmp_path, ops * 4)
    expected, low, high = gain(case, "unfused-elementwise")
    assert low <= 5.0 <= high and expected > 2.5
    assert "8 kernels" in verdict(case, "unfused-elementwise").evidence[0].text


@BOTH
def test_a_rotary_embedding_written_out_is_one_chain(tmp_path: Path, shapes: bool) -> None:
    """To fp32, times the cosine, a half negated, joined with the other, times the sine, added, back to bf16; for queries and
    keys. Each is one kernel then: bf16 in and out."""
    whole, half = [16, 16, 2048, 64], [16, 16, 2048, 32]
    n = 16 * 16 * 2048 * 64
    cast = pointwise("aten::copy_", whole, stream_us(6 * n), tensors=2)
    label = (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<4u>, unsigned int, 4, 64, 64>"
    )
    join = Op("aten::cat", label, stream_us(8 * n), [[half, half], []], ["TensorList", "Scalar"], ["", "-1"])
    steps = [16 * 131072, 131072, 64, 1]
    turn = [
        cast._replace(types=[F32, BF16]), pointwise("aten::mul", whole, stream_us(8 * n)),
        pointwise("aten::neg", half, stream_us(4 * n))._replace(strides=[steps]), join,
        pointwise("aten::mul", whole, stream_us(8 * n)), pointwise("aten::add", whole, stream_us(12 * n), tensors=2),
        cast._replace(types=[BF16, F32]),
    ]  # fmt: skip
    ops = [*turn, *turn, product("bf16", 0.75)] * 4
    case = study(tmp_path, ops, shapes=shapes)
    expected, low, high = gain(case, "unfused-elementwise")
    now, rest = sum(op.us for op in ops), 4 * ops[-1].us
    real = now / (rest + 8 * stream_us(4 * n, 0.78))
    assert low <= real <= high and expected == pytest.approx(real, rel=0.3)
    assert "7 kernels" in verdict(case, "unfused-elementwise").evidence[0].text


def link(
    elements: int = N,
    reads: int = 1,
    length: float = 1e5,
    reached: float | None = 4e12,
    label: str = "aten::mul",
) -> Link:
    return Link(0, label, elements, reads, 4.0, 4.0, length, reached)


@pytest.mark.parametrize("point", ["low", "expected", "high"])
def test_a_fused_kernel_moves_one_in_and_one_out_at_least(point: str) -> None:
    assert moved([link()] * 5, point) == 2 * 4 * N
    many = moved([link(reads=2)] * 5, point)
    assert 2 * 4 * N <= many <= 3 * 4 * N


def test_points_are_in_order_and_caches_count() -> None:
    part = [link(reads=2)] * 6
    times = [fused_ns(part, point, H200["memory"]) for point in ("low", "expected", "high")]
    assert times[0] >= times[1] >= times[2]
    cached = [link(reached=9e12)] * 6
    assert fused_ns(cached, "expected", H200["memory"]) < fused_ns(part, "expected", H200["memory"])


def test_a_gradient_is_read_beside_what_was_saved_for_it() -> None:
    forward, backward = link(reads=2), link(reads=2)._replace(backward=True)
    assert moved([backward] * 5, "expected") > moved([forward] * 5, "expected")


def test_period() -> None:
    assert period([("a", 1), ("b", 1), ("c", 1)] * 4) == 3
    assert period([("a", 1)] * 12) == 3
    assert period([("a", 1), ("b", 1), ("c", 1), ("d", 1)]) == 4
    assert period([("a", 1), ("b", 1), ("c", 1)] * 2) == 3
    assert period([("a", 1), ("b", 1)] * 2) == 4
    assert period([*[("a", 1), ("b", 1), ("c", 1)] * 2, ("a", 1)]) == 7


# -- attention --------------------------------------------------------------------------------------------

B, L, D = 128, 1024, 64


def attention(*, softmax: bool = True) -> list[Op]:
    """Scores of bf16 in memory: product, scale, softmax, product."""
    scores = [B, L, L]
    us = stream_us(2 * 2 * B * L * L)
    first = Op("aten::bmm", NVJET, us * 0.7, [[B, L, D], [B, D, L]], [BF16] * 2, ["", ""])
    last = Op("aten::bmm", NVJET, us * 0.7, [[B, L, L], [B, L, D]], [BF16] * 2, ["", ""])
    name = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>"
    middle = Op("aten::_softmax", name, us, [scores, [], []], [BF16, "Scalar", "Scalar"], ["", "-1", "False"])
    scale = pointwise("aten::mul", scores, us, of=BF16)
    return [first, scale, middle if softmax else scale, last]


@BOTH
def test_attention_in_memory_becomes_one_kernel(tmp_path: Path, shapes: bool) -> None:
    """Forward: 4 B L^2 D FLOP at 28 to 60 % of the peak in place of five passes over the scores."""
    ops = [*attention(), product("bf16", 0.75)] * 6
    case = study(tmp_path, ops, shapes=shapes)
    expected, low, high = gain(case, "unfused-attention")
    now, rest = sum(op.us for op in ops), 6 * ops[4].us
    then = rest + 6 * 4 * B * L * L * D / (H200["bf16"] * 0.4) * 1e6
    assert low <= now / then <= high and expected == pytest.approx(now / then, rel=0.3)
    assert "unfused-elementwise" not in found(case)


@BOTH
def test_batched_products_without_a_softmax_are_no_attention(tmp_path: Path, shapes: bool) -> None:
    ops = [*attention(softmax=False), product("bf16", 0.75)] * 6
    assert "unfused-attention" not in found(study(tmp_path, ops, shapes=shapes))


@BOTH
def test_a_softmax_of_classes_is_no_attention(tmp_path: Path, shapes: bool) -> None:
    size = [65536, 1024]
    us = stream_us(2 * 2 * 65536 * 1024)
    middle = Op(
        "aten::_softmax",
        "void cunn_SoftMaxForward<8, c10::BFloat16>",
        us,
        [size, [], []],
        [BF16, "Scalar", "Scalar"],
        ["", "-1", "False"],
    )
    ops = [product("bf16", 0.75), middle, product("bf16", 0.75)] * 6
    assert "unfused-attention" not in found(study(tmp_path, ops, shapes=shapes))


def test_heads_by_their_sizes() -> None:
    scores = scores_of((16, 12, 1024, 512))
    assert scores == Scores(192, 1024, 512)
    qk = Call("aten::bmm", ((192, 1024, 64), (192, 64, 512)), (BF16, BF16), ("", ""), ())
    pv = Call("aten::bmm", ((192, 1024, 512), (192, 512, 80)), (BF16, BF16), ("", ""), ())
    assert scores is not None and head_of(qk, scores) == 64 and head_of(pv, scores) == 80
    assert scores_of((64, 1000)) is None and scores_of((8, 1, 64)) is None


# -- optimizer --------------------------------------------------------------------------------------------


def adam(*, tensors: int = 24, size: int = 1 << 24, kind: str = "AdamW", fused: bool = False) -> list[Op]:
    """Eight operators a tensor, as the for-loop makes them; or one fused kernel. The pass moves 7 tensors of the size."""
    inside = (f"Optimizer.step#{kind}.step",)
    if fused:
        us = stream_us(7 * 4 * size * tensors)
        return [
            Op(
                "aten::_fused_adamw_",
                "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>",
                us,
                inside=inside,
            )
        ]
    streams = {"mul_": 2, "lerp_": 3, "mul": 2, "addcmul_": 3, "sqrt": 2, "div_": 2, "add_": 2, "addcdiv_": 4}
    return [
        pointwise(f"aten::{name}", [size], stream_us(4 * size * s), inside=inside)
        for _ in range(tensors)
        for name, s in streams.items()
    ]


@BOTH
def test_an_optimizer_in_a_loop_becomes_one_pass(tmp_path: Path, shapes: bool) -> None:
    """20 passes over each tensor in place of 7: the device's time alone says 2.9 for the optimizer."""
    ops = [*adam(), product("bf16", 0.75)]
    case = study(tmp_path, ops, shapes=shapes)
    expected, low, high = gain(case, "unfused-optimizer")
    assert low <= 20 / 7 <= high and expected == pytest.approx(20 / 7, rel=0.25)
    assert verdict(case, "unfused-optimizer").gain is not None and "unfused-elementwise" not in found(case)


@BOTH
@pytest.mark.parametrize(
    "make", [lambda: adam(fused=True), lambda: adam(kind="Muon"), lambda: adam(tensors=2)]
)
def test_fused_unknown_and_small_optimizers_are_left_alone(
    tmp_path: Path, shapes: bool, make: Callable[[], list[Op]]
) -> None:
    ops = [*make(), *[product("bf16", 0.75)] * 4]
    assert "unfused-optimizer" not in found(study(tmp_path, ops, shapes=shapes))


# -- laws -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ops",
    [
        [product("fp32", 0.7)] * 8,
        [product("tf32", 0.7), *chain(["mul", "add", "exp"])] * 4,
        [*attention(), product("bf16", 0.7)] * 4,
        [*adam(), product("bf16", 0.7)],
    ],
)
@BOTH
def test_low_expected_high(tmp_path: Path, ops: list[Op], shapes: bool) -> None:
    case = study(tmp_path, ops, shapes=shapes)
    assert found(case)
    for name in found(case):
        expected, low, high = gain(case, name)
        assert 1.0 <= low <= expected <= high


def test_the_same_top_cause_with_and_without_arguments(tmp_path: Path) -> None:
    for ops in (
        [product("fp32", 0.7)] * 8,
        [*chain(["mul", "add", "exp", "neg"]), product("bf16", 0.7)] * 4,
        [*attention()] * 4,
    ):
        with_, without = (study(tmp_path, ops, shapes=s) for s in (True, False))
        name = found(with_)[0]
        assert found(without)[0] == name
        assert gain(without, name)[0] == pytest.approx(gain(with_, name)[0], rel=0.35)
