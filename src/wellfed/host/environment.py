"""Environment variables that change how a job runs. Others are never read: they are nobody's business."""

import re

from wellfed.host.door import Host
from wellfed.host.parse import gap, known
from wellfed.model.fact import Fact

_PREFIX_TEXT = """
AMD_LOG AMD_SERIALIZE BLIS CUBLAS CUBLASLT CUDA CUDNN DEEPSPEED FI FSDP GLOO GOMP HIP HSA JAX KMP MALLOC MIMALLOC
MIOPEN MKL MPI4PY NCCL NUMEXPR NVIDIA NVSHMEM NVTE OMP OMPI_COMM_WORLD OPENBLAS POLARS PYTORCH RAYON RCCL ROCR SGLANG
SHARP TF_CPP TF_FORCE TF_GPU TF_NUM TF_XLA TORCH TORCHDYNAMO TORCHELASTIC TORCHINDUCTOR TRITON UCX VECLIB VLLM XLA
"""
_NAME_TEXT = """
COMPUTE_SANITIZER_OPTIONS GLIBC_TUNABLES GPU_MAX_HW_QUEUES GROUP_RANK GROUP_WORLD_SIZE HF_DATASETS_CACHE HF_HOME
HTTPS_PROXY HTTP_PROXY https_proxy http_proxy KUBERNETES_SERVICE_HOST LD_BIND_NOW LD_PRELOAD LOCAL_RANK
LOCAL_WORLD_SIZE NO_PROXY NSYS_PROFILING_SESSION_ID NODE_RANK PYTHONASYNCIODEBUG PYTHONDEVMODE PYTHONDONTWRITEBYTECODE
PYTHONFAULTHANDLER PYTHONGIL PYTHONHASHSEED PYTHONMALLOC PYTHONNOUSERSITE PYTHONOPTIMIZE PYTHONPROFILEIMPORTTIME
PYTHONTRACEMALLOC PYTHONUNBUFFERED RANK ROLE_RANK SLURM_CPUS_ON_NODE SLURM_CPUS_PER_TASK SLURM_CPU_BIND SLURM_GPUS
SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_JOB_CPUS_PER_NODE SLURM_JOB_NUM_NODES SLURM_LOCALID
SLURM_MEM_BIND SLURM_MEM_PER_NODE SLURM_NNODES SLURM_NODEID SLURM_NPROCS SLURM_NTASKS SLURM_NTASKS_PER_NODE
SLURM_PROCID SLURM_TASKS_PER_NODE THP_MEM_ALLOC_ENABLE TMPDIR TOKENIZERS_PARALLELISM WORLD_SIZE no_proxy
"""
_PREFIXES = tuple(f"{prefix}_" for prefix in _PREFIX_TEXT.split())
_NAMES = frozenset(_NAME_TEXT.split())
_SECRET = re.compile(r"TOKEN(?!IZERS)|SECRET|PASS|CRED|AUTH|COOKIE|(?:^|_)KEY(?:$|_)", re.IGNORECASE)
MAX_VALUE_CHARS = 4096
FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE")
"""Variables that name a file which NCCL reads."""


def is_watched(name: str) -> bool:
    """Whether a variable bears on performance and promises no secret."""
    if _SECRET.search(name):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)


def watched(variables: dict[str, str]) -> dict[str, str]:
    """The variables worth looking at, by name, long values cut. The login in a proxy's address goes."""
    return {
        name: re.sub(r"(?<=://)[^/@\s]*@", "", value)[:MAX_VALUE_CHARS]
        for name, value in sorted(variables.items())
        if is_watched(name)
    }


def read_environment(host: Host) -> list[Fact]:
    """Facts of `Machine.environment`, and whether files that variables name are there. None set is an answer too;
    none recorded is a gap."""
    variables = host.environ()
    if not variables and host.recorded:
        detail = "no environment is in the recording"
        return [gap(key, "environment", detail=detail) for key in ("environment", "software.env_files")]
    found = watched(variables)
    if not found:
        return [
            known("environment", {}, "environment", detail="no variable that bears on performance is set"),
            *_files(host, found),
        ]
    return [
        *(
            known(f"environment[{name}]", value, f"environment {name}", value)
            for name, value in found.items()
        ),
        *_files(host, found),
    ]


def _files(host: Host, found: dict[str, str]) -> list[Fact]:
    """Only a live look can tell: a recording does not hold every file."""
    key = "software.env_files"
    named = {name: found[name] for name in FILES if found.get(name)}
    if not named:
        return [known(key, {}, "environment", detail="no variable names a file")]
    if host.recorded:
        return [
            gap(key, "environment", "unsupported", "a recording does not hold the files that variables name")
        ]
    absolute = {name: path for name, path in named.items() if path.startswith("/")}
    if len(absolute) < len(named):
        return [
            gap(key, "environment", "unsupported", "a file is named from the folder that a job starts in")
        ]
    return [
        known(f"{key}[{name}]", host.exists(path), f"file of environment {name}")
        for name, path in absolute.items()
    ]
