"""How GPUs and NICs reach each other: `nvidia-smi topo -m`, `nvidia-smi nvlink -s`, and AMD's like.

The matrix is printed for people: an underlined header (escape codes even into a pipe), empty columns, and in
pasted text tabs turned into spaces or lost between two cells. Cells are therefore read by what they can say,
not by column position.
"""

import re
from typing import Any, NamedTuple

from wellfed.host.amd import entries, json_of
from wellfed.host.door import Host, Reading
from wellfed.host.parse import cpu_list, decimal, gap, known
from wellfed.model.fact import Fact

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CELL = re.compile(r"\s*(NV\d+|NODE|PIX|PXB|PHB|SYS|C2C|SOC|XGMI|PCIE|N/A|ERR|X)", re.IGNORECASE)
_DEVICE = re.compile(r"^(GPU\d+|NIC\d+|DLA\d+|CPU\d+|[a-z][a-z0-9]*_[a-z0-9_]+|[a-z]+\d[a-z0-9_]*)$")
_LEGEND = re.compile(r"^\s*(NIC\d+)\s*:\s*(\S+)\s*$")
_CPUS = re.compile(r"^\d+(-\d+)?(,\d+(-\d+)?)*$")
_GPU_LINE = re.compile(r"^\s*GPU (\d+):")
_LINK_LINE = re.compile(r"^\s*Link (\d+):\s*(?:([\d.]+)\s*GB/s|(\S.*))")
_PAIR = re.compile(r"Link type between DRM devices (\d+) and (\d+)")
_NVML_KINDS = {
    "ok": "OK",
    "chipset not supported": "CNS",
    "gpu not supported": "GNS",
    "topology not supported": "TNS",
    "disabled by regkey": "DR",
    "not supported": "NS",
}
_PEER_KINDS = frozenset(_NVML_KINDS.values())
"""What `nvidia-smi topo -p2p` prints of a pair, by what NVML calls it; `U` (unknown) is no answer."""
_DEVICES_MAX = 512


class Row(NamedTuple):
    """One GPU's or NIC's row: its cells by column name, and for a GPU the CPUs and NUMA nodes near it.
    `cpus` is None when the column is empty (seen on GB200) or missing; `gpu_numa` is the node that the
    GPU's own memory forms."""

    cells: dict[str, str]
    cpus: tuple[int, ...] | None = None
    nodes: tuple[int, ...] | None = None
    gpu_numa: int | None = None


class Matrix(NamedTuple):
    """`rows` by name as printed; `nics` the NIC legend (`NIC0` -> `mlx5_0`); `lost` counts rows and cells
    that could not be read."""

    rows: dict[str, Row]
    nics: dict[str, str]
    lost: int


def read_topology(host: Host) -> list[Fact]:
    """The facts `links` and `p2p`: each pair once, GPUs before NICs. NICs go by their RDMA device name when the legend
    tells it (`mlx5_3`), else as `nic3`."""
    seen: list[tuple[Reading, list[dict[str, Any]], int]] = []
    reading = host.run("nvidia-smi-topo")
    if reading.status == "ok" and reading.text:
        matrix = parse_matrix(reading.text)
        seen.append((reading, links_of(matrix), matrix.lost))
    else:
        for name in ("amd-smi-topology", "rocm-smi"):
            amd = host.run(name)
            if amd.status == "ok" and amd.text:
                seen.append((amd, amd_links(amd.text), 0))
                break
    for source, links, lost in seen:
        if links:
            detail = f"{lost} cells could not be read" if lost else None
            return [known("links", links, source.source, source.text, detail), _peers(host, source, links)]
    if seen:
        source = seen[0][0]
        nothing = gap("links", source.source, "unsupported", "no pair of devices is listed")
        return [nothing, _peers(host, source, [])]
    return [gap("links", reading.source, reading.status, reading.detail), _peers(host, reading, [])]


def _peers(host: Host, topology: Reading, links: list[dict[str, Any]]) -> Fact:
    """Whether GPUs may read each other's memory, as NVML says; without it nvidia-smi is asked, where there are two of
    NVIDIA."""
    told = _nvml_peers(host.nvml().get("devices"))
    if told:
        return known("p2p", told, "NVML")
    pairs = [link for link in links if link["a"].startswith("gpu") and link["b"].startswith("gpu")]
    if topology.status != "ok":
        return gap("p2p", topology.source, topology.status, topology.detail)
    if not pairs or any(link["kind"] in ("XGMI", "PCIE") for link in pairs):
        return gap("p2p", "nvidia-smi topo -p2p r", "unsupported", "there are no two GPUs of NVIDIA")
    reading = host.run("nvidia-smi-p2p")
    if reading.status != "ok" or not reading.text:
        return gap("p2p", reading.source, reading.status, reading.detail)
    peers = parse_p2p(reading.text)
    if not peers:
        return gap("p2p", reading.source, "unsupported", "no pair of GPUs is listed")
    return known("p2p", peers, reading.source, reading.text)


def _nvml_peers(devices: Any) -> list[dict[str, Any]]:
    """Each pair once, in the words of nvidia-smi; pairs of which NVML says nothing are left out."""
    found: dict[tuple[int, int], str] = {}
    for index, device in enumerate(devices if isinstance(devices, list) else ()):
        peers = device.get("p2p") if isinstance(device, dict) else None
        for other, states in (peers if isinstance(peers, dict) else {}).items():
            kind = _NVML_KINDS.get(str(states.get("read"))) if isinstance(states, dict) else None
            if kind and other.isascii() and other.isdigit() and len(other) < 4 and int(other) != index:
                a, b = sorted((index, int(other)))
                if found.get((a, b), "OK") == "OK":
                    found[a, b] = kind
    return [_link(f"gpu{a}", f"gpu{b}", kind) for (a, b), kind in sorted(found.items())]


def parse_p2p(text: str) -> list[dict[str, Any]]:
    """The matrix of `nvidia-smi topo -p2p r`, each pair once; of two answers the one that is not OK counts."""
    columns: list[str] = []
    pairs: dict[tuple[str, str], str] = {}
    for line in _ANSI.sub("", text).replace("\r", "").splitlines():
        words = line.split()
        if not columns:
            columns = _columns(words)
        elif words and words[0] in columns and len(words) == len(columns) + 1:
            for column, kind in zip(columns, words[1:], strict=True):
                a, b = sorted((words[0], column), key=columns.index)
                if a != b and kind in _PEER_KINDS and pairs.get((a, b), "OK") == "OK":
                    pairs[a, b] = kind
    return [_link(a.lower(), b.lower(), kind) for (a, b), kind in pairs.items()]


def parse_matrix(text: str) -> Matrix:
    """The matrix of `nvidia-smi topo -m`, whatever of it is left."""
    lines = _ANSI.sub("", text).replace("\r", "").splitlines()
    columns: list[str] = []
    rows: dict[str, Row] = {}
    nics: dict[str, str] = {}
    lost = 0
    for line in lines:
        legend = _LEGEND.match(line)
        if legend:
            nics.setdefault(legend.group(1), legend.group(2))
            continue
        words = line.split()
        if not columns:
            columns = _columns(words)
            continue
        if not words or words[0] not in columns or words[0] in rows:
            continue
        row = _row(line, words[0], columns)
        lost += len(columns) - len(row.cells)
        rows[words[0]] = row
    return Matrix(rows, nics, lost + sum(name not in rows for name in columns) * len(columns))


def _columns(words: list[str]) -> list[str]:
    """Device names of a header line; empty when this is none. The names end at `CPU Affinity`."""
    names: list[str] = []
    for word in words:
        if not _DEVICE.match(word):
            break
        names.append(word)
    is_header = names and names[0] == "GPU0" and len(names) <= _DEVICES_MAX and "X" not in words
    return names if is_header and len(set(names)) == len(names) else []


def _row(line: str, name: str, columns: list[str]) -> Row:
    rest = line[line.index(name) + len(name) :]
    cells: dict[str, str] = {}
    at = 0
    for column in columns:
        match = _CELL.match(rest, at)
        if not match:
            break
        cells[column] = match.group(1).upper()
        at = match.end()
    if not name.startswith("GPU") or len(cells) < len(columns):
        return Row(cells)
    return Row(cells, *_affinity(rest[at:]))


def _affinity(
    tail: str,
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None, int | None]:
    """CPUs, NUMA nodes and own node from what follows the cells. Tabs keep empty columns apart; without tabs
    a lone number could be either column, and only an unmistakable CPU list (a range or a comma) is taken."""
    if "\t" in tail:
        fields = [field.strip() for field in tail.split("\t")[1:]]
        cpus = fields[0] if fields else ""
        nodes = fields[1] if len(fields) > 1 else ""
        own = next((field for field in fields[2:] if field), "")
    else:
        words = tail.split()
        if len(words) >= 2 and (len(words) > 2 or re.search(r"[-,]", words[0])):
            cpus, nodes = words[0], words[1]
        elif len(words) == 2 or (len(words) == 1 and not re.search(r"[-,]", words[0])):
            cpus, nodes = "", words[0]
        else:
            cpus, nodes = (words[0] if words else ""), ""
        own = words[2] if len(words) > 2 else ""
    return (
        _numbers(cpus),
        _numbers(nodes),
        int(own) if own.isascii() and own.isdigit() and len(own) < 9 else None,
    )


def _numbers(text: str) -> tuple[int, ...] | None:
    if not _CPUS.match(text):
        return None
    try:
        return cpu_list(text)
    except ValueError:
        return None


def links_of(matrix: Matrix) -> list[dict[str, Any]]:
    """Each pair once, in the order of the header; the mirrored cell stands in where a row was lost."""
    names = list(dict.fromkeys([*matrix.rows, *(name for row in matrix.rows.values() for name in row.cells)]))
    links = []
    for position, a in enumerate(names):
        for b in names[position + 1 :]:
            kind = _cell(matrix, a, b) or _cell(matrix, b, a)
            if kind:
                links.append(_link(_noun(a, matrix.nics), _noun(b, matrix.nics), kind))
    return links


def _cell(matrix: Matrix, a: str, b: str) -> str | None:
    row = matrix.rows.get(a)
    kind = row.cells.get(b) if row else None
    return None if kind in (None, "X", "N/A", "ERR") else kind


def _link(a: str, b: str, kind: str) -> dict[str, Any]:
    lanes = int(kind[2:]) if re.fullmatch(r"NV\d{1,4}", kind) else None
    return {"a": a, "b": b, "kind": kind, "lanes": lanes}


def _noun(name: str, nics: dict[str, str]) -> str:
    return nics.get(name, name.lower())


def parse_nvlink(text: str) -> dict[int, list[float | None]]:
    """`nvidia-smi nvlink -s`: speed in GB/s of each link of each GPU, None for an inactive one. A GPU whose
    links are all inactive has an empty list."""
    gpus: dict[int, list[float | None]] = {}
    current: list[float | None] | None = None
    for line in text.splitlines():
        gpu = _GPU_LINE.match(line)
        if gpu:
            current = gpus.setdefault(int(gpu.group(1)[:6]), [])
            continue
        link = _LINK_LINE.match(line)
        if link and current is not None and len(current) < _DEVICES_MAX:
            current.append(_speed(link.group(2)))
    return gpus


def _speed(text: str | None) -> float | None:
    try:
        return decimal(text) if text else None
    except ValueError:
        return None


def amd_links(text: str) -> list[dict[str, Any]]:
    """Links of `amd-smi topology --json` (a list of GPUs with `links`) or of `rocm-smi --json`
    (`Link type between DRM devices 0 and 1` under `system`). Kinds are `XGMI` and `PCIE`."""
    document = json_of(text)
    pairs: dict[tuple[int, int], str] = {}
    for gpu in entries(document):
        links = gpu.get("links")
        for link in links if isinstance(links, list) else ():
            if isinstance(link, dict):
                _add_pair(pairs, gpu.get("gpu"), link.get("gpu"), link.get("link_type"))
    system = document.get("system") if isinstance(document, dict) else None
    for key, kind in (system if isinstance(system, dict) else {}).items():
        match = _PAIR.search(key)
        if match:
            _add_pair(pairs, int(match.group(1)[:6]), int(match.group(2)[:6]), kind)
    return [_link(f"gpu{a}", f"gpu{b}", kind) for (a, b), kind in sorted(pairs.items())]


def _add_pair(pairs: dict[tuple[int, int], str], a: Any, b: Any, kind: Any) -> None:
    if isinstance(a, int) and isinstance(b, int) and a != b and isinstance(kind, str):
        word = kind.strip().upper()
        if word and word not in ("SELF", "N/A", "0") and min(a, b) >= 0:
            pairs.setdefault((min(a, b), max(a, b)), word)


def near(reading: Reading, index: int) -> Row | None:
    """The row of GPU `index` in a reading of `nvidia-smi topo -m`."""
    if reading.status != "ok" or not reading.text:
        return None
    return parse_matrix(reading.text).rows.get(f"GPU{index}")
