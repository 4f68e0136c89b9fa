"""What it costs to start a kernel: five kinds, which are often mistaken for each other.

`launch.event`: two events around one empty kernel on an idle device. `launch.wall`: one launch and the wait for its
end, by the host's clock. `launch.throughput`: a launch among many back to back, the price of each kernel of a program
that waits for nothing. `launch.torch-op`: the same for the smallest operation of torch, the price in eager mode.
`launch.graph-node`: a small kernel inside a CUDA graph, one after the other; `launch.graph-empty`
with an empty one. Beside them `launch.torch-sync`, one operation of torch and
the wait for it, `sync` with nothing to wait for, and `item`, a number read back from the device.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.gpu.engine import TIERS, Engine, Work, has_gpu, open_engines, scopes, with_tier
from wellfed.bench.gpu.judge import Kind, Method, gpu_ceiling
from wellfed.bench.repeat import Run, interleave
from wellfed.bench.setup import Setup
from wellfed.model import Ceiling, Machine, WellfedError
from wellfed.predict.statistics import percentile

IDS = (
    "launch.event",
    "launch.wall",
    "launch.throughput",
    "launch.graph-node",
    "launch.graph-empty",
    "launch.torch-op",
    "launch.torch-sync",
    "launch.sync",
    "launch.item",
)
WEIGHT = 1.0
EFFORT: Effort = "quick"
ISOLATE = True
FRESH = True
MAX_S = 10.0
MANY = 500
"""Launches of one throughput sample: fewer than the queue holds, which is about a thousand."""
NODES = 1000
_REPLAYS = 5
_FEW = 100
_BATCHES = 5
_IN_A_ROW, _COLD = 400, 100
OF_TORCH = ("launch.graph-node",)
"""What is asked for is the price in a framework's graph: torch's own small kernel goes before ours; the price of the node alone is
`launch.graph-empty`."""
TITLES = {
    "launch.event": "launch, between two events",
    "launch.wall": "launch and wait",
    "launch.throughput": "launch, back to back",
    "launch.graph-node": "small kernel, as a graph's node",
    "launch.graph-empty": "empty kernel, as a graph's node",
    "launch.torch-op": "smallest torch operation, back to back",
    "launch.torch-sync": "smallest torch operation and wait",
    "launch.sync": "wait for an idle device",
    "launch.item": "read one number back (.item())",
}
WORDS = {
    "launch.event": "event, empty kernel, event on an idle stream",
    "launch.wall": "empty kernel and stream synchronize, host clock, median of 100",
    "launch.throughput": "500 empty kernels back to back, host clock, median of 5",
    "launch.graph-node": "chain of 1000 x.add_(1) of 65,536 floats, five replays on a held stream",
    "launch.graph-empty": "chain of 1000 empty kernels, five replays on a held stream",
    "launch.torch-op": "500 x.add_(1) of one element back to back, host clock, median of 5",
    "launch.torch-sync": "x.add_(1) of one element and torch.cuda.synchronize(), host clock, median of 300",
    "launch.sync": "stream synchronize with nothing queued, median of 100",
    "launch.item": "x.item() of one element, median of 300",
}


def needs(machine: Machine) -> str | None:
    """A GPU."""
    return has_gpu(machine)


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """All kinds in turn, by one tier and then by the other: with both in one process a node of a graph was seen to cost
    0.18 us more (H200, driver 580), for a reason not found. Without torch there is no torch-op, torch-sync and item."""
    before = noise.read_counters()
    samples: dict[str, list[float]] = {}
    opened: dict[str, Engine] = {}
    reasons: list[str] = []
    for tier in TIERS:
        if setup.options.tier not in (None, tier):
            continue
        try:
            with open_engines(with_tier(setup, tier)) as engines, scopes(engines):
                opened |= engines
                found = interleave(_runs(engines[tier]), budget_s / len(TIERS), at_least=10)
                samples |= {f"{tier} {id}": values for id, values in found.items()}
        except WellfedError as error:
            reasons.append(str(error))
    if not opened:
        raise WellfedError("; ".join(reasons), hint="nvidia-smi")
    for id, title in TITLES.items():
        methods = [
            Method(tier, WORDS[id], samples[f"{tier} {id}"])
            for tier in (reversed(opened) if id in OF_TORCH else opened)
            if f"{tier} {id}" in samples
        ]
        if methods:
            yield gpu_ceiling(
                setup,
                opened[methods[0].tier],
                before,
                Kind(id=id, title=title, unit="us", higher_is_better=False),
                methods,
                environment={"launched_from": "Python"},
            )


def _runs(engine: Engine) -> dict[str, Run]:
    null = engine.null()
    graph, empty = engine.graph(engine.add(), NODES), engine.graph(null, NODES)
    runs = {
        "launch.event": lambda: middle([engine.event_s(null) * 1e6 for _ in range(_FEW)]),
        "launch.wall": _clocked(engine, null, 1, batches=_FEW),
        "launch.throughput": _clocked(engine, null, MANY, batches=_BATCHES),
        "launch.graph-node": lambda: engine.held_s([[graph] * _REPLAYS]) / _REPLAYS / NODES * 1e6,
        "launch.graph-empty": lambda: engine.held_s([[empty] * _REPLAYS]) / _REPLAYS / NODES * 1e6,
        "launch.sync": _clocked(engine, engine.synchronize, 10, batches=_FEW),
    }
    if (torch := getattr(engine, "torch", None)) is not None:
        runs |= _torch_runs(engine, torch)
    return runs


def _torch_runs(engine: Engine, torch: Any) -> Mapping[str, Run]:
    one = torch.zeros(1, device="cuda")

    def add() -> None:
        one.add_(1)

    return {
        "launch.torch-op": _clocked(engine, add, MANY, batches=_BATCHES),
        "launch.torch-sync": _each(torch, lambda: one.add_(1), torch.cuda.synchronize),
        "launch.item": _each(torch, lambda: one.item(), lambda: None),
    }


def _each(torch: Any, work: Work, wait: Work) -> Callable[[], float]:
    """Microseconds of one work and the wait for it: the median of many in a row, the first ones left out."""

    def run() -> float:
        clock, idle = time.perf_counter_ns, torch.cuda.synchronize
        found = []
        for _ in range(_IN_A_ROW):
            idle()
            start = clock()
            work()
            wait()
            found.append((clock() - start) / 1000)
        return middle(found[_COLD:])

    return run


def _clocked(engine: Engine, work: Work, times: int, *, batches: int) -> Callable[[], float]:
    """Microseconds of one of `times` by the host's clock, the device waited for at the end: the median of `batches`,
    since interrupts and neighbours make the mean of latencies theirs."""

    def run() -> float:
        clock, synchronize = time.perf_counter_ns, engine.synchronize
        found = []
        for _ in range(batches):
            synchronize()
            start = clock()
            for _ in range(times):
                work()
            synchronize()
            found.append((clock() - start) / times / 1000)
        return middle(found)

    return run


def middle(samples: list[float]) -> float:
    return percentile(samples, 50)
