"""Whose line of code it was: the frame of a recorded stack that is neither PyTorch's own nor an interpreter's."""

import re
from collections.abc import Sequence

_INTERNAL = re.compile(
    r"/(?:torch|torchgen|functorch|triton|torch_xla|importlib|multiprocessing|threading|runpy|contextlib|functools)"
    r"(?:/|\.py:)|(?:^|/)(?:aten|c10|csrc)/|/python3\.\d+/[\w/]+\.py:|<string>|<frozen |\.(?:cpp|cc|cu|cuh|h|hpp|c|so[\d.]*):|\?\?"
)
_PYTHON = re.compile(r"\.py:|<eval_with_key>|/ipykernel_|<ipython")
_PACKAGES = re.compile(r"/(?:site|dist)-packages/")


def outside_torch(frames: Sequence[str]) -> str | None:
    """The innermost frame of `function at file:line` strings (innermost first) that is the user's own; else the
    innermost one of another installed package; else the innermost of Python; else the innermost. None for an
    empty stack."""
    own = [f for f in frames if _PYTHON.search(f) and not _INTERNAL.search(f)]
    mine = next((f for f in own if not _PACKAGES.search(f)), None)
    return (
        mine
        or next(iter(own), None)
        or next((f for f in frames if _PYTHON.search(f)), next(iter(frames), None))
    )


def short(frame: str) -> str:
    """A frame with the last two parts of its path: `step at train/loop.py:41`."""
    function, _, place = frame.partition(" at ")
    return f"{function} at {'/'.join(place.split('/')[-2:])}" if place else frame
