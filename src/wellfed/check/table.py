"""Checks as data: the entries of `check/host/<layer>.toml`.

    [CPU05]
    name = "clock-capped"
    summary = "The CPU's clock is capped below what it can do."
    each = ...            # optional: judge every item of a collection; expressions see it as `it`
    where = "..."         # optional: only items for which this holds
    applies = [["expression", "what is said when it is false"], ...]
    good = "expression"   # or a table: intent = "expression", with `default`
    severity = "warning"  # or a table severity = "expression": the first that holds, from error down
    finding = "sentence with {expressions}"
    passed = "sentence with {expressions}"
    absent = "..."        # optional: what is said when the file it reads does not exist: it does not apply then
    change = [            # optional: what `wellfed tune` sets; without it the remedy is told, for people to do
      { kind = "sysctl", target = "vm.swappiness", new = "{1 if intent == 'latency' else 10}" },
      { kind = "block", target = "{it.name}/queue/read_ahead_kb", new = "512", when = "expression", risk = "restart" },
    ]

A row of `change` names a kind of `changes.KINDS`, a target of that kind and the value to be set; both are sentences
like `finding`, whose {expressions} give text or a number. With `each` there is a change for every item that is bad,
else one. A `*` in a target is every knob of that form, `new = "@name"` what the file `name` beside the knob says:
both are looked up on the machine. `when` leaves a row out where it is false or unknown, `risk` is given where one row
is riskier than the check's own (`restart`: wants `--yes`; `unsafe`: wants `--allow CODE`). Rows are made in their
order and undone backwards. No row for what takes a reboot, firmware, a choice, or has no way back.

The remaining keys are the manual page (see `manual.py`). Entries are parsed once per process.
"""

import tomllib
from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec

from wellfed.check.manual import ChangeRow, Manual, Trust
from wellfed.model import Gain, Value
from wellfed.model.change import Risk
from wellfed.model.verdict import SEVERITY_ORDER, Basis, Severity

LAYERS = (
    "bios",
    "cpu",
    "numa",
    "memory",
    "kernel",
    "irq",
    "pcie",
    "gpu",
    "nvlink",
    "driver",
    "rdma",
    "network",
    "storage",
    "limits",
    "container",
    "env",
    "software",
)
"""The layers of a host, from the firmware up."""

INTENTS = ("training", "latency", "throughput", "benchmark")
"""What a machine is for; what is right for one is wrong for another. `latency` serves short answers, `throughput`
many tokens."""

Collection = Literal[
    "gpus", "nics", "disks", "rdma", "pci", "mounts", "numa", "irqs", "arrays", "processes", "diagnostics"
]
Reversible = Literal["none", "live", "live-nextproc", "reboot", "bios", "driver-reload", "gpu-reset"]


class GainRow(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published figure; `basis` none is not written down but left out."""

    low: float
    high: float
    expected: float | None = None
    basis: Basis
    measured_in: str
    source: str


class Entry(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One check of a table. `evidence` is the Manual's `trust`; `reads` are the field paths shown as evidence
    when those that `good` looks at are not the right ones to show. `nothing` is said when `where` leaves no
    item, `absent` when the file or device that the check reads is not there (status `missing`): the check
    then does not apply, rather than being unable to see. `proof` names the measurement that tells whether the remedy
    pays on this machine (`wellfed.bench.proof`); None when there is none."""

    name: str
    summary: str
    good: str | dict[str, str]
    finding: str
    passed: str
    looks_at: str
    why: str
    judged: str
    sources: tuple[str, ...]
    evidence: Trust
    each: Collection | None = None
    where: str | None = None
    nothing: str | None = None
    absent: str | None = None
    applies: tuple[tuple[str, str], ...] = ()
    intent: tuple[str, ...] = ()
    severity: Severity | dict[Severity, str] = "warning"
    reads: tuple[str, ...] = ()
    effect: str = ""
    gain: GainRow | None = None
    remedy: str = ""
    restore: str = ""
    ignore: str = ""
    risk: Risk = "safe"
    reversible: Reversible = "none"
    blocks: tuple[str, ...] = ()
    proof: str | None = None
    change: tuple[ChangeRow, ...] = ()


class TableCheck(Value, frozen=True, kw_only=True):
    """An entry with its place and page."""

    entry: Entry
    manual: Manual


@cache
def tables() -> dict[str, TableCheck]:
    """Every entry of every layer by code, in order of layers. Raises AssertionError for a broken table."""
    found: dict[str, TableCheck] = {}
    for layer in LAYERS:
        for code, row in _read(f"host/{layer}.toml").items():
            assert code not in found, f"{code} is in two tables"
            found[code] = table_check(code, layer, row)
    return found


@cache
def terms() -> dict[str, str]:
    """Named expressions that the tables share (`vm`, `in_container`, `cpu_nodes`...), from `check/terms.toml`."""
    return {name: row["is"] for name, row in _read("terms.toml").items()}


@cache
def rows(name: str) -> dict[str, Any]:
    """A table of facts beside this file, such as `known_bad.toml`."""
    return _read(name)


def table_check(code: str, layer: str, row: dict[str, Any]) -> TableCheck:
    """One entry from its TOML row."""
    try:
        entry = msgspec.convert(row, Entry)
    except msgspec.ValidationError as error:
        raise AssertionError(f"{layer}.toml, {code}: {error}") from error
    return TableCheck(entry=entry, manual=_manual(code, layer, entry))


def severities(entry: Entry) -> list[tuple[Severity, str]]:
    """Severity and the expression that gives it, the worst first."""
    if isinstance(entry.severity, str):
        return [(entry.severity, "True")]
    return sorted(entry.severity.items(), key=lambda pair: -SEVERITY_ORDER[pair[0]])


def good_for(entry: Entry, intent: str) -> str:
    """The expression that must hold for this intent."""
    if isinstance(entry.good, str):
        return entry.good
    return entry.good.get(intent, entry.good["default"])


def _read(name: str) -> dict[str, Any]:
    place = resources.files("wellfed.check").joinpath(name)
    return tomllib.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}


def _manual(code: str, layer: str, entry: Entry) -> Manual:
    gain = entry.gain
    return Manual(
        code=code,
        name=entry.name,
        layer=layer,
        summary=entry.summary,
        looks_at=entry.looks_at,
        why=entry.why,
        judged=entry.judged,
        effect=entry.effect,
        remedy=entry.remedy,
        restore=entry.restore,
        ignore=entry.ignore,
        sources=entry.sources,
        severity=severities(entry)[0][0],
        risk=entry.risk,
        reversible=entry.reversible,
        trust=entry.evidence,
        intents=entry.intent,
        blocks=entry.blocks,
        change=entry.change,
        gain=Gain(
            speedup=gain.expected,
            low=gain.low,
            high=gain.high,
            basis=gain.basis,
            measured_in=gain.measured_in,
            source=gain.source,
        )
        if gain
        else None,
    )
