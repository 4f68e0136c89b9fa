"""Bad and good machines for checks of limits."""

from typing import Any


def _sshd(open_files: int, active: list[str]) -> dict[str, Any]:
    return {"kernel": {"active_services": active, "units": [{"name": "sshd", "open_files": open_files}]}}


_CORES: dict[str, Any] = {
    "limits": {"core_bytes": {"soft": -1, "hard": -1}},
    "gpus": [{"name": "NVIDIA H200"}],
}
CASES: dict[str, Any] = {
    "LIM04": (
        {"limits": {"stack_bytes": {"soft": -1, "hard": -1}}},
        {"limits": {"stack_bytes": {"soft": 8 << 20, "hard": -1}}},
        "info",
    ),
    "LIM05": (
        {**_CORES, "kernel": {"sysctls": {"kernel.core_pattern": "core"}}},
        {**_CORES, "kernel": {"sysctls": {"kernel.core_pattern": "|/usr/lib/systemd/systemd-coredump %P"}}},
        "info",
    ),
    "LIM07": (
        {"container": {"cgroup_version": 2, "cpu_weight": 20}},
        {"container": {"cgroup_version": 2, "cpu_weight": 100}},
        "info",
    ),
    "LIM06": (_sshd(1024, ["sshd"]), _sshd(1024, ["docker"]), "info"),
    "LIM08": (
        {"processes": [{"pid": 7, "gpus": [0], "oom_score_adj": 200}]},
        {"processes": [{"pid": 7, "gpus": [0], "oom_score_adj": 0}]},
        "info",
    ),
    "LIM09": (
        {"kernel": {"sysctls": {"kernel.yama.ptrace_scope": "2"}}},
        {"kernel": {"sysctls": {"kernel.yama.ptrace_scope": "1"}}},
        "info",
    ),
}
