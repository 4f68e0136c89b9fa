"""The last loops' small launches, and kernels that are slower than they need be."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from loops.base import DEVICE, ON_GPU, Step, captured, size
from loops.last_models import Pyramid, SquaredMlp, post_blocks
from loops.later_models import fused_full, mean_square, pixels, sgd
from loops.later_serving import tokens_step

# -- many small launches


class WideStepLayer(nn.Module):
    """One token a call: one matrix in, one out, attention and MLP between them side by side."""

    def __init__(self, width: int, batch: int, length: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.norm = nn.LayerNorm(width)
        self.enter, self.leave = nn.Linear(width, 7 * width), nn.Linear(5 * width, width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(batch, heads, length, width // heads))

    def forward(self, x: torch.Tensor, place: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        w = self.width
        q, k, v, up = self.enter(self.norm(x)).split((w, w, w, 4 * w), dim=-1)
        q, k, v = (part.reshape(len(x), self.heads, 1, -1) for part in (q, k, v))
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        a = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        return x + self.leave(torch.cat((a.flatten(1), F.gelu(up)), dim=-1))


def parallel_decode(*, graph: bool, count: int, width: int, batch: int, tokens: int) -> Step:
    torch.manual_seed(15)
    length = size(384, 16)
    made: list[nn.Module] = [WideStepLayer(width, batch, length, max(1, width // 64)) for _ in range(count)]
    return tokens_step(
        made,
        lambda y: F.layer_norm(y, (width,)),
        graph=graph,
        length=length,
        width=width,
        batch=batch,
        tokens=tokens,
    )


class TabularBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(F.relu(self.a(self.norm(x))))


def repeated(update: Callable[[], None], *, graph: bool, times: int) -> Step:
    """Several updates a step, each launched operator by operator or as one graph."""
    play = captured(update) if graph else update

    def step() -> None:
        for _ in range(times):
            play()

    return step


def capturable_adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=ON_GPU)


def tabular_training(*, graph: bool) -> Step:
    torch.manual_seed(15)
    width, rows = size(320, 16), size(384, 4)
    model = nn.Sequential(*[TabularBlock(width) for _ in range(size(9, 2))]).to(DEVICE, torch.bfloat16)
    optimizer = capturable_adam(model)
    x = torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16)

    def update() -> None:
        optimizer.zero_grad(set_to_none=True)
        mean_square(model(x)).backward()
        optimizer.step()

    return repeated(update, graph=graph, times=size(4, 2))


class Messages(nn.Module):
    """A layer of a graph net: messages along edges, a gate, a sum at the node where the edge ends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.source, self.sink, self.gate, self.update = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, h: torch.Tensor, begin: torch.Tensor, end: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        m = F.relu(self.source(h.index_select(0, begin)) + self.sink(h.index_select(0, end)))
        m = m * torch.sigmoid(self.gate(m))
        total = torch.zeros_like(h).index_add(0, end, m) * scale
        return self.norm(h + self.update(total))


def graph_net_training(*, graph: bool) -> Step:
    torch.manual_seed(15)
    nodes, edges, width = size(1536, 16), size(8192, 48), size(64, 8)
    stack = nn.ModuleList([Messages(width) for _ in range(size(8, 2))]).to(DEVICE)
    optimizer = capturable_adam(stack)
    begin, end = (torch.randint(0, nodes, (edges,), device=DEVICE) for _ in range(2))
    scale = 1.0 / torch.bincount(end, minlength=nodes).clamp(min=1)[:, None]
    x = torch.randn(nodes, width, device=DEVICE)

    def update() -> None:
        optimizer.zero_grad(set_to_none=True)
        h = x
        for layer in stack:
            h = layer(h, begin, end, scale)
        mean_square(h).backward()
        optimizer.step()

    return repeated(update, graph=graph, times=2)


# -- precision


def trained(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer, *, autocast: bool) -> Step:
    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast):
            y = model(x)
        mean_square(y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def float_encoder(*, autocast: bool) -> Step:
    """Weights in float32; products in true float32, or in bf16 by autocast."""
    width = size(2048, 32)
    model = post_blocks(size(2, 1), width, max(1, width // 128), dropout=0.0, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    x = torch.randn(size(10, 2), size(640, 8), width, device=DEVICE)
    return trained(model, x, optimizer, autocast=autocast)


def float_pyramid(*, dtype: torch.dtype) -> Step:
    """True float32 in the order of channels that PyTorch starts with; or bf16, channels last."""
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(16)
    exact = dtype == torch.float32
    form = torch.contiguous_format if exact else torch.channels_last
    model = Pyramid(size(160, 8), size(3, 1)).to(DEVICE, dtype, memory_format=form)
    x = pixels(size(40, 2), size(256, 32), dtype).contiguous(memory_format=form)
    return trained(model, x, sgd(model), autocast=False)


def tensor_float_blocks(*, autocast: bool) -> Step:
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(16)
    width, inner = size(4096, 32), size(10240, 64)
    model = nn.Sequential(*[SquaredMlp(width, inner) for _ in range(size(3, 1))]).to(DEVICE)
    x = torch.randn(size(8192, 8), width, device=DEVICE)
    return trained(model, x, sgd(model), autocast=autocast)


# -- attention


def written_flat(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Batch and heads as one dimension, scaled inside the product, softmax in the precision of the input."""
    b, h, t, d = q.shape
    q, k, v = (part.reshape(b * h, t, d) for part in (q, k, v))
    empty = torch.empty(b * h, t, t, device=q.device, dtype=q.dtype)
    scores = torch.baddbmm(empty, q, k.transpose(1, 2), beta=0, alpha=1 / math.sqrt(d))
    return torch.bmm(scores.softmax(-1), v).view(b, h, t, d)


WRITTEN, FUSED = written_flat, fused_full

# -- elementwise


def joined(x: torch.Tensor, y: torch.Tensor, gain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of a residual stream and a branch, and its RMS norm, in float32."""
    x = x + y
    f = x.float()
    f = f / torch.sqrt(f.square().mean(-1, keepdim=True) + 1e-5)
    return x, (f * gain).to(y.dtype)


def gated(both: torch.Tensor) -> torch.Tensor:
    """SwiGLU in float32, the sigmoid written out."""
    gate, up = both.float().chunk(2, dim=-1)
    return (gate / (1.0 + torch.exp(-gate)) * up).to(both.dtype)


def residual_stream(*, compiled: bool) -> Step:
    torch.manual_seed(17)
    width, rows = size(1024, 32), size(65536, 16)
    enter, leave = (
        [
            torch.randn(width, out, device=DEVICE, dtype=torch.bfloat16) * width**-0.5
            for _ in range(size(6, 2))
        ]
        for out in (2 * width, width)
    )
    gain = torch.ones(width, device=DEVICE)
    start = torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16)
    join, gate = (torch.compile(f, dynamic=False) if compiled else f for f in (joined, gated))

    def step() -> None:
        x, y = start, start
        with torch.no_grad():
            for a, b in zip(enter, leave, strict=True):
                x, h = join(x, y, gain)
                y = gate(h @ a) @ b

    return step


# -- optimizers


class NormedLinear(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.gelu(self.mix(self.norm(x)))


def many_parameters(*, rows: int, **how: bool) -> Step:
    """A hundred thin blocks, 400 parameters, a large batch."""
    torch.manual_seed(18)
    width = size(1536, 16)
    model = nn.Sequential(*[NormedLinear(width) for _ in range(size(100, 3))]).to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, **how)
    x = torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16)
    return trained(model, x, optimizer, autocast=False)
