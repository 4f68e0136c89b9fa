"""Real machines: CPUs and NUMA nodes as their sources say, and the page that shows it."""

from pathlib import Path

import pytest
from corpus_machines import Seen, machines, page, read

from wellfed.host import host_of, look, open_host, record
from wellfed.model import WellfedError

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


def test_a_cpuid_dump_is_no_host(corpus: Path) -> None:
    with pytest.raises(WellfedError, match="no `sys` or `proc`"):
        open_host(str(corpus / "host/hwloc/x86/AMD-19h-Zen4-2xEpyc-9654.tar.bz2"))


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
