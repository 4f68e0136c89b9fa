"""The matrix of `nvidia-smi topo -m` in the shapes seen on real machines, and AMD's documents."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.host.assemble import assemble
from wellfed.host.recorded import host_of
from wellfed.host.topology import Matrix, amd_links, links_of, parse_matrix, parse_nvlink, read_topology
from wellfed.model.devices import Link
from wellfed.model.machine import Machine

UNDERLINE, PLAIN = "\x1b[4m", "\x1b[0m"
LEGEND = "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
HEADER_TAIL = "CPU Affinity\tNUMA Affinity\tGPU NUMA ID"


def look(text: str) -> Machine:
    return assemble(read_topology(host_of({}, commands={"nvidia-smi-topo": text})))


def kinds(text: str) -> dict[tuple[str, str], str]:
    return {(link.a, link.b): link.kind for link in look(text).links}


def test_a_real_layout() -> None:
    text = (
        f"{UNDERLINE}\tGPU0\tGPU1\tNIC0\tNIC1\t{HEADER_TAIL}{PLAIN}\n"
        "GPU0\t X \tNV18\tPIX\tSYS\t0-55,112-167\t0\t\tN/A\n"
        "GPU1\tNV18\t X \tNODE\tSYS\t70-99,102-107\t1\t\t2\n"
        "NIC0\tPIX\tNODE\t X \tSYS\t\t\t\n"
        "NIC1\tSYS\tSYS\tSYS\t X \t\t\t\n"
        f"{LEGEND}\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_0\n"
    )
    found = look(text)
    assert found.links == (
        Link(a="gpu0", b="gpu1", kind="NV18", lanes=18),
        Link(a="gpu0", b="mlx5_0", kind="PIX"),
        Link(a="gpu0", b="mlx5_bond_0", kind="SYS"),
        Link(a="gpu1", b="mlx5_0", kind="NODE"),
        Link(a="gpu1", b="mlx5_bond_0", kind="SYS"),
        Link(a="mlx5_0", b="mlx5_bond_0", kind="SYS"),
    )
    rows = parse_matrix(text).rows
    assert rows["GPU0"].cpus == (*range(56), *range(112, 168))
    assert (rows["GPU0"].nodes, rows["GPU0"].gpu_numa) == ((0,), None)
    # Cut by a cpuset: what is printed is not the whole node.
    assert rows["GPU1"].cpus == (*range(70, 100), *range(102, 108))
    assert (rows["GPU1"].nodes, rows["GPU1"].gpu_numa) == ((1,), 2)
    assert rows["NIC0"].cpus is None
    assert parse_matrix(text).lost == 0


def test_gpus_only_and_an_old_driver() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-23,48-71\nGPU1\tPHB\t X \t0-23,48-71\n"
    assert kinds(text) == {("gpu0", "gpu1"): "PHB"}
    assert parse_matrix(text).rows["GPU1"].cpus == (*range(24), *range(48, 72))
    assert parse_matrix(text).rows["GPU1"].nodes is None


def test_one_gpu() -> None:
    found = look(f"\tGPU0\t{HEADER_TAIL}\nGPU0\t X \t\t\t\tN/A\n")
    assert found.links == ()
    assert found.gaps["links"].startswith("unsupported")


def test_nics_by_device_name() -> None:
    text = "\tGPU0\tmlx5_0\tmlx5_ib1\tCPU Affinity\nGPU0\t X \tPIX\tSYS\t0-7\nmlx5_0\tPIX\t X \tSYS\t\n"
    assert kinds(text) == {
        ("gpu0", "mlx5_0"): "PIX",
        ("gpu0", "mlx5_ib1"): "SYS",
        ("mlx5_0", "mlx5_ib1"): "SYS",
    }


def test_empty_cpu_column_of_gb200() -> None:
    text = f"\tGPU0\tGPU1\t{HEADER_TAIL}\nGPU0\t X \tNV18\t\t0\t\tN/A\nGPU1\tNV18\t X \t\t1\t\tN/A\n"
    rows = parse_matrix(text).rows
    assert [(row.cpus, row.nodes) for row in rows.values()] == [(None, (0,)), (None, (1,))]


@pytest.mark.parametrize(
    ("tail", "cpus", "nodes", "own"),
    [
        ("  0-31    0               N/A", tuple(range(32)), (0,), None),
        ("  0-31,64-95  0-1  N/A", (*range(32), *range(64, 96)), (0, 1), None),
        ("  0   N/A", None, (0,), None),
        ("  0-3", (0, 1, 2, 3), None, None),
        ("  1", None, (1,), None),
        ("  7  1  2", (7,), (1,), 2),
        ("  N/A  N/A  N/A", None, None, None),
        ("", None, None, None),
        ("  5-2  0  N/A", None, (0,), None),
        ("  0-99999999999  0  N/A", None, (0,), None),
    ],
)
def test_pasted_text_without_tabs(
    tail: str, cpus: tuple[int, ...] | None, nodes: tuple[int, ...] | None, own: int | None
) -> None:
    text = f"        GPU0    CPU Affinity    NUMA Affinity   GPU NUMA ID\nGPU0     X   {tail}\n"
    row = parse_matrix(text).rows["GPU0"]
    assert (row.cpus, row.nodes, row.gpu_numa) == (cpus, nodes, own)


def test_cells_that_a_paste_glued_together() -> None:
    text = (
        "        GPU0    GPU1    NIC0    NIC1    NIC2       CPU Affinity    NUMA Affinity\n"
        "GPU0     X      NV18    NODENODE    PIX     0-55,112-167    0\n"
        "GPU1    NV18     X      PIXPIX      SYS     0-55,112-167    0\n"
    )
    found = kinds(text)
    assert (found["gpu0", "nic0"], found["gpu0", "nic1"], found["gpu0", "nic2"]) == ("NODE", "NODE", "PIX")
    assert (found["gpu1", "nic0"], found["gpu1", "nic2"]) == ("PIX", "SYS")
    assert parse_matrix(text).rows["GPU1"].nodes == (0,)


def test_c2c_and_words_of_old_drivers() -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tC2C\tSOC\nGPU1\tC2C\t X \tN/A\nGPU2\tSOC\tN/A\t X \n"
    assert kinds(text) == {("gpu0", "gpu1"): "C2C", ("gpu0", "gpu2"): "SOC"}


def test_a_lost_row_is_read_from_its_mirror() -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU1\tNV4\t X \tNV4\nGPU2\tSYS\tNV4\t X \n"
    assert kinds(text) == {("gpu1", "gpu2"): "NV4", ("gpu1", "gpu0"): "NV4", ("gpu2", "gpu0"): "SYS"}


def test_losses_are_counted() -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tNV4\nGPU1\tNV4\t X"
    assert parse_matrix(text).lost == 1 + 3
    found = assemble(read_topology(host_of({}, commands={"nvidia-smi-topo": text})))
    assert found.facts["links"].detail == "4 cells could not be read"


@pytest.mark.parametrize(
    "text",
    ["", "\n", "No devices were found", "GPU0 X", "\tGPU1\tGPU0\n", "\tGPU0\tGPU0\nGPU0\tX\tX\n", "\x1b[4m"],
)
def test_no_matrix(text: str) -> None:
    assert links_of(parse_matrix(text)) == []


def test_a_missing_tool_is_said() -> None:
    assert look("").links == ()
    assert assemble(read_topology(host_of({}))).gaps["links"].startswith("missing")


# --- the law: what is printed in the real layout is read back


KINDS = ("NV1", "NV4", "NV12", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "C2C")


@st.composite
def machines(draw: st.DrawFn) -> dict[str, Any]:
    gpus = draw(st.integers(1, 9))
    nics = draw(st.integers(0, 12))
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    cells = {(a, b): draw(st.sampled_from(KINDS)) for i, a in enumerate(names) for b in names[i + 1 :]}
    return {
        "names": names,
        "cells": cells,
        "cpus": [draw(st.sampled_from(("0-7", "0-55,112-167", "0,4,8,12", "3", ""))) for _ in range(gpus)],
        "nodes": [draw(st.sampled_from(("0", "1", "0-1", ""))) for _ in range(gpus)],
        "own": [draw(st.sampled_from(("N/A", "2", ""))) for _ in range(gpus)],
        "legend": draw(st.booleans()),
        "underline": draw(st.booleans()),
        "numa": draw(st.booleans()),
    }


def printed(machine: dict[str, Any]) -> str:
    """As nvidia-smi prints it: tabs, an underlined header, blank columns for NICs."""
    names, cells, numa = machine["names"], machine["cells"], machine["numa"]
    header = "\t" + "\t".join(names) + "\tCPU Affinity" + ("\tNUMA Affinity\tGPU NUMA ID" if numa else "")
    lines = [f"{UNDERLINE}{header}{PLAIN}" if machine["underline"] else header]
    for i, name in enumerate(names):
        row = [" X " if name == other else cells.get((name, other)) or cells[other, name] for other in names]
        if name.startswith("GPU"):
            tail = machine["cpus"][i] + (f"\t{machine['nodes'][i]}\t\t{machine['own'][i]}" if numa else "")
        else:
            tail = "\t\t" if numa else ""
        lines.append("\t".join([name, *row]) + "\t" + tail)
    lines.append(LEGEND)
    if machine["legend"]:
        lines += ["NIC Legend:", ""] + [f"  {n}: mlx5_{n[3:]}" for n in names if n.startswith("NIC")]
    return "\n".join(lines) + "\n"


@given(machines())
def test_a_printed_matrix_is_read_back(machine: dict[str, Any]) -> None:
    matrix: Matrix = parse_matrix(printed(machine))

    def noun(name: str) -> str:
        legend = machine["legend"] and name.startswith("NIC")
        return f"mlx5_{name[3:]}" if legend else name.lower()

    assert {(link["a"], link["b"]): link["kind"] for link in links_of(matrix)} == {
        (noun(a), noun(b)): kind for (a, b), kind in machine["cells"].items()
    }
    assert matrix.lost == 0
    for i, (cpus, nodes, own) in enumerate(
        zip(machine["cpus"], machine["nodes"], machine["own"], strict=True)
    ):
        row = matrix.rows[f"GPU{i}"]
        assert (row.cpus is None) == (cpus == "")
        if machine["numa"]:
            assert (row.nodes is None) == (nodes == "")
            assert row.gpu_numa == (2 if own == "2" else None)


@pytest.mark.parametrize("seed", range(200))
def test_mutated_matrix_never_raises(seed: int) -> None:
    rng = random.Random(seed)
    text = (
        f"{UNDERLINE}\tGPU0\tGPU1\tNIC0\t{HEADER_TAIL}{PLAIN}\nGPU0\t X \tNV18\tPIX\t0-55,112-167\t0\t\tN/A\n"
        f"GPU1\tNV18\t X \tNODE\t0-3\t1\t\t2\nNIC0\tPIX\tNODE\t X \t\t\t\n{LEGEND}\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    )
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(text) + 1), rng.choice((1, 3, 20, 100))
        insert = rng.choice(("", "\t", " ", "\n", "\x1b[", "NV9999999", "9" * 30, "-", ",", "\ud800", "GPU0"))
        text = text[:at] + insert + text[at + rng.choice((0, size)) :]
    for link in look(text).links:
        assert link.a != link.b


# --- nvlink -s


def test_nvlink_speeds() -> None:
    text = (
        "GPU 0: NVIDIA A100 (UUID: GPU-1)\n\t Link 0: 25 GB/s\n\t Link 1: 26.562 GB/s\n\t Link 2: <inactive>\n"
        "GPU 6: NVIDIA A100 (UUID: GPU-6)\n"
        "NVML: Unable to retrieve NVLink information as all links are inactive\n"
    )
    assert parse_nvlink(text) == {0: [25.0, 26.562, None], 6: []}
    assert parse_nvlink("no GPU\n\t Link 0: 25 GB/s\n") == {}
    assert parse_nvlink("GPU 0: X\n\t Link 0: 1.2.3 GB/s\n") == {0: [None]}


# --- AMD


def test_amd_smi_topology() -> None:
    gpus = [
        {
            "gpu": a,
            "links": [
                {"gpu": b, "link_type": "SELF" if a == b else "XGMI" if a + b < 3 else "PCIE"}
                for b in range(3)
            ],
        }
        for a in range(3)
    ]
    for document in (gpus, {"gpu_data": gpus}):
        assert [(link["a"], link["b"], link["kind"]) for link in amd_links(json.dumps(document))] == [
            ("gpu0", "gpu1", "XGMI"),
            ("gpu0", "gpu2", "XGMI"),
            ("gpu1", "gpu2", "PCIE"),
        ]


def test_rocm_smi_topology() -> None:
    system = {
        "Driver version": "6",
        "(Topology) Weight between DRM devices 0 and 1": "15",
        "(Topology) Link type between DRM devices 0 and 1": "XGMI",
        "(Topology) Link type between DRM devices 10 and 2": "PCIE",
    }
    host = host_of({}, commands={"rocm-smi": json.dumps({"system": system})})
    assert assemble(read_topology(host)).links == (
        Link(a="gpu0", b="gpu1", kind="XGMI"),
        Link(a="gpu2", b="gpu10", kind="PCIE"),
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "[1]", '[{"gpu": 0, "links": 5}]', '[{"gpu": 0, "links": [{"gpu": "x"}]}]', "{}", "["]
)
def test_amd_documents_without_links(text: str) -> None:
    assert amd_links(text) == []


P2P = " \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\tCNS\n GPU1\tOK\tX\tU\n GPU2\tGNS\tU\tX\n\nLegend:\n\n  X = Self\n  OK = Status Ok\n"


def peers(nvml: dict[str, Any] | None = None, **commands: str) -> Machine:
    named = {name.replace("_", "-"): text for name, text in commands.items()}
    return assemble(read_topology(host_of({}, commands=named, nvml=nvml)))


MATRIX = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tSYS\nGPU1\tNV4\t X \tSYS\nGPU2\tSYS\tSYS\t X \n"


def test_who_may_read_whose_memory() -> None:
    """Each pair once; of two answers the one that is not OK counts, and unknown is no answer."""
    found = peers(nvidia_smi_topo=MATRIX, nvidia_smi_p2p=P2P)
    assert found.p2p == (Link(a="gpu0", b="gpu1", kind="OK"), Link(a="gpu0", b="gpu2", kind="CNS"))


def test_nvml_says_it_without_another_process() -> None:
    def states(*said: str) -> dict[str, Any]:
        return {str(other): {"read": state, "nvlink": "ok"} for other, state in enumerate(said) if state}

    devices = [
        {"p2p": states("", "ok", "gpu not supported")},
        {"p2p": states("ok", "", "ok")},
        {"p2p": states("ok", "topology not supported", "")},
    ]
    found = peers({"status": "ok", "detail": None, "system": {}, "devices": devices})
    assert [(link.a, link.b, link.kind) for link in found.p2p] == [
        ("gpu0", "gpu1", "OK"),
        ("gpu0", "gpu2", "GNS"),
        ("gpu1", "gpu2", "TNS"),
    ]
    assert found.facts["p2p"].source == "NVML"


@pytest.mark.parametrize(
    "devices",
    [[], None, "x", [None], [{"p2p": None}], [{"p2p": {"1": None}}], [{"p2p": {"x": {"read": "ok"}}}],
     [{"p2p": {"0": {"read": "ok"}}}], [{"p2p": {"1": {"read": {"error": "NotSupported"}}}}]],
)  # fmt: skip
def test_what_nvml_cannot_say_is_asked_elsewhere(devices: Any) -> None:
    odd = {"status": "ok", "detail": None, "system": {}, "devices": devices}
    assert [link.kind for link in peers(odd, nvidia_smi_topo=MATRIX, nvidia_smi_p2p=P2P).p2p] == ["OK", "CNS"]
    assert peers(odd).gaps["p2p"].startswith("missing")


def test_one_gpu_has_no_peer() -> None:
    found = peers(nvidia_smi_topo="\tGPU0\tCPU Affinity\nGPU0\t X \t0-3\n")
    assert found.p2p == () and found.gaps["p2p"].startswith("unsupported")
