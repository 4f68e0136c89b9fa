"""Why the verdicts on storage are right on the recorded H200 machine."""

ARGUED = {
    "STO01": "both disks are virtio, no NVMe",
    "STO09": "`/` is mounted with discard, on a disk of the host: whether that costs is the host's matter",
    "STO13": "in a container, judged by CON07",
    "STO14": "no NFS is mounted",
    "STO04": "asked for throughput only, and both disks are virtio",
    "STO07": "both disks are virtio, no NVMe",
    "STO08": "asked for latency only",
    "STO11": "`/proc/mdstat` does not exist: the md driver is not loaded",
}
