"""RDMA ports."""

from typing import Any

from wellfed.host.archive import Link
from wellfed.host.assemble import assemble
from wellfed.host.container import read_container
from wellfed.host.rdma import read_rdma
from wellfed.host.recorded import host_of
from wellfed.model.devices import RdmaPort
from wellfed.model.machine import Machine

IB = "/sys/class/infiniband"


def look(files: dict[str, Any]) -> Machine:
    return assemble(read_rdma(host_of(files)))


def port(base: str, **changes: str) -> dict[str, Any]:
    return {
        f"{base}/{name}": text
        for name, text in {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "link_layer": "InfiniBand",
            "rate": "400 Gb/sec (4X NDR)",
            "counters/link_downed": "1",
            "counters/symbol_error": "2",
            "counters/port_xmit_data": "18446744073709551615",
            "hw_counters/out_of_sequence": "3",
            "hw_counters/lifespan": "12",
            "hw_counters/odd": "N/A (no PMA)",
            **changes,
        }.items()
    }


def test_a_port() -> None:
    device = "/sys/devices/pci0000:17/0000:17:01.0/0000:1a:00.0"
    place = f"{device}/infiniband/mlx5_0"
    files = {
        f"{IB}/mlx5_0": Link(place),
        f"{place}/device": Link("../.."),
        "/sys/bus/pci/devices/0000:1a:00.0": Link(device),
        f"{device}/numa_node": "1",
        f"{place}/fw_ver": "28.41.1000",
        f"{place}/board_id": "MT_0000000838",
    }
    found = look(
        files
        | port(f"{place}/ports/1")
        | port(f"{place}/ports/2", state="1: DOWN", rate="10 Gb/sec (4X SDR)")
    )
    first, second = found.rdma
    assert first == RdmaPort(
        device="mlx5_0",
        port=1,
        state="ACTIVE",
        physical_state="LinkUp",
        link_layer="InfiniBand",
        rate_gbps=400.0,
        firmware="28.41.1000",
        board="MT_0000000838",
        numa_node=1,
        address="0000:1a:00.0",
        link_downed=1,
        symbol_errors=2,
        counters={
            "link_downed": 1,
            "symbol_error": 2,
            "port_xmit_data": (1 << 63) - 1,
            "out_of_sequence": 3,
        },
    )
    assert (second.port, second.state, second.rate_gbps) == (2, "DOWN", 10.0)


def test_a_counter_in_both_folders_is_added_up() -> None:
    found = look(port(f"{IB}/efa_0/ports/1", **{"hw_counters/link_downed": "4"}))
    assert found.rdma[0].link_downed == 5


def test_the_node_of_a_tree_without_links() -> None:
    assert (
        look({f"{IB}/efa_0/device/numa_node": "1", f"{IB}/efa_0/ports/1/state": "4: ACTIVE"})
        .rdma[0]
        .numa_node
        == 1
    )


def test_unknown_is_none() -> None:
    files = {
        f"{IB}/rxe0/ports/1/state": "",
        f"{IB}/rxe0/ports/1/rate": "fast",
        f"{IB}/rxe0/ports/x/rate": "1",
    }
    (only,) = look(files).rdma
    assert (only.state, only.rate_gbps, only.firmware, only.numa_node, only.counters) == (
        None,
        None,
        None,
        None,
        {},
    )


def test_none_there_and_none_seen_differ() -> None:
    assert look({}).gaps["rdma"].startswith("missing")
    empty = look({IB: None})
    assert (empty.rdma, empty.gaps) == ((), {})


# -- addresses and packets ---------------------------------------------------------------------------------

ROCE = {
    "link_layer": "Ethernet",
    "gids/0": "fe80:0000:0000:0000:0e42:a1ff:fe12:3456",
    "gid_attrs/types/0": "IB/RoCE v1",
    "gid_attrs/ndevs/0": "ens1",
    "gids/1": "0000:0000:0000:0000:0000:ffff:0a00:0001",
    "gid_attrs/types/1": "RoCE v2",
    "gids/2": "2001:0db8:0000:0000:0e42:a1ff:fe12:3456",
    "gid_attrs/types/2": "RoCE v2",
    "gids/3": "0000:0000:0000:0000:0000:0000:0000:0000",
    "gids/4": "ipv6-1",
    "gid_attrs/types/4": "RoCE v2",
}
DEVINFO = """hca_id:	mlx5_0
	transport:			InfiniBand (0)
	phys_port_cnt:			2
		port:	1
			state:			PORT_ACTIVE (4)
			max_mtu:		4096 (5)
			active_mtu:		1024 (3)

		port:	2
			active_mtu:		4096 (5)

hca_id:	mlx5_1
		port:	1
			active_mtu:		invalid MTU (0)
"""


def test_addresses_of_a_roce_port() -> None:
    found = look(port(f"{IB}/mlx5_0/ports/1", **ROCE))
    (one,) = found.rdma
    assert one.netdev == "ens1"
    assert [(gid.index, gid.kind, gid.family) for gid in one.gids or ()] == [
        (0, "IB/RoCE v1", "link-local"),
        (1, "RoCE v2", "ipv4"),
        (2, "RoCE v2", "ipv6"),
        (4, "RoCE v2", None),
    ], "an empty entry is none, and a hidden address has no family"
    assert "active_mtu" in " ".join(found.gaps)


def test_the_table_of_an_infiniband_port_is_not_read() -> None:
    (one,) = look(port(f"{IB}/mlx5_0/ports/1", **{**ROCE, "link_layer": "InfiniBand"})).rdma
    assert one.gids is None and one.netdev is None


def test_packets_of_each_port() -> None:
    files = port(f"{IB}/mlx5_0/ports/1") | port(f"{IB}/mlx5_0/ports/2") | port(f"{IB}/mlx5_1/ports/1")
    found = assemble(read_rdma(host_of(files, commands={"ibv-devinfo": DEVINFO})))
    assert [one.active_mtu for one in found.rdma] == [1024, 4096, None]
    assert [key for key in found.gaps if "busy" not in key] == ["rdma[2].active_mtu"]


def test_limits_of_the_group() -> None:
    group = "/sys/fs/cgroup/job"
    files = {
        "/proc/self/cgroup": "0::/job/step\n",
        "/proc/self/mountinfo": "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        f"{group}/step/rdma.max": "mlx5_0 hca_handle=max hca_object=max\nmlx5_1 hca_handle=max hca_object=max\n",
        f"{group}/rdma.max": "mlx5_0 hca_handle=2 hca_object=max\n",
    }
    limits = assemble(read_container(host_of(files))).container.rdma_limits
    assert limits == {
        "mlx5_0": "hca_handle=2 hca_object=max",
        "mlx5_1": "hca_handle=max hca_object=max",
    }, "a limit further up counts"
    none = assemble(
        read_container(host_of({path: text for path, text in files.items() if "rdma" not in path}))
    )
    assert "container.rdma_limits" in none.gaps
