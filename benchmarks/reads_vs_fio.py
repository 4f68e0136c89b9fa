"""Our storage reads against fio: the same file, the same depth, in turn, in one run. Ratios of medians, ours over fio's.

    python benchmarks/reads_vs_fio.py [--dir /data] [--pairs 8] [--seconds 1.0] [--mib 512] [--depths 1 16 64]

Each run starts after the same rest and leaves out its first part: hosts of virtual machines lend a burst to who has been idle, and fio is idle
while it starts. Needs fio. Expected: random 4 KiB reads within 10 % of fio at every depth. `threads` is what is done where asynchronous I/O is
forbidden; it is not bound to hold above some 50,000 reads a second.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from wellfed.bench.setup import MIB, allowed_cpus
from wellfed.bench.storage import reads
from wellfed.bench.storage.files import Target, file_system, fill, open_direct

REST_S = 0.3
RAMP_S = 0.4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run")
    parser.add_argument("--mib", type=int, default=512, help="size of the file")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 16, 64])
    options = parser.parse_args()
    if shutil.which("fio") is None:
        sys.exit("no fio: install it")
    with tempfile.NamedTemporaryFile(dir=options.dir, prefix="wellfed-fio-") as file:
        size = fill(file.fileno(), options.mib * MIB, time.monotonic() + 120)
        direct = open_direct(file.fileno())
        if direct is None:
            sys.exit(f"{options.dir} refuses O_DIRECT")
        target = Target(direct, file.fileno(), size, True, file_system(options.dir))
        print(
            f"file of {size // MIB} MiB on {target.fs}, load {os.getloadavg()[0]:.1f} on {len(allowed_cpus())} CPUs"
        )
        for depth in options.depths:
            compare(target, file.name, reads.RANDOM._replace(depth=depth), options)
        compare(target, file.name, reads.SEQUENTIAL, options)
        os.close(direct)


def compare(target: Target, name: str, pattern: reads.Pattern, options: argparse.Namespace) -> None:
    """Rounds of ours, fio and threads; every other round backwards."""
    cpus = len(allowed_cpus())
    runs: dict[str, Callable[[], tuple[float, float]]] = {
        "ours": lambda: rate(reads.read_blocks(target, pattern, options.seconds + RAMP_S, cpus).spans),
        "fio": lambda: fio(name, target.size, pattern, options.seconds),
        "threads": lambda: rate(reads.read_by_threads(target, pattern, options.seconds + RAMP_S)),
    }
    found: dict[str, list[tuple[float, float]]] = {label: [] for label in runs}
    names = list(runs)
    for _ in range(options.pairs):
        for label in names:
            time.sleep(REST_S)
            found[label].append(runs[label]())
        names.reverse()
    middle = {label: statistics.median(r for r, _ in samples) for label, samples in found.items()}
    delay = {label: statistics.median(us for _, us in samples) for label, samples in found.items()}
    kind = "random" if pattern.random else "in order"
    print(f"{kind}, {pattern.block // 1024} KiB, depth {pattern.depth}, {options.pairs} rounds")
    for label in runs:
        spread = [r / f for (r, _), (f, _) in zip(found[label], found["fio"], strict=True)]
        print(
            f"  {label:8} {middle[label]:10.0f} a second, p50 {delay[label]:7.1f} us, "
            f"over fio {middle[label] / middle['fio']:.3f} (pairs {min(spread):.2f} to {max(spread):.2f})"
        )


def rate(spans: reads.Spans) -> tuple[float, float]:
    """Reads a second and the median latency in us, without the ramp."""
    first_ns = int(spans.begin_ns.min()) + int(RAMP_S * 1e9)
    late = spans.end_ns > first_ns
    seconds = (int(spans.end_ns.max()) - first_ns) / 1e9
    return int(late.sum()) / seconds, statistics.median((spans.end_ns - spans.begin_ns)[late].tolist()) / 1e3


def fio(name: str, size: int, pattern: reads.Pattern, seconds: float) -> tuple[float, float]:
    """Its own rate over its own time; its libaio engine, one job."""
    command = [
        "fio", "--name=x", f"--filename={name}", f"--rw={'randread' if pattern.random else 'read'}", f"--bs={pattern.block}",
        f"--iodepth={pattern.depth}", f"--ioengine={'psync' if pattern.depth == 1 else 'libaio'}", "--direct=1", "--time_based", f"--ramp_time={RAMP_S * 1000:.0f}ms",
        f"--runtime={seconds * 1000:.0f}ms", "--norandommap", "--output-format=json", f"--size={size}", "--allow_file_create=0",
    ]  # fmt: skip
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    job = json.loads(out[out.index("{") :])["jobs"][0]["read"]
    return job["iops"], job["clat_ns"]["percentile"]["50.000000"] / 1e3


if __name__ == "__main__":
    main()
