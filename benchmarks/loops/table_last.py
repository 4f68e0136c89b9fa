"""`last_`: other shapes and other models than the sets before, written without a look at how causes are judged."""

from typing import Any

import torch

from loops.base import Loop, size
from loops.last_data import block_images, columns, large_images, spectra, warped_images
from loops.last_host import (
    collects_a_tree,
    compiled_for_batches,
    growing_batches,
    measures,
    scored_chunks,
    watched_layers,
)
from loops.last_kernels import (
    FUSED,
    WRITTEN,
    float_encoder,
    float_pyramid,
    graph_net_training,
    many_parameters,
    parallel_decode,
    residual_stream,
    tabular_training,
    tensor_float_blocks,
)
from loops.last_models import dropout_training, parallel_training, pyramid_training
from loops.later_host import empties, saves

SHORT: dict[str, Any] = {"count": size(5, 1), "width": size(2560, 64), "heads": size(20, 1)}
SHORT |= {"batch": size(12, 2), "length": size(768, 16)}
LONG: dict[str, Any] = {"count": size(3, 1), "width": size(768, 64), "heads": size(12, 1)}
LONG |= {"batch": size(2, 2), "length": size(6144, 16)}
THIN: dict[str, Any] = {"count": size(14, 2), "width": size(512, 64), "heads": size(8, 1)}
THIN |= {"batch": size(16, 2), "length": size(1024, 16)}
SAVED: dict[str, Any] = {"count": size(2, 1), "width": size(768, 64), "heads": size(6, 1)}
SAVED |= {"batch": size(128, 2), "length": size(1024, 16)}
WIDE: dict[str, Any] = {"count": size(3, 1), "width": size(3072, 64), "heads": size(24, 1)}
WIDE |= {"batch": size(6, 2), "length": size(2048, 16)}
IMAGES: dict[str, Any] = {"width": size(192, 8), "per_stage": size(5, 1), "side": size(256, 32)}
DECODE: dict[str, Any] = {"count": size(20, 2), "width": size(1280, 64), "batch": 4, "tokens": size(4, 2)}
BROAD: dict[str, Any] = {"count": size(8, 2), "width": size(4096, 64), "batch": 48, "tokens": size(8, 2)}

LAST: dict[str, Loop] = {
    # -- batches
    "last_data_blocks": {
        "ill": "data-wait",
        "sick": lambda: block_images(workers=0),
        "cured": lambda: block_images(workers=13),
    },
    "last_data_spectra": {
        "ill": "data-wait",
        "sick": lambda: spectra(workers=1),
        "cured": lambda: spectra(workers=10),
    },
    "last_data_warped": {
        "ill": "data-wait",
        "sick": lambda: warped_images(workers=2),
        "cured": lambda: warped_images(workers=13),
    },
    "last_pageable_images": {
        "ill": "pageable-copy",
        "sick": lambda: large_images(pin=False),
        "cured": lambda: large_images(pin=True),
    },
    "last_pageable_columns": {
        "ill": "pageable-copy",
        "sick": lambda: columns(pin=False),
        "cured": lambda: columns(pin=True),
    },
    # -- launches
    "last_launch_decode": {
        "ill": "launch-bound",
        "sick": lambda: parallel_decode(graph=False, **DECODE),
        "cured": lambda: parallel_decode(graph=True, **DECODE),
    },
    "last_launch_tabular": {
        "ill": "launch-bound",
        "sick": lambda: tabular_training(graph=False),
        "cured": lambda: tabular_training(graph=True),
    },
    "last_launch_graph_net": {
        "ill": "launch-bound",
        "sick": lambda: graph_net_training(graph=False),
        "cured": lambda: graph_net_training(graph=True),
    },
    # -- the host waits
    "last_sync_watched": {
        "ill": "host-sync",
        "sick": lambda: watched_layers(ask_each=True),
        "cured": lambda: watched_layers(ask_each=False),
    },
    "last_sync_chunks": {
        "ill": "host-sync",
        "sick": lambda: scored_chunks(ask_each=True, rows=size(4096, 8), chunks=size(64, 3)),
        "cured": lambda: scored_chunks(ask_each=False, rows=size(4096, 8), chunks=size(64, 3)),
    },
    # -- the host is busy elsewhere
    "last_alloc_dropout": {
        "ill": "allocator-churn",
        "sick": lambda: dropout_training(**THIN, after=empties),
        "cured": lambda: dropout_training(**THIN),
    },
    "last_alloc_growing": {
        "ill": "allocator-churn",
        "sick": lambda: growing_batches(emptied=True),
        "cured": lambda: growing_batches(emptied=False),
        "period": 4,
    },
    "last_stall_tree": {
        "ill": "host-stall",
        "sick": lambda: parallel_training(**SHORT, after=collects_a_tree(size(280_000, 100))),
        "cured": lambda: parallel_training(**SHORT),
    },
    "last_stall_metrics": {
        "ill": "host-stall",
        "sick": lambda: pyramid_training(**IMAGES, batch=size(72, 2), after=measures(36.0)),
        "cured": lambda: pyramid_training(**IMAGES, batch=size(72, 2)),
    },
    "last_checkpoint_full": {
        "ill": "checkpoint-stall",
        "sick": lambda: parallel_training(**SAVED, after_with_model=saves()),
        "cured": lambda: parallel_training(**SAVED),
    },
    "last_compile_batches": {
        "ill": "compile-stall",
        "sick": lambda: compiled_for_batches(dynamic=False),
        "cured": lambda: compiled_for_batches(dynamic=True),
    },
    # -- kernels
    "last_float_encoder": {
        "ill": "slow-precision",
        "sick": lambda: float_encoder(autocast=False),
        "cured": lambda: float_encoder(autocast=True),
    },
    "last_float_pyramid": {
        "ill": "slow-precision",
        "sick": lambda: float_pyramid(dtype=torch.float32),
        "cured": lambda: float_pyramid(dtype=torch.bfloat16),
    },
    "last_tensor_float": {
        "ill": "slow-precision",
        "sick": lambda: tensor_float_blocks(autocast=False),
        "cured": lambda: tensor_float_blocks(autocast=True),
    },
    "last_attention_long": {
        "ill": "unfused-attention",
        "sick": lambda: parallel_training(**LONG, attention=WRITTEN),
        "cured": lambda: parallel_training(**LONG, attention=FUSED),
    },
    "last_chain_residual": {
        "ill": "unfused-elementwise",
        "sick": lambda: residual_stream(compiled=False),
        "cured": lambda: residual_stream(compiled=True),
    },
    "last_optimizer_many": {
        "ill": "unfused-optimizer",
        "sick": lambda: many_parameters(rows=size(12288, 8), foreach=False),
        "cured": lambda: many_parameters(rows=size(12288, 8), fused=True),
    },
    # -- healthy, some with what looks like an ill and costs nothing
    "last_healthy_loader": {
        "ill": None,
        "sick": lambda: block_images(workers=13, per_stage=9),
        "cured": None,
    },
    "last_healthy_bytes": {
        "ill": None,
        "sick": lambda: large_images(pin=True, as_bytes=True, per_stage=8),
        "cured": None,
    },
    "last_healthy_decode": {"ill": None, "sick": lambda: parallel_decode(graph=True, **BROAD), "cured": None},
    "last_healthy_chunks": {
        "ill": None,
        "sick": lambda: scored_chunks(ask_each=True, rows=size(1 << 17, 16), chunks=2, depth=6),
        "cured": None,
    },
    "last_healthy_hidden_metrics": {
        "ill": None,
        "sick": lambda: parallel_training(**WIDE, after=measures(7.0)),
        "cured": None,
    },
    "last_healthy_item": {
        "ill": None,
        "sick": lambda: parallel_training(**SHORT, after=lambda loss: loss.item()),
        "cured": None,
    },
    "last_healthy_pyramid": {
        "ill": None,
        "sick": lambda: pyramid_training(**IMAGES, batch=size(160, 2)),
        "cured": None,
    },
    "last_healthy_optimizer": {
        "ill": None,
        "sick": lambda: many_parameters(rows=size(16384, 8), fused=True),
        "cured": None,
    },
}
