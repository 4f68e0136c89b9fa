"""Elementwise chains written out, as they are or compiled: norms, gates, activations, plain arithmetic."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from loops.base import DEVICE, ON_GPU, Step, size

BF16 = torch.bfloat16
Body = Callable[[torch.Tensor], torch.Tensor]


def repeated(body: Body, x: torch.Tensor, *, compiled: bool, rounds: int) -> Step:
    made = torch.compile(body) if compiled and ON_GPU else body

    def step() -> None:
        v = x
        with torch.no_grad():
            for _ in range(rounds):
                v = made(v)

    return step


def filled(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*(size(n, min(n, 32)) for n in shape), device=DEVICE, dtype=dtype)


def rms_gate(*, compiled: bool, rows: int = 8192, width: int = 4096, rounds: int = 8) -> Step:
    x, gate = filled(rows, width), filled(rows, width)
    gain = torch.ones(x.shape[1], device=DEVICE, dtype=BF16)

    def body(v: torch.Tensor) -> torch.Tensor:
        h = v.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        h = h.to(v.dtype) * gain
        return F.silu(h) * gate

    return repeated(body, x, compiled=compiled, rounds=rounds)


def bias_gelu(*, compiled: bool, rows: int = 16384, width: int = 2048, rounds: int = 6) -> Step:
    x, bias, rest = filled(rows, width), filled(width), filled(rows, width)

    def body(v: torch.Tensor) -> torch.Tensor:
        return rest + (
            0.5 * (v + bias) * (1 + torch.tanh(0.79788456 * ((v + bias) + 0.044715 * (v + bias).pow(3))))
        )

    return repeated(body, x, compiled=compiled, rounds=rounds)


def softmax_logarithm(*, compiled: bool, rows: int = 65536, width: int = 512, rounds: int = 6) -> Step:
    def body(v: torch.Tensor) -> torch.Tensor:
        v = v - v.amax(-1, keepdim=True)
        e = v.exp()
        p = e / e.sum(-1, keepdim=True)
        return torch.log(p + 1e-6) * 0.5 + v

    return repeated(body, filled(rows, width, dtype=torch.float32), compiled=compiled, rounds=rounds)


def arithmetic(*, compiled: bool, elements: int = 1 << 22, rounds: int = 20) -> Step:
    def body(v: torch.Tensor) -> torch.Tensor:
        v = v * 1.01 + 0.5
        v = torch.sigmoid(v) * v
        return torch.tanh(v - v.abs() * 0.1) + 0.01 * v * v

    return repeated(body, filled(elements, dtype=torch.float32), compiled=compiled, rounds=rounds)


def layer_norm(*, compiled: bool, rows: int = 16384, width: int = 4096, rounds: int = 5) -> Step:
    x = filled(rows, width)
    gain = torch.ones(x.shape[1], device=DEVICE, dtype=BF16)
    bias = torch.zeros(x.shape[1], device=DEVICE, dtype=BF16)

    def body(v: torch.Tensor) -> torch.Tensor:
        h = v.float()
        c = h - h.mean(-1, keepdim=True)
        s = (c * c).mean(-1, keepdim=True)
        return v + ((c / torch.sqrt(s + 1e-5)).to(v.dtype) * gain + bias)

    return repeated(body, x, compiled=compiled, rounds=rounds)


def swiglu(*, compiled: bool, rows: int = 16384, width: int = 3072, rounds: int = 8) -> Step:
    x, up = filled(rows, width), filled(rows, width)
    return repeated(lambda v: (v * torch.sigmoid(v)) * up + v, x, compiled=compiled, rounds=rounds)


def clamped(*, compiled: bool, elements: int = 1 << 23, rounds: int = 10) -> Step:
    def body(v: torch.Tensor) -> torch.Tensor:
        return (v.clamp(-3, 3).abs() + 1).log() * v.sign() + 0.1 * v

    return repeated(body, filled(elements), compiled=compiled, rounds=rounds)


def gelu_linears(*, compiled: bool, rows: int = 16384, width: int = 2048, layers: int = 4) -> Step:
    """Linears, each with a written-out GELU and residual, trained; only the activation is compiled."""
    torch.manual_seed(0)

    def act(v: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
        return rest + 0.5 * v * (1 + torch.tanh(0.79788456 * (v + 0.044715 * v * v * v)))

    made = torch.compile(act) if compiled and ON_GPU else act
    x, parts, optimizer = _stack(rows, width, layers)

    def step() -> None:
        h = x
        for part in parts:
            h = made(part(h), h)
        loss = h.float().square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def compiled_whole(*, compiled: bool, rows: int = 8192, width: int = 2048, layers: int = 6) -> Step:
    """Linears with a written-out activation, trained; all of the model and its loss is compiled."""
    torch.manual_seed(0)
    x, parts, optimizer = _stack(rows, width, layers)

    def model(h: torch.Tensor) -> torch.Tensor:
        for part in parts:
            z = part(h)
            h = h + z * torch.sigmoid(1.702 * z)
        return h.float().square().mean()

    made = torch.compile(model) if compiled and ON_GPU else model

    def step() -> None:
        loss = made(x)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def _stack(rows: int, width: int, layers: int) -> tuple[torch.Tensor, nn.ModuleList, torch.optim.Optimizer]:
    width = size(width, 32)
    parts = nn.ModuleList([nn.Linear(width, width) for _ in range(size(layers, 2))]).to(DEVICE, BF16)
    x = torch.randn(size(rows, 4), width, device=DEVICE, dtype=BF16)
    return x, parts, torch.optim.AdamW(parts.parameters(), lr=1e-4, fused=True)
