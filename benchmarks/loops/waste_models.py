"""Models with one waste each: a transformer, linears and residual convolutions, trained or only used, in a precision, with a
written-out or a fused attention, with an optimizer of one of three forms."""

import torch
import torch.nn.functional as F
from torch import nn

from loops.base import DEVICE, Step, size

OPTIMIZERS: dict[str, dict[str, bool]] = {
    "fused": {"fused": True},
    "foreach": {"foreach": True},
    "loop": {"foreach": False, "fused": False},
    "default": {},
}


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, *, written: bool, causal: bool) -> None:
        super().__init__()
        self.heads, self.written, self.causal = heads, written, causal
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if self.written:
            scores = (q @ k.transpose(-1, -2)) * (c // self.heads) ** -0.5
            if self.causal:
                seen = torch.ones(t, t, device=x.device, dtype=torch.bool).tril()
                scores = scores.masked_fill(~seen, float("-inf"))
            a = torch.softmax(scores, dim=-1).to(v.dtype) @ v
        else:
            a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.b = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.x, self.y = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return F.relu(v + self.y(self.b(F.relu(self.x(self.a(v))))))


def updates(model: nn.Module, form: str, kind: str = "adamw") -> torch.optim.Optimizer:
    how = OPTIMIZERS[form]
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, **how)
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **how)


def used(model: nn.Module, x: torch.Tensor, precision: str) -> Step:
    """Inference: in bf16 the weights are converted."""
    model = model.eval()
    if precision == "bf16":
        model, x = model.to(torch.bfloat16), x.to(torch.bfloat16)

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        with torch.no_grad():
            model(x)

    return step


def trained(model: nn.Module, x: torch.Tensor, precision: str, optimizer: torch.optim.Optimizer) -> Step:
    """Training: in bf16 under autocast."""

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "bf16"):
            loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def transformer(
    *,
    precision: str = "bf16",
    written: bool = False,
    causal: bool = False,
    form: str = "fused",
    kind: str = "adamw",
    layers: int = 6,
    width: int = 1024,
    batch: int = 8,
    length: int = 512,
    train: bool = True,
) -> Step:
    torch.manual_seed(0)
    width, length = size(width, 64), size(length, 16)
    parts = [Layer(width, width // 64, written=written, causal=causal) for _ in range(size(layers, 1))]
    model = nn.Sequential(*parts).to(DEVICE)
    x = torch.randn(size(batch, 2), length, width, device=DEVICE)
    return trained(model, x, precision, updates(model, form, kind)) if train else used(model, x, precision)


def linears(
    *,
    precision: str = "bf16",
    form: str = "fused",
    kind: str = "adamw",
    width: int = 4096,
    depth: int = 6,
    rows: int = 4096,
    train: bool = False,
) -> Step:
    torch.manual_seed(0)
    width = size(width, 32)
    parts: list[nn.Module] = []
    for _ in range(size(depth, 2)):
        parts += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*parts).to(DEVICE)
    x = torch.randn(size(rows, 4), width, device=DEVICE)
    return trained(model, x, precision, updates(model, form, kind)) if train else used(model, x, precision)


def convolutions(
    *,
    precision: str = "bf16",
    channels: int = 64,
    depth: int = 3,
    batch: int = 64,
    side: int = 112,
    train: bool = True,
    channels_last: bool = False,
) -> Step:
    """`fp32`: without tf32, which cuDNN takes unless it is told not to."""
    torch.manual_seed(0)
    channels = size(channels, 8)
    parts: list[nn.Module] = [nn.Conv2d(3, channels, 7, stride=2, padding=3)]
    for i in range(depth):
        wide = channels * 2**i
        parts.append(Residual(wide))
        if i + 1 < depth:
            parts.append(nn.Conv2d(wide, 2 * wide, 1, stride=2))
    head = nn.Linear(channels * 2 ** (depth - 1), 100)
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head).to(DEVICE)
    batch, side = size(batch, 2), size(side, 32)
    x = torch.randn(batch, 3, side, side, device=DEVICE)
    labels = torch.randint(0, 100, (batch,), device=DEVICE)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def step() -> None:
        torch.backends.cudnn.allow_tf32 = precision != "fp32"
        with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "bf16"):
            if not train:
                with torch.no_grad():
                    model(x)
                return
            loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step
