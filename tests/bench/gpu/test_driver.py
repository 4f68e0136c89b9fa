"""The driver tier against a libcuda of our own: what is planted is found, what is taken is given back, errors are said."""

import ctypes
from collections.abc import Callable

import pytest
from tests.bench.gpu.fake_cuda import FakeCuda

from wellfed.bench.gpu.driver.device import Device
from wellfed.bench.gpu.driver.engine import open_engine
from wellfed.bench.gpu.driver.library import DriverError
from wellfed.bench.gpu.engine import seconds_each

MIB = 1 << 20


def test_held_time_is_that_of_the_work_alone() -> None:
    fake = FakeCuda()
    with open_engine(0, fake.library()) as engine:
        a, b = engine.buffer(MIB), engine.buffer(MIB)
        assert seconds_each(engine, [engine.copy(a, b)], 8) == pytest.approx(MIB / fake.d2d_bps, rel=1e-4)
        assert seconds_each(engine, [engine.null()], 100) == pytest.approx(2e-6, rel=1e-4)
        assert seconds_each(engine, [engine.graph(engine.null(), 10)], 2) == pytest.approx(2e-5, rel=1e-4)


def test_lanes_run_side_by_side_and_the_longer_one_counts() -> None:
    fake = FakeCuda()
    with open_engine(0, fake.library()) as engine:
        device, host = engine.buffer(MIB), engine.host(MIB, pinned=True)
        up, down = engine.h2d(device, host, MIB), engine.d2h(host, device, MIB, lane=1)
        assert engine.held_s([[up] * 4, [down] * 4]) == pytest.approx(4 * MIB / fake.d2h_bps, rel=1e-4)


def test_copies_carry_the_bytes() -> None:
    with open_engine(0, FakeCuda().library()) as engine:
        device, pinned, pageable = (
            engine.buffer(MIB),
            engine.host(MIB, pinned=True),
            engine.host(MIB, pinned=False),
        )
        ctypes.memset(pageable.address, 0, MIB)
        engine.h2d(device, pinned, MIB)()
        engine.d2h(pageable, device, MIB)()
        assert ctypes.string_at(pageable.address, MIB) == ctypes.string_at(pinned.address, MIB)
        assert len(set(ctypes.string_at(pinned.address, MIB))) == 256


def test_all_is_given_back() -> None:
    fake = FakeCuda()
    with open_engine(0, fake.library()) as engine:
        before = len(fake.live)
        with engine.scope():
            engine.buffer(MIB)
            engine.host(MIB, pinned=True)
            engine.graph(engine.null(), 3)
        assert len(fake.live) == before
    assert fake.leaks() == []


@pytest.mark.parametrize(
    ("function", "call", "code", "says", "lost"),
    [
        ("cuInit", 1, 100, "no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE, 100)", False),
        ("cuModuleLoadData", 1, 2, "cuModuleLoadData: out of memory", False),
        ("cuMemAlloc_v2", 2, 2, "cuMemAlloc_v2: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)", False),
        ("cuEventSynchronize", 1, 700, "an illegal memory access was encountered", True),
        ("cuLaunchKernelEx", 3, 719, "cuLaunchKernelEx: unspecified launch failure", True),
    ],
)
def test_errors_are_said_and_nothing_is_kept(
    function: str, call: int, code: int, says: str, lost: bool
) -> None:
    fake = FakeCuda()
    fake.fail[function] = (call, code)
    with pytest.raises(DriverError) as caught, open_engine(0, fake.library()) as engine:
        a, b = engine.buffer(MIB), engine.buffer(MIB)
        seconds_each(engine, [engine.read(a), engine.triad(a, a, b)], 2)
    assert says in str(caught.value)
    assert caught.value.lost == lost
    assert lost or fake.leaks() == []


def test_a_failed_capture_ends_the_capture() -> None:
    fake = FakeCuda()
    with open_engine(0, fake.library()) as engine:
        fake.fail["cuLaunchKernelEx"] = (fake.calls["cuLaunchKernelEx"] + 1, 2)
        with pytest.raises(DriverError):
            engine.graph(engine.null(), 3)
        assert fake.capturing is None


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(DriverError, match="there is no device 1"):
        Device(1, FakeCuda().library())


def test_an_old_driver_lacks_a_function() -> None:
    fake = FakeCuda()
    library = fake.library()
    functions: dict[str, Callable[..., int]] = dict(library.functions)
    del functions["cuGraphInstantiateWithFlags"]
    library.functions = functions
    with open_engine(0, library) as engine, pytest.raises(Exception, match=r"older than CUDA 11\.4"):
        engine.graph(engine.null(), 2)
