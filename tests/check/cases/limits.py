"""Bad and good machines for checks of limits."""

from typing import Any


def _sshd(open_files: int, active: list[str]) -> dict[str, Any]:
    return {"kernel": {"active_services": active, "units": [{"name": "sshd", "open_files": open_files}]}}


CASES: dict[str, Any] = {
    "LIM04": (
        {"limits": {"stack_bytes": {"soft": -1, "hard": -1}}},
        {"limits": {"stack_bytes": {"soft": 8 << 20, "hard": -1}}},
        "info",
    ),
    "LIM06": (_sshd(1024, ["sshd"]), _sshd(1024, ["docker"]), "info"),
    "LIM09": (
        {"kernel": {"sysctls": {"kernel.yama.ptrace_scope": "2"}}},
        {"kernel": {"sysctls": {"kernel.yama.ptrace_scope": "1"}}},
        "info",
    ),
}
