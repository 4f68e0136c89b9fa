"""nvbandwidth: `-j` and text. GB/s are 1e9 bytes; a local copy counts its bytes once, where ours counts read and write.

Format: NVIDIA/nvbandwidth, json_output.cpp and output.cpp.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from wellfed.ingest.ceilings.common import MAX_MATRIX, ceiling, finish, number, parse_json, read_text
from wellfed.model import Ceiling

_VERSION = re.compile(r'nvbandwidth Version: *(\S+)|"version" *: *"([^"]+)"')
_DEVICE = re.compile(r"^Device \d+: (.+?)(?: \([0-9A-Fa-f:.]+\))?\s*$", re.MULTILINE)
_ROW = re.compile(r"^\s*\d+(\s+(?:[\d.]+|N/A))+\s*$")


class _Test(NamedTuple):
    id: str
    title: str
    one_a_gpu: bool = False
    times: float = 1.0
    """How many bytes ours counts for one of theirs."""


TESTS: dict[str, _Test] = {
    "host_to_device_memcpy_ce": _Test("h2d.pinned", "host to GPU, pinned", True),
    "device_to_host_memcpy_ce": _Test("d2h.pinned", "GPU to host, pinned", True),
    "host_to_device_bidirectional_memcpy_ce": _Test(
        "copy-both-ways.to-gpu", "host to GPU beside a copy back", True
    ),
    "device_to_host_bidirectional_memcpy_ce": _Test(
        "copy-both-ways.to-host", "GPU to host beside a copy there", True
    ),
    "host_to_device_memcpy_sm": _Test("copy-by-kernel.to-gpu", "host to GPU by a kernel", True),
    "device_to_host_memcpy_sm": _Test("copy-by-kernel.to-host", "GPU to host by a kernel", True),
    "device_to_device_memcpy_read_ce": _Test("p2p.read", "GPU to GPU, read"),
    "device_to_device_memcpy_write_ce": _Test("p2p.write", "GPU to GPU, written"),
    "device_to_device_memcpy_read_sm": _Test("p2p-by-kernel.read", "GPU to GPU, read by a kernel"),
    "device_to_device_memcpy_write_sm": _Test("p2p-by-kernel.write", "GPU to GPU, written by a kernel"),
    "device_to_device_bidirectional_memcpy_read_ce": _Test(
        "p2p-both-ways.read", "GPU to GPU both ways, read"
    ),
    "device_to_device_bidirectional_memcpy_write_ce": _Test(
        "p2p-both-ways.write", "GPU to GPU both ways, written"
    ),
    "device_local_copy": _Test("hbm-copy", "GPU memory, copy, read + write", True, 2.0),
    "host_device_latency_sm": _Test("host-gpu-latency", "a GPU's dependent load from host memory", True),
    "device_to_device_latency_sm": _Test("p2p-latency", "a GPU's dependent load from another's memory"),
}


class _Result(NamedTuple):
    name: str
    what: str
    matrix: list[list[float | None]]


def matches(head: str, name: str) -> bool:
    return "nvbandwidth" in head and ("nvbandwidth Version" in head or '"testcases"' in head)


def read(path: Path) -> list[Ceiling]:
    """A ceiling for each test and GPU of copies with the host, one for all pairs of copies between GPUs; the matrix
    stays with it."""
    text, damage = read_text(path)
    found = _VERSION.search(text)
    tool = f"nvbandwidth {(found[1] or found[2]) if found else ''}".strip()
    devices = sorted(set(_DEVICE.findall(text)))[:8]
    is_json = text.lstrip().startswith("{") or '"testcases"' in text
    results, lost = _of_json(text) if is_json else _of_text(text)
    ceilings = [c for result in results for c in _ceilings(result, tool, path, devices)]
    return finish(ceilings, lost, damage)


def _of_json(text: str) -> tuple[list[_Result], int]:
    value, whole = parse_json(text)
    if whole:
        root = value.get("nvbandwidth") if isinstance(value, dict) else None
        tests = root.get("testcases") if isinstance(root, dict) else None
    else:
        tests = value
    results, lost = [], 0 if whole else 1
    for test in tests if isinstance(tests, list) else ():
        if not isinstance(test, dict) or not isinstance(test.get("name"), str):
            lost += 1
            continue
        matrix = test.get("bandwidth_matrix")
        rows = (
            [_cells(row) for row in matrix[:MAX_MATRIX] if isinstance(row, list)]
            if isinstance(matrix, list)
            else []
        )
        if any(cell is not None for row in rows for cell in row):
            results.append(_Result(test["name"], str(test.get("bandwidth_description", "")), rows))
        elif test.get("status") not in ("Waived", "Not Found"):
            lost += 1
    return results, lost


def _of_text(text: str) -> tuple[list[_Result], int]:
    results: list[_Result] = []
    lost = 0
    name, what, rows, header = "", "", list[list[float | None]](), False
    for line in [*text.splitlines(), "Running ."]:
        if line.startswith("Running "):
            if name and any(cell is not None for row in rows for cell in row):
                results.append(_Result(name, what, rows))
            elif name and header:
                lost += 1
            name, what, rows, header = line[8:].strip().rstrip("."), "", [], False
        elif name and re.search(r"\((?:GB/s|ns)\)", line):
            what, rows, header = line.strip(), [], True
        elif name and header and _ROW.match(line) and not line.startswith("SUM"):
            cells = line.split()
            if any("." in cell or cell == "N/A" for cell in cells[1:]):
                rows.append(_cells(cells[1 : MAX_MATRIX + 1]))
    return results, lost


def _cells(row: list[Any]) -> list[float | None]:
    return [number(cell) for cell in row[:MAX_MATRIX]]


def _ceilings(result: _Result, tool: str, path: Path, devices: list[str]) -> Iterator[Ceiling]:
    is_latency = "latency" in result.name
    base: dict[str, Any] = {
        "tool": tool,
        "path": path,
        "unit": "ns" if is_latency else "GB/s",
        "higher_is_better": not is_latency,
    }
    known = TESTS.get(result.name)
    test = known or _Test(f"nvbandwidth.{result.name.replace('_', '-')}", result.name.replace("_", " "))
    method = f"{result.name}, the tool's median" + (", its bytes counted twice" if test.times != 1 else "")
    if test.one_a_gpu:
        for gpu in range(max(map(len, result.matrix))):
            cells = [row[gpu] * test.times for row in result.matrix if gpu < len(row) and row[gpu]]  # type: ignore[operator]
            if cells:
                yield ceiling(
                    test.id, f"{test.title}, GPU {gpu}", cells, method=method,
                    environment={"gpu": gpu, "devices": devices}, **base,
                )  # fmt: skip
        return
    cells = [cell * test.times for row in result.matrix for cell in row if cell]
    if cells:
        yield ceiling(
            test.id, test.title, cells, method=method, environment={"matrix": result.matrix, "devices": devices}, **base
        )  # fmt: skip
