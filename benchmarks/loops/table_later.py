"""`later_`: other shapes and other code than the sets before, written without a look at how causes are judged."""

from typing import Any

from loops.base import Loop, size
from loops.later_data import (
    arrays_to_device,
    cropped_images,
    decoded_images,
    masks_to_host,
    remote_images,
    tokenised_text,
)
from loops.later_host import (
    collects,
    compiled_for_lengths,
    empties,
    experts,
    growing_lengths,
    guarded_blocks,
    logs,
    sampled_tokens,
    saves,
    waits_for_a_queue,
)
from loops.later_kernels import (
    attention_forward,
    compiled_training,
    float_convolutions,
    float_head,
    gated_stack,
    graphed_adam,
    rotary_passes,
    sharded_masters,
    tensor_float_mlp,
)
from loops.later_models import (
    accumulated_training,
    fused_causal,
    fused_full,
    image_training,
    transformer_training,
    written_causal,
    written_full,
)
from loops.later_serving import cached_decode, classified_images, recurrent_cells, small_residual_net

WIDE: dict[str, Any] = {"width": size(2048, 64), "batch": size(8, 2), "length": size(2048, 16)}
LONG: dict[str, Any] = {"width": size(1024, 64), "batch": size(4, 2), "length": size(4096, 16)}
THIN: dict[str, Any] = {"width": size(1024, 64), "batch": size(16, 2), "length": size(2048, 16)}
IMAGES: dict[str, Any] = {"width": size(256, 8), "batch": size(48, 2), "side": size(256, 32)}
MANY_IMAGES: dict[str, Any] = {**IMAGES, "batch": size(64, 2)}
NARROW: dict[str, Any] = {"count": 12, "width": size(2048, 64), "batch": size(16, 2), "tokens": size(6, 2)}
BROAD: dict[str, Any] = {"count": 8, "width": size(4096, 64), "batch": size(32, 2), "tokens": size(8, 2)}
GATES: dict[str, Any] = {"rows": size(32768, 16), "width": size(2048, 32), "count": size(10, 2)}
NO_STEPS: dict[str, Any] = {"steps": False}

LATER: dict[str, Loop] = {
    # -- batches
    "later_data_decoded": {
        "ill": "data-wait",
        "sick": lambda: decoded_images(workers=0),
        "cured": lambda: decoded_images(workers=10),
    },
    "later_data_collate": {
        "ill": "data-wait",
        "sick": lambda: tokenised_text(workers=1),
        "cured": lambda: tokenised_text(workers=8),
    },
    "later_data_generator": {
        "ill": "data-wait",
        "near": ["host-stall"],  # without the stacks, silence of the main thread is all there is to see
        "sick": lambda: cropped_images(prepared=False),
        "cured": lambda: cropped_images(prepared=True),
        "record": {"stack": True},
    },
    "later_pageable_arrays": {
        "ill": "pageable-copy",
        "sick": lambda: arrays_to_device(pin=False),
        "cured": lambda: arrays_to_device(pin=True),
    },
    "later_pageable_back": {
        "ill": "pageable-copy",
        "sick": lambda: masks_to_host(pin=False),
        "cured": lambda: masks_to_host(pin=True),
        "record": NO_STEPS,
    },
    # -- the host waits
    "later_sync_experts": {
        "ill": "host-sync",
        "sick": lambda: experts(search=True),
        "cured": lambda: experts(search=False),
    },
    "later_sync_finite": {
        "ill": "host-sync",
        "sick": lambda: guarded_blocks(ask=True),
        "cured": lambda: guarded_blocks(ask=False),
    },
    "later_sync_tokens": {
        "ill": "host-sync",
        "sick": lambda: sampled_tokens(ask_each=True),
        "cured": lambda: sampled_tokens(ask_each=False),
        "record": {"shapes": False},
    },
    # -- the host is busy elsewhere
    "later_checkpoint_images": {
        "ill": "checkpoint-stall",
        "sick": lambda: image_training(blocks=size(5, 1), **IMAGES, after_with_model=saves()),
        "cured": lambda: image_training(blocks=size(5, 1), **IMAGES),
    },
    "later_checkpoint_second": {
        "ill": "checkpoint-stall",
        "sick": lambda: transformer_training(
            count=size(3, 1), **THIN, after_with_model=saves(2, through_host=True)
        ),
        "cured": lambda: transformer_training(count=size(3, 1), **THIN),
        "period": 2,
    },
    "later_stall_collect": {
        "ill": "host-stall",
        "sick": lambda: transformer_training(count=size(3, 1), **WIDE, after=collects),
        "cured": lambda: transformer_training(count=size(3, 1), **WIDE),
    },
    "later_stall_logs": {
        "ill": "host-stall",
        "sick": lambda: image_training(blocks=size(5, 1), **IMAGES, after=logs(32.0)),
        "cured": lambda: image_training(blocks=size(5, 1), **IMAGES),
        "record": NO_STEPS,
    },
    "later_stall_queue": {
        "ill": "host-stall",
        "sick": lambda: transformer_training(count=size(2, 1), **WIDE, after=waits_for_a_queue(40.0)),
        "cured": lambda: transformer_training(count=size(2, 1), **WIDE),
    },
    "later_alloc_images": {
        "ill": "allocator-churn",
        "sick": lambda: image_training(blocks=size(6, 1), **MANY_IMAGES, after=empties),
        "cured": lambda: image_training(blocks=size(6, 1), **MANY_IMAGES),
    },
    "later_alloc_growing": {
        "ill": "allocator-churn",
        "sick": lambda: growing_lengths(emptied=True),
        "cured": lambda: growing_lengths(emptied=False),
        "period": 4,
        "record": {"memory": True},
    },
    "later_compile_lengths": {
        "ill": "compile-stall",
        "sick": lambda: compiled_for_lengths(dynamic=False),
        "cured": lambda: compiled_for_lengths(dynamic=True),
    },
    # -- launches
    "later_launch_cached_decode": {
        "ill": "launch-bound",
        "sick": lambda: cached_decode(graph=False, **NARROW),
        "cured": lambda: cached_decode(graph=True, **NARROW),
    },
    "later_launch_cells": {
        "ill": "launch-bound",
        "sick": lambda: recurrent_cells(graph=False),
        "cured": lambda: recurrent_cells(graph=True),
    },
    "later_launch_residual": {
        "ill": "launch-bound",
        "sick": lambda: small_residual_net(graph=False),
        "cured": lambda: small_residual_net(graph=True),
    },
    # -- kernels
    "later_float_head": {
        "ill": "slow-precision",
        "sick": lambda: float_head(exact=True),
        "cured": lambda: float_head(exact=False),
    },
    "later_float_convolutions": {
        "ill": "slow-precision",
        "sick": lambda: float_convolutions(precision="float"),
        "cured": lambda: float_convolutions(precision="bf16"),
    },
    "later_tensor_float": {
        "ill": "slow-precision",
        "sick": lambda: tensor_float_mlp(precision="tf32"),
        "cured": lambda: tensor_float_mlp(precision="bf16"),
    },
    "later_attention_causal": {
        "ill": "unfused-attention",
        "sick": lambda: transformer_training(count=size(4, 1), **LONG, attention=written_causal),
        "cured": lambda: transformer_training(count=size(4, 1), **LONG, attention=fused_causal),
    },
    "later_attention_forward": {
        "ill": "unfused-attention",
        "sick": lambda: attention_forward(written_full),
        "cured": lambda: attention_forward(fused_full),
    },
    "later_optimizer_adam": {
        "ill": "unfused-optimizer",
        "sick": lambda: graphed_adam(foreach=False),
        "cured": lambda: graphed_adam(fused=True),
    },
    "later_optimizer_shards": {
        "ill": "unfused-optimizer",
        "sick": lambda: sharded_masters(foreach=False),
        "cured": lambda: sharded_masters(fused=True),
    },
    "later_chain_gates": {
        "ill": "unfused-elementwise",
        "sick": lambda: gated_stack(compiled=False, **GATES),
        "cured": lambda: gated_stack(compiled=True, **GATES),
    },
    "later_chain_rotary": {
        "ill": "unfused-elementwise",
        "sick": lambda: rotary_passes(compiled=False),
        "cured": lambda: rotary_passes(compiled=True),
    },
    # -- two ills, the larger one cured
    "later_two_remote_pageable": {
        "ill": "data-wait",
        "sick": lambda: remote_images(workers=2, pin=False),
        "cured": lambda: remote_images(workers=12, pin=False),
    },
    "later_two_float_emptied": {
        "ill": "slow-precision",
        "sick": lambda: float_head(exact=True, after=empties),
        "cured": lambda: float_head(exact=False, after=empties),
    },
    # -- healthy, some with what looks like an ill and costs nothing
    "later_healthy_item": {
        "ill": None,
        "sick": lambda: transformer_training(count=size(3, 1), **WIDE, after=lambda loss: loss.item()),
        "cured": None,
        "record": NO_STEPS,
    },
    "later_healthy_hidden_stall": {
        "ill": None,
        "sick": lambda: transformer_training(count=size(4, 1), **WIDE, after=logs(8.0)),
        "cured": None,
    },
    "later_healthy_loader": {
        "ill": None,
        "sick": lambda: decoded_images(workers=10, blocks=8),
        "cured": None,
    },
    "later_healthy_rare_save": {
        "ill": None,
        "sick": lambda: image_training(blocks=size(7, 1), **IMAGES, after_with_model=saves(250)),
        "cured": None,
    },
    "later_healthy_decode": {"ill": None, "sick": lambda: cached_decode(graph=True, **BROAD), "cured": None},
    "later_healthy_classes": {
        "ill": None,
        "sick": lambda: classified_images(batch=size(64, 2)),
        "cured": None,
    },
    "later_healthy_compiled": {"ill": None, "sick": compiled_training, "cured": None},
    "later_healthy_accumulated": {
        "ill": None,
        "sick": lambda: accumulated_training(
            micro=4, count=size(2, 1), width=size(2048, 64), batch=size(4, 2), length=size(2048, 16)
        ),
        "cured": None,
    },
    "later_healthy_images": {
        "ill": None,
        "sick": lambda: image_training(blocks=size(4, 1), **{**IMAGES, "batch": size(128, 2)}),
        "cured": None,
    },
    "later_healthy_fused": {
        "ill": None,
        "sick": lambda: transformer_training(count=size(3, 1), **WIDE),
        "cured": None,
        "record": {"memory": True},
    },
}
