"""TransferBench: the `Transfer` lines of its tests, as text with any border and as CSV.

`SRC -> EXECUTOR -> DST`; C is host memory, G GPU memory, F fine-grained GPU memory, P pinned. A copy within one GPU counts
its bytes once, ours twice. Format: ROCm/TransferBench, client output; superbenchmark tests/data.
"""

import re
from pathlib import Path
from typing import NamedTuple

from wellfed.ingest.ceilings.common import MAX_MATRIX, ceiling, finish, read_text
from wellfed.model import Ceiling

_TRANSFER = re.compile(
    r"^\s*Transfer\s+(\d+)\s*[|│,]\s*([\d.]+)\s*GB/s\s*[|│,]\s*([\d.]+)\s*ms\s*[|│,]\s*(\d+)\s*bytes\s*[|│,]\s*"
    r"(.+?)\s*->\s*(.+?)\s*->\s*([A-Z]+\d*|N)"
)
_TEST = re.compile(r"^\s*Test\s+(\d+):")
_VERSION = re.compile(r"TransferBench v(\S+)")
_PLACE = re.compile(r"([A-Z])(\d*)")
_HOST = "CPHBK"


class _Row(NamedTuple):
    test: int
    gbs: float
    size: int
    source: str
    executor: str
    target: str


def matches(head: str, name: str) -> bool:
    return (
        "TransferBench v" in head
        or re.search(r"^\s*Transfer\s+\d+\s*[|│,].*->", head, re.MULTILINE) is not None
    )


def read(path: Path) -> list[Ceiling]:
    """Copies of one kind together, those that ran alone apart from those that ran beside others."""
    text, damage = read_text(path)
    version = _VERSION.search(text)
    tool = f"TransferBench {version[1] if version else ''}".strip()
    rows, lost = _rows(text)
    together = {test for test in {row.test for row in rows} if sum(r.test == test for r in rows) > 1}
    groups: dict[tuple[str, str, bool], list[_Row]] = {}
    for row in rows:
        kind = _kind(row)
        if kind is None:
            lost += 1
        else:
            groups.setdefault((*kind, row.test in together), []).append(row)
    found = [_ceiling(*key, rows, tool, path) for key, rows in groups.items()]
    return finish(found, lost, damage)


def _rows(text: str) -> tuple[list[_Row], int]:
    rows: list[_Row] = []
    test = lost = 0
    for line in text.splitlines():
        if begins := _TEST.match(line):
            test = int(begins[1])
            continue
        match = _TRANSFER.match(line)
        if match is not None:
            try:
                rate = float(match[2])
            except ValueError:
                rate = 0.0
            if rate > 0:
                rows.append(_Row(test, rate, int(match[4]), match[5], match[6], match[7]))
                continue
        lost += bool(re.match(r"^\s*Transfer\s+\d+\s*[|│,]", line))
    return rows, lost


def _place(text: str) -> tuple[str, int] | None:
    found = _PLACE.match(text)
    return (found[1], int(found[2] or 0)) if found else None


def _kind(row: _Row) -> tuple[str, str] | None:
    source, target = _place(row.source), _place(row.target)
    if source is None or target is None or row.target.startswith("N"):
        return None
    from_host, to_host = source[0] in _HOST, target[0] in _HOST
    by_kernel = "" if row.executor.startswith(("D", "B")) else "-by-kernel"
    if from_host and to_host:
        return "host-copy", "host memory to host memory"
    if from_host:
        return (f"copy{by_kernel}.to-gpu" if by_kernel else "h2d.pinned"), "host to GPU"
    if to_host:
        return (f"copy{by_kernel}.to-host" if by_kernel else "d2h.pinned"), "GPU to host"
    if source[1] == target[1]:
        return f"hbm-copy{by_kernel}" if by_kernel else "hbm-copy", "GPU memory, copy, read + write"
    return f"p2p{by_kernel}.write", "GPU to GPU"


def _ceiling(id: str, title: str, beside: bool, rows: list[_Row], tool: str, path: Path) -> Ceiling:
    times = 2.0 if id.startswith("hbm-copy") else 1.0
    places = {(_place(r.source), _place(r.target)): r.gbs for r in rows}
    size = max((r[1] for pair in places for r in pair if r), default=0) + 1
    facts: dict[str, object] = {"executors": sorted({r.executor.split(":")[0] for r in rows})[:16]}
    if id.startswith("p2p") and size <= MAX_MATRIX:
        matrix: list[list[float | None]] = [[None] * size for _ in range(size)]
        for (source, target), rate in places.items():
            if source and target:
                matrix[source[1]][target[1]] = rate
        facts["matrix"] = matrix
    name = f"copies-beside.{id.replace('h2d', 'to-gpu').replace('d2h', 'to-host')}" if beside else id
    return ceiling(
        name, title + (", several at once" if beside else ""), [r.gbs * times for r in rows], tool=tool,
        method="mean of its iterations" + (", its bytes counted twice" if times != 1 else ""), unit="GB/s", path=path,
        size=f"{max(r.size for r in rows)} B", environment=facts,
    )  # fmt: skip
