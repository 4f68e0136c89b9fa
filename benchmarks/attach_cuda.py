"""`wellfed attach` against a loop that knows nothing of it: python benchmarks/attach_cuda.py [--seconds 1] [--ranks 2] [--keep FOLDER]

Starts a training loop (on a GPU where there is one, else on the CPU) whose loader keeps it waiting, with KINETO_USE_DAEMON=1 alone;
attaches to it as a user would; prints what attach said, how long it took, and the loop's step time before, while recording and after.
With --ranks the loop runs under torchrun, and torchrun is what is named. Exit code 1 when no trace came or the loop ended."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

LOOP = """
import os, sys, time, torch
local = int(os.environ.get("LOCAL_RANK", 0))
device = torch.device("cuda", local % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
wide = 4096 if device.type == "cuda" else 256
model = torch.nn.Sequential(*[torch.nn.Linear(wide, wide) for _ in range(8)]).to(device)
if "WORLD_SIZE" in os.environ:
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
log = open(sys.argv[1] + f".{local}", "w", buffering=1)
while True:
    start = time.time()
    time.sleep(0.02)  # what a loader does that is too slow
    x = torch.randn(256, wide).to(device)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    log.write(f"{start} {time.time() - start}\\n")
"""


def steps(log: Path, since: float, until: float) -> str:
    """The median step that began between two moments, in words."""
    rows = [line.split() for line in log.read_text().splitlines() if line.count(" ") == 1]
    took = [float(row[1]) for row in rows if since <= float(row[0]) < until]
    return f"{1000 * median(took):.2f} ms ({len(took)} steps)" if took else "no step"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--ranks", type=int, default=0, help="under torchrun")
    parser.add_argument("--keep", help="where the traces stay")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script, log = Path(folder, "loop.py"), Path(folder, "log")
        script.write_text(LOOP)
        runner = ["torch.distributed.run", f"--nproc-per-node={args.ranks}"] if args.ranks else []
        command = [sys.executable, *(["-m", *runner] if runner else []), str(script), str(log)]
        environ = {**os.environ, "KINETO_USE_DAEMON": "1"}
        with Path(folder, "said").open("wb") as said:
            loop = subprocess.Popen(command, env=environ, stdout=said, stderr=said, start_new_session=True)
        try:
            return attach(loop, Path(f"{log}.0"), args)
        finally:
            os.killpg(loop.pid, signal.SIGKILL)
            loop.wait()
            print("the loop's own log ends:", *Path(folder, "said").read_text().splitlines()[-3:], sep="\n  ")


def attach(loop: "subprocess.Popen[bytes]", log: Path, args: argparse.Namespace) -> int:
    until = time.time() + 120
    while time.time() < until and loop.poll() is None and not (log.exists() and log.stat().st_size > 500):
        time.sleep(0.2)
    command = [sys.executable, "-m", "wellfed", "attach", str(loop.pid), "--seconds", str(args.seconds)]
    begun = time.time()
    done = subprocess.run([*command, *(["--keep", args.keep] if args.keep else [])], check=False)
    ended = time.time()
    time.sleep(3)
    print(
        f"attach: exit code {done.returncode}, {ended - begun:.1f} s; the loop goes on: {loop.poll() is None}"
    )
    print(
        f"step before {steps(log, 0, begun)}, meanwhile {steps(log, begun, ended)}, after {steps(log, ended, time.time())}"
    )
    return 0 if done.returncode == 0 and loop.poll() is None else 1


if __name__ == "__main__":
    sys.exit(main())
