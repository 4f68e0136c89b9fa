"""perftest (`ib_write_bw`, `ib_read_lat`...): text and `--out_json`. Its MB are MiB, its Gb 1e9 bits.

Format: linux-rdma/perftest, perftest_parameters.c. The JSON does not tell its unit: message rate and size do. Some
versions write text in it without quotes, so it is read by name and value and not as JSON.
"""

import re
from pathlib import Path
from typing import NamedTuple

from wellfed.ingest.ceilings.common import MIB, ceiling, finish, number, read_text
from wellfed.model import Ceiling

_TEST = re.compile(
    r"(RDMA_Write|RDMA_Read|Send|Atomic|Raw_Ethernet)\w*[ _](BW|Bandwidth|Latency)", re.IGNORECASE
)
_DEVICE = re.compile(r"Device\"?\s*:\s*\"?([\w.-]+)")
_LINK = re.compile(r"Link[ _]type\"?\s*:\s*\"?(\w+)", re.IGNORECASE)
_PAIR = re.compile(r'"?([A-Za-z_]\w*)"?\s*:\s*"?(-?[\d.]+(?:[eE][+-]?\d+)?)"?')
_HEADER = re.compile(r"^\s*#bytes\s+#iterations\s+(.*)$")
_MAKES = {"rdma_write": "rdma-write", "rdma_read": "rdma-read", "send": "rdma-send", "atomic": "rdma-atomic"}


class _Row(NamedTuple):
    size: float
    n: int
    value: float
    """Bytes/s, or seconds."""
    best: float | None


def matches(head: str, name: str) -> bool:
    is_table = "#bytes" in head and "#iterations" in head
    return (
        is_table
        or ("BW_average" in head and "MsgSize" in head)
        or ("t_typical" in head and "MsgSize" in head)
    )


def read(path: Path) -> list[Ceiling]:
    """The bandwidth of the best size, or the latency of the smallest, of each test in the file."""
    text, damage = read_text(path)
    test = _TEST.search(text)
    kind = _MAKES.get(test[1].lower(), "rdma") if test else _by_name(path.name)
    rows, lost, is_latency = _of_pairs(text) if "MsgSize" in text else _of_table(text)
    device, link = _DEVICE.search(text), _LINK.search(text)
    facts = {"device": device[1] if device else None, "link": link[1] if link else None}
    unique = {row.size: row for row in rows}  # both ends may write into one file
    if not unique:
        return []
    if is_latency:
        row = min(unique.values(), key=lambda r: r.size)
        found = ceiling(
            f"{kind}-latency", f"{kind.replace('-', ' ')}, {row.size:.0f} B, one way", [row.value * 1e6], tool="perftest",
            method="the typical time", unit="us", path=path, higher_is_better=False, n=row.n, cv=0.0,
            why="its spread is not in the file", size=f"{row.size:.0f} B", environment=facts,
        )  # fmt: skip
    else:
        row = max(unique.values(), key=lambda r: r.value)
        found = ceiling(
            kind, f"{kind.replace('-', ' ')} bandwidth", [row.value / 1e9], tool="perftest",
            method="average of its iterations, MiB and Gb converted", unit="GB/s", path=path, size=f"{row.size:.0f} B",
            environment={**facts, "iterations": row.n, "by_size": [[r.size, r.value] for r in sorted(unique.values())]},
        )  # fmt: skip
    return finish([found], lost, damage)


def _by_name(name: str) -> str:
    return next((make for word, make in _MAKES.items() if word.removeprefix("rdma_") in name.lower()), "rdma")


def _of_table(text: str) -> tuple[list[_Row], int, bool]:
    rows: list[_Row] = []
    lost, columns, is_latency = 0, "", False
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            columns = header[1]
            is_latency = "usec" in columns
        words = line.split()
        if not columns or not words or not words[0].isdigit():
            continue
        cells = [number(word) for word in words]
        row = _latency(cells) if is_latency else _bandwidth(cells, "MB" in columns or "MiB" in columns)
        if row is None:
            lost += 1
        else:
            rows.append(row)
    return rows, lost, is_latency


def _bandwidth(cells: list[float | None], in_mib: bool) -> _Row | None:
    """Size, iterations, peak, average, message rate."""
    if len(cells) < 4 or cells[3] is None or not cells[3] or cells[0] is None:
        return None
    unit = MIB if in_mib else 125e6
    peak = cells[2] * unit if cells[2] else None
    return _Row(cells[0], int(cells[1] or 0), cells[3] * unit, peak)


def _latency(cells: list[float | None]) -> _Row | None:
    """Size, iterations, least, most, typical..."""
    if len(cells) < 5 or not cells[4] or cells[0] is None:
        return None
    return _Row(cells[0], int(cells[1] or 0), cells[4] * 1e-6, (cells[2] or 0) * 1e-6 or None)


def _of_pairs(text: str) -> tuple[list[_Row], int, bool]:
    """One `results` object after the other; a new one begins at each MsgSize."""
    rows: list[_Row] = []
    lost = 0
    pieces = text.split("MsgSize")[1:]
    is_latency = "t_typical" in text or "t_avg" in text
    for piece in pieces:
        told = dict(_PAIR.findall('"MsgSize' + piece))
        size, n = number(told.get("MsgSize")), int(number(told.get("n_iterations")) or 0)
        value = (
            number(told.get("t_typical", told.get("t_avg"))) if is_latency else number(told.get("BW_average"))
        )
        rate = number(told.get("MsgRate"))
        if size is None or not value or not (is_latency or rate):
            lost += 1
        elif is_latency:
            rows.append(_Row(size, n, value * 1e-6, None))
        else:
            rows.append(_Row(size, n, value * _unit(value, size * (rate or 0) * 1e6), None))
    return rows, lost, is_latency


def _unit(value: float, bytes_s: float) -> float:
    """Bytes of what it counts in: the unit that comes nearest to message rate times size."""
    return min((float(MIB), 125e6), key=lambda unit: abs(value * unit / bytes_s - 1) if bytes_s else 0)
