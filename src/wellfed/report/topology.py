"""The machine as a picture and as a tree: sockets, nodes, L3 groups and cores, what hangs on each node, links and distances.

The SVG is written here: it is boxes in boxes, and no chart. Colours are those of the charts, as CSS variables with the light
ones as fallback. Lists that never end are cut, with a count of what is left out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from wellfed.model.base import replace
from wellfed.model.counting import counted
from wellfed.model.devices import Gpu
from wellfed.model.machine import CpuThread, Machine, NumaNode
from wellfed.model.placement import cpu_ranges
from wellfed.place.locality import local_cpus
from wellfed.report import words
from wellfed.report.charts import LIGHT

WIDTH, PAD, GAP = 800.0, 10.0, 10.0
CELL, STEP = 9.0, 12.0
LINE, CHIP = 17.0, 22.0
MAX_NODES, MAX_CHIPS, MAX_CORES, MAX_MATRIX = 32, 12, 256, 20
LETTER, SMALL = 6.3, 5.6
"""Pixels of an average letter of 12 pixels, and of 10.5."""


class Device(NamedTuple):
    """`kind` is `gpu`, `nic` or `cpu` (CPUs that no node has, for it is offline); `text` its line."""

    kind: str
    text: str


class Node(NamedTuple):
    """A node: its cores by L3 group (for each core how many threads it has, whether it is slow, whether it may be used)."""

    id: int
    cpus: tuple[int, ...]
    mem_bytes: int | None
    groups: tuple[tuple[tuple[int, bool, bool], ...], ...]
    devices: tuple[Device, ...]

    @property
    def cores(self) -> int:
        return sum(map(len, self.groups))


class Layout(NamedTuple):
    """Sockets (their numbers, `()` when nothing tells them, and their nodes), nodes of memory only, and devices that are
    near to no one node."""

    sockets: tuple[tuple[tuple[int, ...], tuple[Node, ...]], ...]
    memory: tuple[Node, ...]
    homeless: tuple[Device, ...]


def layout_of(machine: Machine) -> Layout | None:
    """None for a machine of which no CPU is known."""
    threads = [t for t in machine.cpu.threads or () if t.online]
    homes = {cpu: node.id for node in machine.numa for cpu in node.cpus}
    first = next((node.id for node in machine.numa if node.cpus), 0)
    by_node: dict[int, list[CpuThread]] = {}
    strays = tuple(thread.id for thread in threads if homes and thread.id not in homes)
    for thread in threads:
        if thread.id not in strays:
            by_node.setdefault(homes.get(thread.id, first), []).append(thread)
    off = {thread.id for thread in machine.cpu.threads or () if not thread.online}
    sizes = {
        node.id: replace(node, cpus=tuple(cpu for cpu in node.cpus if cpu not in off) or node.cpus)
        for node in machine.numa
    }
    ids = sorted(set(by_node) | {node.id for node in machine.numa if node.cpus})
    if not ids:
        return None
    devices, homeless = _devices(machine, {name: frozenset(_cpus(name, by_node, sizes)) for name in ids})
    allowed = set(machine.cpu.allowed or machine.container.cpuset or ())
    sockets: dict[tuple[int, ...], list[Node]] = {}
    alone = (0,) if machine.cpu.packages == 1 else ()
    for name in ids[:MAX_NODES]:
        members = by_node.get(name, [])
        packages = tuple(sorted({t.package for t in members if t.package is not None}))
        node = Node(
            name,
            _cpus(name, by_node, sizes),
            sizes[name].mem_bytes if name in sizes else machine.memory.total_bytes,
            _groups(members, allowed),
            devices.get(name, ()),
        )
        sockets.setdefault(packages or alone, []).append(node)
    memory = tuple(
        Node(node.id, (), node.mem_bytes, (), ()) for node in machine.numa if not node.cpus and node.mem_bytes
    )
    if strays:
        homeless = (Device("cpu", f"CPUs {cpu_ranges(strays)}"), *homeless)
    return Layout(tuple((key, tuple(nodes)) for key, nodes in sockets.items()), memory, homeless)


def _cpus(name: int, by_node: dict[int, list[CpuThread]], sizes: dict[int, NumaNode]) -> tuple[int, ...]:
    return (
        sizes[name].cpus if name in sizes and sizes[name].cpus else tuple(t.id for t in by_node.get(name, ()))
    )


def _groups(
    members: Iterable[CpuThread], allowed: set[int]
) -> tuple[tuple[tuple[int, bool, bool], ...], ...]:
    cores: dict[tuple[int, int], list[CpuThread]] = {}
    for thread in members:
        key = (0, thread.core) if thread.core is not None else (1, thread.id)
        cores.setdefault(key, []).append(thread)
    groups: dict[int, list[tuple[int, bool, bool]]] = {}
    for siblings in cores.values():
        usable = not allowed or any(t.id in allowed for t in siblings)
        l3 = siblings[0].l3 if siblings[0].l3 is not None else -1
        groups.setdefault(l3, []).append((len(siblings), siblings[0].kind == "efficiency", usable))
    return tuple(tuple(groups[key]) for key in sorted(groups))


def _devices(
    machine: Machine, nodes: dict[int, frozenset[int]]
) -> tuple[dict[int, tuple[Device, ...]], tuple[Device, ...]]:
    found: dict[int, list[Device]] = {}
    homeless: list[Device] = []

    def put(node: int | None, device: Device) -> None:
        (found.setdefault(node, []) if node in nodes else homeless).append(device)

    for gpu in machine.gpus:
        cpus = local_cpus(machine, gpu, nodes).cpus
        touched = [name for name, members in nodes.items() if cpus and members & cpus]
        put(touched[0] if len(touched) == 1 else None, Device("gpu", _gpu_text(gpu)))
    only = next(iter(nodes)) if len(nodes) == 1 else None
    seen = set()
    for port in machine.rdma:
        rate = f" {port.rate_gbps:g} Gbit/s" if port.rate_gbps else ""
        seen.add(port.address)
        put(port.numa_node if port.numa_node is not None else only, Device("nic", f"{port.device}{rate}"))
    for nic in machine.nics:
        if nic.is_physical and (nic.address is None or nic.address not in seen):
            rate = f" {nic.speed_mbps / 1000:g} Gbit/s" if nic.speed_mbps else ""
            put(nic.numa_node if nic.numa_node is not None else only, Device("nic", f"{nic.name}{rate}"))
    return {node: tuple(listed) for node, listed in found.items()}, tuple(homeless)


def _gpu_text(gpu: Gpu) -> str:
    name = (gpu.name or gpu.catalog or "").removeprefix("NVIDIA ")
    return f"GPU {gpu.index} {name}".strip()


# -- the tree ----------------------------------------------------------------------------------------------


def tree(machine: Machine) -> list[str]:
    """Lines, indented; empty when no CPU is known."""
    layout = layout_of(machine)
    if layout is None:
        return []
    out = []
    for sockets, nodes in layout.sockets:
        out.append(_socket_text(sockets))
        for node in nodes:
            out.append(f"  {_node_text(node)}: CPUs {cpu_ranges(node.cpus)}")
            out += [f"    {words.clean(device.text)}" for device in node.devices[:MAX_CHIPS]]
            if (more := len(node.devices) - MAX_CHIPS) > 0:
                out.append(f"    and {more} devices more")
    if layout.memory:
        out.append(f"memory only: {_memory_text(layout.memory)}")
    if layout.homeless:
        shown = ", ".join(words.clean(device.text) for device in layout.homeless[:MAX_CHIPS])
        more = len(layout.homeless) - MAX_CHIPS
        out.append(f"near no one node: {shown}" + (f" and {more} more" if more > 0 else ""))
    if text := links_text(machine):
        out.append(f"links: {text}")
    if text := _distance_text(machine):
        out.append(f"distances: {text}")
    return out


def _node_text(node: Node) -> str:
    bits = [f"node {node.id}", counted(len(node.cpus), "CPU")]
    if node.cores and node.cores != len(node.cpus):
        bits.append(counted(node.cores, "core"))
    if len(node.groups) > 1:
        bits.append(counted(len(node.groups), "L3 group"))
    if node.mem_bytes is not None:
        bits.append(words.size(node.mem_bytes))
    return ", ".join(bits)


def _memory_text(nodes: Sequence[Node]) -> str:
    sizes = {node.mem_bytes for node in nodes}
    names = cpu_ranges(tuple(node.id for node in nodes))
    each = " each" if len(nodes) > 1 else ""
    if len(sizes) == 1 and (size := sizes.pop()) is not None:
        return f"node {names}, {words.size(size)}{each}"
    return f"node {names}, {words.size(sum(node.mem_bytes or 0 for node in nodes))} in all"


def links_text(machine: Machine) -> str:
    """`28 x NV18 between GPUs, 8 x PIX to NICs`; empty when no link is told."""
    between = Counter(
        link.kind for link in machine.links if link.a.startswith("gpu") and link.b.startswith("gpu")
    )
    others = Counter(
        link.kind for link in machine.links if link.a.startswith("gpu") != link.b.startswith("gpu")
    )
    parts = [f"{n} x {words.clean(kind)} between GPUs" for kind, n in between.most_common(3)]
    parts += [f"{n} x {words.clean(kind)} to NICs" for kind, n in others.most_common(4)]
    return ", ".join(parts)


def _distance_text(machine: Machine) -> str:
    rows = [node for node in machine.numa if node.cpus and node.distances]
    if len(rows) < 2:
        return ""
    order = [node.id for node in machine.numa]
    counts: Counter[int] = Counter()
    for node in rows:
        for name, distance in zip(order, node.distances or (), strict=False):
            if name > node.id and name in {other.id for other in rows}:
                counts[distance] += 1
    return ", ".join(
        f"{distance} between {counted(n, 'pair')} of nodes" for distance, n in sorted(counts.items())
    )


# -- the picture -------------------------------------------------------------------------------------------


def svg(machine: Machine) -> str | None:
    """The picture for inlining; None when no CPU is known."""
    layout = layout_of(machine)
    if layout is None:
        return None
    parts: list[str] = []
    y = _sockets(layout, parts)
    if layout.memory:
        y = _row(parts, y, "memory only", [Device("memory", _memory_text([node])) for node in layout.memory])
    if layout.homeless:
        y = _row(parts, y, "near no one node", list(layout.homeless))
    y = _matrices(machine, parts, y)
    label = escape(f"Topology: {words.clean(title(machine))}")
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH:.0f} {y:.0f}" width="{WIDTH:.0f}" '
        f'height="{y:.0f}" font-size="12">{"".join(parts)}</svg>'
    )


def _socket_text(sockets: tuple[int, ...]) -> str:
    return f"socket {cpu_ranges(sockets)}" if sockets else "sockets not told"


def title(machine: Machine) -> str:
    """`2 sockets, 4 nodes with CPUs, 56 cores, 4 GPUs`."""
    layout = layout_of(machine)
    if layout is None:
        return "no CPU is known"
    nodes = [node for _, found in layout.sockets for node in found]
    sockets = {name for names, _ in layout.sockets for name in names}
    bits = [counted(len(sockets), "socket")] if sockets else []
    bits.append(counted(len(nodes), "node") + " with CPUs")
    if all(thread.core is not None for thread in machine.cpu.threads or ()):
        bits.append(counted(sum(node.cores for node in nodes), "core"))
    if layout.memory:
        bits.append(counted(len(layout.memory), "node") + " of memory only")
    if machine.gpus:
        bits.append(counted(len(machine.gpus), "GPU"))
    return ", ".join(bits)


def _sockets(layout: Layout, parts: list[str]) -> float:
    """Sockets from left to right, as many columns of nodes as fit; the height used."""
    total = sum(len(nodes) for _, nodes in layout.sockets)
    columns = min(total, 4 if total > 2 else 2)
    # Sockets keep their own border: what that takes is the same for each.
    wide = max((min(len(nodes), columns) for _, nodes in layout.sockets), default=1)
    per_row = max(columns // wide, 1)
    socket_width = (WIDTH - GAP * (per_row - 1) - 2) / per_row
    y = 1.0
    for start in range(0, len(layout.sockets), per_row):
        row = layout.sockets[start : start + per_row]
        heights = [
            _socket(sockets, nodes, 1 + at * (socket_width + GAP), y, socket_width, wide, None)
            for at, (sockets, nodes) in enumerate(row)
        ]
        height = max(heights)
        for at, (sockets, nodes) in enumerate(row):
            _socket(sockets, nodes, 1 + at * (socket_width + GAP), y, socket_width, wide, (parts, height))
        y += height + GAP
    return y


def _socket(
    sockets: tuple[int, ...],
    nodes: Sequence[Node],
    x: float,
    y: float,
    width: float,
    wide: int,
    draw: tuple[list[str], float] | None,
) -> float:
    """The height of a socket's box; drawn too where `draw` says with which height."""
    inner: list[str] = []
    node_width = (width - PAD * 2 - GAP * (wide - 1)) / wide
    top = y + PAD + LINE
    for start in range(0, len(nodes), wide):
        row = nodes[start : start + wide]
        height = max(_node(node, 0, 0, node_width, 0, []) for node in row)
        for at, node in enumerate(row):
            _node(node, x + PAD + at * (node_width + GAP), top, node_width, height, inner)
        top += height + GAP
    needed = top - y
    if draw is not None:
        parts, height = draw
        parts.append(_box(x, y, width, height, "rule", 6))
        parts.append(_text(x + PAD, y + PAD + 9, _socket_text(sockets), "muted", width - 2 * PAD, bold=True))
        parts += inner
    return needed


def _node(node: Node, x: float, y: float, width: float, height: float, out: list[str]) -> float:
    """Draws a node with at least this height into `out`; the height it needs."""
    at = y + PAD + 9
    body: list[str] = []
    for line in _fit(_node_text(node).split(", "), width - 2 * PAD):
        body.append(_text(x + PAD, at, line, "ink", width - 2 * PAD))
        at += LINE
    at -= 6
    at = _cores(node, x + PAD, at, width - 2 * PAD, body)
    shown = node.devices[:MAX_CHIPS]
    if node.devices:
        at += 6
    for device in shown:
        body.append(_chip(device, x + PAD, at, width - 2 * PAD))
        at += CHIP + 3
    if (more := len(node.devices) - len(shown)) > 0:
        body.append(_text(x + PAD, at + 12, f"and {more} more", "muted", width - 2 * PAD))
        at += LINE
    needed = at - y + PAD - 3
    out.append(_box(x, y, width, max(height, needed), "rule", 4, fill=0.05))
    out += body
    return needed


def _fit(bits: list[str], width: float) -> list[str]:
    """Pieces joined by commas in lines of this width."""
    lines = [bits[0]]
    for bit in bits[1:]:
        joined = f"{lines[-1]}, {bit}"
        if len(joined) * LETTER <= width:
            lines[-1] = joined
        else:
            lines.append(bit)
    return lines


def _cores(node: Node, x: float, y: float, width: float, out: list[str]) -> float:
    """A square for each core, L3 groups apart; where it ends. Slow cores are smaller, those not allowed are hollow."""
    at_x, at_y, tallest, drawn = x, y, 0.0, 0
    for group in node.groups:
        most = max(int((width - 8) // STEP), 1)
        per_row = min(len(group), most, max(8, round((2 * len(group)) ** 0.5)))
        rows = -(-len(group) // per_row)
        per_row = -(-len(group) // rows)  # full rows, rather than one of left-overs
        box_width, box_height = per_row * STEP + 5, rows * STEP + 5
        if at_x > x and at_x + box_width > x + width:
            at_x, at_y, tallest = x, at_y + tallest + 5, 0.0
        out.append(_box(at_x, at_y, box_width, box_height, "overhead", 3))
        for place, (_, slow, usable) in enumerate(group):
            if drawn >= MAX_CORES:
                break
            drawn += 1
            size = CELL - 3 if slow else CELL
            inset = (CELL - size) / 2
            cx, cy = at_x + 4 + place % per_row * STEP, at_y + 4 + place // per_row * STEP
            colour = _var("compute")
            look = f'fill="{colour}"' if usable else f'fill="none" stroke="{colour}"'
            out.append(
                f'<rect x="{cx + inset:.1f}" y="{cy + inset:.1f}" width="{size:.1f}" height="{size:.1f}" rx="1.5" {look}/>'
            )
        at_x += box_width + 5
        tallest = max(tallest, box_height)
    return at_y + tallest + (2 if node.groups else 0)


def _row(parts: list[str], y: float, name: str, devices: Sequence[Device]) -> float:
    """Chips beside each other under a name."""
    parts.append(_text(1, y + 12, name, "muted", WIDTH, bold=True))
    x, y = 1.0, y + LINE + 2
    for device in devices[: 2 * MAX_CHIPS]:
        width = min(len(device.text) * LETTER + 18, WIDTH - 2)
        if x > 1 and x + width > WIDTH - 1:
            x, y = 1.0, y + CHIP + 4
        parts.append(_chip(device, x, y, width))
        x += width + 6
    return y + CHIP + GAP


def _chip(device: Device, x: float, y: float, width: float) -> str:
    colour = {"gpu": "good", "nic": "comm", "memory": "copy", "cpu": "overhead"}[device.kind]
    box = _box(x, y, width, CHIP, colour, 4, fill=0.12)
    return box + _text(x + 7, y + 15, device.text, "ink", width - 12)


def _matrices(machine: Machine, parts: list[str], y: float) -> float:
    """Distances of nodes and links of GPUs as squares of text, side by side where they fit."""
    tables = [table for table in (_distances(machine), _links(machine)) if table is not None]
    x, tallest = 1.0, 0.0
    for name, columns, rows in tables:
        cell = max([30.0, *(len(column) * SMALL + 8 for column in columns)])
        first = max(len(row[0]) for row in rows) * SMALL + 12
        fit = int((WIDTH - first) // cell)
        if fit < len(columns):
            name, columns = f"{name}, the first {fit} of {len(columns)}", columns[:fit]
            rows = [row[: fit + 1] for row in rows]
        width, height = first + cell * len(columns), LINE * (len(rows) + 2) + 4
        if x > 1 and x + width > WIDTH:
            x, y, tallest = 1.0, y + tallest + GAP, 0.0
        parts.append(_text(x, y + 12, name, "muted", WIDTH, bold=True))
        for at, column in enumerate(columns):
            parts.append(
                _text(
                    x + first + cell * (at + 0.5),
                    y + LINE + 12,
                    column,
                    "muted",
                    cell + 12,
                    middle=True,
                    small=True,
                )
            )
        for down, (label, *cells) in enumerate(rows):
            top = y + LINE * (down + 2)
            parts.append(_text(x, top + 11, label, "ink", first, small=True))
            for at, text in enumerate(cells):
                strength = _strength(text)
                left = x + first + cell * at
                if strength:
                    parts.append(
                        f'<rect x="{left + 1:.1f}" y="{top:.1f}" width="{cell - 2:.1f}" height="{LINE - 2:.1f}" rx="2" '
                        f'fill="{_var("good")}" fill-opacity="{strength:.2f}"/>'
                    )
                parts.append(
                    _text(left + cell / 2, top + 11, text, "ink", cell + 12, middle=True, small=True)
                )
        x += width + 4 * GAP
        tallest = max(tallest, height)
    return y + tallest + 2


_NEAR = {"PIX": 0.4, "PXB": 0.32, "PHB": 0.22, "NODE": 0.14, "C2C": 0.5, "XGMI": 0.45}


def _strength(text: str) -> float:
    """How strongly a cell is filled: the nearer, the stronger."""
    if text.isdigit():
        return max(0.0, min(0.5, 5.0 / max(int(text), 10)) - 0.1)
    return 0.5 if text.startswith("NV") else _NEAR.get(text, 0.0)


Table = tuple[str, list[str], list[list[str]]]


def _distances(machine: Machine) -> Table | None:
    rows = [node for node in machine.numa if node.distances][:MAX_MATRIX]
    if len(rows) < 2:
        return None
    columns = [str(node.id) for node in machine.numa][:MAX_MATRIX]
    return (
        "distance between nodes",
        columns,
        [[f"node {node.id}", *map(str, (node.distances or ())[:MAX_MATRIX])] for node in rows],
    )


def _links(machine: Machine) -> Table | None:
    kinds = {(link.a, link.b): link.kind for link in machine.links}
    kinds |= {(b, a): kind for (a, b), kind in kinds.items()}
    names = list(dict.fromkeys(name for pair in kinds for name in pair))
    gpus = [name for name in names if name.startswith("gpu")][:MAX_MATRIX]
    columns = [*gpus, *(name for name in names if not name.startswith("gpu"))][:MAX_MATRIX]
    if not gpus or len(columns) < 2:
        return None
    rows = [[gpu, *("" if gpu == name else kinds.get((gpu, name), "") for name in columns)] for gpu in gpus]
    return "links", columns, rows


def _var(name: str) -> str:
    return f"var(--{name},{LIGHT[name]})"


def _box(
    x: float, y: float, width: float, height: float, colour: str, radius: int, *, fill: float = 0.0
) -> str:
    inside = f'fill="{_var(colour)}" fill-opacity="{fill:.2f}"' if fill else 'fill="none"'
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}" {inside} '
        f'stroke="{_var(colour)}"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    colour: str,
    width: float,
    *,
    bold: bool = False,
    middle: bool = False,
    small: bool = False,
) -> str:
    shown = words.fold(words.clean(text), max(int(width / LETTER), 3)) if not text.isdigit() else text
    more = ' font-weight="600"' if bold else ""
    more += ' text-anchor="middle"' if middle else ""
    more += ' font-size="10.5"' if small else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{_var(colour)}"{more}>{escape(shown)}</text>'
