"""Bad and good machines for checks of RDMA."""

from typing import Any

PORT = {
    "device": "mlx5_0",
    "port": 1,
    "link_layer": "InfiniBand",
    "board": "MT_0838",
    "state": "ACTIVE",
    "physical_state": "LinkUp",
}


def _ports(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**PORT, "device": f"mlx5_{index}", **change} for index, change in enumerate(changes)]


def _counted(**counters: int) -> dict[str, Any]:
    return {"rdma": _ports({"counters": {"port_rcv_packets": 5_000_000, **counters}})}


def _efa(count: int) -> dict[str, Any]:
    devices = [
        {"device": f"rdmap{79 + index}s0", "port": 1, "link_layer": "Unspecified"} for index in range(count)
    ]
    return {"memory": {"dmi_product": "Amazon EC2 p5.48xlarge"}, "rdma": devices}


def _arp(ignore: str, announce: str) -> dict[str, Any]:
    keys = {
        "net.ipv4.conf.all.arp_ignore": ignore,
        "net.ipv4.conf.all.arp_announce": announce,
    }
    roce = {"link_layer": "Ethernet"}
    return {"rdma": _ports(roce, roce), "kernel": {"sysctls": keys}}


def _gids(kind: str, family: str) -> dict[str, Any]:
    table = [
        {"index": 1, "kind": "RoCE v2", "family": "link-local"},
        {"index": 3, "kind": kind, "family": family},
    ]
    return {
        "rdma": _ports({"link_layer": "Ethernet", "gids": table}),
        "environment": {"WORLD_SIZE": "16", "NCCL_IB_GID_INDEX": "3"},
        "gpus": [{"vendor": "nvidia", "name": "NVIDIA H200", "index": 0}],
    }


def _ecn(enabled: bool) -> dict[str, Any]:
    nic = {"name": "ens1", "is_physical": True, "state": "up", "ecn_np": True, "ecn_rp": enabled}
    return {"nics": [nic], "rdma": _ports({"link_layer": "Ethernet", "netdev": "ens1"})}


def _group(said: str) -> dict[str, Any]:
    return {"rdma": _ports({}), "container": {"rdma_limits": {"mlx5_0": said}}}


CASES: dict[str, Any] = {
    "RDMA05": (_gids("IB/RoCE v1", "ipv4"), _gids("RoCE v2", "ipv4"), "warning"),
    "RDMA06": (_ecn(False), _ecn(True), "info"),
    "RDMA07": ({"rdma": _ports({"active_mtu": 1024})}, {"rdma": _ports({"active_mtu": 4096})}, "info"),
    "RDMA08": (_group("hca_handle=2 hca_object=max"), _group("hca_handle=max hca_object=max"), "warning"),
    "RDMA02": (
        {"rdma": _ports({"link_downed": 6}), "kernel": {"uptime_s": 86400.0}},
        {"rdma": _ports({"link_downed": 0}), "kernel": {"uptime_s": 86400.0}},
        "warning",
    ),
    "RDMA03": (_counted(symbol_error=100), _counted(symbol_error=1, out_of_sequence=0), "warning"),
    "RDMA09": (
        {"rdma": _ports({"firmware": "28.39.1002"}, {"firmware": "28.41.1000"})},
        {"rdma": _ports({"firmware": "28.41.1000"}, {"firmware": "28.41.1000"})},
        "info",
    ),
    "RDMA12": (_efa(31), _efa(32), "warning"),
    "RDMA13": (_arp("0", "0"), _arp("1", "2"), "info"),
}
WORDS = {
    "netdev": ("eth0", "ens1"),
    "family": ("ipv4", "ipv6", "link-local"),
    "rdma_limits": ("hca_handle=max hca_object=max", "hca_handle=2 hca_object=max"),
    "link_layer": ("InfiniBand", "Ethernet"),
    "device": ("mlx5_0", "efa_0", "rdmap79s0"),
    "dmi_product": ("Amazon EC2 p5.48xlarge", "Amazon EC2 p4d.24xlarge"),
    "board": ("MT_0838", "MT_0840"),
    "firmware": ("28.41.1000", "28.39.1002"),
}
KEYS = {
    "counters": ("port_rcv_packets", "symbol_error", "out_of_sequence"),
    "sysctls": ("net.ipv4.conf.all.arp_announce", "net.ipv4.conf.all.arp_ignore"),
}
