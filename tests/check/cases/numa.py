"""NUMA: one bad and one good machine a check."""

from typing import Any

NODES = [{"id": 0, "cpus": [0, 1, 2, 3]}, {"id": 1, "cpus": [4, 5, 6, 7]}]

CASES: dict[str, Any] = {
    "NUMA06": (
        {"numa": NODES, "kernel": {"sysctls": {"vm.zone_reclaim_mode": "1"}}},
        {"numa": NODES, "kernel": {"sysctls": {"vm.zone_reclaim_mode": "0"}}},
        "info",
    ),
}
KEYS = {"sysctls": ("vm.zone_reclaim_mode",)}
