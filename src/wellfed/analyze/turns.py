"""Which of its kind each item is."""

import numpy as np

from wellfed.model.timeline import I64, Ints


def turns(kind: Ints) -> I64:
    """For each item, in the order given, how many of its kind came before it: 0 for the first, 1 for the second..."""
    order = np.argsort(kind, kind="stable")
    ranked = kind[order]
    fresh = np.append(True, ranked[1:] != ranked[:-1])
    begin = np.maximum.accumulate(np.where(fresh, np.arange(len(kind)), 0))
    turn = np.empty(len(kind), np.int64)
    turn[order] = np.arange(len(kind)) - begin
    return turn
