"""A convolutional net and a plain MLP in training, fed from the host."""

import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from loops.base import DEVICE, Step


class ConvNet(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 7, stride=4)]
        for _ in range(depth):
            layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2, padding=1)]
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def conv_training(
    *,
    batch: int,
    size: int,
    width: int,
    depth: int,
    pinned: bool,
    cpu_ms: float = 0.0,
    precision: str = "bf16",
) -> Step:
    torch.manual_seed(0)
    model = ConvNet(width, depth).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    images = [torch.randn(batch, 3, size, size) for _ in range(3)]
    if pinned:
        images = [i.pin_memory() for i in images]
    labels = torch.randint(0, 100, (batch,), device=DEVICE)
    stream = torch.cuda.Stream()
    state: dict[str, Any] = {"k": 0, "next": None}

    def fetch() -> torch.Tensor:
        state["k"] += 1
        return images[state["k"] % 3]

    def step() -> None:
        if cpu_ms:
            end = time.perf_counter() + cpu_ms / 1e3
            with torch.profiler.record_function(
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            ):
                while time.perf_counter() < end:
                    pass
        if pinned:
            if state["next"] is None:
                state["next"] = fetch().to(DEVICE, non_blocking=True)
            torch.cuda.current_stream().wait_stream(stream)
            x = state["next"]
            with torch.cuda.stream(stream):
                state["next"] = fetch().to(DEVICE, non_blocking=True)
        else:
            x = fetch().to(DEVICE)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def mlp_training(
    *, width: int, depth: int, batch: int, h2d: str, item: bool = False, graph: bool = False
) -> Step:
    """A plain MLP on vectors that lie on the host (`h2d`: resident, pageable, pinned), one stream."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=graph)
    host = [torch.randn(batch, width) for _ in range(3)]
    if h2d == "pinned":
        host = [x.pin_memory() for x in host]
    static = torch.randn(batch, width, device=DEVICE)
    state = {"k": 0}
    sink: list[float] = []

    def body(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        return loss

    captured = torch.cuda.CUDAGraph()
    if graph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                body(static)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(captured):
            body(static)

    def step() -> None:
        if graph:
            captured.replay()
            return
        state["k"] += 1
        x = static
        if h2d != "resident":
            x = host[state["k"] % 3].to(DEVICE, non_blocking=h2d == "pinned")
        loss = body(x)
        if item:
            sink.append(loss.item())

    return step
