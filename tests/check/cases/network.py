"""Bad and good machines for checks of the network."""

from typing import Any

NIC = {"name": "ens1", "is_physical": True, "state": "up", "speed_mbps": 100_000}
H200 = {"vendor": "nvidia", "name": "NVIDIA H200", "index": 0}


def _keys(**more: Any) -> dict[str, Any]:
    return {"sysctls": {f"net.{key.replace('__', '.')}": value for key, value in more.items()}}


def _buffers(limit: int) -> dict[str, Any]:
    return {
        "nics": [NIC],
        "kernel": _keys(ipv4__tcp_rmem=f"4096 131072 {limit}", ipv4__tcp_wmem="4096 16384 67108864"),
    }


def _softnet(dropped: int, backlog: str) -> dict[str, Any]:
    counts = {"processed": 10_000_000, "dropped": dropped, "squeezed": 0}
    return {"kernel": {"softnet": counts, **_keys(core__netdev_max_backlog=backlog)}}


def _job(on_loopback: bool) -> dict[str, Any]:
    return {"gpus": [H200], "environment": {"WORLD_SIZE": "16"}, "kernel": {"name_on_loopback": on_loopback}}


def _firewall(*services: str) -> dict[str, Any]:
    return {"gpus": [H200], "environment": {"WORLD_SIZE": "16"}, "kernel": {"active_services": services}}


def _nic(**more: Any) -> dict[str, Any]:
    return {"nics": [{**NIC, **more}], "cpu": {"logical": 64}}


def _features(**changes: bool) -> dict[str, Any]:
    offloads = {"generic-receive-offload": True, "tcp-segmentation-offload": True, "tx-nocache-copy": False}
    return _nic(features={**offloads, **{name.replace("_", "-"): value for name, value in changes.items()}})


LOSS = {"drops": 40_000, "rx_packets": 1_000_000_000}
LINK = {"duplex": "full", "carrier_changes": 2, "speed_max_mbps": 100_000}

CASES: dict[str, Any] = {
    "NET22": (
        {**_nic(busy_mbps=20_000.0), "seen": ("rdma",)},
        {**_nic(busy_mbps=400.0), "seen": ("rdma",)},
        "info",
    ),
    "NET10": (
        _nic(ring_rx=1024, ring_rx_max=8192, **LOSS),
        _nic(ring_rx=8192, ring_rx_max=8192, **LOSS),
        "info",
    ),
    "NET11": (_nic(adaptive_rx=True, rx_usecs=64), _nic(adaptive_rx=False, rx_usecs=8), "info"),
    "NET12": (_nic(channels=2, channels_max=63), _nic(channels=16, channels_max=63), "info"),
    "NET13": (_features(generic_receive_offload=False), _features(), "info"),
    "NET15": (_nic(**LOSS), _nic(drops=12, rx_packets=1_000_000_000), "info"),
    "NET16": (_nic(**{**LINK, "speed_max_mbps": 200_000}), _nic(**LINK), "info"),
    "NET02": (_buffers(6_291_456), _buffers(67_108_864), "info"),
    "NET06": (_softnet(500, "1000"), _softnet(0, "1000"), "info"),
    "NET07": (
        {"kernel": _keys(core__somaxconn="128", ipv4__tcp_max_syn_backlog="4096")},
        {"kernel": _keys(core__somaxconn="4096", ipv4__tcp_max_syn_backlog="8192")},
        "info",
    ),
    "NET08": (
        {"kernel": _keys(ipv4__tcp_congestion_control="cubic", ipv4__tcp_slow_start_after_idle="1")},
        {"kernel": _keys(ipv4__tcp_congestion_control="cubic", ipv4__tcp_slow_start_after_idle="0")},
        "info",
    ),
    "NET09": (
        {"kernel": _keys(ipv4__tcp_sack="1", ipv4__tcp_timestamps="0")},
        {"kernel": _keys(ipv4__tcp_sack="1", ipv4__tcp_timestamps="1")},
        "info",
    ),
    "NET17": (
        {"kernel": {"arp_entries": 700, **_keys(ipv4__neigh__default__gc_thresh3="1024")}},
        {"kernel": {"arp_entries": 12, **_keys(ipv4__neigh__default__gc_thresh3="1024")}},
        "info",
    ),
    "NET18": (
        {"kernel": _keys(netfilter__nf_conntrack_count="190000", netfilter__nf_conntrack_max="262144")},
        {"kernel": _keys(netfilter__nf_conntrack_count="100", netfilter__nf_conntrack_max="262144")},
        "warning",
    ),
    "NET19": (_firewall("sshd", "firewalld"), _firewall("sshd"), "info"),
    "NET20": (
        {"kernel": {"active_services": ["sshd"]}},
        {"kernel": {"active_services": ["chronyd", "sshd"]}},
        "info",
    ),
    "NET21": (_job(True), _job(False), "info"),
}
WORDS = {
    "duplex": ("full", "half"),
    "active_services": ("chronyd", "ufw"),
    "sysctls": ("4096 131072 6291456", "bbr"),
}
KEYS = {
    "sysctls": (
        "net.core.netdev_max_backlog",
        "net.core.somaxconn",
        "net.ipv4.neigh.default.gc_thresh3",
        "net.ipv4.tcp_congestion_control",
        "net.ipv4.tcp_max_syn_backlog",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_sack",
        "net.ipv4.tcp_slow_start_after_idle",
        "net.ipv4.tcp_timestamps",
        "net.ipv4.tcp_wmem",
        "net.netfilter.nf_conntrack_count",
        "net.netfilter.nf_conntrack_max",
    ),
    "environment": ("WORLD_SIZE", "NCCL_IB_GID_INDEX"),
    "features": ("generic-receive-offload", "tcp-segmentation-offload", "tx-nocache-copy"),
}
