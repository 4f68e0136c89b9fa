"""What the hooks of `wellfed run` cost a step: python benchmarks/run_overhead.py [--steps 6000] [--cuda]

Runs a loop of steps of 1 ms that does nothing but step an optimizer of one parameter, fetch from a DataLoader that has its batches ready, and
keep a core busy, under `wellfed run`; prints what it measured itself by alternating blocks within the process, and beside it the time that
its hooks took by their own clock. With --cuda the parameter is on the GPU, each step copies its batch there and multiplies matrices for
about half its time, so that events are recorded and read."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

LOOP = """
import sys, time, torch
from torch.utils.data import DataLoader
torch.set_num_threads(1)
steps, device = int(sys.argv[1]), sys.argv[2]
parameter = torch.nn.Parameter(torch.zeros(1, device=device))
optimizer = torch.optim.SGD([parameter], 0.0)
parameter.grad = torch.zeros(1, device=device)
matrix = torch.randn(2048 if device == "cuda" else 1, 2048 if device == "cuda" else 1, device=device)
for step, batch in enumerate(DataLoader(torch.zeros(steps), batch_size=1)):
    until = time.perf_counter_ns() + 1_000_000
    batch = batch.to(device)
    for _ in range(10):
        matrix @ matrix
    while time.perf_counter_ns() < until:
        pass
    optimizer.step()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--cuda", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.json"
        command = [sys.executable, "-m", "wellfed", "run", "--quiet", "-o", str(file), "--"]
        subprocess.run(
            [*command, sys.executable, "-c", LOOP, str(options.steps), "cuda" if options.cuda else "cpu"],
            check=True,
            capture_output=True,
        )
        (rank,) = json.loads(file.read_bytes())["run"]["ranks"]
    hooks, step = rank["hooks"], rank["step_ms"]
    print(f"step {step['median']:.4f} ms (p10 {step['p10']:.4f}, p90 {step['p90']:.4f}, n = {step['n']})")
    print(
        f"hooks {hooks['us']} us a step ({hooks['low_us']} to {hooks['high_us']}, {hooks['pairs']} pairs of blocks), "
        f"{hooks['own_us']} us by their own clock; wanted: at most 30"
    )


if __name__ == "__main__":
    main()
