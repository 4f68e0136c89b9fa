"""`fresh_`: made after the rules of the later kinds, other models and sizes."""

import time

import torch

from loops.base import Loop
from loops.convs import conv_training, mlp_training
from loops.kernels import decode, gemms_sync, masked, norms, pointwise
from loops.transformers import checkpoint, encoder_training, garbage, gpt_training

FRESH: dict[str, Loop] = {
    "fresh_data_small_gpt": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(layers=4, batch=8, workers=0, cpu_ms=2.0),
        "cured": lambda: gpt_training(layers=4, batch=8, workers=8, cpu_ms=2.0),
    },
    "fresh_data_conv": {
        "ill": "data-wait",
        "sick": lambda: conv_training(batch=96, size=192, width=96, depth=4, pinned=True, cpu_ms=12.0),
        "cured": lambda: conv_training(batch=96, size=192, width=96, depth=4, pinned=True),
    },
    "fresh_decode_16": {
        "ill": "launch-bound",
        "sick": lambda: decode(layers=12, width=1536, batch=16, passes=6, graph=False),
        "cured": lambda: decode(layers=12, width=1536, batch=16, passes=6, graph=True),
    },
    "fresh_mlp_narrow": {
        "ill": "launch-bound",
        "sick": lambda: mlp_training(width=1024, depth=12, batch=512, h2d="resident"),
        "cured": lambda: mlp_training(width=1024, depth=12, batch=512, h2d="resident", graph=True),
    },
    "fresh_sync_small": {
        "ill": "host-sync",
        "sick": lambda: gemms_sync(item=True, size=1536, chain=3, rounds=60),
        "cured": lambda: gemms_sync(item=False, size=1536, chain=3, rounds=60),
    },
    "fresh_mask": {
        "ill": "host-sync",
        "sick": lambda: masked(select=True),
        "cured": lambda: masked(select=False),
    },
    "fresh_pageable_conv": {
        "ill": "pageable-copy",
        "sick": lambda: conv_training(batch=64, size=256, width=48, depth=4, pinned=False),
        "cured": lambda: conv_training(batch=64, size=256, width=48, depth=4, pinned=True),
    },
    "fresh_pageable_wide": {
        "ill": "pageable-copy",
        "sick": lambda: mlp_training(width=1024, depth=6, batch=32768, h2d="pageable"),
        "cured": lambda: mlp_training(width=1024, depth=6, batch=32768, h2d="pinned"),
    },
    "fresh_empty_cache": {
        "ill": "allocator-churn",
        "sick": lambda: encoder_training(
            layers=12, width=768, batch=24, length=384, each_step=torch.cuda.empty_cache
        ),
        "cured": lambda: encoder_training(layers=12, width=768, batch=24, length=384),
    },
    "fresh_gc": {
        "ill": "host-stall",
        "sick": lambda: encoder_training(layers=8, width=768, batch=32, each_step=garbage(150_000)),
        "cured": lambda: encoder_training(layers=8, width=768, batch=32),
    },
    "fresh_sleep": {
        "ill": "host-stall",
        "sick": lambda: encoder_training(layers=4, width=768, batch=32, each_step=lambda: time.sleep(0.012)),
        "cured": lambda: encoder_training(layers=4, width=768, batch=32),
    },
    "fresh_checkpoint": {
        "ill": "checkpoint-stall",
        "sick": lambda: encoder_training(layers=8, width=768, batch=32, each_step=checkpoint(48)),
        "cured": lambda: encoder_training(layers=8, width=768, batch=32),
    },
    "fresh_fp32_gpt": {
        "ill": "slow-precision",
        "sick": lambda: encoder_training(precision="fp32", layers=8, width=1536, batch=6, length=640),
        "cured": lambda: encoder_training(precision="bf16", layers=8, width=1536, batch=6, length=640),
    },
    "fresh_tf32": {
        "ill": "slow-precision",
        "sick": lambda: encoder_training(precision="tf32", layers=6, width=2048, batch=8, length=512),
        "cured": lambda: encoder_training(precision="bf16", layers=6, width=2048, batch=8, length=512),
    },
    "fresh_fp32_conv": {
        "ill": "slow-precision",
        "sick": lambda: conv_training(batch=192, size=224, width=128, depth=4, pinned=True, precision="fp32"),
        "cured": lambda: conv_training(batch=192, size=224, width=128, depth=4, pinned=True),
    },
    "fresh_attention_long": {
        "ill": "unfused-attention",
        "sick": lambda: encoder_training(attention="matmul", layers=4, width=768, batch=4, length=2048),
        "cured": lambda: encoder_training(attention="sdpa", layers=4, width=768, batch=4, length=2048),
    },
    "fresh_optimizer_big": {
        "ill": "unfused-optimizer",
        "sick": lambda: encoder_training(optimizer="loop", layers=12, width=2048, batch=4, length=256),
        "cured": lambda: encoder_training(optimizer="fused", layers=12, width=2048, batch=4, length=256),
    },
    "fresh_optimizer_foreach": {
        "ill": "unfused-optimizer",
        "sick": lambda: encoder_training(optimizer="foreach", layers=12, width=2048, batch=2, length=128),
        "cured": lambda: encoder_training(optimizer="fused", layers=12, width=2048, batch=2, length=128),
    },
    "fresh_pointwise_small": {
        "ill": "unfused-elementwise",
        "sick": lambda: pointwise(fused=False, size=1 << 25, rounds=8),
        "cured": lambda: pointwise(fused=True, size=1 << 25, rounds=8),
    },
    "fresh_norms": {
        "ill": "unfused-elementwise",
        "sick": lambda: norms(fused=False),
        "cured": lambda: norms(fused=True),
    },
    "fresh_data_and_fp32": {
        "ill": "data-wait",
        "sick": lambda: conv_training(
            batch=96, size=192, width=96, depth=4, pinned=True, cpu_ms=25.0, precision="fp32"
        ),
        "cured": lambda: conv_training(batch=96, size=192, width=96, depth=4, pinned=True, precision="fp32"),
    },
    "fresh_fp32_and_stall": {
        "ill": "slow-precision",
        "sick": lambda: encoder_training(
            precision="fp32", layers=6, width=1024, batch=16, each_step=lambda: time.sleep(0.006)
        ),
        "cured": lambda: encoder_training(
            precision="bf16", layers=6, width=1024, batch=16, each_step=lambda: time.sleep(0.006)
        ),
    },
    "fresh_healthy_encoder": {
        "ill": None,
        "sick": lambda: encoder_training(layers=8, width=2048, batch=24, length=512),
        "cured": None,
    },
    "fresh_healthy_conv": {
        "ill": None,
        "sick": lambda: conv_training(batch=320, size=224, width=160, depth=4, pinned=True),
        "cured": None,
    },
    "fresh_healthy_item": {
        "ill": None,
        "sick": lambda: mlp_training(width=6144, depth=6, batch=8192, h2d="resident", item=True),
        "cured": None,
    },
    "fresh_healthy_compiled": {
        "ill": None,
        "sick": lambda: norms(fused=True, rows=1 << 17, rounds=12),
        "cured": None,
    },
    "fresh_healthy_decode": {
        "ill": None,
        "sick": lambda: decode(layers=16, width=4096, batch=32, passes=6, graph=True),
        "cured": None,
    },
}
