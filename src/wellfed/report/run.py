"""A watched run in words: one list of lines, which each kind of page shows."""

from wellfed.model.counting import counted
from wellfed.model.run import RankRun, RunReport

MOST_RANKS = 16


def told(report: RunReport) -> list[tuple[str, str]]:
    """What was seen, as (subject, sentence)."""
    lines: list[tuple[str, str]] = []
    for rank in report.ranks[:MOST_RANKS]:
        lines += _rank(rank, several=len(report.ranks) > 1)
    if len(report.ranks) > MOST_RANKS:
        lines.append(("ranks", f"and {len(report.ranks) - MOST_RANKS} more, in the JSON"))
    lines += _samples(report)
    ended = report.exit["reason"] if report.exit else "wellfed was killed before the command ended"
    took = "" if report.seconds is None else f", after {report.seconds:.4g} s"
    lines.append(("end", f"{ended}{took}"))
    if report.unread:
        lines.append(("lost", f"{counted(report.unread, 'ring file')} could not be read"))
    for failure in report.failures[:3]:
        lines.append(("hooks", f"switched off: {failure}"))
    return lines


def _rank(rank: RankRun, *, several: bool) -> list[tuple[str, str]]:
    name = f"rank {rank.rank}" if rank.rank is not None else f"process {rank.pid}" if several else "steps"
    step = rank.step_ms
    if step is None:
        return [(name, f"{counted(rank.steps, 'step')}, {rank.clock}: too few to time")]
    loop = f" in {rank.loop}" if rank.loop else ""
    parts = [f"{rank.steps:,} ({rank.clock}{loop}); mean {step.mean:.4g} ms, median {step.median:.4g}, p10 {step.p10:.4g} to p90 {step.p90:.4g}, n = {step.n:,}, {rank.warmup} of warm-up apart"]  # fmt: skip
    inside = [
        f"{words} {ms:.3g} ms ({ms / step.mean:.1%})"
        for words, ms in (("loader wait", rank.wait_ms), ("garbage collection", rank.gc_ms), ("on the GPU", rank.gpu_ms), ("GPU without work between steps", rank.gpu_gap_ms))
        if ms is not None and (ms > 0 or words == "loader wait")
    ]  # fmt: skip
    lines = [(name, parts[0])]
    if inside:
        lines.append(("a step", ", ".join(inside)))
    if rank.peak_gpu_bytes:
        lines.append(
            (
                "memory",
                f"at most {rank.peak_gpu_bytes / 2**30:.3g} GiB reserved on the GPU, {rank.alloc_retries} retries",
            )
        )
    if rank.skipped_steps:
        lines.append(("scaler", f"{rank.skipped_steps} steps left out, since a gradient was not finite"))
    if rank.slow_n:
        shown = "; ".join(
            f"step {slow.number} took {slow.ms:.4g} ms: {slow.because}" for slow in rank.slow[:3]
        )
        lines.append(("slow", f"{counted(rank.slow_n, 'step')} of 1.5 times the median or more; {shown}"))
    if rank.shift:
        shift = rank.shift
        lines.append(
            (
                "change",
                f"from step {shift.number:,} on a step takes {shift.after_ms:.4g} ms, {shift.before_ms:.4g} before",
            )
        )
    hooks = rank.hooks
    cost = f"{hooks.us:.3g} us a step ({hooks.low_us} to {hooks.high_us}, {hooks.pairs} pairs of blocks)" if hooks.us is not None else f"not measured: {hooks.why}"  # fmt: skip
    if hooks.own_us is not None:
        cost += f"; {hooks.own_us:.3g} us by their own clock"
    lines.append(("our hooks", cost))
    for subject, text in (("trace", rank.trace), ("ended by", rank.ended_by), ("lost", rank.lost)):
        if text:
            lines.append((subject, text))
    return lines


def _samples(report: RunReport) -> list[tuple[str, str]]:
    seen, lines = report.samples, []
    if seen.get("busy_cores") is not None:
        busiest = ", ".join(f"{name} {pct:.0f} %" for name, pct in list(seen["threads_pct"].items())[:4])
        lines.append(
            (
                "CPU",
                f"{seen['busy_cores']:.3g} cores busy ({busiest}); at most {seen['rss_peak_bytes'] / 2**30:.3g} GiB resident",
            )
        )
    if seen.get("throttled_s"):
        lines.append(("quota", f"the CPU quota stopped processes for {seen['throttled_s']:.3g} s"))
    for gpu in seen.get("gpus", []):
        if gpu["util_pct"] is None:
            continue
        throttled = "".join(
            f", {reason} {share:.0%} of the time"
            for reason, share in gpu["throttled"].items()
            if share >= 0.01
        )
        lines.append((f"GPU {gpu['index']}", f"{gpu['util_pct']:.0f} % with a kernel, at most {gpu['mem_peak_bytes'] / 2**30:.3g} of {gpu['mem_total_bytes'] / 2**30:.3g} GiB{throttled}"))  # fmt: skip
    return lines
