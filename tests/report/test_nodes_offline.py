"""CPUs whose node is offline: they are counted to no other node."""

from typing import Any

import msgspec

from wellfed.model import Machine
from wellfed.report.topology import svg, tree


def machine(fields: dict[str, Any]) -> Machine:
    return msgspec.convert(fields, Machine)


def odd() -> Machine:
    """8 CPUs, the even ones of node 0, which is offline; CPU 7 is offline as well."""
    threads: list[dict[str, Any]] = [
        {
            "id": cpu,
            "core": cpu,
            "package": cpu % 2,
            "node": 1 if cpu % 2 else None,
            "l3": cpu % 2,
            "online": cpu != 7,
        }
        for cpu in range(8)
    ]
    return machine(
        {
            "cpu": {"threads": threads, "logical": 7},
            "numa": [{"id": 1, "cpus": [1, 3, 5, 7], "mem_bytes": 1 << 30}],
        }
    )


def test_a_node_has_no_cores_of_another() -> None:
    text = "\n".join(tree(odd())).replace("\xa0", " ")
    assert "node 1, 3 CPUs, 1 GiB" in text
    assert "near no one node: CPUs 0,2,4,6" in text
    assert "0,2,4,6" in (svg(odd()) or "")


def test_machines_without_nodes_keep_all_cpus_in_one() -> None:
    flat = machine(
        {"cpu": {"threads": [{"id": cpu, "core": cpu, "online": True} for cpu in range(4)], "logical": 4}}
    )
    assert "4 CPUs" in "\n".join(tree(flat))
    assert "near no one node" not in "\n".join(tree(flat))
