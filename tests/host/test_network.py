"""Network interfaces and the default route."""

from typing import Any

import pytest

from wellfed.host.archive import Link
from wellfed.host.assemble import assemble
from wellfed.host.network import default_route, read_network
from wellfed.host.recorded import host_of
from wellfed.model.devices import Nic
from wellfed.model.machine import Machine

NET = "/sys/class/net"
ROUTES = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


def tree(**changes: Any) -> dict[str, Any]:
    """A ConnectX interface and a virtio one with their devices, a bridge and `lo`."""
    mlx = "/sys/devices/pci0000:17/0000:17:01.0/0000:1a:00.0"
    virtio = "/sys/devices/pci0000:00/0000:00:03.0/virtio0"
    files: dict[str, Any] = {
        f"{NET}/ens1": Link(f"{mlx}/net/ens1"),
        f"{mlx}/net/ens1/device": Link("../.."),
        f"{mlx}/driver": Link("/sys/bus/pci/drivers/mlx5_core"),
        f"{mlx}/numa_node": "1",
        f"{mlx}/net/ens1/operstate": "up",
        f"{mlx}/net/ens1/speed": "400000",
        f"{mlx}/net/ens1/mtu": "9000",
        f"{mlx}/net/ens1/carrier_changes": "2",
        f"{mlx}/net/ens1/statistics/rx_dropped": "7",
        f"{mlx}/net/ens1/queues/rx-0": None,
        f"{mlx}/net/ens1/queues/rx-1": None,
        f"{mlx}/net/ens1/queues/tx-0": None,
        f"{NET}/eth0": Link(f"{virtio}/net/eth0"),
        f"{virtio}/net/eth0/device": Link("../.."),
        f"{virtio}/driver": Link("../../../../bus/virtio/drivers/virtio_net"),
        f"{virtio}/net/eth0/speed": "-1",
        f"{virtio}/net/eth0/mtu": "1400",
        "/sys/bus/pci/devices/0000:00:03.0": Link("/sys/devices/pci0000:00/0000:00:03.0"),
        "/sys/devices/pci0000:00/0000:00:03.0/numa_node": "0",
        f"{NET}/br0/mtu": "1500",
        f"{NET}/lo/mtu": "65536",
        f"{NET}/bonding_masters": "",
        "/proc/net/route": f"{ROUTES}eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        "ens1\t0000000A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n",
    }
    return files | changes


def look(files: dict[str, Any]) -> Machine:
    return assemble(read_network(host_of(files)))


def test_interfaces() -> None:
    found = look(tree())
    nics = {nic.name: nic for nic in found.nics}
    assert set(nics) == {"ens1", "eth0", "br0", "lo"}
    assert nics["ens1"] == Nic(
        name="ens1",
        driver="mlx5_core",
        address="0000:1a:00.0",
        numa_node=1,
        state="up",
        speed_mbps=400000,
        mtu=9000,
        is_physical=True,
        is_default_route=False,
        rx_queues=2,
        tx_queues=1,
        rx_dropped=7,
        carrier_changes=2,
    )
    eth0 = nics["eth0"]
    assert (eth0.driver, eth0.address, eth0.numa_node) == ("virtio_net", "0000:00:03.0", 0)
    assert (eth0.is_physical, eth0.is_default_route, eth0.speed_mbps) == (True, True, None)
    assert (nics["br0"].is_physical, nics["br0"].driver, nics["br0"].mtu) == (False, None, 1500)


def test_an_unknown_speed_has_a_reason() -> None:
    found = look(tree())
    index = [nic.name for nic in found.nics].index("eth0")
    assert "the driver says -1" in found.gaps[f"nics[{index}].speed_mbps"]
    assert found.nics[index].mtu == 1400, "the reason leaves the rest in place"


@pytest.mark.parametrize("speed", ["-1", "4294967295", "0", "fast", ""])
def test_speeds_that_are_none(speed: str) -> None:
    path = "/sys/devices/pci0000:17/0000:17:01.0/0000:1a:00.0/net/ens1/speed"
    found = look(tree(**{path: speed}))
    assert next(nic for nic in found.nics if nic.name == "ens1").speed_mbps is None


def test_many_virtual_interfaces_are_counted() -> None:
    found = look(tree(**{f"{NET}/veth{i}/mtu": "1500" for i in range(200)}))
    assert len(found.nics) == 2 + 64
    assert found.facts["nics"].detail == "138 more interfaces are not listed"


def test_no_network_is_said() -> None:
    assert look({}).gaps["nics"].startswith("missing")


def route(v4: str | None = None, v6: str | None = None) -> frozenset[str] | None:
    tables = {"/proc/net/route": v4, "/proc/net/ipv6_route": v6}
    return default_route(host_of({path: text for path, text in tables.items() if text is not None}))


ZERO = "0" * 32


def test_default_route() -> None:
    assert route() is None
    assert route(ROUTES) == frozenset()
    two = f"{ROUTES}a\t00000000\t0\t3\t0\t0\t200\t00000000\nb\t00000000\t0\t3\t0\t0\t100\t00000000\n"
    assert route(two) == {"b"}
    reject = f"{ZERO} 00 {ZERO} 00 {ZERO} ffffffff 00000001 00000000 00200200 lo\n"
    default = f"{ZERO} 00 {ZERO} 00 fe8{ZERO[:29]} 00000400 00000001 00000000 00000003 ib0\n"
    assert route(ROUTES, reject + default) == {"ib0"}
    narrow = default.replace(f"{ZERO} 00", f"{ZERO} 60", 1).replace("ib0", "ib1")
    assert route(None, narrow) == frozenset()
    assert route(None, default.replace("ib0", "lo")) == frozenset()
    assert route(two, reject + default) == {"b"}


@pytest.mark.parametrize(
    "text", ["x", f"{ROUTES}a\t00000000", f"{ROUTES}\n\n\0", f"{ZERO} 00 x x x zz x x x ib0"]
)
def test_odd_routing_tables(text: str) -> None:
    assert route(text, text) in (frozenset(), None)
