"""Batches that come late, or by a slow road: loaders, a generator in the main thread, pageable copies."""

import itertools
import re
import time
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from loops.base import DEVICE, ON_GPU, Step, pinned, size
from loops.later_models import (
    adamw,
    image_training,
    layers,
    mean_square,
    residual_net,
    training,
)


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def device_pixels(x: torch.Tensor) -> torch.Tensor:
    """Bytes or floats from the host, as bf16 pixels."""
    x = x.to(DEVICE, non_blocking=True)
    return x.to(torch.bfloat16, memory_format=torch.channels_last) * (1 / 64)


class CompressedImages(Dataset[torch.Tensor]):
    """Images that lie compressed in memory: unpacked, flipped and cropped by the CPU when asked for."""

    def __init__(self, side: int) -> None:
        rng = np.random.default_rng(5)
        self.side = side
        ramp = np.add.outer(np.arange(side + 32), np.arange(side + 32)) % 199
        noise = rng.integers(0, 24, (8, 3, side + 32, side + 32))
        self.blobs = [zlib.compress((ramp + n).astype(np.uint8).tobytes(), 3) for n in noise]

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        raw = np.frombuffer(zlib.decompress(self.blobs[index % 8]), dtype=np.uint8)
        image = raw.reshape(3, self.side + 32, self.side + 32)
        at = index % 32
        image = image[:, at : at + self.side, at : at + self.side]
        return torch.from_numpy(np.ascontiguousarray(image[:, :, ::-1] if index % 2 else image))


def decoded_images(*, workers: int, blocks: int = 5) -> Step:
    loader = DataLoader(
        CompressedImages(size(256, 32)),
        batch_size=size(48, 2),
        num_workers=workers,
        pin_memory=ON_GPU,
        persistent_workers=workers > 0,
    )
    batches = endless(loader)
    return image_training(
        blocks=size(blocks, 1),
        width=size(256, 8),
        batch=0,
        side=0,
        fetch=lambda: device_pixels(next(batches)),
    )


class Articles(Dataset[str]):
    def __init__(self, words: int) -> None:
        stems = ["river", "cloud", "stone", "bright", "seven", "under", "market", "window", "paper", "green"]
        self.text = " ".join(f"{stems[i % 10]}{i * 7919 % 3001}," for i in range(words))

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> str:
        return self.text[index % 64 :]


class Tokenise:
    """A collate function that splits and numbers the words itself, in Python."""

    def __init__(self, length: int) -> None:
        self.length, self.words = length, re.compile(r"\w+|[^\w\s]")

    def __call__(self, texts: list[str]) -> torch.Tensor:
        rows = []
        for text in texts:
            known: dict[str, int] = {}
            ids = [known.setdefault(word, len(known) % 8192) for word in self.words.findall(text)]
            rows.append(ids[: self.length])
        return torch.tensor(rows)


class Tagger(nn.Module):
    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(8192, width, device=DEVICE, dtype=torch.bfloat16)
        self.body = layers(count, width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.body(self.embed(ids))


def tokenised_text(*, workers: int) -> Step:
    length = size(2048, 32)
    loader = DataLoader(
        Articles(size(6_500, 100)),
        batch_size=size(8, 2),
        num_workers=workers,
        collate_fn=Tokenise(length),
        pin_memory=ON_GPU,
        persistent_workers=True,
    )
    batches = endless(loader)
    model = Tagger(size(2, 1), size(2048, 64))
    return training(model, lambda: next(batches).to(DEVICE, non_blocking=True), mean_square, adamw(model))


class Crops:
    """Not a DataLoader: random crops of one big array, normalised in the main thread, into pinned buffers."""

    def __init__(self, batch: int, side: int, *, prepared: bool) -> None:
        rng = np.random.default_rng(9)
        self.array = rng.integers(0, 255, (3, 4 * side, 4 * side), dtype=np.uint8)
        self.batch, self.side, self.prepared, self.rng = batch, side, prepared, rng
        self.buffers = [pinned(torch.zeros(batch, 3, side, side)) for _ in range(4)]

    def fill(self, out: np.ndarray[Any, Any]) -> None:
        for row in out:
            y, x = self.rng.integers(0, 3 * self.side, 2)
            crop = self.array[:, y : y + self.side, x : x + self.side].astype(np.float32)
            row[...] = (crop - crop.mean((1, 2), keepdims=True)) / (crop.std((1, 2), keepdims=True) + 1e-3)

    def __iter__(self) -> Iterator[torch.Tensor]:
        if self.prepared:
            for buffer in self.buffers:
                self.fill(buffer.numpy())
        for buffer in itertools.cycle(self.buffers):
            if not self.prepared:
                self.fill(buffer.numpy())
            yield buffer


def cropped_images(*, prepared: bool) -> Step:
    batches = iter(Crops(size(40, 2), size(256, 32), prepared=prepared))
    return image_training(
        blocks=size(4, 1),
        width=size(256, 8),
        batch=0,
        side=0,
        fetch=lambda: device_pixels(next(batches)),
    )


class Remote(IterableDataset[torch.Tensor]):
    """Samples that arrive a few milliseconds after they are asked for, as from a store across a network."""

    def __init__(self, side: int, wait_ms: float) -> None:
        self.side, self.wait_ms = side, wait_ms

    def __iter__(self) -> Iterator[torch.Tensor]:
        image = torch.randn(3, self.side, self.side)
        while True:
            time.sleep(self.wait_ms / 1e3)
            yield image


def remote_images(*, workers: int, pin: bool) -> Step:
    loader = DataLoader(
        Remote(size(256, 32), 3.0 if ON_GPU else 0.1),
        batch_size=size(32, 2),
        num_workers=workers,
        pin_memory=pin and ON_GPU,
        persistent_workers=True,
    )
    batches = endless(loader)
    return image_training(
        blocks=size(5, 1), width=size(256, 8), batch=0, side=0, fetch=lambda: device_pixels(next(batches))
    )


def arrays_to_device(*, pin: bool) -> Step:
    """A batch made of separate arrays, each copied by itself, from pageable or from pinned memory."""
    rng = np.random.default_rng(2)
    count, side = size(64, 2), size(256, 32)
    samples = [torch.from_numpy(rng.random((3, side, side), dtype=np.float32)) for _ in range(3 * count)]
    if pin:
        samples = [pinned(s) for s in samples]
    turns = itertools.count()

    def fetch() -> torch.Tensor:
        at = next(turns) % 3 * count
        rows = [s.to(DEVICE, non_blocking=True) for s in samples[at : at + count]]
        return torch.stack(rows).to(torch.bfloat16, memory_format=torch.channels_last)

    return image_training(blocks=size(3, 1), width=size(256, 8), batch=0, side=0, fetch=fetch)


def masks_to_host(*, pin: bool) -> Step:
    """Inference whose large result goes back to the host: by `.cpu()`, or into pinned buffers that are read a
    step later."""
    model = residual_net(size(10, 1), size(256, 8)).eval()
    body = nn.Sequential(*model.children())[:2]
    x = torch.randn(size(32, 2), 3, size(256, 32), size(256, 32), device=DEVICE, dtype=torch.bfloat16)
    x = x.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        shape = body(x).shape
    buffers = [pinned(torch.zeros(shape, dtype=torch.bfloat16)) for _ in range(2)]
    done: list[Any] = [None, None]
    turns = itertools.count()
    sums: list[float] = []

    def look(mask: torch.Tensor) -> None:
        sums.append(float(mask[0, 0, 0, 0]))

    def step() -> None:
        at = next(turns) % 2
        with torch.no_grad():
            y = body(x).contiguous()
        if not pin:
            look(y.cpu())
            return
        if done[at] is not None:
            done[at].synchronize()
            look(buffers[at])
        buffers[at].copy_(y, non_blocking=True)
        if ON_GPU:
            done[at] = torch.cuda.Event()
            done[at].record()

    return step
