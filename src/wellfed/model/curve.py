"""Time by size of one collective: what is kept of a measured sweep."""

from wellfed.model.base import Value


class Curve(Value, frozen=True, kw_only=True):
    """One operation among `ranks` ranks: `sizes` in bytes, rising, each with `seconds`, the median time until the last
    rank was done. Sizes count as nccl-tests does: the whole array for gathers and scatters.

    The rest is empty where only that is known, and else one number for each size: `best`, `p10` and `p90` of the same
    time, `transfer` the median time of the rank that waited least, `counts` the samples. `backend` is `nccl`, `rccl`,
    `gloo`...; `source` says where it is from."""

    op: str
    ranks: int
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    source: str = ""
    backend: str = ""
    dtype: str = ""
    best: tuple[float, ...] = ()
    p10: tuple[float, ...] = ()
    p90: tuple[float, ...] = ()
    transfer: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
