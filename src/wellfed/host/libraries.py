"""Python packages and GPU libraries without importing or loading them: package folders are listed, links
followed, `torch/version.py` read as text."""

import re
from collections.abc import Iterable
from typing import Any

from wellfed.host.door import Host
from wellfed.host.parse import gap, known
from wellfed.model.fact import Fact

PACKAGES = re.compile(
    r"torch\w*|pytorch_\w+|nvidia_\w+|tensor(?:flow|rt|board)\w*|jax\w*|keras|cu(?:py|da)_\w+|flash\w+|triton|numba"
    r"|vllm|sglang|sgl_kernel|lmdeploy|lmcache|text_generation|nixl|ai_dynamo|onnxruntime_gpu|transformer\w*"
    r"|tokenizers|safetensors|sentence_transformers|accelerate|peft|optimum|bitsandbytes|unsloth|liger_kernel"
    r"|xformers|apex|deepspeed|deep_ep|fairscale|megatron_core|lightning|ray|mpi4py|datasets|webdataset"
    r"|mosaicml_streaming|kvikio|numpy|pyarrow|pillow\w*|opencv_python\w*|orjson|uvloop|fsspec|zstandard|dgl|xgboost"
    r"|wandb|mxnet|amdsmi|pynvml|wellfed"
)
"""Packages that bear on speed, by normalised name. The others are the user's business."""

_SITE = re.compile(r"/(?:site|dist)-packages/?$")
_DIST = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*?)-(\d[^-]*)(?:-py[\d.]+)?\.(?:dist-info|egg-info)$")
_SITES_MAX = 16
_ENTRIES_MAX = 20_000
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/lib",
    "/usr/local/cuda/lib64",
    "/opt/rocm/lib",
    "/opt/conda/lib",
)
_NCCL_FILES = ("libnccl.so.2", "libnccl.so", "librccl.so.1", "librccl.so")
_CUDNN_FILES = ("libcudnn.so.9", "libcudnn.so.8", "libcudnn.so")


def library_facts(host: Host, python: dict[str, Any]) -> list[Fact]:
    """The facts on packages, PyTorch, NCCL and cuDNN. `python` is the answer of the probe of that name."""
    sites = _sites(python)
    packages = _packages(host, sites)
    versions = {package["name"]: package["version"] for package in reversed(packages)}
    return [
        *_torch(host, sites, versions),
        *_nccl(host, sites, versions),
        _cudnn(host, versions),
        _package_list(sites, packages),
    ]


def _sites(python: dict[str, Any]) -> tuple[str, ...]:
    """Package folders of the running Python, in the order in which it searches them."""
    paths = python.get("paths")
    texts = [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []
    return tuple(path.rstrip("/") for path in texts if _SITE.search(path))[:_SITES_MAX]


def _packages(host: Host, sites: tuple[str, ...]) -> list[dict[str, str]]:
    """The watched packages; of one installed twice both, the first found in front: that one is imported."""
    found: list[dict[str, str]] = []
    for site in sites:
        found += [
            {"name": package[0], "version": package[1], "path": f"{site}/{entry}"}
            for entry in host.listdir(site)[:_ENTRIES_MAX]
            if (package := _package(entry))
        ]
    return found


def _package(entry: str) -> tuple[str, str] | None:
    """Name and version of a watched package, by the name of its folder of metadata."""
    match = _DIST.match(entry)
    name = re.sub(r"[-_.]+", "_", match.group(1)).lower() if match else ""
    return (name, match.group(2)) if match and PACKAGES.fullmatch(name) else None


def is_watched_entry(entry: str) -> bool:
    """Whether a name in a package folder is one that we go by."""
    return _package(entry) is not None


def _package_list(sites: tuple[str, ...], packages: list[dict[str, str]]) -> Fact:
    if not sites:
        return gap("software.packages", "probe python", "missing", "the package folders are not known")
    return known("software.packages", packages, ", ".join(sites))


def _torch(host: Host, sites: tuple[str, ...], versions: dict[str, str]) -> list[Fact]:
    """`torch/version.py` holds the build's version and the CUDA that it was built with."""
    for site in sites:
        reading = host.read(f"{site}/torch/version.py")
        said = dict(
            re.findall(
                r"^(__version__|cuda|hip)\b[^=\n]*=\s*['\"]([^'\"\n]{1,80})['\"]", reading.text or "", re.M
            )
        )
        if "__version__" in said:
            build = said.get("cuda") or (f"rocm{said['hip']}" if "hip" in said else None)
            cuda = (
                known("software.torch_cuda", build, reading.source, reading.text)
                if build
                else gap("software.torch_cuda", reading.source, "unsupported", "a build for the CPU")
            )
            return [known("software.torch", said["__version__"], reading.source, reading.text), cuda]
    where = ", ".join(sites) or "probe python"
    lacking = gap("software.torch_cuda", where, "missing", "no torch/version.py")
    if "torch" in versions:
        return [known("software.torch", versions["torch"], where), lacking]
    return [gap("software.torch", where, "missing", "PyTorch is not installed for this Python"), lacking]


def _nccl(host: Host, sites: tuple[str, ...], versions: dict[str, str]) -> list[Fact]:
    """`nccl` is the version that the wheel of this Python brings, else what the system has; `nccl_libraries`
    are all the files that a process could load: more than one is worth knowing."""
    wheels = [f"{site}/nvidia/nccl/lib/{name}" for site in sites for name in _NCCL_FILES[:2]]
    wheels += [f"{site}/torch/lib/{name}" for site in sites for name in _NCCL_FILES]
    found = _libraries(host, _NCCL_FILES, wheels)
    # A symbolic link and the file that it leads to are one library.
    libraries = list(dict.fromkeys(host.real(path) or path for path in found))
    source = ", ".join((*(("site-packages",) if sites else ()), "library folders"))
    facts = [
        known("software.nccl_libraries", libraries, source, "\n".join(libraries))
        if libraries
        else gap("software.nccl_libraries", source, "missing", "no NCCL library where the linker looks")
    ]
    for name in ("nvidia_nccl_cu13", "nvidia_nccl_cu12", "nvidia_nccl_cu11"):
        if name in versions:
            return [known("software.nccl", versions[name], name), *facts]
    for path in libraries:
        match = re.search(r"lib(?:n|r)ccl\.so\.(\d+\.\d+[\d.]*)$", path)
        if match:
            return [known("software.nccl", match.group(1), path), *facts]
    return [gap("software.nccl", source, "missing", "no NCCL library that tells its version"), *facts]


def _cudnn(host: Host, versions: dict[str, str]) -> Fact:
    key = "software.cudnn"
    for name in ("nvidia_cudnn_cu13", "nvidia_cudnn_cu12", "nvidia_cudnn_cu11"):
        if name in versions:
            return known(key, versions[name], name)
    for path in _libraries(host, _CUDNN_FILES, ()):
        match = re.search(r"libcudnn\.so\.(\d+\.\d+[\d.]*)$", host.real(path) or "")
        if match:
            return known(key, match.group(1), path)
    return gap(key, "library folders", "missing", "no cuDNN that tells its version")


def _libraries(host: Host, names: tuple[str, ...], first: Iterable[str]) -> list[str]:
    """Paths that exist: `first`, then LD_LIBRARY_PATH, the usual folders, and the linker's cache."""
    extra = [
        path.rstrip("/")
        for path in host.environ().get("LD_LIBRARY_PATH", "").split(":")
        if path.startswith("/")
    ]
    paths = [*first, *(f"{folder}/{name}" for folder in (*extra[:32], *_LIBRARY_FOLDERS) for name in names)]
    cached = re.findall(r"=>\s*(/\S+)", host.run("ldconfig").text or "")
    paths += [path for path in cached if path.rsplit("/", 1)[-1].startswith(names)]
    return [path for path in dict.fromkeys(paths) if host.exists(path)]
