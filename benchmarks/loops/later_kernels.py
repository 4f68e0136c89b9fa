"""Kernels that are slower than they need be: precision, attention written out, optimizer loops, elementwise chains."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from loops.base import DEVICE, ON_GPU, Step, captured, size
from loops.later_models import (
    Attention,
    adamw,
    fused_causal,
    hidden_states,
    layers,
    mean_square,
    training,
)

# -- precision


class Headed(nn.Module):
    """A bf16 body under a head in float32, "so that the logits are exact"."""

    def __init__(self, count: int, width: int, vocabulary: int, *, exact: bool) -> None:
        super().__init__()
        self.body = layers(count, width)
        self.exact = exact
        head = nn.Linear(width, vocabulary, bias=False, device=DEVICE)
        self.head = head if exact else head.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return self.head(y.float() if self.exact else y).float().flatten(0, 1)


def float_head(*, exact: bool, count: int = 2, after: Callable[[torch.Tensor], Any] | None = None) -> Step:
    vocabulary = size(24576, 64)
    model = Headed(size(count, 1), size(2048, 64), vocabulary, exact=exact)
    x = hidden_states(size(6, 2), size(1536, 8), size(2048, 64))
    targets = torch.arange(x.shape[0] * x.shape[1], device=DEVICE) % vocabulary
    return training(model, lambda: x, lambda y: F.cross_entropy(y, targets), adamw(model), after=after)


def float_convolutions(*, precision: str) -> Step:
    """Weights in float32; the convolutions in true float32, or under autocast in bf16."""
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(6)
    width = size(96, 8)
    parts: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(size(8, 1)):
        parts += [
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
    model = nn.Sequential(*parts).to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)
    x = torch.randn(size(176, 2), 3, size(64, 16), size(64, 16), device=DEVICE)
    x = x.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "bf16"):
            y = model(x)
        y.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def tensor_float_mlp(*, precision: str) -> Step:
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(6)
    width = size(6144, 32)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.SiLU()) for _ in range(4)]).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)
    x = torch.randn(size(12288, 8), width, device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "bf16"):
            y = model(x)
        y.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


# -- attention


def attention_forward(attention: Attention, *, dtype: torch.dtype = torch.float16) -> Step:
    """A denoiser's pass over many positions, without gradients."""
    model = layers(size(8, 1), size(1024, 64), attention=attention, dtype=dtype).eval()
    x = torch.randn(size(2, 1), size(4096, 16), size(1024, 64), device=DEVICE, dtype=dtype) * 0.1

    def step() -> None:
        with torch.no_grad():
            model(x)

    return step


# -- optimizers


def graphed_adam(**how: bool) -> Step:
    """Forward and backward are one graph; then an optimizer over 144 parameters."""
    model = layers(size(24, 2), size(1024, 64))
    x = hidden_states(size(2, 2), size(1024, 8), size(1024, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, **how)

    def gradients() -> None:
        for p in model.parameters():
            if p.grad is not None:
                p.grad.zero_()
        mean_square(model(x)).backward()

    play = captured(gradients)

    def step() -> None:
        play()
        optimizer.step()

    return step


def sharded_masters(**how: bool) -> Step:
    """A few large bf16 weights whose float32 masters lie in 768 shards; SGD goes over the shards."""
    torch.manual_seed(6)
    width, shards = size(4096, 32), size(768, 6)
    flat = (torch.randn(3, width, width, device=DEVICE) * width**-0.5).to(torch.bfloat16).requires_grad_()
    master = flat.detach().float().flatten()
    masters = [piece.detach() for piece in master.chunk(shards)]
    slopes = torch.zeros_like(master)
    for piece, slope in zip(masters, slopes.chunk(shards), strict=True):
        piece.grad = slope
    optimizer = torch.optim.SGD(masters, lr=1e-4, momentum=0.9, nesterov=True, weight_decay=1e-4, **how)
    x = torch.randn(size(16384, 8), width, device=DEVICE, dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(2):
            y = x
            for weight in flat.unbind():
                y = F.silu(y @ weight)
            mean_square(y).backward()
        assert flat.grad is not None
        slopes.copy_(flat.grad.flatten())
        flat.grad = None
        optimizer.step()
        flat.detach().copy_(master.view_as(flat))

    return step


# -- elementwise


def written_gate(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """RMS norm, then a smooth gate, in float32."""
    f = x.float()
    f = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)
    f = f * gain
    return (f * (1.0 / (1.0 + torch.exp(-1.702 * f))) + 0.1 * f).to(x.dtype)


def gated_stack(*, compiled: bool, rows: int, width: int, count: int) -> Step:
    torch.manual_seed(7)
    weights = [
        torch.randn(width, width, device=DEVICE, dtype=torch.bfloat16) * width**-0.5 for _ in range(count)
    ]
    gain = torch.ones(width, device=DEVICE)
    x = torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16)
    gate = torch.compile(written_gate, dynamic=False) if compiled else written_gate

    def step() -> None:
        y = x
        with torch.no_grad():
            for weight in weights:
                y = gate(y @ weight, gain)

    return step


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary embedding by halves, in float32."""
    f = x.float()
    a, b = f.chunk(2, dim=-1)
    return (f * cosine + torch.cat((-b, a), dim=-1) * sine).to(x.dtype)


def rotary_passes(*, compiled: bool) -> Step:
    torch.manual_seed(7)
    batch, heads, length, deep = size(16, 1), size(16, 2), size(2048, 16), 64
    turn = torch.outer(torch.arange(length, device=DEVICE), torch.logspace(0, -4, deep // 2, device=DEVICE))
    cosine, sine = torch.cat((turn, turn), -1).cos(), torch.cat((turn, turn), -1).sin()
    qkv = torch.randn(3, batch, heads, length, deep, device=DEVICE, dtype=torch.bfloat16)
    turned = torch.compile(rotated, dynamic=False) if compiled else rotated

    def step() -> None:
        q, k, v = qkv.unbind()
        with torch.no_grad():
            for _ in range(size(8, 2)):
                q = fused_causal(turned(q, cosine, sine), turned(k, cosine, sine), v)

    return step


def compiled_training() -> Step:
    """A healthy twin: the gate compiled with its backward, between large matrix products."""
    torch.manual_seed(7)
    width = size(4096, 32)
    mats = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(5)]).to(DEVICE, torch.bfloat16)
    gain = torch.ones(width, device=DEVICE)
    x = torch.randn(size(16384, 8), width, device=DEVICE, dtype=torch.bfloat16)
    gate = torch.compile(written_gate, dynamic=False) if ON_GPU else written_gate
    optimizer = adamw(mats)

    def step() -> None:
        y = x
        for mat in mats:
            y = gate(mat(y), gain)
        mean_square(y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
