"""Rows by what they share, in one pass however many values there are: a file may name 100,000 threads."""

import numpy as np

from wellfed.model.timeline import I64, Ints, Mask


def by_value(column: Ints, only: Mask | None = None) -> dict[int, I64]:
    """The rows of each value, in order (of those rows that `only` holds for)."""
    rows = np.arange(len(column)) if only is None else np.flatnonzero(only)
    order = rows[np.argsort(column[rows], kind="stable")]
    values, begin = np.unique(column[order], return_index=True)
    return dict(zip(values.tolist(), np.split(order, begin[1:]), strict=False))
