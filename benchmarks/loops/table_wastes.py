"""`wastes_`: the loops that docs/validation/wastes.md is made of. `first` were looked at while the rules were written, `second`
not until the rules stood, `unseen` were run after that."""

from loops.base import Loop
from loops.waste_chains import (
    arithmetic,
    bias_gelu,
    clamped,
    compiled_whole,
    gelu_linears,
    layer_norm,
    rms_gate,
    softmax_logarithm,
    swiglu,
)
from loops.waste_models import convolutions, linears, transformer

WASTES: dict[str, Loop] = {
    # -- first
    "wastes_first_fp32_infer": {
        "ill": "slow-precision",
        "sick": lambda: transformer(
            precision="fp32", train=False, layers=8, width=1280, batch=16, length=384
        ),
        "cured": lambda: transformer(
            precision="bf16", train=False, layers=8, width=1280, batch=16, length=384
        ),
    },
    "wastes_first_conv_tf32": {
        "ill": "slow-precision",
        "sick": lambda: convolutions(precision="tf32", channels=128, depth=3, batch=128, side=112),
        "cured": lambda: convolutions(precision="bf16", channels=128, depth=3, batch=128, side=112),
    },
    "wastes_first_conv_last": {
        "ill": "slow-precision",
        "sick": lambda: convolutions(
            precision="tf32", channels=128, depth=3, batch=128, side=112, channels_last=True
        ),
        "cured": lambda: convolutions(
            precision="bf16", channels=128, depth=3, batch=128, side=112, channels_last=True
        ),
    },
    "wastes_first_rms_glu": {
        "ill": "unfused-elementwise",
        "sick": lambda: rms_gate(compiled=False),
        "cured": lambda: rms_gate(compiled=True),
    },
    "wastes_first_gelu_train": {
        "ill": "unfused-elementwise",
        "sick": lambda: gelu_linears(compiled=False),
        "cured": lambda: gelu_linears(compiled=True),
    },
    "wastes_first_attn_train": {
        "ill": "unfused-attention",
        "sick": lambda: transformer(written=True, causal=True, layers=6, width=1024, batch=16, length=1024),
        "cured": lambda: transformer(causal=True, layers=6, width=1024, batch=16, length=1024),
    },
    "wastes_first_opt_loop": {
        "ill": "unfused-optimizer",
        "sick": lambda: linears(train=True, width=2048, depth=24, rows=256, form="loop"),
        "cured": lambda: linears(train=True, width=2048, depth=24, rows=256, form="fused"),
    },
    "wastes_first_opt_foreach_gpu": {
        "ill": "unfused-optimizer",
        "sick": lambda: linears(train=True, width=8192, depth=12, rows=1024, form="foreach"),
        "cured": lambda: linears(train=True, width=8192, depth=12, rows=1024, form="fused"),
    },
    # -- second
    "wastes_second_fp32_train_wide": {
        "ill": "slow-precision",
        "sick": lambda: transformer(precision="fp32", layers=3, width=2560, batch=8, length=512),
        "cured": lambda: transformer(precision="bf16", layers=3, width=2560, batch=8, length=512),
    },
    "wastes_second_tf32_infer": {
        "ill": "slow-precision",
        "sick": lambda: transformer(
            precision="tf32", train=False, layers=10, width=2048, batch=8, length=512
        ),
        "cured": lambda: transformer(
            precision="bf16", train=False, layers=10, width=2048, batch=8, length=512
        ),
    },
    "wastes_second_fp32_mlp": {
        "ill": "slow-precision",
        "sick": lambda: linears(precision="fp32", width=3072, depth=8, rows=8192, train=True),
        "cured": lambda: linears(precision="bf16", width=3072, depth=8, rows=8192, train=True),
    },
    "wastes_second_fp32_mlp_infer": {
        "ill": "slow-precision",
        "sick": lambda: linears(precision="fp32", width=4096, depth=6, rows=512),
        "cured": lambda: linears(precision="bf16", width=4096, depth=6, rows=512),
    },
    "wastes_second_conv_fp32_true": {
        "ill": "slow-precision",
        "sick": lambda: convolutions(precision="fp32", channels=96, depth=3, batch=96, side=128),
        "cured": lambda: convolutions(precision="bf16", channels=96, depth=3, batch=96, side=128),
    },
    "wastes_second_conv_infer": {
        "ill": "slow-precision",
        "sick": lambda: convolutions(
            precision="tf32", channels=64, depth=4, batch=256, side=160, train=False
        ),
        "cured": lambda: convolutions(
            precision="bf16", channels=64, depth=4, batch=256, side=160, train=False
        ),
    },
    "wastes_second_softmax_chain": {
        "ill": "unfused-elementwise",
        "sick": lambda: softmax_logarithm(compiled=False),
        "cured": lambda: softmax_logarithm(compiled=True),
    },
    "wastes_second_bias_act": {
        "ill": "unfused-elementwise",
        "sick": lambda: bias_gelu(compiled=False),
        "cured": lambda: bias_gelu(compiled=True),
    },
    "wastes_second_ew_small": {
        "ill": "unfused-elementwise",
        "sick": lambda: arithmetic(compiled=False),
        "cured": lambda: arithmetic(compiled=True),
    },
    "wastes_second_ew_large": {
        "ill": "unfused-elementwise",
        "sick": lambda: arithmetic(compiled=False, elements=1 << 26, rounds=5),
        "cured": lambda: arithmetic(compiled=True, elements=1 << 26, rounds=5),
    },
    "wastes_second_rms_big": {
        "ill": "unfused-elementwise",
        "sick": lambda: rms_gate(compiled=False, rows=32768, width=2048, rounds=6),
        "cured": lambda: rms_gate(compiled=True, rows=32768, width=2048, rounds=6),
    },
    "wastes_second_gelu_train": {
        "ill": "unfused-elementwise",
        "sick": lambda: gelu_linears(compiled=False, rows=32768, width=3072, layers=4),
        "cured": lambda: gelu_linears(compiled=True, rows=32768, width=3072, layers=4),
    },
    "wastes_second_attn_infer": {
        "ill": "unfused-attention",
        "sick": lambda: transformer(written=True, train=False, layers=6, width=1536, batch=8, length=1536),
        "cured": lambda: transformer(train=False, layers=6, width=1536, batch=8, length=1536),
    },
    "wastes_second_attn_train": {
        "ill": "unfused-attention",
        "sick": lambda: transformer(written=True, layers=4, width=1024, batch=16, length=1536),
        "cured": lambda: transformer(layers=4, width=1024, batch=16, length=1536),
    },
    "wastes_second_attn_infer_causal": {
        "ill": "unfused-attention",
        "sick": lambda: transformer(
            written=True, causal=True, train=False, layers=8, width=1024, batch=4, length=2048
        ),
        "cured": lambda: transformer(causal=True, train=False, layers=8, width=1024, batch=4, length=2048),
    },
    "wastes_second_opt_sgd_loop": {
        "ill": "unfused-optimizer",
        "sick": lambda: linears(train=True, width=1536, depth=32, rows=512, form="loop", kind="sgd"),
        "cured": lambda: linears(train=True, width=1536, depth=32, rows=512, form="fused", kind="sgd"),
    },
    "wastes_second_opt_adam_loop_gpu": {
        "ill": "unfused-optimizer",
        "sick": lambda: linears(train=True, width=6144, depth=16, rows=512, form="loop"),
        "cured": lambda: linears(train=True, width=6144, depth=16, rows=512, form="fused"),
    },
    "wastes_second_opt_default": {
        "ill": "unfused-optimizer",
        "sick": lambda: transformer(form="default", layers=8, width=2560, batch=4, length=256),
        "cured": lambda: transformer(form="fused", layers=8, width=2560, batch=4, length=256),
    },
    "wastes_second_opt_small_loop": {
        "ill": "unfused-optimizer",
        "sick": lambda: linears(train=True, width=512, depth=20, rows=1024, form="loop"),
        "cured": lambda: linears(train=True, width=512, depth=20, rows=1024, form="fused"),
    },
    "wastes_second_healthy_train": {
        "ill": None,
        "sick": lambda: transformer(layers=6, width=2048, batch=32, length=512),
        "cured": None,
    },
    "wastes_second_healthy_infer": {
        "ill": None,
        "sick": lambda: linears(precision="bf16", width=8192, depth=6, rows=8192),
        "cured": None,
    },
    "wastes_second_healthy_conv_last": {
        "ill": None,
        "sick": lambda: convolutions(
            precision="bf16", channels=128, depth=3, batch=256, side=128, channels_last=True
        ),
        "cured": None,
    },
    # -- unseen
    "wastes_unseen_fp32_train_small": {
        "ill": "slow-precision",
        "sick": lambda: transformer(precision="fp32", layers=4, width=768, batch=16, length=256),
        "cured": lambda: transformer(precision="bf16", layers=4, width=768, batch=16, length=256),
    },
    "wastes_unseen_tf32_mlp_train": {
        "ill": "slow-precision",
        "sick": lambda: linears(precision="tf32", width=4096, depth=8, rows=16384, train=True),
        "cured": lambda: linears(precision="bf16", width=4096, depth=8, rows=16384, train=True),
    },
    "wastes_unseen_fp32_mlp_rows64": {
        "ill": "slow-precision",
        "sick": lambda: linears(precision="fp32", width=4096, depth=12, rows=64),
        "cured": lambda: linears(precision="bf16", width=4096, depth=12, rows=64),
    },
    "wastes_unseen_conv_last_infer": {
        "ill": "slow-precision",
        "sick": lambda: convolutions(
            precision="tf32", channels=192, depth=3, batch=128, side=128, train=False, channels_last=True
        ),
        "cured": lambda: convolutions(
            precision="bf16", channels=192, depth=3, batch=128, side=128, train=False, channels_last=True
        ),
    },
    "wastes_unseen_conv_few_ch": {
        "ill": "slow-precision",
        "sick": lambda: convolutions(precision="tf32", channels=32, depth=3, batch=128, side=192),
        "cured": lambda: convolutions(precision="bf16", channels=32, depth=3, batch=128, side=192),
    },
    "wastes_unseen_ln_res": {
        "ill": "unfused-elementwise",
        "sick": lambda: layer_norm(compiled=False),
        "cured": lambda: layer_norm(compiled=True),
    },
    "wastes_unseen_ln_small": {
        "ill": "unfused-elementwise",
        "sick": lambda: layer_norm(compiled=False, rows=8192, width=1024, rounds=10),
        "cured": lambda: layer_norm(compiled=True, rows=8192, width=1024, rounds=10),
    },
    "wastes_unseen_swiglu": {
        "ill": "unfused-elementwise",
        "sick": lambda: swiglu(compiled=False),
        "cured": lambda: swiglu(compiled=True),
    },
    "wastes_unseen_clip": {
        "ill": "unfused-elementwise",
        "sick": lambda: clamped(compiled=False),
        "cured": lambda: clamped(compiled=True),
    },
    "wastes_unseen_clip_large": {
        "ill": "unfused-elementwise",
        "sick": lambda: clamped(compiled=False, elements=1 << 27, rounds=4),
        "cured": lambda: clamped(compiled=True, elements=1 << 27, rounds=4),
    },
    "wastes_unseen_whole_train": {
        "ill": "unfused-elementwise",
        "sick": lambda: compiled_whole(compiled=False),
        "cured": lambda: compiled_whole(compiled=True),
    },
    "wastes_unseen_attn_short": {
        "ill": "unfused-attention",
        "sick": lambda: transformer(written=True, train=False, layers=8, width=1024, batch=64, length=256),
        "cured": lambda: transformer(train=False, layers=8, width=1024, batch=64, length=256),
    },
    "wastes_unseen_attn_train_causal": {
        "ill": "unfused-attention",
        "sick": lambda: transformer(written=True, causal=True, layers=3, width=1536, batch=4, length=2048),
        "cured": lambda: transformer(causal=True, layers=3, width=1536, batch=4, length=2048),
    },
    "wastes_unseen_attn_train_512": {
        "ill": "unfused-attention",
        "sick": lambda: transformer(written=True, layers=6, width=1024, batch=32, length=512),
        "cured": lambda: transformer(layers=6, width=1024, batch=32, length=512),
    },
    "wastes_unseen_opt_foreach_sgd": {
        "ill": "unfused-optimizer",
        "sick": lambda: transformer(form="foreach", kind="sgd", layers=4, width=4096, batch=4, length=256),
        "cured": lambda: transformer(form="fused", kind="sgd", layers=4, width=4096, batch=4, length=256),
    },
    "wastes_unseen_opt_loop_tfm": {
        "ill": "unfused-optimizer",
        "sick": lambda: transformer(form="loop", layers=6, width=3072, batch=16, length=512),
        "cured": lambda: transformer(form="fused", layers=6, width=3072, batch=16, length=512),
    },
    "wastes_unseen_opt_default_mlp": {
        "ill": "unfused-optimizer",
        "sick": lambda: linears(train=True, width=4096, depth=12, rows=2048, form="default"),
        "cured": lambda: linears(train=True, width=4096, depth=12, rows=2048, form="fused"),
    },
    "wastes_unseen_healthy_mlp": {
        "ill": None,
        "sick": lambda: linears(precision="bf16", width=6144, depth=8, rows=8192, train=True),
        "cured": None,
    },
    "wastes_unseen_healthy_swiglu": {
        "ill": None,
        "sick": lambda: swiglu(compiled=True, rows=65536, width=3072, rounds=30),
        "cured": None,
    },
}
