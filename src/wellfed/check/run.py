"""What a watched run says of what it lost, pure. Codes are those of traces: the same ills, told by what was timed while it ran."""

from collections.abc import Iterator

from wellfed.model import Cost, Evidence, Gain, Verdict
from wellfed.model.case import Headline
from wellfed.model.counting import counted
from wellfed.model.run import RankRun, RunReport
from wellfed.model.verdict import Severity

WARNING, ERROR = 0.05, 0.20


def judge_run(report: RunReport) -> tuple[Verdict, ...]:
    """Findings, passes and what could not be judged, for the whole run."""
    found = [*_memory(report)]
    told = [rank for rank in report.ranks if rank.step_ms is not None]
    if not told:
        why = "no step was seen" + _no_steps(report)
        return (*found, _unjudged("T110", "data-wait", why), _unjudged("T150", "host-stall", why))
    found += [*_data_wait(told), *_collection(told), *_syncs(told), *_allocator(told), *_straggler(told)]
    return tuple(found)


def headline(report: RunReport, verdicts: tuple[Verdict, ...]) -> Headline:
    """The worst finding, with how it ended where that was not well; else the pace."""
    ended = (
        (report.exit or {}).get("reason")
        if report.exit is not None
        else "wellfed was killed before the command ended"
    )
    bad = report.exit is None or (report.exit.get("code") != 0)
    first = next((v for v in verdicts if v.verdict == "finding" and v.severity != "info"), None)
    told = [rank for rank in report.ranks if rank.step_ms is not None]
    if first is not None:
        text = first.message
    elif told and told[0].step_ms is not None:
        text = f"a step takes {told[0].step_ms.median:.4g} ms, and nothing that was watched holds it up"
        if any(rank.wait_elsewhere_ms is not None for rank in told):
            text += "; what it waits for the loader's thread was not seen"
    else:
        text = f"no step was seen{_no_steps(report)}"
    return Headline(text=f"{ended}; {text}" if bad and ended else text)


def _no_steps(report: RunReport) -> str:
    if report.unread:
        return f": {counted(report.unread, 'ring file')} of this run could not be read"
    if report.processes == 0:
        return ": no Python process loaded the hooks (another language, `python -S`, `-I` or `-E`); --step-pattern can tell steps by the output"
    return (
        ": no optimizer stepped and no loader delivered; --step-fn or --step-pattern can tell what a step is"
    )


def _step_ms(rank: RankRun) -> float:
    assert rank.step_ms is not None
    return rank.step_ms.mean  # parts of a step are means too: they add up to it


def _data_wait(ranks: list[RankRun]) -> Iterator[Verdict]:
    known = [rank for rank in ranks if rank.wait_ms is not None and rank.batches]
    if not known:
        yield _unjudged("T110", "data-wait", _no_wait(ranks))
        return
    worst = max(known, key=lambda rank: _wait(rank)[0] / _step_ms(rank))
    ms, note = _wait(worst)
    if ms / _step_ms(worst) < WARNING:
        yield Verdict(code="T110", name="data-wait", verdict="pass", layer="trace", message=f"the loader keeps a step waiting {ms:.3g} of {_step_ms(worst):.4g} ms")  # fmt: skip
        return
    message = f"the loader keeps a step waiting {ms:.3g} ms of {_step_ms(worst):.4g} ms{note}"
    yield _lost(
        worst, "T110", "data-wait", ms, message,
        remedy="wellfed loader FILE:FACTORY finds the DataLoader's arguments", verify="wellfed ab 'CMD BEFORE' 'CMD AFTER' --metric step",
    )  # fmt: skip


def _no_wait(ranks: list[RankRun]) -> str:
    elsewhere = max(ranks, key=lambda rank: rank.wait_elsewhere_ms or 0.0)
    if elsewhere.wait_elsewhere_ms is None:
        return "no DataLoader of torch was used in the stepping thread"
    ms, step = elsewhere.wait_elsewhere_ms, _step_ms(elsewhere)
    return f"another thread reads the loader and waits {ms:.3g} ms a step of {step:.4g} ms for it; what the stepping thread waits for that one is not seen"


def _wait(rank: RankRun) -> tuple[float, str]:
    """What waiting for the loader costs a step: where the GPU's own gaps are known, no more than these."""
    assert rank.wait_ms is not None
    if rank.gpu_gap_ms is not None and rank.gpu_gap_ms < rank.wait_ms:
        return (
            rank.gpu_gap_ms,
            f" (the host waits {rank.wait_ms:.3g} ms, the GPU has nothing for {rank.gpu_gap_ms:.3g})",
        )
    return rank.wait_ms, ""


def _collection(ranks: list[RankRun]) -> Iterator[Verdict]:
    worst = max(ranks, key=lambda rank: (rank.gc_ms or 0.0) / _step_ms(rank))
    ms = worst.gc_ms or 0.0
    if ms / _step_ms(worst) < WARNING:
        yield Verdict(code="T150", name="host-stall", verdict="pass", layer="trace", message=f"garbage collection takes {ms:.3g} of {_step_ms(worst):.4g} ms a step")  # fmt: skip
        return
    yield _lost(
        worst, "T150", "host-stall", ms, f"Python's garbage collection takes {ms:.3g} ms of each {_step_ms(worst):.4g} ms step",
        remedy="gc.freeze() after the warm-up, or gc.disable() and gc.collect() each thousand steps", verify="wellfed ab 'CMD BEFORE' 'CMD AFTER' --metric step",
    )  # fmt: skip


def _syncs(ranks: list[RankRun]) -> Iterator[Verdict]:
    worst = max(ranks, key=lambda rank: rank.sync_ms or 0.0)
    if worst.sync_ms is None:
        yield _unjudged("T130", "host-sync", "no step was sampled for waits on a GPU")
        return
    if not worst.syncs or worst.sync_ms / _step_ms(worst) < WARNING:
        yield Verdict(code="T130", name="host-sync", verdict="pass", layer="trace", message=f"lines that wait for the GPU take {worst.sync_ms:.3g} ms of a sampled step")  # fmt: skip
        return
    lines = tuple(
        Evidence(source=site.line, text=f"{site.count} times, {site.ms:.3g} ms in the sampled steps")
        for site in worst.syncs[:3]
    )
    yield Verdict(
        code="T130", name="host-sync", verdict="finding", severity="info", layer="trace", where=_where(worst),
        message=f"lines of the program wait {worst.sync_ms:.3g} ms of each {_step_ms(worst):.4g} ms step for the GPU",
        evidence=lines, gain=Gain(basis="none", source="a wait while the GPU works costs nothing by itself: a trace tells what it costs"),
        remedy="fetch values less often, or a step later", risk="safe", verify="wellfed run --trace-step 200 -- CMD",
    )  # fmt: skip


def _allocator(ranks: list[RankRun]) -> Iterator[Verdict]:
    worst = max(ranks, key=lambda rank: rank.alloc_retries)
    if worst.peak_gpu_bytes is None:
        yield _unjudged("T170", "allocator-churn", "no CUDA allocator was seen")
    elif worst.alloc_retries == 0:
        yield Verdict(code="T170", name="allocator-churn", verdict="pass", layer="trace", message="the allocator never had to give memory back and ask again")  # fmt: skip
    else:
        yield Verdict(
            code="T170", name="allocator-churn", verdict="finding", severity="warning", layer="trace", where=_where(worst),
            message=f"the allocator gave memory back to the driver and asked again {worst.alloc_retries} times: each stops the GPU",
            gain=Gain(basis="none", source="what each took was not timed"), remedy="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or a smaller batch",
            risk="restart", verify="wellfed run -- CMD",
        )  # fmt: skip


def _straggler(ranks: list[RankRun]) -> Iterator[Verdict]:
    if len(ranks) < 2:
        return
    own = {rank: (rank.wait_ms or 0.0) + (rank.gc_ms or 0.0) for rank in ranks}
    worst = max(ranks, key=lambda rank: own[rank])
    others = sorted(own[rank] for rank in ranks if rank is not worst)
    usual = others[len(others) // 2]
    ms = own[worst] - usual
    if ms / _step_ms(worst) < WARNING or own[worst] < 2 * usual:
        yield _unjudged("T220", "straggler", "no rank waits longer for its data than the others; how long ranks wait for each other inside collectives takes traces")  # fmt: skip
        return
    message = f"rank {worst.rank} spends {ms:.3g} ms a step more than the others on its loader and garbage collection; all wait for it"
    yield _lost(
        worst,
        "T220",
        "straggler",
        ms,
        message,
        remedy="give that rank's loader what the others have",
        verify="wellfed run -- CMD",
    )


def _memory(report: RunReport) -> Iterator[Verdict]:
    reason = str((report.exit or {}).get("reason", ""))
    killed = report.samples.get("oom_kills") or 0
    if "want of memory (memory.events" in reason or killed:
        yield Verdict(
            code="T410", name="out-of-memory", verdict="finding", severity="error", layer="trace",
            message=f"the kernel killed processes of this run for want of memory; they held {report.samples.get('rss_peak_bytes', 0) / 2**30:.3g} GiB at most",
            evidence=(Evidence(source="memory.events", at="oom_kill", text=reason),), gain=Gain(basis="none"),
            remedy="fewer loader workers or smaller prefetch, or a larger memory limit", risk="restart",
        )  # fmt: skip
    by = next((rank for rank in report.ranks if rank.ended_by and "OutOfMemory" in rank.ended_by), None)
    if by is not None:
        yield Verdict(
            code="T410", name="out-of-memory", verdict="finding", severity="error", layer="trace", where=_where(by), message=f"it ended by {by.ended_by}",
            gain=Gain(basis="none"), remedy="a smaller batch, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", risk="restart",
        )  # fmt: skip


def _lost(
    rank: RankRun, code: str, name: str, ms: float, message: str, *, remedy: str, verify: str
) -> Verdict:
    """Time that was measured: curing it all gives step over rest, at most."""
    share = min(ms / _step_ms(rank), 0.999)
    severity: Severity = "error" if share >= ERROR else "warning"
    assert rank.step_ms is not None
    evidence = Evidence(source=rank.program[:120], at=f"{rank.step_ms.n} steps", text=rank.clock)
    gain = Gain(speedup=1 / (1 - share), low=1.0, high=1 / (1 - share), basis="measured", saves_ms=ms, source="its part of the measured step, all of it saved at most")  # fmt: skip
    return Verdict(
        code=code, name=name, verdict="finding", severity=severity, layer="trace", message=message, where=_where(rank), evidence=(evidence,),
        cost=Cost(value=round(ms, 4), unit="ms/step", why="no price was given"), gain=gain, remedy=remedy, risk="safe", verify=verify,
    )  # fmt: skip


def _where(rank: RankRun) -> dict[str, int]:
    return {} if rank.rank is None else {"rank": rank.rank}


def _unjudged(code: str, name: str, why: str) -> Verdict:
    return Verdict(code=code, name=name, verdict="not-judged", reason="not-seen", layer="trace", message=why)
