"""What a host does to its GPU in the last loops: statistics a layer, results a chunk, a large heap, metrics by numpy,
an emptied cache, a new size each step for a compiled function."""

import gc
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from loops.base import DEVICE, Step, size
from loops.last_models import parallel_blocks
from loops.later_host import empties
from loops.later_models import adamw, hidden_states, mean_square, training

# -- values that the host waits for


def watched_layers(*, ask_each: bool) -> Step:
    """The largest, the smallest and the mean value after each layer: three `.item()` a layer, or one list a step."""
    torch.manual_seed(13)
    width = size(3072, 32)
    mats = [nn.Linear(width, width).to(DEVICE, torch.bfloat16) for _ in range(size(56, 3))]
    x = torch.randn(size(4096, 16), width, device=DEVICE, dtype=torch.bfloat16)
    seen: dict[str, float] = {}

    def note(i: int, low: float, high: float, mean: float) -> None:
        seen[f"{i}.low"], seen[f"{i}.high"], seen[f"{i}.mean"] = low, high, mean

    def step() -> None:
        y, rows = x, []
        with torch.no_grad():
            for i, mat in enumerate(mats):
                y = F.relu(mat(y))
                if ask_each:
                    note(i, y.amin().item(), y.amax().item(), y.mean().item())
                else:
                    rows.append(torch.stack((y.amin(), y.amax(), y.mean())))
            if rows:
                for i, row in enumerate(torch.stack(rows).tolist()):
                    note(i, *row)

    return step


def scored_chunks(*, ask_each: bool, rows: int, chunks: int, depth: int = 1) -> Step:
    """Classes of many rows, a chunk at a time. Label, score and lowest logit go to the host with `.cpu()` after each
    chunk, or all together at the end."""
    torch.manual_seed(13)
    width = size(2048, 32)
    *inner, head = (nn.Linear(width, width, bias=False).to(DEVICE, torch.bfloat16) for _ in range(depth + 1))
    data = torch.randn(chunks * rows, width, device=DEVICE, dtype=torch.bfloat16).split(rows)
    kept: list[tuple[torch.Tensor, ...]] = []

    def step() -> None:
        kept.clear()
        with torch.no_grad():
            for chunk in data:
                y = chunk
                for mat in inner:
                    y = F.gelu(mat(y))
                y = head(y)
                best = y.max(-1)
                result = (best.indices, best.values, y.amin(-1))
                kept.append(tuple(part.cpu() for part in result) if ask_each else result)
            if not ask_each:
                kept[:] = [tuple(torch.cat(parts).cpu() for parts in zip(*kept, strict=True))]

    return step


# -- stalls of the main thread


class Node:
    __slots__ = ("children", "parent")

    def __init__(self, parent: "Node | None") -> None:
        self.parent = parent
        self.children: list[Node] = []


def collects_a_tree(nodes: int) -> Callable[[torch.Tensor], None]:
    """A prefix tree on the host and a full collection a step. What lived before is frozen, so that the tree alone is
    walked (`defaults` thaws it)."""
    gc.collect()
    gc.freeze()
    tree = [Node(None)]
    for i in range(1, nodes):
        parent = tree[(i - 1) // 4]
        tree.append(Node(parent))
        parent.children.append(tree[i])

    def collect(_: torch.Tensor) -> None:
        assert tree
        gc.collect()

    return collect


def measures(busy_ms: float) -> Callable[[torch.Tensor], None]:
    """Resamples of a ranking metric over kept scores, by numpy in the main thread, for `busy_ms`."""
    rng = np.random.default_rng(14)
    scores, truth = rng.random(20_000), rng.integers(0, 2, 20_000)
    areas: list[float] = []

    def measure(_: torch.Tensor) -> None:
        end = time.perf_counter() + busy_ms / 1e3
        areas.clear()
        while time.perf_counter() < end:
            pick = rng.integers(0, len(scores), len(scores))
            hits = truth[pick][np.argsort(-scores[pick])]
            areas.append(float(np.sum(np.cumsum(hits) * (1 - hits)) / (hits.sum() * (1 - hits).sum())))

    return measure


# -- the allocator


def growing_batches(*, emptied: bool, turns: int = 4) -> Step:
    """Each batch has longer rows than the one before, until the round begins anew; the cache is emptied after each."""
    width, batch = size(512, 32), size(12, 2)
    model = parallel_blocks(size(12, 2), width, max(1, width // 64))
    rounds = [hidden_states(batch, size(1024, 8) + size(192, 4) * i, width) for i in range(turns)]
    counter = itertools.count()
    return training(
        model,
        lambda: rounds[next(counter) % turns],
        mean_square,
        adamw(model),
        after=empties if emptied else None,
    )


# -- recompilation


def compiled_for_batches(*, dynamic: bool) -> Step:
    """A regulariser compiled with AOTAutograd (backend "aot_eager": its traces, no code generation). Every step has
    another number of rows, so that a guard fails: a compilation for each, or one for all."""
    limits: Any = torch._dynamo.config
    limits.recompile_limit = limits.accumulated_recompile_limit = 1_000_000
    width = size(1536, 32)
    model = parallel_blocks(size(3, 1), width, max(1, width // 128))
    rows = itertools.cycle(size(96, 4) + i * 37 % 61 for i in range(61))
    x = hidden_states(size(96, 4) + 61, size(128, 8), width)

    def smoothness(y: torch.Tensor) -> torch.Tensor:
        z = F.layer_norm(y.float(), (y.shape[-1],))
        step = z[:, 1:] - z[:, :-1]
        spread = torch.log1p(z.var(dim=1)).mean()
        return F.softplus(step.abs()).mean() + 0.1 * spread + 0.01 * torch.sigmoid(z).square().mean()

    loss_of = torch.compile(smoothness, backend="aot_eager", dynamic=dynamic)
    return training(model, lambda: x[: next(rows)], loss_of, adamw(model))
