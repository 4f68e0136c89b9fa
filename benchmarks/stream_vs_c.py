"""Our memory benchmarks against C on the same arrays, in turn, in one process: ratios, not speeds.

    python benchmarks/stream_vs_c.py [--mib 256] [--seconds 10]

Needs a C compiler (cc). Expected of one thread: copy at least 0.95 of C, triad about 0.75 (numpy has no fused
triad), latency of memory within 10 % of a C pointer chase, and about 2 ns above it in L1.
"""

import argparse
import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from wellfed.bench.host import memory_bandwidth, memory_latency
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import MIB, allowed_cpus, pin, size_text
from wellfed.bench.statistics import percentile

C_SOURCE = r"""
#include <stddef.h>
void copy(double *restrict a, const double *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] = b[i];
}
void triad(double *restrict a, const double *restrict b, const double *restrict c, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] = b[i] + 3.0 * c[i];
}
size_t walk(const size_t *cycle, size_t place, size_t steps) {
    while (steps--) place = cycle[place];
    return place;
}
"""
FLAGS = ("-O3", "-march=native", "-fno-tree-loop-distribute-patterns", "-shared", "-fPIC")
"""Without the third, gcc turns the copy loop into a call of memcpy; STREAM means the loop."""
STEPS = 8192


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=256, help="size of each array")
    parser.add_argument("--seconds", type=float, default=10.0, help="time for all of it")
    options = parser.parse_args()
    pin(allowed_cpus()[-1])
    library = compile_c()
    size = options.mib * MIB
    print(f"one thread, 3 arrays of {size_text(size)}")
    report(bandwidth_runs(library, size // 8), options.seconds / 2, "GB/s", higher=True)
    report(latency_runs(library, size), options.seconds / 2, "ns", higher=False)


def compile_c() -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("no C compiler: install gcc")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "stream.c"), Path(folder, "stream.so")
        source.write_text(C_SOURCE)
        subprocess.run([compiler, *FLAGS, "-o", str(target), str(source)], check=True)
        library = ctypes.CDLL(str(target))
    library.walk.restype = ctypes.c_size_t
    return library


def bandwidth_runs(library: ctypes.CDLL, doubles: int) -> dict[str, Run]:
    arrays = memory_bandwidth.make_arrays(doubles)
    a, b, c = (ctypes.c_void_p(array.ctypes.data) for array in arrays[:3])
    count = ctypes.c_size_t(doubles)

    def timed(work, moved: int) -> Run:
        def run() -> float:
            start = time.perf_counter()
            work()
            return moved / (time.perf_counter() - start) / 1e9

        return run

    return {
        "copy C": timed(lambda: library.copy(a, b, count), 16 * doubles),
        "copy ours": timed(lambda: memory_bandwidth.copy(arrays), 16 * doubles),
        "triad C": timed(lambda: library.triad(a, b, c, count), 24 * doubles),
        "triad ours": timed(lambda: memory_bandwidth.triad(arrays), 24 * doubles),
    }


def latency_runs(library: ctypes.CDLL, size: int) -> dict[str, Run]:
    """Both walk the same cycle, each on from where it stopped, far apart: neither warms lines for the other."""
    rng = np.random.default_rng(5)
    runs: dict[str, Run] = {}

    def c_walk(cycle) -> Run:
        address = ctypes.c_void_p(cycle.ctypes.data)
        place = len(cycle) // 16 * 8

        def run() -> float:
            nonlocal place
            start = time.perf_counter_ns()
            place = library.walk(address, ctypes.c_size_t(place), ctypes.c_size_t(STEPS))
            return (time.perf_counter_ns() - start) / STEPS

        return run

    for name, set_bytes in {"L1": 8 << 10, "memory": size}.items():
        cycle = memory_latency.make_cycle(set_bytes, rng)
        runs[f"latency {name} C"] = c_walk(cycle)
        runs[f"latency {name} ours"] = memory_latency.walker(cycle, warm=False)
    return runs


def report(runs: dict[str, Run], seconds: float, unit: str, *, higher: bool) -> None:
    samples = interleave(runs, seconds)
    for ours in [name for name in runs if name.endswith("ours")]:
        kind = ours.removesuffix(" ours")
        rows = [samples[f"{kind} C"], samples[ours]]
        best = [max(row) if higher else min(row) for row in rows]
        median = [percentile(row, 50) for row in rows]
        print(
            f"{kind:<16} best: C {best[0]:6.2f}, ours {best[1]:6.2f} {unit}, ratio {best[1] / best[0]:.2f}   "
            f"median: C {median[0]:6.2f}, ours {median[1]:6.2f}, ratio {median[1] / median[0]:.2f}   n={len(rows[0])}"
        )


if __name__ == "__main__":
    main()
