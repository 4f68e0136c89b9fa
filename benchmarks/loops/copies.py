"""Training that is fed from pinned memory: each batch copied when it is needed, or one batch ahead on a stream of its
own."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from loops.base import DEVICE, ON_GPU, Step, pinned, size
from loops.convs import ConvNet

Batch = tuple[torch.Tensor, ...]
Body = Callable[[Batch], None]


def fed(batches: list[Batch], body: Body, how: str) -> Step:
    """`late`: asked for on the stream that computes. `blocking`: the same, and the CPU waits. `ahead`: the next batch
    is copied on a second stream while this one computes."""
    batches = [tuple(pinned(part) for part in batch) for batch in batches]
    state: dict[str, Any] = {"k": 0, "next": None}
    side = torch.cuda.Stream() if ON_GPU and how == "ahead" else None

    def fetch(*, non_blocking: bool) -> Batch:
        state["k"] += 1
        return tuple(
            part.to(DEVICE, non_blocking=non_blocking) for part in batches[state["k"] % len(batches)]
        )

    def ahead() -> Batch:
        assert side is not None
        if state["next"] is None:
            with torch.cuda.stream(side):
                state["next"] = fetch(non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        batch: Batch = state["next"]
        for part in batch:
            part.record_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            state["next"] = fetch(non_blocking=True)
        return batch

    def step() -> None:
        body(ahead() if side is not None else fetch(non_blocking=how == "late"))

    return step


def dense(*, width: int, depth: int, batch: int, how: str) -> Step:
    """Vectors into a plain MLP."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=ON_GPU)

    def body(parts: Batch) -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(parts[0]).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return fed([(torch.randn(batch, width),) for _ in range(3)], body, how)


def images(*, batch: int, side: int, width: int, depth: int, how: str, whole: bool = False) -> Step:
    """Images as floats, or as bytes that the GPU makes floats of (`whole`)."""
    torch.manual_seed(0)
    model = ConvNet(width, depth).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=ON_GPU)
    labels = torch.randint(0, 100, (batch,), device=DEVICE)

    def body(parts: Batch) -> None:
        x = parts[0].float().div_(255.0) if whole else parts[0]
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    shape = (batch, 3, side, side)
    made = [
        (torch.randint(0, 255, shape, dtype=torch.uint8) if whole else torch.randn(shape),) for _ in range(3)
    ]
    return fed(made, body, how)


def columns(*, rows: int, count: int, width: int, depth: int, how: str) -> Step:
    """A table in many arrays, each copied by itself."""
    torch.manual_seed(0)
    each = size(64, 8)
    layers: list[torch.nn.Module] = [torch.nn.Linear(count * each, width), torch.nn.ReLU()]
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=ON_GPU)

    def body(parts: Batch) -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(torch.cat(parts, dim=1)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return fed([tuple(torch.randn(rows, each) for _ in range(count)) for _ in range(3)], body, how)
