"""What a recording lacks that would have told more, and the option that records it.

Only what matters for the recording at hand is named: records of synchronisation where streams wait for each other,
stacks where the host is silent, ranks where it communicates.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wellfed.analyze.study import Study
from wellfed.model.timeline import Cat, Timeline
from wellfed.model.trace import RankTrace

FEW_STEPS = 3
"""Below this a median says nothing, and how much steps differ is not known."""
FIRST_STEP = 1.5
"""The first step against the median of the others, from here on it is warm-up."""
START_UP = ("compile-stall", "allocator-churn", "profiler-overhead")
START_UP_SHARE, MATTERS = 0.05, 0.05
PYTORCH, NSYS, JAX, ROCPROF = "kineto", "nsys", "jax", "rocprof"


@dataclass(frozen=True, kw_only=True)
class Lack:
    """One thing: `lacks` in a few words, `unsaid` what the recording cannot tell without it, `option` what to add.
    `needed`: without it there is no budget, no cause or no gain."""

    slug: str
    lacks: str
    unsaid: str
    option: str
    needed: bool = False


def lacks_of(timeline: Timeline, study: Study) -> tuple[Lack, ...]:
    """What the recording of one rank and device lacks, what is needed first. A timeline that was cut has the steps that
    were asked for, so that their number is no fault."""
    found = [
        *_activities(timeline, study),
        *_steps(timeline, study.rank),
        *_shapes(timeline),
        *_graphs(timeline),
        *_stacks(timeline, study.rank),
        *_waits(timeline, study.rank),
        *_rank(timeline, study.rank),
    ]
    return tuple(sorted(found, key=lambda lack: not lack.needed))


def _has(timeline: Timeline, *cats: Cat) -> bool:
    return bool(np.isin(timeline.cat, cats).any())


def _activities(timeline: Timeline, study: Study) -> Iterator[Lack]:
    kind = timeline.kind
    if study.rank.budget is None:
        if timeline.window is None:
            yield Lack(
                slug="no-gpu-events",
                lacks="GPU activity",
                unsaid="everything about the GPU",
                option={
                    PYTORCH: "`activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`; if it was set, no other tool may hold CUPTI (nsys, DCGM, a second profiler)",
                    NSYS: "`--trace=cuda,nvtx,osrt`; if it was set, `CuptiUseRawGpuTimestamps=false`",
                    JAX: "`options.device_tracer_level = 1`, and access to CUPTI",
                    ROCPROF: "`rocprofv3 --sys-trace`",
                }.get(kind, "the GPU's activity"),
                needed=True,
            )
        return
    if not _has(timeline, Cat.RUNTIME, Cat.DRIVER):
        yield Lack(
            slug="no-launches",
            lacks="launch calls",
            unsaid="why the GPU was idle",
            option={
                PYTORCH: "`activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`",
                NSYS: "`--trace=cuda,nvtx,osrt`",
                JAX: "`options.host_tracer_level = 2`",
                ROCPROF: "`rocprofv3 --hip-trace` or `--sys-trace`",
            }.get(kind, "calls of the runtime"),
            needed=True,
        )
    if kind == PYTORCH and not _has(timeline, Cat.OP, Cat.ANNOTATION):  # replays of a graph have no operators
        yield Lack(
            slug="no-operators",
            lacks="the host's operators",
            unsaid="what the host did between launches, and who launched a kernel",
            option="`ProfilerActivity.CPU` among the activities",
            needed=True,
        )
    if kind == JAX and not _has(timeline, Cat.OP, Cat.ANNOTATION):
        yield Lack(
            slug="no-host-tracer",
            lacks="the host's own events",
            unsaid="steps, and what the host did between launches",
            option="`options.host_tracer_level = 2`",
            needed=True,
        )


def _steps(timeline: Timeline, rank: RankTrace) -> Iterator[Lack]:
    if rank.budget is None:
        return
    mark = {
        PYTORCH: "`prof.step()` at the end of each step, with `schedule(skip_first=10, wait=1, warmup=2, active=4)`",
        NSYS: '`with torch.cuda.nvtx.range(f"step {i}")` around each step',
        JAX: '`with jax.profiler.StepTraceAnnotation("train", step_num=i)` around each step, with a host tracer',
        ROCPROF: "roctx ranges around each step, and `--marker-trace`",
    }.get(timeline.kind, "a mark at each step")
    if not rank.steps:
        yield Lack(
            slug="no-steps",
            lacks="steps",
            unsaid="times of a step, and every gain",
            option=mark,
            needed=True,
        )
        return
    if timeline.window is not None:
        return
    if timeline.kind == PYTORCH and rank.step_source != "ProfilerStep":
        yield Lack(
            slug="guessed-steps",
            lacks=f"marked steps (they are taken from {rank.step_source})",
            unsaid="where a step begins",
            option=mark,
        )
    if len(rank.steps) < FEW_STEPS:
        yield Lack(
            slug="few-steps",
            lacks=f"steps enough: {len(rank.steps)}",
            unsaid="how much steps differ; the interval of every gain",
            option={PYTORCH: "`active=4`"}.get(timeline.kind, "record five steps"),
        )
    first = _warm_up(rank)
    if first:
        yield Lack(
            slug="warm-up",
            lacks=f"a warm-up before it: {first}",
            unsaid="which costs come again in later steps",
            option={
                PYTORCH: "`schedule(skip_first=10, wait=1, warmup=2, active=4)`",
                NSYS: "`--capture-range=cudaProfilerApi`, and start it after ten steps",
                JAX: "run ten steps before `start_trace`",
            }.get(timeline.kind, "start after ten steps"),
        )


def _warm_up(rank: RankTrace) -> str:
    """What of the start is in the recording, in words; empty when nothing is seen of it."""
    spans = [part["span_ns"] for part in rank.step_parts]
    if len(spans) > FEW_STEPS:
        rest = float(np.median(spans[1:]))
        if spans[0] > FIRST_STEP * rest > 0:
            return f"the first step took {spans[0] / rest:.1f} times as long as the others"
    budget = rank.budget
    assert budget is not None
    whole = sum(rank.idle.get(cause, 0) for cause in START_UP)
    inside = sum(part["idle"].get(cause, 0) for part in rank.step_parts for cause in START_UP)
    if whole - inside > START_UP_SHARE * budget.span_ns:
        return f"{(whole - inside) / budget.span_ns:.0%} of it is loading, allocating and the profiler's own start"
    return ""


def _shapes(timeline: Timeline) -> Iterator[Lack]:
    if timeline.kind == PYTORCH and not timeline.shapes and _has(timeline, Cat.OP):
        yield Lack(
            slug="no-shapes",
            lacks="arguments of operators",
            unsaid="rooflines, precision, fusion, size of the batch",
            option="`record_shapes=True`",
        )


def _graphs(timeline: Timeline) -> Iterator[Lack]:
    if timeline.kind == NSYS and any(w.code == "graph-as-one" for w in timeline.warnings):
        yield Lack(
            slug="graphs-as-one",
            lacks="kernels inside CUDA graphs",
            unsaid="compute against communication, kernels, and idle time inside a graph",
            option="`--cuda-graph-trace=node`",
        )


def _share(rank: RankTrace, *causes: str) -> float:
    budget, idle = (
        (rank.step_budget, rank.step_idle) if rank.step_budget is not None else (rank.budget, rank.idle)
    )
    return sum(idle.get(cause, 0) for cause in causes) / budget.span_ns if budget and budget.span_ns else 0.0


def _stacks(timeline: Timeline, rank: RankTrace) -> Iterator[Lack]:
    if (
        timeline.kind == PYTORCH
        and _has(timeline, Cat.OP)
        and not _has(timeline, Cat.PYTHON)
        and _share(rank, "host-stall", "host-sync") >= MATTERS
    ):
        yield Lack(
            slug="no-stacks",
            lacks="stacks",
            unsaid="which line of code waits or is silent",
            option="`with_stack=True`, in a recording of its own: it slows the host",
        )


def _waits(timeline: Timeline, rank: RankTrace) -> Iterator[Lack]:
    if (
        timeline.kind == PYTORCH
        and _share(rank, "dependency-wait", "queue-wait") >= MATTERS
        and not _has(timeline, Cat.SYNC)
    ):
        yield Lack(
            slug="no-sync-events",
            lacks="records of synchronisation",
            unsaid="which stream waits for which",
            option="`experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)`",
        )


def _rank(timeline: Timeline, rank: RankTrace) -> Iterator[Lack]:
    if rank.comm_ns and timeline.rank is None:
        yield Lack(
            slug="no-rank",
            lacks="the number of its rank",
            unsaid="which rank holds the others up",
            option="a file for each rank with its number in the name: `trace_rank0.json.gz`",
        )
