"""Bad and good machines for checks of the environment."""

from typing import Any

_CPUS = {"cpu": {"allowed": list(range(16))}, "container": {"cpu_quota": -1}}
_NVIDIA = [{"vendor": "nvidia", "name": "NVIDIA H200"}]
_PORT = {"device": "mlx5_0", "port": 1}


def _set(**variables: str) -> dict[str, Any]:
    return {"environment": variables or {"RANK": "0"}}


CASES: dict[str, Any] = {
    "ENV01": (
        {**_set(OMP_NUM_THREADS="1"), **_CPUS, "gpus": _NVIDIA},
        {**_set(OMP_NUM_THREADS="1"), **_CPUS, "gpus": _NVIDIA * 4},
        "info",
    ),
    "ENV03": ({**_set(MKL_NUM_THREADS="64"), **_CPUS}, {**_set(MKL_NUM_THREADS="16"), **_CPUS}, "info"),
    "ENV04": (_set(MALLOC_PERTURB_="165"), _set(MALLOC_CHECK_="0", MALLOC_ARENA_MAX="4"), "info"),
    "ENV05": (
        {**_set(CUDA_DEVICE_MAX_CONNECTIONS="2"), "gpus": _NVIDIA},
        {**_set(CUDA_DEVICE_MAX_CONNECTIONS="32"), "gpus": _NVIDIA},
        "info",
    ),
    "ENV08": (
        _set(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True,max_split_size_mb:8"),
        _set(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:128"),
        "warning",
    ),
    "ENV10": (_set(NCCL_DEBUG="INFO"), _set(NCCL_DEBUG="WARN"), "info"),
    "ENV12": (
        {**_set(NCCL_SOCKET_IFNAME="ib0"), "nics": [{"name": "eth0", "state": "up"}]},
        {**_set(NCCL_SOCKET_IFNAME="eth"), "nics": [{"name": "eth0", "state": "up"}]},
        "warning",
    ),
    "ENV13": (
        {**_set(), "cpu": {"allowed": [0, 1], "logical": 64}, "gpus": _NVIDIA * 2},
        {
            **_set(NCCL_IGNORE_CPU_AFFINITY="1"),
            "cpu": {"allowed": [0, 1], "logical": 64},
            "gpus": _NVIDIA * 2,
        },
        "info",
    ),
    "ENV15": (
        {"software": {"env_files": {"NCCL_TOPO_FILE": False}}},
        {"software": {"env_files": {"NCCL_TOPO_FILE": True}}},
        "warning",
    ),
    "ENV16": (_set(CUDA_MODULE_LOADING="EAGER"), _set(CUDA_MODULE_LOADING="LAZY"), "info"),
    "ENV17": (
        {**_set(), "gpus": [*_NVIDIA, {"vendor": "nvidia", "name": "Tesla T4"}]},
        {**_set(), "gpus": _NVIDIA * 2},
        "info",
    ),
    "ENV18": (_set(CUDA_CACHE_DISABLE="1"), _set(CUDA_CACHE_DISABLE="0"), "info"),
    "ENV19": (_set(TOKENIZERS_PARALLELISM="false"), _set(TOKENIZERS_PARALLELISM="true"), "info"),
    "ENV21": (
        {**_set(UCX_TLS="tcp,self"), "rdma": [_PORT]},
        {**_set(UCX_TLS="rc_x,self,cuda_copy"), "rdma": [_PORT]},
        "info",
    ),
    "ENV22": (
        {**_set(HSA_ENABLE_SDMA="0"), "gpus": [{"vendor": "amd"}]},
        {**_set(HSA_ENABLE_SDMA="1"), "gpus": [{"vendor": "amd"}]},
        "info",
    ),
    "ENV23": (
        _set(WORLD_SIZE="8", http_proxy="http://proxy:3128"),
        _set(WORLD_SIZE="8", http_proxy="http://proxy:3128", NO_PROXY="10.0.0.0/8"),
        "info",
    ),
    "ENV24": (_set(LD_PRELOAD="/usr/lib/libasan.so.8"), _set(LD_PRELOAD="/usr/lib/libjemalloc.so.2"), "info"),
}
KEYS = {"environment": ("WORLD_SIZE", "UCX_TLS", "MKL_NUM_THREADS"), "env_files": ("NCCL_TOPO_FILE",)}
