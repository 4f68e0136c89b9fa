"""Copies between host and device that nothing hides."""

from wellfed import catalog
from wellfed.analyze import Study
from wellfed.analyze.copies import EXPOSED, LINK, Copies
from wellfed.check.manual import rule
from wellfed.check.trace.verdicts import HIDDEN_SHARE, cure_finding, ms_text, unpredicted
from wellfed.model import Evidence, Gain, Verdict
from wellfed.model.base import replace

PREFETCH = (
    "pinned memory and .to(device, non_blocking=True) under torch.cuda.stream(side), one batch ahead; the step's"
    " stream waits for the side stream (wait_stream) before it uses the batch"
)
FETCH_LATER = (
    "copy_(result, non_blocking=True) into one of two pinned buffers under torch.cuda.stream(side), and read it a step"
    " later"
)

FEWER = "; the link is full then: fewer bytes over it (inputs in uint8 or bf16, what fits kept on the GPU)"
FEW = 0.05
"""Less of the copies' time than this does not name them."""


@rule("T190", "exposed-copy", layer="trace", severity="error", trust="read")
def judge_copies(study: Study) -> Verdict | None:
    """The GPU does nothing but copy from and to the host, while it could compute.

    What it looks at. Copies between host and device of memory that is not pageable (see pageable-copy for that), and the
    time of a step in which the device does nothing else.

    Why it costs. Copy engines work beside the compute units; a copy queued on the stream of the kernels, or used as soon as
    it is asked for, keeps them waiting for the link.

    How it is judged. The step is replayed, the profiler's cost taken off, with copies to the device a batch ahead on a stream
    of their own, at the rate that was recorded, and those to the host on another, read a step later. A link that is busy all
    the step stays so: then the step takes as long as the copies. As the low end, a result that the host waits for is still
    waited for, and a copy to the device after such a wait stays where it is: its data may depend on the result. Results
    under 1 MiB are asked for, not copied (see host-sync); copies in a CUDA graph stay. Without a replay the
    recorded time is stated, unless the device computes too little to hide any of it.

    Remedy. A prefetch on a side stream (`torch.cuda.stream`, `wait_stream`, `record_stream`) from pinned memory with
    `non_blocking=True`; two buffers for what is fetched. Where the link is full: fewer bytes (uint8 or bf16 inputs, work
    that stays on the GPU).

    Restore. Copy on the step's own stream again.

    When to ignore. Where each copy depends on the result of the step before (offloaded optimizers, experts that are
    chosen first).

    Sources. CUDA C++ Programming Guide, overlap of data transfer and kernel execution; PyTorch documentation of CUDA streams and of pin_memory
    """
    copies, budget = study.copies, study.rank.budget
    if budget is None:
        return None
    cure = study.cures.get(EXPOSED)
    if cure is None and study.refused is None:
        return _pass("no copy between host and device that the GPU waits for")
    if cure is None:
        return _as_recorded(study, copies)
    fetched = 2 * copies.to_host_ns > copies.exposed_ns
    verdict = cure_finding(
        study,
        EXPOSED,
        cure,
        says=lambda ms, step: f"{_named(copies)} keep the GPU from computing {ms} of each {step} step",
        fine="copies between host and device cost next to nothing",
        remedy=(FETCH_LATER if fetched else PREFETCH) + (FEWER if cure.next == LINK else ""),
        verify="wellfed trace after.json.gz",
        own_ns=float(copies.exposed_ns),
    )
    return _cited(verdict, study) if verdict.verdict == "finding" else verdict


IN_PLACE = (
    "not replayed: how often kernels read the data, and from which memory they would, is not in a trace"
)


@rule("T280", "pinned-copy-needless", layer="trace", severity="info", trust="read")
def judge_needless(study: Study) -> Verdict | None:
    """Pinned memory is copied to a GPU that could read it where it is.

    What it looks at. Copies from pinned host memory to the device, hidden or not, on parts that are joined to their CPU
    by NVLink-C2C (GH200, GB200, GB300, GB10, by the catalogue). On all others this rule says nothing.

    Why it costs. On these parts CPU and GPU share one page table: a kernel may read host memory as it stands, at up to the
    rate of the link. A copy reads and writes all of it first, and the kernel reads it again.

    How it is judged. A note from 2 % of the step on, without a gain: whether reading in place is faster is not known
    from a trace. Data that is read once, or in part, gains; data that is read again and again (weights, activations) is
    better copied once, for the GPU's own memory is several times as fast.

    What is known of the gain. Nothing is published for a training step.

    Remedy. For inputs that one kernel reads once (decoding, augmentation, gathering of embeddings, offloaded optimizer
    states) hand the kernel the host's memory itself, then compare the step. Copy what is read more than once as before.

    Restore. Copy again.

    When to ignore. Where the copied data is read more than once, or the copies hide behind compute.

    Sources. CUDA Programming Guide, Unified Memory: hardware-coherent systems, address translation services over NVLink-C2C
    """
    spec = catalog.find_gpu(name=study.rank.gpu) if study.rank.gpu else None
    budget = study.rank.step_budget or study.rank.budget
    if budget is None or spec is None or not spec.value("c2c_bidir_gbs"):
        return None
    copies = study.copies
    if copies.pinned_up_ns < HIDDEN_SHARE * budget.span_ns or not budget.span_ns:
        return _pass("copies of pinned memory to the device take next to no time")
    size = f" ({copies.pinned_up_bytes / 1e6:.1f} MB)" if copies.pinned_up_bytes else ""
    whole = "step" if study.rank.step_budget else "trace"
    verdict = Verdict(
        code="",
        name="",
        verdict="finding",
        severity="info",
        message=f"copies of pinned memory to the device{size} take {ms_text(copies.pinned_up_ns)} of the"
        f" {ms_text(budget.span_ns)} {whole}; this GPU can read that memory in place over NVLink-C2C. Whether that is"
        " faster is not known: it is for data read once, not for data read again",
        gain=Gain(basis="none", source=IN_PLACE),
        remedy="hand kernels that read an input once the pinned memory itself, compare the step, keep what is faster",
        risk="safe",
        verify="wellfed trace after.json.gz",
    )
    return _cited(verdict, study, copies.pinned_up_lines)


def _as_recorded(study: Study, copies: Copies) -> Verdict:
    """What the recording shows where nothing was replayed. Beside each other, compute and copies take as long as the
    longer of the two: less compute than that hides no more."""
    step = study.rank.step_budget or study.rank.budget
    assert step is not None
    spent, compute = copies.exposed_ns, step.compute_ns
    if spent >= HIDDEN_SHARE * step.span_ns and min(spent, compute) < HIDDEN_SHARE * step.span_ns:
        return _pass(
            f"{_named(copies)} take {ms_text(spent)} of {ms_text(step.span_ns)} as recorded; compute, {ms_text(compute)},"
            " is too short to hide them"
        )
    verdict = unpredicted(study, EXPOSED, spent)
    if verdict.verdict != "finding":
        return verdict
    message = (
        f"{_named(copies)} keep the GPU from computing {ms_text(spent)} of {ms_text(step.span_ns)} as recorded; beside the"
        f" {ms_text(compute)} of compute at most {ms_text(min(spent, compute))} of that could hide ({study.refused})"
    )
    remedy = PREFETCH + (FEWER if compute < spent else "")
    return _cited(replace(verdict, message=message, remedy=remedy, risk="safe"), study)


def _named(copies: Copies) -> str:
    memory = "pinned memory" if copies.pinned else "host memory that is not said to be pageable"
    rate = f" at {copies.gbs:.1f} GB/s" if copies.gbs else ""
    part = copies.to_host_ns / copies.exposed_ns if copies.exposed_ns else 0.0
    way = "from" if part < FEW else "to" if part > 1 - FEW else "from and to"
    return f"copies {way} {memory}{rate}"


def _cited(
    verdict: Verdict, study: Study, longest: tuple[tuple[int, int, str], ...] | None = None
) -> Verdict:
    lines = tuple(
        Evidence(
            source=study.rank.source, at=f"t={start / 1e6:.3f} ms, {length / 1e6:.3f} ms", text=text[:160]
        )
        for start, length, text in (study.copies.lines if longest is None else longest)
    )
    return replace(verdict, evidence=lines or verdict.evidence)


def _pass(message: str) -> Verdict:
    return Verdict(code="", name="", verdict="pass", message=message)
