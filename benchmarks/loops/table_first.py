"""The first sets: what the model's constants were set on, the kinds that came later (`kind_`), and the set held out (`held_`)."""

import time

import torch

from loops.base import Loop
from loops.convs import conv_training, mlp_training
from loops.kernels import decode, gemms, gemms_sync, pointwise
from loops.transformers import checkpoint, encoder_training, garbage, gpt_training, vit_inference

FIRST: dict[str, Loop] = {
    "kind_fp32": {
        "ill": "slow-precision",
        "sick": lambda: encoder_training(precision="fp32"),
        "cured": lambda: encoder_training(precision="bf16"),
    },
    "kind_attention": {
        "ill": "unfused-attention",
        "sick": lambda: encoder_training(attention="matmul", length=1024),
        "cured": lambda: encoder_training(attention="sdpa", length=1024),
    },
    "kind_optimizer": {
        "ill": "unfused-optimizer",
        "sick": lambda: encoder_training(optimizer="loop", layers=24, batch=2, length=256),
        "cured": lambda: encoder_training(optimizer="fused", layers=24, batch=2, length=256),
    },
    "kind_pointwise": {
        "ill": "unfused-elementwise",
        "sick": lambda: pointwise(fused=False),
        "cured": lambda: pointwise(fused=True),
    },
    "kind_gc": {
        "ill": "host-stall",
        "sick": lambda: encoder_training(each_step=garbage()),
        "cured": lambda: encoder_training(),
    },
    "kind_sleep": {
        "ill": "host-stall",
        "sick": lambda: encoder_training(layers=3, each_step=lambda: time.sleep(0.02)),
        "cured": lambda: encoder_training(layers=3),
    },
    "kind_checkpoint": {
        "ill": "checkpoint-stall",
        "sick": lambda: encoder_training(each_step=checkpoint()),
        "cured": lambda: encoder_training(),
    },
    "kind_empty_cache": {
        "ill": "allocator-churn",
        "sick": lambda: encoder_training(each_step=torch.cuda.empty_cache),
        "cured": lambda: encoder_training(),
    },
    "kind_healthy_bf16": {"ill": None, "sick": lambda: encoder_training(batch=64), "cured": None},
    "kind_healthy_pointwise": {
        "ill": None,
        "sick": lambda: pointwise(fused=True, size=1 << 27, rounds=20),
        "cured": None,
    },
    "healthy_gpt": {"ill": None, "sick": lambda: gpt_training(), "cured": None},
    "healthy_gemm": {"ill": None, "sick": lambda: gemms(size=4096, count=60), "cured": None},
    "healthy_gemm_item": {"ill": None, "sick": lambda: gemms(size=4096, count=60, item=True), "cured": None},
    "healthy_graph": {
        "ill": None,
        "sick": lambda: decode(layers=24, width=2048, batch=1, passes=8, graph=True),
        "cured": None,
    },
    "healthy_conv": {
        "ill": None,
        "sick": lambda: conv_training(batch=256, size=224, width=128, depth=4, pinned=True),
        "cured": None,
    },
    "healthy_gpt_small": {"ill": None, "sick": lambda: gpt_training(layers=6, batch=32), "cured": None},
    "data_cpu": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(workers=0, cpu_ms=3.0),
        "cured": lambda: gpt_training(workers=12, cpu_ms=3.0),
    },
    "data_wait_one_worker": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(layers=6, workers=1, wait_ms=5.0),
        "cured": lambda: gpt_training(layers=6, workers=8, wait_ms=5.0),
    },
    "data_mild": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(workers=0, cpu_ms=0.6),
        "cured": lambda: gpt_training(workers=4, cpu_ms=0.6),
    },
    "pageable_small": {
        "ill": "pageable-copy",
        "sick": lambda: conv_training(batch=128, size=224, width=64, depth=4, pinned=False),
        "cured": lambda: conv_training(batch=128, size=224, width=64, depth=4, pinned=True),
    },
    "pageable_large": {
        "ill": "pageable-copy",
        "sick": lambda: conv_training(batch=384, size=224, width=192, depth=4, pinned=False),
        "cured": lambda: conv_training(batch=384, size=224, width=192, depth=4, pinned=True),
    },
    "decode_narrow": {
        "ill": "launch-bound",
        "sick": lambda: decode(layers=32, width=1024, batch=1, passes=6, graph=False),
        "cured": lambda: decode(layers=32, width=1024, batch=1, passes=6, graph=True),
    },
    "decode_wide": {
        "ill": "launch-bound",
        "sick": lambda: decode(layers=16, width=4096, batch=8, passes=8, graph=False),
        "cured": lambda: decode(layers=16, width=4096, batch=8, passes=8, graph=True),
    },
    "vit_small_batch": {
        "ill": "launch-bound",
        "sick": lambda: vit_inference(batch=4, graph=False),
        "cured": lambda: vit_inference(batch=4, graph=True),
    },
    "sync_item": {
        "ill": "host-sync",
        "sick": lambda: gpt_training(layers=12, batch=4, logs=150),
        "cured": lambda: gpt_training(layers=12, batch=4, logs=0),
    },
    "sync_decode": {
        "ill": "host-sync",
        "sick": lambda: gemms_sync(item=True),
        "cured": lambda: gemms_sync(item=False),
    },
    "held_data_heavy": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(layers=8, batch=16, workers=0, cpu_ms=8.0),
        "cured": lambda: gpt_training(layers=8, batch=16, workers=14, cpu_ms=8.0),
    },
    "held_data_two_workers": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(layers=6, batch=8, workers=2, cpu_ms=8.0),
        "cured": lambda: gpt_training(layers=6, batch=8, workers=12, cpu_ms=8.0),
    },
    "held_mlp_eager": {
        "ill": "launch-bound",
        "sick": lambda: mlp_training(width=512, depth=24, batch=256, h2d="resident"),
        "cured": lambda: mlp_training(width=512, depth=24, batch=256, h2d="resident", graph=True),
    },
    "held_decode_batch": {
        "ill": "launch-bound",
        "sick": lambda: decode(layers=20, width=2560, batch=4, passes=5, graph=False),
        "cured": lambda: decode(layers=20, width=2560, batch=4, passes=5, graph=True),
    },
    "held_vit_16": {
        "ill": "launch-bound",
        "sick": lambda: vit_inference(batch=16, graph=False),
        "cured": lambda: vit_inference(batch=16, graph=True),
    },
    "held_pageable_mlp": {
        "ill": "pageable-copy",
        "sick": lambda: mlp_training(width=4096, depth=8, batch=8192, h2d="pageable"),
        "cured": lambda: mlp_training(width=4096, depth=8, batch=8192, h2d="pinned"),
    },
    "held_pageable_small_mlp": {
        "ill": "pageable-copy",
        "sick": lambda: mlp_training(width=2048, depth=4, batch=16384, h2d="pageable"),
        "cured": lambda: mlp_training(width=2048, depth=4, batch=16384, h2d="pinned"),
    },
    "held_healthy_mlp": {
        "ill": None,
        "sick": lambda: mlp_training(width=4096, depth=8, batch=8192, h2d="resident", item=True),
        "cured": None,
    },
    "held_healthy_vit": {"ill": None, "sick": lambda: vit_inference(batch=256, graph=False), "cured": None},
    "held_healthy_wide_gpt": {
        "ill": None,
        "sick": lambda: gpt_training(layers=8, width=1280, batch=8, item=1),
        "cured": None,
    },
    "two_ills": {
        "ill": "data-wait",
        "sick": lambda: conv_training(batch=128, size=224, width=64, depth=4, pinned=False, cpu_ms=20.0),
        "cured": lambda: conv_training(batch=128, size=224, width=64, depth=4, pinned=False),
    },
}
