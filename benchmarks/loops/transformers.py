"""Transformers: a small GPT on a loader, an encoder whose one choice is slow, an encoder that serves; what stalls them."""

import gc
import itertools
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from loops.base import DEVICE, Step


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int = 16000) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Samples(Dataset[torch.Tensor]):
    """Token samples that cost `cpu_ms` of CPU or `wait_ms` of waiting each."""

    def __init__(self, length: int, cpu_ms: float = 0.0, wait_ms: float = 0.0) -> None:
        self.length, self.cpu_ms, self.wait_ms = length, cpu_ms, wait_ms

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.wait_ms:
            time.sleep(self.wait_ms / 1e3)
        end = time.perf_counter() + self.cpu_ms / 1e3
        while time.perf_counter() < end:
            pass
        return torch.full((self.length,), index % 1000, dtype=torch.long)


def forever(loader: DataLoader[torch.Tensor]) -> Any:
    while True:
        yield from loader


def gpt_training(
    *,
    layers: int = 12,
    width: int = 768,
    batch: int = 16,
    length: int = 1024,
    workers: int = 4,
    cpu_ms: float = 0.0,
    wait_ms: float = 0.0,
    item: int = 0,
    fused: bool = True,
    logs: int = 0,
) -> Step:
    torch.manual_seed(0)
    model = Gpt(layers, width, width // 64).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused, foreach=None if fused else False)
    loader = DataLoader(
        Samples(length, cpu_ms, wait_ms),
        batch_size=batch,
        num_workers=workers,
        pin_memory=True,
        persistent_workers=workers > 0,
    )
    batches = forever(loader)
    sink: list[float] = []

    def step() -> None:
        tokens = next(batches).to(DEVICE, non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        sink.extend(loss.item() for _ in range(item))
        if logs:
            grads = [p.grad for p in list(model.parameters())[:logs] if p.grad is not None]
            sink.extend(grad.norm().item() for grad in grads)
        optimizer.step()

    return step


def vit_inference(*, batch: int, graph: bool, h2d: str = "none") -> Step:
    """A transformer encoder served at a small batch, with the input copied or not."""
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(384, 6) for _ in range(12)]).to(DEVICE, torch.bfloat16).eval()
    x = torch.randn(batch, 197, 384, device=DEVICE, dtype=torch.bfloat16)
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x)
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        if graph:
            with torch.cuda.graph(captured):
                model(x)

    def step() -> None:
        with torch.no_grad():
            for _ in range(4):
                if graph:
                    captured.replay()
                else:
                    model(x)

    return step


def encoder_training(
    *,
    precision: str = "bf16",
    attention: str = "sdpa",
    optimizer: str = "fused",
    layers: int = 6,
    width: int = 1024,
    batch: int = 8,
    length: int = 512,
    each_step: Step | None = None,
) -> Step:
    """A transformer trained on resident data; one of its choices is the slow one. `each_step` runs after the
    optimizer: a stall, a checkpoint, an emptied cache."""
    torch.manual_seed(0)
    heads = width // 64

    class Slow(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, t, c = x.shape
            q, k, v = self.qkv(self.n1(x)).view(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
            scores = (q @ k.transpose(-1, -2)) / (c // heads) ** 0.5
            a = torch.softmax(scores.float(), dim=-1).to(v.dtype) @ v
            x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.n2(x))))

    block = Block if attention == "sdpa" else Slow
    model = nn.Sequential(*[block(width, heads) for _ in range(layers)]).to(DEVICE)
    kinds: dict[str, dict[str, Any]] = {
        "fused": {"fused": True},
        "foreach": {"foreach": True},
        "loop": {"foreach": False, "fused": False},
    }
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, **kinds[optimizer])
    x = torch.randn(batch, length, width, device=DEVICE)

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(x).square().mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if each_step is not None:
            each_step()

    return step


def garbage(objects: int = 400_000) -> Step:
    """A heap of small objects in cycles, and a full collection a step: what a long run's collector does."""
    heap = [{"next": None, "n": i} for i in range(objects)]
    for a, b in itertools.pairwise(heap):
        a["next"] = b

    def collect() -> None:
        assert heap
        gc.collect()

    return collect


def checkpoint(mib: int = 96) -> Step:
    state = {"w": torch.randn(mib, 256, 1024, device=DEVICE)}

    def save() -> None:
        torch.save(state, "/dev/shm/labelled_loops.pt")

    return save
