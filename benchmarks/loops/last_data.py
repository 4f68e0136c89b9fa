"""Batches for the last loops: block transforms and warps and spectra on the CPU, pageable images, many pageable columns."""

import itertools
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from loops.base import DEVICE, ON_GPU, Step, pinned, size
from loops.last_models import SquaredMlp, parallel_blocks, pyramid_training
from loops.later_data import device_pixels, endless
from loops.later_models import adamw, mean_square, training

# -- loaders


class BlockImages(Dataset[torch.Tensor]):
    """Images that lie as 8 x 8 blocks of quantised cosines, as in JPEG: transformed back, clipped, mirrored."""

    def __init__(self, side: int) -> None:
        rng = np.random.default_rng(21)
        k, n = np.arange(8)[:, None], np.arange(8)[None, :]
        basis = np.cos((2 * n + 1) * k * np.pi / 16) * np.where(k == 0, 8**-0.5, 0.5)
        self.basis = basis.astype(np.float32)
        self.table = (4 + 3 * (k + n)).astype(np.float32)
        self.side, many = side, side // 8
        self.stored = rng.integers(-6, 7, (6, 3, many, many, 8, 8)).astype(np.int8)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        blocks = self.stored[index % 6] * self.table
        spatial = self.basis.T @ blocks @ self.basis
        flat = np.clip(spatial + 128.0, 0, 255).astype(np.uint8)
        image = flat.transpose(0, 1, 3, 2, 4).reshape(3, self.side, self.side)
        return torch.from_numpy(np.ascontiguousarray(image[:, :, ::-1] if index % 2 else image))


class WarpedImages(Dataset[torch.Tensor]):
    """Turned and scaled by a bilinear warp, then a jitter of the colours: bytes in, bytes out."""

    def __init__(self, side: int) -> None:
        self.source = np.random.default_rng(22).integers(0, 255, (side + 64, side + 64, 3), dtype=np.uint8)
        self.side = side

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        angle, half, limit = (index % 31 - 15) / 60, self.side / 2, self.side + 62
        y, x = np.mgrid[0 : self.side, 0 : self.side].astype(np.float32) - half
        at_y = np.clip(np.cos(angle) * y + np.sin(angle) * x + half + 32, 0, limit)
        at_x = np.clip(np.cos(angle) * x - np.sin(angle) * y + half + 32, 0, limit)
        row, column = at_y.astype(np.int32), at_x.astype(np.int32)
        down, right = (part.astype(np.float32)[..., None] for part in (at_y - row, at_x - column))
        top = self.source[row, column] * (1 - right) + self.source[row, column + 1] * right
        low = self.source[row + 1, column] * (1 - right) + self.source[row + 1, column + 1] * right
        image = top * (1 - down) + low * down
        image = np.clip(image * (0.8 + index % 5 * 0.1), 0, 255).astype(np.uint8)
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


class Spectra(Dataset[torch.Tensor]):
    """A recording played at another speed, cut into windows, and the logarithm of each window's spectrum."""

    def __init__(self, frames: int) -> None:
        self.frames, self.hop = frames, 160
        self.wave = np.random.default_rng(23).standard_normal(2 * frames * self.hop).astype(np.float32)
        self.window = np.hanning(512).astype(np.float32)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        long = self.frames * self.hop + 512
        speed = 0.9 + index % 20 * 0.01
        wave = np.interp(np.arange(long) * speed, np.arange(len(self.wave)), self.wave).astype(np.float32)
        cut = np.lib.stride_tricks.sliding_window_view(wave, 512)[:: self.hop][: self.frames]
        power = np.abs(np.fft.rfft(cut * self.window, axis=-1))[:, :256]
        return torch.from_numpy(np.log1p(power).astype(np.float32))


def loader(data: Dataset[torch.Tensor], *, batch: int, workers: int) -> DataLoader[torch.Tensor]:
    return DataLoader(
        data, batch_size=batch, num_workers=workers, pin_memory=ON_GPU, persistent_workers=workers > 0
    )


def block_images(*, workers: int, per_stage: int = 5) -> Step:
    batches = endless(loader(BlockImages(size(224, 32)), batch=size(56, 2), workers=workers))
    return pyramid_training(
        width=size(192, 8), per_stage=size(per_stage, 1), fetch=lambda: device_pixels(next(batches))
    )


def warped_images(*, workers: int) -> Step:
    batches = endless(loader(WarpedImages(size(160, 32)), batch=size(32, 2), workers=workers))
    return pyramid_training(
        width=size(320, 8), per_stage=size(6, 1), fetch=lambda: device_pixels(next(batches))
    )


class Listener(nn.Module):
    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.enter = nn.Linear(256, width, device=DEVICE, dtype=torch.bfloat16)
        self.body = parallel_blocks(count, width, max(1, width // 128))

    def forward(self, spectra: torch.Tensor) -> torch.Tensor:
        return self.body(self.enter(spectra.to(torch.bfloat16)))


def spectra(*, workers: int) -> Step:
    batches = endless(loader(Spectra(size(384, 16)), batch=size(10, 2), workers=workers))
    model = Listener(size(5, 1), size(2048, 64))
    return training(model, lambda: next(batches).to(DEVICE, non_blocking=True), mean_square, adamw(model))


# -- pageable memory


def large_images(*, pin: bool, as_bytes: bool = False, per_stage: int = 3) -> Step:
    """One tensor of images a batch, as floats or as bytes, from pageable or from pinned memory."""
    shape = (size(32, 2), 3, size(512, 32), size(512, 32))
    torch.manual_seed(12)
    images = [torch.randint(0, 255, shape, dtype=torch.uint8) for _ in range(3)]
    if not as_bytes:
        images = [x.float() for x in images]
    if pin:
        images = [pinned(x) for x in images]
    turns = itertools.count()

    def fetch() -> torch.Tensor:
        x = images[next(turns) % 3].to(DEVICE, non_blocking=pin)
        return x.to(torch.bfloat16, memory_format=torch.channels_last) * (1 / 64)

    return pyramid_training(width=size(128, 8), per_stage=size(per_stage, 1), fetch=fetch)


def columns(*, pin: bool) -> Step:
    """A table's batch: 32 named tensors of 3 MB, each moved by itself, then joined."""
    torch.manual_seed(12)
    rows, wide, count = size(4096, 8), size(192, 4), size(32, 3)
    tables: list[dict[str, Any]] = [
        {f"column_{i}": torch.randn(rows, wide) for i in range(count)} for _ in range(3)
    ]
    if pin:
        tables = [{name: pinned(x) for name, x in table.items()} for table in tables]
    turns = itertools.count()
    width = wide * count
    model = nn.Sequential(*[SquaredMlp(width, width) for _ in range(size(4, 2))]).to(DEVICE, torch.bfloat16)

    def fetch() -> torch.Tensor:
        table = tables[next(turns) % 3]
        moved = {name: x.to(DEVICE, non_blocking=pin) for name, x in table.items()}
        return torch.cat(list(moved.values()), dim=1).to(torch.bfloat16)

    return training(model, fetch, mean_square, adamw(model))
