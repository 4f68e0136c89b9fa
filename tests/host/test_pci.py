"""PCI devices from sysfs with its links, and from lspci."""

import random
from typing import Any

import pytest

from wellfed.host.archive import Link
from wellfed.host.assemble import assemble
from wellfed.host.pci import parse_lspci, pci_address, pci_id, read_pci
from wellfed.host.recorded import host_of
from wellfed.model.devices import PciDevice
from wellfed.model.machine import Machine

DEVICES = "/sys/bus/pci/devices"
ROOT = "/sys/devices/pci0000:17"


def tree(**changes: str | Link | None) -> dict[str, Any]:
    """Root port 17:01.0 > switch port 18:00.0 > GPU 19:00.0 and NIC 1a:00.0; a disk and a BMC elsewhere."""
    gpu = f"{ROOT}/0000:17:01.0/0000:18:00.0/0000:19:00.0"
    nic = f"{ROOT}/0000:17:01.0/0000:18:00.0/0000:1a:00.0"
    places = {
        "0000:17:01.0": (f"{ROOT}/0000:17:01.0", "0x060400", "0x8086", "0x352a"),
        "0000:18:00.0": (f"{ROOT}/0000:17:01.0/0000:18:00.0", "0x060400", "0x1000", "0xc030"),
        "0000:19:00.0": (gpu, "0x030200", "0x10de", "0x2330"),
        "0000:1a:00.0": (nic, "0x020700", "0x15b3", "0x1021"),
        "0000:30:00.0": ("/sys/devices/pci0000:30/0000:30:00.0", "0x010802", "0x144d", "0xa824"),
        "0000:31:00.0": ("/sys/devices/pci0000:30/0000:31:00.0", "0x030000", "0x1a03", "0x2000"),
        "0000:32:00.0": ("/sys/devices/pci0000:30/0000:32:00.0", "0x060400", "0x8086", "0x352a"),
    }
    files: dict[str, Any] = {}
    for address, (place, klass, vendor, device) in places.items():
        files[f"{DEVICES}/{address}"] = Link(place)
        files |= {f"{place}/class": klass, f"{place}/vendor": vendor, f"{place}/device": device}
    files |= {
        f"{gpu}/driver": Link("/sys/bus/pci/drivers/nvidia"),
        f"{gpu}/numa_node": "0",
        f"{gpu}/local_cpulist": "0-3",
        f"{gpu}/current_link_speed": "2.5 GT/s PCIe",
        f"{gpu}/max_link_speed": "32.0 GT/s PCIe",
        f"{gpu}/current_link_width": "8",
        f"{gpu}/max_link_width": "16",
        f"{gpu}/power/control": "auto",
        f"{gpu}/aer_dev_correctable": "RxErr 1\nBadTLP 2\nTOTAL_ERR_COR 3",
        f"{gpu}/aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 4",
        f"{gpu}/aer_dev_fatal": "TOTAL_ERR_FATAL 5",
        f"{nic}/physfn": Link("../0000:1a:00.1"),
        f"{nic}/numa_node": "-1",
        f"{nic}/current_link_speed": "Unknown",
        f"{nic}/current_link_width": "63",
        f"{nic}/max_link_width": "255",
    }
    return files | {name.replace("GPU", gpu): value for name, value in changes.items()}


LSPCI = """0000:17:01.0 PCI bridge [0604]: Intel Corporation Device [8086:352a] (rev 04) (prog-if 00 [Normal decode])
\tBus: primary=17, secondary=18, subordinate=1a, sec-latency=0
\tNUMA node: 0
\tCapabilities: [140 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
\tKernel driver in use: pcieport

0000:18:00.0 PCI bridge [0604]: Broadcom / LSI PEX890xx [1000:c030] (rev b0)
\tBus: primary=18, secondary=19, subordinate=19, sec-latency=0
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-

0000:19:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
\tNUMA node: 0
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1, Exit Latency L1 <4us
\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)
\tKernel driver in use: nvidia
"""


def look(files: dict[str, Any], lspci: str | None = None) -> Machine:
    return assemble(read_pci(host_of(files, commands={"lspci": lspci} if lspci is not None else {})))


def by_address(machine: Machine) -> dict[str, PciDevice]:
    return {device.address: device for device in machine.pci}


def test_what_matters_and_the_bridges_above() -> None:
    found = by_address(look(tree()))
    assert list(found) == ["0000:17:01.0", "0000:18:00.0", "0000:19:00.0", "0000:1a:00.0", "0000:30:00.0"]
    assert found["0000:19:00.0"] == PciDevice(
        address="0000:19:00.0",
        vendor="0x10de",
        device="0x2330",
        class_code="0x030200",
        driver="nvidia",
        numa_node=0,
        local_cpus=(0, 1, 2, 3),
        speed_gts=2.5,
        speed_max_gts=32.0,
        width=8,
        width_max=16,
        parent="0000:18:00.0",
        power_control="auto",
        aer_correctable=3,
        aer_nonfatal=4,
        aer_fatal=5,
        acs_redirect=None,
        is_virtual=False,
    )
    assert [found[address].parent for address in ("0000:18:00.0", "0000:17:01.0")] == ["0000:17:01.0", None]


def test_unknown_is_none() -> None:
    nic = by_address(look(tree()))["0000:1a:00.0"]
    assert (nic.numa_node, nic.speed_gts, nic.width, nic.width_max) == (None, None, None, None)
    assert nic.is_virtual is True


def test_acs_from_lspci() -> None:
    found = by_address(look(tree(), LSPCI))
    assert (found["0000:17:01.0"].acs_redirect, found["0000:18:00.0"].acs_redirect) == (False, True)
    assert found["0000:19:00.0"].acs_redirect is None


@pytest.mark.parametrize(
    ("lspci", "status"),
    [
        (None, "missing"),
        (LSPCI.replace("ACSCtl", "Other"), "unsupported"),
        (LSPCI.replace("\t\tACSCtl:", "\tCapabilities: <access denied>"), "denied"),
        ("", "unsupported"),
    ],
)
def test_why_acs_is_not_known(lspci: str | None, status: str) -> None:
    found = look(tree(), lspci)
    assert by_address(found)["0000:18:00.0"].acs_redirect is None
    index = [device.address for device in found.pci].index("0000:18:00.0")
    assert found.facts[f"pci[{index}].acs_redirect"].status == status


def test_without_gpu_lspci_is_not_run() -> None:
    files = {path: value for path, value in tree().items() if "19:00.0" not in path}
    host = host_of(files)
    host.run = None  # type: ignore[method-assign, assignment]
    counts = [f"pci[3].aer_{kind}" for kind in ("correctable", "nonfatal", "fatal")]
    assert [fact.key for fact in read_pci(host)] == ["kernel.aspm_policy", "pci", *counts]


def test_a_tree_without_links() -> None:
    files = {f"{DEVICES}/0000:01:00.0/class": "0x020000", f"{DEVICES}/0000:01:00.0/vendor": "0x1af4"}
    (device,) = look(files).pci
    assert (device.parent, device.driver, device.is_virtual, device.local_cpus) == (None, None, True, None)


@pytest.mark.parametrize("text", ["", "x", "0-", "0-99999999999", "\0"])
def test_an_odd_cpu_list(text: str) -> None:
    device = by_address(look(tree(**{"GPU/local_cpulist": text})))["0000:19:00.0"]
    assert device.local_cpus in (None, ())


def test_lspci_stands_in_for_sysfs() -> None:
    found = by_address(look({}, LSPCI))
    gpu = found["0000:19:00.0"]
    assert (gpu.vendor, gpu.device, gpu.driver, gpu.numa_node) == ("0x10de", "0x2330", "nvidia", 0)
    assert (gpu.speed_gts, gpu.speed_max_gts, gpu.width, gpu.width_max) == (16.0, 32.0, 8, 16)
    assert (gpu.parent, found["0000:18:00.0"].parent) == ("0000:18:00.0", "0000:17:01.0")
    assert found["0000:18:00.0"].acs_redirect is True


def test_lspci_without_numbers_or_domain() -> None:
    text = "19:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n\tNUMA node: 1\n"
    (gpu,) = look({}, text).pci
    assert (gpu.address, gpu.vendor, gpu.device, gpu.class_code) == (
        "0000:19:00.0",
        "0x10de",
        "0x2330",
        "0x0302",
    )


def test_neither_is_said() -> None:
    assert look({}).gaps["pci"].startswith("missing")


def test_bridges_in_a_circle() -> None:
    text = (
        "0000:01:00.0 PCI bridge [0604]: A [8086:0001]\n\tBus: primary=01, secondary=01, subordinate=01\n"
        "0000:01:00.1 3D controller [0302]: NVIDIA Corporation B [10de:2330]\n"
    )
    assert [device.address for device in look({}, text).pci] == ["0000:01:00.0", "0000:01:00.1"]


@pytest.mark.parametrize("seed", range(200))
def test_mutated_lspci_never_raises(seed: int) -> None:
    rng = random.Random(seed)
    text = LSPCI
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(text) + 1), rng.choice((1, 3, 20, 200))
        insert = rng.choice(
            ("", "\t", "\n", "[", "]", ":", "9" * 30, "GT/s", "-", "\ud800", "Speed .GT/s, Width x1")
        )
        text = text[:at] + insert + text[at + rng.choice((0, size)) :]
    look({}, text)
    look(tree(), text)


def test_a_long_line_takes_no_time() -> None:
    assert parse_lspci("0000:19:00.0 " + "a" * 200_000) == {}
    assert len(parse_lspci("0000:19:00.0 A: " + "[10de:2330" * 20_000)) == 1


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:0F:00.0", "0000:0f:00.0"),
        ("0f:00.0", "0000:0f:00.0"),
        ("10000:e1:00.7", "10000:e1:00.7"),
        ("0001:00:00.0", "0001:00:00.0"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert pci_address(text) == address


@pytest.mark.parametrize("text", ["", "0f:00", "0000:0f:00.8", "../0f:00.0", "00:0f:00:00.0", "0f:00.0x"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="no PCI address"):
        pci_address(text)


def test_ids() -> None:
    assert pci_id(0x233510DE) == "10de:2335"
    with pytest.raises(ValueError, match="no PCI id"):
        pci_id(1 << 32)


REGISTERS = """0000:19:00.0 Processing accelerators [1200]: Advanced Micro Devices, Inc. [AMD/ATI] Device [1002:74a1]
\tCapabilities: [64] Express (v2) Endpoint, MSI 00
\t\tDevCap:\tMaxPayload 512 bytes, PhantFunc 0, Latency L0s <4us, L1 unlimited
\t\t\tExtTag+ AttnBtn- AttnInd- PwrInd- RBE+ FLReset+
\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq-
\t\t\tRlxdOrd+ ExtTag- PhantFunc- AuxPwr- NoSnoop+
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tDevSta:\tCorrErr- NonFatalErr- FatalErr- UnsupReq- AuxPwr- TransPend-
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L0s L1, Exit Latency L0s <64ns
\t\tLnkCtl:\tASPM L0s L1 Enabled; RCB 64 bytes, Disabled- CommClk+
\t\tDevCap2: Completion Timeout: Range ABCD, TimeoutDis+ NROPrPrP- LTR-
\t\t\t 10BitTagComp+ 10BitTagReq+ OBFF Not Supported, ExtFmt+ EETLPPrefix+
\t\tDevCtl2: Completion Timeout: 50us to 50ms, TimeoutDis-
\t\t\t AtomicOpsCtl: ReqEn+
\t\t\t 10BitTagReq- OBFF Disabled, EETLPPrefixBlk-
\tCapabilities: [2a0 v1] Address Translation Service (ATS)
\t\tATSCap:\tInvalidate Queue Depth: 00
\t\tATSCtl:\tEnable+, Smallest Translation Unit: 00
"""


def test_control_registers() -> None:
    (gpu,) = look({}, REGISTERS).pci
    assert (gpu.max_payload, gpu.max_payload_capable, gpu.max_read_request) == (256, 512, 512)
    assert (gpu.relaxed_ordering, gpu.extended_tags, gpu.ten_bit_tags) == (True, False, False)
    assert (gpu.ats_enabled, gpu.aspm) == (True, "L0s L1")


def test_what_a_device_cannot_do_is_not_off() -> None:
    text = REGISTERS.replace("ExtTag+ AttnBtn", "ExtTag- AttnBtn").replace("10BitTagReq+", "10BitTagReq-")
    (gpu,) = look({}, text).pci
    assert (gpu.extended_tags, gpu.ten_bit_tags) == (None, None)
    (quiet,) = look({}, REGISTERS.replace("ASPM L0s L1 Enabled", "ASPM Disabled")).pci
    assert quiet.aspm == "disabled"


def test_registers_that_are_not_shown_have_a_reason() -> None:
    hidden = (
        "0000:1a:00.0 Infiniband controller [0207]: Mellanox [15b3:1021]\n\tCapabilities: <access denied>\n"
    )
    files = {path: value for path, value in tree().items() if "physfn" not in path}
    for text, status in (
        (hidden, "denied"),
        (None, "missing"),
        (hidden.replace("access denied", ""), "unsupported"),
    ):
        found = look(files, text)
        index = [device.address for device in found.pci].index("0000:1a:00.0")
        for field in (
            "max_payload",
            "max_read_request",
            "relaxed_ordering",
            "extended_tags",
            "aspm",
            "ats_enabled",
        ):
            assert found.facts[f"pci[{index}].{field}"].status == status


WINDOW = "0x00000000{:08x} 0x00000000{:08x} 0x{:016x}"


@pytest.mark.parametrize(
    ("windows", "unplaced"),
    [
        ([(0x1000, 0x1FFF, 0x40200)], 0),
        ([(0x1000, 0x1FFF, 0x40200), (0, 0xFFFFFF, 0x14220C)], 1),
        ([(0x1000, 0x1FFF, 0x20040200), (0, 0xFFFFFF, 0x2014220C)], 2),
        ([(0x1000, 0x1FFF, 0x40200), (0, 0x7F, 0x20040101)], 0),
        ([], 0),
    ],
    ids=["placed", "at nowhere", "unset", "ports may be", "no windows"],
)
def test_windows_without_an_address(windows: list[tuple[int, int, int]], unplaced: int) -> None:
    lines = [WINDOW.format(*window) for window in [*windows, *[(0, 0, 0)] * 13][:13]]
    gpu = by_address(look(tree(**{"GPU/resource": "\n".join(lines)})))["0000:19:00.0"]
    assert gpu.bars_unplaced == unplaced


@pytest.mark.parametrize("text", ["", "x", "0x0 0x0", "\n" * 9, "0x" + "0" * 99])
def test_odd_windows_are_unknown(text: str) -> None:
    assert by_address(look(tree(**{"GPU/resource": text})))["0000:19:00.0"].bars_unplaced is None


def test_windows_without_an_address_by_lspci() -> None:
    text = REGISTERS + (
        "\tRegion 0: Memory at 1a000000000 (64-bit, prefetchable) [size=16M]\n"
        "\tRegion 2: Memory at <unassigned> (64-bit, prefetchable)\n\tRegion 5: I/O ports at <unassigned>\n"
    )
    assert [device.bars_unplaced for device in look({}, text).pci] == [1]
    assert [device.bars_unplaced for device in look({}, REGISTERS).pci] == [None]
