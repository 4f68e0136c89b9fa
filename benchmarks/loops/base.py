"""What every loop stands on. `LOOPS_DEVICE=cpu LOOPS_SMALL=1` builds and steps the later and the last loops
without a GPU: tiny sizes, and what only CUDA has (graphs, pinning, the allocator) left out."""

import gc
import os
from collections.abc import Callable
from typing import Any

import torch

Step = Callable[[], None]
Loop = dict[str, Any]
"""`ill`: a cause's name, or None for a healthy loop. `sick` and `cured`: makers of a step. Optional: `record`
(how it is recorded: shapes, stack, memory, steps, active), `period` (steps after which it repeats itself),
`plain` (False: no second recording without shapes), `near` (causes that a trace cannot tell from the ill)."""

DEVICE = os.environ.get("LOOPS_DEVICE", "cuda")
ON_GPU = DEVICE == "cuda"
SMALL = os.environ.get("LOOPS_SMALL") == "1"


def size(full: int, small: int) -> int:
    return small if SMALL else full


def synchronise() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def pinned(x: torch.Tensor) -> torch.Tensor:
    return x.pin_memory() if ON_GPU else x


def captured(body: Step) -> Step:
    """The body as one CUDA graph. Everything it reads and writes must be the same tensors each time."""
    if not ON_GPU:
        return body
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()

    def replay() -> None:
        assert body is not None  # holds the tensors that the graph reads
        graph.replay()

    return replay


def defaults() -> None:
    """Back to what a fresh process has: a loop may have changed it."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    torch._dynamo.reset()
    gc.unfreeze()
