"""Why the verdicts on RDMA are right on the recorded H200 machine, which has no RDMA device."""

_NONE = "no RDMA device is shown: `/sys/class/infiniband` does not exist"
ARGUED = {
    "RDMA02": _NONE,
    "RDMA03": _NONE,
    "RDMA09": _NONE,
    "RDMA12": "the guest has no DMI tables and is in a container",
    "RDMA13": _NONE,
    "RDMA05": _NONE,
    "RDMA06": _NONE,
    "RDMA07": _NONE,
    "RDMA08": _NONE,
}
