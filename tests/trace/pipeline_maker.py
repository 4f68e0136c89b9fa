"""Records of pipeline-parallel jobs made by a small recursive simulation, so that their truth is known."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wellfed.analyze.pipeline import OpRecords

Row = tuple[int, int, int, str, float, float, int]
"""step, replica, stage, type, start, end, piece of the model"""
Cost = Callable[[str, int, int, int], float]
"""(type, replica, stage, number) -> seconds"""


class Schedule(NamedTuple):
    """For each stage its computing in order: (`F` or `B`, micro-batch, piece of the model)."""

    order: list[list[tuple[str, int, int]]]
    pieces: int


def one_f_one_b(stages: int, micro: int) -> Schedule:
    order = []
    for p in range(stages):
        ahead = min(stages - p - 1, micro)
        ops = [("F", m, p) for m in range(ahead)]
        for m in range(micro - ahead):
            ops += [("F", m + ahead, p), ("B", m, p)]
        order.append(ops + [("B", m, p) for m in range(micro - ahead, micro)])
    return Schedule(order, stages)


def two_pieces_a_stage(stages: int, micro: int) -> Schedule:
    """All forwards piece by piece, then all backwards: every stage holds pieces p and p + stages."""
    order = []
    for p in range(stages):
        forward = [("F", m, p + stages * c) for c in (0, 1) for m in range(micro)]
        backward = [("B", m, p + stages * c) for c in (1, 0) for m in range(micro)]
        order.append(forward + backward)
    return Schedule(order, 2 * stages)


def simulate(
    schedule: Schedule,
    cost: Cost,
    *,
    replicas: int = 1,
    transfer: float = 0.001,
    step: int = 0,
    tail: bool = True,
) -> list[Row]:
    """One step. Sends start when what they carry is computed, receives when the computing of their direction
    before is done; both end `transfer` after the later of the two."""
    stages = len(schedule.order)
    rows: list[Row] = []
    last: dict[tuple[int, int], float] = {}
    for d in range(replicas):
        begin: dict[tuple[str, int, int], float] = {}
        end: dict[tuple[str, int, int], float] = {}
        todo = [list(ops) for ops in schedule.order]
        free = [0.0] * stages
        number: dict[tuple[str, int], int] = {}
        posted: dict[tuple[str, int], float] = {}
        while any(todo):
            moved = False
            for p in range(stages):
                if not todo[p]:
                    continue
                way, m, g = todo[p][0]
                source = g - 1 if way == "F" else g + 1
                name = "forward" if way == "F" else "backward"
                start = free[p]
                if 0 <= source < schedule.pieces:
                    if (way, m, source) not in end:
                        continue
                    sent, ready = end[way, m, source], posted.get((way, p), 0.0)
                    got = max(sent, ready) + transfer
                    rows.append((step, d, source % stages, f"{name}-send", sent, got, -1))
                    rows.append((step, d, p, f"{name}-recv", ready, got, -1))
                    start = max(start, got)
                kind = f"{name}-compute"
                k = number[kind, p] = number.get((kind, p), -1) + 1
                begin[way, m, g] = start
                end[way, m, g] = free[p] = posted[way, p] = start + cost(kind, d, p, k)
                rows.append((step, d, p, kind, start, free[p], g))
                todo[p].pop(0)
                moved = True
            assert moved, "a schedule that can't run"
        for p in range(stages):
            last[d, p] = free[p]
    if tail:
        clip = max(last.values()) + 0.002
        for (d, p), at in last.items():
            rows.append((step, d, p, "gc", at, at, -1))
            rows.append((step, d, p, "optimizer-clip-main-grad", at, clip, -1))
            rows.append((step, d, p, "optimizer", clip, clip + cost("optimizer", d, p, 0), -1))
    return rows


def records(rows: list[Row], stages: int) -> OpRecords:
    kinds = tuple(sorted({r[3] for r in rows}))
    column = list(zip(*rows, strict=True))
    replica, stage = np.array(column[1], np.int32), np.array(column[2], np.int32)
    return OpRecords(
        step=np.array(column[0], np.int64),
        replica=replica,
        stage=stage,
        rank=(replica * stages + stage).astype(np.int32),
        kind=np.array([kinds.index(k) for k in column[3]], np.int16),
        kinds=kinds,
        start_s=np.array(column[4], float),
        end_s=np.array(column[5], float),
        chunk=np.array(column[6], np.int32),
        source="made",
    )
