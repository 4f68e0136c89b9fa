"""lstopo's XML: shapes come back, devices have their place, and what the file does not tell is a gap."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_forms import Shape, bridge, lstopo, pci

from wellfed.check import judge_machine
from wellfed.host import look, open_host, record
from wellfed.model import Machine, WellfedError

SHAPES = st.builds(Shape, st.integers(1, 4), st.integers(1, 9), st.integers(1, 2), st.integers(1, 3)).map(
    lambda shape: shape._replace(caches=min(shape.caches, shape.cores))
)


def seen(tmp_path: Path, text: str) -> Machine:
    path = tmp_path / "topo.xml"
    path.write_text(text, "utf-8")
    return look(open_host(str(path)))


@given(SHAPES, st.sampled_from([1, 2, 3]))
def test_shapes_come_back(tmp_path_factory: pytest.TempPathFactory, shape: Shape, version: int) -> None:
    machine = seen(tmp_path_factory.mktemp("lstopo"), lstopo(shape, version))
    cpu = machine.cpu
    each = -(-shape.cores // shape.caches)
    assert (cpu.logical, cpu.cores, cpu.packages) == (
        shape.cpus,
        shape.packages * shape.cores,
        shape.packages,
    )
    assert (cpu.threads_per_core, cpu.l3_groups) == (shape.threads, shape.packages * -(-shape.cores // each))
    assert cpu.l3_bytes == (cpu.l3_groups or 0) << 20
    assert [len(node.cpus) for node in machine.numa] == [shape.cores * shape.threads] * shape.packages
    assert machine.memory.total_bytes == shape.packages << 30
    assert all(thread.node == thread.package for thread in cpu.threads or ())
    assert machine.container.cpuset == tuple(range(shape.cpus))


GPU = (
    '<object type="OSDev" name="nvml{}" osdev_type="{}"><info name="GPUModel" value="NVIDIA H100 80GB HBM3"/>'
    '<info name="NVIDIAUUID" value="GPU-00000000-0000-0000-0000-00000000000{}"/></object>'
)
IB = '<object type="OSDev" name="mlx5_0" osdev_type="{}"><info name="Port1State" value="4"/></object>'
ETH = '<object type="OSDev" name="eth0" osdev_type="{}"><info name="Address" value="02:00:00:00:00:01"/></object>'
DISK = '<object type="OSDev" name="nvme0n1" osdev_type="{}"><info name="Size" value="1048576KiB"/></object>'


@pytest.mark.parametrize(
    ("version", "gpu", "fabric", "network", "storage"), [(2, 1, 3, 2, 0), (3, 12, 48, 16, 1)]
)
def test_devices(tmp_path: Path, version: int, gpu: int, fabric: int, network: int, storage: int) -> None:
    """NVML's numbers beat the order of the bus. Addresses of NICs are nobody's business."""
    inside = bridge(
        "0000:10:00.0",
        pci("0000:1a:00.0", "0302 [10de:2330]", GPU.format(1, gpu, 1))
        + pci("0000:1b:00.0", "0207 [15b3:1021]", IB.format(fabric))
        + pci("0000:1c:00.0", "0108 [144d:a80a]", DISK.format(storage)),
    )
    inside += pci("0000:2a:00.0", "0302 [10de:2330]", GPU.format(0, gpu, 0))
    inside += pci("0000:2b:00.0", "0200 [8086:1521]", ETH.format(network)) + pci(
        "0000:2c:00.0", "0c03 [8086:1]"
    )
    machine = seen(tmp_path, lstopo(Shape(2, 4), version, inside=inside))
    assert [(gpu.address, gpu.numa_node, gpu.catalog) for gpu in machine.gpus] == [
        ("0000:2a:00.0", 0, "h100-sxm-80"),
        ("0000:1a:00.0", 0, "h100-sxm-80"),
    ]
    assert [port.device for port in machine.rdma] == ["mlx5_0"]
    assert (machine.rdma[0].state, machine.rdma[0].numa_node) == ("ACTIVE", 0)
    assert [(nic.name, nic.address) for nic in machine.nics] == [("eth0", "0000:2b:00.0")]
    assert [(disk.name, disk.size_bytes) for disk in machine.disks] == [("nvme0n1", 1 << 30)]
    rows = {device.address: device for device in machine.pci}
    assert set(rows) == {f"0000:{bus}:00.0" for bus in ("10", "1a", "1b", "1c", "2a", "2b")}
    assert rows["0000:1a:00.0"].parent == "0000:10:00.0"
    assert rows["0000:1a:00.0"].local_cpus == (0, 1, 2, 3)
    assert "02:00:00" not in str(machine)
    assert machine.facts["gpus[0].numa_node"].raw.startswith("/sys/bus/pci")  # type: ignore[union-attr]


def test_displays_are_no_gpus_where_nvml_numbered_some(tmp_path: Path) -> None:
    """Of NVIDIA's only; and without NVML, which lstopo may be built without, all stand."""
    model = '<object type="OSDev" name="{}" osdev_type="12"><info name="GPUModel" value="x"/></object>'
    inside = pci("0000:01:00.0", "0300 [10de:1cb3]") + pci(
        "0000:02:00.0", "0302 [10de:2330]", model.format("nvml0")
    )
    inside += pci("0000:03:00.0", "0380 [1002:74a1]")
    numbered = seen(tmp_path, lstopo(Shape(1, 1), inside=inside))
    assert [(gpu.vendor, gpu.address) for gpu in numbered.gpus] == [
        ("nvidia", "0000:02:00.0"),
        ("amd", "0000:03:00.0"),
    ]
    hidden = seen(tmp_path, lstopo(Shape(1, 1), inside=inside.replace("nvml0", "cuda0")))
    assert [gpu.address for gpu in hidden.gpus] == ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]


def test_what_is_not_told_is_a_gap(tmp_path: Path) -> None:
    """Nothing is judged that the file does not tell, and a device list that is not there is no empty one."""
    machine = seen(tmp_path, lstopo(Shape(1, 2)))
    assert {"pci", "gpus", "nics", "cpu.allowed", "memory.thp_enabled"} <= set(machine.gaps)
    findings = [verdict.code for verdict in judge_machine(machine) if verdict.verdict == "finding"]
    assert findings == []


def test_a_memory_only_node_has_no_cpus(tmp_path: Path) -> None:
    """hwloc says of memory of a GPU or of HBM which CPUs are near; the kernel says that it has none."""
    hbm = '<object type="NUMANode" os_index="7" cpuset="0x3" subtype="HBM" local_memory="1024"/>'
    machine = seen(tmp_path, lstopo(Shape(1, 2), inside=hbm))
    assert [(node.id, node.cpus) for node in machine.numa] == [(0, (0, 1)), (7, ())]


def test_hidden_cpus(tmp_path: Path) -> None:
    """A node of which the cpuset hides every CPU has them still; how many there are in all is not told."""
    hidden = '<object type="NUMANode" os_index="1" cpuset="0x0" complete_cpuset="0xc" local_memory="1024"/>'
    text = lstopo(Shape(1, 2), inside=hidden).replace('complete_cpuset="0x00000003"', 'complete_cpuset="0xf"')
    machine = seen(tmp_path, text)
    assert [node.cpus for node in machine.numa] == [(0, 1), (2, 3)]
    assert "2 CPUs are not shown" in machine.gaps["cpu.offline"]


def test_cpus_that_are_off(tmp_path: Path) -> None:
    text = lstopo(Shape(1, 4), 1).replace('complete_cpuset="', 'online_cpuset="0x7" complete_cpuset="', 1)
    machine = seen(tmp_path, text)
    assert (machine.cpu.logical, machine.cpu.offline) == (3, (3,))


def test_objects_that_hwloc_dropped(tmp_path: Path) -> None:
    """hwloc leaves out objects that contradict others: a count of those left would be wrong. A cache alone may be missing by
    design, as under the slowest cores of some laptops."""
    whole = lstopo(Shape(2, 2))
    at = whole.index('<object type="L3Cache"')
    no_cache = whole[:at] + whole[at:].replace('type="L3Cache"', 'type="Group"', 1)
    assert (seen(tmp_path, no_cache).cpu.l3_groups, seen(tmp_path, no_cache).cpu.packages) == (1, 2)
    at = no_cache.index('<object type="Package"')
    no_package = no_cache[:at] + no_cache[at:].replace('type="Package"', 'type="Group"', 1)
    cpu = seen(tmp_path, no_package).cpu
    assert (cpu.l3_groups, cpu.packages, cpu.cores) == (None, None, 4)


@pytest.mark.parametrize("order", ["0 1", "1 0"])
def test_distances(tmp_path: Path, order: str) -> None:
    matrix = (
        '<distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">'
        f'<indexes length="3">{order}</indexes><u64values length="8">10 21 </u64values>'
        '<u64values length="8">31 10</u64values></distances2>'
    )
    machine = seen(tmp_path, lstopo(Shape(2, 1), head=matrix))
    rows = [(10, 21), (31, 10)] if order == "0 1" else [(10, 31), (21, 10)]
    assert [node.distances for node in machine.numa] == rows
    user = seen(tmp_path, lstopo(Shape(2, 1), head=matrix.replace('kind="5"', 'kind="6"')))
    assert user.numa[0].distances is None
    short = seen(tmp_path, lstopo(Shape(2, 1), head=matrix.replace("31 10", "31")))
    assert short.numa[0].distances is None


def test_distances_of_version_1(tmp_path: Path) -> None:
    cells = "".join(f'<latency value="{value}"/>' for value in ("1.0", "2.1", "2.1", "1.0"))
    matrix = f'<distances nbobjs="2" latency_base="10.0">{cells}</distances>'
    text = lstopo(Shape(2, 1), 1).replace(
        '<object type="NUMANode" os_index="0"', f'{matrix}<object type="NUMANode" os_index="0"'
    )
    assert [node.distances for node in seen(tmp_path, text).numa] == [(10, 21), (21, 10)]


def test_memory_of_gpus_in_version_1(tmp_path: Path) -> None:
    """POWER9 as hwloc 1.11 wrote it: nodes beside the packages, without CPUs, and a matrix of all of them."""
    alone = '<object type="NUMANode" os_index="255" cpuset="0x0" complete_cpuset="0x0" local_memory="1024"/>'
    cells = "".join(f'<latency value="{value}"/>' for value in ("1.0", "8.0", "8.0", "1.0"))
    matrix = f'<distances nbobjs="2" relative_depth="2" latency_base="10.000000">{cells}</distances>'
    text = lstopo(Shape(1, 2, 4), 1)
    end = text.rindex("</object></topology>")
    start = text.index('<object type="NUMANode"')
    machine = seen(tmp_path, text[:start] + matrix + text[start:end] + alone + text[end:])
    assert [(node.id, len(node.cpus)) for node in machine.numa] == [(0, 8), (255, 0)]
    assert [node.distances for node in machine.numa] == [(10, 80), (80, 10)]


def test_kinds_of_cores(tmp_path: Path) -> None:
    kinds = "".join(
        f'<cpukind cpuset="{cpus}"><info name="CoreType" value="{name}"/></cpukind>'
        for cpus, name in (("0x3", "IntelCore"), ("0xc", "IntelAtom"))
    )
    machine = seen(tmp_path, lstopo(Shape(1, 4), head=kinds))
    assert [thread.kind for thread in machine.cpu.threads or ()] == ["performance"] * 2 + ["efficiency"] * 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('type="PU" os_index="1"', 'type="PU" os_index="-1"', "number `-1`"),
        ('type="PU" os_index="1"', 'type="PU" os_index="8192"', "number `8192`"),
        ('type="PU" os_index="1"', 'type="PU" os_index="0"', "there twice"),
        ('type="PU" os_index="1"', 'type="PU"', "number ``"),
        ('cpuset="0x00000003"', 'cpuset="0x00000003' + ",0x0" * 300 + '"', "a mask of"),
        ('cpuset="0x00000003"', 'cpuset="3-4"', "is no mask"),
    ],
)
def test_nonsense_is_refused_in_words(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(WellfedError, match=words):
        seen(tmp_path, lstopo(Shape(1, 2)).replace(old, new))


def test_it_cannot_be_recorded(tmp_path: Path) -> None:
    (tmp_path / "topo.xml").write_text(lstopo(Shape(1, 1)))
    with pytest.raises(WellfedError, match="no machine to record"):
        record(open_host(str(tmp_path / "topo.xml")), tmp_path / "box.tar")
