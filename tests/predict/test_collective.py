"""Collectives as numbers: published factors, closed forms, and laws of curves and fits."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.model import Curve
from wellfed.predict import collective as c
from wellfed.predict.comm_limit import limit_of

MIB = 2.0**20
SIZES = np.array([2.0**k for k in range(10, 31)])


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("send", "send_recv"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long)", "send_recv"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>", "all_reduce"),
        ("multimem_all_reduce_kernel", "all_reduce"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
    ],
)
def test_names(name: str, op: str | None) -> None:
    assert c.operation(name) == op


def test_factors_are_those_of_nccl_tests() -> None:
    assert c.bus_factor("all_reduce", 8) == pytest.approx(1.75)
    for op in ("all_gather", "reduce_scatter", "all_to_all"):
        assert c.bus_factor(op, 8) == pytest.approx(0.875)
    assert c.bus_factor("broadcast", 8) == 1.0
    assert c.bus_factor("all_reduce", 1) is None
    assert c.bus_factor("barrier", 8) is None
    assert c.bus_factor(None, 8) is None
    assert c.bus_bandwidth("all_reduce", 8, 4 * 2.0**30, 0.0) is None


def test_what_counts_as_the_message() -> None:
    assert c.message_bytes("all_reduce", 100, 100, "Float") == 400
    assert c.message_bytes("all_gather", 25136, 201088, "BFloat16") == 402176
    assert c.message_bytes("reduce_scatter", 800, 100, "Half") == 1600
    assert c.message_bytes("all_reduce", 100, 100, "Float8_e4m3fn") == 100
    assert c.message_bytes("all_reduce", 100, 100, "Tensor") == -1
    assert c.message_bytes("all_reduce", -1, -1, "Float") == -1


def test_network_share_of_a_hierarchical_all_reduce() -> None:
    # 4 nodes of 8: bytes on the network a GPU 2 (k-1)/k P/g, bus bandwidth P/t 2 (n-1)/n
    size, seconds, nodes, each = 8e9, 0.04, 4, 8
    bus = c.bus_bandwidth("all_reduce", nodes * each, size, seconds)
    assert bus is not None
    by_definition = 2 * (nodes - 1) / nodes * size / each / seconds
    assert c.nic_bandwidth(bus, nodes * each, nodes) == pytest.approx(by_definition)


@given(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]), st.integers(2, 512))
def test_a_ring_without_latency_runs_at_the_link(op: str, n: int) -> None:
    seconds = c.ring_seconds(op, n, 1e9, hop_s=0.0, link_bytes_s=4.5e11)
    assert c.bus_bandwidth(op, n, 1e9, seconds) == pytest.approx(4.5e11)
    hops = 2 * (n - 1) if op == "all_reduce" else n - 1
    assert c.ring_seconds(op, n, 0.0, hop_s=1e-6, link_bytes_s=4.5e11) == pytest.approx(hops * 1e-6)
    assert c.ring_seconds(op, 1, 1e9, hop_s=1e-6, link_bytes_s=4.5e11) == 0.0


@given(st.floats(1e-7, 1e-2), st.floats(1e6, 1e12))
def test_the_fit_gives_back_what_made_the_points(alpha: float, beta: float) -> None:
    fit = c.fit_alpha_beta(SIZES, alpha + SIZES / beta)
    assert fit is not None
    assert fit.alpha_s == pytest.approx(alpha, rel=1e-4, abs=1e-12)
    assert fit.beta_bytes_s == pytest.approx(beta, rel=1e-4)
    assert fit.half_bytes == pytest.approx(alpha * beta, rel=1e-3, abs=1.0)
    # at alpha x beta bytes half of the bandwidth is reached
    half = float(fit.seconds(np.array([fit.half_bytes]))[0])
    assert fit.half_bytes / half == pytest.approx(fit.beta_bytes_s / 2)


def test_a_fit_needs_two_sizes_and_time_that_grows() -> None:
    assert c.fit_alpha_beta(np.full(5, 1e6), np.arange(1.0, 6.0)) is None
    assert c.fit_alpha_beta(np.array([1.0, 2.0, 4.0]), np.array([3.0, 2.0, 1.0])) is None
    fit = c.fit_alpha_beta(np.array([1e6, 1e7]), np.array([1e-4, 2e-3]))
    assert fit is not None
    assert fit.alpha_s == 0.0


def curve(alpha: float = 30e-6, beta: float = 2e11) -> Curve:
    seconds = alpha + SIZES / beta
    return Curve(op="all_reduce", ranks=8, sizes=tuple(SIZES.tolist()), seconds=tuple(seconds.tolist()))


def test_a_curve_goes_through_its_points_and_on_beyond_them() -> None:
    known = curve()
    assert c.expected_seconds(known, SIZES) == pytest.approx(np.array(known.seconds))
    beyond = np.array([1.0, 2.0**34])
    assert c.expected_seconds(known, beyond) == pytest.approx(30e-6 + beyond / 2e11, rel=1e-3)
    between = c.expected_seconds(known, SIZES[:-1] * 2**0.5)
    assert (np.diff(between) > 0).all()
    single = Curve(op="all_reduce", ranks=8, sizes=(1e6,), seconds=(1e-4,))
    assert c.expected_seconds(single, [1e3, 1e6, 1e7]) == pytest.approx([1e-4, 1e-4, 1e-3])


def test_half_bandwidth_of_a_curve() -> None:
    # the best of a finite curve is a little below beta, so half of it comes a little early
    assert c.half_bandwidth_bytes(curve()) == pytest.approx(30e-6 * 2e11, rel=0.05)
    assert c.half_bandwidth_bytes(curve(alpha=0.0)) == SIZES[0]


def test_a_curve_from_calls_forgets_the_waiting() -> None:
    rng = np.random.default_rng(3)
    sizes = np.repeat(SIZES, 40)
    wait = np.where(rng.random(len(sizes)) < 0.7, rng.exponential(1e-3, len(sizes)), 0.0)
    found = c.curve_of("all_reduce", 8, sizes, 30e-6 + sizes / 2e11 + wait)
    assert found is not None
    assert np.array(found.seconds) == pytest.approx(np.array(curve().seconds), rel=1e-9)
    assert c.curve_of("all_reduce", 8, np.array([-1.0]), np.array([1.0])) is None


@pytest.mark.parametrize(
    ("kind", "sizes", "factor"),
    [
        ("latency", np.full(50, 64 * 1024.0), lambda rng, n: rng.uniform(0.95, 1.1, n)),
        ("bandwidth", np.full(50, 512 * MIB), lambda rng, n: rng.uniform(0.95, 1.1, n)),
        ("path", np.tile(SIZES[-6:], 10), lambda rng, n: rng.uniform(2.1, 2.3, n)),
        ("straggler", np.tile(SIZES, 10), lambda rng, n: 1.0 + rng.exponential(3.0, n)),
        ("unclear", np.full(50, 64 * 1024.0), lambda rng, n: rng.uniform(1.7, 1.8, n)),
    ],
)
def test_which_limit(kind: str, sizes: Any, factor: Any) -> None:
    rng = np.random.default_rng(1)
    found = limit_of(sizes, c.expected_seconds(curve(), sizes) * factor(rng, len(sizes)), curve())
    assert found is not None
    assert found.kind == kind
    assert found.ratio[0] <= found.ratio[1] <= found.ratio[2]


def test_contention_is_told_from_a_broken_path() -> None:
    sizes = np.full(60, 256 * MIB)
    beside = np.arange(60) % 2 == 0
    seconds = c.expected_seconds(curve(), sizes) * np.where(beside, 1.9, 1.0)
    slow = c.expected_seconds(curve(), sizes) * 1.9
    for times, kind in ((seconds, "contention"), (slow, "path")):
        found = limit_of(sizes, times, curve(), overlapped=beside)
        assert found is not None
        assert found.kind == kind
    assert limit_of(np.array([-1.0]), np.array([1.0]), curve()) is None
