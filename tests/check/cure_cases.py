"""Machines for the cures: the bad machine of a check's case with what a change needs to know besides (where a device is,
what a driver takes), and other machines with the same fault, so that every row of a check has one on which it is made."""

from typing import Any

from host_cases import CASES, GIB, machine

from wellfed.model import Machine

_NIC = {"name": "ens1", "is_physical": True, "state": "up", "speed_mbps": 100_000, "is_default_route": False}
_STATES = [
    {"name": f"C{n}", "latency_us": latency, "disabled": False}
    for n, latency in enumerate((0, 2, 10, 40, 170, 180, 190, 200, 210, 220))
]
_GPU = {"address": "0000:0f:00.0", "virtualization": "none"}
_AT = {"gpus": [_GPU]}
_PAGES = (64 << 10, 2 << 20, 32 << 20, 512 << 20, GIB, 16 * GIB)
_UNITS = ("containerd", "crio", "docker", "kubelet", "ray", "slurmd", "ssh", "sshd")
_UPDATES = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "unattended-upgrades",
    "dnf-automatic.timer",
    "packagekit",
)


def _keys(**more: str) -> dict[str, Any]:
    return {"kernel": {"sysctls": {key.replace("__", "."): value for key, value in more.items()}}}


FAULTS: dict[str, tuple[dict[str, Any], ...]] = {
    "BIOS02": ({"cpu": {"offline": []}},),
    "CPU01": ({}, {"cpu": {"governors": ["performance", "powersave"]}}),
    "CPU02": ({}, {"cpu": {"energy_preferences": ["balance_power", "default", "power"]}}),
    "CPU03": ({}, {"cpu": {"energy_bias": [0, 6, 15, 4]}}),
    "CPU04": ({"cpu": {"scaling_driver": "intel_pstate"}}, {"cpu": {"scaling_driver": "acpi-cpufreq"}}),
    "CPU07": ({"cpu": {"idle_states": _STATES}}, {"cpu": {"idle_states": [_STATES[0], *_STATES[4:7]]}}),
    "CPU08": ({"cpu": {"dma_latency_us": 2_000_000_000}},),
    "CPU16": ({}, {"cpu": {"offline": [1, 3, 5]}}),
    "GPU02": (_AT,),
    "GPU05": (_AT, {"gpus": [{**_GPU, "power_limit_w": 299.5, "power_default_w": 400.25}]}),
    "GPU15": (_AT, {"gpus": [{**_GPU, "compute_mode": "exclusive_process"}], "software": {"mps_running": False}}),
    "IRQ01": ({"cpu": {"isolated": [5]}, "kernel": {"active_services": ["sshd"]}},),
    "KRN11": ({}, _keys(fs__inotify__max_user_watches="8192", fs__inotify__max_user_instances="128")),
    "KRN14": ({}, _keys(kernel__softlockup_panic="1", kernel__hung_task_panic="0")),
    "LIM02": (_keys(fs__nr_open="1048576"),),
    "LIM06": (
        {},
        {"kernel": {"units": [{"name": name, "open_files": 1024} for name in _UNITS], "active_services": list(_UNITS)}},
    ),
    "MEM03": ({}, {"memory": {"khugepaged_scan_sleep_ms": 10000, "khugepaged_pages_to_scan": 65536}}),
    "MEM05": (
        {},
        {"memory": {"huge_pools": [{"page_bytes": size, "total": 9, "free": 5} for size in _PAGES]}},
    ),
    "MEM09": (_keys(vm__dirty_background_bytes="0", vm__dirty_background_ratio="10"),),
    "MEM20": ({}, {"gpus": [{"c2c": False}]}),
    "NET01": ({"nics": [{"is_default_route": False}]},),
    "NET02": ({}, _keys(net__ipv4__tcp_rmem="4096 131072 67108864", net__ipv4__tcp_wmem="4096 16384 4194304")),
    "NET07": ({}, _keys(net__core__somaxconn="4096", net__ipv4__tcp_max_syn_backlog="512")),
    "NET09": (
        {},
        {"kernel": {"release": "6.8.0", "sysctls": {"net.ipv4.tcp_sack": "0", "net.ipv4.tcp_timestamps": "2"}}},
    ),
    "NET11": ({}, {"nics": [{"adaptive_rx": False, "rx_usecs": 64}]}, {"nics": [{"adaptive_rx": True, "rx_usecs": 4}]}),
    "NET12": ({}, {"nics": [{"channels": 1, "channels_max": 4}]}),
    "NET13": (
        {},
        {
            "nics": [
                {"features": {"generic-receive-offload": True, "tcp-segmentation-offload": False, "tx-nocache-copy": True}}
            ]
        },
    ),
    "NET17": (
        {},
        _keys(net__ipv4__neigh__default__gc_thresh1="128", net__ipv4__neigh__default__gc_thresh2="512"),
    ),
    "NUMA05": ({}, _keys(kernel__numa_balancing="2")),
    "NUMA06": ({}, _keys(vm__zone_reclaim_mode="3")),
    "PCIE02": ({"kernel": {"aspm_policy": "default"}},),
    "RDMA07": ({"rdma": [{"link_layer": "Ethernet", "netdev": "ens1"}], "nics": [{**_NIC, "mtu": 1500}]},),
    "RDMA13": ({}, _keys(net__ipv4__conf__all__arp_ignore="2")),
    "STO01": ({}, {"disks": [{"scheduler": "bfq"}]}),
    "STO03": ({}, {"disks": [{"name": "sda", "read_ahead_kb": 16}, {"name": "sdb", "read_ahead_kb": 256}]}),
    "STO04": ({}, {"disks": [{"nomerges": 0, "rq_affinity": 0}]}),
    "STO09": ({"mounts": [{"options": ["rw"]}]},),
    "SW10": ({}, {"kernel": {"enabled_services": list(_UPDATES)}}),
}  # fmt: skip
"""Code -> what is laid over the bad machine of its case, one a machine; `{}` is that machine as it is."""


def layers(code: str) -> list[dict[str, Any]]:
    """What has the fault of a check, first that of its case."""
    layer = {key: value for key, value in CASES[code].bad.items() if key not in ("gaps", "h2d")}
    return [over(layer, more) for more in FAULTS.get(code, ({},))]


def faulty(code: str) -> list[Machine]:
    """The machines with these faults."""
    return [machine(layer) for layer in layers(code)]


def over(below: Any, above: Any) -> Any:
    """`above` laid over `below`, item by item where there are as many."""
    if isinstance(below, dict) and isinstance(above, dict):
        laid = {key: over(below[key], value) if key in below else value for key, value in above.items()}
        return {**below, **laid}
    if isinstance(below, list) and isinstance(above, list) and len(below) == len(above):
        return [over(a, b) for a, b in zip(below, above, strict=True)]
    return above
