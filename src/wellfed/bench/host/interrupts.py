"""Interrupts and softirqs of one CPU, read before and after: who took the time."""

from collections.abc import Mapping
from pathlib import Path

Counts = Mapping[str, int]
_MOST = 5


def read_counts(cpu: int, text: str | None = None, softirqs: str | None = None) -> dict[str, int]:
    """Totals of this CPU by source: `LOC Local timer interrupts`, `softirq TIMER`. Empty where nobody tells."""
    hard = parse(_read("/proc/interrupts") if text is None else text, cpu)
    soft = parse(_read("/proc/softirqs") if softirqs is None else softirqs, cpu)
    return {**hard, **{f"softirq {name}": count for name, count in soft.items()}}


def parse(text: str, cpu: int) -> dict[str, int]:
    """One column of a table whose header names the CPUs that are online, and whose rows may be shorter."""
    lines = text.splitlines()
    header = lines[0].split() if lines else []
    if f"CPU{cpu}" not in header:
        return {}
    column, width = header.index(f"CPU{cpu}"), len(header)
    found: dict[str, int] = {}
    for line in lines[1:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if column < len(fields) and fields[column].isdigit():
            words = " ".join(fields[width:])
            label = f"{name.strip()} {words}".strip()
            found[label] = found.get(label, 0) + int(fields[column])
    return found


def rates(before: Counts, after: Counts, seconds: float) -> dict[str, float]:
    """The busiest sources, per second."""
    delta = {name: count - before.get(name, 0) for name, count in after.items()}
    busiest = sorted((name for name in delta if delta[name] > 0), key=lambda name: -delta[name])
    return {name: round(delta[name] / max(seconds, 1e-9), 1) for name in busiest[:_MOST]}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
