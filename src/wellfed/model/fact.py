"""One thing seen of a machine, with where it was seen. Not being able to look is a fact too."""

from typing import Any, Literal

from wellfed.model.base import Value

Status = Literal["ok", "missing", "denied", "unsupported", "error"]
"""ok: seen. missing: the file, command or device is not there. denied: no permission.
unsupported: there, but this device or kernel cannot say. error: there, but unreadable (detail says how)."""


class Fact(Value, frozen=True, kw_only=True):
    """`key` is the path of the field of `Machine` that it fills, e.g. `memory.thp_enabled`,
    `gpus[0].pcie_width`, `kernel.sysctls[vm.swappiness]`. `value` is None exactly when status is not `ok`.
    `source` is the path or command looked at, `raw` what it said (at most 4096 characters)."""

    key: str
    value: Any = None
    source: str = ""
    raw: str | None = None
    status: Status = "ok"
    detail: str | None = None
