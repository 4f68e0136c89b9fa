"""Families and precisions of kernels by the names that libraries give them."""

import pytest

from wellfed.analyze.families import FAMILIES, family, is_layout, precision

NAMES = [
    # name, family, precision
    ("cutlass_80_simt_sgemm_128x256_8x4_nt_align1", "gemm", "fp32"),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma_aligna4", "gemm", "fp32"),
    ("ampere_sgemm_128x64_tn", "gemm", "fp32"),
    ("volta_sgemm_32x32_sliced1x4_nn", "gemm", "fp32"),
    ("sm80_xmma_gemm_cf32cf32_f32f32_cf32_nt_n_tilesize32x64x8_stage3_ffma", "gemm", "fp32"),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_tensor16x8x8", "gemm", "tf32"),
    ("ampere_sgemm_tf32_128x128_tn", "gemm", "tf32"),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4>", "gemm", "tf32"),
    ("nvjet_sm90_sss_128x128_64x4_1x2_h_bz_NNT", "gemm", "tf32"),
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", "gemm", "bf16"),
    ("nvjet_hsh_192x192_64x3_1x2_h_bz_coopB_TNN", "gemm", "fp16"),
    ("nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", "gemm", "fp8"),
    ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "gemm", "bf16"),
    ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "gemm", "fp16"),
    ("volta_h884gemm_256x128_ldg8_nn", "gemm", "fp16"),
    ("Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x128x32_MI16x16x1", "gemm", "bf16"),
    ("Cijk_Alik_Bljk_SB_MT64x64x16_SE", "gemm", "fp32"),
    ("ampere_dgemm_64x64_nn", "gemm", "fp64"),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)", "attention", "fp32"),
    ("fmha_cutlassB_bf16_aligned_64x64_k64_sm80", "attention", "bf16"),
    ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>>", "attention", "bf16"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x64x64", "attention", "fp16"),
    ("sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32", "conv", "tf32"),
    ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "conv", "bf16"),
    ("void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true>", "conv", "fp32"),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", "conv", "fp32"),
    ("void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, true, false, true>", "conv", "fp32"),
    ("void cudnn::detail::implicit_convolve_sgemm<__half, __half, 128, 6, 7, 3, 3, 5, 1, true, false, true>", "conv", "fp16"),
    ("volta_scudnn_128x64_relu_interior_nn_v1", "conv", "fp32"),
    ("ampere_scudnn_128x64_relu_medium_nn_v1", "conv", "fp32"),
    ("maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt", "conv", "fp32"),
    ("void fft2d_c2r_32x32<float, false, false, 0u, false, false>", "conv", "fp32"),
    ("void fft1d_r2c_32<float, float, float2, false, false>", "conv", "fp32"),
    ("void flip_filter<float, float>", "conv", "fp32"),
    ("void cudnn::cnn::wgrad2d_grouped_direct_kernel<float, float, int, float, float, 128>", "conv", "fp32"),
    ("void cudnn::detail::dgrad2d_alg1_1<float, 0, 6, 7, 5, 4, 5, false, true>", "conv", "fp32"),
    ("void cutlass::Kernel<cutlass_80_simt_sdgrad_analytic_128x128>", "conv", "fp32"),
    ("void cutlass__5x_cudnn::Kernel<cutlass_80_simt_sfprop_optimized_128x32_8x5_nhwc_align1>", "conv", "fp32"),
    ("void cutlass_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_64x64_32x5>", "conv", "tf32"),
    ("sm80_xmma_dgrad_implicit_gemm_indexed_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize128x64x8_ffma", "conv", "fp32"),
    ("miopenSp3AsmConv_v30_3_1_gfx90a_fp32_f3x2_stride1", "conv", "fp32"),
    ("miopenSp3AsmConv_v21_1_3_gfx9_fp16_dot2_edc_stride1", "conv", "fp16"),
    ("igemm_fwd_gtcx2_nhwc_fp32_bx0_ex1_bt256x128x16_wt32x32x2", "conv", "fp32"),
    ("igemm_wrw_gtcx2_nhwc_bf16_bx0_ex0_bt128x128x32", "conv", "bf16"),
    ("naive_conv_fwd_nchw_float_double_float", "conv", "fp32"),
    ("naive_conv_wrw_nchw_ushort_double_ushort", "conv", "bf16"),
    ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>", "norm", None),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>", "norm", None),
    ("void at::native::batch_norm_backward_kernel<c10::BFloat16, float, float, int>", "norm", None),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>", "softmax", None),
    ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>", "softmax", None),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise", None),
    ("triton_poi_fused_add_mul_tanh_0", "elementwise", None),
    ("triton_red_fused_mean_pow_1", "reduce", None),
    ("void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::sum_functor>>", "reduce", None),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>", "optimizer", None),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<4u>, unsigned int, 4, 64, 64>", "transpose", None),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "comm", None),
    ("void vllm::cross_device_reduce_1stage<nv_bfloat16, 8>", "comm", None),
    ("void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long>", "embedding", None),
    ("fused_moe_kernel", "moe", None),
    ("void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float>", "random", None),
    ("something_nobody_has_seen", "other", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "label", "unit"), NAMES)
def test_the_name_tells(name: str, label: str, unit: str | None) -> None:
    assert family(name) == label
    if unit is not None:
        assert precision(name) == unit


def test_copies_are_copies_whatever_they_are_called() -> None:
    assert family("gemm", kind="memcpy") == family("Memcpy HtoD (Pinned -> Device)") == "copy"


def test_the_operator_counts_where_the_name_says_nothing() -> None:
    assert family("k", operator="aten::convolution_backward") == "conv"
    assert family("k", operator="aten::addmm") == "gemm"
    elementwise = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
    assert family(elementwise, operator="Optimizer.step#AdamW.step") == "optimizer"
    assert family(elementwise, operator="aten::convolution") == "elementwise"
    assert family("ampere_sgemm_128x64_tn", operator="Optimizer.step#Muon.step") == "gemm"


def test_every_family_has_a_name_here() -> None:
    """A pattern that nothing fits is a pattern nobody tests."""
    here = {label for _, label, _ in NAMES} | {"copy"}
    known = {label for label, _ in FAMILIES}
    assert known - here <= {"quantize", "pool", "sampling", "sort"}


def test_layout_kernels_say_nothing_of_the_units() -> None:
    assert is_layout("void cudnn::engines_precompiled::nhwcToNchwKernel<float, float>")
    assert is_layout("void cublasLt::splitKreduce_kernel<32, 16, int, float>")
    assert not is_layout("sm90_xmma_dgrad_implicit_gemm_indexed_f32f32_tf32f32_f32_nhwckrsc_nhwc")
