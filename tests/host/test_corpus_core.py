"""Real machines: CPUs and NUMA nodes as their sources say, and the page that shows it."""

from collections import Counter
from pathlib import Path

import pytest
from corpus_machines import Seen, forms, machines, page, read

from wellfed.host import host_of, look, open_host, record
from wellfed.model import Machine

pytestmark = pytest.mark.corpus

PAGE = Path(__file__).resolve().parents[2] / "docs" / "validation" / "host.md"
NOT_COUNTED = {"test1.fsroot", "fixtures"}


@pytest.fixture(scope="module")
def seen(corpus: Path) -> dict[str, Seen]:
    return {known.name: read(known) for known in machines(corpus)}


def test_cpus_and_nodes_are_right(seen: dict[str, Seen]) -> None:
    wrong = {
        name: (row.cpus, row.known.cpus, row.nodes, row.known.nodes)
        for name, row in seen.items()
        if not row.right and name not in NOT_COUNTED
    }
    assert wrong == {}
    assert len(seen) - len(NOT_COUNTED) >= 75


def test_the_page_shows_this(corpus: Path, seen: dict[str, Seen]) -> None:
    """All but the last column, which counts what was not read and changes with every reader that is added."""

    def lasting(text: str) -> list[str]:
        return [line.rpartition(" | ")[0] if line.startswith("| ") else line for line in text.splitlines()]

    now = page(corpus, list(seen.values()))
    assert lasting(PAGE.read_text("utf-8")) == lasting(now), "run tests/host/corpus_machines.py"


@pytest.mark.parametrize(
    ("spec", "cores", "packages", "threads_per_core"),
    [
        ("cri-resource-manager/cpuallocator-sysfs.tar.bz2", 40, 2, 2),
        ("hwloc/linux/256ppc-8n8s4t.tar.bz2", 64, 64, 4),
        ("hwloc/linux/20em64t-hybrid-1p6c2t+2ca4co1t.tar.bz2", 14, 1, 2),
        ("util-linux-lscpu/x86_64-epyc_7451.tar.gz", 48, 2, 2),
        ("hwloc/linux/48amd64-4pa2n6c-sparse.tar.bz2", 48, 4, 1),
    ],
)
def test_cores_and_packages(
    corpus: Path, spec: str, cores: int, packages: int, threads_per_core: int
) -> None:
    cpu = look(open_host(str(corpus / "host" / spec))).cpu
    assert (cpu.cores, cpu.packages, cpu.threads_per_core) == (cores, packages, threads_per_core)


def test_hybrid_and_big_little(corpus: Path) -> None:
    hybrid = look(open_host(str(corpus / "host/hwloc/linux/20em64t-hybrid-1p6c2t+2ca4co1t.tar.bz2"))).cpu
    kinds = [thread.kind for thread in hybrid.threads or ()]
    assert (kinds.count("performance"), kinds.count("efficiency")) == (12, 8)
    gb10 = look(open_host(str(corpus / "host/hwloc/linux/nvidia-dgx-gb10.tar.bz2"))).cpu
    kinds = [thread.kind for thread in gb10.threads or ()]
    assert (kinds.count("performance"), kinds.count("efficiency")) == (10, 10)
    assert gb10.model_name == "Cortex-A725 + Cortex-X925"


def test_l3_groups_of_an_epyc(corpus: Path) -> None:
    cpu = look(open_host(str(corpus / "host/util-linux-lscpu/x86_64-epyc_7451.tar.gz"))).cpu
    assert (cpu.l3_groups, cpu.l3_bytes) == (16, 128 << 20)


def test_files_that_tell_of_a_machine(corpus: Path) -> None:
    """CPUs, cores, packages, nodes and caches of all files of lstopo and CPUID; nodes and GPUs of NCCL's."""
    rows = list(forms(corpus))
    assert [row for row in rows if not row.right] == []
    assert Counter(row.form for row in rows) == {"lstopo XML": 37, "CPUID dump": 31, "NCCL topology": 7}


def _parts(machine: Machine, field: str) -> set[frozenset[int]]:
    groups: dict[int, set[int]] = {}
    for thread in machine.cpu.threads or ():
        number = getattr(thread, field)
        if number is not None:
            groups.setdefault(number, set()).add(thread.id)
    return set(map(frozenset, groups.values()))


def test_registers_and_lstopo_agree_on_who_shares_what(corpus: Path) -> None:
    """Not only how many groups there are, but which CPUs are in each, and the processor's name and bytes of cache."""
    for path in sorted((corpus / "host/hwloc/x86").glob("*.tar.bz2")):
        dump = look(open_host(str(path)))
        said = look(open_host(str(path).replace(".tar.bz2", ".xml")))
        for field in ("core", "package", "l3"):
            assert _parts(dump, field) == _parts(said, field), (path.name, field)
        for field in ("vendor", "family", "model", "model_name", "l3_bytes"):
            assert getattr(dump.cpu, field) == getattr(said.cpu, field), (path.name, field)


@pytest.mark.parametrize(
    "name",
    [
        "40intel64-2g2n4c+pcilocality",
        "32em64t-2n8c+dax+nvme+mic+dimms",
        "fakeheterocpunuma",
        "nvidia-dgx-gb10",
        "32amd64-4s2n4c-cgroup2",
    ],
)
def test_lstopo_and_sysfs_agree(corpus: Path, name: str) -> None:
    """The XML that hwloc expects of a snapshot, against our reading of that snapshot. lstopo leaves out CPUs and nodes outside
    the cpuset."""
    tree, file = (
        look(open_host(str(corpus / f"host/hwloc/linux/{name}.{end}"))) for end in ("tar.bz2", "xml")
    )
    shown = {thread.id for thread in file.cpu.threads or ()}
    assert shown == {t.id for t in tree.cpu.threads or () if t.online} & set(tree.container.cpuset or shown)
    for field in ("core", "package", "l3", "node"):
        inside = {part & shown for part in _parts(tree, field)} - {frozenset()}
        assert inside == _parts(file, field), field
    nodes = {node.id: node for node in tree.numa}
    for node in file.numa:
        assert set(node.cpus) <= set(nodes[node.id].cpus), node.id
        assert node.mem_bytes == nodes[node.id].mem_bytes
    assert [device.address for device in file.pci] == [device.address for device in tree.pci]
    assert {n.name for n in file.nics if n.address} == {n.name for n in tree.nics if n.address}
    assert [(p.device, p.port, p.state) for p in file.rdma] == [
        (p.device, p.port, p.state) for p in tree.rdma
    ]


def test_xids_of_a_real_kernel_log(corpus: Path) -> None:
    log = corpus / "host/gpud/components/accelerator/nvidia/xid/testdata/dmesg-with-xid-119.log"
    xids = look(host_of({"/proc/x": ""}, commands={"dmesg": log.read_text("utf-8")})).kernel.xids
    assert xids
    assert all(" 119, " in line for line in xids)


@pytest.mark.parametrize("name", ["nvidia-dgx-gb10", "nvidiagpunumanodes", "40intel64-2g2n4c+pcilocality"])
def test_a_recording_of_a_real_machine_replays(corpus: Path, tmp_path: Path, name: str) -> None:
    host = open_host(str(corpus / f"host/hwloc/linux/{name}.tar.bz2"))
    record(host, tmp_path / "raw.tar", redact=False)
    record(host, tmp_path / "safe.tar")
    plain = look(host)
    assert look(open_host(str(tmp_path / "raw.tar"))) == plain
    safe = look(open_host(str(tmp_path / "safe.tar")))
    for room in ("cpu", "numa", "memory", "container", "pci", "gpus", "disks"):
        assert getattr(safe, room) == getattr(plain, room), room
