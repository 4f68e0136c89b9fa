"""The family that a kernel is of, and the precision of a product: by the public names of libraries.

cuBLAS, cuBLASLt (nvjet), CUTLASS, cuDNN, PyTorch's own, Triton and Inductor, flash-attention, FlashInfer, xformers,
vLLM, SGLang, Apex, bitsandbytes, DeepGEMM, Transformer Engine, rocBLAS and hipBLASLt (Tensile), MIOpen, Composable
Kernel, AITER, oneDNN, NCCL, RCCL, DeepEP, NVSHMEM and custom all-reduces. The first pattern that fits counts. Where
the name says nothing, the operator that launched it may; where that says nothing too it is `other`, not a guess.
"""

import re
from functools import lru_cache

COMM_KERNEL = re.compile(
    r"nccl|rccl|hccl_|oneccl|cross_device_reduce|multimem_all|multimem_reduce|(?:one|two)_shot_all_?reduce|deep_ep|nvshmem"
    r"|symm_mem|allreduce_fusion_kernel|allreduce_prototype|quickreduce|lamport_style|all_to_all_vdev|hcom_",
    re.IGNORECASE,
)
"""Kernels that are communication. RCCL keeps NCCL's names; custom all-reduces (vLLM, TensorRT-LLM, FlashInfer,
symmetric memory) go by their own."""

_PATTERNS: tuple[tuple[str, str], ...] = (
    ("copy", r"^(?:Memcpy|Memset|CopyDevice|CopyHost|FillBuffer)|rocclr_(?:copy|fill)Buffer"),
    (
        "optimizer",
        r"(?i)fused_?adam|fused_?sgd|adam_?w?_kernel|adamFunctor|AdamCapturable|(?:^|[^a-z])adamw?(?:[^a-z]|$)|_sgd_|lamb_?(?:stage|functor)"
        r"|adagrad|LARSFunctor|AdaFactor|FusedOptimizerTensorList|kOptimizer(?:Static)?(?:32|8)bit|multi_tensor_apply_kernel|kPreconditionOptimizer",
    ),
    (
        "quantize",
        r"(?i)de?quantiz|kQuantize|kDequantize|per_token_(?:group_)?quant|scaled_fp8_quant|fp8_quant|_quant_kernel"
        r"|cvt_fp16_to_fp4|nvfp4_quant|int8_quant|amax_and_scale|_to_fp8|cast_transpose|mxfp[48]_quant|downcast_to_mxfp",
    ),
    (
        "moe",
        r"(?i)(?:^|[^a-z])(?:fused_)?moe(?:[^a-z]|$)|moe_|expert|topk_?gating|grouped_topk|silu_and_mul_masked|_ragged_tma|_matmul_ogs|matmul_ogs|group(?:ed)?_?gemm",
    ),
    (
        "attention",
        r"(?i)flash|fmha|attention|attn|paged_?kv|PagedParams|BatchPrefill|BatchDecode|MergeState|(?:^|[^a-z])mha|mla_|_mla|sdpa"
        r"|unified_attn|compute_dot_do_o|convert_dq_to|reshape_and_cache|rotary|_rope(?:[^a-z]|$)|ApplyRotary|VariableLengthMergeStates",
    ),
    (
        "conv",
        r"(?i)conv(?!ert)|winograd|scudnn|(?:^|[^a-z])s?dgrad|wgrad|fprop|igemm_(?:fwd|bwd|wrw)|im2col|col2im|vol2col|fft[12]d_|DSE::\w*fft|flip_filter|mult_and_sum_complex|nchwToNhwc|nhwcToNchw"
        r"|gridwise_convolution|miopenGcnAsm|naive_conv|SubTensorOp|batched_transpose_\d|Im2d2Col|MIOpenCv|depthwise|cask_cudnn\w*::compute",
    ),
    (
        "gemm",
        r"(?i)(?<!fb)gemm(?!a)|gemv|(?:^|_)bmm_|matmul|cublas|nvjet|(?:^|[^a-z])cijk_|wmma|_mm_|splitk_?reduce|\bdot_kernel|deep_gemm|xe_hp\w*gemm|tensile|triton_tem_fused_\w*mm",
    ),
    ("pool", r"(?i)pool_(?:for|back)|_pool\b|avg_?pool|max_?pool|average_pool|pooling"),
    (
        "norm",
        r"(?i)(?<!l2)norm(?!al_|al_dist|two|one|ops)|bn_(?:fw|bw)|welford|gamma_?beta|rowwisemoments|ComputeInternalGradients|ComputeBackwardFusedParams",
    ),
    (
        "sampling",
        r"(?i)sampling|top_?[kp]_?(?:mask|renorm)|penalt|multinomial|argmax|gumbel|rejection_random",
    ),
    ("softmax", r"(?i)softmax|nll_?(?:loss|criterion)|cross_?entropy"),
    (
        "embedding",
        r"(?i)embedding|index_?select|(?<!all_)gather|(?<!reduce_)scatter|index_(?:put|elementwise|kernel)|vectorized_gather|EmbeddingBag|krn_partial",
    ),
    (
        "sort",
        r"(?i)sort|topk|radix|DeviceScan|DeviceSelect|DeviceRunLength|scan_|_scan|histogram|cumsum|unique|compact_",
    ),
    (
        "random",
        r"(?i)distribution|philox|curand|dropout|bernoulli|uniform_and|triton_\w*rand|hiprand|rocrand",
    ),
    ("reduce", r"(?i)reduce_kernel|reduce|_red_|\bsum_kernel|L2NormFunctor|DeviceSegmentedReduce"),
    (
        "transpose",
        r"(?i)direct_copy_kernel|cat_?array|transpose|permute|copy_kernel|batched_copy|tensorcopy|contiguous|(?:^|_)cast_",
    ),
    (
        "elementwise",
        r"(?i)elementwise|pointwise|triton_poi|fillfunctor|act_and_mul|silu_and|gelu_and|kernel_binary|OpTensor|simple_binary|gen_conv_bias",
    ),
    ("reduce", r"triton_(?:red|per)_"),
)
FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("comm", COMM_KERNEL),
    *((label, re.compile(pattern)) for label, pattern in _PATTERNS),
)
"""Family and the names that are of it; the first that fits counts."""

_OPERATORS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (label, re.compile(pattern, re.IGNORECASE))
    for label, pattern in (
        ("optimizer", r"^Optimizer\.step|^aten::_(?:fused_(?:adam|sgd|adagrad)|foreach_)"),
        ("attention", r"attention|flash_attn|fmha"),
        ("moe", r"moe|grouped_mm"),
        ("conv", r"convolution|::conv[123]d"),
        ("gemm", r"::(?:addmm|mm|bmm|baddbmm|linear|matmul|_scaled_mm|_int_mm)$"),
        ("norm", r"_norm(?:_backward)?$|::rms_norm"),
        ("softmax", r"softmax|nll_loss|cross_entropy"),
        ("embedding", r"embedding|index_select|gather|scatter|::index"),
        ("random", r"dropout|normal_|uniform_|bernoulli|rand"),
        ("sort", r"::(?:sort|topk|argsort|cumsum|unique)"),
        ("reduce", r"::(?:sum|mean|amax|amin|max|min|var|std|norm|any|all)$"),
        ("transpose", r"::(?:copy_|clone|contiguous|cat|stack|_to_copy)$"),
    )
)
_SAYS_LITTLE = frozenset({"other", "elementwise", "reduce", "transpose", "copy"})
"""Families whose kernels serve anything: inside an optimizer's step they are the optimizer."""


@lru_cache(65536)
def family(name: str, kind: str = "kernel", operator: str = "") -> str:
    """`gemm`, `conv`, `attention`, `norm`...; `copy` for memcpy and memset. `operator` is what launched it: it counts
    where the kernel's own name says nothing, and an optimizer's step claims its general kernels."""
    if kind in ("memcpy", "memset"):
        return "copy"
    found = next((label for label, pattern in FAMILIES if pattern.search(name)), "other")
    if operator and found in _SAYS_LITTLE:
        told = next((label for label, pattern in _OPERATORS if pattern.search(operator)), None)
        if told is not None and (found == "other" or told == "optimizer"):
            return told
    return found


_LAYOUT = re.compile(
    r"(?i)nchwToNhwc|nhwcToNchw|SubTensorOp|batched_transpose_\d|im2col|col2im|im2d2col|col2im2d|vol2col|splitK_?reduce"
    r"|ReduceSplitK"
)


@lru_cache(65536)
def is_layout(name: str) -> bool:
    """Whether a kernel of a product or convolution only moves or sums what another computes: its name says nothing about
    the units, and it runs at the memory's speed."""
    return _LAYOUT.search(name) is not None


_PRECISION: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (label, re.compile(pattern))
    for label, pattern in (
        # cuBLASLt: nvjet_<arch>_<A><compute><D>; q: fp8, t: bf16, h: fp16, s: fp32 (in tensor cores: tf32)
        ("fp8", r"nvjet_(?:sm\d+_|hsh_)?q|(?i:e4m3|e5m2|fp8|float8)|_F8|F8[BN]?_"),
        ("fp4", r"(?i)nvf4|mxf4|e2m1|fp4"),
        ("int8", r"(?i)i8816|i16832|_i8_|imma|s8_?s8|int8|I8II"),
        (
            "tf32",
            r"(?i)tf32|^(?!.*f(?:p|loat)?16).*(?:s1688(?!h)(?:gemm|fprop|dgrad|wgrad|[^a-z])|tensorop_s1688)"
            r"|_s884gemm_f32|_XS_|nvjet_(?:sm\d+_)?sss",
        ),
        ("bf16", r"(?i)bf16|bfloat|nvjet_(?:sm\d+_)?t|_BBS_|_BSS_BH|_B_B_|_BF16|ushort_double_ushort"),
        (
            "fp16",
            r"(?i)f16|h884|h1688|h16816|hgemm|half|nvjet_(?:sm\d+_)?h|_HHS_|_HSS_|_HH_|fp16|s161616_?f16",
        ),
        # MIOpen's naive convolutions sum in double whatever they take
        ("fp64", r"(?i)dgemm|d884|f64|_DB_|(?<!float_)double"),
        (
            "fp32",
            r"(?i)sgemm|cf32|f32f32_f32f32|simt_s|scudnn|_SB_|_S_B_|ffma|f32_aligned|float|fp32|(?:^|_)f32(?:_|$)",
        ),
    )
)


@lru_cache(65536)
def precision(name: str) -> str | None:
    """What the units of a product, convolution or attention kernel compute in: `fp32`, `tf32`, `bf16`, `fp16`, `fp8`,
    `int8`, `fp64`; None when the name does not tell."""
    if name.startswith("Cijk_"):  # rocBLAS: the types come before hundreds of letters of tuning
        name = name.split("_MT", maxsplit=1)[0] + "_"
    return next((label for label, pattern in _PRECISION if pattern.search(name)), None)
