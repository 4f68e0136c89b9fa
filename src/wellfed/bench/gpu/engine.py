"""One way to drive a device for both tiers, so that both are measured by the same code.

Times are the device's own: an event before and one after, with all the work already queued behind a kernel that holds
the stream. What the host needs for a launch is then in no number but those that are about launching.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

import msgspec

from wellfed.bench.setup import Setup
from wellfed.model import Machine, WellfedError
from wellfed.model.devices import Gpu

TIERS = ("driver", "torch")
NODE_WORDS = 65_536
"""Of the small operation that a graph's node is: on all slices of the L2 cache."""
Work = Callable[[], object]
"""Puts one piece of work on a stream and returns at once."""


class Engine(Protocol):
    """A device and how to give it work. Buffers are of bytes, filled with random floats; `lane` picks one of two
    streams; lane 0 is where everything else runs."""

    tier: str
    name: str
    address: str | None
    capability: tuple[int, int]
    l2_bytes: int
    versions: dict[str, Any]

    def scope(self) -> AbstractContextManager[None]:
        """What is taken inside is given back at its end."""

    def free_bytes(self) -> int: ...
    def buffer(self, size: int) -> Any: ...
    def host(self, size: int, *, pinned: bool) -> Any: ...
    def copy(self, out: Any, source: Any) -> Work: ...
    def read(self, source: Any) -> Work: ...
    def triad(self, out: Any, left: Any, right: Any) -> Work: ...
    def h2d(self, device: Any, host: Any, size: int, *, lane: int = 0) -> Work: ...
    def d2h(self, host: Any, device: Any, size: int, *, lane: int = 0) -> Work: ...
    def null(self) -> Work: ...
    def add(self) -> Work: ...
    def graph(self, work: Work, times: int) -> Work: ...

    def held_s(self, lanes: Sequence[Sequence[Work]]) -> float:
        """Seconds from the first begin to the last end of all work on the device, lanes side by side."""

    def event_s(self, work: Work) -> float:
        """Seconds between two events around the work on an idle stream: what the host needs to queue it is inside."""

    def synchronize(self) -> None: ...


def seconds_each(engine: Engine, works: Sequence[Work], times: int = 1) -> float:
    """Seconds of one of `works`, which are gone through `times` times, in turn."""
    return engine.held_s([list(works) * times]) / (len(works) * times)


def with_tier(setup: Setup, tier: str) -> Setup:
    """The same, by one tier alone."""
    return msgspec.structs.replace(setup, options=msgspec.structs.replace(setup.options, tier=tier))


@contextmanager
def open_engines(setup: Setup) -> Iterator[dict[str, Engine]]:
    """The tiers that are there, driver first: it gives the same number whether torch is installed or not. Raises
    WellfedError, with the reason of each, when there is none."""
    found: dict[str, Engine] = {}
    reasons = []
    with ExitStack() as stack:
        for tier, opener in {"driver": _open_driver, "torch": _open_torch}.items():
            if setup.options.tier not in (None, tier):
                continue
            try:
                found[tier] = stack.enter_context(opener())
            except WellfedError as error:
                reasons.append(f"{tier} tier: {error}")
        if not found:
            raise WellfedError("; ".join(reasons), hint="nvidia-smi")
        try:
            yield found
        except (WellfedError, RuntimeError) as error:
            if is_lost(error):
                # No further call of this process would work. Benchmarks run in a child, whose end costs this one only.
                raise SystemExit(str(error).partition("\n")[0]) from error
            raise


def is_lost(error: Exception) -> bool:
    """Whether the device can't be used any more in this process. torch says so in words only."""
    text = str(error).partition("\n")[0]
    said = ("CUDA error" in text or "HIP error" in text) and "_STATUS_NOT_SUPPORTED" not in text
    return bool(getattr(error, "lost", False)) or (said and "out of memory" not in text)


@contextmanager
def open_torch(setup: Setup) -> Iterator[Any]:
    """The torch tier's engine alone, for what libcuda has no kernels for. Raises WellfedError when it is missing."""
    if setup.options.tier == "driver":
        raise WellfedError(
            "this takes torch, and --tier driver does without", hint="wellfed measure --tier torch"
        )
    with open_engines(with_tier(setup, "torch")) as engines:
        yield engines["torch"]


def _open_driver() -> AbstractContextManager[Engine]:
    from wellfed.bench.gpu.driver.engine import open_engine

    return open_engine()


def _open_torch() -> AbstractContextManager[Engine]:
    from wellfed.bench.gpu.torch_engine import open_engine

    return open_engine()


def the_gpu(machine: Machine, engine: Engine) -> Gpu | None:
    """What was seen of the engine's device, by its PCI address; the only one there is when it does not tell."""
    for gpu in machine.gpus:
        if engine.address is not None and gpu.address == engine.address:
            return gpu
    return machine.gpus[0] if len(machine.gpus) == 1 else None


def has_gpu(machine: Machine) -> str | None:
    """For `needs`: why there is nothing to measure."""
    return None if machine.gpus else "no GPU was seen on this machine"


@contextmanager
def near(gpu: Gpu | None) -> Iterator[bool]:
    """Run on the CPUs beside the GPU, so that host buffers touched inside lie in the memory beside it. Yields
    whether that could be done."""
    wanted = set(gpu.cpu_affinity or ()) if gpu is not None else set()
    if not wanted or not hasattr(os, "sched_setaffinity"):
        yield False
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, wanted & before or before)
        yield bool(wanted & before)
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def scopes(engines: Mapping[str, Engine]) -> Iterator[None]:
    """The scope of each of them."""
    with ExitStack() as stack:
        for engine in engines.values():
            stack.enter_context(engine.scope())
        yield
