"""Why the verdicts on storage are right on the recorded H200 machine."""

ARGUED = {
    "STO01": "both disks are virtio, no NVMe",
    "STO09": "`/` is mounted with discard, on a disk of the host: whether that costs is the host's matter",
    "STO13": "in a container, judged by CON07",
    "STO14": "no NFS is mounted",
}
