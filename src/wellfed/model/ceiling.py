"""One measured limit of a machine."""

from typing import Any, Literal

from wellfed.model.base import Value
from wellfed.model.curve import Curve

CeilingVerdict = Literal["ok", "low", "implausible", "noisy"]


class Ceiling(Value, frozen=True, kw_only=True):
    """`best`, `median`, `p10`, `p90` in `unit`; rates are higher-is-better, latencies lower-is-better
    (`higher_is_better` says which). `peak` is a published limit in the same unit, `ratio` = best/peak; both
    None when no peak is known. `band` is the plausible range [low, high] and `band_source` where it is from.
    `noise` holds what disturbed the run (load, steal, involuntary switches, throttling). `layer` is what it belongs to
    (`host`, `storage`, `network`, `gpu`, `comm`), None when another tool's result was read. `curve` is the time by size of a
    collective, of which the rest is the headline."""

    id: str
    title: str
    method: str
    hardware_key: str
    unit: str
    best: float
    median: float
    p10: float
    p90: float
    n: int
    cv: float
    higher_is_better: bool = True
    layer: str | None = None
    tier: str = "stdlib"
    size: str | None = None
    dtype: str | None = None
    threads: int | None = None
    peak: float | None = None
    peak_source: str | None = None
    ratio: float | None = None
    band: tuple[float, float] | None = None
    band_source: str | None = None
    verdict: CeilingVerdict = "ok"
    why: str | None = None
    noise: dict[str, float] = {}
    environment: dict[str, Any] = {}
    seconds: float = 0.0
    curve: Curve | None = None
