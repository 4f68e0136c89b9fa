"""Reading what a run has left: ring files, samples and the manifest, whole or not.

A ring is read as it stands: torn records are known by their CRC, a wrapped ring has its last steps only, and totals come from its
header."""

import binascii
import json
import math
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from wellfed.live.run.inside import ring as form
from wellfed.model import WellfedError
from wellfed.model.run import HookCost, RankRun, RunReport, Shift, SlowStep, Spread, SyncSite
from wellfed.predict.ab import signed_rank_interval
from wellfed.predict.statistics import percentile

MAX_RINGS, MAX_SAMPLES_BYTES = 4096, 256 << 20
SLOW = 1.5
SHOWN_SLOW = 5
_BLOCK = 20
_RARE = 20
"""An optimizer that steps less than a twentieth as often as the busiest is no clock."""
_MAX_FILE = form.RECORDS_AT + (1 << 24) * form.SIZE


class Record(NamedTuple):
    seq: int
    end_ns: int
    wait_ns: int
    gc_ns: int
    other_ns: int
    own_ns: int
    kind: int
    flags: int
    ident: int
    batches: int
    number: int


class RingFile(NamedTuple):
    """`records` by their number; `torn` of them were damaged."""

    head: tuple[Any, ...]
    counters: dict[str, int]
    texts: dict[str, str]
    sites: tuple[SyncSite, ...]
    records: tuple[Record, ...]
    torn: int


class Step(NamedTuple):
    """From one tick of the clock to the next. `gpu` is (busy, gap or None) in ns."""

    number: int
    end_ns: int
    ns: int
    wait_ns: int
    gc_ns: int
    sync_ns: int
    own_ns: int
    flags: int
    gpu: tuple[int, int | None] | None
    seq: int


def read_run(folder: Path) -> RunReport:
    """All that is in a run's folder. Raises WellfedError when it is none."""
    if not folder.is_dir():
        raise WellfedError(f"{folder} is no folder of a run", hint="wellfed run --dir FOLDER -- CMD")
    paths = sorted(folder.glob("*.ring"))[:MAX_RINGS]
    manifest = _manifest(folder)
    if not paths and not manifest:
        raise WellfedError(f"there is nothing of a run in {folder}", hint="wellfed run --dir FOLDER -- CMD")
    samples = _samples(folder)
    found = [ring for path in paths if (ring := read_ring(path)) is not None]
    ranks = [rank_of(ring, samples) for ring in found]
    kept = sorted(
        (rank for rank in ranks if rank.steps or rank.trace),
        key=lambda r: (r.rank is None, r.rank or 0, r.pid),
    )
    processes, failures = _log(folder)
    return RunReport(
        command=tuple(str(word) for word in manifest.get("command", ())),
        started=manifest.get("started"),
        seconds=manifest.get("seconds"),
        exit=manifest.get("exit"),
        ranks=tuple(kept),
        samples=sum_up(samples),
        processes=processes,
        unread=len(paths) - len(found),
        failures=failures,
    )


# -- a ring ------------------------------------------------------------------------------------------------


def read_ring(path: Path) -> RingFile | None:
    """None for what is no ring of ours, or too short to say anything."""
    try:
        if path.stat().st_size > _MAX_FILE:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) < form.RECORDS_AT or not data.startswith(form.MAGIC):
        return None
    head = form.FIXED.unpack_from(data)
    if head[1] != form.VERSION or head[4] != form.SIZE or head[2] != form.RECORDS_AT:
        return None
    names = form.COUNTERS
    counters = dict(zip(names, struct.unpack_from(f"<{len(names)}Q", data, form.COUNTERS_AT), strict=True))
    records, torn = _records(data, min(head[3], (len(data) - form.RECORDS_AT) // form.SIZE))
    return RingFile(head, counters, dict(_texts(data)), tuple(_sites(data)), records, torn)


def _records(data: bytes, capacity: int) -> tuple[tuple[Record, ...], int]:
    found, torn = [], 0
    for at in range(form.RECORDS_AT, form.RECORDS_AT + capacity * form.SIZE, form.SIZE):
        *values, crc = form.RECORD.unpack_from(data, at)
        if not values[0]:
            if any(values):
                torn += 1
            continue
        if binascii.crc32(data[at : at + form.SIZE - 4]) != crc:
            torn += 1
            continue
        found.append(Record(*values))
    found.sort()
    return tuple(found), torn


def _texts(data: bytes) -> Iterator[tuple[str, str]]:
    for name, _ in form.TEXTS:
        at, size = form.text_place(name)
        text = data[at : at + size].split(b"\0", 1)[0].decode(errors="replace")
        if text:
            yield name, text


def _sites(data: bytes) -> Iterator[SyncSite]:
    for index in range(form.SITES):
        count, ns, text = form.SITE.unpack_from(data, form.SITES_AT + index * form.SITE.size)
        if count:
            line = text.split(b"\0", 1)[0].decode(errors="replace")
            yield SyncSite(line=line, count=count, ms=round(ns / 1e6, 3))


# -- steps -------------------------------------------------------------------------------------------------


def clock_of(ring: RingFile) -> tuple[int | None, int, str]:
    """Kind and ident of the records that end a step, and what that is in words; None without any."""
    ticks = Counter(
        (r.kind, r.ident)
        for r in ring.records
        if r.kind in (form.STEP, form.FUNCTION, form.BATCH, form.PATTERN)
    )
    of_kind: dict[int, dict[int, int]] = defaultdict(dict)
    for (kind, ident), count in ticks.items():
        of_kind[kind][ident] = count
    if form.FUNCTION in of_kind:
        return form.FUNCTION, 0, f"calls of {ring.texts.get('function', 'a function')}"
    if form.STEP in of_kind:
        steps = of_kind[form.STEP]
        often = [ident for ident, count in steps.items() if count * _RARE >= max(steps.values())]
        ident = min(often, key=lambda one: (steps[one], one))
        names = ring.texts.get("optimizers", "").split(", ")
        name = names[ident] if ident < len(names) and names[ident] else "the optimizer"
        more = f", the rarest of {len(steps)} optimizers" if len(steps) > 1 else ""
        return form.STEP, ident, f"steps of {name}{more}"
    if form.BATCH in of_kind:
        return form.BATCH, 0, "batches of the loader (no optimizer stepped)"
    if form.PATTERN in of_kind:
        return form.PATTERN, 0, "lines of the output"
    return None, 0, "nothing that is a step was seen"


def steps_of(ring: RingFile, kind: int, ident: int) -> list[Step]:
    """From tick to tick; what other records between say is the step's."""
    gpu = {r.number: (r.gc_ns, r.wait_ns if r.ident else None) for r in ring.records if r.kind == form.GPU}
    found: list[Step] = []
    last: Record | None = None
    wait = gc = sync = own = flags = 0
    for record in ring.records:
        if record.kind in (form.STEP, form.FUNCTION, form.BATCH):
            wait, gc, flags = wait + record.wait_ns, gc + record.gc_ns, flags | record.flags
            own += record.own_ns
            sync += 0 if record.kind == form.FUNCTION else record.other_ns
        if record.kind != kind or record.ident != ident:
            continue
        if last is not None and record.end_ns > last.end_ns:
            length = record.end_ns - last.end_ns
            busy = gpu.get(record.seq & 0xFFFFFFFF)
            found.append(
                Step(len(found) + 1, record.end_ns, length, wait, gc, sync, own, flags, busy, record.seq)
            )
        last, wait, gc, sync, own, flags = record, 0, 0, 0, 0, 0
    return found


def settled(steps: Sequence[Step]) -> int:
    """How many steps the warm-up took: until three in a row are within 1.5 times the median of the second half; half of them at
    most, and the first one always."""
    if len(steps) < 4:
        return min(1, max(len(steps) - 1, 0))
    usual = median(step.ns for step in steps[len(steps) // 2 :])
    for at in range(1, len(steps) // 2):
        if all(step.ns <= SLOW * usual for step in steps[at : at + 3]):
            return at
    return len(steps) // 2


def rank_of(ring: RingFile, samples: Sequence[dict[str, Any]]) -> RankRun:
    """What one ring says."""
    kind, ident, words = clock_of(ring)
    steps = steps_of(ring, kind, ident) if kind is not None else []
    warmup = settled(steps)
    kept = [s for s in steps[warmup:] if not s.flags & form.TRACED]
    hooked = [s for s in kept if not s.flags & form.UNHOOKED]
    gpus = [s.gpu for s in kept if s.gpu is not None]
    gaps = [gap for _, gap in gpus if gap is not None]
    synced = [s for s in kept if s.flags & form.SYNCED]
    memory = [r for r in ring.records if r.kind == form.MEMORY]
    usual = median(s.ns for s in kept) if kept else 0
    slow = [s for s in kept if s.ns >= SLOW * usual]
    begin = ring.head[7]
    counted = {
        form.STEP: "optimizer_steps", form.FUNCTION: "functions", form.BATCH: "batches", form.PATTERN: "events",
    }  # fmt: skip
    total = max(ring.counters[counted[kind]], len(steps) + 1) if kind is not None else 0
    if kind == form.STEP and ring.counters["optimizers"] > 1:
        total = len(steps) + 1
    texts = ring.texts
    # a thread that fetches ahead waits in place of the one that steps, which then waits for that thread: not seen
    elsewhere = ring.counters["wait_elsewhere_ns"]
    fetched = elsewhere > ring.counters["wait_ns"]
    return RankRun(
        rank=_told(ring.head[10]), local_rank=_told(ring.head[11]), pid=ring.head[5], program=texts.get("program", "?"),
        python=texts.get("python", "?"), torch=texts.get("torch"), device=texts.get("device"), loop=texts.get("loop") or None, clock=words,
        steps=total, warmup=warmup, step_ms=_spread([s.ns for s in kept]), wait_ms=None if fetched or not ring.counters["batches"] else _mean(s.wait_ns for s in hooked),
        gc_ms=_mean(s.gc_ns for s in hooked), sync_ms=_mean(s.sync_ns for s in synced), gpu_ms=_mean(busy for busy, _ in gpus),
        gpu_gap_ms=_mean(gaps), batches=ring.counters["batches"], skipped_steps=ring.counters["skipped_steps"],
        alloc_retries=max((r.other_ns for r in memory), default=0), peak_gpu_bytes=max((r.own_ns for r in memory), default=0) or None,
        syncs=tuple(sorted(ring.sites, key=lambda site: -site.ms)[:8]),
        slow=tuple(_slow(s, usual, begin, samples, hooked) for s in sorted(slow, key=lambda s: -s.ns)[:SHOWN_SLOW]), slow_n=len(slow),
        shift=shift_of(kept), hooks=hook_cost(kept), ended=ring.head[9] != 0, ended_by=texts.get("ended_by"), trace=texts.get("trace"),
        lost=_lost(ring, total, len(steps)), wait_elsewhere_ms=elsewhere / 1e6 / len(hooked) if fetched and hooked else None,
    )  # fmt: skip


def hook_cost(steps: Sequence[Step]) -> HookCost:
    """Medians of neighbouring blocks with and without hooks; SYNCED steps, which time the program's own calls too, left out."""
    blocks: list[tuple[bool, list[int]]] = []
    own: list[int] = []
    for step in steps:
        if step.flags & form.SYNCED:
            continue
        hooked = not step.flags & form.UNHOOKED
        if hooked and blocks and blocks[-1][0]:
            own.append(step.own_ns)  # of the step before, which had hooks too
        if not blocks or blocks[-1][0] != hooked:
            blocks.append((hooked, []))
        blocks[-1][1].append(step.ns)
    whole = [(hooked, median(ns)) for hooked, ns in blocks if len(ns) >= _BLOCK // 2]
    differences = [(a[1] - b[1] if a[0] else b[1] - a[1]) / 1000 for a, b in pairwise(whole) if a[0] != b[0]]
    own_us = round(median(own) / 1000, 2) if own else None
    if len(differences) < 6:
        why = "too few blocks of 20 steps with and without hooks"
        return HookCost(pairs=len(differences), why=why, own_us=own_us)
    middle, low, high = signed_rank_interval(differences, 0.95)
    return HookCost(
        us=round(middle, 2),
        low_us=_rounded(low),
        high_us=_rounded(high),
        pairs=len(differences),
        own_us=own_us,
    )


def shift_of(steps: Sequence[Step]) -> Shift | None:
    """Where the step time changed for good (Pettitt, Applied Statistics 28, 1979), if it did."""
    n = len(steps)
    if n < 40:
        return None
    order = sorted(range(n), key=lambda i: steps[i].ns)
    ranks = [0] * n
    for rank, index in enumerate(order, 1):
        ranks[index] = rank
    total, best, at = 0, 0, 0
    for k in range(n - 1):
        total += 2 * ranks[k] - (n + 1)
        if abs(total) > best:
            best, at = abs(total), k + 1
    p = 2 * math.exp(-6 * best**2 / (n**3 + n**2))
    if p >= 0.001 or min(at, n - at) < 10:
        return None
    before, after = median(s.ns for s in steps[:at]), median(s.ns for s in steps[at:])
    if abs(after / before - 1) < 0.05:
        return None
    return Shift(number=steps[at].number, before_ms=round(before / 1e6, 4), after_ms=round(after / 1e6, 4))


def _slow(
    step: Step, usual: float, begin_ns: int, samples: Sequence[dict[str, Any]], hooked: Sequence[Step]
) -> SlowStep:
    over = step.ns - usual
    typical_wait = median(s.wait_ns for s in hooked) if hooked else 0
    causes = []
    if step.wait_ns - typical_wait > over / 2:
        causes.append(f"{step.wait_ns / 1e6:.3g} ms of waiting for the loader")
    if step.gc_ns > over / 2:
        causes.append(f"{step.gc_ns / 1e6:.3g} ms of garbage collection")
    if throttled := _throttled(step, samples):
        causes.append(throttled)
    if step.flags & form.UNHOOKED and not causes:
        causes.append("not known: a step without hooks")
    return SlowStep(
        number=step.number, at_s=round((step.end_ns - begin_ns) / 1e9, 3), ms=round(step.ns / 1e6, 3),
        because=", ".join(causes) or "not known: neither the loader nor garbage collection",
    )  # fmt: skip


def _throttled(step: Step, samples: Sequence[dict[str, Any]]) -> str | None:
    begin = step.end_ns - step.ns
    near = [s for s in samples if begin - 2e9 <= s.get("t", 0) <= step.end_ns + 1e9]
    reasons = {reason for s in near for gpu in s.get("gpus", ()) for reason in gpu.get("throttle", ())}
    hard = sorted(reasons - {"software-power-cap"})
    return f"the GPU was throttled ({', '.join(hard)})" if hard else None


def _told(value: int) -> int | None:
    return value if value >= 0 else None


def _mean(values: Any) -> float | None:
    found = list(values)
    return round(fmean(found) / 1e6, 5) if found else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _spread(ns: Sequence[int]) -> Spread | None:
    if not ns:
        return None
    parts = {
        "mean": fmean(ns),
        "median": median(ns),
        "p10": percentile(ns, 10),
        "p90": percentile(ns, 90),
        "best": min(ns),
    }
    return Spread(n=len(ns), **{name: round(value / 1e6, 5) for name, value in parts.items()})


def _lost(ring: RingFile, total: int, held: int) -> str | None:
    parts = []
    if total > held + 1:
        parts.append(f"of {total:,} steps the last {held:,} are still there one by one")
    if ring.torn:
        parts.append(f"{ring.torn} records were torn")
    if ring.counters["failures"]:
        parts.append(f"{ring.counters['failures']} hooks failed and were switched off")
    return "; ".join(parts) or None


# -- beside the rings --------------------------------------------------------------------------------------


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "run.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _samples(folder: Path) -> list[dict[str, Any]]:
    found = []
    try:
        with (folder / "samples.jsonl").open("rb") as file:
            text = file.read(MAX_SAMPLES_BYTES)
    except OSError:
        return []
    for line in text.splitlines():
        try:
            sample = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(sample, dict) and isinstance(sample.get("t"), int):
            found.append(sample)
    return found


def sum_up(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means and extremes: cores busy, the busiest threads, memory, the quota's stops, and each GPU."""
    if not samples:
        return {}
    busy = [s["cpu"]["busy_cores"] for s in samples if "busy_cores" in s.get("cpu", {})]
    threads: Counter[str] = Counter()
    for sample in samples:
        threads.update(sample.get("cpu", {}).get("threads", {}))
    stops = [s["cgroup"]["throttled_usec"] for s in samples if "throttled_usec" in s.get("cgroup", {})]
    found: dict[str, Any] = {
        "n": len(samples),
        "busy_cores": round(fmean(busy), 2) if busy else None,
        "threads_pct": {name: round(total / len(samples), 1) for name, total in threads.most_common(6)},
        "rss_peak_bytes": max((s.get("rss", 0) for s in samples), default=0),
        "throttled_s": round((max(stops) - min(stops)) / 1e6, 3) if stops else None,
        "oom_kills": _rise(s["cgroup"]["oom_kill"] for s in samples if "oom_kill" in s.get("cgroup", {})),
    }
    by_gpu: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for sample in samples:
        for gpu in sample.get("gpus", ()):
            by_gpu[gpu.get("index", 0)].append(gpu)
    found["gpus"] = [_sum_up_gpu(index, seen) for index, seen in sorted(by_gpu.items())]
    return found


def _sum_up_gpu(index: int, seen: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def mean(key: str) -> float | None:
        values = [one[key] for one in seen if key in one]
        return round(fmean(values), 1) if values else None

    throttle: Counter[str] = Counter(reason for one in seen for reason in one.get("throttle", ()))
    return {
        "index": index, "util_pct": mean("util"), "sm_mhz": mean("sm_mhz"), "power_w": mean("power_w"),
        "mem_peak_bytes": max((one.get("mem_used", 0) for one in seen), default=0),
        "mem_total_bytes": max((one.get("mem_total", 0) for one in seen), default=0),
        "throttled": {reason: round(count / len(seen), 3) for reason, count in throttle.items()},
    }  # fmt: skip


def _rise(values: Iterator[int]) -> int | None:
    found = list(values)
    return found[-1] - found[0] if found else None


def _log(folder: Path) -> tuple[int, tuple[str, ...]]:
    """How many Python processes loaded the hooks, and what failed in them."""
    try:
        text = (folder / "processes.log").read_text(errors="replace")
    except OSError:
        return 0, ()
    lines = text.splitlines()
    pids = {line.split()[1] for line in lines if line.startswith("python ") and len(line.split()) > 1}
    failed = Counter(" ".join(line.split()[3:]) for line in lines if line.startswith("failure "))
    return len(pids), tuple(
        f"{what} (x{count})" if count > 1 else what for what, count in failed.most_common(8)
    )
