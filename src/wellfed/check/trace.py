"""Verdicts of traces: why the GPUs were idle, and what each cure is worth.

Each rule is a function over the study of one rank and device; its docstring is the manual page. A cause is a
finding when its cure, replayed on the step nobody recorded, saves time; what costs nothing is a pass.
"""

from collections.abc import Callable, Sequence
from typing import Any

from wellfed import catalog
from wellfed.analyze import Found, Study
from wellfed.analyze.study import Cured
from wellfed.check.manual import Manual, rule
from wellfed.model import Case, Cost, Evidence, Gain, Verdict
from wellfed.model.base import replace
from wellfed.model.verdict import Alternative, Severity, worth
from wellfed.predict.compose import compose, share

WARNING_SHARE, ERROR_SHARE = 0.05, 0.20
"""Share of the step that a defect takes: a warning, an error (DESIGN)."""
HIDDEN_SHARE = 0.02
MODEL_ERROR = 0.15
"""What the interval is widened by on either side for the replay itself: unprofiled rounds of one loop differ
by 3 to 20 % on the machine the model was made on, and the medians before and after recording by up to 20 %."""
TRUST_LIMIT = 20.0

Rule = Callable[[Study], Verdict | None]


def judge_trace(found: Found, *, price: float | None = None) -> tuple[Verdict, ...]:
    """A verdict of every trace rule for every rank and device, by worth. `price` is USD per GPU and hour; the
    catalogue's dated price when None."""
    verdicts: list[Verdict] = []
    for study in found.studies:
        for page, function in rules():
            verdict = function(study)
            if verdict is not None:
                verdicts.append(_placed(verdict, page, study, price))
    return tuple(sorted(verdicts, key=worth))


def rules() -> list[tuple[Manual, Rule]]:
    """The rules of this module, in the order they are written."""
    return [
        (value.manual, value)
        for value in list(globals().values())
        if isinstance(getattr(value, "manual", None), Manual)
    ]


def together(case: Case) -> tuple[float, float] | None:
    """What curing every finding above info of the worst rank is worth, as (low, high) speed-ups of its step.
    Savings overlap in ways that only a joint cure shows: at least the best alone, at most the sum, and never
    below the time the device computes. None with fewer than two such findings."""
    mine = [
        v for v in case.verdicts if v.verdict == "finding" and v.layer == "trace" and v.severity != "info"
    ]
    mine = [v for v in mine if v.gain is not None and v.gain.saves_ms and v.where == mine[0].where]
    if len(mine) < 2:
        return None
    where = mine[0].where
    rank = next(r for r in case.ranks if r.device == where["device"] and r.rank == where.get("rank"))
    if rank.step_budget is None:
        return None
    step_ms = rank.step_budget.span_ns / 1e6
    saved = [v.gain.saves_ms for v in mine if v.gain is not None and v.gain.saves_ms]
    floor = rank.step_budget.compute_ns / 1e6
    return compose(step_ms, [min(s, step_ms) for s in saved], floor=floor, disjoint=False)


# -- rules ------------------------------------------------------------------------------------------------


@rule("T001", "no-gpu-event", layer="trace", severity="warning", trust="read")
def judge_presence(study: Study) -> Verdict | None:
    """The trace holds no GPU event, so nothing can be said of the GPU.

    What it looks at. Events of the categories kernel, memcpy and memset.

    Why it costs. Without them idle time is unknown: not 0, not 100 %.

    How it is judged. None at all: not judged. Otherwise this rule says nothing.

    Remedy. Record with `ProfilerActivity.CUDA` among the activities, on a machine whose driver lets CUPTI in.

    When to ignore. A host-only trace on purpose.

    Sources. Kineto's event categories (libkineto/src/output_json.cpp)
    """
    if study.rank.budget is not None:
        return None
    return _unjudged("no-gpu-event", f"no GPU event in {study.rank.source}: idle time cannot be judged")


@rule("T002", "no-prediction", layer="trace", severity="info", trust="measured")
def judge_replay(study: Study) -> Verdict | None:
    """The steps cannot be replayed, so no gain is predicted.

    What it looks at. The steps replayed unchanged against the recorded ones.

    Why it costs. A model that does not give the recording back says nothing about a changed one.

    How it is judged. More than 2 % off, no steps, or no launch records: no predictions from this trace.

    Remedy. Record three to five whole steps with `schedule(wait=1, warmup=1, active=3)` and call `profiler.step()`.

    Sources. measured: identity within 0.5 % on 30 of 31 recorded loops (docs/validation/trace.md)
    """
    if study.rank.budget is None or study.refused is None:
        return None
    return _unjudged("no-replay", f"no gains predicted: {study.refused}")


@rule("T003", "unreadable-file", layer="trace", severity="warning", trust="read")
def judge_readable(study: Study) -> Verdict | None:
    """One of several traces cannot be read.

    What it looks at. Every file named, or found in a folder.

    Why it costs. A rank that is left out may be the slow one.

    How it is judged. A file in which nothing can be read, beside others that can. (When none can, that is an error.)

    Remedy. Record or copy it again; a damaged file is read as far as it goes, so this one has nothing left.

    Sources. DESIGN: one unreadable file among readable ones is a finding of its own
    """
    return None  # a study is of a file that was read; `unreadable` makes the verdict of one that was not


def unreadable(name: str, why: str) -> Verdict:
    """The verdict of a file that cannot be read."""
    page: Manual = judge_readable.manual  # type: ignore[attr-defined]
    return Verdict(
        code=page.code,
        name=page.name,
        verdict="finding",
        severity="warning",
        layer="trace",
        message=f"{name} cannot be read, the others can: {why}",
        where={"file": name},
        evidence=(Evidence(source=name, text=why),),
        gain=Gain(basis="none"),
        remedy="record or copy it again",
        risk="safe",
    )


@rule("T110", "data-wait", layer="trace", severity="error", trust="measured")
def judge_data(study: Study) -> Verdict | None:
    """The GPU waits for the data loader.

    What it looks at. Device idle time while a launching thread is inside a loader's `__next__`
    (`enumerate(DataLoader)#...`, or the frames of `torch/utils/data/dataloader.py`).

    Why it costs. Nothing is queued while the host waits for, or makes, the next batch.

    How it is judged. The step is replayed, the profiler's cost taken off, with the loader always ready; the
    time saved is the cost. From 5 % of the step a warning, from 20 % an error.

    Workers that the host waited for twice or more deliver at their own rate: then no other cure is worth more
    than that rate allows.

    Remedy. More workers (`num_workers`), `persistent_workers=True`, `prefetch_factor` for uneven samples, pinned
    memory; then cheaper samples (cache decoded data, smaller images, a faster decoder).

    Restore. Set the old DataLoader arguments again.

    When to ignore. The first steps after start, when workers are still starting.

    Sources. measured: four loops with slow loaders and their cures (docs/validation/trace.md); pytorch#23048
    """
    how = _loader_kind(study)
    return _idle_finding(
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
    dispatch, 0.2 to 1 us between nodes); the time saved is the cost. A device that is busy anyway gives a pass,
    however slow the host looks under the profiler.

    Remedy. CUDA graphs (`torch.cuda.graph`, `torch.compile(mode="reduce-overhead")`), or fewer and larger kernels:
    fused optimizers, `torch.compile`, a larger batch.

    Restore. Take the graph or the compile call out again.

    When to ignore. Warm-up and capture phases.

    Sources. measured: four eager loops and the same captured (docs/validation/trace.md)
    """
    launches = f", {study.launches_per_step:.0f} launches a step" if study.launches_per_step else ""
    kernel = f", median kernel {study.median_kernel_ns / 1e3:.1f} us" if study.median_kernel_ns else ""
    return _idle_finding(
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
    )


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
    return _idle_finding(
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
    prefetch on a side stream.

    Restore. Set `pin_memory=False` again.

    When to ignore. Copies at start-up.

    Sources. measured: three loops with pageable copies and their cures (docs/validation/trace.md)
    """
    cure = study.cures.get("pageable-copy")
    if study.rank.budget is None:
        return None
    if cure is None:
        if study.refused is not None and "pageable-copy" in study.evidence:
            return _unpredicted(study, "pageable-copy", study.staged_ns)
        return Verdict(code="", name="", verdict="pass", message="no pageable copy in the steps")
    rate = f" at {study.copy_gbs:.1f} GB/s" if study.copy_gbs else ""
    link = f" (link {study.link_gbs:.0f} GB/s, {study.link_source})" if study.link_gbs else ""
    verdict = _finding(
        study,
        "pageable-copy",
        cure,
        says=lambda ms, step: f"copies from pageable memory{rate} take {ms} of each {step} step{link}",
        fine="pageable copies cost next to nothing",
        remedy="pin_memory=True in the DataLoader and .to(device, non_blocking=True)",
        verify="wellfed trace after.json.gz",
    )
    overlapped = study.cures.get("pageable-copy/overlapped")
    if verdict.verdict != "finding" or overlapped is None or verdict.gain is None:
        return verdict
    beside = _gain(overlapped)
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
        return _idle_finding(
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
    threads, outside the loader, checkpoints and calls that wait, while the GPU is idle.

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

    What it looks at. Device idle time inside `torch.save`, `torch.distributed.checkpoint` or safetensors.

    Why it costs. Tensors are copied and written by the thread that launches.

    How it is judged. The step is replayed, the profiler's cost taken off, without it.

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

    What it looks at. Device idle time inside module loading (`cuModuleLoad*`, `cuLibraryLoad*`) and the frames of
    Dynamo, Inductor and Triton's compiler.

    Why it costs. Changing shapes recompile; lazy loading costs milliseconds at each first use.

    How it is judged. The step is replayed, the profiler's cost taken off, without it.

    Remedy. `torch.compile(dynamic=True)` or padded shapes; warm up all shapes first; keep the compile cache on a local disk.

    Sources. CUDA programming guide, lazy loading; PyTorch documentation of recompilation
    """
    return _host_rule(
        "compile-stall",
        "nothing is compiled in the steps",
        "compiling or loading kernels keeps the GPU waiting",
        "warm up every shape first, or torch.compile(dynamic=True)",
    )(study)


@rule("T210", "exposed-comm", layer="trace", severity="error", trust="read")
def judge_comm(study: Study) -> Verdict | None:
    """Communication is not hidden behind compute.

    What it looks at. Time in which collective kernels run and no compute does.

    Why it costs. The GPU's compute units wait for the network or for a slower rank.

    How it is judged. By its share of the step. From one rank alone, waiting for others cannot be told from moving
    bytes: the cost is known, the gain is not.

    Remedy. Overlap (DDP bucket sizes, FSDP prefetch), fewer and larger collectives; look at all ranks for a straggler.

    Sources. PyTorch documentation of DDP and FSDP
    """
    budget = study.rank.step_budget
    if study.rank.budget is None:
        return None
    if not study.rank.comm_ns:
        return Verdict(code="", name="", verdict="pass", message="no communication in the trace")
    if budget is None:
        return _unjudged("no-steps", "no steps: the share of exposed communication in a step is not known")
    part = budget.exposed_comm_ns / budget.span_ns if budget.span_ns else 0.0
    if part < HIDDEN_SHARE:
        return Verdict(
            code="", name="", verdict="pass", message=f"communication is hidden ({part:.1%} of the step)"
        )
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity=_severity(part),
        message=f"communication that compute does not hide takes {_ms(budget.exposed_comm_ns)} of each {_ms(budget.span_ns)} step",
        evidence=tuple(
            Evidence(
                source=study.rank.source,
                at=f"{row['count']} kernels",
                text=f"{row['name'][:80]}: {row['total_ns'] / 1e6:.1f} ms in the trace",
            )
            for row in study.rank.comm[:3]
        ),
        cost=Cost(value=round(budget.exposed_comm_ns / 1e6, 3), unit="ms/step"),
        gain=Gain(basis="none", source="one rank does not tell waiting from transfer"),
        remedy="overlap it (bucket sizes, prefetch), or find the slow rank: give the traces of all ranks",
        risk="safe",
    )


# -- shared -----------------------------------------------------------------------------------------------


def _idle_finding(
    study: Study,
    cause: str,
    *,
    says: Callable[[str, str], str],
    fine: str,
    remedy: str,
    verify: str,
    risk: Any = "safe",
    also: Sequence[str] = (),
) -> Verdict | None:
    """The verdict of a cause whose cure was replayed (or could not be)."""
    if study.rank.budget is None:
        return None
    if not study.has_host_events:
        return _unjudged(
            "no-host-events", "no runtime call launches the GPU events: the host's part is not in the trace"
        )
    cure = study.cures.get(cause)
    if cure is None:
        if study.refused is not None:
            idle = study.rank.step_idle or study.rank.idle
            return _unpredicted(study, cause, sum(idle.get(c, 0) for c in (cause, *also)))
        return Verdict(code="", name="", verdict="pass", message=fine)
    return _finding(
        study, cause, cure, says=says, fine=fine, remedy=remedy, verify=verify, risk=risk, also=also
    )


def _finding(
    study: Study,
    cause: str,
    cure: Cured,
    *,
    says: Callable[[str, str], str],
    fine: str,
    remedy: str,
    verify: str,
    risk: Any = "safe",
    also: Sequence[str] = (),
) -> Verdict:
    step, after = cure.before[1], cure.after[1]
    saved = max(step - after, 0.0)
    if also:
        # A faster host reaches whatever it waits for sooner, so this cure can save more than was its own
        # fault; it is charged with its own part only.
        idle = study.unprofiled[1].idle
        saved = min(saved, sum(idle.get(c, 0.0) for c in (cause, *also)))
    gain = _gain(cure)
    part = saved / step if step else 0.0
    # certain only as far as what recording cost is: it must save something at each of the three points
    sure = share(min(b / a if a > 0 else 1.0 for b, a in zip(cure.before, cure.after, strict=True)))
    if part < HIDDEN_SHARE:
        return Verdict(
            code="",
            name="",
            verdict="pass",
            message=f"{fine} (curing it would save {max(part, 0.0):.1%} of the step)",
        )
    severity = _severity(part) if sure >= HIDDEN_SHARE else "info"
    if severity == "error" and sure < WARNING_SHARE:
        severity = "warning"
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity=severity,
        message=says(_ms(saved), _ms(step)) + _beyond(gain),
        evidence=_cited(study, cause),
        cost=Cost(value=round(saved / 1e6, 3), unit="ms/step"),
        gain=gain,
        remedy=remedy,
        risk=risk,
        verify=verify,
    )


def _gain(cure: Cured) -> Gain:
    """The speed-up of a cure: likely by the middle point, low and high by the outer points and the error of
    the model itself. Never below 1."""
    ratios = [b / a if a > 0 else 1.0 for b, a in zip(cure.before, cure.after, strict=True)]
    expected = max(ratios[1], 1.0)
    # the error of the model is of what it changes: a cure that saves nothing is known to save nothing
    widen = 1.0 + MODEL_ERROR * min(share(expected) / WARNING_SHARE, 1.0)
    return Gain(
        speedup=round(expected, 3),
        low=round(max(min(ratios) / widen, 1.0), 3),
        high=round(max(max(ratios) * widen, 1.0), 3),
        basis="modelled",
        measured_in="time of the unprofiled step",
        saves_ms=round(max(cure.before[1] - cure.after[1], 0.0) / 1e6, 3),
        next=cure.next,
        source="replay of the recorded steps, the profiler's cost taken off",
    )


def _beyond(gain: Gain) -> str:
    if (gain.speedup or 0.0) <= TRUST_LIMIT:
        return ""
    return f"; above {TRUST_LIMIT:.0f}x the ratio is no promise, {gain.saves_ms:.1f} ms a step is"


def _severity(part: float) -> Severity:
    if part >= ERROR_SHARE:
        return "error"
    return "warning" if part >= WARNING_SHARE else "info"


def _ms(ns: float) -> str:
    ms = ns / 1e6
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 1 else f"{ms:.2f} ms"


def _cited(study: Study, cause: str) -> tuple[Evidence, ...]:
    cited = [
        Evidence(
            source=study.rank.source, at=f"t={start / 1e6:.3f} ms, {length / 1e6:.3f} ms", text=text[:160]
        )
        for start, length, text in study.evidence.get(cause, ())
    ]
    if not cited and study.rank.step_idle:
        parts = ", ".join(
            f"{name} {ns / 1e6:.2f} ms"
            for name, ns in sorted(study.rank.step_idle.items(), key=lambda item: -item[1])
            if ns > 0
        )
        cited = [Evidence(source=study.rank.source, at="median step, unprofiled", text=f"idle: {parts}")]
    return tuple(cited)


def _unpredicted(study: Study, cause: str, spent: int) -> Verdict:
    """Seen, but not replayed: the cost is what the recording shows, the profiler's part included, so that no
    severity above info is claimed."""
    span = (
        study.rank.step_budget.span_ns
        if study.rank.step_budget
        else study.rank.budget.span_ns
        if study.rank.budget
        else 0
    )
    unit = "ms/step" if study.rank.step_budget else "ms of the trace"
    if not span or spent < HIDDEN_SHARE * span:
        return Verdict(
            code="",
            name="",
            verdict="pass",
            message=f"takes less than 2 % of the {'step' if study.rank.step_budget else 'trace'} as recorded",
        )
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity="info",
        message=f"{cause} takes {_ms(spent)} of {_ms(span)} as recorded; how much of it is the profiler's own is not known ({study.refused})",
        evidence=_cited(study, cause),
        cost=Cost(value=round(spent / 1e6, 3), unit=unit),
        gain=Gain(basis="none", source=study.refused),
    )


def _unjudged(reason: str, message: str) -> Verdict:
    return Verdict(code="", name="", verdict="not-judged", reason=reason, message=message)


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


def _placed(verdict: Verdict, page: Manual, study: Study, price: float | None) -> Verdict:
    """The verdict with its code, place, sources and price."""
    where: dict[str, Any] = {"device": study.rank.device}
    if study.rank.rank is not None:
        where = {"rank": study.rank.rank, **where}
    return replace(
        verdict,
        code=page.code,
        name=page.name,
        layer="trace",
        where=where,
        cost=_priced(verdict, study, price),
        sources=page.sources if verdict.verdict == "finding" else (),
    )


def _priced(verdict: Verdict, study: Study, price: float | None) -> Cost | None:
    cost = verdict.cost
    if cost is None or cost.value is None:
        return cost
    rate, why = price, None
    if rate is None:
        spec = catalog.find_gpu(name=study.rank.gpu) if study.rank.gpu else None
        known = catalog.price(spec.key) if spec is not None else None
        if known is None:
            why = "no price known for this GPU: give one with --price"
        else:
            rate, why = known.usd_gpu_h, f"catalogue price of {known.date}"
    budget = study.rank.step_budget
    if rate is None or budget is None or not budget.span_ns or cost.unit != "ms/step":
        return replace(cost, why=why or "no step time to put it in relation to")
    step_ms = (study.unprofiled[1].step_ns if study.unprofiled else budget.span_ns) / 1e6
    return replace(
        cost, usd_per_day=round(cost.value / step_ms * rate * 24, 2), price_usd_gpu_h=rate, gpus=1, why=why
    )
