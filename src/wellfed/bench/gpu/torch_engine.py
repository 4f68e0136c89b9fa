"""The torch tier as an Engine: CUDA, and ROCm by the same interface."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wellfed.bench.gpu.engine import NODE_WORDS
from wellfed.model import WellfedError

Work = Callable[[], object]
_CYCLES_PER_S = 2.5e9
"""Above any clock of today's devices: the hold lasts as long as is asked for, or longer."""
"""256 KiB: an activation of 16 tokens of a model of 4096."""
_HOLD_S = 0.5e-3
_HOLD_MAX_S = 2.0


class TorchEngine:
    """See `Engine`."""

    tier: str = "torch"

    def __init__(self, torch: Any, index: int = 0) -> None:
        self.torch = torch
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        properties = torch.cuda.get_device_properties(self.device)
        self.name = str(properties.name)
        self.address = _address(properties)
        self.capability: tuple[int, int] = torch.cuda.get_device_capability(self.device)
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0))
        self.versions: dict[str, Any] = {
            "torch": str(torch.__version__),
            "torch_cuda": torch.version.cuda or torch.version.hip,
        }
        self.streams = (torch.cuda.current_stream(), torch.cuda.Stream())
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        self._hold_s = _HOLD_S

    @contextmanager
    def scope(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.torch.cuda.synchronize()
            self.torch.cuda.empty_cache()

    def free_bytes(self) -> int:
        return int(self.torch.cuda.mem_get_info()[0])

    def buffer(self, size: int) -> Any:
        return self.torch.empty(size // 4, dtype=self.torch.float32, device=self.device).normal_()

    def host(self, size: int, *, pinned: bool) -> Any:
        """Each page written: pages that were never touched are all the same page of zeros."""
        host = self.torch.empty(size // 4, dtype=self.torch.float32, pin_memory=pinned)
        block = self.torch.randn(min(1 << 18, size // 4))
        for part in host.split(len(block)):
            part.copy_(block[: len(part)])
        return host

    def copy(self, out: Any, source: Any) -> Work:
        return lambda: out.copy_(source)

    def read(self, source: Any) -> Work:
        """A sum over the long axis of a tall matrix: each block of threads reads a long row."""
        rows = source.view(-1, 65536 if source.numel() % 65536 == 0 else 4096)
        out = self.torch.empty(rows.shape[0], dtype=source.dtype, device=self.device)
        return lambda: self.torch.sum(rows, dim=1, out=out)

    def triad(self, out: Any, left: Any, right: Any) -> Work:
        return lambda: self.torch.add(left, right, alpha=3.0, out=out)

    def h2d(self, device: Any, host: Any, size: int, *, lane: int = 0) -> Work:
        return self._transfer(device[: size // 4], host[: size // 4], lane)

    def d2h(self, host: Any, device: Any, size: int, *, lane: int = 0) -> Work:
        return self._transfer(host[: size // 4], device[: size // 4], lane)

    def null(self) -> Work:
        """A kernel that waits for no cycles."""
        sleep = self.torch.cuda._sleep
        return lambda: sleep(0)

    def add(self) -> Work:
        """A small operation of torch, over all slices of the L2 cache: with one word the place of its address made 6 % of
        difference (H200)."""
        some = self.torch.zeros(NODE_WORDS, device=self.device)
        return lambda: some.add_(1)

    def graph(self, work: Work, times: int) -> Work:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for _ in range(times):
                work()

        def replay(keep: Work = work) -> None:
            """The graph holds addresses, not tensors: without `keep` the memory of the work goes elsewhere."""
            graph.replay()

        return replay

    def held_s(self, lanes: Sequence[Sequence[Work]]) -> float:
        """The hold is a wait of fixed length; when the queueing took longer it is lengthened and all is done again."""
        start, ends = self._events[0], self._events[1:]
        while True:
            self.torch.cuda._sleep(int(self._hold_s * _CYCLES_PER_S))
            start.record(self.streams[0])
            for lane, works in enumerate(lanes):
                if lane:
                    self.streams[lane].wait_event(start)
                for work in works:
                    work()
                ends[lane].record(self.streams[lane])
            late = start.query() and self._hold_s < _HOLD_MAX_S
            for end in ends[: len(lanes)]:
                end.synchronize()
            if not late:
                return float(max(start.elapsed_time(end) for end in ends[: len(lanes)])) / 1e3
            self._hold_s *= 2

    def event_s(self, work: Work) -> float:
        start, end = self._events[:2]
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def synchronize(self) -> None:
        self.streams[0].synchronize()

    def _transfer(self, out: Any, source: Any, lane: int) -> Work:
        if lane == 0:
            return lambda: out.copy_(source, non_blocking=True)
        stream = self.streams[lane]

        def run() -> None:
            with self.torch.cuda.stream(stream):
                out.copy_(source, non_blocking=True)

        return run


@contextmanager
def open_engine(index: int = 0) -> Iterator[TorchEngine]:
    """The device of that number. Raises WellfedError when torch is missing, or sees no device."""
    torch = import_torch()
    if not torch.cuda.is_available():
        raise WellfedError("torch sees no GPU", hint='python -c "import torch; torch.cuda.init()"')
    yield TorchEngine(torch, index)


def import_torch() -> Any:
    """torch. Raises WellfedError when it can't be imported."""
    try:
        import torch
    except (ImportError, OSError) as error:
        raise WellfedError(f"torch cannot be imported: {error}", hint="pip install torch") from error
    return torch


def _address(properties: Any) -> str | None:
    domain, bus, device = (
        getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")
    )
    if domain is None or bus is None or device is None:
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"
