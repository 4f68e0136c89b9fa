"""Many small launches: decoding with a cache of keys and values, a recurrent cell, a small residual net."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from loops.base import DEVICE, ON_GPU, Step, captured, size
from loops.later_models import fused_full, layers, residual_net, sgd


class CachedLayer(nn.Module):
    """One token a call: keys and values go to the place that a tensor on the device names."""

    def __init__(self, width: int, batch: int, length: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(batch, heads, length, width // heads))

    def forward(self, x: torch.Tensor, place: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        h = self.norm_a(x)
        q, k, v = (f(h).view(len(x), self.heads, 1, -1) for f in (self.q, self.k, self.v))
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        a = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        x = x + self.o(a.flatten(1))
        h = self.norm_b(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def tokens_step(
    layers: list[nn.Module],
    norm: Callable[[torch.Tensor], torch.Tensor],
    *,
    graph: bool,
    length: int,
    width: int,
    batch: int,
    tokens: int,
) -> Step:
    """Decoding with a cache of `length` places: each token goes through the layers (`layer(x, place, seen)`) and is
    normed, launched operator by operator or as one graph."""
    stack = [layer.to(DEVICE, torch.bfloat16) for layer in layers]
    x = torch.randn(batch, width, device=DEVICE, dtype=torch.bfloat16)
    place = torch.zeros(1, dtype=torch.long, device=DEVICE)
    places = torch.arange(length, device=DEVICE)

    def token() -> None:
        with torch.no_grad():
            seen = (places <= place)[None, None, None, :]
            y = x
            for layer in stack:
                y = layer(y, place, seen)
            x.copy_(norm(y))
            place.add_(1).remainder_(length)

    play = captured(token) if graph else token

    def step() -> None:
        for _ in range(tokens):
            play()

    return step


def cached_decode(*, graph: bool, count: int, width: int, batch: int, tokens: int) -> Step:
    torch.manual_seed(4)
    length = size(512, 16)
    made: list[nn.Module] = [CachedLayer(width, batch, length, max(1, width // 128)) for _ in range(count)]
    return tokens_step(
        made,
        lambda y: F.rms_norm(y, (width,)),
        graph=graph,
        length=length,
        width=width,
        batch=batch,
        tokens=tokens,
    )


def recurrent_cells(*, graph: bool) -> Step:
    """Two LSTM cells stepped through a sequence by a Python loop."""
    torch.manual_seed(4)
    width, batch = size(768, 16), size(64, 2)
    cells = [nn.LSTMCell(width, width).to(DEVICE, torch.bfloat16) for _ in range(2)]
    x = torch.randn(size(150, 4), batch, width, device=DEVICE, dtype=torch.bfloat16)

    def sequence() -> None:
        with torch.no_grad():
            states = [(x[0], x[0]), (x[0], x[0])]
            for row in x:
                h = row
                for i, cell in enumerate(cells):
                    states[i] = cell(h, states[i])
                    h = states[i][0]

    return captured(sequence) if graph else sequence


def small_residual_net(*, graph: bool) -> Step:
    """Training of many small convolutions; forward and backward as graphs, or launched one by one."""
    model = residual_net(size(16, 1), size(64, 8))
    side = size(192, 32)
    x = torch.randn(size(40, 2), 3, side, side, device=DEVICE, dtype=torch.bfloat16)
    x = x.contiguous(memory_format=torch.channels_last)
    labels = torch.zeros(len(x), dtype=torch.long, device=DEVICE)
    optimizer = sgd(model)
    run = torch.cuda.make_graphed_callables(model, (x,)) if graph and ON_GPU else model

    def step() -> None:
        F.cross_entropy(run(x).float(), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def classified_images(*, batch: int) -> Step:
    """A vision transformer at a large batch; the classes are read at the end of each step."""
    model = layers(size(8, 1), size(1024, 64), attention=fused_full).eval()
    x = torch.randn(batch, size(256, 8), size(1024, 64), device=DEVICE, dtype=torch.bfloat16)
    classes: list[int] = []

    def step() -> None:
        with torch.no_grad():
            classes[:] = model(x).mean(1).argmax(-1).tolist()

    return step
