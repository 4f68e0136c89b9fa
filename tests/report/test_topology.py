"""The machine as a picture and a tree: everything is in it, nothing leaves its box, foreign text does no harm."""

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.model import Machine
from wellfed.model.base import replace
from wellfed.model.devices import Link, RdmaPort
from wellfed.model.machine import NumaNode
from wellfed.report import topology

sys.path.insert(0, str(Path(__file__).parents[1] / "place"))
import machines


def drawn(machine: Machine) -> ET.Element:
    text = topology.svg(machine)
    assert text is not None
    return ET.fromstring(text)


def check_boxes(root: ET.Element) -> None:
    width, height = (float(number) for number in root.attrib["viewBox"].split()[2:])
    for box in root.iter("rect"):
        x, y, w, h = (float(box.attrib[key]) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width + 0.5 and 0 <= y <= y + h <= height + 0.5
    for text in root.iter("text"):
        assert 0 <= float(text.attrib["y"]) <= height


@pytest.mark.parametrize("name", machines.SHAPES)
def test_known_machines(name: str) -> None:
    machine = machines.SHAPES[name]()
    root = drawn(machine)
    check_boxes(root)
    shown = " ".join(text.text or "" for text in root.iter("text"))
    assert all(f"GPU {gpu.index}" in shown for gpu in machine.gpus)
    cores = {thread.core for thread in machine.cpu.threads or ()}
    squares = [box for box in root.iter("rect") if box.attrib.get("rx") == "1.5"]
    assert len(squares) == len(cores)
    tree = "\n".join(topology.tree(machine))
    assert all(f"node {node.id}" in tree for node in machine.numa if node.cpus)


@given(st.integers(0, 50_000))
def test_any_machine(seed: int) -> None:
    machine = machines.random_machine(seed)
    check_boxes(drawn(machine))
    lines = "\n".join(topology.tree(machine))
    assert all(f"GPU {gpu.index}" in lines for gpu in machine.gpus)


def test_the_tree() -> None:
    machine = machines.cut()
    machine = replace(
        machine, rdma=tuple(replace(port, numa_node=0, rate_gbps=400.0) for port in machine.rdma)
    )
    assert topology.tree(machine)[:3] == [
        "socket 0",
        "  node 0, 112 CPUs, 56 cores: CPUs 0-55,112-167",
        "    GPU 0 GPU",
    ]
    assert "    mlx5_0 400 Gbit/s" in topology.tree(machine)
    assert topology.tree(machine)[-1] == "links: 2 x PIX to NICs, 1 x NODE to NICs, 1 x SYS to NICs"


def test_cores_that_may_not_be_used_are_hollow() -> None:
    root = drawn(machines.cut())
    hollow = [
        box for box in root.iter("rect") if box.attrib.get("rx") == "1.5" and box.attrib["fill"] == "none"
    ]
    assert len(hollow) == 56 - 36


def test_what_is_near_no_node_and_memory_without_cpus() -> None:
    tree = topology.tree(machines.nowhere())
    assert "near no one node: GPU 0 GPU, GPU 1 GPU, GPU 2 GPU, GPU 3 GPU" in tree
    shown = [line.replace("\u00a0", " ") for line in topology.tree(machines.server())]
    assert "memory only: node 4-5, 128 GiB each" in shown


def test_a_matrix_that_is_too_wide_says_what_is_left_out() -> None:
    machine = machines.machine({0: range(4)}, gpus=machines.gpus_on(*[0] * 16))
    links = tuple(Link(a="gpu0", b=f"rocep_long_name_{at}", kind="SYS") for at in range(15))
    root = drawn(replace(machine, links=links))
    check_boxes(root)
    assert any(re.match(r"links, the first \d+ of 16", text.text or "") for text in root.iter("text"))


def test_foreign_text_stays_text() -> None:
    name = '"><script>alert(1)</script>\x1b[31m'
    machine = machines.machine({0: range(2)}, gpus=(replace(machines.gpus_on(0)[0], name=name),))
    machine = replace(
        machine,
        rdma=(RdmaPort(device=name, port=1, numa_node=0),),
        links=(Link(a="gpu0", b=name, kind=name),),
    )
    text = topology.svg(machine)
    assert text is not None and "<script" not in text and "\x1b" not in text
    drawn(machine)


def test_no_cpu_no_picture() -> None:
    assert topology.svg(Machine()) is None and topology.tree(Machine(numa=(NumaNode(id=0),))) == []
