"""A placement as text and as plain values, and the same placement in the words of other launchers."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from wellfed.model.counting import counted
from wellfed.model.placement import DISJOINT, Placement, RankPlace, cpu_ranges
from wellfed.report import lines as layout
from wellfed.report import words
from wellfed.report.lines import Line, Span

SCHEMA = 1
_COMMANDS = {"torchrun", "Slurm", "Open MPI", "vLLM", "SGLang"}
"""Launchers whose text is one command line."""


def plain(placed: Placement) -> dict[str, Any]:
    """`{"schema": 1, "mode", "ranks": [...], "equivalents": [{"for", "text"}]}`."""
    tree: dict[str, Any] = msgspec.to_builtins(placed)
    told = [{"for": name, "text": text} for name, text in equivalents(placed)]
    return {"schema": SCHEMA, **tree, "equivalents": told}


def render(placed: Placement, *, width: int, color: bool = False) -> str:
    """The table, the reasons (ranks that share one together), warnings, and the equivalents."""
    count = counted(len(placed.ranks), "rank")
    used = "" if placed.mode == placed.asked else f" instead of {placed.asked}"
    head = f"{count}, {counted(placed.gpus, 'GPU')}, mode {placed.mode}{used}: {_sizes(placed)}"
    out: list[Line] = [[(head, "head")], []]
    out += _table(placed, width)
    out.append([])
    for name in ("gpu", "cpus", "memory", "nics"):
        for text, ranks in _grouped(placed, name):
            label = (
                f"  {name} "
                if len(ranks) == len(placed.ranks)
                else f"  {name}, rank {words.id_ranges(ranks)} "
            )
            out += layout.flow(layout.prose(text), width, first=[(label, "dim")], rest=4)
    if placed.reserved:
        text = f"CPUs {cpu_ranges(placed.reserved)} are left to interrupts and daemons"
        out += layout.flow(layout.prose(text), width, first=[("  system ", "dim")], rest=4)
    variables = _common(placed)
    if variables:
        shown = " ".join(f"{key}={value}" for key, value in variables.items())
        out += layout.flow(layout.prose(shown), width, first=[("  variables ", "dim")], rest=4, whole=True)
    for warning in placed.warnings:
        out += layout.flow(layout.prose(warning), width, first=[("  warning: ", "warning")], rest=4)
    out += [[], [("The same for other launchers", "head")]]
    for name, text in equivalents(placed):
        out.append([(f"  {name}", "dim")])
        for line in text.splitlines():
            if name in _COMMANDS:
                out += layout.command(line, width, first=[("    ", "")], rest=6)
            else:
                out += layout.flow([(line, "")], width, first=[("    ", "")], rest=6, whole=True)
    return layout.paint(out, width=width, color=color)


def _sizes(placed: Placement) -> str:
    sizes = sorted({len(rank.cpus) for rank in placed.ranks})
    each = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"{each} of {len(placed.allowed)} CPUs each"


def _table(placed: Placement, width: int) -> list[Line]:
    head = ("rank", "GPU", "address", "node", "CPUs", "memory", "NIC")
    rows: list[Sequence[Span]] = [[(name, "dim") for name in head]]
    for rank in placed.ranks:
        memory = rank.memory_policy
        if rank.memory_nodes:
            memory += f" {cpu_ranges(rank.memory_nodes)}"
        cells = (
            str(rank.rank),
            "-" if rank.gpu is None else str(rank.gpu),
            words.clean(rank.address or "-"),
            cpu_ranges(rank.nodes),
            cpu_ranges(rank.cpus),
            memory,
            words.clean(",".join(rank.nics) or "-"),
        )
        rows.append([(cell, "") for cell in cells])
    if all(rank.address is None for rank in placed.ranks):
        rows = [[cell for at, cell in enumerate(row) if at != 2] for row in rows]
    if not any(rank.nics for rank in placed.ranks):
        rows = [row[:-1] for row in rows]
    flexible = next(at for at, cell in enumerate(rows[0]) if cell[0] == "CPUs")
    widest = sum(max(words.cells(row[at][0]) for row in rows) + 2 for at in range(len(rows[0])))
    if widest <= width:
        return layout.columns(rows, width, align="r" * 2 + "l" * (len(rows[0]) - 2), flexible=flexible)
    # Numbers are never folded: lists that are too long stand below the others.
    short = [[*row[:flexible], *row[flexible + 1 :]] for row in rows]
    out = layout.columns(short, width, align="r" * 2 + "l" * (len(short[0]) - 2), flexible=len(short[0]) - 1)
    for row in rows[1:]:
        text = row[flexible][0].replace(",", ", ")
        out += layout.flow(
            layout.prose(text), width, first=[(f"  CPUs of rank {row[0][0]}: ", "dim")], rest=4
        )
    return out


def _grouped(placed: Placement, name: str) -> Iterator[tuple[str, list[int]]]:
    groups: dict[str, list[int]] = {}
    for rank in placed.ranks:
        if text := rank.reasons.get(name):
            groups.setdefault(text, []).append(rank.rank)
    yield from groups.items()


def _common(placed: Placement) -> dict[str, str]:
    """Variables of the first rank, those that differ by rank marked."""
    first = placed.ranks[0].environment if placed.ranks else {}
    return {
        key: value if all(rank.environment.get(key) == value for rank in placed.ranks) else "(by rank)"
        for key, value in first.items()
    }


# -- other launchers ---------------------------------------------------------------------------------------


def cpu_mask(cpus: Sequence[int]) -> str:
    """As srun and taskset write masks: hexadecimal, CPU 0 the lowest bit."""
    return hex(sum(1 << cpu for cpu in cpus))


def equivalents(placed: Placement) -> list[tuple[str, str]]:
    """(launcher, text to paste). The masks are those of this placement: another machine's differ."""
    if not placed.ranks:
        return []
    mode, number = placed.mode, len(placed.ranks)
    own = f"wellfed pin exec --mode {mode} -- python train.py"
    several = number > 1
    found = [
        ("torchrun", f"torchrun --nproc-per-node {number} --no-python {own}"),
        ("Slurm", _srun(placed)),
        ("Open MPI", f"mpirun -n {number} --bind-to none {own}"),
        ("systemd", "\n".join(_systemd(rank, several) for rank in placed.ranks)),
        ("Kubernetes", _kubernetes(placed)),
        ("Ray", "in each actor: import os, wellfed; " + _ray(mode)),
    ]
    served = "vllm serve MODEL" + (f" --tensor-parallel-size {number}" if several else "")
    found.append(("vLLM", f"wellfed pin exec --mode node -- {served}"))
    nodes = [rank.memory_nodes[0] for rank in placed.ranks if len(rank.memory_nodes) == 1]
    if len(nodes) == number:
        tp = f" --tp {number}" if several else ""
        listed = " ".join(map(str, nodes))
        found.append(
            ("SGLang", f"python -m sglang.launch_server --model-path MODEL{tp} --numa-node {listed}")
        )
    return found


def _srun(placed: Placement) -> str:
    masks = ",".join(cpu_mask(rank.cpus) for rank in placed.ranks)
    memory = ""
    nodes = [rank.memory_nodes for rank in placed.ranks]
    if all(len(found) == 1 for found in nodes):
        prefer = "prefer," if placed.ranks[0].memory_policy == "preferred" else ""
        memory = f" --mem-bind={prefer}map_mem:{','.join(str(found[0]) for found in nodes)}"
    return f"srun --ntasks-per-node={len(placed.ranks)} --cpu-bind=mask_cpu:{masks}{memory} python train.py"


def _systemd(rank: RankPlace, several: bool) -> str:
    name = f"# rank {rank.rank}: " if several else ""
    memory = ""
    if rank.memory_policy != "none":
        memory = f" NUMAPolicy={rank.memory_policy} NUMAMask={cpu_ranges(rank.memory_nodes)}"
    return f"{name}CPUAffinity={cpu_ranges(rank.cpus)}{memory}"


def _kubernetes(placed: Placement) -> str:
    """Settings of the kubelet, whose CPU manager gives whole pods their CPUs: it knows of no ranks."""
    nodes = {node for rank in placed.ranks for node in rank.nodes}
    topology = "single-numa-node" if len(nodes) == 1 else "restricted"
    options = ['full-pcpus-only: "true"']
    if placed.mode == "l3":
        options.append('prefer-align-cpus-by-uncorecache: "true"')
    if placed.mode == "socket":
        options.append('align-by-socket: "true"')
    cpus = len({cpu for rank in placed.ranks for cpu in (*rank.cpus, *rank.other_cpus)})
    lines = [
        f"kubelet: cpuManagerPolicy: static, cpuManagerPolicyOptions: {{{', '.join(options)}}}",
        f"kubelet: topologyManagerPolicy: {topology}, memoryManagerPolicy: Static (with reservedMemory)",
        f'container: requests and limits alike, cpu: "{cpus}" in whole numbers; inside it wellfed pin exec divides',
    ]
    if placed.mode not in DISJOINT:
        lines[0] += " (exclusive CPUs for the pod)"
    return "\n".join(lines)


def _ray(mode: str) -> str:
    return f"os.sched_setaffinity(0, wellfed.pin_plan(mode='{mode}').ranks[0].cpus)"
