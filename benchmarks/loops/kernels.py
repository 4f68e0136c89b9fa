"""Chains of kernels: decoding, matrix products, elementwise chains, results that the host waits for."""

import torch
import torch.nn.functional as F
from torch import nn

from loops.base import DEVICE, Step


class DecodeLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.a, self.b = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.c, self.d = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        x = x + self.b(F.silu(self.a(h)))
        return x + self.d(F.silu(self.c(self.norm(x))))


def decode(*, layers: int, width: int, batch: int, passes: int, graph: bool, item: bool = False) -> Step:
    torch.manual_seed(0)
    model = nn.Sequential(*[DecodeLayer(width) for _ in range(layers)]).to(DEVICE, torch.bfloat16)
    x = torch.randn(batch, width, device=DEVICE, dtype=torch.bfloat16)
    sink: list[float] = []
    with torch.no_grad():
        for _ in range(3):
            model(x)
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        if graph:
            with torch.cuda.graph(captured):
                y_graph = model(x)

    def step() -> None:
        with torch.no_grad():
            for _ in range(passes):
                if graph:
                    captured.replay()
                    y = y_graph
                else:
                    y = model(x)
                if item:
                    sink.append(y[0, 0].item())

    return step


def gemms(*, size: int, count: int, item: bool = False) -> Step:
    a = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
    b = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
    sink: list[float] = []

    def step() -> None:
        y = a
        for _ in range(count):
            y = (y @ b) * 1e-2
        if item:
            sink.append(y[0, 0].item())

    return step


def pointwise(*, fused: bool, size: int = 1 << 24, rounds: int = 6) -> Step:
    """A chain of elementwise operators on a large tensor, eager or compiled into one kernel a round."""
    x = torch.randn(size, device=DEVICE)

    def chain(v: torch.Tensor) -> torch.Tensor:
        v = v * 1.01 + 0.5
        v = torch.sigmoid(v) * v
        v = v - v.abs() * 0.1
        return torch.tanh(v) + 0.01 * v * v

    body = torch.compile(chain) if fused else chain

    def step() -> None:
        v = x
        with torch.no_grad():
            for _ in range(rounds):
                v = body(v)

    return step


def masked(*, select: bool) -> Step:
    """Values below zero dropped by an index, whose length the host waits for, or set to zero in place."""
    x = torch.randn(1 << 20, device=DEVICE)
    weight = torch.randn(2048, 2048, device=DEVICE, dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(30):
            y = weight @ weight
            kept = x[x > 0] if select else torch.where(x > 0, x, 0.0)
            (kept.sum() * 1e-3 + y[0, 0]).square()

    return step


def norms(*, fused: bool, rows: int = 1 << 15, width: int = 1024, rounds: int = 6) -> Step:
    """Layer norm and a gate written out in plain operators, eager or compiled."""
    x = torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16)
    gain = torch.ones(width, device=DEVICE)

    def layer(v: torch.Tensor) -> torch.Tensor:
        f = v.float()
        f = (f - f.mean(-1, keepdim=True)) * torch.rsqrt(f.var(-1, keepdim=True, unbiased=False) + 1e-5)
        f = f * gain
        return (v + f * torch.sigmoid(f)).to(torch.bfloat16)

    body = torch.compile(layer) if fused else layer

    def step() -> None:
        v = x
        with torch.no_grad():
            for _ in range(rounds):
                v = body(v)

    return step


def gemms_sync(*, item: bool, size: int = 2048, chain: int = 4, rounds: int = 40) -> Step:
    """Middle-sized kernels that the host can just keep fed, unless it waits for each result."""
    a = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
    sink: list[float] = []

    def step() -> None:
        for _ in range(rounds):
            y = a
            for _ in range(chain):
                y = (y @ a) * 1e-2
            if item:
                sink.append(y[0, 0].item())

    return step
