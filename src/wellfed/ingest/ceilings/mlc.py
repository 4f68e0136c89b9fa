"""Intel Memory Latency Checker: text. Its MB are 1e6 bytes. Nodes' own memory and other nodes' are told apart."""

import re
from pathlib import Path
from typing import NamedTuple

from wellfed.ingest.ceilings.common import MAX_MATRIX, ceiling, finish, number, read_text
from wellfed.model import Ceiling

_VERSION = re.compile(r"Memory Latency Checker - (v\S+)")
_PEAK = re.compile(r"^\s*(ALL Reads|\d:\d Reads-Writes|Stream-triad like)\s*:\s*([\d.]+)", re.MULTILINE)
_IDLE = re.compile(r"Each iteration took .*?\(\s*([\d.]+)\s*ns\s*\)")
_ROW = re.compile(r"^\s*\d+((?:\s+(?:[\d.]+|-))+)\s*$")


class _Kind(NamedTuple):
    begins: str
    id: str
    title: str
    unit: str
    scale: float
    rises: bool


MATRICES = (
    _Kind("idle latencies", "latency-memory", "main memory, one dependent load", "ns", 1.0, False),
    _Kind("Memory Bandwidths between nodes", "memory-read", "main memory, read", "GB/s", 1e-3, True),
)


def matches(head: str, name: str) -> bool:
    return "Memory Latency Checker" in head or "Measuring idle latencies" in head


def read(path: Path) -> list[Ceiling]:
    """Latency and bandwidth of each node's own memory and of other nodes', and of all by kind of traffic."""
    text, damage = read_text(path)
    version = _VERSION.search(text)
    tool = f"Intel MLC {version[1] if version else ''}".strip()
    lines = text.splitlines()
    found: list[Ceiling] = []
    lost = 0
    for kind in MATRICES:
        rows, bad = _matrix(lines, kind.begins)
        lost += bad
        found += _of_matrix(kind, rows, tool, path)
    for traffic, value in dict(_PEAK.findall(text)).items():
        rate = number(value)
        if rate is None:
            lost += 1
            continue
        id = {"ALL Reads": "memory-read.all", "Stream-triad like": "memory-triad-like.all"}.get(
            traffic, f"memory-mixed.{traffic[0]}-{traffic[2]}"
        )
        found.append(
            ceiling(id, f"main memory, {traffic}", [rate / 1e3], tool=tool, method="as it counts, all cores", unit="GB/s", path=path)
        )  # fmt: skip
    idle = _IDLE.search(text)
    if idle and not any(c.id.startswith("latency-memory") for c in found):
        found.append(
            ceiling(
                "latency-memory", "main memory, one dependent load", [float(idle[1])], tool=tool, method="--idle_latency",
                unit="ns", path=path, higher_is_better=False,
            )
        )  # fmt: skip
    return finish(found, lost, damage)


def _matrix(lines: list[str], begins: str) -> tuple[list[list[float | None]], int]:
    """The rows under a heading, and how many of them are short."""
    start = next((k for k, line in enumerate(lines) if begins in line), None)
    if start is None:
        return [], 0
    rows: list[list[float | None]] = []
    head: list[str] = []
    for line in lines[start + 1 : start + 12 + MAX_MATRIX]:
        if re.match(r"\s*(Numa node|Socket)\s+\d", line):
            head = line.split()[2 if "Numa" in line else 1 :]
        elif head and (match := _ROW.match(line)):
            rows.append([number(cell) for cell in match[1].split()])
        elif head:
            break
    good = [row for row in rows if len(row) == len(head)]
    return good, len(rows) - len(good) + (start is not None and not rows)


def _of_matrix(kind: _Kind, rows: list[list[float | None]], tool: str, path: Path) -> list[Ceiling]:
    own: list[float] = []
    other: list[float] = []
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            if cell:
                (own if i == j else other).append(cell * kind.scale)
    found = []
    places = (("", "own node", own), (".remote", "another node", other))
    for end, where, cells in places:
        if cells:
            name = kind.id + (end or (".local" if kind.id == "memory-read" else ""))
            found.append(
                ceiling(
                    name, f"{kind.title}, {where}", cells, tool=tool, method="each pair of nodes", unit=kind.unit, path=path,
                    higher_is_better=kind.rises, environment={"matrix": rows},
                )
            )  # fmt: skip
    return found
