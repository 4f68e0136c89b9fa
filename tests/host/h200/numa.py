"""NUMA on the recorded H200 machine."""

ARGUED = {
    "NUMA06": "one node (lscpu): there is no far memory to refuse",
}
