"""Collectives by operation, size and group, as torch.distributed does them: NCCL, RCCL, gloo.

One process a rank, started here (`rank.py`). A call takes as long as its last rank needs; where one came late, the rank
that waited least tells the transfer. Bandwidths count as nccl-tests does: `algbw = S / t`, `busbw = algbw x f`
(`predict.collective.bus_factor`). Times are of calls by PyTorch, in place where the operation can be. The headline is
the bandwidth of the best size; the time by size stays with it as `Ceiling.curve`.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from wellfed import catalog
from wellfed.analyze.links import Link, link_within
from wellfed.bench import noise
from wellfed.bench.comm.rank import GroupPlan, Plan, Times
from wellfed.bench.find import Effort, is_wanted
from wellfed.bench.setup import (
    GIB,
    MIB,
    Scale,
    Setup,
    allowed_cpus,
    available_bytes,
    build_ceiling,
    size_text,
)
from wellfed.model import Ceiling, Curve, Machine, WellfedError
from wellfed.predict.collective import LINK_SHARE, bus_factor

OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter",
    "send_recv", "barrier",
)  # fmt: skip
MOVING = OPS[:-1]
NAME = "comm.collectives"
IDS = (
    *(f"{op.replace('_', '-')}{end}.*" for op in MOVING for end in ("", "-latency")),
    "barrier.*",
    "comm-overlap.*",
)
WEIGHT = 3.0
EFFORT: Effort = "full"
ISOLATE = True
MAX_S = 90.0
GLOO_MOST = 4
START_S = 180.0
"""Importing torch in several processes at once, from a cold network disk."""
TWICE_S = 20.0
"""From this budget on all is measured twice, so that a change of the weather shows."""
SMALL = 1 << 10
NVLS = 1.15
"""A switch that reduces moves less than a ring: busbw may exceed the link (8 x H200: 482 on 450 GB/s)."""
_SAID = 4096


def needs(machine: Machine) -> str | None:
    """PyTorch, and another process to talk to."""
    if find_spec("torch") is None:
        return "PyTorch is not installed here"
    if not sys.executable:
        return "this Python does not know its own program, so it can't start another"
    return None


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """All collectives of the GPUs, or of processes on the CPU where fewer than two GPUs are there (or where `--only`
    asks for gloo)."""
    plans = [plan for plan in (gpu_plan(setup, budget_s), cpu_plan(setup, budget_s)) if plan is not None]
    if not plans:
        raise WellfedError(
            "no group of two is possible here", hint="wellfed measure --only all-reduce.gloo.2"
        )
    for plan in plans:
        share = msgspec.structs.replace(
            plan, budget_s=budget_s / len(plans), passes=2 if budget_s >= TWICE_S else 1, started=time.time()
        )
        before = noise.read_counters()
        told = run_plan(share)
        yield from ceilings_of(setup, before, share, told)


# --- what to measure -------------------------------------------------------------------------------------


def gpu_plan(setup: Setup, budget_s: float) -> Plan | None:
    """Groups of 2, 4, 8... and all GPUs of this machine; None with fewer than two."""
    gpus = [gpu for gpu in setup.machine.gpus if not gpu.mig]
    vendor = gpus[0].vendor if gpus else None
    backend = {"nvidia": "nccl", "amd": "rccl"}.get(vendor or "")
    if backend is None or len(gpus) < 2:
        return None
    least = min((gpu.memory_bytes or 0) - (gpu.memory_used_bytes or 0) for gpu in gpus)
    most = min(4 * GIB if budget_s >= 60 else GIB, max(least // 8, MIB))
    groups = _groups(setup, backend, len(gpus), len(gpus), sizes(most))
    if not groups:
        return None
    return Plan(
        backend=backend,
        device="cuda",
        world=max(group.n for group in groups),
        groups=groups,
        budget_s=budget_s,
        dtype="bfloat16",
        overlap=_wants(setup, "comm-overlap." + backend),
    )


def cpu_plan(setup: Setup, budget_s: float) -> Plan | None:
    """gloo among 2 to 4 processes; beside GPUs only when asked for by name."""
    named = any("gloo" in wanted for wanted in setup.only)
    if len([gpu for gpu in setup.machine.gpus if not gpu.mig]) > 1 and not named:
        return None
    cpus = len(allowed_cpus())
    usual = max(2, min(GLOO_MOST, cpus))
    most = min((64 if budget_s >= 10 else 16) * MIB, available_bytes(setup.machine) // (16 * usual))
    groups = _groups(setup, "gloo", usual, max(GLOO_MOST, cpus), sizes(max(most, SMALL)))
    if not groups:
        return None
    return Plan(
        backend="gloo",
        device="cpu",
        world=max(group.n for group in groups),
        groups=groups,
        budget_s=budget_s,
        overlap=_wants(setup, "comm-overlap.gloo"),
    )


def sizes(most: int) -> tuple[int, ...]:
    """1 KiB, 4 KiB, 16 KiB... up to `most`."""
    return tuple(SMALL << 2 * k for k in range(20) if SMALL << 2 * k <= most)


def _groups(
    setup: Setup, backend: str, usual: int, most: int, sweep: tuple[int, ...]
) -> tuple[GroupPlan, ...]:
    """The groups of which something is wanted. Sizes beyond the usual only where `--only` names them."""
    named = {int(end) for wanted in setup.only if (end := wanted.rpartition(".")[2]).isdigit()}
    counts = {n for n in (2, 4, 8, 16, usual) if n <= usual} | {n for n in named if 2 <= n <= most}
    found = []
    for n in sorted(counts):
        ops = tuple(
            op
            for op in OPS
            if (op != "send_recv" or n == 2)
            and any(
                is_wanted(id, NAME, setup.only) for id in (_id(op, backend, n), _id(op, backend, n, True))
            )
        )
        if ops or is_wanted(f"comm-overlap.{backend}.{n}", NAME, setup.only):
            found.append(GroupPlan(n=n, ops=ops, sizes=sweep))
    return tuple(found)


def _wants(setup: Setup, start: str) -> bool:
    return any(
        is_wanted(f"{start}.{n}.{what}", NAME, setup.only) for n in range(2, 65) for what in ("comm", "gemm")
    )


def _id(op: str, backend: str, n: int, latency: bool = False) -> str:
    return f"{op.replace('_', '-')}{'-latency' if latency and op != 'barrier' else ''}.{backend}.{n}"


# --- running it ------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """What the ranks wrote, one list a rank, and why it ended before its time (None: it did not)."""

    ranks: list[list[Times]]
    ended: str | None


def run_plan(plan: Plan, *, start_s: float = START_S) -> Told:
    """The plan by `plan.world` processes of our own, which are gone when this returns."""
    with tempfile.TemporaryDirectory(prefix="wellfed-comm-") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
        log = stack.enter_context(tempfile.TemporaryFile())
        processes = [_start(rank, folder, log) for rank in range(plan.world)]
        try:
            ended = _wait(processes, plan.budget_s * 3 + start_s)
        finally:
            for process in processes:
                _end(process)
        if ended is not None and (said := _last_words(log)):
            ended = f"{ended}: {said}"
        return Told([_read(folder / f"rank-{rank}.jsonl") for rank in range(plan.world)], ended)


def _start(rank: int, folder: Path, log: Any) -> subprocess.Popen[bytes]:
    program = f"from wellfed.bench.comm.rank import main; main({rank}, {str(folder)!r})"
    path = os.pathsep.join(part for part in sys.path if part)
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={**os.environ, "PYTHONPATH": path},
    )


def _wait(processes: Sequence[subprocess.Popen[bytes]], limit_s: float) -> str | None:
    """Until all have ended well. One that fails ends it: the others would wait for it."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        codes = [process.poll() for process in processes]
        bad = [(rank, code) for rank, code in enumerate(codes) if code]
        if bad:
            rank, code = bad[0]
            return (
                f"rank {rank} was ended by signal {-code}"
                if code < 0
                else f"rank {rank} ended with exit code {code}"
            )
        if all(code == 0 for code in codes):
            return None
        time.sleep(0.05)
    return "the ranks did not end and were stopped"


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()


def _last_words(log: Any) -> str:
    log.seek(max(log.seek(0, os.SEEK_END) - _SAID, 0))
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line] or lines
    return errors[-1][:300] if errors else ""


def _read(path: Path) -> list[Times]:
    """What a rank wrote, without a last line that it did not finish."""
    found: list[Times] = []
    with suppress(OSError, msgspec.DecodeError):
        found.extend(msgspec.json.decode(line, type=Times) for line in path.read_bytes().splitlines())
    return found


# --- what it says ----------------------------------------------------------------------------------------


class Swept(NamedTuple):
    """One operation and group: by size, the time of each call over its ranks, the largest and the least, seconds."""

    longest: dict[int, list[float]]
    least: dict[int, list[float]]


def over_ranks(ranks: Sequence[Sequence[Times]], op: str, n: int) -> Swept:
    """The calls that all of the group's ranks timed. Calls are numbered by their order, the same on all ranks."""
    by_rank: list[dict[int, list[float]]] = []
    for told in ranks[:n]:
        own: dict[int, list[float]] = {}
        for one in told:
            if one.op == op and one.n == n and one.times:
                own.setdefault(one.size, []).extend(one.times)
        by_rank.append(own)
    longest, least = {}, {}
    for size in sorted(set.intersection(*(set(own) for own in by_rank)) if len(by_rank) == n else ()):
        calls = list(zip(*(own[size] for own in by_rank), strict=False))
        if calls:
            longest[size], least[size] = [max(c) for c in calls], [min(c) for c in calls]
    return Swept(longest, least)


def curve_of_sweep(swept: Swept, op: str, plan: Plan, n: int, source: str) -> Curve:
    """The curve of at least one size."""
    from wellfed.predict.statistics import percentile

    rows = list(swept.longest.items())
    return Curve(
        op=op,
        ranks=n,
        sizes=tuple(float(size) for size, _ in rows),
        seconds=tuple(percentile(times, 50) for _, times in rows),
        best=tuple(min(times) for _, times in rows),
        p10=tuple(percentile(times, 10) for _, times in rows),
        p90=tuple(percentile(times, 90) for _, times in rows),
        transfer=tuple(percentile(swept.least[size], 50) for size, _ in rows),
        counts=tuple(len(times) for _, times in rows),
        backend=plan.backend,
        dtype=plan.dtype,
        source=source,
    )


def ceilings_of(setup: Setup, before: noise.Counters, plan: Plan, told: Told) -> Iterator[Ceiling]:
    """The ceilings that the ranks' times make. Raises WellfedError when there are none and something went wrong."""
    refused = {
        _id(one.op, plan.backend, one.n): "the data were wrong" if one.wrong else one.said or "refused"
        for one in (told.ranks[0] if told.ranks else [])
        if one.said is not None or one.wrong
    }
    version = next((one.version for rank in told.ranks for one in rank), "")
    facts = {
        "software": version,
        "not_measured": refused,
        "nccl_variables": sorted(name for name in os.environ if name.startswith("NCCL_")),
    }
    link = _link(setup.machine, plan)
    found = 0
    for group in plan.groups:
        for op in group.ops:
            swept = over_ranks(told.ranks, op, group.n)
            if swept.longest:
                found += 1
                yield from _ceilings(setup, before, plan, (op, group.n), swept, link, facts, told.ended)
    for ceiling in _overlap_ceilings(setup, before, plan, told, facts):
        found += 1
        yield ceiling
    if told.ended is not None:
        raise WellfedError(told.ended, hint="NCCL_DEBUG=INFO wellfed measure --only all-reduce.*")
    if not found:
        raise WellfedError("; ".join(f"{id}: {why}" for id, why in refused.items()) or "no time was taken")


def _ceilings(
    setup: Setup,
    before: noise.Counters,
    plan: Plan,
    which: tuple[str, int],
    swept: Swept,
    link: Link | None,
    facts: dict[str, Any],
    ended: str | None,
) -> Iterator[Ceiling]:
    op, n = which
    what = f"{op} among {n} {'GPUs' if plan.device == 'cuda' else 'processes'}, {plan.backend}"
    curve = curve_of_sweep(swept, op, plan, n, f"measured here, {plan.backend}")
    common: dict[str, Any] = {
        "method": f"torch.distributed, {'events behind a sleeping kernel' if plan.device == 'cuda' else 'clock after a barrier'}, longest rank",
        "tier": "torch",
        "dtype": None if op == "barrier" else plan.dtype,
        "threads": n,
        "environment": facts,
        "why": _crowded(plan, n) or ended,
    }
    smallest = min(swept.longest)
    yield build_ceiling(
        setup, before, [t * 1e6 for t in swept.longest[smallest]],
        Scale(unit="us", higher_is_better=False, max_cv=None, band=(1.0, 1e5), band_source="NVLink to an overlay network"),
        id=_id(op, plan.backend, n, True), title=f"{what}, {'' if op == 'barrier' else size_text(smallest)}".rstrip(", "),
        size=None if op == "barrier" else size_text(smallest), curve=None if op != "barrier" else curve, **common,
    )  # fmt: skip
    factor = bus_factor(op, n)
    if op == "barrier" or factor is None:
        return
    best = max(swept.longest, key=lambda size: size / curve.seconds[curve.sizes.index(float(size))])
    peak = None if link is None else link.bytes_s / 1e9
    rates = [best * factor / t / 1e9 for t in swept.longest[best]]
    cut = (
        "; the budget ended before the largest sizes"
        if best == max(swept.longest) < max(plan.groups[0].sizes)
        else ""
    )
    yield build_ceiling(
        setup, before, rates,
        Scale(unit="GB/s", band=_band(op, link), band_source="catalogue: a sound ring, and what a reducing switch may add" if link else "loopback of any machine"),
        id=_id(op, plan.backend, n), title=f"{what}, busbw", size=size_text(best), curve=curve,
        peak=peak, peak_source=None if link is None else link.source, ratio=None if peak is None else round(max(rates) / peak, 4),
        **{**common, "method": common["method"] + ", busbw as nccl-tests counts" + cut},
    )  # fmt: skip


def _crowded(plan: Plan, n: int) -> str | None:
    cpus = len(allowed_cpus())
    if plan.device == "cpu" and n > cpus:
        return f"{n} processes share {cpus} CPUs: slower than with one each"
    return None


def _link(machine: Machine, plan: Plan) -> Link | None:
    """The GPUs' link, where the catalogue knows it and all are alike."""
    names = {gpu.name for gpu in machine.gpus if not gpu.mig}
    spec = catalog.find_gpu(name=next(iter(names))) if plan.device == "cuda" and len(names) == 1 else None
    found = link_within(spec, plan.world) if spec is not None else None
    return found if isinstance(found, Link) else None


def _band(op: str, link: Link | None) -> tuple[float, float] | None:
    if link is None:
        return (0.005, 200.0)
    rate = link.bytes_s / 1e9
    return (0.8 * LINK_SHARE[link.kind] * rate, (NVLS if op == "all_reduce" else 1.02) * rate)


def _overlap_ceilings(
    setup: Setup, before: noise.Counters, plan: Plan, told: Told, facts: dict[str, Any]
) -> Iterator[Ceiling]:
    """How many times as long each takes when both run, the median over the rounds of the slowest rank's ratio."""
    for what in ("comm", "gemm"):
        alone = over_ranks(told.ranks, f"overlap-{what}", plan.world).longest
        beside = over_ranks(told.ranks, f"overlap-{what}_beside", plan.world).longest
        for size in set(alone) & set(beside):
            ratios = [b / a for a, b in zip(alone[size], beside[size], strict=False) if a > 0]
            if not ratios:
                continue
            yield build_ceiling(
                setup, before, ratios, Scale(unit="x", higher_is_better=False, max_cv=0.5),
                id=f"comm-overlap.{plan.backend}.{plan.world}.{what}",
                title=f"{'all_reduce' if what == 'comm' else 'GEMM'} beside {'a GEMM' if what == 'comm' else 'an all_reduce'}, {plan.world} ranks, {plan.backend}",
                method="time beside the other over time alone, in turn", tier="torch", size=size_text(size),
                dtype=plan.dtype, threads=plan.world, environment=facts, why=_crowded(plan, plan.world),
            )  # fmt: skip
