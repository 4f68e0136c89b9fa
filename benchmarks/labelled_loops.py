"""Labelled loops: training and decoding loops with one known ill, their cure, and the measured speed-up.

    python benchmarks/labelled_loops.py OUT_DIR [NAME ...]     # a NAME that ends in `_` means all that begin so

For each loop (the tables of `benchmarks/loops`): the unprofiled step time sick and cured (medians of several
rounds, one synchronise at the end of each), then a torch.profiler trace of the sick loop (wait 1, warmup 1,
active 3, unless its table says otherwise), and `labels.json`. This is the truth that the trace engine's causes
and gains are judged by; it is never read by the product. A loop that fails leaves its error in the labels, and
the next one runs. Needs an NVIDIA or AMD GPU and torch; `LOOPS_DEVICE=cpu LOOPS_SMALL=1` only steps the loops.
"""

import gc
import gzip
import json
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from loops import LOOPS
from loops.base import DEVICE, ON_GPU, SMALL, Loop, Step, defaults, synchronise
from torch.profiler import ProfilerActivity, profile, schedule

STEPS_WITHOUT_MARKS = 6


def unprofiled_ms(step: Step, *, budget_s: float = 1.6, period: int = 1) -> dict[str, float]:
    """Median step over rounds of k steps, one synchronise a round; k is a multiple of `period`."""
    for _ in range(-(-5 // period) * period):
        step()
    synchronise()
    begin = time.perf_counter()
    for _ in range(period):
        step()
    synchronise()
    k = max(3, min(30, int(0.25 * period / (time.perf_counter() - begin))))
    k = -(-k // period) * period
    rounds: list[float] = []
    end = time.perf_counter() + (0.05 if SMALL else budget_s)
    while time.perf_counter() < end or len(rounds) < 3:
        begin = time.perf_counter()
        for _ in range(k):
            step()
        synchronise()
        rounds.append((time.perf_counter() - begin) / k * 1e3)
    return {
        "median": statistics.median(rounds),
        "min": min(rounds),
        "max": max(rounds),
        "rounds": len(rounds),
        "k": k,
    }


def record(
    step: Step,
    path: Path,
    *,
    shapes: bool = True,
    stack: bool = False,
    memory: bool = False,
    steps: bool = True,
    active: int = 3,
) -> list[float]:
    """Trace `active` steps of the loop, or six steps without marks (`steps=False`: no schedule); returns their
    traced times in ms, the last with the export."""
    times: list[float] = []
    plain = path.with_suffix("")
    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if ON_GPU else [])],
        schedule=schedule(wait=1, warmup=1, active=active) if steps else None,
        record_shapes=shapes,
        with_stack=stack,
        profile_memory=memory,
        on_trace_ready=lambda p: p.export_chrome_trace(str(plain)),
    ) as profiler:
        for _ in range(2 + active if steps else STEPS_WITHOUT_MARKS):
            begin = time.perf_counter()
            step()
            if steps:
                profiler.step()
            times.append((time.perf_counter() - begin) * 1e3)
    with plain.open("rb") as source, gzip.open(path, "wb", compresslevel=6) as sink:
        sink.write(source.read())
    plain.unlink()
    return times[2:] if steps else times


def cleared() -> None:
    """After a loop is dropped: its cycles, its memory, its settings."""
    gc.collect()
    if ON_GPU:
        torch.cuda.empty_cache()
    defaults()


def measure(name: str, loop: Loop, out: Path, case: dict[str, Any]) -> None:
    """Fills the loop's row of the labels, so that what was measured before a failure stays. The first sets had
    longer rounds and, but for two of them, a second recording without shapes; the later ones have it unless they
    say how they are recorded."""
    later = name.startswith(("later_", "last_"))
    long_s, short_s = (1.2, 0.6) if later else (1.6, 0.8)
    period = int(loop.get("period", 1))
    how = {"active": -(-3 // period) * period, **loop.get("record", {})}
    plain = "record" not in loop if later else not name.startswith(("fresh", "kind"))
    if later:
        case |= {"near": loop.get("near", []), "recorded": how}
    step = loop["sick"]()
    case["sick_ms"] = unprofiled_ms(step, budget_s=long_s, period=period)
    case["traced_ms"] = record(step, out / f"{name}.json.gz", **how)
    if plain:
        how = {**how, "shapes": False}
        case["traced_plain_ms"] = record(step, out / f"{name}.plain.json.gz", **how)
    case["sick_after_ms"] = unprofiled_ms(step, budget_s=short_s, period=period)
    del step
    cleared()
    if loop["cured"] is not None:
        step = loop["cured"]()
        case["cured_ms"] = unprofiled_ms(step, budget_s=long_s, period=period)
        case["speedup"] = case["sick_ms"]["median"] / case["cured_ms"]["median"]


def chosen(names: list[str]) -> list[str]:
    """All loops, or the named ones in the order asked for."""
    found: list[str] = []
    for name in names:
        found += [n for n in LOOPS if n.startswith(name)] if name.endswith("_") else [name]
    unknown = [name for name in found if name not in LOOPS]
    if unknown:
        sys.exit(f"no such loop: {', '.join(unknown)}")
    return found if names else list(LOOPS)


def main(argv: list[str]) -> int:
    out = Path(argv[0])
    out.mkdir(parents=True, exist_ok=True)
    labels: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if ON_GPU else DEVICE,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "how": "median step without profiler over rounds of k steps; traces: wait 1, warmup 1, active 3",
        "cases": {},
    }
    failed = 0
    for name in chosen(argv[1:]):
        loop = LOOPS[name]
        began = time.perf_counter()
        case: dict[str, Any] = {"ill": loop["ill"]}
        try:
            measure(name, loop, out, case)
        except Exception as problem:  # noqa: BLE001 - one loop that fails must not cost the others
            traceback.print_exc()
            case["error"] = f"{type(problem).__name__}: {problem}"
            failed += 1
        cleared()
        labels["cases"][name] = case
        (out / "labels.json").write_text(json.dumps(labels, indent=1))
        print(f"{name}: {case} in {time.perf_counter() - began:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
