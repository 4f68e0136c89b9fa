"""nccl-tests and rccl-tests: the text table and `-J`. Sizes and busbw count as ours do; the out-of-place column is taken.

Format: NVIDIA/nccl-tests, src/util.cu (text columns by their header; JSON versions 1 to 3).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wellfed.ingest.ceilings.common import curve_ceilings, finish, number, parse_json, read_text
from wellfed.model import Ceiling
from wellfed.predict.collective import bus_factor, operation

_RANK = re.compile(r"^#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)$", re.MULTILINE)
_SHAPE = re.compile(r"nThreads?:? *(\d+).*?nGpus:? *(\d+)")
_STARTS = re.compile(r"Collective test starting: *(\S+)|\b(\w+_perf)\b")
_FIRST = re.compile(r"#\s*(?:nThreads?\b|nccl-tests version|Collective test starting)")
_VERSION = re.compile(r"nccl-tests version *(\S+)")
_LIBRARY = re.compile(r"nccl-library=(\d+)|\"nccl_version\" *: *(\d+)")


class _Row(NamedTuple):
    """One size: seconds, the tool's busbw in bytes/s (None: not told), elements that were wrong."""

    size: float
    seconds: float
    bus: float | None
    alg: float | None
    wrong: float


class _Run(NamedTuple):
    op: str | None
    ranks: int
    nodes: int
    rows: list[_Row]
    dtype: str | None
    devices: tuple[str, ...]
    lost: int


def matches(head: str, name: str) -> bool:
    is_table = (
        "busbw" in head and "algbw" in head and re.search(r"^#.*\bsize\b.*\bbusbw\b", head, re.MULTILINE)
    )
    is_json = '"out_of_place"' in head or ('"nccl_version"' in head and '"args"' in head)
    return bool(is_table) or is_json or "Collective test starting" in head


def read(path: Path) -> list[Ceiling]:
    """Busbw, latency and curve of each run in the file; one whose operation or ranks are not told is left out."""
    text, damage = read_text(path)
    version, library = _VERSION.search(text), _LIBRARY.search(text)
    is_amd = re.search(r"rccl", text, re.IGNORECASE) is not None or "rccl" in path.name.lower()
    backend = "rccl" if is_amd else "nccl"
    tool = f"{backend}-tests{' ' + version[1] if version else ''}"
    found: list[Ceiling] = []
    lost = 0
    for run in _runs(text):
        lost += run.lost
        op = run.op or operation(path.name) or _by_factor(run)
        if op is None or run.ranks < 2 or not run.rows:
            lost += max(len(run.rows), 1)
            continue
        wrong = any(row.wrong > 0 for row in run.rows)
        rows = {row.size: row for row in run.rows}
        facts: dict[str, Any] = {"nodes": run.nodes, "devices": list(run.devices)}
        if library:
            facts["library"] = _library(int(library[1] or library[2]))
        found += curve_ceilings(
            op, backend, sorted((r.size, r.seconds) for r in rows.values()), run.ranks, factor=bus_factor(op, run.ranks),
            rates={s: r.bus for s, r in rows.items() if r.bus}, tool=tool, method="mean of its iterations, out of place",
            path=path, dtype=run.dtype, environment=facts,
            **({"verdict": "implausible", "why": "the tool found wrong data"} if wrong else {}),
        )  # fmt: skip
    return finish(found, lost, damage)


def _library(code: int) -> str:
    """NCCL_VERSION_CODE: 22703 is 2.27.3, 2408 is 2.4.8."""
    if code >= 10000:
        return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    return f"{code // 1000}.{code // 100 % 10}.{code % 100}"


def _runs(text: str) -> list[_Run]:
    if re.match(r"\s*\{", text):
        return [_of_json(text)]
    return [run for piece in _pieces(text) if (run := _of_text(piece)).rows or run.lost]


def _pieces(text: str) -> list[str]:
    """One run each: a new one begins with a first line after rows of the one before."""
    pieces: list[list[str]] = [[]]
    has_rows = False
    for line in text.splitlines():
        if has_rows and _FIRST.match(line):
            pieces.append([])
            has_rows = False
        has_rows = has_rows or line.lstrip()[:1].isdigit()
        pieces[-1].append(line)
    return ["\n".join(lines) for lines in pieces]


def _of_text(text: str) -> _Run:
    ranks = _RANK.findall(text)
    shape = _SHAPE.search(text)
    told = int(shape[1]) * int(shape[2]) if shape else 0
    columns: list[str] = []
    rows: list[_Row] = []
    lost, dtype = 0, None
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#") and "size" in words and "busbw" in words:
            columns = words[words.index("size") :]
        elif columns and words and words[0].isdigit():
            row = _row(_named(columns, words))
            if row is None:
                lost += 1
            else:
                rows.append(row)
                dtype = dtype or (words[2] if len(words) > 2 else None)
    starts = _STARTS.search(text)
    devices = tuple(sorted({name for _, _, name in ranks if name}))[:8]
    count = len({rank for rank, _, _ in ranks}) or told
    nodes = len({host for _, host, _ in ranks}) or 1
    op = operation(starts[1] or starts[2]) if starts else None
    return _Run(op, count, nodes, rows, dtype, devices, lost)


def _named(columns: Sequence[str], words: Sequence[str]) -> dict[str, str]:
    """The first of each column's values: out of place comes first."""
    found: dict[str, str] = {}
    for column, word in zip(columns, words, strict=False):
        found.setdefault(column, word)
    return found


def _row(cells: dict[str, str]) -> _Row | None:
    size, took = number(cells.get("size")), number(cells.get("time", cells.get("cputime")))
    bus, alg = number(cells.get("busbw")), number(cells.get("algbw"))
    if size is None or took is None or took <= 0 or bus is None:
        return None
    wrong = number(cells.get("#wrong")) or 0.0
    return _Row(size, took * 1e-6, bus * 1e9 or None, (alg or 0.0) * 1e9 or None, wrong)


def _of_json(text: str) -> _Run:
    value, whole = parse_json(text)
    root: dict[str, Any] = value if whole and isinstance(value, dict) else {}
    results = root.get("results") if whole else value
    config: Any = (
        root.get("config") if whole else next((v for v in value if "nthreads" in v or "devices" in v), {})
    )
    config = config if isinstance(config, dict) else {}
    devices = config.get("devices") or root.get("devices") or []
    devices = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    ranks = len(devices) or int((number(config.get("nthreads")) or 0) * (number(config.get("ngpus")) or 0))
    rows, lost, dtype = [], 0 if whole else 1, None
    for one in results if isinstance(results, list) else ():
        row = _json_row(one)
        if row is not None:
            rows.append(row)
            dtype = dtype or one.get("type")
        elif isinstance(one, dict) and "size" in one:
            lost += 1
    args = root.get("args")
    said = args[0] if isinstance(args, list) and args and isinstance(args[0], str) else text[:4096]
    starts = _STARTS.search(said)
    op = operation(starts[1] or starts[2]) if starts else None
    names = tuple(sorted({str(d.get("device_info", "")) for d in devices} - {""}))[:8]
    nodes = len({str(d.get("hostname", "")) for d in devices}) or 1
    return _Run(op, ranks, nodes, rows, dtype if isinstance(dtype, str) else None, names, lost)


def _json_row(one: Any) -> _Row | None:
    if not isinstance(one, dict):
        return None
    body = one.get("out_of_place") or one.get("in_place")
    size = number(one.get("size"))
    if not isinstance(body, dict) or size is None:
        return None
    took = number(body.get("time", body.get("cpu_time")))
    bus, alg = number(body.get("bus_bw")), number(body.get("alg_bw"))
    if took is None and bus and alg:
        took = size / alg / 1e3
    if took is None or took <= 0:
        return None
    return _Row(
        size,
        took * 1e-6,
        (bus or 0) * 1e9 or None,
        (alg or 0) * 1e9 or None,
        number(body.get("nwrong")) or 0.0,
    )


def _by_factor(run: _Run) -> str | None:
    """What busbw over algbw says: 2 (n - 1) / n is all_reduce alone; others share theirs, and nobody can tell."""
    large = [row for row in run.rows if row.bus and row.alg and row.alg > 1e9]
    if not large or run.ranks < 2:
        return None
    ratio = sorted((row.bus or 0) / (row.alg or 1) for row in large)[len(large) // 2]
    factor = bus_factor("all_reduce", run.ranks)
    return "all_reduce" if factor and abs(ratio / factor - 1) < 0.03 and run.ranks > 2 else None
