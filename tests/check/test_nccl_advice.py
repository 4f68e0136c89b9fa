"""Advice on NCCL's variables: only where a fact or a measured curve speaks for it."""

from typing import Any

import msgspec
import numpy as np
import pytest

from wellfed.analyze.links import Link
from wellfed.check import judge_machine
from wellfed.check.nccl_advice import UNKNOWN, Advice, advise, below_link, link_of, pairs_of
from wellfed.model import Ceiling, Curve, Machine
from wellfed.model.devices import Gpu, RdmaPort
from wellfed.predict.collective import expected_seconds, link_curve

SIZES = tuple(2.0**k for k in range(10, 33, 2))


def machine(
    gpus: int = 8, name: str = "NVIDIA H200", rdma: tuple[RdmaPort, ...] = (), **variables: str
) -> Machine:
    cards = tuple(Gpu(index=k, name=name, vendor="nvidia", memory_bytes=140 << 30) for k in range(gpus))
    return Machine(gpus=cards, rdma=rdma, environment={"RANK": "0", **variables})


def port(k: int, rate: float, state: str = "ACTIVE") -> RdmaPort:
    return RdmaPort(device=f"mlx5_{k}", port=1, state=state, rate_gbps=rate, link_layer="InfiniBand")


def measured(factor: float, *, n: int = 8, op: str = "all_reduce", alpha: float = 0.0) -> Ceiling:
    """A curve that takes so many times what a sound ring over the H200's links does at most."""
    link = link_curve(op, n, "nvlink", 4.5e11, "catalogue")
    assert link is not None
    seconds = tuple((expected_seconds(link, np.array(SIZES)) * factor + alpha).tolist())
    curve = Curve(op=op, ranks=n, sizes=SIZES, seconds=seconds, backend="nccl", source="measured here")
    return ceiling(f"{op.replace('_', '-')}.nccl.{n}", 1.0, curve=curve)


def ceiling(id: str, value: float, **more: Any) -> Ceiling:
    figures: dict[str, Any] = dict.fromkeys(("best", "median", "p10", "p90"), value)
    return Ceiling(id=id, title=id, method="", hardware_key="", unit="x", n=9, cv=0.01, **figures, **more)


def of(found: tuple[Advice, ...]) -> dict[str, Advice]:
    return {one.setting: one for one in found}


def test_a_sound_machine_gets_no_advice() -> None:
    assert advise(machine()) == ()
    assert advise(machine(), [measured(0.95)]) == ()
    assert advise(machine(rdma=(port(0, 400), port(1, 400)))) == ()
    assert advise(Machine()) == ()


def test_a_slow_path_is_sent_to_its_cause() -> None:
    found = of(advise(machine(NCCL_P2P_DISABLE="1"), [measured(6.0)]))
    assert set(found) == {"NCCL_P2P_DISABLE"}
    assert found["NCCL_P2P_DISABLE"].value is None and "6.0 times" in found["NCCL_P2P_DISABLE"].worth
    found = of(advise(machine(), [measured(6.0)]))
    assert set(found) == {"NCCL_DEBUG"} and "6.0 times what its link needs" in found["NCCL_DEBUG"].speaks
    assert of(advise(machine(NCCL_P2P_DISABLE="1")))["NCCL_P2P_DISABLE"].worth == UNKNOWN


def test_switches_matter_where_there_is_something_to_switch_off() -> None:
    assert advise(machine(gpus=1, NCCL_P2P_DISABLE="1")) == ()
    assert advise(machine(NCCL_IB_DISABLE="1")) == ()
    assert "NCCL_IB_DISABLE" in of(advise(machine(rdma=(port(0, 400),), NCCL_IB_DISABLE="1")))
    assert advise(machine(NCCL_P2P_DISABLE="0", NCCL_SHM_DISABLE="")) == ()


def test_what_is_pinned_is_named_and_one_of_them_corrupts_data() -> None:
    found = of(advise(machine(NCCL_ALGO="Ring", NCCL_PROTO="LL128")))
    assert "corrupts" in found["NCCL_PROTO"].danger and "corrupts" not in found["NCCL_ALGO"].danger


def test_switches_that_add_up_need_more_than_four_gpus() -> None:
    assert "NCCL_NVLS_ENABLE" in of(advise(machine(NCCL_NVLS_ENABLE="0")))
    assert "literature" in of(advise(machine(NCCL_NVLS_ENABLE="0")))["NCCL_NVLS_ENABLE"].worth
    assert advise(machine(gpus=4, NCCL_NVLS_ENABLE="0")) == ()
    assert advise(machine(name="NVIDIA L40S", NCCL_NVLS_ENABLE="0")) == ()


def test_slow_ports_stay_out_only_where_they_are_active_and_nobody_chose() -> None:
    ports = (port(0, 400), port(1, 400), port(2, 100))
    assert of(advise(machine(rdma=ports)))["NCCL_IB_HCA"].value == "=mlx5_0:1,mlx5_1:1"
    assert advise(machine(rdma=ports, NCCL_IB_HCA="mlx5_0")) == ()
    assert advise(machine(rdma=(port(0, 400), port(2, 100, "DOWN")))) == ()
    assert advise(machine(gpus=0, rdma=ports)) == ()


def test_relaxed_ordering_is_for_virtual_machines_with_rdma() -> None:
    here = machine(rdma=(port(0, 400),))
    virtual = msgspec.structs.replace(
        here, kernel=msgspec.structs.replace(here.kernel, virtualization="hyper-v")
    )
    found = of(advise(virtual))["NCCL_IB_PCI_RELAXED_ORDERING"]
    assert found.worth == UNKNOWN and "check the data" in found.danger
    assert advise(here) == ()


def test_contention_is_advised_where_it_was_measured() -> None:
    found = of(advise(machine(), [ceiling("comm-overlap.nccl.8.gemm", 1.5)]))["NCCL_MAX_CTAS"]
    assert (
        "1.50 times" in found.speaks and "measured" in found.worth and "lowers the bandwidth" in found.danger
    )
    for calm in (
        ceiling("comm-overlap.nccl.8.gemm", 1.1),
        ceiling("comm-overlap.gloo.2.gemm", 3.0),
        ceiling("comm-overlap.nccl.8.gemm", 2.0, verdict="noisy"),
    ):
        assert advise(machine(), [calm]) == ()


def test_buckets_below_twice_the_half_bandwidth_size() -> None:
    far = of(advise(machine(name="unknown"), [measured(1.0, alpha=2e-3)]))["bucket_cap_mb"]
    assert int(far.value or 0) > 100 and "half of the bandwidth" in far.speaks


def test_links_are_those_of_the_catalogue_or_none() -> None:
    assert isinstance(link_of(machine(), 8), Link)
    assert link_of(machine(), 1) is None and link_of(machine(gpus=4), 8) is None
    assert link_of(machine(name="NVIDIA Nothing"), 8) is None
    assert below_link(machine(name="NVIDIA Nothing"), [measured(6.0)]) == ()
    assert below_link(machine(), [measured(6.0), ceiling("x", 1.0)])[0].limit.kind == "path"


def test_matrices_of_pairs() -> None:
    matrix = [[None if i == j else 390.0 for j in range(4)] for i in range(4)]
    matrix[1][2] = 200.0
    found = pairs_of(
        [ceiling("p2p.write", 390.0, environment={"matrix": matrix}), ceiling("h2d.pinned", 55.0)]
    )
    assert [(id, pairs.slow_pairs) for id, pairs in found] == [("p2p.write", ((1, 2, 200.0),))]


@pytest.mark.parametrize("gpus", [0, 1])
def test_one_gpu_has_nobody_to_talk_to(gpus: int) -> None:
    verdict = next(v for v in judge_machine(machine(gpus)) if v.code == "ENV25")
    assert verdict.verdict == "not-judged"


def test_the_check_says_what_was_measured() -> None:
    here = machine(rdma=(port(0, 400),))
    here = msgspec.structs.replace(here, kernel=msgspec.structs.replace(here.kernel, virtualization="none"))
    for factor, kind in ((1.0, "pass"), (5.0, "finding")):
        verdict = next(v for v in judge_machine(here, ceilings=[measured(factor)]) if v.code == "ENV25")
        assert verdict.verdict == kind, verdict.message
