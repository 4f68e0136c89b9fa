"""What is done beside the clock on some steps: GPU time, waits with their line, the allocator, a trace window."""

from __future__ import annotations

from typing import Any


def install(torch: Any, asked: dict[str, str], parts: list[Any]) -> None:
    """Add each part that applies to the end of a step."""
    from . import gpu, syncs, window

    parts.append(gpu.part(torch, asked))
    parts.append(syncs.part(torch, asked))
    made = window.part(torch, asked)
    if made is not None:
        parts.append(made)
