"""Our memory benchmarks against C on the same arrays, in turn, in one process: ratios, not speeds.

    python benchmarks/stream_vs_c.py [--mib 128] [--seconds 30] [--threads 1 --threads 2]

Needs a C compiler (gcc). Four kinds of C: the loop at -O3 -march=native with the threads of ours, the same with
OpenMP's, memcpy, and the loop with stores past the cache (intrinsics; x86-64). STREAM means the loop. Expected: the
ceiling that `measure` reports (the best of its engines) at least 0.95 of the C loop with one thread and 0.90 with two;
the loop by numba alone 0.85 to 1; latency of memory within 10 % of a C pointer chase.
"""

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from wellfed.bench.host import chase, memory_bandwidth, stream
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import MIB, allowed_cpus, pin, size_text
from wellfed.bench.team import Team
from wellfed.predict.statistics import percentile

C_SOURCE = r"""
#include <stddef.h>
#include <string.h>
typedef double *restrict out;
typedef const double *restrict in;
#define LOOP for (size_t i = 0; i < n; i++)
#define OMP _Pragma("omp parallel for schedule(static) num_threads(t)")
void copy(out a, in b, in c, size_t n) { LOOP a[i] = b[i]; }
void scale(out a, in b, in c, size_t n) { LOOP a[i] = 3.0 * b[i]; }
void add(out a, in b, in c, size_t n) { LOOP a[i] = b[i] + c[i]; }
void triad(out a, in b, in c, size_t n) { LOOP a[i] = b[i] + 3.0 * c[i]; }
void copy_memcpy(out a, in b, in c, size_t n) { memcpy(a, b, 8 * n); }
void copy_omp(out a, in b, in c, size_t n, int t) { OMP LOOP a[i] = b[i]; }
void scale_omp(out a, in b, in c, size_t n, int t) { OMP LOOP a[i] = 3.0 * b[i]; }
void add_omp(out a, in b, in c, size_t n, int t) { OMP LOOP a[i] = b[i] + c[i]; }
void triad_omp(out a, in b, in c, size_t n, int t) { OMP LOOP a[i] = b[i] + 3.0 * c[i]; }
#ifdef __AVX__
#include <immintrin.h>
#define LINES for (size_t i = 0; i < n; i += 4)
#define B _mm256_load_pd(b + i)
#define C _mm256_load_pd(c + i)
#define PUT(v) _mm256_stream_pd(a + i, v)
#define THREE _mm256_set1_pd(3.0)
void copy_past(out a, in b, in c, size_t n) { LINES PUT(B); _mm_sfence(); }
void scale_past(out a, in b, in c, size_t n) { LINES PUT(_mm256_mul_pd(THREE, B)); _mm_sfence(); }
void add_past(out a, in b, in c, size_t n) { LINES PUT(_mm256_add_pd(B, C)); _mm_sfence(); }
void triad_past(out a, in b, in c, size_t n) { LINES PUT(_mm256_add_pd(B, _mm256_mul_pd(THREE, C))); _mm_sfence(); }
#endif
size_t walk(const size_t *cycle, size_t place, size_t steps) {
    while (steps--) place = cycle[place];
    return place;
}
"""
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-tree-loop-distribute-patterns", "-shared", "-fPIC")
"""Without the fourth, gcc turns the copy loop into a call of memcpy, which stands here beside it."""
STEPS = 8192


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=128, help="size of each array")
    parser.add_argument("--seconds", type=float, default=30.0, help="time for all of it")
    parser.add_argument("--threads", type=int, action="append", help="repeatable; default 1 and 2")
    parser.add_argument("--kernel", choices=stream.KERNELS, action="append", help="default: all four")
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # its threads would spin into the others' turns
    library = compile_c()
    teams = options.threads or [1, 2]
    for threads in teams:
        kernels = tuple(options.kernel or stream.KERNELS)
        compare_bandwidth(library, threads, options.mib * MIB, kernels, options.seconds / (len(teams) + 0.5))
    pin(allowed_cpus()[-1])
    compare_latency(library, options.mib * MIB, options.seconds / 6)


def compile_c() -> ctypes.CDLL:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        sys.exit("no C compiler: install gcc")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "stream.c"), Path(folder, "stream.so")
        source.write_text(C_SOURCE)
        subprocess.run([compiler, *FLAGS, "-o", str(target), str(source)], check=True)
        library = ctypes.CDLL(str(target))
    library.walk.restype = ctypes.c_size_t
    return library


def compare_bandwidth(
    library: ctypes.CDLL, threads: int, size: int, kernels: tuple[str, ...], seconds: float
) -> None:
    with Team(allowed_cpus()[:threads]) as team:
        arrays = memory_bandwidth.make_arrays(team, size)
        engines = memory_bandwidth.engines_for(kernels)
        if torch := stream.torch_engine():
            engines.append(torch)
        runs: dict[str, Run] = {}
        for kernel in kernels:
            for engine in [*c_engines(library, kernel), *memory_bandwidth.suited(engines, kernel)]:
                runs[f"{kernel}/{engine.name}"] = memory_bandwidth.team_run(team, arrays, engine, kernel)
            runs[f"{kernel}/C OpenMP"] = openmp_run(library, kernel, arrays, threads)
        samples = interleave(runs, seconds)
    print(f"{threads} thread(s), 3 arrays of {size_text(size)}, GB/s best / median, ratio to the C loop")
    for kernel in kernels:
        loop = samples[f"{kernel}/C loop"]
        for name in runs:
            if name.startswith(f"{kernel}/"):
                row = samples[name]
                print(
                    f"  {name:<34} {max(row):7.2f} / {percentile(row, 50):7.2f}   "
                    f"{max(row) / max(loop):5.2f} / {percentile(row, 50) / percentile(loop, 50):5.2f}   n={len(row)}"
                )


def c_engines(library: ctypes.CDLL, kernel: str) -> list[stream.Engine]:
    """The C of one kernel as engines, so that the same threads call them as ours."""
    found = []
    for name, suffix in (("C loop", ""), ("C memcpy", "_memcpy"), ("C past the cache", "_past")):
        work = getattr(library, kernel + suffix, None)
        if work is not None:
            found.append(stream.Engine(name, "", {kernel: _call(work)}, {kernel: name}))
    return found


def _call(work) -> stream.Kernel:
    def kernel(*arrays) -> None:
        work(*(ctypes.c_void_p(array.ctypes.data) for array in arrays), ctypes.c_size_t(len(arrays[0])))

    return kernel


def openmp_run(library: ctypes.CDLL, kernel: str, arrays: memory_bandwidth.Arrays, threads: int) -> Run:
    work, count = getattr(library, f"{kernel}_omp"), len(arrays.a)
    addresses = [ctypes.c_void_p(array.ctypes.data) for array in arrays]

    def run() -> float:
        start = time.perf_counter()
        for _ in range(2):
            work(*addresses, ctypes.c_size_t(count), ctypes.c_int(threads))
        return 2 * count * stream.BYTES[kernel] / (time.perf_counter() - start) / 1e9

    return run


def compare_latency(library: ctypes.CDLL, size: int, seconds: float) -> None:
    """Both walk the same cycle, each on from where it stopped, far apart: neither warms lines for the other."""
    rng = np.random.default_rng(5)
    chasers = [chaser for chaser in (chase.numba_chaser(), chase.numpy_chaser()) if chaser]
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

    for name, set_bytes in {"L1": 8 << 10, "L2": 256 << 10, "memory": size}.items():
        cycle = chase.make_cycle(set_bytes, rng)
        runs[f"{name}/C"] = c_walk(cycle)
        for number, chaser in enumerate(chasers, 2):
            start = number * set_bytes // chase.LINE // 5
            runs[f"{name}/{chaser.name}"] = chase.walker(chaser, cycle, warm=False, start_line=start)
    samples = interleave(runs, seconds)
    print("latency of a dependent load, ns best / median, ratio to C")
    for name, row in samples.items():
        base = samples[f"{name.partition('/')[0]}/C"]
        print(
            f"  {name:<16} {min(row):7.2f} / {percentile(row, 50):7.2f}   "
            f"{min(row) / min(base):5.2f} / {percentile(row, 50) / percentile(base, 50):5.2f}   n={len(row)}"
        )


if __name__ == "__main__":
    main()
