"""What `tune` says, as plain values: keys are a promise."""

from collections.abc import Sequence
from typing import Any

import msgspec

from wellfed.model.change import Applied, Change, Done, Plan, Planned, TuneLog, TuneStatus

SCHEMA = 1


def plan(plan: Plan) -> dict[str, Any]:
    """`{"schema", "changes", "instructions", "skipped", "origin", "intent", "notes"}`."""
    return {
        "schema": SCHEMA,
        "changes": [_planned(one) for one in plan.changes],
        "instructions": [_instruction(one) for one in plan.instructions],
        "skipped": msgspec.to_builtins(plan.skipped),
        "origin": plan.origin,
        "intent": plan.intent,
        "notes": list(plan.notes),
    }


def applied(result: Applied) -> dict[str, Any]:
    """`{"schema", "txid", "changes", "proofs", "confirm_within_s", "late", "not_applied", "instructions", "skipped"}`:
    `proofs` is null when none was asked for."""
    told = plan(result.plan)
    return {
        "schema": SCHEMA,
        "txid": result.txid or None,
        "changes": done(result.done),
        "proofs": None if result.proofs is None else msgspec.to_builtins(result.proofs),
        "confirm_within_s": result.confirm_within_s,
        "late": done(result.late),
        "not_applied": [one for one in told["changes"] if not one["chosen"]],
        "instructions": told["instructions"],
        "skipped": told["skipped"],
    }


def status(found: TuneStatus) -> dict[str, Any]:
    """`{"schema", "transactions": [{"txid", "began", "state", "left_s", "changes"}], "drift"}`."""
    return {"schema": SCHEMA, **msgspec.to_builtins(found)}


def undone(changes: Sequence[Done]) -> dict[str, Any]:
    """`{"schema", "changes"}`."""
    return {"schema": SCHEMA, "changes": done(changes)}


def confirmed(txids: Sequence[str]) -> dict[str, Any]:
    """`{"schema", "confirmed"}`."""
    return {"schema": SCHEMA, "confirmed": list(txids)}


def log(found: TuneLog) -> dict[str, Any]:
    """`{"schema", "folder", "transactions": [{"txid", "state", "records", "damaged"}]}`."""
    return {"schema": SCHEMA, **msgspec.to_builtins(found)}


def done(changes: Sequence[Done]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = msgspec.to_builtins(changes)
    return told


def _planned(one: Planned) -> dict[str, Any]:
    change: dict[str, Any] = msgspec.to_builtins(one.change)
    rest: dict[str, Any] = msgspec.to_builtins(one)
    del rest["change"]
    if one.change.evidence == "user":
        change["risk"] = None  # nobody has judged it
    return {**change, **rest}


def _instruction(change: Change) -> dict[str, Any]:
    return {
        "code": change.code,
        "name": change.target,
        "text": change.new,
        "why": change.why,
        "restore": change.restore,
        "risk": change.risk,
        "evidence": change.evidence,
    }
