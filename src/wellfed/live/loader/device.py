"""What pinning and copying a batch cost on the first accelerator."""

import time
from collections.abc import Callable
from typing import Any

from wellfed.live.loader.build import Spec
from wellfed.live.loader.stages import Source

_TIMES = 7


def copy_costs(spec: Spec) -> dict[str, Any]:
    """Medians, in seconds a batch: `pin_s`, `pageable_s` (copy from ordinary memory), `pinned_s`. `device` is None where
    there is none."""
    import torch
    from torch.utils.data._utils.pin_memory import pin_memory

    if not torch.cuda.is_available():
        return {"device": None}
    torch.cuda.synchronize()
    batch = Source(spec).batch()
    pinned = pin_memory(batch)
    return {
        "device": torch.cuda.get_device_name(0),
        "pin_s": _median(lambda: pin_memory(batch)),
        "pageable_s": _median(lambda: _to_device(batch)),
        "pinned_s": _median(lambda: _to_device(pinned)),
    }


def _to_device(batch: Any) -> None:
    import torch

    from wellfed.live.loader.shape import walk

    tensors: list[Any] = []
    walk(batch, tensors, [], 6)
    for tensor in tensors:
        tensor.to("cuda", non_blocking=True)
    torch.cuda.synchronize()


def _median(work: Callable[[], Any]) -> float:
    work()
    times = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return sorted(times)[_TIMES // 2]
