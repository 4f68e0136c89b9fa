"""States of RDMA, network and storage that are as they should be, and on which no check may raise a finding."""

from typing import Any

import pytest
from host_cases import machine, ports

from wellfed.check import judge_machine
from wellfed.model import Verdict

NIC = {"name": "eth0", "is_physical": True, "state": "up", "mtu": 9000}
KVM = {"hypervisor": "kvm"}
TCP = {"net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_wmem": "4096 16384 4194304"}


def judge(code: str, layer: dict[str, Any], intent: str = "training") -> Verdict:
    return next(v for v in judge_machine(machine(layer), intent=intent) if v.code == code)


def mount(fs: str, *options: str, path: str = "/data") -> dict[str, Any]:
    return {"mounts": [{"path": path, "fs": fs, "options": ["rw", *options]}]}


QUIET: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("virtio tells no speed", "NET02", {"nics": [NIC], "kernel": {"sysctls": TCP}}, "training", "not-judged"),
    ("slow interfaces need no large buffers", "NET02", {"nics": [{**NIC, "speed_mbps": 10_000}], "kernel": {"sysctls": TCP}}, "training", "not-judged"),
    ("BBR does not look at the switch", "NET08", {"kernel": {"sysctls": {"net.ipv4.tcp_congestion_control": "bbr", "net.ipv4.tcp_slow_start_after_idle": "1"}}}, "latency", "not-judged"),
    ("a container has no clock of its own", "NET20", {"container": {"kind": "docker"}, "kernel": {"active_services": []}}, "training", "not-judged"),
    ("a firewall on a lone machine", "NET19", {"seen": ("rdma", "environment"), "gpus": [{}], "kernel": {"active_services": ["ufw"]}}, "training", "not-judged"),
    ("one machine may have its name at 127.x", "NET21", {"environment": {"WORLD_SIZE": "2"}, "gpus": [{}, {}], "kernel": {"name_on_loopback": True}}, "training", "not-judged"),
    ("no job at all, and no GPU", "NET21", {"seen": ("environment", "gpus"), "kernel": {"name_on_loopback": True}}, "training", "not-judged"),
    ("more ranks than GPUs, all started here", "NET21", {"environment": {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, "gpus": [{}], "kernel": {"name_on_loopback": True}}, "training", "not-judged"),
    ("no job, no GPU, a firewall", "NET19", {"seen": ("rdma", "environment", "gpus"), "kernel": {"active_services": ["ufw"]}}, "training", "not-judged"),
    ("Gloo is told its interface", "NET21", {"environment": {"WORLD_SIZE": "4", "GLOO_SOCKET_IFNAME": "eth0"}, "gpus": [{}], "kernel": {"name_on_loopback": True}}, "training", "pass"),
    ("a virtio disk mounted with discard", "STO09", {"cpu": KVM, **mount("ext4", "relatime", "discard")}, "training", "not-judged"),
    ("discard=async waits for nothing", "STO09", mount("btrfs", "relatime", "discard=async"), "training", "pass"),
    ("NFS over RDMA needs one connection", "STO14", mount("nfs4", "rsize=1048576", "proto=rdma"), "training", "pass"),
    ("a scheduler on a virtio disk", "STO01", {"disks": [{"name": "vda", "is_virtual": False, "scheduler": "mq-deadline"}]}, "training", "not-judged"),
    ("64 MiB in a container is CON07's", "STO13", {"container": {"kind": "docker", "shm_bytes": 64 << 20}, "memory": {"total_bytes": 1 << 39}, "gpus": [{}]}, "training", "not-judged"),
    ("EFA has no counter of link downs", "RDMA02", {"rdma": [{"device": "rdmap0s6", "port": 1, "state": "ACTIVE", "link_layer": "Unspecified"}]}, "training", "not-judged"),
    ("a pod is given some EFA devices", "RDMA12", {"container": {"kind": "kubernetes"}, "memory": {"dmi_product": "Amazon EC2 p5.48xlarge"}, "rdma": [{"device": "rdmap0s6", "port": 1}]}, "training", "not-judged"),
    ("p5en is not p5", "RDMA12", {"memory": {"dmi_product": "Amazon EC2 p5en.48xlarge"}, "rdma": [{"device": "rdmap0s6", "port": 1}]}, "training", "not-judged"),
    ("errors of bringing up an idle link", "RDMA03", {"rdma": ports({"state": "ACTIVE", "counters": {"symbol_error": 3, "port_rcv_packets": 12}})}, "training", "not-judged"),
    ("adapters of two kinds", "RDMA09", {"rdma": ports({"firmware": "28.41", "board": "A"}, {"firmware": "16.35", "board": "B"})}, "training", "not-judged"),
    ("one RoCE port has no twin to answer for", "RDMA13", {"rdma": ports({"state": "ACTIVE", "link_layer": "Ethernet"}, {"state": "ACTIVE"})}, "training", "not-judged"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "layer", "intent", "verdict"), [row[1:] for row in QUIET], ids=[row[0] for row in QUIET]
)
def test_it_is_no_finding(code: str, layer: dict[str, Any], intent: str, verdict: str) -> None:
    found = judge(code, layer, intent)
    assert found.verdict == verdict, found.message


def test_one_flap_in_a_month_is_a_note() -> None:
    one = {"rdma": ports({"state": "ACTIVE", "link_downed": 2}), "kernel": {"uptime_s": 30 * 86400.0}}
    assert (judge("RDMA02", one).verdict, judge("RDMA02", one).severity) == ("finding", "info")


def test_a_few_drops_among_many_packets_are_none() -> None:
    keys = {"net.core.netdev_max_backlog": "1000"}
    counts = {"processed": 10_000_000, "dropped": 3, "squeezed": 9}
    assert judge("NET06", {"kernel": {"softnet": counts, "sysctls": keys}}).verdict == "pass"


@pytest.mark.parametrize(
    ("size", "verdict"),
    [("1048575", "finding"), ("1048576", "pass"), ("1048600", "pass"), ("1049000", "pass"), ("1100000", "pass"),
     ("4194304", "pass"), ("524288", "finding"), ("10485760", "pass"), ("65536", "finding")],
)  # fmt: skip
def test_the_size_of_reads_is_compared_as_a_number(size: str, verdict: str) -> None:
    assert judge("STO14", mount("nfs", f"rsize={size}", "nconnect=4")).verdict == verdict


def test_a_worn_disk_that_works_is_a_note() -> None:
    disk = {"name": "nvme0n1", "is_virtual": False, "smart_warning": 0, "smart_media_errors": 0}
    worn = judge("STO07", {"disks": [{**disk, "smart_used_pct": 104}]})
    assert (worn.verdict, worn.severity) == ("finding", "info")


def test_what_latency_wants_of_interrupts_is_not_what_throughput_wants() -> None:
    nic = {**NIC, "speed_mbps": 100_000, "adaptive_rx": True, "rx_usecs": 8}
    assert judge("NET11", {"nics": [nic]}, "latency").verdict == "finding"
    assert judge("NET11", {"nics": [nic]}, "throughput").verdict == "pass"
    assert judge("NET11", {"nics": [nic]}, "training").reason == "intent"
