"""The recorded arguments of an operator, parsed: sizes, types and the scalars."""

import json
import math
from typing import Any, NamedTuple

from wellfed.model.timeline import Shape

Dims = tuple[int, ...]

BYTES: dict[str, float] = {
    "double": 8, "float": 4, "c10::Half": 2, "c10::BFloat16": 2, "long": 8, "long int": 8, "int": 4, "short": 2,
    "short int": 2, "signed char": 1, "unsigned char": 1, "char": 1, "bool": 1, "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1, "c10::Float8_e4m3fnuz": 1, "c10::Float8_e5m2fnuz": 1, "c10::complex<float>": 8,
    "c10::complex<double>": 16, "unsigned short": 2, "unsigned int": 4, "unsigned long": 8,
}  # fmt: skip
"""Bytes of an element by what PyTorch writes as `Input type`."""
PRECISION: dict[str, str] = {
    "double": "fp64", "float": "fp32", "c10::Half": "fp16", "c10::BFloat16": "bf16", "signed char": "int8",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
}  # fmt: skip


class Call(NamedTuple):
    """One call's arguments by position. `dims` of a tensor is its size, of a list of tensors a tuple of sizes, of
    anything else (). `concrete` is the text of a scalar argument, "" where there is none; `strides` as `dims`."""

    name: str
    dims: tuple[Any, ...]
    types: tuple[str, ...]
    concrete: tuple[str, ...]
    strides: tuple[Any, ...]

    def tensor(self, at: int) -> Dims | None:
        """The size of the tensor at a position; None when there is none, or a list of tensors."""
        if at >= len(self.dims) or self.element_bytes(at) is None:
            return None
        size = self.dims[at]
        return size if all(isinstance(n, int) for n in size) else None

    def sized(self, at: int) -> Dims | None:
        """As `tensor`, but not a scalar."""
        return self.tensor(at) or None

    def element_bytes(self, at: int) -> float | None:
        return BYTES.get(self.types[at]) if at < len(self.types) else None

    def nbytes(self, at: int) -> float:
        """Bytes that reading the tensor takes: what is expanded (stride 0) is there once. 0 without a tensor."""
        size, each = self.tensor(at), self.element_bytes(at)
        if size is None or each is None:
            return 0.0
        steps = self.strides[at] if at < len(self.strides) else ()
        if len(steps) == len(size) and size:
            size = tuple(n for n, step in zip(size, steps, strict=True) if step != 0)
        return math.prod(size) * each

    def integers(self, at: int) -> Dims | None:
        """A list of integers, or None."""
        value = self._value(at)
        if isinstance(value, int) and not isinstance(value, bool):
            return (value,)
        ok = isinstance(value, list) and all(isinstance(n, int) for n in value)
        return tuple(value) if ok else None

    def integer(self, at: int) -> int | None:
        found = self.integers(at)
        return found[0] if found is not None and len(found) == 1 else None

    def flag(self, at: int) -> bool | None:
        """True or False, None when not told."""
        text = self.concrete[at] if at < len(self.concrete) else ""
        return {"True": True, "true": True, "False": False, "false": False}.get(text)

    def flags(self, at: int) -> tuple[bool, ...] | None:
        text = self.concrete[at] if at < len(self.concrete) else ""
        words = text.strip("[]").replace(" ", "").split(",")
        known = {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}
        return tuple(known[w] for w in words) if all(w in known for w in words) else None

    def _value(self, at: int) -> Any:
        text = self.concrete[at] if at < len(self.concrete) else ""
        try:
            return json.loads(text) if text else None
        except ValueError:
            return None


def parse(name: str, shape: Shape) -> Call | None:
    """The call that the texts tell of; None when they are not what PyTorch writes."""
    try:
        dims = _sizes(json.loads(shape.dims)) if shape.dims else ()
        types = tuple(str(t) for t in json.loads(shape.types)) if shape.types else ()
        concrete = tuple(_text(c) for c in json.loads(shape.concrete)) if shape.concrete else ()
        strides = _sizes(json.loads(shape.strides)) if shape.strides else ()
    except (ValueError, TypeError):
        return None
    return Call(name, dims, types, concrete, strides)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sizes(found: Any) -> tuple[Any, ...]:
    """Nested lists of non-negative integers as tuples. Raises TypeError for anything else."""
    if not isinstance(found, list):
        raise TypeError("no list of sizes")
    return tuple(_size(item) for item in found)


def _size(item: Any) -> Any:
    if isinstance(item, bool) or not isinstance(item, int | list):
        raise TypeError("no size")
    if isinstance(item, int):
        if not 0 <= item < 1 << 48:
            raise TypeError("no size")
        return item
    return tuple(_size(part) for part in item)
