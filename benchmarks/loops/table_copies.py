"""`copies_`: copies from pinned memory that the GPU waits for, and such as it does not wait for."""

from collections.abc import Callable
from typing import Any

from loops.base import Loop, Step, size
from loops.copies import columns, dense, images

DENSE: dict[str, Any] = {"width": size(2048, 32), "depth": size(6, 1), "batch": size(24576, 4)}
DEEP: dict[str, Any] = {"width": size(4096, 32), "depth": size(16, 1), "batch": size(8192, 4)}
PHOTOS: dict[str, Any] = {
    "batch": size(192, 2),
    "side": size(224, 32),
    "width": size(96, 8),
    "depth": size(4, 1),
}
TABLE: dict[str, Any] = {
    "rows": size(65536, 8),
    "count": size(24, 3),
    "width": size(2048, 16),
    "depth": size(4, 1),
}


def _ill(make: Callable[..., Step], sizes: dict[str, Any], how: str) -> Loop:
    return {
        "ill": "exposed-copy",
        "sick": lambda: make(**sizes, how=how),
        "cured": lambda: make(**sizes, how="ahead"),
    }


COPIES: dict[str, Loop] = {
    "copies_dense_late": _ill(dense, DENSE, "late"),
    "copies_dense_blocking": _ill(dense, DENSE, "blocking"),
    "copies_photos_late": _ill(images, PHOTOS, "late"),
    "copies_bytes_late": _ill(images, {**PHOTOS, "whole": True, "width": size(48, 8)}, "late"),
    "copies_columns_late": _ill(columns, TABLE, "late"),
    "copies_columns_blocking": _ill(columns, TABLE, "blocking"),
    "copies_deep_late": _ill(dense, DEEP, "late"),
    "copies_dense_ahead": {**_ill(dense, DENSE, "ahead"), "ill": None},
}
