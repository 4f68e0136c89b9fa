"""What a host does to its GPU: waits for values, saves, collects garbage, logs, empties the cache, recompiles."""

import gc
import itertools
import json
import math
import queue
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from loops.base import DEVICE, ON_GPU, Step, captured, size
from loops.later_models import adamw, hidden_states, layers, mean_square, training


def scratch(name: str) -> Path:
    memory = Path("/dev/shm")
    return (memory if memory.is_dir() else Path(tempfile.gettempdir())) / name


# -- values that the host waits for


class Experts(nn.Module):
    """A token goes to one of eight experts. Each expert's tokens by `nonzero`, whose length the host must learn, or
    as an equal share of the sorted tokens: the routing here is even, so both do the same work."""

    def __init__(self, width: int, inner: int, count: int = 8) -> None:
        super().__init__()
        self.up = nn.ModuleList([nn.Linear(width, inner, bias=False) for _ in range(count)])
        self.down = nn.ModuleList([nn.Linear(inner, width, bias=False) for _ in range(count)])
        self.count = count

    def forward(self, x: torch.Tensor, route: torch.Tensor, *, search: bool) -> torch.Tensor:
        y = torch.zeros_like(x)
        shares = torch.argsort(route).view(self.count, -1)
        for e in range(self.count):
            mine = (route == e).nonzero().squeeze(1) if search else shares[e]
            y.index_copy_(0, mine, self.down[e](F.silu(self.up[e](x.index_select(0, mine)))))
        return x + y


def experts(*, search: bool) -> Step:
    torch.manual_seed(3)
    width, tokens = size(2048, 32), size(24576, 64)
    stack = [Experts(width, 2 * width).to(DEVICE, torch.bfloat16) for _ in range(size(8, 2))]
    x = torch.randn(tokens, width, device=DEVICE, dtype=torch.bfloat16)
    routes = [(torch.randperm(tokens, device=DEVICE) % 8) for _ in stack]

    def step() -> None:
        y = x
        with torch.no_grad():
            for layer, route in zip(stack, routes, strict=True):
                y = layer(y, route, search=search)

    return step


def guarded_blocks(*, ask: bool) -> Step:
    """A sum of each block's result, looked at by the host at once, or gathered on the device."""
    torch.manual_seed(3)
    width = size(2048, 32)
    blocks = [nn.Linear(width, width).to(DEVICE, torch.bfloat16) for _ in range(size(64, 3))]
    norm = nn.LayerNorm(width).to(DEVICE, torch.bfloat16)
    x = torch.randn(size(8192, 16), width, device=DEVICE, dtype=torch.bfloat16)
    total = torch.zeros((), device=DEVICE)

    def step() -> None:
        y = x
        with torch.no_grad():
            for block in blocks:
                y = norm(F.gelu(block(y)))
                mark = y.sum(dtype=torch.float32)
                if ask:
                    if not math.isfinite(mark.item()):
                        raise FloatingPointError("a block gave no finite result")
                else:
                    total.add_(mark)

    return step


def sampled_tokens(*, ask_each: bool) -> Step:
    """Decoding by a CUDA graph a token. The host reads each token as it comes, or all of them at the end."""
    torch.manual_seed(3)
    width, batch, count = size(4096, 32), size(64, 2), size(64, 3)
    body = nn.Sequential(
        *[
            nn.Sequential(nn.RMSNorm(width), nn.Linear(width, width, bias=False), nn.SiLU())
            for _ in range(size(8, 2))
        ]
    ).to(DEVICE, torch.bfloat16)
    embed = nn.Embedding(size(32000, 64), width, device=DEVICE, dtype=torch.bfloat16)
    token = torch.zeros(batch, dtype=torch.long, device=DEVICE)
    seen = torch.zeros(count, batch, dtype=torch.long, device=DEVICE)
    turn = torch.zeros(1, dtype=torch.long, device=DEVICE)

    def one() -> None:
        with torch.no_grad():
            token.copy_((body(embed(token)) @ embed.weight.T).argmax(-1))
            seen.index_copy_(0, turn % count, token[None])
            turn.add_(1)

    play = captured(one)
    ended = [0] * batch

    def step() -> None:
        for _ in range(count):
            play()
            if ask_each:
                for row, value in enumerate(token.tolist()):
                    ended[row] += value == 2
        if not ask_each:
            for line in seen.tolist():
                for row, value in enumerate(line):
                    ended[row] += value == 2

    return step


# -- stalls of the main thread


def saves(
    every: int = 1, *, through_host: bool = False
) -> Callable[[nn.Module, torch.optim.Optimizer], None]:
    """Model and optimizer written each `every` steps, from the device or by way of host copies."""
    turns = itertools.count(1)

    def save(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if next(turns) % every:
            return
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        if through_host:
            state = {"model": {name: value.cpu() for name, value in model.state_dict().items()}}
        torch.save(state, scratch("later_loops.pt"))

    return save


def collects(_: torch.Tensor) -> None:
    gc.collect()


def logs(busy_ms: float) -> Callable[[torch.Tensor], None]:
    """Rounds of formatting and parsing a record of metrics, in Python, for `busy_ms`. It never asks the device."""
    record = {f"layer.{i}.metric": [i * 0.37 + k for k in range(20)] for i in range(60)}

    def log(_: torch.Tensor) -> None:
        end = time.perf_counter() + busy_ms / 1e3
        while time.perf_counter() < end:
            lines = [f"{name}={sum(row) / len(row):.4f}" for name, row in record.items()]
            assert json.loads(json.dumps(record)) and lines

    return log


def waits_for_a_queue(wait_ms: float) -> Callable[[torch.Tensor], None]:
    """A message that never comes, with a time limit: how a step waits for a slow neighbour."""
    box: queue.Queue[int] = queue.Queue()

    def wait(_: torch.Tensor) -> None:
        try:
            box.get(timeout=wait_ms / 1e3)
        except queue.Empty:
            pass

    return wait


# -- the allocator


def empties(_: torch.Tensor) -> None:
    if ON_GPU:
        torch.cuda.empty_cache()


def growing_lengths(*, emptied: bool, turns: int = 4) -> Step:
    """Batches sorted by length, each longer than all before; at the end of the round the cache is emptied. Every
    length then needs memory that no cached block is large enough for."""
    model = layers(size(2, 1), size(2048, 64))
    base, more = size(1024, 16), size(320, 8)
    batches = [hidden_states(size(6, 2), base + more * i, size(2048, 64)) for i in range(turns)]
    counter = itertools.count()

    def fetch() -> torch.Tensor:
        turn = next(counter) % turns
        if turn == 0 and emptied and ON_GPU:
            torch.cuda.empty_cache()
        return batches[turn]

    return training(model, fetch, mean_square, adamw(model))


# -- recompilation


def compiled_for_lengths(*, dynamic: bool) -> Step:
    """A loss traced by Dynamo (no code generation: backend "eager"). Every step has another length: a trace for each
    of them, or one for all."""
    limits: Any = torch._dynamo.config
    limits.recompile_limit = limits.accumulated_recompile_limit = 1_000_000
    model = layers(size(2, 1), size(2048, 64))
    lengths = itertools.cycle(size(1536, 16) + i * 37 % 509 for i in range(509))

    def capped(y: torch.Tensor) -> torch.Tensor:
        z = 30.0 * torch.tanh(y.float() / 30.0)
        shifted = torch.cat((z[:, 1:], z[:, :1]), dim=1)
        return F.smooth_l1_loss(z, shifted) + 1e-4 * torch.logsumexp(z, dim=-1).square().mean()

    loss_of = torch.compile(capped, backend="eager", dynamic=dynamic)
    x = hidden_states(size(8, 2), size(1536, 16) + 512, size(2048, 64))
    return training(model, lambda: x[:, : next(lengths)], loss_of, adamw(model))
