"""The models of the last loops: two kinds of transformer block with LayerNorm, a pyramid of convolutions, residual MLPs."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from loops.base import DEVICE, Step
from loops.later_models import (
    Attention,
    adamw,
    first_class,
    fused_causal,
    fused_full,
    hidden_states,
    mean_square,
    pixels,
    sgd,
    training,
)


class ParallelBlock(nn.Module):
    """Attention and MLP side by side on one norm."""

    def __init__(self, width: int, heads: int, attention: Attention = fused_causal) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        b, t, c = h.shape
        q, k, v = self.qkv(h).view(b, t, self.heads, 3, c // self.heads).permute(3, 0, 2, 1, 4)
        a = self.attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        return x + self.out(a) + self.down(F.gelu(self.up(h), approximate="tanh"))


class PostBlock(nn.Module):
    """The norm after the sum, ReLU, dropout: the encoder of 2017."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = self.norm_a(x + self.drop(self.o(fused_full(q, k, v).transpose(1, 2).flatten(2))))
        return self.norm_b(x + self.drop(self.down(F.relu(self.up(x)))))


class SquaredMlp(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.relu(self.up(x)).square())


class Pyramid(nn.Module):
    """Three stages, each of half the side and twice the channels of the one before."""

    def __init__(self, width: int, per_stage: int, classes: int = 100) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, width, 4, stride=4)]
        for stage in range(3):
            now = width << stage
            for _ in range(per_stage):
                parts += [
                    nn.Conv2d(now, now, 3, padding=1, bias=False),
                    nn.BatchNorm2d(now),
                    nn.ReLU(inplace=True),
                ]
            if stage < 2:
                parts.append(nn.Conv2d(now, 2 * now, 2, stride=2))
        self.body, self.head = nn.Sequential(*parts), nn.Linear(width << 2, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


def parallel_blocks(count: int, width: int, heads: int, attention: Attention = fused_causal) -> nn.Module:
    torch.manual_seed(11)
    stack = nn.Sequential(*[ParallelBlock(width, heads, attention) for _ in range(count)])
    return stack.to(DEVICE, torch.bfloat16)


def post_blocks(count: int, width: int, heads: int, *, dropout: float, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(11)
    return nn.Sequential(*[PostBlock(width, heads, dropout) for _ in range(count)]).to(DEVICE, dtype)


def parallel_training(
    *,
    count: int,
    width: int,
    heads: int,
    batch: int,
    length: int,
    attention: Attention = fused_causal,
    after: Callable[[torch.Tensor], Any] | None = None,
    after_with_model: Callable[[nn.Module, torch.optim.Optimizer], Any] | None = None,
) -> Step:
    """On resident states. `after_with_model` runs last."""
    model = parallel_blocks(count, width, heads, attention)
    optimizer = adamw(model)
    x = hidden_states(batch, length, width)

    def last(loss: torch.Tensor) -> None:
        if after is not None:
            after(loss)
        if after_with_model is not None:
            after_with_model(model, optimizer)

    return training(model, lambda: x, mean_square, optimizer, after=last)


def dropout_training(
    *,
    count: int,
    width: int,
    heads: int,
    batch: int,
    length: int,
    after: Callable[[torch.Tensor], Any] | None = None,
) -> Step:
    model = post_blocks(count, width, heads, dropout=0.1, dtype=torch.bfloat16)
    x = hidden_states(batch, length, width)
    return training(model, lambda: x, mean_square, adamw(model), after=after)


def pyramid_training(
    *,
    width: int,
    per_stage: int,
    batch: int = 0,
    side: int = 0,
    fetch: Callable[[], torch.Tensor] | None = None,
    after: Callable[[torch.Tensor], Any] | None = None,
) -> Step:
    """In bf16, channels last; on resident pixels, or on what `fetch` brings to the device."""
    torch.manual_seed(11)
    model = Pyramid(width, per_stage).to(DEVICE, torch.bfloat16, memory_format=torch.channels_last)
    resident = pixels(batch, side) if fetch is None else None

    def bring() -> torch.Tensor:
        return resident if fetch is None else fetch()

    return training(model, bring, first_class, sgd(model), after=after)
