"""NVLink on the recorded H200 machine."""

ARGUED = {
    "NVL05": "an H200 on its own has no fabric with other machines",
    "NVL06": "one GPU has no peer",
    "NVL02": "NVML says not supported: no NVLink was given to the machine with its one GPU",
    "NVL08": "an H200 sits on PCIe, not on a Grace CPU",
    "NVL09": "no AMD GPU",
}
