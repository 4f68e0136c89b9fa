"""How good is what `wellfed loader` chooses? Against a full sweep of the same dataset, on this machine.

    python benchmarks/loader_sweep.py                       # the twelve sets of loader_sets.py
    python benchmarks/loader_sweep.py --only wait_bound --quick-sweep 2

For each set: `wellfed loader` runs as a command; then every setting (workers 0, 1, 2, 4, 8, 16 up to 4 a core, prefetch 2 and
4) for so many seconds; then the chosen setting and the best of the sweep once more, interleaved, which gives the ratio. Wanted:
ratio >= 0.90 in <= 20 % of the time of the sweep. Needs torch and the core dependencies of wellfed. One line a set; JSON with -o.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
if SOURCE.is_dir():
    sys.path.insert(0, str(SOURCE))
sys.path.insert(0, str(HERE))

VERIFY_ROUNDS = 4


def settings(cores: int) -> list[dict[str, int]]:
    workers = [number for number in (0, 1, 2, 4, 8, 16) if number <= 4 * cores]
    return [
        {"num_workers": number, **({"prefetch_factor": prefetch} if number else {})}
        for number in workers
        for prefetch in ((2, 4) if number else (2,))
    ]


def measure(make: Any, setting: dict[str, Any], seconds: float) -> float:
    """Batches a second of a fresh loader, in steady state: a straight loop over epochs, as one would write it."""
    from torch.utils.data import DataLoader, IterableDataset

    base = make()
    arguments: dict[str, Any] = {"collate_fn": base.collate_fn, **setting}
    workers = setting["num_workers"]
    if workers:
        arguments["persistent_workers"] = True
    by_batch_size = isinstance(base.dataset, IterableDataset) or base.batch_sampler is None
    batches = {"batch_size": base.batch_size} if by_batch_size else {"batch_sampler": base.batch_sampler}
    loader: Any = DataLoader(base.dataset, **batches, **arguments)
    warm = max(3, 2 * workers, workers * setting.get("prefetch_factor", 0))
    count, began, turn = 0, 0.0, max(workers, 1)
    while True:
        for _ in loader:
            count += 1
            now = time.perf_counter()
            if count == warm:
                began = now
            elif count > warm and now - began >= seconds and (count - warm) % turn == 0:
                return (count - warm) / (now - began)


def in_child(name: str, setting: dict[str, Any], seconds: float) -> float:
    """`measure` in a fork of this process, which has torch: nothing of one setting stays for the next."""
    import loader_sets

    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            rate = measure(getattr(loader_sets, name), setting, seconds)
            os.write(writer, repr(rate).encode())
        except BaseException:  # noqa: BLE001 - whatever it is, it is told
            traceback.print_exc()  # a setting that fails must not look like a slow one
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return float(text) if text else math.nan


def tune(name: str, extra: list[str]) -> tuple[dict[str, Any], float]:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")]),
        }
        done = subprocess.run(
            [sys.executable, "-m", "wellfed", "loader", f"{HERE / 'loader_sets.py'}:{name}", "-o", str(file), *extra],
            capture_output=True, text=True, env=environment, check=False, timeout=300,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        if done.returncode != 0:
            raise SystemExit(f"{name}: {done.stderr}")
        return json.loads(file.read_text())["loader"], seconds


def verify(
    name: str, ours: dict[str, Any], theirs: dict[str, Any], seconds: float
) -> tuple[float, float, float]:
    """(rate, rate, ratio): medians of interleaved runs, and the median of the ratios of neighbours."""
    a, b = [], []
    for number in range(VERIFY_ROUNDS):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            (b if which else a).append(in_child(name, theirs if which else ours, seconds))
    if not all(rate > 0 for rate in (*a, *b)):
        return _middle(a), _middle(b), math.nan  # a run failed: this is no comparison
    ratios = sorted(x / y for x, y in zip(a, b, strict=True))
    return _middle(a), _middle(b), _middle(ratios)


def _middle(values: list[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def judge(name: str, options: argparse.Namespace, cores: int) -> dict[str, Any]:
    found, tuner_s = tune(name, options.extra)
    chosen = {
        key: found["chosen"][key]
        for key in ("num_workers", "prefetch_factor", "in_order")
        if key in found["chosen"]
    }
    began = time.perf_counter()
    rates = [(in_child(name, one, options.quick_sweep), one) for one in settings(cores)]
    sweep_s = time.perf_counter() - began
    full_s = sweep_s + len(rates) * (5.0 - options.quick_sweep)  # as if each had had its 5 s
    best_rate, best = max(rates, key=lambda one: -1.0 if math.isnan(one[0]) else one[0])
    if chosen == best or (chosen["num_workers"] == 0 == best["num_workers"]):
        ours = theirs = best_rate
        ratio = 1.0
    else:
        ours, theirs, ratio = verify(name, chosen, best, options.verify)
    budget = found["budget"]
    return {
        "name": name, "chosen": chosen, "best": best, "ours": ours, "theirs": theirs, "ratio": ratio, "tuner_s": tuner_s,
        "sweep_s": full_s, "share": tuner_s / full_s, "ram": budget["ram_peak"], "ram_budget": budget["ram_bytes"],
        "shm": budget["shm_peak"], "shm_budget": budget["shm_bytes"], "cores": budget["measured"],
        "cores_after": budget["measured_after"], "accuracy": found["accuracy"], "confidence": found["confidence"],
        "sweep": [[rate, one] for rate, one in rates],
    }  # fmt: skip


def line(one: dict[str, Any]) -> str:
    def words(setting: dict[str, Any]) -> str:
        return f"{setting['num_workers']}x{setting.get('prefetch_factor', '-')}"

    mark = "" if one["ratio"] >= 0.9 and one["share"] <= 0.2 else "  <--"
    moved = abs(one["cores_after"] / one["cores"] - 1) if one["cores"] and one["cores_after"] else 0
    return (
        f"{one['name']:<14} {words(one['chosen']):>5} {words(one['best']):>5} {one['ours']:>9.1f} {one['theirs']:>9.1f} "
        f"{one['ratio']:>6.2f} {one['tuner_s']:>6.1f} {one['sweep_s']:>6.1f} {100 * one['share']:>5.1f}% "
        f"{one['ram'] / 1e6:>7.0f} {one['shm'] / 1e6:>6.0f} {100 * moved:>5.0f}%{mark}"
    )


def main() -> None:
    import loader_sets
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument(
        "--quick-sweep", type=float, default=5.0, metavar="SECONDS", help="for each setting of the sweep"
    )
    parser.add_argument(
        "--verify", type=float, default=2.0, metavar="SECONDS", help="for each of the last runs"
    )
    parser.add_argument("--more", action="store_true", help="the extra sets too")
    parser.add_argument("-o", metavar="FILE", help="all figures as JSON")
    parser.add_argument("extra", nargs="*", help="handed to `wellfed loader`, after --")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    cores = len(os.sched_getaffinity(0))
    names = options.only or [*loader_sets.TWELVE, *(loader_sets.MORE if options.more else ())]
    print(
        f"# torch {torch.__version__}, python {sys.version.split()[0]}, {cores} cores, sweep {options.quick_sweep} s a setting"
    )
    print(
        f"{'set':<14} {'ours':>5} {'best':>5} {'batch/s':>9} {'best b/s':>9} {'ratio':>6} {'tuner':>6} {'sweep':>6} "
        f"{'share':>6} {'RAM MB':>7} {'shm MB':>6} {'cores moved':>6}"
    )
    results = []
    for name in names:
        results.append(judge(name, options, cores))
        print(line(results[-1]), flush=True)
        if options.o:
            Path(options.o).write_text(json.dumps(results, indent=1))
    good = sum(one["ratio"] >= 0.9 and one["share"] <= 0.2 for one in results)
    print(
        f"# {good} of {len(results)} at >= 0.90 of the best in <= 20 % of the time of a sweep of 5 s a setting"
    )


if __name__ == "__main__":
    main()
