"""Names of kernels without what changes from build to build (types, tiles, stages), and the family a kernel is of.

Families are told by the public names of libraries (cuBLAS, cuDNN, CUTLASS, PyTorch, Triton, rocBLAS, MIOpen, NCCL...);
the first pattern that fits counts. A name that says nothing is `other`, not a guess.
"""

import re
from functools import lru_cache

from wellfed.analyze.budget import COMM_KERNEL

FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("comm", COMM_KERNEL),
    ("copy", re.compile(r"^(?:Memcpy|Memset|CopyDevice|CopyHost|FillBuffer)|rocclr_(?:copy|fill)Buffer")),
    ("attention", re.compile(r"(?i)flash|fmha|attention|attn|paged_?kv|\bmha|mla_|sdpa|efficient_attention")),
    ("moe", re.compile(r"(?i)(?:^|[^a-z])moe|expert|topk_gating|grouped_topk")),
    ("optimizer", re.compile(r"(?i)adam|multi_tensor_apply|_sgd_|lamb_|adagrad|fused_optim")),
    ("conv", re.compile(r"(?i)conv(?!ert)|winograd|scudnn|dgrad|wgrad|fprop|igemm_(?:fwd|bwd|wrw)|im2col|col2im|fft2d")),
    (
        "gemm",
        re.compile(r"(?i)(?<!fb)gemm|gemv|(?:^|_)bmm_|matmul|cublas|nvjet|(?:^|[^a-z])cijk_|wmma|_mm_|splitkreduce|ck_gemm|\bdot_kernel"),
    ),
    ("pool", re.compile(r"(?i)pool_(?:for|back)|_pool\b|avg_?pool|max_?pool|average_pool")),
    ("norm", re.compile(r"(?i)norm|bn_(?:fw|bw)|welford|gamma_?beta|rowwisemoments")),
    ("softmax", re.compile(r"(?i)softmax|nll_?(?:loss|criterion)|cross_?entropy")),
    ("embedding", re.compile(r"(?i)(?<!rotary_)embedding|index_?select|gather|scatter|index_(?:put|elementwise)")),
    ("sort", re.compile(r"(?i)sort|topk|radix|scan|histogram|cumsum|unique")),
    ("random", re.compile(r"(?i)distribution|philox|curand|dropout|bernoulli|uniform_and")),
    ("reduce", re.compile(r"(?i)reduce|_red_|\bsum_kernel")),
    ("elementwise", re.compile(r"(?i)elementwise|pointwise|triton_poi|cat_?array|transpose|fillfunctor|copy_kernel|cast")),
    ("reduce", re.compile(r"triton_(?:red|per)_")),
)  # fmt: skip
_FUNCTOR = re.compile(
    r"(?<![A-Za-z])([A-Z]\w*Functor(?:_\w+)?|CUDAFunctor\w*|\w+_kernel_(?:cuda|impl)\w*|\w+CUDAKernelImpl|\w+_functor|\w+Ops?)(?=[<(,>:]|$)"
)
_WRAPPER = re.compile(r"^(?:[AB]?UnaryFunctor|BinaryFunctor|gpu_kernel_impl\w*|ReduceOp|CUDAFunctor)$")
_WITH_FUNCTOR = re.compile(r"elementwise_kernel|reduce_kernel|multi_tensor_apply_kernel")
_HOLDER = re.compile(r"^cutlass\w*::(?:device_kernel|Kernel2?)$")
_NOISE = re.compile(
    r"(?:\d+x\d+\w*|sm\d+|(?:tile|warpgroup|warp|cluster|stage|ldg|align|kernel|swizzle)s?(?:size)?\d[\dx]*|stages?|MT\d\w*|MI\d\w*|SN|[A-Z]{2,9}\d\w*|v\d+|\d+)"
)
_TUNING = re.compile(r"_(?:HA|SAV|UserArgs|MT\d)")
_RETURNS = re.compile(r"^(?:void|(?:typename )?std::enable_if<.*?>::type) ")
_PARENS = re.compile(r"\(anonymous namespace\)::|<unnamed>::")


@lru_cache(65536)
def plain_name(name: str) -> str:
    """The function's name: no return type, template arguments, parameters, tile sizes or running numbers. Where one
    kernel runs whatever functor it is given, that functor's name follows in brackets."""
    if name.startswith(("Memcpy", "Memset", "_Z")):  # from where to where is what matters; and mangled stays
        return name
    if name.startswith(
        "Cijk_"
    ):  # rocBLAS: the layouts and types come first, then some hundred letters of tuning
        return _TUNING.split(name, maxsplit=1)[0]
    text = _RETURNS.sub("", _PARENS.sub("", name)).strip()
    head = _head(text)
    inner = text[len(head) :]
    if _HOLDER.match(head) and inner.startswith("<"):
        first = re.match(r"<\s*(?:enable_\w+<)*\s*([\w:]+)", inner)
        head = first[1] if first else head
    if "::" in head or inner:
        parts = [part for part in head.split("::") if part] or [head]
        short = "::".join(parts[-2:]) if parts[-1].lower() == "kernel" else parts[-1]
        if _WITH_FUNCTOR.search(short):
            found = next((f for f in _FUNCTOR.findall(inner) if not _WRAPPER.match(f)), None)
            return f"{short}[{found}]" if found else short
        head = short
    kept = [piece for piece in head.split("_") if piece and not _NOISE.fullmatch(piece)]
    return "_".join(kept) or head or name


def _head(text: str) -> str:
    """What stands before the first template argument or parameter; the operator names `operator<` are rare enough."""
    for at, char in enumerate(text):
        if char in "<(":
            return text[:at].rstrip() if at else text
    return text


@lru_cache(65536)
def family(name: str, kind: str = "kernel") -> str:
    """`gemm`, `conv`, `attention`, `norm`...; `copy` for memcpy and memset; `other` when the name does not tell."""
    if kind in ("memcpy", "memset"):
        return "copy"
    return next((label for label, pattern in FAMILIES if pattern.search(name)), "other")
