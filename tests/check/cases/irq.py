"""Interrupts: one bad and one good machine a check."""

from typing import Any

NODES = [{"id": 0, "cpus": [0, 1, 2, 3]}, {"id": 1, "cpus": [4, 5, 6, 7]}]
ADAPTER = {"address": "0000:1a:00.0", "numa_node": 1}
NIC = {"name": "ens1", "address": "0000:1a:00.0", "is_physical": True, "state": "up", "speed_mbps": 400_000}


def _placed(*cpus: int) -> dict[str, Any]:
    return {"numa": NODES, "pci": [ADAPTER], "nics": [NIC], **_taken(*cpus)}


def _taken(*cpus: int) -> dict[str, Any]:
    """Vectors of one adapter, each taken by one CPU."""
    return {
        "irqs": [
            {
                "number": 100 + index, "kind": "nic", "address": "0000:1a:00.0", "count": 500_000, "effective": [cpu],
                "busiest": cpu, "max_share": 1.0,
            }
            for index, cpu in enumerate(cpus)
        ]
    }  # fmt: skip


def _squeezed(rounds: int) -> dict[str, Any]:
    counts = {"processed": 10_000_000, "dropped": 0, "squeezed": rounds}
    return {"kernel": {"softnet": counts, "sysctls": {"net.core.netdev_budget": "300"}}}


def _isolated(*cpus: int) -> dict[str, Any]:
    mask = {"default_irq_affinity": [0, 1], "workqueue_cpumask": [0, 1, 2]}
    return {"cpu": {"isolated": list(cpus)}, "kernel": mask}


def _queues(count: int) -> dict[str, Any]:
    nic = {"name": "eth0", "driver": "virtio_net", "is_physical": True, "state": "up", "rps_cpus": 0}
    return {"cpu": {"logical": 16}, "nics": [{**nic, "rx_queues": count}]}


CASES: dict[str, Any] = {
    "IRQ01": (_placed(0, 1, 2, 3), _placed(4, 5, 6, 0), "warning"),
    "IRQ03": (_taken(0, 0, 0, 1), _taken(0, 1, 2, 3), "info"),
    "IRQ04": (_squeezed(20_000), _squeezed(200), "info"),
    "IRQ05": (_isolated(2, 3), _isolated(3), "info"),
    "IRQ06": (_queues(1), _queues(8), "info"),
}
WORDS = {"kind": ("nic", "rdma", "nvme")}
KEYS = {"sysctls": ("net.core.netdev_budget",)}
