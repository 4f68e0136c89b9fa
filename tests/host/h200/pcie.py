"""PCIe on the recorded H200 machine."""

ARGUED = {
    "PCIE08": "the guest's kernel shows no error counters of the GPU (no `aer_dev_*`): unseen is not zero",
    "PCIE09": "the host decides whether a passed-through GPU sleeps",
    "PCIE10": "a virtual machine shows no real tree",
    "PCIE11": "there is one GPU, so there is nothing to pair",
    "PCIE12": "one node: every CPU is near",
    "PCIE13": "a virtual machine shows no real tree",
    "PCIE14": "`lspci -k` said: nvidia",
}
