"""What is known of a loader before anything is read through it: sizes, threads, devices already open."""

import gc
import io
import os
import pickle
import sys
import threading
import time
from typing import Any

_PICKLE_CAP = 256 << 20
_PICKLE_S = 0.5
_OBJECTS_CAP = 300_000


class _Full(Exception):
    """Enough has been pickled to know."""


class _Counter(io.RawIOBase):
    """A file that only counts; stops when it is full or late."""

    def __init__(self) -> None:
        self.count = 0
        self.end = time.perf_counter() + _PICKLE_S

    def write(self, data: Any) -> int:
        self.count += len(data)
        if self.count > _PICKLE_CAP or time.perf_counter() > self.end:
            raise _Full
        return len(data)


def facts_of(spec: Any, natives: int) -> dict[str, Any]:
    """Plain values for the tuner. `natives` threads ran before the user's module was imported."""
    import torch

    size, why = _pickled(spec)
    accelerator = getattr(torch, "accelerator", None)
    return {
        "kind": spec.kind,
        "batch_size": spec.batch_size,
        "batched": spec.batch_sampler is not None or spec.batch_size is not None,
        "length": _length(spec.dataset),
        "current": spec.current,
        "notes": list(spec.notes),
        "dataset": f"{type(spec.dataset).__module__}.{type(spec.dataset).__qualname__}",
        "custom_collate": _is_custom(spec.kept["collate_fn"]),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "has_in_order": _takes_in_order(),
        "cuda_built": torch.version.cuda is not None or getattr(torch.version, "hip", None) is not None,
        "cuda_open": bool(torch.cuda.is_initialized()) or _opened_driver(),
        "has_accelerator_api": accelerator is not None,
        "threads": python_threads(),
        "native_threads": max(native_threads() - natives - len(python_threads()), 0),
        "pickled_bytes": size,
        "pickle_why": why,
        "heavy": _heavy_attributes(spec.dataset),
        "start_method": _start_method(),
        "omp_threads": torch.get_num_threads(),
    }


def _takes_in_order() -> bool:
    import inspect

    from torch.utils.data import DataLoader

    return "in_order" in inspect.signature(DataLoader.__init__).parameters


def _is_custom(collate: Any) -> bool:
    from torch.utils.data import default_collate, default_convert

    return collate not in (default_collate, default_convert)


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError, AttributeError, OverflowError):
        return None


def _pickled(spec: Any) -> tuple[int | None, str | None]:
    """Bytes that spawned workers would be sent each, None with the reason when it can't be pickled. A count at the cap or
    cut by the time is a lower bound."""
    counter = _Counter()
    try:
        pickle.Pickler(counter, protocol=pickle.HIGHEST_PROTOCOL).dump(
            (spec.dataset, spec.kept["collate_fn"])
        )
    except _Full:
        return counter.count, "at least"
    except Exception as error:  # noqa: BLE001 - __reduce__ of the user's classes may raise anything
        return None, f"{type(error).__name__}: {error}"[:200]
    return counter.count, None


def _heavy_attributes(dataset: Any) -> list[dict[str, Any]]:
    """Lists and dicts of Python objects in the dataset that are large: reading them touches reference counts, which copies
    their pages in every worker. Bytes are estimated from a sample of the elements."""
    found = []
    for name, value in list(getattr(dataset, "__dict__", {}).items())[:200]:
        if isinstance(value, list | dict | tuple | set) and len(value) > 1000:
            size = _estimate(value)
            if size > 1 << 20:
                found.append({"name": name, "type": type(value).__name__, "items": len(value), "bytes": size})
    return sorted(found, key=lambda one: -one["bytes"])[:5]


def _estimate(value: Any) -> int:
    sample = list(_some(value, 200))
    each = sum(_deep(item, 3) for item in sample) / max(len(sample), 1)
    return int(sys.getsizeof(value) + each * len(value))


def _some(value: Any, count: int) -> Any:
    import itertools

    items = value.items() if isinstance(value, dict) else value
    if isinstance(value, list | tuple):
        return value[:: max(len(value) // count, 1)][:count]
    return itertools.islice(items, count)


def _deep(item: Any, depth: int) -> int:
    if isinstance(item, int) and -6 < item < 257:
        return 0
    size = sys.getsizeof(item)
    if depth and isinstance(item, list | tuple | set):
        size += sum(_deep(one, depth - 1) for one in list(item)[:50])
    elif depth and isinstance(item, dict):
        size += sum(_deep(k, 0) + _deep(v, depth - 1) for k, v in list(item.items())[:50])
    return size


def _opened_driver() -> bool:
    """Whether this process holds an NVIDIA device open: a library other than torch may have."""
    try:
        return any("/dev/nvidia" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))  # noqa: PTH115, PTH208
    except OSError:
        return False


def python_threads() -> list[str]:
    """Names of Python threads besides this one: what they hold locked stays locked in a forked worker."""
    return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]


def native_threads() -> int:
    """Threads besides this one, with those of libraries. Pools of BLAS and OpenMP are made for forks and count as well."""
    try:
        return len(os.listdir("/proc/self/task")) - 1  # noqa: PTH208
    except OSError:
        return 0


def _start_method() -> str:
    import multiprocessing

    return (
        multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_context().get_start_method()
    )


def freeze() -> None:
    """Keeps the collector from touching, and so copying, pages that forked children share."""
    gc.collect()
    gc.freeze()
