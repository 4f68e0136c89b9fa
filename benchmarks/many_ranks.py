"""Many ranks from one recorded trace: each with its own clock, one of them slow, in files of any size.

    python benchmarks/many_ranks.py TRACE.json.gz FOLDER --ranks 64 --bytes 5e9 --slow 17 --factor 1.2

The collectives of TRACE become those of all ranks. Between two of them each rank works as long as the recorded
one did, give or take `--jitter`; the slow rank takes `--factor` times as long. A collective ends after the last
of its group has come, and its kernel on the others is that much longer. Everything else in the trace moves and
stretches with it. Clocks differ by up to `--offset-ms` and drift by up to `--drift-ppm`. What was planted is
printed as JSON, so that a reader can be checked against it.

2 December 2026, the line above with `nccl_data.json.gz` of the HolisticTraceAnalysis tests: 64 files, 4.83 GB, made in
80 s; `wellfed trace FOLDER --format json` on 2 shared cores, no cache: 191 to 286 s, 225 to 249 CPU seconds, at most
378 MB (PSS of all processes, sampled every 0.2 s), rank 17 named, its cure worth 1.16 times where the set without it
takes 1/1.175 of the time.
"""

import argparse
import gzip
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

COMM = re.compile(r"nccl|rccl", re.IGNORECASE)
NAMES = (
    ("AllReduce", "allreduce"),
    ("AllGather", "_allgather_base"),
    ("ReduceScatter", "_reduce_scatter_base"),
)
STEP = re.compile(r"ProfilerStep#(\d+)")
BASE_NS = 1_700_000_000_000_000_000


class Plan(NamedTuple):
    """What to make. `tensor` is the size of the inner groups (0: all ranks in one group): of four collectives
    three are of the inner groups, one of the groups across them. `numbered` writes `Seq`; `kept` is the share
    of collectives that each file holds."""

    ranks: int = 8
    slow: int | None = None
    factor: float = 1.2
    jitter: float = 0.005
    tensor: int = 0
    offset_ms: float = 5.0
    drift_ppm: float = 5.0
    numbered: bool = True
    kept: float = 1.0
    seed: int = 1


class Base(NamedTuple):
    """One recorded rank: events without times, their times in ns, and which are the collectives."""

    events: list[dict[str, Any]]
    start: np.ndarray
    end: np.ndarray
    collectives: np.ndarray


class Truth(NamedTuple):
    """What was planted: starts and ends of each collective on the true clock [collective, rank] in ns, and
    each rank's clock: local = true x (1 + drift) + offset."""

    start: np.ndarray
    end: np.ndarray
    offset_ns: np.ndarray
    drift: np.ndarray


def read(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    found = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events: list[dict[str, Any]] = found["traceEvents"] if isinstance(found, dict) else found
    return events


def base_of(events: list[dict[str, Any]], repeats: int = 1) -> Base:
    """The events of `repeats` copies one after the other; ids and step numbers go on counting. Collectives
    that overlap an earlier one stay ordinary kernels."""
    timed = [
        e for e in events if isinstance(e.get("ts"), int | float) and e.get("ph") in ("X", "s", "f", "i")
    ]
    start = np.array([round(e["ts"] * 1000) for e in timed], np.int64)
    end = start + np.array([round(max(e.get("dur") or 0, 0) * 1000) for e in timed], np.int64)
    start, end = start - start.min(), end - start.min()
    span = int(end.max()) + 1_000_000
    steps = len({e["name"] for e in timed if STEP.fullmatch(str(e.get("name")))})
    ids = 1 + max((int(e["args"]["correlation"]) for e in timed if _corr(e)), default=0)
    copies: list[dict[str, Any]] = []
    for k in range(repeats):
        copies += [_renumbered(e, k * ids, k * steps) for e in timed]
    start = np.concatenate([start + k * span for k in range(repeats)])
    end = np.concatenate([end + k * span for k in range(repeats)])
    comm = np.flatnonzero(
        [e.get("cat", "").lower() == "kernel" and bool(COMM.search(str(e["name"]))) for e in copies]
    )
    comm = comm[np.argsort(start[comm], kind="stable")]
    alone, until = [], -1
    for row in comm.tolist():
        if start[row] >= until:
            alone.append(row)
            until = int(end[row])
    return Base(copies, start, end, np.array(alone, np.int64))


def _corr(event: dict[str, Any]) -> bool:
    return isinstance(event.get("args"), dict) and isinstance(event["args"].get("correlation"), int)


def _renumbered(event: dict[str, Any], ids: int, steps: int) -> dict[str, Any]:
    if not ids and not steps:
        return event
    found = dict(event)
    if _corr(event):
        found["args"] = {**event["args"], "correlation": event["args"]["correlation"] + ids}
    if "id" in event and isinstance(event["id"], int):
        found["id"] = event["id"] + ids
    step = STEP.fullmatch(str(event.get("name")))
    if step:
        found["name"] = f"ProfilerStep#{int(step.group(1)) + steps}"
    return found


def groups_of(number: int, plan: Plan) -> list[list[int]]:
    """Who takes part in the collective with this number, group by group."""
    everyone = list(range(plan.ranks))
    if not plan.tensor:
        return [everyone]
    inner = plan.tensor
    if number % 4 < 3:
        return [everyone[k : k + inner] for k in range(0, plan.ranks, inner)]
    return [everyone[k::inner] for k in range(inner)]


def run(base: Base, plan: Plan) -> Truth:
    """When each collective starts and ends on each rank. Ends differ by up to 300 ns, as kernels' do."""
    rng = np.random.default_rng(plan.seed)
    begin, end = base.start[base.collectives], base.end[base.collectives]
    own = np.diff(np.concatenate([[0], np.stack([begin, end], axis=1).ravel()]))[::2]
    speed = np.ones(plan.ranks)
    if plan.slow is not None:
        speed[plan.slow] = plan.factor
    starts, ends = (np.zeros((len(begin), plan.ranks), np.int64) for _ in range(2))
    now = np.zeros(plan.ranks, np.int64)
    for k in range(len(begin)):
        work = own[k] * speed * (1.0 + plan.jitter * rng.standard_normal(plan.ranks))
        come = now + np.maximum(np.rint(work), 0).astype(np.int64)
        for members in groups_of(k, plan):
            done = int(come[members].max()) + int(end[k] - begin[k])
            ends[k, members] = done + rng.integers(0, 300, len(members))
        starts[k], now = come, ends[k]
    offset = np.rint(rng.uniform(-1, 1, plan.ranks) * plan.offset_ms * 1e6).astype(np.int64)
    drift = rng.uniform(-1, 1, plan.ranks) * plan.drift_ppm * 1e-6
    return Truth(starts, ends, offset, drift)


def files(base: Base, plan: Plan, truth: Truth) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Each rank's file, in pieces."""
    shared = [_head(e) for e in base.events]
    for rank in range(plan.ranks):
        yield rank, _file(base, plan, truth, rank, shared)


def _file(base: Base, plan: Plan, truth: Truth, rank: int, shared: list[bytes]) -> Iterator[bytes]:
    dice = random.Random(plan.seed * 100_003 + rank)
    number = {int(row): k for k, row in enumerate(base.collectives)}
    knots = np.stack([base.start[base.collectives], base.end[base.collectives]], axis=1).ravel()
    true = np.stack([truth.start[:, rank], truth.end[:, rank]], axis=1).ravel()
    last = int(base.end.max()) + 1
    knots, true = np.array([0, *knots, last]), np.array([0, *true, last + true[-1] - knots[-1]])
    lead = max(-int(truth.offset_ns.min()), 0) + 1_000_000

    def local(times: np.ndarray) -> list[int]:
        at = np.interp(times.astype(np.float64), knots, true)
        return (
            np.rint(at * (1.0 + truth.drift[rank])).astype(np.int64) + truth.offset_ns[rank] + lead
        ).tolist()

    starts, ends = local(base.start), local(base.end)
    head = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": plan.ranks},
        "baseTimeNanoseconds": BASE_NS - lead,
    }
    yield json.dumps(head)[:-1].encode() + b', "traceEvents": [\n'
    piece: list[bytes] = []
    for row, (event, begin, end) in enumerate(zip(base.events, starts, ends, strict=True)):
        k = number.get(row)
        text = shared[row]
        if k is not None:
            if dice.random() >= plan.kept:
                continue
            text = _head({**event, "args": {**event.get("args", {}), **_args(event, k, plan, rank, truth)}})
        time = f', "ts": {begin // 1000}.{begin % 1000:03d}'
        if event["ph"] == "X":
            time += f', "dur": {(end - begin) // 1000}.{(end - begin) % 1000:03d}'
        piece.append(text + time.encode() + b"}")
        if len(piece) == 20_000:
            yield b",\n".join(piece) + b",\n"
            piece = []
    piece.append(b'{"ph": "i", "s": "g", "name": "end", "ts": 0}')
    yield b",\n".join(piece) + b"\n]}\n"


def _head(event: dict[str, Any]) -> bytes:
    rest = {k: v for k, v in event.items() if k not in ("ph", "ts", "dur")}
    return json.dumps({"ph": event["ph"], **rest})[:-1].encode()


def _args(event: dict[str, Any], number: int, plan: Plan, rank: int, truth: Truth) -> dict[str, Any]:
    members = next(g for g in groups_of(number, plan) if rank in g)
    kind = "all" if not plan.tensor else "inner" if number % 4 < 3 else "outer"
    before = number if not plan.tensor else number // 4 * (3 if kind == "inner" else 1)
    if kind == "inner":
        before += number % 4
    size = 1024 * (1 + number % 50)
    name = next((n for token, n in NAMES if token in str(event["name"])), "allreduce")
    told: dict[str, Any] = {
        "Collective name": name,
        "In msg nelems": size * (len(members) if name == "_reduce_scatter_base" else 1),
        "Out msg nelems": size * (len(members) if name == "_allgather_base" else 1),
        "Group size": len(members),
        "dtype": "Float",
        "Process Group Name": f"{kind}{members[0]}",
        "Process Group Ranks": _list(members),
    }
    if plan.numbered:
        told["Seq"] = before + 1
    return told


def _list(ranks: list[int]) -> str:
    """As PyTorch writes it: more than 30 are cut."""
    if len(ranks) > 30:
        return f"[{', '.join(map(str, ranks[:29]))}, ..., {ranks[-1]}]"
    return str(ranks)


def main() -> None:
    ask = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    ask.add_argument("trace", type=Path)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--ranks", type=int, default=8)
    ask.add_argument("--bytes", type=float, help="about this much in all, by repeating the trace")
    ask.add_argument("--slow", type=int)
    ask.add_argument("--factor", type=float, default=1.2)
    ask.add_argument("--jitter", type=float, default=0.005)
    ask.add_argument("--tensor", type=int, default=0)
    ask.add_argument("--offset-ms", type=float, default=5.0)
    ask.add_argument("--drift-ppm", type=float, default=5.0)
    ask.add_argument("--unnumbered", action="store_true")
    ask.add_argument("--kept", type=float, default=1.0)
    ask.add_argument("--seed", type=int, default=1)
    given = ask.parse_args()
    plan = Plan(
        ranks=given.ranks,
        slow=given.slow,
        factor=given.factor,
        jitter=given.jitter,
        tensor=given.tensor,
        offset_ms=given.offset_ms,
        drift_ppm=given.drift_ppm,
        numbered=not given.unnumbered,
        kept=given.kept,
        seed=given.seed,
    )
    events = read(given.trace)
    repeats = 1
    if given.bytes:
        one = base_of(events)
        size = sum(map(len, _file(one, plan, run(one, plan), 0, [_head(e) for e in one.events])))
        repeats = max(1, round(given.bytes / (size * plan.ranks)))
    base = base_of(events, repeats)
    truth = run(base, plan)
    given.folder.mkdir(parents=True, exist_ok=True)
    total = 0
    for rank, pieces in files(base, plan, truth):
        with (given.folder / f"rank-{rank}.json").open("wb") as file:
            total += sum(file.write(piece) for piece in pieces)
    wait = truth.start.max(axis=1, keepdims=True) - truth.start
    json.dump(
        {
            **plan._asdict(),
            "repeats": repeats,
            "bytes": total,
            "collectives": len(base.collectives),
            "offset_ns": truth.offset_ns.tolist(),
            "drift_ppm": (truth.drift * 1e6).tolist(),
            "wait_ns": None if plan.tensor else wait.sum(axis=0).tolist(),
        },
        sys.stdout,
        indent=1,
    )
    print()


if __name__ == "__main__":
    main()
