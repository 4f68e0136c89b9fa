"""A comparison of two commands, for the terminal."""

from wellfed.model.ab import AbResult
from wellfed.predict.two_commands import least_pairs


def render(result: AbResult) -> str:
    """The verdict first, then the numbers it stands on."""
    d = result.decision
    lines = [headline(result), ""]
    for name, text, median, spread in (
        ("A", result.a, result.median_a, result.spread_pct[0]),
        ("B", result.b, result.median_b, result.spread_pct[1]),
    ):
        lines.append(
            f"  {name}  median {median:.4g} {result.unit}".rstrip() + f", middle 80 % within {spread:.1f} %"
        )
        lines.append(f"     {text}")
    lines += ["", f"  {_interval(result)}"]
    if d.bootstrap is not None:
        lines.append(f"  bootstrap of the same pairs: {d.bootstrap[0]:.3f} to {d.bootstrap[1]:.3f}")
    lines.append(
        f"  {d.n} pairs in turn (A B, B A, ...), {len(result.warmup)} warm-up runs apart, {result.seconds:.0f} s; "
        f"{result.stopped}"
    )
    if result.noise.get("steal_pct", 0) >= 1:
        lines.append(f"  meanwhile the hypervisor took {result.noise['steal_pct']:.2g} % of the CPU time")
    return "\n".join(lines) + "\n"


def headline(result: AbResult) -> str:
    d = result.decision
    percent = abs(d.ratio - 1) * 100
    if d.verdict == "no difference":
        return f"no difference: {d.ruled_out:.0%} or more is ruled out"
    if d.verdict == "undecided":
        few = d.low is None
        why = (
            f"{d.n} pairs are too few to tell: at least {least_pairs(d.confidence)}"
            if few
            else f"{d.n} pairs neither show a difference nor rule one of {d.ruled_out:.0%} out"
        )
        return f"undecided: {why}"
    timed = result.unit in ("s", "ms")
    word = {"better": "faster", "worse": "slower"}[d.verdict] if timed else d.verdict
    return f"B is {word}: {percent:.1f} % {'more' if d.ratio > 1 else 'less'} {_noun(result)}"


def _noun(result: AbResult) -> str:
    return {"wall": "time", "step": "time a step"}.get(result.metric, f"of {result.metric}")


def _interval(result: AbResult) -> str:
    d = result.decision
    text = f"B over A: {d.ratio:.3f}"
    if (d.low is None or d.high is None) and d.verdict == "no difference" and d.within is not None:
        return (
            f"{text} ({d.within[0]:.3f} to {d.within[1]:.3f} at {d.within_confidence:.0%}, this look alone)"
        )
    if d.low is None or d.high is None:
        return f"{text}; no interval from {d.n} pairs"
    return f"{text} ({d.low:.3f} to {d.high:.3f} at {d.confidence:.0%}, all looks counted)"
