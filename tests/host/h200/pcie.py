"""PCIe on the recorded H200 machine."""

_REGISTERS = "a guest sees the registers that its host makes up"
ARGUED = {
    "PCIE02": _REGISTERS,
    "PCIE03": _REGISTERS,
    "PCIE04": _REGISTERS,
    "PCIE06": "no RDMA adapter was given to the machine",
    "PCIE07": "no RDMA adapter was given to the machine",
    "PCIE08": "the guest's kernel shows no error counters of the GPU (no `aer_dev_*`): unseen is not zero",
    "PCIE09": "the host decides whether a passed-through GPU sleeps",
    "PCIE10": "a virtual machine shows no real tree",
    "PCIE11": "there is one GPU, so there is nothing to pair",
    "PCIE12": "one node: every CPU is near",
    "PCIE13": "a virtual machine shows no real tree",
    "PCIE14": "`lspci -k` said: nvidia",
}
