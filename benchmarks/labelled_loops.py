"""Labelled loops: training and decoding loops with one known ill, their cure, and the measured speed-up.

    python benchmarks/labelled_loops.py OUT_DIR [NAME ...]

For each loop: the unprofiled step time sick and cured (medians of several rounds, one synchronise at the end
of each), then a torch.profiler trace of the sick loop (wait 1, warmup 1, active 3), and `labels.json`. This is
the truth that the trace engine's causes and gains are judged by; it is never read by the product.
Needs an NVIDIA or AMD GPU and torch.
"""

import gzip
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda"
Step = Callable[[], None]


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
    import gc

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


LOOPS: dict[str, dict[str, Any]] = {
    # -- kinds that came later, each against its cure
    "kind_fp32": {
        "ill": "slow-precision",
        "sick": lambda: encoder_training(precision="fp32"),
        "cured": lambda: encoder_training(precision="bf16"),
    },
    "kind_attention": {
        "ill": "unfused-attention",
        "sick": lambda: encoder_training(attention="matmul", length=1024),
        "cured": lambda: encoder_training(attention="sdpa", length=1024),
    },
    "kind_optimizer": {
        "ill": "unfused-optimizer",
        "sick": lambda: encoder_training(optimizer="loop", layers=24, batch=2, length=256),
        "cured": lambda: encoder_training(optimizer="fused", layers=24, batch=2, length=256),
    },
    "kind_pointwise": {
        "ill": "unfused-elementwise",
        "sick": lambda: pointwise(fused=False),
        "cured": lambda: pointwise(fused=True),
    },
    "kind_gc": {
        "ill": "host-stall",
        "sick": lambda: encoder_training(each_step=garbage()),
        "cured": lambda: encoder_training(),
    },
    "kind_sleep": {
        "ill": "host-stall",
        "sick": lambda: encoder_training(layers=3, each_step=lambda: time.sleep(0.02)),
        "cured": lambda: encoder_training(layers=3),
    },
    "kind_checkpoint": {
        "ill": "checkpoint-stall",
        "sick": lambda: encoder_training(each_step=checkpoint()),
        "cured": lambda: encoder_training(),
    },
    "kind_empty_cache": {
        "ill": "allocator-churn",
        "sick": lambda: encoder_training(each_step=torch.cuda.empty_cache),
        "cured": lambda: encoder_training(),
    },
    "kind_healthy_bf16": {"ill": None, "sick": lambda: encoder_training(batch=64), "cured": None},
    "kind_healthy_pointwise": {
        "ill": None,
        "sick": lambda: pointwise(fused=True, size=1 << 27, rounds=20),
        "cured": None,
    },
    "healthy_gpt": {"ill": None, "sick": lambda: gpt_training(), "cured": None},
    "healthy_gemm": {"ill": None, "sick": lambda: gemms(size=4096, count=60), "cured": None},
    "healthy_gemm_item": {"ill": None, "sick": lambda: gemms(size=4096, count=60, item=True), "cured": None},
    "healthy_graph": {
        "ill": None,
        "sick": lambda: decode(layers=24, width=2048, batch=1, passes=8, graph=True),
        "cured": None,
    },
    "healthy_conv": {
        "ill": None,
        "sick": lambda: conv_training(batch=256, size=224, width=128, depth=4, pinned=True),
        "cured": None,
    },
    "healthy_gpt_small": {"ill": None, "sick": lambda: gpt_training(layers=6, batch=32), "cured": None},
    "data_cpu": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(workers=0, cpu_ms=3.0),
        "cured": lambda: gpt_training(workers=12, cpu_ms=3.0),
    },
    "data_wait_one_worker": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(layers=6, workers=1, wait_ms=5.0),
        "cured": lambda: gpt_training(layers=6, workers=8, wait_ms=5.0),
    },
    "data_mild": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(workers=0, cpu_ms=0.6),
        "cured": lambda: gpt_training(workers=4, cpu_ms=0.6),
    },
    "pageable_small": {
        "ill": "pageable-copy",
        "sick": lambda: conv_training(batch=128, size=224, width=64, depth=4, pinned=False),
        "cured": lambda: conv_training(batch=128, size=224, width=64, depth=4, pinned=True),
    },
    "pageable_large": {
        "ill": "pageable-copy",
        "sick": lambda: conv_training(batch=384, size=224, width=192, depth=4, pinned=False),
        "cured": lambda: conv_training(batch=384, size=224, width=192, depth=4, pinned=True),
    },
    "decode_narrow": {
        "ill": "launch-bound",
        "sick": lambda: decode(layers=32, width=1024, batch=1, passes=6, graph=False),
        "cured": lambda: decode(layers=32, width=1024, batch=1, passes=6, graph=True),
    },
    "decode_wide": {
        "ill": "launch-bound",
        "sick": lambda: decode(layers=16, width=4096, batch=8, passes=8, graph=False),
        "cured": lambda: decode(layers=16, width=4096, batch=8, passes=8, graph=True),
    },
    "vit_small_batch": {
        "ill": "launch-bound",
        "sick": lambda: vit_inference(batch=4, graph=False),
        "cured": lambda: vit_inference(batch=4, graph=True),
    },
    "sync_item": {
        "ill": "host-sync",
        "sick": lambda: gpt_training(layers=12, batch=4, logs=150),
        "cured": lambda: gpt_training(layers=12, batch=4, logs=0),
    },
    "sync_decode": {
        "ill": "host-sync",
        "sick": lambda: gemms_sync(item=True),
        "cured": lambda: gemms_sync(item=False),
    },
    # -- fresh: made after the rules of the later kinds, other models and sizes, looked at once
    "fresh_data_small_gpt": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(layers=4, batch=8, workers=0, cpu_ms=2.0),
        "cured": lambda: gpt_training(layers=4, batch=8, workers=8, cpu_ms=2.0),
    },
    "fresh_data_conv": {
        "ill": "data-wait",
        "sick": lambda: conv_training(batch=96, size=192, width=96, depth=4, pinned=True, cpu_ms=12.0),
        "cured": lambda: conv_training(batch=96, size=192, width=96, depth=4, pinned=True),
    },
    "fresh_decode_16": {
        "ill": "launch-bound",
        "sick": lambda: decode(layers=12, width=1536, batch=16, passes=6, graph=False),
        "cured": lambda: decode(layers=12, width=1536, batch=16, passes=6, graph=True),
    },
    "fresh_mlp_narrow": {
        "ill": "launch-bound",
        "sick": lambda: mlp_training(width=1024, depth=12, batch=512, h2d="resident"),
        "cured": lambda: mlp_training(width=1024, depth=12, batch=512, h2d="resident", graph=True),
    },
    "fresh_sync_small": {
        "ill": "host-sync",
        "sick": lambda: gemms_sync(item=True, size=1536, chain=3, rounds=60),
        "cured": lambda: gemms_sync(item=False, size=1536, chain=3, rounds=60),
    },
    "fresh_mask": {
        "ill": "host-sync",
        "sick": lambda: masked(select=True),
        "cured": lambda: masked(select=False),
    },
    "fresh_pageable_conv": {
        "ill": "pageable-copy",
        "sick": lambda: conv_training(batch=64, size=256, width=48, depth=4, pinned=False),
        "cured": lambda: conv_training(batch=64, size=256, width=48, depth=4, pinned=True),
    },
    "fresh_pageable_wide": {
        "ill": "pageable-copy",
        "sick": lambda: mlp_training(width=1024, depth=6, batch=32768, h2d="pageable"),
        "cured": lambda: mlp_training(width=1024, depth=6, batch=32768, h2d="pinned"),
    },
    "fresh_empty_cache": {
        "ill": "allocator-churn",
        "sick": lambda: encoder_training(
            layers=12, width=768, batch=24, length=384, each_step=torch.cuda.empty_cache
        ),
        "cured": lambda: encoder_training(layers=12, width=768, batch=24, length=384),
    },
    "fresh_gc": {
        "ill": "host-stall",
        "sick": lambda: encoder_training(layers=8, width=768, batch=32, each_step=garbage(150_000)),
        "cured": lambda: encoder_training(layers=8, width=768, batch=32),
    },
    "fresh_sleep": {
        "ill": "host-stall",
        "sick": lambda: encoder_training(layers=4, width=768, batch=32, each_step=lambda: time.sleep(0.012)),
        "cured": lambda: encoder_training(layers=4, width=768, batch=32),
    },
    "fresh_checkpoint": {
        "ill": "checkpoint-stall",
        "sick": lambda: encoder_training(layers=8, width=768, batch=32, each_step=checkpoint(48)),
        "cured": lambda: encoder_training(layers=8, width=768, batch=32),
    },
    "fresh_fp32_gpt": {
        "ill": "slow-precision",
        "sick": lambda: encoder_training(precision="fp32", layers=8, width=1536, batch=6, length=640),
        "cured": lambda: encoder_training(precision="bf16", layers=8, width=1536, batch=6, length=640),
    },
    "fresh_tf32": {
        "ill": "slow-precision",
        "sick": lambda: encoder_training(precision="tf32", layers=6, width=2048, batch=8, length=512),
        "cured": lambda: encoder_training(precision="bf16", layers=6, width=2048, batch=8, length=512),
    },
    "fresh_fp32_conv": {
        "ill": "slow-precision",
        "sick": lambda: conv_training(batch=192, size=224, width=128, depth=4, pinned=True, precision="fp32"),
        "cured": lambda: conv_training(batch=192, size=224, width=128, depth=4, pinned=True),
    },
    "fresh_attention_long": {
        "ill": "unfused-attention",
        "sick": lambda: encoder_training(attention="matmul", layers=4, width=768, batch=4, length=2048),
        "cured": lambda: encoder_training(attention="sdpa", layers=4, width=768, batch=4, length=2048),
    },
    "fresh_optimizer_big": {
        "ill": "unfused-optimizer",
        "sick": lambda: encoder_training(optimizer="loop", layers=12, width=2048, batch=4, length=256),
        "cured": lambda: encoder_training(optimizer="fused", layers=12, width=2048, batch=4, length=256),
    },
    "fresh_optimizer_foreach": {
        "ill": "unfused-optimizer",
        "sick": lambda: encoder_training(optimizer="foreach", layers=12, width=2048, batch=2, length=128),
        "cured": lambda: encoder_training(optimizer="fused", layers=12, width=2048, batch=2, length=128),
    },
    "fresh_pointwise_small": {
        "ill": "unfused-elementwise",
        "sick": lambda: pointwise(fused=False, size=1 << 25, rounds=8),
        "cured": lambda: pointwise(fused=True, size=1 << 25, rounds=8),
    },
    "fresh_norms": {
        "ill": "unfused-elementwise",
        "sick": lambda: norms(fused=False),
        "cured": lambda: norms(fused=True),
    },
    "fresh_data_and_fp32": {
        "ill": "data-wait",
        "sick": lambda: conv_training(
            batch=96, size=192, width=96, depth=4, pinned=True, cpu_ms=25.0, precision="fp32"
        ),
        "cured": lambda: conv_training(batch=96, size=192, width=96, depth=4, pinned=True, precision="fp32"),
    },
    "fresh_fp32_and_stall": {
        "ill": "slow-precision",
        "sick": lambda: encoder_training(
            precision="fp32", layers=6, width=1024, batch=16, each_step=lambda: time.sleep(0.006)
        ),
        "cured": lambda: encoder_training(
            precision="bf16", layers=6, width=1024, batch=16, each_step=lambda: time.sleep(0.006)
        ),
    },
    "fresh_healthy_encoder": {
        "ill": None,
        "sick": lambda: encoder_training(layers=8, width=2048, batch=24, length=512),
        "cured": None,
    },
    "fresh_healthy_conv": {
        "ill": None,
        "sick": lambda: conv_training(batch=320, size=224, width=160, depth=4, pinned=True),
        "cured": None,
    },
    "fresh_healthy_item": {
        "ill": None,
        "sick": lambda: mlp_training(width=6144, depth=6, batch=8192, h2d="resident", item=True),
        "cured": None,
    },
    "fresh_healthy_compiled": {
        "ill": None,
        "sick": lambda: norms(fused=True, rows=1 << 17, rounds=12),
        "cured": None,
    },
    "fresh_healthy_decode": {
        "ill": None,
        "sick": lambda: decode(layers=16, width=4096, batch=32, passes=6, graph=True),
        "cured": None,
    },
    # -- held out: made after the constants of the model were set, never looked at while setting them
    "held_data_heavy": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(layers=8, batch=16, workers=0, cpu_ms=8.0),
        "cured": lambda: gpt_training(layers=8, batch=16, workers=14, cpu_ms=8.0),
    },
    "held_data_two_workers": {
        "ill": "data-wait",
        "sick": lambda: gpt_training(layers=6, batch=8, workers=2, cpu_ms=8.0),
        "cured": lambda: gpt_training(layers=6, batch=8, workers=12, cpu_ms=8.0),
    },
    "held_mlp_eager": {
        "ill": "launch-bound",
        "sick": lambda: mlp_training(width=512, depth=24, batch=256, h2d="resident"),
        "cured": lambda: mlp_training(width=512, depth=24, batch=256, h2d="resident", graph=True),
    },
    "held_decode_batch": {
        "ill": "launch-bound",
        "sick": lambda: decode(layers=20, width=2560, batch=4, passes=5, graph=False),
        "cured": lambda: decode(layers=20, width=2560, batch=4, passes=5, graph=True),
    },
    "held_vit_16": {
        "ill": "launch-bound",
        "sick": lambda: vit_inference(batch=16, graph=False),
        "cured": lambda: vit_inference(batch=16, graph=True),
    },
    "held_pageable_mlp": {
        "ill": "pageable-copy",
        "sick": lambda: mlp_training(width=4096, depth=8, batch=8192, h2d="pageable"),
        "cured": lambda: mlp_training(width=4096, depth=8, batch=8192, h2d="pinned"),
    },
    "held_pageable_small_mlp": {
        "ill": "pageable-copy",
        "sick": lambda: mlp_training(width=2048, depth=4, batch=16384, h2d="pageable"),
        "cured": lambda: mlp_training(width=2048, depth=4, batch=16384, h2d="pinned"),
    },
    "held_healthy_mlp": {
        "ill": None,
        "sick": lambda: mlp_training(width=4096, depth=8, batch=8192, h2d="resident", item=True),
        "cured": None,
    },
    "held_healthy_vit": {"ill": None, "sick": lambda: vit_inference(batch=256, graph=False), "cured": None},
    "held_healthy_wide_gpt": {
        "ill": None,
        "sick": lambda: gpt_training(layers=8, width=1280, batch=8, item=1),
        "cured": None,
    },
    "two_ills": {
        "ill": "data-wait",
        "sick": lambda: conv_training(batch=128, size=224, width=64, depth=4, pinned=False, cpu_ms=20.0),
        "cured": lambda: conv_training(batch=128, size=224, width=64, depth=4, pinned=False),
    },
}


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


def unprofiled_ms(step: Step, *, budget_s: float = 1.6) -> dict[str, float]:
    """Median step over rounds of k steps, one synchronise a round."""
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    k = max(3, min(30, int(0.25 / (time.perf_counter() - begin))))
    rounds: list[float] = []
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end or len(rounds) < 3:
        begin = time.perf_counter()
        for _ in range(k):
            step()
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - begin) / k * 1e3)
    return {
        "median": statistics.median(rounds),
        "min": min(rounds),
        "max": max(rounds),
        "rounds": len(rounds),
        "k": k,
    }


def record(step: Step, path: Path, *, shapes: bool, stack: bool = False) -> list[float]:
    """Trace three steps of the loop; returns their traced times in ms."""
    from torch.profiler import ProfilerActivity, profile, schedule

    times: list[float] = []
    plain = path.with_suffix("")
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=1, warmup=1, active=3),
        record_shapes=shapes,
        with_stack=stack,
        on_trace_ready=lambda p: p.export_chrome_trace(str(plain)),
    ) as profiler:
        for _ in range(5):
            begin = time.perf_counter()
            step()
            profiler.step()
            times.append((time.perf_counter() - begin) * 1e3)
    with plain.open("rb") as source, gzip.open(path, "wb", compresslevel=6) as sink:
        sink.write(source.read())
    plain.unlink()
    return times[2:]


def main(argv: list[str]) -> int:
    out = Path(argv[0])
    out.mkdir(parents=True, exist_ok=True)
    names = argv[1:] or list(LOOPS)
    labels: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "how": "median step without profiler over rounds of k steps; traces: wait 1, warmup 1, active 3",
        "cases": {},
    }
    for name in names:
        loop = LOOPS[name]
        began = time.perf_counter()
        step = loop["sick"]()
        case: dict[str, Any] = {"ill": loop["ill"], "sick_ms": unprofiled_ms(step)}
        case["traced_ms"] = record(step, out / f"{name}.json.gz", shapes=True)
        if not name.startswith(("fresh", "kind")):
            case["traced_plain_ms"] = record(step, out / f"{name}.plain.json.gz", shapes=False)
        case["sick_after_ms"] = unprofiled_ms(step, budget_s=0.8)
        del step
        if loop["cured"] is not None:
            step = loop["cured"]()
            case["cured_ms"] = unprofiled_ms(step)
            case["speedup"] = case["sick_ms"]["median"] / case["cured_ms"]["median"]
            del step
        torch.cuda.empty_cache()
        labels["cases"][name] = case
        (out / "labels.json").write_text(json.dumps(labels, indent=1))
        print(f"{name}: {case} in {time.perf_counter() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
