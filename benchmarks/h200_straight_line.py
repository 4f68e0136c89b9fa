"""The ceilings of a GPU measured in a straight line: plain torch, nothing of wellfed. What `benchmarks/gpu_ceilings.py`
holds `wellfed measure` against. One line of JSON: id to median.

    python benchmarks/h200_straight_line.py [memory] [links] [launches] [products]

Each figure: warm up, hold the stream with a spin so that all launches are queued, events around them, rest, again;
the median of the repetitions; of latencies by the host's clock the least of ten medians.
"""

import json
import statistics
import sys
import time

import torch

REPEAT = 15


def timed(call, launches, rest=4.0, repeat=REPEAT):
    """Median seconds of one call on the device."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    found = []
    for _ in range(repeat):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(4_000_000)
        start.record()
        for _ in range(launches):
            call()
        end.record()
        end.synchronize()
        seconds = start.elapsed_time(end) / 1e3
        found.append(seconds / launches)
        time.sleep(seconds * rest)
    return statistics.median(found)


def memory():
    size = 2 << 30
    source = torch.randn(size // 4, device="cuda")
    target = torch.empty_like(source)
    yield "hbm-copy", 2 * size / timed(lambda: target.copy_(source), 8, rest=0) / 1e9


def links():
    size = 512 << 20
    host = torch.randn(size // 4).pin_memory()
    device = torch.randn(size // 4, device="cuda")
    yield "h2d.pinned", size / timed(lambda: device.copy_(host, non_blocking=True), 2, rest=0) / 1e9
    yield "d2h.pinned", size / timed(lambda: host.copy_(device, non_blocking=True), 2, rest=0) / 1e9


def products():
    n = 8192
    flops = 2 * n**3
    pairs = [(torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")) for _ in range(2)]
    turn = 0

    def rotating(call, inputs):
        def run():
            nonlocal turn
            turn ^= 1
            call(*inputs[turn])

        return run

    bf16 = [(a.bfloat16(), b.bfloat16().t()) for a, b in pairs]
    out = torch.empty(n, n, device="cuda", dtype=torch.bfloat16)
    yield (
        f"gemm.bf16.{n}x{n}x{n}",
        flops / timed(rotating(lambda a, b: torch.mm(a, b, out=out), bf16), 8) / 1e12,
    )
    fp8 = [(a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()) for a, b in pairs]
    one = torch.ones((), device="cuda")

    def scaled(a, b):
        torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)

    yield f"gemm.fp8.{n}x{n}x{n}", flops / timed(rotating(scaled, fp8), 16) / 1e12
    torch.backends.cuda.matmul.allow_tf32 = True
    sums = torch.empty(n, n, device="cuda")
    tf32 = [(a, b.t()) for a, b in pairs]
    yield (
        f"gemm.tf32.{n}x{n}x{n}",
        flops / timed(rotating(lambda a, b: torch.mm(a, b, out=sums), tf32), 4) / 1e12,
    )
    int8 = [((a * 32).clamp(-127, 127).char(), (b * 32).clamp(-127, 127).char().t()) for a, b in pairs]
    yield f"gemm.int8.{n}x{n}x{n}", flops / timed(rotating(lambda a, b: torch._int_mm(a, b), int8), 10) / 1e12


def launches():
    one = torch.zeros(1, device="cuda")
    for _ in range(2000):
        one.add_(1)
    found = []
    for _ in range(3000):
        torch.cuda.synchronize()
        start = time.perf_counter()
        one.add_(1)
        torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    yield "launch.torch-sync", min(statistics.median(found[i : i + 300]) for i in range(0, 3000, 300)) * 1e6
    some = torch.zeros(65536, device="cuda")
    some.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(1000):
            some.add_(1)
    yield "launch.graph-node", timed(graph.replay, 5, rest=0) / 1000 * 1e6


def main():
    if not torch.cuda.is_available():
        sys.exit("no GPU that torch sees")
    result = {}
    parts = [
        part
        for part in (memory, links, launches, products)
        if part.__name__ in sys.argv[1:] or not sys.argv[1:]
    ]
    for part in parts:
        result |= dict(part())
        torch.cuda.empty_cache()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
