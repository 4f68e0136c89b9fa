"""The torch tier without a GPU: what it asks of torch, with a torch of our own."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from wellfed.bench.gpu import engine as engines
from wellfed.bench.gpu.torch_engine import TorchEngine, import_torch, open_engine
from wellfed.model import WellfedError


class Event:
    """Begins to count when the hold ends: `late` events were over before the queueing was."""

    late = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, stream: object = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        Event.late -= 1
        return Event.late >= 0

    def elapsed_time(self, end: "Event") -> float:
        return 3.0


def fake_torch(sleeps: list[int], *, available: bool = True) -> Any:
    stream = SimpleNamespace(synchronize=lambda: None, wait_event=lambda event: None)
    properties = SimpleNamespace(
        name="NVIDIA H200", pci_domain_id=0, pci_bus_id=15, pci_device_id=0, L2_cache_size=1
    )
    cuda = SimpleNamespace(
        is_available=lambda: available,
        set_device=lambda device: None,
        get_device_properties=lambda device: properties,
        get_device_capability=lambda device: (9, 0),
        current_stream=lambda: stream,
        Stream=lambda: stream,
        Event=Event,
        _sleep=sleeps.append,
    )
    return SimpleNamespace(
        cuda=cuda,
        device=lambda kind, index: (kind, index),
        version=SimpleNamespace(cuda="13.0", hip=None),
        __version__="2.11",
    )


def test_a_hold_that_was_too_short_is_doubled_and_done_again() -> None:
    sleeps: list[int] = []
    engine = TorchEngine(fake_torch(sleeps))
    Event.late = 2
    ran: list[int] = []
    assert engine.held_s([[lambda: ran.append(1)] * 3]) == pytest.approx(0.003)
    assert len(ran) == 9 and sleeps[1] == 2 * sleeps[0] and sleeps[2] == 4 * sleeps[0]
    assert engine.address == "0000:0f:00.0"


def test_no_torch_and_no_gpu_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch([], available=False))
    with pytest.raises(WellfedError, match="torch sees no GPU"), open_engine():
        pass
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(WellfedError, match="torch cannot be imported"):
        import_torch()


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("CUDA error: an illegal memory access was encountered\nmore", True),
        ("HIP error: unspecified launch failure", True),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", False),
        ("CUDA error: out of memory", False),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_which_words_of_torch_mean_that_the_device_is_lost(text: str, lost: bool) -> None:
    assert engines.is_lost(RuntimeError(text)) == lost


@pytest.mark.torch
def test_products_are_made_by_the_real_torch() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU here")
    with open_engine() as engine:
        assert engine.held_s([[engine.null()]]) > 0
