"""Versions and daemons, from text and folders only."""

import subprocess
import sys
from typing import Any

import pytest

from wellfed.host.archive import Link
from wellfed.host.assemble import assemble
from wellfed.host.live import LiveHost
from wellfed.host.recorded import host_of
from wellfed.host.software import read_software
from wellfed.model.machine import Machine, Package

SITE = "/opt/env/lib/python3.12/site-packages"
PYTHON = {
    "version": "3.12.4",
    "executable": "/opt/env/bin/python",
    "gil": True,
    "glibc": "glibc 2.39",
    "paths": ["/opt/env/lib/python3.12", SITE, "/usr/lib/python3/dist-packages"],
}
VERSION_PY = (
    "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
    "__version__ = '2.5.1+cu124'\ndebug = False\ncuda: Optional[str] = '12.4'\n"
    "git_version = 'a8d6afb'\nhip: Optional[str] = None\n"
)


def look(
    files: dict[str, Any] | None = None,
    *,
    python: Any = PYTHON,
    tools: dict[str, Any] | None = None,
    nvml: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
    **commands: str,
) -> Machine:
    probes = {"python": python} | ({"tools": tools} if tools is not None else {})
    named = {name.replace("_", "-"): text for name, text in commands.items()}
    return assemble(
        read_software(host_of(files or {}, commands=named, probes=probes, nvml=nvml, environ=environ))
    )


def packages(*names: str) -> dict[str, None]:
    return {f"{SITE}/{name}": None for name in names}


def test_python() -> None:
    software = look().software
    assert (software.python, software.python_path, software.gil) == ("3.12.4", "/opt/env/bin/python", True)
    assert software.glibc == "2.39"


def test_old_glibc_by_its_file_name() -> None:
    files = {"/lib/x86_64-linux-gnu/libc.so.6": Link("libc-2.31.so")}
    assert look(files, python={}).software.glibc == "2.31"


@pytest.mark.parametrize(
    ("line", "version", "is_open"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023",
            "535.104.05",
            False,
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (root)",
            "570.124.06",
            True,
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  595.91", "595.91", True),
    ],
)
def test_driver(line: str, version: str, is_open: bool) -> None:
    software = look({"/proc/driver/nvidia/version": f"{line}\nGCC version:  gcc version 12.2.0\n"}).software
    assert (software.driver, software.driver_open) == (version, is_open)


def test_driver_by_nvml_and_by_xml() -> None:
    nvml = {
        "status": "ok",
        "system": {"driver_version": "570.1", "cuda_driver_version": 12080},
        "devices": [],
    }
    software = look(nvml=nvml).software
    assert (software.driver, software.cuda_driver, software.driver_open) == ("570.1", "12.8", None)
    xml = "<nvidia_smi_log><driver_version>535.5</driver_version><cuda_version>12.2</cuda_version></nvidia_smi_log>"
    software = look(nvidia_smi_xml=xml).software
    assert (software.driver, software.cuda_driver) == ("535.5", "12.2")
    assert look({"/sys/module/amdgpu/version": "6.12.12"}).software.driver == "6.12.12"


def test_toolkits() -> None:
    json_text = '{"cuda" : {"name" : "CUDA SDK", "version" : "12.4.1"}, "nsight" : {"version" : "1"}}'
    assert look({"/usr/local/cuda/version.json": json_text}).software.cuda_toolkit == "12.4.1"
    assert look({"/usr/local/cuda/version.txt": "CUDA Version 10.2.89"}).software.cuda_toolkit == "10.2.89"
    nvcc = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n"
    assert look(nvcc_version=nvcc).software.cuda_toolkit == "13.0.88"
    named = look({"/opt/c/version.json": json_text}, environ={"CUDA_HOME": "/opt/c"}, nvcc_version=nvcc)
    assert named.software.cuda_toolkit == "12.4.1"
    assert look({"/opt/rocm/.info/version": "6.4.1-83\n"}).software.rocm == "6.4.1-83"
    assert look().gaps["software.cuda_toolkit"].startswith("missing")


def test_torch_is_read_not_imported() -> None:
    files = packages(
        "torch-2.5.1+cu124.dist-info",
        "nvidia_nccl_cu12-2.21.5.dist-info",
        "nvidia_cudnn_cu12-9.1.0.70.dist-info",
        "secret_project-1.0.dist-info",
        "Flash_Attn-2.6.3.dist-info",
        "transformers-4.48.0.egg-info",
        "apex-0.1-py3.12.egg-info",
        "torch",
    )
    machine = look({**files, f"{SITE}/torch/version.py": VERSION_PY})
    software = machine.software
    assert (software.torch, software.torch_cuda) == ("2.5.1+cu124", "12.4")
    assert (software.nccl, software.cudnn) == ("2.21.5", "9.1.0.70")
    assert software.packages is not None
    assert {package.name: package.version for package in software.packages} == {
        "torch": "2.5.1+cu124",
        "nvidia_nccl_cu12": "2.21.5",
        "nvidia_cudnn_cu12": "9.1.0.70",
        "flash_attn": "2.6.3",
        "transformers": "4.48.0",
        "apex": "0.1",
    }
    assert "secret" not in repr(machine)


def test_torch_of_other_builds() -> None:
    rocm = VERSION_PY.replace("cuda: Optional[str] = '12.4'", "cuda: Optional[str] = None").replace(
        "hip: Optional[str] = None", "hip: Optional[str] = '6.2.41133'"
    )
    assert look({f"{SITE}/torch/version.py": rocm}).software.torch_cuda == "rocm6.2.41133"
    cpu = look({f"{SITE}/torch/version.py": "__version__ = '2.5.1+cpu'\ncuda = None\nhip = None\n"})
    assert (cpu.software.torch, cpu.software.torch_cuda) == ("2.5.1+cpu", None)
    assert cpu.gaps["software.torch_cuda"].startswith("unsupported")
    none = look()
    assert none.gaps["software.torch"].startswith("missing")
    assert none.gaps["software.torch_cuda"].startswith("missing")
    bare = look(packages("torch-2.5.1.dist-info"))
    assert (bare.software.torch, bare.software.torch_cuda) == ("2.5.1", None)


def test_the_package_found_first_is_the_one_imported() -> None:
    second = "/usr/lib/python3/dist-packages"
    files = packages("numpy-2.1.0.dist-info") | {f"{second}/numpy-1.26.4.egg-info": None}
    software = look(files).software
    assert software.packages == (
        Package(name="numpy", version="2.1.0", path=f"{SITE}/numpy-2.1.0.dist-info"),
        Package(name="numpy", version="1.26.4", path=f"{second}/numpy-1.26.4.egg-info"),
    )


def test_two_nccl_libraries() -> None:
    folder = "/usr/lib/x86_64-linux-gnu"
    files = packages("nvidia_nccl_cu12-2.21.5.dist-info") | {
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2": "",
        f"{folder}/libnccl.so.2": Link("libnccl.so.2.19.3"),
        f"{folder}/libnccl.so": Link("libnccl.so.2"),
        f"{folder}/libnccl.so.2.19.3": "",
        "/opt/hpcx/libnccl.so.2": "",
    }
    software = look(files, environ={"LD_LIBRARY_PATH": "/opt/hpcx:relative"}).software
    assert software.nccl == "2.21.5"
    assert software.nccl_libraries == (
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2",
        "/opt/hpcx/libnccl.so.2",
        f"{folder}/libnccl.so.2.19.3",
    )


def test_nccl_of_the_system() -> None:
    files = {"/opt/x/libnccl.so.2": Link("libnccl.so.2.28.9"), "/opt/x/libnccl.so.2.28.9": ""}
    cache = "\tlibnccl.so.2 (libc6,x86-64) => /opt/x/libnccl.so.2\n\tlibcuda.so.1 (libc6) => /usr/lib/libcuda.so.1\n"
    software = look(files, ldconfig=cache).software
    assert (software.nccl, software.nccl_libraries) == ("2.28.9", ("/opt/x/libnccl.so.2.28.9",))
    none = look()
    assert none.software.nccl_libraries is None
    assert none.gaps["software.nccl_libraries"].startswith("missing")


def test_tools() -> None:
    software = look(tools={"numactl": False, "nvidia-cuda-mps-control": True, "odd": "x"}).software
    assert software.tools == {"numactl": False, "nvidia-cuda-mps-control": True}
    assert software.mps_binaries is True
    assert look().gaps["software.tools"].startswith("missing")


def processes(*names: str) -> dict[str, str]:
    return {f"/proc/{number}/comm": name for number, name in enumerate(names, start=1)}


def test_daemons_on_a_host() -> None:
    software = look(processes("systemd", "kthreadd", "nvidia-persiste", "nv-fabricmanage")).software
    assert (software.persistenced_running, software.fabricmanager_running) == (True, True)
    assert software.mps_running is False


def test_a_container_proves_no_absence() -> None:
    found = look(processes("bash", "python", "nvidia-cuda-mps"))
    assert (found.software.mps_running, found.software.persistenced_running) == (True, None)
    assert found.gaps["software.persistenced_running"].startswith("denied")
    assert "container" in found.gaps["software.persistenced_running"]
    passed = look({**processes("bash"), "/run/nvidia-persistenced/socket": ""})
    assert passed.software.persistenced_running is True
    assert look().gaps["software.mps_running"].startswith("missing")


def test_nccl_config_shows_names_only() -> None:
    text = "# comment\nNCCL_DEBUG=WARN\n  NCCL_IB_HCA = mlx5_0,secret\nPATH=/x\nNCCL_DEBUG=INFO\n"
    machine = look({"/etc/nccl.conf": text})
    assert machine.software.nccl_config == ("NCCL_DEBUG", "NCCL_IB_HCA")
    assert "secret" not in repr(machine)
    assert look().software.nccl_config is None


@pytest.mark.parametrize(
    "python", [[], "x", None, {"paths": 5}, {"paths": [1, None]}, {"version": 3, "gil": "x"}, {"glibc": ""}]
)
def test_odd_answers_of_the_probe(python: Any) -> None:
    assert look(python=python).software.torch is None


@pytest.mark.parametrize("nvml", [{"system": 5}, {"system": {"cuda_driver_version": "x"}}, {"system": None}])
def test_odd_nvml(nvml: dict[str, Any]) -> None:
    assert look(nvml=nvml).software.cuda_driver is None


@pytest.mark.parametrize("text", ["", "NVRM version: ", "garbage", "\0" * 100, "NVRM version: 5"])
def test_odd_driver_text(text: str) -> None:
    assert look({"/proc/driver/nvidia/version": text}).software.driver is None


def test_this_python_without_importing_anything_heavy() -> None:
    code = (
        "import sys; from wellfed.host.live import LiveHost; from wellfed.host.software import read_software; "
        "read_software(LiveHost()); "
        "print([name for name in ('torch', 'numpy', 'importlib.metadata') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_this_machine() -> None:
    software = assemble(read_software(LiveHost())).software
    assert software.python == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(
    ("text", "cpu", "topology"),
    [
        ("kind: KubeletConfiguration\ncpuManagerPolicy: static\ntopologyManagerPolicy: single-numa-node\n", "static", "single-numa-node"),
        ("cpuManagerPolicy: \"static\" # chosen\n", "static", "None"),
        ("kind: KubeletConfiguration\n", "None", "None"),
        ("other:\n  cpuManagerPolicy: static\n# topologyManagerPolicy: restricted\n", "None", "None"),
    ],
)  # fmt: skip
def test_policies_of_the_kubelet(text: str, cpu: str, topology: str) -> None:
    kubelet = look({"/var/lib/kubelet/config.yaml": text}).software.kubelet
    assert kubelet == {
        "cpuManagerPolicy": cpu,
        "topologyManagerPolicy": topology,
        "memoryManagerPolicy": "None",
    }


def test_without_a_kubelet_nothing_is_said_of_it() -> None:
    assert look({}).gaps["software.kubelet"].startswith("missing")
