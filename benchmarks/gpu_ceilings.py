"""`wellfed measure` on a GPU held against a straight-line script, against itself, and its two tiers against each other.

    python benchmarks/gpu_ceilings.py [--rounds 2] [--budget 20]

Runs, in turn and each in processes of its own: ours, the straight line, ours by the driver tier alone, ours by torch
alone. Prints medians, and the best of what the host's clock measures. Wanted: within 3 % of the straight line, runs of ours within 3 % of each other, copies and
launches of the two tiers within 5 %, and inside what H200s gave before (`truth`).
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

SHARED = (
    "hbm-copy",
    "h2d.pinned",
    "d2h.pinned",
    "launch.wall",
    "launch.throughput",
    "launch.graph-node",
    "launch.graph-empty",
)
TORCH = ("launch.torch-sync", *(f"gemm.{kind}.8192x8192x8192" for kind in ("bf16", "fp8", "tf32", "int8")))
BY_BEST = ("launch.wall", "launch.throughput", "launch.torch-sync")
"""By the host's clock, which has two states on virtual machines that change from second to second: the best of the samples, each a
median of many, is compared; everything else by its median."""
TRUTH = {
    "hbm-copy": (4270, 0.03),
    "h2d.pinned": (55, 0.03),
    "d2h.pinned": (55, 0.03),
    "gemm.bf16.8192x8192x8192": (785, 0.03),
    "gemm.fp8.8192x8192x8192": (1500, 0.03),
    "launch.torch-sync": (15, 0.3),
    "launch.graph-node": (1.2, 0.1),
}
"""Of other H200s: value, and how far a second one may be from it."""


def ours(budget: float, tier: str | None, wanted: tuple[str, ...]) -> dict[str, float]:
    command = [sys.executable, "-m", "wellfed", "measure", "--format", "json", "--budget", str(budget)]
    for id in wanted:
        command += ["--only", id]
    command += ["--tier", tier] if tier else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    ceilings = json.loads(done.stdout)["ceilings"]
    for found in ceilings:
        if found["verdict"] != "ok" or found["why"]:
            print(f"  {found['id']}: {found['verdict']}: {found['why']}", file=sys.stderr)
    return {found["id"]: found["best" if found["id"] in BY_BEST else "median"] for found in ceilings}


def straight_line(parts: list[str]) -> dict[str, float]:
    script = Path(__file__).with_name("h200_straight_line.py")
    return json.loads(
        subprocess.run(
            [sys.executable, str(script), *parts], capture_output=True, text=True, check=True
        ).stdout
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of each run of ours")
    parser.add_argument("--launches", action="store_true", help="those alone")
    options = parser.parse_args()
    shared = tuple(id for id in SHARED if id.startswith("launch") or not options.launches)
    alone = ("launch.torch-sync",) if options.launches else TORCH
    runs = {"ours": [], "line": [], "driver": [], "torch": []}
    for _ in range(options.rounds):
        runs["ours"].append(ours(options.budget, None, shared + alone))
        runs["line"].append(straight_line(["launches"] if options.launches else []))
        runs["driver"].append(ours(options.budget / 2, "driver", shared))
        runs["torch"].append(ours(options.budget / 2, "torch", shared))
    report(runs, shared + alone)


def report(runs: dict[str, list[dict[str, float]]], ids: tuple[str, ...]) -> None:
    print(
        f"{'id':<26}{'ours':>9}{'line':>9}{'off %':>7}{'rerun %':>8}  {'truth':<14}{'driver':>9}{'torch':>9}{'off %':>7}"
    )
    for id in ids:
        mine, line, driver, torch = ([run[id] for run in runs[kind] if id in run] for kind in runs)
        middle = statistics.median(mine)
        cells = [f"{id:<26}{middle:>9.4g}"]
        if line:
            cells.append(
                f"{statistics.median(line):>9.4g}{100 * (middle / statistics.median(line) - 1):>+7.1f}"
            )
        else:
            cells.append(" " * 16)
        cells.append(f"{100 * (max(mine) / min(mine) - 1):>8.1f}")
        cells.append(f"  {verdict(id, middle):<14}")
        if driver and torch:
            by = statistics.median(driver), statistics.median(torch)
            cells.append(f"{by[0]:>9.4g}{by[1]:>9.4g}{100 * (by[0] / by[1] - 1):>+7.1f}")
        print("".join(cells))


def verdict(id: str, value: float) -> str:
    if id not in TRUTH:
        return "-"
    truth, apart = TRUTH[id]
    return f"{truth:g} {'in' if abs(value / truth - 1) <= apart else 'OUT'}"


if __name__ == "__main__":
    main()
