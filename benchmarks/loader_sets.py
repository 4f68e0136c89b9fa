"""Twelve datasets, and a few more, that load in different ways. Each is a function that gives a DataLoader."""

import mmap
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

LENGTH = 1 << 22


def burn(seconds: float) -> float:
    """Python arithmetic that takes about so much CPU time on the machine it runs on."""
    total, end = 0.0, time.thread_time() + seconds
    while time.thread_time() < end:
        for number in range(200):
            total += number * 0.5
    return total


def wait(seconds: float) -> None:
    time.sleep(seconds)


class Sized(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return LENGTH


class CpuBound(Sized):
    """3 ms of Python for each sample."""

    def __getitem__(self, index: int) -> torch.Tensor:
        burn(0.003)
        return torch.full((64,), float(index))


class WaitBound(Sized):
    """A remote store: 5 ms of waiting, 0.1 ms of work."""

    def __getitem__(self, index: int) -> torch.Tensor:
        wait(0.005)
        burn(0.0001)
        return torch.full((256,), float(index))


class BigSamples(Sized):
    """4 MB tensors: moving them is the work."""

    def __init__(self) -> None:
        self.source = torch.rand(1 << 20)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.source + float(index)


class TinySamples(Sized):
    """A row of a matrix in memory."""

    def __init__(self) -> None:
        self.rows = torch.rand(4096, 16)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index & 4095]


class SlowStart(Sized):
    """Each worker opens something for 1.5 s before its first sample."""

    def __init__(self) -> None:
        self.ready = 0

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.ready != os.getpid():
            time.sleep(1.2)
            burn(0.1)
            self.ready = os.getpid()
        burn(0.0015)
        wait(0.0015)
        return torch.full((64,), float(index))


class Growing(Sized):
    """A cache in each worker that is never emptied: 40 KB for each sample."""

    def __init__(self) -> None:
        self.cache: dict[int, bytes] = {}

    def __getitem__(self, index: int) -> torch.Tensor:
        self.cache[index] = os.urandom(40_000)
        wait(0.003)
        return torch.full((64,), float(index))


class HoldsGil(Sized):
    """C code that keeps the GIL: big integers."""

    def __getitem__(self, index: int) -> torch.Tensor:
        number = 3**4000 + index
        for _ in range(12):
            str(number % (10**1200))
            number = number * 3 // 2
        return torch.full((64,), float(len(str(index))))


class FreesGil(Sized):
    """C code that gives the GIL up: compression."""

    def __init__(self) -> None:
        self.data = np.random.default_rng(0).integers(0, 64, 60_000, dtype=np.uint8).tobytes()

    def __getitem__(self, index: int) -> torch.Tensor:
        import zlib

        return torch.tensor([len(zlib.compress(self.data[index & 1023 :], 1))])


class NumpyBatches(Sized):
    """Arrays that stay arrays: they go through the pipe."""

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        burn(0.0005)
        return np.full(60_000, index, np.float32)


def stack(samples: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return np.stack(samples)


class Skewed(Sized):
    """One sample in forty takes sixty times as long as the others."""

    def __getitem__(self, index: int) -> torch.Tensor:
        slow = random.Random(index).random() < 1 / 40
        wait(0.06 if slow else 0.001)
        burn(0.0001)
        return torch.full((64,), float(index))


class Sharded(IterableDataset):  # type: ignore[misc]
    """A stream that each worker reads its own part of: 2 ms of waiting and 1 ms of work."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for number in range(first, LENGTH, step):
            wait(0.002)
            burn(0.001)
            yield torch.full((64,), float(number))


class Unsharded(IterableDataset):  # type: ignore[misc]
    """The same without a thought of workers: each gives all of it."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(LENGTH):
            wait(0.002)
            yield torch.full((64,), float(number))


FILES, FILE_BYTES = 3000, 12_000


class SmallFiles(Sized):
    """A file for each sample, decompressed."""

    def __init__(self) -> None:
        import zlib

        self.folder = Path(tempfile.gettempdir()) / f"wellfed-small-files-{os.getuid()}"
        if not (self.folder / "whole").exists():
            self.folder.mkdir(exist_ok=True)
            data = zlib.compress(
                np.random.default_rng(0).integers(0, 99, FILE_BYTES, dtype=np.uint8).tobytes()
            )
            for number in range(FILES):
                (self.folder / f"{number}.z").write_bytes(data)
            (self.folder / "whole").touch()

    def __getitem__(self, index: int) -> torch.Tensor:
        import zlib

        data = zlib.decompress((self.folder / f"{index % FILES}.z").read_bytes())
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)


class HeavyWorkers(Sized):
    """Each worker keeps 300 MB."""

    def __init__(self) -> None:
        self.owner, self.kept = 0, b""

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.owner != os.getpid():
            self.kept = bytearray(os.urandom(1 << 20) * 300)
            self.owner = os.getpid()
        wait(0.004)
        return torch.full((64,), float(index))


class OneLock(Sized):
    """A lock that all workers share: more of them bring little."""

    def __init__(self) -> None:
        import multiprocessing

        self.lock = multiprocessing.get_context("fork").Lock()

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.lock:
            wait(0.001)
        burn(0.001)
        return torch.full((64,), float(index))


class ManyTensors(Sized):
    """Forty little tensors a sample: a descriptor for each."""

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        burn(0.0002)
        return {f"f{number}": torch.full((8,), float(index)) for number in range(40)}


class MemoryMapped(Sized):
    """Random pages of a mapped file of 64 MB."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, 64 << 20)

    def __getitem__(self, index: int) -> torch.Tensor:
        at = (index * 7919 * 4096) % (64 << 20)
        page = np.frombuffer(self.map[at : at + 4096], np.uint8).astype(np.float32)
        return torch.from_numpy(np.sqrt(page + 1.0))


def loader(dataset: Any, batch_size: int, **more: Any) -> DataLoader[Any]:
    if not isinstance(dataset, IterableDataset):
        more.setdefault("shuffle", True)
    return DataLoader(dataset, batch_size=batch_size, **more)


class Few(Dataset):  # type: ignore[misc]
    """Wraps a dataset so that its sampler needs no permutation of millions."""

    def __init__(self, inner: Any, length: int = 20_000) -> None:
        self.inner, self.length = inner, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.inner[index]


def cpu_bound() -> Any:
    return loader(Few(CpuBound()), 8)


def wait_bound() -> Any:
    return loader(Few(WaitBound()), 8)


def big_samples() -> Any:
    return loader(Few(BigSamples()), 8)


def tiny_samples() -> Any:
    return loader(Few(TinySamples(), 200_000), 64)


def slow_start() -> Any:
    return loader(Few(SlowStart()), 8)


def growing() -> Any:
    return loader(Few(Growing()), 8)


def holds_gil() -> Any:
    return loader(Few(HoldsGil()), 16)


def frees_gil() -> Any:
    return loader(Few(FreesGil()), 16)


def numpy_batches() -> Any:
    return loader(Few(NumpyBatches()), 16, collate_fn=stack)


def skewed() -> Any:
    return loader(Few(Skewed()), 4)


def sharded() -> Any:
    return loader(Sharded(), 8)


def small_files() -> Any:
    return loader(Few(SmallFiles()), 32)


def unsharded() -> Any:
    return loader(Unsharded(), 8)


def heavy_workers() -> Any:
    return loader(Few(HeavyWorkers()), 8)


def one_lock() -> Any:
    return loader(Few(OneLock()), 8)


def many_tensors() -> Any:
    return loader(Few(ManyTensors()), 8)


def memory_mapped() -> Any:
    return loader(Few(MemoryMapped(), 200_000), 64)


TWELVE = (
    "cpu_bound", "wait_bound", "big_samples", "tiny_samples", "slow_start", "growing", "holds_gil", "frees_gil",
    "numpy_batches", "skewed", "sharded", "small_files",
)  # fmt: skip
MORE = ("heavy_workers", "one_lock", "many_tensors", "memory_mapped")
