"""The models of the later loops: a pre-norm transformer in bf16 with a gated MLP, and a residual net; one step of
training put together from parts. Few fat layers, so that a GPU has more to do than its host."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from loops.base import DEVICE, Step

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def fused_causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def fused_full(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def written_causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores, mask and softmax as tensors of their own, all in the precision of the input."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1) @ v


def written_full(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The einsum way, softmax in float."""
    scores = torch.einsum("bhqd,bhkd->bhqk", q * q.shape[-1] ** -0.5, k)
    return torch.einsum("bhqk,bhkd->bhqd", F.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype), v)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, attention: Attention = fused_causal, inner: int = 3) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm_a, self.norm_b = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.merge = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * inner * width, bias=False)
        self.down = nn.Linear(inner * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm_a(x)).chunk(3, dim=-1)
        )
        x = x + self.merge(self.attention(q, k, v).transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm_b(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def layers(
    count: int,
    width: int,
    *,
    head: int = 64,
    attention: Attention = fused_causal,
    dtype: torch.dtype = torch.bfloat16,
) -> nn.Sequential:
    torch.manual_seed(1)
    stack = nn.Sequential(*[Layer(width, max(1, width // head), attention) for _ in range(count)])
    return stack.to(DEVICE, dtype)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm_a, self.norm_b = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm_a(self.a(x)), inplace=True)
        return F.relu(x + self.norm_b(self.b(y)))


class ResidualNet(nn.Module):
    """A patch of 4 pixels a position, then residual blocks at one size."""

    def __init__(self, blocks: int, width: int, classes: int = 200) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.Sequential(*[Residual(width) for _ in range(blocks)])
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def residual_net(blocks: int, width: int, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    torch.manual_seed(1)
    return ResidualNet(blocks, width).to(DEVICE, dtype, memory_format=torch.channels_last)


def pixels(batch: int, side: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    x = torch.randn(batch, 3, side, side, device=DEVICE, dtype=dtype)
    return x.contiguous(memory_format=torch.channels_last)


def hidden_states(batch: int, length: int, width: int) -> torch.Tensor:
    return torch.randn(batch, length, width, device=DEVICE, dtype=torch.bfloat16)


def mean_square(y: torch.Tensor) -> torch.Tensor:
    return y.float().square().mean()


def first_class(y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(y.float(), torch.zeros(len(y), dtype=torch.long, device=y.device))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def training(
    model: nn.Module,
    fetch: Callable[[], torch.Tensor],
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    after: Callable[[torch.Tensor], Any] | None = None,
) -> Step:
    """Fetch, forward, backward, update; then `after` with the loss."""

    def step() -> None:
        loss = loss_of(model(fetch()))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if after is not None:
            after(loss.detach())

    return step


def transformer_training(
    *,
    count: int,
    width: int,
    batch: int,
    length: int,
    attention: Attention = fused_causal,
    head: int = 64,
    after: Callable[[torch.Tensor], Any] | None = None,
    after_with_model: Callable[[nn.Module, torch.optim.Optimizer], Any] | None = None,
) -> Step:
    """On resident states. `after_with_model` runs last."""
    model = layers(count, width, attention=attention, head=head)
    optimizer = adamw(model)
    x = hidden_states(batch, length, width)

    def last(loss: torch.Tensor) -> None:
        if after is not None:
            after(loss)
        if after_with_model is not None:
            after_with_model(model, optimizer)

    return training(model, lambda: x, mean_square, optimizer, after=last)


def image_training(
    *,
    blocks: int,
    width: int,
    batch: int,
    side: int,
    fetch: Callable[[], torch.Tensor] | None = None,
    after: Callable[[torch.Tensor], Any] | None = None,
    after_with_model: Callable[[nn.Module, torch.optim.Optimizer], Any] | None = None,
) -> Step:
    """On resident pixels, or on what `fetch` brings to the device."""
    model = residual_net(blocks, width)
    optimizer = sgd(model)
    resident = pixels(batch, side) if fetch is None else None

    def bring() -> torch.Tensor:
        return resident if fetch is None else fetch()

    def last(loss: torch.Tensor) -> None:
        if after is not None:
            after(loss)
        if after_with_model is not None:
            after_with_model(model, optimizer)

    return training(model, bring, first_class, optimizer, after=last)


def accumulated_training(*, micro: int, count: int, width: int, batch: int, length: int) -> Step:
    """An update after several small batches."""
    model = layers(count, width)
    optimizer = adamw(model)
    parts = [hidden_states(batch, length, width) for _ in range(micro)]

    def step() -> None:
        for x in parts:
            (mean_square(model(x)) / micro).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
