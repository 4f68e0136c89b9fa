"""Which environment values may be saved: those that tune performance and can't tell who runs where.

The rule, in full: a value is kept when its *name* is of a performance library (`NCCL_`, `OMP_`, `CUDA_`...)
and holds no word such as TOKEN or KEY, and its *value* is made only of numbers, switches, well-known words
(`Ring`, `INFO`, `expandable_segments`), names of interfaces and adapters (`eth0`, `mlx5_1`), and pseudonyms.
Everything else (paths, addresses, free text, any other name) is dropped. Nothing is kept because it
"looks harmless" by itself.
"""

import re

REDACTED = "[redacted]"

PSEUDONYM = re.compile(
    r"(?:host|user|mail|serial|ipv4|ipv6|mac|guid|hex|dir|nic|process)-\d+|(?:GPU-|MIG-)?uuid-\d+|\[redacted\]"
)
"""What redaction puts in place of a name. Redacting it again changes nothing."""

_SENSITIVE = re.compile(
    r"TOKEN(?!IZERS)|SECRET|PASS|PWD|CRED|AUTH|COOKIE|SIGN|SESSION|(?:^|_)KEY|PRIVATE|(?:^|_)PIN(?:$|_)"
)

_PERFORMANCE = re.compile(
    r"(?:NCCL|RCCL|TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|CUDA|CUDNN|CUBLAS|CUBLASLT|NVIDIA|NVTE|NVSHMEM|TRITON"
    r"|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|RAYON|POLARS|MALLOC|MIMALLOC|HSA|HIP|ROCR|ROCM|MIOPEN|AMD|UCX|GLOO"
    r"|FI|FSDP|VECLIB|OMPI_COMM_WORLD|XLA|TF|JAX|VLLM|SGLANG|DEEPSPEED|TOKENIZERS|PYTHON)_\w+"
    r"|PYTHON(?:UNBUFFERED|OPTIMIZE|MALLOC|HASHSEED|DEVMODE|PROFILEIMPORTTIME|DONTWRITEBYTECODE|NOUSERSITE)"
    r"|SLURM_(?:CPUS?|GPUS|JOB_CPUS|JOB_NUM|LOCALID|MEM|NNODES|NODEID|NPROCS|NTASKS|PROCID|TASKS)\w*"
    r"|GLIBC_TUNABLES|THP_MEM_ALLOC_ENABLE|GPU_MAX_HW_QUEUES|LD_PRELOAD|LD_BIND_NOW"
    r"|(?:LOCAL_|GROUP_|NODE_|ROLE_)?RANK|(?:LOCAL_|GROUP_)?WORLD_SIZE"
)

_NUMBER = re.compile(
    r"[+-]?(?:x?\d{1,12}(?:\.\d{1,6})?|0x[0-9a-f]{1,12})(?:[kmgt]?i?b?|ms|us|ns|s|%)?(?:-\d{1,6})?",
    re.IGNORECASE,
)
_ADAPTER = re.compile(
    r"(?:lo|(?:eth|bond|ib|hsn|docker|br|veth|rdma)\d{1,3}|en[ospx]\w{1,12}|ibp\w{1,10}"
    r"|(?:mlx[45]|bnxt_re|irdma|efa|hfi1|hns|rxe|siw|rocep\w{1,8}|rdmap\w{1,8})_?\d{1,3})"
)
_ALLOCATOR = re.compile(r"(?:/usr|/lib)?[\w./+-]{0,80}/?lib(?:tc|je|mi)malloc[\w-]*\.so[\d.]*")

_KNOWN_WORDS = """
    true false yes no on off y n t f enabled disabled enable disable auto none null default all any empty void
    info warn warning error debug trace version abort fatal critical notice detail
    init coll p2p shm net graph tuning env alloc call proxy nvls bootstrap reg profile ras
    ring tree collnet collnetdirect collnetchain nvlstree pat simple ll ll128 socket ib ucx sharp libfabric
    loc nvl pix pxb phb pxn sys node
    lazy eager pci_bus_id fastest_first
    close spread primary master cores threads sockets numa_domains ll_caches static dynamic guided monotonic
    nonmonotonic passive active granularity fine compact scatter balanced verbose noverbose respect norespect
    expandable_segments max_split_size_mb garbage_collection_threshold roundup_power2_divisions backend native
    cudamallocasync pinned_use_cuda_host_register pinned_num_register_threads
    max_non_split_rounding_mb pinned_use_background_threads
    compute utility graphics video display compat32 ngx
    tf32 fp32 fp16 bf16 fp8 highest high medium ieee avx avx2 avx512 sse4_2 amx
    malloc pymalloc malloc_debug background_thread metadata_thp dirty_decay_ms muzzy_decay_ms narenas percpu_arena
    oversize_threshold hugetlb thp always madvise never
    glibc.malloc.hugetlb glibc.malloc.arena_max glibc.malloc.tcache_count glibc.malloc.mmap_threshold
    glibc.malloc.trim_threshold glibc.malloc.top_pad glibc.malloc.mmap_max glibc.malloc.tcache_max
    rc rc_x rc_mlx5 ud ud_x ud_mlx5 dc dc_x dc_mlx5 tcp self cuda cuda_copy cuda_ipc gdr_copy rocm rocm_copy rocm_ipc
    sysv posix cma knem xpmem mm put_zcopy get_zcopy am
    flash flash_attn flashinfer triton xformers sdpa cutlass spawn fork forkserver
"""
_WORDS = frozenset(_KNOWN_WORDS.split())
_SEPARATORS = re.compile(r"[,;:=^|{}()\s]+")


def is_sensitive(name: str) -> bool:
    """Whether the name of a variable promises a secret."""
    return bool(_SENSITIVE.search(name.upper()))


def is_performance(name: str) -> bool:
    """Whether a variable is of a library that tunes performance."""
    return bool(_PERFORMANCE.fullmatch(name))


def is_harmless(value: str) -> bool:
    """Whether a value is made only of numbers, switches, well-known words, adapters and pseudonyms."""
    return len(value) <= 400 and all(map(_is_known, filter(None, _SEPARATORS.split(value.strip("\"'")))))


def may_keep(name: str, value: str) -> bool:
    """Whether `name=value` can be saved as it is. An empty value always can."""
    if not value or value == REDACTED:
        return True
    return is_performance(name) and not is_sensitive(name) and is_harmless(value)


def _is_known(part: str) -> bool:
    return (
        part.lower() in _WORDS
        or _NUMBER.fullmatch(part) is not None
        or _ADAPTER.fullmatch(part) is not None
        or PSEUDONYM.fullmatch(part) is not None
        or _ALLOCATOR.fullmatch(part) is not None
    )
