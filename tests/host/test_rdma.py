"""RDMA ports."""

from typing import Any

from wellfed.host.archive import Link
from wellfed.host.assemble import assemble
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
