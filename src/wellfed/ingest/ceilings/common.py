"""What all readers of result files share: bounded text, JSON that may be cut, and figures made into a Ceiling."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wellfed.ingest.source import Source
from wellfed.model import Ceiling, Curve
from wellfed.model.base import replace
from wellfed.predict.statistics import summarize

HEAD_BYTES = 1 << 16
MAX_BYTES = 64 << 20
"""A result file has some MB at most; of a larger one the start is read."""
MAX_SALVAGE = 16 << 20
MAX_TRIES = 4000
MAX_CEILINGS = 5000
MAX_MATRIX = 64
MIB = 1 << 20
ALONE = "one figure of the tool: its spread is not in the file"


class Text(NamedTuple):
    """`damage` is what is lacking at the end, None when all is there."""

    text: str
    damage: str | None


def read_text(path: Path, limit: int = MAX_BYTES) -> Text:
    """The first `limit` bytes, unpacked; bytes that are no UTF-8 are replaced. Raises WellfedError for what is no file."""
    source = Source(path)
    kept, size = [], 0
    for window in source.windows():
        kept.append(bytes(window[: limit - size]))
        size += len(kept[-1])
        if size >= limit:
            return Text(
                b"".join(kept).decode("utf-8", "replace"), f"only the first {limit >> 20} MiB were read"
            )
    return Text(b"".join(kept).decode("utf-8", "replace"), source.damage)


def parse_json(text: str) -> tuple[Any, bool]:
    """The value of a JSON text that may stand behind other lines, and whether it is whole. Of a damaged one: the list of
    the largest objects in it that are whole."""
    start = text.find("{")
    decoder = json.JSONDecoder()
    if start >= 0:
        try:
            return decoder.raw_decode(text, start)[0], True
        except (ValueError, RecursionError):
            pass
    return list(salvage(text[:MAX_SALVAGE])), False


def salvage(text: str) -> Iterator[dict[str, Any]]:
    """The whole objects of a damaged JSON text, outermost first, none twice."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    for _ in range(MAX_TRIES):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
            yield value
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)


def number(value: Any) -> float | None:
    """A finite number, also one written as text; None for anything else (`N/A`)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def ceiling(
    id: str,
    title: str,
    samples: Sequence[float],
    *,
    tool: str,
    method: str,
    unit: str,
    path: Path,
    higher_is_better: bool = True,
    why: str | None = None,
    n: int | None = None,
    cv: float | None = None,
    verdict: Any = "ok",
    **fields: Any,
) -> Ceiling:
    """A Ceiling from a tool's figures. `n` and `cv` replace what the samples say where the tool tells them itself.
    `fields` are those of `Ceiling`."""
    summary = summarize(samples, higher_is_better=higher_is_better)
    told = {name: value for name, value in {"n": n, "cv": cv}.items() if value is not None}
    lone = ALONE if len(samples) == 1 and cv is None else None
    environment = {"imported": tool, "file": path.name, **fields.pop("environment", {})}
    return Ceiling(
        id=id,
        title=title,
        method=f"{tool}: {method}",
        hardware_key="",
        unit=unit,
        higher_is_better=higher_is_better,
        tier="adapter",
        verdict=verdict,
        why="; ".join(text for text in (why, lone) if text) or None,
        environment=environment,
        **{**summary._asdict(), **told},
        **fields,
    )


def finish(found: Sequence[Ceiling], left_out: int, damage: str | None = None) -> list[Ceiling]:
    """The ceilings, each told how many results of its file could not be read."""
    more = (
        {"left_out": left_out + max(len(found) - MAX_CEILINGS, 0)}
        if left_out or len(found) > MAX_CEILINGS
        else {}
    )
    if damage:
        more["damage"] = damage  # type: ignore[assignment]
    return [replace(one, environment={**one.environment, **more}) for one in found[:MAX_CEILINGS]]


def curve_ceilings(
    op: str, backend: str, rows: Sequence[tuple[float, float]], ranks: int, *, factor: float | None, rates: dict[float, float],
    tool: str, method: str, path: Path, **fields: Any,
) -> list[Ceiling]:  # fmt: skip
    """The headline and the latency of a collective from rows of (bytes, seconds), sizes rising and once each. `rates` has
    the tool's own busbw by size, bytes/s; without it `factor` makes one."""
    name = op.replace("_", "-")
    curve = Curve(
        op=op, ranks=ranks, sizes=tuple(s for s, _ in rows), seconds=tuple(t for _, t in rows),
        backend=backend, source=f"{tool} ({path.name})",
    ) if rows else None  # fmt: skip
    found = []
    what = f"{op} among {ranks} ranks, {backend}"
    moved = [(rates.get(s) or (factor or 0.0) * s / t, s) for s, t in rows if s > 0]
    rate, at = max(moved, default=(0.0, 0.0))
    if rate > 0:
        found.append(
            ceiling(
                f"{name}.{backend}.{ranks}", f"{what}, busbw", [rate / 1e9], tool=tool, method=method, unit="GB/s", path=path,
                size=f"{at:.0f} B", curve=curve, threads=ranks, **fields,
            )
        )  # fmt: skip
    small = [(t, s) for s, t in rows if s > 0]
    if small:
        t, s = min(small, key=lambda row: row[1])
        found.append(
            ceiling(
                f"{name}-latency.{backend}.{ranks}", f"{what}, {s:.0f} B", [t * 1e6], tool=tool, method=method, unit="us",
                path=path, higher_is_better=False, size=f"{s:.0f} B", threads=ranks, curve=None if rate > 0 else curve, **fields,
            )
        )  # fmt: skip
    return found
