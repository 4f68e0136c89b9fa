"""One typical step over time, coarse enough to keep: how much of each moment compute, communication and copies take."""

import numpy as np

from wellfed.analyze.budget import Work
from wellfed.analyze.intervals import Intervals, clip, complement, covered
from wellfed.model.trace import Strip

BINS = 200


def overlap_strip(work: Work, names: list[str], windows: list[tuple[int, int]]) -> Strip | None:
    """The step whose length is nearest the median, the first and last left out when five or more are there. None
    without steps."""
    inner = list(zip(names, windows, strict=True))
    inner = inner[1:-1] if len(inner) >= 5 else inner
    inner = [(name, (low, high)) for name, (low, high) in inner if high > low]
    if not inner:
        return None
    middle = float(np.median([high - low for _, (low, high) in inner]))
    name, (low, high) = min(inner, key=lambda item: abs(item[1][1] - item[1][0] - middle))
    span = high - low
    edges = low + np.arange(BINS + 1, dtype=np.int64) * span // BINS

    def shares(of: Intervals) -> tuple[int, ...]:
        inside = np.diff(covered(of, edges))
        return tuple(np.rint(100 * inside / np.maximum(np.diff(edges), 1)).astype(int).tolist())

    lanes = {
        "compute": work.busy(work.compute),
        "comm": work.busy(work.comm),
        "copy": work.busy(work.copy),
    }
    lanes = {lane: clip(of, low, high) for lane, of in lanes.items()}
    lanes = {lane: of for lane, of in lanes.items() if len(of.start)}
    lanes["idle"] = complement(work.busy(), low, high)
    return Strip(
        name=name, start_ns=low, span_ns=span, lanes={lane: shares(of) for lane, of in lanes.items()}
    )
