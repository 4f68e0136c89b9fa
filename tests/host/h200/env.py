"""Why the verdicts on the environment are right on the recorded H200 machine."""

ARGUED = {
    "ENV01": "OMP_NUM_THREADS is not set",
    "ENV03": "none is set",
    "ENV04": "none is set",
    "ENV05": "CUDA_DEVICE_MAX_CONNECTIONS is not set",
    "ENV10": "NCCL_DEBUG is not set",
    "ENV15": "no variable names a file",
    "ENV16": "CUDA_MODULE_LOADING is not set",
    "ENV18": "none is set",
    "ENV19": "asked for serving only",
    "ENV21": "no RDMA port",
    "ENV22": "no AMD GPU",
    "ENV23": "WORLD_SIZE is not set: one process",
    "ENV24": "none is set",
    "ENV12": "neither variable is set",
    "ENV08": "neither variable is set",
    "ENV13": "one GPU",
    "ENV17": "one GPU",
}
