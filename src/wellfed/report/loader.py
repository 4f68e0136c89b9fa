"""A tuned loader as text and as plain values."""

from typing import Any

import msgspec

from wellfed.model.loader import LoaderResult

SCHEMA = 1


def plain(result: LoaderResult) -> dict[str, Any]:
    tree: dict[str, Any] = msgspec.to_builtins(result)
    verdicts = tree.pop("verdicts")
    return {"schema": SCHEMA, "loader": tree, "verdicts": verdicts}


def render(result: LoaderResult, *, width: int, color: bool = False) -> str:
    return repr(result)
