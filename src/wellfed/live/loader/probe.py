"""One probe: a process that does what it is told over its socket, until that closes."""

import time
import warnings
from multiprocessing.connection import Connection
from typing import Any

from wellfed.live.loader.build import Spec, make_loader
from wellfed.live.loader.shape import shape_of
from wellfed.live.loader.wire import receive, send

READY_S = 1e-4
"""A batch that comes sooner was waiting."""
MAX_WAITS = 20_000


class Feed:
    """Batches without end: iterable datasets begin again when they are through. `turns` are the times to the first batch of
    the epochs after the first, in seconds."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.batches = iter(loader)
        self.turns: list[float] = []

    def next(self) -> Any:
        try:
            return next(self.batches)
        except StopIteration:
            began = time.perf_counter()
            self.batches = iter(self.loader)
            try:
                batch = next(self.batches)
            except StopIteration:
                raise RuntimeError("the dataset gives no batch") from None
            self.turns.append(time.perf_counter() - began)
            return batch


def run(tuner: Connection, spec: Spec) -> None:
    """Answers requests; what the user's code raises becomes an answer too."""
    warnings.filterwarnings("ignore")
    state: dict[str, Any] = {}
    while True:
        request = receive(tuner)
        try:
            reply = _ACTIONS[request["do"]](spec, state, request)
        except Exception as error:  # noqa: BLE001 - the user's code; its error is told, not ours
            reply = {"ok": False, "error": f"{type(error).__name__}: {str(error)[-600:]}"}
        send(tuner, {"ok": True, **reply})


def _open(spec: Spec, state: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Start a loader and take its first batch."""
    began = time.perf_counter()
    state["setting"] = request["setting"]
    loader = make_loader(spec, request["setting"])
    state["feed"] = Feed(loader)
    started = time.perf_counter()
    batch = state["feed"].next()
    first_s = time.perf_counter() - started
    return {
        "start_s": started - began,
        "first_s": first_s,
        "shape": list(shape_of(batch)),
        "workers": worker_pids(state["feed"]),
    }


def worker_pids(feed: Feed) -> list[int]:
    """Of the loader's processes; private to torch, so an empty list when it has gone."""
    return [worker.pid for worker in getattr(feed.batches, "_workers", [])]


def _block(spec: Spec, state: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Throw away `drain` batches, then time at least `seconds` and `least` batches, whole turns of the workers."""
    feed, setting = state["feed"], state["setting"]
    turn = max(int(setting["num_workers"]), 1)
    seconds, least, step_s = request["seconds"], request["least"], request.get("step_s") or 0.0
    limit = time.perf_counter() + request["limit_s"]
    clock = time.perf_counter
    began = clock()
    for _ in range(request["drain"]):
        feed.next()
        if clock() > limit:
            break
    drained = clock()
    cpu, count, waits = time.process_time(), 0, []
    end = drained + seconds
    while True:
        asked = clock()
        batch = feed.next()
        now = clock()
        if count < MAX_WAITS:
            waits.append(now - asked)
        count += 1
        del batch
        if step_s:
            time.sleep(step_s)
            now = clock()
        if (now >= end and count >= least and count % turn == 0) or now >= limit:
            break
    turns, feed.turns = feed.turns, []
    return {
        "batches": count,
        "seconds": now - drained,
        "drain_s": drained - began,
        "main_cpu_s": time.process_time() - cpu,
        "waits": _summary(waits, turn),
        "turns": turns,
        "workers": worker_pids(feed),
    }


def _summary(waits: list[float], turn: int) -> dict[str, Any]:
    ordered = sorted(waits)

    def at(share: float) -> float:
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    return {
        "sum": sum(waits),
        "p50": at(0.5),
        "p90": at(0.9),
        "p99": at(0.99),
        "max": ordered[-1],
        "ready": sum(one < READY_S for one in waits) / len(waits),
        "sawtooth": autocorrelation(waits, turn),
    }


def autocorrelation(values: list[float], lag: int) -> float | None:
    """Of the values at a lag, -1 to 1; None when there are fewer than 4 turns, or for a lag of one."""
    count = len(values) - lag
    if lag < 2 or count < 3 * lag:
        return None
    mean = sum(values) / len(values)
    spread = sum((one - mean) ** 2 for one in values)
    return (
        sum((values[i] - mean) * (values[i + lag] - mean) for i in range(count)) / spread if spread else None
    )


def _warm(spec: Spec, state: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    from wellfed.live.loader.stages import warm

    state.update(warm(spec))
    return {"first_s": state["first_s"]}


def _profile(spec: Spec, state: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    from wellfed.live.loader.stages import profile

    return {
        "first_s": state["first_s"],
        **profile(state["source"], state["batch"], request["seconds"]),
    }


def _gil(spec: Spec, state: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    from wellfed.live.loader.stages import gil

    return gil(spec, request["seconds"])


def _shards(spec: Spec, state: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    from wellfed.live.loader.shards import compare_workers

    return compare_workers(spec, request["context"])


def _replay(spec: Spec, state: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    from wellfed.live.loader.stages import replay

    return replay(state["batch"], request["seconds"])


def _device(spec: Spec, state: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    from wellfed.live.loader.device import copy_costs

    return copy_costs(spec)


_ACTIONS = {
    "open": _open,
    "block": _block,
    "warm": _warm,
    "profile": _profile,
    "gil": _gil,
    "shards": _shards,
    "replay": _replay,
    "device": _device,
}
