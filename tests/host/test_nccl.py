"""NCCL's topology: nodes, GPUs and NICs with the way between them, and a placement from nothing else."""

from pathlib import Path

import pytest

from wellfed import pin_plan
from wellfed.check import judge_machine
from wellfed.host import look, open_host
from wellfed.host.forms.nccl import _family
from wellfed.model import Machine, WellfedError
from wellfed.report.topology import title, tree

LINKS = "".join(f'<nvlink target="0000:0{at}:00.0" count="9" tclass="0x068000"/>' for at in (8, 9))
NET = '<nic><net name="mlx5_{0}" dev="{0}" speed="400000" port="1" guid="0x{0}1" gdr="1"/></nic>'
IDS = 'class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16"'


def gpu(address: str, dev: int, inside: str = LINKS) -> str:
    return f'<pci busid="{address}" {IDS}><gpu dev="{dev}" sm="90" rank="{dev}" gdr="1">{inside}</gpu></pci>'


def nic(address: str, number: int) -> str:
    return f'<pci busid="{address}" class="0x020700" link_speed="32 GT/s" link_width="16">{NET.format(number)}</pci>'


def switch(address: str, inside: str) -> str:
    return f'<pci busid="{address}" class="0x060400" link_speed="" link_width="0">{inside}</pci>'


def cpu(node: int, mask: str, inside: str, more: str = "") -> str:
    said = 'arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1"'
    return f'<cpu numaid="{node}" affinity="{mask}" {said} {more}>{inside}</cpu>'


BOX = cpu(
    0,
    "00000000,0000ffff",
    switch(
        "0000:10:00.0",
        gpu("0000:1a:00.0", 1) + nic("0000:1b:00.0", 0) + switch("0000:12:00.0", nic("0000:1c:00.0", 1)),
    )
    + gpu("0000:1d:00.0", 0),
) + cpu(
    1,
    "00000000,ffff0000",
    nic("0000:2b:00.0", 2) + '<nic><net name="eth0" speed="25000" port="0" guid="0x0"/></nic>',
)


def seen(tmp_path: Path, text: str) -> Machine:
    path = tmp_path / "topo.xml"
    path.write_text(f'<system version="1">{text}</system>')
    return look(open_host(str(path)))


def test_a_box(tmp_path: Path) -> None:
    machine = seen(tmp_path, BOX)
    assert [(node.id, node.cpus) for node in machine.numa] == [
        (0, tuple(range(16))),
        (1, tuple(range(16, 32))),
    ]
    assert len(machine.cpu.threads or ()) == 32
    assert machine.cpu.logical is None and "not in the file" in machine.gaps["cpu.logical"]
    assert (machine.cpu.arch, machine.cpu.family, machine.cpu.model) == ("x86_64", 25, 1)
    assert machine.cpu.cores is None
    assert [
        (gpu.address, gpu.compute_capability, gpu.nvlinks_active, gpu.numa_node) for gpu in machine.gpus
    ] == [
        ("0000:1d:00.0", "9.0", 18, 0),
        ("0000:1a:00.0", "9.0", 18, 0),
    ]
    assert {gpu.catalog for gpu in machine.gpus} == {"h100-sxm-80"}
    assert [(port.device, port.port, port.rate_gbps, port.numa_node) for port in machine.rdma] == [
        ("mlx5_0", 1, 400, 0),
        ("mlx5_1", 1, 400, 0),
        ("mlx5_2", 1, 400, 1),
    ]
    assert [(nic.name, nic.speed_mbps, nic.numa_node) for nic in machine.nics] == [("eth0", 25000, None)]
    rows = {row.address: row for row in machine.pci}
    assert (rows["0000:1b:00.0"].speed_max_gts, rows["0000:1b:00.0"].width_max) == (32, 16)
    assert rows["0000:1b:00.0"].speed_gts is None  # what runs now is not in the file
    assert rows["0000:1a:00.0"].speed_max_gts is None  # of a GPU it may be either
    assert "newer what runs now" in machine.gaps["pci[2].speed_max_gts"]
    assert (rows["0000:10:00.0"].speed_max_gts, rows["0000:10:00.0"].width_max) == (None, None)
    assert rows["0000:1c:00.0"].parent == "0000:12:00.0"
    assert "0x01" not in str(machine.rdma)


def test_ways(tmp_path: Path) -> None:
    kinds = {(link.a, link.b): link.kind for link in seen(tmp_path, BOX).links}
    assert kinds["gpu0", "gpu1"] == "NV18"
    assert [kinds["gpu1", f"mlx5_{at}"] for at in range(3)] == ["PIX", "PXB", "SYS"]
    assert [kinds["gpu0", f"mlx5_{at}"] for at in range(3)] == ["PHB", "PHB", "SYS"]


def test_direct_links_and_those_into_nowhere(tmp_path: Path) -> None:
    """Links to one GPU say how these two are wired; links to oneself, as virtual machines show, say nothing of pairs."""
    pair = '<nvlink target="{}" count="4" tclass="0x030200"/>'
    first, second = "0000:1a:00.0", "0000:1d:00.0"
    wired = (
        gpu(first, 0, pair.format(second)) + gpu(second, 1, pair.format(first)) + gpu("0000:1f:00.0", 2, "")
    )
    kinds = {(link.a, link.b): link.kind for link in seen(tmp_path, cpu(0, "f", wired)).links}
    assert kinds == {("gpu0", "gpu1"): "NV4", ("gpu0", "gpu2"): "PHB", ("gpu1", "gpu2"): "PHB"}
    alone = gpu(first, 0, pair.format(first)) + gpu(second, 1, pair.format(second))
    machine = seen(tmp_path, cpu(0, "f", alone))
    assert machine.links == ()
    assert [gpu.nvlinks_active for gpu in machine.gpus] == [4, 4]


def test_a_wire_into_a_hidden_place(tmp_path: Path) -> None:
    """NCCL takes it for a switch between all GPUs; in a virtual machine it may as well be a bridge between two."""
    hidden = '<nvlink target="fffffff:ffff:ff" count="12" tclass="0x068000"/>'
    machine = seen(tmp_path, cpu(0, "f", gpu("0000:1a:00.0", 0, hidden) + gpu("0000:1d:00.0", 1, hidden)))
    assert machine.links == () and [gpu.nvlinks_active for gpu in machine.gpus] == [12, 12]


def test_a_nic_made_of_two(tmp_path: Path) -> None:
    """NCCL hangs it on the switch above both, beside its other devices."""
    merged = '<nic><net name="mlx5_0+mlx5_1" speed="800000" port="1" guid="0x7"/></nic>'
    machine = seen(tmp_path, cpu(0, "f", switch("0000:10:00.0", gpu("0000:1a:00.0", 0) + merged)))
    assert [(link.a, link.b, link.kind) for link in machine.links] == [("gpu0", "mlx5_0+mlx5_1", "PIX")]
    arm = seen(tmp_path, '<cpu numaid="0" affinity="f" arch="arm64" familyid="143"/>')
    assert (arm.cpu.arch, arm.cpu.family) == ("aarch64", None)


def test_a_file_of_a_cloud(tmp_path: Path) -> None:
    """No lines of GPUs: they go by class, in the order of the bus, and nothing is said of their NVLinks."""
    devices = "".join(
        f'<pci busid="000{at}:00:00.0" class="0x030200" link_speed="16 GT/s"/>' for at in (2, 1)
    )
    machine = seen(tmp_path, cpu(0, "ff", devices + '<pci busid="0101:00:00.0" class="0x020700"/>'))
    assert [gpu.address for gpu in machine.gpus] == ["0001:00:00.0", "0002:00:00.0"]
    assert [gpu.vendor for gpu in machine.gpus] == [None, None]
    assert {(link.a, link.b, link.kind) for link in machine.links} == {
        ("gpu0", "nic0", "PHB"),
        ("gpu1", "nic0", "PHB"),
    }


def test_places_from_it(tmp_path: Path) -> None:
    seen(tmp_path, BOX)
    plan = pin_plan(tmp_path / "topo.xml", gpus=["0", "1"])
    assert [(rank.address, rank.cpus[0], rank.cpus[-1]) for rank in plan.ranks] == [
        ("0000:1d:00.0", 0, 15),
        ("0000:1a:00.0", 0, 15),
    ]
    assert plan.ranks[1].nics == ("mlx5_0",)
    assert plan.ranks[1].environment["NCCL_IB_HCA"] == "=mlx5_0:1"


def test_what_a_placement_cannot_know(tmp_path: Path) -> None:
    """The file names no cores and no sockets: ranks that shall not share a core are warned, and no socket is drawn."""
    machine = seen(tmp_path, BOX)
    warnings = pin_plan(tmp_path / "topo.xml", gpus=["0", "1"], mode="exclusive").warnings
    assert any("share a core is not told" in warning for warning in warnings)
    assert tree(machine)[0] == "sockets not told"
    assert title(machine) == "2 nodes with CPUs, 2 GPUs"


def test_nothing_else_is_judged(tmp_path: Path) -> None:
    verdicts = judge_machine(seen(tmp_path, BOX))
    assert [verdict.code for verdict in verdicts if verdict.verdict == "finding"] == []


@pytest.mark.parametrize(("said", "family"), [(0xAF, 25), (0x8F, 23), (0x1F, 16), (23, 23), (6, 6), (15, 15)])
def test_families(said: int, family: int) -> None:
    assert _family(said) == family


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 <cpu> elements"),
        (cpu(0, "f", "", 'host_hash="0x1"') + cpu(0, "f", "", 'host_hash="0x2"'), "2 hosts"),
        (cpu(0, "zz", ""), "no mask"),
        (cpu(0, "ffffffff," * 300 + "f", ""), "believably long"),
        (cpu(0, "f", '<pci busid="nowhere"/>'), "address `nowhere`"),
        (cpu(0, "f", '<pci busid="0000:01:00.0"/>' * 2), "one address"),
        (cpu(0, "f", "".join(gpu(f"{at:04x}:01:00.0", at) for at in range(200))), "more than 128"),
    ],
)
def test_nonsense_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(WellfedError, match=words):
        seen(tmp_path, text)


def test_no_node_and_no_mask(tmp_path: Path) -> None:
    machine = seen(tmp_path, cpu(-1, "", gpu("0000:01:00.0", 0)))
    assert machine.numa == () and "numaid -1" in machine.gaps["numa"]
    assert machine.gpus[0].numa_node is None
    assert "cpu.logical" in machine.gaps
