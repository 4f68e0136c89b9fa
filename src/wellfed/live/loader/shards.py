"""Whether the workers of an iterable dataset share it out, or each gives all of it."""

import hashlib
import time
from typing import Any

from wellfed.live.loader.build import Spec

SAMPLES, SECONDS = 64, 1.0
_DEPTH = 6


def compare_workers(spec: Spec, context: str | None) -> dict[str, int]:
    """How many samples the first and the second of two workers gave, how many of the first's were distinct, and how many of the
    second's the first had given too. Samples are compared by their content."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    loader = DataLoader(
        spec.dataset,
        batch_size=None,
        num_workers=2,
        collate_fn=_same,
        worker_init_fn=spec.kept["worker_init_fn"],
        multiprocessing_context=context,
    )
    seen: tuple[list[bytes], list[bytes]] = ([], [])
    end = time.perf_counter() + SECONDS
    for number, sample in enumerate(loader):  # in turn from each, as long as both have some
        seen[number % 2].append(digest(sample))
        if number >= 2 * SAMPLES or (number > 8 and time.perf_counter() > end):
            break
    first = set(seen[0])
    return {
        "first": len(seen[0]),
        "second": len(seen[1]),
        "distinct": len(first),
        "common": sum(one in first for one in seen[1]),
    }


def _same(sample: Any) -> Any:
    return sample


def digest(sample: Any) -> bytes:
    """A hash of the content of a sample."""
    found = hashlib.blake2b(digest_size=16)
    _feed(found, sample, _DEPTH)
    return found.digest()


def _feed(found: Any, item: Any, depth: int) -> None:
    if hasattr(item, "detach"):
        item = item.detach().cpu().contiguous().view(-1).numpy() if item.numel() else str(item.dtype)
    if hasattr(item, "tobytes"):
        found.update(item.tobytes())
    elif isinstance(item, bytes | bytearray):
        found.update(item)
    elif isinstance(item, dict) and depth:
        for key, value in item.items():
            found.update(str(key).encode())
            _feed(found, value, depth - 1)
    elif isinstance(item, list | tuple) and depth:
        for value in item:
            _feed(found, value, depth - 1)
    else:
        found.update(repr(item).encode())
