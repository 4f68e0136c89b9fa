"""Device readers on public data: nvidia-smi and rocm-smi samples, an H100's RDMA tree and lspci, sysfs trees."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from wellfed.check import judge_machine
from wellfed.host import gpu, network, pci, rdma, software, topology
from wellfed.host.assemble import assemble
from wellfed.host.recorded import RecordedHost, host_of, open_recorded
from wellfed.model import Machine
from wellfed.model.base import replace
from wellfed.model.errors import WellfedError

pytestmark = pytest.mark.corpus

READERS = (
    gpu.read_gpu,
    pci.read_pci,
    network.read_network,
    rdma.read_rdma,
    topology.read_topology,
    software.read_software,
)
TELEGRAF = "telegraf-nvidia-smi/plugins/inputs"
GPUD = "gpud/components/accelerator/nvidia"
# Three entries of ghw are text files that name another file of the folder.
_NO_TAR = {
    "linux-amd64-amd-ryzen-1600.tar.gz",
    "linux-amd64-intel-i7-1270P.tar.gz",
    "linux-amd64-intel-xeon-L5640.tar.gz",
}


class Row(NamedTuple):
    """One machine of the corpus and what the device readers made of it."""

    machine: str
    gpus: tuple[str, ...]
    pci: int
    nics: int
    rdma: int
    errors: tuple[str, ...]


def look(host: RecordedHost) -> Machine:
    return assemble(fact for read in READERS for fact in read(host))


def row(name: str, machine: Machine) -> Row:
    return Row(
        name,
        tuple(one.name or f"no name ({one.device_id or one.address})" for one in machine.gpus),
        len(machine.pci),
        sum(bool(nic.is_physical) for nic in machine.nics),
        len(machine.rdma),
        tuple(f"{key}: {why}" for key, why in machine.gaps.items() if why.startswith("error")),
    )


def hosts(root: Path) -> Iterator[tuple[str, RecordedHost]]:
    """Every machine of the corpus that says something of its devices."""
    for path in sorted((root / TELEGRAF / "nvidia_smi").rglob("*.xml")):
        yield path.name, host_of({}, commands={"nvidia-smi-xml": path.read_text()})
    for path in sorted((root / TELEGRAF / "amd_rocm_smi").rglob("*.json")):
        yield path.name, host_of({}, commands={"rocm-smi": path.read_text()})
    yield (
        "gpud H100 lspci",
        host_of({}, commands={"lspci": (root / "gpud/pkg/pci/testdata/lspci-vvv").read_text()}),
    )
    for name in ("lspci.nn.a100", "lspci.nn.a10"):
        text = (root / GPUD / "fabric-manager/testdata" / name).read_text()
        yield f"gpud {name}", host_of({}, commands={"lspci": text})
    yield "gpud H100 RDMA", infiniband(root)
    archives = [
        *(root / "hwloc/linux").glob("*.tar.*"),
        *(root / "ghw").glob("*.tar.gz"),
        *(root / "procfs").glob("*.ttar"),
    ]
    for path in sorted(archives):
        if path.name not in _NO_TAR:
            host = open_recorded(str(path))
            if any(map(host.exists, ("/sys/bus/pci/devices", "/sys/class/net", "/proc/driver/nvidia/gpus"))):
                yield path.name, host


def infiniband(root: Path) -> RecordedHost:
    tree = next((root / GPUD).rglob("sys-class-infiniband-h100.0"))
    return host_of(
        {
            f"/sys/class/infiniband/{path.relative_to(tree).as_posix()}": path.read_bytes()
            for path in tree.rglob("*")
            if path.is_file()
        }
    )


def rows(corpus: Path) -> tuple[Row, ...]:
    """For the table in docs/validation: machine by machine. `corpus` is the folder named by WELLFED_CORPUS."""
    return tuple(row(name, look(host)) for name, host in hosts(corpus / "host"))


@pytest.fixture(scope="module")
def root() -> Path:
    return Path(os.environ["WELLFED_CORPUS"]) / "host"


def test_every_machine_is_read(root: Path) -> None:
    found = rows(root.parent)
    assert len(found) >= 30
    wrong = {one.machine: one.errors for one in found if one.errors}
    # What those files do hold: a header that promises 4 GPUs over 1, an id blanked out as 000000DE, another
    # as [REDACTED], and two numbers of rocm-smi that are its way to say -1 or to name no one.
    assert set(wrong) == {
        "a100-sxm4-v12.xml",
        "a10g.xml",
        "rtx-3090-v12.xml",
        "rx6700xt_rocm430.json",
    }
    assert all(len(errors) == 1 for name, errors in wrong.items() if name.endswith(".xml"))


def test_names_of_every_nvidia_sample(root: Path) -> None:
    paths = sorted((root / TELEGRAF / "nvidia_smi").rglob("*.xml"))
    assert len(paths) == 12
    for path in paths:
        text = path.read_text()
        names = re.findall(r"<product_name>(.*?)</product_name>", text)
        machine = look(host_of({}, commands={"nvidia-smi-xml": text}))
        assert [one.name for one in machine.gpus] == names, path.name
        for one in machine.gpus:
            assert one.memory_bytes, path.name
            assert one.address, path.name


def test_names_of_every_amd_sample(root: Path) -> None:
    paths = sorted((root / TELEGRAF / "amd_rocm_smi").rglob("*.json"))
    assert len(paths) == 8
    for path in paths:
        cards = {key: card for key, card in json.loads(path.read_text()).items() if key.startswith("card")}
        names = [card.get("Card Series") or card.get("Card series") for card in cards.values()]
        machine = look(host_of({}, commands={"rocm-smi": path.read_text()}))
        # One sample prints the vendor's id as the name.
        assert [one.name for one in machine.gpus] == [None if n == "0x1002" else n for n in names], path.name
        assert all(one.vendor == "amd" and one.memory_bytes for one in machine.gpus)


def test_an_a100_with_mig(root: Path) -> None:
    text = (root / TELEGRAF / "nvidia_smi/testdata/a100-sxm4-v12.xml").read_text()
    machine = look(host_of({}, commands={"nvidia-smi-xml": text}))
    (one,) = machine.gpus
    assert (one.catalog, one.mig_capable, one.mig, one.mig_devices) == ("a100-sxm4-80", True, True, 4)
    assert (one.pcie_gen, one.pcie_gen_max, one.pcie_width, one.power_limit_w) == (4, 4, 16, 500.0)
    assert (one.ecc, one.ecc_uncorrected, one.throttle, one.utilization_pct) == (True, 0, (), None)
    assert "4 GPUs and holds 1" in machine.gaps["gpus"]


def test_a_deprecated_answer_is_no_value(root: Path) -> None:
    text = (root / TELEGRAF / "nvidia_smi/testdata/rtx-4000-sff-ada-v13.xml").read_text()
    machine = look(host_of({}, commands={"nvidia-smi-xml": text}))
    (one,) = machine.gpus
    assert (one.sm_app_mhz, one.sm_mhz, one.sm_max_mhz) == (None, 210, 3105)
    assert "deprecated" in machine.gaps["gpus[0].sm_app_mhz"]
    assert one.processes is not None
    assert [process.name for process in one.processes] == ["python", "chromium"]


def test_an_h100_machine_by_lspci(root: Path) -> None:
    text = (root / "gpud/pkg/pci/testdata/lspci-vvv").read_text()
    machine = look(host_of({}, commands={"lspci": text}))
    assert [one.catalog for one in machine.gpus] == ["h100-sxm-80"] * 8
    devices = {device.address: device for device in machine.pci}
    first = devices["0000:19:00.0"]
    assert (first.speed_gts, first.width, first.numa_node, first.driver) == (32.0, 16, 0, "nvidia")
    # GPU and NIC hang on two ports of one switch.
    assert first.parent and devices["0000:1a:00.0"].parent
    assert devices[first.parent].parent == devices[devices["0000:1a:00.0"].parent].parent == "0000:16:00.0"
    assert sum(device.driver == "nvidia-nvswitch" for device in machine.pci) == 4
    redirecting = [device.address for device in machine.pci if device.acs_redirect]
    lines = re.findall(r"ACSCtl:.*", text)
    assert len(redirecting) == sum("ReqRedir+" in line or "UpstreamFwd+" in line for line in lines) == 4


def test_the_control_registers_of_a_sound_h100_machine_raise_nothing(root: Path) -> None:
    """Eight GPUs and their adapters below switches: every register is as it should be, seen and judged."""
    machine = look(host_of({}, commands={"lspci": (root / "gpud/pkg/pci/testdata/lspci-vvv").read_text()}))
    machine = replace(machine, cpu=replace(machine.cpu, hypervisor="none", arch="x86_64"))
    judged = {verdict.code: verdict for verdict in judge_machine(machine)}
    for code in ("PCIE02", "PCIE04", "BIOS08"):
        assert judged[code].verdict == "pass", judged[code].message
        assert len(judged[code].where["pci"]) >= 8 + 8
    adapters = [device for device in machine.pci if device.vendor == "0x15b3"]
    assert {(one.max_read_request, one.relaxed_ordering) for one in adapters} == {(4096, True)}


def test_an_azure_a100_machine_by_lspci(root: Path) -> None:
    text = (root / GPUD / "fabric-manager/testdata/lspci.nn.a100").read_text()
    machine = look(host_of({}, commands={"lspci": text}))
    assert [one.catalog for one in machine.gpus] == ["a100-sxm4-80"] * 8
    assert machine.gpus[4].address == "000b:00:00.0"
    assert sum(device.class_code == "0x0207" for device in machine.pci) == 8


def test_rdma_ports_of_an_h100_machine(root: Path) -> None:
    ports = look(infiniband(root)).rdma
    assert [port.device for port in ports] == [
        *(f"mlx5_{n}" for n in (0, 1, 4, 5, 6, 7, 8, 9)),
        "mlx5_bond_0",
    ]
    assert {port.state for port in ports} == {"ACTIVE"}
    assert {(port.link_layer, port.rate_gbps) for port in ports} == {
        ("InfiniBand", 400.0),
        ("Ethernet", 200.0),
    }
    assert {port.firmware for port in ports} == {"28.41.1000", "32.38.3056"}
    for port in ports:
        assert port.link_downed is not None
        assert len(port.counters) > 30


def test_links_of_nvlink_samples(root: Path) -> None:
    text = (root / GPUD / "fabric-manager/testdata/nvidia-smi.nvlink.status.a100").read_text()
    assert topology.parse_nvlink(text) == {index: [25.0] * 12 for index in range(8)}
    azure = root / "azurehpc-health-checks/test/data"
    assert topology.parse_nvlink((azure / "good_nvlink_status.txt").read_text()) == {7: [25.0] * 12}
    assert topology.parse_nvlink((azure / "bad_nvlink_status.txt").read_text()) == {6: []}


def test_gpus_of_a_power9(root: Path) -> None:
    machine = look(open_recorded(str(root / "hwloc/linux/nvidiagpunumanodes.tar.bz2")))
    assert [one.address for one in machine.gpus][:2] == ["0004:05:00.0", "0004:06:00.0"]
    assert len(machine.gpus) == 6


def test_a_32_bit_pci_domain(root: Path) -> None:
    machine = look(open_recorded(str(root / "hwloc/linux/2pa-pcidomain32bits.tar.bz2")))
    assert [device.address for device in machine.pci if device.class_code == "0x020000"] == ["0000:00:03.0"]


def test_files_that_are_no_host(root: Path) -> None:
    for name in sorted(_NO_TAR):
        with pytest.raises(WellfedError):
            open_recorded(str(root / "ghw" / name))
