"""Why a device was idle, and what each cure is worth: the causes that leave gaps."""

from collections.abc import Callable

from wellfed.analyze import Study
from wellfed.check.manual import rule
from wellfed.check.trace.verdicts import cure_finding, gain_of, idle_finding, unpredicted
from wellfed.model import Verdict
from wellfed.model.base import replace
from wellfed.model.counting import counted
from wellfed.model.verdict import Alternative

PIN_LOADED = "pin_memory=True in the DataLoader and .to(device, non_blocking=True)"
PIN_FETCHED = (
    "fetch into a pinned buffer that is kept: torch.empty(..., pin_memory=True).copy_(result, non_blocking=True), then"
    " wait on an event"
)
Rule = Callable[[Study], Verdict | None]


@rule("T110", "data-wait", layer="trace", severity="error", trust="measured")
def judge_data(study: Study) -> Verdict | None:
    """The GPU waits for the data loader.

    What it looks at. Device idle time while a launching thread is inside a loader's `__next__`
    (`enumerate(DataLoader)#...`, or the frames of `torch/utils/data/dataloader.py`).

    Why it costs. Nothing is queued while the host waits for, or makes, the next batch.

    How it is judged. The step is replayed, the profiler's cost taken off, with the loader always ready; the
    time saved is the cost. From 5 % of the step a warning, from 20 % an error.

    Workers that the host waited for twice or more deliver at their own rate: then no other cure is worth more
    than that rate allows. Where it waited once and they kept up after that, their rate is taken to lie between the free
    step and the recorded one.

    Remedy. More workers (`num_workers`), `persistent_workers=True`, `prefetch_factor` for uneven samples, pinned
    memory; then cheaper samples (cache decoded data, smaller images, a faster decoder).

    Restore. Set the old DataLoader arguments again.

    When to ignore. The first steps after start, when workers are still starting.

    Sources. measured: four loops with slow loaders and their cures (docs/validation/trace.md); pytorch#23048
    """
    how = _loader_kind(study)
    return idle_finding(
        study,
        "data-wait",
        says=lambda ms, step: f"the loader keeps the GPU waiting {ms} of each {step} step{how[0]}",
        fine="the loader keeps up",
        remedy=how[1],
        verify="wellfed trace after.json.gz",
    )


@rule("T120", "launch-bound", layer="trace", severity="error", trust="measured")
def judge_dispatch(study: Study) -> Verdict | None:
    """The GPU is faster than the host can launch work for it.

    What it looks at. Gaps that end with a kernel launched into an empty queue: the host's dispatch before the
    launch (Python, operators), the launch call itself, and the way to the device.

    Why it costs. Each small kernel costs the host 3 to 15 us in eager mode; a kernel shorter than that leaves the
    GPU idle until the next one arrives.

    How it is judged. The step is replayed, the profiler's cost taken off, with its launches as one graph (no
    dispatch, 0.2 to 1 us between nodes); the time saved is the gain, and the cost is what of it is idle time that no
    more particular cure (a fused optimizer) removes. A device that is busy anyway gives a pass,
    however slow the host looks under the profiler.

    Remedy. CUDA graphs (`torch.cuda.graph`, `torch.compile(mode="reduce-overhead")`), or fewer and larger kernels:
    fused optimizers, `torch.compile`, a larger batch.

    Restore. Take the graph or the compile call out again.

    When to ignore. Warm-up and capture phases.

    Sources. measured: four eager loops and the same captured (docs/validation/trace.md)
    """
    launches = (
        f", {counted(study.launches_per_step, 'launch', 'launches')} a step"
        if study.launches_per_step
        else ""
    )
    kernel = f", median kernel {study.median_kernel_ns / 1e3:.1f} us" if study.median_kernel_ns else ""
    return idle_finding(
        study,
        "launch-bound",
        says=lambda ms, step: (
            f"the host launches too slowly: the GPU waits {ms} of each {step} step{launches}{kernel}"
        ),
        fine="the host keeps the queue filled",
        remedy='capture the step in a CUDA graph, or torch.compile(mode="reduce-overhead")',
        verify="wellfed trace after.json.gz",
        risk="safe",
        also=("launch-call", "launch-latency"),
        own_ns=_launching(study),
    )


def _launching(study: Study) -> float | None:
    """What of a step's launching no more particular cure removes: that of an unfused optimizer is the optimizer's."""
    cure = study.cures.get("unfused-optimizer")
    return cure.launching if cure is not None else None


@rule("T130", "host-sync", layer="trace", severity="error", trust="measured")
def judge_sync(study: Study) -> Verdict | None:
    """The host stops to wait for the GPU, and the GPU then waits for the host.

    What it looks at. Blocking calls (`cudaStreamSynchronize`, `cudaDeviceSynchronize`, the copies behind `.item()`,
    `.cpu()`, `nonzero`, `print`) and the idle time after them that running ahead would have hidden.

    Why it costs. While it waits the host queues nothing; the queue is empty when it goes on.

    How it is judged. The step is replayed, the profiler's cost taken off, without the waits and the copies that
    fetch the results. A sync on a GPU that is busy anyway costs next to nothing and gives a pass.

    Remedy. Keep results on the GPU and read them every n steps; `non_blocking=True`; `torch.where` for data-dependent
    branches; find the line with `torch.cuda.set_sync_debug_mode("warn")`.

    Restore. None needed.

    When to ignore. A sync that ends an epoch or a benchmark.

    Sources. measured: a per-step `.item()` on a busy GPU cost 0.5 % (docs/validation/trace.md); gpu-idle's finding of the same on an A100
    """
    return idle_finding(
        study,
        "host-sync",
        says=lambda ms, step: f"waits of the host for results leave the GPU idle {ms} of each {step} step",
        fine="no wait of the host that costs the GPU time",
        remedy="read results every n steps instead of each; torch.cuda.set_sync_debug_mode('warn') names the lines",
        verify="wellfed trace after.json.gz",
    )


@rule("T140", "pageable-copy", layer="trace", severity="error", trust="measured")
def judge_pageable(study: Study) -> Verdict | None:
    """Copies from pageable memory hold the GPU and the host.

    What it looks at. Copies named Pageable: their time outside compute, and the host blocked in them. (A result
    that is fetched to the host is waited for whatever the memory: see host-sync.)

    Why it costs. The driver stages them through a small pinned buffer with the CPU: a third to a tenth of the
    link, the host waits, nothing overlaps.

    How it is judged. The step is replayed, the profiler's cost taken off, with the copies at 75 to 93 % of the
    link's payload rate and the host not held; on the same stream as the low and likely case, on a stream of
    their own a batch ahead as the high one.

    Remedy. `pin_memory=True` in the DataLoader (or `.pin_memory()`), and `.to(device, non_blocking=True)`; then a
    prefetch on a side stream. For results that are fetched: a pinned buffer that is kept, and `copy_` into it.

    Restore. Set `pin_memory=False` again.

    When to ignore. Copies at start-up.

    Sources. measured: three loops with pageable copies and their cures (docs/validation/trace.md)
    """
    cure = study.cures.get("pageable-copy")
    if study.rank.budget is None:
        return None
    if cure is None:
        if study.refused is not None and "pageable-copy" in study.evidence:
            return unpredicted(study, "pageable-copy", study.staged_ns)
        return Verdict(code="", name="", verdict="pass", message="no pageable copy in the steps")
    fetched = study.copies.fetched_ns > study.staged_ns
    rate = f" at {study.copy_gbs:.1f} GB/s" if study.copy_gbs else ""
    link = f" (link {study.link_gbs:.0f} GB/s, {study.link_source})" if study.link_gbs else ""
    verdict = cure_finding(
        study,
        "pageable-copy",
        cure,
        says=lambda ms, step: (
            f"copies {'to' if fetched else 'from'} pageable memory{rate} take {ms} of each {step} step{link}"
        ),
        fine="pageable copies cost next to nothing",
        remedy=PIN_FETCHED if fetched else PIN_LOADED,
        verify="wellfed trace after.json.gz",
    )
    overlapped = study.cures.get("pageable-copy/overlapped")
    if verdict.verdict != "finding" or overlapped is None or verdict.gain is None:
        return verdict
    beside = gain_of(overlapped)
    high = max(verdict.gain.high or 0.0, beside.high or 0.0)
    return replace(
        verdict,
        gain=replace(verdict.gain, high=high),
        alternatives=(
            Alternative(
                remedy="the same, prefetched one batch ahead on a side stream", gain=beside, risk="safe"
            ),
        ),
    )


def _host_rule(cause: str, fine: str, text: str, remedy: str) -> Rule:
    def judge(study: Study) -> Verdict | None:
        return idle_finding(
            study,
            cause,
            says=lambda ms, step: f"{text} {ms} of each {step} step",
            fine=fine,
            remedy=remedy,
            verify="wellfed trace after.json.gz",
        )

    return judge


@rule("T150", "host-stall", layer="trace", severity="error", trust="measured")
def judge_stall(study: Study) -> Verdict | None:
    """The launching thread falls silent and the GPU runs dry.

    What it looks at. Stretches of 2 ms and more in which no operator or runtime call starts or ends on the launching
    threads, outside the loader, checkpoints, waits for collectives on the CPU (T210) and calls that wait, while the GPU is
    idle.

    Why it costs. Garbage collection, logging, a lock, CPU work in Python, or a descheduled thread: nothing is queued.

    How it is judged. The step is replayed, the profiler's cost taken off, without the silence.

    Remedy. `gc.disable()` with `gc.collect(1)` every n steps, or `gc.freeze()` after warm-up; move CPU work out of the
    loop; record `with_stack=True` once to see the line.

    Restore. `gc.enable()`.

    When to ignore. Validation or logging steps recorded on purpose.

    Sources. torchtitan#148; sglang#9241 (100 to 300 ms each 1.5 s); measured definitions in docs/concepts/trace.md
    """
    return _host_rule(
        "host-stall",
        "the launching thread is never silent for long",
        "the launching thread is silent while the GPU waits",
        "find the silence with with_stack=True; for garbage collection gc.freeze() after warm-up",
    )(study)


@rule("T160", "checkpoint-stall", layer="trace", severity="error", trust="read")
def judge_checkpoint(study: Study) -> Verdict | None:
    """Saving a checkpoint stops the training.

    What it looks at. Device idle time inside `torch.save`, `torch.distributed.checkpoint` or safetensors; without their
    frames, state copied to the host (storages as `torch.save` copies them, or eight copies and 8 MiB in a row) and the
    silence of writing it.

    Why it costs. Tensors are copied and written by the thread that launches.

    How it is judged. The step is replayed, the profiler's cost taken off, without it; the state is still copied, to
    pinned memory at 75 to 93 % of the link's rate and not waited for (as the high end not at all). How often it is
    saved is what the recording shows.

    Remedy. `torch.distributed.checkpoint.async_save`, or copy to pinned memory and write in a thread; save less often.

    Sources. PyTorch documentation of `async_save`
    """
    return _host_rule(
        "checkpoint-stall",
        "no checkpoint in the steps",
        "saving a checkpoint keeps the GPU waiting",
        "torch.distributed.checkpoint.async_save, or write from pinned memory in a thread",
    )(study)


@rule("T170", "allocator-churn", layer="trace", severity="error", trust="read")
def judge_allocator(study: Study) -> Verdict | None:
    """Device memory is allocated and freed inside the step.

    What it looks at. Device idle time inside `cudaMalloc`, `cudaFree`, `cudaHostAlloc` and their driver twins.

    Why it costs. `cudaFree` waits for the device, `cudaMalloc` takes the driver's lock: the caching allocator is there
    so that neither is in the loop.

    How it is judged. The step is replayed, the profiler's cost taken off, without those calls.

    Remedy. `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; fixed shapes; unset `PYTORCH_NO_CUDA_MEMORY_CACHING`;
    no `torch.cuda.empty_cache()` in the loop.

    Sources. pytorch#35901; composer#1632
    """
    return _host_rule(
        "allocator-churn",
        "no allocation call holds the GPU up",
        "allocation calls keep the GPU waiting",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True and no empty_cache() in the loop",
    )(study)


@rule("T180", "compile-stall", layer="trace", severity="error", trust="read")
def judge_compile(study: Study) -> Verdict | None:
    """Kernels are compiled or loaded inside the step.

    What it looks at. Device idle time inside module loading (`cuModuleLoad*`, `cuLibraryLoad*`, lazy loading), the
    ranges and frames of Dynamo, Inductor and Triton's compiler, and silence inside a library's operator that ends in a
    kernel: cuDNN and cuBLAS choose or build one for a shape that is new to them.

    Why it costs. Changing shapes recompile; lazy loading costs milliseconds at each first use.

    How it is judged. The step is replayed, the profiler's cost taken off, without it.

    Remedy. `torch.compile(dynamic=True)` or padded shapes; warm up all shapes first; keep the compile cache on a local disk.

    Sources. CUDA programming guide, lazy loading; PyTorch documentation of recompilation
    """
    return _host_rule(
        "compile-stall",
        "nothing is compiled in the steps",
        "compiling or loading kernels keeps the GPU waiting",
        "warm up every shape first and keep to them (pad, bucket), or torch.compile(dynamic=True)",
    )(study)


def _loader_kind(study: Study) -> tuple[str, str]:
    """What the loader's range is called says how it runs: (for the message, the remedy)."""
    named = " ".join(text for _, _, text in study.evidence.get("data-wait", ()))
    if "_SingleProcess" in named:
        return (
            " (num_workers=0: it makes each batch itself)",
            "num_workers=8, persistent_workers=True, pin_memory=True",
        )
    if "_MultiProcessing" in named:
        return (
            " (its workers are too few or too slow)",
            "more workers (num_workers), persistent_workers=True, prefetch_factor=4",
        )
    return "", "num_workers=8, persistent_workers=True"
