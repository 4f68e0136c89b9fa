"""Where ranks, interrupts and neighbours look wrong and are not, and where nobody can tell."""

from typing import Any

import msgspec
import pytest
from cases.irq import NIC, _placed, _taken
from cases.numa import GIB, GPU, NODES, _memory, _rank, _systemd
from host_cases import machine
from hypothesis import given, settings
from hypothesis import strategies as st

from wellfed.check import judge_machine
from wellfed.check.host.numa_ranks import numbers
from wellfed.model import Verdict


def judge(code: str, layer: dict[str, Any], intent: str = "training", **gaps: str) -> Verdict:
    seen = msgspec.structs.replace(machine(layer), gaps=gaps)
    return next(v for v in judge_machine(seen, intent=intent) if v.code == code)


def far(a: int, b: int) -> list[dict[str, Any]]:
    return [{**NODES[0], "distances": [10, a]}, {**NODES[1], "distances": [b, 10]}]


BOUND = {"policy": "bind:1", "pages": {"N1": 10 * GIB >> 12}}
DAEMON = {"name": "nvidia-cuda-mps-server", "allowed": [0], "thread_cpus": [0]}
FAR = {"allowed": [0, 1], "thread_cpus": [0, 1]}
SPREAD = {"pages": {"N0": 1_000_000, "N1": 1_000_000}}
GPU0 = {**GPU, "cpu_affinity": [0, 1, 2, 3], "numa_node": 0}

QUIET: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("daemons run where they like", "NUMA02", _rank(**DAEMON), "training", "not-judged"),
    ("halves of one socket are near each other", "NUMA02", {**_rank(**FAR), "numa": far(12, 12)}, "training", "not-judged"),
    ("a parent of GPUs on both nodes", "NUMA02", {**_rank(**FAR), "gpus": [GPU0, GPU], "processes": [{"pid": 7, "gpus": [0, 1], **FAR}]}, "training", "not-judged"),
    ("a GPU that is near everything is NUMA01's", "NUMA02", {**_rank(**FAR), "gpus": [{**GPU, "cpu_affinity": list(range(8)), "numa_node": None}]}, "training", "not-judged"),
    ("one node", "NUMA02", {**_rank(**FAR), "numa": NODES[:1]}, "training", "not-judged"),
    ("threads that could not be looked at", "NUMA02", _rank(allowed=[4]), "training", "not-judged"),
    ("memory that is interleaved on purpose", "NUMA03", _rank(**SPREAD, policy="interleave:0-1"), "training", "not-judged"),
    ("and by weights", "NUMA03", _rank(**SPREAD, policy="weighted interleave:0-1"), "training", "not-judged"),
    ("hardly any memory", "NUMA03", _rank(pages={"N0": 100}, policy="default"), "training", "not-judged"),
    ("memory of the GPU itself (GH200)", "NUMA03", {**_rank(pages={"N1": 100_000, "N9": 9_000_000}, policy="default"), "numa": [*NODES, {"id": 9}]}, "training", "pass"),
    ("another rank's memory is not ours", "NUMA03", _rank(policy="default"), "training", "not-judged"),
    ("preferring is not binding", "NUMA04", {**_rank(pages=BOUND["pages"], policy="prefer:1"), **_memory((100, 0, 0), (100, 0, 0))}, "training", "pass"),
    ("cached files make room", "NUMA04", {**_rank(**BOUND), **_memory((100, 0, 0), (100, 1, 60))}, "training", "pass"),
    ("a machine whose memory is full of files everywhere", "NUMA09", _memory((100, 0, 70), (100, 0, 80)), "training", "pass"),
    ("one node", "NUMA09", {"numa": [{**NODES[0], "mem_bytes": 1, "mem_free_bytes": 0, "file_bytes": 1}]}, "training", "not-judged"),
    ("nodes without memory count oddly", "NUMA10", {"numa": [{**node, "mem_bytes": 0, "hits": 0, "misses": 0, "foreign": 9} for node in NODES]}, "training", "not-judged"),
    ("systemd only prefers", "NUMA13", _systemd("preferred", 0), "training", "pass"),
    ("Azure binds to the nodes with CPUs", "NUMA13", {**_systemd("bind", 0, 1), "numa": [*NODES, {"id": 2}, {"id": 3}]}, "training", "pass"),
    ("a container has a systemd of its own", "NUMA13", {**_systemd("bind", 0), "container": {"kind": "docker"}}, "training", "not-judged"),
    ("interrupts of a guest", "IRQ01", {**_placed(0, 1, 2, 3), "cpu": {"hypervisor": "kvm"}}, "training", "not-judged"),
    ("spread over all CPUs", "IRQ01", _placed(0, 1, 2, 3, 4, 5, 6, 7), "training", "pass"),
    ("halves of one socket", "IRQ01", {**_placed(0, 1, 2, 3), "numa": far(11, 11)}, "training", "not-judged"),
    ("an adapter of no node", "IRQ01", {**_placed(0, 1, 2, 3), "pci": [{"address": "0000:1a:00.0"}]}, "training", "not-judged"),
    ("disks, whose interrupts the kernel manages", "IRQ01", {**_placed(), "irqs": [{"number": 9, "kind": "nvme", "address": "0000:61:00.0", "count": 10**9, "effective": [0]}]}, "training", "not-judged"),
    ("disks again", "IRQ03", {"irqs": [{"number": n, "kind": "nvme", "address": "0000:61:00.0", "count": 10**9, "busiest": 0, "max_share": 1.0} for n in range(8)]}, "training", "not-judged"),
    ("an adapter with one queue", "IRQ03", _taken(0, 0, 0), "training", "not-judged"),
    ("vectors that were moved about", "IRQ03", {"irqs": [{**irq, "max_share": 0.4} for irq in _taken(0, 0, 0, 1)["irqs"]]}, "training", "not-judged"),
    ("a machine that was just started", "IRQ04", {"kernel": {"softnet": {"processed": 1000, "dropped": 0, "squeezed": 9}, "sysctls": {"net.core.netdev_budget": "300"}}}, "training", "not-judged"),
    ("a budget that was raised already", "IRQ04", {"kernel": {"softnet": {"processed": 10**8, "dropped": 0, "squeezed": 10**7}, "sysctls": {"net.core.netdev_budget": "600"}}}, "training", "pass"),
    ("a container that is not shown the budget", "IRQ04", {"kernel": {"softnet": {"processed": 10**8, "dropped": 0, "squeezed": 10**7}}}, "training", "not-judged"),
    ("a node without memory is not full", "NUMA09", {"numa": [{**node, "mem_bytes": 0, "mem_free_bytes": 0, "file_bytes": 0} for node in NODES]}, "training", "not-judged"),
    ("nothing is isolated", "IRQ05", {"cpu": {"isolated": []}, "kernel": {"default_irq_affinity": [0], "workqueue_cpumask": [0]}}, "training", "not-judged"),
    ("eight queues are enough", "IRQ06", {"cpu": {"logical": 192}, "nics": [{"name": "e", "driver": "ena", "is_physical": True, "state": "up", "rx_queues": 8, "rps_cpus": 0}]}, "throughput", "pass"),
    ("adapters with queues of their own", "IRQ06", {"cpu": {"logical": 192}, "nics": [{"name": "e", "driver": "mlx5_core", "is_physical": True, "state": "up", "rx_queues": 1, "rps_cpus": 0}]}, "throughput", "not-judged"),
    ("in a pod the kubelet chooses", "LIM08", {"container": {"kind": "kubernetes"}, "processes": [{"pid": 7, "gpus": [0], "oom_score_adj": 937}]}, "training", "not-judged"),
    ("who is killed first outside of training", "LIM08", {"processes": [{"pid": 7, "gpus": [0], "oom_score_adj": 937}]}, "latency", "not-judged"),
    ("a daemon or two on a large machine", "CPU21", {"cpu": {"foreign_pct": 90.0, "allowed": list(range(128))}}, "training", "pass"),
    ("a tick or two on a small one", "CPU21", {"cpu": {"foreign_pct": 20.0, "allowed": [0, 1]}}, "training", "pass"),
    ("virtio tells no rate", "NET22", {"nics": [{**NIC, "speed_mbps": None, "busy_mbps": 900.0}]}, "training", "not-judged"),
    ("nobody looked twice", "NET22", {"nics": [NIC]}, "training", "not-judged"),
    ("an interface that is down", "NET22", {"nics": [{**NIC, "state": "down"}]}, "training", "not-judged"),
    ("the memory of GPUs is not slow memory", "MEM19", {"gpus": [{"c2c": True}], "numa": [{**NODES[0], "mem_bytes": 1, "interleave_weight": 1}, {"id": 1, "mem_bytes": 1, "interleave_weight": 1}]}, "throughput", "not-judged"),
    ("two sockets are alike", "MEM19", {"seen": ("gpus",), "numa": [{**node, "mem_bytes": 1, "interleave_weight": 1} for node in NODES]}, "throughput", "not-judged"),
    ("20 is enough for some", "ENV08", {"environment": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:20"}}, "training", "pass"),
    ("200 is not 20", "ENV08", {"environment": {"PYTORCH_ALLOC_CONF": "max_split_size_mb:200,expandable_segments:True"}}, "training", "pass"),
    ("another option that is small", "ENV08", {"environment": {"PYTORCH_ALLOC_CONF": "pinned_num_register_threads:8,max_split_size_mb:512"}}, "training", "pass"),
    ("a hidden value", "ENV08", {"environment": {"PYTORCH_CUDA_ALLOC_CONF": "[redacted]"}}, "training", "not-judged"),
    ("1 with the whole machine", "ENV13", {"numa": NODES, "environment": {"NCCL_IGNORE_CPU_AFFINITY": "1"}, "gpus": [GPU, GPU0], "cpu": {"allowed": list(range(8)), "logical": 8}}, "training", "pass"),
    ("1 with a whole node", "ENV13", {"numa": NODES, "environment": {"NCCL_IGNORE_CPU_AFFINITY": "1"}, "gpus": [GPU, GPU0], "cpu": {"allowed": [0, 1, 2, 3], "logical": 8}}, "training", "pass"),
    ("a machine that has two CPUs", "ENV13", {"environment": {"RANK": "0"}, "gpus": [GPU, GPU0], "cpu": {"allowed": [0, 1], "logical": 2}}, "training", "pass"),
    ("one GPU talks to nobody", "ENV13", {"environment": {"RANK": "0"}, "gpus": [GPU], "cpu": {"allowed": [0, 1], "logical": 8}}, "training", "not-judged"),
    ("indices of one model agree", "ENV17", {"environment": {"RANK": "0"}, "gpus": [GPU] * 8}, "training", "pass"),
    ("AMD has no such order", "ENV17", {"environment": {"RANK": "0"}, "gpus": [{"vendor": "amd", "name": "A"}, {"vendor": "amd", "name": "B"}]}, "training", "not-judged"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "layer", "intent", "verdict"),
    [row[1:] for row in QUIET],
    ids=[f"{row[1]}-{row[0]}" for row in QUIET],
)
def test_it_is_no_finding(code: str, layer: dict[str, Any], intent: str, verdict: str) -> None:
    found = judge(code, layer, intent)
    assert found.verdict == verdict, found.message
    assert found.message


# -- who else uses a GPU -----------------------------------------------------------------------------------

HELD = {
    "gpus": [{**GPU, "processes": [{"pid": 7}]}],
    "processes": [{"pid": 7, "gpus": [0], "is_foreign": False}],
}


def held(sees: bool | None, **fields: Any) -> Verdict:
    process = {"pid": 7, "gpus": [0], **fields}
    return judge("GPU27", {**HELD, "processes": [process], "container": {"sees_host_processes": sees}})


@pytest.mark.parametrize(
    ("sees", "foreign", "verdict"),
    [
        (True, False, "pass"), (True, True, "finding"), (True, None, "not-judged"),
        (False, False, "not-judged"), (False, True, "finding"), (False, None, "not-judged"),
        (None, False, "not-judged"), (None, True, "finding"), (None, None, "not-judged"),
    ],
)  # fmt: skip
def test_a_gpu_is_free_only_for_those_who_can_see_all(
    sees: bool | None, foreign: bool | None, verdict: str
) -> None:
    assert held(sees, is_foreign=foreign).verdict == verdict


def test_a_gpu_that_nobody_holds() -> None:
    empty = {"gpus": [{**GPU, "processes": []}], "seen": ("processes",)}
    assert judge("GPU27", {**empty, "container": {"sees_host_processes": True}}).verdict == "pass"
    assert judge("GPU27", {**empty, "container": {"sees_host_processes": False}}).verdict == "not-judged"
    silent = {
        "gpus": [{**GPU, "processes": None}],
        "seen": ("processes",),
        "container": {"sees_host_processes": True},
    }
    assert judge("GPU27", silent).verdict == "not-judged", "this GPU does not list its processes"


# -- how bad it is -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "verdict", "severity"),
    [
        ({"allowed": [0], "thread_cpus": [0, 1]}, "finding", "warning"),
        ({"allowed": [4], "thread_cpus": [4, 1]}, "finding", "info"),
        ({"allowed": list(range(8)), "thread_cpus": list(range(8))}, "finding", "info"),
        ({"allowed": [0]}, "finding", "warning"),
        ({"allowed": [4], "thread_cpus": [4, 5, 6]}, "pass", None),
    ],
)
def test_a_rank_that_may_run_anywhere_is_a_note(
    fields: dict[str, Any], verdict: str, severity: str | None
) -> None:
    found = judge("NUMA02", _rank(**fields))
    assert (found.verdict, found.severity if severity else None) == (verdict, severity)


@settings(max_examples=40)
@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
def test_memory_is_judged_by_its_share(far_pages: int, near_pages: int) -> None:
    found = judge("NUMA03", _rank(pages={"N0": far_pages, "N1": near_pages}, policy="default"))
    total = far_pages + near_pages
    if total < 16384:
        assert found.verdict == "not-judged"
    elif near_pages >= 0.95 * total:
        assert found.verdict == "pass"
    else:
        assert (found.verdict, found.severity) == ("finding", "warning" if near_pages < total / 2 else "info")


def test_several_ranks_are_judged_one_by_one() -> None:
    ranks = [{"pid": 7, "gpus": [0], **FAR}, {"pid": 8, "gpus": [1], **FAR}]
    found = judge("NUMA02", {"numa": NODES, "gpus": [GPU, GPU0], "processes": ranks})
    assert (found.verdict, found.where) == ("finding", {"processes": [7]})


@settings(max_examples=40)
@given(st.lists(st.sampled_from(range(8)), min_size=4, max_size=16))
def test_the_share_that_one_cpu_took_is_never_overstated(cpus: list[int]) -> None:
    found = judge("IRQ03", _taken(*cpus))
    most = max(cpus.count(cpu) for cpu in cpus) / len(cpus)
    assert found.verdict == ("finding" if most > 0.5 else "pass")


def test_a_slow_adapter_on_the_wrong_node_is_a_note() -> None:
    bad = _placed(0, 1, 2, 3)
    assert judge("IRQ01", {**bad, "nics": [{**NIC, "speed_mbps": 10_000}]}).severity == "info"
    rdma = [{"device": "mlx5_0", "port": 1, "address": "0000:1a:00.0", "rate_gbps": 400.0}]
    assert judge("IRQ01", {**bad, "nics": [], "rdma": rdma}).severity == "warning"


def test_rdma_traffic_counts_at_the_port() -> None:
    port = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "rate_gbps": 400.0}
    found = judge("NET22", {"seen": ("nics",), "rdma": [{**port, "busy_gbps": 120.0}]})
    assert (found.verdict, found.where) == ("finding", {"rdma": ["mlx5_0/1"]})
    assert judge("NET22", {"seen": ("nics",), "rdma": [{**port, "busy_gbps": 2.0}]}).verdict == "pass"


@given(st.sets(st.integers(0, 60), min_size=1))
def test_node_lists(nodes: set[int]) -> None:
    assert numbers(",".join(map(str, sorted(nodes)))) == nodes
    assert numbers(f"{min(nodes)}-{max(nodes)}") == set(range(min(nodes), max(nodes) + 1))


@given(st.text(max_size=30))
def test_no_text_breaks_node_lists(text: str) -> None:
    assert all(0 <= number < 1024 for number in numbers(text))
