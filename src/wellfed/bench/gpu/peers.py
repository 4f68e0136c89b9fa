"""Copies from GPU to GPU: every pair, each way and both ways at once.

`p2p.write` runs on the source's stream, `p2p.read` on the target's, `p2p.bidirectional` counts both directions. The
headline is the median pair; the matrix and the pairs below 0.9 of it stand beside it. Where two GPUs can't reach each
other, the driver goes through the host, and the result says so.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.gpu.driver.device import Device, DeviceBuffer
from wellfed.bench.gpu.driver.engine import DriverEngine
from wellfed.bench.gpu.driver.library import Library
from wellfed.bench.gpu.judge import Kind, Method, gpu_ceiling
from wellfed.bench.repeat import interleave
from wellfed.bench.setup import MIB, Setup
from wellfed.model import Ceiling, Machine, WellfedError
from wellfed.predict.statistics import percentile

IDS = ("p2p.write", "p2p.read", "p2p.bidirectional")
WEIGHT = 2.0
EFFORT: Effort = "full"
ISOLATE = True
MAX_S = 60.0
_SIZE = 256 * MIB
_COPIES = 4
SLOW = 0.9
TITLES = {
    "p2p.write": "GPU to GPU, written by the source",
    "p2p.read": "GPU to GPU, read by the target",
    "p2p.bidirectional": "GPU to GPU, both ways at once, together",
}
Pair = tuple[int, int]


def needs(machine: Machine) -> str | None:
    """Two GPUs."""
    if not machine.gpus:
        return "no GPU was seen on this machine"
    return None if len(machine.gpus) > 1 else "there is one GPU, so no pair to copy between"


def measure(setup: Setup, budget_s: float, library: Library | None = None) -> Iterator[Ceiling]:
    """The matrices of all pairs, a pair at a time, so that none disturbs another."""
    if setup.options.tier == "torch":
        raise WellfedError("this takes the driver tier", hint="wellfed measure --tier driver")
    before = noise.read_counters()
    with ExitStack() as stack:
        devices = [stack.enter_context(Device(0, library))]
        devices += [stack.enter_context(Device(index, library)) for index in range(1, devices[0].count)]
        if len(devices) < 2:
            raise WellfedError("this process sees one GPU (CUDA_VISIBLE_DEVICES?)", hint="nvidia-smi -L")
        direct = {
            (i, j): devices[i].enable_peer(devices[j])
            for i in range(len(devices))
            for j in range(len(devices))
            if i != j
        }
        matrices = _matrices(devices, budget_s)
        _current(devices[0])
        engine = DriverEngine(devices[0])
        for id, title in TITLES.items():
            yield _ceiling(
                setup,
                engine,
                before,
                Kind(id=id, title=title, unit="GB/s", size="256 MiB"),
                matrices[id],
                direct,
            )


def _ceiling(
    setup: Setup,
    engine: DriverEngine,
    before: noise.Counters,
    kind: Kind,
    matrix: Mapping[Pair, Sequence[float]],
    direct: Mapping[Pair, bool],
) -> Ceiling:
    medians = {pair: percentile(found, 50) for pair, found in matrix.items()}
    middle = percentile(list(medians.values()), 50)
    headline = next(pair for pair, value in medians.items() if value == middle)
    slow = slow_pairs(medians)
    staged = [f"{i}-{j}" for (i, j), able in direct.items() if not able and i < j]
    reservations = [
        f"slow: {', '.join(f'{i} to {j} ({medians[i, j]:.4g} GB/s)' for i, j in slow)}" if slow else "",
        f"through the host, no direct way: {', '.join(staged)}" if staged else "",
    ]
    return gpu_ceiling(
        setup,
        engine,
        before,
        kind,
        [Method("driver", "cuMemcpyPeerAsync, 4 copies, the median pair", matrix[headline])],
        environment={
            "pairs": {f"{i}-{j}": round(value, 1) for (i, j), value in medians.items()},
            "slowest": round(min(medians.values()), 1),
        },
        why="; ".join(text for text in reservations if text) or None,
    )


def slow_pairs(medians: Mapping[Pair, float]) -> list[Pair]:
    """Those below 0.9 of the median pair."""
    limit = SLOW * percentile(list(medians.values()), 50)
    return [pair for pair, value in medians.items() if value < limit]


def _matrices(devices: Sequence[Device], budget_s: float) -> dict[str, dict[Pair, Sequence[float]]]:
    found: dict[str, dict[Pair, Sequence[float]]] = {id: {} for id in TITLES}
    pairs = [(i, j) for i in range(len(devices)) for j in range(len(devices)) if i != j]
    buffers = [_buffers(device) for device in devices]
    for i, j in pairs:
        runs = {
            "p2p.write": _copy_run(devices[i], devices[j], buffers[i][0], buffers[j][1], on=devices[i]),
            "p2p.read": _copy_run(devices[i], devices[j], buffers[i][0], buffers[j][1], on=devices[j]),
        }
        if i < j:
            runs["p2p.bidirectional"] = _both_run(devices[i], devices[j], buffers[i], buffers[j])
        for id, samples in interleave(runs, budget_s / len(pairs)).items():
            found[id][i, j] = samples
    return found


def _buffers(device: Device) -> tuple[DeviceBuffer, DeviceBuffer]:
    _current(device)
    pair = device.allocate(_SIZE), device.allocate(_SIZE)
    for buffer in pair:
        device.fill(buffer)
    return pair


def _current(device: Device) -> None:
    device.call("cuCtxSetCurrent", device.context)


def _queue(
    source: Device, target: Device, of: DeviceBuffer, to: DeviceBuffer, on: Device
) -> Callable[[], None]:
    def run() -> None:
        for _ in range(_COPIES):
            on.call(
                "cuMemcpyPeerAsync", to.pointer, target.context, of.pointer, source.context, _SIZE, on.stream
            )

    return run


def _copy_run(
    source: Device, target: Device, of: DeviceBuffer, to: DeviceBuffer, *, on: Device
) -> Callable[[], float]:
    """GB/s of copies on the stream of one of the two."""
    queue = _queue(source, target, of, to, on)
    _current(on)
    start, end = on.event(), on.event()

    def run() -> float:
        _current(on)
        on.record(start)
        queue()
        on.record(end)
        return _COPIES * _SIZE / on.elapsed_s(start, end) / 1e9

    return run


def _both_run(
    one: Device,
    other: Device,
    mine: tuple[DeviceBuffer, DeviceBuffer],
    theirs: tuple[DeviceBuffer, DeviceBuffer],
) -> Callable[[], float]:
    """GB/s of both directions together: each measured on its own device, while the other runs."""
    queues = (_queue(one, other, mine[0], theirs[1], one), _queue(other, one, theirs[0], mine[1], other))
    events = []
    for device in (one, other):
        _current(device)
        events.append((device.event(), device.event()))

    def run() -> float:
        for device, queue, (start, end) in zip((one, other), queues, events, strict=True):
            _current(device)
            device.record(start)
            queue()
            device.record(end)
        seconds = []
        for device, (start, end) in zip((one, other), events, strict=True):
            _current(device)
            seconds.append(device.elapsed_s(start, end))
        return 2 * _COPIES * _SIZE / max(seconds) / 1e9

    return run
