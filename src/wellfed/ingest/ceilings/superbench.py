"""SuperBench: `results-summary.jsonl`, one object a node, `benchmark[:note]/metric[:rank]` -> number.

The samples of a ceiling are those of nodes and ranks. How many ranks a collective had is not told: busbw over algbw says.
Format: microsoft/superbenchmark, docs and tests/data.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from wellfed.ingest.ceilings.common import ceiling, curve_ceilings, finish, number, read_text
from wellfed.model import Ceiling
from wellfed.predict.collective import bus_factor, operation
from wellfed.predict.statistics import percentile

_NCCL = re.compile(r"^(nccl|rccl)-bw(?::[^/]*)?/([a-z]+?)_(\d+)_(time|algbw|busbw)(?::\d+)?$")


class _Metric(NamedTuple):
    id: str
    title: str
    unit: str
    scale: float = 1.0
    rises: bool = True


METRICS: tuple[tuple[re.Pattern[str], _Metric], ...] = tuple(
    (re.compile(rf"^{pattern}(?::\d+)?$"), metric)
    for pattern, metric in (
        (r"kernel-launch(?::[^/]*)?/event_(?:time|overhead)", _Metric("launch.event", "kernel launch, by events", "us", 1e3, False)),
        (r"kernel-launch(?::[^/]*)?/wall_(?:time|overhead)", _Metric("launch.sync", "kernel launch and sync, by the clock", "us", 1e3, False)),
        (r"mem-bw(?::[^/]*)?/(?:h2d|H2D)(?:_Mem)?_(?:bw|BW).*", _Metric("h2d.pinned", "host to GPU, pinned", "GB/s")),
        (r"mem-bw(?::[^/]*)?/(?:d2h|D2H)(?:_Mem)?_(?:bw|BW).*", _Metric("d2h.pinned", "GPU to host, pinned", "GB/s")),
        (r"gemm-flops(?::[^/]*)?/(?:fp16_tc|FP16_TC)", _Metric("gemm.fp16", "GEMM, fp16, tensor cores (CUTLASS)", "TFLOP/s", 1e-3)),
        (r"gemm-flops(?::[^/]*)?/(?:bf16_tc|BF16_TC)", _Metric("gemm.bf16", "GEMM, bf16, tensor cores (CUTLASS)", "TFLOP/s", 1e-3)),
        (r"gemm-flops(?::[^/]*)?/(?:tf32_tc|TF32_TC)", _Metric("gemm.tf32", "GEMM, tf32, tensor cores (CUTLASS)", "TFLOP/s", 1e-3)),
        (r"gemm-flops(?::[^/]*)?/(?:fp64_tc|FP64_TC)", _Metric("gemm.fp64", "GEMM, fp64, tensor cores (CUTLASS)", "TFLOP/s", 1e-3)),
        (r"ib-loopback(?::[^/]*)?/(?:ib_write_bw_|IB_write_)8388608(?:_Avg)?(?:_.*)?", _Metric("rdma-write.loopback", "RDMA write, loopback", "GB/s", 2.0**20 / 1e9)),
    )
)  # fmt: skip


def matches(head: str, name: str) -> bool:
    first = head.lstrip()[:1] == "{"
    return first and '"node"' in head and re.search(r'"[a-z][a-z0-9_:.-]*/[^"]+" *:', head) is not None


def read(path: Path) -> list[Ceiling]:
    """What is known of a benchmark's metrics; the others are counted as left out."""
    text, damage = read_text(path)
    samples: dict[_Metric, list[float]] = {}
    nccl: dict[tuple[str, str], dict[int, dict[str, list[float]]]] = {}
    left_out = nodes = 0
    for line in text.splitlines():
        if not line.strip():
            continue
        values = _object(line)
        if values is None:
            left_out += 1
            continue
        nodes += 1
        for name, value in values.items():
            figure = number(value)
            if name == "node" or "return_code" in name or figure is None:
                continue
            match = _NCCL.match(name)
            metric = next((m for pattern, m in METRICS if pattern.match(name)), None)
            if match:
                by_size = nccl.setdefault((match[1], match[2]), {})
                by_size.setdefault(int(match[3]), {}).setdefault(match[4], []).append(figure)
            elif metric and figure > 0:
                samples.setdefault(metric, []).append(figure * metric.scale)
            else:
                left_out += 1
    found = [
        ceiling(
            metric.id, metric.title, rows, tool="SuperBench", method="one figure a rank and node", unit=metric.unit, path=path,
            higher_is_better=metric.rises, environment={"nodes": nodes},
        )
        for metric, rows in samples.items()
    ]  # fmt: skip
    for (backend, word), by_size in nccl.items():
        made, lost = _collective(backend, word, by_size, path, nodes)
        found += made
        left_out += lost
    return finish(found, left_out, damage)


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _collective(
    backend: str, word: str, by_size: dict[int, dict[str, list[float]]], path: Path, nodes: int
) -> tuple[list[Ceiling], int]:
    op = operation(word)
    ratios = sorted(
        percentile(row["busbw"], 50) / percentile(row["algbw"], 50)
        for row in by_size.values()
        if row.get("busbw") and row.get("algbw") and percentile(row["algbw"], 50) > 1
    )
    ranks = _ranks(op, ratios[len(ratios) // 2]) if ratios else None
    figures = sum(len(values) for row in by_size.values() for values in row.values())
    if op is None or ranks is None:
        return [], figures
    rows = sorted(
        (float(size), percentile(row["time"], 50) * 1e-6)
        for size, row in by_size.items()
        if row.get("time") and size
    )
    rates = {
        float(size): percentile(row["busbw"], 50) * 1e9 for size, row in by_size.items() if row.get("busbw")
    }
    return curve_ceilings(
        op, backend, rows, ranks, factor=bus_factor(op, ranks), rates=rates, tool="SuperBench", path=path,
        method=f"median of {nodes} node{'s' if nodes != 1 else ''}", environment={"nodes": nodes},
    ), 0  # fmt: skip


def _ranks(op: str | None, ratio: float) -> int | None:
    """The number of ranks whose bus factor is the ratio; None where it says nothing."""
    counts = [n for n in range(2, 1025) if (f := bus_factor(op, n)) and f != 1 and abs(f / ratio - 1) < 0.01]
    usual = [n for n in counts if n in (2, 4, 8, 16, 32, 64)]
    return next(iter(usual or counts), None)
