"""What a batch is made of: samples, bytes, tensors, and what goes through the pipe of a worker."""

import sys
from typing import Any, NamedTuple

_DEPTH = 6


class Shape(NamedTuple):
    """`tensor_bytes` go through shared memory, one descriptor a tensor; `pipe_bytes` (arrays, bytes, text) are pickled through
    a pipe. `samples` is the leading dimension of the first thing that has one, None when there is none."""

    samples: int | None
    tensors: int
    tensor_bytes: int
    arrays: int
    pipe_bytes: int

    @property
    def size(self) -> int:
        return self.tensor_bytes + self.pipe_bytes


def shape_of(batch: Any) -> Shape:
    """Walks lists, tuples, dicts and objects with attributes."""
    tensors: list[Any] = []
    others: list[Any] = []
    walk(batch, tensors, others, _DEPTH)
    lead = [t.shape[0] for t in tensors if t.ndim] or [a.shape[0] for a in others if getattr(a, "ndim", 0)]
    arrays = [a for a in others if hasattr(a, "nbytes")]
    pipe = sum(int(a.nbytes) if hasattr(a, "nbytes") else sys.getsizeof(a) for a in others)
    size = sum(t.numel() * t.element_size() for t in tensors)
    return Shape(int(lead[0]) if lead else None, len(tensors), size, len(arrays), pipe)


def walk(item: Any, tensors: list[Any], others: list[Any], depth: int) -> None:
    import torch

    if isinstance(item, torch.Tensor):
        tensors.append(item)
    elif hasattr(item, "nbytes") or isinstance(item, bytes | bytearray | str):
        others.append(item)
    elif depth:
        for inner in _inside(item):
            walk(inner, tensors, others, depth - 1)


def _inside(item: Any) -> list[Any]:
    if isinstance(item, dict) or (hasattr(item, "keys") and hasattr(item, "__getitem__")):
        return [item[key] for key in item.keys()]  # noqa: SIM118 - BatchEncoding and such
    if isinstance(item, list | tuple | set):
        return list(item)
    return list(getattr(item, "__dict__", {}).values())


def as_tensors(batch: Any) -> Any:
    """The batch with its numpy arrays as tensors, where torch has their type."""
    import numpy as np
    import torch

    if isinstance(batch, np.ndarray) and batch.dtype.kind in "biuf":
        return torch.as_tensor(np.ascontiguousarray(batch))
    if isinstance(batch, dict):
        return {key: as_tensors(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple) and not hasattr(batch, "_fields"):
        return type(batch)(as_tensors(value) for value in batch)
    return batch
