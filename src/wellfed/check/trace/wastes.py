"""Wastes on a busy device: precision, optimizer, attention, elementwise chains, small batches, operators below the roof."""

from collections.abc import Callable

from wellfed.analyze import Study
from wellfed.check.manual import rule
from wellfed.check.trace.verdicts import HIDDEN_SHARE, gain_of, ms_text, severity_of, unjudged
from wellfed.model import Cost, Evidence, Gain, Verdict
from wellfed.model.trace import OpRoof, Roofline
from wellfed.model.verdict import Alternative, Severity
from wellfed.predict.compose import share

OPPORTUNITY = 1.5
"""On a busy device a cure is a chance, not a fault: above info only when worth more than this (DESIGN)."""
BUSY = 0.8
"""A device that works less of its step than this is not busy: then what keeps the host at work is a fault."""
FAR_BELOW_PCT = 50.0
AUTOCAST = {
    "bf16": 'torch.autocast("cuda", torch.bfloat16) around forward and loss; compare the loss of a short run',
    "fp16": 'torch.autocast("cuda", torch.float16) around forward and loss, torch.amp.GradScaler around the backward'
    " pass; compare the loss of a short run",
}
"""The remedy by the precision that the GPU's matrix units take: those before Ampere have no bf16."""


def _waste(study: Study, name: str, *, says: str, fine: str, remedy: str) -> Verdict | None:
    """The verdict of a waste whose cure was replayed."""
    if study.rank.budget is None:
        return None
    if not study.roof_known:
        return unjudged("unknown-gpu", "the GPU is not in the catalogue: what it could do is not known")
    if study.refused is not None:
        return unjudged("no-replay", f"what a cure would save is not known: {study.refused}")
    waste, cure = study.wastes.get(name), study.cures.get(name)
    if waste is None and not study.shapes_known and not study.has_host_events:
        return unjudged("no-shapes", "neither operators nor their arguments were recorded")
    if waste is None or cure is None:
        return Verdict(code="", name="", verdict="pass", message=fine)
    step = cure.before[1]
    saved = max(step - cure.after[1], 0.0)
    part = saved / step if step else 0.0
    if part < HIDDEN_SHARE:
        why = (
            "curing it would save" if part > 0 else "the step waits for something else: curing it would save"
        )
        return Verdict(
            code="", name="", verdict="pass", message=f"{fine or waste.text} ({why} {part:.1%} of the step)"
        )
    gain = gain_of(cure)
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity=_severity(study, part, gain),
        message=f"{waste.text}: {ms_text(waste.kernel_ns)} of kernels in each {ms_text(step)} step; {says} {ms_text(saved)}",
        evidence=tuple(
            Evidence(source=study.rank.source, at=f"t={at / 1e6:.3f} ms", text=text)
            for at, text in waste.lines
        ),
        cost=Cost(value=round(saved / 1e6, 3), unit="ms/step"),
        gain=gain,
        remedy=remedy,
        risk="safe",
        verify="wellfed trace after.json.gz",
        alternatives=tuple(
            Alternative(remedy=what, gain=gain_of(other))
            for what in waste.others
            if (other := study.cures.get(f"{name}/{what}")) is not None
        ),
    )


def _severity(study: Study, part: float, gain: Gain) -> Severity:
    """Info, unless it is worth more than 1.5 times, or the device is not busy. What the low end of the interval does
    not carry is not claimed."""
    free = study.unprofiled[1]
    busy = free.busy_ns >= BUSY * free.step_ns
    sure = share(gain.low or 1.0)
    if (busy and (gain.speedup or 1.0) <= OPPORTUNITY) or sure < HIDDEN_SHARE:
        return "info"
    found = severity_of(part)
    return "warning" if found == "error" and sure < 0.05 else found


@rule("T310", "slow-precision", layer="trace", severity="error", trust="measured")
def judge_precision(study: Study) -> Verdict | None:
    """Matrix products run in fp32 or tf32 while faster 16-bit units idle.

    What it looks at. GEMM, convolution and attention kernels whose name or arguments say fp32 or tf32, on a GPU whose
    bf16 (or fp16) peak is higher.

    Why it costs. fp32 products do not use the matrix units at all (on an H200 67 of 989 TFLOP/s), tf32 half of them.
    Twice the bytes are moved besides.

    How it is judged. Each product gets the time of a good bf16 kernel of its shape: 60 to 88 % of the dense peak or of
    the memory's rate, whichever is less, and 2 to 5 us. So a product that the memory bounds gains at most what half the
    bytes give, a factor of two. Convolutions reach 30 to 75 % of the peak, from tf32 they take 40 to 75 % of their time,
    changes of layout 50 to 100 % (at most half where the arguments were NHWC already), one that runs as tiles on several
    streams becomes one kernel, and batch norms in NCHW may get slower: cuDNN's does not take bf16. Where arguments were
    not recorded, kernels whose names tell the unit get the ratio of what the units reach, once to twice the time that
    gives. Casts that autocast adds are put on the device and on the host. The step is replayed, the profiler's cost taken off: where the host
    bounds the step then, that is what the gain says.

    Remedy. `torch.autocast("cuda", torch.bfloat16)` around forward and loss (fp16 with `GradScaler` where bf16 is
    missing), `model.to(torch.bfloat16)` for inference; or only `torch.set_float32_matmul_precision("high")`, which
    keeps fp32 storage and uses tf32.

    Restore. Take the autocast out again.

    When to ignore. Work whose accuracy needs fp32: compare a short run's loss first.

    Sources. PyTorch documentation of autocast and of tf32 on Ampere; measured: loops in fp32 and tf32 and the same in bf16 (docs/validation/wastes.md)
    """
    waste = study.wastes.get("slow-precision")
    to = waste.to if waste is not None else "bf16"
    return _waste(
        study,
        "slow-precision",
        says=f"in {to} a step would take less by",
        fine="products run in the fast precision, or take next to no time",
        remedy=AUTOCAST[to],
    )


@rule("T320", "unfused-optimizer", layer="trace", severity="error", trust="measured")
def judge_optimizer(study: Study) -> Verdict | None:
    """The optimizer updates tensor by tensor, or list by list.

    What it looks at. Kernels launched inside `Optimizer.step` that are not of a `_fused_` operator, for optimizers that
    have a fused form (Adam, AdamW, SGD, Adagrad).

    Why it costs. The for-loop form launches about ten kernels a tensor, the foreach form passes about ten times over
    all parameters and states; the fused form reads and writes each once.

    How it is judged. One pass: gradient, parameter and states read, parameter and states written, at 65 to 88 % of the
    memory's rate. Without recorded arguments the size of the parameters is told by the time of the operators whose passes
    are known. The launches go, and with them the host's time for them but for up to 40 %; the host keeps 0.04 to 0.2 ms
    and 2.5 to 8 us a tensor. The step is replayed, the profiler's cost taken off.

    Remedy. `fused=True` (`torch.optim.AdamW(params, fused=True)`).

    Restore. Take `fused=True` out again; the state is the same.

    When to ignore. Parameters in a type or on a device that the fused form does not take.

    Sources. PyTorch documentation of torch.optim; measured: for-loop and foreach AdamW and the same fused (docs/validation/wastes.md)
    """
    return _waste(
        study,
        "unfused-optimizer",
        says="fused, a step would take less by",
        fine="the optimizer is fused, or takes next to no time",
        remedy="fused=True for the optimizer",
    )


@rule("T330", "unfused-attention", layer="trace", severity="error", trust="measured")
def judge_attention(study: Study) -> Verdict | None:
    """Attention is written out: every score goes through memory.

    What it looks at. Softmaxes over scores (queries times keys) between two batched products, and everything else that
    reads or writes tensors of that size: masks, scaling, dropout, casts, and their backward.

    Why it costs. The scores grow with the square of the length and are read and written five to ten times. A fused
    kernel keeps them in the registers.

    How it is judged. One fused kernel forward, one backward, by their FLOPs at 28 to 60 % (backward 20 to 45 %) of the
    peak, half of them where a mask is seen (it may be causal), and Q, K, V, O once over memory. Where arguments were not
    recorded, a softmax between batched products is attention, its scores as many as it can have gone over in its time,
    heads 64 to 128 long. Its host time of 40 to
    120 us a call is put in, that of the kernels gone taken out. The step is replayed, the profiler's cost taken off.

    Remedy. `torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=...)`; for masks of another form
    FlexAttention.

    Restore. Call the old function again.

    When to ignore. When the weights themselves are needed (to show them, or for a loss): the trace cannot tell.

    Sources. Dao 2023, FlashAttention-2 (arXiv 2307.08691); PyTorch documentation of scaled_dot_product_attention; measured: docs/validation/wastes.md
    """
    return _waste(
        study,
        "unfused-attention",
        says="fused, a step would take less by",
        fine="no attention with its scores in memory, or it takes next to no time",
        remedy="torch.nn.functional.scaled_dot_product_attention in place of bmm, softmax and bmm",
    )


@rule("T340", "unfused-elementwise", layer="trace", severity="error", trust="measured")
def judge_elementwise(study: Study) -> Verdict | None:
    """Chains of elementwise kernels go over memory once for each operation.

    What it looks at. Three and more kernels in a row, launched by one thread on one stream, that do little arithmetic
    over equally many elements (with the statistics of rows in between): activations, residuals, norms written out,
    casts. Not those that the optimizer or an attention written out is charged with, nor what is compiled already.

    Why it costs. Each reads and writes the whole tensor, at the memory's speed. One kernel for the chain reads what comes
    from outside and writes the result.

    How it is judged. One kernel a chain, of at most 64: 1 to 2 tensors read (backward: 1.5 to 3; one more where rows are
    reduced on the way) and one written, at the rate that the chain's own kernels reached, else 65 to 88 % of the memory's;
    30 to 75 us of host time for each call of a compiled function, in training 2.5 times that, in place of the dispatch of
    its operators. A chain that repeats itself is taken as one call a turn. Without recorded arguments the fused kernel
    takes as long as one of the chain's shorter large ones. The low end counts only the chains that give a fifth of the
    saving: who compiles one function leaves the rest. The step is replayed, the profiler's cost taken off.

    Remedy. `torch.compile` for the function that holds the chain, or for the model.

    Restore. Take the compile call out again.

    When to ignore. When shapes change at every call, so that it would compile anew.

    Sources. PyTorch documentation of torch.compile; measured: chains eager and compiled (docs/validation/wastes.md)
    """
    return _waste(
        study,
        "unfused-elementwise",
        says="compiled, a step would take less by",
        fine="no chains of elementwise kernels that take time",
        remedy="torch.compile the function that holds the chain, or the model",
    )


@rule("T350", "small-batch", layer="trace", severity="info", trust="read")
def judge_batch(study: Study) -> Verdict | None:
    """Products stream their weights for few rows: a larger batch costs next to nothing.

    What it looks at. GEMMs that the memory bounds because they have few rows (decoding, small batches), and their share
    of the step.

    Why it costs. The weights are read in full whether for one row or for two hundred: FLOPs a byte are twice the rows, far
    below what the device needs to be busy.

    How it is judged. By the kernels' time in such products, from 20 % of the step: info. More rows mean more output for
    the same step, not a shorter step: so no speed-up of the step is stated.

    Remedy. A larger batch or continuous batching; speculative decoding; weights in fp8 or int4, which halves or quarters
    the bytes.

    When to ignore. When latency of a single request is what counts.

    Sources. Williams, Waterman, Patterson 2009 (the roofline model)
    """
    return _over_roofline(study, _few_rows_told)


def _few_rows_told(study: Study, roof: Roofline, step_ns: int) -> Verdict:
    few = [row for row in roof.rows if _few_rows(row, roof.bytes_per_s)]
    spent = sum(row.kernel_ns for row in few)
    part = spent / step_ns if step_ns else 0.0
    if part < 0.20:
        return Verdict(code="", name="", verdict="pass", message="no products starve for rows")
    return _look_here(
        study,
        few,
        spent,
        says=f"products with few rows take {ms_text(spent)} of each {ms_text(step_ns)} step to read their weights; more rows a step would cost next to nothing",
        no_gain="more rows a step: more output, not a shorter step",
        remedy="a larger batch (continuous batching), or weights in fewer bits",
    )


def _few_rows(row: OpRoof, bytes_per_s: float | None) -> bool:
    return (
        row.family == "gemm"
        and row.bound in ("memory", "latency")
        and row.flops_per_call > 0
        and bytes_per_s is not None
        and 0 < row.flops_per_byte < 64
        and row.achieved_bytes_per_s > 0.2 * bytes_per_s
    )


@rule("T360", "low-roofline", layer="trace", severity="info", trust="read")
def judge_roofline(study: Study) -> Verdict | None:
    """Operators run far below what the device can do for their shapes.

    What it looks at. FLOPs and bytes of each operator by its recorded arguments, against the time of its kernels and the
    ceilings of the device (measured ones where given, else the catalogue's dense peaks).

    Why it costs. The time above the roof is what a better kernel, layout or shape could save at most.

    How it is judged. Info only, from 10 % of the step above the roof: a list of where to look. No roof is ever reached in
    full: 75 to 85 % is good.

    Remedy. By operator: `channels_last` for convolutions, sizes that are multiples of 8 (64 for fp8), larger tiles of
    work, a compiled or library kernel.

    When to ignore. Operators that a cure of another finding takes away.

    Sources. Williams, Waterman, Patterson 2009 (the roofline model); catalogue of GPUs
    """
    return _over_roofline(study, _low_roofline)


def _low_roofline(study: Study, roof: Roofline, step_ns: int) -> Verdict:
    low = [row for row in roof.rows if row.of_roof_pct is not None and row.of_roof_pct < FAR_BELOW_PCT]
    above = sum(row.above_roof_ns or 0.0 for row in low)
    if above < 0.10 * step_ns:
        return Verdict(
            code="", name="", verdict="pass", message="what runs far below its roof takes little time"
        )
    top = max(low, key=lambda row: row.above_roof_ns or 0.0)
    return _look_here(
        study,
        low,
        above,
        says=f"operators below half of their roof take {ms_text(above)} of each {ms_text(step_ns)} step more than it; most of it {top.op} ({top.of_roof_pct:.0f} % of the roof)",
        no_gain="the roof is a bound, not a kernel that exists",
        remedy="look at these first: layout (channels_last), sizes in multiples of 8, a compiled or library kernel",
    )


def _over_roofline(study: Study, judge: Callable[[Study, Roofline, int], Verdict]) -> Verdict | None:
    """What `judge` says of the roofline and the step (ns), where both are known."""
    roof, budget = study.rank.roofline, study.rank.step_budget
    if study.rank.budget is None:
        return None
    if roof is None or budget is None or not study.roof_known:
        return unjudged("no-shapes", "needs steps, the arguments of operators, and a GPU that is known")
    return judge(study, roof, budget.span_ns)


def _look_here(
    study: Study, rows: list[OpRoof], spent_ns: float, *, says: str, no_gain: str, remedy: str
) -> Verdict:
    """An info with the operators to look at. It states no speed-up: `no_gain` says why."""
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity="info",
        message=says,
        evidence=_cited(study, rows),
        cost=Cost(value=round(spent_ns / 1e6, 3), unit="ms/step"),
        gain=Gain(basis="none", source=no_gain),
        remedy=remedy,
        risk="safe",
    )


def _cited(study: Study, rows: list[OpRoof]) -> tuple[Evidence, ...]:
    ordered = sorted(rows, key=lambda row: -(row.above_roof_ns or row.kernel_ns))
    return tuple(
        Evidence(
            source=study.rank.source,
            at=f"{row.calls:g} call{'' if row.calls == 1 else 's'} a step",
            text=f"{row.op} {row.shapes} {row.precision or ''}: {row.kernel_ns / 1e6:.2f} ms, {row.achieved_flops_per_s / 1e12:.1f} TFLOP/s, {row.achieved_bytes_per_s / 1e9:.0f} GB/s, {row.of_roof_pct or 0:.0f} % of the roof ({row.bound})"[
                :200
            ],
        )
        for row in ordered[:4]
    )
