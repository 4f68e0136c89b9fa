"""NUMA on the recorded H200 machine."""

ARGUED = {
    "NUMA06": "one node (lscpu): there is no far memory to refuse",
    "NUMA02": "one node",
    "NUMA03": "one node",
    "NUMA04": "one node",
    "NUMA09": "one node",
    "NUMA10": "one node",
    "NUMA13": "it calls itself a container, has one node, and runs no systemd",
}
