"""A Case as JSON: the keys are a promise (schema 1), the order is fixed, and what is unknown is null."""

from typing import Any, Literal

import msgspec

from wellfed.model import Case, Machine
from wellfed.model.case import SCHEMA
from wellfed.report import story

Kind = Literal["doctor", "check", "trace", "measure", "inspect", "run"]

KEYS: dict[Kind, tuple[str, ...]] = {
    "doctor": (
        "schema", "verdicts", "counts", "headline", "machine", "ceilings", "ranks", "warnings", "ignored",
        "together", "pipeline", "memory", "hang", "rank_verdicts", "made_by", "made_at", "redacted",
    ),
    "check": ("schema", "verdicts", "counts", "headline", "ignored"),
    "trace": (
        "schema", "verdicts", "counts", "headline", "warnings", "ranks", "ignored",
        "together", "pipeline", "memory", "hang", "rank_verdicts",
    ),
    "measure": ("schema", "ceilings"),
    "inspect": ("schema", "machine"),
    "run": ("schema", "verdicts", "counts", "headline", "run", "warnings", "ranks", "ignored"),
}  # fmt: skip


def render(case: Case, *, kind: Kind = "doctor", raw: bool = False) -> bytes:
    """One line of JSON. Verdicts stand by worth. NaN and infinities become null. The raw text of the
    machine's facts is left out unless `raw`."""
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "verdicts": story.by_worth(case.verdicts),
        "counts": case.counts(),
        "headline": case.headline,
        "machine": _machine(case.machine, raw) if "machine" in KEYS[kind] else None,
        "ceilings": case.ceilings,
        "ranks": case.ranks,
        "warnings": case.warnings,
        "ignored": case.ignored,
        "together": case.together,
        "pipeline": case.pipeline,
        "memory": case.memory,
        "hang": case.hang,
        "run": case.run,
        "rank_verdicts": case.rank_verdicts,
        "made_by": case.made_by,
        "made_at": case.made_at,
        "redacted": case.redacted,
    }
    pairs = (f'"{key}":'.encode() + _encode(values[key]) for key in KEYS[kind])
    return b"{" + b",".join(pairs) + b"}"


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(msgspec.to_builtins(value, str_keys=True, order="deterministic"))
    except UnicodeEncodeError:  # half a surrogate pair, from a file that was not UTF-8
        return msgspec.json.encode(_mended(msgspec.to_builtins(value, str_keys=True, order="deterministic")))


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(item) for item in value]
    return value


def _machine(machine: Machine | None, raw: bool) -> Any:
    if machine is None or raw:
        return machine
    shown = msgspec.to_builtins(machine)
    for fact in shown["facts"].values():
        del fact["raw"]
    return shown
